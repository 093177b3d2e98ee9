package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
	"github.com/fairlead/fairlead/e2e/sim"
)

func (a *app) simCommand() *cobra.Command {
	return group("sim", "Try a policy on a virtual clock before anybody waits for it",
		`Sim replays work through scheduling policies on a virtual clock: first come first served, round robin, and the very scheduler that a cell
runs. The work is a scenario that comes with it, one of your own, or a trace of what a cell or another system really did. The same input
gives the same bytes, and nothing is contacted but by sim capture.`,
		`  fairlead sim list
  fairlead sim run quiet-and-bulk-500ms --policy fifo --policy capped-rr --policy fairlead
  fairlead sim compare fifo fairlead --scenario yesterday.csv`,
		a.simListCommand(), a.simShowCommand(), a.simRunCommand(), a.simCompareCommand(), a.simCaptureCommand())
}

func (a *app) simListCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the scenarios that come with the simulator",
		Long:    "List shows the scenarios that need no file: published workloads whose figures are known.",
		Example: "  fairlead sim list\n  fairlead sim list -o name",
		Args:    arguments(false), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := a.load(cmd)
			if err != nil {
				return err
			}
			if err := a.printScenarios(a.printer(l)); err != nil {
				return err
			}
			a.next("fairlead sim run %s", sim.Builtins()[1])
			return nil
		},
	}
}

// scenarioView is a scenario in the machine's formats.
type scenarioView struct {
	Name    string `json:"name"`
	Summary string `json:"summary"`
}

func (a *app) printScenarios(p *output.Printer) error {
	var views []scenarioView
	for _, name := range sim.Builtins() {
		views = append(views, scenarioView{Name: name, Summary: sim.BuiltinSummary(name)})
	}
	switch {
	case p.Human():
		var rows [][]string
		for _, v := range views {
			rows = append(rows, []string{v.Name, v.Summary})
		}
		return p.Section([]output.Column{{Name: "SCENARIO"}, {Name: "WHAT HAPPENS"}}, rows)
	case p.Format == output.FormatName:
		for _, v := range views {
			if err := p.Text(v.Name); err != nil {
				return err
			}
		}
		return nil
	default:
		text, err := json.MarshalIndent(map[string]any{"items": views}, "", "  ")
		if err != nil {
			return fmt.Errorf("as JSON: %w", err)
		}
		return p.Document(text)
	}
}

func (a *app) simShowCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show SCENARIO", Short: "Print a scenario as YAML, to begin your own with",
		Long: `Show prints the text of a scenario that comes with the simulator. Change it and run the file: workers, cohorts of tenants, when their jobs come
and how long they run, and the policy that fairlead goes by.`,
		Example: "  fairlead sim show quiet-and-bulk-500ms > mine.yaml\n  fairlead sim run mine.yaml",
		Args:    arguments(false, "SCENARIO"), ValidArgsFunction: cobra.FixedCompletions(sim.Builtins(), cobra.ShellCompDirectiveNoFileComp),
		RunE: func(_ *cobra.Command, args []string) error {
			text, err := sim.BuiltinText(args[0])
			if err != nil {
				return unknownScenario(args[0])
			}
			if _, err := a.out.Write(text); err != nil {
				return fmt.Errorf("writing the scenario: %w", err)
			}
			return nil
		},
	}
}

// The pictures of a simulation.
const (
	pictureTimeline = "timeline" // who held which slot, and who waited
	pictureWaits    = "waits"    // how waits are distributed
	pictureShares   = "shares"   // how many slots each tenant held
)

func pictures() []string { return []string{pictureTimeline, pictureWaits, pictureShares} }

// The formats that only simulations have.
const (
	formatCSV = "csv"
	formatSVG = "svg"
)

// simFormat is the flag -o of commands that simulate, which have more formats than others and no names to print. It stands before the root's.
type simFormat struct{ enumValue }

func newSimFormat(more ...string) *simFormat {
	valid := []string{string(output.FormatTable), string(output.FormatWide), string(output.FormatJSON), string(output.FormatYAML)}
	return &simFormat{enumValue{value: string(output.FormatTable), valid: append(valid, more...)}}
}

func (f *simFormat) add(cmd *cobra.Command) {
	cmd.Flags().VarP(f, "output", "o", "`format`: "+joined(f.valid))
	completeEnum(cmd, "output", f.valid)
}

// of returns the format in force: the flag's, or else what the file's name says, or else the configuration's.
func (f *simFormat) of(cmd *cobra.Command, file, configured string) (string, error) {
	if cmd.Flags().Changed("output") {
		return f.value, nil
	}
	if byName := formatOf(file, f.valid); byName != "" {
		return byName, nil
	}
	if err := f.Set(configured); err != nil {
		return "", failure.Usagef("use "+joined(f.valid), "%s has nothing to print with -o %s", cmd.CommandPath(), configured)
	}
	return f.value, nil
}
