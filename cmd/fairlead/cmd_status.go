package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// The bounds of status.
const (
	lanesDefault  = 20
	lanesMax      = 500
	watchInterval = 2 * time.Second
	watchMin      = 10 * time.Millisecond // what is below it would only load the cell
)

func (a *app) statusCommand() *cobra.Command {
	var watch bool
	var cellName string
	lanes, interval := lanesDefault, newDuration(watchInterval)
	cmd := &cobra.Command{
		Use: "status", Short: "Show what the cell is doing",
		Long: `Status shows the cell's jobs, classes and workers, and the lanes whose oldest job waits longest. It needs a key with the scope operate.
A class's nominal slots are its own; what of them is lendable others use while it is idle, and what is held back waits for it a while longer.
With --watch it repeats until it is interrupted: on a terminal in place, else one after the other; -o json writes an object a line.`,
		Example: "  fairlead status\n  fairlead status --cell cell-a\n  fairlead status --watch --interval 1s\n  fairlead status -o json",
		Args:    arguments(false), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if lanes < 1 || lanes > lanesMax {
				return failure.Usagef("give a number of lanes in that range", "--lanes is %d, outside 1 to %d", lanes, lanesMax)
			}
			if interval.d < watchMin {
				return failure.Usagef("give a duration such as 2s", "--interval is %v, below %v", interval.d, watchMin)
			}
			s, l, err := a.connectCell(cmd, roleAdmin, cellName)
			if err != nil {
				return err
			}
			p := a.printer(l)
			get := func(ctx context.Context) (*fairleadv1.GetStatusResponse, error) {
				return call(ctx, s, "get the status", s.status.GetStatus, &fairleadv1.GetStatusRequest{LanesMax: int32(lanes)})
			}
			if watch {
				return a.watchStatus(cmd.Context(), p, interval.d, get)
			}
			st, err := get(cmd.Context())
			if err != nil {
				return err
			}
			if !p.Human() {
				return p.Object(st.GetCell(), st)
			}
			return a.printStatus(p, st)
		},
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "repeat until interrupted")
	cmd.Flags().Var(interval, "interval", "time between two looks of --watch")
	cmd.Flags().IntVar(&lanes, "lanes", lanesDefault, "`number` of lanes to list, at most 500")
	completeNothing(cmd, "interval", "lanes")
	cellFlag(cmd, &cellName, "`cell` to ask, where there are several")
	return cmd
}

// watchStatus repeats until ctx ends. A look that fails ends it as well: what is shown must not be old without saying so.
func (a *app) watchStatus(ctx context.Context, p *output.Printer, every time.Duration, get func(context.Context) (*fairleadv1.GetStatusResponse, error)) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		st, err := get(ctx)
		if err != nil {
			return err
		}
		if err := a.printLook(p, st); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

func (a *app) printLook(p *output.Printer, st *fairleadv1.GetStatusResponse) error {
	switch {
	case p.Format == output.FormatName:
		return p.Text(st.GetCell())
	case !p.Human():
		return p.Line(st)
	case a.screen:
		if err := p.Text("\x1b[H\x1b[2J" + a.now().Format(time.TimeOnly)); err != nil {
			return err
		}
	default:
		if err := p.Text("--- " + a.now().UTC().Format(time.RFC3339)); err != nil {
			return err
		}
	}
	return a.printStatus(p, st)
}

func (a *app) printStatus(p *output.Printer, st *fairleadv1.GetStatusResponse) error {
	j := st.GetJobs()
	since := output.Age(a.now(), st.GetCountersSince())
	pairs := []output.Pair{
		{Key: "Cell", Value: output.Safe(st.GetCell())},
		{Key: "Version", Value: output.Safe(st.GetVersion())},
		{Key: "Policy", Value: output.Safe(st.GetPolicy()) + ", costs in " + unitOf(st.GetCostUnit()).name},
		{Key: "Up", Value: output.Age(a.now(), st.GetStartTime())},
		{Key: "Waiting", Value: words("ready", j.GetReady(), "delayed", j.GetDelayed()) + ", " + output.Bytes(st.GetBacklogBytes())},
		{Key: "Running", Value: decimal(j.GetLeased())},
		{Key: "Ended", Value: words("succeeded", j.GetSucceeded(), "failed", j.GetFailed(), "cancelled", j.GetCancelled(), "expired", j.GetExpired(),
			"quarantined", j.GetQuarantined())},
		{Key: "In the last " + since, Value: words("accepted", st.GetAcceptedTotal(), "finished", st.GetFinishedTotal(), "rejected", st.GetRejectedTotal())},
	}
	if p.Wide() {
		pairs = append(pairs, output.Pair{Key: "Log", Value: "index " + strconv.FormatUint(st.GetLog().GetIndex(), 10) + ", snapshot at " +
			strconv.FormatUint(st.GetLog().GetSnapshotIndex(), 10) + ", " + output.Bytes(st.GetLog().GetBytesSinceSnapshot()) + " since"})
	}
	if err := p.Describe(pairs); err != nil {
		return err
	}
	for _, section := range []func(*output.Printer, *fairleadv1.GetStatusResponse) error{a.printClasses, a.printWorkers, printLanes} {
		if err := section(p, st); err != nil {
			return err
		}
	}
	return nil
}

