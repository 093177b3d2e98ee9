package leader

import (
	"errors"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	"github.com/fairlead/fairlead/cell/sched"
)

// ErrPollReplaced is returned to a poll when its session polls again: the worker has given the earlier call up.
var ErrPollReplaced = errors.New("the session polls again: this poll is over")

// Call is something that was asked of the cell. Exactly one of the pointers is set. When it is done its results are filled in, and nobody
// touches it any more.
type Call struct {
	// Owner is the caller's own: the leader hands it back untouched.
	Owner any

	Submit *Submit
	Report *Report
	Poll   *Poll
	Cancel *Cancel
	Retry  *Retry
	Policy *Policy
	Stage  *Stage
	Track  *Track
	Mode   *Mode
	Import *Import
	Wipe   *Wipe
	Prove  *Prove

	// Err is set when the call as a whole came to nothing, and no result of its items counts.
	Err error

	pending int // items that are in flight
	done    bool

	// Of a report or a poll: who asks for jobs, how many it still wants, and what it was granted.
	session *session
	left    int
	granted int
	bytes   int64

	prev, next *Call         // neighbours among the open polls
	offer      sched.OfferID // its session's, while it is among them
}

// Epochs are what a caller knows of a tenant's lanes, by cell.Class.Index; 0 is not known. What is asked of a lane that has moved since, or that
// this cell has yet to hear of, is refused with the engine's errors for it, item by item.
type Epochs [2]cell.Epoch

// of returns what is known of a class's lane.
func (e Epochs) of(c cell.Class) cell.Epoch {
	if !c.Valid() {
		return 0
	}
	return e[c.Index()]
}

// Submit asks for jobs to be accepted. Results has one for each item.
type Submit struct {
	Items   []engine.SubmitFact
	Epochs  Epochs
	Results []engine.Result

	next int
}

// Cancel asks for a job to be ended.
type Cancel struct {
	Tenant cell.TenantID
	JobID  cell.JobID
	Epochs Epochs
	Result engine.Result
}

// Retry asks for a job that ended without success to be tried again.
type Retry struct {
	Tenant cell.TenantID
	JobID  cell.JobID
	Epochs Epochs
	Result engine.Result
}

// Policy tells the cell what control promises some organizations and some tenants, the organizations first. What the cell cannot hold beside its
// other promises is refused in its result, with the numbers.
type Policy struct {
	Organizations []cell.OrganizationPolicy
	Policies      []cell.TenantPolicy
	Results       []engine.Result // one for each organization, then one for each tenant

	next int
}

func (p *Policy) len() int { return len(p.Organizations) + len(p.Policies) }

// Outcome is what a worker reports of one lease.
type Outcome struct {
	JobID  cell.JobID
	Token  engine.Token
	Kind   engine.OutcomeKind
	Result engine.Payload
	Error  string
	// Delay before the job may run again: it overrides the back-off of a failure when it is above 0.
	Delay time.Duration
	// RunTime is how long the handler ran; 0 when the worker does not say.
	RunTime time.Duration
	// Used is what it used of the cell's resources; nil when the worker does not say.
	Used *cell.Resources
}

// LeaseRef names a lease.
type LeaseRef struct {
	JobID cell.JobID
	Token engine.Token
}

// SessionID names a worker session: that of a tenant's own worker, or of the platform's when Tenant is empty.
type SessionID struct {
	Tenant cell.TenantID
	Name   string
}

// Report hands in outcomes and extensions, and may ask for further jobs.
type Report struct {
	Session    SessionID
	Sequence   int64
	Epochs     Epochs
	Outcomes   []Outcome
	Extensions []LeaseRef
	Want       int

	Results []engine.Result // one for each outcome
	Cancels []LeaseRef      // leases to stop working on
	// Elsewhere are the extensions of leases that live on where their lanes have moved to: they are neither extended here nor to be stopped. What
	// is leased in a lane that is fenced here is none of them: its time stands still, and it counts as extended.
	Elsewhere []LeaseRef
	Leases    []Leased

	next int
}

// Poll asks for jobs, and waits for the first.
type Poll struct {
	Session        SessionID
	Worker         string
	Operations     []cell.Operation // sorted, without repetition
	Group          cell.WorkerGroup // that the worker belongs to, 0 for none; a tenant's own worker runs its tenant's jobs whatever it says
	Classes        [2]bool          // by cell.Class.Index
	Slots          int64
	Prefetch       int64
	Sequence       int64
	ReportSequence int64
	Held           []LeaseRef
	Want           int
	Until          cell.Instant // when to answer without jobs
	LeaseDuration  time.Duration

	Leases []Leased

	abandoned bool
}

// Leased is a lease as a worker is told of it.
type Leased struct {
	JobID    cell.JobID
	Token    engine.Token
	Lane     cell.Lane
	Spec     engine.Spec
	Attempt  int32
	Created  cell.Instant
	Duration time.Duration
}
