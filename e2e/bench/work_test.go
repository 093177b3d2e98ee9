package bench

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane/client"
	"github.com/fairlead/fairlead/dataplane/worker"
)

const (
	slots    = 64
	prefetch = 64
)

func (s *server) worker(tb testing.TB, prefetch int, handle worker.HandlerFunc) *worker.Worker {
	tb.Helper()
	reg := worker.NewRegistry()
	if err := reg.Add(operation, handle); err != nil {
		tb.Fatal(err)
	}
	w, err := worker.New(worker.Config{
		Client: client.Config{Addr: s.API, Token: s.WorkerKey}, Slots: slots, Prefetch: prefetch,
		Logger: slog.New(slog.DiscardHandler),
	}, reg)
	if err != nil {
		tb.Fatal(err)
	}
	return w
}

// backlog submits jobs and then measures how long one worker takes over them, from its start until all is reported.
func (s *server) backlog(tb testing.TB, jobs int) tally {
	tb.Helper()
	c := s.sdk(tb, client.ProtocolHTTP2)
	waiting := make([]client.Job, jobs)
	for i := range waiting {
		waiting[i] = job()
	}
	results, err := c.SubmitBatch(tb.Context(), waiting)
	if err != nil {
		tb.Fatal(err)
	}
	for _, r := range results {
		if r.Err != nil {
			tb.Fatal(r.Err)
		}
	}
	ctx, cancel := context.WithCancel(tb.Context())
	defer cancel()
	var done atomic.Int64
	w := s.worker(tb, prefetch, func(context.Context, *worker.Task) (client.Payload, error) {
		if done.Add(1) == int64(jobs) {
			cancel()
		}
		return client.Payload{}, nil
	})
	cpu := s.both(tb)
	before, began := cpu(), time.Now()
	if err := w.Run(ctx); err != nil {
		tb.Fatal(err)
	}
	took := time.Since(began)
	if st := w.Stats(); st.Succeeded != int64(jobs) {
		tb.Fatalf("%d of %d jobs were reported as done", st.Succeeded, jobs)
	}
	return tally{operations: float64(jobs), took: took, cpu: cpu() - before}
}

// startsPerSecond is the pace of the measurement of latency.
const startsPerSecond = 200

// starts returns how long each of n submissions took from the call to the start of its handler, sorted.
func (s *server) starts(tb testing.TB, n int) []time.Duration {
	tb.Helper()
	c := s.sdk(tb, client.ProtocolHTTP2)
	called := make([]time.Time, n)
	took := make([]time.Duration, n)
	ctx, cancel := context.WithCancel(tb.Context())
	defer cancel()
	var left sync.WaitGroup
	left.Add(n)
	w := s.worker(tb, 0, func(_ context.Context, t *worker.Task) (client.Payload, error) {
		i, err := strconv.Atoi(string(t.Payload.Body()))
		if err != nil {
			return client.Payload{}, err
		}
		took[i] = time.Since(called[i])
		left.Done()
		return client.Payload{}, nil
	})
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()

	errs := make([]error, n)
	var calls sync.WaitGroup
	pace := time.NewTicker(time.Second / startsPerSecond)
	defer pace.Stop()
	for i := range n {
		<-pace.C
		calls.Go(func() {
			called[i] = time.Now()
			_, errs[i] = c.Submit(tb.Context(), client.Job{
				Operation: operation, Payload: client.JSON(json.RawMessage(strconv.Itoa(i))),
			})
		})
	}
	calls.Wait()
	if err := errors.Join(errs...); err != nil {
		tb.Fatal(err)
	}
	left.Wait()
	cancel()
	if err := <-ended; err != nil {
		tb.Fatal(err)
	}
	slices.Sort(took)
	return took
}
