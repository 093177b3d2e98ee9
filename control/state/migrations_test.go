package state

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/migrate"
	"github.com/fairlead/fairlead/placement"
)

func starting(id cell.MigrationID, tenant cell.TenantID, source, target cell.ID, epoch cell.Epoch) command.StartMigration {
	return command.StartMigration{
		ID: id, Tenant: tenant, Source: source, Target: target, Reason: "operator", Actor: "key_1", Options: migrate.DefaultOptions(),
		Order: migrate.DefaultOrder(), Expect: [2]cell.Epoch{epoch, epoch}, Time: 3000,
	}
}

// moving is platform with an open cell us, to which the tenant a moves, by migration m1. The tenant old has moved there already, by m0.
func moving(t *testing.T) *State {
	t.Helper()
	s := platform(t)
	for i, c := range []command.Command{
		command.SetCellPhase{Cell: "us", Phase: placement.PhaseOpen, Time: 2500},
		command.CreateTenant{Tenant: "old", Time: 2600},
		command.Assign{Tenant: "old", Cell: "eu", Groups: 3, Time: 2700},
		starting("m0", "old", "eu", "us", 2),
	} {
		if r := apply(t, s, 300+uint64(i), c); r.Refused != nil {
			t.Fatal(r.Refused)
		}
	}
	run(t, s, "m0", migrate.Released)
	start := starting("m1", "a", "eu", "us", 2)
	start.TargetGeneration, start.Why, start.Time = 4, "it grew", s.View().Clock()+10
	if r := apply(t, s, s.Index()+1, command.Audited{Actor: "key_1", Command: start}); r.Refused != nil {
		t.Fatal(r.Refused)
	}
	return s
}

// step applies an event of a kind that a class may have, or none.
func step(t *testing.T, s *State, id cell.MigrationID, k migrate.Kind, class cell.Class) Result {
	t.Helper()
	m, _ := s.View().Migration(id)
	for _, e := range possible(m.Record, s.View().Clock()+10) {
		if e.Kind == k && e.Class == class {
			r := apply(t, s, s.Index()+1, command.AdvanceMigration{ID: id, Expect: m.Generation, Event: e})
			if r.Refused != nil {
				t.Fatal(r.Refused)
			}
			return r
		}
	}
	t.Fatalf("%v of %v is not possible in %+v", k, class, m)
	return Result{}
}

// run goes the straight way to a state.
func run(t *testing.T, s *State, id cell.MigrationID, to migrate.State) {
	t.Helper()
	for {
		m, _ := s.View().Migration(id)
		if m.State == to {
			return
		}
		onward := slices.DeleteFunc(possible(m.Record, s.View().Clock()+10), func(e migrate.Event) bool { return !forward(e.Kind) })
		if len(onward) == 0 {
			t.Fatalf("there is no way from %v to %v", m.State, to)
		}
		step(t, s, id, onward[0].Kind, onward[0].Class)
	}
}

