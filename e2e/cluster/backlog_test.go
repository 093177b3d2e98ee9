package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/dataplane/client"
	"github.com/fairlead/fairlead/e2e/harness"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// jobsEnv says how many jobs wait when the tenant moves. A cell takes 2,000,000 of all its tenants together: with as many there is none for the neighbour.
const jobsEnv = "FAIRLEAD_MIGRATION_JOBS"

// apartEnv gives the source, and the gateway before it, the test's processors and the disk to themselves: everybody else keeps what it stores in memory and
// runs on the last processor, which the test has to be started without. It takes taskset and a /dev/shm: taskset -c 0 go test ...
const apartEnv = "FAIRLEAD_MIGRATION_APART"

// apart returns what sends an agent away from the source; nil when that is not asked for.
func apart(tb testing.TB) func(*harness.Agent) {
	tb.Helper()
	if os.Getenv(apartEnv) == "" {
		return nil
	}
	const last = "1"
	memory, err := os.MkdirTemp("/dev/shm", "fairlead-apart-*") //nolint:usetesting // the test's own is on the disk
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(memory) })
	return func(a *harness.Agent) {
		if a.Cell == pool || a.Role == "gateway" {
			return
		}
		a.Env = append(a.Env, "FAIRLEAD_AGENT_DIR="+filepath.Join(memory, a.Name))
		a.Wrap = func(cmd *exec.Cmd) *exec.Cmd {
			cmd.Args = append([]string{"taskset", "-c", last, cmd.Path}, cmd.Args[1:]...)
			cmd.Path, cmd.Err = exec.LookPath("taskset")
			return cmd
		}
	}
}

// probe submits one job of a tenant after the other and notes how long each took.
type probe struct {
	mu    sync.Mutex
	times []time.Duration
}

func (p *probe) run(ctx context.Context, jobs fairleadv1connect.JobServiceClient, name string) {
	for n := 0; ctx.Err() == nil; n++ {
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		begin := time.Now()
		_, err := jobs.Submit(call, &fairleadv1.SubmitRequest{Job: &fairleadv1.JobSpec{Operation: operation, IdempotencyKey: fmt.Sprintf("%s-%d", name, n)}})
		cancel()
		if err == nil {
			p.mu.Lock()
			p.times = append(p.times, time.Since(begin))
			p.mu.Unlock()
		}
		rest(ctx, idle)
	}
}

// take returns the 99th percentile of what was noted since the last call, and of how many.
func (p *probe) take() (p99 time.Duration, of int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.Sort(p.times)
	if of = len(p.times); of > 0 {
		p99 = p.times[(of*99)/100]
	}
	p.times = nil
	return p99, of
}

// backlogMove is what moving a tenant with many waiting jobs came to.
type backlogMove struct {
	jobs   int
	copied time.Duration
	pauses []time.Duration
	// The neighbour's submissions before, while and after the jobs were copied: p99. What a machine itself does with twice the memory in use is in the last two.
	before, while, after time.Duration
}

// times is how many times as long the neighbour's submissions took as when nothing was copied, before or after.
func (b *backlogMove) times() float64 { return float64(b.while) / float64(max(b.before, b.after, 1)) }

// moveBacklog moves a tenant with many waiting jobs, and checks that all of them arrive.
func moveBacklog(tb testing.TB) backlogMove {
	tb.Helper()
	c := harness.StartCluster(tb, harness.ClusterConfig{
		Cells: map[string]int{pool: 1, dedicated: 1}, Dedicated: []string{dedicated}, Tenants: []string{"whale", "quiet"}, Env: hasty(), Each: apart(tb),
	})
	const jobsUsual, batch, writers = 20_000, 500, 4
	out := backlogMove{jobs: numberOf(tb, jobsEnv, jobsUsual)}
	whale := dialJobs(tb, c.ClientConfig("whale"))
	fill(tb, whale, out.jobs, batch, writers)

	ctx, stop := context.WithCancel(tb.Context())
	defer stop()
	var p probe
	var running sync.WaitGroup
	running.Go(func() { p.run(ctx, dialJobs(tb, c.ClientConfig("quiet")), "quiet") })
	settled, quietTime := time.Second, 8*time.Second
	if out.jobs > jobsUsual { // a 99th percentile is to be compared with, and snapshots of what was submitted are no part of it
		settled, quietTime = time.Minute, time.Minute
	}
	harness.Pause(tb, settled)
	p99, n := p.take()
	tb.Logf("neighbour's submissions after the backlog's: p99 %v of %d", p99, n)
	harness.Pause(tb, quietTime)
	out.before, n = p.take()
	tb.Logf("neighbour's submissions before: p99 %v of %d", out.before, n)

	// Somebody at the target offers the operation, and takes none of these jobs.
	running.Go(func() { attend(ctx, tb, c, dedicated) })

	m := newMoves(tb, c, "whale")
	m.within += time.Duration(out.jobs) * time.Millisecond / 2 // a copy that is slowed down takes its time
	begin := time.Now()
	m.start(dedicated)
	m.until(fairleadv1.MigrationState_MIGRATION_STATE_SHADOWING, fairleadv1.MigrationState_MIGRATION_STATE_READY,
		fairleadv1.MigrationState_MIGRATION_STATE_RAMPING, fairleadv1.MigrationState_MIGRATION_STATE_CUT_OVER)
	out.copied = time.Since(begin)
	out.while, n = p.take()
	tb.Logf("%d jobs copied in %v; neighbour's submissions meanwhile: p99 %v of %d", out.jobs, out.copied.Round(time.Millisecond), out.while, n)
	m.cutOver()
	out.pauses = m.pauses
	tb.Logf("cut over after %v; pauses %v", time.Since(begin).Round(time.Millisecond), m.pauses)
	p.take()
	harness.Pause(tb, quietTime)
	out.after, n = p.take()
	tb.Logf("neighbour's submissions after it: p99 %v of %d; %.2f times while it was copied", out.after, n, out.times())
	stop()
	running.Wait()

	list, err := whale.ListJobs(tb.Context(), &fairleadv1.ListJobsRequest{PageSize: 1})
	if err != nil || len(list.GetJobs()) != 1 {
		tb.Errorf("listing at the target: %v, %v", list, err)
	}
	if got := waiting(tb, c, "whale", dedicated); got != int64(out.jobs) {
		tb.Errorf("%d jobs wait at the target, not %d", got, out.jobs)
	}
	return out
}

