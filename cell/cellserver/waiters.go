package cellserver

import (
	"slices"

	"github.com/fairlead/fairlead/cell"
)

// waiters is who waits for the ends of jobs, by the lane: what happens to a lane ends the waits of its jobs alone.
type waiters map[cell.Lane]map[cell.JobID][]chan struct{}

func (w waiters) add(lane cell.Lane, id cell.JobID, ended chan struct{}) {
	of := w[lane]
	if of == nil {
		of = map[cell.JobID][]chan struct{}{}
		w[lane] = of
	}
	of[id] = append(of[id], ended)
}

// remove forgets one who does not wait any more.
func (w waiters) remove(lane cell.Lane, id cell.JobID, ended chan struct{}) {
	of := w[lane]
	if i := slices.Index(of[id], ended); i >= 0 {
		of[id] = slices.Delete(of[id], i, i+1)
	}
	w.tidy(lane, id)
}

// end ends the waits for a job.
func (w waiters) end(lane cell.Lane, id cell.JobID) {
	of := w[lane]
	if len(of[id]) == 0 {
		return
	}
	for _, ended := range of[id] {
		close(ended)
	}
	delete(of, id)
	w.tidy(lane, id)
}

// tidy drops what is empty.
func (w waiters) tidy(lane cell.Lane, id cell.JobID) {
	of := w[lane]
	if len(of[id]) == 0 {
		delete(of, id)
	}
	if len(of) == 0 {
		delete(w, lane)
	}
}

// endLane ends the waits for all jobs of a lane.
func (w waiters) endLane(lane cell.Lane) {
	for id := range w[lane] { // order-free: each is told the same
		w.end(lane, id)
	}
}

// endAll ends every wait.
func (w waiters) endAll() {
	for lane := range w { // order-free: each is told the same
		w.endLane(lane)
	}
}
