package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/state"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
	"github.com/fairlead/fairlead/proto/rejection"
)

// fakeCluster is what control answers about the cluster, in memory. A cell that drains loses a job at each look, and one that is evacuated a tenant.
type fakeCluster struct {
	f *fakeServer

	cells    []*fairleadv1.Cell
	peers    []*fairleadv1.Peer
	level    int32
	restored []byte
	leaving  string // the cell that is evacuated
	audit    []*fairleadv1.AuditRecord
	findings []*fairleadv1.PlacementFinding
}

func newFakeCluster(f *fakeServer) *fakeCluster {
	c := &fakeCluster{
		f: f, level: 1,
		cells: []*fairleadv1.Cell{{
			Name: "cell-a", Kind: fairleadv1.CellKind_CELL_KIND_POOLED, Phase: fairleadv1.CellPhase_CELL_PHASE_OPEN, Replicas: 3,
			Labels: map[string]string{"zone": "a"}, Capacity: &fairleadv1.Load{Compute: 100, Jobs: 1000}, Voters: []string{"cell-a-1", "cell-a-2", "cell-a-3"},
			Leader: "cell-a-2", Tenants: 3, Load: &fairleadv1.Load{Compute: 40, Jobs: 3, Bytes: 1 << 20}, CreateTime: timestamppb.New(fakeTime),
			LastSeen: timestamppb.New(fakeTime), WorkerGroups: 8, Hand: 2, Generation: 7,
		}},
		peers: []*fairleadv1.Peer{
			{Name: "control-1", RaftAddress: "control-1:7701", Voter: true, Leader: true, LastContact: durationpb.New(0), LastIndex: 100},
			{Name: "control-2", RaftAddress: "control-2:7701", Voter: true, LastContact: durationpb.New(1_500_000_000), LastIndex: 98},
			{Name: "control-3", RaftAddress: "control-3:7701"},
		},
	}
	var before [sha256.Size]byte
	for i, actor := range []string{"key_1", "key_1", "agent control-1"} {
		r := state.AuditRecord{
			Sequence: uint64(i + 1), Time: cell.InstantOf(fakeTime), Actor: actor, Action: "create-tenant", Subject: fmt.Sprintf("t%d", i), Detail: "weight=1",
			Index: uint64(10 * (i + 1)),
		}
		before = r.Chain(before)
		c.audit = append(c.audit, &fairleadv1.AuditRecord{
			Sequence: r.Sequence, Time: timestamppb.New(fakeTime), Actor: r.Actor, Action: r.Action, Subject: r.Subject, Detail: r.Detail, Index: r.Index,
			Hash: slices.Clone(before[:]),
		})
	}
	return c
}

func (c *fakeCluster) mount(mux *http.ServeMux, opts connect.HandlerOption) {
	mux.Handle(fairleadv1connect.NewClusterServiceHandler(c, opts))
	mux.Handle(fairleadv1connect.NewCellServiceHandler(c, opts))
	mux.Handle(fairleadv1connect.NewPlacementServiceHandler(c, opts))
	mux.Handle(fairleadv1connect.NewAuditServiceHandler(c, opts))
	mux.HandleFunc(healthPath, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			w.WriteHeader(http.StatusBadRequest)
		}
		fmt.Fprintln(w, "ok")
	})
}

func refused(format string, args ...any) error {
	return rejection.New(connect.CodeFailedPrecondition, &fairleadv1.Rejection{Code: "failed_precondition", Reason: "REFUSED", Message: fmt.Sprintf(format, args...)})
}

func missing(what string) error {
	return rejection.New(connect.CodeNotFound, &fairleadv1.Rejection{Reason: rejection.ReasonNotFound, Message: "there is no " + what})
}

