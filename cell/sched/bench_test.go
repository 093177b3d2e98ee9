package sched

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
)

// mill is a cell in a steady state: each turn grants a job, settles it, drops it and adds it again.
type mill struct {
	*Scheduler

	t   testing.TB
	ask Ask
	seq uint64
}

// newMill has so many tenants with a job each: every fourth with a reservation, every fourth with a limit that is never reached, every
// fourth in one of so many organizations.
func newMill(t testing.TB, tenants, organizations int, keys []cell.ConcurrencyKey) *mill {
	t.Helper()
	s, err := New(DefaultConfig(), 1000*second)
	if err != nil {
		t.Fatal(err)
	}
	offer, err := s.Open([]cell.Operation{"a", "b", "c"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	s.Resize(1000, 1000)
	m := &mill{Scheduler: s, t: t, ask: Ask{Now: 1000 * second, Offer: offer, Classes: [2]bool{true, true}}}
	for n := range organizations {
		p := cell.OrganizationPolicy{Organization: cell.OrganizationID(fmt.Sprint("o", n)), Weight: cell.Weight(1000 + n)}
		if err := s.SetOrganization(p); err != nil {
			t.Fatal(err)
		}
	}
	for n := range tenants {
		p := cell.TenantPolicy{Tenant: cell.TenantID(fmt.Sprint("tenant", n)), Weight: cell.WeightDefault}
		switch n % 4 {
		case 0:
			p.Reservation[1] = 1000
		case 1:
			p.Limit = cell.RateMax
		case 2:
			p.RunningMax = 100
			if organizations > 0 {
				p.Organization = cell.OrganizationID(fmt.Sprint("o", n/4%organizations))
			}
		}
		if err := s.SetTenant(p); err != nil {
			t.Fatal(err)
		}
		m.seq++
		m.add(Item{
			ID: id(m.seq), Lane: cell.Lane{Tenant: p.Tenant, Class: cell.ClassBatch}, Operation: []cell.Operation{"a", "b", "c"}[n%3],
			Seq: m.seq, Created: 1000 * second, Keys: keys,
		})
	}
	return m
}

func (m *mill) add(it Item) {
	if added, err := m.Add(it); !added || err != nil {
		m.t.Fatal(added, err)
	}
}

func (m *mill) turn() {
	m.ask.Now += cell.Instant(time.Millisecond)
	g, ok := m.Next(m.ask)
	if !ok {
		m.t.Fatal("nothing runs")
	}
	m.Settle(g.Item.ID, g.Cost+1000)
	if !m.Drop(g.Item.ID) {
		m.t.Fatal("nothing was held")
	}
	m.Observe(g.Item.Lane.Tenant, g.Item.Operation, g.Cost+1000)
	m.seq++
	g.Item.Seq = m.seq
	m.add(g.Item)
}

// TestSteadyStateAllocatesNothing has jobs come, run and end, with keys and without.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	for name, keys := range map[string][]cell.ConcurrencyKey{
		"without keys": nil, "with keys": {{Key: "k", Max: 3}, {Key: "a", Max: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMill(t, 500, 10, keys)
			for range 20_000 {
				m.turn()
			}
			if n := testing.AllocsPerRun(5000, m.turn); n != 0 {
				t.Errorf("%v allocations for each job", n)
			}
		})
	}
}

// TestHandsAllocateNothing is the steady state of tenants with hands of two, whose workers in eight groups ask in turn.
func TestHandsAllocateNothing(t *testing.T) {
	m := newMill(t, 500, 10, nil)
	var offers []OfferID
	for g := cell.WorkerGroup(1); g <= 8; g++ {
		offer, err := m.Open([]cell.Operation{"a", "b", "c"}, g)
		if err != nil {
			t.Fatal(err)
		}
		offers = append(offers, offer)
	}
	for n := range 500 {
		p := m.tree.Tenant(cell.TenantID(fmt.Sprint("tenant", n))).Policy()
		p.Groups = 1<<(n%8) | 1<<(n/8%8)
		if err := m.SetTenant(p); err != nil {
			t.Fatal(err)
		}
	}
	turns := 0
	turn := func() {
		turns++
		m.ask.Offer = offers[turns%len(offers)]
		m.turn()
	}
	for range 40_000 {
		turn()
	}
	if n := testing.AllocsPerRun(5000, turn); n != 0 {
		t.Errorf("%v allocations for each job", n)
	}
	if err := m.Check(); err != nil {
		t.Error(err)
	}
}

