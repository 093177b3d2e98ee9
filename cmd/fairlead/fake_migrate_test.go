package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fairlead/fairlead/cmd/fairlead/moveview"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// fakeMigrations is what control answers about migrations, in memory: each look takes one a step on. The tenant says what becomes of it: that of
// unlucky is taken back when it is ready, that of crowded is blocked, that of odd differs, and any other goes well.
type fakeMigrations struct {
	f   *fakeServer
	all []*fairleadv1.Migration // the oldest first
	ill int                     // looks that nobody answers
}

func (c *fakeMigrations) mount(mux *http.ServeMux, opts connect.HandlerOption) {
	mux.Handle(fairleadv1connect.NewMigrationServiceHandler(c, opts))
}

func (c *fakeMigrations) findLocked(id, tenant string) (*fairleadv1.Migration, error) {
	for _, m := range slices.Backward(c.all) {
		if m.GetId() == id || tenant != "" && m.GetTenant() == tenant {
			return m, nil
		}
	}
	return nil, missing("migration of " + id + tenant)
}

func (c *fakeMigrations) PlanMigration(_ context.Context, req *fairleadv1.PlanMigrationRequest) (*fairleadv1.PlanMigrationResponse, error) {
	r := &fairleadv1.PlanMigrationResponse{
		Tenant: req.GetTenant(), Source: "cell-a", Target: cmp.Or(req.GetTarget(), "cell-best"), Jobs: 20_000, Bytes: 34 << 20,
		CopyTime: durationpb.New(12 * time.Second), Pause: durationpb.New(40 * time.Millisecond),
		Gates: []*fairleadv1.Gate{
			{Name: "capacity", Verdict: fairleadv1.GateVerdict_GATE_VERDICT_PASS, Evidence: "compute 12/s of 100/s: 12 %"},
			{Name: "workers", Verdict: fairleadv1.GateVerdict_GATE_VERDICT_WARN, Evidence: "1 worker offers mail.send"},
		},
		Steps: []*fairleadv1.PlannedStep{
			{State: fairleadv1.MigrationState_MIGRATION_STATE_ADMITTED, Text: "Reserve room for it in cell-b.", Undo: "abort"},
			{State: fairleadv1.MigrationState_MIGRATION_STATE_SEEDING, Text: "Copy 20000 jobs.", Undo: "abort; the copy is wiped", Time: durationpb.New(12 * time.Second)},
			{
				State: fairleadv1.MigrationState_MIGRATION_STATE_RAMPING, Class: fairleadv1.Class_CLASS_BATCH, Text: "Stop batch, copy the rest, give it to cell-b.", Undo: "reverse",
				Time: durationpb.New(40 * time.Millisecond),
			},
			{State: fairleadv1.MigrationState_MIGRATION_STATE_RAMPING, Class: fairleadv1.Class_CLASS_BATCH, Text: "Watch batch.", Undo: "reverse"},
			{State: fairleadv1.MigrationState_MIGRATION_STATE_CUT_OVER, Text: "Follow from cell-a for 24 h.", Undo: "reverse"},
		},
	}
	if req.GetTenant() == "crowded" {
		r.Gates[0].Verdict, r.Gates[0].Evidence = fairleadv1.GateVerdict_GATE_VERDICT_FAIL, "compute 92/s of 100/s: 92 %, of at most 70 %"
		r.Blockers = []string{"capacity: compute 92/s of 100/s: 92 %, of at most 70 %"}
	}
	return r, nil
}

func (c *fakeMigrations) StartMigration(_ context.Context, req *fairleadv1.StartMigrationRequest) (*fairleadv1.StartMigrationResponse, error) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	if m, err := c.findLocked("", req.GetTenant()); err == nil && !moveview.Ended(m) {
		if req.GetTarget() != m.GetTarget() {
			return nil, refused("%s moves to %s already, by %s", m.GetTenant(), m.GetTarget(), m.GetId())
		}
		return &fairleadv1.StartMigrationResponse{Migration: proto.CloneOf(m)}, nil
	}
	m := &fairleadv1.Migration{
		Id: fmt.Sprintf("mig-%d", len(c.all)+1), Tenant: req.GetTenant(), Source: "cell-a", Target: cmp.Or(req.GetTarget(), "cell-best"),
		State: fairleadv1.MigrationState_MIGRATION_STATE_DECLARED, Attempt: 1, Reason: cmp.Or(req.GetReason(), "operator"), Actor: "key_1",
		CreateTime: timestamppb.New(fakeTime), EnterTime: timestamppb.New(fakeTime), Options: req.GetOptions(), Generation: 1,
		Progress: &fairleadv1.MigrationProgress{}, NextStep: "capacity is proved", Undo: "abort: nothing is lost",
	}
	for _, class := range []fairleadv1.Class{fairleadv1.Class_CLASS_BATCH, fairleadv1.Class_CLASS_INTERACTIVE} {
		m.Lanes = append(m.Lanes, &fairleadv1.MigrationLane{Class: class, Phase: fairleadv1.LanePhase_LANE_PHASE_AT_SOURCE, Owner: "cell-a", Epoch: 1})
	}
	c.noteLocked(m, "key_1", "declared", "")
	c.all = append(c.all, m)
	return &fairleadv1.StartMigrationResponse{Migration: proto.CloneOf(m), Created: true}, nil
}

