package migration

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/migrate"
)

// What must hold at every moment, and when everything has come to rest.
func (w *world) check() {
	w.t.Helper()
	open := map[cell.Class]cell.ID{}
	for _, id := range w.names {
		n := w.cells[id]
		for _, c := range cell.Classes() {
			l := n.state.Lane(cell.Lane{Tenant: tenant, Class: c})
			if l == nil || l.Mode != cell.ModeOpen {
				continue
			}
			if other, twice := open[c]; twice {
				w.t.Fatalf("%v is open in %s and in %s", c, other, id)
			}
			open[c] = id
		}
	}
}

// settle ends faults and brings the migration to its end.
func (w *world) settle() {
	w.t.Helper()
	w.faults = false
	for _, n := range w.cells {
		n.down = 0
	}
	for i := range 20_000 {
		w.now = w.now.Add(50 * time.Millisecond)
		w.deliver()
		w.tellPolicy()
		w.drivers[0].asleep = 0
		w.drivers[0].step()
		w.grant()
		w.report()
		w.check()
		m, ok := w.control.View().MigrationOf(tenant)
		if !ok || m.Done() && len(w.late) == 0 {
			return
		}
		if m.Held != "" && i%100 == 99 {
			w.operate()
		}
	}
	m, _ := w.control.View().MigrationOf(tenant)
	w.t.Fatalf("it does not come to an end: %v, held %q, lanes %+v\nnext: %+v\nseen: %+v", m.State, m.Held, m.Lanes,
		migrate.Next(m.Record, w.drivers[0].observed, w.now, config()), w.drivers[0].observed)
}

// verdict is what must have come of it all: each job that was accepted is one job, where its lane is at home, and nowhere else.
func (w *world) verdict() {
	w.t.Helper()
	homes := w.control.View().Homes(tenant)
	for k, id := range w.acked {
		home := homes[k.class.Index()]
		j := w.cells[home.Cell].state.JobOf(tenant, id)
		if j == nil {
			w.t.Fatalf("job %v of key %v was accepted and is not at %s", id, k, home.Cell)
		}
	}
	for _, id := range w.names {
		st := w.cells[id].state
		if err := st.Check(); err != nil {
			w.t.Fatalf("cell %s: %v", id, err)
		}
		for j := range st.Jobs {
			if home := homes[j.Lane.ID.Class.Index()]; home.Cell != id {
				w.t.Fatalf("cell %s still has job %v of %v, at home in %s", id, j.ID, j.Lane.ID, home.Cell)
			}
		}
		// What both cells had refilled while the classes were apart may be more than what one may hold; the scheduler cuts it. Doubled it must not be.
		if t := st.Tenant(tenant); t != nil && t.Account.Credit > creditMax+creditMax/10 {
			w.t.Fatalf("cell %s gives the tenant credit of %d, of at most %d", id, t.Account.Credit, creditMax)
		}
	}
	for _, c := range cell.Classes() {
		home := homes[c.Index()]
		if l := w.cells[home.Cell].state.Lane(cell.Lane{Tenant: tenant, Class: c}); l == nil || l.Mode != cell.ModeOpen {
			w.t.Fatalf("%v is at home in %s and not open there: %+v", c, home.Cell, l)
		}
	}
}

// run is one seed: a tenant that is used while it moves and whoever takes part in that fails.
func run(t *testing.T, seed uint64) (ends map[string]int) {
	t.Helper()
	w := newWorld(t, seed)
	w.refresh(&w.gates[0])
	w.refresh(&w.gates[1])
	for range 100 {
		w.submit()
		w.grant()
	}
	ends = map[string]int{}
	const movesMax, steps = 3, 900
	for range movesMax {
		w.start()
		w.faults = true
		for range steps {
			w.now = w.now.Add(time.Duration(w.r.IntN(60)) * time.Millisecond)
			w.event()
			w.drivers[w.r.IntN(2)].step()
			w.check()
			if m, _ := w.control.View().MigrationOf(tenant); m.Done() {
				break
			}
		}
		w.settle()
		w.verdict()
		m, _ := w.control.View().MigrationOf(tenant)
		ends[m.State.String()]++
	}
	ends["compared"] = w.compared
	return ends
}

// event is something that happens around the migration.
func (w *world) event() {
	switch w.r.IntN(40) {
	case 0:
		w.restart(w.names[w.r.IntN(2)])
	case 1:
		n := w.cells[w.names[w.r.IntN(2)]]
		n.down = w.now.Add(time.Duration(w.r.IntN(3000)) * time.Millisecond)
	case 2:
		w.restartControl()
	case 3:
		if w.one(6) {
			w.operate()
		}
	case 4, 5:
		w.refresh(&w.gates[w.r.IntN(2)])
	case 6, 7, 8:
		w.deliver()
	case 9:
		w.tellPolicy()
	case 10, 11, 12, 13, 14, 15:
		w.grant()
	case 16, 17, 18, 19, 20, 21:
		w.report()
	default:
		w.submit()
	}
}

// seedsEnv is how many runs there are; 1,000 for the figure in docs/MIGRATION.md.
const seedsEnv = "FAIRLEAD_SIM_SEEDS"

// Runs with lost, late and repeated messages, crashes of cells, of control and of whoever drives, two that drive at once, an operator who changes
// his mind, and gateways that are behind.
func TestMigrations(t *testing.T) {
	seeds := uint64(80)
	if text := os.Getenv(seedsEnv); text != "" {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			t.Fatalf("%s is %q, not a number", seedsEnv, text)
		}
		seeds = n
	} else if testing.Short() {
		seeds = 20
	}
	var mu sync.Mutex
	ends := map[string]int{}
	t.Run("seed", func(t *testing.T) {
		for seed := range seeds {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				of := run(t, seed)
				mu.Lock()
				defer mu.Unlock()
				for state, n := range of {
					ends[state] += n
				}
			})
		}
	})
	t.Logf("ended: %v", ends)
	for _, state := range []string{"released", "aborted", "rolled_back", "compared"} {
		if ends[state] == 0 {
			t.Errorf("nothing was %s: %v", state, ends)
		}
	}
}
