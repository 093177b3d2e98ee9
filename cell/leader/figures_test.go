package leader

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	"github.com/fairlead/fairlead/cell/sched"
)

// result is what came of one bulk tenant beside nineteen quiet ones, in milliseconds.
type result struct {
	quietP95, quietMax, bulkFinished int64
	utilisation                      float64 // percent
}

// bulkBesideQuiet is one bulk tenant with 400 jobs at once and nineteen quiet ones with a job of 100 ms at 200, 600, 1000 and 1400 ms each,
// on eight slots.
func bulkBesideQuiet(t *testing.T, policy sched.Policy, run time.Duration) result {
	t.Helper()
	cfg := testConfig()
	cfg.Sched.Policy = policy
	w := newWorld(t, cfg, engine.DefaultLimits(), 1)
	names := []cell.TenantID{"bulk"}
	for c := range 19 {
		names = append(names, cell.TenantID("q"+string(rune('a'+c))))
	}
	for _, n := range names {
		w.tenant(cell.TenantPolicy{Tenant: n, Weight: cell.WeightDefault})
	}
	w.run(w.now)
	var jobs []job
	for range 400 {
		jobs = append(jobs, job{plan: plan{tenant: "bulk", class: cell.ClassBatch, run: run}, spec: engine.Spec{Cost: 100_000}})
	}
	var quiet []*plan
	w.at(epoch, rankArrive, func() { w.submit(jobs...) })
	for _, at := range []int{200, 600, 1000, 1400} {
		w.at(epoch.Add(time.Duration(at)*time.Millisecond), rankArrive, func() {
			for _, n := range names[1:] {
				quiet = append(quiet, w.submit(job{
					plan: plan{tenant: n, class: cell.ClassBatch, run: 100 * time.Millisecond}, spec: engine.Spec{Cost: 100_000},
				})...)
			}
		})
	}
	w.run(epoch)
	w.worker("w", 8, 0).start()
	w.runFor(10 * time.Minute)
	if n := w.state.Count(engine.Succeeded); n != 476 {
		t.Fatalf("%d jobs succeeded", n)
	}
	var waits []int64
	for _, p := range quiet {
		waits = append(waits, p.started.Sub(p.at).Milliseconds())
	}
	slices.Sort(waits)
	var last, bulk cell.Instant
	var busy time.Duration
	for _, p := range w.order {
		end := p.started.Add(p.run)
		last = max(last, end)
		busy += p.run
		if p.tenant == "bulk" {
			bulk = max(bulk, end)
		}
	}
	return result{
		quietP95: waits[72], quietMax: waits[75], bulkFinished: bulk.Sub(epoch).Milliseconds(),
		utilisation: float64(busy) / float64(8*last.Sub(epoch)) * 100,
	}
}

// TestBulkBesideQuiet has the figures of one bulk tenant beside nineteen quiet ones: exactly those of first in, first out, and waits no longer
// than round robin's at the same use of the slots. Where bulk jobs run five times as long, time is shared, not turns: the quiet tenants wait less
// than in round robin, and the bulk's last jobs end a little later.
func TestBulkBesideQuiet(t *testing.T) {
	cases := map[string]struct {
		policy sched.Policy
		run    time.Duration
		want   result
	}{
		"fifo 100 ms": {sched.PolicyFIFO, 100 * time.Millisecond, result{4900, 5000, 5000, 99.17}},
		"fair 100 ms": {sched.PolicyFairlead, 100 * time.Millisecond, result{200, 200, 6000, 99.17}},
		"fifo 500 ms": {sched.PolicyFIFO, 500 * time.Millisecond, result{24_900, 25_000, 25_000, 99.81}},
		"fair 500 ms": {sched.PolicyFairlead, 500 * time.Millisecond, result{500, 500, 26_400, 98.67}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := bulkBesideQuiet(t, c.policy, c.run)
			t.Logf("%+v", got)
			within := func(what string, got, want int64) {
				if got > want || c.policy == sched.PolicyFIFO && got != want {
					t.Errorf("%s is %d, not %d", what, got, want)
				}
			}
			within("quiet p95", got.quietP95, c.want.quietP95)
			within("quiet max", got.quietMax, c.want.quietMax)
			within("bulk finished", got.bulkFinished, c.want.bulkFinished)
			if d := got.utilisation - c.want.utilisation; d < -0.01 || d > 0.01 {
				t.Errorf("utilisation is %.2f %%, not %.2f %%", got.utilisation, c.want.utilisation)
			}
		})
	}
}

