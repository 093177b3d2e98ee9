package state

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
)

// world is a state with one of each kind of row, at clock 1000.
func world(t *testing.T) *State {
	t.Helper()
	s := New()
	for i, c := range []command.Command{
		command.CreateTenant{Tenant: "acme", DisplayName: "Acme", Weight: 1000, Time: 100},
		command.CreateTenant{Tenant: "acme-2", Weight: 5, BacklogJobsMax: 7, Time: 200},
		key("k-live", "acme", cell.PermissionSubmit)(300, 0),
		key("k-expired", "acme", cell.PermissionRead)(300, 500),
		key("k-revoked", "acme", cell.PermissionWork)(300, 0),
		key("k-admin", "", cell.PermissionAdmin)(300, 0),
		key("k-ops", "", cell.PermissionOperate)(300, 0),
		command.RevokeKey{Key: "k-revoked", Time: 1000},
	} {
		if r := apply(t, s, uint64(i)+1, c); r.Refused != nil {
			t.Fatal(r.Refused)
		}
	}
	return s
}

func key(id command.KeyID, tenant cell.TenantID, ps ...cell.Permission) func(at, expires cell.Instant) command.Command {
	return func(at, expires cell.Instant) command.Command {
		return command.CreateKey{Key: id, Tenant: tenant, Permissions: ps, Hash: hashOf(string(id)), Time: at, Expires: expires}
	}
}

func hashOf(s string) (h [32]byte) {
	copy(h[:], s)
	h[31] = 1
	return h
}

func apply(t interface {
	Helper()
	Fatalf(string, ...any)
}, s *State, index uint64, c command.Command,
) Result {
	t.Helper()
	r := s.Apply(index, c)
	if wrong := s.check(); len(wrong) > 0 {
		t.Fatalf("after %+v: %v", c, wrong)
	}
	return r
}

// Every command against every state of what it is about.
func TestStateByCommand(t *testing.T) {
	field := func(name string) func(error) bool {
		return func(err error) bool {
			fe, ok := errors.AsType[*cell.FieldError](err)
			return ok && fe.Field == name
		}
	}
	exists := func(k Kind) func(error) bool {
		return func(err error) bool {
			e, ok := errors.AsType[*ExistsError](err)
			return ok && e.Kind == k && e.Error() != ""
		}
	}
	missing := func(k Kind) func(error) bool {
		return func(err error) bool {
			e, ok := errors.AsType[*NotFoundError](err)
			return ok && e.Kind == k && e.Error() != ""
		}
	}
	last := func(err error) bool {
		_, ok := errors.AsType[*LastAdminError](err)
		return ok && err.Error() != ""
	}
	none := func(err error) bool { return err == nil }
	retry := key("k-live", "acme", cell.PermissionSubmit)(300, 0)
	cases := map[string]struct {
		command command.Command
		refused func(error) bool
	}{
		"create tenant, absent":        {command.CreateTenant{Tenant: "new", Time: 1000}, none},
		"create tenant, present":       {command.CreateTenant{Tenant: "acme", Time: 1000}, exists(KindTenant)},
		"create tenant, same again":    {command.CreateTenant{Tenant: "acme", DisplayName: "Acme", Weight: 1000, Time: 100}, none},
		"create tenant, same later":    {command.CreateTenant{Tenant: "acme", DisplayName: "Acme", Weight: 1000, Time: 101}, exists(KindTenant)},
		"create tenant, bad":           {command.CreateTenant{Tenant: "*", Time: 1}, field("id")},
		"update tenant, absent":        {command.UpdateTenant{Tenant: "new", Weight: new(cell.Weight(1)), Time: 1}, missing(KindTenant)},
		"update tenant, present":       {command.UpdateTenant{Tenant: "acme", Weight: new(cell.Weight(0)), Time: 1}, none},
		"update tenant, nothing":       {command.UpdateTenant{Tenant: "acme", Time: 1}, field("request")},
		"create key, absent":           {key("new", "acme", cell.PermissionSubmit)(1, 0), none},
		"create key, present":          {key("k-live", "acme", cell.PermissionRead)(1, 0), exists(KindKey)},
		"create key, same again":       {retry, none},
		"create key, revoked again":    {key("k-revoked", "acme", cell.PermissionWork)(300, 0), none},
		"create key, secret of a live": {command.CreateKey{Key: "n", Permissions: []cell.Permission{5}, Hash: hashOf("k-live"), Time: 1}, exists(KindSecret)},
		"create key, secret of a dead": {command.CreateKey{Key: "n", Permissions: []cell.Permission{5}, Hash: hashOf("k-revoked"), Time: 1}, exists(KindSecret)},
		"create key, no tenant":        {key("new", "nobody", cell.PermissionSubmit)(1, 0), missing(KindTenant)},
		"create key, prefix of tenant": {key("new", "acm", cell.PermissionSubmit)(1, 0), missing(KindTenant)},
		"create key, admin of tenant":  {key("new", "acme", cell.PermissionAdmin)(1, 0), field("scopes")},
		"create key, platform":         {key("new", "", cell.PermissionOperate, cell.PermissionAdmin)(1, 0), none},
		"revoke key, absent":           {command.RevokeKey{Key: "new", Time: 1}, missing(KindKey)},
		"revoke key, live":             {command.RevokeKey{Key: "k-live", Time: 1}, none},
		"revoke key, expired":          {command.RevokeKey{Key: "k-expired", Time: 1}, none},
		"revoke key, revoked":          {command.RevokeKey{Key: "k-revoked", Time: 1}, none},
		"revoke key, last admin":       {command.RevokeKey{Key: "k-admin", Time: 1}, last},
		"revoke key, not an admin":     {command.RevokeKey{Key: "k-ops", Time: 1}, none},
		"revoke key, bad":              {command.RevokeKey{Key: "", Time: 1}, field("id")},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := world(t)
			before := s.View()
			r := apply(t, s, 100, c.command)
			if !c.refused(r.Refused) {
				t.Fatalf("refused: %v", r.Refused)
			}
			after := s.View()
			if r.Refused != nil {
				if before.head.clock, before.head.index = after.head.clock, 100; before.Hash() != after.Hash() {
					t.Error("a refused command changed the state")
				}
				return
			}
			switch c.command.(type) {
			case command.CreateOrganization, command.UpdateOrganization:
				if got, ok := after.Organization(r.Organization.ID()); !ok || got != r.Organization {
					t.Errorf("the answer is %+v, the table has %+v", r.Organization, got)
				}
			case command.CreateTenant, command.UpdateTenant:
				if got, ok := after.Tenant(r.Tenant.ID()); !ok || !got.Equal(r.Tenant) {
					t.Errorf("the answer is %+v, the table has %+v", r.Tenant, got)
				}
			case command.CreateKey, command.RevokeKey:
				got, ok := after.Key(r.Key.ID)
				if !ok || got.Revoked != r.Key.Revoked || got.Hash != r.Key.Hash {
					t.Errorf("the answer is %+v, the table has %+v", r.Key, got)
				}
				if c.command.Type() == command.TypeRevokeKey && got.LiveAt(s.head.clock) {
					t.Error("it lives on")
				}
			default: // TestClusterByCommand has the others
				t.Errorf("a %s command is not looked at", c.command.Type())
			}
		})
	}
}

