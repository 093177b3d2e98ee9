package neighbour

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane/client"
	"github.com/fairlead/fairlead/e2e/harness"
)

// scenario is one noisy tenant among quiet ones.
type scenario struct {
	policy string
	flood  int           // jobs that the noisy tenant submits at once
	period time.Duration // between two jobs of a quiet tenant
	length time.Duration // how long the quiet tenants go on
	crowd  int           // further tenants, each with a job that cannot run: delayed, or of an operation that no worker offers
}

const (
	noisy    = "noisy"
	quiet    = 19 // tenants
	slots    = 8
	prefetch = 2
	// warmUp is the number of a quiet tenant's first job, which does not count.
	warmUp = -1
)

func quietName(i int) string { return fmt.Sprintf("quiet-%02d", i) }

func names() []string {
	out := []string{noisy}
	for i := range quiet {
		out = append(out, quietName(i))
	}
	return out
}

// submission is one job of a quiet tenant's.
type submission struct {
	tenant string
	n      int
	at     time.Time // just before Submit was called
	id     string
}

// stage is a server with its worker process, and a client for each tenant.
type stage struct {
	tb      testing.TB
	server  *harness.Server
	worker  *harness.Process
	clients map[string]*client.Client
	flooded time.Time     // when the flood was accepted
	arrived chan struct{} // closed when the worker's first handler has begun
	ran     []execution   // once the worker has ended
}

func newStage(tb testing.TB, policy string) *stage {
	tb.Helper()
	s := &stage{
		tb: tb, server: harness.NewServer(tb, harness.Config{Tenants: names(), Policy: policyFile(tb, policy)}),
		clients: map[string]*client.Client{}, arrived: make(chan struct{}),
	}
	s.server.Start()
	for _, name := range names() {
		s.clients[name] = s.server.Client(name)
	}
	return s
}

// policyFile writes a policy that lends idle room at once. All jobs here are of one class, which would have to leave the other's room idle for the
// first second of a server.
func policyFile(tb testing.TB, policy string) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "policy.yaml")
	text := "policy: " + policy + "\nclasses: {interactive: {lend_after: 0s}, batch: {lend_after: 0s}}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

// startWorker starts the worker.
func (s *stage) startWorker() {
	s.tb.Helper()
	cfg := s.server.ClientConfig("worker")
	args := workerArgs{Addr: cfg.Addr, Token: string(cfg.Token), Slots: slots, Prefetch: prefetch, Profile: os.Getenv("FAIRLEAD_PROFILE")}
	s.worker = harness.Spawn(s.tb, workerRole, args, func(line []byte) {
		var x execution
		if err := json.Unmarshal(line, &x); err != nil {
			s.tb.Errorf("the worker printed %q: %v", line, err)
			return
		}
		if x == (execution{}) {
			close(s.arrived)
			return
		}
		s.ran = append(s.ran, x)
	})
}

// warmUp has the worker run a job of each quiet tenant.
func (s *stage) warmUp() {
	s.tb.Helper()
	first := make([]submission, quiet)
	for i := range first {
		first[i] = s.submit(quietName(i), warmUp)
	}
	s.await(first)
}

// submit submits one job.
func (s *stage) submit(tenant string, n int) submission {
	sub := submission{tenant: tenant, n: n, at: time.Now()}
	got, err := s.clients[tenant].Submit(s.tb.Context(), client.Job{Operation: operation, Payload: client.JSON(n)})
	if err != nil {
		s.tb.Errorf("submitting for %s: %v", tenant, err)
	}
	sub.id = got.ID
	return sub
}

// await waits until every one of the jobs has ended.
func (s *stage) await(subs []submission) {
	s.tb.Helper()
	var wg sync.WaitGroup
	for _, sub := range subs {
		wg.Go(func() {
			if _, err := s.clients[sub.tenant].Wait(s.tb.Context(), sub.id); err != nil {
				s.tb.Errorf("waiting for a job of %s: %v", sub.tenant, err)
			}
		})
	}
	wg.Wait()
	if s.tb.Failed() {
		s.tb.FailNow()
	}
}

// flood submits the noisy tenant's jobs, as fast as it can.
func (s *stage) flood(n int) {
	jobs := make([]client.Job, n)
	for i := range jobs {
		jobs[i] = client.Job{Operation: operation, Payload: client.JSON(i)}
	}
	results, err := s.clients[noisy].SubmitBatch(s.tb.Context(), jobs)
	if err != nil {
		s.tb.Errorf("flooding: %v", err)
	}
	for _, r := range results {
		if r.Err != nil {
			s.tb.Errorf("flooding: %v", r.Err)
			return
		}
	}
}

// end ends the processes, and takes in what the worker did.
func (s *stage) end() {
	s.tb.Helper()
	if code := s.worker.Terminate(20 * time.Second); code != 0 {
		s.tb.Fatalf("the worker ended with code %d: %s", code, s.worker.Output())
	}
	if code := s.server.Process().Terminate(20 * time.Second); code != 0 {
		s.tb.Errorf("the server ended with code %d: %s", code, s.server.Process().Output())
	}
}

