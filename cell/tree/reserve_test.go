package tree_test

import (
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/tree"
)

// TestShareIsReservationAndPartOfSpare: with plain weights the three would get 6,000, 4,000 and 2,000.
func TestShareIsReservationAndPartOfSpare(t *testing.T) {
	w := newWorld(t, 1000)
	w.tenant(claim{id: "a", cost: 1, reservation: 500, weight: 1}, nil)
	w.tenant(claim{id: "b", cost: 1, weight: 1}, nil)
	w.tenant(claim{id: "c", cost: 1, weight: 3}, nil)
	w.wants(w.rates(10*time.Second), 0.005, map[string]float64{"a": 600, "b": 100, "c": 300})
}

// TestBorrowingDoesNotSpendTheReservation: a tenant alone takes everything; when others come it has its reservation at once and in full.
func TestBorrowingDoesNotSpendTheReservation(t *testing.T) {
	w := newWorld(t, 1000)
	a := w.tenant(claim{id: "a", cost: 1, reservation: 300, weight: 1}, nil)
	b := w.tenant(claim{id: "b", cost: 1, weight: 1000, ops: -1}, nil)
	w.wants(w.rates(5*time.Second), 0.005, map[string]float64{"a": 1000})
	b.start()
	w.wants(w.rates(time.Second), 0.02, map[string]float64{"a": 300 + 700./1001})
	w.stop(a)
	w.wants(w.rates(time.Second), 0.005, map[string]float64{"a": 0, "b": 1000})
}

// TestNewPromiseIsOwedNothing: a tenant that is promised something after an hour does not get an hour's, nor a burst, at once.
func TestNewPromiseIsOwedNothing(t *testing.T) {
	w := newWorld(t, 1000)
	w.tenant(claim{id: "a", cost: 1, reservation: 100, weight: 1}, nil)
	w.run(100 * time.Second)
	w.tenant(claim{id: "b", cost: 1, reservation: 500, weight: 1}, nil)
	w.wants(w.rates(time.Second), 0.01, map[string]float64{"a": 300, "b": 700})
}

// TestIdleCellOwesOneBurst: nobody polls an idle cell, and its virtual time must not jump by two bursts when somebody does.
func TestIdleCellOwesOneBurst(t *testing.T) {
	w := newWorld(t, 1000)
	a := w.tenant(claim{id: "a", cost: 1, reservation: 100, weight: 1}, nil)
	w.tenant(claim{id: "b", cost: 1, weight: 1}, nil)
	w.run(time.Second)
	w.stop(a)
	w.advance(time.Hour)
	a.start()
	w.tree.Activate(w.lane(a), 0)
	reserved := 0.0
	for {
		if _, tier := w.one(1); tier != tree.TierReserved {
			break
		}
		reserved++
	}
	if reserved < 100 || reserved > 101 {
		t.Errorf("at once %v units of a reservation of 100 a second, want a burst of one second", reserved)
	}
}

// TestScarcityEndsWithoutCatchingUp: a minute at half of what is reserved, then enough: what was lost stays lost, and within two bursts everybody has
// what the planner says.
func TestScarcityEndsWithoutCatchingUp(t *testing.T) {
	w := newWorld(t, 500)
	w.tenant(claim{id: "a", cost: 1, reservation: 600, weight: 1}, nil)
	w.tenant(claim{id: "b", cost: 1, reservation: 400, weight: 1}, nil)
	w.tenant(claim{id: "c", cost: 1, weight: 2}, nil)
	w.wants(w.rates(60*time.Second), 0.005, map[string]float64{"a": 300, "b": 200, "c": 0})
	w.capacity = units(2000)
	w.run(2 * time.Second)
	w.wants(w.rates(10*time.Second), 0.005, map[string]float64{"a": 850, "b": 650, "c": 500})
}

