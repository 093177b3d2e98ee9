package rejection_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
	"github.com/fairlead/fairlead/proto/rejection"
)

// fakeJobs refuses every submission with err.
type fakeJobs struct {
	fairleadv1connect.UnimplementedJobServiceHandler
	err error
}

func (f fakeJobs) Submit(context.Context, *fairleadv1.SubmitRequest) (*fairleadv1.SubmitResponse, error) {
	return nil, f.err
}

func serve(t *testing.T, err error) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(handler(err))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func handler(err error) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(fairleadv1connect.NewJobServiceHandler(fakeJobs{err: err}))
	return mux
}

type refusal struct {
	err        error
	code       connect.Code
	status     int
	retryAfter string
	want       *fairleadv1.Rejection
}

func refusals() map[string]refusal {
	return map[string]refusal{
		"field": {
			err:  fmt.Errorf("submit: %w", &cell.FieldError{Field: "job.cost", Problem: "is -1", Remedy: "give 0 or more"}),
			code: connect.CodeInvalidArgument, status: http.StatusBadRequest,
			want: &fairleadv1.Rejection{
				Code: "invalid_argument", Reason: "BAD_FIELD", Field: "job.cost",
				Message: "job.cost is -1: give 0 or more",
			},
		},
		"field that is not utf-8": {
			err:  &cell.FieldError{Field: "job.labels.\xff", Problem: "is bad", Remedy: "use text"},
			code: connect.CodeInvalidArgument, status: http.StatusBadRequest,
			want: &fairleadv1.Rejection{
				Code: "invalid_argument", Reason: "BAD_FIELD", Field: "job.labels.\uFFFD",
				Message: "job.labels.\uFFFD is bad: use text",
			},
		},
		"lane's limit": {
			err: &cell.LimitError{
				Limit: "backlog_jobs_max", Scope: cell.ScopeLane, Value: 101, Bound: 100, RetryAfter: 1500 * time.Millisecond,
				Remedy: "wait for jobs to finish",
			},
			code: connect.CodeResourceExhausted, status: http.StatusTooManyRequests, retryAfter: "2",
			want: &fairleadv1.Rejection{
				Code: "resource_exhausted", Reason: "BACKLOG_JOBS_MAX", Limit: "backlog_jobs_max", Scope: "lane", Value: 101, Bound: 100,
				Message:    "backlog_jobs_max of the lane would be 101, of at most 100: wait for jobs to finish",
				RetryAfter: durationpb.New(1500 * time.Millisecond),
			},
		},
		"cell's limit": {
			err: &cell.LimitError{
				Limit: "backlog_bytes_max", Scope: cell.ScopeCell, Value: 9, Bound: 8, RetryAfter: time.Nanosecond, Remedy: "wait",
			},
			code: connect.CodeResourceExhausted, status: http.StatusTooManyRequests, retryAfter: "1",
			want: &fairleadv1.Rejection{
				Code: "resource_exhausted", Reason: "BACKLOG_BYTES_MAX", Limit: "backlog_bytes_max", Scope: "cell", Value: 9, Bound: 8,
				Message: "backlog_bytes_max of the cell would be 9, of at most 8: wait", RetryAfter: durationpb.New(time.Nanosecond),
			},
		},
		"limit that no waiting helps": {
			err:  &cell.LimitError{Limit: "keys_per_tenant_max", Scope: cell.ScopeTenant, Value: 0, Bound: 0, Remedy: "revoke one"},
			code: connect.CodeResourceExhausted, status: http.StatusTooManyRequests,
			want: &fairleadv1.Rejection{
				Code: "resource_exhausted", Reason: "KEYS_PER_TENANT_MAX", Limit: "keys_per_tenant_max", Scope: "tenant",
				Message: "keys_per_tenant_max of the tenant would be 0, of at most 0: revoke one",
			},
		},
	}
}

// Every protocol carries the same facts over a real connection.
func TestWire(t *testing.T) {
	protocols := map[string][]connect.ClientOption{
		"connect":  nil,
		"json":     {connect.WithProtoJSON()},
		"grpc":     {connect.WithGRPC()},
		"grpc-web": {connect.WithGRPCWeb()},
	}
	for name, c := range refusals() {
		t.Run(name, func(t *testing.T) {
			ce, ok := rejection.Error(c.err)
			if !ok {
				t.Fatalf("%v is not known", c.err)
			}
			s := serve(t, ce)
			for protocol, opts := range protocols {
				client := fairleadv1connect.NewJobServiceClient(s.Client(), s.URL, opts...)
				_, err := client.Submit(t.Context(), &fairleadv1.SubmitRequest{})
				if got := connect.CodeOf(err); got != c.code {
					t.Errorf("%s: code %v, want %v", protocol, got, c.code)
				}
				if got := rejection.From(err); !proto.Equal(got, c.want) {
					t.Errorf("%s: rejection\n got %v\nwant %v", protocol, got, c.want)
				}
				var got *connect.Error
				if !errors.As(err, &got) {
					t.Fatalf("%s: %T", protocol, err)
				}
				if h := got.Meta().Get(rejection.HeaderRetryAfter); h != c.retryAfter {
					t.Errorf("%s: Retry-After %q, want %q", protocol, h, c.retryAfter)
				}
				checkStandard(t, protocol, got, c.want)
			}
		})
	}
}

