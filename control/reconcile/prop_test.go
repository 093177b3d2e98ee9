package reconcile

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/control/state"
	"github.com/fairlead/fairlead/migrate"
	"github.com/fairlead/fairlead/placement"
)

// event changes the cluster in one of the ways that an operator, a machine or a network can.
func event(t *rapid.T, c *cluster) {
	id := rapid.SampledFrom([]cell.ID{"w", "x", "y"}).Draw(t, "cell")
	name := command.AgentName(string(id) + rapid.SampledFrom([]string{"1", "2", "3", "4"}).Draw(t, "agent"))
	switch rapid.IntRange(0, 11).Draw(t, "event") {
	case 0:
		_ = c.try(command.CreateCell{
			Cell: id, Kind: placement.KindPooled, Replicas: rapid.SampledFrom([]int{3, 1}).Draw(t, "replicas"),
			Capacity: placement.Load{Compute: 50 * cell.Unit}, Time: c.now,
		})
	case 1:
		if _, ok := c.view().Agent(name); !ok {
			c.agent(name, id)
		}
	case 2:
		c.pass(rapid.SampledFrom([]time.Duration{time.Second, 3 * time.Second, 20 * time.Second, 2 * time.Minute}).Draw(t, "time"))
	case 3:
		delete(c.up, name)
	case 4:
		if row, ok := c.view().Agent(name); ok { // with its log, or without
			open := row.LogOpen && rapid.IntRange(0, 3).Draw(t, "disk") > 0
			c.up[name] = Seen{LogOpen: open, Leader: open && rapid.Bool().Draw(t, "leads"), Term: uint64(rapid.IntRange(1, 5).Draw(t, "term"))}
			c.hear(name)
		}
	case 5:
		id := cell.TenantID(fmt.Sprintf("t%d", rapid.IntRange(0, 8).Draw(t, "tenant")))
		rules := placement.Rules{Cell: cell.ID(rapid.SampledFrom([]string{"", "", "x"}).Draw(t, "only"))}
		_ = c.try(command.CreateTenant{Tenant: id, Rules: rules, Time: c.now})
	case 6:
		_ = c.try(command.SetCellPhase{Cell: id, Phase: rapid.SampledFrom(placement.Phases()).Draw(t, "phase"), Time: c.now})
	case 7:
		if row, ok := c.view().Cell(id); ok && len(row.Voters) > 1 {
			var names []string
			for _, r := range row.Voters[1:] {
				names = append(names, string(r.Name))
			}
			c.voters(id, names)
		}
	case 8:
		c.lead()
	case 10:
		_ = c.try(command.SetCellPhase{Cell: id, Phase: placement.PhaseCordoned, Evacuate: true, Time: c.now})
	case 11:
		for m := range c.view().LiveMigrations() {
			if to := rapid.SampledFrom([]string{"", "released", "aborted"}).Draw(t, "to"); to != "" {
				if e, ok := onward(m.Record, to, c.now); ok {
					_ = c.try(command.AdvanceMigration{ID: m.ID, Expect: m.Generation, Event: e})
				}
			}
		}
	case 9:
		gateway := command.AgentName(rapid.SampledFrom([]string{"g1", "g2"}).Draw(t, "gateway"))
		if _, ok := c.view().Agent(gateway); !ok {
			c.agent(gateway, "")
		}
		if rapid.Bool().Draw(t, "gone") {
			delete(c.up, gateway)
			c.pass(25 * time.Hour)
		}
	}
}

// Over random histories: the same arguments give the same actions; each is allowed, is asked of somebody who is there, and takes effect; what was done
// is not asked for again; and soon there is nothing left to do.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCluster(t)
		for range rapid.IntRange(10, 40).Draw(t, "events") {
			event(t, c)
			actions := c.step()
			sameAgain(t, c, actions)
			for _, a := range actions {
				allowed(t, c, a)
			}
			if rapid.Bool().Draw(t, "lost") {
				continue // the leader failed before it did any of it
			}
			settles(t, c)
		}
	})
}

