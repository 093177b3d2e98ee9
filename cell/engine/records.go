package engine

import (
	"github.com/fairlead/fairlead/cell"
)

// laneRecord is a lane as a snapshot has it.
type laneRecord struct {
	policy  cell.TenantPolicy
	class   cell.Class
	charged cell.Cost
	account cell.LaneAccount
	move    laneMove
}

// laneMove is what is to be said of a lane that has moved, or moves, in a record of its own.
type laneMove struct {
	mode               cell.Mode
	epoch              cell.Epoch
	move               cell.Move
	fence, opened      uint64
	change             uint64
	cursor             Cursor
	submitted, granted int64
	wiping             bool
	tracked            bool
	tracking           cell.Move
	since, accepted    uint64 // of the tracker
	inherited          *inherited
	atFence            cell.TenantAccount
}

func (l *Lane) record() laneRecord {
	r := laneRecord{policy: l.Tenant.Policy, class: l.ID.Class, charged: l.Charged, account: l.Account}
	r.move = laneMove{
		mode: l.Mode, epoch: l.Epoch, move: l.Move, fence: l.Fence, opened: l.opened, change: l.Change, cursor: l.Cursor, submitted: l.Submitted,
		granted: l.Granted, wiping: l.wiping, tracked: l.Tracked, inherited: l.inherited,
		atFence: l.atFence,
	}
	if k := l.tracker; k != nil {
		r.move.tracking, r.move.since, r.move.accepted = k.move, k.since, k.accepted
	}
	return r
}

func (w *writer) lanesMove(l *laneRecord) {
	m := &l.move
	w.text(string(l.policy.Tenant))
	w.uint(uint64(l.class))
	w.uint(uint64(m.mode))
	w.uint(uint64(m.epoch))
	w.move(m.move)
	w.uint(m.fence)
	w.uint(m.opened)
	w.uint(m.change)
	w.cursor(m.cursor)
	w.int(m.submitted)
	w.int(m.granted)
	w.bool(m.wiping)
	w.bool(m.tracked)
	w.move(m.tracking)
	w.uint(m.since)
	w.uint(m.accepted)
	w.bool(m.inherited != nil)
	if m.inherited != nil {
		w.inherited(m.inherited)
	}
	w.tenantAccount(&m.atFence)
}

func (r *reader) lanesMove(s *State) (*Lane, laneMove) {
	l := r.laneID(s)
	m := laneMove{
		mode: r.mode(), epoch: cell.Epoch(r.uint()), move: r.move(), fence: r.uint(), opened: r.uint(), change: r.uint(), cursor: r.cursor(),
		submitted: r.int(), granted: r.int(), wiping: r.bool(), tracked: r.bool(), tracking: r.move(), since: r.uint(), accepted: r.uint(),
	}
	if r.bool() {
		in := r.inherited()
		m.inherited = &in
	}
	m.atFence = r.tenantAccount()
	return l, m
}

// changeRecord is the number of a record's last change, in a lane that is tracked.
type changeRecord struct {
	lane   *Lane
	isKey  bool
	id     cell.JobID
	hash   keyHash
	number uint64
	gone   bool
}

func (t *trail) record() changeRecord {
	return changeRecord{lane: t.lane, isKey: t.isKey, id: t.id, hash: t.hash, number: t.number, gone: t.gone()}
}

func (w *writer) change(c *changeRecord) {
	w.laneID(c.lane)
	w.bool(c.isKey)
	w.fixed(c.id[:])
	w.fixed(c.hash[:])
	w.uint(c.number)
	w.bool(c.gone)
}

func (r *reader) change(s *State) changeRecord {
	c := changeRecord{lane: r.laneID(s), isKey: r.bool(), id: r.id()}
	r.fixed(c.hash[:])
	c.number, c.gone = r.uint(), r.bool()
	return c
}

// tenantRecord is what a snapshot has of a tenant beside its lanes.
type tenantRecord struct {
	tenant    cell.TenantID
	account   cell.TenantAccount
	starts    []cell.Instant      // the oldest first
	estimates []operationEstimate // the one observed longest ago first
}

type operationEstimate struct {
	operation cell.Operation
	estimate  cell.Estimate
}

func (t *Tenant) record() tenantRecord {
	r := tenantRecord{tenant: t.Policy.Tenant, account: t.Account, starts: t.starts.list()}
	if n := len(t.estimates.byOperation); n > 0 {
		r.estimates = make([]operationEstimate, 0, n)
	}
	for op, e := range t.Estimates {
		r.estimates = append(r.estimates, operationEstimate{op, e})
	}
	return r
}

// empty reports whether there is nothing to say.
func (r *tenantRecord) empty() bool {
	return r.account == cell.TenantAccount{} && len(r.starts) == 0 && len(r.estimates) == 0
}

func (w *writer) lane(l *laneRecord) {
	w.uint(uint64(l.class))
	w.policy(&l.policy)
	w.int(int64(l.charged))
	w.account(&AccountFact{Lane: cell.Lane{Tenant: l.policy.Tenant, Class: l.class}, Account: l.account})
	if more := promises(&l.policy); more || l.account.Ahead != 0 {
		w.duration(l.account.Ahead)
		if more {
			w.policyMore(&l.policy)
		}
	}
}

