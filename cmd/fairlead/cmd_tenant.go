package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

func (a *app) tenantCommand() *cobra.Command {
	return group("tenant", "Create and change tenants",
		"A tenant is whoever receives the promise: isolation, share and limit. These commands are the operator's: they need a key with the\nscope admin.",
		"  fairlead tenant create acme --weight 2\n  fairlead tenant list\n  fairlead tenant explain acme",
		a.tenantCreateCommand(), a.tenantListCommand(), a.tenantGetCommand(), a.tenantUpdateCommand(), a.tenantExplainCommand())
}

// tenantFlags are what create and update have in common. A flag that was not given is nil in what it makes.
type tenantFlags struct {
	promiseFlags

	organization string
	credit       creditValue
	runningMax   int64
	starts       startsValue
	jobsMax      int64
	bytesMax     sizeValue
	placement    placementFlags
}

func (f *tenantFlags) add(cmd *cobra.Command, updates bool) {
	f.promiseFlags.add(cmd, "what both classes together may be charged a second, in `units` of cost; 0 for none")
	f.credit = newCredit()
	flags := cmd.Flags()
	flags.StringVar(&f.organization, "organization", "", "`id` of the parent that it shares with other tenants; empty for none")
	flags.Var(&f.credit, "credit", "temporary extra: `"+creditExample+"`, in units of cost and units a second; 0 for none")
	flags.Int64Var(&f.runningMax, "running-max", 0, "`jobs` that workers may hold at a time; 0 for no bound")
	flags.Var(&f.starts, "starts", "how many jobs may start in any `jobs/period`, such as 2/120s; 0 for no bound")
	flags.Int64Var(&f.jobsMax, "backlog-jobs-max", 0, "jobs that may wait in each class; 0 leaves it to the cell")
	flags.Var(&f.bytesMax, "backlog-bytes-max", "bytes that may wait in each class, such as 64MiB; 0 leaves it to the cell")
	f.placement.add(cmd, updates)
	completeNothing(cmd, "organization", "credit", "running-max", "starts", "backlog-jobs-max", "backlog-bytes-max")
}

// check returns every fault that needs no server to be seen.
func (f *tenantFlags) check() error {
	errs := []error{f.promiseFlags.check(), f.placement.check()}
	if f.organization != "" {
		errs = append(errs, cell.CheckID("--organization", f.organization))
	}
	for name, n := range map[string]int64{"--running-max": f.runningMax, "--backlog-jobs-max": f.jobsMax, "--backlog-bytes-max": f.bytesMax.n} {
		if n < 0 {
			errs = append(errs, &cell.FieldError{
				Field: name, Problem: "is " + strconv.FormatInt(n, 10) + ", below 0", Remedy: "give a bound, or 0 for none of its own",
			})
		}
	}
	return errors.Join(errs...)
}

func (f *tenantFlags) created(cmd *cobra.Command, id string) *fairleadv1.CreateTenantRequest {
	req := &fairleadv1.CreateTenantRequest{
		Id: id, DisplayName: f.displayName, Weight: given(cmd, "weight", f.weight), BacklogJobsMax: f.jobsMax, BacklogBytesMax: f.bytesMax.n,
		Organization: f.organization, ReservationInteractive: f.reservation.m["interactive"], ReservationBatch: f.reservation.m["batch"],
		Limit: f.limit, RunningMax: f.runningMax,
	}
	if cmd.Flags().Changed("credit") {
		req.Credit = f.credit.credit()
	}
	if cmd.Flags().Changed("starts") {
		req.Starts = f.starts.starts()
	}
	if f.placement.given(cmd) {
		req.Placement = f.placement.over(cmd, nil)
	}
	return req
}

// updated leaves the rules of placement to the caller: what stays of them has to be asked for.
func (f *tenantFlags) updated(cmd *cobra.Command, id string) *fairleadv1.UpdateTenantRequest {
	req := &fairleadv1.UpdateTenantRequest{
		Id: id, DisplayName: given(cmd, "display-name", f.displayName), Weight: given(cmd, "weight", f.weight),
		BacklogJobsMax: given(cmd, "backlog-jobs-max", f.jobsMax), BacklogBytesMax: given(cmd, "backlog-bytes-max", f.bytesMax.n),
		Organization: given(cmd, "organization", f.organization), ReservationInteractive: f.reservation.given("interactive"),
		ReservationBatch: f.reservation.given("batch"), Limit: given(cmd, "limit", f.limit), RunningMax: given(cmd, "running-max", f.runningMax),
	}
	if cmd.Flags().Changed("credit") {
		req.Credit = f.credit.credit()
	}
	if cmd.Flags().Changed("starts") {
		req.Starts = f.starts.starts()
	}
	return req
}

