package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/dataplane/route"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
	"github.com/fairlead/fairlead/proto/rejection"
)

// lanes is a world of cells that keep jobs, and between which lanes move.
type lanes struct {
	*world
	mu      sync.Mutex
	cells   map[cell.ID]*fakeCell
	index   uint64
	jobs    int
	updates sync.WaitGroup // that are on their way to the gateway
}

// fakeCell is a cell that does what the protocol says, one call at a time.
type fakeCell struct {
	fairleadv1connect.UnimplementedJobServiceHandler
	fairleadv1connect.UnimplementedWorkerServiceHandler
	w        *lanes
	id       cell.ID
	lanes    map[cell.Lane]*fakeLane
	ignorant bool // of HeaderLaneForwarded
	calls    int
	reports  []*fairleadv1.ReportRequest
}

type fakeLane struct {
	mode  cell.Mode
	epoch cell.Epoch
	jobs  []*fakeJob
}

type fakeJob struct {
	id, operation string
	lane          cell.Lane
	seq           int
	token         string
	done          bool
	taken         int // accepted completions
}

// newLanes has the cells a and b, and the tenant t-a at home in a.
func newLanes(t *testing.T, change func(*ForwardConfig)) *lanes {
	t.Helper()
	w := &lanes{world: newWorld(t, map[cell.ID]int{"a": 1, "b": 1}, change), cells: map[cell.ID]*fakeCell{}, index: 1}
	for _, id := range []cell.ID{"a", "b"} {
		c := &fakeCell{w: w, id: id, lanes: map[cell.Lane]*fakeLane{}}
		w.cells[id] = c
		mux := http.NewServeMux()
		mux.Handle(fairleadv1connect.NewJobServiceHandler(c, HandlerOptions()...))
		mux.Handle(fairleadv1connect.NewWorkerServiceHandler(c, HandlerOptions()...))
		w.agents[string(id)+"-1"].serve = mux.ServeHTTP
	}
	for _, class := range cell.Classes() {
		w.cells["a"].lanes[cell.Lane{Tenant: "t-a", Class: class}] = &fakeLane{epoch: 1}
		w.cells["b"].lanes[cell.Lane{Tenant: "t-b", Class: class}] = &fakeLane{epoch: 1}
	}
	return w
}

func lane(class cell.Class) cell.Lane { return cell.Lane{Tenant: "t-a", Class: class} }

// owner returns the cell where the lane is open or fenced.
func (w *lanes) owner(l cell.Lane) (*fakeCell, *fakeLane) {
	for _, c := range w.cells {
		if ln := c.lanes[l]; ln != nil && ln.mode <= cell.ModeFenced {
			return c, ln
		}
	}
	panic("nobody has " + l.String())
}

// fence makes the lane take nothing.
func (w *lanes) fence(l cell.Lane) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ln := w.owner(l)
	ln.mode, ln.epoch = cell.ModeFenced, ln.epoch+1
}

// unfenceLane opens it again where it was, and tells the gateway after a while.
func (w *lanes) unfenceLane(l cell.Lane, later time.Duration) {
	w.mu.Lock()
	c, ln := w.owner(l)
	epoch := ln.epoch + 1
	ln.mode, ln.epoch = cell.ModeOpen, epoch
	w.mu.Unlock()
	w.publishLane(l, c.id, epoch, later)
}

// commitLane gives a fenced lane to the cell, which opens it after a while; the gateway is told after another.
func (w *lanes) commitLane(l cell.Lane, to cell.ID, opens, told time.Duration) {
	w.mu.Lock()
	_, ln := w.owner(l)
	target := &fakeLane{mode: cell.ModeStaged, epoch: ln.epoch, jobs: slices.Clone(ln.jobs)}
	ln.mode = cell.ModeStandby
	epoch := ln.epoch + 1
	w.cells[to].lanes[l] = target
	w.mu.Unlock()
	w.publishLane(l, to, epoch, told)
	time.Sleep(opens)
	w.mu.Lock()
	defer w.mu.Unlock()
	target.mode, target.epoch = cell.ModeOpen, epoch
}

// publishLane tells the gateway of the lane's home after a while; of what it was told of later it knows already.
func (w *lanes) publishLane(l cell.Lane, home cell.ID, epoch cell.Epoch, later time.Duration) {
	w.updates.Go(func() {
		time.Sleep(later)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.index++
		w.world.mu.Lock()
		r, _ := w.table.Lane(l.Tenant)
		w.world.mu.Unlock()
		at, since := r.Home(cell.ClassBatch)
		next := route.Lane{Tenant: l.Tenant, Cell: r.Cell, Epoch: r.Epoch, BatchCell: at, BatchEpoch: since}
		if l.Class == cell.ClassInteractive {
			next.Cell, next.Epoch = home, epoch
		} else {
			next.BatchCell, next.BatchEpoch = home, epoch
		}
		w.update(route.Update{Index: w.index, Lanes: []route.Lane{next}})
	})
}

