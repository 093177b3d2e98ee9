package migrate

import (
	"fmt"
	"math"
	"time"

	"github.com/fairlead/fairlead/cell"
)

// SeededAll is the Cursor.Seeded of a lane whose jobs were all copied once.
const SeededAll uint64 = math.MaxUint64

// Cursor says how far a lane was copied.
type Cursor struct {
	Seeded uint64 // jobs accepted up to this number were copied; SeededAll once all were
	Change uint64 // the last change that was copied
}

// FrontMax is how many jobs LaneSeen.Front has at most.
const FrontMax = 16

// LaneSeen is what the driver knows of a lane in a cell. The zero value is a lane that the cell does not have.
type LaneSeen struct {
	Known bool // the cell has the lane
	Mode  cell.Mode
	Epoch cell.Epoch
	Move  cell.Move
	// Fence is the index of the entry that fenced it; 0 for none.
	Fence uint64
	// Tracked lanes number their changes. Broken says that what is needed to go on from the other side's cursor is not there any more.
	Tracked, Broken bool
	// Change is the number of the last change, Cursor how far the lane was filled.
	Change uint64
	Cursor Cursor
	// Digest is of all of the lane as of the change DigestChange (of a lane that is filled: of its cursor's), unless DigestDone is below 1,000. Whoever fills
	// this in forgets a digest when Mode, Epoch, Change or Cursor become others: a digest is of the lane as it is seen here.
	Digest       [32]byte
	DigestChange uint64
	DigestDone   int32 // thousandths
	// Compared is of a lane that is filled: what the last chunk after which nothing was left has shown.
	Compared Comparison
	// Records counts what a wipe has to remove: jobs of every state, and keys. Charged is what the lane was charged, which a wipe forgets too.
	Records int64
	Charged cell.Cost
	// Jobs are those that have not ended, Ready those of them that could be granted now.
	Jobs, Ready int64
	Bytes       int64
	// Submissions and grants since it was opened here.
	Submitted, Granted int64
	// How long the oldest has waited, and how long the next one would; 0 when unknown.
	OldestWait, PredictedWait time.Duration
	// Front is the jobs that would be granted first, in their order, as the cell names them; "" after the last.
	Front [FrontMax]string
	// What the other side lacks of it, as far as the driver knows: of changes while it is tracked. LagKnown is false until that was asked: an
	// unknown lag is never read as none.
	LagKnown              bool
	LagRecords, LagBytes  int64
	LagTime               time.Duration
	SeedLeft, ChangesLeft int64
	// Health is how it did lately, while it was open in the cell: of a lane that has left, before it was fenced.
	Health Health
}

// Comparison is of the digests of a lane in the cell that it is copied from and in the one it is copied to, as of one change, while both go on changing: the one
// says its digest with the changes, and the other once it has applied them. The zero value is of none.
type Comparison struct {
	Known    bool
	Change   uint64
	From, To [32]byte
}

// differs reports whether the cells had something else as of the same change.
func (c *Comparison) differs() bool { return c.Known && c.From != c.To }

// text says of a class what the cell that it is copied from has, and the other.
func (c *Comparison) text(class cell.Class, from, to cell.ID) string {
	return fmt.Sprintf("%s differs as of change %d: %x at %s, %x at %s", class, c.Change, c.From[:digestShown], from, c.To[:digestShown], to)
}

// HealthWindows is in how many windows in a row the target has to do worse.
const HealthWindows = 2

// Health is what a lane did in the last whole windows, the latest first, as its cell says. The zero value is a lane of which nothing is known, which says
// nothing good or bad of it.
type Health struct {
	Window  time.Duration // how long each is
	Known   int           // how many of them are known
	Windows [HealthWindows]HealthWindow
}

// HealthWindow is what a lane did in one window.
type HealthWindow struct {
	Ended, EndedBadly int64 // attempts; those that were handed or taken back are none of them
	Started           int64 // grants
	Waits             int64 // those of them of which it is known how long the job was ready
	WaitP99           time.Duration
	ReadyLeast        int64 // the fewest jobs that were ready at any time
}

// holds reports whether there is something to wipe: a lane cannot be staged before it is gone.
func (l *LaneSeen) holds() bool { return l.Records > 0 || l.Charged > 0 }

// leftover reports whether a lane of the target, which does not serve the class, has to be cleared away before it can be filled. One that is open with nothing in it
// can be, unless it was charged once; one that is open with jobs is no leftover.
func (l *LaneSeen) leftover() bool {
	switch {
	case !l.Known:
		return false
	case l.Mode == cell.ModeOpen:
		return l.Records == 0 && l.holds()
	default:
		return l.Mode != cell.ModeTombstone || l.holds()
	}
}

// filled reports whether the lane has everything up to a change.
func (l *LaneSeen) filled(change uint64) bool {
	return l.Known && l.Cursor.Seeded == SeededAll && l.Cursor.Change >= change
}

// CellSeen is what the driver knows of a cell. The zero value is a cell that was never reached.
type CellSeen struct {
	// Reachable says that the last call was answered, At when the last answer came: what else is here is as of then. Since is when the first of the calls
	// failed that have failed since the last answer; 0 while Reachable.
	Reachable bool
	At, Since cell.Instant
	Index     uint64 // of its log
	// CommitP50 and CommitP99 are of its log. AnswerP99 is of what it answers to submissions and reports, Baseline what that was before anything was copied;
	// 0 while unknown.
	CommitP50, CommitP99, AnswerP99, Baseline time.Duration
	// Offered is what live workers offer, Needed the operations of the tenant's jobs; sorted.
	Offered, Needed  []cell.Operation
	Slots, SlotsUsed int64
	PolicyEpoch      cell.Epoch // of the tenant's policy there; 0 for none
	// Proved is the attempt for which the way to its log was proved by a canary; 0 for none.
	Proved uint32
	Lanes  [2]LaneSeen // by Class.Index
}

// Observed is what a driver knows when it asks what to do next. Everything in it may be old: Next proposes nothing that an old observation could make wrong.
type Observed struct {
	Source, Target CellSeen
	// Gates is what control proves: capacity of the target above all. While a class is observed a Fail of one that says how the target serves reverses.
	Gates []Gate
	// Progress is what the driver has counted; nil while it has counted nothing.
	Progress *Progress
}

// Cell returns what is known of one of the two cells of r.
func (o *Observed) Cell(r *Record, id cell.ID) *CellSeen {
	if id == r.Target {
		return &o.Target
	}
	return &o.Source
}
