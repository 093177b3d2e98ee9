package tree_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/tree"
)

// forest makes a tree of depth 3 with n tenants that all have something to do: ten in an organization, half of them with a reservation, a quarter
// with a limit, an eighth with credit; in random order, and run for a while, so that their places in memory and in the tree have nothing to do
// with each other.
func forest(tb testing.TB, n int) (*tree.Tree[int], *clockwork) {
	tb.Helper()
	tr := seedlings(tb, n)
	lanes := make([]*tree.Lane[int], n)
	for i := range lanes {
		lanes[i] = tr.Tenant(tenantID(i)).Lane(cell.ClassBatch)
	}
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	rng.Shuffle(n, func(i, j int) { lanes[i], lanes[j] = lanes[j], lanes[i] })
	for _, l := range lanes {
		tr.Activate(l, 0)
	}
	c := &clockwork{now: 1e18, rng: rng, step: int64(22e8) / int64(n)}
	for range 2 * n {
		c.dispatch(tb, tr, false)
	}
	return tr, c
}

func tenantID(i int) cell.TenantID { return cell.TenantID(fmt.Sprintf("tenant-%07d", i)) }

func seedlings(tb testing.TB, n int) *tree.Tree[int] {
	tb.Helper()
	cfg := tree.DefaultConfig()
	cfg.LanesMax = 4 << 20
	cfg.OrganizationsMax = max(1, n)
	tr, err := tree.New[int](cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tr.Advance(1e18)
	if err := tr.OpenSet(0); err != nil {
		tb.Fatal(err)
	}
	for i := range (n + 9) / 10 {
		p := cell.OrganizationPolicy{Organization: cell.OrganizationID(fmt.Sprintf("organization-%06d", i)), Weight: 1000, Epoch: 1}
		if i%4 == 0 {
			p.Limit = 1e9
		}
		if err := tr.SetOrganization(p); err != nil {
			tb.Fatal(err)
		}
	}
	for i := range n {
		p := cell.TenantPolicy{Tenant: tenantID(i), Organization: cell.OrganizationID(fmt.Sprintf("organization-%06d", i/10)), Weight: cell.Weight(1000 * (1 + i%4)), Epoch: 1}
		if i%2 == 0 {
			p.Reservation[1] = 5_000 // half of what is served
		}
		if i%4 == 1 {
			p.Limit = 3_000 // less than its share
		}
		if i%8 == 2 {
			p.Credit = cell.Credit{Max: 1e9, Refill: 100, Extra: 1_000}
		}
		if _, err := tr.SetTenant(p, func(cell.Class) int { return i }); err != nil {
			tb.Fatal(err)
		}
	}
	return tr
}

// clockwork dispatches on a virtual clock.
type clockwork struct {
	now     cell.Instant
	rng     *rand.Rand
	step    int64
	touched int
	tiers   [5]int
}

// dispatch grants one job; when the lane's last it is, it gets the next at once.
func (c *clockwork) dispatch(tb testing.TB, tr *tree.Tree[int], last bool) {
	c.now += cell.Instant(c.step)
	p, ok := tr.Next(c.now, cell.ClassBatch, 0)
	if !ok {
		return // everybody is at a limit
	}
	c.tiers[p.Tier]++
	tr.Charge(p, 0, cell.Cost(1000+c.rng.Int64N(20_000)))
	c.touched = max(c.touched, tr.Touched())
	if last {
		tr.Deactivate(p.Lane, 0)
		tr.Activate(p.Lane, 0)
	}
}

func BenchmarkDispatch(b *testing.B) {
	for _, n := range []int{1, 10, 100, 1_000, 10_000, 100_000, 1_000_000} {
		for _, last := range []bool{false, true} {
			b.Run(fmt.Sprintf("tenants=%d/last=%t", n, last), func(b *testing.B) {
				tr, c := forest(b, n)
				c.touched, c.tiers = 0, [5]int{}
				b.ReportAllocs()
				b.ResetTimer()
				for b.Loop() {
					c.dispatch(b, tr, last)
				}
				b.ReportMetric(float64(c.touched), "touched-max")
				sum := float64(c.tiers[1] + c.tiers[2] + c.tiers[3] + c.tiers[4])
				for _, tier := range []tree.Tier{tree.TierReserved, tree.TierCredit, tree.TierShared} {
					b.ReportMetric(math.Round(100*float64(c.tiers[tier])/sum), tier.String()+"-%")
				}
			})
		}
	}
}

// BenchmarkIdle reports the memory of a tenant: one that never had a job, and one that has had some in both classes.
func BenchmarkIdle(b *testing.B) {
	const n = 100_000
	for b.Loop() {
		cfg := tree.DefaultConfig()
		tr, err := tree.New[*int](cfg)
		if err != nil {
			b.Fatal(err)
		}
		if err := tr.OpenSet(0); err != nil {
			b.Fatal(err)
		}
		ids := make([]cell.TenantID, n)
		for i := range ids {
			ids[i] = tenantID(i)
		}
		withIDs := heapBytes()
		for _, id := range ids {
			if _, err := tr.SetTenant(cell.TenantPolicy{Tenant: id, Weight: 1000, Epoch: 1}, func(cell.Class) *int { return nil }); err != nil {
				b.Fatal(err)
			}
		}
		fresh := heapBytes()
		for _, id := range ids {
			for _, class := range cell.Classes() {
				l := tr.Tenant(id).Lane(class)
				tr.Activate(l, 0)
				tr.Deactivate(l, 0)
			}
		}
		used := heapBytes()
		b.ReportMetric(float64(fresh-withIDs)/n, "B/fresh")
		b.ReportMetric(float64(used-withIDs)/n, "B/used")
		runtime.KeepAlive(tr)
	}
}

func heapBytes() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
