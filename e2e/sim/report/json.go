package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Report is what some runs came to, ready to be written.
type Report struct {
	runs []*Summary
	o    Options
}

// Options choose what a report shows beside its cohorts.
type Options struct {
	// Tenants adds the figures of each tenant.
	Tenants bool
	// Objective adds both views of it: that 99 % of jobs are done within so long of their arrival. 0 adds nothing.
	Objective time.Duration
	// Wide adds columns to the table, and shows every row.
	Wide bool
	// About says in a line what was simulated, above the table.
	About string
	// Width is how long the table's sentences may be, in columns; 0 is [WidthDefault].
	Width int
}

// WidthDefault is for where there is no terminal to say how wide it is.
const WidthDefault = 100

// New returns the report on some runs, usually of one scenario under several policies.
func New(runs []*Summary, o Options) *Report { return &Report{runs: runs, o: o} }

// The JSON form.
type (
	jsonReport struct {
		Runs []jsonRun `json:"runs"`
	}
	jsonRun struct {
		Scenario    string         `json:"scenario"`
		Policy      string         `json:"policy"`
		Seed        uint64         `json:"seed"`
		Jobs        int            `json:"jobs"`
		Completed   int            `json:"completed"`
		Rejected    int            `json:"rejected,omitempty"`
		Expired     int            `json:"expired,omitempty"`
		Running     int            `json:"running,omitempty"`
		Waiting     int            `json:"waiting,omitempty"`
		Preempted   int            `json:"preempted,omitempty"`
		Cohorts     []jsonGroup    `json:"cohorts"`
		Utilisation hundredths     `json:"utilisation_percent"`
		Tenants     []jsonGroup    `json:"tenants,omitempty"`
		Objective   *jsonObjective `json:"objective,omitempty"`
		Notes       []string       `json:"notes,omitempty"`
	}
	jsonGroup struct {
		Name      string        `json:"name"`
		Jobs      int           `json:"jobs"`
		Completed *int          `json:"completed,omitempty"` // where it is not all of them
		Rejected  int           `json:"rejected,omitempty"`
		Expired   int           `json:"expired,omitempty"`
		Running   int           `json:"running,omitempty"`
		Waiting   int           `json:"waiting,omitempty"`
		Preempted int           `json:"preempted,omitempty"`
		Wait      jsonQuantiles `json:"wait_ms"`
		Latency   jsonQuantiles `json:"latency_ms"`
		Finished  millis        `json:"finished_ms"`
		Share     millionths    `json:"share"`
	}
	jsonQuantiles struct {
		P50 millis `json:"p50"`
		P95 millis `json:"p95"`
		P99 millis `json:"p99"`
		Max millis `json:"max"`
	}
)

// JSON returns the report as one JSON object with a member runs. Times are milliseconds, whole where they are whole. Members that say nothing
// are left out: what was rejected, expired, or not done in a run where all was completed.
func (r *Report) JSON() ([]byte, error) {
	out := jsonReport{Runs: []jsonRun{}}
	for _, s := range r.runs {
		j := jsonRun{
			Scenario: s.Scenario, Policy: s.Policy, Seed: s.Seed, Jobs: s.All.Jobs, Completed: s.All.Completed, Rejected: s.All.Rejected,
			Expired: s.All.Expired, Running: s.All.Running, Waiting: s.All.Waiting, Preempted: s.All.Preempted,
			Cohorts: jsonGroups(s.Cohorts), Utilisation: hundredths(s.Utilisation), Notes: s.Notes,
		}
		if r.o.Tenants {
			j.Tenants = jsonGroups(s.Tenants)
		}
		if r.o.Objective > 0 {
			j.Objective = jsonView(Look(s, r.o.Objective))
		}
		out.Runs = append(out.Runs, j)
	}
	return encode(out)
}

func jsonGroups(groups []Group) []jsonGroup {
	out := []jsonGroup{}
	for _, g := range groups {
		j := jsonGroup{
			Name: g.Name, Jobs: g.Jobs, Rejected: g.Rejected, Expired: g.Expired, Running: g.Running, Waiting: g.Waiting, Preempted: g.Preempted,
			Wait: jsonOf(g.Wait), Latency: jsonOf(g.Latency), Finished: millis(g.Finished), Share: millionths(g.Share),
		}
		if g.Completed != g.Jobs {
			j.Completed = &g.Completed
		}
		out = append(out, j)
	}
	return out
}

func jsonOf(q Quantiles) jsonQuantiles {
	return jsonQuantiles{P50: millis(q.P50), P95: millis(q.P95), P99: millis(q.P99), Max: millis(q.Max)}
}

// encode returns v as indented JSON without a line break at its end, and with the characters of HTML as they are.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("the report as JSON: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// millis is a duration that is written in milliseconds, exactly: with the decimals that it has, and with none when it is whole.
type millis time.Duration

func (m millis) String() string {
	sign, n := "", uint64(m)
	if m < 0 {
		sign, n = "-", -n
	}
	const unit = uint64(time.Millisecond)
	s := sign + strconv.FormatUint(n/unit, 10)
	if rest := n % unit; rest > 0 {
		s += "." + strings.TrimRight(fmt.Sprintf("%06d", rest), "0")
	}
	return s
}

// MarshalJSON writes a plain number.
func (m millis) MarshalJSON() ([]byte, error) { return []byte(m.String()), nil }

// hundredths and millionths are numbers that are rounded to so many places when they are written.
type (
	hundredths float64
	millionths float64
)

func (h hundredths) String() string {
	return strconv.FormatFloat(math.Round(float64(h)*1e2)/1e2, 'f', -1, 64)
}

func (m millionths) String() string {
	return strconv.FormatFloat(math.Round(float64(m)*1e6)/1e6, 'f', -1, 64)
}

// MarshalJSON writes a plain number.
func (h hundredths) MarshalJSON() ([]byte, error) { return []byte(h.String()), nil }

// MarshalJSON writes a plain number.
func (m millionths) MarshalJSON() ([]byte, error) { return []byte(m.String()), nil }