func (c *fakeCluster) GetCluster(context.Context, *fairleadv1.GetClusterRequest) (*fairleadv1.GetClusterResponse, error) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	return &fairleadv1.GetClusterResponse{
		ClusterId: "fl-test", CreateTime: timestamppb.New(fakeTime), FeatureLevel: c.level, FeatureLevelMax: 2, Leader: "control-1", Tenants: 3, Cells: 1,
		Agents: []*fairleadv1.Agent{
			{
				Name: "control-1", Role: fairleadv1.AgentRole_AGENT_ROLE_CONTROL, ApiAddress: "control-1:7700", RaftAddress: "control-1:7701", Version: "v1",
				FeatureLevelMax: 2, LastSeen: timestamppb.New(fakeTime),
			},
			{Name: "cell-a-1", Role: fairleadv1.AgentRole_AGENT_ROLE_CELL, Cell: "cell-a", ApiAddress: "cell-a-1:7700"},
		},
	}, nil
}

func (c *fakeCluster) ListMembers(context.Context, *fairleadv1.ListMembersRequest) (*fairleadv1.ListMembersResponse, error) {
	return &fairleadv1.ListMembersResponse{SeenBy: "control-1", Members: []*fairleadv1.Member{
		{Name: "gateway-1", Role: fairleadv1.AgentRole_AGENT_ROLE_GATEWAY, State: "suspect", LoadPercent: 42, ApiAddress: "gateway-1:7700"},
	}}, nil
}

func (c *fakeCluster) ListPeers(_ context.Context, req *fairleadv1.ListPeersRequest) (*fairleadv1.ListPeersResponse, error) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	if req.GetCell() != "" && req.GetCell() != "cell-a" {
		return nil, missing("cell " + req.GetCell())
	}
	return &fairleadv1.ListPeersResponse{Peers: c.peers, Term: 4, LastIndex: 100, CommitIndex: 100, SnapshotIndex: 50, VotersWanted: 3}, nil
}

func (c *fakeCluster) AddPeer(_ context.Context, req *fairleadv1.AddPeerRequest) (*fairleadv1.AddPeerResponse, error) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	if req.GetName() == "stranger" {
		return nil, missing("agent stranger")
	}
	p := &fairleadv1.Peer{Name: req.GetName(), RaftAddress: req.GetName() + ":7701", Voter: !req.GetNonVoter(), LastContact: durationpb.New(0), LastIndex: 100}
	c.peers = append(c.peers, p)
	return &fairleadv1.AddPeerResponse{Peer: p}, nil
}

func (c *fakeCluster) RemovePeer(_ context.Context, req *fairleadv1.RemovePeerRequest) (*fairleadv1.RemovePeerResponse, error) {
	if !req.GetForce() {
		return nil, refused("2 voters would be left of 3")
	}
	return &fairleadv1.RemovePeerResponse{}, nil
}

func (c *fakeCluster) TransferLeadership(
	_ context.Context, req *fairleadv1.TransferLeadershipRequest,
) (*fairleadv1.TransferLeadershipResponse, error) {
	return &fairleadv1.TransferLeadershipResponse{Leader: cmp.Or(req.GetName(), "control-2")}, nil
}

const fakeSnapshot = "FAIRSNAP of control"

// SaveSnapshot sends a snapshot byte by byte; of cell-lost it breaks off.
func (c *fakeCluster) SaveSnapshot(
	_ context.Context, req *fairleadv1.SaveSnapshotRequest, stream *connect.ServerStream[fairleadv1.SaveSnapshotResponse],
) error {
	for _, b := range []byte(fakeSnapshot) {
		if err := stream.Send(&fairleadv1.SaveSnapshotResponse{Data: []byte{b}}); err != nil {
			return err
		}
	}
	if req.GetCell() == "cell-lost" {
		return rejection.New(connect.CodeUnavailable, &fairleadv1.Rejection{Reason: rejection.ReasonOutcomeUnknown, Message: "the leader went away"})
	}
	return nil
}

