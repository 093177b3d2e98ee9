package controlserver

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/control/consensus"
	"github.com/fairlead/fairlead/control/state"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// Group is the group of replicas that control's log is; *[consensus.Group] is one. It is the whole of what a server asks of it, so that tests put
// something simple in its place.
type Group interface {
	Membership
	// Lead waits until this replica leads and has applied what was in the log then. lost is closed when that ends.
	Lead(ctx context.Context) (term uint64, lost <-chan struct{}, err error)
	// Leader returns who leads, as far as this replica knows; empty when it does not.
	Leader() (id, address string)
	// Verify returns nil when this replica still led after the call began.
	Verify(ctx context.Context) error
	Stats() consensus.Stats
	Save(ctx context.Context, w io.Writer) error
	Restore(ctx context.Context, r io.Reader) (consensus.SavedInfo, error)
}

// Membership is who has a part of control's log.
type Membership interface {
	Peers(ctx context.Context) ([]consensus.PeerStatus, error)
	AddPeer(ctx context.Context, p consensus.Peer) error
	CaughtUp(ctx context.Context, id string) (bool, error)
	RemovePeer(ctx context.Context, id string, votersMin int) error
	Transfer(ctx context.Context, id string) error
}

var _ Group = (*consensus.Group)(nil)

// Certifier signs certificates of agents.
type Certifier interface {
	// Sign returns the certificate for a request in DER, and the authority's, both PEM. It returns a *[cell.FieldError] for a request that it does
	// not take.
	Sign(csr []byte, role command.Role, name command.AgentName, id cell.ID, hosts []string) (cert, authority []byte, err error)
	// Fingerprint returns the SHA-256 of the authority's certificate.
	Fingerprint() [32]byte
}

// Peer is another agent, as its certificate says.
type Peer struct {
	Role command.Role
	Name command.AgentName
	Cell cell.ID // of the role cell
}

// actor returns the agent as the audit says it.
func (p Peer) actor() string { return p.Role.String() + ":" + string(p.Name) }

// freshness knows since when this replica is known to have what is current, so that a thousand watchers ask once.
type freshness struct {
	group Group
	now   func() time.Time

	mu sync.Mutex
	at time.Time // when the leader's own check last succeeded
}

// current returns nil when what this replica has applied is what the group had a moment ago, and otherwise why that is not known.
func (f *freshness) current(ctx context.Context) error {
	if f.group == nil {
		return nil
	}
	stats := f.group.Stats()
	if !stats.Leader {
		if id, _ := f.group.Leader(); id == "" || stats.LastContact > contactMax {
			return errNoContact("this control agent has not heard of a leader for a while")
		}
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now().Sub(f.at) < heartbeatInterval {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, contactMax)
	defer cancel()
	if err := f.group.Verify(ctx); err != nil {
		return errNoContact("this control agent does not know whether it still leads")
	}
	f.at = f.now()
	return nil
}

// leads reports whether this replica believes to lead.
func (f *freshness) leads() bool { return f.group == nil || f.group.Stats().Leader }

// errNotLeading is returned when this replica does not lead: nothing was done.
var errNotLeading = errors.Join(consensus.ErrNotApplied, consensus.ErrNotLeader)

// verify makes what was read before the call linearizable: nobody else can have changed it before this request began.
func (s *Server) verify(ctx context.Context) error {
	if s.cfg.Group == nil {
		return nil
	}
	return s.cfg.Group.Verify(ctx)
}

// agentMessage returns a as the API says it.
func agentMessage(a state.Agent) *fairleadv1.Agent {
	return &fairleadv1.Agent{
		Name: string(a.Name), Role: roleMessage(a.Role), Cell: string(a.Cell), ApiAddress: a.APIAddress, RaftAddress: a.RaftAddress,
		Version: a.Version, FeatureLevelMax: int32(a.FeatureLevelMax),
	}
}

func roleMessage(r command.Role) fairleadv1.AgentRole {
	switch r {
	case command.RoleControl:
		return fairleadv1.AgentRole_AGENT_ROLE_CONTROL
	case command.RoleCell:
		return fairleadv1.AgentRole_AGENT_ROLE_CELL
	case command.RoleGateway:
		return fairleadv1.AgentRole_AGENT_ROLE_GATEWAY
	default:
		return fairleadv1.AgentRole_AGENT_ROLE_UNSPECIFIED
	}
}

// roleOf returns the role that a message names; a role that is none for none.
func roleOf(m fairleadv1.AgentRole) command.Role {
	for _, r := range command.Roles() {
		if roleMessage(r) == m {
			return r
		}
	}
	return 0
}
