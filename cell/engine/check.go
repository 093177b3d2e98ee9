package engine

import (
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/cell"
)

// Check recomputes what the state keeps counted and ordered, and returns all differences together. It walks everything: tests call it after
// every step, a running cell once a minute.
func (s *State) Check() error {
	c := checker{state: s, lanes: map[*Lane]*laneSums{}, held: map[*Tenant]int64{}, keyed: map[*concurrency]keySums{}}
	for i, j := range s.all {
		c.job(i, j)
	}
	if len(s.all) != len(s.jobs) {
		c.fault("%d jobs in the walk, %d by id", len(s.all), len(s.jobs))
	}
	var live, bytes, finished, resting, keys int64
	open := 0
	for _, l := range s.Lanes() {
		c.lane(l)
		live += l.liveJobs
		bytes += l.liveBytes
		if l.serves() {
			finished += l.finishedBytes
			open++
		} else {
			resting += l.finishedBytes
		}
		keys += int64(len(l.keys))
	}
	if 2*len(s.tenants) != len(s.lanes) {
		c.fault("%d lanes of %d tenants", len(s.lanes), len(s.tenants))
	}
	c.tenants()
	if live != s.liveJobs || bytes != s.liveBytes {
		c.fault("the cell counts %d live jobs of %d bytes, its lanes %d of %d", s.liveJobs, s.liveBytes, live, bytes)
	}
	if finished != s.finishedBytes || resting != s.resting || len(s.keepers) != open {
		c.fault("the cell counts %d bytes of ended jobs in %d open lanes, its %d open lanes %d; and %d in the others, which have %d", s.finishedBytes,
			len(s.keepers), open, finished, s.resting, resting)
	}
	for i, l := range s.keepers {
		if l.keeper != i || i > 0 && s.keepers.Less(i, (i-1)/2) {
			c.fault("lane %v is out of place among those that keep ended jobs", l.ID)
		}
	}
	if keys != s.keyRecords {
		c.fault("the cell counts %d keys, its lanes have %d", s.keyRecords, keys)
	}
	c.keys()
	c.lists()
	c.timers()
	c.moves()
	return errors.Join(c.faults...)
}

type checker struct {
	state  *State
	lanes  map[*Lane]*laneSums
	held   map[*Tenant]int64 // leases
	keyed  map[*concurrency]keySums
	faults []error
}

// keySums is what the counts of a concurrency key should be, by class.
type keySums struct{ live, held [2]int64 }

// laneSums is what a lane's counters should be.
type laneSums struct {
	counts                      [jobStates]int64
	liveJobs, liveBytes         int64
	finishedJobs, finishedBytes int64
}

func (c *checker) fault(format string, args ...any) {
	if len(c.faults) < 20 { // more would say nothing new
		c.faults = append(c.faults, fmt.Errorf(format, args...))
	}
}

func (c *checker) job(i int, j *Job) {
	s := c.state
	if j.position != i || s.jobs[j.ID] != j || j.gone {
		c.fault("%v at %d: position %d, gone %v", j.ID, i, j.position, j.gone)
	}
	if !j.State.Valid() {
		c.fault("%v in %v", j.ID, j.State)
		return
	}
	sums := c.lanes[j.Lane]
	if sums == nil {
		sums = &laneSums{}
		c.lanes[j.Lane] = sums
	}
	sums.counts[j.State]++
	c.concurrency(j)
	if j.State.Ended() {
		sums.finishedJobs++
		sums.finishedBytes += j.finishedBytes()
	} else {
		sums.liveJobs++
		sums.liveBytes += j.Bytes()
	}
	if (j.timerAt() != 0) != (j.timer >= 0) || (j.timer >= 0 && (j.timer >= len(j.Lane.timers) || j.Lane.timers[j.timer] != j)) {
		c.fault("%v, which is %v, has timer %d and is due at %d", j.ID, j.State, j.timer, j.timerAt())
	}
	if j.State == Leased && j.Lease.Token.Attempt != j.Attempt {
		c.fault("%v is leased for attempt %d of %d", j.ID, j.Lease.Token.Attempt, j.Attempt)
	}
	if j.State.Ended() != (j.finishSeq != 0) {
		c.fault("%v, which is %v, ended as number %d", j.ID, j.State, j.finishSeq)
	}
	if k := j.Spec.Key; k != "" && !j.State.Ended() {
		if r := j.key; r == nil || r.job != j.ID || r.seq != 0 || j.Lane.keys[hashKey(k)] != r {
			c.fault("%v is live, but its key does not stand for it", j.ID)
		}
	} else if j.key != nil {
		c.fault("%v, which is %v, has a key it should not have", j.ID, j.State)
	}
}

// concurrency adds a job to what its tenant and its concurrency keys should hold.
func (c *checker) concurrency(j *Job) {
	t := j.Lane.Tenant
	if j.State.Ended() {
		return
	}
	var held int64
	if j.State == Leased {
		held = 1
	}
	if j.Lane.holds() {
		c.held[t] += held
	}
	for _, k := range j.Spec.Keys {
		record := t.concurrency[k.Key]
		if record == nil {
			c.fault("%v is %v, and its concurrency key %q has no record", j.ID, j.State, k.Key)
			continue
		}
		sums := c.keyed[record]
		sums.live[j.Lane.ID.Class.Index()]++
		sums.held[j.Lane.ID.Class.Index()] += held
		c.keyed[record] = sums
	}
}

