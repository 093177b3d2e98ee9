package state

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/placement"
)

// check returns what is wrong with the state, or nothing. It runs after every step of every test.
func (s *State) check() []string {
	var wrong []string
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	v := s.View()
	wrong = append(wrong, s.checkOrganizations()...)
	wrong = append(wrong, s.checkHomes()...)
	wrong = append(wrong, s.checkCluster()...)
	wrong = append(wrong, s.checkMigrations()...)
	tenants, keys := 0, 0
	var last cell.TenantID
	owners := []cell.TenantID{""}
	for t := range v.Tenants("") {
		tenants++
		owners = append(owners, t.ID())
		if t.ID() <= last {
			say("tenant %s after %s", t.ID(), last)
		}
		last = t.ID()
		if t.Policy.Epoch < 1 || t.Created <= 0 || t.Updated < t.Created || t.Updated > v.Clock() {
			say("tenant %+v at clock %d", t, v.Clock())
		}
	}
	hashes := map[[32]byte]bool{}
	for k := range v.Keys("") {
		keys++
		if hashes[k.Hash] {
			say("hash of key %s twice", k.ID)
		}
		hashes[k.Hash] = true
		if got, ok := v.KeyByHash(k.Hash); !ok || got.ID != k.ID {
			say("hash of key %s leads to %s", k.ID, got.ID)
		}
		if _, ok := v.Tenant(k.Tenant); !ok && k.Tenant != "" {
			say("key %s of missing tenant %s", k.ID, k.Tenant)
		}
		if k.Created > v.Clock() || k.Revoked > v.Clock() || !slices.IsSorted(k.Permissions) || len(k.Permissions) == 0 {
			say("key %+v at clock %d", k, v.Clock())
		}
	}
	byOwner := 0
	for _, owner := range owners {
		live, ended := 0, 0
		for k := range v.KeysOf(owner, "") {
			byOwner++
			if k.LiveAt(v.Clock()) {
				live++
			} else {
				ended++
			}
		}
		bound := KeysPerTenantMax
		if owner == "" {
			bound = KeysPlatformMax
		}
		// What ends by expiry alone is forgotten with the next change of a key.
		if live > bound || ended > KeysEndedMax+bound {
			say("tenant %q has %d live and %d ended keys", owner, live, ended)
		}
	}
	if tenants != s.head.tenants || keys != s.head.keys || byOwner != keys {
		say("%d tenants and %d keys (%d by owner), counted as %d and %d", tenants, keys, byOwner, s.head.tenants, s.head.keys)
	}
	return wrong
}

// checkOrganizations sums what the tenants of each organization reserve from nothing.
func (s *State) checkOrganizations() []string {
	var wrong []string
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	v := s.View()
	sums := map[cell.OrganizationID][2]cell.Rate{}
	members := map[cell.OrganizationID][]cell.TenantID{}
	for t := range v.Tenants("") {
		id := t.Policy.Organization
		if err := t.Policy.Check(); err != nil {
			say("tenant %s: %v", t.ID(), err)
		}
		if _, ok := v.Organization(id); !ok && id != "" {
			say("organization %s of tenant %s is missing", id, t.ID())
		}
		sum := sums[id]
		for i, r := range t.Policy.Reservation {
			sum[i] += r
		}
		sums[id] = sum
		members[id] = append(members[id], t.ID())
	}
	organizations := 0
	var last cell.OrganizationID
	for o := range v.Organizations("") {
		organizations++
		if o.ID() <= last {
			say("organization %s after %s", o.ID(), last)
		}
		last = o.ID()
		if o.Reserved != sums[o.ID()] {
			say("organization %s has %v reserved, and its tenants reserve %v", o.ID(), o.Reserved, sums[o.ID()])
		}
		if err := errors.Join(o.Policy.Check(), o.Policy.CheckReserved(sums[o.ID()])); err != nil {
			say("organization %s: %v", o.ID(), err)
		}
		if o.Policy.Epoch < 1 || o.Created <= 0 || o.Updated < o.Created || o.Updated > v.Clock() {
			say("organization %+v at clock %d", o, v.Clock())
		}
		var ids []cell.TenantID
		for t := range v.TenantsOf(o.ID(), "") {
			ids = append(ids, t.ID())
		}
		if !slices.Equal(ids, members[o.ID()]) {
			say("organization %s lists %v, of %v", o.ID(), ids, members[o.ID()])
		}
	}
	all := sums[""]
	for o := range v.Organizations("") {
		for i, r := range o.Policy.Reservation {
			if r == 0 {
				r = sums[o.ID()][i]
			}
			all[i] += r
		}
	}
	if all != s.head.reserved {
		say("%v is reserved, summed as %v", all, s.head.reserved)
	}
	if organizations != s.head.organizations {
		say("%d organizations, counted as %d", organizations, s.head.organizations)
	}
	return wrong
}

