package reconcile

import (
	"cmp"
	"slices"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/control/state"
	"github.com/fairlead/fairlead/placement"
)

// Step returns what is to be done at now, at most [ActionsMax] actions: cells first in the order of their names, then tenants without a home, the largest
// first, then those that are to move, then agents.
func Step(v state.View, o Observed, now cell.Instant, cfg Config) []Action {
	var forms, logs []Action
	for c := range v.Cells("") {
		w := world{v, o, now, cfg, c, agentsOf(v, c.ID)}
		if c.Phase == placement.PhaseForming {
			forms = append(forms, w.form()...)
			continue
		}
		logs = append(logs, w.openLogs()...)
		logs = append(logs, w.repair()...)
	}
	return slices.Concat(
		window(forms, formsMax, now),
		window(logs, logsMax, now),
		places(v, o, now, cfg),
		window(slices.Concat(whales(v, o, now, cfg), evacuates(v, o, now, cfg)), movesMax, now),
		window(forgets(v, o, now, cfg), forgetsMax, now),
	)
}

// window returns at most so many of the actions. When there are more, each second has the next ones: those that are asked for in vain do not keep
// the others waiting.
func window[T any](all []T, most int, now cell.Instant) []T {
	if len(all) <= most {
		return all
	}
	windows := (len(all) + most - 1) / most
	from := int(int64(now)/int64(time.Second)%int64(windows)) * most
	return all[from:min(from+most, len(all))]
}

// world is what is known of one cell.
type world struct {
	view   state.View
	seen   Observed
	now    cell.Instant
	cfg    Config
	cell   state.Cell
	agents []state.Agent // in the order of their names
}

func agentsOf(v state.View, id cell.ID) []state.Agent { return slices.Collect(v.AgentsOf(id)) }

func (w world) fresh(name command.AgentName) bool { return w.seen.fresh(name, w.now, w.cfg) }

// form chooses the first voters once enough agents are there. Those that have a log already come first: after control was restored from before the
// cell was formed, they are its voters. An agent that had a log and has none any more is none of them.
func (w world) form() []Action {
	var able []state.Agent
	for _, a := range w.agents {
		open := w.seen.Agents[a.Name].LogOpen
		if w.fresh(a.Name) && (open || !a.LogOpen) && (w.cell.Replicas == 1 || a.RaftAddress != "") {
			a.LogOpen = open
			able = append(able, a)
		}
	}
	if len(able) < w.cell.Replicas {
		return nil
	}
	slices.SortStableFunc(able, func(a, b state.Agent) int {
		switch {
		case a.LogOpen == b.LogOpen:
			return 0 // by name
		case a.LogOpen:
			return -1
		default:
			return 1
		}
	})
	var voters []command.Replica
	for _, a := range able[:w.cell.Replicas] {
		voters = append(voters, command.Replica{Name: a.Name, RaftAddress: a.RaftAddress})
	}
	return []Action{Propose{w.record(voters)}}
}

func (w world) record(voters []command.Replica) command.SetCellVoters {
	slices.SortFunc(voters, func(a, b command.Replica) int { return cmp.Compare(a.Name, b.Name) })
	return command.SetCellVoters{Cell: w.cell.ID, Voters: voters, Generation: w.cell.Generation, Time: w.now}
}

// openLogs tells voters that have no log yet with whom they form it. Once other agents have votes than at first, nobody is told the first
// voters any more: whoever has no log then is to be added by the leader.
func (w world) openLogs() []Action {
	if w.cell.Reformed {
		return nil
	}
	var actions []Action
	for _, a := range w.agents {
		if w.votes(a.Name) >= 0 && w.fresh(a.Name) && !w.seen.Agents[a.Name].LogOpen && !a.LogOpen {
			actions = append(actions, OpenLog{w.cell.ID, a, w.cell.Voters})
		}
	}
	return actions
}

// votes returns the agent's place among the voters, or -1.
func (w world) votes(name command.AgentName) int {
	return slices.IndexFunc(w.cell.Voters, func(r command.Replica) bool { return r.Name == name })
}

// repair tells the leader of a voter's new address; or, when the log has fewer voters than it is meant to have, of an agent that could be one. It
// says one thing at a time: each changes the record.
func (w world) repair() []Action {
	if _, led := w.seen.Leader(w.view, w.cell.ID, w.now, w.cfg); !led {
		return nil
	}
	for _, a := range w.agents {
		at := w.votes(a.Name)
		if at < 0 || !w.fresh(a.Name) || a.RaftAddress == "" || a.RaftAddress == w.cell.Voters[at].RaftAddress {
			continue
		}
		voters := slices.Clone(w.cell.Voters)
		voters[at].RaftAddress = a.RaftAddress
		return []Action{AddPeer{w.cell.ID, a, w.record(voters)}}
	}
	if len(w.cell.Voters) >= w.cell.Replicas {
		return nil
	}
	for _, a := range w.agents {
		if w.votes(a.Name) < 0 && w.fresh(a.Name) && a.RaftAddress != "" {
			voters := append(slices.Clone(w.cell.Voters), command.Replica{Name: a.Name, RaftAddress: a.RaftAddress})
			return []Action{AddPeer{w.cell.ID, a, w.record(voters)}}
		}
	}
	return nil
}

// forgets drops gateways that nobody has heard of for long. They hold nothing, and their names come and go. Agents with a log are the operator's.
func forgets(v state.View, o Observed, now cell.Instant, cfg Config) []Action {
	var actions []Action
	for a := range v.Agents("") {
		if a.Role == command.RoleGateway && now.Sub(max(o.LastSeen(a.Name), a.Updated)) > cfg.ForgetAfter {
			actions = append(actions, Propose{command.ForgetAgent{Name: a.Name, Time: now}})
		}
	}
	return actions
}
