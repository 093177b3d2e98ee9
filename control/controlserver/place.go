package controlserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/reconcile"
	"github.com/fairlead/fairlead/control/state"
	"github.com/fairlead/fairlead/placement"
)

const (
	// placeAttempts is how often a decision is made anew because what it was made on has changed.
	placeAttempts = 5
	// snapshotAgeMax is how old a snapshot may be: the hour of the day counts, and which cells were heard of.
	snapshotAgeMax = 5 * time.Second
	// rejectionsShown bounds the cells that an answer names.
	rejectionsShown = 5
)

// unplacedError is returned when a tenant is saved and no cell can take it.
type unplacedError struct{ decision placement.Decision }

func (e *unplacedError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "tenant %s is saved, and no cell can take it", e.decision.Tenant)
	sep := ": "
	for i, c := range e.decision.Candidates {
		if i == rejectionsShown {
			fmt.Fprintf(&b, "; and %d more", len(e.decision.Candidates)-i)
			break
		}
		fmt.Fprintf(&b, "%s%s %s", sep, c.Cell, c.Rejected)
		sep = "; "
	}
	b.WriteString(": it is placed as soon as one can; create a cell, or change its rules")
	return b.String()
}

// home gives the tenant a home when it has none, and returns it. It returns an *unplacedError when no cell can take it.
func (s *Server) home(ctx context.Context, r *reign, id cell.TenantID) (cell.ID, error) {
	if home, ok := homeOf(s.machine.View(), id); ok {
		return home, nil
	}
	if s.shared != nil {
		return s.cfg.SharedCell, s.assignShared(ctx, id)
	}
	if err := r.turn(ctx); err != nil {
		return "", errors.Join(errCellBehind, err)
	}
	defer r.release()
	var err error
	for range placeAttempts {
		view := s.machine.View()
		if home, ok := homeOf(view, id); ok { // by the loop
			return home, nil
		}
		t, ok := view.Tenant(id)
		if !ok {
			return "", &state.NotFoundError{Kind: state.KindTenant, ID: string(id)}
		}
		snapshot := s.snapshotOf(r)
		d := snapshot.Place(reconcile.TenantOf(view, t))
		if d.Target == "" {
			return "", &unplacedError{d}
		}
		if err = s.assign(ctx, view, d); err == nil {
			snapshot.Assume(d)
			r.snapshotOf++ // it has this; if anything else has changed beside it, the counts differ
			return d.Target, nil
		}
		if !decidedOnOld(err) {
			return "", err
		}
		r.snapshot = nil
	}
	return "", err
}

// decidedOnOld reports whether a decision was refused since something has changed after it.
func decidedOnOld(err error) bool {
	_, stale := errors.AsType[*state.StaleError](err)
	_, phase := errors.AsType[*state.PhaseError](err)
	_, field := errors.AsType[*cell.FieldError](err)
	_, gone := errors.AsType[*state.NotFoundError](err)
	return stale || phase || field || gone
}

// assign commits a decision that was made on a view.
func (s *Server) assign(ctx context.Context, view state.View, d placement.Decision) error {
	_, err := s.proposeAs(ctx, actorControl, reconcile.Assign(view, d, s.instant()))
	return err
}

// snapshotOf returns what is to be decided on. The caller has the turn. It is made anew when anything that a decision depends on has changed but for
// decisions that it was told of: making it looks at every tenant.
func (s *Server) snapshotOf(r *reign) *placement.Snapshot {
	p := s.machine.latest.Load()
	now := s.instant()
	if r.snapshot == nil || r.snapshotOf != p.relevant || now.Sub(r.snapshotAt) > snapshotAgeMax {
		r.snapshot, r.snapshotOf, r.snapshotAt = s.freshSnapshot(r, p.view), p.relevant, now
	}
	return r.snapshot
}

// freshSnapshot returns a snapshot of the view.
func (s *Server) freshSnapshot(r *reign, v state.View) *placement.Snapshot {
	return reconcile.Snapshot(v, r.observed(), s.instant(), *s.cfg.Reconcile)
}

// observed returns what was heard in this reign.
func (r *reign) observed() reconcile.Observed {
	r.mu.Lock()
	defer r.mu.Unlock()
	return reconcile.Observed{Since: r.began, Agents: maps.Clone(r.seen), Pending: slices.Clone(r.moves)}
}

// moved remembers a move, and forgets those that do not count any more.
func (r *reign) moved(m placement.Move, period time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moves = slices.DeleteFunc(r.moves, func(old placement.Move) bool { return m.Ended.Sub(old.Ended) > period })
	r.moves = append(r.moves, m)
}
