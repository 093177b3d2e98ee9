package crash

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane/client"
	"github.com/fairlead/fairlead/e2e/harness"
)

// preload submits n jobs, several batches at once, and returns their ids.
func preload(t *testing.T, server *harness.Server, tenant string, n int) []string {
	t.Helper()
	const perCall, callers = 1000, 8
	c := server.Client(tenant)
	ids := make([]string, n)
	next := make(chan int)
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for from := range next {
				jobs := make([]client.Job, min(perCall, n-from))
				for i := range jobs {
					jobs[i] = client.Job{
						Operation: operation, IdempotencyKey: fmt.Sprintf("preload-%d", from+i),
						Payload: client.JSON(map[string]any{"order": from + i, "customer": "c-99", "currency": "EUR"}),
					}
				}
				results, err := c.SubmitBatch(t.Context(), jobs)
				if err != nil {
					t.Errorf("preloading: %v", err)
					continue
				}
				for i, r := range results {
					if r.Err != nil {
						t.Errorf("preloading: %v", r.Err)
					}
					ids[from+i] = r.ID
				}
			}
		})
	}
	for from := 0; from < n; from += perCall {
		next <- from
	}
	close(next)
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return ids
}

// TestReadyAgainWithManyJobs kills a server that has 100,000 jobs, and bounds how long the next one takes from the start of its process to the
// first answered request. The fastest of three starts counts, or where that is too long, of twelve: what else runs on a machine only ever
// adds, and a server that is slow is slow every time.
func TestReadyAgainWithManyJobs(t *testing.T) {
	t.Parallel()
	const readyMax = 2 * time.Second
	jobs := 100_000
	if testing.Short() {
		jobs = 10_000
	}
	server := harness.NewServer(t, harness.Config{Tenants: []string{"acme"}})
	server.Start()
	began := time.Now()
	ids := preload(t, server, "acme", jobs)
	t.Logf("%d jobs accepted in %v", jobs, time.Since(began))
	var took []time.Duration
	restart := func(times int) time.Duration {
		for range times {
			server.Kill()
			took = append(took, server.Start())
		}
		return slices.Min(took)
	}
	ready := restart(3)
	if ready > readyMax {
		ready = restart(9)
	}
	t.Logf("ready with %d jobs after %v, of %v", jobs, ready, took)
	if ready > readyMax {
		t.Errorf("ready after %v, above %v", ready, readyMax)
	}
	status, err := server.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := status.GetJobs().GetReady(); got != int64(jobs) {
		t.Errorf("%d of %d jobs are there", got, jobs)
	}
	c := server.Client("acme")
	for i := 0; i < jobs; i += jobs / 10 {
		if _, err := c.Get(t.Context(), ids[i]); err != nil {
			t.Errorf("job %d: %v", i, err)
		}
	}
}
