// Package workertest runs the handlers of a worker in tests, without a server.
//
// A task takes the way it takes in a [worker.Worker]: through the middleware, the decoding of the payload, the execution time-out and the
// panic barrier. What comes back is what would have been reported. It holds nothing between calls, and fails no test by itself.
package workertest

import (
	"context"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/dataplane/client"
	"github.com/fairlead/fairlead/dataplane/worker"
)

// Option changes how a task is run.
type Option func(*run)

type run struct {
	ctx        func(context.Context) context.Context
	task       worker.Task
	middleware []worker.Middleware
}

// WithTask changes the task before it runs: its attempt, tenant, labels, execution time-out.
func WithTask(change func(*worker.Task)) Option { return func(r *run) { change(&r.task) } }

// WithMiddleware wraps the handler, the first outermost, after any middleware of earlier options.
func WithMiddleware(m ...worker.Middleware) Option {
	return func(r *run) { r.middleware = append(r.middleware, m...) }
}

// WithContext derives the handler's context from the test's, such as one that is cancelled with [worker.ErrCancelled].
func WithContext(derive func(context.Context) context.Context) Option {
	return func(r *run) { r.ctx = derive }
}

// Run runs the handler that reg has for operation and returns the outcome. The job is the first attempt of an interactive one of tenant
// "test", unless options say otherwise. The context ends with the test.
func Run(tb testing.TB, reg *worker.Registry, operation string, payload client.Payload, options ...Option) worker.Outcome {
	tb.Helper()
	r := &run{
		ctx: func(ctx context.Context) context.Context { return ctx },
		task: worker.Task{
			ID: "job_00000000-0000-7000-8000-000000000001", Tenant: "test", Operation: operation, Class: cell.ClassInteractive,
			Payload: payload, Attempt: 1, CreateTime: time.Now(), ExecutionTimeout: time.Hour,
		},
	}
	for _, o := range options {
		o(r)
	}
	return worker.Execute(r.ctx(tb.Context()), reg, &r.task, r.middleware...)
}

// RunFunc is [Run] for a handler that is in no registry, such as one of [worker.Exec] or [worker.HTTP].
func RunFunc(tb testing.TB, h worker.HandlerFunc, payload client.Payload, options ...Option) worker.Outcome {
	tb.Helper()
	const operation = "test"
	reg := worker.NewRegistry()
	if err := reg.Add(operation, h); err != nil {
		tb.Fatalf("workertest: %v", err)
	}
	return Run(tb, reg, operation, payload, options...)
}
