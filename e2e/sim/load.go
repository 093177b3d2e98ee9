package sim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/policy"
	"github.com/fairlead/fairlead/e2e/sim/trace"
)

// Opener opens a file that a scenario names.
type Opener func(file string) (io.ReadCloser, error)

// LoadScenario reads a scenario from YAML. name stands for the file in errors, and for the scenario where the text does not name it. open
// may be nil for a scenario that names no files. It returns a *FileError for everything that it does not understand, joined, with lines.
//
//	scenario: quiet-and-bulk     # its name; default the file's
//	summary: one line            # for lists
//	seed: 1                      # of all that is drawn
//	workers:                     # slots; a trace has a rule of its own for how many
//	  - {slots: 8, operations: [mail], group: 2}   # operations: default all; group: of the hands of policy.tenants, default none
//	backlog_max: 200             # waiting jobs of a tenant beyond which more are rejected; default no bound
//	until: 30s                   # cut it short; default until all is done
//	unit: slot_seconds                # what costs are counted in
//	policy: {...}                # the policy of `fairlead` and the weights of `drr`: a policy file's content, or its name
//	cohorts:                     # what comes: see below
//	trace: {file: day.csv, form: csv, seed: 1, tenants: 20}   # or a trace, of which only file must be given
//
// A cohort is tenants that do the same:
//
//	name: quiet                  # under which reports count it
//	tenants: [ash, elm]          # or {prefix: quiet-, count: 19}; default one named like the cohort
//	organization: acme           # default none
//	class: interactive           # default batch
//	operation: mail              # default work
//	priority: 0                  # seconds of head start
//	preemptible: false
//	keys: [{key: db, max: 1}]    # concurrency keys
//	deadline: 5s                 # after the arrival; default none
//	arrivals:                    # of each of its tenants; each pattern is one of these, jobs at a time (default 1)
//	  - {at: [0s, 200ms], jobs: 400}
//	  - {every: 100ms, from: 0s, until: 10s}       # from and until: default the start, and until must be given
//	  - {rate: 1500, from: 0s, until: 800s}        # so many a second, evenly
//	  - {poisson: 20, from: 0s, until: 10s}        # so many a second on average, at random
//	  - {ramp: [10, 100], from: 0s, until: 60s}    # a rate that changes evenly from the one to the other
//	service: 100ms               # how long a job runs: a value as below, or {per_unit: 20ms} of its actual cost
//	actual: 1000000              # what it costs in micro-units: a value; default its service in microseconds
//	cost: 500000                 # what it declares to cost: a value, or {part: 0.5} of its actual cost; default nothing
//
// A value is fixed, or drawn job by job:
//
//	100ms
//	{uniform: [50ms, 150ms]}
//	{lognormal: {median: 100ms, sigma: 1.5}}
//	{mix: [{of: 9, value: 41ms}, {of: 1, value: 2s}]}    # exactly 9 of any 10 in a row, in an order drawn anew each time
//
// Ids are given cohort by cohort, in a cohort by arrival and then tenant: at the same time jobs come in that order.
func LoadScenario(name string, text []byte, open Opener) (*Scenario, error) {
	var root yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	if err := decoder.Decode(&root); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, &FileError{File: name, Line: 1, Column: 1, Problem: "is empty", Remedy: "describe workers and cohorts"}
		}
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	l := &loader{document: document{file: name}, open: open, whole: text, top: follow(root.Content[0])}
	l.s = &Scenario{Name: name, Unit: trace.UnitSlotTime}
	l.read(l.top)
	if len(l.errs) == 0 {
		l.build()
	}
	if len(l.errs) > 0 {
		return nil, errors.Join(l.errs...)
	}
	if err := l.s.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return l.s, nil
}

// loader is a scenario while it is read.
type loader struct {
	document

	open    Opener
	whole   []byte
	top     *yaml.Node
	s       *Scenario
	cohorts []cohort
	trace   traceRef
}

// traceRef is a scenario's reference to a trace.
type traceRef struct {
	node    *yaml.Node
	file    string
	options trace.Options
	seeded  bool // it has a seed of its own
}

func (l *loader) read(root *yaml.Node) {
	l.object(
		root, "",
		key{"scenario", func(n *yaml.Node, path string) { l.s.Name = l.id(n, path) }},
		key{"summary", func(n *yaml.Node, path string) { l.s.Summary = l.text(n, path) }},
		key{"seed", func(n *yaml.Node, path string) { l.s.Seed = uint64(l.integer(n, path, 0, math.MaxInt64)) }},
		key{"workers", func(n *yaml.Node, path string) { l.list(n, path, l.workers) }},
		key{"backlog_max", func(n *yaml.Node, path string) { l.s.BacklogMax = l.integer(n, path, 0, math.MaxInt32) }},
		key{"until", func(n *yaml.Node, path string) { l.s.Until = l.duration(n, path) }},
		key{"unit", func(n *yaml.Node, path string) { l.s.Unit = l.id(n, path) }},
		key{"policy", l.policy},
		key{"cohorts", func(n *yaml.Node, path string) { l.list(n, path, l.cohort) }},
		key{"trace", l.traceRef},
	)
	switch {
	case len(l.errs) > 0:
	case len(l.cohorts) == 0 && l.trace.file == "":
		l.fault(root, "cohorts", "describe at least one cohort, or name a trace", "are missing")
	case len(l.cohorts) > 0 && l.trace.file != "":
		l.fault(root, "trace", "use one of the two", "stands beside cohorts")
	case len(l.s.Workers) == 0 && l.trace.file == "":
		l.fault(root, "workers", "describe at least one group, such as {slots: 8}", "are missing")
	}
}

