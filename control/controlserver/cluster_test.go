package controlserver

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/control/consensus"
	"github.com/fairlead/fairlead/control/state"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
	"github.com/fairlead/fairlead/proto/rejection"
)

// fakeGroup is one replica of control's log: it leads when told to.
type fakeGroup struct {
	machine *Machine

	mu      sync.Mutex
	term    uint64
	leads   bool
	leader  string
	contact time.Duration
	lost    chan struct{} // closed when it stops leading
	won     chan struct{} // closed when it begins to
	peers   map[string]consensus.PeerStatus
	behind  map[string]bool // peers that do not catch up
	broken  error           // what Verify, Save and changes of peers return
}

func newFakeGroup(m *Machine) *fakeGroup {
	return &fakeGroup{
		machine: m, won: make(chan struct{}), leader: "control-1", behind: map[string]bool{},
		peers: map[string]consensus.PeerStatus{"control-1": {
			Peer: consensus.Peer{ID: "control-1", Address: "c1:1", Voter: true}, Leader: true, Known: true,
		}},
	}
}

// lead makes the replica lead in the next term.
func (g *fakeGroup) lead() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.term++
	g.leads, g.lost = true, make(chan struct{})
	close(g.won)
}

// follow makes it stop.
func (g *fakeGroup) follow() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.leads, g.won = false, make(chan struct{})
	close(g.lost)
}

func (g *fakeGroup) breakWith(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.broken = err
}

// members returns a copy.
func (g *fakeGroup) members() map[string]consensus.PeerStatus {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.peers)
}

func (g *fakeGroup) hear(leader string, contact time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.leader, g.contact = leader, contact
}

func (g *fakeGroup) Lead(ctx context.Context) (uint64, <-chan struct{}, error) {
	for {
		g.mu.Lock()
		leads, term, lost, won := g.leads, g.term, g.lost, g.won
		g.mu.Unlock()
		if leads {
			return term, lost, nil
		}
		select {
		case <-won:
		case <-ctx.Done():
			return 0, nil, context.Cause(ctx)
		}
	}
}

func (g *fakeGroup) Leader() (id, address string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.leader, g.leader
}

func (g *fakeGroup) Verify(context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.leads {
		return consensus.ErrNotLeader
	}
	return g.broken
}

func (g *fakeGroup) Stats() consensus.Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	return consensus.Stats{ID: "control-1", Leader: g.leads, Term: g.term, LastContact: g.contact, LastIndex: 9, CommitIndex: 8, SnapshotIndex: 7}
}

func (g *fakeGroup) Peers(context.Context) ([]consensus.PeerStatus, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.SortedFunc(maps.Values(g.peers), func(a, b consensus.PeerStatus) int { return cmp.Compare(a.ID, b.ID) }), g.broken
}

func (g *fakeGroup) AddPeer(_ context.Context, p consensus.Peer) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.Voter && g.behind[p.ID] {
		return errors.New("it would hold everybody up")
	}
	g.peers[p.ID] = consensus.PeerStatus{Peer: p}
	return g.broken
}

func (g *fakeGroup) CaughtUp(_ context.Context, id string) (bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.behind[id], g.broken
}

func (g *fakeGroup) RemovePeer(_ context.Context, id string, votersMin int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.peers)-1 < votersMin {
		return errors.Join(consensus.ErrNotApplied, consensus.ErrQuorum)
	}
	delete(g.peers, id)
	return g.broken
}

func (g *fakeGroup) Transfer(_ context.Context, id string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.leader = cmp.Or(id, "control-2")
	return g.broken
}

func (g *fakeGroup) Save(ctx context.Context, w io.Writer) error {
	if err := g.Verify(ctx); err != nil {
		return err
	}
	_, err := g.machine.View().WriteTo(w)
	return err
}

func (g *fakeGroup) Restore(_ context.Context, r io.Reader) (consensus.SavedInfo, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return consensus.SavedInfo{}, err
	}
	if err := g.machine.CheckSnapshot(bytes.NewReader(data)); err != nil {
		return consensus.SavedInfo{}, errors.Join(consensus.ErrNotApplied, consensus.ErrCorrupt, err)
	}
	g.follow()
	err = g.machine.Restore(bytes.NewReader(data))
	g.lead()
	return consensus.SavedInfo{Index: 42, Saved: time.Unix(1000, 0)}, err
}

