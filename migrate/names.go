package migrate

import "fmt"

func (s State) String() string {
	switch s {
	case Declared:
		return "declared"
	case Admitted:
		return "admitted"
	case Provisioned:
		return "provisioned"
	case Seeding:
		return "seeding"
	case CatchingUp:
		return "catching_up"
	case Shadowing:
		return "shadowing"
	case Ready:
		return "ready"
	case Ramping:
		return "ramping"
	case CutOver:
		return "cut_over"
	case Draining:
		return "draining"
	case Released:
		return "released"
	case Aborting:
		return "aborting"
	case Aborted:
		return "aborted"
	case Reversing:
		return "reversing"
	case RolledBack:
		return "rolled_back"
	default:
		return fmt.Sprintf("state(%d)", uint8(s))
	}
}

func (p Phase) String() string {
	switch p {
	case AtSource:
		return "at_source"
	case Fencing:
		return "fencing"
	case Committed:
		return "committed"
	case Observing:
		return "observing"
	case Moved:
		return "moved"
	case ReverseFencing:
		return "reverse_fencing"
	case ReverseCommitted:
		return "reverse_committed"
	case Returned:
		return "returned"
	default:
		return fmt.Sprintf("phase(%d)", uint8(p))
	}
}

func (v Verdict) String() string {
	switch v {
	case Pass:
		return "pass"
	case Warn:
		return "warn"
	case Fail:
		return "fail"
	default:
		return fmt.Sprintf("verdict(%d)", uint8(v))
	}
}

func (k Kind) String() string {
	switch k {
	case EventPass:
		return "pass"
	case EventHold:
		return "hold"
	case EventResume:
		return "resume"
	case EventProgress:
		return "progress"
	case EventGates:
		return "gates"
	case EventFence:
		return "fence"
	case EventUnfence:
		return "unfence"
	case EventCommit:
		return "commit"
	case EventActivate:
		return "activate"
	case EventObserved:
		return "observed"
	case EventAllow:
		return "allow"
	case EventThrottle:
		return "throttle"
	case EventRestart:
		return "restart"
	case EventAbort:
		return "abort"
	case EventReverse:
		return "reverse"
	case EventReverseFence:
		return "reverse_fence"
	case EventReverseCommit:
		return "reverse_commit"
	case EventReverseActivate:
		return "reverse_activate"
	case EventComplete:
		return "complete"
	case EventEnd:
		return "end"
	default:
		return fmt.Sprintf("event(%d)", uint8(k))
	}
}

// HasClass reports whether events of the kind name a class.
func (k Kind) HasClass() bool {
	switch k {
	case EventFence, EventUnfence, EventCommit, EventActivate, EventObserved, EventAllow, EventReverseFence, EventReverseCommit, EventReverseActivate:
		return true
	case EventPass, EventHold, EventResume, EventProgress, EventGates, EventThrottle, EventRestart, EventAbort, EventReverse, EventComplete, EventEnd:
		return false
	default:
		return false
	}
}
