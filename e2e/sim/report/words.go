package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// nb is a blank at which no line is broken, between a number and its unit. It stays inside this package: see [spaced].
const nb = "\u00a0"

// spaced puts plain blanks in place of those that kept lines from being broken.
func spaced(s string) string { return strings.ReplaceAll(s, nb, " ") }

// span writes a duration for people, with about three digits that count and one unit.
func span(d time.Duration) string {
	switch s := d.Seconds(); {
	case d < 0:
		return "-" + span(-d)
	case d == 0:
		return "0" + nb + "s"
	case d < time.Millisecond:
		return trimmed(float64(d)/float64(time.Microsecond), 0) + nb + "µs"
	case s < 0.9995:
		return trimmed(s*1000, 3) + nb + "ms"
	case s < 9.995:
		return fmt.Sprintf("%.2f"+nb+"s", s)
	case s < 999.95:
		return fmt.Sprintf("%.1f"+nb+"s", s)
	case s < 100*60:
		return fmt.Sprintf("%.1f"+nb+"min", s/60)
	case s < 100*3600:
		return fmt.Sprintf("%.1f"+nb+"h", s/3600)
	default:
		return fmt.Sprintf("%.1f"+nb+"days", s/86400)
	}
}

// trimmed writes v with so many digits that count, whole from a hundred on, without zeros at the end of a fraction.
func trimmed(v float64, digits int) string {
	places := digits
	for limit := 1.0; places > 0 && v >= limit; limit *= 10 {
		places--
	}
	s := strconv.FormatFloat(v, 'f', places, 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// change writes what became of a duration: -24.7 s, +1.90 s, or = when nothing did.
func change(before, after time.Duration) string {
	switch d := after - before; {
	case d > 0:
		return "+" + span(d)
	case d < 0:
		return span(d)
	default:
		return "="
	}
}

// thousands puts commas between groups of three digits of a plain decimal.
func thousands(s string) string {
	whole, fraction, dotted := strings.Cut(s, ".")
	for i := len(whole) - 3; i > 0 && whole[i-1] != '-'; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if dotted {
		return whole + "." + fraction
	}
	return whole
}

func number(n int) string { return thousands(strconv.Itoa(n)) }

// short writes a number in little room: 9,999, 20.0k, 2.00M.
func short(n int64) string {
	switch {
	case n < 10_000:
		return number(int(n))
	case n < 999_500:
		return strconv.FormatFloat(float64(n)/1e3, 'f', 1, 64) + "k"
	default:
		return strconv.FormatFloat(float64(n)/1e6, 'f', 2, 64) + "M"
	}
}

// count writes a number of things: 1 tenant, 19 tenants.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return number(n) + " " + thing + "s"
}

// percent writes p percent, with two places.
func percent(p float64) string { return fmt.Sprintf("%.2f"+nb+"%%", p) }

// times writes how many times as long a is as b: 125 times, 1.3 times.
func times(a, b time.Duration) string {
	q := float64(a) / float64(b)
	if q >= 10 {
		return thousands(strconv.FormatFloat(math.Round(q), 'f', 0, 64)) + nb + "times"
	}
	return trimmed(q, 2) + nb + "times"
}

// plain returns a name for a terminal or a picture: what cannot be printed, or would turn the direction of writing, is escaped.
func plain(s string) string {
	if s == "" {
		return "-"
	}
	if !strings.ContainsFunc(s, func(r rune) bool { return r == unicode.ReplacementChar || !unicode.IsPrint(r) }) {
		return s
	}
	quoted := strconv.QuoteToGraphic(s)
	var b strings.Builder
	for _, r := range quoted[1 : len(quoted)-1] {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// cut returns s in at most n runes, with an ellipsis for what is missing.
func cut(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}

// listed joins words as prose does: a, b and c.
func listed(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

// wrap breaks a text into lines of at most width runes where its words allow it.
func wrap(s string, width int) string {
	var b strings.Builder
	used := 0
	for i, word := range strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || r == '\n' }) {
		n := len([]rune(word))
		switch {
		case i == 0:
		case used+1+n > width:
			b.WriteByte('\n')
			used = 0
		default:
			b.WriteByte(' ')
			used++
		}
		b.WriteString(word)
		used += n
	}
	return spaced(b.String())
}
