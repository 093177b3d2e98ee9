package engine

import (
	"errors"
	"fmt"
	"time"
)

// Limits bound what one cell keeps. They are checked by the leader before a fact is logged and again by Apply. They are part of the state: a
// LimitsFact changes them, and a snapshot carries them.
type Limits struct {
	// LiveJobsMax and LiveBytesMax bound the jobs that have not ended, in the whole cell and, until a tenant's policy lowers it, in each lane.
	// Beyond them a submission gets a typed refusal. Defaults 2,000,000 and 4 GiB.
	LiveJobsMax, LiveBytesMax int64
	// FinishedBytesMax bounds the ended jobs that a lane keeps for their results. Beyond it the oldest loses its payload and result, and
	// says so. Default 64 MiB.
	FinishedBytesMax int64
	// FinishedJobsMax bounds their number. Beyond it the oldest is forgotten; its key stays. Default 100,000.
	FinishedJobsMax int64
	// KeyRecordsMax bounds the idempotency keys of a cell, at about 200 bytes each. Beyond it keyed submissions get a typed refusal: a
	// key never expires early. Default 8,000,000.
	KeyRecordsMax int64
	// KeyWindow is how long a key outlives its job's end; a change holds for the jobs that end after it, and no key expires before an older
	// one. Default 24 h.
	KeyWindow time.Duration
	// CrashesMax quarantines a job that took that many workers down with it. Default 3.
	CrashesMax int32
	// ErrorBytesMax cuts the text of a failure. Default 8 KiB.
	ErrorBytesMax int
	// FinishedCellBytesMax bounds the ended jobs of all lanes together. Beyond it the lane that keeps most loses its oldest, so that many
	// lanes within their bounds cannot fill the machine. Default 2 GiB; 0 means as much as LiveBytesMax.
	FinishedCellBytesMax int64
	// TimersPerEntryMax bounds the timers that one entry fires, so that no entry takes long; the next entry goes on. Default 4,096.
	TimersPerEntryMax int
	// EstimatesMax bounds the operations of a tenant whose costs are learned, at about 200 bytes each. Beyond it the one whose last end is the
	// oldest is forgotten, and learned anew. Default 64, which is also the most: whoever schedules by them looks through them one by one. 0 means
	// the default.
	EstimatesMax int
}

// estimatesHard is the most that Limits.EstimatesMax may be, and its default.
const estimatesHard = 64

// DefaultLimits returns the limits that the fields' comments name.
func DefaultLimits() Limits {
	return Limits{
		LiveJobsMax: 2_000_000, LiveBytesMax: 4 << 30,
		FinishedBytesMax: 64 << 20, FinishedJobsMax: 100_000, FinishedCellBytesMax: 2 << 30,
		KeyRecordsMax: 8_000_000, KeyWindow: 24 * time.Hour,
		CrashesMax: 3, ErrorBytesMax: 8 << 10, TimersPerEntryMax: 4096, EstimatesMax: estimatesHard,
	}
}

// Validate returns all faults of l together, and nil when there are none.
func (l Limits) Validate() error {
	var errs []error
	positive := func(name string, v int64) {
		if v <= 0 {
			errs = append(errs, fmt.Errorf("%s is %d: it must be above 0", name, v))
		}
	}
	positive("live_jobs_max", l.LiveJobsMax)
	positive("live_bytes_max", l.LiveBytesMax)
	positive("finished_bytes_max", l.FinishedBytesMax)
	positive("finished_jobs_max", l.FinishedJobsMax)
	if l.FinishedCellBytesMax < 0 {
		errs = append(errs, fmt.Errorf("finished_cell_bytes_max is %d: it must not be below 0", l.FinishedCellBytesMax))
	}
	positive("key_records_max", l.KeyRecordsMax)
	positive("key_window", int64(l.KeyWindow))
	positive("crashes_max", int64(l.CrashesMax))
	positive("error_bytes_max", int64(l.ErrorBytesMax))
	positive("timers_per_entry_max", int64(l.TimersPerEntryMax))
	if l.EstimatesMax < 0 || l.EstimatesMax > estimatesHard {
		errs = append(errs, fmt.Errorf("estimates_max is %d: give 0 to %d", l.EstimatesMax, estimatesHard))
	}
	return errors.Join(errs...)
}

// finishedCellBytes is FinishedCellBytesMax, or what stands in for it.
func (l *Limits) finishedCellBytes() int64 {
	if l.FinishedCellBytesMax == 0 {
		return l.LiveBytesMax
	}
	return l.FinishedCellBytesMax
}

// estimates is EstimatesMax, or what stands in for it.
func (l *Limits) estimates() int {
	if l.EstimatesMax == 0 {
		return estimatesHard
	}
	return l.EstimatesMax
}
