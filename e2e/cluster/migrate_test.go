package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/e2e/harness"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

const (
	pool      = "cell-a"
	dedicated = "cell-d"
	// moveTimeout bounds a step of a migration on a busy machine. What is slow is measured, not timed out.
	moveTimeout = 120 * time.Second
)

// movesEnv says how often a tenant is moved; more for the figures that docs/BENCHMARKS.md has.
const movesEnv = "FAIRLEAD_MIGRATION_ROUNDS"

// standstillEnv says for how many seconds a source stands still at its fence, and cutEnv for how many a gateway is cut off after the source has let go of the tenant.
const (
	standstillEnv = "FAIRLEAD_STANDSTILL_SECONDS"
	cutEnv        = "FAIRLEAD_CUT_SECONDS"
)

// moves drives migrations of one tenant.
type moves struct {
	tb     testing.TB
	c      *harness.Cluster
	tenant string
	client fairleadv1connect.MigrationServiceClient
	within time.Duration // what a step may take
	pauses []time.Duration
}

func newMoves(tb testing.TB, c *harness.Cluster, tenant string) *moves {
	tb.Helper()
	conn := c.Conn("admin")
	return &moves{tb: tb, c: c, tenant: tenant, within: moveTimeout, client: fairleadv1connect.NewMigrationServiceClient(conn.HTTP, conn.URL, conn.Options...)}
}

// whaleCluster is a pool with a whale and a neighbour in it, and an empty dedicated cell.
func whaleCluster(tb testing.TB, network *harness.Network, replicas int) *harness.Cluster {
	tb.Helper()
	return harness.StartCluster(tb, harness.ClusterConfig{
		Cells: map[string]int{pool: replicas, dedicated: 1}, Dedicated: []string{dedicated}, Tenants: []string{"whale", "quiet"}, Network: network,
		Env: hasty(),
	})
}

// hasty is the environment of agents that wipe a source soon after it was let go.
func hasty() []string { return []string{"FAIRLEAD_AGENT_WIPE_DELAY=1s"} }

// quick makes the canary short and leaves the end of the rollback window to the test.
func quick() *fairleadv1.MigrationOptions {
	jobs := int64(5)
	return &fairleadv1.MigrationOptions{CanaryJobs: &jobs, CanaryTime: durationpb.New(500 * time.Millisecond), RollbackWindow: durationpb.New(time.Hour)}
}

func (m *moves) start(target string) {
	m.tb.Helper()
	m.retry("start a migration to "+target, func(ctx context.Context) error {
		_, err := m.client.StartMigration(ctx, &fairleadv1.StartMigrationRequest{Tenant: m.tenant, Target: target, Options: quick()})
		return err
	})
}

// act repeats an action until control takes it.
func (m *moves) act(a fairleadv1.MigrationAction) {
	m.tb.Helper()
	m.retry(a.String(), func(ctx context.Context) error {
		_, err := m.client.ControlMigration(ctx, &fairleadv1.ControlMigrationRequest{Tenant: m.tenant, Action: a, Why: "a test"})
		return err
	})
}

func (m *moves) retry(what string, do func(context.Context) error) {
	m.tb.Helper()
	var last error
	deadline := time.Now().Add(m.within)
	harness.Eventually(m.tb, 2*m.within, what, func() bool {
		ctx, cancel := context.WithTimeout(m.tb.Context(), callTimeout)
		defer cancel()
		if last = do(ctx); last != nil && time.Now().After(deadline) {
			m.tb.Fatalf("%s: %v", what, last)
		}
		return last == nil
	})
}

// now returns the tenant's latest migration, or nil when control cannot be asked.
func (m *moves) now() *fairleadv1.Migration {
	ctx, cancel := context.WithTimeout(m.tb.Context(), callTimeout)
	defer cancel()
	resp, err := m.client.GetMigration(ctx, &fairleadv1.GetMigrationRequest{Tenant: m.tenant})
	if err != nil {
		return nil
	}
	return resp.GetMigration()
}

// until waits for one of the states, and returns the migration as it is then.
func (m *moves) until(states ...fairleadv1.MigrationState) *fairleadv1.Migration {
	m.tb.Helper()
	var last *fairleadv1.Migration
	deadline := time.Now().Add(m.within)
	harness.Eventually(m.tb, 2*m.within, fmt.Sprintf("the migration is %v", states), func() bool {
		if got := m.now(); got != nil {
			last = got
		}
		if time.Now().After(deadline) {
			m.tb.Fatalf("the migration is not %v: %v", states, last)
		}
		return slices.Contains(states, last.GetState())
	})
	return last
}

