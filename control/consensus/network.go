package consensus

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// connectionsKept is how many idle connections are kept to each replica.
const connectionsKept = 3

// ioTimeouts is how many election time-outs a message and its answer may take. Raft allows more for a snapshot, by its size.
const ioTimeouts = 10

// contactWait is how long a message that failed is kept from raft while its follower answers no heartbeat.
const contactWait = time.Minute

// errCut is returned to who dials after the group has closed or its store has failed.
var errCut = errors.New("the replica has left the network")

// network is raft's own network transport over a Transport, which it can leave at once, and an observer of what followers
// answer: raft tells nobody.
type network struct {
	*raft.NetworkTransport
	streams   *streams
	advertise raft.ServerAddress
	node      atomic.Pointer[raft.Raft] // nil until it runs

	rounds atomic.Uint64 // counts the questions whether this replica leads

	beats   sync.RWMutex // held for reading while raft handles a heartbeat
	stopped bool

	mu       sync.Mutex
	contacts map[raft.ServerID]contact
	heard    chan struct{} // closed and replaced with every contact
	closed   chan struct{}
	once     sync.Once
}

// contact is a follower's last answer to this leader.
type contact struct {
	at        time.Time
	lastIndex uint64 // the end of its log
	committed uint64 // the leader's commit index when it was asked
	term      uint64 // of the leader that it agreed with
	round     uint64 // the last question that was asked before a message of this term left which it answered
}

var (
	_ raft.Transport   = (*network)(nil)
	_ raft.WithPreVote = (*network)(nil)
	_ raft.WithClose   = (*network)(nil)
)

func newNetwork(cfg Config) *network {
	s := &streams{Transport: cfg.Transport, open: make(map[net.Conn]struct{})}
	return &network{
		NetworkTransport: raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
			Logger: newRaftLogger(cfg.Logger, "network"), Stream: s, MaxPool: connectionsKept, Timeout: ioTimeouts * cfg.ElectionTimeout,
		}),
		streams:   s,
		advertise: raft.ServerAddress(cfg.Advertise),
		contacts:  make(map[raft.ServerID]contact),
		heard:     make(chan struct{}),
		closed:    make(chan struct{}),
	}
}

// LocalAddr implements raft.Transport. What a listener is bound to is not what others can dial.
func (n *network) LocalAddr() raft.ServerAddress { return n.advertise }

// Close implements raft.WithClose.
func (n *network) Close() error {
	n.once.Do(func() { close(n.closed) })
	return n.NetworkTransport.Close()
}

// SetHeartbeatHandler implements raft.Transport. Raft handles heartbeats on the goroutines of the connections, where it does
// not wait for them when it shuts down, and one of a later term writes to the store.
func (n *network) SetHeartbeatHandler(handle func(raft.RPC)) {
	if handle == nil {
		n.NetworkTransport.SetHeartbeatHandler(nil)
		return
	}
	n.NetworkTransport.SetHeartbeatHandler(func(rpc raft.RPC) {
		n.beats.RLock()
		defer n.beats.RUnlock()
		if !n.stopped {
			handle(rpc)
		}
	})
}

// silence waits for the heartbeats that raft is handling and lets it have no more. A heartbeat must not call it.
func (n *network) silence() {
	n.beats.Lock()
	defer n.beats.Unlock()
	n.stopped = true
}

// AppendEntries implements raft.Transport. Heartbeats come this way, several in each election time-out, so that what they
// are answered is news enough.
func (n *network) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	round := n.rounds.Load()
	var committed uint64
	if node := n.node.Load(); node != nil {
		committed = node.CommitIndex()
	}
	err := n.NetworkTransport.AppendEntries(id, target, args, resp)
	switch heartbeat := len(args.Entries) == 0 && args.PrevLogEntry == 0 && args.LeaderCommitIndex == 0; {
	case err == nil:
		c := contact{at: time.Now(), lastIndex: resp.LastLog, committed: committed}
		if resp.Term == args.Term {
			c.term, c.round = args.Term, round
		}
		n.note(id, c)
	case !heartbeat:
		n.awaitContact(id)
	}
	return err
}

