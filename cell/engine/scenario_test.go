package engine_test

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
)

// want fails unless the job is in the state.
func (x *fixture) want(state engine.JobState) *engine.Job {
	x.t.Helper()
	j := x.s.Job(x.id)
	if state == 0 {
		if j != nil {
			x.t.Fatalf("the job is still there, %v", j.State)
		}
		return nil
	}
	if j == nil || j.State != state {
		x.t.Fatalf("the job is %+v, want it %v", j, state)
	}
	return j
}

// refused fails unless applying f is refused with an error that is target.
func (x *fixture) refused(f engine.Fact, target error) engine.Result {
	x.t.Helper()
	before := x.s.Hash()
	r := x.do(f)
	if !errors.Is(r.Err, target) {
		x.t.Fatalf("%T: %+v, want %v", f, r, target)
	}
	x.same(before)
	return r
}

// same fails if the last entry changed anything but the index.
func (x *fixture) same(before [32]byte) {
	x.t.Helper()
	after := x.s.Hash()
	x.s.Apply(x.index-1, &engine.Entry{}) // back to the index of before, to compare
	defer x.s.Apply(x.index, &engine.Entry{})
	if x.s.Hash() != before {
		x.t.Fatalf("the state changed: %x %x", before, after)
	}
}

func (x *fixture) limited(f engine.Fact, limit string, scope cell.Scope, value, bound int64) {
	x.t.Helper()
	r := x.do(f)
	var e *cell.LimitError
	if !errors.As(r.Err, &e) || e.Limit != limit || e.Scope != scope || e.Value != value || e.Bound != bound || e.RetryAfter <= 0 || e.Remedy == "" {
		x.t.Fatalf("%T: %+v, want %s of the %s at %d of %d", f, r, limit, scope, value, bound)
	}
}

// number gives the fixture's next submission another id and key.
func (x *fixture) number(i int) {
	x.id = cell.JobID{0: 9, 14: byte(i >> 8), 15: byte(i)}
	x.key = fmt.Sprintf("key-%d", i)
}

// TestLateResult refuses the result of a worker whose job was given to another meanwhile (contribsys/faktory_worker_node#163).
func TestLateResult(t *testing.T) {
	x := newFixture(t, fixtureLimits())
	x.waiting(0, 0)
	x.must(x.lease())
	late := x.outcome(engine.OutcomeSuccess)
	x.must(x.outcome(engine.OutcomeCrash))
	x.must(x.lease())
	x.refused(late, engine.ErrLeaseStale)
	x.want(engine.Leased)
	x.must(x.outcome(engine.OutcomeSuccess))
	x.refused(late, engine.ErrLeaseStale)
	if x.want(engine.Succeeded).Attempt != 2 {
		t.Error("the attempts were not counted")
	}
}

// TestRescueAfterCompletion declares a lease lost that ended before (riverqueue/river#1302).
func TestRescueAfterCompletion(t *testing.T) {
	for _, rescue := range []engine.OutcomeKind{engine.OutcomeCrash, engine.OutcomeLoss, engine.OutcomeRelease, engine.OutcomeFailure} {
		x := newFixture(t, fixtureLimits())
		x.waiting(0, 0)
		x.must(x.lease())
		x.must(x.outcome(engine.OutcomeSuccess))
		x.refused(x.outcome(rescue), engine.ErrLeaseStale)
		x.want(engine.Succeeded)
	}
}

// TestCrashSpendsNoAttempt crashes a job that has but one attempt (hibiken/asynq#1015).
func TestCrashSpendsNoAttempt(t *testing.T) {
	x := newFixture(t, fixtureLimits())
	f := x.submission()
	f.Spec.Retry.AttemptsMax = 1
	x.must(f)
	for _, k := range []engine.OutcomeKind{engine.OutcomeCrash, engine.OutcomeLoss, engine.OutcomeRelease, engine.OutcomeCrash} {
		x.must(x.lease())
		x.must(x.outcome(k))
		x.want(engine.Ready)
	}
	x.must(x.lease())
	x.must(x.outcome(engine.OutcomeFailure))
	if j := x.want(engine.Failed); j.Failed != 1 || j.Lost != 3 || j.Crashes != 2 || j.Attempt != 5 {
		t.Errorf("failed %d, lost %d, crashes %d of %d attempts", j.Failed, j.Lost, j.Crashes, j.Attempt)
	}
}

