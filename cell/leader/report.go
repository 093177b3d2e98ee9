package leader

import (
	"errors"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
)

func (l *Leader) sealReport(c *Call, r *Report) verdict {
	d := &l.draft
	if r.Results == nil {
		r.Results = make([]engine.Result, len(r.Outcomes))
		l.beginReport(r)
	}
	limit := d.bytes + l.cfg.CallBytesPerEntry
	for ; r.next < len(r.Outcomes); r.next++ {
		if d.bytes >= limit {
			return partly
		}
		o := &r.Outcomes[r.next]
		if _, busy := d.jobs[o.JobID]; busy {
			return deferred
		}
		l.sealOutcome(c, r, o)
	}
	if !l.askAgain(c, r) {
		return deferred
	}
	d.reports = append(d.reports, c)
	return sealed
}

// askAgain lets a report ask for jobs; false when it has to wait, because it repeats one of this very entry. What a lost answer to it carried
// it is given again.
func (l *Leader) askAgain(c *Call, r *Report) bool {
	s := l.sessions[r.Session]
	c.session, c.left = s, 0
	if s == nil {
		return true
	}
	if r.Sequence > 0 {
		switch {
		case s.report != nil && r.Sequence == s.reportSeq:
			return false
		case r.Sequence < s.reportSeq:
			return true // overtaken by a later one: whoever sent it does not wait for jobs any more
		case r.Sequence == s.reportSeq:
			r.Leases = l.redelivered(s, engine.ChannelReport, r.Sequence)
		}
		s.reportSeq = r.Sequence
	}
	s.report = c
	if c.left = r.Want - len(r.Leases); c.left > 0 && (s.offered || s.private()) {
		l.draft.asking = append(l.draft.asking, c)
	}
	return true
}

// beginReport extends the leases that the report names.
func (l *Leader) beginReport(r *Report) {
	s := l.sessions[r.Session]
	if s != nil {
		s.seen = l.draft.now
	}
	for _, x := range r.Extensions {
		le := l.leases.get(x.JobID)
		switch {
		case le != nil && le.token == x.Token && le.session == s && !le.revoked:
			l.extend(le)
		case le != nil && le.parted && le.token == x.Token && le.session == s, l.elsewhere(r.Session.Tenant, x):
			if le != nil && le.parted && le.session == s {
				l.extend(le) // its room
			}
			r.Elsewhere = append(r.Elsewhere, x)
		default:
			r.Cancels = append(r.Cancels, x)
		}
	}
}

func (l *Leader) sealOutcome(c *Call, r *Report, o *Outcome) {
	d := &l.draft
	f := &engine.OutcomeFact{
		ID: o.JobID, Token: o.Token, Kind: o.Kind, Result: o.Result, Error: o.Error,
	}
	if r.Epochs != (Epochs{}) {
		if j := l.state.Job(o.JobID); j != nil {
			f.Epoch = r.Epochs.of(j.Lane.ID.Class)
		}
	}
	le := l.leases.get(o.JobID)
	if le != nil && le.token != o.Token {
		le = nil
	}
	j, pre := l.state.CheckOutcome(f)
	if pre.Err == nil && !pre.Duplicate && (le == nil || le.session.id.Tenant != r.Session.Tenant) {
		pre.Err = engine.ErrLeaseStale // somebody else's worker
	}
	if le != nil && le.parted && errors.Is(pre.Err, engine.ErrJobUnknown) { // its lane was wiped
		pre.Err = l.state.Lane(le.book.lane).CheckLane(0)
	}
	if pre.Err != nil || pre.Duplicate {
		if le != nil && le.revoked && le.session.id.Tenant == r.Session.Tenant {
			l.end(le) // the worker has stopped
		}
		r.Results[r.next] = pre
		return
	}
	f.WakeAt = l.wakeAt(j, o)
	f.Ran, f.Used = l.ran(le, o), o.Used
	f.Charged = l.settle(le, f.Ran, o.Used)
	if o.Kind.Teaches() && !le.private {
		l.sched.Observe(j.Lane.ID.Tenant, j.Spec.Operation, f.Charged)
	}
	l.end(le)
	d.jobs[o.JobID] = struct{}{}
	d.add(f, factBytes+len(o.Result.Data)+len(o.Error), ref{call: c, item: r.next})
	if l.runsAgain(j, o.Kind) && f.WakeAt <= d.entry.Time {
		l.mustAdd(l.itemOf(j))
	}
}

// ran returns how long the attempt ran: what the worker says, as far as that is possible.
func (l *Leader) ran(le *lease, o *Outcome) time.Duration {
	elapsed := le.elapsed(l.draft.now)
	if o.RunTime <= 0 && o.Kind != engine.OutcomeRelease {
		return max(time.Microsecond, elapsed)
	}
	return min(max(0, o.RunTime), elapsed)
}

func (l *Leader) runsAgain(j *engine.Job, kind engine.OutcomeKind) bool {
	switch kind {
	case engine.OutcomeFailure:
		return j.Failed+1 < j.Spec.Retry.AttemptsMax
	case engine.OutcomeRelease, engine.OutcomeLoss, engine.OutcomePreempt:
		return true
	case engine.OutcomeCrash:
		return j.Crashes+1 < l.state.Limits().CrashesMax
	case engine.OutcomeSuccess, engine.OutcomeFatal, engine.OutcomeNone:
		return false
	default:
		return false
	}
}

// wakeAt returns when a job may run again after an outcome.
func (l *Leader) wakeAt(j *engine.Job, o *Outcome) cell.Instant {
	if !l.runsAgain(j, o.Kind) {
		return 0
	}
	switch {
	case o.Delay > 0:
		return l.draft.entry.Time.Add(o.Delay)
	case o.Kind == engine.OutcomeFailure:
		return l.draft.entry.Time.Add(l.backOff(j))
	default:
		return 0
	}
}

// closeReport completes a report whose outcomes are all dealt with: it names what else the worker has to stop.
func (l *Leader) closeReport(c *Call) {
	s, r := c.session, c.Report
	if s == nil || s.revoked == 0 {
		return
	}
	named := make(map[LeaseRef]struct{}, len(r.Cancels))
	for _, x := range r.Cancels {
		named[x] = struct{}{}
	}
	for _, le := range s.held {
		x := LeaseRef{JobID: le.job, Token: le.token}
		if _, ok := named[x]; le.revoked && !le.parted && !ok {
			r.Cancels = append(r.Cancels, x)
		}
	}
}