// checkHomes goes through where every lane is at home, by tenant, by cell and by those that are nowhere.
func (s *State) checkHomes() []string {
	var wrong []string
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	v := s.View()
	lanes, tenants := map[cell.ID]int{}, map[cell.ID]int{}
	var nowhere []cell.TenantID
	assignments, profiles, decisions, bytes := 0, 0, 0, 0
	for t := range v.Tenants("") {
		var of [2]Assignment
		for i, class := range cell.Classes() {
			a, ok := v.AssignmentOf(cell.Lane{Tenant: t.ID(), Class: class})
			if of[i] = a; !ok {
				continue
			}
			assignments++
			lanes[a.Cell]++
			if home, ok := v.Cell(a.Cell); !ok || home.Phase == placement.PhaseForming {
				say("lane %v is at home in %q, which is missing or forming", a.Lane, a.Cell)
			}
			if a.Since <= 0 || a.Since > v.Clock() {
				say("%+v of %+v at clock %d", a, t.Policy, v.Clock())
			}
		}
		if of != v.Homes(t.ID()) || of[0].Cell != "" && (t.Policy.Epoch != max(of[0].Epoch, of[1].Epoch) || t.Policy.Groups != of[0].Groups) {
			say("%+v of %+v", of, t.Policy)
		}
		_, moving := v.liveOf(t.ID())
		apart := of[0].Cell != of[1].Cell
		if apart && !moving || !apart && of[0].Groups != of[1].Groups {
			say("%s is not moving, and its lanes are %+v", t.ID(), of)
		}
		if of[0].Cell == "" {
			nowhere = append(nowhere, t.ID())
		} else {
			tenants[of[0].Cell]++
		}
		if apart {
			tenants[of[1].Cell]++
		}
		if v.Profile(t.ID()) != (placement.Profile{}) {
			profiles++
		}
		if text, at := v.Decision(t.ID()); text != "" {
			decisions++
			if bytes += len(text); !apart && at != max(of[0].Since, of[1].Since) {
				say("the decision of %s is from %d, and its home from %d", t.ID(), at, of[0].Since)
			}
		}
	}
	var listed []cell.TenantID
	for t := range v.Unplaced("") {
		listed = append(listed, t.ID())
	}
	if !slices.Equal(listed, nowhere) {
		say("%v are listed as unplaced, of %v", listed, nowhere)
	}
	if h := s.head; assignments != h.assignments || profiles > h.profiles || decisions != h.decisions || bytes != h.decisionBytes {
		say("%d assignments, %d profiles, %d decisions of %d bytes, counted as %d, %d, %d, %d", assignments, profiles, decisions, bytes,
			h.assignments, h.profiles, h.decisions, h.decisionBytes)
	}
	for c := range v.Cells("") {
		n := 0
		var last cell.Lane
		for a := range v.AssignmentsIn(c.ID, "") {
			if n++; a.Cell != c.ID || a.Lane.Tenant < last.Tenant || a.Lane.Tenant == last.Tenant && a.Lane.Class <= last.Class {
				say("cell %s lists %+v after %v", c.ID, a, last)
			}
			last = a.Lane
		}
		if n != lanes[c.ID] || c.Tenants != tenants[c.ID] {
			say("cell %s lists %d lanes and counts %d tenants, of %d and %d", c.ID, n, c.Tenants, lanes[c.ID], tenants[c.ID])
		}
	}
	return wrong
}

