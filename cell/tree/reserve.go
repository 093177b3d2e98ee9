package tree

import (
	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/drr"
)

// entry is what a node has in an offer set beside its place in the rotation. R is in the set's own virtual time: sets fall behind by how short
// each is of servers, and a tag of one says nothing in another. Every charge moves R in all of them.
type entry[T any] struct {
	reserved seat[T] // by R; among the tenants', or an organization's own among the organizations'
	credit   seat[T] // by K
}

// extra is what few nodes have: a standing from before a restart, a reservation, credit. An organization's node always has one.
type extra[T any] struct {
	branch    *branch[T] // the organization's part that it is the node of; nil for a tenant's lane
	inherited *inherited

	rate int64     // r, micro-units of cost per second; 0: no reservation
	part int64     // of the next nanosecond of R, in 1/rate
	from drr.SetID // where the reservation was charged last
	home int64     // R there, as long as the node has no entry in that set

	entries bySet[entry[T]]
}

// enter returns the node's entry in a set, made if need be with R as far ahead of the set's virtual time as it is elsewhere.
func (t *Tree[T]) enter(l *Lane[T], set drr.SetID) *entry[T] {
	x := l.more()
	if e := x.entries.get(set); e != nil {
		return e
	}
	ahead := t.ahead(l)
	e, _ := x.entries.open(set)
	e.reserved.lane, e.reserved.id = l, l.id()
	e.credit.lane, e.credit.id = l, l.id()
	e.reserved.key = add(t.sides[l.class].offers[set].v, ahead)
	return e
}

// virtual is the set's virtual time now: moved on by what has passed, and to no more than two bursts after the least tag of those that wait.
// Under scarcity it therefore runs slower, and what everybody is promised shrinks in proportion; lost time stays lost. In a set that nobody
// waits in, a closed one too, it runs like real time.
func (o *offer[T]) virtual(now cell.Instant, burst int64) int64 {
	v := add(o.v, int64(now.Sub(o.polled)))
	if r := o.reserved.least(); r != nil {
		v = min(v, add(r.key, 2*burst))
	}
	if r := o.assured.least(); r != nil {
		v = min(v, add(r.key, 2*burst))
	}
	return v
}

// pass moves the set's virtual time on.
func (o *offer[T]) pass(now cell.Instant, burst int64) {
	o.v, o.polled = o.virtual(now, burst), now
}

// joinReserved makes a node with a reservation wait by its tag. What it could not use while it did not wait is lost but for a burst.
func (t *Tree[T]) joinReserved(l *Lane[T], set drr.SetID) {
	if l.extra == nil || l.extra.rate == 0 {
		return
	}
	s := &t.sides[l.class]
	o := &s.offers[set]
	o.pass(t.now, s.burst)
	e := t.enter(l, set)
	e.reserved.key = max(e.reserved.key, sub(o.v, s.burst))
	t.touched += t.reservedHeap(l, set).put(&e.reserved)
}

// reservedHeap is where the node waits by R.
func (t *Tree[T]) reservedHeap(l *Lane[T], set drr.SetID) *heap[T] {
	if l.tenant == nil {
		return &t.sides[l.class].offers[set].assured
	}
	if b := l.branch(); b != nil {
		return &b.bough(set).reserved
	}
	return &t.sides[l.class].offers[set].reserved
}

// reserve charges a cost to the node's reservation, or gives one back.
func (t *Tree[T]) reserve(l *Lane[T], set drr.SetID, cost int64) {
	x := l.extra
	if x == nil || x.rate == 0 {
		return
	}
	step := tag{part: x.part}
	step.move(cost, x.rate)
	x.part = step.part
	for sets := x.entries.sets; sets != 0; sets &= sets - 1 {
		t.moveReserved(l, first(sets), step.at)
	}
	if x.entries.get(set) != nil {
		x.from = set
	}
	x.home = add(x.home, step.at)
}

