package placement_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/placement"
)

// TestNumbersStay: logs hold them.
func TestNumbersStay(t *testing.T) {
	for want, got := range map[string]uint8{
		"pooled 1": uint8(placement.KindPooled), "dedicated 2": uint8(placement.KindDedicated), "forming 1": uint8(placement.PhaseForming),
		"open 2": uint8(placement.PhaseOpen), "cordoned 3": uint8(placement.PhaseCordoned), "draining 4": uint8(placement.PhaseDraining),
	} {
		if !strings.HasSuffix(want, string('0'+rune(got))) {
			t.Errorf("%s is %d", want, got)
		}
	}
	for _, k := range placement.Kinds() {
		if got, err := placement.ParseKind("kind", k.String()); err != nil || got != k {
			t.Errorf("%v: %v, %v", k, got, err)
		}
	}
	for _, p := range placement.Phases() {
		if got, err := placement.ParsePhase("phase", p.String()); err != nil || got != p {
			t.Errorf("%v: %v, %v", p, got, err)
		}
	}
	for _, s := range []string{"", "Pooled", "open ", "kind(1)", strings.Repeat("x", 1<<20)} {
		_, errKind := placement.ParseKind("kind", s)
		_, errPhase := placement.ParsePhase("phase", s)
		fieldError(t, s, errKind, "kind")
		fieldError(t, s, errPhase, "phase")
	}
	if placement.Kind(9).String() != "kind(9)" || placement.Phase(9).String() != "phase(9)" {
		t.Error("unknown numbers are not written")
	}
}

func fieldError(t *testing.T, what string, err error, field string) {
	t.Helper()
	bad, ok := errors.AsType[*cell.FieldError](err)
	if !ok || bad.Field != field || bad.Problem == "" || bad.Remedy == "" || len(err.Error()) > 500 {
		t.Errorf("%.50q: got %v, want an error about %s", what, err, field)
	}
}

func TestRules(t *testing.T) {
	many := make([]placement.Label, placement.LabelsMax+1)
	for i := range many {
		many[i] = placement.Label{Key: "k" + string('a'+rune(i)), Value: "v"}
	}
	for name, c := range map[string]struct {
		rules placement.Rules
		field string
	}{
		"none":                    {},
		"all":                     {rules: placement.Rules{Require: many[1:], Apart: "g", ComputeMin: cell.RateMax, Cell: "c"}},
		"too many":                {rules: placement.Rules{Require: many}, field: "rules.require"},
		"out of order":            {rules: placement.Rules{Require: []placement.Label{{Key: "b", Value: "v"}, {Key: "a", Value: "v"}}}, field: "rules.require"},
		"twice":                   {rules: placement.Rules{Require: []placement.Label{{Key: "b", Value: "v"}, {Key: "b", Value: "v"}}}, field: "rules.require"},
		"no key":                  {rules: placement.Rules{Require: []placement.Label{{Value: "v"}}}, field: "rules.require"},
		"a key of many bytes":     {rules: placement.Rules{Require: []placement.Label{{Key: strings.Repeat("k", 65), Value: "v"}}}, field: "rules.require"},
		"no value":                {rules: placement.Rules{Require: []placement.Label{{Key: "k"}}}, field: "rules.require.k"},
		"a value of many bytes":   {rules: placement.Rules{Require: []placement.Label{{Key: "k", Value: strings.Repeat("v", 257)}}}, field: "rules.require.k"},
		"a value of two lines":    {rules: placement.Rules{Require: []placement.Label{{Key: "k", Value: "a\nb"}}}, field: "rules.require.k"},
		"a value that is no text": {rules: placement.Rules{Require: []placement.Label{{Key: "k", Value: "\xff"}}}, field: "rules.require.k"},
		"a group of two words":    {rules: placement.Rules{Apart: "a b"}, field: "rules.apart"},
		"a cell of two words":     {rules: placement.Rules{Cell: "a b"}, field: "rules.cell"},
		"less than nothing":       {rules: placement.Rules{ComputeMin: -1}, field: "rules.compute_min"},
		"more than there is":      {rules: placement.Rules{ComputeMin: cell.RateMax + 1}, field: "rules.compute_min"},
	} {
		err := c.rules.Check("rules")
		if c.field == "" && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if c.field != "" {
			fieldError(t, name, err, c.field)
		}
	}
}

