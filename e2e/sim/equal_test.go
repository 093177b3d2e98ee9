package sim_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	"github.com/fairlead/fairlead/cell/leader"
	"github.com/fairlead/fairlead/cell/policy"
	"github.com/fairlead/fairlead/cell/sched"
	"github.com/fairlead/fairlead/e2e/sim"
)

// grants is when each job is granted, by its id, and in which order.
type grants struct {
	at    map[int]time.Duration
	order []int
}

// TestSimulatorEqualsCell runs the same work through the simulator and through a real cell's leader and state on a virtual clock, with a
// log that commits at once and a worker session for each group that holds no more than it has slots: every job is granted at the same time,
// in the same order.
func TestSimulatorEqualsCell(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScenario(t)
		s.BacklogMax = 0
		for i := range s.Jobs {
			s.Jobs[i].Preemptible = false // in a cell the slot is free when the worker has stopped, here at once
		}
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
		want := newCell(t, s).play()
		for i := range run.Records {
			r := &run.Records[i]
			at, granted := want.at[i]
			if granted != (r.State == sim.StateCompleted) || granted && at != r.Start {
				t.Fatalf("job %d of %s is %v and starts at %v in the simulator; in the cell at %v, %v\nin the simulator:%s\nin the cell:%s",
					i, r.Job.Tenant, r.State, r.Start, at, granted,
					listed(s, dispatched(run), func(i int) time.Duration { return run.Records[i].Start }),
					listed(s, want.order, func(i int) time.Duration { return want.at[i] }))
			}
		}
		if got := dispatched(run); len(s.Workers) == 1 && !slices.Equal(got, want.order) {
			t.Fatalf("the simulator grants %v, the cell %v", got, want.order)
		}
	})
}

// listed is what is granted, whose and when.
func listed(s *sim.Scenario, order []int, at func(int) time.Duration) string {
	var b strings.Builder
	for _, i := range order {
		fmt.Fprintf(&b, "\n%v %s %d", at(i), s.Jobs[i].Tenant, i)
	}
	return b.String()
}

// dispatched returns the places of jobs in the order in which they were granted, on one group of workers that takes its slots from the
// lowest.
func dispatched(run *sim.Run) []int {
	var out []int
	for i := range run.Records {
		if run.Records[i].State == sim.StateCompleted {
			out = append(out, i)
		}
	}
	slices.SortStableFunc(out, func(a, b int) int {
		x, y := &run.Records[a], &run.Records[b]
		if x.Start != y.Start {
			return int(x.Start - y.Start)
		}
		return int(x.Slot - y.Slot)
	})
	return out
}

// theCell is a leader and its state, and workers that do what they are granted.
type theCell struct {
	t        *rapid.T
	s        *sim.Scenario
	state    *engine.State
	lead     *leader.Leader
	now      cell.Instant
	index    uint64
	sessions []*session
	got      grants
}

// session is a group of workers.
type session struct {
	id   leader.SessionID
	w    sim.Workers
	runs []*running // by slot; nil where one is free
	seq  int64
	poll *leader.Call
}

// running is a job on a slot.
type running struct {
	place int
	lease leader.Leased
}

// began is when cells begin.
const began cell.Instant = 1_800_000_000e9

func newCell(t *rapid.T, s *sim.Scenario) *theCell {
	cfg := leader.DefaultConfig()
	cfg.Sched, cfg.Costing = s.Policy.Sched, s.Policy.Costing
	state, err := engine.New(cfg.Limits)
	if err != nil {
		t.Fatal(err)
	}
	lead, err := leader.New(cfg, state, began)
	if err != nil {
		t.Fatal(err)
	}
	c := &theCell{t: t, s: s, state: state, lead: lead, now: began, got: grants{at: map[int]time.Duration{}}}
	promises := &leader.Policy{Organizations: slices.Clone(s.Policy.Organizations), Policies: slices.Clone(s.Policy.Tenants)}
	for i := range s.Jobs {
		id := cell.TenantID(s.Jobs[i].Tenant)
		if !slices.ContainsFunc(promises.Policies, func(p cell.TenantPolicy) bool { return p.Tenant == id }) {
			promises.Policies = append(promises.Policies, s.Policy.TenantPolicy(id))
		}
	}
	call := &leader.Call{Policy: promises}
	c.lead.Enqueue(call)
	c.rest()
	for i, r := range promises.Results {
		if r.Err != nil {
			t.Fatalf("promise %d: %v", i, r.Err)
		}
	}
	var all []cell.Operation
	for i := range s.Jobs {
		all = append(all, s.Jobs[i].Operation)
	}
	all = sched.SortOperations(all)
	for i, w := range s.Workers {
		if len(w.Operations) == 0 {
			w.Operations = all
		}
		k := &session{id: leader.SessionID{Name: fmt.Sprintf("w%d", i)}, w: w, runs: make([]*running, w.Slots)}
		c.sessions = append(c.sessions, k)
	}
	c.ask() // the workers are there before the first job: the order in a round is that of the coming
	c.rest()
	return c
}

