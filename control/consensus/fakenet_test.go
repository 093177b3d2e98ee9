package consensus

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

var errUnreachable = errors.New("unreachable")

// fakeNet connects transports in memory. An address can be cut off: its connections break and no new ones are made.
type fakeNet struct {
	mu    sync.Mutex
	at    map[string]*fakeTransport
	cut   map[string]bool
	conns map[net.Conn][2]string
	slow  map[string]*sync.RWMutex // what reads of the answers to an address wait for
	late  atomic.Int32             // how many waited
}

func newFakeNet() *fakeNet {
	return &fakeNet{at: make(map[string]*fakeTransport), cut: make(map[string]bool), conns: make(map[net.Conn][2]string), slow: make(map[string]*sync.RWMutex)}
}

// listen returns the transport at an address, which may have been used before.
func (n *fakeNet) listen(address string) *fakeTransport {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.slow[address] = new(sync.RWMutex)
	t := &fakeTransport{net: n, address: address, incoming: make(chan net.Conn), closed: make(chan struct{})}
	n.at[address] = t
	return t
}

func (n *fakeNet) isolate(address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[address] = true
	for conn, ends := range n.conns {
		if ends[0] == address || ends[1] == address {
			_ = conn.Close()
			delete(n.conns, conn)
		}
	}
}

// hold keeps back every answer to an address that arrives from now on, also past the end of its connection, until release is called.
func (n *fakeNet) hold(address string) (release func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.slow[address].Lock()
	return n.slow[address].Unlock
}

func (n *fakeNet) heal(address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.cut, address)
}

// connect makes both ends of a connection.
func (n *fakeNet) connect(from, to string) (near, far net.Conn, listener *fakeTransport, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	listener = n.at[to]
	if listener == nil || n.cut[from] || n.cut[to] {
		return nil, nil, nil, errUnreachable
	}
	near, far = net.Pipe()
	n.conns[near], n.conns[far] = [2]string{from, to}, [2]string{from, to}
	return heldConn{Conn: near, gate: n.slow[from], late: &n.late}, far, listener, nil
}

// heldConn is a connection whose answers may be late.
type heldConn struct {
	net.Conn
	gate *sync.RWMutex
	late *atomic.Int32
}

func (c heldConn) Read(b []byte) (int, error) {
	read, err := c.Conn.Read(b)
	if !c.gate.TryRLock() {
		c.late.Add(1)
		c.gate.RLock()
	}
	c.gate.RUnlock()
	return read, err
}

// fakeTransport is one replica's end.
type fakeTransport struct {
	net      *fakeNet
	address  string
	incoming chan net.Conn
	once     sync.Once
	closed   chan struct{}
}

func (t *fakeTransport) Dial(address string, timeout time.Duration) (net.Conn, error) {
	near, far, listener, err := t.net.connect(t.address, address)
	if err != nil {
		return nil, err
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case listener.incoming <- far:
		return near, nil
	case <-listener.closed:
	case <-timer.C:
	}
	return nil, errors.Join(errUnreachable, near.Close(), far.Close())
}

func (t *fakeTransport) Accept() (net.Conn, error) {
	select {
	case conn := <-t.incoming:
		return conn, nil
	case <-t.closed:
		return nil, net.ErrClosed
	}
}

func (t *fakeTransport) Close() error {
	t.once.Do(func() { close(t.closed) })
	return nil
}

func (t *fakeTransport) Addr() net.Addr { return fakeAddr(t.address) }

type fakeAddr string

func (fakeAddr) Network() string  { return "fake" }
func (a fakeAddr) String() string { return string(a) }
