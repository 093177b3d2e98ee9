package migrate

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
)

// reach has ideal cells take a migration to the first moment at which is says that it is there.
func reach(t *testing.T, options Options, is func(*ideal) bool) *ideal {
	t.Helper()
	r := declared(t)
	r.Options = options
	w := newIdeal(PlanInput{Record: r, Config: Config{}.WithDefaults(), Now: cell.Instant(time.Hour)})
	for range planRounds {
		if is(w) {
			return w
		}
		w.round(&Plan{})
	}
	t.Fatalf("it stays %s", w.r.State)
	return nil
}

func inState(s State) func(*ideal) bool { return func(w *ideal) bool { return w.r.State == s } }

func inPhase(c cell.Class, p Phase) func(*ideal) bool {
	return func(w *ideal) bool { return w.r.Lanes[c.Index()].Phase == p }
}

func (w *ideal) next() []Effect {
	w.o.Source.At, w.o.Target.At = w.now, w.now
	return Next(w.r, w.o, w.now, w.cfg)
}

// proposed returns the kind that is proposed, and why; 0 for none.
func proposed(effects []Effect) (Kind, string) {
	for _, e := range effects {
		if p, ok := e.(Propose); ok {
			return p.Event.Kind, p.Event.Why
		}
	}
	return 0, ""
}

func waits(effects []Effect) string {
	for _, e := range effects {
		if w, ok := e.(Wait); ok {
			return w.For
		}
	}
	return ""
}

func has(effects []Effect, want Effect) bool { return slices.Contains(effects, want) }

