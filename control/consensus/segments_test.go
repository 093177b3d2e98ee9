package consensus

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"pgregory.net/rapid"
)

// openTestSegments opens a log with small segments and its votes.
func openTestSegments(t testing.TB, dir string, at progress) (*segmentLog, func(), error) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(dir, votesName)); errors.Is(err, os.ErrNotExist) {
		if err := createVotes(dir); err != nil {
			t.Fatal(err)
		}
	}
	votes, err := openVotes(dir)
	if err != nil {
		t.Fatal(err)
	}
	log, err := openSegments(dir, 64<<10, votes, at, newRaftLogger(quietConfig(dir).Logger, "log"))
	closeBoth := func() {
		if log != nil {
			err = errors.Join(err, log.Close())
		}
		if err := errors.Join(err, votes.Close()); err != nil {
			t.Error(err)
		}
	}
	if err != nil {
		if err := votes.Close(); err != nil {
			t.Error(err)
		}
		return nil, nil, err
	}
	return log, closeBoth, nil
}

func sizedEntry(index uint64, size int) *raft.Log {
	return &raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: ledgerEntry(index, size)}
}

func mustOpenSegments(t testing.TB, dir string) (*segmentLog, func()) {
	t.Helper()
	log, closeBoth, err := openTestSegments(t, dir, progress{})
	if err != nil {
		t.Fatal(err)
	}
	return log, closeBoth
}

// TestLogAgainstModel runs random appends, cuts at both ends and restarts against a slice.
func TestLogAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir := t.TempDir()                       // another one at each call
		defer func() { _ = os.RemoveAll(dir) }() // or they would pile up until the test ends
		log, closeBoth := mustOpenSegments(t, dir)
		defer func() { closeBoth() }()
		var model []*raft.Log // what is in the log
		next := uint64(1)
		step := func(name string, err error) {
			if err != nil {
				rt.Fatalf("%s: %v", name, err)
			}
		}
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			switch rapid.SampledFrom([]string{"append", "append", "append", "cut head", "cut tail", "restart"}).Draw(rt, "step") {
			case "append":
				var batch []*raft.Log
				size := rapid.IntRange(0, 20_000).Draw(rt, "bytes")
				for range rapid.IntRange(1, 6).Draw(rt, "entries") {
					batch = append(batch, sizedEntry(next, size))
					next++
				}
				step("append", log.StoreLogs(batch))
				model = append(model, batch...)
			case "cut head":
				if n := len(model); n > 1 {
					keep := rapid.IntRange(1, n-1).Draw(rt, "from")
					step("cut head", log.DeleteRange(model[0].Index, model[keep].Index-1))
					model = slices.Clone(model[keep:])
				}
			case "cut tail":
				if n := len(model); n > 1 {
					keep := rapid.IntRange(1, n-1).Draw(rt, "from")
					step("cut tail", log.DeleteRange(model[keep].Index, model[n-1].Index))
					model = slices.Clone(model[:keep])
					next = model[keep-1].Index + 1
				}
			case "restart":
				closeBoth()
				log, closeBoth = mustOpenSegments(t, dir)
			}
			checkLog(rt, log, model)
		}
	})
}

func checkLog(rt *rapid.T, log *segmentLog, model []*raft.Log) {
	first, err := log.FirstIndex()
	last, lastErr := log.LastIndex()
	if err := errors.Join(err, lastErr); err != nil {
		rt.Fatal(err)
	}
	if len(model) == 0 {
		if first != 0 || last != 0 {
			rt.Fatalf("an empty log has %d to %d", first, last)
		}
		return
	}
	if first != model[0].Index || last != model[len(model)-1].Index {
		rt.Fatalf("the log has %d to %d, want %d to %d", first, last, model[0].Index, model[len(model)-1].Index)
	}
	for _, want := range model {
		var got raft.Log
		if err := log.GetLog(want.Index, &got); err != nil || got.Index != want.Index || string(got.Data) != string(want.Data) {
			rt.Fatalf("entry %d: %v", want.Index, err)
		}
	}
	if err := log.GetLog(last+1, new(raft.Log)); !errors.Is(err, raft.ErrLogNotFound) {
		rt.Fatalf("entry %d, after the last: %v", last+1, err)
	}
}

// interruptedVotes copies the directory at the moment when a rotation is about to be recorded.
type interruptedVotes struct {
	raft.StableStore
	onSegments func()
}

func (v interruptedVotes) Set(key, value []byte) error {
	if string(key) == keySegments {
		v.onSegments()
	}
	return v.StableStore.Set(key, value)
}

// TestInterruptedRotation restarts from what the disk held between the write that filled a segment and the record of the next.
func TestInterruptedRotation(t *testing.T) {
	dir, crashed := t.TempDir(), filepath.Join(t.TempDir(), "crashed")
	log, closeBoth := mustOpenSegments(t, dir)
	defer closeBoth()
	copies := 0
	log.meta.votes = interruptedVotes{StableStore: log.meta.votes, onSegments: func() {
		copyDir(t, crashed, dir)
		copies++
	}}
	index := uint64(1)
	for ; copies == 0; index++ {
		if err := log.StoreLog(sizedEntry(index, 5000)); err != nil {
			t.Fatal(err)
		}
	}
	again, closeAgain := mustOpenSegments(t, crashed)
	defer closeAgain()
	if last, err := again.LastIndex(); last != index-1 || err != nil {
		t.Fatalf("the log ends at %d, %v, want %d", last, err, index-1)
	}
	for range 30 {
		if err := again.StoreLog(sizedEntry(index, 5000)); err != nil {
			t.Fatalf("entry %d after the restart: %v", index, err)
		}
		index++
	}
	for i := uint64(1); i < index; i++ {
		if err := again.GetLog(i, new(raft.Log)); err != nil {
			t.Fatalf("entry %d: %v", i, err)
		}
	}
}

