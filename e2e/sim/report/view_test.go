package report_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/e2e/sim"
	"github.com/fairlead/fairlead/e2e/sim/report"
)

// of are jobs of a tenant that are done within a time, so many of them.
type of struct {
	tenant string
	jobs   int
	within time.Duration
}

// done is a run in which jobs were done within given times. Jobs share what is the same, so that a million of them is little.
func done(parts ...of) *sim.Run {
	run := &sim.Run{Scenario: "done", Policy: "given", Slots: 1}
	for _, p := range parts {
		job := &sim.Job{Traits: &sim.Traits{Tenant: p.tenant, Class: cell.ClassInteractive}, Service: p.within}
		for range p.jobs {
			run.Records = append(run.Records, sim.Record{Job: job, End: p.within, State: sim.StateCompleted, Charged: 1})
		}
	}
	return run
}

const ms = time.Millisecond

// TestMaskedTenant is the published example: of a million operations 99 % are done within 196 ms, and so is no 99 % of one tenant's.
func TestMaskedTenant(t *testing.T) {
	if testing.Short() {
		t.Skip("a million records: not with -short")
	}
	run := done(
		of{"cedar", 5000, 41 * ms}, of{"cedar", 4500, 128 * ms}, of{"cedar", 399, 196 * ms}, of{"cedar", 101, 1840 * ms},
		of{"others", 985_000 - 9500, 180 * ms}, of{"others", 9000 - 399, 196 * ms}, of{"others", 6000 - 101, 1840 * ms},
	)
	s := report.Summarise(run)
	v := report.Look(s, 250*ms)
	if v.Work.P99 != 196*ms || v.Work.Late || v.Work.Jobs != 1_000_000 || v.Work.Within != 994_000 {
		t.Errorf("all work stands at %+v, want a p99 of 196 ms, in time", v.Work)
	}
	if v.Met() || v.Tenants != 2 || len(v.Breaches) != 1 || v.Breaches[0].Name != "cedar" || v.Breaches[0].P99 != 1840*ms {
		t.Errorf("the tenants stand at %+v, want cedar in breach at 1,840 ms", v.Breaches)
	}
	table := report.New([]*report.Summary{s}, report.Options{Objective: 250 * ms}).Table()
	for _, want := range []string{"196 ms  99.40 %  met", "1 of 2  MISSED", "hidden by the view of all work", "cedar 1.84 s"} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
}

// TestTwelveSmallTenants is the other one: twelve tenants with 0.5 % of the requests become twenty times slower, and the p99 of all of them creeps
// from 250 to 270 ms. The view of tenants, and the comparison with the day before, name all twelve and nobody else.
func TestTwelveSmallTenants(t *testing.T) {
	day := func(small time.Duration) *report.Summary {
		parts := []of{{"large", 196_980, 240 * ms}, {"large", 20, 250 * ms}, {"large", 1000, 270 * ms}, {"large", 1000, 400 * ms}}
		for i := range 12 {
			parts = append(parts, of{fmt.Sprintf("small-%02d", i), 1000/12 + min(1, max(0, 4-i)), small})
		}
		return report.Summarise(done(parts...))
	}
	before, after := day(120*ms), day(2400*ms)
	if before.All.Jobs != 200_000 || before.All.Latency.P99 != 250*ms || after.All.Latency.P99 != 270*ms {
		t.Fatalf("of %d jobs the p99 goes from %v to %v", before.All.Jobs, before.All.Latency.P99, after.All.Latency.P99)
	}
	const objective = 500 * ms
	if v := report.Look(before, objective); v.Work.Late || !v.Met() {
		t.Errorf("before, the views are %+v", v)
	}
	v := report.Look(after, objective)
	if v.Work.Late {
		t.Errorf("all work is late: %+v", v.Work)
	}
	if v.Met() || len(v.Breaches) != 12 || v.Tenants != 13 {
		t.Fatalf("%d of %d tenants are in breach", len(v.Breaches), v.Tenants)
	}
	for _, b := range v.Breaches {
		if !strings.HasPrefix(b.Name, "small-") || b.P99 != 2400*ms || b.Within != 0 {
			t.Errorf("in breach is %+v", b)
		}
	}
}

// TestViewCountsWhatIsNotDone: a tenant whose jobs do not end misses any objective, and one whose jobs were refused does not.
func TestViewCountsWhatIsNotDone(t *testing.T) {
	run := done(of{"served", 100, ms}, of{"starved", 100, ms}, of{"refused", 100, ms})
	for i := range run.Records {
		switch r := &run.Records[i]; {
		case r.Job.Tenant == "starved" && i%50 == 0:
			r.State = sim.StateWaiting
		case r.Job.Tenant == "refused" && i%2 == 0:
			r.State = sim.StateRejected
		}
	}
	v := report.Look(report.Summarise(run), time.Second)
	if len(v.Breaches) != 1 || v.Breaches[0].Name != "starved" || v.Breaches[0].Within != 98 {
		t.Errorf("in breach are %+v, want the starved one", v.Breaches)
	}
}

// TestCompare: going there and back exchanges gains and losses, going nowhere changes nothing, and who loses comes first, by how much.
func TestCompare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var a, b []of
		for i := range rapid.IntRange(1, 8).Draw(t, "tenants") {
			name := fmt.Sprintf("t%d", i)
			for range rapid.IntRange(1, 3).Draw(t, "parts") {
				n := rapid.IntRange(1, 20).Draw(t, "jobs")
				a = append(a, of{name, n, time.Duration(rapid.IntRange(1, 4).Draw(t, "before")) * ms})
				b = append(b, of{name, n, time.Duration(rapid.IntRange(1, 4).Draw(t, "after")) * ms})
			}
		}
		// As waits, not as services.
		before, after := waited(a...), waited(b...)
		there, back := report.Compare(before, after), report.Compare(after, before)
		if there.Gain != back.Lose || there.Lose != back.Gain || there.Stay != back.Stay || there.Gain+there.Lose+there.Stay != len(before.Tenants) {
			t.Fatalf("there %d %d %d, back %d %d %d", there.Gain, there.Lose, there.Stay, back.Gain, back.Lose, back.Stay)
		}
		if still := report.Compare(before, before); still.Gain+still.Lose > 0 {
			t.Fatalf("to the same, %d gain and %d lose", still.Gain, still.Lose)
		}
		for i, c := range there.Changes {
			worse := c.After.Wait.P95 - c.Before.Wait.P95
			if c.Verdict == report.VerdictLoses && worse < 0 || c.Verdict == report.VerdictGains && worse > 0 || c.Verdict == report.VerdictSame && worse != 0 {
				t.Fatalf("%s %v at %v worse", c.Before.Name, c.Verdict, worse)
			}
			if i == 0 {
				continue
			}
			prev := there.Changes[i-1]
			order := map[report.Verdict]int{report.VerdictLoses: 0, report.VerdictGains: 1, report.VerdictSame: 2}
			size := func(c report.Change) time.Duration { return (c.After.Wait.P95 - c.Before.Wait.P95).Abs() }
			if order[prev.Verdict] > order[c.Verdict] || prev.Verdict == c.Verdict && size(prev) < size(c) {
				t.Fatalf("%v stands before %v", prev, c)
			}
		}
	})
}

// waited is done, with the times as waits.
func waited(parts ...of) *report.Summary {
	run := done(parts...)
	for i := range run.Records {
		r := &run.Records[i]
		r.Start, r.End = r.End, r.End+ms
	}
	return report.Summarise(run)
}
