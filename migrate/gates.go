package migrate

import (
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/cell"
)

// The names of the gates that are proved here, and of those of control's that matter after a commit. Others of control's have names of its own.
const (
	GateSource     = "source"      // it answers, and serves what has not moved
	GateTarget     = "target"      // it answers
	GateLogs       = "logs"        // both cells' are fast enough for a short pause
	GateRoom       = "room"        // the target holds nothing of the tenant that would be in the way
	GateWorkers    = "workers"     // the target's workers offer what the tenant's jobs need
	GateCanary     = "canary"      // the ways to both logs work
	GateStaged     = "staged"      // the lanes can be filled
	GatePolicy     = "policy"      // the target's is at least as new
	GateSeed       = "seed"        // every job was copied once
	GateLag        = "lag"         // and changes are as soon as they come
	GateDigest     = "digest"      // both cells have the same, or can say it at once
	GateApplied    = "applied"     // to the fence
	GateGrants     = "grants"      // the target runs what it has
	GateOrder      = "order"       // the target would grant first what the source would
	GateWait       = "wait"        // and jobs do not wait longer than before
	GateReverseLag = "reverse-lag" // the way back is open
	GateErrors     = "errors"      // no more attempts end badly than before
	GateStart      = "start"       // jobs did not wait longer until they started than before
	GateRate       = "rate"        // they were granted as often as before, where some waited all the time
	GateCapacity   = "capacity"    // control's: the target has room. While a class is observed: for what is measured
	GateLoss       = "loss"        // what the target serves is what follows at the source: nothing was lost since, or done twice
)

// ofHealth reports whether a gate says how the target serves: one of these that fails for long enough takes back what was moved.
func ofHealth(name string) bool {
	switch name {
	case GateGrants, GateWait, GateErrors, GateStart, GateRate, GateCapacity:
		return true
	default:
		return false
	}
}

// Gates returns what is proved or not of what the present step needs: control's gates first where they matter, then those of the cells. It is a function of what
// was seen; what is unknown is not passed.
func Gates(r Record, o Observed, cfg Config) []Gate {
	d := &turn{r: &r, o: &o, now: max(o.Source.At, o.Target.At), cfg: cfg.WithDefaults()}
	return d.gates()
}

func (d *turn) gates() []Gate {
	both := []Gate{d.sourceGate(), d.targetGate()}
	switch d.r.State {
	case Declared:
		return bounded(d.o.Gates, both)
	case Admitted:
		return bounded(d.o.Gates, both, []Gate{d.roomGate(), d.workersGate()})
	case Provisioned:
		return bounded(both, []Gate{d.canaryGate(), d.stagedGate()})
	case Seeding:
		return bounded(both, []Gate{d.seedGate()})
	case CatchingUp:
		return bounded(both, []Gate{d.lagGate()})
	case Shadowing:
		gates := append(both, d.digestGate(), d.workersGate())
		for _, c := range d.r.Order {
			gates = append(gates, d.orderGate(c), d.shadowGate(c))
		}
		return bounded(gates)
	case Ready:
		return d.fenceGates(both)
	case Ramping:
		return d.rampingGates(both)
	case CutOver:
		return bounded(both, []Gate{d.reverseGate(), d.lossGate()})
	case Reversing:
		return bounded(both, []Gate{d.reverseGate(), d.reverseDigestGate()})
	case Draining, Released, Aborting, Aborted, RolledBack:
		return bounded(both)
	default:
		return nil
	}
}

// fenceGates are those that are proved anew at the instant of every fence.
func (d *turn) fenceGates(both []Gate) []Gate {
	return bounded(d.o.Gates, both, []Gate{d.logsGate(), d.workersGate(), d.policyGate(), d.lagGate(), d.computedGate()})
}

func (d *turn) rampingGates(both []Gate) []Gate {
	c := d.next()
	switch {
	case c == 0:
		return bounded(both, []Gate{d.reverseGate(), d.lossGate()})
	case d.lane(c).Phase == Observing:
		return bounded(d.served(), both, []Gate{d.grantsGate(c), d.waitGate(c)}, d.healthGates(c), []Gate{d.reverseGate(), d.lossGate()})
	default:
		return d.fenceGates(both)
	}
}

// served returns what control proves of how the target serves.
func (d *turn) served() []Gate {
	return slices.DeleteFunc(slices.Clone(d.o.Gates), func(g Gate) bool { return !ofHealth(g.Name) })
}

func bounded(lists ...[]Gate) []Gate {
	all := slices.Concat(lists...)
	return all[:min(len(all), GatesMax)]
}

