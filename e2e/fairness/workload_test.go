package fairness

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/allocate"
)

// slot is a slot's worth of cost per second.
const slot cell.Rate = 1e6

// workload is tenants of a cell of some slots, what they are promised and what they want.
type workload struct {
	slots   int
	class   cell.Class
	orgs    []cell.OrganizationPolicy
	tenants []*claimant
}

// claimant is a tenant and its jobs.
type claimant struct {
	policy cell.TenantPolicy
	least  time.Duration // what its jobs run
	most   time.Duration
	// demand is what it submits a second; 0 for always having something to run.
	demand cell.Rate
	// declares returns what it says that a job costs which runs so long.
	declares func(run time.Duration) cell.Cost
}

func honest(run time.Duration) cell.Cost { return cell.Cost(run.Microseconds()) }

// drawWorkload draws tenants with and without organizations, reservations of at most four fifths of the cell together, limits and weights.
func drawWorkload(t *rapid.T) *workload {
	w := &workload{slots: rapid.IntRange(3, 8).Draw(t, "slots"), class: cell.ClassBatch}
	left := cell.Rate(w.slots) * slot * 8 / 10 // to reserve
	reserve := func(parts int64) cell.Rate {
		if left < slot/10 || !rapid.Bool().Draw(t, "reserves") {
			return 0
		}
		r := rapid.Int64Range(int64(slot/20), max(int64(slot/20), int64(left)/parts)).Draw(t, "reservation") / 1000 * 1000
		left -= cell.Rate(r)
		return cell.Rate(r)
	}
	weight := func() cell.Weight {
		return rapid.SampledFrom([]cell.Weight{500, 1000, 1000, 2000, 3000}).Draw(t, "weight")
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "organizations") {
		w.orgs = append(w.orgs, cell.OrganizationPolicy{Organization: cell.OrganizationID(fmt.Sprintf("org-%d", i)), Weight: weight()})
	}
	below := make([]cell.Rate, len(w.orgs))
	for i := range rapid.IntRange(2, 7).Draw(t, "tenants") {
		c := &claimant{policy: cell.TenantPolicy{Tenant: cell.TenantID(fmt.Sprintf("tenant-%d", i)), Weight: weight()}, declares: honest}
		c.policy.Reservation[w.class.Index()] = reserve(3)
		if n := rapid.IntRange(-1, len(w.orgs)-1).Draw(t, "of"); n >= 0 {
			c.policy.Organization = w.orgs[n].Organization
			below[n] += c.policy.Reservation[w.class.Index()]
		}
		if rapid.IntRange(0, 3).Draw(t, "limited") == 0 {
			c.policy.Limit = c.policy.Reservation[w.class.Index()] + cell.Rate(rapid.Int64Range(200, 3000).Draw(t, "limit"))*1000
		}
		c.least = time.Duration(rapid.Int64Range(500, 4000).Draw(t, "least")) * time.Microsecond
		c.most = c.least * time.Duration(rapid.Int64Range(1, 3).Draw(t, "spread"))
		if rapid.IntRange(0, 2).Draw(t, "demands") == 0 {
			c.demand = cell.Rate(rapid.Int64Range(100, 3000).Draw(t, "demand")) * 1000
		}
		w.tenants = append(w.tenants, c)
	}
	for i := range w.orgs {
		o := &w.orgs[i]
		if r := below[i]; r > 0 && rapid.Bool().Draw(t, "whole") {
			extra := min(left, cell.Rate(rapid.Int64Range(0, 1000).Draw(t, "more"))*1000)
			o.Reservation[w.class.Index()] = r + extra
			left -= extra
		} else if r == 0 {
			o.Reservation[w.class.Index()] = reserve(2)
		}
		if rapid.IntRange(0, 3).Draw(t, "limited") == 0 {
			o.Limit = max(below[i], o.Reservation[w.class.Index()]) + cell.Rate(rapid.Int64Range(200, 3000).Draw(t, "limit"))*1000
		}
	}
	return w
}

// plan is what the planner gives each tenant of the workload.
func (l *workload) plan(t tester) map[cell.TenantID]cell.Rate {
	t.Helper()
	var claims []allocate.Claim
	var orgs []allocate.Organization
	i := l.class.Index()
	for _, c := range l.tenants {
		demand := c.demand
		if demand == 0 {
			demand = allocate.Unlimited
		}
		claims = append(claims, allocate.Claim{
			Name: string(c.policy.Tenant), Organization: string(c.policy.Organization), Demand: demand, Reservation: c.policy.Reservation[i],
			Limit: c.policy.Limit, Weight: c.policy.Weight,
		})
	}
	for _, o := range l.orgs {
		orgs = append(orgs, allocate.Organization{
			Name: string(o.Organization), Reservation: o.Reservation[i], Limit: o.Limit, Weight: o.Weight,
		})
	}
	p, err := allocate.Allocate(cell.Rate(l.slots)*slot, claims, orgs)
	if err != nil {
		t.Fatalf("%v", err)
	}
	out := map[cell.TenantID]cell.Rate{}
	for n, c := range l.tenants {
		out[c.policy.Tenant] = p.Claims[n].Final
	}
	return out
}

// start makes the workload's tenants known to a world and has them submit.
func (l *workload) start(x *world) {
	for _, o := range l.orgs {
		x.organization(o)
	}
	for _, c := range l.tenants {
		x.tenant(c.policy)
	}
	for _, c := range l.tenants {
		if c.demand > 0 {
			c.arrive(x, l.class)
			continue
		}
		for range 2 * l.slots {
			c.replace(x, l.class)
		}
	}
}

func (c *claimant) job(x *world, class cell.Class) *job {
	run := c.least + time.Duration(x.rng.Int64N(int64(c.most-c.least)/1000+1))*time.Microsecond
	j := &job{run: run}
	j.Lane, j.Cost = cell.Lane{Tenant: c.policy.Tenant, Class: class}, c.declares(run)
	return j
}

// replace adds a job that another follows as soon as it ends: with twice as many as there are slots, the tenant always has one waiting.
func (c *claimant) replace(x *world, class cell.Class) {
	j := c.job(x, class)
	j.done = func(*run) { c.replace(x, class) }
	x.add(j)
}

// arrive adds a job, and the next when what it costs is due at the tenant's demand.
func (c *claimant) arrive(x *world, class cell.Class) {
	j := c.job(x, class)
	x.add(j)
	x.at(x.now.Add(time.Duration(float64(j.run)*float64(slot)/float64(c.demand))), rankArrive, func() { c.arrive(x, class) })
}
