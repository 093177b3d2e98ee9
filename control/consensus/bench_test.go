package consensus

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// recordBytes is one small command, such as a submission.
const recordBytes = 256

// BenchmarkFsync is the yardstick: one write of 4 KiB into a file whose blocks exist, and its fsync.
func BenchmarkFsync(b *testing.B) {
	file, err := os.Create(filepath.Join(b.TempDir(), "file"))
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	block := make([]byte, 4<<10)
	const blocks = 4096
	for i := range blocks {
		if _, err := file.WriteAt(block, int64(i)*int64(len(block))); err != nil {
			b.Fatal(err)
		}
	}
	if err := file.Sync(); err != nil {
		b.Fatal(err)
	}
	var took durations
	i := 0
	for b.Loop() {
		start := time.Now()
		if _, err := file.WriteAt(block, int64(i%blocks)*int64(len(block))); err != nil {
			b.Fatal(err)
		}
		if err := file.Sync(); err != nil {
			b.Fatal(err)
		}
		took.add(time.Since(start))
		i++
	}
	took.report(b)
}

// BenchmarkPropose has callers that each wait for an entry before they propose the next.
func BenchmarkPropose(b *testing.B) {
	for _, callers := range []int{1, 64, 1024} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			g := openGroup(b, quietConfig(b.TempDir()), &fakeMachine{})
			defer closeGroup(b, g)
			data := make([]byte, recordBytes)
			runCallers(b, callers, func(ctx context.Context) error {
				_, _, err := g.Propose(data).Wait(ctx)
				return err
			})
		})
	}
}

// BenchmarkGroupCommit has the same callers share entries: one entry in flight while the next one fills, up to 256 KiB.
func BenchmarkGroupCommit(b *testing.B) {
	for _, callers := range []int{64, 1024} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			g := openGroup(b, quietConfig(b.TempDir()), &fakeMachine{})
			defer closeGroup(b, g)
			records := make(chan chan error, callers)
			var packer sync.WaitGroup
			packer.Go(func() { packEntries(b.Context(), g, records) })
			runCallers(b, callers, func(context.Context) error {
				reply := make(chan error, 1)
				records <- reply
				return <-reply
			})
			close(records)
			packer.Wait()
		})
	}
}

func packEntries(ctx context.Context, g *Group, records <-chan chan error) {
	const entryRecords = 256 << 10 / recordBytes
	for first := range records {
		waiting := []chan error{first}
	fill:
		for len(waiting) < entryRecords {
			select {
			case next, ok := <-records:
				if !ok {
					break fill
				}
				waiting = append(waiting, next)
			default:
				break fill
			}
		}
		_, _, err := g.Propose(make([]byte, len(waiting)*recordBytes)).Wait(ctx)
		for _, reply := range waiting {
			reply <- err
		}
	}
}

// BenchmarkEntry is the latency of one entry at a time, by size, back to back.
func BenchmarkEntry(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10, 256 << 10} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			g := openGroup(b, quietConfig(b.TempDir()), &fakeMachine{})
			defer closeGroup(b, g)
			data := make([]byte, size)
			var took, write durations
			for b.Loop() {
				start := time.Now()
				propose(b, g, data)
				took.add(time.Since(start))
				write.add(g.Stats().LastWrite)
			}
			took.report(b)
			write.reportAs(b, "write-p50-µs")
		})
	}
}

// BenchmarkPaced proposes 200 single entries a second.
func BenchmarkPaced(b *testing.B) {
	g := openGroup(b, quietConfig(b.TempDir()), &fakeMachine{})
	defer closeGroup(b, g)
	data := make([]byte, recordBytes)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	var took, write durations
	for b.Loop() {
		<-tick.C
		start := time.Now()
		propose(b, g, data)
		took.add(time.Since(start))
		write.add(g.Stats().LastWrite)
	}
	took.report(b)
	write.reportAs(b, "write-p50-µs")
}

// BenchmarkOpen is a restart with 64 MiB of log to verify and to replay.
func BenchmarkOpen(b *testing.B) {
	cfg := quietConfig(b.TempDir())
	cfg.SnapshotBytes = 1 << 40
	g := openGroup(b, cfg, &fakeMachine{})
	for range 64 << 20 / (16 << 10) {
		propose(b, g, make([]byte, 16<<10))
	}
	closeGroup(b, g)
	for b.Loop() {
		g := openGroup(b, cfg, &fakeMachine{})
		closeGroup(b, g)
	}
}

// runCallers runs b.N operations on callers goroutines.
func runCallers(b *testing.B, callers int, do func(context.Context) error) {
	var left atomic.Int64
	left.Store(int64(b.N))
	var all durations
	var mu sync.Mutex
	var running sync.WaitGroup
	b.ResetTimer()
	for range callers {
		running.Go(func() {
			var took durations
			for left.Add(-1) >= 0 {
				start := time.Now()
				if err := do(b.Context()); err != nil {
					b.Error(err)
					return
				}
				took.add(time.Since(start))
			}
			mu.Lock()
			all = append(all, took...)
			mu.Unlock()
		})
	}
	running.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "op/s")
	all.report(b)
}

type durations []time.Duration

func (d *durations) add(one time.Duration) { *d = append(*d, one) }

func (d durations) report(b *testing.B) {
	d.reportAs(b, "p50-µs")
	b.ReportMetric(float64(d[len(d)*99/100].Nanoseconds())/1e3, "p99-µs")
}

func (d durations) reportAs(b *testing.B, unit string) {
	slices.Sort(d)
	b.ReportMetric(float64(d[len(d)/2].Nanoseconds())/1e3, unit)
}
