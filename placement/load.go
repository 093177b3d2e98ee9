package placement

import (
	"math"
	"strings"

	"github.com/fairlead/fairlead/cell"
)

// Load is an amount of each resource that placement counts.
type Load struct {
	Compute cell.Rate // cost per second, in micro-units: 1,000,000 is one slot's worth where the unit is slot-seconds
	Jobs    int64     // jobs that have not ended
	Bytes   int64     // bytes that they hold
}

// AmountMax bounds each resource of a demand or a capacity, so that the sum of any 90,000 of them fits. What is larger counts as that much.
const AmountMax = 100_000_000_000_000

// Add returns l + m, resource by resource; a sum that is too large is the largest there is.
func (l Load) Add(m Load) Load {
	return Load{Compute: cell.Rate(sum(int64(l.Compute), int64(m.Compute))), Jobs: sum(l.Jobs, m.Jobs), Bytes: sum(l.Bytes, m.Bytes)}
}

// Sub returns l - m, resource by resource. It undoes an Add that was not held at an end, and may be negative.
func (l Load) Sub(m Load) Load {
	return Load{Compute: cell.Rate(less(int64(l.Compute), int64(m.Compute))), Jobs: less(l.Jobs, m.Jobs), Bytes: less(l.Bytes, m.Bytes)}
}

// Max returns the larger of l and m, resource by resource.
func (l Load) Max(m Load) Load {
	return Load{Compute: max(l.Compute, m.Compute), Jobs: max(l.Jobs, m.Jobs), Bytes: max(l.Bytes, m.Bytes)}
}

// Scale returns l times f, rounded down and held at the ends. A factor that is not a number counts as 0.
func (l Load) Scale(f float64) Load {
	return Load{Compute: cell.Rate(times(int64(l.Compute), f)), Jobs: times(l.Jobs, f), Bytes: times(l.Bytes, f)}
}

// Fits reports whether l is within capacity. A capacity of 0 in a resource says that it was not tested there: it bounds nothing.
func (l Load) Fits(capacity Load) bool {
	return (capacity.Compute == 0 || l.Compute <= capacity.Compute) &&
		(capacity.Jobs == 0 || l.Jobs <= capacity.Jobs) && (capacity.Bytes == 0 || l.Bytes <= capacity.Bytes)
}

// Dominant returns the largest share that l is of capacity, over the resources: 1 is all of one. A resource without a capacity counts for
// nothing.
func (l Load) Dominant(capacity Load) float64 {
	share := 0.0
	if capacity.Compute > 0 {
		share = float64(l.Compute) / float64(capacity.Compute)
	}
	if capacity.Jobs > 0 {
		share = max(share, float64(l.Jobs)/float64(capacity.Jobs))
	}
	if capacity.Bytes > 0 {
		share = max(share, float64(l.Bytes)/float64(capacity.Bytes))
	}
	return share
}

// String returns what is not 0, such as compute 0.5, jobs 12; "nothing" when all is.
func (l Load) String() string {
	var parts []string
	for r := range resources {
		if n := l.amount(r); n != 0 {
			parts = append(parts, r.String()+" "+r.format(n))
		}
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

func sum(a, b int64) int64 {
	switch s := a + b; {
	case b > 0 && s < a:
		return math.MaxInt64
	case b < 0 && s > a:
		return math.MinInt64
	default:
		return s
	}
}

func less(a, b int64) int64 {
	switch s := a - b; {
	case b < 0 && s < a:
		return math.MaxInt64
	case b > 0 && s > a:
		return math.MinInt64
	default:
		return s
	}
}

func times(a int64, f float64) int64 {
	switch p := math.Floor(float64(a) * f); {
	case math.IsNaN(p):
		return 0
	case p >= math.MaxInt64:
		return math.MaxInt64
	case p <= math.MinInt64:
		return math.MinInt64
	default:
		return int64(p)
	}
}

// bounded holds every amount of a load between 0 and [AmountMax].
func (l Load) bounded() Load {
	return Load{
		Compute: max(0, min(l.Compute, AmountMax)), Jobs: max(0, min(l.Jobs, AmountMax)), Bytes: max(0, min(l.Bytes, AmountMax)),
	}
}

// resource is one of a load's amounts.
type resource int

const (
	compute resource = iota
	jobs
	bytes
	resources // how many there are
)

func (r resource) String() string { return [...]string{"compute", "jobs", "bytes", "resources"}[r] }

// format writes n of the resource as people read it.
func (r resource) format(n int64) string {
	if r == compute {
		return cell.FormatUnits(n)
	}
	return formatInt(n)
}

func (l Load) amount(r resource) int64 {
	switch r {
	case compute:
		return int64(l.Compute)
	case jobs:
		return l.Jobs
	case bytes, resources:
	}
	return l.Bytes
}

// Day is a load in each hour of the day, in UTC.
type Day [HoursPerDay]Load

// HoursPerDay is how many slots a [Day] has.
const HoursPerDay = 24

// Add returns d + m, hour by hour.
func (d Day) Add(m Day) Day {
	for h := range d {
		d[h] = d[h].Add(m[h])
	}
	return d
}

// Sub returns d - m, hour by hour.
func (d Day) Sub(m Day) Day {
	for h := range d {
		d[h] = d[h].Sub(m[h])
	}
	return d
}

// Peak returns the largest amount of each resource, whatever the hour.
func (d Day) Peak() Load {
	var top Load
	for h := range d {
		top = top.Max(d[h])
	}
	return top
}

// Dominant returns the largest share that any hour is of capacity, as [Load.Dominant] counts it.
func (d Day) Dominant(capacity Load) float64 {
	share := 0.0
	for h := range d {
		share = max(share, d[h].Dominant(capacity))
	}
	return share
}
