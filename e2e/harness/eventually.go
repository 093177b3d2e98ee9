package harness

import (
	"testing"
	"time"
)

// Eventually looks at done every few milliseconds until it is true. It fails the test, saying what it waited for, when that takes longer
// than timeout.
func Eventually(tb testing.TB, timeout time.Duration, what string, done func() bool) {
	tb.Helper()
	const interval = 5 * time.Millisecond
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	for !done() {
		select {
		case <-ticker.C:
		case <-deadline.C:
			tb.Fatalf("after %v there still is not: %s", timeout, what)
		case <-tb.Context().Done():
			tb.Fatalf("the test ended while it waited for: %s", what)
		}
	}
}

// Pause lets d pass: for load to build up to a moment that a random source chose, never for something to have happened.
func Pause(tb testing.TB, d time.Duration) {
	tb.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-tb.Context().Done():
		tb.Fatal("the test ended during a pause")
	}
}
