package placement

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
)

// traces is everything that a snapshot holds and a step changes, in an order of its own.
func traces(s *Snapshot) string {
	var b strings.Builder
	for i := range s.cells {
		c := &s.cells[i]
		fmt.Fprintln(&b, c.ID, c.tenants, c.load, c.settled, c.worst, c.worstTenants, c.share, c.space, c.room)
		for x, with := range c.backing {
			if with != nil {
				groups := map[int32]int{}
				for _, g := range with.apart {
					groups[g]++
				}
				fmt.Fprintln(&b, "  backs", x, with.load, with.tenants, groups)
			}
		}
		for g := range int32(len(s.apartOf) + 1) {
			fmt.Fprint(&b, c.apart[g], " ")
		}
		for _, o := range []cell.OrganizationID{"o1", "o2"} {
			if of := s.organizations[o]; of != nil {
				fmt.Fprint(&b, c.members[of], "/", of.tenants, " ")
			}
		}
	}
	for i := range s.tenants {
		t := &s.tenants[i]
		fmt.Fprintln(&b, t.ID, t.home, t.going, t.backup, t.class)
	}
	fmt.Fprintln(&b, len(s.classes), len(s.classOf), len(s.organizations), s.closed, s.budget)
	return b.String()
}

func small(random *rand.Rand) *Snapshot {
	cells := make([]Cell, 2+random.IntN(5))
	for i := range cells {
		cells[i] = Cell{
			ID: cell.ID(fmt.Sprintf("cell-%d", i)), Kind: KindPooled, Phase: PhaseOpen, Capacity: Load{Compute: 10 * cell.Unit, Jobs: 100},
			Labels: []Label{{Key: "zone", Value: fmt.Sprint(i % 2)}},
		}
		if random.IntN(8) == 0 {
			cells[i].Kind, cells[i].Labels = KindDedicated, []Label{{Key: LabelOrganization, Value: "o1"}}
		}
	}
	tenants := make([]Tenant, 1+random.IntN(30))
	for i := range tenants {
		t := &tenants[i]
		t.ID = cell.TenantID(fmt.Sprintf("tenant-%d", i))
		t.Bytes = random.Int64N(1 << 28)
		t.Organization = []cell.OrganizationID{"", "", "o1", "o2"}[random.IntN(4)]
		t.Rules.Apart = []string{"", "", "", "g1", "g2"}[random.IntN(5)]
		if random.IntN(4) == 0 {
			t.Rules.Require = []Label{{Key: "zone", Value: fmt.Sprint(random.IntN(2))}}
		}
		for h := range int64(24) {
			use := Load{Compute: cell.Rate(random.IntN(cell.Unit)), Jobs: random.Int64N(5)}
			t.Profile = t.Profile.Record(1000+h, Sample{Average: use, P95: use})
		}
		if random.IntN(3) > 0 {
			t.Home = cells[random.IntN(len(cells))].ID
		}
	}
	pending := []Move{{Tenant: "tenant-0", Target: cells[random.IntN(len(cells))].ID, Since: 1}}
	cfg := DefaultConfig()
	cfg.OrganizationTenantsMin = 4
	return NewSnapshot(cfg, HourMax.instantOf(1024), cells, tenants, pending)
}

// TestUndoLeavesNoTrace takes steps and takes them back, and asks for every plan in between, which may not leave one either.
func TestUndoLeavesNoTrace(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 6))
		s := small(random)
		var before []string
		var undo []func()
		for range 1 + random.IntN(8) {
			was := traces(s)
			before = append(before, was)
			tenant, target := &s.tenants[random.IntN(len(s.tenants))], s.cells[random.IntN(len(s.cells))].ID
			s.PlaceAll()
			s.Rebalance()
			s.Check()
			s.Whales()
			s.Place(*tenant.Tenant)
			s.Place(Tenant{ID: "new", Organization: "o2", Rules: Rules{Apart: "g1", Require: []Label{{Key: "zone", Value: "9"}}}})
			if _, err := s.Evacuate(target); err != nil {
				t.Fatal(err)
			}
			if now := traces(s); now != was {
				t.Fatalf("seed %d: plans left\n%s\nof\n%s", seed, now, was)
			}
			undo = append(undo, s.Assume(Decision{Tenant: tenant.ID, Target: target}))
		}
		for len(undo) > 0 {
			last := len(undo) - 1
			undo[last]()
			if now := traces(s); now != before[last] {
				t.Fatalf("seed %d: undone to\n%s\nfrom\n%s", seed, now, before[last])
			}
			undo = undo[:last]
		}
	}
}

// TestReserveIsKept: after any steps, a cell keeps room for the most that any one loss brings, by sums from scratch.
func TestReserveIsKept(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 7))
		s := small(random)
		for range random.IntN(8) {
			s.Assume(Decision{Tenant: s.tenants[random.IntN(len(s.tenants))].ID, Target: s.cells[random.IntN(len(s.cells))].ID})
		}
		for b := range s.cells {
			var worst Day
			most := 0
			for x := range s.cells {
				var load Day
				n := 0
				for i := range s.tenants {
					if o := &s.tenants[i]; o.backup == b && o.seat() == x && o.home != b {
						load.add(&o.day)
						n++
					}
				}
				most = max(most, n)
				for h := range worst {
					worst[h] = worst[h].Max(load[h])
				}
			}
			if c := &s.cells[b]; c.worst != worst || c.worstTenants != most {
				t.Fatalf("seed %d: %s keeps %v for %d, want %v for %d", seed, c.ID, c.worst, c.worstTenants, worst, most)
			}
		}
	}
}

// TestBoundIsABound: what a score is bounded by, before it is worked out, is not below it.
func TestBoundIsABound(t *testing.T) {
	for seed := range uint64(200) {
		s := small(rand.New(rand.NewPCG(seed, 8)))
		for i := range s.tenants {
			tenant := &s.tenants[i]
			of := s.poolOf(tenant, none)
			for c := range s.cells {
				bound, score := s.score(tenant, c, s.cells[c].atLeast(tenant), of), s.score(tenant, c, s.cells[c].after(tenant), of)
				if bound < score-noise {
					t.Fatalf("seed %d: %s in %s is bounded by %v and has %v", seed, tenant.ID, s.cells[c].ID, bound, score)
				}
			}
		}
	}
}

// TestMoveIsUndone is for what is not reached above: a move decided for a tenant that is on its way already.
func TestMoveIsUndone(t *testing.T) {
	s := small(rand.New(rand.NewPCG(1, 9)))
	was := traces(s)
	d, undo := s.move(0, ReasonRebalance, asked{except: none, reserve: true, keep: 4, stay: none})
	undo()
	if now := traces(s); now != was {
		t.Errorf("%v left\n%s\nof\n%s", d, now, was)
	}
	if formatDuration(90*time.Minute) != "1h30m" || formatDuration(24*time.Hour) != "24h" || formatDuration(time.Minute) != "1m" ||
		formatDuration(10*time.Second) != "10s" {
		t.Error("durations are not written as people write them")
	}
}