// fakeCell is the agents of one cell: a log with a leader, and the tenants that were configured.
type fakeCell struct {
	fairleadv1connect.UnimplementedLaneServiceHandler

	name cell.ID

	mu        sync.Mutex
	held      heldRecords
	voters    []*fairleadv1.Peer
	tenants   map[cell.TenantID]*fairleadv1.TenantPromise
	promises  map[cell.OrganizationID]*fairleadv1.OrganizationPromise
	draining  bool
	calls     int
	drains    int
	use       map[cell.TenantID]*fairleadv1.TenantUse
	hang      bool  // calls end only with their contexts
	fail      error // what calls return
	onMeasure func()
	lagging   bool // a new replica does not catch up
	asked     []string
}

func (f *fakeCell) enter(ctx context.Context, what string) error {
	f.mu.Lock()
	hang, fail := f.hang, f.fail
	f.asked = append(f.asked, what)
	f.mu.Unlock()
	if hang {
		<-ctx.Done()
		return connect.NewError(connect.CodeDeadlineExceeded, ctx.Err())
	}
	return fail
}

func (f *fakeCell) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeCell) Configure(ctx context.Context, r *fairleadv1.ConfigureRequest) (*fairleadv1.ConfigureResponse, error) {
	if err := f.enter(ctx, "configure"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	if r.Draining != nil {
		f.draining, f.drains = r.GetDraining(), f.drains+1
	}
	for _, o := range r.GetOrganizations() {
		f.promises[cell.OrganizationID(o.GetOrganization())] = o
	}
	for _, t := range r.GetTenants() {
		if t.GetReservationBatch() > 1e15 {
			return nil, rejection.New(connect.CodeInvalidArgument, &fairleadv1.Rejection{
				Reason: rejection.ReasonBadField, Field: "reservation_batch", Message: "reservation_batch is too much: lower it",
			})
		}
		if o := cell.OrganizationID(t.GetOrganization()); o != "" && f.promises[o] == nil {
			return nil, connect.NewError(connect.CodeInternal, errors.New("a tenant before its organization"))
		}
		f.tenants[cell.TenantID(t.GetTenant())] = t
	}
	return &fairleadv1.ConfigureResponse{}, nil
}

func (f *fakeCell) MeasureDemand(ctx context.Context, r *fairleadv1.MeasureDemandRequest) (*fairleadv1.MeasureDemandResponse, error) {
	f.mu.Lock()
	then := f.onMeasure
	f.mu.Unlock()
	if then != nil {
		then()
	}
	if err := f.enter(ctx, "measure"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	m := &fairleadv1.MeasureDemandResponse{Time: timestamppb.Now()}
	for _, id := range slices.Sorted(maps.Keys(f.tenants)) {
		if string(id) <= r.GetAfter() {
			continue
		}
		if len(m.GetTenants()) == 2 { // small pages, so that there are several
			m.More = true
			break
		}
		use := &fairleadv1.TenantUse{Tenant: string(id)}
		if u, ok := f.use[id]; ok {
			use = proto.CloneOf(u)
		}
		m.Tenants = append(m.Tenants, use)
	}
	return m, nil
}

func (f *fakeCell) ExplainTenancy(ctx context.Context, r *fairleadv1.ExplainTenancyRequest) (*fairleadv1.ExplainTenancyResponse, error) {
	if err := f.enter(ctx, "explain"); err != nil {
		return nil, err
	}
	b, err := proto.Marshal(&fairleadv1.ExplainTenantResponse{Cell: string(f.name), Running: 3})
	return &fairleadv1.ExplainTenancyResponse{Explanation: b}, err
}

func (f *fakeCell) OpenLog(ctx context.Context, r *fairleadv1.OpenLogRequest) (*fairleadv1.OpenLogResponse, error) {
	if err := f.enter(ctx, "open"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.voters = r.GetVoters()
	return &fairleadv1.OpenLogResponse{}, nil
}

func (f *fakeCell) GetLog(ctx context.Context, _ *fairleadv1.GetLogRequest) (*fairleadv1.GetLogResponse, error) {
	if err := f.enter(ctx, "log"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	m := &fairleadv1.GetLogResponse{Open: len(f.voters) > 0, CommitIndex: 1000, LastIndex: 1001, Term: 4}
	for _, v := range f.voters {
		v = proto.CloneOf(v)
		if v.LastIndex, v.LastContact = 1000, durationpb.New(0); f.lagging {
			v.LastIndex = 1
		}
		m.Peers = append(m.Peers, v)
	}
	return m, nil
}

func (f *fakeCell) ChangePeer(ctx context.Context, r *fairleadv1.ChangePeerRequest) (*fairleadv1.ChangePeerResponse, error) {
	if err := f.enter(ctx, "change"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	at := slices.IndexFunc(f.voters, func(p *fairleadv1.Peer) bool { return p.GetName() == r.GetPeer().GetName() })
	if r.GetChange() == fairleadv1.PeerChange_PEER_CHANGE_REMOVE && len(f.voters)-1 < int(r.GetVotersMin()) {
		return nil, rejection.New(connect.CodeFailedPrecondition, &fairleadv1.Rejection{Reason: "QUORUM", Message: "too few: add one first"})
	}
	if at >= 0 {
		f.voters = slices.Delete(slices.Clone(f.voters), at, at+1)
	}
	if r.GetChange() != fairleadv1.PeerChange_PEER_CHANGE_REMOVE {
		p := proto.CloneOf(r.GetPeer())
		p.Voter = r.GetChange() == fairleadv1.PeerChange_PEER_CHANGE_ADD_VOTER
		f.voters = append(f.voters, p)
	}
	return &fairleadv1.ChangePeerResponse{}, nil
}

func (f *fakeCell) Lead(ctx context.Context, _ *fairleadv1.LeadRequest) (*fairleadv1.LeadResponse, error) {
	return &fairleadv1.LeadResponse{}, f.enter(ctx, "lead")
}

func (f *fakeCell) Save(context.Context, *fairleadv1.SaveRequest) (*connect.ServerStreamForClient[fairleadv1.SaveResponse], error) {
	return nil, connect.NewError(connect.CodeUnavailable, errors.New("not here"))
}

// now returns a copy.
func (f *fakeCell) now() *fakeCell {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &fakeCell{
		name: f.name, voters: slices.Clone(f.voters), tenants: maps.Clone(f.tenants), promises: maps.Clone(f.promises), draining: f.draining, calls: f.calls,
	}
}

func (f *fakeCell) tenant(id cell.TenantID) *fairleadv1.TenantPromise {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tenants[id]
}

// fakeCells are the cells of a cluster.
type fakeDialer struct {
	mu    sync.Mutex
	cells map[cell.ID]*fakeCell
}

func (d *fakeDialer) cell(id cell.ID) *fakeCell {
	d.mu.Lock()
	defer d.mu.Unlock()
	f, ok := d.cells[id]
	if !ok {
		f = &fakeCell{
			name: id, tenants: map[cell.TenantID]*fairleadv1.TenantPromise{}, use: map[cell.TenantID]*fairleadv1.TenantUse{},
			promises: map[cell.OrganizationID]*fairleadv1.OrganizationPromise{},
		}
		d.cells[id] = f
	}
	return f
}

func (d *fakeDialer) Replica(a state.Agent) fairleadv1connect.ReplicaServiceClient {
	return d.cell(a.Cell)
}

func (d *fakeDialer) Tenancy(id cell.ID, _ []state.Agent) fairleadv1connect.TenancyServiceClient {
	return d.cell(id)
}

func (d *fakeDialer) Lanes(id cell.ID, _ []state.Agent) fairleadv1connect.LaneServiceClient {
	return d.cell(id)
}

// fakeCertifier signs whatever is not empty.
type fakeCertifier struct{}

func (f *fakeCertifier) Sign(csr []byte, role command.Role, name command.AgentName, id cell.ID, _ []string) (cert, authority []byte, err error) {
	if len(csr) == 0 {
		return nil, nil, &cell.FieldError{Field: "csr", Problem: "is empty", Remedy: "give one"}
	}
	return []byte("certificate of " + role.String() + " " + string(name) + " " + string(id)), []byte("authority"), nil
}

func (f *fakeCertifier) Fingerprint() [32]byte { return [32]byte{1, 2, 3} }

// callerKey and peerKey hold who asks.
type (
	callerKey struct{}
	peerKey   struct{}
)

func asPeer(ctx context.Context, role command.Role, name command.AgentName, id cell.ID) context.Context {
	return context.WithValue(ctx, peerKey{}, Peer{Role: role, Name: name, Cell: id})
}

// cluster is a control server with cells that are fake, in a synctest bubble.
type cluster struct {
	*Server
	t      *testing.T
	group  *fakeGroup
	log    *fakeLog
	dialer *fakeDialer
	terms  map[command.AgentName]uint64 // of the agents that lead
	ctx    context.Context              //nolint:containedctx // of the operator
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	m := NewMachine()
	c := &cluster{
		t: t, group: newFakeGroup(m), log: &fakeLog{machine: m}, dialer: &fakeDialer{cells: map[cell.ID]*fakeCell{}},
		terms: map[command.AgentName]uint64{}, ctx: context.WithValue(t.Context(), callerKey{}, cell.Caller{Key: "key_ops"}),
	}
	c.Server = c.replica(c.group)
	return c
}

// replica returns another server over the same machine.
func (c *cluster) replica(g *fakeGroup) *Server {
	c.t.Helper()
	s, err := New(Config{
		Log: slog.New(slog.DiscardHandler), Name: "control-1", ClusterID: "cluster-x", Group: g, Replicas: 1, Dialer: c.dialer,
		Certifier: &fakeCertifier{}, GossipKeys: func() [][]byte { return [][]byte{{9}} },
		Members: func() []*fairleadv1.Member { return []*fairleadv1.Member{{Name: "m"}} },
		Caller: func(ctx context.Context) (cell.Caller, bool) {
			caller, ok := ctx.Value(callerKey{}).(cell.Caller)
			return caller, ok
		},
		Peer: func(ctx context.Context) (Peer, bool) { p, ok := ctx.Value(peerKey{}).(Peer); return p, ok },
	}, c.log, nil, c.log.machine)
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

// run leads, and returns what ends it.
func (c *cluster) run() (stop func()) {
	ctx, cancel := context.WithCancel(c.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := c.Run(ctx); !errors.Is(err, context.Canceled) {
			c.t.Errorf("Run ended with %v", err)
		}
	}()
	c.group.lead()
	synctest.Wait()
	return func() { cancel(); <-done }
}

// after lets time pass, agents registering meanwhile.
func (c *cluster) after(d time.Duration) {
	c.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		c.registerAll()
		<-time.After(min(2*time.Second, time.Until(end)))
	}
	synctest.Wait()
}

// registerAll has every agent say that it is there.
func (c *cluster) registerAll() {
	c.t.Helper()
	for a := range c.machine.View().Agents("") {
		c.register(a.Role, a.Name, a.Cell)
	}
}

// register has an agent say that it is there; the agent of a cell has its log open once it was told the voters.
func (c *cluster) register(role command.Role, name command.AgentName, id cell.ID) {
	c.t.Helper()
	req := &fairleadv1.RegisterRequest{Agent: &fairleadv1.Agent{
		Name: string(name), Role: roleMessage(role), Cell: string(id), ApiAddress: string(name) + ":443", RaftAddress: string(name) + ":444",
		Version: "v1", FeatureLevelMax: 1,
	}}
	if role == command.RoleCell {
		f := c.dialer.cell(id)
		f.set(func() {
			req.LogOpen = slices.ContainsFunc(f.voters, func(p *fairleadv1.Peer) bool { return p.GetName() == string(name) })
			req.Leader = req.GetLogOpen() && f.voters[0].GetName() == string(name)
		})
		req.Term = c.terms[name]
	}
	if _, err := c.Registry().Register(asPeer(c.t.Context(), role, name, id), req); err != nil {
		c.t.Errorf("register %s: %v", name, err)
	}
}

// cellWith makes a cell with one agent and waits until it is open.
func (c *cluster) cellWith(id cell.ID, capacity float64, labels map[string]string) *fakeCell {
	c.t.Helper()
	if _, err := c.CellService().CreateCell(c.ctx, &fairleadv1.CreateCellRequest{
		Name: string(id), Labels: labels, Capacity: &fairleadv1.Load{Compute: capacity},
	}); err != nil {
		c.t.Fatal(err)
	}
	c.register(command.RoleCell, command.AgentName(id+"-a"), id)
	c.after(5 * time.Second)
	home, _ := c.machine.View().Cell(id)
	if home.Phase.String() != "open" {
		c.t.Fatalf("cell %s is %v with voters %v", id, home.Phase, home.Voters)
	}
	return c.dialer.cell(id)
}

func (c *cluster) tenantIn(id string, rules *fairleadv1.PlacementRules) *fairleadv1.Tenant {
	c.t.Helper()
	a, err := c.CreateTenant(c.ctx, &fairleadv1.CreateTenantRequest{Id: id, Placement: rules})
	if err != nil {
		c.t.Fatal(err)
	}
	synctest.Wait()
	return a.GetTenant()
}

func (c *cluster) bootstrap() {
	c.t.Helper()
	if _, err := c.Registry().Bootstrap(asPeer(c.t.Context(), command.RoleControl, "control-1", ""), &fairleadv1.BootstrapRequest{
		AdminKeyHash: bytes.Repeat([]byte{7}, 32),
	}); err != nil {
		c.t.Fatal(err)
	}
}

// inCluster runs a test of a cluster that leads, in a bubble.
func inCluster(t *testing.T, test func(*testing.T, *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t)
		stop := c.run()
		defer stop()
		c.bootstrap()
		test(t, c)
	})
}

// A cell forms when its agents are there, takes tenants, and is told of its own only.
func TestCellsFormAndTake(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		east := c.cellWith("east", 100, map[string]string{"zone": "east"})
		west := c.cellWith("west", 100, map[string]string{"zone": "west"})
		for id, zone := range map[string]string{"ash": "east", "elm": "west"} {
			got := c.tenantIn(id, &fairleadv1.PlacementRules{Require: map[string]string{"zone": zone}})
			if got.GetCell() != zone || got.GetEpoch() == 0 {
				t.Errorf("%v", got)
			}
		}
		if east.tenant("ash") == nil || east.tenant("elm") != nil || west.tenant("elm") == nil || west.tenant("ash") != nil {
			t.Errorf("east has %v, west %v", east.now().tenants, west.now().tenants)
		}
		calls := west.now().calls
		if _, err := c.UpdateTenant(c.ctx, &fairleadv1.UpdateTenantRequest{Id: "ash", Weight: new(5.0)}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if east.tenant("ash").GetWeight() != 5000 || west.now().calls != calls {
			t.Errorf("east has %v, west was called %d times", east.tenant("ash"), west.now().calls-calls)
		}
		x, err := c.ExplainTenant(c.ctx, &fairleadv1.ExplainTenantRequest{Id: "elm"})
		if err != nil || x.GetCell() != "west" || x.GetTenant().GetId() != "elm" || x.GetRunning() != 3 {
			t.Errorf("%v, %v", x, err)
		}
		l, err := c.CellService().ListCells(c.ctx, &fairleadv1.ListCellsRequest{})
		if err != nil || len(l.GetCells()) != 2 || l.GetCells()[0].GetLeader() != "east-a" || l.GetCells()[0].GetTenants() != 1 ||
			l.GetCells()[0].GetLastSeen() == nil {
			t.Errorf("%v, %v", l, err)
		}
	})
}

// An organization's tenants may be in several cells: each is told of it before its first tenant, and of its changes.
func TestOrganizationOfSeveralCells(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		east := c.cellWith("east", 100, map[string]string{"zone": "east"})
		west := c.cellWith("west", 100, map[string]string{"zone": "west"})
		if _, err := c.CreateOrganization(c.ctx, &fairleadv1.CreateOrganizationRequest{Id: "group", Weight: new(2.0)}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(east.now().promises)+len(west.now().promises) != 0 {
			t.Error("told of an organization without a tenant there")
		}
		for _, zone := range []string{"east", "west"} {
			if _, err := c.CreateTenant(c.ctx, &fairleadv1.CreateTenantRequest{
				Id: "in-" + zone, Organization: "group", Placement: &fairleadv1.PlacementRules{Require: map[string]string{"zone": zone}},
			}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.UpdateOrganization(c.ctx, &fairleadv1.UpdateOrganizationRequest{Id: "group", Weight: new(3.0)}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, f := range []*fakeCell{east, west} {
			if f.now().promises["group"].GetWeight() != 3000 {
				t.Errorf("%s has %v", f.name, f.now().promises["group"])
			}
		}
	})
}

// A cell that hangs keeps nobody waiting but those who change its own tenants, and they get an answer too.
func TestHungCellStallsNobodyElse(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		east := c.cellWith("east", 100, map[string]string{"zone": "east"})
		west := c.cellWith("west", 100, map[string]string{"zone": "west"})
		rules := func(zone string) *fairleadv1.PlacementRules {
			return &fairleadv1.PlacementRules{Require: map[string]string{"zone": zone}}
		}
		c.tenantIn("elm", rules("west"))
		west.set(func() { west.hang = true })
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := c.UpdateTenant(c.ctx, &fairleadv1.UpdateTenantRequest{Id: "elm", Weight: new(5.0)})
			if rejection.From(err).GetReason() != "CELL_BEHIND" {
				t.Error(err)
			}
		})
		for i := range 5 {
			began := time.Now()
			c.tenantIn("ash"+string(rune('0'+i)), rules("east"))
			if d := time.Since(began); d > time.Second {
				t.Errorf("another cell's tenant took %v", d)
			}
			c.after(7 * time.Second)
		}
		c.cellWith("north", 100, nil) // the loop goes on
		wg.Wait()
		if len(east.now().tenants) != 5 || west.tenant("elm").GetWeight() == 5000 {
			t.Errorf("%v, %v", east.now().tenants, west.now().tenants)
		}
		west.set(func() { west.hang = false })
		c.after(30 * time.Second)
		if west.tenant("elm").GetWeight() != 5000 {
			t.Errorf("never told: %v", west.tenant("elm"))
		}
	})
}

