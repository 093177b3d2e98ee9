package tree_test

import (
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/tree"
)

// again returns a tree with the same promises and accounts, as after a restart: accounts are restored before anything is offered.
func (w *world) again() *world {
	w.tb.Helper()
	n := newWorldAt(w.tb, float64(w.capacity)/1e6, w.now)
	seen := map[string]bool{}
	for _, l := range w.lines {
		if id := cell.OrganizationID(l.organization); l.organization != "" && !seen[l.organization] {
			seen[l.organization] = true
			p, ok := w.tree.Organization(id)
			if !ok {
				w.tb.Fatalf("organization %s is not known", id)
			}
			n.organization(p)
			a, _ := w.tree.OrganizationAccount(id)
			if !n.tree.RestoreOrganization(id, a) {
				w.tb.Fatalf("organization %s is not known", id)
			}
			if b, ok := n.tree.OrganizationAccount(id); !ok || b != a {
				w.tb.Errorf("organization %s: %+v, want %+v", id, b, a)
			}
		}
		old := w.tree.Tenant(cell.TenantID(l.id))
		c := n.tenant(l.claim, func(p *cell.TenantPolicy) { *p = old.Policy() })
		a, b := w.tree.LaneAccount(w.lane(l)), w.tree.TenantAccount(old)
		n.tree.RestoreLane(n.lane(c), a)
		n.tree.RestoreTenant(n.tree.Tenant(old.ID()), b)
		if got := n.tree.LaneAccount(n.lane(c)); got != a {
			w.tb.Errorf("lane %s: %+v, want %+v", l.id, got, a)
		}
		if got := n.tree.TenantAccount(n.tree.Tenant(old.ID())); got != b {
			w.tb.Errorf("tenant %s: %+v, want %+v", l.id, got, b)
		}
	}
	if err := n.tree.OpenSet(0); err != nil {
		w.tb.Fatal(err)
	}
	if err := n.tree.Check(); err != nil {
		w.tb.Fatal(err)
	}
	return n
}

// TestAccountsOutliveTheTree (rule 15): after a restart every second, shares and the credit's end are what they are without one.
func TestAccountsOutliveTheTree(t *testing.T) {
	w := newWorld(t, 2000)
	w.organization(organization("m", 1, 500, 900))
	w.tenant(claim{id: "a", cost: 1, reservation: 200, weight: 1, organization: "m"}, nil)
	w.tenant(claim{id: "b", cost: 1, weight: 1, organization: "m"}, credit(1000, 0, 50))
	w.tenant(claim{id: "c", cost: 1, reservation: 300, weight: 1}, limit(400))
	w.tenant(claim{id: "d", cost: 1, weight: 1}, nil)
	w.run(2 * time.Second) // the limits' bursts
	want := w.rates(15 * time.Second)
	w = w.again()
	got := map[string]float64{}
	for range 15 {
		for id, rate := range w.rates(time.Second) { // order-free: sums
			got[id] += rate / 15
		}
		w = w.again()
	}
	// The credit was there for the first 20 seconds.
	b := w.tree.Tenant("b")
	if left := w.tree.Standing(b.Lane(testClass)).Credit; left > 0 || left < -cell.Cost(units(1)) {
		t.Errorf("%d of the credit is left", left)
	}
	w.wants(got, 0.02, map[string]float64{"a": want["a"], "c": want["c"]})
	if total := got["a"] + got["b"]; total < 895 || total > 905 {
		t.Errorf("the organization gets %.1f of its limit of 900", total)
	}
}

// TestDebtOutlivesTheTree: a tenant that cost a hundred times what it said owes that after a restart too, also in the sets that open later, also
// when it has moved to another organization.
func TestDebtOutlivesTheTree(t *testing.T) {
	for name, change := range map[string]func(w *world) *world{
		"in the same tree": func(w *world) *world { return w },
		"after a restart":  func(w *world) *world { return w.again() },
		"twice":            func(w *world) *world { return w.again().again() },
		"moved": func(w *world) *world {
			w.move("a", "n")
			w.move("b", "n")
			return w
		},
		"moved and back": func(w *world) *world {
			w.move("a", "")
			w.move("a", "m")
			return w
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1000)
			w.organization(organization("m", 1, 0, 0))
			w.organization(organization("n", 1, 0, 0))
			a := w.tenant(claim{id: "a", cost: 1, weight: 1, organization: "m"}, nil)
			b := w.tenant(claim{id: "b", cost: 1, weight: 1, organization: "m"}, nil)
			w.tree.Activate(w.lane(a), 0)
			w.tree.Activate(w.lane(b), 0)
			if id, _ := w.one(1); id != "a" {
				t.Fatal("a came first")
			}
			w.tree.Settle(w.lane(a), 0, tree.TierShared, cell.Cost(units(99)))
			w.tree.Deactivate(w.lane(a), 0)
			w.tree.Deactivate(w.lane(b), 0)
			w = change(w)
			for _, l := range w.lines {
				w.tree.Activate(w.lane(l), 0)
			}
			n := 0
			for id, _ := w.one(1); id == "b"; id, _ = w.one(1) {
				n++
			}
			if n < 98 || n > 101 {
				t.Errorf("b has %d turns before a's next, want about 99", n)
			}
		})
	}
}

// TestRestoreWithoutAMeter: an account of what the policy does not have is no fault.
func TestRestoreWithoutAMeter(t *testing.T) {
	w := newWorld(t, 1000)
	a := w.tenant(claim{id: "a", weight: 1}, nil)
	w.tree.RestoreTenant(w.tree.Tenant("a"), cell.TenantAccount{LimitTag: w.now + 1e12, Credit: 5, CreditAt: 7})
	w.tree.RestoreLane(w.lane(a), cell.LaneAccount{Ahead: time.Hour})
	w.tree.Activate(w.lane(a), 0)
	if id, tier := w.one(1); id != "a" || tier != tree.TierShared {
		t.Errorf("%s by %v", id, tier)
	}
	if w.tree.RestoreOrganization("m", cell.OrganizationAccount{}) {
		t.Error("an organization that is not known was restored")
	}
	if _, ok := w.tree.OrganizationAccount("m"); ok {
		t.Error("an organization that is not known has an account")
	}
}
