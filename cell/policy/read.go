package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	yaml "go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/drr"
	"github.com/fairlead/fairlead/cell/sched"
)

// reader walks a document's tree and gathers what is wrong with it.
type reader struct {
	file   string
	faults []*Fault
	lines  map[string]int // of each key, by its path
	// The lines of organizations, and where they are named as parents.
	organizations map[cell.OrganizationID]int
	members       []member
}

func newReader(file string) *reader {
	return &reader{file: file, lines: make(map[string]int), organizations: make(map[cell.OrganizationID]int)}
}

// member is where an organization is named as a parent.
type member struct {
	organization cell.OrganizationID
	line         int
	field        string
}

func (r *reader) fault(line int, field, problem, remedy string) {
	r.faults = append(r.faults, &Fault{
		File: r.file, Line: line, FieldError: cell.FieldError{Field: field, Problem: problem, Remedy: remedy},
	})
}

// syntax adds what the decoder says of a text that is not YAML, which has its line in words.
func (r *reader) syntax(err error) {
	problem, line := strings.TrimPrefix(err.Error(), "yaml: "), 0
	if rest, ok := strings.CutPrefix(problem, "line "); ok {
		number, text, _ := strings.Cut(rest, ": ")
		if n, err := strconv.Atoi(number); err == nil {
			line, problem = n, text
		}
	}
	r.fault(line, "", problem, "write it as YAML")
}

// faultsOf adds each *[cell.FieldError] in err, with its field under prefix and in the words of the form, and its line where the field
// has one.
func (r *reader) faultsOf(line int, prefix string, err error) {
	if err == nil {
		return
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			r.faultsOf(line, prefix, e)
		}
		return
	}
	if ce, ok := errors.AsType[*drr.ConfigError](err); ok {
		err = &cell.FieldError{Field: ce.Field, Problem: fmt.Sprintf("is %d, outside %d to %d", ce.Value, ce.Min, ce.Max), Remedy: ce.Remedy}
	}
	fe, ok := errors.AsType[*cell.FieldError](err)
	if !ok {
		r.fault(line, strings.TrimSuffix(prefix, "."), err.Error(), "")
		return
	}
	field := fe.Field
	if class, ok := strings.CutPrefix(field, "reservation_"); ok {
		field = "reservation." + class
	}
	field = prefix + field
	if own, ok := r.lines[field]; ok {
		line = own
	}
	r.fault(line, field, fe.Problem, fe.Remedy)
}

// err returns every fault in the order of the text, or nil.
func (r *reader) err() error {
	if len(r.faults) == 0 {
		return nil
	}
	slices.SortStableFunc(r.faults, func(a, b *Fault) int { return cmp.Compare(a.Line, b.Line) })
	return &FaultsError{Faults: r.faults}
}

// key is one key of a mapping and what reads its value, which is told where the value stands.
type key struct {
	name string
	read func(n *yaml.Node, at string)
}

// mapping reads a mapping whose keys are those given, and returns false when it is none. at is its path, empty for the whole.
func (r *reader) mapping(n *yaml.Node, at string, keys ...key) bool {
	n = resolved(n)
	if n.Kind != yaml.MappingNode {
		if n.Tag == "!!null" { // nothing under a key is the same as no key
			return true
		}
		r.fault(n.Line, at, "is not a mapping of keys to values", "write it as key: value")
		return false
	}
	seen := make(map[string]bool)
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		path := under(at, name.Value)
		known := slices.IndexFunc(keys, func(k key) bool { return k.name == name.Value })
		switch {
		case known < 0:
			names := make([]string, len(keys))
			for i, k := range keys {
				names[i] = k.name
			}
			r.fault(name.Line, path, "is not a key", "use "+strings.Join(names, ", "))
		case seen[name.Value]:
			r.fault(name.Line, path, "stands twice", "leave one")
		default:
			r.lines[path] = name.Line
			keys[known].read(value, path)
		}
		seen[name.Value] = true
	}
	return true
}

// each calls read with each item of a list and its path.
func (r *reader) each(n *yaml.Node, at string, read func(n *yaml.Node, at string)) {
	n = resolved(n)
	if n.Kind != yaml.SequenceNode {
		if n.Tag != "!!null" {
			r.fault(n.Line, at, "is not a list", "write its items as - key: value")
		}
		return
	}
	for i, item := range n.Content {
		read(item, fmt.Sprintf("%s[%d]", at, i))
	}
}

// scalar returns the text of a single value, and false after a fault.
func (r *reader) scalar(n *yaml.Node, at string) (string, bool) {
	n = resolved(n)
	if n.Kind != yaml.ScalarNode {
		r.fault(n.Line, at, "is not a single value", "write it as key: value")
		return "", false
	}
	if n.Tag == "!!null" {
		r.fault(n.Line, at, "has no value", "give it one, or leave the key out")
		return "", false
	}
	return n.Value, true
}

