package harness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cmd/fairlead/config"
	"github.com/fairlead/fairlead/dataplane/client"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// readyTimeout bounds a start. It is generous: a start that is slow is measured by whoever cares, one that never ends has to fail.
const readyTimeout = 60 * time.Second

// Config says which server a test wants.
type Config struct {
	// Dir is the state directory; one of the test's own when empty.
	Dir string
	// Tenants are the sample tenants, each with a key of its name.
	Tenants []string
	// Policy is fairlead, which is also meant by empty, fifo, or the path of a policy file.
	Policy string
}

// Server is a state directory with a port, and the fairlead dev that runs on them, if one does. It keeps its port over restarts, so that
// clients find it again.
type Server struct {
	tb   testing.TB
	cfg  Config
	port int
	keys map[string]client.Token

	process *Process
	began   time.Time
}

// NewServer returns a server that does not run yet.
func NewServer(tb testing.TB, cfg Config) *Server {
	tb.Helper()
	if cfg.Dir == "" {
		cfg.Dir = tb.TempDir()
	}
	if cfg.Policy == "" {
		cfg.Policy = config.DefaultPolicy
	}
	return &Server{tb: tb, cfg: cfg, port: freePort(tb)}
}

// Dir returns the state directory.
func (s *Server) Dir() string { return s.cfg.Dir }

// Addr returns the API's base URL.
func (s *Server) Addr() string { return "http://" + s.listen() }

func (s *Server) listen() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Process returns the present or last process.
func (s *Server) Process() *Process { return s.process }

// Launch starts the process and does not wait until it is ready.
func (s *Server) Launch() {
	s.tb.Helper()
	s.began = time.Now()
	if dir := profileDir(); dir != "" {
		s.process = Spawn(s.tb, serverRole, serverArgs{
			Dir: s.cfg.Dir, Listen: s.listen(), Tenants: s.cfg.Tenants, Policy: s.cfg.Policy, Profile: dir,
		}, nil)
		return
	}
	args := []string{"dev", "--dir", s.cfg.Dir, "--listen", s.listen(), "--policy", s.cfg.Policy, "--log-level", "warn"}
	if len(s.cfg.Tenants) > 0 {
		args = append(args, "--sample-tenant", strings.Join(s.cfg.Tenants, ","))
	}
	cmd := exec.CommandContext(s.tb.Context(), Binary(s.tb), args...)
	cmd.Dir = s.tb.TempDir() // where no configuration lies about
	s.began = time.Now()
	s.process = Start(s.tb, "fairlead dev", cmd)
}

// Start launches the process, waits until it has answered a request, and returns how long that took from the start of the process. A server
// that ends instead fails the test.
func (s *Server) Start() time.Duration {
	s.tb.Helper()
	s.Launch()
	took, err := s.Ready()
	if err != nil {
		s.tb.Fatal(err)
	}
	return took
}

// ErrEnded is returned by [Server.Ready] when the process ended before it was ready.
var ErrEnded = errors.New("the server ended before it was ready")

// Ready waits until the process has answered a request, and returns how long that took from its start. It returns an error that wraps
// [ErrEnded], with the exit code and the output, when it ended instead.
func (s *Server) Ready() (time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(s.tb.Context(), readyTimeout, errors.New("the server is not ready"))
	defer cancel()
	const interval = 2 * time.Millisecond // a fraction of what any start takes
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var last error
	for {
		if last = s.probe(ctx); last == nil {
			return time.Since(s.began), nil
		}
		select {
		case <-ticker.C:
		case <-s.process.Ended():
			return 0, fmt.Errorf("%w: exit code %d, output:\n%s", ErrEnded, s.process.cmd.ProcessState.ExitCode(), s.process.Output())
		case <-ctx.Done():
			return 0, fmt.Errorf("%w: %w", context.Cause(ctx), last)
		}
	}
}

// probe makes one request that only a server in full working order answers.
func (s *Server) probe(ctx context.Context) error {
	creds, err := config.ReadCredentials(s.cfg.Dir)
	if err != nil {
		return err
	}
	if creds.Addr != s.Addr() {
		return fmt.Errorf("the credentials are for %s", creds.Addr)
	}
	s.keys = make(map[string]client.Token, len(creds.Keys))
	for _, k := range creds.Keys {
		s.keys[k.Name] = client.Token(k.Secret)
	}
	_, err = s.Status(ctx)
	return err
}

// Status returns what the cell says of itself.
func (s *Server) Status(ctx context.Context) (*fairleadv1.GetStatusResponse, error) {
	conn, err := client.Dial(s.ClientConfig("admin"))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return fairleadv1connect.NewStatusServiceClient(conn.HTTP, conn.URL, conn.Options...).GetStatus(ctx, &fairleadv1.GetStatusRequest{})
}

// Kill ends the process as a power cut would: it gets to do nothing more.
func (s *Server) Kill() {
	s.tb.Helper()
	s.process.Kill()
}

// ClientConfig returns how to reach the server with one of its keys: admin, worker, or a tenant's name.
func (s *Server) ClientConfig(key string) client.Config {
	token, ok := s.keys[key]
	if !ok {
		s.tb.Fatalf("the server has no key %q", key)
	}
	return client.Config{Addr: s.Addr(), Token: token}
}

// Client returns a client with one of the server's keys, which is closed when the test ends.
func (s *Server) Client(key string) *client.Client {
	s.tb.Helper()
	c, err := client.New(s.ClientConfig(key))
	if err != nil {
		s.tb.Fatal(err)
	}
	s.tb.Cleanup(c.Close)
	return c
}

// Conn returns what the generated clients are made from, with one of the server's keys. It is closed when the test ends.
func (s *Server) Conn(key string) *client.Conn {
	s.tb.Helper()
	conn, err := client.Dial(s.ClientConfig(key))
	if err != nil {
		s.tb.Fatal(err)
	}
	s.tb.Cleanup(conn.Close)
	return conn
}

// freePort returns a port that nobody listens on, from below those that systems give to connections: while a server is down, its clients'
// own connections must not take its place.
func freePort(tb testing.TB) int {
	tb.Helper()
	const from, to, tries = 20_000, 30_000, 100
	var last error
	for range tries {
		port := from + rand.IntN(to-from)
		var listen net.ListenConfig
		l, err := listen.Listen(tb.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			last = err
			continue
		}
		if err := l.Close(); err != nil {
			tb.Fatal(err)
		}
		return port
	}
	tb.Fatalf("no free port from %d to %d: %v", from, to, last)
	return 0
}