// TestQuietWaitsOneRound floods a cell and lets quiet tenants submit now and then: none waits longer than the job that runs and one job of
// each other tenant.
func TestQuietWaitsOneRound(t *testing.T) {
	for _, loud := range []int{1, 5} {
		w := newWorld(t, testConfig(), engine.DefaultLimits(), 7)
		for _, n := range []cell.TenantID{"a", "b", "c", "d", "e", "quiet"} {
			w.tenant(cell.TenantPolicy{Tenant: n, Weight: cell.WeightDefault})
		}
		w.run(w.now)
		flood := func(tenant cell.TenantID, n int) {
			jobs := slices.Repeat([]job{{plan: plan{tenant: tenant, class: cell.ClassBatch, run: 100 * time.Millisecond}}}, n)
			w.submit(jobs...)
		}
		for _, n := range []cell.TenantID{"a", "b", "c", "d", "e"}[:loud] {
			flood(n, 1000)
		}
		w.worker("w", 1, 0).start()
		var quiet []*plan
		for range 20 {
			w.runFor(time.Duration(500+w.rng.IntN(1000)) * time.Millisecond)
			quiet = append(quiet, w.submit(job{plan: plan{tenant: "quiet", class: cell.ClassBatch, run: 100 * time.Millisecond}})...)
		}
		w.runFor(5 * time.Second)
		for _, p := range quiet {
			if wait, most := p.started.Sub(p.at), time.Duration(1+loud)*100*time.Millisecond; p.started == 0 || wait > most {
				t.Errorf("with %d loud tenants %s waited %v, more than %v", loud, p.name, wait, most)
			}
		}
	}
}

// TestOverrunIsCharged has a job that says it is short and runs long: it is charged while it runs, at most twice what it has run, and in the end
// exactly what it ran, up or down.
func TestOverrunIsCharged(t *testing.T) {
	for name, c := range map[string]struct {
		cost cell.Cost
		run  time.Duration
	}{"under": {10_000, 100 * time.Second}, "over": {500_000_000, 3 * time.Second}, "unknown": {0, 20 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, testConfig(), engine.DefaultLimits(), 3)
			w.tenant(cell.TenantPolicy{Tenant: "a", Weight: cell.WeightDefault})
			w.run(w.now)
			p := w.submit(job{plan: plan{tenant: "a", class: cell.ClassBatch, run: c.run}, spec: engine.Spec{Cost: c.cost}})[0]
			w.worker("w", 1, 0).start()
			w.run(w.now)
			for ran := time.Second; ran < c.run; ran += time.Second {
				w.runFor(time.Second)
				ran, charged := cell.Cost(ran.Microseconds()), w.state.Job(p.id).Charged
				if charged < ran || charged > max(c.cost, 2*ran) {
					t.Fatalf("after %d µs it is charged %d", ran, charged)
				}
			}
			w.runFor(2 * time.Second)
			if got, want := w.state.Job(p.id).Charged, cell.Cost(c.run.Microseconds()); got != want {
				t.Errorf("it was charged %d in the end, not %d", got, want)
			}
			if got := w.state.Lane(cell.Lane{Tenant: "a", Class: cell.ClassBatch}).Charged; got != w.state.Job(p.id).Charged {
				t.Errorf("the lane was charged %d", got)
			}
		})
	}
}

