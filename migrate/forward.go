package migrate

import (
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/cell"
)

// forward takes the migration towards its target: state by state, and in ramping class by class.
func (d *turn) forward() {
	if d.unreachable() {
		return
	}
	if !d.looked(d.r.Source) || !d.looked(d.r.Target) {
		d.waitFor(0, "a first answer of both cells")
		return
	}
	if d.r.State >= Seeding {
		if d.lost() {
			return
		}
		d.replicate()
	}
	switch d.r.State { //nolint:exhaustive // rest has the others
	case Declared:
		d.pass(d.gates(), Event{Kind: EventPass})
	case Admitted:
		d.admitted()
	case Provisioned:
		d.provisioned()
	case Seeding:
		d.pass(d.gates(), Event{Kind: EventPass})
	case CatchingUp:
		d.catchingUp()
	case Shadowing:
		d.shadowing()
	case Ready:
		d.ready()
	case Ramping:
		d.ramping()
	}
}

// lost gives the attempt up when something of the copy is gone, and reports whether it was. Only classes that are at the source yet are looked at.
func (d *turn) lost() bool {
	for _, c := range d.r.Order {
		l := d.lane(c)
		if l.Phase != AtSource {
			continue
		}
		src, dst := d.seen(d.r.Source, c), d.seen(d.r.Target, c)
		switch {
		case src.Broken:
			d.giveUp(HeldBroken, fmt.Sprintf("%s has forgotten changes of %s that the target lacks", d.r.Source, c))
		case !d.fills(c, dst):
			d.giveUp(HeldBroken, fmt.Sprintf("%s is not there to be filled at %s any more", c, d.r.Target))
		case !src.Tracked && d.atHome(c):
			d.giveUp(HeldBroken, fmt.Sprintf("%s does not track %s any more", d.r.Source, c))
		default:
			continue
		}
		return true
	}
	return false
}

// admitted clears what earlier attempts have left, and goes on with an epoch above all that the cells have seen.
func (d *turn) admitted() {
	clean := true
	for _, c := range d.r.Order {
		if d.r.Attempt == 1 && d.seen(d.r.Target, c).leftover() {
			d.giveUp(HeldBroken, fmt.Sprintf("%s has something left of %s, which is cleared away first", d.r.Target, c))
			return
		}
		if !d.sweep(c) {
			clean = false
		}
		if d.r.Attempt > 1 && d.seen(d.r.Source, c).Tracked {
			d.untrack(d.r.Source, c)
			clean = false
		}
	}
	if until := d.retryAt(); d.now < until {
		d.waitFor(until, "the next attempt")
		return
	}
	if !clean {
		d.waitFor(0, "what an earlier attempt left to be gone")
		return
	}
	e := Event{Kind: EventPass}
	for i := range e.Floor {
		e.Floor[i] = max(d.o.Source.Lanes[i].Epoch, d.o.Target.Lanes[i].Epoch)
	}
	d.pass(d.gates(), e)
}

// retryAt is when the next attempt may begin: the first again at once, each further one later.
func (d *turn) retryAt() cell.Instant {
	if d.r.Retries < 2 {
		return 0
	}
	return d.r.Entered.Add(d.cfg.FenceDelay << min(d.r.Retries-2, doublingsMax))
}

// doublingsMax bounds how often a delay is doubled.
const doublingsMax = 6

// sweep removes what is at the target of a class that is not served there, and reports whether nothing is left.
func (d *turn) sweep(c cell.Class) bool {
	s := d.seen(d.r.Target, c)
	switch {
	case !s.leftover(): // if it is in use there, a gate says so
		return true
	case s.Mode == cell.ModeOpen:
		d.do(SetMode{Cell: d.r.Target, Class: c, Mode: cell.ModeFenced, Epoch: d.buried(c, s)})
		return false
	case s.Mode != cell.ModeTombstone:
		d.do(SetMode{Cell: d.r.Target, Class: c, Mode: cell.ModeTombstone, Epoch: d.buried(c, s)})
		return false
	default:
		d.do(Wipe{Cell: d.r.Target, Class: c})
		return false
	}
}

