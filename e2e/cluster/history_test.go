package cluster

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// What callers did to one job, and what they were told. The model is that of one job on one machine that never fails; a history that it cannot
// explain shows something lost, doubled or stale.

// verb is a kind of operation.
type verb int

const (
	verbSubmit verb = iota
	verbGrant
	verbSucceed
	verbCancel
	verbGet
)

func (v verb) String() string { return [...]string{"submit", "grant", "succeed", "cancel", "get"}[v] }

// asked is an operation's input.
type asked struct {
	verb  verb
	key   string // the job's idempotency key: histories are checked per key
	token string // of a grant or a success
}

// told is an operation's output.
type told struct {
	unknown bool   // it may have taken effect, then or later
	refused bool   // it certainly did not, because of the job's state: a stale token, a terminal state
	absent  bool   // there was no such job
	job     string // the job's id
	state   string // live, succeeded or cancelled; of get
}

// job is the model's state.
type job struct {
	id    string // empty: not submitted
	token string // the latest grant's; empty: none yet
	end   string // succeeded or cancelled; empty: live
}

// step returns what the state may be after an operation; none when it cannot have been answered like that.
func step(was job, in asked, out told) []job {
	after, ok := was, false
	switch in.verb {
	case verbSubmit:
		ok = was.id == "" || out.job == was.id || out.unknown
		if was.id == "" {
			after.id = out.job
			if out.unknown {
				after.id = "?" // the id is learnt by whoever asks next
			}
		}
	case verbGrant:
		// A lease may have expired without anybody being told, so that another grant is always possible.
		ok = was.id != "" && was.end == ""
		after.token = in.token
	case verbSucceed:
		ok = was.end == "" && was.token == in.token
		after.end = "succeeded"
	case verbCancel:
		ok = was.id != "" && was.end == ""
		after.end = "cancelled"
	case verbGet:
		return stepGet(was, out)
	}
	return outcomes(was, after, ok, in, out)
}

func stepGet(was job, out told) []job {
	live := out.state == "live" && was.end == "" || out.state != "live" && out.state == was.end
	switch {
	case out.unknown:
		return []job{was}
	case out.absent:
		if was.id == "" {
			return []job{was}
		}
	case was.id != "" && live:
		return []job{was}
	}
	return nil
}

func outcomes(was, after job, ok bool, in asked, out told) []job {
	switch {
	case out.unknown && ok && after != was:
		return []job{was, after}
	case out.unknown:
		return []job{was}
	case out.refused:
		// A refusal is right when the operation could not have taken effect, or had taken effect before: the caller repeated it. That of a
		// success always is: the lease may have expired, and its next holder's grant been lost on the way.
		if !ok || in.verb == verbSubmit || in.verb == verbSucceed {
			return []job{was}
		}
		return nil
	case ok:
		return []job{after}
	case in.verb == verbSucceed && was.end == "succeeded" && was.token == in.token:
		return []job{was} // repeated, and told the same again
	default:
		return nil
	}
}

// model is the job's model for the checker.
func model() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Partition: func(ops []porcupine.Operation) [][]porcupine.Operation {
			byKey := map[string][]porcupine.Operation{}
			var keys []string
			for _, op := range ops {
				k := inputOf(op.Input).key
				if byKey[k] == nil {
					keys = append(keys, k)
				}
				byKey[k] = append(byKey[k], op)
			}
			out := make([][]porcupine.Operation, 0, len(keys))
			for _, k := range keys {
				out = append(out, byKey[k])
			}
			return out
		},
		Init: func() []any { return []any{job{}} },
		Step: func(state, input, output any) []any {
			was, out := stateOfModel(state), outputOf(output)
			if was.id == "?" && out.job != "" {
				was.id = out.job
			}
			var after []any
			for _, s := range step(was, inputOf(input), out) {
				after = append(after, s)
			}
			return after
		},
		Equal: func(a, b any) bool { return a == b },
		DescribeOperation: func(input, output any) string {
			return fmt.Sprintf("%+v -> %+v", input, output)
		},
	}
	return m.ToModel()
}

// The checker knows values of any type; these are what this model gives it.
func inputOf(v any) asked {
	in, ok := v.(asked)
	if !ok {
		panic(fmt.Sprintf("an operation's input is a %T", v))
	}
	return in
}

func outputOf(v any) told {
	out, ok := v.(told)
	if !ok {
		panic(fmt.Sprintf("an operation's output is a %T", v))
	}
	return out
}

