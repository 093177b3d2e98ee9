package bench

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// load is something that callers do over and over, each waiting for its answer before it goes on.
type load struct {
	callers int
	each    float64 // operations that one call counts for
	do      func(caller int) error
	cpu     func() time.Duration // what everything involved has used; nil when that is not known
}

// tally is what a load did.
type tally struct {
	operations float64
	took, cpu  time.Duration
}

func (t tally) rate() float64 { return t.operations / t.took.Seconds() }

// cpuEach is the CPU time of one operation.
func (t tally) cpuEach() time.Duration {
	if t.operations == 0 {
		return 0
	}
	return time.Duration(float64(t.cpu) / t.operations)
}

func (t *tally) add(u tally) {
	t.operations += u.operations
	t.took += u.took
	t.cpu += u.cpu
}

// run lets the callers go for d, and waits for the calls under way then: they count, and so does their time.
func (l load) run(tb testing.TB, d time.Duration) tally {
	tb.Helper()
	var calls atomic.Int64
	var over atomic.Bool
	errs := make([]error, l.callers)
	var running sync.WaitGroup
	cpu := l.used()
	began := time.Now()
	for i := range l.callers {
		running.Go(func() {
			for !over.Load() && errs[i] == nil {
				if errs[i] = l.do(i); errs[i] == nil {
					calls.Add(1)
				}
			}
		})
	}
	timer := time.AfterFunc(d, func() { over.Store(true) })
	defer timer.Stop()
	running.Wait()
	took := time.Since(began)
	if err := errors.Join(errs...); err != nil {
		tb.Fatal(err)
	}
	return tally{operations: float64(calls.Load()) * l.each, took: took, cpu: l.used() - cpu}
}

func (l load) used() time.Duration {
	if l.cpu == nil {
		return 0
	}
	return l.cpu()
}

// sliceTime is how long one side of a comparison goes before it is the other's turn: short against what other programs do to a machine, long
// against starting and stopping 64 callers.
const sliceTime = 250 * time.Millisecond

// compare lets two loads take turns until each had d, after a turn that does not count.
func compare(tb testing.TB, a, b load, d time.Duration) (of, to tally) {
	tb.Helper()
	slice := min(sliceTime, d)
	a.run(tb, slice)
	b.run(tb, slice)
	for range max(1, int(d/slice)) {
		of.add(a.run(tb, slice))
		to.add(b.run(tb, slice))
	}
	return of, to
}
