package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// completeTimeout bounds how long a shell waits for names: whoever presses a key twice is not patient.
const completeTimeout = 2 * time.Second

// names asks the server for names of one kind that begin with prefix.
type names func(ctx context.Context, s *session) ([]string, error)

// complete makes the shell offer what the server knows. Whatever goes wrong, it offers nothing: the command itself will say why.
func (a *app) complete(ask names) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		s, _, err := a.connect(cmd, roleAdmin)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
		defer cancel()
		all, err := ask(ctx, s)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return slices.DeleteFunc(all, func(n string) bool { return !strings.HasPrefix(n, prefix) }), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeOne is complete for a command with one argument.
func (a *app) completeOne(ask names) cobra.CompletionFunc {
	first := a.complete(ask)
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return first(cmd, args, prefix)
	}
}

func (a *app) tenantNames(ctx context.Context, s *session) ([]string, error) {
	resp, err := s.tenants.ListTenants(ctx, &fairleadv1.ListTenantsRequest{PageSize: pageSizeMax})
	var all []string
	for _, t := range resp.GetTenants() {
		all = append(all, t.GetId())
	}
	return all, err
}

func (a *app) cellNames(ctx context.Context, s *session) ([]string, error) {
	resp, err := s.cells.ListCells(ctx, &fairleadv1.ListCellsRequest{})
	var all []string
	for _, c := range resp.GetCells() {
		all = append(all, c.GetName())
	}
	return all, err
}

// movingTenants are the tenants of the migrations that are known, each once.
func (a *app) movingTenants(ctx context.Context, s *session) ([]string, error) {
	resp, err := s.migrations.ListMigrations(ctx, &fairleadv1.ListMigrationsRequest{PageSize: pageSizeMax})
	var all []string
	for _, m := range resp.GetMigrations() {
		all = append(all, m.GetTenant())
	}
	slices.Sort(all)
	return slices.Compact(all), err
}
