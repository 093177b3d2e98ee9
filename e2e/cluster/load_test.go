package cluster

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/dataplane/client"
	"github.com/fairlead/fairlead/e2e/harness"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
	"github.com/fairlead/fairlead/proto/rejection"
)

const (
	operation = "count"
	keyLabel  = "key"
	// callTimeout bounds one call: more than a gateway parks it for.
	callTimeout = 8 * time.Second
	// leaseDuration is what a job waits whose grant or outcome was lost: far longer than an election.
	leaseDuration = 10 * time.Second
	// idle is between two calls of one caller: the histories are to be long in time, not in operations.
	idle = 20 * time.Millisecond
)

// load submits, runs, looks at and cancels jobs of one tenant, and records what it was told. It repeats nothing by itself but submissions.
type load struct {
	tenant  string
	cell    string
	jobs    fairleadv1connect.JobServiceClient
	workers fairleadv1connect.WorkerServiceClient
	history *history
	seed    uint64
	pools   []fairleadv1connect.WorkerServiceClient // of each cell that it has workers in
	running context.Context                         //nolint:containedctx // of the callers, which outlive the call that starts them

	calls, errs atomic.Int64 // of submissions and reads
	fatal       atomic.Int64 // of these, errors that no caller would repeat the call after

	mu    sync.Mutex
	acked map[string]string // key to id
	done  sync.WaitGroup
	stop  context.CancelFunc
}

// startLoad begins with so many submitters and workers.
func startLoad(tb testing.TB, c *harness.Cluster, tenant, cellName string, seed uint64, submitters, workers int) *load {
	tb.Helper()
	return startLoadIn(tb, c, newHistory(), tenant, cellName, seed, submitters, workers)
}

// startLoadIn is startLoad for a tenant that shares its cell with another: either's workers run both's jobs, so that their history is one. All of its loads
// have to end before any finishes.
func startLoadIn(tb testing.TB, c *harness.Cluster, h *history, tenant, cellName string, seed uint64, submitters, workers int) *load {
	tb.Helper()
	dial := func(key string) *client.Conn {
		cfg := c.ClientConfig(key)
		cfg.Cell = cellName
		conn, err := client.Dial(cfg)
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(conn.Close)
		return conn
	}
	app, pool := dial(tenant), dial("worker")
	l := &load{
		tenant: tenant, cell: cellName, history: h, seed: seed, acked: map[string]string{},
		jobs:    fairleadv1connect.NewJobServiceClient(app.HTTP, app.URL, app.Options...),
		workers: fairleadv1connect.NewWorkerServiceClient(pool.HTTP, pool.URL, pool.Options...),
	}
	ctx, stop := context.WithCancel(tb.Context())
	l.stop, l.running, l.pools = stop, ctx, append(l.pools, l.workers)
	tb.Cleanup(l.end)
	for i := range submitters {
		l.done.Go(func() { l.submit(ctx, i) })
	}
	for i := range workers {
		l.done.Go(func() { l.work(ctx, l.workers, 1000+i) })
	}
	return l
}

