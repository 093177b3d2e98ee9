package consensus

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// cluster is the replicas of one group in one process.
type cluster struct {
	t      *testing.T
	net    *fakeNet
	dir    string
	voters []Peer
	change func(*Config) // of every replica
	size   int           // of a proposal
	number atomic.Uint64 // the last number that was proposed

	mu       sync.Mutex
	replicas map[string]*replica
}

// replica is one of them while it runs.
type replica struct {
	id     string
	group  *Group
	ledger *ledger
	disk   *fakeDisk
	fatal  chan error
}

// fakeDisk stands between the guard and the log.
type fakeDisk struct {
	*segmentLog
	mu   sync.Mutex
	err  error         // what writes return that were made
	hang chan struct{} // what writes wait for
}

func (d *fakeDisk) StoreLogs(entries []*raft.Log) error {
	d.mu.Lock()
	err, hang := d.err, d.hang
	d.mu.Unlock()
	if hang != nil {
		<-hang
	}
	return errors.Join(d.segmentLog.StoreLogs(entries), err)
}

func (d *fakeDisk) set(err error, hang chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err, d.hang = err, hang
}

func newCluster(t *testing.T, change func(*Config), ids ...string) *cluster {
	t.Helper()
	c := &cluster{t: t, net: newFakeNet(), dir: t.TempDir(), change: change, size: 100, replicas: make(map[string]*replica)}
	for _, id := range ids {
		c.voters = append(c.voters, Peer{ID: id, Address: id, Voter: true})
	}
	t.Cleanup(func() {
		for _, r := range c.running() {
			c.stop(r)
		}
	})
	for _, id := range ids {
		c.open(id, c.voters)
	}
	return c
}

func (c *cluster) config(id string, voters []Peer) Config {
	cfg := Config{
		Dir: filepath.Join(c.dir, id), ID: id, Transport: c.net.listen(id), Advertise: id, Voters: voters,
		ElectionTimeout: 250 * time.Millisecond, SegmentBytes: 64 << 10, TrailingLogs: 8, Logger: slog.New(slog.DiscardHandler),
	}
	if c.change != nil {
		c.change(&cfg)
	}
	return cfg
}

// open starts a replica, again or for the first time.
func (c *cluster) open(id string, voters []Peer) *replica {
	c.t.Helper()
	r := &replica{id: id, ledger: newLedger(), fatal: make(chan error, 1)}
	cfg := c.config(id, voters)
	cfg.OnFatal = func(err error) { r.fatal <- err }
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		c.t.Fatal(err)
	}
	r.group = newGroup(cfg)
	if err := r.group.files.open(cfg, r.group.fatal); err != nil {
		c.t.Fatalf("%s: %v", id, err)
	}
	r.disk = &fakeDisk{segmentLog: r.group.files.log}
	r.group.files.guard.log = r.disk
	if err := r.group.start(r.ledger); err != nil {
		c.t.Fatalf("%s: %v", id, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replicas[id] = r
	return r
}

// stop closes a replica. One that failed is left by Close as it is, which only a process that ends can afford.
func (c *cluster) stop(r *replica) {
	c.t.Helper()
	c.mu.Lock()
	delete(c.replicas, r.id)
	c.mu.Unlock()
	err := r.group.Close()
	if r.group.failure.Load() != nil {
		if !errors.Is(err, ErrStore) {
			c.t.Errorf("%s: Close returned %v", r.id, err)
		}
		r.group.running.Wait()
		err = errors.Join(r.group.shutdown(), r.group.files.close())
	}
	if err != nil {
		c.t.Errorf("%s: %v", r.id, err)
	}
}

// kill takes a replica off the network in the middle of what it does, and stops it.
func (c *cluster) kill(r *replica) {
	c.t.Helper()
	c.net.isolate(r.id)
	c.stop(r)
}

func (c *cluster) restart(id string) *replica {
	c.t.Helper()
	c.net.heal(id)
	return c.open(id, nil)
}

func (c *cluster) running() []*replica {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*replica
	for _, id := range slices.Sorted(maps.Keys(c.replicas)) {
		all = append(all, c.replicas[id])
	}
	return all
}

// await polls until something holds.
func (c *cluster) await(what string, holds func() bool) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 3*time.Minute)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			for _, r := range c.running() {
				peers, _ := r.group.Peers(c.t.Context())
				c.t.Logf("%s: %+v %+v", r.id, r.group.Stats(), peers)
			}
			c.t.Fatalf("never: %s", what)
		}
	}
}

