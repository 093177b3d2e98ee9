package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/fairlead/fairlead/cmd/fairlead/config"
	"github.com/fairlead/fairlead/cmd/fairlead/demo"
	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/cmd/fairlead/localcluster"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
)

func (a *app) demoCommand() *cobra.Command {
	c := demo.DefaultConfig()
	var cluster, whale bool
	service := &serviceValue{d: c.Service}
	cmd := &cobra.Command{
		Use: "demo", Short: "Watch a noisy neighbour, with and without Fairlead",
		Long: `Demo runs the same jobs twice on this machine, first come, first served and then through Fairlead: one bulk tenant submits hundreds at
once, the quiet tenants a job now and then, and all of them share the same slots. It starts the real thing each time: a server
with a durable log, worker processes, and applications with a key for each tenant that submit over loopback. It ends with what the
quiet tenants waited, from the call that submits a job to the start of its handler. -o json gives the figures as one object.

With --dir the jobs are your own files: each sub-folder is a tenant, and each file in it, however deep, a job. Without --exec a
worker counts lines and bytes. With it the shell runs your command for each file, in both runs, with the file as its standard
input; FAIRLEAD_FILE is its path and FAIRLEAD_TENANT its tenant. It may print 64 KiB; a code other than 0 counts as failed. The job's
payload is the file's path, so that files of any size work. Symbolic links, and names that begin with a dot, are left out.

With --cluster it starts a cluster on loopback instead: three control agents, a cell of three replicas, one of one, a gateway and a worker
for each cell, all with certificates. Two tenants submit steadily while the leaders of control and of a cell are killed and started again,
and it ends with what was accepted, completed and lost, and how long each failover took. --keep leaves it running until Ctrl-C and says how to
use it; --dir is the cluster's folder, which is kept and can be used again.

With --whale it starts a cluster of which one cell is shared: three neighbours submit steadily, and a whale floods the cell. Control finds it by
what is measured, and moves it to a cell of its own while it goes on; an hour of demand is a few seconds here, so that nobody waits for hours. It
ends with what the neighbours waited before, meanwhile and afterwards, how long each class of the whale stood still, and what was lost, done
twice or refused: nothing. It takes about a minute. --keep and --dir are as with --cluster.

Everything is in a temporary directory, which is removed at the end unless --keep, or --dir with --cluster or --whale, is given.`,
		Example: `  fairlead demo
  fairlead demo --bulk-jobs 2000 --slots 16 -o json
  fairlead demo --dir ./customers
  fairlead demo --dir ./customers --exec 'gzip -c | wc -c'
  fairlead demo --cluster
  fairlead demo --cluster --dir ./my-cluster --keep
  fairlead demo --whale
  fairlead demo --whale -o json`,
		Args: arguments(false), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.Service = service.d
			switch {
			case cluster && whale:
				return exclusive(cmd, "cluster", "whale")
			case cluster:
				return a.demoCluster(cmd, localcluster.Config{Dir: c.Folder, Keep: c.Keep})
			case whale:
				return a.demoWhale(cmd, localcluster.Config{Dir: c.Folder, Keep: c.Keep})
			}
			return a.demo(cmd, c)
		},
	}
	f := cmd.Flags()
	f.IntVar(&c.BulkJobs, "bulk-jobs", c.BulkJobs, "`jobs` that the bulk tenant submits at once")
	f.IntVar(&c.QuietTenants, "quiet-tenants", c.QuietTenants, fmt.Sprintf("`tenants` that submit %d jobs each meanwhile", demo.QuietJobsEach))
	f.Var(service, "service", "how long a job takes, give or take a quarter; a plain number is milliseconds")
	f.IntVar(&c.Slots, "slots", c.Slots, "`jobs` to run at once, in two worker processes")
	f.Uint64Var(&c.Seed, "seed", c.Seed, "`number` that chooses service times and moments")
	f.StringVar(&c.Folder, "dir", "", "`folder` with a sub-folder of files for each tenant, to work on instead; the cluster's own with --cluster or --whale")
	f.StringVar(&c.Program, "exec", "", "shell `command` to run for each file of --dir")
	f.BoolVar(&cluster, "cluster", false, "show a cluster that loses its leaders instead")
	f.BoolVar(&whale, "whale", false, "show a tenant that floods its neighbours' cell, and is moved to one of its own while it runs, instead")
	f.BoolVar(&c.Keep, "keep", false, "leave the state directory behind, to look into; with --cluster or --whale, leave the cluster running")
	must(cmd.MarkFlagDirname("dir"))
	completeNothing(cmd, "bulk-jobs", "quiet-tenants", "service", "slots", "seed", "exec")
	return cmd
}

