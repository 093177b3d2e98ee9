package gateway

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/rejection"
)

func refuseKey(message string) error {
	return rejection.New(connect.CodeUnauthenticated, &fairleadv1.Rejection{
		Reason: rejection.ReasonUnauthenticated, Message: message,
	})
}

// refuseNoKeys is for a gateway that has yet to hear of control, or has not for too long: the key may be as good as any.
func refuseNoKeys() error {
	return unavailable(rejection.ReasonNotApplied, "this gateway does not know the keys, because control has not told it of late: nothing was done, try again")
}

func refuseScope(procedure string, n need, c cell.Caller) error {
	return deny(rejection.ReasonScopeMissing, fmt.Sprintf(
		"%s needs the scope %s, and key %s has only %s: use a key that has it, or have an admin create one",
		short(procedure), n.scopes(), c.Key, scopes(c.Permissions)))
}

func refusePlatformOnly(procedure string, n need, c cell.Caller) error {
	return deny(rejection.ReasonScopeMissing, fmt.Sprintf(
		"%s needs the scope %s of a key of the platform, and key %s is tenant %s's: use a key of the platform",
		short(procedure), n.scopes(), c.Key, c.Tenant))
}

func refuseNoTenant(procedure string, n need, c cell.Caller) error {
	return deny(rejection.ReasonTenantMissing, fmt.Sprintf(
		"%s acts for the tenant of the key, and key %s is of the platform: use a key of the tenant with the scope %s",
		short(procedure), c.Key, n.scopes()))
}

func refuseProcedure(path string) error {
	return deny(rejection.ReasonNotAllowed, fmt.Sprintf(
		"%.200q is not a procedure that any key may call: procedures look like /fairlead.v1.JobService/Submit", path))
}

func refuseInternal(procedure string) error {
	return deny(rejection.ReasonNotAllowed, fmt.Sprintf(
		"%s is for the cluster's own agents, which show a certificate: no key may call it", short(procedure)))
}

// refuseOpen answers a request of an open procedure of which as many run as may. Who asks is not known, so that it is the process's limit.
func refuseOpen(procedure string, bound int) error {
	return rejection.New(connect.CodeUnavailable, &fairleadv1.Rejection{
		Reason: strings.ToUpper(LimitJoins), Limit: LimitJoins, Value: int64(bound) + 1, Bound: int64(bound),
		RetryAfter: durationpb.New(time.Second),
		Message:    fmt.Sprintf("%d requests of %s are in flight, which is all that %s allows: try again", bound, short(procedure), LimitJoins),
	})
}

func refuseContentType(contentType string) error {
	return rejection.New(connect.CodeInvalidArgument, &fairleadv1.Rejection{
		Reason: rejection.ReasonBadField, Field: "Content-Type",
		Message: fmt.Sprintf("the content type %.80q is not one of this API: send JSON as application/json", contentType),
	})
}

func refuseRequestBytes(length, bound int64) error {
	return rejection.New(connect.CodeResourceExhausted, &fairleadv1.Rejection{
		Reason: strings.ToUpper(LimitRequestBytes), Limit: LimitRequestBytes, Scope: string(cell.ScopeTenant),
		Value: length, Bound: bound,
		Message: fmt.Sprintf("the request has at least %d bytes, of at most %d: split the batch, or pass a reference in place of the data",
			length, bound),
	})
}

func refuseRequests(c cell.Caller, bound int) error {
	_, r, _ := rejection.Of(&cell.LimitError{
		Limit: LimitRequestsPerKey, Scope: cell.ScopeTenant, Value: int64(bound) + 1, Bound: int64(bound), RetryAfter: time.Second,
		Remedy: "wait for requests of this key to be answered, or spread the callers over more keys",
	})
	r.Message = fmt.Sprintf("key %s has %d requests in flight, which is all that %s allows: wait for some to be answered, or batch",
		c.Key, bound, LimitRequestsPerKey)
	return rejection.New(connect.CodeResourceExhausted, r)
}

func deny(reason, message string) error {
	return rejection.New(connect.CodePermissionDenied, &fairleadv1.Rejection{Reason: reason, Message: message})
}

// short is a procedure as people say it: JobService/Submit.
func short(procedure string) string {
	return procedure[strings.LastIndexByte(procedure[:strings.LastIndexByte(procedure, '/')], '.')+1:]
}

func scopes(ps []cell.Permission) string {
	if len(ps) == 0 {
		return "none"
	}
	names := make([]string, 0, len(ps))
	for _, p := range ps {
		names = append(names, p.String())
	}
	return strings.Join(names, ", ")
}

// refuse writes err in the protocol of r.
func (g *Gateway) refuse(w http.ResponseWriter, r *http.Request, err error) {
	writeError(g.errors, g.log, w, r, err)
}

// writeError answers r with err, in its own protocol.
func writeError(errors *connect.ErrorWriter, log *slog.Logger, w http.ResponseWriter, r *http.Request, err error) {
	if connect.CodeOf(err) == connect.CodeUnauthenticated {
		w.Header().Set("WWW-Authenticate", "Bearer") // here, since as the error's metadata gRPC would send it as a trailer, which it may not be
	}
	if wErr := errors.Write(w, r, err); wErr != nil {
		log.DebugContext(r.Context(), "the caller was gone before a refusal reached it", "error", wErr)
	}
}
