package migrate

import (
	"fmt"

	"github.com/fairlead/fairlead/cell"
)

// What follows restates in a few lines what a cell does with a lane, so that the explorer can run the real Apply and Next against it. The content of a lane is
// what became of each of its few jobs; a change has a number, and what is copied is whatever has a higher number than the cursor.

const (
	modelJobs   = 2
	modelSource = cell.ID("a")
	modelTarget = cell.ID("b")
)

// jobs is the content of a lane: 0 for a job that was never accepted, 1 for one that waits, 2 for one that ended.
type jobs [modelJobs]uint8

// modelLane is a lane in a cell.
type modelLane struct {
	known   bool
	mode    cell.Mode
	epoch   cell.Epoch
	attempt uint32 // of the move that set the mode; 0 for none
	fence   uint64
	// tracker is the attempt that changes are numbered for; 0 for none.
	tracker uint32
	change  uint64
	content jobs
	changed [modelJobs]uint64
	cursor  Cursor
	wiping  bool
	before  cell.Epoch // its epoch before the fence, for a cell that forgets one
}

// chunk is what an export returned.
type chunk struct {
	begin, end Cursor
	content    jobs
	changed    [modelJobs]uint64
}

// modelRules are the changes of mode that a cell allows: 1 at a higher epoch, 2 also at its own by the same move.
func modelRules(from, to cell.Mode) int {
	switch {
	case from == to && to != cell.ModeStaged: // what was between did not come
		return 1
	case from == cell.ModeOpen && to == cell.ModeFenced,
		from == cell.ModeFenced && to == cell.ModeOpen,
		from == cell.ModeStaged && to == cell.ModeOpen,
		from == cell.ModeStandby && to == cell.ModeOpen:
		return 1
	case from == cell.ModeFenced && to == cell.ModeStandby,
		to == cell.ModeTombstone && (from == cell.ModeStaged || from == cell.ModeStandby || from == cell.ModeFenced):
		return 2
	default:
		return 0
	}
}

func (l *modelLane) setMode(to cell.Mode, epoch cell.Epoch, attempt uint32, equalOpens bool) {
	same := epoch == l.epoch && attempt == l.attempt
	if !l.known || to == l.mode && same || epoch < l.epoch || epoch == l.epoch && !same && !equalOpens {
		return
	}
	rule := modelRules(l.mode, to)
	if rule == 0 || rule == 1 && epoch == l.epoch && !equalOpens {
		return
	}
	from := l.mode
	if to == cell.ModeOpen && from == cell.ModeStaged && (attempt != l.attempt || l.cursor.Seeded != SeededAll || l.wiping) {
		return
	}
	l.before = l.epoch
	l.mode, l.epoch, l.attempt = to, epoch, attempt
	if from == to {
		if to == cell.ModeFenced {
			l.fence = uint64(epoch)
		}
		return
	}
	switch to {
	case cell.ModeFenced:
		l.fence = uint64(epoch)
		if l.tracker != 0 {
			l.change++
		}
	case cell.ModeOpen:
		l.fence = 0
		if from == cell.ModeStaged {
			l.tracker = attempt
		}
		if from != cell.ModeFenced {
			l.change, l.cursor = max(l.change, l.cursor.Change), Cursor{}
		}
	case cell.ModeStandby:
		l.cursor, l.tracker = Cursor{Seeded: SeededAll, Change: l.change}, 0
	case cell.ModeTombstone:
		l.cursor, l.tracker = Cursor{}, 0
	case cell.ModeStaged:
	}
}

func (l *modelLane) stage(epoch cell.Epoch, attempt uint32) {
	serves := l.mode == cell.ModeOpen || l.mode == cell.ModeFenced
	switch {
	case !l.known:
	case l.content != jobs{} || l.mode == cell.ModeStandby || serves && l.attempt != 0:
		return
	case epoch < l.epoch, epoch == l.epoch && (attempt != l.attempt || l.mode != cell.ModeStaged || !l.wiping):
		return
	}
	*l = modelLane{known: true, mode: cell.ModeStaged, epoch: epoch, attempt: attempt}
}

func (l *modelLane) track(attempt uint32, off bool) {
	switch {
	case !l.known || l.tracker > attempt, l.mode != cell.ModeOpen && l.mode != cell.ModeFenced:
	case off:
		l.tracker = 0
	case l.tracker != attempt:
		l.change++
		l.tracker = attempt
		l.changed = [modelJobs]uint64{}
	}
}

// export returns the next chunk after a cursor, and false when there is nothing that follows it. What is seeded and what has changed comes in two chunks.
func (l *modelLane) export(from Cursor, attempt uint32) (chunk, bool) {
	if l.tracker != attempt || from.Change > l.change {
		return chunk{}, false
	}
	c := chunk{begin: from, end: Cursor{Seeded: SeededAll, Change: l.change}}
	if from.Seeded != SeededAll {
		c.end.Change = from.Change
	}
	for i := range l.content {
		if from.Seeded != SeededAll || l.changed[i] > from.Change {
			c.content[i], c.changed[i] = l.content[i], l.changed[i]
		}
	}
	return c, true
}

func (l *modelLane) importChunk(c chunk, attempt uint32) {
	if !l.known || l.attempt != attempt || l.mode != cell.ModeStaged && l.mode != cell.ModeStandby || l.cursor != c.begin || l.wiping {
		return
	}
	for i := range c.content {
		if c.content[i] != 0 {
			l.content[i] = c.content[i]
		}
	}
	l.cursor = c.end
}

func (l *modelLane) wipe(attempt uint32) {
	if !l.known || l.mode != cell.ModeTombstone && (l.mode != cell.ModeStaged || l.attempt > attempt) {
		return
	}
	l.content, l.changed, l.cursor = jobs{}, [modelJobs]uint64{}, Cursor{}
	l.wiping = false
}

// write is a submission (to 1) or a completion (to 2) by whoever still knows the epoch that the lane has; it reports whether it was accepted.
func (l *modelLane) write(job int, to uint8) bool {
	if !l.known || l.mode != cell.ModeOpen || l.content[job] != to-1 {
		return false
	}
	l.content[job] = to
	if l.tracker != 0 {
		l.change++
		l.changed[job] = l.change
	}
	return true
}

// see is what the cell says of the lane.
func (l *modelLane) see() LaneSeen {
	if !l.known {
		return LaneSeen{}
	}
	s := LaneSeen{
		Known: true, Mode: l.mode, Epoch: l.epoch, Fence: l.fence, Tracked: l.tracker != 0, Change: l.change, Cursor: l.cursor,
		DigestDone: Whole, DigestChange: l.change, LagKnown: true,
	}
	if l.attempt != 0 {
		s.Move = cell.Move{Migration: "m", Attempt: l.attempt}
	}
	if l.mode == cell.ModeStaged || l.mode == cell.ModeStandby {
		s.DigestChange = l.cursor.Change
	}
	s.Digest[0] = 1
	for i, j := range l.content {
		s.Digest[i+1] = j
		if j != 0 {
			s.Records++
		}
	}
	return s
}

func (l *modelLane) String() string {
	if !l.known {
		return "-"
	}
	return fmt.Sprintf("%s@%d/%d %v c%d cur%v t%d", l.mode, l.epoch, l.attempt, l.content, l.change, l.cursor, l.tracker)
}
