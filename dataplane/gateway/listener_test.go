package gateway

import (
	"net"
	"sync"
	"testing"
)

// fakeListener hands out connections that come from the addresses put into it.
type fakeListener struct {
	net.Listener
	from chan string
	far  []net.Conn
}

func (f *fakeListener) Accept() (net.Conn, error) {
	addr, ok := <-f.from
	if !ok {
		return nil, net.ErrClosed
	}
	near, far := net.Pipe()
	f.far = append(f.far, far)
	return fakeConn{near, addr}, nil
}

type fakeConn struct {
	net.Conn
	addr string
}

func (f fakeConn) RemoteAddr() net.Addr {
	a, err := net.ResolveTCPAddr("tcp", f.addr)
	if err != nil {
		panic(err)
	}
	return a
}

func TestConnectionLimits(t *testing.T) {
	type step struct {
		from     string
		accepted bool
	}
	cases := map[string]struct {
		total, perIP int
		steps        []step
	}{
		"per address":          {10, 2, []step{{"192.0.2.1:1", true}, {"192.0.2.1:2", true}, {"192.0.2.1:3", false}, {"192.0.2.2:1", true}}},
		"loopback is exempt":   {10, 1, []step{{"127.0.0.1:1", true}, {"127.0.0.1:2", true}, {"[::1]:1", true}, {"[::1]:2", true}}},
		"a site of ipv6":       {10, 1, []step{{"[2001:db8::1]:1", true}, {"[2001:db8::2]:1", false}, {"[2001:db8:0:1::1]:1", true}}},
		"ipv4 in ipv6":         {10, 1, []step{{"[::ffff:192.0.2.1]:1", true}, {"192.0.2.1:2", false}}},
		"in all":               {2, 2, []step{{"192.0.2.1:1", true}, {"192.0.2.2:1", true}, {"192.0.2.3:1", false}}},
		"in all with loopback": {2, 2, []step{{"127.0.0.1:1", true}, {"127.0.0.1:2", true}, {"127.0.0.1:3", false}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := open(t, fakeDirectory{}, func(cfg *Config) { cfg.ConnectionsMax, cfg.ConnectionsPerIPMax = c.total, c.perIP })
			inner := &fakeListener{from: make(chan string, len(c.steps)+1)}
			l, ok := g.Listener(inner).(*listener)
			if !ok {
				t.Fatal("another type")
			}
			var got []net.Conn
			for _, s := range c.steps {
				inner.from <- s.from
			}
			close(inner.from)
			for {
				conn, err := l.Accept()
				if err != nil {
					break
				}
				got = append(got, conn)
			}
			i := 0
			for _, s := range c.steps {
				was := i < len(got) && got[i].RemoteAddr().String() == (fakeConn{addr: s.from}).RemoteAddr().String()
				if was {
					i++
				}
				if was != s.accepted {
					t.Errorf("%s accepted: %v, want %v", s.from, was, s.accepted)
				}
			}
			// A refused connection is closed: its other end reads an end of file.
			for n, s := range c.steps {
				if s.accepted {
					continue
				}
				if _, err := inner.far[n].Read(make([]byte, 1)); err == nil {
					t.Errorf("%s is still open", s.from)
				}
			}
			// Closing, however often and from wherever, gives each place back once.
			var wg sync.WaitGroup
			for _, conn := range got {
				for range 3 {
					wg.Go(func() { _ = conn.Close() })
				}
			}
			wg.Wait()
			if l.open != 0 || len(l.perIP) != 0 {
				t.Errorf("%d open, %v by address at the end", l.open, l.perIP)
			}
		})
	}
}
