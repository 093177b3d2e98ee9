package state

import (
	"fmt"
	"math/bits"
	"reflect"
	"slices"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/migrate"
	"github.com/fairlead/fairlead/placement"
)

// migrationModel is the part of the naive state that came with migrations. What an event does to a record is package migrate's.
type migrationModel struct {
	rows     map[cell.MigrationID]Migration
	endedMax int
}

// moving returns the tenant's live migration, or nothing.
func (m *migrationModel) moving(tenant cell.TenantID) cell.MigrationID {
	for id, row := range m.rows {
		if row.Tenant == tenant && !row.Done() {
			return id
		}
	}
	return ""
}

// moves reports whether a live migration names the cell.
func (m *migrationModel) moves(id cell.ID) bool {
	for _, row := range m.rows {
		if !row.Done() && (row.Source == id || row.Target == id) {
			return true
		}
	}
	return false
}

// used returns what a tenant used in an hour in all of its cells, and whether the cell is one of them.
func (m *model) used(c command.RecordDemand, s command.TenantSample) (placement.Sample, bool) {
	row, moving := m.rows[m.moving(s.Tenant)]
	if !moving || row.Source != c.Cell && row.Target != c.Cell {
		return s.Sample, m.homes[interactive(s.Tenant)].Cell == c.Cell || m.homes[batch(s.Tenant)].Cell == c.Cell
	}
	here, there := &row.used[0], &row.used[1]
	if row.Target == c.Cell {
		here, there = there, here
	}
	*here = placement.HourSample{Hour: c.Hour, Sample: s.Sample}
	m.rows[row.ID] = row
	sum := s.Sample
	if there.Hour == c.Hour {
		sum.Average, sum.P95, sum.Limited = sum.Average.Add(there.Average), sum.P95.Add(there.P95), sum.Limited+there.Limited
	}
	return sum, true
}

func (m *model) applyMigration(index uint64, c command.Command) string {
	id := cell.MigrationID(command.Subject(c))
	row, ok := m.rows[id]
	if start, is := c.(command.StartMigration); is {
		return m.start(index, start)
	}
	if !ok {
		return "missing"
	}
	if _, is := c.(command.ForgetMigration); is {
		if !row.Done() {
			return "in use"
		}
		delete(m.rows, id)
		return "ok"
	}
	advance, _ := c.(command.AdvanceMigration)
	if advance.Expect != row.Generation {
		return "stale"
	}
	event := advance.Event
	event.Time = m.clock
	next, err := row.Apply(event)
	if err != nil {
		return word(Result{Refused: err})
	}
	row.Record = next
	if next.Done() {
		row.EndNumber = index
	}
	m.rows[id] = row
	m.settle(row)
	var ended []Migration
	for _, old := range m.rows {
		if old.Done() {
			ended = append(ended, old)
		}
	}
	if len(ended) > m.endedMax {
		delete(m.rows, slices.MinFunc(ended, func(a, b Migration) int { return int(a.EndNumber) - int(b.EndNumber) }).ID)
	}
	return "ok"
}

// settle makes homes what a record says.
func (m *model) settle(row Migration) {
	t := m.tenants[row.Tenant]
	moved := false
	for i, class := range cell.Classes() {
		lane := cell.Lane{Tenant: row.Tenant, Class: class}
		a, l := m.homes[lane], row.Lanes[i]
		if a.Cell != l.Owner {
			moved = true
			a.Cell, a.Since, a.Groups = l.Owner, m.clock, row.Groups[0]
			if l.Owner == row.Target {
				a.Groups = row.Groups[1]
			}
		}
		a.Epoch = l.Epoch
		m.homes[lane] = a
		t.Policy.Epoch = max(t.Policy.Epoch, l.Epoch)
	}
	home := m.homes[interactive(row.Tenant)]
	t.Policy.Groups = home.Groups
	m.tenants[row.Tenant] = t
	if moved && home.Cell == m.homes[batch(row.Tenant)].Cell {
		m.texts[row.Tenant] = fmt.Sprintf("%s: %s\nmigration %s, from %s to %s, made %s its home",
			row.Tenant, row.Reason, row.ID, row.Source, row.Target, home.Cell)
	}
}

func (m *model) start(index uint64, c command.StartMigration) string {
	if old, ok := m.rows[c.ID]; ok {
		if old.Tenant == c.Tenant && old.Source == c.Source && old.Target == c.Target && old.Groups[1] == c.Groups && old.Created == c.Time {
			return "same"
		}
		return "exists"
	}
	t, known := m.tenants[c.Tenant]
	_, source := m.cells[c.Source]
	target, there := m.cells[c.Target]
	of := [2]Assignment{m.homes[interactive(c.Tenant)], m.homes[batch(c.Tenant)]}
	switch {
	case !known:
		return "missing"
	case m.moving(c.Tenant) != "":
		return "moving"
	case !source || !there:
		return "missing"
	}
	for i, a := range of { // one lane after the other
		if a.Epoch != c.Expect[i] {
			return "stale"
		}
		if a.Cell != c.Source {
			return "bad"
		}
	}
	switch {
	case target.Phase != placement.PhaseOpen:
		return "phase"
	case c.TargetGeneration != 0 && c.TargetGeneration != target.Generation:
		return "stale"
	case t.Rules.Cell != "" && t.Rules.Cell != c.Target:
		return "bad"
	case target.Groups == 0 && c.Groups != 0 || target.Groups != 0 && (c.Groups == 0 || bits.Len64(c.Groups) > target.Groups):
		return "bad"
	}
	for _, l := range t.Rules.Require {
		if !slices.Contains(target.Labels, l) {
			return "bad"
		}
	}
	record, err := migrate.New(migrate.Declaration{
		ID: c.ID, Tenant: c.Tenant, Source: c.Source, Target: c.Target, Reason: c.Reason, Actor: c.Actor, Why: c.Why, Options: c.Options,
		Order: c.Order, Epochs: c.Expect, Now: m.clock,
	})
	if err != nil {
		return "bad"
	}
	m.rows[c.ID] = Migration{Record: record, Number: index, Groups: [2]uint64{of[0].Groups, c.Groups}}
	return "ok"
}

