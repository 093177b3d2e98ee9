package migrate

import (
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/cell"
)

// rule is what an event may be applied to, and what it does. The table of them is ruleOf; Apply knows nothing else.
type rule struct {
	from   []State
	phases []Phase // of the event's class; none for kinds without one
	// forward events are refused while the migration is held.
	forward bool
	// refuse returns why the event is refused for another reason; empty when it is not. l is the lane of the event's class or nil.
	refuse func(r *Record, l *Lane, e *Event) string
	// do changes the record: r is the caller's own, its slices are not.
	do func(r *Record, l *Lane, e *Event)
	// to and toPhase are what state and phase become; nil for staying.
	to      func(State) State
	toPhase func(Phase) Phase
}

// ruleOf is the table of transitions. Every change of an epoch or of an owner is in here.
func ruleOf(k Kind) (rule, bool) {
	switch k {
	case EventPass:
		return rule{from: span(Declared, Ramping), forward: true, refuse: refusePass, do: doPass, to: stateAfter}, true
	case EventHold:
		return rule{from: holdable(), refuse: refuseHold, do: func(r *Record, _ *Lane, e *Event) { r.Held = clip(e.Why) }}, true
	case EventResume:
		return rule{from: holdable(), refuse: refuseResume, do: doResume}, true
	case EventProgress:
		return rule{from: live(), refuse: refuseProgress, do: func(r *Record, _ *Lane, e *Event) { r.Progress = *e.Progress }}, true
	case EventGates:
		return rule{from: live(), refuse: refuseGates}, true
	case EventAllow:
		return rule{
			from: span(Declared, Ramping), phases: []Phase{AtSource}, refuse: refuseAllow,
			do: func(_ *Record, l *Lane, _ *Event) { l.Allowed = true },
		}, true
	case EventThrottle:
		return rule{from: live(), refuse: refuseThrottle, do: func(r *Record, _ *Lane, e *Event) { r.Options.BytesPerSecond = e.BytesPerSecond }}, true
	case EventRestart, EventAbort, EventReverse, EventComplete, EventEnd:
		return ruleOfTurn(k), true
	case EventFence, EventUnfence, EventCommit, EventActivate, EventObserved, EventReverseFence, EventReverseCommit, EventReverseActivate:
		return ruleOfSwitch(k), true
	default:
		return rule{}, false
	}
}

// ruleOfTurn has the rules of what turns a migration to another way, or ends it.
func ruleOfTurn(k Kind) rule {
	switch k { //nolint:exhaustive // ruleOf has the others
	case EventRestart:
		return rule{from: span(Admitted, Ramping), forward: true, refuse: refuseRestart, do: doRestart, to: always(Admitted)}
	case EventAbort:
		return rule{from: span(Declared, CutOver), refuse: refuseAbort, do: doTurn, to: always(Aborting)}
	case EventReverse:
		return rule{from: []State{Ramping, CutOver}, refuse: refuseReverse, do: doTurn, to: always(Reversing)}
	case EventComplete:
		return rule{from: []State{CutOver, Reversing}, refuse: refuseComplete, do: doComplete, to: always(Draining)}
	default: // EventEnd
		return rule{from: []State{Draining, Aborting, Reversing}, forward: true, refuse: refuseEnd, do: doEnd, to: endOf}
	}
}

// ruleOfSwitch has the rules of what switches a class.
func ruleOfSwitch(k Kind) rule {
	switch k { //nolint:exhaustive // ruleOf has the others
	case EventFence:
		return rule{
			from: []State{Ramping}, phases: []Phase{AtSource}, forward: true, refuse: refuseFence, do: doFence, toPhase: became(Fencing),
		}
	case EventUnfence:
		return rule{from: []State{Ramping, Reversing}, phases: []Phase{Fencing, ReverseFencing}, do: doUnfence, toPhase: unfenced}
	case EventCommit:
		return rule{
			from: []State{Ramping}, phases: []Phase{Fencing}, forward: true, refuse: refuseCommit, do: doCommit, toPhase: became(Committed),
		}
	case EventActivate:
		return rule{
			from: []State{Ramping, Reversing}, phases: []Phase{Committed}, refuse: refuseActivate, do: doActivate, toPhase: became(Observing),
		}
	case EventObserved:
		return rule{from: []State{Ramping}, phases: []Phase{Observing}, forward: true, refuse: refuseFailed, toPhase: became(Moved)}
	case EventReverseFence:
		return rule{
			from: []State{Reversing}, phases: []Phase{Observing, Moved}, forward: true, refuse: refuseReverseFence, do: doFence,
			toPhase: became(ReverseFencing),
		}
	case EventReverseCommit:
		return rule{
			from: []State{Reversing}, phases: []Phase{ReverseFencing}, forward: true, refuse: refuseCommit, do: doCommit,
			toPhase: became(ReverseCommitted),
		}
	default: // EventReverseActivate
		return rule{
			from: []State{Reversing}, phases: []Phase{ReverseCommitted}, refuse: refuseActivate, do: doActivate, toPhase: became(Returned),
		}
	}
}