// text reads a text into to.
func (r *reader) text(name string, to *string) key {
	return key{name, func(n *yaml.Node, at string) {
		if s, ok := r.scalar(n, at); ok {
			*to = s
		}
	}}
}

// whole number into to.
func (r *reader) number(name string, to *int64) key {
	return key{name, func(n *yaml.Node, at string) {
		s, ok := r.scalar(n, at)
		if !ok {
			return
		}
		v, err := strconv.ParseInt(strings.ReplaceAll(s, "_", ""), 10, 64)
		if err != nil {
			r.fault(n.Line, at, fmt.Sprintf("is %.40q, not a whole number", s), "give one, such as 1000")
			return
		}
		*to = v
	}}
}

// amount reads units into to as micro-units; step is the least that can be told apart.
func (r *reader) amount(name string, to *int64, step int64) key {
	return key{name, func(n *yaml.Node, at string) {
		s, ok := r.scalar(n, at)
		if !ok {
			return
		}
		v, err := parseUnits(s)
		switch {
		case err == nil && v%step != 0:
			err = errSteps
		case err == nil && v < 0:
			err = errNegative
		}
		if err != nil {
			r.fault(n.Line, at, fmt.Sprintf("is %.40q, which is %v", s, err), "give a number of 0 or more, in steps of "+cell.FormatUnits(step))
			return
		}
		*to = v
	}}
}

// rate reads units per second.
func (r *reader) rate(name string, to *cell.Rate) key { return r.amount(name, (*int64)(to), 1) }

// weight reads a weight, which has steps of a thousandth.
func (r *reader) weight(name string, to *cell.Weight) key {
	return key{name, func(n *yaml.Node, at string) {
		micro := int64(*to) * thousandth
		r.amount(name, &micro, thousandth).read(n, at)
		*to = cell.Weight(micro / thousandth)
	}}
}

// thousandth of a unit, in micro-units.
const thousandth = cell.Unit / 1000

// duration reads a duration; 0 needs no unit.
func (r *reader) duration(name string, to *time.Duration) key {
	return key{name, func(n *yaml.Node, at string) {
		s, ok := r.scalar(n, at)
		if !ok {
			return
		}
		d, err := time.ParseDuration(s)
		if err != nil {
			r.fault(n.Line, at, fmt.Sprintf("is %.40q, not a duration", s), "write it as 250ms, 10s or 1m30s")
			return
		}
		if d < 0 || d > sched.WaitMax {
			r.fault(n.Line, at, fmt.Sprintf("is %v, outside 0s to %v", d, sched.WaitMax), "write it as 250ms, 10s or 1m30s")
			return
		}
		*to = d
	}}
}

// hand reads a list of worker groups; an empty one is no hand.
func (r *reader) hand(name string, to *uint64) key {
	return key{name, func(n *yaml.Node, at string) {
		*to = 0
		r.each(n, at, func(n *yaml.Node, at string) {
			var number int64
			faults := len(r.faults)
			r.number(name, &number).read(n, at)
			if len(r.faults) > faults {
				return
			}
			group, err := cell.CheckWorkerGroup(at, number)
			switch {
			case err != nil:
				r.faultsOf(n.Line, "", err)
			case group == 0:
				r.fault(n.Line, at, "is 0, which is no group", "give 1 to "+strconv.Itoa(cell.WorkerGroupsMax)+", or leave groups out for no hand")
			case group.In(*to):
				r.fault(n.Line, at, fmt.Sprintf("is %d, as another", group), "give each group once")
			default:
				*to |= group.Bit()
			}
		})
	}}
}

// What is wrong with the text of an amount.
var (
	errNumber   = errors.New("not a number")
	errNegative = errors.New("below 0")
	errSteps    = errors.New("too fine")
	errLarge    = errors.New("too large")
)

// parseUnits returns the micro-units in a decimal number of units, exactly. Digits may be grouped by underscores.
func parseUnits(s string) (int64, error) {
	digits, negative := strings.CutPrefix(strings.ReplaceAll(s, "_", ""), "-")
	whole, part, point := strings.Cut(digits, ".")
	if whole+part == "" || strings.Trim(whole+part, "0123456789") != "" || point && part == "" {
		return 0, errNumber
	}
	const places = 6 // of a micro-unit
	part = strings.TrimRight(part, "0")
	if len(part) > places {
		return 0, errSteps
	}
	part += strings.Repeat("0", places-len(part))
	n, err := strconv.ParseInt(whole+part, 10, 64)
	if err != nil {
		return 0, errLarge
	}
	if negative {
		n = -n
	}
	return n, nil
}

// resolved follows an alias to what it stands for.
func resolved(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func under(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}
