package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
	"github.com/fairlead/fairlead/proto/rejection"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeServer is a JobService that keeps jobs by their keys, naively. It serves as the service of a client directly, in a synctest bubble, or
// over HTTP.
type fakeServer struct {
	fairleadv1connect.UnimplementedJobServiceHandler

	// before, if set, is called with each batch before it is applied, and after with it once it is; their errors are the call's.
	before, after func(ctx context.Context, batch int, specs []*fairleadv1.JobSpec) error
	// judge, if set, may reject a job.
	judge func(spec *fairleadv1.JobSpec) *fairleadv1.Rejection

	mu      sync.Mutex
	jobs    map[string]string // by key: the id
	order   []string          // ids
	batches []int             // their sizes
	most    int               // batches at once
	now     int
	polls   int
	doneAt  int // the poll that finds the job done
}

func newFakeServer() *fakeServer { return &fakeServer{jobs: make(map[string]string)} }

func (s *fakeServer) enter(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches = append(s.batches, n)
	s.now++
	s.most = max(s.most, s.now)
	return len(s.batches)
}

func (s *fakeServer) SubmitBatch(ctx context.Context, req *fairleadv1.SubmitBatchRequest) (*fairleadv1.SubmitBatchResponse, error) {
	n := s.enter(len(req.GetJobs()))
	defer func() {
		s.mu.Lock()
		s.now--
		s.mu.Unlock()
	}()
	if s.before != nil {
		if err := s.before(ctx, n, req.GetJobs()); err != nil {
			return nil, err
		}
	}
	answer := s.apply(req.GetJobs())
	if s.after != nil {
		if err := s.after(ctx, n, req.GetJobs()); err != nil {
			return nil, err
		}
	}
	return answer, nil
}

func (s *fakeServer) apply(specs []*fairleadv1.JobSpec) *fairleadv1.SubmitBatchResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := &fairleadv1.SubmitBatchResponse{}
	for _, spec := range specs {
		r := &fairleadv1.SubmitResult{State: fairleadv1.JobState_JOB_STATE_READY}
		if s.judge != nil {
			r.Rejection = s.judge(spec)
		}
		if r.Rejection == nil {
			id, duplicate := s.jobs[spec.GetIdempotencyKey()]
			if !duplicate {
				id = fmt.Sprintf("job-%d", len(s.order))
				s.jobs[spec.GetIdempotencyKey()] = id
				s.order = append(s.order, id)
			}
			r.JobId, r.Duplicate = id, duplicate
		}
		answer.Results = append(answer.Results, r)
	}
	return answer
}

func (s *fakeServer) GetJob(_ context.Context, req *fairleadv1.GetJobRequest) (*fairleadv1.GetJobResponse, error) {
	return nil, rejection.New(connect.CodeNotFound, &fairleadv1.Rejection{Reason: rejection.ReasonNotFound, Message: "no job " + req.GetJobId()})
}

func (s *fakeServer) ListJobs(_ context.Context, req *fairleadv1.ListJobsRequest) (*fairleadv1.ListJobsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := 0
	if t := req.GetPageToken(); t != "" {
		if _, err := fmt.Sscan(t, &from); err != nil {
			return nil, connect.NewError(connect.CodeInvalidArgument, err)
		}
	}
	to := min(len(s.order), from+int(req.GetPageSize()))
	answer := &fairleadv1.ListJobsResponse{}
	for _, id := range s.order[from:to] {
		answer.Jobs = append(answer.Jobs, &fairleadv1.Job{Id: id})
	}
	if to < len(s.order) {
		answer.NextPageToken = fmt.Sprint(to)
	}
	return answer, nil
}

func (s *fakeServer) WaitJob(ctx context.Context, req *fairleadv1.WaitJobRequest) (*fairleadv1.WaitJobResponse, error) {
	s.mu.Lock()
	s.polls++
	done := s.polls == s.doneAt
	s.mu.Unlock()
	if !done {
		t := time.NewTimer(req.GetTimeout().AsDuration())
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return &fairleadv1.WaitJobResponse{Job: &fairleadv1.Job{Id: req.GetJobId()}, Done: done}, nil
}

func (s *fakeServer) RetryJob(context.Context, *fairleadv1.RetryJobRequest) (*fairleadv1.RetryJobResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.polls++
	return nil, connect.NewError(connect.CodeUnavailable, errors.New("gone"))
}

func (s *fakeServer) CancelJob(_ context.Context, req *fairleadv1.CancelJobRequest) (*fairleadv1.CancelJobResponse, error) {
	return &fairleadv1.CancelJobResponse{Job: &fairleadv1.Job{Id: req.GetJobId()}, Cancelled: true}, nil
}

func (s *fakeServer) sizes() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]int(nil), s.batches...)
}

// direct returns a client whose calls are the server's methods.
func direct(t *testing.T, s *fakeServer, cfg Config) *Client {
	t.Helper()
	cfg.Addr = "http://127.0.0.1:1"
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c.service = s
	t.Cleanup(c.Close)
	return c
}

// serve starts h over HTTP/1.1 and h2c on loopback and returns its URL.
func serve(tb testing.TB, h fairleadv1connect.JobServiceHandler, wrap func(http.Handler) http.Handler) string {
	tb.Helper()
	mux := http.NewServeMux()
	mux.Handle(fairleadv1connect.NewJobServiceHandler(h, connect.WithCompressMinBytes(1<<20)))
	var handler http.Handler = mux
	if wrap != nil {
		handler = wrap(mux)
	}
	s := httptest.NewUnstartedServer(handler)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.Start()
	tb.Cleanup(s.Close)
	return s.URL
}
