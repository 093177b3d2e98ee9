package plan

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/cell"
)

// BytesMax bounds the text of an input.
const BytesMax = 16 << 20

// reader walks the tree of a document and gathers what is wrong with it.
type reader struct {
	file   string
	faults []error
}

func (r *reader) fault(line int, field, problem, remedy string) {
	at := r.file
	if line > 0 {
		at = fmt.Sprintf("%s:%d", r.file, line)
	}
	if field != "" {
		at += ": " + field
	}
	r.faults = append(r.faults, &cell.FieldError{Field: at, Problem: problem, Remedy: remedy})
}

// document returns the root of the text's only document, or nil after a fault. A text without any is an empty mapping.
func (r *reader) document(text []byte) *yaml.Node {
	if len(text) > BytesMax {
		r.fault(0, "", fmt.Sprintf("has %d bytes, of at most %d", len(text), BytesMax), "plan for a part of it")
		return nil
	}
	var root, second yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&root); err != nil && !errors.Is(err, io.EOF) {
		r.fault(0, "", "is not YAML: "+strings.TrimPrefix(err.Error(), "yaml: "), "write it as YAML or JSON")
		return nil
	}
	if err := d.Decode(&second); !errors.Is(err, io.EOF) {
		r.fault(second.Line, "", "has a second document", "leave one")
		return nil
	}
	if len(root.Content) == 0 {
		return &yaml.Node{Kind: yaml.MappingNode}
	}
	return root.Content[0]
}

// key is one key of a mapping, and what reads its value.
type key struct {
	name string
	read func(n *yaml.Node, at string)
}

// mapping reads a mapping whose keys are those given. at is its path, empty for the whole.
func (r *reader) mapping(n *yaml.Node, at string, keys ...key) {
	n = resolved(n)
	if n.Kind != yaml.MappingNode {
		r.fault(n.Line, at, "is not a mapping of keys to values", "write it as key: value")
		return
	}
	seen := make(map[string]bool)
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		path := name.Value
		if at != "" {
			path = at + "." + name.Value
		}
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
			keys[known].read(value, path)
		}
		seen[name.Value] = true
	}
}

// list reads each item of a list.
func (r *reader) list(name string, item func(n *yaml.Node, at string)) key {
	return key{name, func(n *yaml.Node, at string) {
		n = resolved(n)
		if n.Kind != yaml.SequenceNode {
			r.fault(n.Line, at, "is not a list", "write its items as - key: value")
			return
		}
		for i, x := range n.Content {
			item(x, fmt.Sprintf("%s[%d]", at, i))
		}
	}}
}

func (r *reader) text(name string, to *string) key {
	return key{name, func(n *yaml.Node, at string) {
		if n = resolved(n); n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
			r.fault(n.Line, at, "has no value", "give it one, or leave the key out")
			return
		}
		*to = n.Value
	}}
}

// amount reads a number of units.
func (r *reader) amount(name string, to *Micro) key {
	return key{name, func(n *yaml.Node, at string) {
		var s string
		r.text(name, &s).read(n, at)
		if s == "" {
			return
		}
		m, err := ParseMicro(s)
		if err != nil {
			r.fault(n.Line, at, fmt.Sprintf("is %.40q, which %v", s, err), "give a number from 0 to "+microMax.String()+", in steps of 0.000001")
			return
		}
		*to = m
	}}
}

// weight reads a weight, which has steps of a thousandth.
func (r *reader) weight(name string, to *cell.Weight) key {
	return key{name, func(n *yaml.Node, at string) {
		m := Micro(-1)
		r.amount(name, &m).read(n, at)
		const thousandth = cell.Unit / 1000
		switch {
		case m < 0:
		case m%thousandth != 0:
			r.fault(n.Line, at, "is "+m.String()+", finer than a thousandth", "give 0, or 0.001 to 1000000 in steps of 0.001")
		default:
			*to = cell.Weight(m / thousandth)
		}
	}}
}

// resolved follows an alias to what it stands for.
func resolved(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}
