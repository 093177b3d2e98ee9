package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cmd/fairlead/config"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// payloadBytesMax is the API's hard bound on a payload: what is above it is not worth sending. A server's own bound may be lower.
const payloadBytesMax = 1 << 20

// fieldNames are the names of a job's fields in errors: flags on the command line, keys in a line of a file.
type fieldNames struct{ operation, key, cost, payload, label, concurrencyKey, resource string }

var (
	flagFields = fieldNames{
		operation: "OPERATION", key: "--key", cost: "--cost", payload: "--payload", label: "--label",
		concurrencyKey: "--concurrency-key", resource: "--resource",
	}
	lineFields = fieldNames{
		operation: "operation", key: "idempotencyKey", cost: "cost", payload: "payload", label: "labels",
		concurrencyKey: "concurrencyKeys", resource: "resources",
	}
)

// checkSpec returns every fault that needs no server to be seen.
func checkSpec(spec *fairleadv1.JobSpec, f fieldNames) error {
	errs := []error{cell.CheckID(f.operation, spec.GetOperation()), cell.CheckCost(f.cost, spec.GetCost()), checkPayload(spec.GetPayload(), f)}
	if spec.GetIdempotencyKey() != "" {
		errs = append(errs, cell.CheckID(f.key, spec.GetIdempotencyKey()))
	}
	for name, value := range spec.GetLabels() {
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			errs = append(errs, &cell.FieldError{Field: f.label, Problem: fmt.Sprintf("%.40q is not UTF-8", name), Remedy: "write it in UTF-8"})
		}
	}
	if _, err := cell.ParseResources(f.resource, spec.GetResources()); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(append(errs, checkConcurrency(spec.GetConcurrencyKeys(), f))...)
}

func checkConcurrency(keys []*fairleadv1.ConcurrencyKey, f fieldNames) error {
	var errs []error
	if len(keys) > cell.ConcurrencyKeysMax {
		errs = append(errs, &cell.FieldError{
			Field: f.concurrencyKey, Problem: fmt.Sprintf("is given %d times, of at most %d", len(keys), cell.ConcurrencyKeysMax), Remedy: "leave some out",
		})
	}
	for i, k := range keys {
		errs = append(errs, cell.CheckID(f.concurrencyKey, k.GetKey()))
		if n := k.GetMax(); n < 1 || n > cell.ConcurrencyMax {
			errs = append(errs, &cell.FieldError{
				Field: f.concurrencyKey, Problem: fmt.Sprintf("%.40q allows %d jobs, outside 1 to %d", k.GetKey(), n, cell.ConcurrencyMax),
				Remedy: "give how many may be held at a time",
			})
		}
		if slices.ContainsFunc(keys[:i], func(o *fairleadv1.ConcurrencyKey) bool { return o.GetKey() == k.GetKey() }) {
			errs = append(errs, &cell.FieldError{Field: f.concurrencyKey, Problem: fmt.Sprintf("%.40q is given twice", k.GetKey()), Remedy: "give each key once"})
		}
	}
	return errors.Join(errs...)
}

func checkPayload(p *fairleadv1.Payload, f fieldNames) error {
	if n := len(p.GetJson()) + len(p.GetData()); n > payloadBytesMax {
		return &cell.FieldError{
			Field: f.payload, Problem: fmt.Sprintf("has %d bytes, of at most %d", n, payloadBytesMax),
			Remedy: "keep the data elsewhere and submit a reference to it",
		}
	}
	if !utf8.ValidString(p.GetContentType()) {
		return &cell.FieldError{Field: "--content-type", Problem: "is not UTF-8", Remedy: "give a media type such as text/csv"}
	}
	if _, isJSON := p.GetBody().(*fairleadv1.Payload_Json); isJSON {
		return checkJSON(p.GetJson(), f.payload)
	}
	return nil
}

