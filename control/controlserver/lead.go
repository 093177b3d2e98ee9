package controlserver

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/control/consensus"
	"github.com/fairlead/fairlead/control/reconcile"
	"github.com/fairlead/fairlead/control/state"
	"github.com/fairlead/fairlead/placement"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// reconcileInterval is how often the leader looks for what is to be done, when nothing tells it to look before.
const reconcileInterval = time.Second

// gatherDelay is between a change and the look at it.
const gatherDelay = 100 * time.Millisecond

// settleAfter is when in a reign everything is told once more: by then no call of the one before is under way any more, whose older policies may have
// arrived after this one's newer.
const settleAfter = 2 * callTimeout

// actorControl is who the audit says decided what the leader decides by itself.
const actorControl = "control"

// reign is what one replica knows while it leads, in one term: what it has heard, which is nobody's truth, and the links to the cells. It ends with
// the term, so that nothing of a former term is taken for current.
type reign struct {
	term    uint64
	began   cell.Instant
	machine *Machine
	open    func(id cell.ID) *link // makes the link of a cell
	wake    chan struct{}          // holds a token when there may be something to do
	placing chan struct{}          // holds a token while nobody places

	// Of whoever has the turn to place.
	snapshot   *placement.Snapshot
	snapshotOf uint64 // what it was made of, as the machine counts it
	snapshotAt cell.Instant
	tried      map[cell.TenantID]reconcile.Tried

	mu    sync.Mutex
	seen  map[command.AgentName]reconcile.Seen
	links map[cell.ID]*link
	moves []placement.Move // of late
}

func (s *Server) newReign(term uint64) *reign {
	r := &reign{
		term: term, began: s.instant(), machine: s.machine, wake: make(chan struct{}, 1), placing: make(chan struct{}, 1),
		tried: make(map[cell.TenantID]reconcile.Tried), seen: make(map[command.AgentName]reconcile.Seen), links: make(map[cell.ID]*link),
	}
	r.placing <- struct{}{}
	r.open = func(id cell.ID) *link { return newLink(id, s.tenancyOf(r, id), s.machine, s.cfg.Log) }
	return r
}

// tenancyOf returns the way to a cell.
func (s *Server) tenancyOf(r *reign, id cell.ID) tenancy {
	if s.shared != nil {
		return sharedCell{s.shared}
	}
	return remoteCell{id: id, dialer: s.cfg.Dialer, agents: func() []state.Agent { return r.agentsOf(id) }}
}

// reigning returns the present reign. It returns errNotLeading when this replica does not lead.
func (s *Server) reigning() (*reign, error) {
	if r := s.reign.Load(); r != nil {
		return r, nil
	}
	return nil, errNotLeading
}

// Run leads whenever this replica's log does: it configures every cell anew, places whom no cell has yet, opens the logs of cells whose agents are
// there, and measures. It returns ctx's cause when ctx ends, and the log's failure when it fails.
func (s *Server) Run(ctx context.Context) error {
	if s.cfg.Group == nil {
		s.lead(ctx, s.reign.Load(), nil)
		return context.Cause(ctx)
	}
	for {
		term, lost, err := s.cfg.Group.Lead(ctx)
		if err != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		r := s.newReign(term)
		s.proposing.RLock() // a restore that has begun comes to its end first: its epochs are not raised before
		s.reign.Store(r)
		s.proposing.RUnlock()
		s.cfg.Log.InfoContext(ctx, "control leads", "term", term)
		s.lead(ctx, r, lost)
		if ctx.Err() != nil {
			s.reign.Store(nil)
			return context.Cause(ctx)
		}
		s.cfg.Log.WarnContext(ctx, "control does not lead any more", "term", term)
	}
}

