package engine_test

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the expected tables, and add missing golden bytes: existing ones are never changed, since logs hold them")

const (
	second = cell.Instant(time.Second)
	// start is when the tests' logs begin.
	start = 1000 * second
)

// fixture drives one state by facts, one entry each, and keeps the model beside it.
type fixture struct {
	t     testing.TB
	s     *engine.State
	model *model
	index uint64
	now   cell.Instant
	id    cell.JobID
	key   string
}

func fixtureLimits() engine.Limits {
	return engine.Limits{
		LiveJobsMax: 20, LiveBytesMax: 100_000, FinishedBytesMax: 4000, FinishedJobsMax: 5, FinishedCellBytesMax: 100_000, KeyRecordsMax: 50, KeyWindow: 100 * time.Second,
		CrashesMax: 3, ErrorBytesMax: 100, TimersPerEntryMax: 100,
	}
}

func newFixture(t testing.TB, limits engine.Limits, tenants ...cell.TenantID) *fixture {
	t.Helper()
	s, err := engine.New(limits)
	if err != nil {
		t.Fatal(err)
	}
	x := &fixture{t: t, s: s, model: newModel(limits, map[string]int{}), now: start, id: cell.JobID{15: 1}, key: "k"}
	for _, tenant := range append([]cell.TenantID{"acme", "globex"}, tenants...) {
		x.do(&engine.PolicyFact{Policy: cell.TenantPolicy{Tenant: tenant, Weight: 1000, Epoch: 7}})
	}
	return x
}

// entry applies facts as one entry through the log's bytes, checks the state, and holds the results against the model's.
func (x *fixture) entry(facts ...engine.Fact) engine.Applied {
	x.t.Helper()
	e, err := engine.DecodeEntry(engine.AppendEntry(nil, &engine.Entry{Time: x.now, Facts: facts}))
	if err != nil {
		x.t.Fatal(err)
	}
	x.index++
	want := x.model.apply(e)
	got := x.s.Apply(x.index, e)
	if err := x.s.Check(); err != nil {
		x.t.Fatal(err)
	}
	for i, g := range got.Results {
		w := want[i]
		if g.JobID != w.JobID || g.State != w.State || g.Duplicate != w.Duplicate || errorText(g.Err) != errorText(w.Err) {
			x.t.Fatalf("%T: got %+v, the model says %+v", facts[i], g, w)
		}
	}
	return got
}

// do applies one fact.
func (x *fixture) do(f engine.Fact) engine.Result {
	x.t.Helper()
	return x.entry(f).Results[0]
}

// pass lets time pass until at.
func (x *fixture) pass(at cell.Instant) engine.Applied {
	x.t.Helper()
	x.now = at
	return x.entry()
}

func (x *fixture) submission() *engine.SubmitFact {
	return &engine.SubmitFact{
		ID: x.id, Tenant: "acme", Class: cell.ClassBatch, BodyHash: [16]byte{1},
		Spec: engine.Spec{
			Operation: "op", Key: x.key, Payload: engine.Payload{Kind: engine.PayloadJSON, Data: []byte(`{}`)},
			Retry: engine.Retry{AttemptsMax: 2}, Retention: time.Minute,
		},
	}
}

func (x *fixture) lease() *engine.GrantFact {
	return &engine.GrantFact{ID: x.id, Lease: engine.Lease{Token: engine.Token{Nonce: 9}, Session: "s", Charged: 10}}
}

func (x *fixture) outcome(k engine.OutcomeKind) *engine.OutcomeFact {
	f := &engine.OutcomeFact{ID: x.id, Kind: k, Charged: 15}
	if j := x.s.Job(x.id); j != nil {
		f.Token = j.Lease.Token
	}
	if k == engine.OutcomeFailure || k == engine.OutcomeFatal {
		f.Error = "no luck"
	}
	if k == engine.OutcomeSuccess {
		f.Result = engine.Payload{Kind: engine.PayloadJSON, Data: []byte(`1`)}
	}
	return f
}

