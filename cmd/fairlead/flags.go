package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlead/fairlead/cmd/fairlead/config"
	"github.com/fairlead/fairlead/cmd/fairlead/failure"
)

// valueError says what is wrong with a flag's value and what to do about it.
type valueError struct{ problem, remedy string }

func (e *valueError) Error() string { return e.problem + ": " + e.remedy }

func notOneOf(s string, valid []string) error {
	remedy := "use " + strings.Join(valid, ", ")
	if near, ok := config.Nearest(s, valid); ok {
		remedy = "did you mean " + near + "? Use " + strings.Join(valid, ", ")
	}
	return &valueError{problem: "it is none of the known ones", remedy: remedy}
}

// enumValue is a flag that takes one of several words.
type enumValue struct {
	value string
	valid []string
}

func newEnum(value string, valid []string) *enumValue { return &enumValue{value: value, valid: valid} }

func (e *enumValue) String() string { return e.value }
func (e *enumValue) Type() string   { return "word" }

func (e *enumValue) Set(s string) error {
	if !slices.Contains(e.valid, s) {
		return notOneOf(s, e.valid)
	}
	e.value = s
	return nil
}

// enumList is a flag that takes several of several words, repeated or with commas between them.
type enumList struct {
	values []string
	valid  []string
}

func newEnumList(valid []string) *enumList { return &enumList{valid: valid} }

func (e *enumList) String() string         { return strings.Join(e.values, ",") }
func (e *enumList) Type() string           { return "words" }
func (e *enumList) GetSlice() []string     { return e.values }
func (e *enumList) Append(s string) error  { return e.Set(s) }
func (e *enumList) Replace([]string) error { return &valueError{problem: "it cannot be replaced"} }

func (e *enumList) Set(s string) error {
	for word := range strings.SplitSeq(s, ",") {
		if !slices.Contains(e.valid, word) {
			return notOneOf(word, e.valid)
		}
		if !slices.Contains(e.values, word) {
			e.values = append(e.values, word)
		}
	}
	return nil
}

// durationValue is a flag that takes a duration, days included.
type durationValue struct{ d time.Duration }

func newDuration(d time.Duration) *durationValue { return &durationValue{d: d} }

func (v *durationValue) String() string {
	if v.d == 0 {
		return "0s" // the zero that cobra's help leaves out
	}
	return config.FormatDuration(v.d)
}
func (v *durationValue) Type() string { return "duration" }

func (v *durationValue) Set(s string) error {
	d, err := config.ParseDuration(s)
	if err != nil {
		return &valueError{problem: "it is not a duration", remedy: "write it as 90s, 1h30m or 7d"}
	}
	v.d = d
	return nil
}

// timeValue is a flag that takes a point in time, or a duration from now.
type timeValue struct {
	t   time.Time // set for a point in time
	d   time.Duration
	set bool
}

func (v *timeValue) Type() string { return "time" }

func (v *timeValue) String() string {
	switch {
	case !v.set:
		return ""
	case !v.t.IsZero():
		return v.t.Format(time.RFC3339Nano)
	default:
		return config.FormatDuration(v.d)
	}
}

func (v *timeValue) Set(s string) error {
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		*v = timeValue{t: t, set: true}
		return nil
	}
	d, err := config.ParseDuration(s)
	if err != nil {
		return &valueError{
			problem: "it is neither a time nor a duration",
			remedy:  "write a time as 2030-01-31T15:04:05Z, or a duration from now as 90s, 1h30m or 7d",
		}
	}
	*v = timeValue{d: d, set: true}
	return nil
}

// at returns the point in time that the flag names.
func (v *timeValue) at(now time.Time) time.Time {
	if v.t.IsZero() {
		return now.Add(v.d)
	}
	return v.t
}

// sizeValue is a flag that takes a number of bytes, with a unit if need be.
type sizeValue struct{ n int64 }

