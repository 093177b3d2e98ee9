package sched

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/drr"
)

const second cell.Instant = 1e9

func id(n uint64) cell.JobID {
	var id cell.JobID
	binary.BigEndian.PutUint64(id[8:], n)
	return id
}

// desk is a scheduler with one offer of everything, for tests of the order.
type desk struct {
	*Scheduler

	t     tester
	offer OfferID
	seq   uint64
	names map[cell.JobID]string
}

// tester is what a desk needs of a test.
type tester interface {
	Helper()
	Fatal(args ...any)
	Error(args ...any)
}

func newDesk(t tester, change func(*Config), operations ...cell.Operation) *desk {
	t.Helper()
	cfg := DefaultConfig()
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg, 1000*second)
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{Scheduler: s, t: t, names: map[cell.JobID]string{}}
	if len(operations) == 0 {
		operations = []cell.Operation{"op"}
	}
	d.offer = d.open(operations...)
	s.Resize(1e6, 1e6)
	return d
}

func (d *desk) open(operations ...cell.Operation) OfferID {
	d.t.Helper()
	offer, err := d.Open(SortOperations(operations), 0)
	if err != nil {
		d.t.Fatal(err)
	}
	return offer
}

// add makes a job wait that is named by its tenant and a number of its own.
func (d *desk) add(it Item) cell.JobID {
	d.t.Helper()
	d.seq++
	it.ID, it.Seq = id(d.seq), d.seq
	if it.Lane.Class == 0 {
		it.Lane.Class = cell.ClassBatch
	}
	if it.Operation == "" {
		it.Operation = "op"
	}
	if it.Created == 0 {
		it.Created = 1000 * second
	}
	if d.tree.Tenant(it.Lane.Tenant) == nil {
		d.policy(cell.TenantPolicy{Tenant: it.Lane.Tenant, Weight: cell.WeightDefault})
	}
	if added, err := d.Add(it); !added || err != nil {
		d.t.Fatal(added, err)
	}
	d.names[it.ID] = fmt.Sprintf("%s%d", it.Lane.Tenant, d.seq)
	return it.ID
}

// policy makes p the policy of its tenant.
func (d *desk) policy(p cell.TenantPolicy) {
	d.t.Helper()
	if err := d.SetTenant(p); err != nil {
		d.t.Fatal(err)
	}
}

// weight gives a tenant a weight and nothing else.
func (d *desk) weight(tenant cell.TenantID, w cell.Weight) {
	d.t.Helper()
	d.policy(cell.TenantPolicy{Tenant: tenant, Weight: w})
}

func (d *desk) ask(offer OfferID) Ask {
	return Ask{Now: 1000 * second, Offer: offer, Classes: [2]bool{true, true}}
}

// rest returns the names of what is granted until nothing is.
func (d *desk) rest(offer OfferID, most int) string {
	var names []string
	for range most {
		g, ok := d.Next(d.ask(offer))
		if !ok {
			break
		}
		names = append(names, d.names[g.Item.ID])
	}
	return strings.Join(names, " ")
}

func laneOf(tenant cell.TenantID) cell.Lane { return cell.Lane{Tenant: tenant, Class: cell.ClassBatch} }

