package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
)

// functionLinesMax is the longest a function may be: what fits on a screen can be checked by eye.
const functionLinesMax = 70

// attics lists package names that say nothing about what is inside, so that everything ends up inside.
func attics() []string {
	return []string{"base", "common", "helper", "helpers", "misc", "models", "shared", "structs", "types", "util", "utils"}
}

// CheckDocs checks that every package written by hand has exactly one package doc, in the usual form.
func (t *Tree) CheckDocs() []Finding {
	var out []Finding
	for _, p := range t.Packages {
		if p.Generated() {
			continue
		}
		// A package that is all tests has its doc in one of them.
		onlyTests := !slices.ContainsFunc(p.Files, func(f *File) bool { return !f.Test })
		var docs []*File
		for _, f := range p.Files {
			if f.Syntax.Doc != nil && f.Test == onlyTests {
				docs = append(docs, f)
			}
		}
		start := "Package " + p.Name() + " "
		if p.Name() == "main" {
			start = "Command " + path.Base(p.Dir) + " "
		}
		switch {
		case len(docs) == 0:
			out = append(out, Finding{p.Dir, fmt.Sprintf("no package doc: one file says %q, then what it owns and refuses", start+"...")})
		case len(docs) > 1:
			out = append(out, Finding{docs[1].Path, "a second package doc; the first is in " + docs[0].Path})
		case !strings.HasPrefix(docs[0].Syntax.Doc.Text(), start):
			out = append(out, Finding{docs[0].Path, fmt.Sprintf("the package doc starts %q", start)})
		}
	}
	return out
}

// CheckNames checks that package names say something and are unique, so that a name in prose or in an error means one package.
func (t *Tree) CheckNames() []Finding {
	var out []Finding
	first := map[string]string{}
	for _, p := range t.Packages {
		name := p.Name()
		if slices.Contains(attics(), name) || slices.Contains(attics(), path.Base(p.Dir)) {
			out = append(out, Finding{p.Dir, "the name says nothing: put each thing where it is used"})
		}
		if name == "main" {
			continue
		}
		if other, ok := first[name]; ok {
			out = append(out, Finding{p.Dir, fmt.Sprintf("%s is also called %s: package names are unique in the tree", other, name)})
			continue
		}
		first[name] = p.Dir
	}
	return out
}

// CheckSleeps checks that no test sleeps: a sleep is too long on a fast machine and too short on a slow one. In a synctest bubble
// time is the test's own and a sleep moves it on, exactly and at once, so there it may stand, and in functions that only bubbles call.
func (t *Tree) CheckSleeps() []Finding {
	var out []Finding
	for _, p := range t.Packages {
		bubbled := p.bubbled()
		for _, f := range p.Files {
			name := localName(f.Syntax, "time")
			if !f.Test || name == "" {
				continue
			}
			ast.Inspect(f.Syntax, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if !ok || sel.Sel.Name != "Sleep" || bubbled.hold(sel.Pos()) {
					return true
				}
				if id, ok := sel.X.(*ast.Ident); ok && id.Name == name {
					out = append(out, Finding{
						t.at(sel.Pos()),
						"a test sleeps: use testing/synctest, wait for a signal, or poll an observable event with a deadline",
					})
				}
				return true
			})
		}
	}
	return out
}

// spans is a set of pieces of source.
type spans []ast.Node

func (s spans) hold(pos token.Pos) bool {
	return slices.ContainsFunc(s, func(n ast.Node) bool { return n.Pos() <= pos && pos < n.End() })
}

// bubbled returns what runs in a synctest bubble only: what is handed to synctest.Test, and functions every mention of which is
// in such a piece. It goes by names, so a namesake called elsewhere counts as a mention: it errs towards fewer.
func (p *Package) bubbled() spans {
	var handed spans
	var helpers []*ast.FuncDecl
	mentions := map[string][]token.Pos{}
	for _, f := range p.Files {
		if !f.Test {
			continue
		}
		pkg := localName(f.Syntax, "testing/synctest")
		ast.Inspect(f.Syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				helpers = append(helpers, n)
			case *ast.Ident:
				mentions[n.Name] = append(mentions[n.Name], n.Pos())
			case *ast.CallExpr:
				sel, ok := n.Fun.(*ast.SelectorExpr)
				if !ok || sel.Sel.Name != "Test" || len(n.Args) != 2 {
					return true
				}
				if id, ok := sel.X.(*ast.Ident); ok && pkg != "" && id.Name == pkg {
					handed = append(handed, n.Args[1])
				}
			}
			return true
		})
	}
	// Take every function for a helper of bubbles until a mention elsewhere shows that it is not.
	for {
		inside := slices.Clone(handed)
		for _, h := range helpers {
			inside = append(inside, h)
		}
		kept := slices.DeleteFunc(slices.Clone(helpers), func(h *ast.FuncDecl) bool {
			others := slices.DeleteFunc(slices.Clone(mentions[h.Name.Name]), func(at token.Pos) bool {
				return h.Pos() <= at && at < h.End()
			})
			return len(others) == 0 || slices.ContainsFunc(others, func(at token.Pos) bool { return !inside.hold(at) })
		})
		if len(kept) == len(helpers) {
			return inside
		}
		helpers = kept
	}
}

// localName returns the name under which the file imports the package, or nothing.
func localName(f *ast.File, imported string) string {
	for _, spec := range f.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err != nil || p != imported {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return path.Base(imported)
	}
	return ""
}

// CheckFunctionLength checks functions outside tests and generated code.
func (t *Tree) CheckFunctionLength() []Finding {
	var out []Finding
	for _, p := range t.Packages {
		for _, f := range p.Files {
			if f.Test || f.Generated {
				continue
			}
			for _, decl := range f.Syntax.Decls {
				d, ok := decl.(*ast.FuncDecl)
				if !ok {
					continue
				}
				lines := t.Fset.Position(d.End()).Line - t.Fset.Position(d.Pos()).Line + 1
				if lines > functionLinesMax {
					out = append(out, Finding{t.at(d.Pos()), fmt.Sprintf(
						"%s has %d lines, more than %d: keep the branches, move the leaves out", d.Name.Name, lines, functionLinesMax)})
				}
			}
		}
	}
	return out
}
