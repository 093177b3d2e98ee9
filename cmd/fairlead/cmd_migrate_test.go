package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// migrating starts a fake server and the migration of acme in it.
func migrating(t *testing.T) *fakeServer {
	t.Helper()
	inEmptyDir(t)
	f := newFakeServer()
	t.Cleanup(f.Close)
	t.Setenv("FAIRLEAD_ADDR", f.URL)
	t.Setenv("FAIRLEAD_TOKEN", "flk_admin")
	a, _, talk := fakeApp("")
	if code := a.execute(t.Context(), []string{"migrate", "start", "acme", "--to", "cell-b", "--rollback-window", "24h"}); code != failure.OK {
		t.Fatalf("exit code %d: %s", code, talk)
	}
	return f
}

// TestMigrationIsDrawn: on a terminal each step has a bar, which is drawn over the last; a control without a leader does not end it.
func TestMigrationIsDrawn(t *testing.T) {
	f := migrating(t)
	f.mu.Lock()
	f.moves.all[0].State = fairleadv1.MigrationState_MIGRATION_STATE_SEEDING
	f.mu.Unlock()
	a, out, talk := fakeApp("")
	a.talks = true
	find := []string{"migrate", "status", "acme", "--watch", "--interval", "10ms"}
	if code := a.execute(t.Context(), find); code != failure.OK || !strings.Contains(out.String(), "cut-over") {
		t.Fatalf("exit code %d: %s%s", code, out, talk)
	}
	for _, want := range []string{
		"acme: cell-a -> cell-b, seeding\n", "  copy               ████████████░░░░░░░░░░░░  50 %  10000 of 20000 jobs, 17MiB, 8MiB/s, 4.0s left\n", "\x1b[9A\r\x1b[J",
		"  switch batch       ██████░░░░░░░░░░░░░░░░░░  25 %  stands still\n", "  switch interactive ████████████████████████ 100 %  served by cell-b, stood still for 38ms\n",
		"  let go             ░░░░░░░░░░░░░░░░░░░░░░░░   0 %  can be reversed", "Next: fairlead migrate complete --tenant acme --dry-run, or fairlead migrate reverse --tenant acme",
	} {
		if !strings.Contains(talk.String(), want) {
			t.Errorf("it lacks %q:\n%s", want, talk)
		}
	}
}

// TestEvacuationIsDrawn: on a terminal each tenant on its way has a bar below the cell.
func TestEvacuationIsDrawn(t *testing.T) {
	migrating(t)
	a, out, talk := fakeApp("")
	a.talks = true
	code := a.execute(t.Context(), []string{"cell", "evacuate", "cell-a", "--yes", "--watch", "--interval", "10ms"})
	if code != failure.OK || !strings.Contains(out.String(), "by a migration") {
		t.Fatalf("exit code %d: %s%s", code, out, talk)
	}
	for _, want := range []string{
		"\r\x1b[Jcell-a: cordoned, 3 tenants are left; on their way: acme declared\n", "  acme               ░░░░░░░░░░░░░░░░░░░░░░░░   3 %  to cell-b, declared\n", "\x1b[2A",
	} {
		if !strings.Contains(talk.String(), want) {
			t.Errorf("it lacks %q:\n%s", want, talk)
		}
	}
}

// TestFollowingOutlastsControl: while nobody leads control it is asked again, for a while.
func TestFollowingOutlastsControl(t *testing.T) {
	f := migrating(t)
	for name, tc := range map[string]struct {
		step time.Duration // of the clock, at each look at it
		want failure.Code
	}{"an election": {time.Millisecond, failure.OK}, "an outage": {followPatience, failure.Unreachable}} {
		t.Run(name, func(t *testing.T) {
			f.mu.Lock()
			f.moves.all[0].State, f.moves.ill = fairleadv1.MigrationState_MIGRATION_STATE_CATCHING_UP, 0
			f.mu.Unlock()
			a, _, talk := fakeApp("")
			now, began := fakeTime, false
			a.now = func() time.Time {
				now = now.Add(tc.step)
				f.mu.Lock()
				defer f.mu.Unlock()
				if !began { // the migration has been found
					began, f.moves.ill = true, 2
				}
				return now
			}
			code := a.execute(t.Context(), []string{"migrate", "status", "acme", "--watch", "--interval", "10ms"})
			if code != tc.want || !strings.Contains(talk.String(), "nobody leads control") {
				t.Errorf("exit code %d: %s", code, talk)
			}
		})
	}
}

// TestReverseAsks: at a terminal what it would do is said before it is asked for, and no is no.
func TestReverseAsks(t *testing.T) {
	f := migrating(t)
	for answer, want := range map[string]failure.Code{"n\n": failure.Refused, "y\n": failure.OK} {
		f.mu.Lock()
		m := f.moves.all[0]
		m.State = fairleadv1.MigrationState_MIGRATION_STATE_CUT_OVER
		for _, l := range m.GetLanes() {
			l.Phase = fairleadv1.LanePhase_LANE_PHASE_MOVED
		}
		f.mu.Unlock()
		a, _, talk := fakeApp(answer)
		a.talks = true
		code := a.execute(t.Context(), []string{"migrate", "reverse", "acme"})
		if code != want || !strings.HasPrefix(talk.String(), "both classes go back; nothing is lost\nMove acme back? [y/N] ") {
			t.Errorf("%q ends with %d: %s", answer, code, talk)
		}
		f.mu.Lock()
		if reversing := f.moves.all[0].GetState() == fairleadv1.MigrationState_MIGRATION_STATE_REVERSING; reversing != (want == failure.OK) {
			t.Errorf("%q: reversing %v", answer, reversing)
		}
		f.mu.Unlock()
	}
}

// TestAnInterruptLeavesTheMigration: it ends the wait alone, and says how to wait on.
func TestAnInterruptLeavesTheMigration(t *testing.T) {
	f := migrating(t)
	f.mu.Lock()
	f.moves.all[0].Held = "lag"
	looks := f.calls["GetMigration"]
	f.mu.Unlock()
	ctx, cancel := context.WithCancelCause(t.Context())
	a, _, talk := fakeApp("")
	code := make(chan failure.Code, 1)
	go func() {
		code <- a.execute(ctx, []string{"migrate", "start", "acme", "--to", "cell-b", "--wait", "--interval", "10ms"})
	}()
	bound, stop := context.WithTimeout(t.Context(), awaitMax)
	defer stop()
	if err := f.awaitCalls(bound, "GetMigration", looks+2); err != nil {
		t.Fatal(err)
	}
	cancel(failure.ErrInterrupted)
	if got := <-code; got != failure.Interrupted || !strings.Contains(talk.String(), "Wait on with: fairlead migrate status --watch --tenant acme") {
		t.Errorf("exit code %d: %s", got, talk)
	}
	if !strings.Contains(talk.String(), "held: lag") {
		t.Errorf("it does not say why it is held: %s", talk)
	}
}
