package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cmd/fairlead/config"
	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/cmd/fairlead/identity"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
	"github.com/fairlead/fairlead/dataplane/client"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

const (
	// seedWait bounds a seed of a cluster that is just starting.
	seedWait = 60 * time.Second
	// workerKeyName is the key that workers get: the platform's, for every tenant's jobs. No tenant of a seed may be called so.
	workerKeyName = "worker"
	// keyFileSuffix ends the name of a key's file.
	keyFileSuffix = ".key"
)

// The forms of what is seeded.
const (
	seedCellForm   = "CELL=REPLICAS[/KIND]"
	seedTenantForm = "TENANT[=CELL]"
)

// seedCells is a repeated flag of the form CELL=REPLICAS[/KIND].
type seedCells struct {
	cells []*fairleadv1.CreateCellRequest
}

func (v *seedCells) Type() string { return seedCellForm }

func (v *seedCells) String() string {
	parts := make([]string, 0, len(v.cells))
	for _, c := range v.cells {
		parts = append(parts, fmt.Sprintf("%s=%d", c.GetName(), c.GetReplicas()))
	}
	return strings.Join(parts, ",")
}

func (v *seedCells) Set(s string) error {
	name, rest, ok := strings.Cut(s, "=")
	replicas, kind, hasKind := strings.Cut(rest, "/")
	n, err := strconv.Atoi(replicas)
	if _, bad := cell.ParseCellID("", name); !ok || bad != nil || err != nil || n != 1 && n != 3 {
		return &valueError{problem: "it is not a cell's name and 1 or 3 replicas", remedy: "write it as cell-a=3 or whale-1=1/dedicated"}
	}
	req := &fairleadv1.CreateCellRequest{Name: name, Replicas: int32(n), Kind: fairleadv1.CellKind_CELL_KIND_POOLED}
	if hasKind {
		if req.Kind = fairleadv1.CellKind(fairleadv1.CellKind_value["CELL_KIND_"+strings.ToUpper(kind)]); req.GetKind() == 0 {
			return notOneOf(kind, cellKinds())
		}
	}
	for _, c := range v.cells {
		if c.GetName() == name {
			return &valueError{problem: "the cell was given before", remedy: "give each cell once"}
		}
	}
	v.cells = append(v.cells, req)
	return nil
}

// seedTenants is a repeated flag of the form TENANT[=CELL].
type seedTenants struct {
	tenants []*fairleadv1.CreateTenantRequest
}

func (v *seedTenants) Type() string { return seedTenantForm }

func (v *seedTenants) String() string {
	parts := make([]string, 0, len(v.tenants))
	for _, t := range v.tenants {
		parts = append(parts, t.GetId())
	}
	return strings.Join(parts, ",")
}

func (v *seedTenants) Set(s string) error {
	id, cellName, hasCell := strings.Cut(s, "=")
	// The id becomes a file's name.
	if cell.CheckID("", id) != nil || filepath.Base(id) != id || id == workerKeyName {
		return &valueError{problem: "it is not a tenant's id", remedy: "write it as acme or acme=cell-a; " + workerKeyName + " is the workers' key"}
	}
	req := &fairleadv1.CreateTenantRequest{Id: id}
	if hasCell {
		if _, err := cell.ParseCellID("", cellName); err != nil {
			return &valueError{problem: "what follows = is not a cell's name", remedy: "write it as acme=cell-a"}
		}
		req.Placement = &fairleadv1.PlacementRules{Cell: cellName}
	}
	for _, t := range v.tenants {
		if t.GetId() == id {
			return &valueError{problem: "the tenant was given before", remedy: "give each tenant once"}
		}
	}
	v.tenants = append(v.tenants, req)
	return nil
}

type seedFlags struct {
	cells   seedCells
	tenants seedTenants
	keysDir string
	wait    *durationValue
}

