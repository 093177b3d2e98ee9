package drr_test

import (
	"container/heap"
	"math/rand/v2"
	"testing"

	"github.com/fairlead/fairlead/cell/drr"
)

// tenant is a flow whose jobs come and go.
type tenant struct {
	declared, actual int64
	waiting          int
	think            int64 // after a job ends, the time until the next is submitted; negative: none is
	used             int64
	started, gap     int64 // the last start, and the longest time between two
	flow             *drr.Flow[*tenant]
}

// event is something that happens at a time.
type event struct {
	at, seq int64
	do      func()
}

type events []event

func (h events) Len() int { return len(h) }
func (h events) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h events) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *events) Push(x any)   { *h = append(*h, x.(event)) } //nolint:errcheck // only events are pushed
func (h *events) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// floor is servers that serve tenants in virtual microseconds. A job that has run for what it was charged is charged
// as much again if overruns says so; all are settled when they end.
type floor struct {
	tb       testing.TB
	ring     *drr.Ring[*tenant]
	free     int
	overruns bool
	now, seq int64
	pending  events
}

func newFloor(tb testing.TB, quantum int64, servers int, overruns bool) *floor {
	tb.Helper()
	r := must(drr.New[*tenant](drr.Config{Quantum: quantum, FlowsMax: 100}))(tb)
	if err := r.OpenSet(0); err != nil {
		tb.Fatal(err)
	}
	return &floor{tb: tb, ring: r, free: servers, overruns: overruns}
}

func (f *floor) after(d int64, do func()) {
	f.seq++
	heap.Push(&f.pending, event{at: f.now + d, seq: f.seq, do: do})
}

func (f *floor) add(t *tenant) *tenant {
	t.flow = must(f.ring.NewFlow(t, drr.WeightUnit))(f.tb)
	t.started = f.now
	if t.waiting > 0 {
		f.ring.Activate(t.flow, 0)
	}
	f.dispatch()
	return t
}

func (f *floor) submit(t *tenant, jobs int) {
	t.waiting += jobs
	f.ring.Activate(t.flow, 0)
	f.dispatch()
}

func (f *floor) dispatch() {
	for f.free > 0 {
		flow, ok := f.ring.Next(0)
		if !ok {
			return
		}
		t := flow.Value
		f.free--
		t.waiting--
		f.ring.Charge(flow, 0, t.declared)
		if t.waiting == 0 {
			f.ring.Deactivate(flow, 0)
		}
		t.gap = max(t.gap, f.now-t.started)
		t.started = f.now
		f.run(t)
	}
}

func (f *floor) run(t *tenant) {
	charged, done := t.declared, false
	var overrun func()
	overrun = func() {
		if done {
			return
		}
		more := charged
		f.ring.Settle(t.flow, 0, more)
		charged += more
		f.after(more, overrun)
	}
	if f.overruns {
		f.after(t.declared, overrun)
	}
	f.after(t.actual, func() {
		done = true
		t.used += t.actual
		f.ring.Settle(t.flow, 0, t.actual-charged)
		f.free++
		if t.think >= 0 {
			f.after(t.think, func() { f.submit(t, 1) })
		}
		f.dispatch()
	})
}

func (f *floor) runUntil(end int64) {
	for len(f.pending) > 0 && f.pending[0].at <= end {
		e := heap.Pop(&f.pending).(event) //nolint:errcheck // only events are pushed
		f.now = e.at
		e.do()
	}
	f.now = end
	if err := f.ring.Check(); err != nil {
		f.tb.Fatal(err)
	}
}

const second = 1_000_000

// each runs a test for quanta below, at and above the costs in it, with and without overruns charged while they happen.
func eachFloor(t *testing.T, test func(t *testing.T, f *floor)) {
	t.Helper()
	for _, quantum := range []int64{1_000, 2_000, 5_000, 10_000} {
		for _, overruns := range []bool{false, true} {
			name := map[bool]string{false: "settled at the end", true: "overruns charged"}[overruns]
			t.Run(drr.Weight(quantum).String()+" ms, "+name, func(t *testing.T) {
				test(t, newFloor(t, quantum, 4, overruns))
			})
		}
	}
}