// demoWidth is how wide the text is where there is no terminal to say so.
const demoWidth = 100

// demo runs the demo and writes what it found.
func (a *app) demo(cmd *cobra.Command, c demo.Config) error {
	l, err := a.load(cmd)
	if err != nil {
		return err
	}
	p := a.printer(l)
	if p.Format == output.FormatName {
		return failure.Usagef("use table, json or yaml", "fairlead demo has no names to print with -o name")
	}
	for _, own := range []string{"bulk-jobs", "quiet-tenants", "service", "seed"} {
		if err := exclusive(cmd, "dir", own); err != nil {
			return err
		}
	}
	if err := c.Validate(); err != nil {
		return err
	}
	report, err := demo.Run(cmd.Context(), c, a.demoScreen(p))
	if err != nil {
		return err
	}
	if p.Human() {
		_, err = io.WriteString(a.out, "\n"+report.Text(a.demoColumns()))
	} else {
		var text []byte
		if text, err = report.JSON(); err == nil {
			err = p.Document(text)
		}
		if report.Kept != "" {
			a.sayf("The state of both runs is in %s.", report.Kept)
		}
	}
	if err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return demoProblem(report.Jobs(), c)
}

// demoScreen draws the live view on a terminal, unless the answer is for a program.
func (a *app) demoScreen(p *output.Printer) demo.Screen {
	s := demo.Screen{Talk: a.err, Plain: os.Getenv("NO_COLOR") != ""}
	if p.Human() && a.screen && os.Getenv("TERM") != "dumb" {
		s.Out = a.out
		if term.IsTerminal(int(os.Stdin.Fd())) {
			s.In = a.in
		}
	}
	return s
}

// demoProblem is why a demo that ran to its end did not end well.
func demoProblem(n demo.Jobs, c demo.Config) error {
	switch {
	case n.Lost > 0:
		return &failure.Problem{
			Code: failure.Failed, What: fmt.Sprintf("%d of %d accepted jobs have not ended in time", n.Lost, n.Accepted),
			Remedy: "give the machine less to do: fewer --slots or --bulk-jobs; --keep leaves the state to look into",
		}
	case n.Failed > 0 && c.Folder != "":
		return &failure.Problem{
			Code: failure.Failed, What: fmt.Sprintf("%d of %d files, of both runs together, could not be worked on", n.Failed, n.Accepted),
			Why: "the program, or opening the file, failed as shown above",
		}
	case n.Failed > 0:
		return &failure.Problem{Code: failure.Failed, What: fmt.Sprintf("%d of %d jobs failed", n.Failed, n.Accepted)}
	default:
		return nil
	}
}

// demoServerCommand and demoWorkerCommand are the processes that demo starts.
func (a *app) demoServerCommand() *cobra.Command {
	return demoProcess(demo.ServerCommand, "Be the server of fairlead demo", func(cmd *cobra.Command) error {
		return demo.Serve(cmd.Context(), a.in, a.out, a.err)
	})
}

func (a *app) demoWorkerCommand() *cobra.Command {
	return demoProcess(demo.WorkerCommand, "Be a worker of fairlead demo", func(cmd *cobra.Command) error {
		return demo.Work(cmd.Context(), a.in, a.out, a.err)
	})
}

func demoProcess(name, short string, run func(*cobra.Command) error) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short, Hidden: true,
		Long:    short + ", which starts it, tells it what to do on standard input, and ends it by closing that.",
		Example: "  fairlead demo",
		Args:    arguments(false), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd) },
	}
}

// serviceValue is a duration, of which a plain number is milliseconds.
type serviceValue struct{ d time.Duration }

func (v *serviceValue) String() string { return config.FormatDuration(v.d) }
func (v *serviceValue) Type() string   { return "duration" }

func (v *serviceValue) Set(s string) error {
	if ms, err := strconv.ParseInt(s, 10, 32); err == nil {
		v.d = time.Duration(ms) * time.Millisecond
		return nil
	}
	d := newDuration(0)
	if err := d.Set(s); err != nil {
		return &valueError{problem: "it is not a duration", remedy: "write it as 100ms or 2s"}
	}
	v.d = d.d
	return nil
}
