package tree_test

import (
	"math"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
)

// TestFigureD wants what each tenant is served to be within half a percent of the planner's, in the running order, four seconds after the start:
// with the tenants directly below the cell, in one organization, and each in one of its own.
func TestFigureD(t *testing.T) {
	rows := map[string]struct {
		capacity float64
		claims   []claim
	}{
		"demands as offered": {12_000, []claim{
			{id: "alder", ops: 5400, cost: 1, reservation: 3600, weight: 3, want: 5400},
			{id: "birch", ops: 2700, cost: 1.5, reservation: 3000, weight: 2, want: 4050},
			{id: "cedar", ops: 4500, cost: 0.6, reservation: 1800, weight: 1, want: 2550},
		}},
		"unlimited": {12_000, []claim{
			{id: "alder", cost: 1, reservation: 3600, weight: 3, want: 5400},
			{id: "birch", cost: 1.5, reservation: 3000, weight: 2, want: 4200},
			{id: "cedar", cost: 0.6, reservation: 1800, weight: 1, want: 2400},
		}},
		"below the reservations": {6_000, []claim{
			{id: "alder", cost: 1, reservation: 3600, weight: 3, want: 6000 * 36. / 84},
			{id: "birch", cost: 1.5, reservation: 3000, weight: 2, want: 6000 * 30. / 84},
			{id: "cedar", cost: 0.6, reservation: 1800, weight: 1, want: 6000 * 18. / 84},
		}},
	}
	parents := map[string]func(w *world, c *claim){
		"directly": func(*world, *claim) {},
		"one organization": func(w *world, c *claim) {
			c.organization = "grove"
			w.organization(cell.OrganizationPolicy{Organization: "grove", Weight: 1000, Epoch: 1})
		},
		"one organization that reserves the sum": func(w *world, c *claim) {
			c.organization = "grove"
			p := cell.OrganizationPolicy{Organization: "grove", Weight: 1000, Epoch: 1}
			p.Reservation[testClass.Index()] = cell.Rate(units(8400))
			w.organization(p)
		},
		"one organization each": func(w *world, c *claim) {
			c.organization = "grove-" + c.id
			w.organization(cell.OrganizationPolicy{Organization: cell.OrganizationID(c.organization), Weight: cell.Weight(c.weight * 1000), Epoch: 1})
		},
	}
	for name, row := range rows {
		for of, parent := range parents {
			t.Run(name+", "+of, func(t *testing.T) {
				w := newWorld(t, row.capacity)
				for _, c := range row.claims {
					parent(w, &c)
					w.tenant(c, nil)
				}
				const after = 4 * time.Second
				w.run(after)
				for _, l := range w.lines {
					got := float64(l.served) / 1e6 / after.Seconds()
					if math.Abs(got-l.want) > 0.005*l.want {
						t.Errorf("%s gets %.1f a second, want %.1f", l.id, got, l.want)
					}
				}
			})
		}
	}
}
