package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cmd/fairlead/config"
	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/cmd/fairlead/moveview"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

func (a *app) migrateCommand() *cobra.Command {
	return group("migrate", "Move a tenant to another cell while it runs",
		`A migration moves a tenant to another cell: what it has waiting, delayed and running, its idempotency keys, what it owes and what it saved up. Its
applications and workers go on with the address and the keys they have. It is copied while it is served; then one class after the other stands
still for a moment and is served by the other cell. Until the first class is switched abort takes everything back, after that reverse does, and
nothing is lost by either. These commands need a key with the scope operate.`,
		"  fairlead migrate plan --tenant acme --to cell-b\n  fairlead migrate start --tenant acme --to cell-b --wait\n  fairlead migrate status --tenant acme --watch",
		a.migratePlanCommand(), a.migrateStartCommand(), a.migrateStatusCommand(), a.migrateListCommand(), a.migratePauseCommand(), a.migrateResumeCommand(),
		a.migrateThrottleCommand(), a.migrateDiffCommand(), a.migrateSwitchCommand(), a.migrateAbortCommand(), a.migrateReverseCommand(),
		a.migrateCompleteCommand(), a.migrateEventsCommand())
}

// moveFlags name a tenant that is to be moved, and where to.
type moveFlags struct{ tenant, to string }

func (f *moveFlags) add(a *app, cmd *cobra.Command, to string) {
	cmd.Args = atMostOne("TENANT")
	cmd.ValidArgsFunction = a.completeOne(a.tenantNames)
	cmd.Flags().StringVar(&f.tenant, "tenant", "", "`tenant` to move; may stand without --tenant as well")
	cmd.Flags().StringVar(&f.to, "to", "", to)
	must(cmd.RegisterFlagCompletionFunc("tenant", a.complete(a.tenantNames)))
	must(cmd.RegisterFlagCompletionFunc("to", a.complete(a.cellNames)))
}

// check takes the tenant from the arguments, and returns every fault that needs no server to be seen.
func (f *moveFlags) check(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		if f.tenant != "" {
			return failure.Usagef("give it once", "the tenant is given as an argument and with --tenant")
		}
		f.tenant = args[0]
	}
	if f.tenant == "" {
		return failure.Usagef("write it as: "+cmd.CommandPath()+" --tenant acme", "%s needs a tenant", cmd.CommandPath())
	}
	errs := []error{cell.CheckID("TENANT", f.tenant)}
	if cmd.Flags().Changed("to") {
		_, err := cell.ParseCellID("--to", f.to)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// atMostOne lets the one argument of a command stand in a flag instead.
func atMostOne(name string) cobra.PositionalArgs {
	one := arguments(false, name)
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return one(cmd, args)
	}
}

// migrationOptions are the flags that say how a migration is done. What is not given has the server's default.
type migrationOptions struct {
	manual                       bool
	pauseMax, canaryTime, window *durationValue
	canaryJobs                   int64
	rate                         sizeValue
	priority                     int32
}

func (f *migrationOptions) add(cmd *cobra.Command) {
	f.pauseMax, f.canaryTime, f.window = newDuration(0), newDuration(0), newDuration(0)
	flags := cmd.Flags()
	flags.BoolVar(&f.manual, "manual", false, "wait, before each class is switched, for fairlead migrate switch")
	flags.Var(f.pauseMax, "pause-max", "the longest that a class may stand still; beyond it the switch is taken back and tried again (2s when not given)")
	flags.Int64Var(&f.canaryJobs, "canary-jobs", 0, "`jobs` that a class starts in its new cell before the next is switched (100 when not given)")
	flags.Var(f.canaryTime, "canary-time", "how long it is watched there at least (30s when not given)")
	flags.Var(f.window, "rollback-window", "how long it can be reversed afterwards; then it is completed (24h when not given)")
	flags.Var(&f.rate, "bytes-per-second", "how fast it copies at most, such as 8MiB (16MiB when not given)")
	flags.Int32Var(&f.priority, "priority", 0, "of migrations that wait for the same cell the one with the higher `number` goes first")
	completeNothing(cmd, "pause-max", "canary-jobs", "canary-time", "rollback-window", "bytes-per-second", "priority")
}

// check returns every fault that needs no server to be seen.
func (f *migrationOptions) check(cmd *cobra.Command) error {
	var errs []error
	for _, d := range []struct {
		flag  string
		value *durationValue
		above bool // 0 makes no sense
	}{{"pause-max", f.pauseMax, true}, {"canary-time", f.canaryTime, false}, {"rollback-window", f.window, false}} {
		switch {
		case !cmd.Flags().Changed(d.flag):
		case d.value.d < 0:
			errs = append(errs, &cell.FieldError{Field: "--" + d.flag, Problem: fmt.Sprintf("is %v, below 0", d.value), Remedy: "give a duration such as 30s"})
		case d.value.d == 0 && d.above:
			errs = append(errs, &cell.FieldError{Field: "--" + d.flag, Problem: "is 0s, not above 0", Remedy: "give a duration such as 2s"})
		}
	}
	if f.canaryJobs < 0 {
		errs = append(errs, &cell.FieldError{Field: "--canary-jobs", Problem: "is " + decimal(f.canaryJobs) + ", below 0", Remedy: "give a number of jobs"})
	}
	if cmd.Flags().Changed("bytes-per-second") && f.rate.n <= 0 {
		errs = append(errs, &cell.FieldError{Field: "--bytes-per-second", Problem: "is " + decimal(f.rate.n) + ", not above 0", Remedy: "give a size such as 8MiB"})
	}
	return errors.Join(errs...)
}

