package engine

import (
	"maps"
	"slices"

	"github.com/fairlead/fairlead/cell"
)

// Tenant is a tenant as this cell knows it. Its fields are changed by Apply only.
type Tenant struct {
	Policy cell.TenantPolicy
	// Account is where the tenant stood with its limit and its credit when it was last charged.
	Account cell.TenantAccount

	lanes       [2]*Lane
	concurrency map[string]*concurrency
	starts      starts
	estimates   estimates
	written     uint64 // the last snapshot generation that has this tenant's record
}

// Lane returns the tenant's lane in a class.
func (t *Tenant) Lane(c cell.Class) *Lane { return t.lanes[c.Index()] }

// After returns the first of the tenant's jobs that was accepted after the one numbered seq, and nil when there is none. Where its lanes came from
// different cells, each may have a job of one number: this returns one of them, [Lane.After] each.
func (t *Tenant) After(seq uint64) *Job {
	a, b := t.lanes[0].list.after(seq), t.lanes[1].list.after(seq)
	if a == nil || b != nil && b.Seq < a.Seq {
		return b
	}
	return a
}

// Held returns how many of the tenant's jobs are leased here, in both classes together.
func (t *Tenant) Held() int64 {
	var held int64
	for _, l := range t.lanes {
		if l.holds() {
			held += l.counts[Leased]
		}
	}
	return held
}

// Concurrency returns what bounds the tenant's jobs that carry a concurrency key, and how many of them are leased; false when none of them
// lives.
func (t *Tenant) Concurrency(key string) (bound, held int64, ok bool) {
	c := t.concurrency[key]
	if c == nil {
		return 0, 0, false
	}
	for i, l := range t.lanes {
		if l.holds() {
			held += c.held[i]
		}
	}
	return c.bound, held, true
}

// Starts returns when the tenant's latest jobs started, the oldest first, as far as its policy bounds how often they do.
func (t *Tenant) Starts() []cell.Instant { return t.starts.list() }

// Estimate returns what the tenant's jobs of an operation are expected to cost.
func (t *Tenant) Estimate(op cell.Operation) cell.Estimate {
	if e := t.estimates.byOperation[op]; e != nil {
		return e.value
	}
	return cell.Estimate{}
}

// Estimates calls yield for every operation of the tenant's that something was learned of, those first whose last job ended longest ago, until
// it returns false.
func (t *Tenant) Estimates(yield func(cell.Operation, cell.Estimate) bool) {
	for e := t.estimates.oldest; e != nil; e = e.newer {
		if !yield(e.operation, e.value) {
			return
		}
	}
}

// started notes that one of the tenant's jobs starts, where its policy bounds how often they do.
func (s *State) started(t *Tenant) {
	if t.Policy.Starts.Jobs > 0 {
		s.touchTenant(t)
		t.starts.add(s.time, startsKept(t))
	}
}

// learn takes what a job of an operation cost into what the next is expected to.
func (s *State) learn(t *Tenant, op cell.Operation, cost cell.Cost) {
	s.touchTenant(t)
	t.estimates.observe(op, cost, s.limits.estimates())
}

// Tenants returns every tenant, ordered by its id.
func (s *State) Tenants() []*Tenant {
	ids := slices.Sorted(maps.Keys(s.tenants))
	tenants := make([]*Tenant, len(ids))
	for i, id := range ids {
		tenants[i] = s.tenants[id]
	}
	return tenants
}

// startsKept is how many starts of the tenant's are remembered.
func startsKept(t *Tenant) int { return int(min(max(0, t.Policy.Starts.Jobs), cell.StartsMax)) }

// starts is the latest starts of a tenant's jobs: a ring once it is full.
type starts struct {
	at    []cell.Instant
	first int // index of the oldest
}

// add notes a start, and forgets the oldest when there are more than kept, which is above 0.
func (r *starts) add(at cell.Instant, kept int) {
	if len(r.at) < kept {
		r.at = append(r.at, at) // not a ring yet: first is 0
		return
	}
	r.at[r.first] = at
	r.first = (r.first + 1) % kept
}

// keep makes room for exactly so many: the latest stay.
func (r *starts) keep(kept int) {
	list := r.list()
	r.at, r.first = slices.Clone(list[max(0, len(list)-kept):]), 0
}

// list returns the starts, the oldest first.
func (r *starts) list() []cell.Instant {
	if len(r.at) == 0 {
		return nil
	}
	return append(slices.Clone(r.at[r.first:]), r.at[:r.first]...)
}

// estimates is what a tenant's operations are expected to cost, in the order in which they were last observed.
type estimates struct {
	byOperation    map[cell.Operation]*estimate
	oldest, newest *estimate
}

// estimate is what jobs of one operation are expected to cost.
type estimate struct {
	operation    cell.Operation
	value        cell.Estimate
	older, newer *estimate
}

// observe takes a cost in; where that makes more than kept operations, the one that was not observed for longest is forgotten.
func (es *estimates) observe(op cell.Operation, cost cell.Cost, kept int) {
	e := es.byOperation[op]
	if e == nil {
		e = es.set(op, cell.Estimate{})
	} else if e != es.newest {
		es.unlink(e)
		es.push(e)
	}
	e.value = e.value.Observe(cost)
	for len(es.byOperation) > kept {
		es.forget(es.oldest)
	}
}

// set makes a new estimate the latest.
func (es *estimates) set(op cell.Operation, value cell.Estimate) *estimate {
	if es.byOperation == nil {
		es.byOperation = map[cell.Operation]*estimate{}
	}
	e := &estimate{operation: op, value: value}
	es.byOperation[op] = e
	es.push(e)
	return e
}

func (es *estimates) forget(e *estimate) {
	es.unlink(e)
	delete(es.byOperation, e.operation)
}

func (es *estimates) push(e *estimate) {
	e.older, e.newer = es.newest, nil
	if es.newest != nil {
		es.newest.newer = e
	} else {
		es.oldest = e
	}
	es.newest = e
}

func (es *estimates) unlink(e *estimate) {
	if e.older != nil {
		e.older.newer = e.newer
	} else {
		es.oldest = e.newer
	}
	if e.newer != nil {
		e.newer.older = e.older
	} else {
		es.newest = e.older
	}
}
