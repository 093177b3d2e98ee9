package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// jsonCodec is protojson as Connect uses it, but for two things. A payload's JSON may stand in a request as it is (payload.go). And a field that
// the API does not have is an error that names it: a misspelt option that is silently ignored costs whoever wrote it an afternoon. Clients
// that must work across versions use the binary form, where unknown fields are kept.
type jsonCodec struct{ name string }

// Name implements connect.Codec.
func (c jsonCodec) Name() string { return c.name }

// Marshal implements connect.Codec.
func (c jsonCodec) Marshal(message any) ([]byte, error) { return c.MarshalAppend(nil, message) }

// MarshalAppend lets Connect reuse its buffers.
func (c jsonCodec) MarshalAppend(dst []byte, message any) ([]byte, error) {
	m, err := asProto(message)
	if err != nil {
		return nil, err
	}
	return protojson.MarshalOptions{}.MarshalAppend(dst, m)
}

// MarshalStable lets Connect put a message in a URL: protojson varies its white space on purpose.
func (c jsonCodec) MarshalStable(message any) ([]byte, error) {
	data, err := c.Marshal(message)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := json.Compact(&b, data); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// IsBinary tells Connect that the encoded form is text.
func (c jsonCodec) IsBinary() bool { return false }

// Unmarshal implements connect.Codec.
func (c jsonCodec) Unmarshal(data []byte, message any) error {
	m, err := asProto(message)
	if err != nil {
		return err
	}
	if len(data) == 0 {
		return errors.New("the body is empty: send a JSON object, {} at the least")
	}
	data, err = quotePayloads(data, m.ProtoReflect().Descriptor())
	if err != nil {
		return err
	}
	if err := (protojson.UnmarshalOptions{}).Unmarshal(data, m); err != nil {
		return fmt.Errorf("%s: %s", m.ProtoReflect().Descriptor().FullName(), withoutPrefix(err))
	}
	return nil
}

// withoutPrefix drops protojson's "proto:", whose space it varies so that nobody relies on the text.
func withoutPrefix(err error) string {
	s, ok := strings.CutPrefix(err.Error(), "proto:")
	if !ok {
		return s
	}
	return strings.TrimLeftFunc(s, unicode.IsSpace)
}

func asProto(message any) (proto.Message, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is not a protobuf message", message)
	}
	return m, nil
}
