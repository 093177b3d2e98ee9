package crash

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/e2e/harness"
)

// TestKilledServerLosesNothing kills the server again and again in the middle of submissions, leases and completions: no acknowledged job is
// lost, none is taken as finished twice, and each ends with the right result.
func TestKilledServerLosesNothing(t *testing.T) {
	t.Parallel()
	seed := newSeed(t)
	rng := source(seed, 1)
	server := harness.NewServer(t, harness.Config{Tenants: tenants()})
	server.Start()
	l := startLoad(t, server, seed)
	loops := killLoops(t)
	ready := make([]time.Duration, loops)
	for i := range loops {
		l.underWay(rng)
		workerToo := rng.IntN(3) == 0
		if workerToo && rng.IntN(2) == 0 {
			l.killWorker()
			workerToo = false
		}
		server.Kill()
		if workerToo {
			l.killWorker()
		}
		if rng.IntN(5) == 0 { // and once more while it recovers
			server.Launch()
			harness.Pause(t, time.Duration(rng.IntN(120))*time.Millisecond)
			server.Kill()
		}
		ready[i] = server.Start()
		l.audit(rng, 100)
		if t.Failed() {
			t.Fatalf("after kill %d of %d", i+1, loops)
		}
	}
	l.finish()
	l.auditAll(rng)
	acked, taken := l.books.counts()
	slices.Sort(ready)
	t.Logf("%d kills: %d jobs acknowledged, %d repeated submissions acknowledged, %d calls of unknown outcome, %d outcomes acknowledged to workers; "+
		"ready again after %v (median), %v (longest)", loops, acked, l.books.repeats, l.unknown.Load(), taken, ready[loops/2], ready[loops-1])
}

// TestTerminatedServerLosesNothing asks the server to stop in the middle of it all: it exits in order and in time, and nothing is lost.
func TestTerminatedServerLosesNothing(t *testing.T) {
	t.Parallel()
	harness.NeedSignals(t)
	seed := newSeed(t)
	rng := source(seed, 2)
	server := harness.NewServer(t, harness.Config{Tenants: tenants()})
	server.Start()
	l := startLoad(t, server, seed)
	const rounds = 2
	for range rounds {
		l.underWay(rng)
		began := time.Now()
		// The server gives open requests 10 s; the rest is for a busy machine.
		if code := server.Process().Terminate(20 * time.Second); code != 0 {
			t.Fatalf("exit code %d after SIGTERM, output:\n%s", code, server.Process().Output())
		}
		t.Logf("ended %v after SIGTERM", time.Since(began))
		server.Start()
		l.audit(rng, 100)
	}
	l.finish()
	l.auditAll(rng)
}

// underWay waits until submissions and outcomes are acknowledged by the present process, and then for a random moment.
func (l *load) underWay(rng *rand.Rand) {
	l.t.Helper()
	acked, taken := l.books.counts()
	harness.Eventually(l.t, 30*time.Second, "submissions and outcomes are under way", func() bool {
		a, t := l.books.counts()
		return a > acked+5 && t > taken+5
	})
	harness.Pause(l.t, time.Duration(rng.IntN(400_000))*time.Microsecond)
}
