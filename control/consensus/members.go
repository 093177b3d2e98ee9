package consensus

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"
)

// caughtUpEntries is how far behind the leader a replica may be and count as caught up: what is committed while a heartbeat
// is answered. The log sends the rest in one message.
const caughtUpEntries = 64

// PeerStatus is what a replica knows of a member of its group.
type PeerStatus struct {
	Peer
	Leader bool

	// Known reports whether the fields below it are: a leader knows them of every member that has answered it, any other
	// replica of itself only.
	Known       bool
	LastContact time.Duration // since it last answered
	LastIndex   uint64        // the end of its log then
}

func serversOf(peers []Peer) []raft.Server {
	servers := make([]raft.Server, len(peers))
	for i, p := range peers {
		servers[i] = raft.Server{Suffrage: raft.Nonvoter, ID: raft.ServerID(p.ID), Address: raft.ServerAddress(p.Address)}
		if p.Voter {
			servers[i].Suffrage = raft.Voter
		}
	}
	return servers
}

func countVoters(c raft.Configuration) int {
	voters := 0
	for _, s := range c.Servers {
		if s.Suffrage == raft.Voter {
			voters++
		}
	}
	return voters
}

// Peers returns the membership as this replica knows it, by ID. Only a leader's, verified, is the group's present one.
func (g *Group) Peers(ctx context.Context) ([]PeerStatus, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	_, leader := g.raft.LeaderWithID()
	leads := g.raft.State() == raft.Leader
	var peers []PeerStatus
	for _, s := range g.raft.GetConfiguration().Configuration().Servers {
		p := PeerStatus{
			Peer:   Peer{ID: string(s.ID), Address: string(s.Address), Voter: s.Suffrage == raft.Voter},
			Leader: s.ID == leader,
		}
		if p.ID == g.cfg.ID {
			p.Known, p.LastIndex = true, g.raft.LastIndex()
		} else if c, ok := g.contact(s.ID); ok && leads {
			p.Known, p.LastContact, p.LastIndex = true, time.Since(c.at), c.lastIndex
		}
		peers = append(peers, p)
	}
	slices.SortFunc(peers, func(a, b PeerStatus) int { return strings.Compare(a.ID, b.ID) })
	return peers, nil
}

// contact is what a leader heard of a follower.
func (g *Group) contact(id raft.ServerID) (contact, bool) {
	if g.network == nil {
		return contact{}, false
	}
	return g.network.contact(id)
}

// Leader returns the replica that leads as far as this one knows, and its raft address; both are empty when it knows none.
func (g *Group) Leader() (id, address string) {
	at, leader := g.raft.LeaderWithID()
	return string(leader), string(at)
}

// AddPeer makes p a member, as a voter or as one that is sent the log and has no vote. Adding a member with what it is
// already changes nothing, a voter stays one, and a member's address can be changed. It returns when the change is
// committed. Its error wraps ErrNotLeader on another replica, ErrAddressTaken when another member has the address, and
// ErrUnknown when the change may yet be made.
//
// A new voter counts towards the majority at once, with an empty log: add it without a vote, and again with one when
// CaughtUp says so. A replica that lost its directory has lost its votes and must come back under another ID.
func (g *Group) AddPeer(ctx context.Context, p Peer) error {
	if g.network == nil {
		return fmt.Errorf("%w: a group without a transport has one voter", ErrNotApplied)
	}
	if p.ID == "" || len(p.ID) > 128 || p.Address == "" {
		return fmt.Errorf("%w: peer %q at %q: give an id of 1 to 128 bytes and an address", ErrNotApplied, p.ID, p.Address)
	}
	return g.change(ctx, func(c raft.Configuration) (func() raft.Future, error) {
		for _, s := range c.Servers {
			same, there := s.ID == raft.ServerID(p.ID), s.Address == raft.ServerAddress(p.Address)
			if there && !same {
				return nil, fmt.Errorf("%w: %w: %q is %q's; remove that one first", ErrNotApplied, ErrAddressTaken, p.Address, s.ID)
			}
			if there && (s.Suffrage == raft.Voter || !p.Voter) {
				return nil, nil
			}
		}
		add := g.raft.AddNonvoter
		if p.Voter {
			add = g.raft.AddVoter
		}
		return func() raft.Future { return add(raft.ServerID(p.ID), raft.ServerAddress(p.Address), 0, 0) }, nil
	})
}

// CaughtUp reports whether a member's log has followed the leader's to within what heartbeats let one see. It returns
// ErrNotLeader on another replica.
func (g *Group) CaughtUp(ctx context.Context, id string) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if g.raft.State() != raft.Leader {
		return false, ErrNotLeader
	}
	if id == g.cfg.ID {
		return true, nil
	}
	c, ok := g.contact(raft.ServerID(id))
	return ok && time.Since(c.at) <= g.cfg.ElectionTimeout && c.lastIndex+caughtUpEntries >= c.committed, nil
}

