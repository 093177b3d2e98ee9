package trace_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/e2e/sim/trace"
)

// shared is where the traces of others lie, relative to this package, if they do.
const shared = "../../../../shared/traces/"

// readShared reads a trace of others, or skips the test.
func readShared(t testing.TB, name string, o trace.Options) *trace.Trace {
	t.Helper()
	f, err := os.Open(shared + name)
	if err != nil {
		t.Skipf("SKIPPED: the trace %s is not here: %v", name, err)
	}
	defer f.Close()
	tr, err := trace.Read(f, o)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func read(t testing.TB, text string, o trace.Options) *trace.Trace {
	t.Helper()
	tr, err := trace.Read(strings.NewReader(text), o)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// plain is a job with its traits by value, so that jobs compare.
type plain struct {
	trace.Traits
	ID                         int
	Arrival, Service, Deadline time.Duration
	Cost, Actual               cell.Cost
}

func plainly(jobs []trace.Job) []plain {
	out := make([]plain, len(jobs))
	for i, j := range jobs {
		out[i] = plain{*j.Traits, j.ID, j.Arrival, j.Service, j.Deadline, j.Cost, j.Actual}
	}
	return out
}

// TestForms reads one small trace of each form, and says what became of it.
func TestForms(t *testing.T) {
	work := func(tenant string) trace.Traits {
		return trace.Traits{Tenant: tenant, Class: cell.ClassBatch, Operation: "work", Cohort: tenant}
	}
	request := func(tenant string) trace.Traits {
		return trace.Traits{Tenant: tenant, Class: cell.ClassInteractive, Operation: "generate", Cohort: tenant}
	}
	user := work("user-7")
	user.Organization = "group-2"
	single := user
	single.Class = cell.ClassInteractive
	whole := trace.Traits{
		Tenant: "acme", Organization: "group", Class: cell.ClassInteractive, Operation: "mail", Cohort: "loud", Priority: -3, Preemptible: true,
		Keys: []cell.ConcurrencyKey{{Key: "db", Max: 1}, {Key: "smtp", Max: 10}},
	}
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		text string
		form trace.Form
		unit string
		want []plain
	}{
		"minimal, out of order": {
			"arrival_ms,tenant,job,service_ms\n5,acme,1,4\n0,bulk,0,2.5\n", trace.FormCSV, "slot_seconds",
			[]plain{{work("bulk"), 0, 0, 2500 * time.Microsecond, 0, 0, 0}, {work("acme"), 1, 5 * ms, 4 * ms, 0, 0, 0}},
		},
		"csv with everything": {
			"tenant,service_ms,arrival_ms,organization,class,operation,cohort,cost,actual,priority,preemptible,deadline_ms,keys\n" +
				"acme,0.000001,1.25,group,interactive,mail,loud,7,9,-3,true,2,db=1;smtp=10\nbulk,3,4,,,,,,,,,,\n",
			trace.FormCSV, "slot_seconds",
			[]plain{{whole, 0, 1250 * time.Microsecond, 1, 2 * ms, 7, 9}, {work("bulk"), 1, 4 * ms, 3 * ms, 0, 0, 0}},
		},
		"jsonl": {
			`{"arrival_ms":1.25,"tenant":"acme","service_ms":0.000001,"organization":"group","class":"interactive","operation":"mail","cohort":"loud",` +
				`"cost":7,"actual":9,"priority":-3,"preemptible":true,"deadline_ms":2,"keys":[{"key":"db","max":1},{"key":"smtp","max":10}]}` + "\n\n" +
				`{"arrival_ms":4,"tenant":"bulk","service_ms":3,"job":12}`,
			trace.FormJSONL, "slot_seconds",
			[]plain{{whole, 0, 1250 * time.Microsecond, 1, 2 * ms, 7, 9}, {work("bulk"), 12, 4 * ms, 3 * ms, 0, 0, 0}},
		},
		"standard workload format": {
			"; Computer: a machine\n 1 10 -1 3600 8 -1 -1 -1 -1 -1 -1 7 2 -1 -1 -1 -1 -1\n" +
				"2 0 -1 0 -1 -1 -1 1 -1 -1 -1 7 2 -1 -1 -1 -1 -1 ; short\n3 0 -1 -1 4 -1 -1 4 -1 -1 -1 7 2 -1 -1 -1 -1 -1\n",
			trace.FormSWF, "processor_hours",
			[]plain{{single, 1, 0, time.Second, 0, 0, 278}, {user, 0, 10 * time.Second, time.Hour, 0, 0, 8_000_000}},
		},
		"tokens": {
			"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:47.6805901,10,0\n",
			trace.FormTokens, "tokens",
			[]plain{
				{request("tenant-01"), 0, 0, 917400 * time.Microsecond, 0, 0, 418_000_000},
				{request("tenant-06"), 1, time.Second + 100, time.Millisecond, 0, 0, 10_000_000},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tr := read(t, c.text, trace.Options{})
			if got := plainly(tr.Jobs); tr.Form != c.form || tr.Unit != c.unit || !reflect.DeepEqual(got, c.want) {
				t.Errorf("form %s, unit %s:\n%+v\nwant\n%+v", tr.Form, tr.Unit, got, c.want)
			}
			var packed bytes.Buffer
			z := gzip.NewWriter(&packed)
			if _, err := z.Write([]byte(c.text)); err != nil {
				t.Fatal(err)
			}
			z.Close()
			if got := plainly(read(t, packed.String(), trace.Options{Form: c.form}).Jobs); !reflect.DeepEqual(got, c.want) {
				t.Errorf("packed: %+v", got)
			}
		})
	}
}

// TestRefused has what is wrong with a trace, and where.
func TestRefused(t *testing.T) {
	const head = "arrival_ms,tenant,service_ms,class,cost,keys,deadline_ms,job\n"
	swf := func(fields string) string { return "; comment\n" + fields + "\n" }
	for name, c := range map[string]struct {
		text   string
		line   int
		column int
		says   string
	}{
		"empty":            {"", 1, 0, "the trace is empty"},
		"no jobs":          {head, 1, 0, "there is no job"},
		"unknown column":   {"arrival_ms,tenant,service,service_ms\n", 1, 19, `"service" is no column`},
		"missing column":   {"arrival_ms,service_ms\n", 1, 0, "the column tenant is missing"},
		"column twice":     {"arrival_ms,tenant,tenant,service_ms\n", 1, 19, "comes twice"},
		"fields":           {head + "0,a,1\n", 2, 1, "wrong number of fields"},
		"no time":          {head + "0,a,1,,,,,\nsoon,a,1,,,,,\n", 3, 1, `"soon" is no time`},
		"negative":         {head + "-1,a,1,,,,,\n", 2, 1, `"-1" is no time`},
		"too exact":        {head + "0.1234567,a,1,,,,,\n", 2, 1, "is no time"},
		"too late":         {head + "9999999999999,a,1,,,,,\n", 2, 1, "is no time"},
		"no service":       {head + "0,a,0,,,,,\n", 2, 5, "service_ms: is 0"},
		"tenant":           {head + "0,a b,1,,,,,\n", 2, 3, "tenant: "},
		"class":            {head + "0,a,1,system,,,,\n", 2, 7, `"system" is not a class`},
		"cost":             {head + "0,a,1,,1e3,,,\n", 2, 8, "cost: "},
		"huge cost":        {head + "0,a,1,,1000000000001,,,\n", 2, 8, "cost: "},
		"key":              {head + "0,a,1,,,db,,\n", 2, 9, "is no concurrency key"},
		"key twice":        {head + "0,a,1,,,db=1;db=2,,\n", 2, 9, "names \"db\" twice"},
		"keys":             {head + "0,a,1,,,a=1;b=1;c=1;d=1;e=1,,\n", 2, 9, "5 concurrency keys"},
		"deadline":         {head + "7,a,1,,,,7,\n", 2, 0, "has its deadline before it comes"},
		"job twice":        {head + "0,a,1,,,,,4\n1,a,1,,,,,4\n", 1, 0, "two jobs have the number 4"},
		"json":             {`{"arrival_ms":0,"tenant":"a","service_ms":1}` + "\n{]", 2, 2, "invalid character"},
		"json member":      {`{"arrival_ms":0,"tenant":"a","servicems":1}`, 1, 30, "unknown field"},
		"json kind":        {`{"arrival_ms":0,"tenant":7,"service_ms":1}`, 1, 26, "tenant: is a number"},
		"json value":       {`{"arrival_ms":0,"tenant":"","service_ms":1}`, 1, 17, "tenant: is empty"},
		"json without":     {`{"arrival_ms":0,"tenant":"a"}`, 1, 0, `service_ms: "" is no time`},
		"json two":         {`{"arrival_ms":0,"tenant":"a","service_ms":1} {}`, 1, 46, "more after the object"},
		"swf few":          {swf("1 2 3"), 2, 6, "has 3 fields, of 18"},
		"swf many":         {swf(strings.Repeat("1 ", 19)), 2, 37, "more than 18 fields"},
		"swf word":         {swf("1 2 x 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18"), 2, 5, `"x" is no number`},
		"swf submit":       {swf("1 -1 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18"), 2, 3, "field 2"},
		"tokens header":    {"TIMESTAMP,Context,GeneratedTokens\n", 1, 1, "the header is"},
		"tokens time":      {"TIMESTAMP,ContextTokens,GeneratedTokens\nnow,1,1\n", 2, 1, `"now" is no time`},
		"tokens count":     {"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,1,-1\n", 2, 23, "GeneratedTokens"},
		"tokens backwards": {"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,1,1\n2023-11-16 18:15:45,1,1\n", 3, 1, "is before the first"},
		"long line":        {";" + strings.Repeat("x", 2<<20), 1, 0, "more than 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := trace.Read(strings.NewReader(c.text), trace.Options{})
			var e *trace.SyntaxError
			if !errors.As(err, &e) {
				t.Fatalf("%v", err)
			}
			if e.Line != c.line || e.Column != c.column || !strings.Contains(err.Error(), c.says) || e.Remedy == "" {
				t.Errorf("%v; want line %d, column %d: %s", err, c.line, c.column, c.says)
			}
		})
	}
	var f *cell.FieldError
	if _, err := trace.Read(strings.NewReader(head), trace.Options{Form: "xml"}); !errors.As(err, &f) || f.Field != "form" {
		t.Errorf("an unknown form: %v", err)
	}
	if _, err := trace.Read(strings.NewReader(head), trace.Options{Tenants: -1}); !errors.As(err, &f) || f.Field != "tenants" {
		t.Errorf("no tenants: %v", err)
	}
	if _, err := trace.Read(bytes.NewReader([]byte{0x1f, 0x8b, 0}), trace.Options{}); err == nil {
		t.Error("a torn archive was read")
	}
}

