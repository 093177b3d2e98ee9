package migrate

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
)

// usual is what a lane does in both windows when nothing is the matter: of 1,000 attempts none ends badly, 1,000 jobs start within a second.
func usual() Health {
	w := HealthWindow{Ended: 1000, Started: 1000, Waits: 1000, WaitP99: time.Second}
	return Health{Window: 10 * time.Second, Known: HealthWindows, Windows: [HealthWindows]HealthWindow{w, w}}
}

// each changes both windows.
func (h *Health) each(change func(*HealthWindow)) {
	for i := range h.Windows {
		change(&h.Windows[i])
	}
}

// latest changes the latest window alone.
func (h *Health) latest(change func(*HealthWindow)) { change(&h.Windows[0]) }

func badly(n int64) func(*HealthWindow) { return func(w *HealthWindow) { w.EndedBadly = n } }

func ended(n int64) func(*HealthWindow) { return func(w *HealthWindow) { w.Ended = n } }

func starting(n int64) func(*HealthWindow) {
	return func(w *HealthWindow) { w.Started, w.Waits = n, n }
}

func waiting(p99 time.Duration) func(*HealthWindow) { return func(w *HealthWindow) { w.WaitP99 = p99 } }

func readyLeast(n int64) func(*HealthWindow) { return func(w *HealthWindow) { w.ReadyLeast = n } }

