package allocate

import (
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/cell"
)

// faults collects what is wrong with an input.
type faults []error

func (f *faults) add(field, remedy, problem string, args ...any) {
	*f = append(*f, &cell.FieldError{Field: field, Problem: fmt.Sprintf(problem, args...), Remedy: remedy})
}

func (f *faults) rate(field string, r cell.Rate) {
	if r < 0 || r > cell.RateMax {
		f.add(field, "give units of cost a second within that", "is %v, outside 0 to %v", r, cell.RateMax)
	}
}

func (f *faults) weight(field string, w cell.Weight) {
	if w < 0 || w > cell.WeightMax {
		f.add(field, "1 is the usual weight, 0 takes only what nobody else wants", "is %.10g, outside 0 to %.10g", w.Float(), cell.WeightMax.Float())
	}
}

// name checks that a name is there and new.
func (f *faults) name(field, name string, seen map[string]int, i int) {
	if name == "" {
		f.add(fmt.Sprintf("%s[%d].name", field, i), "give every one a name", "is empty")
	} else if first, ok := seen[name]; ok {
		f.add(fmt.Sprintf("%s[%d].name", field, i), "give every one a name of its own", "%.60q is also that of %s[%d]", name, field, first)
	} else {
		seen[name] = i
	}
}

// check returns an error that joins one for every fault.
func check(capacity cell.Rate, claims []Claim, organizations []Organization) error {
	var f faults
	f.rate("capacity", capacity)
	if len(claims) > ClaimsMax || len(organizations) > ClaimsMax {
		f.add("tenants", "plan a part of them", "are %d of %d organizations, of at most %d each", len(claims), len(organizations), ClaimsMax)
		return errors.Join(f...)
	}
	known := make(map[string]int, len(organizations))
	for i, o := range organizations {
		f.name("organizations", o.Name, known, i)
	}
	promised := make([]cell.Rate, len(organizations))
	seen := make(map[string]int, len(claims))
	for i, c := range claims {
		f.name("tenants", c.Name, seen, i)
		f.claim("tenants["+label(c.Name, i)+"]", c)
		if c.Organization == "" {
			continue
		}
		if o, ok := known[c.Organization]; ok {
			promised[o] += min(max(c.Reservation, 0), cell.RateMax)
		} else {
			f.add("tenants["+label(c.Name, i)+"].organization", "list it under organizations, or leave it out", "%.60q is not known", c.Organization)
		}
	}
	for i, o := range organizations {
		f.organization("organizations["+label(o.Name, i)+"]", o, promised[i])
	}
	return errors.Join(f...)
}

// label is how a fault names an entry of a list.
func label(name string, i int) string {
	if name == "" {
		return fmt.Sprint(i)
	}
	return name
}

func (f *faults) claim(field string, c Claim) {
	if c.Demand > cell.RateMax {
		f.add(field+".demand", "give units of cost a second within that, or no bound at all", "is %v, above %v", c.Demand, cell.RateMax)
	}
	f.rate(field+".reservation", c.Reservation)
	f.rate(field+".limit", c.Limit)
	f.weight(field+".weight", c.Weight)
	if c.Limit > 0 && c.Limit < c.Reservation {
		f.add(field+".limit", "raise the limit, or lower the reservation", "is %v, below the reservation of %v", c.Limit, c.Reservation)
	}
}

func (f *faults) organization(field string, o Organization, promised cell.Rate) {
	f.rate(field+".reservation", o.Reservation)
	f.rate(field+".limit", o.Limit)
	f.weight(field+".weight", o.Weight)
	if o.Reservation > 0 && o.Reservation < promised {
		f.add(field+".reservation", "raise it to that, or to 0 for none of its own", "is %v, below its tenants' reservations of %v",
			o.Reservation, promised)
	}
	if o.Limit > 0 && o.Limit < o.Reservation {
		f.add(field+".limit", "raise the limit, or lower the reservation", "is %v, below the reservation of %v", o.Limit, o.Reservation)
	}
	if o.Limit > 0 && o.Limit <= promised {
		f.add(field+".limit", "raise it, or its tenants without a reservation starve", "is %v, not above its tenants' reservations of %v",
			o.Limit, promised)
	}
}
