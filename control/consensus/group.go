package consensus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// Group is one replica of a raft group, open on its directory. All methods may be called from any goroutine.
type Group struct {
	cfg       Config
	logger    *slog.Logger
	files     files
	machine   *machine
	raft      *raft.Raft
	proposals *register
	collect   chan *Proposal // handed to raft, in the order of the log
	leading   leadership
	snapshots snapshotter
	network   *network // nil with one voter in one process
	verifier  verifier
	changes   chan struct{} // capacity one: holds it whoever changes the membership or restores

	failure   atomic.Pointer[error]
	failed    chan struct{} // closed when the store has failed
	stop      chan struct{} // closed by Close when nothing is in flight any more
	closeOnce sync.Once
	closeErr  error
	running   sync.WaitGroup
	ended     chan struct{} // closed when raft has stopped, or must be left alone
	watching  sync.WaitGroup
}

// Stats is a reading of a group's gauges and counters. Counters count since Open.
type Stats struct {
	ID            string
	Leader        bool
	Voters        int           // in the membership as this replica knows it
	LastContact   time.Duration // since a follower heard its leader; 0 for a leader and for one that never heard any
	Term          uint64
	LastIndex     uint64 // last entry in the log
	CommitIndex   uint64
	AppliedIndex  uint64 // last entry that raft handed on; entries of raft's own are among them
	SnapshotIndex uint64 // last entry in the newest snapshot, 0 without one
	Proposals     int    // unfinished now
	LogBytes      int64  // bytes of entries since the last snapshot
	SnapshotAt    int64  // LogBytes at which the next snapshot is taken
	LastWrite     time.Duration
	Snapshots     uint64
	SnapshotFails uint64
	SnapshotBytes int64         // size of the last snapshot
	SnapshotTook  time.Duration // how long writing it lasted, when it was written since Open

	// InstallsWithoutProgress counts the snapshots that a leader has installed here since this replica stored an entry. One or
	// two are a replica that caught up in a group at rest; from installsAlarm (3) on each is logged as an error: the replica
	// goes in circles (hashicorp/raft#697). Restart it, and when that does not help remove it and add an empty one under
	// another ID.
	InstallsWithoutProgress uint64
}

// installsAlarm is the number of snapshots in a row without an entry between them that tells a replica that goes in circles
// from one that caught up.
const installsAlarm = 3

// Open opens the group in cfg.Dir. In an empty directory it creates one: without a Transport with cfg.ID as its only voter,
// with one as a member of cfg.Voters or, when there are none, as a replica that waits to be added. It starts to replay, and
// returns when the newest snapshot is restored; Ready tells when the log is replayed too. Its error wraps
// ErrLocked, ErrCorrupt or ErrForeign where one of them applies; then nothing was deleted and no damaged file was written to.
func Open(cfg Config, sm StateMachine) (*Group, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, errors.Join(fmt.Errorf("consensus configuration: %w", err), closeTransport(cfg))
	}
	g := newGroup(cfg)
	if err := g.files.open(cfg, g.fatal); err != nil {
		return nil, fmt.Errorf("open %s: %w", cfg.Dir, errors.Join(err, closeTransport(cfg)))
	}
	if err := g.start(sm); err != nil {
		return nil, fmt.Errorf("open %s: %w", cfg.Dir, errors.Join(err, g.files.close()))
	}
	return g, nil
}

func newGroup(cfg Config) *Group {
	return &Group{
		cfg:       cfg,
		logger:    cfg.Logger.With("replica", cfg.ID),
		proposals: newRegister(cfg.ProposalsMax),
		collect:   make(chan *Proposal, cfg.ProposalsMax),
		changes:   make(chan struct{}, 1),
		failed:    make(chan struct{}),
		stop:      make(chan struct{}),
		ended:     make(chan struct{}),
	}
}

func closeTransport(cfg Config) error {
	if cfg.Transport == nil {
		return nil
	}
	return cfg.Transport.Close()
}

