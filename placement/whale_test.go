package placement_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/placement"
)

// TestWhaleComesAndGoesOnce lets a tenant grow and shrink over two months, with its use going up and down every hour around each threshold: it moves to
// its dedicated cell once, and back once, long after.
func TestWhaleComesAndGoesOnce(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 16))
	w := &world{cfg: placement.DefaultConfig(), cells: pooled(4, placement.Load{Compute: 20 * cell.Unit})}
	w.cells = append(w.cells, placement.Cell{
		ID: "own", Kind: placement.KindDedicated, Phase: placement.PhaseOpen, Capacity: placement.Load{Compute: 20 * cell.Unit},
		Labels: []placement.Label{{Key: placement.LabelTenant, Value: "whale"}},
	})
	for i := range 40 {
		w.tenants = append(w.tenants, placement.Tenant{ID: cell.TenantID("t" + string('a'+rune(i/26)) + string('a'+rune(i%26))), Home: w.cells[i%4].ID})
	}
	w.tenants = append(w.tenants, placement.Tenant{ID: "whale", Home: w.cells[0].ID, Bytes: 1 << 20})
	whale := len(w.tenants) - 1
	type change struct {
		day    int
		reason placement.Reason
	}
	var changes []change
	at := now
	for hour := range 60 * 24 {
		at = at.Add(time.Hour)
		use := 1.5 + 1.0*random.Float64() // around a fifth of the cell's load
		if day := hour / 24; day >= 10 && day < 20 {
			use = 4
		} else if day >= 20 && day < 35 {
			use = 1.0 + 2.5*random.Float64() // around what lets it return
		} else if day >= 35 {
			use = 0.5
		}
		for i := range w.tenants {
			mine := compute(0.7)
			if i == whale {
				mine = compute(use)
			}
			w.tenants[i].Profile = w.tenants[i].Profile.Record(placement.HourMax.Of(at)-1, placement.Sample{Average: mine.Scale(0.5), P95: mine})
		}
		s := placement.NewSnapshot(w.cfg, at, w.cells, w.tenants, nil)
		if hour/24 < 2 {
			continue // until it is known for some time
		}
		for _, d := range s.Rebalance().Decisions {
			tenant := &w.tenants[slices.IndexFunc(w.tenants, func(o placement.Tenant) bool { return o.ID == d.Tenant })]
			tenant.Home, tenant.Since = d.Target, at
			if tenant.ID == "whale" && d.Reason != placement.ReasonRebalance {
				changes = append(changes, change{hour / 24, d.Reason})
			}
		}
	}
	if len(changes) != 2 || changes[0].reason != placement.ReasonWhale || changes[1].reason != placement.ReasonReturn || changes[1].day < 35+w.cfg.ReturnDays {
		t.Errorf("changes %v", changes)
	}
}

// TestWhaleIsNoneBySmallness: it takes a fifth of the load and a tenth of the capacity, for so many hours in a row.
func TestWhaleIsNoneBySmallness(t *testing.T) {
	for name, c := range map[string]struct {
		use  float64
		from int
		to   int
		want placement.Verdict
	}{
		"a fifth for long enough":  {use: 3, from: 0, to: 6, want: placement.VerdictPropose},
		"for half as long":         {use: 3, from: 0, to: 3, want: placement.VerdictWatch},
		"for hardly any time":      {use: 3, from: 0, to: 2},
		"less than a fifth":        {use: 1.5, from: 0, to: 24},
		"a tenth of the capacity":  {use: 2.1, from: 0, to: 24, want: placement.VerdictPropose},
		"less of the capacity":     {use: 1.9, from: 0, to: 24},
		"over midnight and longer": {use: 3, from: 20, to: 24, want: placement.VerdictWatch},
	} {
		w := &world{cfg: placement.DefaultConfig(), cells: pooled(2, placement.Load{Compute: 20 * cell.Unit})}
		others := 8.0
		if c.use < 3 && c.use > 1.5 {
			others = 4
		}
		w.tenants = []placement.Tenant{
			{ID: "other", Home: w.cells[0].ID, Profile: used(others, 0, 0, 0, 24, 0, 1)},
			{ID: "whale", Home: w.cells[0].ID, Profile: used(c.use, 0, 0, c.from, c.to, 0, 1)},
		}
		verdict := placement.Verdict("")
		for _, found := range w.snapshot().Whales() {
			if found.Tenant == "whale" {
				verdict = found.Verdict
			}
		}
		if verdict != c.want {
			t.Errorf("%s: %q, want %q", name, verdict, c.want)
		}
	}
}
