package consensus

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"pgregory.net/rapid"
)

// TestApplyGoesOnWhileASnapshotIsWritten holds a snapshot in its WriteTo and proposes meanwhile.
func TestApplyGoesOnWhileASnapshotIsWritten(t *testing.T) {
	cfg := quietConfig(t.TempDir())
	m := &fakeMachine{writing: make(chan struct{}), proceed: make(chan struct{})}
	g := openGroup(t, cfg, m)
	propose(t, g, []byte("before"))
	taken := make(chan error, 1)
	go func() { taken <- g.SnapshotNow(testContext(t)) }()
	<-m.writing
	for range 20 {
		propose(t, g, []byte("meanwhile"))
	}
	select {
	case err := <-taken:
		t.Fatalf("the snapshot ended with %v while it was being written", err)
	default:
	}
	close(m.proceed)
	if err := <-taken; err != nil {
		t.Fatal(err)
	}
	stats := g.Stats()
	if stats.Snapshots != 1 || stats.LogBytes < 20*int64(len("meanwhile")) {
		t.Fatalf("after the snapshot: %+v", stats)
	}
	closeGroup(t, g)
	again := &fakeMachine{}
	closeGroup(t, openGroup(t, cfg, again))
	if count, _ := again.state(); count != 21 {
		t.Fatalf("%d entries after the restart, want 21", count)
	}
}

// awaitStats polls until the statistics satisfy a condition.
func awaitStats(t *testing.T, g *Group, what string, holds func(Stats) bool) Stats {
	t.Helper()
	ctx := testContext(t)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		stats := g.Stats()
		if holds(stats) {
			return stats
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("never: %s; %+v", what, stats)
		}
	}
}

// TestSnapshotsFollowBytes proposes below and above the threshold, and above the size of a large snapshot.
func TestSnapshotsFollowBytes(t *testing.T) {
	cfg := quietConfig(t.TempDir())
	cfg.SnapshotBytes = 64 << 10
	m := &fakeMachine{padding: 256 << 10}
	g := openGroup(t, cfg, m)
	defer closeGroup(t, g)
	data := make([]byte, 8<<10)
	for range 7 {
		propose(t, g, data)
	}
	if stats := g.Stats(); stats.Snapshots != 0 || stats.SnapshotAt != 64<<10 {
		t.Fatalf("below the threshold: %+v", stats)
	}
	propose(t, g, data)
	stats := awaitStats(t, g, "a snapshot of 256 KiB", func(s Stats) bool { return s.Snapshots == 1 })
	if stats.SnapshotBytes < 256<<10 || stats.SnapshotAt != stats.SnapshotBytes {
		t.Fatalf("after a snapshot larger than the threshold: %+v", stats)
	}
	for g.Stats().LogBytes < stats.SnapshotAt-(16<<10) {
		propose(t, g, data)
	}
	if got := g.Stats().Snapshots; got != 1 {
		t.Fatalf("%d snapshots although the log is shorter than the last one", got)
	}
	for range 3 {
		propose(t, g, data)
	}
	awaitStats(t, g, "a second snapshot", func(s Stats) bool { return s.Snapshots == 2 })
}

// TestBytesAreCountedAcrossRestarts: a process that restarts often must not keep its log for ever.
func TestBytesAreCountedAcrossRestarts(t *testing.T) {
	cfg := quietConfig(t.TempDir())
	cfg.SnapshotBytes = 64 << 10
	for i := range 6 {
		g := openGroup(t, cfg, &fakeMachine{})
		propose(t, g, make([]byte, 15<<10))
		if i == 4 {
			awaitStats(t, g, "a snapshot in the fifth process", func(s Stats) bool { return s.Snapshots == 1 })
		} else if got := g.Stats(); got.Snapshots != 0 {
			t.Fatalf("process %d: %+v", i, got)
		}
		closeGroup(t, g)
	}
}

// TestCompactionKeepsTrailingEntries looks at what is left of the log.
func TestCompactionKeepsTrailingEntries(t *testing.T) {
	cfg := crashConfig(t.TempDir())
	cfg.SnapshotBytes = 1 << 30
	g := openGroup(t, cfg, &fakeMachine{})
	defer closeGroup(t, g)
	for range 100 {
		propose(t, g, make([]byte, 4<<10))
	}
	if err := g.SnapshotNow(testContext(t)); err != nil {
		t.Fatal(err)
	}
	first, err := g.files.guard.FirstIndex()
	if last := g.Stats().LastIndex; err != nil || first != last-cfg.TrailingLogs+1 {
		t.Fatalf("the log has %d to %d, %v; want the last %d", first, last, err, cfg.TrailingLogs)
	}
	segments, err := filepath.Glob(filepath.Join(cfg.Dir, segmentsDirName, "*.wal"))
	if err != nil || len(segments) > 2 {
		t.Fatalf("%d segments of 64 KiB hold 32 KiB of entries: %v", len(segments), err)
	}
}

