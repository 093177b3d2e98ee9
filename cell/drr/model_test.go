package drr_test

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell/drr"
)

// model is the discipline written down as plainly as possible: rounds are turned one by one, quanta are added one by
// one, and the next flow is found by looking at all of them.
type model struct {
	quantum int64
	flows   []*modelFlow
	now     map[modelRing]int64
	idle    map[modelRing]int64
	due     map[modelRing]int64
	part    map[modelRing]int64
	filings int
}

// modelRing is one order of flows: those of positive weight in a set, or those of weight zero.
type modelRing struct {
	set  drr.SetID
	zero bool
}

type modelFlow struct {
	id      int
	weight  drr.Weight
	charged int64
	largest int64
	sets    map[drr.SetID]*modelEntry
}

type modelEntry struct {
	rho, d, seen int64
	active       bool
	filed        int
}

func newModel(quantum int64) *model {
	return &model{
		quantum: quantum, now: map[modelRing]int64{}, idle: map[modelRing]int64{},
		due: map[modelRing]int64{}, part: map[modelRing]int64{},
	}
}

func (m *model) qw(w drr.Weight) int64 {
	if w == 0 {
		return m.quantum
	}
	return m.quantum * int64(w) / 1000
}

func (m *model) ring(f *modelFlow, set drr.SetID) modelRing {
	return modelRing{set: set, zero: f.weight == 0}
}

func (m *model) file(e *modelEntry) {
	m.filings++
	e.filed = m.filings
}

// forward gives quanta until the deficit is positive; rounds beyond the limit are forgiven.
func (m *model) forward(e *modelEntry, qw, limit int64) {
	for e.d <= 0 {
		e.d += qw
		if e.rho < limit {
			e.rho++
		}
	}
}

// entry is the flow's account, brought to the present.
func (m *model) entry(f *modelFlow, set drr.SetID) *modelEntry {
	now := m.now[m.ring(f, set)]
	e := f.sets[set]
	if e == nil {
		e = &modelEntry{rho: now, d: m.qw(f.weight), seen: f.charged}
		f.sets[set] = e
	}
	if e.active || e.rho >= now {
		return e
	}
	e.d -= f.charged - e.seen
	e.seen = f.charged
	m.forward(e, m.qw(f.weight), now+m.foreignMax(f))
	if e.rho < now {
		e.rho, e.d = now, m.qw(f.weight)
	}
	return e
}

func (m *model) foreignMax(f *modelFlow) int64 {
	return max(256, 5*f.largest/m.qw(f.weight))
}

func (m *model) activate(f *modelFlow, set drr.SetID) {
	if e := m.entry(f, set); !e.active {
		e.active = true
		m.file(e)
	}
}

func (m *model) deactivate(f *modelFlow, set drr.SetID) {
	if e := f.sets[set]; e != nil {
		e.active = false
	}
}

func (m *model) head(r modelRing) *modelFlow {
	var best *modelFlow
	for _, f := range m.flows {
		e := f.sets[r.set]
		if e == nil || !e.active || m.ring(f, r.set) != r {
			continue
		}
		if best == nil || e.rho < best.sets[r.set].rho ||
			e.rho == best.sets[r.set].rho && e.filed < best.sets[r.set].filed {
			best = f
		}
	}
	return best
}

func (m *model) next(set drr.SetID) *modelFlow {
	r := modelRing{set: set}
	if m.head(r) == nil {
		r.zero = true
	}
	for refiles := 0; ; refiles++ {
		f := m.head(r)
		if f == nil {
			return nil
		}
		e := f.sets[set]
		m.turn(r, f, e)
		if refiles == 4 {
			return f
		}
		e.d -= f.charged - e.seen
		e.seen = f.charged
		if e.d > 0 {
			m.back(f, set, e)
			return f
		}
		m.forward(e, m.qw(f.weight), e.rho+m.foreignMax(f))
		m.file(e)
	}
}

func (m *model) charge(f *modelFlow, set drr.SetID, cost int64) {
	e, r := m.entry(f, set), m.ring(f, set)
	f.charged += cost
	e.seen += cost
	f.largest = max(f.largest, cost)
	if n := m.waiting(r); n == 0 || n == 1 && e.active {
		m.part[r] += cost
		for m.part[r] >= m.qw(f.weight) {
			m.part[r] -= m.qw(f.weight)
			m.due[r]++
		}
	}
	e.d -= cost
	if e.d <= 0 {
		m.forward(e, m.qw(f.weight), 1<<62)
		m.file(e)
	}
}

