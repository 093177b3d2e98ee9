package state

import (
	"cmp"
	"crypto/sha256"
	"slices"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
)

// Key is a row of the table of keys. Its slices are shared and must not be changed.
type Key struct {
	ID          command.KeyID
	Tenant      cell.TenantID // empty for the platform
	Permissions []cell.Permission
	Description string
	Operations  []cell.Operation
	Hash        [sha256.Size]byte
	Created     cell.Instant
	Expires     cell.Instant // 0 for never
	Revoked     cell.Instant // 0 for not
}

// LiveAt reports whether the key is neither revoked nor expired at now.
func (k Key) LiveAt(now cell.Instant) bool {
	return k.Revoked == 0 && (k.Expires == 0 || now < k.Expires)
}

// Caller returns whom a request with the key comes from.
func (k Key) Caller() cell.Caller {
	return cell.Caller{Key: string(k.ID), Tenant: k.Tenant, Permissions: k.Permissions, Operations: k.Operations}
}

// ended returns when the key ended, for one that has.
func (k Key) ended() cell.Instant {
	switch {
	case k.Revoked == 0:
		return k.Expires
	case k.Expires == 0:
		return k.Revoked
	default:
		return min(k.Revoked, k.Expires)
	}
}

// created reports whether c is the command that made the key.
func (k Key) created(c command.CreateKey) bool {
	return k.ID == c.Key && k.Tenant == c.Tenant && k.Description == c.Description && k.Hash == c.Hash && k.Expires == c.Expires &&
		slices.Equal(k.Permissions, c.Permissions) && slices.Equal(k.Operations, c.Operations)
}

func (s *State) createKey(c command.CreateKey) Result {
	v := s.View()
	if old, ok := v.Key(c.Key); ok {
		if old.created(c) { // the same command again; an id is random, so that it is nobody else's
			return Result{Key: old, Repeated: true}
		}
		return Result{Refused: &ExistsError{KindKey, string(c.Key)}}
	}
	if _, ok := v.KeyByHash(c.Hash); ok {
		return Result{Refused: &ExistsError{Kind: KindSecret}}
	}
	if c.Tenant != "" {
		if _, ok := v.Tenant(c.Tenant); !ok {
			return Result{Refused: &NotFoundError{KindTenant, string(c.Tenant)}}
		}
	}
	if err := s.roomForKey(c.Tenant); err != nil {
		return Result{Refused: err}
	}
	k := Key{
		ID: c.Key, Tenant: c.Tenant, Permissions: c.Permissions, Description: c.Description, Operations: c.Operations, Hash: c.Hash,
		Created: s.head.clock, Expires: c.Expires,
	}
	s.put(tableKeys, &k)
	s.head.keys++
	s.forgetEnded(c.Tenant)
	return Result{Key: k}
}

func (s *State) revokeKey(c command.RevokeKey) Result {
	v := s.View()
	k, ok := v.Key(c.Key)
	if !ok {
		return Result{Refused: &NotFoundError{KindKey, string(c.Key)}}
	}
	if k.Revoked != 0 {
		return Result{Key: k, Repeated: true}
	}
	if s.lastAdmin(k) {
		return Result{Refused: &LastAdminError{k.ID}}
	}
	k.Revoked = s.head.clock
	s.put(tableKeys, &k)
	s.forgetEnded(k.Tenant)
	return Result{Key: k}
}

// lastAdmin reports whether k is the only live key that may manage keys.
func (s *State) lastAdmin(k Key) bool {
	admin := func(k Key) bool {
		return k.LiveAt(s.head.clock) && slices.Contains(k.Permissions, cell.PermissionAdmin)
	}
	if !admin(k) {
		return false
	}
	for other := range s.View().KeysOf("", "") { // admin is the platform's only
		if other.ID != k.ID && admin(other) {
			return false
		}
	}
	return true
}

// roomForKey returns a *[cell.LimitError] when the tenant has as many live keys as it may.
func (s *State) roomForKey(tenant cell.TenantID) error {
	limit, bound := limitKeysPerTenant, KeysPerTenantMax
	if tenant == "" {
		limit, bound = limitKeysPlatform, KeysPlatformMax
	}
	live := 0
	for k := range s.View().KeysOf(tenant, "") {
		if k.LiveAt(s.head.clock) {
			live++
		}
	}
	if live < bound {
		return nil
	}
	return &cell.LimitError{
		Limit: limit, Scope: cell.ScopeTenant, Value: int64(live) + 1, Bound: int64(bound), Remedy: "revoke keys that nobody uses any more",
	}
}

// forgetEnded drops the tenant's ended keys beyond KeysEndedMax, the one that ended first before others.
func (s *State) forgetEnded(tenant cell.TenantID) {
	var ended []Key
	for k := range s.View().KeysOf(tenant, "") {
		if !k.LiveAt(s.head.clock) {
			ended = append(ended, k)
		}
	}
	if len(ended) <= KeysEndedMax {
		return
	}
	// Stable: keys come in the order of their ids, which breaks ties.
	slices.SortStableFunc(ended, func(a, b Key) int { return cmp.Compare(a.ended(), b.ended()) })
	for _, k := range ended[:len(ended)-KeysEndedMax] {
		s.drop(tableKeys, &k)
		s.head.keys--
	}
}
