package worker

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/dataplane/client"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// echo answers at once: what any server at all can do.
type echo struct{}

func (echo) Lease(context.Context, *fairleadv1.LeaseRequest) (*fairleadv1.LeaseResponse, error) {
	return &fairleadv1.LeaseResponse{}, nil
}

func (echo) Report(context.Context, *fairleadv1.ReportRequest) (*fairleadv1.ReportResponse, error) {
	return &fairleadv1.ReportResponse{}, nil
}

// serve starts a server for h over HTTP/1.1 and h2c on loopback, and returns its URL.
func serve(tb testing.TB, h fairleadv1connect.WorkerServiceHandler) string {
	tb.Helper()
	mux := http.NewServeMux()
	mux.Handle(fairleadv1connect.NewWorkerServiceHandler(h, connect.WithCompressMinBytes(1<<20)))
	s := httptest.NewUnstartedServer(mux)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	tb.Cleanup(s.Close)
	return s.URL
}

// BenchmarkEcho is the yardstick: 64 callers, a call each.
func BenchmarkEcho(b *testing.B) {
	conn, err := client.Dial(client.Config{Addr: serve(b, echo{})})
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	c := fairleadv1connect.NewWorkerServiceClient(conn.HTTP, conn.URL, conn.Options...)
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	b.ResetTimer()
	for range 64 {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if _, err := c.Report(b.Context(), &fairleadv1.ReportRequest{}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}

// BenchmarkDrainBacklog leases, runs and reports no-op jobs that wait, 64 at once and 64 more held, against a cell in memory.
func BenchmarkDrainBacklog(b *testing.B) {
	c := newFakeCell()
	c.add(b.N, nil)
	reg := NewRegistry()
	var done atomic.Int64
	all := make(chan struct{})
	if err := reg.Add("op", func(context.Context, *Task) (client.Payload, error) {
		if done.Add(1) == int64(b.N) {
			close(all)
		}
		return client.Payload{}, nil
	}); err != nil {
		b.Fatal(err)
	}
	w, err := New(Config{
		Client: client.Config{Addr: serve(b, c)}, Slots: 64, Prefetch: 64, Logger: slog.New(slog.DiscardHandler), DrainTimeout: time.Second,
	}, reg)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	finished := make(chan error, 1)
	b.ResetTimer()
	go func() { finished <- w.Run(ctx) }()
	<-all
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
	b.ReportMetric(float64(b.N)/float64(max(1, w.Stats().ReportCalls)), "jobs/report")
	cancel()
	if err := <-finished; err != nil {
		b.Error(err)
	}
}
