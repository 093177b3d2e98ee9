package migrate

import (
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/cell"
)

// ActorControl is who acts when control's leader does so by itself.
const ActorControl = "control"

// Next returns what is to be done now. It is a function of what the record and the cells are, not of what was done before: after a crash, a lost or a repeated
// call the same is asked again. It never returns nothing: a Wait says what for. At most one of the effects is a Propose.
//
// Safe under old observations: what is proposed rests on facts about cells that only control's record can change, at a later generation. A lane that was seen
// fenced at the record's epoch stays fenced and stands still until the record says otherwise; a lane that is filled only gets more.
func Next(r Record, o Observed, now cell.Instant, cfg Config) []Effect {
	d := &turn{r: &r, o: &o, now: now, cfg: cfg.WithDefaults()}
	if r.Done() {
		return []Effect{Wait{For: "nothing: it has ended"}}
	}
	if c, switching := r.switching(); switching {
		d.switchClass(c)
	} else {
		d.look()
		d.rest()
		d.progress()
	}
	return d.effects()
}

// switching returns the class that takes nothing now, or that may: at most one of them does, whatever else there is waits for it.
func (r *Record) switching() (cell.Class, bool) {
	for _, c := range r.Order {
		if !r.Lanes[c.Index()].resting() {
			return c, true
		}
	}
	return 0, false
}

// turn is one call of Next: what it was asked, and what it has to say so far.
type turn struct {
	r        *Record
	o        *Observed
	now      cell.Instant
	cfg      Config
	out      []Effect
	proposal *Event
	wait     Wait
}

// rest is what is done while no class is being switched.
func (d *turn) rest() {
	for _, c := range d.r.Order {
		d.keepHome(c)
	}
	if d.r.State != Draining {
		d.standBy()
	}
	switch {
	case d.r.State == Aborting:
		d.aborting()
	case d.r.State == Reversing:
		d.reversing()
	case d.r.Held != "":
		d.held()
	case d.r.State == Draining:
		d.draining()
	case d.r.State == CutOver:
		d.cutOver()
	default:
		d.forward()
	}
}

func (d *turn) effects() []Effect {
	if d.proposal != nil {
		d.out = append(d.out, Propose{Event: *d.proposal})
	}
	if len(d.out) == 0 || d.wait.For != "" {
		if d.wait.For == "" {
			d.wait.For = "the cells"
		}
		d.out = append(d.out, d.wait)
	}
	return d.out
}

// do adds an effect, once.
func (d *turn) do(e Effect) {
	if !slices.Contains(d.out, e) {
		d.out = append(d.out, e)
	}
}

// propose proposes an event, unless another is proposed already.
func (d *turn) propose(e Event) {
	if d.proposal != nil {
		return
	}
	e.Attempt, e.Time, e.Actor = d.r.Attempt, d.now, ActorControl
	e.Why, e.Gates = clip(e.Why), clipped(e.Gates)
	d.proposal = &e
}

// waitFor says what is waited for; the first that says so is heard.
func (d *turn) waitFor(until cell.Instant, what string) {
	if d.wait.For == "" {
		d.wait = Wait{Until: until, For: what}
	}
}

func (d *turn) lane(c cell.Class) *Lane { return &d.r.Lanes[c.Index()] }

// seen returns what is known of a lane in a cell.
func (d *turn) seen(id cell.ID, c cell.Class) *LaneSeen { return &d.o.Cell(d.r, id).Lanes[c.Index()] }

// looked reports whether this driver has ever had an answer of the cell: until then nothing can be said of its lanes, not even that there are none.
func (d *turn) looked(id cell.ID) bool { return d.o.Cell(d.r, id).At != 0 }

func (d *turn) ours(l *LaneSeen) bool { return l.Known && l.Move == d.r.Move() }

// ourMigration reports whether any attempt of the migration has last set the lane's mode.
func (d *turn) ourMigration(l *LaneSeen) bool { return l.Known && l.Move.Migration == d.r.ID }

func (d *turn) look() {
	for _, id := range []cell.ID{d.r.Source, d.r.Target} {
		if s := d.o.Cell(d.r, id); s.At == 0 || !s.Reachable || d.now.Sub(s.At) >= d.cfg.LookEvery {
			d.do(Look{Cell: id})
		}
	}
}

// progress proposes a checkpoint of what was copied, where nothing else is proposed.
func (d *turn) progress() {
	every := d.cfg.ProgressEvery
	if d.r.State >= CutOver {
		every *= restingProgress
	}
	p := d.o.Progress
	if p == nil || d.now.Sub(d.r.Progress.At) < every || p.At <= d.r.Progress.At {
		return
	}
	have := d.r.Progress
	have.At = p.At
	if have != *p {
		d.propose(Event{Kind: EventProgress, Progress: p})
	}
}

// restingProgress is how many times seldomer a checkpoint is proposed once the tenant was moved.
const restingProgress = 30

