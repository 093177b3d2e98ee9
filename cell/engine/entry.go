package engine

import (
	"fmt"
	"time"

	"github.com/fairlead/fairlead/cell"
)

// Entry is one entry of a cell's log: facts in order, as of one time. Submissions and outcomes come first, then the grants they permit.
type Entry struct {
	// Time is when the entry was sealed. The log's time is the greater of it and the last entry's.
	Time cell.Instant
	// Facts are applied in their order, each on its own: one that is refused does not stop the others.
	Facts []Fact
	// Where lanes, tenants and organizations stand in the scheduler after the entry's grants and settlements: of those that were charged, as
	// far as it would not follow from nothing.
	Accounts             []AccountFact
	TenantAccounts       []TenantAccountFact
	OrganizationAccounts []OrganizationAccountFact
}

// Fact is one thing that an entry says. The set is closed: see the types below.
type Fact interface{ kind() factKind }

type factKind uint8

// The kinds of fact, as the log writes them. Numbers are never used again.
const (
	kindPolicy       factKind = 1
	kindSubmit       factKind = 2
	kindOutcome      factKind = 3
	kindCancel       factKind = 4
	kindRetry        factKind = 5
	kindGrant        factKind = 6
	kindCharge       factKind = 7
	kindLimits       factKind = 8
	kindOrganization factKind = 9
	kindStage        factKind = 10
	kindTrack        factKind = 11
	kindMode         factKind = 12
	kindImport       factKind = 13
	kindWipe         factKind = 14
	kindProve        factKind = 15
)

// PolicyFact opens a tenant's lanes, or changes what the tenant is promised. Its organization, if it has one, must be known.
type PolicyFact struct{ Policy cell.TenantPolicy }

// OrganizationFact makes an organization known, or changes what it is promised.
type OrganizationFact struct{ Policy cell.OrganizationPolicy }

// SubmitFact accepts a job.
type SubmitFact struct {
	ID       cell.JobID
	Tenant   cell.TenantID
	Class    cell.Class
	BodyHash [16]byte
	Spec     Spec
	// Epoch is that at which the caller knows the lane, 0 when it does not say; so in the facts below.
	Epoch cell.Epoch
}

// OutcomeFact ends the lease that Token names.
type OutcomeFact struct {
	ID    cell.JobID
	Token Token
	Kind  OutcomeKind
	// Result of a success.
	Result Payload
	// Error of a failure.
	Error string
	// WakeAt is when a job that goes back may run again: at once when it is not after the entry's time.
	WakeAt cell.Instant
	// Charged is what the attempt has been charged in all, the estimate settled.
	Charged cell.Cost
	// Used is what the attempt used of the cell's resources, as far as its worker said; nil for nothing.
	Used *cell.Resources
	// Ran is how long its handler ran, as far as the cell can tell.
	Ran   time.Duration
	Epoch cell.Epoch // of the routing: the token's own is never compared with the lane's
}

// OutcomeKind is what came of an attempt. The numbers are part of the log's format.
type OutcomeKind uint8

// The kinds of outcome. A Failure spends an attempt; a Release, a Loss, a Crash and a Preempt do not, but three crashes quarantine.
const (
	OutcomeNone    OutcomeKind = 0
	OutcomeSuccess OutcomeKind = 1
	OutcomeFailure OutcomeKind = 2 // the handler failed; it may be tried again
	OutcomeFatal   OutcomeKind = 3 // the handler failed, and says that no retry can help
	OutcomeRelease OutcomeKind = 4 // handed back: not started, or the worker shut down
	OutcomeLoss    OutcomeKind = 5 // the infrastructure lost the attempt, for no fault of the job's
	OutcomeCrash   OutcomeKind = 6 // the lease expired while the job's worker should have been running it
	OutcomePreempt OutcomeKind = 7 // the cell took it back for a class whose own slot it held: it is ready at once, in its place
)

// Teaches reports whether what an attempt cost that ended so says what the next job of its operation will cost: only where the handler came to
// its end.
func (k OutcomeKind) Teaches() bool {
	return k == OutcomeSuccess || k == OutcomeFailure || k == OutcomeFatal
}

func (k OutcomeKind) String() string {
	switch k {
	case OutcomeNone:
		return "none"
	case OutcomeSuccess:
		return "success"
	case OutcomeFailure:
		return "failure"
	case OutcomeFatal:
		return "fatal failure"
	case OutcomeRelease:
		return "release"
	case OutcomeLoss:
		return "loss"
	case OutcomeCrash:
		return "crash"
	case OutcomePreempt:
		return "preempt"
	default:
		return fmt.Sprintf("outcome(%d)", uint8(k))
	}
}

// CancelFact ends a job that has not ended.
type CancelFact struct {
	ID     cell.JobID
	Tenant cell.TenantID // whose job the caller may cancel
	// Charged is what the running attempt has been charged in all, where there is one.
	Charged cell.Cost
	Epoch   cell.Epoch
}

// RetryFact makes a job that ended without success ready again.
type RetryFact struct {
	ID     cell.JobID
	Tenant cell.TenantID
	Epoch  cell.Epoch
}

// GrantFact leases a ready job to a worker session.
type GrantFact struct {
	ID    cell.JobID
	Lease Lease // Token.Epoch and Token.Attempt are set by Apply
}

// ChargeFact charges an attempt that has run longer than it was charged for.
type ChargeFact struct {
	ID      cell.JobID
	Token   Token
	Charged cell.Cost // in all, from now on
}

// LimitsFact changes the cell's limits. They reach the state through the log only: a replica that took them from its own configuration would
// come to another state than the others, or than itself before a restart.
type LimitsFact struct{ Limits Limits }

// AccountFact is where a lane stands in the scheduler's rotation and with its reservation, so that what it overspent, and what it has had of its
// reservation, outlive a restart.
type AccountFact struct {
	Lane    cell.Lane
	Account cell.LaneAccount
}

// TenantAccountFact is where a tenant stands with its limit and its credit.
type TenantAccountFact struct {
	Tenant  cell.TenantID
	Account cell.TenantAccount
}

// OrganizationAccountFact is where an organization stands.
type OrganizationAccountFact struct {
	Organization cell.OrganizationID
	Account      cell.OrganizationAccount
}

func (*PolicyFact) kind() factKind  { return kindPolicy }
func (*SubmitFact) kind() factKind  { return kindSubmit }
func (*OutcomeFact) kind() factKind { return kindOutcome }
func (*CancelFact) kind() factKind  { return kindCancel }
func (*RetryFact) kind() factKind   { return kindRetry }
func (*GrantFact) kind() factKind   { return kindGrant }
func (*ChargeFact) kind() factKind  { return kindCharge }
func (*LimitsFact) kind() factKind  { return kindLimits }

func (*OrganizationFact) kind() factKind { return kindOrganization }

// records is how many records the entry takes.
func (e *Entry) records() int {
	return len(e.Facts) + len(e.Accounts) + len(e.TenantAccounts) + len(e.OrganizationAccounts)
}

// Empty reports whether applying e would do nothing but let time pass.
func (e *Entry) Empty() bool { return e.records() == 0 }
