// Package neighbour measures the project's point with real processes: what quiet tenants wait while another tenant floods the cell, and what
// that costs the slots.
//
// A scenario starts the binary that users run and a worker process with the SDK, and submits from the test's process through the SDK. The wait
// of a job is from just before its Submit was called to the start of its handler, by the one clock of the machine: it has the request, the
// fsync, the queue, the answer to the worker and the worker's own queue in it. Slots count as busy while a handler runs. Everything is warmed up
// with one job of each quiet tenant first; after that the flood and the quiet tenants begin at the same time.
//
//	go test -run '^$' -bench Neighbour ./e2e/neighbour
//
// prints the figures. They mean something on a machine that does nothing else; the tests use wide bounds and hold on a busy one.
package neighbour

import (
	"os"
	"testing"

	"github.com/fairlead/fairlead/e2e/harness"
)

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, map[string]harness.Role{workerRole: runWorkerRole}))
}
