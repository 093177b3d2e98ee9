package engine

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
)

// The kinds of record in a snapshot. Numbers are never used again.
const (
	recordHeader       = 1
	recordLane         = 2
	recordJob          = 3
	recordKey          = 4
	recordEnd          = 5
	recordTenant       = 6 // what a tenant has beside its lanes
	recordOrganization = 7
	recordConcurrency  = 8
	recordMove         = 9  // what a lane has that has moved, or moves; it comes after the lane's own
	recordChange       = 10 // the number of the last change of a job or key of a tracked lane
)

// ErrSnapshot is wrapped by every error about a snapshot that is cut off, damaged or contradicts itself. Nothing was restored.
var ErrSnapshot = errors.New("snapshot damaged")

// Snapshot is the state as it was when BeginSnapshot was called, taken off in pieces while Apply goes on. What is about to change before its
// turn is set aside first, as it was: a snapshot costs Apply a copy of each record that it is the first to change, and no more.
type Snapshot struct {
	state  *State
	header []byte // nil once written
	// What was set aside and is not yet written.
	aside aside
	// How far the walks are: what is below the index in the list of its name is written or set aside, and so are the keys of ended jobs of the lanes below
	// keys, and those of that one up to key; and so with what is gone of the lanes that were tracked.
	organization, lane, tenant, concurrency, job int
	keys, gone                                   int
	key, change                                  uint64
	trackers                                     []*tracker
	// Where some of the walks end: what was added after the mark is no part of it.
	organizationsEnd, lanesEnd int
	keysEnd                    uint64

	chunkBytes, chunkSteps int // see the constants of these names
	crc                    uint32
	records                uint64
	done                   bool
}

// aside is records as they were at the mark, which have changed since.
type aside struct {
	organizations []Organization
	lanes         []laneRecord
	tenants       []tenantRecord
	concurrency   []concurrency
	jobs          []asideJob
	keys          []asideKey
	changes       []changeRecord // of what is gone
}

// asideJob is a job and the number of its last change, 0 for none.
type asideJob struct {
	job    *Job
	number uint64
}

type asideKey struct {
	key    keyRecord
	number uint64
}

// BeginSnapshot marks the state as it is, in a time that does not depend on its size. The snapshot has to be taken off by Next, or given up
// by Close, before the next one begins: it returns an error until then.
func (s *State) BeginSnapshot() (*Snapshot, error) {
	if s.snapshot != nil {
		return nil, errors.New("a snapshot is being taken already")
	}
	s.generation++
	var w writer
	w.instant(s.time)
	w.uint(s.index)
	w.uint(s.accepted)
	w.uint(s.ended)
	w.limits(&s.limits)
	s.snapshot = &Snapshot{
		state: s, header: w.b, trackers: s.trackers(), organizationsEnd: len(s.organizationList), lanesEnd: len(s.lanes), keysEnd: s.ended,
		chunkBytes: snapshotChunkBytes, chunkSteps: snapshotChunkSteps,
	}
	return s.snapshot, nil
}

// trackers returns those of the lanes that are tracked.
func (s *State) trackers() []*tracker {
	all := make([]*tracker, len(s.tracked))
	for i, l := range s.tracked {
		all[i] = l.tracker
	}
	return all
}

// numberOf returns the number that a record's last change had at the mark, where the record has not changed since.
func (n *Snapshot) numberOf(t *trail) uint64 {
	if t == nil {
		return 0
	}
	for _, k := range n.trackers { // few lanes move at a time
		if k.number == t.tracking {
			return t.number
		}
	}
	return 0
}

// touch must be called before a job's record changes.
func (s *State) touch(j *Job) {
	s.mark(j)
	s.setAside(j)
}

// setAside lets a snapshot under way have the job as it is.
func (s *State) setAside(j *Job) {
	if s.snapshot == nil || j.written == s.generation {
		return
	}
	j.written = s.generation
	was := *j
	s.snapshot.aside.jobs = append(s.snapshot.aside.jobs, asideJob{&was, s.snapshot.numberOf(j.trail)})
}

// touchLane must be called before a lane's record, or its tenant's policy, changes.
func (s *State) touchLane(l *Lane) {
	if s.snapshot == nil || l.written == s.generation {
		return
	}
	l.written = s.generation
	s.snapshot.aside.lanes = append(s.snapshot.aside.lanes, l.record())
}

// touchTenant must be called before what a tenant has beside its policy and its lanes changes.
func (s *State) touchTenant(t *Tenant) {
	if s.snapshot == nil || t.written == s.generation {
		return
	}
	t.written = s.generation
	if r := t.record(); !r.empty() {
		s.snapshot.aside.tenants = append(s.snapshot.aside.tenants, r)
	}
}

