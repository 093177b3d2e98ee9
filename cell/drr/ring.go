package drr

import (
	"errors"
	"fmt"
	"slices"
)

// ErrFull is returned when a Ring has Config.FlowsMax flows already. Remove flows, or raise flows_max.
var ErrFull = errors.New("drr: as many flows as flows_max allows; remove idle ones or raise it")

// SetError is returned when a set's number is not below MaxSets.
type SetError struct {
	Set SetID
}

// Error names the bound and the remedy.
func (e *SetError) Error() string {
	return fmt.Sprintf("drr: offer set %d, must be from 0 to %d: close sets that no server offers any more",
		e.Set, MaxSets-1)
}

// roundMax is where round numbers stop; rounds then no longer pass, and flows are served in turns. See
// RoundsAheadMax for why it is not reached.
const roundMax int64 = 1 << 62

// Ring is all rings of one level, one per offer set, and the flows' accounts in them. Without sets it takes 80 bytes. An open set takes
// 200 more and a pointer for each set below it; its first active flow adds 16 bytes for each of Config.Rounds and as much again with the
// first of weight zero: in all 1.5 KB at 64 rounds, 66 KB at 4,096.
type Ring[T any] struct {
	cfg     Config
	flows   int
	sets    []*offer[T] // by number, up to the largest that was ever open
	touched int
}

// New makes a Ring without sets or flows. It returns the errors of Config.Validate.
func New[T any](cfg Config) (*Ring[T], error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Ring[T]{cfg: cfg}, nil
}

// Len returns the number of flows.
func (r *Ring[T]) Len() int { return r.flows }

// OpenSet makes the ring of an offer set; it does nothing to one that is open. It returns a *SetError if the number is MaxSets or above.
func (r *Ring[T]) OpenSet(set SetID) error {
	if set >= MaxSets {
		return &SetError{Set: set}
	}
	if n := int(set) + 1; n > len(r.sets) {
		r.sets = slices.Grow(r.sets, n-len(r.sets))[:n]
	}
	if r.sets[set] == nil {
		r.sets[set] = new(offer[T])
	}
	if o := r.sets[set]; !o.open() {
		o.life++
		if r.cfg.Idle != nil {
			o.mark = r.cfg.Idle.passed(set)
		}
	}
	return nil
}

// CloseSet drops the ring of an offer set and with it every flow's standing there; it does nothing to one that is not
// open. What was charged stays in the flows' totals. Its time grows with the number of flows active in the set.
func (r *Ring[T]) CloseSet(set SetID) {
	o := r.offer(set)
	if o == nil {
		return
	}
	for _, w := range []*wheel[T]{&o.main, &o.zero} {
		for w.active > 0 {
			w.unfile(w.first())
		}
	}
	*o = offer[T]{life: o.life + 1}
}

// Open reports whether the set is open.
func (r *Ring[T]) Open(set SetID) bool { return r.offer(set) != nil }

// NewFlow adds a flow, active nowhere. It returns a *WeightError, or ErrFull.
func (r *Ring[T]) NewFlow(value T, weight Weight) (*Flow[T], error) {
	if err := weight.Validate(); err != nil {
		return nil, err
	}
	if r.flows >= r.cfg.FlowsMax {
		return nil, ErrFull
	}
	r.flows++
	return &Flow[T]{Value: value, ring: r, weight: weight, quantum: r.cfg.quantumOf(weight)}, nil
}

// Remove takes the flow out of every set and ends its accounts. Charges and settlements that come later for it do
// nothing; activating it panics.
func (r *Ring[T]) Remove(f *Flow[T]) {
	if !r.owns(f) {
		return
	}
	f.each(func(e *entry[T]) {
		if e.place != nowhere {
			r.offer(e.set).wheel(f.weight).unfile(e)
		}
	})
	f.ring = nil
	f.first = entry[T]{}
	f.extra, f.extraSets = nil, 0
	r.flows--
}

// SetWeight changes the flow's weight; what is filed is filed anew at once. What the flow has spent in this round and
// of later ones is kept, and paid from the new quantum. It returns a *WeightError.
func (r *Ring[T]) SetWeight(f *Flow[T], weight Weight) error {
	if err := weight.Validate(); err != nil {
		return err
	}
	if !r.owns(f) || f.weight == weight {
		return nil
	}
	quantum := r.cfg.quantumOf(weight)
	f.each(func(e *entry[T]) {
		if o := r.offer(e.set); o != nil && o.life == e.life {
			e.reweigh(o.wheel(f.weight), o.wheel(weight), quantum)
		}
	})
	f.weight, f.quantum = weight, quantum
	return nil
}

// Round returns the set's current round number; zero if it is not open.
func (r *Ring[T]) Round(set SetID) int64 {
	o := r.offer(set)
	if o == nil {
		return 0
	}
	return o.main.now
}

// Waiting returns how many flows are active in the set.
func (r *Ring[T]) Waiting(set SetID) int {
	o := r.offer(set)
	if o == nil {
		return 0
	}
	return o.waiting()
}

// Touched returns how many flows were inspected or moved since the last Next began, by it and by what followed.
func (r *Ring[T]) Touched() int { return r.touched }

func (r *Ring[T]) owns(f *Flow[T]) bool { return f != nil && f.ring == r }

// offer returns an open set's rings, with the shared free time that has passed taken into account, or nil.
func (r *Ring[T]) offer(set SetID) *offer[T] {
	if int(set) >= len(r.sets) {
		return nil
	}
	o := r.sets[set]
	if o == nil || !o.open() {
		return nil
	}
	if r.cfg.Idle != nil {
		o.elapse(r.cfg.Idle.passed(set), r.cfg.Quantum)
	}
	return o
}

// account returns the flow's account in a set and its wheel, or nil if there is none that counts.
func (r *Ring[T]) account(f *Flow[T], set SetID) (*entry[T], *wheel[T]) {
	if r == nil || !r.owns(f) {
		return nil, nil
	}
	o := r.offer(set)
	if o == nil {
		return nil, nil
	}
	e := f.lookup(set)
	if e == nil || e.life != o.life {
		return nil, nil
	}
	return e, o.wheel(f.weight)
}

// standing returns the flow's account in a set, made and brought to the present if need be, and its wheel, or nil if there can be none.
func (r *Ring[T]) standing(f *Flow[T], set SetID) (*entry[T], *wheel[T]) {
	if !r.owns(f) {
		return nil, nil
	}
	o := r.offer(set)
	if o == nil {
		return nil, nil
	}
	e, w := f.open(set, o.life), o.wheel(f.weight)
	if e.place == nowhere {
		w.rise(e)
	}
	return e, w
}
