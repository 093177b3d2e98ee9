package engine

import "github.com/fairlead/fairlead/cell"

// Cursor says how far a lane was copied to another cell. The zero value is nothing.
type Cursor struct {
	// Seeded is where the walk over the lane's records is: jobs are passed in the order of their acceptance, then the keys that outlived their
	// jobs; [SeededAll] once all are. What lies behind it was copied, or has changed since the lane is tracked.
	Seeded uint64
	// Change is the last of the lane's changes that was copied.
	Change uint64
}

// SeededAll is Cursor.Seeded once every record was copied.
const SeededAll = 1<<64 - 1

// StageFact makes an empty lane that is filled by ImportFacts, and the tenant where the cell does not know it: its other lane is a tombstone then.
// It is refused with ErrLaneFilled while the lane holds something of another attempt; with ErrMoveStale at an epoch below the lane's, or at its own where it
// is open or the move is not a later one; with a *ModeError while the lane is in use here. The same fact again is a duplicate.
type StageFact struct {
	Lane   cell.Lane
	Policy cell.TenantPolicy // one that is older than what the cell knows is passed by
	Move   cell.Move
	Epoch  cell.Epoch
}

// TrackFact numbers the lane's changes from now on, so that Export can follow, or ends that. It is refused with a *ModeError unless the lane is
// open or fenced, with ErrMoveStale when another move tracks it. Again it is a duplicate.
type TrackFact struct {
	Lane cell.Lane
	Move cell.Move
	Off  bool
}

// ModeFact is a lane's next mode; see transition in modes.go. The same mode, epoch and move again is a duplicate with the index of the first.
type ModeFact struct {
	Lane  cell.Lane
	Mode  cell.Mode
	Epoch cell.Epoch
	Move  cell.Move
	// Share is how much of the tenant's credit goes with the lane, in thousandths: what a lane that opens gets of its source's, and what one that
	// leaves does not keep.
	Share int32
}

// ImportFact applies what Export returned to a lane that is staged or on standby. It is refused with ErrCursor unless the lane's cursor is Begin:
// the result has the lane's then. It is refused with a *cell.LimitError where the cell has no room.
type ImportFact struct {
	Lane       cell.Lane
	Move       cell.Move
	Begin, End Cursor
	Records    []byte
}

// WipeFact removes up to Max records of a lane that is staged by the same migration, in an attempt not newer, or that is a tombstone. The result
// says how many are left. A staged lane takes no import from then until it is staged anew.
type WipeFact struct {
	Lane cell.Lane
	Move cell.Move
	Max  int
}

// ProveFact does nothing but to be answered with its index: the way to the log works.
type ProveFact struct {
	Tenant cell.TenantID
	Move   cell.Move
	Token  uint64
}

func (*StageFact) kind() factKind  { return kindStage }
func (*TrackFact) kind() factKind  { return kindTrack }
func (*ModeFact) kind() factKind   { return kindMode }
func (*ImportFact) kind() factKind { return kindImport }
func (*WipeFact) kind() factKind   { return kindWipe }
func (*ProveFact) kind() factKind  { return kindProve }
