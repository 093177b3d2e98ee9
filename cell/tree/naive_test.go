package tree_test

import (
	"cmp"
	"slices"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/drr"
	"github.com/fairlead/fairlead/cell/tree"
)

// naive is the tree's rules written down as plainly as possible: every question is answered by looking at everybody. Its sums are exact
// because the costs, rates and times that the tests draw divide without a remainder.
type naive struct {
	quantum  int64
	burst    [2]time.Duration
	now      cell.Instant
	branches []*branch
	people   []*person
	roots    [2]*rounds
	sets     []drr.SetID
	virtual  map[virtualID]*virtual
}

type virtualID struct {
	class int
	set   drr.SetID
}

// virtual is rule 5's time. It moves on at each poll, and when somebody comes whose tag is told by it.
type virtual struct{ v, polled cell.Instant }

// reserve is a node's R. Virtual time is each set's own, and so is R: what is charged moves it in all of them.
type reserve struct {
	tags map[drr.SetID]cell.Instant
	// from is the set that it was charged in last, and home is R there while it has no tag in it.
	from drr.SetID
	home cell.Instant

	rate  func() cell.Rate
	waits func(drr.SetID) bool         // whether its node waits for its turn in a set
	floor func(drr.SetID) cell.Instant // what R counts as at least while it does
}

// branch is an organization.
type branch struct {
	policy   cell.OrganizationPolicy
	reserves [2]reserve
	limit    cell.Instant // L
	flows    [2]*flow
	inner    [2]*rounds
	joined   map[virtualID]bool // it waits for its turn: nothing of its own is in the way
	// floors are below what no tag inside it counts, since the organization became runnable.
	floors map[virtualID]cell.Instant
}

// person is a tenant.
type person struct {
	policy  cell.TenantPolicy
	org     *branch
	lanes   [2]*leaf
	limit   cell.Instant // L
	spend   cell.Instant // K
	credit  cell.Cost    // C, until filled
	filling cell.Instant // when it begins to fill
	held    int
}

// leaf is a tenant in a class.
type leaf struct {
	*person
	reserve

	class  int
	flow   *flow
	active map[drr.SetID]bool
	joined map[drr.SetID]bool // it waits for its turn: nothing of its tenant's is in the way
}

func newNaive(cfg tree.Config) *naive {
	return &naive{
		quantum: cfg.Quantum, burst: cfg.Burst, roots: [2]*rounds{newRounds(cfg.Quantum), newRounds(cfg.Quantum)},
		virtual: map[virtualID]*virtual{},
	}
}

// never is before every time: the tags of who was never charged.
const never cell.Instant = -1 << 60

// took is how long a cost lasts at a rate.
func took(cost cell.Cost, rate cell.Rate) time.Duration {
	whole := int64(cost) / int64(rate)
	return time.Duration(whole*1e9 + int64(cost)%int64(rate)*1000/int64(rate/1e6))
}

func (m *naive) branch(id cell.OrganizationID) *branch {
	for _, b := range m.branches {
		if b.policy.Organization == id {
			return b
		}
	}
	return nil
}

func (m *naive) person(id cell.TenantID) *person {
	for _, p := range m.people {
		if p.policy.Tenant == id {
			return p
		}
	}
	return nil
}

// top is what stands directly below the cell: the organization's id, or the tenant's own.
func (p *person) top() string {
	if p.org != nil {
		return string(p.org.policy.Organization)
	}
	return string(p.policy.Tenant)
}

// may reports whether nothing of the tenant's own is in the way.
func (l *leaf) may(set drr.SetID, now cell.Instant) bool {
	return l.active[set] && l.held == 0 && l.limit <= now
}

// leaves are those that may run (rule 2).
func (m *naive) leaves(class int, set drr.SetID) []*leaf {
	var out []*leaf
	for _, p := range m.people {
		if l := p.lanes[class]; l.joined[set] && (l.org == nil || l.org.joined[virtualID{class, set}]) {
			out = append(out, l)
		}
	}
	return out
}

