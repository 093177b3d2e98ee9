package controlserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/placement"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
	"github.com/fairlead/fairlead/proto/rejection"
)

// Evacuating moves at once whom the cell holds nothing of, and says of the others that they need a migration; a dry run does nothing.
func TestEvacuate(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		east := c.cellWith("east", 100, nil)
		for _, id := range []string{"busy", "idle", "past"} {
			c.tenantIn(id, nil)
		}
		west := c.cellWith("west", 100, nil)
		east.set(func() {
			east.use["busy"] = &fairleadv1.TenantUse{Tenant: "busy", Jobs: 1, Bytes: 10}
			east.use["past"] = &fairleadv1.TenantUse{Tenant: "past", ChargedBatch: 1}
		})
		check := func(name string, plan *fairleadv1.PlacementPlan) {
			t.Helper()
			need := map[string]bool{}
			for _, d := range plan.GetDecisions() {
				need[d.GetTenant()] = d.GetNeedsMigration()
				if d.GetSource() != "east" || d.GetTarget() != "west" || d.GetReason() != "evacuate" {
					t.Errorf("%s: %v", name, d)
				}
			}
			if len(need) != 3 || !need["busy"] || !need["past"] || need["idle"] {
				t.Errorf("%s: %v need a migration", name, need)
			}
		}
		index := c.machine.View().Index()
		dry, err := c.CellService().EvacuateCell(c.ctx, &fairleadv1.EvacuateCellRequest{Name: "east", DryRun: true})
		if err != nil || c.machine.View().Index() != index {
			t.Errorf("%v after %d entries", err, c.machine.View().Index()-index)
		}
		check("dry", dry.GetPlan())
		before, _ := c.GetTenant(c.ctx, &fairleadv1.GetTenantRequest{Id: "idle"})
		a, err := c.CellService().EvacuateCell(c.ctx, &fairleadv1.EvacuateCellRequest{Name: "east"})
		if err != nil || a.GetCell().GetPhase() != fairleadv1.CellPhase_CELL_PHASE_CORDONED || a.GetCell().GetTenants() != 2 {
			t.Fatalf("%v, %v", a, err)
		}
		check("done", a.GetPlan())
		after, _ := c.GetTenant(c.ctx, &fairleadv1.GetTenantRequest{Id: "idle"})
		if after.GetTenant().GetCell() != "west" || after.GetTenant().GetEpoch() <= before.GetTenant().GetEpoch() {
			t.Errorf("%v, before %v", after, before)
		}
		c.after(3 * time.Second)
		if p := west.tenant("idle"); p.GetEpoch() != after.GetTenant().GetEpoch() || p.GetBacklogBytesMax() != 0 {
			t.Errorf("west has %v", p)
		}
		// What is left of it there takes nothing, and holds nothing back.
		if p := east.tenant("idle"); p.GetBacklogBytesMax() != 1 || p.GetBacklogJobsMax() != 1 {
			t.Errorf("east has %v", p)
		}
		if p := east.tenant("busy"); p.GetBacklogBytesMax() != 0 {
			t.Errorf("east has %v", p)
		}
		if _, err := c.CellService().DeleteCell(c.ctx, &fairleadv1.DeleteCellRequest{Name: "east"}); rejection.From(err).GetReason() != "IN_USE" {
			t.Error(err)
		}
	})
}

// A job that is submitted in the moment of the move keeps its tenant where it is, and the tenant takes jobs again.
func TestMoveLosesTheRace(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		east := c.cellWith("east", 100, nil)
		c.tenantIn("idle", nil)
		c.cellWith("west", 100, nil)
		var looks atomic.Int64
		east.set(func() {
			east.onMeasure = func() {
				if looks.Add(1) == 2 { // after it was told to take no more: this one came before
					east.set(func() { east.use["idle"] = &fairleadv1.TenantUse{Tenant: "idle", Jobs: 1} })
					if east.tenant("idle").GetBacklogBytesMax() != 1 {
						t.Error("looked at again while it takes jobs")
					}
				}
			}
		})
		a, err := c.CellService().EvacuateCell(c.ctx, &fairleadv1.EvacuateCellRequest{Name: "east"})
		if err != nil || len(a.GetPlan().GetDecisions()) != 1 || !a.GetPlan().GetDecisions()[0].GetNeedsMigration() || a.GetCell().GetTenants() != 1 {
			t.Errorf("%v, %v", a, err)
		}
		c.after(3 * time.Second)
		if p := east.tenant("idle"); p.GetBacklogBytesMax() != 0 {
			t.Errorf("it takes no jobs any more: %v", p)
		}
	})
}

// A source that does not answer keeps its tenants.
func TestMoveFromHungCell(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		east := c.cellWith("east", 100, nil)
		c.tenantIn("idle", nil)
		c.cellWith("west", 100, nil)
		east.set(func() { east.fail = connect.NewError(connect.CodeUnavailable, errors.New("no")) })
		a, err := c.CellService().EvacuateCell(c.ctx, &fairleadv1.EvacuateCellRequest{Name: "east"})
		if err != nil || !a.GetPlan().GetDecisions()[0].GetNeedsMigration() || a.GetCell().GetTenants() != 1 {
			t.Errorf("%v, %v", a, err)
		}
	})
}