// TestLaneOrder has the order inside a lane: priority as seconds of head start, then the deadline, then the order of acceptance.
func TestLaneOrder(t *testing.T) {
	at := func(s int64, priority int32, deadline cell.Instant) Item {
		return Item{Lane: laneOf("j"), Created: 1000*second + cell.Instant(s)*second, Priority: priority, Deadline: deadline}
	}
	for name, c := range map[string]struct {
		items []Item
		want  string
	}{
		"acceptance":                {[]Item{at(0, 0, 0), at(0, 0, 0), at(0, 0, 0)}, "j1 j2 j3"},
		"priority":                  {[]Item{at(0, 0, 0), at(0, 1, 0), at(0, 2, 0)}, "j3 j2 j1"},
		"age against a head start":  {[]Item{at(5, 10, 0), at(0, 0, 0), at(20, 10, 0)}, "j1 j2 j3"},
		"negative priority":         {[]Item{at(0, -10, 0), at(5, 0, 0), at(20, 0, 0)}, "j2 j1 j3"},
		"equal heads: deadline":     {[]Item{at(0, 0, 0), at(0, 0, 9000*second), at(0, 0, 8000*second)}, "j3 j2 j1"},
		"deadline is after age":     {[]Item{at(0, 0, 0), at(1, 0, 8000*second)}, "j1 j2"},
		"equal in all: acceptance":  {[]Item{at(0, 5, 9000*second), at(5, 10, 9000*second)}, "j1 j2"},
		"the highest priority ages": {[]Item{at(0, 1<<31-1, 0), at(0, -1<<31, 0)}, "j1 j2"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, operations := range [][]cell.Operation{{"op"}, {"op", "b", "c"}} {
				d := newDesk(t, nil, operations...)
				for i, it := range c.items {
					it.Operation = operations[i%len(operations)]
					d.add(it)
				}
				for n, it := range c.items {
					p, ok := d.Place(id(uint64(n + 1)))
					if want := int64(slices.Index(strings.Fields(c.want), d.names[id(uint64(n+1))]) + 1); !ok || p.Position != want {
						t.Errorf("job %d, %+v, stands at %d, not %d", n+1, it, p.Position, want)
					}
				}
				if got := d.rest(d.offer, 10); got != c.want {
					t.Errorf("%s, not %s", got, c.want)
				}
			}
		})
	}
}

// TestBlockedHeads has jobs that nobody offers at the heads of their lanes: they hide nothing, and run when somebody comes.
func TestBlockedHeads(t *testing.T) {
	d := newDesk(t, nil)
	for n := range 1000 {
		d.add(Item{Lane: laneOf("a"), Operation: "gpu", Priority: 1000})
		d.add(Item{Lane: laneOf(cell.TenantID(fmt.Sprint("x", n))), Operation: "gpu"})
	}
	d.add(Item{Lane: laneOf("a")})
	d.add(Item{Lane: laneOf("b")})
	if got := d.rest(d.offer, 10); got != "a2001 b2002" {
		t.Fatal(got)
	}
	if d.turns.Waiting(cell.ClassBatch, drr.SetID(d.offer)) != 0 {
		t.Error("lanes with nothing to offer are in the rotation")
	}
	gpu := d.open("gpu")
	if got := len(strings.Fields(d.rest(gpu, 5000))); got != 2000 {
		t.Errorf("%d of 2000 run", got)
	}
}

// TestLateJobs are thrown out on the way, under every policy.
func TestLateJobs(t *testing.T) {
	for _, policy := range []Policy{PolicyFairlead, PolicyFIFO} {
		d := newDesk(t, func(c *Config) { c.Policy = policy })
		for range 100 {
			d.add(Item{Lane: laneOf("a"), Deadline: 1000 * second})
		}
		d.add(Item{Lane: laneOf("a"), Deadline: 1001 * second})
		if got := d.rest(d.offer, 10); got != "a101" || d.Len() != 0 {
			t.Errorf("%v: %q, and %d wait", policy, got, d.Len())
		}
	}
}

func TestFIFO(t *testing.T) {
	d := newDesk(t, func(c *Config) { c.Policy = PolicyFIFO })
	for n := range 6 {
		d.add(Item{Lane: laneOf([]cell.TenantID{"a", "a", "b"}[n%3]), Priority: int32(n), Cost: 1_000_000})
	}
	if got := d.rest(d.offer, 10); got != "a1 a2 b3 a4 a5 b6" {
		t.Error(got)
	}
	if _, ok := d.NextPrivate(0, "a", []cell.Operation{"op"}, [2]bool{true, true}); ok {
		t.Error("a private worker was granted a job of everybody's queue")
	}
}

