package placement

import "slices"

// The failure reserve is a plan for the loss of any one cell: each tenant of the pool has a backup, a cell that would take it when its own is
// lost. Since only one is lost at a time, what backs different cells may be the same room: a cell keeps free, in each hour, the most that any one
// loss would bring. So the reserve is exact as far as it goes (no share of the capacity that may be too little or too much), and following it
// costs a few comparisons for each placement.

// exempt reports whether a tenant in a cell is outside of the reserve: one that its rules bind to that cell, and one with a dedicated cell, go down
// with it. What guards those is the cell's replicas.
func (s *Snapshot) exempt(t *tenantState, c int) bool {
	return t.Rules.Cell != "" || s.cells[c].Kind == KindDedicated
}

// elsewhere reports whether another open pooled cell than c could take the tenant if it had room: without one there is nothing to keep room in.
func (s *Snapshot) elsewhere(t *tenantState, c int) bool {
	for _, b := range s.classes[t.class].open {
		if int(b) != c && int(b) != s.closed && (t.apart == 0 || s.cells[b].apart[t.apart] == 0) {
			return true
		}
	}
	return false
}

// backsGroup returns a cell of which a tenant of the group would come when it is lost; none when there is none.
func (c *cellState) backsGroup(group int32) int {
	return slices.IndexFunc(c.backing, func(b *backed) bool { return b != nil && slices.Contains(b.apart, group) })
}

// backupOf returns a cell that can take the tenant if cell lost, which it is in or about to be in, is lost; none when there is none, and for a
// tenant that is exempt. It begins to look where the tenant's name says, so that a lost cell's tenants are spread over many.
func (s *Snapshot) backupOf(i int32, lost int) int {
	t := &s.tenants[i]
	return s.backupFor(t, lost)
}

func (s *Snapshot) backupFor(t *tenantState, lost int) int {
	open := s.classes[t.class].open
	if len(open) == 0 || s.exempt(t, lost) {
		return none
	}
	start := int(t.hash % uint64(len(open)))
	for n := range 2 * len(open) {
		at := start + n
		for at >= len(open) {
			at -= len(open)
		}
		b := int(open[at])
		if b == lost || b == s.closed {
			continue
		}
		// First those where it fits whatever is lost: that costs three comparisons.
		if n < len(open) && !within(t.top, s.cells[b].room) {
			continue
		}
		if s.backs(t, b, lost) {
			return b
		}
	}
	return none
}

// within reports whether each amount of l is within bound.
func within(l, bound Load) bool {
	return l.Compute <= bound.Compute && l.Jobs <= bound.Jobs && l.Bytes <= bound.Bytes
}

// backs reports whether b can take the tenant beside all that it would take already when lost is lost.
func (s *Snapshot) backs(t *tenantState, b, lost int) bool {
	c, with := &s.cells[b], s.cells[b].backing[lost]
	here := 0
	if t.home == b || t.going == b { // a tenant on its way to the lost cell is still at home in this one
		return true
	}
	if with != nil {
		here = with.tenants
	}
	if len(c.tenants)+here >= s.cfg.TenantsMax {
		return false
	}
	if t.apart != 0 && (c.apart[t.apart] > 0 || with != nil && slices.Contains(with.apart, t.apart)) {
		return false
	}
	return within(t.top, c.room) || c.takes(&t.day, with)
}

// takes reports whether the cell, filled to its capacity, can take a load beside what it backs.
func (c *cellState) takes(d *Day, with *backed) bool {
	for h := range d {
		l := c.load[h]
		if with != nil {
			l.Compute += with.load[h].Compute
			l.Jobs += with.load[h].Jobs
			l.Bytes += with.load[h].Bytes
		}
		if l.Compute+d[h].Compute > c.capacity.Compute || l.Jobs+d[h].Jobs > c.capacity.Jobs || l.Bytes+d[h].Bytes > c.capacity.Bytes {
			return false
		}
	}
	return true
}

// back makes a cell the tenant's backup, or none.
func (s *Snapshot) back(i int32, backup int) {
	t := &s.tenants[i]
	if t.backup == backup {
		return
	}
	seat := t.seat()
	if t.backup != none && t.backup != t.home && t.backup != t.going {
		s.cells[t.backup].release(t, seat)
	}
	t.backup = backup
	if backup != none && backup != t.home && backup != t.going {
		s.cells[backup].reserve(t, seat)
	}
}

// reserve keeps room for a tenant that comes when a cell is lost.
func (c *cellState) reserve(t *tenantState, lost int) {
	with := c.backing[lost]
	if with == nil {
		with = &backed{}
		c.backing[lost] = with
	}
	with.load.add(&t.day)
	with.tenants++
	if t.apart != 0 {
		with.apart = append(with.apart, t.apart)
	}
	c.worstTenants = max(c.worstTenants, with.tenants)
	for h := range c.worst {
		l, w := &with.load[h], &c.worst[h]
		w.Compute, w.Jobs, w.Bytes = max(w.Compute, l.Compute), max(w.Jobs, l.Jobs), max(w.Bytes, l.Bytes)
	}
	c.measure()
}

// release is the inverse of reserve.
func (c *cellState) release(t *tenantState, lost int) {
	with := c.backing[lost]
	with.load.sub(&t.day)
	with.tenants--
	if t.apart != 0 {
		at := slices.Index(with.apart, t.apart)
		with.apart = slices.Delete(with.apart, at, at+1)
	}
	if with.tenants == 0 {
		c.backing[lost] = nil
	}
	c.worst, c.worstTenants = Day{}, 0
	for _, b := range c.backing {
		if b == nil {
			continue
		}
		c.worstTenants = max(c.worstTenants, b.tenants)
		for h := range c.worst {
			c.worst[h] = c.worst[h].Max(b.load[h])
		}
	}
	c.measure()
}
