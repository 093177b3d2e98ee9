package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/allocate"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
)

// Allocation is a plan as programs see it. Amounts are units of cost a second, or operations a second where the name says so, as numbers
// with up to six decimals. What is unlimited is left out.
type Allocation struct {
	Unit          string      `json:"unit"`
	Capacity      Micro       `json:"capacity"`
	Demand        *Micro      `json:"demand,omitempty"`
	Deficit       Micro       `json:"deficit"`
	Reserved      Micro       `json:"reserved"`
	BorrowPool    Micro       `json:"borrowPool"`
	Given         Micro       `json:"given"`
	Idle          Micro       `json:"idle"`
	OfferedOps    *Micro      `json:"offeredOps,omitempty"`
	Tenants       []Row       `json:"tenants"`
	Organizations []Row       `json:"organizations,omitempty"`
	Comparison    *Comparison `json:"comparison,omitempty"`
}

// Row is one tenant, or one organization.
type Row struct {
	Name         string `json:"name"`
	Organization string `json:"organization,omitempty"`
	Demand       *Micro `json:"demand,omitempty"`
	Reservation  Micro  `json:"reservation"`
	Limit        *Micro `json:"limit,omitempty"`
	Weight       Micro  `json:"weight"`
	Reserved     Micro  `json:"reserved"`
	Entitled     Micro  `json:"entitled"`
	FirstPass    Micro  `json:"firstPass"`
	Final        Micro  `json:"final"`
	Borrowed     Micro  `json:"borrowed"`
	Short        Micro  `json:"short"`
	Limited      Micro  `json:"limited"`
	Cost         *Micro `json:"cost,omitempty"`
	OfferedOps   *Micro `json:"offeredOps,omitempty"`
	FinalOps     *Micro `json:"finalOps,omitempty"`
}

// Allocate plans. It returns an error that joins a *[cell.FieldError] for every fault.
func (in Input) Allocate() (Allocation, error) {
	if !in.HasCapacity {
		return Allocation{}, &cell.FieldError{Field: "capacity", Problem: "is missing", Remedy: "give the units of cost a second that there are to share"}
	}
	if len(in.Tenants) == 0 {
		return Allocation{}, &cell.FieldError{Field: "tenants", Problem: "are none", Remedy: "list those who share the capacity"}
	}
	p, err := allocate.Allocate(in.Capacity, in.claims(), in.Organizations)
	if err != nil {
		return Allocation{}, err
	}
	a := Allocation{
		Unit: in.Unit, Capacity: Micro(p.Capacity), Demand: bounded(p.Demand), Deficit: Micro(p.Deficit), Reserved: Micro(p.Reserved),
		BorrowPool: Micro(p.Pool), Given: Micro(p.Given), Idle: Micro(p.Idle),
	}
	var offered Micro
	known := true
	for i, t := range in.Tenants {
		r := newRow(p.Claims[i], t.Reservation, t.Limit, t.Weight)
		r.Name, r.Organization, r.Demand = t.Name, t.Organization, bounded(t.Demand)
		if t.Cost > 0 {
			ops := r.Final.per(t.Cost)
			r.Cost, r.FinalOps = &t.Cost, &ops
		}
		if t.Cost > 0 && t.Demand >= 0 {
			r.OfferedOps = &t.Offered
			offered += t.Offered
		} else {
			known = false
		}
		a.Tenants = append(a.Tenants, r)
	}
	if known {
		a.OfferedOps = &offered
	}
	for i, o := range in.Organizations {
		r := newRow(p.Organizations[i], o.Reservation, o.Limit, o.Weight)
		r.Name = o.Name
		a.Organizations = append(a.Organizations, r)
	}
	return a, nil
}

func (in Input) claims() []allocate.Claim {
	claims := make([]allocate.Claim, len(in.Tenants))
	for i, t := range in.Tenants {
		claims[i] = t.Claim
	}
	return claims
}

func newRow(s allocate.Share, reservation, limit cell.Rate, weight cell.Weight) Row {
	r := Row{
		Reservation: Micro(reservation), Weight: Micro(weight) * (cell.Unit / 1000), Reserved: Micro(s.Reserved), Entitled: Micro(s.Entitled),
		FirstPass: Micro(s.First), Final: Micro(s.Final), Borrowed: Micro(s.Borrowed), Short: Micro(s.Short), Limited: Micro(s.Limited),
	}
	if limit > 0 {
		r.Limit = bounded(limit)
	}
	return r
}

// bounded is nil for what has no bound.
func bounded(r cell.Rate) *Micro {
	if r < 0 {
		return nil
	}
	m := Micro(r)
	return &m
}

