package consensus

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// writeSample fills a directory with several segments, two snapshots, a log that continues the newer one, and the votes of
// two terms. It returns the machine that applied it all.
func writeSample(t testing.TB, dir string) *ledger {
	t.Helper()
	cfg := crashConfig(dir)
	cfg.SnapshotBytes = 1 << 30
	var l *ledger
	number := uint64(0)
	for range 2 {
		l = newLedger()
		g := openGroup(t, cfg, l)
		for i := range 60 {
			number++
			propose(t, g, ledgerEntry(number, 100+97*(i%31)))
			if i == 25 {
				if err := g.SnapshotNow(testContext(t)); err != nil {
					t.Fatal(err)
				}
			}
		}
		closeGroup(t, g)
	}
	return l
}

// openOutcome opens a directory and says what happened: nil when it opened with exactly what want holds, ErrCorrupt when it was
// refused so, and anything else for anything else.
func openOutcome(t testing.TB, dir string, want *ledger) error {
	got := newLedger()
	g, err := Open(crashConfig(dir), got)
	if err != nil {
		return err
	}
	defer func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := g.Ready(testContext(t)); err != nil {
		return err
	}
	got.mu.Lock()
	defer got.mu.Unlock()
	if got.fault != nil {
		return got.fault
	}
	if len(got.numbers) != len(want.numbers) {
		return errors.New("opened with other contents than were written")
	}
	for number, index := range want.numbers {
		if got.numbers[number] != index {
			return errors.New("opened with other contents than were written")
		}
	}
	return nil
}

// listFiles returns the files below dir that hold data, in a fixed order.
func listFiles(t testing.TB, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() && entry.Name() != lockName {
			name, relErr := filepath.Rel(dir, path)
			names = append(names, name)
			err = relErr
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func copyDir(t testing.TB, to, from string) {
	t.Helper()
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func writeFile(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// sameFiles reports the files of want that are missing or different in got.
func sameFiles(t testing.TB, got, want string) (differ []string) {
	t.Helper()
	for _, name := range listFiles(t, want) {
		data, err := os.ReadFile(filepath.Join(got, name))
		if err != nil || string(data) != string(readFile(t, filepath.Join(want, name))) {
			differ = append(differ, name)
		}
	}
	return differ
}

// TestDamageIsRefusedOrHarmless flips bits, zeroes ranges, cuts and removes files. A directory then opens with exactly what was
// written, or is refused as corrupt, with the damage and every other file of the log as they were. It never opens with less.
func TestDamageIsRefusedOrHarmless(t *testing.T) {
	sample, work, damaged := t.TempDir(), filepath.Join(t.TempDir(), "copy"), filepath.Join(t.TempDir(), "damaged")
	want := writeSample(t, sample)
	names := listFiles(t, sample)
	outcomes := make(map[string]int)
	rapid.Check(t, func(rt *rapid.T) {
		copyDir(t, work, sample)
		name := rapid.SampledFrom(names).Draw(rt, "file")
		path := filepath.Join(work, name)
		data := readFile(t, path)
		used := len(strings.TrimRight(string(data), "\x00"))
		kind := rapid.SampledFrom([]string{"flip", "flip", "flip", "flip", "zero", "cut", "remove"}).Draw(rt, "damage")
		at := rapid.IntRange(0, max(used-1, 0)).Draw(rt, "offset")
		switch kind {
		case "flip":
			data[at] ^= 1 << rapid.IntRange(0, 7).Draw(rt, "bit")
			writeFile(t, path, data)
		case "zero":
			clear(data[at:min(len(data), at+rapid.SampledFrom([]int{1, 8, 512, 4096}).Draw(rt, "bytes"))])
			writeFile(t, path, data)
		case "cut":
			writeFile(t, path, data[:at])
		case "remove":
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
		copyDir(t, damaged, work)
		err := openOutcome(t, work, want)
		switch {
		case err == nil:
			outcomes[kind+" harmless"]++
		case !errors.Is(err, ErrCorrupt):
			rt.Fatalf("%s of %s at %d: %v", kind, name, at, err)
		default:
			outcomes[kind+" refused"]++
			differ := slices.DeleteFunc(sameFiles(t, work, damaged), func(changed string) bool {
				// Opening the undamaged store of votes counts up its transactions.
				return changed == votesName && name != votesName
			})
			if len(differ) > 0 {
				rt.Fatalf("%s of %s at %d: refused (%v), but changed %v", kind, name, at, err, differ)
			}
		}
	})
	t.Log(outcomes)
}

// TestTornTailIsRepaired cuts off the last write of a log. When the mark was not moved yet, nobody was told that it was stored,
// and the log ends before it. When the mark was moved, the same bytes are damage.
func TestTornTailIsRepaired(t *testing.T) {
	before, after := t.TempDir(), t.TempDir()
	want := writeSample(t, before)
	copyDir(t, after, before)
	cfg := crashConfig(after)
	cfg.SnapshotBytes = 1 << 30
	l := newLedger()
	g := openGroup(t, cfg, l)
	lastOfTerm := g.Stats().LastIndex
	unmarked := readFile(t, filepath.Join(after, markName))
	propose(t, g, ledgerEntry(1000, 2000))
	closeGroup(t, g)
	logs, err := filepath.Glob(filepath.Join(after, segmentsDirName, "*.wal"))
	if err != nil {
		t.Fatal(err)
	}
	tail := logs[len(logs)-1]
	whole := readFile(t, tail)
	end := len(strings.TrimRight(string(whole), "\x00"))
	for name, torn := range map[string]int{"commit frame": 4, "half": 1000, "all but the header": 2000} {
		t.Run(name, func(t *testing.T) {
			cut := append([]byte{}, whole...)
			clear(cut[end-torn:])
			dir := filepath.Join(t.TempDir(), "copy")
			copyDir(t, dir, after)
			writeFile(t, filepath.Join(dir, segmentsDirName, filepath.Base(tail)), cut)
			if err := openOutcome(t, dir, want); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("with the mark at the entry: %v, want it refused", err)
			}
			writeFile(t, filepath.Join(dir, markName), unmarked)
			l := newLedger()
			g := openGroup(t, crashConfig(dir), l)
			defer closeGroup(t, g)
			if len(l.numbers) != len(want.numbers) {
				t.Fatalf("%d numbers, want %d", len(l.numbers), len(want.numbers))
			}
			if _, index := propose(t, g, ledgerEntry(1001, 10)); index <= lastOfTerm {
				t.Fatalf("index %d after %d", index, lastOfTerm)
			}
		})
	}
}
