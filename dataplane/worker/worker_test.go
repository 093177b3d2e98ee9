package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/dataplane/client"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// running is a worker that runs against a fake cell.
type running struct {
	t      *testing.T
	worker *Worker
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

func start(t *testing.T, service Service, cfg Config, h HandlerFunc) *running {
	t.Helper()
	reg := NewRegistry()
	if err := reg.Add("op", h); err != nil {
		t.Fatal(err)
	}
	cfg.Service = service
	cfg.Logger = slog.New(slog.DiscardHandler)
	w, err := New(cfg, reg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{t: t, worker: w, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = w.Run(ctx)
	}()
	return r
}

// stop drains and returns what Run returned.
func (r *running) stop() error {
	r.cancel()
	<-r.done
	return r.err
}

func noop(context.Context, *Task) (client.Payload, error) { return client.Payload{}, nil }

func mustStop(t *testing.T, r *running) {
	t.Helper()
	if err := r.stop(); err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
}

func TestRunsEveryJob(t *testing.T) {
	for name, cfg := range map[string]Config{
		"one slot":               {Slots: 1, Prefetch: -1},
		"one slot and prefetch":  {Slots: 1, Prefetch: 2},
		"many slots":             {Slots: 64, Prefetch: 64},
		"more slots than jobs":   {Slots: 1000, Prefetch: -1},
		"more room than a batch": {Slots: 600, Prefetch: 600},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newFakeCell()
				r := start(t, c, cfg, noop)
				c.add(700, nil)
				synctest.Wait()
				c.add(100, nil)
				synctest.Wait()
				mustStop(t, r)
				got := c.tally()
				if got.done != 800 || len(got.violations) > 0 || got.freed > 0 {
					t.Errorf("tally %+v", got)
				}
				st := r.worker.Stats()
				if st.Succeeded != 800 || st.Leased != 800 || st.Refused+st.Lost+st.Cancelled+st.Unreported != 0 {
					t.Errorf("stats %+v", st)
				}
				if most := r.worker.cfg.Slots + r.worker.cfg.Prefetch; c.session.heldMax > most {
					t.Errorf("held %d, of at most %d", c.session.heldMax, most)
				}
			})
		})
	}
}

// While there is work, the next jobs come with the answers of Reports; polls are for when there is none.
func TestBusyWorkerFetchesWithReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCell()
		c.add(1000, nil)
		r := start(t, c, Config{Slots: 8, Prefetch: 8}, func(context.Context, *Task) (client.Payload, error) {
			time.Sleep(5 * time.Millisecond)
			return client.Payload{}, nil
		})
		for c.tally().done < 1000 {
			time.Sleep(time.Millisecond)
		}
		st := r.worker.Stats()
		if st.LeaseCalls > 3 {
			t.Errorf("%d leases for 1000 jobs that were all waiting", st.LeaseCalls)
		}
		if u := st.Utilisation(); u < 0.99 {
			t.Errorf("slots were busy %.3f of the time", u)
		}
		mustStop(t, r)
	})
}

// Whatever answers are lost, a lease that was granted is answered for once, and no job runs twice: nothing expires here, so there is no
// reason to.
func TestEveryLeaseIsAnsweredForOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		slots := rapid.IntRange(1, 5).Draw(rt, "slots")
		prefetch := rapid.IntRange(-1, 5).Draw(rt, "prefetch")
		jobs := rapid.IntRange(1, 120).Draw(rt, "jobs")
		lossPercent := rapid.IntRange(0, 60).Draw(rt, "loss")
		drainAfter := time.Duration(rapid.IntRange(0, 4000).Draw(rt, "drain_ms")) * time.Millisecond
		var problem string
		synctest.Test(t, func(t *testing.T) {
			problem = lossyRun(t, seed, Config{Slots: slots, Prefetch: prefetch}, jobs, lossPercent, drainAfter)
		})
		if problem != "" {
			rt.Fatal(problem)
		}
	})
}

