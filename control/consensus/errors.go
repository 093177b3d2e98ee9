package consensus

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

var (
	// ErrNotApplied is returned when a proposal was definitely not applied and never will be.
	ErrNotApplied = errors.New("not applied")

	// ErrUnknown is returned when a proposal may or may not be applied, now or after a restart. Trying again is safe only
	// for commands that the state machine recognises as repeated.
	ErrUnknown = errors.New("outcome unknown")

	// ErrNotLeader is returned, together with ErrNotApplied, when this replica does not lead the group.
	ErrNotLeader = errors.New("not the leader")

	// ErrClosed is returned, together with ErrNotApplied, when the group is closing or closed.
	ErrClosed = errors.New("group is closed")

	// ErrTooLarge is returned, together with ErrNotApplied, when a proposal exceeds Config.EntryBytesMax.
	ErrTooLarge = errors.New("entry too large")

	// ErrCorrupt is returned when the directory holds something that this package did not write there or lacks something
	// that it did. Nothing is changed or deleted: restore the directory from a copy, or start the replica in an empty one.
	ErrCorrupt = errors.New("data is corrupt")

	// ErrLocked is returned when another process has the directory open.
	ErrLocked = errors.New("directory is in use by another process")

	// ErrForeign is returned when the directory belongs to a replica of another ID, or to a group that the configured ID is no
	// member of.
	ErrForeign = errors.New("directory belongs to another replica")

	// ErrStore is wrapped by what Config.OnFatal receives when the log or the vote store failed or hung.
	ErrStore = errors.New("store failed")

	// ErrWriteDeadline is returned, together with ErrStore, when a write outlasted Config.WriteDeadline.
	ErrWriteDeadline = errors.New("write deadline exceeded")

	// ErrQuorum is returned, together with ErrNotApplied, when a group would be left with too few voters.
	ErrQuorum = errors.New("too few voters")

	// ErrAddressTaken is returned, together with ErrNotApplied, when a member of another ID has the address already.
	ErrAddressTaken = errors.New("address belongs to another member")

	// ErrRestoring is returned, together with ErrNotApplied, while a Restore replaces the state.
	ErrRestoring = errors.New("the state is being restored")

	// ErrNothingNew is returned by SnapshotNow when nothing was applied since the group was created.
	ErrNothingNew = errors.New("nothing to snapshot")
)

// proposalError maps what raft answers to a proposal to one of the two outcomes other than applied. It is the only
// place where raft's errors are interpreted. What is not known to be definite is unknown: a wrong "not applied" loses
// or doubles work, a wrong "unknown" costs a retry.
//
// ErrRaftShutdown is unknown although raft also answers it to what was never enqueued: the same value is given to
// entries that were committed and not yet applied, and these are applied after a restart.
//
// ErrAbortedByRestore is unknown although raft calls it failed: the entry is in the log, and perhaps in other replicas', while
// the snapshot that overrules it is not yet written. If this replica dies just then, the entry can still be committed.
func proposalError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader):
		return fmt.Errorf("%w: %w", ErrNotApplied, ErrNotLeader)
	case errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return fmt.Errorf("%w: %w: leadership is being transferred", ErrNotApplied, ErrNotLeader)
	case errors.Is(err, raft.ErrEnqueueTimeout):
		return fmt.Errorf("%w: the log did not take the entry in time", ErrNotApplied)
	case errors.Is(err, raft.ErrAbortedByRestore):
		return fmt.Errorf("%w: a restore replaced the state while the entry was in flight", ErrUnknown)
	case errors.Is(err, raft.ErrLeadershipLost):
		return fmt.Errorf("%w: leadership was lost while the entry was being committed", ErrUnknown)
	case errors.Is(err, raft.ErrRaftShutdown):
		return fmt.Errorf("%w: the group was closed while the entry was in flight", ErrUnknown)
	default:
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
}
