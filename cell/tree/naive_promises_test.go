package tree_test

import (
	"cmp"
	"slices"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/drr"
)

// setOrganization is rule 3 for an organization; true when it is refused.
func (m *naive) setOrganization(p cell.OrganizationPolicy) bool {
	b := m.branch(p.Organization)
	if m.breaks(p, m.promisedBelow(b, nil)) {
		return true
	}
	if b == nil {
		b = &branch{limit: never, joined: map[virtualID]bool{}, floors: map[virtualID]cell.Instant{}}
		for class := range 2 {
			b.inner[class] = newRounds(m.quantum)
			b.flows[class] = m.roots[class].join(b, p.Weight)
			b.reserves[class] = reserve{
				tags: map[drr.SetID]cell.Instant{}, waits: func(set drr.SetID) bool { return b.joined[virtualID{class, set}] },
				floor: func(drr.SetID) cell.Instant { return never },
				rate:  func() cell.Rate { return b.policy.Reservation[class] },
			}
		}
		m.branches = append(m.branches, b)
	}
	b.limit = m.rescaled(b.limit, b.policy.Limit, p.Limit)
	for class := range 2 {
		from := b.policy.Reservation[class]
		b.reserves[class].become(m, class, from, p.Reservation[class])
		b.policy.Reservation[class] = p.Reservation[class]
		m.roots[class].reweigh(b.flows[class], p.Weight)
	}
	b.policy = p
	m.refresh()
	return false
}

// promisedBelow returns the policies of the organization's tenants, with one of them as it is to become.
func (m *naive) promisedBelow(b *branch, changed *cell.TenantPolicy) []cell.TenantPolicy {
	var out []cell.TenantPolicy
	for _, p := range m.people {
		if b != nil && p.org == b && (changed == nil || changed.Tenant != p.policy.Tenant) {
			out = append(out, p.policy)
		}
	}
	if changed != nil {
		out = append(out, *changed)
	}
	return out
}

// breaks reports whether an organization's promise cannot be kept with these tenants below it.
func (m *naive) breaks(p cell.OrganizationPolicy, tenants []cell.TenantPolicy) bool {
	var sum [2]cell.Rate
	for _, t := range tenants {
		for class, r := range t.Reservation {
			sum[class] += r
		}
	}
	for class, r := range p.Reservation {
		if r != 0 && r < sum[class] {
			return true
		}
	}
	if p.Limit == 0 {
		return false
	}
	// No less than its own reservation, and more than those below it.
	return p.Limit < p.Reservation[0]+p.Reservation[1] || sum[0]+sum[1] > 0 && p.Limit <= sum[0]+sum[1]
}

// setTenant is rule 3 for a tenant; true when it is refused.
func (m *naive) setTenant(p cell.TenantPolicy, now cell.Instant) bool {
	b := m.branch(p.Organization)
	if p.Organization != "" && b == nil || p.Limit > 0 && p.Limit < p.Reservation[0]+p.Reservation[1] {
		return true
	}
	if b != nil && m.breaks(b.policy, m.promisedBelow(b, &p)) {
		return true
	}
	n := m.person(p.Tenant)
	if n == nil {
		n = &person{org: b, limit: never, spend: never}
		for class := range 2 {
			parent := m.roots[class]
			if b != nil {
				parent = b.inner[class]
			}
			l := &leaf{
				person: n, class: class, active: map[drr.SetID]bool{}, joined: map[drr.SetID]bool{},
			}
			l.reserve = reserve{
				tags: map[drr.SetID]cell.Instant{}, waits: func(set drr.SetID) bool { return l.joined[set] },
				floor: func(set drr.SetID) cell.Instant { return b.floor(virtualID{class, set}) },
				rate:  func() cell.Rate { return n.policy.Reservation[class] },
			}
			l.flow = parent.join(l, p.Weight)
			n.lanes[class] = l
		}
		m.people = append(m.people, n)
	}
	n.limit = m.rescaled(n.limit, n.policy.Limit, p.Limit)
	for class, l := range n.lanes {
		from := n.policy.Reservation[class]
		l.become(m, class, from, p.Reservation[class])
		n.policy.Reservation[class] = p.Reservation[class]
		parent := m.roots[class]
		if b != nil {
			parent = b.inner[class]
		}
		parent.reweigh(l.flow, p.Weight)
	}
	m.setCredit(n, p.Credit)
	n.policy = p
	m.seat(n)
	m.refresh()
	return false
}