// touchOrganization must be called before an organization's record changes.
func (s *State) touchOrganization(o *Organization) {
	if s.snapshot == nil || o.written == s.generation {
		return
	}
	o.written = s.generation
	s.snapshot.aside.organizations = append(s.snapshot.aside.organizations, *o)
}

// touchConcurrency must be called before a concurrency key's bound changes, or its last live job ends.
func (s *State) touchConcurrency(c *concurrency) {
	if s.snapshot == nil || c.written == s.generation {
		return
	}
	c.written = s.generation
	s.snapshot.aside.concurrency = append(s.snapshot.aside.concurrency, *c)
}

// touchKey must be called before the key of an ended job leaves those, or outlives its job in a lane that is tracked.
func (s *State) touchKey(r *keyRecord) {
	if s.snapshot == nil || r.written == s.generation || r.seq == 0 {
		return
	}
	r.written = s.generation
	s.snapshot.aside.keys = append(s.snapshot.aside.keys, asideKey{*r, s.snapshot.numberOf(r.trail)})
}

// touchGone must be called before a tracked lane lets go of a record that is gone.
func (s *State) touchGone(t *trail) {
	if s.snapshot == nil || t.written == s.generation {
		return
	}
	t.written = s.generation
	if s.snapshot.numberOf(t) != 0 {
		s.snapshot.aside.changes = append(s.snapshot.aside.changes, t.record())
	}
}

// moving must be called before the last job of state.all takes the place of another, which the walk may have passed.
func (n *Snapshot) moving(last *Job, to int) {
	if to < n.job && last.position >= n.job {
		n.state.setAside(last)
	}
}

// movingConcurrency is moving for State.concurrency.
func (n *Snapshot) movingConcurrency(last *concurrency, to int) {
	if to < n.concurrency && last.position >= n.concurrency {
		n.state.touchConcurrency(last)
	}
}

const (
	// snapshotChunkBytes is about how much Next returns at once: little enough that whoever holds the state's lock for it holds it for well
	// under a millisecond.
	snapshotChunkBytes = 128 << 10
	// snapshotChunkSteps bounds what Next looks at, since a walk may pass long stretches that were set aside before.
	snapshotChunkSteps = 2048
)

// Next appends the next piece of the snapshot to dst, and returns io.EOF with the last one. A piece is about 128 KiB, more only by its last
// record, and may be empty. It reads the state: the owner's lock must be held.
func (n *Snapshot) Next(dst []byte) ([]byte, error) {
	if n.done {
		return dst, io.EOF
	}
	w := writer{b: dst}
	whole := false
	for steps := 0; !whole && steps < n.chunkSteps && len(w.b)-len(dst) < n.chunkBytes; steps++ {
		whole = !n.step(&w)
	}
	n.crc = crc32.Update(n.crc, crc32.MakeTable(crc32.Castagnoli), w.b[len(dst):])
	if !whole {
		return w.b, nil
	}
	at := w.begin(recordEnd)
	w.uint(n.records)
	w.b = binary.LittleEndian.AppendUint32(w.b, n.crc)
	w.end(at)
	n.Close()
	return w.b, io.EOF
}

// step takes the next step of the walk, and returns false when there is none. Organizations come before the lanes of their tenants, and lanes before
// what names them.
func (n *Snapshot) step(w *writer) bool {
	if n.header != nil {
		at := n.begin(w, recordHeader)
		w.fixed(n.header)
		w.end(at)
		n.header = nil
		return true
	}
	return n.stepParents(w) || n.stepTenants(w) || n.stepJobs(w) || n.stepKeys(w) || n.stepGone(w)
}

// stepParents takes the next step among the organizations and the lanes.
func (n *Snapshot) stepParents(w *writer) bool {
	s := n.state
	switch {
	case len(n.aside.organizations) > 0:
		o := takeLast(&n.aside.organizations)
		n.writeOrganization(w, &o)
	case n.organization < n.organizationsEnd:
		o := s.organizationList[n.organization]
		n.organization++
		if o.written != s.generation {
			o.written = s.generation
			n.writeOrganization(w, o)
		}
	case len(n.aside.lanes) > 0:
		n.writeLane(w, takeLast(&n.aside.lanes))
	case n.lane < n.lanesEnd:
		l := s.lanes[n.lane]
		n.lane++
		if l.written != s.generation {
			l.written = s.generation
			n.writeLane(w, l.record())
		}
	default:
		return false
	}
	return true
}

