package sched

import (
	"fmt"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/tree"
)

// Scheduler is one cell's order of what waits. See the package's comment.
type Scheduler struct {
	cfg Config
	now cell.Instant // the latest that it was told

	// tree has the tenants with their accounts, and turns the order in which lanes are served: the same, but under FIFO, where turns has
	// one tenant that stands for everybody.
	tree, turns *tree.Tree[*tenant]
	everybody   *tenant // nil but under FIFO
	reserved    reserved
	bulkheads   bulkheads
	lending     lending

	jobs     map[cell.JobID]*job // that wait or are held
	waiting  int                 // jobs
	offers   offers
	runnable runnable
	leases   leases
	waits    map[waitID]*wait
	paced    heap[*caps, startOrder] // those that have used up their start rate
	pending  pending

	records
}

// records is what is kept to be used again.
type records struct {
	spareJobs    spares[job]
	spareLeases  spares[lease]
	spareStrands spares[strand]
	spareQueues  spares[queue]
	spareLanes   spares[lane]
	spareKeys    spares[key]
	spareWaits   spares[wait]
	spareTenants spares[tenant]
}

// New returns a Scheduler with nothing in it, for a cell that begins now. It returns an error when the configuration is at fault.
func New(cfg Config, now cell.Instant) (*Scheduler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	t, err := tree.New[*tenant](cfg.tree())
	if err != nil {
		return nil, err
	}
	s := &Scheduler{
		cfg: cfg, now: now, tree: t, turns: t, jobs: map[cell.JobID]*job{}, waits: map[waitID]*wait{},
	}
	s.bulkheads.cfg = cfg.Bulkheads
	s.lending.began = now
	s.pending.most = movesMax
	s.offers.operations = map[cell.Operation]*operation{}
	s.reserved.organizations = map[cell.OrganizationID]*promised{}
	s.turns.Advance(now)
	if cfg.Policy == PolicyFIFO {
		err = s.unite()
	}
	return s, err
}

// unite makes one tenant stand for everybody in the order of turns.
func (s *Scheduler) unite() error {
	one := s.cfg.tree()
	one.LanesMax = 2
	turns, err := tree.New[*tenant](one)
	if err != nil {
		return err
	}
	node, err := turns.SetTenant(
		cell.TenantPolicy{Tenant: "everybody", Weight: cell.WeightDefault, Epoch: 1}, func(cell.Class) *tenant { return nil },
	)
	if err != nil {
		return err
	}
	s.turns, s.everybody = turns, s.newTenant(node)
	return nil
}

// Resize says how many slots live, and how much workers may hold in all: slots and what they may hold beyond.
func (s *Scheduler) Resize(slots, room int64) {
	s.bulkheads.resize(slots, room)
	s.observe()
}

// Advance moves time on, never back: who had to wait until now or earlier may run. Every call that is told the time does it too.
func (s *Scheduler) Advance(now cell.Instant) {
	s.goOn()
	if now > s.now {
		s.observe() // what was ready until now
		s.now = now
		s.turns.Advance(now)
		s.passStarts()
	}
	s.observe()
}

// Add makes a job wait for its turn; false when one of its id waits already, which is left as it is. A job that is held still waits for its
// lease to be dropped first. It returns a *cell.FieldError when the tenant is not known, or the job is held in another lane.
func (s *Scheduler) Add(it Item) (bool, error) {
	j := s.jobs[it.ID]
	if j != nil && j.waits() {
		return false, nil
	}
	s.goOn()
	t := s.tenant(it.Lane.Tenant)
	if t == nil {
		return false, &cell.FieldError{
			Field: "tenant", Problem: fmt.Sprintf("is %.40q, which the cell does not know", it.Lane.Tenant),
			Remedy: "make the tenant known before its first job",
		}
	}
	it.Cost = min(it.Cost, cell.CostMax)
	if j != nil && j.Lane != it.Lane {
		return false, &cell.FieldError{
			Field: "job", Problem: fmt.Sprintf("%v is held in lane %v and would wait in %v", it.ID, j.Lane, it.Lane),
			Remedy: "drop its lease first",
		}
	}
	s.waiting++
	if j != nil {
		j.Item, j.parked = it, true
		return true, nil
	}
	s.enqueue(s.newJob(t, it))
	return true, nil
}