// play lets time pass until nothing is left to happen.
func (c *theCell) play() grants {
	next := 0
	for {
		c.report()
		next = c.submit(next)
		c.ask()
		c.rest()
		at := cell.Instant(0)
		sooner := func(t cell.Instant) {
			if t > c.now && (at == 0 || t < at) {
				at = t
			}
		}
		live := next < len(c.s.Jobs)
		if live {
			sooner(began.Add(c.s.Jobs[next].Arrival))
		}
		for _, k := range c.sessions {
			for _, r := range k.runs {
				if r != nil {
					live = true
					sooner(c.end(r.place))
				}
			}
		}
		c.state.Jobs(func(j *engine.Job) bool {
			live = live || !j.State.Ended() && (j.Spec.Deadline > 0 || offered(c.s, string(j.Lane.ID.Tenant), j.Spec.Operation))
			return true
		})
		if !live {
			return c.got
		}
		sooner(c.lead.Wake())
		if at == 0 || at > began.Add(time.Hour) {
			c.t.Fatalf("the cell never comes to an end after %v: %v", c.now.Sub(began), c.got.at)
		}
		c.now = at
	}
}

func (c *theCell) end(place int) cell.Instant {
	return began.Add(c.got.at[place] + c.s.Jobs[place].Service)
}

// report hands in what is done.
func (c *theCell) report() {
	for _, k := range c.sessions {
		r := &leader.Report{Session: k.id, Sequence: k.seq}
		for slot, x := range k.runs {
			if x == nil || c.end(x.place) > c.now {
				continue
			}
			r.Outcomes = append(r.Outcomes, leader.Outcome{
				JobID: x.lease.JobID, Token: x.lease.Token, Kind: engine.OutcomeSuccess, RunTime: c.s.Jobs[x.place].Service,
			})
			k.runs[slot] = nil
		}
		if len(r.Outcomes) > 0 {
			k.seq++
			r.Sequence = k.seq
			c.lead.Enqueue(&leader.Call{Report: r})
		}
	}
}

// submit hands in what comes now, and returns what comes next.
func (c *theCell) submit(next int) int {
	s := &leader.Submit{}
	for ; next < len(c.s.Jobs) && began.Add(c.s.Jobs[next].Arrival) <= c.now; next++ {
		j := &c.s.Jobs[next]
		f := engine.SubmitFact{Tenant: cell.TenantID(j.Tenant), Class: j.Class, Spec: engine.Spec{
			Operation: j.Operation, Priority: j.Priority, Cost: j.Cost, Keys: j.Keys, Retention: time.Hour,
			Retry: engine.Retry{AttemptsMax: 1, DelayMin: time.Second, DelayMax: time.Second},
		}}
		binary.BigEndian.PutUint32(f.ID[12:], uint32(next)+1)
		if j.Deadline > 0 {
			f.Spec.Deadline = began.Add(j.Deadline)
		}
		s.Items = append(s.Items, f)
	}
	if len(s.Items) > 0 {
		c.lead.Enqueue(&leader.Call{Submit: s})
	}
	return next
}

// ask polls for everybody with room, in order; what was asked before is over.
func (c *theCell) ask() {
	for _, k := range c.sessions {
		want := 0
		var held []leader.LeaseRef
		for _, x := range k.runs {
			if x == nil {
				want++
			} else {
				held = append(held, leader.LeaseRef{JobID: x.lease.JobID, Token: x.lease.Token})
			}
		}
		if want == 0 {
			continue
		}
		k.seq++
		p := &leader.Poll{
			Session: k.id, Worker: k.id.Name, Operations: k.w.Operations, Group: k.w.Group, Classes: [2]bool{true, true}, Slots: int64(k.w.Slots),
			Sequence: k.seq, ReportSequence: k.seq, Want: want, Held: held, Until: c.now.Add(time.Hour), LeaseDuration: time.Hour,
		}
		k.poll = &leader.Call{Poll: p, Owner: k}
		c.lead.Enqueue(k.poll)
	}
}

