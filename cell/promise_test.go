package cell_test

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
)

// fieldsOf returns the fields that err finds fault with, and fails for one that says nothing.
func fieldsOf(t testing.TB, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var fields []string
		for _, e := range joined.Unwrap() {
			fields = append(fields, fieldsOf(t, e)...)
		}
		return fields
	}
	e, ok := errors.AsType[*cell.FieldError](err)
	if !ok {
		t.Fatalf("%v is no FieldError", err)
	}
	fieldError(t, err, e.Field)
	return []string{e.Field}
}

func TestTenantPolicyCheck(t *testing.T) {
	good := cell.TenantPolicy{
		Weight: 1000, Reservation: [2]cell.Rate{1, 3_600_000_000}, Limit: 3_600_000_001, RunningMax: 7,
		Credit: cell.Credit{Max: 180_000_000_000, Refill: 100_000_000, Extra: 600_000_000}, Starts: cell.StartRate{Jobs: 2, Per: 2 * time.Minute},
	}
	for name, c := range map[string]struct {
		change func(*cell.TenantPolicy)
		fields []string
	}{
		"good":                    {func(*cell.TenantPolicy) {}, nil},
		"nothing":                 {func(p *cell.TenantPolicy) { *p = cell.TenantPolicy{} }, nil},
		"weight":                  {func(p *cell.TenantPolicy) { p.Weight = -1 }, []string{"weight"}},
		"negative reservation":    {func(p *cell.TenantPolicy) { p.Reservation[0] = -1 }, []string{"reservation_interactive"}},
		"huge reservation":        {func(p *cell.TenantPolicy) { p.Reservation[1] = cell.RateMax + 1 }, []string{"reservation_batch"}},
		"negative limit":          {func(p *cell.TenantPolicy) { p.Limit = -1 }, []string{"limit"}},
		"limit below":             {func(p *cell.TenantPolicy) { p.Limit-- }, []string{"limit"}},
		"no limit":                {func(p *cell.TenantPolicy) { p.Limit = 0 }, nil},
		"credit without max":      {func(p *cell.TenantPolicy) { p.Credit.Max = 0 }, []string{"credit.max"}},
		"credit without extra":    {func(p *cell.TenantPolicy) { p.Credit.Extra = 0 }, []string{"credit.extra"}},
		"credit, no refill":       {func(p *cell.TenantPolicy) { p.Credit.Refill = 0 }, nil},
		"credit, huge":            {func(p *cell.TenantPolicy) { p.Credit.Max = cell.CreditMax + 1 }, []string{"credit.max"}},
		"no credit":               {func(p *cell.TenantPolicy) { p.Credit = cell.Credit{} }, nil},
		"running max":             {func(p *cell.TenantPolicy) { p.RunningMax = -1 }, []string{"running_max"}},
		"starts without a length": {func(p *cell.TenantPolicy) { p.Starts.Per = 0 }, []string{"starts.per"}},
		"starts without jobs":     {func(p *cell.TenantPolicy) { p.Starts.Jobs = 0 }, []string{"starts.jobs"}},
		"too many starts":         {func(p *cell.TenantPolicy) { p.Starts.Jobs = cell.StartsMax + 1 }, []string{"starts.jobs"}},
		"starts a year":           {func(p *cell.TenantPolicy) { p.Starts.Per = 365 * 24 * time.Hour }, []string{"starts.per"}},
		"backlog":                 {func(p *cell.TenantPolicy) { p.BacklogJobsMax = -1 }, []string{"backlog_jobs_max"}},
		"all at once": {func(p *cell.TenantPolicy) {
			*p = cell.TenantPolicy{Weight: -1, Limit: -1, RunningMax: -1, Credit: cell.Credit{Refill: -1}, Starts: cell.StartRate{Jobs: 1}, BacklogBytesMax: -1}
		}, []string{"weight", "limit", "credit.refill", "running_max", "starts.per", "backlog_bytes_max"}},
	} {
		p := good
		c.change(&p)
		if got := fieldsOf(t, p.Check()); !reflect.DeepEqual(got, c.fields) {
			t.Errorf("%s: faults in %v, want %v", name, got, c.fields)
		}
	}
}

func TestOrganizationPolicyCheck(t *testing.T) {
	for name, c := range map[string]struct {
		policy cell.OrganizationPolicy
		sum    [2]cell.Rate
		own    []string
		below  []string
	}{
		"nothing promised":  {cell.OrganizationPolicy{}, [2]cell.Rate{5, 6}, nil, nil},
		"exactly":           {cell.OrganizationPolicy{Reservation: [2]cell.Rate{5, 6}, Limit: 12}, [2]cell.Rate{5, 6}, nil, nil},
		"one class only":    {cell.OrganizationPolicy{Reservation: [2]cell.Rate{0, 6}}, [2]cell.Rate{5, 6}, nil, nil},
		"too little of two": {cell.OrganizationPolicy{Reservation: [2]cell.Rate{4, 5}}, [2]cell.Rate{5, 6}, nil, []string{"reservation_interactive", "reservation_batch"}},
		"limit at the sum":  {cell.OrganizationPolicy{Limit: 11}, [2]cell.Rate{5, 6}, nil, []string{"limit"}},
		"limit of nothing":  {cell.OrganizationPolicy{Limit: 1}, [2]cell.Rate{}, nil, nil},
		"limit below own":   {cell.OrganizationPolicy{Reservation: [2]cell.Rate{4, 5}, Limit: 8}, [2]cell.Rate{}, []string{"limit"}, nil},
		"weight":            {cell.OrganizationPolicy{Weight: cell.WeightMax + 1}, [2]cell.Rate{}, []string{"weight"}, nil},
	} {
		if got := fieldsOf(t, c.policy.Check()); !reflect.DeepEqual(got, c.own) {
			t.Errorf("%s: faults in %v, want %v", name, got, c.own)
		}
		if got := fieldsOf(t, c.policy.CheckReserved(c.sum)); !reflect.DeepEqual(got, c.below) {
			t.Errorf("%s: with its tenants faults in %v, want %v", name, got, c.below)
		}
	}
}