// grant is the charge of a dispatch.
func (m *model) grant(f *modelFlow, set drr.SetID, cost int64) {
	m.charge(f, set, cost)
	if m.waiting(m.ring(f, set)) == 1 {
		m.due[m.ring(f, set)]++
	}
}

func (m *model) waiting(r modelRing) int {
	n := 0
	for _, f := range m.flows {
		if e := f.sets[r.set]; e != nil && e.active && m.ring(f, r.set) == r {
			n++
		}
	}
	return n
}

// turn moves the round on: to the head's if others wait too, else as far as was charged while none did, and to where
// the head's debt is eight of its largest charges.
func (m *model) turn(r modelRing, f *modelFlow, head *modelEntry) {
	alone := m.waiting(r) == 1
	for m.now[r] < head.rho {
		if alone && m.due[r] <= 0 && head.rho-m.now[r] <= 8*f.largest/m.qw(f.weight) {
			break
		}
		m.due[r]--
		m.now[r]++
	}
	m.due[r] = 0
}

func (m *model) refund(f *modelFlow, set drr.SetID, cost int64) {
	e := m.entry(f, set)
	f.charged -= cost
	e.seen -= cost
	e.d += cost
	m.back(f, set, e)
}

func (m *model) back(f *modelFlow, set drr.SetID, e *modelEntry) {
	moved := false
	for e.d > m.qw(f.weight) && e.rho > m.now[m.ring(f, set)] {
		e.d -= m.qw(f.weight)
		e.rho--
		moved = true
	}
	if moved {
		m.file(e)
	}
}

func (m *model) pass(r modelRing, time int64) {
	if m.head(r) != nil {
		return
	}
	m.idle[r] += time
	for m.idle[r] >= m.quantum {
		m.idle[r] -= m.quantum
		m.now[r]++
	}
}

func (m *model) setWeight(f *modelFlow, w drr.Weight, sets drr.SetID) {
	if w == f.weight {
		return
	}
	old := f.weight
	for set := range sets {
		e := f.sets[set]
		if e == nil {
			continue
		}
		f.weight = old
		now := m.now[m.ring(f, set)]
		f.weight = w
		if e.rho < now {
			delete(f.sets, set)
			continue
		}
		spent := (e.rho-now)*m.qw(old) + m.qw(old) - e.d
		e.rho, e.d = m.now[m.ring(f, set)], m.qw(w)-spent
		m.forward(e, m.qw(w), 1<<62)
		m.file(e)
	}
	f.weight = w
}

// TestRingEqualsModel runs random commands against the ring and the model, and wants the same flow in the same order,
// the same accounts and the same rounds, whatever the costs, weights, sets, idle times and the wheel's size.
func TestRingEqualsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newTwins(t, nil, rapid.IntRange(1, 4).Draw(t, "sets"))
		t.Repeat(map[string]func(*rapid.T){
			"activate":       w.activate,
			"deactivate":     w.deactivate,
			"dispatch":       w.dispatch,
			"dispatch again": w.dispatch,
			"overrun":        w.overrun,
			"refund":         w.refund,
			"idle":           w.idle,
			"weight":         w.reweigh,
			"": func(t *rapid.T) {
				if err := errors.Join(w.ring.Check(), w.compare()); err != nil {
					t.Fatal(err)
				}
			},
		})
	})
}

// twins is a ring and its model, with the same flows.
type twins struct {
	ring   *drr.Ring[int]
	model  *model
	flows  []*drr.Flow[int]
	sets   drr.SetID
	weight *rapid.Generator[drr.Weight]
	cost   *rapid.Generator[int64]
}

func newTwins(t *rapid.T, clock *drr.IdleClock, sets int) *twins {
	const quantum = 1000
	rounds := rapid.SampledFrom([]int{0, 64, 128, 1024, drr.RoundsMax}).Draw(t, "rounds")
	w := &twins{
		ring:   ringOf(t, drr.Config{Quantum: quantum, FlowsMax: 10, Rounds: rounds, Idle: clock}, sets),
		model:  newModel(quantum),
		sets:   drr.SetID(sets),
		weight: rapid.SampledFrom([]drr.Weight{0, 100, 500, 1000, 1000, 1000, 2000, 5000, 1_000_000}),
		// From well inside a quantum to beyond the wheel: a cost of 10^7 is 10,000 rounds at a weight of one.
		cost: rapid.OneOf(rapid.Int64Range(1, 3000), rapid.Int64Range(1, 100_000),
			rapid.SampledFrom([]int64{quantum, 2 * quantum, 64 * quantum, 65 * quantum, 128 * quantum, 10_000_000})),
	}
	for i := range rapid.IntRange(1, 8).Draw(t, "flows") {
		weight := w.weight.Draw(t, "weight")
		w.flows = append(w.flows, must(w.ring.NewFlow(i, weight))(t))
		w.model.flows = append(w.model.flows, &modelFlow{id: i, weight: weight, sets: map[drr.SetID]*modelEntry{}})
	}
	return w
}

