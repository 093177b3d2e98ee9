package admit_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/admit"
	"github.com/fairlead/fairlead/cell/engine"
)

const now = cell.Instant(1_800_000_000_000_000_000)

// fault checks that err is a FieldError for the field, whose text has every word: the bound above all.
func fault(t *testing.T, name string, err error, field string, words ...string) {
	t.Helper()
	fe, ok := errors.AsType[*cell.FieldError](err)
	if !ok {
		t.Errorf("%s: %v, want a fault of %s", name, err, field)
		return
	}
	if fe.Field != field || fe.Remedy == "" {
		t.Errorf("%s: field %q, remedy %q, want the field %q and a remedy", name, fe.Field, fe.Remedy, field)
	}
	for _, w := range words {
		if !strings.Contains(fe.Error(), w) {
			t.Errorf("%s: %q does not say %q", name, fe, w)
		}
	}
}

func labelled(n int) []engine.Label {
	ls := make([]engine.Label, n)
	for i := range ls {
		ls[i] = engine.Label{Name: fmt.Sprintf("n%d", i), Value: "v"}
	}
	return ls
}

// edge is a bound of a job: set puts a value there, at is the last that passes, beyond the first that does not.
type edge struct {
	field      string
	words      []string // that the refusal says
	at, beyond func(*engine.Spec)
}

func sized(n int, set func(*engine.Spec, string)) func(*engine.Spec) {
	return func(s *engine.Spec) { set(s, strings.Repeat("x", n)) }
}

