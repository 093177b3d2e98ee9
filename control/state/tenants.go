package state

import (
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/placement"
)

// Tenant is a row of the table of tenants.
type Tenant struct {
	// Policy is what a cell needs to know of it, its id among that.
	Policy      cell.TenantPolicy
	DisplayName string
	Created     cell.Instant
	Updated     cell.Instant
	// Rules say where it may be placed. Their labels are shared and must not be changed.
	Rules placement.Rules
}

// ID returns the tenant's id.
func (t Tenant) ID() cell.TenantID { return t.Policy.Tenant }

// Equal reports whether t and o are the same.
func (t Tenant) Equal(o Tenant) bool {
	return t.Policy == o.Policy && t.DisplayName == o.DisplayName && t.Created == o.Created && t.Updated == o.Updated &&
		t.Rules.Apart == o.Rules.Apart && t.Rules.ComputeMin == o.Rules.ComputeMin && t.Rules.Cell == o.Rules.Cell &&
		slices.Equal(t.Rules.Require, o.Rules.Require)
}

func (s *State) createTenant(c command.CreateTenant) Result {
	t := Tenant{Policy: c.Policy(), DisplayName: c.DisplayName, Created: s.head.clock, Updated: s.head.clock, Rules: c.Rules}
	t.Policy.Epoch = 1
	if old, ok := s.View().Tenant(c.Tenant); ok {
		// The same command again: its proposer did not learn that it had been applied. That its clock reads the same is what tells it from
		// somebody else's; one whose time was overtaken by another's is refused, which is safe.
		// Where it was placed meanwhile is not part of it.
		t.Policy.Epoch, t.Policy.Groups = old.Policy.Epoch, old.Policy.Groups
		if t.Created, t.Updated = old.Created, old.Updated; t.Equal(old) && c.Time == old.Created {
			return Result{Tenant: old, Repeated: true}
		}
		return Result{Refused: &ExistsError{KindTenant, string(c.Tenant)}}
	}
	if s.head.tenants >= TenantsMax {
		return Result{Refused: &cell.LimitError{
			Limit: limitTenants, Scope: cell.ScopeCell, Value: int64(s.head.tenants) + 1, Bound: TenantsMax,
			Remedy: "run a second platform for further tenants",
		}}
	}
	if err := s.fits(cell.TenantPolicy{}, t.Policy, c.Capacity); err != nil {
		return Result{Refused: err}
	}
	s.putTenant(cell.TenantPolicy{}, t)
	s.put(tableUnplaced, &unplaced{t.ID()})
	s.head.tenants++
	return Result{Tenant: t}
}

func (s *State) updateTenant(c command.UpdateTenant) Result {
	old, ok := s.View().Tenant(c.Tenant)
	if !ok {
		return Result{Refused: &NotFoundError{KindTenant, string(c.Tenant)}}
	}
	t := old
	t.Policy = c.Onto(t.Policy)
	if c.DisplayName != nil {
		t.DisplayName = *c.DisplayName
	}
	set(&t.Rules, c.Rules)
	if err := t.Policy.Check(); err != nil { // of what it has and what is given together
		return Result{Refused: err}
	}
	if err := s.fits(old.Policy, t.Policy, c.Capacity); err != nil {
		return Result{Refused: err}
	}
	t.Updated = s.head.clock
	s.putTenant(old.Policy, t)
	return Result{Tenant: t}
}

// fits returns what refuses a tenant's policy beside those of others; old is what the tenant was promised before.
func (s *State) fits(old, policy cell.TenantPolicy, capacity [2]cell.Rate) error {
	if policy.Organization != "" {
		o, ok := s.View().Organization(policy.Organization)
		if !ok {
			return &NotFoundError{KindOrganization, string(policy.Organization)}
		}
		others := o.Reserved
		if old.Organization == policy.Organization {
			others = [2]cell.Rate{others[0] - old.Reservation[0], others[1] - old.Reservation[1]}
		}
		if err := policy.CheckWithin(o.Policy, others); err != nil {
			return err
		}
	}
	_, reserved := s.reserving(old, policy)
	return s.checkCapacity(reserved, capacity)
}

// putTenant replaces the tenant that was promised old, which is nothing for a new one, and keeps the sums.
func (s *State) putTenant(old cell.TenantPolicy, t Tenant) {
	changed, reserved := s.reserving(old, t.Policy)
	for _, o := range changed {
		s.put(tableOrganizations, &o)
	}
	s.head.reserved = reserved
	s.put(tableTenants, &t)
}

// reserving returns the organizations as they are once a tenant is promised policy in place of old, and what is then reserved in all.
func (s *State) reserving(old, policy cell.TenantPolicy) (changed []Organization, reserved [2]cell.Rate) {
	reserved = s.head.reserved
	if old.Organization == policy.Organization && old.Reservation == policy.Reservation {
		return nil, reserved
	}
	add := func(id cell.OrganizationID, rates [2]cell.Rate, sign cell.Rate) {
		if id == "" {
			for i, r := range rates {
				reserved[i] += sign * r
			}
			return
		}
		at := slices.IndexFunc(changed, func(o Organization) bool { return o.ID() == id })
		if at < 0 {
			o, ok := s.View().Organization(id)
			if !ok {
				panic("state: a tenant's organization is missing: " + string(id))
			}
			at, changed = len(changed), append(changed, o)
		}
		o := &changed[at]
		before := o.reserves()
		for i, r := range rates {
			o.Reserved[i] += sign * r
			reserved[i] += o.reserves()[i] - before[i]
		}
	}
	add(old.Organization, old.Reservation, -1)
	add(policy.Organization, policy.Reservation, 1)
	return changed, reserved
}

// checkCapacity returns a *[cell.FieldError] when a class would come to reserve more than now, and more than its capacity. One that does
// already, since the capacity was less then, may be lowered step by step.
func (s *State) checkCapacity(reserved, capacity [2]cell.Rate) error {
	for i, r := range reserved {
		if capacity[i] == 0 || r <= capacity[i] || r <= s.head.reserved[i] {
			continue
		}
		class := cell.Classes()[i].String()
		return &cell.FieldError{
			Field:   "reservation_" + class,
			Problem: fmt.Sprintf("makes %v reserved in the class, of at most %v", r, capacity[i]),
			Remedy:  fmt.Sprintf("reserve at most %v more, or give the class more capacity", max(0, capacity[i]-s.head.reserved[i])),
		}
	}
	return nil
}