// Cordon and drain change what they say, in any order; a drain reaches the cell before it is answered.
func TestPhases(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		east := c.cellWith("east", 100, nil)
		cordon := func(undo bool) (*fairleadv1.Cell, error) {
			a, err := c.CellService().CordonCell(c.ctx, &fairleadv1.CordonCellRequest{Name: "east", Undo: undo})
			return a.GetCell(), err
		}
		drain := func(undo bool) (*fairleadv1.Cell, error) {
			a, err := c.CellService().DrainCell(c.ctx, &fairleadv1.DrainCellRequest{Name: "east", Undo: undo})
			return a.GetCell(), err
		}
		for i, step := range []struct {
			do       func(bool) (*fairleadv1.Cell, error)
			undo     bool
			phase    fairleadv1.CellPhase
			draining bool
			reason   string
		}{
			{do: drain, undo: true, phase: fairleadv1.CellPhase_CELL_PHASE_OPEN},
			{do: cordon, phase: fairleadv1.CellPhase_CELL_PHASE_CORDONED},
			{do: drain, undo: true, phase: fairleadv1.CellPhase_CELL_PHASE_CORDONED},
			{do: cordon, undo: true, phase: fairleadv1.CellPhase_CELL_PHASE_OPEN},
			{do: drain, phase: fairleadv1.CellPhase_CELL_PHASE_DRAINING, draining: true},
			{do: drain, phase: fairleadv1.CellPhase_CELL_PHASE_DRAINING, draining: true},
			{do: cordon, phase: fairleadv1.CellPhase_CELL_PHASE_DRAINING, draining: true},
			{do: cordon, undo: true, draining: true, reason: "CELL_PHASE"},
			{do: drain, undo: true, phase: fairleadv1.CellPhase_CELL_PHASE_CORDONED},
		} {
			got, err := step.do(step.undo)
			synctest.Wait()
			if got.GetPhase() != step.phase || rejection.From(err).GetReason() != step.reason || east.now().draining != step.draining {
				t.Errorf("step %d: %v, %v, draining %v", i, got.GetPhase(), err, east.now().draining)
			}
		}
		east.set(func() { east.fail = connect.NewError(connect.CodeUnavailable, errors.New("no")) })
		if _, err := drain(false); rejection.From(err).GetReason() != "CELL_BEHIND" {
			t.Error(err)
		}
		east.set(func() { east.fail = nil })
		c.after(5 * time.Second)
		if !east.now().draining {
			t.Error("never told")
		}
	})
}

// A plan is carried out only while what it depends on is as it was; what does not matter to it does not.
func TestPlanAndApply(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.cellWith("east", 100, map[string]string{"zone": "east"})
		c.tenantIn("ash", nil)
		plan, err := c.Placement().PlanPlacement(c.ctx, &fairleadv1.PlanPlacementRequest{})
		if err != nil || plan.GetPlan().GetIndex() == 0 {
			t.Fatalf("%v, %v", plan, err)
		}
		if _, err := c.CreateKey(c.ctx, &fairleadv1.CreateKeyRequest{Scopes: []fairleadv1.Scope{fairleadv1.Scope_SCOPE_WORK}}); err != nil {
			t.Fatal(err)
		}
		a, err := c.Placement().ApplyPlacement(c.ctx, &fairleadv1.ApplyPlacementRequest{Index: plan.GetPlan().GetIndex()})
		if err != nil || a.GetApplied() != 0 || a.GetNeedMigration() != 0 {
			t.Errorf("%v, %v", a, err)
		}
		if _, err := c.CellService().CordonCell(c.ctx, &fairleadv1.CordonCellRequest{Name: "east"}); err != nil {
			t.Fatal(err)
		}
		_, err = c.Placement().ApplyPlacement(c.ctx, &fairleadv1.ApplyPlacementRequest{Index: plan.GetPlan().GetIndex()})
		if connect.CodeOf(err) != connect.CodeAborted || rejection.From(err).GetReason() != "STALE" {
			t.Error(err)
		}
		// Nothing takes the tenant: the loop does not place it either, so that the plan is what does.
		if _, err := c.CreateTenant(c.ctx, &fairleadv1.CreateTenantRequest{Id: "elm"}); rejection.From(err).GetReason() != "UNPLACED" {
			t.Error(err)
		}
		if _, err := c.CellService().CordonCell(c.ctx, &fairleadv1.CordonCellRequest{Name: "east", Undo: true}); err != nil {
			t.Fatal(err)
		}
		a, err = c.Placement().ApplyPlacement(c.ctx, &fairleadv1.ApplyPlacementRequest{PlaceOnly: true})
		if err != nil || a.GetApplied() != 1 || a.GetPlan().GetDecisions()[0].GetTarget() != "east" {
			t.Errorf("%v, %v", a, err)
		}
		check, err := c.Placement().CheckPlacement(c.ctx, &fairleadv1.CheckPlacementRequest{})
		if err != nil || check.GetCellsTried() != 1 {
			t.Errorf("%v, %v", check, err)
		}
	})
}

