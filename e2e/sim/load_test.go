package sim_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/e2e/sim"
	"github.com/fairlead/fairlead/e2e/sim/trace"
)

// files opens what a map has.
func files(texts map[string]string) sim.Opener {
	return func(file string) (io.ReadCloser, error) {
		text, ok := texts[file]
		if !ok {
			return nil, fs.ErrNotExist
		}
		return io.NopCloser(strings.NewReader(text)), nil
	}
}

// everything is a scenario with everything that there is.
const everything = `scenario: everything
summary: every word that there is
seed: 5
unit: tokens
backlog_max: 100
until: 1m
workers:
  - {slots: 2, operations: [pdf, mail, pdf]}
  - {slots: 3, group: 64}
cohorts:
  - name: named
    tenants: [ash, elm]
    organization: trees
    class: interactive
    operation: mail
    priority: -2
    preemptible: true
    keys: [{key: db, max: 1}, {key: smtp, max: 10}]
    deadline: 5s
    arrivals:
      - {at: [1s, 0], jobs: 2}
      - {every: 10s, from: 2s, until: 23s}
    service: {per_unit: 2ms}
    actual: 3000000
    cost: {part: 0.5}
  - name: counted
    tenants: {prefix: oak-, count: 12}
    arrivals: {rate: 2, until: 2s}
    service: {mix: [{of: 2, value: 1ms}, {of: 1, value: 5ms}]}
    cost: {uniform: [10, 20]}
  - name: alone
    arrivals: [{poisson: 100, until: 10s}, {ramp: [0, 20], from: 10s, until: 20s}]
    service: {lognormal: {median: 10ms, sigma: 1}}
    actual: {uniform: [1000000, 3000000]}
policy: # the lines of faults in it count from the file's start
  tenants:
    - {id: ash, weight: 3, groups: [2, 64]}
`

// TestLoad reads everything that there is, and looks at what comes of it.
func TestLoad(t *testing.T) {
	s := load(t, everything)
	if s.Name != "everything" || s.Summary != "every word that there is" || s.Seed != 5 || s.Unit != "tokens" || s.BacklogMax != 100 || s.Until != time.Minute {
		t.Errorf("%+v", s)
	}
	if want := []sim.Workers{{Slots: 2, Operations: []cell.Operation{"mail", "pdf"}}, {Slots: 3, Group: 64}}; !reflect.DeepEqual(s.Workers, want) || s.Slots() != 5 {
		t.Errorf("workers %+v", s.Workers)
	}
	if len(s.Policy.Tenants) != 1 || s.Policy.Tenants[0].Weight != 3000 || s.Policy.Tenants[0].Groups != 1<<63|2 {
		t.Errorf("policy %+v", s.Policy.Tenants)
	}
	cohorts := map[string][]sim.Job{}
	for _, j := range s.Jobs {
		cohorts[j.Cohort] = append(cohorts[j.Cohort], j)
	}
	named := cohorts["named"]
	if len(named) != 2*(4+3) {
		t.Fatalf("%d named jobs", len(named))
	}
	want := sim.Traits{
		Tenant: "elm", Organization: "trees", Class: cell.ClassInteractive, Operation: "mail", Cohort: "named", Priority: -2, Preemptible: true,
		Keys: []cell.ConcurrencyKey{{Key: "db", Max: 1}, {Key: "smtp", Max: 10}},
	}
	if j := named[13]; !reflect.DeepEqual(*j.Traits, want) || j.Arrival != 22*time.Second || j.Service != 6*ms || j.Actual != 3_000_000 ||
		j.Cost != 1_500_000 || j.Deadline != 27*time.Second || j.ID != 13 {
		t.Errorf("the last named job is %+v of %+v", j, *j.Traits)
	}
	if a, b := named[1], named[2]; a.Tenant != "ash" || b.Tenant != "elm" || a.Arrival != 0 || b.Arrival != 0 {
		t.Errorf("at the same time jobs come by tenant: %+v, %+v", a, b)
	}
	counted := cohorts["counted"]
	count := map[time.Duration]int{}
	for i, j := range counted {
		count[j.Service]++
		if j.Arrival != time.Duration(i/12)*500*ms || j.Tenant != fmt.Sprintf("oak-%02d", i%12+1) || j.Cost < 10 || j.Cost > 20 || j.Class != cell.ClassBatch {
			t.Errorf("counted job %d is %+v of %+v", i, j, *j.Traits)
		}
	}
	if len(counted) != 48 || count[ms] != 32 || count[5*ms] != 16 {
		t.Errorf("%d counted jobs, services %v", len(counted), count)
	}
	alone := cohorts["alone"]
	early := slices.IndexFunc(alone, func(j sim.Job) bool { return j.Arrival >= 10*time.Second })
	if early < 900 || early > 1100 || len(alone)-early != 100 {
		t.Errorf("%d jobs at random at 100 a second, then %d of a ramp", early, len(alone)-early)
	}
	// Half of a ramp's jobs have come when 1/sqrt(2) of its time is over.
	if mid := alone[early+50].Arrival; mid < 17*time.Second || mid > 17200*ms {
		t.Errorf("the middle of the ramp is at %v", mid)
	}
	logs := 0.0
	for _, j := range alone {
		logs += math.Log(float64(j.Service) / float64(10*ms))
		if j.Service%time.Microsecond != 0 || j.Actual < 1_000_000 || j.Actual > 3_000_000 {
			t.Errorf("%+v", j)
		}
	}
	if mean := logs / float64(len(alone)); math.Abs(mean) > 0.1 {
		t.Errorf("the logarithms of the services are %.3f from the median's on average", mean)
	}
}

