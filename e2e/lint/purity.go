package lint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// orderFree marks a range over a map whose order cannot be seen, with the reason: "// order-free: sums are commutative".
const orderFree = "order-free:"

// impure maps a package that pure code may import to its members that it may not use.
func impure() map[string][]string {
	return map[string][]string{
		"time": {
			"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick", // The wall clock.
			"Local", "LoadLocation", // The machine's settings and files.
		},
		"io":  {"Pipe"}, // Its two ends wait for each other.
		"fmt": {"Print", "Printf", "Println", "Scan", "Scanf", "Scanln"},
	}
}

// pureRand lists the members of math/rand/v2 that take their seed from the caller; the others draw from the process's.
func pureRand() []string { return []string{"New", "NewPCG", "PCG", "Rand", "Source"} }

// Exports finds the compiled form of packages, so that one package can be type-checked without its dependencies' source.
type Exports map[string]string

// LoadExports asks the go command, run in root, for the compiled form of the packages named and of whatever they import.
func LoadExports(ctx context.Context, root string, packages ...string) (Exports, error) {
	args := append([]string{"list", "-e", "-export", "-deps", "-f", "{{if .Export}}{{.ImportPath}}\t{{.Export}}{{end}}"}, packages...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	list, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	exports := Exports{}
	for line := range strings.Lines(string(list)) {
		if name, file, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
			exports[name] = file
		}
	}
	return exports, nil
}

func (e Exports) open(name string) (io.ReadCloser, error) {
	file, ok := e[name]
	if !ok {
		return nil, fmt.Errorf("no compiled form of %s", name)
	}
	return os.Open(file)
}

// CheckPurity checks the pure packages of the tree for whatever the import table cannot see.
func (t *Tree) CheckPurity(layers []Layer, exports Exports) []Finding {
	var out []Finding
	imp := importer.ForCompiler(t.Fset, "gc", exports.open)
	for _, p := range t.Packages {
		if row, ok := rowOf(layers, p.Dir); !ok || row.Kind != Pure {
			continue
		}
		c := &purity{tree: t, info: &types.Info{
			Types: map[ast.Expr]types.TypeAndValue{},
			Uses:  map[*ast.Ident]types.Object{},
		}}
		var files []*ast.File
		for _, f := range p.Files {
			if !f.Test && t.built(f) {
				files = append(files, f.Syntax)
			}
		}
		config := types.Config{Importer: imp}
		if _, err := config.Check(module+"/"+p.Dir, t.Fset, files, c.info); err != nil {
			var te types.Error
			if !errors.As(err, &te) {
				te.Msg = err.Error()
			}
			out = append(out, Finding{p.Dir, "does not compile, so its purity is unknown: " + te.Msg})
			continue
		}
		for _, f := range files {
			c.file(f)
		}
		out = append(out, c.out...)
	}
	return out
}

// built reports whether the file is part of the default build: of a pair under opposite build tags only one can be checked.
func (t *Tree) built(f *File) bool {
	if t.Root == "" {
		return true // Sources of the package's own tests.
	}
	ok, err := build.Default.MatchFile(filepath.Join(t.Root, path.Dir(f.Path)), path.Base(f.Path))
	return err == nil && ok
}

// purity walks the files of one type-checked package.
type purity struct {
	tree *Tree
	info *types.Info
	out  []Finding

	marks map[int]bool // Lines of the current file with a well-formed mark.
}

func (c *purity) say(at token.Pos, format string, args ...any) {
	c.out = append(c.out, Finding{c.tree.at(at), fmt.Sprintf(format, args...)})
}

