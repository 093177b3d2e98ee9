package engine

import (
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/cell"
)

// Why a fact was refused. The state is as it was before the fact.
var (
	// ErrTenantUnknown is returned when this cell has no record of the tenant.
	ErrTenantUnknown = errors.New("this cell has no lane of the tenant")
	// ErrJobUnknown is returned when the tenant has no such job, or its retention is over.
	ErrJobUnknown = errors.New("no such job: it was never accepted, or its retention is over")
	// ErrLeaseStale is returned when a token is not that of the job's live lease.
	ErrLeaseStale = errors.New("the lease is no longer the job's")
	// ErrJobIDTaken is returned when a job already has the id of a submission.
	ErrJobIDTaken = errors.New("the job's id is taken")
	// ErrPolicyStale is returned when a policy's epoch is below the lanes', or the organization's.
	ErrPolicyStale = errors.New("the policy's epoch is below the lanes'")
	// ErrOrganizationUnknown is returned when a tenant's policy names an organization that this cell has no record of.
	ErrOrganizationUnknown = errors.New("this cell has no record of the tenant's organization")
)

// KeyTakenError is returned when an idempotency key stands for a job with another body.
type KeyTakenError struct {
	Key   string
	JobID cell.JobID
}

func (e *KeyTakenError) Error() string {
	return fmt.Sprintf("idempotency key %q stands for %v, whose body is another: use another key, or the same body", e.Key, e.JobID)
}

// StateError is returned when what was asked cannot happen to a job in its state.
type StateError struct {
	JobID cell.JobID
	State JobState
	Asked string
}

func (e *StateError) Error() string {
	return fmt.Sprintf("%v is %v: it cannot be asked to %s", e.JobID, e.State, e.Asked)
}
