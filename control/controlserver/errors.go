package controlserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/consensus"
	"github.com/fairlead/fairlead/control/state"
	"github.com/fairlead/fairlead/migrate"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/rejection"
)

const (
	// retryAfter is what a caller is told to wait when the log did not take a change: an election is over by then.
	retryAfter = time.Second

	reasonLastAdmin  = "LAST_ADMIN"
	reasonCellBehind = "CELL_BEHIND"
	reasonUnplaced   = "UNPLACED"
	reasonStale      = "STALE"
	reasonPhase      = "CELL_PHASE"
	reasonInUse      = "IN_USE"
	reasonQuorum     = "QUORUM"
	reasonNoGroup    = "NO_GROUP"
	reasonOneCell    = "ONE_CELL"
	reasonMoving     = "TENANT_MOVES"
	reasonMigration  = "MIGRATION_STATE"
	reasonNoReturn   = "PAST_NO_RETURN"
	reasonNowhere    = "NO_TARGET"
)

// errOneCell is returned where there is one cell that comes and goes with its process.
var errOneCell = errors.New("a process that has control and a cell in one has that cell only: run a cluster for more")

// errCellBehind is returned when a change is committed and a cell does not know of it yet.
var errCellBehind = errors.New("the cell does not know yet")

// fail returns err as the API says it: the only place that knows codes, with what its parts know of their own errors. Detail that is not the
// caller's stays in the log.
func (s *Server) fail(ctx context.Context, err error) error {
	if errors.Is(err, errCellBehind) { // first: what is behind may be a refusal of the cell's, and the change is saved all the same
		return s.behind(ctx, err)
	}
	if ce, ok := errors.AsType[*connect.Error](err); ok && rejection.From(err) != nil { // a cell's own answer
		return ce
	}
	for _, of := range []func(error) (*connect.Error, bool){
		rejection.Error, stateRefusal, registryRefusal, savedRefusal, replicaRefusal, groupRefusal, moveRefusal,
	} {
		if ce, ok := of(err); ok {
			return ce
		}
	}
	if errors.Is(err, consensus.ErrNotApplied) || errors.Is(err, consensus.ErrNotLeader) {
		s.cfg.Log.WarnContext(ctx, "a change was not applied", "error", err)
		return rejection.New(connect.CodeUnavailable, &fairleadv1.Rejection{
			Reason: rejection.ReasonNotApplied, RetryAfter: durationpb.New(retryAfter),
			Message: "the change was not applied, because control's log does not take entries at the moment: try again",
		})
	}
	s.cfg.Log.ErrorContext(ctx, "the outcome of a change is unknown", "error", err)
	return rejection.New(connect.CodeUnavailable, &fairleadv1.Rejection{
		Reason: rejection.ReasonOutcomeUnknown, Message: "it is not known whether the change was applied: list what there is before repeating it",
	})
}

// stateRefusal returns how the API says what the state refuses.
func stateRefusal(err error) (*connect.Error, bool) {
	exists, isExists := errors.AsType[*state.ExistsError](err)
	missing, isMissing := errors.AsType[*state.NotFoundError](err)
	last, isLast := errors.AsType[*state.LastAdminError](err)
	stale, isStale := errors.AsType[*state.StaleError](err)
	phase, isPhase := errors.AsType[*state.PhaseError](err)
	used, isUsed := errors.AsType[*state.InUseError](err)
	switch {
	case isExists:
		return refusal(connect.CodeAlreadyExists, rejection.ReasonAlreadyExists, "id", exists)
	case isMissing:
		return refusal(connect.CodeNotFound, rejection.ReasonNotFound, string(missing.Kind), missing)
	case isLast:
		return refusal(connect.CodeFailedPrecondition, reasonLastAdmin, "id", last)
	case isStale:
		return refusal(connect.CodeAborted, reasonStale, string(stale.Kind), stale)
	case isPhase:
		return refusal(connect.CodeFailedPrecondition, reasonPhase, "cell", phase)
	case isUsed:
		return refusal(connect.CodeFailedPrecondition, reasonInUse, string(used.Kind), used)
	default:
		return nil, false
	}
}

