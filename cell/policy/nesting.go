package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/cell"
)

// inPromises reports whether there is a fault in what somebody is promised: whether the rest fits in one another is then not to be said.
func (r *reader) inPromises() bool {
	return slices.ContainsFunc(r.faults, func(f *Fault) bool {
		return strings.HasPrefix(f.Field, "organizations") || strings.HasPrefix(f.Field, "tenants") || strings.HasPrefix(f.Field, "default.")
	})
}

// nesting checks what no single entry shows: that promises fit in one another.
func (r *reader) nesting(f *File) {
	sums := make(map[cell.OrganizationID][2]cell.Rate)
	for _, t := range f.Tenants {
		sum := sums[t.Organization]
		for i, rate := range t.Reservation {
			sum[i] += rate
		}
		sums[t.Organization] = sum
	}
	all := sums[""]
	for i, o := range f.Organizations {
		sum := sums[o.Organization]
		r.faultsOf(r.organizations[o.Organization], fmt.Sprintf("organizations[%d].", i), o.CheckReserved(sum))
		for i, rate := range o.Reservation {
			all[i] += max(rate, sum[i])
		}
	}
	for i, c := range cell.Classes() {
		if capacity := f.Sched.Bulkheads[i].Capacity; capacity != 0 && all[i] > capacity {
			r.faultsOf(0, "classes."+c.String()+".", &cell.FieldError{
				Field: "capacity", Problem: fmt.Sprintf("is %v, below the %v that organizations and tenants reserve in the class", capacity, all[i]),
				Remedy: "reserve less, or give the class a larger part of the cell",
			})
		}
	}
}

// scheduler adds what the scheduler finds wrong with its configuration, where the form has it.
func (r *reader) scheduler(err error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			r.scheduler(e)
		}
		return
	}
	prefix := ""
	if fe, ok := errors.AsType[*cell.FieldError](err); ok {
		if fe.Field == keyOverrunMin {
			prefix = "cost."
		}
		for _, c := range cell.Classes() {
			if strings.HasPrefix(fe.Field, c.String()+".") {
				prefix = "classes."
			}
		}
	}
	r.faultsOf(0, prefix, err)
}
