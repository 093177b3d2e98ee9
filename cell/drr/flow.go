package drr

import "math/bits"

// SetID names an offer set: all servers that offer the same share one ring. From 0 to MaxSets-1.
type SetID uint8

// Flow is one claimant: its value, weight and accounts. It is made by [Ring.NewFlow] and belongs to that Ring. Beside its
// value it takes 136 bytes, and 64 and a pointer for each set beyond the first in which it has ever been active.
type Flow[T any] struct {
	// Value is the caller's; the package never looks at it.
	Value T

	ring    *Ring[T] // nil after Remove
	weight  Weight
	quantum int64 // Qw, what the flow may spend per round
	charged int64 // S
	largest int64 // Max, the largest single charge

	// The account in the set used first lies within the flow, because most flows use one and a dispatch then
	// reads memory that is together. Further sets' accounts are in set order, with a bit each in extraSets.
	first     entry[T]
	extra     []*entry[T]
	extraSets uint64
}

// Weight returns the flow's weight.
func (f *Flow[T]) Weight() Weight { return f.weight }

// Charged returns S: all that was charged to the flow in any set, less what was refunded, in micro-units.
func (f *Flow[T]) Charged() int64 { return f.charged }

// Active reports whether the flow is filed in the set's ring.
func (f *Flow[T]) Active(set SetID) bool {
	e := f.lookup(set)
	return e != nil && e.place != nowhere
}

// place says which structure an entry is linked into.
type place uint8

const (
	nowhere place = iota // not active
	inWheel              // in the list of its round
	inFar                // in the heap
)

// entry is a flow's account in one set.
type entry[T any] struct {
	next, prev *entry[T] // neighbours in the round's list
	flow       *Flow[T]  // nil: the entry was never used
	rho        int64     // the round under which the flow is filed, or was when it left
	d          int64     // the deficit in that round; positive whenever the entry is filed
	seen       int64     // how much of the flow's S this set has charged to d
	pos        int32     // index in the far heap
	life       uint32    // which life of the set the account is from: closing a set ends it
	set        SetID
	place      place
}

// lookup returns the flow's account in a set, or nil if it has none.
func (f *Flow[T]) lookup(set SetID) *entry[T] {
	if f.first.set == set && f.first.flow != nil {
		return &f.first
	}
	bit := uint64(1) << set
	if f.extraSets&bit == 0 {
		return nil
	}
	return f.extra[bits.OnesCount64(f.extraSets&(bit-1))]
}

// open returns the flow's account in a set, and makes one without standing if there is none.
func (f *Flow[T]) open(set SetID, life uint32) *entry[T] {
	e := f.lookup(set)
	switch {
	case e != nil && e.life == life:
		return e
	case e != nil: // from before the set was closed
	case f.first.flow == nil:
		e = &f.first
	default:
		bit := uint64(1) << set
		i := bits.OnesCount64(f.extraSets & (bit - 1))
		e = new(entry[T])
		f.extra = append(f.extra, nil)
		copy(f.extra[i+1:], f.extra[i:])
		f.extra[i] = e
		f.extraSets |= bit
	}
	*e = entry[T]{flow: f, set: set, life: life, rho: noRound, seen: f.charged}
	return e
}

// each calls do for each account of the flow, in a fixed order.
func (f *Flow[T]) each(do func(*entry[T])) {
	if f.first.flow != nil {
		do(&f.first)
	}
	for _, e := range f.extra {
		do(e)
	}
}
