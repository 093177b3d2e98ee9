package allocate_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/allocate"
)

const unit cell.Rate = 1_000_000

// promised is the claims of the published example: reservations of 8,400 in a capacity of 12,000.
func promised(demands ...cell.Rate) []allocate.Claim {
	return []allocate.Claim{
		{Name: "alder", Demand: demands[0], Reservation: 3_600 * unit, Weight: 3000},
		{Name: "birch", Demand: demands[1], Reservation: 3_000 * unit, Weight: 2000},
		{Name: "cedar", Demand: demands[2], Reservation: 1_800 * unit, Weight: 1000},
	}
}

// fataler is a test or a property's run.
type fataler interface {
	Helper()
	Fatal(...any)
}

func mustAllocate(t fataler, capacity cell.Rate, claims []allocate.Claim, organizations ...allocate.Organization) allocate.Plan {
	t.Helper()
	p, err := allocate.Allocate(capacity, claims, organizations)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func of(shares []allocate.Share, field func(allocate.Share) cell.Rate) []cell.Rate {
	got := make([]cell.Rate, len(shares))
	for i, s := range shares {
		got[i] = field(s)
	}
	return got
}

func final(s allocate.Share) cell.Rate    { return s.Final }
func entitled(s allocate.Share) cell.Rate { return s.Entitled }

// units is rates in whole units.
func units(rates ...cell.Rate) []cell.Rate {
	for i := range rates {
		rates[i] *= unit
	}
	return rates
}

func equal(t *testing.T, what string, got []cell.Rate, want ...cell.Rate) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// TestReservationBorrow is the published example: what is reserved, what is borrowed by weight, and who carries the shortage.
func TestReservationBorrow(t *testing.T) {
	p := mustAllocate(t, 12_000*unit, promised(5_400*unit, 4_050*unit, 2_700*unit))
	equal(t, "reserved", of(p.Claims, func(s allocate.Share) cell.Rate { return s.Reserved }), units(3_600, 3_000, 1_800)...)
	equal(t, "entitled", of(p.Claims, entitled), units(5_400, 4_200, 2_400)...)
	equal(t, "first pass", of(p.Claims, func(s allocate.Share) cell.Rate { return s.First }), units(5_400, 4_050, 2_400)...)
	equal(t, "final", of(p.Claims, final), units(5_400, 4_050, 2_550)...)
	equal(t, "borrowed", of(p.Claims, func(s allocate.Share) cell.Rate { return s.Borrowed }), units(1_800, 1_050, 750)...)
	equal(t, "short", of(p.Claims, func(s allocate.Share) cell.Rate { return s.Short }), units(0, 0, 150)...)
	equal(t, "demand, deficit, reserved, pool, given, idle",
		[]cell.Rate{p.Demand, p.Deficit, p.Reserved, p.Pool, p.Given, p.Idle}, units(12_150, 150, 8_400, 3_600, 12_000, 0)...)
}

func TestUnlimitedDemand(t *testing.T) {
	p := mustAllocate(t, 12_000*unit, promised(allocate.Unlimited, allocate.Unlimited, allocate.Unlimited))
	equal(t, "final", of(p.Claims, final), units(5_400, 4_200, 2_400)...)
	equal(t, "first pass", of(p.Claims, entitled), units(5_400, 4_200, 2_400)...)
	if p.Demand != allocate.Unlimited || p.Deficit != 0 || p.Claims[0].Short != 0 {
		t.Errorf("demand %d, deficit %d, short %d of unlimited demands", p.Demand, p.Deficit, p.Claims[0].Short)
	}
}

// TestReservationsShrink is a capacity below what is reserved: 6,000 x 3,600 / 8,400 = 2,571.428571 and so on.
func TestReservationsShrink(t *testing.T) {
	p := mustAllocate(t, 6_000*unit, promised(allocate.Unlimited, allocate.Unlimited, allocate.Unlimited))
	equal(t, "final", of(p.Claims, final), 2_571_428_571, 2_142_857_143, 1_285_714_286)
	equal(t, "pool, idle", []cell.Rate{p.Pool, p.Idle}, 0, 0)
}

// TestWeightedMaxMin is 1,000 units for wants of 50, 500, 200 and 800.
func TestWeightedMaxMin(t *testing.T) {
	var claims []allocate.Claim
	for i, want := range units(50, 500, 200, 800) {
		claims = append(claims, allocate.Claim{Name: string(rune('A' + i)), Demand: want, Weight: []cell.Weight{1000, 1000, 2000, 4000}[i]})
	}
	hard, err := allocate.HardSplit(1_000*unit, claims)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "hard equal split", hard, units(50, 250, 200, 250)...)
	maxmin, err := allocate.MaxMin(1_000*unit, claims)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "max-min", maxmin, units(50, 375, 200, 375)...)
	p := mustAllocate(t, 1_000*unit, claims)
	equal(t, "weighted", of(p.Claims, final), units(50, 150, 200, 600)...)
	equal(t, "first pass", of(p.Claims, func(s allocate.Share) cell.Rate { return s.First }), units(50, 125, 200, 500)...)
}

