package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/config"
	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/cmd/fairlead/moveview"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// control is a command that does something to a migration.
type control struct {
	action fairleadv1.MigrationAction
	doing  string // a phrase such as "pause"
	// asks is the question that is asked before, with the tenant for %s; empty for a command that loses nothing.
	asks string
	// goal is what --wait waits for, by the migration as it was before; nil for a command that is done when it is answered.
	goal  func(*fairleadv1.ControlMigrationRequest, *fairleadv1.Migration) goal
	until string // of --wait
	check func() error
	fill  func(*fairleadv1.ControlMigrationRequest)
}

// controlCommand makes the command of what c does. Its texts are the caller's.
func (a *app) controlCommand(cmd *cobra.Command, c *control) *cobra.Command {
	var f migrationFlags
	var w waitFlags
	var why string
	var dryRun, yes bool
	f.add(a, cmd)
	flags := cmd.Flags()
	flags.StringVar(&why, "why", "", "`reason`, for the migration's events")
	flags.BoolVar(&dryRun, "dry-run", false, "say what it would do, and change nothing")
	completeNothing(cmd, "why")
	if c.asks != "" {
		yesFlag(cmd, &yes)
	}
	if c.goal != nil {
		w.addWith(cmd, c.until, migrationWaitDefault, migrationInterval)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		errs := []error{f.check(cmd, args), exclusive(cmd, "dry-run", "wait")}
		if c.goal != nil {
			errs = append(errs, w.check())
		}
		if c.check != nil {
			errs = append(errs, c.check())
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
		s, l, err := a.connect(cmd, roleAdmin)
		if err != nil {
			return err
		}
		m, err := f.find(cmd.Context(), s)
		if err != nil {
			return err
		}
		req := &fairleadv1.ControlMigrationRequest{Id: m.GetId(), Action: c.action, Why: why, DryRun: dryRun}
		if c.fill != nil {
			c.fill(req)
		}
		if c.asks != "" && !yes && !dryRun {
			if err := a.askMigration(cmd.Context(), s, c, m, req); err != nil {
				return err
			}
		}
		return a.control(cmd.Context(), s, l, &w, c, m, req)
	}
	return cmd
}

// askMigration tells what would be done, and what is lost by it, and asks.
func (a *app) askMigration(ctx context.Context, s *session, c *control, m *fairleadv1.Migration, req *fairleadv1.ControlMigrationRequest) error {
	dry := &fairleadv1.ControlMigrationRequest{
		Id: req.GetId(), Action: req.GetAction(), Class: req.GetClass(), BytesPerSecond: req.GetBytesPerSecond(), Why: req.GetWhy(), DryRun: true,
	}
	resp, err := call(ctx, s, c.doing+" the migration "+m.GetId(), s.migrations.ControlMigration, dry)
	if err != nil {
		return controlProblem(err, c, m)
	}
	a.sayf("%s", output.SafeText(resp.GetText()))
	return a.confirm(ctx, false, fmt.Sprintf(c.asks, output.Safe(m.GetTenant())))
}

// control does it, waits for it if that is asked for, and prints the migration.
func (a *app) control(
	ctx context.Context, s *session, l *config.Loaded, w *waitFlags, c *control, m *fairleadv1.Migration, req *fairleadv1.ControlMigrationRequest,
) error {
	p := a.printer(l)
	resp, err := call(ctx, s, c.doing+" the migration "+m.GetId(), s.migrations.ControlMigration, req)
	if err != nil {
		return controlProblem(err, c, m)
	}
	a.sayf("%s", output.SafeText(resp.GetText()))
	if req.GetDryRun() {
		a.sayf("Nothing is changed (--dry-run).")
	}
	if w.wait {
		return a.waitMigration(ctx, s, p, w, resp.GetMigration(), c.goal(req, m))
	}
	if !req.GetDryRun() {
		a.next("fairlead migrate status --tenant %s --watch", m.GetTenant())
	}
	return a.printMigration(p, resp.GetMigration())
}

// controlProblem names the command that fits where a migration stands, when the one that was given came too late or too early.
func controlProblem(err error, c *control, m *fairleadv1.Migration) error {
	p := failure.Explain(err)
	if p.Code != failure.Refused || p.Remedy != "" || moveview.Ended(m) {
		return err
	}
	switch {
	case c.action == fairleadv1.MigrationAction_MIGRATION_ACTION_ABORT && committed(m):
		p.Remedy = "take it back with: fairlead migrate reverse --tenant " + m.GetTenant()
	case c.action == fairleadv1.MigrationAction_MIGRATION_ACTION_REVERSE && !committed(m):
		p.Remedy = "end it with: fairlead migrate abort --tenant " + m.GetTenant()
	case c.action == fairleadv1.MigrationAction_MIGRATION_ACTION_COMPLETE:
		p.Remedy = "see where it stands with: fairlead migrate status --tenant " + m.GetTenant()
	default:
		return err
	}
	return p
}

// committed reports whether a class of the migration has been given to the target.
func committed(m *fairleadv1.Migration) bool {
	return slices.ContainsFunc(m.GetLanes(), func(l *fairleadv1.MigrationLane) bool {
		switch l.GetPhase() { //nolint:exhaustive // every other phase is at the source
		case fairleadv1.LanePhase_LANE_PHASE_COMMITTED, fairleadv1.LanePhase_LANE_PHASE_OBSERVING, fairleadv1.LanePhase_LANE_PHASE_MOVED:
			return true
		default:
			return false
		}
	})
}

func (a *app) migratePauseCommand() *cobra.Command {
	return a.controlCommand(&cobra.Command{
		Use: "pause --tenant TENANT", Short: "Let a migration take no step forward",
		Long: `Pause holds a migration where it is: no class is switched, and nothing is taken back. Copying goes on, so that it can go on at once later. A class
that is being switched at that moment is switched or taken back first.`,
		Example: "  fairlead migrate pause --tenant acme --why 'release at noon'",
	}, &control{action: fairleadv1.MigrationAction_MIGRATION_ACTION_PAUSE, doing: "pause"})
}

func (a *app) migrateResumeCommand() *cobra.Command {
	return a.controlCommand(&cobra.Command{
		Use: "resume --tenant TENANT", Short: "Let a migration that is held go on",
		Long:    "Resume lets a migration go on that was paused, or that is held for another reason: what is not mended holds it again.",
		Example: "  fairlead migrate resume --tenant acme",
	}, &control{action: fairleadv1.MigrationAction_MIGRATION_ACTION_RESUME, doing: "resume"})
}

func (a *app) migrateThrottleCommand() *cobra.Command {
	var rate sizeValue
	c := &control{
		action: fairleadv1.MigrationAction_MIGRATION_ACTION_THROTTLE, doing: "throttle",
		check: func() error {
			if rate.n <= 0 {
				return failure.Usagef("give a size such as 8MiB", "--bytes-per-second is missing, or not above 0")
			}
			return nil
		},
		fill: func(req *fairleadv1.ControlMigrationRequest) { req.BytesPerSecond = rate.n },
	}
	cmd := a.controlCommand(&cobra.Command{
		Use: "throttle --tenant TENANT --bytes-per-second SIZE", Short: "Change how fast a migration copies",
		Long: `Throttle bounds how fast a migration copies from now on. Whatever the bound, it slows down by itself while callers of the source wait longer
than before it began: to a 48th of the bound, or to 384 KiB/s where that is more. While a class stands still nothing is slowed down.`,
		Example: "  fairlead migrate throttle --tenant acme --bytes-per-second 4MiB\n  fairlead migrate throttle --tenant acme --bytes-per-second 256MiB",
	}, c)
	cmd.Flags().Var(&rate, "bytes-per-second", "how fast it copies at most, such as 8MiB; required")
	completeNothing(cmd, "bytes-per-second")
	return cmd
}

// classFlag adds --class to a command about one class of a tenant.
func classFlag(cmd *cobra.Command, class *enumValue, usage string) {
	cmd.Flags().Var(class, "class", usage)
	completeEnum(cmd, "class", config.ClassNames())
}

// switched is the goal of a switch: a class more than before is served by the target, or the one that was named.
func switched(req *fairleadv1.ControlMigrationRequest, before *fairleadv1.Migration) goal {
	moved := func(m *fairleadv1.Migration) (n int) {
		for _, l := range m.GetLanes() {
			if l.GetPhase() == fairleadv1.LanePhase_LANE_PHASE_MOVED && (req.GetClass() == fairleadv1.Class_CLASS_UNSPECIFIED || l.GetClass() == req.GetClass()) {
				n++
			}
		}
		return n
	}
	had := moved(before)
	g := served()
	all := g.reached
	g.reached = func(m *fairleadv1.Migration) bool { return moved(m) > had || all(m) }
	return g
}

// endsAs is the goal of a command that ends a migration.
func endsAs(state fairleadv1.MigrationState, lost string) func(*fairleadv1.ControlMigrationRequest, *fairleadv1.Migration) goal {
	return func(*fairleadv1.ControlMigrationRequest, *fairleadv1.Migration) goal {
		return goal{reached: func(m *fairleadv1.Migration) bool { return m.GetState() == state }, lost: lost}
	}
}

func (a *app) migrateSwitchCommand() *cobra.Command {
	class := newEnum("", config.ClassNames())
	cmd := a.controlCommand(&cobra.Command{
		Use: "switch --tenant TENANT", Short: "Let a class be switched that waits for it",
		Long: `Switch lets the next class of a migration with --manual be switched to the new cell, once every gate is proved at that instant: it stands still
for a moment, and is served there.`,
		Example: "  fairlead migrate switch --tenant acme\n  fairlead migrate switch --tenant acme --class batch --wait",
	}, &control{
		action: fairleadv1.MigrationAction_MIGRATION_ACTION_SWITCH, doing: "switch a class of", goal: switched, until: "the class is served by its new cell",
		fill: func(req *fairleadv1.ControlMigrationRequest) { req.Class = classOf(class.value) },
	})
	classFlag(cmd, class, "class to switch; the next in order when not given")
	return cmd
}

func (a *app) migrateAbortCommand() *cobra.Command {
	return a.controlCommand(&cobra.Command{
		Use: "abort --tenant TENANT", Short: "End a migration of which no class is switched yet",
		Long: `Abort ends a migration: the tenant stays where it is served, and what was copied is wiped. Nothing of the tenant is lost by it. Once a class
is served by the new cell it is refused: then fairlead migrate reverse takes it back.`,
		Example: "  fairlead migrate abort --tenant acme\n  fairlead migrate abort --tenant acme --dry-run",
	}, &control{
		action: fairleadv1.MigrationAction_MIGRATION_ACTION_ABORT, doing: "abort", until: "nothing is left of it in the other cell",
		goal: endsAs(fairleadv1.MigrationState_MIGRATION_STATE_ABORTED, "it could not be aborted"),
	})
}

func (a *app) migrateReverseCommand() *cobra.Command {
	return a.controlCommand(&cobra.Command{
		Use: "reverse --tenant TENANT", Short: "Move a tenant back whose classes are switched, or some of them",
		Long: `Reverse moves each class that was switched back, in the same way as it came: it stands still for a moment, what is new is copied back, and its old
cell serves it. Nothing that the new cell accepted is lost. It can be done until the rollback window ends or the migration is completed. It
says what it would do, and asks first.`,
		Example: "  fairlead migrate reverse --tenant acme --dry-run\n  fairlead migrate reverse --tenant acme --yes --wait",
	}, &control{
		action: fairleadv1.MigrationAction_MIGRATION_ACTION_REVERSE, doing: "reverse", asks: "Move %s back?", until: "its old cell serves it again",
		goal: endsAs(fairleadv1.MigrationState_MIGRATION_STATE_ROLLED_BACK, "it could not be reversed"),
	})
}

func (a *app) migrateCompleteCommand() *cobra.Command {
	return a.controlCommand(&cobra.Command{
		Use: "complete --tenant TENANT", Short: "End the time in which a migration can be reversed",
		Long: `Complete lets the old cell go: it is fed no more, and some ten minutes later what it still holds of the tenant is wiped bit by bit. After it there
is no way back but a migration in the other direction. It says what is lost by it, and asks first.`,
		Example: "  fairlead migrate complete --tenant acme --dry-run\n  fairlead migrate complete --tenant acme --yes",
	}, &control{
		action: fairleadv1.MigrationAction_MIGRATION_ACTION_COMPLETE, doing: "complete", asks: "Let the old cell of %s go? It cannot be reversed any more.",
		until: "nothing is left in the old cell",
		goal:  endsAs(fairleadv1.MigrationState_MIGRATION_STATE_RELEASED, "it could not be completed"),
	})
}