func checkStandard(t *testing.T, protocol string, ce *connect.Error, want *fairleadv1.Rejection) {
	t.Helper()
	var info *errdetails.ErrorInfo
	var retry *errdetails.RetryInfo
	for _, d := range ce.Details() {
		v, err := d.Value()
		if err != nil {
			t.Fatalf("%s: %v", protocol, err)
		}
		switch v := v.(type) {
		case *errdetails.ErrorInfo:
			info = v
		case *errdetails.RetryInfo:
			retry = v
		}
	}
	if info.GetReason() != want.GetReason() || info.GetDomain() != rejection.Domain {
		t.Errorf("%s: ErrorInfo %v", protocol, info)
	}
	if want.GetLimit() != "" && info.GetMetadata()["bound"] != fmt.Sprint(want.GetBound()) {
		t.Errorf("%s: ErrorInfo metadata %v", protocol, info.GetMetadata())
	}
	if !proto.Equal(retry.GetRetryDelay(), want.GetRetryAfter()) {
		t.Errorf("%s: RetryInfo %v, want %v", protocol, retry, want.GetRetryAfter())
	}
}

// What curl sees: the HTTP status, the header and a JSON body that a person can read.
func TestPlainJSON(t *testing.T) {
	for name, c := range refusals() {
		t.Run(name, func(t *testing.T) {
			ce, _ := rejection.Error(c.err)
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, fairleadv1connect.JobServiceSubmitProcedure,
				strings.NewReader(`{}`))
			r.Header.Set("Content-Type", "application/json")
			handler(ce).ServeHTTP(w, r)
			if w.Code != c.status {
				t.Errorf("status %d, want %d", w.Code, c.status)
			}
			if got := w.Header().Get("Retry-After"); got != c.retryAfter {
				t.Errorf("Retry-After %q, want %q", got, c.retryAfter)
			}
			body, err := io.ReadAll(w.Body)
			if err != nil {
				t.Fatal(err)
			}
			var got struct{ Code, Message string }
			if err := json.Unmarshal(body, &got); err != nil {
				t.Fatalf("%v in %s", err, body)
			}
			if got.Code != c.want.GetCode() || got.Message != c.want.GetMessage() {
				t.Errorf("body %s", body)
			}
		})
	}
}

// A proxy that knows only the standard details, or only HTTP, must not cost a client the facts.
func TestFromFallsBack(t *testing.T) {
	detail := func(m proto.Message) *connect.ErrorDetail {
		d, err := connect.NewErrorDetail(m)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	full := rejection.New(connect.CodeResourceExhausted, &fairleadv1.Rejection{
		Reason: "X_MAX", Message: "too many", Limit: "x_max", Scope: "lane", Value: 3, Bound: 2, Field: "f", ExistingJobId: "job_1",
		RetryAfter: durationpb.New(time.Second),
	})
	standard := connect.NewError(full.Code(), errors.New(full.Message()))
	for _, d := range full.Details() {
		if !strings.HasSuffix(d.Type(), "Rejection") {
			standard.AddDetail(d)
		}
	}
	if got, want := rejection.From(standard), rejection.From(full); !proto.Equal(got, want) {
		t.Errorf("from the standard details\n got %v\nwant %v", got, want)
	}

	retry := connect.NewError(connect.CodeUnavailable, errors.New("busy"))
	retry.AddDetail(detail(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Minute)}))
	if got := rejection.From(retry); got.GetRetryAfter().AsDuration() != time.Minute || got.GetCode() != "unavailable" {
		t.Errorf("from RetryInfo: %v", got)
	}

	header := connect.NewError(connect.CodeUnavailable, errors.New("busy"))
	header.Meta().Set("Retry-After", "7")
	if got := rejection.From(header); got.GetRetryAfter().AsDuration() != 7*time.Second {
		t.Errorf("from the header: %v", got)
	}

	for name, err := range map[string]error{
		"nil": nil, "other": io.EOF, "bare": connect.NewError(connect.CodeInternal, io.EOF),
	} {
		if got := rejection.From(err); got != nil {
			t.Errorf("%s: %v, want nil", name, got)
		}
	}
}

func TestNewKeepsTheArgument(t *testing.T) {
	r := &fairleadv1.Rejection{Code: "mine", Message: "m\xff"}
	if err := rejection.New(connect.CodeAborted, r); err.Code() != connect.CodeAborted {
		t.Errorf("made %v", err)
	}
	if r.GetCode() != "mine" || r.GetMessage() != "m\xff" {
		t.Errorf("the argument was changed: %v", r)
	}
	if err := rejection.New(connect.CodeAborted, nil); err.Code() != connect.CodeAborted {
		t.Errorf("nil gives %v", err)
	}
}

func TestOfLeavesOthers(t *testing.T) {
	for _, err := range []error{nil, io.EOF, connect.NewError(connect.CodeAborted, io.EOF)} {
		if _, _, ok := rejection.Of(err); ok {
			t.Errorf("%v is said to be typed", err)
		}
		if _, ok := rejection.Error(err); ok {
			t.Errorf("%v is said to be typed", err)
		}
	}
}
