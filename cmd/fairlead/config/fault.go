package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/cell"
)

// Fault is one thing that is wrong with the configuration.
type Fault struct {
	Key     string // the key's path, such as worker.slots; empty when the file as a whole is at fault
	Source  string // where the value came from; filled in by [Loaded.Check] when empty
	Problem string // what is wrong, with the value and the bound
	Remedy  string // what to do
}

func (f Fault) String() string {
	s := f.Problem
	if f.Key != "" {
		s = f.Key + " " + s
	}
	if f.Source != "" {
		s = f.Source + ": " + s
	}
	if f.Remedy != "" {
		s += ": " + f.Remedy
	}
	return s
}

// FaultsError is returned when the configuration cannot be used. It has every fault that was found, at least one.
type FaultsError struct {
	Faults []Fault
}

func (e *FaultsError) Error() string {
	lines := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

func faultf(key, remedy, format string, args ...any) Fault {
	return Fault{Key: key, Problem: fmt.Sprintf(format, args...), Remedy: remedy}
}

// fieldFault returns the fault that a check of the vocabulary found.
func fieldFault(err error) Fault {
	if fe, ok := errors.AsType[*cell.FieldError](err); ok {
		return Fault{Key: fe.Field, Problem: fe.Problem, Remedy: fe.Remedy}
	}
	return Fault{Problem: err.Error()}
}
