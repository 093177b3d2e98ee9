package cellserver

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell/engine"
	"github.com/fairlead/fairlead/cell/leader"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/rejection"
)

// The reasons that only a cell gives, beside those of package rejection.
const (
	reasonKeyTaken     = "KEY_TAKEN"
	reasonLeaseStale   = "LEASE_STALE"
	reasonWrongState   = "WRONG_STATE"
	reasonPollReplaced = "POLL_REPLACED"
	reasonCallerGone   = "CALLER_GONE"
	reasonDraining     = "CELL_DRAINING"
	reasonMoving       = "MOVING"
	reasonMoved        = "MOVED"
	reasonBehind       = "BEHIND"
	reasonMoveStale    = "MOVE_STALE"
	reasonWrongMode    = "WRONG_MODE"
	reasonLaneFilled   = "LANE_FILLED"
	reasonCursorLost   = "CURSOR_LOST"
	reasonNotTracked   = "NOT_TRACKED"
	reasonPolicyStale  = "POLICY_STALE"
	reasonBadRecords   = "BAD_RECORDS"
)

// laneReason returns the reason of what was refused to a mover, "" when it is something else. None of them helps to be repeated as it was.
func laneReason(err error) string {
	if wrong := (*engine.ModeError)(nil); errors.As(err, &wrong) {
		return reasonWrongMode
	}
	for _, is := range []struct {
		err    error
		reason string
	}{
		{engine.ErrMoveStale, reasonMoveStale},
		{engine.ErrLaneFilled, reasonLaneFilled},
		{engine.ErrCursorLost, reasonCursorLost},
		{engine.ErrNotTracked, reasonNotTracked},
		{engine.ErrPolicyStale, reasonPolicyStale},
		{engine.ErrOrganizationUnknown, rejection.ReasonNotFound},
		{engine.ErrFormat, reasonBadRecords},
	} {
		if errors.Is(err, is.err) {
			return is.reason
		}
	}
	return ""
}

// errDraining is returned to submissions while the cell is to empty.
var errDraining = errors.New("it takes no new jobs, because it is being drained: nothing was done, try again later")

// retryAfterRestart is what callers are told to wait when the cell is starting, stopping or has lost an entry.
const retryAfterRestart = 1 // seconds

// refuse returns err as the API says it: the only place that knows codes.
func (s *Server) refuse(err error) (connect.Code, *fairleadv1.Rejection) {
	if code, r, ok := rejection.Of(err); ok {
		return code, r
	}
	text := err.Error()
	r := func(reason string) *fairleadv1.Rejection { return &fairleadv1.Rejection{Reason: reason, Message: text} }
	again := func(reason string) *fairleadv1.Rejection {
		r := r(reason)
		r.RetryAfter = &durationpb.Duration{Seconds: retryAfterRestart}
		return r
	}
	var taken *engine.KeyTakenError
	var wrong *engine.StateError
	var lane *engine.LaneError
	switch {
	case errors.As(err, &lane):
		text = lane.Err.Error() // where a lane is, and at which epoch, is nothing for callers
		switch whereaboutsOf(lane) {
		case laneMoving:
			return connect.CodeUnavailable, again(reasonMoving)
		case laneBehind:
			return connect.CodeUnavailable, again(reasonBehind)
		case laneMoved, laneHere:
		}
		return connect.CodeFailedPrecondition, r(reasonMoved)
	case errors.As(err, &taken):
		x := r(reasonKeyTaken)
		x.Field, x.ExistingJobId = "idempotency_key", taken.JobID.String()
		return connect.CodeAlreadyExists, x
	case errors.As(err, &wrong):
		return connect.CodeFailedPrecondition, r(reasonWrongState)
	case laneReason(err) != "":
		return connect.CodeFailedPrecondition, r(laneReason(err))
	case errors.Is(err, engine.ErrJobUnknown), errors.Is(err, engine.ErrTenantUnknown):
		return connect.CodeNotFound, r(rejection.ReasonNotFound)
	case errors.Is(err, engine.ErrLeaseStale):
		return connect.CodeAborted, r(reasonLeaseStale)
	case errors.Is(err, errNoCaller):
		return connect.CodeUnauthenticated, r(rejection.ReasonUnauthenticated)
	case errors.Is(err, leader.ErrPollReplaced):
		return connect.CodeAborted, r(reasonPollReplaced)
	case errors.Is(err, context.Canceled):
		return connect.CodeCanceled, r(reasonCallerGone)
	case errors.Is(err, context.DeadlineExceeded):
		return connect.CodeDeadlineExceeded, r(rejection.ReasonOutcomeUnknown)
	case errors.Is(err, errDraining):
		x := again(reasonDraining)
		x.Message = fmt.Sprintf("cell %s: %v", s.cfg.Cell, err)
		return connect.CodeUnavailable, x
	case errors.Is(err, ErrStopping), errors.Is(err, ErrNotLeading), s.cfg.NotApplied(err):
		return connect.CodeUnavailable, again(rejection.ReasonNotApplied)
	default:
		// Whatever came of the entry: nothing was acknowledged, and with a key it is safe to repeat.
		s.cfg.Logger.Error("a call's outcome is unknown", "error", err)
		x := again(rejection.ReasonOutcomeUnknown)
		x.Message = "the cell does not know whether this was applied: repeat it with the same idempotency key"
		return connect.CodeUnavailable, x
	}
}

// fail returns err as the error of the whole call that ctx is of.
func (s *Server) fail(ctx context.Context, err error) error {
	code, r := s.refuse(err)
	answer := rejection.New(code, r)
	if errors.Is(err, ErrNotLeading) {
		answer.Meta().Set(headerNotLeader, "1")
	}
	var n notice
	n.heed(err)
	if _, ok := connect.CallInfoForHandlerContext(ctx); ok {
		n.tell(ctx) // and not as the error's, which over gRPC is a trailer
	} else {
		n.set(answer.Meta())
	}
	return answer
}

// headerNotLeader tells a gateway, in an answer's headers, that nothing was done because another replica leads or is about to: it asks that one.
const headerNotLeader = "Fairlead-Not-Leader"

// item returns err as the rejection of one item of a batch, and nil for no error.
func (s *Server) item(err error) *fairleadv1.Rejection {
	if err == nil {
		return nil
	}
	code, r := s.refuse(err)
	r.Code = code.String()
	return r
}
