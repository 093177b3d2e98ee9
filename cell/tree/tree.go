package tree

import (
	"fmt"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/drr"
)

// Tree is a cell's tenants, their organizations and their accounts. See the package's comment.
type Tree[T any] struct {
	cfg           Config
	now           cell.Instant
	sides         [2]side[T] // by cell.Class.Index
	tenants       map[cell.TenantID]*Tenant[T]
	organizations map[cell.OrganizationID]*organization[T]
	timers        heap[T]
	open          uint64 // sets
	told          bool   // the time
	touched       int
}

// side is one class's half of the tree.
type side[T any] struct {
	root   *drr.Ring[*Lane[T]] // the rotation of what stands directly below the cell
	idle   *drr.IdleClock      // free time, for all rotations of the class
	burst  int64               // nanoseconds
	offers [drr.MaxSets]offer[T]
}

// offer is an offer set in a class.
type offer[T any] struct {
	v      int64        // V, nanoseconds
	polled cell.Instant // as of when

	reserved heap[T] // what stands directly below the cell, by R: a tenant's, or the least inside an organization
	assured  heap[T] // organizations, by R of their own
	credit   heap[T] // what stands directly below the cell, by K: a tenant's, or the least inside an organization

	active  int // lanes that their owner made active
	waiting int // of these, those that nothing blocks
}

// New returns a Tree with nothing in it. It returns the errors of Config.Validate.
func New[T any](cfg Config) (*Tree[T], error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	t := &Tree[T]{
		cfg: cfg, tenants: map[cell.TenantID]*Tenant[T]{}, organizations: map[cell.OrganizationID]*organization[T]{},
	}
	for i := range t.sides {
		s := &t.sides[i]
		s.idle, s.burst = &drr.IdleClock{}, int64(cfg.Burst[i])
		root, err := drr.New[*Lane[T]](drr.Config{Quantum: cfg.Quantum, FlowsMax: drr.FlowsMax, Idle: s.idle})
		if err != nil {
			return nil, err
		}
		s.root = root
	}
	return t, nil
}

// Tenant returns the tenant of an id, or nil when the tree does not know it.
func (t *Tree[T]) Tenant(id cell.TenantID) *Tenant[T] { return t.tenants[id] }

// Organization returns an organization's policy; false when the tree does not know it.
func (t *Tree[T]) Organization(id cell.OrganizationID) (cell.OrganizationPolicy, bool) {
	if o := t.organizations[id]; o != nil {
		return o.policy, true
	}
	return cell.OrganizationPolicy{}, false
}

// OpenSet makes an offer set, in both classes; it does nothing to one that is open. It returns a *drr.SetError if the number is drr.MaxSets or
// above.
func (t *Tree[T]) OpenSet(set drr.SetID) error {
	for i := range t.sides {
		if err := t.sides[i].root.OpenSet(set); err != nil {
			return err
		}
	}
	t.open |= 1 << set
	return nil
}

// CloseSet drops an offer set with every standing in it; it does nothing to one that is not open. Lanes that are active there are not any
// more. Its time grows with the number of organizations, and when lanes are active in it with that of all tenants: deactivate them before.
func (t *Tree[T]) CloseSet(set drr.SetID) {
	if !t.isOpen(set) {
		return
	}
	if t.sides[0].offers[set].active+t.sides[1].offers[set].active > 0 {
		for _, n := range t.tenants { // order-free: nothing in the set outlives it
			for i := range n.lanes {
				t.Deactivate(&n.lanes[i], set)
			}
		}
	}
	for i := range t.sides {
		s := &t.sides[i]
		s.root.CloseSet(set)
		if o := &s.offers[set]; o.active > 0 || o.waiting > 0 {
			panic("tree: closing a set that lanes are active in")
		}
		for _, o := range t.organizations { // order-free: each for itself
			if r := o.branches[i].ring; r != nil {
				r.CloseSet(set)
			}
		}
	}
	t.open &^= 1 << set
}

func (t *Tree[T]) isOpen(set drr.SetID) bool { return set < drr.MaxSets && t.open>>set&1 == 1 }

// Advance moves time on, never back: who was blocked by a limit until now or earlier may run again. A tree's time begins with the first call.
func (t *Tree[T]) Advance(now cell.Instant) {
	if !t.told {
		t.told = true
		for i := range t.sides {
			for set := range t.sides[i].offers {
				t.sides[i].offers[set].polled = now
			}
		}
	}
	if now > t.now {
		t.now = now
		t.fire()
	}
}

// Wake returns the earliest time at which a lane that a limit blocks, or that lacks credit, is in another situation, and 0 when there is none.
func (t *Tree[T]) Wake() cell.Instant {
	if s := t.timers.least(); s != nil {
		return cell.Instant(s.key)
	}
	return 0
}

// Waiting returns how many lanes of the class may run in the set.
func (t *Tree[T]) Waiting(class cell.Class, set drr.SetID) int {
	if !t.isOpen(set) {
		return 0
	}
	return t.sides[class.Index()].offers[set].waiting
}

// Idle says that slots were free for a time, in micro-units of cost all together, because nobody of the class waited: debt in rotations that are
// empty shrinks by a round per quantum.
func (t *Tree[T]) Idle(class cell.Class, microunits int64) {
	t.sides[class.Index()].idle.PassAll(microunits)
}

// Touched returns how many nodes were looked at or moved by the last Next and what followed it.
func (t *Tree[T]) Touched() int { return t.touched }

// must panics for what only a fault of this package can cause.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("tree: %v", err))
	}
}
