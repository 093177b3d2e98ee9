package state

import (
	"fmt"
	"iter"
	"slices"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/migrate"
	"github.com/fairlead/fairlead/placement"
)

// Migration is a row of the table of migrations. While it has not ended its lanes are those of the table of assignments: the same owners, the same epochs.
type Migration struct {
	migrate.Record
	// Number orders migrations by when they were declared: the index of that entry. EndNumber orders those that have ended by that; 0 for others.
	Number, EndNumber uint64
	// Groups are the tenant's hands of the source's and the target's worker groups: bit i for group i+1.
	Groups [2]uint64
	// used are the last samples from the source and from the target, whose sum is what the tenant used in an hour.
	used [2]placement.HourSample
}

// Names reports whether the cell is the migration's source or its target.
func (m *Migration) Names(id cell.ID) bool { return m.side(id) >= 0 }

// side returns 0 for the source, 1 for the target and -1 for another cell.
func (m *Migration) side(id cell.ID) int { return slices.Index([]cell.ID{m.Source, m.Target}, id) }

// Migration returns the migration, if it is there and not forgotten.
func (v View) Migration(id cell.MigrationID) (Migration, bool) {
	return get[Migration](v.db, tableMigrations, byID, string(id))
}

// MigrationOf returns the tenant's latest migration, which is its live one if it has any; see [migrate.Record.Done].
func (v View) MigrationOf(tenant cell.TenantID) (Migration, bool) {
	for m := range above(v.db, tableMigrations, byTenant, func(Migration) bool { return true }, string(tenant)) {
		if m.Tenant == tenant {
			return m, true
		}
		break
	}
	return Migration{}, false
}

// liveOf returns the tenant's live migration.
func (v View) liveOf(tenant cell.TenantID) (Migration, bool) {
	m, ok := v.MigrationOf(tenant)
	return m, ok && !m.Done()
}

// Migrations returns the migrations whose Number is below before, the newest first; 0 for all.
func (v View) Migrations(before uint64) iter.Seq[Migration] {
	return above(v.db, tableMigrations, byAge, func(Migration) bool { return true }, newest(before-1))
}

// MigrationsOf is Migrations of those from or to a cell only.
func (v View) MigrationsOf(id cell.ID, before uint64) iter.Seq[Migration] {
	return func(yield func(Migration) bool) {
		for m := range v.Migrations(before) { // a few thousand at most
			if m.Names(id) && !yield(m) {
				return
			}
		}
	}
}

// LiveMigrations returns the migrations that have not ended, the oldest first.
func (v View) LiveMigrations() iter.Seq[Migration] {
	return above(v.db, tableMigrations, byLive, func(Migration) bool { return true }, "")
}

// LiveMigrationsCount returns how many have not ended.
func (v View) LiveMigrationsCount() int { return v.head.live }

// moves reports whether a live migration is from or to the cell.
func (v View) moves(id cell.ID) bool {
	for m := range v.LiveMigrations() {
		if m.Names(id) {
			return true
		}
	}
	return false
}

// MigrationExistsError is returned when something cannot be done to a tenant while it is moving.
type MigrationExistsError struct {
	Tenant cell.TenantID
	ID     cell.MigrationID // the one that is under way
	Source cell.ID
	Target cell.ID
}

func (e *MigrationExistsError) Error() string {
	return fmt.Sprintf("tenant %s is moving from %s to %s already, by migration %s: wait until it has ended, or abort, reverse or complete it",
		e.Tenant, e.Source, e.Target, e.ID)
}

func existsError(m Migration) *MigrationExistsError {
	return &MigrationExistsError{Tenant: m.Tenant, ID: m.ID, Source: m.Source, Target: m.Target}
}

