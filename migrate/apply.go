package migrate

import (
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/cell"
)

// ErrAttempt is returned when an event is of another attempt than the record's.
var ErrAttempt = errors.New("migrate: the event is of another attempt")

// TransitionError is returned when an event does not fit where the migration stands. Nothing was changed.
type TransitionError struct {
	State State
	Phase Phase // of the event's class; 0 for kinds without one
	Kind  Kind
	Why   string
}

func (e *TransitionError) Error() string {
	if e.Phase == 0 {
		return fmt.Sprintf("migrate: %s in state %s: %s", e.Kind, e.State, e.Why)
	}
	return fmt.Sprintf("migrate: %s in state %s, class %s: %s", e.Kind, e.State, e.Phase, e.Why)
}

// Apply returns the record after an event, or r itself with an error that says why the event is refused: ErrAttempt, or a *TransitionError. It checks whatever
// the record can know, whoever proposes.
func (r Record) Apply(e Event) (Record, error) {
	return r, &TransitionError{State: r.State, Kind: e.Kind, Why: "not yet"}
}

// Next returns what is to be done now. It is a function of what the record and the cells are, not of what was done before: after a crash, a lost or a repeated
// call the same is asked again. It never returns nothing: a Wait says what for.
func Next(r Record, o Observed, now cell.Instant, cfg Config) []Effect {
	return []Effect{Wait{For: "nothing"}}
}

// Gates returns what is proved or not of what the present state's next step needs: control's, then those of the cells.
func Gates(r Record, o Observed, cfg Config) []Gate { return nil }
