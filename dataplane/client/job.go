package client

import (
	"crypto/rand"
	"fmt"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fairlead/fairlead/cell"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// Job is a job to submit. Only Operation is required; the zero value of every other field means the server's default, which
// [fairleadv1.JobSpec] states with the bounds.
type Job struct {
	Operation        string            // the kind of job, which a worker registers a handler for
	Class            cell.Class        // interactive when 0
	Payload          Payload           // what the handler gets
	IdempotencyKey   string            // makes a repeated submission return the first one's job; made by the client when empty
	Priority         time.Duration     // head start in the tenant's own queue, in whole seconds; negative stands back
	NotBefore        time.Time         // not to be run before; only one of NotBefore and Delay
	Delay            time.Duration     // not to be run until this long from now
	Deadline         time.Time         // expires when it still waits then
	ExecutionTimeout time.Duration     // how long one attempt may run
	Cost             int64             // estimated cost in micro-units of the cell's cost unit
	Retry            RetryPolicy       // how often and how soon a failed attempt is followed by another
	Labels           map[string]string // for people and filters
	Retention        time.Duration     // how long the finished job and its result are kept
	Traceparent      string            // the W3C trace context to hand to the worker

	// ConcurrencyKeys each bound how many of the tenant's jobs that carry the key run at a time; at most 4.
	ConcurrencyKeys []cell.ConcurrencyKey
	// Resources is what it is expected to use, by resource, such as tokens, in the resource's own unit.
	Resources map[string]float64
	// Preemptible jobs may be stopped so that another class gets back what it lent. They run again, and no attempt is spent.
	Preemptible bool
}

// RetryPolicy says how often and how soon a failed attempt is followed by another.
type RetryPolicy struct {
	AttemptsMax int           // 25 when 0
	DelayMin    time.Duration // 1 s when 0; doubles from there
	DelayMax    time.Duration // 1 h when 0
}

// Submitted is a job that was accepted durably.
type Submitted struct {
	ID             string
	State          fairleadv1.JobState
	Duplicate      bool   // the key had been used with the same job: this is that job
	IdempotencyKey string // the one sent
}

// NewIdempotencyKey returns a key that no other submission has: 128 random bits.
func NewIdempotencyKey() string { return rand.Text() }

// spec returns the wire form of j, with a key. It checks what would otherwise spoil a whole batch, namely text that is not UTF-8; the rest
// is the server's to judge, job by job.
func (j *Job) spec() (*fairleadv1.JobSpec, error) {
	payload, err := j.Payload.Proto()
	if err != nil {
		return nil, err
	}
	if j.Priority%time.Second != 0 {
		return nil, badField("job.priority", fmt.Sprintf("is %v", j.Priority), "give whole seconds")
	}
	s := &fairleadv1.JobSpec{
		Operation:        j.Operation,
		Class:            classProto(j.Class),
		Payload:          payload,
		IdempotencyKey:   j.IdempotencyKey,
		Priority:         clampInt32(int64(j.Priority / time.Second)),
		NotBefore:        timeProto(j.NotBefore),
		Delay:            durationProto(j.Delay),
		Deadline:         timeProto(j.Deadline),
		ExecutionTimeout: durationProto(j.ExecutionTimeout),
		Cost:             j.Cost,
		Labels:           j.Labels,
		Retention:        durationProto(j.Retention),
		Traceparent:      j.Traceparent,
		Resources:        j.Resources,
		Preemptible:      j.Preemptible,
	}
	for _, k := range j.ConcurrencyKeys {
		s.ConcurrencyKeys = append(s.ConcurrencyKeys, &fairleadv1.ConcurrencyKey{Key: k.Key, Max: k.Max})
	}
	if s.IdempotencyKey == "" {
		s.IdempotencyKey = NewIdempotencyKey()
	}
	if j.Retry != (RetryPolicy{}) {
		s.Retry = &fairleadv1.RetryPolicy{
			AttemptsMax: clampInt32(int64(j.Retry.AttemptsMax)), DelayMin: durationProto(j.Retry.DelayMin), DelayMax: durationProto(j.Retry.DelayMax),
		}
	}
	return s, checkText(s)
}

func checkText(s *fairleadv1.JobSpec) error {
	const remedy = "encode it as UTF-8"
	switch {
	case !utf8.ValidString(s.Operation):
		return badField("job.operation", "is not UTF-8", remedy)
	case !utf8.ValidString(s.IdempotencyKey):
		return badField("job.idempotency_key", "is not UTF-8", remedy)
	case !utf8.ValidString(s.Traceparent):
		return badField("job.traceparent", "is not UTF-8", remedy)
	}
	for _, k := range s.ConcurrencyKeys {
		if !utf8.ValidString(k.GetKey()) {
			return badField("job.concurrency_keys", fmt.Sprintf("has %.64q, which is not UTF-8", k.GetKey()), remedy)
		}
	}
	for name := range s.Resources {
		if !utf8.ValidString(name) {
			return badField("job.resources", fmt.Sprintf("has %.64q, which is not UTF-8", name), remedy)
		}
	}
	for name, value := range s.Labels {
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return badField("job.labels", fmt.Sprintf("has %.64q, which is not UTF-8", name), remedy)
		}
	}
	return nil
}

// specBytes is close to the encoded size of s, and never far below it: the variable parts, and as much as the fixed ones can take.
func specBytes(s *fairleadv1.JobSpec) int {
	const fixed = 160
	n := fixed + len(s.Operation) + len(s.IdempotencyKey) + len(s.Traceparent) + len(s.GetPayload().GetContentType()) +
		len(s.GetPayload().GetJson()) + len(s.GetPayload().GetData())
	for name, value := range s.Labels {
		n += len(name) + len(value) + 8
	}
	for _, k := range s.ConcurrencyKeys {
		n += len(k.GetKey()) + 16
	}
	for name := range s.Resources {
		n += len(name) + 16
	}
	return n
}

func classProto(c cell.Class) fairleadv1.Class {
	switch c {
	case cell.ClassInteractive:
		return fairleadv1.Class_CLASS_INTERACTIVE
	case cell.ClassBatch:
		return fairleadv1.Class_CLASS_BATCH
	default:
		return fairleadv1.Class(c) // 0 is unspecified; anything else is refused by the server, which names the field
	}
}

func timeProto(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func durationProto(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// clampInt32 keeps what does not fit out of bounds, so that the server refuses it instead of seeing another number.
func clampInt32(n int64) int32 {
	const limit = 1<<31 - 1
	return int32(max(-limit, min(limit, n)))
}

// checkJobID refuses only what has no wire form. What an id looks like is the server's to say.
func checkJobID(id string) error {
	if !utf8.ValidString(id) {
		return badField("job_id", "is not UTF-8", "give it as it was returned on submission")
	}
	return nil
}

// Ended reports whether a job in state s is over, one way or another.
func Ended(s fairleadv1.JobState) bool {
	switch s {
	case fairleadv1.JobState_JOB_STATE_SUCCEEDED, fairleadv1.JobState_JOB_STATE_FAILED, fairleadv1.JobState_JOB_STATE_CANCELLED,
		fairleadv1.JobState_JOB_STATE_EXPIRED, fairleadv1.JobState_JOB_STATE_QUARANTINED:
		return true
	case fairleadv1.JobState_JOB_STATE_UNSPECIFIED, fairleadv1.JobState_JOB_STATE_DELAYED, fairleadv1.JobState_JOB_STATE_READY,
		fairleadv1.JobState_JOB_STATE_LEASED:
		return false
	default:
		return false
	}
}
