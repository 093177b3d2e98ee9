package engine

import (
	"slices"
	"sort"

	"github.com/fairlead/fairlead/cell"
)

// State is what a cell's log has made of it. See the package's comment for its laws.
type State struct {
	limits Limits
	time   cell.Instant
	index  uint64
	// Counters that only rise: jobs accepted and jobs ended. They order what has equal times.
	accepted, ended uint64

	tenants map[cell.TenantID]*Tenant
	lanes   []*Lane // every lane once, for a snapshot's walk; the order is soft
	keepers keeperHeap
	// Every organization once, by its id and for a snapshot's walk, and every concurrency key with a live job.
	organizations    map[cell.OrganizationID]*Organization
	organizationList []*Organization
	concurrency      []*concurrency
	jobs             map[cell.JobID]*Job
	all              []*Job // every job once, for walks; the order is soft
	timers           timerHeap
	keys             keyList

	counts              [jobStates]int64
	liveJobs, liveBytes int64
	finishedBytes       int64

	generation uint64    // of the last snapshot begun
	snapshot   *Snapshot // the one being walked, if any
}

// Lane is a tenant in a class. Its fields are changed by Apply only.
type Lane struct {
	ID     cell.Lane
	Tenant *Tenant
	// Charged is the sum of all charges of the lane's jobs, ended ones included.
	Charged cell.Cost
	// Account is where the lane stood in the rotation and with its reservation when it was last charged.
	Account cell.LaneAccount

	// Mode is what the lane does here, Epoch and Move those of the fact that made it so: epoch 0 of a lane that was never moved.
	Mode  cell.Mode
	Epoch cell.Epoch
	Move  cell.Move
	// Fence is the index of the entry that fenced it; 0 while it is open.
	Fence uint64
	// Tracked says that its changes are numbered, and Change is the last one's number; of a lane that is filled, the last that was copied.
	Tracked bool
	Change  uint64
	// Cursor is how far it was filled.
	Cursor Cursor
	// Submitted and Granted count since it was opened here; only in a lane that was moved.
	Submitted, Granted int64

	counts              [jobStates]int64
	liveJobs, liveBytes int64

	// The ended jobs, in the order of their ends: those that have lost payload and result, and those that have not. The oldest lose
	// theirs first, so every dropped one is older than every whole one.
	dropped, whole              jobList
	finishedJobs, finishedBytes int64
	keeper                      int // index in State.keepers
	keys                        map[keyHash]*keyRecord
	written                     uint64 // the last snapshot generation that has this lane's record
}

// New returns the empty state of a cell. The limits hold until a LimitsFact changes them, which should be the first fact of every log: replicas
// with other limits come to other states. It returns an error when the limits are at fault.
func New(limits Limits) (*State, error) {
	if err := limits.Validate(); err != nil {
		return nil, err
	}
	return &State{
		limits: limits, tenants: map[cell.TenantID]*Tenant{}, organizations: map[cell.OrganizationID]*Organization{},
		jobs: map[cell.JobID]*Job{},
	}, nil
}

// Time returns the log's time: that of the latest entry, never less than an earlier one's.
func (s *State) Time() cell.Instant { return s.time }

// Index returns the index of the last entry applied.
func (s *State) Index() uint64 { return s.index }

// Limits returns the cell's limits.
func (s *State) Limits() Limits { return s.limits }

// Count returns how many jobs are in state st.
func (s *State) Count(st JobState) int64 { return s.counts[st] }

// Live returns the jobs that have not ended and their bytes.
func (s *State) Live() (jobs, bytes int64) { return s.liveJobs, s.liveBytes }

// Totals returns how many jobs were ever accepted and how many ends there were.
func (s *State) Totals() (accepted, ended uint64) { return s.accepted, s.ended }

// Count returns how many of the lane's jobs are in state st.
func (l *Lane) Count(st JobState) int64 { return l.counts[st] }

