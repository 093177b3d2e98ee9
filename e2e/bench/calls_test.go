package bench

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane/client"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

const (
	callers   = 64
	batchJobs = 500

	operation = "bench"
	payload   = `{"order":12345,"customer":"c-99"}`
)

// spec is a job as callers submit it, with a key of its own.
func spec() *fairleadv1.JobSpec {
	return &fairleadv1.JobSpec{
		Operation: operation, IdempotencyKey: client.NewIdempotencyKey(),
		Payload: &fairleadv1.Payload{Body: &fairleadv1.Payload_Json{Json: payload}},
	}
}

// job is the same for the SDK, which makes the key.
func job() client.Job {
	return client.Job{Operation: operation, Payload: client.JSON(json.RawMessage(payload))}
}

// both returns what the benchmark and the server have used.
func (s *server) both(tb testing.TB) func() time.Duration {
	tb.Helper()
	return func() time.Duration { return cpuTime() + s.cpu(tb) }
}

func (s *server) service(tb testing.TB, addr string, p client.Protocol) fairleadv1connect.JobServiceClient {
	tb.Helper()
	conn, err := client.Dial(client.Config{Addr: addr, Token: s.TenantKey, Protocol: p})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(conn.Close)
	return fairleadv1connect.NewJobServiceClient(conn.HTTP, conn.URL, conn.Options...)
}

func (s *server) sdk(tb testing.TB, p client.Protocol) *client.Client {
	tb.Helper()
	c, err := client.New(client.Config{Addr: s.API, Token: s.TenantKey, Protocol: p})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Close)
	return c
}

// submit is the load of callers that submit a job each by a call of their own, to the API or to the echo.
func (s *server) submit(tb testing.TB, addr string, p client.Protocol) load {
	tb.Helper()
	c := s.service(tb, addr, p)
	return load{callers: callers, each: 1, cpu: s.both(tb), do: func(int) error {
		_, err := c.Submit(tb.Context(), &fairleadv1.SubmitRequest{Job: spec()})
		return err
	}}
}

// coalesced is the load of the same callers through the SDK.
func (s *server) coalesced(tb testing.TB, p client.Protocol) load {
	tb.Helper()
	c := s.sdk(tb, p)
	return load{callers: callers, each: 1, cpu: s.both(tb), do: func(int) error {
		_, err := c.Submit(tb.Context(), job())
		return err
	}}
}

// batches is the load of callers that submit many jobs by each call.
func (s *server) batches(tb testing.TB, callers int) load {
	tb.Helper()
	c := s.service(tb, s.API, client.ProtocolHTTP2)
	return load{callers: callers, each: batchJobs, cpu: s.both(tb), do: func(int) error {
		req := &fairleadv1.SubmitBatchRequest{Jobs: make([]*fairleadv1.JobSpec, batchJobs)}
		for i := range req.Jobs {
			req.Jobs[i] = spec()
		}
		resp, err := c.SubmitBatch(tb.Context(), req)
		if err != nil {
			return err
		}
		for _, r := range resp.GetResults() {
			if r.GetRejection() != nil {
				return client.FromRejection(r.GetRejection())
			}
		}
		return nil
	}}
}
