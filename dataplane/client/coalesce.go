package client

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"connectrpc.com/connect"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// The bounds of one SubmitBatch. A job larger than the second goes alone.
const (
	batchJobsMax  = 500
	batchBytesMax = 1 << 20
)

// coalescer lets concurrent submissions share calls. What arrives while as many batches are in flight as may be waits for the next; there
// is no delay but that. How much can wait is bounded by how many callers there are: each has one.
type coalescer struct {
	send        func(context.Context, []*fairleadv1.JobSpec) ([]*fairleadv1.SubmitResult, error)
	inFlightMax int
	flights     sync.WaitGroup

	mu       sync.Mutex
	pending  []*submission // in order of arrival
	inFlight int
	closed   bool
	running  map[*flight]struct{}
}

// submission is one caller's job on its way.
type submission struct {
	spec  *fairleadv1.JobSpec
	bytes int
	done  chan struct{} // closed once result and err are set

	result *fairleadv1.SubmitResult
	err    error

	// Guarded by coalescer.mu.
	flight    *flight // nil until it left
	abandoned bool
}

// flight is one SubmitBatch. It has a context of its own, since it must outlive any one of its callers; it ends early when the last of them
// has gone.
type flight struct {
	submissions []*submission
	cancel      context.CancelCauseFunc
	waiting     int // guarded by coalescer.mu
}

func newCoalescer(inFlightMax int, send func(context.Context, []*fairleadv1.JobSpec) ([]*fairleadv1.SubmitResult, error)) *coalescer {
	return &coalescer{send: send, inFlightMax: inFlightMax, running: make(map[*flight]struct{})}
}

// submit returns the server's answer for spec. When ctx ends first it returns an *[Error] that says whether the job may have been accepted.
func (c *coalescer) submit(ctx context.Context, spec *fairleadv1.JobSpec) (*fairleadv1.SubmitResult, error) {
	if ctx.Err() != nil {
		return nil, gaveUp(ctx, nil, false)
	}
	s := &submission{spec: spec, bytes: specBytes(spec), done: make(chan struct{})}
	if !c.enqueue(ctx, s) {
		return nil, &Error{Code: connect.CodeCanceled, Message: ErrClosed.Error(), cause: ErrClosed}
	}
	select {
	case <-s.done:
		return s.result, s.err
	case <-ctx.Done():
		return nil, gaveUp(ctx, nil, c.abandon(s))
	}
}

func (c *coalescer) enqueue(ctx context.Context, s *submission) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.pending = append(c.pending, s)
	if c.inFlight < c.inFlightMax {
		c.inFlight++
		// The batches carry other callers' jobs too: this caller's cancellation is not theirs.
		detached := context.WithoutCancel(ctx)
		c.flights.Go(func() { c.run(detached) })
	}
	return true
}

// abandon takes s out, and reports whether it had left already.
func (c *coalescer) abandon(s *submission) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.abandoned = true
	if s.flight == nil {
		return false
	}
	s.flight.waiting--
	if s.flight.waiting == 0 {
		s.flight.cancel(context.Canceled)
	}
	return true
}

// run sends batches until nothing is left to send.
func (c *coalescer) run(ctx context.Context) {
	for last := 0; ; {
		if last > 1 {
			// The callers of the batch before have just been woken and are about to come back. Letting them run first puts them into one
			// batch, instead of the first of them into one and the rest into another.
			runtime.Gosched()
		}
		flightCtx, cancel := context.WithCancelCause(ctx)
		f := c.seal(cancel)
		if f == nil {
			cancel(nil)
			return
		}
		last = len(f.submissions)
		c.fly(flightCtx, f)
		cancel(nil)
	}
}

// seal takes the next batch, or gives up its place in flight and returns nil.
func (c *coalescer) seal(cancel context.CancelCauseFunc) *flight {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := &flight{cancel: cancel}
	bytes, taken := 0, 0
	for _, s := range c.pending {
		if !s.abandoned {
			full := len(f.submissions) == batchJobsMax || bytes+s.bytes > batchBytesMax
			if full && len(f.submissions) > 0 {
				break
			}
			s.flight = f
			f.submissions = append(f.submissions, s)
			bytes += s.bytes
		}
		taken++
	}
	c.pending = c.pending[taken:]
	if len(c.pending) == 0 {
		c.pending = nil
	}
	if len(f.submissions) == 0 || c.closed {
		c.failLocked(f.submissions)
		c.inFlight--
		return nil
	}
	f.waiting = len(f.submissions)
	c.running[f] = struct{}{}
	return f
}

func (c *coalescer) fly(ctx context.Context, f *flight) {
	specs := make([]*fairleadv1.JobSpec, len(f.submissions))
	for i, s := range f.submissions {
		specs[i] = s.spec
	}
	results, err := c.send(ctx, specs)
	c.mu.Lock()
	delete(c.running, f)
	c.mu.Unlock()
	for i, s := range f.submissions {
		if err != nil {
			s.err = err
		} else {
			s.result = results[i]
		}
		close(s.done)
	}
}

// close refuses what comes, fails what waits, ends what flies, and waits for that.
func (c *coalescer) close() {
	c.mu.Lock()
	c.closed = true
	c.failLocked(c.pending)
	c.pending = nil
	for f := range c.running {
		f.cancel(ErrClosed)
	}
	c.mu.Unlock()
	c.flights.Wait()
}

func (c *coalescer) failLocked(submissions []*submission) {
	for _, s := range submissions {
		s.err = &Error{Code: connect.CodeCanceled, Message: ErrClosed.Error(), cause: ErrClosed}
		close(s.done)
	}
}

// checkResults returns an error when a batch was not answered job by job, which leaves all of it unknown.
func checkResults(jobs int, results []*fairleadv1.SubmitResult) error {
	if len(results) == jobs {
		return nil
	}
	return &Error{
		Code: connect.CodeInternal, Unknown: true,
		Message: fmt.Sprintf("the server answered %d of %d jobs of a batch: ask whether it is a Fairlead of this version", len(results), jobs),
	}
}
