// Package moveview says where a migration stands, for people: in a line, and in lines with a bar for each step.
//
// It owns the words and the bars, which fairlead migrate, fairlead cell evacuate and fairlead demo share. It refuses to ask a server, to draw and
// to colour: those who do decide where it goes. What a server sent is made safe to print. It is pure, and holds nothing.
package moveview

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/cmd/fairlead/output"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// State names a migration's state.
func State(s fairleadv1.MigrationState) string { return output.Enum(s, "MIGRATION_STATE_") }

// Phase names where a class of a migration stands.
func Phase(p fairleadv1.LanePhase) string { return output.Enum(p, "LANE_PHASE_") }

// Class names a class.
func Class(c fairleadv1.Class) string { return output.Enum(c, "CLASS_") }

// Ended reports whether nothing more becomes of a migration.
func Ended(m *fairleadv1.Migration) bool {
	switch m.GetState() { //nolint:exhaustive // every other state goes on
	case fairleadv1.MigrationState_MIGRATION_STATE_RELEASED, fairleadv1.MigrationState_MIGRATION_STATE_ABORTED, fairleadv1.MigrationState_MIGRATION_STATE_ROLLED_BACK:
		return true
	default:
		return false
	}
}

// Served reports whether the target serves every class of the tenant, for good unless it is reversed.
func Served(m *fairleadv1.Migration) bool {
	switch m.GetState() { //nolint:exhaustive // in every other state it is on its way, or back
	case fairleadv1.MigrationState_MIGRATION_STATE_CUT_OVER, fairleadv1.MigrationState_MIGRATION_STATE_DRAINING,
		fairleadv1.MigrationState_MIGRATION_STATE_RELEASED:
		return true
	default:
		return false
	}
}

// Counted is a number with what it counts.
func Counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// Copied is how much of a tenant the other cell has.
func Copied(g *fairleadv1.MigrationProgress) string {
	if g.GetJobsTotal() == 0 && g.GetBytesCopied() == 0 {
		return output.None
	}
	text := fmt.Sprintf("%d of %d jobs, %s", g.GetJobsCopied(), g.GetJobsTotal(), output.Bytes(g.GetBytesCopied()))
	if n := g.GetBytesPerSecond(); n > 0 {
		text += ", " + output.Bytes(n) + "/s"
	}
	if g.GetTimeLeft() != nil {
		text += ", " + output.ProtoDuration(g.GetTimeLeft()) + " left"
	}
	return text
}

// Lag is what the cell that does not serve the tenant lacks. Where nobody has measured it there is none: unknown is not 0.
func Lag(m *fairleadv1.Migration) string {
	g := m.GetProgress()
	if g.GetLagTime() == nil {
		return output.None
	}
	return fmt.Sprintf("%s, %s, %s", Counted(int(g.GetLagRecords()), "change"), output.Bytes(g.GetLagBytes()), output.ProtoDuration(g.GetLagTime()))
}

// Line says in a line where a migration stands.
func Line(m *fairleadv1.Migration) string {
	parts := []string{State(m.GetState())}
	for _, l := range m.GetLanes() {
		p := l.GetPhase()
		if p == fairleadv1.LanePhase_LANE_PHASE_AT_SOURCE || p == fairleadv1.LanePhase_LANE_PHASE_UNSPECIFIED {
			continue
		}
		part := Class(l.GetClass()) + " " + Phase(p)
		if l.GetPause().AsDuration() > 0 {
			part += " (stood still for " + output.ProtoDuration(l.GetPause()) + ")"
		}
		parts = append(parts, part)
	}
	if m.GetAttempt() > 1 {
		parts = append(parts, fmt.Sprintf("attempt %d", m.GetAttempt()))
	}
	text := strings.Join(parts, ", ")
	if c := Copied(m.GetProgress()); c != output.None && m.GetState() < fairleadv1.MigrationState_MIGRATION_STATE_RAMPING {
		text += "; copied " + c
	}
	if m.GetHeld() != "" {
		text += "; held: " + output.Safe(m.GetHeld())
	}
	return text
}