// what says how the lane stands here for whoever knows the epoch: "" where it is served.
func (c *fakeCell) what(l cell.Lane, known cell.Epoch) (string, cell.Epoch) {
	ln := c.lanes[l]
	switch {
	case ln == nil:
		return "moved", 0
	case ln.mode == cell.ModeFenced:
		return "moving", ln.epoch
	case ln.mode != cell.ModeOpen, known != 0 && known < ln.epoch && ln.epoch > 1:
		return "moved", ln.epoch
	case known > ln.epoch && ln.epoch > 1:
		return "behind", ln.epoch
	}
	return "", ln.epoch
}

// asked begins a call: it returns whose it is, and which epochs the gateway knows.
func (c *fakeCell) asked(ctx context.Context) (cell.TenantID, [2]cell.Epoch) {
	c.calls++
	info, _ := connect.CallInfoForHandlerContext(ctx)
	caller, err := decodeCaller(info.RequestHeader().Get(HeaderCaller))
	if err != nil {
		panic(err)
	}
	var known [2]cell.Epoch
	for i, text := range strings.Split(info.RequestHeader().Get(HeaderEpochs), ",") {
		if n, err := strconv.ParseUint(text, 10, 64); err == nil {
			known[i] = cell.Epoch(n)
		}
	}
	return caller.Tenant, known
}

func set(ctx context.Context, name, value string) {
	info, _ := connect.CallInfoForHandlerContext(ctx)
	info.ResponseHeader().Set(name, value)
}

// say sets the header, and returns the refusal.
func say(ctx context.Context, what, class string, epoch cell.Epoch) *connect.Error {
	set(ctx, HeaderLane, fmt.Sprintf("%s;%s;%d", what, class, epoch))
	code := connect.CodeUnavailable
	if what == "moved" {
		code = connect.CodeFailedPrecondition
	}
	return rejection.New(code, &fairleadv1.Rejection{Reason: strings.ToUpper(what), Message: what})
}

func (c *fakeCell) submit(ctx context.Context, tenant cell.TenantID, known [2]cell.Epoch, spec *fairleadv1.JobSpec) (*fakeJob, *connect.Error) {
	l := cell.Lane{Tenant: tenant, Class: cell.ClassInteractive}
	if spec.GetClass() == fairleadv1.Class_CLASS_BATCH {
		l.Class = cell.ClassBatch
	}
	if what, epoch := c.what(l, known[l.Class.Index()]); what != "" {
		return nil, say(ctx, what, l.Class.String(), epoch)
	}
	if spec.GetOperation() == "bad" {
		return nil, rejection.New(connect.CodeInvalidArgument, &fairleadv1.Rejection{Reason: rejection.ReasonBadField})
	}
	c.w.jobs++
	j := &fakeJob{id: fmt.Sprintf("job_%d", c.w.jobs), operation: spec.GetOperation(), lane: l, seq: c.w.jobs}
	c.lanes[l].jobs = append(c.lanes[l].jobs, j)
	return j, nil
}

func (c *fakeCell) Submit(ctx context.Context, req *fairleadv1.SubmitRequest) (*fairleadv1.SubmitResponse, error) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	tenant, known := c.asked(ctx)
	j, err := c.submit(ctx, tenant, known, req.GetJob())
	if err != nil {
		return nil, err
	}
	return &fairleadv1.SubmitResponse{JobId: j.id}, nil
}

func (c *fakeCell) SubmitBatch(ctx context.Context, req *fairleadv1.SubmitBatchRequest) (*fairleadv1.SubmitBatchResponse, error) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	tenant, known := c.asked(ctx)
	resp := &fairleadv1.SubmitBatchResponse{}
	for i, spec := range req.GetJobs() {
		r := &fairleadv1.SubmitResult{}
		resp.Results = append(resp.Results, r)
		j, err := c.submit(ctx, tenant, known, spec)
		if err != nil {
			r.Rejection = rejection.From(err)
			r.Rejection.Code = err.Code().String()
			if r.GetRejection().GetReason() == rejection.ReasonBadField {
				r.Rejection.Field = fmt.Sprintf("jobs[%d].operation", i)
				r.Rejection.Message = r.GetRejection().GetField() + " is bad"
			}
			continue
		}
		r.JobId = j.id
	}
	return resp, nil
}

