package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cmd/fairlead/config"
	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/rejection"
)

// submitFlags are the job as the command line has it.
type submitFlags struct {
	payload, payloadFile, dataFile, contentType string
	class                                       *enumValue
	key                                         string
	priority                                    int32
	delay, timeout, retention, waitTimeout      *durationValue
	notBefore, deadline                         timeValue
	cost                                        int64
	maxAttempts                                 int32
	labels                                      labelsValue
	keys                                        concurrencyValue
	resources                                   amountsValue
	preemptible                                 bool
	wait, dryRun                                bool
	batchFile                                   string
}

func (a *app) jobSubmitCommand() *cobra.Command {
	f := &submitFlags{
		class: newEnum("", config.ClassNames()), resources: newAmounts("cpu_ms=0.6", resourceNames()...),
		delay: newDuration(0), timeout: newDuration(0), retention: newDuration(0), waitTimeout: newDuration(0),
	}
	cmd := &cobra.Command{
		Use: "submit OPERATION [-]", Short: "Submit a job, or many from a file",
		Long: `Submit accepts a job durably and prints its id. The payload is a JSON document, kept to the byte, or any bytes with a content type; with -
it is read from standard input. An idempotency key is made when none is given, so that trying again never makes a second job.

--batch-file reads one job a line, as the API's JSON has it: {"operation": "mail.send", "payload": {"json": {"to": "a@b"}}}. OPERATION and
the flags stand for what a line leaves out. Refused lines are printed with their numbers and do not stop the rest.`,
		Example: `  fairlead job submit invoice.export --payload '{"invoice": 42}'
  echo '{"invoice": 42}' | fairlead job submit invoice.export - --class batch --wait
  fairlead job submit mail.send --payload '{"to": "a@b"}' --delay 10m --max-attempts 3 --label campaign=spring
  fairlead job submit report --class batch --preemptible --concurrency-key account-17=1 --resource cpu_ms=900
  seq 1000 | sed 's/.*/{"payload":{"json":{"n":&}}}/' | fairlead job submit count --batch-file -`,
		Args: cobra.MatchAll(cobra.MaximumNArgs(2), utf8Arguments), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error { return a.submit(cmd, args, f) },
	}
	f.add(cmd)
	return cmd
}

func (f *submitFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.payload, "payload", "", "payload as a `JSON` document")
	flags.StringVar(&f.payloadFile, "payload-file", "", "`file` with the payload as a JSON document; - is standard input")
	flags.StringVar(&f.dataFile, "data-file", "", "`file` with the payload as any bytes; - is standard input")
	flags.StringVar(&f.contentType, "content-type", "", "media `type` of --data-file; application/octet-stream when empty")
	flags.Var(f.class, "class", "interactive (the default) or batch")
	flags.StringVar(&f.key, "key", "", "idempotency `key`: the same key and job give the same job; made when not given")
	flags.Int32Var(&f.priority, "priority", 0, "`seconds` of head start among the tenant's own jobs, -86400 to 86400")
	flags.Var(f.delay, "delay", "not to be run until this long from now")
	flags.Var(&f.notBefore, "not-before", "not to be run before this time: RFC 3339, or a duration from now")
	flags.Var(&f.deadline, "deadline", "expire if it still waits at this time: RFC 3339, or a duration from now")
	flags.Var(f.timeout, "timeout", "how long one attempt may run, 1s to 24h; 1h when not given")
	flags.Int64Var(&f.cost, "cost", 0, "expected cost in `micro-units`, slot-microseconds by default; 0 leaves it to the cell")
	flags.Int32Var(&f.maxAttempts, "max-attempts", 0, "`attempts` that the handler may fail, 1 to 100; 25 when not given")
	flags.Var(&f.labels, "label", "label, repeated")
	flags.Var(&f.keys, "concurrency-key", "`key=max`: not held while max of the tenant's jobs with the key are; repeated, at most 4")
	flags.Var(&f.resources, "resource", "expected use, repeated: `name=amount` of "+strings.Join(resourceNames(), ", "))
	flags.BoolVar(&f.preemptible, "preemptible", false, "may be stopped, and run again, when another class wants back what it lent")
	flags.Var(f.retention, "retention", "how long the job is kept after its end, at most 30d; 24h when not given")
	flags.BoolVar(&f.wait, "wait", false, "wait until the job has ended; the exit code is its final state")
	flags.Var(f.waitTimeout, "wait-timeout", "longest wait of --wait, then exit code 5; for ever when not given")
	flags.StringVar(&f.batchFile, "batch-file", "", "`file` of many jobs, one a line as JSON; - is standard input")
	flags.BoolVar(&f.dryRun, "dry-run", false, "print the request and send nothing")
	completeEnum(cmd, "class", config.ClassNames())
	completeNothing(cmd, "payload", "content-type", "key", "priority", "delay", "not-before", "deadline", "timeout", "cost", "max-attempts", "label",
		"concurrency-key", "retention", "wait-timeout")
	completeEnum(cmd, "resource", resourceNames())
}

