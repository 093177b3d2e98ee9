package demo

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cmd/fairlead/failure"
)

func anyState(t *rapid.T, policy string) state {
	total := rapid.IntRange(0, 20_000)
	long := rapid.Int64Range(0, int64(20*time.Minute))
	s := state{
		policy: policy, bulk: rapid.SampledFrom([]string{"bulk", "a very long tenant's name", "日本語のテナント", ""}).Draw(t, "bulk"), rest: "others",
		phase:   phase(rapid.IntRange(0, int(phaseStopped)).Draw(t, "phase")),
		elapsed: time.Duration(long.Draw(t, "elapsed")), slots: rapid.IntRange(1, SlotsMax).Draw(t, "slots"),
		bulkTotal: total.Draw(t, "bulk total"), restTotal: 1 + total.Draw(t, "rest total"), used: rapid.Float64Range(0, 1.1).Draw(t, "used"),
		waitNow: time.Duration(long.Draw(t, "now")), waitWorst: time.Duration(long.Draw(t, "worst")),
	}
	s.busy = rapid.IntRange(-1, s.slots+1).Draw(t, "busy")
	s.bulkDone, s.restDone = rapid.IntRange(0, s.bulkTotal).Draw(t, "bulk done"), rapid.IntRange(0, s.restTotal).Draw(t, "rest done")
	return s
}

// TestFrameFits: whatever there is to show, it fits the terminal, and the number of lines depends on the terminal alone, so that
// nothing jumps.
func TestFrameFits(t *testing.T) {
	const about = "400 jobs of one tenant, 4 of each of 19 others; 100 ms each, 8 slots"
	rapid.Check(t, func(t *rapid.T) {
		screen := size{width: rapid.IntRange(1, 200).Draw(t, "width"), height: rapid.IntRange(1, 50).Draw(t, "height")}
		draw := func() string {
			states := []state{anyState(t, policyFIFO), anyState(t, policyFairlead)}
			return frame(about, states, "Ctrl-C stops.", time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "expected")), screen)
		}
		a, b := draw(), draw()
		if strings.Count(a, "\n") != strings.Count(b, "\n") {
			t.Fatalf("two frames for %+v have different heights:\n%s\n%s", screen, a, b)
		}
		if got := strings.Count(a, "\n") + 1; got > max(1, screen.height-1) {
			t.Fatalf("%d lines do not fit into %+v", got, screen)
		}
		for line := range strings.Lines(a) {
			if got := lipgloss.Width(strings.TrimRight(line, "\n")); got > screen.width {
				t.Fatalf("%q has %d columns, of %d", line, got, screen.width)
			}
		}
	})
}

// TestCtrlCInterrupts: the terminal is in raw mode then, so that there is no signal.
func TestCtrlCInterrupts(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	w := plan(DefaultConfig())
	var m tea.Model = model{board: newBoard("title", w, 8), interrupt: cancel}
	m, _ = m.Update(tea.WindowSizeMsg{Width: 80, Height: 24})
	m, _ = m.Update(tea.KeyPressMsg{Code: 'x', Text: "x"})
	if ctx.Err() != nil {
		t.Fatal("any key interrupts")
	}
	m, _ = m.Update(tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl})
	if !errors.Is(context.Cause(ctx), failure.ErrInterrupted) {
		t.Errorf("the cause is %v", context.Cause(ctx))
	}
	if got := m.View().Content; !strings.Contains(got, "Stopping") {
		t.Errorf("the view does not say that it stops:\n%s", got)
	}
}

// TestBoard follows jobs through the board: the figures of the view are counts of what was told, in whatever order it arrives.
func TestBoard(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Config{BulkJobs: 5, QuietTenants: 3, Service: time.Second, Slots: 2, Seed: 1}
		w := plan(c)
		b := newBoard("title", w, c.Slots)
		zero := time.UnixMicro(1_000_000)
		b.advance(policyFIFO, phaseRunning, zero)
		started, ended := map[int]bool{}, map[int]bool{}
		var worst time.Duration
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			n := rapid.IntRange(-1, len(w.jobs)).Draw(t, "job")
			at := zero.Add(time.Duration(rapid.Int64Range(0, 1000).Draw(t, "at")) * time.Millisecond)
			switch {
			case n < 0 || n == len(w.jobs):
				b.sighted(policyFIFO, sighting{N: n, StartUS: 1}) // not one of ours
			case !started[n]:
				b.submitted(policyFIFO, w.jobs[n:n+1], zero)
				b.sighted(policyFIFO, sighting{N: n, StartUS: at.UnixMicro()})
				started[n] = true
				if w.jobs[n].tenant != bulkTenant {
					worst = max(worst, at.Sub(zero))
				}
			case !ended[n]:
				b.sighted(policyFIFO, sighting{N: n, StartUS: at.UnixMicro(), EndUS: at.UnixMicro()})
				ended[n] = true
			}
		}
		s := b.states(zero)[0]
		if s.busy != len(started)-len(ended) || s.bulkDone+s.restDone != len(ended) || s.waitWorst != worst || s.waitNow != 0 {
			t.Fatalf("%+v after %d starts, %d ends and a worst wait of %v", s, len(started), len(ended), worst)
		}
	})
}
