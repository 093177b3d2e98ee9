package sched

import (
	"math/bits"

	"github.com/fairlead/fairlead/cell"
)

// assign counts a set that is opened among those of its group.
func (o *offers) assign(set int, group cell.WorkerGroup) {
	if group == 0 {
		return
	}
	for len(o.groups) < int(group) {
		o.groups = append(o.groups, 0)
	}
	o.groups[group-1] |= 1 << set
	o.grouped |= 1 << set
}

// dismiss is the end of assign.
func (o *offers) dismiss(set int, group cell.WorkerGroup) {
	if group == 0 {
		return
	}
	o.groups[group-1] &^= 1 << set
	o.grouped &^= 1 << set
}

// of returns the offer sets whose workers run the jobs of whoever holds a hand. Without one they are those of no group; they may be more
// than there are then, and what is looked for in them is in open ones only.
func (o *offers) of(hand uint64) uint64 {
	if hand == 0 {
		return ^o.grouped
	}
	sets := uint64(0)
	for ; hand != 0; hand &= hand - 1 {
		if g := bits.TrailingZeros64(hand); g < len(o.groups) {
			sets |= o.groups[g]
		}
	}
	return sets
}

// hand returns what the lane's tenant was dealt; 0 for none, as under FIFO.
func (l *lane) hand() uint64 { return l.owner.node.Groups() }

// offersOf returns the offer sets that find a queue's jobs, if the queue offers any: those with its operation whose workers its tenant holds, and
// none while the lane is suspended.
func (s *Scheduler) offersOf(q *queue) uint64 {
	if q.lane.suspended() {
		return 0
	}
	return q.operation.sets & s.offers.of(q.lane.hand())
}

// setsFor returns the live offer sets whose workers run a job that waits in its lane.
func (s *Scheduler) setsFor(j *job) uint64 { return s.offersOf(j.strand.queue) & s.offers.live }

// redeal moves what waits of a tenant whose hand was another one to the workers of the one that it has now. What they hold of it already
// stays where it is.
func (s *Scheduler) redeal(t *tenant, was uint64) {
	if s.everybody != nil || t.node.Groups() == was {
		return
	}
	old := s.offers.of(was)
	now := s.offers.of(t.node.Groups())
	for _, l := range t.lanes {
		if l == nil || l.suspended() {
			continue
		}
		for _, q := range l.queues {
			if q.top == nil {
				continue
			}
			for sets := q.operation.sets & now &^ old; sets != 0; sets &= sets - 1 {
				s.offerMore(l, first(sets))
			}
			for sets := q.operation.sets & old &^ now; sets != 0; sets &= sets - 1 {
				s.offerLess(l, first(sets))
			}
		}
	}
}
