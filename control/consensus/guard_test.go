package consensus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// fakeStore keeps entries and values in memory and fails or hangs when told.
type fakeStore struct {
	*raft.InmemStore
	err  error         // what the next writes return
	hang chan struct{} // writes wait for it
}

func newFakeStore() *fakeStore { return &fakeStore{InmemStore: raft.NewInmemStore()} }

func (s *fakeStore) fault() error {
	if s.hang != nil {
		<-s.hang
	}
	return s.err
}

func (s *fakeStore) StoreLogs(entries []*raft.Log) error {
	return errors.Join(s.fault(), s.InmemStore.StoreLogs(entries))
}

func (s *fakeStore) DeleteRange(low, high uint64) error {
	return errors.Join(s.fault(), s.InmemStore.DeleteRange(low, high))
}

func (s *fakeStore) Set(key, value []byte) error {
	return errors.Join(s.fault(), s.InmemStore.Set(key, value))
}

// Get copies, as a store that reads from a disk does.
func (s *fakeStore) Get(key []byte) ([]byte, error) {
	value, err := s.InmemStore.Get(key)
	if err != nil {
		return nil, raftboltdb.ErrKeyNotFound
	}
	return slices.Clone(value), nil
}

func newTestGuard(t *testing.T, s *fakeStore, deadline time.Duration, onFatal func(error)) *guard {
	t.Helper()
	dir := t.TempDir()
	if err := createMark(dir); err != nil {
		t.Fatal(err)
	}
	m, err := openMark(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.close(); err != nil {
			t.Error(err)
		}
	})
	return newGuard(s, s, m, deadline, onFatal)
}

func testEntry(index uint64) *raft.Log {
	return &raft.Log{
		Index: index, Term: 3, Type: raft.LogCommand, Data: fmt.Appendf(nil, "entry %d", index),
		Extensions: encodeProposalID(7), AppendedAt: time.Unix(1, 0),
	}
}

// TestStoreErrorIsFatal lets each kind of write fail once. The first failure reaches OnFatal, once; nothing works afterwards,
// although the store would.
func TestStoreErrorIsFatal(t *testing.T) {
	for name, write := range map[string]func(*guard) error{
		"store entries":  func(g *guard) error { return g.StoreLogs([]*raft.Log{testEntry(2)}) },
		"store entry":    func(g *guard) error { return g.StoreLog(testEntry(2)) },
		"delete entries": func(g *guard) error { return g.DeleteRange(1, 1) },
		"set":            func(g *guard) error { return g.Set([]byte("k"), []byte("v")) },
		"set number":     func(g *guard) error { return g.SetUint64([]byte(keyCurrentTerm), 9) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newFakeStore()
			var fatal []error
			g := newTestGuard(t, s, time.Minute, func(err error) { fatal = append(fatal, err) })
			if err := g.StoreLog(testEntry(1)); err != nil {
				t.Fatal(err)
			}
			cause := errors.New("input/output error")
			s.err = cause
			if err := write(g); !errors.Is(err, cause) || !errors.Is(err, ErrStore) {
				t.Fatalf("the write returned %v", err)
			}
			s.err = nil
			for name, call := range everyCall(g) {
				if err := call(); !errors.Is(err, cause) {
					t.Errorf("%s after the failure returned %v", name, err)
				}
			}
			if len(fatal) != 1 || !errors.Is(fatal[0], ErrStore) {
				t.Fatalf("OnFatal was told %v", fatal)
			}
		})
	}
}

func everyCall(g *guard) map[string]func() error {
	return map[string]func() error{
		"StoreLogs":   func() error { return g.StoreLogs([]*raft.Log{testEntry(3)}) },
		"GetLog":      func() error { return g.GetLog(1, new(raft.Log)) },
		"FirstIndex":  func() error { _, err := g.FirstIndex(); return err },
		"LastIndex":   func() error { _, err := g.LastIndex(); return err },
		"DeleteRange": func() error { return g.DeleteRange(1, 1) },
		"Set":         func() error { return g.Set([]byte("k"), nil) },
		"SetUint64":   func() error { return g.SetUint64([]byte("k"), 1) },
		"Get":         func() error { _, err := g.Get([]byte("k")); return err },
		"GetUint64":   func() error { _, err := g.GetUint64([]byte("k")); return err },
	}
}

