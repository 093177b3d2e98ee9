package fairness

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
)

// side is one flow of one level of the tree: what it was charged by weight.
type side struct {
	weight, charged, largest float64 // largest single charge
}

// TestPairsStayClose keeps everybody backlogged and holds each pair of flows of one parent, organizations among themselves and tenants
// inside one, to the discipline's bound at every moment: |Si/wi - Sj/wj| <= 2Q + Maxi/wi + Maxj/wj.
func TestPairsStayClose(t *testing.T) {
	cases(t, 20, func(t *rapid.T) {
		load := drawWorkload(t)
		for _, c := range load.tenants {
			c.policy.Reservation, c.policy.Limit, c.demand = [2]cell.Rate{}, 0, 0
		}
		for i := range load.orgs {
			load.orgs[i].Reservation, load.orgs[i].Limit = [2]cell.Rate{}, 0
		}
		w := newWorld(t, quickConfig(), rapid.Uint64().Draw(t, "seed"))
		levels := load.levels()
		w.granted = func(r *run) {
			for _, l := range levels {
				l.charge(r)
				if err := l.check(float64(w.cfg.Quantum)); err != nil {
					t.Fatalf("at %v: %v", w.now.Sub(epoch), err)
				}
			}
		}
		load.start(w)
		w.pool(load.slots, "op")
		w.runFor(time.Second)
	})
}

// level is the flows of one parent, and whose runs they are charged.
type level struct {
	flows map[string]*side
	of    map[cell.TenantID]string
}

func (l *workload) levels() []*level {
	root := &level{flows: map[string]*side{}, of: map[cell.TenantID]string{}}
	levels := []*level{root}
	for _, o := range l.orgs {
		inside := &level{flows: map[string]*side{}, of: map[cell.TenantID]string{}}
		for _, c := range l.tenants {
			if c.policy.Organization == o.Organization {
				inside.add(string(c.policy.Tenant), c.policy.Weight, c)
				root.add(string(o.Organization), o.Weight, c)
			}
		}
		levels = append(levels, inside)
	}
	for _, c := range l.tenants {
		if c.policy.Organization == "" {
			root.add(string(c.policy.Tenant), c.policy.Weight, c)
		}
	}
	return levels
}

func (l *level) add(name string, weight cell.Weight, c *claimant) {
	if l.flows[name] == nil {
		l.flows[name] = &side{weight: float64(weight) / 1000}
	}
	s := l.flows[name]
	s.largest = max(s.largest, float64(c.most.Microseconds()))
	l.of[c.policy.Tenant] = name
}

func (l *level) charge(r *run) {
	if s := l.flows[l.of[r.job.Lane.Tenant]]; s != nil {
		s.charged += float64(r.charged)
	}
}

func (l *level) check(quantum float64) error {
	for a, x := range l.flows { // order-free: every pair is looked at
		for b, y := range l.flows { // order-free: every pair is looked at
			if gap, most := x.charged/x.weight-y.charged/y.weight, 2*quantum+x.largest/x.weight+y.largest/y.weight; gap > most {
				return fmt.Errorf("%s is %.0f ahead of %s, more than %.0f", a, gap, b, most)
			}
		}
	}
	return nil
}
