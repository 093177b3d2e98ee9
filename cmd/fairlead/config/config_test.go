package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cmd/fairlead/config"
)

// isolate makes an empty folder the working one, with no configuration in reach.
func isolate(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "none"))
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, config.EnvPrefix) {
			t.Setenv(name, "")
		}
	}
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestDefaultsAreValid(t *testing.T) {
	isolate(t)
	l, err := config.Load(nil, "")
	if err != nil {
		t.Fatal(err)
	}
	c := l.Config
	if !reflect.DeepEqual(c, config.Default()) {
		t.Errorf("nothing set gives %+v, not the defaults", c)
	}
	if err := l.Check(c.Client.Validate(), c.Worker.Validate(), c.Dev.Validate()); err != nil {
		t.Error(err)
	}
}

// samples are values of each type that differ from the defaults, as they stand in a file and in a variable.
func sample(k config.Key, n int) string {
	switch {
	case strings.HasSuffix(k.Path, "lease"), strings.HasSuffix(k.Path, "timeout"), strings.HasSuffix(k.Path, "stale-max"), strings.HasSuffix(k.Path, "park-max"),
		strings.HasSuffix(k.Path, "delay"), strings.HasSuffix(k.Path, "demand-hour"):
		return fmt.Sprintf("%dm", n+10)
	case strings.HasSuffix(k.Path, "slots"), strings.HasSuffix(k.Path, "prefetch"), strings.HasSuffix(k.Path, "group"):
		return fmt.Sprint(n + 100)
	case strings.Contains(k.Path, "allow-"), strings.HasSuffix(k.Path, "echo"), strings.HasSuffix(k.Path, "auto"):
		return "true"
	default:
		return fmt.Sprintf("text%d", n)
	}
}

// TestEveryKeyFromEverySource: each key can be set by a file, by its variable over that, and by a flag over both, and says so.
func TestEveryKeyFromEverySource(t *testing.T) {
	for _, k := range config.Keys() {
		t.Run(k.Path, func(t *testing.T) {
			isolate(t)
			var text strings.Builder
			for depth, name := range strings.Split(k.Path, ".") {
				if depth > 0 {
					text.WriteString("\n")
				}
				text.WriteString(strings.Repeat("  ", depth) + name + ":")
			}
			text.WriteString(" " + sample(k, 1) + "\n")
			file := write(t, "x.yaml", text.String())
			flags := pflag.NewFlagSet("x", pflag.ContinueOnError)
			flags.String("the-flag", "", "")
			config.BindFlag(flags.Lookup("the-flag"), k.Path)
			expect := func(n int, source string) {
				t.Helper()
				l, err := config.Load(flags, file)
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range l.Settings() {
					want := sample(k, n)
					if k.Path == "token" {
						want = "(set)"
					}
					if s.Key == k.Path && (s.Value != want || !strings.HasPrefix(s.Source, source)) {
						t.Errorf("%s from %s, want %s from %s", s.Value, s.Source, want, source)
					}
					if s.Key != k.Path && s.Source != "" {
						t.Errorf("%s comes from %s", s.Key, s.Source)
					}
				}
			}
			expect(1, "x.yaml:")
			t.Setenv(k.Env(), sample(k, 2))
			expect(2, "env "+k.Env())
			if err := flags.Set("the-flag", sample(k, 3)); err != nil {
				t.Fatal(err)
			}
			expect(3, "flag --the-flag")
		})
	}
}

// TestFilesAreRead: whatever stands in a file, reading ends with a configuration or with faults that name the file.
func TestFilesAreRead(t *testing.T) {
	isolate(t)
	var names []string
	for _, k := range config.Keys() {
		section, name, _ := strings.Cut(k.Path, ".")
		names = append(names, section, name, k.Path)
	}
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.OneOf(rapid.SampledFrom(names), rapid.SampledFrom([]string{"", "&a", "*a", "<<", "[", "{", "- x", "!!int 3", "~", "0x1f", "1e9", "true", "|", "'"}), rapid.StringN(0, 6, -1))
		var b strings.Builder
		for range rapid.IntRange(0, 6).Draw(t, "lines") {
			fmt.Fprintf(&b, "%s%s: %s\n", strings.Repeat("  ", rapid.IntRange(0, 2).Draw(t, "indent")), word.Draw(t, "key"), word.Draw(t, "value"))
		}
		if err := os.WriteFile("x.yaml", []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := config.Load(nil, "x.yaml")
		if err == nil {
			return
		}
		faults, ok := errors.AsType[*config.FaultsError](err)
		if !ok || len(faults.Faults) == 0 {
			t.Fatalf("%q: %v", b.String(), err)
		}
		for _, f := range faults.Faults {
			if !strings.HasPrefix(f.Source, "x.yaml") || f.Problem == "" {
				t.Fatalf("%q: the fault %+v does not say where or what", b.String(), f)
			}
		}
	})
}

