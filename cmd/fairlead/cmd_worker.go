package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cmd/fairlead/config"
	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
	"github.com/fairlead/fairlead/dataplane/client"
	"github.com/fairlead/fairlead/dataplane/worker"
)

func (a *app) workerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "worker --operation OPERATION [-- COMMAND [ARG]...]", Short: "Lease jobs and run a program for each, or post them",
		Long: `Worker leases jobs of the named operations and runs a program for each: the payload is its standard input, standard output is the result,
exit code 0 is success, 100 a failure that no retry can help, any other a failure that is retried. Standard error is kept when it
fails. FAIRLEAD_JOB_ID, FAIRLEAD_TENANT, FAIRLEAD_OPERATION, FAIRLEAD_ATTEMPT and FAIRLEAD_DEADLINE say what it runs for. With --http
each job is posted instead, and the answer is the result. With --echo no program runs: each job's result is its payload, which is enough to
try a cluster by, and needs no shell.

What a job used, such as tokens=812, may be written line by line to the file that FAIRLEAD_USAGE_FILE names, or answered in the header
Fairlead-Usage. A cell whose cost is of a resource charges by it.

On SIGTERM it leases nothing more, hands back what has not started, and lets running jobs end within --drain-timeout. A second
signal ends it at once. A key with the scope work is needed: the platform's leases every tenant's jobs, a tenant's only its own.`,
		Example: `  fairlead worker --operation count --exec 'wc -c'
  fairlead worker --operation invoice.export --slots 4 -- sh -c 'echo "done: $FAIRLEAD_JOB_ID"'
  fairlead worker --operation mail.send --http https://mailer.example.com/jobs
  fairlead worker --operation try --echo --echo-delay 100ms --cell cell-a`,
		ValidArgsFunction: cobra.NoFileCompletions,
		Args: func(cmd *cobra.Command, args []string) error {
			if dash := cmd.ArgsLenAtDash(); len(args) > 0 && dash != 0 {
				return failure.Usagef("write the program after --, as in: fairlead worker --operation count -- wc -c", "fairlead worker has an argument too many: %.40q", args[0])
			}
			return utf8Arguments(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.work(cmd, args) },
	}
	addWorkerFlags(cmd)
	return cmd
}

func addWorkerFlags(cmd *cobra.Command) {
	d, f := config.DefaultWorker(), cmd.Flags()
	f.StringArray("operation", nil, "`operation` to work on, repeated; 1 to 64")
	f.String("exec", "", "shell `command` to run for each job")
	f.String("http", "", "`URL` to post each job to")
	f.Bool("echo", false, "answer each job with its payload, without a program")
	f.Var(newDuration(d.EchoDelay), "echo-delay", "how long --echo takes for a job")
	f.Int("slots", d.Slots, "`jobs` to run at once; one for each CPU when not given")
	f.Int("prefetch", d.Prefetch, "`jobs` to hold beyond that, not started")
	f.Var(newEnumList(config.ClassNames()), "class", "only jobs of these classes, repeated or with commas: "+strings.Join(config.ClassNames(), ", "))
	f.String("cell", "", "`cell` to work for; the tenant's own, or the only one, when not given")
	f.Int("group", 0, "worker `group` that it belongs to, 1 to 64, where tenants are dealt hands of groups; 0 for none")
	f.String("name", "", "`name` for people; the host's when not given")
	f.Var(newDuration(d.Lease), "lease", "how long the cell waits for a sign of life before the job goes to another worker, 5s to 1h")
	f.Var(newDuration(d.DrainTimeout), "drain-timeout", "how long running jobs may take to end after SIGTERM")
	f.Bool("allow-plain-http", false, "let --http be a URL without TLS")
	f.Bool("allow-private-address", false, "let --http lead to loopback and private addresses")
	f.Var(newEnum(d.LogLevel, config.LogLevels()), "log-level", "least `level` to log: "+strings.Join(config.LogLevels(), ", "))
	f.Var(newEnum(d.LogFormat, config.LogFormats()), "log-format", "`format` of the log: "+strings.Join(config.LogFormats(), ", "))
	keys := make(map[string]string)
	for _, name := range []string{
		"operation", "exec", "http", "echo", "echo-delay", "slots", "prefetch", "class", "cell", "group", "name", "lease", "drain-timeout", "allow-plain-http", "allow-private-address",
		"log-level", "log-format",
	} {
		keys[name] = "worker." + name
	}
	bind(f, keys)
	completeEnum(cmd, "class", config.ClassNames())
	completeEnum(cmd, "log-level", config.LogLevels())
	completeEnum(cmd, "log-format", config.LogFormats())
	completeNothing(cmd, "operation", "exec", "http", "echo-delay", "slots", "prefetch", "cell", "group", "name", "lease", "drain-timeout")
}