func edges() map[string]edge {
	operation := func(s *engine.Spec, v string) { s.Operation = cell.Operation(v) }
	key := func(s *engine.Spec, v string) { s.Key = v }
	payload := func(s *engine.Spec, v string) { s.Payload = engine.Payload{Kind: engine.PayloadData, Data: []byte(v)} }
	media := func(s *engine.Spec, v string) { s.Payload.Kind, s.Payload.ContentType = engine.PayloadData, v }
	trace := func(s *engine.Spec, v string) { s.Traceparent = v }
	label := func(s *engine.Spec, v string) { s.Labels = []engine.Label{{Name: v}} }
	value := func(s *engine.Spec, v string) { s.Labels = []engine.Label{{Name: "n", Value: v}} }
	concurrency := func(s *engine.Spec, v string) { s.Keys = []cell.ConcurrencyKey{{Key: "k", Max: 1}, {Key: v, Max: 1}} }
	bound := func(n int64) func(*engine.Spec) {
		return func(s *engine.Spec) { s.Keys = []cell.ConcurrencyKey{{Key: "k", Max: n}} }
	}
	keyed := func(n int) func(*engine.Spec) {
		return func(s *engine.Spec) {
			for i := range n {
				s.Keys = append(s.Keys, cell.ConcurrencyKey{Key: fmt.Sprint("k", i), Max: 1})
			}
		}
	}
	uses := func(n int64) func(*engine.Spec) {
		return func(s *engine.Spec) { s.Resources = &cell.Resources{cell.ResourceTokens: n} }
	}
	return map[string]edge{
		"operation, long":              {"job.operation", []string{"129", "128"}, sized(128, operation), sized(129, operation)},
		"operation, short":             {"job.operation", []string{"empty"}, sized(1, operation), sized(0, operation)},
		"key":                          {"job.idempotency_key", []string{"129", "128"}, sized(128, key), sized(129, key)},
		"payload":                      {"job.payload", []string{"65537", "65536", "payload_bytes_max"}, sized(64<<10, payload), sized(64<<10+1, payload)},
		"content type":                 {"job.payload.content_type", []string{"129", "128"}, sized(128, media), sized(129, media)},
		"traceparent":                  {"job.traceparent", []string{"129", "128"}, sized(128, trace), sized(129, trace)},
		"label's name":                 {"job.labels", []string{"65", "64"}, sized(64, label), sized(65, label)},
		"label's name, short":          {"job.labels", []string{"empty"}, sized(1, label), sized(0, label)},
		"label's value":                {"job.labels.n", []string{"257", "256"}, sized(256, value), sized(257, value)},
		"concurrency keys":             {"job.concurrency_keys", []string{"5", "4"}, keyed(4), keyed(5)},
		"concurrency key":              {"job.concurrency_keys[1].key", []string{"129", "128"}, sized(128, concurrency), sized(129, concurrency)},
		"concurrency key, short":       {"job.concurrency_keys[1].key", []string{"empty"}, sized(1, concurrency), sized(0, concurrency)},
		"concurrency key's bound":      {"job.concurrency_keys[0].max", []string{"100001", "1 to 100000"}, bound(100_000), bound(100_001)},
		"concurrency key's bound, low": {"job.concurrency_keys[0].max", []string{"0", "1 to 100000"}, bound(1), bound(0)},
		"concurrency key twice": {
			"job.concurrency_keys[1].key", []string{"twice"}, keyed(2), func(s *engine.Spec) { keyed(1)(s); keyed(1)(s) },
		},
		"resources":      {"job.resources.tokens", []string{"1000000000000001"}, uses(cell.ResourceMax), uses(cell.ResourceMax + 1)},
		"resources, low": {"job.resources.tokens", []string{"-1"}, uses(0), uses(-1)},
		"labels": {
			"job.labels", []string{"17", "16"}, func(s *engine.Spec) { s.Labels = labelled(16) }, func(s *engine.Spec) { s.Labels = labelled(17) },
		},
		"priority": {
			"job.priority", []string{"86401", "-86400 to 86400"}, func(s *engine.Spec) { s.Priority = 86_400 }, func(s *engine.Spec) { s.Priority = 86_401 },
		},
		"priority, low": {
			"job.priority", []string{"-86401", "-86400 to 86400"}, func(s *engine.Spec) { s.Priority = -86_400 }, func(s *engine.Spec) { s.Priority = -86_401 },
		},
		"not before": {
			"job.not_before",
			[]string{"365 days"},
			func(s *engine.Spec) { s.NotBefore = now.Add(admit.DelayMax) }, func(s *engine.Spec) { s.NotBefore = now.Add(admit.DelayMax + 1) },
		},
		"deadline": {
			"job.deadline", []string{"passed 0s ago"}, func(s *engine.Spec) { s.Deadline = now + 1 }, func(s *engine.Spec) { s.Deadline = now },
		},
		"deadline and not before": {
			"job.deadline",
			[]string{"not_before"},
			func(s *engine.Spec) { s.NotBefore, s.Deadline = now+5, now+6 }, func(s *engine.Spec) { s.NotBefore, s.Deadline = now+5, now+5 },
		},
		"execution, short": {
			"job.execution_timeout",
			[]string{"1s to 24h0m0s"},
			func(s *engine.Spec) { s.ExecutionTimeout = time.Second }, func(s *engine.Spec) { s.ExecutionTimeout = time.Second - 1 },
		},
		"execution, long": {
			"job.execution_timeout",
			[]string{"1s to 24h0m0s"},
			func(s *engine.Spec) { s.ExecutionTimeout = 24 * time.Hour }, func(s *engine.Spec) { s.ExecutionTimeout = 24*time.Hour + 1 },
		},
		"cost": {
			"job.cost",
			[]string{"1000000000001", "0 to 1000000000000"},
			func(s *engine.Spec) { s.Cost = cell.CostMax }, func(s *engine.Spec) { s.Cost = cell.CostMax + 1 },
		},
		"cost, negative": {"job.cost", []string{"-1", "0 to"}, func(s *engine.Spec) { s.Cost = 0 }, func(s *engine.Spec) { s.Cost = -1 }},
		"attempts": {
			"job.retry.attempts_max",
			[]string{"101", "1 to 100"},
			func(s *engine.Spec) { s.Retry.AttemptsMax = 100 }, func(s *engine.Spec) { s.Retry.AttemptsMax = 101 },
		},
		"attempts, negative": {
			"job.retry.attempts_max",
			[]string{"-1", "1 to 100"},
			func(s *engine.Spec) { s.Retry.AttemptsMax = 1 }, func(s *engine.Spec) { s.Retry.AttemptsMax = -1 },
		},
		"back-off, longest": {
			"job.retry.delay_max",
			[]string{"8760h"},
			func(s *engine.Spec) { s.Retry.DelayMax = admit.DelayMax }, func(s *engine.Spec) { s.Retry.DelayMax = admit.DelayMax + 1 },
		},
		"back-off, first": {
			"job.retry.delay_min",
			[]string{"1m0s"},
			func(s *engine.Spec) { s.Retry.DelayMin, s.Retry.DelayMax = time.Minute, time.Minute },
			func(s *engine.Spec) { s.Retry.DelayMin, s.Retry.DelayMax = time.Minute+1, time.Minute },
		},
		"retention": {
			"job.retention",
			[]string{"720h"},
			func(s *engine.Spec) { s.Retention = admit.RetentionMax }, func(s *engine.Spec) { s.Retention = admit.RetentionMax + 1 },
		},
		"retention, short": {
			"job.retention",
			[]string{"1s to"},
			func(s *engine.Spec) { s.Retention = time.Second }, func(s *engine.Spec) { s.Retention = time.Second - 1 },
		},
	}
}

