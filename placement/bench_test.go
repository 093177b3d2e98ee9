package placement_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/placement"
)

// now is when tests decide: on a whole hour.
const now = cell.Instant(1_800_000_000 / 3600 * 3600 * int64(time.Second))

// pooled returns n open pooled cells of a capacity.
func pooled(n int, capacity placement.Load) []placement.Cell {
	cells := make([]placement.Cell, n)
	for i := range cells {
		cells[i] = placement.Cell{
			ID: cell.ID(fmt.Sprintf("cell-%03d", i)), Kind: placement.KindPooled, Phase: placement.PhaseOpen, Capacity: capacity, Generation: 1,
		}
	}
	return cells
}

// zipf returns n tenants whose compute falls off as 1/rank^s and adds up to total, in the order of a shuffle, each with a day of its own.
func zipf(random *rand.Rand, n int, s float64, total cell.Rate) []placement.Tenant {
	return mandelbrot(random, n, 0, s, total)
}

// mandelbrot is zipf without its first ranks, as many as skip says.
func mandelbrot(random *rand.Rand, n, skip int, s float64, total cell.Rate) []placement.Tenant {
	sum := 0.0
	for i := range n {
		sum += math.Pow(float64(i+skip+1), -s)
	}
	tenants := make([]placement.Tenant, n)
	for i, rank := range random.Perm(n) {
		peak := math.Pow(float64(rank+skip+1), -s) / sum * float64(total)
		tenants[i] = placement.Tenant{
			ID: cell.TenantID(fmt.Sprintf("tenant-%05d", i)), Profile: profile(peak, random.IntN(24), random.Float64()), Bytes: int64(peak * 100),
		}
	}
	return tenants
}

// profile has a peak around an hour of the day and a part of it at the others.
func profile(peak float64, hour int, base float64) placement.Profile {
	var p placement.Profile
	first := placement.HourMax.Of(now) - 24
	for h := first; h < first+24; h++ {
		away := math.Abs(float64((int(h)-hour+36)%24 - 12))
		use := peak * max(base, 1-away/6)
		p = p.Record(h, placement.Sample{
			Average: placement.Load{Compute: cell.Rate(use / 2), Jobs: int64(use / 2e5), Bytes: int64(use / 2)},
			P95:     placement.Load{Compute: cell.Rate(use), Jobs: int64(use / 1e5), Bytes: int64(use)},
		})
	}
	return p
}

// large is 200 cells and 10,000 tenants, with a load of half of what the cells can carry.
func large(home bool) ([]placement.Cell, []placement.Tenant) {
	random := rand.New(rand.NewPCG(7, 7))
	cells := pooled(200, placement.Load{Compute: 100_000_000, Jobs: 1_000_000, Bytes: 10 << 30})
	tenants := zipf(random, 10_000, 0.4, 200*50_000_000)
	if home {
		plan := placement.NewSnapshot(placement.DefaultConfig(), now, cells, tenants, nil).PlaceAll()
		at := map[cell.TenantID]cell.ID{}
		for _, d := range plan.Decisions {
			at[d.Tenant] = d.Target
		}
		for i := range tenants {
			tenants[i].Home = at[tenants[i].ID]
		}
	}
	return cells, tenants
}

// BenchmarkPlaceAll places 10,000 tenants in 200 cells, the snapshot included.
func BenchmarkPlaceAll(b *testing.B) {
	cells, tenants := large(false)
	cfg := placement.DefaultConfig()
	b.ReportAllocs()
	for b.Loop() {
		plan := placement.NewSnapshot(cfg, now, cells, tenants, nil).PlaceAll()
		if len(plan.Decisions) != len(tenants) {
			b.Fatal(len(plan.Decisions))
		}
	}
}

// BenchmarkSnapshot builds a snapshot of 10,000 placed tenants.
func BenchmarkSnapshot(b *testing.B) {
	cells, tenants := large(true)
	cfg := placement.DefaultConfig()
	b.ReportAllocs()
	for b.Loop() {
		placement.NewSnapshot(cfg, now, cells, tenants, nil)
	}
}

// BenchmarkCheck loses each of 200 cells.
func BenchmarkCheck(b *testing.B) {
	cells, tenants := large(true)
	s := placement.NewSnapshot(placement.DefaultConfig(), now, cells, tenants, nil)
	for b.Loop() {
		if found := s.Check(); len(found) > 0 {
			b.Fatal(found)
		}
	}
}

// BenchmarkPlaceOne places one more tenant beside 10,000.
func BenchmarkPlaceOne(b *testing.B) {
	cells, tenants := large(true)
	s := placement.NewSnapshot(placement.DefaultConfig(), now, cells, tenants, nil)
	t := tenants[17]
	t.ID, t.Home = "one-more", ""
	for b.Loop() {
		if d := s.Place(t); d.Target == "" {
			b.Fatal(d)
		}
	}
}

// BenchmarkRebalance plans on 10,000 tenants of which a fifth of the cells has most.
func BenchmarkRebalance(b *testing.B) {
	cells, tenants := large(true)
	for i := range tenants {
		if i%3 == 0 {
			tenants[i].Home = cells[i%40].ID
		}
	}
	s := placement.NewSnapshot(placement.DefaultConfig(), now, cells, tenants, nil)
	for b.Loop() {
		s.Rebalance()
	}
}
