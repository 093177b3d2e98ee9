package bench

import (
	"io"

	"github.com/fairlead/fairlead/control/consensus"
)

// nothing is a state machine without a state.
type nothing struct{}

var _ consensus.StateMachine = nothing{}

// Apply implements consensus.StateMachine.
func (nothing) Apply(uint64, []byte) any { return nil }

// Snapshot implements consensus.StateMachine.
func (nothing) Snapshot() (consensus.Snapshot, error) { return nothing{}, nil }

// Restore implements consensus.StateMachine.
func (nothing) Restore(io.Reader) error { return nil }

// WriteTo implements consensus.Snapshot.
func (nothing) WriteTo(io.Writer) (int64, error) { return 0, nil }

// Release implements consensus.Snapshot.
func (nothing) Release() {}
