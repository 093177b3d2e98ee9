package agent

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/leader"
	"github.com/fairlead/fairlead/cmd/fairlead/config"
	"github.com/fairlead/fairlead/cmd/fairlead/identity"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/control/consensus"
	"github.com/fairlead/fairlead/dataplane/gateway"
	"github.com/fairlead/fairlead/dataplane/gossip"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// ClusterConfig says how one agent of a cluster is run.
type ClusterConfig struct {
	// Agent is its configuration, which has been validated.
	Agent config.Agent
	// Version of the binary, for people.
	Version string
	// Leader says how a cell schedules and charges, for the role cell. Default leader.DefaultConfig.
	Leader leader.Config
	// Logger receives everything that is logged. Default slog.Default.
	Logger *slog.Logger
	// Reload brings the configuration as it is read again; what may not change in it has been refused before. Nil: never.
	Reload <-chan config.Agent
}

// roleHost is what an agent does.
type roleHost interface {
	// handler serves the agent's port.
	handler() http.Handler
	// ready reports whether it can serve.
	ready() bool
	// standing completes what the agent says of itself to control.
	standing(*fairleadv1.RegisterRequest)
	// load is how much of it is in use, in percent.
	load() int
	// stop ends what waits, so that open requests are answered; close ends the rest.
	stop()
	close() error
}

// node is a running agent of a cluster.
type node struct {
	cfg      ClusterConfig
	store    *identity.Store
	id       identity.Identity
	lines    lines
	controls *controls
	control  *seeker // whichever control agent leads
	logger   *slog.Logger
	running  atomic.Pointer[config.Agent] // cfg.Agent, with what was read again

	listener  net.Listener
	role      roleHost
	http      *http.Server
	gossip    *gossip.Gossip
	registrar *registrar
	tuning    background
	telling   background
	hinting   background
	served    chan error
	cutOff    context.CancelFunc // ends the requests that are open
	ending    chan struct{}      // closed when readiness has to fail
}

// Run runs an agent until ctx ends, or something that it cannot do without fails. It returns an error that wraps consensus.ErrLocked when another
// process has the directory, consensus.ErrCorrupt when what is in it is damaged, and a *identity.FileError when its certificate cannot be used.
func Run(ctx context.Context, cfg ClusterConfig) error {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	n := &node{
		cfg: cfg, logger: cfg.Logger.With("agent", cfg.Agent.Name), served: make(chan error, 1), ending: make(chan struct{}),
		controls: newControls(cfg.Agent.ControlAddresses()),
	}
	n.running.Store(&cfg.Agent)
	if err := n.start(ctx); err != nil {
		return errors.Join(err, n.close())
	}
	n.logger.Info("agent is up", "role", cfg.Agent.Role, "cell", cfg.Agent.Cell, "address", cfg.Agent.APIAddress(), "version", cfg.Version)
	err := n.wait(ctx)
	n.logger.Info("agent is stopping")
	return errors.Join(err, n.close())
}

func (n *node) start(ctx context.Context) error {
	if err := os.MkdirAll(n.cfg.Agent.Dir, 0o700); err != nil {
		return fmt.Errorf("the state directory: %w", err)
	}
	if err := n.identify(ctx); err != nil {
		return err
	}
	n.tuning.start(ctx, tuneCollector)
	var listen net.ListenConfig
	var err error
	if n.listener, err = listen.Listen(ctx, "tcp", n.cfg.Agent.Listen); err != nil {
		return fmt.Errorf("the API's address: %w", err)
	}
	if err := n.startGossip(); err != nil {
		return err
	}
	if n.role, err = n.startRole(ctx); err != nil {
		return err
	}
	n.serve()
	n.registrar = newRegistrar(n.control, n.registration, n.learn, n.logger)
	n.telling.start(ctx, n.registrar.run)
	n.hinting.start(ctx, n.hint)
	return nil
}

