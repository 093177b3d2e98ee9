package leader

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	"github.com/fairlead/fairlead/cell/sched"
)

// twins is how many pairs of worlds each test runs; a seed is the number of its pair.
var twins = flag.Uint64("twins", 6, "how many pairs of worlds with moving lanes to run")

// twin is two cells, between which lanes move while they work: there, back, and there again, given up half-way, and with leaders that change under
// way. What a gateway, control and a mover do is done here, by the book but in the simplest way. Both worlds have one clock.
type twin struct {
	tb     testing.TB
	rng    *rand.Rand
	sides  [2]*chaosRun
	homes  map[cell.Lane]*home
	epoch  cell.Epoch
	moves  map[cell.Lane]*move
	gentle bool
	opened, unfenced, reversed, released,
	redirected, imported, inherited int
}

// home is where a lane is by control's record.
type home struct {
	side  int
	epoch cell.Epoch
	// stale is what a gateway that was cut off believes: it is told better by those it asks.
	staleSide int
	stale     cell.Epoch
}

// move is one lane's move.
type move struct {
	t        *twin
	lane     cell.Lane
	name     cell.Move
	from, to int
	cursor   engine.Cursor
	rounds   int
	policy   cell.TenantPolicy
	staged   cell.Epoch
}

func newTwin(t *testing.T, seed uint64, gentle bool) *twin {
	t.Helper()
	x := &twin{tb: t, rng: rand.New(rand.NewPCG(seed, 7)), homes: map[cell.Lane]*home{}, moves: map[cell.Lane]*move{}, gentle: gentle}
	for i := range x.sides {
		cfg := testConfig()
		cfg.EntryBytesMax, cfg.CallBytesPerEntry = 3000, 500
		cfg.GrantsPerEntryMax = 1 + x.rng.IntN(20)
		for k := range cfg.Sched.Bulkheads {
			if x.rng.IntN(2) == 0 {
				cfg.Sched.Bulkheads[k].PreemptAfter = time.Duration(1+x.rng.IntN(3000)) * time.Millisecond
			}
		}
		if seed%8 == 7 {
			cfg.Sched.Policy = sched.PolicyFIFO
		}
		limits := engine.DefaultLimits()
		limits.TimersPerEntryMax = 1 + x.rng.IntN(50)
		w := newWorld(t, cfg, limits, seed*2+uint64(i))
		w.twin, w.side = x, i
		w.commit = func() time.Duration { return time.Duration(w.rng.IntN(4)) * time.Millisecond }
		x.sides[i] = &chaosRun{world: w, rng: x.rng, gentle: gentle, ops: []cell.Operation{"op", "pdf", "mail"}}
		if !gentle {
			x.sides[i].lossy = 0.1 * float64(x.rng.IntN(3))
			x.sides[i].loseEntries(0.01 * float64(x.rng.IntN(2)))
		}
		w.organization(cell.OrganizationPolicy{Organization: "holding", Weight: 1000})
	}
	x.sides[1].plans, x.sides[1].names = x.sides[0].plans, x.sides[0].names
	for i, name := range twinTenants() {
		side := i % 2
		x.sides[side].tenant(x.policy(name))
		for _, c := range cell.Classes() {
			x.homes[cell.Lane{Tenant: name, Class: c}] = &home{side: side, staleSide: side}
		}
	}
	x.runFor(time.Second)
	for range 3 {
		x.sides[0].join()
		x.sides[1].join()
	}
	return x
}

func twinTenants() []cell.TenantID { return []cell.TenantID{"a", "b", "c", "d"} }

// next returns an epoch above all before: of lanes and policies alike.
func (x *twin) next() cell.Epoch {
	x.epoch++
	return x.epoch
}

func (x *twin) policy(name cell.TenantID) cell.TenantPolicy {
	p := x.sides[0].policy(name)
	p.Epoch = x.next()
	return p
}

// run lets time pass in both worlds.
func (x *twin) run(until cell.Instant) {
	x.tb.Helper()
	for {
		next := until + 1
		for _, s := range x.sides {
			s.pump()
			if len(s.events) > 0 {
				next = min(next, s.events[0].at)
			}
			if s.wakeAt != 0 && !s.lead.InFlight() {
				next = min(next, s.wakeAt)
			}
		}
		if next > until {
			next = until
		}
		done := true
		for _, s := range x.sides {
			s.now = max(s.now, next)
			for len(s.events) > 0 && s.events[0].at <= s.now {
				s.nextEvent()
				done = false
			}
			done = done && (s.wakeAt == 0 || s.wakeAt > s.now || s.lead.InFlight())
		}
		if done && next == until {
			return
		}
	}
}

func (x *twin) runFor(d time.Duration) { x.run(x.sides[0].now.Add(d)) }