func (b *branch) floor(id virtualID) cell.Instant {
	if b == nil {
		return never
	}
	at, ok := b.floors[id]
	if !ok {
		return never
	}
	return at
}

func (m *naive) below(b *branch) []*person {
	var out []*person
	for _, p := range m.people {
		if p.org == b {
			out = append(out, p)
		}
	}
	return out
}

// refresh brings the rotations and the tags up to who may run now. Whose time came at the same moment come by their ids.
func (m *naive) refresh() {
	for _, p := range m.people {
		m.refreshPerson(p)
	}
	for _, b := range m.branches {
		m.refreshBranch(b)
	}
}

func (m *naive) refreshPerson(p *person) {
	for class, l := range p.lanes {
		for _, set := range m.sets {
			if may := l.may(set, m.now); may != l.joined[set] {
				m.turnLeaf(l, virtualID{class, set}, may)
			}
		}
	}
	if p.org != nil {
		m.refreshBranch(p.org)
	}
}

func (m *naive) turnLeaf(l *leaf, id virtualID, joins bool) {
	parent := m.roots[id.class]
	if l.org != nil {
		parent = l.org.inner[id.class]
	}
	if !joins {
		l.joined[id.set] = false
		parent.deactivate(l.flow, id.set)
		return
	}
	parent.activate(l.flow, id.set)
	if l.policy.Reservation[id.class] > 0 {
		m.pass(id)
		l.rise(m, id)
	}
	l.joined[id.set] = true
	m.seat(l.person)
}

// seat gives a tenant that has credit a tag in the sets in which it waits, as if it had a reservation there: that is when one that it is
// given later counts from.
func (m *naive) seat(p *person) {
	for class, l := range p.lanes {
		for _, set := range m.sets {
			if l.joined[set] && p.policy.Credit.Extra > 0 && m.creditNow(p) > 0 {
				l.enter(m, virtualID{class, set})
			}
		}
	}
}

// refreshBranch has an organization leave its parent's rotation when its limit blocks it; its own goes on as it is.
func (m *naive) refreshBranch(b *branch) {
	for class := range 2 {
		for _, set := range m.sets {
			id := virtualID{class, set}
			waits := slices.ContainsFunc(m.below(b), func(p *person) bool { return p.lanes[class].joined[set] })
			if may := waits && b.limit <= m.now; may != b.joined[id] {
				m.turnBranch(b, id, may)
			}
		}
	}
}

func (m *naive) turnBranch(b *branch, id virtualID, joins bool) {
	if !joins {
		b.joined[id] = false
		m.roots[id.class].deactivate(b.flows[id.class], id.set)
		return
	}
	m.roots[id.class].activate(b.flows[id.class], id.set)
	m.pass(id)
	if b.policy.Reservation[id.class] > 0 {
		b.reserves[id.class].rise(m, id)
	}
	// Its tenants become runnable with it.
	b.floors[id] = m.virtual[id].v.Add(-m.burst[id.class])
	b.joined[id] = true
}

// rise is what becomes of R when its node becomes runnable (rule 4).
func (r *reserve) rise(m *naive, id virtualID) {
	floor := m.virtual[id].v.Add(-m.burst[id.class])
	r.tags[id.set] = max(r.enter(m, id), floor)
}

// enter returns R in a set: at first as far ahead of virtual time as where it was charged last.
func (r *reserve) enter(m *naive, id virtualID) cell.Instant {
	if at, ok := r.tags[id.set]; ok {
		return at
	}
	at := m.virtual[id].v.Add(r.ahead(m, id.class))
	r.tags[id.set] = at
	return at
}

// ahead is how far R is ahead of the virtual time of the set that it was charged in last; who does not wait is not behind by more than a
// burst.
func (r *reserve) ahead(m *naive, class int) time.Duration {
	id := virtualID{class, r.from}
	at, ok := r.tags[r.from]
	switch {
	case r.rate() == 0:
		return 0
	case !ok:
		at = r.home
	case r.waits(r.from):
		return r.tag(r.from).Sub(m.virtual[id].v)
	}
	return max(at.Sub(m.present(id)), -m.burst[class])
}

