package tree

import (
	"time"

	"github.com/fairlead/fairlead/cell"
)

// LaneAccount returns where the lane stands, as a fact that outlives the tree.
func (t *Tree[T]) LaneAccount(l *Lane[T]) cell.LaneAccount {
	var a cell.LaneAccount
	a.Rounds, a.Deficit = t.debt(l)
	a.Ahead = time.Duration(t.ahead(l))
	return a
}

// RestoreLane puts a lane's account back. In an offer set in which the lane waits already its turn stays as it is.
func (t *Tree[T]) RestoreLane(l *Lane[T], a cell.LaneAccount) {
	t.inherit(l, a.Rounds, a.Deficit)
	x := l.extra
	if x == nil || x.rate == 0 {
		return
	}
	s := &t.sides[l.class]
	x.home, x.part = add(s.offers[x.from].virtual(t.now, s.burst), int64(a.Ahead)), 0
	for sets := x.entries.sets; sets != 0; sets &= sets - 1 {
		set := first(sets)
		o, e := &s.offers[set], x.entries.get(set)
		o.pass(t.now, s.burst)
		e.reserved.key = add(o.v, max(int64(a.Ahead), -s.burst))
		if e.reserved.seated() {
			t.touched += t.reservedHeap(l, set).put(&e.reserved)
			if b := l.branch(); b != nil {
				t.refresh(b, set)
			}
		}
	}
}

// TenantAccount returns where the tenant stands with its limit and its credit.
func (t *Tree[T]) TenantAccount(n *Tenant[T]) cell.TenantAccount {
	m := n.meter
	if m == nil {
		return cell.TenantAccount{}
	}
	a := cell.TenantAccount{LimitTag: instantOf(m.limit), CreditTag: instantOf(m.spent)}
	if m.filled != never {
		a.Credit, a.CreditAt = cell.Cost(m.balance), cell.Instant(m.filled)
	}
	return a
}

// instantOf is a tag as a fact: 0 when nothing was ever charged to it.
func instantOf(t tag) cell.Instant { return cell.Instant(max(0, t.due())) }

// RestoreTenant puts a tenant's account back. It does nothing for one whose policy has neither a limit nor credit: give it its policy first.
func (t *Tree[T]) RestoreTenant(n *Tenant[T], a cell.TenantAccount) {
	m := n.meter
	if m == nil {
		return
	}
	m.limit, m.spent = tagOf(a.LimitTag), tagOf(a.CreditTag)
	m.balance, m.filled = 0, never
	if a.CreditAt != 0 {
		m.balance, m.filled = min(int64(a.Credit), int64(m.credit.Max)), int64(a.CreditAt)
	}
	t.look(n)
}

func tagOf(i cell.Instant) tag {
	if i == 0 {
		return tag{at: never}
	}
	return tag{at: int64(i)}
}

// OrganizationAccount returns where an organization stands; false when the tree does not know it.
func (t *Tree[T]) OrganizationAccount(id cell.OrganizationID) (cell.OrganizationAccount, bool) {
	o := t.organizations[id]
	if o == nil {
		return cell.OrganizationAccount{}, false
	}
	var a cell.OrganizationAccount
	for i := range o.branches {
		a.Lanes[i] = t.LaneAccount(&o.branches[i].node)
	}
	if o.meter != nil {
		a.LimitTag = instantOf(o.meter.limit)
	}
	return a, true
}

// RestoreOrganization puts an organization's account back; false when the tree does not know it.
func (t *Tree[T]) RestoreOrganization(id cell.OrganizationID, a cell.OrganizationAccount) bool {
	o := t.organizations[id]
	if o == nil {
		return false
	}
	for i := range o.branches {
		t.RestoreLane(&o.branches[i].node, a.Lanes[i])
	}
	if o.meter != nil {
		o.meter.limit = tagOf(a.LimitTag)
		t.gate(o)
	}
	return true
}

// debt returns how many rounds the node is behind in the set that its rotation charged last, and what it may spend then: 0 when it waits for no
// later round than the next. What was inherited is as far paid as it is in the set where most of it is.
func (t *Tree[T]) debt(l *Lane[T]) (rounds, deficit int64) {
	if l.extra != nil && l.extra.inherited != nil {
		rounds, deficit = leftOf(l.extra.inherited, t.ring(l), l.flow)
	} else if l.flow != nil {
		a := l.flow.Account(l.last)
		rounds, deficit = a.Behind, a.Deficit
	}
	if rounds <= 1 {
		return 0, 0
	}
	return rounds, deficit
}
