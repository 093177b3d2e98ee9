package worker

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/dataplane/client"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// Task is one attempt of a job, as a handler is given it. It is read-only.
type Task struct {
	ID               string
	Tenant           string
	Operation        string
	Class            cell.Class
	Payload          client.Payload
	Attempt          int // 1 for the first
	Labels           map[string]string
	Traceparent      string        // the W3C trace context of the submission; empty when there was none
	CreateTime       time.Time     // when the job was accepted
	NotBefore        time.Time     // when it was allowed to run; zero when it always was
	Deadline         time.Time     // until when it was worth starting; zero when always
	ExecutionTimeout time.Duration // how long this attempt may run; 0 when there is no bound
}

// Job is a [Task] whose payload was decoded into Args.
type Job[T any] struct {
	*Task
	Args T
}

// HandlerFunc runs one attempt. It returns the job's result, or the zero payload for none.
//
// An error fails the attempt, and the job's retry policy decides about another; [Fatal], [RetryAfter] and [Snooze] say otherwise. The context
// ends when the attempt is to stop; [context.Cause] says why. It may be called concurrently.
type HandlerFunc func(ctx context.Context, task *Task) (client.Payload, error)

// Middleware wraps every handler of a worker, for what they have in common: tracing, metrics, transactions.
type Middleware func(next HandlerFunc) HandlerFunc

func taskOf(l *fairleadv1.JobLease) *Task {
	t := &Task{
		ID:               l.GetJobId(),
		Tenant:           l.GetTenant(),
		Operation:        l.GetOperation(),
		Class:            cell.Class(l.GetClass()), // the numbers are the same
		Payload:          client.PayloadOf(l.GetPayload()),
		Attempt:          int(l.GetAttempt()),
		Labels:           l.GetLabels(),
		Traceparent:      l.GetTraceparent(),
		ExecutionTimeout: l.GetExecutionTimeout().AsDuration(),
	}
	if l.CreateTime != nil {
		t.CreateTime = l.CreateTime.AsTime()
	}
	if l.NotBefore != nil {
		t.NotBefore = l.NotBefore.AsTime()
	}
	if l.Deadline != nil {
		t.Deadline = l.Deadline.AsTime()
	}
	return t
}
