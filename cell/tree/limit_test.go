package tree_test

import (
	"math"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/tree"
)

func limit(rate float64) func(*cell.TenantPolicy) {
	return func(p *cell.TenantPolicy) { p.Limit = cell.Rate(units(rate)) }
}

// TestLimitIsMetExactly: beside its burst a tenant gets its limit and not a micro-unit more, and is woken at the nanosecond, whatever its jobs cost.
func TestLimitIsMetExactly(t *testing.T) {
	for name, c := range map[string]struct{ limit, cost, reservation float64 }{
		"large jobs":                  {300, 70, 0},
		"jobs of a third of a second": {3, 1, 0},
		"seven millionths a second":   {0.000_007, 0.000_001, 0},
		"a million jobs a second":     {1_000_000, 1, 0},
		"all of it reserved":          {300, 1, 300},
		"a million slots, tiny jobs":  {1_000_000, 0.001, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1000)
			a := w.tenant(claim{id: "a", cost: c.cost, reservation: c.reservation, weight: 1}, limit(c.limit))
			w.tree.Activate(w.lane(a), 0)
			p, _ := w.tree.Next(w.now, testClass, 0)
			w.tree.Charge(p, 0, cell.Cost(units(c.limit))) // a burst's worth
			start, served := w.now, 0.0
			for range 3000 {
				p, ok := w.tree.Next(w.now, testClass, 0)
				for ; ok; p, ok = w.tree.Next(w.now, testClass, 0) {
					w.tree.Charge(p, 0, cell.Cost(units(c.cost)))
					served += c.cost
				}
				at := w.tree.Wake()
				if at <= w.now {
					t.Fatalf("at %d it wakes at %d", w.now, at)
				}
				// A nanosecond before nothing may run.
				if _, ok := w.tree.Next(at-1, testClass, 0); ok {
					t.Fatalf("a runs before %d, when it was to be woken", at)
				}
				w.now = at
			}
			// To the job, what the limit allows.
			allowed := c.limit * w.now.Sub(start).Seconds()
			if off := (served - allowed) / c.cost; math.Abs(off) > 0.01 && c.cost/c.limit > 1e-7 || math.Abs(served/allowed-1) > 0.001 {
				t.Errorf("served %v in %v, %.4f jobs beside the %v that are allowed", served, w.now.Sub(start), off, allowed)
			}
		})
	}
}

// TestLimitHoldsInAnIdleCell: also when nobody else wants anything.
func TestLimitHoldsInAnIdleCell(t *testing.T) {
	w := newWorld(t, 1000)
	w.tenant(claim{id: "a", cost: 1, weight: 1}, limit(100))
	w.run(time.Second)
	w.wants(w.rates(10*time.Second), 0.001, map[string]float64{"a": 100})
}

// TestBothClassesShareTheLimit: it is the tenant's.
func TestBothClassesShareTheLimit(t *testing.T) {
	w := newWorld(t, 1000)
	a := w.tenant(claim{id: "a", cost: 1, weight: 1}, limit(100))
	w.tree.Activate(w.lane(a), 0)
	w.tree.Activate(w.tree.Tenant("a").Lane(cell.ClassBatch), 0)
	p, ok := w.tree.Next(w.now, cell.ClassBatch, 0)
	if !ok {
		t.Fatal("nobody waits")
	}
	w.tree.Charge(p, 0, cell.Cost(units(1100))) // ten seconds of the limit and the class's burst of ten, and a second more
	for _, class := range cell.Classes() {
		if n := w.tree.Waiting(class, 0); n != 0 {
			t.Errorf("%d wait in %v", n, class)
		}
	}
	if at := w.tree.Wake(); at != w.now.Add(time.Second) {
		t.Errorf("wakes in %v, want 1s", at.Sub(w.now))
	}
	w.advance(time.Second)
	for _, class := range cell.Classes() {
		if n := w.tree.Waiting(class, 0); n != 1 {
			t.Errorf("%d wait in %v", n, class)
		}
	}
}

