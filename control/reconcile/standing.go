package reconcile

import (
	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/control/state"
	"github.com/fairlead/fairlead/placement"
)

// Standing is where a cell stands with its agents.
type Standing struct {
	Cell cell.ID
	// LastSeen is when any of its agents was last heard of, or this leader began to listen; 0 for a cell without agents.
	LastSeen cell.Instant
	// Silent says that nobody was heard of lately: it gets no new tenants. Lost says that this has been so for long. A cell without agents, as in a process
	// that is one, is neither.
	Silent, Lost bool
	Leader       command.AgentName // empty while none says to lead
	// VotersLost are voters that were not heard of for long, and VotersBare those that had a log and say that they have none. Both hold a vote until
	// an operator takes them out of the log; then another agent of the cell gets it.
	VotersLost []command.AgentName
	VotersBare []command.AgentName
	// Missing is how many agents, or voters, the cell has less than it is meant to have.
	Missing int
}

// Standings returns where each cell stands, in the order of their names.
func Standings(v state.View, o Observed, now cell.Instant, cfg Config) []Standing {
	var all []Standing
	for c := range v.Cells("") {
		all = append(all, standing(v, o, now, cfg, c))
	}
	return all
}

func standing(v state.View, o Observed, now cell.Instant, cfg Config, c state.Cell) Standing {
	w := world{v, o, now, cfg, c, agentsOf(v, c.ID)}
	s := Standing{Cell: c.ID, Silent: o.silent(v, c.ID, now, cfg), Missing: c.Replicas - len(c.Voters)}
	for _, a := range w.agents {
		s.LastSeen = max(s.LastSeen, o.LastSeen(a.Name))
		if w.votes(a.Name) < 0 {
			continue
		}
		if now.Sub(o.LastSeen(a.Name)) > cfg.LostAfter {
			s.VotersLost = append(s.VotersLost, a.Name)
		}
		if w.fresh(a.Name) && a.LogOpen && !o.Agents[a.Name].LogOpen {
			s.VotersBare = append(s.VotersBare, a.Name)
		}
	}
	if c.Phase == placement.PhaseForming {
		s.Missing = c.Replicas - len(w.agents)
	}
	s.Missing = max(0, s.Missing)
	s.Lost = len(w.agents) > 0 && now.Sub(s.LastSeen) > cfg.LostAfter
	if leader, ok := o.Leader(v, c.ID, now, cfg); ok {
		s.Leader = leader.Name
	}
	return s
}

// silent reports whether no agent of the cell was heard of lately, and it has some.
func (o Observed) silent(v state.View, id cell.ID, now cell.Instant, cfg Config) bool {
	agents := 0
	for a := range v.AgentsOf(id) {
		if agents++; o.fresh(a.Name, now, cfg) {
			return false
		}
	}
	return agents > 0
}
