package drr

// rise brings an account that is not filed to the present. One in debt keeps its place. In any other, what was left of
// the deficit has ended with its round; but what other sets have charged meanwhile first uses up the rounds that have
// passed here, or a flow could escape it by leaving this set for an instant.
func (w *wheel[T]) rise(e *entry[T]) {
	if e.rho >= w.now {
		return
	}
	f := e.flow
	if e.rho != noRound {
		e.d = sub(e.d, sub(f.charged, e.seen))
		if e.d <= 0 {
			e.forward(e.rho, w.now+f.foreignRoundsMax(), f.quantum)
		}
	}
	e.seen = f.charged
	if e.rho < w.now {
		e.rho, e.d = w.now, f.quantum
	}
}

// forward gives an account with no positive deficit as many quanta q as make it positive, and moves it as many rounds on
// from a round, but not beyond the last one: debt beyond that is forgiven.
func (e *entry[T]) forward(from, last, q int64) {
	owed := sub(0, e.d)
	k := add(owed/q, 1)
	// In (0, q], and without a product that could overflow.
	e.d = q - owed%q
	e.rho = max(from, min(add(from, k), last, roundMax))
}

// debit charges to the account what its own set has served.
func (w *wheel[T]) debit(e *entry[T], cost int64) {
	f := e.flow
	f.largest = max(f.largest, cost)
	e.advance(cost)
	if w.alone(e) {
		w.pay(cost, f.quantum)
	}
	e.d = sub(e.d, cost)
	if e.d > 0 {
		return
	}
	filed := w.lift(e)
	e.forward(e.rho, w.now+RoundsAheadMax, f.quantum)
	w.drop(e, filed)
}

// credit gives back, delta being negative.
func (w *wheel[T]) credit(e *entry[T], delta int64) {
	e.advance(delta)
	e.d = sub(e.d, delta)
	w.back(e)
}

// back brings an account whose deficit is more than a quantum forward by whole quanta, at most to the present.
func (w *wheel[T]) back(e *entry[T]) {
	q := e.flow.quantum
	if e.d <= q || e.rho <= w.now {
		return
	}
	steps := min((e.d-1)/q, e.rho-w.now)
	filed := w.lift(e)
	e.rho -= steps
	e.d -= steps * q
	w.drop(e, filed)
}

// advance moves the flow's total and what this set has seen of it together, so that a total held at an end of its
// range does not look like another set's charge.
func (e *entry[T]) advance(by int64) {
	before := e.flow.charged
	e.flow.charged = add(before, by)
	e.seen = add(e.seen, e.flow.charged-before)
}

// lift takes an account out of its round, if it is filed, so that the round can change; drop files it again.
func (w *wheel[T]) lift(e *entry[T]) bool {
	if e.place == nowhere {
		return false
	}
	moves := w.far.moves
	w.unfile(e)
	e.flow.ring.touched += w.far.moves - moves
	return true
}

func (w *wheel[T]) drop(e *entry[T], filed bool) {
	if filed {
		moves := w.far.moves
		w.file(e)
		e.flow.ring.touched += 1 + w.far.moves - moves
	}
}

// catchUp charges to the head what other sets have charged to its flow, and files it further on, returning true, if
// that exhausts its deficit.
func (w *wheel[T]) catchUp(e *entry[T]) bool {
	f := e.flow
	x := sub(f.charged, e.seen)
	if x == 0 {
		return false
	}
	e.seen = f.charged
	e.d = sub(e.d, x)
	if e.d > 0 {
		w.back(e)
		return false
	}
	filed := w.lift(e)
	e.forward(e.rho, e.rho+f.foreignRoundsMax(), f.quantum)
	w.drop(e, filed)
	return true
}

// reweigh moves the account from one wheel to the one of its new weight, which may be the same. What counts is what was spent beyond
// the current round's start: a change there and back leaves everything as it was.
func (e *entry[T]) reweigh(from, to *wheel[T], quantum int64) {
	if e.rho < from.now {
		e.rho = noRound
		return
	}
	filed := from.lift(e)
	spent := add(mul(e.rho-from.now, e.flow.quantum), sub(e.flow.quantum, e.d))
	e.rho, e.d = to.now, sub(quantum, spent)
	if e.d <= 0 {
		e.forward(e.rho, to.now+RoundsAheadMax, quantum)
	}
	to.drop(e, filed)
}

// foreignRoundsMax is how many rounds other sets' charges can put the flow back.
func (f *Flow[T]) foreignRoundsMax() int64 {
	return max(ForeignRoundsMin, f.rounds(ForeignDebtMax))
}

// rounds is how many of its rounds the flow needs for a number of its largest charges; no more than a flow can be
// filed ahead.
func (f *Flow[T]) rounds(charges int64) int64 {
	return min(mul(charges, f.largest)/f.quantum, RoundsAheadMax)
}
