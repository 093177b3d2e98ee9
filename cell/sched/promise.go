package sched

import (
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/cell"
)

// SetOrganization adds an organization or changes its policy, also for what waits already. It returns a *cell.FieldError, or several
// joined, when the policy is out of bounds, does not hold what its tenants reserve, or does not fit in a class's capacity; and a
// *cell.LimitError when there are too many others. Nothing is changed then.
func (s *Scheduler) SetOrganization(p cell.OrganizationPolicy) error {
	s.goOn()
	old, _ := s.tree.Organization(p.Organization)
	before := s.reserved.total
	s.reserved.own(p.Organization, p.Reservation)
	err := s.reserved.check(before, s.cfg)
	if err == nil {
		err = s.tree.SetOrganization(p)
	}
	if err != nil {
		s.reserved.own(p.Organization, old.Reservation)
	}
	return err
}

// SetTenant adds a tenant or changes its policy, also for what waits already: a cap that was raised lets it run in the next pass, one that
// was lowered lets nothing start until it is kept, and what waits is offered to the workers of a changed hand and to no others. Every tenant has to be named to it before its first job. It returns a *cell.FieldError,
// or several joined, when the policy is out of bounds, its organization is not known or does not hold its reservations, or they do not fit
// in a class's capacity; and a *cell.LimitError when its lanes would be more than Config.LanesMax. Nothing is changed then.
func (s *Scheduler) SetTenant(p cell.TenantPolicy) error {
	s.goOn()
	var old cell.TenantPolicy
	if n := s.tree.Tenant(p.Tenant); n != nil {
		old = n.Policy()
	}
	before := s.reserved.total
	s.reserved.tenant(old, -1)
	s.reserved.tenant(p, 1)
	err := s.reserved.check(before, s.cfg)
	if err == nil {
		_, err = s.tree.SetTenant(p, func(cell.Class) *tenant { return nil })
	}
	if err != nil {
		s.reserved.tenant(p, -1)
		s.reserved.tenant(old, 1)
		return err
	}
	if t := s.tenantOf(p.Tenant); t != nil {
		s.redeal(t, old.Groups)
		t.follow(p)
		s.cap(t)
	}
	return nil
}

// BoundCapacity changes the classes' Bulkhead.Capacity. What is reserved beyond it stays: whoever fills a scheduler anew bounds it
// afterwards, so that a cell that has become smaller still starts.
func (s *Scheduler) BoundCapacity(capacity [2]cell.Rate) {
	for i, c := range capacity {
		s.cfg.Bulkheads[i].Capacity = max(0, c)
	}
}

// reserved is what is reserved in each class, by cell.Class.Index.
type reserved struct {
	organizations map[cell.OrganizationID]*promised // those with a reservation of their own or of a tenant
	total         [2]cell.Rate
}

// promised is what an organization and its tenants reserve. What counts is the greater of the two.
type promised struct{ own, tenants [2]cell.Rate }

// own makes r what an organization reserves itself.
func (x *reserved) own(id cell.OrganizationID, r [2]cell.Rate) {
	x.change(id, func(p *promised) { p.own = r })
}

// tenant counts a tenant's reservations in, or out where times is -1.
func (x *reserved) tenant(p cell.TenantPolicy, times cell.Rate) {
	switch {
	case p.Reservation == [2]cell.Rate{}:
	case p.Organization == "":
		for i, r := range p.Reservation {
			x.total[i] += times * r
		}
	default:
		x.change(p.Organization, func(o *promised) {
			for i, r := range p.Reservation {
				o.tenants[i] += times * r
			}
		})
	}
}

func (x *reserved) change(id cell.OrganizationID, do func(*promised)) {
	p := x.organizations[id]
	if p == nil {
		p = &promised{}
		x.organizations[id] = p
	}
	for i := range x.total {
		x.total[i] -= max(p.own[i], p.tenants[i])
	}
	do(p)
	for i := range x.total {
		x.total[i] += max(p.own[i], p.tenants[i])
	}
	if *p == (promised{}) {
		delete(x.organizations, id)
	}
}

// check returns a *cell.FieldError for each class in which more is reserved than before, and more than its capacity.
func (x *reserved) check(before [2]cell.Rate, cfg Config) error {
	var errs []error
	for i, b := range cfg.Bulkheads {
		if total := x.total[i]; b.Capacity > 0 && total > b.Capacity && total > before[i] {
			errs = append(errs, &cell.FieldError{
				Field:   "reservation_" + cell.Classes()[i].String(),
				Problem: fmt.Sprintf("would make %v of what is reserved in the class, of the %v that it can do", total, b.Capacity),
				Remedy:  fmt.Sprintf("reserve %v less, or give the class more slots", total-b.Capacity),
			})
		}
	}
	return errors.Join(errs...)
}