func TestFileFaults(t *testing.T) {
	isolate(t)
	for text, want := range map[string]string{
		"worker: {slots: 3, slots: 4}":      "stands twice",
		"worker:\n  slots: 1\nworker: {}":   "stands twice",
		"addr: [a]":                         "addr is not a single value",
		"worker: 3":                         "worker is not a mapping",
		"worker: {operation: [[a]]}":        "has an item that is not a text",
		"worker: {operation: a}":            "",
		"worker:":                           "",
		"":                                  "",
		"# nothing":                         "",
		"Worker: {slots: 1}":                "did you mean worker",
		"worker: {allow-plain-http: maybe}": "not true or false",
		"slots: 3":                          "did you mean worker.slots?",
		"a: &a [*a]":                        "x.yaml",
	} {
		_, err := config.Load(nil, write(t, "x.yaml", text))
		if want == "" && err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q gives %v, want %q", text, err, want)
		}
	}
	if _, err := config.Load(nil, write(t, "large.yaml", strings.Repeat("#\n", 1<<20))); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("a large file gives %v", err)
	}
}

// TestSecretsAreMasked: a token shows in no format.
func TestSecretsAreMasked(t *testing.T) {
	c := config.Client{Token: "flk_secret"}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		if s := fmt.Sprintf(format, c); strings.Contains(s, "flk_") {
			t.Errorf("%s gives %s", format, s)
		}
	}
}

func TestNearest(t *testing.T) {
	words := []string{"submit", "get", "list", "wait", "cancel"}
	for in, want := range map[string]string{"sumbit": "submit", "gte": "get", "cancle": "cancel", "wiat": "wait", "xyzzy": "", "": "", strings.Repeat("a", 300): ""} {
		if got, ok := config.Nearest(in, words); got != want || ok != (want != "") {
			t.Errorf("Nearest(%.20q) = %q, %v", in, got, ok)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.SampledFrom(words).Draw(t, "word")
		if got, ok := config.Nearest(word, words); !ok || got != word {
			t.Fatalf("the nearest to %s is %s", word, got)
		}
	})
}

// TestDurationsRoundTrip: what is written is read as the same.
func TestDurationsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(-1<<62, 1<<62).Draw(t, "d"))
		got, err := config.ParseDuration(config.FormatDuration(d))
		if err != nil || got != d {
			t.Fatalf("%v is written as %s and read as %v, %v", d, config.FormatDuration(d), got, err)
		}
	})
	for s, want := range map[string]time.Duration{"7d": 168 * time.Hour, "1d12h": 36 * time.Hour, "-1d1s": -(24*time.Hour + time.Second), "0": 0, "1.5h": 90 * time.Minute} {
		if got, err := config.ParseDuration(s); err != nil || got != want {
			t.Errorf("%s is read as %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "d", "1", "1d-3h", "--1s", "-", "1x", "999999999d", "1dd", "106751d24h", "+1d", "1.5d"} {
		if got, err := config.ParseDuration(s); err == nil {
			t.Errorf("%q is read as %v", s, got)
		}
	}
}

func TestLoopback(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "127.0.0.1": true, "127.9.9.9": true, "::1": true, "::ffff:127.0.0.1": true, "a.localhost": true, "example.com": false, "10.0.0.1": false,
		"localhost.example.com": false, "0.0.0.0": false, "": false,
	} {
		if got := config.Loopback(host); got != want {
			t.Errorf("Loopback(%q) = %v", host, got)
		}
	}
}

func TestParseURL(t *testing.T) {
	for in, want := range map[string]string{
		"127.0.0.1:7700": "http://127.0.0.1:7700", "localhost:1": "http://localhost:1", "example.com": "https://example.com", "[::1]:80": "http://[::1]:80",
		"http://a/b": "http://a/b", "": "", "ftp://a": "", "http://": "", "http://u:p@a": "", "http://a?b": "", "http://a#b": "", "::": "",
	} {
		u, problem := config.ParseURL(in)
		if (problem == "") != (want != "") || want != "" && u.String() != want {
			t.Errorf("ParseURL(%q) = %v, %q; want %q", in, u, problem, want)
		}
	}
}

// TestFaultsAreAllReported: a struct with everything wrong has a fault for each of it.
func TestFaultsAreAllReported(t *testing.T) {
	for name, tc := range map[string]struct {
		faults []config.Fault
		want   []string
	}{
		"client": {config.Client{Addr: "x://", Token: "a\nb", Output: "xml"}.Validate(), []string{"addr", "token", "request-timeout", "output"}},
		"worker": {config.Worker{
			Operations: []string{"a b"}, Exec: "x", HTTP: "http://x", Classes: []string{"x"}, Prefetch: -1, DrainTimeout: -1, Name: strings.Repeat("x", 200),
		}.Validate(), []string{
			"worker.operation", "worker.class", "worker.exec", "worker.http", "worker.slots", "worker.prefetch", "worker.lease", "worker.drain-timeout",
			"worker.name", "worker.log-level", "worker.log-format",
		}},
		"dev": {config.Dev{Listen: "1.2.3.4:x", SampleTenants: []string{"*"}}.Validate(), []string{
			"dev.dir", "dev.listen", "dev.listen", "dev.policy", "dev.log-level", "dev.log-format", "dev.sample-tenant",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, f := range tc.faults {
				got = append(got, f.Key)
				if f.Problem == "" || f.Remedy == "" {
					t.Errorf("%+v does not say what is wrong or what to do", f)
				}
			}
			if !reflect.DeepEqual(got, tc.want) {
				t.Errorf("faults in %v, want %v", got, tc.want)
			}
		})
	}
}