// A new leader tells every cell everything, whatever the one before did; a new leader of a cell is told everything, that it drains among that.
func TestConfiguredAnew(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		east := c.cellWith("east", 100, nil)
		c.tenantIn("ash", nil)
		_, err := c.CellService().DrainCell(c.ctx, &fairleadv1.DrainCellRequest{Name: "east"})
		if synctest.Wait(); err != nil || !east.now().draining {
			t.Fatalf("%v, draining %v", err, east.now().draining)
		}
		forget := func() {
			east.set(func() { clear(east.tenants); east.draining = false })
		}
		forget()
		c.group.follow()
		synctest.Wait()
		if c.Leads() {
			t.Error("leads after the term")
		}
		if _, err := c.GetTenant(c.ctx, &fairleadv1.GetTenantRequest{Id: "ash"}); rejection.From(err).GetReason() != "NOT_APPLIED" {
			t.Error(err)
		}
		if _, err := c.CreateTenant(c.ctx, &fairleadv1.CreateTenantRequest{Id: "late"}); rejection.From(err).GetReason() != "NOT_APPLIED" {
			t.Error(err)
		}
		c.group.lead()
		synctest.Wait()
		c.after(4 * time.Second)
		if east.tenant("ash") == nil || !east.now().draining {
			t.Errorf("a new leader left the cell with %v, draining %v", east.now().tenants, east.now().draining)
		}
		forget()
		c.after(6 * time.Second)
		if east.tenant("ash") != nil {
			t.Fatal("told again for nothing") // else what follows shows nothing
		}
		c.terms["east-a"] = 9
		c.after(4 * time.Second)
		if east.tenant("ash") == nil || !east.now().draining {
			t.Errorf("the cell's new leader has %v, draining %v", east.now().tenants, east.now().draining)
		}
		forget()
		c.after(settleAfter)
		if east.tenant("ash") == nil {
			t.Error("not told once more when the calls of a former leader have ended")
		}
	})
}

