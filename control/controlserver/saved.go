package controlserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/control/consensus"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/rejection"
)

const (
	// pieceBytes is the size of a piece of a snapshot on its way.
	pieceBytes = 256 << 10
	// restoreTimeout bounds a restore, its file's way here included.
	restoreTimeout = 10 * time.Minute
)

const reasonCorrupt = "CORRUPT"

// SaveSnapshot implements ClusterService: control's state, or that of a cell as its leader has it.
func (c clusterService) SaveSnapshot(
	ctx context.Context, req *fairleadv1.SaveSnapshotRequest, stream *connect.ServerStream[fairleadv1.SaveSnapshotResponse],
) error {
	if err := c.saveSnapshot(ctx, cell.ID(req.GetCell()), stream.Send); err != nil {
		return c.fail(ctx, err)
	}
	return nil
}

func (s *Server) saveSnapshot(ctx context.Context, id cell.ID, send func(*fairleadv1.SaveSnapshotResponse) error) error {
	if id != "" {
		return s.saveCell(ctx, id, send)
	}
	if s.cfg.Group == nil {
		return errNoGroup
	}
	w := pieces{send: send}
	if err := s.cfg.Group.Save(ctx, &w); err != nil {
		return err
	}
	return w.flush()
}

// saveCell passes on what the cell's leader saves. The operator's deadline bounds it: a cell's state may be large.
func (s *Server) saveCell(ctx context.Context, id cell.ID, send func(*fairleadv1.SaveSnapshotResponse) error) error {
	leader, err := s.replicaOfLeader(ctx, id)
	if err != nil {
		return err
	}
	saved, err := leader.Save(ctx, &fairleadv1.SaveRequest{})
	if err != nil {
		return err
	}
	for saved.Receive() {
		if err := send(&fairleadv1.SaveSnapshotResponse{Data: saved.Msg().GetData()}); err != nil {
			return errors.Join(err, saved.Close())
		}
	}
	return errors.Join(saved.Err(), saved.Close())
}

// pieces sends what is written in messages of one size.
type pieces struct {
	send func(*fairleadv1.SaveSnapshotResponse) error
	held []byte
}

// Write implements [io.Writer].
func (w *pieces) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		if w.held == nil {
			w.held = make([]byte, 0, pieceBytes)
		}
		fits := min(len(b), pieceBytes-len(w.held))
		w.held, b = append(w.held, b[:fits]...), b[fits:]
		if len(w.held) == pieceBytes {
			if err := w.flush(); err != nil {
				return n - len(b), err
			}
		}
	}
	return n, nil
}

func (w *pieces) flush() error {
	if len(w.held) == 0 {
		return nil
	}
	held := w.held
	w.held = nil // what was sent may still be on its way
	return w.send(&fairleadv1.SaveSnapshotResponse{Data: held})
}

// RestoreSnapshot implements ClusterService. All of the file is checked before anything is changed. After it every epoch is raised, and every cell
// told of everything. When it does not answer, it is repeated: until every epoch is raised, nothing of the restored state may be relied on.
func (c clusterService) RestoreSnapshot(
	ctx context.Context, stream *connect.ClientStream[fairleadv1.RestoreSnapshotRequest],
) (*fairleadv1.RestoreSnapshotResponse, error) {
	a, err := c.restoreSnapshot(ctx, stream)
	if err != nil {
		return nil, c.fail(ctx, err)
	}
	return a, nil
}

// received is a stream of pieces as a file.
type received interface {
	Receive() bool
	Msg() *fairleadv1.RestoreSnapshotRequest
	Err() error
}

func (s *Server) restoreSnapshot(ctx context.Context, stream received) (*fairleadv1.RestoreSnapshotResponse, error) {
	r, err := s.reigning()
	if err != nil {
		return nil, err
	}
	if s.cfg.Group == nil {
		return nil, errNoGroup
	}
	// Nobody decides or proposes on a state that is about to go, or whose epochs are not raised yet; while the file still comes in, everybody may.
	var held sync.Once
	file := &fileOf{stream: stream, end: func() { held.Do(s.proposing.Lock) }}
	if err := file.first(); err != nil {
		return nil, err
	}
	defer s.proposing.Unlock()
	defer file.end()
	// Once the file is there, what was begun is finished, whether the operator waits or not.
	finish, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreTimeout)
	defer cancel()
	info, err := s.cfg.Group.Restore(finish, file)
	if err != nil && !errors.Is(err, consensus.ErrUnknown) {
		return nil, err
	}
	// Also when it is not known whether the state was replaced: raised epochs do no harm.
	_, raised := s.proposeLocked(finish, command.Audited{Actor: s.actor(ctx), Command: command.Restored{Time: s.instant()}})
	if err := errors.Join(err, raised); err != nil {
		return nil, fmt.Errorf("%w: the state may be restored without its epochs raised: restore again: %w", consensus.ErrUnknown, err)
	}
	r.restart()
	v := s.machine.View()
	cluster, _ := v.Cluster()
	s.cfg.Log.WarnContext(ctx, "control was restored from a snapshot", "saved", info.Saved, "restores", cluster.Restores)
	return &fairleadv1.RestoreSnapshotResponse{
		SavedTime: timeMessage(cell.InstantOf(info.Saved)), Index: info.Index, Restores: cluster.Restores,
	}, nil
}

// fileOf reads a stream of pieces.
type fileOf struct {
	stream received
	rest   []byte
	end    func() // called when the last piece was read
}

// first takes the first piece, which names the cell that is meant: none.
func (f *fileOf) first() error {
	if !f.stream.Receive() {
		if err := f.stream.Err(); err != nil {
			return err
		}
		return &cell.FieldError{Field: "data", Problem: "is empty", Remedy: "send the file that SaveSnapshot gave"}
	}
	if m := f.stream.Msg(); m.GetCell() != "" {
		return &cell.FieldError{
			Field: "cell", Problem: fmt.Sprintf("names the cell %.140q", m.GetCell()),
			Remedy: "leave it out: only control is restored this way; a cell's replica starts from a copy of its directory",
		}
	}
	f.rest = f.stream.Msg().GetData()
	return nil
}

// Read implements [io.Reader].
func (f *fileOf) Read(b []byte) (int, error) {
	for len(f.rest) == 0 {
		if !f.stream.Receive() {
			if err := f.stream.Err(); err != nil {
				return 0, err
			}
			f.end()
			return 0, io.EOF
		}
		f.rest = f.stream.Msg().GetData()
	}
	n := copy(b, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

// errNoGroup is returned where control's log has one replica that is part of a development process.
var errNoGroup = errors.New("control of a development process has no group of replicas: copy its directory while it is stopped")

// savedRefusal returns how the API says what is wrong with a file.
func savedRefusal(err error) (*connect.Error, bool) {
	switch {
	case errors.Is(err, errNoGroup):
		return rejection.New(connect.CodeFailedPrecondition, &fairleadv1.Rejection{Reason: reasonNoGroup, Message: err.Error()}), true
	case errors.Is(err, consensus.ErrCorrupt):
		return rejection.New(connect.CodeInvalidArgument, &fairleadv1.Rejection{
			Reason: reasonCorrupt, Field: "data", Message: "the file is damaged or is no snapshot of control: nothing was changed; give another one",
		}), true
	default:
		return nil, false
	}
}
