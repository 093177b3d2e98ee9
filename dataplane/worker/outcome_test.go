package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/dataplane/client"
)

type invoice struct {
	Number int64 `json:"number"`
}

func TestVerdicts(t *testing.T) {
	boom := errors.New("boom")
	minute := time.Minute
	tests := map[string]struct {
		result client.Payload
		err    error
		want   Outcome
	}{
		"no result":            {want: Outcome{Verdict: VerdictSuccess}},
		"error":                {err: boom, want: Outcome{Verdict: VerdictFailure, Error: "boom"}},
		"fatal":                {err: Fatal(boom), want: Outcome{Verdict: VerdictFailure, Error: "boom", Fatal: true}},
		"fatal, wrapped":       {err: fmt.Errorf("x: %w", Fatal(boom)), want: Outcome{Verdict: VerdictFailure, Error: "x: boom", Fatal: true}},
		"fatal nil":            {err: Fatal(nil), want: Outcome{Verdict: VerdictFailure, Error: "unspecified error", Fatal: true}},
		"retry after":          {err: RetryAfter(boom, minute), want: Outcome{Verdict: VerdictFailure, Error: "boom", RetryAfter: &minute}},
		"snooze":               {err: Snooze(minute), want: Outcome{Verdict: VerdictRelease, Delay: minute}},
		"snooze into the past": {err: Snooze(-minute), want: Outcome{Verdict: VerdictRelease}},
		"own cancellation":     {err: context.Canceled, want: Outcome{Verdict: VerdictFailure, Error: "context canceled"}},
		"result too large": {
			result: client.Bytes("", make([]byte, ResultBytesMax+1)),
			want: Outcome{
				Verdict: VerdictFailure, Fatal: true,
				Error: "result: has 65537 bytes, of at most 65536: store it elsewhere and return where",
			},
		},
		"result without JSON form": {
			result: client.JSON(make(chan int)),
			want: Outcome{Verdict: VerdictFailure, Fatal: true, Error: "result: invalid_argument: payload has no JSON form: " +
				"json: unsupported type: chan int: give a value that encoding/json takes"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := outcomeOf(tt.result, tt.err, nil, &Task{})
			if (got.RetryAfter == nil) != (tt.want.RetryAfter == nil) || got.RetryAfter != nil && *got.RetryAfter != *tt.want.RetryAfter {
				t.Errorf("RetryAfter %v, want %v", got.RetryAfter, tt.want.RetryAfter)
			}
			if got.Verdict != tt.want.Verdict || got.Error != tt.want.Error || got.Fatal != tt.want.Fatal || got.Delay != tt.want.Delay {
				t.Errorf("outcome %+v, want %+v", got, tt.want)
			}
			p := got.proto(cloneLease(nil)) // every verdict has a wire form
			if p.GetResult() == nil {
				t.Error("no result on the wire")
			}
		})
	}
}

func TestErrorsAreClipped(t *testing.T) {
	for name, text := range map[string]string{
		"long":       strings.Repeat("x", 3*ErrorBytesMax),
		"wide":       strings.Repeat("é", ErrorBytesMax),
		"not UTF-8":  "a\xff\xfeb",
		"long bytes": strings.Repeat("\xff", 2*ErrorBytesMax),
	} {
		t.Run(name, func(t *testing.T) {
			got := outcomeOf(client.Payload{}, errors.New(text), nil, &Task{}).Error
			if len(got) > ErrorBytesMax || !utf8.ValidString(got) || got == "" {
				t.Errorf("%d bytes, valid %v", len(got), utf8.ValidString(got))
			}
		})
	}
}

