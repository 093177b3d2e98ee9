package controlserver

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/state"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
	"github.com/fairlead/fairlead/proto/rejection"
)

// Cells is the one cell of a process that has control and a cell in one.
type Cells interface {
	// Configure tells the cell what organizations and tenants are promised, organizations first, and opens the lanes of tenants that are
	// new. It returns once that is durable. What is known already changes nothing. It returns a *[cell.FieldError] when one would not fit in
	// what the cell knows of the others, and then has taken every one that does.
	Configure(ctx context.Context, organizations []cell.OrganizationPolicy, tenants []cell.TenantPolicy) error
	// ExplainTenant says where a tenant stands with the cell: everything but what it and its organization are promised. Its errors are the
	// API's.
	ExplainTenant(ctx context.Context, tenant cell.TenantID) (*fairleadv1.ExplainTenantResponse, error)
}

// Dialer gives clients of other agents. Each answers calls with Connect errors; none of them waits for another.
type Dialer interface {
	// Replica returns the client of an agent with a log.
	Replica(agent state.Agent) fairleadv1connect.ReplicaServiceClient
	// Tenancy returns the client of whichever of the cell's agents leads. The first is the one that control believes to lead.
	Tenancy(id cell.ID, agents []state.Agent) fairleadv1connect.TenancyServiceClient
	// Lanes returns the client of the same for what moves lanes.
	Lanes(id cell.ID, agents []state.Agent) fairleadv1connect.LaneServiceClient
}

// tenancy is a cell as control configures it.
type tenancy interface {
	Cells
	// drain says whether the cell takes new jobs. It returns errNoDrain when it cannot be told.
	drain(ctx context.Context, draining bool) error
	// measure calls each for every tenant that the cell knows, in the order of their ids. It returns errNoMeasure when the cell is not measured.
	measure(ctx context.Context, each func(at cell.Instant, use *fairleadv1.TenantUse)) error
}

var (
	errNoDrain   = errors.New("a cell that shares its process with control cannot be drained: stop what submits to it")
	errNoMeasure = errors.New("a cell that shares its process with control is not measured")
)

// sharedCell is the cell of control's own process.
type sharedCell struct{ Cells }

func (sharedCell) drain(_ context.Context, draining bool) error {
	if draining {
		return errNoDrain
	}
	return nil
}

func (sharedCell) measure(context.Context, func(cell.Instant, *fairleadv1.TenantUse)) error {
	return errNoMeasure
}

// measurePage is how many tenants one call measures: a few hundred kilobytes.
const measurePage = 1000

// remoteCell is a cell of other processes.
type remoteCell struct {
	id     cell.ID
	dialer Dialer
	agents func() []state.Agent // the one that leads first, as far as known
}

func (c remoteCell) client() fairleadv1connect.TenancyServiceClient {
	return c.dialer.Tenancy(c.id, c.agents())
}

// Configure implements [Cells].
func (c remoteCell) Configure(ctx context.Context, organizations []cell.OrganizationPolicy, tenants []cell.TenantPolicy) error {
	r := &fairleadv1.ConfigureRequest{}
	for _, o := range organizations {
		r.Organizations = append(r.Organizations, organizationPromise(o))
	}
	for _, t := range tenants {
		r.Tenants = append(r.Tenants, tenantPromise(t))
	}
	_, err := c.client().Configure(ctx, r)
	return unfit(err)
}

func (c remoteCell) drain(ctx context.Context, draining bool) error {
	_, err := c.client().Configure(ctx, &fairleadv1.ConfigureRequest{Draining: &draining})
	return err
}

// ExplainTenant implements [Cells].
func (c remoteCell) ExplainTenant(ctx context.Context, tenant cell.TenantID) (*fairleadv1.ExplainTenantResponse, error) {
	a, err := c.client().ExplainTenancy(ctx, &fairleadv1.ExplainTenancyRequest{Tenant: string(tenant)})
	if err != nil {
		return nil, err
	}
	x := &fairleadv1.ExplainTenantResponse{}
	if err := proto.Unmarshal(a.GetExplanation(), x); err != nil {
		return nil, rejection.New(connect.CodeUnavailable, &fairleadv1.Rejection{
			Reason: reasonCellBehind, Message: "the cell's answer is in no form that control knows: run the same release on both",
		})
	}
	return x, nil
}

func (c remoteCell) measure(ctx context.Context, each func(cell.Instant, *fairleadv1.TenantUse)) error {
	after, client := "", c.client()
	for {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		page, err := client.MeasureDemand(call, &fairleadv1.MeasureDemandRequest{PageSize: measurePage, After: after})
		cancel()
		if err != nil {
			return err
		}
		at := cell.InstantOf(page.GetTime().AsTime())
		for _, use := range page.GetTenants() {
			if use.GetTenant() <= after { // a page that does not go on would go on for ever
				return errors.New("the cell measured its tenants out of order")
			}
			after = use.GetTenant()
			each(at, use)
		}
		if !page.GetMore() || len(page.GetTenants()) == 0 {
			return nil
		}
	}
}

// unfit returns the *[cell.FieldError] that err, as a cell answered it, stands for, and any other error as it is.
func unfit(err error) error {
	r := rejection.From(err)
	if r.GetReason() != rejection.ReasonBadField {
		return err
	}
	return &cell.FieldError{Field: r.GetField(), Problem: "does not fit in the cell", Remedy: r.GetMessage()}
}

func organizationPromise(p cell.OrganizationPolicy) *fairleadv1.OrganizationPromise {
	return &fairleadv1.OrganizationPromise{
		Organization: string(p.Organization), Weight: int64(p.Weight), ReservationInteractive: int64(p.Reservation[0]),
		ReservationBatch: int64(p.Reservation[1]), Limit: int64(p.Limit), Epoch: uint64(p.Epoch),
	}
}

func tenantPromise(p cell.TenantPolicy) *fairleadv1.TenantPromise {
	m := &fairleadv1.TenantPromise{
		Tenant: string(p.Tenant), Organization: string(p.Organization), Weight: int64(p.Weight),
		ReservationInteractive: int64(p.Reservation[0]), ReservationBatch: int64(p.Reservation[1]), Limit: int64(p.Limit),
		CreditMax: int64(p.Credit.Max), CreditRefill: int64(p.Credit.Refill), CreditExtra: int64(p.Credit.Extra), RunningMax: p.RunningMax,
		StartsJobs: p.Starts.Jobs, BacklogJobsMax: p.BacklogJobsMax, BacklogBytesMax: p.BacklogBytesMax, Epoch: uint64(p.Epoch), Groups: p.Groups,
	}
	if p.Starts.Per != time.Duration(0) {
		m.StartsPer = durationpb.New(p.Starts.Per)
	}
	return m
}