// RestoreSnapshot takes what SaveSnapshot sent and nothing else.
func (c *fakeCluster) RestoreSnapshot(
	_ context.Context, stream *connect.ClientStream[fairleadv1.RestoreSnapshotRequest],
) (*fairleadv1.RestoreSnapshotResponse, error) {
	var got []byte
	for stream.Receive() {
		got = append(got, stream.Msg().GetData()...)
	}
	if err := stream.Err(); err != nil {
		return nil, err
	}
	if !bytes.Equal(got, []byte(fakeSnapshot)) {
		return nil, refused("the snapshot is damaged: nothing was changed")
	}
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	c.restored = got
	return &fairleadv1.RestoreSnapshotResponse{SavedTime: timestamppb.New(fakeTime), Index: 42, Restores: 1}, nil
}

func (c *fakeCluster) SetFeatureLevel(_ context.Context, req *fairleadv1.SetFeatureLevelRequest) (*fairleadv1.SetFeatureLevelResponse, error) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	if req.GetLevel() > 2 {
		return nil, refused("an agent understands 2")
	}
	c.level = req.GetLevel()
	return &fairleadv1.SetFeatureLevelResponse{Level: c.level}, nil
}

func (c *fakeCluster) CreateJoinToken(_ context.Context, req *fairleadv1.CreateJoinTokenRequest) (*fairleadv1.CreateJoinTokenResponse, error) {
	return &fairleadv1.CreateJoinTokenResponse{
		Token: "flj_" + req.GetRole().String() + "_" + req.GetCell(), ExpireTime: timestamppb.New(fakeTime.Add(req.GetLifetime().AsDuration())),
	}, nil
}

func (c *fakeCluster) findLocked(name string) (*fairleadv1.Cell, error) {
	for _, one := range c.cells {
		if one.GetName() == name {
			return one, nil
		}
	}
	return nil, missing("cell " + name)
}

func (c *fakeCluster) CreateCell(_ context.Context, req *fairleadv1.CreateCellRequest) (*fairleadv1.CreateCellResponse, error) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	one := &fairleadv1.Cell{
		Name: req.GetName(), Kind: req.GetKind(), Phase: fairleadv1.CellPhase_CELL_PHASE_FORMING, Replicas: req.GetReplicas(), Labels: req.GetLabels(),
		Capacity: req.GetCapacity(), WorkerGroups: req.GetWorkerGroups(), Hand: req.GetHand(), CreateTime: timestamppb.New(fakeTime), Generation: 1,
	}
	c.cells = append(c.cells, one)
	return &fairleadv1.CreateCellResponse{Cell: proto.CloneOf(one)}, nil
}

func (c *fakeCluster) UpdateCell(_ context.Context, req *fairleadv1.UpdateCellRequest) (*fairleadv1.UpdateCellResponse, error) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	one, err := c.findLocked(req.GetName())
	if err != nil {
		return nil, err
	}
	if req.GetSetLabels() {
		one.Labels = req.GetLabels()
	}
	if req.GetCapacity() != nil {
		one.Capacity = req.GetCapacity()
	}
	if req.WorkerGroups != nil {
		one.WorkerGroups = req.GetWorkerGroups()
	}
	if req.Hand != nil {
		one.Hand = req.GetHand()
	}
	one.Generation++
	return &fairleadv1.UpdateCellResponse{Cell: proto.CloneOf(one)}, nil
}

func (c *fakeCluster) GetCell(_ context.Context, req *fairleadv1.GetCellRequest) (*fairleadv1.GetCellResponse, error) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	one, err := c.findLocked(req.GetName())
	if err != nil {
		return nil, err
	}
	answer := proto.CloneOf(one)
	if one.GetPhase() == fairleadv1.CellPhase_CELL_PHASE_DRAINING {
		one.Load.Jobs = max(0, one.GetLoad().GetJobs()-1)
	}
	if c.leaving == one.GetName() {
		one.Tenants = max(0, one.GetTenants()-1)
	}
	return &fairleadv1.GetCellResponse{Cell: answer}, nil
}

