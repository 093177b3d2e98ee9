package engine

import (
	"math"
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
	// Open lanes with timers by their first one, and with keys of ended jobs by their first one: those that never moved and those that have.
	timing     lanesByTimer
	keyed      [2]lanesByKey
	keyRecords int64 // keys in all lanes, those of live jobs included

	counts              [jobStates]int64
	liveJobs, liveBytes int64
	finishedBytes       int64 // of open lanes
	resting             int64 // the same of the others, which are not trimmed

	// What the counters above grew by because of imports, since the process began.
	passed, numbered uint64

	tracked    []*Lane   // those that are, in no order
	trackings  uint64    // how many trackings there were since the process began
	digests    uint64    // and digests
	scratch    writer    // of what is computed of one record and forgotten
	goneMax    int       // see trackedDeletionsMax
	dirty      []*trail  // what changed in this Apply, in the order in which it first did
	shares     []share   // and what credit was moved by lanes' modes
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

	// The jobs in the order of their acceptance.
	list order[Job]
	// The ended jobs, in the order of their ends: those that have lost payload and result, and those that have not. The oldest lose
	// theirs first, so every dropped one is older than every whole one, except in a lane that was filled.
	dropped, whole              jobList
	finishedJobs, finishedBytes int64
	timers                      timerHeap
	keys                        map[keyHash]*keyRecord
	window                      order[keyRecord] // those of ended jobs, by the ends
	// Where it is among State.keepers, State.timing, and State.keyed: -1 where it is not.
	keeper, timed, keying int
	written               uint64 // the last snapshot generation that has this lane's record

	opened    uint64             // the index of the entry that made it what it is
	wiping    bool               // a part of it was removed while it was staged: it takes nothing until it is staged anew
	inherited *inherited         // what was imported of its tenant, until it opens
	atFence   cell.TenantAccount // where the tenant stood, while the lane is fenced
	tracker   *tracker           // nil while it is not tracked
	digest    *digest            // nil until it is asked for
}

// serves reports whether the lane does what lanes do.
func (l *Lane) serves() bool { return l.Mode == cell.ModeOpen }

// holds reports whether the leases of the lane's jobs are this cell's to count.
func (l *Lane) holds() bool { return l.Mode == cell.ModeOpen || l.Mode == cell.ModeFenced }

// other returns the tenant's other lane.
func (l *Lane) other() *Lane { return l.Tenant.lanes[1-l.ID.Class.Index()] }

// After returns the first of the lane's jobs that was accepted after the one numbered seq, and nil when there is none.
func (l *Lane) After(seq uint64) *Job { return l.list.after(seq) }

// List calls yield for the lane's jobs accepted before the one numbered before, newest first, until it returns false. Before 0 means all.
func (l *Lane) List(before uint64, yield func(*Job) bool) {
	if before == 0 {
		before = math.MaxUint64
	}
	for j := l.list.before(before); j != nil && yield(j); {
		j = l.list.before(j.Seq)
	}
}

// New returns the empty state of a cell. The limits hold until a LimitsFact changes them, which should be the first fact of every log: replicas
// with other limits come to other states. It returns an error when the limits are at fault.
func New(limits Limits) (*State, error) {
	if err := limits.Validate(); err != nil {
		return nil, err
	}
	return &State{
		limits: limits, tenants: map[cell.TenantID]*Tenant{}, organizations: map[cell.OrganizationID]*Organization{},
		jobs: map[cell.JobID]*Job{}, keyed: [2]lanesByKey{{}, {moved: true}}, goneMax: trackedDeletionsMax,
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

// Totals returns the number of the job accepted last, and how many ends there were. Jobs that are imported raise the first to theirs, see
// [State.Passed], and the second not at all while the process lives; it is for the difference of two moments.
func (s *State) Totals() (accepted, ended uint64) { return s.accepted, s.ended - s.numbered }

// Passed returns how many numbers of acceptance were passed by since the process began, because jobs with later ones were imported.
func (s *State) Passed() uint64 { return s.passed }

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

// List calls yield for the tenant's jobs accepted before the one numbered before, newest first, until it returns false. Before 0 means all. Two jobs
// have one number only where their lanes came from different cells: the interactive lane's is first.
func (s *State) List(tenant cell.TenantID, before uint64, yield func(*Job) bool) {
	t := s.tenants[tenant]
	if t == nil {
		return
	}
	if before == 0 {
		before = math.MaxUint64
	}
	a, b := t.lanes[0].list.before(before), t.lanes[1].list.before(before)
	for a != nil || b != nil {
		if b == nil || a != nil && a.Seq >= b.Seq {
			if !yield(a) {
				return
			}
			a = t.lanes[0].list.before(a.Seq)
			continue
		}
		if !yield(b) {
			return
		}
		b = t.lanes[1].list.before(b.Seq)
	}
}

// NextTimer returns when time alone next changes the state, and 0 for never.
func (s *State) NextTimer() cell.Instant {
	var at cell.Instant
	sooner := func(t cell.Instant) {
		if at == 0 || t < at {
			at = t
		}
	}
	for i := range s.keyed {
		if len(s.keyed[i].lanes) > 0 {
			sooner(s.keyed[i].lanes[0].window.first().expires)
		}
	}
	if len(s.timing) > 0 {
		sooner(s.timing[0].timers[0].due)
	}
	return at
}