// span returns the states from a to b; States are numbered in the order in which they come.
func span(a, b State) []State {
	var all []State
	for s := a; s <= b; s++ {
		all = append(all, s)
	}
	return all
}

// live returns the states of a migration that has not ended.
func live() []State { return append(span(Declared, Draining), Aborting, Reversing) }

// holdable returns the states in which there is something to hold. What aborts has no forward step but to end.
func holdable() []State { return append(span(Declared, Draining), Reversing) }

func always(s State) func(State) State { return func(State) State { return s } }

func became(p Phase) func(Phase) Phase { return func(Phase) Phase { return p } }

// stateAfter returns the state that follows one whose gate was passed.
func stateAfter(s State) State { return s + 1 }

func endOf(s State) State {
	switch s { //nolint:exhaustive // the rule lets no other through
	case Draining:
		return Released
	case Aborting:
		return Aborted
	default:
		return RolledBack
	}
}

// unfenced returns where a class is when its switch was given up.
func unfenced(p Phase) Phase {
	if p == Fencing {
		return AtSource
	}
	return Moved
}

func refusePass(r *Record, l *Lane, e *Event) string {
	if r.State == Ramping && !r.all(Moved) {
		return "not every class was moved"
	}
	return refuseFailed(r, l, e)
}

// refuseFailed refuses what comes with a gate that was not passed.
func refuseFailed(_ *Record, _ *Lane, e *Event) string {
	for _, g := range e.Gates {
		if g.Verdict == Fail {
			return fmt.Sprintf("the gate %s is not passed: %s", g.Name, g.Evidence)
		}
	}
	return ""
}

func refuseHold(r *Record, _ *Lane, e *Event) string {
	switch {
	case e.Why == "":
		return "a hold needs a reason"
	case r.Held == clip(e.Why):
		return "it is held for this already"
	}
	return ""
}

func refuseResume(r *Record, _ *Lane, _ *Event) string {
	if r.Held == "" {
		return "it is not held"
	}
	return ""
}

func refuseProgress(r *Record, _ *Lane, e *Event) string {
	switch {
	case e.Progress == nil:
		return "there is no progress in it"
	case e.Progress.At < r.Progress.At:
		return "a later checkpoint is known"
	}
	return ""
}

func refuseGates(_ *Record, _ *Lane, e *Event) string {
	if len(e.Gates) == 0 {
		return "there are no gates in it"
	}
	return ""
}

func refuseAllow(_ *Record, l *Lane, _ *Event) string {
	if l.Allowed {
		return "it is allowed already"
	}
	return ""
}

func refuseThrottle(_ *Record, _ *Lane, e *Event) string {
	if e.BytesPerSecond < BytesPerSecondMin || e.BytesPerSecond > BytesPerSecondMax {
		return fmt.Sprintf("bytes_per_second is %d: use %d to %d", e.BytesPerSecond, BytesPerSecondMin, BytesPerSecondMax)
	}
	return ""
}

func refuseRestart(r *Record, _ *Lane, _ *Event) string {
	switch {
	case r.committed():
		return "a class was committed: what is left is to go on, or to reverse"
	case r.Retries >= AttemptsMax:
		return fmt.Sprintf("%d attempts were given up since an operator looked at it: resume it first", r.Retries)
	}
	return ""
}

func refuseAbort(r *Record, _ *Lane, _ *Event) string {
	if r.committed() {
		return "a class was committed, which is past the point of no return: use reverse"
	}
	return ""
}

func refuseReverse(r *Record, _ *Lane, _ *Event) string {
	if !r.committed() {
		return "no class was committed yet: use abort"
	}
	return ""
}

// refuseComplete lets a reverse be given up that cannot be done, as long as nothing came of it.
func refuseComplete(r *Record, _ *Lane, _ *Event) string {
	for i := range r.Lanes {
		if l := &r.Lanes[i]; l.Owner != r.Target || !l.resting() {
			return fmt.Sprintf("a class is %s at %s", l.Phase, l.Owner)
		}
	}
	return ""
}

func refuseEnd(r *Record, _ *Lane, _ *Event) string {
	want := r.Source
	if r.State == Draining {
		want = r.Target
	}
	for i := range r.Lanes {
		if l := &r.Lanes[i]; l.Owner != want || !l.resting() {
			return fmt.Sprintf("a class is %s at %s", l.Phase, l.Owner)
		}
	}
	return ""
}

