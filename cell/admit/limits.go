package admit

import (
	"errors"
	"fmt"
	"time"
)

// Hard bounds that no configuration raises.
const (
	// PayloadBytesHard is the most that PayloadBytesMax can be set to: what is larger belongs in a store of its own, with a reference in the
	// payload.
	PayloadBytesHard = 1 << 20
	// DelayMax is how far ahead a job can be put off.
	DelayMax = 365 * 24 * time.Hour
	// AttemptsHard bounds a job's retry policy.
	AttemptsHard = 100
	// PriorityMax bounds a job's head start, in seconds either way.
	PriorityMax = 86_400
	// LabelsMax bounds a job's labels.
	LabelsMax = 16
	// LabelNameBytesMax bounds the name of a label.
	LabelNameBytesMax = 64
	// LabelValueBytesMax bounds the value of a label.
	LabelValueBytesMax = 256
	// ContentTypeBytesMax bounds the media type of a payload.
	ContentTypeBytesMax = 128
	// TraceparentBytesMax bounds the trace context.
	TraceparentBytesMax = 128
	// BatchMax bounds the jobs of one batch and the outcomes of one report.
	BatchMax = 500
	// PageMax bounds the jobs on a page of a list.
	PageMax = 500
	// PageDefault is the size of a page whose request does not say.
	PageDefault = 100
	// WaitMax bounds a long poll.
	WaitMax = 60 * time.Second
	// WaitDefault is how long a poll waits that does not say.
	WaitDefault = 20 * time.Second
	// LeaseMin is the shortest that a lease can be asked to last without an extension.
	LeaseMin = 5 * time.Second
	// LeaseMax is the longest that a lease can be asked to last without an extension.
	LeaseMax = time.Hour
	// LeaseDefault is how long a lease lasts whose worker does not say.
	LeaseDefault = 30 * time.Second
	// ExecutionMin is the shortest execution time-out.
	ExecutionMin = time.Second
	// ExecutionMax is the longest execution time-out.
	ExecutionMax = 24 * time.Hour
	// RetentionMax bounds how long an ended job is kept.
	RetentionMax = 30 * 24 * time.Hour
	// RoomMax bounds the slots, and the prefetch, of one worker session.
	RoomMax = 1000
)

// Limits are the bounds that a cell's operator may set.
type Limits struct {
	// PayloadBytesMax bounds a job's payload. Default 64 KiB, at most 1 MiB.
	PayloadBytesMax int
	// ResultBytesMax bounds a result. Default 64 KiB, at most 1 MiB.
	ResultBytesMax int
	// AttemptsDefault is the retry policy of a job that has none. Default 25.
	AttemptsDefault int32
	// RetryDelayMin and RetryDelayMax are the back-off of a job that has none. Defaults 1 s and 1 h.
	RetryDelayMin, RetryDelayMax time.Duration
	// ExecutionDefault is the execution time-out of a job that has none. Default 1 h.
	ExecutionDefault time.Duration
	// RetentionDefault is how long an ended job is kept that does not say. Default 24 h.
	RetentionDefault time.Duration
}

// DefaultLimits returns the limits that the fields' comments name.
func DefaultLimits() Limits {
	return Limits{
		PayloadBytesMax: 64 << 10, ResultBytesMax: 64 << 10, AttemptsDefault: 25,
		RetryDelayMin: time.Second, RetryDelayMax: time.Hour, ExecutionDefault: time.Hour, RetentionDefault: 24 * time.Hour,
	}
}

// Validate returns all faults of l together, and nil when there are none.
func (l Limits) Validate() error {
	var errs []error
	within := func(name string, v, lowest, highest int64) {
		if v < lowest || v > highest {
			errs = append(errs, fmt.Errorf("%s is %d, outside %d to %d", name, v, lowest, highest))
		}
	}
	within("payload_bytes_max", int64(l.PayloadBytesMax), 1, PayloadBytesHard)
	within("result_bytes_max", int64(l.ResultBytesMax), 1, PayloadBytesHard)
	within("attempts_default", int64(l.AttemptsDefault), 1, AttemptsHard)
	within("retry_delay_min", int64(l.RetryDelayMin), 0, int64(l.RetryDelayMax))
	within("retry_delay_max", int64(l.RetryDelayMax), 0, int64(DelayMax))
	within("execution_default", int64(l.ExecutionDefault), int64(ExecutionMin), int64(ExecutionMax))
	within("retention_default", int64(l.RetentionDefault), int64(time.Second), int64(RetentionMax))
	return errors.Join(errs...)
}
