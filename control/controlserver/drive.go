package controlserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/control/reconcile"
	"github.com/fairlead/fairlead/control/state"
	"github.com/fairlead/fairlead/migrate"
	"github.com/fairlead/fairlead/placement"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// The names of the gates that control proves.
const (
	gateCapacity = migrate.GateCapacity // the target has room for the tenant, and to spare
	gateOpen     = "open"               // the target takes tenants
	gateHeard    = "heard"              // the agents of both cells are heard of, so that they hear of what changes
)

// What the target may be filled to with the tenant in it, of what it was tested to carry.
const (
	// demandPercent is what the tenant's demand is taken for: its 95th percentile, and a part for what measurements miss.
	demandPercent = 130
	// fillPercent is how full the target may be. While a voter of its log is missing it may be fuller: a cell serves with as many as it has, and what it
	// needs to catch up is little.
	fillPercent      = 70
	fillPercentSmall = 90
	// While the target serves a class that is observed, demand counts as it was measured, and the target may be filled to this much before the tenant is
	// taken back: a part of it may have come since the tenant was admitted.
	demandPercentObserved = 100
	fillPercentObserved   = 80
)

// Moves is what whoever drives migrations is given while this replica leads control: their records, and the ways to the cells. Its methods may be called
// concurrently.
type Moves struct {
	server *Server
	reign  *reign
}

// Record returns a migration, and false for one that is not known.
func (m *Moves) Record(id cell.MigrationID) (migrate.Record, bool) {
	of, ok := m.server.machine.View().Migration(id)
	return of.Record, ok
}

// Live returns the migrations that have not ended.
func (m *Moves) Live() []migrate.Record {
	var out []migrate.Record
	for of := range m.server.machine.View().LiveMigrations() {
		out = append(out, of.Record)
	}
	return out
}

// Changed returns a channel that is closed once there is something newer than Record and Live return after the call.
func (m *Moves) Changed() <-chan struct{} { return m.server.machine.changed() }

// Lanes returns the client of a cell's leader.
func (m *Moves) Lanes(id cell.ID) fairleadv1connect.LaneServiceClient {
	return m.server.cfg.Dialer.Lanes(id, m.reign.agentsOf(id))
}

// Propose adds an event to a migration that is at the generation, and returns its record then. Its errors are those of the log, those of package migrate and
// a *[state.StaleError].
func (m *Moves) Propose(ctx context.Context, id cell.MigrationID, generation uint64, e migrate.Event) (migrate.Record, error) {
	if m.server.reign.Load() != m.reign {
		return migrate.Record{}, errNotLeading
	}
	e.Actor = cmp.Or(e.Actor, actorControl)
	e.Time = m.server.instant()
	return m.server.advance(ctx, m.reign, id, generation, e)
}

// advance commits an event, and sees to it that both cells hear of what they are promised then.
func (s *Server) advance(ctx context.Context, r *reign, id cell.MigrationID, generation uint64, e migrate.Event) (migrate.Record, error) {
	res, err := s.proposeAs(ctx, e.Actor, command.AdvanceMigration{ID: id, Expect: generation, Event: e})
	if err != nil {
		return res.Migration.Record, err
	}
	s.tell(r, &res.Migration.Record, e)
	return res.Migration.Record, nil
}

// tell has the cells of a migration told what its tenant is promised there after an event. While a class takes nothing only the cell that is to have it is
// told, before it does: the other has its log to itself.
func (s *Server) tell(r *reign, m *migrate.Record, e migrate.Event) {
	cells := []cell.ID{m.Source, m.Target}
	switch e.Kind { //nolint:exhaustive // after all others both are told
	case migrate.EventProgress, migrate.EventGates, migrate.EventCommit, migrate.EventReverseCommit:
		return
	case migrate.EventFence, migrate.EventReverseFence:
		owner := m.Owner(e.Class)
		cells = slices.DeleteFunc(cells, func(id cell.ID) bool { return id == owner })
	}
	for _, id := range cells {
		if _, ok := s.machine.View().Cell(id); !ok {
			continue
		}
		l := r.link(id)
		l.add(changed{tenant: m.Tenant})
		l.retry()
	}
}

// Promise returns what the target is to be told of a migration's tenant and of its organization, which is nil where there is none.
func (m *Moves) Promise(of migrate.Record) (*fairleadv1.TenantPromise, *fairleadv1.OrganizationPromise, error) {
	view := m.server.machine.View()
	policy, ok := view.PolicyIn(of.Tenant, of.Target)
	if !ok {
		return nil, nil, &state.NotFoundError{Kind: state.KindTenant, ID: string(of.Tenant)}
	}
	_, policy, _, _ = of.Policies(policy)
	tenant := tenantPromise(policy)
	if o, ok := view.Organization(policy.Organization); ok {
		return tenant, organizationPromise(o.Policy), nil
	}
	return tenant, nil, nil
}

// Gates returns what control proves of a migration now.
func (m *Moves) Gates(ctx context.Context, of migrate.Record) []migrate.Gate {
	return m.server.moveGates(ctx, m.reign, &of)
}

// moveGates returns what control proves of a move.
func (s *Server) moveGates(ctx context.Context, r *reign, m *migrate.Record) []migrate.Gate {
	view := s.machine.View()
	gates := []migrate.Gate{s.openGate(view, m.Target), s.heardGate(view, r, m.Source, m.Target)}
	if err := r.turn(ctx); err != nil {
		return append(gates, migrate.Gate{Name: gateCapacity, Verdict: unknownRoom(m), Evidence: "placement is busy: it is looked at again"})
	}
	defer r.release()
	return append(gates, capacityGate(view, s.snapshotOf(r), m))
}

