package worker

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/dataplane/client"
)

// operationsMax is how many operations one worker may offer: the cell keeps an index by them.
const operationsMax = 64

// Registry holds the handlers of a worker by operation. Fill it before [New]; it is not safe for concurrent changes.
type Registry struct {
	handlers map[string]HandlerFunc
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry { return &Registry{handlers: make(map[string]HandlerFunc)} }

// Add registers h for operation. It returns a *[cell.FieldError] when operation is not an identifier, has a handler already, or is one
// too many.
func (r *Registry) Add(operation string, h HandlerFunc) error {
	if err := cell.CheckID("operation", operation); err != nil {
		return err
	}
	if r.handlers[operation] != nil {
		return &cell.FieldError{
			Field: "operation", Problem: fmt.Sprintf("%q has a handler already", operation), Remedy: "register each operation once",
		}
	}
	if len(r.handlers) == operationsMax {
		return &cell.FieldError{
			Field: "operation", Problem: fmt.Sprintf("%q would be one more than %d", operation, operationsMax), Remedy: "run another worker for it",
		}
	}
	if h == nil {
		return &cell.FieldError{Field: "handler", Problem: "of " + operation + " is nil", Remedy: "give a function"}
	}
	r.handlers[operation] = h
	return nil
}

// Operations returns the operations that have a handler, in order.
func (r *Registry) Operations() []string { return slices.Sorted(maps.Keys(r.handlers)) }

// Handle registers fn for operation: see [HandleResult]. The job has no result.
func Handle[T any](reg *Registry, operation string, fn func(ctx context.Context, job *Job[T]) error) {
	mustAdd(reg, operation, func(ctx context.Context, task *Task) (client.Payload, error) {
		job, err := decode[T](task)
		if err != nil {
			return client.Payload{}, err
		}
		return client.Payload{}, fn(ctx, job)
	})
}

// HandleResult registers fn for operation. The payload is decoded from JSON into T, unless T is []byte, which gets the document's text or
// the bytes, or [client.Payload]. What fn returns is the job's result: as JSON, unless R is []byte or [client.Payload].
//
// A payload that does not fit T fails the attempt like any error, since the next version of the worker may know it. HandleResult panics
// when [Registry.Add] refuses.
func HandleResult[T, R any](reg *Registry, operation string, fn func(ctx context.Context, job *Job[T]) (R, error)) {
	mustAdd(reg, operation, func(ctx context.Context, task *Task) (client.Payload, error) {
		job, err := decode[T](task)
		if err != nil {
			return client.Payload{}, err
		}
		result, err := fn(ctx, job)
		if err != nil {
			return client.Payload{}, err
		}
		switch r := any(result).(type) {
		case client.Payload:
			return r, nil
		case []byte:
			return client.Bytes("", r), nil
		default:
			return client.JSON(r), nil
		}
	})
}

func mustAdd(reg *Registry, operation string, h HandlerFunc) {
	if err := reg.Add(operation, h); err != nil {
		panic("worker: " + err.Error())
	}
}

func decode[T any](task *Task) (*Job[T], error) {
	job := &Job[T]{Task: task}
	switch args := any(&job.Args).(type) {
	case *client.Payload:
		*args = task.Payload
	case *[]byte:
		*args = task.Payload.Body()
	default:
		if err := task.Payload.Decode(args); err != nil {
			return nil, fmt.Errorf("payload does not fit %T: %w", job.Args, err)
		}
	}
	return job, nil
}
