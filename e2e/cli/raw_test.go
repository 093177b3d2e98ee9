package cli

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// answer is what came back for raw bytes.
type answer struct {
	status int
	header http.Header
	body   []byte

	code, message  string
	reason, field  string // of the Rejection among the details, if there is one
	grpcStatus     string // by header or trailer, as is the message
	grpcMessage    string
	isConnectError bool
}

// send makes a request by hand.
func send(tb testing.TB, method, path string, header http.Header, body []byte) answer {
	tb.Helper()
	r, err := http.NewRequestWithContext(tb.Context(), method, shared.start(tb).Addr()+path, bytes.NewReader(body))
	if err != nil {
		tb.Fatal(err)
	}
	r.Header = header
	resp, err := raw.Do(r)
	if err != nil {
		tb.Fatalf("%s %s with %.80q: %v", method, path, body, err)
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	a := answer{status: resp.StatusCode, header: resp.Header}
	if a.body, err = io.ReadAll(resp.Body); err != nil {
		tb.Fatalf("%s %s with %.80q: %v", method, path, body, err)
	}
	a.grpcStatus = resp.Header.Get("Grpc-Status") + resp.Trailer.Get("Grpc-Status")
	a.grpcMessage = resp.Header.Get("Grpc-Message") + resp.Trailer.Get("Grpc-Message")
	a.read()
	return a
}

// raw speaks HTTP/2 without TLS, as gRPC does.
var raw = func() *http.Client {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: &http.Transport{Protocols: &p, DisableCompression: true}}
}()

// read finds what a Connect error says.
func (a *answer) read() {
	var e struct {
		Code, Message string
		Details       []struct{ Type, Value string }
	}
	if json.Unmarshal(a.body, &e) != nil || e.Code == "" {
		return
	}
	a.isConnectError, a.code, a.message = true, e.Code, e.Message
	for _, d := range e.Details {
		b, err := base64.RawStdEncoding.DecodeString(d.Value)
		var r fairleadv1.Rejection
		if err == nil && d.Type == "fairlead.v1.Rejection" && proto.Unmarshal(b, &r) == nil {
			a.reason, a.field = r.GetReason(), r.GetField()
		}
	}
}

func headers(tb testing.TB, key, contentType string) http.Header {
	tb.Helper()
	h := http.Header{}
	if key != "" {
		h.Set("Authorization", "Bearer "+string(token(tb, shared.start(tb), key)))
	}
	if contentType != "" {
		h.Set("Content-Type", contentType)
	}
	return h
}

const jsonType = "application/json"

