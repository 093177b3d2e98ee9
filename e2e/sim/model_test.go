package sim_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/policy"
	"github.com/fairlead/fairlead/cell/sched"
	"github.com/fairlead/fairlead/e2e/sim"
	"github.com/fairlead/fairlead/e2e/sim/trace"
)

// drawScenario makes a small scenario of everything that there is. Each operation is offered by somebody.
func drawScenario(t *rapid.T) *sim.Scenario {
	s := &sim.Scenario{Name: "drawn", Unit: cell.UnitSlotSeconds}
	for range rapid.IntRange(0, 2).Draw(t, "groups") {
		w := sim.Workers{Slots: rapid.IntRange(1, 3).Draw(t, "slots")}
		if rapid.Bool().Draw(t, "picky") {
			w.Operations = []cell.Operation{cell.Operation(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "offers"))}
		}
		s.Workers = append(s.Workers, w)
	}
	s.Workers = append(s.Workers, sim.Workers{Slots: rapid.IntRange(1, 3).Draw(t, "slots")})
	if rapid.IntRange(0, 3).Draw(t, "bounded") == 0 {
		s.BacklogMax = int64(rapid.IntRange(1, 5).Draw(t, "backlog"))
	}
	var kinds []*sim.Traits
	for i := range rapid.IntRange(1, 6).Draw(t, "kinds") {
		k := &sim.Traits{
			Tenant:    fmt.Sprintf("t%d", rapid.IntRange(0, 3).Draw(t, "tenant")),
			Class:     rapid.SampledFrom([]cell.Class{cell.ClassInteractive, cell.ClassBatch}).Draw(t, "class"),
			Operation: cell.Operation(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "operation")), Cohort: fmt.Sprintf("c%d", i),
			Priority: int32(rapid.IntRange(-1, 1).Draw(t, "priority")), Preemptible: rapid.Bool().Draw(t, "preemptible"),
		}
		if k.Tenant == "t0" {
			k.Organization = "o"
		}
		for _, name := range rapid.SampledFrom([][]string{nil, nil, {"x"}, {"x", "y"}}).Draw(t, "keys") {
			k.Keys = append(k.Keys, cell.ConcurrencyKey{Key: name, Max: int64(len(name) + len(k.Tenant)%2)})
		}
		kinds = append(kinds, k)
	}
	for i := range rapid.IntRange(1, 60).Draw(t, "jobs") {
		j := sim.Job{
			Traits: rapid.SampledFrom(kinds).Draw(t, "kind"), ID: i, Arrival: time.Duration(rapid.IntRange(0, 60).Draw(t, "arrival")) * ms,
			Service: time.Duration(rapid.IntRange(1, 20).Draw(t, "service")) * ms, Cost: cell.Cost(rapid.IntRange(0, 20_000).Draw(t, "cost")),
		}
		if rapid.IntRange(0, 4).Draw(t, "due") == 0 {
			j.Deadline = j.Arrival + time.Duration(rapid.IntRange(1, 40).Draw(t, "deadline"))*ms
		}
		s.Jobs = append(s.Jobs, j)
	}
	trace.Sort(s.Jobs)
	return s
}

// drawPolicy makes a policy with some of what a policy may have.
func drawPolicy(t *rapid.T) *policy.File {
	p := policy.Default()
	p.Sched.Quantum = rapid.SampledFrom([]int64{1000, 10_000, 100_000}).Draw(t, "quantum")
	for i := range p.Sched.Bulkheads {
		b := &p.Sched.Bulkheads[i]
		b.NominalParts = int64(rapid.IntRange(1, 4).Draw(t, "nominal"))
		b.LendablePercent = rapid.SampledFrom([]int64{100, 100, 50, 0}).Draw(t, "lendable")
		b.BorrowMaxPercent = rapid.SampledFrom([]int64{100, 100, 30, 0}).Draw(t, "borrow")
		b.LendAfter = rapid.SampledFrom([]time.Duration{0, 5 * ms, 30 * ms}).Draw(t, "lend after")
		b.PreemptAfter = rapid.SampledFrom([]time.Duration{0, 0, 3 * ms}).Draw(t, "preempt after")
	}
	p.Organizations = []cell.OrganizationPolicy{{Organization: "o", Weight: cell.WeightDefault, Epoch: 1}}
	for i := range 3 {
		x := p.Default
		x.Tenant = cell.TenantID(fmt.Sprintf("t%d", i))
		if i == 0 {
			x.Organization = "o"
		}
		x.Weight = rapid.SampledFrom([]cell.Weight{0, 500, 1000, 4000}).Draw(t, "weight")
		x.RunningMax = rapid.SampledFrom([]int64{0, 0, 1, 2}).Draw(t, "running")
		x.Limit = rapid.SampledFrom([]cell.Rate{0, 0, 500_000}).Draw(t, "limit")
		if x.Limit == 0 {
			x.Reservation[1] = rapid.SampledFrom([]cell.Rate{0, 400_000}).Draw(t, "reservation")
			x.Credit = rapid.SampledFrom([]cell.Credit{{}, {Max: 50_000, Refill: 100_000, Extra: 500_000}}).Draw(t, "credit")
		}
		x.Starts = rapid.SampledFrom([]cell.StartRate{{}, {}, {Jobs: 2, Per: 10 * ms}}).Draw(t, "starts")
		p.Tenants = append(p.Tenants, x)
	}
	return &p
}