func (v *sizeValue) String() string { return strconv.FormatInt(v.n, 10) }
func (v *sizeValue) Type() string   { return "bytes" }

func (v *sizeValue) Set(s string) error {
	bad := &valueError{problem: "it is not a number of bytes", remedy: "write it as 1048576, 64KiB, 16MiB or 1GiB"}
	number, shift := s, 0
	for i, unit := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if n, ok := strings.CutSuffix(s, unit); ok {
			number, shift = n, 10*(i+1)
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n > (1<<62)>>shift || n < -(1<<62)>>shift {
		return bad
	}
	v.n = n << shift
	return nil
}

// labelsValue is a repeated flag of the form NAME=VALUE.
type labelsValue struct {
	m       map[string]string
	example string // of the whole flag; --label colour=red when empty
}

func (v *labelsValue) Type() string { return "name=value" }

func (v *labelsValue) String() string {
	pairs := make([]string, 0, len(v.m))
	for name, value := range v.m {
		pairs = append(pairs, name+"="+value)
	}
	slices.Sort(pairs)
	return strings.Join(pairs, ",")
}

func (v *labelsValue) Set(s string) error {
	name, value, ok := strings.Cut(s, "=")
	if !ok || name == "" {
		return &valueError{problem: "it has no name and value", remedy: "write it as " + cmp.Or(v.example, "--label colour=red")}
	}
	if !utf8.ValidString(s) {
		return &valueError{problem: "it is not UTF-8", remedy: "write the label in UTF-8"}
	}
	if _, twice := v.m[name]; twice {
		return &valueError{problem: "the label " + name + " was given before", remedy: "give each label once"}
	}
	if v.m == nil {
		v.m = make(map[string]string)
	}
	v.m[name] = value
	return nil
}

// bind ties flags to keys of the configuration.
func bind(flags *pflag.FlagSet, keys map[string]string) {
	for name, key := range keys {
		config.BindFlag(flags.Lookup(name), key)
	}
}

// completeEnum makes the shell offer the valid words.
func completeEnum(cmd *cobra.Command, flag string, valid []string) {
	must(cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(valid, cobra.ShellCompDirectiveNoFileComp)))
}

// completeNothing keeps the shell from offering files.
func completeNothing(cmd *cobra.Command, flags ...string) {
	for _, f := range flags {
		must(cmd.RegisterFlagCompletionFunc(f, cobra.NoFileCompletions))
	}
}

// must panics with what only a mistake in this package can cause.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("command line: %v", err))
	}
}

// arguments checks the number of a command's arguments and that they are UTF-8: exactly those named, or with more set, at least them.
func arguments(more bool, names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		help := "write it as: " + strings.TrimSuffix(cmd.UseLine(), " [flags]")
		switch {
		case len(args) < len(names):
			return failure.Usagef(help, "%s needs %s", cmd.CommandPath(), strings.Join(names[len(args):], " and "))
		case len(args) > len(names) && !more:
			if len(names) == 0 {
				return failure.Usagef(help, "%s takes no argument, and got %.40q", cmd.CommandPath(), args[0])
			}
			return failure.Usagef(help, "%s has an argument too many: %.40q", cmd.CommandPath(), args[len(names)])
		}
		return utf8Arguments(cmd, args)
	}
}

// exclusive returns a problem when more than one of the flags is given.
func exclusive(cmd *cobra.Command, flags ...string) error {
	var both []string
	for _, name := range flags {
		if cmd.Flags().Changed(name) {
			both = append(both, "--"+name)
		}
	}
	if len(both) < 2 {
		return nil
	}
	return failure.Usagef("give one of them", "%s cannot stand together", strings.Join(both, " and "))
}

// utf8Arguments refuses what the API has no form for.
func utf8Arguments(_ *cobra.Command, args []string) error {
	for _, arg := range args {
		if !utf8.ValidString(arg) {
			return failure.Usagef("write it in UTF-8", "the argument %.40q is not UTF-8", arg)
		}
	}
	return nil
}
