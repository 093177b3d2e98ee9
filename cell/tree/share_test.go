package tree_test

import (
	"math"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/drr"
	"github.com/fairlead/fairlead/cell/tree"
)

// TestWeightsLevelByLevel: an organization has its weight however many tenants it has.
func TestWeightsLevelByLevel(t *testing.T) {
	w := newWorld(t, 1200)
	w.organization(organization("m", 1, 0, 0))
	for _, c := range []claim{
		{id: "a", cost: 1, weight: 1, organization: "m"},
		{id: "b", cost: 1, weight: 2, organization: "m"},
		{id: "c", cost: 1, weight: 1, organization: "m"},
		{id: "d", cost: 1, weight: 1},
		{id: "e", cost: 1, weight: 1},
	} {
		w.tenant(c, nil)
	}
	w.wants(w.rates(10*time.Second), 0.005, map[string]float64{"a": 100, "b": 200, "c": 100, "d": 400, "e": 400})
}

// TestSharesAreInCostAtEachLevel: |Si/wi - Sj/wj| <= 2Q + Maxi/wi + Maxj/wj for tenants of one organization and for what stands below the cell, at
// every moment, for costs from a tenth of the quantum to fifty of it.
func TestSharesAreInCostAtEachLevel(t *testing.T) {
	w := newWorld(t, 1000)
	w.organization(organization("m", 2, 0, 0))
	a := w.tenant(claim{id: "a", cost: 50, weight: 1, organization: "m"}, nil)
	b := w.tenant(claim{id: "b", cost: 0.1, weight: 3, organization: "m"}, nil)
	c := w.tenant(claim{id: "c", cost: 7, weight: 0.5}, nil)
	for _, l := range w.lines {
		w.tree.Activate(w.lane(l), 0)
	}
	for range 20_000 {
		p, _ := w.tree.Next(w.now, testClass, 0)
		l := p.Lane.Value
		w.tree.Charge(p, 0, cell.Cost(units(l.cost)))
		l.served += units(l.cost)
		sa, sb, sc := float64(a.served)/1e6, float64(b.served)/1e6, float64(c.served)/1e6
		if off, bound := math.Abs(sa/1-sb/3), 2+50/1.+0.1/3; off > bound {
			t.Fatalf("a and b are %.2f apart, bound %.2f", off, bound)
		}
		if off, bound := math.Abs((sa+sb)/2-sc/0.5), 2+50/2.+7/0.5; off > bound {
			t.Fatalf("m and c are %.2f apart, bound %.2f", off, bound)
		}
	}
}

