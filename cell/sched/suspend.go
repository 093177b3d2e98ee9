package sched

import "github.com/fairlead/fairlead/cell"

// Suspend keeps whatever waits in a lane from being granted, to anybody, until Resume: it stays in its queue in its place, and what is added
// meanwhile too, but it is in no rotation, and is no class's demand. What is held of the lane stays held; it is charged for no overrun, and Preempt
// does not name it. It returns false when the tenant is not known, and does nothing to a lane that is suspended.
//
// Its cost, as Resume's, grows with the lane's operations and the cell's leases, but not with what waits. Under FIFO, where a lane has no queue of
// its own, it does grow with what waits in the class: the lane's jobs stand aside.
func (s *Scheduler) Suspend(id cell.Lane) bool { return s.suspend(id, true) }

// Resume ends Suspend: what waits in the lane may be granted. It returns false when the tenant is not known, and does nothing to a lane that is
// not suspended.
func (s *Scheduler) Resume(id cell.Lane) bool { return s.suspend(id, false) }

// Suspended reports whether a lane is suspended.
func (s *Scheduler) Suspended(id cell.Lane) bool {
	t := s.tenantOf(id.Tenant)
	return t != nil && t.suspended(id.Class.Index())
}

func (s *Scheduler) suspend(id cell.Lane, suspended bool) bool {
	t := s.tenant(id.Tenant)
	if t == nil {
		return false
	}
	i := id.Class.Index()
	if t.suspended(i) != suspended {
		s.goOn()
		s.withhold(t, i, suspended)
		for _, le := range s.leases.all {
			if le.job.owner == t && le.class() == i && !le.private {
				s.charge(le)
				s.expose(le)
			}
		}
		s.lending.retry[1-i] = 0 // there may be leases to revoke that there were not
	}
	s.forgetTenant(t)
	return true
}

// withhold takes what waits in the lane out of the rotations, or puts it back.
func (s *Scheduler) withhold(t *tenant, class int, suspended bool) {
	if s.everybody != nil {
		aside := s.queued(t, class)
		for _, j := range aside {
			s.unqueue(j)
		}
		t.setSuspended(class, suspended)
		for _, j := range aside {
			s.enqueue(j)
		}
		return
	}
	l := t.lanes[class]
	if l != nil && suspended {
		for sets := l.active; sets != 0; sets &= sets - 1 {
			set := first(sets)
			l.offered[set] = 0
			s.withdraw(l, set)
		}
	}
	t.setSuspended(class, suspended)
	if l == nil || suspended {
		return
	}
	for _, q := range l.queues {
		if q.top != nil {
			s.offer(q, true)
		}
	}
}

// queued returns the tenant's jobs in the queues of a class, its own or everybody's. Under FIFO jobs have no keys: every queue is one strand.
func (s *Scheduler) queued(t *tenant, class int) []*job {
	l := t.lanes[class]
	if !t.suspended(class) {
		l = s.everybody.lanes[class]
	}
	if l == nil {
		return nil
	}
	var jobs []*job
	for _, q := range l.queues {
		for _, j := range q.bare.jobs.items {
			if j.owner == t {
				jobs = append(jobs, j)
			}
		}
	}
	return jobs
}

// suspended reports whether the tenant's lane in a class is suspended.
func (t *tenant) suspended(class int) bool { return t.caps != nil && t.caps.suspended[class] }

func (t *tenant) setSuspended(class int, suspended bool) {
	if t.caps == nil {
		t.caps = &caps{owner: t}
	}
	t.caps.suspended[class] = suspended
	t.follow(t.node.Policy())
}

// suspended reports whether the lane is suspended.
func (l *lane) suspended() bool { return l.owner.suspended(l.class.Index()) }

// suspended reports whether the lease's lane is.
func (le *lease) suspended() bool { return le.job.owner.suspended(le.class()) }