// checkCluster goes through cells, agents, tokens and the audit's chain.
func (s *State) checkCluster() []string {
	var wrong []string
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	v := s.View()
	cells, agents, tokens := 0, 0, 0
	for c := range v.Cells("") {
		cells++
		forming := c.Phase == placement.PhaseForming
		if forming != (len(c.Voters) == 0) || forming && c.Tenants > 0 || c.Generation < 1 || c.Created <= 0 || c.Updated < c.Created || c.Updated > v.Clock() {
			say("cell %+v at clock %d", c, v.Clock())
		}
		for range v.AgentsOf(c.ID) {
			agents--
		}
	}
	for a := range v.Agents("") {
		agents++
		if _, ok := v.Cell(a.Cell); ok {
			agents++
		}
		if a.Created <= 0 || a.Updated < a.Created || a.Updated > v.Clock() {
			say("agent %+v at clock %d", a, v.Clock())
		}
	}
	for t := range v.JoinTokens() {
		if tokens++; (t.UsedBy == "") != (t.Used == 0) || t.Used > v.Clock() {
			say("token %+v at clock %d", t, v.Clock())
		}
	}
	if h := s.head; cells != h.cells || agents != h.agents || tokens != h.tokens {
		say("%d cells, %d agents, %d tokens, counted as %d, %d, %d", cells, agents, tokens, h.cells, h.agents, h.tokens)
	}
	b := v.AuditBounds()
	hash, next := b.Before, b.First
	records := slices.Collect(v.Audit(0))
	for _, r := range slices.Backward(records) {
		if r.Sequence != next || r.Hash != r.Chain(hash) || r.Time > v.Clock() || r.Index > v.Index() {
			say("record %+v of the audit, where %d is expected", r, next)
		}
		hash, next = r.Hash, next+1
	}
	if len(records) > AuditMax || len(records) > 0 && next != b.Last+1 || len(records) == 0 && b.Last != 0 {
		say("%d records of the audit within %+v", len(records), b)
	}
	return wrong
}

// checkMigrations goes through migrations in each of their orders.
func (s *State) checkMigrations() []string {
	var wrong []string
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	v := s.View()
	all, live, ended := 0, 0, 0
	latest := map[cell.TenantID]Migration{}
	before := uint64(0)
	for m := range v.Migrations(0) {
		all++
		if row, ok := v.Migration(m.ID); !ok || row.Number != m.Number || m.Number == 0 || m.Number > v.Index() || before != 0 && m.Number >= before {
			say("migration %s has number %d after %d", m.ID, m.Number, before)
		}
		before = m.Number
		if _, later := latest[m.Tenant]; !later {
			latest[m.Tenant] = m
		}
		if err := m.Check(); err != nil {
			say("%v", err)
		}
		if m.Created <= 0 || m.Created > v.Clock() || m.Ended > v.Clock() || m.Done() != (m.EndNumber != 0) || m.EndNumber > v.Index() {
			say("migration %+v at clock %d", m, v.Clock())
		}
		if m.Done() {
			ended++
			continue
		}
		live++
		if latest[m.Tenant].ID != m.ID {
			say("migration %s of %s is not its latest", m.ID, m.Tenant)
		}
		for i, a := range v.Homes(m.Tenant) {
			if l := m.Lanes[i]; a.Cell != l.Owner || a.Epoch != l.Epoch || !m.Names(a.Cell) || a.Groups != m.Groups[m.side(a.Cell)] {
				say("migration %s has the lane %+v, which is %+v", m.ID, l, a)
			}
		}
		for _, id := range []cell.ID{m.Source, m.Target} {
			if _, ok := v.Cell(id); !ok {
				say("migration %s names cell %s, which is missing", m.ID, id)
			}
			if !slices.Contains(v.TenantsIn(id), m.Tenant) {
				say("cell %s is not to know %s, which moves from it or to it", id, m.Tenant)
			}
		}
	}
	for tenant, m := range latest { // order-free: each by itself
		if row, ok := v.MigrationOf(tenant); !ok || row.ID != m.ID {
			say("the latest migration of %s is %s, want %s", tenant, row.ID, m.ID)
		}
	}
	number := uint64(0)
	listed := 0
	for m := range v.LiveMigrations() {
		if listed++; m.Done() || m.Number <= number {
			say("migration %s is listed as live after %d", m.ID, number)
		}
		number = m.Number
	}
	if h := s.head; all != h.migrations || live != h.live || listed != live || ended > s.endedMax || v.LiveMigrationsCount() != live {
		say("%d migrations, %d live (%d listed) and %d ended, counted as %d and %d", all, live, listed, ended, h.migrations, h.live)
	}
	return wrong
}