// lead reconciles until the reign or ctx ends.
func (s *Server) lead(ctx context.Context, r *reign, lost <-chan struct{}) {
	ctx, stop := context.WithCancel(ctx)
	var workers sync.WaitGroup
	defer workers.Wait()
	defer stop()
	workers.Go(func() { // what is under way ends with the reign
		select {
		case <-lost: // nil without a group: never
			s.reign.CompareAndSwap(r, nil)
			stop()
		case <-ctx.Done():
		}
	})
	if s.cfg.Drive != nil && s.shared == nil {
		workers.Go(func() { s.drive(ctx, r) })
	}
	running := make(map[cell.ID]context.CancelFunc)
	tick := time.NewTicker(reconcileInterval)
	defer tick.Stop()
	settled := time.NewTimer(settleAfter)
	defer settled.Stop()
	for {
		select {
		case <-settled.C:
			r.restart()
		default:
		}
		changed := s.machine.changed()
		links := r.sync()
		for id, l := range links {
			if running[id] == nil {
				of, cancel := context.WithCancel(ctx)
				running[id] = cancel
				workers.Go(func() {
					l.run(of, duties{every: measureInterval(s.cfg.Reconcile.Placement.Hour), measure: s.measure, act: s.act})
				})
			}
		}
		for id, cancel := range running {
			if links[id] == nil {
				cancel()
				delete(running, id)
			}
		}
		s.reconcile(ctx, r)
		if !r.await(ctx, changed, tick.C) {
			return
		}
	}
}

// await returns once there may be something to do, and false when the reign has ended.
func (r *reign) await(ctx context.Context, changed <-chan struct{}, tick <-chan time.Time) bool {
	select {
	case <-changed: // what is committed at about the same time is looked at once
		return pause(ctx, gatherDelay) == nil
	case <-r.wake:
		return true
	case <-tick:
		return true
	case <-ctx.Done():
		return false
	}
}

// sync returns the links of the cells that there are, by their names.
func (r *reign) sync() map[cell.ID]*link {
	view := r.machine.View()
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range view.Cells("") {
		l := r.linkLocked(c.ID)
		if leader, ok := leaderIn(r.seen, view, c.ID); ok && l.leaderIs(leader) {
			l.reset()
		}
	}
	for id := range r.links {
		if _, ok := view.Cell(id); !ok {
			delete(r.links, id)
		}
	}
	return maps.Clone(r.links)
}

// link returns the link of a cell.
func (r *reign) link(id cell.ID) *link {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.linkLocked(id)
}

func (r *reign) linkLocked(id cell.ID) *link {
	l, ok := r.links[id]
	if !ok {
		l = r.open(id)
		l.reset()
		r.links[id] = l
	}
	return l
}

// restart makes every cell be told of everything.
func (r *reign) restart() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.links {
		l.reset()
	}
}

// look makes the loop look.
func (r *reign) look() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// see remembers what an agent says of itself.
func (r *reign) see(a command.Agent, req *fairleadv1.RegisterRequest, now cell.Instant) {
	r.mu.Lock()
	old, known := r.seen[a.Name]
	seen := reconcile.Seen{At: now, LogOpen: req.GetLogOpen(), Leader: req.GetLeader(), Term: req.GetTerm()}
	r.seen[a.Name] = seen
	r.mu.Unlock()
	if old.At = now; !known || old != seen {
		r.look()
	}
}

// lastSeen returns when an agent was last heard of in this reign.
func (r *reign) lastSeen(name command.AgentName) (cell.Instant, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen, ok := r.seen[name]
	return seen.At, ok
}

// cellLeader is who leads a cell, in which term.
type cellLeader struct {
	name command.AgentName
	term uint64
}

// leaderOf returns who leads a cell, as far as its agents say.
func (r *reign) leaderOf(id cell.ID) (cellLeader, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return leaderIn(r.seen, r.machine.View(), id)
}

// leaderIn returns the agent of the cell that says to lead in the highest term.
func leaderIn(seen map[command.AgentName]reconcile.Seen, view state.View, id cell.ID) (leader cellLeader, found bool) {
	for a := range view.AgentsOf(id) {
		if s, ok := seen[a.Name]; ok && s.Leader && (!found || s.Term > leader.term) {
			leader, found = cellLeader{a.Name, s.Term}, true
		}
	}
	return leader, found
}

