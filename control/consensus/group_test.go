package consensus

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := childDir(); dir != "" {
		runChild(dir)
		return
	}
	goleak.VerifyTestMain(m,
		// Raft starts it per term, tells it to stop at the end of the term and does not wait for it.
		goleak.IgnoreAnyFunction("github.com/hashicorp/raft.emitLogStoreMetrics"))
}

// fakeMachine keeps a count and a running checksum of what was applied, so that two machines that applied the same entries
// are equal and any others are not, in a state of constant size.
type fakeMachine struct {
	mu    sync.Mutex
	count uint64
	sum   uint32
	last  uint64

	padding  int           // extra bytes in a snapshot
	writing  chan struct{} // receives when a snapshot starts to be written
	proceed  chan struct{} // a snapshot waits for it
	applying chan struct{} // Apply waits for it
}

func (m *fakeMachine) Apply(index uint64, data []byte) any {
	if m.applying != nil {
		<-m.applying
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if index <= m.last {
		panic(fmt.Sprintf("entry %d after entry %d", index, m.last))
	}
	m.count++
	m.sum = crc32.Update(m.sum, castagnoli(), data)
	m.last = index
	return m.count
}

func (m *fakeMachine) state() (count uint64, sum uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.count, m.sum
}

func (m *fakeMachine) Snapshot() (Snapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	state := binary.BigEndian.AppendUint64(nil, m.count)
	state = binary.BigEndian.AppendUint32(state, m.sum)
	state = binary.BigEndian.AppendUint64(state, m.last)
	return &fakeSnapshot{state: append(state, make([]byte, m.padding)...), writing: m.writing, proceed: m.proceed}, nil
}

func (m *fakeMachine) Restore(r io.Reader) error {
	state, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if len(state) < 20 {
		return errors.New("short state")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count = binary.BigEndian.Uint64(state)
	m.sum = binary.BigEndian.Uint32(state[8:])
	m.last = binary.BigEndian.Uint64(state[12:])
	return nil
}

type fakeSnapshot struct {
	state    []byte
	writing  chan struct{}
	proceed  chan struct{}
	released bool
}

func (s *fakeSnapshot) WriteTo(w io.Writer) (int64, error) {
	if s.writing != nil {
		s.writing <- struct{}{}
		<-s.proceed
	}
	return io.Copy(w, bytes.NewReader(s.state))
}

func (s *fakeSnapshot) Release() {
	if s.released {
		panic("released twice")
	}
	s.released = true
}

func quietConfig(dir string) Config {
	cfg := DefaultConfig(dir, "voter-1")
	cfg.ElectionTimeout = 5 * time.Millisecond
	cfg.Logger = slog.New(slog.DiscardHandler)
	return cfg
}

// testContext bounds a test that waits.
func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func openGroup(t testing.TB, cfg Config, sm StateMachine) *Group {
	t.Helper()
	g, err := Open(cfg, sm)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Ready(testContext(t)); err != nil {
		t.Fatal(err)
	}
	return g
}

func closeGroup(t testing.TB, g *Group) {
	t.Helper()
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
}

func propose(t testing.TB, g *Group, data []byte) (any, uint64) {
	t.Helper()
	result, index, err := g.Propose(data).Wait(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	return result, index
}

func TestRestartReplays(t *testing.T) {
	cfg := quietConfig(t.TempDir())
	want := &fakeMachine{}
	proposed := uint64(0)
	for round := range 4 {
		got := &fakeMachine{}
		g := openGroup(t, cfg, got)
		gotCount, gotSum := got.state()
		if wantCount, wantSum := want.state(); gotCount != wantCount || gotSum != wantSum {
			t.Fatalf("round %d: replayed %d entries with sum %x, want %d with %x", round, gotCount, gotSum, wantCount, wantSum)
		}
		for i := range 20 {
			data := fmt.Appendf(nil, "round %d entry %d", round, i)
			proposed++
			result, index := propose(t, g, data)
			if result != proposed {
				t.Fatalf("result %v, want %d", result, proposed)
			}
			want.Apply(index, data)
		}
		if round == 1 {
			if err := g.SnapshotNow(testContext(t)); err != nil {
				t.Fatal(err)
			}
		}
		closeGroup(t, g)
	}
}

func TestProposalsKeepTheirOrder(t *testing.T) {
	g := openGroup(t, quietConfig(t.TempDir()), &fakeMachine{})
	defer closeGroup(t, g)
	var proposals []*Proposal
	for i := range 300 {
		proposals = append(proposals, g.Propose([]byte{byte(i)}))
	}
	last := uint64(0)
	for i, p := range proposals {
		result, index, err := p.Wait(testContext(t))
		if err != nil || result != uint64(i+1) || index <= last {
			t.Fatalf("proposal %d: result %v index %d (after %d) error %v", i, result, index, last, err)
		}
		last = index
	}
}

func TestProposalsAreRefused(t *testing.T) {
	cfg := quietConfig(t.TempDir())
	cfg.EntryBytesMax = 100
	m := &fakeMachine{}
	g := openGroup(t, cfg, m)
	propose(t, g, make([]byte, 100))
	if _, _, err := g.Propose(make([]byte, 101)).Wait(testContext(t)); !errors.Is(err, ErrNotApplied) || !errors.Is(err, ErrTooLarge) {
		t.Fatalf("too large: %v", err)
	}
	closeGroup(t, g)
	if _, _, err := g.Propose(nil).Wait(testContext(t)); !errors.Is(err, ErrNotApplied) || !errors.Is(err, ErrClosed) {
		t.Fatalf("closed: %v", err)
	}
	if err := g.Ready(testContext(t)); !errors.Is(err, ErrClosed) {
		t.Fatalf("Ready of a closed group: %v", err)
	}
	if err := g.SnapshotNow(testContext(t)); !errors.Is(err, ErrClosed) {
		t.Fatalf("SnapshotNow of a closed group: %v", err)
	}
	closeGroup(t, g)
	if count, _ := m.state(); count != 1 {
		t.Fatalf("%d applied, want 1", count)
	}
}

// TestWaitGivesUp and the proposal goes on.
func TestWaitGivesUp(t *testing.T) {
	m := &fakeMachine{applying: make(chan struct{})}
	g := openGroup(t, quietConfig(t.TempDir()), m)
	defer closeGroup(t, g)
	p := g.Propose([]byte("slow"))
	cause := errors.New("the caller went away")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, _, err := p.Wait(ctx); !errors.Is(err, ErrUnknown) || !errors.Is(err, cause) {
		t.Fatalf("Wait returned %v", err)
	}
	close(m.applying)
	if result, _, err := p.Wait(testContext(t)); result != uint64(1) || err != nil {
		t.Fatal(result, err)
	}
	// A proposal that has ended has its result whatever the context.
	if result, _, err := p.Wait(ctx); result != uint64(1) || err != nil {
		t.Fatal(result, err)
	}
}

// TestProposeWaitsForRoom holds Apply until more callers than ProposalsMax have come.
func TestProposeWaitsForRoom(t *testing.T) {
	cfg := quietConfig(t.TempDir())
	cfg.ProposalsMax = 4
	m := &fakeMachine{applying: make(chan struct{})}
	g := openGroup(t, cfg, m)
	defer closeGroup(t, g)
	var callers sync.WaitGroup
	results := make(chan error, 20)
	for range cap(results) {
		callers.Go(func() {
			_, _, err := g.Propose([]byte("entry")).Wait(testContext(t))
			results <- err
		})
	}
	awaitStats(t, g, "ProposalsMax proposals", func(s Stats) bool { return s.Proposals == 4 })
	close(m.applying)
	callers.Wait()
	close(results)
	for err := range results {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestCloseWaitsForWhatIsInFlight closes a group under callers: each proposal ends, and the state machine has applied exactly those
// that ended as applied.
func TestCloseWaitsForWhatIsInFlight(t *testing.T) {
	m := &fakeMachine{}
	g := openGroup(t, quietConfig(t.TempDir()), m)
	var callers sync.WaitGroup
	var mu sync.Mutex
	applied := uint64(0)
	started := make(chan struct{}, 16)
	for range cap(started) {
		callers.Go(func() {
			for i := 0; ; i++ {
				_, _, err := g.Propose([]byte("entry")).Wait(testContext(t))
				if errors.Is(err, ErrNotApplied) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				applied++
				mu.Unlock()
				if i == 0 {
					started <- struct{}{}
				}
			}
		})
	}
	for range cap(started) {
		<-started
	}
	closeGroup(t, g)
	callers.Wait()
	if count, _ := m.state(); count != applied {
		t.Fatalf("%d applied, %d acknowledged", count, applied)
	}
}

func TestDirectoryIsLocked(t *testing.T) {
	cfg := quietConfig(t.TempDir())
	g := openGroup(t, cfg, &fakeMachine{})
	start := time.Now()
	if _, err := Open(cfg, &fakeMachine{}); !errors.Is(err, ErrLocked) || time.Since(start) > 2*time.Second {
		t.Fatalf("after %s: %v", time.Since(start), err)
	}
	propose(t, g, []byte("undisturbed"))
	closeGroup(t, g)
	closeGroup(t, openGroup(t, cfg, &fakeMachine{}))
}

func TestForeignDirectory(t *testing.T) {
	cfg := quietConfig(t.TempDir())
	closeGroup(t, openGroup(t, cfg, &fakeMachine{}))
	other := cfg
	other.ID = "voter-2"
	if _, err := Open(other, &fakeMachine{}); !errors.Is(err, ErrForeign) {
		t.Fatalf("opened: %v", err)
	}
	closeGroup(t, openGroup(t, cfg, &fakeMachine{}))
}

// TestFirstStartCanBeCutOff opens from each state that a crash can leave a new directory in.
func TestFirstStartCanBeCutOff(t *testing.T) {
	for name, leave := range map[string]func(t *testing.T, dir string){
		"nothing":        func(*testing.T, string) {},
		"half the votes": func(t *testing.T, dir string) { writeFile(t, filepath.Join(dir, votesName+tmpSuffix), []byte("half")) },
		"votes": func(t *testing.T, dir string) {
			if err := createVotes(dir); err != nil {
				t.Fatal(err)
			}
		},
		"votes and mark": func(t *testing.T, dir string) {
			if err := errors.Join(createVotes(dir), createMark(dir)); err != nil {
				t.Fatal(err)
			}
		},
		"everything but the first entry": func(t *testing.T, dir string) {
			var f files
			if err := f.open(quietConfig(dir).withDefaults(), func(err error) { t.Error(err) }); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(f.guard.SetUint64([]byte(keyCurrentTerm), 1), f.close()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			leave(t, dir)
			g := openGroup(t, quietConfig(dir), &fakeMachine{})
			propose(t, g, []byte("entry"))
			closeGroup(t, g)
		})
	}
}

func TestReadyHonoursItsContext(t *testing.T) {
	cfg := quietConfig(t.TempDir())
	cfg.ElectionTimeout = time.Minute
	g, err := Open(cfg, &fakeMachine{})
	if err != nil {
		t.Fatal(err)
	}
	defer closeGroup(t, g)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Ready(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("Ready returned %v", err)
	}
	if _, _, err := g.Propose(nil).Wait(testContext(t)); !errors.Is(err, ErrNotApplied) || !errors.Is(err, ErrNotLeader) {
		t.Fatalf("a proposal without a leader ended with %v", err)
	}
}

func TestConfigValidate(t *testing.T) {
	if err := DefaultConfig("dir", "id").Validate(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Config){
		"dir is empty":     func(c *Config) { c.Dir = "" },
		"id is empty":      func(c *Config) { c.ID = "" },
		"id is 129 bytes":  func(c *Config) { c.ID = strings.Repeat("x", 129) },
		"snapshot bytes":   func(c *Config) { c.SnapshotBytes = 1 },
		"snapshot retain":  func(c *Config) { c.SnapshotRetain = -1 },
		"segment bytes":    func(c *Config) { c.SegmentBytes = 1 },
		"entry bytes max":  func(c *Config) { c.EntryBytesMax = 17 << 20 },
		"proposals max":    func(c *Config) { c.ProposalsMax = 1001 },
		"write deadline":   func(c *Config) { c.WriteDeadline = 1 },
		"election timeout": func(c *Config) { c.ElectionTimeout = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := DefaultConfig("dir", "id")
			change(&cfg)
			if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), name) {
				t.Fatalf("Validate returned %v", err)
			}
		})
	}
	several := func(change func(*Config)) error {
		c := Config{Dir: "dir", ID: "a", Transport: newFakeNet().listen("a"), Advertise: "a", Voters: []Peer{{"a", "a", true}, {"b", "b", true}}}
		change(&c)
		return c.Validate()
	}
	if err := several(func(*Config) {}); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Config){
		"advertise is empty":         func(c *Config) { c.Advertise = "" },
		"voters[1] repeats":          func(c *Config) { c.Voters[1].Address = "a" },
		"voters[1] is":               func(c *Config) { c.Voters[1].ID = "" },
		"voters do not name":         func(c *Config) { c.ID = "c" },
		"without a transport":        func(c *Config) { c.Transport = nil },
		"proposals max is 41, betwe": func(c *Config) { c.ProposalsMax = 41 },
	} {
		if err := several(change); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: Validate returned %v", name, err)
		}
	}
	if c := (Config{Transport: newFakeNet().listen("a")}).withDefaults(); c.ElectionTimeout != time.Second || c.WriteDeadline != 3*time.Second {
		t.Errorf("the defaults with a transport are %+v", c)
	}
	if err := (Config{}).Validate(); err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Fatalf("not all faults at once: %v", err)
	}
}

