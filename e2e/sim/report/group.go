package report

import (
	"cmp"
	"slices"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/e2e/sim"
)

// Summary is one run in figures.
type Summary struct {
	Scenario, Policy string
	Seed             uint64
	Unit             string // what costs are counted in
	Slots            int
	All              Group   // every job of the run
	Cohorts          []Group // as the scenario labels them, in the order of their first job
	Tenants          []Group // in the order of their first job
	// Utilisation is in percent, not rounded.
	Utilisation float64
	Notes       []string
}

// Group is what jobs that belong together came to.
type Group struct {
	Name    string
	Tenants int // how many tenants have jobs in it
	// Jobs are all that came. Each is in exactly one of the states: Jobs = Completed + Rejected + Expired + Running + Waiting.
	Jobs, Completed, Rejected, Expired, Running, Waiting int
	// Preempted counts attempts that were taken back.
	Preempted     int
	Wait, Latency Quantiles // of completed jobs
	Finished      time.Duration
	Asked         cell.Cost // what all its jobs cost if each completes
	Charged       cell.Cost
	// Share is the part of all that was charged in the run, 0 to 1.
	Share float64

	latencies []time.Duration // sorted
}

// Quantiles are nearest-rank percentiles of some durations, all 0 when there are none.
type Quantiles struct{ P50, P95, P99, Max time.Duration }

// Summarise computes the figures of a run.
func Summarise(run *sim.Run) *Summary {
	s := &Summary{
		Scenario: run.Scenario, Policy: run.Policy, Seed: run.Seed, Unit: run.Unit, Slots: run.Slots, Notes: run.Notes,
		Cohorts: groups(run.Records, Cohort), Tenants: groups(run.Records, Tenant),
	}
	all := groups(run.Records, func(*sim.Job) string { return "all" })
	s.All = Group{Name: "all"}
	if len(all) > 0 {
		s.All = all[0]
	}
	s.Utilisation = utilisation(run, s.All.Finished)
	return s
}

// Cohort returns the name under which a job is counted: the scenario's label, or else its tenant.
func Cohort(j *sim.Job) string {
	if j.Cohort != "" {
		return j.Cohort
	}
	return j.Tenant
}

// Tenant returns whose job it is.
func Tenant(j *sim.Job) string { return j.Tenant }

// gathering is a group while its jobs are being read.
type gathering struct {
	Group
	tenants map[string]struct{}
	waits   []time.Duration
}

// groups puts records together by name, in the order in which the names first appear.
func groups(records []sim.Record, name func(*sim.Job) string) []Group {
	at := map[string]int{}
	var all []*gathering
	for i := range records {
		r := &records[i]
		n := name(r.Job)
		k, ok := at[n]
		if !ok {
			k = len(all)
			at[n] = k
			all = append(all, &gathering{Group: Group{Name: n}, tenants: map[string]struct{}{}})
		}
		all[k].add(r)
	}
	var total float64
	for _, g := range all {
		total += float64(g.Charged)
	}
	out := make([]Group, len(all))
	for i, g := range all {
		g.Tenants = len(g.tenants)
		g.Wait, g.Latency = quantiles(g.waits), quantiles(g.latencies)
		if total > 0 {
			g.Share = float64(g.Charged) / total
		}
		out[i] = g.Group
	}
	return out
}

func (g *gathering) add(r *sim.Record) {
	g.Jobs++
	g.tenants[r.Job.Tenant] = struct{}{}
	g.Preempted += int(r.Preempted)
	g.Asked += r.Job.Charge()
	g.Charged += r.Charged
	switch r.State {
	case sim.StateCompleted:
		g.Completed++
		g.waits = append(g.waits, r.Wait())
		g.latencies = append(g.latencies, r.Latency())
		g.Finished = max(g.Finished, r.End)
	case sim.StateRejected:
		g.Rejected++
	case sim.StateExpired:
		g.Expired++
	case sim.StateRunning:
		g.Running++
	case sim.StateWaiting:
		g.Waiting++
	}
}

// quantiles sorts ds.
func quantiles(ds []time.Duration) Quantiles {
	slices.Sort(ds)
	return Quantiles{P50: percentile(ds, 50), P95: percentile(ds, 95), P99: percentile(ds, 99), Max: percentile(ds, 100)}
}

// percentile returns the value of rank ceil(p x n / 100), for p of 1 to 100, and 0 when there is none.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[rank(p, len(sorted))-1]
}

// rank is the place, from 1, of a percentile among n values: ceil(p x n / 100).
func rank(p, n int) int { return (p*n + 99) / 100 }

func utilisation(run *sim.Run, last time.Duration) float64 {
	var service float64
	for i := range run.Records {
		if r := &run.Records[i]; r.State == sim.StateCompleted {
			service += float64(r.End - r.Start)
		}
	}
	if service == 0 || run.Slots == 0 {
		return 0
	}
	return 100 * (service / (float64(run.Slots) * float64(last)))
}

// heavier is how many times what a tenant of the light cohort asks for one of the heavy cohort asks for at least.
const heavier = 2

// story returns the two cohorts that a scenario is about, or false when it is not about two of unlike kind: light is the one whose tenants ask for
// less each, so that its waits matter, and heavy the other, of which it matters when it is done. It does not depend on what a policy made of it.
func (s *Summary) story() (light, heavy *Group, ok bool) {
	if len(s.Cohorts) != 2 {
		return nil, nil, false
	}
	a, b := &s.Cohorts[0], &s.Cohorts[1]
	if a.each() > b.each() {
		a, b = b, a
	}
	return a, b, b.each() >= heavier*a.each()
}

// each is what a tenant of the group asks for.
func (g *Group) each() cell.Cost { return g.Asked / cell.Cost(max(1, g.Tenants)) }

// find returns the group with a name, or nil.
func find(groups []Group, name string) *Group {
	if i := slices.IndexFunc(groups, func(g Group) bool { return g.Name == name }); i >= 0 {
		return &groups[i]
	}
	return nil
}

// worstFirst returns the groups with the longest p95 wait first; among equals, the order stays.
func worstFirst(groups []Group) []Group {
	sorted := slices.Clone(groups)
	slices.SortStableFunc(sorted, func(a, b Group) int { return cmp.Compare(b.Wait.P95, a.Wait.P95) })
	return sorted
}
