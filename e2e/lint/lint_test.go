package lint

import (
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestTree applies every law to the module as it is.
func TestTree(t *testing.T) {
	root, err := Root(".")
	if err != nil {
		t.Fatal(err)
	}
	tree, err := Load(root)
	if err != nil {
		t.Fatal(err)
	}
	layers := Layers()

	t.Run("layers", func(t *testing.T) { report(t, CheckLayers(layers)) })
	t.Run("imports", func(t *testing.T) { report(t, tree.CheckImports(layers)) })
	t.Run("docs", func(t *testing.T) { report(t, tree.CheckDocs()) })
	t.Run("names", func(t *testing.T) { report(t, tree.CheckNames()) })
	t.Run("sleeps", func(t *testing.T) { report(t, tree.CheckSleeps()) })
	t.Run("function length", func(t *testing.T) { report(t, tree.CheckFunctionLength()) })
	t.Run("purity", func(t *testing.T) {
		var pure []string
		for _, p := range tree.Packages {
			if row, ok := rowOf(layers, p.Dir); ok && row.Kind == Pure {
				pure = append(pure, "./"+p.Dir)
			}
		}
		if len(pure) == 0 {
			t.Fatal("no pure package: the table does not fit the tree")
		}
		exports, err := LoadExports(t.Context(), root, pure...)
		if err != nil {
			t.Fatal(err)
		}
		report(t, tree.CheckPurity(layers, exports))
	})
	t.Run("words", func(t *testing.T) {
		found, err := CheckWords(t.Context(), root)
		if err != nil {
			t.Fatal(err)
		}
		report(t, found)
	})
	t.Run("linter configuration", func(t *testing.T) {
		text, err := os.ReadFile(filepath.Join(root, ".golangci.yml"))
		if err != nil {
			t.Fatal(err)
		}
		found, err := CheckLinterConfig(text, layers)
		if err != nil {
			t.Fatal(err)
		}
		report(t, found)
	})
}

func report(t *testing.T, found []Finding) {
	t.Helper()
	for _, f := range found {
		t.Error(f)
	}
}

// treeOf parses sources given as path to text.
func treeOf(t *testing.T, sources map[string]string) *Tree {
	t.Helper()
	tree := &Tree{Fset: token.NewFileSet()}
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		if err := tree.add(name, []byte(sources[name])); err != nil {
			t.Fatal(err)
		}
	}
	return tree
}

// expect checks that the findings are those wanted, each given as a pattern, and no others.
func expect(t *testing.T, found []Finding, want ...string) {
	t.Helper()
	for _, w := range want {
		re := regexp.MustCompile(w)
		i := slices.IndexFunc(found, func(f Finding) bool { return re.MatchString(f.String()) })
		if i < 0 {
			t.Errorf("no finding matches %q", w)
			continue
		}
		found = slices.Delete(slices.Clone(found), i, i+1)
	}
	for _, f := range found {
		t.Errorf("unexpected: %s", f)
	}
}

