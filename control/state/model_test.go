package state

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/migrate"
	"github.com/fairlead/fairlead/placement"
)

// model is the naive state: maps, and rules written out as one reads them.
type model struct {
	clock         cell.Instant
	organizations map[cell.OrganizationID]Organization // without sums
	tenants       map[cell.TenantID]Tenant
	keys          map[command.KeyID]Key
	clusterModel
	migrationModel
}

func newModel() *model {
	return &model{
		organizations: map[cell.OrganizationID]Organization{}, tenants: map[cell.TenantID]Tenant{}, keys: map[command.KeyID]Key{},
		clusterModel: newClusterModel(), migrationModel: migrationModel{rows: map[cell.MigrationID]Migration{}, endedMax: MigrationsEndedMax},
	}
}

// fit reports whether all promises fit in one another, with everything summed anew.
func (m *model) fit() bool {
	sums := map[cell.OrganizationID][2]cell.Rate{}
	for _, t := range m.tenants {
		r, sum := t.Policy.Reservation, sums[t.Policy.Organization]
		sums[t.Policy.Organization] = [2]cell.Rate{sum[0] + r[0], sum[1] + r[1]}
		if l := t.Policy.Limit; l != 0 && l < r[0]+r[1] {
			return false
		}
	}
	for id, o := range m.organizations {
		p, sum := o.Policy, sums[id]
		for i := range 2 {
			if p.Reservation[i] != 0 && p.Reservation[i] < sum[i] {
				return false
			}
		}
		if p.Limit != 0 && (p.Limit <= sum[0]+sum[1] || p.Limit < p.Reservation[0]+p.Reservation[1]) {
			return false
		}
	}
	return true
}

// put makes t the tenant, unless its organization is missing or something would not fit.
func (m *model) put(t Tenant) string {
	if _, ok := m.organizations[t.Policy.Organization]; !ok && t.Policy.Organization != "" {
		return "missing"
	}
	old, had := m.tenants[t.ID()]
	m.tenants[t.ID()] = t
	if m.fit() {
		return "ok"
	}
	if m.tenants[t.ID()] = old; !had {
		delete(m.tenants, t.ID())
	}
	return "bad"
}

// putOrganization makes o the organization, unless something would not fit.
func (m *model) putOrganization(o Organization) string {
	old, had := m.organizations[o.ID()]
	m.organizations[o.ID()] = o
	if m.fit() {
		return "ok"
	}
	if m.organizations[o.ID()] = old; !had {
		delete(m.organizations, o.ID())
	}
	return "bad"
}

// apply returns the word for the answer and changes the model: same for what had taken effect before.
func (m *model) apply(index uint64, c command.Command) string {
	if command.Check(c) != nil {
		return "bad"
	}
	m.clock = max(m.clock, c.At())
	switch c := c.(type) {
	case command.CreateTenant:
		t := Tenant{Policy: c.Policy(), DisplayName: c.DisplayName, Created: m.clock, Updated: m.clock, Rules: c.Rules}
		t.Policy.Epoch = 1
		if old, ok := m.tenants[c.Tenant]; ok {
			t.Created, t.Updated, t.Policy.Epoch, t.Policy.Groups = old.Created, old.Updated, old.Policy.Epoch, old.Policy.Groups
			if t.Equal(old) && old.Created == c.Time {
				return "same"
			}
			return "exists"
		}
		return m.put(t)
	case command.UpdateTenant:
		t, ok := m.tenants[c.Tenant]
		if !ok {
			return "missing"
		}
		if c.DisplayName != nil {
			t.DisplayName = *c.DisplayName
		}
		if c.Weight != nil {
			t.Policy.Weight = *c.Weight
		}
		if c.Organization != nil {
			t.Policy.Organization = *c.Organization
		}
		for i, r := range c.Reservation {
			if r != nil {
				t.Policy.Reservation[i] = *r
			}
		}
		if c.Limit != nil {
			t.Policy.Limit = *c.Limit
		}
		if c.Rules != nil {
			t.Rules = *c.Rules
		}
		t.Updated = m.clock
		if l, r := t.Policy.Limit, t.Policy.Reservation; l != 0 && l < r[0]+r[1] { // its own fault before another's
			return "bad"
		}
		return m.put(t)
	case command.CreateOrganization:
		o := Organization{Policy: c.Policy(), DisplayName: c.DisplayName, Created: m.clock, Updated: m.clock}
		o.Policy.Epoch = 1
		if old, ok := m.organizations[c.Organization]; ok {
			o.Created, o.Updated = old.Created, old.Updated
			if o == old && old.Created == c.Time {
				return "same"
			}
			return "exists"
		}
		return m.putOrganization(o)
	case command.UpdateOrganization:
		o, ok := m.organizations[c.Organization]
		if !ok {
			return "missing"
		}
		if c.Weight != nil {
			o.Policy.Weight = *c.Weight
		}
		for i, r := range c.Reservation {
			if r != nil {
				o.Policy.Reservation[i] = *r
			}
		}
		if c.Limit != nil {
			o.Policy.Limit = *c.Limit
		}
		o.Policy.Epoch++
		o.Updated = m.clock
		return m.putOrganization(o)
	case command.CreateKey:
		k := Key{c.Key, c.Tenant, c.Permissions, c.Description, c.Operations, c.Hash, m.clock, c.Expires, 0}
		if old, ok := m.keys[c.Key]; ok {
			k.Created, k.Revoked = old.Created, old.Revoked
			if reflect.DeepEqual(k, old) {
				return "same"
			}
			return "exists"
		}
		for _, other := range m.keys {
			if other.Hash == c.Hash {
				return "exists"
			}
		}
		if _, ok := m.tenants[c.Tenant]; !ok && c.Tenant != "" {
			return "missing"
		}
		m.keys[c.Key] = k
		return "ok"
	case command.RevokeKey:
		k, ok := m.keys[c.Key]
		if !ok {
			return "missing"
		}
		if k.Revoked != 0 {
			return "same"
		}
		admin := func(k Key) bool { return slices.Contains(k.Permissions, cell.PermissionAdmin) && k.LiveAt(m.clock) }
		others := 0
		for _, other := range m.keys {
			if other.ID != k.ID && admin(other) {
				others++
			}
		}
		if admin(k) && others == 0 {
			return "last"
		}
		k.Revoked = m.clock
		m.keys[c.Key] = k
		return "ok"
	default:
		return m.applyCluster(index, c)
	}
}

