package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/rejection"
)

// While a batch is in flight the next one fills; the first of all leaves at once.
func TestSubmitsShareBatches(t *testing.T) {
	for name, tt := range map[string]struct {
		inFlight int
		want     []int // sorted: batches that leave in the same instant reach the server in either order
	}{
		"one in flight": {1, []int{1, 199, 500}},
		"two in flight": {2, []int{1, 1, 198, 500}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFakeServer()
				s.before = func(context.Context, int, []*fairleadv1.JobSpec) error { time.Sleep(time.Second); return nil }
				c := direct(t, s, Config{BatchesInFlight: tt.inFlight})
				var wg sync.WaitGroup
				submit := func() {
					wg.Go(func() {
						if got, err := c.Submit(t.Context(), Job{Operation: "op"}); err != nil || got.ID == "" || got.IdempotencyKey == "" {
							t.Errorf("Submit = %+v, %v", got, err)
						}
					})
				}
				for range tt.inFlight {
					submit()
					synctest.Wait()
				}
				for range 700 - tt.inFlight {
					submit()
				}
				wg.Wait()
				if got := slices.Sorted(slices.Values(s.sizes())); !slices.Equal(got, tt.want) || s.most != tt.inFlight || len(s.order) != 700 {
					t.Errorf("batches %v, %d at once, %d jobs", got, s.most, len(s.order))
				}
			})
		})
	}
}

func TestBatchesAreBoundedInBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer()
		s.before = func(context.Context, int, []*fairleadv1.JobSpec) error { time.Sleep(time.Second); return nil }
		c := direct(t, s, Config{})
		var wg sync.WaitGroup
		for i, bytes := range []int{0, 400 << 10, 400 << 10, 400 << 10, 3 << 20, 10} {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				if _, err := c.Submit(t.Context(), Job{Operation: "op", Payload: Bytes("", make([]byte, bytes))}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if got := s.sizes(); !slices.Equal(got, []int{1, 2, 1, 1, 1}) {
			t.Errorf("batches %v", got)
		}
	})
}

// Each caller has its own answer and its own end.
func TestCancellingOneLeavesTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer()
		s.before = func(ctx context.Context, _ int, _ []*fairleadv1.JobSpec) error {
			select {
			case <-time.After(time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		c := direct(t, s, Config{})
		var wg sync.WaitGroup
		cause := errors.New("changed my mind")
		submit := func(giveUp time.Duration, wantUnknown bool) {
			wg.Go(func() {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if giveUp > 0 {
					time.AfterFunc(giveUp, func() { cancel(cause) })
				}
				_, err := c.Submit(ctx, Job{Operation: "op"})
				e := AsError(err)
				if giveUp == 0 && err != nil || giveUp > 0 && (!errors.Is(err, cause) || e.Code != connect.CodeCanceled || e.Unknown != wantUnknown) {
					t.Errorf("after %v: %v", giveUp, err)
				}
			})
			synctest.Wait()
		}
		submit(500*time.Millisecond, true)  // alone in the first batch: it is called off
		submit(100*time.Millisecond, false) // gone before its batch leaves
		submit(900*time.Millisecond, true)  // gone while its batch is in flight, with the next two
		submit(0, false)
		submit(0, false)
		wg.Wait()
		if got := s.sizes(); !slices.Equal(got, []int{1, 3}) || len(s.order) != 3 {
			t.Errorf("batches %v, jobs %v", got, s.order)
		}
	})
}

func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer()
		s.before = func(ctx context.Context, _ int, _ []*fairleadv1.JobSpec) error { <-ctx.Done(); return ctx.Err() }
		c := direct(t, s, Config{AttemptTimeout: time.Hour})
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				_, err := c.Submit(t.Context(), Job{Operation: "op"})
				if e := AsError(err); !errors.Is(err, ErrClosed) || e.Unknown != (i == 0) {
					t.Errorf("%d: %v, unknown %v", i, err, e.Unknown)
				}
			})
			synctest.Wait()
		}
		c.Close()
		wg.Wait()
		if _, err := c.Submit(t.Context(), Job{}); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// Whatever calls fail and whatever answers are lost, each caller that is told "accepted" has one job, and no caller has two.
