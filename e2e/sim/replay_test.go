package sim_test

import (
	"os"
	"testing"
	"time"

	"github.com/fairlead/fairlead/e2e/sim"
	"github.com/fairlead/fairlead/e2e/sim/trace"
)

// shared is where the traces of others lie, relative to this package, if they do.
const shared = "../../../shared/traces/"

// replay returns the scenario of a trace of others, or skips the test.
func replay(t testing.TB, name string, o trace.Options) *sim.Scenario {
	t.Helper()
	f, err := os.Open(shared + name)
	if err != nil {
		t.Skipf("SKIPPED: the trace %s is not here: %v", name, err)
	}
	defer f.Close()
	tr, err := trace.Read(f, o)
	if err != nil {
		t.Fatal(err)
	}
	s, err := sim.FromTrace(name, tr)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestReplay replays traces of others whole: every job completes once, nothing is rejected, and whoever waits does so because all slots are
// taken.
func TestReplay(t *testing.T) {
	for name, c := range map[string]struct {
		file          string
		options       trace.Options
		jobs, tenants int
	}{
		"a machine of 1993": {"NASA-iPSC-1993-3.1-cln.swf.gz", trace.Options{}, 18_239, 69},
		"a language model":  {"AzureLLMInferenceTrace_conv.csv.gz", trace.Options{Tenants: 20, Seed: 1}, 19_366, 20},
	} {
		t.Run(name, func(t *testing.T) {
			s := replay(t, c.file, c.options)
			if n := tenants(s); len(s.Jobs) != c.jobs || n != c.tenants {
				t.Fatalf("%d jobs by %d tenants", len(s.Jobs), n)
			}
			var worst []time.Duration
			for _, policy := range []string{"fifo", "drr", "fairlead"} {
				run := simulate(t, s, policy)
				waits := of(run, "", (*sim.Record).Wait)
				if len(waits) != c.jobs {
					t.Errorf("%s: %d of %d jobs completed", policy, len(waits), c.jobs)
				}
				t.Logf("%-8s %d slots, waits: median %v, p95 %v, p99 %v, max %v; done at %v",
					policy, run.Slots, median(waits), rank(waits, 0.95), rank(waits, 0.99), last(waits), run.End)
				worst = append(worst, rank(waits, 0.95))
			}
			if worst[0] == 0 {
				t.Error("nobody ever waits: the trace shows nothing")
			}
		})
	}
}

func tenants(s *sim.Scenario) int {
	seen := map[string]bool{}
	for i := range s.Jobs {
		seen[s.Jobs[i].Tenant] = true
	}
	return len(seen)
}

// million is a million jobs of a thousand tenants, which keep 64 slots busy nine tenths of the time.
func million(t testing.TB) *sim.Scenario {
	t.Helper()
	return load(t, `
seed: 7
workers: [{slots: 64}]
cohorts:
  - name: steady
    tenants: {prefix: steady-, count: 999}
    class: interactive
    arrivals: [{poisson: 1, until: 500s}]
    service: {lognormal: {median: 40ms, sigma: 0.8}}
  - name: loud
    class: batch
    arrivals: [{at: [0s, 100s, 200s], jobs: 166000}]
    service: {uniform: [5ms, 15ms]}
`)
}

// TestMillionJobs simulates a million jobs in seconds under every policy. The bound is generous: a machine may be busy with something else.
func TestMillionJobs(t *testing.T) {
	if testing.Short() {
		t.Skip("five million jobs")
	}
	s := million(t)
	for _, name := range []string{"fifo", "rr", "drr", "fairlead"} {
		p, err := sim.PolicyNamed(name)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		run, err := sim.Simulate(s, p, nil)
		if err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		t.Logf("%-8s %d jobs in %v", name, len(run.Records), took.Round(time.Millisecond))
		if took > 3*time.Minute {
			t.Errorf("%s takes %v", name, took)
		}
		if err := sim.Check(run); err != nil {
			t.Error(err)
		}
	}
}

// BenchmarkSimulate is the time for each job of a million.
func BenchmarkSimulate(b *testing.B) {
	s := million(b)
	for _, name := range []string{"fifo", "rr", "drr", "fairlead"} {
		b.Run(name, func(b *testing.B) {
			p, err := sim.PolicyNamed(name)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := sim.Simulate(s, p, nil); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(s.Jobs)), "ns/job")
		})
	}
}
