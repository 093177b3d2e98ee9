package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// AppendMessage appends m as JSON to b: protojson's mapping with unset fields left out, in the order of the field numbers, in always the
// same bytes, and with JSON payloads verbatim. indent is what stands before the closing brace in a form of many lines; with compact
// there is one line, unless a payload brings its own.
//
// protojson itself cannot be used: it writes a payload's document as a string, and its white space differs between builds on purpose.
func AppendMessage(b []byte, m proto.Message, indent string, compact bool) ([]byte, error) {
	e := encoder{b: b, compact: compact}
	if err := e.message(m.ProtoReflect(), indent); err != nil {
		return nil, err
	}
	return e.b, nil
}

type encoder struct {
	b       []byte
	compact bool
}

func (e *encoder) message(m protoreflect.Message, indent string) error {
	switch m.Interface().(type) {
	case *timestamppb.Timestamp, *durationpb.Duration:
		text, err := protojson.Marshal(m.Interface())
		if err != nil {
			return fmt.Errorf("%s: %w", m.Descriptor().FullName(), err)
		}
		e.b = append(e.b, bytes.TrimSpace(text)...)
		return nil
	}
	payload, isPayload := m.Interface().(*fairleadv1.Payload)
	fields := setFields(m)
	return e.block('{', '}', len(fields), indent, func(i int, inner string) error {
		f := fields[i]
		e.key(f.JSONName())
		if isPayload && f.Name() == "json" && json.Valid([]byte(payload.GetJson())) && utf8.ValidString(payload.GetJson()) {
			e.b = append(e.b, payload.GetJson()...)
			return nil
		}
		return e.field(f, m.Get(f), inner)
	})
}

func setFields(m protoreflect.Message) []protoreflect.FieldDescriptor {
	var fields []protoreflect.FieldDescriptor
	m.Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		fields = append(fields, f)
		return true
	})
	slices.SortFunc(fields, func(a, b protoreflect.FieldDescriptor) int { return int(a.Number()) - int(b.Number()) })
	return fields
}

func (e *encoder) field(f protoreflect.FieldDescriptor, v protoreflect.Value, indent string) error {
	switch {
	case f.IsMap():
		return e.mapField(f, v.Map(), indent)
	case f.IsList():
		list := v.List()
		return e.block('[', ']', list.Len(), indent, func(i int, inner string) error {
			return e.value(f, list.Get(i), inner)
		})
	default:
		return e.value(f, v, indent)
	}
}

func (e *encoder) mapField(f protoreflect.FieldDescriptor, m protoreflect.Map, indent string) error {
	keys := make([]protoreflect.MapKey, 0, m.Len())
	m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, k)
		return true
	})
	slices.SortFunc(keys, func(a, b protoreflect.MapKey) int { return bytes.Compare([]byte(a.String()), []byte(b.String())) })
	return e.block('{', '}', len(keys), indent, func(i int, inner string) error {
		e.key(keys[i].String())
		return e.value(f.MapValue(), m.Get(keys[i]), inner)
	})
}

func (e *encoder) value(f protoreflect.FieldDescriptor, v protoreflect.Value, indent string) error {
	switch f.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return e.message(v.Message(), indent)
	case protoreflect.EnumKind:
		if d := f.Enum().Values().ByNumber(v.Enum()); d != nil {
			e.text(string(d.Name()))
		} else { // a newer server's value
			e.b = strconv.AppendInt(e.b, int64(v.Enum()), 10)
		}
	case protoreflect.StringKind:
		e.text(v.String())
	case protoreflect.BytesKind:
		return e.plain(v.Bytes())
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		e.text(v.String())
	case protoreflect.BoolKind, protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind, protoreflect.Uint32Kind,
		protoreflect.Fixed32Kind, protoreflect.FloatKind, protoreflect.DoubleKind:
		return e.plain(v.Interface())
	default:
		return fmt.Errorf("field %s has a kind without a JSON form: %s", f.FullName(), f.Kind())
	}
	return nil
}

// block writes n members between two brackets, each on a line of its own unless compact.
func (e *encoder) block(first, last byte, n int, indent string, member func(i int, inner string) error) error {
	e.b = append(e.b, first)
	inner := indent + "  "
	for i := range n {
		if i > 0 {
			e.b = append(e.b, ',')
		}
		e.line(inner)
		if err := member(i, inner); err != nil {
			return err
		}
	}
	if n > 0 {
		e.line(indent)
	}
	e.b = append(e.b, last)
	return nil
}

func (e *encoder) line(indent string) {
	if !e.compact {
		e.b = append(e.b, '\n')
		e.b = append(e.b, indent...)
	}
}

func (e *encoder) key(name string) {
	e.text(name)
	e.b = append(e.b, ':')
	if !e.compact {
		e.b = append(e.b, ' ')
	}
}

// text writes s as a JSON string. Characters of HTML stay as they are: this is read in terminals.
func (e *encoder) text(s string) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic(fmt.Sprintf("output: a string has no JSON form: %v", err))
	}
	e.b = append(e.b, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...)
}

func (e *encoder) plain(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("as JSON: %w", err)
	}
	e.b = append(e.b, text...)
	return nil
}