// deal puts workers into groups, and gives tenants hands of them, in half of the scenarios.
func deal(t *rapid.T, s *sim.Scenario) {
	if rapid.Bool().Draw(t, "no groups") {
		return
	}
	hand := func() uint64 { return rapid.Uint64Range(0, 3).Draw(t, "hand") }
	for i := range s.Workers {
		s.Workers[i].Group = cell.WorkerGroup(rapid.IntRange(0, 2).Draw(t, "group"))
	}
	for i := range s.Policy.Tenants {
		s.Policy.Tenants[i].Groups = hand()
	}
	s.Policy.Default.Groups = hand()
}

// offered reports whether any worker of the tenant's hand offers an operation.
func offered(s *sim.Scenario, tenant string, op cell.Operation) bool {
	hand := s.Policy.TenantPolicy(cell.TenantID(tenant)).Groups
	return slices.ContainsFunc(s.Workers, func(w sim.Workers) bool {
		return w.Group.In(hand) && (len(w.Operations) == 0 || slices.Contains(w.Operations, op))
	})
}

// TestHands runs scenarios of workers in groups: nothing runs outside of its tenant's hand, and what is left waiting in the end is what no
// worker of the hand offers.
func TestHands(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScenario(t)
		s.Policy = drawPolicy(t)
		deal(t, s)
		p, err := sim.PolicyNamed("fairlead")
		if err != nil {
			t.Fatal(err)
		}
		run, err := sim.Simulate(s, p, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := sim.Check(run); err != nil {
			t.Fatal(err)
		}
		for i := range run.Records {
			r := &run.Records[i]
			ends := r.State != sim.StateWaiting && r.State != sim.StateRunning
			if may := offered(s, r.Job.Tenant, r.Job.Operation); ends != (may || r.Job.Deadline > 0 || r.State == sim.StateRejected) {
				t.Fatalf("in the end job %d of %s is %v; a worker of its hand offers it: %v", r.Job.ID, r.Job.Tenant, r.State, may)
			}
		}
	})
}

// TestAnything runs any scenario under every policy: what comes out passes the check, ends for every job, and is the same when it is run
// again.
func TestAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScenario(t)
		s.Policy = drawPolicy(t)
		plain := *s.Policy
		plain.Sched.Policy = sched.PolicyFIFO
		policies := []sim.Policy{sim.PolicyOf("fifo of production", plain)}
		for _, name := range append(sim.Policies(), "capped-rr:1") {
			p, err := sim.PolicyNamed(name)
			if err != nil {
				t.Fatal(err)
			}
			policies = append(policies, p)
		}
		for _, p := range policies {
			name := p.Name
			run, err := sim.Simulate(s, p, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := sim.Check(run); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for i := range run.Records {
				if r := &run.Records[i]; r.State == sim.StateWaiting || r.State == sim.StateRunning {
					t.Fatalf("%s: in the end job %d of %s is %v", name, r.Job.ID, r.Job.Tenant, r.State)
				}
			}
			again, err := sim.Simulate(s, p, nil)
			if err != nil || !reflect.DeepEqual(run, again) {
				t.Fatalf("%s: another run of the same differs: %v", name, err)
			}
		}
	})
}

// TestWorkConserving has no slot idle while a job waits that it offers and no key blocks, under policies that promise so.
func TestWorkConserving(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScenario(t)
		p := policy.Default()
		for i := range p.Sched.Bulkheads {
			p.Sched.Bulkheads[i].LendAfter = 0
		}
		s.Policy = &p
		for _, name := range []string{"fifo", "rr", "drr", "fairlead"} {
			p, err := sim.PolicyNamed(name)
			if err != nil {
				t.Fatal(err)
			}
			run, err := sim.Simulate(s, p, nil)
			if err != nil {
				t.Fatal(err)
			}
			var times []time.Duration
			for i := range run.Records {
				r := &run.Records[i]
				times = append(times, r.Job.Arrival, r.Start, r.End)
			}
			for _, at := range times {
				if r := couldRun(run, at); r != nil {
					t.Fatalf("%s: at %v job %d of %s waits while it could run", name, at, r.Job.ID, r.Job.Tenant)
				}
			}
		}
	})
}