func TestQuarantine(t *testing.T) {
	x := newFixture(t, fixtureLimits())
	x.waiting(0, 0)
	for i := range 50 {
		x.must(x.lease())
		x.must(x.outcome(engine.OutcomeLoss))
		if j := x.want(engine.Ready); j.Lost != int32(i+1) || j.Crashes != 0 {
			t.Fatalf("lost %d, crashes %d", j.Lost, j.Crashes)
		}
	}
	for range 3 {
		x.want(engine.Ready)
		x.must(x.lease())
		x.must(x.outcome(engine.OutcomeCrash))
	}
	x.want(engine.Quarantined)
	x.must(&engine.RetryFact{ID: x.id, Tenant: "acme"})
	if j := x.want(engine.Ready); j.Crashes != 0 {
		t.Error("the retried job starts with crashes")
	}
}

func TestRepeatedReport(t *testing.T) {
	for k := engine.OutcomeSuccess; k <= engine.OutcomePreempt; k++ {
		x := newFixture(t, fixtureLimits())
		x.waiting(0, 0)
		x.must(x.lease())
		f := x.outcome(k)
		x.must(f)
		for range 3 {
			before := x.s.Hash()
			if r := x.do(f); r.Err != nil || !r.Duplicate {
				t.Errorf("%v again: %+v", k, r)
			}
			x.same(before)
		}
	}
}

func TestCancelRacesCompletion(t *testing.T) {
	for _, cancelFirst := range []bool{true, false} {
		x := newFixture(t, fixtureLimits())
		x.waiting(0, 0)
		x.must(x.lease())
		facts := []engine.Fact{&engine.CancelFact{ID: x.id, Tenant: "acme"}, x.outcome(engine.OutcomeSuccess)}
		if !cancelFirst {
			facts[0], facts[1] = facts[1], facts[0]
		}
		a := x.entry(facts...)
		if len(a.Ended) != 1 {
			t.Errorf("%d ends", len(a.Ended))
		}
		if cancelFirst {
			x.want(engine.Cancelled)
			if r := a.Results[1]; !errors.Is(r.Err, engine.ErrLeaseStale) || r.State != engine.Cancelled {
				t.Errorf("the completion is told %+v", r)
			}
		} else {
			x.want(engine.Succeeded)
			if r := a.Results[1]; r.Err != nil || r.State != engine.Succeeded {
				t.Errorf("the canceller is told %+v", r)
			}
		}
	}
}

// TestKeyAfterWindow frees the key of a job that is still kept for its result (hibiken/asynq#407, hibiken/asynq#842).
func TestKeyAfterWindow(t *testing.T) {
	for name, end := range map[string]func(*fixture){
		"succeeded": func(x *fixture) { x.must(x.lease()); x.must(x.outcome(engine.OutcomeSuccess)) },
		"failed":    func(x *fixture) { x.must(x.lease()); x.must(x.outcome(engine.OutcomeFatal)) },
		"cancelled": func(x *fixture) { x.must(&engine.CancelFact{ID: x.id, Tenant: "acme"}) },
		"quarantined": func(x *fixture) {
			for range 3 {
				x.must(x.lease())
				x.must(x.outcome(engine.OutcomeCrash))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newFixture(t, fixtureLimits())
			f := x.submission()
			f.Spec.Retention = time.Hour
			x.must(f)
			end(x)
			x.pass(start + 100*second - 1)
			again := x.submission()
			again.ID[0] = 2
			if r := x.do(again); !r.Duplicate || r.JobID != x.id {
				t.Errorf("within the window: %+v", r)
			}
			x.pass(start + 100*second)
			x.must(again)
			x.want(x.s.Job(x.id).State) // and the first one is still there
		})
	}
}

