package controlserver

import (
	"context"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/control/state"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/rejection"
)

// The bounds of what is streamed to gateways.
const (
	// WatchersMax bounds the streams of [registry.WatchRoutes] at one agent: each takes a goroutine and a message in flight. More are refused with
	// 503 WATCHERS_MAX, and ask another agent.
	WatchersMax = 1000
	// stepDelay gathers what is committed at about the same time.
	stepDelay = 20 * time.Millisecond
	// heartbeatInterval is between messages at most.
	heartbeatInterval = time.Second
	// contactMax is how long a follower may have heard nothing of the leader and still say that what it has is current.
	contactMax = 3 * time.Second
	// aheadMax is how long a follower may take to reach what the asker has already.
	aheadMax = 2 * time.Second

	reasonWatchersMax = "WATCHERS_MAX"
	reasonNoContact   = "NO_LEADER_CONTACT"
)

// routeBounds are the sizes of what is streamed.
type routeBounds struct {
	perMessage int // routes in one message of everything there is
	stepRows   int // routes in a delta; what is more is sent as everything there is
	// Deltas, and routes in them, that are kept for watchers that are slow. For one that is slower they are computed again, as one.
	steps, rows int
}

// defaultRouteBounds keeps a message below a megabyte or two, and what is kept below a hundred.
func defaultRouteBounds() routeBounds {
	return routeBounds{perMessage: 5000, stepRows: 10_000, steps: 1024, rows: 200_000}
}

// step is what changed between two generations, as one message for everybody.
type step struct {
	from, to uint64
	rows     int
	message  *fairleadv1.WatchRoutesResponse
}

// routes computes what changed since the last time, once for all watchers, and keeps some of it. A watcher pulls: one that is slow is behind in the
// chain of steps, and when its place is gone it is sent everything, so that nobody's queue grows.
type routes struct {
	machine *Machine
	bounds  routeBounds
	now     func() time.Time

	mu       sync.Mutex
	steps    []step // each begins where the one before ended
	rows     int
	watchers int
}

// next returns the step that leads on from index; nil when there is nothing after it. It returns false when what came between is not known any
// more, or is more than a step holds.
func (r *routes) next(index uint64) (*step, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.machine.latest.Load()
	if index >= now.view.Index() {
		return nil, index == now.view.Index()
	}
	if n := len(r.steps); n == 0 || r.steps[n-1].to < now.view.Index() {
		r.extendLocked(index, now)
	}
	// The step that the index lies in is as good: what it says is what is so at its end.
	if at := slices.IndexFunc(r.steps, func(s step) bool { return s.from <= index && index < s.to }); at >= 0 {
		return &r.steps[at], true
	}
	// From before the chain: somebody who comes back. It is computed for them alone.
	return r.step(index, now)
}

// step computes what changed after index.
func (r *routes) step(index uint64, now *published) (*step, bool) {
	names, ok := now.journal.since(index)
	if !ok {
		return nil, false
	}
	m := delta(now.view, names, cell.InstantOf(r.now()))
	s := &step{from: index, to: now.view.Index(), rows: rowsOf(m), message: m}
	return s, s.rows <= r.bounds.stepRows
}

// extendLocked adds the step up to now. The chain begins at index when there is none.
func (r *routes) extendLocked(index uint64, now *published) {
	from := index
	if n := len(r.steps); n > 0 {
		from = r.steps[n-1].to
	}
	s, ok := r.step(from, now)
	if !ok {
		r.steps, r.rows = nil, 0
		return
	}
	// A new slice when the first goes: what next returned still points into the old one.
	r.steps, r.rows = append(r.steps, *s), r.rows+s.rows
	first := 0
	for len(r.steps)-first > r.bounds.steps || r.rows > r.bounds.rows {
		r.rows -= r.steps[first].rows
		first++
	}
	if first > 0 {
		r.steps = slices.Clone(r.steps[first:])
	}
}

func (r *routes) enter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.watchers >= WatchersMax {
		return false
	}
	r.watchers++
	return true
}

func (r *routes) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watchers--
}

func rowsOf(m *fairleadv1.WatchRoutesResponse) int {
	return len(m.GetKeys()) + len(m.GetKeysRemoved()) + len(m.GetLanes()) + len(m.GetTenantsRemoved()) + len(m.GetCells()) +
		len(m.GetCellsRemoved()) + len(m.GetControl())
}

