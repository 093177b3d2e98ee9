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
	// How far the walks are: what is below the index in the list of its name is written or set aside, and so are the keys older than key.
	organization, lane, tenant, concurrency, job int
	key                                          *keyRecord
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
	jobs          []*Job
	keys          []keyRecord
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
		state: s, header: w.b, key: s.keys.oldest, organizationsEnd: len(s.organizationList), lanesEnd: len(s.lanes), keysEnd: s.ended,
		chunkBytes: snapshotChunkBytes, chunkSteps: snapshotChunkSteps,
	}
	return s.snapshot, nil
}

// touch must be called before a job's record changes.
func (s *State) touch(j *Job) {
	if s.snapshot == nil || j.written == s.generation {
		return
	}
	j.written = s.generation
	was := *j
	s.snapshot.aside.jobs = append(s.snapshot.aside.jobs, &was)
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

// touchKey must be called before an ended job's key leaves the list.
func (s *State) touchKey(r *keyRecord) {
	if s.snapshot == nil {
		return
	}
	if s.snapshot.key == r {
		s.snapshot.key = r.newer
	}
	if r.written != s.generation {
		r.written = s.generation
		s.snapshot.aside.keys = append(s.snapshot.aside.keys, *r)
	}
}

// moving must be called before the last job of state.all takes the place of another, which the walk may have passed.
func (n *Snapshot) moving(last *Job, to int) {
	if to < n.job && last.position >= n.job {
		n.state.touch(last)
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
	return n.stepParents(w) || n.stepTenants(w) || n.stepJobs(w)
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

// stepJobs takes the next step among the jobs and the idempotency keys.
func (n *Snapshot) stepJobs(w *writer) bool {
	s := n.state
	switch {
	case len(n.aside.jobs) > 0:
		n.writeJob(w, takeLast(&n.aside.jobs))
	case n.job < len(s.all):
		j := s.all[n.job]
		n.job++
		if j.written != s.generation {
			j.written = s.generation
			n.writeJob(w, j)
		}
	case len(n.aside.keys) > 0:
		r := takeLast(&n.aside.keys)
		n.writeKey(w, &r)
	case n.key != nil && n.key.seq <= n.keysEnd:
		r := n.key
		n.key = r.newer
		if r.written != s.generation {
			r.written = s.generation
			n.writeKey(w, r)
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
}

func (n *Snapshot) writeJob(w *writer, j *Job) {
	at := n.begin(w, recordJob)
	w.job(j)
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

func (n *Snapshot) writeKey(w *writer, r *keyRecord) {
	at := n.begin(w, recordKey)
	w.key(r)
	w.end(at)
}

// Close gives the snapshot up, whole or not. It may be called again.
func (n *Snapshot) Close() {
	if n.done {
		return
	}
	n.state.snapshot = nil
	*n = Snapshot{done: true} // what was set aside is let go
}