func sameAgain(t *rapid.T, c *cluster, actions []Action) {
	var b bytes.Buffer
	if _, err := c.view().WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	replica, err := state.Restore(&b)
	if err != nil {
		t.Fatal(err)
	}
	if again := Step(replica.View(), c.seen, c.now, c.cfg); !reflect.DeepEqual(again, actions) {
		t.Fatalf("another replica decides\n%+v\nand not\n%+v", again, actions)
	}
	if len(actions) > ActionsMax {
		t.Fatalf("%d actions", len(actions))
	}
}

// allowed is what holds of every action, whatever happened.
func allowed(t *rapid.T, c *cluster, a Action) {
	switch a := a.(type) {
	case Propose:
		if err := command.Check(a.Command); err != nil {
			t.Fatal(err)
		}
		if as, ok := a.Command.(command.Assign); ok && as.Expect != 0 {
			t.Fatalf("a tenant that has a home is moved: %+v", as)
		}
		if start, ok := a.Command.(command.StartMigration); ok {
			source, _ := c.view().Cell(start.Source)
			target, _ := c.view().Cell(start.Target)
			if !source.Evacuating || target.Phase != placement.PhaseOpen || c.seen.silent(c.view(), target.ID, c.now, c.cfg) {
				t.Fatalf("%+v, from %+v to %+v", start, source, target)
			}
			if m, ok := c.view().MigrationOf(start.Tenant); ok && (!m.Done() || m.State != migrate.Released && c.now.Sub(m.Ended) < retryAfter) {
				t.Fatalf("%+v, after %+v", start, m)
			}
		}
	case OpenLog:
		row, _ := c.view().Cell(a.Cell)
		if says := c.up[a.Agent.Name]; a.Agent.LogOpen || says.LogOpen || row.Reformed || len(a.Voters) != row.Replicas {
			t.Fatalf("%+v gets first voters although it says %+v, of cell %+v", a.Agent, says, row)
		}
		there(t, c, a.Agent)
	case AddPeer:
		there(t, c, a.Agent)
		if row, _ := c.view().Cell(a.Cell); len(a.Record.Voters) > max(row.Replicas, len(row.Voters)) || len(a.Record.Voters) < len(row.Voters) {
			t.Fatalf("%+v of cell %+v", a, row)
		}
	}
}

func there(t *rapid.T, c *cluster, a state.Agent) {
	if seen, ok := c.seen.Agents[a.Name]; !ok || c.now.Sub(seen.At) > c.cfg.SeenMax {
		t.Fatalf("%s is asked for something, and was heard of at %d, now at %d", a.Name, seen.At, c.now)
	}
}

// settles does what is to be done until nothing is, and demands that nothing that could be done is asked for twice.
func settles(t *rapid.T, c *cluster) {
	before := map[string]bool{}
	for range 6 {
		actions := c.step()
		pending := 0
		for _, a := range actions {
			what := say(a)
			if u, ok := a.(Unplaceable); ok {
				what += fmt.Sprint(u.Tried.Cells) // with other cells it is worth a try
			}
			_, up := c.up[agentOf(a)]
			if before[what] && (agentOf(a) == "" || up) {
				t.Fatalf("%s is to be done again", what)
			}
			before[what] = true
			if agentOf(a) != "" && !up {
				pending++ // it went down a moment ago: it is asked in vain until it is missed
			}
			c.do(a)
		}
		if len(actions) == pending {
			return
		}
	}
	t.Fatalf("after six rounds there is still %+v to be done", c.step())
}