// buried returns the epoch of a tombstone at the target: no lower than any that a call of this migration may still come with, and above that of another's. Where no
// gateway was ever sent it is no lower than the policy's either, so that no late push of that opens the lane; elsewhere it says where the lane is.
func (d *turn) buried(c cell.Class, s *LaneSeen) cell.Epoch {
	l := d.lane(c)
	e := max(s.Epoch, l.Staged, l.Epoch)
	if l.Phase == AtSource {
		e = max(e, d.o.Target.PolicyEpoch)
	}
	if !d.ours(s) && e == s.Epoch {
		e++
	}
	return e
}

// provisioned stages the lanes and tracks their sources, and proves the way to both logs.
func (d *turn) provisioned() {
	for _, c := range d.r.Order {
		l, src, dst := d.lane(c), d.seen(d.r.Source, c), d.seen(d.r.Target, c)
		switch {
		case d.fills(c, dst):
		case dst.Known && (dst.Epoch >= l.Staged || dst.holds() || dst.Mode != cell.ModeTombstone && dst.Mode != cell.ModeOpen):
			d.giveUp(HeldBroken, fmt.Sprintf("something is in the way of %s at %s", c, d.r.Target))
			return
		default:
			d.do(Stage{Class: c, Epoch: l.Staged})
			if src.Tracked { // for another attempt perhaps, or another migration
				d.do(Track{Cell: d.r.Source, Class: c})
			}
		}
		if !src.Tracked {
			d.do(Track{Cell: d.r.Source, Class: c})
		}
	}
	for _, id := range []cell.ID{d.r.Source, d.r.Target} {
		if d.o.Cell(d.r, id).Proved != d.r.Attempt {
			d.do(Prove{Cell: id})
		}
	}
	d.pass(d.gates(), Event{Kind: EventPass})
}

func (d *turn) catchingUp() {
	gates := d.gates()
	since := max(d.r.Entered, d.r.Resumed)
	if failed(gates, GateLag) && d.now.Sub(since) >= d.cfg.CatchUpMax {
		d.hold(HeldLag, fmt.Sprintf("the copy has not caught up in %s: %s", d.cfg.CatchUpMax, failing(gates)))
		return
	}
	d.pass(gates, Event{Kind: EventPass})
}

// shadowing compares what is copied with the source, as of one change if the lane stands still for long enough to have one.
func (d *turn) shadowing() {
	for _, c := range d.r.Order {
		if x := d.comparison(c); x.differs() {
			d.giveUp(HeldDigest, x.text(c, d.r.Source, d.r.Target))
			return
		}
		d.digestUnlessCommon(c)
	}
	d.pass(d.gates(), Event{Kind: EventPass})
}

// common reports whether both sides' digests are known as of one change.
func common(src, dst *LaneSeen) bool {
	return dst.Cursor.Seeded == SeededAll && digested(src, src.Change) && digested(dst, src.Change) && dst.Cursor.Change == src.Change
}

func (d *turn) digestUnlessCommon(c cell.Class) {
	src, dst := d.seen(d.r.Source, c), d.seen(d.r.Target, c)
	if common(src, dst) {
		return
	}
	if !digested(src, src.Change) {
		d.do(Digest{Cell: d.r.Source, Class: c})
	}
	if !digested(dst, dst.Cursor.Change) {
		d.do(Digest{Cell: d.r.Target, Class: c})
	}
}

// ready waits until the gates were passed for a while, and for the operator where it is to be switched by hand.
func (d *turn) ready() {
	gates := d.gates()
	d.keepDigests()
	since := max(d.r.Entered, d.r.Resumed, d.r.GatesAt)
	switch healthy := failing(gates) == ""; {
	case healthy && len(failures(d.r.Gates)) != 0:
		d.keepGates(gates)
	case healthy && d.now.Sub(since) < d.cfg.ReadyTime:
		d.waitFor(since.Add(d.cfg.ReadyTime), "the gates to be passed for "+d.cfg.ReadyTime.String())
	case healthy && d.r.Options.Manual && !d.anyAllowed():
		d.waitFor(0, "an operator to switch a class")
	case healthy && d.measuring():
		d.waitFor(d.r.Entered.Add(d.cfg.BaselineMax), "the source to be measured, for the target to be compared with")
	default:
		d.pass(gates, Event{Kind: EventPass})
	}
}

