package sched

import (
	"math"

	"github.com/fairlead/fairlead/cell"
)

// Preempt returns the jobs, at most so many, whose leases are to be revoked now: borrowed slots that their owner has been missing for
// longer than its Bulkhead.PreemptAfter. The caller revokes each, adds the job again, and drops the lease when the worker has stopped: only
// then is the room free. A job is named once; what was named and is not dropped yet counts as room to come.
//
// A class has a claim only while it is below its nominal with something to run; tenants have none of their own, nor has a class above it.
// The youngest leases of preemptible jobs go first, only as many as there are jobs to run in their place, only down to the borrower's
// nominal, and only of workers that offer what the owner has. What a tenant holds as reserved is not borrowed, and it keeps as many
// as it has reserved in the class.
func (s *Scheduler) Preempt(now cell.Instant, most int) []cell.JobID {
	s.Advance(now)
	var ids []cell.JobID
	for owner := range 2 {
		at := s.claimAt(owner)
		if at == 0 || at > s.now {
			continue
		}
		need := s.claim(owner)
		if need <= 0 {
			continue
		}
		named := s.name(1-owner, s.lending.ready[owner], min(need, int64(most-len(ids))))
		ids = append(ids, named...)
		if int64(len(named)) < need && len(ids) < most {
			// Nobody else may be revoked: looking at all of them again is not for every call.
			s.lending.retry[owner] = s.now.Add(s.bulkheads.cfg[owner].PreemptAfter)
		}
	}
	return ids
}

// claimAt returns when a class may have borrowed slots revoked, 0 for never.
func (s *Scheduler) claimAt(owner int) cell.Instant {
	after := s.bulkheads.cfg[owner].PreemptAfter
	since := s.lending.short[owner]
	if after == 0 || since == 0 || s.borrowed(1-owner) <= 0 {
		return 0
	}
	return max(since.Add(after), s.lending.retry[owner])
}

// borrowed returns how many slots the class has borrowed that are not called back yet.
func (s *Scheduler) borrowed(i int) int64 {
	return s.bulkheads.used[i] - s.bulkheads.nominal[i] - s.leases.ending[i]
}

// claim returns how many slots a class that is short may call back.
func (s *Scheduler) claim(owner int) int64 {
	gap := s.bulkheads.nominal[owner] - s.bulkheads.used[owner] - s.leases.ending[1-owner]
	if gap = min(gap, s.borrowed(1-owner)); gap <= 0 {
		return 0
	}
	return min(gap, s.runnableJobs(owner, gap+s.leases.ending[1-owner])-s.leases.ending[1-owner])
}

// lanesCounted bounds the lanes that a claim is counted over. What lies beyond is claimed when those before have been served.
const lanesCounted = 256

// runnableJobs returns how many jobs of the class could run if there were room, as far as it matters: no more than enough, and rather too
// few than too many, because a job that loses its slot for nobody has lost its work.
func (s *Scheduler) runnableJobs(class int, enough int64) int64 {
	n := int64(0)
	lanes := s.runnable.lanes[class]
	for _, l := range lanes[:min(len(lanes), lanesCounted)] {
		if n >= enough {
			break
		}
		if l.active&s.lending.ready[class] != 0 {
			n += s.runnableOf(l)
		}
	}
	return min(n, enough)
}

// runnableOf returns how many jobs of a lane that is active could run, keys and caps permitting.
func (s *Scheduler) runnableOf(l *lane) int64 {
	if st := s.turns.Standing(l.node()); st.Held || st.LimitedUntil > s.now || st.OrganizationLimitedUntil > s.now {
		return 0
	}
	var plain, keyed int64
	for _, q := range l.queues {
		switch {
		case q.top == nil || s.offersOf(q)&s.offers.live == 0:
		case q.top == &q.bare:
			plain += int64(q.bare.jobs.len())
		default:
			// Of queues with keys one counts: they may share them.
			keyed = max(keyed, min(int64(q.top.jobs.len()), q.top.keys.left()))
		}
	}
	if s.everybody != nil {
		return plain
	}
	return l.owner.left(s.now, plain+keyed)
}

// left returns for how many more leases all of the keys have room.
func (ks *keySet) left() int64 {
	n := int64(math.MaxInt64)
	for _, k := range ks {
		if k != nil {
			n = min(n, k.max-k.held)
		}
	}
	return n
}

// name takes the youngest leases of a class that may be revoked and that were granted from one of the sets.
func (s *Scheduler) name(class int, sets uint64, most int64) []cell.JobID {
	var ids []cell.JobID
	var spared []*lease
	for int64(len(ids)) < most {
		le := s.youngestOf(class, sets)
		if le == nil {
			break
		}
		s.leases.victims[class][le.offer].remove(le)
		le.victim = false
		if s.protected(le) {
			spared = append(spared, le)
			continue
		}
		s.end(le, true)
		ids = append(ids, le.job.ID)
	}
	for _, le := range spared {
		s.expose(le)
	}
	return ids
}

func (s *Scheduler) youngestOf(class int, sets uint64) *lease {
	var best *lease
	for ; sets != 0; sets &= sets - 1 {
		le := s.leases.victims[class][first(sets)].first()
		if le != nil && (best == nil || youngest{}.before(le, best)) {
			best = le
		}
	}
	return best
}

// protected reports whether the lease's tenant would have less than it has reserved in the class without it. In slots that is plain where
// cost is slot time; where it is not, a tenant is protected while its reservation is behind.
func (s *Scheduler) protected(le *lease) bool {
	if s.everybody != nil {
		return false
	}
	own := s.turns.Standing(s.nodeOf(le.job)).Own
	if own.Reservation == 0 || s.cfg.OverrunMin == 0 {
		return own.Reservation > 0 && own.Ahead <= 0
	}
	return cell.Rate(le.job.owner.taken[le.class()]-1)*slotRate < own.Reservation
}

// slotRate is what a slot costs that runs all the time, where cost is slot time.
const slotRate cell.Rate = 1e6

// preemptWake returns the next time at which Preempt may have something to say; 0 for none.
func (s *Scheduler) preemptWake() cell.Instant {
	var wake cell.Instant
	for owner := range 2 {
		at := s.claimAt(owner)
		if at != 0 && at <= s.now && s.claim(owner) <= 0 {
			at = 0 // what was named has yet to stop
		}
		wake = sooner(wake, at)
	}
	return wake
}