func TestEachSubmissionIsOneJob(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		faults := rapid.SliceOfN(rapid.IntRange(0, 3), 50, 50).Draw(rt, "faults")
		callers := rapid.IntRange(1, 40).Draw(rt, "callers")
		each := rapid.IntRange(1, 5).Draw(rt, "each")
		var problem string
		synctest.Test(t, func(t *testing.T) {
			s := newFakeServer()
			lost := func(kind int) func(context.Context, int, []*fairleadv1.JobSpec) error {
				return func(_ context.Context, batch int, _ []*fairleadv1.JobSpec) error {
					time.Sleep(time.Millisecond)
					if faults[batch%len(faults)] == kind {
						return connect.NewError(connect.CodeUnavailable, errors.New("lost"))
					}
					return nil
				}
			}
			s.before, s.after = lost(1), lost(2)
			c := direct(t, s, Config{RetryBurst: 1000})
			var mu sync.Mutex
			ids := make(map[string]bool)
			failed := 0
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					for range each {
						got, err := c.Submit(t.Context(), Job{Operation: "op"})
						mu.Lock()
						switch {
						case err != nil && !errors.Is(err, ErrUnavailable):
							problem = err.Error()
						case err != nil:
							failed++
						case ids[got.ID]:
							problem = got.ID + " is the answer to two"
						default:
							ids[got.ID] = true
						}
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			if n := len(s.order); problem == "" && (n < len(ids) || n > len(ids)+failed) {
				problem = fmt.Sprintf("%d accepted, %d failed, %d jobs", len(ids), failed, n)
			}
		})
		if problem != "" {
			rt.Fatal(problem)
		}
	})
}

func reject(code connect.Code, reason string, retryAfter time.Duration) *fairleadv1.Rejection {
	r := &fairleadv1.Rejection{
		Code: code.String(), Reason: reason, Message: "no", Field: "job.x", Limit: "backlog_jobs_max", Scope: "lane", Value: 2, Bound: 1,
		ExistingJobId: "job-7",
	}
	if retryAfter > 0 {
		r.RetryAfter = durationpb.New(retryAfter)
	}
	return r
}

