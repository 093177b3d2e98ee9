package drr_test

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell/drr"
)

// spread watches S/w of one flow less that of another while both are backlogged, and keeps its least and greatest
// value: their difference is the worst unfairness over any interval.
type spread struct {
	on           bool
	least, great float64
	bound        float64
}

func (s *spread) see(d float64) {
	s.least, s.great = min(s.least, d), max(s.great, d)
}

// TestBound holds every pair of backlogged flows to |Si/wi - Sj/wj| <= 2Q + Maxi/wi + Maxj/wj over every interval in
// which both are, while they and other flows come and go. A flow that arrives with a debt of more than its Max, kept
// from when it was alone, has that in place of Max.
func TestBound(t *testing.T) {
	worst := 0.0
	rapid.Check(t, func(t *rapid.T) {
		const quantum = 10_000
		r := ring(t, quantum, 1)
		n := rapid.IntRange(2, 6).Draw(t, "flows")
		top := rapid.SampledFrom([]int64{1, 5_000, 10_000, 50_000, 1_000_000, 1_000_000_000})
		cost := make([]*rapid.Generator[int64], n)
		flows, tops := make([]*drr.Flow[int], n), make([]float64, n)
		for i := range n {
			w := drr.Weight(rapid.SampledFrom([]int64{200, 1000, 1000, 1500, 3000, 10_000}).Draw(t, "weight"))
			flows[i] = must(r.NewFlow(i, w))(t)
			m := top.Draw(t, "largest cost")
			cost[i] = rapid.OneOf(rapid.Int64Range(1, m), rapid.Just(m))
			tops[i] = float64(m)
			r.Activate(flows[i], 0)
		}
		norm := func(i int, x float64) float64 { return x * 1000 / float64(flows[i].Weight()) }
		debt := func(i int) float64 {
			a := flows[i].Account(0)
			return float64(a.Behind*quantum) - norm(i, float64(a.Deficit))
		}
		seen := make([]spread, n*n)
		watch := func() {
			for i := range n {
				for j := range i {
					if !flows[i].Active(0) || !flows[j].Active(0) {
						continue
					}
					s := &seen[i*n+j]
					d := norm(i, float64(flows[i].Charged())) - norm(j, float64(flows[j].Charged()))
					if !s.on {
						*s = spread{
							on: true, least: d, great: d,
							bound: 2*quantum + max(norm(i, tops[i]), debt(i)) + max(norm(j, tops[j]), debt(j)),
						}
					}
					s.see(d)
					worst = max(worst, (s.great-s.least)/s.bound)
					if s.great-s.least > s.bound {
						t.Fatalf("flows %d and %d differ by %.0f, bound %.0f", i, j, s.great-s.least, s.bound)
					}
				}
			}
		}
		for range rapid.IntRange(20, 200).Draw(t, "steps") {
			if i := rapid.IntRange(0, 9*n).Draw(t, "toggle"); i < n {
				if flows[i].Active(0) {
					r.Deactivate(flows[i], 0)
				} else {
					r.Activate(flows[i], 0)
				}
				for j := range n {
					seen[i*n+j], seen[j*n+i] = spread{}, spread{}
				}
			}
			watch()
			if f, ok := r.Next(0); ok {
				r.Charge(f, 0, cost[f.Value].Draw(t, "cost"))
			}
			watch()
		}
	})
	t.Logf("worst: %.3f of the bound", worst)
}