// TestHangingWriteIsFatal lets a write hang. OnFatal is told at the deadline, while the write still hangs, and the write's late
// success is not believed.
func TestHangingWriteIsFatal(t *testing.T) {
	s := newFakeStore()
	told := make(chan error, 1)
	g := newTestGuard(t, s, 10*time.Millisecond, func(err error) { told <- err })
	s.hang = make(chan struct{})
	result := make(chan error, 1)
	go func() { result <- g.StoreLog(testEntry(1)) }()
	select {
	case err := <-told:
		if !errors.Is(err, ErrWriteDeadline) || !errors.Is(err, ErrStore) {
			t.Fatalf("OnFatal was told %v", err)
		}
	case <-testContext(t).Done():
		t.Fatal("nobody noticed")
	}
	select {
	case err := <-result:
		t.Fatalf("the write returned %v while it hung", err)
	default:
	}
	close(s.hang)
	if err := <-result; !errors.Is(err, ErrWriteDeadline) {
		t.Fatalf("the late write returned %v", err)
	}
}

// TestClosedStoreIsNotFatal covers raft's stragglers.
func TestClosedStoreIsNotFatal(t *testing.T) {
	g := newTestGuard(t, newFakeStore(), time.Minute, func(err error) { t.Errorf("OnFatal was told %v", err) })
	g.close()
	for name, call := range everyCall(g) {
		if err := call(); !errors.Is(err, errStoreClosed) {
			t.Errorf("%s returned %v", name, err)
		}
	}
}

// TestEntriesAreSealed damages each field of a stored entry in turn.
func TestEntriesAreSealed(t *testing.T) {
	for name, damage := range map[string]func(*raft.Log){
		"index":     func(l *raft.Log) { l.Index++ },
		"term":      func(l *raft.Log) { l.Term++ },
		"type":      func(l *raft.Log) { l.Type = raft.LogNoop },
		"data":      func(l *raft.Log) { l.Data[0] ^= 1 },
		"shorter":   func(l *raft.Log) { l.Data = l.Data[1:] },
		"sum":       func(l *raft.Log) { l.Extensions[2] ^= 1 },
		"version":   func(l *raft.Log) { l.Extensions[0]++ },
		"no seal":   func(l *raft.Log) { l.Extensions = nil },
		"long seal": func(l *raft.Log) { l.Extensions = append(l.Extensions, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newFakeStore()
			fatal := 0
			g := newTestGuard(t, s, time.Minute, func(error) { fatal++ })
			entry := testEntry(1)
			if err := g.StoreLog(entry); err != nil {
				t.Fatal(err)
			}
			var got raft.Log
			if err := g.GetLog(1, &got); err != nil || string(got.Data) != "entry 1" || got.Term != 3 || got.Extensions != nil || !got.AppendedAt.IsZero() {
				t.Fatalf("read %+v, %v", got, err)
			}
			if _, ok := decodeProposalID(entry.Extensions); !ok {
				t.Fatal("the proposer's entry lost its number")
			}
			var stored raft.Log
			if err := s.GetLog(1, &stored); err != nil {
				t.Fatal(err)
			}
			stored.Data, stored.Extensions = slices.Clone(stored.Data), slices.Clone(stored.Extensions)
			damage(&stored)
			at := stored.Index
			stored.Index = 1
			if err := s.StoreLog(&stored); err != nil {
				t.Fatal(err)
			}
			stored.Index = at
			if err := g.GetLog(1, &got); !errors.Is(err, ErrCorrupt) || fatal != 1 {
				t.Fatalf("read %v, OnFatal told %d times", err, fatal)
			}
		})
	}
}

func TestHoleIsToldFromEnd(t *testing.T) {
	s := newFakeStore()
	fatal := 0
	g := newTestGuard(t, s, time.Minute, func(error) { fatal++ })
	if err := g.StoreLogs([]*raft.Log{testEntry(5), testEntry(6), testEntry(7)}); err != nil {
		t.Fatal(err)
	}
	for _, index := range []uint64{4, 8} {
		if err := g.GetLog(index, new(raft.Log)); !errors.Is(err, raft.ErrLogNotFound) || fatal != 0 {
			t.Fatalf("entry %d, outside: %v", index, err)
		}
	}
	if err := s.InmemStore.DeleteRange(6, 6); err != nil {
		t.Fatal(err)
	}
	if err := g.GetLog(6, new(raft.Log)); !errors.Is(err, ErrCorrupt) || fatal != 1 {
		t.Fatalf("the hole: %v", err)
	}
}