func (c *fakeCluster) ListCells(context.Context, *fairleadv1.ListCellsRequest) (*fairleadv1.ListCellsResponse, error) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	return &fairleadv1.ListCellsResponse{Cells: c.cells}, nil
}

func (c *fakeCluster) phase(name string, phase fairleadv1.CellPhase) (*fairleadv1.Cell, error) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	one, err := c.findLocked(name)
	if err != nil {
		return nil, err
	}
	one.Phase = phase
	return proto.CloneOf(one), nil
}

func (c *fakeCluster) CordonCell(_ context.Context, req *fairleadv1.CordonCellRequest) (*fairleadv1.CordonCellResponse, error) {
	phase := fairleadv1.CellPhase_CELL_PHASE_CORDONED
	if req.GetUndo() {
		phase = fairleadv1.CellPhase_CELL_PHASE_OPEN
	}
	one, err := c.phase(req.GetName(), phase)
	return &fairleadv1.CordonCellResponse{Cell: one}, err
}

func (c *fakeCluster) DrainCell(_ context.Context, req *fairleadv1.DrainCellRequest) (*fairleadv1.DrainCellResponse, error) {
	phase := fairleadv1.CellPhase_CELL_PHASE_DRAINING
	if req.GetUndo() {
		phase = fairleadv1.CellPhase_CELL_PHASE_CORDONED
	}
	one, err := c.phase(req.GetName(), phase)
	return &fairleadv1.DrainCellResponse{Cell: one}, err
}

func (c *fakeCluster) plan(reason string) *fairleadv1.PlacementPlan {
	return &fairleadv1.PlacementPlan{
		Index: 77, ImbalanceBefore: 1.8, ImbalanceAfter: 1.2, Held: []string{"t9: moved 3h ago"},
		Decisions: []*fairleadv1.PlacementDecision{
			{Tenant: "t1", Source: "cell-a", Target: "cell-b", Reason: reason, Demand: &fairleadv1.Load{Compute: 2.5}, Bytes: 2048, NeedsMigration: true},
			{Tenant: "t2", Source: "cell-a", Reason: reason},
			{Tenant: "t3", Target: "cell-b", Reason: "place"},
		},
		Whales: []*fairleadv1.Whale{{
			Tenant: "t1", Cell: "cell-a", Share: 0.31, Signal: "share", Since: timestamppb.New(fakeTime), Verdict: "propose", Text: "31 % for 26 h",
		}},
	}
}

func (c *fakeCluster) EvacuateCell(_ context.Context, req *fairleadv1.EvacuateCellRequest) (*fairleadv1.EvacuateCellResponse, error) {
	phase := fairleadv1.CellPhase_CELL_PHASE_CORDONED
	if req.GetDryRun() {
		phase = fairleadv1.CellPhase_CELL_PHASE_OPEN
	}
	one, err := c.phase(req.GetName(), phase)
	if err != nil {
		return nil, err
	}
	if !req.GetDryRun() {
		c.f.mu.Lock()
		defer c.f.mu.Unlock()
		c.leaving = req.GetName()
	}
	return &fairleadv1.EvacuateCellResponse{Plan: c.plan("evacuate"), Cell: one}, nil
}

func (c *fakeCluster) DeleteCell(_ context.Context, req *fairleadv1.DeleteCellRequest) (*fairleadv1.DeleteCellResponse, error) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	one, err := c.findLocked(req.GetName())
	if err != nil {
		return nil, err
	}
	if one.GetTenants() > 0 {
		return nil, refused("the cell has %d tenants", one.GetTenants())
	}
	c.cells = slices.DeleteFunc(c.cells, func(o *fairleadv1.Cell) bool { return o == one })
	return &fairleadv1.DeleteCellResponse{}, nil
}

