package gateway

import (
	"net"
	"net/netip"
	"sync"
)

// Listener returns l with the bounds of the gateway's config on open connections. A connection beyond them is closed as it is accepted:
// whoever opens too many cannot keep others out.
func (g *Gateway) Listener(l net.Listener) net.Listener {
	return &listener{Listener: l, g: g, perIP: make(map[netip.Addr]int)}
}

type listener struct {
	net.Listener
	g *Gateway

	mu    sync.Mutex
	open  int
	perIP map[netip.Addr]int // no entry for none
}

// Accept implements [net.Listener].
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		ip := origin(c.RemoteAddr())
		limit := l.enter(ip)
		if limit == "" {
			return &conn{Conn: c, l: l, ip: ip}, nil
		}
		l.g.log.Debug("connection refused", "limit", limit, "remote", c.RemoteAddr().String())
		if err := c.Close(); err != nil {
			l.g.log.Debug("close of a refused connection", "error", err)
		}
	}
}

// enter counts a connection and returns "", or the name of the limit that it would break.
func (l *listener) enter(ip netip.Addr) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open >= l.g.cfg.ConnectionsMax {
		return LimitConnections
	}
	if ip.IsValid() {
		if l.perIP[ip] >= l.g.cfg.ConnectionsPerIPMax {
			return LimitConnectionsPerIP
		}
		l.perIP[ip]++
	}
	l.open++
	return ""
}

func (l *listener) leave(ip netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if !ip.IsValid() {
		return
	}
	if l.perIP[ip]--; l.perIP[ip] == 0 {
		delete(l.perIP, ip)
	}
}

// origin returns whom a connection counts against: an IPv4 address, the /64 of an IPv6 one (which one machine commonly has the whole
// of), or nobody for loopback and for what is no IP address.
func origin(a net.Addr) netip.Addr {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	ip := t.AddrPort().Addr().Unmap().WithZone("")
	if ip.IsLoopback() {
		return netip.Addr{}
	}
	if ip.Is6() {
		const sitePrefixBits = 64
		p, err := ip.Prefix(sitePrefixBits)
		if err != nil { // not possible for an address without a zone
			return ip
		}
		return p.Addr()
	}
	return ip
}

// conn gives its place back when it is closed.
type conn struct {
	net.Conn
	l    *listener
	ip   netip.Addr
	once sync.Once
}

// Close implements [net.Conn].
func (c *conn) Close() error {
	c.once.Do(func() { c.l.leave(c.ip) })
	return c.Conn.Close()
}
