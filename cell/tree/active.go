package tree

import (
	"fmt"

	"github.com/fairlead/fairlead/cell/drr"
)

// Activate says that the lane has a ready job for the set with no cap in the way. It does nothing to a lane that is active there. It panics when
// the set is not open: that is the caller's bookkeeping.
func (t *Tree[T]) Activate(l *Lane[T], set drr.SetID) {
	if !t.isOpen(set) {
		panic(fmt.Sprintf("tree: activate %s/%s in set %d, which is not open", l.tenant.id, l.Class(), set))
	}
	if l.Active(set) {
		return
	}
	n := l.tenant
	fresh := n.lanes[0].sets|n.lanes[1].sets == 0
	if fresh {
		t.look(n) // while it had nothing nobody did
	}
	l.sets |= 1 << set
	t.sides[l.class].offers[set].active++
	if !n.blocked() {
		t.join(l, set)
	}
	if fresh && n.meter != nil {
		t.arm(n)
	}
}

// Deactivate says that the lane has nothing ready for the set any more, or that a cap is in the way. It does nothing to a lane that is not active
// there. What is left of its turn ends; what it owes stays.
func (t *Tree[T]) Deactivate(l *Lane[T], set drr.SetID) {
	if !l.Active(set) {
		return
	}
	if !l.tenant.blocked() {
		t.leave(l, set)
	}
	l.sets &^= 1 << set
	t.sides[l.class].offers[set].active--
	if n := l.tenant; n.meter != nil && n.lanes[0].sets|n.lanes[1].sets == 0 {
		t.arm(n)
	}
}

// Hold says that a cap of the tenant's is in the way of whatever it has, in both classes and all sets. Holds are counted.
func (t *Tree[T]) Hold(n *Tenant[T]) {
	was := n.blocked()
	n.held++
	t.turn(n, was)
	if n.held == 1 && n.meter != nil {
		t.arm(n)
	}
}

// Release takes one Hold back. It panics when there is none: that is the caller's bookkeeping.
func (t *Tree[T]) Release(n *Tenant[T]) {
	if n.held == 0 {
		panic(fmt.Sprintf("tree: release %s, which is not held", n.id))
	}
	was := n.blocked()
	n.held--
	t.turn(n, was)
	if n.held == 0 {
		t.look(n)
	}
}

func (n *Tenant[T]) blocked() bool { return n.held > 0 || n.limited }

// turn makes the tenant's active lanes join or leave when what blocks it has changed.
func (t *Tree[T]) turn(n *Tenant[T], was bool) {
	is := n.blocked()
	if was == is {
		return
	}
	for i := range n.lanes {
		l := &n.lanes[i]
		for sets := l.sets; sets != 0; sets &= sets - 1 {
			if is {
				t.leave(l, first(sets))
			} else {
				t.join(l, first(sets))
			}
		}
	}
}

// join makes a lane wait for its turn in the set: nothing of its tenant's is in the way.
func (t *Tree[T]) join(l *Lane[T], set drr.SetID) {
	r, f := t.share(l, set)
	r.Activate(f, set)
	t.joinReserved(l, set)
	if m := l.tenant.meter; m != nil && m.rich {
		t.seatCredit(l, set)
	}
	o, b := &t.sides[l.class].offers[set], l.branch()
	if b == nil {
		o.waiting++
		return
	}
	g, up := b.bough(set), b.organization
	if up.runnable == 0 {
		t.gate(up)
	}
	g.runnable++
	up.runnable++
	switch {
	case up.limited:
		if up.runnable == 1 {
			t.gate(up)
		}
	case g.runnable == 1:
		o.waiting++
		t.joinRoot(b, set)
	default:
		o.waiting++
		t.refresh(b, set)
	}
}

// leave is the end of join.
func (t *Tree[T]) leave(l *Lane[T], set drr.SetID) {
	t.ring(l).Deactivate(l.flow, set)
	o, b := &t.sides[l.class].offers[set], l.branch()
	reserved, credit := &o.reserved, &o.credit
	if b != nil {
		g := b.bough(set)
		reserved, credit = &g.reserved, &g.credit
	}
	if l.extra != nil {
		if e := l.extra.entries.get(set); e != nil {
			t.touched += reserved.remove(&e.reserved) + credit.remove(&e.credit)
		}
	}
	if b == nil {
		o.waiting--
		return
	}
	g, up := b.bough(set), b.organization
	g.runnable--
	up.runnable--
	if up.limited {
		if up.runnable == 0 {
			t.gate(up)
		}
		return
	}
	o.waiting--
	if g.runnable == 0 {
		t.leaveRoot(b, set)
	} else {
		t.refresh(b, set)
	}
}

// joinRoot makes an organization wait for its turn in the set: a lane inside it does, and its limit is not in the way.
func (t *Tree[T]) joinRoot(b *branch[T], set drr.SetID) {
	r, f := t.share(&b.node, set)
	r.Activate(f, set)
	s := &t.sides[b.node.class]
	o := &s.offers[set]
	o.pass(t.now, s.burst)
	b.node.sets |= 1 << set
	b.bough(set).floor = sub(o.v, s.burst)
	t.joinReserved(&b.node, set)
	t.refresh(b, set)
}

// leaveRoot is the end of joinRoot.
func (t *Tree[T]) leaveRoot(b *branch[T], set drr.SetID) {
	t.ring(&b.node).Deactivate(b.node.flow, set)
	b.node.sets &^= 1 << set
	if e := b.extra.entries.get(set); e != nil {
		t.touched += t.sides[b.node.class].offers[set].assured.remove(&e.reserved)
	}
	t.refresh(b, set)
}
