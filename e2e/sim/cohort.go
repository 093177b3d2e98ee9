package sim

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/e2e/sim/trace"
)

// cohort is tenants that do the same.
type cohort struct {
	traits   Traits // without the tenant
	tenants  []string
	arrivals []pattern
	service  value // nanoseconds
	perUnit  time.Duration
	actual   value // micro-units
	cost     value // micro-units
	part     float64
	deadline time.Duration
}

// TenantsMax bounds the tenants of a cohort.
const TenantsMax = 1_000_000

func (l *loader) cohort(n *yaml.Node, path string) {
	c := cohort{traits: Traits{Class: cell.ClassBatch, Operation: "work"}}
	l.object(
		n, path,
		key{"name", func(n *yaml.Node, path string) { c.traits.Cohort = l.id(n, path) }},
		key{"tenants", func(n *yaml.Node, path string) { l.tenants(n, path, &c) }},
		key{"organization", func(n *yaml.Node, path string) { c.traits.Organization = l.id(n, path) }},
		key{"class", func(n *yaml.Node, path string) {
			class, err := cell.ParseClass(path, l.text(n, path))
			if err != nil {
				l.refuse(n, path, err)
			}
			c.traits.Class = class
		}},
		key{"operation", func(n *yaml.Node, path string) { c.traits.Operation = cell.Operation(l.id(n, path)) }},
		key{"priority", func(n *yaml.Node, path string) {
			c.traits.Priority = int32(l.integer(n, path, math.MinInt32, math.MaxInt32))
		}},
		key{"preemptible", func(n *yaml.Node, path string) { c.traits.Preemptible = l.boolean(n, path) }},
		key{"keys", func(n *yaml.Node, path string) {
			l.list(n, path, func(n *yaml.Node, path string) { c.traits.Keys = append(c.traits.Keys, l.concurrencyKey(n, path)) })
		}},
		key{"deadline", func(n *yaml.Node, path string) { c.deadline = l.duration(n, path) }},
		key{"arrivals", func(n *yaml.Node, path string) {
			l.list(n, path, func(n *yaml.Node, path string) { c.arrivals = append(c.arrivals, l.pattern(n, path)) })
		}},
		key{"service", func(n *yaml.Node, path string) {
			c.service = l.value(n, path, l.durations(), key{"per_unit", func(n *yaml.Node, path string) { c.perUnit = l.duration(n, path) }})
		}},
		key{"actual", func(n *yaml.Node, path string) { c.actual = l.value(n, path, l.costs()) }},
		key{"cost", func(n *yaml.Node, path string) {
			c.cost = l.value(n, path, l.costs(), key{"part", func(n *yaml.Node, path string) { c.part = l.decimal(n, path, 1e-6, 1e6) }})
		}},
	)
	l.complete(n, path, &c)
	l.cohorts = append(l.cohorts, c)
}

// complete fills in what a cohort leaves out, and refuses it where it may not.
func (l *loader) complete(n *yaml.Node, path string, c *cohort) {
	if c.traits.Cohort == "" {
		l.fault(n, join(path, "name"), "name the cohort", "is missing")
	}
	if len(c.tenants) == 0 {
		c.tenants = []string{c.traits.Cohort}
	}
	if len(c.arrivals) == 0 {
		l.fault(n, join(path, "arrivals"), "say when jobs come, such as {at: 0s, jobs: 100}", "are missing")
	}
	if c.service == nil && c.perUnit == 0 {
		l.fault(n, join(path, "service"), "say how long a job runs, such as 100ms", "is missing")
	}
	if c.perUnit > 0 && c.actual == nil {
		l.fault(n, join(path, "actual"), "say what a job costs", "is missing, and the service is by it")
	}
	if len(c.traits.Keys) > cell.ConcurrencyKeysMax {
		l.fault(n, join(path, "keys"), "use fewer", "are %d, of at most %d", len(c.traits.Keys), cell.ConcurrencyKeysMax)
	}
}

