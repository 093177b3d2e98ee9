package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/e2e/harness"
)

// BenchmarkMigration moves a tenant that is used to another cell and takes it back, and reports what docs/MIGRATION.md promises: for how long a class took
// nothing, how soon the source served again, and how many of the tenant's calls failed. -benchtime 9x makes 18 switches of it.
func BenchmarkMigration(b *testing.B) {
	harness.NeedCluster(b)
	c := whaleCluster(b, nil, 1)
	whale := startLoad(b, c, "whale", pool, 9, 2, 2)
	whale.workAt(b, c, dedicated, 2)
	m := newMoves(b, c, "whale")
	var reverses []time.Duration
	for b.Loop() {
		reverses = append(reverses, m.thereAndBack(dedicated))
	}
	failed := whale.errs.Load()
	whale.finish(b)
	report(b, "pause-p50-ms", m.pauses, 50)
	report(b, "pause-p99-ms", m.pauses, 99)
	report(b, "reverse-max-ms", reverses, 100)
	b.ReportMetric(float64(failed), "failed-calls")
}

// BenchmarkMigrationOfABacklog moves a tenant with many waiting jobs, and reports what a neighbour noticed of it; -benchtime 1x does it once.
func BenchmarkMigrationOfABacklog(b *testing.B) {
	harness.NeedCluster(b)
	for b.Loop() {
		m := moveBacklog(b)
		report(b, "pause-max-ms", m.pauses, 100)
		b.ReportMetric(float64(m.jobs)/m.copied.Seconds(), "jobs/s")
		b.ReportMetric(m.times(), "neighbour-p99-times")
	}
}

// report reports a percentile, by nearest rank.
func report(b *testing.B, name string, times []time.Duration, percent int) {
	b.Helper()
	const all, millisecond = 100, 1000
	slices.Sort(times)
	b.ReportMetric(float64(times[(len(times)*percent+all-1)/all-1].Microseconds())/millisecond, name)
}
