package sched

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
)

func bulkheadsOf(parts, lend, used [2]int64, slots, room int64) *bulkheads {
	b := &bulkheads{used: used}
	for i := range b.cfg {
		b.cfg[i] = Bulkhead{NominalParts: parts[i], LendablePercent: lend[i], BorrowMaxPercent: 100}
	}
	b.resize(slots, room)
	return b
}

func TestNominal(t *testing.T) {
	for name, c := range map[string]struct {
		parts [2]int64
		slots int64
		want  [2]int64
	}{
		"none":                   {[2]int64{3, 2}, 0, [2]int64{0, 0}},
		"one is both's":          {[2]int64{3, 2}, 1, [2]int64{1, 1}},
		"one each":               {[2]int64{1, 1000}, 2, [2]int64{1, 1}},
		"one each, turned round": {[2]int64{1000, 1}, 2, [2]int64{1, 1}},
		"larger remainder":       {[2]int64{3, 2}, 4, [2]int64{2, 2}},
		"larger remainder first": {[2]int64{3, 2}, 3, [2]int64{2, 1}},
		"exact":                  {[2]int64{3, 2}, 10, [2]int64{6, 4}},
		"tie":                    {[2]int64{1, 1}, 5, [2]int64{3, 2}},
		"seven of eight":         {[2]int64{7, 1}, 8, [2]int64{7, 1}},
		"thousands":              {[2]int64{1, 999}, 1000, [2]int64{1, 999}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := bulkheadsOf(c.parts, [2]int64{100, 100}, [2]int64{}, c.slots, c.slots).nominal; got != c.want {
				t.Errorf("%v, not %v", got, c.want)
			}
		})
	}
}

// TestMayTake has the cases of who may have another lease: interactive, batch.
func TestMayTake(t *testing.T) {
	for name, c := range map[string]struct {
		lend, used [2]int64
		room       int64
		want       [2]bool
	}{
		"empty":                              {[2]int64{100, 100}, [2]int64{0, 0}, 10, [2]bool{true, true}},
		"batch borrows all that is lent":     {[2]int64{100, 100}, [2]int64{0, 9}, 10, [2]bool{true, true}},
		"no room is nobody's":                {[2]int64{100, 100}, [2]int64{0, 10}, 10, [2]bool{false, false}},
		"what is not lent stays free":        {[2]int64{0, 100}, [2]int64{0, 7}, 10, [2]bool{true, false}},
		"and what is used of it is not lent": {[2]int64{0, 100}, [2]int64{2, 7}, 10, [2]bool{true, false}},
		"a third is lent":                    {[2]int64{34, 100}, [2]int64{0, 7}, 10, [2]bool{true, true}},
		"but no more":                        {[2]int64{34, 100}, [2]int64{0, 8}, 10, [2]bool{true, false}},
		"its own is its own":                 {[2]int64{0, 0}, [2]int64{2, 6}, 10, [2]bool{true, true}},
		"both at their own":                  {[2]int64{0, 0}, [2]int64{3, 7}, 10, [2]bool{false, false}},
		"jobs beyond slots count":            {[2]int64{0, 100}, [2]int64{0, 7}, 30, [2]bool{true, false}},
		"jobs beyond slots":                  {[2]int64{100, 100}, [2]int64{0, 29}, 30, [2]bool{true, true}},
	} {
		t.Run(name, func(t *testing.T) {
			b := bulkheadsOf([2]int64{3, 7}, c.lend, c.used, 10, c.room)
			if got := [2]bool{b.mayTake(0, true), b.mayTake(1, true)}; got != c.want {
				t.Errorf("%v, not %v", got, c.want)
			}
		})
	}
}

func TestOrder(t *testing.T) {
	for name, c := range map[string]struct {
		used  [2]int64
		first cell.Class
	}{
		"tie":                        {[2]int64{0, 0}, cell.ClassInteractive},
		"tie in use":                 {[2]int64{3, 7}, cell.ClassInteractive},
		"batch below its own":        {[2]int64{3, 6}, cell.ClassBatch},
		"interactive below its own":  {[2]int64{2, 0}, cell.ClassBatch}, // both are below: 2 of 3 against none
		"least used of both":         {[2]int64{1, 6}, cell.ClassInteractive},
		"borrowers by use":           {[2]int64{6, 8}, cell.ClassBatch},
		"the owner before borrowers": {[2]int64{2, 8}, cell.ClassInteractive},
	} {
		t.Run(name, func(t *testing.T) {
			b := bulkheadsOf([2]int64{3, 7}, [2]int64{100, 100}, c.used, 10, 10)
			if got := b.order(); got[0] != c.first || got[0] == got[1] {
				t.Errorf("%v", got)
			}
		})
	}
}

// TestBulkheadsHold takes and gives back at random, and holds the bulkheads to their law at any time: each has at least one slot of its
// own, they add up, a class takes no more than its own and what is lent, its own is there for it unless all room is held, and no room stays
// empty beside a class that may borrow it.
func TestBulkheadsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string, least, most int64) int64 { return rapid.Int64Range(least, most).Draw(t, name) }
		parts, lend := [2]int64{draw("p", 1, 9), draw("p", 1, 9)}, [2]int64{10 * draw("l", 0, 10), 10 * draw("l", 0, 10)}
		slots := draw("slots", 2, 40)
		b := bulkheadsOf(parts, lend, [2]int64{}, slots, slots+draw("beyond", 0, 40))
		if n := b.nominal; n[0] < 1 || n[1] < 1 || n[0]+n[1] != slots {
			t.Fatalf("%d slots are split %v", slots, n)
		}
		for range 100 {
			i := int(draw("class", 0, 1))
			if draw("take", 0, 2) == 0 {
				b.used[i] = max(0, b.used[i]-1)
				continue
			}
			may := b.mayTake(i, true)
			kept := b.nominal[1-i] - b.nominal[1-i]*lend[1-i]/100
			free := b.used[0]+b.used[1] < b.room
			switch {
			case may && !free:
				t.Fatal("took without room")
			case free && b.used[i] < b.nominal[i] && !may:
				t.Fatalf("class %d may not take its own: %+v", i, b)
			case free && kept == 0 && !may:
				t.Fatalf("class %d may not take what is idle and lent: %+v", i, b)
			case may && kept > 0 && b.used[i] >= slots-kept:
				t.Fatalf("class %d takes what is not lent: %+v", i, b)
			case may:
				b.used[i]++
			}
		}
	})
}

func ExampleScheduler_Use() {
	s, err := New(DefaultConfig(), 0)
	if err != nil {
		panic(err)
	}
	s.Resize(10, 14)
	fmt.Printf("%+v\n", s.Use(cell.ClassInteractive))
	// Output: {Nominal:6 Lendable:6 Used:0 Limit:14 Lent:0 HeldBack:0 Until:0}
}