// The decision that was made is kept, and what would be decided now can be asked for; placements are listed page by page.
func TestShowAndExplain(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.cellWith("east", 100, nil)
		for i := range 5 {
			c.tenantIn(fmt.Sprint("t", i), &fairleadv1.PlacementRules{ComputeMin: 2})
		}
		made, err := c.Placement().ExplainPlacement(c.ctx, &fairleadv1.ExplainPlacementRequest{Tenant: "t1"})
		if err != nil || !strings.Contains(made.GetText(), "t1") || made.GetDecision().GetTarget() != "east" || made.GetAssignment().GetCell() != "east" ||
			made.GetTime() == nil {
			t.Errorf("%v, %v", made, err)
		}
		now, err := c.Placement().ExplainPlacement(c.ctx, &fairleadv1.ExplainPlacementRequest{Tenant: "t1", Now: true})
		if err != nil || len(now.GetDecision().GetCandidates()) != 1 || now.GetText() == "" {
			t.Errorf("%v, %v", now, err)
		}
		var seen []string
		for token := ""; ; {
			p, err := c.Placement().ShowPlacement(c.ctx, &fairleadv1.ShowPlacementRequest{Cell: "east", PageSize: 2, PageToken: token})
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range p.GetAssignments() {
				seen = append(seen, a.GetTenant()+" "+a.GetClass().String())
				if a.GetDemand().GetCompute() < 2 || a.GetEpoch() == 0 {
					t.Errorf("%v", a)
				}
			}
			if token = p.GetNextPageToken(); token == "" {
				break
			}
		}
		if len(seen) != 10 || seen[0] != "t0 CLASS_INTERACTIVE" || seen[1] != "t0 CLASS_BATCH" || seen[9] != "t4 CLASS_BATCH" {
			t.Errorf("%v", seen)
		}
		one, err := c.Placement().ShowPlacement(c.ctx, &fairleadv1.ShowPlacementRequest{Tenant: "t3"})
		if err != nil || len(one.GetAssignments()) != 2 || len(one.GetCells()) != 1 || one.GetCells()[0].GetTenants() != 5 {
			t.Errorf("%v, %v", one, err)
		}
	})
}

// Each change says who asked for it, what control did by itself too; refusals are not in it.
func TestAudit(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.cellWith("east", 100, nil)
		c.tenantIn("ash", nil)
		_, _ = c.CreateTenant(c.ctx, &fairleadv1.CreateTenantRequest{Id: "ash", Weight: new(9.0)})
		var got []string
		var sequence uint64
		for token := ""; ; {
			l, err := c.Audit().ListAudit(c.ctx, &fairleadv1.ListAuditRequest{PageSize: 3, PageToken: token})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range l.GetRecords() {
				got = append(got, r.GetActor()+" "+r.GetAction()+" "+r.GetSubject())
				if sequence != 0 && r.GetSequence() != sequence-1 || len(r.GetHash()) != 32 || r.GetTime() == nil || r.GetIndex() == 0 {
					t.Errorf("%v after %d", r, sequence)
				}
				sequence = r.GetSequence()
			}
			if l.GetFirstSequence() != 1 || len(l.GetHashBeforeFirst()) != 32 {
				t.Errorf("%v", l)
			}
			if token = l.GetNextPageToken(); token == "" {
				break
			}
		}
		slices.Reverse(got)
		want := []string{
			"control:control-1 create-cluster cluster-x", "control:control-1 create-key key_bootstrap", "key_ops create-cell east",
			"cell:east-a register-agent east-a", "control set-cell-voters east", "cell:east-a register-agent east-a", "key_ops create-tenant ash",
			"control assign ash",
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q, not %q", got, want)
		}
		if _, err := c.Audit().ListAudit(c.ctx, &fairleadv1.ListAuditRequest{PageToken: pageToken(listAudit, "x")}); rejection.From(err).GetField() != "page_token" {
			t.Error(err)
		}
	})
}

// What cells measure is recorded by the hour, for tenants that are at home there, however long an hour is.
func TestDemandIsRecorded(t *testing.T) {
	for _, hour := range []placement.HourLength{placement.HourMin, placement.HourLength(time.Minute), placement.HourMax} {
		t.Run(hour.Length().String(), func(t *testing.T) { demandIsRecorded(t, hour) })
	}
}

// A profile of shorter hours than those that are counted now is known for it: it takes nothing.
func TestHoursOfAnotherLength(t *testing.T) {
	const now = cell.Instant(1_800_000_000 * int64(time.Second))
	sample := placement.Sample{Average: placement.Load{Compute: 1}}
	short, full := placement.HourMin.Of(now), placement.HourMax.Of(now)
	for name, c := range map[string]struct {
		known, hour int64
		want        bool
	}{
		"the next":        {full - 1, full, false},
		"a late one":      {full, full - placement.ProfileHoursMax, false},
		"one too late":    {full, full - placement.ProfileHoursMax - 1, true},
		"longer than was": {short, full, true},
		"shorter":         {full, short, false},
	} {
		p := placement.Profile{}.Record(c.known, sample)
		if got := aheadOf(p, c.hour); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		if taken := p.Record(c.hour, sample) != p; c.want && taken {
			t.Errorf("%s: it was recorded", name)
		}
	}
}