// rest seals and applies until the leader wants nothing more at this time.
func (c *theCell) rest() {
	for range 10_000 {
		entry, done := c.lead.Seal(c.now, 1)
		c.finish(done)
		if entry == nil {
			if wake := c.lead.Wake(); wake == 0 || wake > c.now {
				return
			}
			continue
		}
		c.index++
		done, err := c.lead.Applied(c.now, c.state.Apply(c.index, entry))
		if err := errors.Join(err, c.lead.Check(), c.state.Check()); err != nil {
			c.t.Fatal(err)
		}
		c.finish(done)
	}
	c.t.Fatal("the leader never comes to rest")
}

// finish takes the answers of calls.
func (c *theCell) finish(done []*leader.Call) {
	for _, x := range done {
		switch {
		case x.Err != nil && !errors.Is(x.Err, leader.ErrPollReplaced):
			c.t.Fatal(x.Err)
		case x.Submit != nil:
			for _, r := range x.Submit.Results {
				if r.Err != nil {
					c.t.Fatal(r.Err)
				}
			}
		case x.Report != nil:
			for _, r := range x.Report.Results {
				if r.Err != nil {
					c.t.Fatal(r.Err)
				}
			}
		case x.Poll != nil:
			k, ok := x.Owner.(*session)
			if !ok {
				c.t.Fatal("a poll of nobody")
			}
			for _, le := range x.Poll.Leases {
				place := int(binary.BigEndian.Uint32(le.JobID[12:])) - 1
				k.runs[slices.Index(k.runs, nil)] = &running{place: place, lease: le}
				c.got.at[place] = c.now.Sub(began)
				c.got.order = append(c.got.order, place)
			}
		}
	}
}

// TestOneWeight has a change of one weight change what the tenants that compete with it wait, in the direction that it says, and nothing
// for a tenant of a class of its own.
func TestOneWeight(t *testing.T) {
	s := load(t, `
seed: 3
workers: [{slots: 4}]
cohorts:
  - {name: ash, arrivals: [{at: 0s, jobs: 200}], service: 50ms, cost: {part: 1}}
  - {name: elm, arrivals: [{at: 0s, jobs: 200}], service: 50ms, cost: {part: 1}}
  - {name: alone, class: interactive, arrivals: [{poisson: 10, until: 5s}], service: 20ms, cost: {part: 1}}
policy:
  classes: {interactive: {nominal: 1, lendable_percent: 0}, batch: {nominal: 1, lendable_percent: 0}}
`)
	wait := func(weight cell.Weight, cohort string) time.Duration {
		p := policy.Default()
		p.Sched = s.Policy.Sched
		for _, id := range []cell.TenantID{"ash", "elm"} {
			x := p.TenantPolicy(id)
			if id == "ash" {
				x.Weight = weight
			}
			p.Tenants = append(p.Tenants, x)
		}
		run, err := sim.Simulate(s, sim.PolicyOf("changed", p), nil)
		if err != nil {
			t.Fatal(err)
		}
		return median(of(run, cohort, (*sim.Record).Wait))
	}
	for _, c := range []struct {
		cohort string
		// Of 2 slots for batch a job of 50 ms: with equal weights the median of 200 is the 200th of all 400, with weights of 3 to 1 ash's is
		// the 133rd and elm's the 267th.
		before, after time.Duration
	}{
		{"ash", 4975 * ms, 3325 * ms},
		{"elm", 4975 * ms, 7475 * ms},
		{"alone", wait(cell.WeightDefault, "alone"), wait(cell.WeightDefault, "alone")},
	} {
		before, after := wait(cell.WeightDefault, c.cohort), wait(3*cell.WeightDefault, c.cohort)
		t.Logf("%s: %v, then %v", c.cohort, before, after)
		if before < c.before-100*ms || before > c.before+100*ms || after < c.after-100*ms || after > c.after+100*ms {
			t.Errorf("%s: the median wait is %v, then %v; want about %v and %v", c.cohort, before, after, c.before, c.after)
		}
		if c.cohort == "alone" && before != after {
			t.Errorf("a tenant alone in its class waits %v, then %v", before, after)
		}
	}
}
