package engine

import (
	"fmt"
	"time"

	"github.com/fairlead/fairlead/cell"
)

// JobState is where a job stands in its life. The numbers are part of the log's and the snapshot's format.
type JobState uint8

// The states of a job. The five from Succeeded on are its ends.
const (
	Delayed     JobState = 1
	Ready       JobState = 2
	Leased      JobState = 3
	Succeeded   JobState = 4
	Failed      JobState = 5
	Cancelled   JobState = 6
	Expired     JobState = 7
	Quarantined JobState = 8
)

// jobStates bounds arrays that are indexed by state.
const jobStates = 9

// Ended reports whether s is one of the five ends, which no outcome changes any more.
func (s JobState) Ended() bool { return s >= Succeeded }

// Valid reports whether s is a state of a job.
func (s JobState) Valid() bool { return s >= Delayed && s <= Quarantined }

func (s JobState) String() string {
	switch s {
	case Delayed:
		return "delayed"
	case Ready:
		return "ready"
	case Leased:
		return "leased"
	case Succeeded:
		return "succeeded"
	case Failed:
		return "failed"
	case Cancelled:
		return "cancelled"
	case Expired:
		return "expired"
	case Quarantined:
		return "quarantined"
	default:
		return fmt.Sprintf("state(%d)", uint8(s))
	}
}

// PayloadKind says how a payload's bytes are to be read.
type PayloadKind uint8

// The kinds of payload. The numbers are part of the log's format.
const (
	PayloadNone PayloadKind = 0
	PayloadJSON PayloadKind = 1 // Data is the exact text of a JSON document
	PayloadData PayloadKind = 2 // Data is what ContentType says
)

// Payload is what a job carries in or its result carries out. Data is never changed once it is in the state.
type Payload struct {
	Kind        PayloadKind
	ContentType string
	Data        []byte
}

// Label is a name and a value that a caller put on a job.
type Label struct{ Name, Value string }

// Retry is how a job's failed attempts are followed by others.
type Retry struct {
	AttemptsMax        int32         // attempts the handler may fail
	DelayMin, DelayMax time.Duration // back-off before the second attempt, and the longest
}

// Spec is a job as it was submitted, with every default filled in and every bound checked by the door.
type Spec struct {
	Operation        cell.Operation
	Payload          Payload
	Key              string // idempotency key, empty for none
	Priority         int32  // seconds of head start
	Preemptible      bool   // a lease of it that borrows another class's slot may be revoked
	NotBefore        cell.Instant
	Deadline         cell.Instant
	ExecutionTimeout time.Duration
	Cost             cell.Cost // declared estimate, 0 for none
	Retry            Retry
	Labels           []Label // sorted by name
	Retention        time.Duration
	Traceparent      string
	// Keys bound how many of the tenant's jobs that carry the same one are leased at once.
	Keys []cell.ConcurrencyKey
	// Resources is what it is expected to use, nil for nothing. It is never changed once it is in the state.
	Resources *cell.Resources
}

// Lease is the right to run one attempt. It stays in the job after its end, so that a repeated report is recognised.
type Lease struct {
	Token    Token
	Session  string        // the worker session that holds it
	Worker   string        // the worker's name, for people
	Channel  Channel       // the call it was handed out in
	Sequence int64         // and that call's sequence
	Duration time.Duration // how long it lasts without an extension
	Charged  cell.Cost     // what the attempt has been charged so far
	Private  bool          // the tenant's own worker: nothing is charged
	Tier     uint8         // by which of its tiers the scheduler granted it, in the scheduler's numbers; 0 when nothing is charged
}

// Channel is the kind of call that a lease was handed out in.
type Channel uint8

// The channels. The numbers are part of the log's format.
const (
	ChannelLease  Channel = 1
	ChannelReport Channel = 2
)

// Job is one job's record. Fields are changed by Apply only.
type Job struct {
	ID   cell.JobID
	Seq  uint64 // order of acceptance in the cell
	Lane *Lane
	Spec Spec
	// BodyHash tells another body under the same key.
	BodyHash [16]byte

	State       JobState
	LastOutcome OutcomeKind // how the last lease ended
	Dropped     bool        // the result was dropped for the bound on a lane's finished jobs
	gone        bool        // forgotten

	Attempt int32 // grants so far
	Failed  int32 // attempts the handler failed
	Lost    int32 // attempts the infrastructure lost
	Crashes int32 // those of them that count towards quarantine

	Created  cell.Instant
	LeasedAt cell.Instant
	Finished cell.Instant
	// WakeAt is when a delayed job becomes ready.
	WakeAt cell.Instant

	Lease  Lease
	Result Payload
	Error  string
	// Charged, Used and Ran are what its attempts took: what they were charged together, what they used together of the cell's resources as far as
	// workers said, nil for nothing, and how long the handler of the last one that ended ran.
	Charged cell.Cost
	Used    *cell.Resources
	Ran     time.Duration

	finishSeq    uint64       // order of the end among the cell's ends, 0 while it has not ended
	older, newer *Job         // neighbours among the lane's ended jobs
	key          *keyRecord   // what its key stands for while it has not ended, nil without a key
	due          cell.Instant // when its timer fires, while it has one
	timer        int          // index in the lane's timers, -1 for none
	trail        *trail       // while its lane is tracked, filled or compared; see trail
	position     int          // index in State.all
	written      uint64       // the last snapshot generation that has this job's record
}

// jobOverheadBytes is what a job is counted for beside what its caller wrote: about what its record takes in memory.
const jobOverheadBytes = 512

// concurrencyKeyBytes is what each of a job's concurrency keys counts for beside its text: it may be the only job of the key.
const concurrencyKeyBytes = 128

// Bytes is what a job submitted so counts for in its lane's backlog.
func (sp *Spec) Bytes() int64 {
	n := jobOverheadBytes + len(sp.Payload.Data) + len(sp.Payload.ContentType) + len(sp.Operation) + len(sp.Key) + len(sp.Traceparent)
	for _, l := range sp.Labels {
		n += len(l.Name) + len(l.Value)
	}
	for _, k := range sp.Keys {
		n += concurrencyKeyBytes + len(k.Key)
	}
	return int64(n)
}

// Bytes is what the job counts for in its lane's backlog.
func (j *Job) Bytes() int64 { return j.Spec.Bytes() }

// finishedBytes is what an ended job counts for among its lane's finished ones.
func (j *Job) finishedBytes() int64 {
	return j.Bytes() + int64(len(j.Result.Data)) + int64(len(j.Result.ContentType)) + int64(len(j.Error))
}

// timerAt returns when the job's state next changes by time alone, and 0 for never. There is one timer a job: what it means follows
// from the state.
func (j *Job) timerAt() cell.Instant {
	switch j.State {
	case Delayed:
		if j.Spec.Deadline != 0 && j.Spec.Deadline < j.WakeAt {
			return j.Spec.Deadline
		}
		return j.WakeAt
	case Ready:
		return j.Spec.Deadline
	case Leased:
		return 0 // a deadline ends waiting, not running; the lease's clock is the leader's
	case Succeeded, Failed, Cancelled, Expired, Quarantined:
		return after(j.Finished, j.Spec.Retention)
	default:
		panic(fmt.Sprintf("engine: job %v in %v", j.ID, j.State))
	}
}
