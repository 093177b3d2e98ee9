package consensus

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"
)

const (
	savedMagic  = "FLSAVE01"
	restoreName = "restore" + tmpSuffix
)

// SavedInfo is what a saved state says about itself.
type SavedInfo struct {
	Index uint64    // the last entry that it holds the effects of
	Term  uint64    // in which that was proposed
	Size  int64     // bytes of state
	Saved time.Time // when, by the clock of who saved it
}

// SnapshotChecker may be implemented by a [StateMachine]. Restore asks it before anything is replaced: when a state turns
// out to be unusable only while it is taken over, nothing is left that the group could go on with.
type SnapshotChecker interface {
	// CheckSnapshot reads what Snapshot.WriteTo wrote and returns why Restore would refuse it. It changes nothing and may be
	// called at any time.
	CheckSnapshot(r io.Reader) error
}

// Save takes a snapshot and writes it to w: a header, the state, and a SHA-256 of both. The membership is not in it, so that
// another group may take it over. It holds everything that this replica has applied, which on a leader is everything that was
// acknowledged before; any replica can save. It returns ErrNothingNew when nothing was ever applied.
func (g *Group) Save(ctx context.Context, w io.Writer) error {
	if err := g.SnapshotNow(ctx); err != nil {
		return err
	}
	listed, err := g.files.snapshots.List()
	if err != nil {
		return err
	}
	if len(listed) == 0 {
		return ErrNothingNew
	}
	meta, state, err := g.files.snapshots.Open(listed[0].ID)
	if err != nil {
		return err
	}
	err = writeSaved(w, SavedInfo{Index: meta.Index, Term: meta.Term, Size: meta.Size, Saved: time.Now().UTC()}, contextReader{ctx, state})
	return errors.Join(err, state.Close())
}

func writeSaved(w io.Writer, info SavedInfo, state io.Reader) error {
	header, err := json.Marshal(info)
	if err != nil {
		return err
	}
	sum := sha256.New()
	both := io.MultiWriter(w, sum)
	if _, err := both.Write(appendFramed(nil, savedMagic, header)); err != nil {
		return err
	}
	n, err := io.Copy(both, state)
	if err != nil {
		return err
	}
	if n != info.Size {
		return fmt.Errorf("%w: %d bytes of state, the snapshot said %d", ErrCorrupt, n, info.Size)
	}
	_, err = w.Write(sum.Sum(nil))
	return err
}

// contextReader ends with its context.
type contextReader struct {
	ctx  context.Context //nolint:containedctx // a reader has no other way to hear of it
	from io.Reader
}

// Read implements io.Reader.
func (r contextReader) Read(to []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	return r.from.Read(to)
}

// ReadSaved reads what Save wrote, verifying all of it, and writes the state in it to w. It returns ErrCorrupt when a byte is
// wrong, missing or too many; w may have got some of the state by then.
func ReadSaved(w io.Writer, r io.Reader) (SavedInfo, error) {
	sum := sha256.New()
	header, err := readFramed(io.TeeReader(r, sum), savedMagic)
	if err != nil {
		return SavedInfo{}, savedError(err)
	}
	var info SavedInfo
	if err := json.Unmarshal(header, &info); err != nil || info.Size < 0 {
		return SavedInfo{}, fmt.Errorf("%w: the header of the saved state: %w", ErrCorrupt, err)
	}
	if _, err := io.CopyN(io.MultiWriter(w, sum), r, info.Size); err != nil {
		return SavedInfo{}, savedError(err)
	}
	return info, checkSum(r, sum)
}

// savedError tells a saved state that ends early or is none from one that cannot be read or spooled.
func savedError(err error) error {
	var path *os.PathError
	if errors.As(err, &path) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w: the saved state: %w", ErrCorrupt, err)
}

// checkSum reads the sum, which is the last of it.
func checkSum(r io.Reader, sum hash.Hash) error {
	trailer := make([]byte, sha256.Size+1)
	switch n, err := io.ReadFull(r, trailer); {
	case n > sha256.Size:
		return fmt.Errorf("%w: the saved state goes on behind its end", ErrCorrupt)
	case !errors.Is(err, io.ErrUnexpectedEOF) || n < sha256.Size:
		return savedError(fmt.Errorf("its checksum: %w", err))
	case string(trailer[:n]) != string(sum.Sum(nil)):
		return fmt.Errorf("%w: the saved state does not match its checksum", ErrCorrupt)
	}
	return nil
}

// Restore replaces the state of the whole group by what Save wrote, and returns once a majority has it. All of it is read and
// verified first, into a file in the group's directory; a state machine that is a SnapshotChecker is asked, too. Then the
// proposals in flight are waited for while new ones end as ErrRestoring, readiness ends (see Lead), and begins again with the
// new state. The entries go on behind all that there were.
//
// Only a leader restores: ErrNotLeader. ErrCorrupt says that nothing was replaced. An error that wraps ErrUnknown says that
// the state may be replaced, now or later. When ctx ends after the replacement began it goes on.
func (g *Group) Restore(ctx context.Context, r io.Reader) (SavedInfo, error) {
	if _, err := g.membership(); err != nil {
		return SavedInfo{}, err
	}
	release, err := g.lockChanges(ctx)
	if err != nil {
		return SavedInfo{}, err
	}
	spool, info, err := g.spool(ctx, r)
	if err != nil {
		release()
		return SavedInfo{}, fmt.Errorf("%w: %w", ErrNotApplied, err)
	}
	clean := func() {
		_ = spool.Close()
		_ = os.Remove(spool.Name())
		release()
	}
	return info, g.await(ctx, func() raft.Future { return replaced{g.replace(spool, info)} }, clean)
}

// spool writes the state to a file and returns it, rewound, when all of it is right.
func (g *Group) spool(ctx context.Context, r io.Reader) (*os.File, SavedInfo, error) {
	file, err := os.OpenFile(filepath.Join(g.cfg.Dir, restoreName), os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return nil, SavedInfo{}, err
	}
	info, err := g.checkSaved(file, contextReader{ctx, r})
	if err != nil {
		return nil, SavedInfo{}, errors.Join(err, file.Close(), os.Remove(file.Name()))
	}
	return file, info, nil
}

func (g *Group) checkSaved(file *os.File, r io.Reader) (SavedInfo, error) {
	info, err := ReadSaved(file, r)
	if err != nil {
		return SavedInfo{}, err
	}
	if checker, ok := g.machine.sm.(SnapshotChecker); ok {
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return SavedInfo{}, err
		}
		if err := checker.CheckSnapshot(file); err != nil {
			return SavedInfo{}, fmt.Errorf("%w: the saved state: %w", ErrCorrupt, err)
		}
	}
	_, err = file.Seek(0, io.SeekStart)
	return info, err
}

// replace lets raft take over the state.
func (g *Group) replace(state io.Reader, info SavedInfo) error {
	g.proposals.hold(ErrRestoring)
	g.leading.end()
	defer g.leading.again() // when proposals are taken again
	defer g.proposals.resume()
	return g.raft.Restore(&raft.SnapshotMeta{Version: raft.SnapshotVersionMax, Index: info.Index, Term: info.Term, Size: info.Size}, state, 0)
}

// replaced is what came of a replacement.
type replaced struct{ err error }

// Error implements raft.Future.
func (r replaced) Error() error { return r.err }
