package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
	"github.com/fairlead/fairlead/dataplane/client"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// followPatience is how long looks may fail before whoever follows a migration gives up: control elects a leader in far less.
const followPatience = time.Minute

// followMigration looks at a migration until done says so, and returns the last look, even with an error. Each look that is new goes to look; where
// there is none, it is shown on standard error.
func (a *app) followMigration(
	ctx context.Context, s *session, every time.Duration, m *fairleadv1.Migration, done func(*fairleadv1.Migration) bool, look func(*fairleadv1.Migration) error,
) (*fairleadv1.Migration, error) {
	b := a.newBlock()
	if look == nil {
		look = func(m *fairleadv1.Migration) error {
			b.show(changeOf(m), output.Safe(m.GetTenant())+": "+migrationLine(m), migrationLines(a.now(), m))
			return nil
		}
	}
	good, generation := a.now(), uint64(0)
	for first := true; ; first = false {
		if first || m.GetGeneration() != generation {
			generation = m.GetGeneration()
			if err := look(m); err != nil {
				return m, err
			}
		}
		if done(m) {
			return m, nil
		}
		if err := client.Pause(ctx, every); err != nil {
			return m, err
		}
		resp, err := call(ctx, s, "look at the migration "+m.GetId(), s.migrations.GetMigration, &fairleadv1.GetMigrationRequest{Id: m.GetId()})
		switch {
		case err == nil:
			m, good = resp.GetMigration(), a.now()
		case context.Cause(ctx) != nil:
			return m, context.Cause(ctx)
		case !passes(errors.Unwrap(err)) || a.now().Sub(good) > followPatience:
			return m, err
		default:
			b.say("unanswered", output.Safe(m.GetTenant())+": control does not answer; it is asked again: "+failure.Explain(err).Why)
		}
	}
}

// migrationLine says in a line where a migration stands.
func migrationLine(m *fairleadv1.Migration) string {
	text := migrationStateText(m.GetState())
	for _, l := range m.GetLanes() {
		if p := l.GetPhase(); p != fairleadv1.LanePhase_LANE_PHASE_AT_SOURCE && p != fairleadv1.LanePhase_LANE_PHASE_UNSPECIFIED {
			text += ", " + classText(l.GetClass()) + " " + lanePhaseText(p)
			if l.GetPause().AsDuration() > 0 {
				text += " (stood still for " + output.ProtoDuration(l.GetPause()) + ")"
			}
		}
	}
	if m.GetAttempt() > 1 {
		text += fmt.Sprintf(", attempt %d", m.GetAttempt())
	}
	if c := copiedText(m.GetProgress()); c != output.None && !migrationEnded(m) {
		text += "; copied " + c
	}
	if m.GetHeld() != "" {
		text += "; held: " + output.Safe(m.GetHeld())
	}
	return text
}

// changeOf is what about a migration is told at once when it changes, where there is no terminal: the rest is told now and then.
func changeOf(m *fairleadv1.Migration) string {
	text := fmt.Sprint(m.GetState(), m.GetAttempt(), m.GetHeld())
	for _, l := range m.GetLanes() {
		text += l.GetPhase().String()
	}
	return text
}

// step is one step of a migration as it is drawn.
type step struct {
	name  string
	share float64 // 0 to 1
	note  string
}

