package client

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// echo accepts everything at once: what any server at all can do.
type echo struct {
	fairleadv1connect.UnimplementedJobServiceHandler
}

func (echo) Submit(context.Context, *fairleadv1.SubmitRequest) (*fairleadv1.SubmitResponse, error) {
	return &fairleadv1.SubmitResponse{JobId: "job-1"}, nil
}

func (echo) SubmitBatch(_ context.Context, req *fairleadv1.SubmitBatchRequest) (*fairleadv1.SubmitBatchResponse, error) {
	answer := &fairleadv1.SubmitBatchResponse{Results: make([]*fairleadv1.SubmitResult, len(req.GetJobs()))}
	for i := range answer.Results {
		answer.Results[i] = &fairleadv1.SubmitResult{JobId: "job-1"}
	}
	return answer, nil
}

// BenchmarkSubmit compares callers of Submit with as many that make a raw call each.
func BenchmarkSubmit(b *testing.B) {
	url := serve(b, echo{}, nil)
	payload := JSON(map[string]string{"invoice": "2026-11-0001"})
	spec, err := (&Job{Operation: "op", Payload: payload, IdempotencyKey: NewIdempotencyKey()}).spec()
	if err != nil {
		b.Fatal(err)
	}
	for _, tt := range []struct {
		name     string
		protocol Protocol
	}{{"h2c", ProtocolHTTP2}, {"http1", ProtocolHTTP1}} {
		name := tt.name
		c, err := New(Config{Addr: url, Protocol: tt.protocol})
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		raw := func(ctx context.Context) error {
			_, err := c.service.Submit(ctx, &fairleadv1.SubmitRequest{Job: spec})
			return err
		}
		sdk := func(ctx context.Context) error {
			_, err := c.Submit(ctx, Job{Operation: "op", Payload: payload})
			return err
		}
		b.Run(name+"/raw/callers=64", func(b *testing.B) { callers(b, 64, raw) })
		b.Run(name+"/sdk/callers=64", func(b *testing.B) { callers(b, 64, sdk) })
		b.Run(name+"/raw/callers=1", func(b *testing.B) { callers(b, 1, raw) })
		b.Run(name+"/sdk/callers=1", func(b *testing.B) { callers(b, 1, sdk) })
	}
}

func callers(b *testing.B, n int, call func(context.Context) error) {
	b.Helper()
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := call(b.Context()); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}
