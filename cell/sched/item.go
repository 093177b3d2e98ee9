package sched

import (
	"bytes"
	"cmp"
	"math"

	"github.com/fairlead/fairlead/cell"
)

// Item is a ready job as far as its turn is concerned.
type Item struct {
	ID        cell.JobID
	Lane      cell.Lane
	Operation cell.Operation
	Seq       uint64       // order of acceptance
	Created   cell.Instant // when it was accepted; a retry keeps its place
	Priority  int32        // seconds of head start
	Deadline  cell.Instant // 0 for none
	// Cost is what its sender says that it costs, 0 for nothing. It counts only until the tenant's jobs of the operation have told better.
	Cost  cell.Cost
	Bytes int64 // its payload, for bounding what one answer carries
	// Keys bound how many jobs that carry them are held at once. The slice is kept and must not change.
	Keys []cell.ConcurrencyKey
	// Preemptible says that a lease of it may be revoked when the class that its slot is borrowed from wants it back.
	Preemptible bool
}

// job is what the scheduler knows of a job that waits or is held.
type job struct {
	Item

	// head is when the job counts as having come: its head start makes it older, so that every job comes to the front in the end and
	// nothing starves. Under FIFO it is the order of acceptance.
	head   cell.Instant
	owner  *tenant
	strand *strand // where it waits for its turn; nil when it does not
	lease  *lease  // what is held of it
	at     int32   // in strand.jobs
	parked bool    // it waits for its turn again, but its last lease has yet to be dropped
}

// waits reports whether the job waits.
func (j *job) waits() bool { return j.strand != nil || j.parked }

func (j *job) late(now cell.Instant) bool { return j.Deadline != 0 && j.Deadline <= now }

// due is the deadline as far as the order goes: the last instant there is for none.
func (j *job) due() cell.Instant {
	if j.Deadline == 0 {
		return math.MaxInt64
	}
	return j.Deadline
}

// before is the order inside a lane: priority with ageing, then deadline, then age.
func (j *job) before(o *job) bool {
	if j.head != o.head {
		return j.head < o.head
	}
	if a, b := j.due(), o.due(); a != b {
		return a < b
	}
	return compareAge(j, o) < 0
}

// compareAge orders jobs by acceptance. Ids decide what nobody has numbered.
func compareAge(a, b *job) int {
	return cmp.Or(cmp.Compare(a.Seq, b.Seq), bytes.Compare(a.ID[:], b.ID[:]))
}

// laneOrder is the order of jobs inside a strand.
type laneOrder struct{}

func (laneOrder) before(a, b *job) bool { return a.before(b) }
func (laneOrder) place(j *job) *int32   { return &j.at }