// tenants checks what the tenants hold (held = the sum of live leases, for every limit), and what is kept of them beside their jobs.
func (c *checker) tenants() {
	s := c.state
	keys := 0
	for _, t := range s.Tenants() {
		id := t.Policy.Tenant
		if t.Held() != c.held[t] {
			c.fault("tenant %q counts %d leases, and has %d", id, t.Held(), c.held[t])
		}
		if o := t.Policy.Organization; o != "" && s.organizations[o] == nil {
			c.fault("tenant %q is of organization %q, which has no record", id, o)
		}
		if n := len(t.starts.at); n > startsKept(t) || n < startsKept(t) && t.starts.first != 0 {
			c.fault("tenant %q remembers %d starts from %d on, of at most %d", id, n, t.starts.first, startsKept(t))
		}
		keys += len(t.concurrency)
		c.estimates(t)
	}
	if keys != len(s.concurrency) {
		c.fault("%d concurrency keys in the walk, and tenants have %d", len(s.concurrency), keys)
	}
	for i, k := range s.concurrency {
		if sums := c.keyed[k]; k.position != i || k.tenant.concurrency[k.key] != k || k.live != sums.live || k.held != sums.held ||
			k.live == [2]int64{} {
			c.fault("concurrency key %q of tenant %q counts %d live jobs and %d leases, and has %d and %d", k.key, k.tenant.Policy.Tenant, k.live,
				k.held, sums.live, sums.held)
		}
	}
	if len(s.organizationList) != len(s.organizations) {
		c.fault("%d organizations in the walk, %d by id", len(s.organizationList), len(s.organizations))
	}
}

// estimates checks that a tenant's estimates are listed once each.
func (c *checker) estimates(t *Tenant) {
	listed := 0
	var older *estimate
	for e := t.estimates.oldest; e != nil; older, e = e, e.newer {
		if e.older != older || t.estimates.byOperation[e.operation] != e {
			c.fault("the estimate of %q of tenant %q is out of place", e.operation, t.Policy.Tenant)
		}
		listed++
	}
	if listed != len(t.estimates.byOperation) || t.estimates.newest != older {
		c.fault("tenant %q lists %d estimates of %d", t.Policy.Tenant, listed, len(t.estimates.byOperation))
	}
}

func (c *checker) lane(l *Lane) {
	want := c.lanes[l]
	if want == nil {
		want = &laneSums{}
	}
	have := laneSums{
		counts: l.counts, liveJobs: l.liveJobs, liveBytes: l.liveBytes, finishedJobs: l.finishedJobs, finishedBytes: l.finishedBytes,
	}
	if have != *want {
		c.fault("lane %v counts %+v, its jobs come to %+v", l.ID, have, *want)
	}
	var jobs int64
	var seq uint64
	for _, list := range []*jobList{&l.dropped, &l.whole} {
		if l.Epoch != 0 {
			seq = 0 // each is in order, and one that was imported dropped need not be older than the others
		}
		var older *Job
		for j := list.oldest; j != nil; older, j = j, j.newer {
			if j.older != older || j.finishSeq <= seq || j.Lane != l || j.gone || j.finishedList() != list {
				c.fault("%v, ended as number %d, is out of place after number %d in %v", j.ID, j.finishSeq, seq, l.ID)
			}
			seq = j.finishSeq
			jobs++
		}
		if list.newest != older {
			c.fault("the ended jobs of %v have another newest than their last", l.ID)
		}
	}
	if jobs != l.finishedJobs {
		c.fault("lane %v counts %d ended jobs, and lists %d", l.ID, l.finishedJobs, jobs)
	}
}

// keys checks that the keys of ended jobs are listed in order, and that every other key is that of a live job.
func (c *checker) keys() {
	s := c.state
	var listed, live int64
	for _, l := range s.lanes {
		checkOrder(c, l, "keys", &l.window)
		for _, p := range l.window.places {
			if r := p.item; r != nil {
				listed++
				if r.seq != p.number || r.lane != l || l.keys[r.hash] != r {
					c.fault("the key of %v, end number %d, is out of place", r.job, r.seq)
				}
			}
		}
		among := s.keysOf(l)
		if in := l.serves() && l.window.len() > 0; in != (l.keying >= 0) || in && among.lanes[l.keying] != l {
			c.fault("lane %v has %d keys of ended jobs, and is at %d of those with such", l.ID, l.window.len(), l.keying)
		}
	}
	for k := range s.keyed {
		for i := range s.keyed[k].lanes {
			if i > 0 && s.keyed[k].Less(i, (i-1)/2) {
				c.fault("lane %d has a key that expires before those of the lane above it", i)
			}
		}
	}
	for _, j := range s.all {
		if j.key != nil {
			live++
		}
	}
	if listed+live != s.keyRecords {
		c.fault("%d keys are listed and %d are of live jobs, of %d", listed, live, s.keyRecords)
	}
}