// identify reads the agent's certificate, or joins for one.
func (n *node) identify(ctx context.Context) error {
	a := n.cfg.Agent
	has, err := identity.Exists(a.TLSPath())
	if err != nil {
		return err
	}
	if !has && a.JoinTokenFile != "" {
		err = n.join(ctx)
	} else {
		n.store, err = identity.Load(a.TLSPath())
	}
	if err != nil {
		return fmt.Errorf("who this agent is: %w", err)
	}
	n.id = n.store.Identity()
	want := identity.Identity{ClusterID: n.id.ClusterID, Role: identity.Role(a.Role), Name: a.Name, Cell: cell.ID(a.Cell)}
	if n.id != want {
		return fmt.Errorf("the certificate in %s is of %v, and the configuration says %v: use the agent's own", a.TLSPath(), n.id, want)
	}
	n.lines = lines{n.store}
	n.control = newSeeker(n.lines, gateway.RoleControl, "", n.controls.places)
	return nil
}

func (n *node) join(ctx context.Context) error {
	a := n.cfg.Agent
	text, err := identity.ReadSecret(a.JoinTokenFile)
	if err != nil {
		return err
	}
	token, err := identity.ParseToken("agent.join-token-file", string(bytes.TrimSpace(text)))
	if err != nil {
		return err
	}
	n.store, err = identity.Join(ctx, identity.JoinConfig{
		Dir: a.TLSPath(), Control: a.ControlAddresses(), Token: token, Name: a.Name, Role: identity.Role(a.Role), Cell: cell.ID(a.Cell),
		Hosts: a.CertificateHosts(), Logger: n.logger,
	})
	return err
}

func (n *node) startRole(ctx context.Context) (roleHost, error) {
	switch n.id.Role {
	case identity.RoleControl:
		return startControlHost(ctx, n)
	case identity.RoleCell:
		return startCellHost(ctx, n)
	case identity.RoleGateway:
		return startGatewayHost(ctx, n)
	default:
		return nil, fmt.Errorf("no agent has the role %q", n.id.Role)
	}
}

// serve serves the port: for agents alone where the agent is of a cell, and for users too elsewhere.
func (n *node) serve() {
	n.http = gateway.Server(n.role.handler())
	base, cancel := context.WithCancel(context.Background()) // of every request: it ends in drain
	n.http.BaseContext, n.cutOff = func(net.Listener) context.Context { return base }, cancel
	doors := []identity.Expect{{Role: identity.RoleControl}, {Role: identity.RoleGateway}}
	var conf *tls.Config
	if n.id.Role == identity.RoleCell {
		conf = n.store.DoorTLS(doors...) // anybody may ask whether it is healthy
	} else {
		conf = n.store.DoorTLS(append(doors, identity.Expect{Role: identity.RoleCell})...)
	}
	listener := n.listener
	if d, ok := n.role.(interface {
		listener(net.Listener) net.Listener
	}); ok {
		listener = d.listener(listener)
	}
	go func() { n.served <- n.http.Serve(tls.NewListener(listener, conf)) }()
}

// logConfig returns how the agent's log is kept.
func (n *node) logConfig(name string) consensus.Config {
	cfg := consensus.Config{
		Dir: filepath.Join(n.cfg.Agent.Dir, name), ID: n.cfg.Agent.Name, Advertise: n.cfg.Agent.RaftAddress(), Logger: n.logger,
	}
	return cfg
}

// openLog opens the agent's log on its raft port.
func (n *node) openLog(ctx context.Context, cfg consensus.Config, sm consensus.StateMachine) (*replicatedLog, error) {
	over := func(l net.Listener) consensus.Transport { return n.store.RaftTransport(l, n.logger) }
	return openLog(cfg, sm, transportOn(context.WithoutCancel(ctx), n.cfg.Agent.RaftListen, over))
}