// leader returns a replica that leads and is ready, other than those.
func (c *cluster) leader(except ...string) (leader *replica) {
	c.t.Helper()
	c.await("a leader", func() bool {
		for _, r := range c.running() {
			if slices.Contains(except, r.id) {
				continue
			}
			if r.group.Verify(c.t.Context()) == nil {
				leader = r
				return true
			}
		}
		return false
	})
	return leader
}

func (c *cluster) followers() (all []*replica) {
	leader := c.leader()
	for _, r := range c.running() {
		if r != leader {
			all = append(all, r)
		}
	}
	return all
}

// propose proposes new numbers at whoever leads until count of them were applied, and returns those.
func (c *cluster) propose(count int, except ...string) (acked []uint64) {
	c.t.Helper()
	for len(acked) < count {
		number := c.number.Add(1)
		switch err := c.proposeNumber(number, except...); {
		case err == nil:
			acked = append(acked, number)
		case !errors.Is(err, ErrUnknown):
			c.t.Fatal(err)
		}
	}
	return acked
}

// proposeNumber proposes a number until it is not refused any more: it is applied, or nobody knows.
func (c *cluster) proposeNumber(number uint64, except ...string) error {
	for {
		leader := c.leader(except...)
		_, _, err := leader.group.Propose(ledgerEntry(number, c.size)).Wait(c.t.Context())
		if !errors.Is(err, ErrNotApplied) {
			return err
		}
	}
}

// converge waits until every replica has applied the same, everything that was acknowledged among it, and nothing twice.
func (c *cluster) converge(acked []uint64) {
	c.t.Helper()
	acked = append(acked, c.propose(1)...)
	all := c.running()
	c.await("all replicas have the last number", func() bool {
		index := all[0].ledger.lastIndex()
		for _, r := range all {
			if r.ledger.lastIndex() != index || !r.ledger.has(acked[len(acked)-1]) {
				return false
			}
		}
		return true
	})
	first := all[0].ledger
	for _, r := range all {
		r.ledger.mu.Lock()
		if r.ledger.fault != nil {
			c.t.Errorf("%s: %v", r.id, r.ledger.fault)
		}
		for _, number := range acked {
			if _, ok := r.ledger.numbers[number]; !ok {
				c.t.Errorf("%s lost number %d", r.id, number)
			}
		}
		if r.ledger != first && !maps.Equal(r.ledger.numbers, first.numbers) {
			c.t.Errorf("%s differs from %s", r.id, all[0].id)
		}
		r.ledger.mu.Unlock()
	}
}

func (l *ledger) lastIndex() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

func (l *ledger) has(number uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.numbers[number]
	return ok
}

// TestKilledLeadersLoseNothing kills the leader twenty times while proposals are in flight. What was acknowledged is there in
// the end, what was refused was not applied (it is proposed again, and would be there twice), and all replicas are equal.
func TestKilledLeadersLoseNothing(t *testing.T) {
	c := newCluster(t, func(cfg *Config) { cfg.SnapshotBytes = 16 << 10 }, "a", "b", "c")
	var writers sync.WaitGroup
	var mu sync.Mutex
	var acked []uint64
	unknown := 0
	done := make(chan struct{})
	progress := make(chan struct{}, 1)
	for range 4 {
		writers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				number := c.number.Add(1)
				err := c.proposeNumber(number)
				mu.Lock()
				switch {
				case err == nil:
					acked = append(acked, number)
				case errors.Is(err, ErrUnknown):
					unknown++
				default:
					t.Error(err)
				}
				mu.Unlock()
				select {
				case progress <- struct{}{}:
				default:
				}
			}
		})
	}
	for range 20 {
		for range 10 {
			<-progress
		}
		leader := c.leader()
		c.kill(leader)
		c.leader()
		c.restart(leader.id)
	}
	close(done)
	writers.Wait()
	t.Logf("%d acknowledged, %d unknown", len(acked), unknown)
	c.converge(acked)
	for _, r := range c.running() {
		c.stop(r)
	}
	for _, p := range c.voters {
		c.open(p.ID, nil)
	}
	c.converge(acked)
}

