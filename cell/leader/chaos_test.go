package leader

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	"github.com/fairlead/fairlead/cell/sched"
)

// worlds is how many random worlds each test runs; a seed is the number of its world.
var worlds = flag.Uint64("worlds", 12, "how many random worlds to run")

// TestNothingLost runs worlds in which answers get lost, polls are given up, workers die and drain, entries get lost, and leaders are made
// anew, and holds them to: every accepted job ends, once; no success is taken twice; and every lease reaches one worker or comes back, so that
// the cell is empty in the end. The leader and the state are checked at every step.
func TestNothingLost(t *testing.T) {
	seen := map[Reason]int{}
	for seed := range *worlds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			for r, n := range chaos(t, seed, false).reasons {
				seen[r] += n
			}
		})
	}
	for r := ReasonRunning; r <= ReasonStopping && *worlds >= 12 && !t.Failed(); r++ {
		if seen[r] == 0 {
			t.Errorf("no job ever waited because of %v", r)
		}
	}
	t.Log(seen)
}

// TestLostAnswersCostNothing is TestNothingLost with workers that live and extend what they hold, so that no lease may ever expire: what an
// answer carried that got lost, in whatever call, through whatever change of leaders, is given again or taken back.
func TestLostAnswersCostNothing(t *testing.T) {
	for seed := range *worlds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { chaos(t, seed, true) })
	}
}

func chaos(t *testing.T, seed uint64, gentle bool) *world {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 2))
	cfg := testConfig()
	cfg.EntryBytesMax, cfg.CallBytesPerEntry = 2000, 500
	cfg.GrantsPerEntryMax = 1 + rng.IntN(20)
	cfg.Sched.Quantum = 1000 * (1 + rng.Int64N(50))
	for i := range cfg.Sched.Bulkheads {
		b := &cfg.Sched.Bulkheads[i]
		b.NominalParts, b.LendablePercent, b.BorrowMaxPercent = 1+rng.Int64N(5), 50*rng.Int64N(3), 100-50*rng.Int64N(2)
		if rng.IntN(2) == 0 {
			b.LendAfter = time.Duration(rng.IntN(3000)) * time.Millisecond
		}
		if rng.IntN(2) == 0 {
			b.PreemptAfter = time.Duration(1+rng.IntN(5000)) * time.Millisecond
		}
	}
	if rng.IntN(8) == 0 {
		cfg.Sched.Policy = sched.PolicyFIFO
	}
	limits := engine.DefaultLimits()
	limits.TimersPerEntryMax = 1 + rng.IntN(50)
	if rng.IntN(4) == 0 {
		limits.FinishedJobsMax = 1 + rng.Int64N(30)
	}
	w := newWorld(t, cfg, limits, seed)
	if rng.IntN(3) > 0 {
		w.commit = func() time.Duration { return time.Duration(w.rng.IntN(4)) * time.Millisecond }
	}
	c := &chaosRun{world: w, rng: rng, gentle: gentle, lossy: 0.2 * float64(rng.IntN(3)), ops: []cell.Operation{"op", "pdf", "mail"}}
	if seed%2 == 1 {
		c.deal = rand.New(rand.NewPCG(seed, 3))
	}
	w.organization(cell.OrganizationPolicy{Organization: "holding", Weight: 1000})
	for _, name := range []cell.TenantID{"a", "b", "c", "d"} {
		w.tenant(c.policy(name))
	}
	w.runFor(time.Second)
	for range 4 {
		c.join()
	}
	c.loseEntries(0.01 * float64(rng.IntN(3)))
	for range 150 {
		c.step()
		w.runFor(time.Duration(rng.IntN(1500)) * time.Millisecond)
	}
	c.settle()
	return w
}

// chaosRun is a world and what goes wrong in it.
type chaosRun struct {
	*world

	rng    *rand.Rand
	deal   *rand.Rand // nil where there are no groups
	lossy  float64
	ops    []cell.Operation
	gentle bool
	epoch  cell.Epoch
}

func (c *chaosRun) loseEntries(p float64) {
	if c.cfg.Sched.Policy == sched.PolicyFairlead {
		c.loseEntry = p
	}
}