// What is definite is told at once; what is not is tried again, not before the server said.
func TestWhatIsRepeated(t *testing.T) {
	tests := map[string]struct {
		reject  *fairleadv1.Rejection // of the job
		fail    error                 // of the call
		times   int                   // then it works
		timeout time.Duration
		cfg     Config
		want    error
		calls   int
		atLeast time.Duration
		unknown bool
	}{
		"works":            {calls: 1},
		"invalid":          {reject: reject(connect.CodeInvalidArgument, "BAD_FIELD", 0), times: 1, want: ErrInvalid, calls: 1},
		"exists":           {reject: reject(connect.CodeAlreadyExists, "ALREADY_EXISTS", 0), times: 1, want: ErrAlreadyExists, calls: 1},
		"denied":           {fail: rejection.New(connect.CodePermissionDenied, &fairleadv1.Rejection{Reason: "SCOPE_MISSING"}), times: 1, want: ErrDenied, calls: 1},
		"unauthenticated":  {fail: connect.NewError(connect.CodeUnauthenticated, errors.New("no")), times: 1, want: ErrUnauthenticated, calls: 1},
		"limited":          {reject: reject(connect.CodeResourceExhausted, "BACKLOG", 3*time.Second), times: 2, calls: 3, atLeast: 6 * time.Second},
		"limited for ever": {reject: reject(connect.CodeResourceExhausted, "SIZE", 0), times: 1, want: ErrLimited, calls: 1},
		"limited too long": {
			reject: reject(connect.CodeResourceExhausted, "BACKLOG", time.Minute), times: 1, timeout: 10 * time.Second, want: ErrLimited, calls: 1,
		},
		"overloaded": {fail: rejection.New(connect.CodeUnavailable, reject(connect.CodeUnavailable, "SHED", 2*time.Second)), times: 2, calls: 3, atLeast: 4 * time.Second},
		"away":       {fail: connect.NewError(connect.CodeUnavailable, errors.New("refused")), times: 5, calls: 6},
		"away for good": {
			fail: connect.NewError(connect.CodeUnavailable, errors.New("refused")), times: 1000, want: ErrUnavailable, calls: AttemptsMaxDefault, unknown: true,
		},
		"away, once only": {
			fail: connect.NewError(connect.CodeUnavailable, errors.New("refused")), times: 1000, cfg: Config{AttemptsMax: 1}, want: ErrUnavailable,
			calls: 1, unknown: true,
		},
		"certainly not applied": {
			fail:  rejection.New(connect.CodeUnavailable, &fairleadv1.Rejection{Reason: rejection.ReasonNotApplied}),
			times: 1000, cfg: Config{AttemptsMax: 2}, want: ErrUnavailable, calls: 2,
		},
		"no answer": {fail: context.DeadlineExceeded, times: 2, calls: 3},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFakeServer()
				left := tt.times
				s.before = func(context.Context, int, []*fairleadv1.JobSpec) error {
					if tt.fail == nil || left == 0 {
						return nil
					}
					left--
					return tt.fail
				}
				s.judge = func(*fairleadv1.JobSpec) *fairleadv1.Rejection {
					if tt.reject == nil || left == 0 {
						return nil
					}
					left--
					return tt.reject
				}
				c := direct(t, s, tt.cfg)
				ctx := t.Context()
				if tt.timeout > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.timeout)
					defer cancel()
				}
				began := time.Now()
				_, err := c.Submit(ctx, Job{Operation: "op"})
				if !errors.Is(err, tt.want) {
					t.Errorf("Submit = %v, want %v", err, tt.want)
				}
				if got := len(s.sizes()); got != tt.calls {
					t.Errorf("%d calls, want %d", got, tt.calls)
				}
				if took := time.Since(began); took < tt.atLeast || tt.timeout > 0 && took > 0 {
					t.Errorf("took %v", took)
				}
				if e := AsError(err); err != nil && e.Unknown != tt.unknown {
					t.Errorf("unknown %v: %v", e.Unknown, err)
				}
				if e := AsError(err); tt.reject != nil && err != nil && (e.Field != "job.x" || e.Limit != "backlog_jobs_max" || e.Scope != "lane" ||
					e.Value != 2 || e.Bound != 1 || e.ExistingJobID != "job-7" || e.Reason != tt.reject.GetReason() || e.Message != "no") {
					t.Errorf("error %+v", e)
				}
			})
		})
	}
}

// A server that fails every call is not sent much more than the fresh ones.
func TestRetryBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer()
		s.before = func(context.Context, int, []*fairleadv1.JobSpec) error {
			return connect.NewError(connect.CodeUnavailable, errors.New("x"))
		}
		c := direct(t, s, Config{RetryFloor: 0.001, RetryBurst: 5, RetryDelayMin: time.Microsecond, RetryDelayMax: time.Microsecond})
		const fresh = 1000
		for range fresh {
			if _, err := c.Submit(t.Context(), Job{Operation: "op"}); !errors.Is(err, ErrUnavailable) {
				t.Fatal(err)
			}
		}
		if n := len(s.sizes()); n < fresh+fresh/20 || n > fresh+fresh/10+10 {
			t.Errorf("%d calls for %d submissions", n, fresh)
		}
	})
}

func TestBackoff(t *testing.T) {
	b := Backoff{Min: 10 * time.Millisecond, Max: 100 * time.Millisecond}
	for n, ms := range map[int]int{1: 10, 2: 20, 3: 40, 4: 80, 5: 100, 50: 100} {
		bound := time.Duration(ms) * time.Millisecond
		least, most := time.Hour, time.Duration(0)
		for range 1000 {
			d := b.Next(n, time.Second)
			least, most = min(least, d), max(most, d)
		}
		if least < time.Second || most >= time.Second+bound || most < time.Second+bound/2 || least > time.Second+bound/2 {
			t.Errorf("try %d: %v to %v, bound %v", n, least, most, bound)
		}
	}
}

func TestSubmitBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer()
		s.judge = func(spec *fairleadv1.JobSpec) *fairleadv1.Rejection {
			if spec.GetOperation() == "bad" {
				return reject(connect.CodeInvalidArgument, "BAD_FIELD", 0)
			}
			return nil
		}
		s.before = func(_ context.Context, n int, _ []*fairleadv1.JobSpec) error {
			if n == 2 {
				return connect.NewError(connect.CodePermissionDenied, errors.New("no"))
			}
			return nil
		}
		c := direct(t, s, Config{})
		jobs := make([]Job, 1200)
		for i := range jobs {
			jobs[i] = Job{Operation: "op", IdempotencyKey: fmt.Sprint("k", i)}
		}
		jobs[7].Operation, jobs[8].IdempotencyKey = "bad", "k0"
		results, err := c.SubmitBatch(t.Context(), jobs)
		if !errors.Is(err, ErrDenied) || len(results) != 1200 || !slices.Equal(s.sizes(), []int{500, 500, 200}) {
			t.Fatalf("%v, %d results, batches %v", err, len(results), s.sizes())
		}
		for i, r := range results {
			switch {
			case i == 7:
				if !errors.Is(r.Err, ErrInvalid) {
					t.Errorf("%d: %+v", i, r)
				}
			case i >= 500 && i < 1000:
				if !errors.Is(r.Err, ErrDenied) {
					t.Errorf("%d: %+v", i, r)
				}
			case r.Err != nil || r.ID == "" || r.Duplicate != (i == 8) || r.IdempotencyKey != jobs[i].IdempotencyKey:
				t.Errorf("%d: %+v", i, r)
			}
		}
		jobs[3].Payload = JSON(func() {})
		if _, err := c.SubmitBatch(t.Context(), jobs); !errors.Is(err, ErrInvalid) || !strings.HasPrefix(err.Error(), "jobs[3]: ") || len(s.sizes()) != 3 {
			t.Errorf("with a payload that is none: %v after %d calls", err, len(s.sizes()))
		}
		if results, err := c.SubmitBatch(t.Context(), nil); err != nil || len(results) != 0 || len(s.sizes()) != 3 {
			t.Errorf("nothing: %v, %v", results, err)
		}
	})
}

// Text that is not UTF-8 is refused here: it would spoil the batch of other callers.
func TestBadTextIsRefusedAlone(t *testing.T) {
	const bad = "\xff"
	for field, job := range map[string]Job{
		"job.operation":        {Operation: bad},
		"job.idempotency_key":  {IdempotencyKey: bad},
		"job.traceparent":      {Traceparent: bad},
		"job.labels":           {Labels: map[string]string{"a": bad}},
		"job.concurrency_keys": {ConcurrencyKeys: []cell.ConcurrencyKey{{Key: bad, Max: 1}}},
		"job.resources":        {Resources: map[string]float64{bad: 1}},
		"payload.content_type": {Payload: Bytes(bad, nil)},
		"payload":              {Payload: JSON(json.RawMessage("\"\xff\""))},
		"job.priority":         {Priority: time.Millisecond},
	} {
		t.Run(field, func(t *testing.T) {
			s := newFakeServer()
			_, err := direct(t, s, Config{}).Submit(t.Context(), job)
			if e := AsError(err); !errors.Is(err, ErrInvalid) || e.Field != field || e.Unknown || len(s.sizes()) != 0 {
				t.Errorf("Submit = %v", err)
			}
		})
	}
	c := direct(t, newFakeServer(), Config{})
	if _, err := c.Get(t.Context(), bad); !errors.Is(err, ErrInvalid) {
		t.Errorf("Get = %v", err)
	}
}

