package report

import (
	"math/bits"
	"strconv"
	"time"
)

// tick is a mark of an axis.
type tick struct {
	at    time.Duration
	label string
}

// ticks returns round marks for an axis of time from from to to, at most about most of them, with labels of one unit, and that unit's name.
func ticks(from, to time.Duration, most int) (marks []tick, unit string) {
	const day = 24 * time.Hour
	step, span := time.Duration(0), to-from
	for _, s := range []time.Duration{
		time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
		100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second,
		20 * time.Second, 50 * time.Second, 100 * time.Second, 200 * time.Second, 10 * time.Minute, 20 * time.Minute, 30 * time.Minute, time.Hour,
		2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, day, 2 * day, 5 * day, 10 * day, 20 * day, 50 * day, 100 * day, 500 * day,
	} {
		step = s
		if span/s <= time.Duration(most) {
			break
		}
	}
	name, one := "seconds", time.Second
	switch {
	case step >= day:
		name, one = "days", day
	case step >= time.Hour:
		name, one = "hours", time.Hour
	case step >= 10*time.Minute:
		name, one = "minutes", time.Minute
	case step < 10*time.Millisecond:
		name, one = "milliseconds", time.Millisecond
	}
	first := from - from%step
	if first < from {
		first += step
	}
	for at := first; at <= to; at += step {
		marks = append(marks, tick{at, thousands(strconv.FormatFloat(float64(at)/float64(one), 'f', -1, 64))})
	}
	return marks, name
}

// logAxis is an axis of durations in which equal lengths are equal ratios. It has a place of its own for 0, which no ratio reaches.
type logAxis struct {
	lo, hi time.Duration // both above 0
	length px
	zero   px // how far the place of 0 stands before lo
}

// place returns where d is, from the place of 0.
func (a *logAxis) place(d time.Duration) px {
	if d <= 0 {
		return 0
	}
	lo, hi := log2(uint64(a.lo)), log2(uint64(a.hi))
	return a.zero + scaled(log2(uint64(max(d, a.lo)))-lo, hi-lo, a.length-a.zero)
}

// marks returns the axis's round values: powers of ten with labels, and what lies between without.
func (a *logAxis) marks() []tick {
	var out []tick
	for i, at := range roundDurations() {
		if at < max(a.lo, time.Microsecond) || at > a.hi {
			continue
		}
		t := tick{at: at}
		if i%roundsInDecade == 0 {
			t.label = roundSpan(at)
		}
		out = append(out, t)
	}
	return out
}

// roundSpan writes a power of ten.
func roundSpan(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return strconv.FormatInt(int64(d/time.Microsecond), 10) + nb + "µs"
	case d < time.Second:
		return strconv.FormatInt(int64(d/time.Millisecond), 10) + nb + "ms"
	default:
		return number(int(d/time.Second)) + nb + "s"
	}
}

// logFraction is how many binary places log2 has.
const logFraction = 20

// log2 returns the binary logarithm of n >= 1 times 2^logFraction, rounded down. It squares the mantissa again and again: each time it passes 2 is a
// binary place of the logarithm. Floating point would do, but for the last digits, which differ between machines.
func log2(n uint64) int64 {
	whole := bits.Len64(n) - 1
	mantissa := n << (63 - whole) // 1 to 2, with 63 places
	out := int64(whole)
	for range logFraction {
		hi, _ := bits.Mul64(mantissa, mantissa) // 1 to 4, with 62 places
		out <<= 1
		if hi>>63 == 1 {
			out |= 1
			mantissa = hi
		} else {
			mantissa = hi << 1
		}
	}
	return out
}

// roundsInDecade is how many round durations there are from one power of ten to before the next.
const roundsInDecade = 3

// roundDurations returns 1, 2 and 5 times every power of ten of nanoseconds, in order.
func roundDurations() []time.Duration {
	var out []time.Duration
	for decade := int64(1); decade <= 1e18; decade *= 10 {
		out = append(out, time.Duration(decade), time.Duration(2*decade), time.Duration(5*decade))
		if decade == 1e18 {
			break // the next is beyond what a duration holds
		}
	}
	return out
}

// roundDown and roundUp return the nearest round duration that is at most, or at least, d, which is above 0.
func roundDown(d time.Duration) time.Duration {
	best := time.Duration(1)
	for _, at := range roundDurations() {
		if at <= d {
			best = at
		}
	}
	return best
}

func roundUp(d time.Duration) time.Duration {
	for _, at := range roundDurations() {
		if at >= d {
			return at
		}
	}
	return d
}