// peer returns the agent that a request is of.
func (n *node) peer(r *http.Request) (gateway.Peer, bool) {
	id, ok := identity.PeerOf(r)
	return gateway.Peer{ClusterID: id.ClusterID, Role: string(id.Role), Name: id.Name, Cell: string(id.Cell)}, ok
}

// healthy reports whether the agent serves and goes on to.
func (n *node) healthy() bool {
	select {
	case <-n.ending:
		return false
	default:
		return n.role != nil && n.role.ready()
	}
}

// roleMessage returns a role as the API says it; unspecified for one of a later release.
func roleMessage(role string) fairleadv1.AgentRole {
	switch role {
	case gateway.RoleControl:
		return fairleadv1.AgentRole_AGENT_ROLE_CONTROL
	case gateway.RoleCell:
		return fairleadv1.AgentRole_AGENT_ROLE_CELL
	case gateway.RoleGateway:
		return fairleadv1.AgentRole_AGENT_ROLE_GATEWAY
	default:
		return fairleadv1.AgentRole_AGENT_ROLE_UNSPECIFIED
	}
}

// registration is what the agent says of itself.
func (n *node) registration() *fairleadv1.RegisterRequest {
	a := n.cfg.Agent
	req := &fairleadv1.RegisterRequest{Agent: &fairleadv1.Agent{
		Name: a.Name, Role: roleMessage(a.Role), Cell: a.Cell, ApiAddress: a.APIAddress(), Version: n.cfg.Version,
		FeatureLevelMax: int32(command.FeatureLevelMax()),
	}}
	if a.HasLog() {
		req.Agent.RaftAddress = a.RaftAddress()
	}
	n.role.standing(req)
	return req
}

func (n *node) learn(resp *fairleadv1.RegisterResponse) {
	n.controls.learn(resp.GetControl())
}

// wait returns when ctx ends, or with an error when the API stopped being served before.
func (n *node) wait(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-n.served:
			n.served <- err // for close
			return fmt.Errorf("the API is not served any more: %w", err)
		case next := <-n.cfg.Reload:
			n.reload(next)
		}
	}
}

// reload takes over what may change while the agent runs, and reads its files again.
func (n *node) reload(next config.Agent) {
	n.running.Store(&next)
	n.controls.configure(next.ControlAddresses())
	if err := n.store.Reload(); err != nil {
		n.logger.Error("the agent's certificate could not be read again; it goes on with the one it has", "error", err)
	}
	if err := n.gossip.Rotate(n.store.GossipKeys()); err != nil {
		n.logger.Error("the keys of gossip could not be changed", "error", err)
	}
	n.logger.Info("the configuration was read again", "certificate_expires", n.store.Expires().UTC().Format(time.RFC3339))
}

// close stops serving: readiness fails first, open requests are answered, then the log is closed.
func (n *node) close() error {
	close(n.ending)
	var errs []error
	if n.hinting.cancel != nil {
		n.hinting.end()
	}
	if n.telling.cancel != nil {
		n.telling.end()
	}
	if n.role != nil {
		n.role.stop()
	}
	switch {
	case n.http != nil:
		errs = append(errs, n.drain())
	case n.listener != nil:
		errs = append(errs, n.listener.Close())
	}
	if n.gossip != nil {
		errs = append(errs, n.leaveGossip())
	}
	if n.role != nil {
		errs = append(errs, n.role.close())
	}
	if n.tuning.cancel != nil {
		n.tuning.end()
	}
	return errors.Join(errs...)
}

// openGrace is how long open requests have to end by themselves when the agent stops. Streams and long polls do not: their callers go on elsewhere.
const openGrace = 2 * time.Second

func (n *node) drain() error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	defer time.AfterFunc(openGrace, n.cutOff).Stop()
	err := n.http.Shutdown(ctx)
	n.cutOff()
	if errors.Is(err, context.DeadlineExceeded) {
		n.logger.Warn("requests were cut off: they took longer than the drain", "timeout", drainTimeout)
		err = n.http.Close()
	}
	if served := <-n.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