// rescaled is a limit's tag after a change of its rate: what is left to pay is paid at the new one.
func (m *naive) rescaled(at cell.Instant, from, to cell.Rate) cell.Instant {
	switch {
	case from == to:
		return at
	case from == 0 || to == 0:
		return never
	default:
		return later(m.now, at, from, to)
	}
}

// later is a tag after a change of its rate: what is ahead of now takes as much longer or shorter.
func later(now, at cell.Instant, from, to cell.Rate) cell.Instant {
	if at <= now {
		return at
	}
	return now.Add(time.Duration(int64(at.Sub(now)) * int64(from/1e6) / int64(to/1e6)))
}

// become changes the rate of a reservation. A new one counts from now.
func (r *reserve) become(m *naive, class int, from, to cell.Rate) {
	switch {
	case from == to || to == 0:
		return
	case from == 0:
		r.home = m.present(virtualID{class, r.from})
	default:
		r.home = later(m.present(virtualID{class, r.from}), r.home, from, to)
	}
	for _, set := range m.sets {
		id := virtualID{class, set}
		at, ok := r.tags[set]
		switch {
		case ok && from == 0:
			r.tags[set] = m.pass(id)
		case ok:
			r.tags[set] = later(m.virtual[id].v, at, from, to)
		}
		if from == 0 && r.waits(set) {
			m.pass(id)
			r.rise(m, id)
		}
	}
}

// setCredit changes the bucket: a larger one has as much more in it at once.
func (m *naive) setCredit(p *person, c cell.Credit) {
	old := p.policy.Credit
	if old == c {
		return
	}
	if p.filling == 0 {
		p.credit = c.Max
	} else {
		p.credit = min(m.creditNow(p)+max(0, c.Max-old.Max), c.Max)
		p.filling = max(p.filling, m.now)
	}
	if old.Extra > 0 && c.Extra > 0 {
		p.spend = later(m.now, p.spend, old.Extra, c.Extra)
	}
}

// wake is when the next lane that a limit blocks may run, and 0 when there is none.
func (m *naive) wake() cell.Instant {
	var best cell.Instant
	sooner := func(at cell.Instant) {
		if at > m.now && (best == 0 || at < best) {
			best = at
		}
	}
	for _, p := range m.people {
		for _, l := range p.lanes {
			for _, active := range l.active { // order-free: the least of all
				if active && l.held == 0 {
					at := p.limit
					if p.org != nil {
						at = max(at, p.org.limit)
					}
					sooner(at)
				}
			}
		}
	}
	return best
}

// fire lets those go on whose limit has let go, in the order of the times and of their ids.
func (m *naive) fire() {
	type due struct {
		at   cell.Instant
		ids  [2]string
		turn func()
	}
	var all []due
	for _, p := range m.people {
		all = append(all, due{p.limit, [2]string{p.top(), string(p.policy.Tenant)}, func() { m.refreshPerson(p) }})
	}
	for _, b := range m.branches {
		all = append(all, due{b.limit, [2]string{string(b.policy.Organization)}, func() { m.refreshBranch(b) }})
	}
	slices.SortFunc(all, func(a, b due) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.ids[0], b.ids[0]), cmp.Compare(a.ids[1], b.ids[1]))
	})
	for _, d := range all {
		d.turn()
	}
	for _, p := range m.people {
		m.seat(p)
	}
}
