package state

import (
	"math/bits"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/placement"
)

// clusterModel is the part of the naive state that came with clusters.
type clusterModel struct {
	cluster  Cluster
	cells    map[cell.ID]Cell // without counts
	homes    map[cell.Lane]Assignment
	agents   map[command.AgentName]Agent
	tokens   map[[32]byte]JoinToken
	profiles map[cell.TenantID]placement.Profile
	texts    map[cell.TenantID]string
	audit    []AuditRecord // without hashes
}

func newClusterModel() clusterModel {
	return clusterModel{
		cells: map[cell.ID]Cell{}, homes: map[cell.Lane]Assignment{}, agents: map[command.AgentName]Agent{}, tokens: map[[32]byte]JoinToken{},
		profiles: map[cell.TenantID]placement.Profile{}, texts: map[cell.TenantID]string{},
	}
}

func (m *model) applyCluster(index uint64, c command.Command) string {
	switch c := c.(type) {
	case command.Audited:
		answer := m.apply(index, c.Command)
		if answer == "ok" && command.Audits(c) {
			m.audit = append(m.audit, AuditRecord{
				Sequence: uint64(len(m.audit)) + 1, Time: m.clock, Actor: c.Actor, Action: c.Type().String(), Subject: command.Subject(c.Command),
				Detail: command.Detail(c.Command), Index: index,
			})
		}
		return answer
	case command.CreateCluster:
		if m.cluster.ID == c.ID {
			return "same"
		}
		if m.cluster.ID != "" {
			return "exists"
		}
		m.cluster = Cluster{ID: c.ID, Created: m.clock, FeatureLevel: 1}
		return "ok"
	case command.SetFeatureLevel:
		if m.cluster.ID == "" {
			return "missing"
		}
		return "same" // there is but one level
	case command.Restored:
		if m.cluster.ID == "" {
			return "missing"
		}
		m.cluster.Restores++
		clear(m.tokens)
		for id, t := range m.tenants {
			t.Policy.Epoch += 1 << 32
			m.tenants[id] = t
		}
		for id, o := range m.organizations {
			o.Policy.Epoch += 1 << 32
			m.organizations[id] = o
		}
		for lane, a := range m.homes {
			a.Epoch += 1 << 32
			m.homes[lane] = a
		}
		for id, row := range m.rows {
			if !row.Done() {
				row.Lanes[0].Epoch += 1 << 32
				row.Lanes[1].Epoch += 1 << 32
				m.rows[id] = row
			}
		}
		return "ok"
	case command.Assign:
		return m.assign(c)
	case command.RecordDemand:
		if _, ok := m.cells[c.Cell]; !ok {
			return "missing"
		}
		answer := "same"
		for _, s := range c.Samples {
			if used, ok := m.used(c, s); ok {
				m.profiles[s.Tenant] = m.profiles[s.Tenant].Record(c.Hour, used)
				answer = "ok"
			}
		}
		return answer
	case command.StartMigration, command.AdvanceMigration, command.ForgetMigration:
		return m.applyMigration(index, c)
	case command.RegisterAgent, command.ForgetAgent, command.CreateJoinToken, command.UseJoinToken:
		return m.applyAgent(c)
	default:
		return m.applyCell(c)
	}
}

func interactive(id cell.TenantID) cell.Lane {
	return cell.Lane{Tenant: id, Class: cell.ClassInteractive}
}

func batch(id cell.TenantID) cell.Lane { return cell.Lane{Tenant: id, Class: cell.ClassBatch} }

func (m *model) tenantsIn(id cell.ID) (n int) {
	for tenant := range m.tenants {
		if m.homes[interactive(tenant)].Cell == id || m.homes[batch(tenant)].Cell == id {
			n++
		}
	}
	return n
}

