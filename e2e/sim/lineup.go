package sim

import (
	"slices"

	"github.com/fairlead/fairlead/cell"
)

// lineup is jobs that wait in the order of their coming, in one line for each kind: jobs that the same workers offer and the same
// concurrency keys block. So a blocked head blocks only what is blocked like it.
type lineup struct {
	keys  *keyring
	lines []*line
	kinds map[*Traits]*line
	waits int
}

// line is jobs of one kind.
type line struct {
	operation cell.Operation
	tenant    string // whose the keys are; empty where there are none
	keys      []cell.ConcurrencyKey
	records   []*Record
	head      int
}

// push adds a job at the end of its line.
func (l *lineup) push(r *Record) {
	k := l.kinds[r.Job.Traits]
	if k == nil {
		k = l.kind(r.Job.Traits)
	}
	k.records = append(k.records, r)
	l.waits++
}

// kind returns the line of jobs with traits that have not been met yet.
func (l *lineup) kind(t *Traits) *line {
	if l.kinds == nil {
		l.kinds = map[*Traits]*line{}
	}
	k := &line{operation: t.Operation, keys: t.Keys}
	if len(t.Keys) > 0 {
		k.tenant = t.Tenant
	}
	for _, o := range l.lines {
		if o.operation == k.operation && o.tenant == k.tenant && slices.Equal(o.keys, k.keys) {
			l.kinds[t] = o
			return o
		}
	}
	l.lines = append(l.lines, k)
	l.kinds[t] = k
	return k
}

// first returns the line with the job that came first among those that the workers offer and no key blocks; nil when there is none.
func (l *lineup) first(offered operations) *line {
	if l.waits == 0 {
		return nil
	}
	var best *line
	for _, k := range l.lines {
		r := k.peek()
		if r == nil || !offered.has(k.operation) || !l.keys.free(k.tenant, k.keys) {
			continue
		}
		if best == nil || before(r, best.peek()) {
			best = k
		}
	}
	return best
}

// take takes the first job out of a line that has one.
func (l *lineup) take(k *line) *Record {
	r := k.peek()
	k.records[k.head] = nil
	k.head++
	if k.head == len(k.records) {
		k.records, k.head = k.records[:0], 0
	}
	l.waits--
	return r
}

// removed counts a job out that has expired; its line passes over it.
func (l *lineup) removed() { l.waits-- }

// peek returns the line's first job, without those that have expired; nil when there is none.
func (k *line) peek() *Record {
	for k.head < len(k.records) && k.records[k.head].State != StateWaiting {
		k.head++
	}
	if k.head == len(k.records) {
		k.records, k.head = k.records[:0], 0
		return nil
	}
	return k.records[k.head]
}

// before reports whether a came before b.
func before(a, b *Record) bool {
	if a.Job.Arrival != b.Job.Arrival {
		return a.Job.Arrival < b.Job.Arrival
	}
	return a.Job.ID < b.Job.ID
}

// operations are those that a group of workers offers; nil is all.
type operations map[cell.Operation]bool

func (o operations) has(name cell.Operation) bool { return o == nil || o[name] }

// offersOf returns what each group of the scenario's workers offers.
func offersOf(s *Scenario) []operations {
	out := make([]operations, len(s.Workers))
	for i, w := range s.Workers {
		if len(w.Operations) == 0 {
			continue
		}
		out[i] = operations{}
		for _, op := range w.Operations {
			out[i][op] = true
		}
	}
	return out
}

// keyring counts which concurrency keys are held.
type keyring struct{ held map[tenantKey]int64 }

type tenantKey struct{ tenant, key string }

func newKeyring() *keyring { return &keyring{held: map[tenantKey]int64{}} }

// free reports whether a job of the tenant may hold all of some keys.
func (k *keyring) free(tenant string, keys []cell.ConcurrencyKey) bool {
	for _, key := range keys {
		if k.held[tenantKey{tenant, key.Key}] >= key.Max {
			return false
		}
	}
	return true
}

// hold changes how many jobs hold what a job holds.
func (k *keyring) hold(j *Job, by int64) {
	for _, key := range j.Keys {
		k.held[tenantKey{j.Tenant, key.Key}] += by
	}
}

// tenantsOf returns the scenario's tenants in the order of their first jobs.
func tenantsOf(s *Scenario) []string {
	seen := map[string]bool{}
	var out []string
	last := ""
	for i := range s.Jobs {
		if t := s.Jobs[i].Tenant; t != last && !seen[t] {
			seen[t] = true
			out = append(out, t)
		}
		last = s.Jobs[i].Tenant
	}
	return out
}
