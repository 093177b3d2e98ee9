package engine

import "fmt"

// jobEvent is something that may happen to a job.
type jobEvent uint8

const (
	eventWake    jobEvent = iota // the not-before time or the back-off is over
	eventExpire                  // the deadline passed
	eventGrant                   // a worker leases it
	eventSucceed                 // the lease's outcomes
	eventFail
	eventFailFinally
	eventRelease
	eventLose
	eventPreempt
	eventQuarantine
	eventCancel
	eventRetry  // an operator or the tenant tries it again
	eventForget // its retention is over
	jobEvents   // how many there are
)

func (e jobEvent) String() string {
	names := [jobEvents]string{
		"wake", "expire", "grant", "succeed", "fail", "fail finally", "release", "lose", "preempt", "quarantine", "cancel", "retry", "forget",
	}
	if e >= jobEvents {
		return fmt.Sprintf("event(%d)", uint8(e))
	}
	return names[e]
}

// next returns the state that a job in state s is in after event e, and false when e cannot happen to it. A failed, released or lost
// attempt, and a retry, go to Delayed when the job may not run again yet: waits says so. A preempted one never waits. Forgetting has no
// state after it and returns the present one.
func next(s JobState, e jobEvent, waits bool) (JobState, bool) {
	again := Ready
	if waits {
		again = Delayed
	}
	switch s {
	case Delayed:
		return nextWaiting(e, eventWake, Ready)
	case Ready:
		return nextWaiting(e, eventGrant, Leased)
	case Leased:
		return nextLeased(e, again)
	case Succeeded:
		return s, e == eventForget
	case Failed, Cancelled, Expired, Quarantined:
		switch e { //nolint:exhaustive // whatever is not named cannot happen, a new event included
		case eventRetry:
			return again, true
		case eventForget:
			return s, true
		default:
			return s, false
		}
	default:
		return s, false
	}
}

// nextWaiting is next for the two states in which a job waits: one event takes it forward, two end it.
func nextWaiting(e, forward jobEvent, to JobState) (JobState, bool) {
	switch e { //nolint:exhaustive // as in next
	case forward:
		return to, true
	case eventExpire:
		return Expired, true
	case eventCancel:
		return Cancelled, true
	default:
		return 0, false
	}
}

func nextLeased(e jobEvent, again JobState) (JobState, bool) {
	switch e { //nolint:exhaustive // as in next
	case eventSucceed:
		return Succeeded, true
	case eventFail, eventRelease, eventLose:
		return again, true
	case eventPreempt:
		return Ready, true // whatever took its slot, the job is not to blame
	case eventFailFinally:
		return Failed, true
	case eventQuarantine:
		return Quarantined, true
	case eventCancel:
		return Cancelled, true
	default:
		return Leased, false
	}
}