func demandIsRecorded(t *testing.T, hour placement.HourLength) {
	t.Helper()
	inCluster(t, func(t *testing.T, c *cluster) {
		c.cfg.Reconcile.Placement.Hour = hour
		east := c.cellWith("east", 100, nil)
		for i := range 5 {
			c.tenantIn(fmt.Sprint("t", i), nil)
		}
		charged := int64(0)
		east.set(func() {
			east.use["t3"] = &fairleadv1.TenantUse{Tenant: "t3", Jobs: 4, Bytes: 400}
			east.tenants["stray"] = &fairleadv1.TenantPromise{Tenant: "stray"}
			east.onMeasure = func() {
				east.set(func() {
					charged += 20_000_000
					east.use["t3"].ChargedBatch = charged
				})
			}
		})
		c.after(3 * hour.Length())
		p := c.machine.View().Profile("t3")
		found := false
		for _, h := range p.Hours {
			if h.Average.Compute > 0 && h.Average.Jobs == 4 && h.Average.Bytes == 400 {
				found = found || h.Hour > 0 && hour.Of(c.instant())-h.Hour <= 3
			}
		}
		if !found {
			t.Errorf("%+v", p.Hours)
		}
		for r := range c.machine.View().Audit(0) {
			if r.Action == command.TypeRecordDemand.String() {
				t.Fatal("measurements are in the audit")
			}
		}
	})
}

// Control's own group of replicas.
func TestPeersOfControl(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.register(command.RoleControl, "control-2", "")
		c.register(command.RoleGateway, "gate", "")
		add := func(name string, nonVoter bool) error {
			_, err := c.Cluster().AddPeer(c.ctx, &fairleadv1.AddPeerRequest{Name: name, NonVoter: nonVoter})
			return err
		}
		if err := add("control-2", true); err != nil || c.group.members()["control-2"].Voter {
			t.Errorf("%v, %v", err, c.group.members())
		}
		if err := add("control-2", false); err != nil || !c.group.members()["control-2"].Voter || c.group.members()["control-2"].Address != "control-2:444" {
			t.Errorf("%v, %v", err, c.group.members())
		}
		if r := rejection.From(add("gate", false)); r.GetField() != "name" {
			t.Error(r)
		}
		if r := rejection.From(add("nobody", false)); r.GetReason() != "NOT_FOUND" {
			t.Error(r)
		}
		l, err := c.Cluster().ListPeers(c.ctx, &fairleadv1.ListPeersRequest{})
		if err != nil || len(l.GetPeers()) != 2 || !l.GetPeers()[0].GetLeader() || l.GetVotersWanted() != 1 || l.GetTerm() != 1 || l.GetCommitIndex() != 8 ||
			l.GetPeers()[0].GetLastContact() == nil || l.GetPeers()[1].GetLastContact() != nil {
			t.Errorf("%v, %v", l, err)
		}
		tr, err := c.Cluster().TransferLeadership(c.ctx, &fairleadv1.TransferLeadershipRequest{Name: "control-2"})
		if err != nil || tr.GetLeader() != "control-2" {
			t.Errorf("%v, %v", tr, err)
		}
		remove := func(name string, force bool) error {
			_, err := c.Cluster().RemovePeer(c.ctx, &fairleadv1.RemovePeerRequest{Name: name, Force: force})
			return err
		}
		if err := remove("control-2", false); err != nil || len(c.group.members()) != 1 {
			t.Errorf("%v, %v", err, c.group.members())
		}
		if r := rejection.From(remove("control-1", false)); r.GetReason() != "QUORUM" {
			t.Error(r)
		}
		if err := remove("control-1", true); err != nil {
			t.Error(err)
		}
		c.register(command.RoleControl, "control-3", "")
		c.group.mu.Lock()
		c.group.behind["control-3"] = true
		c.group.mu.Unlock()
		began := time.Now()
		if r := rejection.From(add("control-3", false)); r.GetReason() != "NOT_CAUGHT_UP" || time.Since(began) != promoteTimeout {
			t.Errorf("%v after %v", r, time.Since(began))
		}
		m, err := c.Cluster().ListMembers(c.ctx, &fairleadv1.ListMembersRequest{})
		if err != nil || m.GetSeenBy() != "control-1" || len(m.GetMembers()) != 1 {
			t.Errorf("%v, %v", m, err)
		}
	})
}

