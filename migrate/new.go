package migrate

import (
	"fmt"
	"time"

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
	// Order is the classes in which they are switched; that of DefaultOrder when it is zero.
	Order [2]cell.Class
	// Epochs is those of the assignments, by Class.Index.
	Epochs [2]cell.Epoch
	Now    cell.Instant
}

// DefaultOrder is the order in which classes are switched: whoever waits for batch work notices least when something is wrong.
func DefaultOrder() [2]cell.Class { return [2]cell.Class{cell.ClassBatch, cell.ClassInteractive} }

// New returns a migration that was declared. Options are taken as they are: whoever proposes one fills in the defaults, so that no replica of control's log
// ever has others. It returns a *cell.FieldError when something is out of bounds.
func New(d Declaration) (Record, error) {
	if err := d.validate(); err != nil {
		return Record{}, err
	}
	r := Record{
		ID: d.ID, Tenant: d.Tenant, Source: d.Source, Target: d.Target, Reason: d.Reason, Actor: d.Actor, Options: d.Options,
		State: Declared, Attempt: 1, Generation: 1, Order: d.Order, Created: d.Now, Entered: d.Now,
	}
	if r.Order == ([2]cell.Class{}) {
		r.Order = DefaultOrder()
	}
	for i := range r.Lanes {
		r.Lanes[i] = Lane{Phase: AtSource, Owner: d.Source, Epoch: d.Epochs[i]}
	}
	r.note(Note{At: d.Now, Actor: d.Actor, What: fmt.Sprintf("declared: %s from %s to %s", d.Tenant, d.Source, d.Target), Why: d.Why})
	return r, nil
}

func (d *Declaration) validate() error {
	for _, f := range []struct{ field, value string }{
		{"id", string(d.ID)}, {"tenant", string(d.Tenant)}, {"source", string(d.Source)}, {"target", string(d.Target)},
	} {
		if err := cell.CheckID(f.field, f.value); err != nil {
			return err
		}
	}
	if d.Source == d.Target {
		return &cell.FieldError{Field: "target", Problem: fmt.Sprintf("is %s, where the tenant is", d.Target), Remedy: "name another cell"}
	}
	ordered := d.Order[0].Valid() && d.Order[1].Valid() && d.Order[0] != d.Order[1]
	if d.Order != ([2]cell.Class{}) && !ordered {
		return &cell.FieldError{Field: "order", Problem: fmt.Sprintf("is %s, %s", d.Order[0], d.Order[1]), Remedy: "name each class once"}
	}
	return d.Options.Validate()
}

// Defaults and bounds of options.
const (
	defaultPauseMax       = 2 * time.Second
	defaultCanaryJobs     = 100
	defaultCanaryTime     = 30 * time.Second
	defaultRollbackWindow = 24 * time.Hour
	defaultBytesPerSecond = 16 << 20

	// A pause above what a gateway parks a call for, 5 s, would be seen by clients.
	PauseMaxMin       = 10 * time.Millisecond
	PauseMaxMax       = 5 * time.Second
	CanaryJobsMax     = 1_000_000
	CanaryTimeMax     = 24 * time.Hour
	RollbackWindowMax = 30 * 24 * time.Hour
	BytesPerSecondMin = 64 << 10
	BytesPerSecondMax = 1 << 30
	PriorityMax       = 1000
)

// DefaultOptions returns what a migration is done with unless something else is asked for.
func DefaultOptions() Options {
	return Options{
		PauseMax: defaultPauseMax, CanaryJobs: defaultCanaryJobs, CanaryTime: defaultCanaryTime,
		RollbackWindow: defaultRollbackWindow, BytesPerSecond: defaultBytesPerSecond,
	}
}

// WithDefaults returns o with the defaults in place of zeroes. Who means none of a canary, or no window, sets that afterwards.
func (o Options) WithDefaults() Options {
	d := DefaultOptions()
	if o.PauseMax == 0 {
		o.PauseMax = d.PauseMax
	}
	if o.CanaryJobs == 0 {
		o.CanaryJobs = d.CanaryJobs
	}
	if o.CanaryTime == 0 {
		o.CanaryTime = d.CanaryTime
	}
	if o.RollbackWindow == 0 {
		o.RollbackWindow = d.RollbackWindow
	}
	if o.BytesPerSecond == 0 {
		o.BytesPerSecond = d.BytesPerSecond
	}
	return o
}

// Validate returns a *cell.FieldError for the first option that is out of bounds.
func (o Options) Validate() error {
	for _, f := range []struct {
		field             string
		value, least, max int64
		show              func(int64) string
	}{
		{"options.pause_max", int64(o.PauseMax), int64(PauseMaxMin), int64(PauseMaxMax), duration},
		{"options.canary_jobs", o.CanaryJobs, 0, CanaryJobsMax, number},
		{"options.canary_time", int64(o.CanaryTime), 0, int64(CanaryTimeMax), duration},
		{"options.rollback_window", int64(o.RollbackWindow), 0, int64(RollbackWindowMax), duration},
		{"options.bytes_per_second", o.BytesPerSecond, BytesPerSecondMin, BytesPerSecondMax, number},
		{"options.priority", int64(o.Priority), -PriorityMax, PriorityMax, number},
	} {
		if f.value < f.least || f.value > f.max {
			return &cell.FieldError{
				Field: f.field, Problem: "is " + f.show(f.value), Remedy: fmt.Sprintf("use %s to %s", f.show(f.least), f.show(f.max)),
			}
		}
	}
	return nil
}

func duration(n int64) string { return time.Duration(n).String() }

func number(n int64) string { return fmt.Sprintf("%d", n) }