func TestRaftLogger(t *testing.T) {
	var out bytes.Buffer
	to := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}))
	l := newRaftLogger(to, "raft").With("term", 7).Named("sub")
	l.Info("quiet", "k", "v")
	l.Warn("loud", "servers", hclog.Fmt("%d+%d", 1, 2))
	l.StandardLogger(nil).Print("a line")
	got := out.String()
	for _, want := range []string{"level=WARN", "msg=loud", "servers=1+2", "term=7", "component=raft.sub"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	if strings.Contains(got, "quiet") || strings.Contains(got, "a line") || l.IsInfo() || !l.IsError() || l.GetLevel() != hclog.Warn {
		t.Errorf("level: %q", got)
	}
}

// A warning that raft repeats is logged now and then, and says how often it was not.
func TestRaftRepeatsItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := newRaftLogger(slog.New(slog.NewTextHandler(&out, nil)), "raft")
		for range 100 {
			l.Error("failed to heartbeat to", "peer", "a")
		}
		l.Named("sub").Warn("another")
		time.Sleep(repeatEvery)
		l.Error("failed to heartbeat to", "peer", "a")
		if lines := strings.Count(out.String(), "\n"); lines != 3 || !strings.Contains(out.String(), "peer=a not_logged=99") {
			t.Errorf("%d lines:\n%s", lines, out.String())
		}
	})
}
