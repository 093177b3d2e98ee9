package allocate

import "github.com/fairlead/fairlead/cell"

// Unlimited is the Demand of a claim that takes all it can get.
const Unlimited cell.Rate = -1

// ClaimsMax bounds the claims of a plan, and its organizations, so that sums of rates and of weights fit in an int64.
const ClaimsMax = 1_000_000

// Claim is what one tenant asks for and is promised.
type Claim struct {
	Name         string // unique
	Organization string // its parent, empty for none
	// Demand is what it would be charged if nothing held it back: 0 to cell.RateMax, or negative for Unlimited.
	Demand cell.Rate
	// Reservation is what is protected for it: 0 to cell.RateMax.
	Reservation cell.Rate
	// Limit is what it may not exceed: 0 for none, or from its reservation to cell.RateMax.
	Limit  cell.Rate
	Weight cell.Weight
}

// Organization is what tenants with the same parent are promised together.
type Organization struct {
	Name string // unique among organizations
	// Reservation is 0 for none of its own, or no less than the sum of its tenants'.
	Reservation cell.Rate
	// Limit is 0 for none, or more than the sum of its tenants' reservations and no less than its own.
	Limit  cell.Rate
	Weight cell.Weight
}

// Share is what a claim or an organization gets. All are micro-units a second.
type Share struct {
	// Reserved is the part that its own reservation covers: all of it as far as it is demanded, or less if capacity is short.
	Reserved cell.Rate
	// Entitled is Reserved and its part, by weight, of what is spare, if everybody who wants more took its part.
	Entitled cell.Rate
	// First is the first pass: Entitled, or as much of it as it demands and its limit allows.
	First cell.Rate
	// Final is what it gets when nothing is left to divide.
	Final cell.Rate
	// Borrowed is what Final has beyond Reserved.
	Borrowed cell.Rate
	// Limited is the part of its demand that its own limit refuses; 0 for an unlimited demand.
	Limited cell.Rate
	// Short is the part of its demand, within its limit, that it does not get: for want of capacity, or because of its organization's
	// limit. It is 0 for an unlimited demand without a limit.
	Short cell.Rate
}

// Plan is who gets what.
type Plan struct {
	Claims        []Share // in the order of the claims given
	Organizations []Share // in the order of the organizations given
	Capacity      cell.Rate
	Demand        cell.Rate // of all claims; Unlimited if one is
	Reserved      cell.Rate // of the capacity, covered by reservations, organizations' included
	Pool          cell.Rate // the rest, which is borrowed by weight
	Given         cell.Rate // of the capacity, in all
	Idle          cell.Rate // the rest, which nobody wants or may have
	// Deficit is what all demands within limits are beyond the capacity; 0 if they fit. Unlimited demands without a limit count for
	// nothing in it.
	Deficit cell.Rate
}

// Allocate divides the capacity, from 0 to cell.RateMax, among the claims. It returns an error that joins a *[cell.FieldError] for every fault
// in the input, and then an empty plan. Its time is that of sorting the claims.
func Allocate(capacity cell.Rate, claims []Claim, organizations []Organization) (Plan, error) {
	if err := check(capacity, claims, organizations); err != nil {
		return Plan{}, err
	}
	t := newTree(capacity, claims, organizations)
	t.reserve()
	t.lend()
	for _, o := range t.organizations {
		o.divide()
	}
	return t.plan(), nil
}

// node is one claim or one organization at work. Amounts are in micro-units per second.
type node struct {
	weight      int64
	reservation int64
	demand      int64 // within its limit and, for an organization, its tenants': what it can take in all; at most roomMax
	unlimited   bool  // its demand has no end, so neither has what it is short of
	limited     int64 // what its own limit refuses of its demand

	reserved int64
	lent     int64 // beyond reserved
	entitled int64
	first    int64

	children []*node
	parent   *node
}

// roomMax stands for a demand without an end: more than any capacity.
const roomMax = int64(cell.RateMax)

// tree is a plan in the making. A top node is an organization or a claim without one.
type tree struct {
	capacity      int64
	claims        []*node
	organizations []*node
	top           []*node
}

func newTree(capacity cell.Rate, claims []Claim, organizations []Organization) *tree {
	t := &tree{capacity: int64(capacity)}
	named := make(map[string]*node, len(organizations))
	for _, o := range organizations {
		n := &node{weight: int64(o.Weight), reservation: int64(o.Reservation)}
		named[o.Name] = n
		t.organizations = append(t.organizations, n)
		t.top = append(t.top, n)
	}
	for _, c := range claims {
		n := &node{weight: int64(c.Weight), reservation: int64(c.Reservation), demand: int64(c.Demand)}
		if c.Demand < 0 {
			n.demand, n.unlimited = roomMax, true
		}
		n.bound(c.Limit)
		t.claims = append(t.claims, n)
		if n.parent = named[c.Organization]; n.parent == nil {
			t.top = append(t.top, n)
			continue
		}
		n.parent.children = append(n.parent.children, n)
		n.parent.demand += n.demand
		n.parent.unlimited = n.parent.unlimited || n.unlimited
	}
	for i, o := range organizations {
		t.organizations[i].bound(o.Limit)
	}
	return t
}

