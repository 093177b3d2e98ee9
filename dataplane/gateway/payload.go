package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// jsonDepthMax bounds the nesting of a payload that stands in a request as it is: what many languages' parsers can still read. Beyond it
// the answer is invalid_argument.
const jsonDepthMax = 1000

// errNotJSON ends a scan of text that is no JSON: protojson then says so, with line and column.
var errNotJSON = errors.New("not JSON")

// quotePayloads returns data, a message of type d in JSON, with every [fairleadv1.Payload] whose json is not a string made into one: the
// string of that value's exact text, so that no number is rounded and no space is lost on the way to the worker. It returns data itself when
// there is nothing to do.
//
// It follows the message's own fields, so that a label or a part of a payload that happens to be named json is left alone. It decides only
// where values begin and end; whether data is a valid message is for protojson.
func quotePayloads(data []byte, d protoreflect.MessageDescriptor) ([]byte, error) {
	if !holdsPayload(d, 0) || !bytes.Contains(data, []byte(`json"`)) && !bytes.Contains(data, []byte(`\u`)) {
		return data, nil
	}
	q := quoter{in: data}
	err := q.message(d)
	if errors.Is(err, errNotJSON) {
		return data, nil
	}
	if err != nil {
		return nil, err
	}
	if q.out == nil {
		return data, nil
	}
	return append(q.out, data[q.copied:]...), nil
}

// holdsPayload reports whether a message of type d can hold a payload. Requests nest a few messages deep; the bound is against a type that
// holds itself.
func holdsPayload(d protoreflect.MessageDescriptor, depth int) bool {
	const typesMax = 8
	if isPayload(d) {
		return true
	}
	if depth == typesMax {
		return false
	}
	fields := d.Fields()
	for i := range fields.Len() {
		if m := fields.Get(i).Message(); m != nil && !fields.Get(i).IsMap() && holdsPayload(m, depth+1) {
			return true
		}
	}
	return false
}

func isPayload(d protoreflect.MessageDescriptor) bool {
	return d.FullName() == (*fairleadv1.Payload)(nil).ProtoReflect().Descriptor().FullName()
}

// quoter scans in once, from front to back, and copies to out only from the first value on that it changes.
type quoter struct {
	in     []byte
	at     int // the byte that comes next
	out    []byte
	copied int    // in[:copied] is in out, if out is in use
	path   []byte // of the message being read, for errors
}

// message reads an object that stands for a message of type d. Anything else is left to protojson.
func (q *quoter) message(d protoreflect.MessageDescriptor) error {
	q.space()
	if q.peek() != '{' {
		return q.skip()
	}
	payload := isPayload(d)
	return q.each('{', '}', func() error {
		name, err := q.key()
		if err != nil {
			return err
		}
		f := fieldNamed(d, name)
		if f == nil {
			return q.skip()
		}
		before := len(q.path)
		defer func() { q.path = q.path[:before] }()
		if before > 0 {
			q.path = append(q.path, '.')
		}
		q.path = append(q.path, f.Name()...)
		switch {
		case payload && f.Name() == "json":
			return q.quote()
		case f.Message() == nil || f.IsMap() || !holdsPayload(f.Message(), 0):
			return q.skip()
		case f.IsList():
			return q.list(f.Message())
		default:
			return q.message(f.Message())
		}
	})
}

func (q *quoter) list(d protoreflect.MessageDescriptor) error {
	q.space()
	if q.peek() != '[' {
		return q.skip()
	}
	before := len(q.path)
	i := 0
	return q.each('[', ']', func() error {
		q.path = fmt.Appendf(q.path[:before], "[%d]", i)
		defer func() { q.path = q.path[:before] }()
		i++
		return q.message(d)
	})
}

// fieldNamed finds a field as protojson does: by its JSON name or its own.
func fieldNamed(d protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if f := d.Fields().ByJSONName(name); f != nil {
		return f
	}
	return d.Fields().ByTextName(name)
}

