package drr_test

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cell/drr"
)

var rewrite = flag.Bool("rewrite", false, "write what the scripts in testdata print into them")

// TestScripts runs testdata/*.txt. A script is blocks, with blank lines between them: lines that start with # are
// prose, a line is a command, and what it prints follows a line of four dashes.
//
//	queue quantum=N          a new queue; costs and the quantum are in units of a million micro-units
//	weight FLOW W            give a flow a weight
//	push FLOW xN cost=C      N more items, named after the flow and numbered
//	pop N                    the next N items
//	serve C                  pop until the cost C is used: items and cost of each flow
//	steps N serve=M FLOW=K   N times: push K items to each flow, pop up to M; items of each flow, per step
//	settle FLOW C            correct what was charged by C
//	idle C                   a server is free for the time
//	account FLOW             the flow's standing
//	forget FLOW              remove a flow with its items
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s := &script{}
			var out []string
			for block := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
				head, want, _ := strings.Cut(block+"\n", "----\n")
				command := head
				for strings.HasPrefix(command, "#") {
					_, command, _ = strings.Cut(command, "\n")
				}
				if command = strings.TrimSpace(command); command == "" {
					out = append(out, strings.TrimRight(block, "\n"))
					continue
				}
				got := s.run(command)
				if want = strings.TrimSpace(want); got != want && !*rewrite {
					t.Errorf("%s\ngot:\n%s\nwant:\n%s", command, got, want)
				}
				out = append(out, strings.TrimRight(head, "\n")+"\n----\n"+got)
			}
			if *rewrite {
				if err := os.WriteFile(file, []byte(strings.Join(out, "\n\n")+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// script is the state of a running script.
type script struct {
	queue  *drr.Queue[string, string]
	counts map[string]int // items pushed so far, by flow
	items  map[string]pushed
}

type pushed struct {
	flow string
	cost int64
}

// run carries out one command and returns what it prints.
func (s *script) run(command string) string {
	words := strings.Fields(command)
	name, args, options := words[0], []string{}, map[string]string{}
	for _, w := range words[1:] {
		if k, v, ok := strings.Cut(w, "="); ok {
			options[k] = v
		} else {
			args = append(args, w)
		}
	}
	args = append(args, "", "")
	switch name {
	case "queue":
		q, err := drr.NewQueue[string, string](drr.Config{Quantum: micro(options["quantum"]), FlowsMax: 10_000})
		if err != nil {
			return err.Error()
		}
		s.queue, s.counts, s.items = q, map[string]int{}, map[string]pushed{}
		return "ok"
	case "weight":
		w, err := drr.WeightOf(number(args[1]))
		if err == nil {
			err = s.queue.SetWeight(args[0], w)
		}
		if err != nil {
			return err.Error()
		}
		return "ok"
	case "push":
		n := 1
		if args[1] != "" {
			n = int(number(strings.TrimPrefix(args[1], "x")))
		}
		cost := int64(1_000_000)
		if options["cost"] != "" {
			cost = micro(options["cost"])
		}
		s.push(args[0], n, cost)
		return fmt.Sprintf("%s has %d", args[0], s.queue.Waiting(args[0]))
	case "pop":
		var got []string
		for range int(number(args[0])) {
			it, ok := s.queue.Pop()
			if !ok {
				got = append(got, "(empty)")
				break
			}
			got = append(got, it)
		}
		return wrap(strings.Join(got, " "))
	case "serve":
		return s.serve(micro(args[0]))
	case "steps":
		return s.steps(int(number(args[0])), int(number(options["serve"])), options)
	case "settle":
		s.queue.Settle(args[0], micro(args[1]))
		return s.account(args[0])
	case "idle":
		s.queue.Idle(micro(args[0]))
		return fmt.Sprintf("round %d", s.queue.Round())
	case "account":
		return s.account(args[0])
	case "forget":
		return fmt.Sprintf("%d dropped", s.queue.Remove(args[0]))
	default:
		return "unknown command " + name
	}
}

func (s *script) push(flow string, n int, cost int64) {
	for range n {
		s.counts[flow]++
		item := flow + strconv.Itoa(s.counts[flow])
		s.items[item] = pushed{flow: flow, cost: cost}
		if err := s.queue.Push(flow, item, cost); err != nil {
			panic(err)
		}
	}
}

func (s *script) serve(cost int64) string {
	items, used := map[string]int{}, map[string]int64{}
	for left := cost; left > 0; {
		it, ok := s.queue.Pop()
		if !ok {
			break
		}
		p := s.items[it]
		items[p.flow]++
		used[p.flow] += p.cost
		left -= p.cost
	}
	var out []string
	for _, flow := range sorted(items) {
		out = append(out, fmt.Sprintf("%s: %d items, cost %s", flow, items[flow], units(used[flow])))
	}
	return strings.Join(out, "\n")
}

func (s *script) steps(n, serve int, flows map[string]string) string {
	delete(flows, "serve")
	var lines []string
	for range n {
		items := map[string]int{}
		for _, flow := range sorted(flows) {
			items[flow] = 0
			s.push(flow, int(number(flows[flow])), 1_000_000)
		}
		for range serve {
			if it, ok := s.queue.Pop(); ok {
				items[s.items[it].flow]++
			}
		}
		var line []string
		for _, flow := range sorted(items) {
			line = append(line, fmt.Sprintf("%s %d", flow, items[flow]))
		}
		lines = append(lines, strings.Join(line, ", "))
	}
	// Equal lines in a row are told once.
	var out []string
	for i := 0; i < len(lines); {
		j := i
		for j < len(lines) && lines[j] == lines[i] {
			j++
		}
		out = append(out, fmt.Sprintf("%d x: %s", j-i, lines[i]))
		i = j
	}
	return strings.Join(out, "\n")
}

func (s *script) account(flow string) string {
	a := s.queue.Account(flow)
	if a.Behind == drr.NoStanding {
		return "no standing"
	}
	return fmt.Sprintf("round %d, behind %d, deficit %s, charged %s", s.queue.Round(), a.Behind, units(a.Deficit),
		units(a.Charged))
}

func sorted[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func micro(s string) int64 { return int64(math.Round(number(s) * 1e6)) }

func units(m int64) string { return strconv.FormatFloat(float64(m)/1e6, 'g', -1, 64) }

func number(s string) float64 {
	x, err := strconv.ParseFloat(s, 64)
	if err != nil {
		panic(err)
	}
	return x
}

// wrap breaks a text at spaces into lines of at most 100 bytes.
func wrap(s string) string {
	var lines []string
	for len(s) > 100 {
		i := strings.LastIndexByte(s[:100], ' ')
		lines = append(lines, s[:i])
		s = s[i+1:]
	}
	return strings.Join(append(lines, s), "\n")
}
