package sched

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/cell/drr"
)

// faults gathers what a check finds.
type faults []error

// faultsMax bounds what is gathered: more would say nothing new.
const faultsMax = 20

func (f *faults) add(format string, args ...any) {
	if len(*f) < faultsMax {
		*f = append(*f, fmt.Errorf(format, args...))
	}
}

func (f *faults) err(err error) {
	if err != nil {
		f.add("%w", err)
	}
}

// Check returns every fault of what the scheduler keeps, nil when there is none. It walks everything.
func (s *Scheduler) Check() error {
	var f faults
	refs := map[*key]int{} // strands and leases that carry it
	s.checkJobs(&f)
	s.checkLeases(&f, refs)
	s.checkOffers(&f)
	for t := range s.known() { // order-free: each for itself
		s.checkTenant(&f, t, refs)
	}
	f.err(s.paced.check("start rates"))
	f.err(s.tree.Check())
	f.err(s.turns.Check())
	return errors.Join(f...)
}

// checkJobs: every job waits, or is held, or both because its lease has yet to be dropped; and then it is in no queue.
func (s *Scheduler) checkJobs(f *faults) {
	waiting := 0
	for id, j := range s.jobs { // order-free: sums
		switch {
		case j.ID != id:
			f.add("%v is filed as %v", j.ID, id)
		case j.strand == nil && j.lease == nil:
			f.add("%v neither waits nor is held", id)
		case j.strand != nil && j.lease != nil:
			f.add("%v is both queued and held", id)
		case j.parked && j.lease == nil:
			f.add("%v waits for a lease that it does not have", id)
		case j.lease != nil && j.lease.job != j:
			f.add("%v has another's lease", id)
		case s.tenantOf(j.Lane.Tenant) != j.owner || j.owner.jobs < 1:
			f.add("%v is of tenant %s, which is forgotten", id, j.Lane.Tenant)
		}
		if j.waits() {
			waiting++
		}
	}
	if waiting != s.waiting {
		f.add("%d jobs wait, and %d are counted", waiting, s.waiting)
	}
}

// checkLeases: what is counted as held is the sum of the leases that live, for every limit.
func (s *Scheduler) checkLeases(f *faults, refs map[*key]int) {
	var used, ending [2]int64
	held := map[*tenant]int64{}
	taken := map[*tenant][2]int32{}
	carried := map[*key]int64{}
	due := 0
	for i, le := range s.leases.all {
		if le.at != i || le.job.lease != le || s.jobs[le.job.ID] != le.job {
			f.add("the lease of %v is lost", le.job.ID)
		}
		held[le.job.owner]++
		for _, k := range le.keys {
			if k != nil {
				carried[k]++
				refs[k]++
			}
		}
		if le.due != 0 {
			due++
		}
		if !le.private {
			used[le.class()]++
			if n := taken[le.job.owner]; !le.ending {
				n[le.class()]++
				taken[le.job.owner] = n
			}
		}
		if le.ending {
			ending[le.class()]++
		}
		if (le.suspended() || le.private) && (le.due != 0 || le.victim) {
			f.add("the lease of %v, private %v, suspended %v, falls due at %d, and may be revoked: %v", le.job.ID, le.private, le.suspended(), le.due, le.victim)
		}
		if v := &s.leases.victims[le.class()][le.offer]; le.victim && (int(le.victimAt) >= v.len() || v.items[le.victimAt] != le) {
			f.add("the lease of %v is not among those that may be revoked", le.job.ID)
		}
	}
	if used != s.bulkheads.used || ending != s.leases.ending {
		f.add("%v leases live and %v are ending, and %v and %v are counted", used, ending, s.bulkheads.used, s.leases.ending)
	}
	if due != s.leases.due.len() {
		f.add("%d leases fall due, and %d are filed", due, s.leases.due.len())
	}
	f.err(s.leases.due.check("leases due"))
	for i := range s.leases.victims {
		for set := range s.leases.victims[i] {
			f.err(s.leases.victims[i][set].check("leases that may be revoked"))
		}
	}
	for t := range s.known() { // order-free: each for itself
		if int64(t.held) != held[t] || t.taken != taken[t] {
			f.add("tenant %s has %d leases, and %d are counted; %v in slots, and %v", t.node.ID(), held[t], t.held, taken[t], t.taken)
		}
		for _, k := range t.keys { // order-free: each for itself
			if k.held != carried[k] {
				f.add("key %s of %s is carried by %d leases, and %d are counted", k.name, t.node.ID(), carried[k], k.held)
			}
		}
	}
}

