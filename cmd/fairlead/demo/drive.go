package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fairlead/fairlead/dataplane/client"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// outcome is what came of a job.
type outcome struct {
	id         string
	accepted   bool
	submitted  time.Time // when its application called
	start, end time.Time // of its handler; zero when it is not known
	ended      bool
	succeeded  bool
	failure    string
	output     string
}

// errTimeUp is the cause when a run took longer than its time-out. What has not ended by then is lost.
var errTimeUp = errors.New("the run's time is up")

// drive is the applications: each tenant submits its jobs when they are due, then waits for each of them. It returns what came of every job,
// by its number.
func (d *demo) drive(ctx context.Context, policy string, s *server) ([]outcome, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, d.workload.timeout, errTimeUp)
	defer cancel()
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	outcomes := make([]outcome, len(d.workload.jobs))
	bulkIn := make(chan struct{}) // closed when the bulk tenant's jobs are in
	start := time.Now()
	var wg sync.WaitGroup
	for i := range d.workload.tenants {
		app := &application{
			policy: policy, board: d.board, jobs: d.workload.of(i), outcomes: outcomes, start: start,
		}
		var err error
		if app.client, err = client.New(s.settings(string(d.workload.tenants[i].id))); err != nil {
			abort(err)
			break
		}
		wg.Go(func() {
			defer app.client.Close()
			if err := app.run(ctx, i == bulkTenant, bulkIn); err != nil {
				abort(err)
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil && !errors.Is(err, errTimeUp) {
		return nil, err
	}
	return outcomes, nil
}

// application submits the jobs of one tenant and waits for them.
type application struct {
	policy   string
	board    *board
	client   *client.Client
	jobs     []job
	outcomes []outcome // of all jobs; each application writes those of its own
	start    time.Time
}

func (a *application) run(ctx context.Context, bulk bool, bulkIn chan struct{}) error {
	err := a.submitAll(ctx, bulk, bulkIn)
	for _, j := range a.jobs {
		if err == nil {
			err = a.await(ctx, j)
		}
	}
	if errors.Is(context.Cause(ctx), errTimeUp) {
		return nil // what is missing is counted as lost
	}
	return err
}

// submitAll submits the jobs when they are due. The bulk tenant's go first, so that first come, first served means the same in every run.
func (a *application) submitAll(ctx context.Context, bulk bool, bulkIn chan struct{}) error {
	if bulk {
		defer close(bulkIn)
		return a.submit(ctx, a.jobs)
	}
	select {
	case <-bulkIn:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for rest := a.jobs; len(rest) > 0; {
		due := 1
		for due < len(rest) && rest[due].at == rest[0].at {
			due++
		}
		if err := client.Pause(ctx, time.Until(a.start.Add(rest[0].at))); err != nil {
			return err
		}
		if err := a.submit(ctx, rest[:due]); err != nil {
			return err
		}
		rest = rest[due:]
	}
	return nil
}

func (a *application) submit(ctx context.Context, jobs []job) error {
	specs := make([]client.Job, len(jobs))
	for i, j := range jobs {
		specs[i] = j.submission()
	}
	now := time.Now()
	a.board.submitted(a.policy, jobs, now)
	answers, err := a.client.SubmitBatch(ctx, specs)
	for i, answer := range answers {
		o := &a.outcomes[jobs[i].order.N]
		o.submitted, o.id, o.accepted = now, answer.ID, answer.Err == nil
		if answer.Err != nil && err == nil {
			err = answer.Err
		}
	}
	if err != nil {
		return fmt.Errorf("submitting jobs: %w", err)
	}
	return nil
}

// await waits until the job has ended, and reads its receipt.
func (a *application) await(ctx context.Context, j job) error {
	o := &a.outcomes[j.order.N]
	got, err := a.client.Wait(ctx, o.id)
	if err != nil {
		return fmt.Errorf("waiting for job %s: %w", o.id, err)
	}
	o.ended = true
	if got.GetState() != fairleadv1.JobState_JOB_STATE_SUCCEEDED {
		o.failure = got.GetError()
		o.start, o.end, _ = a.board.sightingOf(a.policy, j.order.N)
		return nil
	}
	var r receipt
	if err := json.Unmarshal(client.PayloadOf(got.GetResult()).Body(), &r); err != nil {
		return fmt.Errorf("the result of job %s: %w", o.id, err)
	}
	if r.N != j.order.N || r.Sum != j.order.sum() {
		return fmt.Errorf("job %s has another job's result: number %d with checksum %08x, not %d with %08x", o.id, r.N, r.Sum, j.order.N, j.order.sum())
	}
	o.succeeded, o.output = true, r.Output
	o.start, o.end = time.UnixMicro(r.StartUS), time.UnixMicro(r.EndUS)
	return nil
}
