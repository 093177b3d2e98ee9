package fairness

import (
	"fmt"
	"math/bits"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
)

// hand draws a hand of at most three of so many groups, or none.
func (w *world) hand(groups int) uint64 {
	hand := uint64(0)
	for range w.rng.IntN(4) {
		hand |= cell.WorkerGroup(1 + w.rng.IntN(groups)).Bit()
	}
	return hand
}

// deal puts workers of so many groups into a mixed world, beside those without a group that it has, and gives its tenants hands.
func (w *world) deal(t *rapid.T, groups int) {
	for g := range groups {
		ops := []cell.Operation{"op"}
		if rapid.Bool().Draw(t, "other") {
			ops = append(ops, "other")
		}
		w.crew(cell.WorkerGroup(g+1), rapid.IntRange(1, 3).Draw(t, "slots"), ops...)
	}
	for i := range len(w.books) { // mixed names them by their numbers
		p := w.books[cell.TenantID(fmt.Sprintf("tenant-%d", i))].policy
		p.Groups = w.hand(groups)
		w.tenant(p)
	}
}

// TestHandsMayChange is TestAnythingMayChange where workers are in groups and tenants have hands, which change too: whatever is granted is
// granted to workers of the hand (world.begin), no slot of the hand idles, and the reasons name the hand.
func TestHandsMayChange(t *testing.T) {
	cases(t, 20, func(t *rapid.T) {
		w := mixed(t, quickConfig())
		groups := rapid.IntRange(1, 6).Draw(t, "groups")
		w.deal(t, groups)
		anythingChanges(t, w, groups)
	})
}

// A tenant's wait in the groups that a poison tenant does not hold, when it has one job at a time: let it be free of the poison in a group of
// s slots. While it waits for t those are busy, with what ran when it came and with what others start there; those are the n other tenants that
// hold the group, each with a bound of its own against the waiting one, which is charged nothing meanwhile: 2Q + M/wi + M, with M the longest
// job and all weights 1. What others are charged in other groups only makes them wait longer here. So s t <= s M + n (2Q + 2M).
func handBound(w *world, holders, slots int, longest time.Duration) time.Duration {
	each := 2*time.Duration(w.cfg.Quantum)*time.Microsecond + 2*longest
	return longest + time.Duration(holders-1)*each/time.Duration(slots)
}

// endless is how long a job of a poison tenant runs: longer than any of these worlds.
const endless = 1000 * time.Hour

// poison floods the cell with jobs that never end, as many as could take every slot twice.
func (w *world) poison(hand uint64) {
	w.tenant(cell.TenantPolicy{Tenant: "poison", Weight: cell.WeightDefault, Groups: hand})
	for range 2 * w.slots() {
		j := &job{run: endless}
		j.Lane, j.Cost = cell.Lane{Tenant: "poison", Class: cell.ClassBatch}, 1000
		w.add(j)
	}
}

// others adds a tenant with one job at a time for each hand, and beside it one that always has more, if they are to be crowded.
func (w *world) others(t *rapid.T, hands []uint64, crowded bool) map[uint64]*quiet {
	others := map[uint64]*quiet{}
	for i, hand := range hands {
		q := &quiet{claimant: &claimant{
			policy:   cell.TenantPolicy{Tenant: cell.TenantID(fmt.Sprintf("tenant-%02d", i)), Weight: cell.WeightDefault, Groups: hand},
			declares: honest,
		}}
		q.least = time.Duration(rapid.Int64Range(1000, 4000).Draw(t, "least")) * time.Microsecond
		q.most = 2 * q.least
		w.tenant(q.policy)
		q.ask(w, cell.ClassBatch, 0)
		others[hand] = q
		if crowded {
			flood := *q.claimant
			flood.policy.Tenant = "flood-" + q.policy.Tenant
			w.tenant(flood.policy)
			for range 2 * w.slots() {
				flood.replace(w, cell.ClassBatch)
			}
		}
	}
	return others
}

// spoiled returns the groups in which the poison tenant has slots.
func (w *world) spoiled() uint64 {
	groups := uint64(0)
	for _, r := range w.runs { // order-free: a set
		if r.job.Lane.Tenant == "poison" {
			groups |= r.pool.group.Bit()
		}
	}
	return groups
}

