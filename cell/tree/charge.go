package tree

import (
	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/drr"
)

// Charge takes the cost of a dispatch that Next picked from the accounts of its tier, and from the limits. A cost below 1 counts as 1, so that
// nothing is served for free without end.
func (t *Tree[T]) Charge(p Pick[T], set drr.SetID, cost cell.Cost) {
	t.account(p.Lane, set, p.Tier, int64(max(cost, 1)), true)
}

// Settle corrects what was charged for a dispatch, on the same accounts: a positive delta is charged on top, a negative one given back.
func (t *Tree[T]) Settle(l *Lane[T], set drr.SetID, tier Tier, delta cell.Cost) {
	if delta != 0 {
		t.account(l, set, tier, int64(delta), false)
	}
}

// account charges what the tier's accounts are, and the limits always. What is borrowed does not spend a reservation, and what is reserved does
// not spend a turn.
func (t *Tree[T]) account(l *Lane[T], set drr.SetID, tier Tier, cost int64, granted bool) {
	n, b := l.tenant, l.branch()
	now, burst := int64(t.now), t.sides[l.class].burst
	switch tier {
	case TierNone:
		return
	case TierReserved:
		t.reserve(l, set, cost)
		if b != nil {
			t.reserve(&b.node, set, cost)
		}
	case TierOrganization:
		if b != nil {
			t.reserve(&b.node, set, cost)
			t.pay(l, set, cost, granted)
		}
	case TierCredit:
		if n.meter != nil {
			n.meter.spend(cost, now, burst)
		}
	case TierShared:
		if b != nil {
			t.pay(&b.node, set, cost, granted)
		}
		t.pay(l, set, cost, granted)
	}
	l.charged = add(l.charged, cost)
	if n.meter != nil {
		n.meter.charge(cost, now, burst)
		t.look(n)
	}
	if b != nil && b.organization.meter != nil {
		b.organization.meter.charge(cost, now, burst)
		t.gate(b.organization)
	}
}

// Charged returns all that was charged to the lane in any tier, less what was given back.
func (t *Tree[T]) Charged(l *Lane[T]) cell.Cost { return cell.Cost(l.charged) }