// must applies a fact that has to be taken.
func (x *fixture) must(f engine.Fact) {
	x.t.Helper()
	if r := x.do(f); r.Err != nil || r.Duplicate {
		x.t.Fatalf("%T: %+v", f, r)
	}
}

func (x *fixture) waiting(notBefore, deadline cell.Instant) {
	f := x.submission()
	f.Spec.NotBefore, f.Spec.Deadline = notBefore, deadline
	x.must(f)
}

// endedBy makes a job and ends its first lease so.
func endedBy(k engine.OutcomeKind) func(*fixture) {
	return func(x *fixture) {
		x.leased()
		x.must(x.outcome(k))
	}
}

func (x *fixture) leased() {
	x.waiting(0, start+20*second)
	x.must(x.lease())
}

// tableRows are the states that a job can be in, reached in the ways that matter.
func tableRows() map[string]func(*fixture) {
	rows := map[string]func(*fixture){
		"unknown": func(*fixture) {},
		"delayed": func(x *fixture) { x.waiting(start+10*second, start+20*second) },
		"delayed after a failure": func(x *fixture) {
			x.leased()
			f := x.outcome(engine.OutcomeFailure)
			f.WakeAt = start + 10*second
			x.must(f)
		},
		"ready":                 func(x *fixture) { x.waiting(0, start+20*second) },
		"ready after a failure": endedBy(engine.OutcomeFailure),
		"ready after a release": endedBy(engine.OutcomeRelease),
		"ready after a retry": func(x *fixture) {
			endedBy(engine.OutcomeFatal)(x)
			x.must(&engine.RetryFact{ID: x.id, Tenant: "acme"})
		},
		"leased": (*fixture).leased,
		"leased for the last attempt": func(x *fixture) {
			endedBy(engine.OutcomeFailure)(x)
			x.must(x.lease())
		},
		"leased after two crashes": func(x *fixture) {
			endedBy(engine.OutcomeCrash)(x)
			x.must(x.lease())
			x.must(x.outcome(engine.OutcomeCrash))
			x.must(x.lease())
		},
	}
	maps.Copy(rows, endedRows())
	return rows
}

// endedRows are the ends of a job, and what comes after.
func endedRows() map[string]func(*fixture) {
	return map[string]func(*fixture){
		"succeeded": endedBy(engine.OutcomeSuccess),
		"failed":    endedBy(engine.OutcomeFatal),
		"cancelled while waiting": func(x *fixture) {
			x.waiting(0, 0)
			x.must(&engine.CancelFact{ID: x.id, Tenant: "acme"})
		},
		"cancelled while leased": func(x *fixture) {
			x.leased()
			x.must(&engine.CancelFact{ID: x.id, Tenant: "acme", Charged: 12})
		},
		"expired": func(x *fixture) {
			x.waiting(0, start+second)
			x.pass(start + second)
		},
		"quarantined": func(x *fixture) {
			x.waiting(0, 0)
			for range 3 {
				x.must(x.lease())
				x.must(x.outcome(engine.OutcomeCrash))
			}
		},
		"failed and dropped": func(x *fixture) {
			f := x.submission()
			f.Spec.Payload = engine.Payload{Kind: engine.PayloadData, Data: make([]byte, 4000)}
			x.must(f)
			x.must(x.lease())
			x.must(x.outcome(engine.OutcomeFatal))
		},
		"forgotten, its key standing": func(x *fixture) {
			endedBy(engine.OutcomeSuccess)(x)
			x.pass(start + 61*second)
		},
		"failed, its key with another": func(x *fixture) {
			f := x.submission()
			f.Spec.Retention = time.Hour
			x.must(f)
			x.must(x.lease())
			x.must(x.outcome(engine.OutcomeFatal))
			x.pass(start + 100*second)
			f = x.submission()
			f.ID[0] = 7
			x.must(f)
		},
	}
}

