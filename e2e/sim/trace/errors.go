package trace

import (
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/cell"
)

// SyntaxError is returned when a trace is not what its form wants. Nothing of the trace is used.
type SyntaxError struct {
	Form    Form
	Line    int    // from 1
	Column  int    // in bytes from 1, of what is wrong; 0 for the whole line
	Field   string // the column's name, where there is one
	Problem string
	Remedy  string
}

func (e *SyntaxError) Error() string {
	at := fmt.Sprintf("line %d", e.Line)
	if e.Column > 0 {
		at += fmt.Sprintf(", column %d", e.Column)
	}
	if e.Field != "" {
		at += ": " + e.Field
	}
	return fmt.Sprintf("%s: %s: %s", at, e.Problem, e.Remedy)
}

// problem is what is wrong with a field, before its place is known.
type problem struct{ problem, remedy string }

func (p *problem) Error() string { return p.problem + ": " + p.remedy }

func wrong(remedy, format string, args ...any) error {
	return &problem{problem: fmt.Sprintf(format, args...), remedy: remedy}
}

// at places what is wrong with a field. Errors of the vocabulary keep their words.
func at(form Form, line, column int, field string, err error) error {
	e := &SyntaxError{Form: form, Line: line, Column: column, Field: field, Problem: err.Error(), Remedy: "see the trace's form"}
	var p *problem
	var f *cell.FieldError
	switch {
	case errors.As(err, &p):
		e.Problem, e.Remedy = p.problem, p.remedy
	case errors.As(err, &f):
		e.Problem, e.Remedy = f.Problem, f.Remedy
	}
	return e
}
