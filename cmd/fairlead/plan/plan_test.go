package plan_test

import (
	"encoding/json"
	"errors"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/policy"
	"github.com/fairlead/fairlead/cmd/fairlead/plan"
)

func TestParseMicro(t *testing.T) {
	for s, want := range map[string]plan.Micro{
		"0": 0, "1": 1_000_000, "0.6": 600_000, ".5": 500_000, "12_000": 12_000_000_000, "1.000001": 1_000_001, "1000000": 1_000_000_000_000,
		"0.1000000000": 100_000, "007": 7_000_000,
	} {
		if got, err := plan.ParseMicro(s); err != nil || got != want {
			t.Errorf("%q: got %d, %v, want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "-", ".", "1.", "1e3", "-1", "+1", "0x1", "NaN", "1000000.000001", "0.0000001", "1.2.3", strings.Repeat("9", 100)} {
		if got, err := plan.ParseMicro(s); err == nil {
			t.Errorf("%q: got %d", s, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		m := plan.Micro(rapid.Int64Range(0, int64(cell.RateMax)).Draw(t, "amount"))
		if got, err := plan.ParseMicro(m.String()); err != nil || got != m {
			t.Fatalf("%d is written as %s and read as %d, %v", m, m, got, err)
		}
	})
}

// TestDemandIsExact: demand is offered x cost, and what comes out again is final / cost, both to the nearest millionth.
func TestDemandIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amount := rapid.OneOf(rapid.Int64Range(1, 10), rapid.Int64Range(1, 1_000_000_000))
		offered, cost := amount.Draw(t, "offered"), amount.Draw(t, "cost")
		text := "capacity: 1000000\ntenants: [{name: a, offered: " + cell.FormatUnits(offered) + ", cost: " + cell.FormatUnits(cost) + "}]"
		in, err := plan.Parse("in", []byte(text), false)
		if err != nil {
			t.Fatal(err)
		}
		if got := int64(in.Tenants[0].Demand); got != nearest(offered, cost, cell.Unit) {
			t.Fatalf("%d x %d is %d, want %d", offered, cost, got, nearest(offered, cost, cell.Unit))
		}
		a, err := in.Allocate()
		if err != nil {
			t.Fatal(err)
		}
		if want := min(nearest(int64(a.Tenants[0].Final), cell.Unit, cost), int64(cell.RateMax)+1); int64(*a.Tenants[0].FinalOps) != want {
			t.Fatalf("%d of cost %d are %d operations, want %d", a.Tenants[0].Final, cost, *a.Tenants[0].FinalOps, want)
		}
	})
}

// nearest is a x b / c to the nearest whole.
func nearest(a, b, c int64) int64 {
	p := new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
	p.Mul(p, big.NewInt(2)).Add(p, big.NewInt(c))
	return p.Div(p, big.NewInt(2*c)).Int64()
}

// TestPromised: where a policy holds the promises, an input may not.
func TestPromised(t *testing.T) {
	if _, err := plan.Parse("in", []byte("tenants: [{name: a, demand: 5, cost: 2}]"), true); err != nil {
		t.Error(err)
	}
	for _, text := range []string{"organizations: []", "tenants: [{name: a, weight: 1}]", "tenants: [{name: a, reservation: 1}]"} {
		_, err := plan.Parse("in", []byte(text), true)
		if _, ok := errors.AsType[*cell.FieldError](err); !ok {
			t.Errorf("%s: got %v", text, err)
		}
	}
}

// TestPromisedInBothClasses adds reservations of the classes up: also where an organization has one of its own in one class alone.
func TestPromisedInBothClasses(t *testing.T) {
	f, err := policy.Parse("policy", []byte(`
classes: {interactive: {capacity: 10}, batch: {capacity: 20}}
organizations: [{id: acme, reservation: {batch: 5}}, {id: globex}, {id: empty}]
tenants:
  - {id: a, organization: acme, reservation: {interactive: 2, batch: 3}}
  - {id: b, organization: globex, reservation: {interactive: 1}}
`))
	if err != nil {
		t.Fatal(err)
	}
	all := cell.Classes()
	in := plan.Promised(f, all[:], plan.Input{})
	if _, err := in.Allocate(); err != nil {
		t.Fatal(err)
	}
	if in.Capacity != 30*cell.Unit || in.Tenants[0].Reservation != 5*cell.Unit || len(in.Organizations) != 2 ||
		in.Organizations[0].Reservation != 7*cell.Unit || in.Organizations[1].Reservation != 0 {
		t.Errorf("both classes: %+v", in)
	}
	in = plan.Promised(f, all[:1], plan.Input{HasCapacity: true, Capacity: cell.Unit})
	if in.Capacity != cell.Unit || in.Tenants[0].Reservation != 2*cell.Unit || in.Organizations[0].Reservation != 0 {
		t.Errorf("interactive: %+v", in)
	}
}

// TestShortageIsShared tells the largest parts first, and how many more there are.
func TestShortageIsShared(t *testing.T) {
	var b strings.Builder
	b.WriteString("capacity: 0\ntenants:\n")
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		b.WriteString("  - {name: " + name + ", demand: " + string('0'+name[0]-'a'+1) + "}\n")
	}
	in, err := plan.Parse("in", []byte(b.String()), false)
	if err != nil {
		t.Fatal(err)
	}
	a, err := in.Allocate()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := a.Shortage(), "28 in all: g 7, f 6, e 5, d 4, c 3, 2 more"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// FuzzParse wants any text to be refused with faults that say something, or to give a plan that is JSON.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"", "{}", "capacity: 1", "capacity: 5\ntenants: [{name: a, demand: 3, weight: 0}]", "tenants: &x [*x]", "a: b: c", "tenants: {}",
		"capacity: 9\ntenants: [{name: a, offered: 1, cost: 0.5, organization: o}]\norganizations: [{name: o, limit: 3}]", "\xff", "- 1",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		in, err := plan.Parse("in", text, false)
		if err == nil {
			var a plan.Allocation
			if a, err = in.Allocate(); err == nil {
				if err := in.Compare(&a, 0); err != nil {
					t.Fatal(err)
				}
				if _, err := json.Marshal(a); err != nil {
					t.Fatal(err)
				}
				return
			}
		}
		bad, ok := errors.AsType[*cell.FieldError](err)
		if !ok || bad.Field == "" || bad.Problem == "" || bad.Remedy == "" {
			t.Fatalf("%q: %v", text, err)
		}
	})
}
