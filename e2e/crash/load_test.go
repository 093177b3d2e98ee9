package crash

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/dataplane/client"
	"github.com/fairlead/fairlead/e2e/harness"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// The load keeps everybody busy and no queue long: what counts is what is under way when the server is killed. The submitters think for up to
// thinkMax, and submit nothing new while so many jobs have not ended.
const (
	thinkMax       = 50 * time.Millisecond
	outstandingMax = 200
)

// drainTimeout bounds how long jobs may take to end once nobody submits and nothing is killed any more.
const drainTimeout = time.Minute

// attemptTimeout bounds one try of the submitters: what is not answered by then is unknown.
const attemptTimeout = 5 * time.Second

// load is everything that works on a server while it is killed.
type load struct {
	t      *testing.T
	server *harness.Server
	books  *ledger
	seed   uint64

	clients map[string]*client.Client
	raw     map[string]fairleadv1connect.JobServiceClient

	unknown    atomic.Int64 // calls that ended without saying what became of them
	stop       chan struct{}
	submitters sync.WaitGroup

	stopWorker context.CancelFunc
	worked     chan error
	process    *harness.Process // a worker of its own
}

func tenants() []string { return []string{"acme", "globex", "initech", "umbrella"} }

// startLoad begins to submit to a server and to work for it.
func startLoad(t *testing.T, server *harness.Server, seed uint64) *load {
	t.Helper()
	l := &load{
		t: t, server: server, books: newLedger(t), seed: seed, clients: map[string]*client.Client{},
		raw: map[string]fairleadv1connect.JobServiceClient{}, stop: make(chan struct{}), worked: make(chan error, 1),
	}
	w, err := newWorker(server.ClientConfig("worker"), l.books.took)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	l.stopWorker = cancel
	go func() { l.worked <- w.Run(ctx) }()
	l.spawnWorker()
	for _, tenant := range tenants() {
		cfg := server.ClientConfig(tenant)
		cfg.AttemptTimeout, cfg.AttemptsMax = attemptTimeout, 3
		c, err := client.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		conn := server.Conn(tenant)
		l.clients[tenant], l.raw[tenant] = c, fairleadv1connect.NewJobServiceClient(conn.HTTP, conn.URL, conn.Options...)
	}
	// Only now: the submitters read the clients of all tenants.
	part := uint64(100)
	for _, tenant := range tenants() {
		for _, submit := range []submit{l.submitBySDK, l.submitByCall, l.submitByBatch} {
			part++
			s := &submitter{load: l, tenant: tenant, name: fmt.Sprint(part), rng: source(seed, part), submit: submit}
			l.submitters.Go(s.run)
		}
	}
	return l
}

// spawnWorker starts a worker in a process of its own.
func (l *load) spawnWorker() {
	cfg := l.server.ClientConfig("worker")
	l.process = harness.Spawn(l.t, workerRole, workerArgs{Addr: cfg.Addr, Token: string(cfg.Token)}, func(line []byte) {
		var a applied
		if err := json.Unmarshal(line, &a); err != nil {
			l.t.Errorf("a worker printed %q: %v", line, err)
			return
		}
		l.books.took(a)
	})
}

// killWorker kills the worker process, and starts another.
func (l *load) killWorker() {
	l.process.Kill()
	l.spawnWorker()
}

// finish lets the submitters end what they are at, waits until every job has ended, and ends the workers.
func (l *load) finish() {
	l.t.Helper()
	close(l.stop)
	l.submitters.Wait()
	l.drain()
	l.stopWorker()
	if err := <-l.worked; err != nil {
		l.t.Errorf("the worker ended with: %v", err)
	}
	l.process.Kill()
	for _, c := range l.clients {
		c.Close()
	}
}

// drain waits until every job has ended. The leases of workers that were killed have to run out before, and what failed has to be tried again.
func (l *load) drain() {
	l.t.Helper()
	deadline := time.Now().Add(drainTimeout)
	harness.Eventually(l.t, 2*drainTimeout, "every job has ended", func() bool {
		status, err := l.server.Status(l.t.Context())
		if err != nil {
			l.t.Fatal(err)
		}
		n := status.GetJobs()
		if n.GetDelayed()+n.GetReady()+n.GetLeased() == 0 {
			return true
		}
		if time.Now().After(deadline) {
			l.t.Logf("status: %v", status)
			l.explain()
			l.t.Fatalf("after %v there still are jobs that have not ended", drainTimeout)
		}
		return false
	})
}

// explain logs why some jobs have not ended.
func (l *load) explain() {
	ctx := l.t.Context()
	for _, tenant := range tenants() {
		explained := 0
		for job, err := range l.clients[tenant].List(ctx, client.Filter{States: []fairleadv1.JobState{
			fairleadv1.JobState_JOB_STATE_DELAYED, fairleadv1.JobState_JOB_STATE_READY, fairleadv1.JobState_JOB_STATE_LEASED,
		}}) {
			if explained++; err != nil || explained > 5 {
				break
			}
			why, err := l.clients[tenant].Explain(ctx, job.GetId())
			l.t.Logf("%v\n  because %v %v", job, why, err)
		}
	}
}