// A cell's replicas, through whichever of its agents leads.
func TestPeersOfCell(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		east := c.cellWith("east", 100, nil)
		c.register(command.RoleCell, "east-b", "east")
		if _, err := c.Cluster().AddPeer(c.ctx, &fairleadv1.AddPeerRequest{Cell: "east", Name: "east-b"}); err != nil {
			t.Fatal(err)
		}
		voters := func() (names []command.AgentName) {
			synctest.Wait()
			home, _ := c.machine.View().Cell("east")
			for _, v := range home.Voters {
				names = append(names, v.Name)
			}
			return names
		}
		if got := voters(); !slices.Equal(got, []command.AgentName{"east-a", "east-b"}) || len(east.now().voters) != 2 || !east.now().voters[1].GetVoter() {
			t.Errorf("%v, %v", got, east.now().voters)
		}
		l, err := c.Cluster().ListPeers(c.ctx, &fairleadv1.ListPeersRequest{Cell: "east"})
		if err != nil || len(l.GetPeers()) != 2 || l.GetTerm() != 4 || l.GetVotersWanted() != 1 {
			t.Errorf("%v, %v", l, err)
		}
		if _, err := c.Cluster().TransferLeadership(c.ctx, &fairleadv1.TransferLeadershipRequest{Cell: "east", Name: "x"}); rejection.From(err).GetField() != "name" {
			t.Error(err)
		}
		if a, err := c.Cluster().TransferLeadership(c.ctx, &fairleadv1.TransferLeadershipRequest{Cell: "east", Name: "east-b"}); err != nil || a.GetLeader() != "east-b" {
			t.Errorf("%v, %v", a, err)
		}
		if _, err := c.Cluster().RemovePeer(c.ctx, &fairleadv1.RemovePeerRequest{Cell: "east", Name: "east-b"}); err != nil || len(voters()) != 1 {
			t.Errorf("%v, %v", err, voters())
		}
		if _, err := c.Cluster().RemovePeer(c.ctx, &fairleadv1.RemovePeerRequest{Cell: "east", Name: "east-a"}); rejection.From(err).GetReason() != "QUORUM" {
			t.Error(err)
		}
		east.set(func() { east.fail = connect.NewError(connect.CodeUnavailable, errors.New("inner words")) })
		_, err = c.Cluster().ListPeers(c.ctx, &fairleadv1.ListPeersRequest{Cell: "east"})
		if rejection.From(err).GetReason() != "CELL_UNREACHABLE" || strings.Contains(err.Error(), "inner words") {
			t.Error(err)
		}
		if _, err := c.Cluster().ListPeers(c.ctx, &fairleadv1.ListPeersRequest{Cell: "none"}); rejection.From(err).GetReason() != "NOT_FOUND" {
			t.Error(err)
		}
	})
}

// A cell whose voter is missing from the record gets another of its agents, without a vote until it has caught up.
func TestReplicaIsRepaired(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		if _, err := c.CellService().CreateCell(c.ctx, &fairleadv1.CreateCellRequest{Name: "east", Replicas: 3}); err != nil {
			t.Fatal(err)
		}
		for _, a := range []command.AgentName{"east-a", "east-b", "east-c"} {
			c.register(command.RoleCell, a, "east")
		}
		c.after(10 * time.Second)
		east := c.dialer.cell("east")
		if len(east.now().voters) != 3 {
			t.Fatalf("%v", east.now().voters)
		}
		if _, err := c.Cluster().RemovePeer(c.ctx, &fairleadv1.RemovePeerRequest{Cell: "east", Name: "east-c", Force: true}); err != nil {
			t.Fatal(err)
		}
		c.register(command.RoleCell, "east-d", "east")
		c.after(20 * time.Second)
		home, _ := c.machine.View().Cell("east")
		if len(home.Voters) != 3 {
			t.Errorf("%v", home.Voters)
		}
	})
}

// What was saved is restored with raised epochs, and every cell is told of everything; what is damaged changes nothing.
func TestSaveAndRestore(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		east := c.cellWith("east", 100, nil)
		kept := c.tenantIn("kept", nil)
		var file []byte
		if err := c.saveSnapshot(t.Context(), "", func(m *fairleadv1.SaveSnapshotResponse) error {
			file = append(file, m.GetData()...)
			return nil
		}); err != nil || len(file) == 0 {
			t.Fatal(err)
		}
		c.tenantIn("lost", nil)
		restore := func(id string, data []byte) (*fairleadv1.RestoreSnapshotResponse, error) {
			s := &fakeStream{}
			for chunk := range slices.Chunk(data, 100) {
				s.messages = append(s.messages, &fairleadv1.RestoreSnapshotRequest{Cell: id, Data: chunk})
			}
			a, err := c.restoreSnapshot(c.ctx, s)
			if err != nil {
				err = c.fail(c.ctx, err)
			}
			return a, err
		}
		hash := c.machine.View().Hash()
		for name, x := range map[string]struct {
			id, reason string
			data       []byte
		}{
			"cut":   {"", "CORRUPT", file[:len(file)-1]},
			"empty": {"", "BAD_FIELD", nil},
			"cell":  {"east", "BAD_FIELD", file},
		} {
			if _, err := restore(x.id, x.data); rejection.From(err).GetReason() != x.reason || c.machine.View().Hash() != hash {
				t.Errorf("%s: %v", name, err)
			}
		}
		a, err := restore("", file)
		if err != nil || a.GetRestores() != 1 || a.GetIndex() != 42 || a.GetSavedTime().GetSeconds() != 1000 {
			t.Fatalf("%v, %v", a, err)
		}
		synctest.Wait() // it leads again
		c.after(5 * time.Second)
		if got := east.tenant("kept"); got.GetEpoch() != kept.GetEpoch()+1<<32 {
			t.Errorf("the cell has %v, before %v", got, kept)
		}
		if _, err := c.GetTenant(c.ctx, &fairleadv1.GetTenantRequest{Id: "lost"}); rejection.From(err).GetReason() != "NOT_FOUND" {
			t.Error(err)
		}
	})
}

