package localcluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/dataplane/client"
	"github.com/fairlead/fairlead/dataplane/worker"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// fakeOperator is control as the demonstration asks it: it begins to move the whale after some looks, and each look takes the migration a state on, up to last.
type fakeOperator struct {
	fairleadv1connect.CellServiceClient
	fairleadv1connect.MigrationServiceClient
	fairleadv1connect.PlacementServiceClient

	looks   int // until control has found the whale; -1 for never
	blocked int // looks at which a gate fails
	away    int // looks that nobody answers
	last    fairleadv1.MigrationState
	earlier *fairleadv1.Migration // from before the flood

	asked     int // how often placement was
	migration *fairleadv1.Migration
}

func (f *fakeOperator) PlanPlacement(context.Context, *fairleadv1.PlanPlacementRequest) (*fairleadv1.PlanPlacementResponse, error) {
	f.asked++
	plan := &fairleadv1.PlacementPlan{Whales: []*fairleadv1.Whale{{Tenant: "acme", Verdict: "watch", Text: "is large"}}}
	if f.asked > 1 {
		plan.Whales = append(plan.Whales, &fairleadv1.Whale{Tenant: whaleName, Verdict: "watch", Text: "has 80 % of pool"})
	}
	return &fairleadv1.PlanPlacementResponse{Plan: plan}, nil
}

func (f *fakeOperator) PlanMigration(context.Context, *fairleadv1.PlanMigrationRequest) (*fairleadv1.PlanMigrationResponse, error) {
	return &fairleadv1.PlanMigrationResponse{Jobs: 7, Pause: durationpb.New(40 * time.Millisecond)}, nil
}

// begins is control's own doing.
func (f *fakeOperator) begins() {
	f.migration = &fairleadv1.Migration{
		Id: "mig-1", Tenant: whaleName, Source: poolCell, Target: whaleCell, State: fairleadv1.MigrationState_MIGRATION_STATE_DECLARED, Attempt: 1,
		Reason: "whale", Actor: "control", Events: []*fairleadv1.MigrationEvent{{Actor: "control", What: "declared", Why: "has 90 % of pool"}},
	}
	for i, c := range []fairleadv1.Class{fairleadv1.Class_CLASS_BATCH, fairleadv1.Class_CLASS_INTERACTIVE} {
		f.migration.Lanes = append(f.migration.Lanes, &fairleadv1.MigrationLane{
			Class: c, Phase: fairleadv1.LanePhase_LANE_PHASE_MOVED, Owner: whaleCell, Pause: durationpb.New(time.Duration(30+20*i) * time.Millisecond),
		})
	}
}

func (f *fakeOperator) GetMigration(_ context.Context, req *fairleadv1.GetMigrationRequest) (*fairleadv1.GetMigrationResponse, error) {
	if f.away > 0 {
		f.away--
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("nobody leads"))
	}
	if req.GetTenant() == whaleName && f.migration == nil {
		if f.looks == 0 {
			f.begins()
		}
		f.looks--
	}
	switch {
	case f.migration == nil && f.earlier == nil:
		return nil, connect.NewError(connect.CodeNotFound, errors.New("it has no migration"))
	case f.migration == nil:
		return &fairleadv1.GetMigrationResponse{Migration: proto.CloneOf(f.earlier)}, nil
	case req.GetId() == "":
	case f.blocked > 0:
		f.blocked--
		f.migration.Gates = []*fairleadv1.Gate{{
			Name: "workers", Verdict: fairleadv1.GateVerdict_GATE_VERDICT_FAIL, Evidence: fmt.Sprintf("%d offer echo, of many", f.blocked),
		}}
	case f.migration.GetState() != f.last:
		f.migration.Gates = nil
		f.migration.State++
	}
	return &fairleadv1.GetMigrationResponse{Migration: proto.CloneOf(f.migration)}, nil
}

// moved runs the move of the demonstration against f.
func moved(t *testing.T, f *fakeOperator) (r *WhaleReport, said string, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &whaleShow{board: newBoard("A whale."), ledger: newLedger(whaleBlueprint().tenants), placement: f, migrations: f}
		r = &WhaleReport{}
		err = w.move(t.Context(), r)
		var all strings.Builder
		for _, e := range w.board.events {
			all.WriteString(e.text + "\n")
		}
		said = all.String()
	})
	return r, said, err
}

// TestMove: control's word is waited for, shown as it changes, and each change of the migration is told once.
func TestMove(t *testing.T) {
	f := &fakeOperator{looks: 40, blocked: 2, away: 1, last: fairleadv1.MigrationState_MIGRATION_STATE_CUT_OVER}
	r, said, err := moved(t, f)
	if err != nil || !r.Moved() || r.predicted != 40*time.Millisecond || r.took <= 0 || r.detected != "has 90 % of pool" || r.detectedAfter < 2*time.Second {
		t.Fatalf("%v: %+v", err, r)
	}
	for _, want := range []string{
		"placement (watch): the tenant whale has 80 % of pool\n", "placement: the tenant whale has 90 % of pool\n", "control begins to move it to whale-home by itself, ",
		"not yet: workers: 1 offer echo, of many\n", "migration: seeding", "migration: cut-over",
	} {
		if strings.Count(said, want) != 1 {
			t.Errorf("it does not say %q once:\n%s", want, said)
		}
	}
	if n := strings.Count(said, "not yet"); n != 1 || strings.Contains(said, "acme") {
		t.Errorf("a blocker is told %d times, or another whale is:\n%s", n, said)
	}
}

