package engine_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
)

// restored returns the state that a snapshot of the fixture's restores to.
func (x *fixture) restored() *engine.State {
	x.t.Helper()
	s, err := engine.Restore(fixtureLimits(), bytes.NewReader(snapshotOf(x.t, x.s)))
	if err != nil {
		x.t.Fatal(err)
	}
	if err := s.Check(); err != nil {
		x.t.Fatal(err)
	}
	if s.Hash() != x.s.Hash() {
		x.t.Fatal("the snapshot restores to another state")
	}
	return s
}

// TestPreemptKeepsPlaceAndAttempt takes a job's lease back that has but one attempt (armadaproject/armada#4340): it is where it was, and what its
// old worker says is stale.
func TestPreemptKeepsPlaceAndAttempt(t *testing.T) {
	x := newFixture(t, fixtureLimits())
	f := x.submission()
	f.Spec.Retry.AttemptsMax = 1
	x.must(f)
	before := *x.want(engine.Ready)
	for range 5 {
		x.must(x.lease())
		late := x.outcome(engine.OutcomeSuccess)
		preempt := x.outcome(engine.OutcomePreempt)
		preempt.WakeAt = x.now + 50*second // it does not wait, whatever is said
		x.must(preempt)
		j := x.want(engine.Ready)
		if j.Seq != before.Seq || j.Created != before.Created || j.Failed != 0 || j.Lost != 0 || j.Crashes != 0 || j.WakeAt != 0 {
			t.Errorf("%+v was %+v", j, before)
		}
		x.refused(late, engine.ErrLeaseStale)
	}
	if held := x.s.Tenant("acme").Held(); held != 0 {
		t.Errorf("the tenant holds %d", held)
	}
	x.must(x.lease())
	x.must(x.outcome(engine.OutcomeSuccess))
	if j := x.want(engine.Succeeded); j.Charged != 6*15 {
		t.Errorf("it is charged %d", j.Charged)
	}
}

func (x *fixture) keyed(i int, keys ...cell.ConcurrencyKey) {
	x.t.Helper()
	x.number(i)
	f := x.submission()
	f.Spec.Keys = keys
	x.must(f)
}

func (x *fixture) wantBound(key string, bound, held int64) {
	x.t.Helper()
	for _, s := range []*engine.State{x.s, x.restored()} {
		b, h, ok := s.Tenant("acme").Concurrency(key)
		if ok != (bound > 0) || b != bound || h != held {
			x.t.Errorf("%q holds %d of %d, %v; want %d of %d", key, h, b, ok, held, bound)
		}
	}
}

// TestConcurrencyBound has jobs of one key that give different bounds: that of the one accepted last holds, whatever becomes of it, until the last
// of them has ended.
func TestConcurrencyBound(t *testing.T) {
	x := newFixture(t, fixtureLimits())
	x.wantBound("k", 0, 0)
	x.keyed(1, cell.ConcurrencyKey{Key: "k", Max: 5}, cell.ConcurrencyKey{Key: "other", Max: 2})
	first := x.id
	x.wantBound("k", 5, 0)
	x.must(x.lease())
	x.wantBound("k", 5, 1)
	x.keyed(2, cell.ConcurrencyKey{Key: "k", Max: 1})
	x.wantBound("k", 1, 1)
	x.must(&engine.CancelFact{ID: x.id, Tenant: "acme"})
	x.wantBound("k", 1, 1)
	x.id = first
	x.must(x.outcome(engine.OutcomeFatal))
	x.wantBound("k", 0, 0)
	x.wantBound("other", 0, 0)
	x.must(&engine.RetryFact{ID: first, Tenant: "acme"})
	x.wantBound("k", 5, 0)
	x.wantBound("other", 2, 0)
	x.keyed(3, cell.ConcurrencyKey{Key: "k", Max: 3})
	x.must(&engine.CancelFact{ID: first, Tenant: "acme"})
	x.must(&engine.RetryFact{ID: first, Tenant: "acme"}) // which is no acceptance
	x.wantBound("k", 3, 0)
	x.wantBound("other", 2, 0)
}