// measuring reports whether a class is to be observed for long enough to be compared with the source, which does not know yet what it does itself: small tenants
// are copied before it does. That is waited for, but not for ever.
func (d *turn) measuring() bool {
	return d.now.Sub(d.r.Entered) < d.cfg.BaselineMax && slices.ContainsFunc(d.r.Order[:], func(c cell.Class) bool {
		h := &d.seen(d.r.Source, c).Health
		return h.Window > 0 && h.Known < HealthWindows && d.r.Options.CanaryTime >= HealthWindows*h.Window
	})
}

func (d *turn) anyAllowed() bool {
	return slices.ContainsFunc(d.r.Lanes[:], func(l Lane) bool { return l.Allowed })
}

// keepDigests asks for digests that are not whole: at the fence there is no time to compute them.
func (d *turn) keepDigests() {
	for _, c := range d.r.Order {
		if d.lane(c).Phase != AtSource {
			continue
		}
		for _, id := range []cell.ID{d.r.Source, d.r.Target} {
			if d.seen(id, c).DigestDone < Whole {
				d.do(Digest{Cell: id, Class: c})
			}
		}
	}
}

// next returns the class that is to be switched, or observed; 0 when all were moved.
func (d *turn) next() cell.Class {
	for _, c := range d.r.Order {
		if d.lane(c).Phase != Moved {
			return c
		}
	}
	return 0
}

func (d *turn) ramping() {
	c := d.next()
	switch {
	case d.differs():
	case c == 0:
		d.pass(d.gates(), Event{Kind: EventPass})
	case d.lane(c).Phase == Observing:
		d.observing(c)
	default:
		d.keepDigests()
		d.fenceNext(c)
	}
}

// fenceNext proposes the fence of a class whose gates are passed at this instant.
func (d *turn) fenceNext(c cell.Class) {
	l := d.lane(c)
	switch until := d.fenceAt(l); {
	case d.r.Options.Manual && !l.Allowed:
		d.waitFor(0, fmt.Sprintf("an operator to switch %s", c))
	case l.Fences >= d.cfg.FencesMax:
		d.hold(HeldFences, fmt.Sprintf("%s was to be switched %d times, and its pause grew too long", c, l.Fences))
	case d.now < until:
		d.waitFor(until, fmt.Sprintf("the next try to switch %s", c))
	case !d.atHome(c):
		d.waitFor(0, fmt.Sprintf("%s to serve %s", l.Owner, c))
	default:
		kind := EventFence
		if d.r.State == Reversing {
			kind = EventReverseFence
		}
		d.pass(d.gates(), Event{Kind: kind, Class: c, Wait: d.seen(l.Owner, c).PredictedWait})
	}
}

// fenceAt is when a class may be fenced after it was un-fenced.
func (d *turn) fenceAt(l *Lane) cell.Instant {
	if l.Fences == 0 || l.UnfencedAt == 0 {
		return 0
	}
	return l.UnfencedAt.Add(d.cfg.FenceDelay << min(l.Fences-1, doublingsMax))
}

// standBy has the cell that a class has left let go of its part of what the tenant has, and follow the cell that has the class now: the source of one that was
// moved, the target of one that was taken back.
func (d *turn) standBy() {
	for _, c := range d.r.Order {
		if d.lane(c).Phase != AtSource && !d.letGo(c) {
			d.do(SetMode{Cell: d.r.other(d.lane(c).Owner), Class: c, Mode: cell.ModeStandby, Epoch: d.lane(c).Epoch, Share: d.share(c)})
		}
	}
}

// letGo reports whether nothing is left for standBy to do. The next class is switched only then: what goes with that is a part of what is left. A lane that seems
// open was seen before it was fenced.
func (d *turn) letGo(c cell.Class) bool {
	s := d.seen(d.r.other(d.lane(c).Owner), c)
	return !s.Known || s.Mode != cell.ModeFenced && s.Mode != cell.ModeOpen
}

// observing looks at a class that the target serves: it is moved when it has done enough there, and reversed when it does badly for long enough.
func (d *turn) observing(c cell.Class) {
	l := d.lane(c)
	gates := d.gates()
	dst := d.seen(d.r.Target, c)
	if d.breached(gates) {
		return
	}
	d.keepBreach(gates)
	if why := failing(gates); why != "" {
		d.waitFor(0, why)
		return
	}
	since := d.now.Sub(l.ActivatedAt)
	enough := since >= d.r.Options.CanaryTime && dst.Granted >= d.r.Options.CanaryJobs || since >= idleCanary*d.r.Options.CanaryTime
	if !enough {
		d.showGates(gates)
		until := l.ActivatedAt.Add(d.r.Options.CanaryTime)
		if since >= d.r.Options.CanaryTime {
			until = l.ActivatedAt.Add(idleCanary * d.r.Options.CanaryTime)
		}
		d.waitFor(until, fmt.Sprintf("%s to be granted %d times and observed for %s", c, d.r.Options.CanaryJobs, d.r.Options.CanaryTime))
		return
	}
	d.pass(gates, Event{Kind: EventObserved, Class: c})
}

