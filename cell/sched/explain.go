package sched

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/tree"
)

// Reason is why a job that is ready does not run.
type Reason uint8

// The reasons, in the order in which they are looked for: first what keeps the job itself from its turn, then what its tenant waits for,
// then who comes before.
const (
	ReasonStopping          Reason = iota + 1 // its last lease was revoked, and the worker has yet to stop
	ReasonSuspended                           // its lane is suspended
	ReasonNoOffer                             // no live worker that may run its tenant's jobs offers its operation
	ReasonConcurrencyKey                      // a concurrency key of its own is held as often as it may be
	ReasonRunningCap                          // its tenant holds as many jobs as it may
	ReasonStartRate                           // its tenant has started as many jobs as it may within the period
	ReasonLimit                               // its tenant has had what its limit allows until now
	ReasonOrganizationLimit                   // its tenant's organization has
	ReasonOwnQueue                            // jobs of its own lane come first
	ReasonHeldBack                            // the other class holds its idle room back for a while
	ReasonReservation                         // tenants that are below their reservation come first
	ReasonClassSlots                          // its class has every slot that it may have
	ReasonTurn                                // other tenants' turns come first
	ReasonNext                                // nothing: it runs as soon as a worker asks
)

func (r Reason) String() string {
	names := [...]string{
		"", "stopping", "suspended", "no-offer", "concurrency-key", "running-cap", "start-rate", "limit", "organization-limit", "own-queue", "held-back",
		"reservation", "class-slots", "turn", "next",
	}
	if r >= 1 && int(r) < len(names) {
		return names[r]
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// Why is why a job that is ready does not run. What does not belong to the reason is zero, but for Place.
type Why struct {
	Reason Reason
	Place  Place
	// Key is the concurrency key that is full.
	Key string
	// Value and Bound are what stands against what may be: jobs held of the key's max, of the running cap, of the class's slots; starts
	// within the period of those allowed.
	Value, Bound int64
	Rate         cell.Rate     // of the limit
	Per          time.Duration // of the start rate
	// Groups is the tenant's hand where nobody offers the operation, and Elsewhere says that workers do who do not run the tenant's jobs.
	Groups    uint64
	Elsewhere bool
	// Next is when the reason ends at the earliest, where time ends it; 0 where that is not known.
	Next cell.Instant
	// Holders are jobs that hold what it waits for, the oldest grants first.
	Holders []cell.JobID
}

// HoldersMax bounds Why.Holders.
const HoldersMax = 10

// Explain says why a job that waits does not run; false when it does not wait. It looks at everything in the job's lane, and at every
// lease.
func (s *Scheduler) Explain(now cell.Instant, id cell.JobID) (Why, bool) {
	s.Advance(now)
	place, ok := s.Place(id)
	if !ok {
		return Why{}, false
	}
	j := s.jobs[id]
	w := Why{Place: place}
	if j.parked {
		w.Reason, w.Holders = ReasonStopping, []cell.JobID{id}
		return w, true
	}
	if !s.explainOwn(&w, j) && !s.explainClass(&w, j) {
		s.explainTurn(&w, j)
	}
	return w, true
}

// explainOwn looks for what keeps the job itself, its tenant or its organization from a turn.
func (s *Scheduler) explainOwn(w *Why, j *job) bool {
	t := j.owner
	if t.suspended(j.Lane.Class.Index()) {
		w.Reason = ReasonSuspended
		return true
	}
	if s.setsFor(j) == 0 {
		w.Reason, w.Groups, w.Elsewhere = ReasonNoOffer, j.strand.queue.lane.hand(), j.strand.queue.operation.sets&s.offers.live != 0
		return true
	}
	if k := j.strand.keys.full(); k != nil {
		w.Reason, w.Key, w.Value, w.Bound = ReasonConcurrencyKey, k.name, k.held, k.max
		w.Holders = s.holders(func(le *lease) bool { return le.keys.has(k) })
		return true
	}
	if c := t.caps; c != nil && c.capped {
		w.Reason, w.Value, w.Bound = ReasonRunningCap, int64(t.held), c.runningMax
		w.Holders = s.holders(func(le *lease) bool { return le.job.owner == t })
		return true
	}
	if c := t.caps; c != nil && c.paced {
		w.Reason, w.Per, w.Next = ReasonStartRate, c.rate.Per, c.starts.next(c.rate)
		w.Value, w.Bound = c.starts.within(s.now, c.rate), c.rate.Jobs
		return true
	}
	st := s.turns.Standing(s.nodeOf(j))
	switch {
	case st.LimitedUntil > s.now:
		w.Reason, w.Rate, w.Next = ReasonLimit, t.node.Policy().Limit, st.LimitedUntil
	case st.OrganizationLimitedUntil > s.now:
		o, _ := s.tree.Organization(t.node.Policy().Organization)
		w.Reason, w.Rate, w.Next = ReasonOrganizationLimit, o.Limit, st.OrganizationLimitedUntil
	default:
		return false
	}
	return true
}

// explainClass looks for what of its lane or its class comes before the job.
func (s *Scheduler) explainClass(w *Why, j *job) bool {
	i := j.Lane.Class.Index()
	u := s.Use(j.Lane.Class)
	w.Value, w.Bound = u.Used, u.Limit
	if w.Place.Position > 1 {
		w.Reason = ReasonOwnQueue
		return true
	}
	if w.Place.MayTake {
		w.Value, w.Bound = 0, 0
		return false
	}
	for sets := s.setsFor(j); sets != 0; sets &= sets - 1 {
		if back, at := s.heldBack(i, first(sets)); back {
			w.Reason, w.Next = ReasonHeldBack, sooner(w.Next, at)
		}
	}
	if w.Reason == ReasonHeldBack {
		return true
	}
	// Borrowers hold what the class could have, or its own jobs do.
	w.Reason = ReasonClassSlots
	if s.outrun(j, w.Place.Tenants) {
		w.Reason = ReasonReservation
	}
	w.Holders = s.holders(func(le *lease) bool { return !le.private && (le.class() == i || u.Used < u.Nominal) })
	return true
}

// explainTurn says who comes before the job though its class may have a slot: it waits for a worker to ask.
func (s *Scheduler) explainTurn(w *Why, j *job) {
	switch {
	case w.Place.Tenants <= 1:
		w.Reason = ReasonNext
	case s.outrun(j, w.Place.Tenants):
		w.Reason = ReasonReservation
	default:
		w.Reason = ReasonTurn
	}
}

// outrun reports whether the latest slot of the job's class went to a tenant below its reservation, which its own is not.
func (s *Scheduler) outrun(j *job, tenants int64) bool {
	if tenants <= 1 {
		return false
	}
	own := s.turns.Standing(s.nodeOf(j)).Own
	if own.Reservation > 0 && own.Ahead <= 0 {
		return false
	}
	for sets := s.setsFor(j); sets != 0; sets &= sets - 1 {
		if t := s.lending.tiers[j.Lane.Class.Index()][first(sets)]; t == tree.TierReserved || t == tree.TierOrganization {
			return true
		}
	}
	return false
}

// holders returns the jobs of the leases that fit, the oldest grants first.
func (s *Scheduler) holders(fits func(*lease) bool) []cell.JobID {
	var held []*lease
	for _, le := range s.leases.all {
		if fits(le) {
			held = append(held, le)
		}
	}
	slices.SortFunc(held, func(a, b *lease) int {
		return cmp.Or(cmp.Compare(a.granted, b.granted), compareAge(a.job, b.job))
	})
	var ids []cell.JobID
	for _, le := range held[:min(len(held), HoldersMax)] {
		ids = append(ids, le.job.ID)
	}
	return ids
}
