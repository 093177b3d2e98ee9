package sched

import (
	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/drr"
	"github.com/fairlead/fairlead/cell/tree"
)

// lane is what waits in a lane, or of everybody in a class under FIFO. It lasts as long as something does.
type lane struct {
	owner  *tenant
	class  cell.Class
	queues []*queue              // in no particular order
	byOp   map[*operation]*queue // made when there are more queues than are looked through
	ready  int                   // jobs
	// offered is by offer set how many of the queues have a top that it offers, as far as any did; active has a bit for each that is not 0:
	// the sets that the lane is active in.
	offered []int32
	active  uint64
	at      int // in runnable.lanes while active is not 0
}

// operation is a kind of job that waits in some lane or is in some offer.
type operation struct {
	name   cell.Operation
	sets   uint64   // offer sets that it is in
	queues []*queue // everybody's
}

// laneOf returns the lane of a tenant's that jobs wait in, and makes it when there is none.
func (s *Scheduler) laneOf(t *tenant, c cell.Class) *lane {
	if s.everybody != nil && !t.suspended(c.Index()) {
		t = s.everybody
	}
	l := t.lanes[c.Index()]
	if l == nil {
		l = s.spareLanes.get()
		l.owner, l.class = t, c
		t.lanes[c.Index()] = l
	}
	return l
}

// node returns the lane in the order of turns.
func (l *lane) node() *tree.Lane[*tenant] { return l.owner.node.Lane(l.class) }

// forgetLane drops a lane that nothing waits in.
func (s *Scheduler) forgetLane(l *lane) {
	l.owner.lanes[l.class.Index()] = nil
	clear(l.offered)
	*l = lane{queues: l.queues, offered: l.offered[:0]}
	if cap(l.queues) > spareRoomMax {
		l.queues = nil
	}
	s.spareLanes.put(l)
}

// queuesScanned is how many queues a lane looks through, rather than asking a map that lies elsewhere in memory.
const queuesScanned = 3

// queue returns the lane's queue of an operation, and nil when it has none.
func (l *lane) queue(op *operation) *queue {
	if l.byOp != nil {
		return l.byOp[op]
	}
	for _, q := range l.queues {
		if q.operation == op {
			return q
		}
	}
	return nil
}

// queueOf returns the lane's queue of an operation, and makes it when there is none.
func (s *Scheduler) queueOf(l *lane, op *operation) *queue {
	if q := l.queue(op); q != nil {
		return q
	}
	q := s.spareQueues.get()
	q.lane, q.operation, q.laneAt, q.opAt = l, op, len(l.queues), len(op.queues)
	l.queues = append(l.queues, q)
	op.queues = append(op.queues, q)
	if l.byOp != nil {
		l.byOp[op] = q
	} else if len(l.queues) > queuesScanned {
		l.byOp = make(map[*operation]*queue, len(l.queues))
		for _, o := range l.queues {
			l.byOp[o.operation] = o
		}
	}
	return q
}

// forgetQueue drops a queue that is empty.
func (s *Scheduler) forgetQueue(q *queue) {
	l, op := q.lane, q.operation
	delete(l.byOp, op)
	last := l.queues[len(l.queues)-1]
	l.queues[q.laneAt], last.laneAt = last, q.laneAt
	l.queues[len(l.queues)-1] = nil
	l.queues = l.queues[:len(l.queues)-1]
	last = op.queues[len(op.queues)-1]
	op.queues[q.opAt], last.opAt = last, q.opAt
	op.queues[len(op.queues)-1] = nil
	op.queues = op.queues[:len(op.queues)-1]
	q.bare.jobs.clear()
	q.awake.clear()
	keyed := q.keyed
	if len(keyed) > 0 {
		panic("sched: forgetting a queue with strands")
	}
	*q = queue{bare: strand{jobs: q.bare.jobs}, awake: q.awake, keyed: keyed}
	s.spareQueues.put(q)
	s.forgetOperation(op)
}

// best returns the lane's first job that may run for the operations of an offer set, and nil when there is none. It looks at the lane's
// queues or at the offer's operations, whichever are fewer.
func (l *lane) best(set drr.SetID, operations []*operation) *job {
	var best *job
	if len(l.queues) <= len(operations) {
		for _, q := range l.queues {
			if q.operation.sets&(1<<set) != 0 {
				best = q.better(best)
			}
		}
		return best
	}
	for _, op := range operations {
		if q := l.queue(op); q != nil {
			best = q.better(best)
		}
	}
	return best
}

// better returns what the queue offers if that comes before a job, or there is none, and else that job.
func (q *queue) better(than *job) *job {
	if q.top != nil && (than == nil || q.top.head().before(than)) {
		return q.top.head()
	}
	return than
}

// offer counts a queue among those that its offer sets find something in, or not any more.
func (s *Scheduler) offer(q *queue, offers bool) {
	for sets := s.offersOf(q); sets != 0; sets &= sets - 1 {
		if offers {
			s.offerMore(q.lane, first(sets))
		} else {
			s.offerLess(q.lane, first(sets))
		}
	}
}

// offerMore counts another of the lane's queues into an offer set; with the first the lane joins the rotation.
func (s *Scheduler) offerMore(l *lane, set drr.SetID) {
	for len(l.offered) <= int(set) {
		l.offered = append(l.offered, 0)
	}
	if l.offered[set]++; l.offered[set] > 1 {
		return
	}
	s.turns.Activate(l.node(), set)
	if l.active == 0 {
		s.runnable.add(l)
	}
	l.active |= 1 << set
}

// offerLess counts one of the lane's queues out; with the last the lane leaves the rotation.
func (s *Scheduler) offerLess(l *lane, set drr.SetID) {
	if l.offered[set]--; l.offered[set] == 0 {
		s.withdraw(l, set)
	}
}

// withdraw takes the lane out of a rotation.
func (s *Scheduler) withdraw(l *lane, set drr.SetID) {
	s.turns.Deactivate(l.node(), set)
	if l.active &^= 1 << set; l.active == 0 {
		s.runnable.remove(l)
	}
}

// runnable lists by class the lanes that are active in some offer set.
type runnable struct{ lanes [2][]*lane }

func (r *runnable) add(l *lane) {
	list := &r.lanes[l.class.Index()]
	l.at = len(*list)
	*list = append(*list, l)
}

func (r *runnable) remove(l *lane) {
	list := &r.lanes[l.class.Index()]
	last := (*list)[len(*list)-1]
	(*list)[l.at], last.at = last, l.at
	(*list)[len(*list)-1] = nil
	*list = (*list)[:len(*list)-1]
}