// TestOrganizations has two organizations and a tenant without one. By hand: 10,000 of capacity; birch alone has a reservation, of 1,000;
// acme has 4,000 as a whole. The pool of 6,000 goes 1:2:3 to acme, globex and lone: 1,000, 2,000, 3,000. Lone wants 500 of it and globex is limited to 3,000,
// so acme has the rest, 6,500 in all: birch 1,000, and the 5,500 beyond it go 1:1:2 to aspen, birch and cedar.
func TestOrganizations(t *testing.T) {
	claims := []allocate.Claim{
		{Name: "aspen", Organization: "acme", Demand: allocate.Unlimited, Weight: 1000},
		{Name: "birch", Organization: "acme", Demand: allocate.Unlimited, Weight: 1000, Reservation: 1_000 * unit},
		{Name: "cedar", Organization: "acme", Demand: allocate.Unlimited, Weight: 2000},
		{Name: "dogwood", Organization: "globex", Demand: 100 * unit, Weight: 1000},
		{Name: "elm", Organization: "globex", Demand: 5_000 * unit, Weight: 1000},
		{Name: "lone", Demand: 500 * unit, Weight: 3000},
	}
	p := mustAllocate(t, 10_000*unit, claims,
		allocate.Organization{Name: "acme", Weight: 1000, Reservation: 4_000 * unit},
		allocate.Organization{Name: "globex", Weight: 2000, Limit: 3_000 * unit})
	equal(t, "organizations", of(p.Organizations, final), units(6_500, 3_000)...)
	equal(t, "organizations borrowed", of(p.Organizations, func(s allocate.Share) cell.Rate { return s.Borrowed }), units(2_500, 3_000)...)
	equal(t, "organizations limited", of(p.Organizations, func(s allocate.Share) cell.Rate { return s.Limited }), units(0, 2_100)...)
	equal(t, "final", of(p.Claims, final), units(1_375, 2_375, 2_750, 100, 2_900, 500)...)
	equal(t, "entitled", of(p.Claims, entitled), units(1_000, 2_000, 2_000, 1_000, 1_000, 3_000)...)
	equal(t, "first pass", of(p.Claims, func(s allocate.Share) cell.Rate { return s.First }), units(1_000, 2_000, 2_000, 100, 1_000, 500)...)
	equal(t, "short", of(p.Claims, func(s allocate.Share) cell.Rate { return s.Short }), units(0, 0, 0, 0, 2_100, 0)...)
}

// TestNestedReservationsShrink halves the capacity of what is reserved: organization and tenants shrink by the same factor, whoever's
// reservation it is, and an organization's own still covers its tenant without one.
func TestNestedReservationsShrink(t *testing.T) {
	claims := []allocate.Claim{
		{Name: "a", Organization: "acme", Demand: allocate.Unlimited, Weight: 1000, Reservation: 600 * unit},
		{Name: "b", Organization: "acme", Demand: allocate.Unlimited, Weight: 1000},
		{Name: "c", Organization: "globex", Demand: allocate.Unlimited, Weight: 1000, Reservation: 400 * unit},
		{Name: "d", Demand: allocate.Unlimited, Weight: 1000, Reservation: 600 * unit},
		{Name: "e", Demand: allocate.Unlimited, Weight: 1000},
	}
	p := mustAllocate(t, 1_000*unit, claims,
		allocate.Organization{Name: "acme", Weight: 1000, Reservation: 1_000 * unit}, allocate.Organization{Name: "globex", Weight: 1000})
	// acme's 500 cover a's 300; the other 200 are divided equally between a and b.
	equal(t, "final", of(p.Claims, final), units(400, 100, 200, 300, 0)...)
	equal(t, "reserved", of(p.Claims, func(s allocate.Share) cell.Rate { return s.Reserved }), units(300, 0, 200, 300, 0)...)
}

// TestSmallDemandKeepsItsShrunkenReservation: a tenant that wants less than its shrunken reservation has all of it, and the others shrink less.
func TestSmallDemandKeepsItsShrunkenReservation(t *testing.T) {
	p := mustAllocate(t, 3_000*unit, promised(600*unit, allocate.Unlimited, allocate.Unlimited))
	equal(t, "final", of(p.Claims, final), units(600, 1_500, 900)...)
}

// TestWeightZero takes only what nobody of positive weight wants, in equal parts; its reservation is as good as any.
func TestWeightZero(t *testing.T) {
	claims := func(demand cell.Rate) []allocate.Claim {
		return []allocate.Claim{
			{Name: "a", Demand: demand, Weight: 1},
			{Name: "x", Demand: allocate.Unlimited},
			{Name: "y", Demand: 10 * unit},
			{Name: "z", Demand: allocate.Unlimited, Reservation: 30 * unit},
		}
	}
	p := mustAllocate(t, 100*unit, claims(allocate.Unlimited))
	equal(t, "all wanted", of(p.Claims, final), units(70, 0, 0, 30)...)
	p = mustAllocate(t, 100*unit, claims(20*unit))
	equal(t, "50 left", of(p.Claims, final), units(20, 20, 10, 50)...)
	equal(t, "first pass", of(p.Claims, entitled), units(70, 0, 0, 30)...)
}

