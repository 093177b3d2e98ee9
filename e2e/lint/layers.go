package lint

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Kind says which laws a package is under.
type Kind string

const (
	// Pure packages hold the decisions: functions of their arguments, time included.
	Pure Kind = "pure"
	// Edge packages hold the I/O, the goroutines and the clock.
	Edge Kind = "edge"
	// Wire packages are generated from the schemas, or translate between them and the vocabulary.
	Wire Kind = "wire"
	// Wiring puts edges together: the command, and the test helpers that start a real cell in process.
	Wiring Kind = "wiring"
	// Proof is e2e: it may look at everything.
	Proof Kind = "proof"
	// Simulation is the simulator: it owns a random source and prints, but runs pure packages only.
	Simulation Kind = "simulation"
)

// A Layer is one package's row in the import table.
type Layer struct {
	// Path is the package's directory. A Path that ends in "/..." stands for every package below that has no row of its own.
	Path string
	Kind Kind
	// May lists the project's packages that it may import. Wiring and Proof need no list.
	May []string
	// Also lists what a pure package may import beyond pureStd, and Why says why that keeps it pure.
	Also []string
	Why  string
}

// pureStd is what every pure package may import: functions of their arguments and nothing else.
// Of time, fmt and math/rand/v2 only a part is pure; see impure.
func pureStd() []string {
	return []string{
		"bytes", "cmp", "container/heap", "encoding/binary", "encoding/hex", "errors", "fmt", "hash/fnv", "iter", "maps",
		"math", "math/bits", "math/rand/v2", "slices", "sort", "strconv", "strings", "time", "unicode/utf8",
	}
}

// Paths that many rows name.
const (
	pb        = "proto/fairlead/v1"
	rpc       = "proto/fairlead/v1/fairleadv1connect"
	rejection = "proto/rejection"
)

// Layers returns the import table: every allowed arrow between packages of the project. A new package gets a row here and, if
// it is pure, a rule of the same content in .golangci.yml.
func Layers() []Layer {
	return slices.Concat(
		[]Layer{
			{Path: pb, Kind: Wire},
			{Path: rpc, Kind: Wire, May: []string{pb}},
			{Path: rejection, Kind: Wire, May: []string{"cell", pb}},
		},
		cellLayers(), placementLayers(), controlLayers(), dataplaneLayers(),
		[]Layer{
			{Path: "cmd/fairlead", Kind: Wiring},
			{Path: "cmd/fairlead/...", Kind: Wiring},
		},
		proofLayers(),
	)
}

// codec lists what a log's codec imports: a wire format and checksums, functions of bytes.
func codec() []string {
	return []string{"crypto/sha256", "hash/crc32", "google.golang.org/protobuf/encoding/protowire"}
}

func cellLayers() []Layer {
	return []Layer{
		{Path: "cell", Kind: Pure, Also: []string{"encoding/json"}, Why: "ids and policies have a text form"},
		{Path: "cell/drr", Kind: Pure, May: []string{"cell"}},
		{Path: "cell/tree", Kind: Pure, May: []string{"cell", "cell/drr"}},
		{Path: "cell/sched", Kind: Pure, May: []string{"cell", "cell/drr", "cell/tree"}},
		{Path: "cell/allocate", Kind: Pure, May: []string{"cell"}},
		{
			Path: "cell/policy", Kind: Pure, May: []string{"cell", "cell/drr", "cell/tree", "cell/sched"},
			Also: []string{"go.yaml.in/yaml/v3", "io"}, Why: "a policy file has a text form, and decoding is a function of bytes; io.EOF ends it",
		},
		// The engine applies what its leader chose: it knows no scheduler and no door.
		{
			Path: "cell/engine", Kind: Pure, May: []string{"cell"},
			Also: slices.Concat(codec(), []string{"encoding/json", "io"}),
			Why:  "the codec of the cell's log; a snapshot is restored from whatever reader the caller hands over",
		},
		{
			Path: "cell/admit", Kind: Pure, May: []string{"cell", "cell/engine"},
			Also: []string{"encoding/json"}, Why: "json.Valid is a function of bytes",
		},
		{
			Path: "cell/leader", Kind: Pure,
			May: []string{"cell", "cell/drr", "cell/tree", "cell/sched", "cell/admit", "cell/engine"},
		},
		{
			Path: "cell/cellserver", Kind: Edge,
			May: []string{
				"cell", "cell/drr", "cell/tree", "cell/sched", "cell/admit", "cell/engine", "cell/leader", pb, rpc, rejection,
			},
		},
	}
}

