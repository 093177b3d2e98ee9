package crash

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/dataplane/client"
	"github.com/fairlead/fairlead/dataplane/worker"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

const (
	operation  = "crash.work"
	workerRole = "worker"
)

// payload is what a job carries in.
type payload struct {
	N         int    `json:"n"`
	Text      string `json:"text"`
	TakesMS   int    `json:"takes_ms"`
	FailFirst bool   `json:"fail_first"` // its first attempt fails
}

// result is what a job carries out: something that follows from the payload, and which execution it was.
type result struct {
	Sum string `json:"sum"`
	By  string `json:"by"`
}

func (p payload) sum() string {
	h := sha256.Sum256(fmt.Appendf(nil, "%d %s", p.N, p.Text))
	return hex.EncodeToString(h[:8])
}

func (p payload) checkResult(text string) error {
	var r result
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return fmt.Errorf("result %q: %w", text, err)
	}
	if r.Sum != p.sum() {
		return fmt.Errorf("the result of payload %d is %s, not %s", p.N, r.Sum, p.sum())
	}
	return nil
}

// registry returns the handler. by names the worker process.
func registry() *worker.Registry {
	by := rand.Text()
	var executions atomic.Int64
	reg := worker.NewRegistry()
	worker.HandleResult(reg, operation, func(ctx context.Context, job *worker.Job[payload]) (result, error) {
		n := executions.Add(1)
		timer := time.NewTimer(time.Duration(job.Args.TakesMS) * time.Millisecond)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return result{}, context.Cause(ctx)
		}
		if job.Args.FailFirst && job.Attempt == 1 {
			return result{}, errors.New("the first attempt fails on purpose")
		}
		return result{Sum: job.Args.sum(), By: fmt.Sprintf("%s-%d", by, n)}, nil
	})
	return reg
}

// witness passes calls on, and tells which outcomes the server took.
type witness struct {
	worker.Service
	took func(applied)
}

// Report implements worker.Service.
func (w witness) Report(ctx context.Context, req *fairleadv1.ReportRequest) (*fairleadv1.ReportResponse, error) {
	answer, err := w.Service.Report(ctx, req)
	if err != nil {
		return nil, err
	}
	for i, r := range answer.GetResults() {
		o := req.GetOutcomes()[i]
		if success := o.GetSuccess(); success != nil && r.GetRejection() == nil {
			w.took(applied{Job: o.GetJobId(), Token: o.GetToken(), Result: success.GetResult().GetJson()})
		}
	}
	return answer, nil
}

// newWorker returns a worker whose taken outcomes are told to took.
func newWorker(cfg client.Config, took func(applied)) (*worker.Worker, error) {
	conn, err := client.Dial(cfg)
	if err != nil {
		return nil, err
	}
	service := fairleadv1connect.NewWorkerServiceClient(conn.HTTP, conn.URL, conn.Options...)
	return worker.New(worker.Config{
		Service: witness{Service: service, took: took}, Slots: 6, Prefetch: 3, LeaseDuration: worker.LeaseDurationMin,
		PollWait: 2 * time.Second, Logger: slog.New(slog.DiscardHandler),
	}, registry())
}

// workerArgs say where a worker process leases from. The token goes as a plain string: a client.Token would be masked.
type workerArgs struct{ Addr, Token string }

// runWorkerRole is a worker process. It prints each outcome that was taken as a line, once it knows.
func runWorkerRole(ctx context.Context, text json.RawMessage) error {
	var args workerArgs
	if err := json.Unmarshal(text, &args); err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	w, err := newWorker(client.Config{Addr: args.Addr, Token: client.Token(args.Token)}, func(a applied) {
		if err := out.Encode(a); err != nil {
			fmt.Fprintln(os.Stderr, "telling what was taken:", err)
		}
	})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}