// TestMoveOfALaterFlood: a migration from before the flood is not control's answer to it.
func TestMoveOfALaterFlood(t *testing.T) {
	f := &fakeOperator{
		looks: 9, last: fairleadv1.MigrationState_MIGRATION_STATE_CUT_OVER,
		earlier: &fairleadv1.Migration{Id: "mig-0", Tenant: whaleName, State: fairleadv1.MigrationState_MIGRATION_STATE_ROLLED_BACK},
	}
	if r, _, err := moved(t, f); err != nil || !r.Moved() || r.migration.GetId() != "mig-1" {
		t.Errorf("%v: %+v", err, r)
	}
}

// TestMoveThatFails: a whale that nobody finds is an error, and a migration that is slow or taken back is the report's to tell.
func TestMoveThatFails(t *testing.T) {
	_, _, err := moved(t, &fakeOperator{looks: -1})
	if !errors.Is(err, errUndetected) || !strings.Contains(err.Error(), "the tenant whale has 80 % of pool") || !strings.Contains(err.Error(), detectMax.String()) {
		t.Errorf("nobody finds it: %v", err)
	}
	r, said, err := moved(t, &fakeOperator{looks: 1, last: fairleadv1.MigrationState_MIGRATION_STATE_SEEDING})
	if err != nil || r.Moved() || r.took < moveMax || !strings.Contains(said, errSlow.Error()) {
		t.Errorf("a slow migration: %v, %v\n%s", err, r.took, said)
	}
	r, _, err = moved(t, &fakeOperator{looks: 1, last: fairleadv1.MigrationState_MIGRATION_STATE_DECLARED, blocked: 1_000_000})
	if err != nil || r.Moved() || !strings.Contains(r.Stand(), "not yet: workers: ") {
		t.Errorf("closed gates: %v, %s", err, r.Stand())
	}
	r, _, err = moved(t, &fakeOperator{looks: 1, last: fairleadv1.MigrationState_MIGRATION_STATE_CATCHING_UP, away: 1000})
	if err == nil || r.Moved() {
		t.Errorf("nobody answers: %v", err)
	}
}

func TestFigures(t *testing.T) {
	done := func(id string, lost int32) *fairleadv1.Job {
		return &fairleadv1.Job{Id: id, State: fairleadv1.JobState_JOB_STATE_SUCCEEDED, LostAttempts: lost}
	}
	waiting := &fairleadv1.Job{Id: "a", State: fairleadv1.JobState_JOB_STATE_READY}
	for name, tc := range map[string]struct {
		entry  entry
		listed []*fairleadv1.Job
		want   WhaleFigures
	}{
		"done once":                 {entry{id: "a", ended: []string{"a"}}, []*fairleadv1.Job{done("a", 0)}, WhaleFigures{Accepted: 1, Completed: 1}},
		"not listed":                {entry{id: "a", ended: []string{"a"}}, nil, WhaleFigures{Accepted: 1, Lost: 1}},
		"listed, and not done":      {entry{id: "a"}, []*fairleadv1.Job{waiting}, WhaleFigures{Accepted: 1, Lost: 1}},
		"in both cells":             {entry{id: "a", ended: []string{"a"}}, []*fairleadv1.Job{done("a", 0), done("a", 0)}, WhaleFigures{Accepted: 1, Completed: 1, Twice: 1}},
		"two jobs of one":           {entry{id: "a", ended: []string{"a", "b"}}, []*fairleadv1.Job{done("a", 0), done("b", 0)}, WhaleFigures{Accepted: 1, Completed: 1, Twice: 1}},
		"run twice":                 {entry{id: "a", ended: []string{"a", "a"}}, []*fairleadv1.Job{done("a", 0)}, WhaleFigures{Accepted: 1, Completed: 1, Twice: 1}},
		"run again, and known to":   {entry{id: "a", ended: []string{"a", "a"}}, []*fairleadv1.Job{done("a", 1)}, WhaleFigures{Accepted: 1, Completed: 1, Again: 1}},
		"refused":                   {entry{err: io.EOF}, nil, WhaleFigures{Errors: 1}},
		"refused, and yet accepted": {entry{err: io.EOF, ended: []string{"x"}}, []*fairleadv1.Job{done("x", 0)}, WhaleFigures{Errors: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(whaleBlueprint().tenants)
			l.entries = []entry{tc.entry}
			r := &WhaleReport{}
			r.count(l, tc.listed)
			if r.Figures() != tc.want {
				t.Errorf("%+v, want %+v", r.Figures(), tc.want)
			}
		})
	}
}

