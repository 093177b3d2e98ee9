package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane/client"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// ClusterConfig says which cluster a test wants.
type ClusterConfig struct {
	// Control is how many control agents there are; 3 when 0.
	Control int
	// Cells are the cells by name, with the replicas of each.
	Cells map[string]int
	// Dedicated are those of the cells that take no tenant but by a move.
	Dedicated []string
	// Gateways is how many gateways there are; 1 when 0.
	Gateways int
	// Tenants are created with a key each; Placed says which cell each has to be in, empty for any.
	Tenants []string
	Placed  map[string]string
	// Network gives each agent a host of its own; all are on loopback without.
	Network *Network
	// Binaries are other binaries than the tree's, by the agent's name.
	Binaries map[string]string
	// Env is added to the environment of every agent.
	Env []string
	// Each is called with every agent before its first launch; nil for nobody.
	Each func(*Agent)
	// LogLevel of the agents; warn when empty.
	LogLevel string
}

// Cluster is agents that run as processes, with certificates of their own.
type Cluster struct {
	tb     testing.TB
	cfg    ClusterConfig
	dir    string
	agents map[string]*Agent
	keys   map[string]client.Token
}

// Agent is one agent, which may be killed and launched again.
type Agent struct {
	Name, Role, Cell string
	// Host is where it runs, when the cluster has a network.
	Host *Host
	// Process is the present or last process.
	Process *Process
	// Env is added to the agent's environment at its next launch.
	Env []string
	// Wrap changes the command of its next launch, such as to run it under a tracer.
	Wrap func(*exec.Cmd) *exec.Cmd

	cluster           *Cluster
	ip                string
	api, raft, gossip int
}

const (
	roleControl = "control"
	roleCell    = "cell"
	roleGateway = "gateway"

	// clusterTimeout bounds how long a cluster takes to form. It is generous: what is slow is measured by whoever cares.
	clusterTimeout = 90 * time.Second
	callTimeout    = 20 * time.Second
)

// clusterEnv allows tests that start a cluster.
const clusterEnv = "FAIRLEAD_CLUSTER"

// NeedCluster skips the test unless FAIRLEAD_CLUSTER is set: clusters of many processes want a machine to themselves, and go test runs packages beside
// each other. .ci/run sets it.
func NeedCluster(tb testing.TB) {
	tb.Helper()
	if os.Getenv(clusterEnv) == "" {
		tb.Skip("clusters of processes want the machine to themselves: set " + clusterEnv + "=1, as .ci/run does")
	}
}

// StartCluster makes a cluster, starts it and waits until every cell serves and every tenant has one.
func StartCluster(tb testing.TB, cfg ClusterConfig) *Cluster {
	tb.Helper()
	c := NewCluster(tb, cfg)
	for _, a := range c.Agents("") {
		if cfg.Each != nil {
			cfg.Each(a)
		}
		a.Launch()
	}
	c.bootstrap()
	c.Populate()
	return c
}

// NewCluster returns a cluster of which nothing runs yet.
func NewCluster(tb testing.TB, cfg ClusterConfig) *Cluster {
	tb.Helper()
	if cfg.Control == 0 {
		cfg.Control = 3
	}
	if cfg.Gateways == 0 {
		cfg.Gateways = 1
	}
	if cfg.LogLevel == "" {
		cfg.LogLevel = "warn"
	}
	c := &Cluster{tb: tb, cfg: cfg, dir: tb.TempDir(), agents: map[string]*Agent{}, keys: map[string]client.Token{}}
	for i := range cfg.Control {
		c.add(fmt.Sprintf("control-%d", i+1), roleControl, "")
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Cells)) {
		for i := range cfg.Cells[name] {
			c.add(fmt.Sprintf("%s-%d", name, i+1), roleCell, name)
		}
	}
	for i := range cfg.Gateways {
		c.add(fmt.Sprintf("gateway-%d", i+1), roleGateway, "")
	}
	c.Prepare()
	return c
}

func (c *Cluster) add(name, role, cellName string) *Agent {
	a := &Agent{Name: name, Role: role, Cell: cellName, cluster: c, ip: "127.0.0.1", api: 7700, raft: 7701, gossip: 7702}
	if c.cfg.Network != nil {
		a.Host = c.cfg.Network.Host()
		a.ip = a.Host.IP
	} else {
		a.api, a.raft, a.gossip = freePort(c.tb), freePort(c.tb), freePort(c.tb)
	}
	c.agents[name] = a
	return a
}