// InstallSnapshot implements raft.Transport.
func (n *network) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest,
	resp *raft.InstallSnapshotResponse, data io.Reader,
) error {
	err := n.NetworkTransport.InstallSnapshot(id, target, args, resp, data)
	if err != nil {
		n.awaitContact(id)
	}
	return err
}

func (n *network) note(id raft.ServerID, c contact) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if last := n.contacts[id]; last.term > c.term || (last.term == c.term && last.round > c.round) {
		c.term, c.round = last.term, last.round // two kinds of messages overtake each other
	}
	n.contacts[id] = c
	close(n.heard)
	n.heard = make(chan struct{})
}

// awaitContact returns when a follower that did not answer has answered a heartbeat. Raft doubles its pause with every message
// that fails, up to 10 s: a follower that was away for that long would stay without entries for as long again, and with
// another one away the group without a majority. So the failure is told when it is over, and one is counted in contactWait.
func (n *network) awaitContact(id raft.ServerID) {
	since := time.Now()
	timer := time.NewTimer(contactWait)
	defer timer.Stop()
	for {
		n.mu.Lock()
		c, heard := n.contacts[id], n.heard
		n.mu.Unlock()
		if c.at.After(since) {
			return
		}
		select {
		case <-heard:
		case <-timer.C:
			return
		case <-n.closed:
			return
		}
	}
}

// contact returns a follower's last answer in this reign.
func (n *network) contact(id raft.ServerID) (contact, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c, ok := n.contacts[id]
	return c, ok
}

// agreed tells whether a majority of the servers, self among them, answered a message of the term that left in the round or
// later. If not, changed is closed with the next answer.
func (n *network) agreed(servers []raft.Server, self raft.ServerID, term, round uint64) (ok bool, changed <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	voters, votes := 0, 0
	for _, s := range servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		if c := n.contacts[s.ID]; s.ID == self || (c.term == term && c.round >= round) {
			votes++
		}
	}
	return votes > voters/2, n.heard
}

// forget drops what was heard in an earlier reign.
func (n *network) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.contacts)
}

// streams is a Transport as raft wants it, which knows its open connections.
type streams struct {
	Transport

	mu   sync.Mutex
	cut  bool
	open map[net.Conn]struct{}
}

var _ raft.StreamLayer = (*streams)(nil)

// Dial implements raft.StreamLayer.
func (s *streams) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	conn, err := s.Transport.Dial(string(address), timeout)
	if err != nil {
		return nil, err
	}
	return s.track(conn)
}

// Accept implements net.Listener.
func (s *streams) Accept() (net.Conn, error) {
	conn, err := s.Transport.Accept()
	if err != nil {
		return nil, err
	}
	return s.track(conn)
}

func (s *streams) track(conn net.Conn) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut {
		return nil, errors.Join(errCut, conn.Close())
	}
	s.open[conn] = struct{}{}
	return trackedConn{Conn: conn, streams: s}, nil
}

// Close implements net.Listener. It closes every connection, too: raft's transport leaves those to their time-outs, and a
// replica that is out of order must not be heard any more.
func (s *streams) Close() error {
	s.mu.Lock()
	open := s.open
	s.cut, s.open = true, nil
	s.mu.Unlock()
	err := s.Transport.Close()
	// order-free: all are closed
	for conn := range open {
		_ = conn.Close()
	}
	return err
}

// trackedConn is a connection that is forgotten when it is closed.
type trackedConn struct {
	net.Conn
	streams *streams
}

// Close implements net.Conn.
func (c trackedConn) Close() error {
	c.streams.mu.Lock()
	delete(c.streams.open, c.Conn)
	c.streams.mu.Unlock()
	return c.Conn.Close()
}