func (c *chaosRun) step() {
	w, rng := c.world, c.rng
	k := w.workers[rng.IntN(len(w.workers))]
	var p *plan
	n := 0
	if len(w.order) > 0 {
		p = w.order[rng.IntN(len(w.order))]
		n = rng.IntN(40)
	}
	if c.gentle && (n >= 24 && n < 26 || n == 34) {
		n = 20 // no deaths, nobody deaf
	}
	switch {
	case n < 20:
		var jobs []job
		for range 1 + rng.IntN(8) {
			jobs = append(jobs, c.job())
		}
		w.submit(jobs...)
	case n < 24:
		k.abandon()
	case n < 26:
		k.kill()
		c.join()
	case n < 28:
		k.drain()
		c.join()
	case n < 29:
		w.restart()
	case n < 32:
		w.call(&Call{Cancel: &Cancel{Tenant: p.tenant, JobID: p.id}}, nil)
	case n < 34:
		c.retry(p)
	case n < 35:
		k.deaf = !k.deaf
	case n < 36:
		c.promise()
	case n < 37 && len(k.held) == 0 && k.poll == nil && k.report == nil:
		k.offer = c.some()
	}
}

// policy makes something that a tenant may be promised. What does not fit beside the other tenants' is refused, which is right too.
func (c *chaosRun) policy(tenant cell.TenantID) cell.TenantPolicy {
	rng := c.rng
	c.epoch++
	p := cell.TenantPolicy{
		Tenant: tenant, Weight: cell.Weight(1000 * rng.IntN(4)), BacklogJobsMax: 40 * rng.Int64N(3), Epoch: c.epoch,
	}
	if c.deal != nil {
		p.Groups = uint64(c.deal.IntN(4)) // none, one or both of two groups
	}
	rate := func(below int64) cell.Rate { return cell.Rate(rng.Int64N(below * cell.Unit)) }
	if rng.IntN(3) == 0 {
		p.Organization = "holding"
	}
	if rng.IntN(3) == 0 {
		p.Reservation = [2]cell.Rate{rate(2), rate(2)}
	}
	if rng.IntN(4) == 0 {
		p.Limit = p.Reservation[0] + p.Reservation[1] + cell.Unit/5 + rate(3)
	}
	if rng.IntN(4) == 0 {
		p.Credit = cell.Credit{Max: cell.Cost(1 + rate(20)), Refill: rate(2), Extra: 1 + rate(3)}
	}
	if rng.IntN(4) == 0 {
		p.RunningMax = 1 + rng.Int64N(5)
	}
	if rng.IntN(5) == 0 {
		p.Starts = cell.StartRate{Jobs: 1 + rng.Int64N(4), Per: time.Duration(1+rng.IntN(5)) * time.Second}
	}
	return p
}

// promise changes what a tenant or the organization is promised.
func (c *chaosRun) promise() {
	rng := c.rng
	if rng.IntN(4) > 0 {
		c.tenant(c.policy([]cell.TenantID{"a", "b", "c", "d"}[rng.IntN(4)]))
		return
	}
	c.epoch++
	p := cell.OrganizationPolicy{Organization: "holding", Weight: cell.Weight(rng.IntN(3000)), Epoch: c.epoch}
	if rng.IntN(2) == 0 {
		p.Reservation = [2]cell.Rate{cell.Rate(rng.Int64N(4 * cell.Unit)), cell.Rate(rng.Int64N(4 * cell.Unit))}
	}
	if rng.IntN(2) == 0 {
		p.Limit = cell.Unit/2 + cell.Rate(rng.Int64N(9*cell.Unit))
	}
	c.organization(p)
}

func (c *chaosRun) retry(p *plan) {
	x := &Call{Retry: &Retry{Tenant: p.tenant, JobID: p.id}}
	c.call(x, nil)
	// What comes of it is known when it is applied: the plan may end once more if it is.
	x.Owner = func() {
		if x.Err == nil && x.Retry.Result.Err == nil {
			p.ended--
		}
	}
	if c.loseEntry > 0 { // it may have been applied though nobody knows
		p.ended = -1000
	}
}

func (c *chaosRun) some() []cell.Operation {
	ops := append([]cell.Operation(nil), c.ops...)
	c.rng.Shuffle(len(ops), func(i, j int) { ops[i], ops[j] = ops[j], ops[i] })
	return sched.SortOperations(ops[:1+c.rng.IntN(len(ops))])
}

func (c *chaosRun) join() {
	rng := c.rng

	k := c.worker(fmt.Sprintf("w%d", len(c.workers)+1), 1+rng.IntN(4), rng.IntN(3))
	k.offer = c.some()
	if c.deal != nil {
		k.group = cell.WorkerGroup(c.deal.IntN(3))
	}
	k.loseCall, k.polite, k.prompt = c.lossy, c.gentle, rng.IntN(2) == 0
	k.duration = time.Duration(5+rng.IntN(10)) * time.Second
	k.wait = time.Duration(1+rng.IntN(10)) * time.Second
	switch rng.IntN(6) {
	case 0:
		k.id.Tenant = "a"
	case 1:
		k.classes = [2]bool{true, false}
	}
	k.start()
}

