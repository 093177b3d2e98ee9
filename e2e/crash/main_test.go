// Package crash proves the first promise with real processes: what was accepted is durable, whatever happens to the process that accepted it.
//
// Clients of several tenants submit with keys, repeat what they do not know the outcome of, and cancel; workers inside and outside the test
// lease, run and report; and the server, or a worker process, is killed with SIGKILL at moments that a seeded random source chooses. A ledger
// keeps what was acknowledged, and an audit compares the server's books with it after every restart.
//
// It holds no in-process shortcut: the server is the binary that users run. What single files of the log survive is the consensus package's
// to show.
//
// Variables of the environment: FAIRLEAD_KILL_LOOPS is how often the server is killed, a few times by default; FAIRLEAD_SEED repeats the choices
// of a run, though not the timing of the machine.
package crash

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/fairlead/fairlead/e2e/harness"
)

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, map[string]harness.Role{workerRole: runWorkerRole}))
}

// killLoops is how often the server is killed.
func killLoops(t *testing.T) int {
	t.Helper()
	if text := os.Getenv("FAIRLEAD_KILL_LOOPS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("FAIRLEAD_KILL_LOOPS is %q: give a number from 1", text)
		}
		return n
	}
	if testing.Short() {
		return 2
	}
	return 4
}

// newSeed returns the seed of this run, which it logs.
func newSeed(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("FAIRLEAD_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("FAIRLEAD_SEED is %q: give a number", text)
		}
	}
	t.Logf("to repeat the choices: FAIRLEAD_SEED=%d", seed)
	return seed
}

// source returns the random source of one part of the test.
func source(seed, part uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, part)) }