// Live returns the lane's jobs that have not ended and their bytes.
func (l *Lane) Live() (jobs, bytes int64) { return l.liveJobs, l.liveBytes }

// Finished returns the lane's jobs that have ended and their bytes.
func (l *Lane) Finished() (jobs, bytes int64) { return l.finishedJobs, l.finishedBytes }

// Keys returns how many idempotency keys stand in the lane.
func (l *Lane) Keys() int64 { return int64(len(l.keys)) }

// Tenant returns what the cell knows of a tenant, and nil when it has no lane of it.
func (s *State) Tenant(id cell.TenantID) *Tenant { return s.tenants[id] }

// Lane returns a lane, and nil when this cell does not have it.
func (s *State) Lane(l cell.Lane) *Lane {
	t := s.tenants[l.Tenant]
	if t == nil || !l.Class.Valid() {
		return nil
	}
	return t.Lane(l.Class)
}

// Lanes returns every lane, ordered by tenant and class.
func (s *State) Lanes() []*Lane {
	lanes := slices.Clone(s.lanes)
	sort.Slice(lanes, func(i, j int) bool {
		a, b := lanes[i].ID, lanes[j].ID
		if a.Tenant != b.Tenant {
			return a.Tenant < b.Tenant
		}
		return a.Class < b.Class
	})
	return lanes
}

// TenantCount returns how many tenants there are.
func (s *State) TenantCount() int { return len(s.tenants) }

// TenantAt returns a tenant by the order in which they came to be, which a restored snapshot need not keep; i is below TenantCount.
func (s *State) TenantAt(i int) *Tenant { return s.lanes[i*classes].Tenant }

// classes is how many lanes a tenant has; they stand together in State.lanes.
const classes = len(Tenant{}.lanes)

// Job returns a job whoever its tenant is: for the platform's own eyes.
func (s *State) Job(id cell.JobID) *Job { return s.jobs[id] }

// JobOf returns the tenant's job, and nil when that tenant has none of that id. It is the only way to a job on a tenant's behalf.
func (s *State) JobOf(tenant cell.TenantID, id cell.JobID) *Job {
	j := s.jobs[id]
	if j == nil || j.Lane.ID.Tenant != tenant {
		return nil
	}
	return j
}

// Jobs calls yield for every job, in no particular order, until it returns false.
func (s *State) Jobs(yield func(*Job) bool) {
	for _, j := range s.all {
		if !yield(j) {
			return
		}
	}
}

// List calls yield for the tenant's jobs accepted before the one numbered before, newest first, until it returns false. Before 0 means all.
func (s *State) List(tenant cell.TenantID, before uint64, yield func(*Job) bool) {
	t := s.tenants[tenant]
	if t == nil {
		return
	}
	end := len(t.list)
	if before != 0 {
		end = t.find(before)
	}
	for i := end - 1; i >= 0; i-- {
		if j := t.list[i].job; j != nil && !yield(j) {
			return
		}
	}
}

// NextTimer returns when time alone next changes the state, and 0 for never.
func (s *State) NextTimer() cell.Instant {
	var at cell.Instant
	if r := s.keys.oldest; r != nil {
		at = r.expires
	}
	if len(s.timers) > 0 {
		if t := s.timers[0].due; at == 0 || t < at {
			at = t
		}
	}
	return at
}

// find returns the index of the first place in the list numbered seq or above.
func (t *Tenant) find(seq uint64) int {
	return sort.Search(len(t.list), func(i int) bool { return t.list[i].seq >= seq })
}

// unlist empties a forgotten job's place, and makes the list anew once half of it is empty.
func (t *Tenant) unlist(j *Job) {
	t.list[t.find(j.Seq)].job = nil
	t.gone++
	if t.gone <= 64 || 2*t.gone <= len(t.list) {
		return
	}
	kept := make([]listed, 0, len(t.list)-t.gone)
	for _, p := range t.list {
		if p.job != nil {
			kept = append(kept, p)
		}
	}
	t.list, t.gone = kept, 0
}