// Every command about migrations, and every other one that a migration refuses, while a tenant moves.
func TestMigrationByCommand(t *testing.T) {
	start := func(tenant cell.TenantID, f func(*command.StartMigration)) command.Command {
		c := starting("m2", tenant, "eu", "us", 2)
		f(&c)
		return c
	}
	plain := func(*command.StartMigration) {}
	now := moving(t).View()
	declared, _ := now.Migration("m1")
	ended, _ := now.Migration("m0")
	back := func(c *command.StartMigration) {
		homes := now.Homes("old")
		c.Source, c.Target, c.Expect, c.Groups = "us", "eu", [2]cell.Epoch{homes[0].Epoch, homes[1].Epoch}, 1
	}
	again := func(f func(*command.StartMigration)) command.Command {
		c := starting("m1", "a", "eu", "us", 2)
		c.Why, c.TargetGeneration, c.Time = "it grew", 4, declared.Created
		f(&c)
		return c
	}
	event := func(f func(*command.AdvanceMigration)) command.Command {
		c := command.AdvanceMigration{ID: "m1", Expect: 1, Event: migrate.Event{
			Kind: migrate.EventPass, Attempt: 1, Time: 4000, Gates: []migrate.Gate{{Name: "valid", Verdict: migrate.Pass}},
		}}
		f(&c)
		return c
	}
	for name, c := range map[string]struct {
		command command.Command
		want    string // as word says
		says    string // what the refusal names
	}{
		"start":                       {start("acme", func(c *command.StartMigration) { c.Target = "eu2" }), "missing", "cell \"eu2\""},
		"start, residency":            {start("acme", plain), "bad", "may be in eu only"},
		"start, nobody":               {start("zz", plain), "missing", "tenant \"zz\""},
		"start, no source":            {start("acme", func(c *command.StartMigration) { c.Source = "ap" }), "missing", "cell \"ap\""},
		"start, from elsewhere":       {start("acme", func(c *command.StartMigration) { c.Source, c.Target = "us", "eu" }), "bad", "at home in \"eu\""},
		"start, at home nowhere":      {start("b", func(c *command.StartMigration) { c.Expect = [2]cell.Epoch{} }), "bad", "at home in \"\""},
		"start, stale":                {start("acme", func(c *command.StartMigration) { c.Expect[1] = 1 }), "stale", "assignment of acme"},
		"start, back":                 {start("old", back), "ok", ""},
		"start, stale cell":           {start("old", func(c *command.StartMigration) { back(c); c.TargetGeneration = 1 }), "stale", "cell of eu"},
		"start, no hand":              {start("old", func(c *command.StartMigration) { back(c); c.Groups = 0 }), "bad", "groups"},
		"start, options":              {start("old", func(c *command.StartMigration) { back(c); c.Options.PauseMax = 1 }), "bad", "options.pause_max"},
		"start, forming":              {start("acme", func(c *command.StartMigration) { c.Target = "new" }), "phase", "new is forming"},
		"start, before it moved":      {start("old", plain), "stale", "assignment of old"},
		"start, moving":               {start("a", plain), "moving", "m1"},
		"start, again":                {again(func(*command.StartMigration) {}), "same", ""},
		"start, another of the id":    {again(func(c *command.StartMigration) { c.Time++ }), "exists", "m1"},
		"start, another's id":         {again(func(c *command.StartMigration) { c.Tenant = "acme" }), "exists", "m1"},
		"event":                       {event(func(*command.AdvanceMigration) {}), "ok", ""},
		"event, no migration":         {event(func(c *command.AdvanceMigration) { c.ID = "m9" }), "missing", "m9"},
		"event, stale":                {event(func(c *command.AdvanceMigration) { c.Expect = 2 }), "stale", "migration of m1 is at 1"},
		"event, attempt":              {event(func(c *command.AdvanceMigration) { c.Event.Attempt = 2 }), "attempt", ""},
		"event, not now":              {event(func(c *command.AdvanceMigration) { c.Event.Kind = migrate.EventComplete }), "transition", ""},
		"event, without a class":      {event(func(c *command.AdvanceMigration) { c.Event.Kind = migrate.EventFence }), "transition", ""},
		"event, ended":                {event(func(c *command.AdvanceMigration) { c.ID, c.Expect = "m0", ended.Generation }), "transition", "ended"},
		"forget":                      {command.ForgetMigration{ID: "m0", Time: 1}, "ok", ""},
		"forget, live":                {command.ForgetMigration{ID: "m1", Time: 1}, "in use", "tenant a"},
		"forget, none":                {command.ForgetMigration{ID: "m9", Time: 1}, "missing", "m9"},
		"assign while moving":         {command.Assign{Tenant: "a", Cell: "us", Expect: 2, Time: 4000}, "moving", "m1"},
		"assign, its old self":        {command.Assign{Tenant: "a", Cell: "eu", Groups: 5, Time: 1800}, "same", ""},
		"assign after moving":         {command.Assign{Tenant: "old", Cell: "eu", Expect: 5, Groups: 1, Time: 4000}, "ok", ""},
		"assign after moving, stale":  {command.Assign{Tenant: "old", Cell: "eu", Expect: 2, Groups: 1, Time: 4000}, "stale", "assignment of old"},
		"delete the source":           {command.DeleteCell{Cell: "eu", Time: 1}, "in use", "tenants"},
		"update of the tenant":        {command.UpdateTenant{Tenant: "a", Weight: new(cell.Weight(3)), Time: 1}, "ok", ""},
		"fewer groups of the source":  {command.UpdateCell{Cell: "eu", Groups: new(4), Time: 1}, "bad", "moving"},
		"cordon the target":           {command.SetCellPhase{Cell: "us", Phase: placement.PhaseCordoned, Time: 1}, "ok", ""},
		"evacuate":                    {command.SetCellPhase{Cell: "us", Phase: placement.PhaseCordoned, Evacuate: true, Time: 1}, "ok", ""},
		"evacuate, open":              {command.SetCellPhase{Cell: "us", Phase: placement.PhaseOpen, Evacuate: true, Time: 1}, "bad", "phase"},
		"demand at the source":        {demandOf("eu", "a", 1), "ok", ""},
		"demand at the target":        {demandOf("us", "a", 1), "ok", ""},
		"demand where it moved from":  {demandOf("eu", "old", 1), "same", ""},
		"demand of one that is apart": {demandOf("us", "acme", 1), "same", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := moving(t)
			before := s.View()
			index := s.Index() + 1
			r := apply(t, s, index, c.command)
			if got := word(r); got != c.want || r.Refused != nil && !strings.Contains(r.Refused.Error(), c.says) {
				t.Fatalf("%s: %v, want %s", got, r.Refused, c.want)
			}
			if c.want == "ok" {
				return
			}
			after := s.View()
			if before.head.clock, before.head.index = after.head.clock, index; before.Hash() != after.Hash() {
				t.Error("what took no effect changed the state")
			}
		})
	}
}

