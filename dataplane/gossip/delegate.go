package gossip

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"
)

// delegate is what memberlist asks and tells. It calls with its own lock held: nothing here calls it back.
type delegate struct{ g *Gossip }

// NodeMeta returns what this agent says of itself.
func (d delegate) NodeMeta(int) []byte {
	d.g.mu.Lock()
	defer d.g.mu.Unlock()
	b, err := d.g.self.encode()
	if err != nil { // Open has checked its size, which does not change
		panic(err)
	}
	return b
}

// NotifyMsg takes in that an agent goes on purpose. It may come before or after memberlist has found that out.
func (d delegate) NotifyMsg(b []byte) {
	if len(b) == 0 || b[0] != messageLeaving {
		return // of a later version
	}
	g := d.g
	g.mu.Lock()
	defer g.mu.Unlock()
	e, known := g.members[string(b[1:])]
	if !known {
		return
	}
	if e.leaving = true; e.State == StateDead {
		e.State = StateLeft
	}
	g.members[e.Name] = e
}

// GetBroadcasts has nothing to tell beyond what memberlist does.
func (delegate) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState is empty: control's log holds state, and gossip hints.
func (delegate) LocalState(bool) []byte { return nil }

// MergeRemoteState ignores state, of which there is none.
func (delegate) MergeRemoteState([]byte, bool) {}

// NotifyMerge refuses the members of another cluster, who can only be there if somebody gave two clusters the same keys and label.
func (d delegate) NotifyMerge(peers []*memberlist.Node) error {
	for _, n := range peers {
		if err := d.NotifyAlive(n); err != nil {
			return err
		}
	}
	return nil
}

// NotifyAlive refuses an agent of another cluster.
func (d delegate) NotifyAlive(n *memberlist.Node) error {
	m, err := decodeMeta(n.Meta)
	if err != nil {
		return fmt.Errorf("%s: %w", n.Name, err)
	}
	if m.cluster != clusterOf(d.g.cfg.Cluster) {
		return fmt.Errorf("%s at %s belongs to another cluster", n.Name, n.Address())
	}
	return nil
}

// NotifyConflict says that two agents have one name, or that one has come back at another address before its old self was dead for long.
func (d delegate) NotifyConflict(existing, other *memberlist.Node) {
	d.g.log.Warn("two agents have one name, or one has moved: it is known at its old address until that has been dead for a while",
		"agent", existing.Name, "known", existing.Address(), "other", other.Address())
}

// NotifyJoin takes in an agent that is alive now.
func (d delegate) NotifyJoin(n *memberlist.Node) { d.alive(n) }

// NotifyUpdate takes in what an agent says of itself now.
func (d delegate) NotifyUpdate(n *memberlist.Node) { d.alive(n) }

func (d delegate) alive(n *memberlist.Node) {
	m, err := decodeMeta(n.Meta)
	if err != nil { // NotifyAlive has refused it
		return
	}
	g := d.g
	g.mu.Lock()
	defer g.mu.Unlock()
	e, known := g.members[n.Name]
	if !known || e.State != StateAlive { // it is there, or back
		e.since, e.leaving = time.Now(), false
	}
	e.Member = Member{
		Name: n.Name, Role: roleName(m.role), Cell: m.cell, GossipAddress: n.Address(), APIAddress: m.api, State: StateAlive, LoadPercent: m.load,
	}
	g.members[n.Name] = e
}

// NotifyLeave takes in that an agent is dead. One that said that it is leaving has left.
func (d delegate) NotifyLeave(n *memberlist.Node) {
	g := d.g
	g.mu.Lock()
	defer g.mu.Unlock()
	e, known := g.members[n.Name]
	if !known {
		return
	}
	if e.State, e.since = StateDead, time.Now(); e.leaving {
		e.State = StateLeft
	}
	g.members[n.Name] = e
}

// levels is a handler that reads memberlist's levels from its lines: what it calls an error is a hint like all else here, and most of what it
// says is of no interest when it does.
type levels struct{ slog.Handler }

// Enabled implements [slog.Handler]: the level is known only once the line is read.
func (levels) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements [slog.Handler].
func (h levels) Handle(ctx context.Context, r slog.Record) error {
	text := r.Message
	level := slog.LevelDebug
	for prefix, l := range map[string]slog.Level{"[ERR] ": slog.LevelWarn, "[WARN] ": slog.LevelInfo} { // order-free: one applies
		if strings.HasPrefix(text, prefix) {
			level = l
		}
	}
	if _, after, ok := strings.Cut(text, "] memberlist: "); ok {
		text = after
	}
	if !h.Handler.Enabled(ctx, level) {
		return nil
	}
	out := slog.NewRecord(r.Time, level, text, r.PC)
	return h.Handler.Handle(ctx, out)
}
