package plan

import (
	"errors"
	"fmt"

	yaml "go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/allocate"
)

// Input is what is planned for.
type Input struct {
	Capacity cell.Rate
	// HasCapacity tells a capacity of 0 from none.
	HasCapacity bool
	// Unit is what costs are in, for people: the planner does not mind. Default: units.
	Unit          string
	Tenants       []Tenant
	Organizations []allocate.Organization
}

// Tenant is one claim, and how its demand came about.
type Tenant struct {
	allocate.Claim
	Cost    Micro // of one operation; 0 when it is not known
	Offered Micro // operations a second; what the demand is otherwise, by cost; 0 when it is unlimited or no cost is known
}

// Parse reads an input. name, such as the file's path, stands before each fault. With promised, reservations, weights, limits and
// organizations are somebody else's to say, and the input may not. It returns an error that joins a *[cell.FieldError] for every fault in the
// form; what does not fit together is for [Input.Allocate] to see.
func Parse(name string, text []byte, promised bool) (Input, error) {
	r := &reader{file: name}
	in := Input{Unit: "units"}
	if root := r.document(text); root != nil {
		keys := []key{
			{"capacity", func(n *yaml.Node, at string) {
				r.amount("capacity", (*Micro)(&in.Capacity)).read(n, at)
				in.HasCapacity = true
			}},
			r.text("unit", &in.Unit),
			r.list("tenants", func(n *yaml.Node, at string) { in.Tenants = append(in.Tenants, r.tenant(n, at, promised)) }),
		}
		if !promised {
			keys = append(keys, r.list("organizations", func(n *yaml.Node, at string) {
				in.Organizations = append(in.Organizations, r.organization(n, at))
			}))
		}
		r.mapping(root, "", keys...)
	}
	if err := errors.Join(r.faults...); err != nil {
		return Input{}, err
	}
	return in, nil
}

func (r *reader) tenant(n *yaml.Node, at string, promised bool) Tenant {
	t := Tenant{Claim: allocate.Claim{Demand: allocate.Unlimited, Weight: cell.WeightDefault}, Offered: -1}
	demand := "" // none given
	keys := []key{
		r.text("name", &t.Name),
		r.amount("offered", &t.Offered),
		r.amount("cost", &t.Cost),
		r.text("demand", &demand),
	}
	if !promised {
		keys = append(keys, r.text("organization", &t.Organization), r.amount("reservation", (*Micro)(&t.Reservation)),
			r.weight("weight", &t.Weight), r.amount("limit", (*Micro)(&t.Limit)))
	}
	before := len(r.faults)
	r.mapping(n, at, keys...)
	whole := len(r.faults) == before
	if t.Name == "" && whole {
		r.fault(n.Line, at+".name", "is missing", "give every tenant a name of its own")
	}
	r.demand(n.Line, at, &t, demand, whole)
	return t
}

// demand works out what a tenant demands of what was given of demand, offered and cost. What is missing is no fault of its own where the entry
// has another: that may be why.
func (r *reader) demand(line int, at string, t *Tenant, given string, whole bool) {
	offered := t.Offered
	t.Offered = 0
	switch {
	case offered >= 0 && given != "":
		r.fault(line, at+".demand", "stands beside offered, which is a demand too", "leave one: demand is offered x cost")
	case offered > 0 && t.Cost == 0:
		if whole {
			r.fault(line, at+".cost", "is missing or 0", "give the units that one operation costs, or a demand in place of offered")
		}
	case offered >= 0:
		t.Offered, t.Demand = offered, cell.Rate(offered.times(t.Cost))
		if t.Demand > cell.RateMax {
			r.fault(line, at+".offered", fmt.Sprintf("x cost is %v x %v, above %v", offered, t.Cost, cell.RateMax), "count in a larger unit")
		}
	case given == "" || given == unlimited:
	default:
		m, err := ParseMicro(given)
		if err != nil {
			r.fault(line, at+".demand", fmt.Sprintf("is %.40q, which %v", given, err), "give a number from 0 to "+microMax.String()+", or "+unlimited)
			return
		}
		t.Demand = cell.Rate(m)
		if t.Cost > 0 {
			t.Offered = m.per(t.Cost)
		}
	}
}

// unlimited is how people write a demand without an end.
const unlimited = "unlimited"

func (r *reader) organization(n *yaml.Node, at string) allocate.Organization {
	o := allocate.Organization{Weight: cell.WeightDefault}
	r.mapping(n, at, r.text("name", &o.Name), r.amount("reservation", (*Micro)(&o.Reservation)), r.weight("weight", &o.Weight),
		r.amount("limit", (*Micro)(&o.Limit)))
	return o
}
