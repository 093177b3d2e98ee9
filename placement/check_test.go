package placement_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/placement"
)

// survives tries every way to place the tenants of a lost cell in the others.
func (w *world) survives(lost placement.Cell) bool {
	var tenants []placement.Tenant
	for _, t := range w.tenants {
		if t.Home == lost.ID && t.Rules.Cell == "" {
			tenants = append(tenants, t)
		}
	}
	homes := map[cell.ID][]placement.Tenant{}
	for _, t := range w.tenants {
		if t.Home != lost.ID {
			homes[t.Home] = append(homes[t.Home], t)
		}
	}
	var place func(n int) bool
	place = func(n int) bool {
		if n == len(tenants) {
			return true
		}
		t := tenants[n]
		for _, c := range w.allowed(t) {
			if c.ID == lost.ID || len(homes[c.ID]) >= w.cfg.TenantsMax || t.Rules.Apart != "" && slices.ContainsFunc(homes[c.ID],
				func(o placement.Tenant) bool { return o.Rules.Apart == t.Rules.Apart }) {
				continue
			}
			load := w.demand(t)
			for _, o := range homes[c.ID] {
				load = load.Add(w.demand(o))
			}
			if slices.ContainsFunc(load[:], func(l placement.Load) bool { return !l.Fits(c.Capacity) }) {
				continue
			}
			homes[c.ID] = append(homes[c.ID], t)
			if place(n + 1) {
				return true
			}
			homes[c.ID] = homes[c.ID][:len(homes[c.ID])-1]
		}
		return false
	}
	return place(0)
}

// TestCheckIsBruteForce: a finding about a loss means that no way to place the lost cell's tenants exists, and none means that one does.
func TestCheckIsBruteForce(t *testing.T) {
	can, cannot := 0, 0
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 10))
		w := &world{cfg: placement.DefaultConfig(), cells: pooled(2+random.IntN(3), placement.Load{Compute: 10 * cell.Unit})}
		w.cfg.TenantsMax = pick(random, 3, 6, 100)
		for i := range w.cells {
			w.cells[i].Labels = []placement.Label{{Key: "zone", Value: pick(random, "1", "2", "2")}}
		}
		for i := range 2 + random.IntN(7) {
			tenant := placement.Tenant{ID: cell.TenantID(fmt.Sprintf("t%d", i)), Home: pick(random, w.cells...).ID}
			tenant.Profile = profile(random.Float64()*5*cell.Unit, random.IntN(24), random.Float64())
			if random.IntN(4) == 0 {
				tenant.Rules.Apart = pick(random, "g1", "g2")
			}
			if random.IntN(6) == 0 {
				tenant.Rules.Require = []placement.Label{{Key: "zone", Value: "2"}}
			}
			w.tenants = append(w.tenants, tenant)
		}
		found := w.snapshot().Check()
		for _, c := range w.cells {
			lost := slices.ContainsFunc(found, func(f placement.Finding) bool { return f.Lost == c.ID })
			survives := w.survives(c)
			if lost == survives {
				t.Fatalf("seed %d: the loss of %s: survives %t, found\n%s", seed, c.ID, survives, findings(found))
			}
			if survives {
				can++
			} else {
				cannot++
			}
		}
	}
	if can < 200 || cannot < 200 {
		t.Errorf("%d losses survived and %d did not: too few of one kind", can, cannot)
	}
}

// sound places tenants of every sort in cells of two residencies, with room to lose one.
func sound(t *testing.T, seed uint64) (*world, *rand.Rand) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 11))
	w := &world{cfg: placement.DefaultConfig(), cells: pooled(8, placement.Load{Compute: 10 * cell.Unit, Jobs: 1000, Bytes: 10 << 30})}
	for i := range w.cells {
		w.cells[i].Labels = []placement.Label{{Key: "residency", Value: []string{"eu", "us"}[i%2]}}
	}
	w.tenants = zipf(random, 60+random.IntN(60), 0.7, cell.Rate(20+random.IntN(20))*cell.Unit)
	for i := range w.tenants {
		tenant := &w.tenants[i]
		if random.IntN(3) == 0 {
			tenant.Rules.Require = []placement.Label{{Key: "residency", Value: pick(random, "eu", "us")}}
		}
		if i%20 < 2 {
			tenant.Rules.Apart = fmt.Sprintf("group-%d", i/20)
		}
		if random.IntN(4) == 0 {
			tenant.Organization = pick(random, cell.OrganizationID("o1"), cell.OrganizationID("o2"))
		}
	}
	s := w.snapshot()
	for _, d := range s.PlaceAll().Decisions {
		if d.Target == "" {
			t.Fatalf("seed %d: %v", seed, d)
		}
		i := slices.IndexFunc(w.tenants, func(o placement.Tenant) bool { return o.ID == d.Tenant })
		w.tenants[i].Home = d.Target
	}
	return w, random
}