// What a tenant may reserve is what its organization may then hold, whichever of the two is asked.
func TestNestingIsOneRule(t *testing.T) {
	rate := rapid.Map(rapid.IntRange(0, 6), func(n int) cell.Rate { return cell.Rate(n) * 500_000 })
	rapid.Check(t, func(rt *rapid.T) {
		two := func(name string) [2]cell.Rate { return [2]cell.Rate{rate.Draw(rt, name), rate.Draw(rt, name)} }
		o := cell.OrganizationPolicy{Organization: "acme", Reservation: two("organization"), Limit: rate.Draw(rt, "limit")}
		others := two("others")
		if o.CheckReserved(others) != nil {
			return // not a state that there is
		}
		p := cell.TenantPolicy{Tenant: "a", Reservation: two("tenant")}
		sum := [2]cell.Rate{others[0] + p.Reservation[0], others[1] + p.Reservation[1]}
		within, reserved := p.CheckWithin(o, others), o.CheckReserved(sum)
		if (within == nil) != (reserved == nil) {
			rt.Fatalf("%+v beside %v in %+v: the tenant is told %v, the organization %v", p, others, o, within, reserved)
		}
		fieldsOf(t, within)
	})
}

func TestParseRate(t *testing.T) {
	for name, c := range map[string]struct {
		f    float64
		want cell.Rate
		text string // "" for a fault
	}{
		"none": {0, 0, "0"}, "whole": {3600, 3_600_000_000, "3600"}, "a part": {0.6, 600_000, "0.6"}, "the least": {0.000001, 1, "0.000001"},
		"rounded": {0.1234567, 123_457, "0.123457"}, "the most": {1e6, cell.RateMax, "1000000"}, "too small": {1e-9, 0, ""},
		"negative": {-1, 0, ""}, "too large": {1e6 + 1, 0, ""}, "endless": {math.Inf(1), 0, ""}, "no number": {math.NaN(), 0, ""},
	} {
		got, err := cell.ParseRate("limit", c.f)
		if c.text == "" {
			fieldError(t, err, "limit")
			continue
		}
		if err != nil || got != c.want || got.String() != c.text {
			t.Errorf("%s: %v is %d (%v), %v", name, c.f, got, got, err)
		}
	}
	if got := cell.FormatUnits(-1_500_000); got != "-1.5" {
		t.Error(got)
	}
	if got := cell.FormatUnits(-500_000); got != "-0.5" {
		t.Error(got)
	}
	if _, err := cell.ParseCost("credit.max", 2, 1_000_000); err == nil {
		t.Error("above its bound")
	}
	rapid.Check(t, func(t *rapid.T) {
		r := cell.Rate(rapid.Int64Range(0, int64(cell.RateMax)).Draw(t, "rate"))
		if back, err := cell.ParseRate("r", r.Float()); err != nil || back != r {
			t.Fatalf("%d comes back as %d, %v", r, back, err)
		}
	})
}

func TestParseResources(t *testing.T) {
	got, err := cell.ParseResources("resources", map[string]float64{"cpu_ms": 0.6, "tokens": 812, "calls": 0})
	if err != nil || got != (cell.Resources{cell.ResourceCPU: 600_000, cell.ResourceTokens: 812_000_000}) {
		t.Errorf("%v, %v", got, err)
	}
	if m := got.Map(); !reflect.DeepEqual(m, map[string]float64{"cpu_ms": 0.6, "tokens": 812}) {
		t.Error(m)
	}
	if m := (cell.Resources{}).Map(); m != nil {
		t.Error(m)
	}
	for name, c := range map[string]struct {
		amounts map[string]float64
		field   string
	}{
		"unknown":   {map[string]float64{"gpu": 1, "tokens": 1, "xpu": 1}, "resources"},
		"negative":  {map[string]float64{"tokens": -1}, "resources.tokens"},
		"too large": {map[string]float64{"calls": 1e10}, "resources.calls"},
		"no number": {map[string]float64{"cpu_ms": math.NaN()}, "resources.cpu_ms"},
	} {
		_, err := cell.ParseResources("resources", c.amounts)
		fieldError(t, err, c.field)
		if name == "unknown" && !strings.Contains(err.Error(), `"gpu"`) {
			t.Error(err)
		}
	}
}

func TestUnitName(t *testing.T) {
	if got := (cell.Costing{}).UnitName(); got != "slot_seconds" {
		t.Error(got)
	}
	if got := (cell.Costing{ByUnit: true, Unit: cell.ResourceTokens}).UnitName(); got != "tokens" {
		t.Error(got)
	}
}