func (l *loader) tenants(n *yaml.Node, path string, c *cohort) {
	if n.Kind != yaml.MappingNode {
		l.list(n, path, func(n *yaml.Node, path string) { c.tenants = append(c.tenants, l.id(n, path)) })
		return
	}
	prefix, count := "", int64(0)
	l.object(
		n, path,
		key{"prefix", func(n *yaml.Node, path string) { prefix = l.id(n, path) }},
		key{"count", func(n *yaml.Node, path string) { count = l.integer(n, path, 1, TenantsMax) }},
	)
	if prefix == "" || count == 0 {
		l.fault(n, path, "give both prefix and count, or a list of names", "have no prefix or no count")
		return
	}
	width := len(fmt.Sprint(count))
	for i := range count {
		c.tenants = append(c.tenants, fmt.Sprintf("%s%0*d", prefix, width, i+1))
	}
}

func (l *loader) concurrencyKey(n *yaml.Node, path string) cell.ConcurrencyKey {
	var k cell.ConcurrencyKey
	l.object(
		n, path,
		key{"key", func(n *yaml.Node, path string) { k.Key = l.id(n, path) }},
		key{"max", func(n *yaml.Node, path string) { k.Max = l.integer(n, path, 1, cell.ConcurrencyMax) }},
	)
	if k.Key == "" || k.Max == 0 {
		l.fault(n, path, "write {key: db, max: 1}", "has no key or no max")
	}
	return k
}

// come is a job of a cohort before it has an id.
type come struct {
	at     time.Duration
	tenant int
}

// generate returns the cohort's jobs in the order of their coming, with ids from first on. Each cohort draws from a source of its own, so
// that changing one leaves the others as they were.
func (c *cohort) generate(seed uint64, index, first int) ([]Job, error) {
	rng := rand.New(rand.NewPCG(seed, uint64(index)))
	var comes []come
	for tenant := range c.tenants {
		for _, p := range c.arrivals {
			var err error
			if comes, err = p.generate(comes, tenant, rng, trace.JobsMax-first); err != nil {
				return nil, err
			}
		}
	}
	slices.SortFunc(comes, func(a, b come) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.tenant, b.tenant))
	})
	traits := make([]*Traits, len(c.tenants))
	for i, name := range c.tenants {
		t := c.traits
		t.Tenant = name
		traits[i] = &t
	}
	jobs := make([]Job, 0, len(comes))
	for _, x := range comes {
		j := Job{Traits: traits[x.tenant], ID: first + len(jobs), Arrival: x.at}
		if c.actual != nil {
			j.Actual = clampCost(c.actual.draw(rng))
		}
		if c.perUnit > 0 {
			j.Service = time.Duration(float64(j.Actual) / 1e6 * float64(c.perUnit)).Round(time.Microsecond)
		} else {
			j.Service = time.Duration(c.service.draw(rng))
		}
		j.Service = max(time.Microsecond, min(j.Service, trace.TimeMax))
		switch {
		case c.part > 0:
			j.Cost = clampCost(float64(j.Charge()) * c.part)
		case c.cost != nil:
			j.Cost = clampCost(c.cost.draw(rng))
		}
		if c.deadline > 0 {
			j.Deadline = x.at + c.deadline
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

// coming is what is left of jobs that are in order.
type coming []Job

func (c coming) before(o coming) bool { return trace.Compare(&c[0], &o[0]) < 0 }

// merge returns the jobs of all parts in the order of their coming. Each part is in it already.
func merge(parts []coming) []Job {
	var h heap[coming]
	n := 0
	for _, p := range parts {
		n += len(p)
		if len(p) > 0 {
			h.push(p)
		}
	}
	if len(h) == 1 {
		return h[0]
	}
	out := make([]Job, 0, n)
	for len(h) > 0 {
		p := h.pop()
		out = append(out, p[0])
		if len(p) > 1 {
			h.push(p[1:])
		}
	}
	return out
}

func clampCost(v float64) cell.Cost {
	return cell.Cost(max(1, min(math.Round(v), float64(cell.CostMax))))
}
