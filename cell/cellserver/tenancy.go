package cellserver

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// Bounds of what control asks for.
const (
	// promisesMax bounds the organizations and tenants of one call: what fits in one entry.
	promisesMax = 500
	// measurePageDefault and measurePageMax bound the tenants that one call measures.
	measurePageDefault, measurePageMax = 1000, 5000
)

// Tenancy serves TenancyService: what control asks of a cell.
type Tenancy struct{ server *Server }

var _ fairleadv1connect.TenancyServiceHandler = Tenancy{}

// Tenancy returns the handler of TenancyService.
func (s *Server) Tenancy() Tenancy { return Tenancy{s} }

// Configure opens lanes and says what they are promised, and whether new jobs are taken. That last lasts until another replica leads.
func (h Tenancy) Configure(ctx context.Context, req *fairleadv1.ConfigureRequest) (*fairleadv1.ConfigureResponse, error) {
	s := h.server
	if n := len(req.GetOrganizations()) + len(req.GetTenants()); n > promisesMax {
		return nil, s.fail(ctx, &cell.FieldError{
			Field: "tenants", Problem: fmt.Sprintf("has %d with the organizations, of at most %d", n, promisesMax), Remedy: "use several calls",
		})
	}
	organizations := make([]cell.OrganizationPolicy, 0, len(req.GetOrganizations()))
	for _, m := range req.GetOrganizations() {
		organizations = append(organizations, organizationOf(m))
	}
	tenants := make([]cell.TenantPolicy, 0, len(req.GetTenants()))
	for _, m := range req.GetTenants() {
		tenants = append(tenants, tenantOf(m))
	}
	if err := s.Configure(ctx, organizations, tenants); err != nil {
		return nil, s.fail(ctx, err)
	}
	if req.Draining != nil && s.drained.Swap(req.GetDraining()) != req.GetDraining() {
		s.cfg.Logger.Info("control says whether the cell is to empty", "draining", req.GetDraining())
	}
	return &fairleadv1.ConfigureResponse{}, nil
}

func organizationOf(m *fairleadv1.OrganizationPromise) cell.OrganizationPolicy {
	return cell.OrganizationPolicy{
		Organization: cell.OrganizationID(m.GetOrganization()), Weight: cell.Weight(m.GetWeight()),
		Reservation: [2]cell.Rate{cell.Rate(m.GetReservationInteractive()), cell.Rate(m.GetReservationBatch())},
		Limit:       cell.Rate(m.GetLimit()), Epoch: cell.Epoch(m.GetEpoch()),
	}
}

func tenantOf(m *fairleadv1.TenantPromise) cell.TenantPolicy {
	return cell.TenantPolicy{
		Tenant: cell.TenantID(m.GetTenant()), Organization: cell.OrganizationID(m.GetOrganization()), Weight: cell.Weight(m.GetWeight()),
		Reservation: [2]cell.Rate{cell.Rate(m.GetReservationInteractive()), cell.Rate(m.GetReservationBatch())},
		Limit:       cell.Rate(m.GetLimit()),
		Credit:      cell.Credit{Max: cell.Cost(m.GetCreditMax()), Refill: cell.Rate(m.GetCreditRefill()), Extra: cell.Rate(m.GetCreditExtra())},
		RunningMax:  m.GetRunningMax(), Starts: cell.StartRate{Jobs: m.GetStartsJobs(), Per: m.GetStartsPer().AsDuration()},
		BacklogJobsMax: m.GetBacklogJobsMax(), BacklogBytesMax: m.GetBacklogBytesMax(), Groups: m.GetGroups(), Epoch: cell.Epoch(m.GetEpoch()),
	}
}

// MeasureDemand returns what tenants have used and hold, in the order of their ids.
func (h Tenancy) MeasureDemand(ctx context.Context, req *fairleadv1.MeasureDemandRequest) (*fairleadv1.MeasureDemandResponse, error) {
	var resp *fairleadv1.MeasureDemandResponse
	err := h.server.read(ctx, func() (err error) {
		resp, err = h.measure(req)
		return err
	})
	if err != nil {
		return nil, h.server.fail(ctx, err)
	}
	return resp, nil
}

func (h Tenancy) measure(req *fairleadv1.MeasureDemandRequest) (*fairleadv1.MeasureDemandResponse, error) {
	s := h.server
	size := int(req.GetPageSize())
	if size == 0 {
		size = measurePageDefault
	}
	if size < 1 || size > measurePageMax {
		return nil, &cell.FieldError{
			Field: "page_size", Problem: fmt.Sprintf("is %d, outside 1 to %d", size, measurePageMax), Remedy: "give one inside",
		}
	}
	s.mu.Lock() // asking what a class may hold lets the scheduler look at what waits
	defer s.mu.Unlock()
	if s.lead == nil {
		return nil, ErrNotLeading
	}
	resp := &fairleadv1.MeasureDemandResponse{Time: timeTo(s.now())}
	for _, c := range cell.Classes() {
		use := s.lead.Use(c)
		resp.Slots, resp.SlotsUsed = resp.Slots+use.Nominal, resp.SlotsUsed+use.Used
	}
	after := make([]*engine.Tenant, 0, size)
	for i := range s.state.TenantCount() {
		if t := s.state.TenantAt(i); string(t.Policy.Tenant) > req.GetAfter() {
			after = append(after, t)
		}
	}
	slices.SortFunc(after, func(a, b *engine.Tenant) int {
		return strings.Compare(string(a.Policy.Tenant), string(b.Policy.Tenant))
	})
	resp.More = len(after) > size
	for _, t := range after[:min(size, len(after))] {
		m := s.useOf(t)
		m.Limited = s.limited.times(t.Policy.Tenant)
		resp.Tenants = append(resp.Tenants, m)
	}
	return resp, nil
}

func (s *Server) useOf(t *engine.Tenant) *fairleadv1.TenantUse {
	m := &fairleadv1.TenantUse{Tenant: string(t.Policy.Tenant)}
	for _, c := range cell.Classes() {
		l := t.Lane(c)
		if l == nil || elsewhere(l) {
			continue // what is kept of it is another cell's demand
		}
		jobs, bytes := l.Live()
		m.Jobs, m.Bytes = m.GetJobs()+jobs, m.GetBytes()+bytes
		if c == cell.ClassInteractive {
			m.ChargedInteractive = s.charges.of(l)
		} else {
			m.ChargedBatch = s.charges.of(l)
		}
	}
	return m
}

// ExplainTenancy says where a tenant stands with this cell.
func (h Tenancy) ExplainTenancy(ctx context.Context, req *fairleadv1.ExplainTenancyRequest) (*fairleadv1.ExplainTenancyResponse, error) {
	var x *fairleadv1.ExplainTenantResponse
	var explained error // which is the API's already
	err := h.server.read(ctx, func() error {
		x, explained = h.server.ExplainTenant(ctx, cell.TenantID(req.GetTenant()))
		return nil
	})
	if err != nil {
		return nil, h.server.fail(ctx, err)
	}
	if explained != nil {
		return nil, explained
	}
	b, err := proto.Marshal(x)
	if err != nil {
		return nil, h.server.fail(ctx, err)
	}
	return &fairleadv1.ExplainTenancyResponse{Explanation: b}, nil
}
