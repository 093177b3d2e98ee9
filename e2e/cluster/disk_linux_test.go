package cluster

import (
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/fairlead/fairlead/e2e/harness"
)

// The exit code of an agent whose log's disk failed.
const exitStorage = 74

// A leader whose disk fails to sync ends by itself: another leads, and nothing that was acknowledged is lost. One whose disk hangs is control/consensus's
// to test: a tracer that delays a call does not let the process go.
func TestDiskOfALeader(t *testing.T) {
	harness.NeedCluster(t)
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("disks are made to fail by strace, which is not installed")
	}
	c := harness.StartCluster(t, harness.ClusterConfig{Control: 1, Cells: map[string]int{"cell-a": 3}, Tenants: []string{"acme"}})
	l := startLoad(t, c, "acme", "cell-a", 5, 2, 2)
	for _, inject := range []string{"fdatasync,fsync:error=EIO", "fdatasync,fsync:error=ENOSPC"} {
		leader := c.MustLead("cell-a")
		tracer := harness.Start(t, "strace", exec.CommandContext(t.Context(), strace, "-f", "-q", "-p", strconv.Itoa(leader.Process.PID()),
			"-e", "trace=fdatasync,fsync", "-e", "inject="+inject, "-o", "/dev/null"))
		const failTimeout = 60 * time.Second
		code, err := leader.Process.Wait(failTimeout)
		if err != nil {
			if _, ended := tracer.Wait(0); ended == nil {
				t.Skipf("strace cannot attach here: %s", tracer.Output())
			}
			t.Fatalf("%s: the leader goes on: %v", inject, err)
		}
		if code != exitStorage {
			t.Errorf("%s: the leader ended with exit code %d, not %d", inject, code, exitStorage)
		}
		recovery(t, l, "a leader's disk failed: "+inject)
		tracer.Kill()
		leader.Launch()
		harness.Eventually(t, failTimeout, "the agent whose disk failed is back", func() bool {
			_, err := c.TryCLI(nil, "health", "--addr", "https://"+leader.API())
			return err == nil
		})
	}
	l.finish(t)
}
