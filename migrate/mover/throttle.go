package mover

import (
	"sync"
	"time"
)

// How fast a copy may be. What callers of the source are answered has a budget: of a hundred answers hardly one may be slow, that is take longer than 1.25
// times what 99 of a hundred took before anything was copied. While the budget holds the rate rises, and once it is used up it falls until what is answered in
// time has made up for it. So the copy finds what the source can bear, and over all of it the 99th percentile stays where it is allowed to be.
const (
	// rateMin is what is copied however slow the source is, where as much is allowed: a copy that stands still never ends. Where more than usual is allowed so is
	// more at the least, a leastPart of it: whoever is in a hurry is heard.
	rateMin   = 384 << 10
	leastPart = 48
	// rateStart is the part of what is allowed that a copy begins with, rateRise the part of itself by which the rate rises, and rateCreep the one by which it
	// rises further from half of what was too much the last time.
	rateStart = 16
	rateRise  = 8
	rateCreep = 64
	// burstMax is for how long what was not used may be used later.
	burstMax = 25 * time.Millisecond
	// riseInterval is between two rises of the rate: as long as it takes to see what the last one did. fallInterval is between two falls.
	riseInterval = 500 * time.Millisecond
	fallInterval = 100 * time.Millisecond
	// slowPercent is how many hundredths of the baseline an answer may take before it is slow: 1.25 times.
	slowPercent, percentAll = 125, 100
	// slowThousandths is how many of a thousand answers may be slow: fewer than the ten that make a 99th percentile, for some would be in any case.
	slowThousandths = 5
	// savedMax bounds what is saved, in slow answers, and owedMax what is owed: what was long ago does not count for ever.
	savedMax = 1
	owedMax  = 10
	// baselineMin is what counts as a baseline at least: below it, what differs is noise.
	baselineMin = 2 * time.Millisecond
	// baselineAfter is how long the source must have been slow at the least rate until nothing is copied for restTime: how slow it is without a copy becomes
	// what it is measured by. While that is no slower than it was it is the copy, and the next rest comes twice as late, after baselineAfterMax at most.
	baselineAfter, baselineAfterMax = 30 * time.Second, 10 * time.Minute
	// restTime is longer than what a source tells its 99th percentile of.
	restTime = 11 * time.Second
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
	ceiling  float64       // half of the rate that was too much the last time
	baseline time.Duration // the 99th percentile of the source's answers without a copy; 0 until it was asked
	p99      time.Duration // what it is lately, as the source was asked last; 0 for unknown
	answers  uint64        // that were counted
	budget   float64       // slow answers that may be
	slow     bool          // there were some since the rate was changed
	least    time.Time     // since when it goes at the least rate, and the budget is used up all the same; zero for not
	rests    time.Duration // how long that may last
	mayRest  bool
	rest     time.Time // until when nothing is copied; zero for not
	rested   bool      // what was slow since the source was asked last is none of the copy's
}

func newThrottle(most int64, now time.Time) *throttle {
	t := &throttle{filled: now, adjusted: now, most: float64(most), rests: baselineAfter}
	t.rate, t.ceiling = max(t.floor(), t.most/rateStart), t.most
	t.tokens = t.most * burstMax.Seconds()
	return t
}

// allow changes what is allowed, and says whether the copy may rest: not while somebody waits for the last changes.
func (t *throttle) allow(most int64, rest bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.most, t.mayRest = float64(most), rest
	t.rate = min(max(t.rate, t.floor()), t.most)
}

// floor is the least rate.
func (t *throttle) floor() float64 { return min(max(rateMin, t.most/leastPart), t.most) }

// slowed reports whether it goes slower than allowed because the source suffers.
func (t *throttle) slowed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.budget < 0 && t.rate < t.most
}

// begin takes the 99th percentile of the source's answers before anything is copied; 0 for unknown.
func (t *throttle) begin(p99 time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.baseline = max(baselineMin, p99)
}

// ask returns what a source has to be asked: how many answers were counted, and from when on one is slow.
func (t *throttle) ask() (seen uint64, slowAfter time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.answers, t.baseline * slowPercent / percentAll
}

// learn takes the 99th percentile of the source's latest answers; 0 for unknown.
func (t *throttle) learn(p99 time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.p99 = p99
}

// observe takes how many answers the source has given so far, fewer than before under another leader, and how many of those since it was asked last were slow.
// What was slow while both lanes asked is told to both, and the copy is the slower for it.
func (t *throttle) observe(answers uint64, slow int64, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	more := answers
	if answers >= t.answers {
		more -= t.answers
	}
	t.answers = answers
	if t.rested {
		t.rested = false
		return
	}
	t.budget = min(savedMax, max(-owedMax, t.budget+float64(more)*slowThousandths/1000-float64(slow)))
	t.slow = t.slow || slow > 0
	switch since := now.Sub(t.adjusted); {
	case t.budget >= 0 && since >= riseInterval:
		t.rise(now)
	case t.budget < 0 && since >= fallInterval:
		t.fall(now)
	}
}

func (t *throttle) rise(now time.Time) {
	part := t.rate / rateRise
	if t.rate >= t.ceiling {
		part = t.rate / rateCreep
	}
	t.rate, t.adjusted, t.slow, t.least = min(t.most, t.rate+part), now, false, time.Time{}
}

func (t *throttle) fall(now time.Time) {
	if t.slow {
		t.ceiling = max(t.floor(), t.rate/2)
		t.rate, t.adjusted, t.slow = t.ceiling, now, false
	}
	switch {
	case t.rate > t.floor():
		t.least = time.Time{}
	case t.least.IsZero():
		t.least = now
	case t.mayRest && now.Sub(t.least) >= t.rests:
		t.least, t.rest = time.Time{}, now.Add(restTime)
	}
}

// resting returns how much longer nothing is copied. Once that is over what the source was meanwhile is what it is measured by.
func (t *throttle) resting(now time.Time) time.Duration {
	switch {
	case t.rest.IsZero():
		return 0
	case now.Before(t.rest):
		return t.rest.Sub(now)
	}
	was := t.baseline
	t.baseline = max(baselineMin, t.p99)
	t.rest, t.rested, t.budget, t.adjusted, t.filled = time.Time{}, true, 0, now, now
	if t.rests = min(2*t.rests, baselineAfterMax); t.baseline*percentAll > was*slowPercent {
		t.rests, t.ceiling = baselineAfter, t.most
	}
	return 0
}

// owes returns how long to wait before the next chunk.
func (t *throttle) owes(now time.Time) time.Duration { return t.took(0, now) }

// took says that n bytes were copied, and returns how long to wait before the next.
func (t *throttle) took(n int, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	rest := t.resting(now)
	t.tokens = min(t.most*burstMax.Seconds(), t.tokens+t.rate*now.Sub(t.filled).Seconds())
	t.filled = now
	t.tokens -= float64(n)
	return max(rest, time.Duration(max(0, -t.tokens)/t.rate*float64(time.Second)))
}
