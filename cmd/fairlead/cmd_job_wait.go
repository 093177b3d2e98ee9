package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
	"github.com/fairlead/fairlead/dataplane/client"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// The lengths of one long poll. People at a terminal see a sign of life more often.
const (
	pollMax    = 60 * time.Second
	pollShown  = 5 * time.Second
	pollFirst  = time.Millisecond // so that a server that goes away later is known to be one
	pollMargin = 15 * time.Second // for the answer to arrive
	// lostMax is how long a server that had answered may be away before a wait gives up: a restart or an election is shorter.
	lostMax = time.Minute
)

// errWaitOver is the cause of a context whose wait has lasted long enough.
var errWaitOver = errors.New("the wait is over")

func (a *app) jobWaitCommand() *cobra.Command {
	timeout := newDuration(0)
	cmd := &cobra.Command{
		Use: "wait JOB...", Short: "Wait until jobs have ended",
		Long: `Wait answers when every named job has ended. Its exit code is their final state: 0 when all succeeded, 1 when one ended otherwise, 5 when the
time-out came first. Interrupting it never touches the jobs.`,
		Example: "  fairlead job wait $(fairlead job list --state ready,leased -o name) --timeout 10m",
		Args:    arguments(true, "JOB"), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkTimeout(cmd, "timeout", timeout.d); err != nil {
				return err
			}
			s, l, err := a.connect(cmd, roleTenant)
			if err != nil {
				return err
			}
			ctx, cancel := withTimeout(cmd.Context(), timeout.d)
			defer cancel()
			var ids []string
			for _, arg := range args {
				id, err := s.resolve(ctx, arg)
				if err != nil {
					return err
				}
				ids = append(ids, id)
			}
			return a.waitAll(ctx, s, a.printer(l), ids)
		},
	}
	cmd.Flags().Var(timeout, "timeout", "longest wait, then exit code 5; for ever when it is not given")
	completeNothing(cmd, "timeout")
	return cmd
}

func checkTimeout(cmd *cobra.Command, flag string, d time.Duration) error {
	if cmd.Flags().Changed(flag) && d <= 0 {
		return failure.Usagef("give a duration such as 10m", "--%s is %v, not above 0", flag, d)
	}
	return nil
}

// withTimeout bounds ctx by d with the cause errWaitOver; 0 is no bound.
func withTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, d, errWaitOver)
}

// waitAll waits for the jobs one after the other, which takes no longer than the slowest, and writes them. The error is of their final states.
func (a *app) waitAll(ctx context.Context, s *session, p *output.Printer, ids []string) error {
	var jobs []*fairleadv1.Job
	for _, id := range ids {
		j, err := a.waitOne(ctx, s, id)
		if err != nil {
			return err
		}
		jobs = append(jobs, j)
	}
	if len(jobs) == 1 {
		if err := a.printJob(p, jobs[0]); err != nil {
			return err
		}
		return finalState(jobs)
	}
	list := output.NewList(p, a.jobView())
	if err := list.Add(jobs...); err != nil {
		return err
	}
	if err := list.Close(); err != nil {
		return err
	}
	return finalState(jobs)
}

// finalState returns the error that the exit code is made of: nil when every job succeeded.
func finalState(jobs []*fairleadv1.Job) error {
	var bad []string
	for _, j := range jobs {
		if j.GetState() != fairleadv1.JobState_JOB_STATE_SUCCEEDED {
			bad = append(bad, fmt.Sprintf("%s %s", j.GetId(), stateText(j.GetState())))
		}
	}
	switch {
	case len(bad) == 0:
		return nil
	case len(jobs) == 1:
		j := jobs[0]
		p := &failure.Problem{Code: failure.Failed, What: "the job " + j.GetId() + " ended as " + stateText(j.GetState()), Why: strings.TrimSpace(j.GetError())}
		p.Remedy = "run it again with: fairlead job retry " + j.GetId()
		return p
	default:
		return &failure.Problem{
			Code: failure.Failed, What: fmt.Sprintf("%d of %d jobs did not succeed", len(bad), len(jobs)), Why: strings.Join(bad, "\n"),
			Remedy: "run them again with: fairlead job retry JOB...",
		}
	}
}

// waitOne long-polls until the job has ended or ctx has. A server that has answered once may be away for a while.
func (a *app) waitOne(ctx context.Context, s *session, id string) (*fairleadv1.Job, error) {
	started, poll := time.Now(), pollFirst
	var answered time.Time
	backoff := client.Backoff{Min: retryDelayMin, Max: retryDelayMax}
	for failures := 0; ; {
		begun := time.Now()
		resp, err := waitCall(ctx, s, id, poll)
		switch {
		case err == nil && resp.GetDone():
			return resp.GetJob(), nil
		case ctx.Err() != nil:
			return nil, waitEnded(ctx, id)
		case err == nil:
			failures, answered = 0, time.Now()
			if poll == pollFirst {
				poll = a.longPoll()
				continue
			}
			if time.Since(begun) < poll/2 && client.Pause(ctx, retryDelayMax) != nil { // a server in trouble, that does not hold the call
				return nil, waitEnded(ctx, id)
			}
			if a.talks {
				a.sayf("%s is %s after %s", id, stateText(resp.GetJob().GetState()), output.Duration(time.Since(started)))
			}
		case client.Transient(client.AsError(err)) && !answered.IsZero() && time.Since(answered) < poll+lostMax:
			if failures == 0 && a.talks {
				a.sayf("%s does not answer; the wait goes on", s.id.addr)
			}
			failures++
			if client.Pause(ctx, backoff.Next(failures, client.AsError(err).RetryAfter)) != nil {
				return nil, waitEnded(ctx, id)
			}
		default:
			c := s.failed("wait for the job "+id, err)
			c.Remedy = "the job is not touched; wait again with: fairlead job wait " + id
			return nil, c
		}
	}
}

// longPoll is how long one call waits.
func (a *app) longPoll() time.Duration {
	if a.talks {
		return pollShown
	}
	return pollMax
}

// waitCall is one long poll, no longer than ctx has left.
func waitCall(ctx context.Context, s *session, id string, poll time.Duration) (*fairleadv1.WaitJobResponse, error) {
	if deadline, ok := ctx.Deadline(); ok {
		poll = max(min(poll, time.Until(deadline)), time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(ctx, poll+pollMargin)
	defer cancel()
	return s.jobs.WaitJob(ctx, &fairleadv1.WaitJobRequest{JobId: id, Timeout: durationpb.New(poll)})
}

// waitEnded says that the wait is over and the job is not.
func waitEnded(ctx context.Context, id string) error {
	p := &failure.Problem{
		Code: failure.TimedOut, What: "the wait is over and the job " + id + " has not ended",
		Remedy: "the job goes on; wait again with: fairlead job wait " + id, Err: context.Cause(ctx),
	}
	if !errors.Is(context.Cause(ctx), errWaitOver) {
		p.Code, p.What = failure.Interrupted, "interrupted"
	}
	return p
}
