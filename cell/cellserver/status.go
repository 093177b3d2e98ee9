package cellserver

import (
	"cmp"
	"context"
	"slices"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/admit"
	"github.com/fairlead/fairlead/cell/engine"
	"github.com/fairlead/fairlead/cell/leader"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// Status serves StatusService to operators.
type Status struct{ server *Server }

var _ fairleadv1connect.StatusServiceHandler = Status{}

// Status returns the handler of StatusService.
func (s *Server) Status() Status { return Status{server: s} }

// lanesDefault is how many lanes a status lists that does not say.
const lanesDefault = 20

// GetStatus returns what the cell is doing.
func (h Status) GetStatus(ctx context.Context, req *fairleadv1.GetStatusRequest) (*fairleadv1.GetStatusResponse, error) {
	s := h.server
	lanes := int(req.GetLanesMax())
	if lanes == 0 {
		lanes = lanesDefault
	}
	if lanes < 0 || lanes > admit.PageMax {
		return nil, s.fail(ctx, &cell.FieldError{Field: "lanes_max", Problem: "is outside 0 to 500", Remedy: "give one inside"})
	}
	s.mu.Lock() // asking what a class may hold lets the scheduler look at what waits
	defer s.mu.Unlock()
	if s.lead == nil {
		return nil, s.fail(ctx, ErrNotLeading)
	}
	_, bytes := s.state.Live()
	accepted, ended := s.state.Totals()
	resp := &fairleadv1.GetStatusResponse{
		Cell: s.cfg.Cell, Version: s.cfg.Version, StartTime: timestamppb.New(s.start), Policy: s.lead.Policy().String(),
		Jobs: s.counts(), BacklogBytes: bytes, Lanes: s.lanes(lanes), CountersSince: timestamppb.New(s.start),
		AcceptedTotal: int64(accepted - s.accepted - (s.state.Passed() - s.passed)), FinishedTotal: int64(ended - s.ended), // below 2^63
		RejectedTotal: int64(s.rejected + s.lead.Rejected()), // below 2^63
		CostUnit:      s.lead.CostUnit(),
	}
	for i, c := range cell.Classes() {
		use, other := s.lead.Use(c), s.lead.Use(cell.Classes()[1-i])
		resp.Classes = append(resp.Classes, &fairleadv1.ClassStatus{
			Class: classTo(c), Nominal: use.Nominal, Lendable: use.Lendable, Used: use.Used, Ready: s.readyIn(c), Limit: use.Limit, Lent: use.Lent,
			HeldBack: other.HeldBack, HeldBackUntil: timeTo(other.Until), // what the other could have if this one did not hold it back
		})
	}
	for _, w := range s.lead.Sessions() {
		resp.Workers = append(resp.Workers, workerTo(&w))
	}
	index, snapshot, logged := s.log.Position()
	resp.Log = &fairleadv1.LogStatus{Index: index, SnapshotIndex: snapshot, BytesSinceSnapshot: logged}
	return resp, nil
}

// LoadPercent returns how much of the cell's slots is in use, in percent; 0 while this server does not lead, or no worker is there.
func (s *Server) LoadPercent() int {
	s.mu.Lock() // asking what a class may hold lets the scheduler look at what waits
	defer s.mu.Unlock()
	if s.lead == nil {
		return 0
	}
	var used, slots int64
	for _, c := range cell.Classes() {
		use := s.lead.Use(c)
		used, slots = used+use.Used, slots+use.Nominal
	}
	if slots == 0 {
		return 0
	}
	const percent = 100
	return int(used * percent / slots)
}

// counts leaves out what is kept of lanes that are elsewhere, where it is counted. The caller holds mu.
func (s *Server) counts() *fairleadv1.JobCounts {
	var away []*engine.Lane
	for i := range s.state.TenantCount() {
		for _, c := range cell.Classes() {
			if l := s.state.TenantAt(i).Lane(c); elsewhere(l) {
				away = append(away, l)
			}
		}
	}
	n := func(st engine.JobState) int64 {
		n := s.state.Count(st)
		for _, l := range away {
			n -= l.Count(st)
		}
		return n
	}
	return &fairleadv1.JobCounts{
		Delayed: n(engine.Delayed), Ready: n(engine.Ready), Leased: n(engine.Leased), Succeeded: n(engine.Succeeded),
		Failed: n(engine.Failed), Cancelled: n(engine.Cancelled), Expired: n(engine.Expired), Quarantined: n(engine.Quarantined),
	}
}

func (s *Server) readyIn(c cell.Class) int64 {
	var n int64
	for _, l := range s.state.Lanes() {
		if l.ID.Class == c && !elsewhere(l) {
			n += l.Count(engine.Ready)
		}
	}
	return n
}

// lanes returns the lanes with live jobs whose first waiting job is the oldest.
func (s *Server) lanes(most int) []*fairleadv1.LaneStatus {
	now := s.now()
	var all []*fairleadv1.LaneStatus
	for _, l := range s.state.Lanes() {
		live, bytes := l.Live()
		if live == 0 || elsewhere(l) {
			continue
		}
		m := &fairleadv1.LaneStatus{
			Tenant: string(l.ID.Tenant), Class: classTo(l.ID.Class), Ready: l.Count(engine.Ready), Delayed: l.Count(engine.Delayed),
			Leased: l.Count(engine.Leased), BacklogBytes: bytes, ChargedCost: int64(l.Charged),
		}
		if at, ok := s.lead.Oldest(l.ID); ok {
			m.OldestWait = durationpb.New(max(0, now.Sub(at)))
		}
		all = append(all, m)
	}
	slices.SortStableFunc(all, func(a, b *fairleadv1.LaneStatus) int {
		return cmp.Compare(b.GetOldestWait().AsDuration(), a.GetOldestWait().AsDuration())
	})
	return all[:min(len(all), most)]
}

func workerTo(w *leader.SessionInfo) *fairleadv1.WorkerStatus {
	m := &fairleadv1.WorkerStatus{
		Session: w.ID.Name, Worker: w.Worker, Slots: w.Slots, Prefetch: w.Prefetch, Held: w.Held, LastSeen: timeTo(w.Seen),
	}
	for _, op := range w.Operations {
		m.Operations = append(m.Operations, string(op))
	}
	return m
}

// Configure tells the cell what control promises organizations and tenants, organizations first, and opens the lanes of tenants that are new. It
// returns once that is durable. It returns a *cell.FieldError when one would not fit in what the cell holds beside it, and then has taken every one
// that does.
func (s *Server) Configure(ctx context.Context, organizations []cell.OrganizationPolicy, tenants []cell.TenantPolicy) error {
	if len(organizations)+len(tenants) == 0 {
		return nil
	}
	p := &leader.Policy{Organizations: organizations, Policies: tenants}
	if err := s.do(ctx, &leader.Call{Policy: p}); err != nil {
		return err
	}
	for _, r := range p.Results {
		if r.Err != nil {
			return r.Err
		}
	}
	return nil
}