// couldRun returns a job that waits just after a time and that a free slot could run.
func couldRun(run *sim.Run, at time.Duration) *sim.Record {
	busy := make([]bool, run.Slots)
	held := map[string]int64{}
	for i := range run.Records {
		if r := &run.Records[i]; r.State == sim.StateCompleted && r.Start <= at && at < r.End {
			busy[r.Slot] = true
			for _, k := range r.Job.Keys {
				held[r.Job.Tenant+"/"+k.Key]++
			}
		}
	}
	free := func(j *sim.Job) bool {
		slot := 0
		for _, w := range run.Workers {
			if (len(w.Operations) == 0 || slices.Contains(w.Operations, j.Operation)) && slices.Contains(busy[slot:slot+w.Slots], false) {
				return true
			}
			slot += w.Slots
		}
		return false
	}
	for i := range run.Records {
		r := &run.Records[i]
		waits := r.Job.Arrival <= at && (r.State == sim.StateCompleted && r.Start > at || r.State == sim.StateExpired && r.Job.Deadline > at)
		blocked := slices.ContainsFunc(r.Job.Keys, func(k cell.ConcurrencyKey) bool { return held[r.Job.Tenant+"/"+k.Key] >= k.Max })
		if waits && !blocked && free(r.Job) {
			return r
		}
	}
	return nil
}

// TestReferencesEqualModels compares first in first out and the rotations with models that look at every job at every millisecond.
func TestReferencesEqualModels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScenario(t)
		s.Workers = s.Workers[len(s.Workers)-1:] // one group: whose turn it is between groups is not the model's business
		for name, limit := range map[string]int{"fifo": -1, "rr": 1000, "capped-rr": 2, "capped-rr:1": 1} {
			p, err := sim.PolicyNamed(name)
			if err != nil {
				t.Fatal(err)
			}
			run, err := sim.Simulate(s, p, nil)
			if err != nil {
				t.Fatal(err)
			}
			starts := map[int]time.Duration{}
			for i := range run.Records {
				if r := &run.Records[i]; r.State == sim.StateCompleted {
					starts[r.Job.ID] = r.Start
				}
			}
			if want := naive(s, limit); !reflect.DeepEqual(starts, want) {
				t.Fatalf("%s starts jobs at %v, the model at %v", name, starts, want)
			}
		}
	})
}

// naive returns when each job starts, by a scan of all of them at every millisecond: in the order of arrival where limit is negative, else
// by a rotation over the tenants that passes over those with as many running.
func naive(s *sim.Scenario, limit int) map[int]time.Duration {
	starts := map[int]time.Duration{}
	gone := map[int]bool{} // rejected or expired
	var order []string
	for i := range s.Jobs {
		if !slices.Contains(order, s.Jobs[i].Tenant) {
			order = append(order, s.Jobs[i].Tenant)
		}
	}
	cursor := 0
	for now := time.Duration(0); len(starts)+len(gone) < len(s.Jobs); now += ms {
		waits := func(j *sim.Job) bool {
			_, started := starts[j.ID]
			return !started && !gone[j.ID] && j.Arrival <= now
		}
		running := func(is func(*sim.Job) bool) (n int) {
			for i := range s.Jobs {
				if at, ok := starts[s.Jobs[i].ID]; ok && now < at+s.Jobs[i].Service && is(&s.Jobs[i]) {
					n++
				}
			}
			return n
		}
		for i := range s.Jobs {
			backlog := int64(0)
			for k := range s.Jobs[:i] {
				if waits(&s.Jobs[k]) && s.Jobs[k].Tenant == s.Jobs[i].Tenant {
					backlog++
				}
			}
			if s.Jobs[i].Arrival == now && s.BacklogMax > 0 && backlog >= s.BacklogMax {
				gone[s.Jobs[i].ID] = true
			}
		}
		for i := range s.Jobs {
			if j := &s.Jobs[i]; waits(j) && j.Deadline > 0 && j.Deadline <= now {
				gone[j.ID] = true
			}
		}
		pick := func(tenant string) *sim.Job {
			for i := range s.Jobs {
				j := &s.Jobs[i]
				blocked := slices.ContainsFunc(j.Keys, func(k cell.ConcurrencyKey) bool {
					return int64(running(func(o *sim.Job) bool {
						return o.Tenant == j.Tenant && slices.ContainsFunc(o.Keys, func(x cell.ConcurrencyKey) bool { return x.Key == k.Key })
					})) >= k.Max
				})
				if waits(j) && !blocked && (tenant == "" || j.Tenant == tenant) {
					return j
				}
			}
			return nil
		}
		next := func() *sim.Job {
			if limit < 0 {
				return pick("")
			}
			for i := range order {
				k := (cursor + i) % len(order)
				if running(func(o *sim.Job) bool { return o.Tenant == order[k] }) >= limit {
					continue
				}
				if j := pick(order[k]); j != nil {
					cursor = (k + 1) % len(order)
					return j
				}
			}
			return nil
		}
		for running(func(*sim.Job) bool { return true }) < s.Slots() {
			j := next()
			if j == nil {
				break
			}
			starts[j.ID] = now
		}
	}
	return starts
}