// TestRoundTrip writes any jobs in both forms and reads them back.
func TestRoundTrip(t *testing.T) {
	name := rapid.StringMatching(`[a-z][a-z0-9.:_-]{0,6}`)
	job := rapid.Custom(func(t *rapid.T) plain {
		p := plain{
			Traits: trace.Traits{
				Tenant: name.Draw(t, "tenant"), Class: rapid.SampledFrom([]cell.Class{cell.ClassBatch, cell.ClassInteractive}).Draw(t, "class"),
				Operation: cell.Operation(name.Draw(t, "operation")), Cohort: name.Draw(t, "cohort"),
				Priority: rapid.Int32().Draw(t, "priority"), Preemptible: rapid.Bool().Draw(t, "preemptible"),
			},
			Arrival: time.Duration(rapid.Int64Range(0, int64(trace.TimeMax)).Draw(t, "arrival")),
			Service: time.Duration(rapid.Int64Range(1, int64(trace.TimeMax)).Draw(t, "service")),
			Cost:    cell.Cost(rapid.Int64Range(0, int64(cell.CostMax)).Draw(t, "cost")),
			Actual:  cell.Cost(rapid.Int64Range(0, int64(cell.CostMax)).Draw(t, "actual")),
		}
		if rapid.Bool().Draw(t, "organized") {
			p.Organization = name.Draw(t, "organization")
		}
		if left := int64(trace.TimeMax - p.Arrival); left > 0 && rapid.Bool().Draw(t, "due") {
			p.Deadline = p.Arrival + time.Duration(rapid.Int64Range(1, left).Draw(t, "deadline"))
		}
		for _, k := range rapid.SliceOfNDistinct(name, 0, cell.ConcurrencyKeysMax, rapid.ID[string]).Draw(t, "keys") {
			p.Keys = append(p.Keys, cell.ConcurrencyKey{Key: k, Max: rapid.Int64Range(1, cell.ConcurrencyMax).Draw(t, "max")})
		}
		return p
	})
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(job, 1, 20).Draw(t, "jobs")
		var jobs []trace.Job
		for i := range want {
			want[i].ID = i
			w := want[i]
			jobs = append(jobs, trace.Job{
				Traits: &w.Traits, ID: w.ID, Arrival: w.Arrival, Service: w.Service, Cost: w.Cost, Actual: w.Actual, Deadline: w.Deadline,
			})
		}
		trace.Sort(jobs)
		want = plainly(jobs)
		for form, write := range map[trace.Form]func(*bytes.Buffer) error{
			trace.FormCSV:   func(b *bytes.Buffer) error { return trace.WriteCSV(b, jobs) },
			trace.FormJSONL: func(b *bytes.Buffer) error { return trace.WriteJSONL(b, jobs) },
		} {
			var b bytes.Buffer
			if err := write(&b); err != nil {
				t.Fatal(err)
			}
			text := b.String()
			tr, err := trace.Read(&b, trace.Options{})
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			if got := plainly(tr.Jobs); tr.Form != form || !reflect.DeepEqual(got, want) {
				t.Fatalf("%s: %+v\nwant %+v\n%s", form, got, want, text)
			}
		}
	})
}