// TestFailedSnapshotIsRetried lets the state machine refuse once.
func TestFailedSnapshotHarmsNothing(t *testing.T) {
	m := &failingMachine{err: errors.New("out of memory")}
	g := openGroup(t, quietConfig(t.TempDir()), m)
	defer closeGroup(t, g)
	propose(t, g, []byte("entry"))
	if err := g.SnapshotNow(testContext(t)); err == nil {
		t.Fatal("no error")
	}
	propose(t, g, []byte("entry"))
	if stats := g.Stats(); stats.SnapshotFails != 1 || stats.Snapshots != 0 {
		t.Fatalf("%+v", stats)
	}
	m.err = nil
	if err := g.SnapshotNow(testContext(t)); err != nil {
		t.Fatal(err)
	}
}

// failingMachine refuses snapshots while err is set; it is set between proposals only.
type failingMachine struct {
	fakeMachine
	err error
}

func (m *failingMachine) Snapshot() (Snapshot, error) {
	if m.err != nil {
		return nil, m.err
	}
	return m.fakeMachine.Snapshot()
}

// TestRefusedRestore: the state machine's reason reaches the caller of Open.
func TestRefusedRestore(t *testing.T) {
	cfg := quietConfig(t.TempDir())
	g := openGroup(t, cfg, &fakeMachine{})
	propose(t, g, []byte("entry"))
	if err := g.SnapshotNow(testContext(t)); err != nil {
		t.Fatal(err)
	}
	closeGroup(t, g)
	cause := errors.New("written by a newer version")
	if _, err := Open(cfg, refusingMachine{&fakeMachine{}, cause}); !errors.Is(err, cause) || errors.Is(err, ErrCorrupt) {
		t.Fatalf("Open returned %v", err)
	}
	closeGroup(t, openGroup(t, cfg, &fakeMachine{}))
}

type refusingMachine struct {
	*fakeMachine
	err error
}

func (m refusingMachine) Restore(io.Reader) error { return m.err }

// TestUnfinishedSnapshotsAreRemoved and only they.
func TestUnfinishedSnapshotsAreRemoved(t *testing.T) {
	cfg := quietConfig(t.TempDir())
	closeGroup(t, openGroup(t, cfg, &fakeMachine{}))
	unfinished := filepath.Join(cfg.Dir, snapshotDirName, "2-17-1700000000000"+tmpSuffix)
	if err := os.MkdirAll(unfinished, 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(unfinished, "state.bin"), []byte("half"))
	closeGroup(t, openGroup(t, cfg, &fakeMachine{}))
	if _, err := os.Stat(unfinished); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("still there: %v", err)
	}
}

// TestCloseStopsASnapshot that is being written.
func TestCloseStopsASnapshot(t *testing.T) {
	m := &fakeMachine{writing: make(chan struct{}), proceed: make(chan struct{}), padding: 1 << 20}
	g := openGroup(t, quietConfig(t.TempDir()), m)
	propose(t, g, []byte("entry"))
	taken := make(chan error, 1)
	go func() { taken <- g.SnapshotNow(testContext(t)) }()
	<-m.writing
	closed := make(chan error, 1)
	go func() { closed <- g.Close() }()
	<-g.stop
	close(m.proceed)
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	if err := <-taken; err == nil {
		t.Fatal("the snapshot that was stopped succeeded")
	}
}

func TestSnapshotHeader(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		header := snapshotHeader{
			Index: rapid.Uint64().Draw(rt, "index"), Term: rapid.Uint64().Draw(rt, "term"),
			Configuration:      raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(rapid.String().Draw(rt, "id"))}}},
			ConfigurationIndex: rapid.Uint64().Draw(rt, "configuration index"),
		}
		raw, err := encodeHeader(header)
		if err != nil {
			rt.Fatal(err)
		}
		rest := []byte("the state")
		from := bytes.NewReader(append(raw, rest...))
		meta := &raft.SnapshotMeta{
			Index: header.Index, Term: header.Term, Configuration: header.Configuration, ConfigurationIndex: header.ConfigurationIndex,
		}
		got, _, err := decodeHeader(from)
		if err != nil || got.matches(meta) != nil || from.Len() != len(rest) {
			rt.Fatalf("decoded %+v, %v, %d bytes left", got, err, from.Len())
		}
		meta.Index++
		if got.matches(meta) == nil {
			rt.Fatal("another index matches")
		}
		raw[rapid.IntRange(0, len(raw)-1).Draw(rt, "offset")] ^= 1 << rapid.IntRange(0, 7).Draw(rt, "bit")
		if _, _, err := decodeHeader(bytes.NewReader(raw)); err == nil {
			rt.Fatal("a flipped bit was not noticed")
		}
	})
}
