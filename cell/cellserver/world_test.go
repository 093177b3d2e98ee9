package cellserver

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/rejection"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	errDropped = errors.New("the entry was not applied")
	errUnclear = errors.New("nobody knows what became of the entry")
)

// fate is what becomes of an entry.
type fate struct {
	dropped bool  // it is not applied
	err     error // what its proposer is told
}

// fakeLog is a log that applies entries one by one, in a goroutine of its own. It can hold them, and have them fail.
type fakeLog struct {
	apply func(index uint64, data []byte) any
	in    chan *fakeProposal
	done  chan struct{}

	mu      sync.Mutex
	held    chan struct{} // closed when entries may go on; nil when nothing holds them
	fates   []fate        // of the next entries
	entries [][]byte      // proposed, whatever became of them
	index   uint64        // of the last one applied
	deposed error         // what Verify returns
}

type fakeProposal struct {
	data []byte
	done chan struct{}
	err  error
}

func (p *fakeProposal) Done() <-chan struct{} { return p.done }

func (p *fakeProposal) Wait(ctx context.Context) (any, uint64, error) {
	select {
	case <-p.done:
		return nil, 0, p.err
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
}

func newFakeLog(apply func(uint64, []byte) any) *fakeLog {
	f := &fakeLog{apply: apply, in: make(chan *fakeProposal, 1), done: make(chan struct{})}
	go f.run()
	return f
}

func (f *fakeLog) run() {
	defer close(f.done)
	for p := range f.in {
		f.mu.Lock()
		held := f.held
		f.mu.Unlock()
		if held != nil {
			<-held
		}
		f.mu.Lock()
		var is fate
		if len(f.fates) > 0 {
			is, f.fates = f.fates[0], f.fates[1:]
		}
		f.mu.Unlock()
		if !is.dropped {
			f.index++
			f.apply(f.index, p.data)
		}
		p.err = is.err
		close(p.done)
	}
}

func (f *fakeLog) Propose(data []byte) Proposal {
	p := &fakeProposal{data: data, done: make(chan struct{})}
	f.mu.Lock()
	f.entries = append(f.entries, data)
	f.mu.Unlock()
	f.in <- p
	return p
}

func (f *fakeLog) Position() (index, snapshot uint64, bytes int64) { return 7, 5, 300 }

// Verify says that it leads, unless deposed was called.
func (f *fakeLog) Verify(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.deposed
}

// depose makes the log another replica's.
func (f *fakeLog) depose(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deposed = err
}

// hold keeps entries from being applied until the function that it returns is called.
func (f *fakeLog) hold() (release func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	held := make(chan struct{})
	f.held = held
	return sync.OnceFunc(func() {
		f.mu.Lock()
		f.held = nil
		f.mu.Unlock()
		close(held)
	})
}

// next says what becomes of the next entries.
func (f *fakeLog) next(fates ...fate) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fates = append(f.fates, fates...)
}

// proposed returns the entries so far.
func (f *fakeLog) proposed() [][]byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([][]byte(nil), f.entries...)
}

func (f *fakeLog) close() {
	close(f.in)
	<-f.done
}

type callerKey struct{}

// callerFrom is who the tests say makes a request.
func callerFrom(ctx context.Context) (cell.Caller, bool) {
	c, ok := ctx.Value(callerKey{}).(cell.Caller)
	return c, ok
}