// FuzzRead has no text break the readers: they refuse it, or what they read is in order and writes to what reads the same.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		"arrival_ms,tenant,job,service_ms\n5,acme,1,4\n0,bulk,0,2.5\n",
		`{"arrival_ms":1.25,"tenant":"acme","service_ms":3,"keys":[{"key":"db","max":1}]}`,
		"1 10 -1 3600 8 -1 -1 -1 -1 -1 -1 7 2 -1 -1 -1 -1 -1\n",
		"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		tr, err := trace.Read(bytes.NewReader(text), trace.Options{})
		if err != nil {
			return
		}
		if !slices.IsSortedFunc(tr.Jobs, func(a, b trace.Job) int { return trace.Compare(&a, &b) }) || tr.Slots < 1 {
			t.Fatalf("%d slots, %+v", tr.Slots, plainly(tr.Jobs))
		}
		var b bytes.Buffer
		if err := trace.WriteCSV(&b, tr.Jobs); err != nil {
			t.Fatal(err)
		}
		again, err := trace.Read(&b, trace.Options{})
		if err != nil || !reflect.DeepEqual(plainly(again.Jobs), plainly(tr.Jobs)) {
			t.Fatalf("%v\n%+v\n%+v", err, plainly(tr.Jobs), plainly(again.Jobs))
		}
	})
}