// Remove takes a job out that waits; false when it does not. A lease of it lives on.
func (s *Scheduler) Remove(id cell.JobID) bool {
	j := s.jobs[id]
	if j == nil || !j.waits() {
		return false
	}
	s.goOn()
	s.dismiss(j)
	return true
}

// Waits reports whether the job waits for its turn.
func (s *Scheduler) Waits(id cell.JobID) bool {
	j := s.jobs[id]
	return j != nil && j.waits()
}

// Len returns how many jobs wait.
func (s *Scheduler) Len() int { return s.waiting }

// enqueue makes a job wait in its lane.
func (s *Scheduler) enqueue(j *job) {
	j.head = j.Created.Add(-time.Duration(j.Priority) * time.Second)
	if s.everybody != nil {
		j.head = cell.Instant(j.Seq)
	}
	l := s.laneOf(j.owner, j.Lane.Class)
	l.ready++
	q := s.queueOf(l, s.operation(j.Operation))
	s.push(s.strandOf(q, s.keysFor(j.owner, j.Keys, j.Seq)), j)
}

// unqueue takes a job out of its lane.
func (s *Scheduler) unqueue(j *job) {
	q := j.strand.queue
	l := q.lane
	s.pull(j)
	if q.size == 0 {
		s.forgetQueue(q)
	}
	if l.ready--; l.ready == 0 {
		s.forgetLane(l)
	}
}

// dismiss takes a job out that waits.
func (s *Scheduler) dismiss(j *job) {
	s.waiting--
	if j.parked {
		j.parked = false
		return
	}
	s.unqueue(j)
	t := j.owner
	s.forgetJob(j)
	s.forgetTenant(t)
}

func (s *Scheduler) newJob(t *tenant, it Item) *job {
	j := s.spareJobs.get()
	j.Item, j.owner = it, t
	s.jobs[it.ID] = j
	t.jobs++
	return j
}

// forgetJob drops a job that neither waits nor is held.
func (s *Scheduler) forgetJob(j *job) {
	delete(s.jobs, j.ID)
	j.owner.jobs--
	*j = job{}
	s.spareJobs.put(j)
}

// Idle says how much slot time passed unused, in micro-units of cost, while nothing that was offered waited: debt is forgiven by as much,
// since it harmed nobody.
func (s *Scheduler) Idle(slotTime int64) {
	for _, c := range cell.Classes() {
		s.turns.Idle(c, slotTime)
	}
}

// Starved reports whether anything could run that some live worker offers to do.
func (s *Scheduler) Starved() bool {
	s.observe()
	return s.lending.ready != [2]uint64{}
}

// Takeable returns the offers with live workers for which anything could run that its class may take a slot for, as a bit for each by its
// OfferID.
func (s *Scheduler) Takeable() uint64 {
	s.observe()
	takeable := uint64(0)
	for i := range s.lending.ready {
		for sets := s.lending.ready[i] &^ takeable; sets != 0; sets &= sets - 1 {
			if set := first(sets); s.mayTake(i, set) {
				takeable |= 1 << set
			}
		}
	}
	return takeable
}

// Wake returns the next time at which something that only time ends may end, 0 for never: a limit or a lack of credit, a start rate's
// period, room that is held back, a borrowed slot that is due, an attempt that has run for what it was charged. A time that has passed
// means at once. What else jobs wait for ends by a call.
func (s *Scheduler) Wake(now cell.Instant) cell.Instant {
	s.Advance(now)
	if !s.pending.empty() {
		return s.now
	}
	wake := sooner(s.turns.Wake(), s.lendWake())
	wake = sooner(wake, s.preemptWake())
	if c := s.paced.first(); c != nil {
		wake = sooner(wake, c.starts.next(c.rate))
	}
	if le := s.leases.due.first(); le != nil {
		wake = sooner(wake, le.due)
	}
	return wake
}
