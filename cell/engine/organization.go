package engine

import (
	"maps"
	"slices"

	"github.com/fairlead/fairlead/cell"
)

// Organization is an organization as this cell knows it. Its fields are changed by Apply only.
type Organization struct {
	Policy cell.OrganizationPolicy
	// Account is where the organization stood when one of its tenants was last charged.
	Account cell.OrganizationAccount

	written uint64 // the last snapshot generation that has this record
}

// Organization returns what the cell knows of an organization, and nil when it has no record of it.
func (s *State) Organization(id cell.OrganizationID) *Organization { return s.organizations[id] }

// Organizations returns every organization, ordered by its id.
func (s *State) Organizations() []*Organization {
	ids := slices.Sorted(maps.Keys(s.organizations))
	organizations := make([]*Organization, len(ids))
	for i, id := range ids {
		organizations[i] = s.organizations[id]
	}
	return organizations
}

func (s *State) applyOrganization(f *OrganizationFact) Result {
	o := s.organizations[f.Policy.Organization]
	if o == nil {
		o = &Organization{written: s.generation}
		s.organizations[f.Policy.Organization] = o
		s.organizationList = append(s.organizationList, o)
	}
	if f.Policy.Epoch < o.Policy.Epoch {
		return Result{Err: ErrPolicyStale}
	}
	s.touchOrganization(o)
	o.Policy = f.Policy
	return Result{}
}
