package controlserver

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/control/reconcile"
	"github.com/fairlead/fairlead/control/state"
	"github.com/fairlead/fairlead/placement"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// cellService is the server as CellService: the cells and who they take.
type cellService struct{ *Server }

// CellService returns what answers CellService.
func (s *Server) CellService() fairleadv1connect.CellServiceHandler { return cellService{s} }

// CreateCell implements CellService. The cell is forming until enough of its agents have registered.
func (c cellService) CreateCell(ctx context.Context, req *fairleadv1.CreateCellRequest) (*fairleadv1.CreateCellResponse, error) {
	m, err := c.changed(ctx, func(ctx context.Context) (command.Command, error) {
		if c.shared != nil {
			return nil, errOneCell
		}
		create := command.CreateCell{
			Cell: cell.ID(req.GetName()), Kind: kindOf(req.GetKind()), Replicas: cmp.Or(int(req.GetReplicas()), 1), Labels: labelsOf(req.GetLabels()),
			Groups: int(req.GetWorkerGroups()), Hand: int(req.GetHand()), Time: c.instant(),
		}
		var err error
		create.Capacity, err = loadOf("capacity", req.GetCapacity())
		return create, err
	})
	if err != nil {
		return nil, c.fail(ctx, err)
	}
	return &fairleadv1.CreateCellResponse{Cell: m}, nil
}

// UpdateCell implements CellService.
func (c cellService) UpdateCell(ctx context.Context, req *fairleadv1.UpdateCellRequest) (*fairleadv1.UpdateCellResponse, error) {
	m, err := c.changed(ctx, func(context.Context) (command.Command, error) {
		update := command.UpdateCell{Cell: cell.ID(req.GetName()), Time: c.instant()}
		if req.GetSetLabels() {
			update.Labels = new(labelsOf(req.GetLabels()))
		}
		if req.Capacity != nil {
			capacity, err := loadOf("capacity", req.GetCapacity())
			if err != nil {
				return nil, err
			}
			update.Capacity = &capacity
		}
		if req.WorkerGroups != nil {
			update.Groups = new(int(req.GetWorkerGroups()))
		}
		if req.Hand != nil {
			update.Hand = new(int(req.GetHand()))
		}
		return update, nil
	})
	if err != nil {
		return nil, c.fail(ctx, err)
	}
	return &fairleadv1.UpdateCellResponse{Cell: m}, nil
}

// GetCell implements CellService.
func (c cellService) GetCell(ctx context.Context, req *fairleadv1.GetCellRequest) (*fairleadv1.GetCellResponse, error) {
	r, err := c.reigning()
	if err != nil {
		return nil, c.fail(ctx, err)
	}
	home, err := c.cellNamed(req.GetName())
	if err != nil {
		return nil, c.fail(ctx, err)
	}
	loads, err := c.loads(ctx, r)
	if err != nil {
		return nil, c.fail(ctx, err)
	}
	if err := c.verify(ctx); err != nil {
		return nil, c.fail(ctx, err)
	}
	return &fairleadv1.GetCellResponse{Cell: c.cellMessage(r, home, loads)}, nil
}

// ListCells implements CellService.
func (c cellService) ListCells(ctx context.Context, _ *fairleadv1.ListCellsRequest) (*fairleadv1.ListCellsResponse, error) {
	r, err := c.reigning()
	if err != nil {
		return nil, c.fail(ctx, err)
	}
	cells, err := c.cellMessages(ctx, r)
	if err == nil {
		err = c.verify(ctx)
	}
	if err != nil {
		return nil, c.fail(ctx, err)
	}
	return &fairleadv1.ListCellsResponse{Cells: cells}, nil
}

// cellMessages returns every cell in the order of their names.
func (s *Server) cellMessages(ctx context.Context, r *reign) ([]*fairleadv1.Cell, error) {
	loads, err := s.loads(ctx, r)
	if err != nil {
		return nil, err
	}
	var cells []*fairleadv1.Cell
	for home := range s.machine.View().Cells("") {
		cells = append(cells, s.cellMessage(r, home, loads))
	}
	return cells, nil
}

// CordonCell implements CellService. A cell that drains is cordoned.
func (c cellService) CordonCell(ctx context.Context, req *fairleadv1.CordonCellRequest) (*fairleadv1.CordonCellResponse, error) {
	m, err := c.setPhase(ctx, req.GetName(), func(now placement.Phase) placement.Phase {
		switch {
		case req.GetUndo():
			return placement.PhaseOpen
		case now == placement.PhaseDraining:
			return now
		default:
			return placement.PhaseCordoned
		}
	})
	if err != nil {
		return nil, c.fail(ctx, err)
	}
	return &fairleadv1.CordonCellResponse{Cell: m}, nil
}

