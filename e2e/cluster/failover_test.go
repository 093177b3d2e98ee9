package cluster

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/e2e/harness"
)

// failoverMax is what no failover may take, whatever the machine does beside it. The aims are a median of 2.5 s and 5 s at most.
const failoverMax = 20 * time.Second

// Leaders are killed one after the other, and it is measured how long nobody is served.
func TestFailoverTimes(t *testing.T) {
	harness.NeedCluster(t)
	c := harness.StartCluster(t, harness.ClusterConfig{
		Cells: map[string]int{"cell-a": 3, "cell-b": 1}, Tenants: []string{"acme", "globex"},
		Placed: map[string]string{"acme": "cell-a", "globex": "cell-b"},
	})
	a := startLoad(t, c, "acme", "cell-a", 11, 1, 1)
	b := startLoad(t, c, "globex", "cell-b", 12, 1, 1)
	var cells, control []time.Duration
	for i := range max(2, numberOf(t, roundsEnv, 0)) {
		leader := c.MustLead("cell-a")
		leader.Process.Kill()
		cells = append(cells, recovery(t, a, "a cell's leader was killed"))
		leader.Launch()
		leader.Healthy()
		leader = c.MustLead("")
		leader.Process.Kill()
		control = append(control, create(t, c, fmt.Sprintf("tenant-%d", i)))
		leader.Launch()
		leader.Healthy()
	}
	for what, times := range map[string][]time.Duration{"a cell of three": cells, "control": control} {
		slices.Sort(times)
		const percent, p99 = 100, 99
		t.Logf("%s, %d failovers: p50 %v, p99 %v", what, len(times), times[len(times)/2].Round(time.Millisecond),
			times[(len(times)*p99-1)/percent].Round(time.Millisecond))
		if worst := times[len(times)-1]; worst > failoverMax {
			t.Errorf("%s was away for %v", what, worst)
		}
	}
	a.finish(t)
	b.finish(t)
	b.unharmed(t)
}