// TestHealthGates has the target do a little less and a little more than it may, and both cells know little.
func TestHealthGates(t *testing.T) {
	backlog := func(before, now *Health) {
		before.each(readyLeast(10))
		now.each(readyLeast(10))
	}
	for name, c := range map[string]struct {
		gate  string
		apart bool // it is the first class, and the other is at the source
		edit  func(before, now *Health)
		want  Verdict
		says  string
	}{
		"as many errors as may be": {GateErrors, false, func(_, now *Health) { now.each(badly(5)) }, Pass, "0.5 and 0.5 % of the attempts"},
		"one more":                 {GateErrors, false, func(_, now *Health) { now.each(badly(6)) }, Fail, "0.6 and 0.6 % of the attempts"},
		"one more while apart":     {GateErrors, true, func(_, now *Health) { now.each(badly(6)) }, Fail, "it was 0.0 %"},
		"one more in one window": {GateErrors, false, func(_, now *Health) {
			now.latest(badly(600))
		}, Pass, "0.0 and 60.0 %"},
		"as many errors more as may be": {GateErrors, false, func(before, now *Health) {
			before.each(badly(1))
			now.each(badly(6))
		}, Pass, "it was 0.1 %"},
		"one more than that": {GateErrors, false, func(before, now *Health) {
			before.each(badly(1))
			now.each(badly(7))
		}, Fail, ""},
		"errors that chance brings": {GateErrors, false, func(before, now *Health) {
			before.each(badly(200))
			now.each(badly(240))
		}, Pass, ""},
		"errors that it does not": {GateErrors, false, func(before, now *Health) {
			before.each(badly(200))
			now.each(badly(260))
		}, Fail, ""},
		"four of few": {GateErrors, false, func(_, now *Health) {
			now.each(ended(20))
			now.each(badly(4))
		}, Pass, ""},
		"five of few": {GateErrors, false, func(_, now *Health) {
			now.each(ended(20))
			now.each(badly(5))
		}, Fail, ""},
		"too few attempts": {GateErrors, false, func(_, now *Health) {
			now.latest(ended(19))
			now.each(badly(19))
		}, Warn, "too few attempts of interactive to judge (19 of 20 in 10s at whale)"},
		"too few before":           {GateErrors, false, func(before, now *Health) { before.latest(ended(19)); now.each(badly(900)) }, Warn, "19 of 20 in 10s at pool"},
		"a new leader at home":     {GateErrors, false, func(before, now *Health) { *before = Health{}; now.each(badly(900)) }, Warn, "too few windows of interactive to judge (0 of 2 at pool)"},
		"a new leader":             {GateErrors, false, func(_, now *Health) { *now = Health{} }, Warn, "too few windows of interactive to judge (0 of 2 at whale)"},
		"one window":               {GateErrors, false, func(_, now *Health) { now.each(badly(900)); now.Known = 1 }, Warn, "1 of 2 at whale"},
		"windows of two lengths":   {GateErrors, false, func(_, now *Health) { now.each(badly(900)); now.Window = time.Second }, Warn, "not compared"},
		"a wait as long as may be": {GateStart, false, func(_, now *Health) { now.each(waiting(1500 * time.Millisecond)) }, Pass, "waited 1.5s and 1.5s (p99)"},
		"a longer one":             {GateStart, false, func(_, now *Health) { now.each(waiting(1501 * time.Millisecond)) }, Fail, "it was 1s"},
		"a longer one once":        {GateStart, false, func(_, now *Health) { now.latest(waiting(time.Hour)) }, Pass, ""},
		"while apart as long as may be": {GateStart, true, func(_, now *Health) {
			now.each(waiting(3 * time.Second))
		}, Pass, ""},
		"while apart a longer one": {GateStart, true, func(_, now *Health) { now.each(waiting(3001 * time.Millisecond)) }, Fail, ""},
		"milliseconds": {GateStart, false, func(before, now *Health) {
			before.each(waiting(time.Millisecond))
			now.each(waiting(251 * time.Millisecond))
		}, Pass, ""},
		"one millisecond more": {GateStart, false, func(before, now *Health) {
			before.each(waiting(time.Millisecond))
			now.each(waiting(252 * time.Millisecond))
		}, Fail, ""},
		"a wait by the worse window before": {GateStart, false, func(before, now *Health) {
			before.latest(waiting(4 * time.Second))
			now.each(waiting(6 * time.Second))
		}, Pass, "it was 4s"},
		"a wait of a busier tenant": {GateStart, false, func(_, now *Health) {
			now.each(waiting(time.Minute))
			now.each(starting(1251))
		}, Warn, "with 2502 starts instead of 2000"},
		"a wait of one about as busy": {GateStart, false, func(_, now *Health) {
			now.each(waiting(time.Minute))
			now.each(starting(1250))
		}, Fail, ""},
		"too few starts": {GateStart, false, func(_, now *Health) {
			now.each(waiting(time.Minute))
			now.latest(starting(99))
		}, Warn, "too few starts of interactive to judge (99 of 100 in 10s at whale)"},
		"waits of a backlog": {GateStart, false, func(before, now *Health) {
			backlog(before, now)
			now.each(waiting(time.Hour))
		}, Pass, "waited all the time"},
		"waits of a backlog that is new": {GateStart, false, func(before, now *Health) {
			backlog(before, now)
			before.latest(readyLeast(9))
			now.each(waiting(time.Hour))
		}, Fail, ""},
		"waits that nobody knows": {GateStart, false, func(before, _ *Health) { *before = Health{} }, Warn, "0 of 2 at pool"},
		"as seldom as may be":     {GateRate, false, func(before, now *Health) { backlog(before, now); now.each(starting(800)) }, Pass, "granted 80.0 and 80.0 times a second"},
		"more seldom":             {GateRate, false, func(before, now *Health) { backlog(before, now); now.each(starting(799)) }, Fail, "it was 100.0"},
		"more seldom once":        {GateRate, false, func(before, now *Health) { backlog(before, now); now.latest(starting(0)) }, Pass, ""},
		"never":                   {GateRate, false, func(before, now *Health) { backlog(before, now); now.each(starting(0)) }, Fail, ""},
		"while apart as seldom as may be": {GateRate, true, func(before, now *Health) {
			backlog(before, now)
			now.each(starting(400))
		}, Pass, ""},
		"while apart more seldom": {GateRate, true, func(before, now *Health) { backlog(before, now); now.each(starting(399)) }, Fail, ""},
		"seldom for want of jobs": {GateRate, false, func(before, now *Health) {
			backlog(before, now)
			now.latest(readyLeast(9))
			now.each(starting(1))
		}, Pass, "jobs of interactive did not wait all the time"},
		"often for want of none before": {GateRate, false, func(before, now *Health) {
			backlog(before, now)
			before.latest(readyLeast(9))
			now.each(starting(1))
		}, Pass, "jobs of interactive did not wait all the time"},
		"too few starts before": {GateRate, false, func(before, now *Health) {
			backlog(before, now)
			before.each(starting(99))
			now.each(starting(0))
		}, Warn, "too few starts of interactive to judge (198 of 200 at pool)"},
		"a rate that nobody knows": {GateRate, false, func(before, now *Health) { backlog(before, now); *now = Health{} }, Warn, "0 of 2 at whale"},
	} {
		t.Run(name, func(t *testing.T) {
			class := cell.ClassInteractive
			if c.apart {
				class = cell.ClassBatch
			}
			w := observed(t, class, c.edit)
			for _, g := range Gates(w.r, w.o, w.cfg) {
				if g.Name == c.gate && (g.Verdict != c.want || !strings.Contains(g.Evidence, c.says)) {
					t.Errorf("%+v, not %d with %q", g, c.want, c.says)
				}
				if g.Name != c.gate && g.Verdict == Fail {
					t.Errorf("another fails: %+v", g)
				}
			}
			wantOutcome(t, w, c.gate, c.want)
		})
	}
}

