package main

import (
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

func (a *app) placementCommand() *cobra.Command {
	return group("placement", "See which tenant is in which cell, and why",
		`Placement decides which cell a tenant's jobs are in, by what it was measured to use, what it is promised and what it asks for. These commands
show its decisions and what it would do now; apply carries that out. They need a key with the scope operate.`,
		"  fairlead placement show\n  fairlead placement plan\n  fairlead placement check\n  fairlead placement explain acme",
		a.placementShowCommand(), a.placementPlanCommand(), a.placementApplyCommand(), a.placementCheckCommand(), a.placementExplainCommand())
}

func (a *app) placementShowCommand() *cobra.Command {
	var cellName, tenant string
	var limit int
	cmd := &cobra.Command{
		Use: "show", Short: "Show cells with their load, and tenants by their cell",
		Long:    "Show lists every cell with its load, then the home of each tenant's lanes, and the tenants that no cell could take.",
		Example: "  fairlead placement show\n  fairlead placement show --cell cell-a -o wide\n  fairlead placement show --tenant acme -o json",
		Args:    arguments(false), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			errs := []error{checkCell(cmd, cellName)}
			if cmd.Flags().Changed("tenant") {
				errs = append(errs, cell.CheckID("--tenant", tenant))
			}
			if limit < 0 {
				errs = append(errs, &cell.FieldError{Field: "--limit", Problem: fmt.Sprintf("is %d, below 0", limit), Remedy: "give a number of lanes, or 0 for all"})
			}
			if err := errors.Join(errs...); err != nil {
				return err
			}
			s, l, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			all := &fairleadv1.ShowPlacementResponse{}
			for token := ""; ; {
				req := &fairleadv1.ShowPlacementRequest{Cell: cellName, Tenant: tenant, PageSize: pageSizeMax, PageToken: token}
				resp, err := call(cmd.Context(), s, "show the placement", s.placement.ShowPlacement, req)
				if err != nil {
					return err
				}
				if token == "" {
					all.Cells, all.Unplaced = resp.GetCells(), resp.GetUnplaced()
				}
				all.Assignments = append(all.Assignments, resp.GetAssignments()...)
				token = resp.GetNextPageToken()
				if token == "" || limit > 0 && len(all.GetAssignments()) >= limit {
					break
				}
			}
			if limit > 0 && len(all.GetAssignments()) > limit {
				all.Assignments = all.GetAssignments()[:limit]
			}
			return a.printPlacement(a.printer(l), all)
		},
	}
	cellFlag(cmd, &cellName, "only this `cell`")
	cmd.Flags().StringVar(&tenant, "tenant", "", "only this `tenant`")
	completeNothing(cmd, "tenant")
	limitFlag(cmd, &limit)
	return cmd
}

func (a *app) printPlacement(p *output.Printer, r *fairleadv1.ShowPlacementResponse) error {
	if !p.Human() {
		names := make([]string, 0, len(r.GetAssignments()))
		for _, as := range r.GetAssignments() {
			if len(names) == 0 || names[len(names)-1] != as.GetTenant() {
				names = append(names, as.GetTenant())
			}
		}
		return p.Object(strings.Join(names, "\n"), r)
	}
	view := a.cellView()
	var rows [][]string
	for _, c := range r.GetCells() {
		rows = append(rows, view.Row(c))
	}
	if err := p.Section(view.Columns, rows); err != nil {
		return err
	}
	rows = nil
	for _, as := range r.GetAssignments() {
		rows = append(rows, []string{
			output.Safe(as.GetTenant()), output.Enum(as.GetClass(), "CLASS_"), output.Safe(as.GetCell()), strconv.FormatUint(as.GetEpoch(), 10),
			loadText(as.GetDemand()), handText(as.GetHand()), output.Age(a.now(), as.GetSince()),
		})
	}
	err := section(p, []output.Column{
		{Name: "TENANT"},
		{Name: "CLASS"},
		{Name: "CELL"},
		{Name: "EPOCH", Wide: true},
		{Name: "DEMAND"},
		{Name: "HAND", Wide: true},
		{Name: "SINCE"},
	}, rows)
	if err != nil || len(r.GetUnplaced()) == 0 {
		return err
	}
	if err := p.Text(""); err != nil {
		return err
	}
	a.next("fairlead placement explain %s --now", r.GetUnplaced()[0])
	return p.Text(fmt.Sprintf("No cell could take: %s", output.Safe(strings.Join(r.GetUnplaced(), ", "))))
}

