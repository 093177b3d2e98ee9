package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/cmd/fairlead/moveview"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

func (a *app) migratePlanCommand() *cobra.Command {
	var f moveFlags
	var o migrationOptions
	cmd := &cobra.Command{
		Use: "plan --tenant TENANT [--to CELL]", Short: "Show what moving a tenant would do, step by step, and whether it can be done now",
		Long: `Plan takes a migration through its steps without doing any of them. It shows each gate with what proves it, the steps in their order with what the
tenant notices of each and how it is undone, what is copied, how long that takes and how long a class stands still. Nothing is changed.

The exit code is 0 when it can be done now, and 3 when a gate blocks it.`,
		Example: `  fairlead migrate plan --tenant acme --to cell-b
  fairlead migrate plan acme
  fairlead migrate plan acme --to cell-b -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd, args); err != nil {
				return err
			}
			if err := o.check(cmd); err != nil {
				return err
			}
			s, l, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			return a.planMigration(cmd.Context(), s, a.printer(l), &fairleadv1.PlanMigrationRequest{Tenant: f.tenant, Target: f.to, Options: o.message(cmd)})
		},
	}
	f.add(a, cmd, "`cell` that it would go to; the best by placement when not given")
	o.add(cmd)
	return cmd
}

// planMigration shows a plan. It returns a problem of the code for what a gate blocks when there is a blocker.
func (a *app) planMigration(ctx context.Context, s *session, p *output.Printer, req *fairleadv1.PlanMigrationRequest) error {
	plan, err := call(ctx, s, "plan the migration of "+req.GetTenant(), s.migrations.PlanMigration, req)
	if err != nil {
		return err
	}
	if p.Human() {
		err = printMigrationPlan(p, plan, req.GetOptions())
	} else {
		err = p.Object(plan.GetTarget(), plan)
	}
	if err != nil {
		return err
	}
	if n := len(plan.GetBlockers()); n > 0 {
		return &failure.Problem{
			Code: failure.Unreachable, What: fmt.Sprintf("%s cannot be moved now: %s", plan.GetTenant(), moveview.Counted(n, "blocker")),
			Why: strings.Join(plan.GetBlockers(), "\n"), Remedy: "nothing was done; mend that, and plan again",
		}
	}
	a.sayf("Nothing is changed by a plan.")
	a.next("fairlead migrate start --tenant %s --to %s --wait", plan.GetTenant(), plan.GetTarget())
	return nil
}

// pauseMaxDefault is the server's, which a plan does not say.
const pauseMaxDefault = "2s"

func printMigrationPlan(p *output.Printer, plan *fairleadv1.PlanMigrationResponse, o *fairleadv1.MigrationOptions) error {
	pauseMax := pauseMaxDefault
	if o.GetPauseMax() != nil {
		pauseMax = output.ProtoDuration(o.GetPauseMax())
	}
	pairs := []output.Pair{
		{Key: "Tenant", Value: output.Safe(plan.GetTenant())},
		{Key: "From", Value: output.Safe(plan.GetSource())},
		{Key: "To", Value: output.Safe(plan.GetTarget())},
	}
	if len(plan.GetSteps()) > 0 { // else it was blocked before anything was foretold
		pairs = append(pairs,
			output.Pair{Key: "To copy", Value: fmt.Sprintf("%s, %s", moveview.Counted(int(plan.GetJobs()), "job"), output.Bytes(plan.GetBytes()))},
			output.Pair{Key: "Copying takes", Value: about(output.ProtoDuration(plan.GetCopyTime())) + ", while the tenant is served"},
			output.Pair{
				Key: "Pause", Value: fmt.Sprintf("%s for each class, one after the other; at %s it is taken back", about(output.ProtoDuration(plan.GetPause())), pauseMax),
			})
	}
	if err := p.Describe(pairs); err != nil {
		return err
	}
	if err := section(p, gateColumns(), gateRows(plan.GetGates())); err != nil {
		return err
	}
	if err := printSteps(p, plan); err != nil {
		return err
	}
	return p.Text("\n" + planVerdict(plan))
}

func printSteps(p *output.Printer, plan *fairleadv1.PlanMigrationResponse) error {
	if len(plan.GetSteps()) == 0 {
		return nil
	}
	if err := p.Text("\nSteps:"); err != nil {
		return err
	}
	switched := make(map[fairleadv1.Class]bool)
	for i, step := range plan.GetSteps() {
		notices := "nothing"
		if fenced(step) && !switched[step.GetClass()] {
			switched[step.GetClass()] = true
			notices = fmt.Sprintf("its %s jobs stand still for %s; calls wait that long, and none fails", classText(step.GetClass()), about(output.ProtoDuration(plan.GetPause())))
		}
		if err := p.Text(stepText(i+1, step, notices)); err != nil {
			return err
		}
	}
	return nil
}

// fenced reports whether a step is of the switch of a class: the first of them stops it.
func fenced(step *fairleadv1.PlannedStep) bool {
	return step.GetState() == fairleadv1.MigrationState_MIGRATION_STATE_RAMPING && step.GetClass() != fairleadv1.Class_CLASS_UNSPECIFIED
}

func stepText(n int, step *fairleadv1.PlannedStep, notices string) string {
	what := moveview.State(step.GetState())
	if c := step.GetClass(); c != fairleadv1.Class_CLASS_UNSPECIFIED {
		what += " " + classText(c)
	}
	if step.GetTime() != nil {
		what += ", " + about(output.ProtoDuration(step.GetTime()))
	}
	text := fmt.Sprintf("%3d. %s (%s)\n     The tenant notices: %s.", n, sentence(step.GetText()), what, notices)
	if step.GetUndo() != "" {
		text += "\n     To undo: " + sentence(step.GetUndo())
	}
	return text
}

// sentence is a server's sentence without its end, for a line that goes on.
func sentence(s string) string { return strings.TrimSuffix(output.Safe(s), ".") }

// planVerdict is the last line of a plan.
func planVerdict(plan *fairleadv1.PlanMigrationResponse) string {
	warnings := 0
	for _, g := range plan.GetGates() {
		if g.GetVerdict() == fairleadv1.GateVerdict_GATE_VERDICT_WARN {
			warnings++
		}
	}
	text := "It can be done now."
	if n := len(plan.GetBlockers()); n > 0 {
		lines := make([]string, 0, n)
		for _, b := range plan.GetBlockers() {
			lines = append(lines, "  "+output.Safe(b))
		}
		text = "BLOCKED by:\n" + strings.Join(lines, "\n")
	}
	if warnings > 0 {
		text += fmt.Sprintf(" Read %s above first.", moveview.Counted(warnings, "warning"))
	}
	return text
}

func gateColumns() []output.Column {
	return []output.Column{{Name: "GATE"}, {Name: "VERDICT"}, {Name: "EVIDENCE"}}
}

func gateRows(gates []*fairleadv1.Gate) [][]string {
	rows := make([][]string, 0, len(gates))
	for _, g := range gates {
		rows = append(rows, []string{output.Safe(g.GetName()), strings.ToUpper(output.Enum(g.GetVerdict(), "GATE_VERDICT_")), output.Safe(g.GetEvidence())})
	}
	return rows
}

// about marks a prediction.
func about(s string) string {
	if s == output.None {
		return "unknown"
	}
	return "about " + s
}
