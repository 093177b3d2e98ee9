package cell

import (
	"fmt"
	"time"
)

// FieldError is returned when a caller's input is outside its bounds: nothing was done, and repeating the same input will not help.
type FieldError struct {
	Field   string // the path of the field, such as job.cost
	Problem string // what is wrong, with the value and the bound
	Remedy  string // what to do instead
}

func (e *FieldError) Error() string {
	return fmt.Sprintf("%s %s: %s", e.Field, e.Problem, e.Remedy)
}

// Scope says whose a limit is.
type Scope string

// The scopes of limits. A lane's and a tenant's limit are the caller's own; a cell's is everybody's.
const (
	ScopeLane   Scope = "lane"
	ScopeTenant Scope = "tenant"
	ScopeCell   Scope = "cell"
)

// LimitError is returned when something was refused because of a limit: nothing was done, and the same call may succeed later.
type LimitError struct {
	Limit      string        // the limit's name, such as backlog_jobs_max
	Scope      Scope         // whose limit it is
	Value      int64         // what it would have stood at
	Bound      int64         // what it may stand at
	RetryAfter time.Duration // when it makes sense to try again
	Remedy     string        // what to do instead of trying again
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%s of the %s would be %d, of at most %d: %s", e.Limit, e.Scope, e.Value, e.Bound, e.Remedy)
}