// TestOffers has offer sets come and go.
func TestOffers(t *testing.T) {
	d := newDesk(t, nil)
	d.add(Item{Lane: laneOf("a"), Operation: "x"})
	d.add(Item{Lane: laneOf("b"), Operation: "y"})
	xy, x := d.open("x", "y"), d.open("x")
	if again := d.open("y", "x"); again != xy {
		t.Error("the same operations in another order are another offer")
	}
	if xy == x {
		t.Error("two offers in one place")
	}
	if got := d.rest(x, 5); got != "a1" {
		t.Error(got)
	}
	if !d.Starved() || d.Takeable() == 0 {
		t.Error("b waits and is offered")
	}
	d.Leave(xy)
	d.Leave(xy)
	if d.Starved() {
		t.Error("nobody offers y any more")
	}
	if again := d.open("x", "y"); again != xy {
		t.Error("an offer without workers was forgotten though nothing wanted its place")
	}
	if got := d.rest(xy, 5); got != "b2" {
		t.Error(got)
	}
}

// TestOffersEvicted fills the places of offers: the least recently opened without workers makes room, and where all have workers the next
// is refused, saying so.
func TestOffersEvicted(t *testing.T) {
	d := newDesk(t, nil)
	offers := []OfferID{d.offer}
	for n := 1; n < OffersMax; n++ {
		offers = append(offers, d.open(cell.Operation(fmt.Sprint("n", n))))
	}
	var limit *cell.LimitError
	if _, err := d.Open([]cell.Operation{"more"}, 0); !errors.As(err, &limit) || limit.Limit != "offer_sets_max" || limit.Bound != OffersMax {
		t.Fatalf("the offer beyond the last: %v", err)
	}
	if _, err := d.Change(offers[9], []cell.Operation{"more"}, 0); err != nil {
		t.Fatalf("the only worker of an offer may not change it: %v", err)
	}
	d.add(Item{Lane: laneOf("a"), Operation: "n7"})
	d.Leave(offers[7])
	d.Leave(offers[5])
	if got := d.open("fresh", "n7"); got != offers[5] {
		t.Errorf("the place of offer %d was taken, not of the least recent, %d", got, offers[5])
	}
	if got := d.open("newer"); got != offers[7] {
		t.Errorf("the place of offer %d was taken", got)
	}
	d.check() // a lane was active in what was taken
	if got := d.rest(offers[7], 5); got != "" {
		t.Errorf("an offer of other operations was given %s", got)
	}
	if got := d.rest(offers[5], 5); got != "a1" {
		t.Errorf("%q", got)
	}
	if _, err := d.Change(offers[3], []cell.Operation{"n4"}, 0); err != nil {
		t.Errorf("joining another offer: %v", err)
	}
	d.check()
}

// TestOffersOfGroups has workers of every group there can be offer the same: each group is a set, so that another set has no place until a
// group's last worker leaves.
func TestOffersOfGroups(t *testing.T) {
	d := newDesk(t, nil)
	d.Leave(d.offer)
	var offers []OfferID
	for g := cell.WorkerGroup(1); g <= cell.WorkerGroupsMax; g++ {
		for range 2 {
			offer, err := d.Open([]cell.Operation{"op"}, g)
			if err != nil {
				t.Fatalf("group %d: %v", g, err)
			}
			offers = append(offers, offer)
		}
	}
	var limit *cell.LimitError
	if _, err := d.Open([]cell.Operation{"op"}, 0); !errors.As(err, &limit) || limit.Limit != "offer_sets_max" || !strings.Contains(limit.Remedy, "groups") {
		t.Fatalf("a worker without a group beside 64: %v", err)
	}
	if err := d.SetTenant(cell.TenantPolicy{Tenant: "a", Weight: cell.WeightDefault, Groups: 1<<63 | 1}); err != nil {
		t.Fatal(err)
	}
	d.add(Item{Lane: laneOf("a"), Operation: "op"})
	d.add(Item{Lane: laneOf("a"), Operation: "op"})
	d.Leave(offers[0])
	d.Leave(offers[1])
	d.check() // a keeps its standing in the set of the group that has gone
	other, err := d.Open([]cell.Operation{"op"}, 0)
	if err != nil || other != offers[0] {
		t.Fatalf("a worker without a group beside 63: %v, %v", other, err)
	}
	d.check() // the lane was active in what was taken
	if got := d.rest(other, 5); got != "" {
		t.Errorf("a worker without a group was given %s", got)
	}
	if got := d.rest(offers[127], 5); got != "a1 a2" {
		t.Errorf("a worker of the 64th group was given %q", got)
	}
}