// TestOfferSetsDoNotMultiplyAShare (rule 11): a tenant that can be served in three sets has one share, and so has its organization.
func TestOfferSetsDoNotMultiplyAShare(t *testing.T) {
	for name, of := range map[string]string{"directly": "", "in an organization": "m"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1000)
			w.organization(organization("m", 1, 0, 0))
			a := w.tenant(claim{id: "a", weight: 1, organization: of}, nil)
			b := w.tenant(claim{id: "b", weight: 1}, nil)
			for i := range 3 {
				if err := w.tree.OpenSet(set(i)); err != nil {
					t.Fatal(err)
				}
				w.tree.Activate(w.lane(a), set(i))
			}
			w.tree.Activate(w.lane(b), 2)
			for i := range 30_000 { // most servers are in the third set
				s := set([]int{0, 1, 2, 2, 2, 2}[i%6])
				p, ok := w.tree.Next(w.now, testClass, s)
				if !ok {
					t.Fatal("a waits everywhere")
				}
				w.tree.Charge(p, s, cell.Cost(units(1)))
				p.Lane.Value.served++
			}
			if a.served != 15_000 && (a.served < 14_950 || a.served > 15_050) {
				t.Errorf("a is served %d times, b %d", a.served, b.served)
			}
			if err := w.tree.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestIdleForgivesAtEachLevel (rule 10): free time forgives what is owed below the cell and inside organizations.
func TestIdleForgivesAtEachLevel(t *testing.T) {
	w := newWorld(t, 1000)
	w.organization(organization("m", 1, 0, 0))
	a := w.tenant(claim{id: "a", weight: 1, organization: "m"}, nil)
	w.tree.Activate(w.lane(a), 0)
	w.one(101)
	w.tree.Deactivate(w.lane(a), 0)
	if s := w.tree.Standing(w.lane(a)); s.Own.Rounds != 101 || s.Organization.Rounds != 101 {
		t.Fatalf("%d and %d rounds behind, want 101", s.Own.Rounds, s.Organization.Rounds)
	}
	w.tree.Idle(testClass, units(60))
	w.tree.Idle(cell.ClassBatch, units(1000)) // the other class's is not this one's
	if s := w.tree.Standing(w.lane(a)); s.Own.Rounds != 41 || s.Organization.Rounds != 41 {
		t.Errorf("%d and %d rounds behind, want 41", s.Own.Rounds, s.Organization.Rounds)
	}
	w.tree.Idle(testClass, units(60))
	if s := w.tree.Standing(w.lane(a)); s.Own.Rounds != 0 || s.Organization.Rounds != 0 {
		t.Errorf("%d and %d rounds behind, want none", s.Own.Rounds, s.Organization.Rounds)
	}
}

// TestSettlementHitsTheSameAccounts (rule 13): for every tier, what is charged on top and given back leaves everything as it was, and a cost that was
// settled is as good as one that was known.
func TestSettlementHitsTheSameAccounts(t *testing.T) {
	for _, tier := range []tree.Tier{tree.TierReserved, tree.TierOrganization, tree.TierCredit, tree.TierShared} {
		t.Run(tier.String(), func(t *testing.T) {
			make3 := func(costs ...float64) (tree.Standing, cell.LaneAccount, cell.TenantAccount, cell.OrganizationAccount, cell.Cost) {
				w := newWorld(t, 1000)
				w.organization(organization("m", 1, 200, 100_000))
				a := w.tenant(claim{id: "a", reservation: 100, weight: 1, organization: "m"}, func(p *cell.TenantPolicy) {
					limit(50_000)(p)
					credit(1000, 0, 100)(p)
				})
				w.tree.Activate(w.lane(w.tenant(claim{id: "b", weight: 1}, nil)), 0)
				w.tree.Activate(w.lane(a), 0)
				w.tree.Charge(tree.Pick[*line]{Lane: w.lane(a), Tier: tier}, 0, cell.Cost(units(costs[0])))
				for _, c := range costs[1:] {
					w.tree.Settle(w.lane(a), 0, tier, cell.Cost(units(c)))
					if err := w.tree.Check(); err != nil {
						t.Fatal(err)
					}
				}
				o, _ := w.tree.OrganizationAccount("m")
				return w.tree.Standing(w.lane(a)), w.tree.LaneAccount(w.lane(a)), w.tree.TenantAccount(w.tree.Tenant("a")), o, w.tree.Charged(w.lane(a))
			}
			s, l, n, o, c := make3(30)
			for _, costs := range [][]float64{{10, 20}, {30, 70, -70}, {10, 10, 20, -10}, {0.000_001, 29.999_999}, {100, -70}} {
				s2, l2, n2, o2, c2 := make3(costs...)
				if s != s2 || l != l2 || n != n2 || o != o2 || c != c2 {
					t.Errorf("%v: %+v %+v %+v %+v %d\nwant %+v %+v %+v %+v %d", costs, s2, l2, n2, o2, c2, s, l, n, o, c)
				}
			}
		})
	}
}

// TestUnderestimatesGainNothing (figure C): a tenant whose jobs cost three times their estimate has three times its share before they are settled, and
// exactly its share after.
func TestUnderestimatesGainNothing(t *testing.T) {
	for settled, want := range map[bool]float64{false: 0.75, true: 0.5} {
		w := newWorld(t, 1000)
		a := w.tenant(claim{id: "a", weight: 1}, nil)
		w.tenant(claim{id: "b", weight: 1}, nil)
		for _, l := range w.lines {
			w.tree.Activate(w.lane(l), 0)
		}
		used, all := 0., 0.
		for range 10_000 {
			p, _ := w.tree.Next(w.now, testClass, 0)
			w.tree.Charge(p, 0, cell.Cost(units(1)))
			cost := 1.
			if p.Lane.Value == a {
				cost = 3
				used += cost
				if settled {
					w.tree.Settle(p.Lane, 0, p.Tier, cell.Cost(units(2)))
				}
			}
			all += cost
		}
		if got := used / all; math.Abs(got-want) > 0.001 {
			t.Errorf("settled %t: a uses %.4f of everything, want %.2f", settled, got, want)
		}
	}
}

// TestWeightZeroRunsLast: only while nobody else of its level waits; inside an organization it has that one's weight.
func TestWeightZeroRunsLast(t *testing.T) {
	w := newWorld(t, 1000)
	w.organization(organization("m", 1, 0, 0))
	w.organization(organization("zero", 0, 0, 0))
	a := w.tenant(claim{id: "a", cost: 1, organization: "m"}, nil)
	b := w.tenant(claim{id: "b", cost: 1, weight: 1, organization: "m"}, nil)
	c := w.tenant(claim{id: "c", cost: 1, weight: 1, organization: "zero"}, nil)
	d := w.tenant(claim{id: "d", cost: 1, weight: 1}, nil)
	w.wants(w.rates(time.Second), 0.01, map[string]float64{"a": 0, "b": 500, "c": 0, "d": 500})
	w.stop(b)
	w.wants(w.rates(time.Second), 0.01, map[string]float64{"a": 500, "c": 0, "d": 500})
	w.stop(a)
	w.stop(d)
	w.wants(w.rates(time.Second), 0.01, map[string]float64{"c": 1000})
	_ = c
}

// TestClosedSetIsLeft: whoever was active in it is not any more, blocked or not, and comes as new when it opens again.
func TestClosedSetIsLeft(t *testing.T) {
	w := newWorld(t, 1000)
	w.organization(organization("m", 1, 200, 300))
	a := w.tenant(claim{id: "a", weight: 1, reservation: 100, organization: "m"}, limit(500))
	b := w.tenant(claim{id: "b", weight: 1, reservation: 100}, credit(10, 1, 1))
	c := w.tenant(claim{id: "c", weight: 1}, nil)
	for _, l := range w.lines {
		w.tree.Activate(w.lane(l), 0)
	}
	w.tree.Hold(w.tree.Tenant("c"))
	w.tree.Settle(w.lane(a), 0, tree.TierShared, cell.Cost(units(10_000)))
	for range 2 {
		w.tree.CloseSet(0)
		w.tree.CloseSet(1)
		if err := w.tree.Check(); err != nil {
			t.Fatal(err)
		}
		if _, ok := w.tree.Next(w.now, testClass, 0); ok || w.tree.Waiting(testClass, 0) != 0 {
			t.Error("somebody waits in a closed set")
		}
		for _, l := range w.lines {
			if w.lane(l).Active(0) {
				t.Errorf("%s is active in a closed set", l.id)
			}
		}
		w.tree.Settle(w.lane(b), 0, tree.TierShared, 5)
		if err := w.tree.OpenSet(0); err != nil {
			t.Fatal(err)
		}
		w.tree.Activate(w.lane(b), 0)
		w.tree.Activate(w.lane(c), 0)
		if got := w.tree.Waiting(testClass, 0); got != 1 {
			t.Errorf("%d wait, want b", got)
		}
		if err := w.tree.Check(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.tree.OpenSet(drr.MaxSets); err == nil {
		t.Error("a set too many")
	}
	defer func() {
		if recover() == nil {
			t.Error("activating in a closed set is not noticed")
		}
	}()
	w.tree.Activate(w.lane(b), 1)
}
