package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/cmd/fairlead/moveview"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

func (a *app) migrateStatusCommand() *cobra.Command {
	var f migrationFlags
	var watch bool
	interval, timeout := newDuration(migrationInterval), newDuration(0)
	cmd := &cobra.Command{
		Use: "status --tenant TENANT", Short: "Show where a migration stands",
		Long: `Status shows where a migration stands: its state and attempt, whose each class is and since which epoch, how much is copied and how far the copy is
behind, the gates that were proved last, what comes next, and what abort or reverse would do now.

With --watch it shows each step with how far it is, on a terminal in place, else a line for each change, until the tenant is served by its new
cell or the migration has ended otherwise: the exit code is 0 for the first, and 1 for the second. -o json writes an object a line.`,
		Example: `  fairlead migrate status --tenant acme
  fairlead migrate status acme --watch
  fairlead migrate status --tenant acme -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd, args); err != nil {
				return err
			}
			if interval.d < watchMin {
				return failure.Usagef("give a duration such as 1s", "--interval is %v, below %v", interval, watchMin)
			}
			if timeout.d < 0 {
				return failure.Usagef("give a duration such as 1h, or 0s for no bound", "--timeout is %v, below 0", timeout)
			}
			s, l, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			m, err := f.find(cmd.Context(), s)
			if err != nil {
				return err
			}
			if watch {
				return a.watchMigration(cmd.Context(), s, a.printer(l), m, interval, timeout)
			}
			return a.printMigration(a.printer(l), m)
		},
	}
	f.add(a, cmd)
	cmd.Flags().BoolVar(&watch, "watch", false, "go on until it is at rest")
	cmd.Flags().Var(interval, "interval", "time between two looks of --watch")
	cmd.Flags().Var(timeout, "timeout", "how long --watch goes on; without bound when not given")
	completeNothing(cmd, "interval", "timeout")
	return cmd
}

// watchMigration shows a migration until it is at rest. Its end is the answer's code.
func (a *app) watchMigration(ctx context.Context, s *session, p *output.Printer, m *fairleadv1.Migration, every, timeout *durationValue) error {
	if timeout.d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout.d, errWaited)
		defer cancel()
	}
	var look func(*fairleadv1.Migration) error
	if !p.Human() && p.Format != output.FormatName {
		look = func(m *fairleadv1.Migration) error { return p.Line(m) }
	}
	resting := func(m *fairleadv1.Migration) bool {
		return moveview.Ended(m) || m.GetState() == fairleadv1.MigrationState_MIGRATION_STATE_CUT_OVER
	}
	m, err := a.followMigration(ctx, s, every.d, m, resting, look)
	if err != nil {
		return a.stoppedWaiting(ctx, err, m, timeout)
	}
	if look == nil {
		if err := a.printMigration(p, m); err != nil {
			return err
		}
	}
	a.nextOfMigration(m)
	return served().problem(m)
}

// printMigration writes all that is known of a migration, but for its events.
func (a *app) printMigration(p *output.Printer, m *fairleadv1.Migration) error {
	if !p.Human() {
		return p.Object(m.GetId(), m)
	}
	err := p.Describe([]output.Pair{
		{Key: "Migration", Value: output.Safe(m.GetId())},
		{Key: "Tenant", Value: output.Safe(m.GetTenant())},
		{Key: "From", Value: output.Safe(m.GetSource())},
		{Key: "To", Value: output.Safe(m.GetTarget())},
		{Key: "State", Value: fmt.Sprintf("%s, for %s", moveview.State(m.GetState()), output.Age(a.now(), m.GetEnterTime()))},
		{Key: "Held", Value: output.Safe(m.GetHeld())},
		{Key: "Attempt", Value: fmt.Sprint(m.GetAttempt())},
		{Key: "Reason", Value: fmt.Sprintf("%s, by %s", output.Safe(m.GetReason()), output.Safe(m.GetActor()))},
		{Key: "Begun", Value: a.when(m.GetCreateTime())},
		{Key: "Ended", Value: a.when(m.GetEndTime())},
		{Key: "Copied", Value: moveview.Copied(m.GetProgress())},
		{Key: "Lag", Value: lagText(m)},
		{Key: "Throttled", Value: throttleText(m)},
		{Key: "Next step", Value: output.Safe(m.GetNextStep())},
		{Key: "To undo", Value: output.Safe(m.GetUndo())},
	})
	if err != nil {
		return err
	}
	rows := make([][]string, 0, len(m.GetLanes()))
	for _, l := range m.GetLanes() {
		rows = append(rows, []string{
			classText(l.GetClass()), moveview.Phase(l.GetPhase()), output.Safe(l.GetOwner()), fmt.Sprint(l.GetEpoch()), output.ProtoDuration(l.GetPause()),
			fmt.Sprint(l.GetPosition()), output.Age(a.now(), l.GetFenceTime()), output.Age(a.now(), l.GetCommitTime()), output.Age(a.now(), l.GetActivateTime()),
		})
	}
	err = section(p, []output.Column{
		{Name: "CLASS"},
		{Name: "PHASE"},
		{Name: "OWNER"},
		{Name: "EPOCH"},
		{Name: "PAUSE"},
		{Name: "POSITION", Wide: true},
		{Name: "FENCED", Wide: true},
		{Name: "COMMITTED", Wide: true},
		{Name: "ACTIVATED", Wide: true},
	}, rows)
	if err != nil {
		return err
	}
	return section(p, gateColumns(), gateRows(m.GetGates()))
}

// lagText is how far the copy is behind, while there is one that follows.
func lagText(m *fairleadv1.Migration) string {
	if moveview.Ended(m) {
		return output.None
	}
	return moveview.Lag(m)
}

func throttleText(m *fairleadv1.Migration) string {
	switch {
	case moveview.Ended(m):
		return output.None
	case m.GetProgress().GetThrottled():
		return "yes, to spare " + output.Safe(m.GetSource())
	case m.GetOptions().GetBytesPerSecond() > 0:
		return "no, at most " + output.Bytes(m.GetOptions().GetBytesPerSecond()) + "/s"
	default:
		return output.None
	}
}

func (a *app) migrateListCommand() *cobra.Command {
	var live bool
	var cellName string
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List migrations, newest first",
		Long:    "List shows migrations, newest first: those under way and those that ended, as far back as they are kept.",
		Example: "  fairlead migrate list --live\n  fairlead migrate list --cell cell-a -o wide\n  fairlead migrate list -o name",
		Args:    arguments(false), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkCell(cmd, cellName); err != nil {
				return err
			}
			s, l, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			return writePages(a.printer(l), a.migrationView(), limit, func(size int32, token string) ([]*fairleadv1.Migration, string, error) {
				req := &fairleadv1.ListMigrationsRequest{Live: live, Cell: cellName, PageSize: size, PageToken: token}
				resp, err := call(cmd.Context(), s, "list migrations", s.migrations.ListMigrations, req)
				return resp.GetMigrations(), resp.GetNextPageToken(), err
			})
		},
	}
	cmd.Flags().BoolVar(&live, "live", false, "only those that have not ended")
	cmd.Flags().StringVar(&cellName, "cell", "", "only those from or to this `cell`")
	must(cmd.RegisterFlagCompletionFunc("cell", a.complete(a.cellNames)))
	limitFlag(cmd, &limit)
	return cmd
}

func (a *app) migrationView() output.View[*fairleadv1.Migration] {
	return output.View[*fairleadv1.Migration]{
		Columns: []output.Column{
			{Name: "MIGRATION"},
			{Name: "TENANT"},
			{Name: "FROM"},
			{Name: "TO"},
			{Name: "STATE"},
			{Name: "DONE"},
			{Name: "HELD"},
			{Name: "AGE"},
			{Name: "REASON", Wide: true},
			{Name: "ACTOR", Wide: true},
			{Name: "ATTEMPT", Wide: true},
			{Name: "CLASSES", Wide: true},
		},
		Row: func(m *fairleadv1.Migration) []string {
			phases := make([]string, 0, len(m.GetLanes()))
			for _, l := range m.GetLanes() {
				phases = append(phases, classText(l.GetClass())+" "+moveview.Phase(l.GetPhase()))
			}
			return []string{
				output.Safe(m.GetId()), output.Safe(m.GetTenant()), output.Safe(m.GetSource()), output.Safe(m.GetTarget()), moveview.State(m.GetState()),
				percent(moveview.Done(moveview.Steps(a.now(), m))), output.Cut(output.Safe(m.GetHeld()), heldWidth), output.Age(a.now(), m.GetCreateTime()),
				output.Safe(m.GetReason()), output.Safe(m.GetActor()), fmt.Sprint(m.GetAttempt()), output.Safe(strings.Join(phases, ", ")),
			}
		},
		Name: (*fairleadv1.Migration).GetId,
	}
}

// heldWidth is how much of why a migration is held is shown in a table.
const heldWidth = 40

func (a *app) migrateEventsCommand() *cobra.Command {
	var f migrationFlags
	cmd := &cobra.Command{
		Use: "events --tenant TENANT", Short: "Show who did what to a migration, when and why",
		Long:    "Events shows what happened to a migration, the oldest first, as far back as it is kept: who or what did it, why, in which attempt, and the epoch it led to.",
		Example: "  fairlead migrate events --tenant acme\n  fairlead migrate events --tenant acme -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd, args); err != nil {
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
			list := output.NewList(a.printer(l), eventView())
			if len(m.GetEvents()) > 0 {
				if err := list.Add(m.GetEvents()...); err != nil {
					return err
				}
			}
			return list.Close()
		},
	}
	f.add(a, cmd)
	return cmd
}

func eventView() output.View[*fairleadv1.MigrationEvent] {
	return output.View[*fairleadv1.MigrationEvent]{
		Columns: []output.Column{{Name: "TIME"}, {Name: "WHO"}, {Name: "WHAT"}, {Name: "ATTEMPT"}, {Name: "EPOCH"}, {Name: "WHY"}},
		Row: func(e *fairleadv1.MigrationEvent) []string {
			epoch := output.None
			if e.GetEpoch() > 0 {
				epoch = fmt.Sprint(e.GetEpoch())
			}
			return []string{
				clock(e.GetTime()), output.Safe(e.GetActor()), output.Safe(e.GetWhat()), fmt.Sprint(e.GetAttempt()), epoch, output.Safe(e.GetWhy()),
			}
		},
		Name: (*fairleadv1.MigrationEvent).GetWhat,
	}
}

// clock is a time to the millisecond: the steps of a switch are that close together.
func clock(t *timestamppb.Timestamp) string {
	if t == nil {
		return output.None
	}
	return t.AsTime().UTC().Format("2006-01-02T15:04:05.000Z")
}
