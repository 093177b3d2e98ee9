package sched

import (
	"cmp"
	"slices"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/tree"
)

// TenantStanding is where a tenant stands with everything that its policy bounds or promises.
type TenantStanding struct {
	Lanes [2]LaneStanding // by cell.Class.Index
	// Held is its leases, its own workers' included, of RunningMax; a RunningMax of 0 is no bound. Held is above it after it was lowered.
	Held, RunningMax int64
	// Starts is how many of its jobs have started within Rate.Per; NextStart is when the next may, 0 for now.
	Starts    int64
	Rate      cell.StartRate
	NextStart cell.Instant
	// Keys are its concurrency keys with the most jobs that wait for them, KeysShown at most.
	Keys []KeyStanding
}

// LaneStanding is where one of a tenant's lanes stands.
type LaneStanding struct {
	Ready   int64     // jobs that wait
	Held    int64     // leases, those of the tenant's own workers included
	Charged cell.Cost // all that it was charged
	// Suspended says that nothing of the lane is granted until it is resumed.
	Suspended bool
	Tree      tree.Standing
}

// KeyStanding is where a concurrency key stands.
type KeyStanding struct {
	Key       string
	Held, Max int64
	Waiting   int64 // jobs that sleep until it has room
}

// KeysShown bounds TenantStanding.Keys.
const KeysShown = 20

// ExplainTenant returns where a tenant stands; false when it is not known. It looks at every lease, and at every key of the tenant's.
func (s *Scheduler) ExplainTenant(now cell.Instant, id cell.TenantID) (TenantStanding, bool) {
	s.Advance(now)
	node := s.tree.Tenant(id)
	if node == nil {
		return TenantStanding{}, false
	}
	p := node.Policy()
	x := TenantStanding{RunningMax: p.RunningMax, Rate: p.Starts}
	for i, c := range cell.Classes() {
		l := node.Lane(c)
		x.Lanes[i].Charged, x.Lanes[i].Tree = s.tree.Charged(l), s.tree.Standing(l)
	}
	t := s.tenantOf(id)
	if t == nil {
		return x, true
	}
	x.Held = int64(t.held)
	for i := range x.Lanes {
		x.Lanes[i].Suspended = t.suspended(i)
	}
	if c := t.caps; c != nil {
		x.Starts = c.starts.within(s.now, c.rate)
		if c.paced {
			x.NextStart = c.starts.next(c.rate)
		}
	}
	for i, l := range t.lanes {
		if l != nil {
			x.Lanes[i].Ready = int64(l.ready)
		}
	}
	for _, le := range s.leases.all {
		if le.job.owner == t {
			x.Lanes[le.class()].Held++
		}
	}
	for _, k := range t.keys { // order-free: sorted below
		x.Keys = append(x.Keys, KeyStanding{Key: k.name, Held: k.held, Max: k.max, Waiting: k.sleepers()})
	}
	slices.SortFunc(x.Keys, func(a, b KeyStanding) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(a.Key, b.Key))
	})
	x.Keys = x.Keys[:min(len(x.Keys), KeysShown)]
	return x, true
}

// sleepers returns how many jobs sleep until the key has room.
func (k *key) sleepers() int64 {
	n := int64(0)
	for _, w := range k.waits {
		for _, st := range w.strands.items {
			n += int64(st.jobs.len())
		}
	}
	return n
}
