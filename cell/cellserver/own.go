package cellserver

import (
	"context"
	"errors"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/leader"
)

// errLaneLeft ends the polls of a tenant's own workers when one of its lanes has left: there may be work for them where it is now.
var errLaneLeft = errors.New("a lane of the tenant has left the cell")

// ownPolls is the open polls of tenants' own workers. The server's mu guards it.
type ownPolls map[cell.TenantID]map[*leader.Poll]context.CancelCauseFunc

func (o ownPolls) add(p *leader.Poll, end context.CancelCauseFunc) {
	of := o[p.Session.Tenant]
	if of == nil {
		of = map[*leader.Poll]context.CancelCauseFunc{}
		o[p.Session.Tenant] = of
	}
	of[p] = end
}

func (o ownPolls) remove(p *leader.Poll) {
	delete(o[p.Session.Tenant], p)
	if len(o[p.Session.Tenant]) == 0 {
		delete(o, p.Session.Tenant)
	}
}

// end ends the tenant's polls.
func (o ownPolls) end(tenant cell.TenantID) {
	for _, end := range o[tenant] { // order-free: each is told the same
		end(errLaneLeft)
	}
}

// pollOwn is do for the poll of a tenant's own worker, and returns what it was granted. It returns a *engine.LaneError when no lane of the tenant is
// served here, at once or as soon as that is so, and no jobs when one of them leaves meanwhile.
func (s *Server) pollOwn(ctx context.Context, p *leader.Poll) ([]leader.Leased, error) {
	known, err := epochsOf(ctx)
	if err != nil {
		return nil, err
	}
	tenant := p.Session.Tenant
	polling, end := context.WithCancelCause(ctx)
	defer end(nil)
	s.mu.Lock()
	gone := s.left(tenant, known)
	if gone == nil {
		s.own.add(p, end)
	}
	s.mu.Unlock()
	if gone == nil {
		err = s.do(polling, &leader.Call{Poll: p})
		s.mu.Lock()
		s.own.remove(p)
		s.mu.Unlock()
		switch {
		case err == nil:
			return p.Leases, nil
		case ctx.Err() != nil || !errors.Is(context.Cause(polling), errLaneLeft):
			return nil, err
		}
	}
	return nil, s.read(ctx, func() error {
		s.mu.RLock()
		defer s.mu.RUnlock()
		return s.left(tenant, known)
	})
}

// left returns why a tenant's own workers have nothing to wait for here: every lane of the tenant's is elsewhere. A lane that is fenced may stay. The caller
// holds mu.
func (s *Server) left(tenant cell.TenantID, known leader.Epochs) error {
	t := s.state.Tenant(tenant)
	if t == nil || !elsewhere(t.Lane(cell.ClassInteractive)) || !elsewhere(t.Lane(cell.ClassBatch)) {
		return nil
	}
	_, err := s.reachable(tenant, 0, known)
	return err
}

// whereHeld notes the lanes of a worker's leases that are not served here. To a tenant's own worker it is said which lane of the tenant is elsewhere,
// whatever it holds.
func (s *Server) whereHeld(away *notice, worker cell.TenantID, held []leader.LeaseRef) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if worker != "" {
		if t := s.state.Tenant(worker); t != nil {
			for _, c := range cell.Classes() {
				if l := t.Lane(c); elsewhere(l) {
					away.heed(standing(l, 0))
				}
			}
		}
		return
	}
	for _, ref := range held {
		if j := s.state.Job(ref.JobID); j != nil {
			away.heedOf(standing(j.Lane, 0), worker)
		} else {
			away.heedOf(s.stray(worker, ref.JobID), worker)
		}
	}
}
