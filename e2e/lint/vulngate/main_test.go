package main

import (
	"errors"
	"strings"
	"testing"
)

func TestJudge(t *testing.T) {
	const (
		sbom   = `{"SBOM":{"modules":[{"path":"example.com/ours"}]}}`
		osv    = `{"osv":{"id":"GO-1","summary":"panics"}}`
		called = `{"finding":{"osv":"GO-1","fixed_version":"v1.2.1","trace":[` +
			`{"module":"example.com/lib","version":"v1.2.0","package":"example.com/lib/p","function":"Parse"},{"module":"example.com/ours"}]}}`
		inPackage = `{"finding":{"osv":"GO-1","trace":[{"module":"example.com/lib","package":"example.com/lib/p"}]}}`
		inModule  = `{"finding":{"osv":"GO-2","trace":[{"module":"example.com/lib"}]}}`
	)
	cases := map[string]struct {
		input string
		pass  bool
		want  []string
	}{
		"clean": {sbom, true, []string{"0 reached in dependencies, 0 in the standard library of this toolchain, 0 not called"}},
		"called": {
			sbom + osv + inPackage + called, false,
			[]string{"FAIL GO-1 example.com/lib v1.2.0 (fixed in v1.2.1) example.com/lib/p.Parse: panics", "1 reached in dep", "0 not called"},
		},
		"in the standard library": {
			sbom + osv + strings.Replace(called, "example.com/lib", "stdlib", 1), true,
			[]string{"note GO-1 stdlib", "0 reached in dep", "1 in the standard"},
		},
		"not called": {sbom + osv + inPackage + inModule, true, []string{"0 reached in dep", "2 not called"}},
		"no cure":    {sbom + strings.Replace(called, "v1.2.1", "", 1), false, []string{"(fixed in no release)"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r, err := read(strings.NewReader(c.input))
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			if pass := judge(&out, r); pass != c.pass {
				t.Errorf("pass = %v, want %v", pass, c.pass)
			}
			for _, w := range c.want {
				if !strings.Contains(out.String(), w) {
					t.Errorf("the output lacks %q:\n%s", w, out.String())
				}
			}
		})
	}
}

func TestReadRefusesWhatIsNoReport(t *testing.T) {
	if _, err := read(strings.NewReader("")); !errors.Is(err, errNoScan) {
		t.Errorf("empty input: %v, want %v", err, errNoScan)
	}
	if _, err := read(strings.NewReader(`{"config":{}}`)); !errors.Is(err, errNoScan) {
		t.Errorf("a scan that broke off: %v, want %v", err, errNoScan)
	}
	if _, err := read(strings.NewReader("govulncheck: no such db")); err == nil {
		t.Error("text: no error")
	}
}
