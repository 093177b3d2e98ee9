package migrate

import (
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/fairlead/fairlead/cell"
)

// ErrAttempt is returned when an event is of another attempt than the record's.
var ErrAttempt = errors.New("migrate: the event is of another attempt")

// TransitionError is returned when an event does not fit where the migration stands. Nothing was changed.
type TransitionError struct {
	State State
	Phase Phase // of the event's class; 0 for kinds without one
	Kind  Kind
	Why   string
}

func (e *TransitionError) Error() string {
	if e.Phase == 0 {
		return fmt.Sprintf("migrate: %s in state %s: %s", e.Kind, e.State, e.Why)
	}
	return fmt.Sprintf("migrate: %s in state %s, class %s: %s", e.Kind, e.State, e.Phase, e.Why)
}

// Apply returns the record after an event, or r itself with an error that says why the event is refused: [ErrAttempt] or a *[TransitionError]. It checks
// whatever the record can know, whoever proposes. That the record is the one that the event was decided on is the caller's to check, by its generation.
func (r Record) Apply(e Event) (Record, error) {
	if e.Attempt != r.Attempt {
		return r, fmt.Errorf("%w: %d, of %d", ErrAttempt, e.Attempt, r.Attempt)
	}
	refused := &TransitionError{State: r.State, Kind: e.Kind}
	to := r
	var l *Lane
	if e.Kind.HasClass() && e.Class.Valid() {
		l = &to.Lanes[e.Class.Index()]
		refused.Phase = l.Phase
	}
	rule, known := ruleOf(e.Kind)
	switch {
	case !known:
		refused.Why = "there is no such event"
	case r.Done():
		refused.Why = "it has ended"
	case e.Kind.HasClass() != (e.Class != 0) || (e.Class != 0 && l == nil):
		refused.Why = fmt.Sprintf("%s is not a class for it", e.Class)
	default:
		refused.Why = rule.why(&to, l, &e)
	}
	if refused.Why != "" {
		return r, refused
	}
	rule.apply(&to, l, &e)
	to.Generation++
	return to, nil
}

// why returns why an event is refused, or nothing.
func (u *rule) why(r *Record, l *Lane, e *Event) string {
	switch {
	case !slices.Contains(u.from, r.State):
		return "it does not come in this state"
	case l != nil && !slices.Contains(u.phases, l.Phase):
		return "it does not come in this phase"
	case u.forward && r.Held != "":
		return "it is held: " + r.Held
	}
	if why := refuseShape(e); why != "" {
		return why
	}
	if u.refuse == nil {
		return ""
	}
	return u.refuse(r, l, e)
}

// refuseShape refuses what a record could not hold.
func refuseShape(e *Event) string {
	if len(e.Gates) > GatesMax {
		return fmt.Sprintf("it has %d gates, of at most %d", len(e.Gates), GatesMax)
	}
	for _, g := range e.Gates {
		if g.Name == "" || g.Verdict < Pass || g.Verdict > Fail {
			return fmt.Sprintf("the gate %q says %s", g.Name, g.Verdict)
		}
	}
	return ""
}

func (u *rule) apply(r *Record, l *Lane, e *Event) {
	before := r.State
	if u.do != nil {
		u.do(r, l, e)
	}
	if u.toPhase != nil {
		l.Phase = u.toPhase(l.Phase)
	}
	if u.to != nil {
		r.State = u.to(r.State)
	}
	if r.State != before {
		r.Entered = e.Time
	}
	if len(e.Gates) > 0 {
		r.Gates, r.GatesAt = clipped(e.Gates), e.Time
	}
	if e.Kind != EventProgress && e.Kind != EventGates {
		r.note(noteOf(r, l, e, before))
	}
}

func noteOf(r *Record, l *Lane, e *Event, before State) Note {
	n := Note{At: e.Time, Actor: e.Actor, Why: clip(e.Why), What: e.Kind.String()}
	switch {
	case l != nil && e.Position != 0:
		n.What, n.Epoch = fmt.Sprintf("%s %s at %d", e.Kind, e.Class, e.Position), l.Epoch
	case l != nil:
		n.What, n.Epoch = fmt.Sprintf("%s %s", e.Kind, e.Class), l.Epoch
	case r.State != before:
		n.What = fmt.Sprintf("%s -> %s", before, r.State)
	}
	return n
}

// note adds a note of the present attempt. The slice is a new one: a record is a value.
func (r *Record) note(n Note) {
	n.Attempt = r.Attempt
	keep := r.Notes
	if len(keep) >= NotesMax {
		keep = keep[len(keep)-NotesMax+1:]
	}
	r.Notes = append(slices.Clone(keep), n)
}

func clipped(gates []Gate) []Gate {
	out := slices.Clone(gates)
	for i := range out {
		out[i].Evidence = clip(out[i].Evidence)
	}
	return out
}

// clip cuts a text to EvidenceMax bytes, between two runes.
func clip(s string) string {
	if len(s) <= EvidenceMax {
		return s
	}
	cut := EvidenceMax
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut]
}

// Check returns what is wrong with a record that no events can have made, or nil.
func (r *Record) Check() error {
	ordered := r.Order[0].Valid() && r.Order[1].Valid() && r.Order[0] != r.Order[1]
	switch {
	case r.State < Declared || r.State > RolledBack:
		return fmt.Errorf("migrate: %s has the state %s", r.ID, r.State)
	case r.Attempt == 0 || r.Generation == 0:
		return fmt.Errorf("migrate: %s has attempt %d and generation %d", r.ID, r.Attempt, r.Generation)
	case !ordered:
		return fmt.Errorf("migrate: %s has the order %s, %s", r.ID, r.Order[0], r.Order[1])
	case r.Done() != (r.Ended != 0):
		return fmt.Errorf("migrate: %s is %s and ended at %d", r.ID, r.State, r.Ended)
	}
	for _, c := range cell.Classes() {
		l := &r.Lanes[c.Index()]
		if !slices.Contains(phasesOf(r.State), l.Phase) {
			return fmt.Errorf("migrate: %s is %s with %s %s", r.ID, r.State, c, l.Phase)
		}
		if want := r.ownerIn(l.Phase); l.Owner != want {
			return fmt.Errorf("migrate: %s has %s %s at %s, not at %s", r.ID, c, l.Phase, l.Owner, want)
		}
	}
	return nil
}

// ownerIn returns whose a class is that is in a phase.
func (r *Record) ownerIn(p Phase) cell.ID {
	if p >= Committed && p <= ReverseFencing {
		return r.Target
	}
	return r.Source
}

// phasesOf returns the phases that classes can have in a state.
func phasesOf(s State) []Phase {
	switch s {
	case Declared, Admitted, Provisioned, Seeding, CatchingUp, Shadowing, Ready, Aborting, Aborted:
		return []Phase{AtSource}
	case Ramping:
		return []Phase{AtSource, Fencing, Committed, Observing, Moved}
	case CutOver, Draining, Released:
		return []Phase{Moved}
	case Reversing:
		return []Phase{AtSource, Committed, Observing, Moved, ReverseFencing, ReverseCommitted, Returned}
	case RolledBack:
		return []Phase{AtSource, Returned}
	default:
		return nil
	}
}
