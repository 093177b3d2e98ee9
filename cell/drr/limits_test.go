package drr_test

import (
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell/drr"
)

// touchedMax is the bound on flows inspected or moved per dispatch: five heads, each of which may leave the heap of
// far flows and enter it again by a path of at most eleven entries (4^11 is FlowsMax), and the charge's own filing.
const touchedMax = 5 + 6*(1+2*12)

// TestTouchedIsBounded dispatches from rings of any size at costs from 1 to 10^9. While costs are within the wheel no
// more than two flows are touched; far ones add a path in the heap.
func TestTouchedIsBounded(t *testing.T) {
	for name, c := range map[string]struct {
		lo, hi float64
		most   int
	}{
		"within a quantum":       {1, 1e4, 2},
		"within the wheel":       {1, 4e7, 2},
		"one to a billion":       {1, 1e9, 2 + 2*12},
		"always beyond":          {5e8, 1e9, 2 + 2*12},
		"one quantum each":       {1e4, 1e4 + 1, 2},
		"a billion and a little": {1, 1e9 + 1, 2 + 2*12},
	} {
		t.Run(name, func(t *testing.T) {
			for _, n := range []int{1, 10, 1_000, 100_000} {
				cost := costs(c.lo, c.hi)
				r := fill(t, n, cost)
				most := 0
				for range 20_000 {
					f, _ := r.Next(0)
					r.Charge(f, 0, cost())
					most = max(most, r.Touched())
				}
				if most > c.most {
					t.Errorf("%d flows: %d touched by a dispatch, at most %d", n, most, c.most)
				}
			}
		})
	}
}