func gate(name string, ok bool, evidence string, args ...any) Gate {
	g := Gate{Name: name, Verdict: Fail, Evidence: fmt.Sprintf(evidence, args...)}
	if ok {
		g.Verdict = Pass
	}
	return g
}

func warn(name, evidence string, args ...any) Gate {
	return Gate{Name: name, Verdict: Warn, Evidence: fmt.Sprintf(evidence, args...)}
}

// reaches is the part of a gate that is about a cell as such; ok says whether the rest needs to be looked at.
func (d *turn) reaches(name string, id cell.ID) (g Gate, ok bool) {
	switch s := d.o.Cell(d.r, id); {
	case s.At == 0:
		return gate(name, false, "%s has not answered yet", id), false
	case !s.Reachable:
		return gate(name, false, "%s has not answered for %s", id, seconds(d.now.Sub(s.Since))), false
	default:
		return gate(name, true, "%s answers, its log commits in %s (p99)", id, seconds(s.CommitP99)), true
	}
}

func (d *turn) logsGate() Gate {
	for _, id := range []cell.ID{d.r.Source, d.r.Target} {
		if p99 := d.o.Cell(d.r, id).CommitP99; p99 > d.cfg.CommitMax {
			return gate(GateLogs, false, "that of %s commits in %s (p99), above %s", id, seconds(p99), seconds(d.cfg.CommitMax))
		}
	}
	return gate(GateLogs, true, "both commit in less than %s (p99)", seconds(d.cfg.CommitMax))
}

func (d *turn) sourceGate() Gate {
	g, ok := d.reaches(GateSource, d.r.Source)
	if !ok {
		return g
	}
	for _, c := range d.r.Order {
		s, l := d.seen(d.r.Source, c), d.lane(c)
		if l.Owner == d.r.Source && l.Phase == AtSource && (!s.Known || s.Mode != cell.ModeOpen) {
			return gate(GateSource, false, "%s does not serve %s: it is %s there", d.r.Source, c, s.mode())
		}
	}
	return g
}

func (d *turn) targetGate() Gate {
	g, _ := d.reaches(GateTarget, d.r.Target)
	return g
}

func (l *LaneSeen) mode() string {
	if !l.Known {
		return "absent"
	}
	return l.Mode.String()
}

func (d *turn) roomGate() Gate {
	for _, c := range d.r.Order {
		if s := d.seen(d.r.Target, c); s.Known && s.Mode == cell.ModeOpen && s.Records > 0 {
			return gate(GateRoom, false, "%s serves %s already, with %d records", d.r.Target, c, s.Records)
		}
	}
	return gate(GateRoom, true, "%s holds nothing of the tenant", d.r.Target)
}

func (d *turn) workersGate() Gate {
	need, offered := d.o.Source.Needed, d.o.Target.Offered
	for _, op := range need {
		if !slices.Contains(offered, op) {
			return gate(GateWorkers, false, "no live worker of %s offers %s", d.r.Target, op)
		}
	}
	return gate(GateWorkers, true, "workers of %s offer all %d operations of the tenant's jobs", d.r.Target, len(need))
}

func (d *turn) canaryGate() Gate {
	for _, id := range []cell.ID{d.r.Source, d.r.Target} {
		if d.o.Cell(d.r, id).Proved != d.r.Attempt {
			return gate(GateCanary, false, "the way to the log of %s is not proved", id)
		}
	}
	return gate(GateCanary, true, "a canary went through the logs of both cells")
}

func (d *turn) stagedGate() Gate {
	for _, c := range d.r.Order {
		switch {
		case !d.fills(c, d.seen(d.r.Target, c)):
			return gate(GateStaged, false, "%s is not staged at %s", c, d.r.Target)
		case !d.seen(d.r.Source, c).Tracked:
			return gate(GateStaged, false, "changes of %s are not tracked at %s", c, d.r.Source)
		}
	}
	return gate(GateStaged, true, "both lanes are staged, and their changes are tracked")
}

func (d *turn) policyGate() Gate {
	s, t := d.o.Source.PolicyEpoch, d.o.Target.PolicyEpoch
	return gate(GatePolicy, t >= s, "the tenant's policy is of epoch %d at %s, of %d at %s", s, d.r.Source, t, d.r.Target)
}

func (d *turn) seedGate() Gate {
	for _, c := range d.r.Order {
		if d.lane(c).Phase == AtSource && d.seen(d.r.Target, c).Cursor.Seeded != SeededAll {
			return gate(GateSeed, false, "jobs of %s are still to be copied", c)
		}
	}
	return gate(GateSeed, true, "every job was copied once")
}

