package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/dataplane/client"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
	"github.com/fairlead/fairlead/proto/rejection"
)

// fakeServer is the API in memory, with as much behaviour as the command line can be told by. A job's operation says what becomes of it:
// ok.* succeeds at once with its payload as its result, fail.* fails at once, full.* meets a limit, lost.* has an unknown outcome, away.* is
// refused as not applied a few times, and any other waits for a worker.
type fakeServer struct {
	*httptest.Server

	mu      sync.Mutex
	jobs    []*fairleadv1.Job // in the order of submission
	groups  []*fairleadv1.Organization
	tenants []*fairleadv1.Tenant
	keys    []*fairleadv1.Key
	calls   map[string]int
	called  chan struct{} // closed and made anew at each call
	agents  map[string]bool
	away    int
	cluster *fakeCluster
	moves   *fakeMigrations
}

// fakeTime is when everything in a fake server happened.
var fakeTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newFakeServer() *fakeServer {
	f := &fakeServer{calls: make(map[string]int), called: make(chan struct{}), agents: make(map[string]bool)}
	mux := http.NewServeMux()
	opts := connect.WithInterceptors(connect.UnaryInterceptorFunc(f.authenticate))
	mux.Handle(fairleadv1connect.NewJobServiceHandler(f, opts))
	mux.Handle(fairleadv1connect.NewOrganizationServiceHandler(f, opts))
	mux.Handle(fairleadv1connect.NewTenantServiceHandler(f, opts))
	mux.Handle(fairleadv1connect.NewKeyServiceHandler(f, opts))
	mux.Handle(fairleadv1connect.NewStatusServiceHandler(f, opts))
	mux.Handle(fairleadv1connect.NewWorkerServiceHandler(f, opts))
	f.cluster = newFakeCluster(f)
	f.cluster.mount(mux, opts)
	f.moves = &fakeMigrations{f: f}
	f.moves.mount(mux, opts)
	f.Server = httptest.NewUnstartedServer(mux)
	f.Config.Protocols = &http.Protocols{}
	f.Config.Protocols.SetHTTP1(true)
	f.Config.Protocols.SetUnencryptedHTTP2(true)
	f.Start()
	return f
}

type fakeCaller struct{}

// authenticate knows the keys flk_admin, flk_worker and flk_TENANT.
func (f *fakeServer) authenticate(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		method := req.Spec().Procedure[strings.LastIndexByte(req.Spec().Procedure, '/')+1:]
		f.mu.Lock()
		f.calls[method]++
		f.agents[req.Header().Get("User-Agent")] = true
		f.wakeLocked()
		f.mu.Unlock()
		secret := strings.TrimPrefix(req.Header().Get("Authorization"), "Bearer ")
		name, ok := strings.CutPrefix(secret, "flk_")
		if !ok || name == "revoked" {
			return nil, rejection.New(connect.CodeUnauthenticated, &fairleadv1.Rejection{
				Reason: rejection.ReasonUnauthenticated, Message: "there is no key, or not a live one",
			})
		}
		admin := !strings.Contains(req.Spec().Procedure, "JobService") && !strings.Contains(req.Spec().Procedure, "WorkerService")
		if admin != (name == "admin") {
			return nil, rejection.New(connect.CodePermissionDenied, &fairleadv1.Rejection{
				Reason: rejection.ReasonScopeMissing, Message: "the key lacks the scope that " + method + " needs",
			})
		}
		return next(context.WithValue(ctx, fakeCaller{}, name), req)
	}
}

// wakeLocked makes whoever waits for a call or a job look again.
func (f *fakeServer) wakeLocked() {
	close(f.called)
	f.called = make(chan struct{})
}

// awaitCalls waits until method has been called n times.
func (f *fakeServer) awaitCalls(ctx context.Context, method string, n int) error {
	for {
		f.mu.Lock()
		called, have := f.called, f.calls[method]
		f.mu.Unlock()
		if have >= n {
			return nil
		}
		select {
		case <-called:
		case <-ctx.Done():
			return fmt.Errorf("%s was called %d times, not %d: %w", method, have, n, ctx.Err())
		}
	}
}

