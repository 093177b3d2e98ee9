package controlserver

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/placement"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// parser turns what the API says in units into the vocabulary's micro-units. It goes on after a fault and keeps the first.
type parser struct{ err error }

func (p *parser) note(err error) {
	if p.err == nil {
		p.err = err
	}
}

func (p *parser) weight(to *cell.Weight, f float64) {
	w, err := cell.ParseWeight("weight", f)
	*to = w
	p.note(err)
}

func (p *parser) rate(field string, to *cell.Rate, f float64) {
	r, err := cell.ParseRate(field, f)
	*to = r
	p.note(err)
}

// rateOf returns [parser.rate] for a field.
func (p *parser) rateOf(field string) func(*cell.Rate, float64) {
	return func(to *cell.Rate, f float64) { p.rate(field, to, f) }
}

// credit reads from, which may be nil for none.
func (p *parser) credit(to *cell.Credit, from *fairleadv1.Credit) {
	most, err := cell.ParseCost("credit.max", from.GetMax(), cell.CreditMax)
	to.Max = most
	p.note(err)
	p.rate("credit.refill", &to.Refill, from.GetRefill())
	p.rate("credit.extra", &to.Extra, from.GetExtra())
}

// starts reads from, which may be nil for no bound.
func (p *parser) starts(to *cell.StartRate, from *fairleadv1.StartRate) {
	per, err := duration("starts.per", from.GetPer())
	*to = cell.StartRate{Jobs: from.GetJobs(), Per: per}
	p.note(err)
}

// rules reads from, which may be nil for anywhere.
func (p *parser) rules(to *placement.Rules, from *fairleadv1.PlacementRules) {
	*to = placement.Rules{Require: labelsOf(from.GetRequire()), Apart: from.GetApart(), Cell: cell.ID(from.GetCell())}
	p.rate("placement.compute_min", &to.ComputeMin, from.GetComputeMin())
}

// duration returns what d says, 0 for nil.
func duration(field string, d *durationpb.Duration) (time.Duration, error) {
	if err := d.CheckValid(); d != nil && err != nil {
		return 0, &cell.FieldError{Field: field, Problem: "is not a duration", Remedy: "give seconds with an s, such as 120s"}
	}
	return d.AsDuration(), nil
}

// given returns what set makes of *from, and nil for nil.
func given[T, F any](from *F, set func(*T, F)) *T {
	if from == nil {
		return nil
	}
	to := new(T)
	set(to, *from)
	return to
}
