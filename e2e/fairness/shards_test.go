package fairness

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
)

// TestSpreadingGainsNothing has A spread its work over keys, operations, priorities and offer sets, as many of each as there can be, beside
// B, which has one of each: both have half.
func TestSpreadingGainsNothing(t *testing.T) {
	for _, c := range []struct{ keys, operations, sets int }{
		{1, 1, 1}, {20, 1, 1}, {1000, 1, 1}, {1, 20, 1}, {1, 1000, 1}, {1, 1, 2}, {1, 1, 20}, {1, 1, 60}, {1000, 1000, 20}, {20, 20, 60},
	} {
		t.Run(fmt.Sprintf("keys=%d/operations=%d/sets=%d", c.keys, c.operations, c.sets), func(t *testing.T) {
			cases(t, 1, func(t *rapid.T) { spread(t, c.keys, c.operations, c.sets) })
		})
	}
}

func spread(t *rapid.T, keys, operations, sets int) {
	w := newWorld(t, quickConfig(), rapid.Uint64().Draw(t, "seed"))
	a := &claimant{policy: cell.TenantPolicy{Tenant: "a", Weight: 1000}, declares: honest}
	b := &claimant{policy: cell.TenantPolicy{Tenant: "b", Weight: 1000}, declares: honest}
	for _, c := range []*claimant{a, b} {
		c.least = time.Duration(rapid.Int64Range(500, 3000).Draw(t, "least")) * time.Microsecond
		c.most = 2 * c.least
		w.tenant(c.policy)
	}
	// A's operations: one of its own in each set, and others; what all workers offer is the operation that B uses.
	var names []cell.Operation
	for n := range operations {
		names = append(names, cell.Operation(fmt.Sprintf("a-%04d", n)))
	}
	slots := max(4, sets)
	for s := range sets {
		ops := []cell.Operation{"op", cell.Operation(fmt.Sprintf("of-set-%02d", s))}
		for i := s; i < operations && len(ops) < 60; i += max(1, sets) {
			ops = append(ops, names[i])
		}
		w.pool(slots/sets, ops...)
	}
	var more func(n int)
	more = func(n int) { // what ends is followed by its like, so that no shard runs out
		j := a.job(w, cell.ClassBatch)
		j.Priority = int32(n % 5)
		if keys > 1 {
			j.Keys = []cell.ConcurrencyKey{{Key: fmt.Sprint("key-", n%keys), Max: int64(slots)}}
		}
		switch {
		case sets > 1 && n%2 == 0:
			j.Operation = cell.Operation(fmt.Sprintf("of-set-%02d", n/2%sets))
		case operations > 1:
			j.Operation = names[n%min(operations, 58)]
		}
		j.done = func(*run) { more(n) }
		w.add(j)
	}
	for n := range 8*slots + 2*operations {
		more(n)
	}
	// About so many jobs, whatever the slots.
	period := 10_000 / time.Duration(slots) * (a.least + b.least)
	w.runFor(period / 10)
	first := w.now
	for range 3 * slots {
		b.replace(w, cell.ClassBatch)
	}
	from := first.Add(period / 10)
	w.runFor(period)
	got := w.served(from, w.now, of("b"))
	share := 100 * float64(got) / float64(w.served(from, w.now, of("a", "b")))
	if share < 49 || share > 51 {
		t.Fatalf("b has %.2f %% beside one that spreads its work", share)
	}
	for _, r := range w.past {
		if r.job.Lane.Tenant == "b" {
			if wait := r.at.Sub(first); wait > 4*a.most {
				t.Fatalf("b waited %v for its first start", wait)
			}
			break
		}
	}
}