// What is no message at all is refused before a handler sees it: with the field or the place in the text, and the word for what is wrong.
func TestBadBytes(t *testing.T) {
	before := books(t)
	submit := fairleadv1connect.JobServiceSubmitProcedure
	protoBadUTF8 := []byte{0x0a, 0x04, 0x0a, 0x02, 0xff, 0xfe} // job { operation: "\xff\xfe" }
	for name, c := range map[string]struct {
		path, contentType string
		body              []byte
		words             []string
	}{
		"empty body":            {submit, jsonType, nil, []string{"empty", "{}"}},
		"no object":             {submit, jsonType, []byte(`[]`), []string{"SubmitRequest"}},
		"cut off":               {submit, jsonType, []byte(`{"job": {"operation": "op"`), []string{"SubmitRequest"}},
		"two bodies":            {submit, jsonType, []byte(`{}{}`), []string{"SubmitRequest"}},
		"unknown field":         {submit, jsonType, []byte(`{"job": {"operatoin": "op"}}`), []string{`"operatoin"`}},
		"unknown, outermost":    {submit, jsonType, []byte(`{"jobs": {"operation": "op"}}`), []string{`"jobs"`}},
		"tenant in a message":   {submit, jsonType, []byte(`{"tenant": "globex", "job": {"operation": "op"}}`), []string{`"tenant"`}},
		"wrong type":            {submit, jsonType, []byte(`{"job": {"operation": 7}}`), []string{"operation", "7"}},
		"a float for a number":  {submit, jsonType, []byte(`{"job": {"operation": "op", "cost": 1.5}}`), []string{"cost", "1.5"}},
		"NaN for a number":      {submit, jsonType, []byte(`{"job": {"operation": "op", "cost": "NaN"}}`), []string{"cost"}},
		"a number beyond int64": {submit, jsonType, []byte(`{"job": {"operation": "op", "cost": 9223372036854775808}}`), []string{"cost"}},
		"beyond int32":          {submit, jsonType, []byte(`{"job": {"operation": "op", "priority": 2147483648}}`), []string{"priority"}},
		"a time that is none":   {submit, jsonType, []byte(`{"job": {"operation": "op", "deadline": "tomorrow"}}`), []string{"tomorrow"}},
		"a word for a duration": {submit, jsonType, []byte(`{"job": {"operation": "op", "delay": "1h"}}`), []string{"1h"}},
		"a class that is none":  {submit, jsonType, []byte(`{"job": {"operation": "op", "class": "URGENT"}}`), []string{"class", "URGENT"}},
		"twice the same":        {submit, jsonType, []byte(`{"job": {"operation": "a", "operation": "b"}}`), []string{"operation"}},
		"json and data":         {submit, jsonType, []byte(`{"job": {"operation": "op", "payload": {"json": 1, "data": "AA=="}}}`), []string{"Payload", "data"}},
		"bad base64":            {submit, jsonType, []byte(`{"job": {"operation": "op", "payload": {"data": "***"}}}`), []string{"data"}},
		"payload, cut off":      {submit, jsonType, []byte(`{"job": {"operation": "op", "payload": {"json": {"a": [1, }}}}`), []string{"payload"}},
		"payload, no number":    {submit, jsonType, []byte(`{"job": {"operation": "op", "payload": {"json": 01}}}`), []string{"payload.json", "JSON"}},
		"payload, too deep": {
			submit, jsonType, []byte(`{"job": {"operation": "op", "payload": {"json": ` + strings.Repeat("[", 1001) + strings.Repeat("]", 1001) + `}}}`),
			[]string{"payload.json", "1000", "json_depth_max"},
		},
		"bad UTF-8, operation": {submit, jsonType, []byte("{\"job\": {\"operation\": \"\xff\xfe\"}}"), []string{"UTF-8"}},
		"bad UTF-8, payload":   {submit, jsonType, []byte("{\"job\": {\"operation\": \"op\", \"payload\": {\"json\": [\"\xff\"]}}}"), []string{"payload.json", "UTF-8"}},
		"bad UTF-8, proto":     {submit, "application/proto", protoBadUTF8, []string{"UTF-8", "SubmitRequest"}},
		"garbage, proto":       {submit, "application/proto", []byte{0xff, 0xff, 0xff}, []string{"SubmitRequest"}},
		"NaN without quotes":   {fairleadv1connect.TenantServiceCreateTenantProcedure, jsonType, []byte(`{"id": "t", "weight": NaN}`), []string{"NaN"}},
	} {
		key := "acme"
		if strings.Contains(c.path, "Tenant") {
			key = "admin"
		}
		a := send(t, http.MethodPost, c.path, headers(t, key, c.contentType), c.body)
		if a.status != http.StatusBadRequest || a.code != "invalid_argument" {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
		for _, w := range c.words {
			if !strings.Contains(a.message, w) {
				t.Errorf("%s: %q does not say %q", name, a.message, w)
			}
		}
		if len(a.message) > 1000 {
			t.Errorf("%s: an answer of %d bytes", name, len(a.message))
		}
	}
	// NaN is a number for a weight, as JSON has it: the field's own bound refuses it, typed.
	a := send(t, http.MethodPost, fairleadv1connect.TenantServiceCreateTenantProcedure, headers(t, "admin", jsonType), []byte(`{"id": "t", "weight": "NaN"}`))
	if a.code != "invalid_argument" || a.reason != "BAD_FIELD" || a.field != "weight" || !strings.Contains(a.message, "0 to 1000000") {
		t.Errorf("a weight of NaN: %s", a.body)
	}
	if after := books(t); after != before {
		t.Errorf("%+v after bad bytes, %+v before", after, before)
	}
}

// What is wrong with the request around the message is said in the protocol's own way.
func TestBadRequests(t *testing.T) {
	submit := fairleadv1connect.JobServiceSubmitProcedure
	body := []byte(`{"job": {"operation": "op"}}`)
	before := books(t)
	with := func(h http.Header, name, value string) http.Header {
		h.Set(name, value)
		return h
	}
	for name, c := range map[string]struct {
		method, path  string
		header        http.Header
		body          []byte
		status        int
		code, reason  string
		field, phrase string
	}{
		"curl's own type": {http.MethodPost, submit, headers(t, "acme", "application/x-www-form-urlencoded"), body, 400, "invalid_argument", "BAD_FIELD", "Content-Type", "application/json"},
		"no type":         {http.MethodPost, submit, headers(t, "acme", ""), body, 400, "invalid_argument", "BAD_FIELD", "Content-Type", "application/json"},
		"XML":             {http.MethodPost, submit, headers(t, "acme", "text/xml"), body, 400, "invalid_argument", "BAD_FIELD", "Content-Type", "text/xml"},
		"no key":          {http.MethodPost, submit, headers(t, "", jsonType), body, 401, "unauthenticated", "UNAUTHENTICATED", "", "key"},
		"garbage":         {http.MethodPost, submit, with(headers(t, "", jsonType), "Authorization", "Bearer ***, \u00ff"), body, 401, "unauthenticated", "UNAUTHENTICATED", "", ""},
		"basic":           {http.MethodPost, submit, with(headers(t, "", jsonType), "Authorization", "Basic Zm9vOmJhcg=="), body, 401, "unauthenticated", "UNAUTHENTICATED", "", "Bearer"},
		"bearer of all":   {http.MethodPost, submit, with(headers(t, "", jsonType), "Authorization", "Bearer *"), body, 401, "unauthenticated", "UNAUTHENTICATED", "", ""},
		"no such call":    {http.MethodPost, "/fairlead.v1.JobService/Sumbit", headers(t, "acme", jsonType), body, 403, "permission_denied", "NOT_ALLOWED", "", "JobService/Submit"},
		"no such path":    {http.MethodPost, "/", headers(t, "acme", jsonType), body, 403, "permission_denied", "NOT_ALLOWED", "", "JobService/Submit"},
		"time-out, word":  {http.MethodPost, submit, with(headers(t, "acme", jsonType), "Connect-Timeout-Ms", "soon"), body, 400, "invalid_argument", "", "", "soon"},
		"compressed, not": {http.MethodPost, submit, with(headers(t, "acme", jsonType), "Content-Encoding", "gzip"), body, 400, "invalid_argument", "", "", "gzip"},
		"compressed, how": {http.MethodPost, submit, with(headers(t, "acme", jsonType), "Content-Encoding", "brotli"), body, 501, "unimplemented", "", "", "brotli"},
		"above 4 MiB": {
			http.MethodPost, submit, headers(t, "acme", jsonType), bytes.Repeat([]byte(" "), 4<<20+1), 429, "resource_exhausted", "REQUEST_BYTES_MAX", "", "4194304",
		},
		"PUT": {http.MethodPut, submit, headers(t, "acme", jsonType), body, 405, "", "", "", ""},
	} {
		a := send(t, c.method, c.path, c.header, c.body)
		if a.status != c.status || a.code != c.code || a.reason != c.reason || a.field != c.field || !strings.Contains(a.message, c.phrase) {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
		if a.status == http.StatusUnauthorized && a.header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("%s: WWW-Authenticate is missing", name)
		}
	}
	// A mutation is no GET, however it is dressed up; what only reads may be one.
	query := "?connect=v1&encoding=json&message=" + `%7B%22job%22:%7B%22operation%22:%22op%22%7D%7D`
	for _, procedure := range procedures() {
		if onlyReads(t, procedure) {
			continue
		}
		got := send(t, http.MethodGet, procedure+query, headers(t, keyFor(procedure), ""), nil)
		refused := got.status == http.StatusMethodNotAllowed && got.header.Get("Allow") == http.MethodPost
		if !refused && got.reason != "NOT_ALLOWED" { // which is said of what is for agents alone
			t.Errorf("GET %s: %d %s", procedure, got.status, got.body)
		}
	}
	a := send(t, http.MethodGet, fairleadv1connect.JobServiceListJobsProcedure+"?connect=v1&encoding=json&message=%7B%7D", headers(t, "acme", ""), nil)
	if a.status != http.StatusOK {
		t.Errorf("a list by GET: %d %s", a.status, a.body)
	}
	if after := books(t); after != before {
		t.Errorf("%+v after bad requests, %+v before", after, before)
	}
}

// procedures lists what the API has, by its schema.
func procedures() []string {
	var out []string
	protoregistry.GlobalFiles.RangeFilesByPackage("fairlead.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for j := range s.Methods().Len() {
				out = append(out, "/"+string(s.FullName())+"/"+string(s.Methods().Get(j).Name()))
			}
		}
		return true
	})
	return out
}

