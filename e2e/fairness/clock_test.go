package fairness

import (
	"container/heap"

	"github.com/fairlead/fairlead/cell"
)

// epoch is when every world begins.
const epoch cell.Instant = 1_800_000_000e9

// At one instant what ends comes first, then the word of it, then what arrives, then what is due by the clock alone.
const (
	rankEnd = iota
	rankReport
	rankArrive
	rankDue
)

// clock is virtual time: events in the order of their time, their rank and their making.
type clock struct {
	now    cell.Instant
	events eventHeap
	made   uint64
}

type event struct {
	at   cell.Instant
	rank int
	seq  uint64
	do   func()
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	a, b := h[i], h[j]
	switch {
	case a.at != b.at:
		return a.at < b.at
	case a.rank != b.rank:
		return a.rank < b.rank
	default:
		return a.seq < b.seq
	}
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push is for container/heap only.
func (h *eventHeap) Push(x any) { *h = append(*h, x.(event)) } //nolint:errcheck // only events are pushed

// Pop is for container/heap only.
func (h *eventHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = event{}
	*h = old[:len(old)-1]
	return e
}

// at has something done at a time, or now if that has passed.
func (c *clock) at(at cell.Instant, rank int, do func()) {
	c.made++
	heap.Push(&c.events, event{at: max(at, c.now), rank: rank, seq: c.made, do: do})
}

// due returns when the next event is; false when there is none.
func (c *clock) due() (cell.Instant, bool) {
	if len(c.events) == 0 {
		return 0, false
	}
	return c.events[0].at, true
}

// step does every event that is due at the present time.
func (c *clock) step() {
	for len(c.events) > 0 && c.events[0].at <= c.now {
		e := heap.Pop(&c.events).(event) //nolint:errcheck // only events are pushed
		e.do()
	}
}
