package state

import (
	"fmt"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/placement"
)

func appendOrganization(b []byte, o Organization) []byte {
	p := o.Policy
	b = text(b, 1, string(p.Organization))
	b = text(b, 2, o.DisplayName)
	b = number(b, 3, uint64(p.Weight))
	b = number(b, 4, uint64(p.Reservation[0]))
	b = number(b, 5, uint64(p.Reservation[1]))
	b = number(b, 6, uint64(p.Limit))
	b = number(b, 7, uint64(p.Epoch))
	b = number(b, 8, uint64(o.Created))
	return number(b, 9, uint64(o.Updated))
}

func (s *State) restoreOrganization(body []byte) error {
	var o Organization
	p := &o.Policy
	err := fields(body, func(num int, n uint64, b []byte) bool {
		switch num {
		case 1:
			p.Organization = cell.OrganizationID(b)
		case 2:
			o.DisplayName = string(b)
		case 3:
			p.Weight = cell.Weight(n)
		case 4:
			p.Reservation[0] = cell.Rate(n)
		case 5:
			p.Reservation[1] = cell.Rate(n)
		case 6:
			p.Limit = cell.Rate(n)
		case 7:
			p.Epoch = cell.Epoch(n)
		case 8:
			o.Created = cell.Instant(n)
		case 9:
			o.Updated = cell.Instant(n)
		default:
			return false
		}
		return true
	})
	if err != nil {
		return err
	}
	if _, ok := s.View().Organization(o.ID()); ok || o.ID() == "" {
		return fmt.Errorf("%w: organization %q is there twice or has no id", ErrSnapshot, o.ID())
	}
	s.put(tableOrganizations, &o)
	s.head.organizations++
	for i, r := range o.reserves() {
		s.head.reserved[i] += r
	}
	return nil
}

func appendTenant(b []byte, t Tenant) []byte {
	p := t.Policy
	b = text(b, 1, string(p.Tenant))
	b = text(b, 2, t.DisplayName)
	b = number(b, 3, uint64(p.Weight))
	b = number(b, 4, uint64(p.BacklogJobsMax))
	b = number(b, 5, uint64(p.BacklogBytesMax))
	b = number(b, 6, uint64(p.Epoch))
	b = number(b, 7, uint64(t.Created))
	b = number(b, 8, uint64(t.Updated))
	b = text(b, 9, string(p.Organization))
	b = number(b, 10, uint64(p.Reservation[0]))
	b = number(b, 11, uint64(p.Reservation[1]))
	b = number(b, 12, uint64(p.Limit))
	b = number(b, 13, uint64(p.Credit.Max))
	b = number(b, 14, uint64(p.Credit.Refill))
	b = number(b, 15, uint64(p.Credit.Extra))
	b = number(b, 16, uint64(p.RunningMax))
	b = number(b, 17, uint64(p.Starts.Jobs))
	b = number(b, 18, uint64(p.Starts.Per))
	b = appendLabels(b, 19, t.Rules.Require)
	b = text(b, 20, t.Rules.Apart)
	b = number(b, 21, uint64(t.Rules.ComputeMin))
	b = text(b, 22, string(t.Rules.Cell))
	return number(b, 23, p.Groups)
}

func (s *State) restoreTenant(body []byte) error {
	var t Tenant
	p := &t.Policy
	err := fields(body, func(num int, n uint64, b []byte) bool {
		switch num {
		case 1:
			p.Tenant = cell.TenantID(b)
		case 2:
			t.DisplayName = string(b)
		case 3:
			p.Weight = cell.Weight(n)
		case 4:
			p.BacklogJobsMax = int64(n)
		case 5:
			p.BacklogBytesMax = int64(n)
		case 6:
			p.Epoch = cell.Epoch(n)
		case 7:
			t.Created = cell.Instant(n)
		case 8:
			t.Updated = cell.Instant(n)
		default:
			return restorePromise(p, num, n, b) || restoreRule(&t.Rules, num, n, b)
		}
		return true
	})
	if err != nil {
		return err
	}
	if _, ok := s.View().Tenant(t.ID()); ok || t.ID() == "" {
		return fmt.Errorf("%w: tenant %q is there twice or has no id", ErrSnapshot, t.ID())
	}
	if _, ok := s.View().Organization(p.Organization); !ok && p.Organization != "" {
		return fmt.Errorf("%w: organization %q of tenant %q is missing", ErrSnapshot, p.Organization, t.ID())
	}
	s.putTenant(cell.TenantPolicy{}, t)
	s.put(tableUnplaced, &unplaced{t.ID()}) // until a record says where it is
	s.head.tenants++
	return nil
}

func restoreRule(r *placement.Rules, num int, n uint64, b []byte) bool {
	switch num {
	case 19:
		return restoreLabel(&r.Require, b)
	case 20:
		r.Apart = string(b)
	case 21:
		r.ComputeMin = cell.Rate(n)
	case 22:
		r.Cell = cell.ID(b)
	default:
		return false
	}
	return true
}

// restorePromise sets a field that tenants did not have at first.
func restorePromise(p *cell.TenantPolicy, num int, n uint64, b []byte) bool {
	switch num {
	case 9:
		p.Organization = cell.OrganizationID(b)
	case 10:
		p.Reservation[0] = cell.Rate(n)
	case 11:
		p.Reservation[1] = cell.Rate(n)
	case 12:
		p.Limit = cell.Rate(n)
	case 13:
		p.Credit.Max = cell.Cost(n)
	case 14:
		p.Credit.Refill = cell.Rate(n)
	case 15:
		p.Credit.Extra = cell.Rate(n)
	case 16:
		p.RunningMax = int64(n)
	case 17:
		p.Starts.Jobs = int64(n)
	case 18:
		p.Starts.Per = time.Duration(n)
	case 23:
		p.Groups = n
	default:
		return false
	}
	return true
}