func (f *fakeServer) fakeID() string {
	return fmt.Sprintf("job_%08x-0000-7000-8000-000000000000", len(f.jobs)+1)
}

func (f *fakeServer) Submit(_ context.Context, req *fairleadv1.SubmitRequest) (*fairleadv1.SubmitResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.submitLocked(req.GetJob())
	if rej := r.GetRejection(); rej != nil {
		var code connect.Code
		if err := code.UnmarshalText([]byte(rej.GetCode())); err != nil {
			return nil, err
		}
		return nil, rejection.New(code, rej)
	}
	return &fairleadv1.SubmitResponse{JobId: r.GetJobId(), State: r.GetState(), Duplicate: r.GetDuplicate()}, nil
}

func (f *fakeServer) SubmitBatch(_ context.Context, req *fairleadv1.SubmitBatchRequest) (*fairleadv1.SubmitBatchResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(req.GetJobs()) > 500 {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("%d jobs", len(req.GetJobs())))
	}
	resp := &fairleadv1.SubmitBatchResponse{}
	for _, spec := range req.GetJobs() {
		resp.Results = append(resp.Results, f.submitLocked(spec))
	}
	return resp, nil
}

func (f *fakeServer) submitLocked(spec *fairleadv1.JobSpec) *fairleadv1.SubmitResult {
	if r := f.refusalLocked(spec); r != nil {
		return &fairleadv1.SubmitResult{Rejection: r}
	}
	for _, j := range f.jobs {
		if j.GetIdempotencyKey() == spec.GetIdempotencyKey() {
			if proto.Equal(j.GetPayload(), spec.GetPayload()) {
				return &fairleadv1.SubmitResult{JobId: j.GetId(), State: j.GetState(), Duplicate: true}
			}
			return &fairleadv1.SubmitResult{Rejection: &fairleadv1.Rejection{
				Code: "already_exists", Reason: rejection.ReasonAlreadyExists, Message: "the idempotency key stands for another job", ExistingJobId: j.GetId(),
			}}
		}
	}
	j := &fairleadv1.Job{
		Id: f.fakeID(), Operation: spec.GetOperation(), Class: spec.GetClass(), State: fairleadv1.JobState_JOB_STATE_READY, Payload: spec.GetPayload(),
		IdempotencyKey: spec.GetIdempotencyKey(), Priority: spec.GetPriority(), Cost: spec.GetCost(), Labels: spec.GetLabels(),
		CreateTime: timestamppb.New(fakeTime), Deadline: spec.GetDeadline(), Retry: spec.GetRetry(), Retention: spec.GetRetention(),
		ExecutionTimeout: spec.GetExecutionTimeout(), NotBefore: spec.GetNotBefore(), ConcurrencyKeys: spec.GetConcurrencyKeys(),
		Preemptible: spec.GetPreemptible(), Resources: spec.GetResources(),
	}
	if j.GetClass() == fairleadv1.Class_CLASS_UNSPECIFIED {
		j.Class = fairleadv1.Class_CLASS_INTERACTIVE
	}
	switch kind, _, _ := strings.Cut(j.GetOperation(), "."); kind {
	case "ok":
		j.State, j.Result, j.Attempt, j.FinishTime = fairleadv1.JobState_JOB_STATE_SUCCEEDED, j.GetPayload(), 1, timestamppb.New(fakeTime)
	case "fail":
		j.State, j.Error, j.Attempt, j.FailedAttempts = fairleadv1.JobState_JOB_STATE_FAILED, "boom\x1b[31m\nat line 2", 1, 1
	}
	f.jobs = append(f.jobs, j)
	return &fairleadv1.SubmitResult{JobId: j.GetId(), State: j.GetState()}
}

