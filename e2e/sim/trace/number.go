package trace

import (
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/cell"
)

// TimeMax bounds every time in a trace: a hundred years.
const TimeMax = 100 * 365 * 24 * time.Hour

// milliseconds reads a decimal number of milliseconds, exactly to the nanosecond.
func milliseconds(s string) (time.Duration, error) {
	const remedy = "give milliseconds from 0 to a hundred years, with at most 6 decimals"
	whole, part, _ := strings.Cut(s, ".")
	ms, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || whole[0] < '0' || whole[0] > '9' || ms > int64(TimeMax/time.Millisecond) || len(part) > 6 {
		return 0, wrong(remedy, "%.40q is no time", s)
	}
	d := time.Duration(ms) * time.Millisecond
	scale := time.Millisecond
	for _, c := range []byte(part) {
		if c < '0' || c > '9' {
			return 0, wrong(remedy, "%.40q is no time", s)
		}
		scale /= 10
		d += time.Duration(c-'0') * scale
	}
	return d, nil
}

// appendMilliseconds writes a time as milliseconds reads it.
func appendMilliseconds(b []byte, d time.Duration) []byte {
	b = strconv.AppendInt(b, int64(d/time.Millisecond), 10)
	rest := int64(d % time.Millisecond)
	if rest == 0 {
		return b
	}
	digits := strconv.FormatInt(int64(time.Millisecond)+rest, 10)[1:]
	return append(append(b, '.'), strings.TrimRight(digits, "0")...)
}

func number(s string, least, most int64) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < least || n > most {
		return 0, wrong("give a whole number in that range", "%.40q is outside %d to %d", s, least, most)
	}
	return n, nil
}

func cost(s string) (cell.Cost, error) {
	n, err := number(s, 0, int64(cell.CostMax))
	return cell.Cost(n), err
}

// keys reads the CSV form of concurrency keys.
func keys(s string) ([]cell.ConcurrencyKey, error) {
	const remedy = "write key=max with ; between them, such as db=1;mail=10"
	parts := strings.Split(s, ";")
	out := make([]cell.ConcurrencyKey, 0, len(parts))
	for _, part := range parts {
		name, limit, ok := strings.Cut(part, "=")
		if !ok {
			return nil, wrong(remedy, "%.40q is no concurrency key", part)
		}
		n, err := number(limit, 1, cell.ConcurrencyMax)
		if err != nil {
			return nil, err
		}
		out = append(out, cell.ConcurrencyKey{Key: strings.Clone(name), Max: n})
	}
	return out, checkKeys(out)
}

// checkKeys returns what is wrong with a job's concurrency keys.
func checkKeys(keys []cell.ConcurrencyKey) error {
	if len(keys) > cell.ConcurrencyKeysMax {
		return wrong("use fewer", "has %d concurrency keys, of at most %d", len(keys), cell.ConcurrencyKeysMax)
	}
	for i, k := range keys {
		if err := cell.CheckID("keys", k.Key); err != nil {
			return err
		}
		if k.Max < 1 || k.Max > cell.ConcurrencyMax {
			return wrong("give how many may be held at once", "has max %d for %q, outside 1 to %d", k.Max, k.Key, cell.ConcurrencyMax)
		}
		for _, o := range keys[:i] {
			if o.Key == k.Key {
				return wrong("name each key once", "names %q twice", k.Key)
			}
		}
	}
	return nil
}
