package allocate_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// actor is a tenant or an organization under the scheduler's rules, as plainly as they can be written: time tags in seconds, one unit of cost
// a grant, and a share's tag in place of a deficit.
type actor struct {
	weight, reservation, limit float64
	demand                     float64 // units a second; infinite for all it can get
	backlog, got               float64
	reserved, limited, share   float64 // the tags R, L and that of its siblings' order
	runnable                   bool
	children                   []*actor
}

// world is a capacity and who wants it.
type world struct {
	capacity, now, virtual float64
	top                    []*actor
	order                  map[*actor]float64 // by organization, nil for the top: where its order stands
}

// burst is short, so that the long run comes soon.
const burst = 0.1

// blocked by its own limit.
func (w *world) blocked(a *actor) bool { return a.limit > 0 && a.limited > w.now }

func (w *world) update(a, parent *actor) bool {
	ready := a.backlog >= 1
	if a.children != nil {
		ready = false
		for _, c := range a.children {
			ready = w.update(c, a) || ready
		}
	}
	ready = ready && !w.blocked(a) && (parent == nil || !w.blocked(parent))
	if ready && !a.runnable {
		a.reserved = max(a.reserved, w.virtual-burst)
		a.share = max(a.share, w.order[parent])
	}
	a.runnable = ready
	return ready
}

// next is the sibling whose turn it is, by weight; one of weight zero only if there is no other.
func next(siblings []*actor) *actor {
	var best *actor
	for _, a := range siblings {
		if a.runnable && (best == nil || a.weight > 0 && best.weight == 0 || (a.weight > 0) == (best.weight > 0) && a.share < best.share) {
			best = a
		}
	}
	return best
}

func (w *world) serve(parent, a *actor) {
	w.order[parent] = max(w.order[parent], a.share)
	a.share += 1 / max(a.weight, 1e-9)
}

// least is the runnable actor with a reservation and the least tag: of tenants, or of organizations.
func (w *world) least(tenants bool) (best, parent *actor) {
	see := func(a, p *actor) {
		if a.runnable && a.reservation > 0 && (best == nil || a.reserved < best.reserved) {
			best, parent = a, p
		}
	}
	for _, a := range w.top {
		if (a.children == nil) == tenants {
			see(a, nil)
		}
		if tenants {
			for _, c := range a.children {
				see(c, a)
			}
		}
	}
	return best, parent
}

// step is the time of one unit of cost: everybody's demand arrives, and one unit is granted.
func (w *world) step() {
	w.now += 1 / w.capacity
	for _, a := range w.top {
		for _, x := range append([]*actor{a}, a.children...) {
			x.backlog = min(x.backlog+x.demand/w.capacity, 1e9)
		}
	}
	for _, a := range w.top {
		w.update(a, nil)
	}
	tenant, parent := w.least(true)
	organization, _ := w.least(false)
	w.virtual += 1 / w.capacity
	for _, a := range []*actor{tenant, organization} {
		if a != nil {
			w.virtual = min(w.virtual, a.reserved+2*burst)
		}
	}
	switch {
	case tenant != nil && tenant.reserved <= w.virtual:
		tenant.reserved += 1 / tenant.reservation
		if parent != nil && parent.reservation > 0 {
			parent.reserved += 1 / parent.reservation
		}
		w.grant(tenant, parent)
	case organization != nil && organization.reserved <= w.virtual:
		organization.reserved += 1 / organization.reservation
		a := next(organization.children)
		w.serve(organization, a)
		w.grant(a, organization)
	default:
		a := next(w.top)
		if a == nil {
			return
		}
		w.serve(nil, a)
		if a.children == nil {
			w.grant(a, nil)
			return
		}
		c := next(a.children)
		w.serve(a, c)
		w.grant(c, a)
	}
}

func (w *world) grant(a, parent *actor) {
	a.got++
	a.backlog--
	for _, x := range []*actor{a, parent} {
		if x != nil && x.limit > 0 {
			x.limited = max(x.limited, w.now-burst) + 1/x.limit
		}
	}
}

// newWorld has one unit of cost for each micro-unit of the input.
func newWorld(in input) (*world, []*actor) {
	w := &world{capacity: float64(in.capacity), order: map[*actor]float64{}}
	parents := map[string]*actor{}
	for i, o := range in.organizations {
		if in.below(o.Name) == nil {
			continue
		}
		a := &actor{weight: float64(o.Weight), reservation: float64(o.Reservation), limit: float64(in.organizations[i].Limit)}
		parents[o.Name] = a
		w.top = append(w.top, a)
	}
	var all []*actor
	for _, c := range in.claims {
		a := &actor{weight: float64(c.Weight), reservation: float64(c.Reservation), limit: float64(c.Limit), demand: float64(c.Demand)}
		if c.Demand < 0 {
			a.demand = math.Inf(1)
		}
		all = append(all, a)
		if p := parents[c.Organization]; p != nil {
			p.children = append(p.children, a)
		} else {
			w.top = append(w.top, a)
		}
	}
	return w, all
}

func (in input) withoutLimits() input {
	for i := range in.claims {
		in.claims[i].Limit = 0
	}
	for i := range in.organizations {
		in.organizations[i].Limit = 0
	}
	return in
}

// TestEqualsTheRules runs the scheduler's rules on a capacity, one unit of cost at a time, until the long run is reached: everybody gets what
// was planned, up to 1 % of the capacity.
func TestEqualsTheRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Rates of 20 and more, so that a burst is more than one unit of any.
		in := drawInput(t, 10, true).times(20)
		in.capacity = max(in.capacity, 60)
		for i := range in.claims {
			in.claims[i].Weight = min(in.claims[i].Weight, 5_000) // or the long run is too long
		}
		for i := range in.organizations {
			in.organizations[i].Weight = min(in.organizations[i].Weight, 5_000)
		}
		if in.plan(t).Pool == 0 {
			// While reservations shrink, whoever has a limit waits longer than a burst now and then, and what its limit would have allowed
			// meanwhile is lost.
			in = in.withoutLimits()
		}
		w, actors := newWorld(in)
		const warm, measured = 60, 40 // seconds
		for range warm * int(in.capacity) {
			w.step()
		}
		for _, a := range actors {
			a.got = 0
		}
		for range measured * int(in.capacity) {
			w.step()
		}
		const fine = 1000 // the plan's own rounding is no part of this
		p := in.times(fine).plan(t)
		for i, a := range actors {
			got, want := a.got/measured, float64(p.Claims[i].Final)/fine
			if math.Abs(got-want) > 0.01*float64(in.capacity)+0.5 {
				t.Errorf("claim %d: %.2f units a second, planned %.2f of %d: %+v", i, got, want, in.capacity, in)
			}
		}
	})
}
