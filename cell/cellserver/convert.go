package cellserver

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/admit"
	"github.com/fairlead/fairlead/cell/engine"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// contentTypeJSON is the media type of every JSON payload, contentTypeBytes that of bytes that do not say.
const (
	contentTypeJSON  = "application/json"
	contentTypeBytes = "application/octet-stream"
)

func classOf(field string, c fairleadv1.Class) (cell.Class, error) {
	switch c {
	case fairleadv1.Class_CLASS_UNSPECIFIED, fairleadv1.Class_CLASS_INTERACTIVE:
		return cell.ClassInteractive, nil
	case fairleadv1.Class_CLASS_BATCH:
		return cell.ClassBatch, nil
	default:
		return 0, &cell.FieldError{Field: field, Problem: fmt.Sprintf("is %d, which is no class", c), Remedy: "use interactive or batch"}
	}
}

func classTo(c cell.Class) fairleadv1.Class {
	if c == cell.ClassBatch {
		return fairleadv1.Class_CLASS_BATCH
	}
	return fairleadv1.Class_CLASS_INTERACTIVE
}

// stateTo relies on the API's states and the engine's having one order, which a test checks.
func stateTo(s engine.JobState) fairleadv1.JobState { return fairleadv1.JobState(s) }

func payloadOf(field string, p *fairleadv1.Payload) (engine.Payload, error) {
	switch b := p.GetBody().(type) {
	case nil:
		return engine.Payload{}, nil
	case *fairleadv1.Payload_Json:
		data := []byte(b.Json)
		if !json.Valid(data) {
			return engine.Payload{}, &cell.FieldError{
				Field: field + ".json", Problem: "is not a JSON document", Remedy: "send valid JSON, or data with a content type",
			}
		}
		if ct := p.GetContentType(); ct != "" && ct != contentTypeJSON {
			return engine.Payload{}, &cell.FieldError{
				Field: field + ".content_type", Problem: fmt.Sprintf("is %.40q beside json", ct), Remedy: "leave it out, or send data",
			}
		}
		return engine.Payload{Kind: engine.PayloadJSON, Data: data}, nil
	case *fairleadv1.Payload_Data:
		ct := p.GetContentType()
		if ct == contentTypeBytes {
			ct = ""
		}
		return engine.Payload{Kind: engine.PayloadData, ContentType: ct, Data: b.Data}, nil
	default:
		return engine.Payload{}, &cell.FieldError{Field: field, Problem: "has an unknown body", Remedy: "send json or data"}
	}
}

func payloadTo(p *engine.Payload) *fairleadv1.Payload {
	switch p.Kind {
	case engine.PayloadNone:
		return nil
	case engine.PayloadJSON:
		return &fairleadv1.Payload{Body: &fairleadv1.Payload_Json{Json: string(p.Data)}, ContentType: contentTypeJSON}
	case engine.PayloadData:
		ct := p.ContentType
		if ct == "" {
			ct = contentTypeBytes
		}
		return &fairleadv1.Payload{Body: &fairleadv1.Payload_Data{Data: p.Data}, ContentType: ct}
	default:
		return nil
	}
}

// under returns err with its field as part of what prefix names. Checks name a field from where they stand, and only the error of one gets the
// whole name: putting the names of all fields of all jobs together costs more than checking them.
func under(prefix string, err error) error {
	f, ok := errors.AsType[*cell.FieldError](err)
	if !ok {
		return err
	}
	return &cell.FieldError{Field: prefix + f.Field, Problem: f.Problem, Remedy: f.Remedy}
}

// instantOf returns a time as an instant, 0 for none. Times before 1970 and after 2262 are refused.
func instantOf(field string, t *timestamppb.Timestamp) (cell.Instant, error) {
	if t == nil {
		return 0, nil
	}
	if err := t.CheckValid(); err != nil || t.GetSeconds() <= 0 || t.GetSeconds() > math.MaxInt64/int64(time.Second)-1 {
		return 0, &cell.FieldError{Field: field, Problem: "is not a time from 1970 to 2262", Remedy: "give RFC 3339, such as 2027-01-31T08:00:00Z"}
	}
	return cell.InstantOf(t.AsTime()), nil
}

func timeTo(i cell.Instant) *timestamppb.Timestamp {
	if i == 0 {
		return nil
	}
	return timestamppb.New(i.Time())
}

// durationOf returns a duration, 0 for none. Negative ones are refused.
func durationOf(field string, d *durationpb.Duration) (time.Duration, error) {
	if d == nil {
		return 0, nil
	}
	if err := d.CheckValid(); err != nil || d.AsDuration() < 0 {
		return 0, &cell.FieldError{Field: field, Problem: "is negative or not a duration", Remedy: "give seconds with an s, such as 90s"}
	}
	return d.AsDuration(), nil
}

