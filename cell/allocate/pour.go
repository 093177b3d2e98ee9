package allocate

import (
	"cmp"
	"math/bits"
	"slices"
)

// vessel is one of those that an amount is poured into.
type vessel struct {
	weight int64 // how wide it is; one of weight 0 gets nothing
	room   int64 // how much it holds
	got    int64
}

// fraction is a level of water: what a weight of one gets. Its denominator is positive.
type fraction struct {
	num, den int64
}

// of is the level times a weight, rounded down. Neither may be negative, and the level times the weight must fit in an int64, which it does
// where the weight is one of those that make up the denominator.
func (f fraction) of(weight int64) int64 {
	q, _ := f.divide(weight)
	return q
}

func (f fraction) divide(weight int64) (quotient, remainder int64) {
	hi, lo := bits.Mul64(uint64(f.num), uint64(weight))
	q, r := bits.Div64(hi, lo, uint64(f.den))
	return int64(q), int64(r)
}

// pour fills the vessels from a common level until the amount is used or all are full, and returns the level: no less than one where all
// are full, so that a vessel with a room of its weight counts as full at the level of one.
func pour(amount int64, vessels []vessel) fraction {
	order := make([]int, 0, len(vessels))
	var weights int64
	for i, v := range vessels {
		if v.weight > 0 {
			order = append(order, i)
			weights += v.weight
		}
	}
	// By the level at which each is full: room/weight.
	slices.SortFunc(order, func(i, j int) int {
		a, b := vessels[i], vessels[j]
		return cmp.Or(compareProducts(a.room, b.weight, b.room, a.weight), cmp.Compare(i, j))
	})
	for k, i := range order {
		v := &vessels[i]
		if compareProducts(v.room, weights, amount, v.weight) > 0 {
			level := fraction{num: amount, den: weights}
			spread(amount, level, order[k:], vessels)
			return level
		}
		v.got = v.room
		amount -= v.room
		weights -= v.weight
	}
	return fraction{num: 1, den: 1}
}

// spread gives each vessel its part of the amount, which fills none of them. What rounding down leaves goes, one each, to the largest
// remainders, and of those to the first.
func spread(amount int64, level fraction, order []int, vessels []vessel) {
	type rest struct {
		vessel    int
		remainder int64
	}
	rests := make([]rest, 0, len(order))
	left := amount
	for _, i := range order {
		q, r := level.divide(vessels[i].weight)
		vessels[i].got = q
		left -= q
		rests = append(rests, rest{i, r})
	}
	slices.SortFunc(rests, func(a, b rest) int {
		return cmp.Or(cmp.Compare(b.remainder, a.remainder), cmp.Compare(a.vessel, b.vessel))
	})
	for _, r := range rests[:left] {
		vessels[r.vessel].got++
	}
}

func got(vessels []vessel) int64 {
	var s int64
	for _, v := range vessels {
		s += v.got
	}
	return s
}

// compareProducts compares a x b with c x d. None may be negative.
func compareProducts(a, b, c, d int64) int {
	h1, l1 := bits.Mul64(uint64(a), uint64(b))
	h2, l2 := bits.Mul64(uint64(c), uint64(d))
	return cmp.Or(cmp.Compare(h1, h2), cmp.Compare(l1, l2))
}
