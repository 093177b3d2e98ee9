package main

import (
	"errors"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

func (a *app) organizationCommand() *cobra.Command {
	cmd := group("organization", "Create and change parents of tenants",
		`An organization is a parent of tenants: they share its weight, its reservation and its limit against everybody else. These commands are the
operator's: they need a key with the scope admin.`,
		"  fairlead organization create acme --weight 2 --reservation batch=4\n  fairlead tenant create alder --organization acme",
		a.organizationCreateCommand(), a.organizationListCommand(), a.organizationGetCommand(), a.organizationUpdateCommand())
	cmd.Aliases = []string{"org"}
	return cmd
}

const organizationLimit = "what all of it may be charged a second, in `units` of cost; 0 for none, else more than its tenants reserve"

func (a *app) organizationCreateCommand() *cobra.Command {
	var f promiseFlags
	cmd := &cobra.Command{
		Use: "create ORGANIZATION", Short: "Create an organization",
		Long: `Create makes an organization that tenants can then be put into. Its id never changes: at most 128 letters, digits and . _ : - with a letter
or digit first. In each class its reservation is 0, or no less than the sum of its tenants'.`,
		Example: "  fairlead organization create acme\n  fairlead organization create globex --weight 2 --reservation interactive=2,batch=4 --limit 10",
		Args:    arguments(false, "ORGANIZATION"), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(cell.CheckID("ORGANIZATION", args[0]), f.check()); err != nil {
				return err
			}
			s, l, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			req := &fairleadv1.CreateOrganizationRequest{
				Id: args[0], DisplayName: f.displayName, Weight: given(cmd, "weight", f.weight),
				ReservationInteractive: f.reservation.m["interactive"], ReservationBatch: f.reservation.m["batch"], Limit: f.limit,
			}
			resp, err := call(cmd.Context(), s, "create the organization "+args[0], s.organizations.CreateOrganization, req)
			if err != nil {
				return err
			}
			if err := a.printOrganization(a.printer(l), resp.GetOrganization()); err != nil {
				return err
			}
			a.next("fairlead tenant create TENANT --organization %s", args[0])
			return nil
		},
	}
	f.add(cmd, organizationLimit)
	return cmd
}

func (a *app) organizationUpdateCommand() *cobra.Command {
	var f promiseFlags
	cmd := &cobra.Command{
		Use: "update ORGANIZATION", Short: "Change what an organization is promised",
		Long:    "Update changes what is given and leaves the rest. It reaches jobs that wait already.",
		Example: "  fairlead organization update acme --weight 4\n  fairlead organization update acme --reservation batch=0 --limit 0",
		Args:    arguments(false, "ORGANIZATION"), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(cell.CheckID("ORGANIZATION", args[0]), f.check()); err != nil {
				return err
			}
			req := &fairleadv1.UpdateOrganizationRequest{
				Id: args[0], DisplayName: given(cmd, "display-name", f.displayName), Weight: given(cmd, "weight", f.weight),
				ReservationInteractive: f.reservation.given("interactive"), ReservationBatch: f.reservation.given("batch"), Limit: given(cmd, "limit", f.limit),
			}
			if proto.Equal(req, &fairleadv1.UpdateOrganizationRequest{Id: args[0]}) {
				return failure.Usagef("give one of --display-name, --weight, --reservation, --limit", "there is nothing to change")
			}
			s, l, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			resp, err := call(cmd.Context(), s, "change the organization "+args[0], s.organizations.UpdateOrganization, req)
			if err != nil {
				return err
			}
			return a.printOrganization(a.printer(l), resp.GetOrganization())
		},
	}
	f.add(cmd, organizationLimit)
	return cmd
}

func (a *app) organizationGetCommand() *cobra.Command {
	return &cobra.Command{
		Use: "get ORGANIZATION", Short: "Show an organization",
		Long:    "Get shows what one organization is promised.",
		Example: "  fairlead organization get acme\n  fairlead organization get acme -o json",
		Args:    arguments(false, "ORGANIZATION"), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, l, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			req := &fairleadv1.GetOrganizationRequest{Id: args[0]}
			resp, err := call(cmd.Context(), s, "get the organization "+args[0], s.organizations.GetOrganization, req)
			if err != nil {
				return err
			}
			return a.printOrganization(a.printer(l), resp.GetOrganization())
		},
	}
}

func (a *app) organizationListCommand() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List organizations",
		Long:    "List shows the organizations in the order of their ids.",
		Example: "  fairlead organization list\n  fairlead organization list -o name",
		Args:    arguments(false), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, l, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			return writePages(a.printer(l), a.organizationView(), limit, func(size int32, token string) ([]*fairleadv1.Organization, string, error) {
				req := &fairleadv1.ListOrganizationsRequest{PageSize: size, PageToken: token}
				resp, err := call(cmd.Context(), s, "list organizations", s.organizations.ListOrganizations, req)
				return resp.GetOrganizations(), resp.GetNextPageToken(), err
			})
		},
	}
	limitFlag(cmd, &limit)
	return cmd
}

func (a *app) organizationView() output.View[*fairleadv1.Organization] {
	return output.View[*fairleadv1.Organization]{
		Columns: []output.Column{
			{Name: "ORGANIZATION"},
			{Name: "NAME"},
			{Name: "WEIGHT"},
			{Name: "RESERVATION"},
			{Name: "LIMIT"},
			{Name: "AGE"},
			{Name: "UPDATED", Wide: true},
		},
		Row: func(o *fairleadv1.Organization) []string {
			return []string{
				output.Safe(o.GetId()), output.Cut(output.Safe(o.GetDisplayName()), 40), weightText(o.GetWeight()),
				reservationText(o.GetReservationInteractive(), o.GetReservationBatch()), rateText(o.GetLimit()),
				output.Age(a.now(), o.GetCreateTime()), output.Age(a.now(), o.GetUpdateTime()),
			}
		},
		Name: (*fairleadv1.Organization).GetId,
	}
}

func (a *app) printOrganization(p *output.Printer, o *fairleadv1.Organization) error {
	if !p.Human() {
		return p.Object(o.GetId(), o)
	}
	return p.Describe([]output.Pair{
		{Key: "Organization", Value: output.Safe(o.GetId())},
		{Key: "Name", Value: output.Safe(o.GetDisplayName())},
		{Key: "Weight", Value: weightText(o.GetWeight())},
		{Key: "Reservation", Value: reservationText(o.GetReservationInteractive(), o.GetReservationBatch())},
		{Key: "Limit", Value: rateText(o.GetLimit())},
		{Key: "Created", Value: a.when(o.GetCreateTime())},
		{Key: "Updated", Value: a.when(o.GetUpdateTime())},
	})
}
