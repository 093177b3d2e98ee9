package neighbour

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/fairlead/fairlead/dataplane/client"
	"github.com/fairlead/fairlead/dataplane/worker"
	"github.com/fairlead/fairlead/e2e/harness"
)

const (
	workerRole = "worker"
	// operation is what the worker offers; nobody offers unoffered.
	operation = "neighbour.work"
	unoffered = "neighbour.nobody"
)

// jobTime is how long a handler runs.
const jobTime = 5 * time.Millisecond

// workerArgs say where a worker process leases from. The token goes as a plain string: a client.Token would be masked.
type workerArgs struct {
	Addr, Token, Profile string
	Slots, Prefetch      int
}

// execution is one run of a handler. Times are unix nanoseconds.
type execution struct {
	Tenant string `json:"t"`
	N      int    `json:"n"` // which job of the tenant's
	Start  int64  `json:"s"`
	End    int64  `json:"e"`
}

// runWorkerRole works until it is terminated, and then prints every execution, so that printing costs nothing meanwhile. It prints an empty one
// when the first begins.
func runWorkerRole(ctx context.Context, text json.RawMessage) (err error) {
	var args workerArgs
	if err := json.Unmarshal(text, &args); err != nil {
		return err
	}
	stop, err := harness.Profile(args.Profile, "worker")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	var mu sync.Mutex
	var done []execution
	reg := worker.NewRegistry()
	lines := json.NewEncoder(os.Stdout)
	first := sync.OnceFunc(func() {
		if err := lines.Encode(execution{}); err != nil {
			fmt.Fprintln(os.Stderr, "printing:", err)
		}
	})
	worker.Handle(reg, operation, func(_ context.Context, job *worker.Job[int]) error {
		start := time.Now()
		first()
		timer := time.NewTimer(jobTime)
		<-timer.C
		end := start.Add(time.Since(start))
		mu.Lock()
		defer mu.Unlock()
		done = append(done, execution{Tenant: job.Tenant, N: job.Args, Start: start.UnixNano(), End: end.UnixNano()})
		return nil
	})
	w, err := worker.New(worker.Config{
		Client: client.Config{Addr: args.Addr, Token: client.Token(args.Token)}, Slots: args.Slots, Prefetch: args.Prefetch,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}, reg)
	if err != nil {
		return err
	}
	if err := w.Run(ctx); err != nil {
		return err
	}
	st := w.Stats()
	fmt.Fprintf(os.Stderr, "%d leased in %d Lease and %d Report calls\n", st.Leased, st.LeaseCalls, st.ReportCalls)
	out := bufio.NewWriter(os.Stdout)
	lines = json.NewEncoder(out)
	for _, x := range done {
		if err := lines.Encode(x); err != nil {
			return err
		}
	}
	return out.Flush()
}
