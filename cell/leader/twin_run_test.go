package leader

import (
	"fmt"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	"github.com/fairlead/fairlead/cell/sched"
)

// TestLanesMove moves lanes between two cells that work, in which answers and entries get lost, workers die and leaders are made anew, and holds
// them to: every accepted job ends, once, where its lane is; no success is taken twice; and what each leader keeps is what its state says, at every
// step.
func TestLanesMove(t *testing.T) {
	runTwins(t, false)
}

// TestLeasesSurviveMoves is TestLanesMove where nothing goes wrong but that lanes move: no lease may ever run out.
func TestLeasesSurviveMoves(t *testing.T) {
	runTwins(t, true)
}

func runTwins(t *testing.T, gentle bool) {
	t.Helper()
	var opened, unfenced, reversed, released, redirected, inherited int
	moving, seeds := 0, *twins
	if testing.Short() {
		seeds = min(seeds, 2)
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			x := newTwin(t, seed, gentle)
			for range 100 {
				x.step()
				x.runFor(time.Duration(x.rng.IntN(1200)) * time.Millisecond)
			}
			x.settle()
			opened, unfenced, reversed, released = opened+x.opened, unfenced+x.unfenced, reversed+x.reversed, released+x.released
			redirected, inherited = redirected+x.redirected, inherited+x.inherited
			moving += x.sides[0].reasons[ReasonMoving] + x.sides[1].reasons[ReasonMoving]
		})
	}
	t.Logf("%d lanes moved with %d leases, %d did not, %d came back, %d were let go; %d calls were sent on; %d jobs waited for it",
		opened, inherited, unfenced, reversed, released, redirected, moving)
	if seeds >= 6 && !t.Failed() && min(opened, unfenced, reversed, released, redirected, inherited, moving) == 0 {
		t.Error("not everything came to pass")
	}
}

func (x *twin) step() {
	rng := x.rng
	s := x.sides[rng.IntN(2)]
	k := s.workers[rng.IntN(len(s.workers))]
	order := x.sides[0].order
	n := 0
	var p *plan
	if len(order) > 0 {
		n, p = rng.IntN(40), order[rng.IntN(len(order))]
	}
	if x.gentle && (n >= 22 && n < 26 || n == 28) {
		n = 20
	}
	switch {
	case n < 18:
		var jobs []job
		for range 1 + rng.IntN(8) {
			jobs = append(jobs, x.sides[0].job())
		}
		x.sides[0].submit(jobs...)
	case n < 22:
		x.start(cell.Lane{Tenant: twinTenants()[rng.IntN(4)], Class: cell.Classes()[rng.IntN(2)]})
	case n < 24:
		k.abandon()
	case n < 26:
		k.kill()
		s.join()
	case n < 28:
		k.drain()
		s.join()
	case n < 29:
		s.restart()
	case n < 32:
		to, known := x.side(p.lane())
		to.call(&Call{Cancel: &Cancel{Tenant: p.tenant, JobID: p.id, Epochs: known}}, nil)
	case n < 34:
		x.retry(p)
	case n < 36:
		x.promise()
	case n < 37:
		x.confirm(p.lane())
	}
}

// confirm opens a lane that is open at a later epoch, as after a fence that was given up before its cell heard of it.
func (x *twin) confirm(lane cell.Lane) {
	h := x.homes[lane]
	if x.moves[lane] != nil {
		return
	}
	m := &move{t: x, lane: lane, from: h.side, to: 1 - h.side, name: cell.Move{Migration: cell.MigrationID(fmt.Sprint("m", x.next())), Attempt: 1}}
	x.moves[lane] = m
	h.epoch = x.next()
	m.mode(h.side, cell.ModeOpen, h.epoch, m.end)
}

func (x *twin) retry(p *plan) {
	to, known := x.side(p.lane())
	c := &Call{Retry: &Retry{Tenant: p.tenant, JobID: p.id, Epochs: known}}
	to.call(c, func() {
		if c.Err == nil && c.Retry.Result.Err == nil {
			p.ended--
		}
	})
	if !x.gentle { // it may have been applied though nobody knows
		p.ended = -1000
	}
}

// promise changes what a tenant is promised, in every cell that has to do with it.
func (x *twin) promise() {
	name := twinTenants()[x.rng.IntN(4)]
	x.setPolicy(x.policy(name))
}

func (x *twin) setPolicy(p cell.TenantPolicy) {
	var hosts [2]bool
	for _, c := range cell.Classes() {
		lane := cell.Lane{Tenant: p.Tenant, Class: c}
		hosts[x.homes[lane].side] = true
		if m := x.moves[lane]; m != nil {
			m.policy = p
		}
	}
	for i, s := range x.sides {
		if hosts[i] {
			s.tenant(p)
		}
	}
}

// settle brings in healthy workers for everything, waits for what moves, and looks at what became of every job.
func (x *twin) settle() {
	x.tb.Helper()
	for _, name := range twinTenants() {
		x.setPolicy(cell.TenantPolicy{Tenant: name, Weight: 1000, RunningMax: 15, Epoch: x.next()})
	}
	for _, s := range x.sides {
		s.loseEntry = 0
		for _, k := range s.workers {
			k.drain()
			k.loseCall = 0
		}
		k := s.worker("healthy", 20, 4)
		k.offer = sched.SortOperations(s.ops)
		k.start()
	}
	for _, p := range x.sides[0].order {
		p.crashes = false
	}
	for range 30 {
		x.runFor(time.Minute)
		if len(x.moves) == 0 && x.idle() {
			break
		}
	}
	if len(x.moves) > 0 {
		x.tb.Fatalf("%d moves never end", len(x.moves))
	}
	for _, p := range x.sides[0].order {
		x.checkPlan(p)
	}
	for i, s := range x.sides {
		if n := s.lead.leases.len() + len(s.lead.moves.away); n != 0 {
			x.tb.Errorf("%d leases are left in %d", n, i)
		}
	}
}

func (x *twin) idle() bool {
	for _, s := range x.sides {
		if live, _ := s.state.Live(); live > 0 || s.lead.leases.len() > 0 {
			return false
		}
	}
	return true
}

func (x *twin) checkPlan(p *plan) {
	x.tb.Helper()
	if !p.answered {
		x.tb.Fatalf("the submission of %s was never answered", p.name)
	}
	if p.result.Err != nil || p.result.JobID != p.id {
		return // refused, or its key stands for another
	}
	side := x.homes[p.lane()].side
	if x.sides[1-side].state.Job(p.id) != nil {
		x.tb.Errorf("%s is still where its lane is not", p.name)
	}
	switch j := x.sides[side].state.Job(p.id); {
	case j == nil:
		x.tb.Errorf("%s was accepted, and is gone", p.name)
	case !j.State.Ended():
		e, _ := x.sides[side].lead.Explain(x.sides[side].now, p.tenant, p.id)
		x.tb.Errorf("%s is %v: %s", p.name, j.State, e.Message)
	case int(j.Failed) > p.failed:
		x.tb.Errorf("%s failed %d times, and %d attempts are counted as failed", p.name, p.failed, j.Failed)
	case x.gentle && j.Lost > 0:
		x.tb.Errorf("%d leases of %s expired", j.Lost, p.name)
	case p.done > 1 && p.ended > 0:
		x.tb.Errorf("%d successes of %s were taken", p.done, p.name)
	case j.State == engine.Succeeded && p.done == 0 && x.gentle:
		x.tb.Errorf("%s succeeded, and no success of it was taken", p.name)
	}
}