func TestConfig(t *testing.T) {
	if err := placement.DefaultConfig().Validate(); err != nil {
		t.Fatal(err)
	}
	for field, change := range map[string]func(*placement.Config){
		"fill_max":                 func(c *placement.Config) { c.FillMax = 1.1 },
		"organization_share_max":   func(c *placement.Config) { c.OrganizationShareMax = 0 },
		"organization_tenants_min": func(c *placement.Config) { c.OrganizationTenantsMin = 0 },
		"tenants_max":              func(c *placement.Config) { c.TenantsMax = 0 },
		"large":                    func(c *placement.Config) { c.Large = math.NaN() },
		"small":                    func(c *placement.Config) { c.Small = 0.5 },
		"tolerance":                func(c *placement.Config) { c.Tolerance = -0.1 },
		"weights.hours":            func(c *placement.Config) { c.Weights.Hours = math.Inf(1) },
		"weights.fit":              func(c *placement.Config) { c.Weights.Fit = -1 },
		"rebalance_over":           func(c *placement.Config) { c.RebalanceOver = 1 },
		"gain_min":                 func(c *placement.Config) { c.GainMin = -1 },
		"gain_per_gib_min":         func(c *placement.Config) { c.GainPerGiBMin = math.NaN() },
		"bytes_min":                func(c *placement.Config) { c.BytesMin = 0 },
		"moves_max":                func(c *placement.Config) { c.MovesMax = -1 },
		"move_bytes_max":           func(c *placement.Config) { c.MoveBytesMax = 0 },
		"move_period":              func(c *placement.Config) { c.MovePeriod = 0 },
		"cool_down":                func(c *placement.Config) { c.CoolDown = -time.Hour },
		"whale_share":              func(c *placement.Config) { c.WhaleShare = 2 },
		"whale_floor":              func(c *placement.Config) { c.WhaleFloor = -1 },
		"hour":                     func(c *placement.Config) { c.Hour = placement.HourMin - 1 },
		"whale_hours":              func(c *placement.Config) { c.WhaleHours = 25 },
		"whale_limited_days":       func(c *placement.Config) { c.WhaleLimitedDays = 15 },
		"return_share":             func(c *placement.Config) { c.ReturnShare = 0.15 },
		"return_days":              func(c *placement.Config) { c.ReturnDays = 0 },
		"demand_min":               func(c *placement.Config) { c.DemandMin.Jobs = -1 },
		"assumed":                  func(c *placement.Config) { c.Assumed.Bytes = 0 },
	} {
		c := placement.DefaultConfig()
		change(&c)
		fieldError(t, field, c.Validate(), field)
	}
	for length, good := range map[placement.HourLength]bool{-1: false, 0: true, placement.HourMin: true, placement.HourMax: true, placement.HourMax + 1: false} {
		c := placement.DefaultConfig()
		c.Hour = length
		if err := c.Validate(); (err == nil) != good {
			t.Errorf("an hour of %v: %v", length.Length(), err)
		}
	}
	var none placement.Config
	var fields []string
	if faults, ok := none.Validate().(interface{ Unwrap() []error }); ok {
		for _, err := range faults.Unwrap() {
			if bad, ok := errors.AsType[*cell.FieldError](err); ok {
				fields = append(fields, bad.Field)
			}
		}
	}
	if len(fields) < 10 || !slices.Contains(fields, "fill_max") || !slices.Contains(fields, "return_days") {
		t.Errorf("of a configuration of zeros only %v are faults", fields)
	}
}