// The last admin may go once there is another, and an expired one is no other.
func TestLastAdmin(t *testing.T) {
	s := world(t)
	apply(t, s, 20, key("k-admin-2", "", cell.PermissionAdmin)(1000, 2000))
	apply(t, s, 21, command.CreateTenant{Tenant: "x", Time: 3000})
	if r := apply(t, s, 22, command.RevokeKey{Key: "k-admin", Time: 3000}); r.Refused == nil {
		t.Error("an expired key counts as another")
	}
	apply(t, s, 23, key("k-admin-3", "", cell.PermissionAdmin)(3000, 0))
	if r := apply(t, s, 24, command.RevokeKey{Key: "k-admin", Time: 3000}); r.Refused != nil {
		t.Error(r.Refused)
	}
	if r := apply(t, s, 25, command.RevokeKey{Key: "k-admin-2", Time: 3000}); r.Refused != nil {
		t.Error(r.Refused)
	}
}

func TestUpdateChangesWhatIsSet(t *testing.T) {
	s := world(t)
	apply(t, s, 20, command.UpdateTenant{Tenant: "acme-2", DisplayName: new("Two"), Time: 2000})
	r := apply(t, s, 21, command.UpdateTenant{Tenant: "acme-2", BacklogBytesMax: new(int64(9)), Time: 1500})
	want := Tenant{
		Policy:      cell.TenantPolicy{Tenant: "acme-2", Weight: 5, BacklogJobsMax: 7, BacklogBytesMax: 9, Epoch: 1},
		DisplayName: "Two", Created: 200,
		Updated: 2000, // the log's time does not fall
	}
	if !r.Tenant.Equal(want) {
		t.Errorf("got %+v, want %+v", r.Tenant, want)
	}
}

