package cellserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	"github.com/fairlead/fairlead/cell/leader"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// Bounds of what a mover asks for.
const (
	exportBytesDefault, exportBytesMax = 256 << 10, 1 << 20
	wipeDefault, wipeMax               = 1000, 5000
	shareMax                           = 1000 // thousandths
	// laneSteps bounds the records that are looked at while the cell's lock is held.
	laneSteps = 512
)

// Lanes serves LaneService: what a mover asks of the two cells of a move. What it refuses and what it repeats are both only so while this replica
// leads, which is made sure of.
type Lanes struct{ server *Server }

var _ fairleadv1connect.LaneServiceHandler = Lanes{}

// Lanes returns the handler of LaneService.
func (s *Server) Lanes() Lanes { return Lanes{s} }

// GetLanes says how a tenant's lanes stand here, and what a move has to know of the cell.
func (h Lanes) GetLanes(ctx context.Context, req *fairleadv1.GetLanesRequest) (*fairleadv1.GetLanesResponse, error) {
	s := h.server
	tenant := cell.TenantID(req.GetTenant())
	if err := cell.CheckID("tenant", req.GetTenant()); err != nil {
		return nil, s.fail(ctx, err)
	}
	if !s.Leading() {
		return nil, s.fail(ctx, ErrNotLeading)
	}
	resp := &fairleadv1.GetLanesResponse{OperationsNeeded: s.needs(ctx, tenant)}
	err := s.read(ctx, func() error {
		s.mu.Lock() // asking what a class may hold lets the scheduler look at what waits
		defer s.mu.Unlock()
		if s.lead == nil {
			return ErrNotLeading
		}
		resp.Index, resp.Time = s.state.Index(), timeTo(s.now())
		resp.Lanes = nil
		if t := s.state.Tenant(tenant); t != nil {
			resp.PolicyEpoch = uint64(t.Policy.Epoch)
			for _, c := range cell.Classes() {
				resp.Lanes = append(resp.Lanes, s.view(t.Lane(c)))
			}
		}
		for _, c := range cell.Classes() {
			use := s.lead.Use(c)
			resp.Slots, resp.SlotsUsed = resp.Slots+use.Nominal, resp.SlotsUsed+use.Used
		}
		resp.OperationsOffered = s.offered(tenant)
		return nil
	})
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	now := time.Now()
	p50, p99 := s.commits.quantiles(now)
	resp.CommitP50, resp.CommitP99 = durationTo(p50), durationTo(p99)
	_, p99 = s.answers.quantiles(now)
	resp.AnswerP99 = durationTo(p99)
	return resp, nil
}

