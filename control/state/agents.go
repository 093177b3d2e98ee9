package state

import (
	"crypto/sha256"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
)

// TokenRetryMax is how long after its first use a join token answers the same agent again: its reply may have been lost.
const TokenRetryMax = 10 * time.Minute

// Agent is a row of the table of agents.
type Agent struct {
	command.Agent
	Created cell.Instant
	Updated cell.Instant // when what it says of itself last changed, which is not when it was last heard of
}

// JoinToken is a row of the table of join tokens.
type JoinToken struct {
	Hash    [sha256.Size]byte
	Role    command.Role
	Cell    cell.ID
	Name    command.AgentName // empty for any
	Created cell.Instant
	Expires cell.Instant
	UsedBy  command.AgentName // empty for nobody
	Used    cell.Instant
}

// Agent returns the agent, if there is one.
func (v View) Agent(name command.AgentName) (Agent, bool) {
	return get[Agent](v.db, tableAgents, byID, string(name))
}

// Agents returns the agents whose name is above after, in the order of their names.
func (v View) Agents(after command.AgentName) iter.Seq[Agent] {
	return above(v.db, tableAgents, byID, func(a Agent) bool { return a.Name > after }, string(after))
}

// AgentsOf returns the agents of a cell in the order of their names; of no cell for the others.
func (v View) AgentsOf(id cell.ID) iter.Seq[Agent] {
	agents := above(v.db, tableAgents, byCell, func(Agent) bool { return true }, string(id))
	return func(yield func(Agent) bool) {
		for a := range agents {
			if a.Cell != id || !yield(a) {
				return
			}
		}
	}
}

// JoinToken returns the token whose SHA-256 is hash, if it is there and not forgotten. One that has expired may be.
func (v View) JoinToken(hash [sha256.Size]byte) (JoinToken, bool) {
	return get[JoinToken](v.db, tableTokens, byID, string(hash[:]))
}

// JoinTokens returns the tokens in the order of their hashes.
func (v View) JoinTokens() iter.Seq[JoinToken] {
	return above(v.db, tableTokens, byID, func(JoinToken) bool { return true }, "")
}

// TokenError is returned when a join token may not be used.
type TokenError struct {
	Token  string // a little of its hash
	Reason string
}

func (e *TokenError) Error() string {
	return fmt.Sprintf("join token %s %s: make another", e.Token, e.Reason)
}

func (s *State) registerAgent(c command.RegisterAgent) Result {
	row := Agent{Agent: c.Agent, Created: s.head.clock, Updated: s.head.clock}
	old, ok := s.View().Agent(c.Agent.Name)
	switch {
	case !ok && s.head.agents >= AgentsMax:
		return Result{Refused: &cell.LimitError{
			Limit: limitAgents, Scope: cell.ScopeCell, Value: int64(s.head.agents) + 1, Bound: AgentsMax, Remedy: "let agents that are gone be forgotten",
		}}
	case !ok:
		s.head.agents++
	case old.Role != row.Role || old.Cell != row.Cell:
		return Result{Refused: &cell.FieldError{
			Field: "name", Problem: fmt.Sprintf("is that of an agent of the role %v and the cell %q", old.Role, old.Cell),
			Remedy: "choose another, or let that agent be forgotten first",
		}}
	default:
		row.Created = old.Created
		row.LogOpen = row.LogOpen || old.LogOpen
		if row.Agent == old.Agent {
			return Result{Agent: old, Repeated: true}
		}
	}
	s.put(tableAgents, &row)
	return Result{Agent: row}
}

func (s *State) forgetAgent(c command.ForgetAgent) Result {
	v := s.View()
	row, ok := v.Agent(c.Name)
	if !ok {
		return Result{Refused: &NotFoundError{KindAgent, string(c.Name)}}
	}
	home, _ := v.Cell(row.Cell)
	if slices.ContainsFunc(home.Voters, func(r command.Replica) bool { return r.Name == c.Name }) {
		return Result{Refused: &InUseError{KindAgent, string(c.Name), "the log of cell " + string(row.Cell), "take it out of the log first"}}
	}
	s.drop(tableAgents, &row)
	s.head.agents--
	return Result{Agent: row}
}

