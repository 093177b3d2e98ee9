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
	// ErrLaneMoving is wrapped by the refusal of a lane that takes nothing until it is decided whose it is.
	ErrLaneMoving = errors.New("the lane is being moved: nothing was done, try again")
	// ErrLaneMoved is wrapped by the refusal of a lane that is elsewhere, or was since the caller looked.
	ErrLaneMoved = errors.New("the lane has moved: nothing was done, look where it is")
	// ErrLaneBehind is wrapped by the refusal of a caller who knows of a later epoch than this cell.
	ErrLaneBehind = errors.New("this cell does not know of the lane's epoch yet: nothing was done, try again")
	// ErrMoveStale is returned when a fact of a move comes after a later one's, or another's at the same epoch.
	ErrMoveStale = errors.New("another attempt, or a later epoch, has the lane")
	// ErrLaneFilled is returned when a lane that is to be staged, or filled, holds what is to be wiped before.
	ErrLaneFilled = errors.New("the lane holds what another attempt left: wipe it first")
	// ErrCursor is returned when what is to be imported does not follow what was.
	ErrCursor = errors.New("the records do not follow what was imported")
	// ErrCursorLost is returned when what follows a cursor is no longer known: the copy has to begin again, in an empty lane.
	ErrCursorLost = errors.New("what changed since the cursor is no longer known: wipe the copy and begin again")
	// ErrNotTracked is returned when a lane's changes are not noted.
	ErrNotTracked = errors.New("the lane is not tracked: track it first")
)

// LaneError is returned when a lane takes nothing. It wraps ErrLaneMoving, ErrLaneMoved or ErrLaneBehind.
type LaneError struct {
	Lane  cell.Lane
	Mode  cell.Mode
	Epoch cell.Epoch // the lane's here
	Err   error
}

func (e *LaneError) Error() string {
	return fmt.Sprintf("lane %s/%s is %v at epoch %d: %v", e.Lane.Tenant, e.Lane.Class, e.Mode, e.Epoch, e.Err)
}

// Unwrap returns what is the matter.
func (e *LaneError) Unwrap() error { return e.Err }

// ModeError is returned when what was asked of a lane cannot be in its mode.
type ModeError struct {
	Lane  cell.Lane
	Mode  cell.Mode // the lane's
	Epoch cell.Epoch
	Asked string
}

func (e *ModeError) Error() string {
	return fmt.Sprintf("lane %s/%s is %v at epoch %d: it cannot be asked to %s", e.Lane.Tenant, e.Lane.Class, e.Mode, e.Epoch, e.Asked)
}

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
