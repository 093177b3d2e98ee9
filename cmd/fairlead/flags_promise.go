package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cmd/fairlead/config"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// amountsValue is a flag of the form NAME=NUMBER, repeated or with commas between, whose names are among those known.
type amountsValue struct {
	m       map[string]float64
	known   []string
	example string
}

func newAmounts(example string, known ...string) amountsValue {
	return amountsValue{known: known, example: example}
}

func (v *amountsValue) Type() string { return "name=number" }

func (v *amountsValue) String() string {
	pairs := make([]string, 0, len(v.m))
	for name, n := range v.m {
		pairs = append(pairs, name+"="+numberText(n))
	}
	slices.Sort(pairs)
	return strings.Join(pairs, ",")
}

func (v *amountsValue) Set(s string) error {
	for pair := range strings.SplitSeq(s, ",") {
		name, text, ok := strings.Cut(pair, "=")
		if !ok {
			return &valueError{problem: "it has no name and number", remedy: "write it as " + v.example}
		}
		if !slices.Contains(v.known, name) {
			return notOneOf(name, v.known)
		}
		if _, twice := v.m[name]; twice {
			return &valueError{problem: name + " was given before", remedy: "give each once"}
		}
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return &valueError{problem: fmt.Sprintf("%.40q is not a number", text), remedy: "write it as " + v.example}
		}
		if v.m == nil {
			v.m = make(map[string]float64)
		}
		v.m[name] = n
	}
	return nil
}

// given returns the number of name when it was given, and nil otherwise.
func (v *amountsValue) given(name string) *float64 {
	n, ok := v.m[name]
	if !ok {
		return nil
	}
	return &n
}

// creditValue is a flag that takes a bucket, or 0 for none.
type creditValue struct{ amounts amountsValue }

const creditExample = "max=180000,refill=100,extra=600"

func newCredit() creditValue { return creditValue{newAmounts(creditExample, "max", "refill", "extra")} }

func (v *creditValue) Type() string   { return "credit" }
func (v *creditValue) String() string { return v.amounts.String() }

func (v *creditValue) Set(s string) error {
	if s == "0" {
		v.amounts.m = nil
		return nil
	}
	return v.amounts.Set(s)
}

// credit returns what was given; all zeros take a credit away.
func (v *creditValue) credit() *fairleadv1.Credit {
	return &fairleadv1.Credit{Max: v.amounts.m["max"], Refill: v.amounts.m["refill"], Extra: v.amounts.m["extra"]}
}

// startsValue is a flag that takes a number of jobs and a period, or 0 for no bound.
type startsValue struct {
	jobs int64
	per  time.Duration
}

func (v *startsValue) Type() string { return "jobs/period" }

func (v *startsValue) String() string {
	if v.jobs == 0 {
		return ""
	}
	return decimal(v.jobs) + "/" + config.FormatDuration(v.per)
}

func (v *startsValue) Set(s string) error {
	if s == "0" {
		*v = startsValue{}
		return nil
	}
	jobs, per, ok := strings.Cut(s, "/")
	n, errJobs := strconv.ParseInt(jobs, 10, 64)
	d, errPer := config.ParseDuration(per)
	if !ok || errJobs != nil || errPer != nil {
		return &valueError{problem: "it is not a number of jobs and a period", remedy: "write it as 2/120s, or 0 for no bound"}
	}
	*v = startsValue{jobs: n, per: d}
	return nil
}

// starts returns what was given; zeros take a bound away.
func (v *startsValue) starts() *fairleadv1.StartRate {
	r := &fairleadv1.StartRate{Jobs: v.jobs}
	if v.per != 0 {
		r.Per = durationpb.New(v.per)
	}
	return r
}

// concurrencyValue is a repeated flag of the form KEY=MAX.
type concurrencyValue struct{ keys []*fairleadv1.ConcurrencyKey }

func (v *concurrencyValue) Type() string { return "key=max" }

func (v *concurrencyValue) String() string {
	pairs := make([]string, 0, len(v.keys))
	for _, k := range v.keys {
		pairs = append(pairs, k.GetKey()+"="+decimal(k.GetMax()))
	}
	return strings.Join(pairs, ",")
}

func (v *concurrencyValue) Set(s string) error {
	key, text, ok := strings.Cut(s, "=")
	if !ok || key == "" {
		return &valueError{problem: "it has no key and bound", remedy: "write it as --concurrency-key account-17=1"}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return &valueError{problem: fmt.Sprintf("%.40q is not a whole number", text), remedy: "write it as --concurrency-key account-17=1"}
	}
	v.keys = append(v.keys, &fairleadv1.ConcurrencyKey{Key: key, Max: n})
	return nil
}

// promiseFlags are what tenants and organizations are both promised. A flag that was not given is nil in what it makes.
type promiseFlags struct {
	displayName string
	weight      float64
	reservation amountsValue
	limit       float64
}

func classNames() []string {
	var names []string
	for _, c := range cell.Classes() {
		names = append(names, c.String())
	}
	return names
}

func (f *promiseFlags) add(cmd *cobra.Command, limit string) {
	f.reservation = newAmounts("interactive=2,batch=0", classNames()...)
	flags := cmd.Flags()
	flags.StringVar(&f.displayName, "display-name", "", "name for people")
	flags.Float64Var(&f.weight, "weight", 1, "share of contended room: 0.001 to 1000000; 0 runs only when nobody else waits")
	flags.Var(&f.reservation, "reservation", "what a class protects for it, in cost per `class=units` a second, such as interactive=2,batch=0")
	flags.Float64Var(&f.limit, "limit", 0, limit)
	completeNothing(cmd, "display-name", "weight", "reservation", "limit")
}

// check returns every fault that needs no server to be seen.
func (f *promiseFlags) check() error {
	var errs []error
	if _, err := cell.ParseWeight("--weight", f.weight); err != nil {
		errs = append(errs, err)
	}
	if !utf8.ValidString(f.displayName) {
		errs = append(errs, &cell.FieldError{Field: "--display-name", Problem: "is not UTF-8", Remedy: "write it in UTF-8"})
	}
	for _, name := range classNames() {
		_, err := cell.ParseRate("--reservation "+name, f.reservation.m[name])
		errs = append(errs, err)
	}
	_, err := cell.ParseRate("--limit", f.limit)
	return errors.Join(append(errs, err)...)
}

// numberText is a number without an exponent and no longer than it must be.
func numberText(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// reservationText shows what the classes protect.
func reservationText(interactive, batch float64) string {
	var parts []string
	for _, r := range []struct {
		class string
		rate  float64
	}{{"interactive", interactive}, {"batch", batch}} {
		if r.rate != 0 {
			parts = append(parts, r.class+" "+numberText(r.rate)+"/s")
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "none")
}

// rateText shows a limit; 0 is none.
func rateText(f float64) string {
	if f == 0 {
		return "none"
	}
	return numberText(f) + "/s"
}
