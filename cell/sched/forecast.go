package sched

import (
	"math"
	"time"

	"github.com/fairlead/fairlead/cell"
)

// Backlog returns about what everything that waits in a lane costs together: of each operation as many times what a job is expected to cost as there
// are, or where nothing was learned what its next one declares. Under FIFO it counts only what stands aside.
func (s *Scheduler) Backlog(id cell.Lane) cell.Cost {
	t := s.tenantOf(id.Tenant)
	if t == nil || t.lanes[id.Class.Index()] == nil {
		return 0
	}
	total := cell.Cost(0)
	for _, q := range t.lanes[id.Class.Index()].queues {
		seed := s.cfg.CostDefault
		for _, st := range []*strand{q.bare.first(), q.awake.first()} {
			if st != nil && st.head().Cost > 0 {
				seed = st.head().Cost
			}
		}
		total += cell.Cost(q.size) * min(t.estimate(q.operation.name).Of(seed), cell.CostMax)
	}
	return total
}

// first returns the strand where it has jobs, and else nil.
func (st *strand) first() *strand {
	if st.jobs.len() == 0 {
		return nil
	}
	return st
}

// contendersMax bounds the lanes that Forecast looks at: of a cell where more have something to run at a moment it knows nothing.
const contendersMax = 100_000

// Forecast returns about how long a job would wait that is added to a lane now, if the lane were open: what waits in it, divided by what its tenant
// would get while everybody who has something to run goes on having it. That is its reservation and its part, by weight, of what is spare of the
// slots that the class may hold; organizations are not looked at. It returns false where nothing can be said: the cost is not slot time, there are no
// slots, the tenant has neither a reservation nor a weight, or everybody waits in one lane.
func (s *Scheduler) Forecast(id cell.Lane) (time.Duration, bool) {
	node := s.tree.Tenant(id.Tenant)
	i := id.Class.Index()
	if node == nil || s.everybody != nil || s.cfg.OverrunMin == 0 || len(s.runnable.lanes[i]) > contendersMax {
		return 0, false
	}
	backlog := s.Backlog(id)
	if backlog == 0 {
		return 0, true
	}
	own := node.Policy()
	reserved, weights := float64(own.Reservation[i]), float64(own.Weight)
	for _, l := range s.runnable.lanes[i] {
		if p := l.owner.node.Policy(); p.Tenant != id.Tenant {
			reserved += float64(p.Reservation[i])
			weights += float64(p.Weight)
		}
	}
	capacity := float64(s.Use(id.Class).Limit) * float64(slotRate)
	rate := float64(own.Reservation[i]) * min(1, capacity/max(reserved, 1))
	if weights > 0 {
		rate += max(0, capacity-reserved) * float64(own.Weight) / weights
	}
	if own.Limit > 0 {
		rate = min(rate, float64(own.Limit))
	}
	if rate <= 0 {
		return 0, false
	}
	return time.Duration(min(float64(backlog)/rate*float64(time.Second), math.MaxInt64/2)), true
}
