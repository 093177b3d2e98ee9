package failure

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// ErrInterrupted is the cause of a context that a signal cancelled.
var ErrInterrupted = errors.New("interrupted")

// Problem is an error as it is shown. Parts that are empty are left out.
type Problem struct {
	Code   Code
	What   string // what happened
	Why    string // why, with the value and the bound
	Remedy string // what to do
	Err    error  // what it was made from; may be nil
}

func (p *Problem) Error() string {
	parts := make([]string, 0, 3)
	for _, s := range []string{p.What, p.Why, p.Remedy} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	return strings.Join(parts, ": ")
}

// Unwrap returns what the problem was made from.
func (p *Problem) Unwrap() error { return p.Err }

// Usagef returns a problem of the command line: what is wrong with it by format and args, and what to do instead.
func Usagef(remedy, format string, args ...any) *Problem {
	return &Problem{Code: Usage, What: fmt.Sprintf(format, args...), Remedy: remedy}
}

// Call is an API call that did not end well: what was being done, with whom, as whom.
type Call struct {
	Doing    string // a phrase such as "submit the job"
	Addr     string
	Identity string // whose key was sent; empty for none
	Remedy   string // replaces the usual advice when the outcome is unknown
	Err      error
}

func (c *Call) Error() string { return fmt.Sprintf("%s: %v", c.Doing, c.Err) }

// Unwrap returns the call's error.
func (c *Call) Unwrap() error { return c.Err }

// interrupted reports whether err is, or was caused by, a signal.
func interrupted(err error) bool {
	return errors.Is(err, ErrInterrupted) || errors.Is(err, context.Canceled)
}