// A tenant that no cell can take exists, is said to be in none and why, and is placed as soon as one can.
func TestUnplacedUntilThereIsRoom(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.cellWith("east", 100, map[string]string{"zone": "east"})
		rules := &fairleadv1.PlacementRules{Require: map[string]string{"zone": "west"}}
		_, err := c.CreateTenant(c.ctx, &fairleadv1.CreateTenantRequest{Id: "elm", Placement: rules})
		if r := rejection.From(err); connect.CodeOf(err) != connect.CodeUnavailable || r.GetReason() != "UNPLACED" ||
			!bytes.Contains([]byte(r.GetMessage()), []byte("east")) {
			t.Errorf("%v, %v", err, r)
		}
		g, err := c.GetTenant(c.ctx, &fairleadv1.GetTenantRequest{Id: "elm"})
		if err != nil || g.GetTenant().GetCell() != "" || g.GetTenant().GetPlacement().GetRequire()["zone"] != "west" {
			t.Errorf("%v, %v", g, err)
		}
		if _, err := c.ExplainTenant(c.ctx, &fairleadv1.ExplainTenantRequest{Id: "elm"}); rejection.From(err).GetReason() != "UNPLACED" {
			t.Error(err)
		}
		u, err := c.UpdateTenant(c.ctx, &fairleadv1.UpdateTenantRequest{Id: "elm", Weight: new(2.0)})
		if err != nil || u.GetTenant().GetWeight() != 2 || u.GetTenant().GetCell() != "" {
			t.Errorf("%v, %v", u, err)
		}
		show, err := c.Placement().ShowPlacement(c.ctx, &fairleadv1.ShowPlacementRequest{})
		if err != nil || !slices.Equal(show.GetUnplaced(), []string{"elm"}) {
			t.Errorf("%v, %v", show, err)
		}
		west := c.cellWith("west", 100, map[string]string{"zone": "west"})
		c.after(5 * time.Second)
		if west.tenant("elm").GetWeight() != 2000 {
			t.Errorf("west has %v", west.now().tenants)
		}
	})
}
