package leader

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
)

// Stage asks for an empty lane to be filled from another cell. What its tenant is promised has to fit beside the cell's other promises, as with a
// Policy.
type Stage struct {
	Fact   engine.StageFact
	Result engine.Result
}

// Mode asks for a lane's next mode.
type Mode struct {
	Fact   engine.ModeFact
	Result engine.Result
}

// Track asks for a lane's changes to be numbered so that they can be exported, or not any more.
type Track struct {
	Fact   engine.TrackFact
	Result engine.Result
}

// Import asks for what another cell exported to be applied to a lane.
type Import struct {
	Fact   engine.ImportFact
	Result engine.Result
}

// Wipe asks for records of a lane to be removed that is not the cell's.
type Wipe struct {
	Fact   engine.WipeFact
	Result engine.Result
}

// Prove asks for nothing but to be answered by the log.
type Prove struct {
	Fact   engine.ProveFact
	Result engine.Result
}

// moves is the calls that move lanes, and what the leader keeps of lanes that are not the cell's to run.
type moves struct {
	// turns are calls that change what a lane does: each is sealed alone and before everything else. So nothing of the lane follows in its entry, and
	// the leader, which is not ahead of the state then, makes what it keeps of the lane from the state.
	turns []*Call
	// copies are the calls that do not: they stand at an entry's end. What comes in with them counts against the cell's bounds and numbers its jobs,
	// which everything before them was checked against without it.
	copies []*Call
	// crowded says that the last entry had no room for the first of the copies: it goes first in the next.
	crowded bool
	// away has the jobs that are leased in lanes that are staged, on standby or tombstones: their leases are not this leader's.
	away map[cell.JobID]struct{}
}

// here reports whether the leader has the leases of a lane in that mode.
func here(m cell.Mode) bool { return m == cell.ModeOpen || m == cell.ModeFenced }

// fact returns what a call that moves a lane asks for, and its result; nil of other calls.
func (c *Call) fact() (engine.Fact, *engine.Result) {
	switch {
	case c.Stage != nil:
		return &c.Stage.Fact, &c.Stage.Result
	case c.Mode != nil:
		return &c.Mode.Fact, &c.Mode.Result
	case c.Track != nil:
		return &c.Track.Fact, &c.Track.Result
	case c.Import != nil:
		return &c.Import.Fact, &c.Import.Result
	case c.Wipe != nil:
		return &c.Wipe.Fact, &c.Wipe.Result
	case c.Prove != nil:
		return &c.Prove.Fact, &c.Prove.Result
	default:
		return nil, nil
	}
}

// enqueue takes a call that moves a lane in; false of others.
func (m *moves) enqueue(c *Call) bool {
	switch {
	case c.Stage != nil, c.Mode != nil:
		m.turns = append(m.turns, c)
	case c.Track != nil, c.Import != nil, c.Wipe != nil, c.Prove != nil:
		m.copies = append(m.copies, c)
	default:
		return false
	}
	return true
}

// sealTurn seals the next call that changes what a lane does; false when there is none.
func (l *Leader) sealTurn() bool {
	for len(l.moves.turns) > 0 {
		c := l.moves.turns[0]
		l.moves.turns = slices.Delete(l.moves.turns, 0, 1)
		if s := c.Stage; s != nil {
			if err := l.promiseStaged(&s.Fact.Policy); err != nil {
				s.Result.Err = err
				l.finish(c)
				continue
			}
		}
		f, _ := c.fact()
		l.draft.add(f, factBytes, ref{call: c})
		return true
	}
	return false
}

// promiseStaged runs the scheduler ahead by the policy of a tenant of which a lane is staged, unless a later one is known.
func (l *Leader) promiseStaged(p *cell.TenantPolicy) error {
	if t := l.state.Tenant(p.Tenant); t != nil && p.Epoch < t.Policy.Epoch {
		return nil
	}
	return l.sched.SetTenant(*p)
}

// sealCopies puts copies at the end of the entry, as many as there is room for, and one where nothing else is in it.
func (l *Leader) sealCopies() {
	d, m := &l.draft, &l.moves
	for len(m.copies) > 0 {
		c := m.copies[0]
		size := factBytes
		if c.Import != nil {
			size += len(c.Import.Fact.Records)
		}
		if d.bytes > 0 && d.bytes+size > l.cfg.EntryBytesMax {
			m.crowded, l.more = true, true
			return
		}
		m.copies = slices.Delete(m.copies, 0, 1)
		f, _ := c.fact()
		d.add(f, size, ref{call: c})
	}
	m.crowded = false
}

