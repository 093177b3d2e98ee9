package command

import "github.com/fairlead/fairlead/cell"

// CreateOrganization makes a parent that tenants can be put into.
type CreateOrganization struct {
	Organization cell.OrganizationID
	DisplayName  string
	Weight       cell.Weight
	Reservation  [2]cell.Rate
	Limit        cell.Rate
	Time         cell.Instant
	Capacity     [2]cell.Rate // as in CreateTenant
}

// UpdateOrganization changes what is not nil.
type UpdateOrganization struct {
	Organization cell.OrganizationID
	DisplayName  *string
	Weight       *cell.Weight
	Reservation  [2]*cell.Rate
	Limit        *cell.Rate
	Time         cell.Instant
	Capacity     [2]cell.Rate // as in CreateTenant; changes nothing by itself
}

// Type implements [Command].
func (CreateOrganization) Type() Type { return TypeCreateOrganization }

// Type implements [Command].
func (UpdateOrganization) Type() Type { return TypeUpdateOrganization }

// At implements [Command].
func (c CreateOrganization) At() cell.Instant { return c.Time }

// At implements [Command].
func (c UpdateOrganization) At() cell.Instant { return c.Time }

// Policy returns what the organization is promised, without an epoch.
func (c CreateOrganization) Policy() cell.OrganizationPolicy {
	return cell.OrganizationPolicy{Organization: c.Organization, Weight: c.Weight, Reservation: c.Reservation, Limit: c.Limit}
}

// Onto returns p with what c changes of it.
func (c UpdateOrganization) Onto(p cell.OrganizationPolicy) cell.OrganizationPolicy {
	set(&p.Weight, c.Weight)
	for i, r := range c.Reservation {
		set(&p.Reservation[i], r)
	}
	set(&p.Limit, c.Limit)
	return p
}

func appendOrganization(c CreateOrganization) []byte {
	b := appendText(nil, 1, string(c.Organization))
	b = appendText(b, 2, c.DisplayName)
	b = appendNumber(b, 3, c.Weight)
	b = appendNumber(b, 4, c.Reservation[0])
	b = appendNumber(b, 5, c.Reservation[1])
	b = appendNumber(b, 6, c.Limit)
	b = appendNumber(b, 7, c.Time)
	return appendCapacity(b, organizationCapacity, c.Capacity)
}

// organizationCapacity is the number of the field of the first class's capacity.
const organizationCapacity = 8

func setCreateOrganization(c *CreateOrganization, f field) bool {
	switch {
	case f.is(1, bytes):
		c.Organization = cell.OrganizationID(f.b)
	case f.is(2, bytes):
		c.DisplayName = string(f.b)
	case f.is(3, varint):
		c.Weight = cell.Weight(f.n)
	case f.is(4, varint):
		c.Reservation[0] = cell.Rate(f.n)
	case f.is(5, varint):
		c.Reservation[1] = cell.Rate(f.n)
	case f.is(6, varint):
		c.Limit = cell.Rate(f.n)
	case f.is(7, varint):
		c.Time = cell.Instant(f.n)
	default:
		return setCapacity(&c.Capacity, organizationCapacity, f)
	}
	return true
}

func appendGivenOrganization(c UpdateOrganization) []byte {
	b := appendText(nil, 1, string(c.Organization))
	if c.DisplayName != nil {
		b = appendBytes(b, 2, []byte(*c.DisplayName))
	}
	b = appendGiven(b, 3, c.Weight)
	b = appendGiven(b, 4, c.Reservation[0])
	b = appendGiven(b, 5, c.Reservation[1])
	b = appendGiven(b, 6, c.Limit)
	b = appendNumber(b, 7, c.Time)
	return appendCapacity(b, organizationCapacity, c.Capacity)
}

func setUpdateOrganization(c *UpdateOrganization, f field) bool {
	switch {
	case f.is(1, bytes):
		c.Organization = cell.OrganizationID(f.b)
	case f.is(2, bytes):
		c.DisplayName = new(string(f.b))
	case f.is(3, varint):
		c.Weight = new(cell.Weight(f.n))
	case f.is(4, varint):
		c.Reservation[0] = new(cell.Rate(f.n))
	case f.is(5, varint):
		c.Reservation[1] = new(cell.Rate(f.n))
	case f.is(6, varint):
		c.Limit = new(cell.Rate(f.n))
	case f.is(7, varint):
		c.Time = cell.Instant(f.n)
	default:
		return setCapacity(&c.Capacity, organizationCapacity, f)
	}
	return true
}
