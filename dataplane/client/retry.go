package client

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"connectrpc.com/connect"
)

// Backoff says how long to wait between tries: full jitter (Brooker, "Exponential Backoff And Jitter", 2015) over a bound that doubles.
type Backoff struct {
	Min time.Duration // the bound before the second try
	Max time.Duration // the highest bound
}

// Next returns how long to wait after the n-th try in a row failed, n from 1: not less than retryAfter, which the server asked for.
func (b Backoff) Next(n int, retryAfter time.Duration) time.Duration {
	bound := b.Min
	for ; n > 1 && bound < b.Max; n-- {
		bound *= 2
	}
	bound = max(1, min(bound, b.Max))
	return max(0, retryAfter) + rand.N(bound)
}

// retrier repeats calls within a budget, a bucket of tokens: each fresh call adds a part of one, each repetition takes one.
type retrier struct {
	backoff        Backoff
	attemptsMax    int
	attemptTimeout time.Duration
	ratio          float64 // what a fresh call adds
	floor          float64 // what a second adds
	burst          float64 // the bucket's size

	mu     sync.Mutex
	tokens float64
	at     time.Time
}

func newRetrier(cfg Config) *retrier {
	return &retrier{
		backoff: Backoff{Min: cfg.RetryDelayMin, Max: cfg.RetryDelayMax}, attemptsMax: cfg.AttemptsMax, attemptTimeout: cfg.AttemptTimeout,
		ratio: cfg.RetryRatio, floor: cfg.RetryFloor, burst: cfg.RetryBurst, tokens: cfg.RetryBurst, at: time.Now(),
	}
}

func (r *retrier) fresh(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tokens = min(r.burst, r.tokens+r.ratio*float64(n))
}

func (r *retrier) take() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.tokens = min(r.burst, r.tokens+r.floor*now.Sub(r.at).Seconds())
	r.at = now
	if r.tokens < 1 {
		return false
	}
	r.tokens--
	return true
}

// pause waits before try n+1 and returns true, or returns false when there is to be none: e is definite, the tries or the budget are
// spent, or ctx ends first.
func (r *retrier) pause(ctx context.Context, n int, e *Error) bool {
	if n >= r.attemptsMax || !Transient(e) || ctx.Err() != nil {
		return false
	}
	d := r.backoff.Next(n, e.RetryAfter)
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < d {
		return false // it would only end with a less telling error
	}
	return r.take() && Pause(ctx, d) == nil
}

// Transient reports whether repeating the call may help: the server was not reached, did not answer, or said when to come back. It is
// false for what is definite.
func Transient(e *Error) bool {
	switch e.Code {
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded:
		return true
	case connect.CodeResourceExhausted, connect.CodeAborted:
		return e.RetryAfter > 0
	case connect.CodeCanceled, connect.CodeUnknown, connect.CodeInternal:
		// Said by a server, these are its last word. Made on this side, they are a connection that broke.
		return e.cause != nil && !connect.IsWireError(e.cause)
	case connect.CodeInvalidArgument, connect.CodeNotFound, connect.CodeAlreadyExists, connect.CodePermissionDenied,
		connect.CodeFailedPrecondition, connect.CodeOutOfRange, connect.CodeUnimplemented, connect.CodeDataLoss,
		connect.CodeUnauthenticated:
		return false
	default:
		return false
	}
}

// call makes a unary call, again while that may help. timeout bounds each try.
func call[Q, A any](ctx context.Context, r *retrier, timeout time.Duration, do func(context.Context, Q) (A, error), req Q) (A, error) {
	var none A
	unknown := false
	for n := 1; ; n++ {
		attempt, cancel := context.WithTimeout(ctx, timeout)
		answer, err := do(attempt, req)
		cancel()
		if err == nil {
			return answer, nil
		}
		e := AsError(err)
		unknown = unknown || e.Unknown
		if ctx.Err() != nil {
			return none, gaveUp(ctx, nil, unknown)
		}
		if !r.pause(ctx, n, e) {
			if ctx.Err() != nil {
				return none, gaveUp(ctx, e, unknown)
			}
			e.Unknown = e.Unknown || unknown && Transient(e)
			return none, e
		}
	}
}

// Pause waits for d, or until ctx ends, of which it returns the cause: what stands between two tries.
func Pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
