package cluster

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/e2e/harness"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// A tenant that moved to a dedicated cell for good goes back to the pool once it is known to fit there, while it is used: what the pool keeps of it, its
// highest epochs, is filled again, and nobody notices. Where it does not fit nothing is done.
func TestDemotion(t *testing.T) {
	harness.NeedCluster(t)
	c := harness.StartCluster(t, harness.ClusterConfig{
		Control: 1, Cells: map[string]int{pool: 1, dedicated: 1}, Dedicated: []string{dedicated}, Tenants: []string{"whale"}, Env: hasty(),
	})
	whale := startLoad(t, c, "whale", pool, 11, 2, 2)
	whale.workAt(t, c, dedicated, 2)
	conn := c.Conn("admin")
	placements := fairleadv1connect.NewPlacementServiceClient(conn.HTTP, conn.URL, conn.Options...)
	m := newMoves(t, c, "whale")
	m.forGood(dedicated)
	before := m.now()

	const need, little, enough = 1, 1, 4 // of which less than three quarters may be filled
	m.retry("say what whale needs", func(ctx context.Context) error {
		_, err := fairleadv1connect.NewTenantServiceClient(conn.HTTP, conn.URL, conn.Options...).
			UpdateTenant(ctx, &fairleadv1.UpdateTenantRequest{Id: "whale", Placement: &fairleadv1.PlacementRules{ComputeMin: need}})
		return err
	})
	m.tested(pool, little)
	if plan, code := m.plan(pool); code != exitBlocked || !strings.Contains(plan, "capacity") || !strings.Contains(plan, "FAIL") {
		t.Errorf("to a pool that is too small: exit code %d\n%s", code, plan)
	}
	if now := m.now(); now.GetId() != before.GetId() || now.GetGeneration() != before.GetGeneration() || homeOf(t, placements, "whale") != dedicated {
		t.Errorf("a plan that is blocked has done something: %v, then %v", before, now)
	}
	m.tested(pool, enough)
	if plan, code := m.plan(pool); code != 0 || strings.Contains(plan, "FAIL") || !strings.Contains(plan, "of at most") {
		t.Errorf("to a pool that it fits in: exit code %d\n%s", code, plan)
	}
	m.forGood(pool)
	if home := homeOf(t, placements, "whale"); home != pool {
		t.Errorf("whale is at home in %s", home)
	}
	if failed := whale.errs.Load(); failed != 0 {
		t.Errorf("%d of %d calls failed", failed, whale.calls.Load())
	}
	whale.finish(t)
}

// forGood moves the tenant and lets the source go of it. No class waits for its canary: one of them has no work.
func (m *moves) forGood(target string) {
	m.tb.Helper()
	options := quick()
	options.CanaryJobs = new(int64)
	m.retry("start a migration to "+target, func(ctx context.Context) error {
		_, err := m.client.StartMigration(ctx, &fairleadv1.StartMigrationRequest{Tenant: m.tenant, Target: target, Options: options})
		return err
	})
	m.cutOver()
	m.act(fairleadv1.MigrationAction_MIGRATION_ACTION_COMPLETE)
	m.until(fairleadv1.MigrationState_MIGRATION_STATE_RELEASED)
}

// tested says what a cell was tested to carry.
func (m *moves) tested(cellName string, compute float64) {
	m.tb.Helper()
	conn := m.c.Conn("admin")
	cells := fairleadv1connect.NewCellServiceClient(conn.HTTP, conn.URL, conn.Options...)
	m.retry("say what "+cellName+" was tested for", func(ctx context.Context) error {
		_, err := cells.UpdateCell(ctx, &fairleadv1.UpdateCellRequest{Name: cellName, Capacity: &fairleadv1.Load{Compute: compute}})
		return err
	})
}

// exitBlocked is the exit code of a plan that a gate blocks.
const exitBlocked = 3

// plan returns what fairlead migrate plan prints, with its exit code.
func (m *moves) plan(target string) (text string, code int) {
	m.tb.Helper()
	text, err := m.c.TryCLI(nil, "migrate", "plan", "--tenant", m.tenant, "--to", target, "-o", "table")
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return text, exit.ExitCode()
	}
	if err != nil {
		m.tb.Fatal(err)
	}
	return text, 0
}
