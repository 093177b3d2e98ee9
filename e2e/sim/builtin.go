package sim

import (
	"embed"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/cell"
)

//go:embed scenarios
var scenarios embed.FS

// Builtins lists the names of the scenarios that come with the simulator: published workloads whose figures are known.
func Builtins() []string {
	return []string{
		"quiet-and-bulk-100ms", "quiet-and-bulk-500ms", "three-hundred", "three-hundred-weighted", "nine-hundred-tickets",
		"reservation-and-borrow", "two-million-export", "masked-percentile",
	}
}

// Builtin returns the scenario of a name of [Builtins]. It returns a *cell.FieldError for any other.
func Builtin(name string) (*Scenario, error) {
	text, err := BuiltinText(name)
	if err != nil {
		return nil, err
	}
	return LoadScenario(name, text, func(file string) (io.ReadCloser, error) { return scenarios.Open("scenarios/" + file) })
}

// BuiltinText returns the YAML of a scenario of [Builtins], to begin one's own with. It returns a *cell.FieldError for any other name.
func BuiltinText(name string) ([]byte, error) {
	text, err := scenarios.ReadFile("scenarios/" + name + ".yaml")
	if err != nil {
		return nil, &cell.FieldError{
			Field: "scenario", Problem: fmt.Sprintf("%.60q does not come with the simulator", name),
			Remedy: "use " + strings.Join(Builtins(), ", ") + ", or a file",
		}
	}
	return text, nil
}

// BuiltinSummary returns the one line that a scenario of [Builtins] says about itself, without making its jobs; empty for any other name.
func BuiltinSummary(name string) string {
	text, err := BuiltinText(name)
	if err != nil {
		return ""
	}
	var head struct{ Summary string }
	if err := yaml.Unmarshal(text, &head); err != nil {
		return ""
	}
	return head.Summary
}
