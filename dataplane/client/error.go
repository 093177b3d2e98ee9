package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/rejection"
)

// The kinds of [Error], for errors.Is.
var (
	// ErrInvalid is returned when a field of the request is outside its bounds; [Error.Field] names it.
	ErrInvalid = errors.New("invalid argument")
	// ErrNotFound is returned when there is no such job, or it is another tenant's.
	ErrNotFound = errors.New("not found")
	// ErrAlreadyExists is returned when the idempotency key stands for another job; [Error.ExistingJobID] names it.
	ErrAlreadyExists = errors.New("already exists")
	// ErrDenied is returned when the key does not allow the call.
	ErrDenied = errors.New("permission denied")
	// ErrUnauthenticated is returned when there is no key, or it is not a live one.
	ErrUnauthenticated = errors.New("unauthenticated")
	// ErrLimited is returned when the caller's own limit is met; [Error.Limit], Value, Bound and RetryAfter say which and for how long.
	ErrLimited = errors.New("limited")
	// ErrUnavailable is returned when the server could not be reached, or refused because it is overloaded.
	ErrUnavailable = errors.New("unavailable")
	// ErrNotNow is returned when the job's state does not allow the call, such as a retry of a running job.
	ErrNotNow = errors.New("not in the job's present state")
	// ErrAborted is returned when the lease is no longer the job's.
	ErrAborted = errors.New("aborted")
	// ErrClosed is returned after [Client.Close].
	ErrClosed = errors.New("client is closed")
)

// Error is why a call failed. It wraps the error of the transport, or the cause of the context's end.
type Error struct {
	Code          connect.Code
	Reason        string        // a stable word for programs, such as BACKLOG_JOBS_MAX
	Message       string        // for people: what happened, why, and what to do
	Field         string        // the field at fault, where one is
	Limit         string        // the limit that was met, where one was
	Scope         string        // whose limit it is: lane, tenant or cell
	Value         int64         // what it would have stood at
	Bound         int64         // what it may stand at
	RetryAfter    time.Duration // when it makes sense to try again; 0 when nobody said
	ExistingJobID string        // the job under the idempotency key

	// Unknown says that the call may have been applied. Repeating a submission with its key is safe then.
	Unknown bool

	cause error
}

func (e *Error) Error() string {
	s := e.Code.String() + ": " + e.Message
	if e.RetryAfter > 0 {
		s += fmt.Sprintf(" (try again in %v)", e.RetryAfter)
	}
	return s
}

// Unwrap returns the transport's error, or the cause of the context's end.
func (e *Error) Unwrap() error { return e.cause }

// Is reports whether target is the sentinel of e's code.
func (e *Error) Is(target error) bool {
	kind := kindOf(e.Code)
	return kind != nil && kind == target
}

func kindOf(code connect.Code) error {
	switch code {
	case connect.CodeInvalidArgument, connect.CodeOutOfRange:
		return ErrInvalid
	case connect.CodeNotFound:
		return ErrNotFound
	case connect.CodeAlreadyExists:
		return ErrAlreadyExists
	case connect.CodePermissionDenied:
		return ErrDenied
	case connect.CodeUnauthenticated:
		return ErrUnauthenticated
	case connect.CodeResourceExhausted:
		return ErrLimited
	case connect.CodeUnavailable:
		return ErrUnavailable
	case connect.CodeFailedPrecondition:
		return ErrNotNow
	case connect.CodeAborted:
		return ErrAborted
	case connect.CodeCanceled, connect.CodeUnknown, connect.CodeDeadlineExceeded, connect.CodeUnimplemented, connect.CodeInternal,
		connect.CodeDataLoss:
		return nil
	default:
		return nil
	}
}

// AsError returns err as an *[Error], whatever it is, with what the server said of it; nil for nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	ce, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return &Error{Code: codeOfContext(err), Message: err.Error(), Unknown: true, cause: err}
	}
	if r := rejection.From(err); r != nil {
		e := FromRejection(r)
		e.Code, e.cause = ce.Code(), err
		e.Unknown = mayBeApplied(ce, r)
		return e
	}
	return &Error{
		Code: ce.Code(), Message: ce.Message(), RetryAfter: retryAfterDate(ce.Meta()), Unknown: mayBeApplied(ce, nil), cause: err,
	}
}

// FromRejection returns the error for the item of a batch that was rejected with r.
func FromRejection(r *fairleadv1.Rejection) *Error {
	var code connect.Code
	if err := code.UnmarshalText([]byte(r.GetCode())); err != nil {
		code = connect.CodeUnknown
	}
	return &Error{
		Code: code, Reason: r.GetReason(), Message: r.GetMessage(), Field: r.GetField(), Limit: r.GetLimit(), Scope: r.GetScope(),
		Value: r.GetValue(), Bound: r.GetBound(), RetryAfter: max(0, r.GetRetryAfter().AsDuration()), ExistingJobID: r.GetExistingJobId(),
		Unknown: r.GetReason() == rejection.ReasonOutcomeUnknown,
	}
}

// mayBeApplied is false only where somebody said so: the server by a typed rejection, or a code that means that nothing was done.
func mayBeApplied(ce *connect.Error, r *fairleadv1.Rejection) bool {
	if r.GetReason() != "" {
		return r.GetReason() == rejection.ReasonOutcomeUnknown
	}
	switch ce.Code() {
	case connect.CodeCanceled, connect.CodeUnknown, connect.CodeDeadlineExceeded, connect.CodeInternal, connect.CodeUnavailable,
		connect.CodeDataLoss:
		return true
	case connect.CodeInvalidArgument, connect.CodeNotFound, connect.CodeAlreadyExists, connect.CodePermissionDenied,
		connect.CodeResourceExhausted, connect.CodeFailedPrecondition, connect.CodeAborted, connect.CodeOutOfRange,
		connect.CodeUnimplemented, connect.CodeUnauthenticated:
		return false
	default:
		return true
	}
}

// retryAfterDate reads the form of Retry-After that proxies send and Fairlead does not: a date.
func retryAfterDate(h http.Header) time.Duration {
	at, err := http.ParseTime(h.Get(rejection.HeaderRetryAfter))
	if err != nil {
		return 0
	}
	return max(0, time.Until(at))
}

func codeOfContext(err error) connect.Code {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return connect.CodeDeadlineExceeded
	case errors.Is(err, context.Canceled):
		return connect.CodeCanceled
	default:
		return connect.CodeUnknown
	}
}

// gaveUp is the error of a call whose caller's context ended; last is why the call had not succeeded by then, or nil.
func gaveUp(ctx context.Context, last *Error, unknown bool) *Error {
	cause := context.Cause(ctx)
	e := &Error{Code: codeOfContext(ctx.Err()), Message: cause.Error(), Unknown: unknown, cause: cause}
	if last != nil {
		e.Message = fmt.Sprintf("%v, after: %v", cause, last)
		e.RetryAfter, e.Reason, e.Limit, e.Scope, e.Value, e.Bound = last.RetryAfter, last.Reason, last.Limit, last.Scope, last.Value, last.Bound
		e.cause = errors.Join(cause, last)
	}
	return e
}

func badField(field, problem, remedy string) *Error {
	return &Error{
		Code: connect.CodeInvalidArgument, Reason: rejection.ReasonBadField, Field: field,
		Message: strings.Join([]string{field, " ", problem, ": ", remedy}, ""),
	}
}
