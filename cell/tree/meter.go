package tree

import (
	"math"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/drr"
)

// never is before every time: the tag of what was never charged.
const never = int64(math.MinInt64)

// meter is the accounts of a tenant's limit and credit, or of an organization's limit. Both classes charge them.
type meter[T any] struct {
	timer seat[T] // when the limit lets go or the bucket has something again; seated while anybody waits for that

	rate  int64 // of the limit, micro-units of cost per second; 0: none
	limit tag   // L

	credit  cell.Credit
	spent   tag   // K
	balance int64 // C, as of filled
	filled  int64 // when the bucket began or begins to fill; never: it was never spent from, and is full
	rich    bool  // it had something when last looked at
}

func newMeter[T any](l *Lane[T]) *meter[T] {
	return &meter[T]{timer: seat[T]{lane: l, id: l.id()}, limit: tag{at: never}, spent: tag{at: never}, filled: never}
}

// setLimit changes the limit's rate: what is still to be paid then takes as much longer or shorter. Without a limit nothing is.
func (m *meter[T]) setLimit(rate, now int64) {
	switch {
	case m.rate == rate:
	case m.rate == 0 || rate == 0:
		m.limit = tag{at: never}
	default:
		m.limit = tag{at: rescaled(m.limit.due(), now, m.rate, rate)}
	}
	m.rate = rate
}

// setCredit changes the bucket. A larger one has as much more in it at once.
func (m *meter[T]) setCredit(c cell.Credit, now int64) {
	if m.credit == c {
		return
	}
	if m.filled != never {
		m.balance = m.holds(now)
		m.filled = max(m.filled, now)
		if more := int64(c.Max - m.credit.Max); more > 0 {
			m.balance = add(m.balance, more)
		}
		m.balance = min(m.balance, int64(c.Max))
	}
	if m.credit.Extra > 0 && c.Extra > 0 {
		m.spent = tag{at: rescaled(m.spent.due(), now, int64(m.credit.Extra), int64(c.Extra))}
	}
	m.credit = c
}

// charge takes a cost from the limit, or gives one back.
func (m *meter[T]) charge(cost, now, burst int64) {
	if m.rate == 0 {
		return
	}
	if cost > 0 {
		m.limit.raise(sub(now, burst))
	}
	m.limit.move(cost, m.rate)
}

// limited reports whether the limit blocks. The last time there is never comes.
func (m *meter[T]) limited(now int64) bool {
	at := m.limit.due()
	return m.rate > 0 && (at > now || at == math.MaxInt64)
}

// spend takes a cost from the credit, or gives one back. The first spending after a pause of more than a burst starts afresh, so that a bucket
// lasts as long as it holds at the extra rate, whenever that begins; later ones may catch up with as much as they missed within a burst.
func (m *meter[T]) spend(cost, now, burst int64) {
	if m.credit.Extra == 0 {
		return
	}
	m.balance = m.holds(now)
	if cost > 0 && m.spent.at < sub(now, burst) {
		m.spent = tag{at: now}
	}
	m.spent.move(cost, int64(m.credit.Extra))
	m.balance = min(sub(m.balance, cost), int64(m.credit.Max))
	m.filled = m.spent.due()
	if m.balance > 0 {
		// Who is served a little late is still spending; who has nothing left is not.
		m.filled = add(m.filled, burst)
	}
	m.filled = max(now, m.filled)
}

// holds is what is in the bucket.
func (m *meter[T]) holds(now int64) int64 {
	if m.filled == never {
		return int64(m.credit.Max)
	}
	if m.credit.Refill == 0 || now <= m.filled {
		return m.balance
	}
	earned, _ := muldiv(sub(now, m.filled), int64(m.credit.Refill), second)
	return min(add(m.balance, earned), int64(m.credit.Max))
}

// fills is when an empty bucket will have something again; the last time there is for never.
func (m *meter[T]) fills() int64 {
	if m.credit.Refill == 0 {
		return math.MaxInt64
	}
	wait, rest := muldiv(sub(1, m.balance), second, int64(m.credit.Refill))
	if rest > 0 {
		wait = add(wait, 1)
	}
	return add(m.filled, wait)
}

