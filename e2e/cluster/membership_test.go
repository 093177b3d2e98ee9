package cluster

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/e2e/harness"
)

// An agent that was cut off from everybody for longer than gossip keeps trying is a member again soon after the cut, by nobody's doing. It takes two
// minutes, so it runs when faults are asked for in rounds.
func TestMembershipHeals(t *testing.T) {
	harness.NeedCluster(t)
	if numberOf(t, roundsEnv, 0) == 0 {
		t.Skipf("it takes two minutes: set %s", roundsEnv)
	}
	c := harness.StartCluster(t, harness.ClusterConfig{Cells: map[string]int{"cell-b": 1}, Network: harness.NewNetwork(t)})
	away := c.Agent("cell-b-1")
	others := slices.DeleteFunc(c.Agents(""), func(a *harness.Agent) bool { return a == away })
	state := func() string {
		out, err := c.TryCLI(nil, "cluster", "members", "-o", "table")
		if err != nil {
			return err.Error()
		}
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, away.Name+" ") {
				return line
			}
		}
		return out
	}
	alive := func() bool { return strings.Contains(state(), "alive") }
	harness.Eventually(t, time.Minute, "everybody is a member", alive)
	for _, o := range others {
		away.Host.Cut(o.Host)
	}
	const cut, healed = time.Minute, 30 * time.Second
	harness.Pause(t, cut)
	if alive() {
		t.Fatalf("an agent that was cut off for %v passes for alive: %s", cut, state())
	}
	away.Host.Network().Heal()
	begin := time.Now()
	harness.Eventually(t, 4*healed, "the agent is a member again", alive)
	took := time.Since(begin)
	t.Logf("a member again %v after a cut of %v", took.Round(time.Millisecond), cut)
	if took > healed {
		t.Errorf("the membership healed after %v, of at most %v", took, healed)
	}
}
