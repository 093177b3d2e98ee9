package controlserver

import (
	"context"
	"fmt"
	"iter"
	"math/bits"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/reconcile"
	"github.com/fairlead/fairlead/control/state"
	"github.com/fairlead/fairlead/placement"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

const listPlacement = "placement"

// unplacedShown bounds the tenants without a home that an answer lists.
const unplacedShown = 500

// placementService is the server as PlacementService: who is where, and why.
type placementService struct{ *Server }

// Placement returns what answers PlacementService.
func (s *Server) Placement() fairleadv1connect.PlacementServiceHandler { return placementService{s} }

// ShowPlacement implements PlacementService.
func (p placementService) ShowPlacement(
	ctx context.Context, req *fairleadv1.ShowPlacementRequest,
) (*fairleadv1.ShowPlacementResponse, error) {
	m, err := p.show(ctx, req)
	if err != nil {
		return nil, p.fail(ctx, err)
	}
	return m, nil
}

func (s *Server) show(ctx context.Context, req *fairleadv1.ShowPlacementRequest) (*fairleadv1.ShowPlacementResponse, error) {
	r, err := s.reigning()
	if err != nil {
		return nil, err
	}
	size, err := pageSize(req.GetPageSize())
	if err != nil {
		return nil, err
	}
	list := listPlacement + " of " + req.GetCell() + " and " + req.GetTenant()
	after, err := pageAfter(list, req.GetPageToken())
	if err != nil {
		return nil, err
	}
	view := s.machine.View()
	rows := view.Assignments(cell.TenantID(after))
	switch {
	case req.GetTenant() != "":
		t, err := s.tenant("tenant", req.GetTenant())
		if err != nil {
			return nil, err
		}
		rows = only(view, t.ID())
	case req.GetCell() != "":
		home, err := s.cellNamed(req.GetCell())
		if err != nil {
			return nil, err
		}
		rows = view.AssignmentsIn(home.ID, cell.TenantID(after))
	}
	m := &fairleadv1.ShowPlacementResponse{}
	if m.Cells, err = s.cellMessages(ctx, r); err != nil {
		return nil, err
	}
	var lanes [][]*fairleadv1.Assignment
	lanes, m.NextPageToken = page(list, size, tenantsOf(rows), func(a state.Assignment) string { return string(a.Lane.Tenant) },
		func(a state.Assignment) []*fairleadv1.Assignment { return s.assignmentMessages(view, a) })
	for _, of := range lanes {
		m.Assignments = append(m.Assignments, of...)
	}
	for t := range view.Unplaced("") {
		if len(m.Unplaced) == unplacedShown {
			break
		}
		m.Unplaced = append(m.Unplaced, string(t.ID()))
	}
	return m, s.verify(ctx)
}

// tenantsOf returns one row for each tenant that has one, of rows in the order of tenants.
func tenantsOf(rows iter.Seq[state.Assignment]) iter.Seq[state.Assignment] {
	return func(yield func(state.Assignment) bool) {
		var last cell.TenantID
		for a := range rows {
			if a.Lane.Tenant == last {
				continue
			}
			if last = a.Lane.Tenant; !yield(a) {
				return
			}
		}
	}
}

// only returns the assignment of one tenant.
func only(v state.View, id cell.TenantID) iter.Seq[state.Assignment] {
	return func(yield func(state.Assignment) bool) {
		if a, ok := v.AssignmentOf(laneOf(id)); ok {
			yield(a)
		}
	}
}

// assignmentMessages returns both lanes of the assignment's tenant, wherever they are.
func (s *Server) assignmentMessages(v state.View, a state.Assignment) []*fairleadv1.Assignment {
	var out []*fairleadv1.Assignment
	demand := loadMessage(demandOf(v, a.Lane.Tenant))
	for _, class := range cell.Classes() {
		of, ok := v.AssignmentOf(cell.Lane{Tenant: a.Lane.Tenant, Class: class})
		if !ok {
			continue
		}
		out = append(out, &fairleadv1.Assignment{
			Tenant: string(of.Lane.Tenant), Class: fairleadv1.Class(class), Cell: string(of.Cell), Epoch: uint64(of.Epoch), Since: timeMessage(of.Since),
			Demand: demand, Hand: handMessage(of.Groups),
		})
	}
	return out
}

// demandOf returns what placement counts for a tenant in its largest hour.
func demandOf(v state.View, id cell.TenantID) placement.Load {
	t, ok := v.Tenant(id)
	if !ok {
		return placement.Load{}
	}
	var peak placement.Load
	profile, floor := v.Profile(id), placement.Load{Compute: max(t.Rules.ComputeMin, t.Policy.Reservation[0]+t.Policy.Reservation[1])}
	for hour := range placement.HoursPerDay {
		peak = peak.Max(profile.Demand(floor, hour))
	}
	return peak
}

// handMessage returns the numbers of the groups of a hand, from 1.
func handMessage(groups uint64) []int32 {
	var out []int32
	for ; groups != 0; groups &= groups - 1 {
		out = append(out, int32(bits.TrailingZeros64(groups))+1)
	}
	return out
}

// PlanPlacement implements PlacementService.
func (p placementService) PlanPlacement(
	ctx context.Context, req *fairleadv1.PlanPlacementRequest,
) (*fairleadv1.PlanPlacementResponse, error) {
	r, err := p.reigning()
	if err != nil {
		return nil, p.fail(ctx, err)
	}
	plan, index := p.plan(r, req.GetPlaceOnly())
	m := planMessage(plan, index, p.heldBy(ctx, r, plan))
	if err := p.verify(ctx); err != nil {
		return nil, p.fail(ctx, err)
	}
	return &fairleadv1.PlanPlacementResponse{Plan: m}, nil
}

// plan decides what would be placed and moved now, and returns the index of what it was decided on.
func (s *Server) plan(r *reign, placeOnly bool) (placement.Plan, uint64) {
	view := s.machine.View()
	if s.shared != nil { // there is one cell
		return placement.Plan{}, view.Index()
	}
	snapshot := s.freshSnapshot(r, view)
	plan := snapshot.PlaceAll()
	if !placeOnly {
		for _, d := range plan.Decisions {
			if d.Target != "" {
				snapshot.Assume(d)
			}
		}
		moves := snapshot.Rebalance()
		moves.Decisions = append(plan.Decisions, moves.Decisions...)
		moves.Held = append(plan.Held, moves.Held...)
		moves.Whales = snapshot.Whales()
		plan = moves
	}
	return plan, view.Index()
}

// ApplyPlacement implements PlacementService.
func (p placementService) ApplyPlacement(
	ctx context.Context, req *fairleadv1.ApplyPlacementRequest,
) (*fairleadv1.ApplyPlacementResponse, error) {
	m, err := p.apply(ctx, req)
	if err != nil {
		return nil, p.fail(ctx, err)
	}
	return m, nil
}

func (s *Server) apply(ctx context.Context, req *fairleadv1.ApplyPlacementRequest) (*fairleadv1.ApplyPlacementResponse, error) {
	r, err := s.reigning()
	if err != nil {
		return nil, err
	}
	if decided := s.machine.latest.Load().decided; req.GetIndex() != 0 && req.GetIndex() < decided {
		return nil, &stalePlanError{index: req.GetIndex(), decided: decided}
	}
	plan, index := s.plan(r, req.GetPlaceOnly())
	out := s.carryOut(ctx, r, plan)
	s.migrateAll(ctx, r, plan, out.migrate)
	return &fairleadv1.ApplyPlacementResponse{
		Plan: planMessage(plan, index, out.migrate), Applied: int32(len(out.applied)), NeedMigration: int32(len(out.migrate)),
	}, nil
}

// stalePlanError is returned when something that a plan depends on has changed since it was made.
type stalePlanError struct{ index, decided uint64 }

func (e *stalePlanError) Error() string {
	return fmt.Sprintf("the plan was made at index %d, and what it depends on has changed at %d: plan again and look", e.index, e.decided)
}

// CheckPlacement implements PlacementService.
func (p placementService) CheckPlacement(
	ctx context.Context, _ *fairleadv1.CheckPlacementRequest,
) (*fairleadv1.CheckPlacementResponse, error) {
	r, err := p.reigning()
	if err != nil {
		return nil, p.fail(ctx, err)
	}
	view := p.machine.View()
	m := &fairleadv1.CheckPlacementResponse{}
	for range view.Cells("") {
		m.CellsTried++
	}
	for _, f := range p.freshSnapshot(r, view).Check() {
		m.Findings = append(m.Findings, &fairleadv1.PlacementFinding{
			Kind: string(f.Kind), Lost: string(f.Lost), Cell: string(f.Cell), Tenant: string(f.Tenant), Text: f.Text,
		})
	}
	if err := p.verify(ctx); err != nil {
		return nil, p.fail(ctx, err)
	}
	return m, nil
}

// ExplainPlacement implements PlacementService.
func (p placementService) ExplainPlacement(
	ctx context.Context, req *fairleadv1.ExplainPlacementRequest,
) (*fairleadv1.ExplainPlacementResponse, error) {
	m, err := p.explain(ctx, req)
	if err != nil {
		return nil, p.fail(ctx, err)
	}
	return m, nil
}

func (s *Server) explain(ctx context.Context, req *fairleadv1.ExplainPlacementRequest) (*fairleadv1.ExplainPlacementResponse, error) {
	r, err := s.reigning()
	if err != nil {
		return nil, err
	}
	t, err := s.tenant("tenant", req.GetTenant())
	if err != nil {
		return nil, err
	}
	view := s.machine.View()
	m := &fairleadv1.ExplainPlacementResponse{}
	a, placed := view.AssignmentOf(laneOf(t.ID()))
	if placed {
		m.Assignment = s.assignmentMessages(view, a)[0]
	}
	text, at := view.Decision(t.ID())
	if placed && text != "" && !req.GetNow() {
		m.Text, m.Time = text, timeMessage(at)
		m.Decision = &fairleadv1.PlacementDecision{Tenant: string(t.ID()), Target: string(a.Cell), Reason: string(placement.ReasonPlace), Demand: m.Assignment.GetDemand()}
		return m, s.verify(ctx)
	}
	// A tenant that is there is decided on as if it were not yet, with a little in favour of where it is.
	d := s.freshSnapshot(r, view).Place(reconcile.TenantOf(view, t))
	m.Decision, m.Text, m.Time = decisionMessage(d, false), d.String(), timeMessage(s.instant())
	return m, s.verify(ctx)
}

// planMessage returns a plan as the API says it; migrate are those of its tenants that cannot move without a migration.
func planMessage(p placement.Plan, index uint64, migrate map[cell.TenantID]bool) *fairleadv1.PlacementPlan {
	m := &fairleadv1.PlacementPlan{Index: index, Held: p.Held, ImbalanceBefore: p.ImbalanceBefore, ImbalanceAfter: p.ImbalanceAfter}
	for _, d := range p.Decisions {
		m.Decisions = append(m.Decisions, decisionMessage(d, migrate[d.Tenant]))
	}
	for _, w := range p.Whales {
		m.Whales = append(m.Whales, &fairleadv1.Whale{
			Tenant: string(w.Tenant), Cell: string(w.Cell), Share: w.Share, Signal: string(w.Signal), Since: timeMessage(w.Since),
			Verdict: string(w.Verdict), Text: w.Text,
		})
	}
	return m
}

func decisionMessage(d placement.Decision, migrate bool) *fairleadv1.PlacementDecision {
	m := &fairleadv1.PlacementDecision{
		Tenant: string(d.Tenant), Source: string(d.Source), Target: string(d.Target), Reason: string(d.Reason), Demand: loadMessage(d.Demand),
		Bytes: d.Bytes, GainPerByte: d.GainPerByte, NeedsMigration: migrate,
	}
	for _, c := range d.Candidates {
		candidate := &fairleadv1.Candidate{Cell: string(c.Cell), Rejected: c.Rejected, Score: c.Score, Parts: make(map[string]float64)}
		for _, part := range c.Parts {
			candidate.Parts[part.Name] = part.Value
		}
		m.Candidates = append(m.Candidates, candidate)
	}
	return m
}
