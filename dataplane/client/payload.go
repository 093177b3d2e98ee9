package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// The content types that payloads have unless told otherwise.
const (
	ContentTypeJSON  = "application/json"
	ContentTypeBytes = "application/octet-stream"
)

// Payload is what a job carries in, and what its result carries out: a JSON document as its exact text, or bytes with a content type. The
// zero Payload is none. It is a value and read-only: it keeps the slices it was made from.
type Payload struct {
	body        []byte
	contentType string
	isJSON      bool
	err         error
}

// JSON returns v as a JSON document. A json.RawMessage stands for itself, byte for byte, so that numbers above 2^53 and the order of
// fields survive. What is wrong with v is returned by the call that the payload is given to.
func JSON(v any) Payload {
	if raw, ok := v.(json.RawMessage); ok {
		p := Payload{body: bytes.TrimSpace(raw), contentType: ContentTypeJSON, isJSON: true}
		if !json.Valid(raw) {
			p.err = badField("payload", "is not a JSON document", "send it with Bytes and its content type, or repair it")
		}
		return p
	}
	text, err := json.Marshal(v)
	if err != nil {
		return Payload{err: badField("payload", fmt.Sprintf("has no JSON form: %v", err), "give a value that encoding/json takes")}
	}
	return Payload{body: text, contentType: ContentTypeJSON, isJSON: true}
}

// Bytes returns b with its content type; application/octet-stream when that is empty.
func Bytes(contentType string, b []byte) Payload {
	if contentType == "" {
		contentType = ContentTypeBytes
	}
	return Payload{body: b, contentType: contentType}
}

// IsZero reports whether p is none.
func (p Payload) IsZero() bool { return p.contentType == "" && p.err == nil }

// IsJSON reports whether p is a JSON document.
func (p Payload) IsJSON() bool { return p.isJSON }

// ContentType returns the media type; empty when p is none.
func (p Payload) ContentType() string { return p.contentType }

// Body returns the text of the document or the bytes. The caller must not change them.
func (p Payload) Body() []byte { return p.body }

// Err returns what was wrong with the value the payload was made from.
func (p Payload) Err() error { return p.err }

// Decode reads the JSON document into v. A *json.RawMessage gets its exact text. It returns an error when p is not JSON or does not fit
// v. None decodes as the JSON null.
func (p Payload) Decode(v any) error {
	switch {
	case p.err != nil:
		return p.err
	case p.IsZero():
		return json.Unmarshal([]byte("null"), v)
	case !p.isJSON:
		return badField("payload", fmt.Sprintf("is %.60s, not JSON", p.contentType), "read it with Body")
	default:
		return json.Unmarshal(p.body, v)
	}
}

// Proto returns the payload in its wire form; nil for none. It returns an *[Error] when p has no wire form.
func (p Payload) Proto() (*fairleadv1.Payload, error) {
	switch {
	case p.err != nil:
		return nil, p.err
	case p.IsZero():
		return nil, nil
	case p.isJSON:
		if !utf8.Valid(p.body) {
			return nil, badField("payload", "is JSON in another encoding than UTF-8", "encode it as UTF-8, or send it with Bytes")
		}
		return &fairleadv1.Payload{Body: &fairleadv1.Payload_Json{Json: string(p.body)}}, nil
	default:
		if !utf8.ValidString(p.contentType) {
			return nil, badField("payload.content_type", "is not UTF-8", "give a media type")
		}
		return &fairleadv1.Payload{Body: &fairleadv1.Payload_Data{Data: p.body}, ContentType: p.contentType}, nil
	}
}

// PayloadOf returns a payload as it came from the wire; none for nil and for one without a body.
func PayloadOf(p *fairleadv1.Payload) Payload {
	switch body := p.GetBody().(type) {
	case *fairleadv1.Payload_Json:
		return Payload{body: []byte(body.Json), contentType: ContentTypeJSON, isJSON: true}
	case *fairleadv1.Payload_Data:
		return Bytes(p.GetContentType(), body.Data)
	default:
		return Payload{}
	}
}
