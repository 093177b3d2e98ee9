package engine

import (
	"container/heap"
	"crypto/sha256"

	"github.com/fairlead/fairlead/cell"
)

// keyHash stands for an idempotency key: the first half of its SHA-256, so that a record's size does not depend on the key's.
type keyHash [16]byte

func hashKey(key string) keyHash {
	sum := sha256.Sum256([]byte(key))
	return keyHash(sum[:16])
}

// keyRecord is what stands under a key of a lane.
type keyRecord struct {
	lane *Lane
	hash keyHash
	job  cell.JobID
	body [16]byte
	// seq is the number of the job's end, expires when the key's window is over; both are 0 while the job has not ended.
	seq     uint64
	expires cell.Instant

	trail   *trail // while it outlives its job in a lane that is tracked, filled or compared; see trail
	written uint64 // the last snapshot generation that has this record
}

// lanesByKey orders open lanes by the first of their keys of ended jobs. Lanes that never moved have theirs in the order of the ends, which is that in
// which they expire: no key expires before an older one, whichever lane it is in. Those that have moved go by when their first expires, since the keys
// of another cell came in the order in which they were copied; see State.past. A job that runs again takes its key out, so that trying a job again
// and again costs no memory.
type lanesByKey struct {
	lanes []*Lane
	moved bool
}

func (h *lanesByKey) Len() int { return len(h.lanes) }

func (h *lanesByKey) Less(i, j int) bool {
	a, b := h.lanes[i].window.first(), h.lanes[j].window.first()
	if h.moved && a.expires != b.expires {
		return a.expires < b.expires
	}
	return a.seq < b.seq
}

func (h *lanesByKey) Swap(i, j int) {
	h.lanes[i], h.lanes[j] = h.lanes[j], h.lanes[i]
	h.lanes[i].keying, h.lanes[j].keying = i, j
}

// Push is for container/heap only.
func (h *lanesByKey) Push(x any) {
	l := theLane(x)
	l.keying = len(h.lanes)
	h.lanes = append(h.lanes, l)
}

// Pop is for container/heap only.
func (h *lanesByKey) Pop() any {
	l := takeLast(&h.lanes)
	l.keying = -1
	return l
}

// keysOf returns which lanes a lane is among by its keys.
func (s *State) keysOf(l *Lane) *lanesByKey {
	if l.Epoch != 0 {
		return &s.keyed[1]
	}
	return &s.keyed[0]
}

// rekey puts the lane where its first key wants it.
func (s *State) rekey(l *Lane) { placeLane(s.keysOf(l), l, l.keying, l.serves() && l.window.len() > 0) }

// pushKey lets a key stand whose job has ended.
func (s *State) pushKey(r *keyRecord) {
	r.written = s.generation // a snapshot under way has it as that of a live job, or not at all
	r.lane.window.put(r.seq, r)
	s.rekey(r.lane)
}

// pullKey takes a key out of the window.
func (s *State) pullKey(r *keyRecord) {
	s.touchKey(r)
	l := r.lane
	if l.keying >= 0 { // the order depends on what the lane has
		heap.Remove(s.keysOf(l), l.keying)
	}
	l.window.take(r.seq)
	s.rekey(l)
}

// removeKey lets a key stand for nothing. What it stood for is none of its business.
func (s *State) removeKey(r *keyRecord) {
	if r.seq != 0 {
		s.pullKey(r)
	}
	delete(r.lane.keys, r.hash)
	s.keyRecords--
}

// expireKey removes the key of a job that has ended.
func (s *State) expireKey(r *keyRecord) {
	if r.lane.watched() {
		if j := s.holder(r); j != nil {
			s.touch(j)
		} else {
			s.markKey(r)
		}
	}
	s.removeKey(r)
}

// past reports whether a key's window is over, though it was not collected yet. In a lane that never moved it holds until then.
func (s *State) past(r *keyRecord) bool {
	return r.lane.Epoch != 0 && r.seq != 0 && r.expires <= s.time
}

// holder returns the job whose key it is, and nil when the key has outlived it.
func (s *State) holder(r *keyRecord) *Job {
	j := s.jobs[r.job]
	if j == nil || j.Lane != r.lane || s.keyOf(j) != r {
		return nil
	}
	return j
}

// keyOf returns what a job's key stands for it by, and nil when it does not.
func (s *State) keyOf(j *Job) *keyRecord {
	if j.key != nil || !j.State.Ended() || j.Spec.Key == "" {
		return j.key
	}
	if r := j.Lane.keys[hashKey(j.Spec.Key)]; r != nil && r.job == j.ID {
		return r
	}
	return nil
}

// expireKeys forgets keys whose window is over.
func (s *State) expireKeys() {
	left := s.limits.TimersPerEntryMax
	for i := range s.keyed {
		for h := &s.keyed[i]; left > 0 && len(h.lanes) > 0; left-- {
			r := h.lanes[0].window.first()
			if r.expires > s.time {
				break
			}
			s.expireKey(r)
		}
	}
}

// takeKey makes the key stand for a live job.
func (s *State) takeKey(l *Lane, h keyHash, j *Job) {
	j.key = &keyRecord{lane: l, hash: h, job: j.ID, body: j.BodyHash}
	l.setKey(j.key)
	s.keyRecords++
}

func (l *Lane) setKey(r *keyRecord) {
	if l.keys == nil {
		l.keys = map[keyHash]*keyRecord{}
	}
	l.keys[r.hash] = r
}

// startWindow lets the key of a job that has just ended stand until its window is over.
func (s *State) startWindow(j *Job) {
	r := j.key
	if r == nil {
		return
	}
	j.key = nil
	r.seq, r.expires = j.finishSeq, after(j.Finished, s.limits.KeyWindow)
	s.pushKey(r)
}

// endWindow lets the key of a job that will run again hold for as long as the job lives. A key that had expired is taken anew; where it stands
// for another job now, this one goes on without.
func (s *State) endWindow(j *Job) {
	if j.Spec.Key == "" {
		return
	}
	h := hashKey(j.Spec.Key)
	r := j.Lane.keys[h]
	if r != nil && r.job != j.ID && s.past(r) {
		s.expireKey(r)
		r = nil
	}
	switch {
	case r == nil:
		s.takeKey(j.Lane, h, j)
	case r.job == j.ID:
		s.pullKey(r)
		r.seq, r.expires = 0, 0
		j.key = r
	default:
		s.count(j, -1)
		j.Spec.Key = ""
		s.count(j, 1)
	}
}
