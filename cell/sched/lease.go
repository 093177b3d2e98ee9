package sched

import (
	"cmp"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/drr"
	"github.com/fairlead/fairlead/cell/tree"
)

// Held is a lease: a job that somebody holds.
type Held struct {
	Job       cell.JobID
	Lane      cell.Lane
	Operation cell.Operation
	Keys      []cell.ConcurrencyKey
	Seq       uint64 // order of the job's acceptance
	// Private says that it is on the tenant's own worker: it takes no slot of the cell's and is charged to nobody.
	Private bool
	// Tier is which accounts it is charged to; tree.TierNone counts as tree.TierShared where it is not private.
	Tier tree.Tier
	// Offer is whose set it was granted from, where Offered.
	Offer       OfferID
	Offered     bool
	Charged     cell.Cost // so far
	Granted     cell.Instant
	Preemptible bool
}

// lease is what the scheduler keeps of a lease.
type lease struct {
	job     *job
	keys    keySet
	tier    tree.Tier
	offer   OfferID
	offered bool
	private bool
	ending  bool // Preempt has named it, or it was stopped: its room is to come
	stopped bool // it is over but for its room
	spared  bool // calling it back would give the other class nothing
	charged cell.Cost
	granted cell.Instant
	due     cell.Instant // when it has run for what it was charged; 0 for never

	at       int   // in leases.all
	dueAt    int32 // in leases.due while due is not 0
	victimAt int32 // in leases.victims
	victim   bool  // it is in there
}

// leases is every lease.
type leases struct {
	all     []*lease
	due     heap[*lease, dueOrder]
	victims [2][drr.MaxSets]heap[*lease, youngest] // those that may be revoked for the other class, by class and offer set
	ending  [2]int64                               // those of the class whose room is to come
}

// dueOrder is the order in which leases have run for what they were charged.
type dueOrder struct{}

func (dueOrder) before(a, b *lease) bool {
	return a.due < b.due || a.due == b.due && compareAge(a.job, b.job) < 0
}
func (dueOrder) place(le *lease) *int32 { return &le.dueAt }

// youngest is the order in which leases are revoked: who has run for the shortest time loses the least.
type youngest struct{}

func (youngest) before(a, b *lease) bool {
	return cmp.Or(cmp.Compare(b.granted, a.granted), compareAge(b.job, a.job)) < 0
}
func (youngest) place(le *lease) *int32 { return &le.victimAt }

// Hold counts a lease that Next did not grant: one found in the state when the scheduler is filled anew. Limits do not refuse it: they hold
// back what comes after it. It panics when the job is held already, or its tenant is not known.
func (s *Scheduler) Hold(h Held) {
	s.goOn()
	t := s.tenant(h.Lane.Tenant)
	j := s.jobs[h.Job]
	switch {
	case t == nil:
		panic(fmt.Sprintf("sched: %v is held by tenant %s, which is not known", h.Job, h.Lane.Tenant))
	case j != nil && j.lease != nil:
		panic(fmt.Sprintf("sched: %v is held twice", h.Job))
	case j != nil: // it waits again, for this lease to end
		s.unqueue(j)
		j.parked = true
	default:
		j = s.newJob(t, Item{
			ID: h.Job, Lane: h.Lane, Operation: h.Operation, Seq: h.Seq, Keys: h.Keys, Preemptible: h.Preemptible,
		})
	}
	le := s.lease(j, s.keysFor(t, h.Keys, h.Seq))
	le.private, le.tier, le.offer, le.offered = h.Private, h.Tier, h.Offer, h.Offered && !h.Private
	if !h.Private && h.Tier == tree.TierNone {
		le.tier = tree.TierShared
	}
	le.charged, le.granted = min(max(0, h.Charged), cell.CostMax), h.Granted
	s.held(le)
	s.filled(&le.keys)
}

// keysFor returns what of a job's concurrency keys counts.
func (s *Scheduler) keysFor(t *tenant, keys []cell.ConcurrencyKey, seq uint64) keySet {
	if len(keys) == 0 || s.cfg.Policy == PolicyFIFO {
		return keySet{}
	}
	return s.keysOf(t, keys, seq)
}