// start builds the raft node and the goroutines around it.
func (g *Group) start(sm StateMachine) error {
	g.snapshots.init(g.cfg.SnapshotBytes, g.files.snapshots, g.files.replayBytes)
	g.machine = &machine{
		sm: sm, proposals: g.proposals, stored: g.files.guard.stored.Load, onApply: g.applied, onInstall: g.installed,
	}
	won := func() {}
	if g.cfg.Transport != nil {
		g.network = newNetwork(g.cfg)
		won = g.network.forget
	}
	g.leading.init(won)
	g.verifier.init()
	notify := make(chan bool, 1)
	node, err := newNode(g.cfg, &g.files, g.machine, g.network, notify)
	if err != nil {
		if g.network != nil {
			err = errors.Join(err, g.network.Close())
		}
		return err
	}
	g.raft = node
	g.machine.running.Store(true)
	g.watching.Go(func() { g.leading.watch(notify, g.ended) })
	g.running.Go(func() { g.leading.confirm(node, g.files.guard.release, g.logger, g.stop) })
	g.running.Go(func() { g.snapshots.run(node, g.machine, g.logger, g.stop) })
	g.running.Go(g.gather)
	if g.network != nil {
		g.network.node.Store(node)
		g.running.Go(func() { g.verifier.run(g) })
	}
	return nil
}

// applied is told of each entry that was applied.
func (g *Group) applied(index uint64, stored int64) {
	g.files.guard.applied(index)
	g.snapshots.consider(stored)
}

// installed is told of each snapshot that replaced the state, and why it did not: then there is no state any more.
func (g *Group) installed(err error) {
	if err != nil {
		_ = g.files.guard.fail("restore snapshot", fmt.Errorf("%w: %w", ErrCorrupt, err))
		return
	}
	g.snapshots.restart(g.files.guard.stored.Load())
	if n := g.files.guard.installs.Add(1); n >= installsAlarm {
		g.logger.Error("snapshots are installed and no entry follows; restart this replica, else replace it under another id",
			"installs", n)
	}
}

// raftConfig returns what raft is to do, and differently with several voters.
func raftConfig(cfg Config, notify chan<- bool) *raft.Config {
	conf := raft.DefaultConfig()
	conf.LocalID = raft.ServerID(cfg.ID)
	conf.Logger = newRaftLogger(cfg.Logger, "raft")
	conf.NotifyCh = notify
	conf.HeartbeatTimeout = cfg.ElectionTimeout
	conf.ElectionTimeout = cfg.ElectionTimeout
	conf.LeaderLeaseTimeout = cfg.ElectionTimeout
	// Proposals gather in raft's queue while an fsync runs and share the next one. What still waits there when raft stops
	// is never answered; Close drains before it stops raft.
	conf.BatchApplyCh = true
	conf.MaxAppendEntries = proposalsMax + raftOwnEntries
	if cfg.Transport != nil {
		// A leader that nobody hears gives up before the others have elected another one.
		conf.LeaderLeaseTimeout = cfg.ElectionTimeout / 2
		conf.MaxAppendEntries = sentEntriesMax
	}
	conf.TrailingLogs = cfg.TrailingLogs
	// Raft counts entries; we count bytes and call Snapshot ourselves.
	conf.SnapshotThreshold = 1 << 62
	conf.SnapshotInterval = 24 * time.Hour
	conf.NoLegacyTelemetry = true
	// A replica that was removed waits for its operator: it may be added again.
	conf.ShutdownOnRemove = false
	return conf
}

