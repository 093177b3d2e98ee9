package engine

import (
	"container/heap"

	"github.com/fairlead/fairlead/cell"
)

// modeRule says whether a lane may go from a mode to another, and at which epoch.
type modeRule uint8

const (
	modeNever  modeRule = iota
	modeHigher          // at an epoch above the lane's
	modeSame            // or at the lane's own, by the move that has it
)

// modeModes is how many modes there are.
const modeModes = int(cell.ModeTombstone) + 1

// transition says whether a ModeFact may take a lane from one mode to another. Staging is a fact of its own.
//
//	open    -> fenced              it takes nothing from that entry on
//	fenced  -> open                nothing came of it
//	fenced  -> standby             another cell has it, and feeds this one
//	staged  -> open                it is whole, and this cell has it: what changes from here on is tracked for the way back
//	standby -> open                it came back
//	staged, standby, fenced -> tombstone
//	any but staged -> itself       at a later epoch: what was between did not get here, as when a fence is given up before the cell heard of it
func transition(from, to cell.Mode) modeRule {
	rules := [modeModes][modeModes]modeRule{
		cell.ModeOpen:      {cell.ModeOpen: modeHigher, cell.ModeFenced: modeHigher},
		cell.ModeFenced:    {cell.ModeFenced: modeHigher, cell.ModeOpen: modeHigher, cell.ModeStandby: modeSame, cell.ModeTombstone: modeSame},
		cell.ModeStaged:    {cell.ModeOpen: modeHigher, cell.ModeTombstone: modeSame},
		cell.ModeStandby:   {cell.ModeStandby: modeHigher, cell.ModeOpen: modeHigher, cell.ModeTombstone: modeSame},
		cell.ModeTombstone: {cell.ModeTombstone: modeHigher},
	}
	if !to.Valid() {
		return modeNever
	}
	return rules[from][to]
}

// CheckLane returns why a lane takes nothing of a caller who knows it at an epoch, 0 for one who does not say: a *LaneError that wraps
// ErrLaneMoving, ErrLaneMoved or ErrLaneBehind, and nil when it does. An open lane takes what a caller of a later epoch brings, too: control's record named
// this cell at that epoch, and nothing but an entry of this log could have closed the lane. Where it is not open, that caller knows of a change which is on its
// way here, and would be sent back from anywhere else.
func (l *Lane) CheckLane(epoch cell.Epoch) error {
	err := ErrLaneMoved
	switch {
	case l.Mode == cell.ModeFenced:
		err = ErrLaneMoving
	case !l.serves():
		if l.Epoch != 0 && epoch > l.Epoch {
			err = ErrLaneBehind
		}
	case l.Epoch == 0 || epoch == 0 || epoch >= l.Epoch:
		return nil
	}
	return &LaneError{Lane: l.ID, Mode: l.Mode, Epoch: l.Epoch, Err: err}
}

func (s *State) applyMode(f *ModeFact, a *Applied) Result {
	l := s.Lane(f.Lane)
	if l == nil {
		return Result{Err: ErrTenantUnknown}
	}
	if f.Mode == l.Mode && f.Epoch == l.Epoch && f.Move == l.Move {
		return Result{Duplicate: true, Index: l.opened}
	}
	if err := l.checkMode(f); err != nil {
		return Result{Err: err}
	}
	s.settle()
	s.touchLane(l)
	from := l.Mode
	s.setMode(l, f.Mode, f.Epoch, f.Move)
	a.Lanes = append(a.Lanes, l.ID)
	if from == f.Mode {
		if from == cell.ModeFenced {
			l.Fence = s.index
		}
		return Result{Index: s.index}
	}
	switch f.Mode {
	case cell.ModeOpen:
		s.openLane(l, from, f.Share)
	case cell.ModeFenced:
		l.Fence = s.index
		if l.tracker != nil {
			l.Change++ // so that a chunk is read after it, with where the tenant stands
		}
		s.shares = append(s.shares, share{lane: l, mode: f.Mode})
	case cell.ModeStandby:
		l.Cursor = Cursor{Seeded: SeededAll, Change: l.Change}
		s.untrack(l)
		s.shares = append(s.shares, share{lane: l, mode: f.Mode, thousandths: f.Share})
	case cell.ModeTombstone:
		l.Cursor, l.inherited, l.digest = Cursor{}, nil, nil
		s.untrack(l)
		if from == cell.ModeFenced {
			s.shares = append(s.shares, share{lane: l, mode: f.Mode, thousandths: f.Share})
		}
	case cell.ModeStaged:
		panic("engine: a lane is staged by a mode")
	}
	return Result{Index: s.index}
}

// checkMode returns why the lane's mode cannot become what f says.
func (l *Lane) checkMode(f *ModeFact) error {
	if f.Epoch < l.Epoch || f.Epoch == l.Epoch && f.Move != l.Move {
		return ErrMoveStale
	}
	rule := transition(l.Mode, f.Mode)
	switch {
	case rule == modeNever:
		return l.cannot("become " + f.Mode.String())
	case rule == modeHigher && f.Epoch == l.Epoch:
		return l.cannot("become " + f.Mode.String() + " at its own epoch")
	case l.Mode == cell.ModeStandby && f.Mode != cell.ModeTombstone && f.Move.Migration != l.Move.Migration:
		return ErrMoveStale
	case f.Mode != cell.ModeOpen:
		return nil
	case l.Mode == cell.ModeStaged && f.Move != l.Move:
		return ErrMoveStale
	case l.Mode == cell.ModeStaged && (l.Cursor.Seeded != SeededAll || l.wiping):
		return l.cannot("open before all of it was copied")
	default:
		return nil
	}
}

