package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"sort"

	"github.com/fairlead/fairlead/cell"
)

// Restore returns the state that a snapshot holds; it has the snapshot's limits, whatever limits are given. It returns an error that wraps
// ErrSnapshot when the snapshot is cut off, damaged or contradicts itself, and one that wraps ErrFormat when it is whole and this version
// does not understand it.
func Restore(limits Limits, in io.Reader) (*State, error) {
	s, err := New(limits)
	if err != nil {
		return nil, err
	}
	rs := restorer{state: s, in: in}
	if err := rs.read(); err != nil {
		return nil, err
	}
	rs.build()
	if rs.fault != nil {
		return nil, rs.fault
	}
	return s, nil
}

// restorer reads records one at a time, so that memory holds the state and not also its bytes.
type restorer struct {
	state   *State
	in      io.Reader
	headed  bool
	jobs    []*Job
	keys    []*keyRecord
	changes []changeRecord
	crc     uint32
	records uint64
	fault   error // the first
	buf     bytes.Buffer
}

// recordBytesMax bounds a record: a job came in one entry, and its result in another.
const recordBytesMax = 256 << 20

// contradiction notes that the snapshot cannot be of one state.
func (rs *restorer) contradiction(format string, args ...any) {
	if rs.fault == nil {
		rs.fault = fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), ErrSnapshot)
	}
}

// read takes in all records. A fault in one of them counts only once the checksum has shown that it was written so.
func (rs *restorer) read() error {
	table := crc32.MakeTable(crc32.Castagnoli)
	for {
		var head [recordHeadBytes]byte
		if _, err := io.ReadFull(rs.in, head[:]); err != nil {
			return fmt.Errorf("after %d records: %w: %w", rs.records, err, ErrSnapshot)
		}
		kind, n := head[0], binary.LittleEndian.Uint32(head[1:])
		if n > recordBytesMax {
			return fmt.Errorf("record %d has %d bytes: %w", rs.records, n, ErrSnapshot)
		}
		rs.buf.Reset()
		if _, err := io.CopyN(&rs.buf, rs.in, int64(n)); err != nil { // grows with what there is, whatever the length says
			return fmt.Errorf("in record %d: %w: %w", rs.records, err, ErrSnapshot)
		}
		r := &reader{b: rs.buf.Bytes()}
		if kind == recordEnd {
			return rs.end(r)
		}
		rs.crc = crc32.Update(crc32.Update(rs.crc, table, head[:]), table, r.b)
		rs.records++
		if rs.fault == nil {
			rs.record(kind, r)
		}
		if r.err != nil && rs.fault == nil {
			rs.fault = fmt.Errorf("record %d, of kind %d: %w", rs.records, kind, r.err)
		}
	}
}

func (rs *restorer) end(r *reader) error {
	records := r.uint()
	var crc [4]byte
	r.fixed(crc[:])
	if r.err != nil || records != rs.records || binary.LittleEndian.Uint32(crc[:]) != rs.crc {
		return fmt.Errorf("count or checksum differ after %d records: %w", rs.records, ErrSnapshot)
	}
	return rs.fault
}

func (rs *restorer) record(kind byte, r *reader) {
	s := rs.state
	if rs.headed == (kind == recordHeader) {
		rs.contradiction("record %d is of kind %d: the first one, and no other, is the header", rs.records, kind)
		return
	}
	switch kind {
	case recordHeader:
		rs.headed = true
		s.time, s.index, s.accepted, s.ended = r.instant(), r.uint(), r.uint(), r.uint()
		s.limits = r.limits()
		if err := s.limits.Validate(); err != nil && r.err == nil {
			rs.contradiction("the limits: %v", err)
		}
	case recordLane:
		if l := r.lane(); r.err == nil {
			rs.lane(&l)
		}
	case recordMove:
		if l, m := r.lanesMove(s); r.err == nil {
			rs.move(l, &m)
		}
	case recordTenant:
		if t := r.tenant(); r.err == nil {
			rs.tenant(&t)
		}
	case recordOrganization:
		if o := r.organization(); r.err == nil {
			rs.organization(&o)
		}
	case recordConcurrency:
		if c := r.concurrency(s); r.err == nil {
			rs.concurrency(c)
		}
	case recordJob:
		if j := r.job(s); r.err == nil {
			rs.jobs = append(rs.jobs, j)
		}
	case recordKey:
		if k := r.key(s); r.err == nil {
			rs.keys = append(rs.keys, k)
		}
	case recordChange:
		if c := r.change(s); r.err == nil {
			rs.changes = append(rs.changes, c)
		}
	default:
		r.fail("a record of a kind that this version does not know")
	}
}