// At each bound a job passes; one beyond it is refused, naming the field and the bound.
func TestSpecAtItsBounds(t *testing.T) {
	for name, e := range edges() {
		s := engine.Spec{Operation: "op"}
		e.at(&s)
		if err := admit.DefaultLimits().Spec(now, "job.", &s); err != nil {
			t.Errorf("%s, at the bound: %v", name, err)
		}
		s = engine.Spec{Operation: "op"}
		e.beyond(&s)
		fault(t, name, admit.DefaultLimits().Spec(now, "job.", &s), e.field, e.words...)
		s = engine.Spec{Operation: "op"}
		e.beyond(&s)
		fault(t, name, admit.DefaultLimits().Spec(now, "jobs[7].", &s), "jobs[7]."+strings.TrimPrefix(e.field, "job."))
	}
}

// What is no identifier, no UTF-8 or would disturb a terminal is refused wherever a caller chooses text.
func TestSpecText(t *testing.T) {
	for name, c := range map[string]struct {
		field string
		set   func(*engine.Spec, string)
		bad   []string
	}{
		"operation": {
			"operation", func(s *engine.Spec, v string) { s.Operation = cell.Operation(v) },
			[]string{"", "*", "a b", "a/b", ".a", "-a", "a*", "ä", "a\xff", "a\x00", "a\n", "a,b"},
		},
		"key": {
			"idempotency_key", func(s *engine.Spec, v string) { s.Key = v },
			[]string{"*", "a b", "key=*", ".a", "\xff", "a\x00", "ключ"},
		},
		"content type": {
			"payload.content_type", func(s *engine.Spec, v string) { s.Payload = engine.Payload{Kind: engine.PayloadData, ContentType: v} },
			[]string{"text/plain\r\nx: y", "\xff", "a\x00", "\x1b[2J", "\x7f"},
		},
		"traceparent": {
			"traceparent", func(s *engine.Spec, v string) { s.Traceparent = v }, []string{"\xff", "a\nb", "\x1b"},
		},
		"label's name": {
			"labels", func(s *engine.Spec, v string) { s.Labels = []engine.Label{{Name: v}} }, []string{"", "*", "a b", "\xff", "a=b"},
		},
		"label's value": {
			"labels.n", func(s *engine.Spec, v string) { s.Labels = []engine.Label{{Name: "n", Value: v}} }, []string{"\xff", "a\nb", "\x1b[2J", "\x7f"},
		},
	} {
		for _, v := range c.bad {
			s := engine.Spec{Operation: "op"}
			c.set(&s, v)
			fault(t, fmt.Sprintf("%s %q", name, v), admit.DefaultLimits().Spec(now, "", &s), c.field)
		}
	}
	for _, v := range []string{"a", "0", "a.b_c:d-e", "Z9", strings.Repeat("a", 128)} {
		s := engine.Spec{Operation: cell.Operation(v), Key: v, Labels: []engine.Label{{Name: v[:min(len(v), 64)], Value: "any text: ä ✓"}}}
		if err := admit.DefaultLimits().Spec(now, "", &s); err != nil {
			t.Errorf("%q: %v", v, err)
		}
	}
}