// fakeStream is a stream of pieces.
type fakeStream struct {
	messages []*fairleadv1.RestoreSnapshotRequest
	now      *fairleadv1.RestoreSnapshotRequest
}

func (f *fakeStream) Receive() bool {
	if len(f.messages) == 0 {
		return false
	}
	f.now, f.messages = f.messages[0], f.messages[1:]
	return true
}
func (f *fakeStream) Msg() *fairleadv1.RestoreSnapshotRequest { return f.now }
func (f *fakeStream) Err() error                              { return nil }

// Pieces are of one size however they are written.
func TestPieces(t *testing.T) {
	var got []int
	w := pieces{send: func(m *fairleadv1.SaveSnapshotResponse) error { got = append(got, len(m.GetData())); return nil }}
	for range 3 {
		if n, err := w.Write(make([]byte, pieceBytes-1)); n != pieceBytes-1 || err != nil {
			t.Fatal(n, err)
		}
	}
	if err := w.flush(); err != nil || !slices.Equal(got, []int{pieceBytes, pieceBytes, pieceBytes - 3}) {
		t.Errorf("%v, %v", got, err)
	}
	stop := errors.New("gone")
	w = pieces{send: func(*fairleadv1.SaveSnapshotResponse) error { return stop }}
	if _, err := w.Write(make([]byte, 2*pieceBytes)); !errors.Is(err, stop) {
		t.Error(err)
	}
}

