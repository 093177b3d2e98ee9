package bench

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"
)

// unit is what a row's absolute figures are in.
type unit uint8

const (
	perSecond unit = iota
	seconds
)

func (u unit) format(v float64) string {
	if u == seconds {
		return time.Duration(v * float64(time.Second)).Round(time.Microsecond).String()
	}
	return fmt.Sprintf("%.0f/s", v)
}

// row is one line of the table: a figure against its limit.
type row struct {
	name, limit string
	unit        unit
	metric      string  // as which the benchmark reports the ratio
	target      float64 // the least ratio; the negative of the most, where less is better; 0 for none
	readings    []reading
}

func (r *row) add(x reading) { r.readings = append(r.readings, x) }

// of and to return the medians of the two sides.
func (r *row) of() float64 { return r.median(func(x reading) float64 { return x.of }) }
func (r *row) to() float64 { return r.median(func(x reading) float64 { return x.to }) }

// ratio is the median of the rounds' ratios, not the ratio of the medians: the two sides of a round met the same machine.
func (r *row) ratio() float64 { return r.median(ratio) }

func ratio(x reading) float64 { return x.of / x.to }

func (r *row) median(value func(reading) float64) float64 {
	v := r.sorted(value)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

func (r *row) sorted(value func(reading) float64) []float64 {
	v := make([]float64, len(r.readings))
	for i, x := range r.readings {
		v[i] = value(x)
	}
	slices.Sort(v)
	return v
}

func (r *row) verdict() (target, verdict string) {
	switch {
	case r.target == 0:
		return "", ""
	case r.target > 0:
		target, verdict = fmt.Sprintf(">= %g", r.target), "ok"
		if r.ratio() < r.target {
			verdict = "short"
		}
	default:
		target, verdict = fmt.Sprintf("<= %g", -r.target), "ok"
		if r.ratio() > -r.target {
			verdict = "short"
		}
	}
	return target, verdict
}

func (r *row) cpu() (of, to string) {
	text := func(value func(reading) time.Duration) string {
		if d := r.median(func(x reading) float64 { return float64(value(x)) }); d > 0 {
			return time.Duration(d).Round(100 * time.Nanosecond).String()
		}
		return ""
	}
	return text(func(x reading) time.Duration { return x.cpuOf }), text(func(x reading) time.Duration { return x.cpuTo })
}

// table is what a run found.
type table struct{ rows []row }

func (t *table) print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	say := func(format string, args ...any) {
		_, _ = fmt.Fprintf(w, format, args...) // a terminal that is gone is told nothing
	}
	say("\n%s, %s/%s, %d cores\n\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	say("what\t\tcpu\tlimit\t\tcpu\tratio\tmin..max\ttarget\t\n")
	for i := range t.rows {
		r := &t.rows[i]
		target, verdict := r.verdict()
		all := r.sorted(ratio)
		cpuOf, cpuTo := r.cpu()
		say("%s\t%s\t%s\t%s\t%s\t%s\t%.2f\t%.2f..%.2f\t%s\t%s\n", r.name, r.unit.format(r.of()), cpuOf, r.limit, r.unit.format(r.to()), cpuTo,
			r.ratio(), all[0], all[len(all)-1], target, verdict)
	}
	_ = w.Flush() // as above
}
