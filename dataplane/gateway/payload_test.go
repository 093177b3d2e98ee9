package gateway

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

func decode(text string, m proto.Message) error {
	return jsonCodec{name: "json"}.Unmarshal([]byte(text), m)
}

// Whatever JSON stands in a payload's place arrives as its exact text.
func TestPayloadAsItIs(t *testing.T) {
	for name, raw := range map[string]string{
		"object":          `{"a":1}`,
		"spaces":          "{ \"a\" :\t[1 ,\r\n 2 ] }",
		"array":           `[1,[2,[]],{}]`,
		"large number":    `9007199254740993`,
		"larger number":   `123456789012345678901234567890.000000000000000000000001e+10`,
		"negative zero":   `-0.0`,
		"true":            `true`,
		"false":           `false`,
		"null":            `null`,
		"quotes":          `{"\"k\\\u00e9":"a\"b\\"}`,
		"lone surrogate":  `["\ud800"]`,
		"other alphabets": `["日本語 🦊", "é"]`,
		"separators":      "[\"\u2028\u2029\u007f\"]",
		"duplicate keys":  `{"a":1,"a":2}`,
		"its own names":   `{"json":{"json":1},"payload":{"json":[]},"jobs":[{"payload":{"json":2}}]}`,
		"brackets":        `{"]":"}[{"}`,
		"empty object":    `{}`,
		"deep":            strings.Repeat("[", jsonDepthMax) + strings.Repeat("]", jsonDepthMax),
	} {
		t.Run(name, func(t *testing.T) {
			for _, form := range []string{
				`{"job":{"operation":"o","payload":{"json":%s}}}`,
				"{ \"job\" : { \"payload\" : \n{\t\"json\"\r: %s } , \"operation\" : \"o\" } } ",
				`{"\u006aob":{"p\u0061yload":{"js\u006fn":%s},"operation":"o"}}`,
			} {
				var m fairleadv1.SubmitRequest
				if err := decode(fmt.Sprintf(form, raw), &m); err != nil {
					t.Fatalf("%s: %v", form, err)
				}
				if got := m.GetJob().GetPayload().GetJson(); got != raw || m.GetJob().GetOperation() != "o" {
					t.Errorf("%s:\n got %q\nwant %q", form, got, raw)
				}
			}
			var batch fairleadv1.SubmitBatchRequest
			if err := decode(fmt.Sprintf(`{"jobs":[{"payload":{"json":%s}},{},{"payload":{"json":"1"}},{"payload":{"json":%s}}]}`, raw, raw),
				&batch); err != nil {
				t.Fatal(err)
			}
			if j := batch.GetJobs(); len(j) != 4 || j[0].GetPayload().GetJson() != raw || j[2].GetPayload().GetJson() != "1" ||
				j[3].GetPayload().GetJson() != raw {
				t.Errorf("batch: %v", &batch)
			}
			var report fairleadv1.ReportRequest
			if err := decode(fmt.Sprintf(`{"outcomes":[{"success":{"result":{"json":%s}}}]}`, raw), &report); err != nil {
				t.Fatal(err)
			}
			if got := report.GetOutcomes()[0].GetSuccess().GetResult().GetJson(); got != raw {
				t.Errorf("result: %q", got)
			}
		})
	}
}

// A string is the text of the document, as protojson has it; a label or a part of the data named json is nobody's payload.
func TestPayloadLeftAlone(t *testing.T) {
	for name, text := range map[string]string{
		"string":      `{"job":{"payload":{"json":"{\"a\":1}"}}}`,
		"label":       `{"job":{"labels":{"json":"x","payload":"json"}}}`,
		"data":        `{"job":{"payload":{"data":"anNvbg==","contentType":"application/json"}}}`,
		"null fields": `{"job":{"payload":null}}`,
		"nothing":     `{"job":null}`,
	} {
		var got, want fairleadv1.SubmitRequest
		if err := protojson.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		data := []byte(text)
		out, err := quotePayloads(data, want.ProtoReflect().Descriptor())
		if err != nil || &out[0] != &data[0] {
			t.Errorf("%s: copied, or %v", name, err)
		}
		if err := decode(text, &got); err != nil || !proto.Equal(&got, &want) {
			t.Errorf("%s: %v, %v", name, &got, err)
		}
	}
}

