package cellserver

import (
	"errors"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	"github.com/fairlead/fairlead/cell/leader"
)

// whereabouts is why something is not to be served here.
type whereabouts uint8

// The whereabouts, those that ask more of a gateway above those that ask less.
const (
	laneHere   whereabouts = iota
	laneMoving             // nobody serves it just now
	laneBehind             // the caller knows of a change that this cell has yet to see
	laneMoved              // another cell serves it
)

func (w whereabouts) String() string { return [...]string{"here", "moving", "behind", "moved"}[w] }

// whereaboutsOf returns what an error says of them.
func whereaboutsOf(e *engine.LaneError) whereabouts {
	switch {
	case errors.Is(e.Err, engine.ErrLaneMoving):
		return laneMoving
	case errors.Is(e.Err, engine.ErrLaneBehind):
		return laneBehind
	default:
		return laneMoved
	}
}

// absentError is returned when a job is not here, while its tenant has a lane elsewhere that may have it.
type absentError struct{ epoch cell.Epoch }

func (*absentError) Error() string { return engine.ErrJobUnknown.Error() }

func (*absentError) Unwrap() error { return engine.ErrJobUnknown }

// standing returns why a lane's jobs are not to be read here by whoever knows it at an epoch, 0 for unknown; nil when they are. There is one open lane,
// whatever the caller knows: only what changes something has to be asked at its epoch.
func standing(l *engine.Lane, known cell.Epoch) error {
	if l.Mode == cell.ModeOpen {
		return nil
	}
	return l.CheckLane(known)
}

// elsewhere reports whether a lane's jobs are, or may be, in another cell. A fenced lane's are all here.
func elsewhere(l *engine.Lane) bool { return l.Mode != cell.ModeOpen && l.Mode != cell.ModeFenced }

// find returns the tenant's job where this cell serves its lane. It returns an *engine.LaneError where not, and engine.ErrJobUnknown, or an
// *absentError, when it is not here. The caller holds mu.
func (s *Server) find(n named) (*engine.Job, error) {
	j := s.state.JobOf(n.tenant, n.id)
	if j == nil {
		return nil, s.absent(n.tenant)
	}
	if err := standing(j.Lane, n.known[j.Lane.ID.Class.Index()]); err != nil {
		return nil, err
	}
	return j, nil
}

// absent returns the error for a job that is not here. The caller holds mu.
func (s *Server) absent(tenant cell.TenantID) error {
	t := s.state.Tenant(tenant)
	if t == nil {
		return engine.ErrJobUnknown
	}
	away := false
	var epoch cell.Epoch
	for _, c := range cell.Classes() {
		if l := t.Lane(c); elsewhere(l) {
			away, epoch = true, max(epoch, l.Epoch)
		}
	}
	if !away {
		return engine.ErrJobUnknown
	}
	return &absentError{epoch: epoch}
}

// placed returns why something of a tenant's was refused as its caller is told it.
func (s *Server) placed(err error, tenant cell.TenantID) error {
	if errors.Is(err, engine.ErrJobUnknown) {
		s.mu.RLock()
		defer s.mu.RUnlock()
		return s.absent(tenant)
	}
	return err
}

// reachable returns why the jobs of a list, by the tenant and the class, 0 for both, are not to be read here just now; and else what there is to say beside
// it: the lane of one class may be served here while the other's is elsewhere. The caller holds mu.
func (s *Server) reachable(tenant cell.TenantID, class cell.Class, known leader.Epochs) (notice, error) {
	var away notice
	t := s.state.Tenant(tenant)
	if t == nil {
		return away, nil
	}
	here := false
	var moved *engine.LaneError
	for _, c := range cell.Classes() {
		if class != 0 && c != class {
			continue
		}
		switch err := standing(t.Lane(c), known[c.Index()]); {
		case err == nil:
			here = true
		case errors.As(err, &moved) && whereaboutsOf(moved) == laneMoved:
			away.heed(err)
		default:
			return away, err // without it the list would look as if its jobs were gone
		}
	}
	if here || moved == nil {
		return away, nil
	}
	all := *moved
	all.Lane.Class, all.Epoch = away.class, away.epoch
	return notice{}, &all
}
