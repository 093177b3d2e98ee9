// Package policy reads a policy that is written in YAML: how a cell shares itself between classes and tenants, and what each organization
// and tenant is promised. One form serves a development server, the simulator and the planner, so that what was tried is what runs.
//
// It owns the form, its defaults and its checks; docs/policy.yaml in the repository is the form with every key. It refuses what it does
// not know: a misspelt key would otherwise be a promise that nobody keeps. All faults are told at once, each with its line.
//
// Invariant: a [File] that [Parse] returned is valid as a whole, so that its scheduler configuration, its organizations and then its
// tenants, in their order, are taken by whoever checks them again.
package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/sched"
)

// BytesMax bounds a policy's text: some 100,000 tenants.
const BytesMax = 16 << 20

// File is a policy as it was read.
type File struct {
	// Sched is how the cell schedules. What the text leaves out is as in [sched.DefaultConfig].
	Sched sched.Config
	// Costing is how time and resources become cost. Default: slot time.
	Costing cell.Costing
	// Organizations and Tenants are in the order of the text, each with epoch 1.
	Organizations []cell.OrganizationPolicy
	Tenants       []cell.TenantPolicy
	// Default is what a tenant is promised that the text does not name; its id is empty. Default: weight 1 and nothing else.
	Default cell.TenantPolicy
}

// TenantPolicy returns what a tenant is promised: its own policy, or the default under its id.
func (f File) TenantPolicy(id cell.TenantID) cell.TenantPolicy {
	for _, t := range f.Tenants {
		if t.Tenant == id {
			return t
		}
	}
	t := f.Default
	t.Tenant = id
	return t
}

// Default returns the policy of an empty text.
func Default() File {
	return File{Sched: sched.DefaultConfig(), Default: cell.TenantPolicy{Weight: cell.WeightDefault, Epoch: 1}}
}

// Fault is one thing that is wrong with a policy.
type Fault struct {
	File string // as it was given to Parse
	Line int    // 1 for the first; 0 when the policy as a whole is at fault
	cell.FieldError
}

func (f *Fault) Error() string {
	s := f.Problem
	if f.Field != "" {
		s = f.Field + " " + s
	}
	if f.Remedy != "" {
		s += ": " + f.Remedy
	}
	if f.Line == 0 {
		return f.File + ": " + s
	}
	return fmt.Sprintf("%s:%d: %s", f.File, f.Line, s)
}

// FaultsError is returned when a text is no valid policy. It has every fault that was found, at least one, in the order of the text.
type FaultsError struct{ Faults []*Fault }

func (e *FaultsError) Error() string {
	lines := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		lines[i] = f.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the faults.
func (e *FaultsError) Unwrap() []error {
	errs := make([]error, len(e.Faults))
	for i, f := range e.Faults {
		errs[i] = f
	}
	return errs
}

// Parse returns the policy that text says. name, such as the file's path, stands before each fault. It returns a *[FaultsError] when the
// text is not YAML, has a key that is none, a value out of bounds, or promises that do not fit in one another.
func Parse(name string, text []byte) (File, error) {
	r := newReader(name)
	f := Default()
	if len(text) > BytesMax {
		r.fault(0, "", fmt.Sprintf("has %d bytes, of at most %d", len(text), BytesMax), "leave out tenants that are promised the default")
		return File{}, r.err()
	}
	var document, second yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	if err := decoder.Decode(&document); err != nil && !errors.Is(err, io.EOF) {
		r.syntax(err)
		return File{}, r.err()
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		r.fault(second.Line, "", "there is a second document", "leave one")
	}
	if len(document.Content) > 0 {
		r.policy(document.Content[0], &f)
	}
	r.scheduler(f.Sched.Validate())
	if !r.inPromises() {
		r.nesting(&f)
	}
	if err := r.err(); err != nil {
		return File{}, err
	}
	return f, nil
}
