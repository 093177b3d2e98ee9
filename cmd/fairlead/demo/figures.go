package demo

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Report is what a demo found.
type Report struct {
	// Kept is the state directory, when it was to be kept.
	Kept string

	config   Config
	workload *workload
	skipped  Skipped
	outcomes map[string][]outcome // by policy, then by the job's number
}

// Jobs counts the jobs of every run together.
type Jobs struct {
	// Accepted jobs were acknowledged as durable.
	Accepted int `json:"accepted"`
	// Completed ones succeeded, with a result that was checked.
	Completed int `json:"completed"`
	// Failed ones ended otherwise: the program failed. It is left out of the comparison of policies, in which nothing can fail.
	Failed int `json:"failed"`
	// Lost ones have not ended although the time was up.
	Lost int `json:"lost"`
}

// Jobs returns the counts.
func (r *Report) Jobs() Jobs {
	var n Jobs
	for _, p := range policies() {
		for _, o := range r.outcomes[p] {
			switch {
			case !o.accepted:
				continue
			case o.succeeded:
				n.Completed++
			case o.ended:
				n.Failed++
			default:
				n.Lost++
			}
			n.Accepted++
		}
	}
	return n
}

// Waits are the quantiles of how long jobs waited from submission to start. They are zero when there are none.
type Waits struct {
	P50, P95, Max time.Duration
}

// waitsOf returns the quantiles of the jobs that started, among those that pick chooses.
func (r *Report) waitsOf(policy string, pick func(job) bool) Waits {
	var waits []time.Duration
	for n, o := range r.outcomes[policy] {
		if pick(r.workload.jobs[n]) && !o.start.IsZero() {
			waits = append(waits, o.start.Sub(o.submitted))
		}
	}
	slices.Sort(waits)
	return Waits{P50: quantile(waits, 0.50), P95: quantile(waits, 0.95), Max: quantile(waits, 1)}
}

// quantile returns the least of the sorted values that a share q of them does not exceed: the nearest rank, which is one of them.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// bulk and rest choose jobs.
func bulk(j job) bool { return j.tenant == bulkTenant }
func rest(j job) bool { return j.tenant != bulkTenant }
func all(job) bool    { return true }

// finished returns how long it took from the first submission to the end of the last of the jobs that pick chooses.
func (r *Report) finished(policy string, pick func(job) bool) time.Duration {
	var first, last time.Time
	for n, o := range r.outcomes[policy] {
		if o.accepted && (first.IsZero() || o.submitted.Before(first)) {
			first = o.submitted
		}
		if pick(r.workload.jobs[n]) && o.end.After(last) {
			last = o.end
		}
	}
	if last.IsZero() {
		return 0
	}
	return last.Sub(first)
}

// throughput returns how many jobs ended in a second, from the first submission to the end of the last job.
func (r *Report) throughput(policy string) float64 {
	ended := 0
	for _, o := range r.outcomes[policy] {
		if o.ended {
			ended++
		}
	}
	took := r.finished(policy, all)
	if took <= 0 {
		return 0
	}
	return float64(ended) / took.Seconds()
}

// figures are what the table says of a policy.
type figures struct {
	quiet        Waits
	bulkFinished time.Duration
	throughput   float64
	lost         int
}

func (r *Report) figures(policy string) figures {
	f := figures{quiet: r.waitsOf(policy, rest), bulkFinished: r.finished(policy, bulk), throughput: r.throughput(policy)}
	for _, o := range r.outcomes[policy] {
		if o.accepted && !o.ended {
			f.lost++
		}
	}
	return f
}

// tenantFigures are what the table says of a tenant's files.
type tenantFigures struct {
	name     string
	files    int
	bytes    int64
	waits    map[string]Waits
	finished map[string]time.Duration
	failed   map[string]int
}

func (r *Report) tenants() []tenantFigures {
	var out []tenantFigures
	for i, t := range r.workload.tenants {
		f := tenantFigures{name: t.name, waits: map[string]Waits{}, finished: map[string]time.Duration{}, failed: map[string]int{}}
		for _, j := range r.workload.of(i) {
			f.files++
			f.bytes += j.bytes
			for _, p := range policies() {
				if o := r.outcomes[p][j.order.N]; o.ended && !o.succeeded {
					f.failed[p]++
				}
			}
		}
		mine := func(j job) bool { return j.tenant == i }
		for _, p := range policies() {
			f.waits[p], f.finished[p] = r.waitsOf(p, mine), r.finished(p, mine)
		}
		out = append(out, f)
	}
	return out
}

// complaint is a text that jobs failed with.
type complaint struct {
	text  string
	count int
	path  string // of the first
}

// complaints returns the texts of a policy's failures, the most frequent first.
func (r *Report) complaints(policy string) []complaint {
	at := make(map[string]int)
	var out []complaint
	for n, o := range r.outcomes[policy] {
		if !o.ended || o.succeeded {
			continue
		}
		i, ok := at[o.failure]
		if !ok {
			i = len(out)
			at[o.failure] = i
			out = append(out, complaint{text: o.failure, path: r.workload.jobs[n].order.Path})
		}
		out[i].count++
	}
	slices.SortStableFunc(out, func(a, b complaint) int { return cmp.Compare(b.count, a.count) })
	return out
}