func (f *fakeServer) refusalLocked(spec *fairleadv1.JobSpec) *fairleadv1.Rejection {
	kind, _, _ := strings.Cut(spec.GetOperation(), ".")
	switch {
	case spec.GetDeadline() != nil && spec.GetDeadline().AsTime().Before(time.Now()):
		_, r, _ := rejection.Of(&cell.FieldError{Field: "job.deadline", Problem: "is past", Remedy: "give a time to come"})
		return r
	case kind == "full":
		_, r, _ := rejection.Of(&cell.LimitError{
			Limit: "backlog_jobs_max", Scope: cell.ScopeLane, Value: 1001, Bound: 1000, RetryAfter: 2 * time.Second, Remedy: "send less",
		})
		return r
	case kind == "lost":
		return &fairleadv1.Rejection{Code: "unavailable", Reason: rejection.ReasonOutcomeUnknown, Message: "the leader went away"}
	case kind == "away" && f.away < 3:
		f.away++
		return &fairleadv1.Rejection{Code: "unavailable", Reason: rejection.ReasonNotApplied, Message: "there is no leader"}
	default:
		return nil
	}
}

func (f *fakeServer) findLocked(id string) (*fairleadv1.Job, error) {
	for _, j := range f.jobs {
		if j.GetId() == id {
			return j, nil
		}
	}
	return nil, rejection.New(connect.CodeNotFound, &fairleadv1.Rejection{Reason: rejection.ReasonNotFound, Message: "there is no job " + id})
}

func (f *fakeServer) GetJob(_ context.Context, req *fairleadv1.GetJobRequest) (*fairleadv1.GetJobResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	j, err := f.findLocked(req.GetJobId())
	return &fairleadv1.GetJobResponse{Job: proto.CloneOf(j)}, err
}

func (f *fakeServer) ListJobs(_ context.Context, req *fairleadv1.ListJobsRequest) (*fairleadv1.ListJobsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []*fairleadv1.Job
	for _, j := range slices.Backward(f.jobs) {
		if (len(req.GetStates()) == 0 || slices.Contains(req.GetStates(), j.GetState())) && (req.GetOperation() == "" || req.GetOperation() == j.GetOperation()) &&
			(req.GetClass() == 0 || req.GetClass() == j.GetClass()) {
			short := proto.CloneOf(j)
			short.Payload, short.Result = nil, nil
			all = append(all, short)
		}
	}
	page, next, err := fakePage(all, req.GetPageSize(), req.GetPageToken())
	return &fairleadv1.ListJobsResponse{Jobs: page, NextPageToken: next}, err
}

func fakePage[T any](all []T, size int32, token string) ([]T, string, error) {
	from := 0
	if token != "" {
		n, err := strconv.Atoi(token)
		if err != nil {
			return nil, "", connect.NewError(connect.CodeInvalidArgument, err)
		}
		from = n
	}
	to := min(len(all), from+int(size))
	if to == len(all) {
		return all[from:], "", nil
	}
	return all[from:to], strconv.Itoa(to), nil
}

func (f *fakeServer) CancelJob(_ context.Context, req *fairleadv1.CancelJobRequest) (*fairleadv1.CancelJobResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	j, err := f.findLocked(req.GetJobId())
	if err != nil {
		return nil, err
	}
	open := !client.Ended(j.GetState())
	if open {
		j.State = fairleadv1.JobState_JOB_STATE_CANCELLED
	}
	return &fairleadv1.CancelJobResponse{Job: proto.CloneOf(j), Cancelled: open}, nil
}

func (f *fakeServer) RetryJob(_ context.Context, req *fairleadv1.RetryJobRequest) (*fairleadv1.RetryJobResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	j, err := f.findLocked(req.GetJobId())
	if err != nil {
		return nil, err
	}
	if !client.Ended(j.GetState()) || j.GetState() == fairleadv1.JobState_JOB_STATE_SUCCEEDED {
		return nil, rejection.New(connect.CodeFailedPrecondition, &fairleadv1.Rejection{Reason: "NOT_ENDED", Message: "only a job that ended without success can be retried"})
	}
	j.State = fairleadv1.JobState_JOB_STATE_READY
	return &fairleadv1.RetryJobResponse{Job: proto.CloneOf(j)}, nil
}

