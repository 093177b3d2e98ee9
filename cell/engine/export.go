package engine

import "github.com/fairlead/fairlead/cell"

// keyPlaces is where the places of keys begin in a walk over a lane's records; those of jobs, their numbers, are below.
const keyPlaces = 1 << 63

// walk passes the lane's records from a place on, jobs first, and keys that have outlived theirs then, until visit returns false or it has looked at so
// many. It returns the place behind the last one it passed, and SeededAll after the last there is. Jobs numbered above last are passed by.
func (s *State) walk(l *Lane, from, last uint64, steps int, visit func(*Job, *keyRecord) bool) uint64 {
	for ; from < keyPlaces && steps > 0; steps-- {
		j := l.list.after(from)
		if j == nil || j.Seq > last {
			from = keyPlaces
			break
		}
		if !visit(j, nil) {
			return from
		}
		from = j.Seq
	}
	for ; from >= keyPlaces && from != SeededAll && steps > 0; steps-- {
		r := l.window.after(from - keyPlaces)
		if r == nil {
			return SeededAll
		}
		if s.holder(r) == nil && !visit(nil, r) {
			return from
		}
		from = keyPlaces + r.seq
	}
	return from
}

// Export returns the next records of a tracked lane after a cursor, about bytesMax of them and having looked at no more than steps records; how many they
// are, and the cursor after them, which is to be imported even where there are none. Records are as they are now. What reaches the end of the changes
// has also where the lane and its tenant stand. It returns ErrTenantUnknown, ErrNotTracked, or ErrCursorLost when what follows the cursor is no longer
// known. It changes nothing.
func (s *State) Export(lane cell.Lane, from Cursor, bytesMax, steps int) (records []byte, count int, next Cursor, err error) {
	l := s.Lane(lane)
	if l == nil {
		return nil, 0, from, ErrTenantUnknown
	}
	k := l.tracker
	switch {
	case k == nil:
		return nil, 0, from, ErrNotTracked
	case from == Cursor{}:
		from.Change = k.since
	case from.Change < k.since || from.Change > l.Change:
		return nil, 0, from, ErrCursorLost
	case from == Cursor{Seeded: SeededAll, Change: l.Change}:
		return nil, 0, from, nil
	}
	var w writer
	if from.Seeded != SeededAll { // there is likely to be as much
		w.b = make([]byte, 0, bytesMax+bytesMax/4)
	}
	left := steps
	from.Seeded = s.walk(l, from.Seeded, k.accepted, steps, func(j *Job, r *keyRecord) bool {
		if len(w.b) >= bytesMax {
			return false
		}
		if left--; j != nil {
			w.portableJob(s, j)
		} else {
			w.portableKey(r)
		}
		count++
		return true
	})
	if from.Seeded != SeededAll {
		return w.b, count, from, nil
	}
	for ; left > 0 && len(w.b) < bytesMax; left-- {
		t := k.changes.after(from.Change)
		if t == nil {
			from.Change = l.Change
			break
		}
		w.portableTrail(s, t)
		count++
		from.Change = t.number
	}
	if from.Change == l.Change { // what ends just where the room did, too: nothing comes after it
		w.portableAccount(s, l)
	}
	return w.b, count, from, nil
}

// exactLeft is how many places ExportLeft looks at to tell them from empty ones.
const exactLeft = 4096

// ExportLeft returns how many jobs a copy that is at cur has not seeded, and how many changes wait: exactly where they are few, and up to twice as many
// elsewhere.
func (s *State) ExportLeft(lane cell.Lane, cur Cursor) (jobs, changes int64) {
	l := s.Lane(lane)
	if l == nil || l.tracker == nil {
		return 0, 0
	}
	if cur.Seeded < keyPlaces {
		jobs = max(0, l.list.behind(cur.Seeded, exactLeft)-l.list.behind(l.tracker.accepted, exactLeft))
	}
	return jobs, l.tracker.changes.behind(cur.Change, exactLeft)
}
