package cellserver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/admit"
	"github.com/fairlead/fairlead/cell/engine"
	"github.com/fairlead/fairlead/cell/leader"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// errNoCaller is returned when a request reached a handler without an authenticated caller: the door in front of it is missing.
var errNoCaller = errors.New("the request carries no authenticated caller")

// Jobs serves JobService for the tenants of the callers.
type Jobs struct{ server *Server }

var _ fairleadv1connect.JobServiceHandler = Jobs{}

// Jobs returns the handler of JobService.
func (s *Server) Jobs() Jobs { return Jobs{server: s} }

// tenant returns whose request it is, as a typed error of the API.
func (s *Server) tenant(ctx context.Context) (cell.TenantID, error) {
	c, ok := s.cfg.Caller(ctx)
	if !ok || c.Tenant == "" {
		return "", errNoCaller
	}
	return c.Tenant, nil
}

// Submit accepts one job.
func (h Jobs) Submit(ctx context.Context, req *fairleadv1.SubmitRequest) (*fairleadv1.SubmitResponse, error) {
	s := h.server
	results, err := s.submit(ctx, []*fairleadv1.JobSpec{req.GetJob()}, func(int) string { return "job." })
	if err == nil {
		err = results[0].Err
	}
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	r := results[0]
	return &fairleadv1.SubmitResponse{JobId: r.JobID.String(), State: stateTo(r.State), Duplicate: r.Duplicate}, nil
}

// SubmitBatch accepts jobs one by one, and answers for each.
func (h Jobs) SubmitBatch(ctx context.Context, req *fairleadv1.SubmitBatchRequest) (*fairleadv1.SubmitBatchResponse, error) {
	s := h.server
	if err := admit.Batch("jobs", len(req.GetJobs())); err != nil {
		return nil, s.fail(ctx, err)
	}
	results, err := s.submit(ctx, req.GetJobs(), func(i int) string { return fmt.Sprintf("jobs[%d].", i) })
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	resp := &fairleadv1.SubmitBatchResponse{Results: make([]*fairleadv1.SubmitResult, len(results))}
	items := make([]fairleadv1.SubmitResult, len(results))
	var away notice
	for i := range results {
		r, item := &results[i], &items[i]
		if r.Err != nil {
			away.heed(r.Err)
			item.Rejection = s.item(r.Err)
		} else {
			item.JobId, item.State, item.Duplicate = r.JobID.String(), stateTo(r.State), r.Duplicate
		}
		resp.Results[i] = item
	}
	away.tell(ctx)
	return resp, nil
}

// submit returns one result for each job. prefix names an item in errors.
func (s *Server) submit(ctx context.Context, jobs []*fairleadv1.JobSpec, prefix func(int) string) ([]engine.Result, error) {
	tenant, err := s.tenant(ctx)
	if err != nil {
		return nil, err
	}
	known, err := epochsOf(ctx)
	if err != nil {
		return nil, err
	}
	now := s.now()
	results := make([]engine.Result, len(jobs))
	if room := s.roomForJobs(); room != nil {
		return results, s.noRoom(ctx, room, tenant, known, jobs, results)
	}
	call := &leader.Submit{Items: s.facts(len(jobs)), Epochs: known}
	at := make([]int, 0, len(jobs)) // the job of each item
	var buf []byte
	for i, job := range jobs {
		call.Items = append(call.Items, engine.SubmitFact{Tenant: tenant})
		f := &call.Items[len(call.Items)-1]
		if err := s.admit(now, job, f); err != nil {
			results[i].Err = under(prefix(i), err)
			call.Items = call.Items[:len(call.Items)-1]
			continue
		}
		if f.Spec.Key != "" {
			f.BodyHash, buf = bodyHash(job, buf)
		}
		f.ID = newJobID(now)
		at = append(at, i)
	}
	if len(call.Items) == 0 {
		return results, nil
	}
	reign := s.reigns.Load()
	if err := s.do(ctx, &leader.Call{Submit: call}); err != nil {
		return nil, err
	}
	unlogged := false
	for k, i := range at {
		results[i] = call.Results[k]
		if results[i].Err != nil {
			results[i].Err = s.placed(results[i].Err, tenant)
		}
		unlogged = unlogged || results[i].Err != nil || results[i].Duplicate
	}
	s.release(call.Items)
	if unlogged {
		s.limited.count(tenant, results)
		return results, s.confirmRefusal(ctx, reign)
	}
	return results, nil
}

