package sim_test

import (
	"math"
	"reflect"
	"testing"

	"github.com/fairlead/fairlead/e2e/sim"
)

// TestReseed: another seed draws the same work anew, its own seed draws it as it was, and what is not drawn stays.
func TestReseed(t *testing.T) {
	const text = "workers: {slots: 2}\nseed: 7\ncohorts:\n  - name: a\n    arrivals: {poisson: 20, until: 3s}\n    service: {uniform: [1ms, 2s]}\n"
	load := func(seed uint64) *sim.Scenario {
		t.Helper()
		changed, err := sim.Reseed([]byte(text), seed)
		if err != nil {
			t.Fatal(err)
		}
		s, err := sim.LoadScenario("drawn", changed, nil)
		if err != nil {
			t.Fatalf("%v\n%s", err, changed)
		}
		return s
	}
	own, err := sim.LoadScenario("drawn", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	if same := load(7); !reflect.DeepEqual(same, own) {
		t.Error("with its own seed it is another")
	}
	if other := load(8); other.Seed != 8 || reflect.DeepEqual(other.Jobs, own.Jobs) {
		t.Error("with another seed it is the same")
	}
	for _, name := range []string{"quiet-and-bulk-500ms", "three-hundred"} {
		plain, err := sim.Builtin(name)
		if err != nil {
			t.Fatal(err)
		}
		seeded, err := sim.BuiltinSeeded(name, 42)
		if err != nil || seeded.Seed != 42 || len(seeded.Jobs) != len(plain.Jobs) {
			t.Errorf("%s with a seed: %v", name, err)
		}
	}
	if _, err := sim.Reseed([]byte(text), math.MaxUint64); err == nil {
		t.Error("a seed that no text can have is taken")
	}
}
