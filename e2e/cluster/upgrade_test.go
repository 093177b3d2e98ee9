package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/e2e/harness"
)

// drainTimeout bounds how long an agent that is asked to end may take: what is open is answered first.
const drainTimeout = 60 * time.Second

// The next release replaces the present one agent by agent, under load, and is taken back: no caller sees an error that it would not repeat the call
// after. The feature level rises only when everybody understands it, and then does not fall.
func TestUpgradeAndBack(t *testing.T) {
	harness.NeedCluster(t)
	next := harness.BuildWith(t, "-tags", "fairlead_next")
	c := harness.StartCluster(t, harness.ClusterConfig{Cells: map[string]int{"cell-a": 3}, Tenants: []string{"acme"}})
	l := startLoad(t, c, "acme", "cell-a", 7, 2, 2)
	replace := func(a *harness.Agent, binary string) {
		t.Helper()
		if code := a.Process.Terminate(drainTimeout); code != 0 {
			t.Errorf("%s ended with exit code %d", a.Name, code)
		}
		c.SetBinary(a.Name, binary)
		a.Launch()
		a.Healthy()
	}
	agents := c.Agents("")
	if numberOf(t, roundsEnv, 0) == 0 { // one of each role, the leaders among them
		agents = []*harness.Agent{c.MustLead(""), c.MustLead("cell-a"), c.Agent("gateway-1")}
	}
	for _, binary := range []string{next, ""} {
		for i, a := range agents {
			replace(a, binary)
			if len(agents) == len(c.Agents("")) && i == len(agents)-1 {
				break // everybody understands it now
			}
			if _, err := c.TryCLI(nil, "cluster", "upgrade", "--level", "2", "--yes"); err == nil {
				t.Fatal("the level was raised while an agent did not understand it")
			}
		}
		slices.Reverse(agents)
	}
	recovery(t, l, "the upgrade was taken back")
	l.finish(t)
	if n := l.fatal.Load(); n > 0 {
		t.Errorf("%d of %d calls failed with an error that is not to be repeated", n, l.calls.Load())
	}
}
