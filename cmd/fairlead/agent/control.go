package agent

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cmd/fairlead/config"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/control/consensus"
	"github.com/fairlead/fairlead/control/controlserver"
	"github.com/fairlead/fairlead/dataplane/gateway"
)

// controlRole is control with its log.
type controlRole struct {
	server *controlserver.Server
	group  *consensus.Group
	stop   context.CancelFunc
	done   chan struct{}
}

// controlSegmentBytes is the size of the files of control's log, which grows by some bytes a tenant.
const controlSegmentBytes = 4 << 20

// startControl opens control, replays its log, and tells the cell of every organization and tenant.
func startControl(ctx context.Context, cfg Config, cells controlserver.Cells) (*controlRole, error) {
	machine := controlserver.NewMachine()
	gc := consensus.DefaultConfig(filepath.Join(cfg.Dir, "control"), "control-1")
	gc.SegmentBytes, gc.Logger = controlSegmentBytes, cfg.Logger.With("role", "control")
	group, err := openGroup(ctx, gc, machine)
	if err != nil {
		return nil, fmt.Errorf("control's log: %w", err)
	}
	cc := controlserver.Config{Log: gc.Logger, Name: "control-1", Caller: gateway.CallerFrom}
	for i, b := range cfg.Leader.Sched.Bulkheads {
		cc.Capacity[i] = b.Capacity
	}
	server, err := controlserver.New(cc, controlserver.GroupLog(group), cells, machine)
	if err == nil {
		err = server.ConfigureCells(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, group.Close())
	}
	r := &controlRole{server: server, group: group, done: make(chan struct{})}
	run, stop := context.WithCancel(context.WithoutCancel(ctx)) // it ends with Close, not with the start
	r.stop = stop
	go func() {
		defer close(r.done)
		if err := server.Run(run); err != nil && run.Err() == nil {
			gc.Logger.Error("control stopped telling the cells of tenants", "error", err)
		}
	}()
	return r, nil
}

// Close stops control and closes its log.
func (r *controlRole) Close() error {
	r.stop()
	<-r.done
	return r.group.Close()
}

// wantedKeys are the keys that a development process has: one for operators, one for workers, one for each sample tenant.
func wantedKeys(tenants []string) []config.CredentialKey {
	keys := []config.CredentialKey{
		{Name: "admin", Scopes: []string{"admin", "operate"}},
		{Name: "worker", Scopes: []string{"work"}},
	}
	for _, t := range tenants {
		keys = append(keys, config.CredentialKey{Name: t, Tenant: t, Scopes: []string{"submit", "read"}})
	}
	return keys
}

// bootstrap promises what the configuration says, creates the sample tenants and keys that are missing, and returns all keys with their
// secrets. The secrets are written to the credentials file before the keys exist: a key whose secret nobody has would be worse than a
// secret without a key.
func (r *controlRole) bootstrap(ctx context.Context, cfg Config, addr string) (config.Credentials, error) {
	creds, err := readCredentials(cfg.Dir)
	if err != nil {
		return creds, err
	}
	creds.Addr = addr
	for _, want := range wantedKeys(cfg.SampleTenants) {
		if _, ok := findKey(creds, want.Name); !ok {
			want.Secret = controlserver.NewSecret().Reveal()
			creds.Keys = append(creds.Keys, want)
		}
	}
	if err := writeCredentials(cfg.Dir, creds); err != nil {
		return creds, err
	}
	start, err := startOf(creds, cfg.SamplePolicy)
	if err != nil {
		return creds, err
	}
	if err := r.server.Promise(ctx, cfg.Organizations, cfg.Tenants); err != nil {
		return creds, err
	}
	return creds, r.server.Bootstrap(ctx, start)
}

func findKey(c config.Credentials, name string) (config.CredentialKey, bool) {
	for _, k := range c.Keys {
		if k.Name == name {
			return k, true
		}
	}
	return config.CredentialKey{}, false
}

// startOf returns what control is to begin with, by the credentials file: each tenant of a key with a policy.
func startOf(creds config.Credentials, policy cell.TenantPolicy) (controlserver.Start, error) {
	var start controlserver.Start
	for i, k := range creds.Keys {
		field := fmt.Sprintf("keys[%d]", i)
		secret, err := controlserver.ParseSecret(field+".secret", k.Secret)
		if err != nil {
			return start, fmt.Errorf("%s: %w", config.CredentialsFile, err)
		}
		hash := secret.Hash()
		key := controlserver.StartKey{
			ID: command.KeyID("key_dev-" + hex.EncodeToString(hash[:8])), Tenant: cell.TenantID(k.Tenant),
			Description: "made by fairlead dev for " + k.Name, Secret: secret,
		}
		for _, s := range k.Scopes {
			p, err := cell.ParsePermission(field+".scopes", s)
			if err != nil {
				return start, fmt.Errorf("%s: %w", config.CredentialsFile, err)
			}
			key.Permissions = append(key.Permissions, p)
		}
		if k.Tenant != "" {
			id, err := cell.ParseTenantID(field+".tenant", k.Tenant)
			if err != nil {
				return start, fmt.Errorf("%s: %w", config.CredentialsFile, err)
			}
			policy.Tenant = id
			start.Tenants = append(start.Tenants, controlserver.StartTenant{Policy: policy, DisplayName: k.Tenant})
		}
		start.Keys = append(start.Keys, key)
	}
	return start, nil
}