// migrationSteps are the steps of a migration with how far each is, as of now.
func migrationSteps(now time.Time, m *fairleadv1.Migration) []step {
	at := m.GetState()
	switch at { //nolint:exhaustive // every other state is of the way there
	case fairleadv1.MigrationState_MIGRATION_STATE_ABORTING, fairleadv1.MigrationState_MIGRATION_STATE_ABORTED:
		return []step{{"abort", reached(at, fairleadv1.MigrationState_MIGRATION_STATE_ABORTED), ""}}
	case fairleadv1.MigrationState_MIGRATION_STATE_REVERSING, fairleadv1.MigrationState_MIGRATION_STATE_ROLLED_BACK:
		return append(laneSteps(m, "take back "), step{"clean up", reached(at, fairleadv1.MigrationState_MIGRATION_STATE_ROLLED_BACK), ""})
	}
	steps := []step{
		{"prepare", reached(at, fairleadv1.MigrationState_MIGRATION_STATE_SEEDING), ""},
		{"copy", reached(at, fairleadv1.MigrationState_MIGRATION_STATE_CATCHING_UP), ""},
		{"catch up", reached(at, fairleadv1.MigrationState_MIGRATION_STATE_SHADOWING), ""},
		{"compare", reached(at, fairleadv1.MigrationState_MIGRATION_STATE_READY), ""},
		{"wait", reached(at, fairleadv1.MigrationState_MIGRATION_STATE_RAMPING), ""},
	}
	for i := range steps {
		if steps[i].share < 1 {
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
func running(s *step, m *fairleadv1.Migration) {
	g := m.GetProgress()
	switch m.GetState() { //nolint:exhaustive // the other states have steps of their own
	case fairleadv1.MigrationState_MIGRATION_STATE_DECLARED, fairleadv1.MigrationState_MIGRATION_STATE_ADMITTED, fairleadv1.MigrationState_MIGRATION_STATE_PROVISIONED:
		s.share = float64(m.GetState()) / float64(fairleadv1.MigrationState_MIGRATION_STATE_SEEDING)
		s.note = migrationStateText(m.GetState())
	case fairleadv1.MigrationState_MIGRATION_STATE_SEEDING:
		if total := g.GetJobsTotal(); total > 0 {
			s.share = min(1, float64(g.GetJobsCopied())/float64(total))
		}
		s.note = copiedText(g)
	case fairleadv1.MigrationState_MIGRATION_STATE_CATCHING_UP:
		if total := g.GetJobsTotal(); total > 0 {
			s.share = max(0, 1-float64(g.GetLagRecords())/float64(total))
		}
		s.note = lagText(m)
	case fairleadv1.MigrationState_MIGRATION_STATE_READY:
		s.note = output.Safe(m.GetNextStep())
	}
}

// laneSteps are the switches of the classes, in their order.
func laneSteps(m *fairleadv1.Migration, what string) []step {
	const fencing, committed, observing = 0.25, 0.5, 0.75
	steps := make([]step, 0, len(m.GetLanes()))
	for _, l := range m.GetLanes() {
		s := step{name: what + classText(l.GetClass())}
		switch l.GetPhase() {
		case fairleadv1.LanePhase_LANE_PHASE_FENCING, fairleadv1.LanePhase_LANE_PHASE_REVERSE_FENCING:
			s.share, s.note = fencing, "stands still"
		case fairleadv1.LanePhase_LANE_PHASE_COMMITTED, fairleadv1.LanePhase_LANE_PHASE_REVERSE_COMMITTED:
			s.share, s.note = committed, "given to "+output.Safe(l.GetOwner())
		case fairleadv1.LanePhase_LANE_PHASE_OBSERVING:
			s.share, s.note = observing, "served by "+output.Safe(l.GetOwner())+", watched"
		case fairleadv1.LanePhase_LANE_PHASE_MOVED, fairleadv1.LanePhase_LANE_PHASE_RETURNED:
			s.share, s.note = 1, "served by "+output.Safe(l.GetOwner())
		case fairleadv1.LanePhase_LANE_PHASE_AT_SOURCE, fairleadv1.LanePhase_LANE_PHASE_UNSPECIFIED:
		}
		if back := strings.HasPrefix(what, "take"); back { // what was never switched need not be taken back
			switch l.GetPhase() { //nolint:exhaustive // every other phase is as above
			case fairleadv1.LanePhase_LANE_PHASE_MOVED, fairleadv1.LanePhase_LANE_PHASE_OBSERVING, fairleadv1.LanePhase_LANE_PHASE_COMMITTED:
				s.share = 0
			case fairleadv1.LanePhase_LANE_PHASE_AT_SOURCE:
				s.share, s.note = 1, "was not switched"
			}
		}
		if d := l.GetPause().AsDuration(); d > 0 {
			s.note += ", stood still for " + output.Duration(d)
		}
		steps = append(steps, s)
	}
	return steps
}

// lastStep is the time in which a migration can be reversed, and its end.
func lastStep(now time.Time, m *fairleadv1.Migration) step {
	const draining = 0.5
	s := step{name: "let go"}
	switch m.GetState() { //nolint:exhaustive // not yet
	case fairleadv1.MigrationState_MIGRATION_STATE_CUT_OVER:
		s.note = "can be reversed"
		if w := m.GetOptions().GetRollbackWindow().AsDuration(); w > 0 && m.GetEnterTime() != nil {
			s.note += " for " + output.Duration(max(0, w-now.Sub(m.GetEnterTime().AsTime())))
		}
	case fairleadv1.MigrationState_MIGRATION_STATE_DRAINING:
		s.share, s.note = draining, output.Safe(m.GetSource())+" is wiped"
	case fairleadv1.MigrationState_MIGRATION_STATE_RELEASED:
		s.share = 1
	}
	return s
}

// doneShare is how much of all steps is done.
func doneShare(steps []step) float64 {
	sum := 0.0
	for _, s := range steps {
		sum += s.share
	}
	return sum / float64(len(steps))
}

// The sizes of what is drawn.
const (
	barWidth      = 24
	stepNameWidth = 18
	drawnWidth    = 100 // where no terminal says so
)

// bar draws a share as a bar with its percentage.
func bar(share float64) string {
	full := int(share * barWidth)
	return strings.Repeat("█", full) + strings.Repeat("░", barWidth-full) + fmt.Sprintf(" %3.0f %%", 100*share)
}

// migrationLines are the lines of a migration as they are drawn on a terminal.
func migrationLines(now time.Time, m *fairleadv1.Migration) []string {
	head := fmt.Sprintf("%s: %s -> %s, %s", output.Safe(m.GetTenant()), output.Safe(m.GetSource()), output.Safe(m.GetTarget()), migrationStateText(m.GetState()))
	if m.GetAttempt() > 1 {
		head += fmt.Sprintf(", attempt %d", m.GetAttempt())
	}
	lines := []string{head}
	for _, s := range migrationSteps(now, m) {
		line := fmt.Sprintf("  %-*s %s", stepNameWidth, s.name, bar(s.share))
		if s.note != "" && s.note != output.None {
			line += "  " + s.note
		}
		lines = append(lines, line)
	}
	if m.GetHeld() != "" {
		lines = append(lines, "  held: "+output.Safe(m.GetHeld()))
	}
	return lines
}

// block shows something that changes on standard error: on a terminal in place, elsewhere as lines, one for each change and now and then one for the
// rest.
type block struct {
	app    *app
	drawn  int    // lines on the terminal
	change string // that was told last
	told   time.Time
}

func (a *app) newBlock() *block { return &block{app: a} }

// show draws lines, or tells line when change differs from the last or nothing was told for long.
func (b *block) show(change, line string, lines []string) {
	if !b.app.talks {
		if change != b.change || b.app.now().Sub(b.told) >= progressElsewhere {
			b.tell(change, line)
		}
		return
	}
	b.change = change
	width := drawnWidth
	if w, _, err := term.GetSize(int(os.Stderr.Fd())); err == nil && w > 1 {
		width = w
	}
	var text strings.Builder
	if b.drawn > 0 {
		fmt.Fprintf(&text, "\x1b[%dA", b.drawn)
	}
	text.WriteString("\r\x1b[J")
	for _, l := range lines { // a line that the terminal broke would be two
		text.WriteString(output.Cut(l, width-1) + "\n")
	}
	b.drawn = len(lines)
	b.app.talkf("%s", text.String())
}

// say tells a line, once for a change, below what is drawn, which stays as it is.
func (b *block) say(change, line string) {
	if change != b.change {
		b.tell(change, line)
	}
	b.drawn = 0
}

func (b *block) tell(change, line string) {
	b.change, b.told = change, b.app.now()
	b.app.sayf("%s  %s", b.told.UTC().Format(time.TimeOnly), line)
}
