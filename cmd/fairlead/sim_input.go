package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cell/policy"
	"github.com/fairlead/fairlead/cmd/fairlead/config"
	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/e2e/sim"
	"github.com/fairlead/fairlead/e2e/sim/trace"
)

// simFileBytesMax bounds a scenario's or a policy's file. Traces are bounded by their jobs.
const simFileBytesMax = policy.BytesMax

// stdinName is how standard input is named where a file is expected.
const stdinName = "-"

// simInput is what every simulation can be told about its work, beside the scenario itself.
type simInput struct {
	seed       uint64
	slots      int
	policyFile string
}

func (in *simInput) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.Uint64Var(&in.seed, "seed", 0, "`number` that chooses all that is drawn at random (default the scenario's own)")
	f.IntVar(&in.slots, "slots", 0, "`number` of jobs to run at once, by workers that run every operation (default the scenario's own)")
	f.StringVar(&in.policyFile, "policy-file", "", "policy `file` for fairlead, and for the weights of drr (default the scenario's own policy)")
	completeNothing(cmd, "seed", "slots")
	must(cmd.MarkFlagFilename("policy-file", "yaml", "yml"))
}

// scenario returns the work that name stands for: a scenario that comes with the simulator, a file with one, or a trace.
func (a *app) scenario(cmd *cobra.Command, name string, in *simInput) (*sim.Scenario, error) {
	if cmd.Flags().Changed("slots") && (in.slots < 1 || in.slots > sim.SlotsMax) {
		return nil, failure.Usagef("give a number in that range", "--slots is %d, outside 1 to %d", in.slots, sim.SlotsMax)
	}
	var s *sim.Scenario
	var err error
	switch {
	case slices.Contains(sim.Builtins(), name):
		s, err = builtin(cmd, name, in)
	case name == stdinName:
		s, err = traceScenario("stdin", "on standard input", a.in, in)
	case !looksLikeFile(name):
		return nil, unknownScenario(name)
	case isYAML(name):
		s, err = scenarioFile(cmd, name, in)
	default:
		s, err = traceFile(name, in)
	}
	if err != nil {
		return nil, err
	}
	if in.policyFile != "" {
		file, err := policyFile(in.policyFile)
		if err != nil {
			return nil, err
		}
		s.Policy = &file
	}
	if in.slots > 0 {
		s.Workers = []sim.Workers{{Slots: in.slots}}
	}
	return s, nil
}

// looksLikeFile reports whether a word is meant as a file and not as a name: it has a path's or an extension's mark, or there is such a file.
func looksLikeFile(word string) bool {
	if strings.ContainsAny(word, "/\\.") {
		return true
	}
	_, err := os.Stat(word)
	return err == nil
}

func isYAML(file string) bool {
	ext := strings.ToLower(filepath.Ext(file))
	return ext == ".yaml" || ext == ".yml"
}

func unknownScenario(name string) error {
	known := sim.Builtins()
	remedy := "use one of: " + strings.Join(known, ", ") + "; or a file: a scenario's .yaml, or a trace's .csv, .jsonl or .swf"
	if near, ok := config.Nearest(name, known); ok {
		remedy = "did you mean " + near + "? U" + remedy[1:]
	}
	return failure.Usagef(remedy, "there is no scenario %.60q", name)
}

// builtin returns a scenario that comes with the simulator, with the seed of --seed.
func builtin(cmd *cobra.Command, name string, in *simInput) (*sim.Scenario, error) {
	if cmd.Flags().Changed("seed") {
		return sim.BuiltinSeeded(name, in.seed)
	}
	return sim.Builtin(name)
}

func scenarioFile(cmd *cobra.Command, file string, in *simInput) (*sim.Scenario, error) {
	text, err := readSimFile(file)
	if err != nil {
		return nil, err
	}
	open := func(name string) (io.ReadCloser, error) {
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(file), name)
		}
		return os.Open(name)
	}
	s, err := sim.LoadScenario(file, text, open)
	if err == nil && cmd.Flags().Changed("seed") { // the text that was written first: its lines are those of the file
		if text, err = sim.Reseed(text, in.seed); err == nil {
			s, err = sim.LoadScenario(file, text, open)
		}
	}
	if err != nil {
		return nil, unusable("the scenario "+file, err)
	}
	if s.Name == file { // it does not name itself
		s.Name = baseName(file)
	}
	return s, nil
}

func policyFile(file string) (policy.File, error) {
	text, err := readSimFile(file)
	if err != nil {
		return policy.File{}, err
	}
	p, err := policy.Parse(file, text)
	if err != nil {
		return policy.File{}, unusable("the policy "+file, err)
	}
	return p, nil
}

func readSimFile(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, unreadable(file, err)
	}
	defer f.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(io.LimitReader(f, simFileBytesMax+1))
	if err != nil {
		return nil, unreadable(file, err)
	}
	if len(text) > simFileBytesMax {
		return nil, failure.Usagef("name another file", "%s has more than %d bytes, too many for a scenario or a policy", file, simFileBytesMax)
	}
	return text, nil
}

