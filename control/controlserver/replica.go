package controlserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/control/reconcile"
	"github.com/fairlead/fairlead/control/state"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
	"github.com/fairlead/fairlead/proto/rejection"
)

const (
	// caughtUpEntries is how far behind its leader a replica may be and still get its vote.
	caughtUpEntries = 64
	// caughtUpPoll is between looks.
	caughtUpPoll = 100 * time.Millisecond
	// promoteTimeout bounds how long an operator's call waits for a replica to catch up; the replica stays without a vote then, and the call can be
	// repeated.
	promoteTimeout = time.Minute

	reasonCellUnreachable = "CELL_UNREACHABLE"
	reasonNotCaughtUp     = "NOT_CAUGHT_UP"
)

// unreachableError is returned when a cell's leader is not known or does not answer.
type unreachableError struct {
	cell cell.ID
	err  error
}

func (e *unreachableError) Error() string {
	return fmt.Sprintf("cell %s does not answer: %v", e.cell, e.err)
}
func (e *unreachableError) Unwrap() error { return e.err }

// reached returns err as a call to a cell gave it: the cell's own refusal stays what it is.
func reached(id cell.ID, err error) error {
	if err == nil || rejection.From(err) != nil {
		return err
	}
	return &unreachableError{id, err}
}

// errNoLeader is returned when no agent of a cell says to lead.
var errNoLeader = errors.New("none of its agents leads")

// errNotCaughtUp is returned when a replica has not caught up in time: it has no vote yet.
var errNotCaughtUp = errors.New("the replica is added and has no vote yet, because it has not caught up: repeat the call")

// replicaOfLeader returns the client of the agent that leads a cell.
func (s *Server) replicaOfLeader(ctx context.Context, id cell.ID) (fairleadv1connect.ReplicaServiceClient, error) {
	r, err := s.reigning()
	if err != nil {
		return nil, err
	}
	if s.shared != nil {
		return nil, errNoGroup
	}
	view := s.machine.View()
	if _, ok := view.Cell(id); !ok {
		return nil, &state.NotFoundError{Kind: state.KindCell, ID: string(id)}
	}
	leader, ok := r.leaderOf(id)
	a, known := view.Agent(leader.name)
	if !ok || !known {
		return nil, &unreachableError{id, errNoLeader}
	}
	return s.cfg.Dialer.Replica(a), ctx.Err()
}

// act does what the loop decided about a cell. What fails is decided again.
func (s *Server) act(ctx context.Context, l *link, actions []reconcile.Action) {
	for _, action := range actions {
		if ctx.Err() != nil {
			return
		}
		call, cancel := context.WithTimeout(ctx, callTimeout)
		var err error
		switch a := action.(type) {
		case reconcile.OpenLog:
			err = s.openLog(call, a)
		case reconcile.AddPeer:
			err = s.addReplica(call, a)
		case reconcile.Propose, reconcile.Unplaceable: // the loop's own
		}
		cancel()
		if err != nil && ctx.Err() == nil {
			l.log.WarnContext(ctx, "an agent did not do what it was asked", "action", fmt.Sprintf("%T", action), "error", err)
		}
	}
}

func (s *Server) openLog(ctx context.Context, a reconcile.OpenLog) error {
	req := &fairleadv1.OpenLogRequest{Cell: string(a.Cell)}
	for _, v := range a.Voters {
		req.Voters = append(req.Voters, &fairleadv1.Peer{Name: string(v.Name), RaftAddress: v.RaftAddress, Voter: true})
	}
	_, err := s.cfg.Dialer.Replica(a.Agent).OpenLog(ctx, req)
	if err == nil {
		s.cfg.Log.InfoContext(ctx, "an agent opened its log", "cell", string(a.Cell), "agent", string(a.Agent.Name))
	}
	return err
}

func (s *Server) addReplica(ctx context.Context, a reconcile.AddPeer) error {
	leader, err := s.replicaOfLeader(ctx, a.Cell)
	if err != nil {
		return err
	}
	if err := promote(ctx, leader, &fairleadv1.Peer{Name: string(a.Agent.Name), RaftAddress: a.Agent.RaftAddress}); err != nil {
		return err
	}
	record := a.Record
	record.Time = s.instant()
	_, err = s.proposeAs(ctx, actorControl, record)
	return err
}

// promote makes an agent a voter of the log that leader leads: first without a vote, which costs the group nothing while the newcomer is empty.
func promote(ctx context.Context, leader fairleadv1connect.ReplicaServiceClient, peer *fairleadv1.Peer) error {
	if _, err := leader.ChangePeer(ctx, &fairleadv1.ChangePeerRequest{
		Change: fairleadv1.PeerChange_PEER_CHANGE_ADD_NON_VOTER, Peer: peer,
	}); err != nil {
		return err
	}
	for {
		l, err := leader.GetLog(ctx, &fairleadv1.GetLogRequest{})
		if err != nil {
			return err
		}
		at := slices.IndexFunc(l.GetPeers(), func(p *fairleadv1.Peer) bool { return p.GetName() == peer.GetName() })
		if at >= 0 && l.GetPeers()[at].GetLastContact() != nil && l.GetPeers()[at].GetLastIndex()+caughtUpEntries >= l.GetCommitIndex() {
			break
		}
		if pause(ctx, caughtUpPoll) != nil {
			return errNotCaughtUp
		}
	}
	_, err := leader.ChangePeer(ctx, &fairleadv1.ChangePeerRequest{Change: fairleadv1.PeerChange_PEER_CHANGE_ADD_VOTER, Peer: peer})
	return err
}

// recordVoters makes the record of a cell name one voter more, or one fewer.
func (s *Server) recordVoters(ctx context.Context, id cell.ID, change func([]command.Replica) []command.Replica) error {
	var err error
	for range placeAttempts {
		c, ok := s.machine.View().Cell(id)
		if !ok {
			return &state.NotFoundError{Kind: state.KindCell, ID: string(id)}
		}
		voters := change(slices.Clone(c.Voters))
		slices.SortFunc(voters, func(a, b command.Replica) int { return cmp.Compare(a.Name, b.Name) })
		_, err = s.propose(ctx, command.SetCellVoters{Cell: id, Voters: voters, Generation: c.Generation, Time: s.instant()})
		if _, stale := errors.AsType[*state.StaleError](err); !stale {
			return err
		}
	}
	return err
}

// without returns voters but for one.
func without(voters []command.Replica, name command.AgentName) []command.Replica {
	return slices.DeleteFunc(voters, func(v command.Replica) bool { return v.Name == name })
}

// replicaRefusal returns how the API says what a cell's log is refused for.
func replicaRefusal(err error) (*connect.Error, bool) {
	unreachable, ok := errors.AsType[*unreachableError](err)
	switch {
	case ok:
		return rejection.New(connect.CodeUnavailable, &fairleadv1.Rejection{
			Reason:  reasonCellUnreachable,
			Message: fmt.Sprintf("no agent of cell %s that leads answers: see that a majority of them runs, and try again", unreachable.cell),
		}), true
	case errors.Is(err, errNotCaughtUp):
		return rejection.New(connect.CodeUnavailable, &fairleadv1.Rejection{Reason: reasonNotCaughtUp, Message: err.Error()}), true
	default:
		return nil, false
	}
}