// lagGate is of the classes that are at the source yet.
func (d *turn) lagGate() Gate {
	var records, bytes int64
	for _, c := range d.r.Order {
		if d.lane(c).Phase != AtSource {
			continue
		}
		src, dst := d.seen(d.r.Source, c), d.seen(d.r.Target, c)
		switch {
		case dst.Cursor.Seeded != SeededAll:
			return gate(GateLag, false, "jobs of %s are still to be copied", c)
		case !src.LagKnown:
			return gate(GateLag, false, "how far %s is behind is not known yet", c)
		case src.LagTime > d.cfg.LagTimeMax:
			return gate(GateLag, false, "%s is %s behind, above %s", c, seconds(src.LagTime), seconds(d.cfg.LagTimeMax))
		}
		records, bytes = records+src.LagRecords, bytes+src.LagBytes
	}
	switch {
	case records > d.cfg.LagRecordsMax:
		return gate(GateLag, false, "%d changes behind, above %d", records, d.cfg.LagRecordsMax)
	case bytes > d.cfg.LagBytesMax:
		return gate(GateLag, false, "%d bytes behind, above %d", bytes, d.cfg.LagBytesMax)
	}
	return gate(GateLag, true, "%d changes and %d bytes behind", records, bytes)
}

// digestGate demands equal digests as of one change. A lane that never stands still for long enough was compared while it was copied; from a cell of an earlier
// release no digests come with a copy, and then that both can be computed is all there is to say before the fence, which compares them in any case.
func (d *turn) digestGate() Gate {
	for _, c := range d.r.Order {
		src, dst := d.seen(d.r.Source, c), d.seen(d.r.Target, c)
		switch x := d.comparison(c); {
		case x.differs():
			return gate(GateDigest, false, "%s", x.text(c, d.r.Source, d.r.Target))
		case common(src, dst):
		case src.DigestDone < Whole || dst.DigestDone < Whole:
			return gate(GateDigest, false, "that of %s is computed to %d of 1,000 at the source and %d at the target", c, src.DigestDone, dst.DigestDone)
		case d.now.Sub(max(d.r.Entered, d.r.Resumed)) < d.cfg.ShadowMax:
			return gate(GateDigest, false, "%s is of change %d at the source and of %d at the target", c, src.Change, dst.Cursor.Change)
		case x.Known:
		default:
			return warn(GateDigest, "%s never stood still to be compared: that is done at the fence", c)
		}
	}
	return gate(GateDigest, true, "both cells have the same")
}

// comparison returns what is known of a class in its cell and in the one that is filled with it, as of one change.
func (d *turn) comparison(c cell.Class) Comparison {
	from := d.lane(c).Owner
	src, dst := d.seen(from, c), d.seen(d.r.other(from), c)
	if common(src, dst) {
		return Comparison{Known: true, Change: src.Change, From: src.Digest, To: dst.Digest}
	}
	return dst.Compared
}

// lossGate is of the classes that the target has. They were equal at the fence, and the source follows: if as of a later change they are not, something was lost
// since or done twice, in one of both cells.
func (d *turn) lossGate() Gate {
	g := gate(GateLoss, true, "no class is at %s", d.r.Target)
	for _, c := range d.r.Order {
		if d.lane(c).Owner != d.r.Target {
			continue
		}
		switch x := d.comparison(c); {
		case x.differs():
			return gate(GateLoss, false, "%s", x.text(c, d.r.Target, d.r.Source))
		case !x.Known:
			return warn(GateLoss, "%s was not compared with what follows at %s yet", c, d.r.Source)
		default:
			g = gate(GateLoss, true, "what follows at %s is the same", d.r.Source)
		}
	}
	return g
}

// computedGate demands that no digest is left to be computed at the fence.
func (d *turn) computedGate() Gate {
	for _, c := range d.r.Order {
		if d.lane(c).Phase != AtSource {
			continue
		}
		for _, id := range []cell.ID{d.r.Source, d.r.Target} {
			if done := d.seen(id, c).DigestDone; done < Whole {
				return gate(GateDigest, false, "that of %s is computed to %d of 1,000 at %s", c, done, id)
			}
		}
	}
	return gate(GateDigest, true, "both cells can say theirs at once")
}

func (d *turn) grantsGate(c cell.Class) Gate {
	s := d.seen(d.r.Target, c)
	idle := s.Granted == 0 && s.Ready > 0 && d.o.Target.SlotsUsed < d.o.Target.Slots && d.now.Sub(d.lane(c).ActivatedAt) >= d.cfg.StallTime
	return gate(GateGrants, !idle, "%s was granted %d times at %s, %d are ready", c, s.Granted, d.r.Target, s.Ready)
}