// move makes a lane what it was, before anything is in it.
func (rs *restorer) move(l *Lane, m *laneMove) {
	if l.record().move != (laneMove{}) {
		rs.contradiction("lane %v has moved twice", l.ID)
		return
	}
	if m.mode != cell.ModeOpen {
		rs.state.closeLane(l)
	}
	l.Mode, l.Epoch, l.Move, l.Fence, l.opened = m.mode, m.epoch, m.move, m.fence, m.opened
	l.Change, l.Cursor, l.Submitted, l.Granted = m.change, m.cursor, m.submitted, m.granted
	l.wiping, l.inherited, l.atFence = m.wiping, m.inherited, m.atFence
	if m.tracked {
		rs.state.track(l, m.tracking)
		l.tracker.since, l.tracker.accepted = m.since, m.accepted
	}
	if fault := l.contradicts(); fault != "" {
		rs.contradiction("lane %v %s", l.ID, fault)
	}
}

// buildChanges gives the records of tracked lanes their numbers.
func (rs *restorer) buildChanges() {
	s := rs.state
	for i := range rs.changes {
		c := &rs.changes[i]
		k := c.lane.tracker
		if k == nil || c.number <= k.since || c.number > c.lane.Change || k.changes.at(c.number) != nil {
			rs.contradiction("change %d of lane %v is none, or there twice", c.number, c.lane.ID)
			return
		}
		t := &trail{lane: c.lane, isKey: c.isKey, id: c.id, hash: c.hash, number: c.number, tracking: k.number}
		switch j, r := s.jobs[c.id], c.lane.keys[c.hash]; {
		case c.gone:
			k.gone++
		case !c.isKey && j != nil && j.Lane == c.lane && j.trail == nil:
			t.job, j.trail = j, t
		case c.isKey && r != nil && r.job == c.id && r.trail == nil:
			t.key, r.trail = r, t
		default:
			rs.contradiction("change %d of lane %v is of nothing", c.number, c.lane.ID)
			return
		}
		k.changes.put(c.number, t)
	}
}

func (rs *restorer) lane(l *laneRecord) {
	s := rs.state
	if t := s.tenants[l.policy.Tenant]; t == nil {
		if r := s.applyPolicy(&PolicyFact{Policy: l.policy}, &Applied{}); r.Err != nil {
			rs.contradiction("tenant %q: %v", l.policy.Tenant, r.Err)
			return
		}
	} else if t.Policy != l.policy {
		rs.contradiction("two policies of tenant %q", l.policy.Tenant)
	}
	lane := s.Lane(cell.Lane{Tenant: l.policy.Tenant, Class: l.class})
	lane.Charged, lane.Account = l.charged, l.account
}

func (rs *restorer) tenant(r *tenantRecord) {
	t := rs.state.tenants[r.tenant]
	switch {
	case t == nil:
		rs.contradiction("tenant %q has accounts and no lanes", r.tenant)
		return
	case t.Account != cell.TenantAccount{} || len(t.starts.at) > 0 || t.estimates.oldest != nil:
		rs.contradiction("tenant %q has accounts twice", r.tenant)
		return
	case len(r.starts) > startsKept(t):
		rs.contradiction("tenant %q has %d starts of at most %d", r.tenant, len(r.starts), startsKept(t))
		return
	}
	t.Account, t.starts.at = r.account, r.starts
	for _, e := range r.estimates {
		if t.estimates.byOperation[e.operation] != nil {
			rs.contradiction("tenant %q has two estimates of %q", r.tenant, e.operation)
			return
		}
		t.estimates.set(e.operation, e.estimate)
	}
}

