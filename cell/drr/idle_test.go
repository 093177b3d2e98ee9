package drr_test

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell/drr"
)

// TestSharedClockEqualsModel runs random commands against several rings that share a clock, and a model of each that is told of free time
// when it passes. Most steps look at nothing, so that rings fall behind the clock by any number of calls.
func TestSharedClockEqualsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		clock := new(drr.IdleClock)
		sets := rapid.IntRange(1, 3).Draw(t, "sets")
		var all []*twins
		for range rapid.IntRange(1, 3).Draw(t, "rings") {
			all = append(all, newTwins(t, clock, sets))
		}
		one := func(do func(*twins, *rapid.T)) func(*rapid.T) {
			return func(t *rapid.T) { do(rapid.SampledFrom(all).Draw(t, "ring"), t) }
		}
		t.Repeat(map[string]func(*rapid.T){
			"activate":   one((*twins).activate),
			"deactivate": one((*twins).deactivate),
			"dispatch":   one((*twins).dispatch),
			"overrun":    one((*twins).overrun),
			"refund":     one((*twins).refund),
			"idle":       one((*twins).idle),
			"weight":     one((*twins).reweigh),
			"reopen":     one((*twins).reopen),
			"pass": func(t *rapid.T) {
				set, time := all[0].set(t), all[0].cost.Draw(t, "time")
				clock.Pass(set, time)
				for _, w := range all {
					w.model.free(set, time)
				}
			},
			"pass all": func(t *rapid.T) {
				time := all[0].cost.Draw(t, "time")
				clock.PassAll(time)
				for _, w := range all {
					for set := range w.sets {
						w.model.free(set, time)
					}
				}
			},
			"compare": one(func(w *twins, t *rapid.T) {
				if err := errors.Join(w.ring.Check(), w.compare()); err != nil {
					t.Fatal(err)
				}
			}),
		})
	})
}

// reopen closes a set and opens it again: nothing is left of it but what its flows were charged.
func (w *twins) reopen(t *rapid.T) {
	set := w.set(t)
	w.ring.CloseSet(set)
	if err := w.ring.OpenSet(set); err != nil {
		t.Fatal(err)
	}
	for _, f := range w.model.flows {
		delete(f.sets, set)
	}
	for _, r := range []modelRing{{set: set}, {set: set, zero: true}} {
		delete(w.model.now, r)
		delete(w.model.idle, r)
		delete(w.model.due, r)
		delete(w.model.part, r)
	}
}

// TestSharedClockStops wants a clock at its end to stand still, and amounts that are none to be ignored.
func TestSharedClockStops(t *testing.T) {
	clock := new(drr.IdleClock)
	r := ringOf(t, drr.Config{Quantum: 1000, FlowsMax: 10, Idle: clock}, 1)
	for _, x := range []int64{-1, 0, math.MinInt64} {
		clock.Pass(0, x)
		clock.PassAll(x)
	}
	clock.Pass(drr.MaxSets, 5_000)
	if got := r.Round(0); got != 0 {
		t.Errorf("round %d after no time", got)
	}
	clock.Pass(0, 2_500)
	clock.PassAll(1_500)
	if got := r.Round(0); got != 4 {
		t.Errorf("round %d after 2,500 and 1,500, quantum 1,000", got)
	}
	last := r.Round(0)
	for range 5 {
		clock.Pass(0, math.MaxInt64)
		clock.PassAll(math.MaxInt64)
		if got := r.Round(0); got < last {
			t.Fatalf("round %d after %d", got, last)
		}
		last = r.Round(0)
	}
	if err := r.Check(); err != nil {
		t.Fatal(err)
	}
}
