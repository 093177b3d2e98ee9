package agent

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// The garbage collector's settings of a process that runs a cell. Most of what a request allocates is garbage at its end, while the jobs that wait
// are all of what is kept, so that at the runtime's default a cell with few jobs collects many times a second for a few megabytes each: some 5% of
// what a submission costs.
const (
	// gcPercentMax is how much garbage may be made before a collection, in percent of what is live, as long as that is little.
	gcPercentMax = 400
	// gcPercentMin is the runtime's default, for a large state: it decides what a machine has to have.
	gcPercentMin = 100
	// gcExtraBytes is what the process may use beyond what it would by the default. It is what lowers the percentage as the state grows.
	gcExtraBytes = 256 << 20
	// gcStep is what the percentage is a multiple of: each change of it stops the world for a moment.
	gcStep = 25
	// gcInterval is how often the percentage is set anew. A state cannot grow by much in it.
	gcInterval = time.Second
)

// tuneCollector sets the garbage collector's percentage until ctx ends, and then as it was. It leaves it alone when the environment says GOGC:
// the user has decided.
func tuneCollector(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	percent := gcPercentMax
	before := debug.SetGCPercent(percent)
	defer debug.SetGCPercent(before)
	tick := time.NewTicker(gcInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		metrics.Read(live)
		if next := gcPercent(live[0].Value.Uint64()); next != percent {
			percent = next
			debug.SetGCPercent(percent)
		}
	}
}

// gcPercent returns the percentage for so many live bytes.
func gcPercent(live uint64) int {
	if live == 0 {
		return gcPercentMax
	}
	extra := int(min(gcPercentMax-gcPercentMin, gcExtraBytes*100/live))
	return gcPercentMin + extra/gcStep*gcStep
}

// background is a goroutine that ends with the agent.
type background struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// start runs f until end is called; that ctx, the start's, ends does not end it.
func (b *background) start(ctx context.Context, f func(context.Context)) {
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	b.cancel, b.done = cancel, make(chan struct{})
	go func() {
		defer close(b.done)
		f(run)
	}()
}

func (b *background) end() {
	b.cancel()
	<-b.done
}