// side returns the world that a gateway asks for a lane, and what it says that it knows: mostly what is so, sometimes nothing, sometimes what was.
func (x *twin) side(lane cell.Lane) (*chaosRun, Epochs) {
	h := x.homes[lane]
	side, epoch := h.side, h.epoch
	switch x.rng.IntN(8) {
	case 0:
		epoch = 0
	case 1:
		side, epoch = h.staleSide, h.stale
	}
	var known Epochs
	known[lane.Class.Index()] = epoch
	return x.sides[side], known
}

// owner is side for what a lease's worker says, which goes to the home by the table alone: who never had the lease knows nothing of it.
func (x *twin) owner(lane cell.Lane) (*chaosRun, Epochs) {
	h := x.homes[lane]
	var known Epochs
	if x.rng.IntN(2) == 0 {
		known[lane.Class.Index()] = h.epoch
	}
	return x.sides[h.side], known
}

// told lets a gateway learn where the lane is, after it was told that it is not where it thought.
func (x *twin) told(lane cell.Lane) {
	h := x.homes[lane]
	h.staleSide, h.stale = h.side, h.epoch
	x.redirected++
}

func isLane(err error) bool { return errors.As(err, new(*engine.LaneError)) }

// send submits each lane's jobs at its home, and again until there is an answer that is not of the lane.
func (x *twin) send(s *Submit, plans []*plan) {
	byLane := map[cell.Lane][]int{}
	var lanes []cell.Lane
	for i := range s.Items {
		lane := cell.Lane{Tenant: s.Items[i].Tenant, Class: s.Items[i].Class}
		if byLane[lane] == nil {
			lanes = append(lanes, lane)
		}
		byLane[lane] = append(byLane[lane], i)
	}
	for _, lane := range lanes {
		part := &Submit{}
		var of []*plan
		for _, i := range byLane[lane] {
			part.Items = append(part.Items, s.Items[i])
			of = append(of, plans[i])
		}
		x.sendTo(lane, part, of)
	}
}

func (x *twin) sendTo(lane cell.Lane, s *Submit, plans []*plan) {
	to, known := x.side(lane)
	c := &Call{Submit: &Submit{Items: append([]engine.SubmitFact(nil), s.Items...), Epochs: known}}
	to.call(c, func() {
		again := &Submit{}
		var of []*plan
		for i, p := range plans {
			r := engine.Result{Err: c.Err}
			if c.Err == nil {
				r = c.Submit.Results[i]
			}
			if c.Err != nil || isLane(r.Err) {
				again.Items, of = append(again.Items, s.Items[i]), append(of, p)
				continue
			}
			if errors.Is(r.Err, engine.ErrJobIDTaken) && to.state.Job(p.id) != nil {
				r = engine.Result{JobID: p.id, Duplicate: true}
			}
			p.result, p.answered = r, true
		}
		if len(of) > 0 {
			x.told(lane)
			to.after(x.soon(), rankArrive, func() { x.sendTo(lane, again, of) })
		}
	})
}

// soon is how long a gateway waits before it asks again.
func (x *twin) soon() time.Duration { return time.Duration(1+x.rng.IntN(20)) * time.Millisecond }

// laneOf returns the lane of a plan's job.
func (p *plan) lane() cell.Lane { return cell.Lane{Tenant: p.tenant, Class: p.class} }

// reported takes what a cell does not have of a report to where it is, and the answer to the worker once it is whole.
func (x *twin) reported(k *worker, r *Report, c *Call) {
	if c.Err != nil {
		k.reported(r, c)
		return
	}
	waits := 1
	done := func() {
		if waits--; waits == 0 {
			k.reported(r, c)
		}
	}
	for i := range c.Report.Outcomes {
		if isLane(c.Report.Results[i].Err) {
			waits++
			x.forward(k, r, &c.Report.Outcomes[i], &c.Report.Results[i], done)
		}
	}
	for _, ref := range c.Report.Elsewhere {
		waits++
		x.extend(k, r, c, ref, done)
	}
	done()
}

// forward puts an outcome to the home of its job's lane, until it is answered there.
func (x *twin) forward(k *worker, r *Report, o *Outcome, result *engine.Result, done func()) {
	lane := k.w.plans[o.JobID].lane()
	to, known := x.owner(lane)
	to.after(x.soon(), rankArrive, func() {
		c := &Call{Report: &Report{Session: r.Session, Epochs: known, Outcomes: []Outcome{*o}}}
		to.call(c, func() {
			if c.Err != nil || isLane(c.Report.Results[0].Err) {
				x.told(lane)
				x.forward(k, r, o, result, done)
				return
			}
			*result = c.Report.Results[0]
			done()
		})
	})
}