func (f *fakeServer) WaitJob(ctx context.Context, req *fairleadv1.WaitJobRequest) (*fairleadv1.WaitJobResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, req.GetTimeout().AsDuration())
	defer cancel()
	for {
		f.mu.Lock()
		j, err := f.findLocked(req.GetJobId())
		j = proto.CloneOf(j)
		called := f.called
		f.mu.Unlock()
		if err != nil {
			return nil, err
		}
		if client.Ended(j.GetState()) {
			return &fairleadv1.WaitJobResponse{Job: j, Done: true}, nil
		}
		select {
		case <-called:
		case <-ctx.Done():
			return &fairleadv1.WaitJobResponse{Job: j}, nil
		}
	}
}

func (f *fakeServer) ExplainJob(_ context.Context, req *fairleadv1.ExplainJobRequest) (*fairleadv1.ExplainJobResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	j, err := f.findLocked(req.GetJobId())
	if err != nil {
		return nil, err
	}
	x := &fairleadv1.ExplainJobResponse{
		JobId: j.GetId(), State: j.GetState(), Reason: fairleadv1.WaitReason_WAIT_REASON_NO_WORKER,
		Message: "no live worker offers " + j.GetOperation(), Position: 1, LaneReady: 3, ClassSlots: 8, ClassUsed: 2, TenantsWaiting: 1,
	}
	if keys := j.GetConcurrencyKeys(); len(keys) > 0 {
		x.Reason, x.Message = fairleadv1.WaitReason_WAIT_REASON_CONCURRENCY_KEY, "workers hold as many jobs with its key as may be"
		x.Limit, x.Value, x.Bound, x.Key = "concurrency_keys", float64(keys[0].GetMax()), float64(keys[0].GetMax()), keys[0].GetKey()
		x.Holders = []string{"job_00000009-0000-7000-8000-000000000000"}
	}
	return x, nil
}

func (f *fakeServer) CreateTenant(_ context.Context, req *fairleadv1.CreateTenantRequest) (*fairleadv1.CreateTenantResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range f.tenants {
		if t.GetId() == req.GetId() {
			return nil, rejection.New(connect.CodeAlreadyExists, &fairleadv1.Rejection{Reason: rejection.ReasonAlreadyExists, Message: "there is a tenant " + req.GetId()})
		}
	}
	t := &fairleadv1.Tenant{
		Id: req.GetId(), DisplayName: req.GetDisplayName(), Weight: 1, BacklogJobsMax: req.GetBacklogJobsMax(), BacklogBytesMax: req.GetBacklogBytesMax(),
		CreateTime: timestamppb.New(fakeTime), UpdateTime: timestamppb.New(fakeTime), Organization: req.GetOrganization(),
		ReservationInteractive: req.GetReservationInteractive(), ReservationBatch: req.GetReservationBatch(), Limit: req.GetLimit(),
		Credit: req.GetCredit(), RunningMax: req.GetRunningMax(), Starts: req.GetStarts(), Placement: req.GetPlacement(),
		Cell: req.GetPlacement().GetCell(),
	}
	if req.Weight != nil {
		t.Weight = req.GetWeight()
	}
	f.tenants = append(f.tenants, t)
	return &fairleadv1.CreateTenantResponse{Tenant: proto.CloneOf(t)}, nil
}

func (f *fakeServer) GetTenant(_ context.Context, req *fairleadv1.GetTenantRequest) (*fairleadv1.GetTenantResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range f.tenants {
		if t.GetId() == req.GetId() {
			return &fairleadv1.GetTenantResponse{Tenant: proto.CloneOf(t)}, nil
		}
	}
	return nil, rejection.New(connect.CodeNotFound, &fairleadv1.Rejection{Reason: rejection.ReasonNotFound, Message: "there is no tenant " + req.GetId()})
}