// A class is worse off at the target when its jobs would wait so many times longer than they did, and so much longer. What is known is a prediction, and while
// the classes are apart each cell goes by a part of what the tenant is promised: twice as long is no reason to go back.
const (
	waitWarn  = 2
	waitFail  = 4
	waitSlack = 30 * time.Second
)

func (d *turn) waitGate(c cell.Class) Gate {
	before, wait := d.lane(c).Wait, d.seen(d.r.Target, c).PredictedWait
	slack := before > 0 && wait > before+waitSlack
	g := gate(GateWait, !slack || wait <= waitFail*before, "%s would wait %s at %s; it was %s", c, seconds(wait), d.r.Target, seconds(before))
	if g.Verdict == Pass && slack && wait > waitWarn*before {
		g.Verdict = Warn
	}
	return g
}

// orderGate is of what both schedulers would grant first of a class, as of one change. It warns and never fails: concurrency keys are held where the leases are,
// and what they block is passed by.
func (d *turn) orderGate(c cell.Class) Gate {
	src, dst := d.seen(d.r.Source, c), d.seen(d.r.Target, c)
	if !common(src, dst) {
		return gate(GateOrder, true, "%s changes too often to compare what would be granted first", c)
	}
	n := 0
	for n < FrontMax && src.Front[n] != "" && src.Front[n] == dst.Front[n] {
		n++
	}
	if n == FrontMax || src.Front[n] == dst.Front[n] {
		return gate(GateOrder, true, "%s would grant the same %d jobs of %s first", d.r.Target, n, c)
	}
	g := gate(GateOrder, true, "of %s %s would grant %q after the first %d, and %s %q", c, d.r.Target, dst.Front[n], n, d.r.Source, src.Front[n])
	g.Verdict = Warn
	return g
}

// shadowGate is of the prediction that the target's scheduler makes for a class that it has all of and may not grant, against the source's. It warns and never
// fails: a tenant may be moved to a smaller cell on purpose.
func (d *turn) shadowGate(c cell.Class) Gate {
	here, there := d.seen(d.r.Source, c).PredictedWait, d.seen(d.r.Target, c).PredictedWait
	g := gate(GateWait, true, "a job of %s that is submitted now would wait %s at %s, and %s at %s", c, seconds(there), d.r.Target, seconds(here), d.r.Source)
	if there > here+waitSlack && there > waitWarn*here {
		g.Verdict = Warn
	}
	return g
}

// reverseGate is of the classes that the target has: whether the source follows.
func (d *turn) reverseGate() Gate {
	for _, c := range d.r.Order {
		if d.lane(c).Owner != d.r.Target {
			continue
		}
		src, dst := d.seen(d.r.Source, c), d.seen(d.r.Target, c)
		switch {
		case !d.looked(d.r.Source) || !d.looked(d.r.Target):
			return gate(GateReverseLag, false, "not both cells have answered yet")
		case !d.fills(c, src):
			return gate(GateReverseLag, false, "%s is %s at %s, and does not follow", c, src.mode(), d.r.Source)
		case dst.Broken:
			return gate(GateReverseLag, false, "%s has forgotten changes of %s: the way back is lost", d.r.Target, c)
		case !dst.LagKnown:
			return gate(GateReverseLag, false, "how far the source is behind with %s is not known yet", c)
		case dst.LagTime > d.cfg.ReverseLagMax:
			return gate(GateReverseLag, false, "the source is %s behind with %s, above %s", seconds(dst.LagTime), c, seconds(d.cfg.ReverseLagMax))
		}
	}
	return gate(GateReverseLag, true, "the source follows")
}

// reverseLag is how many times more changes the source may lack of a class that is taken back than the target of one that is switched: whoever reverses is in a
// hurry, and the stream that it follows is looked at seldomer.
const reverseLag = 10

// reverseDigestGate demands that little is left to be copied at the fence, and nothing to be computed.
func (d *turn) reverseDigestGate() Gate {
	for _, c := range d.r.Order {
		if d.lane(c).Owner != d.r.Target {
			continue
		}
		if lag := d.seen(d.r.Target, c).LagRecords; lag > reverseLag*d.cfg.LagRecordsMax {
			return gate(GateLag, false, "the source is %d changes behind with %s, above %d", lag, c, reverseLag*d.cfg.LagRecordsMax)
		}
		for _, id := range []cell.ID{d.r.Source, d.r.Target} {
			if done := d.seen(id, c).DigestDone; done < Whole {
				return gate(GateDigest, false, "that of %s is computed to %d of 1,000 at %s", c, done, id)
			}
		}
	}
	return gate(GateDigest, true, "both cells can say theirs at once")
}
