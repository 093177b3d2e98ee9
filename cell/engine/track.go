package engine

import (
	"slices"

	"github.com/fairlead/fairlead/cell"
)

// trackedDeletionsMax bounds the records of a tracked lane that are gone and still have to be told of, at about 150 bytes each. Beyond it the oldest are
// let go, and whoever has not copied them yet begins again.
const trackedDeletionsMax = 1_000_000

// trail is what is known of a record of a lane that is tracked, filled or compared: a job, or a key that has outlived its job. Other records have
// none, so that they cost a pointer only.
type trail struct {
	lane *Lane
	job  *Job       // nil of a key, and once it is gone
	key  *keyRecord // nil of a job, and once it is gone
	// What names the record: a job's id, or a key's hash and the job that it stood for.
	isKey bool
	id    cell.JobID
	hash  keyHash

	number   uint64 // of its last change in the lane's tracking of that number; there are no others
	tracking uint64
	sum      sum128 // of its bytes, as it is in the lane's digest of that number; there it is in no other
	digest   uint64

	changed, dirty bool   // in this Apply: changed where the lane was tracked, dirty at all
	written        uint64 // of one that is gone: the last snapshot generation that has it
}

// gone reports whether there is nothing but the trail.
func (t *trail) gone() bool { return t.job == nil && t.key == nil }

// tracker is the changes of a lane since it is tracked.
type tracker struct {
	lane   *Lane
	number uint64    // which tracking it is; see State.trackings
	move   cell.Move // who follows
	// since is the lane's change that it begins after: a cursor before it has missed some.
	since uint64
	// accepted is the cell's counter when it began: later jobs are changes anyway.
	accepted uint64
	changes  order[trail] // the last of each record
	gone     int          // of those, the records that are gone
}

// watched reports whether the lane's records have trails.
func (l *Lane) watched() bool { return l.tracker != nil || l.digest != nil }

// Tracking returns the move that tracks the lane, and the zero value when none does.
func (l *Lane) Tracking() cell.Move {
	if l.tracker == nil {
		return cell.Move{}
	}
	return l.tracker.move
}

// mark notes that a job changes in this Apply.
func (s *State) mark(j *Job) {
	if !j.Lane.watched() {
		return
	}
	if j.trail == nil {
		j.trail = &trail{lane: j.Lane, job: j, id: j.ID}
	}
	s.soil(j.trail)
}

// markKey notes that a key that has outlived its job comes, or goes.
func (s *State) markKey(r *keyRecord) {
	if !r.lane.watched() {
		return
	}
	s.touchKey(r)
	if r.trail == nil {
		r.trail = &trail{lane: r.lane, key: r, isKey: true, id: r.job, hash: r.hash}
	}
	s.soil(r.trail)
}

// markedKey returns a job's key where it has to be marked once it outlives the job, and nil elsewhere.
func (s *State) markedKey(j *Job) *keyRecord {
	if !j.Lane.watched() {
		return nil
	}
	return s.keyOf(j)
}

func (s *State) soil(t *trail) {
	if t.lane.tracker != nil {
		t.changed = true // not later: whether there is a digest is not of the log
	}
	if !t.dirty {
		t.dirty = true
		s.dirty = append(s.dirty, t)
	}
}

// settle gives what changed its numbers and its digests. It comes at the end of every Apply, and before a lane's tracking begins or ends.
func (s *State) settle() {
	for i, t := range s.dirty {
		s.dirty[i] = nil
		if j, r := t.job, t.key; j != nil && j.gone || r != nil && r.lane.keys[r.hash] != r {
			t.job, t.key = nil, nil
			t.written = s.generation // a snapshot under way has the record as it was, or not at all
		}
		if t.changed && t.lane.tracker != nil {
			s.renumber(t)
		}
		t.changed, t.dirty = false, false
		if d := t.lane.digest; d != nil {
			d.replace(s, t)
		}
	}
	s.dirty = s.dirty[:0]
}

// renumber makes a change the lane's latest.
func (s *State) renumber(t *trail) {
	l, k := t.lane, t.lane.tracker
	s.touchLane(l)
	if t.tracking == k.number {
		k.changes.take(t.number)
	}
	l.Change++
	t.number, t.tracking = l.Change, k.number
	k.changes.put(t.number, t)
	if !t.gone() {
		return
	}
	if k.gone++; k.gone > s.goneMax {
		s.letGo(k)
	}
}

// letGo forgets the oldest changes up to a tenth of the records that are gone, all at once, so that the copy is not begun again for each.
func (s *State) letGo(k *tracker) {
	for k.gone > s.goneMax-s.goneMax/10 {
		t := k.changes.first()
		switch { // a snapshot under way has it
		case t.job != nil:
			s.setAside(t.job)
		case t.key != nil:
			s.touchKey(t.key)
		default:
			s.touchGone(t)
			k.gone--
		}
		k.since = t.number
		k.changes.take(t.number)
		t.tracking = 0
	}
}

// track begins to note a lane's changes, after its present one.
func (s *State) track(l *Lane, move cell.Move) {
	s.untrack(l)
	s.tracked = append(s.tracked, l)
	s.trackings++
	l.tracker = &tracker{lane: l, number: s.trackings, move: move, since: l.Change, accepted: s.accepted}
	l.Tracked = true
}

// untrack ends it.
func (s *State) untrack(l *Lane) {
	l.tracker, l.Tracked = nil, false
	s.tracked = slices.DeleteFunc(s.tracked, func(t *Lane) bool { return t == l })
}

func (s *State) applyTrack(f *TrackFact) Result {
	l := s.Lane(f.Lane)
	if l == nil {
		return Result{Err: ErrTenantUnknown}
	}
	k := l.tracker
	r := Result{Index: s.index}
	switch {
	case k != nil && k.move.Migration == f.Move.Migration && k.move.Attempt > f.Move.Attempt:
		return Result{Err: ErrMoveStale}
	case f.Off && k != nil && k.move.Migration != f.Move.Migration:
		return Result{Err: ErrMoveStale}
	case f.Off && k == nil, !f.Off && k != nil && k.move == f.Move:
		r.Duplicate = true
		return r
	case !l.holds():
		return Result{Err: l.cannot("be tracked")}
	}
	s.settle()
	s.touchLane(l)
	if f.Off {
		s.untrack(l)
		l.digest = nil
		return r
	}
	l.Change++ // so that no cursor of an earlier tracking is of this one
	s.track(l, f.Move)
	return r
}

// cannot returns that the lane cannot be asked something in its mode.
func (l *Lane) cannot(asked string) error {
	return &ModeError{Lane: l.ID, Mode: l.Mode, Epoch: l.Epoch, Asked: asked}
}
