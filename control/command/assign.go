package command

import (
	"fmt"
	"unicode/utf8"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/placement"
)

// Bounds of assignments and of what is measured.
const (
	// DecisionBytesMax bounds the text of a decision: a line for each of a cluster's usual number of cells.
	DecisionBytesMax = 16 << 10
	// SamplesMax bounds the samples of a command, so that it stays far below the bound of an entry.
	SamplesMax = 500
)

// Assign makes a cell the home of both of a tenant's lanes. Whoever proposes it has decided on a snapshot of the state, and says what of it the
// decision depends on.
type Assign struct {
	Tenant cell.TenantID
	Cell   cell.ID
	// Expect is the epoch of the assignment that it replaces, the larger one of its lanes'; 0 for none.
	Expect cell.Epoch
	// CellGeneration is that of the cell's record that it was decided on; 0 for any.
	CellGeneration uint64
	// Groups is the tenant's hand of the cell's worker groups: bit i for group i+1.
	Groups uint64
	// Decision is the score table as people read it.
	Decision string
	Time     cell.Instant
}

// TenantSample is what a tenant used in an hour.
type TenantSample struct {
	Tenant cell.TenantID
	Sample placement.Sample
}

// RecordDemand adds what a cell's tenants used in an hour to their profiles.
type RecordDemand struct {
	Cell    cell.ID
	Hour    int64          // hours since the Unix epoch
	Samples []TenantSample // rising by tenant
	Time    cell.Instant
}

// Type implements [Command].
func (Assign) Type() Type { return TypeAssign }

// Type implements [Command].
func (RecordDemand) Type() Type { return TypeRecordDemand }

// At implements [Command].
func (c Assign) At() cell.Instant { return c.Time }

// At implements [Command].
func (c RecordDemand) At() cell.Instant { return c.Time }

func (c Assign) check() error {
	return first(
		cell.CheckID("tenant", string(c.Tenant)),
		cell.CheckID("cell", string(c.Cell)),
		checkProse("decision", c.Decision, DecisionBytesMax),
		checkTime(c.Time),
	)
}

func (c RecordDemand) check() error {
	switch {
	case len(c.Samples) == 0 || len(c.Samples) > SamplesMax:
		return &cell.FieldError{
			Field: "samples", Problem: fmt.Sprintf("has %d entries, outside 1 to %d", len(c.Samples), SamplesMax), Remedy: "split them over several commands",
		}
	case c.Hour < 0:
		return &cell.FieldError{Field: "hour", Problem: fmt.Sprintf("is %d, before the epoch", c.Hour), Remedy: "set the clock of the server"}
	}
	for i, s := range c.Samples {
		field := fmt.Sprintf("samples[%d]", i)
		if err := first(
			cell.CheckID(field+".tenant", string(s.Tenant)), checkLoad(field+".average", s.Sample.Average), checkLoad(field+".p95", s.Sample.P95),
		); err != nil {
			return err
		}
		if s.Sample.Limited < 0 {
			return &cell.FieldError{Field: field + ".limited", Problem: fmt.Sprintf("is %d, below 0", s.Sample.Limited), Remedy: "give a count"}
		}
		if i > 0 && s.Tenant <= c.Samples[i-1].Tenant {
			return &cell.FieldError{
				Field: field, Problem: fmt.Sprintf("is of %s, which is there twice or not in order", s.Tenant), Remedy: "sort them by tenant",
			}
		}
	}
	return first(cell.CheckID("cell", string(c.Cell)), checkTime(c.Time))
}

// checkProse takes text of several lines.
func checkProse(field, s string, most int) error {
	const remedy = "use printable text"
	if len(s) > most {
		return &cell.FieldError{Field: field, Problem: fmt.Sprintf("has %d bytes, of at most %d", len(s), most), Remedy: "cut it"}
	}
	if !utf8.ValidString(s) {
		return &cell.FieldError{Field: field, Problem: "is not valid UTF-8", Remedy: remedy}
	}
	for i, r := range s {
		if r < ' ' && r != '\n' && r != '\t' || 0x7f <= r && r <= 0x9f {
			return &cell.FieldError{Field: field, Problem: fmt.Sprintf("has the control character %U at byte %d", r, i), Remedy: remedy}
		}
	}
	return nil
}

func (c Assign) body() []byte {
	b := appendText(nil, 1, string(c.Tenant))
	b = appendText(b, 2, string(c.Cell))
	b = appendUnsigned(b, 3, c.Expect)
	b = appendUnsigned(b, 4, c.CellGeneration)
	b = appendUnsigned(b, 5, c.Groups)
	b = appendText(b, 6, c.Decision)
	return appendNumber(b, 7, c.Time)
}

func setAssign(c *Assign, f field) bool {
	switch {
	case f.is(1, bytes):
		c.Tenant = cell.TenantID(f.b)
	case f.is(2, bytes):
		c.Cell = cell.ID(f.b)
	case f.is(3, varint):
		c.Expect = cell.Epoch(f.n)
	case f.is(4, varint):
		c.CellGeneration = f.n
	case f.is(5, varint):
		c.Groups = f.n
	case f.is(6, bytes):
		c.Decision = string(f.b)
	case f.is(7, varint):
		c.Time = cell.Instant(f.n)
	default:
		return false
	}
	return true
}

func (c RecordDemand) body() []byte {
	b := appendText(nil, 1, string(c.Cell))
	b = appendNumber(b, 2, c.Hour)
	for _, s := range c.Samples {
		part := appendText(nil, 1, string(s.Tenant))
		part = appendPart(part, 2, loadBody(s.Sample.Average))
		part = appendPart(part, 3, loadBody(s.Sample.P95))
		b = appendBytes(b, 3, appendNumber(part, 4, s.Sample.Limited))
	}
	return appendNumber(b, 4, c.Time)
}

func setRecordDemand(c *RecordDemand, f field) bool {
	switch {
	case f.is(1, bytes):
		c.Cell = cell.ID(f.b)
	case f.is(2, varint):
		c.Hour = int64(f.n)
	case f.is(3, bytes):
		return addPart(&c.Samples, f, setTenantSample)
	case f.is(4, varint):
		c.Time = cell.Instant(f.n)
	default:
		return false
	}
	return true
}

func setTenantSample(s *TenantSample, f field) bool {
	switch {
	case f.is(1, bytes):
		s.Tenant = cell.TenantID(f.b)
	case f.is(2, bytes):
		return setPart(&s.Sample.Average, f, setLoad)
	case f.is(3, bytes):
		return setPart(&s.Sample.P95, f, setLoad)
	case f.is(4, varint):
		s.Sample.Limited = int64(f.n)
	default:
		return false
	}
	return true
}

// Rules are a part of a tenant's command, given even when it is empty where that takes them away.
func rulesBody(r placement.Rules) []byte {
	var b []byte
	for _, l := range r.Require {
		b = appendBytes(b, 1, labelBody(l))
	}
	b = appendText(b, 2, r.Apart)
	b = appendNumber(b, 3, r.ComputeMin)
	return appendText(b, 4, string(r.Cell))
}

func setRules(r *placement.Rules, f field) bool {
	switch {
	case f.is(1, bytes):
		return addPart(&r.Require, f, setLabel)
	case f.is(2, bytes):
		r.Apart = string(f.b)
	case f.is(3, varint):
		r.ComputeMin = cell.Rate(f.n)
	case f.is(4, bytes):
		r.Cell = cell.ID(f.b)
	default:
		return false
	}
	return true
}
