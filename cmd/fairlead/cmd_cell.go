package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
	"github.com/fairlead/fairlead/dataplane/client"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

func (a *app) cellCommand() *cobra.Command {
	return group("cell", "Create cells, and empty them",
		`A cell is a bounded, complete copy of the serving stack: its agents hold the jobs of the tenants that are placed in it, and nothing outside it
is needed to run them. These commands are the operator's: reading, cordon, drain and evacuate need a key with the scope operate, the rest
one with the scope admin.`,
		"  fairlead cell create cell-b --replicas 3 --label zone=b --capacity-compute 100 --capacity-jobs 100000\n  fairlead cell list\n  fairlead cell drain cell-b --wait",
		a.cellCreateCommand(), a.cellListCommand(), a.cellGetCommand(), a.cellUpdateCommand(), a.cellCordonCommand(false), a.cellCordonCommand(true),
		a.cellDrainCommand(), a.cellUndrainCommand(), a.cellEvacuateCommand(), a.cellDeleteCommand())
}

func cellKinds() []string { return []string{"pooled", "dedicated"} }

// cellFlags are what create and update have in common.
type cellFlags struct {
	kind     *enumValue
	replicas int
	labels   labelsValue
	noLabels bool
	capacity capacityFlags
	groups   int32
	hand     int32
}

func (f *cellFlags) add(cmd *cobra.Command) {
	f.labels.example = "--label zone=b"
	flags := cmd.Flags()
	flags.Var(&f.labels, "label", "what tenants can ask for, as `name=value`; repeated")
	f.capacity.add(cmd)
	flags.Int32Var(&f.groups, "worker-groups", 0, "worker `groups` that tenants are dealt hands of, at most 64; 0 for none")
	flags.Int32Var(&f.hand, "hand", 0, "how many `groups` each tenant is dealt")
	completeNothing(cmd, "label", "worker-groups", "hand")
}

// check returns every fault that needs no server to be seen.
func (f *cellFlags) check(cmd *cobra.Command) error {
	errs := []error{checkLabels("--label", f.labels.m), f.capacity.check()}
	if f.groups < 0 || f.groups > cell.WorkerGroupsMax {
		errs = append(errs, &cell.FieldError{
			Field: "--worker-groups", Problem: fmt.Sprintf("is %d, outside 0 to %d", f.groups, cell.WorkerGroupsMax), Remedy: "give a number in that range",
		})
	}
	most := int32(cell.WorkerGroupsMax)
	if cmd.Flags().Changed("worker-groups") {
		most = f.groups
	}
	if f.hand < 0 || f.hand > most {
		errs = append(errs, &cell.FieldError{Field: "--hand", Problem: fmt.Sprintf("is %d, outside 0 to %d", f.hand, most), Remedy: "deal no more groups than there are"})
	}
	if f.replicas != 1 && f.replicas != 3 {
		errs = append(errs, &cell.FieldError{Field: "--replicas", Problem: fmt.Sprintf("is %d", f.replicas), Remedy: "give 1, or 3 to survive the loss of a machine"})
	}
	return errors.Join(errs...)
}

func (a *app) cellCreateCommand() *cobra.Command {
	f := cellFlags{kind: newEnum("pooled", cellKinds())}
	cmd := &cobra.Command{
		Use: "create CELL", Short: "Create a cell, which its agents then form",
		Long: `Create makes the record of a cell. It is forming until as many of its agents as it has replicas have registered; then control opens its log and
places tenants in it. Its name never changes.`,
		Example: `  fairlead cell create cell-b
  fairlead cell create cell-eu-1 --replicas 3 --label residency=eu --label zone=a --capacity-compute 100 --capacity-jobs 100000
  fairlead cell create whale-1 --kind dedicated --capacity-compute 400 --worker-groups 8 --hand 2`,
		Args: arguments(false, "CELL"), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			_, err := cell.ParseCellID("CELL", args[0])
			if err := errors.Join(err, f.check(cmd)); err != nil {
				return err
			}
			s, l, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			req := &fairleadv1.CreateCellRequest{
				Name: args[0], Kind: fairleadv1.CellKind(1 + slices.Index(cellKinds(), f.kind.value)), Replicas: int32(f.replicas), Labels: f.labels.m,
				WorkerGroups: f.groups, Hand: f.hand,
			}
			if f.capacity.given(cmd) {
				req.Capacity = f.capacity.over(cmd, nil)
			}
			resp, err := call(cmd.Context(), s, "create the cell "+args[0], s.cells.CreateCell, req)
			if err != nil {
				return err
			}
			a.next("fairlead cluster token --role cell --cell %s, for each of its agents that has no certificate", args[0])
			return a.printCell(a.printer(l), resp.GetCell())
		},
	}
	cmd.Flags().Var(f.kind, "kind", "whom it is for: pooled for many tenants, dedicated for one tenant or an organization's")
	cmd.Flags().IntVar(&f.replicas, "replicas", 1, "how many `agents` its log is on: 1 or 3")
	completeEnum(cmd, "kind", cellKinds())
	completeNothing(cmd, "replicas")
	f.add(cmd)
	return cmd
}