// TestUnderDeclaring has a tenant that says a tenth of what its jobs cost, beside one that says the truth: it gains nothing over time. Both
// always have jobs waiting; a restart in the middle changes nothing.
func TestUnderDeclaring(t *testing.T) {
	for name, restarts := range map[string]int{"one leader": 0, "restarts": 5} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, testConfig(), engine.DefaultLimits(), 5)
			used := map[cell.TenantID]time.Duration{}
			for _, n := range []cell.TenantID{"liar", "honest"} {
				w.tenant(cell.TenantPolicy{Tenant: n, Weight: cell.WeightDefault})
				cost := cell.Cost(500_000)
				if n == "liar" {
					cost /= 10
				}
				w.run(w.now)
				j := job{plan: plan{tenant: n, class: cell.ClassBatch, run: 500 * time.Millisecond}, spec: engine.Spec{Cost: cost}}
				w.submit(slices.Repeat([]job{j}, 1500)...)
			}
			w.worker("w", 4, 0).start()
			w.run(w.now)
			for i := range restarts + 1 {
				if i > 0 {
					w.restart()
				}
				w.runFor(200 * time.Second / time.Duration(restarts+1))
			}
			for _, s := range w.starts {
				used[s.plan.tenant] += s.plan.run
			}
			if share := used["liar"].Seconds() / (used["liar"] + used["honest"]).Seconds(); share > 0.51 {
				t.Errorf("the liar got %.1f %% of the time", 100*share)
			} else {
				t.Logf("the liar got %.2f %%", 100*share)
			}
		})
	}
}

// TestDebtShrinks has a tenant that overspent half a minute of slot time. What it owes shrinks while others run, in the log too, so
// that it does not come back with a later leader.
func TestDebtShrinks(t *testing.T) {
	w := newWorld(t, testConfig(), engine.DefaultLimits(), 5)
	for _, n := range []cell.TenantID{"a", "b"} {
		w.tenant(cell.TenantPolicy{Tenant: n, Weight: cell.WeightDefault})
	}
	w.worker("w", 1, 0).start()
	w.run(w.now)
	submit := func(tenant cell.TenantID, n int, run time.Duration) {
		w.submit(slices.Repeat([]job{{plan: plan{tenant: tenant, class: cell.ClassBatch, run: run}}}, n)...)
		w.run(w.now)
	}
	submit("a", 1, 30*time.Second)
	submit("a", 1, time.Second)
	submit("b", 300, time.Second)
	rounds := func() int64 { return w.state.Lane(cell.Lane{Tenant: "a", Class: cell.ClassBatch}).Account.Rounds }
	w.runFor(31 * time.Second)
	w.restart()
	w.runFor(time.Second)
	owed := rounds()
	if owed < 1000 {
		t.Fatalf("after 30 s that nobody had announced a owes %d rounds", owed)
	}
	w.runFor(5 * time.Second)
	if n := len(w.starts); w.starts[n-1].plan.tenant != "b" {
		t.Error("a runs at once after a restart, with a debt")
	}
	w.runFor(40 * time.Second)
	if got := rounds(); got > owed/2 {
		t.Errorf("after 45 s a owes %d rounds of %d", got, owed)
	}
	w.runFor(20 * time.Minute)
	if got := rounds(); got != 0 {
		t.Errorf("after all have run a owes %d rounds", got)
	}
}

