package main

import (
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cmd/fairlead/config"
	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/cmd/fairlead/identity"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// fakeControl is a control agent's port: it wants a control agent's certificate, and is not ready at first.
type fakeControl struct {
	fairleadv1connect.UnimplementedRegistryServiceHandler

	asked   atomic.Int32
	unready atomic.Int32
	got     atomic.Pointer[fairleadv1.BootstrapRequest]
}

func (f *fakeControl) Bootstrap(_ context.Context, req *fairleadv1.BootstrapRequest) (*fairleadv1.BootstrapResponse, error) {
	f.got.Store(req)
	return &fairleadv1.BootstrapResponse{ClusterId: "fl-test", Created: f.asked.Add(1) == 1}, nil
}

// startControl prepares a cluster in the working directory, and serves its control agent; the answer is its host and port.
func startControl(t *testing.T) (*fakeControl, string) {
	t.Helper()
	a, _, talk := fakeApp("")
	if code := a.execute(t.Context(), []string{"cluster", "prepare", "--dir", "pki", "--agent", "control-1=control", "--agent", "gateway-1=gateway"}); code != failure.OK {
		t.Fatalf("exit code %d: %s", code, talk)
	}
	store, err := identity.Load(filepath.Join("pki", "control-1"))
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeControl{}
	mux := http.NewServeMux()
	mux.Handle(fairleadv1connect.NewRegistryServiceHandler(f))
	mux.HandleFunc(healthPath, func(w http.ResponseWriter, _ *http.Request) {
		if f.unready.Add(-1) >= 0 {
			http.Error(w, "no leader", http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	})
	server := httptest.NewUnstartedServer(mux)
	server.TLS, server.EnableHTTP2 = store.DoorTLS(), true
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return f, strings.TrimPrefix(server.URL, "https://")
}

// TestBootstrap: the first call makes the cluster, the second says that there is one, and --wait outlasts an agent that is not ready yet.
func TestBootstrap(t *testing.T) {
	inEmptyDir(t)
	f, address := startControl(t)
	args := []string{
		"cluster", "bootstrap", "--control", address, "--voter", "control-1=control-1:7701", "--tls-dir", filepath.Join("pki", "control-1"),
		"--admin-key-file", filepath.Join("pki", "admin.key"),
	}
	a, out, talk := fakeApp("")
	if code := a.execute(t.Context(), args); code != failure.OK || !strings.Contains(out.String(), "fl-test") || strings.Contains(talk.String(), "before") {
		t.Fatalf("exit code %d: %s%s", code, out, talk)
	}
	req := f.got.Load()
	if v := req.GetVoters(); len(v) != 1 || v[0].GetName() != "control-1" || v[0].GetRaftAddress() != "control-1:7701" || len(req.GetAdminKeyHash()) != 32 {
		t.Errorf("it asked for %v", req)
	}
	f.unready.Store(2)
	a, out, talk = fakeApp("")
	code := a.execute(t.Context(), append(args, "--wait", "-o", "name"))
	if code != failure.OK || out.String() != "fl-test\n" || !strings.Contains(talk.String(), "had been bootstrapped before") {
		t.Fatalf("exit code %d: %s%s", code, out, talk)
	}
	if !strings.Contains(talk.String(), "it answers 503 no leader") {
		t.Errorf("it does not say what it waits for: %s", talk)
	}
}

// TestHealth: an agent is asked by the cluster's certificates, by the authority alone, or as the configuration of an agent says.
func TestHealth(t *testing.T) {
	inEmptyDir(t)
	f, address := startControl(t)
	_, port, _ := strings.Cut(address, ":")
	t.Setenv("FAIRLEAD_ADDR", "")
	for name, c := range map[string]struct {
		args []string
		env  map[string]string
		want failure.Code
	}{
		"by the cluster's certificates": {args: []string{"--addr", "https://" + address, "--tls-dir", "pki/gateway-1"}},
		"by the authority":              {args: []string{"--addr", "https://" + address, "--ca-file", "pki/ca.crt"}},
		"without the authority":         {args: []string{"--addr", "https://" + address}, want: failure.Unreachable},
		"as configured": {env: map[string]string{
			"FAIRLEAD_AGENT_NAME": "control-1", "FAIRLEAD_AGENT_ROLE": "control", "FAIRLEAD_AGENT_LISTEN": ":" + port, "FAIRLEAD_AGENT_TLS_DIR": "pki/control-1",
		}},
		"as another": {want: failure.Denied, env: map[string]string{
			"FAIRLEAD_AGENT_NAME": "gateway-1", "FAIRLEAD_AGENT_ROLE": "gateway", "FAIRLEAD_AGENT_LISTEN": ":" + port, "FAIRLEAD_AGENT_TLS_DIR": "pki/gateway-1",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for key, value := range c.env {
				t.Setenv(key, value)
			}
			a, out, talk := fakeApp("")
			if code := a.execute(t.Context(), append([]string{"health"}, c.args...)); code != c.want {
				t.Errorf("exit code %d, want %d: %s%s", code, c.want, out, talk)
			}
		})
	}
	f.unready.Store(1)
	a, _, talk := fakeApp("")
	code := a.execute(t.Context(), []string{"health", "--addr", "https://" + address, "--ca-file", "pki/ca.crt"})
	if code != failure.Unreachable || !strings.Contains(talk.String(), "it answers 503 no leader") {
		t.Errorf("an agent that does not serve: exit code %d: %s", code, talk)
	}
}

// TestConfirm: at a terminal yes is yes, and everything else, an end of the input included, is no.
func TestConfirm(t *testing.T) {
	for answer, want := range map[string]failure.Code{
		"y\n": failure.OK, "YES\n": failure.OK, " yes": failure.OK, "n\n": failure.Refused, "\n": failure.Refused, "": failure.Refused, "yesterday\n": failure.Refused,
	} {
		a, _, talk := fakeApp(answer)
		a.talks = true
		got := failure.OK
		if p := failure.Explain(a.confirm(t.Context(), false, "Really?")); p != nil {
			got = p.Code
		}
		if got != want || talk.String() != "Really? [y/N] " {
			t.Errorf("%q ends with %d, want %d: %s", answer, got, want, talk)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(failure.ErrInterrupted)
	a, _, _ := fakeApp("")
	a.in, a.talks = blocked{}, true
	if err := a.confirm(ctx, false, "Really?"); !errors.Is(err, failure.ErrInterrupted) {
		t.Errorf("an interrupt is answered by %v", err)
	}
}

// blocked is a terminal at which nobody sits.
type blocked struct{}

func (blocked) Read([]byte) (int, error) { select {} }

// TestAgentReloads: at SIGHUP an agent is handed what may change, is told in the log what may not, and goes on with what it has when the file is broken.
func TestAgentReloads(t *testing.T) {
	inEmptyDir(t)
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile("agent.yaml", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const good = "agent:\n  name: gateway-1\n  role: gateway\n  control: [control-1:7700]\n"
	write(good)
	signals, logged := make(chan os.Signal, 1), &lines{found: make(chan struct{}, 16)}
	a, _, talk := fakeApp("")
	a.err = logged
	a.hangups = func() (<-chan os.Signal, func()) { return signals, func() {} }
	a.serveAgent = func(ctx context.Context, run agentRun) error {
		if run.config.Name != "gateway-1" || run.logger.Enabled(ctx, slog.LevelDebug) {
			t.Errorf("it runs as %+v", run.config)
		}
		logged.want("cannot be used")
		write("agent: [\n")
		signals <- syscall.SIGHUP
		logged.await(t)
		write(strings.ReplaceAll(good, "control-1", "control-2") + "  log-level: debug\n  listen: :8800\n")
		signals <- syscall.SIGHUP
		next := <-run.reload
		if next.Control[0] != "control-2:7700" || next.LogLevel != "debug" || next.Listen != config.DefaultAgentListen {
			t.Errorf("it changes to %+v", next)
		}
		if !run.logger.Enabled(ctx, slog.LevelDebug) {
			t.Error("the level of the log has not changed")
		}
		return nil
	}
	if code := a.execute(t.Context(), []string{"agent", "--config", "agent.yaml"}); code != failure.OK {
		t.Errorf("exit code %d: %s", code, talk)
	}
	if all := logged.String(); !strings.Contains(all, "key=agent.listen") {
		t.Errorf("the log does not name what stays: %s", all)
	}
}

// TestAgentEnds: what ended an agent is said with what to do.
func TestAgentEnds(t *testing.T) {
	inEmptyDir(t)
	for name, c := range map[string]struct {
		err  error
		code failure.Code
		want string
	}{
		"no certificate": {&identity.FileError{Path: "x/ca.crt", Problem: "cannot be read"}, failure.Usage, "fairlead cluster prepare"},
		"a port":         {errors.New("listen tcp :7700: bind: address already in use"), failure.Failed, "--raft-listen"},
		"anything":       {errors.New("boom"), failure.Failed, "boom"},
	} {
		t.Run(name, func(t *testing.T) {
			a, _, talk := fakeApp("")
			a.hangups = func() (<-chan os.Signal, func()) { return nil, func() {} }
			a.serveAgent = func(context.Context, agentRun) error { return c.err }
			code := a.execute(t.Context(), []string{"agent", "--name", "gateway-1", "--role", "gateway", "--control", "control-1:7700"})
			if code != c.code || !strings.Contains(talk.String(), c.want) || !strings.Contains(talk.String(), "the agent gateway-1 ended") {
				t.Errorf("exit code %d: %s", code, talk)
			}
		})
	}
}

// TestWaitsAreBounded: a wait for a cell ends with its time and says how to wait on, and an interrupt leaves the drain as it is.
func TestWaitsAreBounded(t *testing.T) {
	inEmptyDir(t)
	f := newFakeServer()
	t.Cleanup(f.Close)
	t.Setenv("FAIRLEAD_ADDR", f.URL)
	t.Setenv("FAIRLEAD_TOKEN", "flk_admin")
	f.cluster.cells[0].Load.Jobs = 1e9
	a, _, talk := fakeApp("")
	args := []string{"cell", "drain", "cell-a", "--wait", "--interval", "10ms"}
	if code := a.execute(t.Context(), append(args, "--timeout", "50ms")); code != failure.TimedOut || !strings.Contains(talk.String(), "wait on with: fairlead cell drain") {
		t.Errorf("exit code %d: %s", code, talk)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	bound, stop := context.WithTimeout(t.Context(), awaitMax)
	defer stop()
	a, _, talk = fakeApp("")
	code := make(chan failure.Code, 1)
	f.mu.Lock()
	looks := f.calls["GetCell"]
	f.mu.Unlock()
	go func() { code <- a.execute(ctx, args) }()
	if err := f.awaitCalls(bound, "GetCell", looks+2); err != nil {
		t.Fatal(err)
	}
	cancel(failure.ErrInterrupted)
	if got := <-code; got != failure.Interrupted || !strings.Contains(talk.String(), "It goes on. Wait on with") {
		t.Errorf("exit code %d: %s", got, talk)
	}
}

// TestProgress: a long save says how much it has, in place on a terminal.
func TestProgress(t *testing.T) {
	inEmptyDir(t)
	f := newFakeServer()
	t.Cleanup(f.Close)
	t.Setenv("FAIRLEAD_ADDR", f.URL)
	t.Setenv("FAIRLEAD_TOKEN", "flk_admin")
	a, _, talk := fakeApp("")
	a.talks = true
	now := time.Unix(0, 0)
	a.now = func() time.Time {
		now = now.Add(progressElsewhere)
		return now
	}
	if code := a.execute(t.Context(), []string{"cluster", "snapshot", "save", "x.snap"}); code != failure.OK || !strings.Contains(talk.String(), "\r\x1b[Ksave the state of control: 5B") {
		t.Errorf("exit code %d: %q", code, talk)
	}
}