func TestBadJSONIsNamed(t *testing.T) {
	deep := strings.Repeat("[", jsonDepthMax+1) + strings.Repeat("]", jsonDepthMax+1)
	for name, c := range map[string]struct{ text, want string }{
		"empty":            {``, "send a JSON object"},
		"misspelt field":   {`{"job":{"operatoin":"x"}}`, `unknown field "operatoin"`},
		"misspelt payload": {`{"job":{"payload":{"jsn":{}}}}`, `unknown field "jsn"`},
		"not an object":    {`[]`, "fairlead.v1.SubmitRequest"},
		"cut off":          {`{"job":{"payload":{"json":{"a":`, "job.payload.json is not JSON: the request ends"},
		"no value":         {`{"job":{"payload":{"json":}}}`, "job.payload.json is not JSON: there is no value"},
		"cut off outside":  {`{"job":{"payload":{"json":[]`, "SubmitRequest"},
		"bad number":       {`{"job":{"payload":{"json":01}}}`, "job.payload.json is not JSON"},
		"bad word":         {`{"job":{"payload":{"json":[NaN]}}}`, "job.payload.json is not JSON"},
		"single quotes":    {`{"job":{"payload":{"json":{'a':1}}}}`, "job.payload.json is not JSON"},
		"comma":            {`{"job":{"payload":{"json":[1,]}}}`, "job.payload.json is not JSON"},
		"crossed brackets": {`{"job":{"payload":{"json":[1}}}`, "job.payload.json is not JSON"},
		"not utf-8":        {"{\"job\":{\"payload\":{\"json\":[\"\xff\"]}}}", "job.payload.json is not valid UTF-8"},
		"not utf-8 string": {"{\"job\":{\"payload\":{\"json\":\"\xff\"}}}", "UTF-8"},
		"too deep":         {`{"job":{"payload":{"json":` + deep + `}}}`, "job.payload.json nests deeper than 1000"},
		"twice":            {`{"job":{"payload":{"json":1,"json":2}}}`, "duplicate"},
		"both":             {`{"job":{"payload":{"json":1,"data":"AA=="}}}`, "oneof"},
		"trailing":         {`{"job":{"payload":{"json":1}}} x`, "SubmitRequest"},
		"NaN weight":       {`{"job":{"priority":NaN}}`, "SubmitRequest"},
	} {
		err := decode(c.text, &fairleadv1.SubmitRequest{})
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "proto:") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	err := decode(`{"jobs":[{},{"payload":{"json":[1 2]}}]}`, &fairleadv1.SubmitBatchRequest{})
	if err == nil || !strings.Contains(err.Error(), "jobs[1].payload.json is not JSON") {
		t.Errorf("in a batch: %v", err)
	}
}