// checkOffers: the sets of each group, those of any and those with workers are what the open sets say.
func (s *Scheduler) checkOffers(f *faults) {
	o := &s.offers
	groups := make([]uint64, len(o.groups))
	var live, grouped uint64
	for i, x := range o.sets {
		if x == nil {
			continue
		}
		if x.workers > 0 {
			live |= 1 << i
		}
		switch {
		case x.group == 0:
		case int(x.group) > len(groups):
			f.add("set %d is of group %d, of which nothing is known", i, x.group)
		default:
			grouped |= 1 << i
			groups[x.group-1] |= 1 << i
		}
		for _, op := range x.operations {
			if op.sets>>i&1 == 0 {
				f.add("set %d has operation %s, which does not have it", i, op.name)
			}
		}
	}
	if live != o.live || grouped != o.grouped || !slices.Equal(groups, o.groups) {
		f.add("sets %b have workers, %b have groups, %b by group, and %b, %b and %b are kept", live, grouped, groups, o.live, o.grouped, o.groups)
	}
}

// known returns the tenants that have a job, and whoever stands for everybody.
func (s *Scheduler) known() map[*tenant]bool {
	known := map[*tenant]bool{}
	for _, j := range s.jobs { // order-free: a set
		known[j.owner] = true
	}
	if s.everybody != nil {
		known[s.everybody] = true
	}
	return known
}

// checkTenant: what blocks the tenant is what its policy says, and what its lanes offer is in the rotations.
func (s *Scheduler) checkTenant(f *faults, t *tenant, refs map[*key]int) {
	if c := t.caps; c != nil {
		if c.capped != (c.runningMax > 0 && int64(t.held) >= c.runningMax && s.everybody == nil) {
			f.add("tenant %s holds %d of %d, and capped is %v", t.node.ID(), t.held, c.runningMax, c.capped)
		}
		if c.paced != (c.starts.next(c.rate) > s.now && s.everybody == nil) {
			f.add("tenant %s may start at %d, it is %d, and paced is %v", t.node.ID(), c.starts.next(c.rate), s.now, c.paced)
		}
	}
	if len(t.estimates) > EstimatesMax {
		f.add("tenant %s has %d estimates", t.node.ID(), len(t.estimates))
	}
	for _, l := range t.lanes {
		if l == nil {
			continue
		}
		s.checkLane(f, t, l, refs)
		if s.everybody != nil && t != s.everybody && !l.suspended() {
			f.add("%s has a queue of its own under FIFO, and is not suspended", t.node.ID())
		}
	}
	for name, k := range t.keys { // order-free: each for itself
		if k.name != name || k.owner != t || k.refs != refs[k] || k.refs == 0 {
			f.add("key %s of %s has %d references, and %d are counted", name, t.node.ID(), refs[k], k.refs)
		}
		for _, st := range k.tops {
			if st.queue.top != st || !st.keys.has(k) || !k.room() {
				f.add("key %s of %s, with %d of %d held, is not at the top of a queue", name, t.node.ID(), k.held, k.max)
			}
		}
		for i, w := range k.waits {
			if w.at != i || w.key != k || s.waits[waitID{k, w.queue}] != w || w.strands.len() == 0 {
				f.add("a wait for key %s of %s is lost", name, t.node.ID())
			}
		}
	}
}