// What a cell's own agents do or do not do changes nothing of what is asked of another cell's: one that is not reachable never blocks others.
func TestCellsDoNotWait(t *testing.T) {
	about := func(actions []Action, id cell.ID) (said []string) {
		for _, a := range actions {
			what := say(a)
			if strings.Contains(what, "-log "+string(id)+" ") || strings.Contains(what, "-peer "+string(id)+" ") || strings.Contains(what, "voters "+string(id)+" ") {
				said = append(said, what)
			}
		}
		return said
	}
	rapid.Check(t, func(t *rapid.T) {
		c := newCluster(t)
		for range rapid.IntRange(10, 30).Draw(t, "events") {
			event(t, c)
			if rapid.Bool().Draw(t, "done") {
				settles(t, c)
			}
		}
		silent := c.seen
		silent.Agents = maps.Clone(c.seen.Agents)
		maps.DeleteFunc(silent.Agents, func(name command.AgentName, _ Seen) bool { return strings.HasPrefix(string(name), "x") })
		for _, id := range []cell.ID{"w", "y"} {
			if got, want := about(Step(c.view(), silent, c.now, c.cfg), id), about(c.step(), id); !slices.Equal(got, want) {
				t.Fatalf("with x silent cell %s is asked for %v, and else for %v", id, got, want)
			}
		}
	})
}

// With far more to do than a step holds, and most of it asked for in vain, everybody has a turn.
func TestEverybodyHasATurn(t *testing.T) {
	c := newCluster(t)
	const cells = 400
	for i := range cells {
		id := cell.ID(fmt.Sprintf("c%03d", i))
		c.apply(command.CreateCell{Cell: id, Kind: placement.KindPooled, Replicas: 1, Time: c.now})
		c.agent(command.AgentName(id)+"-a", id)
	}
	for range cells { // voters are recorded, window by window
		for _, a := range c.step() {
			if p, ok := a.(Propose); ok {
				c.do(p)
			}
		}
		c.pass(time.Second)
	}
	asked := map[command.AgentName]bool{}
	for range 2 * cells / logsMax {
		actions := c.step()
		if len(actions) == 0 || len(actions) > logsMax {
			t.Fatalf("%d actions", len(actions))
		}
		for _, a := range actions {
			asked[agentOf(a)] = true
		}
		c.pass(time.Second)
	}
	if len(asked) != cells {
		t.Errorf("%d of %d agents were asked", len(asked), cells)
	}
}

// Many tenants are placed in a bounded number of steps, and those that no cell can take do not keep the others from it.
func TestManyTenants(t *testing.T) {
	c := newCluster(t)
	c.cfg.Placement.FailureReserve = false
	c.apply(command.CreateCell{Cell: "x", Kind: placement.KindPooled, Replicas: 1, Time: c.now})
	c.agent("x1", "x")
	for range 2 {
		for _, a := range c.step() {
			c.do(a)
		}
	}
	const many = 3 * placesMax
	for i := range many {
		c.apply(command.CreateTenant{Tenant: cell.TenantID(fmt.Sprintf("lost%03d", i)), Rules: placement.Rules{Cell: "nowhere"}, Time: c.now})
		c.apply(command.CreateTenant{Tenant: cell.TenantID(fmt.Sprintf("t%03d", i)), Time: c.now})
	}
	for step := range 20 {
		for _, a := range c.step() {
			c.do(a)
		}
		c.pass(time.Second)
		if home, _ := c.view().Cell("x"); home.Tenants == many {
			return
		}
		if step == 19 {
			t.Error("some were not placed")
		}
	}
}

func TestConfig(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	var bad Config
	bad.Placement, bad.Evacuation = placement.DefaultConfig(), migrate.DefaultOptions()
	err := bad.Validate()
	for _, field := range []string{"seen_max", "retry_after"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%v does not name %s", err, field)
		}
	}
	for name, change := range map[string]func(*Config){
		"lost_after":   func(c *Config) { c.LostAfter = c.SeenMax - 1 },
		"forget_after": func(c *Config) { c.ForgetAfter = c.LostAfter - 1 },
		"seen_max":     func(c *Config) { c.SeenMax = 366 * 24 * time.Hour },
		"pause_max":    func(c *Config) { c.Evacuation.PauseMax = 0 },
		"canary_jobs":  func(c *Config) { c.Whales.Options.CanaryJobs = -1 },
		"hour":         func(c *Config) { *c = c.WithHour(placement.HourLength(time.Millisecond)) },
	} {
		cfg := DefaultConfig()
		change(&cfg)
		if fe, ok := errors.AsType[*cell.FieldError](cfg.Validate()); !ok || !strings.Contains(cfg.Validate().Error(), name) || fe.Remedy == "" {
			t.Errorf("%s: %v", name, cfg.Validate())
		}
	}
}

