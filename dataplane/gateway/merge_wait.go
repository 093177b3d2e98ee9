package gateway

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

const (
	// waitJobDefault is how long a WaitJob waits that does not say.
	waitJobDefault = time.Minute
	// waitLeast stands for no wait, since 0 is not one.
	waitLeast = time.Millisecond
)

// followWait answers a WaitJob whose job is not where it was asked for: each cell is asked for the rest of the time.
func followWait(ctx context.Context, req *fairleadv1.WaitJobRequest) (*fairleadv1.WaitJobResponse, error) {
	e, err := errandOf(ctx)
	if err != nil {
		return nil, err
	}
	answer, err := firstOf[fairleadv1.WaitJobRequest, fairleadv1.WaitJobResponse](ctx, e)
	if err == nil {
		return answer, nil
	}
	err = relayed(err)
	until := e.c.came.Add(waitOf(req.GetTimeout(), waitJobDefault))
	for by, n := e.by, e.notice; ; {
		to, failed := e.next(ctx, by, n)
		if errors.Is(failed, errNowhereElse) {
			return nil, err
		}
		if failed != nil {
			return nil, failed
		}
		rest := proto.CloneOf(req)
		rest.Timeout = durationpb.New(max(time.Until(until), waitLeast))
		var s said
		answer, s, err = askCell[fairleadv1.WaitJobRequest, fairleadv1.WaitJobResponse](ctx, e, to, rest, nil)
		if !s.refused && connect.CodeOf(err) == connect.CodeNotFound && e.lane().Apart() {
			s = said{notice: absentNotice, refused: true}
		}
		if !s.refused {
			return answer, err
		}
		by, n = to, s.notice
	}
}

// waitOf returns how long a request waits.
func waitOf(d *durationpb.Duration, otherwise time.Duration) time.Duration {
	if d.AsDuration() <= 0 {
		return otherwise
	}
	return d.AsDuration()
}