func (f *fakeServer) ListTenants(_ context.Context, req *fairleadv1.ListTenantsRequest) (*fairleadv1.ListTenantsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var some []*fairleadv1.Tenant
	for _, t := range f.tenants {
		if req.GetOrganization() == "" || req.GetOrganization() == t.GetOrganization() {
			some = append(some, t)
		}
	}
	page, next, err := fakePage(some, req.GetPageSize(), req.GetPageToken())
	return &fairleadv1.ListTenantsResponse{Tenants: page, NextPageToken: next}, err
}

// setFields copies every field of from that is set onto the field of to with the same name, and clears it for the zero message.
func setFields(to, from proto.Message) {
	into := to.ProtoReflect()
	from.ProtoReflect().Range(func(d protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		field := into.Descriptor().Fields().ByName(d.Name())
		if d.Message() != nil && proto.Size(v.Message().Interface()) == 0 {
			into.Clear(field)
		} else {
			into.Set(field, v)
		}
		return true
	})
}

func (f *fakeServer) UpdateTenant(_ context.Context, req *fairleadv1.UpdateTenantRequest) (*fairleadv1.UpdateTenantResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range f.tenants {
		if t.GetId() == req.GetId() {
			setFields(t, req)
			return &fairleadv1.UpdateTenantResponse{Tenant: proto.CloneOf(t)}, nil
		}
	}
	return nil, rejection.New(connect.CodeNotFound, &fairleadv1.Rejection{Reason: rejection.ReasonNotFound, Message: "there is no tenant " + req.GetId()})
}

func (f *fakeServer) CreateKey(_ context.Context, req *fairleadv1.CreateKeyRequest) (*fairleadv1.CreateKeyResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	k := &fairleadv1.Key{
		Id: fmt.Sprintf("key_%d", len(f.keys)+1), Tenant: req.GetTenant(), Scopes: req.GetScopes(), Description: req.GetDescription(),
		Operations: req.GetOperations(), CreateTime: timestamppb.New(fakeTime),
	}
	if req.GetLifetime() != nil {
		k.ExpireTime = timestamppb.New(fakeTime.Add(req.GetLifetime().AsDuration()))
	}
	f.keys = append(f.keys, k)
	return &fairleadv1.CreateKeyResponse{Key: k, Secret: "flk_" + req.GetTenant()}, nil
}

func (f *fakeServer) ListKeys(_ context.Context, req *fairleadv1.ListKeysRequest) (*fairleadv1.ListKeysResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var some []*fairleadv1.Key
	for _, k := range f.keys {
		if req.GetTenant() == "" || req.GetTenant() == k.GetTenant() {
			some = append(some, k)
		}
	}
	page, next, err := fakePage(some, req.GetPageSize(), req.GetPageToken())
	return &fairleadv1.ListKeysResponse{Keys: page, NextPageToken: next}, err
}

func (f *fakeServer) RevokeKey(_ context.Context, req *fairleadv1.RevokeKeyRequest) (*fairleadv1.RevokeKeyResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range f.keys {
		if k.GetId() == req.GetId() {
			k.RevokeTime = timestamppb.New(fakeTime)
			return &fairleadv1.RevokeKeyResponse{Key: k}, nil
		}
	}
	return nil, rejection.New(connect.CodeNotFound, &fairleadv1.Rejection{Reason: rejection.ReasonNotFound, Message: "there is no key " + req.GetId()})
}

