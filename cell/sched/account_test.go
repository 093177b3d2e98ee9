package sched

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/tree"
)

// TestDebtOutlivesARestart carries a debt into a new scheduler: it holds there, shrinks with the rounds even while its owner wants nothing,
// and is over in time.
func TestDebtOutlivesARestart(t *testing.T) {
	old := newDesk(t, nil)
	for range 3 {
		old.add(Item{Lane: laneOf("a"), Cost: 500_000})
		old.add(Item{Lane: laneOf("b"), Cost: 10_000})
	}
	old.rest(old.offer, 2)
	account := old.LaneAccount(laneOf("a"))
	if account.Rounds < 40 {
		t.Fatalf("%+v after fifty rounds' worth at once", account)
	}
	d := newDesk(t, nil)
	if d.RestoreLane(laneOf("a"), account) {
		t.Error("the account of a tenant that is not known was restored")
	}
	d.weight("a", cell.WeightDefault)
	if !d.RestoreLane(laneOf("a"), account) || d.LaneAccount(laneOf("a")) != account {
		t.Errorf("%+v, not %+v", d.LaneAccount(laneOf("a")), account)
	}
	d.add(Item{Lane: laneOf("a"), Cost: 10_000})
	for range 100 {
		d.add(Item{Lane: laneOf("b"), Cost: 10_000})
		d.add(Item{Lane: laneOf("c"), Cost: 10_000})
	}
	if got := d.rest(d.offer, 70); strings.Contains(got, "a") {
		t.Error("a runs before its debt is over")
	}
	if got := d.rest(d.offer, 40); !strings.Contains(got, "a") {
		t.Error("a still waits after its debt is over")
	}
	d.check()
}

// TestAccountsOutliveARestart has a tenant and an organization at their limits, in a new scheduler still.
func TestAccountsOutliveARestart(t *testing.T) {
	organization := cell.OrganizationPolicy{Organization: "o", Weight: 1000, Limit: 2 * cell.Unit}
	tenant := cell.TenantPolicy{Tenant: "a", Organization: "o", Weight: 1000, Limit: cell.Unit}
	set := func(d *desk) {
		if err := errors.Join(d.SetOrganization(organization), d.SetTenant(tenant)); err != nil {
			t.Fatal(err)
		}
	}
	old := newDesk(t, nil)
	set(old)
	old.add(Item{Lane: laneOf("a"), Cost: 60 * cell.Cost(cell.Unit)})
	old.rest(old.offer, 1)
	d := newDesk(t, nil)
	if d.RestoreTenant("a", cell.TenantAccount{}) || d.RestoreOrganization("o", cell.OrganizationAccount{}) {
		t.Error("accounts of nobody were restored")
	}
	set(d)
	o, ok := old.OrganizationAccount("o")
	if !ok || !d.RestoreTenant("a", old.TenantAccount("a")) || !d.RestoreOrganization("o", o) {
		t.Fatal("accounts were not restored")
	}
	waits := d.add(Item{Lane: laneOf("a")})
	if w, _ := d.Explain(d.now, waits); w.Reason != ReasonLimit || w.Next != 1050*second {
		t.Errorf("%+v", w)
	}
	tenant.Limit = 0
	set(d)
	if w, _ := d.Explain(d.now, waits); w.Reason != ReasonOrganizationLimit || w.Next != 1020*second {
		t.Errorf("%+v", w)
	}
	if got, _ := d.OrganizationAccount("o"); got.LimitTag != o.LimitTag {
		t.Errorf("%+v, not %+v", got, o)
	}
	if d.TenantAccount("nobody") != (cell.TenantAccount{}) || d.LaneAccount(laneOf("nobody")) != (cell.LaneAccount{}) {
		t.Error("somebody who is not known has an account")
	}
}

