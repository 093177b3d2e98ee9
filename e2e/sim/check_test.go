package sim_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/e2e/sim"
)

// TestCheck has the check find each thing that cannot be, in a run that was right before.
func TestCheck(t *testing.T) {
	s := load(t, `
workers: [{slots: 1, operations: [mail]}, {slots: 2}]
backlog_max: 3
cohorts:
  - {name: a, class: interactive, operation: mail, arrivals: [{at: [0s, 5ms]}], service: 10ms, keys: [{key: db, max: 1}]}
  - {name: b, arrivals: [{at: 0s, jobs: 4}], service: 20ms, deadline: 15ms}
  - {name: c, arrivals: [{at: 20ms, jobs: 3}], service: 100ms, preemptible: true}
  - {name: d, class: interactive, operation: mail, arrivals: [{at: [21ms, 22ms]}], service: 10ms}
policy:
  classes: {interactive: {nominal: 2, lend_after: 0s, preempt_after: 1ms}, batch: {nominal: 1}}
  tenants: [{id: d, running_max: 2}]
`)
	find := func(run *sim.Run, cohort string) *sim.Record {
		for i := range run.Records {
			if r := &run.Records[i]; r.Job.Cohort == cohort && r.State == sim.StateCompleted {
				return r
			}
		}
		t.Fatalf("no job of %s completed", cohort)
		return nil
	}
	state := func(run *sim.Run, s sim.State) *sim.Record {
		i := slices.IndexFunc(run.Records, func(r sim.Record) bool { return r.State == s })
		return &run.Records[i]
	}
	// move makes an attempt start elsewhere or at another time, as long as before.
	move := func(r *sim.Record, by time.Duration, slot int32) {
		r.Start, r.End, r.Slot = r.Start+by, r.End+by, slot
	}
	for name, c := range map[string]struct {
		harm func(*sim.Run)
		says string
	}{
		"too early":           {func(run *sim.Run) { move(find(run, "d"), -time.Hour, 0) }, "before it comes"},
		"too late":            {func(run *sim.Run) { move(find(run, "b"), time.Hour, 1) }, "past its deadline"},
		"too short":           {func(run *sim.Run) { find(run, "d").End-- }, "of 10ms"},
		"for less":            {func(run *sim.Run) { find(run, "d").Charged-- }, "was charged"},
		"another's slot":      {func(run *sim.Run) { r := find(run, "b"); move(r, time.Hour, 0) }, "does not offer"},
		"another's group":     {func(run *sim.Run) { run.Rules.HandOf["b"] = 1<<4 | 1 }, `of b, whose groups are "1 and 5"`},
		"no slot":             {func(run *sim.Run) { find(run, "d").Slot = 3 }, "on slot 3, of 3"},
		"one slot for two":    {func(run *sim.Run) { run.Records[0].Slot, run.Records[2].Slot = 2, 2 }, "slot 2 runs job"},
		"more than slots":     {func(run *sim.Run) { run.Slots = 1 }, "jobs run on 1 slots"},
		"more of a key":       {func(run *sim.Run) { move(&run.Records[5], -10*ms, 2) }, "hold the key db"},
		"more of a class":     {func(run *sim.Run) { run.Rules.ClassMax[1] = 1 }, "batch jobs run, of at most 1"},
		"more of a tenant":    {func(run *sim.Run) { run.Rules.RunningMaxOf["b"] = 1 }, "jobs of b run, of at most 1"},
		"more of any tenant":  {func(run *sim.Run) { run.Rules.RunningMax = 1; delete(run.Rules.RunningMaxOf, "b") }, "jobs of b run, of at most 1"},
		"twice":               {func(run *sim.Run) { run.Records = append(run.Records, run.Records[0]) }, "has two records"},
		"rejected and ran":    {func(run *sim.Run) { state(run, sim.StateRejected).Start = 1 }, "is rejected and has slot"},
		"rejected, charged":   {func(run *sim.Run) { state(run, sim.StateRejected).Charged = 1 }, "was rejected, charged 1"},
		"expired on a slot":   {func(run *sim.Run) { state(run, sim.StateExpired).Slot = 1 }, "is expired and has slot 1"},
		"expired too soon":    {func(run *sim.Run) { state(run, sim.StateExpired).Job = find(run, "a").Job }, "has expired, with its deadline at 0s"},
		"no state":            {func(run *sim.Run) { run.Records[0].State = 9 }, "is state(9)"},
		"taken back, unseen":  {func(run *sim.Run) { run.Revoked = nil }, "by its record, and 0 times by the attempts"},
		"taken back too late": {func(run *sim.Run) { run.Revoked[0].End += time.Hour }, "was taken back at"},
		"still running":       {func(run *sim.Run) { r := find(run, "d"); r.State, r.End = sim.StateRunning, 0 }, "is still running after"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := sim.PolicyNamed("fairlead")
			if err != nil {
				t.Fatal(err)
			}
			run, err := sim.Simulate(s, p, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := sim.Check(run); err != nil {
				t.Fatalf("before: %v", err)
			}
			c.harm(run)
			if err := sim.Check(run); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v; want %q", err, c.says)
			}
		})
	}
}

// TestPreemption has a class get its slots back from preemptible jobs after a while: they run again from the start, and what they ran is
// charged.
func TestPreemption(t *testing.T) {
	s := load(t, `
workers: [{slots: 4}]
cohorts:
  - {name: bulk, class: batch, arrivals: [{at: 0s, jobs: 6}], service: 10s, preemptible: true}
  - {name: quiet, class: interactive, arrivals: [{at: 2s, jobs: 2}], service: 1s}
policy:
  classes: {interactive: {nominal: 2, lend_after: 0s, preempt_after: 500ms}, batch: {nominal: 2, lend_after: 0s}}
`)
	run := simulate(t, s, "fairlead")
	if waits := of(run, "quiet", (*sim.Record).Wait); last(waits) != 500*ms {
		t.Errorf("quiet jobs wait %v", waits)
	}
	if len(run.Revoked) != 2 {
		t.Fatalf("%d attempts were taken back", len(run.Revoked))
	}
	for _, a := range run.Revoked {
		if a.Start != 0 || a.End != 2500*ms {
			t.Errorf("job %d was taken back at %v", a.Job.ID, a.End)
		}
	}
	for i := range run.Records {
		r := &run.Records[i]
		want := r.Job.Charge()
		if r.Preempted > 0 {
			want += 2_500_000
		}
		if r.State != sim.StateCompleted || r.Charged != want {
			t.Errorf("job %d is %v, charged %d, of %d", r.Job.ID, r.State, r.Charged, want)
		}
	}
}

// TestUntil cuts a run short: what runs then is charged for what it has run.
func TestUntil(t *testing.T) {
	s := load(t, `
workers: [{slots: 2}]
until: 25s
cohorts:
  - {name: a, arrivals: [{at: [0s, 30s], jobs: 6}], service: 10s}
`)
	run := simulate(t, s, "fifo")
	count := map[sim.State]int{}
	for i := range run.Records {
		r := &run.Records[i]
		count[r.State]++
		if r.State == sim.StateRunning && (r.Charged != 5_000_000 || r.End != 0) {
			t.Errorf("job %d is charged %d", r.Job.ID, r.Charged)
		}
	}
	if run.End != 25*time.Second || count[sim.StateCompleted] != 4 || count[sim.StateRunning] != 2 || count[sim.StateWaiting] != 6 {
		t.Errorf("at %v: %v", run.End, count)
	}
}
