package cellserver

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/admit"
	"github.com/fairlead/fairlead/cell/leader"
)

var (
	// ErrStopping is returned to calls that a closing cell did not get to.
	ErrStopping = errors.New("the cell is stopping: nothing was done, try again")
	// ErrNotLeading is returned to calls before Lead and after Close.
	ErrNotLeading = errors.New("the cell is not ready: nothing was done, try again")
	// ErrClock is returned by Lead when the log's time is ahead of this replica's clock by more than ClockSkewMax: another has to lead, or the
	// clock to be set.
	ErrClock = errors.New("the clock is behind the log's time")
	// errUnconfirmed ends calls whose answer needed no entry of the log, when it turns out that another replica may have led meanwhile.
	errUnconfirmed = errors.New("another replica may have led")
	// errRefused ends the calls of a leader whose entry the state refused: what became of them is not known.
	errRefused = errors.New("the state refused what was sealed on it")
)

// Proposal is an entry on its way through the log.
type Proposal interface {
	// Done is closed when the entry was applied or its fate is known otherwise.
	Done() <-chan struct{}
	// Wait returns nil when the entry was applied.
	Wait(ctx context.Context) (result any, index uint64, err error)
}

// Log is the cell's replicated log.
type Log interface {
	// Propose appends an entry; it must not be changed after that.
	Propose(data []byte) Proposal
	// Position returns the last index, the last snapshot's, and the bytes logged since.
	Position() (index, snapshot uint64, bytes int64)
	// Verify returns nil when this replica still led at some time after the call began. What was read before it is then no older than the call.
	Verify(ctx context.Context) error
}

// ClockSkewMax is how far a leader's clock may be behind the time that its log has reached. Delays and deadlines are off by as much.
const ClockSkewMax = 5 * time.Second

// Config is what a Server is made with. Every field without a default must be set.
type Config struct {
	// Cell is the cell's name.
	Cell string
	// Version of the binary, for people.
	Version string
	// Admit and Leader default to their packages' defaults. The limits of a new state are the leader's.
	Admit  admit.Limits
	Leader leader.Config
	// Caller returns who makes a request, as the door has authenticated them.
	Caller func(context.Context) (cell.Caller, bool)
	// NotApplied reports whether a proposal's error says that the entry was certainly not applied.
	NotApplied func(error) bool
	// DiskFree returns the bytes that are free where the log is; nil when nobody can tell. Below a bound no new jobs are taken.
	DiskFree func() (int64, error)
	Logger   *slog.Logger
}

// DefaultConfig returns the defaults for a cell of that name.
func DefaultConfig(name string) Config {
	return Config{
		Cell: name, Version: "unknown", Admit: admit.DefaultLimits(), Leader: leader.DefaultConfig(),
		NotApplied: func(error) bool { return false }, Logger: slog.Default(),
	}
}

// Validate returns all faults of c together, and nil when there are none.
func (c Config) Validate() error {
	var errs []error
	if err := cell.CheckID("cell", c.Cell); err != nil {
		errs = append(errs, err)
	}
	if c.Caller == nil {
		errs = append(errs, errors.New("caller is missing: say how requests are authenticated"))
	}
	return errors.Join(errors.Join(errs...), c.Admit.Validate(), c.Leader.Validate())
}