// run plays a scenario.
func run(tb testing.TB, sc scenario) figures {
	tb.Helper()
	harness.NeedSignals(tb)
	s := newStage(tb, sc.policy)
	if sc.crowd > 0 {
		gather(tb, s.server, sc.crowd).wait()
	}
	s.startWorker()
	s.warmUp()
	var wg sync.WaitGroup
	began := time.Now()
	wg.Go(func() {
		s.flood(sc.flood)
		s.flooded = time.Now()
	})
	subs := s.quietTenants(began, sc)
	wg.Wait()
	window := time.Now()
	s.await(subs)
	s.end()
	return s.figures(subs, window)
}

// quietTenants submits one job of each quiet tenant in each period, their phases spread evenly. A submission that takes long delays none.
func (s *stage) quietTenants(began time.Time, sc scenario) []submission {
	rounds := int(sc.length / sc.period)
	subs := make([]submission, rounds*quiet)
	var wg sync.WaitGroup
	for i := range subs {
		at := began.Add(time.Duration(i) * sc.period / quiet)
		if d := time.Until(at); d > 0 {
			harness.Pause(s.tb, d)
		}
		wg.Go(func() { subs[i] = s.submit(quietName(i%quiet), i/quiet) })
	}
	wg.Wait()
	return subs
}

// figures is what came of a scenario.
type figures struct {
	p50, p95, p99, max time.Duration // quiet tenants' waits
	later              time.Duration // p95 of those submitted after the whole flood had been accepted
	busy               float64       // share of the slots' time that handlers ran, while there was a flood and quiet tenants submitted
	rate               float64       // jobs per second, meanwhile
	jobs               int           // of quiet tenants
}

// figures works the figures out. The slots count from the first job of the flood on, until the window ends: by then the flood must not be over.
func (s *stage) figures(subs []submission, window time.Time) figures {
	s.tb.Helper()
	type name struct {
		tenant string
		n      int
	}
	started := make(map[name]int64, len(s.ran))
	from, until, last := int64(0), window.UnixNano(), int64(0)
	for _, x := range s.ran {
		if _, twice := started[name{x.Tenant, x.N}]; twice {
			s.tb.Errorf("job %d of %s ran twice", x.N, x.Tenant)
		}
		started[name{x.Tenant, x.N}] = x.Start
		if x.Tenant == noisy {
			if from == 0 || x.Start < from {
				from = x.Start
			}
			last = max(last, x.End)
		}
	}
	until = min(until, last)
	var f figures
	var busy int64
	for _, x := range s.ran {
		busy += max(0, min(x.End, until)-max(x.Start, from))
		if x.Start >= from && x.End <= until {
			f.rate++
		}
	}
	f.busy = float64(busy) / float64(slots*(until-from))
	f.rate /= time.Duration(until - from).Seconds()
	var waits, later []time.Duration
	for _, sub := range subs {
		start, ok := started[name{sub.tenant, sub.n}]
		if !ok {
			s.tb.Errorf("job %d of %s never ran", sub.n, sub.tenant)
		}
		wait := time.Duration(start - sub.at.UnixNano())
		waits = append(waits, wait)
		if sub.at.After(s.flooded) {
			later = append(later, wait)
		}
	}
	slices.Sort(waits)
	slices.Sort(later)
	if len(later) > 0 {
		f.later = quantile(later, 95)
	}
	f.jobs = len(waits)
	f.p50, f.p95, f.p99, f.max = quantile(waits, 50), quantile(waits, 95), quantile(waits, 99), waits[len(waits)-1]
	return f
}

// quantile returns the smallest value that at least so many percent do not exceed.
func quantile(sorted []time.Duration, percent int) time.Duration {
	return sorted[max(0, (len(sorted)*percent+99)/100-1)]
}

func (f figures) String() string {
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	return fmt.Sprintf("%d quiet jobs wait p50 %.1f ms, p95 %.1f ms (%.1f ms once the flood was accepted), p99 %.1f ms, max %.1f ms; slots busy %.1f %%, %.0f jobs/s",
		f.jobs, ms(f.p50), ms(f.p95), ms(f.later), ms(f.p99), ms(f.max), 100*f.busy, f.rate)
}

func (f figures) report(b *testing.B) {
	b.Helper()
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	b.ReportMetric(0, "ns/op") // how long the scenario takes says nothing
	b.ReportMetric(ms(f.p50), "p50-wait-ms")
	b.ReportMetric(ms(f.p95), "p95-wait-ms")
	b.ReportMetric(ms(f.p99), "p99-wait-ms")
	b.ReportMetric(ms(f.max), "max-wait-ms")
	b.ReportMetric(100*f.busy, "slots-busy-%")
	b.ReportMetric(f.rate, "jobs/s")
}