func (c *purity) file(f *ast.File) {
	c.marks = map[int]bool{}
	for _, group := range f.Comments {
		for _, line := range group.List {
			if strings.HasPrefix(line.Text, "//go:linkname") {
				c.say(line.Pos(), "go:linkname reaches what the import table does not allow")
			}
		}
		_, why, ok := strings.Cut(group.Text(), orderFree)
		if !ok {
			continue
		}
		if strings.TrimSpace(why) == "" {
			c.say(group.Pos(), "%q needs the reason why the order cannot be seen", orderFree)
			continue
		}
		// A mark holds for its own line and for the one after the comment.
		c.marks[c.line(group.Pos())] = true
		c.marks[c.line(group.End())+1] = true
	}
	for _, spec := range f.Imports {
		if spec.Name != nil && spec.Name.Name == "." {
			c.say(spec.Pos(), "dot import: where a name comes from must be visible")
		}
	}
	for _, decl := range f.Decls {
		switch d := decl.(type) {
		case *ast.GenDecl:
			if d.Tok == token.VAR {
				c.globals(d)
			}
			c.walk(d, nil, false)
		case *ast.FuncDecl:
			if d.Recv == nil && d.Name.Name == "init" {
				c.say(d.Pos(), "init: wiring is explicit and stands in cmd/fairlead")
			}
			marked := d.Doc != nil && strings.Contains(d.Doc.Text(), orderFree)
			c.walk(d, d.Body, marked)
		}
	}
}

func (c *purity) line(pos token.Pos) int { return c.tree.Fset.Position(pos).Line }

// globals allows error sentinels and compile-time assertions: neither can change, so neither is state.
func (c *purity) globals(d *ast.GenDecl) {
	for _, spec := range d.Specs {
		vs, ok := spec.(*ast.ValueSpec)
		if !ok {
			continue
		}
		for i, name := range vs.Names {
			if name.Name == "_" {
				continue
			}
			sentinel := strings.HasPrefix(name.Name, "Err") || strings.HasPrefix(name.Name, "err")
			if sentinel && i < len(vs.Values) && c.makesError(vs.Values[i]) {
				continue
			}
			c.say(name.Pos(), "package variable %s: a pure package has no state of its own;"+
				" use a constant, or a function that returns the value", name.Name)
		}
	}
}

func (c *purity) makesError(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	pkg, name := c.member(call.Fun)
	return pkg == "errors" && name == "New" || pkg == "fmt" && name == "Errorf"
}

// member resolves pkg.Name to the package's path and the name; both are empty for anything else.
func (c *purity) member(e ast.Expr) (pkg, name string) {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	id, ok := sel.X.(*ast.Ident)
	if !ok {
		return "", ""
	}
	if p, ok := c.info.Uses[id].(*types.PkgName); ok {
		return p.Imported().Path(), sel.Sel.Name
	}
	return "", ""
}

// walk visits a declaration. body is the function's, where a sort may follow a range; marked excuses every range in it.
func (c *purity) walk(root ast.Node, body *ast.BlockStmt, marked bool) {
	sorted := c.sortedArguments(root)
	ast.Inspect(root, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			c.say(n.Pos(), "go statement in a pure package")
		case *ast.SelectStmt:
			c.say(n.Pos(), "select in a pure package")
		case *ast.ChanType:
			c.say(n.Pos(), "channel in a pure package")
		case *ast.SendStmt:
			c.say(n.Pos(), "channel send in a pure package")
		case *ast.UnaryExpr:
			if n.Op == token.ARROW {
				c.say(n.Pos(), "channel receive in a pure package")
			}
		case *ast.SelectorExpr:
			c.selector(n)
		case *ast.CallExpr:
			c.call(n, sorted, marked)
		case *ast.RangeStmt:
			if c.isMap(n.X) && !marked && !c.orderless(n, body) {
				c.say(n.Pos(), "range over a map: iterate in a fixed order (collect the keys and sort them at once,"+
					" or slices.Sorted(maps.Keys(m))), or say %q", "// "+orderFree+" why the order cannot be seen")
			}
		}
		return true
	})
}