// TestConcurrencyKeysLeaveNothing runs jobs whose keys are never used again.
func TestConcurrencyKeysLeaveNothing(t *testing.T) {
	x := newFixture(t, fixtureLimits())
	for i := range 200 {
		x.keyed(i, cell.ConcurrencyKey{Key: fmt.Sprint("key-", i), Max: 1})
		x.must(x.lease())
		x.must(x.outcome(engine.OutcomeSuccess))
		x.wantBound(fmt.Sprint("key-", i), 0, 0)
		x.pass(x.now + 100*second)
	}
}

// TestStarts remembers the latest starts as far as the policy bounds them.
func TestStarts(t *testing.T) {
	x := newFixture(t, fixtureLimits())
	rate := func(jobs int64) {
		x.must(&engine.PolicyFact{Policy: cell.TenantPolicy{
			Tenant: "acme", Weight: 1000, Starts: cell.StartRate{Jobs: jobs, Per: time.Minute}, Epoch: 7,
		}})
	}
	want := func(seconds ...cell.Instant) {
		t.Helper()
		var at []cell.Instant
		for _, s := range seconds {
			at = append(at, start+s*second)
		}
		for _, s := range []*engine.State{x.s, x.restored()} {
			if got := s.Tenant("acme").Starts(); !slices.Equal(got, at) {
				t.Errorf("got %v, want %v", got, at)
			}
		}
	}
	n := 0
	run := func(seconds ...cell.Instant) {
		for _, at := range seconds {
			x.now = start + at*second
			n++
			x.number(n)
			x.waiting(0, 0)
			x.must(x.lease())
			x.must(x.outcome(engine.OutcomeSuccess))
		}
	}
	run(0, 1)
	want()
	rate(3)
	run(2, 3)
	want(2, 3)
	run(4, 5, 6, 7)
	want(5, 6, 7)
	rate(5)
	want(5, 6, 7)
	run(8, 9, 10)
	want(6, 7, 8, 9, 10)
	rate(2)
	want(9, 10)
	run(11)
	want(10, 11)
	rate(0)
	want()
}

// TestEstimates learns what operations cost from jobs whose handler came to an end, and from nothing else, and forgets the operation that was not
// heard of for longest.
func TestEstimates(t *testing.T) {
	limits := fixtureLimits()
	limits.EstimatesMax = 2
	x := newFixture(t, limits)
	n := 0
	run := func(op cell.Operation, kind engine.OutcomeKind, cost cell.Cost, private bool) {
		n++
		x.number(n)
		f := x.submission()
		f.Spec.Operation = op
		x.must(f)
		grant := x.lease()
		grant.Lease.Private = private
		x.must(grant)
		o := x.outcome(kind)
		o.Charged = cost
		x.must(o)
		if !x.s.Job(x.id).State.Ended() {
			x.must(&engine.CancelFact{ID: x.id, Tenant: "acme"})
		}
	}
	want := func(op cell.Operation, e cell.Estimate) {
		t.Helper()
		for _, s := range []*engine.State{x.s, x.restored()} {
			if got := s.Tenant("acme").Estimate(op); got != e {
				t.Errorf("%s is estimated at %+v, want %+v", op, got, e)
			}
		}
	}
	for _, kind := range []engine.OutcomeKind{engine.OutcomeRelease, engine.OutcomeLoss, engine.OutcomeCrash, engine.OutcomePreempt} {
		run("a", kind, 100, false)
	}
	run("a", engine.OutcomeSuccess, 100, true)
	want("a", cell.Estimate{})
	run("a", engine.OutcomeSuccess, 1000, false)
	run("a", engine.OutcomeFailure, 2000, false)
	run("a", engine.OutcomeFatal, 3000, false)
	want("a", cell.Estimate{Mean: 2000, Samples: 3})
	run("b", engine.OutcomeSuccess, 7, false)
	run("a", engine.OutcomeSuccess, 2000, false)
	run("c", engine.OutcomeSuccess, 8, false)
	want("a", cell.Estimate{Mean: 2000, Samples: 4})
	want("b", cell.Estimate{})
	want("c", cell.Estimate{Mean: 8, Samples: 1})
	if got := x.s.Tenant("globex").Estimate("a"); got != (cell.Estimate{}) {
		t.Errorf("another tenant's jobs are estimated at %+v", got)
	}
}