func word(r Result) string {
	err := r.Refused
	_, bad := errors.AsType[*cell.FieldError](err)
	_, exists := errors.AsType[*ExistsError](err)
	_, missing := errors.AsType[*NotFoundError](err)
	_, last := errors.AsType[*LastAdminError](err)
	_, stale := errors.AsType[*StaleError](err)
	_, phase := errors.AsType[*PhaseError](err)
	_, used := errors.AsType[*InUseError](err)
	_, token := errors.AsType[*TokenError](err)
	_, moving := errors.AsType[*MigrationExistsError](err)
	_, transition := errors.AsType[*migrate.TransitionError](err)
	switch {
	case err == nil && r.Repeated:
		return "same"
	case err == nil:
		return "ok"
	case stale:
		return "stale"
	case phase:
		return "phase"
	case used:
		return "in use"
	case token:
		return "token"
	case moving:
		return "moving"
	case transition:
		return "transition"
	case errors.Is(err, migrate.ErrAttempt):
		return "attempt"
	case bad:
		return "bad"
	case exists:
		return "exists"
	case missing:
		return "missing"
	case last:
		return "last"
	default:
		return fmt.Sprintf("%T", err)
	}
}

// draw returns a command over few names, so that they meet.
func draw(t *rapid.T, m *model) command.Command {
	tenant := rapid.SampledFrom([]cell.TenantID{"a", "b", "a-b", "ab", "*"}).Draw(t, "tenant")
	at := cell.Instant(rapid.IntRange(0, 20).Draw(t, "time"))
	id := command.KeyID(rapid.SampledFrom([]string{"k1", "k2", "k3", "k4", ""}).Draw(t, "key"))
	organization := cell.OrganizationID(rapid.SampledFrom([]string{"o", "p", "o-p"}).Draw(t, "organization"))
	rate := rapid.Map(rapid.IntRange(0, 6), func(n int) cell.Rate { return cell.Rate(n) })
	rates := func() [2]cell.Rate { return [2]cell.Rate{rate.Draw(t, "interactive"), rate.Draw(t, "batch")} }
	given := func() *cell.Rate { return rapid.Ptr(rate, true).Draw(t, "rate") }
	weight := rapid.Map(rapid.IntRange(-1, 2), func(n int) cell.Weight { return cell.Weight(n) })
	rules := placement.Rules{Cell: rapid.SampledFrom([]cell.ID{"", "", "x"}).Draw(t, "only")}
	if rapid.Bool().Draw(t, "labelled") {
		rules.Require = []placement.Label{{Key: "zone", Value: "1"}}
	}
	switch rapid.IntRange(0, 18).Draw(t, "type") {
	case 13, 14, 15, 16, 17, 18:
		return drawMigration(t, m, tenant, at)
	case 12:
		c := command.CreateTenant{Tenant: tenant, Weight: weight.Draw(t, "weight"), Time: at}
		if rapid.Bool().Draw(t, "promised") {
			c.Reservation, c.Limit = rates(), rapid.SampledFrom([]cell.Rate{0, 12}).Draw(t, "limit")
			c.Organization, c.Rules = rapid.SampledFrom([]cell.OrganizationID{"", organization}).Draw(t, "parent"), rules
		}
		return c
	case 11:
		c := command.UpdateTenant{Tenant: tenant, Time: at, Weight: rapid.Ptr(weight, true).Draw(t, "weight")}
		if rapid.Bool().Draw(t, "set") {
			c.DisplayName = new(rapid.SampledFrom([]string{"", "x", "\xff"}).Draw(t, "name"))
		}
		if rapid.Bool().Draw(t, "promised") {
			c.Reservation, c.Limit = [2]*cell.Rate{given(), given()}, given()
			c.Organization = rapid.Ptr(rapid.SampledFrom([]cell.OrganizationID{"", organization}), true).Draw(t, "parent")
			c.Rules = rapid.Ptr(rapid.Just(rules), true).Draw(t, "rules")
		}
		return c
	case 10:
		return command.CreateOrganization{
			Organization: organization, Reservation: rates(), Limit: rapid.SampledFrom([]cell.Rate{0, 12, 20}).Draw(t, "limit"), Time: at,
		}
	case 9:
		return command.UpdateOrganization{
			Organization: organization, Weight: rapid.Ptr(weight, true).Draw(t, "weight"), Reservation: [2]*cell.Rate{given(), given()}, Limit: given(),
			Time: at,
		}
	case 8:
		c := command.CreateKey{
			Key: id, Tenant: rapid.SampledFrom([]cell.TenantID{"", tenant}).Draw(t, "owner"), Time: at,
			Hash: hashOf(rapid.SampledFrom([]string{"1", "2", "3", "4"}).Draw(t, "hash")),
		}
		if rapid.Bool().Draw(t, "expires") {
			c.Expires = at.Add(5)
		}
		c.Permissions = slices.Compact(slices.Sorted(slices.Values(
			rapid.SliceOfN(rapid.SampledFrom(cell.Permissions()), 0, 2).Draw(t, "permissions"))))
		return c
	case 7:
		return command.RevokeKey{Key: id, Time: at}
	default:
		return drawCluster(t, m, tenant, at)
	}
}