func as(ctx context.Context, c cell.Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// The callers of the tests: the applications of two tenants, the platform's worker, and a worker of a tenant's own.
func application(tenant cell.TenantID) cell.Caller {
	return cell.Caller{Key: "key_" + string(tenant), Tenant: tenant, Permissions: []cell.Permission{cell.PermissionSubmit, cell.PermissionRead}}
}

func platformWorker(ops ...cell.Operation) cell.Caller {
	return cell.Caller{Key: "key_work", Permissions: []cell.Permission{cell.PermissionWork}, Operations: ops}
}

func tenantWorker(tenant cell.TenantID) cell.Caller {
	return cell.Caller{Key: "key_own", Tenant: tenant, Permissions: []cell.Permission{cell.PermissionWork}}
}

// world is a cell that serves on a fake log, with the tenants acme and globex.
type world struct {
	*Server
	t   *testing.T
	log *fakeLog

	acme, globex, worker context.Context //nolint:containedctx // each is who makes a request, for as long as the test lasts
}

// open starts a cell. It is closed when the test ends.
func open(t *testing.T, change func(*Config)) *world {
	t.Helper()
	w := openEmpty(t, change)
	err := w.Configure(t.Context(), nil, []cell.TenantPolicy{
		{Tenant: "acme", Weight: cell.WeightDefault, Epoch: 1}, {Tenant: "globex", Weight: cell.WeightDefault, Epoch: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// openEmpty starts a cell that has no tenants. It is closed when the test ends.
func openEmpty(t *testing.T, change func(*Config)) *world {
	t.Helper()
	cfg := DefaultConfig("cell-1")
	cfg.Caller = callerFrom
	cfg.NotApplied = func(err error) bool { return errors.Is(err, errDropped) }
	cfg.Logger = slog.New(slog.DiscardHandler)
	for i := range cfg.Leader.Sched.Bulkheads {
		cfg.Leader.Sched.Bulkheads[i].LendAfter = 0 // most tests are not about lending
	}
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		Server: s, t: t, log: newFakeLog(s.Apply), acme: as(t.Context(), application("acme")), globex: as(t.Context(), application("globex")),
		worker: as(t.Context(), platformWorker()),
	}
	if err := s.Lead(w.log); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		w.log.close()
	})
	return w
}

// submit has a job accepted, and returns its id.
func (w *world) submit(ctx context.Context, job *fairleadv1.JobSpec) string {
	w.t.Helper()
	resp, err := w.Jobs().Submit(ctx, &fairleadv1.SubmitRequest{Job: job})
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.GetJobId()
}

func (w *world) job(ctx context.Context, id string) *fairleadv1.Job {
	w.t.Helper()
	resp, err := w.Jobs().GetJob(ctx, &fairleadv1.GetJobRequest{JobId: id})
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.GetJob()
}

func (w *world) wantState(ctx context.Context, id string, want engine.JobState) *fairleadv1.Job {
	w.t.Helper()
	j := w.job(ctx, id)
	if got := j.GetState(); got != stateTo(want) {
		w.t.Errorf("%s is %v, want %v", id, got, want)
	}
	return j
}

// lease returns what a poll is answered.
func (w *world) lease(ctx context.Context, req *fairleadv1.LeaseRequest) []*fairleadv1.JobLease {
	w.t.Helper()
	resp, err := w.Workers().Lease(ctx, req)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.GetLeases()
}

// leaseOne leases the one job that is there.
func (w *world) leaseOne(ctx context.Context, session string, ops ...string) *fairleadv1.JobLease {
	w.t.Helper()
	got := w.lease(ctx, &fairleadv1.LeaseRequest{Session: session, Operations: ops, Slots: 1})
	if len(got) != 1 {
		w.t.Fatalf("%d leases, want 1", len(got))
	}
	return got[0]
}

func (w *world) report(ctx context.Context, req *fairleadv1.ReportRequest) *fairleadv1.ReportResponse {
	w.t.Helper()
	resp, err := w.Workers().Report(ctx, req)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp
}

// succeeded, failed and released are outcomes of a lease.
func succeeded(l *fairleadv1.JobLease, json string) *fairleadv1.Outcome {
	return &fairleadv1.Outcome{
		JobId: l.GetJobId(), Token: l.GetToken(), Result: &fairleadv1.Outcome_Success{Success: &fairleadv1.Success{Result: document(json)}},
	}
}

func failed(l *fairleadv1.JobLease, f *fairleadv1.Failure) *fairleadv1.Outcome {
	return &fairleadv1.Outcome{JobId: l.GetJobId(), Token: l.GetToken(), Result: &fairleadv1.Outcome_Failure{Failure: f}}
}

func released(l *fairleadv1.JobLease, r *fairleadv1.Release) *fairleadv1.Outcome {
	return &fairleadv1.Outcome{JobId: l.GetJobId(), Token: l.GetToken(), Result: &fairleadv1.Outcome_Release{Release: r}}
}

func document(json string) *fairleadv1.Payload {
	return &fairleadv1.Payload{Body: &fairleadv1.Payload_Json{Json: json}}
}

// refused checks that err is a typed refusal with the code, the reason and the field, and returns it.
func refused(t *testing.T, what string, err error, code connect.Code, reason, field string) *fairleadv1.Rejection {
	t.Helper()
	r := rejection.From(err)
	if err == nil || connect.CodeOf(err) != code || r.GetReason() != reason || r.GetField() != field || r.GetMessage() == "" {
		t.Errorf("%s: %v with %v, want %v %s of the field %q", what, err, r, code, reason, field)
	}
	return r
}

// later runs call in a goroutine and returns where its error arrives.
func later(call func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- call() }()
	return done
}

// idle checks that nothing has arrived.
func idle(t *testing.T, what string, done <-chan error) {
	t.Helper()
	select {
	case err := <-done:
		t.Errorf("%s was answered: %v", what, err)
	default:
	}
}
