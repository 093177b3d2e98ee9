package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
	"github.com/fairlead/fairlead/e2e/sim"
	"github.com/fairlead/fairlead/e2e/sim/report"
)

// simRun is what sim run was told.
type simRun struct {
	input     simInput
	format    *simFormat
	policies  []string
	out       string
	tenants   bool
	jobs      bool
	objective *durationValue
	picture   *enumValue
	from, to  *durationValue
}

func (a *app) simRunCommand() *cobra.Command {
	r := &simRun{
		format: newSimFormat(formatCSV, formatSVG), objective: newDuration(0), picture: newEnum(pictureTimeline, pictures()),
		from: newDuration(0), to: newDuration(0),
	}
	cmd := &cobra.Command{
		Use: "run SCENARIO|FILE", Short: "Replay work through policies and show what tenants waited",
		Long: `Run replays one scenario under each policy and compares them in one table: what jobs waited, when the bulk was done, and how busy the slots were.

SCENARIO is a name of sim list, a scenario file (.yaml), or a trace (.csv, .jsonl, .swf, also with .gz; - reads one from standard input). A policy
is fifo (first come first served), rr (round robin over tenants), capped-rr (the same with at most 2 running jobs of a tenant; capped-rr:5 for
another cap), drr (deficit round robin), fairlead (the scheduler that a cell runs, with the scenario's own policy), or a policy file.

-o csv gives a line for each cohort, with --tenants for each tenant too, and with --jobs for each job. -o svg draws: --picture timeline shows who
held which slot and who waited, waits how long jobs waited, shares how much each tenant had. With --out a file is written, of the format that
its name ends in; into a folder all three pictures are.

With --objective the table shows both views of it: of all work, which can hide a tenant, and of tenants.`,
		Example: `  fairlead sim run quiet-and-bulk-500ms --policy fifo --policy capped-rr --policy fairlead
  fairlead sim run quiet-and-bulk-500ms --out pictures/ -o svg
  fairlead sim run yesterday.csv --policy fairlead --tenants --objective 250ms
  fairlead sim run two-million-export --policy fairlead -o json`,
		Args:              arguments(false, "SCENARIO"),
		ValidArgsFunction: completeScenarios,
		RunE:              func(cmd *cobra.Command, args []string) error { return a.simRun(cmd, args[0], r) },
	}
	f := cmd.Flags()
	f.StringSliceVar(&r.policies, "policy", []string{sim.PolicyFIFO, sim.PolicyFairlead}, "`policy` to try; repeat it to compare several")
	r.input.add(cmd)
	r.format.add(cmd)
	f.StringVar(&r.out, "out", "", "`file` or folder to write to, instead of standard output")
	f.BoolVar(&r.tenants, "tenants", false, "show each tenant as well")
	f.BoolVar(&r.jobs, "jobs", false, "with -o csv, write a line for each job instead")
	f.Var(r.objective, "objective", "within what time of their arrival 99 % of jobs should be done: shows who misses it")
	f.Var(r.picture, "picture", "with -o svg, which picture: "+joined(pictures()))
	f.Var(r.from, "from", "with -o svg, where the picture begins")
	f.Var(r.to, "to", "with -o svg, where the picture ends (default the end)")
	completePolicies(cmd, "policy")
	completeEnum(cmd, "picture", pictures())
	completeNothing(cmd, "objective", "from", "to")
	return cmd
}

func completeScenarios(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return sim.Builtins(), cobra.ShellCompDirectiveDefault
}

func (a *app) simRun(cmd *cobra.Command, name string, r *simRun) error {
	l, err := a.load(cmd)
	if err != nil {
		return err
	}
	format, err := r.format.of(cmd, r.out, l.Config.Client.Output)
	if err != nil {
		return err
	}
	if err := r.check(cmd, format); err != nil {
		return err
	}
	s, err := a.scenario(cmd, name, &r.input)
	if err != nil {
		return err
	}
	var runs []*sim.Run
	var sums []*report.Summary
	whole := format == formatSVG || r.jobs
	err = a.simulateAll(cmd.Context(), s, r.policies, func(run *sim.Run) {
		if whole {
			runs = append(runs, run)
		} else {
			sums = append(sums, report.Summarise(run))
		}
	})
	if err != nil {
		return err
	}
	var files []simFile
	if whole {
		files, err = r.wholeFiles(s, runs, format)
	} else {
		files, err = r.figures(a, s, sums, format)
	}
	if err != nil {
		return err
	}
	return a.deliver(r.out, files)
}

