package controlserver

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/control/state"
)

// Start is what a platform is given before anybody has a key to ask for it.
type Start struct {
	Tenants []StartTenant
	Keys    []StartKey
}

// StartTenant is a tenant to begin with.
type StartTenant struct {
	Policy      cell.TenantPolicy // its id among that; the epoch is control's
	DisplayName string
}

// StartKey is a key to begin with, whose secret its creator keeps.
type StartKey struct {
	ID          command.KeyID
	Tenant      cell.TenantID // empty for the platform
	Permissions []cell.Permission
	Description string
	Operations  []cell.Operation
	Secret      Secret
}

// Bootstrap creates what is missing of start and leaves alone what is there: a tenant that was changed since, a key that was revoked. It may
// be repeated. It returns a *[state.ExistsError] when a key has the id and another secret, and what creating each returns otherwise.
func (s *Server) Bootstrap(ctx context.Context, start Start) error {
	for _, t := range start.Tenants {
		if _, ok := s.machine.View().Tenant(t.Policy.Tenant); ok {
			continue
		}
		_, err := s.changeTenant(ctx, s.create(t.Policy, t.DisplayName))
		// Somebody else may have been first.
		if _, exists := errors.AsType[*state.ExistsError](err); err != nil && !exists {
			return fmt.Errorf("create tenant %s: %w", t.Policy.Tenant, err)
		}
	}
	for _, k := range start.Keys {
		if err := s.bootstrapKey(ctx, k); err != nil {
			return fmt.Errorf("create key %s: %w", k.ID, err)
		}
	}
	return nil
}

func (s *Server) bootstrapKey(ctx context.Context, k StartKey) error {
	if _, err := ParseSecret("secret", k.Secret.Reveal()); err != nil {
		return err
	}
	if old, ok := s.machine.View().Key(k.ID); ok {
		if old.Hash != k.Secret.Hash() {
			return &state.ExistsError{Kind: state.KindKey, ID: string(k.ID)}
		}
		return nil
	}
	permissions := slices.Clone(k.Permissions)
	slices.Sort(permissions)
	_, err := s.changeKey(ctx, command.CreateKey{
		Key: k.ID, Tenant: k.Tenant, Permissions: permissions, Description: k.Description, Operations: k.Operations,
		Hash: k.Secret.Hash(), Time: s.instant(),
	})
	return err
}