// observing reports whether the target serves a class that may be taken back for how it does.
func observing(m *migrate.Record) bool {
	return slices.ContainsFunc(m.Lanes[:], func(l migrate.Lane) bool { return l.Phase == migrate.Observing })
}

// unknownRoom is what is said of room of which nothing is known: it keeps a tenant from going there, and takes none back.
func unknownRoom(m *migrate.Record) migrate.Verdict {
	if observing(m) {
		return migrate.Warn
	}
	return migrate.Fail
}

func (s *Server) openGate(v state.View, target cell.ID) migrate.Gate {
	c, ok := v.Cell(target)
	switch {
	case !ok:
		return migrate.Gate{Name: gateOpen, Verdict: migrate.Fail, Evidence: fmt.Sprintf("there is no cell %s", target)}
	case c.Phase != placement.PhaseOpen:
		return migrate.Gate{Name: gateOpen, Verdict: migrate.Fail, Evidence: fmt.Sprintf("%s is %s: it takes no tenants", target, c.Phase)}
	default:
		return migrate.Gate{Name: gateOpen, Verdict: migrate.Pass, Evidence: fmt.Sprintf("%s is open", target)}
	}
}

func (s *Server) heardGate(v state.View, r *reign, cells ...cell.ID) migrate.Gate {
	now := s.instant()
	for _, id := range cells {
		at, ok := r.cellSeen(id)
		if !ok || now.Sub(at) > s.cfg.Reconcile.SeenMax {
			return migrate.Gate{Name: gateHeard, Verdict: migrate.Fail, Evidence: fmt.Sprintf("no agent of %s was heard of lately", id)}
		}
	}
	standings := reconcile.Standings(v, r.observed(), now, *s.cfg.Reconcile)
	for _, st := range standings {
		if slices.Contains(cells, st.Cell) && len(st.VotersLost)+len(st.VotersBare)+st.Missing > 0 {
			return migrate.Gate{Name: gateHeard, Verdict: migrate.Warn, Evidence: fmt.Sprintf("the log of %s has fewer voters than it is meant to have", st.Cell)}
		}
	}
	return migrate.Gate{Name: gateHeard, Verdict: migrate.Pass, Evidence: "the agents of both cells are"}
}

// capacityGate reports whether the target has room: in every hour and every resource that was tested, what it carries and what the tenant needs, with a part
// for what measurements miss. While a class is observed nothing is added for that, and a tenant that is alone there is not taken back: it harms nobody, and one
// that works off what waits uses all that there is.
func capacityGate(v state.View, snapshot *placement.Snapshot, m *migrate.Record) migrate.Gate {
	tenant, target := m.Tenant, m.Target
	home, ok := v.Cell(target)
	demand, known := snapshot.DemandOf(tenant)
	if !ok || !known {
		return migrate.Gate{Name: gateCapacity, Verdict: unknownRoom(m), Evidence: "the tenant or the cell is not there"}
	}
	counts, percent := float64(demandPercent)/100, fillPercent
	if observing(m) {
		counts, percent = float64(demandPercentObserved)/100, fillPercentObserved
	}
	if len(home.Voters) < home.Replicas {
		percent = fillPercentSmall
	}
	var resident placement.Day
	for _, l := range snapshot.Loads() {
		if l.Cell == target {
			resident = l.Hours
		}
	}
	counted := slices.ContainsFunc(slices.Collect(v.LiveMigrations()), func(m state.Migration) bool { return m.Tenant == tenant && m.Target == target })
	homes := v.Homes(tenant)
	counted = counted || homes[0].Cell == target || homes[1].Cell == target
	worst, text, alone := 0.0, "", false
	for hour := range placement.HoursPerDay {
		need, beside := demand[hour], resident[hour]
		if counted { // it is among what is carried or comes
			beside = beside.Sub(need)
		}
		for _, part := range []struct {
			name                   string
			need, beside, capacity int64
		}{
			{"compute", int64(need.Compute), int64(beside.Compute), int64(home.Capacity.Compute)},
			{"jobs", need.Jobs, beside.Jobs, home.Capacity.Jobs},
			{"bytes", need.Bytes, beside.Bytes, home.Capacity.Bytes},
		} {
			if part.capacity <= 0 {
				continue
			}
			used := 100 * (float64(max(0, part.beside)) + float64(part.need)*counts) / float64(part.capacity)
			if used >= worst {
				worst, alone = used, part.beside <= 0
				text = fmt.Sprintf("%s would be filled to %.0f %% of its %s, of at most %d %%", target, used, part.name, percent)
			}
		}
	}
	g := migrate.Gate{Name: gateCapacity, Verdict: migrate.Pass, Evidence: text}
	switch {
	case text == "":
		g.Verdict, g.Evidence = migrate.Warn, fmt.Sprintf("%s was not tested: nothing is known of what it can carry", target)
	case worst <= float64(percent):
	case alone && observing(m):
		g.Verdict, g.Evidence = migrate.Warn, text+": by this tenant alone"
	default:
		g.Verdict = migrate.Fail
	}
	return g
}

// errNoLanes is returned where there are no cells to move tenants between.
var errNoLanes = errors.New("a process that has control and a cell in one has nowhere to move a tenant: run a cluster")

// driveRetryDelay is how long after it has ended before its time what drives migrations is begun again.
const driveRetryDelay = time.Second

// drive keeps what drives migrations running while ctx lasts.
func (s *Server) drive(ctx context.Context, r *reign) {
	for ctx.Err() == nil {
		err := s.cfg.Drive(ctx, &Moves{server: s, reign: r})
		if ctx.Err() == nil {
			s.cfg.Log.ErrorContext(ctx, "what drives migrations ended, and begins again", "error", err)
			_ = pause(ctx, driveRetryDelay) // the loop looks
		}
	}
}