// document draws the text of any JSON document, spaces and all.
func document(t *rapid.T, depth int) string {
	space := rapid.SampledFrom([]string{"", "", "", " ", "\n", "\t \r\n"})
	s := func() string { return space.Draw(t, "space") }
	str := func() string {
		b, err := json.Marshal(rapid.String().Draw(t, "string"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	kinds := 4
	if depth > 0 {
		kinds = 6
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return str()
	case 1:
		return rapid.StringMatching(`-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?`).Draw(t, "number")
	case 2:
		return rapid.SampledFrom([]string{"true", "false", "null"}).Draw(t, "word")
	case 3:
		return rapid.SampledFrom([]string{"{}", "[]", "{ }", "[\n]"}).Draw(t, "empty")
	case 4:
		var b strings.Builder
		for i := range rapid.IntRange(1, 4).Draw(t, "members") {
			if i > 0 {
				b.WriteByte(',')
			}
			key := rapid.SampledFrom([]string{"json", "payload", "job", "jobs"}).Draw(t, "name")
			if rapid.Bool().Draw(t, "other") {
				key = str()
				key = key[1 : len(key)-1]
			}
			b.WriteString(s() + `"` + key + `"` + s() + ":" + s() + document(t, depth-1) + s())
		}
		return "{" + b.String() + "}"
	default:
		var elements []string
		for range rapid.IntRange(1, 4).Draw(t, "elements") {
			elements = append(elements, s()+document(t, depth-1)+s())
		}
		return "[" + strings.Join(elements, ",") + "]"
	}
}

func TestAnyDocumentSurvives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raws := make([]string, rapid.IntRange(1, 3).Draw(t, "jobs"))
		jobs := make([]string, len(raws))
		for i := range raws {
			raws[i] = document(t, 3)
			jobs[i] = `{"labels":{"json":"l"},"payload":{"json":` + raws[i] + `,"contentType":"x"},"operation":"o"}`
		}
		var m fairleadv1.SubmitBatchRequest
		if err := decode(`{"jobs":[`+strings.Join(jobs, ",")+`]}`, &m); err != nil {
			t.Fatal(err)
		}
		for i, j := range m.GetJobs() {
			want := raws[i]
			if want[0] == '"' {
				if err := json.Unmarshal([]byte(raws[i]), &want); err != nil {
					t.Fatal(err)
				}
			}
			if got := j.GetPayload().GetJson(); got != want || j.GetOperation() != "o" || j.GetLabels()["json"] != "l" {
				t.Fatalf("got %q, want %q", got, want)
			}
		}
	})
}

// FuzzCodec holds for any bytes: no panic; what protojson takes comes out the same; and whatever else is taken is a message whose payloads
// are JSON text.
func FuzzCodec(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `{"job":{"payload":{"json":{"a":[1,"x"]}}}}`, `{"job":{"payload":{"json":`, `{"job":{"payload":{"json":"a\`, `{"\u`,
		`{"job":{"payload":{"json":]}}`, `{"job":[{}]}`, `{"job":{"payload":{"json":1}}}}`, `{"json":1,,}`, "\x00", `{"job":{"payload":{"json":-}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := slices.Clone(data)
		var got, want fairleadv1.SubmitRequest
		gotErr := jsonCodec{}.Unmarshal(data, &got)
		if !slices.Equal(before, data) {
			t.Fatal("the input was changed")
		}
		wantErr := protojson.Unmarshal(data, &want)
		switch {
		case wantErr == nil && gotErr != nil:
			t.Fatalf("refused: %v", gotErr)
		case wantErr == nil && !proto.Equal(&got, &want):
			// protojson takes null for a string that is not there; in a payload it is the document null.
			if got.GetJob().GetPayload().GetJson() != "null" || want.GetJob().GetPayload().GetJson() != "" {
				t.Fatalf("got %v, want %v", &got, &want)
			}
		case wantErr != nil && gotErr == nil && !json.Valid([]byte(got.GetJob().GetPayload().GetJson())):
			t.Fatalf("made %q of %q", got.GetJob().GetPayload().GetJson(), data)
		}
	})
}

func BenchmarkCodec(b *testing.B) {
	for name, text := range map[string]string{
		"string": `{"job":{"operation":"invoice.export","payload":{"json":"{\"a\":1,\"b\":[1,2,3]}"},"idempotencyKey":"k"}}`,
		"object": `{"job":{"operation":"invoice.export","payload":{"json":{"a":1,"b":[1,2,3]}},"idempotencyKey":"k"}}`,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var m fairleadv1.SubmitRequest
				if err := decode(text, &m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