// What a submission leaves out is filled in from the limits, and what it says stays.
func TestDefaults(t *testing.T) {
	l := admit.DefaultLimits()
	bare := engine.Spec{Operation: "op", Labels: []engine.Label{{Name: "b"}, {Name: "a"}}}
	if err := l.Spec(now, "", &bare); err != nil {
		t.Fatal(err)
	}
	if bare.ExecutionTimeout != l.ExecutionDefault || bare.Retention != l.RetentionDefault || bare.Retry.AttemptsMax != l.AttemptsDefault ||
		bare.Retry.DelayMin != l.RetryDelayMin || bare.Retry.DelayMax != l.RetryDelayMax {
		t.Errorf("defaults: %+v", bare)
	}
	if bare.Labels[0].Name != "a" {
		t.Errorf("labels are not in order: %v", bare.Labels)
	}
	said := engine.Spec{
		Operation: "op", ExecutionTimeout: time.Minute, Retention: time.Hour,
		Retry: engine.Retry{AttemptsMax: 3, DelayMin: 2 * time.Second, DelayMax: 3 * time.Second},
	}
	want := said
	if err := l.Spec(now, "", &said); err != nil || said.ExecutionTimeout != want.ExecutionTimeout || said.Retention != want.Retention || said.Retry != want.Retry {
		t.Errorf("%+v, %v, want %+v", said, err, want)
	}
	for name, c := range map[string]struct{ give, want engine.Retry }{
		"only the first, above the default's longest": {
			engine.Retry{DelayMin: 2 * time.Hour}, engine.Retry{AttemptsMax: 25, DelayMin: 2 * time.Hour, DelayMax: 2 * time.Hour},
		},
		"only the longest, below the default's first": {
			engine.Retry{DelayMax: time.Millisecond}, engine.Retry{AttemptsMax: 25, DelayMin: time.Millisecond, DelayMax: time.Millisecond},
		},
	} {
		s := engine.Spec{Operation: "op", Retry: c.give}
		if err := l.Spec(now, "", &s); err != nil || s.Retry != c.want {
			t.Errorf("%s: %+v, %v, want %+v", name, s.Retry, err, c.want)
		}
	}
}