// check returns what is wrong with the flags together.
func (r *simRun) check(cmd *cobra.Command, format string) error {
	if r.jobs && format != formatCSV {
		return failure.Usagef("add -o csv", "--jobs writes CSV only")
	}
	for _, name := range []string{"picture", "from", "to"} {
		if cmd.Flags().Changed(name) && format != formatSVG {
			return failure.Usagef("add -o svg", "--%s is about a picture, and there is none with -o %s", name, format)
		}
	}
	if len(r.policies) == 0 {
		return failure.Usagef("give one of "+joined(sim.Policies())+", or a policy file", "--policy is empty")
	}
	for _, f := range []struct {
		name string
		d    time.Duration
	}{{"objective", r.objective.d}, {"from", r.from.d}, {"to", r.to.d}} {
		if f.d < 0 {
			return failure.Usagef("give a duration such as 250ms", "--%s is %v, below 0", f.name, f.d)
		}
	}
	if r.to.d > 0 && r.to.d <= r.from.d {
		return failure.Usagef("give a later --to", "--to is %v, not after --from, %v", r.to.d, r.from.d)
	}
	return nil
}

// simFile is one file of an answer.
type simFile struct {
	name string // in a folder
	text []byte
}

// wholeFiles returns an answer that shows every job: pictures, several where a folder is to be filled with them, or jobs as CSV.
func (r *simRun) wholeFiles(s *sim.Scenario, runs []*sim.Run, format string) ([]simFile, error) {
	if format == formatSVG {
		return r.drawings(isFolder(r.out), s.Name, runs), nil
	}
	var b bytes.Buffer
	err := report.WriteJobs(&b, runs)
	return []simFile{{s.Name + "-jobs.csv", b.Bytes()}}, err
}

// figures returns an answer that shows what the jobs came to.
func (r *simRun) figures(a *app, s *sim.Scenario, sums []*report.Summary, format string) ([]simFile, error) {
	rep := report.New(sums, report.Options{
		Tenants: r.tenants, Objective: r.objective.d, Wide: format == string(output.FormatWide), About: report.About(s), Width: a.width(),
	})
	var text []byte
	var err error
	switch format {
	case string(output.FormatTable), string(output.FormatWide):
		text = []byte(rep.Table())
	case string(output.FormatJSON), string(output.FormatYAML):
		text, err = rep.JSON()
		text, err = rendered(text, output.Format(format), err)
	default:
		text, err = rep.CSV()
	}
	return []simFile{{s.Name + "." + extension(format), text}}, err
}

func (r *simRun) drawings(folder bool, name string, runs []*sim.Run) []simFile {
	window := report.Window{From: r.from.d, To: r.to.d}
	draw := map[string]func() []byte{
		pictureTimeline: func() []byte { return report.Timeline(runs, window) },
		pictureWaits:    func() []byte { return report.Waits(runs) },
		pictureShares:   func() []byte { return report.Shares(runs, window) },
	}
	which := []string{r.picture.value}
	if folder {
		which = pictures()
	}
	var files []simFile
	for _, p := range which {
		files = append(files, simFile{name + "-" + p + ".svg", draw[p]()})
	}
	return files
}

// rendered returns JSON in the format that was asked for.
func rendered(text []byte, format output.Format, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	p := output.Printer{Out: &b, Format: format}
	err = p.Document(text)
	return b.Bytes(), err
}

// width is how wide text for people may be.
func (a *app) width() int {
	if w, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil && a.screen {
		return w
	}
	return 0
}

// deliver writes an answer to standard output, or to a file or a folder.
func (a *app) deliver(out string, files []simFile) error {
	for _, f := range files {
		path := out
		if isFolder(out) {
			path = filepath.Join(out, f.name)
		}
		if out == "" {
			if _, err := a.out.Write(f.text); err != nil {
				return fmt.Errorf("writing the answer: %w", err)
			}
			continue
		}
		if dir := filepath.Dir(path); isFolder(out) {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return unwritable(dir, err)
			}
		}
		if err := os.WriteFile(path, f.text, 0o644); err != nil {
			return unwritable(path, err)
		}
		a.sayf("Wrote %s.", path)
	}
	return nil
}

func unwritable(path string, err error) error {
	return &failure.Problem{Code: failure.Failed, What: path + " cannot be written", Why: err.Error(), Remedy: "give another path with --out", Err: err}
}

// isFolder reports whether a path is a folder's, or is written as one.
func isFolder(path string) bool {
	if path == "" {
		return false
	}
	if strings.HasSuffix(path, "/") || strings.HasSuffix(path, string(filepath.Separator)) {
		return true
	}
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// extension is what the name of a file of a format ends in.
func extension(format string) string {
	if format == string(output.FormatTable) || format == string(output.FormatWide) {
		return "txt"
	}
	return format
}

// formatOf returns the format that a file's name ends in, if it is one of those that are valid.
func formatOf(file string, valid []string) string {
	ext := strings.TrimPrefix(strings.ToLower(filepath.Ext(file)), ".")
	if ext == "yml" {
		ext = string(output.FormatYAML)
	}
	for _, v := range valid {
		if v == ext {
			return v
		}
	}
	return ""
}

func joined(words []string) string { return strings.Join(words, ", ") }
