package report

import (
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/e2e/sim"
)

// TestPercentile: the nearest rank is the least value that at least p in a hundred values do not exceed.
func TestPercentile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var values []time.Duration
		for _, v := range rapid.SliceOfN(rapid.Int64Range(0, 50), 1, 300).Draw(t, "values") {
			values = append(values, time.Duration(v))
		}
		p := rapid.IntRange(1, 100).Draw(t, "p")
		q := slices.Clone(values)
		got := quantiles(q)
		want := map[int]time.Duration{50: got.P50, 95: got.P95, 99: got.P99, 100: got.Max}
		want[p] = percentile(q, p)
		for p, got := range want {
			for _, candidate := range q { // sorted by quantiles
				atMost := 0
				for _, v := range values {
					if v <= candidate {
						atMost++
					}
				}
				if atMost*100 >= p*len(values) {
					if got != candidate {
						t.Fatalf("p%d of %v is %d, want %d", p, q, got, candidate)
					}
					break
				}
			}
		}
	})
	if got := percentile(nil, 50); got != 0 {
		t.Errorf("of nothing it is %v", got)
	}
	if got := rank(95, 76); got != 73 { // as published for the 76 jobs of the quiet tenants
		t.Errorf("the p95 of 76 is the %d., want the 73.", got)
	}
}

func TestScaled(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := rapid.Int64Range(1, math.MaxInt64).Draw(t, "whole")
		part := rapid.Int64Range(0, whole).Draw(t, "part")
		length := px(rapid.Int64Range(0, math.MaxInt64).Draw(t, "length"))
		want := new(big.Int).Mul(big.NewInt(part), big.NewInt(int64(length)))
		want.Div(want, big.NewInt(whole))
		if got := scaled(part, whole, length); int64(got) != want.Int64() {
			t.Fatalf("%d / %d of %d is %d, want %v", part, whole, length, got, want)
		}
	})
	for _, out := range []px{scaled(-1, 10, 100), scaled(1, 0, 100), scaled(0, 10, 100)} {
		if out != 0 {
			t.Errorf("it is %d, want 0", out)
		}
	}
	if got := scaled(11, 10, 100); got != 100 {
		t.Errorf("more than the whole is %d", got)
	}
}

func TestLog2(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint64Range(1, math.MaxInt64).Draw(t, "n")
		got, want := float64(log2(n))/(1<<logFraction), math.Log2(float64(n))
		if math.Abs(got-want) > 4.0/(1<<logFraction) {
			t.Fatalf("log2(%d) = %v, want %v", n, got, want)
		}
	})
	for i := range 63 {
		if got := log2(1 << i); got != int64(i)<<logFraction {
			t.Errorf("log2(2^%d) = %d", i, got)
		}
	}
}

func TestPixels(t *testing.T) {
	for p, want := range map[px]string{0: "0", 100: "1", 150: "1.5", 105: "1.05", 110: "1.1", -25: "-0.25", 123456: "1234.56"} {
		if got := p.String(); got != want {
			t.Errorf("%d is %s, want %s", int64(p), got, want)
		}
	}
}

// TestTicks: marks are round, inside, in order and not too many, for a window of any length from a millisecond to years.
func TestTicks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := time.Duration(rapid.Int64Range(0, int64(100*24*time.Hour)).Draw(t, "from"))
		length := time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(3*365*24*time.Hour)).Draw(t, "length"))
		marks, unit := ticks(from, from+length, ticksMax)
		if len(marks) > ticksMax+1 || unit == "" {
			t.Fatalf("%d marks in %q", len(marks), unit)
		}
		for i, m := range marks {
			if m.at < from || m.at > from+length || i > 0 && (m.at <= marks[i-1].at || m.label == marks[i-1].label) {
				t.Fatalf("the marks are %v", marks)
			}
		}
	})
	marks, unit := ticks(0, 26*time.Second, ticksMax)
	if len(marks) != 6 || marks[1].label != "5" || unit != "seconds" {
		t.Errorf("of 26 s they are %v in %s", marks, unit)
	}
	if marks, unit = ticks(0, 90*24*time.Hour, ticksMax); len(marks) != 10 || marks[1].label != "10" || unit != "days" {
		t.Errorf("of 90 days they are %v in %s", marks, unit)
	}
}

