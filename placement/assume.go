package placement

import "slices"

// Assume carries a decision out on the snapshot, so that later ones count with it: a tenant without a home is at home in the target, another is on
// its way there. It returns what undoes it; undo in the reverse order. A decision without a target, or about a tenant or a cell that the snapshot
// does not have, changes nothing.
func (s *Snapshot) Assume(d Decision) (undo func()) {
	i, target := s.tenant(d.Tenant), s.cell(d.Target)
	if i == none || target == none {
		return func() {}
	}
	t := &s.tenants[i]
	was := *t
	switch was.home {
	case none, target:
		s.seatAt(int32(i), target, none, none)
	default:
		s.seatAt(int32(i), was.home, target, none)
	}
	if s.cfg.FailureReserve {
		s.back(int32(i), s.backupFor(t, target))
	}
	return func() { s.seatAt(int32(i), was.home, was.going, was.backup) }
}

// trail undoes what a plan simulated.
type trail []func()

func (u trail) undo() {
	for _, step := range slices.Backward(u) {
		step()
	}
}

// move decides where a tenant at home in a cell goes, and lets it be on its way there. Without a target nothing changes.
func (s *Snapshot) move(i int32, why Reason, a asked) (d Decision, undo func()) {
	was := s.tenants[i]
	s.seatAt(i, none, none, none)
	d = s.decide(&s.tenants[i], why, a)
	if d.Target == "" {
		s.seatAt(i, was.home, was.going, was.backup)
		return d, func() {}
	}
	s.seatAt(i, was.home, s.scratch[0].cell, s.scratch[0].backup)
	return d, func() { s.seatAt(i, was.home, was.going, was.backup) }
}