func stateOfModel(v any) job {
	s, ok := v.(job)
	if !ok {
		panic(fmt.Sprintf("the model's state is a %T", v))
	}
	return s
}

// history records operations. Its methods may be called concurrently.
type history struct {
	begin time.Time

	mu  sync.Mutex
	ops []porcupine.Operation
}

func newHistory() *history { return &history{begin: time.Now()} }

// now is the time of the history's clock, which never jumps.
func (h *history) now() int64 { return int64(time.Since(h.begin)) }

// note records an operation that began at call and has ended now. What is unknown may take effect at any time from its call on.
func (h *history) note(client int, call int64, in asked, out told) {
	end := h.now()
	if out.unknown {
		end = 1 << 62
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: end})
}

// checkTimeout bounds the search. A history that it leaves undecided fails the test: nothing was shown.
const checkTimeout = 2 * time.Minute

// check fails the test unless the model explains the history.
func (h *history) check(tb testing.TB) {
	tb.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	result, info := porcupine.CheckOperationsVerbose(model(), h.ops, checkTimeout)
	if result == porcupine.Ok {
		tb.Logf("%d operations are linearizable", len(h.ops))
		return
	}
	for _, partition := range model().Partition(h.ops) {
		if porcupine.CheckOperationsTimeout(model(), partition, checkTimeout) == porcupine.Ok {
			continue
		}
		for _, op := range partition {
			tb.Logf("%12d to %19d  client %d: %v -> %+v", op.Call, op.Return, op.ClientId, op.Input, op.Output)
		}
	}
	_ = info
	tb.Fatalf("the history is %s", result)
}

// The model accepts what may happen and refuses what may not.
func TestHistoryModel(t *testing.T) {
	const key = "k"
	type op struct {
		call, end int64
		in        asked
		out       told
	}
	submit := op{0, 10, asked{verb: verbSubmit, key: key}, told{job: "j"}}
	grant := func(at int64, token string) op {
		return op{at, at + 5, asked{verb: verbGrant, key: key, token: token}, told{job: "j"}}
	}
	succeed := func(at int64, token string, out told) op {
		return op{at, at + 5, asked{verb: verbSucceed, key: key, token: token}, out}
	}
	get := func(at int64, state string) op {
		return op{at, at + 5, asked{verb: verbGet, key: key}, told{job: "j", state: state}}
	}
	for name, c := range map[string]struct {
		ops  []op
		want bool
	}{
		"a life":                   {[]op{submit, grant(20, "1"), succeed(30, "1", told{}), get(40, "succeeded")}, true},
		"a second job for the key": {[]op{submit, {20, 30, asked{verb: verbSubmit, key: key}, told{job: "k"}}}, false},
		"lost":                     {[]op{submit, {20, 30, asked{verb: verbGet, key: key}, told{absent: true}}}, false},
		"a stale read":             {[]op{submit, grant(20, "1"), succeed(30, "1", told{}), get(40, "live")}, false},
		"a stale token accepted":   {[]op{submit, grant(20, "1"), grant(30, "2"), succeed(40, "1", told{})}, false},
		"a stale token refused":    {[]op{submit, grant(20, "1"), grant(30, "2"), succeed(40, "1", told{refused: true})}, true},
		"two ends":                 {[]op{submit, grant(20, "1"), succeed(30, "1", told{}), {40, 45, asked{verb: verbCancel, key: key}, told{}}}, false},
		"run after the end":        {[]op{submit, grant(20, "1"), succeed(30, "1", told{}), grant(40, "2")}, false},
		"unknown, and it did":      {[]op{submit, grant(20, "1"), succeed(30, "1", told{unknown: true}), get(40, "succeeded")}, true},
		"unknown, and it did not":  {[]op{submit, grant(20, "1"), succeed(30, "1", told{unknown: true}), get(40, "live")}, true},
		"unknown submission found": {[]op{{0, 10, asked{verb: verbSubmit, key: key}, told{unknown: true}}, get(20, "live")}, true},
	} {
		h := newHistory()
		for i, o := range c.ops {
			end := o.end
			if o.out.unknown {
				end = 1 << 62
			}
			h.ops = append(h.ops, porcupine.Operation{ClientId: i, Input: o.in, Call: o.call, Output: o.out, Return: end})
		}
		if got := porcupine.CheckOperations(model(), h.ops); got != c.want {
			t.Errorf("%s: the model says %v", name, got)
		}
	}
}