// observed returns cells whose target serves a class, and what both know of it.
func observed(t *testing.T, class cell.Class, edit func(before, now *Health)) *ideal {
	t.Helper()
	w := reach(t, DefaultOptions(), inPhase(class, Observing))
	i := class.Index()
	before, now := usual(), usual()
	edit(&before, &now)
	w.do(SetMode{Cell: w.r.Source, Class: class, Mode: cell.ModeStandby, Epoch: w.r.Lanes[i].Epoch})
	w.o.Source.Lanes[i].Health, w.o.Target.Lanes[i].Health = before, now
	w.now = w.now.Add(31 * time.Second)
	w.r.Gates, w.r.GatesAt = nil, 0
	return w
}

// wantOutcome checks what comes of a verdict: a breach is noted, and taken back once it has lasted; anything else lets the class be moved.
func wantOutcome(t *testing.T, w *ideal, name string, v Verdict) {
	t.Helper()
	kind, why := proposed(w.next())
	if v != Fail {
		if kind != EventObserved {
			t.Errorf("%s (%s)", kind, why)
		}
		return
	}
	if kind != EventGates {
		t.Errorf("at once: %s (%s)", kind, why)
	}
	w.r.Gates, w.r.GatesAt = []Gate{{name, Fail, "so far"}}, w.now
	w.now = w.now.Add(w.cfg.WindowTime - time.Millisecond)
	if kind, why = proposed(w.next()); kind != 0 {
		t.Errorf("soon: %s (%s)", kind, why)
	}
	w.now = w.now.Add(time.Millisecond)
	if kind, why = proposed(w.next()); kind != EventReverse || !strings.Contains(why, name) {
		t.Errorf("when it has lasted: %s (%s)", kind, why)
	}
}

// A class that is observed for long enough to be compared is not fenced before the source knows what it does, unless that takes too long.
func TestBaselineIsWaitedFor(t *testing.T) {
	known := func(n int) Health { return Health{Window: 5 * time.Second, Known: n} }
	for name, c := range map[string]struct {
		of     [2]Health
		canary time.Duration
		age    time.Duration
		waits  bool
	}{
		"not known":                {[2]Health{known(0), known(0)}, 30 * time.Second, 2 * time.Second, true},
		"known of one class":       {[2]Health{known(1), known(2)}, 10 * time.Second, 2 * time.Second, true},
		"known":                    {[2]Health{known(2), known(2)}, 30 * time.Second, 2 * time.Second, false},
		"of a short canary":        {[2]Health{known(0), known(0)}, 10*time.Second - 1, 2 * time.Second, false},
		"of a cell that tells not": {[2]Health{}, 30 * time.Second, 2 * time.Second, false},
		"for long":                 {[2]Health{known(0), known(0)}, 30 * time.Second, 15 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := reach(t, DefaultOptions(), inState(Ready))
			w.r.Options.CanaryTime = c.canary
			w.now = w.r.Entered.Add(c.age)
			for i, h := range c.of {
				w.o.Source.Lanes[i].Health = h
			}
			want := EventPass
			if c.waits {
				want = 0
			}
			if kind, why := proposed(w.next()); kind != want || c.waits && !strings.Contains(waits(w.next()), "measured") {
				t.Errorf("%s (%s), %v", kind, why, w.next())
			}
		})
	}
}

