package identity

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// raftProtocol is agreed on in the handshake: what connects to the wrong port, or means another protocol by it, is refused there.
const raftProtocol = "fairlead-raft/1"

// The bounds of connections that nobody has proved to be an agent's yet.
const (
	handshakeTimeout = 10 * time.Second
	// handshakesMax bounds connections in their handshake: a group has a handful of replicas, with a few connections each.
	handshakesMax = 64
)

// RaftTransport carries what the replicas of one log say to each other, over TLS: both ends have the same role, and the same cell. It is a
// net.Listener with Dial, for a group of consensus. It is safe for concurrent use.
type RaftTransport struct {
	listener net.Listener
	server   *tls.Config
	client   *tls.Config
	log      *slog.Logger
	pending  atomic.Int64
}

// RaftTransport returns the transport of the agent's log on listener, which it closes.
func (s *Store) RaftTransport(listener net.Listener, log *slog.Logger) *RaftTransport {
	own := s.Identity()
	same, protocols := Expect{Role: own.Role, Cell: own.Cell}, []string{raftProtocol}
	return &RaftTransport{
		listener: listener, log: log,
		server: s.server(tls.RequireAndVerifyClientCert, protocols, []Expect{same}),
		client: s.client(same, protocols),
	}
}

// Accept returns the next connection, whose handshake happens at its first read: one that is slow stops nobody else.
func (t *RaftTransport) Accept() (net.Conn, error) {
	for {
		conn, err := t.listener.Accept()
		if err != nil {
			return nil, err
		}
		if t.pending.Add(1) > handshakesMax {
			t.pending.Add(-1)
			t.log.Warn("a connection to the log's port is refused: too many are in their handshake", "peer", conn.RemoteAddr().String(), "max", handshakesMax)
			_ = conn.Close()
			continue
		}
		return &raftConn{Conn: tls.Server(conn, t.server), t: t}, nil
	}
}

// Close stops accepting.
func (t *RaftTransport) Close() error { return t.listener.Close() }

// Addr returns the listener's address.
func (t *RaftTransport) Addr() net.Addr { return t.listener.Addr() }

// Dial connects to a replica of the same log. It returns a *[MismatchError], wrapped, when another agent answers.
func (t *RaftTransport) Dial(address string, timeout time.Duration) (net.Conn, error) {
	ctx := context.Background()
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	secure := tls.Client(conn, t.client)
	if err := handshake(ctx, secure); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("the replica at %s: %w", address, err)
	}
	return secure, nil
}

// handshake ends with an error when the other side has not agreed on the protocol: crypto/tls lets pass who names none at all.
func handshake(ctx context.Context, conn *tls.Conn) error {
	if err := conn.HandshakeContext(ctx); err != nil {
		return err
	}
	if got := conn.ConnectionState().NegotiatedProtocol; got != raftProtocol {
		return &MismatchError{Field: "protocol", Got: fmt.Sprintf("%q", got), Want: raftProtocol}
	}
	return nil
}

// raftConn is an accepted connection. Nothing is read from it or written to it before its handshake.
type raftConn struct {
	*tls.Conn

	t    *RaftTransport
	once sync.Once
	err  error
}

func (c *raftConn) prove() error {
	c.once.Do(func() {
		defer c.t.pending.Add(-1)
		ctx, cancel := context.WithTimeout(context.Background(), handshakeTimeout)
		defer cancel()
		if c.err = handshake(ctx, c.Conn); c.err != nil {
			c.t.log.Warn("a connection to the log's port is refused", "peer", c.RemoteAddr().String(), "error", c.err.Error())
			_ = c.Conn.Close()
		}
	})
	return c.err
}

// Read reads what the replica sent.
func (c *raftConn) Read(p []byte) (int, error) {
	if err := c.prove(); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

// Write sends p to the replica.
func (c *raftConn) Write(p []byte) (int, error) {
	if err := c.prove(); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// Close ends the connection, and its handshake.
func (c *raftConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { // it was never read: nobody proved anything
		c.err = net.ErrClosed
		c.t.pending.Add(-1)
	})
	return err
}
