package drr

import (
	"fmt"
	"math"
	"strconv"
)

// Weight is a flow's weight in thousandths: 1000 is a weight of one. Zero is a weight too: such a flow runs only
// when no flow of positive weight is active in the set, in turns with other such flows.
type Weight int64

const (
	// WeightUnit is a weight of one.
	WeightUnit Weight = 1_000
	// WeightMax is the largest weight, ten million. It does not make others' weights vanish: every quantum is
	// exact, and at least one micro-unit.
	WeightMax Weight = 10_000_000 * WeightUnit
)

// WeightOf converts a decimal weight, rounding to the nearest thousandth. It returns a *WeightError if w is negative,
// not a number, infinite, above WeightMax, or so small that it would round to zero without being zero.
func WeightOf(w float64) (Weight, error) {
	if math.IsNaN(w) || w < 0 || w > float64(WeightMax)/float64(WeightUnit) {
		return 0, &WeightError{Value: w}
	}
	m := Weight(math.Round(w * float64(WeightUnit)))
	if m == 0 && w != 0 {
		return 0, &WeightError{Value: w}
	}
	return m, nil
}

// Validate returns a *WeightError unless the weight is from 0 to WeightMax.
func (w Weight) Validate() error {
	if w < 0 || w > WeightMax {
		return &WeightError{Value: float64(w) / float64(WeightUnit)}
	}
	return nil
}

// String is the weight as a decimal number.
func (w Weight) String() string {
	return strconv.FormatFloat(float64(w)/float64(WeightUnit), 'f', -1, 64)
}

// WeightError is returned when a weight is none.
type WeightError struct {
	Value float64 // as given, in units
}

// Error names the bounds and the remedy.
func (e *WeightError) Error() string {
	return fmt.Sprintf("drr: weight %s, must be 0 (run only when nobody else waits) or from 0.001 to %d",
		strconv.FormatFloat(e.Value, 'f', -1, 64), WeightMax/WeightUnit)
}
