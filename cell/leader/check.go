package leader

import (
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	"github.com/fairlead/fairlead/cell/sched"
)

// faults gathers what a check finds.
type faults []error

// faultsMax bounds what is gathered: more would say nothing new.
const faultsMax = 20

func (f *faults) add(format string, args ...any) {
	if len(*f) < faultsMax {
		*f = append(*f, fmt.Errorf(format, args...))
	}
}

// Check compares what the leader keeps with the state, and returns all differences together, with what the scheduler finds in itself. It walks
// everything. It must not be called while an entry is in flight, when the leader is ahead of the state.
func (l *Leader) Check() error { return errors.Join(l.check(), l.sched.Check()) }

// check is Check without what the scheduler finds, which takes as long in a small cell as in a large one.
func (l *Leader) check() error {
	var f faults
	l.checkJobs(&f)
	l.checkSessions(&f)
	l.checkHeld(&f)
	l.checkPolls(&f)
	l.checkLanes(&f)
	for i, le := range l.leases.heap {
		if le.index != i || i > 0 && le.expires < l.leases.heap[(i-1)/2].expires {
			f.add("the lease of %v is out of order", le.job)
		}
	}
	return errors.Join(f...)
}

// checkJobs compares what waits and what is leased with the state.
func (l *Leader) checkJobs(f *faults) {
	ready, away := 0, 0
	l.state.Jobs(func(j *engine.Job) bool {
		le := l.leases.get(j.ID)
		waits := l.sched.Waits(j.ID)
		late := j.State == engine.Ready && j.Spec.Deadline != 0 && j.Spec.Deadline <= l.last
		if waits != (j.State == engine.Ready) && !late {
			f.add("%v is %v, and waits in the scheduler: %v", j.ID, j.State, waits)
		}
		switch {
		case j.State == engine.Leased && here(j.Lane.Mode):
			if le == nil || le.token != j.Lease.Token {
				f.add("%v is leased, and the leader has no such lease", j.ID)
			}
		case le != nil && !le.revoked:
			f.add("%v is %v in a lane that is %v, and the leader has a lease of it", j.ID, j.State, j.Lane.Mode)
		case j.State == engine.Leased:
			if _, known := l.moves.away[j.ID]; !known {
				f.add("%v is leased in a lane that is %v, and the leader does not know it", j.ID, j.Lane.Mode)
			}
			away++
		}
		if waits {
			ready++
		}
		return true
	})
	if away != len(l.moves.away) {
		f.add("%d jobs are leased in lanes that are not the cell's, and %d are known", away, len(l.moves.away))
	}
	if ready != l.sched.Len() {
		f.add("%d jobs wait in the scheduler, %d of them are in the state", l.sched.Len(), ready)
	}
}

// checkSessions compares what sessions hold and may hold with the leases and with the sums that are kept of it.
func (l *Leader) checkSessions(f *faults) {
	var held [2]int64
	var slots, room int64
	live := 0
	for _, s := range l.sessions { // order-free: sums
		revoked := 0
		for i, le := range s.held {
			if l.leases.get(le.job) != le || le.session != s || le.at != i {
				f.add("session %q holds a lease of %v that is not its own", s.id.Name, le.job)
			}
			live++
			if le.revoked {
				revoked++
			}
			if !le.private {
				held[le.book.lane.Class.Index()]++
			}
		}
		if revoked != s.revoked {
			f.add("session %q has %d revoked leases, and counts %d", s.id.Name, revoked, s.revoked)
		}
		if !s.private() {
			slots += s.slots
			room += s.slots + s.prefetch
		}
	}
	if slots != l.slots || room != l.room {
		f.add("sessions have %d slots and room for %d, and the leader counts %d and %d", slots, room, l.slots, l.room)
	}
	if live != l.leases.len() {
		f.add("sessions hold %d leases of %d", live, l.leases.len())
	}
	for _, c := range cell.Classes() {
		if u := l.sched.Use(c).Used; u != held[c.Index()] {
			f.add("%v uses %d, and %d of its leases live", c, u, held[c.Index()])
		}
	}
}

