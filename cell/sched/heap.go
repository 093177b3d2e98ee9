package sched

import "fmt"

// order says how the elements of a heap compare, and where each keeps its place. Its implementations hold nothing.
type order[T any] interface {
	before(a, b T) bool
	place(x T) *int32
}

// heap is a binary heap whose elements know their place in it, so that any of them can be moved or taken out in O(log). An element can be
// in several heaps of different orders at once.
type heap[T any, O order[T]] struct{ items []T }

func (h *heap[T, O]) len() int { return len(h.items) }

// first returns the least element, and the zero value when there is none.
func (h *heap[T, O]) first() T {
	if len(h.items) == 0 {
		var none T
		return none
	}
	return h.items[0]
}

func (h *heap[T, O]) push(x T) {
	h.items = append(h.items, x)
	h.up(len(h.items) - 1)
}

// fix moves an element that has become greater or less to where it belongs.
func (h *heap[T, O]) fix(x T) {
	var o O
	if i := int(*o.place(x)); !h.down(i) {
		h.up(i)
	}
}

func (h *heap[T, O]) remove(x T) {
	var o O
	var none T
	i, last := int(*o.place(x)), len(h.items)-1
	moved := h.items[last]
	h.items[last] = none
	h.items = h.items[:last]
	if i == last {
		return
	}
	h.set(i, moved)
	if !h.down(i) {
		h.up(i)
	}
}

func (h *heap[T, O]) set(i int, x T) {
	var o O
	h.items[i] = x
	*o.place(x) = int32(i)
}

func (h *heap[T, O]) up(i int) {
	var o O
	x := h.items[i]
	for i > 0 {
		parent := (i - 1) / 2
		if !o.before(x, h.items[parent]) {
			break
		}
		h.set(i, h.items[parent])
		i = parent
	}
	h.set(i, x)
}

// down reports whether the element moved.
func (h *heap[T, O]) down(i int) bool {
	var o O
	x, from := h.items[i], i
	for {
		child := 2*i + 1
		if child >= len(h.items) {
			break
		}
		if right := child + 1; right < len(h.items) && o.before(h.items[right], h.items[child]) {
			child = right
		}
		if !o.before(h.items[child], x) {
			break
		}
		h.set(i, h.items[child])
		i = child
	}
	h.set(i, x)
	return i != from
}

// clear empties the heap, and keeps its room when that is small.
func (h *heap[T, O]) clear() {
	clear(h.items)
	if h.items = h.items[:0]; cap(h.items) > spareRoomMax {
		h.items = nil
	}
}

// check returns an error unless the elements are in order and know their places.
func (h *heap[T, O]) check(name string) error {
	var o O
	for i, x := range h.items {
		if int(*o.place(x)) != i {
			return fmt.Errorf("%s: the element at %d believes to be at %d", name, i, *o.place(x))
		}
		if i > 0 && o.before(x, h.items[(i-1)/2]) {
			return fmt.Errorf("%s: the element at %d is before its parent", name, i)
		}
	}
	return nil
}

// Bounds of what is kept to be used again, so that a cell in a steady state allocates nothing and one after a flood forgets it.
const (
	sparesMax    = 1024 // records of each kind
	spareRoomMax = 8    // elements that an empty heap or list has room for
)

// spares is records of a kind to be used again.
type spares[T any] struct{ list []*T }

// get returns a record as it was put back, or a new one.
func (p *spares[T]) get() *T {
	n := len(p.list) - 1
	if n < 0 {
		return new(T)
	}
	x := p.list[n]
	p.list[n] = nil
	p.list = p.list[:n]
	return x
}

// put takes a record back, which must hold on to nothing.
func (p *spares[T]) put(x *T) {
	if len(p.list) < sparesMax {
		p.list = append(p.list, x)
	}
}
