package controlserver

import (
	"context"
	"errors"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/control/state"
	"github.com/fairlead/fairlead/placement"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

const listTenants = "tenants"

// CreateTenant implements TenantService. Once it has answered, the tenant's jobs are accepted.
func (s *Server) CreateTenant(ctx context.Context, r *fairleadv1.CreateTenantRequest) (*fairleadv1.CreateTenantResponse, error) {
	c, err := s.createTenant(r)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	t, err := s.changeTenant(ctx, c)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	return &fairleadv1.CreateTenantResponse{Tenant: s.tenantMessage(t)}, nil
}

func (s *Server) createTenant(r *fairleadv1.CreateTenantRequest) (command.CreateTenant, error) {
	c := command.CreateTenant{
		Tenant: cell.TenantID(r.GetId()), DisplayName: r.GetDisplayName(), Weight: cell.WeightDefault,
		BacklogJobsMax: r.GetBacklogJobsMax(), BacklogBytesMax: r.GetBacklogBytesMax(), Organization: cell.OrganizationID(r.GetOrganization()),
		RunningMax: r.GetRunningMax(), Time: s.instant(), Capacity: s.cfg.Capacity,
	}
	var in parser
	if r.Weight != nil {
		in.weight(&c.Weight, *r.Weight)
	}
	in.rate("reservation_interactive", &c.Reservation[0], r.GetReservationInteractive())
	in.rate("reservation_batch", &c.Reservation[1], r.GetReservationBatch())
	in.rate("limit", &c.Limit, r.GetLimit())
	in.credit(&c.Credit, r.GetCredit())
	in.starts(&c.Starts, r.GetStarts())
	in.rules(&c.Rules, r.GetPlacement())
	return c, in.err
}

// UpdateTenant implements TenantService.
func (s *Server) UpdateTenant(ctx context.Context, r *fairleadv1.UpdateTenantRequest) (*fairleadv1.UpdateTenantResponse, error) {
	c, err := s.updateTenant(r)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	t, err := s.changeTenant(ctx, c)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	return &fairleadv1.UpdateTenantResponse{Tenant: s.tenantMessage(t)}, nil
}

func (s *Server) updateTenant(r *fairleadv1.UpdateTenantRequest) (command.UpdateTenant, error) {
	c := command.UpdateTenant{
		Tenant: cell.TenantID(r.GetId()), DisplayName: r.DisplayName, BacklogJobsMax: r.BacklogJobsMax, BacklogBytesMax: r.BacklogBytesMax,
		RunningMax: r.RunningMax, Time: s.instant(), Capacity: s.cfg.Capacity,
	}
	if r.Organization != nil {
		c.Organization = new(cell.OrganizationID(r.GetOrganization()))
	}
	var in parser
	c.Weight = given(r.Weight, in.weight)
	c.Reservation[0] = given(r.ReservationInteractive, in.rateOf("reservation_interactive"))
	c.Reservation[1] = given(r.ReservationBatch, in.rateOf("reservation_batch"))
	c.Limit = given(r.Limit, in.rateOf("limit"))
	if r.GetCredit() != nil {
		c.Credit = new(cell.Credit)
		in.credit(c.Credit, r.GetCredit())
	}
	if r.GetStarts() != nil {
		c.Starts = new(cell.StartRate)
		in.starts(c.Starts, r.GetStarts())
	}
	if r.GetPlacement() != nil {
		c.Rules = new(placement.Rules)
		in.rules(c.Rules, r.GetPlacement())
	}
	return c, in.err
}

// changeTenant commits c, gives the tenant a home when it has none, and sees to it that its cell knows. It returns an *unplacedError when the
// tenant is new and no cell can take it.
func (s *Server) changeTenant(ctx context.Context, c command.Command) (state.Tenant, error) {
	r, err := s.reigning()
	if err != nil {
		return state.Tenant{}, err
	}
	res, err := s.propose(ctx, c)
	if err != nil {
		return state.Tenant{}, err
	}
	id := res.Tenant.ID()
	s.cfg.Log.InfoContext(ctx, "tenant changed", "command", c.Type().String(), "tenant", string(id))
	home, err := s.home(ctx, r, id)
	if _, unplaced := errors.AsType[*unplacedError](err); unplaced && c.Type() != command.TypeCreateTenant {
		return res.Tenant, nil // it was in no cell before either
	}
	if err != nil {
		return state.Tenant{}, err
	}
	for _, each := range knownTo(s.machine.View(), id) {
		if err := r.link(each).configure(ctx, changed{tenant: id}); err != nil && (each == home || !errors.Is(err, errCellBehind)) {
			return state.Tenant{}, err
		}
	}
	return s.tenant("id", string(id))
}

// GetTenant implements TenantService.
func (s *Server) GetTenant(ctx context.Context, r *fairleadv1.GetTenantRequest) (*fairleadv1.GetTenantResponse, error) {
	t, err := s.tenant("id", r.GetId())
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	m := s.tenantMessage(t)
	if err := s.verify(ctx); err != nil {
		return nil, s.fail(ctx, err)
	}
	return &fairleadv1.GetTenantResponse{Tenant: m}, nil
}

// ListTenants implements TenantService.
func (s *Server) ListTenants(ctx context.Context, r *fairleadv1.ListTenantsRequest) (*fairleadv1.ListTenantsResponse, error) {
	size, err := pageSize(r.GetPageSize())
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	after, err := pageAfter(listTenants, r.GetPageToken())
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	rows := s.machine.View().Tenants(cell.TenantID(after))
	if name := r.GetOrganization(); name != "" {
		o, err := s.organization("organization", name)
		if err != nil {
			return nil, s.fail(ctx, err)
		}
		rows = s.machine.View().TenantsOf(o.ID(), cell.TenantID(after))
	}
	tenants, next := page(listTenants, size, rows, func(t state.Tenant) string { return string(t.ID()) }, s.tenantMessage)
	if err := s.verify(ctx); err != nil {
		return nil, s.fail(ctx, err)
	}
	return &fairleadv1.ListTenantsResponse{Tenants: tenants, NextPageToken: next}, nil
}

// tenant returns the tenant that a request names in field.
func (s *Server) tenant(field, name string) (state.Tenant, error) {
	id, err := cell.ParseTenantID(field, name)
	if err != nil {
		return state.Tenant{}, err
	}
	t, ok := s.machine.View().Tenant(id)
	if !ok {
		return state.Tenant{}, &state.NotFoundError{Kind: state.KindTenant, ID: name}
	}
	return t, nil
}

func (s *Server) tenantMessage(t state.Tenant) *fairleadv1.Tenant {
	p := t.Policy
	m := &fairleadv1.Tenant{
		Id: string(p.Tenant), DisplayName: t.DisplayName, Weight: p.Weight.Float(),
		BacklogJobsMax: p.BacklogJobsMax, BacklogBytesMax: p.BacklogBytesMax,
		CreateTime: timeMessage(t.Created), UpdateTime: timeMessage(t.Updated),
		Organization: string(p.Organization), ReservationInteractive: p.Reservation[0].Float(), ReservationBatch: p.Reservation[1].Float(),
		Limit: p.Limit.Float(), RunningMax: p.RunningMax,
	}
	if p.Credit != (cell.Credit{}) {
		m.Credit = &fairleadv1.Credit{
			Max: float64(p.Credit.Max) / cell.Unit, Refill: p.Credit.Refill.Float(), Extra: p.Credit.Extra.Float(),
		}
	}
	if p.Starts != (cell.StartRate{}) {
		m.Starts = &fairleadv1.StartRate{Jobs: p.Starts.Jobs, Per: durationpb.New(p.Starts.Per)}
	}
	if r := t.Rules; len(r.Require) > 0 || r.Apart != "" || r.ComputeMin != 0 || r.Cell != "" {
		m.Placement = &fairleadv1.PlacementRules{
			Require: labelsMessage(r.Require), Apart: r.Apart, ComputeMin: r.ComputeMin.Float(), Cell: string(r.Cell),
		}
	}
	if a, ok := s.machine.View().AssignmentOf(laneOf(t.ID())); ok {
		m.Cell, m.Epoch = string(a.Cell), uint64(a.Epoch)
	}
	return m
}

// ExplainTenant implements TenantService: the cell says where the tenant stands, and control what it is promised.
func (s *Server) ExplainTenant(ctx context.Context, r *fairleadv1.ExplainTenantRequest) (*fairleadv1.ExplainTenantResponse, error) {
	t, err := s.tenant("id", r.GetId())
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	reign, err := s.reigning()
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	home, ok := homeOf(s.machine.View(), t.ID())
	if !ok {
		return nil, s.fail(ctx, &unplacedError{placement.Decision{Tenant: t.ID()}})
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	x, err := reign.link(home).to.ExplainTenant(call, t.ID())
	if err != nil {
		return nil, s.fail(ctx, reached(home, err)) // the cell's own answer, where it has given one
	}
	x.Tenant = s.tenantMessage(t)
	if o, ok := s.machine.View().Organization(t.Policy.Organization); ok {
		x.Organization = organizationMessage(o)
	}
	return x, nil
}

// timeMessage returns nil for none.
func timeMessage(i cell.Instant) *timestamppb.Timestamp {
	if i == 0 {
		return nil
	}
	return timestamppb.New(i.Time())
}
