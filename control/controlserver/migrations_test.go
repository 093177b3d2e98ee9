package controlserver

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/migrate"
	"github.com/fairlead/fairlead/placement"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/rejection"
)

// moves makes cells east and west with tenant ash in east, and returns what drives migrations there.
func (c *cluster) moves() *Moves {
	c.t.Helper()
	c.cellWith("east", 100, nil)
	c.tenantIn("ash", nil)
	c.cellWith("west", 100, nil)
	return &Moves{server: c.Server, reign: c.reign.Load()}
}

func (c *cluster) startMove(tenant, target string) *fairleadv1.Migration {
	c.t.Helper()
	a, err := c.Migrations().StartMigration(c.ctx, &fairleadv1.StartMigrationRequest{Tenant: tenant, Target: target})
	if err != nil || !a.GetCreated() {
		c.t.Fatalf("%v, %v", a, err)
	}
	return a.GetMigration()
}

// drive takes a migration through events, as they would come.
func (c *cluster) drive(m *Moves, id string, kinds ...migrate.Event) migrate.Record {
	c.t.Helper()
	r, _ := m.Record(cell.MigrationID(id))
	for _, e := range kinds {
		e.Attempt, e.Gates = r.Attempt, passed()
		after, err := m.Propose(c.ctx, r.ID, r.Generation, e)
		if err != nil {
			c.t.Fatalf("%v in %v: %v", e.Kind, r.State, err)
		}
		r = after
	}
	synctest.Wait()
	return r
}

// toRamping are the events up to where classes are switched.
func toRamping() []migrate.Event { return slices.Repeat([]migrate.Event{{Kind: migrate.EventPass}}, 7) }

// switched are the events of one class.
func switched(class cell.Class) []migrate.Event {
	return []migrate.Event{
		{Kind: migrate.EventFence, Class: class},
		{Kind: migrate.EventCommit, Class: class, Position: 5, Change: 3, Digest: [32]byte{1}},
		{Kind: migrate.EventActivate, Class: class},
	}
}

// A migration is started once however often that is asked for, and a tenant has one at a time.
func TestStartMigration(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.moves()
		first := c.startMove("ash", "west")
		if first.GetSource() != "east" || first.GetTarget() != "west" || first.GetState() != fairleadv1.MigrationState_MIGRATION_STATE_DECLARED ||
			first.GetReason() != "operator" || first.GetActor() != "key_ops" || len(first.GetLanes()) != 2 || len(first.GetEvents()) != 1 ||
			first.GetLanes()[0].GetClass() != fairleadv1.Class_CLASS_BATCH || first.GetOptions().GetPauseMax().AsDuration() != 2*time.Second {
			t.Errorf("%v", first)
		}
		for _, target := range []string{"west", ""} {
			again, err := c.Migrations().StartMigration(c.ctx, &fairleadv1.StartMigrationRequest{Tenant: "ash", Target: target})
			if err != nil || again.GetCreated() || again.GetMigration().GetId() != first.GetId() {
				t.Errorf("%v, %v", again, err)
			}
		}
		c.cellWith("north", 100, nil)
		for name, ask := range map[string]struct {
			req    *fairleadv1.StartMigrationRequest
			reason string
			field  string
		}{
			"elsewhere":   {&fairleadv1.StartMigrationRequest{Tenant: "ash", Target: "north"}, "TENANT_MOVES", "tenant"},
			"no tenant":   {&fairleadv1.StartMigrationRequest{Tenant: "elm", Target: "west"}, "NOT_FOUND", "tenant"},
			"no cell":     {&fairleadv1.StartMigrationRequest{Tenant: "oak", Target: "south"}, "NOT_FOUND", "cell"},
			"where it is": {&fairleadv1.StartMigrationRequest{Tenant: "oak", Target: "east"}, "BAD_FIELD", "target"},
			"too long": {&fairleadv1.StartMigrationRequest{Tenant: "oak", Target: "west", Options: &fairleadv1.MigrationOptions{
				PauseMax: durationpb.New(time.Minute),
			}}, "BAD_FIELD", "options.pause_max"},
		} {
			if ask.req.GetTenant() == "oak" {
				if _, ok := c.machine.View().Tenant("oak"); !ok {
					c.tenantIn("oak", &fairleadv1.PlacementRules{Cell: "east"})
				}
			}
			_, err := c.Migrations().StartMigration(c.ctx, ask.req)
			if r := rejection.From(err); r.GetReason() != ask.reason || r.GetField() != ask.field {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := c.Migrations().StartMigration(c.ctx, &fairleadv1.StartMigrationRequest{Tenant: "oak"}); rejection.From(err).GetReason() != "NO_TARGET" {
			t.Error(err) // it may be in east only
		}
		byTenant, err := c.Migrations().GetMigration(c.ctx, &fairleadv1.GetMigrationRequest{Tenant: "ash"})
		byID, err2 := c.Migrations().GetMigration(c.ctx, &fairleadv1.GetMigrationRequest{Id: first.GetId()})
		if err != nil || err2 != nil || byTenant.GetMigration().GetId() != byID.GetMigration().GetId() {
			t.Errorf("%v, %v, %v, %v", byTenant, err, byID, err2)
		}
		if _, err := c.Migrations().GetMigration(c.ctx, &fairleadv1.GetMigrationRequest{Tenant: "oak"}); rejection.From(err).GetReason() != "NOT_FOUND" {
			t.Error(err)
		}
	})
}