// DrainCell implements CellService. Once it has answered, the cell takes no new jobs, or takes them again.
func (c cellService) DrainCell(ctx context.Context, req *fairleadv1.DrainCellRequest) (*fairleadv1.DrainCellResponse, error) {
	m, err := c.setPhase(ctx, req.GetName(), func(now placement.Phase) placement.Phase {
		switch {
		case !req.GetUndo():
			return placement.PhaseDraining
		case now == placement.PhaseDraining:
			return placement.PhaseCordoned
		default: // it does not drain
			return now
		}
	})
	if err != nil {
		return nil, c.fail(ctx, err)
	}
	return &fairleadv1.DrainCellResponse{Cell: m}, nil
}

// setPhase changes a cell's phase to what is wanted from the present one, and sees to it that the cell knows.
func (s *Server) setPhase(ctx context.Context, name string, wanted func(placement.Phase) placement.Phase) (*fairleadv1.Cell, error) {
	home, err := s.cellNamed(name)
	if err != nil {
		return nil, err
	}
	phase := wanted(home.Phase)
	if phase == placement.PhaseDraining && s.shared != nil {
		return nil, errNoDrain
	}
	m, err := s.changed(ctx, func(context.Context) (command.Command, error) {
		return command.SetCellPhase{Cell: home.ID, Phase: phase, Time: s.instant()}, nil
	})
	if err != nil || phase != placement.PhaseDraining && home.Phase != placement.PhaseDraining {
		return m, err
	}
	r, err := s.reigning()
	if err != nil {
		return nil, err
	}
	return m, r.link(home.ID).configure(ctx, changed{})
}

// EvacuateCell implements CellService. Tenants that the cell holds nothing of are moved at once; the plan says which need a migration. The first of those
// begin, and the loop begins the others until the cell is empty or is opened again.
func (c cellService) EvacuateCell(ctx context.Context, req *fairleadv1.EvacuateCellRequest) (*fairleadv1.EvacuateCellResponse, error) {
	m, err := c.evacuate(ctx, req.GetName(), req.GetDryRun())
	if err != nil {
		return nil, c.fail(ctx, err)
	}
	return m, nil
}

func (s *Server) evacuate(ctx context.Context, name string, dry bool) (*fairleadv1.EvacuateCellResponse, error) {
	r, err := s.reigning()
	if err != nil {
		return nil, err
	}
	home, err := s.cellNamed(name)
	if err != nil {
		return nil, err
	}
	if !dry && !home.Evacuating {
		c := command.SetCellPhase{Cell: home.ID, Phase: home.Phase, Evacuate: true, Time: s.instant()}
		if c.Phase == placement.PhaseOpen {
			c.Phase = placement.PhaseCordoned
		}
		if _, err := s.propose(ctx, c); err != nil {
			return nil, err
		}
	}
	view := s.machine.View()
	plan, err := s.freshSnapshot(r, view).Evacuate(home.ID)
	if err != nil {
		return nil, err
	}
	m := &fairleadv1.EvacuateCellResponse{}
	if dry {
		m.Plan = planMessage(plan, view.Index(), s.heldBy(ctx, r, plan))
	} else {
		m.Plan = planMessage(plan, view.Index(), s.carryOut(ctx, r, plan).migrate)
		actor := s.actor(ctx)
		for _, c := range reconcile.Evacuations(s.machine.View(), r.observed(), s.instant(), *s.cfg.Reconcile, home.ID) {
			c.Actor = actor
			s.beginOrSay(ctx, r, actor, c)
		}
	}
	loads, err := s.loads(ctx, r)
	if err != nil {
		return nil, err
	}
	if home, err = s.cellNamed(name); err != nil {
		return nil, err
	}
	m.Cell = s.cellMessage(r, home, loads)
	return m, s.verify(ctx)
}

// DeleteCell implements CellService.
func (c cellService) DeleteCell(ctx context.Context, req *fairleadv1.DeleteCellRequest) (*fairleadv1.DeleteCellResponse, error) {
	err := errOneCell
	if c.shared == nil {
		_, err = c.propose(ctx, command.DeleteCell{Cell: cell.ID(req.GetName()), Time: c.instant()})
	}
	if err != nil {
		return nil, c.fail(ctx, err)
	}
	return &fairleadv1.DeleteCellResponse{}, nil
}

