package placement_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/placement"
)

// world is what a snapshot is made of.
type world struct {
	cfg     placement.Config
	cells   []placement.Cell
	tenants []placement.Tenant
	moves   []placement.Move
}

func (w *world) snapshot() *placement.Snapshot {
	return placement.NewSnapshot(w.cfg, now, w.cells, w.tenants, w.moves)
}

func pick[T any](random *rand.Rand, of ...T) T { return of[random.IntN(len(of))] }

// anyWorld draws a small world with everything in it that a filter looks at. Tenants are at home somewhere, allowed or not, or nowhere.
func anyWorld(random *rand.Rand) *world {
	w := &world{cfg: placement.DefaultConfig()}
	w.cfg.TenantsMax = pick(random, 5, 8, 1000)
	w.cfg.OrganizationTenantsMin = pick(random, 2, 4, 100)
	w.cfg.FailureReserve = random.IntN(2) == 0
	for i := range 2 + random.IntN(6) {
		c := placement.Cell{
			ID: cell.ID(fmt.Sprintf("cell-%d", i)), Kind: placement.KindPooled, Phase: placement.PhaseOpen,
			Capacity: placement.Load{Compute: cell.Rate(5+random.IntN(10)) * cell.Unit, Jobs: int64(50 + random.IntN(100))},
			Labels:   []placement.Label{{Key: "residency", Value: pick(random, "eu", "us")}},
		}
		switch random.IntN(10) {
		case 0:
			c.Phase = pick(random, placement.PhaseForming, placement.PhaseCordoned, placement.PhaseDraining)
		case 1:
			c.Kind = placement.KindDedicated
			c.Labels = append(c.Labels, placement.Label{Key: placement.LabelTenant, Value: fmt.Sprintf("tenant-%02d", random.IntN(20))})
		case 2:
			c.Kind = placement.KindDedicated
			c.Labels = []placement.Label{{Key: placement.LabelOrganization, Value: pick(random, "o1", "o2")}}
		case 3:
			c.Capacity = placement.Load{}
		}
		w.cells = append(w.cells, c)
	}
	for i := range 1 + random.IntN(25) {
		w.tenants = append(w.tenants, anyTenant(random, i, w.cells))
	}
	for range random.IntN(3) {
		t := pick(random, w.tenants...)
		target := pick(random, w.cells...).ID
		if t.Home != "" && t.Home != target && !slices.ContainsFunc(w.moves, func(m placement.Move) bool { return m.Tenant == t.ID }) {
			w.moves = append(w.moves, placement.Move{Tenant: t.ID, Source: t.Home, Target: target, Bytes: t.Bytes, Since: now})
		}
	}
	return w
}

func anyTenant(random *rand.Rand, i int, cells []placement.Cell) placement.Tenant {
	t := placement.Tenant{
		ID: cell.TenantID(fmt.Sprintf("tenant-%02d", i)), Bytes: random.Int64N(1 << 30),
		Organization: pick(random, "", "", cell.OrganizationID("o1"), cell.OrganizationID("o2")),
	}
	if random.IntN(3) > 0 {
		t.Profile = profile(random.Float64()*3*cell.Unit, random.IntN(24), random.Float64())
	}
	if random.IntN(4) == 0 {
		t.Rules.Require = []placement.Label{{Key: "residency", Value: pick(random, "eu", "us")}}
	}
	if random.IntN(4) == 0 {
		t.Rules.Apart = pick(random, "g1", "g2")
	}
	if random.IntN(10) == 0 {
		t.Rules.Cell = pick(random, cells...).ID
	}
	if random.IntN(5) == 0 {
		t.Rules.ComputeMin = cell.Rate(random.IntN(2 * cell.Unit))
	}
	if random.IntN(5) == 0 {
		t.Reserved = cell.Rate(random.IntN(2 * cell.Unit))
	}
	if random.IntN(3) > 0 {
		t.Home, t.Since = pick(random, cells...).ID, now.Add(-time.Duration(random.IntN(100))*time.Hour)
	}
	return t
}

