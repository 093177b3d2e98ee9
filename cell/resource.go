package cell

import (
	"fmt"
	"math"
	"math/bits"
	"strings"
	"time"
)

// Resource is a kind of thing that running jobs use up. The numbers are part of the log's format.
type Resource uint8

// The resources that demand may be a vector of.
const (
	ResourceCPU          Resource = 0 // cpu_ms
	ResourceTokens       Resource = 1
	ResourceMemory       Resource = 2 // memory_byte_ms
	ResourceReadBytes    Resource = 3
	ResourceWriteBytes   Resource = 4
	ResourceNetworkBytes Resource = 5
	ResourceCalls        Resource = 6
)

// resources is how many there are.
const resources = 7

func resourceNames() [resources]string {
	return [resources]string{"cpu_ms", "tokens", "memory_byte_ms", "read_bytes", "write_bytes", "network_bytes", "calls"}
}

// AllResources lists every resource.
func AllResources() []Resource {
	all := make([]Resource, resources)
	for i := range all {
		all[i] = Resource(i)
	}
	return all
}

func (r Resource) String() string {
	if r >= resources {
		return fmt.Sprintf("resource(%d)", uint8(r))
	}
	return resourceNames()[r]
}

// ParseResource returns the resource named s. It returns a *[FieldError] for any other word.
func ParseResource(field, s string) (Resource, error) {
	names := resourceNames()
	for i, name := range names {
		if s == name {
			return Resource(i), nil
		}
	}
	return 0, &FieldError{Field: field, Problem: fmt.Sprintf("%.40q is not a resource", s), Remedy: "use " + strings.Join(names[:], ", ")}
}

// ResourceMax bounds each component of a vector.
const ResourceMax int64 = 1e15

// Resources is a vector of what a job needs or used, by Resource, in micro-units: 0.6 cpu_ms is 600,000.
type Resources [resources]int64

// Check returns a *[FieldError] unless every component is 0 to [ResourceMax].
func (r Resources) Check(field string) error {
	for i, v := range r {
		if v < 0 || v > ResourceMax {
			return &FieldError{
				Field: field + "." + Resource(i).String(), Problem: fmt.Sprintf("is %d micro-units, outside 0 to %d", v, ResourceMax),
				Remedy: "give what the job is expected to use, or leave it out",
			}
		}
	}
	return nil
}

// Costing is how a cell turns time and resources into one cost. The zero value charges slot time.
type Costing struct {
	// ByUnit makes cost what is used of Unit, and not slot time.
	ByUnit bool
	Unit   Resource
	// Whole is what the whole cell is worth, in cost per second, and Capacity what it has of each resource per second. A resource of capacity 0
	// is not charged; with a Whole of 0 none is.
	Whole    Rate
	Capacity Resources
}

// Of returns the cost of a job that ran for a time and used resources: the dominant share of Ghodsi et al., "Dominant Resource Fairness" (NSDI
// 2011), section 3, as cost: the greatest part of the cell that it took of any one resource, where a second of the whole cell costs Whole.
// Slot time, or what it used of Unit, is one of the parts.
func (c Costing) Of(run time.Duration, used Resources) Cost {
	cost := Cost(max(0, run.Microseconds()))
	if c.ByUnit {
		cost = Cost(used[c.Unit])
	}
	if c.Whole > 0 {
		for i, capacity := range c.Capacity {
			if capacity > 0 && used[i] > 0 {
				cost = max(cost, share(used[i], int64(c.Whole), capacity))
			}
		}
	}
	return min(cost, CostMax)
}

// share is used x whole / capacity, rounded up and held at the greatest int64.
func share(used, whole, capacity int64) Cost {
	hi, lo := bits.Mul64(uint64(used), uint64(whole))
	if hi >= uint64(capacity) {
		return math.MaxInt64
	}
	q, r := bits.Div64(hi, lo, uint64(capacity))
	if r > 0 {
		q++
	}
	return Cost(min(q, math.MaxInt64))
}

// Validate returns a *[FieldError] for the first fault of c.
func (c Costing) Validate(field string) error {
	if c.Unit >= resources {
		return &FieldError{Field: field + ".unit", Problem: fmt.Sprintf("is %v", c.Unit), Remedy: "name a resource"}
	}
	if c.Whole < 0 || c.Whole > RateMax*1000 {
		return &FieldError{
			Field: field + ".whole", Problem: fmt.Sprintf("is %d, outside 0 to %d", c.Whole, RateMax*1000),
			Remedy: "give what a second of the whole cell costs, in micro-units",
		}
	}
	return c.Capacity.Check(field + ".capacity")
}