func TestLimits(t *testing.T) {
	p := mustAllocate(t, 1_000*unit, []allocate.Claim{
		{Name: "a", Demand: 900 * unit, Limit: 200 * unit, Weight: 1000},
		{Name: "b", Demand: allocate.Unlimited, Limit: 300 * unit, Weight: 1000},
		{Name: "c", Demand: 100 * unit, Weight: 1000},
	})
	equal(t, "final", of(p.Claims, final), units(200, 300, 100)...)
	equal(t, "limited", of(p.Claims, func(s allocate.Share) cell.Rate { return s.Limited }), units(700, 0, 0)...)
	equal(t, "demand, deficit, idle", []cell.Rate{p.Demand, p.Deficit, p.Idle}, units(1_300, 0, 400)...)
}

func TestNobody(t *testing.T) {
	p := mustAllocate(t, 5*unit, nil)
	equal(t, "idle, demand", []cell.Rate{p.Idle, p.Demand}, 5*unit, 0)
	p = mustAllocate(t, 0, promised(unit, unit, unit), allocate.Organization{Name: "empty", Reservation: unit})
	equal(t, "final", of(p.Claims, final), 0, 0, 0)
	if shares, err := allocate.HardSplit(unit, nil); err != nil || len(shares) != 0 {
		t.Errorf("hard split among nobody: %v, %v", shares, err)
	}
}

// TestRefusals wants every fault told with its field, the bound and a remedy.
func TestRefusals(t *testing.T) {
	one := func(c allocate.Claim) []allocate.Claim { return []allocate.Claim{c} }
	for name, c := range map[string]struct {
		capacity      cell.Rate
		claims        []allocate.Claim
		organizations []allocate.Organization
		field         string
	}{
		"capacity below 0":     {capacity: -1, field: "capacity"},
		"capacity too large":   {capacity: cell.RateMax + 1, field: "capacity"},
		"no name":              {claims: one(allocate.Claim{}), field: "tenants[0].name"},
		"same name":            {claims: []allocate.Claim{{Name: "a"}, {Name: "a"}}, field: "tenants[1].name"},
		"demand":               {claims: one(allocate.Claim{Name: "a", Demand: math.MaxInt64}), field: "tenants[a].demand"},
		"reservation":          {claims: one(allocate.Claim{Name: "a", Reservation: -1}), field: "tenants[a].reservation"},
		"limit":                {claims: one(allocate.Claim{Name: "a", Limit: -1}), field: "tenants[a].limit"},
		"weight":               {claims: one(allocate.Claim{Name: "a", Weight: cell.WeightMax + 1}), field: "tenants[a].weight"},
		"weight below 0":       {claims: one(allocate.Claim{Name: "a", Weight: -1}), field: "tenants[a].weight"},
		"limit below promise":  {claims: one(allocate.Claim{Name: "a", Limit: 1, Reservation: 2}), field: "tenants[a].limit"},
		"unknown organization": {claims: one(allocate.Claim{Name: "a", Organization: "o"}), field: "tenants[a].organization"},
		"organization without a name": {
			organizations: []allocate.Organization{{}}, field: "organizations[0].name",
		},
		"organization below its tenants": {
			claims: one(allocate.Claim{Name: "a", Organization: "o", Reservation: 2}), organizations: []allocate.Organization{{Name: "o", Reservation: 1}},
			field: "organizations[o].reservation",
		},
		"organization limited to its tenants": {
			claims: one(allocate.Claim{Name: "a", Organization: "o", Reservation: 2}), organizations: []allocate.Organization{{Name: "o", Limit: 2}},
			field: "organizations[o].limit",
		},
		"organization limited below its promise": {
			organizations: []allocate.Organization{{Name: "o", Limit: 2, Reservation: 3}}, field: "organizations[o].limit",
		},
		"too many": {claims: make([]allocate.Claim, allocate.ClaimsMax+1), field: "tenants"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := allocate.Allocate(c.capacity, c.claims, c.organizations)
			var bad *cell.FieldError
			if !errors.As(err, &bad) || bad.Field != c.field || bad.Remedy == "" {
				t.Errorf("got %v, want one about %s", err, c.field)
			}
			if len(p.Claims) != 0 {
				t.Error("a plan in spite of it")
			}
		})
	}
	_, err := allocate.Allocate(-1, []allocate.Claim{{Weight: -1}}, nil)
	if got := strings.Count(err.Error(), "\n"); got != 2 {
		t.Errorf("three faults are told as %q", err)
	}
	if _, err := allocate.HardSplit(-1, nil); err == nil {
		t.Error("a hard split of a negative capacity")
	}
	if _, err := allocate.MaxMin(-1, nil); err == nil {
		t.Error("max-min of a negative capacity")
	}
}
