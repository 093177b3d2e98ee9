package leader

import (
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	"github.com/fairlead/fairlead/cell/tree"
)

// TestCapacityLowered starts a cell whose class can do less than it could when tenants were promised more: they keep that, and nobody is promised
// more.
func TestCapacityLowered(t *testing.T) {
	cfg := testConfig()
	cfg.Sched.Bulkheads[0].Capacity = 5 * cell.Unit
	w := newWorld(t, cfg, engine.DefaultLimits(), 1)
	reserve := func(tenant cell.TenantID, slots cell.Rate, epoch cell.Epoch) error {
		p := w.tenant(cell.TenantPolicy{Tenant: tenant, Weight: 1000, Reservation: [2]cell.Rate{slots * cell.Unit}, Epoch: epoch})
		w.run(w.now)
		return p.Results[0].Err
	}
	for _, tenant := range []cell.TenantID{"a", "b"} {
		if err := reserve(tenant, 2, 1); err != nil {
			t.Fatal(err)
		}
	}
	w.cfg.Sched.Bulkheads[0].Capacity = 3 * cell.Unit
	w.restart()
	for name, c := range map[string]struct {
		tenant cell.TenantID
		slots  cell.Rate
		taken  bool
	}{"more": {"a", 3, false}, "another": {"c", 1, false}, "less": {"b", 1, true}} {
		if err := reserve(c.tenant, c.slots, 2); (err == nil) != c.taken {
			t.Errorf("%s: %v", name, err)
		}
	}
	if a := w.state.Tenant("a").Policy; a.Reservation[0] != 2*cell.Unit {
		t.Errorf("a is left with %v", a.Reservation)
	}
}

// TestDeclaredResources charges a job of a new operation what its declared resources are worth, where it says no cost.
func TestDeclaredResources(t *testing.T) {
	cfg := testConfig()
	cfg.Costing = cell.Costing{Whole: 4 * cell.Unit, Capacity: cell.Resources{cell.ResourceTokens: 1000 * cell.Unit}}
	w := newWorld(t, cfg, engine.DefaultLimits(), 1)
	w.tenant(cell.TenantPolicy{Tenant: "a", Weight: 1000})
	w.run(w.now)
	w.worker("w", 4, 0).start()
	// A quarter of what the cell has of tokens in a second is a quarter of what a second of it costs.
	needs := cell.Resources{cell.ResourceTokens: 250 * cell.Unit}
	plans := w.submit(
		job{plan: plan{tenant: "a", class: cell.ClassBatch, run: 10 * time.Millisecond, uses: &needs}, spec: engine.Spec{Operation: "op", Resources: &needs}},
		job{plan: plan{tenant: "a", class: cell.ClassInteractive, run: 10 * time.Millisecond}, spec: engine.Spec{Operation: "op", Cost: 77}},
	)
	w.run(w.now)
	for i, want := range []cell.Cost{cell.Unit, 77} {
		if j := w.state.Job(plans[i].id); j.Charged != want || j.Lease.Tier != uint8(tree.TierShared) {
			t.Errorf("job %d is charged %d at its start, by tier %d; want %d", i, j.Charged, j.Lease.Tier, want)
		}
	}
	w.runFor(time.Second)
	// In the end each is charged the greatest part that it took of anything: tokens, or the time.
	for i, want := range []cell.Cost{cell.Unit, 10_000} {
		if j := w.state.Job(plans[i].id); j.Charged != want || j.Ran != 10*time.Millisecond || (j.Used != nil) != (i == 0) {
			t.Errorf("job %d is charged %d, ran %v and used %v; want it charged %d", i, j.Charged, j.Ran, j.Used, want)
		}
	}
}

// TestPlainTenantsLogNoPromises runs work of tenants who were promised nothing: where they stand with promises is not logged, nor are lanes without
// debt.
func TestPlainTenantsLogNoPromises(t *testing.T) {
	w := newWorld(t, testConfig(), engine.DefaultLimits(), 1)
	w.organization(cell.OrganizationPolicy{Organization: "holding", Weight: 1000})
	w.tenant(cell.TenantPolicy{Tenant: "a", Weight: 1000})
	w.tenant(cell.TenantPolicy{Tenant: "b", Weight: 1000, Organization: "holding"})
	w.run(w.now)
	logged := 0
	w.watch = func(e *engine.Entry) {
		logged += len(e.Accounts) + len(e.TenantAccounts) + len(e.OrganizationAccounts)
	}
	w.worker("w", 2, 0).start()
	for range 50 {
		for _, tenant := range []cell.TenantID{"a", "b"} {
			w.submit(job{
				plan: plan{tenant: tenant, class: cell.ClassBatch, run: 5 * time.Millisecond}, spec: engine.Spec{Operation: "op", Cost: 5000},
			})
		}
		w.runFor(20 * time.Millisecond)
	}
	if n := w.state.Count(engine.Succeeded); n != 100 || logged != 0 {
		t.Errorf("%d accounts were logged for %d jobs", logged, n)
	}
}