func (l *loader) workers(n *yaml.Node, path string) {
	var w Workers
	l.object(
		n, path,
		key{"slots", func(n *yaml.Node, path string) { w.Slots = int(l.integer(n, path, 1, SlotsMax)) }},
		key{"operations", func(n *yaml.Node, path string) {
			l.list(n, path, func(n *yaml.Node, path string) { w.Operations = append(w.Operations, cell.Operation(l.id(n, path))) })
		}},
		key{"group", func(n *yaml.Node, path string) {
			w.Group = cell.WorkerGroup(l.integer(n, path, 1, cell.WorkerGroupsMax))
		}},
	)
	slices.Sort(w.Operations)
	w.Operations = slices.Compact(w.Operations)
	if w.Slots == 0 {
		l.fault(n, join(path, "slots"), "give how many jobs they run at a time", "is missing")
	}
	l.s.Workers = append(l.s.Workers, w)
}

// policy reads the policy that stands in the scenario, or in a file that it names.
func (l *loader) policy(n *yaml.Node, path string) {
	name := l.file
	text, err := l.source(n)
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" {
		name = n.Value
		text, err = l.content(name)
	}
	if err != nil {
		l.fault(n, path, "give it relative to the scenario's file", "cannot be read: %v", err)
		return
	}
	file, err := policy.Parse(name, text)
	if err != nil {
		l.errs = append(l.errs, err)
		return
	}
	l.s.Policy = &file
}

// errNoFiles is returned for a file that a scenario names where none can be opened.
var errNoFiles = errors.New("files cannot be named here")

func (l *loader) content(file string) ([]byte, error) {
	if l.open == nil {
		return nil, errNoFiles
	}
	in, err := l.open(file)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(in, policy.BytesMax+1))
	return text, errors.Join(err, in.Close())
}

func (l *loader) traceRef(n *yaml.Node, path string) {
	l.trace.node = n
	l.object(
		n, path,
		key{"file", func(n *yaml.Node, path string) { l.trace.file = l.text(n, path) }},
		key{"form", func(n *yaml.Node, path string) {
			form, err := trace.ParseForm(path, l.text(n, path))
			if err != nil {
				l.refuse(n, path, err)
			}
			l.trace.options.Form = form
		}},
		key{"seed", func(n *yaml.Node, path string) {
			l.trace.options.Seed, l.trace.seeded = uint64(l.integer(n, path, 0, math.MaxInt64)), true
		}},
		key{"tenants", func(n *yaml.Node, path string) { l.trace.options.Tenants = int(l.integer(n, path, 1, 1_000_000)) }},
	)
	if l.trace.file == "" {
		l.fault(n, join(path, "file"), "name the trace's file", "is missing")
	}
}

// source returns the text of a member of the whole with its lines and columns kept, so that errors about it have the right ones.
func (l *loader) source(n *yaml.Node) ([]byte, error) {
	if l.top.Style&yaml.FlowStyle != 0 {
		return yaml.Marshal(n) // as JSON is written: nothing stands on lines of its own
	}
	end := math.MaxInt
	for _, o := range l.top.Content {
		if o.Line > n.Line {
			end = min(end, o.Line)
		}
	}

	var out bytes.Buffer
	out.WriteString(strings.Repeat("\n", n.Line-1) + strings.Repeat(" ", n.Column-1))
	for i, line := range bytes.SplitAfter(l.whole, []byte("\n")) {
		switch {
		case i == n.Line-1:
			out.Write(line[min(len(line), n.Column-1):])
		case i >= n.Line && i < end-1:
			out.Write(line)
		}
	}
	return out.Bytes(), nil
}

// build makes the jobs, once everything was understood.
func (l *loader) build() {
	if l.trace.file == "" {
		parts := make([]coming, len(l.cohorts))
		n := 0
		for i := range l.cohorts {
			jobs, err := l.cohorts[i].generate(l.s.Seed, i, n)
			if err != nil {
				l.refuse(l.top, fmt.Sprintf("cohorts[%d]", i), err)
				return
			}
			parts[i] = jobs
			n += len(jobs)
		}
		l.s.Jobs = merge(parts)
		return
	}
	if l.open == nil {
		l.fault(l.trace.node, "trace.file", "use cohorts", "cannot be opened: %v", errNoFiles)
		return
	}
	in, err := l.open(l.trace.file)
	if err != nil {
		l.fault(l.trace.node, "trace.file", "give it relative to the scenario's file", "cannot be opened: %v", err)
		return
	}
	if !l.trace.seeded {
		l.trace.options.Seed = l.s.Seed
	}
	t, err := trace.Read(in, l.trace.options)
	if err = errors.Join(err, in.Close()); err != nil {
		l.errs = append(l.errs, fmt.Errorf("%s: %w", l.trace.file, err))
		return
	}
	l.s.use(t)
}

// FromTrace returns a scenario of a trace's jobs, on as many slots as its rule says: Slots of the caller's go before it.
func FromTrace(name string, t *trace.Trace, workers ...Workers) (*Scenario, error) {
	s := &Scenario{Name: name, Summary: "a trace of " + string(t.Form), Workers: workers}
	s.use(t)
	return s, s.Validate()
}

// use takes a trace's jobs, and its rule for slots where there are no workers.
func (s *Scenario) use(t *trace.Trace) {
	s.Jobs, s.Unit = t.Jobs, t.Unit
	s.Notes = append(s.Notes, t.Notes...)
	if len(s.Workers) == 0 {
		s.Workers = []Workers{{Slots: min(t.Slots, SlotsMax)}}
		s.Notes = append(s.Notes, fmt.Sprintf(
			"%d slots: as many as the jobs would keep busy four fifths of the time from the first arrival to the last", s.Slots()))
	}
}