func (c *fakeMigrations) noteLocked(m *fairleadv1.Migration, actor, what, why string) {
	m.Events = append(m.Events, &fairleadv1.MigrationEvent{Time: timestamppb.New(fakeTime), Actor: actor, What: what, Why: why, Attempt: m.GetAttempt(), Epoch: m.GetLanes()[0].GetEpoch()})
}

func (c *fakeMigrations) GetMigration(_ context.Context, req *fairleadv1.GetMigrationRequest) (*fairleadv1.GetMigrationResponse, error) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	if c.ill > 0 {
		c.ill--
		return nil, connect.NewError(connect.CodeUnavailable, fmt.Errorf("nobody leads control"))
	}
	m, err := c.findLocked(req.GetId(), req.GetTenant())
	if err != nil {
		return nil, err
	}
	answer := proto.CloneOf(m)
	c.stepLocked(m)
	return &fairleadv1.GetMigrationResponse{Migration: answer}, nil
}

// stepLocked takes a migration a step on, unless it is held.
func (c *fakeMigrations) stepLocked(m *fairleadv1.Migration) {
	if m.GetHeld() != "" {
		return
	}
	g := m.GetProgress()
	before := m.GetState()
	switch m.GetState() { //nolint:exhaustive // every other state is a step on
	case fairleadv1.MigrationState_MIGRATION_STATE_SEEDING:
		g.JobsTotal, g.JobsCopied, g.BytesCopied, g.BytesPerSecond = 20_000, g.GetJobsCopied()+10_000, g.GetBytesCopied()+17<<20, 8<<20
		g.TimeLeft, g.LagTime, g.LagRecords = durationpb.New(4*time.Second), durationpb.New(200*time.Millisecond), 12
		if g.GetJobsCopied() < g.GetJobsTotal() {
			break
		}
		m.State++
	case fairleadv1.MigrationState_MIGRATION_STATE_READY:
		switch {
		case m.GetTenant() == "unlucky":
			m.State = fairleadv1.MigrationState_MIGRATION_STATE_ABORTING
		case !m.GetOptions().GetManual():
			m.State++
		}
	case fairleadv1.MigrationState_MIGRATION_STATE_RAMPING:
		c.rampLocked(m)
	case fairleadv1.MigrationState_MIGRATION_STATE_DRAINING, fairleadv1.MigrationState_MIGRATION_STATE_ABORTING, fairleadv1.MigrationState_MIGRATION_STATE_REVERSING:
		m.State++
		m.EndTime = timestamppb.New(fakeTime)
	case fairleadv1.MigrationState_MIGRATION_STATE_CUT_OVER:
		return
	default:
		if moveview.Ended(m) {
			return
		}
		m.State++
	}
	m.Generation++
	if m.GetState() != before {
		why := ""
		if m.GetState() == fairleadv1.MigrationState_MIGRATION_STATE_ABORTED && m.GetTenant() == "unlucky" {
			why = "cell-b lost its disk"
		}
		c.noteLocked(m, "control", moveview.State(before)+" -> "+moveview.State(m.GetState()), why)
	}
}

// rampLocked switches the first class that is not; one that waits for the operator waits.
func (c *fakeMigrations) rampLocked(m *fairleadv1.Migration) {
	for i, l := range m.GetLanes() {
		switch l.GetPhase() { //nolint:exhaustive // every other phase is a step on
		case fairleadv1.LanePhase_LANE_PHASE_MOVED:
			if i == len(m.GetLanes())-1 {
				m.State++
			} else if m.GetOptions().GetManual() && m.GetLanes()[i+1].GetPhase() == fairleadv1.LanePhase_LANE_PHASE_AT_SOURCE {
				return
			}
			continue
		case fairleadv1.LanePhase_LANE_PHASE_FENCING:
			l.Owner, l.Epoch, l.Pause = m.GetTarget(), l.GetEpoch()+1, durationpb.New(38*time.Millisecond)
		default:
		}
		l.Phase++
		return
	}
}

