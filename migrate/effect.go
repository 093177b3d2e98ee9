package migrate

import "github.com/fairlead/fairlead/cell"

// Effect is something that a driver is to do now. Each can be repeated, may be lost and may come late, and those of one answer of Next can be carried out in
// any order or at once: what a cell or control has moved on from is refused there by epoch, attempt or generation. All calls to cells carry Record.Move.
type Effect interface{ effect() }

// Propose hands an event to control, with the generation of the record that Next was asked about: it is refused when the record is another by then.
type Propose struct{ Event Event }

// Look asks a cell how the lanes stand.
type Look struct{ Cell cell.ID }

// Prove logs a canary in a cell: the way to its log works. What comes of it is CellSeen.Proved.
type Prove struct{ Cell cell.ID }

// Stage makes the target's lane, to be filled.
type Stage struct {
	Class cell.Class
	Epoch cell.Epoch
}

// Track lets a cell number a lane's changes, or forget them.
type Track struct {
	Cell  cell.ID
	Class cell.Class
	Off   bool
}

// Copy takes the next chunks of a lane from one cell to the other: at least one, and as many as the driver likes while the record stays the same.
// Urgent ones are neither throttled nor delayed: the lane takes nothing meanwhile.
type Copy struct {
	From, To cell.ID
	Class    cell.Class
	Urgent   bool
}

// SetMode sets a lane's mode at an epoch.
type SetMode struct {
	Cell  cell.ID
	Class cell.Class
	Mode  cell.Mode
	Epoch cell.Epoch
	// Share is how much of the tenant's credit goes with the lane, in thousandths.
	Share int32
}

// Digest asks a cell for a lane's digest.
type Digest struct {
	Cell  cell.ID
	Class cell.Class
}

// Wipe removes a part of what a lane holds that is staged or a tombstone.
type Wipe struct {
	Cell  cell.ID
	Class cell.Class
}

// Wait says that there is nothing else to do until then, or until the record or a cell changes: for what, as people read it. Until is 0 when time alone changes
// nothing.
type Wait struct {
	Until cell.Instant
	For   string
}

func (Propose) effect() {}
func (Look) effect()    {}
func (Prove) effect()   {}
func (Stage) effect()   {}
func (Track) effect()   {}
func (Copy) effect()    {}
func (SetMode) effect() {}
func (Digest) effect()  {}
func (Wipe) effect()    {}
func (Wait) effect()    {}
