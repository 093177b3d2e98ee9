package fairness

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
)

// TestAnythingMayChange changes everything that can be in random worlds while they run: promises of tenants and organizations, who belongs
// to whom, how many slots there are and what they offer. Refused promises change nothing. The scheduler's own check, what is held, the idle
// slots and the reasons hold at every moment.
func TestAnythingMayChange(t *testing.T) {
	cases(t, 20, func(t *rapid.T) { anythingChanges(t, mixed(t, quickConfig()), 0) })
}

// anythingChanges changes a world with so many groups of workers.
func anythingChanges(t *rapid.T, w *world, groups int) {
	c := &churn{world: w, t: t, groups: groups}
	w.at(w.now, rankArrive, c.change)
	looks := 0
	w.check = func() {
		if err := w.held(); err != nil {
			t.Fatalf("at %v: %v", w.now.Sub(epoch), err)
		}
		if looks++; looks%10 != 0 {
			return
		}
		if err := w.s.Check(); err != nil {
			t.Fatalf("at %v: %v", w.now.Sub(epoch), err)
		}
		w.idle(t)
		asked := 0
		for id, j := range w.waits { // order-free: each for itself
			if asked++; asked > 5 {
				break
			}
			if why, ok := w.s.Explain(w.now, id); !ok || w.true(j, why) != nil {
				t.Fatalf("at %v: %+v waits because of %v: %v: %+v", w.now.Sub(epoch), j.Item, why.Reason, w.true(j, why), why)
			}
		}
	}
	w.runFor(200 * time.Millisecond)
}

type churn struct {
	*world

	t       *rapid.T
	groups  int // of workers; 0 for none
	refused int
}

func (c *churn) change() {
	switch c.rng.IntN(4) {
	case 0, 1:
		c.tenant()
	case 2:
		c.organization()
	default:
		c.workers()
	}
	c.at(c.now.Add(time.Duration(c.rng.IntN(8e6))), rankArrive, c.change)
}

func (c *churn) rate(most int64) cell.Rate {
	if c.rng.IntN(2) == 0 {
		return 0
	}
	return cell.Rate(1+c.rng.Int64N(most)) * 1000
}

// tenant promises some tenant something else.
func (c *churn) tenant() {
	id := cell.TenantID(fmt.Sprintf("tenant-%d", c.rng.IntN(7)))
	a := c.books[id]
	if a == nil {
		return
	}
	p := cell.TenantPolicy{
		Tenant: id, Epoch: a.policy.Epoch + 1, Weight: []cell.Weight{0, 500, 1000, 4000}[c.rng.IntN(4)],
		Reservation: [2]cell.Rate{c.rate(300), c.rate(300)}, Limit: c.rate(4000), RunningMax: int64(c.rng.IntN(3) * c.rng.IntN(4)),
	}
	if n := c.rng.IntN(4); n < 3 {
		p.Organization = cell.OrganizationID(fmt.Sprintf("org-%d", n))
	}
	if c.rng.IntN(3) == 0 {
		p.Starts = cell.StartRate{Jobs: 1 + c.rng.Int64N(20), Per: time.Duration(1+c.rng.IntN(50)) * time.Millisecond}
	}
	if c.groups > 0 {
		p.Groups = c.hand(c.groups)
	}
	if c.rng.IntN(3) == 0 {
		p.Credit = cell.Credit{Max: 1 + cell.Cost(c.rng.IntN(100_000)), Refill: c.rate(100), Extra: 1000 * (1 + cell.Rate(c.rng.IntN(1000)))}
	}
	if err := c.s.SetTenant(p); err != nil {
		c.refused++
		return
	}
	c.promised(p)
}

func (c *churn) organization() {
	p := cell.OrganizationPolicy{
		Organization: cell.OrganizationID(fmt.Sprintf("org-%d", c.rng.IntN(3))), Weight: []cell.Weight{0, 500, 1000, 4000}[c.rng.IntN(4)],
		Reservation: [2]cell.Rate{c.rate(900), c.rate(900)}, Limit: c.rate(4000), Epoch: 1,
	}
	if err := c.s.SetOrganization(p); err != nil {
		c.refused++
		return
	}
	c.known(p)
}

// workers gives some workers other slots, or another offer.
func (c *churn) workers() {
	p := c.pools[c.rng.IntN(len(c.pools))]
	if c.rng.IntN(2) == 0 {
		p.slots = c.rng.IntN(7)
		c.s.Resize(c.slots(), c.slots())
		return
	}
	ops := [][]cell.Operation{{"op"}, {"other"}, {"op", "other"}, {"op", "third"}}[c.rng.IntN(4)]
	if c.groups > 0 {
		p.group = cell.WorkerGroup(c.rng.IntN(c.groups + 1))
	}
	offer, err := c.s.Change(p.offer, ops, p.group)
	if err != nil {
		c.t.Fatalf("%v", err)
	}
	p.offer, p.ops = offer, ops
}
