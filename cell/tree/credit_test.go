package tree_test

import (
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/tree"
)

func credit(most, refill, extra float64) func(*cell.TenantPolicy) {
	return func(p *cell.TenantPolicy) {
		p.Credit = cell.Credit{Max: cell.Cost(units(most)), Refill: cell.Rate(units(refill)), Extra: cell.Rate(units(extra))}
	}
}

// TestBucketLastsExactly: a full bucket that is spent at the extra rate lasts bucket / extra to the nanosecond, whenever it begins, and refills only
// then.
func TestBucketLastsExactly(t *testing.T) {
	for name, c := range map[string]struct {
		bucket, cost float64
		idle         time.Duration
		want         time.Duration
	}{
		"18,000 at once":               {18_000, 6, 0, 30 * time.Second},
		"18,000 after an hour":         {18_000, 6, time.Hour, 30 * time.Second},
		"180,000 after half a burst":   {180_000, 60, time.Second / 2, 300 * time.Second},
		"180,000 after a day":          {180_000, 60, 24 * time.Hour, 300 * time.Second},
		"18,000 by thirds of a second": {18_000, 200, time.Minute, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 12_000)
			a := w.tenant(claim{id: "a", cost: c.cost, weight: 0.001}, credit(c.bucket, 100, 600))
			b := w.tenant(claim{id: "b", cost: 1, weight: 1000}, nil)
			w.advance(c.idle)
			start := w.now
			w.tree.Activate(w.lane(a), 0)
			w.tree.Activate(w.lane(b), 0)
			spent := 0.0
			for w.now < start.Add(c.want) {
				p, _ := w.tree.Next(w.now, testClass, 0)
				w.tree.Charge(p, 0, cell.Cost(units(p.Lane.Value.cost)))
				if p.Tier == tree.TierCredit {
					spent += p.Lane.Value.cost
					continue // at the very same time: would it get another?
				}
				w.now += 1e6
			}
			s := w.tree.Standing(w.lane(a))
			if spent != c.bucket || s.Credit != 0 || s.CreditTag != start.Add(c.want) {
				t.Errorf("spent %v, %d left, spent by %v; want all of %v by %v", spent, s.Credit, s.CreditTag.Sub(start), c.bucket, c.want)
			}
			// Now it refills, at 100 a second.
			w.now = start.Add(c.want)
			w.tree.Advance(w.now)
			if got := w.tree.Standing(w.lane(a)); got.Credit != 0 || got.Spendable {
				t.Errorf("at the end: %+v", got)
			}
			if at := w.tree.Wake(); at != w.now+10 {
				t.Errorf("wakes %v after, want 10ns: when the first micro-unit is there", at.Sub(w.now))
			}
			w.advance(time.Second)
			if got := w.tree.Standing(w.lane(a)); got.Credit != cell.Cost(units(100)) || !got.Spendable {
				t.Errorf("a second later: %+v", got)
			}
			if err := w.tree.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestCreditLiftsAboveTheShare: while it has credit a tenant gets the extra rate beside its part of what is left, and its part only when it has none.
func TestCreditLiftsAboveTheShare(t *testing.T) {
	w := newWorld(t, 1000)
	w.tenant(claim{id: "a", cost: 1, reservation: 100, weight: 1}, credit(2000, 0, 200))
	w.tenant(claim{id: "b", cost: 1, weight: 1}, nil)
	w.wants(w.rates(10*time.Second), 0.005, map[string]float64{"a": 100 + 200 + 350, "b": 350})
	w.wants(w.rates(10*time.Second), 0.005, map[string]float64{"a": 100 + 450, "b": 450})
}

// TestCreditDoesNotTouchReservations: where all is reserved there is nothing to spend credit on, and none is spent.
func TestCreditDoesNotTouchReservations(t *testing.T) {
	w := newWorld(t, 990)
	a := w.tenant(claim{id: "a", cost: 1, weight: 1}, credit(2000, 0, 200))
	w.tenant(claim{id: "b", cost: 1, reservation: 1000, weight: 1}, nil)
	w.wants(w.rates(10*time.Second), 0.005, map[string]float64{"a": 0, "b": 990})
	if got := w.tree.Standing(w.lane(a)); got.Credit != cell.Cost(units(2000)) {
		t.Errorf("%d left of the credit", got.Credit)
	}
}

// TestTenantAloneBurnsNoCredit: it would pay for what it gets anyway.
func TestTenantAloneBurnsNoCredit(t *testing.T) {
	w := newWorld(t, 1000)
	a := w.tenant(claim{id: "a", cost: 1, weight: 1}, credit(2000, 0, 200))
	b := w.tenant(claim{id: "b", cost: 1, weight: 1, ops: -1}, nil)
	w.wants(w.rates(10*time.Second), 0.005, map[string]float64{"a": 1000})
	if got := w.tree.Standing(w.lane(a)); got.Credit != cell.Cost(units(2000)) || !got.Spendable {
		t.Errorf("alone it has burnt: %+v", got)
	}
	b.start()
	w.wants(w.rates(10*time.Second), 0.01, map[string]float64{"a": 600, "b": 400})
}

// TestWhoSpendsCatchesUpWithinABurst: a tenant that is kept from its turns for less than a burst does not lose them; for longer, it starts afresh.
func TestWhoSpendsCatchesUpWithinABurst(t *testing.T) {
	for name, c := range map[string]struct {
		pause time.Duration
		want  int
	}{
		"most of a burst": {900 * time.Millisecond, 10},
		"more than one":   {1100 * time.Millisecond, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1000)
			a := w.tenant(claim{id: "a", cost: 1, weight: 1}, credit(2000, 0, 100))
			b := w.tenant(claim{id: "b", cost: 1, weight: 1}, nil)
			w.tree.Activate(w.lane(a), 0)
			w.tree.Activate(w.lane(b), 0)
			if id, tier := w.one(10); id != "a" || tier != tree.TierCredit {
				t.Fatalf("%s by %v", id, tier)
			}
			w.advance(100*time.Millisecond + c.pause)
			got := 0
			for id, tier := w.one(10); tier == tree.TierCredit; id, tier = w.one(10) {
				if id != "a" {
					t.Fatalf("%s by %v", id, tier)
				}
				got++
			}
			if got != c.want {
				t.Errorf("%d turns at once, want %d", got, c.want)
			}
		})
	}
}

