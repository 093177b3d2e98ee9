package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/dataplane/client"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// The errors of [Worker.Run].
var (
	// ErrRunning is returned when Run is called while it runs.
	ErrRunning = errors.New("worker is running already")
	// ErrAbandoned is returned when handlers did not return although their contexts had ended. Their goroutines are left behind, and their
	// jobs went back.
	ErrAbandoned = errors.New("handlers did not return")
	// ErrUnreported is returned when outcomes could not be reported before the worker had to end. Their jobs will run again.
	ErrUnreported = errors.New("outcomes were not reported")
)

// Worker runs the handlers of a registry. It is safe for concurrent use.
type Worker struct {
	cfg        Config
	service    Service
	conn       *client.Conn // nil with a Service of the caller's
	operations []string
	handlers   map[string]HandlerFunc

	mu      sync.Mutex
	session *session // the present run, or the last one
	running bool
}

// Stats is what a worker has done since Run began, and does now.
type Stats struct {
	Slots   int
	Running int // handlers running now
	Queued  int // jobs held for a slot
	Pending int // outcomes not reported yet

	Leased     int64 // jobs leased
	Succeeded  int64 // outcomes reported, by verdict
	Failed     int64
	Released   int64
	Refused    int64 // outcomes that the cell did not take: the lease was no longer the job's
	Unreported int64 // outcomes that never reached the cell
	Cancelled  int64 // handlers told to stop because the cell took the job back
	Lost       int64 // leases not extended in time

	LeaseCalls  int64 // calls made, repeated ones counted once
	ReportCalls int64
	ExtendCalls int64

	BusyTime time.Duration // time in handlers
	SlotTime time.Duration // slots x time since Run began
}

// Utilisation is the share of the slots' time that handlers ran, 0 to 1.
func (s Stats) Utilisation() float64 {
	if s.SlotTime <= 0 {
		return 0
	}
	return min(1, float64(s.BusyTime)/float64(s.SlotTime))
}

// New returns a worker for the handlers in reg. It returns a *[cell.FieldError], or an *[client.Error] for the fields about the
// connection, that names what is wrong with cfg or reg.
func New(cfg Config, reg *Registry) (*Worker, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if reg == nil || len(reg.handlers) == 0 {
		return nil, &cell.FieldError{Field: "registry", Problem: "has no handler", Remedy: "register one for at least one operation"}
	}
	w := &Worker{cfg: cfg, service: cfg.Service, operations: reg.Operations(), handlers: make(map[string]HandlerFunc)}
	for op, h := range reg.handlers {
		w.handlers[op] = wrap(h, cfg.Middleware)
	}
	if w.service == nil {
		conn, err := client.Dial(cfg.Client)
		if err != nil {
			return nil, err
		}
		w.conn = conn
		w.service = fairleadv1connect.NewWorkerServiceClient(conn.HTTP, conn.URL, conn.Options...)
	}
	return w, nil
}

// Run leases and runs jobs until ctx ends, then drains: it leases nothing more, hands back what was not started, lets running handlers end
// within [Config.DrainTimeout], ends the contexts of those that did not, and returns once all of it is reported. It returns nil then;
// [ErrAbandoned] or [ErrUnreported] when that could not be done within [Config.StopGrace]; and, after the same drain, an *[client.Error] when
// the cell wants nothing of this worker, such as for a revoked key. A worker may be run again after that.
func (w *Worker) Run(ctx context.Context) error {
	if ctx.Err() != nil {
		return nil
	}
	s, err := w.begin()
	if err != nil {
		return err
	}
	defer w.finish()
	// The run outlives ctx, whose end is where the drain begins.
	base := context.WithoutCancel(ctx)
	leaseCtx, stopLease := context.WithCancel(base)
	callCtx, stopCalls := context.WithCancel(base)
	defer stopCalls()
	defer stopLease()
	s.slots.spawn = func() { s.slots.running.Go(func() { s.runSlot(base) }) }

	var calls sync.WaitGroup
	calls.Go(func() { s.runLease(leaseCtx, base, w.operations) })
	calls.Go(func() { s.runReport(callCtx) })
	calls.Go(func() { s.runExtend(callCtx) })
	var cause error
	select {
	case <-ctx.Done():
	case cause = <-s.fatal:
		s.log.Error("worker ends", "error", cause)
	}
	abandoned := s.drain(stopLease)
	stopCalls()
	calls.Wait()
	return errors.Join(cause, s.close(abandoned))
}

func (w *Worker) begin() (*session, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running {
		return nil, ErrRunning
	}
	w.running = true
	w.session = newSession(w.cfg, w.service, w.handlers)
	return w.session, nil
}

func (w *Worker) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = false
	if w.conn != nil {
		w.conn.Close()
	}
}

// Stats returns what the present run, or the last one, has done.
func (w *Worker) Stats() Stats {
	w.mu.Lock()
	s := w.session
	w.mu.Unlock()
	if s == nil {
		return Stats{Slots: w.cfg.Slots}
	}
	return s.snapshot()
}

func (s *session) snapshot() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, now := s.stats, time.Now()
	st.Slots, st.Running, st.Queued = s.cfg.Slots, s.ledger.running, len(s.ledger.queue)
	st.Pending = s.ledger.unreported()
	for _, a := range s.ledger.held {
		if a.phase == phaseRunning {
			st.BusyTime += now.Sub(a.started)
		}
	}
	st.SlotTime = time.Duration(s.cfg.Slots) * now.Sub(s.began)
	return st
}

// drain brings the session to its end, and returns how many handlers it gave up on.
func (s *session) drain(stopLease context.CancelFunc) (abandoned int) {
	s.mu.Lock()
	s.ledger.drain()
	running := s.ledger.running
	s.mu.Unlock()
	stopLease()
	poke(s.reportWake)
	s.log.Info("draining", "running", running)

	idle := func() bool { return s.ledger.running == 0 }
	if !s.await(idle, s.cfg.DrainTimeout) {
		s.mu.Lock()
		list := s.ledger.stoppers()
		s.mu.Unlock()
		stop(list, ErrShutdown)
		if !s.await(idle, s.cfg.StopGrace) {
			s.mu.Lock()
			abandoned = s.ledger.giveUp()
			s.mu.Unlock()
			poke(s.reportWake)
		}
	}
	s.await(s.ledger.drained, s.cfg.StopGrace)
	return abandoned
}

// await waits, with the lock held when it looks, until done or timeout. It reports whether it is done.
func (s *session) await(done func() bool, timeout time.Duration) bool {
	t := time.NewTimer(timeout)
	defer t.Stop()
	for {
		s.mu.Lock()
		ok := done()
		s.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-s.changed:
		case <-t.C:
			return false
		}
	}
}

// close ends the slots, waits for them unless handlers were abandoned in some, and returns what went wrong.
func (s *session) close(abandoned int) error {
	var errs []error
	s.mu.Lock()
	s.slots.closed = true
	s.slots.wake.Broadcast()
	s.stats.Unreported += int64(s.ledger.unreported())
	if s.stats.Unreported > 0 {
		errs = append(errs, fmt.Errorf("%w: %d", ErrUnreported, s.stats.Unreported))
	}
	s.mu.Unlock()
	if abandoned > 0 {
		return errors.Join(append(errs, fmt.Errorf("%w: %d", ErrAbandoned, abandoned))...)
	}
	s.slots.running.Wait()
	return errors.Join(errs...)
}
