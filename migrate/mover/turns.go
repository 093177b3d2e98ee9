package mover

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/migrate"
)

// gateTurn is the name of the gate that a declared migration waits at while others of its cells are on their way.
const gateTurn = "turn"

// turns says which of the declared migrations may set out.
type turns struct {
	most, byCell int

	mu    sync.Mutex
	ready map[cell.MigrationID]bool // wait for nothing but their turn
	gone  map[cell.MigrationID]bool // were let go, which is not in the record yet
}

func newTurns(most, byCell int) *turns {
	return &turns{most: most, byCell: byCell, ready: make(map[cell.MigrationID]bool), gone: make(map[cell.MigrationID]bool)}
}

// active reports whether a migration takes up a turn: it copies, or is undone. One that is cut over has none any more: its reverse stream is little, and
// may last for a day.
func active(r *migrate.Record) bool {
	switch r.State {
	case migrate.Admitted, migrate.Provisioned, migrate.Seeding, migrate.CatchingUp, migrate.Shadowing, migrate.Ready, migrate.Ramping, migrate.Aborting,
		migrate.Reversing:
		return true
	case migrate.Declared, migrate.CutOver, migrate.Draining, migrate.Released, migrate.Aborted, migrate.RolledBack:
		return false
	default:
		return false
	}
}

// gate reports whether it is the turn of r, which is declared. Only one that waits for nothing else, which ready says, takes a turn or keeps others
// waiting.
func (t *turns) gate(r *migrate.Record, live []migrate.Record, ready bool) migrate.Gate {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.gone, r.ID)
	t.ready[r.ID] = ready
	all, in, declared := t.standingLocked(r, live)
	no := func(why string) migrate.Gate {
		return migrate.Gate{Name: gateTurn, Verdict: migrate.Fail, Evidence: why}
	}
	if why := t.full(r, all, in); why != "" {
		return no(why)
	}
	under := all
	for _, o := range declared {
		if before(o, r) > 0 {
			break
		}
		if t.full(o, all, in) != "" {
			continue
		}
		all++
		in[o.Source]++
		in[o.Target]++
		if t.full(r, all, in) != "" {
			return no(fmt.Sprintf("migration %s of tenant %s goes first", o.ID, o.Tenant))
		}
	}
	if ready {
		t.gone[r.ID] = true
	}
	return migrate.Gate{Name: gateTurn, Verdict: migrate.Pass, Evidence: fmt.Sprintf("%d of at most %d are under way", under, t.most)}
}

// standingLocked returns how many migrations beside r are under way, how many by cell, and which are ready and wait, the next first.
func (t *turns) standingLocked(r *migrate.Record, live []migrate.Record) (all int, in map[cell.ID]int, declared []*migrate.Record) {
	in = make(map[cell.ID]int)
	for i := range live {
		o := &live[i]
		waits := o.State == migrate.Declared && o.Held == ""
		if !waits {
			delete(t.gone, o.ID)
		}
		switch {
		case o.ID == r.ID:
		case active(o) || t.gone[o.ID]:
			all++
			in[o.Source]++
			in[o.Target]++
		case waits && t.ready[o.ID]:
			declared = append(declared, o)
		}
	}
	slices.SortFunc(declared, before)
	return all, in, declared
}

// leave forgets one that is not driven any more.
func (t *turns) leave(id cell.MigrationID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.gone, id)
	delete(t.ready, id)
}

// full returns why there is no room for r; empty when there is.
func (t *turns) full(r *migrate.Record, all int, in map[cell.ID]int) string {
	if all >= t.most {
		return fmt.Sprintf("%d migrations are under way, of at most %d", all, t.most)
	}
	for _, id := range []cell.ID{r.Source, r.Target} {
		if in[id] >= t.byCell {
			return fmt.Sprintf("%d migrations from or to %s are under way, of at most %d", in[id], id, t.byCell)
		}
	}
	return ""
}

// before orders migrations that wait: the highest priority, then the oldest.
func before(a, b *migrate.Record) int {
	return cmp.Or(cmp.Compare(b.Options.Priority, a.Options.Priority), cmp.Compare(a.Created, b.Created), cmp.Compare(a.ID, b.ID))
}
