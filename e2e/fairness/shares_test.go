package fairness

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
)

// tolerance is how far a long-run share may be from the planner's, after the first four seconds.
const tolerance = 0.005

// TestSharesEqualPlan runs random workloads and wants every tenant's share of slot time, from the fourth second on, to be the planner's:
// within half a percent, or within what a whole job and a whole turn make of a period if that is more (slack). Organizations nest,
// reservations and limits hold, and some tenants want less than they could have.
func TestSharesEqualPlan(t *testing.T) {
	cases(t, 10, func(t *rapid.T) {
		load := drawWorkload(t)
		plan := load.plan(t)
		w := newWorld(t, quickConfig(), rapid.Uint64().Draw(t, "seed"))
		load.pools(t, w)
		load.start(w)
		w.runFor(4 * time.Second)
		const period = 8 * time.Second
		w.past = nil // what ended before
		w.runFor(period)
		for _, c := range load.tenants {
			id := c.policy.Tenant
			got, want := w.served(epoch.Add(4*time.Second), w.now, of(id)), due(plan[id], period)
			if off := (got - want).Abs(); off > max(time.Duration(tolerance*float64(want)), load.slack(w, c)) {
				t.Errorf("%s has %v of %v: %+.2f %%, slack %v; plan %v", id, got, want, 100*float64(got-want)/float64(want), load.slack(w, c), plan)
			}
		}
	})
}

// pools gives a workload its slots: all of one offer, or of several, each with operations of its own besides.
func (l *workload) pools(t *rapid.T, w *world) {
	left := l.slots
	for n := rapid.IntRange(1, 3).Draw(t, "pools"); n > 1 && left > 1; n-- {
		slots := rapid.IntRange(1, left-1).Draw(t, "slots of it")
		left -= slots
		w.pool(slots, "op", cell.Operation(fmt.Sprint("more-", n)))
	}
	w.pool(left, "op")
}

// due is what a rate comes to in a time.
func due(r cell.Rate, d time.Duration) time.Duration {
	return time.Duration(float64(r) / float64(slot) * float64(d))
}

// slack is what a share over a period may be off by the nature of turns: each pair of flows of one parent may be apart by 2Q + Maxi/wi +
// Maxj/wj in units of weight, at the tenant's own level and, in proportion, at its organization's; a reservation by a job of its own at
// either end; and what runs over either end of the period by a job in each slot that it has.
func (l *workload) slack(w *world, c *claimant) time.Duration {
	own := float64(c.policy.Weight) / 1000
	apart := func(max, weight float64) float64 {
		worst := 0.0
		for _, o := range l.tenants {
			worst = maxf(worst, 2*float64(w.cfg.Quantum)+max/weight+float64(o.most.Microseconds())/(float64(o.policy.Weight)/1000))
		}
		return worst
	}
	micros := own * apart(float64(c.most.Microseconds()), own)
	for _, o := range l.orgs {
		if o.Organization == c.policy.Organization {
			micros += float64(o.Weight) / 1000 * apart(float64(l.longest().Microseconds()), float64(o.Weight)/1000)
		}
	}
	return time.Duration(micros)*time.Microsecond + 4*c.most
}

func maxf(a, b float64) float64 { return max(a, b) }

func (l *workload) longest() time.Duration {
	var longest time.Duration
	for _, c := range l.tenants {
		longest = max(longest, c.most)
	}
	return longest
}

// TestFigureD runs the published tenants at their rates, twelve slots and jobs of about a millisecond: from the fourth second on each has
// what the planner says within half a percent, with their own demands, with demands without end, and where the cell has less than they
// reserve.
func TestFigureD(t *testing.T) {
	tenants := func(endless bool) []*claimant {
		var out []*claimant
		for _, x := range []struct {
			id                  cell.TenantID
			reservation, demand int64 // cpu_ms per second
			weight              cell.Weight
			run                 time.Duration // of an operation
		}{
			{"alder", 3600, 5400, 3000, 1000 * time.Microsecond},
			{"birch", 3000, 4050, 2000, 1500 * time.Microsecond},
			{"cedar", 1800, 2700, 1000, 600 * time.Microsecond},
		} {
			c := &claimant{policy: cell.TenantPolicy{Tenant: x.id, Weight: x.weight}, least: x.run, most: x.run, declares: honest}
			c.policy.Reservation[1] = cell.Rate(x.reservation * 1000) // a cpu_ms is a slot's millisecond
			if !endless {
				c.demand = cell.Rate(x.demand * 1000)
			}
			out = append(out, c)
		}
		return out
	}
	for name, c := range map[string]struct {
		slots   int
		endless bool
		want    [3]float64 // cpu_ms per second
	}{
		"their demands":         {12, false, [3]float64{5400, 4050, 2550}},
		"demands without end":   {12, true, [3]float64{5400, 4200, 2400}},
		"less than is reserved": {6, true, [3]float64{2571.4, 2142.9, 1285.7}},
	} {
		t.Run(name, func(t *testing.T) {
			load := &workload{slots: c.slots, class: cell.ClassBatch, tenants: tenants(c.endless)}
			cfg := quickConfig()
			cfg.Bulkheads[1].Burst = time.Second
			w := newWorld(t, cfg, 1)
			w.pool(c.slots, "op")
			load.start(w)
			w.runFor(4 * time.Second)
			from := w.now
			w.past = nil
			w.runFor(4 * time.Second)
			for i, x := range load.tenants {
				got := float64(w.served(from, w.now, of(x.policy.Tenant)).Microseconds()) / 1000 / w.now.Sub(from).Seconds()
				if off := got/c.want[i] - 1; off < -tolerance || off > tolerance {
					t.Errorf("%s has %.0f cpu_ms a second, not %.0f", x.policy.Tenant, got, c.want[i])
				}
			}
		})
	}
}