// settleMove takes the result of a call that moves a lane to it.
func (l *Leader) settleMove(c *Call, result *engine.Result) error {
	_, r := c.fact()
	*r = *result
	l.finish(c)
	if s := c.Stage; s != nil {
		return l.restage(s.Fact.Policy.Tenant)
	}
	return nil
}

// restage makes the scheduler's policy of a tenant the state's: what was staged may be refused, and a tenant that the state does not know reserves
// nothing.
func (l *Leader) restage(id cell.TenantID) error {
	p := cell.TenantPolicy{Tenant: id}
	if t := l.state.Tenant(id); t != nil {
		p, _ = reserved(t)
	}
	if err := l.sched.SetTenant(p); err != nil {
		return fmt.Errorf("tenant %s: %w", id, err)
	}
	return nil
}

// follow brings what the leader keeps up to what an entry did to lanes: to what they do, and to what was copied into them or removed.
func (l *Leader) follow(now cell.Instant, a *engine.Applied) error {
	for _, id := range a.Removed {
		if l.state.Job(id) == nil {
			l.sched.Remove(id)
			delete(l.moves.away, id)
		}
	}
	var errs []error
	for _, j := range a.Imported {
		if l.state.Job(j.ID) == j {
			errs = append(errs, l.imported(j))
		}
	}
	for _, id := range a.Lanes {
		for _, c := range cell.Classes() { // the other lane of a tenant that is new came with it
			if lane := l.state.Lane(cell.Lane{Tenant: id.Tenant, Class: c}); lane.ID == id || lane.Mode != l.book(lane.ID).mode {
				l.turn(lane, now)
			}
		}
	}
	return errors.Join(errs...)
}

// imported makes a job that was copied, into a lane that is not open, wait in the scheduler if it is ready, and not if it is not.
func (l *Leader) imported(j *engine.Job) error {
	l.sched.Remove(j.ID)
	delete(l.moves.away, j.ID)
	var err error
	switch j.State { //nolint:exhaustive // the others neither wait nor are held
	case engine.Ready:
		_, err = l.sched.Add(l.itemOf(j))
	case engine.Leased:
		l.moves.away[j.ID] = struct{}{}
	}
	for _, k := range j.Spec.Keys { // whose bounds it brought from where it was accepted, even one that has ended
		if bound, _, ok := j.Lane.Tenant.Concurrency(k.Key); ok {
			l.sched.Rebound(j.Lane.ID.Tenant, k.Key, bound)
		}
	}
	return err
}

// learnTenant takes over what a lane brought of what is known of its tenant: what its operations cost, and when its jobs started.
func (l *Leader) learnTenant(t *engine.Tenant) {
	id := t.Policy.Tenant
	differs := false
	t.Estimates(func(op cell.Operation, e cell.Estimate) bool {
		differs = l.sched.Estimate(id, op) != e
		return !differs
	})
	if differs {
		for op, e := range t.Estimates {
			l.sched.SetEstimate(id, op, e)
		}
	}
	l.sched.RestoreStarts(id, t.Starts())
}

// boundsOf returns the concurrency keys of a tenant's that the scheduler knows, with their bounds, in no particular order.
func (l *Leader) boundsOf(id cell.TenantID) func(func(string, int64) bool) {
	return func(yield func(string, int64) bool) { l.sched.Bounds(id, yield) }
}

// turn makes what the leader keeps of a lane what belongs to its mode.
func (l *Leader) turn(lane *engine.Lane, now cell.Instant) {
	l.more = true // whatever was held up
	b := l.book(lane.ID)
	was := b.mode
	switch {
	case was == lane.Mode:
		return // it was confirmed at a later epoch
	case lane.Mode == cell.ModeFenced:
		l.sched.Suspend(lane.ID)
		l.freeze(b)
	case lane.Mode != cell.ModeOpen:
		l.sched.Suspend(lane.ID)
		l.part(b, now)
	default:
		if was == cell.ModeFenced {
			l.thaw(b, now)
		} else {
			l.inherit(lane, now)
		}
		l.sched.Resume(lane.ID)
	}
	b.mode = lane.Mode
	if lane.Mode == cell.ModeTombstone {
		l.unreserve(lane.Tenant)
	}
	if a := lane.Tenant.Account; a != l.sched.TenantAccount(lane.ID.Tenant) {
		l.sched.RestoreTenant(lane.ID.Tenant, a) // what it has of credit goes with its lanes
	}
	if lane.Mode == cell.ModeOpen && owes(lane.Account) {
		l.debts.owe(debtor{lane: lane.ID})
	}
}