// TestLedger: waits are those of the neighbours, by when their submissions began; one that has not begun yet waits still.
func TestLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger(whaleBlueprint().tenants)
		began := time.Now()
		task := func(n int, id string) *worker.Task {
			return &worker.Task{ID: id, Payload: client.JSON(order{N: n})}
		}
		one := l.begin(1, 1)
		l.answered(one, "a", nil)
		time.Sleep(30 * time.Millisecond)
		if _, err := l.handler()(t.Context(), task(one, "a")); err != nil {
			t.Fatal(err)
		}
		l.mark(markFlood)
		flood := l.begin(whaleTenant, 3)
		l.answered(flood, "b", nil)
		l.answered(flood+1, "c", nil)
		l.answered(flood+2, "", io.EOF)
		second := l.begin(2, 1)
		l.answered(second, "d", nil)
		time.Sleep(time.Second)
		if got := l.wait(began, l.marks[markFlood], time.Now()); got != 30*time.Millisecond {
			t.Errorf("before the flood they waited %v", got)
		}
		if got := l.wait(l.marks[markFlood], time.Now(), time.Now()); got != time.Second {
			t.Errorf("in the flood they wait %v", got)
		}
		if _, err := l.handler()(t.Context(), task(flood, "b")); err != nil {
			t.Fatal(err)
		}
		if _, err := l.handler()(t.Context(), task(999, "x")); err != nil {
			t.Fatal(err)
		}
		if n := l.missing(); n != 2 {
			t.Errorf("%d are missing", n)
		}
		l.fail(whaleTenant, io.ErrClosedPipe)
		got := (&applicant{ledger: l, place: whaleTenant, tenant: Tenant{Name: whaleName}}).tally(time.Now())
		if got.accepted != 2 || got.completed != 1 || got.errors != 2 || !errors.Is(l.first, io.EOF) || !strings.HasPrefix(got.note, "p95 wait ") {
			t.Errorf("%+v, %v", got, l.first)
		}
		if l.someJob(whaleTenant) == "" || l.someJob(3) != "" {
			t.Error("it looks at jobs that are not its own, or at none")
		}
		if _, err := l.handler()(t.Context(), &worker.Task{Payload: client.JSON("x")}); err == nil {
			t.Error("a payload of another kind is one")
		}
	})
}

func TestWhaleReport(t *testing.T) {
	f := &fakeOperator{looks: 1, last: fairleadv1.MigrationState_MIGRATION_STATE_CUT_OVER}
	r, _, err := moved(t, f)
	if err != nil {
		t.Fatal(err)
	}
	r.waits.before, r.waits.during, r.waits.after = 20*time.Millisecond, 90*time.Millisecond, 21*time.Millisecond
	r.figures = WhaleFigures{Accepted: 9, Completed: 9}
	text, err := r.JSON()
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Detected  string `json:"detected"`
		Migration struct {
			State  string `json:"state"`
			Reason string `json:"reason"`
			Actor  string `json:"actor"`
			Lost   *int   `json:"lost"`
			Twice  *int   `json:"twice"`
			Errors *int   `json:"client_errors"`
			Pause  struct {
				P50 float64 `json:"p50"`
				P99 float64 `json:"p99"`
			} `json:"pause_ms"`
		} `json:"migration"`
		Waits struct {
			Before float64 `json:"before"`
			During float64 `json:"during"`
			After  float64 `json:"after"`
		} `json:"neighbours_wait_ms"`
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	m := got.Migration
	if got.Detected != "placement: the tenant whale has 90 % of pool" || m.Reason != "whale" || m.Actor != "control" {
		t.Errorf("%s", text)
	}
	if m.State != "cut_over" || m.Lost == nil || *m.Lost != 0 || m.Twice == nil || m.Errors == nil || m.Pause.P50 != 30 || m.Pause.P99 != 50 {
		t.Errorf("%s", text)
	}
	if got.Waits.Before != 20 || got.Waits.During != 90 || got.Waits.After != 21 {
		t.Errorf("%s", text)
	}
	for _, width := range []int{0, 30, 100} {
		text := r.Text(width)
		for _, want := range []string{"Lost           0", "Client errors  0", "while it flooded and moved    90ms", "--keep"} {
			if !strings.Contains(text, want) {
				t.Errorf("the text lacks %q:\n%s", want, text)
			}
		}
	}
}

// TestWhaleBlueprint: the whale may be anywhere, so that it can be moved, every cell has an agent, and control moves whales by itself.
func TestWhaleBlueprint(t *testing.T) {
	b := whaleBlueprint()
	if !slices.Contains(b.control, "--whales-auto") || !slices.Contains(b.control, demandHour.String()) {
		t.Errorf("control runs with %v", b.control)
	}
	if b.tenants[whaleTenant] != (Tenant{Name: whaleName}) {
		t.Errorf("the first tenant is %+v", b.tenants[whaleTenant])
	}
	for _, c := range b.cells {
		l := layout{Agents: b.agents}
		found := false
		for _, a := range l.of(roleCell) {
			found = found || a.Cell == c.name
		}
		if !found {
			t.Errorf("the cell %s has no agent", c.name)
		}
	}
}