// look brings everything that depends on the tenant's limit and credit up to the present: whether it is blocked, whether its lanes wait by K, and
// when to look again.
func (t *Tree[T]) look(n *Tenant[T]) {
	m := n.meter
	if m == nil {
		return
	}
	was, rich, now := n.blocked(), m.rich, int64(t.now)
	n.limited = m.limited(now)
	m.rich = m.credit.Extra > 0 && m.holds(now) > 0
	t.turn(n, was)
	if (rich || m.rich) && !n.blocked() {
		for i := range n.lanes {
			l := &n.lanes[i]
			for sets := l.sets; sets != 0; sets &= sets - 1 {
				t.seatCredit(l, first(sets))
			}
		}
	}
	t.arm(n)
}

// seatCredit gives a lane that may run its place by K, or takes it.
func (t *Tree[T]) seatCredit(l *Lane[T], set drr.SetID) {
	h, b, m := &t.sides[l.class].offers[set].credit, l.branch(), l.tenant.meter
	if b != nil {
		h = &b.bough(set).credit
	}
	if m.rich {
		e := t.enter(l, set)
		if key := m.spent.due(); !e.credit.seated() || e.credit.key != key {
			e.credit.key = key
			t.touched += h.put(&e.credit)
		}
	} else if l.extra != nil {
		if e := l.extra.entries.get(set); e != nil {
			t.touched += h.remove(&e.credit)
		}
	}
	if b != nil {
		t.refresh(b, set)
	}
}

// arm sets the time to look at the tenant again.
func (t *Tree[T]) arm(n *Tenant[T]) { t.setTimer(&n.meter.timer, n.changes()) }

// changes is when what blocks the tenant, or its lack of credit, ends by time alone; the last time there is for never.
func (n *Tenant[T]) changes() int64 {
	m := n.meter
	switch {
	case n.lanes[0].sets|n.lanes[1].sets == 0:
		return math.MaxInt64 // nobody waits for it
	case n.limited:
		return m.limit.due()
	case n.held == 0 && !m.rich && m.credit.Extra > 0:
		return m.fills()
	default:
		return math.MaxInt64
	}
}

// gate brings an organization's limit up to the present: with one step for each offer set in which any of its lanes waits, however many do.
func (t *Tree[T]) gate(o *organization[T]) {
	m := o.meter
	if m == nil {
		return
	}
	if is := m.limited(int64(t.now)); is != o.limited {
		o.limited = is
		for i := range o.branches {
			b := &o.branches[i]
			for sets := b.boughs.sets; sets != 0; sets &= sets - 1 {
				t.turnBranch(b, first(sets))
			}
		}
	}
	t.setTimer(&m.timer, o.changes())
}

// changes is when the organization's limit lets go of those that wait for it; the last time there is for never.
func (o *organization[T]) changes() int64 {
	if o.limited && o.runnable > 0 {
		return o.meter.limit.due()
	}
	return math.MaxInt64
}

// turnBranch makes an organization join or leave when its limit has begun or ceased to block.
func (t *Tree[T]) turnBranch(b *branch[T], set drr.SetID) {
	g, o := b.bough(set), &t.sides[b.node.class].offers[set]
	switch {
	case g.runnable == 0:
	case b.organization.limited:
		o.waiting -= g.runnable
		t.leaveRoot(b, set)
	default:
		o.waiting += g.runnable
		t.joinRoot(b, set)
	}
}

// setTimer makes the timer go off at a time; the last time there is stands for not at all.
func (t *Tree[T]) setTimer(s *seat[T], at int64) {
	if at == math.MaxInt64 {
		t.timers.remove(s)
		return
	}
	if !s.seated() || s.key != at {
		s.key = at
		t.timers.put(s)
	}
}

// fire looks at everybody whose time has come.
func (t *Tree[T]) fire() {
	for {
		s := t.timers.least()
		if s == nil || s.key > int64(t.now) {
			return
		}
		t.timers.remove(s)
		if l := s.lane; l.tenant != nil {
			t.look(l.tenant)
		} else {
			t.gate(l.extra.branch.organization)
		}
	}
}