func (c *chaosRun) job() job {
	rng, now := c.rng, c.now
	j := job{
		plan: plan{
			tenant: []cell.TenantID{"a", "b", "c", "d"}[rng.IntN(4)], class: cell.Classes()[rng.IntN(2)],
			run: time.Duration(rng.IntN(3000)) * time.Millisecond, crashes: rng.IntN(40) == 0 && !c.gentle,
		},
		spec: engine.Spec{Operation: c.ops[rng.IntN(3)], Priority: int32(rng.IntN(100)), Cost: cell.Cost(rng.IntN(100_000))},
	}
	if rng.IntN(5) == 0 {
		j.failures = rng.IntN(4)
		j.spec.Retry = engine.Retry{AttemptsMax: 1 + rng.Int32N(3), DelayMin: time.Millisecond, DelayMax: time.Second}
	}
	if rng.IntN(5) == 0 {
		j.spec.NotBefore = now.Add(time.Duration(rng.IntN(5000)) * time.Millisecond)
	}
	if rng.IntN(8) == 0 {
		j.spec.Deadline = now.Add(time.Duration(rng.IntN(20_000)) * time.Millisecond)
	}
	j.spec.Preemptible = rng.IntN(2) == 0
	for rng.IntN(3) == 0 && len(j.spec.Keys) < 2 {
		key := cell.ConcurrencyKey{Key: fmt.Sprint("k", len(j.spec.Keys), rng.IntN(3)), Max: 1 + rng.Int64N(3)}
		j.spec.Keys = append(j.spec.Keys, key)
	}
	if rng.IntN(3) == 0 {
		j.spec.Key = fmt.Sprint("key", rng.IntN(30))
	}
	if rng.IntN(20) == 0 {
		j.run = time.Duration(rng.IntN(60)) * time.Second
	}
	return j
}

// settle brings in healthy workers for everything, waits, and looks at what became of every job.
func (c *chaosRun) settle() {
	w := c.world
	w.loseEntry = 0
	for _, name := range []cell.TenantID{"a", "b", "c", "d"} { // what starves by its limit, or has no weight, would take long
		c.epoch++
		w.tenant(cell.TenantPolicy{Tenant: name, Weight: 1000, RunningMax: 15, Epoch: c.epoch})
	}
	for _, k := range w.workers {
		k.drain()
		k.loseCall = 0
	}
	for _, p := range w.order {
		p.crashes = false
	}
	k := w.worker("healthy", 20, 4)
	k.offer = sched.SortOperations(c.ops)
	k.start()
	for range 30 {
		w.runFor(time.Minute)
		if live, _ := w.state.Live(); live == 0 && w.lead.leases.len() == 0 {
			break
		}
	}
	for _, p := range w.order {
		if !p.answered {
			w.tb.Fatalf("the submission of %s was never answered", p.name)
		}
		if p.result.Err != nil || p.result.JobID != p.id {
			continue // refused, or its key stands for another
		}
		j := w.state.Job(p.id)
		if j == nil && w.state.Limits().FinishedJobsMax < 1000 {
			continue // forgotten since it ended
		}
		if j == nil {
			w.tb.Fatalf("%s was accepted, and is gone", p.name)
		}
		if !j.State.Ended() {
			x, _ := w.lead.Explain(w.now, p.tenant, p.id)
			w.tb.Errorf("%s is %v: %s", p.name, j.State, x.Message)
		}
		if int(j.Failed) > p.failed {
			w.tb.Errorf("%s failed %d times, and %d attempts are counted as failed", p.name, p.failed, j.Failed)
		}
		if j.Attempt == 0 && j.Charged != 0 {
			w.tb.Errorf("%s never ran, and is charged %d", p.name, j.Charged)
		}
		if c.gentle && j.Lost > 0 {
			w.tb.Errorf("%d leases of %s expired", j.Lost, p.name)
		}
		if p.done > 1 && p.ended > 0 {
			w.tb.Errorf("%d successes of %s were taken", p.done, p.name)
		}
	}
	if n := w.lead.leases.len(); n != 0 {
		w.tb.Errorf("%d leases are left", n)
	}
}