func (s *Scheduler) checkLane(f *faults, t *tenant, l *lane, refs map[*key]int) {
	ready := 0
	var offered [drr.MaxSets]int32
	for i, q := range l.queues {
		if q.lane != l || q.laneAt != i || l.queue(q.operation) != q || q.operation.queues[q.opAt] != q || q.size == 0 {
			f.add("a queue of %s is lost", t.node.ID())
		}
		ready += s.checkQueue(f, t, q, refs)
		if q.top == nil || l.suspended() {
			continue
		}
		for sets := q.operation.sets; sets != 0; sets &= sets - 1 {
			if set := first(sets); s.offers.sets[set].group.In(l.hand()) {
				offered[set]++
			}
		}
	}
	if l.owner != t || t.lanes[l.class.Index()] != l || ready != l.ready || ready == 0 {
		f.add("%s has %d jobs ready, and %d are counted", t.node.ID(), ready, l.ready)
	}
	for set, n := range offered {
		counted := int32(0)
		if set < len(l.offered) {
			counted = l.offered[set]
		}
		if active := l.active>>set&1 == 1; n != counted || active != (n > 0) || l.node().Active(drr.SetID(set)) != active {
			f.add("%s has %d queues for set %d, %d are counted, and active is %v", t.node.ID(), n, set, counted, active)
		}
	}
	if list := s.runnable.lanes[l.class.Index()]; l.active != 0 && (l.at >= len(list) || list[l.at] != l) {
		f.add("%s is not among the lanes that are active", t.node.ID())
	}
}

// checkQueue: every strand is awake or asleep at a key of its own, the top may run, and nobody sleeps for nothing.
func (s *Scheduler) checkQueue(f *faults, t *tenant, q *queue, refs map[*key]int) int {
	f.err(q.awake.check("awake strands"))
	jobs, awake := 0, 0
	for _, st := range q.strands() {
		jobs += st.jobs.len()
		f.err(st.jobs.check("jobs of a strand"))
		for _, j := range st.jobs.items {
			if j.strand != st || (s.everybody == nil && j.owner != t) || st.queue != q {
				f.add("%v is in a strand that is not its own", j.ID)
			}
		}
		for _, k := range st.keys {
			if k != nil {
				refs[k]++
			}
		}
		if st.asleep == nil {
			awake++
			continue
		}
		k := st.asleep.key
		f.err(st.asleep.strands.check("strands asleep"))
		if !st.keys.has(k) || st.asleep.queue != q {
			f.add("a strand of %s sleeps at key %s, which it does not carry", t.node.ID(), k.name)
		}
		if k.room() && !k.opening && !q.guarded(k, st) {
			f.add("a strand of %s sleeps at key %s, of which %d of %d are held, and nobody awake stands before it", t.node.ID(), k.name, k.held, k.max)
		}
	}
	if jobs != q.size || awake != q.awake.len() {
		f.add("a queue of %s has %d jobs and %d awake strands, and %d and %d are counted", t.node.ID(), jobs, awake, q.size, q.awake.len())
	}
	switch want := q.awake.first(); {
	case q.unsettled && q.top != nil:
		f.add("a queue of %s offers what is not known to be able to run", t.node.ID())
	case !q.unsettled && q.top != want:
		f.add("a queue of %s does not offer its best", t.node.ID())
	case q.top != nil && q.top.keys.full() != nil:
		f.add("a queue of %s offers what key %s blocks", t.node.ID(), q.top.keys.full().name)
	}
	return jobs
}

// guarded reports whether an awake strand that carries the key stands before one that sleeps at it, so that this one is woken in time.
func (q *queue) guarded(k *key, st *strand) bool {
	for _, o := range q.awake.items {
		if o.keys.has(k) && !st.head().before(o.head()) {
			return true
		}
	}
	return false
}