// tag is R as it counts.
func (r *reserve) tag(set drr.SetID) cell.Instant {
	if !r.waits(set) {
		return r.tags[set]
	}
	return max(r.tags[set], r.floor(set))
}

// move charges R in every set, or gives back: never so much that virtual time would have to turn back for it.
func (r *reserve) move(m *naive, id virtualID, by time.Duration) {
	for set := range r.tags { // order-free: each for itself
		at := r.tag(set)
		r.tags[set] = at.Add(by)
		if by < 0 && r.waits(set) {
			v := m.virtual[virtualID{id.class, set}].v
			r.tags[set] = max(r.tags[set], min(at, v.Add(-2*m.burst[id.class])))
		}
	}
	if _, ok := r.tags[id.set]; ok {
		r.from = id.set
	}
	r.home = r.home.Add(by)
}

// present is what virtual time has come to by rule 5.
func (m *naive) present(id virtualID) cell.Instant {
	v := m.virtual[id].v.Add(m.now.Sub(m.virtual[id].polled))
	for _, l := range m.leaves(id.class, id.set) {
		if l.policy.Reservation[id.class] > 0 {
			v = min(v, l.tag(id.set).Add(2*m.burst[id.class]))
		}
		if l.org != nil && l.org.policy.Reservation[id.class] > 0 {
			v = min(v, l.org.reserves[id.class].tags[id.set].Add(2*m.burst[id.class]))
		}
	}
	return v
}

func (m *naive) pass(id virtualID) cell.Instant {
	*m.virtual[id] = virtual{v: m.present(id), polled: m.now}
	return m.virtual[id].v
}

// creditNow is what is in the tenant's bucket: it fills only after the last spending is paid for and a burst has passed.
func (m *naive) creditNow(p *person) cell.Cost {
	c := p.policy.Credit
	if p.filling == 0 || m.now <= p.filling {
		return p.credit
	}
	earned := cell.Cost(int64(m.now.Sub(p.filling)) / 1000 * (int64(c.Refill) / 1e6))
	return min(c.Max, p.credit+earned)
}

// choice is a lane and the tier that it is served by.
type choice struct {
	lane *leaf
	tier tree.Tier
}

// next is rules 4 to 7.
func (m *naive) next(class int, set drr.SetID) (choice, bool) {
	id := virtualID{class, set}
	v := m.pass(id)
	leaves := m.leaves(class, set)
	if l := first(leaves, func(l *leaf) (cell.Instant, bool) {
		return l.tag(set), l.policy.Reservation[class] > 0 && l.tag(set) <= v
	}, func(l *leaf) cell.Instant { return l.tags[set] }); l != nil {
		return choice{l, tree.TierReserved}, true
	}
	if l := first(leaves, func(l *leaf) (cell.Instant, bool) {
		if l.org == nil {
			return 0, false
		}
		at := l.org.reserves[class].tags[set]
		return at, l.org.policy.Reservation[class] > 0 && at <= v
	}, same); l != nil {
		inside, _ := l.org.inner[class].next(set).node.(*leaf)
		return choice{inside, tree.TierOrganization}, true
	}
	if len(leaves) > 1 {
		if l := first(leaves, func(l *leaf) (cell.Instant, bool) {
			return l.spend, l.policy.Credit.Extra > 0 && m.creditNow(l.person) > 0 && l.spend <= m.now
		}, same); l != nil {
			return choice{l, tree.TierCredit}, true
		}
	}
	f := m.roots[class].next(set)
	if f == nil {
		return choice{}, false
	}
	if b, ok := f.node.(*branch); ok {
		f = b.inner[class].next(set)
	}
	l, _ := f.node.(*leaf)
	return choice{l, tree.TierShared}, true
}

func same(*leaf) cell.Instant { return 0 }

