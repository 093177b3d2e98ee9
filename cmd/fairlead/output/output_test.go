package output_test

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	yaml "go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cmd/fairlead/output"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// anyJob draws a job with every kind of field, and a payload of bytes.
func anyJob(t *rapid.T) *fairleadv1.Job {
	text := rapid.String()
	j := &fairleadv1.Job{
		Id: text.Draw(t, "id"), Class: fairleadv1.Class(rapid.Int32Range(0, 3).Draw(t, "class")), Priority: rapid.Int32().Draw(t, "priority"),
		Cost: rapid.Int64().Draw(t, "cost"), Labels: rapid.MapOf(text, text).Draw(t, "labels"), ResultExpired: rapid.Bool().Draw(t, "expired"),
		Error: text.Draw(t, "error"),
	}
	if rapid.Bool().Draw(t, "has times") {
		j.CreateTime = timestamppb.New(time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "s"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns")))
		j.Retention = durationpb.New(time.Duration(rapid.Int64Range(0, 1e15).Draw(t, "d")))
		j.Retry = &fairleadv1.RetryPolicy{AttemptsMax: rapid.Int32().Draw(t, "attempts")}
	}
	if rapid.Bool().Draw(t, "has payload") {
		j.Payload = &fairleadv1.Payload{Body: &fairleadv1.Payload_Data{Data: rapid.SliceOf(rapid.Byte()).Draw(t, "data")}, ContentType: text.Draw(t, "type")}
	}
	return j
}

// TestJSONMeansWhatTheAPISays: it is protojson's document, in one form and in many lines.
func TestJSONMeansWhatTheAPISays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := anyJob(t)
		want, err := protojson.Marshal(j)
		if err != nil {
			t.Fatal(err)
		}
		for _, compact := range []bool{false, true} {
			got, err := output.AppendMessage(nil, j, "", compact)
			if err != nil {
				t.Fatal(err)
			}
			var a, b any
			if err := json.Unmarshal(got, &a); err != nil {
				t.Fatalf("%v: %s", err, got)
			}
			if err := json.Unmarshal(want, &b); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(a, b) {
				t.Fatalf("got %s, want %s", got, want)
			}
			if compact && bytes.ContainsRune(got, '\n') {
				t.Fatalf("%s has more than a line", got)
			}
		}
	})
}

// TestPayloadsAreVerbatim: a document stands in the answer byte for byte, and what is none stands as a string.
func TestPayloadsAreVerbatim(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"spaces":      {`{ "b" : 1,  "a":2 }`, `"json":{ "b" : 1,  "a":2 }`},
		"big numbers": {`[9007199254740993, 1e400, -0.10]`, `"json":[9007199254740993, 1e400, -0.10]`},
		"same keys":   {`{"a":1,"a":2}`, `"json":{"a":1,"a":2}`},
		"scalar":      {`null`, `"json":null`},
		"string":      {`"a\u0000<"`, `"json":"a\u0000<"`},
		"not JSON":    {`{"a":`, `"json":"{\"a\":"`},
		"empty":       {``, `"json":""`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := output.AppendMessage(nil, &fairleadv1.Payload{Body: &fairleadv1.Payload_Json{Json: tc.text}}, "", true)
			if err != nil || string(got) != "{"+tc.want+"}" {
				t.Errorf("got %s, %v; want {%s}", got, err, tc.want)
			}
		})
	}
}

// TestYAMLMeansTheSame: what YAML readers make of the YAML is what JSON readers make of the JSON, as far as both can hold it.
func TestYAMLMeansTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		document, err := json.Marshal(anyJSON(3).Draw(t, "document"))
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		p := output.Printer{Out: &b, Format: output.FormatYAML}
		if err := p.Document(document); err != nil {
			t.Fatal(err)
		}
		var fromYAML, fromJSON any
		if err := yaml.Unmarshal(b.Bytes(), &fromYAML); err != nil {
			t.Fatalf("%v: %s", err, b.Bytes())
		}
		normal, err := json.Marshal(fromYAML)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(normal, &fromYAML); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(document, &fromJSON); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(fromYAML, fromJSON) {
			t.Fatalf("%s became %s", document, b.Bytes())
		}
	})
}

func anyJSON(depth int) *rapid.Generator[any] {
	// YAML has no form for some control characters outside of quotes that readers agree on: plain texts are enough here.
	text := rapid.StringMatching(`[a-zA-Z0-9 :#\-'"{}\[\],&*!|>%@~\.\n]{0,12}`)
	leaf := rapid.OneOf(rapid.Int32().AsAny(), rapid.Bool().AsAny(), text.AsAny(), rapid.Float64Range(-1e9, 1e9).AsAny(), rapid.Just[any](nil))
	if depth == 0 {
		return leaf
	}
	below := anyJSON(depth - 1)
	return rapid.OneOf(leaf, rapid.MapOfN(text, below, 0, 4).AsAny(), rapid.SliceOfN(below, 0, 4).AsAny())
}

