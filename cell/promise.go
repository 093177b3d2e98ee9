package cell

import (
	"errors"
	"fmt"
	"time"
)

// Bounds of what a policy promises. The others stand beside their types.
const (
	// CreditMax bounds the bucket of a credit: a thousand slots for 11 days.
	CreditMax Cost = 1e15
	// RunningMaxMax bounds TenantPolicy.RunningMax: above a million slots there is no point in one.
	RunningMaxMax = 1_000_000
	// StartPeriodMax and StartPeriodMin bound StartRate.Per.
	StartPeriodMax = 24 * time.Hour
	StartPeriodMin = time.Millisecond
)

// Names of fields, as the API has them.
const (
	fieldLimit     = "limit"
	fieldCreditMax = "credit.max"
	fieldStartsPer = "starts.per"
)

// fieldReservation is the field of a class's reservation, by Class.Index.
func fieldReservation(i int) string { return "reservation_" + Classes()[i].String() }

// Check returns all faults of p that do not depend on anybody else's policy, each a *[FieldError] that names the API's field, or nil. It
// looks at what is promised only, not at ids and the epoch.
func (p TenantPolicy) Check() error {
	return errors.Join(
		checkWeight(p.Weight),
		checkReservations(p.Reservation, p.Limit),
		p.Credit.check(),
		checkRange("running_max", p.RunningMax, RunningMaxMax, "give how many jobs may be held at a time, or 0 for no bound"),
		p.Starts.check(),
		checkBacklog("backlog_jobs_max", p.BacklogJobsMax),
		checkBacklog("backlog_bytes_max", p.BacklogBytesMax),
	)
}

// Check returns all faults of p that do not depend on its tenants, as [TenantPolicy.Check] does.
func (p OrganizationPolicy) Check() error {
	return errors.Join(checkWeight(p.Weight), checkReservations(p.Reservation, p.Limit))
}

// CheckReserved returns a *[FieldError] for each bound of p that its tenants' reservations, summed by Class.Index, do not fit in, or nil.
// A reservation of the organization would otherwise be served above it, and with a limit at or below them its tenants without a
// reservation would starve.
func (p OrganizationPolicy) CheckReserved(sum [2]Rate) error {
	var errs []error
	for i, r := range p.Reservation {
		if r != 0 && r < sum[i] {
			errs = append(errs, &FieldError{
				Field: fieldReservation(i), Problem: fmt.Sprintf("is %v, below the %v that its tenants reserve", r, sum[i]),
				Remedy: fmt.Sprintf("give 0, or %v or more", sum[i]),
			})
		}
	}
	if all := sum[0] + sum[1]; p.Limit != 0 && p.Limit <= all {
		errs = append(errs, &FieldError{
			Field: fieldLimit, Problem: fmt.Sprintf("is %v, not above the %v that its tenants reserve", p.Limit, all),
			Remedy: fmt.Sprintf("give 0 for none, or more than %v", all),
		})
	}
	return errors.Join(errs...)
}

// CheckWithin returns a *[FieldError] for each of p's reservations that does not fit in its organization beside what the organization's
// other tenants reserve, or nil: the condition of [OrganizationPolicy.CheckReserved], said to whoever changes the tenant.
func (p TenantPolicy) CheckWithin(o OrganizationPolicy, others [2]Rate) error {
	var errs []error
	for i, r := range p.Reservation {
		if of := o.Reservation[i]; of != 0 && r > 0 && r+others[i] > of {
			errs = append(errs, &FieldError{
				Field:   fieldReservation(i),
				Problem: fmt.Sprintf("is %v, and other tenants of organization %s reserve %v of its %v", r, o.Organization, others[i], of),
				Remedy:  fmt.Sprintf("give at most %v, or raise the organization's first", max(0, of-others[i])),
			})
		}
	}
	own, all := p.Reservation[0]+p.Reservation[1], others[0]+others[1]
	if o.Limit != 0 && own > 0 && own+all >= o.Limit {
		errs = append(errs, &FieldError{
			Field:   "organization",
			Problem: fmt.Sprintf("is %s, whose limit %v is not above the %v that its tenants would reserve", o.Organization, o.Limit, own+all),
			Remedy:  "reserve less, or raise the organization's limit first",
		})
	}
	return errors.Join(errs...)
}