// demand is what a tenant counts for, from its profile.
func (w *world) demand(t placement.Tenant) placement.Day {
	floor := w.cfg.DemandMin.Max(placement.Load{Compute: max(t.Rules.ComputeMin, t.Reserved), Bytes: t.Bytes})
	var d placement.Day
	for h := range d {
		d[h] = t.Profile.Demand(floor, h)
	}
	return d
}

// moving returns where a tenant is going; empty for nowhere.
func (w *world) moving(id cell.TenantID) cell.ID {
	for _, m := range w.moves {
		if m.Tenant == id && m.Ended == 0 {
			return m.Target
		}
	}
	return ""
}

// naive is a cell's load, summed anew.
func (w *world) naive(id cell.ID, except cell.TenantID) (hours, settled placement.Day, in []placement.Tenant) {
	for _, t := range w.tenants {
		if t.ID == except {
			continue
		}
		to := w.moving(t.ID)
		if t.Home == id || to == id {
			hours = hours.Add(w.demand(t))
			in = append(in, t)
		}
		if to == id || to == "" && t.Home == id {
			settled = settled.Add(w.demand(t))
		}
	}
	return hours, settled, in
}

// TestLoadsAreSums compares with sums from scratch: of a new snapshot, and of one on which decisions were assumed.
func TestLoadsAreSums(t *testing.T) {
	for seed := range uint64(150) {
		random := rand.New(rand.NewPCG(seed, 1))
		w := anyWorld(random)
		s := w.snapshot()
		for step := range 6 {
			for i, l := range s.Loads() {
				hours, settled, in := w.naive(l.Cell, "")
				if l.Hours != hours || l.Settled != settled || l.Tenants != len(in) {
					t.Fatalf("seed %d, step %d: %s has\n%v\nwant\n%v", seed, step, l.Cell, l, hours)
				}
				capacity := w.cells[i].Capacity
				if capacity == (placement.Load{}) {
					capacity = w.cfg.Assumed
				}
				if want := settled.Dominant(capacity); math.Abs(l.Share-want) > 1e-9 {
					t.Fatalf("seed %d: %s has a share of %v, want %v", seed, l.Cell, l.Share, want)
				}
			}
			i := random.IntN(len(w.tenants))
			target := pick(random, w.cells...).ID
			s.Assume(placement.Decision{Tenant: w.tenants[i].ID, Target: target})
			w.moves = slices.DeleteFunc(w.moves, func(m placement.Move) bool { return m.Tenant == w.tenants[i].ID })
			if w.tenants[i].Home == "" {
				w.tenants[i].Home = target
			} else if w.tenants[i].Home != target {
				w.moves = append(w.moves, placement.Move{Tenant: w.tenants[i].ID, Target: target, Since: now})
			}
		}
	}
}

// verdict is what the naive model says of a cell: the name of the filter, or a score.
type verdict struct {
	filter string
	score  float64
}

// judge asks the filters of one cell, each by its definition, but for the failure reserve.
func (w *world) judge(t placement.Tenant, c placement.Cell) verdict {
	hours, settled, in := w.naive(c.ID, t.ID)
	lacks := slices.ContainsFunc(t.Rules.Require, func(l placement.Label) bool { return !slices.Contains(c.Labels, l) })
	switch {
	case c.Phase != placement.PhaseOpen:
		return verdict{filter: "phase"}
	case c.Kind == placement.KindDedicated && !w.owns(t, c, in):
		return verdict{filter: "kind"}
	case t.Rules.Cell != "" && t.Rules.Cell != c.ID:
		return verdict{filter: "fixed cell"}
	case lacks:
		return verdict{filter: "labels"}
	case t.Rules.Apart != "" && slices.ContainsFunc(in, func(o placement.Tenant) bool { return o.Rules.Apart == t.Rules.Apart }):
		return verdict{filter: "anti-affinity"}
	case len(in)+1 > w.cfg.TenantsMax || w.tooManyOf(t, c, in):
		return verdict{filter: "blast radius"}
	}
	with := hours.Add(w.demand(t))
	bound := c.Capacity.Scale(w.cfg.FillMax)
	for h := range with {
		if !with[h].Fits(bound) {
			return verdict{filter: "capacity"}
		}
	}
	return verdict{score: w.score(t, c, settled)}
}

