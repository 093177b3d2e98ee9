package bench

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/control/consensus"
)

// recordBytes is a job's size in the log, as a cell counts it that got batches of the benchmark's jobs.
const recordBytes = 148

// preallocated returns a file of so many bytes, all of which were written and made durable.
func preallocated(tb testing.TB, bytes int) *os.File {
	tb.Helper()
	f, err := os.Create(filepath.Join(tb.TempDir(), "file"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = f.Close() })
	if _, err := f.Write(make([]byte, bytes)); err != nil {
		tb.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		tb.Fatal(err)
	}
	return f
}

const fsyncBlock = 4 << 10

// fdatasyncs returns the median time of n writes of 4 KiB, each made durable.
func fdatasyncs(tb testing.TB, f *os.File, n int) time.Duration {
	tb.Helper()
	block := make([]byte, fsyncBlock)
	took := make([]time.Duration, n)
	for i := range took {
		began := time.Now()
		if _, err := f.WriteAt(block, int64(i%fsyncBlocks*fsyncBlock)); err != nil {
			tb.Fatal(err)
		}
		if err := datasync(f); err != nil {
			tb.Fatal(err)
		}
		took[i] = time.Since(began)
	}
	slices.Sort(took)
	return took[n/2]
}

const fsyncBlocks = 1024

// writers are what waits for a record to be durable: one channel for each of callers, into which a committer answers.
type writers struct {
	records chan int
	durable []chan error
}

func newWriters(callers int) *writers {
	w := &writers{records: make(chan int, callers), durable: make([]chan error, callers)}
	for i := range w.durable {
		w.durable[i] = make(chan error, 1)
	}
	return w
}

func (w *writers) do(caller int) error {
	w.records <- caller
	return <-w.durable[caller]
}

// commit gathers what is there, and writes it at once, until the records end.
func (w *writers) commit(write func(records int) error) {
	var batch []int
	for first := range w.records {
		batch = append(batch[:0], first)
		for more := true; more; {
			select {
			case next, open := <-w.records:
				if more = open; open {
					batch = append(batch, next)
				}
			default:
				more = false
			}
		}
		err := write(len(batch))
		for _, caller := range batch {
			w.durable[caller] <- err
		}
	}
}

// load starts the committer, which ends with the test.
func (w *writers) load(tb testing.TB, write func(records int) error) load {
	tb.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.commit(write)
	}()
	tb.Cleanup(func() {
		close(w.records)
		<-done
	})
	return load{callers: len(w.durable), each: 1, do: w.do}
}

// groupCommit is the load of callers that append records to one file and share fdatasyncs.
func groupCommit(tb testing.TB, callers int) load {
	tb.Helper()
	const fileBytes = 16 << 20
	f := preallocated(tb, fileBytes)
	buf := make([]byte, callers*recordBytes)
	at := 0
	return newWriters(callers).load(tb, func(records int) error {
		n := records * recordBytes
		if at+n > fileBytes {
			at = 0
		}
		if _, err := f.WriteAt(buf[:n], int64(at)); err != nil {
			return err
		}
		at += n
		return datasync(f)
	})
}

// logAlone is the same over the log of a cell, without the cell.
func logAlone(tb testing.TB, callers int) load {
	tb.Helper()
	cfg := consensus.DefaultConfig(filepath.Join(tb.TempDir(), "log"), "log-1")
	cfg.Logger = slog.New(slog.DiscardHandler)
	g, err := consensus.Open(cfg, nothing{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := g.Close(); err != nil {
			tb.Error(err)
		}
	})
	if err := g.Ready(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return newWriters(callers).load(tb, func(records int) error {
		_, _, err := g.Propose(make([]byte, records*recordBytes)).Wait(context.WithoutCancel(tb.Context()))
		return err
	})
}