// The bounds on calls, each at it and one beyond.
func TestCallsAtTheirBounds(t *testing.T) {
	bad := func(name string, err error, words ...string) {
		t.Helper()
		fault(t, name, err, "f", words...)
	}
	good := func(name string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	good("batch of 1", admit.Batch("f", 1))
	good("batch of 500", admit.Batch("f", admit.BatchMax))
	bad("batch of 0", admit.Batch("f", 0), "1 to 500")
	bad("batch of 501", admit.Batch("f", admit.BatchMax+1), "501", "1 to 500")

	for n, want := range map[int32]int{0: admit.PageDefault, 1: 1, admit.PageMax: admit.PageMax} {
		if got, err := admit.Page("f", n); got != want || err != nil {
			t.Errorf("page of %d: %d, %v", n, got, err)
		}
	}
	for _, n := range []int32{-1, admit.PageMax + 1} {
		_, err := admit.Page("f", n)
		bad("page", err, fmt.Sprint(n), "1 to 500")
	}
	for d, want := range map[time.Duration]time.Duration{0: time.Hour, 1: 1, admit.WaitMax: admit.WaitMax} {
		if got, err := admit.Wait("f", d, time.Hour); got != want || err != nil {
			t.Errorf("wait of %v: %v, %v", d, got, err)
		}
	}
	_, err := admit.Wait("f", admit.WaitMax+1, 0)
	bad("wait", err, "1m0s")
	_, err = admit.Wait("f", -1, 0)
	bad("negative wait", err, "0s to 1m0s")
	for d, want := range map[time.Duration]time.Duration{0: admit.LeaseDefault, admit.LeaseMin: admit.LeaseMin, admit.LeaseMax: admit.LeaseMax} {
		if got, err := admit.LeaseDuration("f", d); got != want || err != nil {
			t.Errorf("lease of %v: %v, %v", d, got, err)
		}
	}
	for _, d := range []time.Duration{-1, admit.LeaseMin - 1, admit.LeaseMax + 1} {
		_, err := admit.LeaseDuration("f", d)
		bad("lease", err, "5s to 1h0m0s")
	}
	good("room, least", admit.Room("f", 1, 1))
	good("room, most", admit.Room("f", admit.RoomMax, 1))
	bad("room of 0", admit.Room("f", 0, 1), "1 to 1000")
	bad("room of 1001", admit.Room("f", admit.RoomMax+1, 0), "0 to 1000")

	l := admit.DefaultLimits()
	good("result", l.Result("f", &engine.Payload{Data: make([]byte, l.ResultBytesMax)}))
	bad("result", l.Result("f", &engine.Payload{Data: make([]byte, l.ResultBytesMax+1)}), "65537", "65536", "result_bytes_max")
}

// The limits' own bounds: every fault is reported, by name.
func TestLimitsAtTheirBounds(t *testing.T) {
	for name, c := range map[string]struct{ at, beyond func(*admit.Limits) }{
		"payload_bytes_max": {func(l *admit.Limits) { l.PayloadBytesMax = 1 << 20 }, func(l *admit.Limits) { l.PayloadBytesMax = 1<<20 + 1 }},
		"result_bytes_max":  {func(l *admit.Limits) { l.ResultBytesMax = 1 }, func(l *admit.Limits) { l.ResultBytesMax = 0 }},
		"attempts_default":  {func(l *admit.Limits) { l.AttemptsDefault = 100 }, func(l *admit.Limits) { l.AttemptsDefault = 101 }},
		"retry_delay_min":   {func(l *admit.Limits) { l.RetryDelayMin = time.Hour }, func(l *admit.Limits) { l.RetryDelayMin = time.Hour + 1 }},
		"retry_delay_max":   {func(l *admit.Limits) { l.RetryDelayMax = admit.DelayMax }, func(l *admit.Limits) { l.RetryDelayMax = admit.DelayMax + 1 }},
		"execution_default": {func(l *admit.Limits) { l.ExecutionDefault = time.Second }, func(l *admit.Limits) { l.ExecutionDefault = 0 }},
		"retention_default": {func(l *admit.Limits) { l.RetentionDefault = admit.RetentionMax }, func(l *admit.Limits) { l.RetentionDefault = admit.RetentionMax + 1 }},
	} {
		l := admit.DefaultLimits()
		c.at(&l)
		if err := l.Validate(); err != nil {
			t.Errorf("%s, at the bound: %v", name, err)
		}
		l = admit.DefaultLimits()
		c.beyond(&l)
		if err := l.Validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s, beyond: %v", name, err)
		}
	}
	err := admit.Limits{}.Validate()
	for _, name := range []string{"payload_bytes_max", "result_bytes_max", "attempts_default", "execution_default", "retention_default"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("no limits at all: %v does not name %s", err, name)
		}
	}
}

