package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
	"github.com/fairlead/fairlead/proto/rejection"
)

// An answer that is put together from several cells' has to be read, and written in the caller's own protocol. Connect does both: the request
// is handed to a handler of this process, which asks the cells as a client of theirs.

// mergers returns the handlers of what more than one cell may have to answer, or answer in another way than it was asked at first.
func mergers() map[string]http.Handler {
	options := connect.WithHandlerOptions(HandlerOptions()...)
	pure := connect.WithIdempotency(connect.IdempotencyNoSideEffects)
	return map[string]http.Handler{
		fairleadv1connect.JobServiceSubmitBatchProcedure: connect.NewUnaryHandlerSimple(
			fairleadv1connect.JobServiceSubmitBatchProcedure, mergeBatch, options),
		fairleadv1connect.JobServiceListJobsProcedure: connect.NewUnaryHandlerSimple(
			fairleadv1connect.JobServiceListJobsProcedure, mergeList, options, pure),
		fairleadv1connect.JobServiceWaitJobProcedure: connect.NewUnaryHandlerSimple(
			fairleadv1connect.JobServiceWaitJobProcedure, followWait, options),
		fairleadv1connect.WorkerServiceLeaseProcedure: connect.NewUnaryHandlerSimple(
			fairleadv1connect.WorkerServiceLeaseProcedure, mergeLease, options),
		fairleadv1connect.WorkerServiceReportProcedure: connect.NewUnaryHandlerSimple(
			fairleadv1connect.WorkerServiceReportProcedure, mergeReport, options),
	}
}

// errand is a request that a handler of this process answers with what cells say. One goroutine uses it.
type errand struct {
	trip
	first  *keptAnswer // of the cell that was asked first; nil for none
	by     cell.ID     // which that is
	notice notice      // what it says
}

type errandKey struct{}

// errandOf returns the errand of a handler's context. Only [call.hand] calls the handlers.
func errandOf(ctx context.Context) (*errand, error) {
	e, ok := ctx.Value(errandKey{}).(*errand)
	if !ok {
		return nil, connect.NewError(connect.CodeInternal, errors.New("internal error: a request reached its merger by another way than its own"))
	}
	return e, nil
}

// hand lets a handler answer c.
func (c *call) hand(ctx context.Context, h http.Handler, e *errand, w http.ResponseWriter) error {
	r := c.request.WithContext(context.WithValue(ctx, errandKey{}, e))
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(c.body)), int64(len(c.body))
	h.ServeHTTP(w, r)
	return nil
}

// firstOf returns what the cell that was asked first has answered, as a client reads it.
func firstOf[Q, A any](ctx context.Context, e *errand) (*A, error) {
	contentType := e.c.request.Header.Get("Content-Type")
	var options []connect.ClientOption
	switch {
	case strings.HasPrefix(contentType, "application/grpc-web"):
		options = append(options, connect.WithGRPCWeb())
	case strings.HasPrefix(contentType, "application/grpc"):
		options = append(options, connect.WithGRPC())
	}
	if strings.Contains(contentType, "json") {
		options = append(options, connect.WithProtoJSON())
	}
	return callBy[Q, A](ctx, replay{e.first}, e.c.request.URL.Path, new(Q), options...)
}

// replay is a way to an answer that is there already.
type replay struct{ answer *keptAnswer }

// Do implements [connect.HTTPClient].
func (r replay) Do(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body) // there is nobody to read it, and it cannot fail
		_ = req.Body.Close()
	}
	return r.answer.response(req), nil
}

func callBy[Q, A any](ctx context.Context, way connect.HTTPClient, procedure string, req *Q, options ...connect.ClientOption) (*A, error) {
	resp, err := connect.NewClient[Q, A](way, "https://cell"+procedure, options...).CallUnary(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, err
	}
	return resp.Msg, nil
}

// said is what came of asking a cell beside its answer.
type said struct {
	notice  notice
	refused bool        // the whole call, because of lanes
	header  http.Header // of the answer
}

// askCell asks the cell named to on the caller's behalf. Header goes with it, when there is one. When the cell refuses the whole call because of
// lanes, or has not found what a notice says another may have, the error is its refusal and said has the notice.
func askCell[Q, A any](ctx context.Context, e *errand, to cell.ID, req *Q, header http.Header) (*A, said, error) {
	began := time.Now()
	way := &way{errand: e, to: to, header: header}
	answer, err := callBy[Q, A](ctx, way, e.c.request.URL.Path, req)
	e.served(began)
	if way.answer == nil {
		return nil, said{}, relayed(err)
	}
	s := said{header: way.answer.header}
	n, ok := noticeOf(way.answer.header)
	if ok {
		s.notice = n
	}
	s.refused = ok && err != nil && (ofLane(rejection.From(err)) || n.absent())
	return answer, s, relayed(err)
}

// way is a way to a cell for one call.
type way struct {
	*errand
	to     cell.ID
	header http.Header
	answer *keptAnswer
}

// Do implements [connect.HTTPClient].
func (y *way) Do(req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			return nil, fmt.Errorf("gateway: %w", err)
		}
		_ = req.Body.Close() // it was read
	}
	table := y.f.cfg.Routes()
	u, err := y.f.upstream(table, y.to)
	if err != nil {
		return nil, err
	}
	if err := y.c.move(u); err != nil {
		return nil, err
	}
	tenant := y.c.caller.Tenant
	if err := u.reserve(tenant, int64(cap(body))); err != nil {
		return nil, err
	}
	sub := &call{
		method: y.c.method, caller: y.c.caller, request: req, header: req.Header.Clone(), body: body, began: time.Now(), account: u, holds: true,
	}
	defer sub.drop()
	for name, values := range y.c.header {
		if !ofProtocol(name) {
			sub.header[name] = values
		}
	}
	maps.Copy(sub.header, y.header)
	lane, _ := table.Lane(tenant)
	sub.tell(lane)
	if err := u.once(req.Context(), sub, nil); err != nil {
		return nil, err
	}
	y.answer = sub.answer
	return sub.answer.response(req), nil
}

// ofProtocol reports whether a header belongs to the protocol in which the caller has asked, which is not that in which the cell is asked.
func ofProtocol(name string) bool {
	switch name {
	case "Te", "Accept", "Accept-Encoding", "User-Agent":
		return true
	default:
		return strings.HasPrefix(name, "Content-") || strings.HasPrefix(name, "Connect-") || strings.HasPrefix(name, "Grpc-")
	}
}

// relayed returns a cell's refusal as the caller is told it: without the headers that it came with, but for when to try again.
func relayed(err error) error {
	ce, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return err
	}
	out := connect.NewError(ce.Code(), errors.New(ce.Message()))
	for _, d := range ce.Details() {
		out.AddDetail(d)
	}
	if after := ce.Meta().Get(rejection.HeaderRetryAfter); after != "" {
		out.Meta().Set(rejection.HeaderRetryAfter, after)
	}
	return out
}

// itemOf returns an error of a whole call as the refusal of one of its items.
func itemOf(err error) *fairleadv1.Rejection {
	if r := rejection.From(err); r != nil {
		return r
	}
	return &fairleadv1.Rejection{
		Code: connect.CodeUnavailable.String(), Reason: rejection.ReasonOutcomeUnknown, RetryAfter: durationpb.New(retryAfter),
		Message: fmt.Sprintf("whether it was done is not known, repeat it with the same idempotency key: %v", err),
	}
}