// keepHome sees to it that the cell that has a class by the record serves it at the record's epoch. That is to be done when a switch was given up: the fence may
// have come, may come yet, or was lost. A lane that was never reached by it is told the epoch too: else the fence could come after everything has ended, and
// nobody would open the lane again.
func (d *turn) keepHome(c cell.Class) {
	l := d.lane(c)
	s := d.seen(l.Owner, c)
	if !d.looked(l.Owner) || !s.Known || s.Epoch >= l.Epoch {
		return
	}
	if s.Mode == cell.ModeFenced && d.ourMigration(s) || s.Mode == cell.ModeOpen && stale(l, s) {
		d.do(SetMode{Cell: l.Owner, Class: c, Mode: cell.ModeOpen, Epoch: l.Epoch})
	}
}

// stale reports whether a lane that is open has to learn of the record's epoch: one that was never touched by a migration serves at any.
func stale(l *Lane, s *LaneSeen) bool {
	return s.Epoch < l.Epoch && (l.FencedAt != 0 || s.Epoch != 0)
}

// atHome reports whether nothing is left for keepHome to do.
func (d *turn) atHome(c cell.Class) bool {
	l := d.lane(c)
	s := d.seen(l.Owner, c)
	return d.looked(l.Owner) && s.Known && s.Mode == cell.ModeOpen && !stale(l, s)
}

// replicate goes on with the copy of each class that is not where it goes to, and with the way back of each that is there.
func (d *turn) replicate() {
	for _, c := range d.r.Order {
		l := d.lane(c)
		from := l.Owner
		to := d.r.other(from)
		src, dst := d.seen(from, c), d.seen(to, c)
		if from == d.r.Source && d.r.State > Ramping {
			continue // it stays there
		}
		if !d.fills(c, dst) || !src.Known || !src.Tracked || src.Broken {
			continue
		}
		d.do(Copy{From: from, To: to, Class: c})
		if !src.LagKnown && d.atHome(c) { // nothing was copied yet: it may be tracked for another attempt
			d.do(Track{Cell: from, Class: c})
		}
	}
}

// held does what a hold leaves to be done: the copy goes on, and what has healed resumes.
func (d *turn) held() {
	if d.r.State >= Seeding {
		d.replicate()
	}
	if healing(d.r.Held) && d.healed() {
		d.propose(Event{Kind: EventResume, Why: "what it was held for is over"})
	}
	d.waitFor(0, "an end of the hold: "+d.r.Held)
}

func (d *turn) healed() bool {
	if !d.o.Source.Reachable || !d.o.Target.Reachable {
		return false
	}
	gates := d.gates()
	return !failed(gates, GateLag) && !failed(gates, GateReverseLag)
}

// hold proposes a hold for a reason of control's own.
func (d *turn) hold(prefix, why string) { d.propose(Event{Kind: EventHold, Why: prefix + why}) }

// giveUp ends an attempt that cannot come to a good end: the next begins, or the migration is held when there were too many or a class was moved already.
func (d *turn) giveUp(prefix, why string) {
	switch {
	case d.r.committed():
		d.hold(prefix, why+"; reverse it, or repair what is wrong and resume")
	case d.r.Retries >= AttemptsMax:
		d.hold(HeldAttempts, fmt.Sprintf("%d were given up, the last because %s", d.r.Retries, why))
	default:
		d.propose(Event{Kind: EventRestart, Why: prefix + why})
	}
}

// unreachable holds a migration one of whose cells does not answer for too long, and reports whether it does.
func (d *turn) unreachable() bool {
	for _, id := range []cell.ID{d.r.Source, d.r.Target} {
		s := d.o.Cell(d.r, id)
		if !s.Reachable && s.Since != 0 && d.now.Sub(s.Since) >= d.cfg.UnreachableMax {
			d.hold(HeldUnreachable, fmt.Sprintf("%s has not answered for %s", id, d.now.Sub(s.Since).Truncate(time.Second)))
			return true
		}
	}
	return false
}

// pass proposes that the next state begins if every gate is passed, and keeps in the record which are not.
func (d *turn) pass(gates []Gate, e Event) {
	if why := failing(gates); why != "" {
		d.keepGates(gates)
		d.waitFor(0, why)
		return
	}
	e.Gates = gates
	d.propose(e)
}

// keepGates proposes the gates for the record when others fail than the record says.
func (d *turn) keepGates(gates []Gate) {
	if sameFailures(gates, d.r.Gates) || d.now.Sub(d.r.GatesAt) < d.cfg.ProgressEvery {
		return
	}
	d.propose(Event{Kind: EventGates, Gates: gates})
}

// failing returns the first gate that is not passed, for people; empty when all are.
func failing(gates []Gate) string {
	for _, g := range gates {
		if g.Verdict == Fail {
			return fmt.Sprintf("the gate %s: %s", g.Name, g.Evidence)
		}
	}
	return ""
}

func sameFailures(a, b []Gate) bool { return slices.Equal(failures(a), failures(b)) }

func failures(gates []Gate) []string {
	var names []string
	for _, g := range gates {
		if g.Verdict == Fail {
			names = append(names, g.Name)
		}
	}
	slices.Sort(names)
	return names
}

func failed(gates []Gate, name string) bool {
	return slices.ContainsFunc(gates, func(g Gate) bool { return g.Name == name && g.Verdict == Fail })
}
