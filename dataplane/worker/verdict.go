package worker

import (
	"errors"
	"fmt"
	"time"
)

// Why a handler's context ended, as [context.Cause] returns it.
var (
	// ErrCancelled is the cause when the cell asked for the attempt to stop: the job was cancelled, it was preempted, or
	// somebody else has it.
	ErrCancelled = errors.New("job was cancelled")
	// ErrLeaseLost is the cause when the lease could not be extended in time: somebody else may have the job.
	ErrLeaseLost = errors.New("lease was lost")
	// ErrTimedOut is the cause when the attempt ran longer than the job's execution time-out.
	ErrTimedOut = errors.New("execution time-out")
	// ErrShutdown is the cause when the worker stops and the drain's time-out has passed. The job goes back free.
	ErrShutdown = errors.New("worker is shutting down")
)

// Fatal wraps err so that the job fails now: no retry can help.
func Fatal(err error) error { return &verdictError{err: err, fatal: true} }

// RetryAfter wraps err so that the next attempt comes d from now, whatever the job's retry policy says about the delay. The attempt
// counts.
func RetryAfter(err error, d time.Duration) error {
	return &verdictError{err: err, hasDelay: true, delay: max(0, d)}
}

// Snooze returns an error that hands the job back for d. The attempt does not count, so nothing ends a job that snoozes for ever but its
// deadline.
func Snooze(d time.Duration) error {
	return &verdictError{err: errors.New("snoozed"), snooze: true, delay: max(0, d)}
}

// verdictError is an error by which a handler says what is to become of the job.
type verdictError struct {
	err      error
	fatal    bool
	snooze   bool
	hasDelay bool
	delay    time.Duration
}

func (e *verdictError) Error() string {
	switch {
	case e.err == nil:
		return "unspecified error"
	case e.snooze:
		return fmt.Sprintf("%v for %v", e.err, e.delay)
	default:
		return e.err.Error()
	}
}

func (e *verdictError) Unwrap() error { return e.err }
