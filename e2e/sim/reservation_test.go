package sim_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/e2e/sim"
)

// rates returns what each cohort was charged per second between two times, in units of cost, counting each attempt by the part that lies
// between.
func rates(run *sim.Run, from, to time.Duration) map[string]float64 {
	out := map[string]float64{}
	for i := range run.Records {
		r := &run.Records[i]
		if r.State != sim.StateCompleted && r.State != sim.StateRunning {
			continue
		}
		begin, end := max(from, r.Start), min(to, r.Start+r.Job.Service)
		if begin < end {
			out[r.Job.Cohort] += float64(r.Job.Charge()) / cell.Unit * float64(end-begin) / float64(r.Job.Service)
		}
	}
	for name := range out {
		out[name] /= (to - from).Seconds()
	}
	return out
}

// TestReservationAndBorrow has three tenants with reservations and weights get what the planner says, in the running scheduler: where they
// want a little more than there is, where they want all there is, and where there is less than what is reserved.
func TestReservationAndBorrow(t *testing.T) {
	scenario := func(slots int, offered [3]int) *sim.Scenario {
		text := fmt.Sprintf(`
scenario: three
unit: cpu_ms
workers: [{slots: %d}]
until: 8s
cohorts:
  - {name: alder, class: batch, arrivals: [{rate: %d, until: 8s}], service: 1ms, actual: 1000000, cost: {part: 1}}
  - {name: birch, class: batch, arrivals: [{rate: %d, until: 8s}], service: 1.5ms, actual: 1500000, cost: {part: 1}}
  - {name: cedar, class: batch, arrivals: [{rate: %d, until: 8s}], service: 600us, actual: 600000, cost: {part: 1}}
`, slots, offered[0], offered[1], offered[2])
		s := load(t, text)
		s.Policy = builtin(t, "reservation-and-borrow").Policy
		return s
	}
	for name, c := range map[string]struct {
		scenario *sim.Scenario
		want     [3]float64
	}{
		"as offered":             {builtin(t, "reservation-and-borrow"), [3]float64{5400, 4050, 2550}},
		"unlimited":              {scenario(12, [3]int{6000, 3000, 5000}), [3]float64{5400, 4200, 2400}},
		"below what is reserved": {scenario(6, [3]int{6000, 3000, 5000}), [3]float64{2571, 2143, 1286}},
	} {
		t.Run(name, func(t *testing.T) {
			run := simulate(t, c.scenario, "fairlead")
			for _, span := range [][2]time.Duration{{0, 4 * time.Second}, {4 * time.Second, 8 * time.Second}} {
				got := rates(run, span[0], span[1])
				for i, tenant := range []string{"alder", "birch", "cedar"} {
					off := got[tenant]/c.want[i] - 1
					if math.Abs(off) > 0.005 {
						t.Errorf("%s gets %.1f a second between %v and %v, not %.0f", tenant, got[tenant], span[0], span[1], c.want[i])
					}
				}
			}
		})
	}
}

// TestCreditLasts has a tenant spend a bucket of 180,000 cpu_ms at 600 a second beside one that always wants more: it lasts 300 s.
func TestCreditLasts(t *testing.T) {
	s := load(t, `
unit: cpu_ms
workers: [{slots: 12}]
until: 400s
cohorts:
  - {name: ash, class: batch, arrivals: [{rate: 100, until: 400s}], service: 100ms, actual: 100000000, cost: {part: 1}}
  - {name: elm, class: batch, arrivals: [{rate: 100, until: 400s}], service: 100ms, actual: 100000000, cost: {part: 1}}
policy:
  quantum: 10000000
  cost: {unit: cpu_ms, default: 100000000}
  classes: {interactive: {lend_after: 0s}}
  tenants:
    - {id: ash, credit: {max: 180000, refill: 0, extra: 600}}
`)
	run := simulate(t, s, "fairlead")
	for _, c := range []struct {
		from, to time.Duration
		ash      float64
	}{{0, 10 * time.Second, 6300}, {10 * time.Second, 295 * time.Second, 6300}, {305 * time.Second, 400 * time.Second, 6000}} {
		got := rates(run, c.from, c.to)["ash"]
		t.Logf("%v to %v: %.1f", c.from, c.to, got)
		if math.Abs(got/c.ash-1) > 0.005 {
			t.Errorf("between %v and %v ash gets %.1f a second, not %.0f", c.from, c.to, got, c.ash)
		}
	}
}
