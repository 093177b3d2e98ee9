package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/fairlead/fairlead/cmd/fairlead/config"
	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
)

// app is one run of the command: its streams, its clock, and what its flags said.
type app struct {
	in       io.Reader
	out, err io.Writer
	// talks is true when standard error is a terminal: then hints and progress are shown.
	talks bool
	// screen is true when standard output is a terminal.
	screen bool
	color  bool
	now    func() time.Time
	// serveAgent runs an agent until its context ends, and hangups brings the signals that make it read its configuration again.
	serveAgent func(context.Context, agentRun) error
	hangups    func() (<-chan os.Signal, func())

	configFile string
	parsed     bool // the command line was understood
}

func newApp() *app {
	talks := term.IsTerminal(int(os.Stderr.Fd()))
	return &app{
		in: os.Stdin, out: os.Stdout, err: os.Stderr,
		talks:  talks,
		screen: term.IsTerminal(int(os.Stdout.Fd())),
		color:  talks && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
		now:    time.Now,

		serveAgent: serveAgent,
		hangups:    hangups,
	}
}

// execute runs the command that args name, shows what went wrong, and returns the exit code.
func (a *app) execute(ctx context.Context, args []string) failure.Code {
	root := a.rootCommand()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return failure.OK
	}
	p := failure.Explain(err)
	if !a.parsed && p.Code == failure.Failed { // the command line's own errors have no type
		p.Code = failure.Usage
		p.Remedy = "see: fairlead --help"
	}
	a.complain(p)
	return p.Code
}

// complain shows a problem on standard error: what, why, and what to do, each on lines of its own.
func (a *app) complain(p *failure.Problem) {
	label := "Error:"
	if a.color {
		label = "\x1b[31mError:\x1b[0m"
	}
	if p.What == "" {
		return // all has been said already
	}
	a.sayf("%s %s", label, output.SafeText(p.What))
	for _, part := range []struct{ name, text string }{{"Why", p.Why}, {"Do", p.Remedy}} {
		if part.text != "" {
			a.sayf("  %-4s %s", part.name+":", strings.ReplaceAll(output.SafeText(part.text), "\n", "\n       "))
		}
	}
}

// sayf writes a line of talk to standard error.
func (a *app) sayf(format string, args ...any) {
	fmt.Fprintf(a.err, format+"\n", args...)
}

// talkf writes a piece of talk that goes on in the same line.
func (a *app) talkf(format string, args ...any) {
	fmt.Fprintf(a.err, format, args...)
}

// next tells people at a terminal what they may want to do after a change.
func (a *app) next(format string, args ...any) {
	if a.talks {
		a.sayf("Next: "+format, args...)
	}
}

// load reads the configuration for cmd and checks what every command uses.
func (a *app) load(cmd *cobra.Command) (*config.Loaded, error) {
	l, err := config.Load(cmd.Flags(), a.configFile)
	if err != nil {
		return nil, err
	}
	return l, l.Check(l.Config.Client.Validate())
}

// printer returns where the answer goes, in the format that was asked for.
func (a *app) printer(l *config.Loaded) *output.Printer {
	return &output.Printer{Out: a.out, Format: output.Format(l.Config.Client.Output)}
}