// Hours of the usual length change nothing; shorter ones what would take real ones.
func TestConfigWithHour(t *testing.T) {
	if got := DefaultConfig().WithHour(placement.HourMax); !reflect.DeepEqual(got, DefaultConfig()) {
		t.Errorf("%+v", got)
	}
	got, want := DefaultConfig().WithHour(placement.HourLength(2*time.Second)), DefaultConfig()
	want.Placement.Hour, want.Placement.CoolDown = placement.HourLength(2*time.Second), 12*time.Second
	want.Whales.Options.CanaryJobs, want.Whales.Options.CanaryTime = 10, 2*time.Second
	if !reflect.DeepEqual(got, want) || got.Validate() != nil {
		t.Errorf("%+v, %v", got, got.Validate())
	}
}

// A decision's text is cut where a command has no more room, between characters.
func TestDecisionText(t *testing.T) {
	d := placement.Decision{Tenant: "t", Text: strings.Repeat("é", command.DecisionBytesMax)}
	text := DecisionText(d)
	if len(text) > command.DecisionBytesMax || !strings.HasSuffix(text, "\n...") {
		t.Errorf("%d bytes", len(text))
	}
	if err := command.Check(command.Assign{Tenant: "t", Cell: "c", Decision: text, Time: 1}); err != nil {
		t.Error(err)
	}
}

// What placement sees of the state is all of it, and nothing else.
func TestSnapshotOf(t *testing.T) {
	c := newCluster(t)
	c.apply(command.CreateCell{Cell: "x", Kind: placement.KindPooled, Replicas: 1, Capacity: placement.Load{Compute: 9 * cell.Unit}, Time: c.now})
	c.agent("x1", "x")
	for range 2 {
		for _, a := range c.step() {
			c.do(a)
		}
	}
	c.apply(command.CreateTenant{Tenant: "t", Reservation: [2]cell.Rate{cell.Unit, 2 * cell.Unit}, Time: c.now})
	for _, a := range c.step() {
		c.do(a)
	}
	sample := placement.Sample{P95: placement.Load{Compute: 4 * cell.Unit, Bytes: 5}, Average: placement.Load{Bytes: 7}}
	c.apply(command.RecordDemand{Cell: "x", Hour: 400_000, Samples: []command.TenantSample{{Tenant: "t", Sample: sample}}, Time: c.now})
	row, _ := c.view().Tenant("t")
	got := TenantOf(c.view(), row)
	want := placement.Tenant{
		ID: "t", Reserved: 3 * cell.Unit, Profile: placement.Profile{}.Record(400_000, sample), Home: "x", Since: c.now, Bytes: 7,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	for name, s := range map[string]*placement.Snapshot{
		"all": SnapshotOf(c.view(), c.cfg.Placement, c.now), "heard": Snapshot(c.view(), c.seen, c.now, c.cfg),
	} {
		if loads := s.Loads(); len(loads) != 1 || loads[0].Tenants != 1 || loads[0].Share < 0.4 {
			t.Errorf("%s: %+v", name, loads)
		}
	}
	d := SnapshotOf(c.view(), c.cfg.Placement, c.now).Place(got)
	if a := Assign(c.view(), d, c.now); a.Expect != 2 || a.Cell != "x" || a.CellGeneration != 2 || a.Decision == "" {
		t.Errorf("%+v", a)
	}
}

// A tenant that moves counts at the target as much as one that is there, and at the source for as long as it could come back.
func TestMovingCountsAtBothEnds(t *testing.T) {
	c := newCluster(t)
	for _, id := range []cell.ID{"x", "y"} {
		c.apply(command.CreateCell{Cell: id, Kind: placement.KindPooled, Replicas: 1, Capacity: placement.Load{Compute: 10 * cell.Unit}, Time: c.now})
		c.agent(command.AgentName(id)+"1", id)
	}
	for range 2 {
		for _, a := range c.step() {
			c.do(a)
		}
	}
	c.apply(command.CreateTenant{Tenant: "t", Rules: placement.Rules{ComputeMin: 4 * cell.Unit}, Time: c.now})
	for _, a := range c.step() {
		c.do(a)
	}
	home := c.view().Homes("t")[0].Cell
	target := cell.ID("x")
	if home == target {
		target = "y"
	}
	row, _ := c.view().Cell(target)
	d := placement.Decision{Tenant: "t", Source: home, Target: target, Reason: placement.ReasonRebalance, Text: "two\nlines", Generation: row.Generation}
	start := StartMigration(c.view(), d, c.now)
	if start.Why != "two lines" || start.Reason != "rebalance" || start.Expect != [2]cell.Epoch{2, 2} || start.Groups != Hand("t", row) {
		t.Errorf("%+v", start)
	}
	c.apply(start)
	for _, state := range []string{"declared", "ready", "cut_over", "released"} {
		c.advance("t", state)
		want := map[cell.ID]cell.Rate{home: 4 * cell.Unit, target: 4 * cell.Unit}
		if state == "released" {
			want[home] = 0
		}
		for name, s := range map[string]*placement.Snapshot{
			"all": SnapshotOf(c.view(), c.cfg.Placement, c.now), "heard": Snapshot(c.view(), c.seen, c.now, c.cfg),
		} {
			for _, l := range s.Loads() {
				if got := l.Hours.Peak().Compute; got != want[l.Cell] {
					t.Errorf("%s, %s: %s has %v, want %v", state, name, l.Cell, got, want[l.Cell])
				}
			}
		}
	}
}

// Whatever placement says, it is a line that a migration can hold.
func TestLine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Repeat(rapid.StringMatching(`[a-zé \n\t]{0,9}`).Draw(t, "text"), rapid.IntRange(0, 200).Draw(t, "times"))
		c := command.StartMigration{
			ID: "m", Tenant: "t", Source: "a", Target: "b", Reason: "whale", Options: migrate.DefaultOptions(), Order: migrate.DefaultOrder(),
			Why: line(text), Time: 1,
		}
		if err := command.Check(c); err != nil {
			t.Fatal(err)
		}
	})
}