func (w *twins) pick(t *rapid.T) (*drr.Flow[int], *modelFlow, drr.SetID) {
	i := rapid.IntRange(0, len(w.flows)-1).Draw(t, "flow")
	return w.flows[i], w.model.flows[i], w.set(t)
}

func (w *twins) set(t *rapid.T) drr.SetID {
	return drr.SetID(rapid.Uint8Range(0, uint8(w.sets)-1).Draw(t, "set"))
}

func (w *twins) activate(t *rapid.T) {
	f, m, set := w.pick(t)
	w.ring.Activate(f, set)
	w.model.activate(m, set)
}

func (w *twins) deactivate(t *rapid.T) {
	f, m, set := w.pick(t)
	w.ring.Deactivate(f, set)
	w.model.deactivate(m, set)
}

func (w *twins) dispatch(t *rapid.T) {
	set := w.set(t)
	f, ok := w.ring.Next(set)
	want := w.model.next(set)
	if ok != (want != nil) || ok && f.Value != want.id {
		t.Fatalf("next in set %d: flow %v, want %v", set, f, want)
	}
	if ok {
		c := w.cost.Draw(t, "cost")
		w.ring.Charge(f, set, c)
		w.model.grant(want, set, c)
		if want.weight == 0 {
			w.model.pass(modelRing{set: set}, c)
		}
	}
}

func (w *twins) overrun(t *rapid.T) {
	f, m, set := w.pick(t)
	c := w.cost.Draw(t, "cost")
	w.ring.Settle(f, set, c)
	w.model.charge(m, set, c)
}

func (w *twins) refund(t *rapid.T) {
	f, m, set := w.pick(t)
	c := w.cost.Draw(t, "cost")
	w.ring.Settle(f, set, -c)
	w.model.refund(m, set, c)
}

func (w *twins) idle(t *rapid.T) {
	set, c := w.set(t), w.cost.Draw(t, "time")
	w.ring.Idle(set, c)
	w.model.free(set, c)
}

// free is free time of a server with the set's offer.
func (m *model) free(set drr.SetID, time int64) {
	busy := m.head(modelRing{set: set}) != nil
	m.pass(modelRing{set: set}, time)
	if !busy {
		m.pass(modelRing{set: set, zero: true}, time)
	}
}

func (w *twins) reweigh(t *rapid.T) {
	f, m, _ := w.pick(t)
	weight := w.weight.Draw(t, "weight")
	if err := w.ring.SetWeight(f, weight); err != nil {
		t.Fatal(err)
	}
	w.model.setWeight(m, weight, w.sets)
}

func (w *twins) compare() error {
	m := w.model
	for set := range w.sets {
		if got, want := w.ring.Round(set), m.now[modelRing{set: set}]; got != want {
			return fmt.Errorf("set %d: round %d, want %d", set, got, want)
		}
		for i, f := range w.flows {
			a, e := f.Account(set), m.flows[i].sets[set]
			if a.Charged != m.flows[i].charged {
				return fmt.Errorf("flow %d: charged %d, want %d", i, a.Charged, m.flows[i].charged)
			}
			if e == nil {
				if a.Behind != drr.NoStanding {
					return fmt.Errorf("flow %d set %d: account %+v, want none", i, set, a)
				}
				continue
			}
			behind := e.rho - m.now[m.ring(m.flows[i], set)]
			if a.Behind != behind || a.Deficit != e.d || a.Unseen != m.flows[i].charged-e.seen || f.Active(set) != e.active {
				return fmt.Errorf("flow %d set %d: account %+v active %t, want behind %d deficit %d unseen %d active %t",
					i, set, a, f.Active(set), behind, e.d, m.flows[i].charged-e.seen, e.active)
			}
		}
	}
	return nil
}

// must returns a value, or ends the test at an error.
func must[T any](v T, err error) func(interface{ Fatal(...any) }) T {
	return func(t interface{ Fatal(...any) }) T {
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
