package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cmd/fairlead/identity"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/control/consensus"
	"github.com/fairlead/fairlead/control/controlserver"
	"github.com/fairlead/fairlead/control/reconcile"
	"github.com/fairlead/fairlead/control/state"
	"github.com/fairlead/fairlead/dataplane/gateway"
	"github.com/fairlead/fairlead/dataplane/route"
	"github.com/fairlead/fairlead/migrate"
	"github.com/fairlead/fairlead/migrate/mover"
	"github.com/fairlead/fairlead/placement"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// controlLogDir is where a control agent keeps its replica of control's log, below its state directory.
const controlLogDir = "control"

// controlHost is a replica of control, and a door.
type controlHost struct {
	*door
	node    *node
	server  *controlserver.Server
	log     *replicatedLog
	running background
}

func startControlHost(ctx context.Context, n *node) (roleHost, error) {
	machine := controlserver.NewMachine()
	gc := n.logConfig(controlLogDir)
	gc.SegmentBytes = controlSegmentBytes
	log, err := n.openLog(ctx, gc, machine)
	if err != nil {
		return nil, fmt.Errorf("control's log: %w", err)
	}
	h := &controlHost{node: n, log: log}
	if err := h.start(ctx, machine); err != nil {
		return nil, fmt.Errorf("control: %w (closing its log: %w)", err, log.Close())
	}
	return h, nil
}

func (h *controlHost) start(ctx context.Context, machine *controlserver.Machine) error {
	n := h.node
	loop := reconcile.DefaultConfig().WithHour(placement.HourLength(n.cfg.Agent.DemandHour))
	loop.Whales.Auto = n.cfg.Agent.Whales.Auto
	migrations := migrate.DefaultConfig()
	migrations.WipeDelay = n.cfg.Agent.WipeDelay
	cfg := controlserver.Config{
		Log: n.logger, Name: command.AgentName(n.id.Name), ClusterID: n.id.ClusterID, Caller: gateway.CallerFrom, Peer: peerFrom,
		Group: h.log, Replicas: max(1, len(n.cfg.Agent.ControlAddresses())), Dialer: newDialer(n.lines), GossipKeys: n.store.GossipKeys,
		Members: n.members, Reconcile: &loop, Migrate: migrations, Seen: mover.CellSeen, Drive: func(ctx context.Context, moves *controlserver.Moves) error {
			return drive(ctx, moves, migrations, n.logger)
		},
	}
	if ca := n.store.CA(); ca != nil {
		cfg.Certifier = certifier{ca.Certifier(time.Now, identity.LifetimeDefault)}
	}
	var err error
	if h.server, err = controlserver.New(cfg, controlLog{h.log}, nil, machine); err != nil {
		return err
	}
	if h.door, err = startDoor(ctx, n); err != nil {
		return err
	}
	h.running.start(ctx, func(ctx context.Context) {
		if err := h.server.Run(ctx); err != nil && ctx.Err() == nil {
			n.logger.Error("control stopped leading for good", "error", err)
		}
	})
	return nil
}

// drive drives migrations while this replica leads.
func drive(ctx context.Context, moves *controlserver.Moves, cfg migrate.Config, logger *slog.Logger) error {
	m, err := mover.New(mover.Config{Control: moves, Cells: moves, Migrate: cfg, Log: logger})
	if err != nil {
		return err
	}
	return m.Run(ctx)
}

func (h *controlHost) handler() http.Handler {
	mux := http.NewServeMux()
	options := gateway.HandlerOptions()
	mount := func(path string, handler http.Handler) { mux.Handle(path, handler) }
	mount(fairleadv1connect.NewOrganizationServiceHandler(h.server, options...))
	mount(fairleadv1connect.NewTenantServiceHandler(h.server, options...))
	mount(fairleadv1connect.NewKeyServiceHandler(h.server, options...))
	mount(fairleadv1connect.NewClusterServiceHandler(h.server.Cluster(), options...))
	mount(fairleadv1connect.NewCellServiceHandler(h.server.CellService(), options...))
	mount(fairleadv1connect.NewPlacementServiceHandler(h.server.Placement(), options...))
	mount(fairleadv1connect.NewAuditServiceHandler(h.server.Audit(), options...))
	mount(fairleadv1connect.NewMigrationServiceHandler(h.server.Migrations(), options...))
	mount(fairleadv1connect.NewRegistryServiceHandler(bootstrapper{h.server.Registry(), h}, options...))
	mount(fairleadv1connect.NewReplicaServiceHandler(&replica{name: h.node.cfg.Agent.Name, log: h.log, logger: h.node.logger}, options...))
	mount(gateway.PathLeader, gateway.LeaderHandler(h.status))
	inside, err := gateway.Inside(gateway.InsideConfig{Peer: h.node.peer, Leads: h.whoLeads}, withPeer(h.node, mux))
	if err != nil {
		panic("agent: " + err.Error()) // Peer is set
	}
	return h.door.handler(h.node, inside)
}