// setMode makes the lane what it is from this entry on, in a time that does not depend on how many jobs it has.
func (s *State) setMode(l *Lane, mode cell.Mode, epoch cell.Epoch, move cell.Move) {
	s.closeLane(l)
	l.Mode, l.Epoch, l.Move, l.opened = mode, epoch, move, s.index
	if !l.serves() {
		return
	}
	s.finishedBytes += l.finishedBytes
	s.resting -= l.finishedBytes
	heap.Push(&s.keepers, l)
	s.retime(l)
	s.rekey(l)
}

// closeLane takes an open lane from among those that time and other lanes change.
func (s *State) closeLane(l *Lane) {
	if !l.serves() {
		return
	}
	placeLane(&s.timing, l, l.timed, false)
	placeLane(s.keysOf(l), l, l.keying, false)
	placeLane(&s.keepers, l, l.keeper, false)
	s.finishedBytes -= l.finishedBytes
	s.resting += l.finishedBytes
}

// openLane is the rest of opening a lane that was something else.
func (s *State) openLane(l *Lane, from cell.Mode, thousandths int32) {
	l.Fence = 0
	s.shares = append(s.shares, share{lane: l, mode: l.Mode, thousandths: thousandths, inherited: l.inherited})
	if from == cell.ModeFenced {
		return
	}
	l.Submitted, l.Granted = 0, 0
	if from == cell.ModeStaged {
		s.track(l, l.Move)
	}
	l.Cursor = Cursor{}
	l.inherited = nil
}

func (s *State) applyStage(f *StageFact, a *Applied) Result {
	if f.Policy.Tenant != f.Lane.Tenant || !f.Lane.Class.Valid() {
		return Result{Err: ErrTenantUnknown}
	}
	if o := f.Policy.Organization; o != "" && s.organizations[o] == nil {
		return Result{Err: ErrOrganizationUnknown}
	}
	t := s.tenants[f.Lane.Tenant]
	if t != nil {
		l := t.Lane(f.Lane.Class)
		if l.Mode == cell.ModeStaged && l.Epoch == f.Epoch && l.Move == f.Move && !l.wiping {
			return Result{Duplicate: true, Index: l.opened}
		}
		if err := l.checkStage(f); err != nil {
			return Result{Err: err}
		}
	} else {
		if f.Epoch == 0 {
			return Result{Err: ErrMoveStale}
		}
		t = s.newTenant(f.Lane.Tenant, cell.ModeTombstone)
	}
	s.settle()
	l := t.Lane(f.Lane.Class)
	if f.Policy.Epoch >= t.Policy.Epoch {
		s.setPolicy(t, &f.Policy)
	}
	s.touchLane(l)
	s.setMode(l, cell.ModeStaged, f.Epoch, f.Move)
	s.emptied(l)
	l.Fence = 0
	a.Lanes = append(a.Lanes, l.ID)
	return Result{Index: s.index}
}

// checkStage returns why the lane cannot be staged. One that left, or was staged and is empty, is staged at its own epoch too, which a migration that
// comes to nothing does not raise; but not by the move that it has, nor by an earlier attempt.
func (l *Lane) checkStage(f *StageFact) error {
	rests := l.Mode == cell.ModeTombstone || l.Mode == cell.ModeStaged
	earlier := f.Move.Migration == l.Move.Migration && f.Move.Attempt <= l.Move.Attempt
	switch {
	case f.Epoch == 0 || f.Epoch < l.Epoch || f.Epoch == l.Epoch && (!rests || earlier):
		return ErrMoveStale
	case !rests && (!l.serves() || !l.unused()):
		return l.cannot("be staged")
	case !l.unused():
		return ErrLaneFilled
	default:
		return nil
	}
}

// unused reports whether nothing was ever in the lane, or all of it is wiped.
func (l *Lane) unused() bool { return l.left() == 0 && l.Charged == 0 }

// left is how many records the lane has.
func (l *Lane) left() int64 { return int64(l.list.len() + len(l.keys)) }

// emptied forgets what a lane had beside its records.
func (s *State) emptied(l *Lane) {
	l.Charged, l.Account = 0, cell.LaneAccount{}
	l.Cursor, l.Change, l.Submitted, l.Granted = Cursor{}, 0, 0, 0
	l.inherited, l.digest, l.wiping = nil, nil, false
	s.untrack(l)
}

// wipeMax bounds what one WipeFact removes.
const wipeMax = 5000

func (s *State) applyWipe(f *WipeFact, a *Applied) Result {
	l := s.Lane(f.Lane)
	if l == nil {
		return Result{Err: ErrTenantUnknown}
	}
	switch {
	case l.Mode == cell.ModeTombstone:
	case l.Mode != cell.ModeStaged:
		return Result{Err: l.cannot("be wiped")}
	case l.Move.Migration != f.Move.Migration || l.Move.Attempt > f.Move.Attempt:
		return Result{Err: ErrMoveStale}
	}
	s.settle()
	s.touchLane(l)
	l.digest = nil
	l.wiping = l.Mode == cell.ModeStaged
	left := min(f.Max, wipeMax)
	for j := l.list.first(); j != nil && left > 0; j = l.list.first() {
		if r := s.keyOf(j); r != nil {
			s.removeKey(r)
		}
		s.remove(j)
		a.Removed = append(a.Removed, j.ID)
		left--
	}
	for r := l.window.first(); r != nil && left > 0; r = l.window.first() {
		s.removeKey(r)
		left--
	}
	if l.left() == 0 {
		s.emptied(l)
	}
	return Result{Index: s.index, Left: l.left()}
}
