package engine

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math/bits"

	"github.com/fairlead/fairlead/cell"
)

// Buckets is how many parts a lane's digest has.
const Buckets = 256

// LaneDigest is the digest of a lane's content: equal for equal content, whichever cell it is in.
type LaneDigest struct {
	Sum     [32]byte // of the buckets, the counts, and what the lane was charged
	Buckets [Buckets][16]byte
	Done    int // how much is computed, in thousandths
}

// RecordDigest is one record of a lane and its digest.
type RecordDigest struct {
	Key    bool   // an idempotency key that has outlived its job
	ID     string // the job's, or the key's hash in hexadecimal
	Digest [16]byte
}

// digest is what is computed of a lane's digest. It is no part of the log's state: what is computed differs from replica to replica.
type digest struct {
	number  uint64 // see State.digests
	buckets [Buckets]sum128
	walk    uint64 // what lies behind this place in State.walk is in, and whatever changed since it was begun
}

// sum128 is a sum of digests, modulo 2^128: whatever is taken off again leaves no trace, in whatever order.
type sum128 struct{ hi, lo uint64 }

func (a sum128) plus(b sum128) sum128 {
	lo, carry := bits.Add64(a.lo, b.lo, 0)
	hi, _ := bits.Add64(a.hi, b.hi, carry)
	return sum128{hi, lo}
}

func (a sum128) minus(b sum128) sum128 {
	lo, borrow := bits.Sub64(a.lo, b.lo, 0)
	hi, _ := bits.Sub64(a.hi, b.hi, borrow)
	return sum128{hi, lo}
}

func (a sum128) bytes() (b [16]byte) {
	binary.BigEndian.PutUint64(b[:8], a.hi)
	binary.BigEndian.PutUint64(b[8:], a.lo)
	return b
}

// bucketOf spreads what names a record (FNV-1a).
func bucketOf(name [16]byte) int {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for _, b := range name {
		h = (h ^ uint64(b)) * prime
	}
	return int((h ^ h>>32) % Buckets)
}

// name is what spreads the trail's record over the buckets.
func (t *trail) name() [16]byte {
	if t.isKey {
		return t.hash
	}
	return t.id
}

// recordSum returns the digest of a job, or of a key. There are millions of them: w, of which nothing is kept, spares the collector a buffer for each.
func (s *State) recordSum(w *writer, j *Job, r *keyRecord) sum128 {
	if w.b = w.b[:0]; j != nil {
		w.b = append(w.b, portableJob)
		w.canonicalJob(s, j)
	} else {
		w.b = append(w.b, portableKey)
		w.canonicalKey(r)
	}
	sum := sha256.Sum256(w.b)
	return sum128{binary.BigEndian.Uint64(sum[:8]), binary.BigEndian.Uint64(sum[8:])}
}

// replace takes a record's digest off, where it is in, and puts in that of the record as it is now.
func (d *digest) replace(s *State, t *trail) {
	b := &d.buckets[bucketOf(t.name())]
	if t.digest == d.number {
		*b = b.minus(t.sum)
		t.digest = 0
	}
	if !t.gone() && (t.key == nil || s.holder(t.key) == nil) { // else the key is a part of its job's record for now
		t.sum, t.digest = s.recordSum(&s.scratch, t.job, t.key), d.number
		*b = b.plus(t.sum)
	}
}

// compared reports whether the lane's digest is of use to anybody.
func (l *Lane) compared() bool {
	return l.tracker != nil || (l.Mode == cell.ModeStaged || l.Mode == cell.ModeStandby) && !l.wiping
}

// AdvanceDigest computes the digest of a lane that is tracked or filled further, looking at no more than steps records, and reports whether it is
// whole. Apply keeps what is computed. It is no part of the log's state, and must not run beside anything else all the same.
func (s *State) AdvanceDigest(lane cell.Lane, steps int) (done bool) {
	l := s.Lane(lane)
	if l == nil || !l.compared() {
		return true
	}
	d := l.digest
	if d == nil {
		s.digests++
		d = &digest{number: s.digests}
		l.digest = d
	}
	d.walk = s.walk(l, d.walk, SeededAll, steps, func(j *Job, r *keyRecord) bool {
		var t *trail
		if j != nil {
			if j.trail == nil {
				j.trail = &trail{lane: l, job: j, id: j.ID}
			}
			t = j.trail
		} else {
			if r.trail == nil {
				r.trail = &trail{lane: l, key: r, isKey: true, id: r.job, hash: r.hash}
			}
			t = r.trail
		}
		if t.digest != d.number {
			d.replace(s, t)
		}
		return true
	})
	return d.walk == SeededAll
}

// Digest returns the lane's digest, and whether it is whole.
func (s *State) Digest(lane cell.Lane) (LaneDigest, bool) {
	l := s.Lane(lane)
	if l == nil || l.digest == nil {
		return LaneDigest{}, false
	}
	var out LaneDigest
	d := l.digest
	var w writer
	for i, b := range d.buckets {
		out.Buckets[i] = b.bytes()
		w.fixed(out.Buckets[i][:])
	}
	for _, n := range l.counts {
		w.int(n)
	}
	w.int(int64(len(l.keys)))
	w.int(int64(l.Charged))
	out.Sum = sha256.Sum256(w.b)
	out.Done = d.done(l)
	return out, out.Done == wholeShare
}

// done is how much is computed, in thousandths.
func (d *digest) done(l *Lane) int {
	if d.walk == SeededAll {
		return wholeShare
	}
	jobs, keys := len(l.list.places), len(l.window.places)
	passed := jobs
	if d.walk < keyPlaces {
		passed = l.list.find(d.walk + 1)
	} else {
		passed += l.window.find(d.walk - keyPlaces + 1)
	}
	return min(passed*wholeShare/max(jobs+keys, 1), wholeShare-1)
}

// BucketRecords returns the records of one of the digest's buckets, 0 to Buckets-1, from the place from on, 0 for the first, having looked at no more than
// steps records. The next call begins at next, which is SeededAll after the last.
func (s *State) BucketRecords(lane cell.Lane, bucket int, from uint64, steps int) (records []RecordDigest, next uint64) {
	l := s.Lane(lane)
	if l == nil {
		return nil, SeededAll
	}
	var w writer
	next = s.walk(l, from, SeededAll, steps, func(j *Job, r *keyRecord) bool {
		var d RecordDigest
		switch {
		case j != nil && bucketOf(j.ID) == bucket:
			d.ID = j.ID.String()
		case r != nil && bucketOf(r.hash) == bucket:
			d.Key, d.ID = true, hex.EncodeToString(r.hash[:])
		default:
			return true
		}
		d.Digest = s.recordSum(&w, j, r).bytes()
		records = append(records, d)
		return true
	})
	return records, next
}
