package workertest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane/client"
	"github.com/fairlead/fairlead/dataplane/worker"
	"github.com/fairlead/fairlead/dataplane/worker/workertest"
)

type mail struct {
	To string `json:"to"`
}

func registry() *worker.Registry {
	reg := worker.NewRegistry()
	worker.HandleResult(reg, "email.send", func(ctx context.Context, job *worker.Job[mail]) (string, error) {
		switch job.Args.To {
		case "":
			return "", worker.Fatal(errors.New("no recipient"))
		case "panic":
			panic(job.Args.To)
		case "wait":
			<-ctx.Done()
			return "", context.Cause(ctx)
		}
		return fmt.Sprintf("%s %d %s", job.Args.To, job.Attempt, job.Tenant), nil
	})
	return reg
}

func TestRun(t *testing.T) {
	var seen []string
	log := func(next worker.HandlerFunc) worker.HandlerFunc {
		return func(ctx context.Context, task *worker.Task) (client.Payload, error) {
			seen = append(seen, task.Operation)
			return next(ctx, task)
		}
	}
	second := workertest.WithTask(func(task *worker.Task) { task.Attempt, task.Tenant = 2, "acme" })
	cancelled := workertest.WithContext(func(ctx context.Context) context.Context {
		ctx, cancel := context.WithCancelCause(ctx)
		cancel(worker.ErrCancelled)
		return ctx
	})
	short := workertest.WithTask(func(task *worker.Task) { task.ExecutionTimeout = time.Millisecond })
	for name, tt := range map[string]struct {
		to      string
		options []workertest.Option
		want    string
	}{
		"success":   {"a@example.com", nil, `success "a@example.com 1 test"`},
		"options":   {"a@example.com", []workertest.Option{second}, `success "a@example.com 2 acme"`},
		"fatal":     {"", nil, "failure no recipient true"},
		"panic":     {"panic", nil, "failure panic: panic"},
		"cancelled": {"wait", []workertest.Option{cancelled}, "release"},
		"timed out": {"wait", []workertest.Option{short}, "failure execution time-out of 1ms"},
	} {
		t.Run(name, func(t *testing.T) {
			seen = nil
			out := workertest.Run(t, registry(), "email.send", client.JSON(mail{tt.to}), append(tt.options, workertest.WithMiddleware(log))...)
			got := out.Verdict.String()
			switch out.Verdict {
			case worker.VerdictSuccess:
				got += " " + string(out.Result.Body())
			case worker.VerdictFailure:
				got += fmt.Sprintf(" %s %v", out.Error, out.Fatal)
			case worker.VerdictRelease:
			}
			if !strings.HasPrefix(got, tt.want) || len(seen) != 1 {
				t.Errorf("got %s, middleware saw %v; want %s", got, seen, tt.want)
			}
		})
	}
}

func TestRunFunc(t *testing.T) {
	h := func(_ context.Context, task *worker.Task) (client.Payload, error) { return task.Payload, nil }
	if out := workertest.RunFunc(t, h, client.Bytes("text/csv", []byte("a"))); string(out.Result.Body()) != "a" {
		t.Errorf("outcome %+v", out)
	}
}
