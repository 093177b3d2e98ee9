package engine

import (
	"errors"
	"fmt"
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
	var live, bytes, finished, keys int64
	for _, l := range s.Lanes() {
		c.lane(l)
		live += l.liveJobs
		bytes += l.liveBytes
		finished += l.finishedBytes
		keys += int64(len(l.keys))
	}
	if 2*len(s.tenants) != len(s.lanes) {
		c.fault("%d lanes of %d tenants", len(s.lanes), len(s.tenants))
	}
	c.tenants()
	if live != s.liveJobs || bytes != s.liveBytes {
		c.fault("the cell counts %d live jobs of %d bytes, its lanes %d of %d", s.liveJobs, s.liveBytes, live, bytes)
	}
	if finished != s.finishedBytes || len(s.keepers) != len(s.lanes) {
		c.fault("the cell counts %d bytes of ended jobs in %d lanes, its %d lanes %d", s.finishedBytes, len(s.keepers), len(s.lanes), finished)
	}
	for i, l := range s.keepers {
		if l.keeper != i || i > 0 && s.keepers.Less(i, (i-1)/2) {
			c.fault("lane %v is out of place among those that keep ended jobs", l.ID)
		}
	}
	if keys != s.keys.records {
		c.fault("the cell counts %d keys, its lanes have %d", s.keys.records, keys)
	}
	c.keys()
	c.lists()
	for i, j := range s.timers {
		if j.timer != i || j.due != j.timerAt() {
			c.fault("timer %d is that of %v, which thinks it has timer %d", i, j.ID, j.timer)
		}
		if i > 0 && s.timers.Less(i, (i-1)/2) {
			c.fault("timer %d is due before the one above it", i)
		}
	}
	return errors.Join(c.faults...)
}

type checker struct {
	state  *State
	lanes  map[*Lane]*laneSums
	held   map[*Tenant]int64 // leases
	keyed  map[*concurrency]keySums
	faults []error
}

// keySums is what the counts of a concurrency key should be.
type keySums struct{ live, held int64 }

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
	if (j.timerAt() != 0) != (j.timer >= 0) || (j.timer >= 0 && (j.timer >= len(s.timers) || s.timers[j.timer] != j)) {
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
	c.held[t] += held
	for _, k := range j.Spec.Keys {
		record := t.concurrency[k.Key]
		if record == nil {
			c.fault("%v is %v, and its concurrency key %q has no record", j.ID, j.State, k.Key)
			continue
		}
		sums := c.keyed[record]
		c.keyed[record] = keySums{live: sums.live + 1, held: sums.held + held}
	}
}

// tenants checks what the tenants hold (held = the sum of live leases, for every limit), and what is kept of them beside their jobs.
func (c *checker) tenants() {
	s := c.state
	keys := 0
	for _, t := range s.Tenants() {
		id := t.Policy.Tenant
		if t.held != c.held[t] {
			c.fault("tenant %q counts %d leases, and has %d", id, t.held, c.held[t])
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
		if sums := c.keyed[k]; k.position != i || k.tenant.concurrency[k.key] != k || k.live != sums.live || k.held != sums.held || k.live == 0 {
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
	var older *keyRecord
	for r := s.keys.oldest; r != nil; older, r = r, r.newer {
		if r.older != older || older != nil && r.seq <= older.seq || r.seq == 0 || r.lane.keys[r.hash] != r {
			c.fault("the key of %v, end number %d, is out of place", r.job, r.seq)
		}
		listed++
	}
	if s.keys.newest != older {
		c.fault("the keys have another newest than their last")
	}
	for _, j := range s.all {
		if j.key != nil {
			live++
		}
	}
	if listed+live != s.keys.records {
		c.fault("%d keys are listed and %d are of live jobs, of %d", listed, live, s.keys.records)
	}
}

// lists checks that the tenants' lists have every job once, in order.
func (c *checker) lists() {
	s := c.state
	listed := 0
	for _, l := range s.Lanes() {
		t := l.Tenant
		if l != t.lanes[0] {
			continue
		}
		gone := 0
		for i, p := range t.list {
			switch {
			case i > 0 && p.seq <= t.list[i-1].seq:
				c.fault("job number %d of tenant %q is out of order", p.seq, t.Policy.Tenant)
			case p.job == nil:
				gone++
			case p.job.Seq != p.seq || p.job.Lane.Tenant != t || s.jobs[p.job.ID] != p.job:
				c.fault("tenant %q lists %v, which is not its", t.Policy.Tenant, p.job.ID)
			default:
				listed++
			}
		}
		if gone != t.gone {
			c.fault("tenant %q counts %d forgotten jobs, and lists %d", t.Policy.Tenant, t.gone, gone)
		}
	}
	if listed != len(s.jobs) {
		c.fault("the tenants list %d jobs of %d", listed, len(s.jobs))
	}
}