func refuseFence(r *Record, l *Lane, e *Event) string {
	switch {
	case r.Options.Manual && !l.Allowed:
		return "it waits for an operator to switch it"
	case l.Staged == 0:
		return "nothing is staged for it"
	case e.Class != r.Order[0] && r.Lanes[r.Order[0].Index()].Phase != Moved:
		return fmt.Sprintf("%s comes first", r.Order[0])
	}
	return refuseUnproved(r, l, e)
}

func refuseReverseFence(r *Record, l *Lane, e *Event) string {
	for i := range r.Lanes {
		if o := &r.Lanes[i]; o != l && !o.resting() {
			return fmt.Sprintf("another class is %s", o.Phase)
		}
	}
	return refuseUnproved(r, l, e)
}

// refuseUnproved refuses a fence whose gates were not proved at its very instant.
func refuseUnproved(r *Record, l *Lane, e *Event) string {
	if len(e.Gates) == 0 {
		return "the gates were not proved for it"
	}
	return refuseFailed(r, l, e)
}

func refuseCommit(r *Record, l *Lane, e *Event) string {
	switch {
	case e.Position == 0:
		return "there is no position of the fence in it"
	case e.Digest == [32]byte{}:
		return "there is no digest in it"
	}
	return refuseFailed(r, l, e)
}

func refuseActivate(_ *Record, _ *Lane, e *Event) string {
	if e.Pause < 0 {
		return "the pause is negative"
	}
	return ""
}

// doPass provisions an attempt: from here on its lanes have an epoch above all that the cells have seen. An attempt that had something to clear away gives way to the
// next: what was sent to wipe a lane must not hit it once it is being filled, however late it comes.
func doPass(r *Record, _ *Lane, e *Event) {
	if r.State != Admitted {
		return
	}
	if r.Attempt > 1 {
		r.Attempt++
	}
	for i := range r.Lanes {
		l := &r.Lanes[i]
		l.Staged = max(l.Staged, l.Epoch, e.Floor[i]) + 1
	}
}

func doResume(r *Record, _ *Lane, e *Event) {
	if !healing(r.Held) {
		r.Retries = 0
		for i := range r.Lanes {
			r.Lanes[i].Fences = 0
		}
	}
	r.Held = ""
	r.Resumed = e.Time
}

func doRestart(r *Record, l *Lane, e *Event) {
	doTurn(r, l, e)
	r.Attempt++
	r.Retries++
	r.Progress = Progress{}
	r.Entered = e.Time
	for i := range r.Lanes {
		r.Lanes[i].Fences = 0
	}
}

// doTurn takes back whatever is undecided: no commit of it can follow, the state does not let one through.
func doTurn(r *Record, _ *Lane, e *Event) {
	r.Held = ""
	for i := range r.Lanes {
		if l := &r.Lanes[i]; l.Phase == Fencing {
			doUnfence(r, l, e)
			l.Phase = AtSource
		}
	}
}

func doComplete(r *Record, l *Lane, e *Event) {
	doTurn(r, l, e)
	for i := range r.Lanes {
		r.Lanes[i].Phase = Moved
	}
}

func doEnd(r *Record, _ *Lane, e *Event) { r.Ended = e.Time }

func doFence(_ *Record, l *Lane, e *Event) {
	l.Epoch = max(l.Epoch+1, l.Staged)
	l.FencedAt = e.Time
	l.Position, l.Change, l.Digest = 0, 0, [32]byte{}
	l.Wait = e.Wait
}

func doUnfence(_ *Record, l *Lane, e *Event) {
	l.Epoch++
	l.Fences++
	l.UnfencedAt = e.Time
	l.Pause = max(0, e.Time.Sub(l.FencedAt))
}

func doCommit(r *Record, l *Lane, e *Event) {
	l.Epoch++
	l.Position, l.Change, l.Digest = e.Position, e.Change, e.Digest
	l.CommittedAt, l.Fences = e.Time, 0
	l.Owner = r.other(l.Owner)
}

func doActivate(_ *Record, l *Lane, e *Event) {
	l.ActivatedAt, l.Pause = e.Time, e.Pause
}

// committed reports whether a class was ever committed to the target.
func (r *Record) committed() bool {
	return slices.ContainsFunc(r.Lanes[:], func(l Lane) bool { return l.Phase >= Committed })
}

func (r *Record) all(p Phase) bool {
	return !slices.ContainsFunc(r.Lanes[:], func(l Lane) bool { return l.Phase != p })
}

func (r *Record) other(id cell.ID) cell.ID {
	if id == r.Source {
		return r.Target
	}
	return r.Source
}

// resting reports whether the class is not being switched: its owner has it, and serves.
func (l *Lane) resting() bool {
	return l.Phase == AtSource || l.Phase == Observing || l.Phase == Moved || l.Phase == Returned
}
