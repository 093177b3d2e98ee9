package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	os.Exit(Main(m, map[string]Role{
		"count": func(ctx context.Context, args json.RawMessage) error {
			fmt.Fprintf(os.Stdout, "args %s\nready\nno end of line", args)
			<-ctx.Done()
			return nil
		},
		"fail": func(context.Context, json.RawMessage) error { return errors.New("on purpose") },
	}))
}

// TestSpawn: a role gets its arguments, its lines arrive whole, and it ends as it is told to.
func TestSpawn(t *testing.T) {
	NeedSignals(t)
	lines := make(chan string, 10)
	p := Spawn(t, "count", map[string]int{"n": 3}, func(b []byte) { lines <- string(b) })
	for _, want := range []string{`args {"n":3}`, "ready"} {
		if got := <-lines; got != want {
			t.Fatalf("line %q, want %q", got, want)
		}
	}
	if code := p.Terminate(10 * time.Second); code != 0 {
		t.Fatalf("exit code %d after SIGTERM", code)
	}
	if len(lines) > 0 {
		t.Fatalf("a line without its end arrived: %q", <-lines)
	}
	p.Kill() // of a process that is gone: nothing
}

// TestSpawnFailure: the exit code and the output tell what went wrong.
func TestSpawnFailure(t *testing.T) {
	p := Spawn(t, "fail", nil, nil)
	code, err := p.Wait(10 * time.Second)
	if err != nil || code != 1 || !strings.Contains(p.Output(), "on purpose") {
		t.Fatalf("code %d, %v, output %q", code, err, p.Output())
	}
}

// TestTail: the end is what is kept.
func TestTail(t *testing.T) {
	var w tail
	for i := range 100_000 {
		if _, err := fmt.Fprintf(&w, "line %d\n", i); err != nil {
			t.Fatal(err)
		}
	}
	if s := w.String(); len(s) > 3*tailBytesMax || !strings.HasSuffix(s, "line 99999\n") || !strings.HasPrefix(s, "...") {
		t.Fatalf("%d bytes are kept, ending %q", len(s), s[max(0, len(s)-20):])
	}
}

// TestServer: a server starts, answers, is paused and killed, and keeps its address and keys.
func TestServer(t *testing.T) {
	NeedSignals(t)
	s := NewServer(t, Config{Tenants: []string{"acme", "globex"}})
	first := s.Start()
	addr, key := s.Addr(), s.keys["acme"]
	s.Kill()
	again := s.Start()
	if s.Addr() != addr || s.keys["acme"] != key {
		t.Error("the address or a key changed over a restart")
	}
	s.Process().Pause()
	s.Process().Resume()
	if code := s.Process().Terminate(20 * time.Second); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	t.Logf("ready after %v, and after %v on a state directory", first, again)
}

// TestServerThatEnds: who waits for a server that cannot start is told why, and at once.
func TestServerThatEnds(t *testing.T) {
	s := NewServer(t, Config{Tenants: []string{"acme"}, Policy: "no-such-policy"})
	s.Launch()
	if _, err := s.Ready(); !errors.Is(err, ErrEnded) || !strings.Contains(err.Error(), "no-such-policy") {
		t.Fatalf("it says %v", err)
	}
}