// words returns numbers with their names: "3 ready, 0 delayed".
func words(pairs ...any) string {
	var parts []string
	for i := 0; i+1 < len(pairs); i += 2 {
		name, okName := pairs[i].(string)
		n, okNumber := pairs[i+1].(int64)
		if !okName || !okNumber {
			panic("status: words wants a name and a number")
		}
		parts = append(parts, decimal(n)+" "+name)
	}
	return strings.Join(parts, ", ")
}

func (a *app) printClasses(p *output.Printer, st *fairleadv1.GetStatusResponse) error {
	var rows [][]string
	for _, c := range st.GetClasses() {
		held := decimal(c.GetHeldBack())
		if until := c.GetHeldBackUntil(); until != nil && c.GetHeldBack() > 0 {
			held += " for " + output.Duration(max(0, until.AsTime().Sub(a.now())))
		}
		rows = append(rows, []string{
			output.Enum(c.GetClass(), "CLASS_"), decimal(c.GetUsed()), decimal(c.GetLimit()), decimal(c.GetNominal()), decimal(c.GetLendable()),
			decimal(c.GetLent()), held, decimal(c.GetReady()),
		})
	}
	return section(p, []output.Column{
		{Name: "CLASS"},
		{Name: "USED"},
		{Name: "MAY USE"},
		{Name: "NOMINAL"},
		{Name: "LENDABLE"},
		{Name: "LENT"},
		{Name: "HELD BACK"},
		{Name: "READY"},
	}, rows)
}

func (a *app) printWorkers(p *output.Printer, st *fairleadv1.GetStatusResponse) error {
	var rows [][]string
	for _, w := range st.GetWorkers() {
		rows = append(rows, []string{
			output.Safe(w.GetWorker()), decimal(w.GetHeld()), decimal(w.GetSlots()), decimal(w.GetPrefetch()),
			output.Cut(output.Safe(strings.Join(w.GetOperations(), ",")), 60), output.Age(a.now(), w.GetLastSeen()), output.Safe(w.GetSession()),
		})
	}
	return section(p, []output.Column{
		{Name: "WORKER"},
		{Name: "HELD"},
		{Name: "SLOTS"},
		{Name: "PREFETCH", Wide: true},
		{Name: "OPERATIONS"},
		{Name: "SEEN"},
		{Name: "SESSION", Wide: true},
	}, rows)
}

func printLanes(p *output.Printer, st *fairleadv1.GetStatusResponse) error {
	var rows [][]string
	for _, l := range st.GetLanes() {
		rows = append(rows, []string{
			output.Safe(l.GetTenant()), output.Enum(l.GetClass(), "CLASS_"), output.ProtoDuration(l.GetOldestWait()), decimal(l.GetReady()),
			decimal(l.GetLeased()), decimal(l.GetDelayed()), output.Bytes(l.GetBacklogBytes()),
			unitOf(st.GetCostUnit()).text(l.GetChargedCost()),
		})
	}
	return section(p, []output.Column{
		{Name: "TENANT"},
		{Name: "CLASS"},
		{Name: "OLDEST WAIT"},
		{Name: "READY"},
		{Name: "RUNNING"},
		{Name: "DELAYED"},
		{Name: "BYTES", Wide: true},
		{Name: "CHARGED", Wide: true},
	}, rows)
}

// section writes a table below what came before; an empty one is left out.
func section(p *output.Printer, columns []output.Column, rows [][]string) error {
	if len(rows) == 0 {
		return nil
	}
	if err := p.Text(""); err != nil {
		return err
	}
	return p.Section(columns, rows)
}
