package sim_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/e2e/sim"
)

var rewrite = flag.Bool("rewrite", false, "write what the scripts in testdata print into them")

// TestScripts runs testdata/*.txt. A script is blocks, with blank lines between them: lines that start with # are prose, the first other
// line is a command, and what it prints follows a line of four dashes.
//
//	scenario         the YAML that follows is the scenario from now on; prints how many jobs it has
//	run POLICY       simulates it, and prints each job in the order of the starts: when, on which slot, whose and which, and its wait
//	order POLICY     simulates it, and prints the tenants of the jobs in the order of their starts
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
			s := &script{t: t}
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
	t        *testing.T
	scenario *sim.Scenario
}

func (s *script) run(command string) string {
	head, rest, _ := strings.Cut(command, "\n")
	name, policy, _ := strings.Cut(head, " ")
	if name == "scenario" {
		scenario, err := sim.LoadScenario("script", []byte(rest), nil)
		if err != nil {
			return err.Error()
		}
		s.scenario = scenario
		return fmt.Sprintf("%d jobs on %d slots", len(scenario.Jobs), scenario.Slots())
	}
	run := simulate(s.t, s.scenario, policy)
	lines := started(run)
	switch name {
	case "run":
		return strings.Join(lines, "\n")
	case "order":
		var tenants []string
		for _, l := range lines {
			if f := strings.Fields(l); len(f) > 3 {
				tenants = append(tenants, f[3])
			}
		}
		return strings.Join(tenants, " ")
	default:
		return "no such command: " + name
	}
}

// started describes every attempt in the order of the starts, and then the jobs that never started.
func started(run *sim.Run) []string {
	type attempt struct {
		sim.Attempt
		says string
	}
	var all []attempt
	var never []string
	for i := range run.Records {
		switch r := &run.Records[i]; r.State {
		case sim.StateCompleted, sim.StateRunning:
			a := sim.Attempt{Job: r.Job, Start: r.Start, End: r.End, Slot: r.Slot}
			all = append(all, attempt{a, fmt.Sprintf("waited %v", r.Wait())})
		case sim.StateWaiting, sim.StateRejected, sim.StateExpired:
			never = append(never, fmt.Sprintf("never %s %d %v", r.Job.Tenant, r.Job.ID, r.State))
		}
	}
	for _, a := range run.Revoked {
		all = append(all, attempt{a, fmt.Sprintf("taken back at %v", a.End)})
	}
	slices.SortFunc(all, func(a, b attempt) int {
		if a.Start != b.Start {
			return int(a.Start - b.Start)
		}
		return int(a.Slot - b.Slot)
	})
	var out []string
	for _, a := range all {
		out = append(out, fmt.Sprintf("%v slot %d %s %d %s", a.Start, a.Slot, a.Job.Tenant, a.Job.ID, a.says))
	}
	return append(out, never...)
}
