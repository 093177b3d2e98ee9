package engine

import "github.com/fairlead/fairlead/cell"

// concurrency is what bounds a tenant's jobs that carry one concurrency key. It lives as long as one of them does, so that its bound outlasts
// the job that set it, and names that are never used again leave nothing behind.
type concurrency struct {
	tenant *Tenant
	key    string
	bound  int64 // that of the job accepted last
	// Jobs that have not ended, and leases of them, by class; a job that names the key twice counts twice.
	live, held [2]int64

	position int    // index in State.concurrency
	written  uint64 // the last snapshot generation that has this record
}

// enterKeys counts a job that has not ended under its keys. A key that no live job carried takes its bound from this one, and one that is accepted
// just now sets it.
func (s *State) enterKeys(j *Job, accepted bool) {
	t := j.Lane.Tenant
	for _, k := range j.Spec.Keys {
		c := t.concurrency[k.Key]
		if c == nil {
			c = s.newConcurrency(t, k)
		} else if accepted && c.bound != k.Max {
			s.touchConcurrency(c)
			c.bound = k.Max
		}
		c.live[j.Lane.ID.Class.Index()]++
	}
}

// leaveKeys is the end of enterKeys.
func (s *State) leaveKeys(j *Job) {
	t := j.Lane.Tenant
	for _, k := range j.Spec.Keys {
		c := t.concurrency[k.Key]
		if c.live[j.Lane.ID.Class.Index()]--; c.live != [2]int64{} {
			continue
		}
		s.touchConcurrency(c)
		delete(t.concurrency, k.Key)
		last := s.concurrency[len(s.concurrency)-1]
		if s.snapshot != nil {
			s.snapshot.movingConcurrency(last, c.position)
		}
		s.concurrency[c.position], last.position = last, c.position
		s.concurrency[len(s.concurrency)-1] = nil
		s.concurrency = s.concurrency[:len(s.concurrency)-1]
	}
}

func (s *State) newConcurrency(t *Tenant, k cell.ConcurrencyKey) *concurrency {
	c := &concurrency{tenant: t, key: k.Key, bound: k.Max, position: len(s.concurrency), written: s.generation}
	s.concurrency = append(s.concurrency, c)
	if t.concurrency == nil {
		t.concurrency = map[string]*concurrency{}
	}
	t.concurrency[k.Key] = c
	return c
}

// countHeld counts n, 1 or -1, leases of a job.
func (s *State) countHeld(j *Job, n int64) {
	for _, k := range j.Spec.Keys {
		j.Lane.Tenant.concurrency[k.Key].held[j.Lane.ID.Class.Index()] += n
	}
}
