package worker

import (
	"context"
	"crypto/rand"
	"log/slog"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/dataplane/client"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// Bounds of the calls.
const (
	callTimeout = 10 * time.Second // of a Report, and of a Lease beyond its wait: more than a gateway parks a call

	retryDelayMin = 50 * time.Millisecond
	retryDelayMax = 10 * time.Second
	emptyDelayMin = 10 * time.Millisecond // before a Lease that was answered at once, with nothing, is opened again
	emptyDelayMax = time.Second

	// extendEveryMax bounds the time between extensions even of long leases: their answers are how a worker without free room hears that a
	// job of its was cancelled.
	extendEveryMax = 3 * time.Second
)

// session is one run of a worker. Its goroutines are: one for Lease, one for Report, one for extensions, and one for each slot that was
// ever needed. They meet in the ledger.
type session struct {
	cfg      Config
	service  Service
	handlers map[string]HandlerFunc // wrapped
	id       string
	log      *slog.Logger
	backoff  client.Backoff

	leaseWake  chan struct{} // capacity 1: look whether to lease
	reportWake chan struct{} // capacity 1: look whether to report
	changed    chan struct{} // capacity 1: look whether drained
	fatal      chan error    // capacity 1: the cell wants nothing of this worker

	slots slots

	mu          sync.Mutex
	ledger      ledger
	stats       Stats
	began       time.Time
	leaseSeq    int64
	reportSeq   int64         // the last one sent
	answeredSeq int64         // the last one answered
	extendEvery time.Duration // a third of the shortest lease
}

// slots are the goroutines that run handlers. They are started as they are needed. Guarded by session.mu.
type slots struct {
	max     int
	started int
	idle    int
	closed  bool
	wake    *sync.Cond // on session.mu: the queue has something, or closed
	running sync.WaitGroup
	spawn   func() // starts one
}

func newSession(cfg Config, service Service, handlers map[string]HandlerFunc) *session {
	s := &session{
		cfg: cfg, service: service, handlers: handlers, id: rand.Text(),
		backoff:   client.Backoff{Min: retryDelayMin, Max: retryDelayMax},
		leaseWake: make(chan struct{}, 1), reportWake: make(chan struct{}, 1), changed: make(chan struct{}, 1), fatal: make(chan error, 1),
		ledger: newLedger(cfg.Slots + cfg.Prefetch), began: time.Now(), extendEvery: min(cfg.LeaseDuration/3, extendEveryMax),
	}
	s.log = cfg.Logger.With("worker", cfg.Name, "session", s.id)
	s.slots.max = cfg.Slots
	s.slots.wake = sync.NewCond(&s.mu)
	return s
}

// poke wakes whoever waits on c; one that is awake will look again.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// runSlot runs handlers until the slots are closed. base has no end of its own: each attempt is stopped by itself, for its own cause.
func (s *session) runSlot(base context.Context) {
	returned := false
	defer func() {
		if !returned { // a handler ended this goroutine: another takes its place
			s.mu.Lock()
			s.slots.started--
			s.wakeSlotLocked()
			s.mu.Unlock()
		}
	}()
	s.mu.Lock()
	for {
		a := s.nextLocked()
		if a == nil {
			break
		}
		ctx, cancel := context.WithCancelCause(base)
		a.cancel = cancel
		s.mu.Unlock()
		s.runAttempt(ctx, a)
		s.mu.Lock()
	}
	s.mu.Unlock()
	returned = true
}

// nextLocked waits for a lease to run. It returns nil once the slots are closed.
func (s *session) nextLocked() *attempt {
	for !s.slots.closed {
		if a := s.ledger.next(time.Now()); a != nil {
			// One waker is enough for a whole answer: each slot that starts wakes the next. A slot with very short jobs runs them all
			// before anybody is up.
			s.wakeSlotLocked()
			return a
		}
		s.slots.idle++
		s.slots.wake.Wait()
		s.slots.idle--
	}
	return nil
}

// wakeSlotLocked lets one more slot run if there is something to run.
func (s *session) wakeSlotLocked() {
	switch {
	case len(s.ledger.queue) == 0:
	case s.slots.idle > 0:
		s.slots.wake.Signal()
	case s.slots.started < s.slots.max:
		s.slots.started++
		s.slots.spawn()
	}
}

// runAttempt runs the handler of a and takes in its outcome, also when the handler ends the goroutine.
func (s *session) runAttempt(ctx context.Context, a *attempt) {
	out := exitedOutcome
	defer func() { s.ended(a, out) }()
	task := taskOf(a.lease)
	h := s.handlers[task.Operation]
	if h == nil { // only a cell that answers something else than it was asked
		s.log.Error("leased a job of an operation that was not offered", "operation", task.Operation, "job", task.ID)
		out = Outcome{Verdict: VerdictRelease, Delay: callTimeout}
		return
	}
	execute(ctx, h, task, &out)
	if out.UsageFault != "" {
		s.log.Warn("what an attempt said it used was not understood", "job", task.ID, "operation", task.Operation, "problem", out.UsageFault)
	}
}

func (s *session) ended(a *attempt, out Outcome) {
	r := reportOf(a.lease, out)
	s.mu.Lock()
	cancel := a.cancel
	s.stats.BusyTime += out.RunTime
	wanted := s.ledger.end(a, r)
	reporting, draining := s.ledger.reporting, s.ledger.draining
	s.mu.Unlock()
	cancel(nil)
	switch {
	case !wanted: // taken back: no Report will fill the room that it leaves
		poke(s.leaseWake)
	case !reporting:
		poke(s.reportWake)
	}
	if draining {
		poke(s.changed)
	}
}

// stop ends attempts for cause. The functions are called without the lock: they run what the handlers registered with context.AfterFunc.
func stop(list []context.CancelCauseFunc, cause error) {
	for _, cancel := range list {
		cancel(cause)
	}
}

// grantedLocked takes in leases.
func (s *session) grantedLocked(leases []*fairleadv1.JobLease) {
	s.stats.Leased += int64(s.ledger.grant(leases, time.Now(), s.cfg.LeaseDuration))
	for _, l := range leases {
		if d := l.GetLeaseDuration().AsDuration(); d > 0 {
			s.extendEvery = min(s.extendEvery, d/3)
		}
	}
	s.wakeSlotLocked()
}

// revoke takes in the leases that the cell took back.
func (s *session) revoke(refs []*fairleadv1.LeaseRef) {
	if len(refs) == 0 {
		return
	}
	var list []context.CancelCauseFunc
	s.mu.Lock()
	for _, ref := range refs {
		if cancel := s.ledger.revoke(ref); cancel != nil {
			s.stats.Cancelled++
			list = append(list, cancel)
		}
	}
	s.mu.Unlock()
	stop(list, ErrCancelled)
	poke(s.leaseWake)
}

// definite reports whether the cell wants nothing of this worker, now or later. Everything else is repeated for as long as the worker lives.
func definite(e *client.Error) bool {
	switch e.Code {
	case connect.CodeInvalidArgument, connect.CodeUnauthenticated, connect.CodePermissionDenied, connect.CodeUnimplemented:
		return true
	case connect.CodeCanceled, connect.CodeUnknown, connect.CodeDeadlineExceeded, connect.CodeNotFound, connect.CodeAlreadyExists,
		connect.CodeResourceExhausted, connect.CodeFailedPrecondition, connect.CodeAborted, connect.CodeOutOfRange, connect.CodeInternal,
		connect.CodeUnavailable, connect.CodeDataLoss:
		return false
	default:
		return false
	}
}

// fail ends the run with err.
func (s *session) fail(err error) {
	select {
	case s.fatal <- err:
	default: // the first one tells it
	}
}

// pause waits before a call is repeated. It returns false when ctx ended.
func (s *session) pause(ctx context.Context, call string, n int, e *client.Error) bool {
	d := s.backoff.Next(n, e.RetryAfter)
	if n == 1 {
		s.log.Warn("call is to be repeated", "call", call, "error", e, "in", d)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
