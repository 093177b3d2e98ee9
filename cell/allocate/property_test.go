package allocate_test

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/allocate"
)

// input is a plan's input that is in order.
type input struct {
	capacity      cell.Rate
	claims        []allocate.Claim
	organizations []allocate.Organization
}

// drawInput draws amounts up to a scale, so that they compete, and everything else as it is allowed to be.
func drawInput(t *rapid.T, scale int64, organizations bool) input {
	in := input{capacity: cell.Rate(rapid.Int64Range(0, 3*scale).Draw(t, "capacity"))}
	rate := rapid.OneOf(rapid.Just[int64](0), rapid.Int64Range(0, scale))
	weight := rapid.OneOf(rapid.SampledFrom([]int64{0, 1, 1000, 1000, 2000, int64(cell.WeightMax)}), rapid.Int64Range(1, 10_000))
	parents := []string{""}
	if organizations {
		for i := range rapid.IntRange(0, 3).Draw(t, "organizations") {
			in.organizations = append(in.organizations, allocate.Organization{
				Name: fmt.Sprintf("o%d", i), Weight: cell.Weight(weight.Draw(t, "organization's weight")),
			})
			parents = append(parents, fmt.Sprintf("o%d", i))
		}
	}
	promised := map[string]cell.Rate{}
	for i := range rapid.IntRange(1, 7).Draw(t, "claims") {
		c := allocate.Claim{
			Name: fmt.Sprintf("t%d", i), Organization: rapid.SampledFrom(parents).Draw(t, "parent"),
			Demand: allocate.Unlimited, Weight: cell.Weight(weight.Draw(t, "weight")), Reservation: cell.Rate(rate.Draw(t, "reservation")),
		}
		if rapid.IntRange(0, 3).Draw(t, "unlimited") > 0 {
			c.Demand = cell.Rate(rate.Draw(t, "demand"))
		}
		if rapid.IntRange(0, 3).Draw(t, "limited") == 0 {
			c.Limit = c.Reservation + cell.Rate(rate.Draw(t, "limit"))
		}
		promised[c.Organization] += c.Reservation
		in.claims = append(in.claims, c)
	}
	for i := range in.organizations {
		o := &in.organizations[i]
		if rapid.Bool().Draw(t, "own reservation") {
			o.Reservation = promised[o.Name] + cell.Rate(rate.Draw(t, "surplus"))
		}
		if rapid.IntRange(0, 3).Draw(t, "organization limited") == 0 {
			o.Limit = max(o.Reservation, promised[o.Name]+1) + cell.Rate(rate.Draw(t, "organization's limit"))
		}
	}
	return in
}

// times is the input at another scale.
func (in input) times(factor cell.Rate) input {
	large := input{capacity: in.capacity * factor}
	for _, c := range in.claims {
		if c.Demand > 0 {
			c.Demand *= factor
		}
		c.Reservation, c.Limit = c.Reservation*factor, c.Limit*factor
		large.claims = append(large.claims, c)
	}
	for _, o := range in.organizations {
		o.Reservation, o.Limit = o.Reservation*factor, o.Limit*factor
		large.organizations = append(large.organizations, o)
	}
	return large
}

func (in input) plan(t fataler) allocate.Plan {
	t.Helper()
	return mustAllocate(t, in.capacity, in.claims, in.organizations...)
}

// wants is what a claim can take.
func wants(c allocate.Claim) cell.Rate {
	d := c.Demand
	if d < 0 {
		d = cell.RateMax
	}
	if c.Limit > 0 {
		d = min(d, c.Limit)
	}
	return d
}

// below is the claims of an organization, or those without one.
func (in input) below(organization string) (members []int) {
	for i, c := range in.claims {
		if c.Organization == organization {
			members = append(members, i)
		}
	}
	return members
}

// organizationWants is what an organization can take.
func (in input) organizationWants(i int) cell.Rate {
	var d cell.Rate
	for _, m := range in.below(in.organizations[i].Name) {
		d += wants(in.claims[m])
	}
	if l := in.organizations[i].Limit; l > 0 {
		d = min(d, l)
	}
	return d
}