func placementLayers() []Layer {
	return []Layer{
		{Path: "placement", Kind: Pure, May: []string{"cell"}},
		{
			Path: "migrate", Kind: Pure, May: []string{"cell"},
			Also: []string{"crypto/sha256"}, Why: "digests decide whether a move lost anything",
		},
		{Path: "migrate/mover", Kind: Edge, May: []string{"cell", "migrate", pb, rpc, rejection}},
	}
}

func controlLayers() []Layer {
	return []Layer{
		{
			Path: "control/command", Kind: Pure, May: []string{"cell", "placement", "migrate"},
			Also: codec(), Why: "the codec of control's log",
		},
		{
			Path: "control/state", Kind: Pure, May: []string{"cell", "placement", "migrate", "control/command"},
			Also: slices.Concat(codec(), []string{"github.com/hashicorp/go-memdb", "io"}),
			Why: "go-memdb is a persistent radix tree, a value with snapshots in constant time; its watches are not used;" +
				" a snapshot is restored from whatever reader the caller hands over",
		},
		{
			Path: "control/reconcile", Kind: Pure,
			May: []string{"cell", "placement", "migrate", "control/command", "control/state"},
		},
		// It serves control's log and each cell's, so it knows neither's state: both reach it as an interface of its own.
		{Path: "control/consensus", Kind: Edge, May: []string{"cell"}},
		{
			Path: "control/controlserver", Kind: Edge,
			May: []string{
				"cell", "placement", "migrate",
				"control/command", "control/state", "control/reconcile", "control/consensus", pb, rpc, rejection,
			},
		},
	}
}

func dataplaneLayers() []Layer {
	return []Layer{
		{Path: "dataplane/route", Kind: Pure, May: []string{"cell"}},
		{Path: "dataplane/gossip", Kind: Edge, May: []string{"cell", "dataplane/route"}},
		{
			Path: "dataplane/gateway", Kind: Edge,
			May: []string{"cell", "dataplane/route", "dataplane/gossip", pb, rpc, rejection},
		},
		{Path: "dataplane/client", Kind: Edge, May: []string{"cell", pb, rpc, rejection}},
		{Path: "dataplane/worker", Kind: Edge, May: []string{"cell", "dataplane/client", pb, rpc, rejection}},
		{Path: "dataplane/worker/workertest", Kind: Wiring},
	}
}

func proofLayers() []Layer {
	cores := []string{
		"cell", "cell/drr", "cell/tree", "cell/sched", "cell/allocate", "cell/policy", "cell/admit", "cell/engine", "cell/leader",
		"placement", "migrate", "control/command", "control/state", "control/reconcile", "dataplane/route",
	}
	out := []Layer{
		{Path: "e2e/sim/trace", Kind: Simulation, May: cores},
		{Path: "e2e/sim", Kind: Simulation, May: append(slices.Clone(cores), "e2e/sim/trace")},
		{Path: "e2e/sim/migration", Kind: Simulation, May: cores},
		{Path: "e2e/sim/report", Kind: Simulation, May: append(slices.Clone(cores), "e2e/sim", "e2e/sim/trace")},
	}
	for _, name := range []string{
		"bench", "cli", "cluster", "compose", "crash", "demo", "fairness", "fault", "harness", "lint", "lint/vulngate", "neighbour", "security",
	} {
		out = append(out, Layer{Path: "e2e/" + name, Kind: Proof})
	}
	return out
}

// owners maps a library to the only package that talks to it. A prefix covers the library's companions:
// raft's covers raft-boltdb and raft-wal.
func owners() map[string]string {
	return map[string]string{
		"github.com/hashicorp/raft":       "control/consensus",
		"github.com/hashicorp/memberlist": "dataplane/gossip",
	}
}

// topLevel lists the folders that may hold packages.
func topLevel() []string {
	return []string{"cell", "cmd", "control", "dataplane", "e2e", "migrate", "placement", "proto"}
}

// rowOf returns the row that governs the package in dir: its own, or the longest that ends in "/...".
func rowOf(layers []Layer, dir string) (Layer, bool) {
	best, found := Layer{}, false
	for _, l := range layers {
		if l.Path == dir {
			return l, true
		}
		prefix, ok := strings.CutSuffix(l.Path, "...")
		if ok && strings.HasPrefix(dir, prefix) && len(l.Path) > len(best.Path) {
			best, found = l, true
		}
	}
	return best, found
}

// CheckLayers checks the table itself against the laws, so that no row can allow what they forbid.
func CheckLayers(layers []Layer) []Finding {
	var out []Finding
	seen := map[string]bool{}
	for _, l := range layers {
		say := func(format string, args ...any) {
			out = append(out, Finding{"row " + l.Path, fmt.Sprintf(format, args...)})
		}
		if seen[l.Path] {
			say("a second row for the same package")
		}
		seen[l.Path] = true
		if len(l.Also) > 0 && (l.Kind != Pure || l.Why == "") {
			say("Also is for pure packages and needs a Why")
		}
		for _, to := range l.May {
			target, ok := rowOf(layers, to)
			if !ok {
				say("may import %s, which has no row", to)
				continue
			}
			if text := unlawful(l, target); text != "" {
				say("may import %s: %s", to, text)
			}
		}
	}
	return append(out, cycles(layers)...)
}