// TestSetThatFellBehindStillReserves: with one R in all sets, a tenant that was served in a set with servers enough would have no reservation in one
// that was short of them for an hour, until an hour later.
func TestSetThatFellBehindStillReserves(t *testing.T) {
	w := newWorld(t, 500)
	if err := w.tree.OpenSet(1); err != nil {
		t.Fatal(err)
	}
	w.tenant(claim{id: "a", cost: 1, reservation: 1000, weight: 1}, nil)
	x := w.tenant(claim{id: "x", cost: 1, reservation: 250, weight: 1, ops: -1}, nil)
	for range 600 { // the short set falls behind by five minutes, while x has its reservation elsewhere
		w.run(time.Second)
		w.tree.Activate(w.lane(x), 1)
		for range 250 {
			p, ok := w.tree.Next(w.now, testClass, 1)
			if !ok || p.Lane.Value != x {
				t.Fatal("x is alone in its set")
			}
			w.tree.Charge(p, 1, cell.Cost(units(1)))
		}
		w.tree.Deactivate(w.lane(x), 1)
	}
	x.start()
	w.run(4 * time.Second) // until a, which lags by two bursts, has come as far
	w.wants(w.rates(20*time.Second), 0.01, map[string]float64{"a": 400, "x": 100})
}

// TestOfferSetsDoNotMultiplyAReservation: whoever is served in two sets has its reservation once.
func TestOfferSetsDoNotMultiplyAReservation(t *testing.T) {
	w := newWorld(t, 1000)
	if err := w.tree.OpenSet(1); err != nil {
		t.Fatal(err)
	}
	a := w.tenant(claim{id: "a", cost: 1, reservation: 400, weight: 0.001}, nil)
	b := w.tenant(claim{id: "b", cost: 1, weight: 1000}, nil)
	for i := range 20_000 {
		w.tree.Activate(w.lane(a), 0)
		w.tree.Activate(w.lane(a), 1)
		w.tree.Activate(w.lane(b), 0)
		w.tree.Activate(w.lane(b), 1)
		w.now += 1e6
		p, ok := w.tree.Next(w.now, testClass, set(i%2))
		if !ok {
			t.Fatal("both wait")
		}
		w.tree.Charge(p, set(i%2), cell.Cost(units(1)))
		p.Lane.Value.served++
	}
	if got := float64(a.served) / 20; got < 398 || got > 402 {
		t.Errorf("a gets %.1f a second in two sets, want 400", got)
	}
}

// TestRefundDoesNotTurnBackVirtualTime: a job of a lagging tenant that was charged ten seconds and cost nothing must not cost everybody else ten
// seconds of what they have reserved.
func TestRefundDoesNotTurnBackVirtualTime(t *testing.T) {
	w := newWorld(t, 1000)
	a := w.tenant(claim{id: "a", cost: 1, reservation: 100, weight: 1}, nil)
	w.tenant(claim{id: "b", cost: 1, reservation: 300, weight: 1}, nil)
	w.tenant(claim{id: "c", cost: 1, weight: 1000}, nil)
	w.run(5 * time.Second)
	w.advance(time.Millisecond)
	a.cost = 1000
	for id, tier := w.one(1); id != "a" || tier != tree.TierReserved; id, tier = w.one(1) {
		w.now += 1e6
	}
	w.tree.Settle(w.lane(a), 0, tree.TierReserved, cell.Cost(units(999)))
	a.cost = 1
	w.run(9 * time.Second)
	w.tree.Settle(w.lane(a), 0, tree.TierReserved, cell.Cost(units(-1000)))
	w.wants(w.rates(time.Second), 0.02, map[string]float64{"b": 300})
	if err := w.tree.Check(); err != nil {
		t.Error(err)
	}
}

