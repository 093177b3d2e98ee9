package sim

// ordered is something that goes before others of its kind.
type ordered[T any] interface{ before(other T) bool }

// heap is a binary heap, least first. Standard heaps box what they hold, which is most of their time where millions are held.
type heap[T ordered[T]] []T

func (h *heap[T]) push(x T) {
	*h = append(*h, x)
	a := *h
	i := len(a) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !x.before(a[parent]) {
			break
		}
		a[i] = a[parent]
		i = parent
	}
	a[i] = x
}

func (h *heap[T]) pop() T {
	a := *h
	top, x := a[0], a[len(a)-1]
	var none T
	a[len(a)-1] = none
	a = a[:len(a)-1]
	*h = a
	if len(a) == 0 {
		return top
	}
	i := 0
	for {
		child := 2*i + 1
		if child >= len(a) {
			break
		}
		if right := child + 1; right < len(a) && a[right].before(a[child]) {
			child = right
		}
		if !a[child].before(x) {
			break
		}
		a[i] = a[child]
		i = child
	}
	a[i] = x
	return top
}

// slot is a slot's number.
type slot int32

func (s slot) before(o slot) bool { return s < o }

// completion is the end of an attempt. An attempt that was taken back leaves its own behind, told by its number.
type completion struct {
	at      int64 // nanoseconds since the start
	record  *Record
	slot    slot
	attempt int32 // Record.Preempted when it began
}

func (c completion) before(o completion) bool {
	if c.at != o.at {
		return c.at < o.at
	}
	return c.slot < o.slot
}

// expiry is a deadline of a job that waits, or has waited.
type expiry struct {
	at     int64
	record *Record
}

func (e expiry) before(o expiry) bool {
	if e.at != o.at {
		return e.at < o.at
	}
	return e.record.Job.ID < o.record.Job.ID
}