// Migrations are listed page by page, the newest first.
func TestListMigrations(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		m := c.moves()
		var want []string
		for i := range 5 {
			tenant := fmt.Sprint("t", i)
			c.tenantIn(tenant, &fairleadv1.PlacementRules{})
			to := "west"
			if home, _ := homeOf(c.machine.View(), cell.TenantID(tenant)); home == "west" {
				to = "east"
			}
			want = slices.Insert(want, 0, c.startMove(tenant, to).GetId())
		}
		var got []string
		for token := ""; ; {
			l, err := c.Migrations().ListMigrations(c.ctx, &fairleadv1.ListMigrationsRequest{PageSize: 2, PageToken: token, Cell: "west"})
			if err != nil {
				t.Fatal(err)
			}
			for _, of := range l.GetMigrations() {
				got = append(got, of.GetId())
				if len(of.GetEvents()) != 0 {
					t.Error("a list has events")
				}
			}
			if token = l.GetNextPageToken(); token == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v, not %v", got, want)
		}
		c.drive(m, want[0], migrate.Event{Kind: migrate.EventAbort}, migrate.Event{Kind: migrate.EventEnd})
		l, err := c.Migrations().ListMigrations(c.ctx, &fairleadv1.ListMigrationsRequest{Live: true})
		if err != nil || len(l.GetMigrations()) != 4 || len(m.Live()) != 4 {
			t.Errorf("%v, %v", l, err)
		}
		if _, err := c.Migrations().ListMigrations(c.ctx, &fairleadv1.ListMigrationsRequest{PageToken: "x"}); rejection.From(err).GetField() != "page_token" {
			t.Error(err)
		}
	})
}