func durationTo(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// bodyHash tells another body under the same key. The key itself is no part of it; times that are relative count as they were sent, so that a
// repeated submission is the same.
func bodyHash(job *fairleadv1.JobSpec, buf []byte) ([16]byte, []byte) {
	key := job.GetIdempotencyKey()
	job.IdempotencyKey = ""
	buf, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(buf[:0], job)
	job.IdempotencyKey = key
	if err != nil {
		panic("cellserver: " + err.Error()) // it was decoded from the wire
	}
	sum := sha256.Sum256(buf)
	return [16]byte(sum[:16]), buf
}

// specOf makes s the job as it was submitted; what it leaves out is for the door to fill in. Its errors name fields as the job has them.
func specOf(now cell.Instant, job *fairleadv1.JobSpec, s *engine.Spec) error {
	*s = engine.Spec{
		Operation: cell.Operation(job.GetOperation()), Key: job.GetIdempotencyKey(), Priority: job.GetPriority(),
		Cost: cell.Cost(job.GetCost()), Traceparent: job.GetTraceparent(), Preemptible: job.GetPreemptible(),
		Retry: engine.Retry{AttemptsMax: job.GetRetry().GetAttemptsMax()},
	}
	for name, value := range job.GetLabels() {
		s.Labels = append(s.Labels, engine.Label{Name: name, Value: value})
	}
	for _, k := range job.GetConcurrencyKeys() {
		s.Keys = append(s.Keys, cell.ConcurrencyKey{Key: k.GetKey(), Max: k.GetMax()})
	}
	var err error
	if s.Resources, err = resourcesOf("resources", job.GetResources()); err != nil {
		return err
	}
	if s.Payload, err = payloadOf("payload", job.GetPayload()); err != nil {
		return err
	}
	if s.NotBefore, err = instantOf("not_before", job.GetNotBefore()); err != nil {
		return err
	}
	if s.Deadline, err = instantOf("deadline", job.GetDeadline()); err != nil {
		return err
	}
	for _, d := range []struct {
		field string
		from  *durationpb.Duration
		to    *time.Duration
	}{
		{"execution_timeout", job.GetExecutionTimeout(), &s.ExecutionTimeout},
		{"retention", job.GetRetention(), &s.Retention},
		{"retry.delay_min", job.GetRetry().GetDelayMin(), &s.Retry.DelayMin},
		{"retry.delay_max", job.GetRetry().GetDelayMax(), &s.Retry.DelayMax},
	} {
		if *d.to, err = durationOf(d.field, d.from); err != nil {
			return err
		}
	}
	delay, err := durationOf("delay", job.GetDelay())
	if err != nil {
		return err
	}
	if delay > 0 && s.NotBefore != 0 {
		return &cell.FieldError{Field: "delay", Problem: "stands beside not_before", Remedy: "give one of them"}
	}
	if delay > admit.DelayMax { // the door would name not_before, which was not given
		return &cell.FieldError{Field: "delay", Problem: fmt.Sprintf("is %v, of at most 365 days", delay), Remedy: "submit it later"}
	}
	if delay > 0 {
		s.NotBefore = now.Add(delay)
	}
	return nil
}

// resourcesOf returns a vector of resources, nil for none.
func resourcesOf(field string, amounts map[string]float64) (*cell.Resources, error) {
	if len(amounts) == 0 {
		return nil, nil //nolint:nilnil // nil is the vector of nothing
	}
	r, err := cell.ParseResources(field, amounts)
	if err != nil {
		return nil, err
	}
	return &r, nil
}

func resourcesTo(r *cell.Resources) map[string]float64 {
	if r == nil {
		return nil
	}
	return r.Map()
}

func keysTo(keys []cell.ConcurrencyKey) []*fairleadv1.ConcurrencyKey {
	var out []*fairleadv1.ConcurrencyKey
	for _, k := range keys {
		out = append(out, &fairleadv1.ConcurrencyKey{Key: k.Key, Max: k.Max})
	}
	return out
}

// jobTo returns a job as the API shows it.
func jobTo(j *engine.Job, whole bool) *fairleadv1.Job {
	m := &fairleadv1.Job{
		Id: j.ID.String(), Operation: string(j.Spec.Operation), Class: classTo(j.Lane.ID.Class), State: stateTo(j.State),
		IdempotencyKey: j.Spec.Key, Priority: j.Spec.Priority, Deadline: timeTo(j.Spec.Deadline),
		ExecutionTimeout: durationTo(j.Spec.ExecutionTimeout), Cost: int64(j.Spec.Cost),
		Retry: &fairleadv1.RetryPolicy{
			AttemptsMax: j.Spec.Retry.AttemptsMax, DelayMin: durationTo(j.Spec.Retry.DelayMin), DelayMax: durationTo(j.Spec.Retry.DelayMax),
		},
		Labels: labelsTo(j.Spec.Labels), Retention: durationTo(j.Spec.Retention), Traceparent: j.Spec.Traceparent,
		CreateTime: timeTo(j.Created), LeaseTime: timeTo(j.LeasedAt), FinishTime: timeTo(j.Finished),
		Attempt: j.Attempt, FailedAttempts: j.Failed, LostAttempts: j.Lost, ResultExpired: j.Dropped, Error: j.Error,
		Worker: j.Lease.Worker, ChargedCost: int64(j.Charged), ConcurrencyKeys: keysTo(j.Spec.Keys), Preemptible: j.Spec.Preemptible,
		Resources: resourcesTo(j.Spec.Resources), UsedResources: resourcesTo(j.Used),
	}
	if j.State == engine.Delayed {
		m.NotBefore = timeTo(j.WakeAt)
	} else {
		m.NotBefore = timeTo(j.Spec.NotBefore)
	}
	if !j.State.Ended() {
		m.FinishTime = nil
	}
	if whole && !j.Dropped {
		m.Payload, m.Result = payloadTo(&j.Spec.Payload), payloadTo(&j.Result)
	}
	return m
}

func labelsTo(ls []engine.Label) map[string]string {
	if len(ls) == 0 {
		return nil
	}
	m := make(map[string]string, len(ls))
	for _, l := range ls {
		m[l.Name] = l.Value
	}
	return m
}