// tableStates says which states some row has to be in, so that a new one cannot be left out.
func tableStates() []engine.JobState {
	var all []engine.JobState
	for st := range engine.JobState(255) {
		if st.Valid() {
			all = append(all, st)
		}
	}
	return all
}

// commandSet collects commands; a fact is tried once and twice.
type commandSet map[string]func(*fixture) string

func (c commandSet) fact(name string, make func(*fixture) engine.Fact) {
	c[name] = func(x *fixture) string { return outcomeText(x.do(make(x))) }
	c[name+", twice"] = func(x *fixture) string {
		f := make(x)
		return outcomeText(x.do(f)) + ", then " + outcomeText(x.do(f))
	}
}

// tableCommands are all that can be done to a job.
func tableCommands() commandSet {
	c := commandSet{}
	c.submissions()
	c.leases()
	for _, tenant := range []cell.TenantID{"acme", "globex"} {
		by := " by " + string(tenant)
		c.fact("cancel"+by, func(x *fixture) engine.Fact { return &engine.CancelFact{ID: x.id, Tenant: tenant, Charged: 20} })
		c.fact("retry"+by, func(x *fixture) engine.Fact { return &engine.RetryFact{ID: x.id, Tenant: tenant} })
	}
	c.fact("policy", func(*fixture) engine.Fact {
		return &engine.PolicyFact{Policy: cell.TenantPolicy{Tenant: "acme", Weight: 5, Epoch: 8}}
	})
	c.fact("policy of an organization there is not", func(*fixture) engine.Fact {
		return &engine.PolicyFact{Policy: cell.TenantPolicy{Tenant: "acme", Organization: "holding", Weight: 5, Epoch: 8}}
	})
	c.fact("organization", func(*fixture) engine.Fact {
		return &engine.OrganizationFact{Policy: cell.OrganizationPolicy{Organization: "holding", Weight: 5, Epoch: 1}}
	})
	c.fact("limits", func(*fixture) engine.Fact {
		l := fixtureLimits()
		l.CrashesMax = 1
		return &engine.LimitsFact{Limits: l}
	})
	for name, wait := range map[string]cell.Instant{
		"wait 10 s for the wake-up": 10, "wait 20 s for the deadline": 20, "wait 60 s for the retention": 60, "wait 101 s for the key": 101,
	} {
		c[name] = func(x *fixture) string {
			a := x.pass(x.now + wait*second)
			return fmt.Sprintf("%d woken %d expired", len(a.Woken), len(a.Expired))
		}
	}
	return c
}

func (c commandSet) submissions() {
	c.fact("submit the same", func(x *fixture) engine.Fact { return x.submission() })
	c.fact("submit another body", func(x *fixture) engine.Fact {
		f := x.submission()
		f.BodyHash[0]++
		return f
	})
	c.fact("submit another key under the id", func(x *fixture) engine.Fact {
		f := x.submission()
		f.Spec.Key = "other"
		return f
	})
	c.fact("submit the same in the other class", func(x *fixture) engine.Fact {
		f := x.submission()
		f.ID[1], f.Class = 8, cell.ClassInteractive
		return f
	})
}

func (c commandSet) leases() {
	c.fact("grant", func(x *fixture) engine.Fact { return x.lease() })
	for k := engine.OutcomeSuccess; k <= engine.OutcomePreempt; k++ {
		c.fact(k.String(), func(x *fixture) engine.Fact { return x.outcome(k) })
		if k != engine.OutcomeSuccess && k != engine.OutcomeFatal { // after which nothing waits
			c.fact(k.String()+" until later", func(x *fixture) engine.Fact {
				f := x.outcome(k)
				f.WakeAt = x.now + 5*second
				return f
			})
		}
		c.fact(k.String()+" with a stale token", func(x *fixture) engine.Fact {
			f := x.outcome(k)
			f.Token.Attempt--
			return f
		})
	}
	charge := func(stale int32) func(*fixture) engine.Fact {
		return func(x *fixture) engine.Fact {
			o := x.outcome(engine.OutcomeLoss)
			o.Token.Attempt -= stale
			return &engine.ChargeFact{ID: o.ID, Token: o.Token, Charged: 30}
		}
	}
	c.fact("charge", charge(0))
	c.fact("charge with a stale token", charge(1))
}