func TestKeyOutlivesItsJob(t *testing.T) {
	x := newFixture(t, fixtureLimits())
	x.waiting(0, 0)
	x.must(x.lease())
	x.must(x.outcome(engine.OutcomeSuccess))
	x.pass(start + 60*second)
	x.want(0)
	if r := x.do(x.submission()); !r.Duplicate || r.JobID != x.id || r.State != 0 {
		t.Errorf("the same body: %+v", r)
	}
	other := x.submission()
	other.BodyHash[0]++
	var taken *engine.KeyTakenError
	if r := x.do(other); !errors.As(r.Err, &taken) || taken.JobID != x.id || taken.Key != "k" {
		t.Errorf("another body: %+v", r)
	}
}

func TestKeysOfLanes(t *testing.T) {
	x := newFixture(t, fixtureLimits())
	accepted := 0
	for _, tenant := range []cell.TenantID{"acme", "globex"} {
		for _, c := range cell.Classes() {
			for range 2 {
				f := x.submission()
				f.Tenant, f.Class, f.ID[0] = tenant, c, byte(accepted)
				if r := x.do(f); r.Err != nil {
					t.Fatal(r.Err)
				} else if !r.Duplicate {
					accepted++
				}
			}
		}
	}
	if accepted != 4 {
		t.Errorf("%d accepted of two tenants in two classes", accepted)
	}
	// Two submissions of one key in one entry.
	f, g := x.submission(), x.submission()
	f.Spec.Key, g.Spec.Key, f.ID[0], g.ID[0] = "both", "both", 20, 21
	if a := x.entry(f, g); a.Results[0].Err != nil || !a.Results[1].Duplicate || a.Results[1].JobID != f.ID {
		t.Errorf("got %+v", a.Results)
	}
}

func TestDeadline(t *testing.T) {
	at := start + 20*second
	cases := map[string]struct {
		make func(*fixture)
		want engine.JobState
	}{
		"delayed":              {func(x *fixture) { x.waiting(start+30*second, at) }, engine.Expired},
		"ready":                {func(x *fixture) { x.waiting(0, at) }, engine.Expired},
		"leased never expires": {func(x *fixture) { x.waiting(0, at); x.must(x.lease()) }, engine.Leased},
		"back from a lease": {func(x *fixture) {
			x.waiting(0, at)
			x.must(x.lease())
			x.pass(at + second)
			x.must(x.outcome(engine.OutcomeRelease))
		}, engine.Expired},
		"backing off": {func(x *fixture) {
			x.waiting(0, at)
			x.must(x.lease())
			f := x.outcome(engine.OutcomeFailure)
			f.WakeAt = at + second
			x.must(f)
		}, engine.Expired},
		"passed when submitted":   {func(x *fixture) { x.waiting(0, start-second) }, engine.Expired},
		"passed before the Epoch": {func(x *fixture) { x.waiting(0, -5) }, engine.Expired},
		"passed on a delayed job": {func(x *fixture) { x.waiting(start+second, start-second) }, engine.Expired},
		"at the wake-up":          {func(x *fixture) { x.waiting(at, at) }, engine.Expired},
		"of a lease that succeeds": {func(x *fixture) {
			x.waiting(0, at)
			x.must(x.lease())
			x.pass(at + second)
			x.must(x.outcome(engine.OutcomeSuccess))
		}, engine.Succeeded},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			x := newFixture(t, fixtureLimits())
			c.make(x)
			if x.now < at {
				if next := x.s.NextTimer(); next > at && !x.s.Job(x.id).State.Ended() {
					t.Errorf("the next timer is at %d, after the deadline at %d", next, at)
				}
				x.pass(at)
			}
			x.want(c.want)
		})
	}
}