// AddAgent adds an agent that is not started, with a certificate.
func (c *Cluster) AddAgent(name, role, cellName string) *Agent {
	c.tb.Helper()
	a := c.add(name, role, cellName)
	c.Prepare()
	return a
}

// Prepare makes the certificates that are missing.
func (c *Cluster) Prepare() {
	c.tb.Helper()
	args := []string{"cluster", "prepare", "--dir", c.pki()}
	for _, a := range c.Agents("") {
		spec := a.Name + "=" + a.Role
		if a.Cell != "" {
			spec += "/" + a.Cell
		}
		args = append(args, "--agent", spec+"@localhost,"+a.ip)
	}
	c.CLI(nil, args...)
}

func (c *Cluster) pki() string { return filepath.Join(c.dir, "pki") }

// Dir returns the state directory of an agent.
func (c *Cluster) Dir(name string) string { return filepath.Join(c.dir, name) }

// CAFile returns the path of the authority's certificate.
func (c *Cluster) CAFile() string { return filepath.Join(c.pki(), "ca.crt") }

// CLI runs the command with the admin's key, and returns what it wrote to standard output. It fails the test unless the command succeeds.
func (c *Cluster) CLI(env []string, args ...string) string {
	c.tb.Helper()
	out, err := c.TryCLI(env, args...)
	if err != nil {
		c.tb.Fatalf("fairlead %s: %v", strings.Join(args, " "), err)
	}
	return out
}

// TryCLI is CLI for a command that may fail.
func (c *Cluster) TryCLI(env []string, args ...string) (string, error) {
	c.tb.Helper()
	cmd := exec.CommandContext(c.tb.Context(), Binary(c.tb), args...)
	cmd.Dir = c.dir
	cmd.Env = cleanEnvironment(append([]string{
		"FAIRLEAD_ADDR=" + c.Addr(), "FAIRLEAD_CA_FILE=" + c.CAFile(), "FAIRLEAD_TOKEN_FILE=" + filepath.Join(c.pki(), "admin.key"),
	}, env...))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, stderr.String())
	}
	return string(out), err
}

// SetBinary makes an agent run another binary from its next launch on; the tree's when the path is empty.
func (c *Cluster) SetBinary(name, path string) {
	binaries := map[string]string{name: path}
	for n, p := range c.cfg.Binaries {
		if n != name {
			binaries[n] = p
		}
	}
	c.cfg.Binaries = binaries
}

// Agent returns the agent of that name.
func (c *Cluster) Agent(name string) *Agent {
	a := c.agents[name]
	if a == nil {
		c.tb.Fatalf("the cluster has no agent %q", name)
	}
	return a
}

// Agents returns the agents of a role, or all, by name.
func (c *Cluster) Agents(role string) []*Agent {
	var agents []*Agent
	for _, name := range slices.Sorted(maps.Keys(c.agents)) {
		if a := c.agents[name]; role == "" || a.Role == role {
			agents = append(agents, a)
		}
	}
	return agents
}

// Replicas returns the agents of a cell, by name.
func (c *Cluster) Replicas(cellName string) []*Agent {
	return slices.DeleteFunc(c.Agents(roleCell), func(a *Agent) bool { return a.Cell != cellName })
}

func (a *Agent) at(port int) string { return net.JoinHostPort(a.ip, strconv.Itoa(port)) }

// API returns the host and port of its API.
func (a *Agent) API() string { return a.at(a.api) }

// RaftAddress returns the host and port of its log.
func (a *Agent) RaftAddress() string { return a.at(a.raft) }

// Healthy waits until the agent says that it serves.
func (a *Agent) Healthy() {
	a.cluster.tb.Helper()
	a.cluster.until(a.Name+" is healthy", func(context.Context) error {
		_, err := a.cluster.TryCLI(nil, "health", "--addr", "https://"+a.API())
		return err
	})
}

