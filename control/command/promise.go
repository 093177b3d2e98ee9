package command

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/placement"
)

// Numbers of the fields of a tenant's promises, which came after those of its first release.
const (
	promiseOrganization           = 7
	promiseReservationInteractive = 8
	promiseReservationBatch       = 9
	promiseLimit                  = 10
	promiseCreditMax              = 11
	promiseCreditRefill           = 12
	promiseCreditExtra            = 13
	promiseRunningMax             = 14
	promiseStartsJobs             = 15
	promiseStartsPer              = 16
	promiseCapacity               = 17 // and 18, of the second class
	promiseRules                  = 19
)

func appendPromises(b []byte, c CreateTenant) []byte {
	b = appendText(b, promiseOrganization, string(c.Organization))
	b = appendNumber(b, promiseReservationInteractive, c.Reservation[0])
	b = appendNumber(b, promiseReservationBatch, c.Reservation[1])
	b = appendNumber(b, promiseLimit, c.Limit)
	b = appendNumber(b, promiseCreditMax, c.Credit.Max)
	b = appendNumber(b, promiseCreditRefill, c.Credit.Refill)
	b = appendNumber(b, promiseCreditExtra, c.Credit.Extra)
	b = appendNumber(b, promiseRunningMax, c.RunningMax)
	b = appendNumber(b, promiseStartsJobs, c.Starts.Jobs)
	b = appendNumber(b, promiseStartsPer, c.Starts.Per)
	b = appendCapacity(b, promiseCapacity, c.Capacity)
	return appendPart(b, promiseRules, rulesBody(c.Rules))
}

func appendCapacity(b []byte, first protowire.Number, capacity [2]cell.Rate) []byte {
	for i, r := range capacity {
		b = appendNumber(b, first+protowire.Number(i), r)
	}
	return b
}

func setCapacity(capacity *[2]cell.Rate, first protowire.Number, f field) bool {
	for i := range capacity {
		if f.is(first+protowire.Number(i), varint) {
			capacity[i] = cell.Rate(f.n)
			return true
		}
	}
	return false
}

func setPromise(c *CreateTenant, f field) bool {
	switch {
	case f.is(promiseOrganization, bytes):
		c.Organization = cell.OrganizationID(f.b)
	case f.is(promiseReservationInteractive, varint):
		c.Reservation[0] = cell.Rate(f.n)
	case f.is(promiseReservationBatch, varint):
		c.Reservation[1] = cell.Rate(f.n)
	case f.is(promiseLimit, varint):
		c.Limit = cell.Rate(f.n)
	case f.is(promiseRunningMax, varint):
		c.RunningMax = int64(f.n)
	case f.is(promiseRules, bytes):
		return setPart(&c.Rules, f, setRules)
	default:
		return setCredit(&c.Credit, f) || setStarts(&c.Starts, f) || setCapacity(&c.Capacity, promiseCapacity, f)
	}
	return true
}

func setCredit(c *cell.Credit, f field) bool {
	switch {
	case f.is(promiseCreditMax, varint):
		c.Max = cell.Cost(f.n)
	case f.is(promiseCreditRefill, varint):
		c.Refill = cell.Rate(f.n)
	case f.is(promiseCreditExtra, varint):
		c.Extra = cell.Rate(f.n)
	default:
		return false
	}
	return true
}

func setStarts(s *cell.StartRate, f field) bool {
	switch {
	case f.is(promiseStartsJobs, varint):
		s.Jobs = int64(f.n)
	case f.is(promiseStartsPer, varint):
		s.Per = time.Duration(f.n)
	default:
		return false
	}
	return true
}

// appendGivenPromises writes every part of a credit or a rate of starts that is given, zeros too: they take it away.
func appendGivenPromises(b []byte, c UpdateTenant) []byte {
	if c.Organization != nil {
		b = appendBytes(b, promiseOrganization, []byte(*c.Organization))
	}
	for i, r := range c.Reservation {
		b = appendGiven(b, promiseReservationInteractive+protowire.Number(i), r)
	}
	b = appendGiven(b, promiseLimit, c.Limit)
	if c.Credit != nil {
		b = appendGiven(b, promiseCreditMax, &c.Credit.Max)
		b = appendGiven(b, promiseCreditRefill, &c.Credit.Refill)
		b = appendGiven(b, promiseCreditExtra, &c.Credit.Extra)
	}
	b = appendGiven(b, promiseRunningMax, c.RunningMax)
	if c.Starts != nil {
		b = appendGiven(b, promiseStartsJobs, &c.Starts.Jobs)
		b = appendGiven(b, promiseStartsPer, &c.Starts.Per)
	}
	b = appendCapacity(b, promiseCapacity, c.Capacity)
	if c.Rules != nil {
		b = appendBytes(b, promiseRules, rulesBody(*c.Rules))
	}
	return b
}

func setGivenPromise(c *UpdateTenant, f field) bool {
	switch {
	case f.is(promiseOrganization, bytes):
		c.Organization = new(cell.OrganizationID(f.b))
	case f.is(promiseReservationInteractive, varint):
		c.Reservation[0] = new(cell.Rate(f.n))
	case f.is(promiseReservationBatch, varint):
		c.Reservation[1] = new(cell.Rate(f.n))
	case f.is(promiseLimit, varint):
		c.Limit = new(cell.Rate(f.n))
	case f.is(promiseRunningMax, varint):
		c.RunningMax = new(int64(f.n))
	case f.is(promiseRules, bytes):
		c.Rules = new(placement.Rules)
		return setPart(c.Rules, f, setRules)
	default:
		return setGivenPart(&c.Credit, f, setCredit) || setGivenPart(&c.Starts, f, setStarts) || setCapacity(&c.Capacity, promiseCapacity, f)
	}
	return true
}

// setGivenPart sets f in what to points to, which it makes when f is the first of its fields.
func setGivenPart[T any](to **T, f field, set func(*T, field) bool) bool {
	part := *to
	if part == nil {
		part = new(T)
	}
	if !set(part, f) {
		return false
	}
	*to = part
	return true
}