// newNode starts raft. Raft panics on some of what it finds in its stores; the stores were verified just before, so that a
// panic here is not expected, but an opened directory must never take the process down.
func newNode(cfg Config, f *files, m *machine, n *network, notify chan<- bool) (node *raft.Raft, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("%w: %v", ErrCorrupt, cause)
		}
	}()
	conf := raftConfig(cfg, notify)
	var transport raft.Transport = n
	voters := serversOf(cfg.Voters)
	if n == nil {
		var address raft.ServerAddress
		address, transport = raft.NewInmemTransport(raft.ServerAddress(cfg.ID))
		voters = []raft.Server{{Suffrage: raft.Voter, ID: conf.LocalID, Address: address}}
	}
	if err := f.identify(cfg.ID); err != nil {
		return nil, err
	}
	if err := f.bootstrap(raft.Configuration{Servers: voters}); err != nil {
		return nil, err
	}
	node, err = raft.NewRaft(conf, m, f.guard, f.guard, f.snapshots, transport)
	if m.restoreErr != nil {
		return nil, fmt.Errorf("restore snapshot: %w", m.restoreErr)
	}
	if err != nil {
		return nil, err
	}
	if err := checkOwner(cfg, f, node); err != nil {
		return nil, errors.Join(err, node.Shutdown().Error())
	}
	return node, nil
}

// checkOwner returns ErrForeign when the directory is not this replica's. One that says whose it is may have been removed
// from the membership since.
func checkOwner(cfg Config, f *files, node *raft.Raft) error {
	configuration := node.GetConfiguration()
	if err := configuration.Error(); err != nil {
		return err
	}
	servers := configuration.Configuration().Servers
	if cfg.Transport != nil && (f.identified || len(servers) == 0) {
		return nil
	}
	if cfg.Transport == nil && len(servers) != 1 {
		return fmt.Errorf("%w: it is one of %v, which needs a transport", ErrForeign, servers)
	}
	if !slices.ContainsFunc(servers, func(s raft.Server) bool {
		return s.ID == raft.ServerID(cfg.ID) && (s.Suffrage == raft.Voter || cfg.Transport != nil)
	}) {
		return fmt.Errorf("%w: its voters are %v, not %q", ErrForeign, servers, cfg.ID)
	}
	return nil
}

// Propose hands data to the log and returns at once, except that it waits while ProposalsMax proposals are unfinished.
// Proposals of one goroutine enter the log in the order of its calls. The group owns data until the proposal has ended.
func (g *Group) Propose(data []byte) *Proposal {
	p := &Proposal{done: make(chan struct{})}
	if len(data) > g.cfg.EntryBytesMax {
		p.end(nil, 0, fmt.Errorf("%w: %w: %d bytes, at most %d; propose less at once",
			ErrNotApplied, ErrTooLarge, len(data), g.cfg.EntryBytesMax))
		return p
	}
	if err := g.proposals.add(p); err != nil {
		p.end(nil, 0, fmt.Errorf("%w: %w", ErrNotApplied, err))
		return p
	}
	// Raft's queue has room for more than ProposalsMax, so that this does not wait.
	p.future = g.raft.ApplyLog(raft.Log{Data: data, Extensions: encodeProposalID(p.id)}, 0)
	select {
	case g.collect <- p:
	case <-g.failed:
	}
	return p
}

// gather ends the proposals that raft refused. What was applied has been ended by the state machine's goroutine.
func (g *Group) gather() {
	for {
		select {
		case <-g.stop:
			return
		case p := <-g.collect:
			if err := p.future.Error(); err != nil {
				g.proposals.finish(p.id, nil, 0, proposalError(err))
			}
		}
	}
}

// Ready waits until this replica leads the group and has applied everything that was in the log when its term began. It
// returns ErrClosed when the group closes, the store's failure when it failed, and ctx's error when ctx ends first.
func (g *Group) Ready(ctx context.Context) error {
	_, _, err := g.Lead(ctx)
	return err
}