func (d *desk) check() {
	d.t.Helper()
	if err := d.Check(); err != nil {
		d.t.Error(err)
	}
}

// TestWeightsReachWaiting changes weights while everything waits already.
func TestWeightsReachWaiting(t *testing.T) {
	d := newDesk(t, nil)
	for range 300 {
		d.add(Item{Lane: laneOf("a"), Cost: 10_000})
		d.add(Item{Lane: laneOf("b"), Cost: 10_000})
	}
	count := func(n int) (a, b int) {
		got := d.rest(d.offer, n)
		return strings.Count(got, "a"), strings.Count(got, "b")
	}
	if a, b := count(40); a != 20 || b != 20 {
		t.Errorf("at equal weights %d and %d", a, b)
	}
	d.weight("b", 3000)
	if a, b := count(40); a < 9 || a > 11 || b < 29 || b > 31 {
		t.Errorf("at 1 to 3 %d and %d", a, b)
	}
	d.weight("a", 0)
	if a, b := count(50); a != 0 || b != 50 {
		t.Errorf("at 0 to 3 %d and %d", a, b)
	}
	var bad *cell.FieldError
	if err := d.SetTenant(cell.TenantPolicy{Tenant: "a", Weight: -1}); !errors.As(err, &bad) {
		t.Errorf("a negative weight: %v", err)
	}
}

func TestLanesBounded(t *testing.T) {
	d := newDesk(t, func(c *Config) { c.LanesMax = 4 })
	for _, tenant := range []cell.TenantID{"a", "b", "a"} {
		d.weight(tenant, 1000)
	}
	var limit *cell.LimitError
	if err := d.SetTenant(cell.TenantPolicy{Tenant: "c", Weight: 1000}); !errors.As(err, &limit) || limit.Limit != "lanes_max" || limit.Scope != cell.ScopeCell {
		t.Errorf("a tenant too many: %v", err)
	}
}

func TestNextPrivate(t *testing.T) {
	d := newDesk(t, nil)
	d.add(Item{Lane: laneOf("a")})
	d.add(Item{Lane: laneOf("b")})
	d.add(Item{Lane: laneOf("a"), Operation: "own", Priority: 5})
	d.add(Item{Lane: cell.Lane{Tenant: "a", Class: cell.ClassInteractive}, Deadline: 1})
	var got []string
	for {
		g, ok := d.NextPrivate(second, "a", []cell.Operation{"op", "own", "none"}, [2]bool{true, true})
		if !ok {
			break
		}
		if g.Cost != 0 {
			t.Error("a private worker's job is charged")
		}
		got = append(got, d.names[g.Item.ID])
	}
	if s := strings.Join(got, " "); s != "a3 a1" || d.Len() != 1 {
		t.Errorf("%s, and %d wait", s, d.Len())
	}
	if u := d.Use(cell.ClassBatch).Used; u != 0 {
		t.Errorf("they hold %d of the cell's slots", u)
	}
}

func TestPlace(t *testing.T) {
	d := newDesk(t, nil)
	d.Resize(1, 1)
	d.add(Item{Lane: laneOf("a")})
	last := d.add(Item{Lane: laneOf("a")})
	d.add(Item{Lane: laneOf("b")})
	if p, ok := d.Place(last); !ok || p != (Place{Position: 2, Tenants: 2, MayTake: true}) {
		t.Errorf("%+v %v", p, ok)
	}
	d.rest(d.offer, 1)
	if p, ok := d.Place(last); !ok || p != (Place{Position: 1, Tenants: 2}) {
		t.Errorf("%+v %v", p, ok)
	}
	d.Remove(last)
	if _, ok := d.Place(last); ok || d.Remove(last) || d.Waits(last) {
		t.Error("it waits though it was removed")
	}
}