// cutOver waits until every class has moved, and notes the pauses.
func (m *moves) cutOver() {
	m.tb.Helper()
	for _, l := range m.until(fairleadv1.MigrationState_MIGRATION_STATE_CUT_OVER).GetLanes() {
		m.pauses = append(m.pauses, l.GetPause().AsDuration())
	}
}

// thereAndBack moves the tenant, takes it back, and returns how long that took from the command until the source serves and the target is wiped.
func (m *moves) thereAndBack(target string) time.Duration {
	m.tb.Helper()
	m.start(target)
	m.cutOver()
	begin := time.Now()
	m.act(fairleadv1.MigrationAction_MIGRATION_ACTION_REVERSE)
	m.until(fairleadv1.MigrationState_MIGRATION_STATE_ROLLED_BACK)
	return time.Since(begin)
}

// A tenant moves to another cell, back and there again while it is used. It notices nothing: no call fails, no job is lost or run to an end twice, and
// what it reads is so. Nor does its neighbour.
func TestMigrationUnderLoad(t *testing.T) {
	harness.NeedCluster(t)
	c := whaleCluster(t, nil, 3)
	whale := startLoad(t, c, "whale", pool, 5, 2, 2)
	whale.workAt(t, c, dedicated, 2)
	quiet := startLoadIn(t, c, whale.history, "quiet", pool, 6, 1, 1)
	m := newMoves(t, c, "whale")

	var reverses []time.Duration
	for range numberOf(t, movesEnv, 1) {
		reverses = append(reverses, m.thereAndBack(dedicated).Round(time.Millisecond))
	}
	slices.Sort(reverses)
	t.Logf("reversed and cleaned up after %v", reverses)
	m.start(dedicated)
	m.cutOver()
	m.act(fairleadv1.MigrationAction_MIGRATION_ACTION_COMPLETE)
	m.until(fairleadv1.MigrationState_MIGRATION_STATE_RELEASED)

	if failed := whale.errs.Load(); failed != 0 {
		t.Errorf("%d of %d of the moving tenant's calls failed", failed, whale.calls.Load())
	}
	whale.end()
	quiet.end()
	whale.finish(t)
	quiet.finish(t)
	quiet.unharmed(t)
	slices.Sort(m.pauses)
	t.Logf("pauses of a class: p50 %v, p99 %v of %d", m.pauses[len(m.pauses)/2], m.pauses[len(m.pauses)*99/100], len(m.pauses))
	for _, p := range m.pauses {
		if p <= 0 || p > 2*time.Second {
			t.Errorf("a class took nothing for %v", p)
		}
	}
}

// With whoever takes part in a migration killed at any moment of it, again and again: it comes to one end, nothing is lost or done twice, and what is
// read is so.
func TestMigrationSurvivesKills(t *testing.T) {
	harness.NeedCluster(t)
	c := whaleCluster(t, nil, 1)
	seed := uint64(numberOf(t, seedEnv, 1))
	random := rand.New(rand.NewPCG(seed, 1))
	t.Logf("%s=%d repeats it", seedEnv, seed)
	whale := startLoad(t, c, "whale", pool, seed, 2, 2)
	whale.workAt(t, c, dedicated, 2)
	m := newMoves(t, c, "whale")
	home, other := pool, dedicated
	const roundsUsual = 4
	for round := range numberOf(t, movesEnv, roundsUsual) {
		m.start(other)
		victim := m.victim(random)
		delay := time.Duration(random.IntN(2500)) * time.Millisecond
		harness.Pause(t, delay)
		victim.Process.Kill()
		t.Logf("round %d: %s killed %v after the start from %s to %s", round, victim.Name, delay.Round(time.Millisecond), home, other)
		victim.Launch()
		if random.IntN(3) == 0 {
			m.undo()
		} else {
			m.cutOver()
			m.act(fairleadv1.MigrationAction_MIGRATION_ACTION_COMPLETE)
			m.until(fairleadv1.MigrationState_MIGRATION_STATE_RELEASED)
		}
		if m.now().GetState() == fairleadv1.MigrationState_MIGRATION_STATE_RELEASED {
			home, other = other, home
		}
	}
	whale.finish(t)
}