// checkOrder checks that an order's places rise, and its counts.
func checkOrder[T any](c *checker, l *Lane, what string, o *order[T]) {
	gone := 0
	for i, p := range o.places {
		if i > 0 && p.number <= o.places[i-1].number {
			c.fault("number %d of the %s of %v is out of order", p.number, what, l.ID)
		}
		switch {
		case p.item == nil:
			gone++
		case i < o.head:
			c.fault("number %d of the %s of %v is before the first", p.number, what, l.ID)
		}
	}
	if gone != o.gone || o.first() == nil && o.len() > 0 {
		c.fault("%v counts %d empty places of %s, and has %d", l.ID, o.gone, what, gone)
	}
}

// lists checks that the lanes' lists have every job once, in order.
func (c *checker) lists() {
	s := c.state
	listed := 0
	for _, l := range s.lanes {
		checkOrder(c, l, "jobs", &l.list)
		for _, p := range l.list.places {
			if j := p.item; j != nil {
				listed++
				if j.Seq != p.number || j.Lane != l || s.jobs[j.ID] != j {
					c.fault("lane %v lists %v, which is not its", l.ID, j.ID)
				}
			}
		}
	}
	if listed != len(s.jobs) {
		c.fault("the lanes list %d jobs of %d", listed, len(s.jobs))
	}
}

// timers checks that every job's is where it belongs, and that open lanes, and no others, stand by their first.
func (c *checker) timers() {
	s := c.state
	for _, l := range s.lanes {
		for i, j := range l.timers {
			if j.timer != i || j.due != j.timerAt() || j.Lane != l {
				c.fault("timer %d of %v is that of %v, which thinks it has timer %d", i, l.ID, j.ID, j.timer)
			}
			if i > 0 && l.timers.Less(i, (i-1)/2) {
				c.fault("timer %d of %v is due before the one above it", i, l.ID)
			}
		}
		if in := l.serves() && len(l.timers) > 0; in != (l.timed >= 0) || in && s.timing[l.timed] != l {
			c.fault("lane %v has %d timers, and is at %d of those with timers", l.ID, len(l.timers), l.timed)
		}
	}
	for i := range s.timing {
		if i > 0 && s.timing.Less(i, (i-1)/2) {
			c.fault("lane %d is due before the one above it", i)
		}
	}
}

// moves checks what lanes have that move: modes that may be, and changes of records that are, once each.
func (c *checker) moves() {
	if n := len(c.state.dirty); n > 0 {
		c.fault("%d changes have no numbers", n)
	}
	tracked := 0
	for _, l := range c.state.lanes {
		if fault := l.contradicts(); fault != "" {
			c.fault("lane %v %s", l.ID, fault)
		}
		if l.tracker != nil {
			tracked++
			c.tracker(l, l.tracker)
		}
	}
	if n := len(c.state.tracked); n != tracked {
		c.fault("%d lanes are listed as tracked, %d are", n, tracked)
	}
}

// contradicts returns what of a lane's mode, and of what comes with it, cannot be together, and nothing when all can.
func (l *Lane) contradicts() string {
	k := l.tracker
	filled := l.Mode == cell.ModeStaged || l.Mode == cell.ModeStandby
	switch {
	case !l.Mode.Valid() || (l.Mode == cell.ModeFenced) != (l.Fence != 0) && (l.Mode == cell.ModeFenced || l.serves()):
		return fmt.Sprintf("is %v, fenced at %d", l.Mode, l.Fence)
	case l.Tracked != (k != nil) || k != nil && (!l.holds() || k.since > l.Change):
		return fmt.Sprintf("is %v, tracked %v, at change %d", l.Mode, l.Tracked, l.Change)
	case !filled && (l.Cursor != Cursor{} || l.inherited != nil), filled && l.Cursor.Change != l.Change:
		return fmt.Sprintf("is %v, filled up to %v, at change %d", l.Mode, l.Cursor, l.Change)
	case l.Mode != cell.ModeFenced && l.atFence != cell.TenantAccount{}, l.wiping && l.Mode != cell.ModeStaged:
		return fmt.Sprintf("is %v, with an account of its fence, or half wiped", l.Mode)
	default:
		return ""
	}
}

func (c *checker) tracker(l *Lane, k *tracker) {
	checkOrder(c, l, "changes", &k.changes)
	gone := 0
	for _, p := range k.changes.places {
		t := p.item
		if t == nil {
			continue
		}
		switch {
		case t.number != p.number || t.tracking != k.number || t.lane != l || t.number <= k.since || t.number > l.Change:
			c.fault("change %d of %v is out of place", p.number, l.ID)
		case t.gone():
			gone++
		case t.job != nil && (t.job.trail != t || t.job.gone || t.job.Lane != l), t.key != nil && (t.key.trail != t || l.keys[t.key.hash] != t.key):
			c.fault("change %d of %v is of what is not there", p.number, l.ID)
		}
	}
	if gone != k.gone {
		c.fault("lane %v counts %d records that are gone, and has %d", l.ID, k.gone, gone)
	}
}
