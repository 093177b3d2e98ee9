package migrate

import (
	"slices"
	"time"

	"github.com/fairlead/fairlead/cell"
)

// PlanInput is what a plan is made of.
type PlanInput struct {
	Record   Record   // as New makes it
	Observed Observed // both cells as they are; Observed.Gates holds control's
	Config   Config
	Now      cell.Instant
}

// Step is one step of a plan.
type Step struct {
	State State      // in which it is done
	Class cell.Class // 0 for steps of both
	Text  string
	Undo  string        // how it is undone once it is done
	Time  time.Duration // that it is expected to take
}

// Plan is what a migration would do.
type Plan struct {
	Gates       []Gate
	Steps       []Step
	Blockers    []string // why it cannot be done now; empty when it can
	Jobs, Bytes int64
	CopyTime    time.Duration
	Pause       time.Duration // of a class, as predicted
}

// planRounds bounds how often a plan asks for what is next: a migration without trouble takes about a hundred.
const planRounds = 2000

// MakePlan takes a migration through its steps without doing any: Apply and Next are the real ones, the cells are ideal ones that begin with what the real ones
// hold. Gates are proved on the cells as they are.
func MakePlan(in PlanInput) Plan {
	in.Config = in.Config.WithDefaults()
	p := Plan{Gates: planGates(in)}
	for _, g := range p.Gates {
		if g.Verdict == Fail {
			p.Blockers = append(p.Blockers, g.Name+": "+g.Evidence)
		}
	}
	for i := range in.Observed.Source.Lanes {
		l := &in.Observed.Source.Lanes[i]
		p.Jobs += l.Jobs
		p.Bytes += l.Bytes
	}
	w := newIdeal(in)
	p.Pause = w.pause
	p.CopyTime = w.copyTime
	for range planRounds {
		if w.r.Done() {
			break
		}
		w.round(&p)
	}
	return p
}

// planGates returns the gates that can be proved before anything is done.
func planGates(in PlanInput) []Gate {
	var all []Gate
	for _, s := range []State{Declared, Admitted} {
		in.Record.State = s
		for _, g := range Gates(in.Record, in.Observed, in.Config) {
			if !slices.ContainsFunc(all, func(h Gate) bool { return h.Name == g.Name }) {
				all = append(all, g)
			}
		}
	}
	d := &turn{r: &in.Record, o: &in.Observed, now: in.Now, cfg: in.Config}
	logs := d.logsGate()
	if logs.Verdict == Fail {
		logs.Verdict = Warn // it is slow now; that is proved anew before a fence
	}
	return append(all, logs)
}

// ideal is two cells that do everything at once and never fail, and control.
type ideal struct {
	r     Record
	o     Observed
	now   cell.Instant
	since cell.Instant // of the last step
	cfg   Config
	// What takes time.
	pause, copyTime time.Duration
}

// A guess at what the network and control's log add to a switch, beside the commits in the cells.
const (
	planRoundTrips = 20 * time.Millisecond
	planControl    = 20 * time.Millisecond
)

func newIdeal(in PlanInput) *ideal {
	w := &ideal{r: in.Record, now: in.Now, since: in.Now, cfg: in.Config}
	w.pause = in.Observed.Source.CommitP50 + 2*in.Observed.Target.CommitP50 + planRoundTrips + planControl
	for i, l := range w.r.Lanes {
		real := in.Observed.Source.Lanes[i]
		w.o.Source.Lanes[i] = LaneSeen{
			Known: true, Epoch: l.Epoch, Records: real.Records, Jobs: real.Jobs, Bytes: real.Bytes, Charged: real.Charged, Digest: [32]byte{1},
			// Measured from now on, and known once so many windows are over beside the one that had begun: as long as is waited for it.
			Health: Health{Window: in.Config.BaselineMax / (HealthWindows + 1)},
		}
		w.copyTime += time.Duration(float64(real.Bytes) / float64(max(1, w.r.Options.BytesPerSecond)) * float64(time.Second))
	}
	return w
}

