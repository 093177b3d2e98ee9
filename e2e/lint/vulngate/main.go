// Command vulngate judges what govulncheck found.
//
// It reads `govulncheck -format json` from standard input and prints one line for each vulnerability whose code the project
// reaches. One in a dependency fails (exit code 1): a newer version, or another library, is the project's to choose. One in the
// standard library is printed and passes: the cure is the toolchain of whoever builds, and a source tree cannot choose that.
// Vulnerabilities in code that is never called are counted only. Input that is no such report exits with 2, so that a scan
// which broke off is not taken for a clean one.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
)

const stdlib = "stdlib"

// errNoScan is returned when the input ends before govulncheck said what it scanned.
var errNoScan = errors.New("the report names no scanned module: govulncheck did not run to its end")

// message is the part of govulncheck's stream that matters here; each message has one of the fields.
type message struct {
	SBOM *struct {
		Modules []struct{} `json:"modules"`
	} `json:"SBOM"`
	OSV *struct {
		ID      string `json:"id"`
		Summary string `json:"summary"`
	} `json:"osv"`
	Finding *struct {
		OSV   string `json:"osv"`
		Fixed string `json:"fixed_version"`
		// Trace leads from the vulnerable symbol, first, to the code of ours that reaches it.
		Trace []struct {
			Module   string `json:"module"`
			Version  string `json:"version"`
			Package  string `json:"package"`
			Function string `json:"function"`
		} `json:"trace"`
	} `json:"finding"`
}

// reached is a vulnerability whose code is called.
type reached struct {
	module, version, fixed, symbol, summary string
}

type report struct {
	reached  map[string]reached // By the vulnerability's id.
	uncalled map[string]bool
}

// read collects a report. It returns errNoScan for a stream that has no list of modules.
func read(r io.Reader) (report, error) {
	out := report{reached: map[string]reached{}, uncalled: map[string]bool{}}
	summaries := map[string]string{}
	scanned := false
	for dec := json.NewDecoder(r); ; {
		var m message
		err := dec.Decode(&m)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return report{}, fmt.Errorf("read govulncheck's report: %w", err)
		}
		scanned = scanned || m.SBOM != nil && len(m.SBOM.Modules) > 0
		if m.OSV != nil {
			summaries[m.OSV.ID] = m.OSV.Summary
		}
		if m.Finding == nil || len(m.Finding.Trace) == 0 {
			continue
		}
		at := m.Finding.Trace[0]
		if at.Function == "" {
			out.uncalled[m.Finding.OSV] = true
			continue
		}
		out.reached[m.Finding.OSV] = reached{
			module: at.Module, version: at.Version, fixed: m.Finding.Fixed,
			symbol: at.Package + "." + at.Function, summary: summaries[m.Finding.OSV],
		}
	}
	if !scanned {
		return report{}, errNoScan
	}
	// The same vulnerability is also reported for its package and its module.
	maps.DeleteFunc(out.uncalled, func(id string, _ bool) bool { _, ok := out.reached[id]; return ok })
	return out, nil
}

// judge prints the report and says whether it passes.
func judge(w io.Writer, r report) bool {
	fail, notes := 0, 0
	for _, id := range slices.Sorted(maps.Keys(r.reached)) {
		v := r.reached[id]
		word := "FAIL"
		if v.module == stdlib {
			word, notes = "note", notes+1
		} else {
			fail++
		}
		fixed := v.fixed
		if fixed == "" {
			fixed = "no release"
		}
		fmt.Fprintf(w, "%s %s %s %s (fixed in %s) %s: %s\n", word, id, v.module, v.version, fixed, v.symbol, v.summary)
	}
	fmt.Fprintf(w, "%d reached in dependencies, %d in the standard library of this toolchain, %d not called\n",
		fail, notes, len(r.uncalled))
	return fail == 0
}

func main() {
	r, err := read(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, "vulngate:", err)
		os.Exit(2)
	}
	if !judge(os.Stdout, r) {
		os.Exit(1)
	}
}
