package mover

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/migrate"
)

// However they come, no more are under way than may be, in all and by cell; and when all that are ready have asked, one that fits has its turn.
func TestTurnsAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most, byCell := rapid.IntRange(1, 4).Draw(t, "most"), rapid.IntRange(1, 2).Draw(t, "by cell")
		turns := newTurns(most, byCell)
		var live []migrate.Record
		for i := range rapid.IntRange(1, 8).Draw(t, "migrations") {
			from := rapid.IntRange(0, 3).Draw(t, "source")
			to := (from + rapid.IntRange(1, 3).Draw(t, "target")) % 4
			live = append(live, migrate.Record{
				ID: cell.MigrationID(fmt.Sprint("m", i)), Source: cell.ID(fmt.Sprint("c", from)), Target: cell.ID(fmt.Sprint("c", to)),
				State: migrate.Declared, Created: cell.Instant(i), Options: migrate.Options{Priority: int32(rapid.IntRange(0, 2).Draw(t, "priority"))},
			})
		}
		let := map[cell.MigrationID]bool{} // and the record does not say so yet
		check := func() {
			all, in := 0, map[cell.ID]int{}
			for _, r := range live {
				if active(&r) || let[r.ID] {
					all++
					in[r.Source]++
					in[r.Target]++
				}
			}
			for id, n := range in {
				if all > most || n > byCell {
					t.Fatalf("%d are under way, %d of them from or to %s", all, n, id)
				}
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			i := rapid.IntRange(0, len(live)-1).Draw(t, "which")
			r := &live[i]
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0, 1:
				if r.State == migrate.Declared {
					ready := rapid.Bool().Draw(t, "ready")
					let[r.ID] = turns.gate(r, live, ready).Verdict == migrate.Pass && ready
				}
			case 2:
				if let[r.ID] {
					r.State, let[r.ID] = migrate.Admitted, false
				}
			default:
				if active(r) {
					r.State = migrate.CutOver
				}
			}
			check()
		}
		for i := range live { // everybody asks, and the first of those that wait has nobody before it
			if live[i].State != migrate.CutOver {
				live[i].State = migrate.Declared
			}
			turns.leave(live[i].ID)
		}
		waiting, passed := 0, 0
		for range 2 {
			for i := range live {
				if r := &live[i]; r.State == migrate.Declared {
					waiting++
					if turns.gate(r, live, true).Verdict == migrate.Pass {
						passed++
					}
				}
			}
		}
		if waiting > 0 && passed == 0 {
			t.Fatal("nobody has a turn")
		}
	})
}
