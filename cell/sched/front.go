package sched

import (
	"slices"

	"github.com/fairlead/fairlead/cell"
)

// FrontMax bounds what Front returns, and frontStepsPerJob the strands that it looks at for each job.
const (
	FrontMax         = 100
	frontStepsPerJob = 4
)

// Front returns the jobs, at most n and [FrontMax], that would be granted first in a lane, in their order, if it were open and workers offered
// everything: those that a key blocks, or would once the ones before them run, are left out, and so are those past their deadline. It grants
// nothing. A lane of many jobs that block each other may have more to give than it returns. Under FIFO it returns only what stands aside.
func (s *Scheduler) Front(id cell.Lane, n int) []cell.JobID {
	t := s.tenantOf(id.Tenant)
	if t == nil || t.lanes[id.Class.Index()] == nil || n <= 0 {
		return nil
	}
	n = min(n, FrontMax)
	f := front{scheduler: s, taken: map[*key]int64{}, seen: map[waitID]bool{}}
	for _, q := range t.lanes[id.Class.Index()].queues {
		f.strand(&q.awake, 0)
	}
	var ids []cell.JobID
	for steps := frontStepsPerJob * (n + 1); steps > 0 && len(ids) < n && len(f.cursors) > 0; steps-- {
		if j := f.next(); j != nil {
			ids = append(ids, j.ID)
		}
	}
	return ids
}

// front walks a lane's heaps in order without changing them: an element of a binary heap comes before what is below it, so that only what is below
// those already seen is ever looked at.
type front struct {
	scheduler *Scheduler
	taken     map[*key]int64  // of each key, by the jobs that would run
	seen      map[waitID]bool // where those that sleep are looked at, too
	cursors   []cursor        // unordered: there are few
}

// cursor is a place in a strand's jobs, the first of them where the strands below it are still to be looked at.
type cursor struct {
	strand *strand
	job    int
	in     *heap[*strand, headOrder] // nil where they are not
}

func (c cursor) at() *job { return c.strand.jobs.items[c.job] }

// strand looks at the strand at that place in a heap, if there is one.
func (f *front) strand(in *heap[*strand, headOrder], at int) {
	if at < in.len() {
		f.cursors = append(f.cursors, cursor{strand: in.items[at], in: in})
	}
}

// next takes the least of the jobs that are looked at; nil when that one would not run.
func (f *front) next() *job {
	at := 0
	for i := range f.cursors {
		if f.cursors[i].at().before(f.cursors[at].at()) {
			at = i
		}
	}
	c := f.cursors[at]
	f.cursors = slices.Delete(f.cursors, at, at+1)
	if c.in != nil {
		place := 2 * int(c.strand.at)
		f.strand(c.in, place+1)
		f.strand(c.in, place+2)
		f.sleepers(c.strand)
	}
	if f.full(c.strand) {
		return nil // nor would those behind it
	}
	for child := 2*c.job + 1; child <= 2*c.job+2 && child < c.strand.jobs.len(); child++ {
		f.cursors = append(f.cursors, cursor{strand: c.strand, job: child})
	}
	j := c.at()
	if j.late(f.scheduler.now) {
		return nil
	}
	for _, k := range c.strand.keys {
		if k != nil {
			f.taken[k]++
		}
	}
	return j
}

// sleepers looks at those that sleep behind a strand: where one of its keys has room, it is the strand that would wake them.
func (f *front) sleepers(st *strand) {
	for _, k := range st.keys {
		if k == nil {
			return
		}
		id := waitID{k, st.queue}
		if w := f.scheduler.waits[id]; w != nil && k.room() && !f.seen[id] {
			f.seen[id] = true
			f.strand(&w.strands, 0)
		}
	}
}

// full reports whether one of the strand's keys has no room for another job beside those that would run.
func (f *front) full(st *strand) bool {
	return slices.ContainsFunc(st.keys[:], func(k *key) bool { return k != nil && k.held+f.taken[k] >= k.max })
}
