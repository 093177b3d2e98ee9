package fairness

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
)

// TestTheSameAgainChangesNothing runs the same workload twice, and in the second run says what was promised again and again: not one grant
// differs (I13). It is also the test that the same run gives the same grants.
func TestTheSameAgainChangesNothing(t *testing.T) {
	cases(t, 6, func(t *rapid.T) {
		load := drawWorkload(t)
		seed := rapid.Uint64().Draw(t, "seed")
		trial := func(again bool) []cell.JobID {
			w := newWorld(t, quickConfig(), seed)
			w.pool(load.slots, "op")
			var order []cell.JobID
			w.granted = func(r *run) { order = append(order, r.job.ID) }
			load.start(w)
			for range 50 {
				if again {
					for _, o := range load.orgs {
						w.organization(o)
					}
					for _, c := range load.tenants {
						w.tenant(c.policy)
					}
				}
				w.runFor(3 * time.Millisecond)
			}
			return order
		}
		if once, again := trial(false), trial(true); !slices.Equal(once, again) {
			i := 0
			for i < min(len(once), len(again)) && once[i] == again[i] {
				i++
			}
			t.Fatalf("of %d and %d grants, number %d differs", len(once), len(again), i)
		}
	})
}

// TestEditsReachWhatWaits changes weights, reservations, limits and caps while thousands wait: shares follow the new plan, from a moment
// after.
func TestEditsReachWhatWaits(t *testing.T) {
	cases(t, 6, func(t *rapid.T) {
		load := drawWorkload(t)
		w := newWorld(t, quickConfig(), rapid.Uint64().Draw(t, "seed"))
		w.pool(load.slots, "op")
		for _, c := range load.tenants {
			c.demand = 0
		}
		load.start(w)
		w.runFor(time.Second)
		for _, c := range load.tenants {
			c.policy.Weight = rapid.SampledFrom([]cell.Weight{500, 1000, 2000, 4000}).Draw(t, "weight")
			if c.policy.Limit > 0 {
				c.policy.Limit = max(c.policy.Reservation[load.class.Index()], c.policy.Limit*cell.Rate(rapid.IntRange(1, 8).Draw(t, "limit"))/4)
			}
			w.tenant(c.policy)
		}
		w.check = func() {
			for _, j := range w.waits { // order-free: each for itself
				if w.pools[0].busy < w.pools[0].slots && w.hardCap(j) == "" {
					t.Fatalf("at %v: a slot is free, and %+v waits", w.now.Sub(epoch), j.Item)
				}
			}
		}
		plan := load.plan(t)
		w.runFor(4 * time.Second)
		from := w.now
		const period = 4 * time.Second
		w.runFor(period)
		for _, c := range load.tenants {
			got, want := w.served(from, w.now, of(c.policy.Tenant)), due(plan[c.policy.Tenant], period)
			if off := (got - want).Abs(); off > max(time.Duration(tolerance*float64(want)), load.slack(w, c)) {
				t.Errorf("%s has %v of %v", c.policy.Tenant, got, want)
			}
		}
	})
}