func TestCheckLayers(t *testing.T) {
	cases := map[string]struct {
		rows []Layer
		want []string
	}{
		"lawful": {rows: []Layer{
			{Path: "cell", Kind: Pure},
			{Path: "cell/cellserver", Kind: Edge, May: []string{"cell"}},
			{Path: "control/state", Kind: Pure, May: []string{"cell"}},
			{Path: "cmd/fairlead", Kind: Wiring},
		}},
		"edges of two folders": {
			rows: []Layer{{Path: "cell/a", Kind: Edge, May: []string{"dataplane/b"}}, {Path: "dataplane/b", Kind: Edge}},
			want: []string{"row cell/a: .*edges of different folders"},
		},
		"pure on edge": {
			rows: []Layer{{Path: "cell", Kind: Pure, May: []string{"cell/b"}}, {Path: "cell/b", Kind: Edge}},
			want: []string{"pure packages only"},
		},
		"pure on wire": {
			rows: []Layer{{Path: "cell", Kind: Pure, May: []string{"proto/x"}}, {Path: "proto/x", Kind: Wire}},
			want: []string{"pure packages only"},
		},
		"simulator on edge": {
			rows: []Layer{{Path: "e2e/sim", Kind: Simulation, May: []string{"cell/b"}}, {Path: "cell/b", Kind: Edge}},
			want: []string{"simulator runs pure"},
		},
		"up into control": {
			rows: []Layer{{Path: "cell", Kind: Pure, May: []string{"control/c"}}, {Path: "control/c", Kind: Pure}},
			want: []string{"up into control"},
		},
		"on wiring": {
			rows: []Layer{{Path: "cell/b", Kind: Edge, May: []string{"cmd/x"}}, {Path: "cmd/...", Kind: Wiring}},
			want: []string{"only cmd, e2e and tests"},
		},
		"wire on vocabulary": {rows: []Layer{{Path: "cell", Kind: Pure}, {Path: "proto/x", Kind: Wire, May: []string{"cell"}}}},
		"wire on edge": {
			rows: []Layer{{Path: "cell/b", Kind: Edge}, {Path: "proto/x", Kind: Wire, May: []string{"cell/b"}}},
			want: []string{"the wire knows the vocabulary only"},
		},
		"no such row": {
			rows: []Layer{{Path: "cell", Kind: Pure, May: []string{"cel/drr"}}},
			want: []string{"cel/drr, which has no row"},
		},
		"two rows":           {rows: []Layer{{Path: "cell", Kind: Pure}, {Path: "cell", Kind: Edge}}, want: []string{"second row"}},
		"Also without a why": {rows: []Layer{{Path: "cell", Kind: Pure, Also: []string{"os"}}}, want: []string{"needs a Why"}},
		"cycle": {
			rows: []Layer{{Path: "cell/a", Kind: Pure, May: []string{"cell/b"}}, {Path: "cell/b", Kind: Pure, May: []string{"cell/a"}}},
			want: []string{"row cell/a: can reach itself", "row cell/b: can reach itself"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { expect(t, CheckLayers(c.rows), c.want...) })
	}
}

func TestCheckImports(t *testing.T) {
	cases := map[string]struct {
		path    string
		imports []string
		want    []string
	}{
		"pure, allowed":            {"cell/sched/a.go", []string{"time", module + "/cell", module + "/cell/drr"}, nil},
		"pure on os":               {"cell/a.go", []string{"os"}, []string{`cell/a.go:2: .*imports os`}},
		"pure on sync":             {"cell/engine/a.go", []string{"sync"}, []string{"imports sync"}},
		"pure on context":          {"migrate/a.go", []string{"context"}, []string{"imports context"}},
		"pure on net":              {"dataplane/route/a.go", []string{"net"}, []string{"imports net"}},
		"pure on a library":        {"cell/a.go", []string{"github.com/google/uuid"}, []string{"imports github.com/google/uuid"}},
		"pure on the wrong pure":   {"cell/drr/a.go", []string{module + "/cell/sched"}, []string{"cell/drr may not import cell/sched"}},
		"pure test on os":          {"cell/a_test.go", []string{"os"}, nil},
		"pure test on edge":        {"cell/a_test.go", []string{module + "/cell/cellserver"}, []string{"no pure package"}},
		"pure test on pure":        {"cell/a_test.go", []string{module + "/cell/engine", module + "/cell"}, nil},
		"memdb in control/state":   {"control/state/a.go", []string{"github.com/hashicorp/go-memdb"}, nil},
		"protowire in the engine":  {"cell/engine/a.go", []string{"google.golang.org/protobuf/encoding/protowire"}, nil},
		"protowire elsewhere":      {"cell/a.go", []string{"google.golang.org/protobuf/encoding/protowire"}, []string{"protowire"}},
		"edge on another edge":     {"cell/cellserver/a.go", []string{module + "/dataplane/gateway"}, []string{"may not import dataplane/gateway"}},
		"edge test on an edge":     {"cell/cellserver/a_test.go", []string{module + "/dataplane/worker"}, nil},
		"edge on os":               {"cell/cellserver/a.go", []string{"os", "net/http", "sync"}, nil},
		"edge up into control":     {"dataplane/gateway/a.go", []string{module + "/control/state"}, []string{"may not import control/state"}},
		"cmd on anything":          {"cmd/fairlead/a.go", []string{module + "/cell/cellserver", module + "/control/consensus"}, nil},
		"below cmd":                {"cmd/fairlead/dev/a.go", []string{module + "/cell/cellserver"}, nil},
		"sim on pure":              {"e2e/sim/a.go", []string{module + "/cell/engine", "os"}, nil},
		"sim on edge":              {"e2e/sim/a.go", []string{module + "/cell/cellserver"}, []string{"e2e/sim may not import"}},
		"sim's test on edge":       {"e2e/sim/a_test.go", []string{module + "/cell/cellserver"}, []string{"no pure package"}},
		"proof on edge":            {"e2e/crash/a.go", []string{module + "/cell/cellserver"}, nil},
		"raft by its owner":        {"control/consensus/a.go", []string{"github.com/hashicorp/raft", "github.com/hashicorp/raft-wal"}, nil},
		"raft elsewhere":           {"cell/cellserver/a.go", []string{"github.com/hashicorp/raft"}, []string{"only control/consensus"}},
		"raft-boltdb in cmd":       {"cmd/fairlead/a.go", []string{"github.com/hashicorp/raft-boltdb/v2"}, []string{"only control/consensus"}},
		"raft-wal in a test":       {"e2e/crash/a_test.go", []string{"github.com/hashicorp/raft-wal"}, []string{"only control/consensus"}},
		"memberlist by its owner":  {"dataplane/gossip/a.go", []string{"github.com/hashicorp/memberlist"}, nil},
		"memberlist elsewhere":     {"dataplane/gateway/a.go", []string{"github.com/hashicorp/memberlist"}, []string{"only dataplane/gossip"}},
		"a package without a row":  {"cell/novel/a.go", nil, []string{`cell/novel: .*add \{Path: "cell/novel".* Layers in e2e/lint/layers.go`}},
		"a folder that is not one": {"internal/x/a.go", nil, []string{"internal/x: packages live below"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var src strings.Builder
			src.WriteString("package x\n")
			for _, i := range c.imports {
				src.WriteString("import _ \"" + i + "\"\n")
			}
			tree := treeOf(t, map[string]string{c.path: src.String()})
			expect(t, tree.CheckImports(Layers()), c.want...)
		})
	}
}

func TestCheckPurity(t *testing.T) {
	exports, err := LoadExports(t.Context(), ".", "errors", "fmt", "maps", "io", "math/rand/v2", "slices", "sort", "time")
	if err != nil {
		t.Fatal(err)
	}
	const header = "package drr\nimport (\"errors\"; \"fmt\"; \"maps\"; \"io\"; \"math/rand/v2\"; \"slices\"; \"sort\"; \"time\")\n" +
		"const _ = time.Second\ntype _ = rand.Rand\ntype _ = sort.IntSlice\ntype _ = io.Reader\nfunc use(m map[string]int) []string { _ = errors.New; _ = fmt.Errorf\n" +
		"return slices.Sorted(maps.Keys(m)) }\n"
	cases := map[string]struct {
		src  string
		want []string
	}{
		"go":         {"func f() { go f() }", []string{"x.go:9: go statement"}},
		"select":     {"func f() { select {} }", []string{"select"}},
		"channel":    {"func f(c chan int) { }", []string{"channel in"}},
		"send":       {"func f[C chan int](c C) { c <- 1 }", []string{"channel in", "channel send"}},
		"receive":    {"func f() { var c <-chan int; <-c }", []string{"channel in", "channel receive"}},
		"now":        {"func f() time.Time { return time.Now() }", []string{"time.Now"}},
		"now, value": {"func f() func() time.Time { return time.Now }", []string{"time.Now"}},
		"since":      {"func f(t time.Time) time.Duration { return time.Since(t) }", []string{"time.Since"}},
		"timer":      {"func f() { time.NewTimer(1).Stop() }", []string{"time.NewTimer"}},
		"zone":       {"func f(t time.Time) time.Time { return t.In(time.Local) }", []string{"time.Local"}},
		"shadow":     {"type c struct{ Now int }\nfunc f(time c) int { return time.Now }", nil},
		"print":      {"func f() { fmt.Println() }", []string{"fmt.Println"}},
		"pipe":       {"func f() { io.Pipe() }", []string{"io.Pipe"}},
		"builtin":    {"func f() { println() }", []string{"println"}},
		"own print":  {"func println() {}\nfunc f() { println() }", nil},
		"rand":       {"func f() int { return rand.IntN(3) }", []string{"rand.IntN"}},
		"seeded":     {"func f(s uint64) int { return rand.New(rand.NewPCG(s, 0)).IntN(3) }", nil},
		"init":       {"func init() {}", []string{"init: "}},
		"method":     {"type T int\nfunc (T) init() {}", nil},
		"global":     {"var table = []int{1}", []string{"package variable table"}},
		"globals":    {"var a, b int", []string{"variable a", "variable b"}},
		"sentinel":   {"var ErrX = errors.New(\"x\")\nvar errY = fmt.Errorf(\"y: %w\", ErrX)", nil},
		"no error":   {"var ErrX = 3\nvar ErrY error", []string{"variable ErrX", "variable ErrY"}},
		"assertion":  {"type T int\nfunc (T) Error() string { return \"\" }\nvar _ error = T(0)", nil},
		"linkname":   {"//go:linkname f time.now\nfunc f() {}", []string{"linkname"}},
		"local var":  {"func f() int { var x int; return x }", nil},

		"range":          {"func f(m map[int]int) (s int) { for k := range m { s = k }; return }", []string{"range over a map"}},
		"range, named":   {"type M map[int]int\nfunc f(m M) (s int) { for _, v := range m { s = v }; return }", []string{"range over a map"}},
		"range, generic": {"func f[M ~map[int]int](m M) (s int) { for k := range m { s = k }; return }", []string{"range over a map"}},
		"range, slice":   {"func f(m []int) (s int) { for k := range m { s = k }; return }", nil},
		"range, count":   {"func f(m map[int]int) (s int) { for range m { s++ }; return }", nil},
		"range, marked": {
			"func f(m map[int]int) (s int) {\n// order-free: a sum is commutative.\nfor _, v := range m { s += v }\nreturn }", nil,
		},
		"range, marked at the end": {
			"func f(m map[int]int) (s int) {\nfor _, v := range m { // order-free: a sum.\n s += v }\nreturn }", nil,
		},
		"range, marked function": {"// f sums.\n// order-free: a sum.\nfunc f(m map[int]int) (s int) { for _, v := range m { s += v }; return }", nil},
		"range, marked for no reason": {
			"func f(m map[int]int) (s int) {\n// order-free:\nfor _, v := range m { s += v }\nreturn }",
			[]string{"needs the reason", "range over a map"},
		},
		"range, marked elsewhere": {
			"func f(m map[int]int) (s int) {\n// order-free: a sum.\n\nfor _, v := range m { s += v }\nreturn }",
			[]string{"range over a map"},
		},
		"range, sorted": {
			"func f(m map[int]int) (s []int) { for k := range m { s = append(s, k) }; slices.Sort(s); return }", nil,
		},
		"range, sorted by sort": {
			"func f(m map[int]int) (s []int) { for k := range m { s = append(s, k) }; sort.Ints(s); return }", nil,
		},
		"range, searched": {
			"func f(m map[int]int) (s []int) { for k := range m { s = append(s, k) }; sort.SearchInts(s, 1); return }",
			[]string{"range over a map"},
		},
		"range, sorted before": {
			"func f(m map[int]int) (s []int) { slices.Sort(s); for k := range m { s = append(s, k) }; return }",
			[]string{"range over a map"},
		},
		"range, other sorted": {
			"func f(m map[int]int) (s, r []int) { for k := range m { s = append(s, k) }; slices.Sort(r); return }",
			[]string{"range over a map"},
		},
		"range in a closure": {
			"func f(m map[int]int) func() int { return func() (s int) { for k := range m { s = k }; return } }",
			[]string{"range over a map"},
		},
		"keys":           {"func f(m map[int]int) []int { return slices.Collect(maps.Keys(m)) }", []string{"maps.Keys"}},
		"keys, ranged":   {"func f(m map[int]int) (s int) { for k := range maps.Keys(m) { s = k }; return }", []string{"maps.Keys"}},
		"values, sorted": {"func f(m map[int]int) []int { return slices.Sorted(maps.Values(m)) }", nil},
		"broken":         {"func f() { undefined() }", []string{"does not compile"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			tree := treeOf(t, map[string]string{"cell/drr/x.go": header + c.src})
			expect(t, tree.CheckPurity(Layers(), exports), c.want...)
		})
	}
	t.Run("tests and edges are free", func(t *testing.T) {
		const src = "package x\nfunc f(c chan int) { go f(c) }"
		tree := treeOf(t, map[string]string{"cell/cellserver/x.go": src, "cell/drr/x.go": "package drr", "cell/drr/x_test.go": src})
		expect(t, tree.CheckPurity(Layers(), exports))
	})
}

func TestCheckDocs(t *testing.T) {
	cases := map[string]struct {
		sources map[string]string
		want    []string
	}{
		"one":       {map[string]string{"cell/a.go": "// Package cell is.\npackage cell", "cell/b.go": "package cell"}, nil},
		"none":      {map[string]string{"cell/a.go": "package cell"}, []string{"cell: no package doc"}},
		"two":       {map[string]string{"cell/a.go": "// Package cell is.\npackage cell", "cell/b.go": "// Package cell was.\npackage cell"}, []string{"cell/b.go: a second"}},
		"detached":  {map[string]string{"cell/a.go": "// Package cell is.\n\npackage cell"}, []string{"no package doc"}},
		"other":     {map[string]string{"cell/a.go": "// The cell is.\npackage cell"}, []string{`starts "Package cell "`}},
		"prefix":    {map[string]string{"cell/a.go": "// Package cells are.\npackage cell"}, []string{"starts"}},
		"command":   {map[string]string{"cmd/fairlead/a.go": "// Command fairlead runs.\npackage main"}, nil},
		"main":      {map[string]string{"cmd/fairlead/a.go": "// Package main runs.\npackage main"}, []string{`starts "Command fairlead "`}},
		"generated": {map[string]string{"proto/a.go": "// Code generated by x. DO NOT EDIT.\n\npackage proto"}, nil},
		"in a test": {map[string]string{"cell/a.go": "package cell", "cell/a_test.go": "// Package cell is.\npackage cell"}, []string{"no package doc"}},
		"all tests": {map[string]string{"e2e/crash/a_test.go": "// Package crash kills.\npackage crash"}, nil},
		"external":  {map[string]string{"e2e/crash/a_test.go": "// Package crash kills.\npackage crash_test"}, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { expect(t, treeOf(t, c.sources).CheckDocs(), c.want...) })
	}
}

func TestCheckNames(t *testing.T) {
	tree := treeOf(t, map[string]string{
		"cell/a.go":             "package cell",
		"cell/util/a.go":        "package util",
		"control/types/a.go":    "package ctypes",
		"dataplane/cell/a.go":   "package cell",
		"cmd/fairlead/a.go":     "package main",
		"cmd/other/a.go":        "package main",
		"placement/models.go":   "package placement",
		"placement/a_test.go":   "package placement_test",
		"migrate/mover/a.go":    "package mover",
		"e2e/crash/a_test.go":   "package crash_test",
		"e2e/helpers/a_test.go": "package helpers_test",
	})
	expect(t, tree.CheckNames(),
		"cell/util: the name", "control/types: the name", "dataplane/cell: cell is also called cell", "e2e/helpers: the name")
}

func TestCheckSleeps(t *testing.T) {
	tree := treeOf(t, map[string]string{
		"cell/a.go":      "package cell\nimport \"time\"\nfunc f() { time.Sleep(1) }",
		"cell/a_test.go": "package cell\nimport \"time\"\nfunc g() { time.Sleep(1) }",
		"cell/b_test.go": "package cell\nimport clock \"time\"\nfunc h() { clock.Sleep(1) }",
		"cell/c_test.go": "package cell\nfunc i(time c) { time.Sleep(1) }",
		"cell/d_test.go": "package cell\nimport \"time\"\nvar s = time.Sleep",
	})
	expect(t, tree.CheckSleeps(), "cell/a_test.go:3: a test sleeps", "cell/b_test.go:3", "cell/d_test.go:3")
}

// TestCheckSleepsInBubbles shows which sleeps move a bubble's time on, and which are real for one caller at least.
func TestCheckSleepsInBubbles(t *testing.T) {
	const header = "package cell\nimport (\"testing\"; \"testing/synctest\"; \"time\")\n"
	cases := map[string]struct {
		src  string
		want []string
	}{
		"in a bubble":   {"func TestA(t *testing.T) { synctest.Test(t, func(t *testing.T) { time.Sleep(1) }) }", nil},
		"beside it":     {"func TestA(t *testing.T) { synctest.Test(t, func(t *testing.T) {}); time.Sleep(1) }", []string{"a_test.go:3: a test sleeps"}},
		"named":         {"func TestA(t *testing.T) { synctest.Test(t, inner) }\nfunc inner(t *testing.T) { time.Sleep(1) }", nil},
		"not synctest":  {"func TestA(t *testing.T) { other.Test(t, func(t *testing.T) { time.Sleep(1) }) }", []string{"a test sleeps"}},
		"helper":        {"func TestA(t *testing.T) { synctest.Test(t, func(t *testing.T) { one() }) }\nfunc one() { two() }\nfunc two() { time.Sleep(1) }", nil},
		"method":        {"func TestA(t *testing.T) { synctest.Test(t, func(t *testing.T) { T(1).nap() }) }\ntype T int\nfunc (T) nap() { time.Sleep(1) }", nil},
		"helper unused": {"func one() { time.Sleep(1) }", []string{"a test sleeps"}},
		"helper of both": {
			"func TestA(t *testing.T) { synctest.Test(t, func(t *testing.T) { one() }) }\nfunc one() { two() }\nfunc two() { time.Sleep(1) }\n" +
				"func TestB(t *testing.T) { one() }", []string{"a_test.go:5: a test sleeps"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			expect(t, treeOf(t, map[string]string{"cell/a_test.go": header + c.src}).CheckSleeps(), c.want...)
		})
	}
}

func TestCheckFunctionLength(t *testing.T) {
	body := func(lines int) string { return "package cell\nfunc f() {" + strings.Repeat("\n", lines-1) + "}" }
	tree := treeOf(t, map[string]string{
		"cell/a.go":      body(functionLinesMax),
		"cell/b.go":      body(functionLinesMax + 1),
		"cell/c_test.go": body(functionLinesMax + 1),
		"cell/d.go":      "// Code generated by x. DO NOT EDIT.\n\n" + body(functionLinesMax+1),
	})
	expect(t, tree.CheckFunctionLength(), "cell/b.go:2: f has 71 lines")
}

func TestCheckText(t *testing.T) {
	cases := map[string]struct {
		name, text string
		want       []string
	}{
		"clean":        {"README.md", "See https://go.dev and /var/lib/fairlead.\n", nil},
		"proxy":        {"Makefile", "all:\n\tGOPROXY=https://proxy.golang" + ".org\n", []string{"Makefile:2: names the host"}},
		"sums":         {"a.go", "// sum.golang" + ".org", []string{"host"}},
		"debian":       {"Dockerfile", "deb http://deb.debian" + ".org", []string{"host"}},
		"path":         {"a.md", "in /ro" + "ot/src", []string{"a.md:1: names a path"}},
		"quoted path":  {"a.go", "\"/ro" + "ot/go/pkg\"", []string{"path"}},
		"home":         {"a.md", "/ho" + "me/jo/x", []string{"path"}},
		"url":          {"a.md", "https://example.com/ro" + "ot/1", nil},
		"inner folder": {"a.md", "cmd/ro" + "ot/x", nil},
		"unfinished":   {"a.go", "// TO" + "DO: later", []string{"unfinished"}},
		"only in Go":   {"a.md", "// TO" + "DO: later", nil},
		"in code":      {"a.go", "var TO" + "DO = context.TO" + "DO()", nil},
		"binary":       {"a.bin", "\x00/ro" + "ot/", nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { expect(t, checkText(wordLaws(), c.name, []byte(c.text)), c.want...) })
	}
}

// TestCheckWords shows that files are found with git and without.
func TestCheckWords(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("docs/a.md", "one\nin /ro"+"ot/src\n")
	write(".git/a.md", "in /ro"+"ot/src\n")
	found, err := CheckWords(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, found, "docs/a.md:2: names a path")
}

func TestCheckLinterConfig(t *testing.T) {
	const good = `
linters:
  settings:
    depguard:
      rules:
        pure-cell-drr:
          list-mode: strict
          files: ["**/cell/drr/*.go", "!$test"]
          allow: [ALLOW]
  exclusions:
    rules:
      - path-except: (^|/)(cell/drr)/[^/]+\.go$
`
	rows := []Layer{{Path: "cell/drr", Kind: Pure, May: []string{"cell"}}, {Path: "cell/cellserver", Kind: Edge}}
	list := strings.Join(pureStd(), "$, ") + "$, " + module + "/cell$"
	cases := map[string]struct {
		change func(string) string
		want   []string
	}{
		"agrees":      {func(s string) string { return s }, nil},
		"extra":       {func(s string) string { return strings.Replace(s, "[bytes$", "[os, bytes$", 1) }, []string{"rule pure-cell-drr allows"}},
		"missing":     {func(s string) string { return strings.Replace(s, "[bytes$, ", "[", 1) }, []string{"rule pure-cell-drr allows"}},
		"no rule":     {func(s string) string { return strings.Replace(s, "pure-cell-drr", "pure-drr", 1) }, []string{"no rule pure-cell-drr"}},
		"lax":         {func(s string) string { return strings.Replace(s, "strict", "lax", 1) }, []string{"mode strict"}},
		"wrong files": {func(s string) string { return strings.Replace(s, "**/cell/drr/", "**/drr/", 1) }, []string{"files"}},
		"not excepted": {
			func(s string) string { return strings.Replace(s, "(cell/drr)", "(cell)", 1) }, []string{"path-except .*cell/drr is pure"},
		},
		"edge excepted": {
			func(s string) string { return strings.Replace(s, "(cell/drr)", "(cell/drr|cell/cellserver)", 1) },
			[]string{"path-except .*cell/cellserver is edge"},
		},
		"no exception": {func(s string) string { return strings.Replace(s, "path-except", "path", 1) }, []string{"no path-except"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			found, err := CheckLinterConfig([]byte(c.change(strings.Replace(good, "ALLOW", list, 1))), rows)
			if err != nil {
				t.Fatal(err)
			}
			expect(t, found, c.want...)
		})
	}
}

func TestLoadLeavesOutWhatGoDoes(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"cell/a.go", "cell/testdata/b.go", ".tools/c.go", "_old/d.go", "nested/e.go", "nested/go.mod"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte("package x\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(tree.Packages) != 1 || tree.Packages[0].Dir != "cell" || len(tree.Packages[0].Files) != 1 {
		t.Fatalf("packages = %+v, want cell with one file", tree.Packages)
	}
	if _, err := Root(dir); err == nil {
		t.Error("Root of a folder outside the module: no error")
	}
}