// TestSharesFollowWeights wants, for any weights and costs, each of several backlogged flows to have its share of
// the cost, up to the bound, and so exactly in the long run.
func TestSharesFollowWeights(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const quantum = 10_000
		r := ring(t, quantum, 1)
		n := rapid.IntRange(2, 8).Draw(t, "flows")
		flows, tops := make([]*drr.Flow[int], n), make([]int64, n)
		var weights float64
		for i := range n {
			w := drr.Weight(rapid.Int64Range(100, 20_000).Draw(t, "weight"))
			weights += float64(w)
			flows[i] = must(r.NewFlow(i, w))(t)
			r.Activate(flows[i], 0)
			tops[i] = rapid.Int64Range(1, 200_000).Draw(t, "largest cost")
		}
		rng := random(t)
		var total float64
		for range 20_000 {
			f, _ := r.Next(0)
			c := 1 + rng.Int64N(tops[f.Value])
			r.Charge(f, 0, c)
			total += float64(c)
		}
		for i, f := range flows {
			w := float64(f.Weight())
			got, want := float64(f.Charged()), total*w/weights
			// A flow's distance from the ideal is a weighted mean of its distances from the others.
			var slack float64
			for j, g := range flows {
				pair := 2*quantum + float64(tops[i])*1000/w + float64(tops[j])*1000/float64(g.Weight())
				slack = max(slack, pair)
			}
			if math.Abs(got-want) > slack*w/1000 {
				t.Errorf("flow %d of weight %s: charged %.0f, want %.0f within %.0f", i, f.Weight(), got, want, slack*w/1000)
			}
		}
	})
}

// TestIdleForfeitsDeficit lets a flow leave in mid-round with any deficit and return later: it may have no more than
// a flow that was never there.
func TestIdleForfeitsDeficit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := ring(t, 1000, 1)
		a, b, c := must(r.NewFlow(0, 1000))(t), must(r.NewFlow(1, 1000))(t), must(r.NewFlow(2, 1000))(t)
		r.Activate(a, 0)
		r.Activate(b, 0)
		f, _ := r.Next(0)
		r.Charge(f, 0, rapid.Int64Range(1, 999).Draw(t, "cost"))
		r.Deactivate(a, 0)
		for r.Round(0) < rapid.Int64Range(1, 50).Draw(t, "rounds") {
			f, _ := r.Next(0)
			r.Charge(f, 0, rapid.Int64Range(1, 3000).Draw(t, "cost"))
		}
		r.Activate(a, 0)
		r.Activate(c, 0)
		if x, y := a.Account(0), c.Account(0); x.Behind != y.Behind || x.Deficit != y.Deficit {
			t.Errorf("returned with %+v, a new flow has %+v", x, y)
		}
	})
}

// TestDebtOutlivesIdling lets a flow overrun by any debt and pause for any number of rounds: the debt is less by exactly a
// quantum for each round that passed, and the flow is served when it is paid, not before.
func TestDebtOutlivesIdling(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const quantum = 1000
		r := ring(t, quantum, 1)
		w := drr.Weight(rapid.Int64Range(500, 4000).Draw(t, "weight"))
		a, b := must(r.NewFlow(0, w))(t), must(r.NewFlow(1, 1000))(t)
		r.Activate(a, 0)
		if rapid.Bool().Draw(t, "overrun known while idle") {
			r.Charge(a, 0, 1)
			r.Deactivate(a, 0)
			r.Settle(a, 0, rapid.Int64Range(20_000, 10_000_000).Draw(t, "debt"))
		} else {
			r.Charge(a, 0, rapid.Int64Range(20_000, 10_000_000).Draw(t, "debt"))
			r.Deactivate(a, 0)
		}
		before, start := a.Account(0), r.Round(0)
		r.Activate(b, 0)
		for range rapid.IntRange(0, 100).Draw(t, "rounds") {
			f, _ := r.Next(0)
			r.Charge(f, 0, quantum)
		}
		passed := r.Round(0) - start
		r.Activate(a, 0)
		after := a.Account(0)
		if left := before.Behind - passed; left >= 0 && (after.Behind != left || after.Deficit != before.Deficit) {
			t.Fatalf("debt %+v became %+v in %d rounds", before, after, passed)
		}
		for {
			f, _ := r.Next(0)
			if f == a {
				break
			}
			r.Charge(f, 0, quantum)
		}
		if got, want := r.Round(0), max(start+before.Behind, start+passed); got != want {
			t.Errorf("served in round %d, debt is paid in %d", got, want)
		}
	})
}

