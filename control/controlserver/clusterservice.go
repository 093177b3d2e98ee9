package controlserver

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/control/consensus"
	"github.com/fairlead/fairlead/control/state"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

const (
	// latelyMax is how long an agent that is not heard of still counts for what all agents understand: a machine that restarts comes back with the
	// release that it had.
	latelyMax = 10 * time.Minute
	// transferPoll and transferMax bound the wait for whoever takes over.
	transferPoll = 50 * time.Millisecond
	transferMax  = 5 * time.Second
)

// clusterService is the server as ClusterService: the agents that a cluster is made of.
type clusterService struct{ *Server }

// Cluster returns what answers ClusterService.
func (s *Server) Cluster() fairleadv1connect.ClusterServiceHandler { return clusterService{s} }

// GetCluster implements ClusterService.
func (c clusterService) GetCluster(ctx context.Context, _ *fairleadv1.GetClusterRequest) (*fairleadv1.GetClusterResponse, error) {
	r, err := c.reigning()
	if err != nil {
		return nil, c.fail(ctx, err)
	}
	view := c.machine.View()
	cluster, _ := view.Cluster()
	m := &fairleadv1.GetClusterResponse{
		ClusterId: cluster.ID, CreateTime: timeMessage(cluster.Created), FeatureLevel: featureLevel(view), Restores: cluster.Restores,
		Leader: string(c.cfg.Name),
	}
	level, _ := c.levelOfAll(r)
	m.FeatureLevelMax = int32(level)
	for a := range view.Agents("") {
		agent := agentMessage(a)
		if at, ok := r.lastSeen(a.Name); ok {
			agent.LastSeen = timeMessage(at)
		}
		m.Agents = append(m.Agents, agent)
	}
	for home := range view.Cells("") {
		m.Cells++
		m.Tenants += int64(home.Tenants)
	}
	for range view.Unplaced("") {
		m.Tenants++
	}
	if err := c.verify(ctx); err != nil {
		return nil, c.fail(ctx, err)
	}
	return m, nil
}

// levelOfAll returns the highest feature level that every agent understands that counts, and the one that understands least.
func (s *Server) levelOfAll(r *reign) (level int, least command.AgentName) {
	level, least = command.FeatureLevelMax(), s.cfg.Name
	now := s.instant()
	for a := range s.machine.View().Agents("") {
		at, ok := r.lastSeen(a.Name)
		if !ok {
			at = r.began // nobody is missed before
		}
		if now.Sub(at) <= latelyMax && a.FeatureLevelMax < level {
			level, least = a.FeatureLevelMax, a.Name
		}
	}
	return level, least
}

// SetFeatureLevel implements ClusterService.
func (c clusterService) SetFeatureLevel(
	ctx context.Context, req *fairleadv1.SetFeatureLevelRequest,
) (*fairleadv1.SetFeatureLevelResponse, error) {
	r, err := c.reigning()
	if err != nil {
		return nil, c.fail(ctx, err)
	}
	if level, least := c.levelOfAll(r); int(req.GetLevel()) > level {
		return nil, c.fail(ctx, &cell.FieldError{
			Field: "level", Problem: fmt.Sprintf("is %d, and agent %s understands %d at most", req.GetLevel(), least, level),
			Remedy: "upgrade every agent first, or stop it and wait until it does not count any more",
		})
	}
	res, err := c.propose(ctx, command.SetFeatureLevel{Level: int(req.GetLevel()), Time: c.instant()})
	if err != nil {
		return nil, c.fail(ctx, err)
	}
	return &fairleadv1.SetFeatureLevelResponse{Level: int32(res.Cluster.FeatureLevel)}, nil
}

// CreateJoinToken implements ClusterService. The token is in this answer and nowhere else.
func (c clusterService) CreateJoinToken(
	ctx context.Context, req *fairleadv1.CreateJoinTokenRequest,
) (*fairleadv1.CreateJoinTokenResponse, error) {
	m, err := c.createJoinToken(ctx, req)
	if err != nil {
		return nil, c.fail(ctx, err)
	}
	return m, nil
}

func (s *Server) createJoinToken(ctx context.Context, req *fairleadv1.CreateJoinTokenRequest) (*fairleadv1.CreateJoinTokenResponse, error) {
	life := joinTokenLifetime
	if req.GetLifetime() != nil {
		life = req.GetLifetime().AsDuration()
	}
	if life < joinTokenLifetimeMin || life > joinTokenLifetimeMax || req.GetLifetime().CheckValid() != nil && req.GetLifetime() != nil {
		return nil, &cell.FieldError{
			Field: "lifetime", Problem: fmt.Sprintf("is %v, outside %v to %v", life, joinTokenLifetimeMin, joinTokenLifetimeMax),
			Remedy: "leave it out for an hour",
		}
	}
	if s.cfg.Certifier == nil {
		return nil, errNoAuthority
	}
	id := cell.ID(req.GetCell())
	if _, ok := s.machine.View().Cell(id); id != "" && !ok {
		return nil, &state.NotFoundError{Kind: state.KindCell, ID: string(id)}
	}
	token := newJoinToken(s.cfg.Certifier.Fingerprint())
	now := s.instant()
	r, err := s.propose(ctx, command.CreateJoinToken{
		Hash: token.hash(), Role: roleOf(req.GetRole()), Cell: id, Name: command.AgentName(req.GetName()), Expires: now.Add(life), Time: now,
	})
	if err != nil {
		return nil, err
	}
	return &fairleadv1.CreateJoinTokenResponse{Token: token.reveal(), ExpireTime: timeMessage(r.JoinToken.Expires)}, nil
}