// groupRefusal returns how the API says what the group of replicas, or the want of cells, refuses.
func groupRefusal(err error) (*connect.Error, bool) {
	unplaced, isUnplaced := errors.AsType[*unplacedError](err)
	plan, isPlan := errors.AsType[*stalePlanError](err)
	switch {
	case isUnplaced:
		return refusal(connect.CodeUnavailable, reasonUnplaced, "", unplaced)
	case isPlan:
		return refusal(connect.CodeAborted, reasonStale, "index", plan)
	case errors.Is(err, errOneCell):
		return refusal(connect.CodeFailedPrecondition, reasonOneCell, "", errOneCell)
	case errors.Is(err, errNoDrain):
		return refusal(connect.CodeFailedPrecondition, reasonOneCell, "", errNoDrain)
	case errors.Is(err, consensus.ErrQuorum):
		return refusal(connect.CodeFailedPrecondition, reasonQuorum, "name",
			errors.New("too few voters would be left: add the replacement first, or force it"))
	case errors.Is(err, consensus.ErrAddressTaken):
		return refusal(connect.CodeAlreadyExists, rejection.ReasonAlreadyExists, "raft_address",
			errors.New("another member of the group has the address: remove that one first"))
	default:
		return nil, false
	}
}

// moveRefusal returns how the API says what is in the way of a migration.
func moveRefusal(err error) (*connect.Error, bool) {
	exists, isExists := errors.AsType[*state.MigrationExistsError](err)
	action, isAction := errors.AsType[*actionError](err)
	event, isEvent := errors.AsType[*migrate.TransitionError](err)
	nowhere, isNowhere := errors.AsType[*nowhereError](err)
	switch {
	case isExists:
		return refusal(connect.CodeFailedPrecondition, reasonMoving, "tenant", exists)
	case isAction && action.action == fairleadv1.MigrationAction_MIGRATION_ACTION_ABORT && pastReturn(&action.record):
		return refusal(connect.CodeFailedPrecondition, reasonNoReturn, "action", action)
	case isAction:
		return refusal(connect.CodeFailedPrecondition, reasonMigration, "action", action)
	case isEvent:
		return refusal(connect.CodeFailedPrecondition, reasonMigration, "action", event)
	case errors.Is(err, migrate.ErrAttempt):
		return refusal(connect.CodeAborted, reasonStale, "attempt", migrate.ErrAttempt)
	case isNowhere:
		return refusal(connect.CodeFailedPrecondition, reasonNowhere, "target", nowhere)
	case errors.Is(err, errNoLanes):
		return refusal(connect.CodeFailedPrecondition, reasonOneCell, "", errNoLanes)
	case errors.Is(err, errNoCopy):
		return refusal(connect.CodeFailedPrecondition, reasonMigration, "", errNoCopy)
	default:
		return nil, false
	}
}

func refusal(code connect.Code, reason, field string, err error) (*connect.Error, bool) {
	return rejection.New(code, &fairleadv1.Rejection{Reason: reason, Field: field, Message: err.Error()}), true
}

// behind says that a change is committed and its cell does not have it.
func (s *Server) behind(ctx context.Context, err error) error {
	s.cfg.Log.WarnContext(ctx, "a change is committed and its cell does not know yet", "error", err)
	message := "the change is saved, and the cell that serves it does not know of it yet: it is told until it does; get it again to see it"
	if unfit, ok := errors.AsType[*cell.FieldError](err); ok {
		message = fmt.Sprintf("the change is saved, and the cell that serves it cannot keep it (%v): it is told until it can; change it, or the cell", unfit)
	}
	return rejection.New(connect.CodeUnavailable, &fairleadv1.Rejection{Reason: reasonCellBehind, Message: message})
}