func (a *app) cellUpdateCommand() *cobra.Command {
	f := cellFlags{replicas: 1}
	cmd := &cobra.Command{
		Use: "update CELL", Short: "Change what a cell offers",
		Long:    `Update changes what is given and leaves the rest. --label replaces all labels, and --no-labels takes them away. It holds for decisions from now on: no tenant is moved by it.`,
		Example: "  fairlead cell update cell-b --capacity-compute 200\n  fairlead cell update cell-b --label zone=b --label residency=eu\n  fairlead cell update cell-b --worker-groups 0 --hand 0",
		Args:    arguments(false, "CELL"), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			_, err := cell.ParseCellID("CELL", args[0])
			if err := errors.Join(err, f.check(cmd), exclusive(cmd, "label", "no-labels")); err != nil {
				return err
			}
			if !slices.ContainsFunc(append(capacityFlagNames(), "label", "no-labels", "worker-groups", "hand"), cmd.Flags().Changed) {
				return failure.Usagef("give one of --label, --no-labels, --capacity-compute, --capacity-jobs, --capacity-bytes, --worker-groups, --hand", "there is nothing to change")
			}
			s, l, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			req := &fairleadv1.UpdateCellRequest{
				Name: args[0], Labels: f.labels.m, SetLabels: cmd.Flags().Changed("label") || f.noLabels,
				WorkerGroups: given(cmd, "worker-groups", f.groups), Hand: given(cmd, "hand", f.hand),
			}
			if f.capacity.given(cmd) {
				was, err := call(cmd.Context(), s, "get the cell "+args[0], s.cells.GetCell, &fairleadv1.GetCellRequest{Name: args[0]})
				if err != nil {
					return err
				}
				req.Capacity = f.capacity.over(cmd, was.GetCell().GetCapacity())
			}
			resp, err := call(cmd.Context(), s, "change the cell "+args[0], s.cells.UpdateCell, req)
			if err != nil {
				return err
			}
			a.next("fairlead placement plan")
			return a.printCell(a.printer(l), resp.GetCell())
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&f.noLabels, "no-labels", false, "take every label away")
	return cmd
}

func (a *app) cellListCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List cells with their load",
		Long:    "List shows every cell: what it takes, who leads it, how many tenants it has and how much of its capacity they use.",
		Example: "  fairlead cell list\n  fairlead cell list -o wide\n  fairlead cell list -o name",
		Args:    arguments(false), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, l, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			resp, err := call(cmd.Context(), s, "list cells", s.cells.ListCells, &fairleadv1.ListCellsRequest{})
			if err != nil {
				return err
			}
			list := output.NewList(a.printer(l), a.cellView())
			if len(resp.GetCells()) > 0 {
				if err := list.Add(resp.GetCells()...); err != nil {
					return err
				}
			}
			return list.Close()
		},
	}
}

func (a *app) cellView() output.View[*fairleadv1.Cell] {
	return output.View[*fairleadv1.Cell]{
		Columns: []output.Column{
			{Name: "CELL"},
			{Name: "KIND"},
			{Name: "PHASE"},
			{Name: "REPLICAS"},
			{Name: "LEADER"},
			{Name: "TENANTS"},
			{Name: "USED"},
			{Name: "LOAD", Wide: true},
			{Name: "CAPACITY", Wide: true},
			{Name: "LABELS"},
			{Name: "SEEN"},
			{Name: "AGE", Wide: true},
		},
		Row: func(c *fairleadv1.Cell) []string {
			return []string{
				output.Safe(c.GetName()), output.Enum(c.GetKind(), "CELL_KIND_"), phaseText(c), fmt.Sprintf("%d/%d", len(c.GetVoters()), c.GetReplicas()),
				output.Safe(c.GetLeader()), decimal(c.GetTenants()), usedText(c.GetLoad(), c.GetCapacity()), loadText(c.GetLoad()), loadText(c.GetCapacity()),
				output.Cut(labelsText(c.GetLabels()), labelsWidth), output.Age(a.now(), c.GetLastSeen()), output.Age(a.now(), c.GetCreateTime()),
			}
		},
		Name: (*fairleadv1.Cell).GetName,
	}
}

