// Package cli proves what a user meets at the outside: the real binary and a real server take what is right, and answer what is wrong with
// an error that says which field, which bound, and what to do.
//
// Bad input is tried twice. By RPC, over every protocol and as raw bytes, against a server in the test's own process: rpc_test.go,
// raw_test.go and a fuzz test. By command line, as scripts in testdata against `fairlead dev` in a process of its own, together with the
// whole life of a job, every output format and every exit code. readme_test.go runs the README's lines as a reader would paste them.
package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/cmd/fairlead/agent"
	"github.com/fairlead/fairlead/dataplane/client"
	"github.com/fairlead/fairlead/e2e/harness"
)

func TestMain(m *testing.M) {
	code := harness.Main(m, nil)
	if err := shared.close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// shared is the one server inside this process: it is started by the first test that asks.
var shared inProcess

type inProcess struct {
	once  sync.Once
	dir   string
	agent *agent.Agent
	err   error
}

// start returns the server of this process, with the tenants acme and globex.
func (s *inProcess) start(tb testing.TB) *agent.Agent {
	tb.Helper()
	s.once.Do(func() {
		if s.dir, s.err = os.MkdirTemp("", "fairlead-e2e-cli-"); s.err != nil { //nolint:usetesting // it outlives the test that starts it
			return
		}
		cfg := agent.DefaultConfig(filepath.Join(s.dir, "state"), "127.0.0.1:0")
		cfg.SampleTenants = []string{"acme", "globex"}
		cfg.Logger = slog.New(slog.DiscardHandler)
		s.agent, s.err = agent.Start(context.WithoutCancel(tb.Context()), cfg) // it outlives the test that starts it
	})
	if s.err != nil {
		tb.Fatal(s.err)
	}
	return s.agent
}

func (s *inProcess) close() error {
	var err error
	if s.agent != nil {
		err = s.agent.Close()
	}
	if s.dir != "" {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}

// token returns the secret of one of the server's own keys: admin, worker, or a tenant's name.
func token(tb testing.TB, a *agent.Agent, name string) client.Token {
	tb.Helper()
	for _, k := range a.Credentials().Keys {
		if k.Name == name {
			return client.Token(k.Secret)
		}
	}
	tb.Fatalf("the server has no key %q", name)
	return ""
}
