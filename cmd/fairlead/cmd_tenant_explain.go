package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
	"github.com/fairlead/fairlead/dataplane/client"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// The bounds of tenant explain's look at what a tenant gets.
const (
	overDefault = time.Second
	overMax     = time.Minute
)

func (a *app) tenantExplainCommand() *cobra.Command {
	over := newDuration(overDefault)
	cmd := &cobra.Command{
		Use: "explain TENANT", Short: "Say what a tenant is promised, what it gets, and why it waits",
		Long: `Explain shows where a tenant stands with its cell: what it is promised, how far it is ahead of its reservation or behind, what it was
charged a second while the command looked, and what the next job of each class waits for. It needs a key with the scope operate or admin.

In the formats for machines it looks once and does not wait: two answers and their times are a rate.`,
		Example: "  fairlead tenant explain acme\n  fairlead tenant explain acme --over 10s -o wide\n  fairlead tenant explain acme -o json",
		Args:    arguments(false, "TENANT"), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if over.d < 0 || over.d > overMax {
				return failure.Usagef("give a duration such as 10s, or 0 for one look", "--over is %v, outside 0s to %v", over.d, overMax)
			}
			if err := cell.CheckID("TENANT", args[0]); err != nil {
				return err
			}
			s, l, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			return a.explainTenant(cmd.Context(), s, a.printer(l), args[0], over.d)
		},
	}
	cmd.Flags().Var(over, "over", "how long to look at what it gets, at most 1m")
	completeNothing(cmd, "over")
	return cmd
}

func (a *app) explainTenant(ctx context.Context, s *session, p *output.Printer, id string, over time.Duration) error {
	look := func() (*fairleadv1.ExplainTenantResponse, error) {
		return call(ctx, s, "explain the tenant "+id, s.tenants.ExplainTenant, &fairleadv1.ExplainTenantRequest{Id: id})
	}
	first, err := look()
	if err != nil {
		return err
	}
	if !p.Human() {
		return p.Object(id, first)
	}
	if over == 0 {
		return a.printStanding(p, first, nil)
	}
	if cause := client.Pause(ctx, over); cause != nil {
		return cause
	}
	second, err := look()
	if err != nil {
		return err
	}
	return a.printStanding(p, second, first)
}

// printStanding shows x; before is an earlier look at the same tenant, or nil.
func (a *app) printStanding(p *output.Printer, x, before *fairleadv1.ExplainTenantResponse) error {
	t := x.GetTenant()
	unit := unitOf(x.GetCostUnit())
	pairs := []output.Pair{
		{Key: "Tenant", Value: output.Safe(t.GetId())},
		{Key: "Name", Value: output.Safe(t.GetDisplayName())},
		{Key: "Organization", Value: output.Safe(t.GetOrganization())},
		{Key: "Cell", Value: output.Safe(x.GetCell()) + ", costs in " + unit.name},
		{Key: "Weight", Value: weightText(t.GetWeight())},
		{Key: "Reservation", Value: reservationText(t.GetReservationInteractive(), t.GetReservationBatch())},
		{Key: "Limit", Value: rateText(t.GetLimit()) + a.reached(x.GetLimitUntil())},
	}
	if o := x.GetOrganization(); o != nil {
		pairs = append(
			pairs,
			output.Pair{Key: "Its organization's", Value: "weight " + weightText(o.GetWeight()) + ", reservation " +
				reservationText(o.GetReservationInteractive(), o.GetReservationBatch()) + ", limit " + rateText(o.GetLimit()) +
				a.reached(x.GetOrganizationLimitUntil())},
		)
	}
	if c := t.GetCredit(); c != nil {
		pairs = append(pairs, output.Pair{Key: "Credit", Value: fmt.Sprintf("%s left of %s", numberText(x.GetCreditLeft()), creditText(c))})
	}
	running := decimal(x.GetRunning())
	if most := t.GetRunningMax(); most != 0 {
		running += " of at most " + decimal(most)
	}
	pairs = append(pairs, output.Pair{Key: "Running", Value: running})
	if s := t.GetStarts(); s != nil {
		next := "the next may now"
		if at := x.GetNextStartTime(); at != nil {
			next = "the next at " + a.when(at)
		}
		pairs = append(pairs, output.Pair{Key: "Starts at most", Value: startsText(s) + "; " + next})
	}
	if err := p.Describe(pairs); err != nil {
		return err
	}
	if err := a.printLaneStandings(p, x, before, unit); err != nil {
		return err
	}
	for _, l := range x.GetLanes() {
		if l.GetMessage() == "" {
			continue
		}
		if err := p.Text(fmt.Sprintf("\nThe next %s job waits: %s", classText(l.GetClass()), output.Safe(l.GetMessage()))); err != nil {
			return err
		}
	}
	return nil
}

// reached says until when a limit is reached, if it is.
func (a *app) reached(until *timestamppb.Timestamp) string {
	if until == nil || !until.AsTime().After(a.now()) {
		return ""
	}
	return ", reached for " + output.Duration(until.AsTime().Sub(a.now()))
}

func (a *app) printLaneStandings(p *output.Printer, x, before *fairleadv1.ExplainTenantResponse, unit costUnit) error {
	var rows [][]string
	for _, l := range x.GetLanes() {
		rows = append(rows, []string{
			classText(l.GetClass()), decimal(l.GetReady()), decimal(l.GetLeased()), decimal(l.GetDelayed()), output.ProtoDuration(l.GetOldestWait()),
			laneReservation(x.GetTenant(), l.GetClass()), laneRate(x, before, l), aheadText(l.GetReservationAhead()),
			output.Enum(l.GetReason(), "WAIT_REASON_"), output.Age(a.now(), l.GetNextTime()), unit.text(l.GetChargedCost()), decimal(l.GetRoundsBehind()),
			unit.text(l.GetDeficit()), aheadText(l.GetOrganizationReservationAhead()), decimal(l.GetOrganizationRoundsBehind()),
			unit.text(l.GetOrganizationDeficit()),
		})
	}
	return section(p, []output.Column{
		{Name: "CLASS"},
		{Name: "READY"},
		{Name: "RUNNING"},
		{Name: "DELAYED"},
		{Name: "OLDEST WAIT"},
		{Name: "RESERVED"},
		{Name: "GETS"},
		{Name: "AHEAD"},
		{Name: "WAITS FOR"},
		{Name: "NEXT"},
		{Name: "CHARGED", Wide: true},
		{Name: "ROUNDS BEHIND", Wide: true},
		{Name: "DEFICIT", Wide: true},
		{Name: "ORG AHEAD", Wide: true},
		{Name: "ORG ROUNDS BEHIND", Wide: true},
		{Name: "ORG DEFICIT", Wide: true},
	}, rows)
}

func laneReservation(t *fairleadv1.Tenant, c fairleadv1.Class) string {
	r := t.GetReservationInteractive()
	if c == fairleadv1.Class_CLASS_BATCH {
		r = t.GetReservationBatch()
	}
	return rateText(r)
}

// laneRate is what the lane was charged a second between two looks.
func laneRate(x, before *fairleadv1.ExplainTenantResponse, l *fairleadv1.LaneStanding) string {
	elapsed := x.GetTime().AsTime().Sub(before.GetTime().AsTime())
	if before == nil || elapsed <= 0 {
		return output.None
	}
	for _, old := range before.GetLanes() {
		if old.GetClass() == l.GetClass() {
			perSecond := float64(l.GetChargedCost()-old.GetChargedCost()) / cell.Unit / elapsed.Seconds()
			return fmt.Sprintf("%.4g/s", perSecond)
		}
	}
	return output.None
}