// submit is one way to submit entries. It returns an id for each, or an error for all.
type submit func(ctx context.Context, entries []*entry) ([]string, error)

func (l *load) submitBySDK(ctx context.Context, entries []*entry) ([]string, error) {
	ids := make([]string, len(entries))
	for i, e := range entries {
		got, err := l.clients[e.tenant].Submit(ctx, e.job())
		if err != nil {
			return nil, err
		}
		ids[i] = got.ID
	}
	return ids, nil
}

func (l *load) submitByCall(ctx context.Context, entries []*entry) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	ids := make([]string, len(entries))
	for i, e := range entries {
		j := e.job()
		body, err := j.Payload.Proto()
		if err != nil {
			return nil, err
		}
		answer, err := l.raw[e.tenant].Submit(ctx, &fairleadv1.SubmitRequest{Job: &fairleadv1.JobSpec{
			Operation: j.Operation, Payload: body, IdempotencyKey: j.IdempotencyKey, Retry: e.policy(),
		}})
		if err != nil {
			return nil, client.AsError(err)
		}
		ids[i] = answer.GetJobId()
	}
	return ids, nil
}

func (l *load) submitByBatch(ctx context.Context, entries []*entry) ([]string, error) {
	jobs := make([]client.Job, len(entries))
	for i, e := range entries {
		jobs[i] = e.job()
	}
	results, err := l.clients[entries[0].tenant].SubmitBatch(ctx, jobs)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(entries))
	for i, r := range results {
		if r.Err != nil {
			return nil, r.Err
		}
		ids[i] = r.ID
	}
	return ids, nil
}

// The first attempt of some jobs fails, and the next comes soon.
const retryDelay = 20 * time.Millisecond

func (e *entry) job() client.Job {
	return client.Job{
		Operation: operation, Payload: client.JSON(e.payload), IdempotencyKey: e.key,
		Retry: client.RetryPolicy{DelayMin: retryDelay, DelayMax: retryDelay},
	}
}

// policy is the retry policy of job in its wire form: all ways to submit have to mean the same job.
func (e *entry) policy() *fairleadv1.RetryPolicy {
	return &fairleadv1.RetryPolicy{DelayMin: durationOf(retryDelay), DelayMax: durationOf(retryDelay)}
}

// submitter is one caller of a tenant's.
type submitter struct {
	*load
	tenant, name string
	rng          *rand.Rand
	submit       submit
	made         int
}

func (s *submitter) run() {
	ctx := s.t.Context()
	for {
		select {
		case <-s.stop:
			return
		case <-ctx.Done():
			return
		default:
		}
		switch d := s.rng.IntN(100); {
		case d < 80 && s.books.outstanding() < outstandingMax:
			s.submitNew(ctx)
		case d < 95:
			if e := s.books.pick(s.tenant, s.rng.IntN); e != nil {
				s.acknowledge(ctx, []*entry{e}) // a repetition, long after
			}
		default:
			if e := s.books.pick(s.tenant, s.rng.IntN); e != nil {
				s.cancel(ctx, e)
			}
		}
		s.pause(ctx, time.Duration(s.rng.IntN(int(thinkMax))))
	}
}

func (s *submitter) submitNew(ctx context.Context) {
	entries := make([]*entry, 1+s.rng.IntN(4))
	for i := range entries {
		s.made++
		e := &entry{tenant: s.tenant, key: fmt.Sprintf("%s-%d", s.name, s.made), payload: payload{
			N: s.made, Text: s.name, TakesMS: s.rng.IntN(12), FailFirst: s.rng.IntN(16) == 0,
		}}
		s.books.submitting(e)
		entries[i] = e
	}
	s.acknowledge(ctx, entries)
}

// acknowledge submits until that is acknowledged. Nobody goes away before: what is in the ledger without an id is under way.
func (s *submitter) acknowledge(ctx context.Context, entries []*entry) {
	for {
		ids, err := s.submit(ctx, entries)
		if err == nil {
			for i, e := range entries {
				s.books.acknowledged(e, ids[i])
			}
			return
		}
		if !s.mayRepeat(ctx, "submit", err) {
			return
		}
	}
}

func (s *submitter) cancel(ctx context.Context, e *entry) {
	s.books.cancelling(e)
	job, _, err := s.clients[e.tenant].Cancel(ctx, e.id)
	if err != nil {
		s.mayRepeat(ctx, "cancel", err)
		return
	}
	if !client.Ended(job.GetState()) {
		s.t.Errorf("job %s was cancelled and is %v", e.id, job.GetState())
	}
	s.books.saw(e, job, false)
}

// mayRepeat takes in an error, waits a little, and reports whether the call should be repeated. A server that is killed and started again
// causes no definite refusal.
func (s *submitter) mayRepeat(ctx context.Context, call string, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	e := client.AsError(err)
	if !slices.Contains([]connect.Code{
		connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeCanceled, connect.CodeUnknown, connect.CodeInternal,
	}, e.Code) {
		s.t.Errorf("%s was refused: %v", call, err)
		return false
	}
	if e.Unknown {
		s.unknown.Add(1)
	}
	s.pause(ctx, time.Duration(5+s.rng.IntN(20))*time.Millisecond)
	return true
}

func (s *submitter) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
