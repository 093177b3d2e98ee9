package tree

import (
	"time"

	"github.com/fairlead/fairlead/cell"
)

// Standing is why a lane waits or will: for explanations. What is of the tenant's organization is zero when it has none.
type Standing struct {
	// Held says that a cap of the tenant's is in the way.
	Held bool
	// LimitedUntil is when the tenant's limit lets it run again, and OrganizationLimitedUntil when its organization's does; 0 when they do.
	LimitedUntil, OrganizationLimitedUntil cell.Instant

	Own, Organization Shares

	// Credit is what is in the bucket now, in micro-units; negative is owed.
	Credit cell.Cost
	// CreditTag is when the tenant may spend credit again, and Spendable says that it may now.
	CreditTag cell.Instant
	Spendable bool
}

// Shares is where a node stands with its reservation in the class and in its parent's rotation.
type Shares struct {
	Reservation cell.Rate // 0: none
	// Ahead is how far the reservation's tag is before the virtual time: above 0, what is reserved was had already.
	Ahead time.Duration
	// Rounds is how many rounds of the rotation the node waits for until it may be served from what is spare, and Deficit what it may
	// spend then, in micro-units.
	Rounds, Deficit int64
	Weight          cell.Weight
}

// Standing returns where the lane stands now, in the offer set that it was charged in last.
func (t *Tree[T]) Standing(l *Lane[T]) Standing {
	n, now := l.tenant, int64(t.now)
	s := Standing{Held: n.held > 0, Own: t.shares(l)}
	if m := n.meter; m != nil {
		s.LimitedUntil = m.until(now)
		if m.credit.Extra > 0 {
			s.Credit, s.CreditTag = cell.Cost(m.holds(now)), instantOf(m.spent)
			s.Spendable = s.Credit > 0 && m.spent.due() <= now
		}
	}
	if b := l.branch(); b != nil {
		s.Organization = t.shares(&b.node)
		if m := b.organization.meter; m != nil {
			s.OrganizationLimitedUntil = m.until(now)
		}
	}
	return s
}

// until is when the limit lets go; 0 when it does not block.
func (m *meter[T]) until(now int64) cell.Instant {
	if !m.limited(now) {
		return 0
	}
	return cell.Instant(m.limit.due())
}

func (t *Tree[T]) shares(l *Lane[T]) Shares {
	s := Shares{Weight: cell.Weight(l.weight()), Ahead: time.Duration(t.ahead(l))}
	if l.extra != nil {
		s.Reservation = cell.Rate(l.extra.rate)
	}
	s.Rounds, s.Deficit = t.debt(l)
	return s
}