func (w *world) owns(t placement.Tenant, c placement.Cell, in []placement.Tenant) bool {
	mine := t.Rules.Cell == c.ID || slices.Contains(c.Labels, placement.Label{Key: placement.LabelTenant, Value: string(t.ID)}) ||
		t.Organization != "" && slices.Contains(c.Labels, placement.Label{Key: placement.LabelOrganization, Value: string(t.Organization)})
	return mine && !slices.ContainsFunc(in, func(o placement.Tenant) bool { return t.Organization == "" || o.Organization != t.Organization })
}

func (w *world) tooManyOf(t placement.Tenant, c placement.Cell, in []placement.Tenant) bool {
	if t.Organization == "" || c.Kind != placement.KindPooled || len(w.allowed(t)) < 2 {
		return false
	}
	all, here := 0, 0
	for _, o := range w.tenants {
		if o.Organization == t.Organization {
			all++
		}
	}
	for _, o := range in {
		if o.Organization == t.Organization {
			here++
		}
	}
	return all >= w.cfg.OrganizationTenantsMin && float64(here+1) > math.Ceil(w.cfg.OrganizationShareMax*float64(all))
}

// allowed is the open pooled cells with the labels that a tenant requires.
func (w *world) allowed(t placement.Tenant) (cells []placement.Cell) {
	for _, c := range w.cells {
		if c.Kind == placement.KindPooled && c.Phase == placement.PhaseOpen && (t.Rules.Cell == "" || t.Rules.Cell == c.ID) &&
			!slices.ContainsFunc(t.Rules.Require, func(l placement.Label) bool { return !slices.Contains(c.Labels, l) }) {
			cells = append(cells, c)
		}
	}
	return cells
}

func (w *world) capacity(c placement.Cell) placement.Load {
	if c.Capacity == (placement.Load{}) {
		return w.cfg.Assumed
	}
	return c.Capacity
}

// score is the sum of the parts as they are documented.
func (w *world) score(t placement.Tenant, c placement.Cell, settled placement.Day) float64 {
	capacity, mine := w.capacity(c), w.demand(t)
	size, share := mine.Peak().Dominant(capacity), settled.Dominant(capacity)
	after := settled.Add(mine).Dominant(capacity)
	unit := func(f float64) float64 { return max(0, min(1, f)) }
	large := unit((size - w.cfg.Small) / (w.cfg.Large - w.cfg.Small))
	score := w.cfg.Weights.Fit * ((1-large)*unit(share) + large*(1-unit(share)))
	score += w.cfg.Weights.Hours * unit(1-(after-share)/size)
	if t.Home == c.ID {
		score += w.cfg.Weights.Stability
	}
	if c.Kind == placement.KindDedicated {
		return score + w.cfg.Weights.Dedicated
	}
	total, n := size, 0.0
	for _, o := range w.allowed(t) {
		_, there, _ := w.naive(o.ID, t.ID)
		total += there.Dominant(w.capacity(o))
		n++
	}
	return score - w.cfg.Weights.Balance*max(0, after-total/n*(1+w.cfg.Tolerance))
}

