package sim

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/e2e/sim/trace"
)

// FileError is returned for each thing in a scenario's text that is not understood.
type FileError struct {
	File    string
	Line    int // from 1
	Column  int // from 1
	Field   string
	Problem string
	Remedy  string
}

func (e *FileError) Error() string {
	text := fmt.Sprintf("%s:%d:%d: ", e.File, e.Line, e.Column)
	if e.Field != "" {
		text += e.Field + " "
	}
	return text + e.Problem + ": " + e.Remedy
}

// document is a YAML text while it is read. It goes on after a fault, so that all of them are said at once.
type document struct {
	file string
	errs []error
}

// key is a member that an object may have.
type key struct {
	name string
	read func(n *yaml.Node, path string)
}

func (d *document) fault(n *yaml.Node, path, remedy, format string, args ...any) {
	d.errs = append(d.errs, &FileError{
		File: d.file, Line: n.Line, Column: n.Column, Field: path, Problem: fmt.Sprintf(format, args...), Remedy: remedy,
	})
}

// refuse is fault for an error of the vocabulary.
func (d *document) refuse(n *yaml.Node, path string, err error) {
	if f, ok := errors.AsType[*cell.FieldError](err); ok {
		d.fault(n, path, f.Remedy, "%s", f.Problem)
		return
	}
	d.fault(n, path, "correct it", "%v", err)
}

// object reads the members of an object; those that it may not have are refused.
func (d *document) object(n *yaml.Node, path string, keys ...key) {
	n = follow(n)
	if n.Kind != yaml.MappingNode {
		d.fault(n, path, "write it as names and values", "is not an object")
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i].Value
		k := slices.IndexFunc(keys, func(k key) bool { return k.name == name })
		switch {
		case k < 0:
			d.fault(n.Content[i], join(path, name), "use "+names(keys), "is not known here")
		case seen[name]:
			d.fault(n.Content[i], join(path, name), "say it once", "comes twice")
		default:
			keys[k].read(follow(n.Content[i+1]), join(path, name))
		}
		seen[name] = true
	}
}

// list reads the elements of a list; anything else is read as a list of that alone.
func (d *document) list(n *yaml.Node, path string, read func(n *yaml.Node, path string)) {
	n = follow(n)
	if n.Kind != yaml.SequenceNode {
		read(n, path)
		return
	}
	for i, item := range n.Content {
		read(follow(item), path+"["+strconv.Itoa(i)+"]")
	}
}

// follow returns what an alias stands for.
func follow(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func names(keys []key) string {
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = k.name
	}
	return strings.Join(out, ", ")
}

// text reads a scalar.
func (d *document) text(n *yaml.Node, path string) string {
	if n.Kind != yaml.ScalarNode {
		d.fault(n, path, "write one value", "is not a single value")
		return ""
	}
	return n.Value
}

func (d *document) integer(n *yaml.Node, path string, least, most int64) int64 {
	v, err := strconv.ParseInt(d.text(n, path), 10, 64)
	if err != nil || v < least || v > most {
		d.fault(n, path, "give a whole number in that range", "is %.40q, outside %d to %d", n.Value, least, most)
		return least
	}
	return v
}

func (d *document) decimal(n *yaml.Node, path string, least, most float64) float64 {
	v, err := strconv.ParseFloat(d.text(n, path), 64)
	if err != nil || !(v >= least && v <= most) {
		d.fault(n, path, "give a number in that range", "is %.40q, outside %v to %v", n.Value, least, most)
		return least
	}
	return v
}

func (d *document) boolean(n *yaml.Node, path string) bool {
	s := d.text(n, path)
	if s != "true" && s != "false" {
		d.fault(n, path, "write true or false", "is %.40q", s)
	}
	return s == "true"
}

// duration reads a time such as 200ms; a bare 0 needs no unit.
func (d *document) duration(n *yaml.Node, path string) time.Duration {
	v, err := time.ParseDuration(d.text(n, path))
	if err != nil || v < 0 || v > trace.TimeMax {
		d.fault(n, path, "write it like 200ms, 1.5s or 2h", "is %.40q, which is no time from 0 to a hundred years", n.Value)
		return 0
	}
	return v
}

// id reads an identifier.
func (d *document) id(n *yaml.Node, path string) string {
	s := d.text(n, path)
	if err := cell.CheckID(path, s); err != nil {
		d.refuse(n, path, err)
	}
	return s
}