func lossyRun(t *testing.T, seed uint64, cfg Config, jobs, lossPercent int, drainAfter time.Duration) string {
	rng := rand.New(rand.NewPCG(seed, 1))
	var mu sync.Mutex
	draw := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return rng.IntN(n)
	}
	c := newFakeCell()
	c.fault = func(call string, _ int) fault {
		if call == "extend" || draw(100) >= lossPercent {
			return faultNone
		}
		return []fault{faultRequest, faultReply}[draw(2)]
	}
	slow := slowCell{fakeCell: c, travel: func() { time.Sleep(time.Duration(draw(4)) * time.Millisecond) }}
	runs := make(map[string]int)
	h := func(_ context.Context, task *Task) (client.Payload, error) {
		n := draw(5)
		mu.Lock()
		runs[task.ID]++
		mu.Unlock()
		time.Sleep(time.Duration(n*n) * time.Millisecond)
		return client.Payload{}, nil
	}
	// The first worker drains at some moment; what it never had or handed back is the second one's.
	first := start(t, slow, cfg, h)
	added := 0
	for began := time.Now(); time.Since(began) < drainAfter; time.Sleep(time.Duration(draw(20)) * time.Millisecond) {
		n := min(jobs-added, draw(4))
		c.add(n, nil)
		added += n
	}
	c.add(jobs-added, nil)
	// A drain gives up on a network that stays down, rightly: this one comes back.
	c.setFault(nil)
	if err := first.stop(); err != nil {
		return fmt.Sprintf("first Run: %v", err)
	}
	mid := c.tally()
	if mid.leased > 0 {
		return fmt.Sprintf("%d leases were left behind by the drain", mid.leased)
	}
	second := start(t, slow, cfg, h)
	synctest.Wait()
	for i := 0; c.tally().done < jobs; i++ {
		if i == 1000 {
			return fmt.Sprintf("stuck: %+v %+v", c.tally(), second.worker.Stats())
		}
		time.Sleep(time.Second)
	}
	if err := second.stop(); err != nil {
		return fmt.Sprintf("second Run: %v", err)
	}
	got := c.tally()
	if len(got.violations) > 0 {
		return strings.Join(got.violations, "; ")
	}
	if got.freed > mid.freed { // the drain's last Lease may free what was granted to the one cut short
		return fmt.Sprintf("%d leases had to be freed by the cell", got.freed)
	}
	for id, n := range runs {
		if n != 1 {
			return fmt.Sprintf("%s ran %d times", id, n)
		}
	}
	if st := first.worker.Stats(); st.Refused > 0 || c.session.heldMax > first.worker.cfg.Slots+first.worker.cfg.Prefetch {
		return fmt.Sprintf("refused or held too much: %+v", st)
	}
	return ""
}

func TestRunsInTheOrderGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCell()
		var order []string
		c.add(20, nil)
		r := start(t, c, Config{Slots: 1, Prefetch: 7}, func(_ context.Context, task *Task) (client.Payload, error) {
			order = append(order, task.ID)
			time.Sleep(time.Millisecond)
			return client.Payload{}, nil
		})
		time.Sleep(time.Second)
		mustStop(t, r)
		if len(order) != 20 || !slices.IsSorted(order) {
			t.Errorf("ran %v", order)
		}
	})
}

// An idle worker takes a job, and reports it, without any time passing.
func TestNoDelayWhenIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCell()
		r := start(t, c, Config{Slots: 2}, noop)
		time.Sleep(90 * time.Second) // several polls
		for range 10 {
			before := time.Now()
			done := c.tally().done
			c.add(1, nil)
			synctest.Wait()
			if c.tally().done != done+1 || !time.Now().Equal(before) {
				t.Fatalf("not done at once: %+v", c.tally())
			}
			time.Sleep(time.Second)
		}
		if st := r.worker.Stats(); st.LeaseCalls > 30 {
			t.Errorf("%d leases in 100 s with ten jobs", st.LeaseCalls)
		}
		mustStop(t, r)
	})
}

func TestAnEmptyAnswerAtOnceIsNotABusyLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCell()
		c.emptyNow = true
		r := start(t, c, Config{}, noop)
		time.Sleep(time.Minute)
		if n := r.worker.Stats().LeaseCalls; n < 30 || n > 300 {
			t.Errorf("%d leases in a minute", n)
		}
		mustStop(t, r)
	})
}

func TestExtendsWhatItHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCell()
		c.add(3, nil)
		r := start(t, c, Config{Slots: 1, Prefetch: 2}, func(ctx context.Context, _ *Task) (client.Payload, error) {
			time.Sleep(5 * time.Minute)
			return client.Payload{}, ctx.Err()
		})
		for range 14 * 60 {
			time.Sleep(time.Second)
			c.mu.Lock()
			for _, j := range c.jobs {
				if j.leased && time.Now().After(j.expires) {
					t.Errorf("%s ran out", j.lease.GetJobId())
				}
			}
			c.mu.Unlock()
		}
		time.Sleep(2 * time.Minute)
		if got := c.tally(); got.done != 3 {
			t.Errorf("tally %+v", got)
		}
		// One each three seconds for as long as something is held, which is how soon a cancellation is heard of, and one call for all of it.
		if n := r.worker.Stats().ExtendCalls; n < 290 || n > 305 {
			t.Errorf("%d extensions in 15 minutes of 30 s leases", n)
		}
		mustStop(t, r)
	})
}

// stopped is a handler that waits for its end and notes the cause.
type stopped struct {
	mu     sync.Mutex
	causes []error
	at     []time.Time
	result error // returned after that
}

func (s *stopped) handle(ctx context.Context, _ *Task) (client.Payload, error) {
	<-ctx.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.causes, s.at = append(s.causes, context.Cause(ctx)), append(s.at, time.Now())
	return client.Payload{}, s.result
}

func TestCauses(t *testing.T) {
	tests := map[string]struct {
		cause    error
		result   error
		provoke  func(c *fakeCell, r *running)
		after    time.Duration
		slack    time.Duration
		reported string
	}{
		"cancelled": {
			cause: ErrCancelled, result: context.Canceled, slack: 10 * time.Second,
			provoke: func(c *fakeCell, _ *running) { c.cancel("job-0000") }, reported: "nothing",
		},
		"lease lost": {
			cause: ErrLeaseLost, result: context.Canceled, after: 30 * time.Second, slack: 5 * time.Second,
			provoke: func(c *fakeCell, _ *running) { c.setFault(func(string, int) fault { return faultRequest }) }, reported: "nothing",
		},
		"timed out": {
			cause: ErrTimedOut, result: errors.New("interrupted"), after: time.Hour,
			provoke: func(*fakeCell, *running) {}, reported: "failure: execution time-out of 1h0m0s: interrupted",
		},
		"timed out, but done": {
			cause: ErrTimedOut, after: time.Hour, provoke: func(*fakeCell, *running) {}, reported: "success",
		},
		"shut down": {
			cause: ErrShutdown, result: errors.New("interrupted"), after: 30 * time.Second,
			provoke: func(_ *fakeCell, r *running) { r.cancel() }, reported: "release",
		},
		"shut down, but done": {
			cause: ErrShutdown, after: 30 * time.Second, provoke: func(_ *fakeCell, r *running) { r.cancel() }, reported: "success",
		},
		"shut down, but hopeless": {
			cause: ErrShutdown, result: Fatal(errors.New("bad")), after: 30 * time.Second,
			provoke: func(_ *fakeCell, r *running) { r.cancel() }, reported: "failure: bad",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newFakeCell()
				c.add(1, nil)
				h := &stopped{result: tt.result}
				r := start(t, c, Config{Slots: 1}, h.handle)
				synctest.Wait()
				began := time.Now()
				tt.provoke(c, r)
				time.Sleep(tt.after + tt.slack + time.Second)
				h.mu.Lock()
				if len(h.causes) != 1 || !errors.Is(h.causes[0], tt.cause) {
					t.Fatalf("causes %v, want one %v", h.causes, tt.cause)
				}
				if d := h.at[0].Sub(began); d < tt.after-tt.slack || d > tt.after+tt.slack {
					t.Errorf("stopped after %v, want %v within %v", d, tt.after, tt.slack)
				}
				h.mu.Unlock()
				if got := describe(c.outcomeOf("job-0000")); got != tt.reported {
					t.Errorf("reported %s, want %s", got, tt.reported)
				}
				c.setFault(nil)
				mustStop(t, r)
			})
		})
	}
}

