package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/fairlead/fairlead/cell/cellserver"
	"github.com/fairlead/fairlead/control/consensus"
	"github.com/fairlead/fairlead/dataplane/gateway"
)

// cellRole is a cell with its log.
type cellRole struct {
	server *cellserver.Server
	group  *consensus.Group
}

// cellEntryBytesMax bounds an entry of a cell's log: what the leader fills it to, and one job of the largest payload on top.
const cellEntryBytesMax = 2 << 20

// cellSegmentBytes is the size of the files of a cell's log, of which two or three exist at a time: large enough that changing files is rare
// beside syncing them, small enough for a laptop.
const cellSegmentBytes = 16 << 20

// startCell opens a cell and replays its log.
func startCell(ctx context.Context, cfg Config) (*cellRole, error) {
	sc := cellserver.DefaultConfig(cellName)
	sc.Version, sc.Leader, sc.Logger = cfg.Version, cfg.Leader, cfg.Logger.With("cell", cellName)
	sc.Caller, sc.DiskFree = gateway.CallerFrom, diskFree(cfg.Dir)
	sc.NotApplied = func(err error) bool { return errors.Is(err, consensus.ErrNotApplied) }
	server, err := cellserver.New(sc)
	if err != nil {
		return nil, err
	}
	gc := consensus.DefaultConfig(filepath.Join(cfg.Dir, cellName), cellName+"-1")
	gc.EntryBytesMax, gc.SegmentBytes, gc.Logger = cellEntryBytesMax, cellSegmentBytes, sc.Logger
	group, err := openGroup(ctx, gc, cellMachine{server})
	if err != nil {
		return nil, fmt.Errorf("the cell's log: %w", err)
	}
	if err := server.Lead(cellLog{group}); err != nil {
		return nil, errors.Join(err, group.Close())
	}
	return &cellRole{server: server, group: group}, nil
}

// Close stops the cell and closes its log.
func (r *cellRole) Close() error {
	r.server.Close()
	return r.group.Close()
}

// openGroup opens a log and waits until it is replayed.
func openGroup(ctx context.Context, cfg consensus.Config, sm consensus.StateMachine) (*consensus.Group, error) {
	group, err := consensus.Open(cfg, sm)
	if err != nil {
		return nil, err
	}
	if err := group.Ready(ctx); err != nil {
		return nil, errors.Join(err, group.Close())
	}
	return group, nil
}

// cellMachine is a cell as the state machine of a log.
type cellMachine struct{ server *cellserver.Server }

func (m cellMachine) Apply(index uint64, data []byte) any { return m.server.Apply(index, data) }
func (m cellMachine) Restore(r io.Reader) error           { return m.server.Restore(r) }

// CheckSnapshot implements consensus.SnapshotChecker.
func (m cellMachine) CheckSnapshot(r io.Reader) error { return m.server.CheckSnapshot(r) }

func (m cellMachine) Snapshot() (consensus.Snapshot, error) {
	n, err := m.server.Snapshot()
	if err != nil {
		return nil, err
	}
	return n, nil
}

// cellLog is a log as a cell wants it.
type cellLog struct{ group *consensus.Group }

func (l cellLog) Propose(data []byte) cellserver.Proposal { return l.group.Propose(data) }

func (l cellLog) Position() (index, snapshot uint64, bytes int64) {
	s := l.group.Stats()
	return s.AppliedIndex, s.SnapshotIndex, s.LogBytes
}

// Verify implements cellserver.Log. The one voter there is cannot be anything but the leader.
func (l cellLog) Verify(ctx context.Context) error { return l.group.Verify(ctx) }
