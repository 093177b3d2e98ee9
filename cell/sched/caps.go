package sched

import "github.com/fairlead/fairlead/cell"

// caps is a tenant's running cap and start rate, and how far it has used them up; and which of its lanes are suspended.
type caps struct {
	owner      *tenant
	runningMax int64 // 0: none
	rate       cell.StartRate
	starts     starts
	capped     bool  // it holds runningMax: one Hold in the tree
	paced      bool  // it has started rate.Jobs within rate.Per: another Hold
	at         int32 // in Scheduler.paced while paced
	// suspended is which of its lanes are, by cell.Class.Index. They are few, and most tenants have to be small: so it is here.
	suspended [2]bool
}

// inForce reports whether anything of it keeps the tenant from something.
func (c *caps) inForce() bool { return c.capped || c.paced || c.suspended != [2]bool{} }

// counts reports whether something of it is still to be remembered.
func (c *caps) counts(now cell.Instant) bool {
	return c != nil && (c.inForce() || c.starts.until(c.rate) > now)
}

// cap makes the tree block the tenant, or not any more, by its running cap and its start rate.
func (s *Scheduler) cap(t *tenant) {
	c := t.caps
	if c == nil || s.everybody != nil {
		return
	}
	if capped := c.runningMax > 0 && int64(t.held) >= c.runningMax; capped != c.capped {
		c.capped = capped
		s.block(t, capped)
	}
	paced := c.starts.next(c.rate) > s.now
	switch {
	case paced && c.paced:
		s.paced.fix(c)
	case paced:
		c.paced = true
		s.paced.push(c)
		s.block(t, true)
	case c.paced:
		c.paced = false
		s.paced.remove(c)
		s.block(t, false)
	}
}

func (s *Scheduler) block(t *tenant, blocked bool) {
	if blocked {
		s.tree.Hold(t.node)
	} else {
		s.tree.Release(t.node)
	}
}

// blocked reports whether a cap of the tenant's is in the way.
func (t *tenant) blocked() bool { return t.caps != nil && (t.caps.capped || t.caps.paced) }

// left returns how many more jobs of the tenant may start now, as far as its caps go: no more than most.
func (t *tenant) left(now cell.Instant, most int64) int64 {
	c := t.caps
	if c == nil {
		return most
	}
	if c.runningMax > 0 {
		most = min(most, c.runningMax-int64(t.held))
	}
	if c.rate.Jobs > 0 {
		most = min(most, c.rate.Jobs-c.starts.within(now, c.rate))
	}
	return most
}

// passStarts lets those start again whose period is over.
func (s *Scheduler) passStarts() {
	for c := s.paced.first(); c != nil && c.starts.next(c.rate) <= s.now; c = s.paced.first() {
		s.cap(c.owner)
	}
}

// startOrder is the order in which tenants may start again.
type startOrder struct{}

func (startOrder) before(a, b *caps) bool {
	x, y := a.starts.next(a.rate), b.starts.next(b.rate)
	return x < y || x == y && a.owner.node.ID() < b.owner.node.ID()
}
func (startOrder) place(c *caps) *int32 { return &c.at }

// starts is when the latest jobs of a tenant with a start rate started: as many as may start within a period, so that the rate is exact
// over any period and not only over those that begin at a multiple of it. It is a ring whose oldest is at from once it is full.
type starts struct {
	at   []cell.Instant
	from int
}

// resize makes room for n starts, and keeps the latest.
func (x *starts) resize(n int64) {
	if int64(len(x.at)) <= n && x.from == 0 {
		return
	}
	// In order, the oldest first.
	at := append(append(make([]cell.Instant, 0, len(x.at)), x.at[x.from:]...), x.at[:x.from]...)
	x.at, x.from = at[max(0, len(at)-int(n)):], 0
}

func (x *starts) add(now cell.Instant, r cell.StartRate) {
	switch {
	case r.Jobs == 0:
	case int64(len(x.at)) < r.Jobs:
		x.at = append(x.at, now)
	default:
		x.at[x.from] = now
		x.from = (x.from + 1) % len(x.at)
	}
}

// next returns when the next job may start; 0 for at any time.
func (x *starts) next(r cell.StartRate) cell.Instant {
	if r.Jobs == 0 || int64(len(x.at)) < r.Jobs {
		return 0
	}
	return x.at[x.from].Add(r.Per)
}

// until returns when the last start stops counting; 0 when there is none.
func (x *starts) until(r cell.StartRate) cell.Instant {
	if len(x.at) == 0 {
		return 0
	}
	return x.at[(x.from+len(x.at)-1)%len(x.at)].Add(r.Per)
}

// within returns how many jobs have started within a period that ends now.
func (x *starts) within(now cell.Instant, r cell.StartRate) int64 {
	n := int64(0)
	for _, at := range x.at {
		if at.Add(r.Per) > now {
			n++
		}
	}
	return n
}
