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
}

func (l *Lane) record() laneRecord {
	return laneRecord{policy: l.Tenant.Policy, class: l.ID.Class, charged: l.Charged, account: l.Account}
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
	w.tenantAccount(&t.account)
	w.uint(uint64(len(t.starts)))
	for _, at := range t.starts {
		w.instant(at)
	}
	w.uint(uint64(len(t.estimates)))
	for _, e := range t.estimates {
		w.text(string(e.operation))
		w.int(int64(e.estimate.Mean))
		w.int(e.estimate.Samples)
	}
}

func (r *reader) tenant() tenantRecord {
	t := tenantRecord{tenant: cell.TenantID(r.text()), account: r.tenantAccount()}
	n := r.uint()
	if n > uint64(len(r.b)) || n > cell.StartsMax {
		r.fail("more starts than bytes")
		return t
	}
	for range n {
		t.starts = append(t.starts, r.instant())
	}
	n = r.uint()
	if n > uint64(len(r.b)/3) { // an estimate takes three bytes at least
		r.fail("more estimates than bytes")
		return t
	}
	for range n {
		t.estimates = append(t.estimates, operationEstimate{
			operation: cell.Operation(r.text()), estimate: cell.Estimate{Mean: cell.Cost(r.int()), Samples: r.int()},
		})
	}
	return t
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