func traceFile(file string, in *simInput) (*sim.Scenario, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, unreadable(file, err)
	}
	defer f.Close() //nolint:errcheck // only read
	return traceScenario(baseName(file), file, f, in)
}

func traceScenario(name, file string, from io.Reader, in *simInput) (*sim.Scenario, error) {
	t, err := trace.Read(from, trace.Options{Seed: in.seed})
	if err != nil {
		return nil, unusable("the trace "+file, err)
	}
	var workers []sim.Workers // none leaves it to the trace's rule
	if in.slots > 0 {
		workers = []sim.Workers{{Slots: in.slots}}
	}
	s, err := sim.FromTrace(name, t, workers...)
	if err != nil {
		return nil, unusable("the trace "+file, err)
	}
	return s, nil
}

// baseName is a file's name without its folder and without what says its form: what stands for it in tables and in the names of pictures.
func baseName(file string) string {
	name := filepath.Base(file)
	for _, ext := range []string{".gz", ".yaml", ".yml", ".csv", ".jsonl", ".swf"} { // .gz comes last in a name
		if short := strings.TrimSuffix(name, ext); short != "" {
			name = short
		}
	}
	return name
}

func unreadable(file string, err error) error {
	why := err
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		why = pe.Err
	}
	return &failure.Problem{Code: failure.Usage, What: file + " cannot be read", Why: why.Error(), Remedy: "check the path", Err: err}
}

// unusable says all that is wrong with a file's content, a line for each fault.
func unusable(what string, err error) error {
	return &failure.Problem{Code: failure.Usage, What: what + " cannot be used", Why: err.Error(), Err: err}
}

// completePolicies makes the shell offer the policies' names, and files.
func completePolicies(cmd *cobra.Command, flag string) {
	must(cmd.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return sim.Policies(), cobra.ShellCompDirectiveDefault
	}))
}

// simPolicy returns the policy that a word names: one of the simulator's, or a policy file.
func simPolicy(word string) (sim.Policy, error) {
	base, _, _ := strings.Cut(word, ":")
	if slices.Contains(sim.Policies(), base) {
		return sim.PolicyNamed(word)
	}
	if !looksLikeFile(word) {
		return sim.Policy{}, unknownPolicy(word)
	}
	file, err := policyFile(word)
	if err != nil {
		return sim.Policy{}, err
	}
	return sim.PolicyOf(word, file), nil
}

func unknownPolicy(word string) error {
	known := sim.Policies()
	remedy := "use one of: " + strings.Join(known, ", ") + "; or a policy file"
	if near, ok := config.Nearest(word, known); ok {
		remedy = "did you mean " + near + "? U" + remedy[1:]
	}
	return failure.Usagef(remedy, "there is no policy %.60q", word)
}

// The pace at which a long simulation tells how far it is.
const (
	progressAfter      = time.Second
	progressOnTerminal = 200 * time.Millisecond
	progressElsewhere  = 10 * time.Second
)

// abandoned is what unwinds a simulation that nobody waits for any more.
type abandoned struct{}

// simulate runs s under a policy. Long runs say on standard error how far they are. An interrupt ends it at the next look at ctx: a simulation is a
// pure function, which has no way out but by its own progress.
func (a *app) simulate(ctx context.Context, s *sim.Scenario, p sim.Policy) (run *sim.Run, err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case abandoned:
			run, err = nil, context.Cause(ctx)
		default:
			panic(r)
		}
	}()
	began := a.now()
	last := began
	pace, shown := progressElsewhere, false
	if a.talks {
		pace = progressOnTerminal
	}
	run, err = sim.Simulate(s, p, func(done, total int) {
		if ctx.Err() != nil {
			panic(abandoned{})
		}
		now := a.now()
		if now.Sub(began) < progressAfter || now.Sub(last) < pace {
			return
		}
		last, shown = now, true
		line := fmt.Sprintf("%s under %s: %d of %d jobs, %d %%", s.Name, p.Name, done, total, 100*done/max(1, total))
		if a.talks {
			fmt.Fprintf(a.err, "\r\x1b[K%s", line)
		} else {
			a.sayf("%s", line)
		}
	})
	if shown && a.talks {
		fmt.Fprint(a.err, "\r\x1b[K")
	}
	if err != nil {
		return nil, unusable("the scenario "+s.Name+" under the policy "+p.Name, err)
	}
	return run, sim.Check(run)
}

// simulateAll runs s under each policy in turn and hands every run over, which is not kept: there may be millions of jobs in each.
func (a *app) simulateAll(ctx context.Context, s *sim.Scenario, words []string, use func(*sim.Run)) error {
	var policies []sim.Policy
	for _, word := range words {
		p, err := simPolicy(word)
		if err != nil {
			return err
		}
		policies = append(policies, p)
	}
	for _, p := range policies {
		run, err := a.simulate(ctx, s, p)
		if err != nil {
			return err
		}
		use(run)
	}
	return nil
}
