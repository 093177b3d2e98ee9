package migrate

import (
	"time"

	"github.com/fairlead/fairlead/cell"
)

// State is where a migration stands. The numbers are part of the format of control's log and snapshot.
type State uint8

// The states, in the order in which a migration that meets no trouble has them, then those of abort and of reverse.
const (
	Declared    State = 1
	Admitted    State = 2
	Provisioned State = 3
	Seeding     State = 4
	CatchingUp  State = 5
	Shadowing   State = 6
	Ready       State = 7
	Ramping     State = 8
	CutOver     State = 9
	Draining    State = 10
	Released    State = 11
	Aborting    State = 12
	Aborted     State = 13
	Reversing   State = 14
	RolledBack  State = 15
)

// Phase is where one class of a migration stands. The numbers are part of the format.
type Phase uint8

// The phases of a class, the way there and the way back.
const (
	AtSource         Phase = 1
	Fencing          Phase = 2 // the source takes nothing any more, and nothing is decided
	Committed        Phase = 3 // the target is the owner, and may not know it yet
	Observing        Phase = 4 // the target serves, and is compared
	Moved            Phase = 5
	ReverseFencing   Phase = 6
	ReverseCommitted Phase = 7
	Returned         Phase = 8
)

// Lane is one class of a migration.
type Lane struct {
	Phase Phase
	Owner cell.ID    // whose the lane is by control's record: the same as the assignment's
	Epoch cell.Epoch // of the assignment
	// Position is the index of the fence in the log of the cell that had the lane, Change the number of the lane's last change there, Digest that of the
	// lane as it was then. 0 until it is fenced.
	Position, Change uint64
	Digest           [32]byte
	// When it was fenced, committed and activated the last time, and how long it took nothing then.
	FencedAt, CommittedAt, ActivatedAt cell.Instant
	Pause                              time.Duration
	// Fences counts the attempts to switch it that were given up because the pause grew too long.
	Fences uint32
	// Allowed says that the operator let it be switched; see Options.Manual.
	Allowed bool
	// Staged is the epoch at which the target's lane is staged in this attempt: above every epoch that either cell had of the lane before. The next fence
	// raises Epoch to it at least. 0 until the attempt is provisioned.
	Staged cell.Epoch
	// UnfencedAt is when the last switch was given up, the next waits from then on; 0 for never.
	UnfencedAt cell.Instant
	// Wait is how long a job would wait at the source when the lane was fenced: what the target is compared with.
	Wait time.Duration
}

// Verdict is what a gate says. The numbers are part of the format.
type Verdict uint8

// The verdicts.
const (
	Pass Verdict = 1
	Warn Verdict = 2
	Fail Verdict = 3
)

// Gate is something that was proved before a step, with what proves it.
type Gate struct {
	Name     string // such as capacity, workers, lag
	Verdict  Verdict
	Evidence string // a line for people
}

// Options says how a migration is done.
type Options struct {
	Manual         bool          // each class waits until the operator lets it be switched
	PauseMax       time.Duration // the longest that a class takes nothing; default 2 s
	CanaryJobs     int64         // grants by the target before a class counts as moved; default 100
	CanaryTime     time.Duration // and how long it is observed at least; default 30 s. A lane without work passes by time alone, after ten times this
	RollbackWindow time.Duration // from cut over until it is completed; default 24 h
	BytesPerSecond int64         // of copying, at most; default 16 MiB
	Priority       int32         // of two that wait for the same cell the higher goes first
}

// Progress is how far the copy is. It is for people and for a new driver's first estimate: the truth is the cursor in the target's log.
type Progress struct {
	JobsTotal, JobsCopied int64
	BytesCopied           int64
	LagRecords, LagBytes  int64
	LagTime               time.Duration
	BytesPerSecond        int64
	Throttled             bool
	At                    cell.Instant
}

// Note is one thing that happened, for people.
type Note struct {
	At      cell.Instant
	Actor   string // a key, an agent, or "control"
	What    string // such as "shadowing -> ready", "fenced batch at 1234"
	Why     string
	Attempt uint32
	Epoch   cell.Epoch
}

