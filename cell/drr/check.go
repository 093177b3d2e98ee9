package drr

import (
	"errors"
	"fmt"
	"math/bits"
)

// Check walks every ring and returns an error for the first invariant that does not hold, or nil. Its time grows
// with the number of active flows: it is for tests, simulations and the periodic self-check of a running cell.
func (r *Ring[T]) Check() error {
	for i, o := range r.sets {
		if o == nil {
			continue
		}
		c := checker[T]{ring: r, offer: o, set: SetID(i)}
		if err := errors.Join(c.wheel(&o.main), c.wheel(&o.zero)); err != nil {
			return fmt.Errorf("drr: set %d: %w", i, err)
		}
	}
	return nil
}

// checker is Check at work on one set.
type checker[T any] struct {
	ring  *Ring[T]
	offer *offer[T]
	set   SetID
}

func (c checker[T]) wheel(w *wheel[T]) error {
	n, err := c.near(w)
	if err != nil {
		return err
	}
	for i, it := range w.far.items {
		n++
		if it.e.rho != it.rho || it.e.place != inFar || int(it.e.pos) != i {
			return fmt.Errorf("far %d: entry of round %d keyed %d, place %d, position %d", i, it.e.rho, it.rho,
				it.e.place, it.e.pos)
		}
		if i > 0 && it.before(w.far.items[(i-1)/farFan]) {
			return fmt.Errorf("far %d: before its parent", i)
		}
		if err := c.entry(it.e, w); err != nil {
			return err
		}
	}
	if n != w.active {
		return fmt.Errorf("%d entries filed, %d counted", n, w.active)
	}
	return nil
}

func (c checker[T]) near(w *wheel[T]) (int, error) {
	n := 0
	if w.near == nil {
		return 0, nil
	}
	for i := range w.near.lists {
		l := &w.near.lists[i]
		if has := w.near.words[i>>6]>>(i&63)&1 == 1; has != (l.head != nil) || (l.head == nil) != (l.tail == nil) {
			return n, fmt.Errorf("list %d: bit %t, head %t, tail %t", i, has, l.head != nil, l.tail != nil)
		}
		var prev *entry[T]
		for e := l.head; e != nil; prev, e = e, e.next {
			n++
			if e.prev != prev || e.place != inWheel || w.near.place(e.rho) != i ||
				e.rho-w.now >= int64(len(w.near.lists)) {
				return n, fmt.Errorf("list %d: entry of round %d at round %d, place %d", i, e.rho, w.now, e.place)
			}
			if err := c.entry(e, w); err != nil {
				return n, err
			}
		}
		if l.tail != prev {
			return n, fmt.Errorf("list %d: tail is not its last", i)
		}
	}
	for i, word := range w.near.words {
		if has := w.near.summary>>i&1 == 1; has != (word != 0) {
			return n, fmt.Errorf("word %d: summary %t, %d rounds", i, has, bits.OnesCount64(word))
		}
	}
	return n, nil
}

func (c checker[T]) entry(e *entry[T], w *wheel[T]) error {
	alive := c.offer.open() && e.life == c.offer.life
	switch {
	case e.flow == nil || e.flow.ring != c.ring || e.set != c.set || !alive:
		return fmt.Errorf("entry of set %d filed in %d, alive %t", e.set, c.set, alive)
	case e.flow.lookup(c.set) != e:
		return fmt.Errorf("entry is not its flow's account in set %d", c.set)
	case e.rho < w.now:
		return fmt.Errorf("entry of round %d filed at round %d", e.rho, w.now)
	case e.d <= 0:
		return fmt.Errorf("entry of round %d filed with deficit %d", e.rho, e.d)
	case e.rho > w.now && e.d > e.flow.quantum:
		return fmt.Errorf("entry of round %d at round %d has deficit %d, quantum %d", e.rho, w.now, e.d,
			e.flow.quantum)
	case c.offer.wheel(e.flow.weight) != w:
		return fmt.Errorf("weight %s in the ring of weight zero: %t", e.flow.weight, w == &c.offer.zero)
	}
	return nil
}