func (a *app) clusterSeedCommand() *cobra.Command {
	f := seedFlags{wait: newDuration(seedWait)}
	cmd := &cobra.Command{
		Use: "seed --cell " + seedCellForm + " --tenant " + seedTenantForm + " --keys-dir DIR", Short: "Fill a new cluster for samples, demos and tests",
		Long: `Seed creates what is missing of cells, tenants and keys, and waits until all of it serves. It is for samples, demos and tests: it leaves the
secrets of keys in files, and gives everything its defaults. Whoever runs a cluster for others uses cell create, tenant create and key create.

Each cell is created and waited for until its agents have formed it. Each tenant gets a key that submits and reads, in DIR/TENANT.key, and
workers get one that works for all tenants, in DIR/worker.key. A key is made only where its file is missing. To seed again changes nothing
that is there. It needs a key with the scope admin.`,
		Example: `  fairlead cluster seed --cell cell-a=3 --cell cell-b=1 --tenant acme --tenant globex=cell-b --keys-dir ./keys
  fairlead cluster seed --cell whale-1=1/dedicated --wait 2m`,
		Args: arguments(false), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.seed(cmd, &f) },
	}
	flags := cmd.Flags()
	flags.Var(&f.cells, "cell", "cell with 1 or 3 replicas, pooled unless its kind says dedicated, as `"+seedCellForm+"`; repeated")
	flags.Var(&f.tenants, "tenant", "tenant, and the cell that it has to be in if any, as `"+seedTenantForm+"`; repeated")
	flags.StringVar(&f.keysDir, "keys-dir", "", "`directory` for the secrets of keys; no keys are made when not given")
	flags.Var(f.wait, "wait", "how long to wait for all of it")
	completeNothing(cmd, "cell", "tenant", "wait")
	must(cmd.MarkFlagDirname("keys-dir"))
	return cmd
}

func (a *app) seed(cmd *cobra.Command, f *seedFlags) error {
	if len(f.cells.cells)+len(f.tenants.tenants) == 0 && f.keysDir == "" {
		return failure.Usagef("give --cell, --tenant or --keys-dir", "there is nothing to seed")
	}
	if f.wait.d <= 0 {
		return &cell.FieldError{Field: "--wait", Problem: fmt.Sprintf("is %v, not above 0", f.wait), Remedy: "give a duration such as 60s"}
	}
	s, l, err := a.connect(cmd, roleAdmin)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(cmd.Context(), f.wait.d, errWaited)
	defer cancel()
	d := &seeder{app: a, session: s, loaded: l, flags: f}
	if err := d.run(ctx); err != nil {
		return err
	}
	return d.print(a.printer(l))
}

// seeder makes what is missing, one thing after the other.
type seeder struct {
	app     *app
	session *session
	loaded  *config.Loaded
	flags   *seedFlags
	done    []seeded
}

// seeded is one thing that is there now.
type seeded struct {
	Kind  string `json:"kind"`
	Name  string `json:"name"`
	State string `json:"state"`
	File  string `json:"file,omitempty"`
}

func (d *seeder) note(kind, name string, isNew bool, file string) {
	state := "kept"
	if isNew {
		state = "new"
	}
	d.done = append(d.done, seeded{Kind: kind, Name: name, State: state, File: file})
}

// keyTravelTime is how long an admin's key may take from control to the gateway that is asked: it may have been made a moment ago.
const keyTravelTime = 5 * time.Second

// admitted waits until the gateway knows the key that everything here is done with.
func (d *seeder) admitted(ctx context.Context) error {
	began := d.app.now()
	return d.until(ctx, "look at the cluster's cells", func(ctx context.Context) error {
		_, err := d.session.cells.ListCells(ctx, &fairleadv1.ListCellsRequest{})
		if connect.CodeOf(err) == connect.CodeUnauthenticated && d.app.now().Sub(began) < keyTravelTime {
			return &notYetError{"the key is not known there yet"}
		}
		return err
	})
}

func (d *seeder) run(ctx context.Context) error {
	if err := d.admitted(ctx); err != nil {
		return err
	}
	for _, c := range d.flags.cells.cells { // all records first, so that the cells form at once
		if err := d.cell(ctx, c); err != nil {
			return err
		}
	}
	for _, c := range d.flags.cells.cells {
		if err := d.formed(ctx, c.GetName()); err != nil {
			return err
		}
	}
	for _, t := range d.flags.tenants.tenants {
		if err := d.tenant(ctx, t); err != nil {
			return err
		}
	}
	if d.flags.keysDir == "" {
		return nil
	}
	for _, t := range d.flags.tenants.tenants {
		if err := d.key(ctx, t.GetId(), t.GetId(), fairleadv1.Scope_SCOPE_SUBMIT, fairleadv1.Scope_SCOPE_READ); err != nil {
			return err
		}
	}
	return d.key(ctx, workerKeyName, "", fairleadv1.Scope_SCOPE_WORK)
}

