package controlserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/control/consensus"
	"github.com/fairlead/fairlead/control/state"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
	"github.com/fairlead/fairlead/proto/rejection"
)

const (
	reasonNoAuthority = "NO_AUTHORITY"
	reasonJoinToken   = "JOIN_TOKEN_INVALID"
	reasonAgentAlive  = "AGENT_ALIVE"

	// bootstrapKey is the first admin key's id: there is at most one of it, whoever asks how often.
	bootstrapKey command.KeyID = "key_bootstrap"
	// joinHostsMax bounds the names and addresses that a certificate is valid for.
	joinHostsMax = 20
	// aliveMax is how long after it was heard of an agent is taken to run.
	aliveMax = 30 * time.Second
)

// registry is the server as RegistryService: what other agents ask of control.
type registry struct{ *Server }

// Registry returns what answers RegistryService.
func (s *Server) Registry() fairleadv1connect.RegistryServiceHandler { return registry{s} }

// errPeer is returned for a call that needs an agent's certificate, or another one.
type peerError struct{ problem string }

func (e *peerError) Error() string { return e.problem }

// peer returns which agent asks.
func (s *Server) peer(ctx context.Context) (Peer, error) {
	if s.cfg.Peer != nil {
		if p, ok := s.cfg.Peer(ctx); ok {
			return p, nil
		}
	}
	return Peer{}, &peerError{"the call is for agents of the cluster: use an agent's certificate"}
}

// Register implements RegistryService. An agent registers itself and nobody else; what is not new about it costs no entry of the log.
func (r registry) Register(ctx context.Context, req *fairleadv1.RegisterRequest) (*fairleadv1.RegisterResponse, error) {
	p, err := r.peer(ctx)
	if err != nil {
		return nil, r.fail(ctx, err)
	}
	reign, err := r.reigning()
	if err != nil {
		return nil, r.fail(ctx, err)
	}
	a := agentOf(req)
	if a.Name != p.Name || a.Role != p.Role || a.Cell != p.Cell {
		return nil, r.fail(ctx, &peerError{fmt.Sprintf(
			"the certificate is of %s %.140q and the request of %s %.140q: an agent registers itself only", p.Role, p.Name, a.Role, a.Name)})
	}
	if a.Role == command.RoleCell { // it may be registered before its cell is created
		if err := cell.CheckID("agent.cell", string(a.Cell)); err != nil {
			return nil, r.fail(ctx, err)
		}
	}
	old, known := r.machine.View().Agent(a.Name)
	a.LogOpen = a.LogOpen || known && old.LogOpen
	if !known || old.Agent != a {
		if _, err := r.proposeAs(ctx, p.actor(), command.RegisterAgent{Agent: a, Time: r.instant()}); err != nil {
			return nil, r.fail(ctx, err)
		}
	}
	reign.see(a, req, r.instant())
	now := r.machine.latest.Load()
	return &fairleadv1.RegisterResponse{FeatureLevel: featureLevel(now.view), Control: now.control()}, nil
}

func agentOf(req *fairleadv1.RegisterRequest) command.Agent {
	m := req.GetAgent()
	return command.Agent{
		Name: command.AgentName(m.GetName()), Role: roleOf(m.GetRole()), Cell: cell.ID(m.GetCell()), APIAddress: m.GetApiAddress(),
		RaftAddress: m.GetRaftAddress(), Version: m.GetVersion(), FeatureLevelMax: int(m.GetFeatureLevelMax()), LogOpen: req.GetLogOpen(),
	}
}

