package cellserver

import (
	"slices"
	"sync"
	"time"
)

const (
	// commitsKept is of how many entries it is known how long they took: at the pace of a busy cell those of some seconds, of which one in a hundred
	// still says something.
	commitsKept = 1000
	// commitsAge is how old what counts may be, as long as there are commitsLeast younger ones: what a cell did a minute ago says nothing of what a
	// copy does to it now.
	commitsAge   = 10 * time.Second
	commitsLeast = 100
)

// commits is how long the latest entries took from their proposal until they were applied: what the copy of a lane must not make much worse. Its
// methods are safe for concurrent use.
type commits struct {
	mu    sync.Mutex
	kept  [commitsKept]commit // a ring: the n-th is at n modulo its length
	noted int                 // so far
}

type commit struct {
	at   time.Time
	took time.Duration
}

// note takes in an entry that was applied just now.
func (c *commits) note(now time.Time, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept[c.noted%commitsKept] = commit{at: now, took: took}
	c.noted++
}

// forget begins anew: what another reign saw says nothing of this one.
func (c *commits) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noted = 0
}

// quantiles returns the time that half of the latest entries took at most, and that 99 of 100 did; 0 before the first.
func (c *commits) quantiles(now time.Time) (p50, p99 time.Duration) {
	took := c.latest(now)
	if len(took) == 0 {
		return 0, 0
	}
	slices.Sort(took)
	rank := func(percent int) time.Duration { // nearest rank
		return took[max(0, (len(took)*percent+percentAll-1)/percentAll-1)]
	}
	return rank(percentHalf), rank(percentNearlyAll)
}

const percentHalf, percentNearlyAll, percentAll = 50, 99, 100

// latest returns what counts, the newest first.
func (c *commits) latest(now time.Time) []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(c.noted, commitsKept)
	took := make([]time.Duration, 0, n)
	for i := 1; i <= n; i++ {
		e := &c.kept[(c.noted-i)%commitsKept]
		if len(took) >= commitsLeast && now.Sub(e.at) > commitsAge {
			break
		}
		took = append(took, e.took)
	}
	return took
}
