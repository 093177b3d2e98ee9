package sched

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cell"
)

var rewrite = flag.Bool("rewrite", false, "write what the scripts in testdata print into them")

// TestScripts runs testdata/*.txt. A script is blocks, with blank lines between them: lines that start with # are prose, others are
// commands, one on each line, and what they print follows a line of four dashes. After each block every invariant is checked.
//
//	cell S [room=R] [parts=I:B] [lend=I:B] [borrow=I:B] [after=I:B] [preempt=I:B] [capacity=I:B] [quantum=D] [cost=D]
//	     [overrun=D] [fifo]       a new cell of S slots whose workers offer the operation op; costs are slot time, 10ms where nobody knows
//	tenant T [of=O] [weight=W] [reserve=I:B] [limit=R] [running=N] [starts=N/D] [credit=MAX/REFILL/EXTRA] [hand=G,...]    rates in slots
//	organization O [weight=W] [reserve=I:B] [limit=R]
//	worker NAME OP,... [group=G]  a worker that offers some operations
//	gone NAME                     a worker leaves
//	slots S [room=R]              how many slots live
//	add T[/i] [xN] [op=] [keys=k:N,...] [cost=D] [priority=P] [deadline=D] [preemptible]    N jobs, named after the tenant and numbered
//	next N [by=NAME]              up to N grants; tiers other than shared stand behind the job
//	private T [N]                 up to N grants to the tenant's own worker
//	run D [for=D|T:D,...]         for so long, whatever is granted runs for its time, and slots are filled again; how many
//	                              jobs of each tenant started, and the slot time that it had
//	end J ... [ran=D]             jobs end, having run for as long as they were held or for a time
//	drop J ...                    leases end unsettled
//	remove J ...                  jobs are taken out that wait
//	again J ...                   jobs wait again that were held
//	hold T[/i] J [keys=] [ago=D] [preemptible]    a lease that is found in the state
//	suspend T[/i] | resume T[/i]  a lane is suspended, or not any more
//	front T[/i] N                 the first of its jobs that could run
//	forecast T[/i]                about how long another job of the lane would wait
//	after D                       time passes
//	wake                          when something ends that only time ends
//	stop J ... | spare J ...      workers are told to stop; leases that would give the other class nothing
//	preempt                       leases that are to be revoked
//	overruns                      attempts that are charged more
//	why J | use | tenants         why a job waits; what classes and tenants hold
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { runScript(t, file) })
	}
}

func runScript(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := &script{t: t}
	var out []string
	for block := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		head, want, _ := strings.Cut(block+"\n", "----\n")
		var got []string
		for line := range strings.Lines(head) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				if answer := s.run(line); answer != "" {
					got = append(got, answer)
				}
			}
		}
		if s.Scheduler != nil {
			if err := s.Check(); err != nil {
				t.Fatalf("%s\n%v", head, err)
			}
		}
		if want = strings.TrimSpace(want); strings.Join(got, "\n") != want && !*rewrite {
			t.Errorf("%s\ngot:\n%s\nwant:\n%s", head, strings.Join(got, "\n"), want)
		}
		block = strings.TrimRight(head, "\n")
		if len(got) > 0 {
			block += "\n----\n" + strings.Join(got, "\n")
		}
		out = append(out, block)
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(strings.Join(out, "\n\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// script is the state of a running script.
type script struct {
	*Scheduler

	t       *testing.T
	now     cell.Instant
	seq     uint64
	counts  map[string]int
	ids     map[string]cell.JobID
	names   map[cell.JobID]string
	items   map[string]Item
	offers  map[string]OfferID
	started map[string]cell.Instant
}

// words are a command's: those without = are in order, the others by their names.
type words struct {
	list  []string
	named map[string]string
}

func (w words) text(name, otherwise string) string {
	if v, ok := w.named[name]; ok {
		return v
	}
	return otherwise
}

func (w words) has(flag string) bool { return slices.Contains(w.list, flag) }

func (w words) at(i int) string {
	if i < len(w.list) {
		return w.list[i]
	}
	return ""
}

// pair reads a value for each class.
func pairOf[T any](w words, name, otherwise string, read func(string) T) [2]T {
	i, b, _ := strings.Cut(w.text(name, otherwise), ":")
	return [2]T{read(i), read(b)}
}

func (s *script) run(line string) string {
	w := words{named: map[string]string{}}
	for word := range strings.FieldsSeq(line) {
		if k, v, ok := strings.Cut(word, "="); ok {
			w.named[k] = v
		} else {
			w.list = append(w.list, word)
		}
	}
	name := w.list[0]
	w.list = w.list[1:]
	commands := map[string]func(words) string{
		"cell": s.cell, "tenant": s.tenantPolicy, "organization": s.organization, "worker": s.worker, "gone": s.gone, "slots": s.slots, "add": s.addJobs,
		"next": s.grants, "private": s.private, "run": s.work, "end": s.end, "drop": s.drop, "remove": s.remove, "again": s.again, "hold": s.hold,
		"suspend": s.suspendLane, "resume": s.resumeLane, "front": s.frontOf, "forecast": s.forecast,
		"stop": s.stop, "spare": s.spare, "after": s.after, "wake": s.wakeAt, "preempt": s.revoke, "overruns": s.overrun, "why": s.why, "use": s.use, "tenants": s.standing,
	}
	if commands[name] == nil {
		s.t.Fatalf("unknown command %q", line)
	}
	return commands[name](w)
}