// TestPlaceIsBruteForce compares with a model that sums and scores everything anew. The failure reserve may reject more; nothing else may.
func TestPlaceIsBruteForce(t *testing.T) {
	reserved := 0
	for seed := range uint64(150) {
		w := anyWorld(rand.New(rand.NewPCG(seed, 2)))
		s := w.snapshot()
		for _, tenant := range w.tenants {
			d := s.Place(tenant)
			if len(d.Candidates) != len(w.cells) {
				t.Fatalf("seed %d: %d candidates of %d cells", seed, len(d.Candidates), len(w.cells))
			}
			best, score := math.Inf(-1), math.Inf(-1)
			for n, c := range d.Candidates {
				i := slices.IndexFunc(w.cells, func(o placement.Cell) bool { return o.ID == c.Cell })
				want := w.judge(tenant, w.cells[i])
				filter, _, _ := strings.Cut(c.Rejected, ":")
				if filter == "failure reserve" && want.filter == "" && w.cfg.FailureReserve {
					reserved++
					continue
				}
				if filter != want.filter {
					t.Fatalf("seed %d: %s in %s is rejected by %q, want %q\n%v", seed, tenant.ID, c.Cell, c.Rejected, want.filter, d)
				}
				if filter != "" {
					continue
				}
				parts := 0.0
				for _, p := range c.Parts {
					parts += p.Value
				}
				if math.Abs(c.Score-want.score) > 1e-6 || math.Abs(parts-c.Score) > 1e-6 {
					t.Fatalf("seed %d: %s in %s has %v, of parts %v, want %v", seed, tenant.ID, c.Cell, c.Score, c.Parts, want.score)
				}
				best = max(best, want.score)
				if n == 0 {
					score = want.score
				}
			}
			if (d.Target == "") != math.IsInf(best, -1) || d.Target != "" && (d.Target != d.Candidates[0].Cell || score < best-1e-6) {
				t.Fatalf("seed %d: %s goes to %q, with %v of %v\n%v", seed, tenant.ID, d.Target, score, best, d)
			}
		}
	}
	if reserved == 0 {
		t.Error("the reserve never rejected anything: nothing was compared")
	}
}

// TestManyCellsAreAsFew: what is skipped, because a bound of its score is too low, could not have been the best.
func TestManyCellsAreAsFew(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	w := &world{cfg: placement.DefaultConfig(), cells: pooled(40, placement.Load{Compute: 20 * cell.Unit})}
	w.cfg.FailureReserve = false
	w.tenants = zipf(random, 150, 0.8, 300*cell.Unit)
	for i := range w.tenants {
		if i%3 > 0 {
			w.tenants[i].Home = pick(random, w.cells...).ID
		}
	}
	s := w.snapshot()
	for _, tenant := range w.tenants[:12] {
		d := s.Place(tenant)
		best := math.Inf(-1)
		for _, c := range w.cells {
			if v := w.judge(tenant, c); v.filter == "" {
				best = max(best, v.score)
			}
		}
		others := 0
		for _, o := range d.Others {
			others += o.Cells
		}
		if len(d.Candidates)+others != len(w.cells) || len(d.Candidates) > placement.CandidatesMax {
			t.Fatalf("%d candidates and %d others of %d cells", len(d.Candidates), others, len(w.cells))
		}
		if (d.Target == "") != math.IsInf(best, -1) || d.Target != "" && math.Abs(d.Candidates[0].Score-best) > 1e-6 {
			t.Fatalf("%s has %v, the best is %v", tenant.ID, d.Candidates[0], best)
		}
	}
}

// everything is all that can be asked of a snapshot, as text.
func everything(s *placement.Snapshot, w *world) string {
	var b strings.Builder
	plans := []placement.Plan{s.PlaceAll(), s.Rebalance()}
	for _, c := range slices.SortedFunc(slices.Values(w.cells), func(a, b placement.Cell) int { return strings.Compare(string(a.ID), string(b.ID)) }) {
		plan, err := s.Evacuate(c.ID)
		if err != nil {
			panic(err)
		}
		plans = append(plans, plan)
	}
	for _, p := range plans {
		for _, d := range p.Decisions {
			b.WriteString(d.String())
		}
		fmt.Fprintln(&b, p.Held, p.ImbalanceBefore, p.ImbalanceAfter)
	}
	b.WriteString(findings(s.Check()))
	b.WriteString(whales(s.Whales()))
	for _, l := range s.Loads() {
		fmt.Fprintln(&b, l)
	}
	for _, t := range slices.SortedFunc(slices.Values(w.tenants), func(a, b placement.Tenant) int { return strings.Compare(string(a.ID), string(b.ID)) }) {
		b.WriteString(s.Place(t).String())
	}
	return b.String()
}

