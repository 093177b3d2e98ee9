package leader

import (
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	"github.com/fairlead/fairlead/cell/sched"
)

// Leader seals entries. See the package's comment.
type Leader struct {
	cfg   Config
	state *engine.State
	sched *sched.Scheduler

	calls []*Call // not sealed yet, in the order of their coming
	// The open polls of the cell's own workers and of tenants' workers.
	polls, privatePolls pollList
	sessions            map[SessionID]*session
	tenantSessions      map[cell.TenantID]int
	slots, room         int64 // of the cell's own workers
	leases              leaseTable
	books               map[cell.Lane]*book
	debts               debts
	moves               moves
	recalled            []cell.JobID // to be taken back for another class, once their grants are committed
	drain               drainRate

	draft    draft
	inFlight bool
	more     bool         // there is something to seal though no call came in
	last     cell.Instant // the last time it was told
	swept    cell.Instant // when sessions were swept
	massLoss cell.Instant // when most leases were last lost together: those of sessions not heard of since are among them
	// Since the leader began: submissions refused, leases taken back for another class.
	rejected, preempted uint64
}

// New returns a leader for a cell's state, which nobody else changes from then on but through Applied's entries. It counts every lease as
// just granted. It returns an error when the configuration is at fault.
func New(cfg Config, state *engine.State, now cell.Instant) (*Leader, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	// What was promised under another capacity holds: the cell's own does not keep it from starting.
	filling := cfg.Sched
	var capacity [2]cell.Rate
	for i := range filling.Bulkheads {
		b := &filling.Bulkheads[i]
		capacity[i], b.Capacity = b.Capacity, 0
	}
	s, err := sched.New(filling, max(now, state.Time()))
	if err != nil {
		return nil, err
	}
	l := &Leader{
		cfg: cfg, state: state, sched: s, sessions: map[SessionID]*session{}, tenantSessions: map[cell.TenantID]int{},
		leases: newLeaseTable(), books: map[cell.Lane]*book{}, debts: debts{in: map[debtor]struct{}{}},
		moves: moves{away: map[cell.JobID]struct{}{}}, last: now,
	}
	l.draft.reset(now, now, 0)
	if err := l.fill(now); err != nil {
		return nil, err
	}
	s.BoundCapacity(capacity)
	return l, nil
}

// fill makes the scheduler and the leases from the state.
func (l *Leader) fill(now cell.Instant) error {
	if err := l.fillPolicies(); err != nil {
		return err
	}
	var err error
	l.state.Jobs(func(j *engine.Job) bool {
		switch j.State {
		case engine.Ready:
			_, err = l.sched.Add(l.itemOf(j))
		case engine.Leased:
			if here(j.Lane.Mode) {
				l.adopt(j, now)
			} else {
				l.moves.away[j.ID] = struct{}{}
			}
		case engine.Delayed, engine.Succeeded, engine.Failed, engine.Cancelled, engine.Expired, engine.Quarantined:
		}
		return err == nil
	})
	return err
}

// fillPolicies tells the scheduler what everybody is promised, what they have had of it, and what is known of them.
func (l *Leader) fillPolicies() error {
	for _, o := range l.state.Organizations() {
		id := o.Policy.Organization
		if err := l.sched.SetOrganization(o.Policy); err != nil {
			return fmt.Errorf("organization %s: %w", id, err)
		}
		l.sched.RestoreOrganization(id, o.Account)
		if owes(o.Account.Lanes[0]) || owes(o.Account.Lanes[1]) {
			l.debts.owe(debtor{organization: id})
		}
	}
	for _, t := range l.state.Tenants() {
		id := t.Policy.Tenant
		p, _ := reserved(t)
		if err := l.sched.SetTenant(p); err != nil {
			return fmt.Errorf("tenant %s: %w", id, err)
		}
		if t.Account != (cell.TenantAccount{}) {
			l.sched.RestoreTenant(id, t.Account)
		}
		if at := t.Starts(); len(at) > 0 {
			l.sched.RestoreStarts(id, at)
		}
		for op, e := range t.Estimates {
			l.sched.SetEstimate(id, op, e)
		}
		for _, c := range cell.Classes() {
			lane := t.Lane(c)
			if lane.Mode != cell.ModeOpen {
				l.sched.Suspend(lane.ID)
				l.book(lane.ID).mode = lane.Mode
			}
			if lane.Account == (cell.LaneAccount{}) {
				continue
			}
			l.sched.RestoreLane(lane.ID, lane.Account)
			if lane.Mode == cell.ModeOpen && owes(lane.Account) {
				l.debts.owe(debtor{lane: lane.ID})
			}
		}
	}
	return nil
}