func phaseText(c *fairleadv1.Cell) string { return output.Enum(c.GetPhase(), "CELL_PHASE_") }

// usedText is the largest share of a resource that is in use.
func usedText(load, capacity *fairleadv1.Load) string {
	share, known := 0.0, false
	for _, r := range [][2]float64{{load.GetCompute(), capacity.GetCompute()}, {load.GetJobs(), capacity.GetJobs()}, {load.GetBytes(), capacity.GetBytes()}} {
		if r[1] > 0 {
			share, known = max(share, r[0]/r[1]), true
		}
	}
	if !known {
		return output.None
	}
	return percent(share)
}

func percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }

func (a *app) cellGetCommand() *cobra.Command {
	return &cobra.Command{
		Use: "get CELL", Short: "Show a cell",
		Long:    "Get shows one cell: its record, its replicas and what it carries.",
		Example: "  fairlead cell get cell-a\n  fairlead cell get cell-a -o json",
		Args:    arguments(false, "CELL"), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, l, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			resp, err := call(cmd.Context(), s, "get the cell "+args[0], s.cells.GetCell, &fairleadv1.GetCellRequest{Name: args[0]})
			if err != nil {
				return err
			}
			return a.printCell(a.printer(l), resp.GetCell())
		},
	}
}

func (a *app) printCell(p *output.Printer, c *fairleadv1.Cell) error {
	if !p.Human() {
		return p.Object(c.GetName(), c)
	}
	hands := ""
	if c.GetWorkerGroups() > 0 {
		hands = fmt.Sprintf("%d, each tenant is dealt %d", c.GetWorkerGroups(), c.GetHand())
	}
	return p.Describe([]output.Pair{
		{Key: "Cell", Value: output.Safe(c.GetName())},
		{Key: "Kind", Value: output.Enum(c.GetKind(), "CELL_KIND_")},
		{Key: "Phase", Value: phaseText(c)},
		{Key: "Replicas", Value: fmt.Sprintf("%d of %d: %s", len(c.GetVoters()), c.GetReplicas(), output.Safe(strings.Join(c.GetVoters(), ", ")))},
		{Key: "Leader", Value: output.Safe(c.GetLeader())},
		{Key: "Labels", Value: output.Cut(labelsText(c.GetLabels()), labelsWidth)},
		{Key: "Tenants", Value: decimal(c.GetTenants())},
		{Key: "Capacity", Value: loadText(c.GetCapacity())},
		{Key: "Load", Value: loadText(c.GetLoad())},
		{Key: "Used", Value: usedText(c.GetLoad(), c.GetCapacity())},
		{Key: "Worker groups", Value: hands},
		{Key: "Created", Value: a.when(c.GetCreateTime())},
		{Key: "Seen", Value: a.when(c.GetLastSeen())},
		{Key: "Generation", Value: fmt.Sprint(c.GetGeneration())},
	})
}

func (a *app) cellCordonCommand(undo bool) *cobra.Command {
	cmd := &cobra.Command{
		Use: "cordon CELL...", Short: "Let cells take no new tenants",
		Long:    "Cordon keeps new tenants out of a cell. Those it has go on as before.",
		Example: "  fairlead cell cordon cell-a",
		Args:    arguments(true, "CELL"), ValidArgsFunction: cobra.NoFileCompletions,
	}
	doing := "cordon"
	if undo {
		doing = "end the cordon of"
		cmd.Use, cmd.Short = "uncordon CELL...", "Let cells take new tenants again"
		cmd.Long, cmd.Example = "Uncordon ends a cordon: the cell takes new tenants again.", "  fairlead cell uncordon cell-a"
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkCells(args); err != nil {
			return err
		}
		s, l, err := a.connect(cmd, roleAdmin)
		if err != nil {
			return err
		}
		return eachOf(a, a.printer(l), a.cellView(), args, func(name string) (*fairleadv1.Cell, error) {
			resp, err := call(cmd.Context(), s, doing+" "+name, s.cells.CordonCell, &fairleadv1.CordonCellRequest{Name: name, Undo: undo})
			return resp.GetCell(), err
		})
	}
	return cmd
}