func (a *app) submit(cmd *cobra.Command, args []string, f *submitFlags) error {
	spec, err := a.readSpec(cmd, args, f)
	if err != nil {
		return err
	}
	l, err := a.load(cmd)
	if err != nil {
		return err
	}
	if f.batchFile != "" {
		return a.submitBatchFile(cmd.Context(), l, f, spec)
	}
	if spec.GetIdempotencyKey() == "" {
		spec.IdempotencyKey = newKey()
	}
	if err := checkSpec(spec, flagFields); err != nil {
		return err
	}
	p := a.printer(l)
	req := &fairleadv1.SubmitRequest{Job: spec}
	if f.dryRun {
		return a.printRequest(p, req)
	}
	s, err := a.dial(l, roleTenant)
	if err != nil {
		return err
	}
	resp, err := call(cmd.Context(), s, "submit the job", s.jobs.Submit, req)
	if err != nil {
		return withRepeat(err, spec.GetIdempotencyKey())
	}
	if f.wait {
		a.sayf("The job %s is accepted.", resp.GetJobId())
		ctx, cancel := withTimeout(cmd.Context(), f.waitTimeout.d)
		defer cancel()
		return a.waitAll(ctx, s, p, []string{resp.GetJobId()})
	}
	return a.printSubmitted(p, resp)
}

// resourceNames lists the resources that a job can say it uses.
func resourceNames() []string {
	var names []string
	for _, r := range cell.AllResources() {
		names = append(names, r.String())
	}
	return names
}

// newKey makes an idempotency key: two runs of the command never share one.
func newKey() string { return "cli-" + uuid.NewString() }

// withRepeat tells how to try a submission again whose outcome may be unknown.
func withRepeat(err error, key string) error {
	if c, ok := errors.AsType[*failure.Call](err); ok && mayBeDone(c) {
		c.Remedy = "it may or may not have been accepted; the same command with --key " + key + " is safe to repeat"
	}
	return err
}

// mayBeDone reports whether a call that failed may have taken effect: a refusal with a reason did not, but for the one that says so.
func mayBeDone(c *failure.Call) bool {
	reason := rejection.From(c.Err).GetReason()
	return reason == "" || reason == rejection.ReasonOutcomeUnknown
}

// printRequest writes what would be sent. People get JSON as well: there is no better picture of a request.
func (a *app) printRequest(p *output.Printer, req *fairleadv1.SubmitRequest) error {
	if p.Format != output.FormatYAML {
		p.Format = output.FormatJSON
	}
	a.sayf("Nothing is sent (--dry-run).")
	return p.Object("", req)
}

func (a *app) printSubmitted(p *output.Printer, resp *fairleadv1.SubmitResponse) error {
	if p.Human() {
		columns := []output.Column{{Name: "JOB"}, {Name: "STATE"}, {Name: "DUPLICATE"}}
		row := []string{output.Safe(resp.GetJobId()), stateText(resp.GetState()), yesNo(resp.GetDuplicate())}
		if err := p.Section(columns, [][]string{row}); err != nil {
			return err
		}
	} else if err := p.Object(resp.GetJobId(), resp); err != nil {
		return err
	}
	if resp.GetDuplicate() {
		a.sayf("The key had been used with the same job: this is that job.")
	}
	a.next("fairlead job wait %s", resp.GetJobId())
	return nil
}

// readSpec makes the job of the command line: the job itself, or what the lines of a batch leave out.
func (a *app) readSpec(cmd *cobra.Command, args []string, f *submitFlags) (*fairleadv1.JobSpec, error) {
	if err := f.check(cmd, args); err != nil {
		return nil, err
	}
	spec := &fairleadv1.JobSpec{
		Class: classOf(f.class.value), IdempotencyKey: f.key, Priority: f.priority, Cost: f.cost, Labels: f.labels.m,
		ConcurrencyKeys: f.keys.keys, Resources: f.resources.m, Preemptible: f.preemptible,
	}
	if len(args) > 0 {
		spec.Operation = args[0]
	}
	now := a.now()
	if f.notBefore.set {
		spec.NotBefore = timestamppb.New(f.notBefore.at(now))
	}
	if f.deadline.set {
		spec.Deadline = timestamppb.New(f.deadline.at(now))
	}
	for flag, field := range map[string]struct {
		to   **durationpb.Duration
		from *durationValue
	}{"delay": {&spec.Delay, f.delay}, "timeout": {&spec.ExecutionTimeout, f.timeout}, "retention": {&spec.Retention, f.retention}} {
		if cmd.Flags().Changed(flag) {
			*field.to = durationpb.New(field.from.d)
		}
	}
	if f.maxAttempts != 0 {
		spec.Retry = &fairleadv1.RetryPolicy{AttemptsMax: f.maxAttempts}
	}
	var err error
	spec.Payload, err = a.readPayload(cmd, args, f)
	return spec, err
}