func TestYAMLKeepsNumbersAndOrder(t *testing.T) {
	var b bytes.Buffer
	p := output.Printer{Out: &b, Format: output.FormatYAML}
	if err := p.Document([]byte(`{"z":123456789012345678901234567890,"a":1.10,"n":"123","e":{},"l":[]}`)); err != nil {
		t.Fatal(err)
	}
	want := "z: 123456789012345678901234567890\na: 1.10\n\"n\": \"123\"\ne: {}\nl: []\n"
	if b.String() != want {
		t.Errorf("got:\n%swant:\n%s", b.String(), want)
	}
	if err := p.Document([]byte(`{"a":`)); err == nil {
		t.Error("half a document is written")
	}
}

// TestSafe: nothing that a stranger wrote moves a terminal's cursor or breaks a line of a table.
func TestSafe(t *testing.T) {
	for in, want := range map[string]string{
		"": "-", "plain äß 日本": "plain äß 日本", "a\x1b[31mb": `a\x1b[31mb`, "a\nb\tc": `a\x0ab\x09c`, "\u009b31m": `\u009b31m`,
		"\u202eevil": `\u202eevil`, "\xff\xfe": `\xff\xfe`,
	} {
		if got := output.Safe(in); got != want {
			t.Errorf("Safe(%q) = %q, want %q", in, got, want)
		}
	}
	if got := output.SafeText("a\n\tb\r\x1b"); got != "a\n\tb\\x0d\\x1b" {
		t.Errorf("SafeText gives %q", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		s := string(rapid.SliceOf(rapid.Byte()).Draw(t, "s"))
		for _, r := range output.Safe(s) {
			if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
				t.Fatalf("Safe(%q) = %q", s, output.Safe(s))
			}
		}
	})
}

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0ms", 15 * time.Millisecond: "15ms", 1500 * time.Millisecond: "1.5s", 59*time.Second + 999*time.Millisecond: "59s", time.Minute: "1m",
		61 * time.Second: "1m1s", time.Hour: "1h", 26*time.Hour + time.Minute: "1d2h", -time.Second: "-1.0s", math.MinInt64: "-106751d23h", math.MaxInt64: "106751d23h",
	} {
		if got := output.Duration(d); got != want {
			t.Errorf("Duration(%d) = %s, want %s", d, got, want)
		}
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for want, at := range map[string]*timestamppb.Timestamp{
		"-": nil, "1h": timestamppb.New(now.Add(-time.Hour)), "in 2m": timestamppb.New(now.Add(2 * time.Minute)), "in 106751d23h": timestamppb.New(now.AddDate(1000, 0, 0)),
	} {
		if got := output.Age(now, at); got != want {
			t.Errorf("Age(%v) = %s, want %s", at, got, want)
		}
	}
}

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{0: "0B", 1023: "1023B", 1024: "1KiB", 1536: "1.5KiB", 64 << 20: "64MiB", math.MaxInt64: "8192PiB"} {
		if got := output.Bytes(n); got != want {
			t.Errorf("Bytes(%d) = %s, want %s", n, got, want)
		}
	}
}

// TestList: a list is one object however it arrives, and aligned for people.
func TestList(t *testing.T) {
	view := output.View[*fairleadv1.Tenant]{
		Columns: []output.Column{{Name: "TENANT"}, {Name: "NAME", Wide: true}, {Name: "W"}},
		Row:     func(x *fairleadv1.Tenant) []string { return []string{x.GetId(), output.Safe(x.GetDisplayName()), "1"} },
		Name:    (*fairleadv1.Tenant).GetId,
	}
	parts := [][]*fairleadv1.Tenant{{{Id: "a"}, {Id: "long-name"}}, {{Id: "c", DisplayName: "C"}}}
	for format, want := range map[output.Format]string{
		output.FormatTable: "TENANT     W\na          1\nlong-name  1\nc  1\n",
		output.FormatWide:  "TENANT     NAME  W\na          -     1\nlong-name  -     1\nc  C  1\n",
		output.FormatName:  "a\nlong-name\nc\n",
		output.FormatJSON:  "{\n  \"items\": [\n    {\n      \"id\": \"a\"\n    },\n    {\n      \"id\": \"long-name\"\n    },\n    {\n      \"id\": \"c\",\n      \"displayName\": \"C\"\n    }\n  ]\n}\n",
		output.FormatYAML:  "items:\n  - id: a\n  - id: long-name\n  - id: c\n    displayName: C\n",
	} {
		for _, n := range []int{len(parts), 0} {
			var b bytes.Buffer
			list := output.NewList(&output.Printer{Out: &b, Format: format}, view)
			for _, part := range parts[:n] {
				if err := list.Add(part...); err != nil {
					t.Fatal(err)
				}
			}
			if err := list.Close(); err != nil {
				t.Fatal(err)
			}
			if n > 0 && b.String() != want {
				t.Errorf("%s:\n%s\nwant:\n%s", format, b.String(), want)
			}
			if n == 0 && format == output.FormatTable && !strings.HasPrefix(b.String(), "TENANT") {
				t.Errorf("an empty table is %q", b.String())
			}
			if n == 0 && format == output.FormatJSON && !json.Valid(b.Bytes()) {
				t.Errorf("an empty list is %q", b.String())
			}
		}
	}
}