// moveReserved moves R in one set.
func (t *Tree[T]) moveReserved(l *Lane[T], set drr.SetID, by int64) {
	s := &t.sides[l.class]
	o := &s.offers[set]
	e := l.extra.entries.get(set)
	at := e.reserved.key
	if !e.reserved.seated() {
		e.reserved.key = add(at, by)
		return
	}
	b := l.branch()
	if b != nil {
		at = max(at, b.bough(set).floor)
	}
	e.reserved.key = add(at, by)
	if by < 0 {
		// A refund must not turn back the virtual time, which would take from everybody else what they were promised.
		e.reserved.key = max(e.reserved.key, min(at, sub(o.v, 2*s.burst)))
	}
	t.touched += t.reservedHeap(l, set).put(&e.reserved)
	if b != nil {
		t.refresh(b, set)
	}
}

// refresh brings the organization's places among those that wait by R and by K up to the least inside it.
func (t *Tree[T]) refresh(b *branch[T], set drr.SetID) {
	o, g := &t.sides[b.node.class].offers[set], b.bough(set)
	waits := b.node.sets>>set&1 == 1
	t.represent(&o.reserved, &g.leastReserved, g.reserved.least(), waits, g.floor)
	t.represent(&o.credit, &g.leastCredit, g.credit.least(), waits, never)
}

// represent makes an organization's seat stand for the first one inside it, whose key counts as a floor when it is below.
func (t *Tree[T]) represent(h *heap[T], s, inside *seat[T], waits bool, floor int64) {
	if inside == nil || !waits {
		t.touched += h.remove(s)
		return
	}
	key := max(inside.key, floor)
	if !s.seated() || s.key != key || s.lane != inside.lane {
		s.key, s.lane = key, inside.lane
		t.touched += h.put(s)
	}
}

// ahead is how far R is before the virtual time of the set in which it was charged last. A node that does not wait is owed no more than a burst.
func (t *Tree[T]) ahead(l *Lane[T]) int64 {
	x := l.extra
	if x == nil || x.rate == 0 {
		return 0
	}
	s := &t.sides[l.class]
	o, e, at := &s.offers[x.from], x.entries.get(x.from), x.home
	if e != nil {
		at = e.reserved.key
		if e.reserved.seated() {
			if b := l.branch(); b != nil {
				at = max(at, b.bough(x.from).floor)
			}
			return sub(at, o.v)
		}
	}
	return max(sub(at, o.virtual(t.now, s.burst)), -s.burst)
}

// setReservation changes a node's rate. A new reservation counts from now; one that was there keeps what was charged beyond it, and how long it
// has been waiting.
func (t *Tree[T]) setReservation(l *Lane[T], rate int64) {
	if l.extra == nil && rate == 0 || l.extra != nil && l.extra.rate == rate {
		return
	}
	x, s := l.more(), &t.sides[l.class]
	old := x.rate
	x.rate = rate
	x.part = 0
	o := &s.offers[x.from]
	if old == 0 {
		if !t.isOpen(x.from) && t.open != 0 {
			x.from = first(t.open)
			o = &s.offers[x.from]
		}
		x.home = o.virtual(t.now, s.burst)
	} else if rate > 0 {
		x.home = rescaled(x.home, o.virtual(t.now, s.burst), old, rate)
	}
	for sets := x.entries.sets; sets != 0; sets &= sets - 1 {
		set := first(sets)
		o, e := &s.offers[set], x.entries.get(set)
		switch {
		case rate == 0:
			t.touched += t.reservedHeap(l, set).remove(&e.reserved)
		case old == 0:
			o.pass(t.now, s.burst)
			e.reserved.key = o.v
		default:
			e.reserved.key = rescaled(e.reserved.key, o.v, old, rate)
			if e.reserved.seated() {
				t.touched += t.reservedHeap(l, set).put(&e.reserved)
			}
		}
	}
	for sets := t.joined(l); sets != 0; sets &= sets - 1 {
		if set := first(sets); rate > 0 && old == 0 {
			t.joinReserved(l, set)
		}
		if b := l.branch(); b != nil {
			t.refresh(b, first(sets))
		}
	}
}

// joined are the sets in which the node waits for its turn at its parent.
func (t *Tree[T]) joined(l *Lane[T]) uint64 {
	if l.tenant != nil && l.tenant.blocked() {
		return 0
	}
	return l.sets
}