// delta says how what the names stand for is now.
func delta(v state.View, names []touched, now cell.Instant) *fairleadv1.WatchRoutesResponse {
	m := &fairleadv1.WatchRoutesResponse{Index: v.Index()}
	type name struct {
		kind touchKind
		id   string
	}
	seen := make(map[name]bool, len(names))
	for _, t := range names {
		if n := (name{t.kind, t.id}); seen[n] {
			continue
		} else {
			seen[n] = true
		}
		switch t.kind {
		case touchKey:
			if k, ok := v.Key(command.KeyID(t.id)); ok && k.LiveAt(now) {
				m.Keys = append(m.Keys, keyRoute(k))
			} else {
				m.KeysRemoved = append(m.KeysRemoved, t.id)
			}
		case touchTenant:
			if a, ok := v.AssignmentOf(laneOf(cell.TenantID(t.id))); ok {
				m.Lanes = append(m.Lanes, laneRoute(v, a))
			} else {
				m.TenantsRemoved = append(m.TenantsRemoved, t.id)
			}
		case touchCell:
			if c, ok := v.Cell(cell.ID(t.id)); ok {
				m.Cells = append(m.Cells, cellRoute(v, c))
			} else {
				m.CellsRemoved = append(m.CellsRemoved, t.id)
			}
		case touchControl:
			m.Control, m.FeatureLevel = controlAgents(v), featureLevel(v)
		}
	}
	return m
}

// everything calls send with messages that hold all there is, of most routes each but for cells. What is sent is one generation, however long it takes.
func everything(v state.View, now cell.Instant, most int, send func(*fairleadv1.WatchRoutesResponse) error) error {
	m := &fairleadv1.WatchRoutesResponse{Index: v.Index(), Reset_: true, Control: controlAgents(v), FeatureLevel: featureLevel(v)}
	for c := range v.Cells("") {
		m.Cells = append(m.Cells, cellRoute(v, c))
	}
	full := func() error {
		if rowsOf(m) < most {
			return nil
		}
		err := send(m)
		m = &fairleadv1.WatchRoutesResponse{Index: v.Index()}
		return err
	}
	for k := range v.Keys("") {
		if !k.LiveAt(now) {
			continue
		}
		m.Keys = append(m.Keys, keyRoute(k))
		if err := full(); err != nil {
			return err
		}
	}
	for c := range v.Cells("") {
		for a := range v.AssignmentsIn(c.ID, "") {
			if a.Lane.Class != cell.ClassInteractive { // the batch lane goes with it, wherever it is
				continue
			}
			m.Lanes = append(m.Lanes, laneRoute(v, a))
			if err := full(); err != nil {
				return err
			}
		}
	}
	m.Complete = true
	return send(m)
}

func featureLevel(v state.View) int32 {
	c, ok := v.Cluster()
	if !ok {
		return command.FeatureLevelFirst
	}
	return int32(c.FeatureLevel)
}

func keyRoute(k state.Key) *fairleadv1.KeyRoute {
	m := &fairleadv1.KeyRoute{Id: string(k.ID), Hash: k.Hash[:], Tenant: string(k.Tenant), ExpireTime: timeMessage(k.Expires)}
	for _, p := range k.Permissions {
		m.Permissions = append(m.Permissions, uint32(p))
	}
	for _, op := range k.Operations {
		m.Operations = append(m.Operations, string(op))
	}
	return m
}

// laneRoute returns where both of a tenant's lanes are, of which a is the interactive one.
func laneRoute(v state.View, a state.Assignment) *fairleadv1.LaneRoute {
	m := &fairleadv1.LaneRoute{Tenant: string(a.Lane.Tenant), Cell: string(a.Cell), Epoch: uint64(a.Epoch)}
	if b, ok := v.AssignmentOf(cell.Lane{Tenant: a.Lane.Tenant, Class: cell.ClassBatch}); ok && (b.Cell != a.Cell || b.Epoch != a.Epoch) {
		m.BatchCell, m.BatchEpoch = string(b.Cell), uint64(b.Epoch)
	}
	return m
}

func cellRoute(v state.View, c state.Cell) *fairleadv1.CellRoute {
	m := &fairleadv1.CellRoute{Name: string(c.ID), Phase: phaseMessage(c.Phase)}
	for a := range v.AgentsOf(c.ID) {
		m.Replicas = append(m.Replicas, agentMessage(a))
	}
	return m
}

