package cell_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
)

func TestWorkerGroups(t *testing.T) {
	for hand, want := range map[uint64]string{0: "", 1: "1", 1<<3 | 1: "1 and 4", 1<<63 | 1<<3 | 2: "2, 4 and 64"} {
		if got := cell.FormatWorkerGroups(hand); got != want {
			t.Errorf("%b is %q, not %q", hand, got, want)
		}
	}
	for n, ok := range map[int64]bool{-1: false, 0: true, 1: true, 64: true, 65: false, 256: false} {
		g, err := cell.CheckWorkerGroup("group", n)
		if (err == nil) != ok || ok && int64(g) != n {
			t.Errorf("%d: %d, %v", n, g, err)
		}
		if err != nil {
			fieldError(t, err, "group")
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		hand := rapid.Uint64().Draw(t, "hand")
		groups := cell.WorkerGroups(hand)
		sum := uint64(0)
		for g := range cell.WorkerGroup(cell.WorkerGroupsMax + 1) {
			if in := g.In(hand); in != (slices.Contains(groups, g) || g == 0 && hand == 0) {
				t.Fatalf("group %d is in %b: %v", g, hand, in)
			} else if in {
				sum |= g.Bit()
			}
		}
		if sum != hand || !slices.IsSorted(groups) {
			t.Fatalf("%v are the groups of %b", groups, hand)
		}
	})
}