// TestEstimates learns, and forgets what was observed the longest ago.
func TestEstimates(t *testing.T) {
	d := newDesk(t, nil)
	if d.Observe("a", "op", 5) || d.SetEstimate("a", "op", cell.Estimate{}) || d.Estimate("a", "op") != (cell.Estimate{}) {
		t.Error("something was learned of a tenant that is not known")
	}
	d.weight("a", cell.WeightDefault)
	for n := range EstimatesMax {
		d.SetEstimate("a", cell.Operation(fmt.Sprint("op", n)), cell.Estimate{Mean: cell.Cost(n), Samples: 1})
	}
	d.Observe("a", "op0", 100)
	if got := d.Estimate("a", "op0"); got != (cell.Estimate{Mean: 50, Samples: 2}) {
		t.Errorf("%+v", got)
	}
	d.Observe("a", "another", 7)
	if d.Estimate("a", "op1") != (cell.Estimate{}) || d.Estimate("a", "op2") == (cell.Estimate{}) {
		t.Error("not the one that was observed the longest ago is forgotten")
	}
	if d.Estimate("a", "another") != (cell.Estimate{Mean: 7, Samples: 1}) || d.Estimate("a", "op0").Samples != 2 {
		t.Error("what was observed last is forgotten")
	}
	d.add(Item{Lane: laneOf("a"), Cost: 1})
	d.Observe("a", "op", 12_345)
	if g, ok := d.Next(d.ask(d.offer)); !ok || g.Cost != 12_345 {
		t.Errorf("%+v is charged", g)
	}
	d.check()
}

// TestKeyBounds has a bound that a job brings that does not wait.
func TestKeyBounds(t *testing.T) {
	d := newDesk(t, nil)
	key := func(most int64) []cell.ConcurrencyKey { return []cell.ConcurrencyKey{{Key: "k", Max: most}} }
	for range 4 {
		d.add(Item{Lane: laneOf("a"), Keys: key(1)})
	}
	if got := d.rest(d.offer, 5); got != "a1" || d.KeyHeld("a", "k") != 1 || d.KeyHeld("a", "l") != 0 || d.KeyHeld("b", "k") != 0 {
		t.Errorf("%q", got)
	}
	d.Bound("a", key(3)[0], 9)
	d.Bound("a", key(1)[0], 8) // an earlier one
	d.Bound("nobody", key(1)[0], 10)
	if got := d.rest(d.offer, 5); got != "a2 a3" || d.KeyHeld("a", "k") != 3 {
		t.Errorf("%q", got)
	}
	d.Bound("a", key(-5)[0], 11)
	if w, _ := d.Explain(d.now, id(4)); w.Bound != 1 || w.Value != 3 {
		t.Errorf("%+v", w)
	}
	d.check()
}

// TestKeyBoundOutlivesARevocation has a job that was revoked carry on, from its lease to its turn, the bound that a later job had set and left.
func TestKeyBoundOutlivesARevocation(t *testing.T) {
	d := newDesk(t, nil)
	key := func(most int64) []cell.ConcurrencyKey { return []cell.ConcurrencyKey{{Key: "k", Max: most}} }
	first := Item{Lane: laneOf("a"), Keys: key(2)}
	d.add(first)
	d.rest(d.offer, 1)
	d.add(Item{Lane: laneOf("a"), Keys: key(3)})
	held, _ := d.Held(id(1))
	first.ID, first.Seq, first.Operation = id(1), held.Seq, held.Operation
	if added, err := d.Add(first); !added || err != nil {
		t.Fatal(added, err)
	}
	d.Remove(id(2))
	d.Drop(id(1))
	d.Bounds("a", func(name string, most int64) bool {
		if name != "k" || most != 3 {
			t.Errorf("%s is bound by %d, not 3", name, most)
		}
		return true
	})
	d.check()
}

// TestFirstAndOldest look at what waits in a lane: the first that may run, and the oldest.
func TestFirstAndOldest(t *testing.T) {
	d := newDesk(t, nil, "op", "other")
	if _, ok := d.First(laneOf("a")); ok {
		t.Error("a first of nothing")
	}
	if _, ok := d.Oldest(laneOf("a")); ok {
		t.Error("an oldest of nothing")
	}
	key := []cell.ConcurrencyKey{{Key: "k", Max: 1}}
	d.add(Item{Lane: laneOf("a"), Created: 900 * second, Keys: key})
	d.add(Item{Lane: laneOf("a"), Created: 910 * second, Keys: key})
	d.add(Item{Lane: laneOf("a"), Created: 920 * second, Operation: "other"})
	d.rest(d.offer, 1)
	if first, ok := d.First(laneOf("a")); !ok || first != id(3) {
		t.Errorf("%v is first", first)
	}
	if oldest, ok := d.Oldest(laneOf("a")); !ok || oldest != 910*second {
		t.Errorf("%d is the oldest", oldest)
	}
	d.Remove(id(3))
	if first, ok := d.First(laneOf("a")); !ok || first != id(2) {
		t.Errorf("%v is first of what is blocked", first)
	}
}