// offered returns the operations that live workers offer to a tenant: the platform's, and its own. The caller holds mu, and this server leads.
func (s *Server) offered(tenant cell.TenantID) []string {
	seen := map[string]bool{}
	for _, w := range s.lead.Sessions() {
		if w.ID.Tenant != "" && w.ID.Tenant != tenant {
			continue
		}
		for _, op := range w.Operations {
			seen[string(op)] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// frontMax is how many of the jobs that would be granted first are told.
const frontMax = 16

// view returns how a lane stands. The caller holds mu, and this server leads.
func (s *Server) view(l *engine.Lane) *fairleadv1.LaneView {
	_, bytes := l.Live()
	ended, endedBytes := l.Finished()
	m := &fairleadv1.LaneView{
		Class: classTo(l.ID.Class), Mode: modeTo(l.Mode), Epoch: uint64(l.Epoch), Move: moveTo(l.Move), FenceIndex: l.Fence, Tracked: l.Tracked,
		Change: l.Change, Cursor: cursorTo(l.Cursor),
		JobsDelayed: l.Count(engine.Delayed), JobsReady: l.Count(engine.Ready), JobsLeased: l.Count(engine.Leased), JobsEnded: ended,
		Keys: l.Keys(), Bytes: bytes + endedBytes, Charged: int64(l.Charged), Submitted: l.Submitted, Granted: l.Granted,
		PredictedWait: durationTo(s.lead.Predict(l.ID)), Health: s.health[l.ID].view(max(s.now(), s.state.Time())),
	}
	if digested(l) {
		m.Digest = s.digestSum(l.ID)
	}
	if at, ok := s.lead.Oldest(l.ID); ok {
		m.OldestWait = durationpb.New(max(0, s.now().Sub(at)))
	}
	if l.Tracked || l.Mode == cell.ModeStaged {
		for _, id := range s.lead.Shadow(l.ID, frontMax) {
			m.Front = append(m.Front, id.String())
		}
	}
	return m
}

// moved is what every call about a lane names.
type moved struct {
	lane cell.Lane
	move cell.Move
}

// laneCall is what every request about a lane is.
type laneCall interface {
	GetMove() *fairleadv1.Move
	GetTenant() string
	GetClass() fairleadv1.Class
}

func movedOf(req laneCall) (moved, error) {
	m := moved{lane: cell.Lane{Tenant: cell.TenantID(req.GetTenant())}}
	if err := cell.CheckID("tenant", req.GetTenant()); err != nil {
		return m, err
	}
	var err error
	if m.lane.Class, err = laneClassOf(req.GetClass()); err != nil {
		return m, err
	}
	m.move, err = moveOf(req.GetMove())
	return m, err
}

// laneClassOf is classOf for calls that say which.
func laneClassOf(c fairleadv1.Class) (cell.Class, error) {
	if c == fairleadv1.Class_CLASS_UNSPECIFIED {
		return 0, &cell.FieldError{Field: "class", Problem: "is missing", Remedy: "use interactive or batch"}
	}
	return classOf("class", c)
}

func moveOf(m *fairleadv1.Move) (cell.Move, error) {
	if err := cell.CheckID("move.migration", m.GetMigration()); err != nil {
		return cell.Move{}, err
	}
	if m.GetAttempt() == 0 {
		return cell.Move{}, &cell.FieldError{Field: "move.attempt", Problem: "is 0", Remedy: "count attempts from 1 on"}
	}
	return cell.Move{Migration: cell.MigrationID(m.GetMigration()), Attempt: m.GetAttempt()}, nil
}

func moveTo(m cell.Move) *fairleadv1.Move {
	if m == (cell.Move{}) {
		return nil
	}
	return &fairleadv1.Move{Migration: string(m.Migration), Attempt: m.Attempt}
}

// modeOf relies on the API's modes being the cell's and one more, which a test checks.
func modeOf(m fairleadv1.LaneMode) (cell.Mode, error) {
	if mode := cell.Mode(m - 1); m > 0 && mode.Valid() && modeTo(mode) == m {
		return mode, nil
	}
	return 0, &cell.FieldError{Field: "mode", Problem: fmt.Sprintf("is %d, which is no mode", m), Remedy: "use a lane's modes"}
}

func modeTo(m cell.Mode) fairleadv1.LaneMode { return fairleadv1.LaneMode(m) + 1 }

func cursorOf(c *fairleadv1.LaneCursor) engine.Cursor {
	return engine.Cursor{Seeded: c.GetSeeded(), Change: c.GetChange()}
}

func cursorTo(c engine.Cursor) *fairleadv1.LaneCursor {
	return &fairleadv1.LaneCursor{Seeded: c.Seeded, Change: c.Change}
}

// within returns n, or what stands for 0, and a *cell.FieldError when it is out of its bounds.
func within(field string, n, otherwise, most int32) (int, error) {
	if n < 0 || n > most {
		return 0, &cell.FieldError{Field: field, Problem: fmt.Sprintf("is %d, outside 1 to %d", n, most), Remedy: "give one inside, or none"}
	}
	if n == 0 {
		n = otherwise
	}
	return int(n), nil
}

// put has the log do what a mover asks for, and returns an error when it was refused. A refusal and a repetition need no entry.
func (s *Server) put(ctx context.Context, c *leader.Call, result *engine.Result) error {
	reign := s.reigns.Load()
	if err := s.do(ctx, c); err != nil {
		return err
	}
	if result.Err != nil || result.Duplicate {
		if err := s.confirmRefusal(ctx, reign); err != nil {
			return err
		}
	}
	return result.Err
}

// StageLane makes an empty lane to be filled. What the organization is promised comes first; one that the cell has of a later epoch stays.
func (h Lanes) StageLane(ctx context.Context, req *fairleadv1.StageLaneRequest) (*fairleadv1.StageLaneResponse, error) {
	s := h.server
	x := &leader.Stage{}
	err := func() error {
		if err := cell.CheckID("tenant.tenant", req.GetTenant().GetTenant()); err != nil {
			return err
		}
		class, err := laneClassOf(req.GetClass())
		if err != nil {
			return err
		}
		move, err := moveOf(req.GetMove())
		if err != nil {
			return err
		}
		policy := tenantOf(req.GetTenant())
		x.Fact = engine.StageFact{Lane: cell.Lane{Tenant: policy.Tenant, Class: class}, Policy: policy, Move: move, Epoch: cell.Epoch(req.GetEpoch())}
		if o := req.GetOrganization(); o.GetOrganization() != "" {
			err := s.Configure(ctx, []cell.OrganizationPolicy{organizationOf(o)}, nil)
			if err != nil && !errors.Is(err, engine.ErrPolicyStale) {
				return err
			}
		}
		return s.put(ctx, &leader.Call{Stage: x}, &x.Result)
	}()
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	s.survey.want(x.Fact.Lane)
	return &fairleadv1.StageLaneResponse{Index: x.Result.Index}, nil
}

// TrackLane makes the cell number a lane's changes, or not any more.
func (h Lanes) TrackLane(ctx context.Context, req *fairleadv1.TrackLaneRequest) (*fairleadv1.TrackLaneResponse, error) {
	s := h.server
	m, err := movedOf(req)
	x := &leader.Track{Fact: engine.TrackFact{Lane: m.lane, Move: m.move, Off: req.GetOff()}}
	if err == nil {
		err = s.put(ctx, &leader.Call{Track: x}, &x.Result)
	}
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	s.survey.want(m.lane)
	return &fairleadv1.TrackLaneResponse{Index: x.Result.Index}, nil
}

// SetLaneMode logs a lane's next mode.
func (h Lanes) SetLaneMode(ctx context.Context, req *fairleadv1.SetLaneModeRequest) (*fairleadv1.SetLaneModeResponse, error) {
	s := h.server
	x := &leader.Mode{}
	resp := &fairleadv1.SetLaneModeResponse{}
	err := func() error {
		m, err := movedOf(req)
		if err != nil {
			return err
		}
		mode, err := modeOf(req.GetMode())
		if err != nil {
			return err
		}
		if share := req.GetShare(); share < 0 || share > shareMax {
			return &cell.FieldError{Field: "share", Problem: fmt.Sprintf("is %d, outside 0 to %d", share, shareMax), Remedy: "give thousandths"}
		}
		x.Fact = engine.ModeFact{Lane: m.lane, Mode: mode, Epoch: cell.Epoch(req.GetEpoch()), Move: m.move, Share: req.GetShare()}
		if err := s.put(ctx, &leader.Call{Mode: x}, &x.Result); err != nil {
			return err
		}
		resp.Index = x.Result.Index
		s.mu.Lock() // predicting lets the scheduler look at what waits
		defer s.mu.Unlock()
		if l := s.state.Lane(m.lane); l != nil && s.lead != nil {
			resp.Lane = s.view(l)
		}
		return nil
	}()
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	return resp, nil
}

// WipeLane removes a part of what a lane holds that is not the cell's.
func (h Lanes) WipeLane(ctx context.Context, req *fairleadv1.WipeLaneRequest) (*fairleadv1.WipeLaneResponse, error) {
	s := h.server
	x := &leader.Wipe{}
	err := func() error {
		m, err := movedOf(req)
		if err != nil {
			return err
		}
		most, err := within("records_max", req.GetRecordsMax(), wipeDefault, wipeMax)
		if err != nil {
			return err
		}
		x.Fact = engine.WipeFact{Lane: m.lane, Move: m.move, Max: most}
		return s.put(ctx, &leader.Call{Wipe: x}, &x.Result)
	}()
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	return &fairleadv1.WipeLaneResponse{Left: x.Result.Left}, nil
}

// ProveLane logs nothing but a token, and returns it.
func (h Lanes) ProveLane(ctx context.Context, req *fairleadv1.ProveLaneRequest) (*fairleadv1.ProveLaneResponse, error) {
	s := h.server
	err := cell.CheckID("tenant", req.GetTenant())
	var move cell.Move
	if err == nil {
		move, err = moveOf(req.GetMove())
	}
	x := &leader.Prove{Fact: engine.ProveFact{Tenant: cell.TenantID(req.GetTenant()), Move: move, Token: req.GetToken()}}
	if err == nil {
		err = s.put(ctx, &leader.Call{Prove: x}, &x.Result)
	}
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	return &fairleadv1.ProveLaneResponse{Token: req.GetToken(), Index: x.Result.Index}, nil
}
