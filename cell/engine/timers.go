package engine

import (
	"container/heap"
	"time"

	"github.com/fairlead/fairlead/cell"
)

// timerHeap orders a lane's jobs by their next change by time, then by acceptance, so that every replica fires them in one order. It must be fixed
// whenever a job's state changes: see State.arm.
type timerHeap []*Job

func (h timerHeap) Len() int { return len(h) }

func (h timerHeap) Less(i, j int) bool {
	if h[i].due != h[j].due {
		return h[i].due < h[j].due
	}
	return h[i].Seq < h[j].Seq
}

func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].timer, h[j].timer = i, j
}

// Push is for container/heap only.
func (h *timerHeap) Push(x any) {
	j, ok := x.(*Job)
	if !ok {
		panic("engine: not a job")
	}
	j.timer = len(*h)
	*h = append(*h, j)
}

// Pop is for container/heap only.
func (h *timerHeap) Pop() any {
	old := *h
	j := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	j.timer = -1
	return j
}

// lanesByTimer orders open lanes by their first timer, so that all timers fire in one order, and a lane comes and goes with all of its own at
// once.
type lanesByTimer []*Lane

func (h lanesByTimer) Len() int { return len(h) }

func (h lanesByTimer) Less(i, j int) bool {
	a, b := h[i].timers[0], h[j].timers[0]
	switch {
	case a.due != b.due:
		return a.due < b.due
	case a.Seq != b.Seq:
		return a.Seq < b.Seq
	default:
		return h[i].before(h[j])
	}
}

func (h lanesByTimer) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].timed, h[j].timed = i, j
}

// Push is for container/heap only.
func (h *lanesByTimer) Push(x any) {
	l := theLane(x)
	l.timed = len(*h)
	*h = append(*h, l)
}

// Pop is for container/heap only.
func (h *lanesByTimer) Pop() any {
	l := takeLast((*[]*Lane)(h))
	l.timed = -1
	return l
}

// theLane is what stands in a heap of lanes.
func theLane(x any) *Lane {
	l, ok := x.(*Lane)
	if !ok {
		panic("engine: not a lane")
	}
	return l
}

// before orders lanes by name.
func (l *Lane) before(m *Lane) bool {
	if l.ID.Tenant != m.ID.Tenant {
		return l.ID.Tenant < m.ID.Tenant
	}
	return l.ID.Class < m.ID.Class
}

// place puts a lane where it belongs in a heap of lanes, at being where it is now, or takes it out.
func placeLane(h heap.Interface, l *Lane, at int, in bool) {
	switch {
	case in && at < 0:
		heap.Push(h, l)
	case in:
		heap.Fix(h, at)
	case at >= 0:
		heap.Remove(h, at)
	}
}

// retime puts the lane where its first timer wants it.
func (s *State) retime(l *Lane) { placeLane(&s.timing, l, l.timed, l.serves() && len(l.timers) > 0) }

// disarm takes the job out before its state changes, since the order depends on it.
func (s *State) disarm(j *Job) {
	if l := j.Lane; j.timer >= 0 {
		last := len(l.timers) == 1
		if last && l.timed >= 0 {
			heap.Remove(&s.timing, l.timed)
		}
		heap.Remove(&l.timers, j.timer)
		if !last {
			s.retime(l)
		}
	}
}

// arm puts the job where its state wants it.
func (s *State) arm(j *Job) {
	if j.due = j.timerAt(); j.due != 0 {
		heap.Push(&j.Lane.timers, j)
		s.retime(j.Lane)
	}
}

// fireTimers brings the state up to its time, at most TimersPerEntryMax jobs at once.
func (s *State) fireTimers(a *Applied) {
	for range s.limits.TimersPerEntryMax {
		if len(s.timing) == 0 || s.timing[0].timers[0].due > s.time {
			return
		}
		j := s.timing[0].timers[0]
		deadline := j.Spec.Deadline != 0 && j.Spec.Deadline <= s.time
		switch {
		case j.State.Ended():
			s.forget(j)
		case deadline:
			s.end(j, eventExpire, a)
			a.Expired = append(a.Expired, j)
		default:
			s.move(j, eventWake, false)
			a.Woken = append(a.Woken, j)
		}
	}
}

// after returns the instant d later than at: never before it, never past the last there is, and never 0, which would mean never.
func after(at cell.Instant, d time.Duration) cell.Instant {
	return max(at.Add(max(d, 0)), 1)
}