// noRoom refuses every job: those of lanes that this cell does not serve because of that, for whoever serves them may have room, and the others because of
// room. It returns room when those are all.
func (s *Server) noRoom(
	ctx context.Context, room error, tenant cell.TenantID, known leader.Epochs, jobs []*fairleadv1.JobSpec, results []engine.Result,
) error {
	return s.read(ctx, func() error {
		s.mu.RLock()
		defer s.mu.RUnlock()
		away := false
		for i, job := range jobs {
			results[i].Err = room
			class, err := classOf("class", job.GetClass())
			l := s.state.Lane(cell.Lane{Tenant: tenant, Class: class})
			if err != nil || l == nil {
				continue
			}
			if e, ok := errors.AsType[*engine.LaneError](l.CheckLane(known[class.Index()])); ok {
				results[i].Err, away = e, true
			}
		}
		if !away {
			return room
		}
		return nil
	})
}

// newJobID returns a UUID of version 7 (RFC 9562): the time in milliseconds, then 74 random bits. They come from the runtime's ChaCha8, since an id
// is no secret: whose job it is says the key.
func newJobID(now cell.Instant) cell.JobID {
	var id cell.JobID
	ms := now.Time().UnixMilli()
	binary.BigEndian.PutUint64(id[:8], uint64(ms)<<16|rand.Uint64()>>48) //nolint:gosec // after 1970
	binary.BigEndian.PutUint64(id[8:], rand.Uint64())
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	return id
}

// factsKept is from how many facts on their memory is used again: that of a full batch is large enough that the time to get it anew, page by page,
// shows.
const factsKept = 64

// facts returns an empty list with room for n facts.
func (s *Server) facts(n int) []engine.SubmitFact {
	if n >= factsKept {
		if kept, ok := s.kept.Get().(*[]engine.SubmitFact); ok && cap(*kept) >= n {
			return *kept
		}
	}
	return make([]engine.SubmitFact, 0, n)
}

// release gives back the facts of a call that is done. The state has copies of its own, made from the log's bytes, and the leader does not look
// at a call that is done; a call that was given up on may still be in its hands.
func (s *Server) release(facts []engine.SubmitFact) {
	if cap(facts) < factsKept {
		return
	}
	clear(facts)
	facts = facts[:0]
	s.kept.Put(&facts)
}

// admit checks one job's size and shape. Its errors name fields as the job has them.
func (s *Server) admit(now cell.Instant, job *fairleadv1.JobSpec, f *engine.SubmitFact) error {
	if job == nil {
		return &cell.FieldError{Field: "operation", Problem: "is missing", Remedy: "give a job with an operation"}
	}
	var err error
	if f.Class, err = classOf("class", job.GetClass()); err != nil {
		return err
	}
	if err = specOf(now, job, &f.Spec); err != nil {
		return err
	}
	return s.cfg.Admit.Spec(now, "", &f.Spec)
}

// GetJob returns one job of the tenant.
func (h Jobs) GetJob(ctx context.Context, req *fairleadv1.GetJobRequest) (*fairleadv1.GetJobResponse, error) {
	job, err := h.read(ctx, req.GetJobId())
	if err != nil {
		return nil, h.server.fail(ctx, err)
	}
	return &fairleadv1.GetJobResponse{Job: job}, nil
}

func (h Jobs) read(ctx context.Context, text string) (*fairleadv1.Job, error) {
	n, err := h.named(ctx, text)
	if err != nil {
		return nil, err
	}
	s := h.server
	var job *fairleadv1.Job
	err = s.read(ctx, func() error {
		s.mu.RLock()
		defer s.mu.RUnlock()
		j, err := s.find(n)
		if err == nil {
			job = jobTo(j, true)
		}
		return err
	})
	return job, err
}

