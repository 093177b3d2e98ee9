package cell_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
)

// fieldError fails unless err is a FieldError of the field, with something to say and to do, and no longer than a log line.
func fieldError(t testing.TB, err error, field string) {
	t.Helper()
	var e *cell.FieldError
	if !errors.As(err, &e) || e.Field != field || e.Problem == "" || e.Remedy == "" || len(err.Error()) > 300 {
		t.Errorf("got %v, want an error about %s", err, field)
	}
}

func TestCheckID(t *testing.T) {
	cases := map[string]struct {
		id string
		ok bool
	}{
		"a letter":               {"a", true},
		"a digit":                {"7", true},
		"all kinds of character": {"Acme-2.eu_west:Z", true},
		"the longest":            {strings.Repeat("x", cell.IDBytesMax), true},
		"one too long":           {strings.Repeat("x", cell.IDBytesMax+1), false},
		"a megabyte":             {strings.Repeat("x", 1<<20), false},
		"nothing":                {"", false},
		"a space":                {" ", false},
		"a space at the end":     {"acme ", false},
		"a dot first":            {".acme", false},
		"a dash first":           {"-acme", false},
		"a colon first":          {":acme", false},
		"an underscore first":    {"_acme", false},
		"a slash":                {"acme/1", false},
		"a line break":           {"acme\n", false},
		"a zero byte":            {"acme\x00", false},
		"an umlaut":              {"größe", false},
		"a look-alike letter":    {"аcme", false},
		"half a character":       {"acme\xc3", false},
		"a byte that is no text": {"acme\xff", false},
		"an overlong form of a":  {"acme\xc1\xa1", false},
		"a surrogate":            {"acme\xed\xa0\x80", false},
		"markup":                 {"<b>", false},
		"an escape":              {"acme\x1b[31m", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			err := cell.CheckID("job.operation", c.id)
			if c.ok && err != nil {
				t.Error(err)
			}
			if !c.ok {
				fieldError(t, err, "job.operation")
				if err != nil && (strings.ContainsAny(err.Error(), "\n\x00\x1b") || !utf8.ValidString(err.Error())) {
					t.Errorf("the error repeats what is not printable: %q", err)
				}
			}
			tenant, errTenant := cell.ParseTenantID("f", c.id)
			op, errOp := cell.ParseOperation("f", c.id)
			if (errTenant == nil) != c.ok || (errOp == nil) != c.ok || c.ok && (string(tenant) != c.id || string(op) != c.id) {
				t.Errorf("tenant %q, %v; operation %q, %v", tenant, errTenant, op, errOp)
			}
		})
	}
}

func TestCheckIDBytes(t *testing.T) {
	const rest = "._:-"
	for b := range 256 {
		c := string([]byte{byte(b)})
		letter := b < 128 && (b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9')
		if ok := cell.CheckID("f", c) == nil; ok != letter {
			t.Errorf("%q alone: %v", c, ok)
		}
		if ok := cell.CheckID("f", "a"+c+"b") == nil; ok != (letter || strings.Contains(rest, c)) {
			t.Errorf("%q inside: %v", c, ok)
		}
	}
}

func TestJobIDRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := cell.JobID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		s := id.String()
		if len(s) != 40 || !strings.HasPrefix(s, cell.JobIDPrefix) || strings.ToLower(s) != s || cell.CheckID("f", s) != nil {
			t.Fatalf("got %q", s)
		}
		got, err := cell.ParseJobID("job_id", s)
		if err != nil || got != id {
			t.Fatalf("%s: got %v, %v", s, got, err)
		}
		// The text's order is the ids' order.
		other := cell.JobID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "other"))
		if slices.Compare(id[:], other[:]) != strings.Compare(s, other.String()) {
			t.Fatalf("%s and %s compare otherwise", s, other)
		}
	})
}

func TestParseJobIDRefuses(t *testing.T) {
	good := cell.JobID{1, 2, 3, 15: 4}.String()
	cases := map[string]string{
		"nothing":           "",
		"the prefix alone":  cell.JobIDPrefix,
		"no prefix":         good[4:],
		"another prefix":    "jab_" + good[4:],
		"one short":         good[:39],
		"one long":          good + "0",
		"a space":           " " + good[:39],
		"no hexadecimal":    good[:39] + "g",
		"a dash elsewhere":  "job_0102030-00000-0000-0000-000000000004",
		"no dashes":         "job_" + strings.ReplaceAll(good[4:], "-", "") + "0000",
		"dashes for digits": "job_" + strings.Repeat("-", 36),
		"bytes of no text":  "job_" + strings.Repeat("\xff", 36),
		"a megabyte":        "job_" + strings.Repeat("0", 1<<20),
	}
	for name, s := range cases {
		t.Run(name, func(t *testing.T) {
			id, err := cell.ParseJobID("job_id", s)
			fieldError(t, err, "job_id")
			if id != (cell.JobID{}) {
				t.Errorf("got %v beside the error", id)
			}
		})
	}
	if id, err := cell.ParseJobID("f", strings.ToUpper(good[4:])); err == nil {
		t.Errorf("got %v", id)
	}
}

