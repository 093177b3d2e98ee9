package state

import (
	"fmt"

	"github.com/fairlead/fairlead/control/command"
)

// Apply applies the entry at index and returns its result. It panics when index does not rise: the log would have been applied twice.
func (s *State) Apply(index uint64, c command.Command) Result {
	s.advance(index)
	if err := command.Check(c); err != nil {
		return Result{Refused: err}
	}
	// A log's time never falls, whatever its proposers' clocks do.
	s.head.clock = max(s.head.clock, c.At())
	audited, byActor := c.(command.Audited)
	if byActor {
		c = audited.Command
	}
	r := s.apply(index, c)
	if byActor && r.Refused == nil && !r.Repeated && command.Audits(audited) {
		s.audit(index, audited)
	}
	return r
}

func (s *State) apply(index uint64, c command.Command) Result {
	switch c := c.(type) {
	case command.CreateTenant:
		return s.createTenant(c)
	case command.UpdateTenant:
		return s.updateTenant(c)
	case command.CreateKey:
		return s.createKey(c)
	case command.RevokeKey:
		return s.revokeKey(c)
	case command.CreateOrganization:
		return s.createOrganization(c)
	case command.UpdateOrganization:
		return s.updateOrganization(c)
	case command.CreateCluster:
		return s.createCluster(c)
	case command.SetFeatureLevel:
		return s.setFeatureLevel(c)
	case command.CreateCell:
		return s.createCell(c)
	case command.UpdateCell:
		return s.updateCell(c)
	case command.SetCellPhase:
		return s.setCellPhase(c)
	case command.SetCellVoters:
		return s.setCellVoters(c)
	case command.DeleteCell:
		return s.deleteCell(c)
	case command.CreateJoinToken:
		return s.createJoinToken(c)
	case command.UseJoinToken:
		return s.useJoinToken(c)
	case command.RegisterAgent:
		return s.registerAgent(c)
	case command.ForgetAgent:
		return s.forgetAgent(c)
	case command.RecordDemand:
		return s.recordDemand(c)
	case command.Assign:
		return s.assign(index, c)
	case command.Restored:
		return s.restored()
	case command.StartMigration:
		return s.startMigration(index, c)
	case command.AdvanceMigration:
		return s.advanceMigration(index, c)
	case command.ForgetMigration:
		return s.forgetMigration(c)
	default:
		panic(fmt.Sprintf("state: entry %d is a %T, which Check has let through", index, c))
	}
}