func TestVotesAreSealed(t *testing.T) {
	s := newFakeStore()
	var fatal error
	g := newTestGuard(t, s, time.Minute, func(err error) { fatal = err })
	if _, err := g.GetUint64([]byte(keyCurrentTerm)); err == nil || err.Error() != "not found" {
		t.Fatalf("raft compares the text of %v", err)
	}
	if err := g.SetUint64([]byte(keyCurrentTerm), 42); err != nil {
		t.Fatal(err)
	}
	if term, err := g.GetUint64([]byte(keyCurrentTerm)); term != 42 || err != nil {
		t.Fatal(term, err)
	}
	sealed, err := s.Get([]byte(keyCurrentTerm))
	if err != nil {
		t.Fatal(err)
	}
	// The value of one key under another is as wrong as a flipped bit.
	if err := s.InmemStore.Set([]byte(keyLastVoteTerm), sealed); err != nil {
		t.Fatal(err)
	}
	if _, err := g.GetUint64([]byte(keyLastVoteTerm)); !errors.Is(err, ErrCorrupt) || !errors.Is(fatal, ErrCorrupt) {
		t.Fatalf("read %v, OnFatal was told %v", err, fatal)
	}
}

func TestMarkFollowsTheLog(t *testing.T) {
	g := newTestGuard(t, newFakeStore(), time.Minute, func(err error) { t.Errorf("OnFatal was told %v", err) })
	dir := g.mu.mark.file.Name()
	dir = dir[:len(dir)-len(markName)]
	check := func(want progress) {
		t.Helper()
		if got, err := readMark(dir); got != want || err != nil {
			t.Fatalf("the mark is %+v, %v, want %+v", got, err, want)
		}
	}
	steps := []struct {
		do   func() error
		want progress
	}{
		{func() error { return nil }, progress{}},
		{func() error { return g.StoreLogs([]*raft.Log{testEntry(1), testEntry(2), testEntry(3)}) }, progress{3, 0, 0}},
		{func() error { return g.SetUint64([]byte(keyCurrentTerm), 5) }, progress{3, 5, 0}},
		{func() error { return g.SetUint64([]byte(keyLastVoteTerm), 4) }, progress{3, 5, 4}},
		{func() error { return g.DeleteRange(1, 1) }, progress{3, 5, 4}},
		{func() error { return g.DeleteRange(3, 3) }, progress{2, 5, 4}},
		{func() error { return g.StoreLog(testEntry(3)) }, progress{3, 5, 4}},
	}
	for i, step := range steps {
		if err := step.do(); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		check(step.want)
	}
}

// TestFailingGroup lets the store of a running group fail: the proposal in flight is unknown, later ones are not applied, OnFatal is
// told and Ready and Close return the failure.
func TestFailingGroup(t *testing.T) {
	for name, set := range map[string]func(*failingLog){
		"error": func(l *failingLog) { l.err = errors.New("no space left on device") },
		"hang":  func(l *failingLog) { l.hang = make(chan struct{}) },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := quietConfig(t.TempDir())
			told, ended := make(chan error, 1), make(chan struct{})
			cfg.OnFatal = func(err error) {
				told <- err
				<-ended // as os.Exit does not return
			}
			m := &fakeMachine{}
			g := openGroup(t, cfg, m)
			propose(t, g, []byte("fine"))
			failing := &failingLog{LogStore: g.files.guard.log}
			set(failing)
			g.files.guard.log = failing
			g.files.guard.deadline = 20 * time.Millisecond
			if _, _, err := g.Propose([]byte("in flight")).Wait(testContext(t)); !errors.Is(err, ErrUnknown) || !errors.Is(err, ErrStore) {
				t.Errorf("the proposal in flight ended with %v", err)
			}
			if err := <-told; !errors.Is(err, ErrStore) {
				t.Errorf("OnFatal was told %v", err)
			}
			if _, _, err := g.Propose([]byte("later")).Wait(testContext(t)); !errors.Is(err, ErrNotApplied) || !errors.Is(err, ErrStore) {
				t.Errorf("a later proposal ended with %v", err)
			}
			if err := g.Close(); !errors.Is(err, ErrStore) {
				t.Errorf("Close returned %v", err)
			}
			if err := g.Ready(testContext(t)); !errors.Is(err, ErrStore) {
				t.Errorf("Ready returned %v", err)
			}
			if count, _ := m.state(); count != 1 {
				t.Errorf("%d applied, want 1", count)
			}
			// What Close must leave alone in a process that ends, a test cleans up.
			close(ended)
			if failing.hang != nil {
				close(failing.hang)
			}
			g.running.Wait()
			if err := errors.Join(g.raft.Shutdown().Error(), g.files.close()); err != nil {
				t.Error(err)
			}
		})
	}
}

