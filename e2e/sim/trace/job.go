package trace

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/cell"
)

// Job is one piece of work of a trace or a scenario. Times are since the start. It is small, because a million of them is a usual number:
// what many jobs have in common is in their Traits.
type Job struct {
	*Traits

	ID      int           // unique; at equal times lower ones come first
	Arrival time.Duration // when it comes
	Service time.Duration // how long it runs, above 0
	Cost    cell.Cost     // what it declares to cost; 0 for unknown
	Actual  cell.Cost     // what it turns out to cost; 0 for its service in microseconds
	// Deadline is when it expires unless it has started; 0 for never.
	Deadline time.Duration
}

// Traits are what jobs of the same kind have in common. Jobs share them by pointer; they are not changed once a job has them.
type Traits struct {
	Tenant       string
	Organization string // the tenant's parent; empty for none
	Class        cell.Class
	Operation    cell.Operation
	Cohort       string // the name under which reports count it
	Priority     int32  // seconds of head start within its lane
	Preemptible  bool
	Keys         []cell.ConcurrencyKey
}

// Charge returns what the job turns out to cost, in micro-units.
func (j *Job) Charge() cell.Cost {
	if j.Actual != 0 {
		return j.Actual
	}
	return cell.Cost(j.Service.Microseconds())
}

// Declared returns what the job declares to cost, and fallback where it declares nothing.
func (j *Job) Declared(fallback cell.Cost) cell.Cost {
	if j.Cost != 0 {
		return j.Cost
	}
	return fallback
}

// Compare orders jobs by their coming: earlier first, then lower ids.
func Compare(a, b *Job) int {
	if c := cmp.Compare(a.Arrival, b.Arrival); c != 0 {
		return c
	}
	return cmp.Compare(a.ID, b.ID)
}

// Sort puts jobs into the order of their coming.
func Sort(jobs []Job) {
	slices.SortFunc(jobs, func(a, b Job) int { return Compare(&a, &b) })
}

// Catalogue makes equal Traits the same pointer. The zero value is ready for use.
type Catalogue struct {
	known map[traitsKey]*Traits
	last  *Traits // what was asked for before: traces come in runs
}

// traitsKey is Traits as a key of a map.
type traitsKey struct {
	tenant, organization, operation, cohort, keys string
	class                                         cell.Class
	priority                                      int32
	preemptible                                   bool
}

// Traits returns the shared form of t. It keeps t's strings.
func (c *Catalogue) Traits(t Traits) *Traits {
	if c.last != nil && c.last.equal(&t) {
		return c.last
	}
	key := traitsKey{
		tenant: t.Tenant, organization: t.Organization, operation: string(t.Operation), cohort: t.Cohort, keys: formatKeys(t.Keys),
		class: t.Class, priority: t.Priority, preemptible: t.Preemptible,
	}
	found := c.known[key]
	if found == nil {
		if c.known == nil {
			c.known = map[traitsKey]*Traits{}
		}
		found = &t
		c.known[key] = found
	}
	c.last = found
	return found
}

func (t *Traits) equal(o *Traits) bool {
	return t.Tenant == o.Tenant && t.Organization == o.Organization && t.Class == o.Class && t.Operation == o.Operation &&
		t.Cohort == o.Cohort && t.Priority == o.Priority && t.Preemptible == o.Preemptible && slices.Equal(t.Keys, o.Keys)
}

// formatKeys returns the CSV form of concurrency keys.
func formatKeys(keys []cell.ConcurrencyKey) string {
	var b strings.Builder
	for i, k := range keys {
		if i > 0 {
			b.WriteByte(';')
		}
		b.WriteString(k.Key)
		b.WriteByte('=')
		b.WriteString(strconv.FormatInt(k.Max, 10))
	}
	return b.String()
}
