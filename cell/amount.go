package cell

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Unit is the micro-units in one unit: of cost, of a rate, of a resource.
const Unit = 1_000_000

// ParseRate returns the rate for f as people write it, in units of cost per second. It returns a *[FieldError] when f is not a number, is
// negative, above [RateMax], or above 0 but below a millionth.
func ParseRate(field string, f float64) (Rate, error) {
	n, err := parseAmount(field, f, int64(RateMax))
	return Rate(n), err
}

// ParseCost returns the cost for f as people write it, in units of cost. It returns a *[FieldError] as [ParseRate] does, with most as the
// bound.
func ParseCost(field string, f float64, most Cost) (Cost, error) {
	n, err := parseAmount(field, f, int64(most))
	return Cost(n), err
}

// ParseResources returns the vector for what each resource's name stands for in its own unit. It returns a *[FieldError] naming field and
// the resource when a name is none, or an amount is not a number, negative, above [ResourceMax], or above 0 but below a millionth.
func ParseResources(field string, amounts map[string]float64) (Resources, error) {
	var r Resources
	known := 0
	for _, resource := range AllResources() {
		f, ok := amounts[resource.String()]
		if !ok {
			continue
		}
		known++
		n, err := parseAmount(field+"."+resource.String(), f, ResourceMax)
		if err != nil {
			return Resources{}, err
		}
		r[resource] = n
	}
	if known == len(amounts) {
		return r, nil
	}
	least := ""
	for name := range amounts { // order-free: the least of the unknown names
		if _, err := ParseResource(field, name); err != nil && (least == "" || name < least) {
			least = name
		}
	}
	_, err := ParseResource(field, least)
	return Resources{}, err
}

// Map returns what is not 0 of r by the resource's name, in its own unit; nil when all is.
func (r Resources) Map() map[string]float64 {
	var m map[string]float64
	for i, n := range r {
		if n == 0 {
			continue
		}
		if m == nil {
			m = make(map[string]float64)
		}
		m[Resource(i).String()] = float64(n) / Unit
	}
	return m
}

// parseAmount rounds f units to micro-units.
func parseAmount(field string, f float64, most int64) (int64, error) {
	remedy := "give 0 to " + FormatUnits(most) + ", in steps of 0.000001"
	switch {
	case math.IsNaN(f) || f < 0 || f > float64(most)/Unit:
		return 0, &FieldError{Field: field, Problem: fmt.Sprintf("is %v, outside 0 to %s", f, FormatUnits(most)), Remedy: remedy}
	case f > 0 && f*Unit < 0.5:
		return 0, &FieldError{Field: field, Problem: fmt.Sprintf("is %v, above 0 but below 0.000001", f), Remedy: remedy}
	default:
		return min(int64(math.Round(f*Unit)), most), nil
	}
}

// Float returns r in units of cost per second.
func (r Rate) Float() float64 { return float64(r) / Unit }

// String returns r in units of cost per second, exactly.
func (r Rate) String() string { return FormatUnits(int64(r)) }

// FormatUnits returns n micro-units in units, exactly and no longer than it must be: 600000 is 0.6.
func FormatUnits(n int64) string {
	whole, part := n/Unit, n%Unit
	if part == 0 {
		return strconv.FormatInt(whole, 10)
	}
	sign := ""
	if n < 0 {
		sign, whole, part = "-", -whole, -part
	}
	return sign + strconv.FormatInt(whole, 10) + "." + strings.TrimRight(fmt.Sprintf("%06d", part), "0")
}

// UnitName returns what the cell's costs are in: slot_seconds, whose micro-unit is a microsecond of a slot, or the resource that cost is
// of.
func (c Costing) UnitName() string {
	if c.ByUnit {
		return c.Unit.String()
	}
	return UnitSlotSeconds
}

// UnitSlotSeconds is the name of the usual unit of cost. A rate in it is a number of slots.
const UnitSlotSeconds = "slot_seconds"