// Lead waits like Ready and returns the term, and a channel that is closed when this readiness ends: leadership was lost, the
// group closed or failed, or a Restore replaced the state. What was read or decided since is then of yesterday; call Lead
// again for the next time.
func (g *Group) Lead(ctx context.Context) (term uint64, lost <-chan struct{}, err error) {
	for {
		changed := g.leading.changed()
		if err := g.failure.Load(); err != nil {
			return 0, nil, *err
		}
		select {
		case <-g.stop:
			return 0, nil, ErrClosed
		default:
		}
		if term, lost, ok := g.leading.ready(g.raft); ok {
			return term, lost, nil
		}
		select {
		case <-changed:
		case <-g.failed:
		case <-g.stop:
		case <-ctx.Done():
			return 0, nil, fmt.Errorf("wait for leadership: %w", context.Cause(ctx))
		}
	}
}

// SnapshotNow takes a snapshot and waits for it to be durable. It returns ErrNothingNew when nothing was applied since
// Open. When ctx ends first the snapshot goes on.
func (g *Group) SnapshotNow(ctx context.Context) error {
	return g.snapshots.request(ctx, g.stop)
}

// Stats reads the gauges.
func (g *Group) Stats() Stats {
	s := Stats{
		ID:           g.cfg.ID,
		Leader:       g.raft.State() == raft.Leader,
		Term:         g.raft.CurrentTerm(),
		LastIndex:    g.raft.LastIndex(),
		CommitIndex:  g.raft.CommitIndex(),
		AppliedIndex: g.raft.AppliedIndex(),
		Proposals:    g.proposals.size(),
		Voters:       countVoters(g.raft.GetConfiguration().Configuration()),
		LastWrite:    time.Duration(g.files.guard.lastWrite.Load()),
	}
	// Raft tells it in this form only. It writes a number, and 0 is what it is without a snapshot.
	s.SnapshotIndex, _ = strconv.ParseUint(g.raft.Stats()["last_snapshot_index"], 10, 64)
	s.InstallsWithoutProgress = g.files.guard.installs.Load()
	if heard := g.raft.LastContact(); !s.Leader && !heard.IsZero() {
		s.LastContact = time.Since(heard)
	}
	g.snapshots.stats(&s, g.files.guard.stored.Load())
	return s
}

// fatal runs once, when the store has failed. The replica leaves the network first: as long as its heartbeats are heard
// nobody takes over.
func (g *Group) fatal(err error) {
	g.failure.Store(&err)
	close(g.failed)
	if g.network != nil {
		_ = g.network.Close()
	}
	g.leading.end()
	g.proposals.fail(err)
	g.cfg.OnFatal(err)
}

// Close refuses new proposals, waits for those in flight, hands leadership on when there is somebody to take it (for an
// ElectionTimeout at most), stops raft and closes the directory. After a failure of the store it returns that failure and
// waits for nothing: what hangs would hang it too, and the process is meant to end.
func (g *Group) Close() error {
	g.closeOnce.Do(func() { g.closeErr = g.close() })
	return g.closeErr
}

func (g *Group) close() error {
	g.proposals.drain()
	g.files.snapshots.closing.Store(true)
	if g.network != nil && g.failure.Load() == nil {
		ctx, cancel := context.WithTimeout(context.Background(), 2*g.cfg.ElectionTimeout) //nolint:forbidigo // Close has none
		g.handOver(ctx)
		cancel()
	}
	close(g.stop)
	g.leading.end()
	if err := g.failure.Load(); err != nil {
		g.raft.Shutdown()
		close(g.ended)
		return *err
	}
	g.running.Wait()
	err := g.shutdown()
	close(g.ended) // not before: raft stops while nobody reads its notifications
	g.watching.Wait()
	return errors.Join(err, g.files.close())
}

// shutdown stops raft. The connections go first: raft waits for whatever is being sent. When it returns, nothing uses the
// store any more.
func (g *Group) shutdown() error {
	stopped := g.raft.Shutdown()
	if g.network == nil {
		return stopped.Error()
	}
	_ = g.network.Close()
	g.network.silence()
	return stopped.Error()
}