// checkJSON returns a *[cell.FieldError] that says where s stops being one JSON document in UTF-8.
func checkJSON(s, field string) error {
	const remedy = "give one JSON document, or bytes with --data-file"
	if !utf8.ValidString(s) {
		return &cell.FieldError{Field: field, Problem: "is not UTF-8", Remedy: remedy}
	}
	if json.Valid([]byte(s)) {
		return nil
	}
	problem := "is not JSON"
	var into json.RawMessage
	if syntax, ok := errors.AsType[*json.SyntaxError](json.Unmarshal([]byte(s), &into)); ok {
		problem = fmt.Sprintf("is not JSON: %v at byte %d", syntax, syntax.Offset)
	}
	if s == "" {
		problem = "is empty"
	}
	return &cell.FieldError{Field: field, Problem: problem, Remedy: remedy}
}

// parseSpec reads a job as the API's JSON form has it, with two liberties: payload.json may be the document itself, whose text is kept, and
// a class may go by its short name.
func parseSpec(line []byte) (*fairleadv1.JobSpec, error) {
	if !utf8.Valid(line) {
		return nil, errors.New("it is not UTF-8")
	}
	fields, err := object(line)
	if err != nil {
		return nil, err
	}
	payload, err := takePayload(fields)
	if err != nil {
		return nil, err
	}
	if raw, ok := fields["class"]; ok {
		var name string
		if json.Unmarshal(raw, &name) == nil && !strings.HasPrefix(name, "CLASS_") {
			c, err := cell.ParseClass("class", name)
			if err != nil {
				return nil, err
			}
			fields["class"] = json.RawMessage(fmt.Sprintf("%d", c))
		}
	}
	rest, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("it is not a job: %w", err)
	}
	spec := &fairleadv1.JobSpec{}
	if err := protojson.Unmarshal(rest, spec); err != nil {
		return nil, specError(fields, err)
	}
	spec.Payload = payload
	return spec, nil
}

func object(text []byte) (map[string]json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			return nil, fmt.Errorf("it is not JSON: %w at byte %d", err, syntax.Offset)
		}
		return nil, errors.New("it is not a JSON object")
	}
	if fields == nil {
		return nil, errors.New("it is not a JSON object")
	}
	return fields, nil
}

// specError names the field that protojson stumbled over: its own message does not offer the nearest one.
func specError(fields map[string]json.RawMessage, err error) error {
	var known []string
	d := (&fairleadv1.JobSpec{}).ProtoReflect().Descriptor().Fields()
	for i := range d.Len() {
		known = append(known, d.Get(i).JSONName(), string(d.Get(i).Name()))
	}
	for name := range fields {
		if !slices.Contains(known, name) {
			near, ok := config.Nearest(name, known)
			if !ok {
				near = known[0]
			}
			return fmt.Errorf("it has an unknown field %.40q: did you mean %q?", name, near)
		}
	}
	return fmt.Errorf("it is not a job: %s", strings.TrimSpace(strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\u00a0", " "), "proto:")))
}

// takePayload removes the payload from fields and returns it.
func takePayload(fields map[string]json.RawMessage) (*fairleadv1.Payload, error) {
	raw, ok := fields["payload"]
	delete(fields, "payload")
	if !ok || string(raw) == "null" {
		return nil, nil // a job without a payload
	}
	parts, err := object(raw)
	if err != nil {
		return nil, errors.New(`payload is not an object: write it as {"json": ...} or {"data": "base64"}`)
	}
	document, isJSON := parts["json"]
	delete(parts, "json")
	rest, err := json.Marshal(parts)
	if err != nil {
		return nil, fmt.Errorf("payload: %w", err)
	}
	p := &fairleadv1.Payload{}
	if err := protojson.Unmarshal(rest, p); err != nil {
		return nil, errors.New(`payload has other fields than json, data (base64) and contentType, or one of another type`)
	}
	if !isJSON {
		return p, nil
	}
	if p.GetBody() != nil {
		return nil, errors.New("payload has both json and data: give one of them")
	}
	text := string(bytes.TrimSpace(document))
	if strings.HasPrefix(text, `"`) {
		var inner string
		if err := json.Unmarshal(document, &inner); err != nil {
			return nil, fmt.Errorf("payload.json: %w", err)
		}
		text = inner
	}
	p.Body = &fairleadv1.Payload_Json{Json: text}
	return p, nil
}
