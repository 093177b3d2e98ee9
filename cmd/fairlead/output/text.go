package output

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// None stands in a table for what there is not.
const None = "-"

// Safe returns s for one cell of a table: control and other invisible formatting characters are escaped, so that what a stranger wrote
// neither drives the terminal nor breaks the columns. An empty s gives [None].
func Safe(s string) string {
	if s == "" {
		return None
	}
	return escape(s, false)
}

// SafeText returns s for a block of text: as [Safe], with its line breaks and tabs kept.
func SafeText(s string) string { return escape(s, true) }

func escape(s string, block bool) string {
	unsafe := func(r rune) bool {
		if block && (r == '\n' || r == '\t') {
			return false
		}
		return r == utf8.RuneError || unicode.IsControl(r) || unicode.Is(unicode.Cf, r)
	}
	if !strings.ContainsFunc(s, unsafe) {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case !unsafe(r):
			b.WriteRune(r)
		case r == utf8.RuneError && s[i] < utf8.RuneSelf, r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r == utf8.RuneError:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// Cut returns s in at most n runes, with an ellipsis for what is missing.
func Cut(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}

// Age returns how long before now t was, or in how long it will be, in one or two units: 5m12s, in 3h. An unset t gives [None].
func Age(now time.Time, t *timestamppb.Timestamp) string {
	if t == nil {
		return None
	}
	d := now.Sub(t.AsTime())
	if d < 0 {
		return "in " + Duration(negate(d))
	}
	return Duration(d)
}

// negate returns -d, of which there is none for the least of all durations: time.Time.Sub answers it for what is centuries ahead.
func negate(d time.Duration) time.Duration { return -max(d, -math.MaxInt64) }

// ProtoDuration returns d as [Duration] does; an unset d gives [None].
func ProtoDuration(d *durationpb.Duration) string {
	if d == nil {
		return None
	}
	return Duration(d.AsDuration())
}

// Duration returns d in at most two units.
func Duration(d time.Duration) string {
	const day = 24 * time.Hour
	two := func(a int64, unitA string, b int64, unitB string) string {
		if b == 0 {
			return fmt.Sprintf("%d%s", a, unitA)
		}
		return fmt.Sprintf("%d%s%d%s", a, unitA, b, unitB)
	}
	switch {
	case d < 0:
		return "-" + Duration(negate(d))
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int64(d.Seconds()))
	case d < time.Hour:
		return two(int64(d/time.Minute), "m", int64(d%time.Minute/time.Second), "s")
	case d < day:
		return two(int64(d/time.Hour), "h", int64(d%time.Hour/time.Minute), "m")
	default:
		return two(int64(d/day), "d", int64(d%day/time.Hour), "h")
	}
}

// Bytes returns n bytes in binary units: 64KiB, 1.5MiB.
func Bytes(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%dB", n)
	}
	v, i := float64(n)/unit, 0
	for v >= unit && i < 4 {
		v /= unit
		i++
	}
	s := strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0")
	return s + "KMGTP"[i:i+1] + "iB"
}

// Enum returns an enum value's name as people write it: JOB_STATE_READY with the prefix JOB_STATE_ gives ready. Unspecified
// gives [None].
func Enum(name fmt.Stringer, prefix string) string {
	s := strings.ToLower(strings.TrimPrefix(name.String(), prefix))
	if s == "unspecified" {
		return None
	}
	return strings.ReplaceAll(s, "_", "-")
}
