package fairness

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/tree"
)

// TestCreditIsWorthWhatItHolds gives one tenant a full bucket beside others that always have work: it is granted the bucket above its
// share, at the rate that it may spend, and then no more than what refills, after the pause that spending makes.
func TestCreditIsWorthWhatItHolds(t *testing.T) {
	cases(t, 6, func(t *rapid.T) {
		w := newWorld(t, quickConfig(), rapid.Uint64().Draw(t, "seed"))
		slots := rapid.IntRange(3, 8).Draw(t, "slots")
		extra := cell.Rate(rapid.Int64Range(100, 900).Draw(t, "extra")) * 1000
		lasts := time.Duration(rapid.Int64Range(200, 800).Draw(t, "lasts")) * time.Millisecond
		refill := extra / cell.Rate(rapid.Int64Range(20, 200).Draw(t, "refill"))
		c := cell.Credit{Max: cell.Cost(due(extra, lasts).Microseconds()), Refill: refill, Extra: extra}
		load := &workload{slots: slots, class: cell.ClassBatch}
		for _, id := range []cell.TenantID{"a", "b", "spender"} {
			x := &claimant{
				policy: cell.TenantPolicy{Tenant: id, Weight: 1000}, least: time.Millisecond, most: 3 * time.Millisecond, declares: honest,
			}
			if id == "spender" {
				x.policy.Credit = c
			}
			load.tenants = append(load.tenants, x)
		}
		w.pool(slots, "op")
		spent, empty := cell.Cost(0), cell.Instant(0)
		w.granted = func(r *run) {
			if r.tier != tree.TierCredit {
				return
			}
			if spent += r.charged; spent >= c.Max && empty == 0 {
				empty = w.now
			}
		}
		load.start(w)
		most := load.longest()
		w.runFor(lasts + 2*time.Second)
		// The job that empties the bucket begins when the ones before it are paid, as soon as a slot frees.
		if over := empty.Sub(epoch); empty == 0 || over > lasts+most || over < lasts-2*due(slot, most)*time.Duration(slot)/time.Duration(extra) {
			t.Fatalf("its credit was spent at %v, of %v", over, lasts)
		}
		// From then on it has what refills, and a job at most is begun with what is left.
		refilled := cell.Cost(due(refill, w.now.Sub(empty)).Microseconds())
		if spent < c.Max || spent > c.Max+refilled+2*honest(most) {
			t.Fatalf("it spent %v, with %v in its bucket and %v refilled", spent, c.Max, refilled)
		}
	})
}

// TestCreditOfALoneTenantStays leaves a tenant with credit alone: it has every slot, and burns nothing.
func TestCreditOfALoneTenantStays(t *testing.T) {
	w := newWorld(t, quickConfig(), 1)
	w.pool(4, "op")
	load := &workload{slots: 4, class: cell.ClassBatch, tenants: []*claimant{{
		policy: cell.TenantPolicy{Tenant: "a", Weight: 1000, Credit: cell.Credit{Max: 10_000_000, Extra: slot}}, least: time.Millisecond,
		most: time.Millisecond, declares: honest,
	}}}
	w.granted = func(r *run) {
		if r.tier != tree.TierShared {
			t.Fatalf("it was served by %v", r.tier)
		}
	}
	load.start(w)
	w.runFor(time.Second)
	if got := w.served(epoch, w.now, of("a")); got < 3990*time.Millisecond {
		t.Fatalf("it had %v of 4 s", got)
	}
}