// Record is all that is known of a migration: it lies in control's log and nowhere else. It is a value; its slices must not be changed.
type Record struct {
	ID             cell.MigrationID
	Tenant         cell.TenantID
	Source, Target cell.ID
	Reason         string // operator, whale, evacuate, return, rebalance
	Actor          string
	Options        Options

	State   State
	Held    string // why no forward step is taken; empty for none
	Attempt uint32 // from 1 on
	Retries uint32 // attempts that were given up since it was declared or resumed the last time
	// Generation rises with every event that was applied: whoever proposes one names the generation that it was decided on.
	Generation uint64
	// Order is the classes in which they are switched, the canary first.
	Order [2]cell.Class
	Lanes [2]Lane // by Class.Index

	Gates    []Gate       // the last that were evaluated
	GatesAt  cell.Instant // and when; 0 for never
	Progress Progress
	Created  cell.Instant
	Entered  cell.Instant // the present state
	Resumed  cell.Instant // when a hold ended the last time; 0 for never
	Ended    cell.Instant // 0 while it has not
	Notes    []Note       // the latest NotesMax, the oldest first
}

// Bounds of a record.
const (
	NotesMax     = 100
	GatesMax     = 24
	EvidenceMax  = 512 // bytes of a gate's evidence, a note's why, and Held
	AttemptsMax  = 20  // after which it is held until an operator resumes it
	ActiveMax    = 4   // migrations of a fleet that copy at a time, unless configured otherwise
	ActiveByCell = 1   // and of a cell
)

// Move returns what the cells are told.
func (r *Record) Move() cell.Move { return cell.Move{Migration: r.ID, Attempt: r.Attempt} }

// Done reports whether the migration has ended.
func (r *Record) Done() bool {
	return r.State == Released || r.State == Aborted || r.State == RolledBack
}

// Owner returns whose the lane of a class is.
func (r *Record) Owner(c cell.Class) cell.ID { return r.Lanes[c.Index()].Owner }

// Kind is what happened. The numbers are part of the format.
type Kind uint8

// The kinds of event. Those that need a class have one.
const (
	EventPass            Kind = 1  // the present state's gate was proved: the next state begins
	EventHold            Kind = 2  // no forward step from here on
	EventResume          Kind = 3  //
	EventProgress        Kind = 4  // a checkpoint of Progress, at most one a second
	EventGates           Kind = 5  // gates were evaluated: they do not let it pass, or pass again, or are shown while a class is observed
	EventFence           Kind = 6  // class: open -> fencing, epoch+1
	EventUnfence         Kind = 7  // class: fencing -> at source, epoch+1: the pause grew too long, or the operator aborts
	EventCommit          Kind = 8  // class: fencing -> committed, epoch+1, with Position, Change and Digest
	EventActivate        Kind = 9  // class: the target has opened the lane
	EventObserved        Kind = 10 // class: observing -> moved
	EventAllow           Kind = 11 // class: the operator lets it be switched
	EventThrottle        Kind = 12 //
	EventRestart         Kind = 13 // the copy cannot go on: attempt+1, from admitted, what was staged is wiped
	EventAbort           Kind = 14 // -> aborting
	EventReverse         Kind = 15 // -> reversing
	EventReverseFence    Kind = 16 // class: the target is to be fenced, epoch+1
	EventReverseCommit   Kind = 17 // class: the source owns the lane again, epoch+1
	EventReverseActivate Kind = 18 // class: and has opened it
	EventComplete        Kind = 19 // cut over -> draining
	EventEnd             Kind = 20 // draining, aborting or reversing -> released, aborted, rolled back: nothing is left to clean up
)

// Event is one thing that happened to a migration, decided by whoever proposes it and checked by Apply.
type Event struct {
	Kind    Kind
	Attempt uint32 // must be the record's
	Time    cell.Instant
	Actor   string
	Why     string
	Class   cell.Class // of kinds that have one; 0 else
	// Of EventCommit and EventReverseCommit.
	Position, Change uint64
	Digest           [32]byte
	// Of EventActivate and EventReverseActivate: how long the lane took nothing.
	Pause          time.Duration
	Gates          []Gate
	Progress       *Progress
	BytesPerSecond int64 // of EventThrottle
	// Floor is, of EventPass from admitted, the highest epoch that either cell has of each lane, by Class.Index.
	Floor [2]cell.Epoch
	// Wait is, of EventFence, how long a job would wait at the source.
	Wait time.Duration
}