// TestIdleTenantsAreSmall measures what a tenant costs that has no job: one that never had any, and one that had.
func TestIdleTenantsAreSmall(t *testing.T) {
	const tenants = 100_000 // with few, what they share counts
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	most := map[string]float64{"never had a job": 500, "had one": 500}
	for name, had := range map[string]bool{"never had a job": false, "had one": true} {
		t.Run(name, func(t *testing.T) {
			before := heapBytes()
			m := newMill(t, 0, 0, nil)
			for n := range 100 {
				p := cell.OrganizationPolicy{Organization: cell.OrganizationID(fmt.Sprint("o", n)), Weight: 1000}
				if err := m.SetOrganization(p); err != nil {
					t.Fatal(err)
				}
			}
			for n := range tenants {
				p := cell.TenantPolicy{
					Tenant: cell.TenantID(fmt.Sprint("tenant", n)), Weight: 1000, Organization: cell.OrganizationID(fmt.Sprint("o", n%100)),
				}
				if err := m.SetTenant(p); err != nil {
					t.Fatal(err)
				}
				if !had {
					continue
				}
				m.add(Item{ID: id(uint64(n)), Lane: laneOf(p.Tenant), Operation: "a", Seq: uint64(n)})
				g, ok := m.Next(m.ask)
				if !ok {
					t.Fatal("nothing runs")
				}
				m.Settle(g.Item.ID, 20_000)
				m.Observe(p.Tenant, "a", 20_000)
				m.Drop(g.Item.ID)
			}
			bytes := (heapBytes() - before) / tenants
			runtime.KeepAlive(m)
			t.Logf("%.0f bytes for each tenant", bytes)
			if bytes > most[name] {
				t.Errorf("%.0f bytes for each tenant, of at most %.0f", bytes, most[name])
			}
		})
	}
}

func heapBytes() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

func BenchmarkNext(b *testing.B) {
	for _, tenants := range []int{10, 10_000, 1_000_000} {
		b.Run(fmt.Sprintf("tenants=%d", tenants), func(b *testing.B) {
			m := newMill(b, tenants, min(tenants/10, 1000), nil)
			b.ReportAllocs()
			for b.Loop() {
				m.turn()
			}
		})
	}
}

// BenchmarkBlocked grants and ends jobs of a key of one, beside so many strands that are blocked by keys of their own, and with as many
// jobs waiting for the key.
func BenchmarkBlocked(b *testing.B) {
	for _, blocked := range []int{10, 100_000} {
		b.Run(fmt.Sprintf("blocked=%d", blocked), func(b *testing.B) {
			m := newMill(b, 0, 0, nil)
			if err := m.SetTenant(cell.TenantPolicy{Tenant: "p", Weight: cell.WeightDefault}); err != nil {
				b.Fatal(err)
			}
			for n := range blocked {
				own := []cell.ConcurrencyKey{{Key: fmt.Sprint("own", n), Max: 1}}
				m.seq++
				m.Hold(Held{Job: id(m.seq), Lane: laneOf("p"), Keys: own, Private: true, Granted: 1000 * second})
				for _, keys := range [][]cell.ConcurrencyKey{own, {{Key: "k", Max: 1}}} {
					m.seq++
					m.add(Item{ID: id(m.seq), Lane: laneOf("p"), Operation: "a", Seq: m.seq, Created: 1000 * second, Keys: keys})
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				m.turn()
			}
		})
	}
}

// BenchmarkSuspend suspends and resumes a lane by how much waits in it, which must not matter.
func BenchmarkSuspend(b *testing.B) {
	for _, n := range []int{1000, 100_000} {
		b.Run(fmt.Sprint("jobs=", n), func(b *testing.B) {
			m := newMill(b, 100, 0, nil)
			lane := cell.Lane{Tenant: "tenant1", Class: cell.ClassBatch}
			for range n {
				m.seq++
				m.add(Item{ID: id(m.seq), Lane: lane, Operation: "a", Seq: m.seq, Created: 1000 * second})
			}
			for b.Loop() {
				m.Suspend(lane)
				m.Resume(lane)
			}
		})
	}
}
