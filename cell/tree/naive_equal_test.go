package tree_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/drr"
	"github.com/fairlead/fairlead/cell/tree"
)

// TestTreeEqualsNaive runs random commands against the tree and the naive model, and wants the same refusals, the same lane and tier at
// every turn and the same accounts after it, whatever the promises, costs, offer sets, caps, pauses and settlements.
func TestTreeEqualsNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newPair(t)
		t.Repeat(map[string]func(*rapid.T){
			"organization": w.organization,
			"tenant":       w.tenant,
			"activate":     w.activate,
			"activate 2":   w.activate,
			"deactivate":   w.deactivate,
			"hold":         w.hold,
			"release":      w.release,
			"next":         w.next,
			"next 2":       w.next,
			"several":      func(t *rapid.T) { w.several(t) },
			"settle":       w.settle,
			"time":         w.time,
			"idle":         w.idle,
			"set":          w.set,
			"":             w.compare,
		})
	})
}

// pair is a tree and its model, with the same tenants.
type pair struct {
	tree    *tree.Tree[*leaf]
	model   *naive
	now     cell.Instant
	granted []grant
}

// grant is a charge that may be settled.
type grant struct {
	pick tree.Pick[*leaf]
	set  drr.SetID
	cost cell.Cost
}

func newPair(t *rapid.T) *pair {
	cfg := tree.DefaultConfig()
	cfg.Quantum = 1000
	burst := rapid.SampledFrom([]time.Duration{50 * time.Millisecond, time.Second}).Draw(t, "burst")
	cfg.Burst = [2]time.Duration{burst, burst}
	tr, err := tree.New[*leaf](cfg)
	if err != nil {
		t.Fatal(err)
	}
	w := &pair{tree: tr, model: newNaive(cfg), now: 1000e9}
	w.tree.Advance(w.now)
	w.model.now = w.now
	w.openSet(t, 0)
	for range rapid.IntRange(0, 2).Draw(t, "organizations") {
		w.organization(t)
	}
	for range rapid.IntRange(1, 4).Draw(t, "tenants") {
		w.tenant(t)
	}
	return w
}

func (w *pair) openSet(t *rapid.T, set drr.SetID) {
	if slices.Contains(w.model.sets, set) {
		return
	}
	if err := w.tree.OpenSet(set); err != nil {
		t.Fatal(err)
	}
	w.model.sets = append(w.model.sets, set)
	for class := range 2 {
		w.model.virtual[virtualID{class, set}] = &virtual{v: w.now, polled: w.now}
	}
}

// set opens one more offer set, or does nothing.
func (w *pair) set(t *rapid.T) { w.openSet(t, drr.SetID(rapid.IntRange(0, 2).Draw(t, "set"))) }

// rate draws a rate that every cost drawn is a whole number of nanoseconds of.
func rate(t *rapid.T, name string, most int) cell.Rate {
	return cell.Rate(rapid.SampledFrom([]int64{0, 0, 1, 2, 4, 5, 8, 10}[:most]).Draw(t, name)) * 1e6
}

func weight(t *rapid.T) cell.Weight {
	return rapid.SampledFrom([]cell.Weight{0, 100, 500, 1000, 1000, 1000, 2000, 5000}).Draw(t, "weight")
}

func (w *pair) organization(t *rapid.T) {
	p := cell.OrganizationPolicy{
		Organization: rapid.SampledFrom([]cell.OrganizationID{"m", "n", "o"}).Draw(t, "organization"), Weight: weight(t),
		Reservation: [2]cell.Rate{rate(t, "r", 6), rate(t, "r", 6)}, Limit: rate(t, "limit", 8), Epoch: 1,
	}
	err := w.tree.SetOrganization(p)
	if fault := w.model.setOrganization(p); (err != nil) != fault {
		t.Fatalf("%+v: refused with %v, want refused: %t", p, err, fault)
	}
	w.refused(t, err)
}