// TestResourcesAddUp adds up what the attempts of a job used.
func TestResourcesAddUp(t *testing.T) {
	x := newFixture(t, fixtureLimits())
	x.waiting(0, 0)
	x.must(x.lease())
	f := x.outcome(engine.OutcomeFailure)
	f.Used = &cell.Resources{600_000, 7}
	x.must(f)
	x.must(x.lease())
	g := x.outcome(engine.OutcomeSuccess)
	g.Used = &cell.Resources{400_000, 6: 1}
	x.must(g)
	for _, s := range []*engine.State{x.s, x.restored()} {
		if used := s.Job(x.id).Used; used == nil || *used != (cell.Resources{1_000_000, 7, 6: 1}) {
			t.Errorf("it used %v", used)
		}
	}
}

// TestOrganization refuses a tenant of an organization that is not known, and an older record of one.
func TestOrganization(t *testing.T) {
	x := newFixture(t, fixtureLimits())
	tenant := &engine.PolicyFact{Policy: cell.TenantPolicy{Tenant: "acme", Organization: "holding", Weight: 1000, Epoch: 7}}
	x.refused(tenant, engine.ErrOrganizationUnknown)
	o := cell.OrganizationPolicy{Organization: "holding", Weight: 2000, Reservation: [2]cell.Rate{1, 2}, Limit: 9, Epoch: 3}
	x.must(&engine.OrganizationFact{Policy: o})
	x.must(tenant)
	stale := o
	stale.Epoch = 2
	x.refused(&engine.OrganizationFact{Policy: stale}, engine.ErrPolicyStale)
	account := cell.OrganizationAccount{Lanes: [2]cell.LaneAccount{{Rounds: 2, Deficit: -9, Ahead: 5}, {}}, LimitTag: start}
	x.index++
	x.s.Apply(x.index, &engine.Entry{OrganizationAccounts: []engine.OrganizationAccountFact{
		{Organization: "holding", Account: account}, {Organization: "nobody", Account: account},
	}})
	for _, s := range []*engine.State{x.s, x.restored()} {
		got := s.Organization("holding")
		if got == nil || got.Policy != o || got.Account != account || len(s.Organizations()) != 1 {
			t.Errorf("got %+v", got)
		}
	}
}

// TestSnapshotWithoutItsParts restores snapshots that lack, or have twice, what other records name.
func TestSnapshotWithoutItsParts(t *testing.T) {
	base := splitSnapshot(snapshotOf(t, goldenWhole(t)))
	for kind, want := range map[byte]error{6: nil, 7: engine.ErrSnapshot, 8: engine.ErrSnapshot} {
		i := slices.IndexFunc(base, func(r record) bool { return r.kind == kind })
		without := slices.DeleteFunc(slices.Clone(base), func(r record) bool { return r.kind == kind })
		if _, err := engine.Restore(fixtureLimits(), bytes.NewReader(sealSnapshot(without))); !errors.Is(err, want) {
			t.Errorf("without records of kind %d: %v", kind, err)
		}
		twice := slices.Insert(slices.Clone(base), i+1, base[i])
		if _, err := engine.Restore(fixtureLimits(), bytes.NewReader(sealSnapshot(twice))); !errors.Is(err, engine.ErrSnapshot) {
			t.Errorf("with a record of kind %d twice: %v", kind, err)
		}
	}
}