func (rs *restorer) organization(o *Organization) {
	s := rs.state
	if s.organizations[o.Policy.Organization] != nil {
		rs.contradiction("organization %q is there twice", o.Policy.Organization)
		return
	}
	s.organizations[o.Policy.Organization] = o
	s.organizationList = append(s.organizationList, o)
}

func (rs *restorer) concurrency(c *concurrency) {
	if c.tenant.concurrency[c.key] != nil {
		rs.contradiction("concurrency key %q of tenant %q is there twice", c.key, c.tenant.Policy.Tenant)
		return
	}
	rs.state.newConcurrency(c.tenant, cell.ConcurrencyKey{Key: c.key, Max: c.bound})
}

// build puts what was read into the state's indexes, in the order in which it came to be.
func (rs *restorer) build() {
	s := rs.state
	sort.Slice(rs.jobs, func(a, b int) bool { return rs.jobs[a].Seq < rs.jobs[b].Seq })
	keys := len(s.concurrency)
	for _, j := range rs.jobs {
		if j.Seq == 0 || j.Lane.list.at(j.Seq) != nil || j.Seq > s.accepted || s.jobs[j.ID] != nil {
			rs.contradiction("job %v, number %d of %d, is there twice or was never accepted", j.ID, j.Seq, s.accepted)
			return
		}
		if j.State.Ended() != (j.finishSeq != 0) || j.Dropped && !j.State.Ended() || j.State == Leased && j.Lease.Token.Attempt != j.Attempt {
			rs.contradiction("job %v is %v, ended as number %d, on attempt %d", j.ID, j.State, j.finishSeq, j.Attempt)
			return
		}
		s.insert(j, false)
	}
	if len(s.concurrency) != keys {
		rs.contradiction("live jobs carry %d concurrency keys that have no record", len(s.concurrency)-keys)
	}
	for _, c := range s.concurrency {
		if c.live == [2]int64{} {
			rs.contradiction("no live job carries concurrency key %q of tenant %q", c.key, c.tenant.Policy.Tenant)
		}
	}
	sort.Slice(rs.keys, func(a, b int) bool { return rs.keys[a].seq < rs.keys[b].seq })
	rs.buildKeys()
	sort.Slice(rs.jobs, func(a, b int) bool { return rs.jobs[a].finishSeq < rs.jobs[b].finishSeq })
	rs.buildFinished()
	if rs.fault == nil {
		sort.Slice(rs.changes, func(a, b int) bool { return rs.changes[a].number < rs.changes[b].number })
		rs.buildChanges()
	}
}

func (rs *restorer) buildKeys() {
	s := rs.state
	var seq uint64
	for _, r := range rs.keys {
		if r.seq <= seq || r.seq > s.ended || r.lane.keys[r.hash] != nil {
			rs.contradiction("the key of %v, end number %d of %d, is there twice or never ended", r.job, r.seq, s.ended)
			return
		}
		seq = r.seq
		r.lane.setKey(r)
		s.keyRecords++
		r.lane.window.put(r.seq, r)
		s.rekey(r.lane)
	}
	for _, j := range rs.jobs {
		if j.State.Ended() || j.Spec.Key == "" {
			continue
		}
		h := hashKey(j.Spec.Key)
		if j.Lane.keys[h] != nil {
			rs.contradiction("the key of %v stands for another job", j.ID)
			return
		}
		s.takeKey(j.Lane, h, j)
	}
}

func (rs *restorer) buildFinished() {
	var seq uint64
	for _, j := range rs.jobs {
		if !j.State.Ended() {
			continue
		}
		if j.finishSeq <= seq || j.finishSeq > rs.state.ended || j.Dropped && j.Lane.whole.oldest != nil && j.Lane.Epoch == 0 {
			rs.contradiction("job %v ended as number %d of %d, after number %d", j.ID, j.finishSeq, rs.state.ended, seq)
			return
		}
		seq = j.finishSeq
		j.finishedList().push(j)
	}
}
