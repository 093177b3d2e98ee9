// Package compose runs the cluster of docker-compose.yml, as a newcomer does: it builds the image, starts the cluster under a project name of its
// own, submits jobs while a leader of control and one of a cell are killed, takes it down and up again, and looks for every job that was accepted.
//
// It needs docker with an engine that runs Linux containers, and docker-compose or docker's own compose; without any of them it is skipped. How
// fast any of it goes is not looked at.
package compose_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane/client"
	"github.com/fairlead/fairlead/e2e/harness"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m, nil)) }

// The bounds of what is waited for. A machine that also runs other tests may take long for each.
const (
	commandTimeout = 8 * time.Minute
	waitTimeout    = 3 * time.Minute
	callTimeout    = 10 * time.Second
	// timeNeeded is how much of the test's own time-out has to be left once the image is built, and timeToClean what is kept to take all down.
	timeNeeded  = 4 * time.Minute
	timeToClean = time.Minute
)

// cluster is the running compose project.
type cluster struct {
	t       *testing.T
	ctx     context.Context //nolint:containedctx // of the whole test: it ends early enough to clean up
	compose []string        // the command
	root    string          // of the tree
	project string
	image   string
	port    string
	pki     string // a copy of the cluster's keys and certificates
}

// newCluster skips the test unless there is all that it needs, and builds the image.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	harness.NeedCluster(t)
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("fairlead-e2e-%d", os.Getpid())
	c := &cluster{
		t: t, ctx: t.Context(), root: root, project: name, image: name + ":test", port: freePort(t), pki: filepath.Join(t.TempDir(), "pki"),
	}
	deadline, bounded := t.Deadline()
	if bounded {
		ctx, cancel := context.WithDeadline(t.Context(), deadline.Add(-timeToClean))
		t.Cleanup(cancel)
		c.ctx = ctx
	}
	c.needDocker()
	c.build()
	if bounded && time.Until(deadline) < timeNeeded {
		t.Skipf("building the image left less than %v of the test's time: give more with -timeout", timeNeeded)
	}
	return c
}

// freePort returns a port of this machine that nobody listens on.
func freePort(t *testing.T) string {
	t.Helper()
	s := harness.NewServer(t, harness.Config{Dir: filepath.Join(t.TempDir(), "unused")})
	_, port, err := net.SplitHostPort(strings.TrimPrefix(s.Addr(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// needDocker finds the commands, and an engine that answers.
func (c *cluster) needDocker() {
	c.t.Helper()
	if _, err := exec.LookPath("docker"); err != nil {
		c.t.Skip("docker is not there")
	}
	for _, candidate := range [][]string{{"docker-compose"}, {"docker", "compose"}} {
		if _, err := c.output(c.ctx, append(slices.Clone(candidate), "version")...); err == nil {
			c.compose = candidate
			break
		}
	}
	if c.compose == nil {
		c.t.Skip("neither docker-compose nor docker compose is there")
	}
	ctx, cancel := context.WithTimeout(c.ctx, callTimeout)
	defer cancel()
	if out, err := c.output(ctx, "docker", "version", "--format", "{{.Server.Os}}"); err != nil || strings.TrimSpace(out) != "linux" {
		c.t.Skipf("no engine for Linux containers answers: %v %s", err, out)
	}
}

// build makes the image as `make image` does.
func (c *cluster) build() {
	c.t.Helper()
	goCommand, err := exec.LookPath("go")
	if err != nil {
		c.t.Skip("there is no go command to build fairlead with")
	}
	dir := c.t.TempDir()
	for _, file := range []string{"bin/root/data/.keep", "bin/root/pki/.keep"} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(file)), 0o755); err != nil {
			c.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), nil, 0o644); err != nil {
			c.t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(c.ctx, goCommand, "build", "-o", filepath.Join(dir, "bin", "fairlead"), "./cmd/fairlead")
	cmd.Dir, cmd.Env = c.root, append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	if out, err := cmd.CombinedOutput(); err != nil {
		if c.ctx.Err() != nil {
			c.t.Skip("building fairlead took all of the test's time: give more with -timeout")
		}
		c.t.Fatalf("building fairlead: %v\n%s", err, out)
	}
	c.t.Cleanup(func() { _, _ = c.output(context.WithoutCancel(c.ctx), "docker", "rmi", "-f", c.image) })
	c.run("docker", "build", "-q", "-t", c.image, "-f", filepath.Join(c.root, "Dockerfile"), dir)
}

// output runs a command and returns what it wrote to standard output.
func (c *cluster) output(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = c.root
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "FAIRLEAD_") || strings.HasPrefix(v, "COMPOSE_")
	}), "FAIRLEAD_IMAGE="+c.image, "FAIRLEAD_PORT="+c.port, "COMPOSE_HTTP_TIMEOUT=300")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out), err
}

