package controlserver

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/control/state"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

const (
	keyIDPrefix = "key_"
	listKeys    = "keys"
	// KeyLifetimeMax bounds how long a key that expires may live: a century, so that every expiry has a place in nanoseconds.
	KeyLifetimeMax = 100 * 365 * 24 * time.Hour
)

// CreateKey implements KeyService. The secret is in this answer and nowhere else.
func (s *Server) CreateKey(ctx context.Context, r *fairleadv1.CreateKeyRequest) (*fairleadv1.CreateKeyResponse, error) {
	c, err := createKey(r, s.instant())
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	secret := NewSecret()
	c.Key, c.Hash = command.KeyID(keyIDPrefix+id.String()), secret.Hash()
	k, err := s.changeKey(ctx, c)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	return &fairleadv1.CreateKeyResponse{Key: keyMessage(k), Secret: secret.Reveal()}, nil
}

// createKey returns the command for r but for its id and hash.
func createKey(r *fairleadv1.CreateKeyRequest, now cell.Instant) (command.CreateKey, error) {
	c := command.CreateKey{Tenant: cell.TenantID(r.GetTenant()), Description: r.GetDescription(), Time: now}
	for i, scope := range r.GetScopes() {
		p, err := permission(fmt.Sprintf("scopes[%d]", i), scope)
		if err != nil {
			return c, err
		}
		c.Permissions = append(c.Permissions, p)
	}
	slices.Sort(c.Permissions)
	for _, op := range r.GetOperations() {
		c.Operations = append(c.Operations, cell.Operation(op))
	}
	if r.GetLifetime() == nil {
		return c, nil
	}
	d, err := lifetime(r.GetLifetime())
	c.Expires = now.Add(d)
	return c, err
}

func lifetime(m *durationpb.Duration) (time.Duration, error) {
	d := m.AsDuration()
	if err := m.CheckValid(); err != nil || d <= 0 || d > KeyLifetimeMax {
		return 0, &cell.FieldError{
			Field: "lifetime", Problem: fmt.Sprintf("is %v, outside 1 ns to %v", d, KeyLifetimeMax), Remedy: "leave it out for a key that lives for ever",
		}
	}
	return d, nil
}

// RevokeKey implements KeyService. Once it has answered, requests with the key are refused here.
func (s *Server) RevokeKey(ctx context.Context, r *fairleadv1.RevokeKeyRequest) (*fairleadv1.RevokeKeyResponse, error) {
	k, err := s.changeKey(ctx, command.RevokeKey{Key: command.KeyID(r.GetId()), Time: s.instant()})
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	return &fairleadv1.RevokeKeyResponse{Key: keyMessage(k)}, nil
}

func (s *Server) changeKey(ctx context.Context, c command.Command) (state.Key, error) {
	r, err := s.propose(ctx, c)
	if err != nil {
		return state.Key{}, err
	}
	s.cfg.Log.InfoContext(ctx, "key changed", "command", c.Type().String(), "key", string(r.Key.ID), "tenant", string(r.Key.Tenant))
	return r.Key, nil
}

// ListKeys implements KeyService.
func (s *Server) ListKeys(ctx context.Context, r *fairleadv1.ListKeysRequest) (*fairleadv1.ListKeysResponse, error) {
	size, err := pageSize(r.GetPageSize())
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	list, tenant := listKeys, cell.TenantID(r.GetTenant())
	if tenant != "" {
		if _, err := s.tenant("tenant", r.GetTenant()); err != nil {
			return nil, s.fail(ctx, err)
		}
		list += " of " + r.GetTenant()
	}
	after, err := pageAfter(list, r.GetPageToken())
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	rows := s.machine.View().Keys(command.KeyID(after))
	if tenant != "" {
		rows = s.machine.View().KeysOf(tenant, command.KeyID(after))
	}
	keys, next := page(list, size, rows, func(k state.Key) string { return string(k.ID) }, keyMessage)
	if err := s.verify(ctx); err != nil {
		return nil, s.fail(ctx, err)
	}
	return &fairleadv1.ListKeysResponse{Keys: keys, NextPageToken: next}, nil
}

func keyMessage(k state.Key) *fairleadv1.Key {
	m := &fairleadv1.Key{
		Id: string(k.ID), Tenant: string(k.Tenant), Description: k.Description,
		CreateTime: timeMessage(k.Created), ExpireTime: timeMessage(k.Expires), RevokeTime: timeMessage(k.Revoked),
	}
	for _, p := range k.Permissions {
		m.Scopes = append(m.Scopes, scope(p))
	}
	for _, op := range k.Operations {
		m.Operations = append(m.Operations, string(op))
	}
	return m
}

func permission(field string, s fairleadv1.Scope) (cell.Permission, error) {
	for _, p := range cell.Permissions() {
		if scope(p) == s {
			return p, nil
		}
	}
	return 0, &cell.FieldError{
		Field: field, Problem: fmt.Sprintf("is %s, which is no scope", s),
		Remedy: "use some of SCOPE_SUBMIT, SCOPE_READ, SCOPE_WORK, SCOPE_OPERATE and SCOPE_ADMIN",
	}
}

func scope(p cell.Permission) fairleadv1.Scope {
	switch p {
	case cell.PermissionSubmit:
		return fairleadv1.Scope_SCOPE_SUBMIT
	case cell.PermissionRead:
		return fairleadv1.Scope_SCOPE_READ
	case cell.PermissionWork:
		return fairleadv1.Scope_SCOPE_WORK
	case cell.PermissionOperate:
		return fairleadv1.Scope_SCOPE_OPERATE
	case cell.PermissionAdmin:
		return fairleadv1.Scope_SCOPE_ADMIN
	default:
		return fairleadv1.Scope_SCOPE_UNSPECIFIED
	}
}
