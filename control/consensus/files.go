package consensus

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

const lockName = "lock"

// files is everything in a group's directory:
//
//	lock        held while the group is open
//	mark        how far the log and the votes have come at least
//	votes.db    terms, votes, the list of the log's segments and whose directory it is (raft-boltdb)
//	log/        entries (raft-wal)
//	snapshots/  raft's file snapshots
type files struct {
	lock        *os.File
	votes       *raftboltdb.BoltStore
	log         *segmentLog
	mark        *mark
	guard       *guard
	snapshots   *snapshotStore
	fresh       bool  // nothing was ever logged
	identified  bool  // the directory said whose it is, before this start
	replayBytes int64 // bytes of entries after the newest snapshot
}

// open takes the lock, verifies everything in the directory and opens it. On error nothing stays open.
func (f *files) open(cfg Config, onFatal func(error)) (err error) {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return err
	}
	if f.lock, err = lockDir(cfg.Dir); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	// What a crash left of a state that was to be restored.
	if err := os.Remove(filepath.Join(cfg.Dir, restoreName)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	at, err := f.prepare(cfg.Dir)
	if err != nil {
		return err
	}
	if f.snapshots, err = openSnapshotStore(cfg.Dir, cfg.SnapshotRetain, newRaftLogger(cfg.Logger, "snapshot")); err != nil {
		return err
	}
	newest, err := f.snapshots.newest()
	if err != nil {
		return err
	}
	found, err := f.openLog(cfg, newest, at)
	if err != nil {
		return err
	}
	if f.mark, err = openMark(cfg.Dir); err != nil {
		return err
	}
	f.guard = newGuard(f.log, f.votes, f.mark, cfg.WriteDeadline, onFatal)
	if found, err = f.dropOverruled(found); err != nil {
		return err
	}
	f.fresh = found.lastIndex == 0 && found.snapshotIndex == 0
	f.replayBytes = found.replayBytes
	f.guard.keep(found.firstIndex, found.replay)
	return nil
}

// prepare opens the votes and returns the mark, both made when the directory is new.
func (f *files) prepare(dir string) (progress, error) {
	at, err := readMark(dir)
	fresh := errors.Is(err, os.ErrNotExist)
	if err != nil && !fresh {
		return progress{}, err
	}
	_, err = os.Stat(filepath.Join(dir, votesName))
	switch missing := errors.Is(err, os.ErrNotExist); {
	case missing && fresh:
		err = createVotes(dir)
	case missing:
		err = fmt.Errorf("%w: file %q is missing", ErrCorrupt, votesName)
	}
	if err != nil {
		return progress{}, err
	}
	if f.votes, err = openVotes(dir); err != nil || !fresh {
		return at, err
	}
	// The votes are there and the mark is not: either the first start was cut off in between, and then nothing was ever
	// voted or stored, or somebody took the mark.
	for _, name := range []string{keyCurrentTerm, keySegments} {
		if value, err := readValue(f.votes, name); err != nil || value != nil {
			return progress{}, errors.Join(err, fmt.Errorf("%w: file %q is missing beside a log that was in use", ErrCorrupt, markName))
		}
	}
	return progress{}, createMark(dir)
}

// openLog opens the log and verifies it. What is damaged beyond what the checks foresee may make the library panic.
func (f *files) openLog(cfg Config, newest *raft.SnapshotMeta, at progress) (found contents, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("%w: the log cannot be read: %v", ErrCorrupt, cause)
		}
	}()
	if f.log, err = openSegments(cfg.Dir, cfg.SegmentBytes, f.votes, at, newRaftLogger(cfg.Logger, "log")); err != nil {
		return contents{}, err
	}
	if found, err = verifyStore(f.log, f.votes, newest); err != nil {
		return contents{}, err
	}
	return found, found.reaches(at)
}

// dropOverruled empties a log that the newest snapshot has overruled, as raft does after it installed one: a crash came in
// between. Such a log ends before the snapshot, or disagrees with it. Nothing is lost by it: a snapshot holds committed
// entries only, so what disagrees was never acknowledged.
func (f *files) dropOverruled(found contents) (contents, error) {
	if !found.overruled() {
		return found, nil
	}
	if err := f.guard.DeleteRange(found.firstIndex, found.lastIndex); err != nil {
		return found, err
	}
	found.firstIndex, found.lastIndex, found.lastTerm = 0, 0, 0
	found.replay, found.replayBytes = nil, 0
	return found, nil
}

// identify writes down whose directory it is, or returns ErrForeign when it is another's.
func (f *files) identify(id string) error {
	owner, err := readValue(f.votes, keyReplica)
	if err != nil {
		return err
	}
	switch {
	case owner == nil && f.fresh:
		return f.guard.Set([]byte(keyReplica), []byte(id))
	case owner != nil && string(owner) != id:
		return fmt.Errorf("%w: it is %q's, not %q's", ErrForeign, owner, id)
	}
	f.identified = owner != nil
	return nil
}

// bootstrap writes the first entry, which names the voters. The library's own bootstrap cannot be repeated when a crash
// cut it off between the term and the entry; this one can.
func (f *files) bootstrap(configuration raft.Configuration) error {
	if !f.fresh || len(configuration.Servers) == 0 {
		return nil
	}
	// A replica that waited to be added may have heard of a later term, and terms never fall.
	term, err := readNumber(f.votes, keyCurrentTerm)
	if err != nil {
		return err
	}
	if term == 0 {
		if err := f.guard.SetUint64([]byte(keyCurrentTerm), 1); err != nil {
			return err
		}
	}
	return f.guard.StoreLog(&raft.Log{
		Index: 1, Term: 1, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(configuration),
	})
}

// close closes what is open, the lock last.
func (f *files) close() error {
	var errs []error
	if f.guard != nil {
		f.guard.close()
	}
	if f.log != nil {
		errs = append(errs, f.log.Close())
	}
	if f.votes != nil {
		errs = append(errs, f.votes.Close())
	}
	if f.mark != nil {
		errs = append(errs, f.mark.close())
	}
	if f.lock != nil {
		errs = append(errs, f.lock.Close())
	}
	return errors.Join(errs...)
}
