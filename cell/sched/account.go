package sched

import "github.com/fairlead/fairlead/cell"

// LaneAccount returns where a lane stands, as a fact that outlives the scheduler; the zero account when its tenant is not known.
func (s *Scheduler) LaneAccount(id cell.Lane) cell.LaneAccount {
	if n := s.tree.Tenant(id.Tenant); n != nil {
		return s.tree.LaneAccount(n.Lane(id.Class))
	}
	return cell.LaneAccount{}
}

// RestoreLane puts a lane's account back, when the scheduler is filled anew. It returns false when its tenant is not known.
func (s *Scheduler) RestoreLane(id cell.Lane, a cell.LaneAccount) bool {
	n := s.tree.Tenant(id.Tenant)
	if n != nil {
		s.tree.RestoreLane(n.Lane(id.Class), a)
	}
	return n != nil
}

// TenantAccount returns where a tenant stands with its limit and credit; the zero account when it is not known.
func (s *Scheduler) TenantAccount(id cell.TenantID) cell.TenantAccount {
	if n := s.tree.Tenant(id); n != nil {
		return s.tree.TenantAccount(n)
	}
	return cell.TenantAccount{}
}

// RestoreTenant puts a tenant's account back, when the scheduler is filled anew. It returns false when it is not known.
func (s *Scheduler) RestoreTenant(id cell.TenantID, a cell.TenantAccount) bool {
	n := s.tree.Tenant(id)
	if n != nil {
		s.tree.RestoreTenant(n, a)
	}
	return n != nil
}

// OrganizationAccount returns where an organization stands; false when it is not known.
func (s *Scheduler) OrganizationAccount(id cell.OrganizationID) (cell.OrganizationAccount, bool) {
	return s.tree.OrganizationAccount(id)
}

// RestoreOrganization puts an organization's account back, when the scheduler is filled anew. It returns false when it is not known.
func (s *Scheduler) RestoreOrganization(id cell.OrganizationID, a cell.OrganizationAccount) bool {
	return s.tree.RestoreOrganization(id, a)
}

// RestoreStarts makes the times, the oldest first, the latest starts of a tenant's jobs: they count against its start rate. It returns
// false when it is not known.
func (s *Scheduler) RestoreStarts(id cell.TenantID, at []cell.Instant) bool {
	t := s.tenant(id)
	if t == nil {
		return false
	}
	if c := t.caps; c != nil {
		c.starts = starts{}
		for _, x := range at {
			c.starts.add(x, c.rate)
		}
		s.cap(t)
	}
	s.forgetTenant(t)
	return true
}

// Estimate returns what a tenant's jobs of an operation are expected to cost; the zero estimate where nothing was learned.
func (s *Scheduler) Estimate(id cell.TenantID, op cell.Operation) cell.Estimate {
	if t := s.tenantOf(id); t != nil {
		return t.estimate(op)
	}
	return cell.Estimate{}
}

// SetEstimate makes e what a tenant's jobs of an operation are expected to cost, when the scheduler is filled anew: those observed last go
// last. It returns false when the tenant is not known.
func (s *Scheduler) SetEstimate(id cell.TenantID, op cell.Operation, e cell.Estimate) bool {
	t := s.tenant(id)
	if t == nil {
		return false
	}
	s.learn(t, op, e)
	return true
}

// Observe learns what a tenant's job of an operation did cost. It returns false when the tenant is not known.
func (s *Scheduler) Observe(id cell.TenantID, op cell.Operation, cost cell.Cost) bool {
	t := s.tenant(id)
	if t == nil {
		return false
	}
	s.learn(t, op, t.estimate(op).Observe(cost))
	return true
}
