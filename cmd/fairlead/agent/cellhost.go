package agent

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/cell/cellserver"
	"github.com/fairlead/fairlead/control/consensus"
	"github.com/fairlead/fairlead/dataplane/gateway"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// cellLogDir is where an agent of a cell keeps its replica of the cell's log, below its state directory.
const cellLogDir = "cell"

// leadPause is how long a replica that could not begin to lead leaves it to another.
const leadPause = time.Second

// cellHost is a replica of a cell. The one that leads its log schedules; the others follow, and are ready to.
type cellHost struct {
	node    *node
	server  *cellserver.Server
	log     *replicatedLog
	leading background
	leads   atomic.Uint64 // the term that it leads in; 0 while it does not
}

func startCellHost(ctx context.Context, n *node) (roleHost, error) {
	sc := cellserver.DefaultConfig(n.cfg.Agent.Cell)
	sc.Version, sc.Leader, sc.Logger = n.cfg.Version, n.cfg.Leader, n.logger.With("cell", n.cfg.Agent.Cell)
	sc.Caller, sc.DiskFree = gateway.CallerFrom, diskFree(n.cfg.Agent.Dir)
	sc.NotApplied = func(err error) bool { return errors.Is(err, consensus.ErrNotApplied) }
	server, err := cellserver.New(sc)
	if err != nil {
		return nil, err
	}
	h := &cellHost{node: n, server: server}
	gc := n.logConfig(cellLogDir)
	gc.EntryBytesMax, gc.SegmentBytes = cellEntryBytesMax, cellSegmentBytes
	if h.log, err = n.openLog(ctx, gc, cellMachine{server}); err != nil {
		return nil, err
	}
	h.leading.start(ctx, h.lead)
	return h, nil
}

// lead serves whenever the replica leads, until ctx ends.
func (h *cellHost) lead(ctx context.Context) {
	for ctx.Err() == nil {
		term, lost, err := h.log.Lead(ctx)
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, consensus.ErrClosed) {
				h.node.logger.Warn("waiting to lead the cell", "error", err)
			}
			_ = pause(ctx, leadPause) // ctx is looked at above
			continue
		}
		if err := h.server.Lead(h.log); err != nil {
			h.node.logger.Error("this replica cannot lead the cell; another has to", "error", err)
			h.pass(ctx)
			continue
		}
		h.leads.Store(term)
		h.node.logger.Info("leads the cell", "term", term)
		h.tell()
		select {
		case <-lost:
		case <-ctx.Done():
		}
		h.leads.Store(0)
		h.server.Follow()
		h.node.logger.Info("leads the cell no more", "term", term)
		h.tell()
	}
}

// tell lets control know at once.
func (h *cellHost) tell() {
	if r := h.node.registrar; r != nil {
		r.hurry()
	}
}

// pass hands leadership to a replica whose clock is right.
func (h *cellHost) pass(ctx context.Context) {
	transfer, cancel := context.WithTimeout(ctx, leadPause)
	defer cancel()
	if err := h.log.Transfer(transfer, ""); err != nil {
		h.node.logger.Warn("leadership could not be handed over", "error", err)
	}
	_ = pause(ctx, leadPause) // the caller looks at ctx
}

func (h *cellHost) handler() http.Handler {
	mux := http.NewServeMux()
	options := gateway.HandlerOptions()
	mount := func(path string, handler http.Handler) { mux.Handle(path, handler) }
	mount(fairleadv1connect.NewJobServiceHandler(h.server.Jobs(), options...))
	mount(fairleadv1connect.NewWorkerServiceHandler(h.server.Workers(), options...))
	mount(fairleadv1connect.NewStatusServiceHandler(h.server.Status(), options...))
	mount(fairleadv1connect.NewTenancyServiceHandler(h.server.Tenancy(), options...))
	mount(fairleadv1connect.NewLaneServiceHandler(h.server.Lanes(), options...))
	mount(fairleadv1connect.NewReplicaServiceHandler(
		&replica{name: h.node.cfg.Agent.Name, cell: h.node.cfg.Agent.Cell, log: h.log, logger: h.node.logger}, options...))
	mount(gateway.PathLeader, gateway.LeaderHandler(h.status))
	mount(gateway.PathHealth, gateway.HealthHandler(h.node.healthy))
	inside, err := gateway.Inside(gateway.InsideConfig{Peer: h.node.peer, Leads: h.whoLeads}, mux)
	if err != nil {
		panic("agent: " + err.Error()) // Peer is set
	}
	return inside
}

// whoLeads returns whether this replica serves, and who leads the log as far as it knows.
func (h *cellHost) whoLeads() (leads bool, leader string) {
	leader, _ = h.log.Leader()
	leads = h.leads.Load() != 0
	if !leads && leader == h.node.cfg.Agent.Name {
		leader = "" // it does not serve yet, or not any more: whoever is sent here would come back
	}
	return leads, leader
}

func (h *cellHost) status() gateway.LeaderStatus {
	leads, leader := h.whoLeads()
	return gateway.LeaderStatus{
		Name: h.node.cfg.Agent.Name, Open: h.ready(), Leader: leads, LeaderName: leader, Term: h.log.Stats().Term, LoadPercent: h.load(),
	}
}

func (h *cellHost) standing(req *fairleadv1.RegisterRequest) {
	req.LogOpen = h.log.Open(context.Background())
	term := h.leads.Load()
	req.Leader, req.Term = term != 0, max(term, h.log.Stats().Term)
}

// ready reports whether the cell has a leader that this replica knows.
func (h *cellHost) ready() bool {
	leader, _ := h.log.Leader()
	return leader != ""
}

func (h *cellHost) load() int {
	if h.leads.Load() == 0 {
		return 0
	}
	return h.server.LoadPercent()
}

// stop lets another lead, and answers the long polls that would hold the port up.
func (h *cellHost) stop() {
	h.log.HandOver(h.node.logger)
	h.leading.end()
	h.server.Close()
}

func (h *cellHost) close() error { return h.log.Close() }