func outcomeText(r engine.Result) string {
	switch {
	case errors.Is(r.Err, engine.ErrJobUnknown):
		return "refused: no such job"
	case errors.Is(r.Err, engine.ErrLeaseStale):
		return "refused: stale lease"
	case r.Err != nil:
		return "refused: " + strings.ReplaceAll(errorText(r.Err), r.JobID.String(), "it")
	case r.Duplicate && r.State == 0:
		return "duplicate of one forgotten"
	case r.Duplicate:
		return "duplicate, " + r.State.String()
	case r.State == 0:
		return "done"
	default:
		return r.State.String()
	}
}

// tableView is what can be seen of the job and of what it is counted in.
func tableView(x *fixture) string {
	var b strings.Builder
	if j := x.s.Job(x.id); j != nil {
		fmt.Fprintf(&b, "%v attempt=%d failed=%d lost=%d crashes=%d last=%q charged=%d", j.State, j.Attempt, j.Failed, j.Lost, j.Crashes,
			j.LastOutcome, j.Charged)
		for name, at := range map[string]cell.Instant{"created": j.Created, "finished": j.Finished} {
			if at < 0 || at > x.now || name == "finished" && (at != 0) != j.State.Ended() {
				x.t.Errorf("%s is %d", name, at)
			}
		}
	} else {
		b.WriteString("no job")
	}
	accepted, ended := x.s.Totals()
	jobs, bytes := x.s.Live()
	fmt.Fprintf(&b, " | accepted=%d ended=%d live=%d/%dB", accepted, ended, jobs, bytes)
	for st := engine.Delayed; st <= engine.Quarantined; st++ {
		if n := x.s.Count(st); n != 0 {
			fmt.Fprintf(&b, " %v=%d", st, n)
		}
	}
	l := x.s.Lane(cell.Lane{Tenant: "acme", Class: cell.ClassBatch})
	fmt.Fprintf(&b, " lane-charged=%d", l.Charged)
	return b.String()
}

// TestTable does everything that can be done to a job in every state that it can be in. The expected table is in testdata/table.txt; a cell
// that is missing there fails. Where nothing stands behind the result, nothing that can be seen has changed.
func TestTable(t *testing.T) {
	const file = "testdata/table.txt"
	old, err := os.ReadFile(file)
	if err != nil && !*rewrite {
		t.Fatal(err)
	}
	want := map[string]string{}
	for line := range strings.Lines(string(old)) {
		if cell, text, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " => "); ok {
			want[cell] = text
		}
	}
	rows, commands := tableRows(), tableCommands()
	reached := map[engine.JobState]bool{}
	var b strings.Builder
	for _, row := range sortedKeys(rows) {
		x := newFixture(t, fixtureLimits())
		rows[row](x)
		if j := x.s.Job(x.id); j != nil {
			reached[j.State] = true
		}
		fmt.Fprintf(&b, "\n%s: %s\n", row, tableView(x))
		for _, command := range sortedKeys(commands) {
			cell := row + " + " + command
			x := newFixture(t, fixtureLimits())
			rows[row](x)
			before := tableView(x)
			got := commands[command](x)
			if after := tableView(x); after != before {
				got += " -> " + after
			}
			fmt.Fprintf(&b, "%s => %s\n", cell, got)
			if text, ok := want[cell]; !*rewrite && (!ok || text != got) {
				t.Errorf("%s\ngot  %s\nwant %s (there: %v)", cell, got, text, ok)
			}
			delete(want, cell)
		}
	}
	for _, st := range tableStates() {
		if !reached[st] {
			t.Errorf("no row of the table is %v", st)
		}
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(strings.TrimPrefix(b.String(), "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, cell := range sortedKeys(want) {
		t.Errorf("%s is expected, and not tried", cell)
	}
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
