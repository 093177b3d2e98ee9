package consensus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// snapshotRetry is the pause after a snapshot that failed, doubled with each further failure up to snapshotRetryMax. A
// failed snapshot harms nobody at once (the log only grows), so that it is no reason to end the process.
const (
	snapshotRetry    = time.Second
	snapshotRetryMax = time.Minute
)

// snapshotter decides when to take a snapshot and takes it.
type snapshotter struct {
	bytesMin int64
	store    *snapshotStore
	wake     chan struct{}   // capacity one: enough bytes have come together
	requests chan chan error // SnapshotNow

	base   atomic.Int64 // the guard's count of stored bytes when the last snapshot's generation was marked
	paused atomic.Bool  // after a failure
	taken  atomic.Uint64
	fails  atomic.Uint64
	took   atomic.Int64 // nanoseconds
}

// init starts the count at the bytes that a restart replays.
func (s *snapshotter) init(bytesMin int64, store *snapshotStore, replayBytes int64) {
	s.bytesMin = bytesMin
	s.store = store
	s.wake = make(chan struct{}, 1)
	s.requests = make(chan chan error)
	s.base.Store(-replayBytes)
}

// threshold is the bytes of log that make the next snapshot due.
func (s *snapshotter) threshold() int64 { return max(s.bytesMin, s.store.lastSize.Load()) }

// consider wakes the snapshotter when one is due. It is called after every Apply and must be cheap.
func (s *snapshotter) consider(stored int64) {
	if stored-s.base.Load() < s.threshold() || s.paused.Load() {
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// restart counts from here: the state has just come from a snapshot.
func (s *snapshotter) restart(stored int64) { s.base.Store(stored) }

// run takes the snapshots, one at a time.
func (s *snapshotter) run(node *raft.Raft, m *machine, logger *slog.Logger, stop <-chan struct{}) {
	pause := snapshotRetry
	var retry <-chan time.Time
	for {
		var reply chan error
		select {
		case <-stop:
			return
		case <-retry:
		case <-s.wake:
			if m.stored()-s.base.Load() < s.threshold() || s.paused.Load() {
				continue // the one that was just taken made this wake-up stale
			}
		case reply = <-s.requests:
		}
		err := s.take(node, m)
		failed := err != nil && !errors.Is(err, ErrNothingNew)
		s.paused.Store(failed)
		if failed {
			s.fails.Add(1)
			logger.Warn("snapshot", "error", err, "retry_in", pause)
			retry, pause = time.After(pause), min(2*pause, snapshotRetryMax)
		} else {
			retry, pause = nil, snapshotRetry
		}
		if reply != nil {
			reply <- err
		}
	}
}

func (s *snapshotter) take(node *raft.Raft, m *machine) error {
	start := time.Now()
	err := node.Snapshot().Error()
	if errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return ErrNothingNew
	}
	if err != nil {
		return err
	}
	s.base.Store(m.markedAt.Load())
	s.took.Store(int64(time.Since(start)))
	s.taken.Add(1)
	return nil
}

// request takes a snapshot on behalf of a caller.
func (s *snapshotter) request(ctx context.Context, stop <-chan struct{}) error {
	reply := make(chan error, 1)
	select {
	case s.requests <- reply:
	case <-stop:
		return ErrClosed
	case <-ctx.Done():
		return fmt.Errorf("wait for the snapshot before: %w", context.Cause(ctx))
	}
	select {
	case err := <-reply:
		return err
	case <-ctx.Done():
		return fmt.Errorf("wait for the snapshot: %w", context.Cause(ctx))
	}
}

func (s *snapshotter) stats(to *Stats, stored int64) {
	to.LogBytes = stored - s.base.Load()
	to.SnapshotAt = s.threshold()
	to.Snapshots = s.taken.Load()
	to.SnapshotFails = s.fails.Load()
	to.SnapshotBytes = s.store.lastSize.Load()
	to.SnapshotTook = time.Duration(s.took.Load())
}