func (f *migrationOptions) message(cmd *cobra.Command) *fairleadv1.MigrationOptions {
	duration := func(flag string, v *durationValue) *durationpb.Duration {
		if !cmd.Flags().Changed(flag) {
			return nil
		}
		return durationpb.New(v.d)
	}
	return &fairleadv1.MigrationOptions{
		Manual: f.manual, PauseMax: duration("pause-max", f.pauseMax), CanaryTime: duration("canary-time", f.canaryTime),
		RollbackWindow: duration("rollback-window", f.window), CanaryJobs: given(cmd, "canary-jobs", f.canaryJobs), BytesPerSecond: f.rate.n, Priority: f.priority,
	}
}

// migrationFlags name a migration: by its id, or by its tenant, whose latest is meant.
type migrationFlags struct{ tenant, id, given string }

func (f *migrationFlags) add(a *app, cmd *cobra.Command) {
	cmd.Args = atMostOne("TENANT")
	cmd.ValidArgsFunction = a.completeOne(a.movingTenants)
	cmd.Flags().StringVar(&f.tenant, "tenant", "", "`tenant` whose latest migration is meant; it or an id may stand without --tenant as well")
	cmd.Flags().StringVar(&f.id, "id", "", "`id` of the migration, as fairlead migrate list shows it")
	must(cmd.RegisterFlagCompletionFunc("tenant", a.complete(a.movingTenants)))
	completeNothing(cmd, "id")
}

// check takes what is named from the arguments, and returns every fault that needs no server to be seen.
func (f *migrationFlags) check(cmd *cobra.Command, args []string) error {
	named := 0
	if len(args) > 0 {
		f.given = args[0]
	}
	for _, s := range []string{f.tenant, f.id, f.given} {
		if s != "" {
			named++
		}
	}
	switch {
	case named == 0:
		return failure.Usagef("write it as: "+cmd.CommandPath()+" --tenant acme", "%s needs a tenant or a migration", cmd.CommandPath())
	case named > 1:
		return failure.Usagef("give one of them", "more than one of --tenant, --id and an argument names the migration")
	}
	for field, s := range map[string]string{"--tenant": f.tenant, "--id": f.id, "TENANT": f.given} {
		if s == "" {
			continue
		}
		if err := cell.CheckID(field, s); err != nil {
			return err
		}
	}
	return nil
}

// find returns the migration. An argument is a tenant's if that has one, and else an id.
func (f *migrationFlags) find(ctx context.Context, s *session) (*fairleadv1.Migration, error) {
	name := f.tenant + f.id + f.given
	doing := "look up the migration of " + name
	resp, err := call(ctx, s, doing, s.migrations.GetMigration, &fairleadv1.GetMigrationRequest{Tenant: f.tenant + f.given, Id: f.id})
	if f.given != "" && connect.CodeOf(err) == connect.CodeNotFound {
		var byID *fairleadv1.GetMigrationResponse
		if byID, err = call(ctx, s, doing, s.migrations.GetMigration, &fairleadv1.GetMigrationRequest{Id: f.given}); err == nil {
			return byID.GetMigration(), nil
		}
	}
	if connect.CodeOf(err) == connect.CodeNotFound {
		return nil, &failure.Problem{
			Code: failure.NotFound, What: fmt.Sprintf("no migration is known of %.60q", name), Err: err,
			Remedy: "see those there are with: fairlead migrate list; begin one with: fairlead migrate plan --tenant TENANT",
		}
	}
	return resp.GetMigration(), err
}

func (a *app) migrateStartCommand() *cobra.Command {
	var f moveFlags
	var o migrationOptions
	var w waitFlags
	var dryRun bool
	cmd := &cobra.Command{
		Use: "start --tenant TENANT --to CELL", Short: "Begin to move a tenant",
		Long: `Start declares the migration of a tenant and returns: control carries it out, whoever leads it. The same once more does no harm: it returns the
migration that is under way. --dry-run is fairlead migrate plan.

With --wait it shows how far it is, step by step, and returns once the tenant is served by its new cell: the exit code is 0 then, and 1 when
it was taken back. An interrupt ends the wait, not the migration.`,
		Example: `  fairlead migrate start --tenant acme --to cell-b --dry-run
  fairlead migrate start --tenant acme --to cell-b --wait
  fairlead migrate start acme --to cell-b --manual --bytes-per-second 4MiB`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(f.check(cmd, args), o.check(cmd), w.check(), exclusive(cmd, "dry-run", "wait")); err != nil {
				return err
			}
			s, l, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			if dryRun {
				return a.planMigration(cmd.Context(), s, a.printer(l), &fairleadv1.PlanMigrationRequest{Tenant: f.tenant, Target: f.to, Options: o.message(cmd)})
			}
			return a.startMigration(cmd.Context(), s, l, &w, &fairleadv1.StartMigrationRequest{Tenant: f.tenant, Target: f.to, Options: o.message(cmd)})
		},
	}
	f.add(a, cmd, "`cell` that it goes to; the best by placement when not given")
	o.add(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show the plan, and change nothing")
	w.addWith(cmd, "it is served by its new cell", migrationWaitDefault, migrationInterval)
	return cmd
}

