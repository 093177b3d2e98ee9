package tree

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/drr"
)

// Check walks everything and returns an error for the first invariant that does not hold, or nil. Its time grows with the number of tenants: it
// is for tests, simulations and the periodic self-check of a running cell.
func (t *Tree[T]) Check() error {
	c := checker[T]{tree: t, sums: map[*organization[T]][2]cell.Rate{}}
	for _, id := range slices.Sorted(maps.Keys(t.tenants)) {
		if err := c.tenant(t.tenants[id]); err != nil {
			return fmt.Errorf("tree: tenant %s: %w", id, err)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(t.organizations)) {
		if err := c.organization(t.organizations[id]); err != nil {
			return fmt.Errorf("tree: organization %s: %w", id, err)
		}
	}
	for i := range t.sides {
		if err := c.side(i); err != nil {
			return fmt.Errorf("tree: %s: %w", cell.Classes()[i], err)
		}
	}
	if err := t.timers.check(); err != nil {
		return fmt.Errorf("tree: timers: %w", err)
	}
	if c.timers != len(t.timers.items) {
		return fmt.Errorf("tree: %d timers set, %d wanted", len(t.timers.items), c.timers)
	}
	return nil
}

// checker counts what the walk finds.
type checker[T any] struct {
	tree                      *Tree[T]
	active, waiting           [2][drr.MaxSets]int
	reserved, assured, credit [2][drr.MaxSets]int // seats that should be taken
	timers                    int
	sums                      map[*organization[T]][2]cell.Rate // what its tenants reserve
}

func (c *checker[T]) tenant(n *Tenant[T]) error {
	t := c.tree
	if o := n.organization; o != nil {
		sum := c.sums[o]
		for i, r := range n.Policy().Reservation {
			sum[i] += r
		}
		c.sums[o] = sum
	}
	wants := n.lanes[0].sets|n.lanes[1].sets != 0
	if m := n.meter; m != nil {
		if m.timer.seated() {
			c.timers++
		}
		if limited := m.limited(int64(t.now)); wants && n.limited != limited {
			return fmt.Errorf("limited %t, tag %d at %d", n.limited, m.limit.due(), t.now)
		}
		if rich := m.credit.Extra > 0 && m.holds(int64(t.now)) > 0; wants && !n.blocked() && m.rich != rich {
			return fmt.Errorf("has credit %t, %d at %d", m.rich, m.holds(int64(t.now)), t.now)
		}
		if err := t.checkTimer(&m.timer, n.changes()); err != nil {
			return err
		}
	} else if n.limited {
		return errors.New("limited without a limit")
	}
	for i := range n.lanes {
		if err := c.lane(&n.lanes[i]); err != nil {
			return fmt.Errorf("%s: %w", cell.Classes()[i], err)
		}
	}
	return nil
}

func (t *Tree[T]) checkTimer(s *seat[T], at int64) error {
	if set := at != math.MaxInt64; s.seated() != set || set && (s.key != at || at <= int64(t.now)) {
		return fmt.Errorf("at %d a timer is set %t for %d, want %d", t.now, s.seated(), s.key, at)
	}
	return nil
}

func (c *checker[T]) lane(l *Lane[T]) error {
	t, joined, b := c.tree, c.tree.joined(l), l.branch()
	for set := range drr.SetID(drr.MaxSets) {
		in, bit := joined>>set&1 == 1, uint64(1)<<set
		if l.sets&bit != 0 {
			c.active[l.class][set]++
		}
		if l.sets&^t.open&bit != 0 {
			return fmt.Errorf("active in set %d, which is closed", set)
		}
		if is := l.flow != nil && l.flow.Active(set); is != in {
			return fmt.Errorf("in the rotation of set %d: %t, want %t", set, is, in)
		}
		free := b == nil || !b.organization.limited
		if in && free {
			c.waiting[l.class][set]++
		}
		var e *entry[T]
		if l.extra != nil {
			e = l.extra.entries.get(set)
		}
		reserved := in && l.extra != nil && l.extra.rate > 0
		credit := in && l.tenant.meter != nil && l.tenant.meter.rich
		if has := e != nil && e.reserved.seated(); has != reserved {
			return fmt.Errorf("waits by its reservation in set %d: %t, want %t", set, has, reserved)
		}
		if has := e != nil && e.credit.seated(); has != credit || has && e.credit.key != l.tenant.meter.spent.due() {
			return fmt.Errorf("waits by its credit in set %d: %t, want %t", set, has, credit)
		}
		if b == nil && reserved {
			c.reserved[l.class][set]++
		}
		if b == nil && credit {
			c.credit[l.class][set]++
		}
	}
	return nil
}

func (c *checker[T]) organization(o *organization[T]) error {
	if err := o.policy.CheckReserved(o.reserved); err != nil {
		return err
	}
	if sum := c.sums[o]; sum != o.reserved {
		return fmt.Errorf("its tenants reserve %v, counted as %v", sum, o.reserved)
	}
	runnable := 0
	for i := range o.branches {
		b := &o.branches[i]
		for sets := b.boughs.sets; sets != 0; sets &= sets - 1 {
			set := first(sets)
			runnable += b.bough(set).runnable
			if err := c.bough(b, set); err != nil {
				return fmt.Errorf("%s in set %d: %w", cell.Classes()[i], set, err)
			}
		}
		if b.ring != nil {
			if err := b.ring.Check(); err != nil {
				return err
			}
		}
	}
	if runnable != o.runnable {
		return fmt.Errorf("%d lanes may run, counted as %d", runnable, o.runnable)
	}
	if m := o.meter; m != nil {
		if m.timer.seated() {
			c.timers++
		}
		if runnable > 0 && o.limited != m.limited(int64(c.tree.now)) {
			return fmt.Errorf("limited %t, tag %d at %d", o.limited, m.limit.due(), c.tree.now)
		}
		if err := c.tree.checkTimer(&m.timer, o.changes()); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker[T]) bough(b *branch[T], set drr.SetID) error {
	g, i := b.bough(set), b.node.class
	waiting := 0
	if b.ring != nil {
		waiting = b.ring.Waiting(set)
	}
	if waiting != g.runnable {
		return fmt.Errorf("%d lanes in its rotation, %d counted", waiting, g.runnable)
	}
	in := g.runnable > 0 && !b.organization.limited
	if has := b.node.sets>>set&1 == 1; has != in {
		return fmt.Errorf("waits %t, want %t", has, in)
	}
	if is := b.node.flow != nil && b.node.flow.Active(set); is != in {
		return fmt.Errorf("in the rotation %t, want %t", is, in)
	}
	if err := errors.Join(g.reserved.check(), g.credit.check()); err != nil {
		return err
	}
	for _, s := range []struct {
		seat   *seat[T]
		inside *heap[T]
		floor  int64
		count  *int
	}{{&g.leastReserved, &g.reserved, g.floor, &c.reserved[i][set]}, {&g.leastCredit, &g.credit, never, &c.credit[i][set]}} {
		least := s.inside.least()
		if s.seat.seated() != (in && least != nil) {
			return fmt.Errorf("represented %t, waits %t with %d inside", s.seat.seated(), in, len(s.inside.items))
		}
		if s.seat.seated() {
			*s.count++
			if s.seat.lane != least.lane || s.seat.key != max(least.key, s.floor) {
				return fmt.Errorf("represented by %d, want %d", s.seat.key, least.key)
			}
		}
	}
	e := b.extra.entries.get(set)
	assured := in && b.extra.rate > 0
	if has := e != nil && e.reserved.seated(); has != assured {
		return fmt.Errorf("waits by its reservation %t, want %t", has, assured)
	}
	if assured {
		c.assured[i][set]++
	}
	return nil
}

func (c *checker[T]) side(i int) error {
	s := &c.tree.sides[i]
	if err := s.root.Check(); err != nil {
		return err
	}
	for set := range s.offers {
		o := &s.offers[set]
		if o.active != c.active[i][set] || o.waiting != c.waiting[i][set] {
			return fmt.Errorf("set %d: %d active and %d wait, counted as %d and %d", set, c.active[i][set], c.waiting[i][set], o.active, o.waiting)
		}
		for _, h := range []struct {
			heap *heap[T]
			want int
		}{{&o.reserved, c.reserved[i][set]}, {&o.assured, c.assured[i][set]}, {&o.credit, c.credit[i][set]}} {
			if len(h.heap.items) != h.want {
				return fmt.Errorf("set %d: %d wait by tag, want %d", set, len(h.heap.items), h.want)
			}
			if err := h.heap.check(); err != nil {
				return fmt.Errorf("set %d: %w", set, err)
			}
		}
		for _, h := range []*heap[T]{&o.reserved, &o.assured} {
			if least := h.least(); least != nil && o.v > add(least.key, 2*s.burst) {
				return fmt.Errorf("set %d: virtual time %d is more than two bursts after %d", set, o.v, least.key)
			}
		}
	}
	return nil
}

// check tests the heap's order, and that each seat knows its place.
func (h *heap[T]) check() error {
	for i, it := range h.items {
		if it.seat.pos != int32(i)+1 || it.key != it.seat.key {
			return fmt.Errorf("seat %d: keyed %d for %d, at %d", i, it.key, it.seat.key, it.seat.pos)
		}
		if i > 0 && it.before(h.items[(i-1)/heapFan]) {
			return fmt.Errorf("seat %d: before its parent", i)
		}
	}
	return nil
}