// TestZipf deals requests out as the rule says: to tenant k with a chance proportional to 1/k, and the same from the same seed.
func TestZipf(t *testing.T) {
	const n = 20_000
	text := "TIMESTAMP,ContextTokens,GeneratedTokens\n" + strings.Repeat("2023-11-16 18:15:46,1,1\n", n)
	count := func(seed uint64) map[string]int {
		out := map[string]int{}
		for _, j := range read(t, text, trace.Options{Tenants: 4, Seed: seed}).Jobs {
			out[j.Tenant]++
		}
		return out
	}
	one := count(1)
	for tenant, want := range map[string]float64{"tenant-1": 12. / 25, "tenant-2": 6. / 25, "tenant-3": 4. / 25, "tenant-4": 3. / 25} {
		if got := float64(one[tenant]) / n; got < want-0.015 || got > want+0.015 {
			t.Errorf("%s has %.3f of the requests, not %.3f", tenant, got, want)
		}
	}
	if !reflect.DeepEqual(one, count(1)) || reflect.DeepEqual(one, count(2)) {
		t.Error("the seed does not decide who is dealt what")
	}
}

// TestSlotsFor has the rule for how many slots a trace runs on.
func TestSlotsFor(t *testing.T) {
	const head = "arrival_ms,tenant,service_ms\n"
	for name, c := range map[string]struct {
		text string
		want int
	}{
		"busy four fifths": {head + "0,a,40\n50,a,39\n100,a,1\n", 1},
		"a little more":    {head + "0,a,41\n50,a,39\n100,a,1\n", 2},
		"all at once":      {head + strings.Repeat("0,a,4\n", 10), 10},
		"one":              {head + "7,a,1\n", 1},
	} {
		if got := read(t, c.text, trace.Options{}).Slots; got != c.want {
			t.Errorf("%s: %d slots, want %d", name, got, c.want)
		}
	}
}

