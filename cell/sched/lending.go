package sched

import (
	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/drr"
	"github.com/fairlead/fairlead/cell/tree"
)

// lending is what the classes' readiness was when it was last looked at: a class lends its idle room when it has been quiet for long
// enough, and reclaims it when it was short for too long.
//
// A class is quiet for an offer set while no lane of its may run there, counted from the later of the scheduler's beginning and the last
// time that one could. It is quiet by set because room is lent by set: a worker that does not offer what the class has is of no use to it,
// and its slot would be held back for nobody.
type lending struct {
	began cell.Instant
	ready [2]uint64                    // sets in which the class had something to run, by cell.Class.Index
	last  [2][drr.MaxSets]cell.Instant // when it last had; 0 for never
	short [2]cell.Instant              // since when the class is below its nominal with something to run; 0 when it is not
	retry [2]cell.Instant              // when it is worth looking for leases to revoke again
	tiers [2][drr.MaxSets]tree.Tier    // which tier the class's latest grant in the set was from
}

// begin starts anew for an offer set.
func (x *lending) begin(set int) {
	for i := range x.last {
		x.ready[i] &^= 1 << set
		x.last[i][set], x.tiers[i][set] = 0, tree.TierNone
	}
}

// observe looks at which classes have something to run, and where. It is called before time passes and after, and before anybody asks for
// it.
func (s *Scheduler) observe() {
	x := &s.lending
	for i, c := range cell.Classes() {
		x.ready[i] = 0
		for sets := s.offers.live; sets != 0; sets &= sets - 1 {
			set := first(sets)
			if s.turns.Waiting(c, set) > 0 {
				x.ready[i] |= 1 << set
				x.last[i][set] = s.now
			}
		}
		switch short := x.ready[i] != 0 && s.bulkheads.used[i] < s.bulkheads.nominal[i]; {
		case !short:
			x.short[i], x.retry[i] = 0, 0
		case x.short[i] == 0:
			x.short[i] = s.now
		}
	}
}

// lends returns whether a class lends its idle room to what an offer set asks for, and if not, from when on it does if it stays as quiet as
// it is; 0 for not before it is quiet.
func (s *Scheduler) lends(i int, set drr.SetID) (bool, cell.Instant) {
	after := s.bulkheads.cfg[i].LendAfter
	if after == 0 {
		return true, 0
	}
	if s.lending.ready[i]&(1<<set) != 0 {
		return false, 0
	}
	at := max(s.lending.began, s.lending.last[i][set]).Add(after)
	return at <= s.now, at
}

// mayTake reports whether the class may have another lease for what an offer set asks for.
func (s *Scheduler) mayTake(i int, set drr.SetID) bool {
	lent, _ := s.lends(1-i, set)
	return s.bulkheads.mayTake(i, lent)
}

// heldBack returns whether only lend_after keeps the class from another lease in the set, and until when; 0 for not known.
func (s *Scheduler) heldBack(i int, set drr.SetID) (bool, cell.Instant) {
	lent, at := s.lends(1-i, set)
	return !lent && !s.bulkheads.mayTake(i, false) && s.bulkheads.mayTake(i, true), at
}

// lendWake returns the next time at which a class may take room that is held back from it now; 0 for none.
func (s *Scheduler) lendWake() cell.Instant {
	var wake cell.Instant
	for i := range 2 {
		for sets := s.lending.ready[i] & s.offers.live; sets != 0; sets &= sets - 1 {
			if back, at := s.heldBack(i, first(sets)); back {
				wake = sooner(wake, at)
			}
		}
	}
	return wake
}

// sooner returns the earlier of two times, where 0 is never.
func sooner(a, b cell.Instant) cell.Instant {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
