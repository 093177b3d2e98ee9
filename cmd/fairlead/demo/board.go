package demo

import (
	"sync"
	"time"
)

// board is what there is to see of a run while it goes on. It is safe for concurrent use.
type board struct {
	mu       sync.Mutex
	title    string
	expected time.Duration
	policies []*track // in the order in which they run
}

// phase is how far a policy's run has come.
type phase uint8

const (
	phaseWaiting  phase = iota // for the one before
	phaseStarting              // its processes
	phaseRunning
	phaseDone
	phaseStopped // before its end
)

// track is what has been seen of one policy's run. Its fields are guarded by the board's mutex.
type track struct {
	policy     string
	bulk, rest string // names
	phase      phase
	slots      int
	start      time.Time
	elapsed    time.Duration // when it is done
	bulkTotal  int
	restTotal  int

	seen     []seen // by the job's number
	busy     int
	bulkDone int
	restDone int
	waiting  map[int]struct{} // jobs of the rest that are submitted and have not started
	worst    time.Duration    // wait of one of the rest
	handlers time.Duration    // how long handlers ran, in all
	workload *workload
}

// seen is what has been seen of one job.
type seen struct {
	submitted  time.Time
	start, end time.Time
}

// state is what the view shows of a policy: a copy, as of one moment.
type state struct {
	policy             string
	bulk, rest         string
	phase              phase
	elapsed            time.Duration
	slots, busy        int
	bulkDone, restDone int
	bulkTotal          int
	restTotal          int
	waitNow, waitWorst time.Duration // of the rest; the worst includes those that wait now
	used               float64       // of the slots' time, that handlers ran; once the run is done
}

func newBoard(title string, w *workload, slots int) *board {
	b := &board{title: title, expected: w.expected}
	for _, p := range policies() {
		bulk := w.bulkJobs()
		b.policies = append(b.policies, &track{
			policy: p, bulk: w.bulkName(), rest: w.restName(), slots: slots, bulkTotal: bulk, restTotal: len(w.jobs) - bulk,
			seen: make([]seen, len(w.jobs)), waiting: make(map[int]struct{}), workload: w,
		})
	}
	return b
}

func (b *board) track(policy string) *track {
	for _, t := range b.policies {
		if t.policy == policy {
			return t
		}
	}
	panic("demo: no policy " + policy)
}

// advance moves a policy's run on to a phase.
func (b *board) advance(policy string, to phase, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.track(policy)
	switch to {
	case phaseRunning:
		t.start = now
	case phaseDone, phaseStopped:
		if !t.start.IsZero() {
			t.elapsed = now.Sub(t.start)
		}
	case phaseWaiting, phaseStarting:
	}
	t.phase = to
}

// submitted notes that jobs are being submitted.
func (b *board) submitted(policy string, jobs []job, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.track(policy)
	for _, j := range jobs {
		s := &t.seen[j.order.N]
		s.submitted = at
		if j.tenant != bulkTenant && s.start.IsZero() {
			t.waiting[j.order.N] = struct{}{}
		}
	}
}

// sighted notes what a worker told. A job that was leased again, since its first worker was lost, may be seen twice.
func (b *board) sighted(policy string, s sighting) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.track(policy)
	if s.N < 0 || s.N >= len(t.seen) {
		return
	}
	j, isBulk := &t.seen[s.N], t.workload.jobs[s.N].tenant == bulkTenant
	if s.EndUS == 0 {
		t.busy++
		if j.start.IsZero() {
			j.start = time.UnixMicro(s.StartUS)
			delete(t.waiting, s.N)
			if !isBulk && !j.submitted.IsZero() {
				t.worst = max(t.worst, j.start.Sub(j.submitted))
			}
		}
		return
	}
	t.busy--
	if !j.end.IsZero() {
		return
	}
	j.end = time.UnixMicro(s.EndUS)
	t.handlers += j.end.Sub(j.start)
	if isBulk {
		t.bulkDone++
	} else {
		t.restDone++
	}
}

// sightingOf returns when a job was seen to start and to end, and false when it was not seen.
func (b *board) sightingOf(policy string, n int) (start, end time.Time, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.track(policy).seen[n]
	return s.start, s.end, !s.start.IsZero()
}

// states returns a copy of what is to be shown.
func (b *board) states(now time.Time) []state {
	b.mu.Lock()
	defer b.mu.Unlock()
	var states []state
	for _, t := range b.policies {
		s := state{
			policy: t.policy, bulk: t.bulk, rest: t.rest, phase: t.phase, elapsed: t.elapsed, slots: t.slots, busy: t.busy,
			bulkDone: t.bulkDone, restDone: t.restDone, bulkTotal: t.bulkTotal, restTotal: t.restTotal,
		}
		if t.phase == phaseRunning {
			s.elapsed = now.Sub(t.start)
		}
		if room := t.elapsed * time.Duration(t.slots); room > 0 {
			s.used = float64(t.handlers) / float64(room)
		}
		for n := range t.waiting {
			s.waitNow = max(s.waitNow, now.Sub(t.seen[n].submitted))
		}
		s.waitWorst = max(t.worst, s.waitNow)
		states = append(states, s)
	}
	return states
}