// TestDebtToAnAbsentRival has a flow that declares a tenth of its cost beside an honest one that has only six short
// jobs, and so sometimes none waiting for 20 microseconds. The honest one must keep its half; if the round jumped
// when the other waits alone, that would get from 2.4 to 3.6 of the four servers.
func TestDebtToAnAbsentRival(t *testing.T) {
	for _, short := range []int64{500, 1_000, 3_000} {
		eachFloor(t, func(t *testing.T, f *floor) {
			liar := f.add(&tenant{declared: 1_000, actual: 10_000, waiting: 1_000})
			f.add(&tenant{declared: short, actual: short, waiting: 6, think: 20})
			f.runUntil(10 * second)
			got := float64(liar.used) / (10 * second)
			t.Logf("short jobs of %d: %.2f servers", short, got)
			// A quantum of ten of the honest one's jobs favours who always has work, whatever it declares.
			if got > 2.4 {
				t.Errorf("jobs of %d us: the flow that under-declares has %.2f of 4 servers", short, got)
			}
		})
	}
}

// bursts submits jobs at once, again and again.
func (f *floor) bursts(t *tenant, jobs int, every int64) {
	f.submit(t, jobs)
	f.after(every, func() { f.bursts(t, jobs, every) })
}

// TestBurstsBesideAClosedLoop has a flow whose jobs come two at a time, three servers' worth of them, beside one with four short jobs that are
// submitted again 20 microseconds after they end. Declaring what they cost it has exactly half of the four servers. Declaring a tenth it has
// half, or a little more where a job's true cost is not charged before its end; if the round jumped when it waits alone, it would have from 2.2
// to 3.0, and if it jumped by no more than the grant's own cost, from 2.2 to 2.9. What is left does not come from forgiven debt: it is the same
// if none is ever forgiven.
func TestBurstsBesideAClosedLoop(t *testing.T) {
	for _, short := range []int64{500, 1_000, 2_000} {
		for _, quantum := range []int64{1_000, 5_000, 10_000} {
			for _, overruns := range []bool{false, true} {
				used := func(declared int64) float64 {
					f := newFloor(t, quantum, 4, overruns)
					x := f.add(&tenant{declared: declared, actual: 10_000, think: -1})
					f.add(&tenant{declared: short, actual: short, waiting: 4, think: 20})
					f.bursts(x, 2, 6_666)
					f.runUntil(4 * second)
					return float64(x.used) / (4 * second)
				}
				honest, liar := used(10_000), used(1_000)
				t.Logf("jobs of %4d us, quantum %5d, overruns charged %5t: %.2f servers, declaring a tenth %.2f", short, quantum, overruns, honest, liar)
				most := 2.5
				if overruns {
					most = 2.15
				}
				if honest > 2.01 || liar > most {
					t.Errorf("jobs of %d us, quantum %d, overruns charged %t: %.2f of 4 servers, declaring a tenth %.2f", short, quantum, overruns, honest, liar)
				}
			}
		}
	}
}

// TestClosedLoopThatFillsTheServers is what no order of flows can change, and so no guarantee: a flow has four short jobs for four servers, so that
// none of it waits when they end, and all servers go to one that always has work and keeps them for longer. It has them by the ratio of
// their jobs' lengths, whether it declares them honestly or not.
func TestClosedLoopThatFillsTheServers(t *testing.T) {
	for _, declared := range []int64{1_000, 10_000} {
		f := newFloor(t, 1_000, 4, true)
		x := f.add(&tenant{declared: declared, actual: 10_000, waiting: 10_000})
		f.add(&tenant{declared: 1_000, actual: 1_000, waiting: 4, think: 20})
		f.runUntil(4 * second)
		if got, want := float64(x.used)/(4*second), 4*10.0/11; got < want-0.05 || got > want+0.05 {
			t.Errorf("declaring %d: %.2f of 4 servers, want %.2f", declared, got, want)
		}
	}
}

