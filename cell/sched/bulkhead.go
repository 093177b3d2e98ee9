package sched

import "github.com/fairlead/fairlead/cell"

// bulkheads split the live slots between the classes. They count: which slot it is does not matter.
type bulkheads struct {
	cfg     [2]Bulkhead
	slots   int64 // live slots
	room    int64 // live slots and what workers may hold beyond them
	nominal [2]int64
	used    [2]int64 // leases held, by the class of their job
}

// resize splits anew: nominals are shares of the live slots by largest remainder, at least one each.
func (b *bulkheads) resize(slots, room int64) {
	b.slots, b.room = slots, room
	if slots == 0 {
		b.nominal = [2]int64{}
		return
	}
	parts := b.cfg[0].NominalParts + b.cfg[1].NominalParts
	first := slots * b.cfg[0].NominalParts / parts
	// Two classes: the larger remainder gets the slot that is left over; the first class at a tie.
	if r := slots * b.cfg[0].NominalParts % parts; 2*r >= parts {
		first++
	}
	if slots > 1 {
		first = min(max(1, first), slots-1)
	}
	b.nominal = [2]int64{max(1, first), max(1, slots-first)}
}

func (b *bulkheads) lendable(i int) int64 { return b.nominal[i] * b.cfg[i].LendablePercent / 100 }

// limit returns how many leases the class may hold: everything, or where the other class keeps some of its nominal to itself, its own
// nominal and what that one lends. Leases beyond the slots count like others: whatever a worker holds it may start before anybody can stop
// it. lent says that the other class lends what it may lend, and does not hold it back.
func (b *bulkheads) limit(i int, lent bool) int64 {
	kept := b.nominal[1-i]
	if lent {
		kept -= b.lendable(1 - i)
	}
	most := b.room
	if kept > 0 {
		most = max(b.nominal[i], b.slots-kept)
	}
	if percent := b.cfg[i].BorrowMaxPercent; percent < 100 {
		most = min(most, b.nominal[i]+b.slots*percent/100)
	}
	return most
}

// mayTake reports whether the class may have another lease.
func (b *bulkheads) mayTake(i int, lent bool) bool {
	return b.used[0]+b.used[1] < b.room && b.used[i] < b.limit(i, lent)
}

// order returns the classes in the order in which they are asked: those below their nominal by how far, least used/nominal first,
// then the borrowers. Interactive is asked first at a tie.
func (b *bulkheads) order() [2]cell.Class {
	first, second := cell.ClassInteractive, cell.ClassBatch
	below := [2]bool{b.used[0] < b.nominal[0], b.used[1] < b.nominal[1]}
	switch {
	case below[0] != below[1]:
		if below[1] {
			first, second = second, first
		}
	// used/nominal compared without dividing.
	case b.used[1]*max(1, b.nominal[0]) < b.used[0]*max(1, b.nominal[1]):
		first, second = second, first
	}
	return [2]cell.Class{first, second}
}