// Bootstrap implements RegistryService: the cluster's record and its first admin key, once. A second time changes nothing and says so.
func (r registry) Bootstrap(ctx context.Context, req *fairleadv1.BootstrapRequest) (*fairleadv1.BootstrapResponse, error) {
	p, err := r.peer(ctx)
	if err == nil && p.Role != command.RoleControl {
		err = &peerError{fmt.Sprintf("the certificate is of a %s agent: a cluster is bootstrapped with a control agent's", p.Role)}
	}
	if err != nil {
		return nil, r.fail(ctx, err)
	}
	hash, err := hashOf("admin_key_hash", req.GetAdminKeyHash())
	if err != nil {
		return nil, r.fail(ctx, err)
	}
	actor := p.actor()
	created, err := r.bootstrapCluster(ctx, actor, hash)
	if err == nil && created {
		err = r.addVoters(ctx, req.GetVoters())
	}
	if err == nil {
		err = r.verify(ctx)
	}
	if err != nil {
		return nil, r.fail(ctx, err)
	}
	c, _ := r.machine.View().Cluster()
	return &fairleadv1.BootstrapResponse{ClusterId: c.ID, Created: created}, nil
}

// bootstrapCluster makes what is missing of the record and the key, so that it may be repeated after a crash in between. The key is what decides:
// of two that race one makes it.
func (s *Server) bootstrapCluster(ctx context.Context, actor string, hash [32]byte) (created bool, err error) {
	if err := s.ensureCluster(ctx, actor); err != nil {
		return false, err
	}
	if s.hasAdmin() {
		k, ok := s.machine.View().Key(bootstrapKey)
		return ok && k.Hash == hash && k.LiveAt(s.instant()), nil // asked again by whoever made it, who may not have heard
	}
	_, err = s.proposeAs(ctx, actor, command.CreateKey{
		Key: bootstrapKey, Permissions: []cell.Permission{cell.PermissionOperate, cell.PermissionAdmin}, Hash: hash, Description: "the cluster's first key",
		Time: s.instant(),
	})
	if _, exists := errors.AsType[*state.ExistsError](err); exists {
		return false, nil
	}
	return err == nil, err
}

// ensureCluster makes the cluster's record when there is none.
func (s *Server) ensureCluster(ctx context.Context, actor string) error {
	if _, ok := s.machine.View().Cluster(); ok {
		return nil
	}
	_, err := s.proposeAs(ctx, actor, command.CreateCluster{ID: s.cfg.ClusterID, Time: s.instant()})
	if _, exists := errors.AsType[*state.ExistsError](err); exists {
		return nil
	}
	return err
}

func (s *Server) hasAdmin() bool {
	now := s.instant()
	for k := range s.machine.View().KeysOf("", "") {
		if k.LiveAt(now) && k.Caller().May(cell.PermissionAdmin) {
			return true
		}
	}
	return false
}

// addVoters adds those of the first voters that the log does not have yet.
func (s *Server) addVoters(ctx context.Context, voters []*fairleadv1.Peer) error {
	if s.cfg.Group == nil || len(voters) == 0 {
		return nil
	}
	peers, err := s.cfg.Group.Peers(ctx)
	if err != nil {
		return err
	}
	has := make(map[string]bool)
	for _, p := range peers {
		has[p.ID] = p.Voter
	}
	for _, v := range voters {
		if has[v.GetName()] {
			continue
		}
		if err := s.cfg.Group.AddPeer(ctx, consensus.Peer{ID: v.GetName(), Address: v.GetRaftAddress(), Voter: true}); err != nil {
			return err
		}
	}
	return nil
}

// Join implements RegistryService: a certificate for a token. The certificate is made before the token is spent, so that a request that nobody can
// sign costs no token, and leaves only once it is, so that of two that race one gets it.
func (r registry) Join(ctx context.Context, req *fairleadv1.JoinRequest) (*fairleadv1.JoinResponse, error) {
	a, err := r.join(ctx, req)
	if err != nil {
		return nil, r.fail(ctx, err)
	}
	return a, nil
}

