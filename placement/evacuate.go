package placement

import (
	"fmt"

	"github.com/fairlead/fairlead/cell"
)

// Evacuate plans a move for every tenant of a cell, the largest first, whatever the budget and the cool-down say: each goes where the failure
// reserve stays whole, or else where it fits. Those that fit nowhere have a decision without a target. The snapshot stays as it is. It returns a
// *[cell.FieldError] when the snapshot has no such cell.
func (s *Snapshot) Evacuate(id cell.ID) (Plan, error) {
	source := s.cell(id)
	if source == none {
		return Plan{}, &cell.FieldError{
			Field: "cell", Problem: fmt.Sprintf("%.128q is not known", string(id)), Remedy: "give one of the cells that are listed",
		}
	}
	plan := Plan{ImbalanceBefore: s.Imbalance()}
	var done trail
	s.closed = source
	defer func() {
		done.undo()
		s.closed = none
	}()
	for i := range s.tenants { // nobody is backed by the cell any more
		if t := &s.tenants[i]; t.backup == source {
			s.back(int32(i), s.backupFor(t, t.seat()))
			done = append(done, func() { s.back(int32(i), source) })
		}
	}
	for _, i := range s.bySize(func(t *tenantState) bool { return t.home == source || t.going == source }) {
		switch t := &s.tenants[i]; {
		case t.going == source:
			plan.hold("%s is moving here: abort that move or let it end", t.ID)
			continue
		case t.going != none:
			plan.hold("%s is moving to %s already", t.ID, s.cells[t.going].ID)
			continue
		}
		a := asked{except: source, reserve: true, keep: s.keep(), stay: none}
		d, undo := s.move(i, ReasonEvacuate, a)
		if d.Target == "" && s.cfg.FailureReserve {
			a.reserve = false
			if waived, again := s.move(i, ReasonEvacuate, a); waived.Target != "" {
				d, undo = waived, again
				d.Text = "without the failure reserve, for which no room is left"
			}
		}
		done = append(done, undo)
		plan.Decisions = append(plan.Decisions, d)
	}
	plan.ImbalanceAfter = s.Imbalance()
	return plan, nil
}