// quote reads a value and, unless it is a string, copies it as the string of its text.
func (q *quoter) quote() error {
	q.space()
	from := q.at
	if q.peek() == '"' {
		return q.skip()
	}
	switch err := q.skip(); {
	case errors.Is(err, errNotJSON) && q.at == len(q.in):
		return q.bad("is not JSON: the request ends within it")
	case errors.Is(err, errNotJSON):
		return q.bad("is not JSON: there is no value")
	case err != nil:
		return err
	}
	raw := q.in[from:q.at]
	if !utf8.Valid(raw) {
		return q.bad("is not valid UTF-8: send text as UTF-8, or other bytes as data")
	}
	if !json.Valid(raw) {
		var v json.RawMessage
		return q.bad(fmt.Sprintf("is not JSON: %v", json.Unmarshal(raw, &v)))
	}
	if q.out == nil {
		q.out = make([]byte, 0, len(q.in)+len(q.in)/8+16)
	}
	q.out = append(q.out, q.in[q.copied:from]...)
	q.out = appendQuoted(q.out, raw)
	q.copied = q.at
	return nil
}

// bad returns the error for the value that was read last.
func (q *quoter) bad(problem string) error {
	if len(q.path) == 0 {
		return errors.New("the request " + problem)
	}
	return fmt.Errorf("%s %s", q.path, problem)
}

// each reads the members of an object or the elements of an array, which begins here.
func (q *quoter) each(open, end byte, member func() error) error {
	if q.peek() != open {
		return errNotJSON
	}
	q.at++
	q.space()
	if q.peek() == end {
		q.at++
		return nil
	}
	for {
		if err := member(); err != nil {
			return err
		}
		q.space()
		switch q.peek() {
		case ',':
			q.at++
		case end:
			q.at++
			return nil
		default:
			return errNotJSON
		}
	}
}

// key reads a member's name and the colon.
func (q *quoter) key() (string, error) {
	q.space()
	from := q.at
	if q.peek() != '"' {
		return "", errNotJSON
	}
	if err := q.str(); err != nil {
		return "", err
	}
	name := string(q.in[from+1 : q.at-1])
	if bytes.IndexByte(q.in[from:q.at], '\\') >= 0 {
		if err := json.Unmarshal(q.in[from:q.at], &name); err != nil {
			return "", errNotJSON
		}
	}
	q.space()
	if q.peek() != ':' {
		return "", errNotJSON
	}
	q.at++
	return name, nil
}

// skip reads one value of any kind. It matches brackets and quotes and leaves the rest to whoever reads the value.
func (q *quoter) skip() error {
	depth := 0
	for {
		q.space()
		switch q.peek() {
		case '{', '[':
			if depth++; depth > jsonDepthMax {
				return q.bad(fmt.Sprintf("nests deeper than %d (json_depth_max): flatten it, or send it as data", jsonDepthMax))
			}
			q.at++
			continue
		case '}', ']':
			depth--
			q.at++
		case ',', ':':
			if depth == 0 {
				return errNotJSON
			}
			q.at++
			continue
		case '"':
			if err := q.str(); err != nil {
				return err
			}
		default:
			if err := q.word(); err != nil {
				return err
			}
		}
		if depth < 0 {
			return errNotJSON
		}
		if depth == 0 {
			return nil
		}
	}
}

// str reads a string, which begins here.
func (q *quoter) str() error {
	for q.at++; q.at < len(q.in); q.at++ {
		switch q.in[q.at] {
		case '\\':
			q.at++
		case '"':
			q.at++
			return nil
		}
	}
	q.at = len(q.in)
	return errNotJSON
}

// word reads a number, true, false or null, or whatever else stands in its place.
func (q *quoter) word() error {
	from := q.at
	for q.at < len(q.in) && bytes.IndexByte([]byte(" \t\r\n,:\"{}[]"), q.in[q.at]) < 0 {
		q.at++
	}
	if q.at == from {
		return errNotJSON
	}
	return nil
}

func (q *quoter) space() {
	for q.at < len(q.in) {
		switch q.in[q.at] {
		case ' ', '\t', '\r', '\n':
			q.at++
		default:
			return
		}
	}
}

// peek returns the next byte, or 0 at the end.
func (q *quoter) peek() byte {
	if q.at >= len(q.in) {
		return 0
	}
	return q.in[q.at]
}

// appendQuoted appends text, which is valid UTF-8, as a JSON string.
func appendQuoted(dst, text []byte) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for _, c := range text {
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < ' ':
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}