// first returns the leaf with the least tag among those that have one; at a tie by the ids of what stands directly below the cell, inside
// an organization by the raw tag, and then by its own id.
func first(leaves []*leaf, tag func(*leaf) (cell.Instant, bool), raw func(*leaf) cell.Instant) *leaf {
	var best *leaf
	for _, l := range leaves {
		at, ok := tag(l)
		if !ok {
			continue
		}
		if best != nil {
			least, _ := tag(best)
			if cmp.Or(cmp.Compare(at, least), cmp.Compare(l.top(), best.top()), cmp.Compare(raw(l), raw(best)),
				cmp.Compare(l.policy.Tenant, best.policy.Tenant)) >= 0 {
				continue
			}
		}
		best = l
	}
	return best
}

// charge is rules 12 and 14 for a dispatch, settle for what follows it.
func (m *naive) charge(c choice, set drr.SetID, cost cell.Cost) {
	m.account(c, set, max(cost, 1), true)
}

func (m *naive) settle(c choice, set drr.SetID, delta cell.Cost) {
	if delta != 0 {
		m.account(c, set, delta, false)
	}
}

func (m *naive) account(c choice, set drr.SetID, cost cell.Cost, granted bool) {
	l, class := c.lane, c.lane.class
	if r := l.policy.Limit; r > 0 {
		l.limit = m.tag(l.limit, cost, r, class)
	}
	if l.org != nil && l.org.policy.Limit > 0 {
		l.org.limit = m.tag(l.org.limit, cost, l.org.policy.Limit, class)
	}
	turn := func(r *rounds, f *flow) {
		if cost > 0 {
			r.charge(f, set, int64(cost), granted)
		} else {
			r.refund(f, set, int64(-cost))
		}
	}
	id := virtualID{class, set}
	if r := l.policy.Reservation[class]; r > 0 && c.tier == tree.TierReserved {
		l.move(m, id, took(cost, r))
	}
	if l.org != nil && (c.tier == tree.TierReserved || c.tier == tree.TierOrganization) {
		if r := l.org.policy.Reservation[class]; r > 0 {
			l.org.reserves[class].move(m, id, took(cost, r))
		}
	}
	if extra := l.policy.Credit.Extra; extra > 0 && c.tier == tree.TierCredit {
		l.credit = min(l.policy.Credit.Max, m.creditNow(l.person)-cost)
		// After a pause it starts afresh, or a bucket would not last as long as it holds.
		if cost > 0 && l.spend < m.now.Add(-m.burst[class]) {
			l.spend = m.now
		}
		l.spend = l.spend.Add(took(cost, extra))
		l.filling = max(m.now, l.spend)
		if l.credit > 0 {
			// Rule 7 has it fill from K + burst on. An empty bucket fills from K on instead: who always wants would otherwise have one job of
			// credit per burst, whatever the refill.
			l.filling = l.spend
			if l.credit > 0 {
				l.filling = l.filling.Add(m.burst[class])
			}
			l.filling = max(m.now, l.filling)
		}
	}
	if l.org != nil && (c.tier == tree.TierOrganization || c.tier == tree.TierShared) {
		turn(l.org.inner[class], l.flow)
	}
	if c.tier == tree.TierShared {
		top := l.flow
		if l.org != nil {
			top = l.org.flows[class]
		}
		turn(m.roots[class], top)
	}
	m.seat(l.person)
	m.refresh()
}

// tag moves L on for a cost, and back for a refund.
func (m *naive) tag(at cell.Instant, cost cell.Cost, rate cell.Rate, class int) cell.Instant {
	if cost > 0 {
		at = max(at, m.now.Add(-m.burst[class]))
	}
	return at.Add(took(cost, rate))
}

// idle is rule 10: what of the class's rotations is empty moves on.
func (m *naive) idle(class int, time int64) {
	for _, set := range m.sets {
		m.roots[class].idle(set, time)
		for _, b := range m.branches {
			b.inner[class].idle(set, time)
		}
	}
}