// extend puts an extension to the home of its job's lane, until it is answered there.
func (x *twin) extend(k *worker, r *Report, answer *Call, ref LeaseRef, done func()) {
	lane := k.w.plans[ref.JobID].lane()
	to, known := x.owner(lane)
	to.after(x.soon(), rankArrive, func() {
		c := &Call{Report: &Report{Session: r.Session, Epochs: known, Extensions: []LeaseRef{ref}}}
		to.call(c, func() {
			if c.Err != nil || len(c.Report.Elsewhere) > 0 {
				x.told(lane)
				x.extend(k, r, answer, ref, done)
				return
			}
			answer.Report.Cancels = append(answer.Report.Cancels, c.Report.Cancels...)
			done()
		})
	})
}

// ask makes a call at a side until its leader answers, and then goes on.
func (x *twin) ask(side int, make func() *Call, then func(*engine.Result)) {
	c := make()
	s := x.sides[side]
	s.call(c, func() {
		if c.Err != nil {
			s.after(10*time.Millisecond, rankArrive, func() { x.ask(side, make, then) })
			return
		}
		_, r := c.fact()
		s.after(time.Duration(x.rng.IntN(30))*time.Millisecond, rankArrive, func() { then(r) })
	})
}

// start begins to move a lane, unless it moves.
func (x *twin) start(lane cell.Lane) {
	if x.moves[lane] != nil {
		return
	}
	h := x.homes[lane]
	m := &move{t: x, lane: lane, from: h.side, to: 1 - h.side, rounds: x.rng.IntN(5)}
	m.name = cell.Move{Migration: cell.MigrationID(fmt.Sprint("m", x.next())), Attempt: 1}
	m.policy = x.sides[m.from].state.Tenant(lane.Tenant).Policy
	m.policy.Epoch = x.next()
	m.staged = x.next()
	x.moves[lane] = m
	x.ask(m.to, func() *Call {
		return &Call{Stage: &Stage{Fact: engine.StageFact{Lane: lane, Policy: m.policy, Move: m.name, Epoch: m.staged}}}
	}, func(r *engine.Result) {
		if r.Err != nil { // its tenant does not fit
			if isLane(r.Err) || errors.Is(r.Err, engine.ErrLaneFilled) || errors.Is(r.Err, engine.ErrMoveStale) {
				m.fatal("staged: %v", r.Err)
			}
			delete(x.moves, lane)
			return
		}
		m.track(m.from, false, m.seed)
	})
}

func (m *move) fatal(format string, args ...any) {
	m.t.tb.Helper()
	m.t.tb.Fatalf("at %v: %v of %v from %d to %d: %s", m.t.sides[0].since(m.t.sides[0].now), m.name, m.lane, m.from, m.to, fmt.Sprintf(format, args...))
}

func (m *move) track(side int, off bool, then func()) {
	m.t.ask(side, func() *Call {
		return &Call{Track: &Track{Fact: engine.TrackFact{Lane: m.lane, Move: m.name, Off: off}}}
	}, func(r *engine.Result) {
		if r.Err != nil {
			m.fatal("tracked, off %v: %v", off, r.Err)
		}
		then()
	})
}

// copy takes one chunk from one side to the other, and says whether that has everything then.
func (m *move) copy(from, to int, then func(all bool)) {
	src := m.t.sides[from].state
	size := 200 + m.t.rng.IntN(4000)
	records, _, next, err := src.Export(m.lane, m.cursor, size, 1+m.t.rng.IntN(50))
	if err != nil {
		m.fatal("exported from %+v: %v", m.cursor, err)
	}
	if next == m.cursor {
		then(next == engine.Cursor{Seeded: engine.SeededAll, Change: src.Lane(m.lane).Change})
		return
	}
	begin := m.cursor
	m.t.ask(to, func() *Call {
		return &Call{Import: &Import{Fact: engine.ImportFact{Lane: m.lane, Move: m.name, Begin: begin, End: next, Records: records}}}
	}, func(r *engine.Result) {
		switch {
		case errors.Is(r.Err, engine.ErrCursor) && r.Cursor == next: // a repetition of one that had been applied
		case r.Err != nil:
			m.fatal("imported from %+v to %+v, at %+v: %v", begin, next, r.Cursor, r.Err)
		}
		m.t.imported++
		m.cursor = next
		then(next == engine.Cursor{Seeded: engine.SeededAll, Change: src.Lane(m.lane).Change})
	})
}

// copyAll copies until there is nothing more.
func (m *move) copyAll(from, to int, then func()) {
	m.copy(from, to, func(all bool) {
		if all {
			then()
		} else {
			m.copyAll(from, to, then)
		}
	})
}

