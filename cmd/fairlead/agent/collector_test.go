package agent

import "testing"

// TestGCPercent checks that a small state is collected rarely, a large one as by the runtime's default, and that what is used beyond that stays
// within its bound in between.
func TestGCPercent(t *testing.T) {
	if got := gcPercent(0); got != gcPercentMax {
		t.Errorf("%d for nothing", got)
	}
	before := gcPercentMax
	for live := uint64(1 << 20); live < 1<<40; live += live / 3 {
		got := gcPercent(live)
		if got > before || got < gcPercentMin {
			t.Fatalf("%d at %d bytes, after %d", got, live, before)
		}
		if extra := live / 100 * uint64(got-gcPercentMin); extra > gcExtraBytes {
			t.Fatalf("%d at %d bytes: %d beyond the default", got, live, extra)
		}
		before = got
	}
	if before != gcPercentMin {
		t.Errorf("%d at the end", before)
	}
}
