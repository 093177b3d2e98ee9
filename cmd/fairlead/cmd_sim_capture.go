package main

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cmd/fairlead/config"
	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/e2e/sim/trace"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

func (a *app) simCaptureCommand() *cobra.Command {
	var out string
	since, until := &agoValue{}, &agoValue{}
	form := newEnum(string(trace.FormCSV), []string{string(trace.FormCSV), string(trace.FormJSONL)})
	cmd := &cobra.Command{
		Use: "capture", Short: "Write what a running cell's tenants did as a trace",
		Long: `Capture asks a running cell for the jobs that it still knows of, and writes those that have run as a trace: whose each was, when it came, how
long it ran, what it cost, and its class, operation, priority, keys and deadline; no payloads, results or labels. It needs a key with the scope
operate.

Replay the trace with fairlead sim run, and try another policy on it with fairlead sim compare. Jobs that have not run to an end are left out,
since nobody knows how long they take; how many that are is said on standard error. A cell forgets ended jobs after their retention.`,
		Example: `  fairlead sim capture --since 24h --out yesterday.csv
  fairlead sim capture | fairlead sim run - --policy fifo --policy fairlead`,
		Args: arguments(false), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("output") {
				if byName := formatOf(out, form.valid); byName != "" {
					form.value = byName
				}
			}
			s, _, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			jobs, err := a.capture(cmd.Context(), s, &fairleadv1.CaptureTraceRequest{From: since.at(a.now()), To: until.at(a.now()), PageSize: pageSizeMax})
			if err != nil {
				return err
			}
			var b bytes.Buffer
			write := trace.WriteCSV
			if trace.Form(form.value) == trace.FormJSONL {
				write = trace.WriteJSONL
			}
			if err := write(&b, jobs); err != nil {
				return err
			}
			if err := a.deliver(out, []simFile{{"trace." + form.value, b.Bytes()}}); err != nil {
				return err
			}
			if out != "" && !isFolder(out) {
				a.next("fairlead sim run %s", out)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.VarP(form, "output", "o", "`format`: "+joined(form.valid))
	f.Var(since, "since", "only jobs that came since then: a `time`, or how long ago")
	f.Var(until, "until", "only jobs that came before then: a `time`, or how long ago")
	f.StringVar(&out, "out", "", "`file` or folder to write to, instead of standard output")
	completeEnum(cmd, "output", form.valid)
	completeNothing(cmd, "since", "until")
	return cmd
}

// capture returns the jobs of every page, with times since the first of them.
func (a *app) capture(ctx context.Context, s *session, req *fairleadv1.CaptureTraceRequest) ([]trace.Job, error) {
	c := captured{}
	shown := a.now()
	for {
		resp, err := call(ctx, s, "capture the trace", s.status.CaptureTrace, req)
		if err != nil {
			return nil, err
		}
		for _, r := range resp.GetRecords() {
			if err := c.add(r); err != nil {
				return nil, err
			}
		}
		if now := a.now(); a.talks && now.Sub(shown) >= progressAfter {
			shown = now
			a.sayf("%d jobs so far", len(c.jobs))
		}
		if req.PageToken = resp.GetNextPageToken(); req.GetPageToken() == "" {
			break
		}
	}
	if c.left > 0 {
		a.sayf("Left out %d of %d jobs, which have not run to an end.", c.left, c.left+len(c.jobs))
	}
	if len(c.jobs) == 0 {
		return nil, &failure.Problem{
			Code: failure.NotFound, What: "there is no job to capture", Why: "the cell knows of none that ran in that time",
			Remedy: "give an earlier --since, or see what there is with: fairlead status",
		}
	}
	trace.Sort(c.jobs)
	return c.jobs, nil
}

// captured is a trace while its pages arrive.
type captured struct {
	catalogue trace.Catalogue
	jobs      []trace.Job
	first     time.Time // when the first job of all came
	left      int       // left out
}

// add takes a record, or leaves it out when it has no run that could be replayed. Pages come in the order of acceptance.
func (c *captured) add(r *fairleadv1.TraceRecord) error {
	if r.GetFinish() == nil || r.GetRun().AsDuration() <= 0 {
		c.left++
		return nil
	}
	class, err := traceClass(r.GetClass())
	if err != nil {
		return err
	}
	arrival := r.GetArrival().AsTime()
	if c.first.IsZero() {
		c.first = arrival
	}
	var keys []cell.ConcurrencyKey
	for _, k := range r.GetConcurrencyKeys() {
		keys = append(keys, cell.ConcurrencyKey{Key: k.GetKey(), Max: k.GetMax()})
	}
	j := trace.Job{
		Traits: c.catalogue.Traits(trace.Traits{
			Tenant: r.GetTenant(), Organization: r.GetOrganization(), Class: class, Operation: cell.Operation(r.GetOperation()), Cohort: r.GetTenant(),
			Priority: r.GetPriority(), Preemptible: r.GetPreemptible(), Keys: keys,
		}),
		ID: len(c.jobs), Arrival: max(0, arrival.Sub(c.first)), Service: r.GetRun().AsDuration(),
		Cost: min(cell.Cost(r.GetDeclaredCost()), cell.CostMax), Actual: min(cell.Cost(r.GetCost()), cell.CostMax),
	}
	if r.GetDeadline() != nil {
		j.Deadline = max(j.Arrival, r.GetDeadline().AsTime().Sub(c.first))
	}
	c.jobs = append(c.jobs, j)
	return nil
}

func traceClass(c fairleadv1.Class) (cell.Class, error) {
	switch c {
	case fairleadv1.Class_CLASS_INTERACTIVE:
		return cell.ClassInteractive, nil
	case fairleadv1.Class_CLASS_BATCH:
		return cell.ClassBatch, nil
	case fairleadv1.Class_CLASS_UNSPECIFIED:
	}
	return 0, errors.New("the cell has jobs of a class that this version does not know: " + c.String())
}

// agoValue is a flag that takes a point in time, or a duration before now.
type agoValue struct{ timeValue }

func (v *agoValue) Set(s string) error {
	if err := v.timeValue.Set(s); err != nil {
		return &valueError{
			problem: "it is neither a time nor a duration", remedy: "write a time as 2030-01-31T15:04:05Z, or how long ago as 90s, 24h or 7d",
		}
	}
	return nil
}

func (v *agoValue) String() string {
	if v.set && v.t.IsZero() {
		return config.FormatDuration(v.d)
	}
	return v.timeValue.String()
}

// at returns the point in time, or nil where the flag was not given.
func (v *agoValue) at(now time.Time) *timestamppb.Timestamp {
	switch {
	case !v.set:
		return nil
	case !v.t.IsZero():
		return timestamppb.New(v.t)
	default:
		return timestamppb.New(now.Add(-v.d))
	}
}
