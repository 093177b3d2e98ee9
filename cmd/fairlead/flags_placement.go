package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cmd/fairlead/output"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// capacityFlags say what a cell was tested to carry.
type capacityFlags struct {
	compute float64
	jobs    int64
	bytes   sizeValue
}

func capacityFlagNames() []string {
	return []string{"capacity-compute", "capacity-jobs", "capacity-bytes"}
}

func (f *capacityFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Float64Var(&f.compute, "capacity-compute", 0, "what it was tested to carry, in `units` of cost per second: nothing is placed beyond it")
	flags.Int64Var(&f.jobs, "capacity-jobs", 0, "`jobs` that it was tested to hold")
	flags.Var(&f.bytes, "capacity-bytes", "bytes that it was tested to hold, such as 64GiB")
	completeNothing(cmd, capacityFlagNames()...)
}

func (f *capacityFlags) given(cmd *cobra.Command) bool {
	return slices.ContainsFunc(capacityFlagNames(), cmd.Flags().Changed)
}

// check returns every fault that needs no server to be seen.
func (f *capacityFlags) check() error {
	_, err := cell.ParseRate("--capacity-compute", f.compute)
	errs := []error{err}
	for name, n := range map[string]int64{"--capacity-jobs": f.jobs, "--capacity-bytes": f.bytes.n} {
		if n < 0 {
			errs = append(errs, &cell.FieldError{Field: name, Problem: "is " + decimal(n) + ", below 0", Remedy: "give what it was tested with"})
		}
	}
	return errors.Join(errs...)
}

// over returns the capacity with what was given in place of what was.
func (f *capacityFlags) over(cmd *cobra.Command, was *fairleadv1.Load) *fairleadv1.Load {
	l := &fairleadv1.Load{Compute: was.GetCompute(), Jobs: was.GetJobs(), Bytes: was.GetBytes()}
	if cmd.Flags().Changed("capacity-compute") {
		l.Compute = f.compute
	}
	if cmd.Flags().Changed("capacity-jobs") {
		l.Jobs = float64(f.jobs)
	}
	if cmd.Flags().Changed("capacity-bytes") {
		l.Bytes = float64(f.bytes.n)
	}
	return l
}

// loadText shows a load; of what there is none of is left out.
func loadText(l *fairleadv1.Load) string {
	var parts []string
	if n := l.GetCompute(); n != 0 {
		parts = append(parts, figure(n)+"/s")
	}
	if n := l.GetJobs(); n != 0 {
		parts = append(parts, figure(n)+" jobs")
	}
	if n := l.GetBytes(); n != 0 {
		parts = append(parts, output.Bytes(int64(n)))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// figure shows a measured number in as many digits as mean something.
func figure(n float64) string {
	if n >= 1000 {
		return strconv.FormatFloat(n, 'f', 0, 64)
	}
	return strconv.FormatFloat(n, 'g', 3, 64)
}

// labelsWidth is how much of labels is shown in a table.
const labelsWidth = 60

// The bounds of labels, as the API has them.
const (
	labelsMax     = 16
	labelBytesMax = 128
)

// checkLabels returns every fault of labels that a flag gave.
func checkLabels(flag string, m map[string]string) error {
	var errs []error
	if len(m) > labelsMax {
		errs = append(errs, &cell.FieldError{Field: flag, Problem: fmt.Sprintf("gives %d labels, of at most %d", len(m), labelsMax), Remedy: "give fewer"})
	}
	for name, value := range m {
		if err := cell.CheckID(flag, name); err != nil {
			errs = append(errs, err)
		}
		if len(value) > labelBytesMax || !utf8.ValidString(value) {
			errs = append(errs, &cell.FieldError{
				Field: flag, Problem: fmt.Sprintf("%.40q has a value above %d bytes", name, labelBytesMax), Remedy: "give a short one",
			})
		}
	}
	return errors.Join(errs...)
}

// placementFlags say where a tenant may be placed.
type placementFlags struct {
	require    labelsValue
	apart      string
	computeMin float64
	cell       string
	anywhere   bool
	updates    bool
}

// add adds the flags; an update can take all of the rules away.
func (f *placementFlags) add(cmd *cobra.Command, updates bool) {
	f.require.example, f.updates = "--require residency=eu", updates
	flags := cmd.Flags()
	flags.Var(&f.require, "require", "label that its cell must have, as `name=value`; repeated")
	flags.StringVar(&f.apart, "apart", "", "`group` of tenants that are kept in different cells")
	flags.Float64Var(&f.computeMin, "compute-min", 0, "what is set aside for it whatever it uses, in `units` of cost per second")
	flags.StringVar(&f.cell, "cell", "", "the only `cell` that it may be in; any when empty")
	completeNothing(cmd, "require", "apart", "compute-min", "cell")
	if updates {
		flags.BoolVar(&f.anywhere, "anywhere", false, "take every rule of placement away first")
	}
}

// flagNames are the names of the flags that were added.
func (f *placementFlags) flagNames() []string {
	names := []string{"require", "apart", "compute-min", "cell"}
	if f.updates {
		names = append(names, "anywhere")
	}
	return names
}

func (f *placementFlags) given(cmd *cobra.Command) bool {
	return slices.ContainsFunc(f.flagNames(), cmd.Flags().Changed)
}

// check returns every fault that needs no server to be seen.
func (f *placementFlags) check() error {
	errs := []error{checkLabels("--require", f.require.m)}
	if f.apart != "" {
		errs = append(errs, cell.CheckID("--apart", f.apart))
	}
	if f.cell != "" {
		_, err := cell.ParseCellID("--cell", f.cell)
		errs = append(errs, err)
	}
	_, err := cell.ParseRate("--compute-min", f.computeMin)
	return errors.Join(append(errs, err)...)
}

// over returns the rules with what was given in place of what was: the API replaces all of them.
func (f *placementFlags) over(cmd *cobra.Command, was *fairleadv1.PlacementRules) *fairleadv1.PlacementRules {
	if f.anywhere {
		was = nil
	}
	r := &fairleadv1.PlacementRules{Require: was.GetRequire(), Apart: was.GetApart(), ComputeMin: was.GetComputeMin(), Cell: was.GetCell()}
	if cmd.Flags().Changed("require") {
		r.Require = f.require.m
	}
	if cmd.Flags().Changed("apart") {
		r.Apart = f.apart
	}
	if cmd.Flags().Changed("compute-min") {
		r.ComputeMin = f.computeMin
	}
	if cmd.Flags().Changed("cell") {
		r.Cell = f.cell
	}
	return r
}

// rulesText shows rules of placement; none when it may be anywhere.
func rulesText(r *fairleadv1.PlacementRules) string {
	var parts []string
	if len(r.GetRequire()) > 0 {
		parts = append(parts, "requires "+output.Cut(labelsText(r.GetRequire()), labelsWidth))
	}
	if r.GetApart() != "" {
		parts = append(parts, "apart from others of "+output.Safe(r.GetApart()))
	}
	if r.GetComputeMin() != 0 {
		parts = append(parts, "at least "+rateText(r.GetComputeMin()))
	}
	if r.GetCell() != "" {
		parts = append(parts, "only in "+output.Safe(r.GetCell()))
	}
	if len(parts) == 0 {
		return output.None
	}
	return strings.Join(parts, ", ")
}
