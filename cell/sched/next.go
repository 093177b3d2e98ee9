package sched

import (
	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/drr"
	"github.com/fairlead/fairlead/cell/tree"
)

// Ask is what somebody who has room for a job offers.
type Ask struct {
	Now     cell.Instant
	Offer   OfferID
	Classes [2]bool // by cell.Class.Index
}

// Grant is a job whose turn it is. It waits no more, and is held: Drop it.
type Grant struct {
	Item Item
	// Cost is what was charged.
	Cost  cell.Cost
	Offer OfferID
	// Tier is which of its tenant's accounts was charged; tree.TierNone when none was.
	Tier tree.Tier
}

// Next takes the job whose turn it is for what is offered, and charges it; false when nothing may run. Jobs past their deadline are
// thrown out on the way: the state ends them.
func (s *Scheduler) Next(ask Ask) (Grant, bool) {
	s.Advance(ask.Now)
	for _, c := range s.bulkheads.order() {
		i := c.Index()
		if !ask.Classes[i] || !s.mayTake(i, drr.SetID(ask.Offer)) {
			continue
		}
		if g, ok := s.nextOf(c, ask.Offer); ok {
			return g, true
		}
	}
	return Grant{}, false
}

func (s *Scheduler) nextOf(c cell.Class, offer OfferID) (Grant, bool) {
	set := drr.SetID(offer)
	for {
		pick, ok := s.turns.Next(s.now, c, set)
		if !ok {
			return Grant{}, false
		}
		j := pick.Lane.Value.lanes[c.Index()].best(set, s.offers.sets[set].operations)
		if j.late(s.now) {
			s.dismiss(j)
			continue
		}
		g := Grant{Item: j.Item, Cost: s.expected(j), Offer: offer, Tier: pick.Tier}
		// Charged while it is in the rotation: leaving it with a deficit that is spent already is not leaving with savings.
		s.turns.Charge(pick, set, g.Cost)
		s.lending.tiers[c.Index()][set] = pick.Tier
		le := s.start(j)
		le.tier, le.offer, le.offered, le.charged = pick.Tier, offer, true, g.Cost
		s.held(le)
		s.filled(&le.keys)
		return g, true
	}
}

// expected is what a job is charged at dispatch.
func (s *Scheduler) expected(j *job) cell.Cost {
	seed := j.Cost
	if seed < 1 {
		seed = s.cfg.CostDefault
	}
	return min(j.owner.estimate(j.Operation).Of(seed), cell.CostMax)
}

// start makes a lease of a job that waits, which the caller fills in and counts.
func (s *Scheduler) start(j *job) *lease {
	ks := j.strand.keys
	for _, k := range ks {
		if k != nil {
			k.refs++
		}
	}
	le := s.lease(j, ks)
	le.granted = s.now
	s.waiting--
	s.unqueue(j)
	if c := j.owner.caps; c != nil && s.everybody == nil {
		c.starts.add(s.now, c.rate)
	}
	return le
}

// NextPrivate takes the next job of one tenant for the tenant's own worker: it takes no slot of the cell's and is charged to nobody, and so
// neither bulkheads nor limits are in its way; caps and keys are. Under FIFO there is none: a tenant has no queue of its own.
func (s *Scheduler) NextPrivate(now cell.Instant, id cell.TenantID, operations []cell.Operation, classes [2]bool) (Grant, bool) {
	s.Advance(now)
	t := s.tenantOf(id)
	if t == nil || t.blocked() || s.everybody != nil {
		return Grant{}, false
	}
	for i := range t.lanes {
		for l := t.lanes[i]; l != nil && classes[i] && !t.suspended(i); l = t.lanes[i] {
			j := s.bestNamed(l, operations)
			if j == nil {
				break
			}
			if j.late(s.now) {
				s.dismiss(j)
				continue
			}
			g := Grant{Item: j.Item}
			le := s.start(j)
			le.private = true
			s.held(le)
			s.filled(&le.keys)
			return g, true
		}
	}
	return Grant{}, false
}

// bestNamed returns the lane's first job that may run for operations that need not be an offer set.
func (s *Scheduler) bestNamed(l *lane, operations []cell.Operation) *job {
	var best *job
	for _, name := range operations {
		if op := s.offers.operations[name]; op != nil {
			if q := l.queue(op); q != nil {
				best = q.better(best)
			}
		}
	}
	return best
}