// A tenant with many waiting jobs moves: all of them arrive, its pause does not grow with them, and its neighbour's submissions go on. The times are logged;
// what a busy machine measures fails no test.
func TestMigrationOfABacklog(t *testing.T) {
	harness.NeedCluster(t)
	moveBacklog(t)
}

// attend is a worker of a cell that is there for interactive jobs only.
func attend(ctx context.Context, tb testing.TB, c *harness.Cluster, cellName string) {
	tb.Helper()
	cfg := c.ClientConfig("worker")
	cfg.Cell = cellName
	conn, err := client.Dial(cfg)
	if err != nil {
		tb.Error(err)
		return
	}
	defer conn.Close()
	workers := fairleadv1connect.NewWorkerServiceClient(conn.HTTP, conn.URL, conn.Options...)
	for n := int64(1); ctx.Err() == nil; n++ {
		_, _ = workers.Lease(ctx, &fairleadv1.LeaseRequest{ // whoever fails is asked again
			Session: "attendant", Worker: "attendant", Operations: []string{operation}, Classes: []fairleadv1.Class{fairleadv1.Class_CLASS_INTERACTIVE},
			Slots: 1, Sequence: n, Wait: durationpb.New(time.Second),
		})
	}
}

// fill submits so many jobs in batches.
func fill(tb testing.TB, jobs fairleadv1connect.JobServiceClient, count, batch, writers int) {
	tb.Helper()
	var group sync.WaitGroup
	chunks := make(chan int)
	for range writers {
		group.Go(func() {
			for from := range chunks {
				req := &fairleadv1.SubmitBatchRequest{}
				for n := from; n < min(count, from+batch); n++ {
					req.Jobs = append(req.Jobs, &fairleadv1.JobSpec{
						Operation: operation, Class: fairleadv1.Class_CLASS_BATCH, IdempotencyKey: fmt.Sprintf("backlog-%d", n),
						Payload: &fairleadv1.Payload{Body: &fairleadv1.Payload_Json{Json: `{"order":12345,"format":"csv"}`}},
					})
				}
				for {
					ctx, cancel := context.WithTimeout(tb.Context(), moveTimeout)
					_, err := jobs.SubmitBatch(ctx, req)
					cancel()
					if err == nil || tb.Context().Err() != nil {
						break
					}
				}
			}
		})
	}
	begin := time.Now()
	for from := 0; from < count; from += batch {
		chunks <- from
	}
	close(chunks)
	group.Wait()
	tb.Logf("%d jobs accepted in %v", count, time.Since(begin).Round(time.Millisecond))
}

// waiting returns how many jobs of a tenant wait in a cell.
func waiting(tb testing.TB, c *harness.Cluster, tenant, cellName string) int64 {
	tb.Helper()
	cfg := c.ClientConfig("admin")
	cfg.Cell = cellName
	conn, err := client.Dial(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(tb.Context(), moveTimeout)
	defer cancel()
	resp, err := fairleadv1connect.NewStatusServiceClient(conn.HTTP, conn.URL, conn.Options...).GetStatus(ctx, &fairleadv1.GetStatusRequest{})
	if err != nil {
		tb.Fatal(err)
	}
	var n int64
	for _, l := range resp.GetLanes() {
		if l.GetTenant() == tenant {
			n += l.GetReady() + l.GetDelayed() + l.GetLeased()
		}
	}
	return n
}