func (s *Server) join(ctx context.Context, req *fairleadv1.JoinRequest) (*fairleadv1.JoinResponse, error) {
	token, err := parseJoinToken(req.GetToken())
	if err != nil {
		return nil, err
	}
	reign, err := s.reigning()
	if err != nil {
		return nil, err
	}
	if s.cfg.Certifier == nil {
		return nil, errNoAuthority
	}
	name := command.AgentName(req.GetName())
	if err := cell.CheckID("name", req.GetName()); err != nil {
		return nil, err
	}
	if n := len(req.GetHosts()); n > joinHostsMax {
		return nil, &cell.FieldError{
			Field: "hosts", Problem: fmt.Sprintf("has %d entries, of at most %d", n, joinHostsMax), Remedy: "give those that others dial",
		}
	}
	t, ok := s.machine.View().JoinToken(token.hash())
	if !ok { // whether it still counts is for the log to say
		return nil, errJoinToken
	}
	if err := s.mayJoin(reign, name, t.Role, t.Cell); err != nil {
		return nil, err
	}
	cert, authority, err := s.cfg.Certifier.Sign(req.GetCsr(), t.Role, name, t.Cell, req.GetHosts())
	if err != nil {
		return nil, err
	}
	if _, err := s.proposeAs(ctx, Peer{Role: t.Role, Name: name}.actor(), command.UseJoinToken{
		Hash: token.hash(), Name: name, Time: s.instant(),
	}); err != nil {
		return nil, tokenRefused(err)
	}
	c, _ := s.machine.View().Cluster()
	m := &fairleadv1.JoinResponse{Certificate: cert, Authority: authority, ClusterId: c.ID}
	if s.cfg.GossipKeys != nil {
		m.GossipKeys = s.cfg.GossipKeys()
	}
	return m, nil
}

// mayJoin refuses the name of an agent that runs, or that is something else: its certificate would let another speak for it.
func (s *Server) mayJoin(r *reign, name command.AgentName, role command.Role, id cell.ID) error {
	a, ok := s.machine.View().Agent(name)
	if !ok {
		return nil
	}
	if a.Role != role || a.Cell != id {
		return &state.ExistsError{Kind: state.KindAgent, ID: string(name)}
	}
	if at, ok := r.lastSeen(name); ok && s.instant().Sub(at) < aliveMax {
		return &agentAliveError{name}
	}
	return nil
}

// agentAliveError is returned when an agent of the name runs.
type agentAliveError struct{ name command.AgentName }

func (e *agentAliveError) Error() string {
	return fmt.Sprintf("the agent %s runs: stop it first when this is to replace it, or choose another name", e.name)
}

var (
	errNoAuthority = errors.New("this control agent does not hold the key of the cluster's certificate authority: use one that does")
	errJoinToken   = errors.New("the token is unknown, used, expired, or for another agent: ask for a new one with fairlead cluster token")
)

// tokenRefused hides from whoever has no certificate yet why a token does not count.
func tokenRefused(err error) error {
	_, used := errors.AsType[*state.TokenError](err)
	_, gone := errors.AsType[*state.NotFoundError](err)
	if used || gone {
		return errJoinToken
	}
	return err
}

// hashOf returns b as the SHA-256 that a field has to be.
func hashOf(field string, b []byte) ([32]byte, error) {
	if len(b) != 32 {
		return [32]byte{}, &cell.FieldError{Field: field, Problem: fmt.Sprintf("has %d bytes", len(b)), Remedy: "give the 32 bytes of a SHA-256"}
	}
	return [32]byte(b), nil
}

// registryRefusal returns how the API says what only agents and joins are refused for.
func registryRefusal(err error) (*connect.Error, bool) {
	_, isPeer := errors.AsType[*peerError](err)
	_, isAlive := errors.AsType[*agentAliveError](err)
	switch {
	case isPeer:
		return refusal(connect.CodePermissionDenied, rejection.ReasonNotAllowed, "", err)
	case isAlive:
		return refusal(connect.CodeFailedPrecondition, reasonAgentAlive, "name", err)
	case errors.Is(err, errNoAuthority):
		return refusal(connect.CodeFailedPrecondition, reasonNoAuthority, "", err)
	case errors.Is(err, errJoinToken):
		return refusal(connect.CodePermissionDenied, reasonJoinToken, "token", err)
	default:
		return nil, false
	}
}
