package cluster

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/fairlead/fairlead/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m, nil)) }

// The environment, for people: how long the faults go on, and with which seed.
const (
	roundsEnv = "FAIRLEAD_FAULT_ROUNDS"
	seedEnv   = "FAIRLEAD_FAULT_SEED"
)

func numberOf(tb testing.TB, env string, usual int) int {
	tb.Helper()
	text := os.Getenv(env)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		tb.Fatalf("%s is %q, not a number", env, text)
	}
	return n
}

// recover is how long it takes until a tenant's submissions are taken again.
func recovery(t *testing.T, l *load, what string) time.Duration {
	t.Helper()
	begin := time.Now()
	const recoveryTimeout = 60 * time.Second
	n := 0
	harness.Eventually(t, recoveryTimeout, "a submission is taken after "+what, func() bool {
		n++
		_, err := l.trySubmit(t.Context(), fmt.Sprintf(probePrefix+"%d-%d", begin.UnixNano(), n))
		return err == nil
	})
	took := time.Since(begin)
	t.Logf("%s: %v until a submission was taken", what, took.Round(time.Millisecond))
	return took
}

// A cluster forms, places tenants, and loses nothing when the leader of control and that of a cell are killed and come back.
func TestClusterSurvivesItsLeaders(t *testing.T) {
	harness.NeedCluster(t)
	c := harness.StartCluster(t, harness.ClusterConfig{
		Cells: map[string]int{"cell-a": 3, "cell-b": 1}, Tenants: []string{"acme", "globex"},
		Placed: map[string]string{"acme": "cell-a", "globex": "cell-b"},
	})
	a := startLoad(t, c, "acme", "cell-a", 1, 2, 2)
	b := startLoad(t, c, "globex", "cell-b", 2, 1, 1)

	control := c.MustLead("")
	control.Process.Kill()
	created := create(t, c, "initech")
	t.Logf("control's leader killed: a tenant was created %v later", created.Round(time.Millisecond))
	control.Launch()

	leader := c.MustLead("cell-a")
	leader.Process.Kill()
	recovery(t, a, "a cell's leader was killed")
	leader.Launch()

	follower := c.Replicas("cell-a")[slices.IndexFunc(c.Replicas("cell-a"), func(x *harness.Agent) bool { return x != leader })]
	follower.Process.Kill()
	recovery(t, a, "another replica was killed")
	follower.Launch()

	a.finish(t)
	b.finish(t)
	b.unharmed(t)
}

// create creates a tenant and returns how long that took, control's election included.
func create(t *testing.T, c *harness.Cluster, name string) time.Duration {
	t.Helper()
	begin := time.Now()
	const createTimeout = 60 * time.Second
	harness.Eventually(t, createTimeout, "the tenant "+name+" is created", func() bool {
		_, err := c.TryCLI(nil, "tenant", "create", name)
		if err != nil {
			_, err = c.TryCLI(nil, "tenant", "get", name) // it may have been created by the call that failed
		}
		return err == nil
	})
	return time.Since(begin)
}

// With control gone, tenants that have a cell notice nothing: not those who submit, and not the workers. A gateway that starts then serves from
// what it kept.
func TestControlIsNotNeeded(t *testing.T) {
	harness.NeedCluster(t)
	c := harness.StartCluster(t, harness.ClusterConfig{
		Cells: map[string]int{"cell-a": 1}, Tenants: []string{"acme"}, Gateways: 1,
	})
	l := startLoad(t, c, "acme", "cell-a", 3, 2, 2)
	for _, a := range c.Agents("control") {
		a.Process.Kill()
	}
	calls, before := l.calls.Load(), l.errs.Load()
	harness.Pause(t, time.Duration(numberOf(t, "FAIRLEAD_CONTROL_DOWN_SECONDS", 6))*time.Second)
	checkUnharmed(t, "calls while control was down", l.errs.Load()-before, l.calls.Load()-calls)
	g := c.Agent("gateway-1")
	if code := g.Process.Terminate(30 * time.Second); code != 0 {
		t.Errorf("the gateway ended with exit code %d", code)
	}
	g.Launch()
	recovery(t, l, "a gateway was started without control")
	for _, a := range c.Agents("control") {
		a.Launch()
	}
	create(t, c, "initech")
	l.finish(t)
}

// fault is something that happens to a cluster and is mended again.
type fault struct {
	name string
	do   func(t *testing.T, r *rand.Rand, c *harness.Cluster) (mend func())
}

func anyAgent(r *rand.Rand, c *harness.Cluster) *harness.Agent {
	agents := slices.DeleteFunc(c.Agents(""), func(a *harness.Agent) bool { return a.Role == "gateway" })
	return agents[r.IntN(len(agents))]
}

func faults() []fault {
	return []fault{
		{"kill", func(_ *testing.T, r *rand.Rand, c *harness.Cluster) func() {
			a := anyAgent(r, c)
			a.Process.Kill()
			return a.Launch
		}},
		{"kill the leader", func(t *testing.T, _ *rand.Rand, c *harness.Cluster) func() {
			t.Helper()
			a := c.MustLead("cell-a")
			a.Process.Kill()
			return a.Launch
		}},
		{"pause the leader", func(t *testing.T, _ *rand.Rand, c *harness.Cluster) func() {
			t.Helper()
			a := c.MustLead("cell-a")
			a.Process.Pause()
			return a.Process.Resume
		}},
		{"pause", func(t *testing.T, r *rand.Rand, c *harness.Cluster) func() {
			t.Helper()
			a := anyAgent(r, c)
			a.Process.Pause()
			harness.Pause(t, time.Duration(1+r.IntN(4))*time.Second)
			return a.Process.Resume
		}},
		{"cut both ways", func(_ *testing.T, r *rand.Rand, c *harness.Cluster) func() {
			a := anyAgent(r, c)
			for _, other := range c.Agents("") {
				if other != a {
					a.Host.Cut(other.Host)
				}
			}
			return a.Host.Network().Heal
		}},
		{"cut one way", func(_ *testing.T, r *rand.Rand, c *harness.Cluster) func() {
			a := anyAgent(r, c)
			for _, other := range c.Agents("") {
				// A leader that only the gateways cannot reach stays one: its tenants wait until the link is back.
				if other != a && other.Role != "gateway" && r.IntN(2) == 0 {
					a.Host.Refuse(other.Host)
				}
			}
			return a.Host.Network().Heal
		}},
	}
}

// Whatever happens to single agents and links, one after the other, under load: nothing that was accepted is lost, no outcome is accepted twice,
// nobody reads what is not so any more.
func TestFaults(t *testing.T) {
	harness.NeedCluster(t)
	network := harness.NewNetwork(t)
	c := harness.StartCluster(t, harness.ClusterConfig{
		Cells: map[string]int{"cell-a": 3, "cell-b": 1}, Tenants: []string{"acme", "globex"}, Network: network,
		Placed: map[string]string{"acme": "cell-a", "globex": "cell-b"},
	})
	seed := uint64(numberOf(t, seedEnv, 1))
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("%s=%d repeats it", seedEnv, seed)
	a := startLoad(t, c, "acme", "cell-a", seed, 2, 2)
	b := startLoad(t, c, "globex", "cell-b", seed, 1, 1)
	all := faults()
	for round := range numberOf(t, roundsEnv, len(all)) {
		f := all[round%len(all)]
		if round >= len(all) {
			f = all[random.IntN(len(all))]
		}
		mend := f.do(t, random, c)
		recovery(t, a, f.name)
		mend()
		recovery(t, b, f.name+", mended")
	}
	a.finish(t)
	b.finish(t)
}
