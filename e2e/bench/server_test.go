package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cmd/fairlead/agent"
	"github.com/fairlead/fairlead/dataplane/client"
	"github.com/fairlead/fairlead/dataplane/gateway"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// The environment of the process that serves.
const (
	serverDirEnv     = "FAIRLEAD_BENCH_SERVER_DIR"
	serverProfileEnv = "FAIRLEAD_BENCH_SERVER_PROFILE"
)

const tenant = "acme"

// served is what the server says of itself, in one line, once it answers.
type served struct {
	API       string       `json:"api"`
	Echo      string       `json:"echo"`
	TenantKey client.Token `json:"-"`
	WorkerKey client.Token `json:"-"`
	// The keys as text, since a Token marshals as asterisks.
	Keys map[string]string `json:"keys"`
}

// serve runs an agent, and an echo beside it, until standard input ends. Each line there asks for the CPU time used so far.
func serve(ctx context.Context, dir string) (err error) {
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})))
	cfg := agent.DefaultConfig(dir, "127.0.0.1:0")
	cfg.SampleTenants, cfg.Logger = []string{tenant}, slog.Default()
	a, err := agent.Start(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	echoAddr, stop, err := serveEcho(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if path := os.Getenv(serverProfileEnv); path != "" {
		f, err := os.Create(path)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	s := served{API: a.Addr(), Echo: echoAddr, Keys: map[string]string{}}
	for _, k := range a.Credentials().Keys {
		s.Keys[k.Name] = k.Secret
	}
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(s); err != nil {
		return err
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if err := out.Encode(cpuTime()); err != nil {
			return err
		}
	}
	return nil
}

// echo answers submissions at once: what any server at all can do.
type echo struct {
	fairleadv1connect.UnimplementedJobServiceHandler
}

// Submit implements fairleadv1connect.JobServiceHandler.
func (echo) Submit(context.Context, *fairleadv1.SubmitRequest) (*fairleadv1.SubmitResponse, error) {
	return &fairleadv1.SubmitResponse{
		JobId: "job_0190a0e0-0000-7000-8000-000000000000", State: fairleadv1.JobState_JOB_STATE_READY,
	}, nil
}

func serveEcho(ctx context.Context) (url string, stop func() error, err error) {
	mux := http.NewServeMux()
	mux.Handle(fairleadv1connect.NewJobServiceHandler(echo{}, gateway.HandlerOptions()...))
	server := gateway.Server(mux)
	var listen net.ListenConfig
	ln, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ln) }()
	return "http://" + ln.Addr().String(), func() error {
		err := server.Close()
		if e := <-ended; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
		return err
	}, nil
}

// server is a running process of serve.
type server struct {
	served
	in  io.WriteCloser
	out *bufio.Reader
	cmd *exec.Cmd
}

// startServer starts the process on a fresh directory. It is stopped at the end of tb, after whatever was connected to it.
func startServer(tb testing.TB, name string) *server {
	tb.Helper()
	exe, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	s := &server{cmd: exec.CommandContext(context.WithoutCancel(tb.Context()), exe, "-test.run=^$")}
	s.cmd.Env = append(os.Environ(), serverDirEnv+"="+filepath.Join(tb.TempDir(), "state"))
	if *flagProfile != "" {
		if err := os.MkdirAll(*flagProfile, 0o755); err != nil {
			tb.Fatal(err)
		}
		s.cmd.Env = append(s.cmd.Env, serverProfileEnv+"="+filepath.Join(*flagProfile, name+".pprof"))
	}
	s.cmd.Stderr = os.Stderr
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		tb.Fatal(err)
	}
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	s.out = bufio.NewReader(stdout)
	if err := s.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	if err := s.read(&s.served); err != nil {
		tb.Fatal(errors.Join(fmt.Errorf("the server did not start: %w", err), s.cmd.Wait()))
	}
	tb.Cleanup(func() {
		if err := errors.Join(s.in.Close(), s.cmd.Wait()); err != nil {
			tb.Error(err)
		}
	})
	s.TenantKey, s.WorkerKey = client.Token(s.Keys[tenant]), client.Token(s.Keys["worker"])
	return s
}

func (s *server) read(v any) error {
	line, err := s.out.ReadBytes('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(line, v)
}

// cpu returns what the server has used so far.
func (s *server) cpu(tb testing.TB) time.Duration {
	tb.Helper()
	var d time.Duration
	_, err := io.WriteString(s.in, "\n")
	if err == nil {
		err = s.read(&d)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return d
}
