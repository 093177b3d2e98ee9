package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/cmd/fairlead/localcluster"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
)

// demoCluster runs the demo of a cluster and writes what it found.
func (a *app) demoCluster(cmd *cobra.Command, c localcluster.Config) error {
	p, err := a.demoOfCluster(cmd, "cluster")
	if err != nil {
		return err
	}
	s := a.demoScreen(p)
	var problem error
	err = localcluster.Run(cmd.Context(), c, localcluster.Screen(s), func(r *localcluster.Report) error {
		problem = demoClusterProblem(r)
		return a.printDemoCluster(p, r, c.Keep)
	})
	if err != nil {
		return err
	}
	return problem
}

// demoOfCluster checks what a demo of a cluster is given, by the flag that asks for it.
func (a *app) demoOfCluster(cmd *cobra.Command, flag string) (*output.Printer, error) {
	l, err := a.load(cmd)
	if err != nil {
		return nil, err
	}
	p := a.printer(l)
	if p.Format == output.FormatName {
		return nil, failure.Usagef("use table, json or yaml", "fairlead demo has no names to print with -o name")
	}
	for _, other := range []string{"bulk-jobs", "quiet-tenants", "service", "slots", "seed", "exec"} {
		if err := exclusive(cmd, flag, other); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// clusterReport is what a demo of a cluster came to.
type clusterReport interface {
	Text(width int) string
	JSON() ([]byte, error)
	Usage() string
}

func (a *app) printDemoCluster(p *output.Printer, r clusterReport, kept bool) error {
	var err error
	if p.Human() {
		_, err = io.WriteString(a.out, "\n"+r.Text(a.demoColumns()))
	} else {
		var text []byte
		if text, err = r.JSON(); err == nil {
			err = p.Document(text)
		}
		if kept {
			a.sayf("%s", r.Usage())
		}
	}
	if err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

// demoColumns is how wide the text of a demo is.
func (a *app) demoColumns() int {
	if w, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil && a.screen {
		return w
	}
	return demoWidth
}

// demoClusterProblem is why a demo of a cluster that ran to its end did not end well.
func demoClusterProblem(r *localcluster.Report) error {
	n := r.Jobs()
	elsewhere, first := r.ElsewhereErrors()
	switch {
	case n.Lost > 0:
		return &failure.Problem{
			Code: failure.Failed, What: fmt.Sprintf("%d of %d accepted jobs have not been completed in time", n.Lost, n.Accepted),
			Remedy: "run it with --dir, which keeps the state and the logs to look into",
		}
	case elsewhere > 0:
		return &failure.Problem{
			Code: failure.Failed, What: fmt.Sprintf("the tenant of the cell that lost nothing saw %d errors", elsewhere), Why: first.Error(), Err: first,
		}
	default:
		return nil
	}
}

// demoWhale runs the demo of a tenant that is moved while it runs, and writes what it found.
func (a *app) demoWhale(cmd *cobra.Command, c localcluster.Config) error {
	p, err := a.demoOfCluster(cmd, "whale")
	if err != nil {
		return err
	}
	var problem error
	err = localcluster.RunWhale(cmd.Context(), c, localcluster.Screen(a.demoScreen(p)), func(r *localcluster.WhaleReport) error {
		problem = demoWhaleProblem(r)
		return a.printDemoCluster(p, r, c.Keep)
	})
	if err != nil {
		return err
	}
	return problem
}

// demoWhaleProblem is why a demo of a whale that ran to its end did not end well.
func demoWhaleProblem(r *localcluster.WhaleReport) error {
	f := r.Figures()
	p := &failure.Problem{Code: failure.Failed, Remedy: "run it with --dir, which keeps the state and the logs to look into"}
	switch {
	case !r.Moved():
		p.What, p.Why = "the whale has not been moved", r.Stand()
	case f.Lost > 0:
		p.What = fmt.Sprintf("%d of %d accepted jobs have not been completed in time", f.Lost, f.Accepted)
	case f.Twice > 0:
		p.What = fmt.Sprintf("%d jobs are there twice, or were completed twice", f.Twice)
	case f.Errors > 0:
		p.What, p.Err = fmt.Sprintf("applications saw %d errors", f.Errors), r.FirstError()
		p.Why = p.Err.Error()
	default:
		return nil
	}
	return p
}

// demoMemberCommand is what the cluster's processes run as.
func (a *app) demoMemberCommand() *cobra.Command {
	return demoProcess(localcluster.MemberCommand, "Be a process of fairlead demo --cluster", func(cmd *cobra.Command) error {
		return localcluster.Member(cmd.Context(), a.in, func(ctx context.Context, args []string) error {
			member := *a
			if code := member.execute(ctx, args); code != failure.OK {
				return &failure.Problem{Code: code} // it has said why
			}
			return nil
		})
	})
}