// notYetError says what is waited for.
type notYetError struct{ what string }

func (e *notYetError) Error() string { return e.what }

// until does it again while it fails in a way that passes, with at most the time-out of a call each time.
func (d *seeder) until(ctx context.Context, doing string, do func(context.Context) error) error {
	backoff := client.Backoff{Min: retryDelayMin, Max: retryDelayMax}
	var why error // the last that says more than that time ran out
	for n := 1; ; n++ {
		callCtx, cancel := context.WithTimeout(ctx, d.session.timeout)
		err := do(callCtx)
		cancel()
		_, isEarly := errors.AsType[*notYetError](err)
		if why == nil || connect.CodeOf(err) != connect.CodeDeadlineExceeded {
			why = err
		}
		if err == nil || !isEarly && !passes(err) && connect.CodeOf(err) != connect.CodeCanceled {
			return d.failed(doing, err)
		}
		if cause := client.Pause(ctx, backoff.Next(min(n, 5), 0)); cause != nil {
			if !errors.Is(cause, errWaited) {
				return cause
			}
			return &failure.Problem{
				Code: failure.TimedOut, What: fmt.Sprintf("could not %s within %v", doing, d.flags.wait), Why: why.Error(), Err: err,
				Remedy: "see whether the agents run, with fairlead cluster get; to seed again is safe",
			}
		}
	}
}

func (d *seeder) failed(doing string, err error) error {
	if err == nil {
		return nil
	}
	if _, isProblem := errors.AsType[*failure.Problem](err); isProblem {
		return err
	}
	return d.session.failed(doing, err)
}

// cell makes the record of a cell unless there is one.
func (d *seeder) cell(ctx context.Context, req *fairleadv1.CreateCellRequest) error {
	return d.until(ctx, "create the cell "+req.GetName(), func(ctx context.Context) error {
		_, err := d.session.cells.GetCell(ctx, &fairleadv1.GetCellRequest{Name: req.GetName()})
		isNew := connect.CodeOf(err) == connect.CodeNotFound
		if isNew {
			_, err = d.session.cells.CreateCell(ctx, req)
		}
		switch {
		case connect.CodeOf(err) == connect.CodeAlreadyExists: // by a try whose answer was lost
			isNew = true
		case err != nil:
			return err
		}
		d.note("cell", req.GetName(), isNew, "")
		return nil
	})
}

// formed waits until a cell is open and led.
func (d *seeder) formed(ctx context.Context, name string) error {
	p := d.app.newProgress()
	defer p.end()
	return d.until(ctx, "wait for the cell "+name, func(ctx context.Context) error {
		resp, err := d.session.cells.GetCell(ctx, &fairleadv1.GetCellRequest{Name: name})
		if err != nil {
			return err
		}
		c := resp.GetCell()
		switch {
		case c.GetPhase() == fairleadv1.CellPhase_CELL_PHASE_FORMING:
			err = &notYetError{fmt.Sprintf("%s is forming: it waits for %d agents of it to register", name, c.GetReplicas())}
		case c.GetLeader() == "":
			err = &notYetError{name + " has no leader yet"}
		default:
			return nil
		}
		p.showf("%s", err.Error())
		return err
	})
}