// TestSeeds has the same seed draw the same, and another another; a change of one cohort leaves the others as they were.
func TestSeeds(t *testing.T) {
	one, again, other := load(t, everything), load(t, everything), load(t, strings.Replace(everything, "seed: 5", "seed: 6", 1))
	if !reflect.DeepEqual(one, again) || reflect.DeepEqual(one.Jobs, other.Jobs) {
		t.Error("the seed does not decide what is drawn")
	}
	alone := func(s *sim.Scenario) (out []time.Duration) {
		for _, j := range s.Jobs {
			if j.Cohort == "alone" {
				out = append(out, j.Arrival, j.Service)
			}
		}
		return out
	}
	if more := load(t, strings.Replace(everything, "rate: 2,", "rate: 3,", 1)); !slices.Equal(alone(one), alone(more)) {
		t.Error("what one cohort draws depends on another")
	}
}

// TestLoadRefuses has what is wrong with a scenario, and where.
func TestLoadRefuses(t *testing.T) {
	const cohort = "workers: [{slots: 1}]\ncohorts:\n  - "
	for name, c := range map[string]struct {
		text string
		says string
	}{
		"empty":              {"", "s.yaml:1:1: is empty"},
		"no YAML":            {"a: [", "s.yaml: yaml: "},
		"a list":             {"- a", "s.yaml:1:1: is not an object"},
		"nothing to do":      {"workers: [{slots: 1}]", "s.yaml:1:1: cohorts are missing"},
		"nobody to do it":    {"cohorts: [{name: a, arrivals: {at: 0s}, service: 1ms}]", "workers are missing"},
		"unknown":            {"seed: 1\nworker: [{slots: 1}]\n", "s.yaml:2:1: worker is not known here: use scenario, summary, seed, workers"},
		"unknown below":      {cohort + "{name: a, arrival: {at: 0s}, service: 1ms}", "s.yaml:3:15: cohorts[0].arrival is not known here"},
		"twice":              {"seed: 1\nseed: 2\n", "s.yaml:2:1: seed comes twice"},
		"seed":               {"seed: -1\n", `s.yaml:1:7: seed is "-1", outside 0 to 9223372036854775807`},
		"slots":              {"workers: [{slots: 0}]\n", `workers[0].slots is "0", outside 1 to 100000`},
		"no slots":           {"workers: [{operations: [a]}]\n", "s.yaml:1:11: workers[0].slots is missing"},
		"operation":          {"workers: [{slots: 1, operations: [a b]}]\n", `workers[0].operations[0] "a b" has " " at byte 1`},
		"group":              {"workers: [{slots: 1, group: 65}]\n", `s.yaml:1:29: workers[0].group is "65", outside 1 to 64`},
		"no name":            {cohort + "{arrivals: {at: 0s}, service: 1ms}", "cohorts[0].name is missing"},
		"no arrivals":        {cohort + "{name: a, service: 1ms}", "cohorts[0].arrivals are missing"},
		"no service":         {cohort + "{name: a, arrivals: {at: 0s}}", "cohorts[0].service is missing"},
		"no actual":          {cohort + "{name: a, arrivals: {at: 0s}, service: {per_unit: 1ms}}", "cohorts[0].actual is missing, and the service is by it"},
		"class":              {cohort + "{name: a, class: system, arrivals: {at: 0s}, service: 1ms}", `cohorts[0].class "system" is not a class`},
		"tenants":            {cohort + "{name: a, tenants: {count: 3}, arrivals: {at: 0s}, service: 1ms}", "cohorts[0].tenants have no prefix or no count"},
		"keys":               {cohort + "{name: a, keys: [{key: db}], arrivals: {at: 0s}, service: 1ms}", "cohorts[0].keys[0] has no key or no max"},
		"too many keys":      {cohort + "{name: a, keys: [" + strings.Repeat("{key: a, max: 1},", 5) + "], arrivals: {at: 0s}, service: 1ms}", "are 5, of at most 4"},
		"truth":              {cohort + "{name: a, preemptible: maybe, arrivals: {at: 0s}, service: 1ms}", `preemptible is "maybe"`},
		"time":               {cohort + "{name: a, arrivals: {at: soon}, service: 1ms}", `s.yaml:3:30: cohorts[0].arrivals.at is "soon", which is no time`},
		"no pattern":         {cohort + "{name: a, arrivals: {jobs: 3}, service: 1ms}", "has 0 patterns"},
		"two patterns":       {cohort + "{name: a, arrivals: {at: 0s, rate: 3}, service: 1ms}", "has 2 patterns"},
		"endless":            {cohort + "{name: a, arrivals: {rate: 3}, service: 1ms}", "ends before it begins"},
		"never":              {cohort + "{name: a, arrivals: {every: 0s, until: 1s}, service: 1ms}", "arrivals.every is 0"},
		"ramp":               {cohort + "{name: a, arrivals: {ramp: [1], until: 1s}, service: 1ms}", "arrivals.ramp is not two rates"},
		"rate":               {cohort + "{name: a, arrivals: {rate: nan, until: 1s}, service: 1ms}", `rate is "nan"`},
		"too many":           {cohort + "{name: a, arrivals: {rate: 1000000, until: 1h}, service: 1ms}", "let fewer jobs come"},
		"service of nothing": {cohort + "{name: a, arrivals: {at: 0s}, service: 0}", "service is 0"},
		"two services":       {cohort + "{name: a, arrivals: {at: 0s}, service: {uniform: [1ms, 2ms], per_unit: 1ms}}", "is not one value"},
		"uniform":            {cohort + "{name: a, arrivals: {at: 0s}, service: {uniform: [2ms, 1ms]}}", "is not two numbers in order"},
		"lognormal":          {cohort + "{name: a, arrivals: {at: 0s}, service: {lognormal: {sigma: 1}}}", "has no median"},
		"mix":                {cohort + "{name: a, arrivals: {at: 0s}, service: {mix: [{of: 1}]}}", "has no of or no value"},
		"cost":               {cohort + "{name: a, arrivals: {at: 0s}, service: 1ms, cost: 1.5}", `cost is "1.5", outside 1`},
		"policy":             {"seed: 1\npolicy:\n  tenants:\n    - {id: a, wait: 3}\nworkers: [{slots: 1}]\n", "s.yaml:4: tenants[0].wait is not a key"},
		"policy in a line":   {"seed: 1\npolicy: {quantums: 3}\nworkers: [{slots: 1}]\n", "s.yaml:2: quantums is not a key"},
		"no such policy":     {"policy: other.yaml\n", "policy cannot be read: file does not exist"},
		"policy of a file":   {"policy: bad.yaml\n", "bad.yaml:1: quantums is not a key"},
		"no such trace":      {"trace: {file: other.csv}\n", "trace.file cannot be opened: file does not exist"},
		"trace of nothing":   {"trace: {form: csv}\n", "trace.file is missing"},
		"form":               {"trace: {file: day.csv, form: xml}\n", `trace.form "xml" is no form`},
		"bad trace":          {"trace: {file: bad.csv}\n", "bad.csv: line 2, column 1: arrival_ms"},
		"both":               {cohort + "{name: a, arrivals: {at: 0s}, service: 1ms}\ntrace: {file: day.csv}\n", "trace stands beside cohorts"},
		"all at once":        {"seed: x\nuntil: y\n", "s.yaml:2:8: until"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := sim.LoadScenario("s.yaml", []byte(c.text), files(map[string]string{
				"bad.yaml": "quantums: 3\n", "day.csv": "arrival_ms,tenant,service_ms\n0,a,1\n", "bad.csv": "arrival_ms,tenant,service_ms\nx,a,1\n",
			}))
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v\nwant: %s", err, c.says)
			}
		})
	}
	var e *sim.FileError
	if _, err := sim.LoadScenario("s.yaml", []byte("seed: x\nuntil: y\n"), nil); !errors.As(err, &e) || e.Line != 1 || e.Column != 7 || e.Field != "seed" {
		t.Errorf("%v", err)
	}
	if _, err := sim.LoadScenario("s.yaml", []byte("trace: {file: day.csv}\n"), nil); err == nil {
		t.Error("a file was opened by nobody")
	}
}