// Blocked says which gates keep a migration where it is, with their evidence, and their names alone: what is told again only when it is news. Both are empty
// when none does.
func Blocked(m *fairleadv1.Migration) (text, names string) {
	var all, of []string
	for _, g := range m.GetGates() {
		if g.GetVerdict() == fairleadv1.GateVerdict_GATE_VERDICT_FAIL {
			all, of = append(all, output.Safe(g.GetName()+": "+g.GetEvidence())), append(of, g.GetName())
		}
	}
	return strings.Join(all, "; "), strings.Join(of, " ")
}

// Change is what about a migration is told at once when it changes, where there is no terminal: the rest is told now and then.
func Change(m *fairleadv1.Migration) string {
	parts := []string{m.GetState().String(), strconv.FormatUint(uint64(m.GetAttempt()), 10), m.GetHeld()}
	for _, l := range m.GetLanes() {
		parts = append(parts, l.GetPhase().String())
	}
	return strings.Join(parts, " ")
}

// Step is one step of a migration as it is drawn.
type Step struct {
	Name  string
	Share float64 // 0 to 1
	Note  string  // for people; safe to print
}

// Steps are the steps of a migration with how far each is, as of now.
func Steps(now time.Time, m *fairleadv1.Migration) []Step {
	at := m.GetState()
	switch at { //nolint:exhaustive // every other state is of the way there
	case fairleadv1.MigrationState_MIGRATION_STATE_ABORTING, fairleadv1.MigrationState_MIGRATION_STATE_ABORTED:
		return []Step{{"abort", reached(at, fairleadv1.MigrationState_MIGRATION_STATE_ABORTED), ""}}
	case fairleadv1.MigrationState_MIGRATION_STATE_REVERSING, fairleadv1.MigrationState_MIGRATION_STATE_ROLLED_BACK:
		return append(laneSteps(m, "take back "), Step{"clean up", reached(at, fairleadv1.MigrationState_MIGRATION_STATE_ROLLED_BACK), ""})
	}
	steps := []Step{
		{"prepare", reached(at, fairleadv1.MigrationState_MIGRATION_STATE_SEEDING), ""},
		{"copy", reached(at, fairleadv1.MigrationState_MIGRATION_STATE_CATCHING_UP), ""},
		{"catch up", reached(at, fairleadv1.MigrationState_MIGRATION_STATE_SHADOWING), ""},
		{"compare", reached(at, fairleadv1.MigrationState_MIGRATION_STATE_READY), ""},
		{"wait", reached(at, fairleadv1.MigrationState_MIGRATION_STATE_RAMPING), ""},
	}
	for i := range steps {
		if steps[i].Share < 1 {
			running(&steps[i], m)
			break
		}
	}
	return append(append(steps, laneSteps(m, "switch ")...), lastStep(now, m))
}

// reached is 1 when a migration has come as far as a state, and else 0.
func reached(at, goal fairleadv1.MigrationState) float64 {
	if at >= goal {
		return 1
	}
	return 0
}

// running completes the step that a migration is at.
func running(s *Step, m *fairleadv1.Migration) {
	g := m.GetProgress()
	switch m.GetState() { //nolint:exhaustive // the other states have steps of their own
	case fairleadv1.MigrationState_MIGRATION_STATE_DECLARED, fairleadv1.MigrationState_MIGRATION_STATE_ADMITTED, fairleadv1.MigrationState_MIGRATION_STATE_PROVISIONED:
		s.Share = float64(m.GetState()) / float64(fairleadv1.MigrationState_MIGRATION_STATE_SEEDING)
		s.Note = State(m.GetState())
	case fairleadv1.MigrationState_MIGRATION_STATE_SEEDING:
		if total := g.GetJobsTotal(); total > 0 {
			s.Share = share(float64(g.GetJobsCopied()) / float64(total))
		}
		s.Note = Copied(g)
	case fairleadv1.MigrationState_MIGRATION_STATE_CATCHING_UP:
		if total := g.GetJobsTotal(); total > 0 {
			s.Share = share(1 - float64(g.GetLagRecords())/float64(total))
		}
		s.Note = Lag(m)
	case fairleadv1.MigrationState_MIGRATION_STATE_READY:
		s.Note = output.Safe(m.GetNextStep())
	}
}

// share keeps what a server said between nothing and all.
func share(x float64) float64 { return min(1, max(0, x)) }