// peek is read without being sure that nobody else leads or has the lane by now: for what was committed just before.
func (h Jobs) peek(ctx context.Context, text string) (*fairleadv1.Job, error) {
	n, err := h.named(ctx, text)
	if err != nil {
		return nil, err
	}
	s := h.server
	s.mu.RLock()
	defer s.mu.RUnlock()
	j := s.state.JobOf(n.tenant, n.id)
	if j == nil {
		return nil, s.absent(n.tenant)
	}
	return jobTo(j, true), nil
}

// named is the job that a request is about, and whose it is.
type named struct {
	tenant cell.TenantID
	id     cell.JobID
	known  leader.Epochs // of the tenant's lanes, as the gateway knows them
}

func (h Jobs) named(ctx context.Context, text string) (named, error) {
	var n named
	var err error
	if n.tenant, err = h.server.tenant(ctx); err != nil {
		return n, err
	}
	if n.known, err = epochsOf(ctx); err != nil {
		return n, err
	}
	n.id, err = cell.ParseJobID("job_id", text)
	return n, err
}

// listScanMax bounds the jobs that one page looks at, so that a filter that matches little does not hold the cell's lock for long. The page is
// then shorter, with a token to go on.
const listScanMax = 20_000

// ListJobs returns a page of the tenant's jobs, newest first.
func (h Jobs) ListJobs(ctx context.Context, req *fairleadv1.ListJobsRequest) (*fairleadv1.ListJobsResponse, error) {
	var resp *fairleadv1.ListJobsResponse
	var away notice
	err := h.server.read(ctx, func() (err error) {
		resp, away, err = h.list(ctx, req)
		return err
	})
	if err != nil {
		return nil, h.server.fail(ctx, err)
	}
	away.tell(ctx)
	return resp, nil
}

