package lint

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// linterConfig is the part of .golangci.yml that repeats the import table.
type linterConfig struct {
	Linters struct {
		Settings struct {
			Depguard struct {
				Rules map[string]struct {
					ListMode string   `json:"list-mode"`
					Files    []string `json:"files"`
					Allow    []string `json:"allow"`
				} `json:"rules"`
			} `json:"depguard"`
		} `json:"settings"`
		Exclusions struct {
			Rules []struct {
				PathExcept string `json:"path-except"`
			} `json:"rules"`
		} `json:"exclusions"`
	} `json:"linters"`
}

// CheckLinterConfig checks that .golangci.yml, which editors apply, says the same of the pure packages as the table does.
func CheckLinterConfig(text []byte, layers []Layer) ([]Finding, error) {
	var config linterConfig
	if err := yaml.Unmarshal(text, &config); err != nil {
		return nil, fmt.Errorf("parse the linter's configuration: %w", err)
	}
	var out []Finding
	say := func(format string, args ...any) {
		out = append(out, Finding{".golangci.yml", fmt.Sprintf(format, args...)})
	}
	var exceptions []*regexp.Regexp
	for _, rule := range config.Linters.Exclusions.Rules {
		if rule.PathExcept == "" {
			continue
		}
		re, err := regexp.Compile(rule.PathExcept)
		if err != nil {
			return nil, fmt.Errorf("path-except: %w", err)
		}
		exceptions = append(exceptions, re)
	}
	if len(exceptions) == 0 {
		say("no path-except: the rules for pure packages apply to all or none")
	}
	for _, l := range layers {
		for _, re := range exceptions {
			if re.MatchString(l.Path+"/x.go") != (l.Kind == Pure) {
				say("path-except %s: %s is %s", re, l.Path, l.Kind)
			}
		}
		if l.Kind != Pure {
			continue
		}
		name := "pure-" + strings.ReplaceAll(l.Path, "/", "-")
		rule, ok := config.Linters.Settings.Depguard.Rules[name]
		if !ok {
			say("depguard has no rule %s", name)
			continue
		}
		if rule.ListMode != "strict" || !slices.Equal(rule.Files, []string{"**/" + l.Path + "/*.go", "!$test"}) {
			say("depguard rule %s: mode strict, files [**/%s/*.go !$test]", name, l.Path)
		}
		if want, got := allowed(l), trimmed(rule.Allow); !slices.Equal(want, got) {
			say("depguard rule %s allows %v, the table %v", name, got, want)
		}
	}
	return out, nil
}

// allowed returns, in order, what the row lets its package import.
func allowed(l Layer) []string {
	want := slices.Concat(pureStd(), l.Also)
	for _, p := range l.May {
		want = append(want, module+"/"+p)
	}
	slices.Sort(want)
	return want
}

// trimmed returns depguard's prefixes as paths: a final $ means this path alone.
func trimmed(prefixes []string) []string {
	out := make([]string, len(prefixes))
	for i, p := range prefixes {
		out[i] = strings.TrimSuffix(p, "$")
	}
	slices.Sort(out)
	return out
}
