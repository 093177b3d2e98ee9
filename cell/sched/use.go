package sched

import (
	"math"

	"github.com/fairlead/fairlead/cell"
)

// ClassUse is what one class may hold and holds.
type ClassUse struct {
	Nominal, Lendable, Used int64
	// Limit is how much it could hold now: its nominal at least, and what it could borrow.
	Limit int64
	// Lent is how much of its nominal the other class has at the moment.
	Lent int64
	// HeldBack is how much more it could hold if the other class did not hold back idle room by its lend_after, and Until when that ends if
	// the other class stays quiet; 0 while it is not.
	HeldBack int64
	Until    cell.Instant
}

// Use returns what a class may hold and holds. Where room is held back from some offer sets only, it counts as held back. It notes what
// waits at the moment, so it is a write like any other: not beside readers.
func (s *Scheduler) Use(c cell.Class) ClassUse {
	s.observe()
	i := c.Index()
	b := &s.bulkheads
	lent, until := true, cell.Instant(0)
	for sets := s.offers.live; sets != 0; sets &= sets - 1 {
		if l, at := s.lends(1-i, first(sets)); !l {
			if lent || at == 0 || until != 0 && at > until {
				until = at
			}
			lent = false
		}
	}
	free := b.room - b.used[1-i]
	u := ClassUse{
		Nominal: b.nominal[i], Lendable: b.lendable(i), Used: b.used[i],
		Limit: max(b.nominal[i], min(b.limit(i, lent), free)),
		Lent:  max(0, min(b.used[1-i]-b.nominal[1-i], b.nominal[i]-b.used[i])),
	}
	if most := max(b.nominal[i], min(b.limit(i, true), free)); most > u.Limit {
		u.HeldBack, u.Until = most-u.Limit, until
	}
	return u
}

// Place is where a waiting job stands.
type Place struct {
	// Position among the jobs of its lane that would run before it, 1 for the next: those that the same workers run, and that no key
	// blocks.
	Position int64
	// Tenants that wait for the same operation in the same class, this one included.
	Tenants int64
	// MayTake says that the bulkhead of the class would let it run.
	MayTake bool
}

// Place returns where a job stands that waits; false when it does not. It looks at everything in the job's lane.
func (s *Scheduler) Place(id cell.JobID) (Place, bool) {
	j := s.jobs[id]
	if j == nil || !j.waits() {
		return Place{}, false
	}
	s.observe()
	p := Place{Position: 1, Tenants: 1}
	op := s.offers.operations[j.Operation]
	l := j.owner.lanes[j.Lane.Class.Index()]
	if j.strand != nil {
		l = j.strand.queue.lane
	}
	hand := uint64(0)
	if l != nil {
		hand = l.hand()
		p.Position += s.ahead(l, j, op)
	}
	if op == nil || j.owner.suspended(j.Lane.Class.Index()) {
		return p, true
	}
	for sets := op.sets & s.offers.live & s.offers.of(hand); sets != 0; sets &= sets - 1 {
		set := first(sets)
		p.MayTake = p.MayTake || s.mayTake(j.Lane.Class.Index(), set)
		p.Tenants = max(p.Tenants, int64(s.turns.Waiting(j.Lane.Class, set)))
	}
	return p, true
}

// ahead returns how many jobs of the lane would run before a job on the workers that offer its operation.
func (s *Scheduler) ahead(l *lane, j *job, op *operation) int64 {
	n := int64(0)
	mine := s.offers.of(l.hand())
	for _, q := range l.queues {
		if q.operation != op && (op == nil || q.operation.sets&op.sets&mine == 0) {
			continue
		}
		for _, st := range q.strands() {
			if st.keys.full() != nil && st != j.strand {
				continue
			}
			for _, o := range st.jobs.items {
				if o != j && o.before(j) {
					n++
				}
			}
		}
	}
	return n
}

// strands returns all strands of the queue that have jobs, in no particular order.
func (q *queue) strands() []*strand {
	list := make([]*strand, 0, len(q.keyed)+1)
	if q.bare.jobs.len() > 0 {
		list = append(list, &q.bare)
	}
	for _, st := range q.keyed { // order-free: its callers count, or look for the least
		list = append(list, st)
	}
	return list
}

// Oldest returns when the first job that waits in a lane was accepted; false when none waits, and under FIFO, where lanes have no queues of
// their own. With priorities it is the oldest among the next to run of each operation and set of keys.
func (s *Scheduler) Oldest(id cell.Lane) (cell.Instant, bool) {
	t := s.tenantOf(id.Tenant)
	if t == nil || t.lanes[id.Class.Index()] == nil {
		return 0, false
	}
	oldest := cell.Instant(math.MaxInt64)
	for _, q := range t.lanes[id.Class.Index()].queues {
		for _, st := range q.strands() {
			oldest = min(oldest, st.head().Created)
		}
	}
	return oldest, true
}

// First returns the job that runs next of those that wait in a lane, whatever workers offer: one that no key blocks, if there is any. It
// returns false when none waits, and under FIFO, where lanes have no queues of their own.
func (s *Scheduler) First(id cell.Lane) (cell.JobID, bool) {
	t := s.tenantOf(id.Tenant)
	if t == nil || t.lanes[id.Class.Index()] == nil {
		return cell.JobID{}, false
	}
	var best *job
	l := t.lanes[id.Class.Index()]
	for _, q := range l.queues {
		best = q.better(best)
	}
	if best != nil {
		return best.ID, true
	}
	for _, q := range l.queues {
		for _, st := range q.strands() {
			if best == nil || st.head().before(best) {
				best = st.head()
			}
		}
	}
	return best.ID, true
}
