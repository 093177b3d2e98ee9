package main

import (
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cmd/fairlead/failure"
)

// TestDemoUsage gives demo what it must refuse before it starts anything.
func TestDemoUsage(t *testing.T) {
	inEmptyDir(t)
	for name, tc := range map[string]struct {
		args []string
		want []string
	}{
		"argument":      {[]string{"x"}, []string{"takes no argument, and got \"x\""}},
		"several":       {[]string{"--slots", "0", "--bulk-jobs", "-1"}, []string{"the request has 2 faults", "--slots is 0, outside 1 to 256", "--bulk-jobs is -1, outside 1 to"}},
		"tenants":       {[]string{"--quiet-tenants", "501"}, []string{"--quiet-tenants is 501, outside 1 to 500"}},
		"service":       {[]string{"--service", "soon"}, []string{"--service cannot be \"soon\"", "write it as 100ms or 2s"}},
		"long service":  {[]string{"--service", "60001"}, []string{"--service is 1m0.001s, outside 1ms to 1m0s"}},
		"much work":     {[]string{"--service", "1m"}, []string{"means 59m30s of work for each policy, of at most 10m0s"}},
		"names":         {[]string{"-o", "name"}, []string{"use table, json or yaml"}},
		"program alone": {[]string{"--exec", "cat"}, []string{"--exec has no files to run on", "--dir"}},
		"no folder":     {[]string{"--dir", "nowhere"}, []string{"--dir cannot be read: no such file or directory"}},
		"cluster":       {[]string{"--cluster", "--slots", "3"}, []string{"--cluster and --slots cannot stand together"}},
		"cluster names": {[]string{"--cluster", "-o", "name"}, []string{"use table, json or yaml"}},
		"whale":         {[]string{"--whale", "--bulk-jobs", "3"}, []string{"--whale and --bulk-jobs cannot stand together"}},
		"whale names":   {[]string{"--whale", "-o", "name"}, []string{"use table, json or yaml"}},
		"two clusters":  {[]string{"--whale", "--cluster"}, []string{"--cluster and --whale cannot stand together"}},
		"both kinds":    {[]string{"--dir", ".", "--seed", "3"}, []string{"--dir and --seed cannot stand together"}},
	} {
		t.Run(name, func(t *testing.T) {
			a, out, talk := fakeApp("")
			if code := a.execute(t.Context(), append([]string{"demo"}, tc.args...)); code != failure.Usage {
				t.Errorf("exit code %d, want %d", code, failure.Usage)
			}
			if out.Len() > 0 {
				t.Errorf("standard output has %q", out)
			}
			for _, want := range tc.want {
				if !strings.Contains(talk.String(), want) {
					t.Errorf("standard error lacks %q:\n%s", want, talk)
				}
			}
		})
	}
}

func TestServiceValue(t *testing.T) {
	for in, want := range map[string]time.Duration{"20": 20 * time.Millisecond, "20ms": 20 * time.Millisecond, "1.5s": 1500 * time.Millisecond, "0": 0} {
		v := &serviceValue{}
		if err := v.Set(in); err != nil || v.d != want {
			t.Errorf("%q is %v, %v; want %v", in, v.d, err, want)
		}
	}
}

// TestDemoProcessesNeedTheirParent: the hidden commands do nothing for a person who finds them.
func TestDemoProcessesNeedTheirParent(t *testing.T) {
	inEmptyDir(t)
	for _, command := range []string{"demo-server", "demo-worker", "demo-member"} {
		a, out, talk := fakeApp("hello\n")
		if code := a.execute(t.Context(), []string{command}); code != failure.Failed || !strings.Contains(talk.String(), "is for fairlead demo") {
			t.Errorf("%s ends with %d and %q", command, code, talk)
		}
		if out.Len() > 0 {
			t.Errorf("%s says %q", command, out)
		}
	}
}
