package cell

import (
	"fmt"
	"math"
)

// Cost is an amount of work in micro-units of the cell's cost unit: slot-microseconds by default. It is never negative where a caller
// gives it.
type Cost int64

// CostMax bounds the declared cost of one job: about 11 days of a slot. It leaves room to add up nine million such jobs.
const CostMax Cost = 1e12

// CheckCost returns a *[FieldError] unless c is 0 (unknown) to [CostMax].
func CheckCost(field string, c int64) error {
	if c < 0 || c > int64(CostMax) {
		return &FieldError{
			Field: field, Problem: fmt.Sprintf("is %d, outside 0 to %d", c, int64(CostMax)),
			Remedy: "give the expected slot-microseconds, or 0 to leave it to the cell",
		}
	}
	return nil
}

// Weight is a tenant's share of contended room in thousandths: 1000 is the usual one. Weight 0 runs only when nobody else waits.
type Weight int64

// The bounds and the default of a weight. WeightMin is the least above 0.
const (
	WeightMin     Weight = 1
	WeightDefault Weight = 1000
	WeightMax     Weight = 1e9
)

// ParseWeight returns the weight for f as people write it, where 1 is the usual one. It returns a *[FieldError] when f is not a number, is
// negative, above a million, or above 0 but below a thousandth.
func ParseWeight(field string, f float64) (Weight, error) {
	const remedy = "give 0, or 0.001 to 1000000 in steps of 0.001"
	if math.IsNaN(f) || math.IsInf(f, 0) || f < 0 || f > float64(WeightMax)/1000 {
		return 0, &FieldError{Field: field, Problem: fmt.Sprintf("is %v, outside 0 to 1000000", f), Remedy: remedy}
	}
	w := Weight(math.Round(f * 1000))
	if f > 0 && w < WeightMin {
		return 0, &FieldError{Field: field, Problem: fmt.Sprintf("is %v, above 0 but below 0.001", f), Remedy: remedy}
	}
	return w, nil
}

// Float returns w as people write it.
func (w Weight) Float() float64 { return float64(w) / 1000 }
