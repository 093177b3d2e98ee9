package report_test

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead/fairlead/e2e/sim"
	"github.com/fairlead/fairlead/e2e/sim/report"
)

// picturesFolder holds the pictures of the documentation, and the scenarios that were drawn for them alone.
const picturesFolder = "../../../docs/pictures"

// TestPictures holds the documentation's pictures to what the simulator draws now. With -rewrite it draws them: make pictures.
func TestPictures(t *testing.T) {
	for name, p := range map[string]struct {
		scenario string // one that comes with the simulator, or a file beside the pictures
		policies []string
		draw     func([]*sim.Run) []byte
	}{
		"quiet-and-bulk": {
			"quiet-and-bulk-500ms",
			[]string{sim.PolicyFIFO, sim.PolicyCappedRR, sim.PolicyFairlead},
			func(runs []*sim.Run) []byte { return report.Timeline(runs, report.Window{}) },
		},
		"quiet-and-bulk-start": {
			"quiet-and-bulk-500ms",
			[]string{sim.PolicyFIFO, sim.PolicyCappedRR, sim.PolicyFairlead},
			func(runs []*sim.Run) []byte { return report.Timeline(runs, report.Window{To: 3 * time.Second}) },
		},
		"quiet-and-bulk-waits": {
			"quiet-and-bulk-500ms", []string{sim.PolicyFIFO, sim.PolicyRR, sim.PolicyCappedRR, sim.PolicyFairlead}, report.Waits,
		},
		"lend-and-return": {
			"lend-and-return.yaml",
			[]string{sim.PolicyFIFO, sim.PolicyFairlead},
			func(runs []*sim.Run) []byte { return report.Shares(runs, report.Window{}) },
		},
		"two-million-export": {
			"two-million-export-1to100.yaml",
			[]string{sim.PolicyFIFO, sim.PolicyFairlead},
			func(runs []*sim.Run) []byte { return report.Timeline(runs, report.Window{}) },
		},
		"two-million-export-waits": {
			"two-million-export-1to100.yaml", []string{sim.PolicyFIFO, sim.PolicyFairlead}, report.Waits,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := scenario(t, p.scenario)
			var runs []*sim.Run
			for _, policy := range p.policies {
				runs = append(runs, simulated(t, s, policy))
			}
			drawing := p.draw(runs)
			if err := sound(drawing); err != nil {
				t.Error(err)
			}
			same(t, filepath.Join(picturesFolder, name+".svg"), drawing)
		})
	}
}

func scenario(t *testing.T, name string) *sim.Scenario {
	t.Helper()
	if filepath.Ext(name) == "" {
		s, err := sim.Builtin(name)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	text, err := os.ReadFile(filepath.Join(picturesFolder, name))
	if err != nil {
		t.Fatal(err)
	}
	s, err := sim.LoadScenario(name, text, func(string) (io.ReadCloser, error) { return nil, os.ErrNotExist })
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func simulated(t *testing.T, s *sim.Scenario, policy string) *sim.Run {
	t.Helper()
	p, err := sim.PolicyNamed(policy)
	if err != nil {
		t.Fatal(err)
	}
	run, err := sim.Simulate(s, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := sim.Check(run); err != nil {
		t.Fatal(err)
	}
	return run
}
