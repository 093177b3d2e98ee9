package failure_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cmd/fairlead/config"
	"github.com/fairlead/fairlead/cmd/fairlead/failure"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/rejection"
)

// wire is an error as a server sent it.
func wire(code connect.Code) error { return connect.NewWireError(code, errors.New("said the server")) }

func rejected(code connect.Code, r *fairleadv1.Rejection) error { return rejection.New(code, r) }

func call(err error) error {
	return &failure.Call{Doing: "submit the job", Addr: "http://127.0.0.1:7700", Identity: "acme", Err: err}
}

func TestExplain(t *testing.T) {
	limit := &fairleadv1.Rejection{
		Reason: "BACKLOG_JOBS_MAX", Message: "the backlog is full", Limit: "backlog_jobs_max", Scope: "cell", Value: 2, Bound: 1,
		RetryAfter: durationpb.New(1500 * time.Millisecond),
	}
	for name, tc := range map[string]struct {
		err  error
		code failure.Code
		want []string
	}{
		"usage":                {failure.Usagef("do this", "--x is bad"), failure.Usage, []string{"--x is bad", "do this"}},
		"wrapped problem":      {fmt.Errorf("at: %w", failure.Usagef("do this", "--x is bad")), failure.Usage, []string{"--x is bad"}},
		"configuration":        {&config.FaultsError{Faults: []config.Fault{{Key: "addr", Problem: "is bad", Remedy: "mend it"}}}, failure.Usage, []string{"addr is bad", "mend it"}},
		"configurations":       {&config.FaultsError{Faults: make([]config.Fault, 2)}, failure.Usage, []string{"configuration"}},
		"field":                {&cell.FieldError{Field: "--cost", Problem: "is -1", Remedy: "give more"}, failure.Usage, []string{"--cost is -1", "give more"}},
		"fields":               {errors.Join(&cell.FieldError{Field: "a", Problem: "x"}, nil, &cell.FieldError{Field: "b", Problem: "y"}), failure.Usage, []string{"2 faults", "a x", "b y"}},
		"signal":               {failure.ErrInterrupted, failure.Interrupted, nil},
		"cancelled":            {call(connect.NewError(connect.CodeCanceled, context.Canceled)), failure.Interrupted, nil},
		"timed out":            {context.DeadlineExceeded, failure.TimedOut, nil},
		"something else":       {errors.New("disk on fire"), failure.Failed, []string{"disk on fire"}},
		"refused connection":   {call(connect.NewError(connect.CodeUnavailable, errors.New("connection refused"))), failure.Unreachable, []string{"cannot reach http://127.0.0.1:7700", "connection refused", "fairlead dev"}},
		"no answer":            {call(connect.NewError(connect.CodeDeadlineExceeded, context.DeadlineExceeded)), failure.Unreachable, []string{"no answer in time"}},
		"no leader":            {call(rejected(connect.CodeUnavailable, &fairleadv1.Rejection{Reason: rejection.ReasonNotApplied, Message: "no leader"})), failure.Unreachable, []string{"no leader", "nothing was done"}},
		"unknown outcome":      {call(rejected(connect.CodeUnavailable, &fairleadv1.Rejection{Reason: rejection.ReasonOutcomeUnknown, Message: "gone"})), failure.Unreachable, []string{"gone"}},
		"unavailable":          {call(wire(connect.CodeUnavailable)), failure.Unreachable, []string{"said the server"}},
		"shed":                 {call(rejected(connect.CodeUnavailable, limit)), failure.Refused, []string{"the backlog is full", "try again in 1.5s"}},
		"limit":                {call(rejected(connect.CodeResourceExhausted, limit)), failure.Refused, []string{"could not submit the job", "the backlog is full", "try again in 1.5s"}},
		"conflict":             {call(rejected(connect.CodeAlreadyExists, &fairleadv1.Rejection{Message: "other job", ExistingJobId: "job_1"})), failure.Refused, []string{"other job", "fairlead job get job_1"}},
		"wrong state":          {call(wire(connect.CodeFailedPrecondition)), failure.Refused, []string{"said the server"}},
		"aborted":              {call(wire(connect.CodeAborted)), failure.Refused, nil},
		"bad reservation":      {call(rejected(connect.CodeInvalidArgument, &fairleadv1.Rejection{Message: "bad", Field: "reservation_batch"})), failure.Usage, []string{"change --reservation"}},
		"bad credit":           {call(rejected(connect.CodeInvalidArgument, &fairleadv1.Rejection{Message: "bad", Field: "credit.max"})), failure.Usage, []string{"change --credit"}},
		"bad key":              {call(rejected(connect.CodeInvalidArgument, &fairleadv1.Rejection{Message: "bad", Field: "job.concurrency_keys[1].key"})), failure.Usage, []string{"change --concurrency-key"}},
		"bad resource":         {call(rejected(connect.CodeInvalidArgument, &fairleadv1.Rejection{Message: "bad", Field: "job.resources.tokens"})), failure.Usage, []string{"change --resource"}},
		"bad field":            {call(rejected(connect.CodeInvalidArgument, &fairleadv1.Rejection{Message: "bad", Field: "job.retry.attempts_max"})), failure.Usage, []string{"change --max-attempts"}},
		"bad argument":         {call(wire(connect.CodeInvalidArgument)), failure.Usage, nil},
		"out of range":         {call(wire(connect.CodeOutOfRange)), failure.Usage, nil},
		"not found":            {call(wire(connect.CodeNotFound)), failure.NotFound, []string{"could not submit the job"}},
		"no key":               {&failure.Call{Doing: "x", Err: wire(connect.CodeUnauthenticated)}, failure.Denied, []string{"--token"}},
		"dead key":             {call(wire(connect.CodeUnauthenticated)), failure.Denied, []string{"(acme)"}},
		"no scope":             {call(wire(connect.CodePermissionDenied)), failure.Denied, []string{"this was acme"}},
		"no scope without key": {&failure.Call{Doing: "x", Err: wire(connect.CodePermissionDenied)}, failure.Denied, []string{"give a key"}},
		"unknown call":         {call(wire(connect.CodeUnimplemented)), failure.Failed, []string{"does not know this call"}},
		"internal":             {call(wire(connect.CodeInternal)), failure.Failed, []string{"server's log"}},
		"data loss":            {call(wire(connect.CodeDataLoss)), failure.Failed, nil},
		"unknown":              {call(wire(connect.CodeUnknown)), failure.Failed, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := failure.Explain(tc.err)
			if p.Code != tc.code {
				t.Errorf("code %d, want %d: %v", p.Code, tc.code, p)
			}
			if p.What == "" {
				t.Errorf("%+v does not say what happened", p)
			}
			for _, want := range tc.want {
				if !strings.Contains(p.Error(), want) {
					t.Errorf("%q lacks %q", p.Error(), want)
				}
			}
		})
	}
	if p := failure.Explain(nil); p != nil {
		t.Errorf("no error is explained as %v", p)
	}
}

// TestEveryCodeHasAnExit keeps a code of Connect's from ending as success.
func TestEveryCodeHasAnExit(t *testing.T) {
	for code := connect.CodeCanceled; code <= connect.CodeUnauthenticated; code++ {
		if p := failure.Explain(call(wire(code))); p.Code == failure.OK || p.Why == "" {
			t.Errorf("%v ends as %+v", code, p)
		}
		if got, want := failure.OfRejection(&fairleadv1.Rejection{Code: code.String(), Message: "m"}), failure.Explain(rejected(code, &fairleadv1.Rejection{Message: "m"})).Code; got != want {
			t.Errorf("an item rejected with %v ends as %d, its call as %d", code, got, want)
		}
	}
	if got := failure.OfRejection(&fairleadv1.Rejection{Code: "no such"}); got != failure.Refused {
		t.Errorf("a rejection with an unknown code ends as %d", got)
	}
}