func (m *model) applyCell(c command.Command) string {
	id := cell.ID(command.Subject(c))
	row, ok := m.cells[id]
	if create, is := c.(command.CreateCell); is {
		fresh := Cell{
			ID: id, Kind: create.Kind, Phase: placement.PhaseForming, Replicas: create.Replicas, Labels: create.Labels, Capacity: create.Capacity,
			Groups: create.Groups, Hand: create.Hand, Generation: 1, Created: m.clock, Updated: m.clock,
		}
		if ok && row.same(fresh) && row.Created == create.Time {
			return "same"
		}
		if ok {
			return "exists"
		}
		m.cells[id] = fresh
		return "ok"
	}
	if !ok {
		return "missing"
	}
	switch c := c.(type) {
	case command.UpdateCell:
		if c.Labels != nil {
			row.Labels = *c.Labels
		}
		if c.Capacity != nil {
			row.Capacity = *c.Capacity
		}
		before := row.Groups
		if c.Groups != nil {
			row.Groups = *c.Groups
		}
		if c.Hand != nil {
			row.Hand = *c.Hand
		}
		if (row.Groups == 0) != (row.Hand == 0) || row.Hand > row.Groups || row.Groups < before && (m.tenantsIn(id) > 0 || m.moves(id)) {
			return "bad"
		}
	case command.SetCellPhase:
		switch {
		case row.Phase == c.Phase && (!c.Evacuate || row.Evacuating):
			return "same"
		case row.Phase == placement.PhaseForming || row.Phase == placement.PhaseDraining && c.Phase == placement.PhaseOpen:
			return "phase"
		}
		row.Phase = c.Phase
		if c.Evacuate {
			row.Evacuating = true
		}
		if c.Phase == placement.PhaseOpen {
			row.Evacuating = false
		}
	case command.SetCellVoters:
		forming := row.Phase == placement.PhaseForming
		switch {
		case !forming && slices.Equal(row.Voters, c.Voters):
			return "same"
		case c.Generation != row.Generation:
			return "stale"
		case forming && len(c.Voters) != row.Replicas:
			return "bad"
		case forming:
			row.Phase = placement.PhaseOpen
		default:
			names := func(rs []command.Replica) (ns []command.AgentName) {
				for _, r := range rs {
					ns = append(ns, r.Name)
				}
				return ns
			}
			row.Reformed = row.Reformed || !slices.Equal(names(row.Voters), names(c.Voters))
		}
		row.Voters = c.Voters
	case command.DeleteCell:
		if m.tenantsIn(id) > 0 || m.moves(id) {
			return "in use"
		}
		delete(m.cells, id)
		for name, a := range m.agents {
			if a.Cell == id {
				delete(m.agents, name)
			}
		}
		return "ok"
	}
	row.Generation++
	row.Updated = m.clock
	m.cells[id] = row
	return "ok"
}

func (m *model) assign(c command.Assign) string {
	t, ok := m.tenants[c.Tenant]
	home, has := m.cells[c.Cell]
	old, other := m.homes[interactive(c.Tenant)], m.homes[batch(c.Tenant)]
	epoch := max(old.Epoch, other.Epoch)
	same := func(a Assignment) bool { return a.Cell == c.Cell && a.Groups == c.Groups && a.Since == c.Time }
	switch {
	case !ok || !has:
		return "missing"
	case same(old) && same(other) && epoch != c.Expect:
		return "same"
	case m.moving(c.Tenant) != "":
		return "moving"
	case home.Phase != placement.PhaseOpen:
		return "phase"
	case epoch != c.Expect || c.CellGeneration != 0 && c.CellGeneration != home.Generation:
		return "stale"
	case t.Rules.Cell != "" && t.Rules.Cell != c.Cell:
		return "bad"
	}
	for _, l := range t.Rules.Require {
		if !slices.Contains(home.Labels, l) {
			return "bad"
		}
	}
	if home.Groups == 0 && c.Groups != 0 || home.Groups != 0 && (c.Groups == 0 || bits.Len64(c.Groups) > home.Groups) {
		return "bad"
	}
	t.Policy.Epoch++
	t.Policy.Groups = c.Groups
	m.tenants[c.Tenant] = t
	for _, class := range cell.Classes() {
		lane := cell.Lane{Tenant: c.Tenant, Class: class}
		m.homes[lane] = Assignment{lane, c.Cell, t.Policy.Epoch, m.clock, c.Groups}
	}
	m.texts[c.Tenant] = c.Decision
	return "ok"
}

func (m *model) applyAgent(c command.Command) string {
	switch c := c.(type) {
	case command.RegisterAgent:
		row, ok := m.agents[c.Agent.Name]
		if ok && (row.Role != c.Agent.Role || row.Cell != c.Agent.Cell) {
			return "bad"
		}
		fresh := Agent{c.Agent, m.clock, m.clock}
		if ok {
			fresh.LogOpen = fresh.LogOpen || row.LogOpen
			if fresh.Agent == row.Agent {
				return "same"
			}
			fresh.Created = row.Created
		}
		m.agents[c.Agent.Name] = fresh
	case command.ForgetAgent:
		row, ok := m.agents[c.Name]
		if !ok {
			return "missing"
		}
		for _, r := range m.cells[row.Cell].Voters {
			if r.Name == c.Name {
				return "in use"
			}
		}
		delete(m.agents, c.Name)
	case command.CreateJoinToken:
		if old, ok := m.tokens[c.Hash]; ok {
			old.Created, old.Used, old.UsedBy = 0, 0, ""
			if old == (JoinToken{Hash: c.Hash, Role: c.Role, Cell: c.Cell, Name: c.Name, Expires: c.Expires}) {
				return "same"
			}
			return "exists"
		}
		for h, t := range m.tokens {
			if t.Expires <= m.clock {
				delete(m.tokens, h)
			}
		}
		m.tokens[c.Hash] = JoinToken{Hash: c.Hash, Role: c.Role, Cell: c.Cell, Name: c.Name, Created: m.clock, Expires: c.Expires}
	case command.UseJoinToken:
		t, ok := m.tokens[c.Hash]
		switch {
		case !ok:
			return "missing"
		case t.Expires <= m.clock || t.Name != "" && t.Name != c.Name || t.UsedBy != "" && t.UsedBy != c.Name:
			return "token"
		case t.UsedBy == c.Name:
			return "same" // the model's clock is never so far on that it is refused
		}
		t.UsedBy, t.Used = c.Name, m.clock
		m.tokens[c.Hash] = t
	}
	return "ok"
}

