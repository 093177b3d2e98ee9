package drr

import (
	"math"
	"math/bits"
)

// noRound is the round of an account without standing: before every other, so that activation starts it anew.
const noRound int64 = math.MinInt64

// wheel is the order of one ring: which flow is first, by round and inside a round by filing. The Config.Rounds rounds from now on have a
// list each, and a bit that says whether it is empty. A flow filed further ahead goes to a heap and stays there until it is served or
// leaves: moving flows from the heap as now advances would make one jump of now cost as much as there are flows. The first flow is
// therefore the lesser of two heads. At the same round the heap's goes first, having been filed before any that could use the wheel.
type wheel[T any] struct {
	now    int64    // N, the current round. No entry is filed before it
	idle   int64    // free time that has not made a whole round yet
	due    int64    // rounds that pass at the next grant to a flow that waits alone
	part   int64    // cost charged to a flow alone that has not made a whole round yet
	active int      // entries filed
	near   *near[T] // nil until a flow is active: most sets never see a flow of weight zero
	far    far[T]
}

// near is the rounds from now on, each at its number modulo that of the lists. There are at most 64 words of 64 rounds, so that one summary
// word finds the first of them.
type near[T any] struct {
	summary uint64 // which words are not zero
	words   []uint64
	lists   []list[T] // a power of two of them
}

// list is the entries of one round, in filing order.
type list[T any] struct {
	head, tail *entry[T]
}

func newNear[T any](rounds int) *near[T] {
	if rounds == 0 {
		rounds = RoundsMax
	}
	return &near[T]{words: make([]uint64, rounds/64), lists: make([]list[T], rounds)}
}

// place is where a round's list is.
func (n *near[T]) place(round int64) int { return int(round & int64(len(n.lists)-1)) }

// first returns the entry that is next, or nil.
func (w *wheel[T]) first() *entry[T] {
	var e *entry[T]
	if w.near != nil {
		e = w.near.first(w.near.place(w.now))
	}
	if len(w.far.items) > 0 && (e == nil || w.far.items[0].rho <= e.rho) {
		return w.far.items[0].e
	}
	return e
}

// first returns the first entry of the first round, from the one at start on, that has any, or nil. It reads at most
// two words and the summary.
func (n *near[T]) first(start int) *entry[T] {
	if n.summary == 0 {
		return nil
	}
	word := start >> 6
	if b := n.words[word] &^ (1<<(start&63) - 1); b != 0 {
		return n.lists[word<<6+bits.TrailingZeros64(b)].head
	}
	// Later words first, then around the end: there the word of the start itself holds only the last rounds of the
	// span, those at places before the start.
	s := n.summary &^ (2<<word - 1)
	if s == 0 {
		s = n.summary
	}
	word = bits.TrailingZeros64(s)
	return n.lists[word<<6+bits.TrailingZeros64(n.words[word])].head
}

// file puts the entry at the end of its round, which must not be in the past.
func (w *wheel[T]) file(e *entry[T]) {
	w.active++
	if w.near == nil {
		w.near = newNear[T](e.flow.ring.cfg.Rounds)
	}
	if e.rho-w.now >= int64(len(w.near.lists)) {
		e.place = inFar
		w.far.push(e)
		return
	}
	e.place = inWheel
	w.near.append(e)
}

// unfile takes the entry out of its round.
func (w *wheel[T]) unfile(e *entry[T]) {
	w.active--
	if e.place == inFar {
		w.far.remove(int(e.pos))
	} else {
		w.near.remove(e)
	}
	e.place = nowhere
}

func (n *near[T]) append(e *entry[T]) {
	i := n.place(e.rho)
	l := &n.lists[i]
	e.prev, e.next = l.tail, nil
	if l.tail != nil {
		l.tail.next = e
	} else {
		l.head = e
		n.words[i>>6] |= 1 << (i & 63)
		n.summary |= 1 << (i >> 6)
	}
	l.tail = e
}

func (n *near[T]) remove(e *entry[T]) {
	i := n.place(e.rho)
	l := &n.lists[i]
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		l.head = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		l.tail = e.prev
	}
	e.next, e.prev = nil, nil
	if l.head == nil {
		n.words[i>>6] &^= 1 << (i & 63)
		if n.words[i>>6] == 0 {
			n.summary &^= 1 << (i >> 6)
		}
	}
}

// turn moves the current round on to the first entry, e. Where others wait, its round is the current one from now on.
// Alone, it takes the round on only by what was charged meanwhile, so that it keeps its debt to a rival that returns
// in an instant; but by no more than some of its charges, or debt that nobody is owed could pile up and make it wait
// for seconds when somebody comes.
func (w *wheel[T]) turn(e *entry[T]) {
	if w.active > 1 {
		w.now = e.rho
	} else {
		w.now = min(e.rho, max(add(w.now, w.due), e.rho-e.flow.rounds(LoneDebtMax)))
	}
	w.due = 0
}

// alone reports whether no flow but the entry's is filed.
func (w *wheel[T]) alone(e *entry[T]) bool {
	return w.active == 0 || w.active == 1 && e.place != nowhere
}

// pay counts a charge that no other flow waited beside.
func (w *wheel[T]) pay(cost, quantum int64) {
	c := add(w.part, cost)
	w.due = add(w.due, c/quantum)
	w.part = c % quantum
}

// pass lets free time turn the rounds of an empty wheel: one per quantum of a flow of weight one.
func (w *wheel[T]) pass(time, quantum int64) {
	if w.active > 0 || time <= 0 {
		return
	}
	t := add(w.idle, time)
	w.now = min(add(w.now, t/quantum), roundMax)
	w.idle = t % quantum
}