// unlawful says which law forbids an arrow of the table, or nothing.
func unlawful(from, to Layer) string {
	fromTop, toTop := top(from.Path), top(to.Path)
	switch {
	case from.Kind == Wiring || from.Kind == Proof:
		return ""
	case from.Kind == Simulation && to.Kind == Simulation:
		return ""
	case to.Kind == Wiring || to.Kind == Proof || to.Kind == Simulation:
		return "only cmd, e2e and tests stand above it"
	case from.Kind == Pure && to.Kind != Pure:
		return "pure packages import pure packages only"
	case from.Kind == Simulation && to.Kind != Pure:
		return "the simulator runs pure packages only"
	case from.Kind == Wire && to.Kind != Wire && to.Kind != Pure:
		return "the wire knows the vocabulary only"
	case from.Kind == Edge && to.Kind == Edge && fromTop != toTop:
		return "edges of different folders meet only in cmd/fairlead"
	case toTop == "control" && fromTop != "control" && from.Kind != Simulation:
		return "no arrow runs up into control"
	}
	return ""
}

// cycles finds rows that can reach themselves. The compiler would too, but only once both arrows are used.
func cycles(layers []Layer) []Finding {
	reach := func(start Layer) bool {
		visited := map[string]bool{}
		next := slices.Clone(start.May)
		for len(next) > 0 {
			p := next[len(next)-1]
			next = next[:len(next)-1]
			if p == start.Path {
				return true
			}
			if visited[p] {
				continue
			}
			visited[p] = true
			if l, ok := rowOf(layers, p); ok {
				next = append(next, l.May...)
			}
		}
		return false
	}
	var out []Finding
	for _, l := range layers {
		if reach(l) {
			out = append(out, Finding{"row " + l.Path, "can reach itself through the table"})
		}
	}
	return out
}

func top(dir string) string {
	first, _, _ := strings.Cut(dir, "/")
	return first
}

// CheckImports checks every import of the tree against the table.
func (t *Tree) CheckImports(layers []Layer) []Finding {
	var out []Finding
	for _, p := range t.Packages {
		if !slices.Contains(topLevel(), top(p.Dir)) {
			out = append(out, Finding{p.Dir, "packages live below " + strings.Join(topLevel(), ", ")})
			continue
		}
		row, ok := rowOf(layers, p.Dir)
		if !ok {
			out = append(out, Finding{p.Dir, fmt.Sprintf(
				"the package has no row in the import table: add {Path: %q, ...} to Layers in e2e/lint/layers.go,"+
					" and a rule in .golangci.yml if it is pure", p.Dir)})
			continue
		}
		for _, f := range p.Files {
			for _, spec := range f.Syntax.Imports {
				imported, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					continue // The parser has checked it.
				}
				if text := forbidden(layers, row, f, imported); text != "" {
					out = append(out, Finding{t.at(spec.Pos()), text})
				}
			}
		}
	}
	return out
}

// forbidden says why a file of the row's package may not import the path, or nothing.
func forbidden(layers []Layer, row Layer, f *File, imported string) string {
	for _, lib := range sortedKeys(owners()) {
		if owner := owners()[lib]; strings.HasPrefix(imported, lib) && path.Dir(f.Path) != owner {
			return fmt.Sprintf("imports %s: only %s talks to it", imported, owner)
		}
	}
	to, ours := strings.CutPrefix(imported, module+"/")
	if !ours {
		allowed := row.Kind != Pure || f.Test || slices.Contains(pureStd(), imported) || slices.Contains(row.Also, imported)
		if !allowed {
			return fmt.Sprintf("the pure package %s imports %s; what it may import is in e2e/lint/layers.go", row.Path, imported)
		}
		return ""
	}
	if to == path.Dir(f.Path) {
		return "" // The external test imports what it tests.
	}
	target, _ := rowOf(layers, to)
	switch {
	case f.Test && row.Kind == Pure || row.Kind == Simulation && f.Test:
		if target.Kind != Pure && (row.Kind != Simulation || target.Kind != Simulation) {
			return fmt.Sprintf("the tests of %s import %s, which is no pure package", row.Path, to)
		}
	case f.Test, row.Kind == Wiring, row.Kind == Proof:
	case !slices.Contains(row.May, to):
		return fmt.Sprintf("%s may not import %s; the allowed arrows are in e2e/lint/layers.go", row.Path, to)
	}
	return ""
}
