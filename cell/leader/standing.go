package leader

import (
	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	"github.com/fairlead/fairlead/cell/sched"
)

// TenantExplanation is what a tenant is promised, what it has had of it, and why its next jobs wait.
type TenantExplanation struct {
	Tenant       *engine.Tenant
	Organization *engine.Organization // nil when it has none
	Standing     sched.TenantStanding
	// Next is why the next job of each lane waits, by cell.Class.Index; one without a job is of a lane in which none does.
	Next [2]Explanation
}

// ExplainTenant says where a tenant stands; false when the cell does not know it. It changes nothing, as Explain.
func (l *Leader) ExplainTenant(now cell.Instant, id cell.TenantID) (TenantExplanation, bool) {
	t := l.state.Tenant(id)
	standing, ok := l.sched.ExplainTenant(now, id)
	if t == nil || !ok {
		return TenantExplanation{}, false
	}
	x := TenantExplanation{Tenant: t, Organization: l.state.Organization(t.Policy.Organization), Standing: standing}
	for i, c := range cell.Classes() {
		if job, ok := l.sched.First(cell.Lane{Tenant: id, Class: c}); ok {
			x.Next[i], _ = l.Explain(now, id, job)
		}
	}
	return x, true
}

// CostUnit returns the name of the unit that the cell's costs are in.
func (l *Leader) CostUnit() string { return l.cfg.Costing.UnitName() }