// Effects are compared by ==, but for Propose: an event has a slice.
func TestNextProposes(t *testing.T) {
	batch := cell.ClassBatch
	i := batch.Index()
	ready := func(w *ideal) bool { return w.r.State == Ramping && w.r.Lanes[i].Phase == AtSource }
	for name, c := range map[string]struct {
		at   func(*ideal) bool
		edit func(*ideal)
		kind Kind
		why  string // a part of the event's, or of what is waited for where nothing is proposed
	}{
		"a fence when all gates are passed": {ready, func(*ideal) {}, EventFence, ""},
		"no fence with a lag":               {ready, func(w *ideal) { w.o.Source.Lanes[i].LagRecords = 1e6 }, EventGates, ""},
		"no fence with an unknown lag":      {ready, func(w *ideal) { w.o.Source.Lanes[i].LagKnown = false }, EventGates, ""},
		"no fence without workers":          {ready, func(w *ideal) { w.o.Source.Needed = []cell.Operation{"x"} }, EventGates, ""},
		"no fence with slow logs":           {ready, func(w *ideal) { w.o.Target.CommitP99 = time.Minute }, EventGates, ""},
		"no fence against control's gates":  {ready, func(w *ideal) { w.o.Gates = []Gate{{"capacity", Fail, "full"}} }, EventGates, ""},
		"no fence with an old policy":       {ready, func(w *ideal) { w.o.Source.PolicyEpoch = 9 }, EventGates, ""},
		"no fence before a digest is there": {ready, func(w *ideal) { w.o.Target.Lanes[i].DigestDone = 999 }, EventGates, ""},
		"a hold after too many fences":      {ready, func(w *ideal) { w.r.Lanes[i].Fences = 3 }, EventHold, HeldFences},
		"a restart when changes are lost":   {ready, func(w *ideal) { w.o.Source.Lanes[i].Broken = true }, EventRestart, HeldBroken},
		"a hold when that was too often": {ready, func(w *ideal) {
			w.o.Source.Lanes[i].Broken, w.r.Retries = true, AttemptsMax
		}, EventHold, HeldAttempts},
		"a hold when a cell is away": {inState(Seeding), func(w *ideal) {
			w.o.Target.Reachable, w.o.Target.Since = false, w.now.Add(-time.Minute)
		}, EventHold, HeldUnreachable},
		"an end of that hold":     {inState(Seeding), func(w *ideal) { w.r.Held = HeldUnreachable + "b" }, EventResume, ""},
		"no end of an operator's": {inState(Seeding), func(w *ideal) { w.r.Held = "operator" }, 0, "operator"},
		"a hold when it never catches up": {inState(CatchingUp), func(w *ideal) {
			w.o.Source.Lanes[i].LagTime, w.now = time.Minute, w.now.Add(time.Hour)
		}, EventHold, HeldLag},
		"a restart when digests differ": {inState(Shadowing), func(w *ideal) {
			w.o.Source.Lanes[i].DigestDone, w.o.Target.Lanes[i].DigestDone = Whole, Whole
			w.o.Target.Lanes[i].Digest[0]++
		}, EventRestart, HeldDigest},
		"an un-fence when it is held":    {inPhase(batch, Fencing), func(w *ideal) { w.r.Held = "operator" }, EventUnfence, "held"},
		"an un-fence when it takes long": {inPhase(batch, Fencing), func(w *ideal) { w.now = w.now.Add(3 * time.Second) }, EventUnfence, "2s"},
		"an activation, although held":   {inPhase(batch, Committed), opened("operator"), EventActivate, ""},
		"no moved class without a canary": {inPhase(batch, Observing), func(w *ideal) {
			w.o.Target.Lanes[i].Granted, w.r.GatesAt = 1, w.now
			w.do(SetMode{Cell: w.r.Source, Class: batch, Mode: cell.ModeStandby, Epoch: w.r.Lanes[i].Epoch})
		}, 0, "granted 100 times"},
		"a restart when digests of a copy differ": {inState(Shadowing), func(w *ideal) {
			w.o.Target.Lanes[i].Compared = Comparison{Known: true, Change: 7, From: [32]byte{1}}
			w.o.Target.Lanes[i].Cursor.Change++ // there is no common change
		}, EventRestart, HeldDigest},
		"a hold at a loss": {inPhase(batch, Observing), func(w *ideal) {
			w.o.Source.Lanes[i].Compared = Comparison{Known: true, Change: 7, From: [32]byte{1}}
			w.o.Source.Lanes[i].Cursor.Change++
		}, EventHold, HeldDigest},
		"a hold at a loss once cut over": {inState(CutOver), func(w *ideal) {
			w.o.Source.Lanes[i].Compared = Comparison{Known: true, Change: 7, To: [32]byte{1}}
			w.o.Source.Lanes[i].Cursor.Change++
		}, EventHold, HeldDigest},
		"no hold while it is the same": {inState(CutOver), func(w *ideal) {
			w.o.Source.Lanes[i].Compared = Comparison{Known: true, Change: 7, From: [32]byte{1}, To: [32]byte{1}}
			w.o.Source.Lanes[i].Cursor.Change++
		}, 0, "rollback window"},
		"a note of a breach":               {inPhase(batch, Observing), idle(false), EventGates, ""},
		"a reverse when it lasts":          {inPhase(batch, Observing), idle(true), EventReverse, GateGrants},
		"the next when the window is over": {inState(CutOver), func(w *ideal) { w.now = w.now.Add(25 * time.Hour) }, EventComplete, "window"},
		"nothing before":                   {inState(CutOver), func(*ideal) {}, 0, "rollback window"},
		"no end before all is wiped":       {inState(Draining), func(w *ideal) { w.o.Source.Lanes[i].Records = 9 }, 0, "delay"},
	} {
		t.Run(name, func(t *testing.T) {
			w := reach(t, DefaultOptions(), c.at)
			w.now = w.now.Add(time.Millisecond)
			w.r.GatesAt = min(w.r.GatesAt, w.now.Add(-time.Minute))
			c.edit(w)
			kind, why := proposed(w.next())
			if kind == 0 {
				why = waits(w.next())
			}
			if kind != c.kind || !strings.Contains(why, c.why) {
				t.Errorf("%s (%s), not %s (%s): %v", kind, why, c.kind, c.why, w.next())
			}
			if kind == 0 {
				return
			}
			for _, e := range w.next() { // what is proposed is let through
				if p, ok := e.(Propose); ok {
					if _, err := w.r.Apply(p.Event); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
}

// opened holds a migration whose target has opened its lane.
func opened(held string) func(*ideal) {
	return func(w *ideal) {
		l := &w.o.Target.Lanes[cell.ClassBatch.Index()]
		l.Mode, l.Epoch = cell.ModeOpen, w.r.Lanes[cell.ClassBatch.Index()].Epoch
		w.r.Held = held
	}
}

// idle has the target grant nothing for long, and the record know since when.
func idle(known bool) func(*ideal) {
	return func(w *ideal) {
		w.now = w.now.Add(time.Minute)
		l := &w.o.Target.Lanes[cell.ClassBatch.Index()]
		l.Granted, l.Ready, w.o.Target.Slots = 0, 5, 10
		w.r.Gates = nil
		if known {
			w.r.Gates = []Gate{{GateGrants, Fail, "none"}}
			w.r.GatesAt = w.now.Add(-11 * time.Second)
		}
	}
}

// TestNextClears: what is left at the target of earlier attempts, or of an earlier home there, is cleared away by an attempt of its own, and then it is staged above
// every epoch that was seen.
func TestNextClears(t *testing.T) {
	for name, left := range map[string]LaneSeen{
		"staged by another":    {Known: true, Mode: cell.ModeStaged, Epoch: 7, Move: cell.Move{Migration: "old", Attempt: 3}, Records: 5},
		"a full tombstone":     {Known: true, Mode: cell.ModeTombstone, Epoch: 7, Records: 5},
		"a charged tombstone":  {Known: true, Mode: cell.ModeTombstone, Epoch: 7, Charged: 5},
		"open and charged":     {Known: true, Mode: cell.ModeOpen, Epoch: 7, Charged: 5},
		"open and never used":  {Known: true, Mode: cell.ModeOpen, Epoch: 7},
		"fenced and forgotten": {Known: true, Mode: cell.ModeFenced, Epoch: 7, Move: cell.Move{Migration: "old", Attempt: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			w := reach(t, DefaultOptions(), inState(Admitted))
			w.o.Target.Lanes[1] = left
			for range 100 {
				if w.r.State != Seeding {
					w.round(&Plan{})
				}
			}
			if w.r.State != Seeding {
				t.Fatalf("it stays %s: %v", w.r.State, w.next())
			}
			l := w.o.Target.Lanes[1]
			if l.Epoch <= left.Epoch || l.Move != w.r.Move() || l.Records != 0 || l.Charged != 0 {
				t.Errorf("%+v", l)
			}
			if clears := left.leftover(); clears != (w.r.Attempt == 3) {
				t.Errorf("attempt %d", w.r.Attempt)
			}
		})
	}
}

// TestNextByHand: a class is fenced only when an operator says so.
func TestNextByHand(t *testing.T) {
	o := DefaultOptions()
	o.Manual = true
	w := reach(t, o, inState(Ready))
	w.now = w.now.Add(time.Hour)
	w.o.Source.Lanes[0].DigestDone, w.o.Source.Lanes[1].DigestDone = Whole, Whole
	if kind, _ := proposed(w.next()); kind != 0 || !strings.Contains(waits(w.next()), "operator") {
		t.Errorf("%v", w.next())
	}
}

// TestNextKeepsHome: a switch that was given up is undone at the source, also where the fence has never come: it could come later.
func TestNextKeepsHome(t *testing.T) {
	batch := cell.ClassBatch
	for _, came := range []bool{true, false} {
		w := reach(t, DefaultOptions(), inPhase(batch, Fencing))
		fence := w.r.Lanes[batch.Index()].Epoch
		if came {
			w.do(SetMode{Cell: w.r.Source, Class: batch, Mode: cell.ModeFenced, Epoch: fence})
		}
		var err error
		if w.r, err = w.r.Apply(Event{Kind: EventAbort, Attempt: 1, Time: w.now}); err != nil {
			t.Fatal(err)
		}
		if want := (SetMode{Cell: w.r.Source, Class: batch, Mode: cell.ModeOpen, Epoch: fence + 1}); !has(w.next(), want) {
			t.Errorf("%v does not have %v", w.next(), want)
		}
		for range 50 {
			w.round(&Plan{})
		}
		if w.r.State != Aborted {
			t.Errorf("it is %s: %v", w.r.State, w.next())
		}
	}
}

// TestNextUntracks: a lane that another migration tracks, by a call that came very late, is taken over and let go of.
func TestNextUntracks(t *testing.T) {
	w := reach(t, DefaultOptions(), inState(Ready))
	var err error
	if w.r, err = w.r.Apply(Event{Kind: EventAbort, Attempt: 1, Time: w.now}); err != nil {
		t.Fatal(err)
	}
	off := Track{Cell: w.r.Source, Class: cell.ClassBatch, Off: true}
	on := Track{Cell: w.r.Source, Class: cell.ClassBatch}
	if e := w.next(); !has(e, off) || has(e, on) {
		t.Errorf("at first: %v", e)
	}
	w.now = w.now.Add(time.Minute)
	if e := w.next(); !has(e, off) || !has(e, on) {
		t.Errorf("later: %v", e)
	}
}

// TestNextReverses: the class that came last goes back first, and what the target gives back with it is gone from there before the next is fenced.
func TestNextReverses(t *testing.T) {
	first, second := cell.ClassInteractive, cell.ClassBatch
	w := reach(t, DefaultOptions(), inState(CutOver))
	var err error
	if w.r, err = w.r.Apply(Event{Kind: EventReverse, Attempt: 1, Time: w.now}); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		gone := w.r.Lanes[first.Index()].Phase == Returned && w.o.Target.Lanes[first.Index()].Mode == cell.ModeStandby
		if fenced := w.r.Lanes[second.Index()].Phase == ReverseFencing; fenced && !gone {
			t.Fatalf("%s is fenced while %s is %s at the target", second, first, w.o.Target.Lanes[first.Index()].Mode)
		}
		w.round(&Plan{})
	}
	if w.r.State != RolledBack {
		t.Fatalf("it is %s: %v", w.r.State, w.next())
	}
	for i := range w.r.Lanes {
		if a, b := w.o.Source.Lanes[i], w.o.Target.Lanes[i]; a.Mode != cell.ModeOpen || b.Mode != cell.ModeTombstone || b.Records != 0 {
			t.Errorf("%s at the source, %s with %d records at the target", a.Mode, b.Mode, b.Records)
		}
	}
}

// TestNextAfterRestore: control's epochs are far ahead of the cells' after it was restored from a backup. Wherever that finds a migration, the cells follow and it
// comes to its end.
func TestNextAfterRestore(t *testing.T) {
	const ahead = 1000
	batch := cell.ClassBatch
	for name, is := range map[string]func(*ideal) bool{
		"seeding": inState(Seeding), "ready": inState(Ready), "cut over": inState(CutOver), "committed": inPhase(batch, Committed),
		"observing": inPhase(batch, Observing), "committed and open": func(w *ideal) bool {
			return w.r.Lanes[batch.Index()].Phase == Committed && w.o.Target.Lanes[batch.Index()].Mode == cell.ModeOpen
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := reach(t, DefaultOptions(), is)
			for i := range w.r.Lanes {
				w.r.Lanes[i].Epoch += ahead
			}
			for range 500 {
				w.round(&Plan{})
			}
			for i := range w.r.Lanes {
				if l := w.o.Target.Lanes[i]; w.r.State != Released || l.Mode != cell.ModeOpen || l.Epoch != w.r.Lanes[i].Epoch {
					t.Fatalf("%s: %s at %d, not at %d: %v", w.r.State, l.Mode, l.Epoch, w.r.Lanes[i].Epoch, w.next())
				}
			}
		})
	}
}

// TestNextNeverSilent: in every state there is something to do or to wait for, with nothing seen, too.
func TestNextNeverSilent(t *testing.T) {
	for s := Declared; s <= RolledBack; s++ {
		for _, p := range phasesOf(s) {
			for _, q := range phasesOf(s) {
				r := at(t, s, p, q)
				effects := Next(r, Observed{}, 5000, Config{})
				if len(effects) == 0 {
					t.Errorf("nothing in %s, %s, %s", s, p, q)
				}
				n := 0
				for _, e := range effects {
					if _, ok := e.(Propose); ok {
						n++
					}
				}
				if next, undo := Explain(&r); n > 1 || next == "" || undo == "" {
					t.Errorf("%s: %d proposals, %q, %q", s, n, next, undo)
				}
			}
		}
	}
}

func TestPlan(t *testing.T) {
	in := PlanInput{Record: declared(t), Now: cell.Instant(time.Hour)}
	for _, s := range []*CellSeen{&in.Observed.Source, &in.Observed.Target} {
		s.Reachable, s.At, s.CommitP50, s.CommitP99 = true, in.Now, 2*time.Millisecond, 9*time.Millisecond
	}
	in.Observed.Gates = []Gate{{"capacity", Pass, "40 % of pool"}}
	for i := range in.Observed.Source.Lanes {
		in.Observed.Source.Lanes[i] = LaneSeen{Known: true, Epoch: 3, Jobs: 100_000, Records: 120_000, Bytes: 64 << 20}
	}
	var b strings.Builder
	show := func(name string) {
		p := MakePlan(in)
		fmt.Fprintf(&b, "%s: %d jobs, %d bytes, copied in %s, a pause of %s\n", name, p.Jobs, p.Bytes, p.CopyTime, p.Pause)
		for _, g := range p.Gates {
			fmt.Fprintf(&b, "    %s %s: %s\n", g.Verdict, g.Name, g.Evidence)
		}
		for _, s := range p.Blockers {
			fmt.Fprintf(&b, "    blocked: %s\n", s)
		}
		for _, s := range p.Steps {
			class := ""
			if s.Class != 0 {
				class = " " + s.Class.String()
			}
			fmt.Fprintf(&b, "    %s%s, %s: %s\n        then %s\n", s.State, class, s.Time, s.Text, s.Undo)
		}
	}
	show("by itself")
	in.Record.Options.Manual = true
	in.Observed.Source.Needed = []cell.Operation{"invoice.export"}
	show("by hand, blocked")
	golden(t, "plan.txt", b.String())
}
