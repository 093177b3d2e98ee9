package reconcile

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/control/state"
	"github.com/fairlead/fairlead/migrate"
	"github.com/fairlead/fairlead/placement"
)

// tester is what a testing.T and a rapid.T have in common.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

// cluster is a state, agents that are up or not, and a leader that listens to those that are.
type cluster struct {
	t     tester
	state *state.State
	index uint64
	now   cell.Instant
	cfg   Config
	seen  Observed
	up    map[command.AgentName]Seen // what each that is up says
	hung  map[command.AgentName]bool // who does nothing that it is asked for
}

func newCluster(t tester) *cluster {
	c := &cluster{t: t, state: state.New(), now: cell.InstantOf(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)), cfg: DefaultConfig(), up: map[command.AgentName]Seen{}}
	c.hung = map[command.AgentName]bool{}
	c.lead()
	c.apply(command.CreateCluster{ID: "test", Time: c.now})
	return c
}

func (c *cluster) view() state.View { return c.state.View() }

// try applies a command; apply also demands that it takes effect.
func (c *cluster) try(cmd command.Command) error {
	c.index++
	return c.state.Apply(c.index, cmd).Refused
}

func (c *cluster) apply(cmd command.Command) {
	c.t.Helper()
	if err := c.try(cmd); err != nil {
		c.t.Fatalf("%+v: %v", cmd, err)
	}
}

// lead is a change of control's leader: the new one has heard of nobody.
func (c *cluster) lead() {
	c.seen = Observed{Since: c.now, Agents: map[command.AgentName]Seen{}, Tried: map[cell.TenantID]Tried{}}
}

// pass lets a time go by, in which all that are up are heard of.
func (c *cluster) pass(d time.Duration) {
	c.now = c.now.Add(d)
	for _, name := range c.names() {
		c.hear(name)
	}
}