func (c *purity) selector(n *ast.SelectorExpr) {
	pkg, name := c.member(n)
	switch {
	case slices.Contains(impure()[pkg], name):
		c.say(n.Pos(), "%s.%s in a pure package: time is an argument, and output is a result", path.Base(pkg), name)
	case pkg == "math/rand/v2" && !slices.Contains(pureRand(), name):
		c.say(n.Pos(), "rand.%s draws from the process's seed: use rand.New(rand.NewPCG(seed, stream)) with the caller's", name)
	}
}

func (c *purity) call(n *ast.CallExpr, sorted map[ast.Expr]bool, marked bool) {
	if id, ok := n.Fun.(*ast.Ident); ok {
		if b, ok := c.info.Uses[id].(*types.Builtin); ok && (b.Name() == "print" || b.Name() == "println") {
			c.say(n.Pos(), "%s in a pure package", b.Name())
		}
	}
	pkg, name := c.member(n.Fun)
	unordered := pkg == "maps" && (name == "Keys" || name == "Values" || name == "All")
	if unordered && !sorted[n] && !marked && !c.marks[c.line(n.Pos())] {
		c.say(n.Pos(), "maps.%s yields in no order: wrap it in slices.Sorted, or say %q", name, "// "+orderFree+" why")
	}
}

// sortedArguments finds the expressions that are sorted where they are made: slices.Sorted(x) and its kin.
func (c *purity) sortedArguments(root ast.Node) map[ast.Expr]bool {
	out := map[ast.Expr]bool{}
	ast.Inspect(root, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && len(call.Args) > 0 {
			pkg, name := c.member(call.Fun)
			if pkg == "slices" && strings.HasPrefix(name, "Sorted") {
				out[call.Args[0]] = true
			}
		}
		return true
	})
	return out
}

func (c *purity) isMap(e ast.Expr) bool {
	t := c.info.TypeOf(e)
	if t == nil {
		return false
	}
	// A type parameter whose types are maps ranges as a map does.
	if constraint, ok := t.Underlying().(*types.Interface); ok {
		for embedded := range constraint.EmbeddedTypes() {
			if u, ok := embedded.(*types.Union); ok && u.Len() > 0 {
				embedded = u.Term(0).Type()
			}
			if _, ok := embedded.Underlying().(*types.Map); ok {
				return true
			}
		}
	}
	_, ok := t.Underlying().(*types.Map)
	return ok
}

// orderless reports whether the order of a range over a map cannot be seen: it is marked, it has no variables, or its only
// statement collects into a slice that the function sorts afterwards.
func (c *purity) orderless(n *ast.RangeStmt, body *ast.BlockStmt) bool {
	if c.marks[c.line(n.Pos())] || n.Key == nil {
		return true
	}
	if len(n.Body.List) != 1 || body == nil {
		return false
	}
	assign, ok := n.Body.List[0].(*ast.AssignStmt)
	if !ok || len(assign.Lhs) != 1 || len(assign.Rhs) != 1 {
		return false
	}
	into, ok := assign.Lhs[0].(*ast.Ident)
	if !ok {
		return false
	}
	call, ok := assign.Rhs[0].(*ast.CallExpr)
	if !ok {
		return false
	}
	if fun, ok := call.Fun.(*ast.Ident); !ok || fun.Name != "append" {
		return false
	}
	return c.sortsAfter(body, n.End(), into.Name)
}

func (c *purity) sortsAfter(body *ast.BlockStmt, after token.Pos, name string) bool {
	found := false
	ast.Inspect(body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || call.Pos() < after || len(call.Args) == 0 {
			return true
		}
		pkg, fun := c.member(call.Fun)
		sorts := pkg == "slices" && strings.HasPrefix(fun, "Sort") ||
			pkg == "sort" && slices.Contains([]string{"Slice", "SliceStable", "Strings", "Ints"}, fun)
		if id, ok := call.Args[0].(*ast.Ident); ok && id.Name == name && sorts {
			found = true
		}
		return !found
	})
	return found
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
