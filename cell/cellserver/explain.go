package cellserver

import (
	"context"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	"github.com/fairlead/fairlead/cell/leader"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// ExplainJob says why a job waits.
func (h Jobs) ExplainJob(ctx context.Context, req *fairleadv1.ExplainJobRequest) (*fairleadv1.ExplainJobResponse, error) {
	var resp *fairleadv1.ExplainJobResponse
	err := h.server.read(ctx, func() (err error) {
		resp, err = h.explain(ctx, req)
		return err
	})
	if err != nil {
		return nil, h.server.fail(ctx, err)
	}
	return resp, nil
}

func (h Jobs) explain(ctx context.Context, req *fairleadv1.ExplainJobRequest) (*fairleadv1.ExplainJobResponse, error) {
	s := h.server
	n, err := h.named(ctx, req.GetJobId())
	if err != nil {
		return nil, err
	}
	s.mu.Lock() // explaining lets the scheduler know the time
	defer s.mu.Unlock()
	if s.lead == nil {
		return nil, ErrNotLeading
	}
	if _, err := s.find(n); err != nil {
		return nil, err
	}
	x, ok := s.lead.Explain(s.now(), n.tenant, n.id)
	if !ok {
		return nil, engine.ErrJobUnknown
	}
	resp := &fairleadv1.ExplainJobResponse{
		JobId: x.Job.ID.String(), State: stateTo(x.Job.State), Reason: reasonTo(x.Reason), Message: x.Message,
		Position: x.Position, LaneLeased: x.Job.Lane.Count(engine.Leased), LaneReady: x.Job.Lane.Count(engine.Ready),
		ClassSlots: x.Class.Limit, ClassUsed: x.Class.Used, Workers: int64(x.Workers), NextTime: timeTo(x.NextTime), TenantsWaiting: x.Tenants,
		Limit: x.Bound.Name, Key: x.Bound.Key, Period: durationTo(x.Bound.Period),
	}
	resp.Value, resp.Bound = float64(x.Bound.Value), float64(x.Bound.Most)
	if x.Bound.Rate > 0 {
		resp.Value, resp.Bound = x.Bound.Rate.Float(), x.Bound.Rate.Float() // it was charged what it may be
	}
	for _, id := range x.Holders {
		// Another tenant's job is nobody's business: only the tenant's own are named.
		if s.state.JobOf(n.tenant, id) != nil {
			resp.Holders = append(resp.Holders, id.String())
		}
	}
	return resp, nil
}

// reasonTo relies on the API's reasons and the leader's having the same numbers, which a test checks. A job whose last worker has yet to stop is
// held by it, as far as the API goes; of a lane that is not open here only the message says why.
func reasonTo(r leader.Reason) fairleadv1.WaitReason {
	if r == leader.ReasonStopping {
		return fairleadv1.WaitReason_WAIT_REASON_RUNNING
	}
	if r == leader.ReasonMoving {
		return fairleadv1.WaitReason_WAIT_REASON_UNSPECIFIED
	}
	return fairleadv1.WaitReason(r)
}

// ExplainTenant says where a tenant stands with this cell: everything but what it and its organization are promised. It is for control to
// answer with, so its errors are the API's.
func (s *Server) ExplainTenant(ctx context.Context, tenant cell.TenantID) (*fairleadv1.ExplainTenantResponse, error) {
	s.mu.Lock() // explaining lets the scheduler know the time
	defer s.mu.Unlock()
	if s.lead == nil {
		return nil, s.fail(ctx, ErrNotLeading)
	}
	now := s.now()
	x, ok := s.lead.ExplainTenant(now, tenant)
	if !ok {
		return nil, s.fail(ctx, engine.ErrTenantUnknown)
	}
	resp := &fairleadv1.ExplainTenantResponse{
		Cell: s.cfg.Cell, Time: timeTo(now), CostUnit: s.lead.CostUnit(), Running: x.Standing.Held, NextStartTime: timeTo(x.Standing.NextStart),
	}
	for i, c := range cell.Classes() {
		resp.Lanes = append(resp.Lanes, s.laneStanding(&x, c))
		st := &x.Standing.Lanes[i].Tree // what is of the tenant's is the same in both
		resp.LimitUntil, resp.OrganizationLimitUntil = timeTo(st.LimitedUntil), timeTo(st.OrganizationLimitedUntil)
		resp.CreditLeft = float64(st.Credit) / cell.Unit
	}
	return resp, nil
}

func (s *Server) laneStanding(x *leader.TenantExplanation, c cell.Class) *fairleadv1.LaneStanding {
	lane := x.Tenant.Lane(c)
	st := &x.Standing.Lanes[c.Index()].Tree
	next := &x.Next[c.Index()]
	m := &fairleadv1.LaneStanding{
		Class: classTo(c), Ready: lane.Count(engine.Ready), Delayed: lane.Count(engine.Delayed), Leased: lane.Count(engine.Leased),
		ChargedCost: int64(lane.Charged), Reason: reasonTo(next.Reason), Message: next.Message, NextTime: timeTo(next.NextTime),
		RoundsBehind: st.Own.Rounds, Deficit: st.Own.Deficit,
		OrganizationRoundsBehind: st.Organization.Rounds, OrganizationDeficit: st.Organization.Deficit,
	}
	if st.Own.Reservation > 0 {
		m.ReservationAhead = durationpb.New(st.Own.Ahead)
	}
	if st.Organization.Reservation > 0 {
		m.OrganizationReservationAhead = durationpb.New(st.Organization.Ahead)
	}
	if at, ok := s.lead.Oldest(lane.ID); ok {
		m.OldestWait = durationpb.New(max(0, s.now().Sub(at)))
	}
	return m
}
