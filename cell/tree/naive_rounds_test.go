package tree_test

import (
	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/drr"
)

// rounds is one parent's rotation in one class, in every offer set: rules 8 to 11 as plainly as possible. Rounds are turned one by one,
// quanta are added one by one, and the first flow is found by looking at all of them.
type rounds struct {
	quantum int64
	flows   []*flow
	clocks  map[clockID]*clock
	filings int
}

// clockID names one order of flows: of those of positive weight in a set, or of those of weight zero.
type clockID struct {
	set  drr.SetID
	zero bool
}

// clock is how far an order of flows has come.
type clock struct {
	now  int64 // the round
	idle int64 // free time that has not made a round yet
	due  int64 // rounds that pass at the next look at a flow that waits alone
	part int64 // cost charged to a flow alone that has not made a round yet
}

type flow struct {
	node    any // a *leaf or a *branch
	weight  cell.Weight
	charged int64
	largest int64
	sets    map[drr.SetID]*standing
}

// standing is a flow's account in a set.
type standing struct {
	round, deficit, seen int64
	active               bool
	filed                int
}

func newRounds(quantum int64) *rounds { return &rounds{quantum: quantum, clocks: map[clockID]*clock{}} }

func (r *rounds) join(node any, weight cell.Weight) *flow {
	f := &flow{node: node, weight: weight, sets: map[drr.SetID]*standing{}}
	r.flows = append(r.flows, f)
	return f
}

func (r *rounds) share(w cell.Weight) int64 {
	if w == 0 {
		return r.quantum
	}
	return r.quantum * int64(w) / 1000
}

func (r *rounds) clock(f *flow, set drr.SetID) *clock {
	return r.clockOf(clockID{set: set, zero: f.weight == 0})
}

func (r *rounds) clockOf(id clockID) *clock {
	if r.clocks[id] == nil {
		r.clocks[id] = &clock{}
	}
	return r.clocks[id]
}

func (r *rounds) waiting(id clockID) int {
	n := 0
	for _, f := range r.flows {
		if s := f.sets[id.set]; s != nil && s.active && (f.weight == 0) == id.zero {
			n++
		}
	}
	return n
}

func (r *rounds) file(s *standing) {
	r.filings++
	s.filed = r.filings
}

// forward gives a flow that has spent what it had a quantum for each round further on; beyond the limit, for none.
func (r *rounds) forward(f *flow, s *standing, limit int64) {
	for s.deficit <= 0 {
		s.deficit += r.share(f.weight)
		if s.round < limit {
			s.round++
		}
	}
}

// foreign is by how many rounds charges from other sets can put a flow back.
func (r *rounds) foreign(f *flow) int64 { return max(256, 5*f.largest/r.share(f.weight)) }

// standing is the flow's account in the set, brought to the present (rules 9 and 10).
func (r *rounds) standing(f *flow, set drr.SetID) *standing {
	now := r.clock(f, set).now
	s := f.sets[set]
	if s == nil {
		s = &standing{round: now, deficit: r.share(f.weight), seen: f.charged}
		f.sets[set] = s
	}
	if s.active || s.round >= now {
		return s
	}
	s.deficit -= f.charged - s.seen
	s.seen = f.charged
	r.forward(f, s, now+r.foreign(f))
	if s.round < now {
		s.round, s.deficit = now, r.share(f.weight)
	}
	return s
}

func (r *rounds) activate(f *flow, set drr.SetID) {
	if s := r.standing(f, set); !s.active {
		s.active = true
		r.file(s)
	}
}

func (r *rounds) deactivate(f *flow, set drr.SetID) {
	if s := f.sets[set]; s != nil {
		s.active = false
	}
}

func (r *rounds) head(id clockID) *flow {
	var best *flow
	for _, f := range r.flows {
		s := f.sets[id.set]
		if s == nil || !s.active || (f.weight == 0) != id.zero {
			continue
		}
		if best == nil || s.round < best.sets[id.set].round || s.round == best.sets[id.set].round && s.filed < best.sets[id.set].filed {
			best = f
		}
	}
	return best
}