func demandOf(id cell.ID, of cell.TenantID, compute cell.Rate) command.Command {
	load := placement.Load{Compute: compute, Jobs: 1}
	return command.RecordDemand{Cell: id, Hour: 400_010, Time: 1, Samples: []command.TenantSample{
		{Tenant: of, Sample: placement.Sample{Average: load, P95: load, Limited: 1}},
	}}
}

// Where a tenant's lanes are, at each step of the way there and of the way back: owners and epochs are the record's, and both cells know the tenant.
func TestLanesApart(t *testing.T) {
	s := moving(t)
	says := func(want string) {
		t.Helper()
		v := s.View()
		var said []string
		for _, a := range v.Homes("a") {
			said = append(said, fmt.Sprintf("%s@%d/%b", a.Cell, a.Epoch, a.Groups))
		}
		row, _ := v.Tenant("a")
		eu, _ := v.Cell("eu")
		us, _ := v.Cell("us")
		said = append(said, fmt.Sprintf("policy %d/%b, eu %d, us %d", row.Policy.Epoch, row.Policy.Groups, eu.Tenants, us.Tenants))
		if got := strings.Join(said, " "); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	const interactive, batch = cell.ClassInteractive, cell.ClassBatch
	says("eu@2/101 eu@2/101 policy 2/101, eu 2, us 1")
	run(t, s, "m1", migrate.Ramping)
	if r := step(t, s, "m1", migrate.EventFence, batch); r.Tenant.Policy.Epoch != 3 || r.Migration.Lanes[1].Phase != migrate.Fencing {
		t.Errorf("%+v", r)
	}
	says("eu@2/101 eu@3/101 policy 3/101, eu 2, us 1")
	step(t, s, "m1", migrate.EventUnfence, batch)
	says("eu@2/101 eu@4/101 policy 4/101, eu 2, us 1")
	step(t, s, "m1", migrate.EventFence, batch)
	step(t, s, "m1", migrate.EventCommit, batch)
	says("eu@2/101 us@6/0 policy 6/101, eu 2, us 2")
	apart := s.View()
	if r := step(t, s, "m1", migrate.EventActivate, batch); r.Tenant.Policy.Epoch != 0 {
		t.Errorf("an event that changes no lane returns %+v", r.Tenant)
	}
	step(t, s, "m1", migrate.EventObserved, batch)
	step(t, s, "m1", migrate.EventFence, interactive)
	step(t, s, "m1", migrate.EventCommit, interactive)
	says("us@5/0 us@6/0 policy 6/0, eu 1, us 2")
	if text, at := s.View().Decision("a"); !strings.Contains(text, "migration m1, from eu to us, made us its home") || at != s.View().Clock() {
		t.Errorf("%q at %d", text, at)
	}
	step(t, s, "m1", migrate.EventActivate, interactive)
	run(t, s, "m1", migrate.CutOver)
	if r := apply(t, s, s.Index()+1, command.DeleteCell{Cell: "eu", Time: 1}); word(r) != "in use" {
		t.Errorf("%+v", r)
	}
	step(t, s, "m1", migrate.EventReverse, 0)
	step(t, s, "m1", migrate.EventReverseFence, interactive)
	step(t, s, "m1", migrate.EventReverseCommit, interactive)
	says("eu@7/101 us@6/0 policy 7/101, eu 2, us 2")
	run(t, s, "m1", migrate.RolledBack)
	says("eu@7/101 eu@8/101 policy 8/101, eu 2, us 1")

	if of := apart.Homes("a"); of[0].Since != 1800 || of[1].Since <= 3000 {
		t.Errorf("the home of a lane is from when it came: %+v", of)
	}
	lanes := func(id cell.ID) (said []string) {
		for a := range apart.AssignmentsIn(id, "") {
			said = append(said, a.Lane.String())
		}
		return said
	}
	if got := lanes("us"); !slices.Equal(got, []string{"a/batch", "old/interactive", "old/batch"}) {
		t.Error(got)
	}
	if got := lanes("eu"); !slices.Equal(got, []string{"a/interactive", "acme/interactive", "acme/batch"}) {
		t.Error(got)
	}
	for id, want := range map[cell.ID]uint64{"eu": 5, "us": 0} {
		if p, ok := apart.PolicyIn("a", id); !ok || p.Groups != want || p.Epoch != 6 || !slices.Contains(apart.TenantsIn(id), "a") {
			t.Errorf("%s is told %+v", id, p)
		}
	}
}

// A cell knows a tenant from when it is to come until it is gone, and its hand there.
func TestWhoKnowsTheTenant(t *testing.T) {
	s := moving(t)
	knows := func(id cell.ID, tenant cell.TenantID) bool {
		p, ok := s.View().PolicyIn(tenant, id)
		if ok != slices.Contains(s.View().TenantsIn(id), tenant) || ok && p.Tenant != tenant {
			t.Errorf("%s of %s: %+v, %v", tenant, id, p, ok)
		}
		return ok
	}
	if !knows("eu", "a") || !knows("us", "a") || knows("eu", "old") || !knows("us", "old") || knows("us", "acme") || knows("eu", "b") || knows("", "b") {
		t.Error("the wrong cells know a tenant")
	}
	run(t, s, "m1", migrate.Released)
	if knows("eu", "a") || !knows("us", "a") {
		t.Error("the source knows the tenant that has left")
	}
	v := s.View()
	for _, c := range []struct {
		got  []Migration
		want []cell.MigrationID
	}{
		{slices.Collect(v.Migrations(0)), []cell.MigrationID{"m1", "m0"}},
		{slices.Collect(v.Migrations(slices.Collect(v.Migrations(0))[0].Number)), []cell.MigrationID{"m0"}},
		{slices.Collect(v.MigrationsOf("us", 0)), []cell.MigrationID{"m1", "m0"}},
		{slices.Collect(v.MigrationsOf("new", 0)), nil},
		{slices.Collect(v.LiveMigrations()), nil},
	} {
		var ids []cell.MigrationID
		for _, m := range c.got {
			ids = append(ids, m.ID)
		}
		if !slices.Equal(ids, c.want) {
			t.Errorf("%v, want %v", ids, c.want)
		}
	}
	for range v.Migrations(0) {
		break // iterators may be left
	}
	for range v.MigrationsOf("us", 0) {
		break
	}
	if m, ok := v.MigrationOf("acme"); ok {
		t.Errorf("%+v", m)
	}
}

// What a tenant uses while it is in two cells is the sum, whichever says it first, and as often as they say it.
func TestDemandWhileMoving(t *testing.T) {
	for _, order := range [][]cell.ID{{"eu", "us"}, {"us", "eu"}, {"eu", "us", "eu", "us"}} {
		s := moving(t)
		for _, id := range order {
			compute := cell.Rate(30)
			if id == "us" {
				compute = 12
			}
			if r := apply(t, s, s.Index()+1, demandOf(id, "a", compute)); r.Refused != nil || r.Recorded != 1 {
				t.Fatal(r)
			}
		}
		got := s.View().Profile("a").Hours[400_010%placement.HoursPerDay]
		if want := (placement.Load{Compute: 42, Jobs: 2}); got.P95 != want || got.Limited != 2 {
			t.Errorf("%v: %+v, want a p95 of %v", order, got, want)
		}
	}
}

// After a restore of control a migration goes on at epochs that nobody was told before.
func TestRestoredWhileMoving(t *testing.T) {
	s := moving(t)
	run(t, s, "m1", migrate.Ramping)
	step(t, s, "m1", migrate.EventFence, cell.ClassBatch)
	ended, _ := s.View().Migration("m0")
	before, _ := s.View().Migration("m1")
	if r := apply(t, s, s.Index()+1, command.Restored{Time: 9000}); r.Refused != nil {
		t.Fatal(r.Refused)
	}
	after, _ := s.View().Migration("m1")
	for i := range after.Lanes {
		if after.Lanes[i].Epoch != before.Lanes[i].Epoch+EpochsPerRestore {
			t.Errorf("lane %d is at %d after %d", i, after.Lanes[i].Epoch, before.Lanes[i].Epoch)
		}
	}
	if now, _ := s.View().Migration("m0"); !reflect.DeepEqual(now, ended) {
		t.Errorf("what has ended is changed: %+v", now)
	}
	step(t, s, "m1", migrate.EventCommit, cell.ClassBatch)
	run(t, s, "m1", migrate.Released)
}

// An operator's steps are in the audit; those of control are in the migration's notes only.
func TestMigrationAudit(t *testing.T) {
	s := moving(t)
	last := s.View().AuditBounds().Last
	m, _ := s.View().Migration("m1")
	audited := func(actor string, k migrate.Kind) AuditRecord {
		t.Helper()
		m, _ := s.View().Migration("m1")
		e := migrate.Event{Kind: k, Attempt: 1, Time: 5000, Actor: actor, Why: "because", Gates: []migrate.Gate{{Name: "valid", Verdict: migrate.Pass}}}
		c := command.AdvanceMigration{ID: "m1", Expect: m.Generation, Event: e}
		if r := apply(t, s, s.Index()+1, command.Audited{Actor: actor, Command: c}); r.Refused != nil {
			t.Fatal(r.Refused)
		}
		for r := range s.View().Audit(0) {
			return r
		}
		return AuditRecord{}
	}
	if r := audited(command.ActorControl, migrate.EventPass); r.Sequence != last || r.Action != "start-migration" || r.Subject != "m1" {
		t.Errorf("%+v", r)
	}
	if r := audited(command.ActorControl, migrate.EventHold); r.Sequence != last+1 || r.Detail != `event=hold attempt=1 why="because"` {
		t.Errorf("%+v", r)
	}
	if r := audited("key_1", migrate.EventAbort); r.Sequence != last+2 || r.Actor != "key_1" {
		t.Errorf("%+v", r)
	}
	if now, _ := s.View().Migration("m1"); len(now.Notes) != len(m.Notes)+3 {
		t.Errorf("%d notes after %d", len(now.Notes), len(m.Notes))
	}
}

// The time of an event is never before that of an earlier one, whatever its proposer's clock does.
func TestEventTimeNeverFalls(t *testing.T) {
	s := moving(t)
	m, _ := s.View().Migration("m1")
	r := apply(t, s, s.Index()+1, command.AdvanceMigration{ID: "m1", Expect: m.Generation, Event: migrate.Event{Kind: migrate.EventAbort, Attempt: 1, Time: 1}})
	if r.Refused != nil || r.Migration.Entered != s.View().Clock() {
		t.Errorf("%+v at clock %d", r.Migration, s.View().Clock())
	}
}

func TestMigrationsAreBounded(t *testing.T) {
	s := moving(t)
	if s.liveMax != MigrationsLiveMax || s.endedMax != MigrationsEndedMax {
		t.Fatal("the bounds are others than they say")
	}
	s.liveMax, s.endedMax = 9, 3
	next := func(c command.Command) Result { return s.Apply(s.Index()+1, c) }
	for i := range s.liveMax + 1 {
		tenant := cell.TenantID(fmt.Sprintf("t%d", i))
		next(command.CreateTenant{Tenant: tenant, Time: 4000})
		next(command.Assign{Tenant: tenant, Cell: "us", Time: 4000})
		c := starting(cell.MigrationID("x"+tenant), tenant, "us", "eu", 2)
		c.Groups = 1
		r := next(c)
		if i < s.liveMax-1 { // one is under way already
			if r.Refused != nil {
				t.Fatalf("%d: %v", i, r.Refused)
			}
			continue
		}
		if le, ok := errors.AsType[*cell.LimitError](r.Refused); !ok || le.Limit != "migrations_live_max" || le.Bound != 9 || le.Remedy == "" {
			t.Fatalf("one more: %v", r.Refused)
		}
	}
	if wrong := s.check(); len(wrong) > 0 {
		t.Fatal(wrong)
	}
	for i := range 4 {
		id := cell.MigrationID(fmt.Sprintf("xt%d", i))
		for _, k := range []migrate.Kind{migrate.EventAbort, migrate.EventEnd} {
			m, _ := s.View().Migration(id)
			if r := next(command.AdvanceMigration{ID: id, Expect: m.Generation, Event: migrate.Event{Kind: k, Attempt: 1, Time: 5000}}); r.Refused != nil {
				t.Fatal(r.Refused)
			}
		}
	}
	for id, want := range map[cell.MigrationID]bool{"m0": false, "xt0": false, "xt1": true, "xt2": true, "xt3": true, "m1": true} {
		if _, ok := s.View().Migration(id); ok != want {
			t.Errorf("%s is there: %v", id, ok)
		}
	}
	if wrong := s.check(); len(wrong) > 0 {
		t.Error(wrong)
	}
}

// switched is moving with lanes apart and some of everything that a record has.
func switched(t *testing.T) *State {
	t.Helper()
	s := moving(t)
	run(t, s, "m1", migrate.Ramping)
	step(t, s, "m1", migrate.EventProgress, 0)
	step(t, s, "m1", migrate.EventFence, cell.ClassBatch)
	step(t, s, "m1", migrate.EventUnfence, cell.ClassBatch)
	step(t, s, "m1", migrate.EventAllow, cell.ClassBatch)
	step(t, s, "m1", migrate.EventFence, cell.ClassBatch)
	step(t, s, "m1", migrate.EventCommit, cell.ClassBatch)
	step(t, s, "m1", migrate.EventHold, 0)
	apply(t, s, s.Index()+1, demandOf("eu", "a", 3))
	apply(t, s, s.Index()+1, demandOf("us", "a", 4))
	apply(t, s, s.Index()+1, command.SetCellPhase{Cell: "eu", Phase: placement.PhaseCordoned, Evacuate: true, Time: 5000})
	return s
}

// The snapshot in testdata, of a release that moves tenants, is on somebody's disk.
func TestGoldenSnapshotWithMigrations(t *testing.T) {
	path := filepath.Join("testdata", "snapshot-v1-migrations.hex")
	want := switched(t)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) && *rewrite {
		if err := os.WriteFile(path, []byte(hex.EncodeToString(snapshotOf(t, want.View()))+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data, err := hex.DecodeString(string(bytes.TrimSpace(text)))
	if err != nil {
		t.Fatal(err)
	}
	got, err := Restore(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(snapshotOf(t, got.View()), data) || got.View().Hash() != want.View().Hash() {
		t.Error("the restored state is another")
	}
	if wrong := got.check(); len(wrong) > 0 {
		t.Error(wrong)
	}
	step(t, got, "m1", migrate.EventActivate, cell.ClassBatch)
	step(t, got, "m1", migrate.EventResume, 0)
	run(t, got, "m1", migrate.Released)
}

// Every field of a record is in its snapshot: one that package migrate gets is not forgotten here.
func TestEveryFieldIsInTheSnapshot(t *testing.T) {
	m := Migration{used: [2]placement.HourSample{{}, {}}}
	m.Gates, m.Notes = []migrate.Gate{{}}, []migrate.Note{{}}
	fill(reflect.ValueOf(&m.Record).Elem(), 1)
	fill(reflect.ValueOf(&m.used[0]).Elem(), 100)
	fill(reflect.ValueOf(&m.used[1]).Elem(), 200)
	m.State, m.Number, m.EndNumber, m.Groups = migrate.Aborted, 7, 8, [2]uint64{9, 10}
	m.Tenant = "acme"
	s := platform(t)
	if err := s.restoreMigration(appendMigration(nil, m)); err != nil {
		t.Fatal(err)
	}
	if got, _ := s.View().Migration(m.ID); !reflect.DeepEqual(got, m) {
		t.Errorf("%+v becomes %+v", m, got)
	}
}

// fill sets everything in v to what is not zero, and to what is next to it.
func fill(v reflect.Value, n int) int {
	switch v.Kind() { //nolint:exhaustive // those that there are
	case reflect.Struct:
		for _, f := range v.Fields() {
			n = fill(f, n)
		}
	case reflect.Array, reflect.Slice:
		for i := range v.Len() {
			n = fill(v.Index(i), n)
		}
	case reflect.String:
		v.SetString(fmt.Sprintf("x%d", n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8:
		v.SetUint(uint64(n%2 + 1))
	case reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(n))
	default:
		v.SetInt(int64(n))
	}
	return n + 1
}

// Every cut and every flipped bit of a snapshot with migrations is refused or seen in the hash, as is whatever does not fit together.
func TestRestoreRefusesWithMigrations(t *testing.T) {
	s := switched(t)
	v := s.View()
	data, hash := snapshotOf(t, v), v.Hash()
	for i := 0; i < len(data); i += 8 { // its head and what it has of before have tests of their own
		if _, err := Restore(bytes.NewReader(data[:i])); !errors.Is(err, ErrSnapshot) {
			t.Errorf("cut off at %d: %v", i, err)
		}
		flipped := slices.Clone(data)
		flipped[i] ^= 1 << (i / 8 % 8)
		got, err := Restore(bytes.NewReader(flipped))
		if err == nil && got.View().Hash() == hash {
			t.Errorf("bit %d of byte %d is not seen", i/8%8, i)
		}
		if err != nil && !errors.Is(err, ErrSnapshot) {
			t.Errorf("bit %d of byte %d: %v", i/8%8, i, err)
		}
	}
	live, _ := v.Migration("m1")
	ended, _ := v.Migration("m0")
	with := func(m Migration, change func(*Migration)) []byte {
		change(&m)
		return appendMigration(nil, m)
	}
	fresh := func(m *Migration) { m.ID, m.Number = "m2", 1 }
	of := func(num protowire.Number, body []byte) []byte {
		return part(with(ended, func(m *Migration) { fresh(m); m.EndNumber = 1 }), num, body)
	}
	for name, body := range map[string][]byte{
		"live twice":         with(live, func(*Migration) {}),
		"ended twice":        with(ended, func(*Migration) {}),
		"no id":              with(ended, func(m *Migration) { fresh(m); m.ID, m.EndNumber = "", 1 }),
		"no tenant":          with(ended, func(m *Migration) { fresh(m); m.Tenant, m.EndNumber = "zz", 1 }),
		"no number":          with(ended, func(m *Migration) { fresh(m); m.Number, m.EndNumber = 0, 1 }),
		"another's number":   with(ended, func(m *Migration) { m.ID, m.EndNumber = "m2", 1 }),
		"another's end":      with(ended, func(m *Migration) { fresh(m) }),
		"no end":             with(ended, func(m *Migration) { fresh(m); m.EndNumber = 0 }),
		"moving twice":       with(live, fresh),
		"an end, not ended":  with(live, func(m *Migration) { fresh(m); m.EndNumber = 1 }),
		"another lane":       with(live, func(m *Migration) { fresh(m); m.Lanes[1].Owner = "eu" }),
		"another epoch":      with(live, func(m *Migration) { fresh(m); m.Lanes[0].Epoch++ }),
		"lanes elsewhere":    with(live, func(m *Migration) { fresh(m); m.Source = "new" }),
		"nobody at home":     with(live, func(m *Migration) { fresh(m); m.Tenant = "b" }),
		"later state":        with(ended, func(m *Migration) { fresh(m); m.State = 16 }),
		"later phase":        with(ended, func(m *Migration) { fresh(m); m.Lanes[0].Phase = 9 }),
		"later verdict":      with(ended, func(m *Migration) { fresh(m); m.Gates = []migrate.Gate{{Name: "g", Verdict: 4}} }),
		"later class":        with(ended, func(m *Migration) { fresh(m); m.Order[0] = 3 }),
		"later field":        number(with(ended, fresh), 99, 1),
		"later in options":   of(7, number(nil, 8, 1)),
		"priority":           of(7, number(nil, 7, 1<<40)),
		"later in lane":      of(14, number(nil, 16, 1)),
		"short digest":       of(15, text(nil, 6, "x")),
		"later in gate":      of(16, number(nil, 4, 1)),
		"later in progress":  of(17, number(nil, 10, 1)),
		"later in note":      of(21, number(nil, 7, 1)),
		"later in what used": of(26, number(nil, 9, 1)),
	} {
		again, err := Restore(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		if err := again.restoreMigration(body); !errors.Is(err, ErrSnapshot) {
			t.Errorf("%s: %v", name, err)
		}
	}
	again, err := Restore(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if err := again.restoreMigration(with(ended, func(m *Migration) { fresh(m); m.EndNumber = 1 })); err != nil {
		t.Errorf("one that fits is refused: %v", err)
	}
	counted := slices.Concat(recordOf(recordHead, number(nil, 1, snapshotVersion)), recordOf(recordEnd, number(nil, 10, 1)))
	if _, err := Restore(bytes.NewReader(counted)); !errors.Is(err, ErrSnapshot) {
		t.Errorf("migrations that are missing: %v", err)
	}
}

func recordOf(num protowire.Number, body []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), body)
}

// A cell that a tenant is moving to keeps what the tenant's hand was dealt of, and its record, as if the tenant were there.
func TestTargetIsKept(t *testing.T) {
	s := moving(t)
	homes := s.View().Homes("old")
	start := starting("m2", "old", "us", "ap", homes[0].Epoch)
	start.Expect[1], start.Groups = homes[1].Epoch, 8
	for _, c := range []command.Command{
		command.CreateCell{Cell: "ap", Kind: placement.KindPooled, Replicas: 1, Groups: 4, Hand: 1, Time: 4000},
		command.SetCellVoters{Cell: "ap", Voters: []command.Replica{{Name: "ap-a"}}, Generation: 1, Time: 4000},
		start,
	} {
		if r := apply(t, s, s.Index()+1, c); r.Refused != nil {
			t.Fatal(r.Refused)
		}
	}
	fewer := command.UpdateCell{Cell: "ap", Groups: new(3), Time: 4000}
	if r := apply(t, s, s.Index()+1, fewer); word(r) != "bad" || !strings.Contains(r.Refused.Error(), "worker_groups") {
		t.Errorf("%+v", r)
	}
	gone := command.DeleteCell{Cell: "ap", Time: 4000}
	if r := apply(t, s, s.Index()+1, gone); word(r) != "in use" || !strings.Contains(r.Refused.Error(), "migration m2") {
		t.Errorf("%+v", r)
	}
	step(t, s, "m2", migrate.EventAbort, 0)
	step(t, s, "m2", migrate.EventEnd, 0)
	for _, c := range []command.Command{fewer, gone} {
		if r := apply(t, s, s.Index()+1, c); r.Refused != nil {
			t.Error(r.Refused)
		}
	}
	if m, ok := s.View().Migration("m2"); !ok || m.Target != "ap" {
		t.Errorf("what has ended is forgotten with its target: %+v", m)
	}
	if _, err := Restore(bytes.NewReader(snapshotOf(t, s.View()))); err != nil {
		t.Error(err)
	}
}

// An assignment is decided on both lanes: a fence that was given up has raised the epoch of one.
func TestAssignAfterAbort(t *testing.T) {
	s := moving(t)
	run(t, s, "m1", migrate.Ramping)
	step(t, s, "m1", migrate.EventFence, cell.ClassBatch)
	step(t, s, "m1", migrate.EventAbort, 0)
	step(t, s, "m1", migrate.EventEnd, 0)
	homes := s.View().Homes("a")
	if homes[0].Epoch >= homes[1].Epoch {
		t.Fatalf("%+v", homes)
	}
	c := command.Assign{Tenant: "a", Cell: "us", Expect: homes[0].Epoch, Time: 5000}
	if r := apply(t, s, s.Index()+1, c); word(r) != "stale" {
		t.Errorf("%+v", r)
	}
	c.Expect = homes[1].Epoch
	if r := apply(t, s, s.Index()+1, c); r.Refused != nil || r.Assignment.Epoch != homes[1].Epoch+1 || s.View().Homes("a")[1].Epoch != r.Assignment.Epoch {
		t.Errorf("%+v", r)
	}
}

// The mark of an evacuation stays until the cell is open again.
func TestEvacuationIsMarked(t *testing.T) {
	s := moving(t)
	for _, c := range []struct {
		phase    placement.Phase
		evacuate bool
		want     bool
	}{
		{placement.PhaseCordoned, false, false},
		{placement.PhaseCordoned, true, true},
		{placement.PhaseDraining, false, true},
		{placement.PhaseCordoned, false, true},
		{placement.PhaseOpen, false, false},
		{placement.PhaseCordoned, false, false},
	} {
		r := apply(t, s, s.Index()+1, command.SetCellPhase{Cell: "eu", Phase: c.phase, Evacuate: c.evacuate, Time: 5000})
		if r.Refused != nil || r.Repeated || r.Cell.Evacuating != c.want {
			t.Errorf("%v, %v: %+v", c.phase, c.evacuate, r)
		}
	}
}