func TestRound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(1, 4e18).Draw(t, "d"))
		down, up := roundDown(d), roundUp(d)
		if down > d || up < d || float64(up)/float64(down) > 2.5 {
			t.Fatalf("%d is between %d and %d", d, down, up)
		}
	})
}

// TestLogAxis: places are in the order of the durations, from the axis's beginning to its end.
func TestLogAxis(t *testing.T) {
	a := &logAxis{lo: time.Millisecond, hi: 100 * time.Second, length: 500 * pixel, zero: 50 * pixel}
	rapid.Check(t, func(t *rapid.T) {
		x := time.Duration(rapid.Int64Range(0, int64(a.hi)).Draw(t, "x"))
		y := time.Duration(rapid.Int64Range(int64(x), int64(a.hi)).Draw(t, "y"))
		if px, py := a.place(x), a.place(y); px < 0 || px > py || py > a.length {
			t.Fatalf("%v is at %v, %v at %v", x, px, y, py)
		}
	})
	for d, want := range map[time.Duration]px{
		0: 0, time.Microsecond: 50 * pixel, time.Millisecond: 50 * pixel, 10 * time.Millisecond: 140 * pixel, 100 * time.Second: 500 * pixel,
	} {
		if got := a.place(d); got < want-1 || got > want+1 {
			t.Errorf("%v is at %v, want %v", d, got, want)
		}
	}
}

// anyRun draws a run of some jobs in every state.
func anyRun(t *rapid.T) *sim.Run {
	run := &sim.Run{Scenario: "any", Policy: "any", Slots: 3}
	for i := range rapid.IntRange(0, 40).Draw(t, "jobs") {
		arrival := time.Duration(rapid.Int64Range(0, 50_000).Draw(t, "arrival"))
		start := arrival + time.Duration(rapid.SampledFrom([]int64{0, 1, 100, 20_000}).Draw(t, "wait"))
		end := start + time.Duration(rapid.Int64Range(1, 30_000).Draw(t, "service"))
		cohort := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "cohort")
		r := sim.Record{
			Job: &sim.Job{
				Traits: &sim.Traits{Tenant: cohort + rapid.SampledFrom([]string{"1", "2"}).Draw(t, "tenant"), Cohort: cohort, Class: cell.ClassBatch},
				ID:     i, Arrival: arrival, Service: end - start, Deadline: start,
			},
			Start: start, End: end, State: rapid.SampledFrom([]sim.State{0, 1, 2, 2, 2, 2, 3, 4}).Draw(t, "state"),
			Slot: int32(i % 3), Charged: cell.Cost(rapid.Int64Range(0, 1e12).Draw(t, "charged")),
		}
		if r.State == sim.StateRunning {
			r.End = 0
		}
		run.Records = append(run.Records, r)
		run.End = max(run.End, end)
	}
	slices.SortStableFunc(run.Records, func(a, b sim.Record) int { return int(a.Job.Arrival - b.Job.Arrival) })
	return run
}

// TestGroups: every job is in one group and in one state, and what is charged adds up.
func TestGroups(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		run := anyRun(t)
		s := Summarise(run)
		if s.All.Jobs != len(run.Records) || s.Utilisation < 0 {
			t.Fatalf("%d jobs of %d, busy %v", s.All.Jobs, len(run.Records), s.Utilisation)
		}
		for _, level := range [][]Group{s.Cohorts, s.Tenants} {
			var sum Group
			share := 0.0
			for _, g := range level {
				if g.Jobs != g.Completed+g.Rejected+g.Expired+g.Running+g.Waiting {
					t.Fatalf("the states of %+v do not add up", g)
				}
				sum.Jobs += g.Jobs
				sum.Completed += g.Completed
				sum.Charged += g.Charged
				sum.Finished = max(sum.Finished, g.Finished)
				sum.Wait.Max = max(sum.Wait.Max, g.Wait.Max)
				share += g.Share
			}
			if sum.Jobs != s.All.Jobs || sum.Completed != s.All.Completed || sum.Charged != s.All.Charged || sum.Finished != s.All.Finished ||
				sum.Wait.Max != s.All.Wait.Max || s.All.Charged > 0 && math.Abs(share-1) > 1e-9 {
				t.Fatalf("%+v and a share of %v, want %+v", sum, share, s.All)
			}
		}
	})
}