func describe(o *fairleadv1.Outcome) string {
	switch {
	case o == nil:
		return "nothing"
	case o.GetSuccess() != nil:
		return "success"
	case o.GetRelease() != nil:
		return "release"
	default:
		return "failure: " + o.GetFailure().GetError()
	}
}

// A cell that forgot the session frees the leases; the worker hears of it with the next extension, and leases anew.
func TestCellForgetsTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCell()
		c.add(4, nil)
		var mu sync.Mutex
		causes := 0
		r := start(t, c, Config{Slots: 2, Prefetch: 2}, func(ctx context.Context, task *Task) (client.Payload, error) {
			if task.Attempt == 1 {
				<-ctx.Done()
				mu.Lock()
				defer mu.Unlock()
				if errors.Is(context.Cause(ctx), ErrCancelled) {
					causes++
				}
			}
			return client.Payload{}, nil
		})
		synctest.Wait()
		c.restart()
		c.mu.Lock()
		c.violations = nil
		// The cell of the fake takes up a session's count where it comes in.
		c.session = &fakeSession{id: r.worker.session.id, grants: map[string]grantedBy{}, seen: map[string]int64{}, leaseSeq: 1}
		c.mu.Unlock()
		time.Sleep(time.Minute)
		if got := c.tally(); got.done != 4 || causes != 2 || len(got.violations) > 0 {
			t.Errorf("%d handlers stopped, tally %+v", causes, got)
		}
		mustStop(t, r)
	})
}

func TestDrain(t *testing.T) {
	const jobs = 10
	tests := map[string]struct {
		cfg       Config
		runs      time.Duration // of a handler that ignores its context
		wantTook  time.Duration
		wantErr   error
		done      int
		released  int
		abandoned bool
	}{
		"idle":                   {cfg: Config{Slots: 2}, wantTook: lastLeaseWait},
		"lets running jobs end":  {cfg: Config{Slots: 2, Prefetch: 3}, runs: 20 * time.Second, wantTook: 20 * time.Second, done: 2, released: 3},
		"hands back what is new": {cfg: Config{Slots: 1, Prefetch: 9, DrainTimeout: -1}, runs: time.Second, wantTook: time.Second, done: 1, released: 9},
		"gives up": {
			cfg: Config{Slots: 2, Prefetch: 1, DrainTimeout: 5 * time.Second, StopGrace: 2 * time.Second}, runs: time.Hour,
			wantTook: 7 * time.Second, wantErr: ErrAbandoned, released: 3, abandoned: true,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newFakeCell()
				if tt.runs > 0 {
					c.add(jobs, nil)
				}
				r := start(t, c, tt.cfg, func(context.Context, *Task) (client.Payload, error) {
					time.Sleep(tt.runs)
					return client.Payload{}, nil
				})
				synctest.Wait()
				before := r.worker.Stats().Leased
				began := time.Now()
				if err := r.stop(); !errors.Is(err, tt.wantErr) {
					t.Errorf("Run = %v, want %v", err, tt.wantErr)
				}
				if took := time.Since(began); took != tt.wantTook {
					t.Errorf("took %v, want %v", took, tt.wantTook)
				}
				got := c.tally()
				if got.done != tt.done || got.released != tt.released || got.leased != 0 || len(got.violations) > 0 {
					t.Errorf("tally %+v", got)
				}
				if after := r.worker.Stats().Leased; after != before {
					t.Errorf("leased %d more while draining", after-before)
				}
				time.Sleep(tt.runs) // for the goroutines given up on
			})
		})
	}
}

