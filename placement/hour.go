package placement

import (
	"fmt"
	"time"

	"github.com/fairlead/fairlead/cell"
)

// HourLength is how long an hour of demand is. Everything that is counted in hours and days of demand goes by it: samples, the hours of a day, whales,
// and those who may return. It is an hour, which the zero value is as well; less only where nobody can wait for hours, as in a demonstration. Whoever
// records and whoever reads profiles must have the same, and profiles that were recorded with another say nothing.
type HourLength time.Duration

// The bounds of an [HourLength]: what is measured over less than a second is chance.
const (
	HourMin = HourLength(time.Second)
	HourMax = HourLength(time.Hour)
)

// Length returns how long an hour is.
func (h HourLength) Length() time.Duration {
	if h <= 0 {
		return time.Duration(HourMax)
	}
	return time.Duration(h)
}

// Of returns the hour since the Unix epoch that an instant is in.
func (h HourLength) Of(now cell.Instant) int64 {
	length := int64(h.Length())
	hour := int64(now) / length
	if int64(now)%length < 0 {
		hour--
	}
	return hour
}

// instantOf returns when an hour begins.
func (h HourLength) instantOf(hour int64) cell.Instant {
	return cell.Instant(0).Add(time.Duration(hour) * h.Length())
}

// windowAt returns which of an hour's windows a time after its beginning is in.
func (h HourLength) windowAt(after time.Duration) int {
	return int(int64(after) * MeterWindows / int64(h.Length()))
}

// windowBegins returns how long after the beginning of an hour a window of it begins: the first whole nanosecond of
// it, where the hour is no whole number of nanoseconds for each.
func (h HourLength) windowBegins(i int) time.Duration {
	return (time.Duration(i)*h.Length() + MeterWindows - 1) / MeterWindows
}

// note says how long an hour is to whoever would take it for a real one; nothing where it is.
func (h HourLength) note() string {
	if h.Length() == time.Duration(HourMax) {
		return ""
	}
	return fmt.Sprintf(" (hours of %v each)", h.Length())
}
