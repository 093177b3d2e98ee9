package localcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/dataplane/client"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// The operation that the cluster's workers work on, how long a job of it takes, and how many at once.
const (
	Operation   = "echo"
	echoDelay   = 50 * time.Millisecond
	workerSlots = 8
)

// Cluster is a cluster whose agents are child processes. Its methods may be called from any goroutine.
type Cluster struct {
	dir     string // absolute
	scratch string // dir, when it is to be removed with the cluster
	plan    blueprint
	layout  layout
	env     []string // of every child
	abort   context.CancelCauseFunc

	mu       sync.Mutex
	children map[string]*child // that run, by name
	watchers sync.WaitGroup
	conn     *client.Conn // as the operator; set once the cluster has keys
	helpers  sync.WaitGroup
	dismiss  []context.CancelFunc // of the helpers
}

// open returns a cluster of a blueprint of which nothing runs yet, in dir, or in a temporary folder when dir is empty. abort is called when an agent ends that
// nobody ended.
func open(dir string, plan blueprint, abort context.CancelCauseFunc) (*Cluster, error) {
	c := &Cluster{plan: plan, abort: abort, children: make(map[string]*child)}
	var err error
	if dir == "" {
		if c.dir, err = os.MkdirTemp("", "fairlead-cluster-"); err != nil {
			return nil, fmt.Errorf("the cluster's folder: %w", err)
		}
		c.scratch = c.dir
	} else if c.dir, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("the cluster's folder: %w", err)
	}
	if err := c.furnish(); err != nil {
		return nil, errors.Join(fmt.Errorf("the cluster's folder: %w", err), c.remove())
	}
	return c, nil
}

// furnish makes what is in the folder before the cluster is prepared.
func (c *Cluster) furnish() error {
	if err := os.MkdirAll(c.path("logs"), 0o700); err != nil {
		return err
	}
	// A configuration of the user's own says nothing about these agents.
	nothing := c.path("nothing.yaml")
	if err := os.WriteFile(nothing, []byte("{}\n"), 0o600); err != nil {
		return err
	}
	var err error
	if c.layout, err = layoutOf(c.dir, c.plan.agents); err != nil {
		return err
	}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "FAIRLEAD_") {
			c.env = append(c.env, v)
		}
	}
	c.env = append(c.env, "FAIRLEAD_CONFIG="+nothing, "FAIRLEAD_ADDR="+c.Addr(), "FAIRLEAD_CA_FILE="+c.CAFile(), "FAIRLEAD_TOKEN_FILE="+c.AdminKeyFile())
	return nil
}

func (c *Cluster) path(parts ...string) string {
	return filepath.Join(append([]string{c.dir}, parts...)...)
}

// Dir is the cluster's folder.
func (c *Cluster) Dir() string { return c.dir }

// Addr is the gateway's URL.
func (c *Cluster) Addr() string { return "https://" + at(c.layout.of(roleGateway)[0].API) }

// CAFile is the file with the authority that the gateway's certificate is verified by.
func (c *Cluster) CAFile() string { return c.path("pki", "ca.crt") }

// AdminKeyFile is the file with the operator's key.
func (c *Cluster) AdminKeyFile() string { return c.path("pki", "admin.key") }

// KeyFile is the file with a tenant's key, or the workers'.
func (c *Cluster) KeyFile(name string) string { return c.path("keys", name+".key") }

// command runs a command of this binary to its end, as the operator.
func (c *Cluster) command(ctx context.Context, args ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	var said bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = c.dir, c.env, &said, &said
	apart(cmd)
	if err := cmd.Run(); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return fmt.Errorf("fairlead %s: %w: %s", strings.Join(args[:2], " "), err, strings.TrimSpace(said.String()))
	}
	return nil
}

// prepare makes certificates and the operator's key.
func (c *Cluster) prepare(ctx context.Context) error {
	args := []string{"cluster", "prepare", "--dir", c.path("pki")}
	for _, a := range c.layout.Agents {
		what := a.Name + "=" + a.Role
		if a.Cell != "" {
			what += "/" + a.Cell
		}
		args = append(args, "--agent", what+"@127.0.0.1")
	}
	return c.command(ctx, args...)
}

// formTimeout bounds how long the agents take to become a cluster, and its cells to form, on a busy machine.
const formTimeout = "4m"

// form makes the cluster of the agents that run, its cells, tenants and keys.
func (c *Cluster) form(ctx context.Context) error {
	controls := c.layout.of(roleControl)
	args := []string{
		"cluster", "bootstrap", "--wait", "--timeout", formTimeout, "--control", at(controls[0].API), "--tls-dir", c.path("pki", controls[0].Name),
		"--admin-key-file", c.AdminKeyFile(),
	}
	for _, a := range controls {
		args = append(args, "--voter", a.Name+"="+at(a.Raft))
	}
	if err := c.command(ctx, args...); err != nil {
		return err
	}
	args = []string{"cluster", "seed", "--wait", formTimeout, "--keys-dir", c.path("keys")}
	for _, p := range c.plan.cells {
		what := fmt.Sprintf("%s=%d", p.name, len(c.replicas(p.name)))
		if p.dedicated {
			what += "/dedicated"
		}
		args = append(args, "--cell", what)
	}
	for _, t := range c.plan.tenants {
		what := t.Name
		if t.Cell != "" {
			what += "=" + t.Cell
		}
		args = append(args, "--tenant", what)
	}
	if err := c.command(ctx, args...); err != nil {
		return err
	}
	var err error
	c.conn, err = c.dial(c.AdminKeyFile())
	return err
}

