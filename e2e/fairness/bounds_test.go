package fairness

import (
	"fmt"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	"github.com/fairlead/fairlead/cell/sched"
)

// bounds is what was promised of the numbers of jobs held at once, counted from the jobs' own records: a bound that is lowered under use
// stops what would add to it, and ends nothing.
type bounds struct {
	tenants map[cell.TenantID]int64
	keys    map[heldKey]int64
	held    map[heldKey]int64 // when last counted
}

// heldKey is a tenant's concurrency key; the empty key is all of its jobs.
type heldKey struct {
	tenant cell.TenantID
	key    string
}

func newBounds() bounds {
	return bounds{tenants: map[cell.TenantID]int64{}, keys: map[heldKey]int64{}, held: map[heldKey]int64{}}
}

// submitted notes the bounds of a job's keys: the latest holds for all.
func (b *bounds) submitted(p *plan) {
	for _, k := range p.spec.Keys {
		b.keys[heldKey{p.tenant, k.Key}] = k.Max
	}
}

func (b *bounds) max(h heldKey) int64 {
	if h.key == "" {
		return b.tenants[h.tenant]
	}
	return b.keys[h]
}

func (b *bounds) check(r *rig) error {
	if r.cfg.Sched.Policy == sched.PolicyFIFO {
		return nil // it knows no caps: it is there to be compared with
	}
	held := map[heldKey]int64{}
	r.state.Jobs(func(j *engine.Job) bool {
		if j.State == engine.Leased {
			held[heldKey{j.Lane.ID.Tenant, ""}]++
			for _, k := range j.Spec.Keys {
				held[heldKey{j.Lane.ID.Tenant, k.Key}]++
			}
		}
		return true
	})
	before := b.held
	b.held = held
	for h, n := range held {
		if most := b.max(h); most > 0 && n > most && n > before[h] {
			return fmt.Errorf("%s holds %d with the key %q, of at most %d", h.tenant, n, h.key, most)
		}
	}
	return nil
}