// TestCreditSettlementHitsTheBucket (rule 13): what a job cost more is paid from the bucket and by waiting; what it cost less is there again.
func TestCreditSettlementHitsTheBucket(t *testing.T) {
	w := newWorld(t, 1000)
	a := w.tenant(claim{id: "a", cost: 1, weight: 1}, credit(100, 0, 10))
	b := w.tenant(claim{id: "b", cost: 1, weight: 1}, nil)
	w.tree.Activate(w.lane(a), 0)
	w.tree.Activate(w.lane(b), 0)
	start := w.now
	if id, tier := w.one(10); id != "a" || tier != tree.TierCredit {
		t.Fatalf("%s by %v", id, tier)
	}
	for _, step := range []struct {
		delta, left float64
		tag         time.Duration
		spendable   bool
	}{{20, 70, 3 * time.Second, false}, {-30, 100, 0, true}, {150, -50, 15 * time.Second, false}, {-500, 100, -35 * time.Second, true}} {
		w.tree.Settle(w.lane(a), 0, tree.TierCredit, cell.Cost(units(step.delta)))
		s := w.tree.Standing(w.lane(a))
		if s.Credit != cell.Cost(units(step.left)) || s.CreditTag.Sub(start) != step.tag || s.Spendable != step.spendable {
			t.Errorf("after %v: %+v (%v), want %+v", step.delta, s, s.CreditTag.Sub(start), step)
		}
		if err := w.tree.Check(); err != nil {
			t.Fatal(err)
		}
	}
	if id, tier := w.one(1); id != "a" || tier != tree.TierCredit {
		t.Errorf("%s by %v, want a by credit again", id, tier)
	}
}

// TestRefillReachesWhoAlwaysWants: with a pause of a burst after each job, a tenant that always wants would have one job of credit per burst, whatever
// its refill.
func TestRefillReachesWhoAlwaysWants(t *testing.T) {
	w := newWorld(t, 1000)
	w.tenant(claim{id: "a", cost: 1, weight: 0.001}, credit(100, 50, 100))
	w.tenant(claim{id: "b", cost: 1, weight: 1000}, nil)
	w.wants(w.rates(time.Second), 0.01, map[string]float64{"a": 100})
	w.wants(w.rates(20*time.Second), 0.03, map[string]float64{"a": 50})
}

// TestBucketRefillsWhileItIsNotSpent: from a burst after the last spending on, to what it holds.
func TestBucketRefillsWhileItIsNotSpent(t *testing.T) {
	w := newWorld(t, 1000)
	a := w.tenant(claim{id: "a", cost: 1, weight: 1}, credit(1000, 10, 100))
	w.tree.Activate(w.lane(w.tenant(claim{id: "b", cost: 1, weight: 1}, nil)), 0)
	w.tree.Activate(w.lane(a), 0)
	if id, tier := w.one(100); id != "a" || tier != tree.TierCredit { // a second of the extra rate
		t.Fatalf("%s by %v", id, tier)
	}
	for _, step := range []struct {
		after time.Duration
		want  float64
	}{{2 * time.Second, 900}, {time.Second, 910}, {8 * time.Second, 990}, {time.Second, 1000}, {time.Hour, 1000}} {
		w.advance(step.after)
		if got := w.tree.Standing(w.lane(a)).Credit; got != cell.Cost(units(step.want)) {
			t.Errorf("%v later %s, want %v", step.after, cell.FormatUnits(int64(got)), step.want)
		}
	}
}