// TestRefundOfReservationIsServedAgain: what a job did not use of its reservation is there for the next.
func TestRefundOfReservationIsServedAgain(t *testing.T) {
	w := newWorld(t, 1000)
	a := w.tenant(claim{id: "a", cost: 1, reservation: 100, weight: 1}, nil)
	b := w.tenant(claim{id: "b", cost: 1, weight: 1000}, nil)
	w.tree.Activate(w.lane(b), 0)
	w.tree.Activate(w.lane(a), 0)
	if id, tier := w.one(50); id != "a" || tier != tree.TierReserved {
		t.Fatalf("%s by %v", id, tier)
	}
	if id, tier := w.one(1); id != "b" || tier != tree.TierShared {
		t.Fatalf("%s by %v", id, tier)
	}
	w.tree.Settle(w.lane(a), 0, tree.TierReserved, cell.Cost(units(-50)))
	if id, tier := w.one(1); id != "a" || tier != tree.TierReserved {
		t.Fatalf("%s by %v", id, tier)
	}
	if a := w.tree.LaneAccount(w.lane(a)); a.Ahead != 10*time.Millisecond {
		t.Errorf("ahead %v, want what one unit is of 100 a second", a.Ahead)
	}
}

// TestOverrunOfReservationIsPaidByIt: jobs that cost three times their estimate do not make the reservation three times as large.
func TestOverrunOfReservationIsPaidByIt(t *testing.T) {
	w := newWorld(t, 1000)
	a := w.tenant(claim{id: "a", cost: 1, reservation: 300, weight: 0.001}, nil)
	b := w.tenant(claim{id: "b", cost: 1, weight: 1000}, nil)
	w.tree.Activate(w.lane(a), 0)
	w.tree.Activate(w.lane(b), 0)
	used := map[*line]float64{}
	for end := w.now + 20e9; w.now < end; {
		p, _ := w.tree.Next(w.now, testClass, 0)
		l := p.Lane.Value
		w.tree.Charge(p, 0, cell.Cost(units(1)))
		cost := 1.0
		if l == a {
			cost = 3
			w.tree.Settle(p.Lane, 0, p.Tier, cell.Cost(units(2)))
		}
		used[l] += cost
		w.now += cell.Instant(cost * 1e6)
	}
	if got := used[a] / 20; got < 298 || got > 304 {
		t.Errorf("a uses %.1f a second, want 300", got)
	}
}

// TestTiesAreBrokenByID: equal tags, whatever the order of arrival: by what stands directly below the cell, then by the tenant.
func TestTiesAreBrokenByID(t *testing.T) {
	w := newWorld(t, 1000)
	w.organization(organization("m", 1, 0, 0))
	for _, c := range []claim{
		{id: "z", reservation: 100, weight: 1, organization: "m"},
		{id: "n", reservation: 100, weight: 1},
		{id: "b", reservation: 100, weight: 1, organization: "m"},
		{id: "l", reservation: 100, weight: 1},
	} {
		w.tree.Activate(w.lane(w.tenant(c, nil)), 0)
	}
	for _, want := range []string{"l", "b", "z", "n"} {
		if id, tier := w.one(1); id != want || tier != tree.TierReserved {
			t.Errorf("%s by %v, want %s", id, tier, want)
		}
	}
}

// TestOrganizationAndTenantOfTheSameID: the tie between them is broken by the tenants' ids.
func TestOrganizationAndTenantOfTheSameID(t *testing.T) {
	w := newWorld(t, 1000)
	w.organization(organization("m", 1, 0, 0))
	for _, c := range []claim{
		{id: "z", reservation: 100, weight: 1, organization: "m"},
		{id: "m", reservation: 100, weight: 1},
		{id: "b", reservation: 100, weight: 1, organization: "m"},
	} {
		w.tree.Activate(w.lane(w.tenant(c, nil)), 0)
	}
	for _, want := range []string{"b", "m", "z"} {
		if id, tier := w.one(1); id != want || tier != tree.TierReserved {
			t.Errorf("%s by %v, want %s", id, tier, want)
		}
	}
}

