package placement_test

import (
	"fmt"
	"math"
	"math/bits"
	"testing"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/placement"
)

// TestDealIsForEver has hands that are kept: who is dealt another one leaves workers that were its own.
func TestDealIsForEver(t *testing.T) {
	for _, c := range []struct {
		tenant cell.TenantID
		in     cell.ID
		groups int
		hand   int
		want   uint64
	}{
		{"acme", "cell-1", 8, 2, 0x50},
		{"acme", "cell-2", 8, 2, 0x5},
		{"zeta", "cell-1", 64, 8, 0x200843025000000},
		{"zeta", "cell-1", 64, 63, 0xfffffff7ffffffff},
		{"zeta", "cell-1", 5, 1, 0x4},
	} {
		if got := placement.Deal(placement.HandSeed(c.tenant, c.in), c.groups, c.hand); got != c.want {
			t.Errorf("%s in %s, %d of %d: %#x, want %#x", c.tenant, c.in, c.hand, c.groups, got, c.want)
		}
	}
}

func TestDealOfOddNumbers(t *testing.T) {
	for name, c := range map[string]struct {
		groups, hand int
		want         uint64
	}{
		"no groups":           {0, 2, 0},
		"fewer than none":     {-1, 2, 0},
		"no hand":             {8, 0, 0},
		"a negative hand":     {8, -1, 0},
		"all":                 {8, 8, 0xff},
		"more than all":       {8, 9, 0xff},
		"all of 64":           {64, 64, math.MaxUint64},
		"more than there are": {65, 65, math.MaxUint64},
		"one of one":          {1, 1, 1},
	} {
		if got := placement.Deal("seed", c.groups, c.hand); got != c.want {
			t.Errorf("%s: %#x, want %#x", name, got, c.want)
		}
	}
}

// chiSquared bounds: the mean and six standard deviations.
func chiSquaredMost(freedom int) float64 { return float64(freedom) + 6*math.Sqrt(2*float64(freedom)) }

// TestDealIsUniform: of 8 groups in pairs there are 28 hands; all are dealt, and about as often.
func TestDealIsUniform(t *testing.T) {
	for _, c := range []struct{ groups, hand, hands int }{{8, 2, 28}, {6, 3, 20}, {10, 4, 210}, {64, 1, 64}} {
		seen := map[uint64]int{}
		const deals = 40_000
		for i := range deals {
			set := placement.Deal(fmt.Sprintf("tenant-%d\ncell-1", i), c.groups, c.hand)
			if bits.OnesCount64(set) != c.hand || bits.Len64(set) > c.groups {
				t.Fatalf("%d of %d: %#x", c.hand, c.groups, set)
			}
			seen[set]++
		}
		want := float64(deals) / float64(c.hands)
		sum := 0.0
		for _, n := range seen {
			sum += (float64(n) - want) * (float64(n) - want) / want
		}
		if len(seen) != c.hands || sum > chiSquaredMost(c.hands-1) {
			t.Errorf("%d of %d: %d hands of %d, chi squared %.1f, of at most %.1f", c.hand, c.groups, len(seen), c.hands, sum, chiSquaredMost(c.hands-1))
		}
	}
}

// TestOverlapOfHands: two tenants share none, one, and so on of their groups as often as the arithmetic says.
func TestOverlapOfHands(t *testing.T) {
	for _, c := range []struct{ groups, hand int }{{8, 2}, {64, 8}, {50, 5}} {
		chances, err := placement.Overlap(c.groups, c.hand)
		if err != nil {
			t.Fatal(err)
		}
		const pairs = 60_000
		counts := make([]int, c.hand+1)
		for i := range pairs {
			a := placement.Deal(fmt.Sprintf("left-%d", i), c.groups, c.hand)
			b := placement.Deal(fmt.Sprintf("right-%d", i), c.groups, c.hand)
			counts[bits.OnesCount64(a&b)]++
		}
		for shared, p := range chances {
			// Six standard deviations of the count, and one for rare ones.
			most := 6*math.Sqrt(pairs*p*(1-p)) + 1
			if got, want := float64(counts[shared]), pairs*p; math.Abs(got-want) > most {
				t.Errorf("%d of %d: %d shared %.0f times, want %.0f give or take %.0f", c.hand, c.groups, shared, got, want, most)
			}
		}
	}
}

// TestStuckBehindHands: a hand of 8 of 64, with 4 heavy tenants, has none left about once in 2,000.
func TestStuckBehindHands(t *testing.T) {
	want, err := placement.Stuck(64, 8, 4)
	if err != nil {
		t.Fatal(err)
	}
	const trials = 100_000
	stuck := 0
	for i := range trials {
		taken := uint64(0)
		for heavy := range 4 {
			taken |= placement.Deal(fmt.Sprintf("heavy-%d-%d", i, heavy), 64, 8)
		}
		if placement.Deal(fmt.Sprintf("quiet-%d", i), 64, 8)&^taken == 0 {
			stuck++
		}
	}
	if most := 6 * math.Sqrt(trials*want); math.Abs(float64(stuck)-trials*want) > most {
		t.Errorf("stuck %d times, want %.1f give or take %.1f", stuck, trials*want, most)
	}
}