// TestFailingLeaderIsReplaced lets the leader's disk fail, and hang, in the middle of a write. It acknowledges nothing more and
// tells its process; another replica leads; and what was written in spite of the error does no harm when it comes back.
func TestFailingLeaderIsReplaced(t *testing.T) {
	for name, hang := range map[string]bool{"error": false, "hang": true} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, func(cfg *Config) { cfg.WriteDeadline = 300 * time.Millisecond }, "a", "b", "c")
			acked := c.propose(20)
			old, lost := c.lead()
			var release chan struct{}
			cause := errors.New("input/output error")
			if hang {
				release, cause = make(chan struct{}), ErrWriteDeadline
				old.disk.set(nil, release)
			} else {
				old.disk.set(cause, nil)
			}
			inFlight := old.group.Propose(ledgerEntry(c.number.Add(1), c.size))
			if err := <-old.fatal; !errors.Is(err, cause) || !errors.Is(err, ErrStore) {
				t.Errorf("OnFatal was told %v", err)
			}
			<-lost
			if _, _, err := inFlight.Wait(t.Context()); err == nil {
				t.Error("the proposal in flight was acknowledged")
			}
			if err := old.group.Verify(t.Context()); err == nil {
				t.Error("a leader that failed verified its leadership")
			}
			acked = append(acked, c.propose(20, old.id)...)
			if hang {
				close(release)
			}
			c.stop(old)
			if old.ledger.has(acked[20]) {
				t.Error("the failed replica went on")
			}
			c.restart(old.id)
			c.converge(acked)
		})
	}
}

// TestVerifyIgnoresEarlierAnswers keeps back the answers to what a leader sent before the question, cuts it off, asks, and lets them
// through: they say nothing of the time after the question.
func TestVerifyIgnoresEarlierAnswers(t *testing.T) {
	for range 5 {
		c := newCluster(t, nil, "a", "b", "c")
		c.propose(10)
		old, lost := c.lead()
		release := c.net.hold(old.id)
		for c.net.late.Load() == 0 {
			runtime.Gosched()
		}
		c.net.isolate(old.id)
		heard := old.group.network.rounds.Load()
		asked := make(chan error, 1)
		go func() { asked <- old.group.Verify(t.Context()) }()
		for old.group.network.rounds.Load() == heard {
			runtime.Gosched()
		}
		release()
		if err := <-asked; !errors.Is(err, ErrNotLeader) {
			t.Errorf("Verify returned %v", err)
		}
		<-lost
		for _, r := range c.running() {
			c.stop(r)
		}
	}
}

// TestCloseWaitsForHeartbeats closes a follower while it handles a heartbeat, which may write the term: the store must still
// be there. Raft panics when it is not, and waits for no heartbeat.
func TestCloseWaitsForHeartbeats(t *testing.T) {
	c := newCluster(t, nil, "a", "b", "c")
	c.propose(10)
	follower := c.followers()[0]
	network, guard := follower.group.network, follower.group.files.guard
	entered, release, written := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	var once sync.Once
	network.SetHeartbeatHandler(func(raft.RPC) {
		once.Do(func() {
			close(entered)
			<-release
			written <- guard.SetUint64([]byte(keyCurrentTerm), follower.group.raft.CurrentTerm())
		})
	})
	<-entered
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		c.stop(follower)
	}()
	for !guard.closed.Load() && network.beats.TryRLock() { // until Close has gone on, or waits
		network.beats.RUnlock()
		runtime.Gosched()
	}
	close(release)
	if err := <-written; err != nil {
		t.Errorf("a heartbeat that came before Close: %v", err)
	}
	<-closed
}