// TestCheckFindsWhatIsPlanted: nothing in sound placement, and each kind of violation once it is there.
func TestCheckFindsWhatIsPlanted(t *testing.T) {
	plants := map[placement.FindingKind][]func(*world, *rand.Rand) placement.Finding{
		placement.FindingUnplaced: {func(w *world, random *rand.Rand) placement.Finding {
			i := random.IntN(len(w.tenants))
			w.tenants[i].Home = ""
			return placement.Finding{Tenant: w.tenants[i].ID}
		}},
		placement.FindingUnknownCell: {func(w *world, random *rand.Rand) placement.Finding {
			i := random.IntN(len(w.tenants))
			w.tenants[i].Home = "gone"
			return placement.Finding{Tenant: w.tenants[i].ID, Cell: "gone"}
		}},
		placement.FindingCapacity: {func(w *world, random *rand.Rand) placement.Finding {
			i := random.IntN(len(w.tenants))
			w.tenants[i].Profile = profile(10.5*cell.Unit, random.IntN(24), 0)
			return placement.Finding{Cell: w.tenants[i].Home}
		}, func(w *world, random *rand.Rand) placement.Finding {
			i := random.IntN(len(w.tenants))
			c := slices.IndexFunc(w.cells, func(c placement.Cell) bool { return c.ID == w.tenants[i].Home })
			w.cells[c].Capacity.Compute = 0
			return placement.Finding{Cell: w.cells[c].ID}
		}},
		placement.FindingFailureReserve: {func(w *world, random *rand.Rand) placement.Finding {
			// It fits where it is, since it is alone there, and nowhere else.
			i := random.IntN(len(w.tenants))
			home := w.tenants[i].Home
			for j := range w.tenants {
				if w.tenants[j].Home == home && i != j {
					w.tenants[j].Home = w.cells[(slices.IndexFunc(w.cells, func(c placement.Cell) bool { return c.ID == home })+2)%8].ID
					w.tenants[j].Rules.Apart = ""
				}
			}
			w.tenants[i].Rules.Apart = ""
			w.tenants[i].Profile = profile(9.995*cell.Unit, 12, 1)
			for _, c := range w.cells {
				if c.ID != home {
					w.tenants = append(w.tenants, placement.Tenant{
						ID: "filler-" + cell.TenantID(c.ID), Home: c.ID, Rules: placement.Rules{ComputeMin: cell.Unit / 10},
					})
				}
			}
			return placement.Finding{Tenant: w.tenants[i].ID, Lost: home, Cell: home}
		}, func(w *world, random *rand.Rand) placement.Finding {
			i := random.IntN(len(w.tenants))
			home := w.tenants[i].Home
			for c := range w.cells {
				if w.cells[c].ID != home {
					w.cells[c].Phase = placement.PhaseCordoned
				}
			}
			return placement.Finding{Tenant: w.tenants[i].ID, Lost: home, Cell: home}
		}},
		placement.FindingResidency: {func(w *world, random *rand.Rand) placement.Finding {
			i := random.IntN(len(w.tenants))
			w.tenants[i].Rules.Require = []placement.Label{{Key: "residency", Value: "mars"}}
			return placement.Finding{Tenant: w.tenants[i].ID, Cell: w.tenants[i].Home}
		}, func(w *world, random *rand.Rand) placement.Finding {
			i := random.IntN(len(w.tenants))
			w.tenants[i].Rules.Cell = w.cells[(slices.IndexFunc(w.cells, func(c placement.Cell) bool { return c.ID == w.tenants[i].Home })+1)%8].ID
			return placement.Finding{Tenant: w.tenants[i].ID, Cell: w.tenants[i].Home}
		}, func(w *world, random *rand.Rand) placement.Finding {
			// The only cell with a label.
			i := random.IntN(len(w.tenants))
			c := slices.IndexFunc(w.cells, func(c placement.Cell) bool { return c.ID == w.tenants[i].Home })
			w.cells[c].Labels = append(slices.Clone(w.cells[c].Labels), placement.Label{Key: "zone", Value: "z"})
			w.tenants[i].Rules.Require = append(slices.Clone(w.tenants[i].Rules.Require), placement.Label{Key: "zone", Value: "z"})
			return placement.Finding{Tenant: w.tenants[i].ID, Lost: w.cells[c].ID, Cell: w.cells[c].ID}
		}},
		placement.FindingAntiAffinity: {func(w *world, random *rand.Rand) placement.Finding {
			i, j := random.IntN(len(w.tenants)/2), len(w.tenants)/2+random.IntN(len(w.tenants)/2)
			w.tenants[i].Rules, w.tenants[j].Rules = placement.Rules{Apart: "planted"}, placement.Rules{Apart: "planted"}
			w.tenants[j].Home = w.tenants[i].Home
			return placement.Finding{Tenant: max(w.tenants[i].ID, w.tenants[j].ID), Cell: w.tenants[i].Home}
		}, func(w *world, random *rand.Rand) placement.Finding {
			// A tenant of the group in every cell.
			var last placement.Finding
			for _, c := range w.cells {
				i := slices.IndexFunc(w.tenants, func(t placement.Tenant) bool { return t.Rules.Apart != "everywhere" })
				w.tenants[i].Home, w.tenants[i].Rules = c.ID, placement.Rules{Apart: "everywhere"}
				last = placement.Finding{Tenant: w.tenants[i].ID, Lost: c.ID, Cell: c.ID}
			}
			return last
		}},
		placement.FindingBlastRadius: {func(w *world, _ *rand.Rand) placement.Finding {
			most, at := 0, cell.ID("")
			for _, l := range w.snapshot().Loads() {
				if l.Tenants > most {
					most, at = l.Tenants, l.Cell
				}
			}
			w.cfg.TenantsMax = most - 1
			return placement.Finding{Cell: at}
		}, func(w *world, random *rand.Rand) placement.Finding {
			home := w.tenants[random.IntN(len(w.tenants))].Home
			n := 0
			for i := range w.tenants {
				if w.tenants[i].Home == home {
					w.tenants[i].Organization = "planted"
					n++
				}
			}
			w.cfg.OrganizationTenantsMin = n
			return placement.Finding{Cell: home}
		}, func(w *world, random *rand.Rand) placement.Finding {
			// Each cell may have as many as it has, and no more.
			most := 0
			for _, l := range w.snapshot().Loads() {
				most = max(most, l.Tenants)
			}
			for _, l := range w.snapshot().Loads() {
				for range most - l.Tenants {
					w.tenants = append(w.tenants, placement.Tenant{ID: cell.TenantID(fmt.Sprintf("filler-%d", len(w.tenants))), Home: l.Cell})
				}
			}
			w.cfg.TenantsMax = most
			home := pick(random, w.cells...).ID
			return placement.Finding{Lost: home, Cell: home}
		}},
	}
	for seed := range uint64(25) {
		base, random := sound(t, seed)
		if found := base.snapshot().Check(); len(found) > 0 {
			t.Fatalf("seed %d: in sound placement\n%s", seed, findings(found))
		}
		for _, kind := range slices.Sorted(maps.Keys(plants)) { // in one order, since they draw from one source
			for n, plant := range plants[kind] {
				w := &world{cfg: base.cfg, cells: slices.Clone(base.cells), tenants: slices.Clone(base.tenants)}
				want := plant(w, random)
				want.Kind = kind
				found := w.snapshot().Check()
				if !slices.ContainsFunc(found, func(f placement.Finding) bool {
					return f.Kind == kind && f.Lost == want.Lost && f.Cell == want.Cell && (want.Tenant == "" || f.Tenant == want.Tenant) && f.Text != ""
				}) {
					t.Errorf("seed %d: %s planted in way %d is not found: want %+v in\n%s", seed, kind, n, want, findings(found))
				}
			}
		}
	}
}

