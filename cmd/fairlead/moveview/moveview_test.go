package moveview_test

import (
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cmd/fairlead/moveview"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// anyMigration draws a migration as a server might send it, a newer or a broken one included.
func anyMigration(t *rapid.T) *fairleadv1.Migration {
	text := rapid.StringN(0, 12, -1)
	m := &fairleadv1.Migration{
		Tenant: text.Draw(t, "tenant"), Source: text.Draw(t, "source"), Target: text.Draw(t, "target"), Held: text.Draw(t, "held"), NextStep: text.Draw(t, "next"),
		State: fairleadv1.MigrationState(rapid.Int32Range(0, 16).Draw(t, "state")), Attempt: rapid.Uint32().Draw(t, "attempt"),
	}
	for range rapid.IntRange(0, 2).Draw(t, "lanes") {
		l := &fairleadv1.MigrationLane{
			Class: fairleadv1.Class(rapid.Int32Range(0, 3).Draw(t, "class")), Phase: fairleadv1.LanePhase(rapid.Int32Range(0, 9).Draw(t, "phase")), Owner: text.Draw(t, "owner"),
		}
		if rapid.Bool().Draw(t, "pause") {
			l.Pause = durationpb.New(time.Duration(rapid.Int64Range(0, 1e10).Draw(t, "d")))
		}
		m.Lanes = append(m.Lanes, l)
	}
	if rapid.Bool().Draw(t, "progress") {
		n := rapid.Int64Range(-10, 1e12)
		m.Progress = &fairleadv1.MigrationProgress{
			JobsTotal: n.Draw(t, "total"), JobsCopied: n.Draw(t, "copied"), BytesCopied: n.Draw(t, "bytes"), LagRecords: n.Draw(t, "lag"), BytesPerSecond: n.Draw(t, "rate"),
			LagTime: durationpb.New(time.Second), TimeLeft: durationpb.New(time.Minute),
		}
	}
	if rapid.Bool().Draw(t, "times") {
		m.EnterTime = timestamppb.New(now.Add(-time.Hour))
		m.Options = &fairleadv1.MigrationOptions{RollbackWindow: durationpb.New(24 * time.Hour)}
	}
	return m
}

// TestLinesAreSafe: whatever a server sends, nothing moves the cursor, and every bar is as wide as the others and between nothing and all.
func TestLinesAreSafe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := anyMigration(t)
		steps := moveview.Steps(now, m)
		if len(steps) == 0 {
			t.Fatal("it has no steps")
		}
		for _, s := range steps {
			if s.Share < 0 || s.Share > 1 {
				t.Errorf("%s is done to %v", s.Name, s.Share)
			}
		}
		if done := moveview.Done(steps); done < 0 || done > 1 {
			t.Errorf("it is done to %v", done)
		}
		for _, line := range append(moveview.Lines(now, m), moveview.Line(m)) {
			if strings.ContainsFunc(line, unicode.IsControl) || !utf8.ValidString(line) {
				t.Errorf("a line has a control character: %q", line)
			}
		}
	})
	width := utf8.RuneCountInString(moveview.Bar(0))
	for _, share := range []float64{0.001, 0.5, 0.999, 1} {
		if got := utf8.RuneCountInString(moveview.Bar(share)); got != width {
			t.Errorf("the bar of %v has %d columns, not %d", share, got, width)
		}
	}
}