// workAt adds workers of another cell, which the tenant is about to move to.
func (l *load) workAt(tb testing.TB, c *harness.Cluster, cellName string, workers int) {
	tb.Helper()
	cfg := c.ClientConfig("worker")
	cfg.Cell = cellName
	conn, err := client.Dial(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(conn.Close)
	there := fairleadv1connect.NewWorkerServiceClient(conn.HTTP, conn.URL, conn.Options...)
	l.pools = append(l.pools, there)
	for i := range workers {
		l.done.Go(func() { l.work(l.running, there, 2000+i) })
	}
}

// end stops the callers, and waits for what they have under way.
func (l *load) end() {
	l.stop()
	l.done.Wait()
}

// told returns what an error says of a call's effect.
func outcomeOf(err error) (out told, again bool) {
	switch r := rejection.From(err); {
	case err == nil:
		return told{}, false
	case r.GetReason() == rejection.ReasonNotApplied:
		return told{refused: true}, true
	case connect.CodeOf(err) == connect.CodeNotFound:
		return told{absent: true}, false
	case r.GetReason() == "WRONG_STATE", r.GetReason() == "LEASE_STALE":
		return told{refused: true}, false
	default:
		return told{unknown: true}, true
	}
}

func (l *load) count(err error) {
	l.calls.Add(1)
	if err == nil {
		return
	}
	l.errs.Add(1)
	if code := connect.CodeOf(err); code != connect.CodeUnavailable && code != connect.CodeDeadlineExceeded && code != connect.CodeAborted {
		l.fatal.Add(1)
	}
}

// submit is an application: one job after the other, with some looks and cancellations.
func (l *load) submit(ctx context.Context, caller int) {
	random := rand.New(rand.NewPCG(l.seed, uint64(caller)))
	for n := 0; ctx.Err() == nil; n++ {
		key := fmt.Sprintf("%s-%d-%d", l.tenant, caller, n)
		id := l.submitUntilKnown(ctx, caller, key)
		if id == "" {
			return
		}
		if random.IntN(4) == 0 {
			l.get(ctx, caller, key, id)
		}
		if random.IntN(8) == 0 {
			l.cancel(ctx, caller, key, id)
		}
		rest(ctx, idle)
	}
}

// submitUntilKnown repeats a submission with its key until it is known what became of it; empty when ctx ends before.
func (l *load) submitUntilKnown(ctx context.Context, caller int, key string) string {
	for ctx.Err() == nil {
		call := l.history.now()
		id, err := l.trySubmit(ctx, key)
		l.count(err)
		out, again := outcomeOf(err)
		out.job = id
		if !out.refused {
			l.history.note(caller, call, asked{verb: verbSubmit, key: key}, out)
		}
		if err == nil {
			l.mu.Lock()
			l.acked[key] = id
			l.mu.Unlock()
			return id
		}
		if !again {
			return ""
		}
		rest(ctx, idle)
	}
	return ""
}

func (l *load) trySubmit(ctx context.Context, key string) (string, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	resp, err := l.jobs.Submit(ctx, &fairleadv1.SubmitRequest{Job: &fairleadv1.JobSpec{
		Operation: operation, IdempotencyKey: key, Labels: map[string]string{keyLabel: key},
		Payload: &fairleadv1.Payload{Body: &fairleadv1.Payload_Json{Json: "1"}},
	}})
	return resp.GetJobId(), err
}

func (l *load) get(ctx context.Context, caller int, key, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	call := l.history.now()
	resp, err := l.jobs.GetJob(ctx, &fairleadv1.GetJobRequest{JobId: id})
	l.count(err)
	out, again := outcomeOf(err)
	if again || out.unknown {
		return // a look that saw nothing says nothing
	}
	out.job, out.state = id, stateOf(resp.GetJob().GetState())
	l.history.note(caller, call, asked{verb: verbGet, key: key}, out)
}

func stateOf(s fairleadv1.JobState) string {
	names := map[fairleadv1.JobState]string{
		fairleadv1.JobState_JOB_STATE_DELAYED: "live", fairleadv1.JobState_JOB_STATE_READY: "live", fairleadv1.JobState_JOB_STATE_LEASED: "live",
		fairleadv1.JobState_JOB_STATE_SUCCEEDED: "succeeded", fairleadv1.JobState_JOB_STATE_CANCELLED: "cancelled",
	}
	return cmp.Or(names[s], s.String()) // no other belongs into a history
}

func (l *load) cancel(ctx context.Context, caller int, key, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	call := l.history.now()
	resp, err := l.jobs.CancelJob(ctx, &fairleadv1.CancelJobRequest{JobId: id})
	out, _ := outcomeOf(err)
	if rejection.From(err).GetReason() == rejection.ReasonNotApplied {
		return
	}
	if err == nil && !resp.GetCancelled() {
		out.refused = true
	}
	out.job = id
	l.history.note(caller, call, asked{verb: verbCancel, key: key}, out)
}

// work is a worker: it leases, and reports success.
func (l *load) work(ctx context.Context, at fairleadv1connect.WorkerServiceClient, caller int) {
	for ctx.Err() == nil {
		if l.workOnce(ctx, at, caller) == 0 {
			rest(ctx, idle)
		}
	}
}

// workOnce returns how many jobs it ran.
func (l *load) workOnce(ctx context.Context, at fairleadv1connect.WorkerServiceClient, caller int) int {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	call := l.history.now()
	resp, err := at.Lease(ctx, &fairleadv1.LeaseRequest{
		Worker: fmt.Sprint(caller), Operations: []string{operation}, Slots: 8, MaxJobs: 8, Wait: durationpb.New(200 * time.Millisecond),
		LeaseDuration: durationpb.New(leaseDuration),
	})
	if err != nil {
		return 0
	}
	report := &fairleadv1.ReportRequest{Session: resp.GetSession()}
	for _, j := range resp.GetLeases() {
		l.noteRun(caller, call, asked{verb: verbGrant, key: j.GetLabels()[keyLabel], token: j.GetToken()}, told{job: j.GetJobId()})
		report.Outcomes = append(report.Outcomes, &fairleadv1.Outcome{
			JobId: j.GetJobId(), Token: j.GetToken(), Result: &fairleadv1.Outcome_Success{Success: &fairleadv1.Success{}},
		})
	}
	if len(report.Outcomes) == 0 {
		return 0
	}
	call = l.history.now()
	results, err := at.Report(ctx, report)
	for i, j := range resp.GetLeases() {
		out, _ := outcomeOf(err)
		if err == nil && results.GetResults()[i].GetRejection() != nil {
			out.refused = true
		}
		if rejection.From(err).GetReason() == rejection.ReasonNotApplied {
			continue // nobody was told anything: the lease expires
		}
		out.job = j.GetJobId()
		l.noteRun(caller, call, asked{verb: verbSucceed, key: j.GetLabels()[keyLabel], token: j.GetToken()}, out)
	}
	return len(report.Outcomes)
}

// noteRun records what happened to a job whose submission was recorded: a probe's was not.
func (l *load) noteRun(caller int, call int64, in asked, out told) {
	if !strings.HasPrefix(in.key, probePrefix) {
		l.history.note(caller, call, in, out)
	}
}

// probePrefix begins the keys of submissions that only find out whether there is somebody to take them.
const probePrefix = "probe-"

// rest waits a moment, which is part of the load.
func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// unharmed checks that the calls of a tenant whose cell nothing happened to did not fail.
func (l *load) unharmed(tb testing.TB) {
	tb.Helper()
	checkUnharmed(tb, "calls to a cell that nothing happened to", l.errs.Load(), l.calls.Load())
}

// checkUnharmed checks that at most one call in a thousand failed; one in all where there are fewer, for a machine that has two cores for all of this.
func checkUnharmed(tb testing.TB, what string, failed, calls int64) {
	tb.Helper()
	const perMille = 1000
	if calls == 0 || failed > max(1, calls/perMille) {
		tb.Errorf("%s: %d of %d failed", what, failed, calls)
	}
}

// finish stops the load, runs what is left, and checks that every job that was accepted has ended, once, and that the history is linearizable.
func (l *load) finish(tb testing.TB) {
	tb.Helper()
	l.end()
	ctx := tb.Context()
	l.mu.Lock()
	keys := slices.Sorted(maps.Keys(l.acked))
	l.mu.Unlock()
	left := make(map[string]bool)
	for _, k := range keys {
		left[k] = true
	}
	const finishTimeout = 90 * time.Second // a lease that nobody holds any more expires first
	harness.Eventually(tb, finishTimeout, fmt.Sprintf("all %d accepted jobs of %s have ended", len(keys), l.tenant), func() bool {
		for _, at := range l.pools {
			l.workOnce(ctx, at, 9999)
		}
		for k := range left {
			state, err := l.look(ctx, k)
			if err != nil || state == "live" {
				return false
			}
			delete(left, k)
		}
		return true
	})
	tb.Logf("%s: %d jobs accepted, none lost; %d of %d calls failed", l.tenant, len(keys), l.errs.Load(), l.calls.Load())
	l.history.check(tb)
}

// look records a get of a job.
func (l *load) look(ctx context.Context, key string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	id := l.acked[key]
	call := l.history.now()
	resp, err := l.jobs.GetJob(ctx, &fairleadv1.GetJobRequest{JobId: id})
	if connect.CodeOf(err) == connect.CodeNotFound {
		l.history.note(0, call, asked{verb: verbGet, key: key}, told{absent: true})
		return "absent", nil
	}
	if err != nil {
		return "", err
	}
	state := stateOf(resp.GetJob().GetState())
	l.history.note(0, call, asked{verb: verbGet, key: key}, told{job: id, state: state})
	return state, nil
}

// dialJobs returns a client of jobs for a configuration.
func dialJobs(tb testing.TB, cfg client.Config) fairleadv1connect.JobServiceClient {
	tb.Helper()
	conn, err := client.Dial(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(conn.Close)
	return fairleadv1connect.NewJobServiceClient(conn.HTTP, conn.URL, conn.Options...)
}
