package main

import (
	"context"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

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
			output.Pair{Key: "Copying takes", Value: about(output.ProtoDuration(plan.GetCopyTime())) + " or longer, as callers of its cell allow; the tenant is served"},
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
	undo, since := "", 0 // what undoes a step, and the first step that it undoes
	for i, step := range plan.GetSteps() {
		notices := "nothing"
		switch class := step.GetClass(); {
		case !ramps(step):
		case switched[class]:
			notices = "nothing more"
		default:
			switched[class] = true
			notices = fmt.Sprintf("its %s jobs stand still for %s, from here until it is opened; calls wait that long, and none fails",
				classText(class), about(output.ProtoDuration(plan.GetPause())))
		}
		lines := []string{stepTitle(i+1, step), "     The tenant notices: " + notices + "."}
		switch {
		case step.GetUndo() == "":
		case step.GetUndo() == undo:
			lines = append(lines, fmt.Sprintf("     To undo: as step %d", since))
		default:
			undo, since = step.GetUndo(), i+1
			lines = append(lines, "     To undo: "+strings.TrimSuffix(output.Safe(undo), "."))
		}
		if err := p.Text(strings.Join(lines, "\n")); err != nil {
			return err
		}
	}
	return nil
}

// ramps reports whether a step is of the switch of a class: the first of them stops it.
func ramps(step *fairleadv1.PlannedStep) bool {
	return step.GetState() == fairleadv1.MigrationState_MIGRATION_STATE_RAMPING && step.GetClass() != fairleadv1.Class_CLASS_UNSPECIFIED
}

func stepTitle(n int, step *fairleadv1.PlannedStep) string {
	what := moveview.State(step.GetState())
	if c := step.GetClass(); c != fairleadv1.Class_CLASS_UNSPECIFIED {
		what += " " + classText(c)
	}
	if step.GetTime().AsDuration() > 0 {
		what += ", " + about(output.ProtoDuration(step.GetTime()))
	}
	return fmt.Sprintf("%3d. %s (%s)", n, sentence(step.GetText()), what)
}

// sentence is a server's sentence, begun with a capital and without its end, for a line that goes on.
func sentence(s string) string {
	s = strings.TrimSuffix(output.Safe(s), ".")
	first, size := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(first)) + s[size:]
}

// planVerdict is the last line of a plan.
func planVerdict(plan *fairleadv1.PlanMigrationResponse) string {
	warnings := 0
	for _, g := range plan.GetGates() {
		if g.GetVerdict() == fairleadv1.GateVerdict_GATE_VERDICT_WARN {
			warnings++
		}
	}
	text := "It can be done now."
	if last := lastAbort(plan); last > 0 {
		text += fmt.Sprintf(" Up to step %d fairlead migrate abort takes everything back; after it fairlead migrate reverse does.", last)
	}
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

// lastAbort is the number of the last step that an abort undoes, where a reverse undoes the next; 0 when the plan has none.
func lastAbort(plan *fairleadv1.PlanMigrationResponse) int {
	for i, step := range plan.GetSteps() {
		if i > 0 && strings.HasPrefix(step.GetUndo(), "reverse") {
			return i
		}
	}
	return 0
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