// victim is one of those who take part.
func (m *moves) victim(random *rand.Rand) *harness.Agent {
	switch random.IntN(4) {
	case 0:
		return m.c.MustLead("")
	case 1:
		return m.c.MustLead(pool)
	case 2:
		return m.c.MustLead(dedicated)
	default:
		controls := m.c.Agents("control")
		return controls[random.IntN(len(controls))]
	}
}

// undo aborts the migration, or reverses it where that is too late.
func (m *moves) undo() {
	m.tb.Helper()
	m.retry("abort or reverse", func(ctx context.Context) error {
		_, err := m.client.ControlMigration(ctx, &fairleadv1.ControlMigrationRequest{
			Tenant: m.tenant, Action: fairleadv1.MigrationAction_MIGRATION_ACTION_ABORT, Why: "a test",
		})
		if err == nil {
			return nil
		}
		_, err = m.client.ControlMigration(ctx, &fairleadv1.ControlMigrationRequest{
			Tenant: m.tenant, Action: fairleadv1.MigrationAction_MIGRATION_ACTION_REVERSE, Why: "a test",
		})
		return err
	})
	m.until(fairleadv1.MigrationState_MIGRATION_STATE_ABORTED, fairleadv1.MigrationState_MIGRATION_STATE_ROLLED_BACK)
}

// A source that stands still over the fence comes back to find the lane fenced, or moved, and accepts nothing: what its callers had in their hands is
// repeated where the lane is.
func TestMigrationWithASourceThatStandsStill(t *testing.T) {
	harness.NeedCluster(t)
	c := whaleCluster(t, nil, 1)
	whale := startLoad(t, c, "whale", pool, 7, 2, 2)
	whale.workAt(t, c, dedicated, 2)
	m := newMoves(t, c, "whale")
	m.start(dedicated)
	m.until(fairleadv1.MigrationState_MIGRATION_STATE_READY, fairleadv1.MigrationState_MIGRATION_STATE_RAMPING, fairleadv1.MigrationState_MIGRATION_STATE_CUT_OVER)
	source := c.MustLead(pool)
	source.Process.Pause()
	harness.Pause(t, time.Duration(numberOf(t, standstillEnv, 6))*time.Second)
	source.Process.Resume()
	m.cutOver()
	whale.finish(t)
}

// A gateway that was cut off while a tenant moved, and after its source had let go of it, goes on with what it knew: it is sent on, and never makes the
// tenant anew where it was.
func TestGatewayThatMissedTheMove(t *testing.T) {
	harness.NeedCluster(t)
	network := harness.NewNetwork(t)
	c := harness.StartCluster(t, harness.ClusterConfig{
		Cells: map[string]int{pool: 1, dedicated: 1}, Dedicated: []string{dedicated}, Tenants: []string{"whale"}, Network: network, Gateways: 2, Env: hasty(),
	})
	whale := startLoad(t, c, "whale", pool, 8, 1, 1)
	whale.workAt(t, c, dedicated, 1)
	late := c.Agent("gateway-2")
	for _, a := range c.Agents("control") {
		late.Host.Cut(a.Host)
	}
	m := newMoves(t, c, "whale")
	m.start(dedicated)
	m.cutOver()
	m.act(fairleadv1.MigrationAction_MIGRATION_ACTION_COMPLETE)
	m.until(fairleadv1.MigrationState_MIGRATION_STATE_RELEASED)

	harness.Pause(t, time.Duration(numberOf(t, cutEnv, 1))*time.Second)

	cfg := c.ClientConfig("whale")
	cfg.Addr = "https://" + late.API()
	stale := dialJobs(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	job := &fairleadv1.JobSpec{Operation: operation, IdempotencyKey: probePrefix + "stale", Labels: map[string]string{keyLabel: probePrefix + "stale"}}
	resp, err := stale.Submit(ctx, &fairleadv1.SubmitRequest{Job: job})
	cancel()
	t.Logf("a gateway that does not know of the move answers: %v, %v", resp.GetJobId(), err)
	network.Heal()
	harness.Eventually(t, moveTimeout, "the gateway serves the tenant where it is", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
		defer cancel()
		_, err := stale.Submit(ctx, &fairleadv1.SubmitRequest{Job: job})
		return err == nil
	})
	whale.finish(t)
}
