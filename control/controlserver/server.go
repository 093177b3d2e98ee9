package controlserver

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/control/reconcile"
	"github.com/fairlead/fairlead/control/state"
	"github.com/fairlead/fairlead/migrate"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// Config is how a server behaves. The zero value is usable.
type Config struct {
	// Now is the clock that commands are stamped with and keys expire by. Default [time.Now].
	Now func() time.Time
	// Log receives what the server does. Default [slog.Default].
	Log *slog.Logger
	// Capacity is what the reservations of each class may come to, by Class.Index, as the cells have it; 0 for whatever they do. It is for a process with
	// one cell: elsewhere placement counts.
	Capacity [2]cell.Rate

	// Name is this agent's, and ClusterID the cluster's as every agent's certificate says it.
	Name      command.AgentName
	ClusterID string
	// Caller returns whose key a request came with, for the audit. Default: nobody's, which the audit calls local.
	Caller func(context.Context) (cell.Caller, bool)
	// Peer returns which agent's certificate a request came with. Default: none, so that nothing that is for agents is answered.
	Peer func(context.Context) (Peer, bool)
	// Group is the group of replicas that the log is; nil for a log that has no other replica and always leads.
	Group Group
	// Replicas is how many voters the group is meant to have; fewer are not left when one is removed. Default 1.
	Replicas int
	// Dialer reaches the agents of cells. Required unless the cells that [New] is given are the process's own.
	Dialer Dialer
	// Certifier signs agents' certificates; nil where the key of the authority is not.
	Certifier Certifier
	// GossipKeys returns what whoever joins encrypts its gossip with; nil for nothing.
	GossipKeys func() [][]byte
	// Members returns what gossip hints of every agent; nil for nothing.
	Members func() []*fairleadv1.Member
	// Reconcile is what the leader goes by. Default [reconcile.DefaultConfig].
	Reconcile *reconcile.Config
	// Drive drives the live migrations with what it is given until ctx ends, which it does when this replica stops leading. Default: nobody does, so that
	// migrations are declared and stay so.
	Drive func(ctx context.Context, moves *Moves) error
	// Migrate says how migrations are driven, for plans. Zero fields have their defaults.
	Migrate migrate.Config
	// Seen reads what a cell says of a tenant's lanes, for plans. Default: nothing is read, so that every plan says that the cells do not answer.
	Seen func(*fairleadv1.GetLanesResponse) migrate.CellSeen
	// SharedCell is the name of the process's own cell. Default cell-1.
	SharedCell cell.ID
}

// Server answers for organizations, tenants, keys, cells, placement and the cluster. Its methods may be called concurrently.
type Server struct {
	cfg     Config
	log     Log
	machine *Machine
	shared  Cells // the process's own cell; nil for cells of other processes
	routes  *routes
	fresh   *freshness

	reign atomic.Pointer[reign] // nil while this replica does not lead
	// proposing is held by proposals, and taken by a restore.
	proposing sync.RWMutex
}

var (
	_ fairleadv1connect.OrganizationServiceHandler = (*Server)(nil)
	_ fairleadv1connect.TenantServiceHandler       = (*Server)(nil)
	_ fairleadv1connect.KeyServiceHandler          = (*Server)(nil)
)

// New returns the server over log, whose entries machine is applied. shared is the cell of a process that has control and a cell in one; then call
// [Server.ConfigureCells] once before serving. Without it cfg.Dialer reaches the cells. Keep [Server.Run] running.
func New(cfg Config, log Log, shared Cells, machine *Machine) (*Server, error) {
	switch {
	case log == nil || machine == nil:
		return nil, errors.New("controlserver: log and machine are both required")
	case shared == nil && cfg.Dialer == nil:
		return nil, errors.New("controlserver: either the process's own cell or a dialer of others is required")
	case shared == nil && cfg.ClusterID == "":
		return nil, errors.New("controlserver: the cluster's id is required where there are other agents")
	}
	s := &Server{cfg: cfg.withDefaults(), log: log, machine: machine, shared: shared}
	if err := s.cfg.Reconcile.Validate(); err != nil {
		return nil, err
	}
	s.routes = &routes{machine: machine, now: s.cfg.Now, bounds: defaultRouteBounds()}
	s.fresh = &freshness{group: cfg.Group, now: s.cfg.Now}
	if cfg.Group == nil {
		s.reign.Store(s.newReign(1))
	}
	return s, nil
}

func (c Config) withDefaults() Config {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Reconcile == nil {
		c.Reconcile = new(reconcile.DefaultConfig())
	}
	c.Replicas = max(1, c.Replicas)
	c.SharedCell = cmp.Or(c.SharedCell, sharedCellDefault)
	c.ClusterID = cmp.Or(c.ClusterID, "dev-"+uuid.NewString())
	return c
}

// Lookup returns whose key has the secret with this SHA-256, and false for a key that is unknown, revoked or expired. It reads an immutable
// view: it waits for nobody, and a revocation holds from the moment it is applied.
func (s *Server) Lookup(hash [sha256.Size]byte) (cell.Caller, bool) {
	k, ok := s.machine.latest.Load().keyByHash(hash)
	if !ok || !k.LiveAt(s.instant()) {
		return cell.Caller{}, false
	}
	return k.Caller(), true
}

// actorLocal is who the audit says asked when no key did: the process itself.
const actorLocal = "local"

// actor returns who asks, for the audit.
func (s *Server) actor(ctx context.Context) string {
	if s.cfg.Caller != nil {
		if c, ok := s.cfg.Caller(ctx); ok && c.Key != "" {
			return c.Key
		}
	}
	return actorLocal
}

// propose is proposeAs for whoever asks.
func (s *Server) propose(ctx context.Context, c command.Command) (state.Result, error) {
	return s.proposeAs(ctx, s.actor(ctx), c)
}

// proposeAs checks c, commits it with who asked for it, and returns its result, or what refused it.
func (s *Server) proposeAs(ctx context.Context, actor string, c command.Command) (state.Result, error) {
	return s.proposeQuietly(ctx, command.Audited{Actor: actor, Command: c})
}

// proposeQuietly is for what nobody asked for and nobody would look for in the audit.
func (s *Server) proposeQuietly(ctx context.Context, c command.Command) (state.Result, error) {
	s.proposing.RLock()
	defer s.proposing.RUnlock()
	return s.proposeLocked(ctx, c)
}

// proposeLocked is for whoever has s.proposing.
func (s *Server) proposeLocked(ctx context.Context, c command.Command) (state.Result, error) {
	if err := command.Check(c); err != nil {
		return state.Result{}, err
	}
	answer, err := s.log.Propose(ctx, command.Encode(c))
	if err != nil {
		return state.Result{}, err
	}
	r, ok := answer.(state.Result)
	if !ok {
		return state.Result{}, fmt.Errorf("controlserver: the log answered a %s command with a %T", c.Type(), answer)
	}
	return r, r.Refused
}

// instant returns the present as commands carry it.
func (s *Server) instant() cell.Instant { return cell.InstantOf(s.cfg.Now()) }