// TestOrderDoesNotMatter: neither the order of what a snapshot is made of, nor what it was asked before, changes anything.
func TestOrderDoesNotMatter(t *testing.T) {
	for seed := range uint64(150) {
		random := rand.New(rand.NewPCG(seed, 4))
		w := anyWorld(random)
		s := w.snapshot()
		first := everything(s, w)
		if again := everything(s, w); again != first {
			t.Fatalf("seed %d: asked again\n%s\nfirst\n%s", seed, again, first)
		}
		shuffled := &world{cfg: w.cfg, cells: slices.Clone(w.cells), tenants: slices.Clone(w.tenants), moves: slices.Clone(w.moves)}
		random.Shuffle(len(w.cells), func(i, j int) { shuffled.cells[i], shuffled.cells[j] = shuffled.cells[j], shuffled.cells[i] })
		random.Shuffle(len(w.tenants), func(i, j int) { shuffled.tenants[i], shuffled.tenants[j] = shuffled.tenants[j], shuffled.tenants[i] })
		random.Shuffle(len(w.moves), func(i, j int) { shuffled.moves[i], shuffled.moves[j] = shuffled.moves[j], shuffled.moves[i] })
		if other := everything(shuffled.snapshot(), shuffled); other != first {
			t.Fatalf("seed %d: in another order\n%s\nfirst\n%s", seed, other, first)
		}
	}
}

// TestPlansKeepTheRules: whatever is planned is allowed, fits with all that was planned before it, and is no further than the budget goes.
func TestPlansKeepTheRules(t *testing.T) {
	placed, moved := 0, 0
	for seed := range uint64(400) {
		w := anyWorld(rand.New(rand.NewPCG(seed, 5)))
		w.cfg.MovesMax, w.cfg.MoveBytesMax = 3, 1<<30
		s := w.snapshot()
		evacuated := w.cells[int(seed)%len(w.cells)].ID
		evacuation, err := s.Evacuate(evacuated)
		if err != nil {
			t.Fatal(err)
		}
		for _, plan := range []placement.Plan{s.PlaceAll(), s.Rebalance(), evacuation} {
			during := &world{cfg: w.cfg, cells: w.cells, tenants: slices.Clone(w.tenants), moves: slices.Clone(w.moves)}
			moves, bytes := 0, int64(0)
			for _, d := range plan.Decisions {
				i := slices.IndexFunc(during.tenants, func(t placement.Tenant) bool { return t.ID == d.Tenant })
				if d.Target == "" {
					continue
				}
				if d.Target == d.Source || d.Reason == placement.ReasonEvacuate && d.Target == evacuated {
					t.Fatalf("seed %d: goes where it is\n%v", seed, d)
				}
				j := slices.IndexFunc(w.cells, func(c placement.Cell) bool { return c.ID == d.Target })
				if v := during.judge(during.tenants[i], w.cells[j]); v.filter != "" {
					t.Fatalf("seed %d: rejected by %s\n%v", seed, v.filter, d)
				}
				if d.Reason == placement.ReasonPlace {
					placed++
					during.tenants[i].Home = d.Target
					continue
				}
				moves, bytes = moves+1, bytes+d.Bytes
				during.moves = append(during.moves, placement.Move{Tenant: d.Tenant, Target: d.Target})
				if d.Reason == placement.ReasonRebalance && d.Text == "" {
					t.Fatalf("seed %d: no reason\n%v", seed, d)
				}
			}
			before := len(w.moves)
			if len(plan.Decisions) > 0 && plan.Decisions[0].Reason != placement.ReasonEvacuate && moves > 0 && moves+before > 3 {
				t.Fatalf("seed %d: %d moves beside %d, of at most 3", seed, moves, before)
			}
			moved += moves
			if bytes > 1<<30 && plan.Decisions[0].Reason != placement.ReasonEvacuate {
				t.Fatalf("seed %d: %d bytes", seed, bytes)
			}
		}
	}
	if placed < 100 || moved < 100 {
		t.Errorf("%d placed and %d moved: too few to say much", placed, moved)
	}
}