// TestFailedRotationFailsTheWrite: the library would log it and fail the next write with another error.
func TestFailedRotationFailsTheWrite(t *testing.T) {
	log, closeBoth := mustOpenSegments(t, t.TempDir())
	defer closeBoth()
	cause := errors.New("no space left on device")
	store := newFakeStore()
	store.err = cause
	log.meta.votes = store
	for index := uint64(1); ; index++ {
		err := log.StoreLog(sizedEntry(index, 5000))
		if errors.Is(err, cause) {
			return
		}
		if err != nil || index > 20 {
			t.Fatalf("entry %d: %v", index, err)
		}
	}
}

// TestSegmentFilesAreAccountedFor: the library would delete the one and make the other anew.
func TestSegmentFilesAreAccountedFor(t *testing.T) {
	dir := t.TempDir()
	log, closeBoth := mustOpenSegments(t, dir)
	for index := uint64(1); index <= 40; index++ {
		if err := log.StoreLog(sizedEntry(index, 5000)); err != nil {
			t.Fatal(err)
		}
	}
	closeBoth()
	files, err := filepath.Glob(filepath.Join(dir, segmentsDirName, "*.wal"))
	if err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	last := files[len(files)-1]
	t.Run("newer than the list", func(t *testing.T) {
		extra := filepath.Join(filepath.Dir(last), "00000000000000000099-0000000000000063.wal")
		writeFile(t, extra, []byte("evidence"))
		if _, _, err := openTestSegments(t, dir, progress{}); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("opened: %v", err)
		}
		if string(readFile(t, extra)) != "evidence" {
			t.Fatal("the file was changed")
		}
		if err := os.Remove(extra); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("last is missing", func(t *testing.T) {
		if err := os.Rename(last, last+".away"); err != nil {
			t.Fatal(err)
		}
		if _, _, err := openTestSegments(t, dir, progress{LastIndex: 40}); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("opened: %v", err)
		}
		if err := os.Rename(last+".away", last); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("whole", func(t *testing.T) {
		_, closeBoth, err := openTestSegments(t, dir, progress{LastIndex: 40})
		if err != nil {
			t.Fatal(err)
		}
		closeBoth()
	})
}

// TestTornFillOfASegment cuts and zeroes the end of the write that was to fill a segment: its entries, the segment's index, or the
// frame that commits them. What was stored before is there, and the log goes on.
func TestTornFillOfASegment(t *testing.T) {
	for name, size := range map[string]int{"many entries": 5000, "one entry": 70_000} {
		dir, crashed := t.TempDir(), filepath.Join(t.TempDir(), "crashed")
		log, closeBoth := mustOpenSegments(t, dir)
		copies := 0
		log.meta.votes = interruptedVotes{StableStore: log.meta.votes, onSegments: func() {
			copyDir(t, crashed, dir)
			copies++
		}}
		index := uint64(1)
		for ; copies < 2; index++ { // the second segment's: the first one's write also has the file's header
			if err := log.StoreLog(sizedEntry(index, size)); err != nil {
				t.Fatal(err)
			}
		}
		closeBoth()
		last := index - 1
		for _, torn := range []int{1, 8, 12, 17, 40, 70, 4000} {
			for _, cut := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, %d bytes, cut %v", name, torn, cut), func(t *testing.T) {
					work := filepath.Join(t.TempDir(), "copy")
					copyDir(t, work, crashed)
					tearTail(t, work, torn, cut)
					log, closeBoth := mustOpenSegments(t, work)
					defer closeBoth()
					end, err := log.LastIndex()
					if err != nil || (end != last && end != last-1) {
						t.Fatalf("the log ends at %d, %v, want %d or the one before", end, err, last)
					}
					for next := end + 1; next <= end+20; next++ {
						if err := log.StoreLog(sizedEntry(next, size)); err != nil {
							t.Fatalf("entry %d: %v", next, err)
						}
					}
					for i := uint64(1); i <= end+20; i++ {
						var got raft.Log
						if err := log.GetLog(i, &got); err != nil || string(got.Data) != string(sizedEntry(i, size).Data) {
							t.Fatalf("entry %d: %v", i, err)
						}
					}
				})
			}
		}
	}
}

// tearTail takes the last bytes of what was written to the newest segment.
func tearTail(t *testing.T, dir string, torn int, cut bool) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, segmentsDirName, "*.wal"))
	if err != nil || len(logs) == 0 {
		t.Fatal(logs, err)
	}
	path := logs[len(logs)-1]
	data := readFile(t, path)
	end := len(strings.TrimRight(string(data), "\x00"))
	clear(data[end-torn:])
	if cut {
		data = data[:end-torn]
	}
	writeFile(t, path, data)
}
