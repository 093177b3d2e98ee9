package main

import (
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
	"github.com/fairlead/fairlead/e2e/sim"
	"github.com/fairlead/fairlead/e2e/sim/report"
)

func (a *app) simCompareCommand() *cobra.Command {
	var input simInput
	var scenario, out string
	format := newSimFormat(formatCSV)
	cmd := &cobra.Command{
		Use: "compare BEFORE AFTER --scenario SCENARIO|FILE", Short: "Show who would gain and who would lose by a change of policy",
		Long: `Compare replays the same work under two policies, and shows tenant by tenant what going from the first to the second does: to the wait that half
of its jobs and that 95 % of them stay within, and to when it is done. Who loses comes first.

BEFORE and AFTER are policies as for sim run: names, or policy files. The work is a scenario or a trace, such as yesterday's of your own cell. A
tenant gains when more of its jobs are completed; or else when its p95 wait is shorter; or else its p50; or else when it is done sooner.`,
		Example: `  fairlead sim compare fifo fairlead --scenario quiet-and-bulk-500ms
  fairlead sim compare today.yaml proposed.yaml --scenario yesterday.csv -o csv`,
		Args: arguments(false, "BEFORE", "AFTER"),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 1 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return sim.Policies(), cobra.ShellCompDirectiveDefault
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := a.load(cmd)
			if err != nil {
				return err
			}
			form, err := format.of(cmd, out, l.Config.Client.Output)
			if err != nil {
				return err
			}
			if scenario == "" {
				return failure.Usagef("give a name of fairlead sim list, or a file: --scenario quiet-and-bulk-500ms", "--scenario is missing")
			}
			s, err := a.scenario(cmd, scenario, &input)
			if err != nil {
				return err
			}
			var sums []*report.Summary
			if err := a.simulateAll(cmd.Context(), s, args, func(run *sim.Run) { sums = append(sums, report.Summarise(run)) }); err != nil {
				return err
			}
			c := report.Compare(sums[0], sums[1])
			file, err := comparison(c, form, report.Options{Wide: form == string(output.FormatWide), About: report.About(s), Width: a.width()})
			if err != nil {
				return err
			}
			file.name = s.Name + "-compared." + extension(form)
			return a.deliver(out, []simFile{file})
		},
	}
	f := cmd.Flags()
	f.StringVar(&scenario, "scenario", "", "`work` to replay: a name of sim list, a scenario file or a trace")
	input.add(cmd)
	format.add(cmd)
	f.StringVar(&out, "out", "", "`file` or folder to write to, instead of standard output")
	must(cmd.RegisterFlagCompletionFunc("scenario", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return sim.Builtins(), cobra.ShellCompDirectiveDefault
	}))
	return cmd
}

func comparison(c *report.Comparison, format string, o report.Options) (f simFile, err error) {
	switch format {
	case string(output.FormatTable), string(output.FormatWide):
		f.text = []byte(c.Table(o))
	case string(output.FormatJSON), string(output.FormatYAML):
		f.text, err = c.JSON()
		f.text, err = rendered(f.text, output.Format(format), err)
	default:
		f.text, err = c.CSV()
	}
	return f, err
}