// TestProgressRises: along the way of a migration that goes well, and of one that is taken back, what is done never becomes less, and ends as all.
func TestProgressRises(t *testing.T) {
	phases := func(there bool) []fairleadv1.LanePhase {
		if there {
			return []fairleadv1.LanePhase{
				fairleadv1.LanePhase_LANE_PHASE_AT_SOURCE, fairleadv1.LanePhase_LANE_PHASE_FENCING, fairleadv1.LanePhase_LANE_PHASE_COMMITTED,
				fairleadv1.LanePhase_LANE_PHASE_OBSERVING, fairleadv1.LanePhase_LANE_PHASE_MOVED,
			}
		}
		return []fairleadv1.LanePhase{
			fairleadv1.LanePhase_LANE_PHASE_MOVED, fairleadv1.LanePhase_LANE_PHASE_REVERSE_FENCING, fairleadv1.LanePhase_LANE_PHASE_REVERSE_COMMITTED,
			fairleadv1.LanePhase_LANE_PHASE_RETURNED,
		}
	}
	for name, tc := range map[string]struct {
		there bool
		way   []fairleadv1.MigrationState
	}{
		"there": {true, []fairleadv1.MigrationState{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
		"back": {false, []fairleadv1.MigrationState{
			fairleadv1.MigrationState_MIGRATION_STATE_REVERSING, fairleadv1.MigrationState_MIGRATION_STATE_ROLLED_BACK,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			m := &fairleadv1.Migration{Source: "a", Target: "b", Progress: &fairleadv1.MigrationProgress{JobsTotal: 100, LagRecords: 10}}
			p := phases(tc.there)
			for range 2 {
				m.Lanes = append(m.Lanes, &fairleadv1.MigrationLane{Class: fairleadv1.Class_CLASS_BATCH, Phase: p[0]})
			}
			last := -1.0
			look := func() {
				t.Helper()
				done := moveview.Done(moveview.Steps(now, m))
				if done < last {
					t.Errorf("%v with %v: it was done to %v, and is to %v", m.GetState(), m.GetLanes(), last, done)
				}
				last = done
			}
			for _, m.State = range tc.way {
				for m.Progress.JobsCopied = 0; m.GetState() == fairleadv1.MigrationState_MIGRATION_STATE_SEEDING && m.GetProgress().GetJobsCopied() < 100; m.Progress.JobsCopied += 25 {
					look()
				}
				look()
				if m.GetState() == fairleadv1.MigrationState_MIGRATION_STATE_RAMPING || m.GetState() == fairleadv1.MigrationState_MIGRATION_STATE_REVERSING {
					for _, l := range m.GetLanes() {
						for _, l.Phase = range p {
							look()
						}
					}
				}
			}
			if last != 1 {
				t.Errorf("it ends done to %v", last)
			}
		})
	}
}

// TestEnds: a migration at rest is served by one of its cells.
func TestEnds(t *testing.T) {
	for n := range fairleadv1.MigrationState_name {
		m := &fairleadv1.Migration{State: fairleadv1.MigrationState(n)}
		text := moveview.State(m.GetState())
		ended := text == "released" || text == "aborted" || text == "rolled-back"
		served := text == "cut-over" || text == "draining" || text == "released"
		if moveview.Ended(m) != ended || moveview.Served(m) != served {
			t.Errorf("%s: ended %v, served %v", text, moveview.Ended(m), moveview.Served(m))
		}
	}
}

func TestBlocked(t *testing.T) {
	gate := func(name string, v fairleadv1.GateVerdict, evidence string) *fairleadv1.Gate {
		return &fairleadv1.Gate{Name: name, Verdict: v, Evidence: evidence}
	}
	pass, warn, fail := fairleadv1.GateVerdict_GATE_VERDICT_PASS, fairleadv1.GateVerdict_GATE_VERDICT_WARN, fairleadv1.GateVerdict_GATE_VERDICT_FAIL
	m := &fairleadv1.Migration{Gates: []*fairleadv1.Gate{gate("open", pass, "it is"), gate("source", warn, "it is slow")}}
	if text, names := moveview.Blocked(m); text != "" || names != "" {
		t.Errorf("%q, %q", text, names)
	}
	m.Gates = append(m.Gates, gate("capacity", fail, "87 %\x1b[2J"), gate("workers", fail, "none"))
	if text, names := moveview.Blocked(m); !strings.HasPrefix(text, "capacity: 87 %") || !strings.HasSuffix(text, "; workers: none") || names != "capacity workers" ||
		strings.ContainsRune(text, '\x1b') {
		t.Errorf("%q, %q", text, names)
	}
}