func TestRefusals(t *testing.T) {
	d := newDesk(t, nil)
	var field *cell.FieldError
	if added, err := d.Add(Item{ID: id(1), Lane: laneOf("nobody")}); added || !errors.As(err, &field) || field.Field != "tenant" {
		t.Errorf("a job of nobody's: %v %v", added, err)
	}
	d.add(Item{Lane: laneOf("a")})
	d.rest(d.offer, 1)
	moved := Item{ID: id(1), Lane: cell.Lane{Tenant: "a", Class: cell.ClassInteractive}}
	if added, err := d.Add(moved); added || !errors.As(err, &field) || field.Field != "job" {
		t.Errorf("a job that is held in another lane: %v %v", added, err)
	}
	for name, h := range map[string]Held{"held twice": {Job: id(1), Lane: laneOf("a")}, "nobody's": {Job: id(2), Lane: laneOf("nobody")}} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("it was counted")
				}
			}()
			d.Hold(h)
		})
	}
	d.check()
}

// TestCapacityAfterwards fills a scheduler with more than it can do, and bounds it then.
func TestCapacityAfterwards(t *testing.T) {
	d := newDesk(t, nil)
	p := cell.TenantPolicy{Tenant: "a", Weight: 1000, Reservation: [2]cell.Rate{0, 10 * cell.Unit}}
	d.policy(p)
	d.BoundCapacity([2]cell.Rate{0, 5 * cell.Unit})
	p.Weight = 2000
	d.policy(p)
	var field *cell.FieldError
	p.Reservation[1] = 11 * cell.Unit
	if err := d.SetTenant(p); !errors.As(err, &field) || field.Field != "reservation_batch" {
		t.Errorf("more of what is too much: %v", err)
	}
	p.Reservation[1] = 4 * cell.Unit
	d.policy(p)
}

func TestConfig(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Config){
		"interactive.nominal":          func(c *Config) { c.Bulkheads[0].NominalParts = 0 },
		"batch.lendable_percent":       func(c *Config) { c.Bulkheads[1].LendablePercent = 101 },
		"batch.borrow_max_percent":     func(c *Config) { c.Bulkheads[1].BorrowMaxPercent = -1 },
		"interactive.lend_after":       func(c *Config) { c.Bulkheads[0].LendAfter = -1 },
		"interactive.preempt_after":    func(c *Config) { c.Bulkheads[0].PreemptAfter = WaitMax + 1 },
		"batch.capacity":               func(c *Config) { c.Bulkheads[1].Capacity = cell.RateMax + 1 },
		"batch.burst":                  func(c *Config) { c.Bulkheads[1].Burst = time.Microsecond },
		"policy":                       func(c *Config) { c.Policy = 2 },
		"cost.default":                 func(c *Config) { c.CostDefault = 0 },
		"overrun_min":                  func(c *Config) { c.OverrunMin = -1 },
		"quantum":                      func(c *Config) { c.Quantum = 1 },
		"lanes_max":                    func(c *Config) { c.LanesMax = 1 },
		"interactive.nominal is -9223": func(c *Config) { c.Bulkheads[0].NominalParts = math.MinInt64 },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := DefaultConfig()
			change(&cfg)
			if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), name) {
				t.Error(err)
			}
			if _, err := New(cfg, 0); err == nil {
				t.Error("it makes a scheduler")
			}
		})
	}
	for _, p := range []Policy{PolicyFairlead, PolicyFIFO} {
		if got, err := ParsePolicy("policy", p.String()); got != p || err != nil {
			t.Error(got, err)
		}
	}
	var field *cell.FieldError
	if _, err := ParsePolicy("policy", Policy(7).String()); !errors.As(err, &field) {
		t.Error(err)
	}
}