// agentsOf returns the agents of a cell: the one that leads first, then the others in the order of their names.
func (r *reign) agentsOf(id cell.ID) []state.Agent {
	agents := slices.Collect(r.machine.View().AgentsOf(id))
	leader, ok := r.leaderOf(id)
	if at := slices.IndexFunc(agents, func(a state.Agent) bool { return ok && a.Name == leader.name }); at > 0 {
		a := agents[at]
		agents = slices.Insert(slices.Delete(agents, at, at+1), 0, a)
	}
	return agents
}

// cellSeen returns when any agent of a cell was last heard of.
func (r *reign) cellSeen(id cell.ID) (latest cell.Instant, ok bool) {
	for a := range r.machine.View().AgentsOf(id) {
		if at, seen := r.lastSeen(a.Name); seen {
			latest, ok = max(latest, at), true
		}
	}
	return latest, ok
}

// reconcile does what is to be done next. What fails is decided anew the next time.
func (s *Server) reconcile(ctx context.Context, r *reign) {
	if s.shared != nil { // one cell, which is there
		return
	}
	if err := r.turn(ctx); err != nil {
		return
	}
	defer r.release()
	observed := r.observed()
	observed.Tried = r.tried
	perCell := make(map[cell.ID][]reconcile.Action)
	for _, action := range reconcile.Step(s.machine.View(), observed, s.instant(), *s.cfg.Reconcile) {
		switch a := action.(type) {
		case reconcile.Propose:
			if err := s.decided(ctx, r, a.Command); errors.Is(err, consensus.ErrNotLeader) || ctx.Err() != nil {
				return
			}
		case reconcile.OpenLog:
			perCell[a.Cell] = append(perCell[a.Cell], a)
		case reconcile.AddPeer:
			perCell[a.Cell] = append(perCell[a.Cell], a)
		case reconcile.Unplaceable:
			r.tried[a.Tenant] = a.Tried
		}
	}
	for id, actions := range perCell {
		r.link(id).do(actions)
	}
	r.forgetTried()
}

// forgetTried drops tenants that have a home by now.
func (r *reign) forgetTried() {
	view := r.machine.View()
	maps.DeleteFunc(r.tried, func(id cell.TenantID, _ reconcile.Tried) bool {
		_, ok := homeOf(view, id)
		return ok
	})
}

// decided proposes what the loop decided.
func (s *Server) decided(ctx context.Context, r *reign, c command.Command) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := s.proposeAs(ctx, actorControl, c)
	if err != nil {
		s.cfg.Log.WarnContext(ctx, "what control decided did not take effect", "command", c.Type().String(), "subject", command.Subject(c), "error", err)
		return err
	}
	s.cfg.Log.InfoContext(ctx, "control decided", "command", c.Type().String(), "subject", command.Subject(c))
	if a, ok := c.(command.Assign); ok {
		r.snapshot = nil // it was decided on another
		l := r.link(a.Cell)
		l.add(changed{tenant: a.Tenant})
		l.retry()
	}
	return nil
}

// turn waits until nobody else places, so that each counts with whom the one before placed.
func (r *reign) turn(ctx context.Context) error {
	select {
	case <-r.placing:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *reign) release() { r.placing <- struct{}{} }

// drains reports whether a cell takes no new jobs.
func drains(v state.View, id cell.ID) bool {
	c, ok := v.Cell(id)
	return ok && c.Phase == placement.PhaseDraining
}

// laneOf returns the lane that stands for both of a tenant's where they have one home, which is all the time that it is not moving.
func laneOf(id cell.TenantID) cell.Lane { return cell.Lane{Tenant: id, Class: cell.ClassInteractive} }

// homeOf returns the cell that a tenant is at home in; that of its interactive lane while its lanes are apart.
func homeOf(v state.View, id cell.TenantID) (cell.ID, bool) {
	a, ok := v.AssignmentOf(laneOf(id))
	return a.Cell, ok
}

// knownTo returns the cells that must know a tenant: its homes, and those that it is moving between.
func knownTo(v state.View, id cell.TenantID) []cell.ID {
	var out []cell.ID
	add := func(c cell.ID) {
		if c != "" && !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	for _, a := range v.Homes(id) {
		add(a.Cell)
	}
	if m, ok := v.MigrationOf(id); ok && !m.Done() {
		add(m.Source)
		add(m.Target)
	}
	return out
}