// TestAreas: what an area stands for is what a look at every instant sees.
func TestAreas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		run := anyRun(t)
		from := time.Duration(rapid.Int64Range(0, 30_000).Draw(t, "from"))
		to := from + time.Duration(rapid.Int64Range(1000, 60_000).Draw(t, "length"))
		tl := newTimeline([]*sim.Run{run}, Cohort, Window{From: from, To: to})
		sums := make([][]int64, 3)
		for i := range sums {
			sums[i] = make([]int64, stepsOf(heldStep)+1)
		}
		s := newSpread(tl, heldStep, sums)
		want := int64(0)
		for i := range run.Records {
			r := &run.Records[i]
			s.add(i%3, r.Start, r.Start+r.Job.Service)
			want += int64(max(0, min(r.Start+r.Job.Service, to)-max(r.Start, from)))
		}
		s.finish()
		got := int64(0)
		for i := range sums {
			for c := range s.steps {
				if sums[i][c] < 0 || sums[i][c] > int64(len(run.Records))*int64(s.edge(c+1)-s.edge(c)) {
					t.Fatalf("step %d has %d", c, sums[i][c])
				}
				got += sums[i][c]
			}
		}
		if got != want {
			t.Fatalf("%d in all, want %d", got, want)
		}
		checkQueue(t, tl, run, from, to)
	})
}

func checkQueue(t *rapid.T, tl *timeline, run *sim.Run, from, to time.Duration) {
	most, peak := tl.queue(run, everybody)
	waits := func(r *sim.Record, at time.Duration) bool {
		until := r.Start
		switch r.State {
		case sim.StateRejected:
			return false
		case sim.StateWaiting:
			until = math.MaxInt64
		case sim.StateExpired:
			until = r.Job.Deadline
		case sim.StateRunning, sim.StateCompleted:
		}
		return r.Job.Arrival <= at && at < until
	}
	look := func(at time.Duration) int64 {
		n := int64(0)
		for i := range run.Records {
			if waits(&run.Records[i], at) {
				n++
			}
		}
		return n
	}
	want := look(from)
	for i := range run.Records {
		if at := run.Records[i].Job.Arrival; at >= from && at < to {
			want = max(want, look(at))
		}
	}
	if peak != want || slices.Max(most) != want {
		t.Fatalf("at most %d wait, want %d", peak, want)
	}
}

func TestWords(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 s", 1500: "2 µs", 200 * time.Microsecond: "200 µs", 1234567: "1.23 ms", 30 * time.Millisecond: "30 ms", 999 * time.Millisecond: "999 ms",
		9999 * time.Millisecond: "10.0 s", 1500 * time.Millisecond: "1.50 s", 100200 * time.Millisecond: "100.2 s", 999 * time.Second: "999.0 s", 5000 * time.Second: "83.3 min",
		3 * time.Hour: "3.0 h", 300 * time.Hour: "12.5 days", -2 * time.Second: "-2.00 s",
	} {
		if got := spaced(span(d)); got != want {
			t.Errorf("%d is %q, want %q", d, got, want)
		}
	}
	for s, want := range map[string]string{"999": "999", "1000": "1,000", "-1000": "-1,000", "-999": "-999", "1234567.89": "1,234,567.89"} {
		if got := thousands(s); got != want {
			t.Errorf("%s is %s, want %s", s, got, want)
		}
	}
	if got := wrap("aa bb"+nb+"cc dd", 6); got != "aa\nbb cc\ndd" {
		t.Errorf("it is wrapped as %q", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		s := string(rapid.SliceOf(rapid.Byte()).Draw(t, "name"))
		for _, r := range plain(s) {
			if r < ' ' || r >= 0x7f && r < 0xa0 || r >= 0x2028 && r <= 0x202e || r == 0xfffd {
				t.Fatalf("%q is shown as %q", s, plain(s))
			}
		}
		if strings.ContainsAny(s, "\x00\x1b\n") && plain(s) == s {
			t.Fatalf("%q is shown as it is", s)
		}
	})
}