// prelude makes what most of the commands are about.
func prelude() []command.Command {
	open := func(id cell.ID) []command.Command {
		return []command.Command{
			command.CreateCell{Cell: id, Kind: placement.KindPooled, Replicas: 1, Labels: []placement.Label{{Key: "zone", Value: "1"}}, Time: 1},
			command.SetCellVoters{Cell: id, Voters: []command.Replica{{Name: "a"}}, Generation: 1, Time: 1},
		}
	}
	return slices.Concat(
		[]command.Command{command.CreateCluster{ID: "one", Time: 1}, command.CreateTenant{Tenant: "a", Time: 1}, command.CreateTenant{Tenant: "ab", Time: 1}},
		open("x"), open("x-y"),
		[]command.Command{
			command.RegisterAgent{Agent: command.Agent{Name: "a", Role: command.RoleCell, Cell: "x", FeatureLevelMax: 1}, Time: 1},
			command.Assign{Tenant: "a", Cell: "x", Decision: "first", Time: 1},
		},
	)
}

// drawCluster returns a command that came with clusters, over few names. What it expects is often what is.
func drawCluster(t *rapid.T, m *model, tenant cell.TenantID, at cell.Instant) command.Command {
	id := rapid.SampledFrom([]cell.ID{"x", "x-y", "y"}).Draw(t, "cell")
	name := rapid.SampledFrom([]command.AgentName{"a", "a-b", "b", "c"}).Draw(t, "agent")
	hash := hashOf(rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, "token"))
	small := rapid.IntRange(0, 3)
	likely := func(n uint64) uint64 {
		return rapid.SampledFrom([]uint64{n, n, n, n + 1, 0}).Draw(t, "expected")
	}
	labels := [][]placement.Label{nil, {{Key: "zone", Value: "1"}}, {{Key: "zone", Value: "2"}}, {{Key: "a", Value: "b"}, {Key: "zone", Value: "1"}}}
	load := placement.Load{Compute: cell.Rate(small.Draw(t, "compute")), Jobs: int64(small.Draw(t, "jobs")), Bytes: int64(small.Draw(t, "bytes"))}
	// What is drawn is rather small: the frequent ones are those that others need.
	switch rapid.IntRange(0, 17).Draw(t, "type") {
	case 16:
		return command.CreateCluster{ID: rapid.SampledFrom([]string{"one", "one", "two"}).Draw(t, "id"), Time: at}
	case 17:
		return rapid.SampledFrom([]command.Command{command.SetFeatureLevel{Level: 1, Time: at}, command.Restored{Time: at}}).Draw(t, "cluster")
	case 5, 6:
		c := command.CreateCell{
			Cell: id, Kind: placement.KindPooled, Replicas: rapid.SampledFrom([]int{1, 1, 3}).Draw(t, "replicas"), Capacity: load,
			Labels: rapid.SampledFrom(labels).Draw(t, "labels"), Time: at,
		}
		if rapid.Bool().Draw(t, "dealt") {
			c.Groups, c.Hand = 2, 1
		}
		return c
	case 9, 10:
		c := command.UpdateCell{Cell: id, Time: at, Capacity: rapid.Ptr(rapid.Just(load), true).Draw(t, "capacity")}
		c.Groups, c.Hand = rapid.Ptr(small, true).Draw(t, "groups"), rapid.Ptr(small, true).Draw(t, "hand")
		if rapid.Bool().Draw(t, "labelled") {
			c.Labels = new(rapid.SampledFrom(labels).Draw(t, "labels"))
		}
		return c
	case 7:
		evacuate := rapid.IntRange(0, 3).Draw(t, "evacuate") == 0
		return command.SetCellPhase{Cell: id, Phase: rapid.SampledFrom(placement.Phases()).Draw(t, "phase"), Evacuate: evacuate, Time: at}
	case 2, 3:
		c := command.SetCellVoters{Cell: id, Generation: likely(m.cells[id].Generation), Time: at}
		for _, n := range []command.AgentName{"a", "b", "c"}[:max(1, m.cells[id].Replicas-rapid.IntRange(0, 3).Draw(t, "fewer")/3)] {
			c.Voters = append(c.Voters, command.Replica{Name: n, RaftAddress: rapid.SampledFrom([]string{"", "h:1"}).Draw(t, "address")})
		}
		return c
	case 15:
		return command.DeleteCell{Cell: id, Time: at}
	case 0, 1:
		c := command.Assign{
			Tenant: tenant, Cell: id, Expect: cell.Epoch(likely(uint64(max(m.homes[interactive(tenant)].Epoch, m.homes[batch(tenant)].Epoch)))), CellGeneration: likely(m.cells[id].Generation),
			Decision: rapid.SampledFrom([]string{"", "why", "because\nof that"}).Draw(t, "decision"), Time: at,
		}
		if m.cells[id].Groups > 0 {
			c.Groups = uint64(rapid.IntRange(0, 4).Draw(t, "groups"))
		}
		return c
	case 11:
		return command.CreateJoinToken{
			Hash: hash, Role: command.RoleGateway, Name: rapid.SampledFrom([]command.AgentName{"", name}).Draw(t, "for"), Time: at,
			Expires: at.Add(rapid.SampledFrom([]time.Duration{1, 5, 30}).Draw(t, "lifetime")),
		}
	case 12:
		return command.UseJoinToken{Hash: hash, Name: name, Time: at}
	case 8:
		a := command.Agent{Name: name, Role: command.RoleCell, Cell: id, FeatureLevelMax: 1, LogOpen: rapid.Bool().Draw(t, "open")}
		a.Version = rapid.SampledFrom([]string{"", "v2"}).Draw(t, "version")
		return command.RegisterAgent{Agent: a, Time: at}
	case 14:
		return command.ForgetAgent{Name: name, Time: at}
	default: // 4 and 13
		c := command.RecordDemand{Cell: id, Hour: int64(rapid.IntRange(0, 60).Draw(t, "hour")), Time: at}
		for _, id := range slices.Sorted(slices.Values(rapid.SliceOfNDistinct(
			rapid.SampledFrom([]cell.TenantID{"a", "ab", "none"}), 1, 2, func(id cell.TenantID) cell.TenantID { return id }).Draw(t, "of"))) {
			c.Samples = append(c.Samples, command.TenantSample{Tenant: id, Sample: placement.Sample{Average: load, P95: load, Limited: int64(small.Draw(t, "limited"))}})
		}
		return c
	}
}