// TestNewcomerStarvesNobody has two flows that both declare a tenth of their cost, with any number of jobs each, and
// after ten seconds an honest third: all three have a third from then on, and none waits long.
func TestNewcomerStarvesNobody(t *testing.T) {
	for _, jobs := range []int{3, 4, 5, 6, 8, 1_000} {
		eachFloor(t, func(t *testing.T, f *floor) {
			a := f.add(&tenant{declared: 1_000, actual: 10_000, waiting: jobs, think: 20})
			b := f.add(&tenant{declared: 1_000, actual: 10_000, waiting: jobs, think: 20})
			f.runUntil(10 * second)
			a.gap, a.used, b.gap, b.used = 0, 0, 0, 0
			c := f.add(&tenant{declared: 10_000, actual: 10_000, waiting: 1_000})
			f.runUntil(14 * second)
			for i, x := range []*tenant{a, b, c} {
				if x.gap = max(x.gap, f.now-x.started); x.gap > 100_000 {
					t.Errorf("%d jobs each: flow %d is not served for %d us", jobs, i, x.gap)
				}
				if got := float64(x.used) / (4 * second); got < 1.15 {
					t.Errorf("%d jobs each: flow %d has %.2f of 4 servers", jobs, i, got)
				}
			}
		})
	}
}

// TestAloneIsNoDebt has a flow that declares a tenth of its cost run alone for ten seconds. That harmed nobody: it has
// its half as soon as another comes.
func TestAloneIsNoDebt(t *testing.T) {
	for _, jobs := range []int{4, 6, 1_000} {
		eachFloor(t, func(t *testing.T, f *floor) {
			a := f.add(&tenant{declared: 1_000, actual: 10_000, waiting: jobs, think: 20})
			f.runUntil(10 * second)
			a.gap, a.used = 0, 0
			f.add(&tenant{declared: 10_000, actual: 10_000, waiting: 1_000})
			f.runUntil(14 * second)
			if a.gap = max(a.gap, f.now-a.started); a.gap > 100_000 {
				t.Errorf("%d jobs: not served for %d us after another came", jobs, a.gap)
			}
			if got := float64(a.used) / (4 * second); got < 1.95 {
				t.Errorf("%d jobs: %.2f of 4 servers beside another", jobs, got)
			}
		})
	}
}

// TestDebtStaysBounded runs random closed loops, most of which declare too little, on random numbers of servers: no
// flow is ever further behind than LoneDebtMax of its largest charges and what may be running, whatever they take
// turns to do.
func TestDebtStaysBounded(t *testing.T) {
	pick := func(rng *rand.Rand, of ...int64) int64 { return of[rng.IntN(len(of))] }
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 1))
		quantum, servers := pick(rng, 1_000, 2_000, 5_000, 10_000), 1+rng.IntN(8)
		f := newFloor(t, quantum, servers, rng.IntN(2) == 0)
		var all []*tenant
		for range 1 + rng.IntN(4) {
			actual := pick(rng, 1_000, 3_000, 10_000, 30_000)
			all = append(all, f.add(&tenant{
				declared: actual / pick(rng, 1, 2, 10), actual: actual,
				waiting: 1 + rng.IntN(2*servers), think: pick(rng, 20, 20, 1_000, 20_000),
			}))
		}
		for step := range int64(50) {
			f.runUntil(2*second + step*37_777)
			for i, x := range all {
				a := x.flow.Account(0)
				if most := (drr.LoneDebtMax+int64(servers)+1)*max(a.Largest, x.actual) + quantum; a.Behind*quantum > most {
					t.Fatalf("seed %d: flow %d of %d is %d us behind, at most %d", seed, i, len(all), a.Behind*quantum, most)
				}
			}
		}
	}
}