func handText(hand []int32) string {
	parts := make([]string, len(hand))
	for i, g := range hand {
		parts[i] = strconv.Itoa(int(g))
	}
	return output.Safe(strings.Join(parts, ","))
}

func (a *app) placementPlanCommand() *cobra.Command {
	var placeOnly bool
	cmd := &cobra.Command{
		Use: "plan", Short: "Decide what would be placed and moved now, and change nothing",
		Long: `Plan shows what placement would do now: tenants without a cell that it would place, and moves that gain more than they cost. It changes
nothing; fairlead placement apply carries it out.`,
		Example: "  fairlead placement plan\n  fairlead placement plan --place-only -o json",
		Args:    arguments(false), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, l, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			resp, err := call(cmd.Context(), s, "plan the placement", s.placement.PlanPlacement, &fairleadv1.PlanPlacementRequest{PlaceOnly: placeOnly})
			if err != nil {
				return err
			}
			p := a.printer(l)
			if !p.Human() {
				return p.Object(tenantsOf(resp.GetPlan()), resp.GetPlan())
			}
			if len(resp.GetPlan().GetDecisions()) > 0 {
				a.next("fairlead placement apply --index %d", resp.GetPlan().GetIndex())
			}
			return a.printPlan(p, resp.GetPlan())
		},
	}
	placeOnlyFlag(cmd, &placeOnly)
	return cmd
}

func placeOnlyFlag(cmd *cobra.Command, placeOnly *bool) {
	cmd.Flags().BoolVar(placeOnly, "place-only", false, "only tenants that have no cell: nothing is moved")
}

// tenantsOf are the names of a plan, for -o name.
func tenantsOf(plan *fairleadv1.PlacementPlan) string {
	names := make([]string, 0, len(plan.GetDecisions()))
	for _, d := range plan.GetDecisions() {
		names = append(names, d.GetTenant())
	}
	return strings.Join(names, "\n")
}

func (a *app) printPlan(p *output.Printer, plan *fairleadv1.PlacementPlan) error {
	if len(plan.GetDecisions()) == 0 {
		if err := p.Text("Nothing is to be placed or moved."); err != nil {
			return err
		}
	} else if err := p.Section(decisionColumns(), decisionRows(plan.GetDecisions())); err != nil {
		return err
	}
	var rows [][]string
	for _, w := range plan.GetWhales() {
		rows = append(rows, []string{
			output.Safe(w.GetTenant()), output.Safe(w.GetCell()), percent(w.GetShare()), output.Safe(w.GetSignal()), output.Age(a.now(), w.GetSince()),
			output.Safe(w.GetVerdict()), output.Cut(output.Safe(w.GetText()), 80),
		})
	}
	err := section(p, []output.Column{{Name: "WHALE"}, {Name: "CELL"}, {Name: "SHARE"}, {Name: "SIGNAL"}, {Name: "SINCE"}, {Name: "VERDICT"}, {Name: "WHY", Wide: true}}, rows)
	if err != nil {
		return err
	}
	for i, held := range plan.GetHeld() {
		if i == 0 {
			if err := p.Text("\nHeld back:"); err != nil {
				return err
			}
		}
		if err := p.Text("  " + output.Safe(held)); err != nil {
			return err
		}
	}
	if before, after := plan.GetImbalanceBefore(), plan.GetImbalanceAfter(); before > 0 {
		return p.Text(fmt.Sprintf("\nThe fullest cell has %.2f times the average; then %.2f times.", before, after))
	}
	return nil
}