type failingLog struct {
	raft.LogStore
	err  error
	hang chan struct{}
}

func (l *failingLog) StoreLogs(entries []*raft.Log) error {
	if l.hang != nil {
		<-l.hang
		return l.LogStore.StoreLogs(entries)
	}
	return l.err
}

// TestProposalErrors covers every error of raft's that a proposal can meet, and any other.
func TestProposalErrors(t *testing.T) {
	for name, c := range map[string]struct {
		from error
		want []error
	}{
		"not leader":     {raft.ErrNotLeader, []error{ErrNotApplied, ErrNotLeader}},
		"transfer":       {raft.ErrLeadershipTransferInProgress, []error{ErrNotApplied, ErrNotLeader}},
		"enqueue":        {raft.ErrEnqueueTimeout, []error{ErrNotApplied}},
		"restore":        {raft.ErrAbortedByRestore, []error{ErrUnknown}},
		"lost":           {raft.ErrLeadershipLost, []error{ErrUnknown}},
		"not a voter":    {raft.ErrNotVoter, []error{ErrUnknown}},
		"transport":      {raft.ErrTransportShutdown, []error{ErrUnknown}},
		"missing entry":  {raft.ErrLogNotFound, []error{ErrUnknown}},
		"shutdown":       {raft.ErrRaftShutdown, []error{ErrUnknown}},
		"store":          {fmt.Errorf("%w: disk", ErrStore), []error{ErrUnknown, ErrStore}},
		"anything":       {errors.New("anything"), []error{ErrUnknown}},
		"context":        {context.Canceled, []error{ErrUnknown, context.Canceled}},
		"wrapped":        {fmt.Errorf("by others: %w", raft.ErrNotLeader), []error{ErrNotApplied, ErrNotLeader}},
		"nothing at all": {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := proposalError(c.from)
			if (got == nil) != (c.from == nil) {
				t.Fatalf("got %v", got)
			}
			for _, sentinel := range []error{ErrNotApplied, ErrUnknown, ErrNotLeader, ErrStore, context.Canceled} {
				if errors.Is(got, sentinel) != slices.Contains(c.want, sentinel) {
					t.Errorf("%v: errors.Is %v is %v", got, sentinel, errors.Is(got, sentinel))
				}
			}
		})
	}
}

// TestRegisterEndsEachOnce hammers a register from all the sides that end proposals.
func TestRegisterEndsEachOnce(t *testing.T) {
	r := newRegister(16)
	var all sync.WaitGroup
	var mu sync.Mutex
	open := make(map[uint64]*Proposal)
	for range 8 {
		all.Go(func() {
			for range 200 {
				p := &Proposal{done: make(chan struct{})}
				if err := r.add(p); err != nil {
					return
				}
				mu.Lock()
				open[p.id] = p
				mu.Unlock()
				var two sync.WaitGroup
				two.Go(func() { r.finish(p.id, "applied", p.id, nil) })
				two.Go(func() { r.finish(p.id, nil, 0, ErrUnknown) })
				two.Wait()
			}
		})
	}
	all.Go(func() { r.drain() })
	all.Wait()
	if r.size() != 0 {
		t.Fatalf("%d proposals are still open", r.size())
	}
	for _, id := range slices.Sorted(maps.Keys(open)) {
		select {
		case <-open[id].Done():
		default:
			t.Fatalf("proposal %d never ended", id)
		}
	}
	if err := r.add(&Proposal{}); !errors.Is(err, ErrClosed) {
		t.Fatalf("a drained register said %v", err)
	}
}
