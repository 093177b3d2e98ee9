package fairness

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	"github.com/fairlead/fairlead/cell/leader"
	"github.com/fairlead/fairlead/cell/policy"
	"github.com/fairlead/fairlead/cmd/fairlead/agent"
	"github.com/fairlead/fairlead/e2e/sim"
)

// TestOneTraceTwoDrivers runs random traces under policies written in YAML twice: in the simulator, and in the cell that fairlead dev runs,
// its leader, state and log codec on a virtual clock, configured as fairlead dev configures them, with workers that poll, report and ask
// again. Every job starts at the same time and in the same order.
//
// There is one group of workers: which of several asks first is the workers' affair. Jobs are not preemptible here: the simulator's slot is
// free at once, and a cell's when the worker, which hears of it with its next report, has stopped.
func TestOneTraceTwoDrivers(t *testing.T) {
	files, err := filepath.Glob("testdata/policies/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no policies", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		p, err := policy.Parse(file, text)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			cases(t, 10, func(t *rapid.T) { bothDrive(t, p) })
		})
	}
}

func bothDrive(t *rapid.T, p policy.File) {
	s := drawTrace(t, p)
	fair, err := sim.PolicyNamed(sim.PolicyFairlead)
	if err != nil {
		t.Fatal(err)
	}
	run, err := sim.Simulate(s, fair, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := sim.Check(run); err != nil {
		t.Fatal(err)
	}
	r := driveCell(t, p, s)
	for i := range run.Records {
		x, y := &run.Records[i], r.order[i]
		ran := x.State == sim.StateCompleted
		if ran != (y.began != 0) || ran && y.began.Sub(epoch) != x.Start {
			t.Fatalf("job %d of %s starts at %v in the simulator (%v) and at %v in the cell", i, x.Job.Tenant, x.Start, x.State, r.since(y.began))
		}
	}
	if got, want := cellOrder(r), simOrder(run); !slices.Equal(got, want) {
		i := 0
		for got[i] == want[i] {
			i++
		}
		t.Fatalf("after %v the cell runs %v, the simulator %v", want[:i], got[i:], want[i:])
	}
}

// drawTrace draws a trace for a policy: floods, streams and single jobs of tenants that it names and of one that it does not.
func drawTrace(t *rapid.T, p policy.File) *sim.Scenario {
	s := &sim.Scenario{Name: "drawn", Policy: &p, Unit: cell.UnitSlotSeconds}
	s.Workers = []sim.Workers{{Slots: rapid.IntRange(1, 5).Draw(t, "slots")}}
	if p.Costing.ByUnit {
		s.Unit = p.Costing.Unit.String()
	}
	at := time.Duration(0)
	for range rapid.IntRange(1, 15).Draw(t, "arrivals") {
		at += time.Duration(rapid.SampledFrom([]int{0, 0, 1, 7, 50, 400}).Draw(t, "after")) * time.Millisecond
		traits := &sim.Traits{
			Tenant:    rapid.SampledFrom([]string{"a", "b", "c", "d", "nobody"}).Draw(t, "tenant"),
			Class:     rapid.SampledFrom([]cell.Class{cell.ClassInteractive, cell.ClassBatch}).Draw(t, "class"),
			Operation: rapid.SampledFrom([]cell.Operation{"op", "op", "other"}).Draw(t, "operation"),
			Priority:  rapid.SampledFrom([]int32{0, 0, 0, 1}).Draw(t, "priority"),
		}
		traits.Organization = string(p.TenantPolicy(cell.TenantID(traits.Tenant)).Organization)
		if rapid.IntRange(0, 2).Draw(t, "keyed") == 0 {
			traits.Keys = []cell.ConcurrencyKey{{Key: rapid.SampledFrom([]string{"k", "l"}).Draw(t, "key"), Max: 2}}
		}
		traits.Cohort = traits.Tenant
		j := sim.Job{
			Traits: traits, Arrival: at,
			Service: time.Duration(rapid.SampledFrom([]int{1, 4, 10, 25, 60, 1500}).Draw(t, "service")) * time.Millisecond,
		}
		if rapid.Bool().Draw(t, "declares") {
			j.Cost = cell.Cost(rapid.Int64Range(1, 100_000).Draw(t, "cost"))
		}
		if p.Costing.ByUnit {
			j.Cost *= 1_000_000 / 100
			j.Actual = cell.Cost(rapid.Int64Range(1, 1000).Draw(t, "actual")) * 1_000_000
		}
		if rapid.IntRange(0, 9).Draw(t, "due") == 0 {
			j.Deadline = at + time.Duration(rapid.IntRange(1, 100).Draw(t, "deadline"))*time.Millisecond
		}
		for range rapid.IntRange(1, 8).Draw(t, "jobs") {
			j.ID = len(s.Jobs)
			s.Jobs = append(s.Jobs, j)
		}
	}
	return s
}

// driveCell runs the trace in a cell.
func driveCell(t *rapid.T, p policy.File, s *sim.Scenario) *rig {
	// As cmd/fairlead's dev does it.
	cfg := agent.DefaultConfig("", "").Leader
	cfg.Sched, cfg.Costing = p.Sched, p.Costing
	r := newRig(t, cfg, 1)
	promises := &leader.Policy{Organizations: p.Organizations, Policies: slices.Clone(p.Tenants)}
	for _, j := range s.Jobs {
		id := cell.TenantID(j.Tenant)
		if !slices.ContainsFunc(promises.Policies, func(t cell.TenantPolicy) bool { return t.Tenant == id }) {
			promises.Policies = append(promises.Policies, p.TenantPolicy(id))
		}
	}
	r.call(&leader.Call{Policy: promises}, nil)
	r.run(0)
	for _, res := range promises.Results {
		if res.Err != nil {
			t.Fatal(res.Err)
		}
	}
	var ops []cell.Operation
	for _, j := range s.Jobs {
		ops = append(ops, j.Operation)
	}
	slices.Sort(ops)
	k := &worker{
		r: r, id: leader.SessionID{Name: "w"}, ops: slices.Compact(ops), classes: [2]bool{true, true}, slots: s.Slots(), lease: time.Hour,
	}
	k.start()
	r.run(0)
	for i := 0; i < len(s.Jobs); {
		var together []*plan
		at := s.Jobs[i].Arrival
		for ; i < len(s.Jobs) && s.Jobs[i].Arrival == at; i++ {
			together = append(together, planOf(&s.Jobs[i], p.Costing))
		}
		r.at(epoch.Add(at), rankArrive, func() { r.submit(together...) })
	}
	for i := 0; i < 1000 && (len(r.order) < len(s.Jobs) || slices.ContainsFunc(r.order, func(p *plan) bool { return p.ended == 0 })); i++ {
		r.run(time.Second)
	}
	if len(r.order) != len(s.Jobs) {
		t.Fatalf("%d of %d jobs came", len(r.order), len(s.Jobs))
	}
	return r
}

func planOf(j *sim.Job, c cell.Costing) *plan {
	p := &plan{
		name: fmt.Sprint(j.Tenant, j.ID), tenant: cell.TenantID(j.Tenant), class: j.Class, run: j.Service,
		spec: engine.Spec{
			Operation: j.Operation, Priority: j.Priority, Cost: j.Cost, Keys: j.Keys, Retention: 1000 * time.Hour,
			Retry: engine.Retry{AttemptsMax: 1},
		},
	}
	if j.Deadline > 0 {
		p.spec.Deadline = epoch.Add(j.Deadline)
	}
	if c.ByUnit {
		p.used = &cell.Resources{}
		p.used[c.Unit] = int64(j.Actual)
	}
	return p
}

// cellOrder returns the jobs in the order of their grants in the log.
func cellOrder(r *rig) []string {
	var out []string
	for _, id := range r.granted {
		out = append(out, r.plans[id].name)
	}
	return out
}

// simOrder returns the jobs in the order in which they were granted: at one instant slots are taken from the lowest.
func simOrder(run *sim.Run) []string {
	var started []*sim.Record
	for i := range run.Records {
		if run.Records[i].State == sim.StateCompleted {
			started = append(started, &run.Records[i])
		}
	}
	slices.SortStableFunc(started, func(a, b *sim.Record) int {
		if a.Start != b.Start {
			return int(a.Start - b.Start)
		}
		return int(a.Slot - b.Slot)
	})
	var out []string
	for _, r := range started {
		out = append(out, fmt.Sprint(r.Job.Tenant, r.Job.ID))
	}
	return out
}
