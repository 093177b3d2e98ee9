package gateway

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

const (
	// waitLeaseDefault is how long a Lease waits that does not say.
	waitLeaseDefault = 20 * time.Second
	// waitApart is how long one of a tenant's two homes is asked for jobs while the other may have some.
	waitApart = time.Second
)

// mergeLease answers a Lease of a tenant's own worker when the tenant's lanes have moved, or are apart.
func mergeLease(ctx context.Context, req *fairleadv1.LeaseRequest) (*fairleadv1.LeaseResponse, error) {
	e, err := errandOf(ctx)
	if err != nil {
		return nil, err
	}
	if e.first != nil {
		resp, err := firstOf[fairleadv1.LeaseRequest, fairleadv1.LeaseResponse](ctx, e)
		if err == nil {
			return resp, nil // the next one goes where the lane is
		}
		if !ofLane(itemOf(err)) {
			return nil, relayed(err)
		}
		e.refuse(e.by, e.notice.class)
	}
	req = proto.CloneOf(req)
	until := e.c.came.Add(leaseWait(req))
	for {
		to, err := e.targets(ctx, classesOf(req))
		if err != nil {
			return nil, err
		}
		resp, refused, err := e.poll(ctx, to, req, until)
		if !refused {
			return resp, err
		}
	}
}

// poll asks the cells of the classes for jobs: one after the other when they are two, each of them first as often as the other. It returns
// refused when none of them serves the lane it was asked for.
func (e *errand) poll(ctx context.Context, to [2]cell.ID, req *fairleadv1.LeaseRequest, until time.Time) (*fairleadv1.LeaseResponse, bool, error) {
	cells := distinct(to[:])
	if len(cells) > 1 && e.f.turn.Add(1)%2 == 0 {
		cells[0], cells[1] = cells[1], cells[0]
	}
	var last *fairleadv1.LeaseResponse
	var failed error
	for i, home := range cells {
		wait := max(time.Until(until), 0)
		switch {
		case len(cells) > 1 && i == 0:
			wait = 0
		case len(cells) > 1:
			wait = min(wait, waitApart)
		}
		req.Wait = durationpb.New(wait)
		resp, s, err := askCell[fairleadv1.LeaseRequest, fairleadv1.LeaseResponse](ctx, e, home, req, nil)
		switch {
		case s.refused:
			e.refuseAll(home, to)
			failed = err
			continue
		case err != nil:
			return nil, false, err
		case len(resp.GetLeases()) > 0:
			return resp, false, nil
		}
		last, req.Session = resp, resp.GetSession()
	}
	if last == nil {
		return nil, true, failed
	}
	return last, false, nil
}

// leaseWait returns how long a Lease waits: not at all where it says 0.
func leaseWait(req *fairleadv1.LeaseRequest) time.Duration {
	if req.GetWait() == nil {
		return waitLeaseDefault
	}
	return req.GetWait().AsDuration()
}

// classesOf returns which classes a worker serves.
func classesOf(req *fairleadv1.LeaseRequest) [2]bool {
	var out [2]bool
	for _, c := range cell.Classes() {
		out[c.Index()] = len(req.GetClasses()) == 0
	}
	for _, c := range req.GetClasses() {
		if own := cell.Class(c); own.Valid() { // the numbers are the same
			out[own.Index()] = true
		}
	}
	if out == [2]bool{} {
		out[cell.ClassInteractive.Index()] = true // the cell says what is wrong with them
	}
	return out
}

// distinct returns the cells of the list, each once, in its order.
func distinct(list []cell.ID) []cell.ID {
	var out []cell.ID
	for i, id := range list {
		if id != "" && (i == 0 || id != list[0]) {
			out = append(out, id)
		}
	}
	return out
}
