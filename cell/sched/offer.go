package sched

import (
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/drr"
)

// OfferID names an open offer set: a set of operations that workers of a group offer together.
type OfferID drr.SetID

// OffersMax bounds the distinct offer sets that live workers have at one time, each a set of operations and a group. Beyond it Open refuses
// the next.
const OffersMax = drr.MaxSets

// offers is what workers offer.
type offers struct {
	sets       [drr.MaxSets]*offer
	live       uint64   // those with workers
	grouped    uint64   // those of workers with a group
	groups     []uint64 // those of each group, at its number - 1, up to the greatest that there was; nil where no worker had one
	operations map[cell.Operation]*operation
	clock      uint64 // counts openings, to tell the least recent
}

// offer is an open offer set. It stays when its last worker leaves, with the tenants' standing in it, until its place is needed.
type offer struct {
	key        string
	group      cell.WorkerGroup
	operations []*operation
	workers    int
	last       uint64 // when it was opened last
}

// Open returns the offer set of these operations, which must be sorted and without repetition, for one more worker of a group, 0 for none.
// Only what tenants that hold the group have waiting is in it, or what those without a hand have where there is no group. It returns a
// *cell.LimitError when OffersMax others have live workers: workers that differ in their group alone take a set each. Under FIFO groups
// do not apply.
func (s *Scheduler) Open(operations []cell.Operation, group cell.WorkerGroup) (OfferID, error) {
	if s.everybody != nil {
		group = 0
	}
	s.offers.clock++
	key := fmt.Sprintf("%d%q", group, operations)
	i, known := s.offers.find(key)
	if i < 0 {
		return 0, &cell.LimitError{
			Limit: "offer_sets_max", Scope: cell.ScopeCell, Value: OffersMax + 1, Bound: OffersMax, RetryAfter: 5 * time.Second,
			Remedy: "let workers offer the same operations, or fewer different sets of them, in fewer groups",
		}
	}
	if !known {
		s.shut(i)
		if err := s.openAt(i, key, operations, group); err != nil {
			return 0, err
		}
	}
	o := s.offers.sets[i]
	o.workers++
	o.last = s.offers.clock
	s.offers.live |= 1 << i
	return OfferID(i), nil
}

// find returns where the offer set of that key is, or where it would go, -1 for nowhere: an empty place, or else the one without workers
// that was opened the longest ago.
func (o *offers) find(key string) (at int, known bool) {
	at = -1
	for i, x := range o.sets {
		switch {
		case x == nil:
			if at < 0 || o.sets[at] != nil {
				at = i
			}
		case x.key == key:
			return i, true
		case x.workers == 0 && (at < 0 || o.sets[at] != nil && x.last < o.sets[at].last):
			at = i
		}
	}
	return at, false
}

// Leave says that a worker of the offer set is gone.
func (s *Scheduler) Leave(id OfferID) {
	o := s.offers.sets[id]
	if o == nil || o.workers == 0 {
		return
	}
	s.observe() // while what it offered still counts
	if o.workers--; o.workers == 0 {
		s.offers.live &^= 1 << id
	}
}

// Change is Open for a worker that leaves another offer set for this one. When it returns an error the worker is still in the other.
func (s *Scheduler) Change(from OfferID, operations []cell.Operation, group cell.WorkerGroup) (OfferID, error) {
	s.Leave(from)
	to, err := s.Open(operations, group)
	if err != nil {
		s.offers.sets[from].workers++ // it had other workers: else its place would have been there to take
	}
	return to, err
}

func (s *Scheduler) openAt(i int, key string, operations []cell.Operation, group cell.WorkerGroup) error {
	set := drr.SetID(i)
	if err := s.turns.OpenSet(set); err != nil {
		return err
	}
	o := &offer{key: key, group: group}
	s.offers.sets[i] = o
	s.offers.assign(i, group)
	s.lending.begin(i)
	for _, name := range operations {
		op := s.operation(name)
		op.sets |= 1 << set
		o.operations = append(o.operations, op)
		for _, q := range op.queues {
			if q.top != nil && !q.lane.suspended() && group.In(q.lane.hand()) {
				s.offerMore(q.lane, set)
			}
		}
	}
	return nil
}

// shut gives the place of an offer set without workers to another.
func (s *Scheduler) shut(i int) {
	o := s.offers.sets[i]
	if o == nil {
		return
	}
	set := drr.SetID(i)
	for _, op := range o.operations {
		for _, q := range op.queues {
			if l := q.lane; l.active&(1<<set) != 0 {
				l.offered[set] = 0
				s.withdraw(l, set)
			}
		}
		op.sets &^= 1 << set
		s.forgetOperation(op)
	}
	s.turns.CloseSet(set)
	s.offers.dismiss(i, o.group)
	s.offers.sets[i] = nil
}

func (s *Scheduler) operation(name cell.Operation) *operation {
	op := s.offers.operations[name]
	if op == nil {
		op = &operation{name: name}
		s.offers.operations[name] = op
	}
	return op
}

// forgetOperation drops an operation that nobody waits for and nobody offers, so that names do not pile up.
func (s *Scheduler) forgetOperation(op *operation) {
	if op.sets == 0 && len(op.queues) == 0 {
		delete(s.offers.operations, op.name)
	}
}

// first returns the first of some sets, of which there is one at least.
func first(sets uint64) drr.SetID { return drr.SetID(bits.TrailingZeros64(sets)) }

// SortOperations sorts operations and removes repetitions, as Open wants them.
func SortOperations(operations []cell.Operation) []cell.Operation {
	slices.Sort(operations)
	return slices.Compact(operations)
}

// any returns an open offer set, the first there is; 0 when there is none.
func (o *offers) any() OfferID {
	for i, x := range o.sets {
		if x != nil {
			return OfferID(i)
		}
	}
	return 0
}
