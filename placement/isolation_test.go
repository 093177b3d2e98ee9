package placement_test

import (
	"errors"
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/placement"
)

func TestShards(t *testing.T) {
	for name, c := range map[string]struct {
		workers, hand int
		want          uint64
	}{
		"8 workers in pairs":      {8, 2, 28},
		"5 of 100":                {100, 5, 75_287_520},
		"8 of 64":                 {64, 8, 4_426_165_368},
		"all":                     {7, 7, 1},
		"one":                     {9, 1, 9},
		"all but one":             {9, 8, 9},
		"the largest that fits":   {67, 33, 14_226_520_737_620_288_370},
		"a million in threes":     {1_000_000, 3, 166_666_166_667_000_000},
		"of one":                  {1, 1, 1},
		"more than half of many":  {200, 195, 2_535_650_040},
		"large by way of a large": {100_000, 4, 4_166_416_671_249_975_000},
	} {
		got, exact, err := placement.Shards(c.workers, c.hand)
		if err != nil || !exact || got != c.want {
			t.Errorf("%s: got %d, %t, %v, want %d", name, got, exact, err, c.want)
		}
	}
	if _, exact, err := placement.Shards(68, 34); exact || err != nil {
		t.Errorf("68 choose 34 is said to fit in 64 bits: %v", err)
	}
}

// TestShardsAreBinomials compares with arithmetic of any size, and the approximation too.
func TestShardsAreBinomials(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.OneOf(rapid.IntRange(1, 100), rapid.IntRange(1, placement.WorkersMax)).Draw(t, "workers")
		k := rapid.IntRange(1, min(n, placement.HandMax)).Draw(t, "hand")
		want := new(big.Int).Binomial(int64(n), int64(k))
		got, exact, err := placement.Shards(n, k)
		if err != nil || exact != want.IsUint64() || exact && got != want.Uint64() {
			t.Fatalf("%d choose %d: got %d, %t, %v, want %v", n, k, got, exact, err, want)
		}
		about, err := placement.ShardsAbout(n, k)
		wantAbout, _ := new(big.Float).SetInt(want).Float64()
		if err != nil || !near(about, wantAbout) {
			t.Fatalf("%d choose %d: about %g, %v, want %g", n, k, about, err, wantAbout)
		}
	})
}

// near is equality to twelve digits.
func near(a, b float64) bool { return a == b || math.Abs(a-b) <= 1e-12*math.Abs(b) }

// choose is n choose k, and 0 where there is none.
func choose(n, k int) *big.Rat {
	if k < 0 || k > n {
		return new(big.Rat)
	}
	return new(big.Rat).SetInt(new(big.Int).Binomial(int64(n), int64(k)))
}

// TestOverlapOfFiveInAHundred: two tenants share none with 77 %, one with 21 %, two or more with under 2 %.
func TestOverlapOfFiveInAHundred(t *testing.T) {
	p, err := placement.Overlap(100, 5)
	if err != nil {
		t.Fatal(err)
	}
	// 5 choose j x 95 choose 5-j, of 75,287,520.
	for j, ways := range []float64{57_940_519, 15_917_725, 1_384_150, 44_650, 475, 1} {
		if want := ways / 75_287_520; !near(p[j], want) {
			t.Errorf("%d shared: %g, want %g", j, p[j], want)
		}
	}
	if more := p[2] + p[3] + p[4] + p[5]; math.Round(p[0]*100) != 77 || math.Round(p[1]*100) != 21 || more >= 0.02 {
		t.Errorf("none %g, one %g, two or more %g", p[0], p[1], more)
	}
}

func TestOverlapIsHypergeometric(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.OneOf(rapid.IntRange(1, 40), rapid.IntRange(1, 3000)).Draw(t, "workers")
		k := rapid.IntRange(1, min(n, 60)).Draw(t, "hand")
		p, err := placement.Overlap(n, k)
		if err != nil || len(p) != k+1 {
			t.Fatal(err, len(p))
		}
		sum := 0.0
		for j := range p {
			want := new(big.Rat).Mul(choose(k, j), choose(n-k, k-j))
			exact, _ := want.Quo(want, choose(n, k)).Float64()
			if !near(p[j], exact) && exact > 1e-290 {
				t.Fatalf("%d of %d in %d shared: %g, want %g", j, k, n, p[j], exact)
			}
			sum += p[j]
		}
		if math.Abs(sum-1) > 1e-12 {
			t.Fatalf("chances add up to %g", sum)
		}
	})
}

// TestStuckBehindFour is a hand of 8 from 64 queues with 4 heavy flows: about 1 in 2,000.
func TestStuckBehindFour(t *testing.T) {
	p, err := placement.Stuck(64, 8, 4)
	if err != nil || math.Round(1/p/100) != 20 {
		t.Errorf("stuck with %g, one in %.0f, %v", p, 1/p, err)
	}
	if want := stuck(64, 8, 4); !near(p, want) {
		t.Errorf("stuck with %g, want %g", p, want)
	}
	// One heavy flow has all of the hand only if it has the same hand.
	if p, err := placement.Stuck(64, 8, 1); err != nil || !near(p, 1/4_426_165_368.0) {
		t.Errorf("behind one: %g, %v", p, err)
	}
}

