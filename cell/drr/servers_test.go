package drr_test

import (
	"container/heap"
	"math/rand/v2"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell/drr"
)

type fataler interface {
	Helper()
	Fatal(...any)
}

// ring makes a Ring with the sets from 0 on open.
func ring(t fataler, quantum int64, sets int) *drr.Ring[int] {
	t.Helper()
	return ringOf(t, drr.Config{Quantum: quantum, FlowsMax: 1 << 20}, sets)
}

func ringOf(t fataler, cfg drr.Config, sets int) *drr.Ring[int] {
	t.Helper()
	r, err := drr.New[int](cfg)
	if err != nil {
		t.Fatal(err)
	}
	for set := range sets {
		if err := r.OpenSet(drr.SetID(set)); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// random is a source seeded by the test's own.
func random(t *rapid.T) *rand.Rand {
	return rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
}

// running is a job on a server.
type running struct {
	end, seq         int64
	set              drr.SetID
	flow             *drr.Flow[int]
	declared, actual int64
}

type byEnd []running

func (h byEnd) Len() int { return len(h) }
func (h byEnd) Less(i, j int) bool {
	return h[i].end < h[j].end || h[i].end == h[j].end && h[i].seq < h[j].seq
}
func (h byEnd) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *byEnd) Push(x any)   { *h = append(*h, x.(running)) } //nolint:errcheck // only what runs is pushed
func (h *byEnd) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// runServers serves jobs on as many servers per set as given, in virtual time, and returns the time that each flow
// has used. A job's actual cost is the time it runs. Flows whose jobs never end are active all the time.
func runServers(r *drr.Ring[int], perSet []int, jobs int, job func(*drr.Flow[int]) (declared, actual int64),
	settle bool,
) map[int]int64 {
	var (
		h    byEnd
		now  int64
		seq  int64
		used = map[int]int64{}
	)
	start := func(set drr.SetID) {
		f, ok := r.Next(set)
		if !ok {
			return
		}
		declared, actual := job(f)
		r.Charge(f, set, declared)
		seq++
		heap.Push(&h, running{end: now + actual, seq: seq, set: set, flow: f, declared: declared, actual: actual})
	}
	for set, servers := range perSet {
		for range servers {
			start(drr.SetID(set))
		}
	}
	for range jobs {
		if len(h) == 0 {
			break
		}
		j := heap.Pop(&h).(running) //nolint:errcheck // only what runs is pushed
		now = j.end
		used[j.flow.Value] += j.actual
		if settle {
			r.Settle(j.flow, j.set, j.actual-j.declared)
		}
		start(j.set)
	}
	return used
}