// TestTouchedIsBoundedOverSets is the same for flows active in many sets, where a poll may have to file heads further on.
func TestTouchedIsBoundedOverSets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sets := rapid.IntRange(1, drr.MaxSets).Draw(t, "sets")
		r := ring(t, 1000, sets)
		rng := random(t)
		for i := range rapid.IntRange(1, 50).Draw(t, "flows") {
			f := must(r.NewFlow(i, drr.Weight(1+rng.IntN(5000))))(t)
			for set := range sets {
				r.Activate(f, drr.SetID(set))
			}
		}
		top := rapid.SampledFrom([]int64{1_000, 1_000_000, 1_000_000_000}).Draw(t, "largest cost")
		for range 500 {
			set := drr.SetID(rng.IntN(sets))
			f, _ := r.Next(set)
			r.Charge(f, set, 1+rng.Int64N(top))
			if r.Touched() > touchedMax {
				t.Fatalf("%d touched, at most %d", r.Touched(), touchedMax)
			}
		}
		if err := r.Check(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestNothingIsAllocated wants no allocation in a dispatch, in a settlement, or in going idle and coming back.
func TestNothingIsAllocated(t *testing.T) {
	for name, c := range map[string]struct{ lo, hi float64 }{
		"within the wheel": {1, 1e7},
		"beyond it":        {1e8, 1e9},
	} {
		t.Run(name, func(t *testing.T) {
			cost := costs(c.lo, c.hi)
			r := fill(t, 1_000, cost)
			if n := testing.AllocsPerRun(10_000, func() {
				f, _ := r.Next(0)
				x := cost()
				r.Charge(f, 0, x)
				r.Deactivate(f, 0)
				r.Settle(f, 0, -x/2)
				r.Settle(f, 0, x/3)
				r.Activate(f, 0)
			}); n != 0 {
				t.Errorf("%v allocations per dispatch", n)
			}
		})
	}
	t.Run("queue", func(t *testing.T) {
		q := must(drr.NewQueue[int, int](drr.DefaultConfig()))(t)
		for i := range 1_000 {
			if err := q.Push(i%100, i, 1_000); err != nil {
				t.Fatal(err)
			}
		}
		if n := testing.AllocsPerRun(10_000, func() {
			it, _ := q.Pop()
			if err := q.Push(it%100, it, 20_000); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%v allocations per item", n)
		}
	})
}

// TestIdleFlowIsSmall measures what a flow takes that has been active in one set and is idle.
func TestIdleFlowIsSmall(t *testing.T) {
	const n, most = 100_000, 192
	r := ring(t, 1000, 1)
	flows := make([]*drr.Flow[int], n)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range flows {
		flows[i] = must(r.NewFlow(i, drr.WeightUnit))(t)
		r.Activate(flows[i], 0)
		r.Deactivate(flows[i], 0)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	// The set's own wheel is in it too.
	each := (float64(after.HeapAlloc) - float64(before.HeapAlloc)) / n
	t.Logf("%.0f bytes each", each)
	if each > most {
		t.Errorf("an idle flow takes %.0f bytes, at most %d", each, most)
	}
	runtime.KeepAlive(flows)
}

// TestSmallRingIsSmall measures rings of few rounds, of which a cell has one per organization and class: without sets, with an open one, and
// with two flows in it.
func TestSmallRingIsSmall(t *testing.T) {
	const n = 5_000
	idle := new(drr.IdleClock)
	cfg := drr.Config{Quantum: 1000, FlowsMax: 10, Rounds: drr.RoundsMin, Idle: idle}
	rings, flows := make([]*drr.Ring[int], n), make([]*drr.Flow[int], 2*n)
	step := func(what string, most float64, do func(i int)) {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range n {
			do(i)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		each := (float64(after.HeapAlloc) - float64(before.HeapAlloc)) / n
		t.Logf("%s: %.0f bytes", what, each)
		if each > most {
			t.Errorf("%s: %.0f bytes, at most %.0f", what, each, most)
		}
	}
	step("no set", 112, func(i int) { rings[i] = ringOf(t, cfg, 0) })
	step("a set more", 260, func(i int) {
		if err := rings[i].OpenSet(0); err != nil {
			t.Fatal(err)
		}
	})
	step("two flows more", 1_500+2*192, func(i int) {
		for j := range 2 {
			flows[2*i+j] = must(rings[i].NewFlow(j, drr.WeightUnit))(t)
			rings[i].Activate(flows[2*i+j], 0)
		}
	})
	runtime.KeepAlive(rings)
	runtime.KeepAlive(flows)
}

// TestExtremesAreDefined charges, refunds and settles the largest amounts there are, at the largest and smallest
// quanta: the ring stays whole, every flow is served again, and totals stop at the ends of their range.
func TestExtremesAreDefined(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		quantum := rapid.SampledFrom([]int64{drr.QuantumMin, 10_000, drr.QuantumMax}).Draw(t, "quantum")
		r := ring(t, quantum, 2)
		var flows []*drr.Flow[int]
		for i, w := range []drr.Weight{0, 1, drr.WeightUnit, drr.WeightMax} {
			f := must(r.NewFlow(i, w))(t)
			r.Activate(f, 0)
			r.Activate(f, 1)
			flows = append(flows, f)
		}
		amount := rapid.OneOf(
			rapid.SampledFrom([]int64{math.MinInt64, -1, 0, 1, math.MaxInt64, math.MaxInt64 - 1, 1 << 53}), rapid.Int64())
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			set := drr.SetID(rapid.IntRange(0, 1).Draw(t, "set"))
			f, ok := r.Next(set)
			if !ok {
				t.Fatal("flows wait and none is served")
			}
			before := f.Charged()
			c := amount.Draw(t, "cost")
			r.Charge(f, set, c)
			if f.Charged() <= before && before != math.MaxInt64 {
				t.Fatalf("a charge of %d took the total from %d to %d", c, before, f.Charged())
			}
			g := rapid.SampledFrom(flows).Draw(t, "flow")
			before = g.Charged()
			c = amount.Draw(t, "delta")
			r.Settle(g, set, c)
			if after := g.Charged(); c > 0 && after < before || c < 0 && after > before {
				t.Fatalf("a settlement of %d took the total from %d to %d", c, before, after)
			}
			if err := r.SetWeight(g, rapid.SampledFrom([]drr.Weight{0, 1, 1000, drr.WeightMax}).Draw(t, "weight")); err != nil {
				t.Fatal(err)
			}
			r.IdleAll(amount.Draw(t, "time"))
			if err := r.Check(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestRefusals wants the typed error for each bad input.
func TestRefusals(t *testing.T) {
	for name, cfg := range map[string]drr.Config{
		"no quantum":         {Quantum: 0, FlowsMax: 1},
		"negative quantum":   {Quantum: -1000, FlowsMax: 1},
		"huge quantum":       {Quantum: math.MaxInt64, FlowsMax: 1},
		"uneven quantum":     {Quantum: 1500 + 1, FlowsMax: 1},
		"no flows":           {Quantum: 1000, FlowsMax: 0},
		"too many flows":     {Quantum: 1000, FlowsMax: drr.FlowsMax + 1},
		"few rounds":         {Quantum: 1000, FlowsMax: 1, Rounds: 32},
		"many rounds":        {Quantum: 1000, FlowsMax: 1, Rounds: 2 * drr.RoundsMax},
		"uneven rounds":      {Quantum: 1000, FlowsMax: 1, Rounds: 192},
		"negative rounds":    {Quantum: 1000, FlowsMax: 1, Rounds: -64},
		"everything at once": {},
	} {
		_, err := drr.New[int](cfg)
		var bad *drr.ConfigError
		if !errors.As(err, &bad) || bad.Remedy == "" || !strings.Contains(err.Error(), bad.Field) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if err := (drr.Config{}).Validate(); strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("two faults are told as %q", err)
	}
	if err := drr.DefaultConfig().Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	r := must(drr.New[int](drr.Config{Quantum: 1000, FlowsMax: 1}))(t)
	var bad *drr.SetError
	if err := r.OpenSet(drr.MaxSets); !errors.As(err, &bad) || bad.Set != drr.MaxSets {
		t.Errorf("set %d: got %v", drr.MaxSets, err)
	}
	var weight *drr.WeightError
	for _, w := range []drr.Weight{-1, math.MinInt64, drr.WeightMax + 1} {
		if _, err := r.NewFlow(1, w); !errors.As(err, &weight) {
			t.Errorf("weight %d: got %v", w, err)
		}
	}
	f := must(r.NewFlow(1, drr.WeightUnit))(t)
	if err := r.SetWeight(f, -1); !errors.As(err, &weight) {
		t.Errorf("weight -1: got %v", err)
	}
	if _, err := r.NewFlow(2, drr.WeightUnit); !errors.Is(err, drr.ErrFull) {
		t.Errorf("one flow too many: got %v", err)
	}
	r.Remove(f)
	if _, err := r.NewFlow(2, drr.WeightUnit); err != nil {
		t.Errorf("after removing one: %v", err)
	}
	for x, want := range map[float64]drr.Weight{0: 0, 0.001: 1, 1: 1000, 1.5: 1500, 1e7: drr.WeightMax} {
		if got, err := drr.WeightOf(x); err != nil || got != want {
			t.Errorf("weight %g: got %d, %v, want %d", x, got, err, want)
		}
	}
	for _, x := range []float64{-1, -1e-10, 1e-10, 0.0004, math.NaN(), math.Inf(1), math.Inf(-1), 1e7 + 1} {
		if got, err := drr.WeightOf(x); !errors.As(err, &weight) {
			t.Errorf("weight %g: got %d, %v", x, got, err)
		}
	}
}

// TestRemovedAndClosed wants late charges for removed flows and closed sets to do nothing, and an account not to
// survive its set.
func TestRemovedAndClosed(t *testing.T) {
	r := ring(t, 1000, 2)
	a, b := must(r.NewFlow(0, 1000))(t), must(r.NewFlow(1, 1000))(t)
	for set := range drr.SetID(2) {
		r.Activate(a, set)
		r.Activate(b, set)
	}
	r.Charge(a, 1, 50_000)
	r.CloseSet(1)
	r.Charge(a, 1, 7)
	r.Settle(a, 1, -7)
	r.Restore(a, 1, drr.Account{Behind: 5})
	r.Deactivate(a, 1)
	if _, ok := r.Next(1); ok || r.Open(1) || a.Active(1) || r.Waiting(1) != 0 {
		t.Error("a closed set serves")
	}
	if a.Charged() != 50_000 {
		t.Errorf("charged %d in a set that was closed", a.Charged())
	}
	if err := r.OpenSet(1); err != nil {
		t.Fatal(err)
	}
	if got := a.Account(1).Behind; got != drr.NoStanding {
		t.Errorf("an account from before the set was closed: behind %d", got)
	}
	r.Activate(a, 1)
	if got := a.Account(1); got.Behind != 0 || got.Deficit != 1000 || got.Unseen != 0 {
		t.Errorf("in a set that was opened anew: %+v", got)
	}
	r.Remove(a)
	r.Remove(a)
	r.Charge(a, 0, 5)
	r.Settle(a, 0, 5)
	if f, ok := r.Next(0); !ok || f != b || r.Waiting(0) != 1 || r.Waiting(1) != 0 || r.Len() != 1 {
		t.Error("a removed flow waits")
	}
	if err := r.Check(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a removed flow is activated")
		}
	}()
	r.Activate(a, 0)
}

// TestRestore takes a ring through random work, moves all its facts to another, and wants both to go on alike: the
// same accounts and clocks, and every flow served the same amount.
func TestRestore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sets := rapid.IntRange(1, 4).Draw(t, "sets")
		from, to := ring(t, 1000, sets), ring(t, 1000, sets)
		rng := random(t)
		var flows []*drr.Flow[int]
		for i := range rapid.IntRange(1, 6).Draw(t, "flows") {
			flows = append(flows, must(from.NewFlow(i, drr.Weight(rng.IntN(3)*700)))(t))
		}
		for range 200 {
			f, set := flows[rng.IntN(len(flows))], drr.SetID(rng.IntN(sets))
			switch rng.IntN(6) {
			case 0:
				from.Activate(f, set)
			case 1:
				from.Deactivate(f, set)
			case 2:
				from.Settle(f, set, rng.Int64N(5_000)-2_000)
			case 3:
				from.Idle(set, rng.Int64N(5_000))
			default:
				if f, ok := from.Next(set); ok {
					from.Charge(f, set, 1+rng.Int64N(10_000))
				}
			}
		}
		for set := range drr.SetID(sets) {
			to.RestoreClock(set, from.Clock(set))
		}
		for _, f := range flows {
			g := must(to.NewFlow(f.Value, f.Weight()))(t)
			for set := range drr.SetID(sets) {
				to.Restore(g, set, f.Account(set))
			}
			for set := range drr.SetID(sets) {
				if f.Account(set) != g.Account(set) {
					t.Fatalf("flow %d set %d: %+v became %+v", f.Value, set, f.Account(set), g.Account(set))
				}
				if f.Active(set) {
					to.Activate(g, set)
				}
				// A round that has passed means a new start when the flow is next active, on either side.
				if f.Active(set) && f.Account(set) != g.Account(set) {
					t.Fatalf("flow %d set %d: %+v activated as %+v", f.Value, set, f.Account(set), g.Account(set))
				}
			}
		}
		for set := range drr.SetID(sets) {
			if from.Clock(set) != to.Clock(set) {
				t.Fatalf("set %d: clock %+v became %+v", set, from.Clock(set), to.Clock(set))
			}
		}
		if err := to.Check(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestRestoreUnderASmallerWeight restores an account that was read when the flow had a larger weight: in a later round it has a quantum at
// most, as every account has.
func TestRestoreUnderASmallerWeight(t *testing.T) {
	r := ring(t, 1000, 1)
	f := must(r.NewFlow(0, drr.WeightUnit))(t)
	r.Restore(f, 0, drr.Account{Behind: 2, Deficit: 3365, Charged: 9000, Largest: 3000})
	r.Activate(f, 0)
	if a := f.Account(0); a.Behind != 2 || a.Deficit != 1000 {
		t.Errorf("it has %d in round %d", a.Deficit, a.Behind)
	}
	if err := r.Check(); err != nil {
		t.Error(err)
	}
}
