package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/policy"
	"github.com/fairlead/fairlead/cmd/fairlead/config"
	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
	"github.com/fairlead/fairlead/cmd/fairlead/plan"
)

func (a *app) planCommand() *cobra.Command {
	return group("plan", "Work out shares and isolation before anything runs",
		`Plan answers on paper what a cell will do: who gets how much of a capacity, who borrows, who carries a shortage, and how far tenants are
apart. No server is asked.`,
		"  fairlead plan allocate -f tenants.yaml\n  fairlead plan isolation --workers 100 --hand 5",
		a.planAllocateCommand(), a.planIsolationCommand(), a.planFlightCommand())
}

// planAllocateFlags are the flags of plan allocate.
type planAllocateFlags struct {
	file, policy, class  string
	capacity, operations string
	compare              bool
}

func (a *app) planAllocateCommand() *cobra.Command {
	var f planAllocateFlags
	c := &cobra.Command{
		Use: "allocate", Short: "Divide a capacity among tenants by reservation, weight, limit and demand",
		Long: `Allocate gives everybody its reservation, as far as it demands it, and divides the spare rest by weight; what one does not want goes
to the others, by weight again. The first pass is what each gets before that. This is what the scheduler does in the long run. When the
reservations are more than the capacity they all shrink by one factor.

The file is YAML or JSON. Amounts are units of cost a second; demand is either given, or operations offered a second times the cost of one:

  capacity: 12000
  unit: cpu_ms
  tenants:
    - {name: alder, offered: 5400, cost: 1.0, reservation: 3600, weight: 3}
    - {name: birch, demand: 4050, reservation: 3000, weight: 2, limit: 6000}
    - {name: cedar, demand: unlimited, organization: acme}     # weight 1, no reservation, no limit
  organizations:
    - {name: acme, reservation: 1800, weight: 1, limit: 0}

An organization's reservation is 0, or no less than the sum of its tenants'. A tenant of weight 0 takes only what no other wants. What a
tenant has beyond its own reservation counts as borrowed: from its organization's reservation, or from the pool.

With --policy the promises are those of a policy file, as fairlead dev and sim read it; the file of -f then holds capacity and demands alone,
and may be left out: everybody demands all it can get.`,
		Example: `  fairlead plan allocate -f tenants.yaml
  fairlead plan allocate -f tenants.yaml --capacity 6000 -o json
  fairlead plan allocate -f tenants.yaml --compare --equal-requests 4000
  fairlead plan allocate --policy policy.yaml --class batch --capacity 12000`,
		Args: arguments(false), ValidArgsFunction: cobra.NoFileCompletions,
	}
	c.Flags().StringVarP(&f.file, "file", "f", "", "`file` of tenants and capacity, or - for standard input")
	c.Flags().StringVar(&f.policy, "policy", "", "policy `file` that says what tenants and organizations are promised")
	class := newEnum("", config.ClassNames())
	c.Flags().Var(class, "class", "with --policy: the class whose reservations and capacity count (default both together)")
	c.Flags().StringVar(&f.capacity, "capacity", "", "`units` of cost a second to share, in place of the file's")
	c.Flags().BoolVar(&f.compare, "compare", false, "show beside it what fixed quotas, equal shares and equal requests would give")
	c.Flags().StringVar(&f.operations, "equal-requests", "", "with --compare: `operations` a second that everybody has (default as many as the capacity holds)")
	completeNothing(c, "capacity", "equal-requests")
	completeEnum(c, "class", config.ClassNames())
	must(c.MarkFlagFilename("file", "yaml", "yml", "json"))
	must(c.MarkFlagFilename("policy", "yaml", "yml"))
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		f.class = class.value
		return a.planAllocate(cmd, f)
	}
	return c
}

func (a *app) planAllocate(cmd *cobra.Command, f planAllocateFlags) error {
	l, err := a.load(cmd)
	if err != nil {
		return err
	}
	in, err := a.planInput(cmd.Context(), f)
	if err != nil {
		return err
	}
	allocation, err := in.Allocate()
	if err != nil {
		return planFaults(err)
	}
	if f.compare {
		operations, err := parseAmountFlag("--equal-requests", f.operations)
		if err != nil {
			return err
		}
		if err := in.Compare(&allocation, operations); err != nil {
			return planFaults(err)
		}
	} else if f.operations != "" {
		return failure.Usagef("add --compare", "--equal-requests is a part of a comparison, and none is asked for")
	}
	return printPlan(a.printer(l), allocation)
}