// tenant makes a tenant unless there is one, and waits until it has a cell.
func (d *seeder) tenant(ctx context.Context, req *fairleadv1.CreateTenantRequest) error {
	isNew := false
	err := d.until(ctx, "create the tenant "+req.GetId(), func(ctx context.Context) error {
		resp, err := d.session.tenants.GetTenant(ctx, &fairleadv1.GetTenantRequest{Id: req.GetId()})
		if connect.CodeOf(err) == connect.CodeNotFound {
			isNew = true
			_, err = d.session.tenants.CreateTenant(ctx, req) // one that no cell can take yet is there all the same
			if err == nil || connect.CodeOf(err) == connect.CodeAlreadyExists {
				resp, err = d.session.tenants.GetTenant(ctx, &fairleadv1.GetTenantRequest{Id: req.GetId()})
			}
		}
		if err == nil && resp.GetTenant().GetCell() == "" {
			err = &notYetError{fmt.Sprintf("no cell can take the tenant %s: fairlead placement explain %[1]s says why", req.GetId())}
		}
		return err
	})
	if err == nil {
		d.note("tenant", req.GetId(), isNew, "")
	}
	return err
}

// key makes a key unless its file is there, and waits until it opens the door.
func (d *seeder) key(ctx context.Context, name, tenant string, scopes ...fairleadv1.Scope) error {
	path := filepath.Join(d.flags.keysDir, name+keyFileSuffix)
	_, err := os.Lstat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the key %s: %w", name, err)
	}
	isNew := err != nil
	if isNew {
		if err := os.MkdirAll(d.flags.keysDir, 0o700); err != nil {
			return fmt.Errorf("the directory of keys: %w", err)
		}
		req := &fairleadv1.CreateKeyRequest{Tenant: tenant, Scopes: scopes, Description: "seed: " + name}
		err := d.until(ctx, "create the key "+name, func(ctx context.Context) error {
			resp, err := d.session.keys.CreateKey(ctx, req)
			if err != nil {
				return err // a try whose answer was lost leaves a key that nobody has
			}
			if err := identity.WriteSecret(path, []byte(resp.GetSecret()+"\n")); err != nil {
				return &failure.Problem{
					Code: failure.Failed, What: "the secret of the key " + name + " cannot be kept", Why: err.Error(), Err: err,
					Remedy: "make " + d.flags.keysDir + " writable, revoke " + resp.GetKey().GetId() + ", and seed again",
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	d.note("key", name, isNew, path)
	return d.served(ctx, name, path, tenant != "")
}

// served waits until the door knows the key, and for a tenant's until its cell serves it.
func (d *seeder) served(ctx context.Context, name, path string, ofTenant bool) error {
	secret, err := readToken(path)
	if err != nil {
		return err
	}
	id := d.session.id
	id.token, id.name = secret, "the key in "+path
	conn, err := client.Dial(clientConfig(d.loaded, id))
	if err != nil {
		return d.failed("use the key "+name, err)
	}
	defer conn.Close()
	return d.until(ctx, "use the key in "+path, func(ctx context.Context) error {
		var err error
		if ofTenant {
			_, err = fairleadv1connect.NewJobServiceClient(conn.HTTP, conn.URL, conn.Options...).ListJobs(ctx, &fairleadv1.ListJobsRequest{PageSize: 1})
		} else if _, err = fairleadv1connect.NewTenantServiceClient(conn.HTTP, conn.URL, conn.Options...).
			ListTenants(ctx, &fairleadv1.ListTenantsRequest{PageSize: 1}); connect.CodeOf(err) == connect.CodePermissionDenied {
			err = nil // it is known, and may not do that
		}
		if connect.CodeOf(err) == connect.CodeUnauthenticated { // gateways are told of a new key a moment later
			err = &notYetError{"the cluster does not know it: remove the file if it is of another cluster, and seed again"}
		}
		return err
	})
}

// print writes what is there.
func (d *seeder) print(p *output.Printer) error {
	if !p.Human() {
		names := make([]string, 0, len(d.done))
		for _, s := range d.done {
			names = append(names, s.Kind+"/"+s.Name)
		}
		return printJSON(p, strings.Join(names, "\n"), struct {
			Items []seeded `json:"items"`
		}{d.done})
	}
	rows := make([][]string, 0, len(d.done))
	for _, s := range d.done {
		rows = append(rows, []string{s.Kind, output.Safe(s.Name), s.State, output.Safe(s.File)})
	}
	return p.Section([]output.Column{{Name: "KIND"}, {Name: "NAME"}, {Name: "STATE"}, {Name: "FILE"}}, rows)
}
