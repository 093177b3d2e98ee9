package bench

import (
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane/client"
)

// scale is how much is measured.
type scale struct {
	rounds   int
	time     time.Duration // of each side of a comparison
	batchers int           // callers that submit batches
	backlog  int           // jobs
	starts   int           // submissions
	syncs    int
}

// BenchmarkSpeed measures everything and prints the table that the package's comment explains.
func BenchmarkSpeed(b *testing.B) {
	for b.Loop() {
		t := measureAll(b, scale{
			rounds: *flagRounds, time: *flagTime, batchers: callers, backlog: 50_000,
			starts: int(1.5*flagTime.Seconds()*startsPerSecond) + 1, syncs: 500,
		}, regexp.MustCompile(*flagOnly))
		t.print(os.Stdout)
		for _, r := range t.rows {
			if r.target != 0 {
				b.ReportMetric(r.ratio(), r.metric)
			}
		}
	}
}

// TestSpeed sees that everything can still be measured. It says nothing about speed.
func TestSpeed(t *testing.T) {
	table := measureAll(t, scale{
		rounds: 1, time: 20 * time.Millisecond, batchers: 2, backlog: 1000, starts: 20, syncs: 5,
	}, regexp.MustCompile(""))
	for _, r := range table.rows {
		if r.ratio() <= 0 {
			t.Errorf("%s: measured %v, its limit %v", r.name, r.of(), r.to())
		}
	}
}

// measurement is one comparison, or two that come from one run.
type measurement struct {
	name  string
	rows  []row
	round func(testing.TB, scale) []reading
}

// reading is what one round read: one for each row.
type reading struct {
	of, to       float64
	cpuOf, cpuTo time.Duration
}

func readingOf(of, to tally) reading {
	return reading{of: of.rate(), to: to.rate(), cpuOf: of.cpuEach(), cpuTo: to.cpuEach()}
}

// measureAll measures what matches only, round by round.
func measureAll(tb testing.TB, sc scale, only *regexp.Regexp) *table {
	tb.Helper()
	ms := slices.DeleteFunc(measurements(), func(m measurement) bool { return !only.MatchString(m.name) })
	for range sc.rounds {
		for i := range ms {
			m := &ms[i]
			isolated(tb, func(tb testing.TB) {
				for k, r := range m.round(tb, sc) {
					m.rows[k].add(r)
				}
			})
		}
	}
	t := &table{}
	for _, m := range ms {
		t.rows = append(t.rows, m.rows...)
	}
	return t
}

func measurements() []measurement {
	one := func(name, of, to, metric string, target float64, round func(testing.TB, scale) reading) measurement {
		return measurement{
			name: name, rows: []row{{name: of, limit: to, unit: perSecond, metric: metric, target: target}},
			round: func(tb testing.TB, sc scale) []reading { return []reading{round(tb, sc)} },
		}
	}
	calls := func(p client.Protocol) func(testing.TB, scale) reading {
		return func(tb testing.TB, sc scale) reading {
			s := startServer(tb, "submit-"+p.String())
			return readingOf(compare(tb, s.submit(tb, s.API, p), s.submit(tb, s.Echo, p), sc.time))
		}
	}
	coalesced := func(p client.Protocol) func(testing.TB, scale) reading {
		return func(tb testing.TB, sc scale) reading {
			s := startServer(tb, "sdk-"+p.String())
			return readingOf(compare(tb, s.coalesced(tb, p), s.submit(tb, s.Echo, p), sc.time))
		}
	}
	return []measurement{
		one("submit-h2c", "submit, a call each, h2c", "echo, h2c", "submit-h2c/echo", 0.6, calls(client.ProtocolHTTP2)),
		one("submit-http1", "submit, a call each, HTTP/1.1", "echo, HTTP/1.1", "submit-http1/echo", 0.5, calls(client.ProtocolHTTP1)),
		one("sdk-h2c", "submit, SDK, h2c", "echo, h2c", "sdk-h2c/echo", 2, coalesced(client.ProtocolHTTP2)),
		one("sdk-http1", "submit, SDK, HTTP/1.1", "echo, HTTP/1.1", "sdk-http1/echo", 1.5, coalesced(client.ProtocolHTTP1)),
		one("batch", "jobs in batches of 500", "group commit", "batch/commit", 0.6, measureBatches),
		one("log", "the log alone", "group commit", "log/commit", 0, measureLog),
		one("backlog", "backlog, leased to reported", "echo, h2c", "backlog/echo", 2.5, measureBacklog),
		{
			name: "start", round: measureStarts,
			rows: []row{
				{name: "submit to start, p50", limit: "0.5 ms + 6 fdatasync", unit: seconds, metric: "start-p50/limit", target: -1},
				{name: "submit to start, p99", limit: "5 ms", unit: seconds, metric: "start-p99/5ms", target: -1},
			},
		},
	}
}

func measureBatches(tb testing.TB, sc scale) reading {
	tb.Helper()
	s := startServer(tb, "batch")
	return readingOf(compare(tb, s.batches(tb, sc.batchers), groupCommit(tb, callers), sc.time))
}

func measureLog(tb testing.TB, sc scale) reading {
	tb.Helper()
	return readingOf(compare(tb, logAlone(tb, callers), groupCommit(tb, callers), sc.time))
}

// measureBacklog has the echo before and after, since a backlog cannot be worked off in turns.
func measureBacklog(tb testing.TB, sc scale) reading {
	tb.Helper()
	s := startServer(tb, "backlog")
	limit := s.submit(tb, s.Echo, client.ProtocolHTTP2)
	limit.run(tb, min(sliceTime, sc.time))
	to := limit.run(tb, sc.time/2)
	of := s.backlog(tb, sc.backlog)
	to.add(limit.run(tb, sc.time/2))
	return readingOf(of, to)
}

func measureStarts(tb testing.TB, sc scale) []reading {
	tb.Helper()
	const base, bound, syncsPerStart = 500 * time.Microsecond, 5 * time.Millisecond, 6
	file := preallocated(tb, fsyncBlocks*fsyncBlock)
	s := startServer(tb, "start")
	before := fdatasyncs(tb, file, sc.syncs)
	took := s.starts(tb, sc.starts)
	after := fdatasyncs(tb, file, sc.syncs)
	limit := base + syncsPerStart*(before+after)/2
	return []reading{
		{of: took[len(took)/2].Seconds(), to: limit.Seconds()},
		{of: took[len(took)*99/100].Seconds(), to: bound.Seconds()},
	}
}