// Whatever an operator asks for is done once, or refused with what to do instead; a dry run does nothing.
func TestControlMigration(t *testing.T) {
	const (
		pause    = fairleadv1.MigrationAction_MIGRATION_ACTION_PAUSE
		resume   = fairleadv1.MigrationAction_MIGRATION_ACTION_RESUME
		throttle = fairleadv1.MigrationAction_MIGRATION_ACTION_THROTTLE
		allow    = fairleadv1.MigrationAction_MIGRATION_ACTION_SWITCH
		abort    = fairleadv1.MigrationAction_MIGRATION_ACTION_ABORT
		reverse  = fairleadv1.MigrationAction_MIGRATION_ACTION_REVERSE
		complete = fairleadv1.MigrationAction_MIGRATION_ACTION_COMPLETE
	)
	inCluster(t, func(t *testing.T, c *cluster) {
		m := c.moves()
		id := c.startMove("ash", "west").GetId()
		ask := func(action fairleadv1.MigrationAction, dry bool) (*fairleadv1.ControlMigrationResponse, *fairleadv1.Rejection) {
			t.Helper()
			before := c.machine.View().Index()
			a, err := c.Migrations().ControlMigration(c.ctx, &fairleadv1.ControlMigrationRequest{
				Id: id, Action: action, Why: "because", BytesPerSecond: 1 << 20, DryRun: dry,
			})
			if dry && c.machine.View().Index() != before {
				t.Errorf("a dry run of %v has changed something", action)
			}
			if err != nil && rejection.From(err) == nil {
				t.Error(err)
			}
			if err == nil && a.GetText() == "" {
				t.Errorf("%v does not say what it does", action)
			}
			return a, rejection.From(err)
		}
		for range 2 { // the second changes nothing
			if a, _ := ask(pause, false); !strings.HasPrefix(a.GetMigration().GetHeld(), "paused by the operator: because") {
				t.Errorf("%v", a)
			}
		}
		for range 2 {
			if a, _ := ask(resume, false); a.GetMigration().GetHeld() != "" {
				t.Errorf("%v", a)
			}
		}
		if a, _ := ask(throttle, false); a.GetMigration().GetOptions().GetBytesPerSecond() != 1<<20 {
			t.Errorf("%v", a)
		}
		for action, word := range map[fairleadv1.MigrationAction]string{reverse: "abort it", complete: "once every class"} {
			if _, r := ask(action, false); r.GetReason() != "MIGRATION_STATE" || !strings.Contains(r.GetMessage(), word) {
				t.Errorf("%v: %v", action, r)
			}
		}
		if a, r := ask(abort, true); r != nil || a.GetMigration().GetState() != fairleadv1.MigrationState_MIGRATION_STATE_DECLARED {
			t.Errorf("%v, %v", a, r)
		}
		if a, _ := ask(allow, false); !strings.Contains(a.GetText(), "batch") { // the next in order
			t.Errorf("%v", a)
		}
		c.drive(m, id, toRamping()...)
		c.drive(m, id, switched(cell.ClassBatch)...)
		if _, r := ask(abort, false); r.GetReason() != "PAST_NO_RETURN" || !strings.Contains(r.GetMessage(), "reverse it") {
			t.Errorf("%v", r)
		}
		for range 2 {
			if a, r := ask(reverse, false); r != nil || a.GetMigration().GetState() != fairleadv1.MigrationState_MIGRATION_STATE_REVERSING {
				t.Errorf("%v, %v", a, r)
			}
		}
		if _, r := ask(complete, false); r.GetReason() != "MIGRATION_STATE" {
			t.Errorf("%v", r)
		}
		if _, r := ask(fairleadv1.MigrationAction_MIGRATION_ACTION_UNSPECIFIED, false); r.GetField() != "action" {
			t.Errorf("%v", r)
		}
	})
}

// While a tenant's classes are apart routes say so, each cell is told its part of what the tenant is promised, and both are told of a change.
func TestApart(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		m := c.moves()
		if _, err := c.UpdateTenant(c.ctx, &fairleadv1.UpdateTenantRequest{Id: "ash", Limit: new(8.0), ReservationBatch: new(2.0)}); err != nil {
			t.Fatal(err)
		}
		east, west := c.dialer.cell("east"), c.dialer.cell("west")
		id := c.startMove("ash", "west").GetId()
		c.drive(m, id, toRamping()[:2]...)
		c.after(2 * time.Second)
		if west.tenant("ash") != nil {
			t.Error("the target is told of a tenant before its lanes are staged: that would open them")
		}
		c.drive(m, id, toRamping()[2:]...)
		c.drive(m, id, switched(cell.ClassBatch)...)
		c.after(2 * time.Second)
		at, on := east.tenant("ash"), west.tenant("ash")
		if at.GetLimit()+on.GetLimit() > 8_000_000 || at.GetLimit() == 0 || on.GetLimit() == 0 {
			t.Errorf("limits of %d and %d", at.GetLimit(), on.GetLimit())
		}
		if at.GetReservationBatch() != 0 || on.GetReservationBatch() != 2_000_000 {
			t.Errorf("%v, %v", at, on)
		}
		table := all(t, c.machine)
		homes := c.machine.View().Homes("ash")
		if want := fmt.Sprintf("east %d, west %d", homes[0].Epoch, homes[1].Epoch); table.lanes["ash"] != want || homes[0].Epoch >= homes[1].Epoch {
			t.Errorf("%q, not %q", table.lanes["ash"], want)
		}
		show, err := c.Placement().ShowPlacement(c.ctx, &fairleadv1.ShowPlacementRequest{Cell: "west"})
		if err != nil || len(show.GetAssignments()) != 2 || show.GetAssignments()[0].GetCell() != "east" || show.GetAssignments()[1].GetCell() != "west" {
			t.Errorf("%v, %v", show, err)
		}
		if _, err := c.UpdateTenant(c.ctx, &fairleadv1.UpdateTenantRequest{Id: "ash", Weight: new(7.0)}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if east.tenant("ash").GetWeight() != 7000 || west.tenant("ash").GetWeight() != 7000 {
			t.Errorf("%v, %v", east.tenant("ash"), west.tenant("ash"))
		}
		c.drive(m, id, migrate.Event{Kind: migrate.EventObserved, Class: cell.ClassBatch})
		c.drive(m, id, switched(cell.ClassInteractive)...)
		c.drive(m, id, migrate.Event{Kind: migrate.EventObserved, Class: cell.ClassInteractive}, migrate.Event{Kind: migrate.EventPass})
		c.after(2 * time.Second)
		if on := west.tenant("ash"); on.GetLimit() != 8_000_000 || east.tenant("ash").GetReservationBatch() != 0 {
			t.Errorf("%v, %v", on, east.tenant("ash"))
		}
		calls := east.now().calls
		c.drive(m, id, migrate.Event{Kind: migrate.EventComplete}, migrate.Event{Kind: migrate.EventEnd})
		if _, err := c.UpdateTenant(c.ctx, &fairleadv1.UpdateTenantRequest{Id: "ash", Weight: new(9.0)}); err != nil {
			t.Fatal(err)
		}
		c.after(2 * time.Second)
		if east.now().calls != calls {
			t.Error("the source is told of a tenant that has left: that would open its lanes")
		}
	})
}

