package sched

import (
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/drr"
	"github.com/fairlead/fairlead/cell/tree"
)

// Policy is the rule by which tenants share a class.
type Policy uint8

// The policies. FIFO, oldest job first whoever's it is, is there to be compared with: everybody waits in one lane of each class in the
// order of acceptance, and reservations, limits, credits, weights, caps and keys do not apply.
const (
	PolicyFairlead Policy = 0
	PolicyFIFO     Policy = 1
)

func (p Policy) String() string {
	switch p {
	case PolicyFairlead:
		return "fairlead"
	case PolicyFIFO:
		return "fifo"
	default:
		return fmt.Sprintf("policy(%d)", uint8(p))
	}
}

// ParsePolicy returns the policy named s. It returns a *cell.FieldError for any other word.
func ParsePolicy(field, s string) (Policy, error) {
	for _, p := range []Policy{PolicyFairlead, PolicyFIFO} {
		if s == p.String() {
			return p, nil
		}
	}
	return 0, &cell.FieldError{Field: field, Problem: fmt.Sprintf("%.40q is not a policy", s), Remedy: "use fairlead or fifo"}
}

// OperationsMax bounds the operations of one offer set: a decision looks at no more heads of queues than that.
const OperationsMax = 64

// Bulkhead is one class's part of the slots.
type Bulkhead struct {
	// NominalParts is the class's share of the live slots, against the other class's parts. Its own nominal is always its own, at least one
	// slot. Defaults: interactive 3, batch 2.
	NominalParts int64
	// LendablePercent is how much of its nominal the other class may use while it is idle, 0 to 100. Default 100: no slot idles while
	// anything is ready. Below 100 the other class holds no more than it may run: jobs that workers hold beyond their slots count
	// like running ones.
	LendablePercent int64
	// BorrowMaxPercent is how many leases beyond its own nominal the class may have, in percent of the live slots. Default 100: all there
	// are; 0 borrows nothing.
	BorrowMaxPercent int64
	// LendAfter is how long the class has to be quiet before its idle room is lent, so that a burst that comes back soon finds it free:
	// quiet means that nothing of it could run on what the asking worker offers. Default 1 s; 0 lends at once.
	LendAfter time.Duration
	// PreemptAfter is how long the class can be below its nominal with something to run before slots that the other class has borrowed are
	// revoked, see Scheduler.Preempt. Together with the time that a worker takes to stop a job it bounds how long the class waits for
	// its own. Default 0: never.
	PreemptAfter time.Duration
	// Burst is how much of what it was promised a tenant may make up for at once in this class, see tree.Config. It should be no shorter
	// than the usual run time. 0 is the default: 1 s for interactive, 10 s for batch.
	Burst time.Duration
	// Capacity bounds what may be reserved in the class in all, in cost per second. Default 0: not checked.
	Capacity cell.Rate
}

// WaitMax bounds Bulkhead.LendAfter and PreemptAfter.
const WaitMax = 24 * time.Hour

// Config is what a Scheduler is made with.
type Config struct {
	Policy    Policy
	Bulkheads [2]Bulkhead // by cell.Class.Index
	// Quantum is what a tenant of weight 1 may spend in a round, in micro-units of cost. Default 10,000: 10 ms of a slot.
	Quantum int64
	// CostDefault is what a job is charged at dispatch when nobody has said what it costs and none like it has run; what it did cost is
	// settled at its end. Default 10,000.
	CostDefault cell.Cost
	// LanesMax bounds the lanes, of which a tenant has two. Default 2,000,000.
	LanesMax int
	// OverrunMin is how long an attempt runs at least before it is charged for running longer than it was charged for; short jobs are
	// settled at their end. Default 1 s; 0 is never, for a cell whose cost is not slot time.
	OverrunMin time.Duration
}

// DefaultConfig returns the defaults that the fields' comments name.
func DefaultConfig() Config {
	own := Bulkhead{LendablePercent: 100, BorrowMaxPercent: 100, LendAfter: time.Second}
	c := Config{
		Bulkheads: [2]Bulkhead{own, own}, Quantum: drr.DefaultQuantum, CostDefault: 10_000, LanesMax: 2_000_000, OverrunMin: time.Second,
	}
	c.Bulkheads[0].NominalParts, c.Bulkheads[1].NominalParts = 3, 2
	return c
}

// Validate returns all faults of c together, and nil when there are none.
func (c Config) Validate() error {
	var errs []error
	for i, b := range c.Bulkheads {
		errs = append(errs, b.validate(cell.Classes()[i].String()))
	}
	if c.Policy > PolicyFIFO {
		errs = append(errs, &cell.FieldError{Field: "policy", Problem: fmt.Sprintf("%d is none", c.Policy), Remedy: "use fairlead or fifo"})
	}
	within := rangeOf("")
	errs = append(
		errs,
		within("cost.default", int64(c.CostDefault), 1, int64(cell.CostMax), "give what a usual job costs"),
		within("overrun_min", int64(c.OverrunMin), 0, int64(WaitMax), "give a duration, or 0 for never"),
		c.tree().Validate(),
	)
	return errors.Join(errs...)
}

func (b Bulkhead) validate(class string) error {
	within := rangeOf(class + ".")
	return errors.Join(
		within("nominal", b.NominalParts, 1, 1000, "give the class's parts of the slots"),
		within("lendable_percent", b.LendablePercent, 0, 100, "give a part of the nominal"),
		within("borrow_max_percent", b.BorrowMaxPercent, 0, 100, "give a part of the live slots"),
		within("lend_after", int64(b.LendAfter), 0, int64(WaitMax), "give a duration, or 0 for at once"),
		within("preempt_after", int64(b.PreemptAfter), 0, int64(WaitMax), "give a duration, or 0 for never"),
		within("capacity", int64(b.Capacity), 0, int64(cell.RateMax), "give what the class can do per second, or 0 for not checked"),
	)
}

// rangeOf returns a function that returns a *cell.FieldError unless a number is within bounds.
func rangeOf(prefix string) func(field string, n, least, most int64, remedy string) error {
	return func(field string, n, least, most int64, remedy string) error {
		if n >= least && n <= most {
			return nil
		}
		return &cell.FieldError{Field: prefix + field, Problem: fmt.Sprintf("is %d, outside %d to %d", n, least, most), Remedy: remedy}
	}
}

// tree returns what the tree is made with.
func (c Config) tree() tree.Config {
	t := tree.DefaultConfig()
	t.Quantum, t.LanesMax = c.Quantum, c.LanesMax
	for i, b := range c.Bulkheads {
		if b.Burst != 0 {
			t.Burst[i] = b.Burst
		}
	}
	return t
}