// TestReserveIsAProof: when tenants are placed until nothing fits any more, each cell can still be lost.
func TestReserveIsAProof(t *testing.T) {
	full := 0
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 17))
		w := &world{cfg: placement.DefaultConfig(), cells: pooled(3+random.IntN(4), placement.Load{})}
		for i := range w.cells {
			w.cells[i].Capacity = placement.Load{Compute: cell.Rate(5+random.IntN(10)) * cell.Unit}
			w.cells[i].Labels = []placement.Label{{Key: "zone", Value: pick(random, "1", "2", "2", "2")}}
		}
		for i := range 120 {
			tenant := placement.Tenant{
				ID: cell.TenantID(fmt.Sprintf("t%03d", i)), Profile: profile(random.Float64()*2.5*cell.Unit, random.IntN(24), random.Float64()),
			}
			if random.IntN(5) == 0 {
				tenant.Rules.Require = []placement.Label{{Key: "zone", Value: "2"}}
			}
			w.tenants = append(w.tenants, tenant)
		}
		s := w.snapshot()
		rejected := 0
		for _, tenant := range w.tenants {
			d := s.Place(tenant)
			s.Assume(d)
			if d.Target == "" {
				rejected++
			}
		}
		zone2 := 0
		for _, c := range w.cells {
			if c.Labels[0].Value == "2" {
				zone2++
			}
		}
		for _, f := range s.Check() {
			// With a single cell of the zone, or none, there is nothing to keep room in.
			if f.Kind != placement.FindingUnplaced && zone2 > 1 {
				t.Fatalf("seed %d: %+v", seed, f)
			}
		}
		if rejected > 10 {
			full++
		}
	}
	if full < 30 {
		t.Errorf("only %d of 40 were filled", full)
	}
}
