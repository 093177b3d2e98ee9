package sched

import (
	"strings"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/tree"
)

// tenant is what the scheduler knows of a tenant that has or had anything: jobs, leases, starts, estimates, or a lane that is suspended. Of others
// only the tree knows. Most tenants of a cell have no job at a moment: it is as small as it can be.
type tenant struct {
	node      *tree.Tenant[*tenant]
	lanes     [2]*lane        // by cell.Class.Index; nil where nothing waits
	keys      map[string]*key // those that a job carries that waits or is held
	caps      *caps           // nil without any
	estimates []estimate      // the latest observed first
	jobs      int32           // those that wait or are held
	held      int32           // leases, the tenant's own workers' included
	taken     [2]int32        // by class, those that take a slot of the cell's and are not ending
}

// tenantOf returns what is known of a tenant that has or had anything, and nil of others.
func (s *Scheduler) tenantOf(id cell.TenantID) *tenant {
	if node := s.tree.Tenant(id); node != nil {
		return node.Lane(cell.ClassInteractive).Value
	}
	return nil
}

// tenant returns what is known of a tenant, and nil when nobody has named it.
func (s *Scheduler) tenant(id cell.TenantID) *tenant {
	node := s.tree.Tenant(id)
	if node == nil {
		return nil
	}
	if t := node.Lane(cell.ClassInteractive).Value; t != nil {
		return t
	}
	return s.newTenant(node)
}

func (s *Scheduler) newTenant(node *tree.Tenant[*tenant]) *tenant {
	t := s.spareTenants.get()
	t.node = node
	for _, c := range cell.Classes() {
		node.Lane(c).Value = t
	}
	t.follow(node.Policy())
	return t
}

// forgetTenant drops a tenant that has nothing any more. One that only had starts is dropped when something else of it ends.
func (s *Scheduler) forgetTenant(t *tenant) {
	if t.jobs > 0 || len(t.estimates) > 0 || t.caps.counts(s.now) {
		return
	}
	for _, c := range cell.Classes() {
		t.node.Lane(c).Value = nil
	}
	*t = tenant{}
	s.spareTenants.put(t)
}

// follow takes over what a policy says of caps.
func (t *tenant) follow(p cell.TenantPolicy) {
	switch {
	case p.RunningMax == 0 && p.Starts == cell.StartRate{} && (t.caps == nil || !t.caps.inForce()):
		t.caps = nil
		return
	case t.caps == nil:
		t.caps = &caps{owner: t}
	}
	t.caps.runningMax, t.caps.rate = p.RunningMax, p.Starts
	t.caps.starts.resize(p.Starts.Jobs)
}

// EstimatesMax bounds the operations of one tenant that costs are remembered of, so that a tenant that makes up names does not fill the
// cell's memory. At it the one that was observed the longest ago is forgotten, and costs what its jobs declare again.
const EstimatesMax = 64

// estimate is what a tenant's jobs of an operation cost.
type estimate struct {
	operation cell.Operation
	cell.Estimate
}

func (t *tenant) estimate(op cell.Operation) cell.Estimate {
	for i := range t.estimates {
		if t.estimates[i].operation == op {
			return t.estimates[i].Estimate
		}
	}
	return cell.Estimate{}
}

// learn makes e the estimate of an operation that was observed just now.
func (s *Scheduler) learn(t *tenant, name cell.Operation, e cell.Estimate) {
	i := 0
	for i < len(t.estimates) && t.estimates[i].operation != name {
		i++
	}
	switch known := s.offers.operations[name]; {
	case i < len(t.estimates):
		name = t.estimates[i].operation
	case known != nil:
		name = known.name // one text for all tenants
	default:
		name = cell.Operation(strings.Clone(string(name))) // not a part of a message that it would keep in memory
	}
	if i == EstimatesMax {
		i--
	} else if i == len(t.estimates) {
		t.estimates = append(t.estimates, estimate{})
	}
	copy(t.estimates[1:i+1], t.estimates[:i])
	t.estimates[0] = estimate{name, e}
}