// The state answers and stands as the model does, whatever comes; see agree.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var before []command.Command
		if rapid.Bool().Draw(t, "prelude") {
			before = prelude()
		}
		agree(t, before, rapid.IntRange(20, 80).Draw(t, "commands"), draw)
	})
}

// Most of the commands move tenants, between cells that come and go.
func TestModelOfMigrations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		agree(t, prelude(), rapid.IntRange(30, 80).Draw(t, "commands"), func(t *rapid.T, m *model) command.Command {
			at := cell.Instant(rapid.IntRange(0, 20).Draw(t, "time"))
			if rapid.IntRange(0, 9).Draw(t, "other") > 0 {
				return drawMigration(t, m, "a", at)
			}
			return drawCluster(t, m, "a", at)
		})
	})
}

// agree demands that the state answers and stands as the model does; a replica fed the same log, through its bytes and with a snapshot and a restore in the
// middle, has the same hash at every index.
func agree(t *rapid.T, before []command.Command, commands int, draw func(*rapid.T, *model) command.Command) {
	s, replica := New(), New()
	m := newModel()
	if rapid.Bool().Draw(t, "forgetful") {
		s.endedMax, replica.endedMax, m.endedMax = 2, 2, 2
	}
	for i := range len(before) + commands {
		var c command.Command
		if i < len(before) {
			c = before[i]
		} else {
			c = draw(t, m)
		}
		if rapid.Bool().Draw(t, "audited") {
			c = command.Audited{Actor: []string{"key_0", "key_1", command.ActorControl}[i%3], Command: c}
		}
		index := uint64(i) + 1
		r := apply(t, s, index, c)
		if got, want := word(r), m.apply(index, c); got != want {
			t.Fatalf("%+v: %s (%v), want %s", c, got, r.Refused, want)
		}
		decoded, err := command.Decode(command.Encode(c))
		if err != nil {
			t.Fatal(err)
		}
		replica.Apply(index, decoded)
		if rapid.IntRange(0, 9).Draw(t, "restore") == 0 {
			if replica, err = Restore(bytes.NewReader(snapshotOf(t, replica.View()))); err != nil {
				t.Fatal(err)
			}
			replica.endedMax = s.endedMax
		}
		if s.View().Hash() != replica.View().Hash() {
			t.Fatalf("after %+v the replica has another state", c)
		}
		compare(t, s.View(), m)
		compareCluster(t, s.View(), m)
		compareMigrations(t, s.View(), m)
	}
}

func compare(t *rapid.T, v View, m *model) {
	tenants, keys := 0, 0
	for row := range v.Tenants("") {
		tenants++
		if !row.Equal(m.tenants[row.ID()]) {
			t.Fatalf("tenant %+v, want %+v", row, m.tenants[row.ID()])
		}
	}
	organizations := 0
	for row := range v.Organizations("") {
		organizations++
		if row.Reserved = [2]cell.Rate{}; row != m.organizations[row.ID()] {
			t.Fatalf("organization %+v, want %+v", row, m.organizations[row.ID()])
		}
	}
	if organizations != len(m.organizations) {
		t.Fatalf("%d organizations, want %d", organizations, len(m.organizations))
	}
	for row := range v.Keys("") {
		keys++
		if !reflect.DeepEqual(row, m.keys[row.ID]) {
			t.Fatalf("key %+v, want %+v", row, m.keys[row.ID])
		}
	}
	if tenants != len(m.tenants) || keys != len(m.keys) || v.Clock() != m.clock {
		t.Fatalf("%d tenants, %d keys at %d; want %d, %d at %d", tenants, keys, v.Clock(), len(m.tenants), len(m.keys), m.clock)
	}
}