func compareCluster(t *rapid.T, v View, m *model) {
	if c, ok := v.Cluster(); c != m.cluster || ok != (c.ID != "") {
		t.Fatalf("cluster %+v, want %+v", c, m.cluster)
	}
	n := 0
	for row := range v.Cells("") {
		n++
		if want := m.cells[row.ID]; !row.same(want) || row.Created != want.Created || row.Updated != want.Updated || row.Reformed != want.Reformed ||
			row.Evacuating != want.Evacuating || row.Tenants != m.tenantsIn(row.ID) {
			t.Fatalf("cell %+v, want %+v with %d tenants", row, want, m.tenantsIn(row.ID))
		}
	}
	homes := 0
	for row := range v.Assignments("") {
		if homes++; row != m.homes[row.Lane] {
			t.Fatalf("assignment %+v, want %+v", row, m.homes[row.Lane])
		}
	}
	agents := 0
	for row := range v.Agents("") {
		if agents++; row != m.agents[row.Name] {
			t.Fatalf("agent %+v, want %+v", row, m.agents[row.Name])
		}
	}
	tokens := 0
	for row := range v.JoinTokens() {
		if tokens++; row != m.tokens[row.Hash] {
			t.Fatalf("token %+v, want %+v", row, m.tokens[row.Hash])
		}
	}
	if n != len(m.cells) || homes != len(m.homes) || agents != len(m.agents) || tokens != len(m.tokens) {
		t.Fatalf("%d cells, %d assignments, %d agents, %d tokens; want %d, %d, %d, %d", n, homes, agents, tokens,
			len(m.cells), len(m.homes), len(m.agents), len(m.tokens))
	}
	for id := range m.tenants {
		if text, at := v.Decision(id); v.Profile(id) != m.profiles[id] || text != m.texts[id] || (at != 0) != (text != "") {
			t.Fatalf("tenant %s has the profile %+v and the decision %q; want %+v and %q", id, v.Profile(id), text, m.profiles[id], m.texts[id])
		}
	}
	records := slices.Collect(v.Audit(0))
	slices.Reverse(records)
	for i := range records {
		records[i].Hash = [32]byte{}
	}
	if !slices.Equal(records, m.audit) {
		t.Fatalf("the audit is %+v, want %+v", records, m.audit)
	}
}