// anySpec draws jobs of which each field is often at the edge of its bound, and sometimes beyond.
func anySpec(t *rapid.T) engine.Spec {
	text := func(name string, bound int) string {
		switch rapid.IntRange(0, 5).Draw(t, name+" kind") {
		case 0:
			return ""
		case 1:
			return strings.Repeat("a", bound+rapid.IntRange(-1, 1).Draw(t, name+" size"))
		case 2:
			return rapid.String().Draw(t, name)
		default:
			return rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._:-]{0,20}`).Draw(t, name)
		}
	}
	number := func(name string, lowest, highest int64) int64 {
		edges := []int64{0, lowest - 1, lowest, lowest + 1, highest - 1, highest, highest + 1}
		return rapid.OneOf(rapid.SampledFrom(edges), rapid.Int64Range(lowest, highest), rapid.Int64()).Draw(t, name)
	}
	d := func(name string, lowest, highest time.Duration) time.Duration {
		return time.Duration(number(name, int64(lowest), int64(highest)))
	}
	s := engine.Spec{
		Operation: cell.Operation(text("operation", 128)), Key: text("key", 128), Traceparent: text("trace", 128),
		Priority: int32(number("priority", -86_400, 86_400)), Cost: cell.Cost(number("cost", 0, 1e12)), // wraps: any will do
		NotBefore: cell.Instant(number("not before", int64(now), int64(now.Add(admit.DelayMax)))), Deadline: cell.Instant(number("deadline", int64(now), int64(now)+100)),
		ExecutionTimeout: d("execution", time.Second, 24*time.Hour), Retention: d("retention", time.Second, admit.RetentionMax),
		Retry: engine.Retry{
			AttemptsMax: int32(number("attempts", 1, 100)), DelayMin: d("first", 0, time.Hour), DelayMax: d("longest", 0, admit.DelayMax), // as above
		},
		Payload: engine.Payload{Data: make([]byte, max(0, rapid.SampledFrom([]int{0, 1, 99, 100, 101}).Draw(t, "payload"))), ContentType: text("media", 128)},
	}
	for i := range rapid.SampledFrom([]int{0, 1, 2, 16, 17}).Draw(t, "labels") {
		s.Labels = append(s.Labels, engine.Label{Name: text(fmt.Sprint("name", i), 64), Value: text(fmt.Sprint("value", i), 256)})
	}
	return s
}

// within is the naive list of what a job that entered must be like.
func within(s *engine.Spec, payloadMax int) error {
	short := func(v string, bound int) bool { return len(v) <= bound }
	checks := map[string]bool{
		"operation": cell.CheckID("", string(s.Operation)) == nil, "key": s.Key == "" || cell.CheckID("", s.Key) == nil,
		"payload": len(s.Payload.Data) <= payloadMax, "media": short(s.Payload.ContentType, 128), "trace": short(s.Traceparent, 128),
		"priority": -86_400 <= s.Priority && s.Priority <= 86_400, "cost": 0 <= s.Cost && s.Cost <= cell.CostMax,
		"not before": s.NotBefore <= now.Add(admit.DelayMax), "deadline": s.Deadline == 0 || s.Deadline > now && s.Deadline > s.NotBefore,
		"execution": time.Second <= s.ExecutionTimeout && s.ExecutionTimeout <= 24*time.Hour,
		"retention": time.Second <= s.Retention && s.Retention <= admit.RetentionMax,
		"attempts":  1 <= s.Retry.AttemptsMax && s.Retry.AttemptsMax <= 100,
		"back-off":  0 <= s.Retry.DelayMin && s.Retry.DelayMin <= s.Retry.DelayMax && s.Retry.DelayMax <= admit.DelayMax,
		"labels":    len(s.Labels) <= 16,
	}
	for i, l := range s.Labels {
		checks[fmt.Sprint("label ", i)] = short(l.Name, 64) && l.Name != "" && short(l.Value, 256)
	}
	for name, ok := range checks {
		if !ok {
			return fmt.Errorf("%s is out of bounds in %+v", name, s)
		}
	}
	return nil
}

// Whatever passes the door has all of its bounds, and passes it again unchanged; what does not is told so by a FieldError.
func TestWhateverPassesIsBounded(t *testing.T) {
	l := admit.DefaultLimits()
	l.PayloadBytesMax = 100
	rapid.Check(t, func(t *rapid.T) {
		s := anySpec(t)
		err := l.Spec(now, "job.", &s)
		if err != nil {
			if fe, ok := errors.AsType[*cell.FieldError](err); !ok || !strings.HasPrefix(fe.Field, "job.") {
				t.Fatalf("refused with %v", err)
			}
			return
		}
		if err := within(&s, l.PayloadBytesMax); err != nil {
			t.Fatal(err)
		}
		again := s
		if err := l.Spec(now, "job.", &again); err != nil || fmt.Sprintf("%+v", again) != fmt.Sprintf("%+v", s) {
			t.Fatalf("a second time: %v, %+v then %+v", err, s, again)
		}
	})
}
