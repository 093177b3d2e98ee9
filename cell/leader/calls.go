package leader

import (
	"errors"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	"github.com/fairlead/fairlead/cell/sched"
)

// verdict is how far a call came in the entry being sealed.
type verdict uint8

const (
	sealed   verdict = iota // nothing of it is left to seal
	partly                  // it has used up its part of the entry
	deferred                // its next item is about something that the entry holds already: it waits for the next one
)

// sealCalls puts calls into the entry. Each in turn fills at most its part, until the entry is full: a bulk does not hold up what comes
// behind it.
func (l *Leader) sealCalls() {
	d := &l.draft
	waiting := l.calls
	var rest []*Call
	for len(waiting) > 0 && d.bytes < l.cfg.EntryBytesMax {
		var more []*Call
		for i, c := range waiting {
			if d.bytes >= l.cfg.EntryBytesMax {
				more = append(more, waiting[i:]...)
				break
			}
			switch l.sealCall(c) {
			case partly:
				more = append(more, c)
			case deferred:
				rest = append(rest, c)
			case sealed:
			}
		}
		waiting = more
	}
	if len(rest)+len(waiting) == 0 {
		clear(l.calls)
		l.calls = l.calls[:0]
		return
	}
	l.calls = append(rest, waiting...)
}

func (l *Leader) sealCall(c *Call) verdict {
	switch {
	case c.Submit != nil:
		return l.sealSubmit(c, c.Submit)
	case c.Report != nil:
		return l.sealReport(c, c.Report)
	case c.Poll != nil:
		l.openPoll(c, c.Poll)
		return sealed
	case c.Cancel != nil:
		return l.sealCancel(c, c.Cancel)
	case c.Retry != nil:
		return l.sealRetry(c, c.Retry)
	case c.Policy != nil:
		return l.sealPolicy(c, c.Policy)
	default:
		panic("leader: a call that asks for nothing")
	}
}

// finishIdle finishes a call of which nothing is in flight.
func (l *Leader) finishIdle(c *Call) verdict {
	if c.pending == 0 {
		l.finish(c)
	}
	return sealed
}

// factBytes is about what a fact takes in the log beside its payload.
const factBytes = 160

func (l *Leader) sealSubmit(c *Call, s *Submit) verdict {
	d := &l.draft
	if s.Results == nil {
		s.Results = make([]engine.Result, len(s.Items))
	}
	limit := d.bytes + l.cfg.CallBytesPerEntry
	for ; s.next < len(s.Items); s.next++ {
		if d.bytes >= limit {
			return partly
		}
		f := &s.Items[s.next]
		f.Epoch = s.Epochs.of(f.Class)
		b := l.book(cell.Lane{Tenant: f.Tenant, Class: f.Class})
		if d.keyTaken(b, f.Spec.Key) {
			return deferred
		}
		if r, done := l.state.Precheck(f, d.extra(b)); done {
			if _, opening := d.tenants[f.Tenant]; opening && errors.Is(r.Err, engine.ErrTenantUnknown) {
				return deferred
			}
			s.Results[s.next] = l.refusal(b, r)
			continue
		}
		if !l.accept(c, s.next, b, f) {
			s.Results[s.next] = l.refusal(b, engine.Result{JobID: f.ID, Err: engine.ErrJobIDTaken})
		}
	}
	return l.finishIdle(c)
}

// refusal completes the result of a submission that is not logged.
func (l *Leader) refusal(b *book, r engine.Result) engine.Result {
	if r.Err == nil || errors.As(r.Err, new(*engine.LaneError)) {
		return r // its lane's home takes it
	}
	l.rejected++
	if limit := (*cell.LimitError)(nil); errors.As(r.Err, &limit) {
		jobs, _ := l.state.Live()
		if lane := l.state.Lane(b.lane); lane != nil && limit.Scope == cell.ScopeLane {
			jobs, _ = lane.Live()
		}
		told := *limit
		told.RetryAfter = max(told.RetryAfter, l.drain.wait(jobs))
		r.Err = &told
	}
	return r
}

// accept seals a submission, and runs the scheduler ahead by it; false when the entry has a job of its id already.
func (l *Leader) accept(c *Call, item int, b *book, f *engine.SubmitFact) bool {
	d := &l.draft
	accepted, _ := l.state.Totals()
	seq := accepted + d.accepted + 1
	if f.Spec.NotBefore > d.entry.Time {
		if l.sched.Waits(f.ID) || !d.claim(f.ID) {
			return false
		}
		l.bind(f.Tenant, f.Spec.Keys, seq)
	} else {
		it := l.item(f.ID, b.lane, &f.Spec, seq, d.entry.Time)
		if d.busy(f.ID) || !l.mustAdd(it) {
			return false
		}
	}
	d.add(f, factBytes+len(f.Spec.Payload.Data)+len(f.Spec.Key), ref{call: c, item: item})
	d.accepted++
	d.grow(b, f.Spec.Bytes())
	d.takeKey(b, f.Spec.Key)
	b.retries = min(retriesMax, b.retries+l.cfg.RetryShare)
	return true
}