func (w *pair) tenant(t *rapid.T) {
	p := cell.TenantPolicy{
		Tenant: rapid.SampledFrom([]cell.TenantID{"a", "b", "c", "d", "p", "q"}).Draw(t, "tenant"), Weight: weight(t),
		Reservation: [2]cell.Rate{rate(t, "r", 6), rate(t, "r", 6)}, Limit: rate(t, "limit", 8), Epoch: 1,
	}
	if rapid.Bool().Draw(t, "credit") {
		p.Credit = cell.Credit{
			Max: cell.Cost(rapid.SampledFrom([]int64{1, 100, 2000}).Draw(t, "max")) * 1000, Refill: rate(t, "refill", 4),
			Extra: max(1e6, rate(t, "extra", 8)),
		}
	}
	// A tenant stays where it was put first: what moves between organizations is another test's.
	if old := w.model.person(p.Tenant); old != nil {
		p.Organization = old.policy.Organization
	} else {
		p.Organization = rapid.SampledFrom([]cell.OrganizationID{"", "m", "n"}).Draw(t, "of")
	}
	fault := w.model.setTenant(p, w.now)
	n, err := w.tree.SetTenant(p, func(class cell.Class) *leaf { return w.model.person(p.Tenant).lanes[class.Index()] })
	if (err != nil) != fault {
		t.Fatalf("%+v: refused with %v, want refused: %t", p, err, fault)
	}
	w.refused(t, err)
	if err == nil && (n.ID() != p.Tenant || n.Policy() != p || w.tree.Tenant(p.Tenant) != n) {
		t.Fatalf("%+v: %+v", p, n.Policy())
	}
}

func (w *pair) refused(t *rapid.T, err error) {
	var field *cell.FieldError
	if err != nil && (!errors.As(err, &field) || field.Field == "" || field.Remedy == "") {
		t.Fatalf("refused with %v", err)
	}
}

// lane draws a lane and an open set.
func (w *pair) lane(t *rapid.T) (*leaf, *tree.Lane[*leaf], drr.SetID) {
	if len(w.model.people) == 0 {
		t.Skip("nobody is there")
	}
	p := rapid.SampledFrom(w.model.people).Draw(t, "of")
	class := classes.Draw(t, "class")
	return p.lanes[class.Index()], w.tree.Tenant(p.policy.Tenant).Lane(class), w.anySet(t)
}

var classes = rapid.SampledFrom([]cell.Class{cell.ClassInteractive, cell.ClassBatch})

func (w *pair) anySet(t *rapid.T) drr.SetID { return rapid.SampledFrom(w.model.sets).Draw(t, "set") }

func (w *pair) activate(t *rapid.T) {
	l, lane, set := w.lane(t)
	w.tree.Activate(lane, set)
	l.active[set] = true
	w.model.refresh()
}

func (w *pair) deactivate(t *rapid.T) {
	l, lane, set := w.lane(t)
	w.tree.Deactivate(lane, set)
	l.active[set] = false
	w.model.refresh()
}

func (w *pair) hold(t *rapid.T) {
	l, lane, _ := w.lane(t)
	w.tree.Hold(lane.Tenant())
	l.held++
	w.model.refresh()
}

func (w *pair) release(t *rapid.T) {
	l, lane, _ := w.lane(t)
	if l.held > 0 {
		w.tree.Release(lane.Tenant())
		l.held--
		w.model.refresh()
	}
}

func cost(t *rapid.T) cell.Cost {
	return cell.Cost(rapid.SampledFrom([]int64{1, 1, 2, 5, 10, 40, 200, 3000}).Draw(t, "cost")) * 1000
}

// next asks whose turn it is, and charges it unless its job turns out to be late.
func (w *pair) next(t *rapid.T) {
	class, set := classes.Draw(t, "class"), w.anySet(t)
	want, ok := w.model.next(class.Index(), set)
	pick, got := w.tree.Next(w.now, class, set)
	if got != ok || ok && (pick.Lane.Value != want.lane || pick.Tier != want.tier) {
		t.Fatalf("%v in set %d: %s, want %s%s", class, set, shown(pick, got), want.shown(ok), w.describe(class, set))
	}
	if !ok || rapid.IntRange(0, 9).Draw(t, "late") == 0 {
		return
	}
	c := cost(t)
	w.tree.Charge(pick, set, c)
	w.model.charge(want, set, c)
	w.granted = append(w.granted, grant{pick, set, c})
	if rapid.IntRange(0, 3).Draw(t, "last") == 0 { // it was the lane's last
		w.tree.Deactivate(pick.Lane, set)
		want.lane.active[set] = false
		w.model.refresh()
	}
}

func (w *pair) several(t *rapid.T) {
	for range 6 {
		w.next(t)
		w.compare(t)
	}
}

// describe is where everybody stands in a class and set, as the model sees it and as the tree does.
func (w *pair) describe(class cell.Class, set drr.SetID) string {
	id := virtualID{class.Index(), set}
	out := fmt.Sprintf(" at %d, virtual time %d", w.now, w.model.virtual[id].v)
	for _, l := range w.model.leaves(id.class, set) {
		standing := w.tree.Standing(w.tree.Tenant(l.policy.Tenant).Lane(class))
		out += fmt.Sprintf("\n%s: reserves %d by %d, spends %d of %d; tree: %+v", l.policy.Tenant, l.policy.Reservation[id.class],
			l.tags[set], l.spend, w.model.creditNow(l.person), standing)
	}
	return out
}

