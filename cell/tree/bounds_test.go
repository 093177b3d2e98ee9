package tree_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/drr"
	"github.com/fairlead/fairlead/cell/tree"
)

// TestWorkDoesNotGrowWithTenants: the nodes that a dispatch touches are bounded by a constant and the heaps' paths, and nothing is allocated, in a
// tree of depth 3 with reservations, limits and credit.
func TestWorkDoesNotGrowWithTenants(t *testing.T) {
	counts := []int{1, 10, 1_000, 30_000}
	if testing.Short() {
		counts = counts[:3]
	}
	for _, n := range counts {
		tr, c := forest(t, n)
		c.touched = 0
		dispatches := 4 * min(n, 10_000)
		if got := testing.AllocsPerRun(1, func() {
			for range dispatches {
				c.dispatch(t, tr, true)
			}
		}); got != 0 {
			t.Errorf("%d tenants: %v allocations in %d dispatches", n, got, dispatches)
		}
		// Each of four tiers' heaps, the timers for two levels, and five heads in each of two rotations.
		depth := math.Ceil(math.Log(float64(n+1)) / math.Log(4))
		if bound := 20 + 8*int(depth); c.touched > bound {
			t.Errorf("%d tenants: a dispatch touches %d nodes, want at most %d", n, c.touched, bound)
		}
		if err := tr.Check(); err != nil {
			t.Error(err)
		}
	}
}

// TestExtremesAreDefined: nothing wraps around, panics or breaks an invariant at the ends of every range, whatever the order.
func TestExtremesAreDefined(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := tree.DefaultConfig()
		cfg.Quantum = rapid.SampledFrom([]int64{drr.QuantumMin, drr.DefaultQuantum, drr.QuantumMax}).Draw(t, "quantum")
		cfg.Burst = [2]time.Duration{tree.BurstMin, tree.BurstMax}
		tr, err := tree.New[string](cfg)
		if err != nil {
			t.Fatal(err)
		}
		s := &stress{t: tr, cfg: cfg}
		t.Repeat(map[string]func(*rapid.T){
			"organization": s.organization, "tenant": s.tenant, "tenant 2": s.tenant, "activate": s.activate, "activate 2": s.activate,
			"deactivate": s.deactivate, "hold": s.hold, "next": s.next, "next 2": s.next, "settle": s.settle, "time": s.time, "wake": s.wake,
			"set": s.set, "close": s.close, "idle": s.idle, "restore": s.restore, "": s.check,
		})
	})
}

// stress runs commands with values from the ends of their ranges.
type stress struct {
	t    *tree.Tree[string]
	cfg  tree.Config
	now  cell.Instant
	ids  []cell.TenantID
	held map[cell.TenantID]int
	sets [3]bool
}

var ends = []int64{0, 1, 2, 999, 1000, 1e6, 1e9, 1e12, 1e15, math.MaxInt64 / 2, math.MaxInt64 - 1, math.MaxInt64}

func end(t *rapid.T, name string) int64 { return rapid.SampledFrom(ends).Draw(t, name) }

func bounded(t *rapid.T, name string, most int64) int64 { return min(end(t, name), most) }

func (s *stress) organization(t *rapid.T) {
	r := func(name string) cell.Rate { return cell.Rate(bounded(t, name, int64(cell.RateMax))) }
	// Refusals are no concern of this test.
	_ = s.t.SetOrganization(cell.OrganizationPolicy{
		Organization: cell.OrganizationID(rapid.SampledFrom([]string{"m", "n"}).Draw(t, "organization")), Weight: cell.Weight(bounded(t, "weight", int64(cell.WeightMax))),
		Reservation: [2]cell.Rate{r("r"), r("r")}, Limit: r("limit"),
	})
}