// next is the flow whose turn it is, and nil when none is active.
func (r *rounds) next(set drr.SetID) *flow {
	id := clockID{set: set, zero: r.waiting(clockID{set: set}) == 0}
	for refiles := 0; ; refiles++ {
		f := r.head(id)
		if f == nil {
			return nil
		}
		s := f.sets[set]
		r.turn(id, f, s)
		if refiles == 4 {
			return f
		}
		s.deficit -= f.charged - s.seen
		s.seen = f.charged
		if s.deficit > 0 {
			r.back(f, set, s)
			return f
		}
		r.forward(f, s, s.round+r.foreign(f))
		r.file(s)
	}
}

// turn moves the round on: to the head's when others wait too, else as far as was charged while none did, and to where the head's debt is
// eight of its largest charges.
func (r *rounds) turn(id clockID, f *flow, s *standing) {
	c := r.clockOf(id)
	alone := r.waiting(id) == 1
	for c.now < s.round {
		if alone && c.due <= 0 && s.round-c.now <= 8*f.largest/r.share(f.weight) {
			break
		}
		c.due--
		c.now++
	}
	c.due = 0
}

// charge takes a cost from the flow; granted says that it is a dispatch's and not a settlement's.
func (r *rounds) charge(f *flow, set drr.SetID, cost int64, granted bool) {
	s, c := r.standing(f, set), r.clock(f, set)
	id := clockID{set: set, zero: f.weight == 0}
	f.charged += cost
	s.seen += cost
	f.largest = max(f.largest, cost)
	if n := r.waiting(id); n == 0 || n == 1 && s.active {
		c.part += cost
		for c.part >= r.share(f.weight) {
			c.part -= r.share(f.weight)
			c.due++
		}
		if granted {
			c.due++
		}
	}
	if s.deficit -= cost; s.deficit <= 0 {
		r.forward(f, s, 1<<62)
		r.file(s)
		// A charge that empties the deficit can leave the flow alone or not as before: whether it waits does not change.
	}
	if granted && f.weight == 0 {
		r.pass(clockID{set: set}, cost)
	}
}

func (r *rounds) refund(f *flow, set drr.SetID, cost int64) {
	s := r.standing(f, set)
	f.charged -= cost
	s.seen -= cost
	s.deficit += cost
	r.back(f, set, s)
}

// back moves a flow that has more than a quantum to an earlier round, not before the present one.
func (r *rounds) back(f *flow, set drr.SetID, s *standing) {
	moved := false
	for s.deficit > r.share(f.weight) && s.round > r.clock(f, set).now {
		s.deficit -= r.share(f.weight)
		s.round--
		moved = true
	}
	if moved {
		r.file(s)
	}
}

// idle lets free time pass: in each order that nobody waits in, and in that of weight zero only when nobody waits at all.
func (r *rounds) idle(set drr.SetID, time int64) {
	empty := r.waiting(clockID{set: set}) == 0
	r.pass(clockID{set: set}, time)
	if empty {
		r.pass(clockID{set: set, zero: true}, time)
	}
}

func (r *rounds) pass(id clockID, time int64) {
	if r.waiting(id) > 0 {
		return
	}
	c := r.clockOf(id)
	c.idle += time
	for c.idle >= r.quantum {
		c.idle -= r.quantum
		c.now++
	}
}

// reweigh gives a flow another weight: what it has spent since the present round began is kept, and paid at the new one.
func (r *rounds) reweigh(f *flow, w cell.Weight) {
	if w == f.weight {
		return
	}
	old := f.weight
	for set, s := range f.sets {
		f.weight = old
		now := r.clock(f, set).now
		f.weight = w
		if s.round < now {
			delete(f.sets, set)
			continue
		}
		spent := (s.round-now)*r.share(old) + r.share(old) - s.deficit
		s.round, s.deficit = r.clock(f, set).now, r.share(w)-spent
		r.forward(f, s, 1<<62)
		r.file(s)
	}
	f.weight = w
}