func (d *draft) keyTaken(b *book, key string) bool {
	if key == "" {
		return false
	}
	_, taken := d.keys[laneKey{b, key}]
	return taken
}

func (d *draft) takeKey(b *book, key string) {
	if key != "" {
		d.keys[laneKey{b, key}] = struct{}{}
		d.cell.Keys++
	}
}

func (l *Leader) sealCancel(c *Call, x *Cancel) verdict {
	d := &l.draft
	j := l.state.JobOf(x.Tenant, x.JobID)
	switch {
	case j == nil:
		x.Result = engine.Result{JobID: x.JobID, Err: engine.ErrJobUnknown}
		return l.finishIdle(c)
	case l.refused(&x.Result, j, x.Epochs):
		return l.finishIdle(c)
	case j.State.Ended():
		x.Result = engine.Result{JobID: j.ID, State: j.State, Duplicate: true}
		return l.finishIdle(c)
	case !d.claim(x.JobID):
		return deferred
	}
	f := &engine.CancelFact{ID: x.JobID, Tenant: x.Tenant, Epoch: x.Epochs.of(j.Lane.ID.Class)}
	if le := l.leases.get(x.JobID); le != nil && !le.revoked {
		f.Charged = l.settle(le, le.elapsed(d.now), nil)
		l.revoke(le)
	}
	l.sched.Remove(x.JobID)
	d.add(f, factBytes, ref{call: c})
	return sealed
}

// refused says in a result why a job's lane takes nothing of a caller who knows those epochs; false when it does.
func (l *Leader) refused(r *engine.Result, j *engine.Job, known Epochs) bool {
	err := j.Lane.CheckLane(known.of(j.Lane.ID.Class))
	if err != nil {
		*r = engine.Result{JobID: j.ID, Err: err}
	}
	return err != nil
}

func (l *Leader) sealRetry(c *Call, x *Retry) verdict {
	d := &l.draft
	f := &engine.RetryFact{ID: x.JobID, Tenant: x.Tenant}
	j := l.state.JobOf(x.Tenant, x.JobID)
	extra := d.cell
	var b *book
	if j != nil {
		b = l.book(j.Lane.ID)
		extra = d.extra(b)
		f.Epoch = x.Epochs.of(j.Lane.ID.Class)
	}
	if x.Result = l.state.PrecheckRetry(f, extra); x.Result.Err != nil {
		return l.finishIdle(c)
	}
	// The job takes its key again, which a submission in this entry may have.
	if d.keyTaken(b, j.Spec.Key) || !d.claim(x.JobID) {
		return deferred
	}
	d.takeKey(b, j.Spec.Key)
	if le := l.leases.get(x.JobID); le != nil {
		l.end(le) // cancelled while it ran: the retry does not wait for the old worker, whose token is void
	}
	d.grow(b, j.Bytes())
	it := l.itemOf(j)
	if it.Deadline <= d.entry.Time {
		it.Deadline = 0 // the state drops a deadline that has passed
	}
	l.mustAdd(it)
	d.add(f, factBytes, ref{call: c})
	return sealed
}

func (l *Leader) sealPolicy(c *Call, p *Policy) verdict {
	d := &l.draft
	if p.Results == nil {
		p.Results = make([]engine.Result, p.len())
	}
	limit := d.bytes + l.cfg.CallBytesPerEntry
	for ; p.next < p.len(); p.next++ {
		if d.bytes >= limit {
			return partly
		}
		var f engine.Fact
		var done bool
		if n := len(p.Organizations); p.next < n {
			f, p.Results[p.next], done = l.promiseOrganization(&p.Organizations[p.next])
		} else {
			f, p.Results[p.next], done = l.promiseTenant(&p.Policies[p.next-n])
		}
		if !done {
			return deferred
		}
		if f != nil {
			d.add(f, factBytes, ref{call: c, item: p.next})
		}
	}
	return l.finishIdle(c)
}

// promiseOrganization runs the scheduler ahead by an organization's policy, and returns the fact to seal, or the result when there is none; false when
// it has to wait for the next entry.
func (l *Leader) promiseOrganization(p *cell.OrganizationPolicy) (engine.Fact, engine.Result, bool) {
	d := &l.draft
	if _, taken := d.organizations[p.Organization]; taken {
		return nil, engine.Result{}, false
	}
	if o := l.state.Organization(p.Organization); o != nil {
		switch {
		case o.Policy == *p:
			return nil, engine.Result{Duplicate: true}, true
		case p.Epoch < o.Policy.Epoch:
			return nil, engine.Result{Err: engine.ErrPolicyStale}, true
		}
	}
	if err := l.sched.SetOrganization(*p); err != nil {
		return nil, engine.Result{Err: err}, true
	}
	d.organizations[p.Organization] = struct{}{}
	return &engine.OrganizationFact{Policy: *p}, engine.Result{}, true
}