// laneSteps are the switches of the classes, in their order.
func laneSteps(m *fairleadv1.Migration, what string) []Step {
	const fencing, committed, observing = 0.25, 0.5, 0.75
	steps := make([]Step, 0, len(m.GetLanes()))
	for _, l := range m.GetLanes() {
		s := Step{Name: what + Class(l.GetClass())}
		switch l.GetPhase() {
		case fairleadv1.LanePhase_LANE_PHASE_FENCING, fairleadv1.LanePhase_LANE_PHASE_REVERSE_FENCING:
			s.Share, s.Note = fencing, "stands still"
		case fairleadv1.LanePhase_LANE_PHASE_COMMITTED, fairleadv1.LanePhase_LANE_PHASE_REVERSE_COMMITTED:
			s.Share, s.Note = committed, "given to "+output.Safe(l.GetOwner())
		case fairleadv1.LanePhase_LANE_PHASE_OBSERVING:
			s.Share, s.Note = observing, "served by "+output.Safe(l.GetOwner())+", watched"
		case fairleadv1.LanePhase_LANE_PHASE_MOVED, fairleadv1.LanePhase_LANE_PHASE_RETURNED:
			s.Share, s.Note = 1, "served by "+output.Safe(l.GetOwner())
		case fairleadv1.LanePhase_LANE_PHASE_AT_SOURCE, fairleadv1.LanePhase_LANE_PHASE_UNSPECIFIED:
		}
		if back := strings.HasPrefix(what, "take"); back { // what was never switched need not be taken back
			switch l.GetPhase() { //nolint:exhaustive // every other phase is as above
			case fairleadv1.LanePhase_LANE_PHASE_MOVED, fairleadv1.LanePhase_LANE_PHASE_OBSERVING, fairleadv1.LanePhase_LANE_PHASE_COMMITTED:
				s.Share = 0
			case fairleadv1.LanePhase_LANE_PHASE_AT_SOURCE:
				s.Share, s.Note = 1, "was not switched"
			}
		}
		if d := l.GetPause().AsDuration(); d > 0 {
			s.Note += ", stood still for " + output.Duration(d)
		}
		steps = append(steps, s)
	}
	return steps
}

// lastStep is the time in which a migration can be reversed, and its end.
func lastStep(now time.Time, m *fairleadv1.Migration) Step {
	const draining = 0.5
	s := Step{Name: "let go"}
	switch m.GetState() { //nolint:exhaustive // not yet
	case fairleadv1.MigrationState_MIGRATION_STATE_CUT_OVER:
		s.Note = "can be reversed"
		if w := m.GetOptions().GetRollbackWindow().AsDuration(); w > 0 && m.GetEnterTime() != nil {
			s.Note += " for " + output.Duration(max(0, w-now.Sub(m.GetEnterTime().AsTime())))
		}
	case fairleadv1.MigrationState_MIGRATION_STATE_DRAINING:
		s.Share, s.Note = draining, output.Safe(m.GetSource())+" is wiped"
	case fairleadv1.MigrationState_MIGRATION_STATE_RELEASED:
		s.Share = 1
	}
	return s
}

// Done is how much of all steps is done.
func Done(steps []Step) float64 {
	sum := 0.0
	for _, s := range steps {
		sum += s.Share
	}
	return sum / float64(len(steps))
}

// The sizes of what is drawn.
const (
	barWidth  = 24
	NameWidth = 18
)

// Bar draws a share as a bar with its percentage.
func Bar(x float64) string {
	full := int(share(x) * barWidth)
	return strings.Repeat("█", full) + strings.Repeat("░", barWidth-full) + fmt.Sprintf(" %3.0f %%", 100*share(x))
}

// Lines are the lines of a migration as they are drawn on a terminal.
func Lines(now time.Time, m *fairleadv1.Migration) []string {
	head := fmt.Sprintf("%s: %s -> %s, %s", output.Safe(m.GetTenant()), output.Safe(m.GetSource()), output.Safe(m.GetTarget()), State(m.GetState()))
	if m.GetAttempt() > 1 {
		head += fmt.Sprintf(", attempt %d", m.GetAttempt())
	}
	lines := []string{head}
	for _, s := range Steps(now, m) {
		line := fmt.Sprintf("  %-*s %s", NameWidth, s.Name, Bar(s.Share))
		if s.Note != "" && s.Note != output.None {
			line += "  " + s.Note
		}
		lines = append(lines, line)
	}
	if m.GetHeld() != "" {
		lines = append(lines, "  held: "+output.Safe(m.GetHeld()))
	}
	return lines
}