// TestBackOff holds the waits of failed jobs to their bounds: below the exponential ceiling, spread over all of it, and at least the hold once
// the lane has no retries left and others wait.
func TestBackOff(t *testing.T) {
	cfg := testConfig()
	state, err := engine.New(engine.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	l, err := New(cfg, state, epoch)
	if err != nil {
		t.Fatal(err)
	}
	lane := &engine.Lane{ID: cell.Lane{Tenant: "a", Class: cell.ClassBatch}}
	for name, c := range map[string]struct {
		retry   engine.Retry
		failed  int32
		ceiling time.Duration
	}{
		"first":       {engine.Retry{DelayMin: time.Second, DelayMax: time.Hour}, 0, time.Second},
		"fifth":       {engine.Retry{DelayMin: time.Second, DelayMax: time.Hour}, 4, 16 * time.Second},
		"at the most": {engine.Retry{DelayMin: time.Second, DelayMax: time.Minute}, 10, time.Minute},
		"far beyond":  {engine.Retry{DelayMin: time.Hour, DelayMax: 24 * time.Hour}, 1 << 30, 24 * time.Hour},
		"none":        {engine.Retry{}, 3, 0},
		"none first":  {engine.Retry{DelayMax: time.Minute}, 0, 0},
	} {
		l.book(lane.ID).retries = retriesMax
		var least, most time.Duration = c.ceiling, 0
		for range 50 {
			d := l.backOff(&engine.Job{Lane: lane, Spec: engine.Spec{Retry: c.retry}, Failed: c.failed})
			least, most = min(least, d), max(most, d)
		}
		if least < 0 || most > c.ceiling || c.ceiling > 0 && (least > c.ceiling/4 || most < c.ceiling*3/4) {
			t.Errorf("%s: waits are %v to %v, of a ceiling of %v", name, least, most, c.ceiling)
		}
	}
}

// TestRetryBudget has a tenant whose jobs all fail, beside one that waits: its retries soon come no more than a fifth as often as its fresh jobs,
// while alone they come at once.
func TestRetryBudget(t *testing.T) {
	for name, contended := range map[string]bool{"contended": true, "alone": false} {
		w := newWorld(t, testConfig(), engine.DefaultLimits(), 5)
		for _, n := range []cell.TenantID{"bad", "good"} {
			w.tenant(cell.TenantPolicy{Tenant: n, Weight: cell.WeightDefault})
		}
		w.run(w.now)
		if contended {
			w.submit(slices.Repeat([]job{{plan: plan{tenant: "good", class: cell.ClassBatch, run: time.Second}}}, 2000)...)
		}
		j := job{
			plan: plan{tenant: "bad", class: cell.ClassBatch, run: time.Millisecond, failures: 50},
			spec: engine.Spec{Retry: engine.Retry{AttemptsMax: 50, DelayMin: time.Millisecond, DelayMax: time.Millisecond}},
		}
		w.submit(slices.Repeat([]job{j}, 50)...)
		w.worker("w", 4, 0).start()
		w.runFor(25 * time.Second)
		bad := 0
		for _, s := range w.starts {
			if s.plan.tenant == "bad" {
				bad++
			}
		}
		if most := 50 + retriesMax; contended != (bad <= most) {
			t.Errorf("%s: %d attempts of 50 failing jobs in 25 s", name, bad)
		}
	}
}

// TestFullBacklogSaysWhen holds the advice of a refused submission to about the time in which a twentieth of the backlog ends.
func TestFullBacklogSaysWhen(t *testing.T) {
	for name, c := range map[string]struct {
		bytes int64
		run   time.Duration
		least time.Duration
		most  time.Duration
	}{
		"fast":        {0, 10 * time.Millisecond, time.Second, time.Second},
		"slow":        {0, time.Second, 4 * time.Second, 15 * time.Second},
		"stuck":       {0, time.Hour, time.Second, time.Minute},
		"slow, bytes": {600 * 700, time.Second, 4 * time.Second, 15 * time.Second},
	} {
		w := newWorld(t, testConfig(), engine.DefaultLimits(), 5)
		w.tenant(cell.TenantPolicy{Tenant: "a", Weight: cell.WeightDefault, BacklogJobsMax: 600, BacklogBytesMax: c.bytes})
		w.run(w.now)
		w.worker("w", 4, 0).start()
		j := job{plan: plan{tenant: "a", class: cell.ClassBatch, run: c.run}}
		var refused *cell.LimitError
		for range 20 {
			for _, p := range w.submit(slices.Repeat([]job{j}, 900)...) {
				w.run(w.now)
				errors.As(p.result.Err, &refused)
			}
			w.runFor(time.Second)
		}
		if refused == nil || refused.RetryAfter < c.least || refused.RetryAfter > c.most {
			t.Errorf("%s: %+v", name, refused)
		}
	}
}
