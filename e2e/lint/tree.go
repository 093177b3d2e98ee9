package lint

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// module is the path of the project's Go module.
const module = "github.com/fairlead/fairlead"

// ErrNoRoot is returned when no directory above the given one holds the project's go.mod.
var ErrNoRoot = errors.New("no go.mod of " + module + " in this directory or above")

// A Finding is one violation of one law.
type Finding struct {
	Pos  string // file:line, or a package's directory.
	Text string // What is wrong and what to do instead.
}

// String returns the finding as one line, as compilers print theirs.
func (f Finding) String() string { return f.Pos + ": " + f.Text }

// A File is one parsed Go file.
type File struct {
	Path      string // Slash-separated, relative to the module's root.
	Test      bool
	Generated bool
	Syntax    *ast.File
}

// A Package is the Go files of one directory, external tests included.
type Package struct {
	Dir   string // Slash-separated, relative to the module's root; "." is the root.
	Files []*File
}

// Name returns the package's name as its importers see it.
func (p *Package) Name() string {
	for _, f := range p.Files {
		if !f.Test {
			return f.Syntax.Name.Name
		}
	}
	return strings.TrimSuffix(p.Files[0].Syntax.Name.Name, "_test")
}

// Generated reports whether a generator wrote every file of the package.
func (p *Package) Generated() bool {
	return !slices.ContainsFunc(p.Files, func(f *File) bool { return !f.Generated })
}

// Tree is the module's source.
type Tree struct {
	Root     string
	Fset     *token.FileSet
	Packages []*Package // Ordered by directory.
}

// Load parses every Go file below root except test data, hidden folders and nested modules.
func Load(root string) (*Tree, error) {
	t := &Tree{Root: root, Fset: token.NewFileSet()}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if rel != "." && skipped(root, rel) {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(rel) != ".go" || !d.Type().IsRegular() {
			return nil
		}
		src, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return t.add(rel, src)
	})
	if err != nil {
		return nil, fmt.Errorf("load the tree below %s: %w", root, err)
	}
	return t, nil
}

// skipped reports whether the go command, too, would leave out the folder.
func skipped(root, rel string) bool {
	base := path.Base(rel)
	if base == "testdata" || base == "vendor" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
		return true
	}
	_, err := os.Stat(filepath.Join(root, rel, "go.mod"))
	return err == nil
}

// add parses one file into its package.
func (t *Tree) add(rel string, src []byte) error {
	f, err := parser.ParseFile(t.Fset, rel, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	dir := path.Dir(rel)
	i := slices.IndexFunc(t.Packages, func(p *Package) bool { return p.Dir == dir })
	if i < 0 {
		t.Packages = append(t.Packages, &Package{Dir: dir})
		slices.SortFunc(t.Packages, func(a, b *Package) int { return strings.Compare(a.Dir, b.Dir) })
		i = slices.IndexFunc(t.Packages, func(p *Package) bool { return p.Dir == dir })
	}
	t.Packages[i].Files = append(t.Packages[i].Files, &File{
		Path:      rel,
		Test:      strings.HasSuffix(rel, "_test.go"),
		Generated: ast.IsGenerated(f),
		Syntax:    f,
	})
	return nil
}

// at returns a position as file:line.
func (t *Tree) at(pos token.Pos) string {
	p := t.Fset.Position(pos)
	return fmt.Sprintf("%s:%d", p.Filename, p.Line)
}

// Root returns the module's root: the nearest directory, from dir upwards, whose go.mod is the project's.
// It returns ErrNoRoot when there is none.
func Root(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(mod), "module "+module+"\n") {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", ErrNoRoot
		}
		dir = parent
	}
}
