package drr

import "fmt"

// Activate says that the flow has something ready for the set. It does nothing to a flow that is active there. A flow
// in debt keeps its place; any other starts in the current round, at its end, with one quantum. It panics if the set
// is not open or the flow was removed: both are the caller's bookkeeping.
func (r *Ring[T]) Activate(f *Flow[T], set SetID) {
	e, w := r.standing(f, set)
	if e == nil {
		panic(fmt.Sprintf("drr: activate in set %d: set open %t, flow in ring %t", set, r.Open(set), r.owns(f)))
	}
	if e.place != nowhere {
		return
	}
	w.file(e)
	// Here, and not when a dispatch needs it: a dispatch allocates nothing.
	w.far.reserve(w.active)
}

// Deactivate says that the flow has nothing ready for the set any more, or may not run. What is left of its deficit
// ends with the round; debt stays. It does nothing to a flow that is not active there.
func (r *Ring[T]) Deactivate(f *Flow[T], set SetID) {
	e, w := r.account(f, set)
	if e == nil || e.place == nowhere {
		return
	}
	w.unfile(e)
}

// Next returns the flow that the set's servers should serve next, or false if none is active. It does not charge: the
// same flow is returned until something changes. Asking does move the round on.
func (r *Ring[T]) Next(set SetID) (*Flow[T], bool) {
	r.touched = 0
	o := r.offer(set)
	if o == nil {
		return nil, false
	}
	w := &o.main
	if w.active == 0 {
		w = &o.zero
		if w.active == 0 {
			return nil, false
		}
	}
	for refiles := 0; ; refiles++ {
		e := w.first()
		w.turn(e)
		r.touched++
		if refiles == RefilesMax || !w.catchUp(e) {
			return e.flow, true
		}
	}
}

// Charge takes the cost of a dispatch, in micro-units, from the flow's account in the set that served it. A cost
// below one counts as one, so that nothing is served for free without end. It does nothing if the set is not open or
// the flow was removed.
func (r *Ring[T]) Charge(f *Flow[T], set SetID, cost int64) {
	cost = max(cost, 1)
	e, w := r.standing(f, set)
	if e == nil {
		return
	}
	w.debit(e, cost)
	if w.alone(e) {
		w.due = add(w.due, 1) // the grant's own round, which a cost below the quantum would not fill
	}
	if f.weight == 0 {
		// What only flows of weight zero wanted was free for everybody else.
		r.sets[set].main.pass(cost, r.cfg.Quantum)
	}
}

// Settle corrects an earlier charge in the same set: a positive delta is charged on top, a negative one is given back.
// A refund brings the flow forward, at most to the current round. It does nothing if the set is not open or the flow
// was removed.
func (r *Ring[T]) Settle(f *Flow[T], set SetID, delta int64) {
	e, w := r.standing(f, set)
	switch {
	case e == nil || delta == 0:
	case delta > 0:
		w.debit(e, delta)
	default:
		w.credit(e, delta)
	}
}

// Idle says that a server with the set's offer was free for the time, in micro-units of cost, because nobody waited
// for it. Debt in a ring that is empty then shrinks by a round per quantum.
// Rings with a shared clock take it as time of their own, beside that of [IdleClock].
func (r *Ring[T]) Idle(set SetID, time int64) {
	if o := r.offer(set); o != nil {
		o.pass(time, r.cfg.Quantum)
	}
}

// IdleAll is Idle for every open set.
func (r *Ring[T]) IdleAll(time int64) {
	for set := range r.sets {
		r.Idle(SetID(set), time)
	}
}
