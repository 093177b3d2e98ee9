package tree

import (
	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/drr"
)

// Pick is whose turn it is, and by which tier.
type Pick[T any] struct {
	Lane *Lane[T]
	Tier Tier
}

// Next returns the lane of the class that is to be served next in the set; false when none may run. It charges nothing: the same lane is returned
// until something changes or time passes.
func (t *Tree[T]) Next(now cell.Instant, class cell.Class, set drr.SetID) (Pick[T], bool) {
	t.touched = 0
	t.Advance(now)
	if !t.isOpen(set) {
		return Pick[T]{}, false
	}
	s := &t.sides[class.Index()]
	o := &s.offers[set]
	o.pass(t.now, s.burst)
	if o.waiting == 0 {
		return Pick[T]{}, false
	}
	t.touched++
	if r := o.reserved.least(); r != nil && r.key <= o.v {
		return Pick[T]{Lane: r.lane, Tier: TierReserved}, true
	}
	if r := o.assured.least(); r != nil && r.key <= o.v {
		return Pick[T]{Lane: t.rotate(r.lane.extra.branch.ring, set), Tier: TierOrganization}, true
	}
	// Who waits alone would burn its credit for what it gets anyway.
	if k := o.credit.least(); k != nil && k.key <= int64(t.now) && o.waiting > 1 {
		return Pick[T]{Lane: k.lane, Tier: TierCredit}, true
	}
	return Pick[T]{Lane: t.rotate(s.root, set), Tier: TierShared}, true
}

// rotate returns the lane whose turn it is in a rotation that somebody waits in, level by level.
func (t *Tree[T]) rotate(r *drr.Ring[*Lane[T]], set drr.SetID) *Lane[T] {
	for {
		f, ok := r.Next(set)
		if !ok {
			panic("tree: nobody waits in a rotation that is counted as waiting")
		}
		t.touched += r.Touched()
		l := f.Value
		if l.tenant != nil {
			return l
		}
		r = l.extra.branch.ring
	}
}