// A tenant has so many live keys and no more; ended ones make room, and the one that ended first is forgotten.
func TestKeysAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		tenant cell.TenantID
		p      cell.Permission
		bound  int
		limit  string
	}{
		"tenant":   {"acme", cell.PermissionRead, KeysPerTenantMax, "keys_per_tenant_max"},
		"platform": {"", cell.PermissionAdmin, KeysPlatformMax, "keys_platform_max"},
	} {
		t.Run(name, func(t *testing.T) {
			s := New()
			index := uint64(0)
			next := func(cmd command.Command) Result {
				index++
				return s.Apply(index, cmd)
			}
			next(command.CreateTenant{Tenant: "acme", Time: 1})
			next(command.CreateTenant{Tenant: "other", Time: 1})
			id := func(i int) command.KeyID { return command.KeyID(fmt.Sprintf("k%05d", i)) }
			for i := range c.bound {
				if r := next(key(id(i), c.tenant, c.p)(10, 0)); r.Refused != nil {
					t.Fatal(r.Refused)
				}
			}
			r := next(key("more", c.tenant, c.p)(11, 0))
			le, ok := errors.AsType[*cell.LimitError](r.Refused)
			if !ok || le.Limit != c.limit || le.Value != int64(c.bound)+1 || le.Bound != int64(c.bound) {
				t.Fatalf("one too many: %v", r.Refused)
			}
			if r := next(key("other", "other", cell.PermissionRead)(11, 0)); r.Refused != nil {
				t.Errorf("another tenant: %v", r.Refused)
			}
			// Rotate for long: what is remembered stays bounded.
			for i := range c.bound + KeysEndedMax {
				at := cell.Instant(100 + i)
				if r := next(command.RevokeKey{Key: id(i), Time: at}); r.Refused != nil {
					t.Fatal(r.Refused)
				}
				if r := next(key(id(c.bound+i), c.tenant, c.p)(at, 0)); r.Refused != nil {
					t.Fatal(r.Refused)
				}
			}
			if wrong := s.check(); len(wrong) > 0 {
				t.Fatal(wrong)
			}
			var ended []command.KeyID
			for k := range s.View().KeysOf(c.tenant, "") {
				if k.Revoked != 0 {
					ended = append(ended, k.ID)
				}
			}
			if len(ended) != KeysEndedMax || ended[0] != id(c.bound) {
				t.Errorf("%d ended keys are remembered, from %s on", len(ended), ended[0])
			}
			if _, ok := s.View().KeyByHash(hashOf(string(id(0)))); ok {
				t.Error("a forgotten key is found by its hash")
			}
		})
	}
}

func TestOrderAndPages(t *testing.T) {
	s := world(t)
	v := s.View()
	var tenants []cell.TenantID
	for row := range v.Tenants("") {
		tenants = append(tenants, row.ID())
	}
	if !slices.Equal(tenants, []cell.TenantID{"acme", "acme-2"}) {
		t.Error(tenants)
	}
	for row := range v.Tenants("acme") {
		if row.ID() != "acme-2" {
			t.Errorf("%s after acme", row.ID())
		}
	}
	ids := func(keys func(func(Key) bool)) (ids []command.KeyID) {
		for k := range keys {
			ids = append(ids, k.ID)
		}
		return ids
	}
	for name, c := range map[string]struct{ got, want []command.KeyID }{
		"all":               {ids(v.Keys("")), []command.KeyID{"k-admin", "k-expired", "k-live", "k-ops", "k-revoked"}},
		"all after":         {ids(v.Keys("k-live")), []command.KeyID{"k-ops", "k-revoked"}},
		"all after a gap":   {ids(v.Keys("k-f")), []command.KeyID{"k-live", "k-ops", "k-revoked"}},
		"tenant":            {ids(v.KeysOf("acme", "")), []command.KeyID{"k-expired", "k-live", "k-revoked"}},
		"tenant after":      {ids(v.KeysOf("acme", "k-expired")), []command.KeyID{"k-live", "k-revoked"}},
		"tenant after last": {ids(v.KeysOf("acme", "k-revoked")), nil},
		"platform":          {ids(v.KeysOf("", "")), []command.KeyID{"k-admin", "k-ops"}},
		"platform after":    {ids(v.KeysOf("", "k-admin")), []command.KeyID{"k-ops"}},
		"none":              {ids(v.KeysOf("acme-2", "")), nil},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
	for range v.Keys("") {
		break // an iterator may be left
	}
}

func TestLiveAt(t *testing.T) {
	for name, c := range map[string]struct {
		key  Key
		live []bool // at 1, 2, 3
	}{
		"for ever":             {Key{}, []bool{true, true, true}},
		"expires at 2":         {Key{Expires: 2}, []bool{true, false, false}},
		"revoked":              {Key{Revoked: 2}, []bool{false, false, false}}, // whatever the clock that asks says
		"revoked, then expiry": {Key{Revoked: 1, Expires: 3}, []bool{false, false, false}},
	} {
		for i, want := range c.live {
			if got := c.key.LiveAt(cell.Instant(i + 1)); got != want {
				t.Errorf("%s at %d: %v", name, i+1, got)
			}
		}
	}
	k := Key{ID: "k", Tenant: "t", Permissions: []cell.Permission{3}, Operations: []cell.Operation{"o"}}
	if c := k.Caller(); c.Key != "k" || c.Tenant != "t" || !c.MayLease("o") || c.MayLease("p") {
		t.Errorf("%+v", c)
	}
}

func TestIndexMustRise(t *testing.T) {
	s := world(t)
	s.Pass(50)
	if s.Index() != 50 || s.View().Index() != 50 {
		t.Errorf("index %d", s.Index())
	}
	for name, f := range map[string]func(){
		"again": func() { s.Apply(50, command.RevokeKey{Key: "k", Time: 1}) }, "lower": func() { s.Pass(49) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}