// FuzzParseJobID accepts nothing but what String writes, in either case of its digits.
func FuzzParseJobID(f *testing.F) {
	f.Add(cell.JobID{0xab, 15: 0xcd}.String())
	f.Fuzz(func(t *testing.T, s string) {
		if id, err := cell.ParseJobID("f", s); err == nil && !strings.EqualFold(id.String(), s) {
			t.Errorf("%q is read as %v", s, id)
		}
	})
}

func TestWeight(t *testing.T) {
	cases := map[string]struct {
		f    float64
		want cell.Weight // -1 for an error
	}{
		"none":                    {0, 0},
		"none below zero":         {math.Copysign(0, -1), 0},
		"the usual":               {1, cell.WeightDefault},
		"the least":               {0.001, cell.WeightMin},
		"rounded up to the least": {0.0006, cell.WeightMin},
		"below the least":         {0.0004, -1},
		"the smallest number":     {math.SmallestNonzeroFloat64, -1},
		"two and a half":          {2.5, 2500},
		"not exact in binary":     {0.3, 300},
		"between steps":           {1.2344, 1234},
		"the most":                {1e6, cell.WeightMax},
		"just above the most":     {math.Nextafter(1e6, 2e6), -1},
		"the largest number":      {math.MaxFloat64, -1},
		"infinite":                {math.Inf(1), -1},
		"infinitely negative":     {math.Inf(-1), -1},
		"not a number":            {math.NaN(), -1},
		"negative":                {-1, -1},
		"negative and tiny":       {-math.SmallestNonzeroFloat64, -1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w, err := cell.ParseWeight("weight", c.f)
			if c.want < 0 {
				fieldError(t, err, "weight")
				return
			}
			if err != nil || w != c.want {
				t.Errorf("got %d, %v", w, err)
			}
		})
	}
}

func TestWeightRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := cell.Weight(rapid.Int64Range(0, int64(cell.WeightMax)).Draw(t, "weight"))
		if got, err := cell.ParseWeight("f", w.Float()); err != nil || got != w {
			t.Fatalf("%d is %v is %d, %v", w, w.Float(), got, err)
		}
	})
}

func TestCheckCost(t *testing.T) {
	for c, ok := range map[int64]bool{
		0: true, 1: true, int64(cell.CostMax): true, int64(cell.CostMax) + 1: false, -1: false, math.MinInt64: false, math.MaxInt64: false,
	} {
		err := cell.CheckCost("job.cost", c)
		if ok && err != nil {
			t.Errorf("%d: %v", c, err)
		}
		if !ok {
			fieldError(t, err, "job.cost")
		}
	}
	if sum := int64(cell.CostMax) * 9_000_000; sum/9_000_000 != int64(cell.CostMax) {
		t.Error("nine million of the largest costs overflow")
	}
}

func TestClass(t *testing.T) {
	for i, c := range cell.Classes() {
		if !c.Valid() || c.Index() != i {
			t.Errorf("%v has index %d", c, c.Index())
		}
		if got, err := cell.ParseClass("class", c.String()); err != nil || got != c {
			t.Errorf("%v: got %v, %v", c, got, err)
		}
	}
	for c := range cell.Class(10) {
		if listed := slices.Contains(slices.Collect(func(yield func(cell.Class) bool) {
			for _, k := range cell.Classes() {
				if !yield(k) {
					return
				}
			}
		}), c); listed != c.Valid() {
			t.Errorf("%v: listed %v, valid %v", c, listed, c.Valid())
		}
	}
	for _, s := range []string{"", "Batch", "batch ", "system", "class(3)", strings.Repeat("x", 1<<20), "\xff"} {
		_, err := cell.ParseClass("class", s)
		fieldError(t, err, "class")
	}
	if got := (cell.Lane{Tenant: "acme", Class: cell.ClassBatch}).String(); got != "acme/batch" {
		t.Errorf("got %q", got)
	}
	if got := cell.Class(9).String(); got != "class(9)" {
		t.Errorf("got %q", got)
	}
}