// idleCanary is how many times longer a class is observed that has not enough work for its canary.
const idleCanary = 10

// keepBreach proposes the gates for the record when others fail than the record says: what fails there and still does has failed since then, whatever else comes
// and goes.
func (d *turn) keepBreach(gates []Gate) {
	was := failures(d.r.Gates)
	if slices.ContainsFunc(failures(gates), func(name string) bool { return slices.Contains(was, name) }) {
		return
	}
	d.keepGates(gates)
}

// showGates proposes gates for the record that nobody has seen for a while.
func (d *turn) showGates(gates []Gate) {
	if d.now.Sub(d.r.GatesAt) >= d.cfg.WindowTime {
		d.propose(Event{Kind: EventGates, Gates: gates})
	}
}

// breached proposes the way back, or a hold where that would not help, when a gate has failed for long enough, and reports whether it has.
func (d *turn) breached(gates []Gate) bool {
	for _, g := range gates {
		lasting := failed(d.r.Gates, g.Name) && d.now.Sub(d.r.GatesAt) >= d.cfg.WindowTime
		switch {
		case g.Verdict != Fail || !ofHealth(g.Name) && g.Name != GateReverseLag:
		case !lasting:
		case g.Name == GateReverseLag:
			d.hold(HeldLag, g.Evidence)
			return true
		case d.o.Source.Reachable: // else there is nobody to go back to
			d.propose(Event{Kind: EventReverse, Why: fmt.Sprintf("the gate %s: %s", g.Name, g.Evidence), Gates: gates})
			return true
		}
	}
	return false
}

// differs holds a migration at once of which the target serves something else than what follows at the source, and reports whether it does. Which of them is
// right only a person can say, and the way back would be refused at its fence.
func (d *turn) differs() bool {
	g := d.lossGate()
	if g.Verdict == Fail {
		d.hold(HeldDigest, g.Evidence+"; migrate diff names what")
	}
	return g.Verdict == Fail
}

// cutOver keeps the way back open until the window is over.
func (d *turn) cutOver() {
	d.replicate()
	if d.differs() {
		return
	}
	until := d.r.Entered.Add(d.r.Options.RollbackWindow)
	if d.now >= until {
		d.propose(Event{Kind: EventComplete, Why: "the rollback window is over"})
		return
	}
	d.keepGates(d.gates())
	d.waitFor(until, "an operator to complete or reverse it, or for the rollback window to be over")
}

// draining removes what the source keeps, after a delay.
func (d *turn) draining() {
	wipeAt := d.r.Entered.Add(d.cfg.WipeDelay)
	done := d.lookedSince(d.r.Source) && d.lookedSince(d.r.Target)
	for _, c := range d.r.Order {
		l, src, dst := d.lane(c), d.seen(d.r.Source, c), d.seen(d.r.Target, c)
		if dst.Tracked {
			d.untrack(d.r.Target, c)
		}
		if dst.Tracked || !d.atHome(c) {
			done = false
		}
		switch {
		case !src.Known:
		case src.Mode != cell.ModeTombstone:
			d.do(SetMode{Cell: d.r.Source, Class: c, Mode: cell.ModeTombstone, Epoch: l.Epoch, Share: d.share(c)})
			done = false
		case src.holds() && d.now >= wipeAt:
			d.do(Wipe{Cell: d.r.Source, Class: c})
			done = false
		case src.holds():
			done = false
		}
	}
	switch {
	case done:
		d.propose(Event{Kind: EventEnd, Why: "nothing of the tenant is left at the source"})
	case d.now < wipeAt:
		d.waitFor(wipeAt, "the delay after which the source's data is removed")
	default:
		d.waitFor(0, "the source's data to be removed")
	}
}

func seconds(d time.Duration) string { return d.Truncate(time.Millisecond).String() }