// keyFor names a key that may call the procedure.
func keyFor(procedure string) string {
	switch {
	case strings.Contains(procedure, "JobService"):
		return "acme"
	case strings.Contains(procedure, "WorkerService"):
		return "worker"
	default:
		return "admin"
	}
}

// FuzzProcedures posts any bytes to each procedure, in each form, with a key that may call it: the answer is an answer, and never says that
// the server broke.
func FuzzProcedures(f *testing.F) {
	forms := []string{jsonType, "application/proto", "application/grpc", "application/grpc+json", "application/grpc-web", "application/connect+json"}
	for i := range procedures() {
		for _, body := range []string{"", "{}", `{"job":{"operation":"op"}}`, `{"jobId":"job_01890000-0000-7000-8000-000000000000"}`, `{"operations":["a"],"outcomes":[{}]}`} {
			f.Add(uint8(i), uint8(0), []byte(body)) //nolint:gosec // a handful
		}
		f.Add(uint8(i), uint8(1), []byte("\x0a\x04\x0a\x02op"))                     //nolint:gosec // as above
		f.Add(uint8(i), uint8(2), []byte("\x00\x00\x00\x00\x06\x0a\x04\x0a\x02op")) //nolint:gosec // as above
		f.Add(uint8(i), uint8(2), []byte("\x00\xff\xff\xff\xffx"))                  //nolint:gosec // as above
		f.Add(uint8(i), uint8(3), []byte("0"))                                      //nolint:gosec // as above
		f.Add(uint8(i), uint8(4), []byte("\x80\x00\x00\x00\x00"))                   //nolint:gosec // as above
		f.Add(uint8(i), uint8(5), []byte("\x00\x00\x00\x00\x02{}"))                 //nolint:gosec // as above
	}
	all := procedures()
	f.Fuzz(func(t *testing.T, procedure, form uint8, body []byte) {
		p, contentType := all[int(procedure)%len(all)], forms[int(form)%len(forms)]
		if p == fairleadv1connect.KeyServiceRevokeKeyProcedure && bytes.Contains(body, []byte("key_dev-")) {
			t.Skip("it may revoke the key that it is made with")
		}
		h := headers(t, keyFor(p), contentType)
		h.Set("Connect-Timeout-Ms", "300") // polls and waits end
		h.Set("Grpc-Timeout", "300m")
		a := send(t, http.MethodPost, p, h, body)
		// Internal is also what gRPC's specification has for a frame that breaks its protocol.
		const grpcUnknown, grpcInternal = "2", "13"
		switch {
		case a.status == http.StatusInternalServerError, a.code == "internal", a.code == "unknown", a.grpcStatus == grpcUnknown:
			t.Errorf("%s as %s with %q: %d, gRPC status %s, %s", p, contentType, body, a.status, a.grpcStatus, a.body)
		case a.status != http.StatusOK && a.status != http.StatusUnsupportedMediaType && !a.isConnectError && a.grpcStatus == "":
			t.Errorf("%s as %s with %q: %d without a word: %s", p, contentType, body, a.status, a.body)
		case a.grpcStatus == grpcInternal && !strings.Contains(a.grpcMessage, "protocol error") && !strings.Contains(a.grpcMessage, "envelope"):
			t.Errorf("%s as %s with %q: gRPC status %s: %s", p, contentType, body, a.grpcStatus, a.grpcMessage)
		}
	})
}

// onlyReads reports whether the schema says of a procedure that it has no side effects.
func onlyReads(t *testing.T, procedure string) bool {
	t.Helper()
	name := strings.ReplaceAll(strings.TrimPrefix(procedure, "/"), "/", ".")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		t.Fatal(err)
	}
	options, ok := d.Options().(*descriptorpb.MethodOptions)
	return ok && options.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS
}
