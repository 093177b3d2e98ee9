package state

import (
	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
)

// Organization is a row of the table of organizations.
type Organization struct {
	// Policy is what a cell needs to know of it, its id among that. Its epoch rises with every change.
	Policy      cell.OrganizationPolicy
	DisplayName string
	Created     cell.Instant
	Updated     cell.Instant
	// Reserved is what its tenants reserve in each class, by Class.Index: a sum that is kept, so that no change looks at all of them.
	Reserved [2]cell.Rate
}

// ID returns the organization's id.
func (o Organization) ID() cell.OrganizationID { return o.Policy.Organization }

// reserves returns what the organization takes of each class's capacity: its own reservation, or where it has none its tenants'.
func (o Organization) reserves() [2]cell.Rate {
	return [2]cell.Rate{max(o.Policy.Reservation[0], o.Reserved[0]), max(o.Policy.Reservation[1], o.Reserved[1])}
}

func (s *State) createOrganization(c command.CreateOrganization) Result {
	o := Organization{Policy: c.Policy(), DisplayName: c.DisplayName, Created: s.head.clock, Updated: s.head.clock}
	o.Policy.Epoch = 1
	if old, ok := s.View().Organization(c.Organization); ok {
		// The same command again, as of a tenant; its sums may have changed since.
		if o.Created, o.Updated, o.Reserved = old.Created, old.Updated, old.Reserved; o == old && c.Time == old.Created {
			return Result{Organization: old, Repeated: true}
		}
		return Result{Refused: &ExistsError{KindOrganization, string(c.Organization)}}
	}
	if s.head.organizations >= OrganizationsMax {
		return Result{Refused: &cell.LimitError{
			Limit: limitOrganizations, Scope: cell.ScopeCell, Value: int64(s.head.organizations) + 1, Bound: OrganizationsMax,
			Remedy: "leave tenants that share nothing without an organization",
		}}
	}
	reserved := s.head.reserved
	for i, r := range o.reserves() {
		reserved[i] += r
	}
	if err := s.checkCapacity(reserved, c.Capacity); err != nil {
		return Result{Refused: err}
	}
	s.put(tableOrganizations, &o)
	s.head.organizations++
	s.head.reserved = reserved
	return Result{Organization: o}
}

func (s *State) updateOrganization(c command.UpdateOrganization) Result {
	o, ok := s.View().Organization(c.Organization)
	if !ok {
		return Result{Refused: &NotFoundError{KindOrganization, string(c.Organization)}}
	}
	before, reserved := o.reserves(), s.head.reserved
	o.Policy = c.Onto(o.Policy)
	if c.DisplayName != nil {
		o.DisplayName = *c.DisplayName
	}
	if err := o.Policy.Check(); err != nil { // of what it has and what is given together
		return Result{Refused: err}
	}
	if err := o.Policy.CheckReserved(o.Reserved); err != nil {
		return Result{Refused: err}
	}
	for i, r := range o.reserves() {
		reserved[i] += r - before[i]
	}
	if err := s.checkCapacity(reserved, c.Capacity); err != nil {
		return Result{Refused: err}
	}
	o.Policy.Epoch++
	o.Updated = s.head.clock
	s.put(tableOrganizations, &o)
	s.head.reserved = reserved
	return Result{Organization: o}
}
