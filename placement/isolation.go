package placement

import (
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/fairlead/fairlead/cell"
)

// Bounds of what is computed: they keep every call within milliseconds.
const (
	WorkersMax = 1_000_000 // of all workers, or queues
	HandMax    = 256       // of a hand
	HeavyMax   = 1_000     // of heavy tenants
)

// Check returns a *[cell.FieldError] unless hands of a size can be drawn from a number of workers.
func Check(workers, hand int) error {
	if workers < 1 || workers > WorkersMax {
		return outside("workers", workers, 1, WorkersMax, "give the number of workers, or queues, that hands are drawn from")
	}
	if most := min(workers, HandMax); hand < 1 || hand > most {
		return outside("hand", hand, 1, most, "give the number of workers that one tenant has")
	}
	return nil
}

func outside(field string, value, least, most int, remedy string) error {
	return &cell.FieldError{Field: field, Problem: fmt.Sprintf("is %d, outside %d to %d", value, least, most), Remedy: remedy}
}

// Shards returns how many different hands there are: workers choose hand. It is exact, and false when that does not fit in 64 bits. It
// returns the errors of [Check].
func Shards(workers, hand int) (n uint64, exact bool, err error) {
	if err := Check(workers, hand); err != nil {
		return 0, false, err
	}
	hand = min(hand, workers-hand)
	n = 1
	for i := range uint64(hand) {
		// n is workers choose i, which grows with i up to the middle; each division leaves nothing.
		hi, lo := bits.Mul64(n, uint64(workers)-i)
		if hi > i { // the quotient by i+1 would not fit
			return 0, false, nil
		}
		n, _ = bits.Div64(hi, lo, i+1)
	}
	return n, true, nil
}

// ShardsAbout is Shards as a float64, however many there are; infinite above 10^308.
func ShardsAbout(workers, hand int) (float64, error) {
	if err := Check(workers, hand); err != nil {
		return 0, err
	}
	n := 1.0
	for i := range min(hand, workers-hand) {
		n *= float64(workers-i) / float64(i+1)
	}
	return n, nil
}

// Overlap returns the chances that two tenants, whose hands are drawn independently, share exactly 0, 1, and so on up to all of their workers.
// It is the hypergeometric distribution. It returns the errors of [Check].
func Overlap(workers, hand int) ([]float64, error) {
	if err := Check(workers, hand); err != nil {
		return nil, err
	}
	return drawn(workers, hand, hand), nil
}

// drawn returns the chances that, of draws cards without replacement out of n, 0, 1, ... marked are among the marked ones. From the likeliest
// number down and up each chance is a product of the one before, and the sum is scaled to one: nothing cancels, and nothing that matters is too
// small for a float64.
func drawn(n, marked, draws int) []float64 {
	p := make([]float64, marked+1)
	least, most := max(0, draws+marked-n), min(marked, draws)
	// (j+1) (n-marked-draws+j+1) p[j+1] = (marked-j) (draws-j) p[j]
	ratio := func(j int) float64 {
		return float64(marked-j) * float64(draws-j) / (float64(j+1) * float64(n-marked-draws+j+1))
	}
	mode := least
	for mode < most && ratio(mode) > 1 {
		mode++
	}
	p[mode] = 1
	sum := 1.0
	for j := mode; j < most; j++ {
		p[j+1] = p[j] * ratio(j)
		sum += p[j+1]
	}
	for j := mode; j > least; j-- {
		p[j-1] = p[j] / ratio(j-1)
		sum += p[j-1]
	}
	for j := range p {
		p[j] /= sum
	}
	return p
}

// Stuck returns the chance that a tenant has no worker of its own left: that each of its hand is also in the hand of at least one of so many
// heavy tenants, all drawn independently. It returns the errors of [Check], or one about heavy, which is from 0 to HeavyMax.
func Stuck(workers, hand, heavy int) (float64, error) {
	if err := Check(workers, hand); err != nil {
		return 0, err
	}
	if heavy < 0 || heavy > HeavyMax {
		return 0, outside("heavy", heavy, 0, HeavyMax, "give the number of tenants that fill all of their hands")
	}
	// left[u] is the chance that u of the tenant's hand are in no heavy hand yet; the next one takes some of them.
	taken := make([][]float64, hand+1)
	for u := range taken {
		taken[u] = drawn(workers, u, hand)
	}
	left := make([]float64, hand+1)
	left[hand] = 1
	for range heavy {
		next := make([]float64, hand+1)
		for u, p := range left {
			for j, q := range taken[u] {
				next[u-j] += p * q
			}
		}
		left = next
	}
	return left[0], nil
}

// InFlight returns how many jobs are under way at a time when so many start a second and each takes so long: rate x time (J. D. C. Little, "A
// Proof for the Queuing Formula: L = lambda W", Operations Research 1961). Jobs are in millionths, in and out; a product that is too large is
// the largest int64, and what is negative counts as 0.
func InFlight(started int64, each time.Duration) int64 {
	return scale(started, int64(each), int64(time.Second))
}

// Ceiling returns how many jobs a second at most start, in millionths, when no more than so many may be under way and each takes so long: the
// most that a cap lets through. Without any time there is no ceiling: the largest int64.
func Ceiling(running int64, each time.Duration) int64 {
	if each <= 0 {
		return math.MaxInt64
	}
	return scale(running, cell.Unit*int64(time.Second), int64(each))
}

// scale is a x b / c, rounded down and held at the ends. c must be positive.
func scale(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(max(a, 0)), uint64(max(b, 0)))
	if hi >= uint64(c) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(q, math.MaxInt64))
}