// Launch starts the agent and does not wait for it.
func (a *Agent) Launch() {
	tb := a.cluster.tb
	tb.Helper()
	var control, seeds []string
	for _, other := range a.cluster.Agents(roleControl) {
		control, seeds = append(control, other.API()), append(seeds, other.at(other.gossip))
	}
	binary := a.cluster.cfg.Binaries[a.Name]
	if binary == "" {
		binary = Binary(tb)
	}
	cmd := exec.CommandContext(tb.Context(), binary, "agent")
	cmd.Dir = tb.TempDir() // where no configuration lies about
	cmd.Env = append([]string{
		"FAIRLEAD_AGENT_NAME=" + a.Name, "FAIRLEAD_AGENT_ROLE=" + a.Role, "FAIRLEAD_AGENT_CELL=" + a.Cell,
		"FAIRLEAD_AGENT_DIR=" + a.cluster.Dir(a.Name), "FAIRLEAD_AGENT_TLS_DIR=" + filepath.Join(a.cluster.pki(), a.Name),
		"FAIRLEAD_AGENT_LISTEN=" + a.API(), "FAIRLEAD_AGENT_ADVERTISE=" + a.API(),
		"FAIRLEAD_AGENT_RAFT_LISTEN=" + a.RaftAddress(), "FAIRLEAD_AGENT_RAFT_ADVERTISE=" + a.RaftAddress(),
		"FAIRLEAD_AGENT_GOSSIP_LISTEN=" + a.at(a.gossip), "FAIRLEAD_AGENT_GOSSIP_ADVERTISE=" + a.at(a.gossip),
		"FAIRLEAD_AGENT_CONTROL=" + strings.Join(control, ","), "FAIRLEAD_AGENT_GOSSIP_SEEDS=" + strings.Join(seeds, ","),
		"FAIRLEAD_AGENT_LOG_LEVEL=" + a.cluster.cfg.LogLevel,
	}, slices.Concat(a.cluster.cfg.Env, a.Env)...)
	if a.Role == roleGateway { // a log of its own is what it has not
		cmd.Env = slices.DeleteFunc(cmd.Env, func(v string) bool { return strings.HasPrefix(v, "FAIRLEAD_AGENT_RAFT") })
	}
	if a.Role != roleCell {
		cmd.Env = slices.DeleteFunc(cmd.Env, func(v string) bool { return strings.HasPrefix(v, "FAIRLEAD_AGENT_CELL") })
	}
	if a.Wrap != nil {
		cmd = a.Wrap(cmd)
	}
	if a.Host != nil {
		cmd = a.Host.Command(cmd)
	}
	a.Process = Start(tb, "agent "+a.Name, cmd)
}

// bootstrap makes the cluster of its control agents.
func (c *Cluster) bootstrap() {
	c.tb.Helper()
	first := c.Agents(roleControl)[0]
	args := []string{
		"cluster", "bootstrap", "--wait", "--control", first.API(), "--tls-dir", filepath.Join(c.pki(), first.Name),
		"--admin-key-file", filepath.Join(c.pki(), "admin.key"),
	}
	for _, a := range c.Agents(roleControl) {
		args = append(args, "--voter", a.Name+"="+a.RaftAddress())
	}
	c.CLI(nil, args...)
	text, err := os.ReadFile(filepath.Join(c.pki(), "admin.key"))
	if err != nil {
		c.tb.Fatal(err)
	}
	c.keys["admin"] = client.Token(strings.TrimSpace(string(text)))
}

// Addr returns the first gateway's URL.
func (c *Cluster) Addr() string { return "https://" + c.Agent("gateway-1").API() }

// Populate creates the cells, tenants and keys of the configuration, and waits until all of it serves.
func (c *Cluster) Populate() {
	c.tb.Helper()
	conn := c.Conn("admin")
	cells := fairleadv1connect.NewCellServiceClient(conn.HTTP, conn.URL, conn.Options...)
	for _, name := range slices.Sorted(maps.Keys(c.cfg.Cells)) {
		c.until("create the cell "+name, func(ctx context.Context) error {
			kind := fairleadv1.CellKind_CELL_KIND_POOLED
			if slices.Contains(c.cfg.Dedicated, name) {
				kind = fairleadv1.CellKind_CELL_KIND_DEDICATED
			}
			_, err := cells.CreateCell(ctx, &fairleadv1.CreateCellRequest{Name: name, Kind: kind, Replicas: int32(c.cfg.Cells[name])})
			return ignoreExists(err)
		})
	}
	for _, name := range slices.Sorted(maps.Keys(c.cfg.Cells)) {
		c.until("the cell "+name+" is open and led", func(ctx context.Context) error {
			resp, err := cells.GetCell(ctx, &fairleadv1.GetCellRequest{Name: name})
			if err == nil && (resp.GetCell().GetPhase() != fairleadv1.CellPhase_CELL_PHASE_OPEN || resp.GetCell().GetLeader() == "") {
				err = fmt.Errorf("it is %v, led by %q", resp.GetCell().GetPhase(), resp.GetCell().GetLeader())
			}
			return err
		})
	}
	tenants := fairleadv1connect.NewTenantServiceClient(conn.HTTP, conn.URL, conn.Options...)
	for _, name := range c.cfg.Tenants {
		c.until("create the tenant "+name, func(ctx context.Context) error {
			_, err := tenants.CreateTenant(ctx, &fairleadv1.CreateTenantRequest{
				Id: name, Placement: &fairleadv1.PlacementRules{Cell: c.cfg.Placed[name]},
			})
			return ignoreExists(err)
		})
		c.createKey(name, name, "submit", "read")
	}
	c.createKey("worker", "", "work")
	for _, name := range c.cfg.Tenants {
		cl := c.Client(name)
		c.until("the tenant "+name+" is served", func(ctx context.Context) error {
			for _, err := range cl.List(ctx, client.Filter{}) {
				return err
			}
			return nil
		})
	}
}

