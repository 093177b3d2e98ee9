package output

import (
	"fmt"
	"io"
	"strings"

	"google.golang.org/protobuf/proto"
)

// Column is one column of a table.
type Column struct {
	Name string
	Wide bool // only with -o wide
}

// View is how one kind of object is shown: its columns, the cells of one object, and its name for -o name.
type View[T proto.Message] struct {
	Columns []Column
	Row     func(T) []string
	Name    func(T) string
}

// Printer writes answers to Out. It is for one goroutine.
type Printer struct {
	Out    io.Writer
	Format Format
}

// Wide reports whether every detail is asked for.
func (p *Printer) Wide() bool { return p.Format == FormatWide }

// Human reports whether the answer is for people.
func (p *Printer) Human() bool { return p.Format == FormatTable || p.Format == FormatWide }

// Object writes one object in the machine's formats: its name, if it has one, or the whole as JSON or YAML. People's formats are the caller's own: it
// writes them when [Printer.Human] says so.
func (p *Printer) Object(name string, m proto.Message) error {
	switch p.Format {
	case FormatName:
		if name == "" {
			return nil
		}
		return p.write([]byte(name + "\n"))
	case FormatYAML, FormatJSON:
		b, err := AppendMessage(nil, m, "", false)
		if err != nil {
			return err
		}
		return p.Document(b)
	case FormatTable, FormatWide:
		panic("output: Object is for machines, and " + string(p.Format) + " is not")
	default:
		panic("output: no format " + string(p.Format))
	}
}

// Line writes m as one line of JSON, or as one YAML document of a stream: for answers that repeat.
func (p *Printer) Line(m proto.Message) error {
	b, err := AppendMessage(nil, m, "", true)
	if err != nil {
		return err
	}
	if p.Format != FormatYAML {
		return p.write(append(b, '\n'))
	}
	if err := p.write([]byte("---\n")); err != nil {
		return err
	}
	return p.Document(b)
}

// Document writes JSON text that was made elsewhere, in the machine's format that was asked for.
func (p *Printer) Document(b []byte) error {
	if p.Format == FormatYAML {
		y, err := yamlOf(b)
		if err != nil {
			return err
		}
		return p.write(y)
	}
	return p.write(append(b, '\n'))
}

func (p *Printer) write(b []byte) error {
	if _, err := p.Out.Write(b); err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	return nil
}

// Section writes a table that stands on its own in an answer of several, whatever the number of rows.
func (p *Printer) Section(columns []Column, rows [][]string) error {
	return writeTable(p.Out, picked{columns, pick(columns, p.Wide())}, rows, true)
}

// Pair is a line of a description.
type Pair struct{ Key, Value string }

// Describe writes pairs, one a line, with their values aligned; pairs without a value, or with [None], are left out.
func (p *Printer) Describe(pairs []Pair) error {
	var b strings.Builder
	for _, pair := range pairs {
		if pair.Value != "" && pair.Value != None {
			b.WriteString(pair.Key + ":\t" + pair.Value + "\n")
		}
	}
	return align(p.Out, b.String())
}

// List writes a list that arrives in parts: the machine's formats get one object with items, however many parts there are.
// It must be closed.
type List[T proto.Message] struct {
	p       *Printer
	view    View[T]
	pick    []int
	started bool
	yaml    []byte // YAML needs the whole
}

// NewList returns a list that p writes by view.
func NewList[T proto.Message](p *Printer, view View[T]) *List[T] {
	return &List[T]{p: p, view: view, pick: pick(view.Columns, p.Wide())}
}

// Add writes items. Each call's rows are aligned among themselves.
func (l *List[T]) Add(items ...T) error {
	switch l.p.Format {
	case FormatName:
		var b strings.Builder
		for _, item := range items {
			b.WriteString(l.view.Name(item) + "\n")
		}
		return l.p.write([]byte(b.String()))
	case FormatJSON, FormatYAML:
		return l.addJSON(items)
	case FormatTable, FormatWide:
		rows := make([][]string, len(items))
		for i, item := range items {
			rows[i] = l.view.Row(item)
		}
		first := !l.started
		l.started = true
		return writeTable(l.p.Out, picked{l.view.Columns, l.pick}, rows, first)
	default:
		panic("output: no format " + string(l.p.Format))
	}
}

func (l *List[T]) addJSON(items []T) error {
	var b []byte
	for _, item := range items {
		if l.started {
			b = append(b, ',')
		} else {
			b = append(b, "{\n  \"items\": ["...)
		}
		l.started = true
		b = append(b, "\n    "...)
		var err error
		if b, err = AppendMessage(b, item, "    ", false); err != nil {
			return err
		}
	}
	if l.p.Format == FormatYAML {
		l.yaml = append(l.yaml, b...)
		return nil
	}
	return l.p.write(b)
}

// Close ends the list. It must be called once, after the last Add, when nothing failed.
func (l *List[T]) Close() error {
	switch l.p.Format {
	case FormatJSON:
		if !l.started {
			return l.p.write([]byte("{\n  \"items\": []\n}\n"))
		}
		return l.p.write([]byte("\n  ]\n}\n"))
	case FormatYAML:
		if !l.started {
			return l.p.Document([]byte(`{"items": []}`))
		}
		return l.p.Document(append(l.yaml, "]}"...))
	case FormatTable, FormatWide:
		if !l.started {
			return writeTable(l.p.Out, picked{l.view.Columns, l.pick}, nil, true)
		}
	case FormatName:
	}
	return nil
}

// Text writes a line.
func (p *Printer) Text(line string) error { return p.write([]byte(line + "\n")) }
