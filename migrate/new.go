package migrate

import (
	"github.com/fairlead/fairlead/cell"
)

// Declaration is what a migration is declared with.
type Declaration struct {
	ID             cell.MigrationID
	Tenant         cell.TenantID
	Source, Target cell.ID
	Reason, Actor  string // Reason is operator, whale, evacuate, return or rebalance
	Why            string // for people; may be empty
	Options        Options
	// Order is the classes in which they are switched; batch first when it is zero.
	Order [2]cell.Class
	// Epochs is those of the assignments, by Class.Index.
	Epochs [2]cell.Epoch
	Now    cell.Instant
}

// New returns a migration that was declared, with defaults for options that are zero. It returns a *cell.FieldError when something is out of bounds.
func New(d Declaration) (Record, error) {
	return Record{}, nil
}

// WithDefaults returns o with the defaults in place of zeroes.
func (o Options) WithDefaults() Options { return o }

// Validate returns a *cell.FieldError for the first option that is out of bounds.
func (o Options) Validate() error { return nil }