// started reports whether c is the command that declared m. What an operator can change since is not compared.
func (m *Migration) started(c command.StartMigration) bool {
	options, asked := m.Options, c.Options.WithDefaults()
	options.BytesPerSecond = asked.BytesPerSecond
	return m.ID == c.ID && m.Tenant == c.Tenant && m.Source == c.Source && m.Target == c.Target && m.Reason == c.Reason && m.Actor == c.Actor &&
		options == asked && m.Order == c.Order && m.Groups[1] == c.Groups && m.Created == c.Time
}

func (s *State) startMigration(index uint64, c command.StartMigration) Result {
	v := s.View()
	if old, ok := v.Migration(c.ID); ok {
		if old.started(c) { // the same command again, as of a tenant
			return Result{Migration: old, Repeated: true}
		}
		return Result{Refused: &ExistsError{KindMigration, string(c.ID)}}
	}
	t, ok := v.Tenant(c.Tenant)
	if !ok {
		return Result{Refused: &NotFoundError{KindTenant, string(c.Tenant)}}
	}
	if old, moving := v.liveOf(c.Tenant); moving {
		return Result{Refused: existsError(old)}
	}
	if s.head.live >= s.liveMax {
		return Result{Refused: &cell.LimitError{
			Limit: limitMigrations, Scope: cell.ScopeCell, Value: int64(s.head.live) + 1, Bound: int64(s.liveMax),
			Remedy: "wait until some have ended: only a few copy at a time",
		}}
	}
	homes := v.Homes(c.Tenant)
	if err := v.mayMove(t, homes, c); err != nil {
		return Result{Refused: err}
	}
	record, err := migrate.New(migrate.Declaration{
		ID: c.ID, Tenant: c.Tenant, Source: c.Source, Target: c.Target, Reason: c.Reason, Actor: c.Actor, Why: c.Why, Options: c.Options,
		Order: c.Order, Epochs: c.Expect, Now: s.head.clock,
	})
	if err != nil {
		return Result{Refused: err}
	}
	m := Migration{Record: record, Number: index, Groups: [2]uint64{homes[0].Groups, c.Groups}}
	s.put(tableMigrations, &m)
	s.head.migrations++
	s.head.live++
	return Result{Migration: m, Tenant: t}
}

// mayMove returns why the tenant, whose lanes are at home in homes, cannot begin to move.
func (v View) mayMove(t Tenant, homes [2]Assignment, c command.StartMigration) error {
	if _, ok := v.Cell(c.Source); !ok {
		return &NotFoundError{KindCell, string(c.Source)}
	}
	target, ok := v.Cell(c.Target)
	if !ok {
		return &NotFoundError{KindCell, string(c.Target)}
	}
	for i, a := range homes {
		switch {
		case a.Epoch != c.Expect[i]:
			return &StaleError{KindAssignment, string(c.Tenant), uint64(c.Expect[i]), uint64(a.Epoch)}
		case a.Cell != c.Source:
			return &cell.FieldError{
				Field: "source", Problem: fmt.Sprintf("is %s, and the tenant is at home in %q", c.Source, a.Cell), Remedy: "move it from where it is",
			}
		}
	}
	switch {
	case target.Phase != placement.PhaseOpen:
		return &PhaseError{c.Target, target.Phase, "move the tenant to an open cell"}
	case c.TargetGeneration != 0 && c.TargetGeneration != target.Generation:
		return &StaleError{KindCell, string(c.Target), c.TargetGeneration, target.Generation}
	}
	return mayHold(target, t, c.Groups)
}

func (s *State) advanceMigration(index uint64, c command.AdvanceMigration) Result {
	v := s.View()
	m, ok := v.Migration(c.ID)
	if !ok {
		return Result{Refused: &NotFoundError{KindMigration, string(c.ID)}}
	}
	if m.Generation != c.Expect {
		return Result{Migration: m, Refused: &StaleError{KindMigration, string(c.ID), c.Expect, m.Generation}}
	}
	e := c.Event
	e.Time = s.head.clock
	next, err := m.Apply(e)
	if err != nil {
		return Result{Migration: m, Refused: err}
	}
	if next.Generation == m.Generation {
		return Result{Migration: m, Repeated: true}
	}
	was := m.Record
	m.Record = next
	t := s.follow(index, was, m)
	if m.Done() {
		m.EndNumber = index
		s.head.live--
	}
	s.put(tableMigrations, &m)
	s.forgetMigrations()
	return Result{Migration: m, Tenant: t}
}