// lease makes a lease of a job, which takes over references to its keys.
func (s *Scheduler) lease(j *job, ks keySet) *lease {
	le := s.spareLeases.get()
	le.job, le.keys = j, ks
	j.lease = le
	s.hold(&le.keys)
	return le
}

// held counts a lease that is filled in.
func (s *Scheduler) held(le *lease) {
	le.at = len(s.leases.all)
	s.leases.all = append(s.leases.all, le)
	t := le.job.owner
	t.held++
	s.cap(t)
	if le.private {
		return
	}
	s.bulkheads.used[le.class()]++
	t.taken[le.class()]++
	s.charge(le)
	s.expose(le)
}

// class is the cell.Class.Index of the lease's lane.
func (le *lease) class() int { return le.job.Lane.Class.Index() }

// charge notes when the lease will have run for what it was charged.
func (s *Scheduler) charge(le *lease) {
	was := le.due
	le.due = 0
	if s.cfg.OverrunMin > 0 && !le.stopped && le.charged < cell.CostMax && !le.suspended() {
		le.due = max(1, le.granted.Add(max(s.cfg.OverrunMin, time.Duration(le.charged)*time.Microsecond)))
	}
	switch {
	case was == 0 && le.due == 0:
	case was == 0:
		s.leases.due.push(le)
	case le.due == 0:
		s.leases.due.remove(le)
	default:
		s.leases.due.fix(le)
	}
}

// expose files a lease among those that may be revoked, if it may. What was granted as reserved is not borrowed from anybody.
func (s *Scheduler) expose(le *lease) {
	may := le.job.Preemptible && le.offered && !le.ending && !le.spared && le.tier != tree.TierReserved &&
		le.tier != tree.TierOrganization && !le.suspended()
	v := &s.leases.victims[le.class()][le.offer]
	switch {
	case may && !le.victim:
		v.push(le)
	case !may && le.victim:
		v.remove(le)
	}
	le.victim = may
}

// Adopt says that the worker that holds the job has polled with an offer set: what the lease is charged goes there from now on. It does
// nothing to a lease that has one.
func (s *Scheduler) Adopt(id cell.JobID, offer OfferID) {
	if le := s.leaseOf(id); le != nil && !le.offered && !le.private {
		le.offer, le.offered = offer, true
		s.expose(le)
	}
}

func (s *Scheduler) leaseOf(id cell.JobID) *lease {
	if j := s.jobs[id]; j != nil {
		return j.lease
	}
	return nil
}

// Drop ends the lease of a job: its room is free. A job that was added again meanwhile waits for its turn from now on. It returns false,
// and does nothing, when the job is not held.
func (s *Scheduler) Drop(id cell.JobID) bool {
	le := s.leaseOf(id)
	if le == nil {
		return false
	}
	s.goOn()
	j := le.job
	last := s.leases.all[len(s.leases.all)-1]
	s.leases.all[le.at], last.at = last, le.at
	s.leases.all[len(s.leases.all)-1] = nil
	s.leases.all = s.leases.all[:len(s.leases.all)-1]
	if le.due != 0 {
		s.leases.due.remove(le)
	}
	if le.victim {
		s.leases.victims[le.class()][le.offer].remove(le)
	}
	t := j.owner
	t.held--
	if !le.private {
		s.bulkheads.used[le.class()]--
		s.end(le, false)
		t.taken[le.class()]--
	}
	j.lease = nil
	keys := le.keys
	s.vacate(&keys)
	*le = lease{}
	s.spareLeases.put(le)
	if j.parked {
		j.parked = false
		s.enqueue(j)
	} else {
		s.forgetJob(j)
	}
	s.unref(&keys) // last: a job that waits again carries on what the keys are bound by
	s.cap(t)
	s.forgetTenant(t)
	return true
}

// Stop says that a job's lease is over but for its room: its worker has been told to stop, and has yet to. It is charged no more, and its
// room counts as room to come; Drop it when the worker has stopped. It does nothing when the job is not held.
func (s *Scheduler) Stop(id cell.JobID) {
	if le := s.leaseOf(id); le != nil && !le.private {
		le.stopped = true
		s.end(le, true)
		s.charge(le)
		s.expose(le)
	}
}