func (f *fakeServer) GetStatus(_ context.Context, req *fairleadv1.GetStatusRequest) (*fairleadv1.GetStatusResponse, error) {
	st := &fairleadv1.GetStatusResponse{
		Cell: "dev", Version: "v0.0.0", Policy: "fairlead", StartTime: timestamppb.New(fakeTime), CountersSince: timestamppb.New(fakeTime),
		Jobs: &fairleadv1.JobCounts{Ready: 3, Delayed: 1, Leased: 2, Succeeded: 10, Failed: 1}, BacklogBytes: 1536, AcceptedTotal: 17, FinishedTotal: 11,
		Classes: []*fairleadv1.ClassStatus{
			{Class: fairleadv1.Class_CLASS_INTERACTIVE, Nominal: 6, Lendable: 5, Used: 2, Ready: 3, Limit: 8, Lent: 1, HeldBack: 2},
		},
		Workers: []*fairleadv1.WorkerStatus{{Worker: "box-1", Session: "s1", Operations: []string{"a", "b"}, Slots: 8, Held: 2, LastSeen: timestamppb.New(fakeTime)}},
		Log:     &fairleadv1.LogStatus{Index: 42},
	}
	for i := range min(req.GetLanesMax(), 2) {
		st.Lanes = append(st.Lanes, &fairleadv1.LaneStatus{
			Tenant: fmt.Sprintf("t%d", i), Class: fairleadv1.Class_CLASS_BATCH, Ready: 1, OldestWait: durationpb.New(1500 * time.Millisecond), ChargedCost: 2_000_000,
		})
	}
	return st, nil
}

// Lease grants ready jobs, and holds the call until there is one.
func (f *fakeServer) Lease(ctx context.Context, req *fairleadv1.LeaseRequest) (*fairleadv1.LeaseResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, req.GetWait().AsDuration())
	defer cancel()
	for {
		f.mu.Lock()
		leases := f.grantLocked(req.GetOperations(), req.GetMaxJobs())
		called := f.called
		f.mu.Unlock()
		if len(leases) > 0 || req.GetWait() == nil {
			return &fairleadv1.LeaseResponse{Leases: leases, Session: req.GetSession()}, nil
		}
		select {
		case <-called:
		case <-ctx.Done():
			return &fairleadv1.LeaseResponse{Session: req.GetSession()}, nil
		}
	}
}

func (f *fakeServer) grantLocked(operations []string, jobsMax int32) []*fairleadv1.JobLease {
	var leases []*fairleadv1.JobLease
	for _, j := range f.jobs {
		if j.GetState() != fairleadv1.JobState_JOB_STATE_READY || !slices.Contains(operations, j.GetOperation()) || len(leases) == max(1, int(jobsMax)) {
			continue
		}
		j.State = fairleadv1.JobState_JOB_STATE_LEASED
		j.Attempt++
		leases = append(leases, &fairleadv1.JobLease{
			JobId: j.GetId(), Token: "t", Tenant: "acme", Operation: j.GetOperation(), Class: j.GetClass(), Payload: j.GetPayload(), Attempt: j.GetAttempt(),
			LeaseDuration: durationpb.New(30 * time.Second), ExecutionTimeout: durationpb.New(time.Hour),
		})
	}
	return leases
}

// Report takes outcomes: a failure is final.
func (f *fakeServer) Report(_ context.Context, req *fairleadv1.ReportRequest) (*fairleadv1.ReportResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	resp := &fairleadv1.ReportResponse{}
	for _, o := range req.GetOutcomes() {
		j, err := f.findLocked(o.GetJobId())
		if err != nil {
			return nil, err
		}
		switch {
		case o.GetSuccess() != nil:
			j.State, j.Result = fairleadv1.JobState_JOB_STATE_SUCCEEDED, o.GetSuccess().GetResult()
		case o.GetFailure() != nil:
			j.State, j.Error = fairleadv1.JobState_JOB_STATE_FAILED, o.GetFailure().GetError()
		default:
			j.State = fairleadv1.JobState_JOB_STATE_READY
		}
		resp.Results = append(resp.Results, &fairleadv1.OutcomeResult{State: j.GetState()})
	}
	f.wakeLocked()
	return resp, nil
}