func TestTypedHandlers(t *testing.T) {
	reg := NewRegistry()
	HandleResult(reg, "double", func(_ context.Context, job *Job[invoice]) (invoice, error) {
		return invoice{2 * job.Args.Number}, nil
	})
	HandleResult(reg, "exact", func(_ context.Context, job *Job[json.RawMessage]) (json.RawMessage, error) { return job.Args, nil })
	HandleResult(reg, "bytes", func(_ context.Context, job *Job[[]byte]) ([]byte, error) { return append(job.Args, '!'), nil })
	HandleResult(reg, "payload", func(_ context.Context, job *Job[client.Payload]) (client.Payload, error) { return job.Args, nil })
	Handle(reg, "none", func(_ context.Context, job *Job[*invoice]) error {
		if job.Args != nil {
			return errors.New("no payload decodes as null")
		}
		return nil
	})
	const large = `{"n": 9007199254740993, "b": 1}`
	for name, tt := range map[string]struct {
		op      string
		payload client.Payload
		want    string // body of the result, or the failure
		content string
	}{
		"struct":          {"double", client.JSON(invoice{21}), `{"number":42}`, client.ContentTypeJSON},
		"exact text":      {"exact", client.JSON(json.RawMessage(large)), large, client.ContentTypeJSON},
		"bytes":           {"bytes", client.Bytes("text/csv", []byte("a,b")), "a,b!", client.ContentTypeBytes},
		"text of JSON":    {"bytes", client.JSON([]int{1}), "[1]!", client.ContentTypeBytes},
		"any payload":     {"payload", client.Bytes("text/csv", []byte("a,b")), "a,b", "text/csv"},
		"nothing":         {"none", client.Payload{}, "", ""},
		"does not fit":    {"double", client.JSON("x"), "payload does not fit worker.invoice", ""},
		"not JSON":        {"double", client.Bytes("text/csv", nil), "payload is text/csv, not JSON", ""},
		"unknown":         {"other", client.Payload{}, "no handler for operation other", ""},
		"is not overread": {"exact", client.JSON(json.RawMessage(`{"n":1} x`)), "payload is not a JSON document", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := Execute(t.Context(), reg, &Task{Operation: tt.op, Payload: tt.payload})
			if got.Verdict == VerdictSuccess {
				if string(got.Result.Body()) != tt.want || got.Result.ContentType() != tt.content {
					t.Errorf("result %s %q, want %s %q", got.Result.ContentType(), got.Result.Body(), tt.content, tt.want)
				}
			} else if !strings.Contains(got.Error, tt.want) || tt.want == "" || got.Fatal {
				t.Errorf("outcome %+v, want %q", got, tt.want)
			}
		})
	}
}

func TestRegistryRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		before int // operations registered already: op-0 and on
		op     string
		h      HandlerFunc
		want   string
	}{
		"empty":    {0, "", noop, "operation is empty"},
		"blank":    {0, "a b", noop, `operation "a b" has " "`},
		"nil":      {0, "nil", nil, "handler of nil is nil"},
		"twice":    {1, "op-0", noop, "has a handler already"},
		"too many": {operationsMax, "one-more", noop, "would be one more than 64"},
	} {
		t.Run(name, func(t *testing.T) {
			reg := NewRegistry()
			for i := range tt.before {
				Handle(reg, fmt.Sprintf("op-%d", i), func(context.Context, *Job[int]) error { return nil })
			}
			if err := reg.Add(tt.op, tt.h); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Add = %v, want %q", err, tt.want)
			}
		})
	}
}

func TestMiddlewareIsOutermostFirst(t *testing.T) {
	var trace []string
	mark := func(name string) Middleware {
		return func(next HandlerFunc) HandlerFunc {
			return func(ctx context.Context, task *Task) (client.Payload, error) {
				trace = append(trace, name)
				return next(ctx, task)
			}
		}
	}
	reg := NewRegistry()
	Handle(reg, "op", func(context.Context, *Job[any]) error { trace = append(trace, "handler"); return nil })
	Execute(t.Context(), reg, &Task{Operation: "op"}, mark("a"), mark("b"))
	if got := strings.Join(trace, " "); got != "a b handler" {
		t.Errorf("ran %s", got)
	}
	out := Execute(t.Context(), reg, &Task{Operation: "op"}, func(HandlerFunc) HandlerFunc {
		return func(context.Context, *Task) (client.Payload, error) { panic("in the middleware") }
	})
	if !strings.HasPrefix(out.Error, "panic: in the middleware\n") {
		t.Errorf("outcome %+v", out)
	}
}

func TestExecuteTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := NewRegistry()
		Handle(reg, "op", func(ctx context.Context, _ *Job[any]) error {
			<-ctx.Done()
			return ctx.Err()
		})
		got := Execute(t.Context(), reg, &Task{Operation: "op", ExecutionTimeout: time.Second})
		if got.Error != "execution time-out of 1s: context deadline exceeded" || got.RunTime != time.Second {
			t.Errorf("outcome %+v", got)
		}
	})
}
