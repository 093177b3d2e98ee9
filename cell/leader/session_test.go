package leader

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
)

// cellOfOne is a cell with one tenant, for tests that speak to the leader call by call.
type cellOfOne struct {
	*world

	t *testing.T
}

func newCellOfOne(t *testing.T, change func(*Config)) *cellOfOne {
	t.Helper()
	cfg := testConfig()
	if change != nil {
		change(&cfg)
	}
	c := &cellOfOne{world: newWorld(t, cfg, engine.DefaultLimits(), 1), t: t}
	c.tenant(cell.TenantPolicy{Tenant: "a", Weight: cell.WeightDefault})
	c.run(c.now)
	return c
}

func (c *cellOfOne) jobs(n int) {
	for range n {
		c.submit(job{plan: plan{tenant: "a", class: cell.ClassBatch}})
	}
	c.run(c.now)
}

// poll hands in a poll of session s, and returns it once nothing is left to do.
func (c *cellOfOne) poll(sequence, reports int64, want int, held ...Leased) *Call {
	p := &Poll{
		Session: SessionID{Name: "s"}, Worker: "w", Operations: []cell.Operation{"op"}, Classes: [2]bool{true, true}, Slots: 3, Sequence: sequence,
		ReportSequence: reports, Want: want, Until: c.now.Add(20 * time.Second), LeaseDuration: 30 * time.Second,
	}
	for _, le := range held {
		p.Held = append(p.Held, LeaseRef{JobID: le.JobID, Token: le.Token})
	}
	x := &Call{Poll: p}
	c.call(x, nil)
	c.run(c.now)
	return x
}

func (c *cellOfOne) report(sequence int64, want int, done ...Leased) *Call {
	r := &Report{Session: SessionID{Name: "s"}, Sequence: sequence, Want: want}
	for _, le := range done {
		r.Outcomes = append(r.Outcomes, Outcome{JobID: le.JobID, Token: le.Token, Kind: engine.OutcomeSuccess})
	}
	x := &Call{Report: r}
	c.call(x, nil)
	return x
}

func same(a, b []Leased) bool {
	if len(a) != len(b) {
		return false
	}
	tokens := map[engine.Token]bool{}
	for _, le := range a {
		tokens[le.Token] = true
	}
	for _, le := range b {
		if !tokens[le.Token] {
			return false
		}
	}
	return true
}

// TestRedelivery repeats calls whose answers got lost: they carry the same leases, whatever came between, and a later poll gives back what the
// worker does not name.
func TestRedelivery(t *testing.T) {
	for name, between := range map[string]func(*cellOfOne){
		"at once":      func(*cellOfOne) {},
		"later":        func(c *cellOfOne) { c.runFor(10 * time.Second) },
		"a new leader": func(c *cellOfOne) { c.restart() },
		"more jobs":    func(c *cellOfOne) { c.jobs(5) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCellOfOne(t, nil)
			c.jobs(3)
			first := c.poll(1, 0, 2)
			between(c)
			if again := c.poll(1, 0, 2); len(first.Poll.Leases) != 2 || !same(first.Poll.Leases, again.Poll.Leases) {
				t.Fatalf("a poll carried %d leases, and repeated %d others", len(first.Poll.Leases), len(again.Poll.Leases))
			}
			had := first.Poll.Leases
			r := c.report(1, 1, had[0])
			c.run(c.now)
			between(c)
			again := c.report(1, 1, had[0])
			c.run(c.now)
			if len(r.Report.Leases) != 1 || !same(r.Report.Leases, again.Report.Leases) {
				t.Fatalf("a report carried %d leases, and repeated %d others", len(r.Report.Leases), len(again.Report.Leases))
			}
			if res := again.Report.Results[0]; !res.Duplicate || res.Err != nil {
				t.Errorf("the repeated outcome gives %+v", res)
			}
			between(c)
			c.poll(2, 1, 1, had[1]) // the report's answer was seen, and what it carried is not held
			if j := c.state.Job(r.Report.Leases[0].JobID); j.Lost != 0 || j.State == engine.Leased && j.Lease.Sequence != 2 {
				t.Errorf("what the worker does not have is %v by call %d", j.State, j.Lease.Sequence)
			}
			if n := len(c.lead.sessions[SessionID{Name: "s"}].held); n != 2 {
				t.Errorf("the session holds %d", n)
			}
		})
	}
}

