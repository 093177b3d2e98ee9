package tree_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/drr"
	"github.com/fairlead/fairlead/cell/tree"
)

// claim is a tenant of figure D: what it offers and what it should get, in units of cost per second.
type claim struct {
	id           string
	ops, cost    float64 // offered per second, and units each; ops 0 for always something, below 0 for nothing
	reservation  float64
	weight       float64
	organization string
	want         float64
}

// units is an amount in micro-units.
func units(f float64) int64 { return int64(math.Round(f * 1e6)) }

// line is a lane's jobs that wait.
type line struct {
	claim
	jobs    int64
	arrived int64
	served  int64
}

// world is a tree on a virtual clock: a server that takes as long for a job as its cost is of the capacity.
type world struct {
	tb       testing.TB
	tree     *tree.Tree[*line]
	now      cell.Instant
	capacity int64 // micro-units per second
	lines    []*line
	rest     int64
}

const testClass = cell.ClassInteractive

func newWorld(tb testing.TB, capacity float64) *world {
	tb.Helper()
	w := newWorldAt(tb, capacity, 1_700_000_000e9)
	if err := w.tree.OpenSet(0); err != nil {
		tb.Fatal(err)
	}
	return w
}

// newWorldAt is a world in which nothing is offered yet.
func newWorldAt(tb testing.TB, capacity float64, now cell.Instant) *world {
	tb.Helper()
	cfg := tree.DefaultConfig()
	cfg.Quantum = 1_000_000
	t, err := tree.New[*line](cfg)
	if err != nil {
		tb.Fatal(err)
	}
	t.Advance(now)
	return &world{tb: tb, tree: t, capacity: units(capacity), now: now}
}

func (w *world) organization(p cell.OrganizationPolicy) {
	w.tb.Helper()
	if err := w.tree.SetOrganization(p); err != nil {
		w.tb.Fatal(err)
	}
}

func (w *world) tenant(c claim, change func(*cell.TenantPolicy)) *line {
	w.tb.Helper()
	l := &line{claim: c}
	p := cell.TenantPolicy{
		Tenant: cell.TenantID(c.id), Organization: cell.OrganizationID(c.organization), Weight: cell.Weight(c.weight * 1000), Epoch: 1,
	}
	p.Reservation[testClass.Index()] = cell.Rate(units(c.reservation))
	if change != nil {
		change(&p)
	}
	if _, err := w.tree.SetTenant(p, func(cell.Class) *line { return l }); err != nil {
		w.tb.Fatal(err)
	}
	w.lines = append(w.lines, l)
	return l
}

func (w *world) lane(l *line) *tree.Lane[*line] {
	return w.tree.Tenant(cell.TenantID(l.id)).Lane(testClass)
}

// run serves for a time.
func (w *world) run(d time.Duration) {
	w.tb.Helper()
	start := w.now
	arrivedBefore := make([]int64, len(w.lines))
	for i, l := range w.lines {
		arrivedBefore[i] = l.arrived
	}
	for end := w.now.Add(d); w.now < end; {
		for i, l := range w.lines {
			switch {
			case l.ops == 0:
				l.jobs = 1
			case l.ops < 0: // nothing
			default:
				due := arrivedBefore[i] + int64(l.ops*w.now.Sub(start).Seconds())
				l.jobs += due - l.arrived
				l.arrived = due
			}
			if l.jobs > 0 {
				w.tree.Activate(w.lane(l), 0)
			}
		}
		pick, ok := w.tree.Next(w.now, testClass, 0)
		if !ok {
			w.now += 100e3
			continue
		}
		l := pick.Lane.Value
		cost := units(l.cost)
		w.tree.Charge(pick, 0, cell.Cost(cost))
		l.served += cost
		if l.jobs--; l.jobs == 0 && l.ops > 0 {
			w.tree.Deactivate(pick.Lane, 0)
		}
		// Exactly as long as the cost is of the capacity, to the nanosecond.
		w.rest += cost * 1000
		w.now += cell.Instant(w.rest * 1_000_000 / w.capacity)
		w.rest -= w.rest * 1_000_000 / w.capacity * w.capacity / 1_000_000
	}
	if err := w.tree.Check(); err != nil {
		w.tb.Fatal(err)
	}
}

// stop takes a lane's jobs away, and go gives it as many as can be served.
func (w *world) stop(l *line) {
	l.ops, l.jobs = -1, 0
	w.tree.Deactivate(w.lane(l), 0)
}

func (l *line) start() { l.ops = 0 }

// rates runs for a time, and returns what each line was served in it, in units per second.
func (w *world) rates(d time.Duration) map[string]float64 {
	w.tb.Helper()
	before := map[string]int64{}
	for _, l := range w.lines {
		before[l.id] = l.served
	}
	w.run(d)
	out := map[string]float64{}
	for _, l := range w.lines {
		out[l.id] = float64(l.served-before[l.id]) / 1e6 / d.Seconds()
	}
	return out
}

// wants compares rates with what they should be, to within a part of that.
func (w *world) wants(got map[string]float64, part float64, want map[string]float64) {
	w.tb.Helper()
	for id, rate := range want { // order-free: each for itself
		if math.Abs(got[id]-rate) > part*rate {
			w.tb.Errorf("%s gets %.2f a second, want %.2f", id, got[id], rate)
		}
	}
}

// one charges one job of a cost to the lane whose turn it is, checks the tree, and returns whose and by which tier.
func (w *world) one(cost float64) (string, tree.Tier) {
	w.tb.Helper()
	id, tier := w.take(cost)
	if err := w.tree.Check(); err != nil {
		w.tb.Fatal(err)
	}
	return id, tier
}

// take is one without the check, for many.
func (w *world) take(cost float64) (string, tree.Tier) {
	p, ok := w.tree.Next(w.now, testClass, 0)
	if !ok {
		return "nobody", 0
	}
	w.tree.Charge(p, 0, cell.Cost(units(cost)))
	return p.Lane.Value.id, p.Tier
}

// advance lets time pass without polls.
func (w *world) advance(d time.Duration) {
	w.now = w.now.Add(d)
	w.tree.Advance(w.now)
}

func organization(id string, weight, reservation, limit float64) cell.OrganizationPolicy {
	p := cell.OrganizationPolicy{
		Organization: cell.OrganizationID(id), Weight: cell.Weight(weight * 1000), Limit: cell.Rate(units(limit)), Epoch: 1,
	}
	p.Reservation[testClass.Index()] = cell.Rate(units(reservation))
	return p
}

func set(i int) drr.SetID { return drr.SetID(i) }

func tenantName(i int) string { return fmt.Sprintf("t%05d", i) }

// move gives a tenant another organization, or none.
func (w *world) move(id, to string) {
	w.tb.Helper()
	p := w.tree.Tenant(cell.TenantID(id)).Policy()
	p.Organization = cell.OrganizationID(to)
	if _, err := w.tree.SetTenant(p, nil); err != nil {
		w.tb.Fatal(err)
	}
}
