package controlserver

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/control/consensus"
	"github.com/fairlead/fairlead/control/state"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// Machine is control's state as the log's consumer: hand it to [consensus.Open]. View may be called from any goroutine.
type Machine struct {
	state  *state.State // of the log's goroutine
	latest atomic.Pointer[published]
}

// published is a generation, and the keys that were looked up in it: a map is several times faster than the tree, and each request asks. It
// holds only keys that exist, so that made-up ones do not fill it, and goes with its generation, so that it is never wrong.
type published struct {
	view  state.View
	known sync.Map // from hash to state.Key
	// control is what every agent that registers is told.
	control func() []*fairleadv1.Agent
	// later is closed once there is a later generation.
	later chan struct{}

	journal journal
	// relevant counts what decisions of placement depend on, but for tenants that came and have no home yet; decided is the index of the last entry
	// that a plan depends on.
	relevant, decided uint64
	// urgent is the index of the last entry that gave a lane of a tenant that moves another home or epoch.
	urgent uint64
}

func (p *published) keyByHash(hash [sha256.Size]byte) (state.Key, bool) {
	if v, ok := p.known.Load(hash); ok {
		k, ok := v.(state.Key)
		return k, ok
	}
	k, ok := p.view.KeyByHash(hash)
	if ok {
		p.known.Store(hash, k)
	}
	return k, ok
}

var (
	_ consensus.StateMachine    = (*Machine)(nil)
	_ consensus.SnapshotChecker = (*Machine)(nil)
)

// NewMachine returns the machine with the empty state.
func NewMachine() *Machine {
	m := &Machine{state: state.New()}
	m.publish(&published{})
	return m
}

// View returns the latest generation.
func (m *Machine) View() state.View { return m.latest.Load().view }

// changed returns a channel that is closed once there is a later generation than the one that View returns after the call.
func (m *Machine) changed() <-chan struct{} { return m.latest.Load().later }

// publish makes the present state the latest generation.
func (m *Machine) publish(next *published) {
	view := m.state.View()
	next.view, next.later = view, make(chan struct{})
	next.control = sync.OnceValue(func() []*fairleadv1.Agent { return controlAgents(view) })
	if old := m.latest.Swap(next); old != nil {
		close(old.later)
	}
}

// Apply implements [consensus.StateMachine]; its result is a [state.Result], or nil for a command of a later release that may be passed over.
// It panics for bytes that are no command of this release: a replica that went on would be another from then on.
func (m *Machine) Apply(index uint64, data []byte) any {
	last := m.latest.Load()
	next := &published{journal: last.journal, relevant: last.relevant, decided: last.decided, urgent: last.urgent}
	c, err := command.Decode(data)
	if unknown, ok := errors.AsType[*command.UnknownError](err); ok && unknown.Ignore {
		m.state.Pass(index)
		m.publish(next)
		return nil
	}
	if err != nil {
		panic(fmt.Sprintf("control: entry %d cannot be applied: %v", index, err))
	}
	r := m.state.Apply(index, c)
	if r.Refused == nil && !r.Repeated {
		next.note(index, c, r)
	}
	m.publish(next)
	return r
}

// note remembers what a command that took effect has touched.
func (p *published) note(index uint64, c command.Command, r state.Result) {
	if audited, ok := c.(command.Audited); ok {
		c = audited.Command
	}
	touch := func(kind touchKind, id string) { p.journal = p.journal.note(index, kind, id) }
	relevant := true
	switch c := c.(type) {
	case command.CreateKey, command.RevokeKey:
		touch(touchKey, string(r.Key.ID))
		return
	case command.RegisterAgent, command.ForgetAgent:
		if kind, id, ok := agentTouch(r.Agent.Role, r.Agent.Cell); ok {
			touch(kind, id)
		}
		return
	case command.CreateCluster, command.SetFeatureLevel:
		touch(touchControl, "")
		return
	case command.CreateJoinToken, command.UseJoinToken, command.CreateOrganization, command.UpdateOrganization, command.ForgetMigration:
		return
	case command.CreateCell, command.UpdateCell, command.SetCellPhase, command.SetCellVoters, command.DeleteCell:
		touch(touchCell, string(r.Cell.ID))
	case command.Assign:
		touch(touchTenant, string(c.Tenant))
	case command.AdvanceMigration:
		if r.Tenant.ID() == "" && !r.Migration.Done() { // neither a home nor an epoch, nor what it counts for: a plan is as good as before
			return
		}
		touch(touchTenant, string(r.Migration.Tenant))
		p.urgent = index
	case command.CreateTenant:
		relevant = false
	case command.Restored: // every epoch is another
		p.journal = journal{floor: index}
	}
	p.decided = index
	if relevant {
		p.relevant++
	}
}

// Snapshot implements [consensus.StateMachine].
func (m *Machine) Snapshot() (consensus.Snapshot, error) { return generation{m.state.View()}, nil }

// Restore implements [consensus.StateMachine]. It returns [state.ErrSnapshot] and r's own errors, and then leaves the state as it was.
func (m *Machine) Restore(r io.Reader) error {
	s, err := state.Restore(r)
	if err != nil {
		return err
	}
	m.state = s
	// What was before is of another state: nothing of it is remembered.
	m.publish(&published{journal: journal{floor: s.Index()}, relevant: m.latest.Load().relevant + 1, decided: s.Index()})
	return nil
}

// CheckSnapshot implements [consensus.SnapshotChecker].
func (m *Machine) CheckSnapshot(r io.Reader) error {
	_, err := state.Restore(r)
	return err
}

// generation is a view that raft writes out.
type generation struct{ state.View }

// Release implements [consensus.Snapshot]. The garbage collector does the rest.
func (generation) Release() {}