func (m *move) mode(side int, mode cell.Mode, epoch cell.Epoch, then func()) {
	m.t.ask(side, func() *Call {
		return &Call{Mode: &Mode{Fact: engine.ModeFact{Lane: m.lane, Mode: mode, Epoch: epoch, Move: m.name, Share: 500}}}
	}, func(r *engine.Result) {
		if r.Err != nil {
			m.fatal("%v at %d: %v", mode, epoch, r.Err)
		}
		then()
	})
}

// seed copies while the source works, and then fences it.
func (m *move) seed() {
	m.copyAll(m.from, m.to, func() {
		if m.rounds--; m.rounds > 0 {
			m.t.sides[m.from].after(time.Duration(m.t.rng.IntN(800))*time.Millisecond, rankArrive, m.seed)
			return
		}
		m.fence(m.from, m.to, m.decide)
	})
}

// fence fences one side, and goes on when the other has everything of it, and the same.
func (m *move) fence(from, to int, then func()) {
	m.mode(from, cell.ModeFenced, m.t.next(), func() {
		m.copyAll(from, to, func() {
			m.compare(from, to)
			then()
		})
	})
}

func (m *move) compare(from, to int) {
	var sums [2]engine.LaneDigest
	for i, side := range []int{from, to} {
		s := m.t.sides[side].state
		for !s.AdvanceDigest(m.lane, 100) {
		}
		sum, whole := s.Digest(m.lane)
		if !whole {
			m.fatal("the digest of %d is not whole", side)
		}
		sums[i] = sum
	}
	if sums[0] != sums[1] {
		m.fatal("the copy has another digest")
	}
}

// decide is control's: the lane moves, or nothing comes of it.
func (m *move) decide() {
	x := m.t
	h := x.homes[m.lane]
	if x.rng.IntN(4) == 0 {
		x.unfenced++
		h.epoch = x.next()
		m.mode(m.from, cell.ModeOpen, h.epoch, func() {
			m.mode(m.to, cell.ModeTombstone, x.next(), func() {
				m.track(m.from, true, func() { m.wipe(m.to, m.end) })
			})
		})
		return
	}
	x.opened++
	h.side, h.epoch = m.to, x.next()
	x.inherited += int(x.sides[m.to].state.Lane(m.lane).Count(engine.Leased))
	m.mode(m.to, cell.ModeOpen, h.epoch, func() {
		m.mode(m.from, cell.ModeStandby, h.epoch, func() {
			m.rounds = x.rng.IntN(5)
			m.follow()
		})
	})
}

// follow feeds the old home, and then gives it the lane back, or lets it go.
func (m *move) follow() {
	x := m.t
	m.copyAll(m.to, m.from, func() {
		if m.rounds--; m.rounds > 0 {
			x.sides[m.from].after(time.Duration(x.rng.IntN(2000))*time.Millisecond, rankArrive, m.follow)
			return
		}
		if x.rng.IntN(3) > 0 {
			m.release()
			return
		}
		x.reversed++
		m.fence(m.to, m.from, func() {
			h := x.homes[m.lane]
			h.side, h.epoch = m.from, x.next()
			m.mode(m.from, cell.ModeOpen, h.epoch, func() {
				m.mode(m.to, cell.ModeTombstone, h.epoch, func() {
					m.drained(m.from, func() { m.wipe(m.to, m.end) })
				})
			})
		})
	})
}

// release lets the old home go, once the leases that were inherited from it have ended.
func (m *move) release() {
	m.drained(m.to, func() {
		m.t.released++
		m.mode(m.from, cell.ModeTombstone, m.t.homes[m.lane].epoch, func() {
			m.track(m.to, true, func() { m.wipe(m.from, m.end) })
		})
	})
}

// drained goes on once a side has no leases any more that it inherited.
func (m *move) drained(side int, then func()) {
	x := m.t
	left := false
	state := x.sides[side].state
	state.Jobs(func(j *engine.Job) bool {
		left = left || j.Lane.ID == m.lane && j.State == engine.Leased && j.Lease.Token.Epoch < x.homes[m.lane].epoch
		return !left
	})
	if left {
		x.sides[side].after(time.Second, rankArrive, func() { m.drained(side, then) })
		return
	}
	then()
}

func (m *move) wipe(side int, then func()) {
	m.t.ask(side, func() *Call {
		return &Call{Wipe: &Wipe{Fact: engine.WipeFact{Lane: m.lane, Move: m.name, Max: 1 + m.t.rng.IntN(40)}}}
	}, func(r *engine.Result) {
		switch {
		case r.Err != nil:
			m.fatal("wiped: %v", r.Err)
		case r.Left > 0:
			m.wipe(side, then)
		default:
			then()
		}
	})
}

func (m *move) end() { delete(m.t.moves, m.lane) }