// TestPartitionedLeaderStepsDown cuts the leader off with proposals on it. It notices, and what it alone has stored gives way to what the others
// agreed on, before and after a restart.
func TestPartitionedLeaderStepsDown(t *testing.T) {
	c := newCluster(t, nil, "a", "b", "c")
	acked := c.propose(10)
	old, lost := c.lead()
	c.net.isolate(old.id)
	var alone []*Proposal
	for range 10 {
		alone = append(alone, old.group.Propose(ledgerEntry(c.number.Add(1), c.size)))
	}
	if err := old.group.Verify(t.Context()); !errors.Is(err, ErrNotLeader) {
		t.Errorf("Verify returned %v", err)
	}
	<-lost
	for _, p := range alone {
		if _, _, err := p.Wait(t.Context()); err == nil {
			t.Error("a leader without a majority acknowledged")
		}
	}
	acked = append(acked, c.propose(30, old.id)...)
	c.net.heal(old.id)
	c.converge(acked)
	if old.group.Stats().InstallsWithoutProgress != 0 {
		t.Error("a follower whose log was cut back was sent a snapshot")
	}
	c.stop(old)
	c.restart(old.id)
	c.converge(acked)
}

// TestSnapshotOverAGap stops a replica until the others have compacted what it lacks. It goes on behind the gap, and after a
// restart too.
func TestSnapshotOverAGap(t *testing.T) {
	c := newCluster(t, nil, "a", "b", "c")
	c.size = 4 << 10 // some entries a file: what is compacted within the last file stays readable
	acked := c.propose(20)
	behind := c.followers()[0]
	c.kill(behind)
	for range 2 {
		acked = append(acked, c.propose(60)...)
		for _, r := range c.running() {
			if err := r.group.SnapshotNow(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	last := c.leader().group.Stats().LastIndex
	again := c.restart(behind.id)
	c.converge(acked)
	if at := again.group.Stats().SnapshotIndex; at < last-8 {
		t.Errorf("the newest snapshot of the replica that was behind is of %d, want one from the leader", at)
	}
	first, err := again.group.files.guard.FirstIndex()
	if err != nil || first <= last-8 {
		t.Errorf("its log begins at %d (%v): it was not emptied", first, err)
	}
	for range 2 {
		c.stop(again)
		acked = append(acked, c.propose(5)...)
		again = c.restart(behind.id)
		c.converge(acked)
	}
}

// TestReplacedReplica wipes a replica, which comes back under another ID: added without a vote, caught up, promoted, and the
// old one removed.
func TestReplacedReplica(t *testing.T) {
	c := newCluster(t, nil, "a", "b", "c")
	c.size = 4 << 10
	acked := c.propose(60)
	lost := c.followers()[0]
	c.kill(lost)
	for _, r := range c.running() {
		if err := r.group.SnapshotNow(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	c.open("d", nil)
	for range 2 { // idempotent
		c.try("add", func() error { return c.leader().group.AddPeer(t.Context(), Peer{ID: "d", Address: "d"}) })
	}
	c.await("d has caught up", func() bool {
		ok, err := c.leader().group.CaughtUp(t.Context(), "d")
		return ok && err == nil
	})
	if err := c.ask(func(g *Group) error { return g.RemovePeer(t.Context(), lost.id, 3) }); !errors.Is(err, ErrQuorum) || !errors.Is(err, ErrNotApplied) {
		t.Errorf("removed below the configured count: %v", err)
	}
	for range 2 {
		c.try("promote", func() error { return c.leader().group.AddPeer(t.Context(), Peer{ID: "d", Address: "d", Voter: true}) })
	}
	for range 2 {
		c.try("remove", func() error { return c.leader().group.RemovePeer(t.Context(), lost.id, 3) })
	}
	c.checkVoters("a", "b", "c", "d", lost.id)
	if n := c.leader().group.Stats().Voters; n != 3 {
		t.Errorf("%d voters", n)
	}
	c.converge(acked)
	for _, r := range c.running() {
		c.stop(r)
	}
	for _, id := range []string{"a", "b", "c", "d"} {
		if id != lost.id {
			c.restart(id)
		}
	}
	c.converge(acked)
}

// try repeats what a leader refuses because it is none, or not any more.
func (c *cluster) try(what string, do func() error) {
	c.t.Helper()
	for {
		err := do()
		if err == nil {
			return
		}
		// On a busy machine leadership moves, and heartbeats are late.
		if !errors.Is(err, ErrNotLeader) && !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrQuorum) {
			c.t.Fatalf("%s: %v", what, err)
		}
	}
}

// ask returns what a leader says.
func (c *cluster) ask(do func(*Group) error) error {
	for {
		if err := do(c.leader().group); !errors.Is(err, ErrNotLeader) {
			return err
		}
	}
}

// lead returns a leader, and what tells when it is none any more.
func (c *cluster) lead() (*replica, <-chan struct{}) {
	c.t.Helper()
	for {
		leader := c.leader()
		if _, lost, ok := leader.group.leading.ready(leader.group.raft); ok {
			return leader, lost
		}
	}
}

// checkVoters checks that the voters are all of the first names but the last.
func (c *cluster) checkVoters(ids ...string) {
	c.t.Helper()
	want := slices.DeleteFunc(ids[:len(ids)-1:len(ids)-1], func(id string) bool { return id == ids[len(ids)-1] })
	var got []string
	c.await("a leader that knows itself", func() bool {
		peers, err := c.leader().group.Peers(c.t.Context())
		if err != nil {
			c.t.Fatal(err)
		}
		got = nil
		leaders := 0
		for _, p := range peers {
			if p.Voter {
				got = append(got, p.ID)
			}
			if p.Leader {
				leaders++
			}
		}
		return leaders == 1
	})
	if !slices.Equal(got, want) {
		c.t.Errorf("the voters are %v, want %v", got, want)
	}
}

// TestMembershipIsChangedByTheLeader covers what is refused, transfers, and a leader that removes itself.
func TestMembershipIsChangedByTheLeader(t *testing.T) {
	c := newCluster(t, nil, "a", "b", "c")
	acked := c.propose(5)
	follower := c.followers()[0]
	for name, do := range map[string]func(*Group) error{
		// Nothing that would change something: it may lead by now.
		"AddPeer":    func(g *Group) error { return g.AddPeer(t.Context(), Peer{ID: "a", Address: "a", Voter: true}) },
		"RemovePeer": func(g *Group) error { return g.RemovePeer(t.Context(), "x", 1) },
		"Transfer":   func(g *Group) error { return g.Transfer(t.Context(), follower.id) },
		"CaughtUp":   func(g *Group) error { _, err := g.CaughtUp(t.Context(), "a"); return err },
		"Verify":     func(g *Group) error { return g.Verify(t.Context()) },
	} {
		term := follower.group.Stats().Term
		if err := do(follower.group); !errors.Is(err, ErrNotLeader) && (err != nil || follower.group.Stats().Term == term) {
			t.Errorf("%s on a follower: %v", name, err)
		}
	}
	if err := c.ask(func(g *Group) error { return g.AddPeer(t.Context(), Peer{ID: "x", Address: "a"}) }); !errors.Is(err, ErrAddressTaken) {
		t.Errorf("an address twice: %v", err)
	}
	if err := c.leader().group.AddPeer(t.Context(), Peer{ID: "x"}); !errors.Is(err, ErrNotApplied) {
		t.Errorf("no address: %v", err)
	}
	for _, to := range []string{"a", "b", "c", "a"} {
		c.await("a transfer to "+to, func() bool {
			leader := c.leader()
			if leader.id == to {
				return true
			}
			_ = leader.group.Transfer(t.Context(), to)
			id, address := leader.group.Leader()
			return id == to && address == to
		})
		acked = append(acked, c.propose(2)...)
	}
	c.await("a transfer to anybody", func() bool {
		leader := c.leader()
		return leader.group.Transfer(t.Context(), "") == nil && c.leader() != leader
	})
	leader := c.leader()
	c.try("remove the leader", func() error { return c.leader().group.RemovePeer(t.Context(), leader.id, 2) })
	acked = append(acked, c.propose(5, leader.id)...)
	c.checkVoters("a", "b", "c", leader.id)
	// Who was removed opens its directory still, and may be added again.
	c.stop(leader)
	c.restart(leader.id)
	c.try("add again", func() error {
		return c.leader(leader.id).group.AddPeer(t.Context(), Peer{ID: leader.id, Address: leader.id, Voter: true})
	})
	c.converge(acked)
}

// TestDivergedTailIsNoticed makes the case of hashicorp/raft#697: a replica whose log went further than the others agreed on,
// and they have compacted where it parted. It is told apart from one that catches up, and a restart mends it.
func TestDivergedTailIsNoticed(t *testing.T) {
	c := newCluster(t, func(cfg *Config) { cfg.TrailingLogs = 1 }, "a", "b", "c")
	c.size = 40 << 10
	acked := c.propose(5)
	old := c.followers()[0]
	c.stop(old)
	c.diverge(old.id, 500)
	// The others come to a later term than that of the tail, or it would win.
	term := old.group.raft.CurrentTerm() + 2
	c.await("a later term", func() bool {
		leader := c.leader()
		if leader.group.Stats().Term >= term {
			return true
		}
		_ = leader.group.Transfer(t.Context(), "")
		return false
	})
	acked = append(acked, c.propose(5)...)
	for _, r := range c.running() {
		if err := r.group.SnapshotNow(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	again := c.restart(old.id)
	c.await("the alarm", func() bool { return again.group.Stats().InstallsWithoutProgress >= installsAlarm })
	c.stop(again)
	again = c.restart(old.id)
	c.converge(acked)
	if n := again.group.Stats().InstallsWithoutProgress; n != 0 {
		t.Errorf("%d installs without progress after the restart", n)
	}
}

// diverge stores entries in the log of a replica that is stopped, as if it had led for a term in which nobody heard it.
func (c *cluster) diverge(id string, entries int) {
	c.t.Helper()
	var f files
	cfg := c.config(id, nil).withDefaults()
	if err := f.open(cfg, func(err error) { c.t.Error(err) }); err != nil {
		c.t.Fatal(err)
	}
	term, err := readNumber(f.votes, keyCurrentTerm)
	last, lastErr := f.log.LastIndex()
	if err := errors.Join(err, lastErr, f.guard.SetUint64([]byte(keyCurrentTerm), term+1)); err != nil {
		c.t.Fatal(err)
	}
	for i := range uint64(entries) {
		entry := &raft.Log{Index: last + 1 + i, Term: term + 1, Type: raft.LogCommand, Data: ledgerEntry(1<<40+i, 10)}
		if err := f.guard.StoreLog(entry); err != nil {
			c.t.Fatal(err)
		}
	}
	if err := f.close(); err != nil {
		c.t.Fatal(err)
	}
}

// TestForeignReplica opens one replica's directory as another's.
func TestForeignReplica(t *testing.T) {
	c := newCluster(t, nil, "a", "b", "c")
	c.propose(1)
	r := c.followers()[0]
	c.stop(r)
	cfg := c.config("d", nil)
	cfg.Dir = filepath.Join(c.dir, r.id)
	if g, err := Open(cfg, newLedger()); !errors.Is(err, ErrForeign) {
		t.Errorf("Open returned %v, %v", g, err)
	}
	alone := quietConfig(cfg.Dir)
	alone.ID = r.id
	if g, err := Open(alone, newLedger()); !errors.Is(err, ErrForeign) {
		t.Errorf("Open without a transport returned %v, %v", g, err)
	}
	c.restart(r.id)
	c.converge(nil)
}
