package drr

import (
	"math"
	"math/bits"
)

// add is a + b, held at the ends of int64 instead of wrapping around.
func add(a, b int64) int64 {
	c := a + b
	if (c > a) == (b > 0) {
		return c
	}
	if b > 0 {
		return math.MaxInt64
	}
	if b == 0 {
		return a
	}
	return math.MinInt64
}

// sub is a - b, held at the ends of int64. It is not add(a, -b), because -MinInt64 does not exist.
func sub(a, b int64) int64 {
	c := a - b
	if (c < a) == (b > 0) {
		return c
	}
	if b > 0 {
		return math.MinInt64
	}
	if b == 0 {
		return a
	}
	return math.MaxInt64
}

// mul is a * b for a, b >= 0, held at the end of int64.
func mul(a, b int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi != 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(lo)
}
