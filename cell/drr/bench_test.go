package drr_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/fairlead/fairlead/cell/drr"
)

// fill makes a ring of n active flows, activated in random order, that have each been served a few times already, so
// that their places in memory and in the ring have nothing to do with each other.
func fill(tb testing.TB, n int, cost func() int64) *drr.Ring[int] {
	tb.Helper()
	r, err := drr.New[int](drr.DefaultConfig())
	if err != nil {
		tb.Fatal(err)
	}
	if err := r.OpenSet(0); err != nil {
		tb.Fatal(err)
	}
	flows := make([]*drr.Flow[int], n)
	for i := range flows {
		if flows[i], err = r.NewFlow(i, drr.WeightUnit*drr.Weight(1+i%4)); err != nil {
			tb.Fatal(err)
		}
	}
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	rng.Shuffle(n, func(i, j int) { flows[i], flows[j] = flows[j], flows[i] })
	for _, f := range flows {
		r.Activate(f, 0)
	}
	for range 4 * n {
		f, _ := r.Next(0)
		r.Charge(f, 0, cost())
	}
	return r
}

// costs returns a source of costs spread evenly over the orders of magnitude from lo to hi.
func costs(lo, hi float64) func() int64 {
	rng := rand.New(rand.NewPCG(2, 3))
	table := make([]int64, 4096)
	for i := range table {
		table[i] = int64(lo * math.Pow(hi/lo, rng.Float64()))
	}
	i := 0
	return func() int64 { i++; return table[i&4095] }
}

func BenchmarkDispatch(b *testing.B) {
	for _, n := range []int{10, 100, 1_000, 10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("flows=%d", n), func(b *testing.B) {
			cost := costs(1, 1e9)
			r := fill(b, n, cost)
			b.ReportAllocs()
			for b.Loop() {
				f, ok := r.Next(0)
				if !ok {
					b.Fatal("nobody waits")
				}
				r.Charge(f, 0, cost())
			}
		})
	}
}