// round does what is next, and lets time pass where that is all there is to do.
func (w *ideal) round(p *Plan) {
	for _, s := range []*CellSeen{&w.o.Source, &w.o.Target} {
		s.Reachable, s.At = true, w.now
	}
	before, lanes := w.r.Generation, [2][2]LaneSeen{w.o.Source.Lanes, w.o.Target.Lanes}
	until := w.now.Add(time.Second)
	for _, e := range Next(w.r, w.o, w.now, w.cfg) {
		switch e := e.(type) {
		case Propose:
			w.event(e.Event, p)
		case Wait:
			if e.Until > w.now {
				until = e.Until
			}
		default:
			w.do(e)
		}
	}
	if w.r.Generation == before {
		w.allow(p)
	}
	if w.r.Generation == before && lanes == [2][2]LaneSeen{w.o.Source.Lanes, w.o.Target.Lanes} {
		w.now = until
	}
}

// allow is the operator of a migration that is switched by hand, who does so as soon as it is waited for.
func (w *ideal) allow(p *Plan) {
	if !w.r.Options.Manual || w.r.State != Ready && w.r.State != Ramping {
		return
	}
	for _, c := range w.r.Order {
		if l := w.r.Lanes[c.Index()]; l.Phase == AtSource && !l.Allowed {
			w.event(Event{Kind: EventAllow, Attempt: w.r.Attempt, Class: c, Actor: ActorControl, Time: w.now}, p)
			return
		}
		if w.r.Lanes[c.Index()].Phase != Moved {
			return
		}
	}
}

func (w *ideal) event(e Event, p *Plan) {
	was := w.r
	switch {
	case e.Kind == EventActivate:
		w.now = w.now.Add(w.pause)
	case e.Kind == EventPass && was.State == Seeding:
		w.now = w.now.Add(w.copyTime)
	}
	e.Time = w.now
	r, err := w.r.Apply(e)
	if err != nil {
		return
	}
	w.r = r
	if e.Kind == EventGates || e.Kind == EventProgress {
		return
	}
	p.Steps = append(p.Steps, Step{State: was.State, Class: classOf(&e), Text: was.describe(&e), Undo: r.undo(), Time: w.now.Sub(w.since)})
	w.since = w.now
}

// do has the ideal cells do what they are told.
func (w *ideal) do(e Effect) {
	switch e := e.(type) {
	case Prove:
		w.o.Cell(&w.r, e.Cell).Proved = w.r.Attempt
	case Stage:
		*w.lane(w.r.Target, e.Class) = LaneSeen{
			Known: true, Mode: cell.ModeStaged, Epoch: e.Epoch, Move: w.r.Move(), Digest: [32]byte{1}, DigestDone: Whole,
		}
	case Track:
		l := w.lane(e.Cell, e.Class)
		l.Tracked, l.LagKnown = !e.Off, !e.Off
	case Copy:
		from, to := w.lane(e.From, e.Class), w.lane(e.To, e.Class)
		to.Cursor = Cursor{Seeded: SeededAll, Change: from.Change}
		to.DigestChange, to.Records, to.Jobs, to.Bytes = from.Change, from.Records, from.Jobs, from.Bytes
		from.LagKnown = true
	case Digest:
		l := w.lane(e.Cell, e.Class)
		l.DigestDone = Whole
	case Wipe:
		l := w.lane(e.Cell, e.Class)
		l.Records, l.Charged, l.Submitted, l.Granted = 0, 0, 0, 0
	case SetMode:
		w.setMode(e)
	case Propose, Look, Wait: // round has them
	}
}

func (w *ideal) setMode(e SetMode) {
	l := w.lane(e.Cell, e.Class)
	was := l.Mode
	l.Mode, l.Epoch, l.Move = e.Mode, e.Epoch, w.r.Move()
	switch e.Mode {
	case cell.ModeFenced:
		l.Fence = 1
	case cell.ModeOpen:
		l.Fence = 0
		if was == cell.ModeStaged {
			l.Tracked, l.LagKnown, l.Granted = true, true, w.r.Options.CanaryJobs
		}
	case cell.ModeStandby:
		l.Cursor = Cursor{Seeded: SeededAll, Change: l.Change}
		l.Tracked = false
	case cell.ModeTombstone:
		l.Tracked = false
	case cell.ModeStaged:
	}
}

func (w *ideal) lane(id cell.ID, c cell.Class) *LaneSeen { return &w.o.Cell(&w.r, id).Lanes[c.Index()] }