func checkCells(names []string) error {
	var errs []error
	for _, name := range names {
		_, err := cell.ParseCellID("CELL", name)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// waitFlags say whether to wait for what a command has begun, and how long.
type waitFlags struct {
	wait              bool
	timeout, interval *durationValue
}

// The bounds of waiting for a cell.
const (
	cellWaitDefault  = time.Hour
	cellWaitInterval = 2 * time.Second
)

func (f *waitFlags) add(cmd *cobra.Command, until string) {
	f.addWith(cmd, until, cellWaitDefault, cellWaitInterval)
}

// addWith is add with other defaults.
func (f *waitFlags) addWith(cmd *cobra.Command, until string, timeout, interval time.Duration) {
	f.timeout, f.interval = newDuration(timeout), newDuration(interval)
	cmd.Flags().BoolVar(&f.wait, "wait", false, "wait until "+until)
	cmd.Flags().Var(f.timeout, "timeout", "how long --wait waits")
	cmd.Flags().Var(f.interval, "interval", "time between two looks of --wait")
	completeNothing(cmd, "timeout", "interval")
}

func (f *waitFlags) check() error {
	var errs []error
	if f.timeout.d <= 0 {
		errs = append(errs, &cell.FieldError{Field: "--timeout", Problem: fmt.Sprintf("is %v, not above 0", f.timeout), Remedy: "give a duration such as 1h"})
	}
	if f.interval.d < watchMin {
		errs = append(errs, &cell.FieldError{Field: "--interval", Problem: fmt.Sprintf("is %v, below %v", f.interval, watchMin), Remedy: "give a duration such as 2s"})
	}
	return errors.Join(errs...)
}

// untilCell looks at a cell until done says so. Each look that says something new is told on standard error; with draw a terminal shows its lines in
// place instead. An interrupt, and the end of the time, end the wait alone: again is the command that takes it up.
func (a *app) untilCell(
	ctx context.Context, s *session, f *waitFlags, name, again string, done func(*fairleadv1.Cell) (text string, ok bool), draw func(context.Context) []string,
) (*fairleadv1.Cell, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, f.timeout.d, errWaited)
	defer cancel()
	last, b := "", a.newBlock()
	for {
		resp, err := call(ctx, s, "look at the cell "+name, s.cells.GetCell, &fairleadv1.GetCellRequest{Name: name})
		if err == nil {
			text, ok := done(resp.GetCell())
			line := output.Safe(name) + ": " + text
			switch {
			case draw != nil && a.talks:
				b.show(text, line, append([]string{line}, draw(ctx)...))
			case text != last:
				b.tell(text, line)
			}
			last = text
			if ok {
				return resp.GetCell(), nil
			}
			err = client.Pause(ctx, f.interval.d)
		}
		if err == nil {
			continue
		}
		if errors.Is(context.Cause(ctx), errWaited) {
			return nil, &failure.Problem{Code: failure.TimedOut, What: fmt.Sprintf("the wait is over after %v, and it goes on", f.timeout), Why: last, Remedy: "wait on with: " + again}
		}
		if errors.Is(context.Cause(ctx), failure.ErrInterrupted) {
			a.sayf("It goes on. Wait on with: %s", again)
		}
		return nil, err
	}
}

func (a *app) cellDrainCommand() *cobra.Command {
	var f waitFlags
	cmd := &cobra.Command{
		Use: "drain CELL", Short: "Let a cell take no new jobs, while those it has go on",
		Long: `Drain cordons a cell and lets it take no new jobs: submissions to it are refused and say so, and workers go on until its jobs have ended. With
--wait it returns once the cell has no job that has not ended; an interrupt ends the wait, not the drain.`,
		Example: "  fairlead cell drain cell-a\n  fairlead cell drain cell-a --wait --timeout 10m",
		Args:    arguments(false, "CELL"), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(checkCells(args), f.check()); err != nil {
				return err
			}
			s, l, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			resp, err := call(cmd.Context(), s, "drain the cell "+args[0], s.cells.DrainCell, &fairleadv1.DrainCellRequest{Name: args[0]})
			if err != nil {
				return err
			}
			c := resp.GetCell()
			if f.wait {
				c, err = a.untilCell(cmd.Context(), s, &f, args[0], "fairlead cell drain "+args[0]+" --wait", func(c *fairleadv1.Cell) (string, bool) {
					return fmt.Sprintf("%s, %.0f jobs are left", phaseText(c), c.GetLoad().GetJobs()), c.GetLoad().GetJobs() == 0
				}, nil)
				if err != nil {
					return err
				}
			}
			a.next("fairlead cell evacuate %s --dry-run, or fairlead cell undrain %s", args[0], args[0])
			return a.printCell(a.printer(l), c)
		},
	}
	f.add(cmd, "it has no job left that has not ended")
	return cmd
}