// check finds what is wrong with the flags as a whole.
func (f *submitFlags) check(cmd *cobra.Command, args []string) error {
	for _, names := range [][]string{{"payload", "payload-file", "data-file", "batch-file"}, {"delay", "not-before"}, {"batch-file", "key"}} {
		if err := exclusive(cmd, names...); err != nil {
			return err
		}
	}
	given := cmd.Flags().Changed
	usage := "write it as: fairlead job submit OPERATION --payload JSON"
	switch {
	case len(args) == 0 && !given("batch-file"):
		return failure.Usagef(usage, "fairlead job submit needs an OPERATION")
	case given("key") && f.key == "":
		return failure.Usagef("give a key, or leave --key out to have one made", "--key is empty")
	case len(args) == 2 && args[1] != "-":
		return failure.Usagef(usage, "fairlead job submit has an argument too many: %.40q", args[1])
	case len(args) == 2 && (given("payload") || given("payload-file") || given("data-file") || given("batch-file")):
		return failure.Usagef("give one payload", "- reads the payload from standard input, and a flag gives one too")
	case given("content-type") && !given("data-file"):
		return failure.Usagef("give the bytes with --data-file; JSON is always application/json", "--content-type says what --data-file holds, and there is none")
	case given("batch-file") && f.wait:
		return failure.Usagef("wait for the ids it prints: fairlead job wait $(fairlead job submit ... -o name)", "--wait cannot wait for a batch")
	case given("wait-timeout") && !f.wait:
		return failure.Usagef("add --wait", "--wait-timeout bounds --wait, which is not given")
	case given("max-attempts") && f.maxAttempts < 1:
		return failure.Usagef("give 1 to 100", "--max-attempts is %d, below 1", f.maxAttempts)
	}
	for flag, d := range map[string]time.Duration{"delay": f.delay.d, "timeout": f.timeout.d, "retention": f.retention.d, "wait-timeout": f.waitTimeout.d} {
		if d < 0 {
			return failure.Usagef("give a duration such as 10m", "--%s is %v, below 0", flag, d)
		}
	}
	if f.deadline.set && f.deadline.t.IsZero() && f.deadline.d <= 0 {
		return failure.Usagef("give a time to come", "--deadline is %v from now, which is past", f.deadline.d)
	}
	return nil
}

func (a *app) readPayload(cmd *cobra.Command, args []string, f *submitFlags) (*fairleadv1.Payload, error) {
	given := cmd.Flags().Changed
	switch {
	case given("payload"):
		return &fairleadv1.Payload{Body: &fairleadv1.Payload_Json{Json: f.payload}}, nil
	case given("data-file"):
		data, err := a.readInput(cmd.Context(), f.dataFile)
		return &fairleadv1.Payload{Body: &fairleadv1.Payload_Data{Data: data}, ContentType: f.contentType}, err
	case given("payload-file") || len(args) == 2:
		name := f.payloadFile
		if len(args) == 2 {
			name = "-"
		}
		text, err := a.readInput(cmd.Context(), name)
		// The line break that ends a file is the file's, not the document's.
		return &fairleadv1.Payload{Body: &fairleadv1.Payload_Json{Json: strings.TrimRight(string(text), "\r\n")}}, err
	default:
		return nil, nil // a job without a payload
	}
}

// readInput reads a file, or standard input for -, up to what a payload may have.
func (a *app) readInput(ctx context.Context, name string) ([]byte, error) {
	from := stoppable(ctx, a.in)
	if name != "-" {
		if !utf8.ValidString(name) || name == "" {
			return nil, failure.Usagef("name a file, or - for standard input", "%.40q names no file", name)
		}
		file, err := os.Open(name)
		if err != nil {
			return nil, &failure.Problem{Code: failure.Usage, What: "the payload cannot be read", Why: err.Error(), Remedy: "name another file", Err: err}
		}
		defer file.Close() //nolint:errcheck // only read
		from = file
	}
	text, err := io.ReadAll(io.LimitReader(from, payloadBytesMax+1))
	if err != nil {
		return nil, fmt.Errorf("reading the payload: %w", err)
	}
	if len(text) > payloadBytesMax {
		return nil, failure.Usagef("keep the data elsewhere and submit a reference to it", "the payload has more than %d bytes", payloadBytesMax)
	}
	return text, nil
}