// When the cell cannot be reached at the end, Run says how much it does not know, and does not wait for ever.
func TestDrainWithoutACell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCell()
		c.add(3, nil)
		r := start(t, c, Config{Slots: 3, StopGrace: 4 * time.Second}, func(context.Context, *Task) (client.Payload, error) {
			time.Sleep(time.Second)
			return client.Payload{}, nil
		})
		synctest.Wait()
		c.setFault(func(string, int) fault { return faultRequest })
		began := time.Now()
		if err := r.stop(); !errors.Is(err, ErrUnreported) || !strings.HasSuffix(err.Error(), ": 3") {
			t.Errorf("Run = %v, want %v: 3", err, ErrUnreported)
		}
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("took %v", took)
		}
		if st := r.worker.Stats(); st.Unreported != 3 {
			t.Errorf("stats %+v", st)
		}
	})
}

func TestADefiniteRefusalEndsTheWorker(t *testing.T) {
	for name, tt := range map[string]struct {
		code connect.Code
		ends bool
	}{
		"unauthenticated":   {connect.CodeUnauthenticated, true},
		"permission denied": {connect.CodePermissionDenied, true},
		"invalid argument":  {connect.CodeInvalidArgument, true},
		"unavailable":       {connect.CodeUnavailable, false},
		"limited":           {connect.CodeResourceExhausted, false},
		"internal":          {connect.CodeInternal, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newFakeCell()
				r := start(t, c, Config{}, noop)
				synctest.Wait()
				c.refuseAll(tt.code)
				time.Sleep(time.Minute) // the present poll ends, the next is refused
				select {
				case <-r.done:
					if e := client.AsError(r.err); !tt.ends || e.Code != tt.code || e.Reason != "TEST" {
						t.Errorf("Run = %v", r.err)
					}
				default:
					if tt.ends {
						t.Error("Run goes on")
					}
				}
				err := r.stop()
				if (err != nil) != tt.ends {
					t.Errorf("Run = %v", err)
				}
			})
		})
	}
}

// Handlers that panic or end their goroutine cost their own job an attempt, and no slot.
func TestBadHandlersKeepTheirSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCell()
		c.add(60, nil)
		r := start(t, c, Config{Slots: 2, Prefetch: 2}, func(_ context.Context, task *Task) (client.Payload, error) {
			switch task.ID[len(task.ID)-1] % 3 {
			case 0:
				panic("boom " + task.ID)
			case 1:
				runtime.Goexit()
			}
			return client.Payload{}, nil
		})
		synctest.Wait()
		if got := c.tally(); got.done != 60 || len(got.violations) > 0 {
			t.Errorf("tally %+v", got)
		}
		if got := c.outcomeOf("job-0000").GetFailure().GetError(); !strings.HasPrefix(got, "panic: boom job-0000\n") ||
			!strings.Contains(got, "worker_test.go") || strings.Contains(got, "debug.Stack") {
			t.Errorf("panic reported as %q", got)
		}
		if got := c.outcomeOf("job-0001").GetFailure().GetError(); !strings.Contains(got, "Goexit") {
			t.Errorf("Goexit reported as %q", got)
		}
		mustStop(t, r)
	})
}

func TestConfigIsChecked(t *testing.T) {
	reg := NewRegistry()
	Handle(reg, "op", func(context.Context, *Job[int]) error { return nil })
	service := newFakeCell()
	for name, tt := range map[string]struct {
		cfg  Config
		reg  *Registry
		want string
	}{
		"no server":      {Config{}, reg, "addr is empty"},
		"no handlers":    {Config{Service: service}, NewRegistry(), "registry has no handler"},
		"slots":          {Config{Service: service, Slots: -1}, reg, "slots is -1"},
		"prefetch":       {Config{Service: service, Prefetch: SlotsMax + 1}, reg, "prefetch is 1001"},
		"lease duration": {Config{Service: service, LeaseDuration: time.Second}, reg, "lease_duration is 1s"},
		"poll":           {Config{Service: service, PollWait: time.Hour}, reg, "poll_wait is 1h"},
		"name":           {Config{Service: service, Name: strings.Repeat("x", 200)}, reg, "name is above"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := New(tt.cfg, tt.reg); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("New = %v, want %q", err, tt.want)
			}
		})
	}
}

func TestRunTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCell()
		r := start(t, c, Config{}, noop)
		synctest.Wait()
		if err := r.worker.Run(t.Context()); !errors.Is(err, ErrRunning) {
			t.Errorf("second Run = %v", err)
		}
		mustStop(t, r)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		c.add(1, nil)
		if err := r.worker.Run(ctx); err != nil || c.tally().done != 1 {
			t.Errorf("run again: %v, %+v", err, c.tally())
		}
	})
}

// Outcomes of large results are split over Reports that a server takes.
func TestReportsAreBoundedInBytes(t *testing.T) {
	l := newLedger(100)
	var leases []*fairleadv1.JobLease
	for i := range 100 {
		leases = append(leases, &fairleadv1.JobLease{JobId: fmt.Sprint(i), Token: "t", LeaseDuration: durationpb.New(time.Second)})
	}
	if n := l.grant(leases, time.Time{}, time.Second); n != 100 {
		t.Fatalf("granted %d", n)
	}
	if n := l.grant(leases, time.Time{}, time.Second); n != 0 {
		t.Fatalf("granted %d again", n)
	}
	big := client.Bytes("", make([]byte, ResultBytesMax))
	for a := l.next(time.Time{}); a != nil; a = l.next(time.Time{}) {
		l.end(a, reportOf(a.lease, Outcome{Verdict: VerdictSuccess, Result: big}))
	}
	reports := 0
	for batch := l.takeEnded(); len(batch) > 0; batch = l.takeEnded() {
		if len(batch) > 16 {
			t.Errorf("%d results of 64 KiB in a report", len(batch))
		}
		l.settle(batch)
		reports++
	}
	if reports != 7 || l.room() != 100 {
		t.Errorf("%d reports, room %d", reports, l.room())
	}
}

// The same over a real connection, with either version of HTTP: polls are ended, and no goroutine or connection is left behind.
func TestOverHTTP(t *testing.T) {
	for name, protocol := range map[string]client.Protocol{"h2c": client.ProtocolHTTP2, "http1": client.ProtocolHTTP1} {
		t.Run(name, func(t *testing.T) {
			const jobs = 300
			c := newFakeCell()
			c.fault = func(call string, n int) fault { return []fault{faultNone, faultNone, faultReply}[n%3] }
			left := make(chan struct{}, jobs)
			reg := NewRegistry()
			HandleResult(reg, "op", func(_ context.Context, job *Job[invoice]) (invoice, error) {
				defer func() { left <- struct{}{} }()
				return invoice{job.Args.Number + 1}, nil
			})
			w, err := New(Config{
				Client: client.Config{Addr: serve(t, c), Protocol: protocol, Token: "key"}, Slots: 8, Logger: slog.New(slog.DiscardHandler),
			}, reg)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- w.Run(ctx) }()
			c.add(jobs, func(_ int, l *fairleadv1.JobLease) {
				l.Payload = &fairleadv1.Payload{Body: &fairleadv1.Payload_Json{Json: `{"number": 9007199254740992}`}}
			})
			for range jobs {
				<-left
			}
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("Run = %v", err)
			}
			if got := c.tally(); got.done != jobs || len(got.violations) > 0 || got.leased > 0 {
				t.Errorf("tally %+v", got)
			}
			if got := c.outcomeOf("job-0007").GetSuccess().GetResult().GetJson(); got != `{"number":9007199254740993}` {
				t.Errorf("result %s", got)
			}
		})
	}
}

// slowCell is a fakeCell some way off: requests and answers take their time, and overtake each other.
type slowCell struct {
	*fakeCell

	travel func() // sleeps
}

func (c slowCell) Lease(ctx context.Context, req *fairleadv1.LeaseRequest) (*fairleadv1.LeaseResponse, error) {
	c.travel()
	defer c.travel()
	return c.fakeCell.Lease(ctx, req)
}

func (c slowCell) Report(ctx context.Context, req *fairleadv1.ReportRequest) (*fairleadv1.ReportResponse, error) {
	c.travel()
	defer c.travel()
	return c.fakeCell.Report(ctx, req)
}