// The services over HTTP, streams among them.
func TestSnapshotsOverHTTP(t *testing.T) {
	c := startCluster(t)
	c.group.lead()
	c.reign.Store(c.newReign(1))
	c.bootstrap()
	mux := http.NewServeMux()
	mux.Handle(fairleadv1connect.NewClusterServiceHandler(c.Cluster()))
	hs := httptest.NewServer(mux)
	defer hs.Close()
	client := fairleadv1connect.NewClusterServiceClient(hs.Client(), hs.URL)
	saved, err := client.SaveSnapshot(t.Context(), &fairleadv1.SaveSnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var file []byte
	for saved.Receive() {
		file = append(file, saved.Msg().GetData()...)
	}
	if err := saved.Err(); err != nil || len(file) == 0 {
		t.Fatal(err)
	}
	up, err := client.RestoreSnapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := up.Send(&fairleadv1.RestoreSnapshotRequest{Data: file}); err != nil {
		t.Fatal(err)
	}
	if a, err := up.CloseAndReceive(); err != nil || a.GetRestores() != 1 {
		t.Errorf("%v, %v", a, err)
	}
	c.group.breakWith(errors.New("inner words"))
	saved, err = client.SaveSnapshot(t.Context(), &fairleadv1.SaveSnapshotRequest{})
	if err == nil && saved.Receive() {
		t.Error("saved")
	} else if err == nil {
		err = saved.Err()
	}
	if rejection.From(err).GetReason() != rejection.ReasonOutcomeUnknown {
		t.Error(err)
	}
}

// Who does not lead answers nothing but what every replica knows, and says that nothing was done.
func TestNotLeading(t *testing.T) {
	c := startCluster(t)
	follower := c.Server
	calls := map[string]func(context.Context) error{
		"GetCluster": func(ctx context.Context) error {
			_, err := follower.Cluster().GetCluster(ctx, &fairleadv1.GetClusterRequest{})
			return err
		},
		"ListPeers": func(ctx context.Context) error {
			_, err := follower.Cluster().ListPeers(ctx, &fairleadv1.ListPeersRequest{})
			return err
		},
		"AddPeer": func(ctx context.Context) error {
			_, err := follower.Cluster().AddPeer(ctx, &fairleadv1.AddPeerRequest{})
			return err
		},
		"RemovePeer": func(ctx context.Context) error {
			_, err := follower.Cluster().RemovePeer(ctx, &fairleadv1.RemovePeerRequest{})
			return err
		},
		"TransferLeadership": func(ctx context.Context) error {
			_, err := follower.Cluster().TransferLeadership(ctx, &fairleadv1.TransferLeadershipRequest{})
			return err
		},
		"SetFeatureLevel": func(ctx context.Context) error {
			_, err := follower.Cluster().SetFeatureLevel(ctx, &fairleadv1.SetFeatureLevelRequest{Level: 1})
			return err
		},
		"Restore": func(ctx context.Context) error { _, err := follower.restoreSnapshot(ctx, nil); return err },
		"ListCells": func(ctx context.Context) error {
			_, err := follower.CellService().ListCells(ctx, &fairleadv1.ListCellsRequest{})
			return err
		},
		"CreateCell": func(ctx context.Context) error {
			_, err := follower.CellService().CreateCell(ctx, &fairleadv1.CreateCellRequest{Name: "c"})
			return err
		},
		"ShowPlacement": func(ctx context.Context) error {
			_, err := follower.Placement().ShowPlacement(ctx, &fairleadv1.ShowPlacementRequest{})
			return err
		},
		"PlanPlacement": func(ctx context.Context) error {
			_, err := follower.Placement().PlanPlacement(ctx, &fairleadv1.PlanPlacementRequest{})
			return err
		},
		"ListAudit": func(ctx context.Context) error {
			_, err := follower.Audit().ListAudit(ctx, &fairleadv1.ListAuditRequest{})
			return err
		},
		"Register": func(ctx context.Context) error {
			_, err := follower.Registry().Register(asPeer(ctx, command.RoleGateway, "g", ""), &fairleadv1.RegisterRequest{})
			return err
		},
		"CreateTenant": func(ctx context.Context) error { _, err := follower.CreateTenant(ctx, request("t", 1)); return err },
		"ListKeys": func(ctx context.Context) error {
			_, err := follower.ListKeys(ctx, &fairleadv1.ListKeysRequest{})
			return err
		},
		"ListOrganizations": func(ctx context.Context) error {
			_, err := follower.ListOrganizations(ctx, &fairleadv1.ListOrganizationsRequest{})
			return err
		},
	}
	for name, call := range calls {
		err := call(t.Context())
		if name == "Restore" {
			err = follower.fail(t.Context(), err)
		}
		if connect.CodeOf(err) != connect.CodeUnavailable || rejection.From(err).GetReason() != "NOT_APPLIED" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if c.machine.View().Index() != 0 {
		t.Error("something was proposed")
	}
}

// A process with a cell of its own has that cell, cannot drain it and knows no others; tenants of before there were homes get one.
func TestSharedCell(t *testing.T) {
	r := start(t)
	for i := range 3 {
		if _, err := r.proposeQuietly(t.Context(), command.CreateTenant{Tenant: cell.TenantID(fmt.Sprint("old", i)), Time: 1}); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := r.ConfigureCells(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := r.told.policy("old2"); !ok {
		t.Error("not told")
	}
	g, err := r.GetTenant(t.Context(), &fairleadv1.GetTenantRequest{Id: "old1"})
	if err != nil || g.GetTenant().GetCell() != "cell-1" {
		t.Errorf("%v, %v", g, err)
	}
	l, err := r.CellService().ListCells(t.Context(), &fairleadv1.ListCellsRequest{})
	if err != nil || len(l.GetCells()) != 1 || l.GetCells()[0].GetTenants() != 3 {
		t.Errorf("%v, %v", l, err)
	}
	for name, err := range map[string]error{
		"drain":  second(r.CellService().DrainCell(t.Context(), &fairleadv1.DrainCellRequest{Name: "cell-1"})),
		"create": second(r.CellService().CreateCell(t.Context(), &fairleadv1.CreateCellRequest{Name: "two"})),
		"delete": second(r.CellService().DeleteCell(t.Context(), &fairleadv1.DeleteCellRequest{Name: "cell-1"})),
	} {
		if rejection.From(err).GetReason() != "ONE_CELL" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := r.Cluster().ListPeers(t.Context(), &fairleadv1.ListPeersRequest{}); rejection.From(err).GetReason() != "NO_GROUP" {
		t.Error(err)
	}
}

// What is wrong with a request is said by its field.
func TestCellRefusals(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.cellWith("east", 100, nil)
		create := func(change func(*fairleadv1.CreateCellRequest)) error {
			r := &fairleadv1.CreateCellRequest{Name: "new"}
			change(r)
			return second(c.CellService().CreateCell(c.ctx, r))
		}
		update := func(change func(*fairleadv1.UpdateCellRequest)) error {
			r := &fairleadv1.UpdateCellRequest{Name: "east"}
			change(r)
			return second(c.CellService().UpdateCell(c.ctx, r))
		}
		for name, x := range map[string]struct {
			err           error
			field, reason string
		}{
			"name":        {create(func(r *fairleadv1.CreateCellRequest) { r.Name = "*" }), "name", "BAD_FIELD"},
			"there":       {create(func(r *fairleadv1.CreateCellRequest) { r.Name = "east" }), "id", "ALREADY_EXISTS"},
			"replicas":    {create(func(r *fairleadv1.CreateCellRequest) { r.Replicas = 2 }), "replicas", "BAD_FIELD"},
			"kind":        {create(func(r *fairleadv1.CreateCellRequest) { r.Kind = 9 }), "kind", "BAD_FIELD"},
			"hand":        {create(func(r *fairleadv1.CreateCellRequest) { r.WorkerGroups, r.Hand = 2, 3 }), "hand", "BAD_FIELD"},
			"compute":     {create(func(r *fairleadv1.CreateCellRequest) { r.Capacity = &fairleadv1.Load{Compute: -1} }), "capacity.compute", "BAD_FIELD"},
			"jobs":        {create(func(r *fairleadv1.CreateCellRequest) { r.Capacity = &fairleadv1.Load{Jobs: 0.5} }), "capacity.jobs", "BAD_FIELD"},
			"bytes":       {create(func(r *fairleadv1.CreateCellRequest) { r.Capacity = &fairleadv1.Load{Bytes: 1e30} }), "capacity.bytes", "BAD_FIELD"},
			"nothing":     {update(func(*fairleadv1.UpdateCellRequest) {}), "request", "BAD_FIELD"},
			"unknown":     {update(func(r *fairleadv1.UpdateCellRequest) { r.Name, r.SetLabels = "none", true }), "cell", "NOT_FOUND"},
			"get":         {second(c.CellService().GetCell(c.ctx, &fairleadv1.GetCellRequest{Name: "none"})), "cell", "NOT_FOUND"},
			"cordon":      {second(c.CellService().CordonCell(c.ctx, &fairleadv1.CordonCellRequest{Name: ""})), "name", "BAD_FIELD"},
			"evacuate":    {second(c.CellService().EvacuateCell(c.ctx, &fairleadv1.EvacuateCellRequest{Name: "none"})), "cell", "NOT_FOUND"},
			"delete":      {second(c.CellService().DeleteCell(c.ctx, &fairleadv1.DeleteCellRequest{Name: "none"})), "cell", "NOT_FOUND"},
			"page":        {second(c.Placement().ShowPlacement(c.ctx, &fairleadv1.ShowPlacementRequest{PageSize: -1})), "page_size", "BAD_FIELD"},
			"token":       {second(c.Placement().ShowPlacement(c.ctx, &fairleadv1.ShowPlacementRequest{PageToken: "x"})), "page_token", "BAD_FIELD"},
			"tenant":      {second(c.Placement().ShowPlacement(c.ctx, &fairleadv1.ShowPlacementRequest{Tenant: "none"})), "tenant", "NOT_FOUND"},
			"placed in":   {second(c.Placement().ShowPlacement(c.ctx, &fairleadv1.ShowPlacementRequest{Cell: "none"})), "cell", "NOT_FOUND"},
			"explain":     {second(c.Placement().ExplainPlacement(c.ctx, &fairleadv1.ExplainPlacementRequest{Tenant: "none"})), "tenant", "NOT_FOUND"},
			"compute_min": {second(c.CreateTenant(c.ctx, &fairleadv1.CreateTenantRequest{Id: "t", Placement: &fairleadv1.PlacementRules{ComputeMin: -1}})), "placement.compute_min", "BAD_FIELD"},
			"apart":       {second(c.CreateTenant(c.ctx, &fairleadv1.CreateTenantRequest{Id: "t", Placement: &fairleadv1.PlacementRules{Apart: "*"}})), "placement.apart", "BAD_FIELD"},
			"peers of":    {second(c.Cluster().ListPeers(c.ctx, &fairleadv1.ListPeersRequest{Cell: "none"})), "cell", "NOT_FOUND"},
			"remove":      {second(c.Cluster().RemovePeer(c.ctx, &fairleadv1.RemovePeerRequest{Name: ""})), "name", "BAD_FIELD"},
			"save":        {c.fail(c.ctx, c.saveSnapshot(c.ctx, "none", nil)), "cell", "NOT_FOUND"},
			"key's hash":  {second(c.Registry().Bootstrap(asPeer(c.ctx, command.RoleControl, "control-1", ""), &fairleadv1.BootstrapRequest{})), "admin_key_hash", "BAD_FIELD"},
		} {
			if r := rejection.From(x.err); r.GetField() != x.field || r.GetReason() != x.reason || !strings.Contains(r.GetMessage(), ": ") {
				t.Errorf("%s: %v, field %s", name, x.err, r.GetField())
			}
		}
		got := second(c.CellService().UpdateCell(c.ctx, &fairleadv1.UpdateCellRequest{
			Name: "east", SetLabels: true, Labels: map[string]string{"a": "b"}, Capacity: &fairleadv1.Load{Compute: 7}, WorkerGroups: new(int32(4)), Hand: new(int32(2)),
		}))
		a, err := c.CellService().GetCell(c.ctx, &fairleadv1.GetCellRequest{Name: "east"})
		if got != nil || err != nil || a.GetCell().GetLabels()["a"] != "b" || a.GetCell().GetCapacity().GetCompute() != 7 || a.GetCell().GetHand() != 2 {
			t.Errorf("%v, %v, %v", got, a, err)
		}
		c.tenantIn("dealt", nil)
		show, err := c.Placement().ShowPlacement(c.ctx, &fairleadv1.ShowPlacementRequest{Tenant: "dealt"})
		if err != nil || len(show.GetAssignments()[0].GetHand()) != 2 || c.dialer.cell("east").tenant("dealt").GetGroups() == 0 {
			t.Errorf("%v, %v", show, err)
		}
		if _, err := c.CellService().DeleteCell(c.ctx, &fairleadv1.DeleteCellRequest{Name: "east"}); rejection.From(err).GetReason() != "IN_USE" {
			t.Error(err)
		}
	})
}