// find returns a job that is served here, or the refusal.
func (c *fakeCell) find(ctx context.Context, id string) (*fakeJob, *connect.Error) {
	tenant, known := c.asked(ctx)
	var elsewhere cell.Epoch
	for _, class := range cell.Classes() {
		l := cell.Lane{Tenant: tenant, Class: class}
		ln := c.lanes[l]
		if ln == nil {
			continue
		}
		i := slices.IndexFunc(ln.jobs, func(j *fakeJob) bool { return j.id == id })
		if what, epoch := c.what(l, known[class.Index()]); i >= 0 && what != "" {
			return nil, say(ctx, what, class.String(), epoch)
		}
		if i >= 0 {
			return ln.jobs[i], nil
		}
		if ln.mode > cell.ModeFenced {
			elsewhere = max(elsewhere, ln.epoch)
		}
	}
	if elsewhere > 0 {
		set(ctx, HeaderLane, fmt.Sprintf("moved;any;%d", elsewhere))
	}
	return nil, rejection.New(connect.CodeNotFound, &fairleadv1.Rejection{Reason: rejection.ReasonNotFound, Message: "no such job"})
}

func (j *fakeJob) proto() *fairleadv1.Job {
	m := &fairleadv1.Job{Id: j.id, Operation: j.operation, Class: fairleadv1.Class(j.lane.Class), State: fairleadv1.JobState_JOB_STATE_READY}
	if j.done {
		m.State = fairleadv1.JobState_JOB_STATE_SUCCEEDED
	}
	return m
}

func (c *fakeCell) GetJob(ctx context.Context, req *fairleadv1.GetJobRequest) (*fairleadv1.GetJobResponse, error) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	j, err := c.find(ctx, req.GetJobId())
	if err != nil {
		return nil, err
	}
	return &fairleadv1.GetJobResponse{Job: j.proto()}, nil
}

func (c *fakeCell) WaitJob(ctx context.Context, req *fairleadv1.WaitJobRequest) (*fairleadv1.WaitJobResponse, error) {
	until := time.Now().Add(waitOf(req.GetTimeout(), time.Minute))
	for {
		c.w.mu.Lock()
		j, err := c.find(ctx, req.GetJobId())
		resp := &fairleadv1.WaitJobResponse{}
		if err == nil {
			resp.Job, resp.Done = j.proto(), j.done
		}
		c.w.mu.Unlock()
		if err != nil {
			return nil, err
		}
		if resp.GetDone() || !time.Now().Before(until) {
			return resp, nil
		}
		if !pause(ctx, 50*time.Millisecond) {
			return nil, ctx.Err()
		}
	}
}

func (c *fakeCell) ListJobs(ctx context.Context, req *fairleadv1.ListJobsRequest) (*fairleadv1.ListJobsResponse, error) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	tenant, known := c.asked(ctx)
	before := 1 << 30
	if req.GetPageToken() != "" {
		var err error
		if before, err = strconv.Atoi(req.GetPageToken()); err != nil {
			return nil, connect.NewError(connect.CodeInvalidArgument, err)
		}
	}
	var all []*fakeJob
	open := 0
	var refusal *connect.Error
	for _, class := range cell.Classes() {
		l := cell.Lane{Tenant: tenant, Class: class}
		what, epoch := c.what(l, known[class.Index()])
		wanted := req.GetClass() == 0 || cell.Class(req.GetClass()) == class
		switch {
		case what == "moving" && wanted:
			return nil, say(ctx, what, class.String(), epoch)
		case what != "":
			refusal = say(ctx, what, class.String(), epoch)
		case wanted:
			open++
			all = append(all, c.lanes[l].jobs...)
		}
	}
	if open == 0 {
		return nil, refusal
	}
	slices.SortFunc(all, func(x, y *fakeJob) int { return y.seq - x.seq })
	resp := &fairleadv1.ListJobsResponse{}
	for _, j := range all {
		if j.seq >= before {
			continue
		}
		if len(resp.Jobs) == int(req.GetPageSize()) {
			resp.NextPageToken = strconv.Itoa(int(resp.Jobs[len(resp.Jobs)-1].GetPriority()))
			break
		}
		m := j.proto()
		m.Priority = int32(j.seq) // where a test finds it
		resp.Jobs = append(resp.Jobs, m)
	}
	return resp, nil
}

func (c *fakeCell) Lease(ctx context.Context, req *fairleadv1.LeaseRequest) (*fairleadv1.LeaseResponse, error) {
	until := time.Now().Add(req.GetWait().AsDuration())
	for {
		resp := &fairleadv1.LeaseResponse{Session: req.GetSession()}
		c.w.mu.Lock()
		tenant, _ := c.asked(ctx)
		for l, ln := range c.lanes {
			if tenant != "" && tenant != l.Tenant || ln.mode != cell.ModeOpen {
				continue
			}
			for _, j := range ln.jobs {
				if j.token == "" && len(resp.Leases) < int(req.GetMaxJobs()) {
					j.token = fmt.Sprintf("%s.%d", c.id, ln.epoch)
					resp.Leases = append(resp.Leases, &fairleadv1.JobLease{JobId: j.id, Token: j.token, Tenant: string(l.Tenant)})
				}
			}
		}
		c.w.mu.Unlock()
		if len(resp.Leases) > 0 || !time.Now().Before(until) {
			return resp, nil
		}
		if !pause(ctx, 50*time.Millisecond) {
			return nil, ctx.Err()
		}
	}
}

