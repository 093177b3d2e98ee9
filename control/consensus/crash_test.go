package consensus

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	childEnv = "FAIRLEAD_CONSENSUS_CHILD" // set by a test: the directory to work in
	startEnv = "FAIRLEAD_CONSENSUS_START" // set by a test: the first number to propose
	killsEnv = "FAIRLEAD_CONSENSUS_KILLS" // set by a person: how many kills, instead of a few
)

// ledger remembers the numbers that were applied.
type ledger struct {
	mu      sync.Mutex
	numbers map[uint64]uint64 // number -> index
	last    uint64
	fault   error
}

func newLedger() *ledger { return &ledger{numbers: make(map[uint64]uint64)} }

func (l *ledger) Apply(index uint64, data []byte) any {
	l.mu.Lock()
	defer l.mu.Unlock()
	number := binary.BigEndian.Uint64(data)
	if before, ok := l.numbers[number]; ok {
		l.fault = fmt.Errorf("number %d applied at %d and at %d", number, before, index)
	}
	if index <= l.last {
		l.fault = fmt.Errorf("entry %d after entry %d", index, l.last)
	}
	for i, b := range data[8:] {
		if b != byte(number)+byte(i) {
			l.fault = fmt.Errorf("number %d has a wrong byte at %d", number, i)
			break
		}
	}
	l.numbers[number], l.last = index, index
	return number
}

func ledgerEntry(number uint64, size int) []byte {
	data := binary.BigEndian.AppendUint64(nil, number)
	for i := range size {
		data = append(data, byte(number)+byte(i))
	}
	return data
}

func (l *ledger) Snapshot() (Snapshot, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	state := binary.BigEndian.AppendUint64(nil, l.last)
	for number, index := range l.numbers {
		state = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(state, number), index)
	}
	return &fakeSnapshot{state: state}, nil
}

func (l *ledger) Restore(r io.Reader) error {
	state, err := io.ReadAll(r)
	if err != nil || len(state)%16 != 8 {
		return errors.Join(err, fmt.Errorf("%d bytes", len(state)))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = binary.BigEndian.Uint64(state)
	l.numbers = make(map[uint64]uint64)
	for at := 8; at < len(state); at += 16 {
		l.numbers[binary.BigEndian.Uint64(state[at:])] = binary.BigEndian.Uint64(state[at+8:])
	}
	return nil
}

// crashConfig rotates, snapshots and compacts often.
func crashConfig(dir string) Config {
	cfg := quietConfig(dir)
	cfg.SegmentBytes = 64 << 10
	cfg.SnapshotBytes = 100 << 10
	cfg.TrailingLogs = 8
	return cfg
}

func childDir() string { return os.Getenv(childEnv) }

// runChild proposes numbers from several goroutines until it is killed or its disk fails, and prints each that was applied.
func runChild(dir string) {
	start, err := strconv.ParseUint(os.Getenv(startEnv), 10, 64)
	if err != nil {
		panic(err)
	}
	cfg := crashConfig(dir)
	cfg.OnFatal = nil
	g, err := Open(cfg, newLedger())
	if err != nil {
		panic(err)
	}
	var out sync.Mutex
	var next atomic.Uint64
	next.Store(start)
	var proposers sync.WaitGroup
	for range 8 {
		proposers.Go(func() {
			for {
				number := next.Add(1)
				p := g.Propose(ledgerEntry(number, rand.IntN(3000)))
				<-p.Done()
				if p.err == nil {
					out.Lock()
					_, _ = fmt.Fprintln(os.Stdout, number) // for the test that started this process
					out.Unlock()
				}
			}
		})
	}
	proposers.Wait()
}

// startChild runs runChild in a process of its own. Its acknowledged numbers are added to acked as they arrive; first is
// closed at the first. The returned function waits for the end of the output and of the process.
func startChild(t *testing.T, dir string, start uint64, acked map[uint64]bool) (child *exec.Cmd, first chan struct{}, wait func() error) {
	t.Helper()
	child = exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	child.Env = append(os.Environ(), childEnv+"="+dir, startEnv+"="+strconv.FormatUint(start, 10))
	child.Stderr = os.Stderr
	output, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	first, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		var once sync.Once
		defer once.Do(func() { close(first) })
		lines := bufio.NewReader(output)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return // a last line without its end was not acknowledged to anybody
			}
			if number, err := strconv.ParseUint(strings.TrimSpace(line), 10, 64); err == nil {
				acked[number] = true
			}
			once.Do(func() { close(first) })
		}
	}()
	return child, first, func() error {
		<-done
		return child.Wait()
	}
}

// checkLedger opens the directory and looks for what was acknowledged.
func checkLedger(t *testing.T, dir string, acked map[uint64]bool, proposedMax uint64) (applied int) {
	t.Helper()
	l := newLedger()
	g := openGroup(t, crashConfig(dir), l)
	defer closeGroup(t, g)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fault != nil {
		t.Fatal(l.fault)
	}
	for number := range acked {
		if _, ok := l.numbers[number]; !ok {
			t.Fatalf("number %d was acknowledged and is lost; %d others are there", number, len(l.numbers))
		}
	}
	for number := range l.numbers {
		if number > proposedMax {
			t.Fatalf("number %d was never proposed", number)
		}
	}
	return len(l.numbers)
}

// TestKilledProcessLosesNothing kills a process in the middle of its work, again and again in the same directory.
func TestKilledProcessLosesNothing(t *testing.T) {
	kills := 4
	if text := os.Getenv(killsEnv); text != "" {
		var err error
		if kills, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	acked := make(map[uint64]bool)
	const stride = 1 << 32 // numbers of different children differ
	applied := 0
	for round := range kills {
		child, first, wait := startChild(t, dir, uint64(round)*stride, acked)
		<-first
		timer := time.NewTimer(time.Duration(rand.IntN(150_000)) * time.Microsecond)
		<-timer.C
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		var exit *exec.ExitError
		if err := wait(); !errors.As(err, &exit) || exit.ExitCode() != -1 {
			t.Fatalf("round %d: the child ended by itself: %v", round, err)
		}
		applied = checkLedger(t, dir, acked, uint64(round+1)*stride)
	}
	t.Logf("%d kills: %d acknowledged, %d applied", kills, len(acked), applied)
}
