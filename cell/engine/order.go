package engine

import (
	"slices"
	"sort"
)

// order has things by a number. The places of those taken out stay empty until they are half of it, so that a number is found by halving.
type order[T any] struct {
	places []place[T]
	head   int // no place before it has anything
	gone   int // empty places
}

// place is one thing's; item is nil once it was taken out.
type place[T any] struct {
	number uint64
	item   *T
}

// orderSlack is how many empty places are never worth making an order anew.
const orderSlack = 64

// len returns how many things there are.
func (o *order[T]) len() int { return len(o.places) - o.gone }

// find returns the index of the first place numbered so or above.
func (o *order[T]) find(number uint64) int {
	return sort.Search(len(o.places), func(i int) bool { return o.places[i].number >= number })
}

// put puts a thing in at its number, which is that of no other: at the end in a time that does not depend on how many there are, elsewhere in one
// that grows with how many are behind it.
func (o *order[T]) put(number uint64, item *T) {
	p := place[T]{number, item}
	if n := len(o.places); n == 0 || o.places[n-1].number < number {
		o.places = append(o.places, p)
		return
	}
	i := o.find(number)
	if o.places[i].number != number {
		o.places = slices.Insert(o.places, i, p)
	} else {
		if o.places[i].item != nil {
			panic("engine: two things of one number")
		}
		o.places[i] = p
		o.gone--
	}
	if i < o.head {
		o.head = i
	}
}

// take takes out the thing of a number, which there is.
func (o *order[T]) take(number uint64) {
	i := o.find(number)
	if i == len(o.places) || o.places[i].number != number || o.places[i].item == nil {
		panic("engine: nothing of that number is in order")
	}
	o.places[i].item = nil
	o.gone++
	for o.head < len(o.places) && o.places[o.head].item == nil {
		o.head++
	}
	if o.gone <= orderSlack || 2*o.gone <= len(o.places) {
		return
	}
	kept := make([]place[T], 0, len(o.places)-o.gone)
	for _, p := range o.places[o.head:] {
		if p.item != nil {
			kept = append(kept, p)
		}
	}
	o.places, o.head, o.gone = kept, 0, 0
}

// at returns the thing of a number, and nil when there is none.
func (o *order[T]) at(number uint64) *T {
	if i := o.find(number); i < len(o.places) && o.places[i].number == number {
		return o.places[i].item
	}
	return nil
}

// first returns the thing of the lowest number, and nil when there is none.
func (o *order[T]) first() *T {
	if o.head == len(o.places) {
		return nil
	}
	return o.places[o.head].item
}

// after returns the first thing numbered above, and nil when there is none.
func (o *order[T]) after(number uint64) *T {
	_, item := o.next(number)
	return item
}

// next is after, and returns the thing's number too.
func (o *order[T]) next(number uint64) (uint64, *T) {
	if number == ^uint64(0) {
		return 0, nil
	}
	for i := max(o.head, o.find(number+1)); i < len(o.places); i++ {
		if p := o.places[i]; p.item != nil {
			return p.number, p.item
		}
	}
	return 0, nil
}

// before returns the last thing numbered below, and nil when there is none.
func (o *order[T]) before(number uint64) *T {
	for i := o.find(number) - 1; i >= o.head; i-- {
		if item := o.places[i].item; item != nil {
			return item
		}
	}
	return nil
}

// behind returns how many things are numbered above, counting empty places too when there are more than exact of them to look at.
func (o *order[T]) behind(number uint64, exact int) int64 {
	if number == ^uint64(0) {
		return 0
	}
	rest := o.places[max(o.head, o.find(number+1)):]
	if len(rest) > exact {
		return int64(min(len(rest), o.len()))
	}
	n := int64(0)
	for _, p := range rest {
		if p.item != nil {
			n++
		}
	}
	return n
}
