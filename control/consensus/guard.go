package consensus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// errKeyNotFound reads as raft expects it: it compares the text.
var errKeyNotFound = errors.New("not found")

// errStoreClosed is what raft's stragglers get after Close; it is not a failure of the store.
var errStoreClosed = errors.New("store is closed")

// guard stands between raft and its two stores. It makes them fail-stop, puts checksums on what is stored and verifies them,
// and keeps the mark.
//
// The watchdog is a timer and the write runs on raft's own goroutine: handing it to another would cost two hops on the path
// of every entry, and a write that hangs cannot be interrupted anyway.
type guard struct {
	log      raft.LogStore
	stable   raft.StableStore
	deadline time.Duration
	onFatal  func(error)

	stored    atomic.Int64  // bytes of entries written since the process started
	lastWrite atomic.Int64  // nanoseconds that the last StoreLogs took, fsync included
	installs  atomic.Uint64 // snapshots that came from a leader since an entry was stored
	closed    atomic.Bool
	failed    atomic.Pointer[error]
	failOnce  sync.Once

	mu struct { // serialises what changes the mark
		sync.Mutex
		mark *mark
	}

	kept atomic.Pointer[keptEntries]
}

// keptEntries are entries that were read and verified when the directory was opened. Raft reads them twice more, once for
// the group's membership and once for the replay, and the log reads 64 KiB for each.
type keptEntries struct {
	first   uint64
	entries []raft.Log
}

var (
	_ raft.LogStore          = (*guard)(nil)
	_ raft.MonotonicLogStore = (*guard)(nil)
	_ raft.StableStore       = (*guard)(nil)
)

func newGuard(log raft.LogStore, stable raft.StableStore, m *mark, deadline time.Duration, onFatal func(error)) *guard {
	g := &guard{log: log, stable: stable, deadline: deadline, onFatal: onFatal}
	g.mu.mark = m
	return g
}

// keep serves entries from memory until release, or until the log is cut.
func (g *guard) keep(first uint64, entries []raft.Log) {
	g.kept.Store(&keptEntries{first: first, entries: entries})
}

// release frees what keep holds.
func (g *guard) release() { g.kept.Store(nil) }

// applied frees it when the last of it was applied, which is what it was kept for.
func (g *guard) applied(index uint64) {
	if kept := g.kept.Load(); kept != nil && index >= kept.first+uint64(len(kept.entries)) {
		g.release()
	}
}

// usable returns why the store must not be used any more.
func (g *guard) usable() error {
	if err := g.failed.Load(); err != nil {
		return *err
	}
	if g.closed.Load() {
		return errStoreClosed
	}
	return nil
}

// fail is the one-way street: the first failure reaches OnFatal and is what every later call returns.
func (g *guard) fail(op string, cause error) error {
	g.failOnce.Do(func() {
		err := fmt.Errorf("%w: %s: %w", ErrStore, op, cause)
		g.failed.Store(&err)
		g.onFatal(err)
	})
	return *g.failed.Load()
}

// write runs one write under the deadline. When the deadline passed meanwhile its success is not believed: the process is
// on its way out and has told so.
func (g *guard) write(op string, do func() error) error {
	if err := g.usable(); err != nil {
		return err
	}
	watchdog := time.AfterFunc(g.deadline, func() {
		_ = g.fail(op, fmt.Errorf("%w (%s)", ErrWriteDeadline, g.deadline))
	})
	err := do()
	watchdog.Stop()
	if err != nil {
		return g.fail(op, err)
	}
	return g.usable()
}

// moveMark changes the mark after, and only after, what it speaks of is durable.
func (g *guard) moveMark(change func(*progress)) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.mu.mark.at
	change(&at)
	return g.mu.mark.set(at)
}

func (g *guard) syncMark() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.mark.sync()
}

// StoreLog implements raft.LogStore.
func (g *guard) StoreLog(entry *raft.Log) error { return g.StoreLogs([]*raft.Log{entry}) }

// StoreLogs implements raft.LogStore.
func (g *guard) StoreLogs(entries []*raft.Log) error {
	if len(entries) == 0 {
		return nil
	}
	var size int64
	sealed := make([]*raft.Log, len(entries))
	for i, entry := range entries {
		sealed[i] = sealEntry(entry)
		size += entryBytes(entry)
	}
	last := entries[len(entries)-1].Index
	return g.write("store entries", func() error {
		start := time.Now()
		if err := g.log.StoreLogs(sealed); err != nil {
			return err
		}
		g.lastWrite.Store(int64(time.Since(start)))
		g.stored.Add(size)
		g.installs.Store(0)
		return g.moveMark(func(at *progress) { at.LastIndex = last })
	})
}

