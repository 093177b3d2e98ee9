package mover

import (
	"sync"
	"time"
)

// How fast a copy may be. The rate rises by a part of what is allowed and falls to the half: it finds what the source can bear and yields at once when
// it cannot.
const (
	// rateMin is what is copied however slow the source is: a copy that stands still never ends.
	rateMin = 256 << 10
	// rateStart and rateStep are parts of what is allowed: where it begins, and by what it rises.
	rateStart = 4
	rateStep  = 16
	// burstMax is for how long what was not used may be used later.
	burstMax = 250 * time.Millisecond
	// adjustInterval is between two looks at the source: its figures are over its last entries, so that a change takes a moment to be seen.
	adjustInterval = 500 * time.Millisecond
	// sufferHundredths is how many hundredths of its baseline the source's commits may take before it suffers: 1.25 times.
	sufferHundredths = 125
	// baselineMin is what counts as a baseline at least: below it, what differs is noise.
	baselineMin = 4 * time.Millisecond
	// baselineAfter is how long the source must have been slow at the least rate until that is taken to be how it is: it is not the copy then.
	baselineAfter = 30 * time.Second
)

// throttle says how long a copy has to wait. It is a bucket of bytes which may be in debt: a chunk's size is known once it is there. Both lanes of a tenant
// share one.
type throttle struct {
	mu       sync.Mutex
	most     float64 // bytes a second that are allowed
	rate     float64
	tokens   float64
	filled   time.Time
	adjusted time.Time
	baseline time.Duration // of the source's commits without a copy; 0 until one is known
	least    time.Time     // since when it goes at the least rate, and the source is slow all the same; zero for not
}

func newThrottle(most int64, now time.Time) *throttle {
	t := &throttle{filled: now, adjusted: now, most: max(rateMin, float64(most))}
	t.rate = max(rateMin, t.most/rateStart)
	t.tokens = t.most * burstMax.Seconds()
	return t
}

// allow changes what is allowed.
func (t *throttle) allow(most int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.most = max(rateMin, float64(most))
	t.rate = min(t.rate, t.most)
}

// slowed reports whether it goes slower than allowed because the source suffers.
func (t *throttle) slowed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rate < t.most/rateStart
}

// observe takes what the source says of its commits' 99th percentile. The first, before anything was copied, is its baseline.
func (t *throttle) observe(p99 time.Duration, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p99 <= 0 {
		return
	}
	if t.baseline == 0 {
		t.baseline = max(baselineMin, p99)
		return
	}
	if now.Sub(t.adjusted) < adjustInterval {
		return
	}
	t.adjusted = now
	if p99*100 <= t.baseline*sufferHundredths {
		t.rate, t.least = min(t.most, t.rate+t.most/rateStep), time.Time{}
		return
	}
	t.rate = max(rateMin, t.rate/2)
	switch {
	case t.rate > rateMin:
		t.least = time.Time{}
	case t.least.IsZero():
		t.least = now
	case now.Sub(t.least) >= baselineAfter:
		t.baseline, t.least = p99, time.Time{}
	}
}

// took says that n bytes were copied, and returns how long to wait before the next.
func (t *throttle) took(n int, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tokens = min(t.most*burstMax.Seconds(), t.tokens+t.rate*now.Sub(t.filled).Seconds())
	t.filled = now
	t.tokens -= float64(n)
	if t.tokens >= 0 {
		return 0
	}
	return time.Duration(-t.tokens / t.rate * float64(time.Second))
}