// TestReferences reads a trace and a policy that a scenario names, and a scenario that is written as JSON.
func TestReferences(t *testing.T) {
	open := files(map[string]string{
		"day.csv": "arrival_ms,tenant,service_ms\n0,a,40\n50,a,39\n100,b,1\n", "p.yaml": "tenants: [{id: a, weight: 2}]\n",
	})
	s, err := sim.LoadScenario("day", []byte(`{"trace": {"file": "day.csv"}, "policy": "p.yaml", "until": "1s"}`), open)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Jobs) != 3 || s.Name != "day" || s.Slots() != 1 || len(s.Notes) != 1 || s.Policy.Tenants[0].Weight != 2000 {
		t.Errorf("%+v", s)
	}
	s, err = sim.LoadScenario("day", []byte(`{"workers": [{"slots": 7}], "trace": {"file": "day.csv"}, "policy": {"quantum": 3000}, "seed": 1}`), open)
	if err != nil || s.Slots() != 7 || s.Policy.Sched.Quantum != 3000 {
		t.Errorf("%v: %+v", err, s)
	}
}

// TestTraceSeed deals a trace without tenants out by the trace's seed, or else the scenario's, wherever that stands.
func TestTraceSeed(t *testing.T) {
	open := files(map[string]string{"t.csv": "TIMESTAMP,ContextTokens,GeneratedTokens\n" + strings.Repeat("2023-11-16 18:15:46,1,1\n", 100)})
	tenants := func(text string) (out []string) {
		s, err := sim.LoadScenario("t", []byte(text), open)
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range s.Jobs {
			out = append(out, j.Tenant)
		}
		return out
	}
	before, after := tenants("seed: 3\ntrace: {file: t.csv}\n"), tenants("trace: {file: t.csv}\nseed: 3\n")
	own, other := tenants("trace: {file: t.csv, seed: 3}\nseed: 4\n"), tenants("trace: {file: t.csv}\nseed: 4\n")
	if !slices.Equal(before, after) || !slices.Equal(before, own) || slices.Equal(before, other) {
		t.Errorf("%v\n%v\n%v\n%v", before, after, own, other)
	}
}