func (n *node) bound(limit cell.Rate) {
	if limit == 0 {
		return
	}
	if !n.unlimited {
		n.limited = max(n.demand-int64(limit), 0)
	}
	n.demand, n.unlimited = min(n.demand, int64(limit)), false
}

// reserve is step 1. An organization with a reservation of its own is served as a whole, and its tenants out of that, at the factor that all
// reservations have; the tenants of one without stand for themselves.
func (t *tree) reserve() {
	var level []*node
	for _, n := range t.top {
		if n.children != nil && n.reservation == 0 {
			level = append(level, n.children...)
		} else {
			level = append(level, n)
		}
	}
	vessels := make([]vessel, len(level))
	for i, n := range level {
		vessels[i] = vessel{weight: n.reservation, room: min(n.demand, n.reservation)}
	}
	factor := pour(t.capacity, vessels)
	for i, n := range level {
		n.reserved = vessels[i].got
		for _, c := range n.children {
			c.reserved = min(c.demand, c.reservation, factor.of(c.reservation))
		}
	}
	for _, n := range t.organizations {
		if n.reservation == 0 {
			n.reserved = sum(n.children, func(c *node) int64 { return c.reserved })
		}
	}
}

// lend is step 2 and 3 at the top.
func (t *tree) lend() {
	pool := t.capacity - sum(t.top, func(n *node) int64 { return n.reserved })
	divide(pool, pool, t.top)
}

// divide is step 2 and 3 within an organization: its tenants divide what it has beyond what covers their own reservations.
func (n *node) divide() {
	own := sum(n.children, func(c *node) int64 { return c.reserved })
	divide(n.first-own, n.reserved+n.lent-own, n.children)
}

// divide gives siblings the amount beyond what they have reserved, and works out the first pass from another amount: an organization's own
// first pass is not what it gets in the end.
func divide(firstly, finally int64, siblings []*node) {
	vessels := make([]vessel, len(siblings))
	var weights int64
	for i, n := range siblings {
		vessels[i] = vessel{weight: n.weight, room: n.demand - n.reserved}
		if vessels[i].room > 0 {
			weights += n.weight
		}
	}
	level := fraction{num: firstly, den: weights}
	for i, n := range siblings {
		n.entitled = n.reserved
		if vessels[i].room > 0 && weights > 0 {
			n.entitled += level.of(n.weight)
		}
		n.first = min(n.entitled, n.demand)
	}
	pour(finally, vessels)
	left := finally - got(vessels)
	for i, n := range siblings {
		n.lent = vessels[i].got
		// Weight zero comes after all others, where each has the same weight.
		vessels[i] = vessel{weight: boolean(n.weight == 0), room: n.demand - n.reserved}
	}
	pour(left, vessels)
	for i, n := range siblings {
		n.lent += vessels[i].got
	}
}

func boolean(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func sum(nodes []*node, of func(*node) int64) int64 {
	var s int64
	for _, n := range nodes {
		s += of(n)
	}
	return s
}

func (t *tree) plan() Plan {
	p := Plan{
		Capacity: cell.Rate(t.capacity), Claims: make([]Share, len(t.claims)), Organizations: make([]Share, len(t.organizations)),
		Reserved: cell.Rate(sum(t.top, func(n *node) int64 { return n.reserved })),
		Given:    cell.Rate(sum(t.top, func(n *node) int64 { return n.reserved + n.lent })),
	}
	p.Pool, p.Idle = p.Capacity-p.Reserved, p.Capacity-p.Given
	for i, n := range t.claims {
		p.Claims[i] = n.share()
		switch {
		case n.unlimited:
			p.Demand = Unlimited
		case p.Demand >= 0:
			p.Demand += cell.Rate(n.demand + n.limited)
		}
	}
	for i, n := range t.organizations {
		p.Organizations[i] = n.share()
	}
	for _, n := range t.top {
		p.Deficit += n.share().Short
	}
	return p
}

func (n *node) share() Share {
	s := Share{
		Reserved: cell.Rate(n.reserved), Entitled: cell.Rate(n.entitled), First: cell.Rate(n.first),
		Final: cell.Rate(n.reserved + n.lent), Borrowed: cell.Rate(n.lent), Limited: cell.Rate(n.limited),
	}
	if !n.unlimited {
		s.Short = cell.Rate(n.demand) - s.Final
	}
	return s
}