func checkWeight(w Weight) error {
	if w >= 0 && w <= WeightMax {
		return nil
	}
	return &FieldError{
		Field: "weight", Problem: fmt.Sprintf("is %d thousandths, outside 0 to %d", int64(w), int64(WeightMax)),
		Remedy: "give 0, or 0.001 to 1000000 in steps of 0.001",
	}
}

func checkReservations(rs [2]Rate, limit Rate) error {
	var errs []error
	for i, r := range rs {
		errs = append(errs, checkRate(fieldReservation(i), r))
	}
	errs = append(errs, checkRate(fieldLimit, limit))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if sum := rs[0] + rs[1]; limit != 0 && limit < sum {
		return &FieldError{
			Field: fieldLimit, Problem: fmt.Sprintf("is %v, below the reservations of %v and %v", limit, rs[0], rs[1]),
			Remedy: fmt.Sprintf("give 0 for none, or %v or more", sum),
		}
	}
	return nil
}

func (c Credit) check() error {
	if err := errors.Join(
		checkAmount(fieldCreditMax, int64(c.Max), int64(CreditMax), "give what the bucket holds, or 0 for none"),
		checkRate("credit.refill", c.Refill), checkRate("credit.extra", c.Extra),
	); err != nil {
		return err
	}
	switch {
	case c.Max == 0 && (c.Refill != 0 || c.Extra != 0):
		return &FieldError{Field: fieldCreditMax, Problem: "is 0 beside a rate", Remedy: "give what the bucket holds, or leave out refill and extra"}
	case c.Max != 0 && c.Extra == 0:
		return &FieldError{
			Field: "credit.extra", Problem: "is 0, so that the credit could not be spent", Remedy: "give how fast it may be spent, or leave out max",
		}
	default:
		return nil
	}
}

func (s StartRate) check() error {
	switch {
	case s == StartRate{}:
		return nil
	case s.Jobs < 1 || s.Jobs > StartsMax:
		return &FieldError{
			Field: "starts.jobs", Problem: fmt.Sprintf("is %d, outside 1 to %d", s.Jobs, StartsMax), Remedy: "for more, give a part of the period",
		}
	case s.Per < StartPeriodMin || s.Per > StartPeriodMax:
		return &FieldError{
			Field: fieldStartsPer, Problem: fmt.Sprintf("is %v, outside %v to %v", s.Per, StartPeriodMin, StartPeriodMax),
			Remedy: "give the period, such as 120s",
		}
	default:
		return nil
	}
}

func checkRate(field string, r Rate) error {
	return checkAmount(field, int64(r), int64(RateMax), "give units of cost per second, or 0 for none")
}

// checkAmount is checkRange for micro-units.
func checkAmount(field string, n, most int64, remedy string) error {
	if n >= 0 && n <= most {
		return nil
	}
	return &FieldError{Field: field, Problem: fmt.Sprintf("is %s, outside 0 to %s", FormatUnits(n), FormatUnits(most)), Remedy: remedy}
}

// checkBacklog has no upper bound: the cell's own holds in any case.
func checkBacklog(field string, n int64) error {
	if n >= 0 {
		return nil
	}
	return &FieldError{Field: field, Problem: fmt.Sprintf("is %d, below 0", n), Remedy: "give a bound, or 0 to leave it to the cell"}
}

func checkRange(field string, n, most int64, remedy string) error {
	if n >= 0 && n <= most {
		return nil
	}
	return &FieldError{Field: field, Problem: fmt.Sprintf("is %d, outside 0 to %d", n, most), Remedy: remedy}
}