// stepTenants takes the next step among what tenants have beside their lanes.
func (n *Snapshot) stepTenants(w *writer) bool {
	s := n.state
	switch {
	case len(n.aside.tenants) > 0:
		n.writeTenant(w, takeLast(&n.aside.tenants))
	case n.tenant < n.lanesEnd:
		t := s.lanes[n.tenant].Tenant
		n.tenant += classes
		if t.written != s.generation {
			t.written = s.generation
			if r := t.record(); !r.empty() {
				n.writeTenant(w, r)
			}
		}
	case len(n.aside.concurrency) > 0:
		c := takeLast(&n.aside.concurrency)
		n.writeConcurrency(w, &c)
	case n.concurrency < len(s.concurrency):
		c := s.concurrency[n.concurrency]
		n.concurrency++
		if c.written != s.generation {
			c.written = s.generation
			n.writeConcurrency(w, c)
		}
	default:
		return false
	}
	return true
}

// stepJobs takes the next step among the jobs.
func (n *Snapshot) stepJobs(w *writer) bool {
	s := n.state
	switch {
	case len(n.aside.jobs) > 0:
		j := takeLast(&n.aside.jobs)
		n.writeJob(w, j.job, j.number)
	case n.job < len(s.all):
		j := s.all[n.job]
		n.job++
		if j.written != s.generation {
			j.written = s.generation
			n.writeJob(w, j, n.numberOf(j.trail))
		}
	default:
		return false
	}
	return true
}

// stepKeys takes the next step among the idempotency keys of ended jobs.
func (n *Snapshot) stepKeys(w *writer) bool {
	s := n.state
	switch {
	case len(n.aside.keys) > 0:
		k := takeLast(&n.aside.keys)
		n.writeKey(w, &k.key, k.number)
	case n.keys < n.lanesEnd:
		r := s.lanes[n.keys].window.after(n.key)
		if r == nil || r.seq > n.keysEnd {
			n.keys++
			n.key = 0
			break
		}
		n.key = r.seq
		if r.written != s.generation {
			r.written = s.generation
			n.writeKey(w, r, n.numberOf(r.trail))
		}
	default:
		return false
	}
	return true
}

// stepGone takes the next step among what is gone of lanes that were tracked.
func (n *Snapshot) stepGone(w *writer) bool {
	switch {
	case len(n.aside.changes) > 0:
		c := takeLast(&n.aside.changes)
		n.writeChange(w, &c)
	case n.gone < len(n.trackers):
		number, t := n.trackers[n.gone].changes.next(n.change)
		if n.change = number; t == nil {
			n.gone++
			break
		}
		if t.gone() && t.written != n.state.generation { // what is gone is not used again, by a later tracking of the lane either
			t.written = n.state.generation
			c := t.record()
			n.writeChange(w, &c)
		}
	default:
		return false
	}
	return true
}

// takeLast takes the last one off and lets go of it.
func takeLast[T any](list *[]T) T {
	var none T
	end := len(*list) - 1
	last := (*list)[end]
	(*list)[end] = none
	*list = (*list)[:end]
	return last
}

func (n *Snapshot) begin(w *writer, kind byte) int {
	n.records++
	return w.begin(kind)
}

func (n *Snapshot) writeLane(w *writer, l laneRecord) {
	at := n.begin(w, recordLane)
	w.lane(&l)
	w.end(at)
	if l.move != (laneMove{}) {
		at := n.begin(w, recordMove)
		w.lanesMove(&l)
		w.end(at)
	}
}

func (n *Snapshot) writeJob(w *writer, j *Job, number uint64) {
	at := n.begin(w, recordJob)
	w.job(j)
	w.end(at)
	if number != 0 {
		n.writeChange(w, &changeRecord{lane: j.Lane, id: j.ID, number: number})
	}
}

func (n *Snapshot) writeChange(w *writer, c *changeRecord) {
	at := n.begin(w, recordChange)
	w.change(c)
	w.end(at)
}

func (n *Snapshot) writeTenant(w *writer, t tenantRecord) {
	at := n.begin(w, recordTenant)
	w.tenant(&t)
	w.end(at)
}

func (n *Snapshot) writeOrganization(w *writer, o *Organization) {
	at := n.begin(w, recordOrganization)
	w.organization(o)
	w.end(at)
}

func (n *Snapshot) writeConcurrency(w *writer, c *concurrency) {
	at := n.begin(w, recordConcurrency)
	w.concurrency(c)
	w.end(at)
}

func (n *Snapshot) writeKey(w *writer, r *keyRecord, number uint64) {
	at := n.begin(w, recordKey)
	w.key(r)
	w.end(at)
	if number != 0 {
		n.writeChange(w, &changeRecord{lane: r.lane, isKey: true, id: r.job, hash: r.hash, number: number})
	}
}

// Close gives the snapshot up, whole or not. It may be called again.
func (n *Snapshot) Close() {
	if n.done {
		return
	}
	n.state.snapshot = nil
	*n = Snapshot{done: true} // what was set aside is let go
}
