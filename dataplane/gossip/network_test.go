package gossip

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// fakeNetwork is what agents gossip over in tests: packets and streams in memory, with links that can be cut.
type fakeNetwork struct {
	mu    sync.Mutex
	nodes map[string]*fakeTransport // by address
	side  map[string]int            // of the cut that is in force; addresses of different sides do not hear each other
}

func newNetwork() *fakeNetwork {
	return &fakeNetwork{nodes: map[string]*fakeTransport{}, side: map[string]int{}}
}

// cut puts each address on a side; none heals everything.
func (n *fakeNetwork) cut(sides map[string]int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.side = sides
}

func (n *fakeNetwork) open(address string) *fakeTransport {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := &fakeTransport{
		net: n, addr: netip.MustParseAddrPort(address), packets: make(chan *memberlist.Packet, 1024), streams: make(chan net.Conn, 64),
	}
	n.nodes[address] = t
	return t
}

// reach returns the transport at an address as seen from another; nil when there is none.
func (n *fakeNetwork) reach(from, to string) *fakeTransport {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.side[from] != n.side[to] {
		return nil
	}
	return n.nodes[to]
}

// fakeTransport is one agent's. Nothing in it blocks: what has no room is lost, as on a network.
type fakeTransport struct {
	net     *fakeNetwork
	addr    netip.AddrPort
	packets chan *memberlist.Packet
	streams chan net.Conn
}

func (t *fakeTransport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return t.addr.Addr().AsSlice(), int(t.addr.Port()), nil
}

func (t *fakeTransport) WriteTo(b []byte, addr string) (time.Time, error) {
	now := time.Now()
	if to := t.net.reach(t.addr.String(), addr); to != nil {
		select {
		case to.packets <- &memberlist.Packet{Buf: append([]byte(nil), b...), From: net.UDPAddrFromAddrPort(t.addr), Timestamp: now}:
		default:
		}
	}
	return now, nil
}

func (t *fakeTransport) PacketCh() <-chan *memberlist.Packet { return t.packets }

func (t *fakeTransport) DialTimeout(addr string, _ time.Duration) (net.Conn, error) {
	to := t.net.reach(t.addr.String(), addr)
	if to == nil {
		return nil, errors.New("no route to " + addr)
	}
	here, there := net.Pipe()
	select {
	case to.streams <- there:
		return here, nil
	default:
		return nil, errors.New("refused by " + addr)
	}
}

func (t *fakeTransport) StreamCh() <-chan net.Conn { return t.streams }

func (t *fakeTransport) Shutdown() error {
	t.net.mu.Lock()
	defer t.net.mu.Unlock()
	if t.net.nodes[t.addr.String()] == t {
		delete(t.net.nodes, t.addr.String())
	}
	return nil
}