func (c *cluster) run(args ...string) string {
	c.t.Helper()
	out, err := c.output(c.ctx, args...)
	c.needTime()
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

// needTime skips the rest of the test when the time that go test gave is used up: that is the machine's load, and says nothing of the cluster.
func (c *cluster) needTime() {
	c.t.Helper()
	if c.ctx.Err() != nil {
		c.t.Skip("the test's time is used up: give more with -timeout")
	}
}

// eventually waits until done is true.
func (c *cluster) eventually(what string, done func() bool) {
	c.t.Helper()
	harness.Eventually(c.t, waitTimeout, what, func() bool {
		c.needTime()
		return done()
	})
}

// do runs a command of compose for this project.
func (c *cluster) do(args ...string) string {
	c.t.Helper()
	return c.run(c.composed(args...)...)
}

func (c *cluster) composed(args ...string) []string {
	return slices.Concat(c.compose, []string{"-p", c.project, "-f", filepath.Join(c.root, "docker-compose.yml")}, args)
}

// cli runs the command line inside the cluster's network, as the README does.
func (c *cluster) cli(args ...string) string {
	c.t.Helper()
	return c.do(append([]string{"run", "--rm", "-T", "cli"}, args...)...)
}

// submit submits a job of a tenant, waits for it, and returns how it is shown.
func (c *cluster) submit(tenant, payload string) string {
	c.t.Helper()
	return c.cli("--token-file", "/pki/keys/"+tenant+".key", "job", "submit", "echo", "--payload", payload, "--wait", "--wait-timeout", "2m")
}

// up starts what does not run, and waits until the workers do, which is when everything serves.
func (c *cluster) up() {
	c.t.Helper()
	c.do("up", "-d")
}

// down takes everything away, state included, whatever has become of the test.
func (c *cluster) down() {
	ctx := context.WithoutCancel(c.ctx)
	if c.t.Failed() {
		logs, _ := c.output(ctx, c.composed("logs", "--no-color", "--tail=30")...)
		c.t.Logf("the last words of all:\n%s", logs)
	}
	all := c.composed("--profile", "cli", "--profile", "dedicated", "down", "--volumes", "--remove-orphans", "--timeout", "5")
	if _, err := c.output(ctx, all...); err != nil {
		c.t.Error(err)
	}
}

// healthy waits until the engine says of each container that it is.
func (c *cluster) healthy(names ...string) {
	c.t.Helper()
	for _, name := range names {
		id := strings.TrimSpace(c.do("ps", "-q", name))
		c.eventually(name+" is healthy", func() bool {
			out, err := c.output(c.ctx, "docker", "inspect", "--format", "{{.State.Health.Status}}", id)
			return err == nil && strings.TrimSpace(out) == "healthy"
		})
	}
}

// copyKeys copies keys and certificates out of the gateway.
func (c *cluster) copyKeys() {
	c.t.Helper()
	id := strings.TrimSpace(c.do("ps", "-q", "gateway-1"))
	c.run("docker", "cp", id+":/pki", c.pki)
}

func (c *cluster) config(keyFile string) client.Config {
	c.t.Helper()
	text, err := os.ReadFile(filepath.Join(c.pki, keyFile))
	if err != nil {
		c.t.Fatal(err)
	}
	return client.Config{
		Addr: "https://127.0.0.1:" + c.port, CAFile: filepath.Join(c.pki, "ca.crt"), Token: client.Token(strings.TrimSpace(string(text))),
	}
}

// leader returns who leads a cell's log, or control's for no cell, once somebody other than one does.
func (c *cluster) leader(cellName, other string) string {
	c.t.Helper()
	conn, err := client.Dial(c.config("admin.key"))
	if err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close()
	service := fairleadv1connect.NewClusterServiceClient(conn.HTTP, conn.URL, conn.Options...)
	var found string
	c.eventually(fmt.Sprintf("the log of %q is led by another than %q", cellName, other), func() bool {
		ctx, cancel := context.WithTimeout(c.ctx, callTimeout)
		defer cancel()
		resp, err := service.ListPeers(ctx, &fairleadv1.ListPeersRequest{Cell: cellName})
		for _, p := range resp.GetPeers() {
			if err == nil && p.GetLeader() && p.GetName() != other {
				found = p.GetName()
				return true
			}
		}
		return false
	})
	return found
}

// load submits jobs of one tenant until it is told to stop.
type load struct {
	client *client.Client
	mu     sync.Mutex
	ids    []string
	errs   []error
	stop   context.CancelFunc
	ended  chan struct{}
}

func (c *cluster) load() *load {
	c.t.Helper()
	cl, err := client.New(c.config("keys/acme.key"))
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(c.ctx)
	l := &load{client: cl, stop: cancel, ended: make(chan struct{})}
	c.t.Cleanup(func() {
		cancel()
		<-l.ended
		cl.Close()
	})
	go func() {
		defer close(l.ended)
		for n := 0; client.Pause(ctx, 50*time.Millisecond) == nil; n++ {
			one, cancel := context.WithTimeout(c.ctx, waitTimeout)
			job, err := cl.Submit(one, client.Job{Operation: "echo", Payload: client.JSON(json.RawMessage(fmt.Sprintf(`{"n":%d}`, n)))})
			cancel()
			l.mu.Lock()
			if err == nil {
				l.ids = append(l.ids, job.ID)
			} else {
				l.errs = append(l.errs, err)
			}
			l.mu.Unlock()
		}
	}()
	return l
}

func (l *load) accepted() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.ids)
}

