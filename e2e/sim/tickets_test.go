package sim_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/e2e/sim"
)

// TestNineHundredTickets has one tenant file more tickets than can be answered, beside ten that file few: these are answered in the first
// cycle after they come, and the one still gets every slot that nobody else wants.
func TestNineHundredTickets(t *testing.T) {
	run := simulate(t, builtin(t, "nine-hundred-tickets"), "fairlead")
	count := map[string]int{}
	for i := range run.Records {
		r := &run.Records[i]
		count[r.Job.Tenant]++
		if r.State != sim.StateCompleted {
			t.Fatalf("job %d of %s is %v", r.Job.ID, r.Job.Tenant, r.State)
		}
		if r.Job.Tenant == "A" {
			continue
		}
		// Nothing of A starts between a ticket of another tenant and its answer.
		for k := range run.Records {
			if a := &run.Records[k]; a.Job.Tenant == "A" && a.Start >= r.Job.Arrival && a.Start < r.Start {
				t.Errorf("ticket %d of %s comes at %v and is taken at %v; A has one taken at %v", r.Job.ID, r.Job.Tenant, r.Job.Arrival, r.Start, a.Start)
				break
			}
		}
	}
	if len(count) != 11 || count["A"] != 900 || count["B"] != 1 || count["C"] != 1 {
		t.Errorf("tickets by tenant: %v", count)
	}
	if at, waiting := idle(run); waiting {
		t.Errorf("a slot is free at %v while a ticket waits", at)
	}
	if fifo := simulate(t, builtin(t, "nine-hundred-tickets"), "fifo"); fifo.End < run.End-time.Minute {
		t.Errorf("first in first out is done at %v, and this at %v", fifo.End, run.End)
	}
}

// idle returns a time at which a slot was free and a job waited, if there is one, in a run without bounds on what may run.
func idle(run *sim.Run) (time.Duration, bool) {
	type change struct {
		at            time.Duration
		busy, waiting int
	}
	var changes []change
	for i := range run.Records {
		r := &run.Records[i]
		changes = append(changes, change{r.Job.Arrival, 0, 1}, change{r.Start, 1, -1}, change{r.End, -1, 0})
	}
	slices.SortFunc(changes, func(a, b change) int { return int(a.at - b.at) })
	busy, waiting := 0, 0
	for i, c := range changes {
		busy, waiting = busy+c.busy, waiting+c.waiting
		if (i+1 == len(changes) || changes[i+1].at > c.at) && busy < run.Slots && waiting > 0 {
			return c.at, true
		}
	}
	return 0, false
}

// TestSharesOfTokens has tenants of different weights with costs that vary fifty-fold: their shares are shares of tokens, whatever the
// number of jobs.
func TestSharesOfTokens(t *testing.T) {
	s := load(t, `
unit: tokens
workers: [{slots: 4}]
until: 4h
cohorts:
  - {name: one, class: interactive, arrivals: [{at: 0s, jobs: 6000}], actual: {uniform: [1000000000, 50000000000]}, service: {per_unit: 250us}, cost: {part: 1}}
  - {name: two, class: interactive, arrivals: [{at: 0s, jobs: 40000}], actual: 1000000000, service: {per_unit: 250us}, cost: {part: 1}}
  - {name: four, class: interactive, arrivals: [{at: 0s, jobs: 6000}], actual: 50000000000, service: {per_unit: 250us}, cost: {part: 1}}
policy:
  quantum: 1000000000
  cost: {unit: tokens, default: 10000000000}
  classes: {batch: {lend_after: 0s}}
  tenants:
    - {id: one, weight: 1}
    - {id: two, weight: 2}
    - {id: four, weight: 4}
`)
	got := rates(simulate(t, s, "fairlead"), 0, s.Until/2)
	for tenant, want := range map[string]float64{"one": 1. / 7, "two": 2. / 7, "four": 4. / 7} {
		if share := got[tenant] / 16_000; math.Abs(share/want-1) > 0.005 {
			t.Errorf("%s has %.4f of the tokens, not %.4f", tenant, share, want)
		}
	}
}

// TestSettlement has a tenant declare a third of what its jobs cost: it gets three times its share where nobody settles, and its share
// where it is settled.
func TestSettlement(t *testing.T) {
	s := load(t, `
workers: [{slots: 4}]
until: 10m
cohorts:
  - {name: honest, class: interactive, arrivals: [{at: 0s, jobs: 30000}], service: {uniform: [20ms, 180ms]}, cost: {part: 1}}
  - {name: under, class: interactive, arrivals: [{at: 0s, jobs: 30000}], service: {uniform: [20ms, 180ms]}, cost: {part: 0.3333333}}
policy:
  classes: {batch: {lend_after: 0s}}
`)
	for policy, want := range map[string]float64{"drr": 3, "fairlead": 1} {
		got := rates(simulate(t, s, policy), 0, s.Until)
		if ratio := got["under"] / got["honest"]; math.Abs(ratio/want-1) > 0.005 {
			t.Errorf("under %s who under-declares gets %.4f times as much, not %.0f", policy, ratio, want)
		}
	}
}