// TestRepeatedInOneEntry hands a report in twice before anything is sealed, as a worker does whose connection broke: one is granted jobs, and
// the other carries the same.
func TestRepeatedInOneEntry(t *testing.T) {
	for name, outcomes := range map[string]int{"outcomes": 1, "no outcomes": 0} {
		t.Run(name, func(t *testing.T) {
			c := newCellOfOne(t, nil)
			c.jobs(3)
			had := c.poll(1, 0, 1).Poll.Leases
			one, two := c.report(1, 1, had[:outcomes]...), c.report(1, 1, had[:outcomes]...)
			c.run(c.now)
			if len(one.Report.Leases) != 1 || !same(one.Report.Leases, two.Report.Leases) {
				t.Errorf("%d leases and %d others", len(one.Report.Leases), len(two.Report.Leases))
			}
		})
	}
}

// TestOvertaken hands in calls of a session in the wrong order: an older poll does not take the place of the newer, and an older report is
// given no jobs.
func TestOvertaken(t *testing.T) {
	c := newCellOfOne(t, nil)
	newer := c.poll(5, 0, 1)
	if older := c.poll(4, 0, 1); !older.done || !errors.Is(older.Err, ErrPollReplaced) || newer.done {
		t.Errorf("the older poll: %v; the newer is over: %v", older.Err, newer.done)
	}
	c.jobs(3)
	if len(newer.Poll.Leases) != 1 {
		t.Fatalf("the newer poll carries %d", len(newer.Poll.Leases))
	}
	c.report(7, 0)
	c.run(c.now)
	r := c.report(6, 1, newer.Poll.Leases[0])
	c.run(c.now)
	if r.Report.Results[0].State != engine.Succeeded || len(r.Report.Leases) != 0 {
		t.Errorf("the older report gives %+v and %d leases", r.Report.Results, len(r.Report.Leases))
	}
	if over := c.poll(6, 7, 1); over.Err != nil || len(over.Poll.Leases) != 1 {
		t.Errorf("the next poll: %v, %d leases", over.Err, len(over.Poll.Leases))
	}
}

// TestAbandoned gives polls up: one without a sequence can never be repeated, and its job goes back at once; another's goes back when the poll
// is not repeated soon. Neither costs the job anything.
func TestAbandoned(t *testing.T) {
	for name, c := range map[string]struct {
		sequence int64
		after    time.Duration
		state    engine.JobState
	}{
		"without a sequence": {0, 0, engine.Ready}, "not repeated yet": {1, 4 * time.Second, engine.Leased},
		"not repeated soon": {1, 6 * time.Second, engine.Ready},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCellOfOne(t, nil)
			w.jobs(1)
			p := w.poll(c.sequence, 0, 1)
			w.lead.Abandon(p)
			w.runFor(c.after)
			if j := w.state.Job(p.Poll.Leases[0].JobID); j.State != c.state || j.Lost != 0 || c.state == engine.Ready && j.Charged != 0 {
				t.Errorf("it is %v, lost %d times, and charged %d", j.State, j.Lost, j.Charged)
			}
		})
	}
}

