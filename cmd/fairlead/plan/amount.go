package plan

import (
	"encoding/json"
	"errors"
	"math/bits"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/cell"
)

// Micro is an amount in millionths of whatever it counts: units of cost a second, operations a second, units of cost.
type Micro int64

// microMax bounds an amount, so that sums of them fit. It is that of a rate.
const microMax = Micro(cell.RateMax)

// places is how many decimals a millionth has.
const places = 6

var (
	errNumber = errors.New("is not a number")
	errSteps  = errors.New("is finer than a millionth")
	errBounds = errors.New("is outside 0 to " + microMax.String())
)

// ParseMicro returns the amount in a decimal number, exactly. Digits may be grouped by underscores. It returns an error that says what the
// number is: none, finer than a millionth, negative, or above a million.
func ParseMicro(s string) (Micro, error) {
	digits := strings.ReplaceAll(s, "_", "")
	whole, part, point := strings.Cut(digits, ".")
	switch {
	case strings.HasPrefix(digits, "-") && digits != "-":
		return 0, errBounds
	case whole+part == "" || strings.Trim(whole+part, "0123456789") != "" || point && part == "":
		return 0, errNumber
	}
	part = strings.TrimRight(part, "0")
	if len(part) > places {
		return 0, errSteps
	}
	n, err := strconv.ParseInt(whole+part+strings.Repeat("0", places-len(part)), 10, 64)
	if err != nil || Micro(n) > microMax {
		return 0, errBounds
	}
	return Micro(n), nil
}

// String returns the amount exactly.
func (m Micro) String() string { return cell.FormatUnits(int64(m)) }

// MarshalJSON returns the amount as a number.
func (m Micro) MarshalJSON() ([]byte, error) { return json.Marshal(json.Number(m.String())) }

// Short returns the amount with at most two decimals, for tables.
func (m Micro) Short() string {
	const hundredth = 10_000
	return Micro((int64(m) + hundredth/2) / hundredth * hundredth).String()
}

// times is m x n, rounded to the nearest millionth, or microMax+1 if it is more than that.
func (m Micro) times(n Micro) Micro { return scale(m, n, cell.Unit) }

// per is m / n, rounded and bounded likewise. n must be positive.
func (m Micro) per(n Micro) Micro { return scale(m, cell.Unit, n) }

// scale is a x b / c. None may be negative, nor c be 0.
func scale(a, b, c Micro) Micro {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	lo, carry := bits.Add64(lo, uint64(c)/2, 0)
	hi += carry
	if hi >= uint64(c) {
		return microMax + 1
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return Micro(min(q, uint64(microMax)+1))
}
