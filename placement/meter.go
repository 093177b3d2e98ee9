package placement

import (
	"slices"
	"time"

	"github.com/fairlead/fairlead/cell"
)

// Reading is what a cell says of a tenant at an instant: what it was charged in all, and what it holds just now.
type Reading struct {
	Charged int64 // micro-units, of both classes together; only rises
	Jobs    int64 // jobs that have not ended
	Bytes   int64 // bytes that they hold
	Limited int64 // how often it was refused because of a limit of its own; only rises
}

// How readings become samples.
const (
	// MeterWindows is how many windows an hour has, each a minute of it. A p95 is of them: it is what a tenant has for three minutes of every hour.
	MeterWindows = 60
	// MeterGaps is how many of the longest times between two readings that are taken to be spent evenly an hour has: a quarter of an hour each. Of a
	// longer one nothing is known.
	MeterGaps = 4
	// MeterWindowsMin is of how many windows of an hour something must be known for a sample of it: a tenth of them.
	MeterWindowsMin = 6
)

// window is what is known of a minute.
type window struct {
	charged int64 // micro-units
	covered int64 // nanoseconds of it between readings
	jobs    int64 // the largest reading
	bytes   int64
}

// Meter makes hourly samples of the readings of one tenant in one cell. The zero value is ready, and counts real hours. What is charged between two readings is spread
// evenly over the time between them; of jobs and bytes a minute has the largest that was read in it or last before it.
//
// Totals that fall mean that the cell began anew, from an older state or as another cell: the time up to that reading is not counted, and the next
// reading is compared with it.
type Meter struct {
	// Hour is how long its hours are. It is not to change once something was observed.
	Hour HourLength

	started bool
	at      cell.Instant // of the last reading
	last    Reading
	hour    int64 // that the windows are of
	windows [MeterWindows]window
	limited int64 // in this hour
}

// Observe takes a reading and returns the hours that it completes, oldest first: at most two. A reading that is not later than the one before it
// changes nothing.
func (m *Meter) Observe(now cell.Instant, r Reading) (completed []HourSample) {
	if !m.started {
		*m = Meter{Hour: m.Hour, started: true, at: now, last: r, hour: m.Hour.Of(now)}
		return nil
	}
	if now <= m.at {
		return nil
	}
	anew := r.Charged < m.last.Charged || r.Limited < m.last.Limited
	if !anew && now.Sub(m.at) <= m.Hour.Length()/MeterGaps {
		completed = m.spread(now, r)
	}
	if hour := m.Hour.Of(now); hour != m.hour {
		completed = m.turn(hour, completed)
	}
	if !anew {
		m.limited += r.Limited - m.last.Limited
	}
	m.at, m.last = now, r
	return completed
}

// spread gives each window between the last reading and this one its part.
func (m *Meter) spread(now cell.Instant, r Reading) (completed []HourSample) {
	charged, whole := r.Charged-m.last.Charged, int64(now.Sub(m.at))
	given := int64(0)
	for from := m.at; from < now; {
		if hour := m.Hour.Of(from); hour != m.hour {
			completed = m.turn(hour, completed)
		}
		start := m.Hour.instantOf(m.hour)
		i := m.Hour.windowAt(from.Sub(start))
		until := min(now, start.Add(m.Hour.windowBegins(i+1)))
		// What falls before until, less what was given: the parts add up to all of it.
		part := scale(charged, int64(until.Sub(m.at)), whole) - given
		given += part
		w := &m.windows[i]
		w.charged += part
		w.covered += int64(until.Sub(from))
		w.jobs, w.bytes = max(w.jobs, m.last.Jobs), max(w.bytes, m.last.Bytes)
		if until == now {
			w.jobs, w.bytes = max(w.jobs, r.Jobs), max(w.bytes, r.Bytes)
		}
		from = until
	}
	return completed
}

// turn ends the hour and begins another.
func (m *Meter) turn(hour int64, completed []HourSample) []HourSample {
	if s, ok := m.sample(); ok {
		completed = append(completed, HourSample{Hour: m.hour, Sample: s})
	}
	m.hour, m.windows, m.limited = hour, [MeterWindows]window{}, 0
	return completed
}

// sample returns the hour's sample; false when too little of it is known.
func (m *Meter) sample() (Sample, bool) {
	var rates, jobs, bytes []int64
	var total, covered int64
	for i := range m.windows {
		w := &m.windows[i]
		if w.covered < int64(m.Hour.Length())/MeterWindows/2 {
			continue
		}
		total, covered = total+w.charged, covered+w.covered
		rates = append(rates, scale(w.charged, int64(time.Second), w.covered))
		jobs = append(jobs, w.jobs)
		bytes = append(bytes, w.bytes)
	}
	if len(rates) < MeterWindowsMin {
		return Sample{}, false
	}
	return Sample{
		Average: Load{Compute: cell.Rate(scale(total, int64(time.Second), covered)), Jobs: mean(jobs), Bytes: mean(bytes)}.bounded(),
		P95:     Load{Compute: cell.Rate(p95(rates)), Jobs: p95(jobs), Bytes: p95(bytes)}.bounded(),
		Limited: m.limited,
	}, true
}

func mean(of []int64) int64 {
	total := int64(0)
	for _, n := range of {
		total = sum(total, n)
	}
	return total / int64(len(of))
}

// p95 sorts of and returns its nearest-rank 95th percentile.
func p95(of []int64) int64 {
	slices.Sort(of)
	return of[(len(of)*95+99)/100-1]
}