// TestBuiltins reads every scenario that comes with the simulator.
func TestBuiltins(t *testing.T) {
	for _, name := range sim.Builtins() {
		if sim.BuiltinSummary(name) == "" {
			t.Errorf("%s does not say what it is", name)
		}
		if name == "two-million-export" || name == "masked-percentile" {
			continue // millions of jobs, which other tests read
		}
		s := builtin(t, name)
		if s.Name != name || s.Summary != sim.BuiltinSummary(name) || s.Policy == nil {
			t.Errorf("%s is %s: %s", name, s.Name, s.Summary)
		}
	}
	var f *cell.FieldError
	if _, err := sim.Builtin("../load"); !errors.As(err, &f) || sim.BuiltinSummary("../load") != "" {
		t.Errorf("%v", err)
	}
}

// TestSimulateRefuses has scenarios and policies that cannot be simulated.
func TestSimulateRefuses(t *testing.T) {
	fine := func() *sim.Scenario {
		return load(t, "workers: [{slots: 1}]\ncohorts: [{name: a, arrivals: {at: 0s, jobs: 2}, service: 1ms}]\n")
	}
	fifo, err := sim.PolicyNamed("fifo")
	if err != nil {
		t.Fatal(err)
	}
	for name, harm := range map[string]func(*sim.Scenario){
		"no workers":  func(s *sim.Scenario) { s.Workers = nil },
		"no slots":    func(s *sim.Scenario) { s.Workers[0].Slots = 0 },
		"backlog":     func(s *sim.Scenario) { s.BacklogMax = -1 },
		"until":       func(s *sim.Scenario) { s.Until = -1 },
		"no tenant":   func(s *sim.Scenario) { s.Jobs[0].Traits = nil },
		"class":       func(s *sim.Scenario) { s.Jobs[0].Class = 9 },
		"order":       func(s *sim.Scenario) { s.Jobs[0].ID = 5 },
		"service":     func(s *sim.Scenario) { s.Jobs[1].Service = 0 },
		"far away":    func(s *sim.Scenario) { s.Jobs[1].Arrival = trace.TimeMax + 1 },
		"deadline":    func(s *sim.Scenario) { s.Jobs[1].Arrival, s.Jobs[1].Deadline = ms, ms },
		"cost":        func(s *sim.Scenario) { s.Jobs[1].Cost = -1 },
		"actual cost": func(s *sim.Scenario) { s.Jobs[1].Actual = cell.CostMax + 1 },
	} {
		s := fine()
		harm(s)
		var f *cell.FieldError
		if _, err := sim.Simulate(s, fifo, nil); !errors.As(err, &f) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"", "lifo", "capped-rr:", "capped-rr:0", "capped-rr:x", "fifo:2"} {
		var f *cell.FieldError
		if _, err := sim.PolicyNamed(name); !errors.As(err, &f) || f.Field != "policy" {
			t.Errorf("policy %q: %v", name, err)
		}
	}
	done := 0
	s := load(t, "workers: [{slots: 9}]\ncohorts: [{name: a, arrivals: {at: 0s, jobs: 10000}, service: 1ms}]\n")
	if _, err := sim.Simulate(s, fifo, func(n, all int) {
		if n <= done || all != 10_000 {
			t.Errorf("%d of %d after %d", n, all, done)
		}
		done = n
	}); err != nil || done != 10_000 {
		t.Errorf("%v: %d of the jobs are done", err, done)
	}
}
