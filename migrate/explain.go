package migrate

import (
	"fmt"

	"github.com/fairlead/fairlead/cell"
)

// Explain returns, as people read it, what comes next and what an abort or a reverse would do now.
func Explain(r *Record) (next, undo string) {
	next = r.nextStep()
	if r.Held != "" {
		next = fmt.Sprintf("held (%s); after a resume: %s", r.Held, next)
	}
	return next, r.undo()
}

func (r *Record) nextStep() string {
	switch r.State {
	case Declared:
		return fmt.Sprintf("prove that %s can take %s, in its turn", r.Target, r.Tenant)
	case Admitted:
		return fmt.Sprintf("clear away what earlier attempts left at %s, then stage the lanes there", r.Target)
	case Provisioned:
		return fmt.Sprintf("stage both lanes at %s and prove the way to both logs", r.Target)
	case Seeding:
		return "copy every job and key once"
	case CatchingUp:
		return "copy what has changed meanwhile until little is behind"
	case Shadowing:
		return "compare both cells"
	case Ready:
		if r.Options.Manual {
			return "wait for an operator to switch a class"
		}
		return fmt.Sprintf("switch %s as soon as the gates are passed for a while", r.Order[0])
	case Ramping:
		return r.nextSwitch()
	case CutOver:
		return fmt.Sprintf("wait for an operator to complete or reverse it, or until %s has passed", r.Options.RollbackWindow)
	case Draining:
		return fmt.Sprintf("remove what %s keeps", r.Source)
	case Aborting, Reversing:
		return r.nextBack()
	case Released, Aborted, RolledBack:
		return "nothing: it has ended"
	default:
		return ""
	}
}

func (r *Record) nextSwitch() string {
	for _, c := range r.Order {
		switch r.Lanes[c.Index()].Phase {
		case AtSource:
			if r.Options.Manual && !r.Lanes[c.Index()].Allowed {
				return fmt.Sprintf("wait for an operator to switch %s", c)
			}
			return fmt.Sprintf("fence %s at %s as soon as every gate is passed", c, r.Source)
		case Fencing:
			return fmt.Sprintf("copy what is left of %s, compare, and commit", c)
		case Committed:
			return fmt.Sprintf("open %s at %s", c, r.Target)
		case Observing:
			return fmt.Sprintf("observe %s at %s", c, r.Target)
		case Moved, ReverseFencing, ReverseCommitted, Returned:
		}
	}
	return "keep the way back open for the rollback window"
}

func (r *Record) nextBack() string {
	for i := len(r.Order) - 1; i >= 0; i-- {
		c := r.Order[i]
		switch r.Lanes[c.Index()].Phase {
		case Committed:
			return fmt.Sprintf("open %s at %s, then take it back", c, r.Target)
		case Observing, Moved:
			return fmt.Sprintf("fence %s at %s and take it back", c, r.Target)
		case ReverseFencing:
			return fmt.Sprintf("copy what is left of %s, compare, and commit it to %s", c, r.Source)
		case ReverseCommitted:
			return fmt.Sprintf("open %s at %s", c, r.Source)
		case AtSource, Fencing, Returned:
		}
	}
	return fmt.Sprintf("remove what is left at %s", r.Target)
}

func (r *Record) undo() string {
	switch {
	case r.Done():
		return "nothing can be undone: start another migration"
	case r.State == Aborting || r.State == Reversing:
		return "it is being undone"
	case r.State == Draining:
		return "nothing can be undone any more: start a migration the other way"
	case !r.committed() && r.State < Provisioned:
		return "abort ends it: nothing was done yet"
	case !r.committed():
		return fmt.Sprintf("abort ends it: %s serves as before, and the copy at %s is removed", r.Source, r.Target)
	default:
		return "reverse takes back " + r.there() + fmt.Sprintf(" with everything that happened at %s; nothing is lost", r.Target)
	}
}

// there names the classes that the target has.
func (r *Record) there() string {
	text := ""
	for _, c := range r.Order {
		switch {
		case r.Lanes[c.Index()].Owner != r.Target:
		case text == "":
			text = c.String()
		default:
			text += " and " + c.String()
		}
	}
	return text
}

// describe returns an event as a step of a plan.
func (r *Record) describe(e *Event) string {
	c := e.Class
	switch e.Kind { //nolint:exhaustive // what an ideal run does not have has no text
	case EventPass:
		return r.describePass()
	case EventAllow:
		return fmt.Sprintf("an operator lets %s be switched", c)
	case EventFence:
		return fmt.Sprintf("fence %s at %s: callers wait from here on", c, r.Source)
	case EventCommit:
		return fmt.Sprintf("copy what is left, compare digests, and commit %s to %s: the point of no return", c, r.Target)
	case EventActivate:
		return fmt.Sprintf("open %s at %s: callers go on; %s follows it", c, r.Target, r.Source)
	case EventObserved:
		return fmt.Sprintf("observe %s at %s: %d grants and %s", c, r.Target, r.Options.CanaryJobs, r.Options.CanaryTime)
	case EventComplete:
		return fmt.Sprintf("keep the way back open for %s, then complete", r.Options.RollbackWindow)
	case EventEnd:
		return fmt.Sprintf("remove what %s keeps, after a delay", r.Source)
	default:
		return e.Kind.String()
	}
}

func (r *Record) describePass() string {
	switch r.State { //nolint:exhaustive // the rest has no pass
	case Declared:
		return fmt.Sprintf("prove that %s can take %s, and reserve it", r.Target, r.Tenant)
	case Admitted:
		return fmt.Sprintf("prove that %s holds nothing of it and that its workers offer what is needed", r.Target)
	case Provisioned:
		return fmt.Sprintf("stage both lanes at %s, track them at %s, log a canary in both", r.Target, r.Source)
	case Seeding:
		return "copy every job and key once"
	case CatchingUp:
		return "follow the changes until little is behind"
	case Shadowing:
		return "compare both cells"
	case Ready:
		return "see every gate passed for a while"
	case Ramping:
		return "both classes are moved: the way back stays open"
	default:
		return ""
	}
}

// classOf returns the class of an event, 0 for those without one.
func classOf(e *Event) cell.Class {
	if e.Kind.HasClass() {
		return e.Class
	}
	return 0
}