// leased returns a job of the tenant's, or of anybody's for a worker of the platform, and why it is not served here.
func (c *fakeCell) leased(tenant cell.TenantID, id string) (j *fakeJob, what string, epoch cell.Epoch) {
	for l, ln := range c.lanes {
		if tenant != "" && tenant != l.Tenant {
			continue
		}
		if i := slices.IndexFunc(ln.jobs, func(j *fakeJob) bool { return j.id == id }); i >= 0 {
			what, epoch = c.what(l, 0)
			return ln.jobs[i], what, epoch
		}
	}
	return nil, "", 0
}

func (c *fakeCell) Report(ctx context.Context, req *fairleadv1.ReportRequest) (*fairleadv1.ReportResponse, error) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	tenant, _ := c.asked(ctx)
	c.reports = append(c.reports, req)
	info, _ := connect.CallInfoForHandlerContext(ctx)
	forwarded := info.RequestHeader().Get(HeaderLaneForwarded) == "1" && !c.ignorant
	if forwarded {
		set(ctx, HeaderLaneForwarded, "1")
	}
	resp := &fairleadv1.ReportResponse{}
	notices := func(j *fakeJob, what string, epoch cell.Epoch) *fairleadv1.Rejection {
		r := rejection.From(say(ctx, what, "any", epoch))
		if tenant == "" {
			set(ctx, HeaderLaneTenants, string(j.lane.Tenant))
		}
		return r
	}
	for _, o := range req.GetOutcomes() {
		r := &fairleadv1.OutcomeResult{}
		resp.Results = append(resp.Results, r)
		switch j, what, epoch := c.leased(tenant, o.GetJobId()); {
		case j == nil:
			r.Rejection = &fairleadv1.Rejection{Code: "not_found", Reason: rejection.ReasonNotFound}
		case what != "":
			r.Rejection = notices(j, what, epoch)
		case j.token != o.GetToken():
			r.Rejection = &fairleadv1.Rejection{Code: "aborted", Reason: "LEASE_STALE"}
		default:
			if !j.done {
				j.taken++
			}
			j.done, r.State = true, fairleadv1.JobState_JOB_STATE_SUCCEEDED
		}
	}
	for _, x := range req.GetExtensions() {
		switch j, what, epoch := c.leased(tenant, x.GetJobId()); {
		case j == nil && forwarded:
		case j != nil && what != "":
			notices(j, what, epoch)
		case j == nil || j.token != x.GetToken() || j.done:
			resp.Cancels = append(resp.Cancels, &fairleadv1.LeaseRef{JobId: x.GetJobId(), Token: x.GetToken()})
		}
	}
	return resp, nil
}

// through is a way through the door with a key.
type through struct {
	w   *world
	key Secret
	to  cell.ID
}

// Do implements [connect.HTTPClient].
func (d through) Do(r *http.Request) (*http.Response, error) {
	r.Header.Set("Authorization", "Bearer "+string(d.key))
	if d.to != "" {
		r.Header.Set(HeaderCell, string(d.to))
	}
	rec := httptest.NewRecorder()
	d.w.door.ServeHTTP(rec, r)
	resp := rec.Result()
	for name := range resp.Header {
		if strings.HasPrefix(name, headerPrefix) {
			return nil, errors.New(name + " has reached the caller")
		}
	}
	resp.ProtoMajor = 2
	return resp, nil
}

// protocols are how a caller may ask.
func protocols() map[string][]connect.ClientOption {
	return map[string][]connect.ClientOption{
		"connect": nil, "json": {connect.WithProtoJSON()}, "grpc": {connect.WithGRPC()}, "grpc-web": {connect.WithGRPCWeb()},
		"get":  {connect.WithHTTPGet()},
		"gzip": {connect.WithSendGzip()}, "grpc-json": {connect.WithGRPC(), connect.WithProtoJSON()},
	}
}

func (w *lanes) jobService(options ...connect.ClientOption) fairleadv1connect.JobServiceClient {
	return fairleadv1connect.NewJobServiceClient(through{w: w.world, key: "t-a"}, "https://gateway", options...)
}

func (w *lanes) workerService(key Secret, to cell.ID, options ...connect.ClientOption) fairleadv1connect.WorkerServiceClient {
	return fairleadv1connect.NewWorkerServiceClient(through{w: w.world, key: key, to: to}, "https://gateway", options...)
}

// end waits until the gateway has heard of all, and ends the world.
func (w *lanes) end() {
	w.updates.Wait()
	w.world.end()
}
