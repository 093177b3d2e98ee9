package plan

import (
	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/allocate"
	"github.com/fairlead/fairlead/cell/policy"
)

// Promised returns an input whose tenants have what a policy promises them, in the classes given: the reservations of several are added up.
// Those whom demands names demand what it says; when it names nobody, all of the policy's tenants demand all that they can get. A capacity in
// demands stands before the policy's.
func Promised(f policy.File, classes []cell.Class, demands Input) Input {
	in := Input{Capacity: demands.Capacity, HasCapacity: demands.HasCapacity, Unit: f.Costing.UnitName()}
	if !in.HasCapacity {
		in.Capacity, in.HasCapacity = capacityOf(f, classes)
	}
	if len(demands.Tenants) > 0 {
		in.Tenants = demands.Tenants
	} else {
		for _, t := range f.Tenants {
			in.Tenants = append(in.Tenants, Tenant{Claim: allocate.Claim{Name: string(t.Tenant), Demand: allocate.Unlimited}})
		}
	}
	promises := make(map[string]cell.TenantPolicy, len(f.Tenants))
	for _, t := range f.Tenants {
		promises[string(t.Tenant)] = t
	}
	below := make(map[string][2]cell.Rate) // reservations of an organization's tenants
	for i := range in.Tenants {
		t := &in.Tenants[i]
		p, ok := promises[t.Name]
		if !ok {
			p = f.Default
		}
		t.Organization, t.Weight, t.Limit, t.Reservation = string(p.Organization), p.Weight, p.Limit, reserved(p.Reservation, classes)
		sum := below[t.Organization]
		for c, r := range p.Reservation {
			sum[c] += r
		}
		below[t.Organization] = sum
	}
	for _, o := range f.Organizations {
		tenants, ok := below[string(o.Organization)]
		if !ok {
			continue
		}
		own := reserved(o.Reservation, classes)
		for _, c := range classes {
			// In a class without a reservation of its own, its tenants' hold all the same.
			if own > 0 && o.Reservation[c.Index()] == 0 {
				own += tenants[c.Index()]
			}
		}
		in.Organizations = append(in.Organizations, allocate.Organization{
			Name: string(o.Organization), Weight: o.Weight, Limit: o.Limit, Reservation: own,
		})
	}
	return in
}

func reserved(each [2]cell.Rate, classes []cell.Class) cell.Rate {
	var sum cell.Rate
	for _, c := range classes {
		sum += each[c.Index()]
	}
	return sum
}

// capacityOf is what the classes have together, if the policy says so for each.
func capacityOf(f policy.File, classes []cell.Class) (cell.Rate, bool) {
	var sum cell.Rate
	for _, c := range classes {
		capacity := f.Sched.Bulkheads[c.Index()].Capacity
		if capacity == 0 {
			return 0, false
		}
		sum += capacity
	}
	return sum, true
}