func (c *Cluster) replicas(cellName string) []agent {
	return slices.DeleteFunc(c.layout.of(roleCell), func(a agent) bool { return a.Cell != cellName })
}

// settings is how to call the cluster with a key.
func (c *Cluster) settings(keyFile string) (client.Config, error) {
	text, err := os.ReadFile(keyFile)
	return client.Config{Addr: c.Addr(), CAFile: c.CAFile(), Token: client.Token(strings.TrimSpace(string(text)))}, err
}

func (c *Cluster) dial(keyFile string) (*client.Conn, error) {
	cfg, err := c.settings(keyFile)
	if err != nil {
		return nil, err
	}
	return client.Dial(cfg)
}

// startAgents starts every agent.
func (c *Cluster) startAgents() error {
	for _, a := range c.layout.Agents {
		if err := c.start(a.Name); err != nil {
			return err
		}
	}
	return nil
}

// start starts an agent, again after it was killed.
func (c *Cluster) start(name string) error {
	i := slices.IndexFunc(c.layout.Agents, func(a agent) bool { return a.Name == name })
	a := c.layout.Agents[i]
	var controls, seeds []string
	for _, other := range c.layout.of(roleControl) {
		controls, seeds = append(controls, at(other.API)), append(seeds, at(other.Gossip))
	}
	args := []string{
		"agent", "--name", a.Name, "--role", a.Role, "--dir", c.path("data", a.Name), "--tls-dir", c.path("pki", a.Name),
		"--listen", at(a.API), "--advertise", at(a.API), "--gossip-listen", at(a.Gossip), "--gossip-advertise", at(a.Gossip),
		"--control", strings.Join(controls, ","), "--gossip-seeds", strings.Join(seeds, ","),
	}
	if a.Role != roleGateway {
		args = append(args, "--raft-listen", at(a.Raft), "--raft-advertise", at(a.Raft))
	}
	if a.Role == roleControl {
		args = append(args, c.plan.control...)
	}
	if a.Cell != "" {
		args = append(args, "--cell", a.Cell)
	}
	return c.launch(a.Name, args)
}

// startWorkers starts the workers.
func (c *Cluster) startWorkers() error {
	for _, name := range c.plan.workers {
		err := c.launch("worker-"+name, []string{
			"worker", "--cell", name, "--operation", Operation, "--echo", "--echo-delay", echoDelay.String(), "--slots", fmt.Sprint(workerSlots),
			"--name", "worker-" + name, "--token-file", c.KeyFile("worker"),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// launch starts a child and watches that it runs until it is ended.
func (c *Cluster) launch(name string, args []string) error {
	k, err := spawn(c.dir, c.path("logs", name+".log"), name, c.env, instructions{Args: args, Scratch: c.scratch})
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.children[name] = k
	c.mu.Unlock()
	c.watchers.Go(func() {
		<-k.ended
		c.mu.Lock()
		mine := c.children[name] == k // else somebody ended it
		delete(c.children, name)
		c.mu.Unlock()
		if mine {
			c.abort(k.failure())
		}
	})
	return nil
}

// help runs something beside the children, until ctx ends or the cluster is closed.
func (c *Cluster) help(ctx context.Context, run func(context.Context)) {
	ctx, cancel := context.WithCancel(ctx)
	c.mu.Lock()
	c.dismiss = append(c.dismiss, cancel)
	c.mu.Unlock()
	c.helpers.Go(func() { run(ctx) })
}

// take returns a child that is about to be ended, so that its end is no failure.
func (c *Cluster) take(name string) *child {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.children[name]
	delete(c.children, name)
	return k
}

// kill ends an agent as a crash would.
func (c *Cluster) kill(name string) {
	if k := c.take(name); k != nil {
		k.kill()
	}
}

// callTimeout bounds a question to the cluster. A killed leader's answers are not waited for: the question is asked again.
const callTimeout = 2 * time.Second

// errNoLeader is returned when nobody is known to lead.
var errNoLeader = errors.New("nobody leads")

// peers returns the replicas of a cell's log, or control's for no cell, with the name of the one that leads.
func (c *Cluster) peers(ctx context.Context, cellName string) (*fairleadv1.ListPeersResponse, string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := fairleadv1connect.NewClusterServiceClient(c.conn.HTTP, c.conn.URL, c.conn.Options...).
		ListPeers(ctx, &fairleadv1.ListPeersRequest{Cell: cellName})
	if err != nil {
		return nil, "", err
	}
	for _, p := range resp.GetPeers() {
		if p.GetLeader() {
			return resp, p.GetName(), nil
		}
	}
	return resp, "", errNoLeader
}

// close ends everything, workers first, and removes the folder unless it is to be kept.
func (c *Cluster) close() error {
	c.mu.Lock()
	for _, cancel := range c.dismiss {
		cancel()
	}
	c.mu.Unlock()
	c.helpers.Wait()
	if c.conn != nil {
		c.conn.Close()
	}
	c.mu.Lock()
	var workers, agents []*child
	for name, k := range c.children {
		if strings.HasPrefix(name, "worker-") {
			workers = append(workers, k)
		} else {
			agents = append(agents, k)
		}
	}
	clear(c.children)
	c.mu.Unlock()
	for _, group := range [][]*child{workers, agents} {
		var stops sync.WaitGroup
		for _, k := range group {
			stops.Go(k.stop)
		}
		stops.Wait()
	}
	c.watchers.Wait()
	return c.remove()
}

func (c *Cluster) remove() error {
	if c.scratch == "" {
		return nil
	}
	return os.RemoveAll(c.scratch)
}