func (r *reader) lane() laneRecord {
	l := laneRecord{class: r.class(), policy: r.policy(), charged: cell.Cost(r.int())}
	l.account = r.account().Account
	l.account.Ahead = r.duration()
	r.policyMore(&l.policy)
	return l
}

func (w *writer) tenant(t *tenantRecord) {
	w.text(string(t.tenant))
	w.inherited(&inherited{account: t.account, starts: t.starts, estimates: t.estimates})
}

func (r *reader) tenant() tenantRecord {
	t := tenantRecord{tenant: cell.TenantID(r.text())}
	in := r.inherited()
	t.account, t.starts, t.estimates = in.account, in.starts, in.estimates
	return t
}

func (r *reader) starts() []cell.Instant {
	n := r.uint()
	if n > uint64(len(r.b)) || n > cell.StartsMax {
		r.fail("more starts than bytes")
		return nil
	}
	var starts []cell.Instant
	for range n {
		starts = append(starts, r.instant())
	}
	return starts
}

func (r *reader) estimates() []operationEstimate {
	n := r.uint()
	if n > uint64(len(r.b)/3) { // an estimate takes three bytes at least
		r.fail("more estimates than bytes")
		return nil
	}
	var estimates []operationEstimate
	for range n {
		estimates = append(estimates, operationEstimate{
			operation: cell.Operation(r.text()), estimate: cell.Estimate{Mean: cell.Cost(r.int()), Samples: r.int()},
		})
	}
	return estimates
}

func (w *writer) organization(o *Organization) {
	w.organizationPolicy(&o.Policy)
	w.organizationAccount(&o.Account)
}

func (r *reader) organization() Organization {
	return Organization{Policy: r.organizationPolicy(), Account: r.organizationAccount()}
}

func (w *writer) concurrency(c *concurrency) {
	w.text(string(c.tenant.Policy.Tenant))
	w.text(c.key)
	w.int(c.bound)
}

func (r *reader) concurrency(s *State) *concurrency {
	c := &concurrency{tenant: s.tenants[cell.TenantID(r.text())], key: r.text(), bound: r.int()}
	if c.tenant == nil {
		r.fail("a concurrency key that the snapshot has no tenant for")
	}
	return c
}

func (w *writer) laneID(l *Lane) {
	w.text(string(l.ID.Tenant))
	w.uint(uint64(l.ID.Class))
}

func (r *reader) laneID(s *State) *Lane {
	tenant := cell.TenantID(r.text())
	l := s.Lane(cell.Lane{Tenant: tenant, Class: r.class()})
	if l == nil {
		r.fail("a lane that the snapshot has no tenant for")
	}
	return l
}

func (w *writer) key(k *keyRecord) {
	w.laneID(k.lane)
	w.fixed(k.hash[:])
	w.fixed(k.job[:])
	w.fixed(k.body[:])
	w.uint(k.seq)
	w.instant(k.expires)
}

func (r *reader) key(s *State) *keyRecord {
	k := &keyRecord{lane: r.laneID(s)}
	r.fixed(k.hash[:])
	r.fixed(k.job[:])
	r.fixed(k.body[:])
	k.seq = r.uint()
	k.expires = r.instant()
	return k
}

func (w *writer) job(j *Job) {
	w.fixed(j.ID[:])
	w.uint(j.Seq)
	w.laneID(j.Lane)
	w.spec(&j.Spec)
	w.fixed(j.BodyHash[:])
	w.uint(uint64(j.State))
	w.instant(j.Created)
	w.instant(j.LeasedAt)
	w.instant(j.Finished)
	w.instant(j.WakeAt)
	w.int(int64(j.Attempt))
	w.int(int64(j.Failed))
	w.int(int64(j.Lost))
	w.int(int64(j.Crashes))
	w.lease(&j.Lease)
	w.uint(uint64(j.LastOutcome))
	w.payload(&j.Result)
	w.bool(j.Dropped)
	w.text(j.Error)
	w.int(int64(j.Charged))
	w.uint(j.finishSeq)
	if j.Spec.plain() && j.Lease.Tier == 0 && j.Used == nil && j.Ran == 0 {
		return
	}
	w.uint(uint64(j.Lease.Tier))
	w.duration(j.Ran)
	w.resources(j.Used)
	w.specMore(&j.Spec)
}

func (r *reader) job(s *State) *Job {
	j := &Job{timer: -1}
	r.fixed(j.ID[:])
	j.Seq = r.uint()
	j.Lane = r.laneID(s)
	j.Spec = r.spec()
	r.fixed(j.BodyHash[:])
	j.State = JobState(r.byte())
	if !j.State.Valid() {
		r.fail("a job in no state")
	}
	j.Created, j.LeasedAt, j.Finished, j.WakeAt = r.instant(), r.instant(), r.instant(), r.instant()
	j.Attempt, j.Failed, j.Lost, j.Crashes = r.int32(), r.int32(), r.int32(), r.int32()
	j.Lease = r.lease()
	j.LastOutcome = OutcomeKind(r.byte())
	j.Result = r.payload()
	j.Dropped = r.bool()
	j.Error = r.text()
	j.Charged = cell.Cost(r.int())
	j.finishSeq = r.uint()
	j.Lease.Tier = r.byte()
	j.Ran = r.duration()
	j.Used = r.resources()
	r.specMore(&j.Spec)
	return j
}
