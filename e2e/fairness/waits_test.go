package fairness

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
)

// The longest wait of a tenant that has one job at a time, in a cell of W slots that is never idle, beside others that always have more.
// Let M be the longest run, b the burst, r the sum of what others reserve and x the sum of the rates at which they spend credit, in slots.
// While the tenant waits for t, others are charged at most
//
//	r (t + 2b) + M for each that reserves        a tag is at most 2b behind (rule 5), and passes the time by one job at most
//	x (t + b) + M for each that spends credit    as the tag K begins at most b behind
//	B from what is shared                        by the bound between two flows: sum over the others of w (2Q + M/wi) + M, level by level
//
// and the slots are busy with that, and with what ran when it came: W t <= W M + all of it, which gives the bound below. A tenant within
// its own reservation waits for no share and no credit, but for those reservations whose tags are before its own, by 2b at most: M + (2b r
// + M each) / W.

// quiet is a tenant with one job at a time.
type quiet struct {
	*claimant
	waited time.Duration // the longest
	served int
}

// ask adds a job, and another some time after its end: think, or up to 20 ms more.
func (q *quiet) ask(x *world, class cell.Class, think time.Duration) {
	j := q.job(x, class)
	j.done = func(r *run) {
		q.served++
		q.waited = max(q.waited, r.at.Sub(r.ready))
		x.at(x.now.Add(think+time.Duration(x.rng.Int64N(20e6))), rankArrive, func() { q.ask(x, class, think) })
	}
	x.add(j)
}

// TestNobodyWaitsLong floods cells, and holds the wait of a quiet tenant to its bound, with and without a reservation of its own.
func TestNobodyWaitsLong(t *testing.T) {
	cases(t, 15, func(t *rapid.T) {
		load := drawWorkload(t)
		for _, c := range load.tenants {
			c.demand = 0
			if rapid.IntRange(0, 4).Draw(t, "credit") == 0 {
				c.policy.Credit = cell.Credit{Max: 2_000_000, Refill: slot / 50, Extra: slot / 20}
			}
		}
		q := &quiet{claimant: load.tenants[0]}
		q.policy.Limit, q.policy.Credit = 0, cell.Credit{}
		w := newWorld(t, quickConfig(), rapid.Uint64().Draw(t, "seed"))
		load.tenants = load.tenants[1:]
		for i := range load.orgs { // a limit of its organization's could block it
			if load.orgs[i].Organization == q.policy.Organization {
				load.orgs[i].Limit = 0
			}
		}
		w.pool(load.slots, "op")
		for _, o := range load.orgs {
			w.organization(o)
		}
		w.tenant(q.policy)
		load.start(w)
		w.runFor(200 * time.Millisecond)
		think := time.Duration(0)
		bound := load.waitBound(w, q)
		if r := q.policy.Reservation[load.class.Index()]; r > 0 {
			// It asks for less than it reserves, and so never for more than its tag allows.
			think = time.Duration(float64(q.most) * float64(slot) / float64(r))
		}
		q.ask(w, load.class, think)
		w.runFor(4 * time.Second)
		if q.served == 0 || q.waited > bound {
			t.Fatalf("it waited up to %v of at most %v, for %d jobs", q.waited, bound, q.served)
		}
	})
}

// waitBound is the bound above.
func (l *workload) waitBound(w *world, q *quiet) time.Duration {
	i := l.class.Index()
	longest := max(l.longest(), q.most)
	m := float64(longest.Microseconds())
	slots, b, quantum := float64(l.slots), float64(w.cfg.Bulkheads[i].Burst.Microseconds()), float64(w.cfg.Quantum)
	reserved, spends, jobs := 0.0, 0.0, 0.0
	whole := map[cell.OrganizationID]bool{}
	for _, o := range l.orgs {
		if r := o.Reservation[i]; r > 0 {
			whole[o.Organization] = true
			reserved += float64(r) / float64(slot)
			jobs++
		}
	}
	for _, c := range l.tenants {
		if r := c.policy.Reservation[i]; r > 0 {
			jobs++
			if !whole[c.policy.Organization] {
				reserved += float64(r) / float64(slot)
			}
		}
		if c.policy.Credit.Extra > 0 {
			jobs++
			spends += float64(c.policy.Credit.Extra) / float64(slot)
		}
	}
	if r := q.policy.Reservation[i]; r > 0 {
		return micros(m + (2*b*reserved+jobs*m)/slots)
	}
	shared := l.sharedBound(q, quantum, m)
	return micros((slots*m + reserved*2*b + spends*b + jobs*m + shared) / (slots - reserved - spends))
}

func micros(f float64) time.Duration { return time.Duration(f) * time.Microsecond }

// sharedBound is what others may be charged from what is shared while a flow waits that wants a job of at most m: B above.
func (l *workload) sharedBound(q *quiet, quantum, m float64) float64 {
	weight := func(w cell.Weight) float64 { return float64(w) / 1000 }
	own, before := weight(q.policy.Weight), 0.0
	var org *cell.OrganizationPolicy
	for i := range l.orgs {
		if l.orgs[i].Organization == q.policy.Organization {
			org = &l.orgs[i]
		}
	}
	for _, c := range l.tenants {
		if c.policy.Organization == q.policy.Organization && org != nil {
			before += weight(c.policy.Weight)*(2*quantum+m/own) + m
		}
	}
	if org != nil { // its siblings' service is its organization's, beside which the others have theirs
		own = weight(org.Weight)
	}
	all := before
	for _, c := range l.tenants {
		if c.policy.Organization == "" {
			all += weight(c.policy.Weight)*(2*quantum+(m+before)/own) + m
		}
	}
	for _, o := range l.orgs {
		if o.Organization != q.policy.Organization {
			all += weight(o.Weight)*(2*quantum+(m+before)/own) + m
		}
	}
	return all
}