// TestPlanIsWhole wants of any plan: nobody beyond its demand or limit, nothing given twice or left idle while somebody wants it, and
// columns that add up.
func TestPlanIsWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t, rapid.SampledFrom([]int64{10, 10_000, 12_000_000_000, int64(cell.RateMax) / 8}).Draw(t, "scale"), true)
		p := in.plan(t)
		var total, want cell.Rate
		for i, c := range in.claims {
			s := p.Claims[i]
			total += s.Final
			if s.Final < 0 || s.Final > wants(c) {
				t.Fatalf("claim %d of %+v gets %d", i, c, s.Final)
			}
			if s.Final != s.Reserved+s.Borrowed || s.First > s.Entitled || s.First > wants(c) || s.First < s.Reserved || s.Borrowed < 0 ||
				s.Reserved > c.Reservation {
				t.Fatalf("claim %d: %+v", i, s)
			}
			if c.Demand >= 0 && s.Final+s.Short+s.Limited != c.Demand {
				t.Fatalf("claim %d: %+v do not add up to %d", i, s, c.Demand)
			}
			if c.Organization == "" {
				want += wants(c)
			}
		}
		for i, o := range in.organizations {
			s := p.Organizations[i]
			want += in.organizationWants(i)
			var sum, demand cell.Rate
			endless := false
			for _, m := range in.below(o.Name) {
				sum += p.Claims[m].Final
				demand += wants(in.claims[m])
				endless = endless || in.claims[m].Demand < 0 && in.claims[m].Limit == 0
			}
			switch {
			case endless && o.Limit == 0 && s.Short+s.Limited != 0,
				endless && o.Limit > 0 && (s.Final+s.Short != o.Limit || s.Limited != 0),
				!endless && s.Final+s.Short+s.Limited != demand:
				t.Fatalf("organization %d: %+v do not add up to %d", i, s, demand)
			}
			if s.Final != sum || s.Final != s.Reserved+s.Borrowed || s.Final > in.organizationWants(i) || s.Borrowed < 0 {
				t.Fatalf("organization %d: %+v, its tenants have %d", i, s, sum)
			}
		}
		if total != min(in.capacity, want) || p.Given != total || p.Given+p.Idle != p.Capacity || p.Reserved+p.Pool != p.Capacity {
			t.Fatalf("%d given, capacity %d, wanted %d: %+v", total, in.capacity, want, p)
		}
	})
}

// TestReservationsHold: when all reservations fit, everybody has at least the lesser of its reservation and its demand, organizations too;
// when they do not, all that is given is by reservation, in proportion, but to those that want less than that.
func TestReservationsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t, 1_000_000, true)
		p := in.plan(t)
		var needed cell.Rate
		for i, o := range in.organizations {
			if o.Reservation > 0 {
				needed += min(o.Reservation, in.organizationWants(i))
			}
			for _, m := range in.below(o.Name) {
				if o.Reservation == 0 {
					needed += min(in.claims[m].Reservation, wants(in.claims[m]))
				}
			}
		}
		for _, m := range in.below("") {
			needed += min(in.claims[m].Reservation, wants(in.claims[m]))
		}
		short := needed > in.capacity
		if p.Pool > 0 && short || p.Reserved != min(needed, in.capacity) {
			t.Fatalf("reservations need %d of %d: %d reserved, pool %d", needed, in.capacity, p.Reserved, p.Pool)
		}
		factor := 0.0
		see := func(what string, s allocate.Share, want, reservation cell.Rate) {
			full := min(want, reservation)
			if s.Reserved > full || !short && s.Reserved < full {
				t.Fatalf("%s has %d covered of %d", what, s.Reserved, full)
			}
			if s.Reserved < full-1 && reservation > 1_000 {
				f := float64(s.Reserved) / float64(reservation)
				if factor > 0 && math.Abs(f-factor) > 2.0/1_000 {
					t.Fatalf("%s shrinks to %g, another to %g", what, f, factor)
				}
				factor = f
			}
		}
		for i, c := range in.claims {
			see(c.Name, p.Claims[i], wants(c), c.Reservation)
		}
		for i, o := range in.organizations {
			if o.Reservation > 0 {
				see(o.Name, p.Organizations[i], in.organizationWants(i), o.Reservation)
			}
		}
	})
}

