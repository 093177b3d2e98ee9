package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/policy"
	"github.com/fairlead/fairlead/e2e/sim/trace"
)

// Job is one piece of simulated work.
type Job = trace.Job

// Traits are what jobs of the same kind share.
type Traits = trace.Traits

// Scenario is work to be done and the slots to do it. It is not changed by simulating it.
type Scenario struct {
	Name    string
	Summary string // one line
	Seed    uint64
	Workers []Workers
	// Policy is its own, for `fairlead` and for the weights of `drr`; nil for the defaults.
	Policy *policy.File
	// Jobs in the order of their coming: by Arrival, then ID.
	Jobs []Job
	// BacklogMax bounds the jobs that wait of one tenant: more are rejected as they come. 0 is no bound.
	BacklogMax int64
	// Until ends the simulation at a time even if work is left; 0 runs until all is done.
	Until time.Duration
	// Unit is what costs are counted in, for people: slot_seconds where nothing else is said.
	Unit string
	// Notes state in words the rules by which what the source left out was filled in.
	Notes []string
}

// Workers are slots that offer the same operations.
type Workers struct {
	Slots      int
	Operations []cell.Operation // none for all that the scenario has
	// Group is theirs, 0 for none: they run the jobs of tenants that hold it, or of those without a hand. Only the scheduler of production
	// knows hands.
	Group cell.WorkerGroup
}

// Bounds of a scenario.
const (
	SlotsMax   = 100_000
	WorkersMax = 64 // entries: a cell has at most as many offer sets
)

// Slots returns how many there are in all.
func (s *Scenario) Slots() int {
	n := 0
	for _, w := range s.Workers {
		n += w.Slots
	}
	return n
}

// Validate returns all faults of s together, and nil when there are none.
func (s *Scenario) Validate() error {
	var errs []error
	fault := func(field, remedy, problem string, args ...any) {
		errs = append(errs, &cell.FieldError{Field: field, Problem: fmt.Sprintf(problem, args...), Remedy: remedy})
	}
	if n := len(s.Workers); n < 1 || n > WorkersMax {
		fault("workers", "describe at least one group of workers", "has %d groups, outside 1 to %d", n, WorkersMax)
	}
	for i, w := range s.Workers {
		if w.Slots < 1 || w.Slots > SlotsMax {
			fault(fmt.Sprintf("workers[%d].slots", i), "give how many jobs they run at a time", "is %d, outside 1 to %d", w.Slots, SlotsMax)
		}
		if _, err := cell.CheckWorkerGroup(fmt.Sprintf("workers[%d].group", i), int64(w.Group)); err != nil {
			errs = append(errs, err)
		}
	}
	if s.Slots() > SlotsMax {
		fault("workers", "use fewer", "have %d slots, of at most %d", s.Slots(), SlotsMax)
	}
	if s.BacklogMax < 0 {
		fault("backlog_max", "give 0 for no bound", "is %d", s.BacklogMax)
	}
	if s.Until < 0 {
		fault("until", "give 0 to run until all is done", "is %v", s.Until)
	}
	for i := range s.Jobs {
		if err := s.checkJob(i); err != nil {
			errs = append(errs, err)
			break // the others are likely to have the same fault
		}
	}
	return errors.Join(errs...)
}

func (s *Scenario) checkJob(i int) error {
	j := &s.Jobs[i]
	refuse := func(field, problem, remedy string) error {
		return &cell.FieldError{Field: fmt.Sprintf("jobs[%d].%s", i, field), Problem: problem, Remedy: remedy}
	}
	switch {
	case j.Traits == nil || j.Tenant == "":
		return refuse("tenant", "is empty", "name whose job it is")
	case !j.Class.Valid():
		return refuse("class", "is "+j.Class.String(), "use interactive or batch")
	case j.Arrival < 0 || i > 0 && trace.Compare(&s.Jobs[i-1], j) >= 0:
		return refuse("arrival", fmt.Sprintf("is %v with id %d: not after the job before it", j.Arrival, j.ID), "sort jobs by arrival and id")
	case j.Service <= 0 || j.Service > trace.TimeMax || j.Arrival > trace.TimeMax:
		return refuse("service", fmt.Sprintf("is %v for a job that comes at %v", j.Service, j.Arrival), "keep both to a hundred years, and the service above 0")
	case j.Deadline != 0 && j.Deadline <= j.Arrival:
		return refuse("deadline", fmt.Sprintf("is %v, and it comes at %v", j.Deadline, j.Arrival), "give a time after that, or 0 for none")
	case j.Cost < 0 || j.Cost > cell.CostMax || j.Actual < 0 || j.Actual > cell.CostMax:
		return refuse("cost", fmt.Sprintf("is %d and %d in the end, outside 0 to %d", j.Cost, j.Actual, cell.CostMax), "give micro-units of the cost unit")
	}
	return nil
}
