package sched

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
)

// burst is a job of the bursts' workload: in integer milliseconds.
type burst struct {
	tenant          int
	arrival, run    int
	start, complete int
	started         bool
}

// bursts is one bulk tenant with 400 jobs at once and nineteen quiet ones with four each, a little apart.
func bursts(bulk int) []*burst {
	var jobs []*burst
	for range 400 {
		jobs = append(jobs, &burst{run: bulk})
	}
	for _, at := range []int{200, 600, 1000, 1400} {
		for tenant := 1; tenant < 20; tenant++ {
			jobs = append(jobs, &burst{tenant: tenant, arrival: at, run: 100})
		}
	}
	return jobs
}

// serve runs the jobs on eight slots, millisecond after millisecond: completions, then arrivals, then dispatch.
func serve(t *testing.T, s *Scheduler, jobs []*burst) {
	t.Helper()
	for tenant := range 20 {
		if err := s.SetTenant(cell.TenantPolicy{Tenant: cell.TenantID(fmt.Sprint("t", tenant)), Weight: cell.WeightDefault}); err != nil {
			t.Fatal(err)
		}
	}
	offer, err := s.Open([]cell.Operation{"op"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	s.Resize(8, 8)
	running, ended := 0, 0
	for ms := 0; ended < len(jobs); ms++ {
		now := 1000*second + cell.Instant(ms)*cell.Instant(time.Millisecond)
		for n, j := range jobs {
			if j.started && j.start+j.run == ms {
				s.Settle(id(uint64(n+1)), cell.Cost(j.run)*1000)
				s.Observe(cell.TenantID(fmt.Sprint("t", j.tenant)), "op", cell.Cost(j.run)*1000)
				s.Drop(id(uint64(n + 1)))
				j.complete = ms
				running--
				ended++
			}
		}
		s.Advance(now)
		for n, j := range jobs {
			if j.arrival != ms {
				continue
			}
			it := Item{ID: id(uint64(n + 1)), Operation: "op", Seq: uint64(n + 1), Created: now}
			it.Lane = cell.Lane{Tenant: cell.TenantID(fmt.Sprint("t", j.tenant)), Class: cell.ClassInteractive}
			if j.tenant == 0 {
				it.Lane.Class = cell.ClassBatch
			}
			if _, err := s.Add(it); err != nil {
				t.Fatal(err)
			}
		}
		for {
			g, ok := s.Next(Ask{Now: now, Offer: offer, Classes: [2]bool{true, true}})
			if !ok {
				break
			}
			j := jobs[g.Item.Seq-1]
			j.start, j.started = ms, true
			running++
		}
		if running < 8 && s.Takeable() != 0 {
			t.Fatalf("at %d ms %d of 8 slots run, and something is takeable", ms, running)
		}
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
}

// TestBursts has the quiet tenants interactive and the bulk batch, with seven and one of eight slots: lend_after trades the bulk's time for
// the quiet's waits, and without it nothing idles.
func TestBursts(t *testing.T) {
	for name, c := range map[string]struct {
		after          time.Duration
		p95, most, end int
		use            string
	}{
		"held back for 300 ms": {300 * time.Millisecond, 200, 200, 26_900, "96.47"},
		"lent at once":         {0, 500, 500, 26_000, "99.81"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := DefaultConfig()
			cfg.Bulkheads[0] = Bulkhead{NominalParts: 7, LendablePercent: 100, BorrowMaxPercent: 100, LendAfter: c.after}
			cfg.Bulkheads[1] = Bulkhead{NominalParts: 1, LendablePercent: 100, BorrowMaxPercent: 100, LendAfter: c.after}
			s, err := New(cfg, 1000*second)
			if err != nil {
				t.Fatal(err)
			}
			jobs := bursts(500)
			serve(t, s, jobs)
			var waits []int
			last, bulk, busy := 0, 0, 0
			for _, j := range jobs {
				last, busy = max(last, j.complete), busy+j.run
				if j.tenant == 0 {
					bulk = max(bulk, j.complete)
				} else {
					waits = append(waits, j.start-j.arrival)
				}
			}
			slices.Sort(waits)
			use := fmt.Sprintf("%.2f", 100*float64(busy)/float64(8*last))
			if waits[72] != c.p95 || waits[75] != c.most || bulk != c.end || use != c.use {
				t.Errorf("quiet p95 %d, max %d; bulk finished %d; use %s %%; not %+v", waits[72], waits[75], bulk, use, c)
			}
		})
	}
}