// ListMembers implements ClusterService. Every control agent answers it: it is a view, and whose is said.
func (c clusterService) ListMembers(context.Context, *fairleadv1.ListMembersRequest) (*fairleadv1.ListMembersResponse, error) {
	m := &fairleadv1.ListMembersResponse{SeenBy: string(c.cfg.Name)}
	if c.cfg.Members != nil {
		m.Members = c.cfg.Members()
	}
	return m, nil
}

// ListPeers implements ClusterService.
func (c clusterService) ListPeers(ctx context.Context, req *fairleadv1.ListPeersRequest) (*fairleadv1.ListPeersResponse, error) {
	m, err := c.listPeers(ctx, cell.ID(req.GetCell()))
	if err != nil {
		return nil, c.fail(ctx, err)
	}
	return m, nil
}

func (s *Server) listPeers(ctx context.Context, id cell.ID) (*fairleadv1.ListPeersResponse, error) {
	if id != "" {
		leader, err := s.replicaOfLeader(ctx, id)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		l, err := leader.GetLog(ctx, &fairleadv1.GetLogRequest{})
		if err != nil {
			return nil, reached(id, err)
		}
		home, _ := s.machine.View().Cell(id)
		return &fairleadv1.ListPeersResponse{
			Peers: l.GetPeers(), Term: l.GetTerm(), LastIndex: l.GetLastIndex(), CommitIndex: l.GetCommitIndex(), SnapshotIndex: l.GetSnapshotIndex(),
			VotersWanted: int32(home.Replicas),
		}, nil
	}
	if s.cfg.Group == nil {
		return nil, errNoGroup
	}
	peers, err := s.cfg.Group.Peers(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.verify(ctx); err != nil {
		return nil, err
	}
	stats := s.cfg.Group.Stats()
	m := &fairleadv1.ListPeersResponse{
		Term: stats.Term, LastIndex: stats.LastIndex, CommitIndex: stats.CommitIndex, SnapshotIndex: stats.SnapshotIndex, VotersWanted: int32(s.cfg.Replicas),
	}
	for _, p := range peers {
		m.Peers = append(m.Peers, peerMessage(p))
	}
	return m, nil
}

func peerMessage(p consensus.PeerStatus) *fairleadv1.Peer {
	m := &fairleadv1.Peer{Name: p.ID, RaftAddress: p.Address, Voter: p.Voter, Leader: p.Leader}
	if p.Known {
		m.LastContact, m.LastIndex = durationpb.New(p.LastContact), p.LastIndex
	}
	return m
}

// AddPeer implements ClusterService. It waits until the newcomer has caught up, and then gives it its vote.
func (c clusterService) AddPeer(ctx context.Context, req *fairleadv1.AddPeerRequest) (*fairleadv1.AddPeerResponse, error) {
	p, err := c.addPeer(ctx, req)
	if err != nil {
		return nil, c.fail(ctx, err)
	}
	return &fairleadv1.AddPeerResponse{Peer: p}, nil
}

func (s *Server) addPeer(ctx context.Context, req *fairleadv1.AddPeerRequest) (*fairleadv1.Peer, error) {
	if _, err := s.reigning(); err != nil {
		return nil, err
	}
	id := cell.ID(req.GetCell())
	a, err := s.agentFor(id, req.GetName())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, promoteTimeout)
	defer cancel()
	peer := &fairleadv1.Peer{Name: string(a.Name), RaftAddress: a.RaftAddress}
	switch {
	case id == "" && s.cfg.Group == nil:
		return nil, errNoGroup
	case id == "":
		err = s.addControl(ctx, consensus.Peer{ID: peer.GetName(), Address: peer.GetRaftAddress(), Voter: !req.GetNonVoter()})
	default:
		err = s.addToCell(ctx, id, peer, req.GetNonVoter())
	}
	peer.Voter = !req.GetNonVoter()
	return peer, err
}

// agentFor returns the agent of that name, which may have a part of the log that is meant.
func (s *Server) agentFor(id cell.ID, name string) (state.Agent, error) {
	a, ok := s.machine.View().Agent(command.AgentName(name))
	if !ok {
		return a, &state.NotFoundError{Kind: state.KindAgent, ID: name}
	}
	wanted := command.RoleControl
	if id != "" {
		wanted = command.RoleCell
	}
	if a.Role != wanted || a.Cell != id || a.RaftAddress == "" {
		return a, &cell.FieldError{
			Field: "name", Problem: fmt.Sprintf("is that of a %v agent of the cell %q with the raft address %q", a.Role, a.Cell, a.RaftAddress),
			Remedy: "name an agent that has the log's role and cell",
		}
	}
	return a, nil
}