// TestSessionsBounded fills the places for sessions: the next is refused, saying whose bound it is; a tenant's own workers fill only theirs.
func TestSessionsBounded(t *testing.T) {
	c := newCellOfOne(t, func(cfg *Config) { cfg.SessionsMax, cfg.TenantSessionsMax = 5, 2 })
	open := func(tenant cell.TenantID, name string) *cell.LimitError {
		x := &Call{Poll: &Poll{
			Session: SessionID{Tenant: tenant, Name: name}, Operations: []cell.Operation{"op"}, Classes: [2]bool{true, true}, Slots: 1e9,
			Prefetch: 1e9, Want: 1, Until: c.now.Add(time.Second), LeaseDuration: time.Second,
		}}
		c.call(x, nil)
		c.run(c.now)
		var limit *cell.LimitError
		errors.As(x.Err, &limit)
		return limit
	}
	for n := range 2 {
		if err := open("a", fmt.Sprint(n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := open("a", "more"); err == nil || err.Limit != "tenant_sessions_max" || err.Scope != cell.ScopeTenant || err.Bound != 2 {
		t.Errorf("a tenant's third session: %v", err)
	}
	for n := range 3 {
		if err := open("", fmt.Sprint(n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := open("", "more"); err == nil || err.Limit != "sessions_max" || err.Scope != cell.ScopeCell || err.Bound != 5 {
		t.Errorf("the sixth session: %v", err)
	}
	if got, most := c.lead.room, 3*c.cfg.RoomMax; got != most {
		t.Errorf("three sessions have room for %d, not %d", got, most)
	}
	c.runFor(30 * time.Second)
	if n := len(c.lead.sessions); n != 0 {
		t.Errorf("%d sessions are kept that nobody hears of", n)
	}
	if err := open("a", "later"); err != nil {
		t.Error(err)
	}
}

// TestPolicies are taken by their epoch, and reach the scheduler only when the state takes them.
func TestPolicies(t *testing.T) {
	c := newCellOfOne(t, nil)
	set := func(policies ...cell.TenantPolicy) []engine.Result {
		x := &Call{Policy: &Policy{Policies: policies}}
		c.call(x, nil)
		c.run(c.now)
		return x.Policy.Results
	}
	policy := func(epoch cell.Epoch, w cell.Weight) cell.TenantPolicy {
		return cell.TenantPolicy{Tenant: "a", Weight: w, Epoch: epoch}
	}
	r := set(policy(5, 2000), policy(3, 9000), policy(5, 2000), policy(6, 3000))
	if r[0].Err != nil || !errors.Is(r[1].Err, engine.ErrPolicyStale) || !r[2].Duplicate || r[3].Err != nil {
		t.Errorf("%+v", r)
	}
	if got := c.state.Tenant("a").Policy; got != policy(6, 3000) {
		t.Errorf("%+v", got)
	}
	if r := set(policy(7, -1)); r[0].Err == nil {
		t.Error("a negative weight was taken")
	}
	// A new tenant's first job may come with its policy.
	c.lead.Enqueue(&Call{Policy: &Policy{Policies: []cell.TenantPolicy{{Tenant: "new", Weight: 1000, Epoch: 1}}}})
	p := c.submit(job{plan: plan{tenant: "new", class: cell.ClassBatch}})[0]
	c.run(c.now)
	if p.result.Err != nil {
		t.Error(p.result.Err)
	}
}

// TestRetryBesideAnEnd retries the oldest finished job in the very entry in which another's end takes it out of its lane's bounds: it is refused,
// and nothing is left of it.
func TestRetryBesideAnEnd(t *testing.T) {
	c := newCellOfOne(t, nil)
	limits := engine.DefaultLimits()
	limits.FinishedJobsMax = 1
	c.world = newWorld(t, c.cfg, limits, 1)
	c.tenant(cell.TenantPolicy{Tenant: "a", Weight: cell.WeightDefault})
	c.run(c.now)
	c.jobs(2)
	held := c.poll(1, 0, 2).Poll.Leases
	first := &Cancel{Tenant: "a", JobID: held[0].JobID}
	c.call(&Call{Cancel: first}, nil)
	c.run(c.now)
	retry := &Retry{Tenant: "a", JobID: held[0].JobID}
	c.report(1, 1, held[1])
	c.call(&Call{Retry: retry}, nil)
	c.run(c.now)
	if !errors.Is(retry.Result.Err, engine.ErrJobUnknown) {
		t.Errorf("the retry gives %+v", retry.Result)
	}
	if n := c.lead.leases.len(); n != 0 {
		t.Errorf("%d leases are left", n)
	}
}

// TestWake says when to seal next without being asked: at once while something is left to give or to seal.
func TestWake(t *testing.T) {
	c := newCellOfOne(t, func(cfg *Config) { cfg.GrantsPerEntryMax, cfg.CallBytesPerEntry, cfg.EntryBytesMax = 1, 1, 1 })
	step := func() cell.Instant {
		entry, done := c.lead.Seal(c.now, 1)
		c.finish(done)
		if entry != nil {
			c.settle(engine.AppendEntry(nil, entry))
		}
		return c.lead.Wake()
	}
	c.submit(job{plan: plan{tenant: "a", class: cell.ClassBatch}}, job{plan: plan{tenant: "a", class: cell.ClassBatch}})
	if at := step(); at > c.now || at == 0 {
		t.Errorf("half of a call is sealed, and it wakes at %v", at)
	}
	c.pump()
	c.submit(job{plan: plan{tenant: "a", class: cell.ClassBatch}, spec: engine.Spec{NotBefore: c.now.Add(time.Hour)}})
	c.pump()
	if at := c.lead.Wake(); at != c.now.Add(time.Hour) {
		t.Errorf("a job is delayed by an hour, and it wakes at %v", at)
	}
	c.lead.Enqueue(&Call{Poll: &Poll{
		Session: SessionID{Name: "s"}, Operations: []cell.Operation{"op"}, Classes: [2]bool{true, true}, Slots: 9, Want: 9,
		Until: c.now.Add(2 * time.Hour), LeaseDuration: time.Minute,
	}})
	if at := step(); at > c.now || at == 0 {
		t.Errorf("one of two is granted, and it wakes at %v", at)
	}
	c.pump()
	c.now = c.now.Add(time.Hour)
	if at := step(); at > c.now || at == 0 {
		t.Errorf("the delayed job is ready, and it wakes at %v", at)
	}
}
