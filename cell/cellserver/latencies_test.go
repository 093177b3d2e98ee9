package cellserver

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// What the ring says is what sorting everything that counts says.
func TestLatencies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c latencies
		if p50, p99 := c.quantiles(time.Unix(0, 0)); p50 != 0 || p99 != 0 {
			t.Fatalf("of nothing: %v, %v", p50, p99)
		}
		now := time.Unix(1000, 0)
		var all []latency
		for range rapid.IntRange(1, 3*latenciesKept).Draw(t, "calls") {
			now = now.Add(time.Duration(rapid.IntRange(0, 50).Draw(t, "pause")) * time.Millisecond)
			all = append(all, latency{at: now, took: time.Duration(rapid.IntRange(1, 1000).Draw(t, "took"))})
			c.note(now, all[len(all)-1].took)
		}
		var want []time.Duration
		for i, e := range slices.Backward(all) {
			young, ring := now.Sub(e.at) <= latenciesAge, len(all)-i <= latenciesKept
			if ring && (young || len(all)-i <= latenciesLeast) {
				want = append(want, e.took)
			}
		}
		p50, p99 := c.quantiles(now)
		below := func(d time.Duration) (atMost, less int) {
			for _, x := range want {
				if x <= d {
					atMost++
				}
				if x < d {
					less++
				}
			}
			return atMost, less
		}
		for _, q := range []struct {
			of      time.Duration
			percent int
		}{{p50, 50}, {p99, 99}} {
			if atMost, less := below(q.of); 100*atMost < q.percent*len(want) || 100*less >= q.percent*len(want) {
				t.Fatalf("%v is no p%d: %d of %d are at most that, %d less", q.of, q.percent, atMost, len(want), less)
			}
		}
		seen := rapid.IntRange(0, len(all)+5).Draw(t, "seen")
		after := time.Duration(rapid.IntRange(0, 1000).Draw(t, "slow after"))
		slow := int64(0)
		for i, e := range all {
			if (i >= seen || seen > len(all)) && len(all)-i <= latenciesKept && e.took > after {
				slow++
			}
		}
		if noted, got := c.slow(uint64(seen), after); noted != uint64(len(all)) || got != slow { //nolint:gosec // small
			t.Fatalf("%d of %d slower than %v after %d, not %d of %d", got, noted, after, seen, slow, len(all))
		}
	})
}
