package controlserver

import (
	"context"
	"sync"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/control/reconcile"
	"github.com/fairlead/fairlead/placement"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// outcome is what became of a plan: which of its decisions took effect, and which need a migration. Migrations that were begun are among the latter.
type outcome struct {
	applied map[cell.TenantID]bool
	migrate map[cell.TenantID]bool
}

// carryOut does at once what needs no migration: tenants without a home get one, and those that their cell holds nothing of change it. Whoever has jobs, or
// ever had any here, stays: with it would stay its jobs and the keys that keep a repeated submission from being a second job.
//
// Nothing may be accepted between the look and the change. So the source is told first to take nothing of those tenants any more, and looked at again. A tenant
// that submits its first job in that moment is refused by its backlog's bound and told to try again in a second.
func (s *Server) carryOut(ctx context.Context, r *reign, plan placement.Plan) outcome {
	out := outcome{applied: make(map[cell.TenantID]bool), migrate: make(map[cell.TenantID]bool)}
	moves := make(map[cell.ID][]placement.Decision)
	var placed []placement.Decision
	view := s.machine.View()
	for _, d := range plan.Decisions {
		m, known := view.MigrationOf(d.Tenant)
		switch {
		case d.Target == "":
		case known && !m.Done():
			out.migrate[d.Tenant] = true // it does
		case d.Source == "":
			placed = append(placed, d)
		default:
			moves[d.Source] = append(moves[d.Source], d)
			out.migrate[d.Tenant] = true
		}
	}
	var (
		mu sync.Mutex
		wg sync.WaitGroup
	)
	done := func(d placement.Decision) {
		mu.Lock()
		defer mu.Unlock()
		out.applied[d.Tenant] = true
		delete(out.migrate, d.Tenant)
	}
	wg.Go(func() {
		for _, d := range placed {
			if s.take(ctx, r, d) {
				done(d)
			}
		}
	})
	for source, decisions := range moves { // each source by itself: one that hangs holds up its own
		wg.Go(func() { s.move(ctx, r, source, decisions, done) })
	}
	wg.Wait()
	return out
}

// migrateAll begins migrations of a plan's tenants that cannot move without. One that cannot begin now needs it all the same.
func (s *Server) migrateAll(ctx context.Context, r *reign, plan placement.Plan, need map[cell.TenantID]bool) {
	actor := s.actor(ctx)
	for _, d := range plan.Decisions {
		if !need[d.Tenant] {
			continue
		}
		view := s.machine.View()
		c := reconcile.StartMigration(view, d, s.instant())
		c.Actor = actor
		s.beginOrSay(ctx, r, actor, c)
	}
}

// beginOrSay begins a migration, and says in the log why it cannot.
func (s *Server) beginOrSay(ctx context.Context, r *reign, actor string, c command.StartMigration) {
	if m, ok := s.machine.View().MigrationOf(c.Tenant); ok && !m.Done() {
		return
	}
	if _, err := s.begin(ctx, r, actor, c); err != nil {
		s.cfg.Log.WarnContext(ctx, "a tenant that is to move cannot begin to", "tenant", string(c.Tenant), "target", string(c.Target), "error", err)
	}
}

// move moves those of a source's tenants that it holds nothing of.
func (s *Server) move(ctx context.Context, r *reign, source cell.ID, decisions []placement.Decision, done func(placement.Decision)) {
	l := r.link(source)
	free := func(from []placement.Decision) (out []placement.Decision, ok bool) {
		holds, err := held(ctx, l.to)
		if err != nil {
			s.cfg.Log.WarnContext(ctx, "a cell whose tenants are to move does not say what it holds", "cell", string(source), "error", err)
			return nil, false
		}
		for _, d := range from {
			if !holds[d.Tenant] {
				out = append(out, d)
			}
		}
		return out, true
	}
	candidates, ok := free(decisions)
	if !ok || len(candidates) == 0 {
		return
	}
	ids := make([]cell.TenantID, len(candidates))
	names := make([]changed, len(candidates))
	for i, d := range candidates {
		ids[i], names[i] = d.Tenant, changed{tenant: d.Tenant}
	}
	l.close(ids, true)
	defer func() { // those that stay take jobs again; the others are not this cell's any more
		l.close(ids, false)
		l.retry()
	}()
	if err := l.configure(ctx, names...); err != nil {
		s.cfg.Log.WarnContext(ctx, "a cell whose tenants are to move cannot be told", "cell", string(source), "error", err)
		return
	}
	still, _ := free(candidates)
	for _, d := range still {
		if s.take(ctx, r, d) {
			done(d)
		}
	}
}

// take makes the decision's target the tenant's home, and reports whether it is.
func (s *Server) take(ctx context.Context, r *reign, d placement.Decision) bool {
	view := s.machine.View()
	if home, _ := homeOf(view, d.Tenant); home != d.Source {
		return false
	}
	began := s.instant()
	if err := s.assign(ctx, view, d); err != nil {
		s.cfg.Log.WarnContext(ctx, "a decision did not take effect", "tenant", string(d.Tenant), "cell", string(d.Target), "error", err)
		return false
	}
	l := r.link(d.Target)
	l.add(changed{tenant: d.Tenant})
	l.retry()
	if d.Source != "" {
		r.moved(placement.Move{
			Tenant: d.Tenant, Source: d.Source, Target: d.Target, Bytes: d.Bytes, Since: began, Ended: s.instant(),
		}, s.cfg.Reconcile.Placement.MovePeriod)
	}
	return true
}

// held returns the tenants that a cell holds something of, or has.
func held(ctx context.Context, to tenancy) (map[cell.TenantID]bool, error) {
	out := make(map[cell.TenantID]bool)
	err := to.measure(ctx, func(_ cell.Instant, use *fairleadv1.TenantUse) {
		// What was charged says that jobs have run: their keys and results may be there for as long as the plan keeps them.
		if use.GetJobs() != 0 || use.GetBytes() != 0 || use.GetChargedInteractive() != 0 || use.GetChargedBatch() != 0 {
			out[cell.TenantID(use.GetTenant())] = true
		}
	})
	return out, err
}

// heldBy returns what each of the sources of a plan's moves holds. A cell that does not say is taken to hold everything.
func (s *Server) heldBy(ctx context.Context, r *reign, plan placement.Plan) map[cell.TenantID]bool {
	bySource := make(map[cell.ID][]cell.TenantID)
	for _, d := range plan.Decisions {
		if d.Source != "" && d.Target != "" {
			bySource[d.Source] = append(bySource[d.Source], d.Tenant)
		}
	}
	var (
		mu  sync.Mutex
		wg  sync.WaitGroup
		out = make(map[cell.TenantID]bool)
	)
	for source, tenants := range bySource {
		wg.Go(func() {
			holds, err := held(ctx, r.link(source).to)
			mu.Lock()
			defer mu.Unlock()
			for _, t := range tenants {
				out[t] = err != nil || holds[t]
			}
		})
	}
	wg.Wait()
	return out
}
