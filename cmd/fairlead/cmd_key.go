package main

import (
	"errors"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

func (a *app) keyCommand() *cobra.Command {
	return group("key", "Create and revoke API keys",
		"A key is who a request comes from: its tenant and what it may do. These commands are the operator's: they need a key with the scope\nadmin.",
		"  fairlead key create --tenant acme --scope submit,read\n  fairlead key list --tenant acme",
		a.keyCreateCommand(), a.keyListCommand(), a.keyRevokeCommand())
}

func scopeNames() []string {
	var names []string
	for _, p := range cell.Permissions() {
		names = append(names, p.String())
	}
	return names
}

type keyFlags struct {
	tenant, description string
	operations          []string
	scopes              *enumList
	lifetime            *durationValue
}

// request returns what to ask for, or every fault that needs no server to be seen.
func (f *keyFlags) request(cmd *cobra.Command) (*fairleadv1.CreateKeyRequest, error) {
	req := &fairleadv1.CreateKeyRequest{Tenant: f.tenant, Description: f.description, Operations: f.operations}
	var errs []error
	if f.tenant != "" {
		errs = append(errs, cell.CheckID("--tenant", f.tenant))
	}
	if len(f.scopes.values) == 0 {
		errs = append(errs, &cell.FieldError{Field: "--scope", Problem: "is missing", Remedy: "give some of " + strings.Join(scopeNames(), ", ")})
	}
	for _, name := range f.scopes.values {
		p, err := cell.ParsePermission("--scope", name)
		if err == nil && p.OfPlatformOnly() && f.tenant != "" {
			err = &cell.FieldError{
				Field: "--scope", Problem: name + " is the platform's, and --tenant makes the key a tenant's",
				Remedy: "leave --tenant out, or use submit, read, work",
			}
		}
		errs = append(errs, err)
		req.Scopes = append(req.Scopes, fairleadv1.Scope(p))
	}
	for _, op := range f.operations {
		errs = append(errs, cell.CheckID("--operation", op))
	}
	if len(f.operations) > 0 && !slices.Contains(f.scopes.values, "work") {
		errs = append(errs, &cell.FieldError{Field: "--operation", Problem: "binds what a worker may lease, and the key has no scope work", Remedy: "add --scope work"})
	}
	if !utf8.ValidString(f.description) {
		errs = append(errs, &cell.FieldError{Field: "--description", Problem: "is not UTF-8", Remedy: "write it in UTF-8"})
	}
	if cmd.Flags().Changed("lifetime") {
		if f.lifetime.d <= 0 {
			errs = append(errs, &cell.FieldError{Field: "--lifetime", Problem: "is " + f.lifetime.String() + ", not above 0", Remedy: "give a duration such as 90d"})
		}
		req.Lifetime = durationpb.New(f.lifetime.d)
	}
	return req, errors.Join(errs...)
}

func (a *app) keyCreateCommand() *cobra.Command {
	f := keyFlags{scopes: newEnumList(scopeNames()), lifetime: newDuration(0)}
	cmd := &cobra.Command{
		Use: "create", Short: "Create a key and print its secret, this once",
		Long: `Create makes a key. Its secret is printed this once: only its hash is stored. Without --tenant the key is the platform's, and one with
the scope work leases every tenant's jobs.`,
		Example: `  fairlead key create --tenant acme --scope submit,read --description 'web shop'
  fairlead key create --scope work --operation invoice.export --lifetime 90d
  fairlead key create --tenant acme --scope read -o json`,
		Args: arguments(false), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			req, err := f.request(cmd)
			if err != nil {
				return err
			}
			s, l, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			resp, err := call(cmd.Context(), s, "create the key", s.keys.CreateKey, req)
			if err != nil {
				return err
			}
			return a.printNewKey(a.printer(l), resp)
		},
	}
	cmd.Flags().StringVar(&f.tenant, "tenant", "", "`tenant` whose key it is; the platform's when empty")
	cmd.Flags().Var(f.scopes, "scope", "what the key may do, repeated or with commas: "+strings.Join(scopeNames(), ", "))
	cmd.Flags().StringVar(&f.description, "description", "", "`text` for people")
	cmd.Flags().StringArrayVar(&f.operations, "operation", nil, "`operation` that a worker's key may lease, repeated; all when empty")
	cmd.Flags().Var(f.lifetime, "lifetime", "how long the key lives; for ever when it is not given")
	completeEnum(cmd, "scope", scopeNames())
	completeNothing(cmd, "tenant", "description", "operation", "lifetime")
	return cmd
}

