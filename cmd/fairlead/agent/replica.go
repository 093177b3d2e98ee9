package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/control/consensus"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
	"github.com/fairlead/fairlead/proto/rejection"
)

// The reasons of a replica's refusals, beside those of package rejection.
const (
	reasonNotLeader = "NOT_LEADER"
	reasonQuorum    = "QUORUM"
	reasonForeign   = "OTHER_LOG"
)

// replica serves what control asks of an agent with a log.
type replica struct {
	name   string
	cell   string // empty for control
	log    *replicatedLog
	logger *slog.Logger
}

var _ fairleadv1connect.ReplicaServiceHandler = (*replica)(nil)

// OpenLog implements ReplicaService.
func (r *replica) OpenLog(ctx context.Context, req *fairleadv1.OpenLogRequest) (*fairleadv1.OpenLogResponse, error) {
	if req.GetCell() != r.cell {
		return nil, refused(connect.CodeFailedPrecondition, reasonForeign, fmt.Sprintf("this agent is of the cell %q", r.cell))
	}
	voters := peersOf(req.GetVoters())
	mine := func(p consensus.Peer) bool { return p.ID == r.name }
	if !slices.ContainsFunc(voters, mine) {
		return nil, refused(connect.CodeInvalidArgument, rejection.ReasonBadField, "voters does not name this agent, "+r.name)
	}
	if err := r.log.Form(ctx, voters); err != nil {
		return nil, r.fail(err)
	}
	peers, err := r.log.Peers(ctx)
	if err != nil {
		return nil, r.fail(err)
	}
	if !slices.ContainsFunc(peers, func(p consensus.PeerStatus) bool { return p.ID == r.name }) {
		return nil, refused(connect.CodeFailedPrecondition, reasonForeign, "this agent's log has other members: start it with an empty directory")
	}
	return &fairleadv1.OpenLogResponse{}, nil
}

func peersOf(messages []*fairleadv1.Peer) []consensus.Peer {
	var peers []consensus.Peer
	for _, p := range messages {
		peers = append(peers, consensus.Peer{ID: p.GetName(), Address: p.GetRaftAddress(), Voter: true})
	}
	return peers
}

// GetLog implements ReplicaService.
func (r *replica) GetLog(ctx context.Context, _ *fairleadv1.GetLogRequest) (*fairleadv1.GetLogResponse, error) {
	peers, err := r.log.Peers(ctx)
	if err != nil {
		return nil, r.fail(err)
	}
	stats := r.log.Stats()
	leader, _ := r.log.Leader()
	resp := &fairleadv1.GetLogResponse{
		Open: len(peers) > 0, Name: r.name, Leader: leader, Leads: stats.Leader, Term: stats.Term, LastIndex: stats.LastIndex,
		CommitIndex: stats.CommitIndex, SnapshotIndex: stats.SnapshotIndex, AppliedIndex: stats.AppliedIndex,
	}
	for _, p := range peers {
		m := &fairleadv1.Peer{Name: p.ID, RaftAddress: p.Address, Voter: p.Voter, Leader: p.Leader, LastIndex: p.LastIndex}
		if p.Known {
			m.LastContact = durationpb.New(p.LastContact)
		}
		resp.Peers = append(resp.Peers, m)
	}
	return resp, nil
}

// ChangePeer implements ReplicaService.
func (r *replica) ChangePeer(ctx context.Context, req *fairleadv1.ChangePeerRequest) (*fairleadv1.ChangePeerResponse, error) {
	p := consensus.Peer{ID: req.GetPeer().GetName(), Address: req.GetPeer().GetRaftAddress()}
	var err error
	switch req.GetChange() {
	case fairleadv1.PeerChange_PEER_CHANGE_ADD_NON_VOTER:
		err = r.log.AddPeer(ctx, p)
	case fairleadv1.PeerChange_PEER_CHANGE_ADD_VOTER:
		p.Voter = true
		err = r.log.AddPeer(ctx, p)
	case fairleadv1.PeerChange_PEER_CHANGE_REMOVE:
		err = r.log.RemovePeer(ctx, p.ID, int(req.GetVotersMin()))
	case fairleadv1.PeerChange_PEER_CHANGE_UNSPECIFIED:
		fallthrough
	default:
		return nil, refused(connect.CodeInvalidArgument, rejection.ReasonBadField, fmt.Sprintf("change is %v: add or remove", req.GetChange()))
	}
	if err != nil {
		return nil, r.fail(err)
	}
	return &fairleadv1.ChangePeerResponse{}, nil
}

// Lead implements ReplicaService.
func (r *replica) Lead(ctx context.Context, req *fairleadv1.LeadRequest) (*fairleadv1.LeadResponse, error) {
	if err := r.log.Transfer(ctx, req.GetName()); err != nil {
		return nil, r.fail(err)
	}
	return &fairleadv1.LeadResponse{}, nil
}

// Save implements ReplicaService.
func (r *replica) Save(ctx context.Context, _ *fairleadv1.SaveRequest, stream *connect.ServerStream[fairleadv1.SaveResponse]) error {
	if err := r.log.Save(ctx, saving{stream}); err != nil {
		return r.fail(err)
	}
	return nil
}

// savePieceMax is what one message of a saved state holds: it is far below what a message may have.
const savePieceMax = 256 << 10

// saving sends what is written to it.
type saving struct {
	stream *connect.ServerStream[fairleadv1.SaveResponse]
}

// Write implements io.Writer.
func (w saving) Write(b []byte) (int, error) {
	for piece := range slices.Chunk(b, savePieceMax) {
		if err := w.stream.Send(&fairleadv1.SaveResponse{Data: piece}); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

// fail returns err as the API says it.
func (r *replica) fail(err error) error {
	switch {
	case errors.Is(err, consensus.ErrNotLeader):
		return refused(connect.CodeUnavailable, reasonNotLeader, "this replica does not lead: nothing was done, ask the one that does")
	case errors.Is(err, consensus.ErrQuorum):
		return refused(connect.CodeFailedPrecondition, reasonQuorum, err.Error())
	case errors.Is(err, consensus.ErrNotApplied):
		return refused(connect.CodeUnavailable, rejection.ReasonNotApplied, "nothing was done: "+err.Error())
	case errors.Is(err, context.Canceled):
		return connect.NewError(connect.CodeCanceled, err)
	case errors.Is(err, context.DeadlineExceeded):
		return connect.NewError(connect.CodeDeadlineExceeded, err)
	default:
		r.logger.Warn("a change of the log's members has an unknown outcome", "error", err)
		return refused(connect.CodeUnavailable, rejection.ReasonOutcomeUnknown, "it is not known what came of it: list the members before repeating it")
	}
}

func refused(code connect.Code, reason, message string) error {
	return rejection.New(code, &fairleadv1.Rejection{Reason: reason, Message: message})
}