// TestRetentionFreesMemory runs many jobs through one lane and looks at what is left of them.
func TestRetentionFreesMemory(t *testing.T) {
	limits := engine.DefaultLimits()
	limits.KeyWindow = time.Second
	x := &fixture{t: t, s: newState(t, limits), now: start}
	apply := func(facts ...engine.Fact) {
		x.index++
		for _, r := range x.s.Apply(x.index, &engine.Entry{Time: x.now, Facts: facts}).Results {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	apply(&engine.PolicyFact{Policy: cell.TenantPolicy{Tenant: "acme", Epoch: 7}})
	round := func(i int) {
		x.number(i)
		x.now += second / 10
		f := x.submission()
		f.Spec.Payload.Data, f.Spec.Retention = make([]byte, 10_000), time.Second
		apply(f, x.lease(), &engine.OutcomeFact{ID: x.id, Token: engine.Token{Epoch: 7, Attempt: 1, Nonce: 9}, Kind: engine.OutcomeFatal})
		for attempt := int32(2); attempt < 5; attempt++ { // tried again and again, which must not pile up either
			apply(&engine.RetryFact{ID: x.id, Tenant: "acme"}, x.lease(),
				&engine.OutcomeFact{ID: x.id, Token: engine.Token{Epoch: 7, Attempt: attempt, Nonce: 9}, Kind: engine.OutcomeFatal})
		}
	}
	for i := range 500 {
		round(i)
	}
	before := heap()
	for i := range 5000 {
		round(500 + i)
	}
	if after := heap(); after > before+2<<20 {
		t.Errorf("the heap went from %d to %d bytes over 5,000 jobs of 10,000 bytes", before, after)
	}
	if n := x.s.Count(engine.Failed); n > 11 {
		t.Errorf("%d jobs are kept of those that ended in the last second", n)
	}
	if err := x.s.Check(); err != nil {
		t.Error(err)
	}
	runtime.KeepAlive(x)
}

func newState(t testing.TB, limits engine.Limits) *engine.State {
	t.Helper()
	s, err := engine.New(limits)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestDropped fills a lane with results: the oldest lose theirs and say so, and what is too small to be worth it is forgotten.
func TestDropped(t *testing.T) {
	limits := fixtureLimits()
	limits.FinishedBytesMax, limits.FinishedJobsMax = 10_000, 1000
	x := newFixture(t, limits)
	run := func(i, result int) {
		x.number(i)
		x.waiting(0, 0)
		x.must(x.lease())
		f := x.outcome(engine.OutcomeSuccess)
		f.Result.Data = make([]byte, result)
		x.must(f)
	}
	for i := range 4 {
		run(i, 4000)
	}
	var kept, dropped int
	x.s.List("acme", 0, func(j *engine.Job) bool {
		switch {
		case j.Dropped && len(j.Result.Data) == 0 && len(j.Spec.Payload.Data) == 0:
			dropped++
		case !j.Dropped && len(j.Result.Data) == 4000:
			kept++
		default:
			t.Errorf("dropped %v, with %d bytes", j.Dropped, len(j.Result.Data))
		}
		return true
	})
	if kept != 1 || dropped != 3 { // two results and the overhead of four do not fit
		t.Errorf("%d kept, %d dropped", kept, dropped)
	}
	x.number(0)
	x.want(engine.Succeeded)
	// A job of many small ones, and then a large one: the bound holds all the same.
	for i := range 40 {
		run(100+i, 10)
	}
	run(500, 9000)
	if j := x.want(engine.Succeeded); j.Dropped || len(j.Result.Data) != 9000 {
		t.Error("the newest lost its result")
	}
	if n := x.s.Count(engine.Succeeded); n != 1 {
		t.Errorf("%d are kept beside it", n-1)
	}
	run(501, 20_000) // more than the bound: it ends, and loses its own result
	x.want(engine.Succeeded)
	if !x.s.Job(x.id).Dropped {
		t.Error("a result larger than the bound is kept")
	}
}

// TestFinishedOfCell fills the cell with the results of two tenants: the one that keeps more loses, and the other nothing.
func TestFinishedOfCell(t *testing.T) {
	limits := fixtureLimits()
	limits.FinishedBytesMax, limits.FinishedJobsMax, limits.FinishedCellBytesMax = 50_000, 1000, 60_000
	x := newFixture(t, limits)
	run := func(i int, tenant cell.TenantID) {
		x.number(i)
		f := x.submission()
		f.Tenant, f.Spec.Retention = tenant, time.Hour
		x.must(f)
		x.must(x.lease())
		o := x.outcome(engine.OutcomeSuccess)
		o.Result.Data = make([]byte, 5000)
		x.must(o)
		x.pass(x.now + 101*second) // the keys have a bound of their own
	}
	for i := range 3 {
		run(i, "globex")
	}
	for i := range 30 {
		run(100+i, "acme")
	}
	whole := map[cell.TenantID]int{}
	bytes := 0
	x.s.Jobs(func(j *engine.Job) bool {
		bytes += int(j.Bytes()) + len(j.Result.Data)
		if !j.Dropped {
			whole[j.Lane.ID.Tenant]++
		}
		return true
	})
	if whole["globex"] != 3 || whole["acme"] < 4 || bytes > 60_000 {
		t.Errorf("whole: %v, in %d bytes", whole, bytes)
	}
}

// TestDroppedCannotRetry refuses to run a job again whose payload is gone.
func TestDroppedCannotRetry(t *testing.T) {
	x := newFixture(t, fixtureLimits())
	tableRows()["failed and dropped"](x)
	var e *engine.StateError
	if r := x.do(&engine.RetryFact{ID: x.id, Tenant: "acme"}); !errors.As(r.Err, &e) || !strings.Contains(e.Error(), "dropped") {
		t.Errorf("got %+v", r)
	}
}

// TestBacklogBounds counts exactly, and one tenant's full lane is nobody else's (triggerdotdev/trigger.dev#3558).
func TestBacklogBounds(t *testing.T) {
	limits := fixtureLimits()
	limits.LiveJobsMax, limits.LiveBytesMax, limits.KeyRecordsMax = 10_000, 1<<30, 10_000
	x := newFixture(t, limits)
	x.must(&engine.PolicyFact{Policy: cell.TenantPolicy{Tenant: "acme", Epoch: 7, BacklogJobsMax: 500}})
	for i := range 500 {
		x.number(i)
		x.must(x.submission())
	}
	x.number(500)
	x.limited(x.submission(), "backlog_jobs_max", cell.ScopeLane, 501, 500)
	other := x.submission()
	other.Class = cell.ClassInteractive // the bound is each lane's
	x.must(other)
	x.number(501)
	other = x.submission()
	other.Tenant = "globex"
	x.must(other)
	// A place that becomes free is taken by one.
	x.number(0)
	x.must(&engine.CancelFact{ID: x.id, Tenant: "acme"})
	x.number(502)
	x.must(x.submission())
	x.number(503)
	x.limited(x.submission(), "backlog_jobs_max", cell.ScopeLane, 501, 500)
	x.number(0)
	x.limited(&engine.RetryFact{ID: x.id, Tenant: "acme"}, "backlog_jobs_max", cell.ScopeLane, 501, 500)
}

func TestByteAndCellBounds(t *testing.T) {
	limits := fixtureLimits()
	limits.LiveJobsMax, limits.LiveBytesMax, limits.KeyRecordsMax = 3, 4000, 2
	x := newFixture(t, limits)
	x.must(&engine.PolicyFact{Policy: cell.TenantPolicy{Tenant: "acme", Epoch: 7, BacklogBytesMax: 2000}})
	f := x.submission()
	f.Spec.Payload.Data = make([]byte, 2001-f.Spec.Bytes()+2) // one too many
	x.limited(f, "backlog_bytes_max", cell.ScopeLane, 2001, 2000)
	f.Spec.Payload.Data = f.Spec.Payload.Data[1:]
	x.must(f)
	globex := func(i int) *engine.SubmitFact {
		x.number(i)
		f := x.submission()
		f.Tenant = "globex"
		return f
	}
	f = globex(1)
	f.Spec.Payload.Data = make([]byte, 2001-f.Spec.Bytes()+2)
	x.limited(f, "backlog_bytes_max", cell.ScopeCell, 4001, 4000)
	x.must(globex(2))
	x.limited(globex(3), "key_records_max", cell.ScopeCell, 3, 2)
	f = globex(4)
	f.Spec.Key = ""
	x.must(f)
	f = x.submission()
	f.ID[0], f.Spec.Key, f.Spec.Payload = 77, "", engine.Payload{}
	f.Class = cell.ClassInteractive
	x.limited(f, "backlog_jobs_max", cell.ScopeCell, 4, 3)
	if jobs, bytes := x.s.Live(); jobs != 3 || bytes > 4000 {
		t.Errorf("%d jobs of %d bytes", jobs, bytes)
	}
}

// TestPrecheckExtra counts what an entry being sealed holds already.
func TestPrecheckExtra(t *testing.T) {
	x := newFixture(t, fixtureLimits())
	f := x.submission()
	for name, c := range map[string]struct {
		extra engine.Extra
		limit string
	}{
		"nothing":    {engine.Extra{}, ""},
		"lane jobs":  {engine.Extra{LaneJobs: 20}, "backlog_jobs_max"},
		"lane bytes": {engine.Extra{LaneBytes: 100_000}, "backlog_bytes_max"},
		"cell jobs":  {engine.Extra{CellJobs: 20}, "backlog_jobs_max"},
		"cell bytes": {engine.Extra{CellBytes: 100_000}, "backlog_bytes_max"},
		"keys":       {engine.Extra{Keys: 50}, "key_records_max"},
		"just room":  {engine.Extra{LaneJobs: 19, CellJobs: 19, Keys: 49, LaneBytes: 100_000 - f.Spec.Bytes()}, ""},
	} {
		r, done := x.s.Precheck(f, c.extra)
		var e *cell.LimitError
		if done != (c.limit != "") || errors.As(r.Err, &e) != done || done && e.Limit != c.limit {
			t.Errorf("%s: %+v, %v", name, r, done)
		}
	}
}

// TestRetryWithoutItsKey tries a job again whose key has expired, and stands for another job or does not.
func TestRetryWithoutItsKey(t *testing.T) {
	run := func(t *testing.T, between func(*fixture)) *fixture {
		x := newFixture(t, fixtureLimits())
		f := x.submission()
		f.Spec.Retention = time.Hour
		x.must(f)
		x.must(x.lease())
		x.must(x.outcome(engine.OutcomeFatal))
		x.pass(start + 100*second)
		between(x)
		x.must(&engine.RetryFact{ID: x.id, Tenant: "acme"})
		return x
	}
	t.Run("taken by another", func(t *testing.T) {
		other := cell.JobID{5}
		x := run(t, func(x *fixture) {
			f := x.submission()
			f.ID = other
			x.must(f)
		})
		if x.want(engine.Ready).Spec.Key != "" {
			t.Error("two live jobs have one key")
		}
		if r := x.do(x.submission()); !r.Duplicate || r.JobID != other {
			t.Errorf("the key stands for %v", r.JobID)
		}
		x.must(x.lease())
		x.must(x.outcome(engine.OutcomeSuccess)) // and the other's key is not the first one's to end
		x.pass(x.now + 3600*second)
		if r := x.do(x.submission()); !r.Duplicate || r.JobID != other {
			t.Errorf("after the first job is forgotten the key stands for %v", r.JobID)
		}
	})
	t.Run("free", func(t *testing.T) {
		x := run(t, func(*fixture) {})
		x.pass(x.now + 3600*second) // it holds for as long as the job lives
		if r := x.do(x.submission()); !r.Duplicate || r.JobID != x.id {
			t.Errorf("the key does not stand for the retried job: %+v", r)
		}
	})
	t.Run("no room for it", func(t *testing.T) {
		x := newFixture(t, fixtureLimits())
		f := x.submission()
		f.Spec.Retention = time.Hour
		x.must(f)
		x.must(&engine.CancelFact{ID: x.id, Tenant: "acme"})
		first := x.id
		x.pass(start + 100*second)
		l := fixtureLimits()
		l.KeyRecordsMax = 1
		x.must(&engine.LimitsFact{Limits: l})
		x.number(1)
		x.must(x.submission())
		x.limited(&engine.RetryFact{ID: first, Tenant: "acme"}, "key_records_max", cell.ScopeCell, 2, 1)
	})
}

// TestExtremes gives numbers that no caller should be able to give.
func TestExtremes(t *testing.T) {
	extremes := []int64{math.MinInt64, -1, 0, 1, math.MaxInt64}
	for _, v := range extremes {
		for _, w := range extremes {
			x := newFixture(t, fixtureLimits())
			f := x.submission()
			f.Spec.NotBefore, f.Spec.Retention = cell.Instant(v), time.Duration(w)
			f.Spec.Cost, f.Spec.Priority, f.Spec.ExecutionTimeout = cell.Cost(v), math.MinInt32, time.Duration(w)
			f.Spec.Retry = engine.Retry{AttemptsMax: math.MinInt32, DelayMin: time.Duration(v), DelayMax: time.Duration(w)}
			x.do(f)
			g := x.lease()
			g.Lease.Charged, g.Lease.Duration, g.Lease.Sequence = cell.Cost(v), time.Duration(v), w
			x.do(g)
			o := x.outcome(engine.OutcomeFailure)
			x.do(&engine.ChargeFact{ID: x.id, Token: o.Token, Charged: cell.Cost(w)})
			o.Charged, o.WakeAt = cell.Cost(v), cell.Instant(w)
			x.do(o)
			x.do(&engine.CancelFact{ID: x.id, Tenant: "acme", Charged: cell.Cost(w)})
			x.do(&engine.PolicyFact{Policy: cell.TenantPolicy{
				Tenant: "acme", Weight: cell.Weight(v), BacklogJobsMax: w, BacklogBytesMax: v, Epoch: math.MaxUint64,
			}})
			x.number(2)
			x.do(x.submission())
			x.pass(cell.Instant(v))
			x.pass(math.MaxInt64)
			x.pass(math.MinInt64)
			for _, l := range x.s.Lanes() {
				if l.Charged < 0 {
					t.Errorf("%d, %d: charged %d", v, w, l.Charged)
				}
			}
		}
	}
	bad := fixtureLimits()
	bad.KeyWindow = -1
	x := newFixture(t, fixtureLimits())
	if r := x.do(&engine.LimitsFact{Limits: bad}); r.Err == nil || x.s.Limits() != fixtureLimits() {
		t.Errorf("limits below 0: %+v", r)
	}
	if _, err := engine.New(engine.Limits{}); err == nil || strings.Count(err.Error(), "\n") != 8 {
		t.Errorf("limits of 0: %v", err)
	}
	if x.s.Lane(cell.Lane{Tenant: "acme"}) != nil || x.s.Lane(cell.Lane{Tenant: "acme", Class: 9}) != nil {
		t.Error("a lane of no class")
	}
}

// TestChargesAddUp settles charges up and down, over attempts and jobs.
func TestChargesAddUp(t *testing.T) {
	x := newFixture(t, fixtureLimits())
	lane := x.s.Lane(cell.Lane{Tenant: "acme", Class: cell.ClassBatch})
	x.waiting(0, 0)
	x.must(x.lease()) // 10
	f := x.outcome(engine.OutcomeFailure)
	x.must(&engine.ChargeFact{ID: x.id, Token: f.Token, Charged: 100})
	f.Charged = 40
	x.must(f) // and 60 back
	if j := x.want(engine.Ready); j.Charged != 40 || lane.Charged != 40 || j.Lease.Charged != 40 {
		t.Errorf("charged %d, the lane %d", j.Charged, lane.Charged)
	}
	g := x.lease()
	g.Lease.Private = true // the tenant's own worker
	x.must(g)
	x.must(x.outcome(engine.OutcomeSuccess))
	if j := x.want(engine.Succeeded); j.Charged != 40 || lane.Charged != 40 {
		t.Errorf("charged %d, the lane %d", j.Charged, lane.Charged)
	}
	x.pass(start + 3600*second)
	x.want(0)
	if lane.Charged != 40 {
		t.Error("the lane forgot what its job was charged")
	}
}

// TestTimersPerEntry makes more timers due than one entry fires.
func TestTimersPerEntry(t *testing.T) {
	limits := fixtureLimits()
	limits.TimersPerEntryMax = 3
	x := newFixture(t, limits)
	for i := range 8 {
		x.number(i)
		x.waiting(start+second, 0)
	}
	woken := 0
	for _, want := range []int{3, 3, 2, 0} {
		if x.s.NextTimer() != start+second && want > 0 {
			t.Errorf("with %d woken, the next timer is at %d", woken, x.s.NextTimer())
		}
		a := x.pass(start + second)
		woken += len(a.Woken)
		if len(a.Woken) != want {
			t.Errorf("%d woken, want %d", len(a.Woken), want)
		}
	}
	if x.s.NextTimer() != 0 {
		t.Error("there is a timer still")
	}
}

// TestErrorText cuts long texts between characters.
func TestErrorText(t *testing.T) {
	for _, text := range []string{strings.Repeat("é", 51), "x" + strings.Repeat("é", 51), strings.Repeat("日", 40), strings.Repeat("a", 200)} {
		x := newFixture(t, fixtureLimits())
		x.waiting(0, 0)
		x.must(x.lease())
		f := x.outcome(engine.OutcomeFatal)
		f.Error = text
		x.must(f)
		if e := x.want(engine.Failed).Error; len(e) > 100 || len(e) < 97 || !utf8.ValidString(e) || !strings.HasPrefix(text, e) {
			t.Errorf("%q became %q", text, e)
		}
	}
}

// TestTimeNeverGoesBack seals an entry by a clock that went back.
func TestTimeNeverGoesBack(t *testing.T) {
	x := newFixture(t, fixtureLimits())
	x.waiting(start+10*second, 0)
	x.pass(start + 10*second)
	x.now = start - 1000*second
	x.must(x.lease())
	if x.s.Time() != start+10*second || x.want(engine.Leased).LeasedAt != start+10*second {
		t.Errorf("the time is %d", x.s.Time())
	}
}

// TestOtherTenantsJob is not there for anybody but its tenant.
func TestOtherTenantsJob(t *testing.T) {
	x := newFixture(t, fixtureLimits())
	x.waiting(0, 0)
	x.refused(&engine.CancelFact{ID: x.id, Tenant: "globex"}, engine.ErrJobUnknown)
	x.refused(&engine.RetryFact{ID: x.id, Tenant: "globex"}, engine.ErrJobUnknown)
	if x.s.JobOf("globex", x.id) != nil || x.s.JobOf("", x.id) != nil || x.s.JobOf("acme", x.id) == nil {
		t.Error("a job is not its tenant's alone")
	}
	x.s.List("globex", 0, func(j *engine.Job) bool {
		t.Errorf("lists %v", j.ID)
		return true
	})
}

func TestListPages(t *testing.T) {
	x := newFixture(t, fixtureLimits())
	for i := range 7 {
		x.number(i)
		x.must(x.submission())
	}
	var seqs []uint64
	for before := uint64(0); ; {
		n := 0
		x.s.List("acme", before, func(j *engine.Job) bool {
			seqs, before = append(seqs, j.Seq), j.Seq
			n++
			return n < 3
		})
		if n < 3 {
			break
		}
	}
	if fmt.Sprint(seqs) != "[7 6 5 4 3 2 1]" {
		t.Errorf("got %v", seqs)
	}
}

func TestToken(t *testing.T) {
	for _, token := range []engine.Token{{}, {1, 2, 3}, {math.MaxUint64, math.MaxInt32, math.MaxUint64}} {
		if got, err := engine.ParseToken("token", token.String()); err != nil || got != token {
			t.Errorf("%v: got %v, %v", token, got, err)
		}
	}
	for _, s := range []string{"", ".", "..", "1.2", "1.2.3.4", "g.0.0", "1.80000000.1", "-1.1.1", "1.2.10000000000000000", "1.2.3 ", strings.Repeat("1", 5000)} {
		var e *cell.FieldError
		if got, err := engine.ParseToken("lease.token", s); !errors.As(err, &e) || e.Field != "lease.token" || got != (engine.Token{}) || len(err.Error()) > 300 {
			t.Errorf("%.30q: got %v, %v", s, got, err)
		}
	}
}

func TestNames(t *testing.T) {
	for st := range engine.JobState(12) {
		if strings.HasPrefix(st.String(), "state(") == st.Valid() || st.Valid() && st.Ended() != (st >= engine.Succeeded) {
			t.Errorf("state %d is called %v", uint8(st), st)
		}
	}
	for k := range engine.OutcomeKind(9) {
		if strings.HasPrefix(k.String(), "outcome(") == (k <= engine.OutcomePreempt) {
			t.Errorf("outcome %d is called %v", uint8(k), k)
		}
	}
}
