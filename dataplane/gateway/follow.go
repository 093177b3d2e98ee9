package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/dataplane/route"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// follows reports whether what cells say of lanes concerns c: it is about a tenant's jobs.
func follows(c *call) bool {
	switch c.service {
	case fairleadv1connect.JobServiceName:
		return true
	case fairleadv1connect.WorkerServiceName:
		return c.caller.Tenant != "" || c.request.URL.Path == fairleadv1connect.WorkerServiceReportProcedure
	default:
		return false
	}
}

// follow sends c to u, and then to wherever its lane is, until a cell takes it. An answer that says nothing of lanes passes as it is; most do.
// It returns the refusal when no cell has taken it.
func (f *Forwarder) follow(ctx context.Context, c *call, u *upstream, w http.ResponseWriter) error {
	merge := f.merge[c.request.URL.Path]
	lane, _ := f.cfg.Routes().Lane(c.caller.Tenant)
	if merge != nil && needsBoth(c, lane) {
		return c.hand(ctx, merge, &errand{trip: f.trip(c)}, w)
	}
	var t trip
	for {
		c.tell(lane)
		c.holds = lane.Apart() && looksUp(c)
		began := time.Now()
		if left, err := f.send(ctx, c, u, lane, w); left {
			return c.hand(ctx, merge, &errand{trip: f.trip(c)}, w)
		} else if err != nil || c.answer == nil {
			return err
		}
		n, ok := noticeOf(c.answer.header)
		if !ok && c.holds {
			n, ok = absentIn(ctx, c)
		}
		if !ok {
			c.answer.pass(w)
			return nil
		}
		if merge != nil {
			return c.hand(ctx, merge, &errand{trip: f.trip(c), first: c.answer, by: u.cell, notice: n}, w)
		}
		if t.f == nil {
			t = f.trip(c)
		}
		t.served(began)
		next, err := t.next(ctx, u.cell, n)
		if errors.Is(err, errNowhereElse) {
			c.answer.pass(w)
			return nil
		}
		if err != nil {
			return err
		}
		table := f.cfg.Routes()
		lane, _ = table.Lane(c.caller.Tenant)
		if u, err = f.upstream(table, next); err != nil {
			return err
		}
		if err := c.move(u); err != nil {
			return err
		}
		c.began, c.answer = time.Now(), nil
	}
}

func (f *Forwarder) trip(c *call) trip { return trip{f: f, c: c, tenant: c.caller.Tenant} }

// tell puts what is known of the caller's lanes into the request.
func (c *call) tell(lane route.Lane) {
	if lane.Tenant != "" {
		c.header.Set(HeaderEpochs, epochsOf(lane))
	}
}

// needsBoth reports whether c may be answered by both homes of the tenant however the first answers: a worker of a tenant whose lanes are apart
// has leases in both; a list has jobs of both, and may go on where that of one ended after they have come together.
func needsBoth(c *call, lane route.Lane) bool {
	switch {
	case c.service == fairleadv1connect.WorkerServiceName:
		return lane.Apart()
	case c.request.URL.Path == fairleadv1connect.JobServiceListJobsProcedure:
		return lane.Apart() || mayContinue(c)
	default:
		return false
	}
}

// looksUp reports whether c is about one job, whose lane it does not say.
func looksUp(c *call) bool {
	switch c.request.URL.Path {
	case fairleadv1connect.JobServiceGetJobProcedure, fairleadv1connect.JobServiceCancelJobProcedure, fairleadv1connect.JobServiceRetryJobProcedure,
		fairleadv1connect.JobServiceWaitJobProcedure, fairleadv1connect.JobServiceExplainJobProcedure:
		return true
	default:
		return false
	}
}

// absentIn returns, as a notice, that the cell does not know the job: one of the tenant's homes may never have heard of the other.
func absentIn(ctx context.Context, c *call) (notice, bool) {
	_, err := firstOf[emptypb.Empty, emptypb.Empty](ctx, &errand{trip: trip{c: c}, first: c.answer})
	return absentNotice, connect.CodeOf(err) == connect.CodeNotFound
}

// errLeft ends a poll whose lanes have another home now.
var errLeft = errors.New("gateway: the lane has another home")

// send sends c to u once. It returns left when c is a worker's poll and the tenant's lanes have other homes now than lane says: then nobody has
// answered it.
func (f *Forwarder) send(ctx context.Context, c *call, u *upstream, lane route.Lane, w http.ResponseWriter) (left bool, err error) {
	if c.request.URL.Path != fairleadv1connect.WorkerServiceLeaseProcedure || f.cfg.Changed == nil {
		return false, u.once(ctx, c, w)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if f.leaves(ctx, lane) {
			cancel(errLeft)
		}
	}()
	defer func() {
		cancel(nil)
		<-ended
	}()
	err = u.once(ctx, c, w)
	return err != nil && errors.Is(context.Cause(ctx), errLeft), err
}

// leaves returns true once a lane has another home than lane says, and false when ctx ends first.
func (f *Forwarder) leaves(ctx context.Context, lane route.Lane) bool {
	for {
		changed := f.cfg.Changed()
		if now, ok := f.cfg.Routes().Lane(lane.Tenant); ok && !sameHomes(now, lane) {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// sameHomes reports whether the lanes are in the same cells, whatever their epochs.
func sameHomes(a, b route.Lane) bool {
	for _, class := range cell.Classes() {
		one, _ := a.Home(class)
		if other, _ := b.Home(class); one != other {
			return false
		}
	}
	return true
}

// laneAnswerMax bounds an answer that is held because it speaks of lanes, which may bring a worker as many leases as it takes. Beyond it the
// answer counts as lost.
const laneAnswerMax = 64 << 20

// keptAnswer is a cell's answer that is held until it is known what the caller is told.
type keptAnswer struct {
	status  int
	header  http.Header
	trailer http.Header
	body    []byte
}

// takeAnswer reads all of resp.
func takeAnswer(resp *http.Response) (*keptAnswer, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, laneAnswerMax+1))
	if err != nil {
		return nil, err
	}
	if len(body) > laneAnswerMax {
		return nil, fmt.Errorf("gateway: an answer that speaks of lanes has more than %d bytes", laneAnswerMax)
	}
	return &keptAnswer{status: resp.StatusCode, header: resp.Header, trailer: resp.Trailer, body: body}, nil
}

// response returns a as it came, to req.
func (a *keptAnswer) response(req *http.Request) *http.Response {
	return &http.Response{
		Status: http.StatusText(a.status), StatusCode: a.status, Proto: "HTTP/2.0", ProtoMajor: 2, Header: a.header, Trailer: a.trailer,
		Body: io.NopCloser(bytes.NewReader(a.body)), ContentLength: int64(len(a.body)), Request: req,
	}
}

// pass gives the caller the answer, without what only agents say.
func (a *keptAnswer) pass(w http.ResponseWriter) {
	resp := a.response(nil)
	defer func() { _ = resp.Body.Close() }() // it holds nothing
	pass(w, resp, []byte{})
}