// The bounds of waiting for a migration.
const (
	migrationWaitDefault = 24 * time.Hour // a large tenant takes hours to copy
	migrationInterval    = 500 * time.Millisecond
)

func (a *app) startMigration(ctx context.Context, s *session, l *config.Loaded, w *waitFlags, req *fairleadv1.StartMigrationRequest) error {
	resp, err := call(ctx, s, "start the migration of "+req.GetTenant(), s.migrations.StartMigration, req)
	if err != nil {
		return err
	}
	m, p := resp.GetMigration(), a.printer(l)
	if resp.GetCreated() {
		a.sayf("The migration %s moves %s from %s to %s.", output.Safe(m.GetId()), output.Safe(m.GetTenant()), output.Safe(m.GetSource()), output.Safe(m.GetTarget()))
	} else {
		a.sayf("The migration %s has been under way: nothing is changed.", output.Safe(m.GetId()))
	}
	if w.wait {
		return a.waitMigration(ctx, s, p, w, m, served())
	}
	a.next("fairlead migrate status --tenant %s --watch", m.GetTenant())
	return a.printMigration(p, m)
}

// goal is what a wait for a migration waits for.
type goal struct {
	reached func(*fairleadv1.Migration) bool
	// lost says what became of a migration that ended otherwise.
	lost string
}

// served is the goal of a move: the target serves the tenant.
func served() goal {
	return goal{lost: "the tenant stays in its cell", reached: moveview.Served}
}

// waitMigration waits until a migration has reached its goal, and prints it.
func (a *app) waitMigration(ctx context.Context, s *session, p *output.Printer, w *waitFlags, m *fairleadv1.Migration, g goal) error {
	ctx, cancel := context.WithTimeoutCause(ctx, w.timeout.d, errWaited)
	defer cancel()
	m, err := a.followMigration(ctx, s, w.interval.d, m, func(m *fairleadv1.Migration) bool { return g.reached(m) || moveview.Ended(m) }, nil)
	if err != nil {
		return a.stoppedWaiting(ctx, err, m, w.timeout)
	}
	if err := a.printMigration(p, m); err != nil {
		return err
	}
	a.nextOfMigration(m)
	return g.problem(m)
}

// stoppedWaiting is what a wait ends with that ended before the migration did: it says how to take it up again.
func (a *app) stoppedWaiting(ctx context.Context, err error, m *fairleadv1.Migration, timeout *durationValue) error {
	again := "fairlead migrate status --watch --tenant " + m.GetTenant()
	switch {
	case errors.Is(context.Cause(ctx), errWaited):
		return &failure.Problem{
			Code: failure.TimedOut, What: fmt.Sprintf("the wait is over after %v, and the migration goes on", timeout), Why: moveview.Line(m),
			Remedy: "wait on with: " + again,
		}
	case errors.Is(context.Cause(ctx), failure.ErrInterrupted):
		a.sayf("The migration goes on. Wait on with: %s", again)
	}
	return err
}

// problem is why a migration that ended has not reached its goal; nil when it has.
func (g goal) problem(m *fairleadv1.Migration) error {
	if g.reached(m) {
		return nil
	}
	p := &failure.Problem{
		Code: failure.Failed, What: fmt.Sprintf("the migration %s ended as %s: %s", m.GetId(), moveview.State(m.GetState()), g.lost),
		Remedy: "see why with: fairlead migrate events --id " + m.GetId(),
	}
	if n := len(m.GetEvents()); n > 0 {
		p.Why = m.GetEvents()[n-1].GetWhy()
	}
	return p
}

// nextOfMigration says what people may want to do with a migration that came to rest.
func (a *app) nextOfMigration(m *fairleadv1.Migration) {
	switch m.GetState() { //nolint:exhaustive // in every other state control goes on by itself, or nothing is left to do
	case fairleadv1.MigrationState_MIGRATION_STATE_CUT_OVER:
		a.next("fairlead migrate complete --tenant %s --dry-run, or fairlead migrate reverse --tenant %[1]s", m.GetTenant())
	case fairleadv1.MigrationState_MIGRATION_STATE_READY:
		if m.GetOptions().GetManual() {
			a.next("fairlead migrate switch --tenant %s", m.GetTenant())
		}
	case fairleadv1.MigrationState_MIGRATION_STATE_RELEASED:
		a.next("fairlead placement show --tenant %s", m.GetTenant())
	}
}
