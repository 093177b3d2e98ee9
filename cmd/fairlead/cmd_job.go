package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cmd/fairlead/config"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
	"github.com/fairlead/fairlead/dataplane/client"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

func (a *app) jobCommand() *cobra.Command {
	return group("job", "Submit and follow jobs",
		`A job is a durable unit of work of one tenant, which is whose key it is submitted with. Where a job is named, a unique beginning of its id
will do: job_0190a1b2 or 0190a1b2.`,
		"  fairlead job submit invoice.export --payload '{\"invoice\": 42}'\n  fairlead job list --state ready",
		a.jobSubmitCommand(), a.jobGetCommand(), a.jobListCommand(), a.jobWaitCommand(), a.jobCancelCommand(), a.jobRetryCommand(), a.jobExplainCommand())
}

func (a *app) jobGetCommand() *cobra.Command {
	return &cobra.Command{
		Use: "get JOB", Short: "Show a job with its payload and result",
		Long: `Get shows one job. On -o json and yaml the payload and the result stand as the documents that they are.`,
		Example: `  fairlead job list
  fairlead job get $(fairlead job list --limit 1 -o name)
  fairlead job get $(fairlead job list --limit 1 -o name) -o json`,
		Args: arguments(false, "JOB"), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, l, err := a.connect(cmd, roleTenant)
			if err != nil {
				return err
			}
			id, err := s.resolve(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			resp, err := call(cmd.Context(), s, "get the job "+id, s.jobs.GetJob, &fairleadv1.GetJobRequest{JobId: id})
			if err != nil {
				return err
			}
			return a.printJob(a.printer(l), resp.GetJob())
		},
	}
}

func (a *app) jobListCommand() *cobra.Command {
	var limit int
	var operation string
	states, class := newEnumList(stateNames()), newEnum("", config.ClassNames())
	cmd := &cobra.Command{
		Use: "list", Short: "List jobs, newest first",
		Long:    "List shows the tenant's jobs, newest first, without payloads and results.",
		Example: "  fairlead job list --limit 20\n  fairlead job list --state failed,quarantined --operation invoice.export -o wide",
		Args:    arguments(false), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if operation != "" || cmd.Flags().Changed("operation") {
				if err := cell.CheckID("--operation", operation); err != nil {
					return err
				}
			}
			s, l, err := a.connect(cmd, roleTenant)
			if err != nil {
				return err
			}
			filter := &fairleadv1.ListJobsRequest{Operation: operation, Class: classOf(class.value)}
			for _, name := range states.values {
				filter.States = append(filter.States, stateOf(name))
			}
			return writePages(a.printer(l), a.jobView(), limit, func(size int32, token string) ([]*fairleadv1.Job, string, error) {
				filter.PageSize, filter.PageToken = size, token
				resp, err := call(cmd.Context(), s, "list jobs", s.jobs.ListJobs, filter)
				return resp.GetJobs(), resp.GetNextPageToken(), err
			})
		},
	}
	cmd.Flags().Var(states, "state", "only jobs in these states, repeated or with commas: "+strings.Join(stateNames(), ", "))
	cmd.Flags().StringVar(&operation, "operation", "", "only jobs of this `operation`")
	cmd.Flags().Var(class, "class", "only jobs of this class: "+strings.Join(config.ClassNames(), ", "))
	completeEnum(cmd, "state", stateNames())
	completeEnum(cmd, "class", config.ClassNames())
	completeNothing(cmd, "operation")
	limitFlag(cmd, &limit)
	return cmd
}

// classOf returns the class that a checked name means; the empty one is unspecified.
func classOf(name string) fairleadv1.Class {
	return fairleadv1.Class(fairleadv1.Class_value["CLASS_"+strings.ToUpper(name)])
}

func stateOf(name string) fairleadv1.JobState {
	return fairleadv1.JobState(fairleadv1.JobState_value["JOB_STATE_"+strings.ToUpper(name)])
}

func (a *app) jobCancelCommand() *cobra.Command {
	return &cobra.Command{
		Use: "cancel JOB...", Short: "Cancel jobs that have not ended",
		Long: `Cancel ends jobs. The worker that runs one is told to stop. A job that ended before is left as it is and said to be so; that is no failure,
for nothing of it runs any more.`,
		Example: "  fairlead job cancel $(fairlead job list --state ready,delayed -o name)",
		Args:    arguments(true, "JOB"), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, l, err := a.connect(cmd, roleTenant)
			if err != nil {
				return err
			}
			view := output.View[*fairleadv1.CancelJobResponse]{
				Columns: []output.Column{{Name: "JOB"}, {Name: "STATE"}, {Name: "CANCELLED"}},
				Row: func(r *fairleadv1.CancelJobResponse) []string {
					return []string{output.Safe(r.GetJob().GetId()), stateText(r.GetJob().GetState()), yesNo(r.GetCancelled())}
				},
				Name: func(r *fairleadv1.CancelJobResponse) string { return r.GetJob().GetId() },
			}
			return eachOf(a, a.printer(l), view, args, func(arg string) (*fairleadv1.CancelJobResponse, error) {
				id, err := s.resolve(cmd.Context(), arg)
				if err != nil {
					return nil, err
				}
				resp, err := call(cmd.Context(), s, "cancel the job "+id, s.jobs.CancelJob, &fairleadv1.CancelJobRequest{JobId: id})
				if err == nil && !resp.GetCancelled() {
					a.sayf("The job %s had ended before: %s.", id, stateText(resp.GetJob().GetState()))
				}
				return resp, err
			})
		},
	}
}