// A watcher hears of a lane's new epoch at once, however much else is gathered.
func TestSwitchIsPushedAtOnce(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		m := c.moves()
		id := c.startMove("ash", "west").GetId()
		c.drive(m, id, toRamping()...)
		to := newTable()
		var at time.Time
		w := watch{
			routes: c.routes, current: func(context.Context) error { return nil }, leads: func() bool { return true },
			send: func(msg *fairleadv1.WatchRoutesResponse) error { at = time.Now(); return to.take(msg) },
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = w.run(ctx) }() // it ends with ctx
		defer func() { cancel(); <-done }()
		synctest.Wait()
		for _, e := range switched(cell.ClassBatch)[:2] {
			before := to.lanes["ash"]
			began := time.Now()
			c.drive(m, id, e)
			synctest.Wait()
			if to.lanes["ash"] == before || at.Sub(began) > 0 {
				t.Errorf("%v is told after %v: %q", e.Kind, at.Sub(began), to.lanes["ash"])
			}
		}
	})
}

// Whoever drives migrations does so while this replica leads, and no longer.
func TestDriveEndsWithTheReign(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		old := c.moves()
		id := c.startMove("ash", "west").GetId()
		r, _ := old.Record(cell.MigrationID(id))
		c.group.follow()
		synctest.Wait()
		if _, err := old.Propose(c.ctx, r.ID, r.Generation, migrate.Event{Kind: migrate.EventPass, Attempt: 1, Gates: passed()}); err == nil {
			t.Error("proposed without leading")
		}
		if _, err := c.Migrations().StartMigration(c.ctx, &fairleadv1.StartMigrationRequest{Tenant: "ash"}); rejection.From(err).GetReason() != "NOT_APPLIED" {
			t.Error(err)
		}
		c.group.lead()
		synctest.Wait()
		if _, err := old.Propose(c.ctx, r.ID, r.Generation, migrate.Event{Kind: migrate.EventPass, Attempt: 1, Gates: passed()}); err == nil {
			t.Error("proposed in another reign")
		}
		if _, err := (&Moves{c.Server, c.reign.Load()}).Propose(c.ctx, r.ID, r.Generation, migrate.Event{
			Kind: migrate.EventPass, Attempt: 1, Gates: passed(),
		}); err != nil {
			t.Error(err)
		}
	})
}

// An evacuation begins the migrations of whom the cell holds something of, and a plan that is applied does; both say so as before.
func TestEvacuationMigrates(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		m := c.moves()
		east := c.dialer.cell("east")
		east.set(func() { east.use["ash"] = &fairleadv1.TenantUse{Tenant: "ash", Jobs: 1, Bytes: 10} })
		if _, err := c.CellService().EvacuateCell(c.ctx, &fairleadv1.EvacuateCellRequest{Name: "east", DryRun: true}); err != nil || len(m.Live()) != 0 {
			t.Errorf("%v, and %d migrations", err, len(m.Live()))
		}
		for range 2 {
			a, err := c.CellService().EvacuateCell(c.ctx, &fairleadv1.EvacuateCellRequest{Name: "east"})
			if live := m.Live(); err != nil || len(live) != 1 || live[0].Tenant != "ash" || live[0].Target != "west" || live[0].Reason != "evacuate" {
				t.Errorf("%v, %v: %+v", a, err, live)
			}
		}
		if home, _ := c.machine.View().Cell("east"); !home.Evacuating {
			t.Error("the cell is not marked")
		}
	})
}