// Spare says that calling a job's lease back would give the other class nothing, because its worker takes no jobs of that class: Preempt
// does not name it. It does nothing when the job is not held.
func (s *Scheduler) Spare(id cell.JobID) {
	if le := s.leaseOf(id); le != nil && !le.private {
		le.spared = true
		s.expose(le)
	}
}

// end counts a lease among those whose room is to come, or not any more.
func (s *Scheduler) end(le *lease, ending bool) {
	if le.ending == ending {
		return
	}
	le.ending = ending
	if ending {
		s.leases.ending[le.class()]++
		le.job.owner.taken[le.class()]--
	} else {
		s.leases.ending[le.class()]--
		le.job.owner.taken[le.class()]++
	}
}

// Held returns a job's lease; false when it is not held.
func (s *Scheduler) Held(id cell.JobID) (Held, bool) {
	le := s.leaseOf(id)
	if le == nil {
		return Held{}, false
	}
	it := &le.job.Item
	return Held{
		Job: id, Lane: it.Lane, Operation: it.Operation, Keys: it.Keys, Seq: it.Seq, Private: le.private, Tier: le.tier, Offer: le.offer,
		Offered: le.offered, Charged: le.charged, Granted: le.granted, Preemptible: it.Preemptible,
	}, true
}

// HeldBy returns how many leases a tenant has, its own workers' included.
func (s *Scheduler) HeldBy(id cell.TenantID) int64 {
	if t := s.tenantOf(id); t != nil {
		return int64(t.held)
	}
	return 0
}

// KeyHeld returns how many of a tenant's leases carry a concurrency key.
func (s *Scheduler) KeyHeld(id cell.TenantID, name string) int64 {
	if t := s.tenantOf(id); t != nil && t.keys[name] != nil {
		return t.keys[name].held
	}
	return 0
}

// Settle makes total what the job's lease is charged in all, on the accounts that it was granted from; a total out of bounds is brought
// into them. It does nothing when the job is not held, or privately.
func (s *Scheduler) Settle(id cell.JobID, total cell.Cost) {
	if le := s.leaseOf(id); le != nil && !le.private {
		s.settleLease(le, total)
	}
}

func (s *Scheduler) settleLease(le *lease, total cell.Cost) {
	total = min(max(0, total), cell.CostMax)
	delta := total - le.charged
	if delta == 0 {
		return
	}
	le.charged = total
	set := le.offer
	if !le.offered || s.offers.sets[set] == nil {
		set = s.offers.any()
	}
	s.turns.Settle(s.nodeOf(le.job), drr.SetID(set), le.tier, delta)
	s.charge(le)
}

// nodeOf returns the lane in the tree that the job's turn is charged to.
func (s *Scheduler) nodeOf(j *job) *tree.Lane[*tenant] {
	if s.everybody != nil {
		return s.everybody.node.Lane(j.Lane.Class)
	}
	return j.owner.node.Lane(j.Lane.Class)
}

// Overrun is an attempt that has run for longer than it was charged for.
type Overrun struct {
	Job   cell.JobID
	Total cell.Cost // what it is charged in all now
}

// Overruns charges attempts that have run for what they were charged, Config.OverrunMin at least, as much again, until that covers what
// they have run for, and returns them: at most so many, those that are due the longest first.
func (s *Scheduler) Overruns(now cell.Instant, most int) []Overrun {
	s.Advance(now)
	var over []Overrun
	for len(over) < most && s.leases.due.len() > 0 {
		le := s.leases.due.first()
		if le.due > s.now {
			break
		}
		total, ran := max(1, le.charged), cell.Cost(s.now.Sub(le.granted).Microseconds())
		for total <= ran && total < cell.CostMax {
			total = min(2*total, cell.CostMax)
		}
		s.settleLease(le, total)
		over = append(over, Overrun{Job: le.job.ID, Total: total})
	}
	return over
}