// stuck is the same by inclusion and exclusion: a set of i cards is missed by all heavy hands with (n-i choose k / n choose k) ^ heavy.
func stuck(n, k, heavy int) float64 {
	sum := new(big.Rat)
	for i := range k + 1 {
		miss := choose(n-i, k)
		miss.Quo(miss, choose(n, k))
		term := choose(k, i)
		for range heavy {
			term.Mul(term, miss)
		}
		if i%2 == 1 {
			term.Neg(term)
		}
		sum.Add(sum, term)
	}
	f, _ := sum.Float64()
	return f
}

func TestStuckIsInclusionAndExclusion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 200).Draw(t, "workers")
		k := rapid.IntRange(1, min(n, 12)).Draw(t, "hand")
		heavy := rapid.IntRange(0, 20).Draw(t, "heavy")
		p, err := placement.Stuck(n, k, heavy)
		if want := stuck(n, k, heavy); err != nil || !near(p, want) && want > 1e-290 {
			t.Fatalf("%d heavy, hands of %d in %d: %g, %v, want %g", heavy, k, n, p, err, want)
		}
		if more, err := placement.Stuck(n, k, heavy+1); err != nil || more < p*(1-1e-12) {
			t.Fatalf("one more heavy makes %g of %g, %v", more, p, err)
		}
	})
}

// TestLargestAreQuick: the bounds are small enough to compute at them, and what comes out is a chance.
func TestLargestAreQuick(t *testing.T) {
	p, err := placement.Stuck(placement.WorkersMax, placement.HandMax, placement.HeavyMax)
	if err != nil || !(p >= 0 && p <= 1) {
		t.Errorf("got %g, %v", p, err)
	}
	if p, err := placement.Stuck(300, placement.HandMax, placement.HeavyMax); err != nil || !(p > 0.999 && p <= 1+1e-12) {
		t.Errorf("got %g, %v", p, err)
	}
}

// TestInFlight: 100 a second at 50 ms are 5 under way, at 5 s 500; a cap of 10 holds in both.
func TestInFlight(t *testing.T) {
	const million = cell.Unit
	for _, c := range []struct {
		rate int64
		each time.Duration
		want int64
	}{
		{100 * million, 50 * time.Millisecond, 5 * million},
		{100 * million, 5 * time.Second, 500 * million},
		{1, time.Second, 1},
		{1, time.Second - 1, 0},
		{-1, time.Second, 0},
		{million, -time.Second, 0},
		{math.MaxInt64, math.MaxInt64, math.MaxInt64},
	} {
		if got := placement.InFlight(c.rate, c.each); got != c.want {
			t.Errorf("%d a second for %v: %d under way, want %d", c.rate, c.each, got, c.want)
		}
	}
	for _, c := range []struct {
		running int64
		each    time.Duration
		want    int64
	}{
		{10, 50 * time.Millisecond, 200 * million},
		{10, 5 * time.Second, 2 * million},
		{1, 3 * time.Second, 333_333},
		{0, time.Second, 0},
		{10, 0, math.MaxInt64},
		{math.MaxInt64, 1, math.MaxInt64},
	} {
		if got := placement.Ceiling(c.running, c.each); got != c.want {
			t.Errorf("%d under way of %v: %d a second, want %d", c.running, c.each, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		running := rapid.Int64Range(0, 1_000_000).Draw(t, "running")
		each := time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(time.Hour)).Draw(t, "each"))
		if got := placement.InFlight(placement.Ceiling(running, each), each); got > running*million {
			t.Fatalf("the most that a cap of %d lets through has %d millionths under way", running, got)
		}
	})
}

func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		workers, hand, heavy int
		field                string
	}{
		"no workers":        {0, 1, 1, "workers"},
		"too many workers":  {placement.WorkersMax + 1, 1, 1, "workers"},
		"no hand":           {5, 0, 1, "hand"},
		"hand beyond all":   {5, 6, 1, "hand"},
		"hand too large":    {5_000, placement.HandMax + 1, 1, "hand"},
		"heavy below 0":     {5, 2, -1, "heavy"},
		"too many to count": {5, 2, placement.HeavyMax + 1, "heavy"},
	} {
		_, err := placement.Stuck(c.workers, c.hand, c.heavy)
		if bad, ok := errors.AsType[*cell.FieldError](err); !ok || bad.Field != c.field || bad.Remedy == "" {
			t.Errorf("%s: got %v", name, err)
		}
		if c.field == "heavy" {
			continue
		}
		if _, _, err := placement.Shards(c.workers, c.hand); err == nil {
			t.Errorf("%s: shards", name)
		}
		if _, err := placement.ShardsAbout(c.workers, c.hand); err == nil {
			t.Errorf("%s: shards, about", name)
		}
		if _, err := placement.Overlap(c.workers, c.hand); err == nil {
			t.Errorf("%s: overlap", name)
		}
	}
}
