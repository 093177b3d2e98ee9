package engine

import (
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

	older, newer *keyRecord // neighbours in the keyList, while the job has ended
	written      uint64     // the last snapshot generation that has this record
}

// keyList has the keys of ended jobs in the order of the ends, which is that in which they expire. A job that runs again takes its key out,
// so that trying a job again and again costs no memory.
type keyList struct {
	oldest, newest *keyRecord
	records        int64 // keys in all lanes, those of live jobs included
}

func (l *keyList) push(r *keyRecord) {
	r.older, r.newer = l.newest, nil
	if l.newest != nil {
		l.newest.newer = r
	} else {
		l.oldest = r
	}
	l.newest = r
}

func (l *keyList) remove(r *keyRecord) {
	if r.older != nil {
		r.older.newer = r.newer
	} else {
		l.oldest = r.newer
	}
	if r.newer != nil {
		r.newer.older = r.older
	} else {
		l.newest = r.older
	}
	r.older, r.newer = nil, nil
}

// takeKey makes the key stand for a live job.
func (s *State) takeKey(l *Lane, h keyHash, j *Job) {
	j.key = &keyRecord{lane: l, hash: h, job: j.ID, body: j.BodyHash}
	l.setKey(j.key)
	s.keys.records++
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
	r.written = s.generation // a snapshot under way has it as that of a live job, or not at all
	s.keys.push(r)
}

// endWindow lets the key of a job that will run again hold for as long as the job lives. A key that had expired is taken anew; where it stands
// for another job now, this one goes on without.
func (s *State) endWindow(j *Job) {
	if j.Spec.Key == "" {
		return
	}
	h := hashKey(j.Spec.Key)
	r := j.Lane.keys[h]
	switch {
	case r == nil:
		s.takeKey(j.Lane, h, j)
	case r.job == j.ID:
		s.touchKey(r)
		s.keys.remove(r)
		r.seq, r.expires = 0, 0
		j.key = r
	default:
		s.count(j, -1)
		j.Spec.Key = ""
		s.count(j, 1)
	}
}