// work runs a worker until the context ends. Ending in order is no failure, whatever signal asked for it.
func (a *app) work(cmd *cobra.Command, argv []string) error {
	l, err := a.load(cmd)
	if err != nil {
		return err
	}
	c := l.Config.Worker
	if err := l.Check(c.Validate(), c.Missing(argv)); err != nil {
		return err
	}
	handler, err := workerHandler(c, argv)
	if err != nil {
		return err
	}
	registry := worker.NewRegistry()
	for _, op := range c.Operations {
		if err := registry.Add(op, handler); err != nil {
			return err
		}
	}
	id, err := a.identify(l, roleWorker)
	if err != nil {
		return err
	}
	a.tellAddress(l, id)
	if err := checkPlain(l, id); err != nil {
		return err
	}
	w, err := worker.New(a.workerConfig(l, id), registry)
	if err != nil {
		return err
	}
	a.sayf("Working on %s at %s: %d jobs at once.", strings.Join(c.Operations, ", "), id.addr, c.Slots)
	return a.workerEnded(w, id, w.Run(cmd.Context()))
}

// workerConfig is the configuration in the SDK's terms, where 0 stands for a default.
func (a *app) workerConfig(l *config.Loaded, id target) worker.Config {
	c := l.Config.Worker
	cfg := worker.Config{
		Client: clientConfig(l, id), Name: c.Name, Cell: c.Cell, Group: c.Group, Slots: c.Slots, Prefetch: orNone(c.Prefetch), LeaseDuration: c.Lease,
		DrainTimeout: orNone(c.DrainTimeout), Logger: newLogger(a.err, c.LogLevel, c.LogFormat),
	}
	for _, class := range cell.Classes() {
		for _, name := range c.Classes {
			if name == class.String() {
				cfg.Classes = append(cfg.Classes, class)
			}
		}
	}
	return cfg
}

// orNone returns what the SDK takes for none, for 0.
func orNone[T int | time.Duration](n T) T {
	if n == 0 {
		return -1
	}
	return n
}

func workerHandler(c config.Worker, argv []string) (worker.HandlerFunc, error) {
	if c.Echo {
		return echo(c.EchoDelay), nil
	}
	if c.HTTP == "" {
		return worker.Exec(worker.ExecConfig{Command: argv, Shell: c.Exec})
	}
	h, err := worker.HTTP(worker.HTTPConfig{URL: c.HTTP, AllowPlain: c.AllowPlainHTTP, AllowPrivate: c.AllowPrivateAddress})
	if fe, ok := errors.AsType[*cell.FieldError](err); ok && !c.AllowPrivateAddress { // what else there is to refuse has been checked
		return nil, &cell.FieldError{Field: "--http", Problem: fe.Problem, Remedy: fe.Remedy + ", or --allow-private-address for loopback and private ones"}
	}
	return h, err
}

// echo returns a handler whose result is the payload, after a while.
func echo(delay time.Duration) worker.HandlerFunc {
	return func(ctx context.Context, task *worker.Task) (client.Payload, error) {
		if err := client.Pause(ctx, delay); err != nil {
			return client.Payload{}, err
		}
		return task.Payload, nil
	}
}

// workerEnded says what was done, and turns what Run returned into an error for people.
func (a *app) workerEnded(w *worker.Worker, id target, err error) error {
	st := w.Stats()
	a.sayf("Done: %d succeeded, %d failed, %d handed back; slots were busy %s of %s.", st.Succeeded, st.Failed, st.Released,
		output.Duration(st.BusyTime), output.Duration(st.SlotTime))
	switch {
	case err == nil:
		return nil
	case errors.Is(err, worker.ErrAbandoned), errors.Is(err, worker.ErrUnreported):
		return &failure.Problem{
			Code: failure.Failed, What: "the worker could not end in order", Why: err.Error(), Err: err,
			Remedy: "nothing is lost: those jobs run again elsewhere; give more time with --drain-timeout",
		}
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("worker: %w", err)
	default:
		return &failure.Call{Doing: "work for " + id.addr, Addr: id.addr, Identity: id.name, Err: err}
	}
}
