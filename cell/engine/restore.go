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
	default:
		r.fail("a record of a kind that this version does not know")
	}
}

func (rs *restorer) lane(l *laneRecord) {
	s := rs.state
	if t := s.tenants[l.policy.Tenant]; t == nil {
		if r := s.applyPolicy(&PolicyFact{Policy: l.policy}); r.Err != nil {
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
	var seq uint64
	for _, j := range rs.jobs {
		if j.Seq <= seq || j.Seq > s.accepted || s.jobs[j.ID] != nil {
			rs.contradiction("job %v, number %d of %d, is there twice or was never accepted", j.ID, j.Seq, s.accepted)
			return
		}
		if j.State.Ended() != (j.finishSeq != 0) || j.Dropped && !j.State.Ended() || j.State == Leased && j.Lease.Token.Attempt != j.Attempt {
			rs.contradiction("job %v is %v, ended as number %d, on attempt %d", j.ID, j.State, j.finishSeq, j.Attempt)
			return
		}
		seq = j.Seq
		s.insert(j, false)
	}
	if len(s.concurrency) != keys {
		rs.contradiction("live jobs carry %d concurrency keys that have no record", len(s.concurrency)-keys)
	}
	for _, c := range s.concurrency {
		if c.live == 0 {
			rs.contradiction("no live job carries concurrency key %q of tenant %q", c.key, c.tenant.Policy.Tenant)
		}
	}
	sort.Slice(rs.keys, func(a, b int) bool { return rs.keys[a].seq < rs.keys[b].seq })
	rs.buildKeys()
	sort.Slice(rs.jobs, func(a, b int) bool { return rs.jobs[a].finishSeq < rs.jobs[b].finishSeq })
	rs.buildFinished()
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
		s.keys.records++
		s.keys.push(r)
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
		if j.finishSeq <= seq || j.finishSeq > rs.state.ended || j.Dropped && j.Lane.whole.oldest != nil {
			rs.contradiction("job %v ended as number %d of %d, after number %d", j.ID, j.finishSeq, rs.state.ended, seq)
			return
		}
		seq = j.finishSeq
		j.finishedList().push(j)
	}
}
