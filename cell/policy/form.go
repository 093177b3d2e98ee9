package policy

import (
	"fmt"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/sched"
)

// policy reads the whole document into f.
func (r *reader) policy(n *yaml.Node, f *File) {
	r.mapping(n, "",
		key{"policy", func(n *yaml.Node, at string) {
			if s, ok := r.scalar(n, at); ok {
				p, err := sched.ParsePolicy(at, s)
				r.faultsOf(n.Line, "", err)
				f.Sched.Policy = p
			}
		}},
		r.number("quantum", &f.Sched.Quantum),
		key{"cost", func(n *yaml.Node, at string) { r.cost(n, at, f) }},
		key{"classes", func(n *yaml.Node, at string) {
			var keys []key
			for i, c := range cell.Classes() {
				keys = append(keys, key{c.String(), func(n *yaml.Node, at string) { r.class(n, at, &f.Sched.Bulkheads[i]) }})
			}
			r.mapping(n, at, keys...)
		}},
		key{"organizations", func(n *yaml.Node, at string) {
			r.each(n, at, func(n *yaml.Node, at string) { r.organization(n, at, f) })
		}},
		key{"tenants", func(n *yaml.Node, at string) {
			seen := make(map[cell.TenantID]bool)
			r.each(n, at, func(n *yaml.Node, at string) { r.tenant(n, at, f, seen) })
		}},
		key{"default", func(n *yaml.Node, at string) { r.standard(n, at, f) }},
	)
	for _, m := range r.members {
		if _, ok := r.organizations[m.organization]; !ok {
			r.fault(m.line, m.field, fmt.Sprintf("is %.140q, which is no organization of this policy", m.organization), "add it to organizations")
		}
	}
}

func (r *reader) cost(n *yaml.Node, at string, f *File) {
	c := &f.Costing
	capacity := make([]key, 0, len(cell.AllResources()))
	for _, resource := range cell.AllResources() {
		capacity = append(capacity, r.amount(resource.String(), &c.Capacity[resource], 1))
	}
	r.mapping(n, at,
		key{"unit", func(n *yaml.Node, at string) {
			s, ok := r.scalar(n, at)
			if !ok || s == cell.UnitSlotSeconds {
				return
			}
			unit, err := cell.ParseResource(at, s)
			if err != nil {
				r.fault(n.Line, at, fmt.Sprintf("is %.40q, which nothing is counted in", s), "use "+units())
				return
			}
			c.ByUnit, c.Unit = true, unit
		}},
		r.number("default", (*int64)(&f.Sched.CostDefault)), // micro-units, as a job's declared cost is
		r.rate("whole", &c.Whole),
		key{"capacity", func(n *yaml.Node, at string) { r.mapping(n, at, capacity...) }},
		r.duration(keyOverrunMin, &f.Sched.OverrunMin),
	)
	if _, given := r.lines[under(at, keyOverrunMin)]; c.ByUnit && !given {
		f.Sched.OverrunMin = 0 // how long an attempt runs says nothing of what it costs
	}
	r.faultsOf(n.Line, "", c.Validate(at))
}

const keyOverrunMin = "overrun_min"

func units() string {
	names := []string{cell.UnitSlotSeconds}
	for _, resource := range cell.AllResources() {
		names = append(names, resource.String())
	}
	return strings.Join(names, ", ")
}

func (r *reader) class(n *yaml.Node, at string, b *sched.Bulkhead) {
	r.mapping(n, at,
		r.number("nominal", &b.NominalParts),
		r.number("lendable_percent", &b.LendablePercent),
		r.number("borrow_max_percent", &b.BorrowMaxPercent),
		r.duration("lend_after", &b.LendAfter),
		r.duration("preempt_after", &b.PreemptAfter),
		r.duration("burst", &b.Burst),
		r.rate("capacity", &b.Capacity),
	)
}

func (r *reader) organization(n *yaml.Node, at string, f *File) {
	o := cell.OrganizationPolicy{Weight: cell.WeightDefault, Epoch: 1}
	if !r.mapping(n, at,
		r.text("id", (*string)(&o.Organization)),
		r.weight("weight", &o.Weight),
		r.reservation(&o.Reservation),
		r.rate("limit", &o.Limit),
	) {
		return
	}
	if err := cell.CheckID("id", string(o.Organization)); err != nil {
		r.faultsOf(n.Line, at+".", err)
	} else if _, twice := r.organizations[o.Organization]; twice {
		r.fault(n.Line, at+".id", fmt.Sprintf("is %s, as that of another", o.Organization), "give each organization once")
	}
	r.faultsOf(n.Line, at+".", o.Check())
	r.organizations[o.Organization] = n.Line
	f.Organizations = append(f.Organizations, o)
}

func (r *reader) tenant(n *yaml.Node, at string, f *File, seen map[cell.TenantID]bool) {
	t := Default().Default
	if !r.mapping(n, at, append([]key{r.text("id", (*string)(&t.Tenant)), r.reservation(&t.Reservation)}, r.promises(&t)...)...) {
		return
	}
	if err := cell.CheckID("id", string(t.Tenant)); err != nil {
		r.faultsOf(n.Line, at+".", err)
	} else if seen[t.Tenant] {
		r.fault(n.Line, at+".id", fmt.Sprintf("is %s, as that of another", t.Tenant), "give each tenant once")
	}
	seen[t.Tenant] = true
	r.faultsOf(n.Line, at+".", t.Check())
	f.Tenants = append(f.Tenants, t)
}

// standard reads what a tenant without an entry is promised. It has no reservation: what is protected for a number of tenants that nobody
// knows would be more than there is.
func (r *reader) standard(n *yaml.Node, at string, f *File) {
	r.mapping(n, at, r.promises(&f.Default)...)
	r.faultsOf(n.Line, at+".", f.Default.Check())
}

// promises are the keys that a tenant and the default have in common.
func (r *reader) promises(t *cell.TenantPolicy) []key {
	return []key{
		{"organization", func(n *yaml.Node, at string) {
			s, ok := r.scalar(n, at)
			if !ok {
				return
			}
			t.Organization = cell.OrganizationID(s)
			r.members = append(r.members, member{t.Organization, n.Line, at})
		}},
		r.weight("weight", &t.Weight),
		r.rate("limit", &t.Limit),
		{"credit", func(n *yaml.Node, at string) {
			r.mapping(n, at, r.amount("max", (*int64)(&t.Credit.Max), 1), r.rate("refill", &t.Credit.Refill), r.rate("extra", &t.Credit.Extra))
		}},
		r.number("running_max", &t.RunningMax),
		{"starts", func(n *yaml.Node, at string) {
			r.mapping(n, at, r.number("jobs", &t.Starts.Jobs), r.duration("per", &t.Starts.Per))
		}},
		r.number("backlog_jobs_max", &t.BacklogJobsMax),
		r.number("backlog_bytes_max", &t.BacklogBytesMax),
		r.hand("groups", &t.Groups),
	}
}

func (r *reader) reservation(to *[2]cell.Rate) key {
	return key{"reservation", func(n *yaml.Node, at string) {
		var keys []key
		for i, c := range cell.Classes() {
			keys = append(keys, r.rate(c.String(), &to[i]))
		}
		r.mapping(n, at, keys...)
	}}
}