// changed commits what of returns, has the loop look, and returns the cell as it is then.
func (s *Server) changed(ctx context.Context, of func(context.Context) (command.Command, error)) (*fairleadv1.Cell, error) {
	r, err := s.reigning()
	if err != nil {
		return nil, err
	}
	c, err := of(ctx)
	if err != nil {
		return nil, err
	}
	res, err := s.propose(ctx, c)
	if err != nil {
		return nil, err
	}
	s.cfg.Log.InfoContext(ctx, "cell changed", "command", c.Type().String(), "cell", string(res.Cell.ID), "phase", res.Cell.Phase.String())
	r.look()
	loads, err := s.loads(ctx, r)
	if err != nil {
		return nil, err
	}
	return s.cellMessage(r, res.Cell, loads), nil
}

// cellNamed returns the cell that a request names.
func (s *Server) cellNamed(name string) (state.Cell, error) {
	id, err := cell.ParseCellID("name", name)
	if err != nil {
		return state.Cell{}, err
	}
	c, ok := s.machine.View().Cell(id)
	if !ok {
		return c, &state.NotFoundError{Kind: state.KindCell, ID: name}
	}
	return c, nil
}

// loads returns what each cell carries by what was measured.
func (s *Server) loads(ctx context.Context, r *reign) (map[cell.ID]placement.CellLoad, error) {
	if err := r.turn(ctx); err != nil {
		return nil, err
	}
	defer r.release()
	out := make(map[cell.ID]placement.CellLoad)
	for _, l := range s.snapshotOf(r).Loads() {
		out[l.Cell] = l
	}
	return out, nil
}

func (s *Server) cellMessage(r *reign, c state.Cell, loads map[cell.ID]placement.CellLoad) *fairleadv1.Cell {
	m := &fairleadv1.Cell{
		Name: string(c.ID), Kind: kindMessage(c.Kind), Phase: phaseMessage(c.Phase), Replicas: int32(c.Replicas), Labels: labelsMessage(c.Labels),
		Capacity: loadMessage(c.Capacity), Tenants: int64(c.Tenants), Load: loadMessage(loads[c.ID].Hours.Peak()), CreateTime: timeMessage(c.Created),
		WorkerGroups: int32(c.Groups), Hand: int32(c.Hand), Generation: c.Generation,
	}
	for _, v := range c.Voters {
		m.Voters = append(m.Voters, string(v.Name))
	}
	if leader, ok := r.leaderOf(c.ID); ok {
		m.Leader = string(leader.name)
	}
	if at, ok := r.cellSeen(c.ID); ok {
		m.LastSeen = timeMessage(at)
	}
	return m
}

// phaseMessage returns p as the API says it: the numbers are the same.
func phaseMessage(p placement.Phase) fairleadv1.CellPhase { return fairleadv1.CellPhase(p) }

// kindMessage returns k as the API says it: the numbers are the same.
func kindMessage(k placement.Kind) fairleadv1.CellKind { return fairleadv1.CellKind(k) }

// kindOf returns pooled for what is unset, and a kind that the command's check refuses for one that is none.
func kindOf(m fairleadv1.CellKind) placement.Kind {
	if m == fairleadv1.CellKind_CELL_KIND_UNSPECIFIED {
		return placement.KindPooled
	}
	for _, k := range placement.Kinds() {
		if kindMessage(k) == m {
			return k
		}
	}
	return 0
}

// labelsOf returns labels in the order of their keys.
func labelsOf(m map[string]string) []placement.Label {
	var out []placement.Label
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, placement.Label{Key: k, Value: m[k]})
	}
	return out
}

func labelsMessage(labels []placement.Label) map[string]string {
	m := make(map[string]string, len(labels))
	for _, l := range labels {
		m[l.Key] = l.Value
	}
	return m
}

func loadMessage(l placement.Load) *fairleadv1.Load {
	return &fairleadv1.Load{Compute: l.Compute.Float(), Jobs: float64(l.Jobs), Bytes: float64(l.Bytes)}
}

// loadOf returns what m says, nothing for nil.
func loadOf(field string, m *fairleadv1.Load) (placement.Load, error) {
	if m == nil {
		return placement.Load{}, nil
	}
	compute, err := cell.ParseRate(field+".compute", m.GetCompute())
	if err != nil {
		return placement.Load{}, err
	}
	l := placement.Load{Compute: compute}
	if l.Jobs, err = wholeOf(field+".jobs", m.GetJobs()); err != nil {
		return l, err
	}
	l.Bytes, err = wholeOf(field+".bytes", m.GetBytes())
	return l, err
}

func wholeOf(field string, f float64) (int64, error) {
	if !(f >= 0 && f <= placement.AmountMax) || f != math.Trunc(f) {
		return 0, &cell.FieldError{
			Field: field, Problem: fmt.Sprintf("is %v, not a whole number of 0 to %d", f, int64(placement.AmountMax)), Remedy: "give what was tested, or 0",
		}
	}
	return int64(f), nil
}
