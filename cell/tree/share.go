package tree

import (
	"github.com/fairlead/fairlead/cell/drr"
)

// branchRounds is the wheel's size of an organization's rotation: there are many of them, and most have few flows.
const branchRounds = 64

// ring returns the rotation that the node has its place in.
func (t *Tree[T]) ring(l *Lane[T]) *drr.Ring[*Lane[T]] {
	b := l.branch()
	if b == nil {
		return t.sides[l.class].root
	}
	if b.ring == nil {
		r, err := drr.New[*Lane[T]](drr.Config{
			Quantum: t.cfg.Quantum, FlowsMax: t.cfg.LanesMax, Rounds: branchRounds, Idle: t.sides[l.class].idle,
		})
		must(err)
		b.ring = r
	}
	return b.ring
}

// share returns the rotation and the node's place in it, ready to be used in an open set.
func (t *Tree[T]) share(l *Lane[T], set drr.SetID) (*drr.Ring[*Lane[T]], *drr.Flow[*Lane[T]]) {
	r := t.ring(l)
	if !r.Open(set) {
		must(r.OpenSet(set))
	}
	if l.flow == nil {
		f, err := r.NewFlow(l, l.weight())
		must(err)
		l.flow = f
	}
	if l.extra != nil && l.extra.inherited != nil {
		apply(l.extra.inherited, r, l.flow, set)
	}
	return r, l.flow
}

// pay charges the node's place in the rotation, or settles what was charged there.
func (t *Tree[T]) pay(l *Lane[T], set drr.SetID, cost int64, granted bool) {
	if !t.isOpen(set) {
		return
	}
	r, f := t.share(l, set)
	before := r.Touched()
	if granted {
		r.Charge(f, set, cost)
	} else {
		r.Settle(f, set, cost)
	}
	t.touched += 1 + r.Touched() - before
	l.last = set
	if l.extra != nil {
		l.extra.inherited = nil
	}
}

// inherited is where a node stood before a restart or a move, until it is charged anew.
type inherited struct {
	rounds, deficit int64
	applied         uint64 // sets in which it has been taken into account
}

// inherit makes the node owe what it did elsewhere: in each set from now on, and at once where it does not wait yet.
func (t *Tree[T]) inherit(l *Lane[T], rounds, deficit int64) {
	if rounds <= 0 {
		if l.extra != nil {
			l.extra.inherited = nil
		}
		return
	}
	h := &inherited{rounds: rounds, deficit: deficit}
	l.more().inherited = h
	r := t.ring(l)
	for sets := t.open; sets != 0; sets &= sets - 1 {
		set := first(sets)
		if !r.Open(set) {
			continue // its rounds are yet to begin
		}
		h.applied |= 1 << set
		_, f := t.share(l, set)
		a := f.Account(set)
		r.Restore(f, set, drr.Account{Behind: rounds, Deficit: deficit, Charged: a.Charged, Largest: a.Largest})
	}
}

// apply gives the flow its old standing in a set in which it has none yet. A set's rounds begin at 0: as many of the debt are over by now.
func apply[T any](h *inherited, r *drr.Ring[*Lane[T]], f *drr.Flow[*Lane[T]], set drr.SetID) {
	if h.applied>>set&1 == 1 {
		return
	}
	h.applied |= 1 << set
	if left := h.rounds - round(r, f, set); left > 0 {
		a := f.Account(set)
		r.Restore(f, set, drr.Account{Behind: left, Deficit: h.deficit, Charged: a.Charged, Largest: a.Largest})
	}
}

// leftOf returns what is left to pay of what a node inherited, by the set in which the least is.
func leftOf[T any](h *inherited, r *drr.Ring[*Lane[T]], f *drr.Flow[*Lane[T]]) (rounds, deficit int64) {
	rounds, deficit = h.rounds, h.deficit
	if f == nil {
		return rounds, deficit
	}
	for set := range drr.SetID(drr.MaxSets) {
		switch {
		case !r.Open(set):
		case h.applied>>set&1 == 0:
			rounds = min(rounds, h.rounds-round(r, f, set))
		default:
			rounds = min(rounds, f.Account(set).Behind)
		}
	}
	return rounds, deficit
}

// round returns the present round of the flows that a flow is among.
func round[T any](r *drr.Ring[*Lane[T]], f *drr.Flow[*Lane[T]], set drr.SetID) int64 {
	c := r.Clock(set)
	if f.Weight() == 0 {
		return c.Zero.Round
	}
	return c.Main.Round
}
