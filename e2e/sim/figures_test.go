package sim_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/e2e/sim"
)

// simulate runs a scenario under a policy, and checks the run.
func simulate(t testing.TB, s *sim.Scenario, policy string) *sim.Run {
	t.Helper()
	p, err := sim.PolicyNamed(policy)
	if err != nil {
		t.Fatal(err)
	}
	run, err := sim.Simulate(s, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := sim.Check(run); err != nil {
		t.Fatal(err)
	}
	return run
}

func builtin(t testing.TB, name string) *sim.Scenario {
	t.Helper()
	s, err := sim.Builtin(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func load(t testing.TB, text string) *sim.Scenario {
	t.Helper()
	s, err := sim.LoadScenario("scenario.yaml", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// of returns what completed jobs of a cohort gave, sorted; everybody's for an empty cohort.
func of(run *sim.Run, cohort string, what func(*sim.Record) time.Duration) []time.Duration {
	var out []time.Duration
	for i := range run.Records {
		if r := &run.Records[i]; r.State == sim.StateCompleted && (cohort == "" || r.Job.Cohort == cohort) {
			out = append(out, what(r))
		}
	}
	slices.Sort(out)
	return out
}

// rank returns a percentile by nearest rank.
func rank(sorted []time.Duration, p float64) time.Duration {
	return sorted[int(math.Ceil(p*float64(len(sorted))))-1]
}

// median returns the middle one, or the mean of the two.
func median(sorted []time.Duration) time.Duration {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

func last(sorted []time.Duration) time.Duration { return sorted[len(sorted)-1] }

func end(r *sim.Record) time.Duration { return r.End }

// utilisation is the service done over what the slots could have done until the last completion, in hundredths of a percent, rounded.
func utilisation(run *sim.Run) int {
	var service time.Duration
	for i := range run.Records {
		if run.Records[i].State == sim.StateCompleted {
			service += run.Records[i].Job.Service
		}
	}
	finished := last(of(run, "", end))
	return int(math.Round(float64(service) / (float64(run.Slots) * float64(finished)) * 10_000))
}

const ms = time.Millisecond

// TestQuietIsProtected has the real scheduler protect quiet tenants at least as well as a hard cap, at nearly the throughput of round
// robin.
func TestQuietIsProtected(t *testing.T) {
	s := builtin(t, "quiet-and-bulk-500ms")
	run := simulate(t, s, "fairlead")
	waits := of(run, "quiet", (*sim.Record).Wait)
	p95, most, finished, used := rank(waits, 0.95), last(waits), last(of(run, "bulk", end)), utilisation(run)
	t.Logf("quiet p95 %v, max %v, bulk finished %v, utilisation %d", p95, most, finished, used)
	if len(of(run, "", end)) != 476 || p95 > 200*ms || most > 200*ms || finished > 27_000*ms || used < 9600 {
		t.Error("want at most 200 ms, 200 ms and 27 s, and at least 9600")
	}
	p := *s.Policy
	for i := range p.Sched.Bulkheads {
		p.Sched.Bulkheads[i].LendAfter = 0
	}
	s.Policy = &p
	run = simulate(t, s, "fairlead")
	if finished, used := last(of(run, "bulk", end)), utilisation(run); finished != 26_000*ms || used != 9981 {
		t.Errorf("with lend_after 0 the bulk finishes at %v, utilisation %d", finished, used)
	}
}

// TestQuietAndBulk has the published figures of one bulk tenant beside nineteen quiet ones, exactly.
func TestQuietAndBulk(t *testing.T) {
	for name, c := range map[string]struct {
		scenario, policy    string
		p95, most, finished time.Duration
		used                int
	}{
		"100 ms, fifo":   {"quiet-and-bulk-100ms", "fifo", 4900 * ms, 5000 * ms, 5000 * ms, 9917},
		"100 ms, rr":     {"quiet-and-bulk-100ms", "rr", 200 * ms, 200 * ms, 6000 * ms, 9917},
		"100 ms, capped": {"quiet-and-bulk-100ms", "capped-rr", 200 * ms, 200 * ms, 20_800 * ms, 2861},
		"500 ms, fifo":   {"quiet-and-bulk-500ms", "fifo", 24_900 * ms, 25_000 * ms, 25_000 * ms, 9981},
		"500 ms, rr":     {"quiet-and-bulk-500ms", "rr", 500 * ms, 500 * ms, 26_000 * ms, 9981},
		"500 ms, capped": {"quiet-and-bulk-500ms", "capped-rr", 200 * ms, 300 * ms, 100_200 * ms, 2590},
	} {
		t.Run(name, func(t *testing.T) {
			run := simulate(t, builtin(t, c.scenario), c.policy)
			waits := of(run, "quiet", (*sim.Record).Wait)
			if n := len(of(run, "", end)); n != 476 || len(waits) != 76 {
				t.Fatalf("%d jobs completed, %d of them quiet", n, len(waits))
			}
			p95, most, finished, used := rank(waits, 0.95), last(waits), last(of(run, "bulk", end)), utilisation(run)
			if p95 != c.p95 || most != c.most || finished != c.finished || used != c.used {
				t.Errorf("quiet p95 %v, max %v, bulk finished %v, utilisation %d; want %v, %v, %v, %d",
					p95, most, finished, used, c.p95, c.most, c.finished, c.used)
			}
		})
	}
}

// TestThreeHundred has the published medians and maxima of three hundred jobs at once, exactly.
func TestThreeHundred(t *testing.T) {
	for policy, want := range map[string]map[string][2]time.Duration{
		"fifo": {"acme": {104 * ms, 300 * ms}, "globex": {168 * ms, 280 * ms}, "bulk": {152 * ms, 300 * ms}},
		"rr":   {"acme": {32 * ms, 56 * ms}, "globex": {24 * ms, 44 * ms}, "bulk": {168 * ms, 300 * ms}},
		"drr":  {"acme": {32 * ms, 56 * ms}, "globex": {24 * ms, 44 * ms}, "bulk": {168 * ms, 300 * ms}},
		// The scheduler of production does what round robin does, since all jobs are the same.
		"fairlead": {"acme": {32 * ms, 56 * ms}, "globex": {24 * ms, 44 * ms}, "bulk": {168 * ms, 300 * ms}},
	} {
		run := simulate(t, builtin(t, "three-hundred"), policy)
		for tenant, w := range want {
			l := of(run, tenant, (*sim.Record).Latency)
			if got := [2]time.Duration{median(l), last(l)}; got != w {
				t.Errorf("%s: %s has median and maximum %v, want %v", policy, tenant, got, w)
			}
		}
		if run.End != 300*ms {
			t.Errorf("%s ends at %v", policy, run.End)
		}
	}
}

// TestBacklogBound has 239 jobs of one tenant and 61 of another against bounds on what may wait: who is over is refused, the other never.
func TestBacklogBound(t *testing.T) {
	s := builtin(t, "three-hundred-weighted")
	for policy, want := range map[string][2]time.Duration{"drr": {30 * ms, 123 * ms}, "fairlead": {30 * ms, 123 * ms}} {
		run := simulate(t, s, policy)
		e, f := of(run, "enterprise", (*sim.Record).Latency), of(run, "free", (*sim.Record).Latency)
		if len(e) != 61 || len(f) != 200 {
			t.Fatalf("%s: %d and %d jobs completed", policy, len(e), len(f))
		}
		if got := [2]time.Duration{median(e), median(f)}; got != want {
			t.Errorf("%s: the medians are %v, want %v", policy, got, want)
		}
		fifo := simulate(t, s, "fifo")
		if run.End != fifo.End {
			t.Errorf("%s ends at %v, and first in first out at %v", policy, run.End, fifo.End)
		}
	}
}

// TestMaskedPercentile has a fleet whose 99th percentile is well and one tenant's is not.
func TestMaskedPercentile(t *testing.T) {
	if testing.Short() {
		t.Skip("a million jobs")
	}
	run := simulate(t, builtin(t, "masked-percentile"), "fifo")
	fleet, cedar := of(run, "", (*sim.Record).Latency), of(run, "cedar", (*sim.Record).Latency)
	if len(fleet) != 1_000_000 || len(cedar) != 10_000 {
		t.Fatalf("%d operations, %d of cedar", len(fleet), len(cedar))
	}
	within := func(d time.Duration) int {
		n, _ := slices.BinarySearch(fleet, d+1)
		return n
	}
	if a, b := within(180*ms), within(196*ms); a != 985_000 || b != 994_000 {
		t.Errorf("%d operations within 180 ms, %d within 196 ms", a, b)
	}
	if a, b := rank(fleet, 0.99), rank(cedar, 0.99); a != 196*ms || b != 1840*ms {
		t.Errorf("the 99th percentile of all is %v, of cedar %v", a, b)
	}
}

// TestExport is two million jobs at once beside 1,500 others a second, on slots for 4,000 a second: behind it in first in, first out, and
// beside it in deficit round robin. Twice the workers halve the wait and do not end it.
func TestExport(t *testing.T) {
	if testing.Short() {
		t.Skip("ten million jobs")
	}
	s := builtin(t, "two-million-export")
	for name, c := range map[string]struct {
		policy          string
		slots           int
		wait, done, end time.Duration
	}{
		"fifo":                        {"fifo", 200, 500 * time.Second, 500 * time.Second, 800*time.Second + 40*ms},
		"fifo with twice the workers": {"fifo", 400, 250 * time.Second, 250 * time.Second, 800*time.Second + 40*ms},
		"drr":                         {"drr", 200, 50 * ms, 800 * time.Second, 800*time.Second + 40*ms},
	} {
		t.Run(name, func(t *testing.T) {
			s.Workers[0].Slots = c.slots
			run := simulate(t, s, c.policy)
			wait, done := last(of(run, "others", (*sim.Record).Wait)), last(of(run, "export", end))
			if c.policy == "fifo" && wait != c.wait || wait > c.wait || done != c.done || run.End > c.end {
				t.Errorf("others wait up to %v, the export is done at %v, all at %v", wait, done, run.End)
			}
			if n := len(run.Records); n != 3_200_000 {
				t.Errorf("%d jobs", n)
			}
		})
	}
}

// TestExportProtected has the scheduler of production do to the export, at a twentieth of the scale, what deficit round robin does.
func TestExportProtected(t *testing.T) {
	s := load(t, `
workers: [{slots: 10}]
cohorts:
  - {name: export, class: batch, arrivals: [{at: 0s, jobs: 100000}], service: 50ms}
  - {name: others, tenants: {prefix: shop-, count: 15}, class: batch, arrivals: [{rate: 5, until: 800s}], service: 50ms}
`)
	s.Policy = builtin(t, "three-hundred").Policy // of one class
	run := simulate(t, s, "fairlead")
	wait, done := last(of(run, "others", (*sim.Record).Wait)), last(of(run, "export", end))
	if wait > 50*ms || done > 801*time.Second || done < 799*time.Second {
		t.Errorf("others wait up to %v, the export is done at %v", wait, done)
	}
}

// TestDrain has ten times as much come as can be done, for thirty minutes: the last of it is done after three hundred.
func TestDrain(t *testing.T) {
	s := load(t, `
workers: [{slots: 1}]
cohorts:
  - {name: flood, arrivals: [{rate: 100, until: 30m}], service: 100ms}
`)
	if run := simulate(t, s, "drr"); run.End != 300*time.Minute {
		t.Errorf("all is done after %v", run.End)
	}
}