// follow makes the assignments of the tenant's lanes what the migration says now, and returns the tenant if that was a change. The tenant's epoch is
// never below a lane's, so that whatever is given out of its policy tells a later home from an earlier one.
func (s *State) follow(index uint64, was migrate.Record, m Migration) Tenant {
	var changed []Assignment
	lanes := s.View().Homes(m.Tenant)
	moved := false
	for i, l := range m.Lanes {
		before := was.Lanes[i]
		if l.Owner == before.Owner && l.Epoch == before.Epoch {
			continue
		}
		if !m.Names(l.Owner) || l.Epoch <= before.Epoch {
			panic(fmt.Sprintf("state: migration %s takes %v from %s at %d to %s at %d", m.ID, lanes[i].Lane, before.Owner, before.Epoch, l.Owner, l.Epoch))
		}
		a := &lanes[i]
		a.Epoch = l.Epoch
		if a.Cell != l.Owner {
			a.Cell, a.Since, a.Groups = l.Owner, s.head.clock, m.Groups[m.side(l.Owner)]
			moved = true
		}
		changed = append(changed, *a)
	}
	if len(changed) == 0 {
		return Tenant{}
	}
	s.putAssignments(m.Tenant, changed...)
	t, ok := s.View().Tenant(m.Tenant)
	if !ok {
		panic("state: a migration's tenant is missing: " + string(m.Tenant))
	}
	for _, a := range changed {
		t.Policy.Epoch = max(t.Policy.Epoch, a.Epoch)
	}
	t.Policy.Groups = lanes[cell.ClassInteractive.Index()].Groups
	s.put(tableTenants, &t)
	if moved && lanes[0].Cell == lanes[1].Cell {
		text := fmt.Sprintf("%s: %s\nmigration %s, from %s to %s, made %s its home", m.Tenant, m.Reason, m.ID, m.Source, m.Target, lanes[0].Cell)
		s.putDecision(decision{m.Tenant, text, s.head.clock, index})
	}
	return t
}

// forgetMigrations drops those that ended first beyond MigrationsEndedMax.
func (s *State) forgetMigrations() {
	for s.head.migrations-s.head.live > s.endedMax {
		for m := range above(s.View().db, tableMigrations, byEnd, func(Migration) bool { return true }, "") {
			s.dropMigration(m)
			break
		}
	}
}

func (s *State) dropMigration(m Migration) {
	s.drop(tableMigrations, &m)
	s.head.migrations--
}

func (s *State) forgetMigration(c command.ForgetMigration) Result {
	m, ok := s.View().Migration(c.ID)
	if !ok {
		return Result{Refused: &NotFoundError{KindMigration, string(c.ID)}}
	}
	if !m.Done() {
		return Result{Migration: m, Refused: &InUseError{
			KindMigration, string(c.ID), "tenant " + string(m.Tenant), "wait until it has ended, or abort, reverse or complete it",
		}}
	}
	s.dropMigration(m)
	return Result{Migration: m}
}

// measured notes what a tenant used in an hour in one of the cells that it is moving between, and returns what it used in both.
func (s *State) measured(m Migration, side int, h placement.HourSample) placement.Sample {
	m.used[side] = h
	s.put(tableMigrations, &m)
	all, other := h.Sample, m.used[1-side]
	if other.Hour == h.Hour {
		all.Average, all.P95 = all.Average.Add(other.Average), all.P95.Add(other.P95)
		all.Limited += other.Limited
	}
	return all
}