func (s *Server) addControl(ctx context.Context, p consensus.Peer) error {
	group := s.cfg.Group
	if err := group.AddPeer(ctx, consensus.Peer{ID: p.ID, Address: p.Address}); err != nil {
		return err
	}
	if !p.Voter {
		return nil
	}
	for {
		ok, err := group.CaughtUp(ctx, p.ID)
		if err != nil {
			return err
		}
		if ok {
			return group.AddPeer(ctx, p)
		}
		if pause(ctx, caughtUpPoll) != nil {
			return errNotCaughtUp
		}
	}
}

func (s *Server) addToCell(ctx context.Context, id cell.ID, peer *fairleadv1.Peer, nonVoter bool) error {
	leader, err := s.replicaOfLeader(ctx, id)
	if err != nil {
		return err
	}
	if nonVoter {
		_, err := leader.ChangePeer(ctx, &fairleadv1.ChangePeerRequest{Change: fairleadv1.PeerChange_PEER_CHANGE_ADD_NON_VOTER, Peer: peer})
		return reached(id, err)
	}
	if err := promote(ctx, leader, peer); err != nil {
		return reached(id, err)
	}
	return s.recordVoters(ctx, id, func(voters []command.Replica) []command.Replica {
		return append(without(voters, command.AgentName(peer.GetName())), command.Replica{
			Name: command.AgentName(peer.GetName()), RaftAddress: peer.GetRaftAddress(),
		})
	})
}

// RemovePeer implements ClusterService.
func (c clusterService) RemovePeer(ctx context.Context, req *fairleadv1.RemovePeerRequest) (*fairleadv1.RemovePeerResponse, error) {
	if err := c.removePeer(ctx, req); err != nil {
		return nil, c.fail(ctx, err)
	}
	return &fairleadv1.RemovePeerResponse{}, nil
}

func (s *Server) removePeer(ctx context.Context, req *fairleadv1.RemovePeerRequest) error {
	if _, err := s.reigning(); err != nil {
		return err
	}
	if err := cell.CheckID("name", req.GetName()); err != nil {
		return err
	}
	least := func(wanted int) int {
		if req.GetForce() {
			return 0
		}
		return wanted
	}
	id := cell.ID(req.GetCell())
	if id == "" {
		if s.cfg.Group == nil {
			return errNoGroup
		}
		return s.cfg.Group.RemovePeer(ctx, req.GetName(), least(s.cfg.Replicas))
	}
	leader, err := s.replicaOfLeader(ctx, id)
	if err != nil {
		return err
	}
	home, _ := s.machine.View().Cell(id)
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := leader.ChangePeer(ctx, &fairleadv1.ChangePeerRequest{
		Change: fairleadv1.PeerChange_PEER_CHANGE_REMOVE, Peer: &fairleadv1.Peer{Name: req.GetName()}, VotersMin: int32(least(home.Replicas)),
	}); err != nil {
		return reached(id, err)
	}
	return s.recordVoters(ctx, id, func(voters []command.Replica) []command.Replica {
		return without(voters, command.AgentName(req.GetName()))
	})
}

// TransferLeadership implements ClusterService.
func (c clusterService) TransferLeadership(
	ctx context.Context, req *fairleadv1.TransferLeadershipRequest,
) (*fairleadv1.TransferLeadershipResponse, error) {
	leader, err := c.transfer(ctx, cell.ID(req.GetCell()), req.GetName())
	if err != nil {
		return nil, c.fail(ctx, err)
	}
	return &fairleadv1.TransferLeadershipResponse{Leader: leader}, nil
}

// transfer returns who leads then, empty when nobody says so in time.
func (s *Server) transfer(ctx context.Context, id cell.ID, name string) (string, error) {
	if _, err := s.reigning(); err != nil {
		return "", err
	}
	if id != "" {
		return s.transferCell(ctx, id, name)
	}
	if s.cfg.Group == nil {
		return "", errNoGroup
	}
	if err := s.cfg.Group.Transfer(ctx, name); err != nil {
		return "", err
	}
	wait, cancel := context.WithTimeout(ctx, transferMax) // it is handed over, whoever says so
	defer cancel()
	for wait.Err() == nil {
		if leader, _ := s.cfg.Group.Leader(); leader != "" && leader != string(s.cfg.Name) {
			return leader, nil
		}
		_ = pause(wait, transferPoll) // the loop looks
	}
	return name, nil
}

func (s *Server) transferCell(ctx context.Context, id cell.ID, name string) (string, error) {
	leader, err := s.replicaOfLeader(ctx, id)
	if err != nil {
		return "", err
	}
	home, _ := s.machine.View().Cell(id)
	if name != "" && !slices.ContainsFunc(home.Voters, func(v command.Replica) bool { return string(v.Name) == name }) {
		return "", &cell.FieldError{
			Field: "name", Problem: fmt.Sprintf("is %.140q, which is no voter of cell %s", name, id), Remedy: "see fairlead cluster peers",
		}
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := leader.Lead(ctx, &fairleadv1.LeadRequest{Name: name}); err != nil {
		return "", reached(id, err)
	}
	return name, nil
}