func TestPermission(t *testing.T) {
	listed := cell.Permissions()
	for p := range cell.Permission(20) {
		known := slices.Contains(listed, p)
		got, err := cell.ParsePermission("scope", p.String())
		switch {
		case known && (err != nil || got != p):
			t.Errorf("%v: got %v, %v", p, got, err)
		case !known:
			fieldError(t, err, "scope")
			if p.OfPlatformOnly() {
				t.Errorf("%v is the platform's", p)
			}
		}
	}
	var platform []string
	for _, p := range listed {
		if p.OfPlatformOnly() {
			platform = append(platform, p.String())
		}
	}
	if !slices.Equal(platform, []string{"operate", "admin"}) {
		t.Errorf("of the platform only: %v", platform)
	}
	for _, s := range []string{"", "Admin", "admin ", "admin,read", "*", strings.Repeat("x", 1<<20)} {
		_, err := cell.ParsePermission("scope", s)
		fieldError(t, err, "scope")
	}
}

// TestCallerDeniesByDefault tries every permission against every key of one permission.
func TestCallerDeniesByDefault(t *testing.T) {
	for _, has := range append(cell.Permissions(), 0, 99) {
		c := cell.Caller{Permissions: []cell.Permission{has}}
		for _, asks := range cell.Permissions() {
			if c.May(asks) != (has == asks) {
				t.Errorf("a key for %v may %v: %v", has, asks, c.May(asks))
			}
		}
		if c.MayLease("op") != (has == cell.PermissionWork) {
			t.Errorf("a key for %v may lease: %v", has, c.MayLease("op"))
		}
	}
	var nobody cell.Caller
	for _, p := range cell.Permissions() {
		if nobody.May(p) {
			t.Errorf("nobody may %v", p)
		}
	}
	bound := cell.Caller{Permissions: []cell.Permission{cell.PermissionWork}, Operations: []cell.Operation{"a", "b"}}
	for op, want := range map[cell.Operation]bool{"a": true, "b": true, "c": false, "": false, "A": false} {
		if bound.MayLease(op) != want {
			t.Errorf("%q: %v", op, !want)
		}
	}
	bound.Permissions = nil
	if bound.MayLease("a") {
		t.Error("the operations of a key that may not work let it lease")
	}
}

func TestInstant(t *testing.T) {
	if cell.InstantOf(time.Time{}) != 0 || !cell.Instant(0).Time().IsZero() {
		t.Error("no time is not 0")
	}
	rapid.Check(t, func(t *rapid.T) {
		i := cell.Instant(rapid.Int64().Draw(t, "instant"))
		if got := cell.InstantOf(i.Time()); got != i && i < math.MaxInt64/1_000_000_000*1_000_000_000 && i > math.MinInt64/1_000_000_000*1_000_000_000 {
			t.Fatalf("%d became %d", i, got)
		}
		if i != 0 && i.Time().Location() != time.UTC {
			t.Fatalf("%v is not in UTC", i.Time())
		}
		a := cell.Instant(rapid.Int64Range(0, 1<<61).Draw(t, "a"))
		d := time.Duration(rapid.Int64Range(-1<<61, 1<<61).Draw(t, "d"))
		if a.Add(d).Sub(a) != d || a.Sub(a.Add(d)) != -d || (a.Add(d) > a) != (d > 0) {
			t.Fatalf("%d and %v do not add up", a, d)
		}
	})
	for name, c := range map[string]struct{ got, want int64 }{
		"a far deadline":       {int64(cell.InstantOf(time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC))), math.MaxInt64},
		"the year 1":           {int64(cell.InstantOf(time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC))), math.MinInt64},
		"the last and more":    {int64(cell.Instant(math.MaxInt64 - 1).Add(2)), math.MaxInt64},
		"the first and less":   {int64(cell.Instant(math.MinInt64 + 1).Add(-2)), math.MinInt64},
		"the furthest apart":   {int64(cell.Instant(math.MaxInt64).Sub(-1)), math.MaxInt64},
		"the other way round":  {int64(cell.Instant(math.MinInt64).Sub(1)), math.MinInt64},
		"the least difference": {int64(cell.Instant(math.MinInt64).Sub(math.MaxInt64)), math.MinInt64},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %d, want %d", name, c.got, c.want)
		}
	}
	at := time.Date(2026, 2, 28, 23, 59, 59, 999, time.FixedZone("elsewhere", 3600))
	if got := cell.InstantOf(at).Time(); !got.Equal(at) {
		t.Errorf("%v became %v", at, got)
	}
}

func TestErrors(t *testing.T) {
	limit := &cell.LimitError{
		Limit: "backlog_jobs_max", Scope: cell.ScopeLane, Value: 501, Bound: 500, RetryAfter: time.Second, Remedy: "wait until waiting jobs have run",
	}
	if got, want := limit.Error(), "backlog_jobs_max of the lane would be 501, of at most 500: wait until waiting jobs have run"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	field := &cell.FieldError{Field: "job.cost", Problem: "is -1, outside 0 to 5", Remedy: "give more"}
	if got, want := field.Error(), "job.cost is -1, outside 0 to 5: give more"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