func (a *app) cellUndrainCommand() *cobra.Command {
	return &cobra.Command{
		Use: "undrain CELL", Short: "Let a cell take new jobs again",
		Long:    "Undrain ends a drain: the cell takes new jobs of the tenants it has. It stays cordoned until fairlead cell uncordon.",
		Example: "  fairlead cell undrain cell-a",
		Args:    arguments(false, "CELL"), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkCells(args); err != nil {
				return err
			}
			s, l, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			resp, err := call(cmd.Context(), s, "end the drain of the cell "+args[0], s.cells.DrainCell, &fairleadv1.DrainCellRequest{Name: args[0], Undo: true})
			if err != nil {
				return err
			}
			a.next("fairlead cell uncordon %s", args[0])
			return a.printCell(a.printer(l), resp.GetCell())
		},
	}
}

func (a *app) cellEvacuateCommand() *cobra.Command {
	var f waitFlags
	var dryRun, yes, watch bool
	cmd := &cobra.Command{
		Use: "evacuate CELL", Short: "Move every tenant off a cell",
		Long: `Evacuate cordons a cell and moves each of its tenants. Tenants without anything in the cell are moved at once; those with jobs by a migration each, in
the order of their priorities, a few at a time. It asks first; --dry-run shows the plan and changes nothing. With --wait it returns once the
cell has no tenant, and with --watch it shows the migrations meanwhile.`,
		Example: "  fairlead cell evacuate cell-a --dry-run\n  fairlead cell evacuate cell-a --yes --watch",
		Args:    arguments(false, "CELL"), ValidArgsFunction: a.completeOne(a.cellNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(checkCells(args), f.check(), exclusive(cmd, "dry-run", "wait"), exclusive(cmd, "dry-run", "watch")); err != nil {
				return err
			}
			if !dryRun {
				if err := a.confirm(cmd.Context(), yes, "Move every tenant off "+args[0]+"?"); err != nil {
					return err
				}
			}
			s, l, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			f.wait = f.wait || watch
			return a.evacuate(cmd.Context(), s, a.printer(l), &f, args[0], dryRun, watch)
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show the plan, and change nothing")
	yesFlag(cmd, &yes)
	f.add(cmd, "it has no tenant left")
	cmd.Flags().BoolVar(&watch, "watch", false, "wait, and show the migrations that are under way")
	return cmd
}

func (a *app) evacuate(ctx context.Context, s *session, p *output.Printer, f *waitFlags, name string, dryRun, watch bool) error {
	resp, err := call(ctx, s, "evacuate the cell "+name, s.cells.EvacuateCell, &fairleadv1.EvacuateCellRequest{Name: name, DryRun: dryRun})
	if err != nil {
		return err
	}
	if f.wait {
		again := "fairlead cell evacuate " + name + " --yes --wait"
		var moving evacuation
		if watch {
			moving = evacuation{app: a, session: s, cell: name}
			again = "fairlead cell evacuate " + name + " --yes --watch"
		}
		resp.Cell, err = a.untilCell(ctx, s, f, name, again, func(c *fairleadv1.Cell) (string, bool) {
			return fmt.Sprintf("%s, %d tenants are left%s", phaseText(c), c.GetTenants(), moving.tell(ctx)), c.GetTenants() == 0
		}, moving.draw())
		if err != nil {
			return err
		}
	}
	if !p.Human() {
		return p.Object(name, resp)
	}
	if err := a.printPlan(p, resp.GetPlan()); err != nil {
		return err
	}
	switch {
	case dryRun:
		a.sayf("Nothing is changed (--dry-run).")
	default:
		a.sayf("%s is %s and has %d tenants.", output.Safe(name), phaseText(resp.GetCell()), resp.GetCell().GetTenants())
		a.next("fairlead placement show --cell %s", name)
	}
	return nil
}

func (a *app) cellDeleteCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "delete CELL", Short: "Remove the record of an empty cell",
		Long:    "Delete removes the record of a cell without tenants: its agents are not known as its any more, and can be stopped. It asks first.",
		Example: "  fairlead cell delete cell-a\n  fairlead cell delete cell-a --yes",
		Args:    arguments(false, "CELL"), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkCells(args); err != nil {
				return err
			}
			if err := a.confirm(cmd.Context(), yes, "Delete the cell "+args[0]+"? There is no way back."); err != nil {
				return err
			}
			s, l, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			resp, err := call(cmd.Context(), s, "delete the cell "+args[0], s.cells.DeleteCell, &fairleadv1.DeleteCellRequest{Name: args[0]})
			if err != nil {
				return err
			}
			return a.printDone(a.printer(l), args[0], resp, "The cell %s is deleted.", args[0])
		},
	}
	yesFlag(cmd, &yes)
	return cmd
}
