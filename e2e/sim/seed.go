package sim

import (
	"fmt"
	"io"
	"math"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/cell"
)

// Reseed returns the text of a scenario with another seed in the place of its own, so that the same work is drawn anew. The text must be one that
// [LoadScenario] takes: what is wrong with it is not said here. It returns a *cell.FieldError for a seed above 2^63-1.
func Reseed(text []byte, seed uint64) ([]byte, error) {
	if seed > math.MaxInt64 {
		return nil, &cell.FieldError{
			Field: "seed", Problem: fmt.Sprintf("is %d, above %d", seed, int64(math.MaxInt64)), Remedy: "give a smaller number",
		}
	}
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return nil, fmt.Errorf("the scenario as YAML: %w", err)
	}
	if len(root.Content) != 1 || root.Content[0].Kind != yaml.MappingNode {
		return text, nil
	}
	object := root.Content[0]
	value := &yaml.Node{Kind: yaml.ScalarNode, Value: strconv.FormatUint(seed, 10)}
	found := false
	for i := 0; i+1 < len(object.Content); i += 2 {
		if object.Content[i].Value == "seed" {
			object.Content[i+1], found = value, true
		}
	}
	if !found {
		object.Content = append(object.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: "seed"}, value)
	}
	out, err := yaml.Marshal(&root)
	if err != nil {
		return nil, fmt.Errorf("the scenario as YAML: %w", err)
	}
	return out, nil
}

// BuiltinSeeded is [Builtin] with another seed in the place of the scenario's own.
func BuiltinSeeded(name string, seed uint64) (*Scenario, error) {
	text, err := BuiltinText(name)
	if err != nil {
		return nil, err
	}
	if text, err = Reseed(text, seed); err != nil {
		return nil, err
	}
	return LoadScenario(name, text, func(file string) (io.ReadCloser, error) { return scenarios.Open("scenarios/" + file) })
}