func (s *State) createJoinToken(c command.CreateJoinToken) Result {
	v := s.View()
	if old, ok := v.JoinToken(c.Hash); ok {
		// A token is random, so that one that is as the command says was made by it.
		if old.Role == c.Role && old.Cell == c.Cell && old.Name == c.Name && old.Expires == c.Expires {
			return Result{JoinToken: old, Repeated: true}
		}
		return Result{Refused: &ExistsError{KindJoinToken, command.TokenName(c.Hash)}}
	}
	var expired []JoinToken
	for t := range v.JoinTokens() {
		if t.Expires <= s.head.clock {
			expired = append(expired, t)
		}
	}
	if live := s.head.tokens - len(expired); live >= JoinTokensMax {
		return Result{Refused: &cell.LimitError{
			Limit: limitJoinTokens, Scope: cell.ScopeCell, Value: int64(live) + 1, Bound: JoinTokensMax, Remedy: "wait until some have expired",
		}}
	}
	for _, t := range expired {
		s.drop(tableTokens, &t)
	}
	s.head.tokens += 1 - len(expired)
	row := JoinToken{Hash: c.Hash, Role: c.Role, Cell: c.Cell, Name: c.Name, Created: s.head.clock, Expires: c.Expires}
	s.put(tableTokens, &row)
	return Result{JoinToken: row}
}

func (s *State) useJoinToken(c command.UseJoinToken) Result {
	row, ok := s.View().JoinToken(c.Hash)
	name := command.TokenName(c.Hash)
	switch {
	case !ok:
		return Result{Refused: &NotFoundError{KindJoinToken, name}}
	case row.Expires <= s.head.clock:
		return Result{Refused: &TokenError{name, "has expired"}}
	case row.Name != "" && row.Name != c.Name:
		return Result{Refused: &TokenError{name, "is another agent's"}}
	case row.UsedBy == c.Name && s.head.clock.Sub(row.Used) <= TokenRetryMax:
		return Result{JoinToken: row, Repeated: true}
	case row.UsedBy != "":
		return Result{Refused: &TokenError{name, "has been used"}}
	}
	row.UsedBy, row.Used = c.Name, s.head.clock
	s.put(tableTokens, &row)
	return Result{JoinToken: row}
}

func appendAgent(b []byte, a Agent) []byte {
	b = text(b, 1, string(a.Name))
	b = number(b, 2, uint64(a.Role))
	b = text(b, 3, string(a.Cell))
	b = text(b, 4, a.APIAddress)
	b = text(b, 5, a.RaftAddress)
	b = text(b, 6, a.Version)
	b = number(b, 7, uint64(a.FeatureLevelMax))
	if a.LogOpen {
		b = number(b, 8, 1)
	}
	b = number(b, 9, uint64(a.Created))
	return number(b, 10, uint64(a.Updated))
}

func (s *State) restoreAgent(body []byte) error {
	var a Agent
	err := fields(body, func(num int, n uint64, b []byte) bool {
		switch num {
		case 1:
			a.Name = command.AgentName(b)
		case 2:
			a.Role = command.Role(n)
		case 3:
			a.Cell = cell.ID(b)
		case 4:
			a.APIAddress = string(b)
		case 5:
			a.RaftAddress = string(b)
		case 6:
			a.Version = string(b)
		case 7:
			a.FeatureLevelMax = int(n)
		case 8:
			a.LogOpen = n == 1
			return n == 1
		case 9:
			a.Created = cell.Instant(n)
		case 10:
			a.Updated = cell.Instant(n)
		default:
			return false
		}
		return true
	})
	if err != nil {
		return err
	}
	if _, ok := s.View().Agent(a.Name); ok || a.Name == "" {
		return fmt.Errorf("%w: agent %q is there twice or has no name", ErrSnapshot, a.Name)
	}
	s.put(tableAgents, &a)
	s.head.agents++
	return nil
}

func appendToken(b []byte, t JoinToken) []byte {
	b = text(b, 1, string(t.Hash[:]))
	b = number(b, 2, uint64(t.Role))
	b = text(b, 3, string(t.Cell))
	b = text(b, 4, string(t.Name))
	b = number(b, 5, uint64(t.Created))
	b = number(b, 6, uint64(t.Expires))
	b = text(b, 7, string(t.UsedBy))
	return number(b, 8, uint64(t.Used))
}

func (s *State) restoreToken(body []byte) error {
	var t JoinToken
	hashed := false
	err := fields(body, func(num int, n uint64, b []byte) bool {
		switch num {
		case 1:
			copy(t.Hash[:], b)
			hashed = len(b) == len(t.Hash)
			return hashed
		case 2:
			t.Role = command.Role(n)
		case 3:
			t.Cell = cell.ID(b)
		case 4:
			t.Name = command.AgentName(b)
		case 5:
			t.Created = cell.Instant(n)
		case 6:
			t.Expires = cell.Instant(n)
		case 7:
			t.UsedBy = command.AgentName(b)
		case 8:
			t.Used = cell.Instant(n)
		default:
			return false
		}
		return true
	})
	if err != nil {
		return err
	}
	if _, ok := s.View().JoinToken(t.Hash); ok || !hashed {
		return fmt.Errorf("%w: a join token is there twice or has no hash", ErrSnapshot)
	}
	s.put(tableTokens, &t)
	s.head.tokens++
	return nil
}