func (h Jobs) list(ctx context.Context, req *fairleadv1.ListJobsRequest) (resp *fairleadv1.ListJobsResponse, away notice, err error) {
	s := h.server
	tenant, err := s.tenant(ctx)
	if err != nil {
		return nil, away, err
	}
	size, err := admit.Page("page_size", req.GetPageSize())
	if err != nil {
		return nil, away, err
	}
	known, err := epochsOf(ctx)
	if err != nil {
		return nil, away, err
	}
	end, err := parseListEnd(req.GetPageToken())
	if err != nil {
		return nil, away, err
	}
	class, matches, err := filter(req)
	if err != nil {
		return nil, away, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	away, err = s.reachable(tenant, class, known)
	if err != nil {
		return nil, away, err
	}
	return s.page(tenant, end, size, matches), away, nil
}

// page returns the next of the tenant's jobs that match, of those whose lanes are open here. The caller holds mu.
func (s *Server) page(tenant cell.TenantID, from listEnd, size int, matches func(*engine.Job) bool) *fairleadv1.ListJobsResponse {
	resp := &fairleadv1.ListJobsResponse{}
	scanned, end := 0, from
	s.state.List(tenant, from.before(), func(j *engine.Job) bool {
		if from.listed(j) {
			return true
		}
		if len(resp.Jobs) == size || scanned == listScanMax {
			end.split = j.Seq == end.seq
			resp.NextPageToken = end.token()
			return false
		}
		scanned++
		end = listEnd{seq: j.Seq, class: j.Lane.ID.Class}
		if j.Lane.Mode == cell.ModeOpen && matches(j) {
			resp.Jobs = append(resp.Jobs, jobTo(j, false))
		}
		return true
	})
	return resp
}

// filter returns the class that listed jobs are of, 0 for both, and what else each has to match.
func filter(req *fairleadv1.ListJobsRequest) (cell.Class, func(*engine.Job) bool, error) {
	for i, st := range req.GetStates() {
		if own := engine.JobState(st); !own.Valid() || stateTo(own) != st { // what does not fit is found by the way back
			return 0, nil, &cell.FieldError{Field: fmt.Sprintf("states[%d]", i), Problem: fmt.Sprintf("is %d, which is no state", st), Remedy: "use a job's states"}
		}
	}
	var class cell.Class
	if req.GetClass() != fairleadv1.Class_CLASS_UNSPECIFIED {
		var err error
		if class, err = classOf("class", req.GetClass()); err != nil {
			return 0, nil, err
		}
	}
	op := cell.Operation(req.GetOperation())
	if op != "" {
		if err := cell.CheckID("operation", string(op)); err != nil {
			return 0, nil, err
		}
	}
	return class, func(j *engine.Job) bool {
		return (len(req.GetStates()) == 0 || slices.Contains(req.GetStates(), stateTo(j.State))) &&
			(class == 0 || class == j.Lane.ID.Class) && (op == "" || op == j.Spec.Operation)
	}, nil
}

// CancelJob ends a job.
func (h Jobs) CancelJob(ctx context.Context, req *fairleadv1.CancelJobRequest) (*fairleadv1.CancelJobResponse, error) {
	n, err := h.named(ctx, req.GetJobId())
	if err != nil {
		return nil, h.server.fail(ctx, err)
	}
	x := &leader.Cancel{Tenant: n.tenant, JobID: n.id, Epochs: n.known}
	job, err := h.change(ctx, &leader.Call{Cancel: x}, &x.Result, req.GetJobId())
	if err != nil {
		return nil, h.server.fail(ctx, err)
	}
	return &fairleadv1.CancelJobResponse{Job: job, Cancelled: !x.Result.Duplicate}, nil
}

// RetryJob makes a job ready again that ended without success.
func (h Jobs) RetryJob(ctx context.Context, req *fairleadv1.RetryJobRequest) (*fairleadv1.RetryJobResponse, error) {
	n, err := h.named(ctx, req.GetJobId())
	if err != nil {
		return nil, h.server.fail(ctx, err)
	}
	if err := h.server.roomForJobs(); err != nil {
		if _, missing := h.read(ctx, req.GetJobId()); missing != nil {
			err = missing // whoever serves the job may have room
		}
		return nil, h.server.fail(ctx, err)
	}
	x := &leader.Retry{Tenant: n.tenant, JobID: n.id, Epochs: n.known}
	job, err := h.change(ctx, &leader.Call{Retry: x}, &x.Result, req.GetJobId())
	if err != nil {
		return nil, h.server.fail(ctx, err)
	}
	return &fairleadv1.RetryJobResponse{Job: job}, nil
}

// change puts a call to the leader and returns the job after it.
func (h Jobs) change(ctx context.Context, c *leader.Call, result *engine.Result, text string) (*fairleadv1.Job, error) {
	reign := h.server.reigns.Load()
	if err := h.server.do(ctx, c); err != nil {
		return nil, err
	}
	if result.Err != nil || result.Duplicate {
		if err := h.server.confirmRefusal(ctx, reign); err != nil {
			return nil, err
		}
	}
	if result.Err != nil {
		n, err := h.named(ctx, text)
		if err != nil {
			return nil, err
		}
		return nil, h.server.placed(result.Err, n.tenant)
	}
	return h.peek(ctx, text)
}

// WaitJob answers when the job has ended, or the wait is over.
func (h Jobs) WaitJob(ctx context.Context, req *fairleadv1.WaitJobRequest) (*fairleadv1.WaitJobResponse, error) {
	s := h.server
	n, err := h.named(ctx, req.GetJobId())
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	timeout, err := durationOf("timeout", req.GetTimeout())
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	if timeout, err = admit.Wait("timeout", timeout, admit.WaitMax); err != nil {
		return nil, s.fail(ctx, err)
	}
	if err := s.awaitEnd(ctx, n, timeout); err != nil {
		return nil, s.fail(ctx, err)
	}
	job, err := h.read(ctx, req.GetJobId())
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	return &fairleadv1.WaitJobResponse{Job: job, Done: engine.JobState(job.GetState()).Ended()}, nil // the engine's own
}

// awaitEnd returns when the job has ended, the timeout is over, the cell stops or the job is not, or no more, to be served here; it returns an error
// when ctx ends.
func (s *Server) awaitEnd(ctx context.Context, n named, timeout time.Duration) error {
	ended := make(chan struct{})
	s.mu.Lock()
	j, err := s.find(n)
	if err != nil || j.State.Ended() || s.lead == nil {
		s.mu.Unlock()
		return nil // which reading it finds out too
	}
	lane := j.Lane.ID
	s.waiters.add(lane, n.id, ended)
	s.mu.Unlock()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-ended:
		return nil
	case <-timer.C:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiters.remove(lane, n.id, ended)
	return ctx.Err()
}