// The target has room when it would be filled to no more than a part of every resource that it was tested in: of less before the tenant comes than while it is
// observed there. One that is observed is taken back for others only.
func TestCapacityGate(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		m := c.moves()
		c.cellWith("small", 3, nil)
		comes, observed := migrate.Record{Tenant: "ash", Target: "small"}, migrate.Record{Tenant: "ash", Target: "small"}
		observed.Lanes[1].Phase = migrate.Observing
		ash := func(need float64) {
			if _, err := c.UpdateTenant(c.ctx, &fairleadv1.UpdateTenantRequest{Id: "ash", Placement: &fairleadv1.PlacementRules{ComputeMin: need}}); err != nil {
				t.Fatal(err)
			}
		}
		check := func(wants map[float64][2]migrate.Verdict) {
			for need, want := range wants {
				ash(need)
				for i, r := range []migrate.Record{comes, observed} {
					g := capacityGate(c.machine.View(), c.freshSnapshot(m.reign, c.machine.View()), &r)
					if g.Verdict != want[i] || g.Evidence == "" {
						t.Errorf("%v of 3, observing %v: %+v", need, observing(&r), g)
					}
				}
			}
		}
		check(map[float64][2]migrate.Verdict{
			1: {migrate.Pass, migrate.Pass}, 1.5: {migrate.Pass, migrate.Pass}, 1.7: {migrate.Fail, migrate.Pass}, 2.39: {migrate.Fail, migrate.Pass},
			2.41: {migrate.Fail, migrate.Warn}, 3: {migrate.Fail, migrate.Warn},
		})
		untested := placement.NewSnapshot(placement.DefaultConfig(), 1, nil, nil, nil)
		if g := capacityGate(c.machine.View(), untested, &comes); g.Verdict != migrate.Fail {
			t.Errorf("%+v", g)
		}
		if g := capacityGate(c.machine.View(), untested, &observed); g.Verdict != migrate.Warn {
			t.Errorf("what is not known takes a tenant back: %+v", g)
		}
		ash(1)
		c.tenantIn("elm", &fairleadv1.PlacementRules{Cell: "small", ComputeMin: 0.3})
		check(map[float64][2]migrate.Verdict{
			1: {migrate.Pass, migrate.Pass}, 2: {migrate.Fail, migrate.Pass}, 2.2: {migrate.Fail, migrate.Fail}, 3: {migrate.Fail, migrate.Fail},
		})
		ash(1)
		names := map[string]migrate.Verdict{}
		r, _ := migrate.New(migrate.Declaration{
			ID: "m", Tenant: "ash", Source: "east", Target: "west", Reason: "operator", Options: migrate.DefaultOptions(), Epochs: [2]cell.Epoch{1, 1}, Now: 1,
		})
		for _, g := range m.Gates(c.ctx, r) {
			names[g.Name] = g.Verdict
		}
		if names[gateCapacity] != migrate.Pass || names[gateOpen] != migrate.Pass || names[gateHeard] != migrate.Pass {
			t.Errorf("%v", names)
		}
	})
}

// What differs between two lists of records is what a naive comparison finds.
func TestDifferences(t *testing.T) {
	records := rapid.Custom(func(t *rapid.T) []*fairleadv1.LaneRecord {
		of := rapid.MapOf(rapid.SampledFrom([]string{"a", "b", "c", "d"}), rapid.ByteMax(2)).Draw(t, "records")
		var out []*fairleadv1.LaneRecord
		for id, digest := range of { // order-free: differences sorts
			out = append(out, &fairleadv1.LaneRecord{Kind: "job", Id: id, Digest: []byte{digest}})
		}
		return out
	})
	rapid.Check(t, func(t *rapid.T) {
		source, target := records.Draw(t, "source"), records.Draw(t, "target")
		var want []string
		find := func(in []*fairleadv1.LaneRecord, id string) *fairleadv1.LaneRecord {
			for _, r := range in {
				if r.GetId() == id {
					return r
				}
			}
			return nil
		}
		for _, id := range []string{"a", "b", "c", "d"} {
			switch a, b := find(source, id), find(target, id); {
			case a == nil && b != nil:
				want = append(want, id+" missing at source")
			case a != nil && b == nil:
				want = append(want, id+" missing at target")
			case a != nil && string(a.GetDigest()) != string(b.GetDigest()):
				want = append(want, id+" differs")
			}
		}
		var got []string
		for _, d := range differences(source, target) {
			got = append(got, d.GetId()+" "+d.GetProblem())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v, not %v", got, want)
		}
	})
}
