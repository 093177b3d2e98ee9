package consensus

import (
	"errors"
	"io"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// StateMachine is what a group replicates into. Apply, Snapshot and Restore are never called concurrently.
type StateMachine interface {
	// Apply applies the entry at index, from one goroutine, in log order. Its result is handed to the proposer when the
	// proposer is in this process. It must depend on nothing but the state and its arguments, and must not keep data beyond
	// the call unless the proposer leaves it alone too. An entry that it cannot understand is a programmer's error: panic.
	Apply(index uint64, data []byte) any

	// Snapshot marks a generation and returns at once: it is called between two Applys and stops them.
	Snapshot() (Snapshot, error)

	// Restore replaces the whole state by what Snapshot.WriteTo wrote. An error leaves the state undefined.
	Restore(r io.Reader) error
}

// Snapshot is one generation of a state machine.
type Snapshot interface {
	// WriteTo writes the generation while Apply goes on. It must return soon after w returned an error.
	WriteTo(w io.Writer) (int64, error)

	// Release is called once, after WriteTo or instead of it.
	Release()
}

// machine is the thin adapter between raft and the state machine.
type machine struct {
	sm        StateMachine
	proposals *register
	stored    func() int64                     // bytes stored in the log so far
	onApply   func(index uint64, stored int64) // told after each Apply
	onInstall func(error)                      // told after each Restore since running was set; an error leaves no state to go on with

	markedAt   atomic.Int64 // stored() when the last generation was marked
	running    atomic.Bool
	restoreErr error // why the Restore of the start failed; raft hides it
}

var _ raft.FSM = (*machine)(nil)

// Apply implements raft.FSM.
func (m *machine) Apply(entry *raft.Log) any {
	result := m.sm.Apply(entry.Index, entry.Data)
	if id, ok := decodeProposalID(entry.Extensions); ok {
		m.proposals.finish(id, result, entry.Index, nil)
	}
	m.onApply(entry.Index, m.stored())
	return nil
}

// Snapshot implements raft.FSM.
func (m *machine) Snapshot() (raft.FSMSnapshot, error) {
	stored := m.stored()
	generation, err := m.sm.Snapshot()
	if err != nil {
		return nil, err
	}
	m.markedAt.Store(stored)
	return fsmSnapshot{generation: generation}, nil
}

// Restore implements raft.FSM.
func (m *machine) Restore(source io.ReadCloser) error {
	err := errors.Join(m.sm.Restore(source), source.Close())
	if m.running.Load() {
		m.onInstall(err)
	} else {
		m.restoreErr = err
	}
	return err
}

// fsmSnapshot adapts a Snapshot to raft's.
type fsmSnapshot struct {
	generation Snapshot
}

// Persist implements raft.FSMSnapshot. Raft closes or cancels the sink after it.
func (s fsmSnapshot) Persist(sink raft.SnapshotSink) error {
	_, err := s.generation.WriteTo(sink)
	return err
}

// Release implements raft.FSMSnapshot.
func (s fsmSnapshot) Release() { s.generation.Release() }