// unreserve takes back what a tenant reserves once both of its lanes have left: it would be kept from everybody else. Its next policy, or a lane that is staged,
// reserves anew.
func (l *Leader) unreserve(t *engine.Tenant) {
	if p, left := reserved(t); left {
		if err := l.sched.SetTenant(p); err != nil {
			panic("leader: a tenant cannot reserve nothing: " + err.Error())
		}
	}
}

// reserved returns what the scheduler is to know of a tenant's promise, and whether that is less than it is promised, because it has left.
func reserved(t *engine.Tenant) (p cell.TenantPolicy, left bool) {
	p = t.Policy
	for _, c := range cell.Classes() {
		if t.Lane(c).Mode != cell.ModeTombstone {
			return p, false
		}
	}
	p.Reservation = [2]cell.Rate{}
	return p, true
}

// part lets go of the leases of a lane that is not the cell's any more, if it was: they live on elsewhere. Here they are as if revoked, and hold their
// room until their workers have stopped; but nobody is told to stop.
func (l *Leader) part(b *book, now cell.Instant) {
	for _, le := range l.leasesOf(b) {
		if le.revoked {
			continue
		}
		l.moves.away[le.job] = struct{}{}
		l.recalled = slices.DeleteFunc(l.recalled, func(id cell.JobID) bool { return id == le.job })
		le.frozen, le.parted = false, true
		l.grace(le, now)
		l.revoke(le)
	}
}

// inherit takes over what stands in a lane that is the cell's from now on: where it stands with what it is promised, and its leases with a full grace, as
// a new leader does.
func (l *Leader) inherit(lane *engine.Lane, now cell.Instant) {
	l.sched.RestoreLane(lane.ID, lane.Account)
	l.learnTenant(lane.Tenant)
	var jobs []*engine.Job
	for id := range l.moves.away { // order-free: sorted below
		if j := l.state.Job(id); j.Lane == lane {
			jobs = append(jobs, j)
		}
	}
	slices.SortFunc(jobs, func(a, b *engine.Job) int { return cmp.Compare(a.Seq, b.Seq) })
	for _, le := range l.leasesOf(l.book(lane.ID)) {
		le.parted = false // what left and is not among those has ended where the lane was: its worker is to stop
	}
	for _, j := range jobs {
		delete(l.moves.away, j.ID)
		if le := l.leases.get(j.ID); le != nil {
			l.end(le) // one of its own from before, which was revoked: the job does not wait for that worker
		}
		l.adopt(j, now)
	}
}

// leasesOf returns the leases of a lane, in the order of their jobs.
func (l *Leader) leasesOf(b *book) []*lease {
	var leases []*lease
	for _, le := range l.leases.heap {
		if le.book == b {
			leases = append(leases, le)
		}
	}
	slices.SortFunc(leases, func(x, y *lease) int { return slices.Compare(x.job[:], y.job[:]) })
	return leases
}

// freeze stops the time of the lane's leases: whose they are is to be decided, and none may end before.
func (l *Leader) freeze(b *book) {
	for _, le := range l.leasesOf(b) {
		if !le.revoked {
			le.frozen, le.expires = true, never
			l.leases.fix(le)
		}
	}
}

// thaw gives the lane's leases a full grace.
func (l *Leader) thaw(b *book, now cell.Instant) {
	for _, le := range l.leasesOf(b) {
		if !le.frozen {
			continue
		}
		le.frozen = false
		l.grace(le, now)
	}
}

// grace gives a lease its full duration from now, or as long as its worker has to ask again for what it was not given.
func (l *Leader) grace(le *lease, now cell.Instant) {
	d := le.duration
	if le.undelivered {
		d = min(d, repeatGrace)
	}
	le.expires = now.Add(d)
	l.leases.fix(le)
}

// elsewhere reports whether a lease that a worker names is of a job whose lane is not the cell's: whoever has the lane knows of it.
func (l *Leader) elsewhere(tenant cell.TenantID, x LeaseRef) bool {
	j := l.state.Job(x.JobID)
	return j != nil && !here(j.Lane.Mode) && (tenant == "" || tenant == j.Lane.ID.Tenant)
}

// Predict returns about how long a job would wait that is submitted to a lane now, if the lane were open; 0 when that is not known, or it would not
// wait. It is a write to the scheduler: not beside readers.
func (l *Leader) Predict(lane cell.Lane) time.Duration {
	wait, _ := l.sched.Forecast(lane)
	return wait
}

// Shadow returns the jobs, at most n and sched.FrontMax, that would be granted first in a lane, in their order, if it were open and its workers
// offered everything. It grants nothing.
func (l *Leader) Shadow(lane cell.Lane, n int) []cell.JobID { return l.sched.Front(lane, n) }