// TestHandsOfTwoOfEight has tenants share eight groups of workers in hands of two. One floods the cell with jobs that never end, and has every
// slot of its two groups for good. For each of the 27 other hands there is a tenant that floods the rest of the cell, and a quiet one: it
// still has a group that is free of the poison, and waits at most its bound. The same workers without groups are lost to the poison, all
// of them.
func TestHandsOfTwoOfEight(t *testing.T) {
	const groups = 8
	var hands []uint64
	for a := range groups {
		for b := range a {
			hands = append(hands, 1<<a|1<<b)
		}
	}
	cases(t, 4, func(t *rapid.T) {
		poison := rapid.SampledFrom(hands).Draw(t, "poison")
		slots := rapid.IntRange(1, 3).Draw(t, "slots")
		w := newWorld(t, quickConfig(), rapid.Uint64().Draw(t, "seed"))
		for g := range groups {
			w.crew(cell.WorkerGroup(g+1), slots, "op")
		}
		w.poison(poison)
		w.runFor(time.Millisecond)
		others := w.others(t, without(hands, poison), true)
		w.runFor(3 * time.Second)
		if got := w.spoiled(); got != poison || w.books["poison"].held != int64(2*slots) {
			t.Fatalf("the poison tenant holds %d slots in groups %s", w.books["poison"].held, cell.FormatWorkerGroups(got))
		}
		longest := time.Duration(0)
		for _, q := range others { // order-free: the longest
			longest = max(longest, q.most)
		}
		bound := handBound(w, 2*(groups-1), slots, longest) // each group is in seven hands, of two tenants each
		for hand, q := range others {                       // order-free: each for itself
			if bits.OnesCount64(hand&^poison) == 0 || q.served == 0 || q.waited > bound {
				t.Fatalf("the tenant of groups %s waited up to %v of at most %v, for %d jobs", cell.FormatWorkerGroups(hand), q.waited, bound, q.served)
			}
		}

		w = newWorld(t, quickConfig(), 1)
		w.pool(groups*slots, "op")
		w.poison(0)
		w.runFor(time.Millisecond)
		lost := w.others(t, []uint64{0}, false)
		w.runFor(time.Second)
		if w.books["poison"].held != w.slots() || lost[0].served != 0 {
			t.Fatalf("without groups the poison tenant holds %d of %d slots, and %d jobs of another have run", w.books["poison"].held, w.slots(), lost[0].served)
		}
	})
}

func without(hands []uint64, hand uint64) []uint64 {
	var rest []uint64
	for _, h := range hands {
		if h != hand {
			rest = append(rest, h)
		}
	}
	return rest
}

// TestPoisonReachesOnlyItsHand deals random hands of random groups to random tenants, of which one is poison: outside of its hand there is
// nothing of it, ever; whoever has a group that is free of it is served within the bound of its best group; and when the poison tenant is
// dealt other groups, what waits of it goes there, and nothing more of it to those that it had.
func TestPoisonReachesOnlyItsHand(t *testing.T) {
	cases(t, 15, func(t *rapid.T) {
		w := newWorld(t, quickConfig(), rapid.Uint64().Draw(t, "seed"))
		groups := rapid.IntRange(2, 10).Draw(t, "groups")
		slots := map[cell.WorkerGroup]int{}
		for g := range cell.WorkerGroup(groups) {
			slots[g+1] = rapid.IntRange(1, 3).Draw(t, "slots")
			w.crew(g+1, slots[g+1], "op")
		}
		deal := func() uint64 {
			return rapid.Uint64Range(1, 1<<groups-1).Draw(t, "hand")
		}
		poison := deal()
		w.poison(poison)
		w.runFor(time.Millisecond)
		hands := map[uint64]bool{}
		for range rapid.IntRange(1, 8).Draw(t, "tenants") {
			if hand := deal(); hand&^poison != 0 {
				hands[hand] = true
			}
		}
		var list []uint64
		for hand := range uint64(1) << groups {
			if hands[hand] {
				list = append(list, hand)
			}
		}
		crowded := rapid.Bool().Draw(t, "crowded")
		others := w.others(t, list, crowded)
		w.runFor(time.Second)
		longest := time.Duration(0)
		for _, q := range others { // order-free: the longest
			longest = max(longest, q.most)
		}
		for hand, q := range others { // order-free: each for itself
			bound := time.Duration(1<<63 - 1)
			for _, g := range cell.WorkerGroups(hand &^ poison) {
				holders := 0
				for _, h := range list {
					if g.In(h) {
						holders++
						if crowded {
							holders++
						}
					}
				}
				bound = min(bound, handBound(w, holders, slots[g], longest))
			}
			if q.served == 0 || q.waited > bound {
				t.Fatalf("the tenant of groups %s waited up to %v of at most %v, for %d jobs", cell.FormatWorkerGroups(hand), q.waited, bound, q.served)
			}
		}
		if got := w.spoiled(); got != poison {
			t.Fatalf("the poison tenant has slots in groups %s, not %s", cell.FormatWorkerGroups(got), cell.FormatWorkerGroups(poison))
		}
		other := deal()
		held := w.books["poison"].held
		w.tenant(cell.TenantPolicy{Tenant: "poison", Weight: cell.WeightDefault, Groups: other})
		w.runFor(500 * time.Millisecond)
		// Where others always have work it may get nothing there: it owes for what it holds, and a new hand is no pardon.
		if got := w.spoiled(); got&^(poison|other) != 0 || got != poison|other && !crowded && len(list) < 3 {
			t.Fatalf("the poison tenant has slots in groups %s, after it held %s and %s", cell.FormatWorkerGroups(got),
				cell.FormatWorkerGroups(poison), cell.FormatWorkerGroups(other))
		}
		if free := other &^ poison; free == 0 && w.books["poison"].held != held {
			t.Fatalf("the poison tenant held %d slots, and holds %d without a new group", held, w.books["poison"].held)
		}
	})
}
