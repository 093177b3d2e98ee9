package gateway

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/dataplane/route"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/rejection"
)

// The reasons that only a forwarder gives, beside those of package rejection.
const (
	reasonCellOverloaded = "CELL_OVERLOADED" // too much waits for the cell already
	reasonUnplaced       = "UNPLACED"        // the tenant has no cell
)

// retryAfter is when callers are told to come back: an election takes about as long.
const retryAfter = time.Second

func unavailable(reason, message string) error {
	return rejection.New(connect.CodeUnavailable, &fairleadv1.Rejection{Reason: reason, Message: message, RetryAfter: durationpb.New(retryAfter)})
}

func refuseNotApplied(u *upstream) error {
	return unavailable(rejection.ReasonNotApplied, fmt.Sprintf("%s has nobody that takes requests now (%s): nothing was done, try again", u.name(), u.state()))
}

func refuseUnknown(u *upstream, agent string) error {
	return unavailable(rejection.ReasonOutcomeUnknown, fmt.Sprintf(
		"%s of %s took the request and was lost before it answered: whether it was done is not known, repeat it with the same idempotency key",
		agent, u.name()))
}

func refuseDeadline(u *upstream, sent bool) error {
	r := &fairleadv1.Rejection{
		Reason: rejection.ReasonNotApplied, Message: fmt.Sprintf("the deadline passed while %s had nobody that takes requests: nothing was done", u.name()),
	}
	if sent {
		r.Reason = rejection.ReasonOutcomeUnknown
		r.Message = fmt.Sprintf("the deadline passed before %s answered: whether it was done is not known, repeat it with the same idempotency key", u.name())
	}
	return rejection.New(connect.CodeDeadlineExceeded, r)
}

// refuseOverload is the cell's answer and not the tenant's: whoever asks can do nothing but come later.
func refuseOverload(u *upstream, limit string, value, bound int64) error {
	return rejection.New(connect.CodeUnavailable, &fairleadv1.Rejection{
		Reason: reasonCellOverloaded, Limit: limit, Scope: string(cell.ScopeCell), Value: value, Bound: bound,
		RetryAfter: durationpb.New(retryAfter),
		Message: fmt.Sprintf("%s of %s would be %d at this gateway, of at most %d: nothing was done, try again later",
			limit, u.name(), value, bound),
	})
}

func refuseTenant(tenant cell.TenantID, limit string, value, bound int64) error {
	return rejection.New(connect.CodeResourceExhausted, &fairleadv1.Rejection{
		Reason: strings.ToUpper(limit), Limit: limit, Scope: string(cell.ScopeTenant), Value: value, Bound: bound,
		RetryAfter: durationpb.New(retryAfter),
		Message: fmt.Sprintf("%s of tenant %s would be %d at this gateway, of at most %d: wait for requests to be answered, or batch",
			limit, tenant, value, bound),
	})
}

// refuseMoving is for what has waited as long as it may for a tenant's move.
func refuseMoving(tenant cell.TenantID) error {
	message := "it is being moved to other machines, which takes longer than a request waits: nothing was done, try again"
	if tenant != "" {
		message = fmt.Sprintf("tenant %s: %s", tenant, message)
	}
	return unavailable(rejection.ReasonNotApplied, message)
}

// refuseWaiting is for what would wait for a tenant's move beyond a bound. Without a tenant the bound is the gateway's.
func refuseWaiting(tenant cell.TenantID, limit string, value, bound int64) error {
	scope, whose := "", "this gateway"
	if tenant != "" {
		scope, whose = string(cell.ScopeTenant), "tenant "+string(tenant)
	}
	return rejection.New(connect.CodeUnavailable, &fairleadv1.Rejection{
		Reason: rejection.ReasonNotApplied, Limit: limit, Scope: scope, Value: value, Bound: bound, RetryAfter: durationpb.New(retryAfter),
		Message: fmt.Sprintf("%s of %s would be %d, of at most %d, while a tenant is being moved to other machines: nothing was done, try again",
			limit, whose, value, bound),
	})
}

func refuseUnplaced(tenant cell.TenantID) error {
	return unavailable(reasonUnplaced, fmt.Sprintf(
		"tenant %s has no cell: nothing was done; the operator sees why with fairlead placement explain %s", tenant, tenant))
}

func refuseForeignCell(c cell.Caller, named cell.ID) error {
	return deny(rejection.ReasonNotAllowed, fmt.Sprintf(
		"key %s is tenant %s's, which is not at home in cell %.128q: leave the header %s out", c.Key, c.Tenant, named, HeaderCell))
}

func refuseUnknownCell(t *route.Table, named cell.ID) error {
	return rejection.New(connect.CodeNotFound, &fairleadv1.Rejection{
		Reason: rejection.ReasonNotFound, Field: HeaderCell,
		Message: fmt.Sprintf("there is no cell %.128q: name one of %s", named, cellNames(t)),
	})
}

func refuseNoCell(t *route.Table) error {
	if len(t.Cells()) == 0 {
		return unavailable(rejection.ReasonNotApplied, "no cell is known to this gateway: nothing was done; create one, or wait for control to answer")
	}
	return rejection.New(connect.CodeInvalidArgument, &fairleadv1.Rejection{
		Reason: rejection.ReasonBadField, Field: HeaderCell,
		Message: fmt.Sprintf("a key of the platform has to say which cell it means: send the header %s with one of %s", HeaderCell, cellNames(t)),
	})
}

// cellNames lists the first few.
func cellNames(t *route.Table) string {
	const most = 10
	var names []string
	for _, c := range t.Cells() {
		if len(names) == most {
			return strings.Join(names, ", ") + fmt.Sprintf(" and %d more", len(t.Cells())-most)
		}
		names = append(names, string(c.Name))
	}
	return strings.Join(names, ", ")
}

func refuseClosing() error {
	return unavailable(rejection.ReasonNotApplied, "this gateway is stopping: nothing was done, try another")
}

// refuseBody is why a body was not read to its end: the refusal in err, or that it did not come.
func refuseBody(err error) error {
	if ce, ok := errors.AsType[*connect.Error](err); ok {
		return ce
	}
	return rejection.New(connect.CodeInvalidArgument, &fairleadv1.Rejection{
		Reason: rejection.ReasonBadField, Field: "body",
		Message: fmt.Sprintf("the request's body did not come within %v: nothing was done", bodyReadMax),
	})
}