func (c *fakeCluster) ShowPlacement(_ context.Context, req *fairleadv1.ShowPlacementRequest) (*fairleadv1.ShowPlacementResponse, error) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	var all []*fairleadv1.Assignment
	for n := range 600 {
		all = append(all, &fairleadv1.Assignment{
			Tenant: fmt.Sprintf("t%03d", n/2), Class: fairleadv1.Class(1 + n%2), Cell: "cell-a", Epoch: uint64(n + 1), Since: timestamppb.New(fakeTime),
			Demand: &fairleadv1.Load{Compute: 0.25}, Hand: []int32{1, 5},
		})
	}
	page, next, err := fakePage(all, req.GetPageSize(), req.GetPageToken())
	return &fairleadv1.ShowPlacementResponse{Cells: c.cells, Assignments: page, NextPageToken: next, Unplaced: []string{"t900"}}, err
}

func (c *fakeCluster) PlanPlacement(_ context.Context, req *fairleadv1.PlanPlacementRequest) (*fairleadv1.PlanPlacementResponse, error) {
	if req.GetPlaceOnly() {
		return &fairleadv1.PlanPlacementResponse{Plan: &fairleadv1.PlacementPlan{Index: 77}}, nil
	}
	return &fairleadv1.PlanPlacementResponse{Plan: c.plan("rebalance")}, nil
}

func (c *fakeCluster) ApplyPlacement(_ context.Context, req *fairleadv1.ApplyPlacementRequest) (*fairleadv1.ApplyPlacementResponse, error) {
	if req.GetIndex() != 77 {
		return nil, refused("the state has changed since %s", strconv.FormatUint(req.GetIndex(), 10))
	}
	return &fairleadv1.ApplyPlacementResponse{Plan: c.plan("rebalance"), Applied: 1, NeedMigration: 1}, nil
}

// CheckPlacement finds nothing at first, and something later.
func (c *fakeCluster) CheckPlacement(context.Context, *fairleadv1.CheckPlacementRequest) (*fairleadv1.CheckPlacementResponse, error) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	answer := &fairleadv1.CheckPlacementResponse{Findings: c.findings, CellsTried: int32(len(c.cells))}
	c.findings = []*fairleadv1.PlacementFinding{{Kind: "failure_reserve", Lost: "cell-a", Cell: "cell-b", Text: "it would carry 120 of 100"}}
	return answer, nil
}

func (c *fakeCluster) ExplainPlacement(_ context.Context, req *fairleadv1.ExplainPlacementRequest) (*fairleadv1.ExplainPlacementResponse, error) {
	r := &fairleadv1.ExplainPlacementResponse{
		Time:       timestamppb.New(fakeTime),
		Assignment: &fairleadv1.Assignment{Tenant: req.GetTenant(), Cell: "cell-a", Since: timestamppb.New(fakeTime)},
		Decision: &fairleadv1.PlacementDecision{Tenant: req.GetTenant(), Target: "cell-a", Candidates: []*fairleadv1.Candidate{
			{Cell: "cell-a", Score: 0.75, Parts: map[string]float64{"room": 0.5, "apart": 0.25}}, {Cell: "cell-b", Rejected: "lacks zone=a"},
		}},
	}
	if !req.GetNow() {
		r.Text = "place " + req.GetTenant() + " in cell-a\n  cell-b  rejected: lacks zone=a\n"
	}
	return r, nil
}

// ListAudit answers newest first, in pages of two.
func (c *fakeCluster) ListAudit(_ context.Context, req *fairleadv1.ListAuditRequest) (*fairleadv1.ListAuditResponse, error) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	newest := slices.Clone(c.audit)
	slices.Reverse(newest)
	page, next, err := fakePage(newest, min(2, req.GetPageSize()), req.GetPageToken())
	return &fairleadv1.ListAuditResponse{
		Records: page, NextPageToken: next, FirstSequence: 1, LastSequence: uint64(len(c.audit)), HashBeforeFirst: make([]byte, sha256.Size),
	}, err
}
