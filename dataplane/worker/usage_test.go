package worker

import (
	"context"
	"errors"
	"math"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/dataplane/client"
)

// attemptOf runs h as one attempt.
func attemptOf(t *testing.T, h HandlerFunc, middleware ...Middleware) Outcome {
	t.Helper()
	reg := NewRegistry()
	if err := reg.Add("op", h); err != nil {
		t.Fatal(err)
	}
	return Execute(t.Context(), reg, &Task{Operation: "op"}, middleware...)
}

// What a handler uses is summed, whatever becomes of the attempt, and goes into the outcome's wire form.
func TestUse(t *testing.T) {
	want := cell.Resources{cell.ResourceTokens: 812_000_000, cell.ResourceCPU: 600_000}
	use := func(ctx context.Context) {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if err := Use(ctx, "tokens", 101.5); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if err := Use(context.WithValue(ctx, t, 1), "cpu_ms", 0.6); err != nil { // a context made of it is as good
			t.Error(err)
		}
	}
	for name, end := range map[string]func() (client.Payload, error){
		"success": func() (client.Payload, error) { return client.Payload{}, nil },
		"failure": func() (client.Payload, error) { return client.Payload{}, errors.New("boom") },
		"release": func() (client.Payload, error) { return client.Payload{}, Snooze(1) },
		"panic":   func() (client.Payload, error) { panic("boom") },
	} {
		out := attemptOf(t, func(ctx context.Context, _ *Task) (client.Payload, error) {
			use(ctx)
			return end()
		})
		if out.Used != want || out.UsageFault != "" {
			t.Errorf("%s: used %v, %q", name, out.Used, out.UsageFault)
		}
		if got := out.proto(cloneLease(nil)).GetResources(); !reflect.DeepEqual(got, map[string]float64{"tokens": 812, "cpu_ms": 0.6}) {
			t.Errorf("%s: reported %v", name, got)
		}
	}
	if out := attemptOf(t, func(context.Context, *Task) (client.Payload, error) { return client.Payload{}, nil }); out.Used != (cell.Resources{}) ||
		out.proto(cloneLease(nil)).GetResources() != nil {
		t.Errorf("nothing is %v", out.Used)
	}
	// Middleware sees the attempt's context, and may tell for a handler that knows nothing of it.
	out := attemptOf(t, func(context.Context, *Task) (client.Payload, error) { return client.Payload{}, nil },
		func(next HandlerFunc) HandlerFunc {
			return func(ctx context.Context, task *Task) (client.Payload, error) {
				defer func() {
					if err := Use(ctx, "calls", 1); err != nil {
						t.Error(err)
					}
				}()
				return next(ctx, task)
			}
		})
	if out.Used != (cell.Resources{cell.ResourceCalls: 1_000_000}) {
		t.Errorf("used %v", out.Used)
	}
}

func TestUseRefuses(t *testing.T) {
	if err := Use(t.Context(), "tokens", 1); !errors.Is(err, ErrNoAttempt) {
		t.Error(err)
	}
	out := attemptOf(t, func(ctx context.Context, _ *Task) (client.Payload, error) {
		if err := Use(ctx, "tokens", 1); err != nil {
			t.Error(err)
		}
		for name, c := range map[string]struct {
			resource string
			amount   float64
			field    string
		}{
			"another resource": {"gpu_ms", 1, "resources"}, "negative": {"tokens", -1, "resources.tokens"}, "no number": {"tokens", math.NaN(), "resources.tokens"},
			"too much": {"calls", 2e9, "resources.calls"}, "too much in all": {"tokens", 1e9, "resources.tokens"},
		} {
			fe, ok := errors.AsType[*cell.FieldError](Use(ctx, c.resource, c.amount))
			if !ok || fe.Field != c.field {
				t.Errorf("%s: %v", name, fe)
			}
		}
		return client.Payload{}, nil
	})
	if out.Used != (cell.Resources{cell.ResourceTokens: 1_000_000}) || out.UsageFault != "" {
		t.Errorf("%v, %q", out.Used, out.UsageFault)
	}
}

// What programs and servers say is read as far as it can be, and the first thing that cannot is told.
func TestTell(t *testing.T) {
	for name, c := range map[string]struct {
		text, separators string
		want             cell.Resources
		fault            string
	}{
		"nothing":        {"", "\n", cell.Resources{}, ""},
		"lines":          {"tokens=812\n\n cpu_ms = 0.6 \ntokens=1\n", "\n", cell.Resources{cell.ResourceTokens: 813_000_000, cell.ResourceCPU: 600_000}, ""},
		"a list":         {"tokens=812, calls=3", ",", cell.Resources{cell.ResourceTokens: 812_000_000, cell.ResourceCalls: 3_000_000}, ""},
		"carriage":       {"tokens=1\r\n", "\n", cell.Resources{cell.ResourceTokens: 1_000_000}, ""},
		"no amount":      {"tokens\ncalls=1", "\n", cell.Resources{cell.ResourceCalls: 1_000_000}, `"tokens" is not a resource and an amount`},
		"no number":      {"tokens=many\nxpu=1", "\n", cell.Resources{}, `"tokens=many"`},
		"no resource":    {"xpu=1", "\n", cell.Resources{}, `"xpu" is not a resource`},
		"out of bounds":  {"calls=-1", "\n", cell.Resources{}, "calls is -1"},
		"something else": {strings.Repeat("\xff", 500), "\n", cell.Resources{}, "is not a resource and an amount"},
	} {
		var u usage
		u.tell(c.text, c.separators)
		used, err := u.take()
		if used != c.want || (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%s: %v, %v", name, used, err)
		}
	}
	tellUsage(t.Context(), "tokens=1", ",") // of no attempt: nobody is charged
}

// A use of the handler's context after its end changes nothing that is reported.
func TestUseIsTooLate(t *testing.T) {
	var use func() error
	out := attemptOf(t, func(ctx context.Context, _ *Task) (client.Payload, error) {
		use = func() error { return Use(ctx, "tokens", 1) }
		return client.Payload{}, nil
	})
	if err := use(); err != nil || out.Used != (cell.Resources{}) {
		t.Errorf("%v, %v", out.Used, err)
	}
}