// TestFreeTimePaysDebt lets a flow in debt wait alone for nobody: free time of the debt's size clears it, less does
// not, and none passes while somebody waits.
func TestFreeTimePaysDebt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const quantum = 1000
		r := ring(t, quantum, 2)
		a, b := must(r.NewFlow(0, 1000))(t), must(r.NewFlow(1, 1000))(t)
		r.Charge(a, 0, rapid.Int64Range(2*quantum, 100_000_000).Draw(t, "debt"))
		behind := a.Account(0).Behind
		r.Activate(b, 0)
		r.IdleAll(math.MaxInt64)
		if got := a.Account(0).Behind; got != behind {
			t.Fatalf("debt of %d rounds became %d while another waited", behind, got)
		}
		r.Deactivate(b, 0)
		left := behind * quantum
		for left > 1 {
			part := rapid.Int64Range(1, left-1).Draw(t, "time")
			r.Idle(0, part)
			left -= part
			if got := a.Account(0).Behind; got != (left+quantum-1)/quantum {
				t.Fatalf("%d of time is missing: %d rounds behind", left, got)
			}
			if left < quantum {
				break
			}
		}
		r.Idle(0, left)
		if got := a.Account(0).Behind; got != 0 {
			t.Errorf("%d rounds behind after all of it", got)
		}
	})
}

// TestChargesReturn charges estimates, overruns and refunds in any order: the total is exactly what was used, and
// when two flows have used the same they stand the same (charges leak nowhere).
func TestChargesReturn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := ring(t, 1000, 1)
		a, b := must(r.NewFlow(0, 1000))(t), must(r.NewFlow(1, 1000))(t)
		var used int64
		for _, job := range rapid.SliceOfN(rapid.SliceOfN(rapid.Int64Range(1, 100_000), 2, 2), 1, 30).Draw(t, "jobs") {
			estimate, actual := job[0], job[1]
			r.Charge(a, 0, estimate)
			if rapid.Bool().Draw(t, "given back and taken again") {
				r.Settle(a, 0, -estimate)
				r.Charge(a, 0, estimate)
			}
			r.Settle(a, 0, actual-estimate)
			used += actual
			r.Charge(b, 0, actual)
		}
		if a.Charged() != used || b.Charged() != used {
			t.Fatalf("charged %d and %d, used %d", a.Charged(), b.Charged(), used)
		}
		x, y := a.Account(0), b.Account(0)
		if x.Behind != y.Behind || x.Deficit != y.Deficit {
			t.Errorf("settled: %+v, charged at once: %+v", x, y)
		}
	})
}

// TestSettledSharesAreActual has one of two flows declare a fixed fraction or multiple of what its jobs cost, with
// several running at once: before settlement it gets as much more or less, with settlement exactly its share.
func TestSettledSharesAreActual(t *testing.T) {
	const servers, jobs = 8, 40_000
	for name, c := range map[string]struct {
		declared, actual int64
	}{
		"a third declared":  {10_000, 30_000},
		"a tenth declared":  {10_000, 100_000},
		"exact":             {30_000, 30_000},
		"three times":       {90_000, 30_000},
		"ten times":         {300_000, 30_000},
		"less than quantum": {900, 2_700},
	} {
		for _, settle := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, settled %t", name, settle), func(t *testing.T) {
				r := ring(t, 10_000, 1)
				liar, honest := must(r.NewFlow(0, 1000))(t), must(r.NewFlow(1, 1000))(t)
				r.Activate(liar, 0)
				r.Activate(honest, 0)
				used := runServers(r, []int{servers}, jobs, func(f *drr.Flow[int]) (int64, int64) {
					if f == liar {
						return c.declared, c.actual
					}
					return 20_000, 20_000
				}, settle)
				ratio := float64(used[0]) / float64(used[1])
				want := 1.0
				if !settle {
					want = float64(c.actual) / float64(c.declared)
				}
				if math.Abs(ratio-want) > want*0.005 {
					t.Errorf("used %.3f times as much as the other, want %.3f", ratio, want)
				}
			})
		}
	}
}
