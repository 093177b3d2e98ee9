package state

import (
	"fmt"
	"iter"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/placement"
)

// profile is a row of the table of profiles. It holds the bytes of a snapshot's record, which are some hundred where the value has more than two
// thousand.
type profile struct {
	tenant cell.TenantID
	body   []byte
}

// Profile returns what the tenant was measured to use; the zero value when it never was.
func (v View) Profile(id cell.TenantID) placement.Profile {
	row, ok := get[profile](v.db, tableProfiles, byID, string(id))
	if !ok {
		return placement.Profile{}
	}
	_, p, err := parseProfile(row.body)
	must(err)
	return p
}

func (v View) profiles() iter.Seq[profile] {
	return above(v.db, tableProfiles, byID, func(profile) bool { return true }, "")
}

// recordDemand passes over tenants that are not at home in the cell any more: another cell's samples of the hour are theirs. What a tenant uses while it is
// moving is the sum of both cells', as far as they have said: the p95 of the sum is at most that.
func (s *State) recordDemand(c command.RecordDemand) Result {
	v := s.View()
	if _, ok := v.Cell(c.Cell); !ok {
		return Result{Refused: &NotFoundError{KindCell, string(c.Cell)}}
	}
	recorded := 0
	for _, sample := range c.Samples {
		used := sample.Sample
		if m, moving := s.View().liveOf(sample.Tenant); moving && m.Names(c.Cell) {
			used = s.measured(m, m.side(c.Cell), placement.HourSample{Hour: c.Hour, Sample: used})
		} else if of := s.homes(sample.Tenant); of[0] != c.Cell && of[1] != c.Cell {
			continue
		}
		s.putProfile(profile{sample.Tenant, appendProfile(nil, sample.Tenant, v.Profile(sample.Tenant).Record(c.Hour, used))})
		recorded++
	}
	return Result{Recorded: recorded, Repeated: recorded == 0}
}

func (s *State) putProfile(row profile) {
	if _, ok := get[profile](s.View().db, tableProfiles, byID, string(row.tenant)); !ok {
		s.head.profiles++
	}
	s.put(tableProfiles, &row)
}

// A profile's hours and days carry their place, which those of nothing do not have.
func appendProfile(b []byte, tenant cell.TenantID, p placement.Profile) []byte {
	b = text(b, 1, string(tenant))
	for i, h := range p.Hours {
		if h == (placement.HourSample{}) {
			continue
		}
		body := number(nil, 1, uint64(i))
		body = number(body, 2, uint64(h.Hour))
		body = appendLoad(body, 3, h.Average)
		body = appendLoad(body, 6, h.P95)
		b = part(b, 2, number(body, 9, uint64(h.Limited)))
	}
	for i, d := range p.Days {
		if d == (placement.DaySample{}) {
			continue
		}
		body := number(nil, 1, uint64(i))
		body = number(body, 2, uint64(d.Day))
		body = appendLoad(body, 3, d.Peak)
		b = part(b, 3, number(body, 6, uint64(d.Limited)))
	}
	return b
}

// appendLoad writes three fields from num on.
func appendLoad(b []byte, num protowire.Number, l placement.Load) []byte {
	return number(number(number(b, num, uint64(l.Compute)), num+1, uint64(l.Jobs)), num+2, uint64(l.Bytes))
}

func setLoad(l *placement.Load, field int, n uint64) bool {
	switch field {
	case 0:
		l.Compute = cell.Rate(n)
	case 1:
		l.Jobs = int64(n)
	case 2:
		l.Bytes = int64(n)
	default:
		return false
	}
	return true
}

func parseProfile(body []byte) (tenant cell.TenantID, p placement.Profile, err error) {
	err = fields(body, func(num int, _ uint64, b []byte) bool {
		switch num {
		case 1:
			tenant = cell.TenantID(b)
			return true
		case 2:
			return parseHour(b, &p)
		case 3:
			return parseDay(b, &p)
		default:
			return false
		}
	})
	return tenant, p, err
}

func parseHour(body []byte, p *placement.Profile) bool {
	var h placement.HourSample
	at := uint64(0)
	err := fields(body, func(num int, n uint64, _ []byte) bool {
		switch {
		case num == 1:
			at = n
		case num == 2:
			h.Hour = int64(n)
		case num >= 3 && num <= 5:
			return setLoad(&h.Average, num-3, n)
		case num >= 6 && num <= 8:
			return setLoad(&h.P95, num-6, n)
		case num == 9:
			h.Limited = int64(n)
		default:
			return false
		}
		return true
	})
	if err != nil || at >= uint64(len(p.Hours)) || p.Hours[at] != (placement.HourSample{}) || h == (placement.HourSample{}) {
		return false
	}
	p.Hours[at] = h
	return true
}

func parseDay(body []byte, p *placement.Profile) bool {
	var d placement.DaySample
	at := uint64(0)
	err := fields(body, func(num int, n uint64, _ []byte) bool {
		switch {
		case num == 1:
			at = n
		case num == 2:
			d.Day = int64(n)
		case num >= 3 && num <= 5:
			return setLoad(&d.Peak, num-3, n)
		case num == 6:
			d.Limited = int64(n)
		default:
			return false
		}
		return true
	})
	if err != nil || at >= uint64(len(p.Days)) || p.Days[at] != (placement.DaySample{}) || d == (placement.DaySample{}) {
		return false
	}
	p.Days[at] = d
	return true
}

func (s *State) restoreProfile(body []byte) error {
	tenant, p, err := parseProfile(body)
	if err != nil {
		return err
	}
	v := s.View()
	_, known := v.Tenant(tenant)
	if _, twice := get[profile](v.db, tableProfiles, byID, string(tenant)); twice || !known {
		return fmt.Errorf("%w: the profile of tenant %q is there twice, or the tenant is missing", ErrSnapshot, tenant)
	}
	s.putProfile(profile{tenant, appendProfile(nil, tenant, p)})
	return nil
}