func TestFollowing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer()
		c := direct(t, s, Config{})
		jobs := make([]Job, 25)
		if _, err := c.SubmitBatch(t.Context(), jobs); err != nil {
			t.Fatal(err)
		}
		n := 0
		for job, err := range c.List(t.Context(), Filter{PageSize: 10}) {
			if err != nil || job.GetId() != fmt.Sprintf("job-%d", n) {
				t.Fatalf("%d: %v, %v", n, job, err)
			}
			n++
		}
		if n != 25 {
			t.Errorf("listed %d", n)
		}
		for _, err := range c.List(t.Context(), Filter{PageSize: 10}) {
			if err != nil {
				t.Error(err)
			}
			break
		}
		if _, err := c.Get(t.Context(), "job-x"); !errors.Is(err, ErrNotFound) || errors.Is(err, ErrInvalid) {
			t.Errorf("Get = %v", err)
		}
		if job, ok, err := c.Cancel(t.Context(), "job-1"); err != nil || !ok || job.GetId() != "job-1" {
			t.Errorf("Cancel = %v, %v, %v", job, ok, err)
		}
		// A retry whose answer is lost is not repeated.
		if _, err := c.Retry(t.Context(), "job-1"); !errors.Is(err, ErrUnavailable) || !AsError(err).Unknown || s.polls != 1 {
			t.Errorf("Retry = %v after %d calls", err, s.polls)
		}
	})
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer()
		s.doneAt = 4
		c := direct(t, s, Config{})
		began := time.Now()
		if job, err := c.Wait(t.Context(), "job-1"); err != nil || job.GetId() != "job-1" || time.Since(began) != 3*waitPoll {
			t.Errorf("Wait = %v, %v after %v", job, err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		if _, err := c.Wait(ctx, "job-1"); !errors.Is(err, context.DeadlineExceeded) || AsError(err).Code != connect.CodeDeadlineExceeded {
			t.Errorf("Wait = %v", err)
		}
	})
}

func TestPayloads(t *testing.T) {
	for name, tt := range map[string]struct {
		p           Payload
		body        string
		contentType string
		isJSON      bool
	}{
		"none":        {},
		"value":       {JSON(map[string]int{"a": 1}), `{"a":1}`, ContentTypeJSON, true},
		"exact text":  {JSON(json.RawMessage(`{ "n": 9007199254740993, "b":"<" }`)), `{ "n": 9007199254740993, "b":"<" }`, ContentTypeJSON, true},
		"bytes":       {Bytes("text/csv", []byte("a,b")), "a,b", "text/csv", false},
		"plain bytes": {Bytes("", []byte{0xff}), "\xff", ContentTypeBytes, false},
		"no bytes":    {Bytes("", nil), "", ContentTypeBytes, false},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := tt.p.Proto()
			if err != nil {
				t.Fatal(err)
			}
			got := PayloadOf(p)
			if string(got.Body()) != tt.body || got.ContentType() != tt.contentType || got.IsJSON() != tt.isJSON || got.IsZero() != tt.p.IsZero() {
				t.Errorf("came back as %+v", got)
			}
		})
	}
}

func TestDialChoosesTheProtocol(t *testing.T) {
	var proto, auth string
	url := serve(t, newFakeServer(), func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			proto, auth = r.Proto, r.Header.Get("Authorization")
			next.ServeHTTP(w, r)
		})
	})
	for name, tt := range map[string]struct {
		addr     string
		protocol Protocol
		want     string
	}{
		"url":            {url, ProtocolAuto, "HTTP/2.0"},
		"host and port":  {strings.TrimPrefix(url, "http://"), ProtocolAuto, "HTTP/2.0"},
		"trailing slash": {url + "/", ProtocolAuto, "HTTP/2.0"},
		"http1":          {url, ProtocolHTTP1, "HTTP/1.1"},
		"http2":          {url, ProtocolHTTP2, "HTTP/2.0"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := New(Config{Addr: tt.addr, Protocol: tt.protocol, Token: "key"})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := c.Submit(t.Context(), Job{Operation: "op"}); err != nil {
				t.Fatal(err)
			}
			if proto != tt.want || auth != "Bearer key" {
				t.Errorf("%s, Authorization %q", proto, auth)
			}
		})
	}
}

func TestDialRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		cfg  Config
		want string
	}{
		"empty":             {Config{}, "addr is empty"},
		"scheme":            {Config{Addr: "ftp://x"}, `addr has scheme "ftp"`},
		"user":              {Config{Addr: "https://u:p@x"}, "addr has a user"},
		"nonsense":          {Config{Addr: "https://"}, "is not an address"},
		"key over plain":    {Config{Addr: "http://example.com", Token: "k"}, "plain http to another machine"},
		"negative attempts": {Config{Addr: "x", AttemptsMax: -1}, "attempts_max is -1"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := New(tt.cfg); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("New = %v, want %q", err, tt.want)
			}
		})
	}
	for name, cfg := range map[string]Config{
		"allowed plain": {Addr: "http://example.com", Token: "k", AllowPlain: true},
		"no key":        {Addr: "http://example.com"},
		"tls":           {Addr: "example.com:443", Token: "k"},
		"loopback":      {Addr: "[::1]:7070", Token: "k"},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := Dial(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if want := map[string]string{"tls": "https://example.com:443", "loopback": "http://[::1]:7070"}[name]; want != "" && conn.URL != want {
				t.Errorf("URL %s", conn.URL)
			}
		})
	}
}

// The key goes nowhere but to the address that it was given for.
func TestRedirectsAreNotFollowed(t *testing.T) {
	hits := 0
	other := serve(t, newFakeServer(), func(http.Handler) http.Handler {
		return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits++ })
	})
	url := serve(t, newFakeServer(), func(http.Handler) http.Handler { return http.RedirectHandler(other, http.StatusTemporaryRedirect) })
	c, err := New(Config{Addr: url, Token: "key", AttemptsMax: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Get(t.Context(), "job-1"); err == nil || hits != 0 {
		t.Errorf("Get = %v, %d requests elsewhere", err, hits)
	}
}

func TestTokenIsMasked(t *testing.T) {
	cfg := Config{Token: "secret"}
	text, err := json.Marshal(cfg.Token)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{
		fmt.Sprint(cfg.Token), fmt.Sprintf("%v %+v %#v %q %x %s", cfg, cfg, cfg.Token, cfg.Token, cfg.Token, cfg.Token), string(text),
	} {
		if strings.Contains(s, "secret") || strings.Contains(s, fmt.Sprintf("%x", "secret")) {
			t.Errorf("printed: %s", s)
		}
	}
}

func TestSpec(t *testing.T) {
	now := time.Now()
	job := Job{
		Operation: "op", Class: cell.ClassBatch, Payload: JSON(1), IdempotencyKey: "k", Priority: -time.Minute, NotBefore: now, Deadline: now,
		ExecutionTimeout: time.Hour, Cost: 7, Retry: RetryPolicy{AttemptsMax: 3, DelayMin: time.Second}, Labels: map[string]string{"a": "b"},
		Retention: time.Hour, Traceparent: "tp", Delay: time.Second, ConcurrencyKeys: []cell.ConcurrencyKey{{Key: "account-17", Max: 2}},
		Resources: map[string]float64{"cpu_ms": 0.6}, Preemptible: true,
	}
	s, err := job.spec()
	if err != nil {
		t.Fatal(err)
	}
	if s.GetClass() != fairleadv1.Class_CLASS_BATCH || s.GetPriority() != -60 || !s.GetNotBefore().AsTime().Equal(now) || s.GetPayload().GetJson() != "1" ||
		s.GetRetry().GetAttemptsMax() != 3 || s.GetRetry().DelayMax != nil || s.GetDelay().AsDuration() != time.Second || s.GetCost() != 7 {
		t.Errorf("spec %v", s)
	}
	keys := s.GetConcurrencyKeys()
	if len(keys) != 1 || keys[0].GetKey() != "account-17" || keys[0].GetMax() != 2 || s.GetResources()["cpu_ms"] != 0.6 || !s.GetPreemptible() {
		t.Errorf("spec %v", s)
	}
	if size := specBytes(s); size < proto.Size(s) {
		t.Errorf("%d bytes, counted as %d", proto.Size(s), size)
	}
	empty, err := (&Job{}).spec()
	if err != nil || empty.Retry != nil || empty.Deadline != nil || empty.Payload != nil || cell.CheckID("key", empty.GetIdempotencyKey()) != nil {
		t.Errorf("spec %v, %v", empty, err)
	}
}
