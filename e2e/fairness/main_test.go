package fairness

import (
	"flag"
	"os"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// casesVar says how many random workloads each property is tried on, where the default is what takes seconds.
const casesVar = "FAIRLEAD_FAIRNESS_CASES"

// seed makes the usual workloads the same on every machine, so that whoever changes something else is not stopped by a workload that nobody
// has met before. New ones are met when the environment says how many, or -rapid.seed which.
const seed = "20261130"

// cases tries a property on random workloads: on the usual number of them, on a tenth of it with -short, or on as many as the environment
// says.
func cases(t *testing.T, usual int, property func(*rapid.T)) {
	t.Helper()
	n := usual
	if testing.Short() {
		n = max(1, usual/10)
	}
	if text := os.Getenv(casesVar); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 1 {
			t.Fatalf("%s is %q: give a number above 0", casesVar, text)
		}
	} else if f := flag.Lookup("rapid.seed"); f.Value.String() == f.DefValue {
		if err := f.Value.Set(seed); err != nil {
			t.Fatal(err)
		}
	}
	// rapid reads the flag when a check begins, and tests of this package do not run in parallel.
	if err := flag.Set("rapid.checks", strconv.Itoa(n)); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, property)
}

// tester is what a testing.T and a rapid.T have in common.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}