// RemovePeer takes a member out, itself too; removing what is no member changes nothing. It returns when that is committed.
// Its error wraps ErrQuorum when fewer voters than votersMin (or than one) would be left, or too few of those left were
// heard of lately to make a majority, ErrNotLeader on another replica, and ErrUnknown when the change may yet be made.
func (g *Group) RemovePeer(ctx context.Context, id string, votersMin int) error {
	return g.change(ctx, func(c raft.Configuration) (func() raft.Future, error) {
		at := slices.IndexFunc(c.Servers, func(s raft.Server) bool { return s.ID == raft.ServerID(id) })
		if at < 0 {
			return nil, nil
		}
		if c.Servers[at].Suffrage == raft.Voter {
			if err := g.checkQuorum(c, id, max(votersMin, 1)); err != nil {
				return nil, err
			}
		}
		return func() raft.Future { return g.raft.RemoveServer(raft.ServerID(id), 0, 0) }, nil
	})
}

// change changes the membership. One change at a time is decided and made: raft would take one that was decided on an older
// membership, for it does not tell the index of the one that it returns. decide returns nil when nothing is to be changed.
func (g *Group) change(ctx context.Context, decide func(raft.Configuration) (func() raft.Future, error)) error {
	release, err := g.lockChanges(ctx)
	if err != nil {
		return err
	}
	configuration, err := g.membership()
	if err != nil {
		release()
		return err
	}
	do, err := decide(configuration)
	if err != nil || do == nil {
		release()
		return err
	}
	return g.await(ctx, do, release)
}

// lockChanges waits for the change before and returns what lets the next one begin.
func (g *Group) lockChanges(ctx context.Context) (release func(), err error) {
	select {
	case g.changes <- struct{}{}:
		return func() { <-g.changes }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: wait for the change before: %w", ErrNotApplied, context.Cause(ctx))
	case <-g.stop:
		return nil, fmt.Errorf("%w: %w", ErrNotApplied, ErrClosed)
	}
}

// checkQuorum says whether the group can do without a voter.
func (g *Group) checkQuorum(c raft.Configuration, without string, votersMin int) error {
	left, heard := 0, 0
	for _, s := range c.Servers {
		if s.Suffrage != raft.Voter || s.ID == raft.ServerID(without) {
			continue
		}
		left++
		if seen, ok := g.contact(s.ID); string(s.ID) == g.cfg.ID || (ok && time.Since(seen.at) <= g.cfg.ElectionTimeout) {
			heard++
		}
	}
	switch {
	case left < votersMin:
		return fmt.Errorf("%w: %w: without %q %d voters are left, at least %d must be; add another one first",
			ErrNotApplied, ErrQuorum, without, left, votersMin)
	case heard < left/2+1:
		return fmt.Errorf("%w: %w: without %q %d voters are left, of which %d answer; bring back or replace the others first",
			ErrNotApplied, ErrQuorum, without, left, heard)
	}
	return nil
}

// Transfer makes another voter lead, the most advanced one when id is empty, and returns when this replica no longer does.
// It returns ErrNotLeader when this replica did not lead, and another error when nobody took over, after an ElectionTimeout.
func (g *Group) Transfer(ctx context.Context, id string) error {
	configuration, err := g.membership()
	if err != nil {
		return err
	}
	if id == "" {
		if id = g.successor(configuration); id == "" {
			return fmt.Errorf("%w: no other voter answers", ErrNotApplied)
		}
	}
	if id == g.cfg.ID {
		return nil
	}
	at := slices.IndexFunc(configuration.Servers, func(s raft.Server) bool { return s.ID == raft.ServerID(id) && s.Suffrage == raft.Voter })
	if at < 0 {
		return fmt.Errorf("%w: %q is no voter of this group", ErrNotApplied, id)
	}
	return g.await(ctx, func() raft.Future {
		return g.raft.LeadershipTransferToServer(raft.ServerID(id), configuration.Servers[at].Address)
	}, func() {})
}

// successor returns the voter that was heard of lately whose log is the longest, and "" when there is none. Raft's own choice
// does not ask whether it is there.
func (g *Group) successor(c raft.Configuration) (id string) {
	var longest uint64
	for _, s := range c.Servers {
		seen, ok := g.contact(s.ID)
		if s.Suffrage == raft.Voter && ok && time.Since(seen.at) <= g.cfg.ElectionTimeout && (id == "" || seen.lastIndex > longest) {
			id, longest = string(s.ID), seen.lastIndex
		}
	}
	return id
}

// handOver lets another voter lead before this replica goes, which spares the group an election time-out. Nobody there to
// take over is no error.
func (g *Group) handOver(ctx context.Context) {
	if g.raft.State() != raft.Leader || countVoters(g.raft.GetConfiguration().Configuration()) < 2 {
		return
	}
	if err := g.Transfer(ctx, ""); err != nil {
		g.logger.Debug("hand over leadership", "error", err)
	}
}

// membership returns the present members, on a leader.
func (g *Group) membership() (raft.Configuration, error) {
	if _, _, ok := g.leading.ready(g.raft); !ok {
		return raft.Configuration{}, fmt.Errorf("%w: %w", ErrNotApplied, ErrNotLeader)
	}
	future := g.raft.GetConfiguration()
	return future.Configuration(), proposalError(future.Error())
}

// await lets raft do something and waits for it, and for its release. It goes on when ctx ends first.
func (g *Group) await(ctx context.Context, do func() raft.Future, release func()) error {
	done := make(chan error, 1)
	go func() { // ends with raft at the latest: the failure of a store leaves no time to wait for it
		defer release()
		done <- do().Error()
	}()
	select {
	case err := <-done:
		return proposalError(err)
	case <-g.failed:
		return fmt.Errorf("%w: %w", ErrUnknown, *g.failure.Load())
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnknown, context.Cause(ctx))
	}
}