// names returns who is up, in order.
func (c *cluster) names() []command.AgentName {
	var names []command.AgentName
	for name := range c.up {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// hear has an agent register: what changed of it goes into the log.
func (c *cluster) hear(name command.AgentName) {
	says := c.up[name]
	says.At = c.now
	c.seen.Agents[name] = says
	if row, ok := c.view().Agent(name); ok && says.LogOpen && !row.LogOpen {
		row.LogOpen = true
		c.apply(command.RegisterAgent{Agent: row.Agent, Time: c.now})
	}
}

// agent registers an agent of a cell, or a gateway, and lets it be up.
func (c *cluster) agent(name command.AgentName, of cell.ID) {
	a := command.Agent{Name: name, Role: command.RoleCell, Cell: of, APIAddress: string(name) + ":1", RaftAddress: string(name) + ":2", FeatureLevelMax: 1}
	if of == "" {
		a.Role, a.RaftAddress = command.RoleGateway, ""
	}
	c.apply(command.RegisterAgent{Agent: a, Time: c.now})
	c.up[name] = Seen{}
	c.hear(name)
}

func (c *cluster) step() []Action { return Step(c.view(), c.seen, c.now, c.cfg) }

// do carries an action out, as far as its agent is up. An agent that does not answer changes nothing.
func (c *cluster) do(a Action) {
	c.t.Helper()
	if c.hung[agentOf(a)] {
		return
	}
	switch a := a.(type) {
	case Propose:
		c.apply(a.Command)
	case OpenLog:
		if says, ok := c.up[a.Agent.Name]; ok {
			says.LogOpen = true
			says.Leader, says.Term = a.Agent.Name == a.Voters[0].Name, 1
			c.up[a.Agent.Name] = says
			c.hear(a.Agent.Name)
		}
	case AddPeer:
		if says, ok := c.up[a.Agent.Name]; ok {
			says.LogOpen = true
			c.up[a.Agent.Name] = says
			c.apply(a.Record)
			c.hear(a.Agent.Name)
		}
	case Unplaceable:
		c.seen.Tried[a.Tenant] = a.Tried
	default:
		c.t.Fatalf("%T", a)
	}
}

func say(a Action) string {
	voters := func(rs []command.Replica) string {
		var names []string
		for _, r := range rs {
			names = append(names, string(r.Name)+"@"+r.RaftAddress)
		}
		return strings.Join(names, ",")
	}
	switch a := a.(type) {
	case Propose:
		if v, ok := a.Command.(command.SetCellVoters); ok {
			return fmt.Sprintf("propose set-cell-voters %s generation=%d %s", v.Cell, v.Generation, voters(v.Voters))
		}
		return strings.TrimSpace(fmt.Sprintf("propose %s %s %s", a.Command.Type(), command.Subject(a.Command), command.Detail(a.Command)))
	case OpenLog:
		return fmt.Sprintf("open-log %s %s %s", a.Cell, a.Agent.Name, voters(a.Voters))
	case AddPeer:
		return fmt.Sprintf("add-peer %s %s@%s then %s", a.Cell, a.Agent.Name, a.Agent.RaftAddress, voters(a.Record.Voters))
	case Unplaceable:
		return "unplaceable " + string(a.Tenant)
	default:
		panic(a)
	}
}

// command carries out a line of a script and returns what it prints.
func (c *cluster) command(t *testing.T, line string) string {
	t.Helper()
	words := strings.Fields(line)
	given := map[string]string{}
	var names []string
	for _, w := range words[1:] {
		if key, value, ok := strings.Cut(w, "="); ok {
			given[key] = value
		} else {
			names = append(names, w)
		}
	}
	number := func(key string, otherwise int) int {
		n := otherwise
		if text, ok := given[key]; ok {
			var err error
			if n, err = strconv.Atoi(text); err != nil {
				t.Fatal(line, err)
			}
		}
		return n
	}
	switch words[0] {
	case "cell":
		kind := placement.KindPooled
		if given["kind"] == "dedicated" {
			kind = placement.KindDedicated
		}
		c.apply(command.CreateCell{
			Cell: cell.ID(names[0]), Kind: kind, Replicas: number("replicas", 1), Groups: number("groups", 0), Hand: number("hand", 0),
			Capacity: placement.Load{Compute: cell.Rate(number("compute", 100) * cell.Unit)}, Labels: labels(given["label"]), Time: c.now,
		})
	case "update":
		c.apply(command.UpdateCell{Cell: cell.ID(names[0]), Capacity: &placement.Load{Compute: cell.Rate(number("compute", 100) * cell.Unit)}, Time: c.now})
	case "delete":
		c.apply(command.DeleteCell{Cell: cell.ID(names[0]), Time: c.now})
	case "phase":
		p, err := placement.ParsePhase("phase", names[1])
		if err != nil {
			t.Fatal(line, err)
		}
		c.apply(command.SetCellPhase{Cell: cell.ID(names[0]), Phase: p, Time: c.now})
	case "evacuate":
		c.apply(command.SetCellPhase{Cell: cell.ID(names[0]), Phase: placement.PhaseCordoned, Evacuate: true, Time: c.now})
	case "whales":
		c.cfg.Whales.Auto = names[0] == "auto"
	case "hour":
		d, err := time.ParseDuration(names[0])
		if err != nil {
			t.Fatal(line, err)
		}
		c.cfg = c.cfg.WithHour(placement.HourLength(d))
	case "demand":
		c.demand(cell.ID(names[0]), number("hours", 1), names[1:])
	case "advance":
		c.advance(cell.TenantID(names[0]), given["to"])
	case "moves":
		return c.moves()
	case "voters":
		c.voters(cell.ID(names[0]), names[1:])
	case "agents":
		for _, n := range names {
			c.agent(command.AgentName(n), cell.ID(given["of"]))
		}
	case "moved":
		row, _ := c.view().Agent(command.AgentName(names[0]))
		row.RaftAddress = names[1]
		c.apply(command.RegisterAgent{Agent: row.Agent, Time: c.now})
	case "up":
		for _, n := range names {
			c.up[command.AgentName(n)] = Seen{LogOpen: given["log"] == "open", Leader: given["leads"] != "", Term: uint64(number("leads", 0))}
			c.hear(command.AgentName(n))
		}
	case "down":
		for _, n := range names {
			delete(c.up, command.AgentName(n))
		}
	case "hung":
		for _, n := range names {
			c.hung[command.AgentName(n)] = true
		}
	case "tenant":
		for _, n := range names {
			c.apply(command.CreateTenant{Tenant: cell.TenantID(n), Time: c.now, Rules: placement.Rules{
				Require: labels(given["require"]), Cell: cell.ID(given["only"]), ComputeMin: cell.Rate(number("compute", 1) * cell.Unit),
			}})
		}
	case "time":
		d, err := time.ParseDuration(names[0])
		if err != nil {
			t.Fatal(line, err)
		}
		c.pass(d)
	case "leader":
		c.lead()
	case "step", "do":
		return c.print(words[0] == "do")
	case "standing":
		return c.standing(cell.ID(names[0]))
	default:
		t.Fatalf("no such command: %s", line)
	}
	return ""
}

// demand records that tenants, each given as NAME:SLOTS, used so much in each of the last hours.
func (c *cluster) demand(id cell.ID, hours int, of []string) {
	var samples []command.TenantSample
	for _, one := range of {
		name, slots, _ := strings.Cut(one, ":")
		n, err := strconv.Atoi(slots)
		if err != nil {
			c.t.Fatalf("%s: %v", one, err)
		}
		load := placement.Load{Compute: cell.Rate(n) * cell.Rate(cell.Unit)}
		samples = append(samples, command.TenantSample{Tenant: cell.TenantID(name), Sample: placement.Sample{Average: load, P95: load}})
	}
	last := c.cfg.Placement.Hour.Of(c.now)
	for hour := last - int64(hours); hour < last; hour++ {
		c.apply(command.RecordDemand{Cell: id, Hour: hour, Samples: samples, Time: c.now})
	}
}

// advance takes the tenant's migration the straight way to a state.
func (c *cluster) advance(tenant cell.TenantID, to string) {
	c.t.Helper()
	for range 40 {
		m, _ := c.view().MigrationOf(tenant)
		if m.State.String() == to {
			return
		}
		e, ok := onward(m.Record, to, c.now)
		if !ok {
			break
		}
		c.apply(command.AdvanceMigration{ID: m.ID, Expect: m.Generation, Event: e})
	}
	c.t.Fatalf("%s does not come to %s", tenant, to)
}

// onward returns an event that brings a migration nearer to a state.
func onward(r migrate.Record, to string, now cell.Instant) (migrate.Event, bool) {
	kinds := []migrate.Kind{
		migrate.EventPass, migrate.EventFence, migrate.EventCommit, migrate.EventActivate, migrate.EventObserved, migrate.EventReverseFence,
		migrate.EventReverseCommit, migrate.EventReverseActivate, migrate.EventComplete, migrate.EventEnd,
	}
	if to == "aborted" {
		kinds = []migrate.Kind{migrate.EventAbort, migrate.EventEnd}
	}
	for _, k := range kinds {
		for _, class := range []cell.Class{0, cell.ClassBatch, cell.ClassInteractive} {
			e := migrate.Event{
				Kind: k, Class: class, Attempt: r.Attempt, Time: now, Position: 1, Digest: [32]byte{1},
				Gates: []migrate.Gate{{Name: "lag", Verdict: migrate.Pass}},
			}
			if _, err := r.Apply(e); err == nil {
				return e, true
			}
		}
	}
	return migrate.Event{}, false
}

// moves says what placement is told of moves.
func (c *cluster) moves() string {
	var said []string
	for _, m := range Pending(c.view(), c.seen, c.now, c.cfg) {
		row, _ := c.view().Tenant(m.Tenant)
		ended := ""
		if m.Ended != 0 {
			ended = " ended"
		}
		said = append(said, fmt.Sprintf("%s %s -> %s%s, at home in %s", m.Tenant, m.Source, m.Target, ended, TenantOf(c.view(), row).Home))
	}
	if len(said) == 0 {
		return "none"
	}
	return strings.Join(said, "\n")
}

func labels(text string) []placement.Label {
	if text == "" {
		return nil
	}
	key, value, _ := strings.Cut(text, ":")
	return []placement.Label{{Key: key, Value: value}}
}

// voters records what an operator's command has made of a cell's log.
func (c *cluster) voters(id cell.ID, names []string) {
	row, _ := c.view().Cell(id)
	var voters []command.Replica
	for _, r := range row.Voters {
		if slices.Contains(names, string(r.Name)) {
			voters = append(voters, r)
		}
	}
	c.apply(command.SetCellVoters{Cell: id, Voters: voters, Generation: row.Generation, Time: c.now})
}

func (c *cluster) print(do bool) string {
	var out []string
	for _, a := range c.step() {
		out = append(out, say(a))
		if do {
			c.do(a)
		}
	}
	if len(out) == 0 {
		return "nothing"
	}
	return strings.Join(out, "\n")
}

func (c *cluster) standing(id cell.ID) string {
	for _, s := range Standings(c.view(), c.seen, c.now, c.cfg) {
		if s.Cell == id {
			home, _ := c.view().Cell(id)
			return fmt.Sprintf("%s %v tenants=%d last seen %v ago silent=%v lost=%v leader=%q lost voters=%v bare voters=%v missing=%d", s.Cell, home.Phase,
				home.Tenants, c.now.Sub(s.LastSeen), s.Silent, s.Lost, s.Leader, s.VotersLost, s.VotersBare, s.Missing)
		}
	}
	return "no such cell"
}

// agentOf returns who is asked; nobody for what is proposed.
func agentOf(a Action) command.AgentName {
	switch a := a.(type) {
	case OpenLog:
		return a.Agent.Name
	case AddPeer:
		return a.Agent.Name
	default:
		return ""
	}
}
