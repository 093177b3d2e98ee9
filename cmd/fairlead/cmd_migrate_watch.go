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
	"github.com/fairlead/fairlead/cmd/fairlead/moveview"
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
			b.show(moveview.Change(m), output.Safe(m.GetTenant())+": "+moveview.Line(m), moveview.Lines(a.now(), m))
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

// drawnWidth is how wide it is drawn where no terminal says so.
const drawnWidth = 100

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
