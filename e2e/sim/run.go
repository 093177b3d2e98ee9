package sim

import (
	"fmt"
	"time"

	"github.com/fairlead/fairlead/cell"
)

// Run is what came of a scenario under a policy.
type Run struct {
	Scenario string
	Policy   string
	Seed     uint64
	Unit     string // what costs are counted in
	Slots    int
	Workers  []Workers // groups: their slots are numbered through
	// Records of all jobs, in the order of their coming.
	Records []Record
	// Revoked are attempts that were taken back, in the order of their ends. Their jobs ran again from the start.
	Revoked []Attempt
	// Rules are what the policy had promised to keep, for Check.
	Rules Rules
	// End is when the last thing happened, or Scenario.Until.
	End   time.Duration
	Notes []string
}

// Record is what became of one job.
type Record struct {
	Job *Job
	// Start and End of the attempt that completed, or that is still running; meaningless in other states. End is 0 while it runs.
	Start, End time.Duration
	// Charged is what all its attempts cost together.
	Charged   cell.Cost
	Slot      int32 // where it ran, from 0; -1 if nowhere
	Preempted int32 // attempts that were taken back
	place     int32 // in Run.Records
	State     State
}

// State is what has become of a job.
type State uint8

// The states. A job is in one of the first two only where Scenario.Until cut the simulation short, or where no worker offers its operation to its
// tenant.
const (
	StateWaiting   State = 0
	StateRunning   State = 1
	StateCompleted State = 2
	StateRejected  State = 3 // by the bound on the tenant's backlog
	StateExpired   State = 4 // at its deadline
)

func (s State) String() string {
	switch s {
	case StateWaiting:
		return "waiting"
	case StateRunning:
		return "running"
	case StateCompleted:
		return "completed"
	case StateRejected:
		return "rejected"
	case StateExpired:
		return "expired"
	default:
		return fmt.Sprintf("state(%d)", uint8(s))
	}
}

// Attempt is a run of a job that was taken back before its end.
type Attempt struct {
	Job        *Job
	Start, End time.Duration
	Slot       int32
}

// Rules are bounds that a policy keeps in all it does. Concurrency keys are the jobs' own, and kept unless it says that it does not.
type Rules struct {
	// KeysIgnored says that concurrency keys are not kept: in production first in, first out is there to be compared with, and ignores them.
	KeysIgnored bool
	// RunningMax bounds the jobs of each tenant that run at a time; 0 is no bound.
	RunningMax int64
	// RunningMaxOf is the same for single tenants, and goes before it.
	RunningMaxOf map[string]int64
	// HandOf is the groups of workers that each tenant may run on, as cell.TenantPolicy.Groups has them; nil where hands are not kept.
	HandOf map[string]uint64
	// ClassMax bounds the slots of each class, by cell.Class.Index; 0 is no bound.
	ClassMax [2]int64
}

// Wait returns how long the job waited for the start of the attempt that completed.
func (r *Record) Wait() time.Duration { return r.Start - r.Job.Arrival }

// Latency returns the time from the job's coming to its completion.
func (r *Record) Latency() time.Duration { return r.End - r.Job.Arrival }
