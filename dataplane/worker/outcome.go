package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/dataplane/client"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// The bounds of what an outcome carries, which are the cell's.
const (
	// ResultBytesMax bounds a result. A larger one fails the job for good: its work is done, and doing it again would end the same way.
	ResultBytesMax = 64 << 10
	// ErrorBytesMax bounds the text of a failure; the rest is cut off.
	ErrorBytesMax = 8 << 10

	stackBytesMax = 4 << 10
)

// Verdict is what becomes of an attempt.
type Verdict uint8

// The verdicts.
const (
	VerdictSuccess Verdict = iota + 1 // the job ends with a result
	VerdictFailure                    // the attempt counts
	VerdictRelease                    // the job goes back, and the attempt does not count
)

func (v Verdict) String() string {
	switch v {
	case VerdictSuccess:
		return "success"
	case VerdictFailure:
		return "failure"
	case VerdictRelease:
		return "release"
	default:
		return fmt.Sprintf("verdict(%d)", uint8(v))
	}
}

// Outcome is what came of one attempt, as it is reported.
type Outcome struct {
	Verdict    Verdict
	Result     client.Payload // of a success; may be none
	Error      string         // of a failure
	Fatal      bool           // of a failure: no further attempt
	RetryAfter *time.Duration // of a failure: overrides the job's back-off, when set
	Delay      time.Duration  // of a release: not to be run until then
	RunTime    time.Duration  // how long the handler ran
	Used       cell.Resources // what it said it used, see [Use]
	UsageFault string         // what of that was not understood, if anything
}

// Execute runs task as a [Worker] would: through middleware, of which the first is the outermost, with the task's execution time-out, and
// with panics turned into failures. It returns a failure when reg has no handler for the task's operation.
func Execute(ctx context.Context, reg *Registry, task *Task, middleware ...Middleware) Outcome {
	h := reg.handlers[task.Operation]
	if h == nil {
		return Outcome{Verdict: VerdictFailure, Error: "no handler for operation " + task.Operation}
	}
	done := make(chan Outcome, 1)
	go func() {
		// On a goroutine of its own, since a handler may end the one it is on.
		out := exitedOutcome
		defer func() { done <- out }()
		execute(ctx, wrap(h, middleware), task, &out)
	}()
	return <-done
}

func wrap(h HandlerFunc, middleware []Middleware) HandlerFunc {
	for _, m := range slices.Backward(middleware) {
		h = m(h)
	}
	return h
}

// exitedOutcome is what stands when a handler never returned: it ended its goroutine.
var exitedOutcome = Outcome{Verdict: VerdictFailure, Error: "handler ended its goroutine (runtime.Goexit): return an error instead"}

// execute runs h and sets *out once it has returned or panicked. It leaves *out alone when h ends the goroutine.
func execute(ctx context.Context, h HandlerFunc, task *Task, out *Outcome) {
	if task.ExecutionTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, task.ExecutionTimeout, ErrTimedOut)
		defer cancel()
	}
	began := time.Now()
	within := &attemptContext{Context: ctx}
	defer func() {
		if p := recover(); p != nil {
			*out = Outcome{Verdict: VerdictFailure, Error: clip(fmt.Sprintf("panic: %v\n%s", p, panicStack()))}
		}
		out.RunTime = time.Since(began)
		var fault error
		if out.Used, fault = within.usage.take(); fault != nil {
			out.UsageFault = clip(fault.Error())
		}
	}()
	result, err := h(within, task)
	*out = outcomeOf(result, err, context.Cause(ctx), task)
}

// outcomeOf judges what a handler returned. What it did counts more than why it was told to stop: a success is one even after the
// time-out. An error after the lease's or the worker's end is taken to come from that, and spends no attempt.
func outcomeOf(result client.Payload, err, cause error, task *Task) Outcome {
	if err == nil {
		return successOf(result)
	}
	if v, ok := errors.AsType[*verdictError](err); ok {
		switch {
		case v.snooze:
			return Outcome{Verdict: VerdictRelease, Delay: v.delay}
		case v.hasDelay:
			return Outcome{Verdict: VerdictFailure, Error: clip(err.Error()), RetryAfter: &v.delay}
		default:
			return Outcome{Verdict: VerdictFailure, Error: clip(err.Error()), Fatal: v.fatal}
		}
	}
	switch {
	case errors.Is(cause, ErrTimedOut):
		return Outcome{Verdict: VerdictFailure, Error: clip(fmt.Sprintf("execution time-out of %v: %v", task.ExecutionTimeout, err))}
	case errors.Is(cause, ErrShutdown), errors.Is(cause, ErrLeaseLost), errors.Is(cause, ErrCancelled):
		return Outcome{Verdict: VerdictRelease}
	default:
		return Outcome{Verdict: VerdictFailure, Error: clip(err.Error())}
	}
}

func successOf(result client.Payload) Outcome {
	_, err := result.Proto()
	if n := len(result.Body()); err == nil && n > ResultBytesMax {
		err = fmt.Errorf("has %d bytes, of at most %d: store it elsewhere and return where", n, ResultBytesMax)
	}
	if err != nil {
		return Outcome{Verdict: VerdictFailure, Fatal: true, Error: clip(fmt.Sprintf("result: %v", err))}
	}
	return Outcome{Verdict: VerdictSuccess, Result: result}
}

// proto returns the outcome of the lease l in its wire form.
func (o Outcome) proto(l *fairleadv1.JobLease) *fairleadv1.Outcome {
	p := &fairleadv1.Outcome{JobId: l.GetJobId(), Token: l.GetToken()}
	if o.RunTime > 0 {
		p.RunTime = durationpb.New(o.RunTime)
	}
	p.Resources = o.Used.Map()
	switch o.Verdict {
	case VerdictSuccess:
		s := &fairleadv1.Success{}
		if result, err := o.Result.Proto(); err == nil { // successOf has seen to that
			s.Result = result
		}
		p.Result = &fairleadv1.Outcome_Success{Success: s}
	case VerdictFailure:
		f := &fairleadv1.Failure{Error: o.Error, Fatal: o.Fatal}
		if o.RetryAfter != nil {
			f.RetryAfter = durationpb.New(*o.RetryAfter)
		}
		p.Result = &fairleadv1.Outcome_Failure{Failure: f}
	case VerdictRelease:
		r := &fairleadv1.Release{}
		if o.Delay > 0 {
			r.Delay = durationpb.New(o.Delay)
		}
		p.Result = &fairleadv1.Outcome_Release{Release: r}
	default:
		panic(fmt.Sprintf("worker: outcome of job %s has %v", l.GetJobId(), o.Verdict))
	}
	return p
}

// clip makes s valid UTF-8 of at most [ErrorBytesMax] bytes.
func clip(s string) string {
	const mark = " ... (cut)"
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= ErrorBytesMax {
		return s
	}
	return strings.ToValidUTF8(s[:ErrorBytesMax-len(mark)], "") + mark
}

// panicStack returns the frames from the one that panicked.
func panicStack() string {
	s := string(debug.Stack())
	if _, after, ok := strings.Cut(s, "\npanic("); ok {
		if _, frames, ok := strings.Cut(after, "\n"); ok { // the arguments of panic
			if _, frames, ok = strings.Cut(frames, "\n"); ok { // and its file
				s = frames
			}
		}
	}
	if len(s) > stackBytesMax {
		s = s[:stackBytesMax]
	}
	return s
}