// A cell with more tenants than there may be migrations is emptied all the same, and never has more under way than it may.
func TestEvacuationIsBounded(t *testing.T) {
	c := newCluster(t)
	c.cfg.Placement.FailureReserve = false
	c.apply(command.CreateCell{Cell: "x", Kind: placement.KindPooled, Replicas: 1, Time: c.now})
	c.agent("x1", "x")
	const many = 5 * EvacuationsMax
	for i := range many {
		c.apply(command.CreateTenant{Tenant: cell.TenantID(fmt.Sprintf("t%03d", i)), Time: c.now})
	}
	for range 3 {
		for _, a := range c.step() {
			c.do(a)
		}
	}
	c.apply(command.CreateCell{Cell: "y", Kind: placement.KindPooled, Replicas: 1, Time: c.now})
	c.agent("y1", "y")
	for range 2 {
		for _, a := range c.step() {
			c.do(a)
		}
	}
	c.apply(command.SetCellPhase{Cell: "x", Phase: placement.PhaseCordoned, Evacuate: true, Time: c.now})
	for range 3 * many / EvacuationsMax {
		c.pass(evacuationsEvery)
		for _, a := range c.step() {
			c.do(a)
		}
		var live []cell.TenantID
		for m := range c.view().LiveMigrations() {
			if m.State < migrate.CutOver {
				live = append(live, m.Tenant)
			}
		}
		if len(live) > EvacuationsMax {
			t.Fatalf("%d under way", len(live))
		}
		for _, tenant := range live {
			c.advance(tenant, "cut_over")
		}
	}
	if home, _ := c.view().Cell("x"); home.Tenants != 0 {
		t.Errorf("%d tenants are left", home.Tenants)
	}
}