// given returns p when the flag was given, and nil otherwise.
func given[T any](cmd *cobra.Command, flag string, value T) *T {
	if !cmd.Flags().Changed(flag) {
		return nil
	}
	return &value
}

func (a *app) tenantCreateCommand() *cobra.Command {
	var f tenantFlags
	cmd := &cobra.Command{
		Use: "create TENANT", Short: "Create a tenant and open its lanes",
		Long: `Create makes a tenant. Its id never changes: at most 128 letters, digits and . _ : - with a letter or digit first.

Reservation, limit and credit are in units of the cell's cost, which is slot time unless the cell says otherwise: a reservation of 2 is two
slots that run all the time. What a reservation does not use others may, and what a tenant takes of theirs does not spend its own.`,
		Example: `  fairlead tenant create acme
  fairlead tenant create globex --display-name 'Globex Inc.' --weight 2 --backlog-jobs-max 100000
  fairlead tenant create alder --organization acme --reservation interactive=1,batch=2.5 --limit 6 --credit max=600,refill=0.1,extra=2
  fairlead tenant create birch --running-max 40 --starts 2/120s
  fairlead tenant create cedar --require residency=eu --apart cedar-group --compute-min 4`,
		Args: arguments(false, "TENANT"), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(cell.CheckID("TENANT", args[0]), f.check()); err != nil {
				return err
			}
			s, l, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			resp, err := call(cmd.Context(), s, "create the tenant "+args[0], s.tenants.CreateTenant, f.created(cmd, args[0]))
			if err != nil {
				return err
			}
			if err := a.printTenant(a.printer(l), resp.GetTenant()); err != nil {
				return err
			}
			a.next("fairlead key create --tenant %s --scope submit,read", args[0])
			return nil
		},
	}
	f.add(cmd, false)
	return cmd
}

func (a *app) tenantUpdateCommand() *cobra.Command {
	var f tenantFlags
	cmd := &cobra.Command{
		Use: "update TENANT", Short: "Change what a tenant is promised",
		Long:    "Update changes what is given and leaves the rest. It reaches jobs that wait already. Rules of placement hold for decisions from now on:\nno tenant is moved by them.",
		Example: "  fairlead tenant update acme --weight 4\n  fairlead tenant update acme --reservation batch=3 --limit 0\n  fairlead tenant update acme --credit 0\n  fairlead tenant update acme --require residency=eu",
		Args:    arguments(false, "TENANT"), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(cell.CheckID("TENANT", args[0]), f.check()); err != nil {
				return err
			}
			req := f.updated(cmd, args[0])
			if proto.Equal(req, &fairleadv1.UpdateTenantRequest{Id: args[0]}) && !f.placement.given(cmd) {
				return failure.Usagef("give one of --display-name, --organization, --weight, --reservation, --limit, --credit, --running-max, --starts, "+
					"--backlog-jobs-max, --backlog-bytes-max, --require, --apart, --compute-min, --cell, --anywhere", "there is nothing to change")
			}
			s, l, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			if f.placement.given(cmd) {
				was, err := call(cmd.Context(), s, "get the tenant "+args[0], s.tenants.GetTenant, &fairleadv1.GetTenantRequest{Id: args[0]})
				if err != nil {
					return err
				}
				req.Placement = f.placement.over(cmd, was.GetTenant().GetPlacement())
			}
			resp, err := call(cmd.Context(), s, "change the tenant "+args[0], s.tenants.UpdateTenant, req)
			if err != nil {
				return err
			}
			return a.printTenant(a.printer(l), resp.GetTenant())
		},
	}
	f.add(cmd, true)
	return cmd
}

func (a *app) tenantGetCommand() *cobra.Command {
	return &cobra.Command{
		Use: "get TENANT", Short: "Show a tenant",
		Long:    "Get shows what one tenant is promised.",
		Example: "  fairlead tenant get acme\n  fairlead tenant get acme -o json",
		Args:    arguments(false, "TENANT"), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, l, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			resp, err := call(cmd.Context(), s, "get the tenant "+args[0], s.tenants.GetTenant, &fairleadv1.GetTenantRequest{Id: args[0]})
			if err != nil {
				return err
			}
			return a.printTenant(a.printer(l), resp.GetTenant())
		},
	}
}