// more waits until as many more jobs were accepted.
func (c *cluster) more(l *load, n int) {
	c.t.Helper()
	want := l.accepted() + n
	c.eventually(fmt.Sprintf("%d more jobs are accepted", n), func() bool { return l.accepted() >= want })
}

// completed waits until every accepted job has succeeded.
func (c *cluster) completed(l *load) {
	c.t.Helper()
	c.eventually("every accepted job has succeeded", func() bool {
		succeeded := map[string]bool{}
		filter := client.Filter{States: []fairleadv1.JobState{fairleadv1.JobState_JOB_STATE_SUCCEEDED}, PageSize: 500}
		for job, err := range l.client.List(c.ctx, filter) {
			if err != nil {
				return false
			}
			succeeded[job.GetId()] = true
		}
		return !slices.ContainsFunc(l.ids, func(id string) bool { return !succeeded[id] })
	})
}

// TestCompose walks through what the README says of the cluster.
func TestCompose(t *testing.T) {
	c := newCluster(t)
	t.Cleanup(c.down)
	c.up()
	for _, tenant := range []string{"acme", "globex"} {
		out := c.submit(tenant, `{"hello": "world"}`)
		if !strings.Contains(out, `{"hello": "world"}`) {
			t.Fatalf("the job of %s is\n%s", tenant, out)
		}
	}
	if out := c.cli("cell", "list", "-o", "name"); out != "cell-a\ncell-b\n" {
		t.Fatalf("the cells are %q", out)
	}
	c.copyKeys()
	c.healthy("control-1", "control-2", "control-3", "cell-a-1", "cell-a-2", "cell-a-3", "cell-b-1", "gateway-1")

	l := c.load()
	c.more(l, 20)
	leader := c.leader("", "")
	c.do("kill", leader)
	t.Logf("killed %s, the leader of control", leader)
	c.leader("", leader)
	c.more(l, 20)
	replica := c.leader("cell-a", "")
	c.do("kill", replica)
	t.Logf("killed %s, the leader of cell-a", replica)
	c.more(l, 20)
	c.up()
	c.more(l, 20)
	l.stop()
	<-l.ended
	if len(l.errs) > 0 {
		t.Logf("%d submissions failed, the first with %v", len(l.errs), l.errs[0])
	}
	c.completed(l)

	c.do("down", "--timeout", "30")
	c.up()
	c.completed(l)
	if out := c.submit("acme", "1"); !strings.Contains(out, "succeeded") {
		t.Errorf("a job after down and up is\n%s", out)
	}
}