// entryBytes is what an entry counts for in Config.SnapshotBytes: its data and about what the store adds to it.
func entryBytes(entry *raft.Log) int64 {
	const overhead = 64
	return int64(len(entry.Data)) + overhead
}

// GetLog implements raft.LogStore.
func (g *guard) GetLog(index uint64, entry *raft.Log) error {
	if err := g.usable(); err != nil {
		return err
	}
	if kept := g.kept.Load(); kept != nil && index >= kept.first && index-kept.first < uint64(len(kept.entries)) {
		*entry = kept.entries[index-kept.first]
		return nil
	}
	err := g.log.GetLog(index, entry)
	if errors.Is(err, raft.ErrLogNotFound) {
		return g.missing(index)
	}
	if err == nil {
		err = unsealEntry(index, entry)
	}
	if err != nil {
		return g.fail("read entry", err)
	}
	return nil
}

// missing tells an index outside the log, which raft may ask for, from a hole in it.
func (g *guard) missing(index uint64) error {
	first, err := g.log.FirstIndex()
	if err != nil {
		return g.fail("read first index", err)
	}
	last, err := g.log.LastIndex()
	if err != nil {
		return g.fail("read last index", err)
	}
	if first <= index && index <= last {
		return g.fail("read entry", fmt.Errorf("%w: entry %d is missing from a log that has %d to %d", ErrCorrupt, index, first, last))
	}
	return raft.ErrLogNotFound
}

// FirstIndex implements raft.LogStore.
func (g *guard) FirstIndex() (uint64, error) { return g.index("read first index", g.log.FirstIndex) }

// LastIndex implements raft.LogStore.
func (g *guard) LastIndex() (uint64, error) { return g.index("read last index", g.log.LastIndex) }

func (g *guard) index(op string, read func() (uint64, error)) (uint64, error) {
	if err := g.usable(); err != nil {
		return 0, err
	}
	index, err := read()
	if err != nil {
		return 0, g.fail(op, err)
	}
	return index, nil
}

// IsMonotonic implements raft.MonotonicLogStore: whether the store takes no entry that does not follow its last one. After a
// snapshot that ends beyond the log raft then empties the log, so that it may go on behind the gap.
func (g *guard) IsMonotonic() bool {
	log, ok := g.log.(raft.MonotonicLogStore)
	return ok && log.IsMonotonic()
}

// DeleteRange implements raft.LogStore. Raft deletes a prefix (compaction) or a suffix (entries that another leader
// overruled).
func (g *guard) DeleteRange(low, high uint64) error {
	g.release()
	last, err := g.LastIndex()
	if err != nil {
		return err
	}
	if high >= last {
		return g.deleteSuffix(low, high)
	}
	return g.write("delete entries", func() error { return g.log.DeleteRange(low, high) })
}

func (g *guard) deleteSuffix(low, high uint64) error {
	return g.write("delete entries", func() error {
		if err := g.moveMark(func(at *progress) { at.LastIndex = min(at.LastIndex, low-1) }); err != nil {
			return err
		}
		if err := g.syncMark(); err != nil {
			return err
		}
		return g.log.DeleteRange(low, high)
	})
}

// Set implements raft.StableStore.
func (g *guard) Set(key, value []byte) error {
	return g.write("store vote", func() error { return g.stable.Set(key, sealValue(key, value)) })
}

// SetUint64 implements raft.StableStore.
func (g *guard) SetUint64(key []byte, value uint64) error {
	if err := g.Set(key, binary.BigEndian.AppendUint64(nil, value)); err != nil {
		return err
	}
	return g.write("store vote", func() error {
		return g.moveMark(func(at *progress) {
			switch string(key) {
			case keyCurrentTerm:
				at.Term = value
			case keyLastVoteTerm:
				at.VoteTerm = value
			}
		})
	})
}

// Get implements raft.StableStore.
func (g *guard) Get(key []byte) ([]byte, error) {
	if err := g.usable(); err != nil {
		return nil, err
	}
	sealed, err := g.stable.Get(key)
	if isNotFound(err) {
		return nil, errKeyNotFound
	}
	var value []byte
	if err == nil {
		value, err = unsealValue(key, sealed)
	}
	if err != nil {
		return nil, g.fail("read vote", err)
	}
	return value, nil
}

// GetUint64 implements raft.StableStore.
func (g *guard) GetUint64(key []byte) (uint64, error) {
	value, err := g.Get(key)
	if err != nil {
		return 0, err
	}
	if len(value) != 8 {
		return 0, g.fail("read vote", fmt.Errorf("%w: the stored value of %q is %d bytes, not 8", ErrCorrupt, key, len(value)))
	}
	return binary.BigEndian.Uint64(value), nil
}

// close refuses what raft's stragglers may still ask for.
func (g *guard) close() { g.closed.Store(true) }