// TestBorrowedByWeight: of two siblings that both want more, neither has borrowed more by weight than the other, up to rounding; and one of
// weight zero that has borrowed has no sibling of positive weight that wants more.
func TestBorrowedByWeight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t, 1_000_000, true)
		p := in.plan(t)
		type sibling struct {
			name     string
			weight   cell.Weight
			borrowed cell.Rate
			short    bool
		}
		check := func(level []sibling) {
			for _, a := range level {
				for _, b := range level {
					if !b.short || a.borrowed == 0 || b.weight == 0 && a.weight > 0 {
						continue
					}
					// What b has by weight, and one micro-unit for rounding, is no less than what a has.
					wa, wb := float64(max(a.weight, 1)), float64(max(b.weight, 1))
					if a.weight == 0 && b.weight > 0 || float64(a.borrowed-1)/wa > float64(b.borrowed+1)/wb+1e-9 {
						t.Fatalf("%s borrows %d by weight %d, %s, which wants more, %d by %d", a.name, a.borrowed, a.weight, b.name, b.borrowed, b.weight)
					}
				}
			}
		}
		var top []sibling
		for i, o := range in.organizations {
			s := p.Organizations[i]
			top = append(top, sibling{o.Name, o.Weight, s.Borrowed, s.Final < in.organizationWants(i)})
		}
		for _, parent := range append([]allocate.Organization{{}}, in.organizations...) {
			var level []sibling
			for _, m := range in.below(parent.Name) {
				c, s := in.claims[m], p.Claims[m]
				level = append(level, sibling{c.Name, c.Weight, s.Borrowed, s.Final < wants(c)})
			}
			if parent.Name == "" {
				level = append(level, top...)
			}
			check(level)
		}
	})
}

// TestScaleDoesNotMatter: ten times everything is ten times every share, up to rounding.
func TestScaleDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t, 1_000_000, true)
		factor := cell.Rate(rapid.SampledFrom([]int64{2, 10, 1000}).Draw(t, "factor"))
		p := in.plan(t)
		large := in.times(factor)
		q := large.plan(t)
		for i := range p.Claims {
			if d := q.Claims[i].Final - p.Claims[i].Final*factor; d > 4*factor || d < -4*factor {
				t.Fatalf("claim %d: %d became %d at %d times the scale", i, p.Claims[i].Final, q.Claims[i].Final, factor)
			}
		}
	})
}

// TestAskingForMoreIsSafe: who demands more never gets less for it, up to rounding.
func TestAskingForMoreIsSafe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t, 1_000_000, true)
		i := rapid.IntRange(0, len(in.claims)-1).Draw(t, "who")
		before := in.plan(t)
		if in.claims[i].Demand < 0 {
			return
		}
		in.claims[i].Demand += cell.Rate(rapid.Int64Range(0, 2_000_000).Draw(t, "more"))
		if rapid.Bool().Draw(t, "all") {
			in.claims[i].Demand = allocate.Unlimited
		}
		after := in.plan(t)
		if after.Claims[i].Final < before.Claims[i].Final-3 {
			t.Fatalf("share %d became %d", before.Claims[i].Final, after.Claims[i].Final)
		}
	})
}

// TestOrderDoesNotMatter: claims in another order get the same, up to the micro-unit that a tie gives to the first.
func TestOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t, 1_000_000, true)
		p := in.plan(t)
		order := rapid.Permutation(in.claims).Draw(t, "order")
		q := mustAllocate(t, in.capacity, order, in.organizations...)
		for i, c := range in.claims {
			for j, d := range order {
				if a, b := p.Claims[i].Final, q.Claims[j].Final; c.Name == d.Name && (a-b > 2 || b-a > 2) {
					t.Fatalf("%s gets %d or %d", c.Name, a, b)
				}
			}
		}
	})
}

// TestEqualsGreedy gives the capacity away one micro-unit at a time, each to whoever has least by reservation while that lasts, and by weight
// afterwards: the plan is the same, up to the units that are under way.
func TestEqualsGreedy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t, 500, false)
		for i := range in.claims {
			// Otherwise the last units of a huge weight decide all.
			in.claims[i].Weight = min(in.claims[i].Weight, 20_000)
		}
		p := in.plan(t)
		got, base := make([]float64, len(in.claims)), make([]float64, len(in.claims))
		for range in.capacity {
			best, key, tier := -1, math.Inf(1), 3
			for i, c := range in.claims {
				var k float64
				at := 2
				switch {
				case got[i]+1 > float64(wants(c)):
					continue
				case got[i]+1 <= float64(c.Reservation):
					k, at = (got[i]+0.5)/float64(c.Reservation), 0
				case c.Weight > 0:
					k, at = (got[i]-base[i]+0.5)/float64(c.Weight), 1
				default:
					k = got[i] - base[i] + 0.5
				}
				if at < tier || at == tier && k < key {
					best, key, tier = i, k, at
				}
			}
			if best < 0 {
				break
			}
			got[best]++
			if tier == 0 {
				base[best]++
			}
		}
		for i := range got {
			if d := got[i] - float64(p.Claims[i].Final); math.Abs(d) > 2 {
				t.Fatalf("claim %d of %+v: %.0f, planned %d of %d", i, in.claims, got[i], p.Claims[i].Final, in.capacity)
			}
		}
	})
}
