package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/fairlead/fairlead/cell/cellserver"
	"github.com/fairlead/fairlead/control/consensus"
)

// replicatedLog is an agent's replica of a log that is formed once: until it is told who the others are, or is added by a leader, it waits and knows
// nothing. Being told means to be opened again, and whoever uses it does not notice. Its methods may be called concurrently.
type replicatedLog struct {
	cfg    consensus.Config // without Transport
	sm     consensus.StateMachine
	listen func() (consensus.Transport, error)

	mu    sync.Mutex
	group *consensus.Group
	ended bool
}

var errLogEnded = fmt.Errorf("%w: %w", consensus.ErrNotApplied, consensus.ErrClosed)

// openLog opens the log as its directory has it.
func openLog(cfg consensus.Config, sm consensus.StateMachine, listen func() (consensus.Transport, error)) (*replicatedLog, error) {
	l := &replicatedLog{cfg: cfg, sm: sm, listen: listen}
	group, err := l.open(nil)
	if err != nil {
		return nil, err
	}
	l.group = group
	return l, nil
}

func (l *replicatedLog) open(voters []consensus.Peer) (*consensus.Group, error) {
	transport, err := l.listen()
	if err != nil {
		return nil, fmt.Errorf("the log's address: %w", err)
	}
	cfg := l.cfg
	cfg.Transport, cfg.Voters = transport, voters
	return consensus.Open(cfg, l.sm)
}

// Form makes the log one of these voters. It changes nothing when the log has members already.
func (l *replicatedLog) Form(ctx context.Context, voters []consensus.Peer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return errLogEnded
	}
	peers, err := l.group.Peers(ctx)
	if err != nil || len(peers) > 0 {
		return err
	}
	// Nothing was ever stored in it, so that nothing is lost when what follows is cut off.
	if err := l.group.Close(); err != nil {
		return err
	}
	group, err := l.open(voters)
	if err != nil {
		l.ended = true
		return err
	}
	l.group = group
	return nil
}

func (l *replicatedLog) now() *consensus.Group {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.group
}

// Open reports whether the log has members, this agent among them as far as it knows.
func (l *replicatedLog) Open(ctx context.Context) bool {
	peers, err := l.now().Peers(ctx)
	return err == nil && len(peers) > 0
}

// Lead implements controlserver.Group. It waits through a forming.
func (l *replicatedLog) Lead(ctx context.Context) (term uint64, lost <-chan struct{}, err error) {
	for {
		group := l.now()
		term, lost, err = group.Lead(ctx)
		if errors.Is(err, consensus.ErrClosed) && l.now() != group {
			continue
		}
		return term, lost, err
	}
}

// Propose implements cellserver.Log.
func (l *replicatedLog) Propose(data []byte) cellserver.Proposal { return l.now().Propose(data) }

// ProposeAndWait returns what Apply returned for data.
func (l *replicatedLog) ProposeAndWait(ctx context.Context, data []byte) (any, error) {
	result, _, err := l.now().Propose(data).Wait(ctx)
	return result, err
}

// Position implements cellserver.Log.
func (l *replicatedLog) Position() (index, snapshot uint64, bytes int64) {
	s := l.now().Stats()
	return s.AppliedIndex, s.SnapshotIndex, s.LogBytes
}

// Verify implements cellserver.Log and controlserver.Group.
func (l *replicatedLog) Verify(ctx context.Context) error { return l.now().Verify(ctx) }

// Peers implements controlserver.Group, as do those that follow.
func (l *replicatedLog) Peers(ctx context.Context) ([]consensus.PeerStatus, error) {
	return l.now().Peers(ctx)
}

// AddPeer implements controlserver.Group.
func (l *replicatedLog) AddPeer(ctx context.Context, p consensus.Peer) error {
	return l.now().AddPeer(ctx, p)
}

// CaughtUp implements controlserver.Group.
func (l *replicatedLog) CaughtUp(ctx context.Context, id string) (bool, error) {
	return l.now().CaughtUp(ctx, id)
}

// RemovePeer implements controlserver.Group.
func (l *replicatedLog) RemovePeer(ctx context.Context, id string, votersMin int) error {
	return l.now().RemovePeer(ctx, id, votersMin)
}

// Transfer implements controlserver.Group.
func (l *replicatedLog) Transfer(ctx context.Context, id string) error {
	return l.now().Transfer(ctx, id)
}

// Leader implements controlserver.Group.
func (l *replicatedLog) Leader() (id, address string) { return l.now().Leader() }

// Stats implements controlserver.Group.
func (l *replicatedLog) Stats() consensus.Stats { return l.now().Stats() }

// Save implements controlserver.Group.
func (l *replicatedLog) Save(ctx context.Context, w io.Writer) error { return l.now().Save(ctx, w) }

// Restore implements controlserver.Group.
func (l *replicatedLog) Restore(ctx context.Context, r io.Reader) (consensus.SavedInfo, error) {
	return l.now().Restore(ctx, r)
}

// handOverTimeout bounds how long an agent that ends waits for another to lead: what is open has to be answered after it.
const handOverTimeout = 3 * time.Second

// HandOver makes another replica lead when this one does, so that nobody waits for an election because this agent ends.
func (l *replicatedLog) HandOver(logger *slog.Logger) {
	if s := l.Stats(); !s.Leader || s.Voters < 2 { //nolint:mnd // somebody else
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), handOverTimeout)
	defer cancel()
	if err := l.Transfer(ctx, ""); err != nil {
		logger.Warn("leadership was not handed over before the end", "error", err)
	}
}

// Close closes the log.
func (l *replicatedLog) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return nil
	}
	l.ended = true
	return l.group.Close()
}

// transportOn returns what listens on an address and gives a transport over it, anew for each opening.
func transportOn(ctx context.Context, address string, over func(net.Listener) consensus.Transport) func() (consensus.Transport, error) {
	return func() (consensus.Transport, error) {
		var cfg net.ListenConfig
		listener, err := cfg.Listen(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		return over(listener), nil
	}
}
