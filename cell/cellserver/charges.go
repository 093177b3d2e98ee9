package cellserver

import (
	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
)

// charges is what lanes that were moved here had been charged when they were opened here, or when this server began to lead: before that they were
// charged for work that this cell did not do, or that was measured by whoever led it. The server's mu guards it.
type charges map[cell.Lane]cell.Cost

// begin begins to count a lane that has come here, and forgets one that has left.
func (c charges) begin(l *engine.Lane) {
	if elsewhere(l) {
		delete(c, l.ID)
	} else if _, counted := c[l.ID]; !counted && l.Epoch != 0 {
		c[l.ID] = l.Charged
	}
}

// beginCharges counts every lane anew. The caller holds mu.
func (s *Server) beginCharges() {
	clear(s.charges)
	for i := range s.state.TenantCount() {
		for _, c := range cell.Classes() {
			s.charges.begin(s.state.TenantAt(i).Lane(c))
		}
	}
}

// of returns what counts of a lane's charges: they only rise while one server leads. It is above 0 when anything was ever charged, for that says that
// jobs have run whose results may still be here.
func (c charges) of(l *engine.Lane) int64 {
	before, moved := c[l.ID]
	if !moved || before == 0 {
		return int64(l.Charged)
	}
	return 1 + int64(l.Charged-before)
}
