package tree

import (
	"math"
	"math/bits"
)

const second = int64(1e9)

// tag is a time that moves on by cost / rate with each charge: the one of R, L or K that it is used as (Gulati et al., "mClock: Handling
// Throughput Variability for Hypervisor IO Scheduling", OSDI 2010, section 3.2, where tags are by request and not by cost). The part of a
// nanosecond is kept, so that a thousand small charges move it as far as one large one, and a refund exactly back.
type tag struct {
	at   int64 // nanoseconds
	part int64 // of the next nanosecond, in 1/rate: 0 to rate - 1
}

// move charges a cost at a rate above 0; a negative cost is a refund.
func (t *tag) move(cost, rate int64) {
	if cost >= 0 {
		hi, lo := bits.Mul64(uint64(cost), uint64(second))
		lo, carry := bits.Add64(lo, uint64(t.part), 0)
		hi += carry
		if hi >= uint64(rate) {
			t.at, t.part = math.MaxInt64, 0
			return
		}
		q, r := bits.Div64(hi, lo, uint64(rate))
		t.at, t.part = add(t.at, int64(min(q, math.MaxInt64))), int64(r)
		return
	}
	q, r := muldiv(-max(cost, -math.MaxInt64), second, rate)
	t.at, t.part = sub(t.at, q), t.part-r
	if t.part < 0 {
		t.at, t.part = sub(t.at, 1), t.part+rate
	}
}

// raise brings the tag to a time if it is before it.
func (t *tag) raise(at int64) {
	if t.at < at {
		*t = tag{at: at}
	}
}

// due is the first whole nanosecond that is not before the tag.
func (t *tag) due() int64 {
	if t.part > 0 {
		return add(t.at, 1)
	}
	return t.at
}

// rescaled is a tag whose rate changes: the cost by which it is ahead of a time stays the same.
func rescaled(at, now, from, to int64) int64 {
	ahead := sub(at, now)
	if ahead <= 0 {
		return at
	}
	q, _ := muldiv(ahead, from, to)
	return add(now, q)
}
