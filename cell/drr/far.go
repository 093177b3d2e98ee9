package drr

import "slices"

// far is the flows filed beyond the wheel: a heap by round, and by filing inside a round. It has four children per node,
// with the keys in the array, so that each level of a descent reads 96 adjacent bytes. (Noting positions in an array of
// their own, too, so that a move touches no flow, was measured and gains nothing.)
type far[T any] struct {
	items []farItem[T]
	seq   uint64 // of the last filing
	moves int    // entries given another place in the array, for Touched
}

type farItem[T any] struct {
	rho int64
	seq uint64
	e   *entry[T]
}

const farFan = 4

func (a farItem[T]) before(b farItem[T]) bool {
	return a.rho < b.rho || a.rho == b.rho && a.seq < b.seq
}

func (h *far[T]) push(e *entry[T]) {
	h.seq++
	h.items = append(h.items, farItem[T]{rho: e.rho, seq: h.seq, e: e})
	h.up(len(h.items) - 1)
}

// reserve makes room for n entries, so that a later push allocates nothing.
func (h *far[T]) reserve(n int) {
	if n > cap(h.items) {
		h.items = slices.Grow(h.items, n-len(h.items))
	}
}

func (h *far[T]) remove(i int) {
	last := len(h.items) - 1
	moved := h.items[last]
	h.items[last] = farItem[T]{}
	h.items = h.items[:last]
	if i == last {
		return
	}
	h.items[i] = moved
	if i > 0 && moved.before(h.items[(i-1)/farFan]) {
		h.up(i)
	} else {
		h.down(i)
	}
}

func (h *far[T]) up(i int) {
	it := h.items[i]
	for i > 0 {
		parent := (i - 1) / farFan
		if !it.before(h.items[parent]) {
			break
		}
		h.put(i, h.items[parent])
		i = parent
	}
	h.put(i, it)
}

func (h *far[T]) down(i int) {
	it := h.items[i]
	for {
		child := i*farFan + 1
		if child >= len(h.items) {
			break
		}
		least := child
		for c := child + 1; c < min(child+farFan, len(h.items)); c++ {
			if h.items[c].before(h.items[least]) {
				least = c
			}
		}
		if !h.items[least].before(it) {
			break
		}
		h.put(i, h.items[least])
		i = least
	}
	h.put(i, it)
}

func (h *far[T]) put(i int, it farItem[T]) {
	h.items[i] = it
	it.e.pos = int32(i)
	h.moves++
}