func decisionColumns() []output.Column {
	return []output.Column{
		{Name: "TENANT"}, {Name: "FROM"}, {Name: "TO"}, {Name: "REASON"}, {Name: "DEMAND"}, {Name: "BYTES"}, {Name: "GAIN PER BYTE", Wide: true}, {Name: "HOW"},
	}
}

func decisionRows(decisions []*fairleadv1.PlacementDecision) [][]string {
	rows := make([][]string, 0, len(decisions))
	for _, d := range decisions {
		how := "at once"
		switch {
		case d.GetTarget() == "":
			how = "no cell can take it"
		case d.GetNeedsMigration():
			how = "by a migration"
		}
		rows = append(rows, []string{
			output.Safe(d.GetTenant()), output.Safe(d.GetSource()), output.Safe(d.GetTarget()), output.Safe(d.GetReason()), loadText(d.GetDemand()),
			output.Bytes(d.GetBytes()), strconv.FormatFloat(d.GetGainPerByte(), 'g', 3, 64), how,
		})
	}
	return rows
}

func (a *app) placementApplyCommand() *cobra.Command {
	var index uint64
	var placeOnly, dryRun, yes bool
	cmd := &cobra.Command{
		Use: "apply", Short: "Carry out what placement would do now",
		Long: `Apply carries out a plan: what needs no migration at once, and the rest by a migration each, which it begins. With --index it is the plan that was
looked at, and it is refused when what it relies on has changed since; without, it is whatever would be planned now, so it shows that and asks
first.`,
		Example: "  fairlead placement apply --index 4711\n  fairlead placement apply --place-only --yes",
		Args:    arguments(false), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("index") && index == 0 {
				return failure.Usagef("give the index that fairlead placement plan shows, or leave it out", "--index is 0")
			}
			s, l, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			p := a.printer(l)
			if index == 0 || dryRun {
				plan, err := call(cmd.Context(), s, "plan the placement", s.placement.PlanPlacement, &fairleadv1.PlanPlacementRequest{PlaceOnly: placeOnly})
				if err != nil {
					return err
				}
				if dryRun && !p.Human() {
					return p.Object(tenantsOf(plan.GetPlan()), plan.GetPlan())
				}
				if p.Human() && (dryRun || !yes) {
					if err := a.printPlan(p, plan.GetPlan()); err != nil {
						return err
					}
				}
				if dryRun {
					a.sayf("Nothing is changed (--dry-run).")
					return nil
				}
				if err := a.confirm(cmd.Context(), yes, fmt.Sprintf("Carry out %d decisions?", len(plan.GetPlan().GetDecisions()))); err != nil {
					return err
				}
				index = plan.GetPlan().GetIndex() // what was shown, and nothing else
			}
			resp, err := call(cmd.Context(), s, "apply the placement", s.placement.ApplyPlacement, &fairleadv1.ApplyPlacementRequest{Index: index, PlaceOnly: placeOnly})
			if err != nil {
				return err
			}
			if resp.GetNeedMigration() > 0 {
				a.next("fairlead migrate list --live")
			}
			return a.printDone(p, tenantsOf(resp.GetPlan()), resp, "%d decisions took effect, and %d go on as migrations.", resp.GetApplied(), resp.GetNeedMigration())
		},
	}
	cmd.Flags().Uint64Var(&index, "index", 0, "`index` of the plan that was looked at")
	placeOnlyFlag(cmd, &placeOnly)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show the plan, and change nothing")
	yesFlag(cmd, &yes)
	completeNothing(cmd, "index")
	return cmd
}

func (a *app) placementCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use: "check", Short: "Look for what would break when any one cell is lost",
		Long: `Check tries the loss of each cell and looks for what would not hold then: capacity, residency, tenants that are to be apart; and for what does not
hold already. The exit code is 1 when it finds something.`,
		Example: "  fairlead placement check\n  fairlead placement check -o json",
		Args:    arguments(false), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, l, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			resp, err := call(cmd.Context(), s, "check the placement", s.placement.CheckPlacement, &fairleadv1.CheckPlacementRequest{})
			if err != nil {
				return err
			}
			if err := printFindings(a.printer(l), resp); err != nil {
				return err
			}
			if n := len(resp.GetFindings()); n > 0 {
				return &failure.Problem{
					Code: failure.Failed, What: fmt.Sprintf("the placement has %d faults", n), Remedy: "see what would be done about it with: fairlead placement plan",
				}
			}
			return nil
		},
	}
}

