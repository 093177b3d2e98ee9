package demo

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestQuantile compares with the definition: the least value that at least a share q of all does not exceed.
func TestQuantile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Map(rapid.Int64Range(0, 50), func(v int64) time.Duration { return time.Duration(v) }), 1, 60).Draw(t, "values")
		percent := rapid.IntRange(1, 100).Draw(t, "percent")
		slices.Sort(values)
		want := time.Duration(-1)
		for _, v := range values {
			within := 0
			for _, other := range values {
				if other <= v {
					within++
				}
			}
			if within*100 >= percent*len(values) {
				want = v
				break
			}
		}
		if got := quantile(values, float64(percent)/100); got != want {
			t.Fatalf("the %d-th percentile of %v is %v, want %v", percent, values, got, want)
		}
	})
	if quantile(nil, 0.5) != 0 {
		t.Error("the quantile of nothing is not 0")
	}
}

// madeUp returns a report of runs that never were: the bulk's jobs start one a second, the quiet ones wait what the policy says.
func madeUp(waits map[string]time.Duration, lost int) *Report {
	c := Config{BulkJobs: 10, QuietTenants: 2, Service: time.Second, Slots: 1, Seed: 1}
	r := &Report{config: c, workload: plan(c), outcomes: map[string][]outcome{}}
	zero := time.Unix(1_000_000, 0)
	for _, p := range policies() {
		for n, j := range r.workload.jobs {
			o := outcome{accepted: true, ended: true, succeeded: true, submitted: zero.Add(j.at)}
			o.start = zero.Add(time.Duration(n) * time.Second)
			if j.tenant != bulkTenant {
				o.start = o.submitted.Add(waits[p])
			}
			o.end = o.start.Add(time.Second)
			if n < lost {
				o = outcome{accepted: true, submitted: o.submitted}
			}
			r.outcomes[p] = append(r.outcomes[p], o)
		}
	}
	return r
}

func TestFiguresAndReading(t *testing.T) {
	r := madeUp(map[string]time.Duration{policyFIFO: 4900 * time.Millisecond, policyFairlead: 200 * time.Millisecond}, 0)
	if n := r.Jobs(); n != (Jobs{Accepted: 36, Completed: 36}) {
		t.Errorf("jobs %+v", n)
	}
	f := r.figures(policyFairlead)
	if f.quiet != (Waits{P50: 200 * time.Millisecond, P95: 200 * time.Millisecond, Max: 200 * time.Millisecond}) || f.bulkFinished != 10*time.Second {
		t.Errorf("figures %+v", f)
	}
	for _, want := range []string{"at most 200 ms beside", "against 4.90 s", "24 times less", "the bulk finished at the same time", "All 36 accepted"} {
		if !strings.Contains(r.reading(), want) {
			t.Errorf("%q lacks %q", r.reading(), want)
		}
	}
	if lost := madeUp(nil, 2); lost.Jobs().Lost != 4 || lost.figures(policyFIFO).lost != 2 || !strings.Contains(lost.reading(), "4 were lost") {
		t.Errorf("lost jobs: %+v, %q", lost.Jobs(), lost.reading())
	}
}

// TestTextFitsAnyWidth: the sentences are wrapped to the terminal; the table itself fits 40 columns.
func TestTextFitsAnyWidth(t *testing.T) {
	r := madeUp(map[string]time.Duration{policyFIFO: 4900 * time.Millisecond, policyFairlead: 200 * time.Millisecond}, 0)
	text, _, _ := strings.Cut(r.Text(40), "\nNext:")
	for line := range strings.Lines(text) {
		if len(strings.TrimRight(line, "\n")) > 40 {
			t.Errorf("%q is wider than 40 columns", line)
		}
	}
}

func TestJSONIsNumbers(t *testing.T) {
	b, err := madeUp(nil, 0).JSON()
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got["jobs"] == nil || got["policies"] == nil {
		t.Errorf("the object is %s", b)
	}
}

func TestComplaints(t *testing.T) {
	r := madeUp(nil, 0)
	for n := range r.outcomes[policyFIFO] {
		if o := &r.outcomes[policyFIFO][n]; n%3 != 0 {
			o.succeeded, o.failure = false, fmt.Sprintf("error %d", n%3)
		}
	}
	got := r.complaints(policyFIFO)
	if len(got) != 2 || got[0].count < got[1].count || got[0].text != "error 1" {
		t.Errorf("complaints %+v", got)
	}
	if n := r.Jobs(); n.Failed != got[0].count+got[1].count || n.Completed+n.Failed != n.Accepted {
		t.Errorf("jobs %+v", n)
	}
}
