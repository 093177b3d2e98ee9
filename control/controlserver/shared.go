package controlserver

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/control/state"
	"github.com/fairlead/fairlead/placement"
)

// A process that has control and one cell in one needs no agents, no formation and no choice: the cell is recorded as open, and every tenant is at
// home in it.

const (
	// sharedCellDefault is the name of the cell.
	sharedCellDefault cell.ID = "cell-1"
	// sharedReplica is the name of its only replica.
	sharedReplica command.AgentName = "local"
	// sharedAtOnce is how many tenants are given their home at once, so that they share entries' fsyncs.
	sharedAtOnce = 64

	sharedDecision = "the only cell of its process"
)

// ensureShared makes the records of the cluster and of its only cell when they are not there.
func (s *Server) ensureShared(ctx context.Context) error {
	if c, ok := s.machine.View().Cell(s.cfg.SharedCell); ok && c.Phase != placement.PhaseForming {
		return nil
	}
	if err := s.ensureCluster(ctx, actorControl); err != nil {
		return fmt.Errorf("the cluster's record: %w", err)
	}
	exists := func(err error) bool {
		_, ok := errors.AsType[*state.ExistsError](err)
		return ok
	}
	_, err := s.proposeAs(ctx, actorControl, command.CreateCell{Cell: s.cfg.SharedCell, Kind: placement.KindPooled, Replicas: 1, Time: s.instant()})
	if err != nil && !exists(err) {
		return fmt.Errorf("the cell's record: %w", err)
	}
	c, _ := s.machine.View().Cell(s.cfg.SharedCell)
	if c.Phase != placement.PhaseForming {
		return nil
	}
	_, err = s.proposeAs(ctx, actorControl, command.SetCellVoters{
		Cell: s.cfg.SharedCell, Voters: []command.Replica{{Name: sharedReplica}}, Generation: c.Generation, Time: s.instant(),
	})
	if _, stale := errors.AsType[*state.StaleError](err); err != nil && !stale { // somebody else may have been first
		return fmt.Errorf("the cell's record: %w", err)
	}
	return nil
}

// assignShared makes the only cell the tenant's home.
func (s *Server) assignShared(ctx context.Context, id cell.TenantID) error {
	if err := s.ensureShared(ctx); err != nil {
		return err
	}
	c, _ := s.machine.View().Cell(s.cfg.SharedCell)
	groups := uint64(0)
	if c.Groups > 0 {
		groups = placement.Deal(string(id), c.Groups, c.Hand)
	}
	_, err := s.proposeAs(ctx, actorControl, command.Assign{
		Tenant: id, Cell: s.cfg.SharedCell, Groups: groups, Decision: sharedDecision, Time: s.instant(),
	})
	if _, stale := errors.AsType[*state.StaleError](err); stale {
		return nil // somebody else has
	}
	return err
}

// homeAll gives every tenant its home that has none: those of a release before there were homes.
func (s *Server) homeAll(ctx context.Context) error {
	var (
		mu    sync.Mutex
		first error
		wg    sync.WaitGroup
	)
	room := make(chan struct{}, sharedAtOnce)
	for t := range s.machine.View().Unplaced("") {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			if err := s.assignShared(ctx, t.ID()); err != nil {
				mu.Lock()
				defer mu.Unlock()
				if first == nil {
					first = fmt.Errorf("the home of tenant %s: %w", t.ID(), err)
				}
			}
		})
	}
	wg.Wait()
	return first
}

// ConfigureCells gives every tenant its home and tells the cell of everybody, in a process with one cell. It belongs between the log's start and the first
// request: the process may have ended between a commit and the call that would have told it.
func (s *Server) ConfigureCells(ctx context.Context) error {
	if s.shared == nil {
		return errors.New("controlserver: cells of other processes are configured by Run")
	}
	if err := s.ensureShared(ctx); err != nil {
		return err
	}
	if err := s.homeAll(ctx); err != nil {
		return err
	}
	r, err := s.reigning()
	if err != nil {
		return err
	}
	return r.link(s.cfg.SharedCell).configureAll(ctx)
}