// itemOf returns a job that the state has as the scheduler takes it.
func (l *Leader) itemOf(j *engine.Job) sched.Item {
	it := l.item(j.ID, j.Lane.ID, &j.Spec, j.Seq, j.Created)
	it.Keys = boundsNow(j.Lane.Tenant, it.Keys)
	return it
}

// item is itemOf for one that is being submitted.
func (l *Leader) item(id cell.JobID, lane cell.Lane, spec *engine.Spec, seq uint64, created cell.Instant) sched.Item {
	it := sched.Item{
		ID: id, Lane: lane, Operation: spec.Operation, Seq: seq, Created: created, Priority: spec.Priority,
		Deadline: spec.Deadline, Cost: spec.Cost, Bytes: int64(len(spec.Payload.Data)), Keys: spec.Keys, Preemptible: spec.Preemptible,
	}
	if it.Cost == 0 && spec.Resources != nil {
		it.Cost = l.cfg.Costing.Of(0, *spec.Resources)
	}
	return it
}

// boundsNow returns a job's concurrency keys with the bounds that hold for them: those of the job of each that was accepted last.
func boundsNow(t *engine.Tenant, keys []cell.ConcurrencyKey) []cell.ConcurrencyKey {
	cloned := false
	for i := range keys {
		bound, _, ok := t.Concurrency(keys[i].Key)
		if !ok || bound == keys[i].Max {
			continue
		}
		if !cloned {
			keys, cloned = slices.Clone(keys), true
		}
		keys[i].Max = bound
	}
	return keys
}

// Enqueue takes a call in; Seal deals with it.
func (l *Leader) Enqueue(c *Call) {
	if !l.moves.enqueue(c) {
		l.calls = append(l.calls, c)
	}
}

// Abandon tells the leader that nobody waits for a poll any more. What it was granted meanwhile goes back free when its session cannot be
// given it again.
func (l *Leader) Abandon(c *Call) {
	if c.Poll == nil || c.Poll.abandoned {
		return
	}
	c.Poll.abandoned = true
	if c.done {
		l.undelivered(c.Poll, l.last)
	} else if c.session != nil {
		l.pollsOf(c.session).hurry(l.last)
	}
}

// InFlight reports whether an entry was sealed and neither Applied nor Failed was called since.
func (l *Leader) InFlight() bool { return l.inFlight }

// Seal returns the next entry to propose, and nil when nothing needs one, with the calls that are done without it. seed makes the entry's
// nonces and back-offs. It must not be called while an entry is in flight.
func (l *Leader) Seal(now cell.Instant, seed uint64) (*engine.Entry, []*Call) {
	if l.inFlight {
		panic("leader: sealing while an entry is in flight")
	}
	d := &l.draft
	d.reset(now, max(now, l.state.Time()), seed)
	l.more = false
	l.passTime(now)
	if l.state.Index() == 0 || l.state.Limits() != l.cfg.Limits {
		// Alone: what else there is must be checked by the limits that it will be applied under.
		d.add(&engine.LimitsFact{Limits: l.cfg.Limits}, factBytes, ref{})
		l.inFlight = true
		return d.entry, d.done
	}
	if l.sealTurn() {
		l.inFlight = true
		return d.entry, d.done
	}
	if l.moves.crowded {
		l.sealCopies()
		l.moves.crowded = false // the others have the next entry, whatever is left
		l.inFlight, l.more = true, true
		return d.entry, d.done
	}
	l.sealCalls()
	l.expireLeases() // after the calls: an outcome that came in time counts
	l.chargeOverruns()
	l.grant()
	l.preempt() // after the grants: what is free by now need not be taken back
	l.closePolls(&l.polls)
	l.closePolls(&l.privatePolls)
	l.sweepSessions()
	l.account()
	l.sealCopies()
	if d.entry.Empty() {
		if at := l.state.NextTimer(); at == 0 || at > d.entry.Time {
			return nil, d.done
		}
	}
	l.inFlight = true
	return d.entry, d.done
}