// A breach that lasts is not forgotten for others that come and go.
func TestBreachOutlastsOthers(t *testing.T) {
	w := observed(t, cell.ClassBatch, func(_, now *Health) { now.each(badly(100)) })
	i := cell.ClassBatch.Index()
	began := w.now
	for w.now.Sub(began) < time.Minute {
		wait := time.Second
		if w.now.Sub(began)/(3*time.Second)%2 == 0 {
			wait = time.Hour
		}
		w.o.Target.Lanes[i].Health.each(waiting(wait))
		for _, e := range w.next() {
			if p, ok := e.(Propose); ok {
				w.event(p.Event, &Plan{})
			}
		}
		if w.r.State == Reversing {
			break
		}
		w.now = w.now.Add(time.Second)
	}
	if took := w.now.Sub(began); took > w.cfg.WindowTime+4*time.Second {
		t.Errorf("it is %s after %s", w.r.State, took)
	}
}

// While a class is observed and nothing is the matter, people see what is measured all the same.
func TestHealthIsShown(t *testing.T) {
	w := observed(t, cell.ClassBatch, func(_, _ *Health) {})
	w.o.Target.Lanes[cell.ClassBatch.Index()].Granted = 0 // not enough to be moved
	if kind, _ := proposed(w.next()); kind != EventGates {
		t.Errorf("%s", kind)
	}
	w.r.GatesAt = w.now.Add(-w.cfg.WindowTime + 1)
	if kind, _ := proposed(w.next()); kind != 0 {
		t.Errorf("again %s", kind)
	}
}

// Of what control proves, that there is room counts while a class is observed, and whether the target takes tenants does not.
func TestHealthOfControl(t *testing.T) {
	for name, want := range map[string]Verdict{GateCapacity: Fail, "open": Pass} {
		w := observed(t, cell.ClassBatch, func(_, _ *Health) {})
		w.o.Gates = []Gate{{name, Fail, "full"}}
		wantOutcome(t, w, name, want)
		if len(Gates(w.r, w.o, w.cfg)) >= GatesMax {
			t.Error("there is no room for every gate")
		}
	}
}

// A target that does as well as the source did is never taken back from, whatever they do and however much is known of it.
func TestHealthOfEquals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x compared
		x.part = rapid.Int64Range(1, Whole).Draw(t, "part")
		x.before.Window = time.Duration(rapid.Int64Range(1, int64(time.Minute)).Draw(t, "window"))
		x.before.Known = rapid.IntRange(0, HealthWindows).Draw(t, "known")
		var w HealthWindow
		w.Ended = rapid.Int64Range(0, 1e6).Draw(t, "ended")
		w.EndedBadly = rapid.Int64Range(0, w.Ended).Draw(t, "badly")
		w.Started = rapid.Int64Range(0, 1e6).Draw(t, "started")
		w.Waits = rapid.Int64Range(0, w.Started).Draw(t, "waits")
		w.WaitP99 = time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "wait"))
		w.ReadyLeast = rapid.Int64Range(0, 100).Draw(t, "ready")
		for i := range x.before.Known {
			x.before.Windows[i] = w
		}
		x.now = x.before
		x.now.each(func(w *HealthWindow) {
			w.EndedBadly -= rapid.Int64Range(0, w.EndedBadly).Draw(t, "fewer")
			w.WaitP99 -= time.Duration(rapid.Int64Range(0, int64(w.WaitP99)).Draw(t, "shorter"))
			w.Started += rapid.Int64Range(0, 1e6).Draw(t, "more")
		})
		cfg := DefaultConfig()
		for _, g := range []Gate{x.errors(cfg), x.start(cfg), x.rate(cfg)} {
			if g.Verdict == Fail || len(g.Evidence) > EvidenceMax {
				t.Fatalf("%+v of %+v", g, x)
			}
			if x.before.Known < HealthWindows && g.Verdict != Warn {
				t.Fatalf("%+v is judged, of %d windows", g, x.before.Known)
			}
		}
	})
}
