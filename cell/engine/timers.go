package engine

import (
	"container/heap"
	"time"

	"github.com/fairlead/fairlead/cell"
)

// timerHeap orders jobs by their next change by time, then by acceptance, so that every replica fires them in one order. It must be fixed
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

// disarm takes the job out before its state changes, since the order depends on it.
func (s *State) disarm(j *Job) {
	if j.timer >= 0 {
		heap.Remove(&s.timers, j.timer)
	}
}

// arm puts the job where its state wants it.
func (s *State) arm(j *Job) {
	if j.due = j.timerAt(); j.due != 0 {
		heap.Push(&s.timers, j)
	}
}

// fireTimers brings the state up to its time, at most TimersPerEntryMax jobs at once.
func (s *State) fireTimers(a *Applied) {
	for range s.limits.TimersPerEntryMax {
		if len(s.timers) == 0 || s.timers[0].due > s.time {
			return
		}
		j := s.timers[0]
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

// expireKeys forgets keys whose window is over.
func (s *State) expireKeys() {
	for range s.limits.TimersPerEntryMax {
		r := s.keys.oldest
		if r == nil || r.expires > s.time {
			return
		}
		s.touchKey(r)
		s.keys.remove(r)
		delete(r.lane.keys, r.hash)
		s.keys.records--
	}
}

// after returns the instant d later than at: never before it, never past the last there is, and never 0, which would mean never.
func after(at cell.Instant, d time.Duration) cell.Instant {
	return max(at.Add(max(d, 0)), 1)
}