func (a *app) jobRetryCommand() *cobra.Command {
	return &cobra.Command{
		Use: "retry JOB...", Short: "Make ended jobs ready again",
		Long:    "Retry makes jobs that ended without success ready again, with fresh budgets of attempts.",
		Example: "  fairlead job retry $(fairlead job list --state failed -o name)",
		Args:    arguments(true, "JOB"), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, l, err := a.connect(cmd, roleTenant)
			if err != nil {
				return err
			}
			err = eachOf(a, a.printer(l), a.jobView(), args, func(arg string) (*fairleadv1.Job, error) {
				id, err := s.resolve(cmd.Context(), arg)
				if err != nil {
					return nil, err
				}
				resp, err := call(cmd.Context(), s, "retry the job "+id, s.jobs.RetryJob, &fairleadv1.RetryJobRequest{JobId: id})
				return resp.GetJob(), err
			})
			if err == nil {
				a.next("fairlead job wait %s", strings.Join(args, " "))
			}
			return err
		},
	}
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func (a *app) jobExplainCommand() *cobra.Command {
	return &cobra.Command{
		Use: "explain JOB", Short: "Say why a job waits, and when it can run",
		Long:    "Explain says why a job is not running: the reason, its place, who holds what it waits for, and when it can run next.",
		Example: "  fairlead job explain $(fairlead job list --state ready --limit 1 -o name)",
		Args:    arguments(false, "JOB"), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, l, err := a.connect(cmd, roleTenant)
			if err != nil {
				return err
			}
			id, err := s.resolve(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			resp, err := call(cmd.Context(), s, "explain the job "+id, s.jobs.ExplainJob, &fairleadv1.ExplainJobRequest{JobId: id})
			if err != nil {
				return err
			}
			return a.printExplanation(a.printer(l), resp)
		},
	}
}

func (a *app) printExplanation(p *output.Printer, e *fairleadv1.ExplainJobResponse) error {
	if !p.Human() {
		return p.Object(e.GetJobId(), e)
	}
	pairs := []output.Pair{
		{Key: "Job", Value: output.Safe(e.GetJobId())},
		{Key: "State", Value: stateText(e.GetState())},
		{Key: "Reason", Value: output.Enum(e.GetReason(), "WAIT_REASON_")},
		{Key: "Because", Value: output.Safe(e.GetMessage())},
	}
	if limit := limitText(e); limit != "" {
		pairs = append(pairs, output.Pair{Key: "Bound", Value: limit})
	}
	if e.GetPosition() > 0 {
		pairs = append(pairs, output.Pair{Key: "Position", Value: decimal(e.GetPosition()) + " of " + decimal(e.GetLaneReady()) + " in its queue"})
	}
	if !client.Ended(e.GetState()) {
		pairs = append(
			pairs,
			output.Pair{Key: "Its queue", Value: words("running", e.GetLaneLeased(), "ready", e.GetLaneReady())},
			output.Pair{Key: "Class slots", Value: decimal(e.GetClassUsed()) + " used of " + decimal(e.GetClassSlots())},
			output.Pair{Key: "Workers", Value: decimal(e.GetWorkers()) + " offer the operation"},
			output.Pair{Key: "Tenants waiting", Value: decimal(e.GetTenantsWaiting())},
		)
	}
	return p.Describe(append(pairs, output.Pair{Key: "Can run", Value: a.when(e.GetNextTime())},
		output.Pair{Key: "Held by", Value: output.Safe(strings.Join(e.GetHolders(), " "))}))
}

// limitText says which bound a job waits for, what that stands at and may.
func limitText(e *fairleadv1.ExplainJobResponse) string {
	if e.GetLimit() == "" {
		return ""
	}
	text := output.Safe(e.GetLimit()) + " of " + numberText(e.GetBound())
	if e.GetPeriod() != nil {
		text += " in " + output.ProtoDuration(e.GetPeriod())
	}
	if e.GetKey() != "" {
		text += " for the key " + output.Safe(e.GetKey())
	}
	if e.GetValue() != 0 {
		text += ", which stands at " + numberText(e.GetValue())
	}
	return text
}
