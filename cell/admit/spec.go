package admit

import (
	"fmt"
	"sort"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
)

// Spec fills in what the submission leaves to the cell, and returns a *cell.FieldError for the first thing that is out of its bounds. prefix
// stands before the names of fields, such as "job.".
func (l Limits) Spec(now cell.Instant, prefix string, s *engine.Spec) error {
	l.fill(s)
	checks := []func() error{
		func() error { return cell.CheckID(prefix+"operation", string(s.Operation)) },
		func() error { return l.payload(prefix+"payload", "payload_bytes_max", l.PayloadBytesMax, &s.Payload) },
		func() error { return key(prefix+"idempotency_key", s.Key) },
		func() error { return within(prefix+"priority", int64(s.Priority), -PriorityMax, PriorityMax, "s") },
		func() error { return times(now, prefix, s) },
		func() error { return span(prefix+"execution_timeout", s.ExecutionTimeout, ExecutionMin, ExecutionMax) },
		func() error { return cell.CheckCost(prefix+"cost", int64(s.Cost)) },
		func() error { return retry(prefix+"retry.", s.Retry) },
		func() error { return labels(prefix+"labels", s.Labels) },
		func() error { return span(prefix+"retention", s.Retention, time.Second, RetentionMax) },
		func() error { return text(prefix+"traceparent", s.Traceparent, TraceparentBytesMax) },
		func() error { return concurrencyKeys(prefix+"concurrency_keys", s.Keys) },
		func() error { return resources(prefix+"resources", s.Resources) },
	}
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (l Limits) fill(s *engine.Spec) {
	if s.ExecutionTimeout == 0 {
		s.ExecutionTimeout = l.ExecutionDefault
	}
	if s.Retention == 0 {
		s.Retention = l.RetentionDefault
	}
	if s.Retry.AttemptsMax == 0 {
		s.Retry.AttemptsMax = l.AttemptsDefault
	}
	if s.Retry.DelayMax == 0 {
		s.Retry.DelayMax = max(l.RetryDelayMax, s.Retry.DelayMin)
	}
	if s.Retry.DelayMin == 0 {
		s.Retry.DelayMin = min(l.RetryDelayMin, s.Retry.DelayMax)
	}
	sort.Slice(s.Labels, func(i, j int) bool { return s.Labels[i].Name < s.Labels[j].Name })
}

// Result returns a *cell.FieldError when a result is out of its bounds.
func (l Limits) Result(field string, p *engine.Payload) error {
	return l.payload(field, "result_bytes_max", l.ResultBytesMax, p)
}

func (l Limits) payload(field, limit string, bound int, p *engine.Payload) error {
	if len(p.Data) > bound {
		return &cell.FieldError{
			Field: field, Problem: fmt.Sprintf("has %d bytes, of at most %d (%s)", len(p.Data), bound, limit),
			Remedy: "keep it elsewhere and put a reference here",
		}
	}
	return text(field+".content_type", p.ContentType, ContentTypeBytesMax)
}

func key(field, k string) error {
	if k == "" {
		return nil
	}
	return cell.CheckID(field, k)
}

func times(now cell.Instant, prefix string, s *engine.Spec) error {
	if s.NotBefore > now.Add(DelayMax) {
		return &cell.FieldError{
			Field: prefix + "not_before", Problem: fmt.Sprintf("is %v ahead, of at most 365 days", s.NotBefore.Sub(now).Round(time.Hour)),
			Remedy: "submit it later",
		}
	}
	if s.Deadline != 0 && s.Deadline <= now {
		return &cell.FieldError{
			Field: prefix + "deadline", Problem: fmt.Sprintf("passed %v ago", now.Sub(s.Deadline).Round(time.Millisecond)),
			Remedy: "give a time to come, or none",
		}
	}
	if s.Deadline != 0 && s.Deadline <= s.NotBefore {
		return &cell.FieldError{
			Field: prefix + "deadline", Problem: "is not after not_before", Remedy: "leave it time to run between the two",
		}
	}
	return nil
}

func retry(prefix string, r engine.Retry) error {
	if err := within(prefix+"attempts_max", int64(r.AttemptsMax), 1, AttemptsHard, ""); err != nil {
		return err
	}
	if err := span(prefix+"delay_max", r.DelayMax, 0, DelayMax); err != nil {
		return err
	}
	return span(prefix+"delay_min", r.DelayMin, 0, r.DelayMax)
}

func labels(field string, ls []engine.Label) error {
	if len(ls) > LabelsMax {
		return &cell.FieldError{Field: field, Problem: fmt.Sprintf("has %d, of at most %d", len(ls), LabelsMax), Remedy: "use fewer"}
	}
	for _, l := range ls {
		if len(l.Name) > LabelNameBytesMax {
			return &cell.FieldError{
				Field: field, Problem: fmt.Sprintf("has a name of %d bytes, of at most %d", len(l.Name), LabelNameBytesMax),
				Remedy: "use a shorter name",
			}
		}
		if err := cell.CheckID(field, l.Name); err != nil {
			return err
		}
		if err := text(field+"."+l.Name, l.Value, LabelValueBytesMax); err != nil {
			return err
		}
	}
	return nil
}

func concurrencyKeys(field string, keys []cell.ConcurrencyKey) error {
	if len(keys) > cell.ConcurrencyKeysMax {
		return &cell.FieldError{
			Field: field, Problem: fmt.Sprintf("has %d, of at most %d", len(keys), cell.ConcurrencyKeysMax),
			Remedy: "bound the jobs by fewer, such as by the scarcest thing that they use",
		}
	}
	for i, k := range keys {
		at := fmt.Sprintf("%s[%d].", field, i)
		if err := cell.CheckID(at+"key", k.Key); err != nil {
			return err
		}
		if err := within(at+"max", k.Max, 1, cell.ConcurrencyMax, ""); err != nil {
			return err
		}
		for _, other := range keys[:i] {
			if other.Key == k.Key {
				return &cell.FieldError{Field: at + "key", Problem: fmt.Sprintf("%q is there twice", k.Key), Remedy: "give each key once"}
			}
		}
	}
	return nil
}

func resources(field string, r *cell.Resources) error {
	if r == nil {
		return nil
	}
	return r.Check(field)
}

// text returns a *cell.FieldError unless s is UTF-8 without control characters, and of at most bound bytes.
func text(field, s string, bound int) error {
	switch {
	case len(s) > bound:
		return &cell.FieldError{Field: field, Problem: fmt.Sprintf("has %d bytes, of at most %d", len(s), bound), Remedy: "shorten it"}
	case !utf8.ValidString(s):
		return &cell.FieldError{Field: field, Problem: "is not UTF-8", Remedy: "encode it as UTF-8"}
	case strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return &cell.FieldError{Field: field, Problem: "has a control character", Remedy: "leave it out"}
	default:
		return nil
	}
}

func within(field string, v, lowest, highest int64, unit string) error {
	if v < lowest || v > highest {
		return &cell.FieldError{
			Field: field, Problem: fmt.Sprintf("is %d%s, outside %d to %d", v, unit, lowest, highest), Remedy: "give one inside",
		}
	}
	return nil
}

func span(field string, d, lowest, highest time.Duration) error {
	if d < lowest || d > highest {
		return &cell.FieldError{
			Field: field, Problem: fmt.Sprintf("is %v, outside %v to %v", d, lowest, highest), Remedy: "give one inside, or none for the default",
		}
	}
	return nil
}

// Batch returns a *cell.FieldError unless a list in a request has at least one element and at most BatchMax.
func Batch(field string, n int) error {
	return within(field, int64(n), 1, BatchMax, " long")
}

// Page returns the size of a page, with the default for 0, and a *cell.FieldError when it is out of its bounds.
func Page(field string, n int32) (int, error) {
	if n == 0 {
		return PageDefault, nil
	}
	return int(n), within(field, int64(n), 1, PageMax, "")
}

// Wait returns how long a call may wait, with def for 0, and a *cell.FieldError when it is out of its bounds.
func Wait(field string, d, def time.Duration) (time.Duration, error) {
	if d == 0 {
		return def, nil
	}
	return d, span(field, d, 0, WaitMax)
}

// LeaseDuration returns how long leases last, with the default for 0, and a *cell.FieldError when it is out of its bounds.
func LeaseDuration(field string, d time.Duration) (time.Duration, error) {
	if d == 0 {
		return LeaseDefault, nil
	}
	return d, span(field, d, LeaseMin, LeaseMax)
}

// Room returns a *cell.FieldError unless a worker's slots or prefetch are in their bounds.
func Room(field string, n, lowest int64) error { return within(field, n, lowest, RoomMax, "") }
