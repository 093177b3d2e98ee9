package identity

import (
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func transport(t *testing.T, s *Store) *RaftTransport {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // loopback
	if err != nil {
		t.Fatal(err)
	}
	r := s.RaftTransport(listener, quiet())
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// echo answers every connection with what it sends, until the transport is closed, and returns what ended each.
func echo(t *testing.T, r *RaftTransport) <-chan error {
	t.Helper()
	ended := make(chan error, 16)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := r.Accept()
			if err != nil {
				return
			}
			_ = conn.SetDeadline(time.Now().Add(patience))
			_, err = io.Copy(conn, conn)
			_ = conn.Close()
			ended <- err
		}
	}()
	t.Cleanup(func() {
		_ = r.Close()
		<-done
	})
	return ended
}

// TestRaftTransport: the replicas of one log reach each other, and nobody else reaches them.
func TestRaftTransport(t *testing.T) {
	ca, same := newCA(t, "fl-one"), newCA(t, "fl-one")
	first := transport(t, agent(t, ca, RoleCell, "cell-a-1", "cell-a"))
	ended := echo(t, first)
	for name, c := range map[string]struct {
		from *Store
		want string // in the error of Dial; empty when it gets through
	}{
		"another replica":     {agent(t, ca, RoleCell, "cell-a-2", "cell-a"), ""},
		"another cell's":      {agent(t, ca, RoleCell, "cell-b-1", "cell-b"), "the cell cell-a, not cell-b"},
		"a control agent":     {agent(t, ca, RoleControl, "control-1", ""), "the role cell, not control"},
		"another authority's": {agent(t, same, RoleCell, "cell-a-2", "cell-a"), "authority"},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := transport(t, c.from).Dial(first.Addr().String(), patience)
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, want %s", err, c.want)
				}
				if err := <-ended; err == nil {
					t.Error("the replica let it in")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.SetDeadline(time.Now().Add(patience))
			got := make([]byte, 5)
			if _, err := conn.Write([]byte("hello")); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(conn, got); err != nil || string(got) != "hello" {
				t.Errorf("%q, %v", got, err)
			}
			_ = conn.Close()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRaftTransportRefuses: what does not ask who answers, as an attacker does not, is refused by the replica.
func TestRaftTransportRefuses(t *testing.T) {
	ca := newCA(t, "fl-one")
	replica := transport(t, agent(t, ca, RoleCell, "cell-a-1", "cell-a"))
	ended := echo(t, replica)
	good, other := agent(t, ca, RoleCell, "cell-a-2", "cell-a"), agent(t, ca, RoleGateway, "gateway-1", "")
	for name, c := range map[string]struct {
		show      *Store
		protocols []string
		want      string
	}{
		"no certificate":   {nil, []string{raftProtocol}, "didn't provide a certificate"},
		"a gateway":        {other, []string{raftProtocol}, "the role gateway, not cell"},
		"another protocol": {good, []string{"h2"}, "unsupported application protocols"},
		"no protocol":      {good, nil, "the protocol"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := &tls.Config{InsecureSkipVerify: true, NextProtos: c.protocols} //nolint:gosec // the test's own
			if c.show != nil {
				cfg.GetClientCertificate = c.show.ClientTLS(Expect{}).GetClientCertificate
			}
			conn, err := net.Dial("tcp", replica.Addr().String()) //nolint:noctx // loopback
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(patience))
			_ = exchange(tls.Client(conn, cfg))
			conn.Close()
			if err := <-ended; err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the replica says %v, not %s", err, c.want)
			}
		})
	}
}

// TestRaftTransportBounds: connections that never prove anything are bounded in number, and closing one gives its place back.
func TestRaftTransportBounds(t *testing.T) {
	replica := transport(t, agent(t, newCA(t, "fl-one"), RoleCell, "cell-a-1", "cell-a"))
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", replica.Addr().String()) //nolint:noctx // loopback
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	var accepted []net.Conn
	for range handshakesMax {
		dial()
		conn, err := replica.Accept()
		if err != nil {
			t.Fatal(err)
		}
		accepted = append(accepted, conn)
	}
	refused := dial()
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := replica.Accept() // ends with the listener
		if err == nil {
			_ = conn.Close()
			t.Error("one too many is accepted")
		}
	}()
	_ = refused.SetReadDeadline(time.Now().Add(patience))
	if _, err := refused.Read(make([]byte, 1)); err == nil || errors.Is(err, io.ErrNoProgress) {
		t.Errorf("one too many is not closed: %v", err)
	}
	_ = replica.Close()
	<-done
	for _, c := range accepted {
		_ = c.Close()
		_ = c.Close() // twice is as once
	}
	if n := replica.pending.Load(); n != 0 {
		t.Errorf("%d places are not given back", n)
	}
}