func (c *Cluster) createKey(name, tenant string, scopes ...string) {
	c.tb.Helper()
	conn := c.Conn("admin")
	keys := fairleadv1connect.NewKeyServiceClient(conn.HTTP, conn.URL, conn.Options...)
	c.until("create the key "+name, func(ctx context.Context) error {
		resp, err := keys.CreateKey(ctx, &fairleadv1.CreateKeyRequest{Tenant: tenant, Scopes: scopesOf(scopes), Description: name})
		if err == nil {
			c.keys[name] = client.Token(resp.GetSecret())
		}
		return err
	})
}

func scopesOf(names []string) []fairleadv1.Scope {
	var scopes []fairleadv1.Scope
	for _, n := range names {
		scopes = append(scopes, fairleadv1.Scope(fairleadv1.Scope_value["SCOPE_"+strings.ToUpper(n)]))
	}
	return scopes
}

func ignoreExists(err error) error {
	if err != nil && strings.Contains(err.Error(), "exists") {
		return nil
	}
	return err
}

// until does it again until it succeeds.
func (c *Cluster) until(what string, do func(context.Context) error) {
	c.tb.Helper()
	var last error
	deadline := time.Now().Add(clusterTimeout)
	Eventually(c.tb, 2*clusterTimeout, what, func() bool {
		ctx, cancel := context.WithTimeout(c.tb.Context(), callTimeout)
		defer cancel()
		if last = do(ctx); last != nil && time.Now().After(deadline) {
			c.tb.Fatalf("%s: %v", what, last)
		}
		return last == nil
	})
}

// ClientConfig returns how to reach the cluster with one of its keys: admin, worker, or a tenant's name.
func (c *Cluster) ClientConfig(key string) client.Config {
	token, ok := c.keys[key]
	if !ok {
		c.tb.Fatalf("the cluster has no key %q", key)
	}
	return client.Config{Addr: c.Addr(), Token: token, CAFile: c.CAFile()}
}

// Client returns a client with one of the cluster's keys, which is closed when the test ends.
func (c *Cluster) Client(key string) *client.Client {
	c.tb.Helper()
	cl, err := client.New(c.ClientConfig(key))
	if err != nil {
		c.tb.Fatal(err)
	}
	c.tb.Cleanup(cl.Close)
	return cl
}

// Conn returns what the generated clients are made from, with one of the cluster's keys. It is closed when the test ends.
func (c *Cluster) Conn(key string) *client.Conn {
	c.tb.Helper()
	conn, err := client.Dial(c.ClientConfig(key))
	if err != nil {
		c.tb.Fatal(err)
	}
	c.tb.Cleanup(conn.Close)
	return conn
}

// errNoLeader is returned when nobody leads as far as the cluster says.
var errNoLeader = errors.New("nobody leads")

// Leader returns the agent that leads a cell's log, or control's for no cell.
func (c *Cluster) Leader(cellName string) (*Agent, error) {
	conn := c.Conn("admin")
	ctx, cancel := context.WithTimeout(c.tb.Context(), callTimeout)
	defer cancel()
	resp, err := fairleadv1connect.NewClusterServiceClient(conn.HTTP, conn.URL, conn.Options...).ListPeers(ctx,
		&fairleadv1.ListPeersRequest{Cell: cellName})
	if err != nil {
		return nil, err
	}
	for _, p := range resp.GetPeers() {
		if p.GetLeader() {
			return c.Agent(p.GetName()), nil
		}
	}
	return nil, errNoLeader
}

// MustLead returns the agent that leads, once one does.
func (c *Cluster) MustLead(cellName string) *Agent {
	c.tb.Helper()
	var found *Agent
	c.until(fmt.Sprintf("the log of %q has a leader", cellName), func(context.Context) error {
		a, err := c.Leader(cellName)
		found = a
		return err
	})
	return found
}