func shown(p tree.Pick[*leaf], ok bool) string {
	if !ok {
		return "nobody"
	}
	return fmt.Sprintf("%s by %v", p.Lane.Tenant().ID(), p.Tier)
}

func (c choice) shown(ok bool) string {
	if !ok {
		return "nobody"
	}
	return fmt.Sprintf("%s by %v", c.lane.policy.Tenant, c.tier)
}

// settle charges more for a job that was granted, or gives back what it did not cost.
func (w *pair) settle(t *rapid.T) {
	if len(w.granted) == 0 {
		t.Skip("nothing was granted")
	}
	i := rapid.IntRange(0, len(w.granted)-1).Draw(t, "grant")
	g := &w.granted[i]
	delta := rapid.SampledFrom([]cell.Cost{g.cost, 3 * g.cost, -g.cost / 2000 * 1000, -g.cost}).Draw(t, "delta")
	w.tree.Settle(g.pick.Lane, g.set, g.pick.Tier, delta)
	w.model.settle(choice{g.pick.Lane.Value, g.pick.Tier}, g.set, delta)
	if g.cost += delta; g.cost == 0 {
		w.granted = slices.Delete(w.granted, i, i+1)
	}
}

// time moves the clock, stopping wherever the tree wants to be woken.
func (w *pair) time(t *rapid.T) {
	w.model.refresh()
	until := w.now.Add(time.Duration(rapid.SampledFrom([]int{0, 1, 3, 10, 100, 1000, 20_000}).Draw(t, "ms")) * time.Millisecond)
	for steps := 0; w.now < until; steps++ {
		next := until
		if at := w.tree.Wake(); at != 0 && at < next {
			next = at
		}
		if next <= w.now || steps > 10_000 {
			t.Fatalf("at %d the tree wants to be woken at %d", w.now, next)
		}
		w.now = next
		w.tree.Advance(w.now)
		w.model.now = w.now
		w.model.fire()
	}
}

func (w *pair) idle(t *rapid.T) {
	class := classes.Draw(t, "class")
	c := rapid.SampledFrom([]int64{1, 500, 1000, 2500, 300_000}).Draw(t, "idle")
	w.tree.Idle(class, c)
	w.model.idle(class.Index(), c)
}

// compare holds the tree to its invariants and to the model's accounts.
func (w *pair) compare(t *rapid.T) {
	if err := w.tree.Check(); err != nil {
		t.Fatal(err)
	}
	for class := range 2 {
		for _, set := range w.model.sets {
			if got, want := w.tree.Waiting(cell.Classes()[class], set), len(w.model.leaves(class, set)); got != want {
				t.Fatalf("class %d set %d: %d wait, want %d", class, set, got, want)
			}
		}
	}
	for _, p := range w.model.people {
		n := w.tree.Tenant(p.policy.Tenant)
		if a := w.tree.TenantAccount(n); p.limit > 0 && a.LimitTag != p.limit || p.spend > 0 && a.CreditTag != p.spend {
			t.Fatalf("%s: %+v, want limit %d, credit %d", p.policy.Tenant, a, p.limit, p.spend)
		} else if p.policy.Credit.Extra > 0 && p.filling != 0 && (a.Credit != p.credit || a.CreditAt != p.filling) {
			t.Fatalf("%s: %+v, want %d in its bucket, filling from %d", p.policy.Tenant, a, p.credit, p.filling)
		}
		for i, l := range p.lanes {
			lane := n.Lane(cell.Classes()[i])
			ahead := time.Duration(0)
			if p.policy.Reservation[i] > 0 {
				ahead = l.ahead(w.model, i)
			}
			if a := w.tree.LaneAccount(lane); a.Ahead != ahead {
				t.Fatalf("%s: %+v, want %v ahead", p.policy.Tenant, a, ahead)
			}
			for _, set := range w.model.sets {
				if lane.Active(set) != l.active[set] {
					t.Fatalf("%s: active in set %d: %t", p.policy.Tenant, set, lane.Active(set))
				}
			}
		}
	}
	if at, due := w.tree.Wake(), w.model.wake(); due != 0 && (at == 0 || at > due) || at != 0 && at <= w.now {
		t.Fatalf("at %d the tree wakes at %d, though something changes at %d", w.now, at, due)
	}
}
