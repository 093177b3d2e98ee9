package localcluster

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
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
	// Talk gets a line for whatever happens when there is no live view.
	Talk io.Writer
}

// The pace of what is shown.
const (
	tick         = 100 * time.Millisecond
	talkInterval = 3 * time.Second
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
		l := lines{out: s.Talk}
		for {
			select {
			case now := <-t.C:
				l.say(b.state(now))
			case <-stop:
				l.say(b.state(time.Now()))
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
	said int
	last time.Duration
}

func (l *lines) say(s state) {
	for _, e := range s.events[l.said:] {
		fmt.Fprintln(l.out, eventText(e))
	}
	l.said = len(s.events)
	if len(s.tenants) == 0 || s.elapsed-l.last < talkInterval {
		return
	}
	l.last = s.elapsed
	parts := make([]string, 0, len(s.tenants))
	for _, t := range s.tenants {
		parts = append(parts, tenantText(t))
	}
	fmt.Fprintln(l.out, eventText(event{s.elapsed, strings.Join(parts, "; ")}))
}

func eventText(e event) string { return fmt.Sprintf("%5.1f s  %s", e.at.Seconds(), e.text) }

func tenantText(t tally) string {
	text := fmt.Sprintf("%s: %d accepted, %d completed, %d errors", t.tenant.Name, t.accepted, t.completed, t.errors)
	if t.waiting > submitInterval {
		text += ", waiting for " + seconds(t.waiting)
	}
	if t.note != "" {
		text += ", " + t.note
	}
	return text
}

func seconds(d time.Duration) string { return output.Duration(d) }

// model is the live view as bubbletea runs it: the board as of the last tick.
type model struct {
	board         *board
	interrupt     context.CancelCauseFunc
	width, height int
	stopping      bool
	over          bool
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
		m.width, m.height = msg.Width, msg.Height
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
	if m.width == 0 {
		return tea.NewView("")
	}
	message := "Ctrl-C stops."
	switch {
	case m.over:
		message = ""
	case m.stopping:
		message = "Stopping: ending the processes."
	}
	return tea.NewView(frame(m.board.title, m.board.state(time.Now()), message, m.width, m.height))
}

// eventRows is how many rows of the last events the view shows, and the room for them, so that nothing jumps.
const eventRows = 8

// frame draws the view, at most as large as the terminal: a frame that is higher would leave its upper part behind with every tick.
func frame(title string, s state, message string, width, height int) string {
	rows := []string{lipgloss.NewStyle().Bold(true).Render(cut(title, width)), ""}
	for _, a := range s.agents {
		style, what := lipgloss.NewStyle(), "follows"
		switch {
		case a.down:
			style, what = style.Foreground(lipgloss.Red), "killed"
		case a.leads:
			style, what = style.Foreground(lipgloss.Green), "leads"
		case a.Role == roleGateway:
			what = "serves"
		}
		rows = append(rows, style.Render(cut(fmt.Sprintf("  %-12s  %-7s  %s", a.Name, a.Role, what), width)))
	}
	rows = append(rows, "")
	for _, t := range s.tenants {
		style := lipgloss.NewStyle()
		if t.waiting > submitInterval {
			style = style.Foreground(lipgloss.Yellow)
		}
		where := ""
		if t.tenant.Cell != "" {
			where = fmt.Sprintf("%-6s in %s  ", t.tenant.Name, t.tenant.Cell)
		}
		rows = append(rows, style.Render(cut("  "+where+tenantText(t), width)))
	}
	rows = append(rows, "")
	for _, line := range s.drawn {
		rows = append(rows, cut("  "+line, width))
	}
	if len(s.drawn) > 0 {
		rows = append(rows, "")
	}
	events := lastRows(s.events, width)
	rows = append(rows, events...)
	for range eventRows - len(events) {
		rows = append(rows, "")
	}
	rows = append(rows, lipgloss.NewStyle().Faint(true).Render(cut(message, width)))
	if over := len(rows) - max(1, height-1); over > 0 {
		rows = rows[over:]
	}
	return strings.Join(rows, "\n")
}

// lastRows are the rows of the last events, of which none is cut off: what somebody said stands there as it was said.
func lastRows(events []event, width int) []string {
	const indent = "         " // of what goes on below the text of an event
	var rows []string
	for _, e := range events[max(0, len(events)-eventRows):] {
		text := eventText(e)
		if len(text) > width && width > 2*len(indent) {
			text = strings.ReplaceAll(wrap(text, width-len(indent)), "\n", "\n"+indent)
		}
		for row := range strings.SplitSeq(text, "\n") {
			rows = append(rows, cut(row, width))
		}
	}
	return rows[max(0, len(rows)-eventRows):]
}

// cut shortens a text, which has only characters of one column, to width columns.
func cut(s string, width int) string {
	if r := []rune(s); len(r) > width && width > 0 {
		return string(r[:width-1]) + "…"
	}
	return s
}