// Print writes the plan for people.
func (a Allocation) Print(p *output.Printer) error {
	per := " " + output.Safe(a.Unit) + "/s"
	demand := orNone(a.Demand, unlimited)
	if a.Demand != nil {
		demand += per
	}
	if a.OfferedOps != nil {
		demand += ", " + a.OfferedOps.Short() + " operations/s"
	}
	if err := p.Describe([]output.Pair{
		{Key: "Capacity", Value: a.Capacity.Short() + per},
		{Key: "Demand", Value: demand},
		{Key: "Deficit", Value: a.Deficit.Short()},
		{Key: "Reserved", Value: a.Reserved.Short()},
		{Key: "Borrow pool", Value: a.BorrowPool.Short()},
		{Key: "Idle", Value: a.Idle.Short()},
		{Key: "Shortage", Value: a.Shortage()},
	}); err != nil {
		return err
	}
	if err := p.Text(""); err != nil {
		return err
	}
	if err := p.Section(a.columns(), a.rows()); err != nil {
		return err
	}
	return a.Comparison.print(p, a)
}

func (a Allocation) columns() []output.Column {
	return []output.Column{
		{Name: "TENANT"},
		{Name: "ORGANIZATION", Wide: len(a.Organizations) == 0},
		{Name: "DEMAND"},
		{Name: "RESERVATION"},
		{Name: "LIMIT", Wide: true},
		{Name: "WEIGHT"},
		{Name: "FIRST PASS"},
		{Name: "FINAL"},
		{Name: "BORROWED"},
		{Name: "SHORT"},
		{Name: "LIMITED", Wide: true},
		{Name: "OPS/S"},
	}
}

func (a Allocation) rows() [][]string {
	var rows [][]string
	for _, r := range a.Tenants {
		rows = append(rows, r.cells(output.Safe(r.Name), output.Safe(r.Organization)))
	}
	for _, r := range a.Organizations {
		rows = append(rows, r.cells("(all of it)", output.Safe(r.Name)))
	}
	var sum Row
	for _, r := range a.Tenants {
		sum.Reservation += r.Reservation
		sum.FirstPass += r.FirstPass
		sum.Borrowed += r.Borrowed
		sum.Short += r.Short
		sum.Limited += r.Limited
	}
	return append(rows, []string{
		"(total)", output.None, orNone(a.Demand, unlimited), sum.Reservation.Short(), output.None, output.None, sum.FirstPass.Short(), a.Given.Short(),
		sum.Borrowed.Short(), sum.Short.Short(), sum.Limited.Short(), output.None,
	})
}

func (r Row) cells(name, organization string) []string {
	demand := orNone(r.Demand, unlimited)
	first := r.FirstPass.Short()
	if r.Entitled > r.FirstPass {
		first += " of " + r.Entitled.Short()
	}
	ops := orNone(r.FinalOps, output.None)
	if r.OfferedOps != nil && *r.OfferedOps != *r.FinalOps {
		ops += " of " + r.OfferedOps.Short()
	}
	return []string{
		name, organization, demand, r.Reservation.Short(), orNone(r.Limit, output.None), r.Weight.String(), first, r.Final.Short(),
		r.Borrowed.Short(), r.Short.Short(), r.Limited.Short(), ops,
	}
}

func orNone(m *Micro, none string) string {
	if m == nil {
		return none
	}
	return m.Short()
}

// Shortage says who carries what is missing, the largest part first.
func (a Allocation) Shortage() string {
	const shownMax = 5
	var short []Row
	var sum Micro
	for _, r := range a.Tenants {
		if r.Short > 0 {
			short = append(short, r)
			sum += r.Short
		}
	}
	slices.SortStableFunc(short, func(a, b Row) int { return int(b.Short - a.Short) })
	switch len(short) {
	case 0:
		return "nobody"
	case 1:
		s := fmt.Sprintf("%s carries all of it, %s", output.Safe(short[0].Name), sum.Short())
		if ops := short[0].FinalOps; ops != nil {
			s += fmt.Sprintf(", and has %s of %s operations/s", ops.Short(), short[0].OfferedOps.Short())
		}
		return s
	}
	var parts []string
	for _, r := range short[:min(len(short), shownMax)] {
		parts = append(parts, fmt.Sprintf("%s %s", output.Safe(r.Name), r.Short.Short()))
	}
	if more := len(short) - shownMax; more > 0 {
		parts = append(parts, fmt.Sprintf("%d more", more))
	}
	return sum.Short() + " in all: " + strings.Join(parts, ", ")
}