func (h *controlHost) whoLeads() (leads bool, leader string) {
	leader, _ = h.log.Leader()
	leads = h.server.Leads()
	if !leads && leader == h.node.cfg.Agent.Name {
		leader = "" // it does not serve yet, or not any more
	}
	return leads, leader
}

func (h *controlHost) status() gateway.LeaderStatus {
	leads, leader := h.whoLeads()
	return gateway.LeaderStatus{
		Name: h.node.cfg.Agent.Name, Open: h.log.Open(context.Background()), Leader: leads, LeaderName: leader,
		Term: h.log.Stats().Term,
	}
}

func (h *controlHost) standing(req *fairleadv1.RegisterRequest) {
	req.LogOpen = h.log.Open(context.Background())
	req.Leader, req.Term = h.server.Leads(), h.log.Stats().Term
}

func (h *controlHost) load() int { return 0 }

// ready reports whether this replica knows who leads control. Before the cluster is bootstrapped nobody does.
func (h *controlHost) ready() bool {
	leader, _ := h.log.Leader()
	return leader != ""
}

// stop lets another lead.
func (h *controlHost) stop() {
	h.log.HandOver(h.node.logger)
	h.door.stop()
}

func (h *controlHost) close() error {
	h.door.close()
	h.running.end()
	return h.log.Close()
}

// controlLog is a log as control wants it.
type controlLog struct{ *replicatedLog }

// Propose implements controlserver.Log.
func (l controlLog) Propose(ctx context.Context, data []byte) (any, error) {
	return l.ProposeAndWait(ctx, data)
}

// peerKey holds the agent whose certificate a request came with, in the request's context.
type peerKey struct{}

func withPeer(n *node, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p, ok := n.peer(r); ok {
			r = r.WithContext(context.WithValue(r.Context(), peerKey{}, p))
		}
		next.ServeHTTP(w, r)
	})
}

func peerFrom(ctx context.Context) (controlserver.Peer, bool) {
	p, ok := ctx.Value(peerKey{}).(gateway.Peer)
	if !ok {
		return controlserver.Peer{}, false
	}
	role, err := command.ParseRole("role", p.Role)
	return controlserver.Peer{Role: role, Name: command.AgentName(p.Name), Cell: cell.ID(p.Cell)}, err == nil
}

// certifier signs for control.
type certifier struct{ *identity.Certifier }

// Sign implements controlserver.Certifier.
func (c certifier) Sign(csr []byte, role command.Role, name command.AgentName, id cell.ID, hosts []string) (cert, authority []byte, err error) {
	return c.Certifier.Sign(csr, role.String(), string(name), string(id), hosts)
}

// members is gossip as the API shows it.
func (n *node) members() []*fairleadv1.Member {
	var all []*fairleadv1.Member
	for _, m := range n.gossip.Members() {
		all = append(all, &fairleadv1.Member{
			Name: m.Name, Role: roleMessage(m.Role), Cell: m.Cell, GossipAddress: m.GossipAddress, ApiAddress: m.APIAddress, State: string(m.State),
			LoadPercent: int32(m.LoadPercent),
		})
	}
	return all
}

// bootstrapper forms control's log before the cluster's record is made in it.
type bootstrapper struct {
	fairleadv1connect.RegistryServiceHandler
	host *controlHost
}

// formTimeout bounds the first election.
const formTimeout = 20 * time.Second