func (s *stress) tenant(t *rapid.T) {
	r := func(name string) cell.Rate { return cell.Rate(bounded(t, name, int64(cell.RateMax))) }
	p := cell.TenantPolicy{
		Tenant: cell.TenantID(rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "tenant")), Weight: cell.Weight(bounded(t, "weight", int64(cell.WeightMax))),
		Organization: cell.OrganizationID(rapid.SampledFrom([]string{"", "m", "n"}).Draw(t, "of")),
		Reservation:  [2]cell.Rate{r("r"), r("r")}, Limit: r("limit"),
	}
	if rapid.Bool().Draw(t, "credit") {
		p.Credit = cell.Credit{Max: cell.Cost(bounded(t, "max", int64(cell.CreditMax))), Refill: r("refill"), Extra: r("extra")}
	}
	if n, err := s.t.SetTenant(p, func(c cell.Class) string { return string(p.Tenant) + c.String() }); err == nil {
		for _, id := range s.ids {
			if id == n.ID() {
				return
			}
		}
		s.ids = append(s.ids, n.ID())
	}
}

func (s *stress) lane(t *rapid.T) *tree.Lane[string] {
	if len(s.ids) == 0 {
		t.Skip("nobody")
	}
	return s.t.Tenant(rapid.SampledFrom(s.ids).Draw(t, "of")).Lane(classes.Draw(t, "class"))
}

func (s *stress) anySet(t *rapid.T) drr.SetID {
	return set(rapid.IntRange(0, len(s.sets)-1).Draw(t, "set"))
}

func (s *stress) activate(t *rapid.T) {
	if l, i := s.lane(t), s.anySet(t); s.sets[i] {
		s.t.Activate(l, i)
	}
}

func (s *stress) deactivate(t *rapid.T) { s.t.Deactivate(s.lane(t), s.anySet(t)) }

func (s *stress) hold(t *rapid.T) {
	n := s.lane(t).Tenant()
	if s.held == nil {
		s.held = map[cell.TenantID]int{}
	}
	if s.held[n.ID()] > 0 && rapid.Bool().Draw(t, "release") {
		s.held[n.ID()]--
		s.t.Release(n)
	} else {
		s.held[n.ID()]++
		s.t.Hold(n)
	}
}

func (s *stress) next(t *rapid.T) {
	class, i := classes.Draw(t, "class"), s.anySet(t)
	p, ok := s.t.Next(s.now, class, i)
	if ok != (s.t.Waiting(class, i) > 0) {
		t.Fatalf("%d wait, and next says %t", s.t.Waiting(class, i), ok)
	}
	if ok {
		s.t.Charge(p, i, cell.Cost(end(t, "cost")))
	}
}

func (s *stress) settle(t *rapid.T) {
	delta := end(t, "delta")
	if rapid.Bool().Draw(t, "refund") {
		delta = -delta
	}
	s.t.Settle(s.lane(t), s.anySet(t), tree.Tier(rapid.IntRange(0, 5).Draw(t, "tier")), cell.Cost(delta))
}

func (s *stress) time(t *rapid.T) {
	s.now = max(s.now, cell.Instant(end(t, "now")))
	s.t.Advance(s.now)
}

func (s *stress) wake(t *rapid.T) {
	if at := s.t.Wake(); at != 0 {
		if at <= s.now {
			t.Fatalf("at %d it wakes at %d", s.now, at)
		}
		s.now = at
		s.t.Advance(at)
	}
}

func (s *stress) set(t *rapid.T) {
	i := s.anySet(t)
	if err := s.t.OpenSet(i); err != nil {
		t.Fatal(err)
	}
	s.sets[i] = true
}

func (s *stress) close(t *rapid.T) {
	i := s.anySet(t)
	s.t.CloseSet(i)
	s.sets[i] = false
}

func (s *stress) idle(t *rapid.T) { s.t.Idle(classes.Draw(t, "class"), end(t, "time")) }

func (s *stress) restore(t *rapid.T) {
	l := s.lane(t)
	s.t.RestoreLane(l, cell.LaneAccount{Rounds: end(t, "rounds"), Deficit: -end(t, "deficit"), Ahead: time.Duration(end(t, "ahead"))})
	s.t.RestoreTenant(l.Tenant(), cell.TenantAccount{
		LimitTag: cell.Instant(end(t, "limit")), CreditTag: cell.Instant(end(t, "credit")), Credit: cell.Cost(end(t, "left")), CreditAt: cell.Instant(end(t, "at")),
	})
	if a := s.t.LaneAccount(l); a.Rounds < 0 {
		t.Fatalf("%+v", a)
	}
	s.t.Standing(l)
}

func (s *stress) check(t *rapid.T) {
	if err := s.t.Check(); err != nil {
		t.Fatal(err)
	}
}