// planInput reads what the flags name.
func (a *app) planInput(ctx context.Context, f planAllocateFlags) (plan.Input, error) {
	switch {
	case f.file == "" && f.policy == "":
		return plan.Input{}, failure.Usagef("name a file with -f, or - for standard input, or a policy with --policy", "there is nothing to plan for")
	case f.class != "" && f.policy == "":
		return plan.Input{}, failure.Usagef("name a policy, or leave --class out", "--class is of a policy, and there is none")
	}
	var in plan.Input
	if f.file != "" {
		text, err := a.readPlan(ctx, f.file)
		if err != nil {
			return plan.Input{}, err
		}
		if in, err = plan.Parse(f.file, text, f.policy != ""); err != nil {
			return plan.Input{}, planFaults(err)
		}
	}
	if f.capacity != "" {
		capacity, err := parseAmountFlag("--capacity", f.capacity)
		if err != nil {
			return plan.Input{}, err
		}
		in.Capacity, in.HasCapacity = cell.Rate(capacity), true
	}
	if f.policy == "" {
		return in, nil
	}
	return a.planPromised(ctx, f, in)
}

// planPromised gives the tenants what the policy promises them.
func (a *app) planPromised(ctx context.Context, f planAllocateFlags, demands plan.Input) (plan.Input, error) {
	text, err := a.readPlan(ctx, f.policy)
	if err != nil {
		return plan.Input{}, err
	}
	file, err := policy.Parse(f.policy, text)
	if err != nil {
		return plan.Input{}, planFaults(err)
	}
	all := cell.Classes()
	classes := all[:]
	if f.class != "" {
		c, err := cell.ParseClass("--class", f.class)
		if err != nil {
			return plan.Input{}, err
		}
		classes = []cell.Class{c}
	}
	return plan.Promised(file, classes, demands), nil
}

func parseAmountFlag(name, value string) (plan.Micro, error) {
	if value == "" {
		return 0, nil
	}
	m, err := plan.ParseMicro(value)
	if err != nil {
		return 0, failure.Usagef("give a number from 0 to 1000000, in steps of 0.000001", "%s is %.40q, which %v", name, value, err)
	}
	return m, nil
}

// readPlan reads a file, or standard input for -, up to what a plan may have.
func (a *app) readPlan(ctx context.Context, name string) ([]byte, error) {
	from := stoppable(ctx, a.in)
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, &failure.Problem{Code: failure.Usage, What: "the plan's input cannot be read", Why: err.Error(), Remedy: "name another file", Err: err}
		}
		defer file.Close() //nolint:errcheck // only read
		from = file
	}
	text, err := io.ReadAll(io.LimitReader(from, plan.BytesMax+1)) // one more, so that too much is seen
	if err != nil {
		return nil, fmt.Errorf("reading the plan's input: %w", err)
	}
	return text, nil
}

// planFaults shows every fault of an input.
func planFaults(err error) error {
	lines := strings.Split(err.Error(), "\n")
	p := &failure.Problem{Code: failure.Usage, What: fmt.Sprintf("the plan's input has %d faults", len(lines)), Why: strings.Join(lines, "\n"), Err: err}
	if len(lines) == 1 {
		p.What = "the plan's input has a fault"
	}
	if one, ok := errors.AsType[*cell.FieldError](err); ok && len(lines) == 1 {
		p.Why, p.Remedy = one.Field+" "+one.Problem, one.Remedy
	}
	return p
}

// planned is what a plan command answers.
type planned interface {
	Print(p *output.Printer) error
}

func printPlan(p *output.Printer, answer planned) error {
	if p.Human() {
		return answer.Print(p)
	}
	if p.Format == output.FormatName {
		return failure.Usagef("use table, wide, json or yaml", "what is planned has no names of its own")
	}
	text, err := json.MarshalIndent(answer, "", "  ")
	if err != nil {
		return fmt.Errorf("as JSON: %w", err)
	}
	return p.Document(text)
}