// TestNASA reads three months of a machine of 1993.
func TestNASA(t *testing.T) {
	tr := readShared(t, "NASA-iPSC-1993-3.1-cln.swf.gz", trace.Options{})
	users, groups, short := map[string]bool{}, map[string]bool{}, 0
	for _, j := range tr.Jobs {
		users[j.Tenant], groups[j.Organization] = true, true
		if j.Class == cell.ClassInteractive {
			short++
		}
	}
	if len(tr.Jobs) != 18_239 || len(users) != 69 || len(groups) != 2 || tr.Form != trace.FormSWF {
		t.Errorf("%s: %d jobs by %d users of %d groups", tr.Form, len(tr.Jobs), len(users), len(groups))
	}
	if at := tr.Jobs[len(tr.Jobs)-1].Arrival; at != 7_948_936*time.Second {
		t.Errorf("the last job comes at %v", at)
	}
	t.Logf("%d interactive jobs, %d slots, %q", short, tr.Slots, tr.Notes)
}

// TestRequests reads an hour of requests to a language model.
func TestRequests(t *testing.T) {
	tr := readShared(t, "AzureLLMInferenceTrace_conv.csv.gz", trace.Options{Tenants: 12, Seed: 3})
	tenants := map[string]bool{}
	var tokens cell.Cost
	for _, j := range tr.Jobs {
		tenants[j.Tenant] = true
		tokens += j.Charge()
	}
	if len(tr.Jobs) != 19_366 || len(tenants) != 12 || tr.Unit != trace.UnitTokens {
		t.Errorf("%d jobs by %d tenants in %s", len(tr.Jobs), len(tenants), tr.Unit)
	}
	t.Logf("%d tokens, %d slots, %q", tokens/cell.Unit, tr.Slots, tr.Notes)
}

// TestThreeHundred reads the minimal form.
func TestThreeHundred(t *testing.T) {
	tr := readShared(t, "three-hundred.csv", trace.Options{})
	count := map[string]int{}
	for _, j := range tr.Jobs {
		count[j.Tenant]++
	}
	if !reflect.DeepEqual(count, map[string]int{"bulk": 265, "acme": 21, "globex": 14}) {
		t.Errorf("%v", count)
	}
}
