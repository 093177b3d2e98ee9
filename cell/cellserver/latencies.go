package cellserver

import (
	"slices"
	"sync"
	"time"
)

const (
	// latenciesKept is of how many it is known how long they took: at the pace of a busy cell those of some seconds, of which one in a hundred still
	// says something.
	latenciesKept = 1000
	// latenciesAge is how old what counts may be, as long as there are latenciesLeast younger ones: what a cell did a minute ago says nothing of what a
	// copy does to it now.
	latenciesAge   = 10 * time.Second
	latenciesLeast = 100
)

// latencies is how long the latest of something took: entries of the log until they were applied, or calls until they were answered. A copy of a lane must
// not make them much worse. Its methods are safe for concurrent use.
type latencies struct {
	mu    sync.Mutex
	kept  [latenciesKept]latency // a ring: the n-th is at n modulo its length
	noted uint64                 // so far
}

type latency struct {
	at   time.Time
	took time.Duration
}

// note takes in what has just come to its end.
func (l *latencies) note(now time.Time, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept[l.noted%latenciesKept] = latency{at: now, took: took}
	l.noted++
}

// forget begins anew: what another reign saw says nothing of this one.
func (l *latencies) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noted = 0
}

// slow returns how many there were so far, and how many of those after the first seen of them took longer than after: of the latest latenciesKept, which is
// all that is remembered. All of these count when fewer than seen are known: another reign has begun.
func (l *latencies) slow(seen uint64, after time.Duration) (noted uint64, slow int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	since := max(l.noted, latenciesKept) - latenciesKept
	if seen <= l.noted {
		since = max(since, seen)
	}
	for i := since; i < l.noted; i++ {
		if l.kept[i%latenciesKept].took > after {
			slow++
		}
	}
	return l.noted, slow
}

// quantiles returns the time that half of the latest took at most, and that 99 of 100 did; 0 before the first.
func (l *latencies) quantiles(now time.Time) (p50, p99 time.Duration) {
	took := l.latest(now)
	if len(took) == 0 {
		return 0, 0
	}
	slices.Sort(took)
	return nearestRank(took, percentHalf), nearestRank(took, percentNearlyAll)
}

const percentHalf, percentNearlyAll, percentAll = 50, 99, 100

// nearestRank returns a percentile, from 1 on, of durations that are sorted, of which there has to be one.
func nearestRank(sorted []time.Duration, percent int) time.Duration {
	return sorted[(len(sorted)*percent+percentAll-1)/percentAll-1]
}

// latest returns what counts, the newest first.
func (l *latencies) latest(now time.Time) []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(l.noted, latenciesKept)
	took := make([]time.Duration, 0, n)
	for i := uint64(1); i <= n; i++ {
		e := &l.kept[(l.noted-i)%latenciesKept]
		if len(took) >= latenciesLeast && now.Sub(e.at) > latenciesAge {
			break
		}
		took = append(took, e.took)
	}
	return took
}