func (a *app) tenantListCommand() *cobra.Command {
	var limit int
	var organization string
	cmd := &cobra.Command{
		Use: "list", Short: "List tenants",
		Long:    "List shows the tenants in the order of their ids.",
		Example: "  fairlead tenant list\n  fairlead tenant list --organization acme -o wide",
		Args:    arguments(false), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("organization") {
				if err := cell.CheckID("--organization", organization); err != nil {
					return err
				}
			}
			s, l, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			return writePages(a.printer(l), a.tenantView(), limit, func(size int32, token string) ([]*fairleadv1.Tenant, string, error) {
				req := &fairleadv1.ListTenantsRequest{PageSize: size, PageToken: token, Organization: organization}
				resp, err := call(cmd.Context(), s, "list tenants", s.tenants.ListTenants, req)
				return resp.GetTenants(), resp.GetNextPageToken(), err
			})
		},
	}
	cmd.Flags().StringVar(&organization, "organization", "", "only tenants of the organization with this `id`")
	completeNothing(cmd, "organization")
	limitFlag(cmd, &limit)
	return cmd
}

func (a *app) tenantView() output.View[*fairleadv1.Tenant] {
	return output.View[*fairleadv1.Tenant]{
		Columns: []output.Column{
			{Name: "TENANT"},
			{Name: "NAME"},
			{Name: "ORGANIZATION"},
			{Name: "WEIGHT"},
			{Name: "RESERVATION"},
			{Name: "LIMIT"},
			{Name: "CREDIT", Wide: true},
			{Name: "RUNNING MAX", Wide: true},
			{Name: "STARTS", Wide: true},
			{Name: "BACKLOG MAX", Wide: true},
			{Name: "BYTES MAX", Wide: true},
			{Name: "CELL"},
			{Name: "PLACEMENT", Wide: true},
			{Name: "AGE"},
			{Name: "UPDATED", Wide: true},
		},
		Row: func(t *fairleadv1.Tenant) []string {
			return []string{
				output.Safe(t.GetId()), output.Cut(output.Safe(t.GetDisplayName()), 40), output.Safe(t.GetOrganization()), weightText(t.GetWeight()),
				reservationText(t.GetReservationInteractive(), t.GetReservationBatch()), rateText(t.GetLimit()), creditText(t.GetCredit()),
				ownBound(t.GetRunningMax(), decimal), startsText(t.GetStarts()), bound(t.GetBacklogJobsMax(), decimal),
				bound(t.GetBacklogBytesMax(), output.Bytes), output.Safe(t.GetCell()), rulesText(t.GetPlacement()), output.Age(a.now(), t.GetCreateTime()), output.Age(a.now(), t.GetUpdateTime()),
			}
		},
		Name: (*fairleadv1.Tenant).GetId,
	}
}

func (a *app) printTenant(p *output.Printer, t *fairleadv1.Tenant) error {
	if !p.Human() {
		return p.Object(t.GetId(), t)
	}
	return p.Describe([]output.Pair{
		{Key: "Tenant", Value: output.Safe(t.GetId())},
		{Key: "Name", Value: output.Safe(t.GetDisplayName())},
		{Key: "Organization", Value: output.Safe(t.GetOrganization())},
		{Key: "Weight", Value: weightText(t.GetWeight())},
		{Key: "Reservation", Value: reservationText(t.GetReservationInteractive(), t.GetReservationBatch())},
		{Key: "Limit", Value: rateText(t.GetLimit())},
		{Key: "Credit", Value: creditText(t.GetCredit())},
		{Key: "Runs at most", Value: ownBound(t.GetRunningMax(), func(n int64) string { return decimal(n) + " jobs at a time" })},
		{Key: "Starts at most", Value: startsText(t.GetStarts())},
		{Key: "Backlog at most", Value: bound(t.GetBacklogJobsMax(), func(n int64) string { return decimal(n) + " jobs" })},
		{Key: "Backlog bytes at most", Value: bound(t.GetBacklogBytesMax(), output.Bytes)},
		{Key: "Cell", Value: output.Safe(t.GetCell())},
		{Key: "Placement", Value: rulesText(t.GetPlacement())},
		{Key: "Created", Value: a.when(t.GetCreateTime())},
		{Key: "Updated", Value: a.when(t.GetUpdateTime())},
	})
}

func weightText(w float64) string {
	return strconv.FormatFloat(math.Round(w*1000)/1000, 'f', -1, 64)
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

func creditText(c *fairleadv1.Credit) string {
	if c == nil {
		return "none"
	}
	return fmt.Sprintf("%s, spent at %s/s, filled at %s/s", numberText(c.GetMax()), numberText(c.GetExtra()), numberText(c.GetRefill()))
}

func startsText(s *fairleadv1.StartRate) string {
	if s == nil {
		return "none"
	}
	return decimal(s.GetJobs()) + " in " + output.ProtoDuration(s.GetPer())
}

// ownBound shows a limit of the tenant's own; 0 is none.
func ownBound(n int64, form func(int64) string) string {
	if n == 0 {
		return "none"
	}
	return form(n)
}

// bound shows a limit; 0 means that the cell's own stands.
func bound(n int64, form func(int64) string) string {
	if n == 0 {
		return "cell's"
	}
	return form(n)
}
