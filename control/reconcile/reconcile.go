package reconcile

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/control/state"
	"github.com/fairlead/fairlead/migrate"
	"github.com/fairlead/fairlead/placement"
)

// ActionsMax bounds the actions of a step: a second's worth. What is left out is in a later one.
const ActionsMax = 200

// The parts of ActionsMax, so that none of them crowds out another.
const (
	formsMax   = 40 // cells that get their first voters
	logsMax    = 60 // logs that are opened, and replicas that are added
	placesMax  = 60 // tenants that are placed, or cannot be
	movesMax   = 20 // migrations that are declared
	forgetsMax = 20 // agents that are forgotten
)

// Config is what the loop goes by.
type Config struct {
	// SeenMax is how long after it was last heard of an agent may be asked for something, and a cell gets new tenants. 10 s: five times as long as
	// agents wait between two registrations.
	SeenMax time.Duration
	// LostAfter is how long nobody of a cell, or a voter of its log, must not have been heard of until it is said to be lost. 60 s: restarts and
	// drops of a network are shorter. At least SeenMax.
	LostAfter time.Duration
	// ForgetAfter is how long a gateway must not have been heard of until it is forgotten: their names come and go. 24 h. At least LostAfter.
	ForgetAfter time.Duration
	// RetryAfter is how long a tenant that no cell could take waits until it is tried again, unless cells have changed. 30 s.
	RetryAfter time.Duration
	// Placement is what decisions go by.
	Placement placement.Config
	// Whales says what is done about tenants that are too large for a pool.
	Whales Whales
	// Evacuation says how tenants of a cell that is evacuated are moved. Those of [migrate.DefaultOptions] with a canary of 10 jobs in 2 s and a rollback
	// window of an hour.
	Evacuation migrate.Options
}

// DefaultConfig returns what is said with each field.
func DefaultConfig() Config {
	return Config{
		SeenMax: 10 * time.Second, LostAfter: time.Minute, ForgetAfter: 24 * time.Hour, RetryAfter: 30 * time.Second,
		Placement: placement.DefaultConfig(), Whales: Whales{Options: migrate.DefaultOptions()}, Evacuation: evacuationOptions(),
	}
}

// Validate returns every fault of the configuration, each a *[cell.FieldError], joined; nil for none.
func (c Config) Validate() error {
	var faults []error
	for _, d := range []struct {
		field        string
		value, least time.Duration
		why          string
	}{
		{"seen_max", c.SeenMax, time.Second, "agents register every few seconds"},
		{"lost_after", c.LostAfter, c.SeenMax, "a cell is not lost while its agents may be asked for something"},
		{"forget_after", c.ForgetAfter, c.LostAfter, "an agent is not forgotten before it is lost"},
		{"retry_after", c.RetryAfter, time.Second, "each try looks at every cell"},
	} {
		if d.value < d.least || d.value > 365*24*time.Hour {
			faults = append(faults, &cell.FieldError{
				Field: d.field, Problem: fmt.Sprintf("is %v, outside %v to a year", d.value, d.least), Remedy: "give a time within: " + d.why,
			})
		}
	}
	return errors.Join(append(faults, c.Placement.Validate(), c.Whales.Options.Validate(), c.Evacuation.Validate())...)
}

// Seen is what an agent said when it was last heard of.
type Seen struct {
	At      cell.Instant // by this leader's clock
	LogOpen bool         // it has its part of a log
	Leader  bool         // it leads its cell's log
	Term    uint64       // of that log
}

// Observed is what the leader has heard since it leads. None of it is in the log.
type Observed struct {
	// Since is when it began to listen: nobody is missed before.
	Since  cell.Instant
	Agents map[command.AgentName]Seen
	// Pending are the moves under way, and those that ended lately, that were no migrations: the state has those.
	Pending []placement.Move
	// Tried are tenants that no cell could take, by an [Unplaceable] of an earlier step.
	Tried map[cell.TenantID]Tried
}

// Tried is a try to place a tenant that found no cell.
type Tried struct {
	At    cell.Instant
	Cells uint64 // a print of the cells that were tried
}

// Action is one thing to do: a [Propose], an [OpenLog], an [AddPeer] or an [Unplaceable].
type Action interface{ action() }

// Propose is to propose a command. It is refused by type when what it was decided on has changed, which needs no answer: the next step decides anew.
type Propose struct{ Command command.Command }

// OpenLog is to tell an agent the first voters of its cell's log, of which it is one. It has not opened a log yet as far as it says, and never has as
// far as its record says.
type OpenLog struct {
	Cell   cell.ID
	Agent  state.Agent
	Voters []command.Replica // shared; not to be changed
}

// AddPeer is to have the leader of a cell's log add an agent, without a vote until it has caught up and then with one; or, for one that is a voter
// already, to tell it the agent's new address. Record is to be proposed once that is done.
type AddPeer struct {
	Cell   cell.ID
	Agent  state.Agent
	Record command.SetCellVoters
}

// Unplaceable says that no cell can take a tenant now. It is to be remembered in Observed.Tried, and to be forgotten when the tenant is placed.
type Unplaceable struct {
	Tenant   cell.TenantID
	Tried    Tried
	Decision placement.Decision // why
}

func (Propose) action()     {}
func (OpenLog) action()     {}
func (AddPeer) action()     {}
func (Unplaceable) action() {}

// LastSeen returns when the agent was last heard of; when the leader began to listen, for one that it has not heard of.
func (o Observed) LastSeen(name command.AgentName) cell.Instant {
	return max(o.Since, o.Agents[name].At)
}

// fresh reports whether the agent may be asked for something at now.
func (o Observed) fresh(name command.AgentName, now cell.Instant, cfg Config) bool {
	seen, ok := o.Agents[name]
	return ok && now.Sub(seen.At) <= cfg.SeenMax
}

// Leader returns the agent of the cell that says to lead its log in the highest term, if any that was heard of lately does.
func (o Observed) Leader(v state.View, id cell.ID, now cell.Instant, cfg Config) (leader state.Agent, ok bool) {
	term := uint64(0)
	for a := range v.AgentsOf(id) {
		seen := o.Agents[a.Name]
		if seen.Leader && o.fresh(a.Name, now, cfg) && (!ok || cmp.Compare(seen.Term, term) > 0) {
			leader, term, ok = a, seen.Term, true
		}
	}
	return leader, ok
}
