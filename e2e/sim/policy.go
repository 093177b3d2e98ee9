package sim

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/policy"
)

// Policy is a way to choose who runs next, by name.
type Policy struct {
	Name string
	// New returns a dispatcher that nothing has been told yet, for one simulation of a scenario.
	New func(*Scenario) (Dispatcher, error)
}

// Dispatcher chooses who runs next in one simulation. Time never goes back from call to call. It reads records and changes none.
type Dispatcher interface {
	// Arrive takes a job that waits from now on.
	Arrive(now time.Duration, r *Record) error
	// Next takes the job out that a free slot of a group of workers is to run now; false when there is none for it.
	Next(now time.Duration, workers int) (*Record, bool)
	// Complete takes note that a job's slot is free again.
	Complete(now time.Duration, r *Record)
	// Remove takes a job out that waits: it has expired, as its state says.
	Remove(now time.Duration, r *Record)
}

// Timed is what a Dispatcher is besides when time alone changes what it would do.
type Timed interface {
	// Advance comes first at every instant: so many slots were free since the one before.
	Advance(now time.Duration, free int)
	// Review comes after completions, arrivals and expiries, and before any Next. It returns jobs to take back from their slots: these wait
	// again, as far as the dispatcher is concerned, and run again from the start.
	Review(now time.Duration) ([]*Record, error)
	// Wake returns when to come back even if nothing happens; false for never.
	Wake(now time.Duration) (time.Duration, bool)
}

// Ruled is what a Dispatcher is besides when it promises bounds, for [Check].
type Ruled interface{ Rules() Rules }

// The reference policies, which are simple and know nothing of the scheduler, and the scheduler itself.
const (
	PolicyFIFO     = "fifo"      // first in, first out, whoever's it is
	PolicyRR       = "rr"        // a job of each tenant in turn, in the order of the tenants' first jobs
	PolicyCappedRR = "capped-rr" // rr that passes over tenants with as many jobs running as the cap, which stands after a colon and is 2 without one
	PolicyDRR      = "drr"       // deficit round robin by declared cost and weight, without settlement
	PolicyFairlead = "fairlead"  // the scheduler of production, by the scenario's own policy or the defaults
)

// Policies lists the names that [PolicyNamed] knows.
func Policies() []string {
	return []string{PolicyFIFO, PolicyRR, PolicyCappedRR, PolicyDRR, PolicyFairlead}
}

// cappedDefault is capped-rr's cap.
const cappedDefault = 2

// PolicyNamed returns the policy of a name of [Policies]. It returns a *cell.FieldError for any other.
func PolicyNamed(name string) (Policy, error) {
	base, param, hasParam := strings.Cut(name, ":")
	if base == PolicyCappedRR && hasParam {
		limit, err := strconv.ParseInt(param, 10, 32)
		if err != nil || limit < 1 {
			return Policy{}, &cell.FieldError{
				Field: "policy", Problem: fmt.Sprintf("%.40q has no cap above 0", name), Remedy: "write it as capped-rr:2",
			}
		}
		return Policy{Name: name, New: func(s *Scenario) (Dispatcher, error) { return newRotation(s, limit), nil }}, nil
	}
	switch name {
	case PolicyFIFO:
		return Policy{Name: name, New: func(s *Scenario) (Dispatcher, error) { return newFIFO(s), nil }}, nil
	case PolicyRR:
		return Policy{Name: name, New: func(s *Scenario) (Dispatcher, error) { return newRotation(s, 0), nil }}, nil
	case PolicyCappedRR:
		return Policy{Name: name, New: func(s *Scenario) (Dispatcher, error) { return newRotation(s, cappedDefault), nil }}, nil
	case PolicyDRR:
		return Policy{Name: name, New: func(s *Scenario) (Dispatcher, error) { return newDeficit(s) }}, nil
	case PolicyFairlead:
		return Policy{Name: name, New: func(s *Scenario) (Dispatcher, error) { return newFairlead(s, s.policy()) }}, nil
	default:
		return Policy{}, &cell.FieldError{
			Field: "policy", Problem: fmt.Sprintf("%.40q is not known", name),
			Remedy: "use " + strings.Join(Policies(), ", ") + ", or a policy file",
		}
	}
}

// PolicyOf returns the scheduler of production under a policy of the caller's, by a name of the caller's.
func PolicyOf(name string, file policy.File) Policy {
	return Policy{Name: name, New: func(s *Scenario) (Dispatcher, error) { return newFairlead(s, &file) }}
}

// quantumParts is what part of a usual cost a quantum is, where nobody has said.
const quantumParts = 10

// policy returns the scenario's own policy, or the defaults. Where cost is not slot time the defaults say nothing about it: then a job is
// taken to cost the scenario's mean until it is known better, and the quantum is a tenth of that.
func (s *Scenario) policy() *policy.File {
	if s.Policy != nil {
		return s.Policy
	}
	p := policy.Default()
	if s.Unit != cell.UnitSlotSeconds {
		mean := s.meanCost((*Job).Charge)
		p.Sched.CostDefault = max(1, mean)
		p.Sched.Quantum = toQuantum(int64(mean) / quantumParts)
	}
	return &p
}
