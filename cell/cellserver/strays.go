package cellserver

import (
	"slices"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	"github.com/fairlead/fairlead/cell/leader"
)

// straysMax bounds the strays. The oldest are forgotten: their workers are told that there is no such job, and another runs it when the lease is over at
// the lane's owner. So it is after a restart, too.
const straysMax = 20_000

// strays are leased jobs that were wiped here, by their lanes: workers of this cell may still run them, and report here what the lanes' owners have to be
// told. The server's mu guards it.
type strays struct {
	of    map[cell.JobID]cell.Lane
	order []cell.JobID // a ring once it is full: the oldest is at next
	next  int
}

func newStrays() strays { return strays{of: map[cell.JobID]cell.Lane{}} }

func (s *strays) add(id cell.JobID, lane cell.Lane) {
	if _, known := s.of[id]; known {
		return
	}
	s.of[id] = lane
	if len(s.order) < straysMax {
		s.order = append(s.order, id)
		return
	}
	delete(s.of, s.order[s.next])
	s.order[s.next] = id
	s.next = (s.next + 1) % straysMax
}

// wiped returns the leased jobs that an entry's wipes are about to remove. The caller holds mu.
func (s *Server) wiped(entry *engine.Entry) []*engine.Job {
	var leased []*engine.Job
	for _, f := range entry.Facts {
		w, ok := f.(*engine.WipeFact)
		if !ok {
			continue
		}
		l := s.state.Lane(w.Lane)
		if l == nil || l.Mode != cell.ModeTombstone {
			continue // what is staged was never leased here
		}
		for j, n := l.After(0), 0; j != nil && n < w.Max; j, n = l.After(j.Seq), n+1 {
			if j.State == engine.Leased {
				leased = append(leased, j)
			}
		}
	}
	return leased
}

// strayed notes those of the jobs that are not here any more. The caller holds mu.
func (s *Server) strayed(leased []*engine.Job) {
	for _, j := range leased {
		if s.state.Job(j.ID) == nil {
			s.strays.add(j.ID, j.Lane.ID)
		}
	}
}

// stray returns that the lane of a job that a worker names has moved, nil when nothing is known of that. The caller holds mu.
func (s *Server) stray(worker cell.TenantID, id cell.JobID) error {
	lane, ok := s.strays.of[id]
	if !ok || s.state.Job(id) != nil || worker != "" && worker != lane.Tenant {
		return nil
	}
	if l := s.state.Lane(lane); l != nil {
		return standing(l, 0)
	}
	return nil
}

// followed returns why an outcome of a job that is not known here is refused: unknown, unless the job is a stray.
func (s *Server) followed(unknown error, worker cell.TenantID, id cell.JobID) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.stray(worker, id); err != nil {
		return err
	}
	return unknown
}

// followStops lets the leases of strays go on that a report's worker was to stop, since they are not known here.
func (s *Server) followStops(r *leader.Report) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	r.Cancels = slices.DeleteFunc(r.Cancels, func(x leader.LeaseRef) bool {
		if s.stray(r.Session.Tenant, x.JobID) == nil {
			return false
		}
		r.Elsewhere = append(r.Elsewhere, x)
		return true
	})
}