// promiseTenant is promiseOrganization for a tenant.
func (l *Leader) promiseTenant(p *cell.TenantPolicy) (engine.Fact, engine.Result, bool) {
	d := &l.draft
	if _, taken := d.tenants[p.Tenant]; taken {
		return nil, engine.Result{}, false
	}
	if t := l.state.Tenant(p.Tenant); t != nil {
		switch {
		case t.Policy == *p && !returns(t):
			return nil, engine.Result{Duplicate: true}, true
		case p.Epoch < t.Policy.Epoch:
			return nil, engine.Result{Err: engine.ErrPolicyStale}, true
		}
	}
	if err := l.sched.SetTenant(*p); err != nil {
		return nil, engine.Result{Err: err}, true
	}
	d.tenants[p.Tenant] = struct{}{}
	return &engine.PolicyFact{Policy: *p}, engine.Result{}, true
}

// returns reports whether a policy that the state has already would open the tenant's lanes: all of it has left since, and nothing is left behind,
// at an epoch below the policy's.
func returns(t *engine.Tenant) bool {
	for _, c := range cell.Classes() {
		lane := t.Lane(c)
		live, _ := lane.Live()
		ended, _ := lane.Finished()
		if lane.Mode != cell.ModeTombstone || live+ended+lane.Keys() > 0 || t.Policy.Epoch <= lane.Epoch {
			return false
		}
	}
	return true
}

// settleFact takes the result of one fact to whoever asked for it. It returns an error when the state refused what was sealed on it,
// which means that the leader's view was wrong.
func (l *Leader) settleFact(r ref, result *engine.Result) error {
	if r.lease != nil {
		return l.granted(r, result)
	}
	c := r.call
	if c == nil {
		return result.Err
	}
	c.pending--
	var unexpected error
	switch {
	case c.Submit != nil:
		c.Submit.Results[r.item] = *result
		if result.State == engine.Delayed { // again: what came back in the same entry may have brought an older bound
			l.rebind(result.JobID)
		}
		unexpected = result.Err
		if c.pending == 0 && c.Submit.next == len(c.Submit.Items) {
			l.finish(c)
		}
	case c.Report != nil:
		c.Report.Results[r.item] = *result // finished with the entry's answers
		unexpected = result.Err
	case c.Cancel != nil:
		c.Cancel.Result = *result
		l.finish(c)
	case c.Retry != nil:
		c.Retry.Result = *result
		if result.Err != nil {
			l.retryRefused(c.Retry.JobID)
		}
		l.finish(c)
	case c.Policy != nil:
		c.Policy.Results[r.item] = *result
		unexpected = result.Err
		if c.pending == 0 && c.Policy.next == c.Policy.len() {
			l.finish(c)
		}
	default:
		unexpected = l.settleMove(c, result)
	}
	return unexpected
}

// bind tells the scheduler of the bounds that a job brings which waits for its time, and so is not the scheduler's yet.
func (l *Leader) bind(tenant cell.TenantID, keys []cell.ConcurrencyKey, seq uint64) {
	for _, k := range keys {
		l.sched.Bound(tenant, k, seq)
	}
}

// rebind is bind for a job that the state has by now.
func (l *Leader) rebind(id cell.JobID) {
	if j := l.state.Job(id); j != nil {
		l.bind(j.Lane.ID.Tenant, j.Spec.Keys, j.Seq)
	}
}

// retryRefused takes back what the leader did ahead for a retry: an end in the same entry can push a finished job over its lane's bounds, so that
// there is nothing left to retry.
func (l *Leader) retryRefused(id cell.JobID) {
	if l.sched.Remove(id) {
		return
	}
	if le := l.leases.get(id); le != nil {
		l.chargeInAll(le, 0)
		l.end(le)
		le.void = true
	}
}

// mustAdd makes a job wait in the scheduler; false when one of its id waits already. The scheduler has room for the lanes of every tenant
// whose policy it took.
func (l *Leader) mustAdd(it sched.Item) bool {
	added, err := l.sched.Add(it)
	if err != nil {
		panic("leader: " + err.Error())
	}
	return added
}

// backOff returns how long a job waits after its failed-th failed attempt: exponential with full jitter (Brooker, "Exponential Backoff and
// Jitter", 2015). When its lane has no retries left and others wait, it is as long as it might have been, and spread over some more.
func (l *Leader) backOff(j *engine.Job) time.Duration {
	r := &j.Spec.Retry
	ceiling := r.DelayMax
	if n := min(j.Failed, 62); r.DelayMin <= r.DelayMax>>n {
		ceiling = r.DelayMin << n
	}
	if b := l.book(j.Lane.ID); b.retries >= 1 {
		b.retries--
	} else if l.sched.Starved() {
		hold := max(ceiling, l.cfg.RetryHold)
		return hold + l.draft.jitter(hold/4)
	}
	return l.draft.jitter(ceiling)
}

// jitter returns a random duration below d, and 0 when d is none.
func (d *draft) jitter(below time.Duration) time.Duration {
	if below <= 0 {
		return 0
	}
	return time.Duration(d.random() % uint64(below))
}