func printFindings(p *output.Printer, resp *fairleadv1.CheckPlacementResponse) error {
	if !p.Human() {
		var kinds []string
		for _, f := range resp.GetFindings() {
			kinds = append(kinds, f.GetKind())
		}
		return p.Object(strings.Join(kinds, "\n"), resp)
	}
	if len(resp.GetFindings()) == 0 {
		return p.Text(fmt.Sprintf("The loss of each of %d cells was tried: everything holds.", resp.GetCellsTried()))
	}
	rows := make([][]string, 0, len(resp.GetFindings()))
	for _, f := range resp.GetFindings() {
		when := "now"
		if f.GetLost() != "" {
			when = "without " + output.Safe(f.GetLost())
		}
		rows = append(rows, []string{output.Safe(f.GetKind()), when, output.Safe(f.GetCell()), output.Safe(f.GetTenant()), output.Safe(f.GetText())})
	}
	return p.Section([]output.Column{{Name: "FAULT"}, {Name: "WHEN"}, {Name: "CELL"}, {Name: "TENANT"}, {Name: "WHY"}}, rows)
}

func (a *app) placementExplainCommand() *cobra.Command {
	var now bool
	cmd := &cobra.Command{
		Use: "explain TENANT", Short: "Say why a tenant is where it is",
		Long: `Explain shows the score table of the decision that placed a tenant: every cell, what spoke against it or how it scored, and by which parts. With
--now it decides anew, and changes nothing.`,
		Example: "  fairlead placement explain acme\n  fairlead placement explain acme --now -o json",
		Args:    arguments(false, "TENANT"), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cell.CheckID("TENANT", args[0]); err != nil {
				return err
			}
			s, l, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			resp, err := call(cmd.Context(), s, "explain the placement of "+args[0], s.placement.ExplainPlacement,
				&fairleadv1.ExplainPlacementRequest{Tenant: args[0], Now: now})
			if err != nil {
				return err
			}
			return a.printExplained(a.printer(l), args[0], resp)
		},
	}
	cmd.Flags().BoolVar(&now, "now", false, "decide anew, instead of showing the decision that was made")
	return cmd
}

func (a *app) printExplained(p *output.Printer, tenant string, r *fairleadv1.ExplainPlacementResponse) error {
	if !p.Human() {
		return p.Object(tenant, r)
	}
	as := r.GetAssignment()
	err := p.Describe([]output.Pair{
		{Key: "Tenant", Value: output.Safe(tenant)},
		{Key: "Cell", Value: output.Safe(as.GetCell())},
		{Key: "Since", Value: a.when(as.GetSince())},
		{Key: "Decided", Value: a.when(r.GetTime())},
	})
	if err != nil {
		return err
	}
	if text := strings.TrimRight(r.GetText(), "\n"); text != "" {
		return p.Text("\n" + output.SafeText(text))
	}
	return printCandidates(p, r.GetDecision())
}

// printCandidates is the score table where the server sent no text of it.
func printCandidates(p *output.Printer, d *fairleadv1.PlacementDecision) error {
	var rows [][]string
	for _, c := range d.GetCandidates() {
		parts := make([]string, 0, len(c.GetParts()))
		for name, n := range c.GetParts() {
			parts = append(parts, fmt.Sprintf("%s %.3f", output.Safe(name), n))
		}
		sort.Strings(parts)
		score := output.None
		if c.GetRejected() == "" {
			score = fmt.Sprintf("%.3f", c.GetScore())
		}
		rows = append(rows, []string{output.Safe(c.GetCell()), score, output.Safe(c.GetRejected()), output.Safe(strings.Join(parts, ", "))})
	}
	return section(p, []output.Column{{Name: "CELL"}, {Name: "SCORE"}, {Name: "REJECTED"}, {Name: "PARTS"}}, rows)
}
