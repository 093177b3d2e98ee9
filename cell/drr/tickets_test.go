package drr_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/fairlead/fairlead/cell/drr"
)

// tokens is costs of language models, with the quantum of a thousand that goes with them.
const (
	token          = 1_000_000 // micro-units
	quantumTickets = 1_000 * token
)

// tickets is one tenant's 900 jobs in twenty minutes, one job each of two others at their times, and eight tenants without any. Times are
// milliseconds; a job takes eight seconds, so that four servers fall behind. Costs are in tokens.
func tickets(cost func() int64, b, c int64) []*piece {
	var jobs []*piece
	const all, each = 1_200_000, 8_000
	add := func(tenant string, at int64) {
		jobs = append(jobs, &piece{tenant: tenant, at: at, duration: each, cost: cost() * token})
	}
	for i := range int64(900) {
		at := i * all / 900
		for _, other := range []struct {
			name string
			at   int64
		}{{"B", b}, {"C", c}} {
			if before := (i - 1) * all / 900; other.at > before && other.at <= at || i == 0 && other.at == 0 {
				add(other.name, other.at)
			}
		}
		add("A", at)
	}
	return jobs
}

// TestNineHundredTickets: whenever B and C file their one ticket, they are dispatched in the first cycle afterwards: at the first slots that
// are free, before another of A's 900, or after what A may still spend of the cycle's quantum where its tickets cost less than that. And A has
// every slot that nobody else wants.
func TestNineHundredTickets(t *testing.T) {
	for name, c := range map[string]struct {
		cost   func() int64
		before int // of A's tickets that may start between B's arrival and B's start
	}{
		"as much as the quantum": {func() int64 { return 1_000 }, 1},
		"five times the quantum": {func() int64 { return 5_000 }, 1},
		"a tenth of it":          {func() int64 { return 100 }, 10},
		"from 100 to 5,000":      {tokenCosts(1, 100, 5_000), 10},
	} {
		t.Run(name, func(t *testing.T) {
			for at := int64(60_000); at < 1_200_000; at += 97_000 {
				q := must(drr.NewQueue[string, *piece](drr.Config{Quantum: quantumTickets, FlowsMax: 11}))(t)
				for _, tenant := range []string{"A", "B", "C", "D", "E", "F", "G", "H", "I", "J", "K"} {
					if err := q.SetWeight(tenant, drr.WeightUnit); err != nil {
						t.Fatal(err)
					}
				}
				jobs := tickets(c.cost, at, at+1)
				last := serveAll(t, q, jobs, 4)
				first := map[string]*piece{}
				for _, p := range jobs {
					if p.tenant != "A" {
						first[p.tenant] = p
					}
				}
				for other, p := range first {
					before := 0
					for _, a := range jobs {
						if a.tenant == "A" && a.started >= p.at && a.started < p.started {
							before++
						}
					}
					if before > c.before {
						t.Errorf("%s arrives at %d and starts after %d of A's tickets, at most %d", other, p.at, before, c.before)
					}
				}
				// 902 tickets of eight seconds on four servers, none of which is idle once the fourth ticket is there.
				if late := jobs[3].at; last > 902*8_000/4+late+8_000 {
					t.Errorf("all is done at %d", last)
				}
			}
		})
	}
}

// tokenCosts returns a source of costs spread evenly over the orders of magnitude between two.
func tokenCosts(seed uint64, least, most float64) func() int64 {
	rng := rand.New(rand.NewPCG(seed, 0))
	return func() int64 { return int64(math.Round(least * math.Pow(most/least, rng.Float64()))) }
}

// TestTokensNotTickets has costs that vary fifty-fold within a tenant and between tenants: shares in tokens match the weights, and shares in
// tickets do not.
func TestTokensNotTickets(t *testing.T) {
	tenants := []struct {
		weight drr.Weight
		cost   func() int64
	}{
		{1_000, tokenCosts(1, 100, 5_000)},
		{2_000, tokenCosts(2, 100, 5_000)},
		{4_000, func() int64 { return 100 }},
		{1_000, func() int64 { return 5_000 }},
	}
	r := ring(t, quantumTickets, 1)
	var flows []*drr.Flow[int]
	for i, x := range tenants {
		f := must(r.NewFlow(i, x.weight))(t)
		r.Activate(f, 0)
		flows = append(flows, f)
	}
	jobs := make([]float64, len(tenants))
	var total int64
	for total < 10_000_000*token {
		f, _ := r.Next(0)
		c := tenants[f.Value].cost() * token
		r.Charge(f, 0, c)
		total += c
		jobs[f.Value]++
	}
	for i, f := range flows {
		got, want := float64(f.Charged())/float64(total), float64(f.Weight())/8_000
		if math.Abs(got-want) > 0.005*want {
			t.Errorf("tenant %d of weight %s has %.4f of the tokens, want %.4f", i, f.Weight(), got, want)
		}
	}
	if ratio := jobs[2] / jobs[3]; math.Abs(ratio-200) > 2 {
		t.Errorf("four times the tokens at a fiftieth of the cost are %.1f times the tickets, want 200", ratio)
	}
}

// TestThreeTimesTheEstimate is a tenant whose tickets cost three times their estimate: it has three times its share until they are settled,
// and exactly its share from then on.
func TestThreeTimesTheEstimate(t *testing.T) {
	for settle, want := range map[bool]float64{false: 3, true: 1} {
		r := ring(t, quantumTickets, 1)
		a, b := must(r.NewFlow(0, drr.WeightUnit))(t), must(r.NewFlow(1, drr.WeightUnit))(t)
		r.Activate(a, 0)
		r.Activate(b, 0)
		used := runServers(r, []int{4}, 20_000, func(f *drr.Flow[int]) (int64, int64) {
			if f == a {
				return 500 * token, 1_500 * token
			}
			return 700 * token, 700 * token
		}, settle)
		if got := float64(used[0]) / float64(used[1]); math.Abs(got-want) > 0.005*want {
			t.Errorf("settled %t: %.4f times the other's tokens, want %.0f", settle, got, want)
		}
	}
}