// TestOrganizationReservesForAllOfIts (rule 6): what an organization reserves beyond its tenants' goes to any of them, in turns by weight.
func TestOrganizationReservesForAllOfIts(t *testing.T) {
	w := newWorld(t, 1000)
	w.organization(organization("m", 0.001, 500, 0))
	w.tenant(claim{id: "a", cost: 1, reservation: 200, weight: 1, organization: "m"}, nil)
	w.tenant(claim{id: "b", cost: 1, weight: 2, organization: "m"}, nil)
	w.tenant(claim{id: "c", cost: 1, weight: 1000}, nil)
	w.wants(w.rates(10*time.Second), 0.01, map[string]float64{"a": 300, "b": 200, "c": 500})
}

// TestOrganizationGrantSpendsNeitherTagNorTurn (rule 12): by the organization's reservation a tenant is charged in the rotation inside only: its own
// tag and the organization's place below the cell stay.
func TestOrganizationGrantSpendsNeitherTagNorTurn(t *testing.T) {
	w := newWorld(t, 1000)
	w.organization(organization("m", 1, 200, 0))
	a := w.tenant(claim{id: "a", reservation: 100, weight: 1, organization: "m"}, nil)
	w.tenant(claim{id: "b", weight: 1}, nil)
	for _, l := range w.lines {
		w.tree.Activate(w.lane(l), 0)
	}
	if id, tier := w.one(1); id != "a" || tier != tree.TierReserved {
		t.Fatalf("%s by %v", id, tier)
	}
	before := w.tree.Standing(w.lane(a))
	if before.Own.Ahead != 10*time.Millisecond || before.Organization.Ahead != 5*time.Millisecond {
		t.Fatalf("%+v", before)
	}
	w.advance(6 * time.Millisecond)
	if id, tier := w.one(30); id != "a" || tier != tree.TierOrganization {
		t.Fatalf("%s by %v", id, tier)
	}
	after := w.tree.Standing(w.lane(a))
	if after.Own.Ahead != 4*time.Millisecond || after.Organization.Ahead != 149*time.Millisecond {
		t.Errorf("own tag %v ahead, organization's %v; want 4ms and 149ms", after.Own.Ahead, after.Organization.Ahead)
	}
	if after.Own.Rounds < 29 || after.Organization.Rounds != 0 {
		t.Errorf("%d rounds behind inside, %d below the cell; want 29 or more and 0", after.Own.Rounds, after.Organization.Rounds)
	}
}

// TestBlockedOrganizationIsNotOwedTheTime: its reserved lanes keep their tags while it is blocked, and must neither turn back virtual time when it is
// let go nor make up for more than a burst.
func TestBlockedOrganizationIsNotOwedTheTime(t *testing.T) {
	w := newWorld(t, 1000)
	w.organization(organization("m", 1, 0, 400))
	a := w.tenant(claim{id: "a", cost: 1, reservation: 100, weight: 1, organization: "m"}, nil)
	w.tenant(claim{id: "b", cost: 1, reservation: 300, weight: 0.001}, nil)
	w.tenant(claim{id: "c", cost: 1, weight: 1000}, nil)
	w.run(2 * time.Second)
	// Sixty seconds' worth: blocked for about a minute.
	w.tree.Settle(w.lane(a), 0, tree.TierShared, cell.Cost(units(60*400)))
	blocked := w.rates(50 * time.Second)
	w.wants(blocked, 0.005, map[string]float64{"a": 0, "b": 300, "c": 700})
	w.tree.Settle(w.lane(a), 0, tree.TierShared, cell.Cost(units(-60*400)))
	if s := w.tree.Standing(w.lane(a)); s.OrganizationLimitedUntil != 0 || s.Own.Ahead < -time.Second {
		t.Fatalf("let go: %+v", s)
	}
	after := w.rates(time.Second)
	if after["b"] < 297 {
		t.Errorf("b gets %.1f of its 300 a second when the organization is let go", after["b"])
	}
	if after["a"] > 100+101 {
		t.Errorf("a gets %.1f in the first second: its reservation and a burst are 200", after["a"])
	}
}
