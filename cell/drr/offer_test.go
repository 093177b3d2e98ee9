package drr_test

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/fairlead/fairlead/cell/drr"
)

// offers is a random arrangement: sets of servers, and flows that can use some of the sets.
type offers struct {
	servers []int // by set
	weights []drr.Weight
	uses    []uint // by flow, a bit per set
}

// ideal is the weighted max-min share of each flow: the group of flows for which the servers within their reach are
// scarcest by weight has them all, in proportion to weight; the rest is shared by the others in the same way.
func (o offers) ideal() []float64 {
	share := make([]float64, len(o.uses))
	flows, sets := uint(1)<<len(o.uses)-1, uint(1)<<len(o.servers)-1
	for flows != 0 {
		least, group, reach := math.Inf(1), uint(0), uint(0)
		for g := flows; g != 0; g = (g - 1) & flows {
			var w float64
			var s uint
			for f := range o.uses {
				if g>>f&1 == 1 {
					w += float64(o.weights[f])
					s |= o.uses[f] & sets
				}
			}
			var servers float64
			for i, n := range o.servers {
				if s>>i&1 == 1 {
					servers += float64(n)
				}
			}
			// Of equally scarce groups the largest, so that nobody is left with no set to be served by.
			if x := servers / w; x < least-1e-12 || x < least+1e-12 && bits.OnesCount(g) > bits.OnesCount(group) {
				least, group, reach = x, g, s
			}
		}
		for f := range o.uses {
			if group>>f&1 == 1 {
				share[f] = least * float64(o.weights[f])
			}
		}
		flows &^= group
		sets &^= reach
	}
	return share
}

func randomOffers(rng *rand.Rand) offers {
	var o offers
	for range 2 + rng.IntN(4) {
		o.servers = append(o.servers, 1+rng.IntN(6))
	}
	used := uint(0)
	for range 3 + rng.IntN(6) {
		o.weights = append(o.weights, drr.Weight(1000*(1+rng.IntN(5))))
		u := 1 + uint(rng.IntN(1<<len(o.servers)-1))
		o.uses = append(o.uses, u)
		used |= u
	}
	o.uses[0] |= (1<<len(o.servers) - 1) &^ used // every set is somebody's
	return o
}

// TestOverlappingSets runs random arrangements and holds every flow to its weighted max-min share within 0.5 %.
func TestOverlappingSets(t *testing.T) {
	const runs = 40
	flows, outside := 0, 0
	for seed := range runs {
		rng := rand.New(rand.NewPCG(uint64(seed), 7))
		o := randomOffers(rng)
		r := ring(t, 10_000, len(o.servers))
		for i, w := range o.weights {
			f := must(r.NewFlow(i, w))(t)
			for set := range o.servers {
				if o.uses[i]>>set&1 == 1 {
					r.Activate(f, drr.SetID(set))
				}
			}
		}
		job := func(f *drr.Flow[int]) (int64, int64) {
			c := 1_000 + rng.Int64N(19_000)
			return c, c
		}
		runServers(r, o.servers, 2_000, job, true) // until the accounts have settled
		used := runServers(r, o.servers, 40_000, job, true)
		var total float64
		for _, u := range used {
			total += float64(u)
		}
		var servers float64
		for _, n := range o.servers {
			servers += float64(n)
		}
		for i, want := range o.ideal() {
			flows++
			got := float64(used[i]) / total * servers
			if math.Abs(got-want) > want*0.005 {
				outside++
				t.Errorf("seed %d, flow %d of %+v: %.4f servers, ideal %.4f (%+.2f %%)", seed, i, o, got, want, 100*(got/want-1))
			}
		}
		if err := r.Check(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d of %d flows outside", outside, flows)
}

// TestSpreadingOverSetsGainsNothing gives one flow work in every one of many sets and another in all or in one of
// them: neither has more than its weight says, wherever its work lies.
func TestSpreadingOverSetsGainsNothing(t *testing.T) {
	for _, sets := range []int{1, 2, 8, drr.MaxSets} {
		for _, other := range []string{"in all", "in one"} {
			t.Run(fmt.Sprintf("%d sets, the other %s", sets, other), func(t *testing.T) {
				r := ring(t, 10_000, sets)
				a, b := must(r.NewFlow(0, 1000))(t), must(r.NewFlow(1, 1000))(t)
				servers := make([]int, sets)
				for set := range sets {
					servers[set] = 1
					r.Activate(a, drr.SetID(set))
					if other == "in all" || set == 0 {
						r.Activate(b, drr.SetID(set))
					}
				}
				rng := rand.New(rand.NewPCG(1, 2))
				used := runServers(r, servers, 2_000*sets, func(*drr.Flow[int]) (int64, int64) {
					c := 1_000 + rng.Int64N(19_000)
					return c, c
				}, true)
				got := float64(used[1]) / float64(used[0]+used[1])
				want := 0.5
				if other == "in one" {
					// All of that one set, and no more can be had there.
					want = min(0.5, 1/float64(sets))
				}
				if math.Abs(got-want) > want*0.01 {
					t.Errorf("the other has %.4f of all, want %.4f", got, want)
				}
			})
		}
	}
}

// TestLeavingASetErasesNothing has a flow that is always served in one set look into another for one dispatch in
// several: it gets no more there than if it stayed, which is nothing, since the first set is its half of all.
func TestLeavingASetErasesNothing(t *testing.T) {
	for _, period := range []int{1, 2, 5, 20, 100} {
		r := ring(t, 10_000, 2)
		a, b := must(r.NewFlow(0, 1000))(t), must(r.NewFlow(1, 1000))(t)
		r.Activate(a, 0)
		r.Activate(b, 1)
		const steps = 20_000
		inSecond := 0
		for i := range steps {
			f, _ := r.Next(0)
			r.Charge(f, 0, 10_000)
			if i%period == 0 {
				r.Activate(a, 1)
			}
			f, _ = r.Next(1)
			r.Charge(f, 1, 10_000)
			if f == a {
				inSecond++
			}
			r.Deactivate(a, 1)
		}
		if inSecond > steps/1000 {
			t.Errorf("looking in every %d dispatches got it %d of %d", period, inSecond, steps)
		}
	}
}
