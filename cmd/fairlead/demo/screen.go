package demo

import (
	"context"
	"fmt"
	"io"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"

	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
)

// Screen is where a run is shown while it goes on.
type Screen struct {
	// Out is a terminal that the live view is drawn on; nil when there is none.
	Out io.Writer
	// In is the keyboard of that terminal; nil when there is none. Then Ctrl-C arrives as a signal, which is the caller's.
	In io.Reader
	// Plain keeps colours off the live view.
	Plain bool
	// Talk gets a line now and then when there is no live view.
	Talk io.Writer
}

// The pace of what is shown.
const (
	tick         = 100 * time.Millisecond
	talkInterval = 2 * time.Second
)

// start shows b until the function that it returns is called, which waits until the last state is on the screen. interrupt is called when
// somebody presses Ctrl-C, or when the view cannot be drawn.
func (s Screen) start(b *board, interrupt context.CancelCauseFunc) (stop func() error) {
	if s.Out == nil {
		return s.talk(b)
	}
	options := []tea.ProgramOption{tea.WithOutput(s.Out), tea.WithInput(s.In), tea.WithoutSignalHandler()}
	if s.Plain {
		options = append(options, tea.WithColorProfile(colorprofile.ASCII))
	}
	p := tea.NewProgram(model{board: b, interrupt: interrupt}, options...)
	ended := make(chan error, 1)
	go func() {
		_, err := p.Run()
		if err != nil {
			err = fmt.Errorf("drawing the view: %w", err)
			interrupt(err)
		}
		ended <- err
	}()
	return func() error {
		p.Send(overMsg{}) // it returns at once when the program has ended
		return <-ended
	}
}

// talk writes lines instead of drawing.
func (s Screen) talk(b *board) func() error {
	fmt.Fprintln(s.Talk, b.title)
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(tick)
		defer t.Stop()
		l := lines{out: s.Talk, said: make(map[string]phase)}
		for {
			select {
			case now := <-t.C:
				l.say(b, now)
			case <-stop:
				l.say(b, time.Now())
				return
			}
		}
	}()
	return func() error {
		close(stop)
		<-ended
		return nil
	}
}

// lines writes what is new on a board.
type lines struct {
	out  io.Writer
	said map[string]phase
	last time.Time
}

func (l *lines) say(b *board, now time.Time) {
	for _, s := range b.states(now) {
		changed := l.said[s.policy] != s.phase
		l.said[s.policy] = s.phase
		switch {
		case changed && s.phase == phaseStarting:
			fmt.Fprintf(l.out, "%s: starting a server and workers\n", s.policy)
		case changed && s.phase == phaseDone, s.phase == phaseRunning && (changed || now.Sub(l.last) >= talkInterval):
			fmt.Fprintf(l.out, "%s: %s, %s %d/%d", s.policy, phaseText(s), output.Safe(s.bulk), s.bulkDone, s.bulkTotal)
			if s.restTotal > 0 {
				fmt.Fprintf(l.out, ", %s %d/%d with a wait of at most %s so far", s.rest, s.restDone, s.restTotal, seconds(s.waitWorst))
			}
			fmt.Fprintf(l.out, ", %d/%d slots busy\n", s.busy, s.slots)
			l.last = now
		}
	}
}

// model is the live view as bubbletea runs it: the board as of the last tick.
type model struct {
	board     *board
	interrupt context.CancelCauseFunc
	size      size
	stopping  bool
	over      bool
}

type (
	tickMsg struct{}
	overMsg struct{}
)

func nextTick() tea.Cmd { return tea.Tick(tick, func(time.Time) tea.Msg { return tickMsg{} }) }

// Init implements tea.Model.
func (m model) Init() tea.Cmd { return nextTick() }

// Update implements tea.Model.
func (m model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.size = size{msg.Width, msg.Height}
	case tickMsg:
		return m, nextTick()
	case overMsg:
		m.over = true
		return m, tea.Quit
	case tea.KeyPressMsg:
		if msg.String() == "ctrl+c" {
			m.stopping = true
			m.interrupt(failure.ErrInterrupted)
		}
	}
	return m, nil
}

// View implements tea.Model.
func (m model) View() tea.View {
	if m.size.width == 0 {
		return tea.NewView("")
	}
	message := "Ctrl-C stops."
	switch {
	case m.over:
		message = ""
	case m.stopping:
		message = "Stopping: ending the processes."
	}
	return tea.NewView(frame(m.board.title, m.board.states(time.Now()), message, m.board.expected, m.size))
}

// title says what is run.
func title(c Config, w *workload) string {
	if w.folder != "" {
		return fmt.Sprintf("%d files of %d tenants, %d slots", len(w.jobs), len(w.tenants), c.Slots)
	}
	return fmt.Sprintf("%d jobs of one tenant, %d of each of %d others; %s each, %d slots", c.BulkJobs, QuietJobsEach, c.QuietTenants,
		seconds(c.Service), c.Slots)
}