// possible returns the events that can be applied to a record now.
func possible(r migrate.Record, at cell.Instant) []migrate.Event {
	var events []migrate.Event
	for k := migrate.EventPass; k <= migrate.EventEnd; k++ {
		for _, class := range []cell.Class{0, cell.ClassInteractive, cell.ClassBatch} {
			e := migrate.Event{
				Kind: k, Class: class, Attempt: r.Attempt, Time: at, Actor: command.ActorControl, Why: "why", Position: 7, Change: 8, Digest: [32]byte{9},
				Gates: []migrate.Gate{{Name: "lag", Verdict: migrate.Pass, Evidence: "none"}}, Progress: &migrate.Progress{JobsCopied: 1, At: at},
				BytesPerSecond: migrate.BytesPerSecondMin, Floor: [2]cell.Epoch{3, 0},
			}
			if _, err := r.Apply(e); err == nil {
				events = append(events, e)
			}
		}
	}
	return events
}

// forward reports whether a kind of event brings a migration nearer to its end, one way or the other.
func forward(k migrate.Kind) bool {
	switch k {
	case migrate.EventPass, migrate.EventFence, migrate.EventCommit, migrate.EventActivate, migrate.EventObserved, migrate.EventReverseFence,
		migrate.EventReverseCommit, migrate.EventReverseActivate, migrate.EventComplete, migrate.EventEnd, migrate.EventResume:
		return true
	case migrate.EventHold, migrate.EventProgress, migrate.EventGates, migrate.EventUnfence, migrate.EventAllow, migrate.EventThrottle,
		migrate.EventRestart, migrate.EventAbort, migrate.EventReverse:
		return false
	default:
		return false
	}
}

// drawMigration returns a command that came with migrations, mostly one that a migration under way can go on with.
func drawMigration(t *rapid.T, m *model, tenant cell.TenantID, at cell.Instant) command.Command {
	ids := []cell.MigrationID{"m1", "m2", "m3", "m4", "m5"}
	id := rapid.SampledFrom(ids).Draw(t, "migration")
	var live []cell.MigrationID
	for _, id := range ids {
		if row, ok := m.rows[id]; ok && !row.Done() {
			live = append(live, id)
		}
	}
	likely := func(n uint64) uint64 { return rapid.SampledFrom([]uint64{n, n, n, n, n, n + 1}).Draw(t, "expected") }
	kind := rapid.IntRange(0, 9).Draw(t, "kind")
	switch {
	case kind == 0:
		return command.ForgetMigration{ID: id, Time: at}
	case kind <= 6 && len(live) > 0:
		row := m.rows[rapid.SampledFrom(live).Draw(t, "live")]
		event := migrate.Event{Kind: migrate.Kind(rapid.IntRange(1, 20).Draw(t, "event")), Attempt: uint32(kind), Time: at}
		if all := possible(row.Record, at); len(all) > 0 && kind <= 5 {
			if onward := slices.DeleteFunc(slices.Clone(all), func(e migrate.Event) bool { return !forward(e.Kind) }); len(onward) > 0 && kind > 1 {
				all = onward
			}
			event = rapid.SampledFrom(all).Draw(t, "possible")
		}
		return command.AdvanceMigration{ID: row.ID, Expect: likely(row.Generation), Event: event}
	default:
		if rapid.IntRange(0, 3).Draw(t, "anybody") > 0 {
			tenant = rapid.SampledFrom([]cell.TenantID{"a", "ab"}).Draw(t, "placed")
		}
		cells := []cell.ID{"x", "x-y", "y"}
		source := m.homes[interactive(tenant)].Cell
		if source == "" || rapid.IntRange(0, 9).Draw(t, "elsewhere") == 0 {
			source = rapid.SampledFrom(cells).Draw(t, "source")
		}
		target := rapid.SampledFrom(slices.DeleteFunc(slices.Clone(cells), func(id cell.ID) bool { return id == source })).Draw(t, "target")
		c := command.StartMigration{
			ID: id, Tenant: tenant, Source: source, Target: target, Reason: "operator", Actor: "key_1", Options: migrate.DefaultOptions(),
			Order: migrate.DefaultOrder(), TargetGeneration: rapid.SampledFrom([]uint64{0, m.cells[target].Generation}).Draw(t, "generation"),
			Expect: [2]cell.Epoch{cell.Epoch(likely(uint64(m.homes[interactive(tenant)].Epoch))), m.homes[batch(tenant)].Epoch}, Time: at,
		}
		if m.cells[target].Groups > 0 {
			c.Groups = uint64(rapid.IntRange(0, 4).Draw(t, "groups"))
		}
		return c
	}
}

func compareMigrations(t *rapid.T, v View, m *model) {
	n := 0
	for row := range v.Migrations(0) {
		if n++; !reflect.DeepEqual(row, m.rows[row.ID]) {
			t.Fatalf("migration %+v, want %+v", row, m.rows[row.ID])
		}
	}
	if n != len(m.rows) {
		t.Fatalf("%d migrations, want %d", n, len(m.rows))
	}
}
