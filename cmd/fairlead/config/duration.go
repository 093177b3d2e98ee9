package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ParseDuration is time.ParseDuration with days, of 24 hours, before the other units: 7d, 1d12h.
func ParseDuration(s string) (time.Duration, error) {
	rest, negative := strings.CutPrefix(s, "-")
	d, ok := parseUnsigned(rest)
	if !ok {
		return 0, fmt.Errorf("%.40q is not a duration: write it as 90s, 1h30m or 7d", s)
	}
	if negative {
		d = -d
	}
	return d, nil
}

// parseUnsigned returns the duration that s, which may have no sign, is the text of.
func parseUnsigned(s string) (d time.Duration, ok bool) {
	var days time.Duration
	if before, after, found := strings.Cut(s, "d"); found {
		const daysMax = 100_000 // 273 years: what a Duration holds is not much more
		n, err := strconv.ParseUint(before, 10, 32)
		if err != nil || n > daysMax {
			return 0, false
		}
		days, s = time.Duration(n)*24*time.Hour, after
		if s == "" {
			return days, true
		}
	}
	if strings.HasPrefix(s, "-") || strings.HasPrefix(s, "+") {
		return 0, false
	}
	d, err := time.ParseDuration(s)
	return days + d, err == nil && days+d >= days
}

// FormatDuration is the text that [ParseDuration] reads as d, without the units that are zero at its end.
func FormatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
