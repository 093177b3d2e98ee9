package controlserver

import (
	"cmp"
	"context"
	"sync"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/control/state"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

const listOrganizations = "organizations"

// CreateOrganization implements OrganizationService. Once it has answered, tenants may be put into it.
func (s *Server) CreateOrganization(
	ctx context.Context, r *fairleadv1.CreateOrganizationRequest,
) (*fairleadv1.CreateOrganizationResponse, error) {
	c := command.CreateOrganization{
		Organization: cell.OrganizationID(r.GetId()), DisplayName: r.GetDisplayName(), Weight: cell.WeightDefault,
		Time: s.instant(), Capacity: s.cfg.Capacity,
	}
	var in parser
	if r.Weight != nil {
		in.weight(&c.Weight, *r.Weight)
	}
	in.rate("reservation_interactive", &c.Reservation[0], r.GetReservationInteractive())
	in.rate("reservation_batch", &c.Reservation[1], r.GetReservationBatch())
	in.rate("limit", &c.Limit, r.GetLimit())
	if in.err != nil {
		return nil, s.fail(ctx, in.err)
	}
	o, err := s.changeOrganization(ctx, c)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	return &fairleadv1.CreateOrganizationResponse{Organization: organizationMessage(o)}, nil
}

// UpdateOrganization implements OrganizationService.
func (s *Server) UpdateOrganization(
	ctx context.Context, r *fairleadv1.UpdateOrganizationRequest,
) (*fairleadv1.UpdateOrganizationResponse, error) {
	c := command.UpdateOrganization{
		Organization: cell.OrganizationID(r.GetId()), DisplayName: r.DisplayName, Time: s.instant(), Capacity: s.cfg.Capacity,
	}
	var in parser
	c.Weight = given(r.Weight, in.weight)
	c.Reservation[0] = given(r.ReservationInteractive, in.rateOf("reservation_interactive"))
	c.Reservation[1] = given(r.ReservationBatch, in.rateOf("reservation_batch"))
	c.Limit = given(r.Limit, in.rateOf("limit"))
	if in.err != nil {
		return nil, s.fail(ctx, in.err)
	}
	o, err := s.changeOrganization(ctx, c)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	return &fairleadv1.UpdateOrganizationResponse{Organization: organizationMessage(o)}, nil
}

// changeOrganization commits c and sees to it that the cells know that have tenants of it.
func (s *Server) changeOrganization(ctx context.Context, c command.Command) (state.Organization, error) {
	r, err := s.reigning()
	if err != nil {
		return state.Organization{}, err
	}
	res, err := s.propose(ctx, c)
	if err != nil {
		return state.Organization{}, err
	}
	id := res.Organization.ID()
	s.cfg.Log.InfoContext(ctx, "organization changed", "command", c.Type().String(), "organization", string(id))
	return res.Organization, s.configureOrganization(ctx, r, id)
}

// configureOrganization tells every cell with tenants of an organization what it is promised: each by itself, so that one that hangs makes nobody
// else wait. A cell without any learns of it with its first tenant.
func (s *Server) configureOrganization(ctx context.Context, r *reign, id cell.OrganizationID) error {
	homes := make(map[cell.ID]bool)
	if s.shared != nil {
		if err := s.ensureShared(ctx); err != nil {
			return err
		}
		homes[s.cfg.SharedCell] = true
	}
	view := s.machine.View()
	for t := range view.TenantsOf(id, "") {
		for _, home := range knownTo(view, t.ID()) {
			homes[home] = true
		}
	}
	var (
		mu    sync.Mutex
		wg    sync.WaitGroup
		first error
	)
	for home := range homes {
		wg.Go(func() {
			if err := r.link(home).configure(ctx, changed{organization: id}); err != nil {
				mu.Lock()
				defer mu.Unlock()
				first = cmp.Or(first, err)
			}
		})
	}
	wg.Wait()
	return first
}

// GetOrganization implements OrganizationService.
func (s *Server) GetOrganization(ctx context.Context, r *fairleadv1.GetOrganizationRequest) (*fairleadv1.GetOrganizationResponse, error) {
	o, err := s.organization("id", r.GetId())
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	if err := s.verify(ctx); err != nil {
		return nil, s.fail(ctx, err)
	}
	return &fairleadv1.GetOrganizationResponse{Organization: organizationMessage(o)}, nil
}

// ListOrganizations implements OrganizationService.
func (s *Server) ListOrganizations(
	ctx context.Context, r *fairleadv1.ListOrganizationsRequest,
) (*fairleadv1.ListOrganizationsResponse, error) {
	size, err := pageSize(r.GetPageSize())
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	after, err := pageAfter(listOrganizations, r.GetPageToken())
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	organizations, next := page(listOrganizations, size, s.machine.View().Organizations(cell.OrganizationID(after)),
		func(o state.Organization) string { return string(o.ID()) }, organizationMessage)
	if err := s.verify(ctx); err != nil {
		return nil, s.fail(ctx, err)
	}
	return &fairleadv1.ListOrganizationsResponse{Organizations: organizations, NextPageToken: next}, nil
}

// organization returns the organization that a request names in field.
func (s *Server) organization(field, name string) (state.Organization, error) {
	id, err := cell.ParseOrganizationID(field, name)
	if err != nil {
		return state.Organization{}, err
	}
	o, ok := s.machine.View().Organization(id)
	if !ok {
		return state.Organization{}, &state.NotFoundError{Kind: state.KindOrganization, ID: name}
	}
	return o, nil
}

func organizationMessage(o state.Organization) *fairleadv1.Organization {
	p := o.Policy
	return &fairleadv1.Organization{
		Id: string(p.Organization), DisplayName: o.DisplayName, Weight: p.Weight.Float(),
		ReservationInteractive: p.Reservation[0].Float(), ReservationBatch: p.Reservation[1].Float(), Limit: p.Limit.Float(),
		CreateTime: timeMessage(o.Created), UpdateTime: timeMessage(o.Updated),
	}
}
