package tree

import "strings"

// seat is a place in a heap, held by whose it is. The zero value is in none.
type seat[T any] struct {
	lane *Lane[T] // whose it is, or who stands for it
	id   string   // breaks ties; here because many are equal, and asking the lane would read four more places in memory
	key  int64
	pos  int32 // index in the heap + 1, 0 when it is in none
}

func (s *seat[T]) seated() bool { return s.pos > 0 }

// heap orders seats by key, and by ids at a tie. It has four children per node with the keys in the array, so that each level of a descent
// reads 64 adjacent bytes. Its methods return how many seats they moved.
type heap[T any] struct {
	items []item[T]
}

type item[T any] struct {
	key  int64
	seat *seat[T]
}

const heapFan = 4

func (a item[T]) before(b item[T]) bool {
	if a.key != b.key {
		return a.key < b.key
	}
	if c := strings.Compare(a.seat.id, b.seat.id); c != 0 {
		return c < 0
	}
	return a.seat.lane.name() < b.seat.lane.name() // an organization and a tenant may have the same id
}

// least returns the first seat, or nil.
func (h *heap[T]) least() *seat[T] {
	if len(h.items) == 0 {
		return nil
	}
	return h.items[0].seat
}

// put gives the seat its place by its present key and lane, whether it has one already or not.
func (h *heap[T]) put(s *seat[T]) int {
	it := item[T]{key: s.key, seat: s}
	if s.pos == 0 {
		h.items = append(h.items, it)
		return h.up(len(h.items)-1, it)
	}
	i := int(s.pos) - 1
	if i > 0 && it.before(h.items[(i-1)/heapFan]) {
		return h.up(i, it)
	}
	return h.down(i, it)
}

// remove takes the seat out, if it is in.
func (h *heap[T]) remove(s *seat[T]) int {
	if s.pos == 0 {
		return 0
	}
	i, last := int(s.pos)-1, len(h.items)-1
	moved := h.items[last]
	h.items[last] = item[T]{}
	h.items = h.items[:last]
	s.pos = 0
	if i == last {
		return 1
	}
	if i > 0 && moved.before(h.items[(i-1)/heapFan]) {
		return 1 + h.up(i, moved)
	}
	return 1 + h.down(i, moved)
}

func (h *heap[T]) up(i int, it item[T]) int {
	moves := 1
	for ; i > 0; moves++ {
		parent := (i - 1) / heapFan
		if !it.before(h.items[parent]) {
			break
		}
		h.set(i, h.items[parent])
		i = parent
	}
	h.set(i, it)
	return moves
}

func (h *heap[T]) down(i int, it item[T]) int {
	moves := 1
	for ; ; moves++ {
		child := i*heapFan + 1
		if child >= len(h.items) {
			break
		}
		least := child
		for c := child + 1; c < min(child+heapFan, len(h.items)); c++ {
			if h.items[c].before(h.items[least]) {
				least = c
			}
		}
		if !h.items[least].before(it) {
			break
		}
		h.set(i, h.items[least])
		i = least
	}
	h.set(i, it)
	return moves
}

func (h *heap[T]) set(i int, it item[T]) {
	h.items[i] = it
	it.seat.pos = int32(i) + 1
}
