package fairness

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
)

// promised watches that a tenant which always has something waiting is charged at the rate that it reserves, over any time. By the bound on
// the wait of a reserved tenant (X, see waits_test.go) its tag is never more than X behind, and at most a job ahead: over a time t it is
// charged r (t - X) - M at least. What others run beyond what they declare is charged when it is known, so that a job in each slot may be
// late by as much. Where the tenant's organization has a limit, each job of the organization's blocks it for as long as its cost is at that
// rate: for one job, and for what one in each slot turns out to cost more.
type promised struct {
	rate    float64 // in slots
	late    float64 // X, in microseconds
	most    float64 // M
	charged float64
	ahead   float64 // the most that it was ahead of r t
	begun   cell.Instant
}

func (p *promised) check(now cell.Instant) (short float64, ok bool) {
	gone := float64(now.Sub(p.begun).Microseconds()) * p.rate
	p.ahead = max(p.ahead, p.charged-gone)
	short = p.ahead - (p.charged - gone)
	return short, short <= p.rate*p.late+p.most
}

// TestReservationsAreDelivered surrounds tenants with reservations by floods, by tenants that spend credit, that declare a tenth of what
// they run, and by a flood of the other class that borrows all it can: over any time each gets what it reserves.
func TestReservationsAreDelivered(t *testing.T) {
	cases(t, 20, func(t *rapid.T) {
		load := drawWorkload(t)
		cfg := quickConfig()
		borrowed := time.Duration(0)
		if rapid.Bool().Draw(t, "another class") {
			// Nominals by parts: nine tenths are batch's, more than all reservations.
			cfg.Bulkheads[load.class.Index()].NominalParts = 9
			borrowed = time.Duration(rapid.IntRange(1, 20).Draw(t, "borrowed")) * time.Millisecond
		}
		w := newWorld(t, cfg, rapid.Uint64().Draw(t, "seed"))
		watched := map[cell.TenantID]*promised{}
		for _, c := range load.tenants {
			c.demand = 0
			switch r := c.policy.Reservation[load.class.Index()]; {
			case r > 0:
				watched[c.policy.Tenant] = &promised{rate: float64(r) / float64(slot), most: float64(c.most.Microseconds())}
			case rapid.Bool().Draw(t, "credit"):
				c.policy.Credit = cell.Credit{Max: 5_000_000, Refill: slot / 10, Extra: cell.Rate(load.slots) * slot}
			default:
				c.declares = func(run time.Duration) cell.Cost { return honest(run) / 10 }
			}
		}
		w.pool(load.slots, "op")
		load.start(w)
		if borrowed > 0 {
			load.borrow(w, borrowed)
		}
		for _, c := range load.tenants {
			if p := watched[c.policy.Tenant]; p != nil {
				p.begun, p.late = w.now, load.lateness(w, borrowed)+load.blocked(c)
			}
		}
		w.granted = func(r *run) {
			if p := watched[r.job.Lane.Tenant]; p != nil && r.job.Lane.Class == load.class {
				p.charged += float64(r.charged)
			}
		}
		w.check = func() {
			for id, p := range watched { // order-free: each for itself
				if short, ok := p.check(w.now); !ok {
					t.Fatalf("at %v: %s is %.0f us short of what it reserves, more than %.0f late and a job", w.now.Sub(epoch), id, short, p.late)
				}
			}
		}
		w.runFor(3 * time.Second)
	})
}

// lateness is X.
func (l *workload) lateness(w *world, borrowed time.Duration) float64 {
	i := l.class.Index()
	m, jobs, reserved := float64(max(l.longest(), borrowed).Microseconds()), 0.0, 0.0
	for _, c := range l.tenants {
		if r := c.policy.Reservation[i]; r > 0 {
			jobs++
			reserved += float64(r) / float64(slot)
		}
	}
	for _, o := range l.orgs {
		if r := o.Reservation[i]; r > 0 {
			jobs++
			reserved += float64(r) / float64(slot)
		}
	}
	slots := float64(l.slots)
	return m + (2*float64(w.cfg.Bulkheads[i].Burst.Microseconds())*reserved+jobs*m)/slots + m
}

// blocked is how long the limit of a tenant's organization may block it at once, in microseconds.
func (l *workload) blocked(c *claimant) float64 {
	for _, o := range l.orgs {
		if o.Organization == c.policy.Organization && o.Limit > 0 {
			return float64(l.slots+1) * float64(l.longest().Microseconds()) * float64(slot) / float64(o.Limit)
		}
	}
	return 0
}

// borrow floods the other class, whose jobs take what is lent.
func (l *workload) borrow(w *world, run time.Duration) {
	b := &claimant{policy: cell.TenantPolicy{Tenant: "borrower", Weight: 1000}, least: run, most: run, declares: honest}
	w.tenant(b.policy)
	for range 2 * l.slots {
		b.replace(w, cell.ClassInteractive)
	}
}