func (c *fakeMigrations) ListMigrations(_ context.Context, req *fairleadv1.ListMigrationsRequest) (*fairleadv1.ListMigrationsResponse, error) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	var some []*fairleadv1.Migration
	for _, kept := range slices.Backward(c.all) {
		m := proto.CloneOf(kept)
		m.Events = nil
		if (!req.GetLive() || !moveview.Ended(m)) && (req.GetCell() == "" || req.GetCell() == m.GetSource() || req.GetCell() == m.GetTarget()) {
			some = append(some, m)
		}
	}
	page, next, err := fakePage(some, req.GetPageSize(), req.GetPageToken())
	return &fairleadv1.ListMigrationsResponse{Migrations: page, NextPageToken: next}, err
}

func (c *fakeMigrations) ControlMigration(_ context.Context, req *fairleadv1.ControlMigrationRequest) (*fairleadv1.ControlMigrationResponse, error) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	m, err := c.findLocked(req.GetId(), req.GetTenant())
	if err != nil {
		return nil, err
	}
	next := proto.CloneOf(m)
	text, err := controlFake(next, req)
	if err != nil {
		return nil, err
	}
	if !req.GetDryRun() {
		c.noteLocked(next, "key_1", text, req.GetWhy())
		next.Generation++
		proto.Reset(m)
		proto.Merge(m, next)
	}
	return &fairleadv1.ControlMigrationResponse{Migration: proto.CloneOf(m), Text: text}, nil
}

// controlFake does what is asked to m, and says it.
func controlFake(m *fairleadv1.Migration, req *fairleadv1.ControlMigrationRequest) (string, error) {
	switch req.GetAction() { //nolint:exhaustive // no other is one
	case fairleadv1.MigrationAction_MIGRATION_ACTION_PAUSE:
		m.Held = "operator"
		return "held", nil
	case fairleadv1.MigrationAction_MIGRATION_ACTION_RESUME:
		m.Held = ""
		return "resumed", nil
	case fairleadv1.MigrationAction_MIGRATION_ACTION_THROTTLE:
		if m.GetOptions() == nil {
			m.Options = &fairleadv1.MigrationOptions{}
		}
		m.Options.BytesPerSecond = req.GetBytesPerSecond()
		return "it copies at most that fast", nil
	case fairleadv1.MigrationAction_MIGRATION_ACTION_SWITCH:
		for _, l := range m.GetLanes() {
			if l.GetPhase() == fairleadv1.LanePhase_LANE_PHASE_AT_SOURCE && (req.GetClass() == 0 || req.GetClass() == l.GetClass()) {
				m.State, l.Phase = fairleadv1.MigrationState_MIGRATION_STATE_RAMPING, fairleadv1.LanePhase_LANE_PHASE_FENCING
				return classText(l.GetClass()) + " may be switched", nil
			}
		}
		return "", refused("no class waits")
	case fairleadv1.MigrationAction_MIGRATION_ACTION_ABORT:
		if committed(m) {
			return "", refused("a class is committed: this is past the point of no return")
		}
		m.State = fairleadv1.MigrationState_MIGRATION_STATE_ABORTING
		return "the copy is wiped; nothing is lost", nil
	case fairleadv1.MigrationAction_MIGRATION_ACTION_REVERSE:
		if !committed(m) {
			return "", refused("no class is committed")
		}
		m.State = fairleadv1.MigrationState_MIGRATION_STATE_REVERSING
		return "both classes go back; nothing is lost", nil
	case fairleadv1.MigrationAction_MIGRATION_ACTION_COMPLETE:
		if m.GetState() != fairleadv1.MigrationState_MIGRATION_STATE_CUT_OVER {
			return "", refused("it is %s, not cut-over", moveview.State(m.GetState()))
		}
		m.State = fairleadv1.MigrationState_MIGRATION_STATE_DRAINING
		return "the way back is lost", nil
	default:
		return "", refused("no such action")
	}
}

// DiffMigration answers in two pages.
func (c *fakeMigrations) DiffMigration(_ context.Context, req *fairleadv1.DiffMigrationRequest) (*fairleadv1.DiffMigrationResponse, error) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	m, err := c.findLocked(req.GetId(), req.GetTenant())
	if err != nil {
		return nil, err
	}
	r := &fairleadv1.DiffMigrationResponse{SamePoint: true, Equal: true, Buckets: 256}
	if m.GetTenant() == "odd" && req.GetClass() == fairleadv1.Class_CLASS_BATCH {
		r.Equal, r.BucketsDiffer = false, 2
		if req.GetAfterBucket() == 0 {
			r.NextBucket = 128
		}
		r.Differences = []*fairleadv1.Difference{{Kind: "job", Id: fmt.Sprintf("job_%d", req.GetAfterBucket()), Problem: "missing at target"}}
	}
	return r, nil
}
