package controlserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
)

// Promise makes what organizations and tenants are promised be as given, and creates those that are missing; names, and whatever else
// there is, stay as they are. It may be repeated, and then changes nothing. It returns a *[cell.FieldError] when what is given does not
// fit beside what there is besides, and then may have changed a part.
func (s *Server) Promise(ctx context.Context, organizations []cell.OrganizationPolicy, tenants []cell.TenantPolicy) error {
	// On the way from what there is to what is given, an organization may not hold its tenants at any order of the changes. So one that
	// changes, or whose tenants do, promises nothing in between.
	open := make(map[cell.OrganizationID]bool)
	for _, t := range tenants {
		old, _ := s.machine.View().Tenant(t.Tenant)
		if old.Policy.Reservation != t.Reservation || old.Policy.Organization != t.Organization {
			open[t.Organization] = true
		}
	}
	for _, o := range organizations {
		if !open[o.Organization] && !s.organizationDiffers(o) {
			continue
		}
		o.Reservation, o.Limit = [2]cell.Rate{}, 0
		if err := s.promiseOrganization(ctx, o); err != nil {
			return err
		}
	}
	if err := s.promiseTenants(ctx, tenants); err != nil {
		return err
	}
	for _, o := range organizations {
		if err := s.promiseOrganization(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// promiseTenants goes round while that helps: what one gives up another may be waiting for.
func (s *Server) promiseTenants(ctx context.Context, tenants []cell.TenantPolicy) error {
	for len(tenants) > 0 {
		var unfit []cell.TenantPolicy
		var first error
		for _, t := range tenants {
			err := s.promiseTenant(ctx, t)
			if _, ok := errors.AsType[*cell.FieldError](err); err != nil && !ok {
				return err
			}
			if err != nil {
				unfit, first = append(unfit, t), cmp.Or(first, err)
			}
		}
		if len(unfit) == len(tenants) {
			return first
		}
		tenants = unfit
	}
	return nil
}

func (s *Server) organizationDiffers(p cell.OrganizationPolicy) bool {
	old, ok := s.machine.View().Organization(p.Organization)
	p.Epoch = old.Policy.Epoch
	return !ok || old.Policy != p
}

func (s *Server) promiseOrganization(ctx context.Context, p cell.OrganizationPolicy) error {
	if !s.organizationDiffers(p) {
		return nil
	}
	var c command.Command = command.UpdateOrganization{
		Organization: p.Organization, Weight: &p.Weight, Reservation: [2]*cell.Rate{&p.Reservation[0], &p.Reservation[1]}, Limit: &p.Limit,
		Time: s.instant(), Capacity: s.cfg.Capacity,
	}
	if _, ok := s.machine.View().Organization(p.Organization); !ok {
		c = command.CreateOrganization{
			Organization: p.Organization, DisplayName: string(p.Organization), Weight: p.Weight, Reservation: p.Reservation, Limit: p.Limit,
			Time: s.instant(), Capacity: s.cfg.Capacity,
		}
	}
	if _, err := s.changeOrganization(ctx, c); err != nil {
		return fmt.Errorf("organization %s: %w", p.Organization, err)
	}
	return nil
}

func (s *Server) tenantDiffers(p cell.TenantPolicy) bool {
	old, ok := s.machine.View().Tenant(p.Tenant)
	p.Epoch, p.Groups = old.Policy.Epoch, old.Policy.Groups // control's
	return !ok || old.Policy != p
}

func (s *Server) promiseTenant(ctx context.Context, p cell.TenantPolicy) error {
	if !s.tenantDiffers(p) {
		return nil
	}
	var c command.Command = command.UpdateTenant{
		Tenant: p.Tenant, Weight: &p.Weight, BacklogJobsMax: &p.BacklogJobsMax, BacklogBytesMax: &p.BacklogBytesMax, Organization: &p.Organization,
		Reservation: [2]*cell.Rate{&p.Reservation[0], &p.Reservation[1]}, Limit: &p.Limit, Credit: &p.Credit, RunningMax: &p.RunningMax,
		Starts: &p.Starts, Time: s.instant(), Capacity: s.cfg.Capacity,
	}
	if _, ok := s.machine.View().Tenant(p.Tenant); !ok {
		c = s.create(p, string(p.Tenant))
	}
	if _, err := s.changeTenant(ctx, c); err != nil {
		return fmt.Errorf("tenant %s: %w", p.Tenant, err)
	}
	return nil
}

// create returns the command that creates a tenant with a policy.
func (s *Server) create(p cell.TenantPolicy, name string) command.CreateTenant {
	return command.CreateTenant{
		Tenant: p.Tenant, DisplayName: name, Weight: p.Weight, BacklogJobsMax: p.BacklogJobsMax, BacklogBytesMax: p.BacklogBytesMax,
		Organization: p.Organization, Reservation: p.Reservation, Limit: p.Limit, Credit: p.Credit, RunningMax: p.RunningMax, Starts: p.Starts,
		Time: s.instant(), Capacity: s.cfg.Capacity,
	}
}
