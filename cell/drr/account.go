package drr

import "math"

// NoStanding is the Behind of an account that its set knows nothing of.
const NoStanding int64 = math.MinInt64

// Account is a flow's standing in one set as a fact that outlives the process: relative to the set's round, because
// round numbers mean nothing elsewhere. [Flow.Account] reads it, [Ring.Restore] puts it back.
type Account struct {
	// Behind is the round of the account less the current one: how many rounds of debt are left. Negative means
	// that the account's round has passed and nothing of its deficit is left; NoStanding, that there is none.
	Behind int64
	// Deficit is what may be spent in that round, in micro-units.
	Deficit int64
	// Unseen is what other sets have charged that this set has not taken into account yet, in micro-units.
	Unseen int64
	// Charged is the flow's total over all sets, in micro-units; the same in each of its accounts.
	Charged int64
	// Largest is the flow's largest single charge; the same in each of its accounts.
	Largest int64
}

// Clock is a set's progress as a fact that outlives the process: that of its flows, and that of its flows of weight
// zero.
type Clock struct {
	Main, Zero Turn
}

// Turn is how far one order of flows has come.
type Turn struct {
	Round int64 // the current round
	Free  int64 // idle time that has not made a whole round yet, in micro-units
	Due   int64 // rounds that pass at the next grant to a flow that waits alone
	Part  int64 // cost charged to a flow alone that has not made a whole round yet, in micro-units
}

// Account returns the flow's standing in the set.
func (f *Flow[T]) Account(set SetID) Account {
	a := Account{Behind: NoStanding, Charged: f.charged, Largest: f.largest}
	if e, w := f.ring.account(f, set); e != nil && e.rho != noRound {
		a.Behind = e.rho - w.now
		a.Deficit = e.d
		a.Unseen = sub(f.charged, e.seen)
	}
	return a
}

// Restore puts an account back, replacing the flow's total, largest charge and standing in the set. An account that
// could not have been read from a Ring is brought into bounds. It does nothing if the set is not open, the flow was
// removed, or is active there: restore before activating.
func (r *Ring[T]) Restore(f *Flow[T], set SetID, a Account) {
	o := r.offer(set)
	if !r.owns(f) || o == nil || f.Active(set) {
		return
	}
	e, w := f.open(set, o.life), o.wheel(f.weight)
	// Other sets keep what they have not seen, whichever total was restored first.
	by := sub(a.Charged, f.charged)
	f.each(func(o *entry[T]) { o.seen = add(o.seen, by) })
	f.charged, f.largest = a.Charged, max(a.Largest, 0)
	e.seen = sub(a.Charged, a.Unseen)
	e.rho, e.d = min(add(w.now, min(a.Behind, RoundsAheadMax)), roundMax), a.Deficit
	if a.Behind > 0 {
		e.d = min(e.d, f.quantum) // it may have been read when the flow had a larger weight
	}
	if a.Behind >= 0 && e.d <= 0 {
		e.forward(e.rho, w.now+RoundsAheadMax, f.quantum)
	}
}

// Clock returns the set's progress; zero if it is not open.
func (r *Ring[T]) Clock(set SetID) Clock {
	o := r.offer(set)
	if o == nil {
		return Clock{}
	}
	return Clock{Main: o.main.progress(), Zero: o.zero.progress()}
}

// RestoreClock sets the progress of a set in which no flow has an account yet: restore it before the flows. It does
// nothing if the set is not open or has active flows.
func (r *Ring[T]) RestoreClock(set SetID, c Clock) {
	o := r.offer(set)
	if o == nil || o.waiting() > 0 {
		return
	}
	o.main.resume(c.Main, r.cfg.Quantum)
	o.zero.resume(c.Zero, r.cfg.Quantum)
}

func (w *wheel[T]) progress() Turn {
	return Turn{Round: w.now, Free: w.idle, Due: w.due, Part: w.part}
}

func (w *wheel[T]) resume(t Turn, quantum int64) {
	w.now, w.idle = min(max(t.Round, 0), roundMax), min(max(t.Free, 0), quantum-1)
	w.due, w.part = max(t.Due, 0), max(t.Part, 0)
}