// checkLanes compares what is kept of lanes with what they do, and what bounds their tenants' keys with the state.
func (l *Leader) checkLanes(f *faults) {
	for _, lane := range l.state.Lanes() {
		mode := cell.ModeOpen
		if b := l.books[lane.ID]; b != nil {
			mode = b.mode
		}
		if suspended := l.sched.Suspended(lane.ID); mode != lane.Mode || suspended != (mode != cell.ModeOpen) {
			f.add("lane %v is %v, the leader has it as %v, and in the scheduler it is suspended: %v", lane.ID, lane.Mode, mode, suspended)
		}
	}
	for _, le := range l.leases.heap {
		fenced := le.book.mode == cell.ModeFenced
		if le.parted && (!le.revoked || le.book.mode == cell.ModeOpen) {
			f.add("the lease of %v, revoked %v, is of a lane that is %v, and has left with it", le.job, le.revoked, le.book.mode)
		}
		if le.frozen != (fenced && !le.revoked) || le.frozen != (le.expires == never) {
			f.add("the lease of %v, revoked %v, is frozen %v in a lane that is %v, and expires at %d", le.job, le.revoked, le.frozen, le.book.mode, le.expires)
		}
	}
	for _, t := range l.state.Tenants() {
		for key, most := range l.boundsOf(t.Policy.Tenant) { // order-free: faults of each
			if bound, _, ok := t.Concurrency(key); ok && bound != most {
				f.add("key %q of tenant %s is bound by %d, and by %d in the scheduler", key, t.Policy.Tenant, bound, most)
			}
		}
	}
}

// checkPolls compares what is counted of open polls with them.
func (l *Leader) checkPolls(f *faults) {
	for _, polls := range []*pollList{&l.polls, &l.privatePolls} {
		var count [sched.OffersMax]int32
		offers := uint64(0)
		for c := polls.first; c != nil; c = c.next {
			if c.offer != c.session.offer || c.session.poll != c {
				f.add("the poll of %q is for offer %d, and the session's for %d", c.session.id.Name, c.offer, c.session.offer)
			}
			count[c.offer]++
			offers |= 1 << c.offer
		}
		if count != polls.count || offers != polls.offers {
			f.add("polls are open for offers %b, %v, and %b, %v are counted", offers, count, polls.offers, polls.count)
		}
	}
}

// checkHeld compares what the scheduler counts as held with the leases: for every limit, held is the sum of the live leases, and nothing that was
// let go of is held still.
func (l *Leader) checkHeld(f *faults) {
	type key struct {
		tenant cell.TenantID
		name   string
	}
	tenants, keys := map[cell.TenantID]int64{}, map[key]int64{}
	live := map[cell.TenantID]int64{}
	for _, le := range l.leases.heap {
		h, ok := l.sched.Held(le.job)
		lane := le.book.lane
		switch {
		case !ok:
			f.add("%v is leased, and the scheduler does not hold it", le.job)
			continue
		case h.Lane != lane || h.Private != le.private || !le.private && h.Charged != le.charged:
			f.add("the scheduler holds %v in %v, private %v, charged %d; its lease is in %v, private %v, charged %d", le.job, h.Lane, h.Private,
				h.Charged, lane, le.private, le.charged)
		}
		tenants[lane.Tenant]++
		if !le.revoked {
			live[lane.Tenant]++
		}
		for _, k := range h.Keys { // of which the door lets none be there twice
			keys[key{lane.Tenant, k.Key}]++
		}
	}
	fifo := l.cfg.Sched.Policy == sched.PolicyFIFO // which knows no keys
	for _, t := range l.state.Tenants() {
		id := t.Policy.Tenant
		if n := l.sched.HeldBy(id); n != tenants[id] {
			f.add("the scheduler holds %d jobs of tenant %s, which has %d leases", n, id, tenants[id])
		}
		for op, e := range t.Estimates {
			if known := l.sched.Estimate(id, op); known != e {
				f.add("jobs of %s of tenant %s are estimated at %+v, and the scheduler has %+v", op, id, e, known)
			}
		}
		if t.Held() != live[id] {
			f.add("tenant %s has %d leases in the state, and %d live ones", id, t.Held(), live[id])
		}
	}
	for k, n := range keys { // order-free: faults of each
		if held := l.sched.KeyHeld(k.tenant, k.name); held != n && !fifo {
			f.add("the scheduler holds %d jobs of key %q of tenant %s, of which there are %d leases", held, k.name, k.tenant, n)
		}
	}
}
