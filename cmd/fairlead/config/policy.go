package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/cell/policy"
	"github.com/fairlead/fairlead/cell/sched"
)

// ReadPolicy returns the policy that Policy names: one with a name and all defaults, or what a file says, whose path is one of the
// working directory. It returns every fault, each with its line in the file.
func (d Dev) ReadPolicy() (policy.File, []Fault) { return readPolicy("dev.policy", d.Policy) }

// readPolicy is ReadPolicy for the value of key.
func readPolicy(key, value string) (policy.File, []Fault) {
	if slices.Contains(Policies(), value) {
		p, err := sched.ParsePolicy(key, value)
		if err != nil {
			return policy.File{}, []Fault{fieldFault(err)}
		}
		f := policy.Default()
		f.Sched.Policy = p
		return f, nil
	}
	if _, err := os.Stat(value); value == "" || err != nil && !looksLikeFile(value) {
		f := enumFault(key, value, Policies())
		f.Remedy += ", or a policy file"
		return policy.File{}, []Fault{f}
	}
	text, err := readBounded(value, policy.BytesMax)
	if err != nil {
		return policy.File{}, []Fault{faultf(key, "name another file, or "+strings.Join(Policies(), " or "), "cannot be read: %v", err)}
	}
	f, err := policy.Parse(value, text)
	faults, ok := errors.AsType[*policy.FaultsError](err)
	if err == nil {
		return f, nil
	}
	if !ok {
		return policy.File{}, []Fault{faultf(key, "", "cannot be used: %v", err)}
	}
	return policy.File{}, policyFaults(faults)
}

// looksLikeFile reports whether s is more likely the path of a file than a misspelt word.
func looksLikeFile(s string) bool {
	return strings.ContainsRune(s, filepath.Separator) || filepath.Ext(s) != ""
}

func policyFaults(e *policy.FaultsError) []Fault {
	var faults []Fault
	for _, f := range e.Faults {
		source := f.File
		if f.Line != 0 {
			source = fmt.Sprintf("%s:%d", f.File, f.Line)
		}
		faults = append(faults, Fault{Key: f.Field, Source: source, Problem: f.Problem, Remedy: f.Remedy})
	}
	return faults
}