// TestCheckFinds breaks what Check holds together, one thing at a time.
func TestCheckFinds(t *testing.T) {
	for name, damage := range map[string]func(*desk){
		"is both queued and held":            func(d *desk) { d.jobs[id(3)].lease = d.jobs[id(1)].lease },
		"neither waits nor is held":          func(d *desk) { d.jobs[id(3)].strand = nil },
		"jobs wait, and":                     func(d *desk) { d.waiting++ },
		"leases live":                        func(d *desk) { d.bulkheads.used[1]-- },
		"leases, and 2 are counted":          func(d *desk) { d.tenantOf("a").held++ },
		"is carried by 1 leases":             func(d *desk) { d.tenantOf("a").keys["k"].held++ },
		"references, and":                    func(d *desk) { d.tenantOf("a").keys["k"].refs++ },
		"and capped is":                      func(d *desk) { d.tenantOf("b").caps.capped = false },
		"and paced is":                       func(d *desk) { d.tenantOf("b").caps.paced = false },
		"sleeps at key k, of which 0 of 1":   func(d *desk) { d.tenantOf("a").keys["k"].held = 0 },
		"offers what key k blocks":           func(d *desk) { d.queueTop("c").keys[0] = d.tenantOf("a").keys["k"] },
		"queues for set 0":                   func(d *desk) { d.tenantOf("c").lanes[1].offered[0]++ },
		"is not among the lanes":             func(d *desk) { d.tenantOf("c").lanes[1].at = 99 },
		"fall due":                           func(d *desk) { d.leases.due.items = nil },
		"leases due: the element at 1":       func(d *desk) { d.leases.due.items[1].dueAt = 0 },
		"jobs ready, and":                    func(d *desk) { d.tenantOf("c").lanes[1].ready++ },
		"is of tenant c, which is forgotten": func(d *desk) { d.tenantOf("c").jobs = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, nil)
			d.policy(cell.TenantPolicy{Tenant: "b", Weight: 1000, RunningMax: 1, Starts: cell.StartRate{Jobs: 1, Per: time.Hour}})
			key := []cell.ConcurrencyKey{{Key: "k", Max: 1}}
			d.add(Item{Lane: laneOf("a"), Keys: key})
			d.add(Item{Lane: laneOf("b")})
			d.rest(d.offer, 2)
			d.add(Item{Lane: laneOf("a"), Keys: key})
			d.add(Item{Lane: laneOf("b")})
			d.add(Item{Lane: laneOf("c")})
			d.check()
			damage(d)
			if err := d.Check(); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%q is not among what was found: %v", name, err)
			}
		})
	}
}

func (d *desk) queueTop(tenant cell.TenantID) *strand {
	return d.tenantOf(tenant).lanes[1].queues[0].top
}

// TestLeaseRecords reads back what was granted and what was found.
func TestLeaseRecords(t *testing.T) {
	d := newDesk(t, nil)
	d.add(Item{Lane: laneOf("a"), Cost: 70_000, Preemptible: true})
	d.rest(d.offer, 1)
	h, ok := d.Held(id(1))
	if want := (Held{
		Job: id(1), Lane: laneOf("a"), Operation: "op", Seq: 1, Tier: tree.TierShared, Offer: d.offer, Offered: true, Charged: 70_000,
		Granted: 1000 * second, Preemptible: true,
	}); !ok || fmt.Sprint(h) != fmt.Sprint(want) {
		t.Errorf("%+v, not %+v", h, want)
	}
	d.Hold(Held{Job: id(9), Lane: laneOf("a"), Charged: -7})
	if h, _ := d.Held(id(9)); h.Offered || h.Tier != tree.TierShared || h.Charged != 0 {
		t.Errorf("%+v", h)
	}
	d.Adopt(id(9), d.offer)
	d.Adopt(id(8), d.offer)
	if h, _ := d.Held(id(9)); !h.Offered || h.Offer != d.offer {
		t.Errorf("%+v", h)
	}
	if _, ok := d.Held(id(8)); ok || d.HeldBy("a") != 2 || d.HeldBy("nobody") != 0 {
		t.Error("nobody holds something")
	}
	d.check()
}
