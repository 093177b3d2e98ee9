package cell

import (
	"math"
	"time"
)

// Instant is a point in time in nanoseconds since the Unix epoch; 0 is none. Cores take it as a value, so that the simulator's clock and the
// machine's are one thing to them. Arithmetic stops at the first and the last instant, in the years 1677 and 2262, instead of wrapping: a
// deadline far away is one that never comes, not one that has passed.
type Instant int64

// InstantOf returns t as an instant; the zero time gives 0, and what is out of range the first or the last instant.
func InstantOf(t time.Time) Instant {
	const perSecond = int64(time.Second)
	switch s := t.Unix(); {
	case t.IsZero():
		return 0
	case s >= math.MaxInt64/perSecond:
		return math.MaxInt64
	case s < math.MinInt64/perSecond: // rounded down, so that the whole second fits
		return math.MinInt64
	}
	return Instant(t.UnixNano())
}

// Time returns i in UTC; 0 gives the zero time.
func (i Instant) Time() time.Time {
	if i == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(i)).UTC()
}

// Add returns the instant d later.
func (i Instant) Add(d time.Duration) Instant {
	sum := i + Instant(d)
	switch {
	case d > 0 && sum < i:
		return math.MaxInt64
	case d < 0 && sum > i:
		return math.MinInt64
	}
	return sum
}

// Sub returns how much later i is than j.
func (i Instant) Sub(j Instant) time.Duration {
	d := time.Duration(i - j)
	switch {
	case i > j && d < 0:
		return math.MaxInt64
	case i < j && d > 0:
		return math.MinInt64
	}
	return d
}
