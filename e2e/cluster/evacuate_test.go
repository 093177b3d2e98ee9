package cluster

import (
	"context"
	"testing"

	"github.com/fairlead/fairlead/e2e/harness"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// A cell is emptied while its tenant is used: control moves it to where there is room, and nobody notices.
func TestEvacuation(t *testing.T) {
	harness.NeedCluster(t)
	c := harness.StartCluster(t, harness.ClusterConfig{
		Cells: map[string]int{pool: 1, "cell-b": 1}, Tenants: []string{"acme"}, Env: hasty(),
	})
	conn := c.Conn("admin")
	placements := fairleadv1connect.NewPlacementServiceClient(conn.HTTP, conn.URL, conn.Options...)
	home := homeOf(t, placements, "acme")
	other := pool
	if home == pool {
		other = "cell-b"
	}
	l := startLoad(t, c, "acme", home, 9, 2, 2)
	l.workAt(t, c, other, 2)
	const before = 20
	harness.Eventually(t, moveTimeout, "jobs are submitted", func() bool { return l.calls.Load() > before })

	m := newMoves(t, c, "acme")
	cells := fairleadv1connect.NewCellServiceClient(conn.HTTP, conn.URL, conn.Options...)
	m.retry("evacuate "+home, func(ctx context.Context) error {
		_, err := cells.EvacuateCell(ctx, &fairleadv1.EvacuateCellRequest{Name: home})
		return err
	})
	m.until(fairleadv1.MigrationState_MIGRATION_STATE_CUT_OVER, fairleadv1.MigrationState_MIGRATION_STATE_RELEASED)
	if now := homeOf(t, placements, "acme"); now != other {
		t.Errorf("acme is at home in %s, not in %s", now, other)
	}
	if failed := l.errs.Load(); failed != 0 {
		t.Errorf("%d of %d calls failed", failed, l.calls.Load())
	}
	l.finish(t)
}

// homeOf returns the cell of a tenant's interactive lane.
func homeOf(t *testing.T, placements fairleadv1connect.PlacementServiceClient, tenant string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	resp, err := placements.ShowPlacement(ctx, &fairleadv1.ShowPlacementRequest{Tenant: tenant})
	if err != nil || len(resp.GetAssignments()) == 0 {
		t.Fatalf("where %s is: %v, %v", tenant, resp, err)
	}
	return resp.GetAssignments()[0].GetCell()
}