// TestRefundRearmsTheLimit: what a job did not cost lets the tenant run earlier, and nothing wakes it later for what is settled.
func TestRefundRearmsTheLimit(t *testing.T) {
	w := newWorld(t, 1000)
	a := w.tenant(claim{id: "a", cost: 1, weight: 1}, limit(100))
	w.tree.Activate(w.lane(a), 0)
	if id, _ := w.one(600); id != "a" {
		t.Fatal("nobody waits")
	}
	for _, step := range []struct {
		delta float64
		wakes time.Duration
	}{{0, 5 * time.Second}, {-200, 3 * time.Second}, {400, 7 * time.Second}, {-699, 10 * time.Millisecond}, {-1, 0}, {100, time.Second}, {-100, 0}} {
		w.tree.Settle(w.lane(a), 0, tree.TierShared, cell.Cost(units(step.delta)))
		at := w.tree.Wake()
		if step.wakes == 0 && at != 0 || step.wakes != 0 && at != w.now.Add(step.wakes) {
			t.Errorf("after %v: wakes at %d, want in %v", step.delta, at, step.wakes)
		}
		if waits := w.tree.Waiting(testClass, 0) == 1; waits != (step.wakes == 0) {
			t.Errorf("after %v: waits %t", step.delta, waits)
		}
		if err := w.tree.Check(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEveryTierIsLimited (rule 12): the limit is charged whatever the tier.
func TestEveryTierIsLimited(t *testing.T) {
	for _, tier := range []tree.Tier{tree.TierReserved, tree.TierOrganization, tree.TierCredit, tree.TierShared} {
		w := newWorld(t, 1000)
		w.organization(organization("m", 1, 200, 400))
		a := w.tenant(claim{id: "a", reservation: 100, weight: 1, organization: "m"}, func(p *cell.TenantPolicy) {
			limit(200)(p)
			credit(1000, 0, 100)(p)
		})
		w.tree.Activate(w.lane(a), 0)
		w.tree.Charge(tree.Pick[*line]{Lane: w.lane(a), Tier: tier}, 0, cell.Cost(units(800)))
		if s := w.tree.Standing(w.lane(a)); s.LimitedUntil != w.now.Add(3*time.Second) || s.OrganizationLimitedUntil != w.now.Add(time.Second) {
			t.Errorf("%v: %+v at %d", tier, s, w.now)
		}
	}
	w := newWorld(t, 1000)
	a := w.tenant(claim{id: "a", weight: 1}, limit(200))
	w.tree.Charge(tree.Pick[*line]{Lane: w.lane(a), Tier: tree.TierNone}, 0, cell.Cost(units(800)))
	if s := w.tree.Standing(w.lane(a)); s.LimitedUntil != 0 || w.tree.Charged(w.lane(a)) != 0 {
		t.Errorf("what ran on the tenant's own worker was charged: %+v", s)
	}
}

// TestOrganizationLimitBlocksAllOfIts and of nobody else's; in both classes; with the same steps for ten lanes and for ten thousand.
func TestOrganizationLimitBlocksAllOfIts(t *testing.T) {
	touched := map[int]int{}
	for _, lanes := range []int{10, 10_000} {
		w := newWorld(t, 1000)
		w.organization(organization("m", 1, 0, 100))
		b := w.tenant(claim{id: "other", weight: 0.001}, nil)
		w.tree.Activate(w.lane(b), 0)
		for i := range lanes {
			a := w.tenant(claim{id: tenantName(i), weight: 1, organization: "m"}, credit(10, 0, 10))
			w.tree.Activate(w.lane(a), 0)
			w.tree.Activate(w.tree.Tenant(cell.TenantID(a.id)).Lane(cell.ClassBatch), 0)
		}
		p, ok := w.tree.Next(w.now, testClass, 0)
		if !ok || p.Lane == w.lane(b) {
			t.Fatal("none of the organization's waits")
		}
		w.tree.Charge(p, 0, cell.Cost(units(600)))
		touched[lanes] = w.tree.Touched()
		if n, all := w.tree.Waiting(testClass, 0), w.tree.Waiting(cell.ClassBatch, 0); n != 1 || all != 0 {
			t.Errorf("%d and %d wait, want the other tenant", n, all)
		}
		if p, ok := w.tree.Next(w.now, testClass, 0); !ok || p.Lane != w.lane(b) || p.Tier != tree.TierShared {
			t.Errorf("next: %v by %v, want the other tenant", p.Lane, p.Tier)
		}
		w.advance(5*time.Second - 1)
		if n := w.tree.Waiting(testClass, 0); n != 1 {
			t.Errorf("%d wait a nanosecond too early", n)
		}
		w.advance(1)
		if n, all := w.tree.Waiting(testClass, 0), w.tree.Waiting(cell.ClassBatch, 0); n != lanes+1 || all != lanes {
			t.Errorf("%d and %d wait, want %d and %d", n, all, lanes+1, lanes)
		}
		if err := w.tree.Check(); err != nil {
			t.Fatal(err)
		}
	}
	if touched[10_000] > touched[10]+10 {
		t.Errorf("blocking touches %d nodes with ten lanes, %d with ten thousand", touched[10], touched[10_000])
	}
}

// TestLeavingABlockedOrganization: who leaves while it is blocked is not there when it is let go, and nobody is woken for nobody.
func TestLeavingABlockedOrganization(t *testing.T) {
	w := newWorld(t, 1000)
	w.organization(organization("m", 1, 200, 300))
	a := w.tenant(claim{id: "a", reservation: 100, weight: 1, organization: "m"}, nil)
	b := w.tenant(claim{id: "b", weight: 1, organization: "m"}, nil)
	w.tree.Activate(w.lane(a), 0)
	w.tree.Activate(w.lane(b), 0)
	w.one(600)
	check := func(what string, waits int, wakes time.Duration) {
		t.Helper()
		if err := w.tree.Check(); err != nil {
			t.Fatal(what, err)
		}
		want := cell.Instant(0)
		if wakes > 0 {
			want = w.now.Add(wakes)
		}
		if n, at := w.tree.Waiting(testClass, 0), w.tree.Wake(); n != waits || at != want {
			t.Errorf("%s: %d wait, wakes at %d, want %d and %d", what, n, at, waits, want)
		}
	}
	check("blocked", 0, time.Second)
	w.tree.Deactivate(w.lane(a), 0)
	check("one left", 0, time.Second)
	w.tree.Hold(w.tree.Tenant("b"))
	check("the other held", 0, 0)
	w.tree.Activate(w.lane(a), 0)
	check("the first is back", 0, time.Second)
	w.tree.Deactivate(w.lane(a), 0)
	w.advance(time.Second)
	check("let go", 0, 0)
	w.tree.Activate(w.lane(a), 0)
	check("the first is back again", 1, 0)
	w.tree.Release(w.tree.Tenant("b"))
	check("and the other", 2, 0)
}

// TestHoldsAreCounted: two caps in the way, one goes.
func TestHoldsAreCounted(t *testing.T) {
	w := newWorld(t, 1000)
	a := w.tenant(claim{id: "a", weight: 1}, limit(100))
	n := w.tree.Tenant("a")
	w.tree.Hold(n)
	w.tree.Activate(w.lane(a), 0)
	w.tree.Hold(n)
	w.tree.Release(n)
	if w.tree.Waiting(testClass, 0) != 0 || !w.tree.Standing(w.lane(a)).Held {
		t.Error("held, and waits")
	}
	w.tree.Release(n)
	if id, _ := w.one(600); id != "a" {
		t.Error("released, and does not wait")
	}
	// Held while it is limited, and released after.
	w.tree.Hold(n)
	w.advance(6 * time.Second)
	if w.tree.Waiting(testClass, 0) != 0 {
		t.Error("held, and waits")
	}
	w.tree.Release(n)
	if w.tree.Waiting(testClass, 0) != 1 {
		t.Error("released, and does not wait")
	}
	defer func() {
		if recover() == nil {
			t.Error("a release without a hold is not noticed")
		}
	}()
	w.tree.Release(n)
}