func (a *app) printNewKey(p *output.Printer, resp *fairleadv1.CreateKeyResponse) error {
	key := resp.GetKey()
	if !p.Human() {
		return p.Object(key.GetId(), resp)
	}
	if err := p.Describe(append(a.keyPairs(key), output.Pair{Key: "Secret", Value: resp.GetSecret()})); err != nil {
		return err
	}
	a.sayf("The secret is not stored and cannot be shown again.")
	a.next("FAIRLEAD_TOKEN=%s fairlead job list", resp.GetSecret())
	return nil
}

func (a *app) keyPairs(k *fairleadv1.Key) []output.Pair {
	return []output.Pair{
		{Key: "Key", Value: output.Safe(k.GetId())},
		{Key: "Tenant", Value: ownerText(k)},
		{Key: "Scopes", Value: scopesText(k)},
		{Key: "Operations", Value: output.Safe(strings.Join(k.GetOperations(), ","))},
		{Key: "Description", Value: output.Safe(k.GetDescription())},
		{Key: "Expires", Value: a.when(k.GetExpireTime())},
	}
}

func ownerText(k *fairleadv1.Key) string {
	if k.GetTenant() == "" {
		return "(platform)"
	}
	return output.Safe(k.GetTenant())
}

func scopesText(k *fairleadv1.Key) string {
	names := make([]string, len(k.GetScopes()))
	for i, s := range k.GetScopes() {
		names[i] = output.Enum(s, "SCOPE_")
	}
	return strings.Join(names, ",")
}

func (a *app) keyListCommand() *cobra.Command {
	var tenant string
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List keys, without their secrets",
		Long:    "List shows the keys, revoked ones included.",
		Example: "  fairlead key list\n  fairlead key list --tenant acme -o wide",
		Args:    arguments(false), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if tenant != "" {
				if err := cell.CheckID("--tenant", tenant); err != nil {
					return err
				}
			}
			s, l, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			return writePages(a.printer(l), a.keyView(), limit, func(size int32, token string) ([]*fairleadv1.Key, string, error) {
				req := &fairleadv1.ListKeysRequest{Tenant: tenant, PageSize: size, PageToken: token}
				resp, err := call(cmd.Context(), s, "list keys", s.keys.ListKeys, req)
				return resp.GetKeys(), resp.GetNextPageToken(), err
			})
		},
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "only the keys of this `tenant`")
	completeNothing(cmd, "tenant")
	limitFlag(cmd, &limit)
	return cmd
}

func (a *app) keyView() output.View[*fairleadv1.Key] {
	return output.View[*fairleadv1.Key]{
		Columns: []output.Column{
			{Name: "KEY"},
			{Name: "TENANT"},
			{Name: "SCOPES"},
			{Name: "STATE"},
			{Name: "AGE"},
			{Name: "DESCRIPTION"},
			{Name: "OPERATIONS", Wide: true},
			{Name: "EXPIRES", Wide: true},
			{Name: "REVOKED", Wide: true},
		},
		Row: func(k *fairleadv1.Key) []string {
			return []string{
				output.Safe(k.GetId()), ownerText(k), scopesText(k), keyState(k, a.now()), output.Age(a.now(), k.GetCreateTime()),
				output.Cut(output.Safe(k.GetDescription()), 40), output.Safe(strings.Join(k.GetOperations(), ",")),
				output.Age(a.now(), k.GetExpireTime()), output.Age(a.now(), k.GetRevokeTime()),
			}
		},
		Name: (*fairleadv1.Key).GetId,
	}
}

func keyState(k *fairleadv1.Key, now time.Time) string {
	switch {
	case k.GetRevokeTime() != nil:
		return "revoked"
	case k.GetExpireTime() != nil && !k.GetExpireTime().AsTime().After(now):
		return "expired"
	default:
		return "live"
	}
}

func (a *app) keyRevokeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "revoke KEY...", Short: "Revoke keys for ever",
		Long:    "Revoke ends keys: requests that carry them are refused within seconds. It cannot be undone; a revoked key stays in the list.",
		Example: "  fairlead key list --tenant acme\n  fairlead key revoke $(fairlead key list --tenant acme -o name)",
		Args:    arguments(true, "KEY"), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, l, err := a.connect(cmd, roleAdmin)
			if err != nil {
				return err
			}
			return eachOf(a, a.printer(l), a.keyView(), args, func(id string) (*fairleadv1.Key, error) {
				resp, err := call(cmd.Context(), s, "revoke the key "+id, s.keys.RevokeKey, &fairleadv1.RevokeKeyRequest{Id: id})
				return resp.GetKey(), err
			})
		},
	}
}
