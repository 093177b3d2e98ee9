package tree

import (
	"fmt"
	"time"

	"github.com/fairlead/fairlead/cell"
)

// SetOrganization adds an organization or changes its policy; what is active is served by it at once. It returns a *cell.FieldError, or several
// joined, when the policy is out of bounds or does not hold what its tenants reserve, and a *cell.LimitError when there are
// Config.OrganizationsMax others. Nothing is changed then.
func (t *Tree[T]) SetOrganization(p cell.OrganizationPolicy) error {
	o := t.organizations[p.Organization]
	if err := t.checkOrganization(p, o); err != nil {
		return err
	}
	if o == nil {
		o = &organization[T]{}
		for i := range o.branches {
			b := &o.branches[i]
			b.organization, b.node.class, b.node.extra, b.extra.branch = o, uint8(i), &b.extra, b
		}
		t.organizations[p.Organization] = o
	}
	o.policy = p
	for i := range o.branches {
		must(t.reweigh(&o.branches[i].node))
		t.setReservation(&o.branches[i].node, int64(p.Reservation[i]))
	}
	t.setOrganizationLimit(o)
	return nil
}

func (t *Tree[T]) setOrganizationLimit(o *organization[T]) {
	if o.meter == nil {
		if o.policy.Limit == 0 {
			return
		}
		o.meter = newMeter(&o.branches[0].node)
	}
	o.meter.setLimit(int64(o.policy.Limit), int64(t.now))
	t.gate(o)
}

func (t *Tree[T]) checkOrganization(p cell.OrganizationPolicy, o *organization[T]) error {
	if err := p.Check(); err != nil {
		return err
	}
	if o != nil {
		return p.CheckReserved(o.reserved)
	}
	if err := cell.CheckID("organization.id", string(p.Organization)); err != nil {
		return err
	}
	if len(t.organizations) >= t.cfg.OrganizationsMax {
		return &cell.LimitError{
			Limit: "organizations_max", Scope: cell.ScopeCell, Value: int64(len(t.organizations)) + 1, Bound: int64(t.cfg.OrganizationsMax),
			RetryAfter: time.Hour, Remedy: "place its tenants in another cell, or raise the cell's bound",
		}
	}
	return nil
}

// SetTenant adds a tenant or changes its policy; value makes what the caller keeps with each lane of a new one. Whatever changes reaches what is
// active at once, also a move to another organization, which takes what its lanes owe with it. It returns a *cell.FieldError, or several joined,
// when the policy is out of bounds, its organization is not known, or does not hold its reservations; and a *cell.LimitError when there are
// Config.LanesMax other lanes. Nothing is changed then.
func (t *Tree[T]) SetTenant(p cell.TenantPolicy, value func(cell.Class) T) (*Tenant[T], error) {
	n := t.tenants[p.Tenant]
	if err := t.checkTenant(p, n); err != nil {
		return nil, err
	}
	if n == nil {
		n = &Tenant[T]{id: p.Tenant}
		for i := range n.lanes {
			l := &n.lanes[i]
			l.tenant, l.class, l.Value = n, uint8(i), value(cell.Classes()[i])
		}
		t.tenants[p.Tenant] = n
	}
	if to := t.organizations[p.Organization]; to != n.organization {
		t.move(n, to)
	}
	if o := n.organization; o != nil {
		old := n.Policy().Reservation
		for i := range o.reserved {
			o.reserved[i] += p.Reservation[i] - old[i]
		}
	}
	if n.Groups() != p.Groups {
		t.carry(n)
	}
	n.set(p)
	for i := range n.lanes {
		must(t.reweigh(&n.lanes[i]))
		t.setReservation(&n.lanes[i], int64(p.Reservation[i]))
	}
	t.setMeter(n, p)
	return n, nil
}

// move gives the tenant another parent. What its lanes owe goes with them; so does what they have reserved, in the sum of their parent.
func (t *Tree[T]) move(n *Tenant[T], to *organization[T]) {
	var debts [2]inherited
	for i := range n.lanes {
		l := &n.lanes[i]
		for sets := t.joined(l); sets != 0; sets &= sets - 1 {
			t.leave(l, first(sets))
		}
		debts[i].rounds, debts[i].deficit = t.debt(l)
		if l.flow != nil {
			t.ring(l).Remove(l.flow)
			l.flow = nil
		}
	}
	// Ties are broken by ids that change now.
	if n.meter != nil {
		t.timers.remove(&n.meter.timer)
	}
	reserved := n.Policy().Reservation
	for i, r := range reserved {
		if n.organization != nil {
			n.organization.reserved[i] -= r
		}
		if to != nil {
			to.reserved[i] += r
		}
	}
	n.organization = to
	for i := range n.lanes {
		l := &n.lanes[i]
		t.inherit(l, debts[i].rounds, debts[i].deficit)
		for sets := t.joined(l); sets != 0; sets &= sets - 1 {
			t.join(l, first(sets))
		}
	}
	if n.meter != nil {
		t.arm(n)
	}
}

// carry makes the tenant's lanes owe what they do in offer sets too in which they do not wait: a new hand is other sets, and no pardon.
func (t *Tree[T]) carry(n *Tenant[T]) {
	for i := range n.lanes {
		l := &n.lanes[i]
		if rounds, deficit := t.debt(l); rounds > 0 {
			t.inherit(l, rounds, deficit)
		}
	}
}

// setMeter changes the tenant's limit and credit.
func (t *Tree[T]) setMeter(n *Tenant[T], p cell.TenantPolicy) {
	if n.meter == nil {
		if p.Limit == 0 && p.Credit == (cell.Credit{}) {
			return
		}
		n.meter = newMeter(&n.lanes[0])
	}
	n.meter.setLimit(int64(p.Limit), int64(t.now))
	n.meter.setCredit(p.Credit, int64(t.now))
	t.look(n)
}

func (t *Tree[T]) checkTenant(p cell.TenantPolicy, n *Tenant[T]) error {
	if err := p.Check(); err != nil {
		return err
	}
	if n == nil {
		if err := cell.CheckID("tenant.id", string(p.Tenant)); err != nil {
			return err
		}
		if lanes := 2 * (len(t.tenants) + 1); lanes > t.cfg.LanesMax {
			return &cell.LimitError{
				Limit: "lanes_max", Scope: cell.ScopeCell, Value: int64(lanes), Bound: int64(t.cfg.LanesMax),
				RetryAfter: time.Hour, Remedy: "place the tenant in another cell, or raise the cell's bound",
			}
		}
	}
	if p.Organization == "" {
		return nil
	}
	o := t.organizations[p.Organization]
	if o == nil {
		return &cell.FieldError{
			Field: "organization", Problem: fmt.Sprintf("is %.40q, which the cell does not know", p.Organization),
			Remedy: "make the organization known first, or name another",
		}
	}
	others := o.reserved
	if n != nil && n.organization == o {
		old := n.Policy().Reservation
		others[0] -= old[0]
		others[1] -= old[1]
	}
	return p.CheckWithin(o.policy, others)
}

// set keeps the policy, in as little memory as it needs.
func (n *Tenant[T]) set(p cell.TenantPolicy) {
	n.weight, n.epoch, n.policy = p.Weight, p.Epoch, nil
	if p != (cell.TenantPolicy{Tenant: p.Tenant, Organization: p.Organization, Weight: p.Weight, Epoch: p.Epoch}) {
		n.policy = &p
	}
}

func (t *Tree[T]) reweigh(l *Lane[T]) error {
	if l.flow == nil {
		return nil
	}
	return t.ring(l).SetWeight(l.flow, l.weight())
}