// controlAgents returns the agents with control's log, in the order of their names.
func controlAgents(v state.View) []*fairleadv1.Agent {
	var out []*fairleadv1.Agent
	for a := range v.Agents("") {
		if a.Role == command.RoleControl {
			out = append(out, agentMessage(a))
		}
	}
	return out
}

// WatchRoutes implements RegistryService: everything first, unless what the asker has can be continued, then what changes, and a heartbeat each
// second. Every control agent serves it from what it has applied, and ends the stream when it cannot know that this is current.
func (r registry) WatchRoutes(
	ctx context.Context, req *fairleadv1.WatchRoutesRequest, stream *connect.ServerStream[fairleadv1.WatchRoutesResponse],
) error {
	if _, err := r.peer(ctx); err != nil {
		return r.fail(ctx, err)
	}
	if !r.routes.enter() {
		return rejection.New(connect.CodeUnavailable, &fairleadv1.Rejection{
			Reason: reasonWatchersMax, Limit: "watchers_max", Scope: "agent", Value: WatchersMax + 1, Bound: WatchersMax,
			RetryAfter: durationpb.New(retryAfter), Message: "this control agent streams to as many watchers as it may: ask another",
		})
	}
	defer r.routes.leave()
	w := watch{routes: r.routes, current: r.fresh.current, leads: r.fresh.leads, index: req.GetIndex(), send: stream.Send}
	return w.run(ctx)
}

// watch is one stream.
type watch struct {
	routes *routes
	// current returns why what this agent has applied cannot be known to be current; leads whether it is what there is.
	current func(context.Context) error
	leads   func() bool
	index   uint64 // what the asker has everything up to
	fresh   bool   // the asker has nothing
	send    func(*fairleadv1.WatchRoutesResponse) error
}

func (w *watch) run(ctx context.Context) error {
	heartbeat := time.NewTicker(heartbeatInterval)
	defer heartbeat.Stop()
	w.fresh = w.index == 0
	if err := w.reach(ctx); err != nil {
		return err
	}
	for {
		changed := w.routes.machine.changed()
		if err := w.catchUp(ctx); err != nil {
			return err
		}
		select {
		case <-changed:
			if err := w.gather(ctx); err != nil {
				return err
			}
		case <-heartbeat.C:
			if err := w.current(ctx); err != nil {
				return err
			}
			if err := w.send(&fairleadv1.WatchRoutesResponse{Index: w.index}); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// gather waits for what is committed at about the same time, but for no more once a lane has another home or epoch: somebody waits for that at a gateway.
func (w *watch) gather(ctx context.Context) error {
	enough := time.NewTimer(stepDelay)
	defer enough.Stop()
	for {
		changed := w.routes.machine.changed()
		if w.routes.machine.latest.Load().urgent > w.index {
			return nil
		}
		select {
		case <-changed:
		case <-enough.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// reach waits until this agent has applied what the asker has. No asker is taken back, but by the leader: what it has is then of a log that there
// is no more.
func (w *watch) reach(ctx context.Context) error {
	late := time.NewTimer(aheadMax)
	defer late.Stop()
	for {
		changed := w.routes.machine.changed()
		if err := w.current(ctx); err != nil {
			return err
		}
		if w.routes.machine.View().Index() >= w.index {
			return nil
		}
		if w.leads() {
			w.fresh = true
			return nil
		}
		select {
		case <-changed:
		case <-late.C:
			return errNoContact("this control agent is behind what the asker has")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// catchUp sends what there is after the index.
func (w *watch) catchUp(ctx context.Context) error {
	for ctx.Err() == nil {
		s, ok := w.routes.next(w.index)
		if w.fresh || !ok {
			view := w.routes.machine.View()
			if err := everything(view, cell.InstantOf(w.routes.now()), w.routes.bounds.perMessage, w.send); err != nil {
				return err
			}
			w.fresh, w.index = false, view.Index()
			continue
		}
		if s == nil {
			return nil
		}
		if err := w.send(s.message); err != nil {
			return err
		}
		w.index = s.to
	}
	return context.Cause(ctx)
}

// errNoContact sends a watcher elsewhere.
func errNoContact(why string) error {
	return rejection.New(connect.CodeUnavailable, &fairleadv1.Rejection{
		Reason: reasonNoContact, RetryAfter: durationpb.New(retryAfter), Message: why + ": ask another control agent",
	})
}

// pause waits for d. It returns ctx's cause when ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