// Bootstrap implements RegistryService. The log begins with all of its first voters, so that none is added while another may be away; whichever of
// them comes to lead makes the record.
func (b bootstrapper) Bootstrap(ctx context.Context, req *fairleadv1.BootstrapRequest) (*fairleadv1.BootstrapResponse, error) {
	h := b.host
	voters := peersOf(req.GetVoters())
	if len(voters) == 0 {
		voters = []consensus.Peer{{ID: h.node.cfg.Agent.Name, Address: h.node.cfg.Agent.RaftAddress(), Voter: true}}
	}
	if err := h.log.Form(ctx, voters); err != nil {
		return nil, refused(connect.CodeFailedPrecondition, "NOT_FORMED", "control's log was not formed: "+err.Error())
	}
	ctx, cancel := context.WithTimeout(ctx, formTimeout)
	defer cancel()
	for ctx.Err() == nil {
		leads, leader := h.whoLeads()
		switch {
		case leads:
			return b.RegistryServiceHandler.Bootstrap(ctx, req)
		case leader != "":
			if address, ok := h.node.controlLeader(ctx); ok {
				return h.node.registryOf(route.Replica{Name: leader, Address: address}).Bootstrap(ctx, req)
			}
		}
		_ = pause(ctx, leaderRoundPause) // the loop looks at ctx
	}
	return nil, refused(connect.CodeUnavailable, "NO_LEADER",
		"control's log has been formed and nobody leads it yet: start a majority of its voters, then repeat the call")
}

// controlLeader returns the API address of the control agent that says of itself that it leads.
func (n *node) controlLeader(ctx context.Context) (address string, ok bool) {
	for _, p := range n.controls.places() {
		way := n.lines.to(gateway.Peer{Role: gateway.RoleControl, Name: p.name})
		if s, err := askLeader(ctx, way, p.address); err == nil && s.Leader {
			return p.address, true
		}
	}
	return "", false
}

// askLeader asks an agent who leads its log.
func askLeader(ctx context.Context, way http.RoundTripper, address string) (gateway.LeaderStatus, error) {
	var s gateway.LeaderStatus
	ctx, cancel := context.WithTimeout(ctx, lineDialTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+gateway.PathLeader, nil)
	if err != nil {
		return s, err
	}
	resp, err := way.RoundTrip(req)
	if err != nil {
		return s, err
	}
	err = json.NewDecoder(io.LimitReader(resp.Body, leaderResponseMax)).Decode(&s)
	return s, errors.Join(err, resp.Body.Close())
}

// dialer gives control its ways to the other agents.
type dialer struct {
	lines lines
	ways  *wayCache
}

func newDialer(l lines) *dialer { return &dialer{lines: l, ways: newWayCache()} }

// Replica implements controlserver.Dialer.
func (d *dialer) Replica(a state.Agent) fairleadv1connect.ReplicaServiceClient {
	key := "replica " + string(a.Name)
	way := d.ways.get(key, func() http.RoundTripper {
		return d.lines.to(gateway.Peer{Role: a.Role.String(), Name: string(a.Name), Cell: string(a.Cell)})
	})
	return fairleadv1connect.NewReplicaServiceClient(&http.Client{Transport: way}, "https://"+a.APIAddress, lineOptions()...)
}

// Tenancy implements controlserver.Dialer.
func (d *dialer) Tenancy(id cell.ID, agents []state.Agent) fairleadv1connect.TenancyServiceClient {
	return fairleadv1connect.NewTenancyServiceClient(&http.Client{Transport: d.cell(id, agents)}, "https://"+string(id), lineOptions()...)
}

// Lanes implements controlserver.Dialer. Every call of the service may be repeated. What is copied is not compressed: that would take the source's processors,
// which its tenants need.
func (d *dialer) Lanes(id cell.ID, agents []state.Agent) fairleadv1connect.LaneServiceClient {
	options := append(lineOptions(), connect.WithAcceptCompression("gzip", nil, nil))
	return fairleadv1connect.NewLaneServiceClient(&http.Client{Transport: d.cell(id, agents)}, "https://"+string(id), options...)
}

// cell returns the way to whichever of a cell's agents leads.
func (d *dialer) cell(id cell.ID, agents []state.Agent) http.RoundTripper {
	way := d.ways.get("cell "+string(id), func() http.RoundTripper {
		return newSeeker(d.lines, gateway.RoleCell, string(id), nil)
	})
	places := make([]place, len(agents))
	for i, a := range agents {
		places[i] = place{name: string(a.Name), address: a.APIAddress}
	}
	if s, ok := way.(*seeker); ok {
		way = s.among(places)
	}
	return way
}