// passTime lets the scheduler's time pass, forgives debt for slot time that nobody wanted, and gives leases a full grace after a pause.
func (l *Leader) passTime(now cell.Instant) {
	l.sched.Advance(l.draft.entry.Time)
	elapsed := now.Sub(l.last)
	l.last = now
	if elapsed <= 0 {
		return
	}
	if elapsed >= l.cfg.PauseMin && l.leases.len() > 0 {
		l.leases.graceAll(now)
	}
	if !l.sched.Starved() {
		free := l.slots - l.sched.Use(cell.ClassInteractive).Used - l.sched.Use(cell.ClassBatch).Used
		if free > 0 {
			l.sched.Idle(free * elapsed.Microseconds())
		}
	}
	_, ended := l.state.Totals()
	l.drain.observe(now, ended)
}

// Applied takes the result of the entry in flight, which is committed, and returns the calls that are done by it.
func (l *Leader) Applied(now cell.Instant, a engine.Applied) ([]*Call, error) {
	if !l.inFlight {
		panic("leader: nothing is in flight")
	}
	l.inFlight = false
	d := &l.draft
	d.done = nil
	d.now = now
	var refused error
	for i := range a.Results {
		if err := l.settleFact(d.refs[i], &a.Results[i]); err != nil && refused == nil {
			refused = fmt.Errorf("fact %d, %T: %w", i, d.entry.Facts[i], err)
		}
	}
	if err := l.follow(now, &a); err != nil && refused == nil {
		refused = err
	}
	for _, j := range a.Woken {
		l.more = true
		if _, err := l.sched.Add(l.itemOf(j)); err != nil && refused == nil {
			refused = err
		}
	}
	for _, j := range a.Expired {
		l.sched.Remove(j.ID)
	}
	for _, c := range d.answer {
		if c.Report != nil {
			l.closeReport(c)
		}
		l.finish(c)
	}
	return d.done, refused
}

// Failed gives up the entry in flight: it was not applied, or nobody knows. Every call, open polls included, ends with err. The leader must not
// be used any more: a new one is made from the state.
func (l *Leader) Failed(err error) []*Call {
	l.inFlight = false
	seen := map[*Call]bool{}
	var done []*Call
	fail := func(c *Call) {
		if c != nil && !c.done && !seen[c] {
			seen[c] = true
			c.Err, c.done = err, true
			done = append(done, c)
		}
	}
	for _, r := range l.draft.refs {
		fail(r.call)
	}
	for _, c := range l.draft.answer {
		fail(c)
	}
	for _, c := range slices.Concat(l.calls, l.moves.turns, l.moves.copies) {
		fail(c)
	}
	for _, polls := range []*pollList{&l.polls, &l.privatePolls} {
		for c := polls.first; c != nil; c = c.next {
			fail(c)
		}
		*polls = pollList{}
	}
	l.calls, l.moves.turns, l.moves.copies = nil, nil, nil
	return done
}

// Wake returns when Seal should be called again even if nothing comes in; 0 for never. A time that has passed means at once, after the entry
// in flight if there is one.
func (l *Leader) Wake() cell.Instant {
	if l.more || len(l.calls)+len(l.moves.turns)+len(l.moves.copies) > 0 {
		return l.last
	}
	at := l.state.NextTimer()
	sooner := func(t cell.Instant) {
		if t != 0 && (at == 0 || t < at) {
			at = t
		}
	}
	sooner(l.leases.due())
	sooner(l.sched.Wake(l.draft.entry.Time))
	sooner(l.polls.due)
	sooner(l.privatePolls.due)
	if len(l.sessions) > 0 {
		sooner(l.last.Add(tick))
	}
	return at
}

// tick is how often a leader with sessions looks at the clock at least: a later look than PauseMin means that it stood still.
const tick = 1e9

// Rejected returns how many submissions were refused since the leader began.
func (l *Leader) Rejected() uint64 { return l.rejected }

// Preempted returns how many leases were taken back for another class since the leader began.
func (l *Leader) Preempted() uint64 { return l.preempted }

// Policy returns the policy by which the leader schedules.
func (l *Leader) Policy() sched.Policy { return l.cfg.Sched.Policy }

// finish hands a call back to its owner.
func (l *Leader) finish(c *Call) {
	if c.done {
		return
	}
	c.done = true
	if c.Poll != nil && c.Poll.abandoned {
		l.undelivered(c.Poll, l.draft.now)
	}
	l.draft.done = append(l.draft.done, c)
}
