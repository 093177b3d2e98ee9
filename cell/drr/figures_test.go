package drr_test

import (
	"slices"
	"testing"

	"github.com/fairlead/fairlead/cell/drr"
)

// piece is one job of a published workload, in milliseconds.
type piece struct {
	tenant       string
	at, duration int64
	cost         int64 // what the queue is told
	started, end int64
}

// serveAll runs the jobs, which are in order of arrival, on the servers. At equal times ends come first, then
// arrivals, then starts. It returns the time of the last end.
func serveAll(t *testing.T, q *drr.Queue[string, *piece], jobs []*piece, servers int) int64 {
	t.Helper()
	var now int64
	var running []*piece
	for i := 0; ; {
		running = slices.DeleteFunc(running, func(p *piece) bool { return p.end <= now })
		for ; i < len(jobs) && jobs[i].at <= now; i++ {
			if err := q.Push(jobs[i].tenant, jobs[i], jobs[i].cost); err != nil {
				t.Fatal(err)
			}
		}
		for len(running) < servers {
			p, ok := q.Pop()
			if !ok {
				break
			}
			p.started, p.end = now, now+p.duration
			running = append(running, p)
		}
		next := int64(-1)
		if i < len(jobs) {
			next = jobs[i].at
		}
		for _, p := range running {
			if next < 0 || p.end < next {
				next = p.end
			}
		}
		if next < 0 {
			return now
		}
		now = next
	}
}

// latencies returns the sorted times from arrival to what is asked for of a tenant's jobs.
func latencies(jobs []*piece, of func(*piece) int64, tenants func(string) bool) []int64 {
	var l []int64
	for _, p := range jobs {
		if tenants(p.tenant) {
			l = append(l, of(p)-p.at)
		}
	}
	slices.Sort(l)
	return l
}

func only(name string) func(string) bool { return func(t string) bool { return t == name } }

// TestNoisyNeighbour is one bulk tenant with 400 jobs at once and nineteen quiet ones with one job each at four times,
// on eight servers. With unit costs it gives what round robin gives; with true costs the quiet tenants wait a little less
// and the bulk a little more.
func TestNoisyNeighbour(t *testing.T) {
	const unit = 1_000_000
	for name, c := range map[string]struct {
		bulk                    int64 // duration
		byTime                  bool
		p95, most, done, length int64
	}{
		"100 ms, unit cost":    {bulk: 100, p95: 200, most: 200, done: 6_000, length: 6_000},
		"500 ms, unit cost":    {bulk: 500, p95: 500, most: 500, done: 26_000, length: 26_000},
		"500 ms, cost by time": {bulk: 500, byTime: true, p95: 400, most: 500, done: 26_300, length: 26_300},
	} {
		t.Run(name, func(t *testing.T) {
			var jobs []*piece
			add := func(tenant string, at, duration int64) {
				cost := int64(unit)
				if c.byTime {
					cost = unit * duration / 100
				}
				jobs = append(jobs, &piece{tenant: tenant, at: at, duration: duration, cost: cost})
			}
			for range 400 {
				add("bulk", 0, c.bulk)
			}
			for _, at := range []int64{200, 600, 1_000, 1_400} {
				for tenant := range 19 {
					add(string(rune('a'+tenant)), at, 100)
				}
			}
			q := must(drr.NewQueue[string, *piece](drr.Config{Quantum: unit, FlowsMax: 20}))(t)
			last := serveAll(t, q, jobs, 8)
			quiet := latencies(jobs, func(p *piece) int64 { return p.started }, func(t string) bool { return t != "bulk" })
			bulk := latencies(jobs, func(p *piece) int64 { return p.end }, only("bulk"))
			p95, most, done := quiet[72], quiet[75], bulk[399]
			if p95 != c.p95 || most != c.most || done != c.done || last != c.length {
				t.Errorf("quiet p95 %d and max %d, bulk finished %d, end %d; want %d, %d, %d, %d",
					p95, most, done, last, c.p95, c.most, c.done, c.length)
			}
		})
	}
}

// TestThreeHundredJobs is 265, 21 and 14 jobs of three tenants, all there at once, on four workers: with equal weights
// exactly what round robin gives.
func TestThreeHundredJobs(t *testing.T) {
	q := must(drr.NewQueue[string, *piece](drr.Config{Quantum: 1_000_000, FlowsMax: 3}))(t)
	var jobs []*piece
	for _, tenant := range []struct {
		name string
		jobs int
	}{{"bulk", 265}, {"acme", 21}, {"globex", 14}} {
		for range tenant.jobs {
			jobs = append(jobs, &piece{tenant: tenant.name, duration: 4, cost: 1_000_000})
		}
	}
	serveAll(t, q, jobs, 4)
	for tenant, want := range map[string][2]int64{"acme": {32, 56}, "globex": {24, 44}, "bulk": {168, 300}} {
		l := latencies(jobs, func(p *piece) int64 { return p.end }, only(tenant))
		if got := [2]int64{l[len(l)/2], l[len(l)-1]}; got != want {
			t.Errorf("%s: median and max %v ms, want %v", tenant, got, want)
		}
	}
}

// TestWeightsFourToOne is 200 accepted jobs of free tenants and 61 of an enterprise, weights 1 and 4.
func TestWeightsFourToOne(t *testing.T) {
	q := must(drr.NewQueue[string, *piece](drr.Config{Quantum: 1_000_000, FlowsMax: 3}))(t)
	if err := q.SetWeight("enterprise", 4*drr.WeightUnit); err != nil {
		t.Fatal(err)
	}
	var jobs []*piece
	for range 200 {
		jobs = append(jobs, &piece{tenant: "free", duration: 3, cost: 1_000_000})
	}
	for range 61 {
		jobs = append(jobs, &piece{tenant: "enterprise", duration: 3, cost: 1_000_000})
	}
	serveAll(t, q, jobs, 4)
	for tenant, want := range map[string]int64{"free": 123, "enterprise": 30} {
		l := latencies(jobs, func(p *piece) int64 { return p.end }, only(tenant))
		if got := l[len(l)/2]; got != want {
			t.Errorf("%s: median %d ms, want %d", tenant, got, want)
		}
	}
}
