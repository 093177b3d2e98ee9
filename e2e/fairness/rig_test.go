package fairness

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	"github.com/fairlead/fairlead/cell/leader"
)

var errLost = errors.New("the entry was lost")

// rig is one cell on a virtual clock: the leader and the state that run in production, a log that encodes and decodes each entry, and
// workers. It holds the cell to its invariants after every entry.
type rig struct {
	clock

	tb     tester
	cfg    leader.Config
	rng    *rand.Rand
	state  *engine.State
	lead   *leader.Leader
	index  uint64
	commit time.Duration // how long an entry takes to be durable
	lose   lost          // what becomes of the next entry
	wake   cell.Instant
	flying bool

	plans   map[cell.JobID]*plan
	order   []*plan
	workers []*worker
	granted []cell.JobID // by the log
	starts  []start
	bounds  bounds
	looks   int
}

// lost says what becomes of an entry.
type lost int

const (
	lostNot     lost = iota
	lostWhole        // it is in no log
	lostApplied      // it is, but its leader does not know
)

// plan is what becomes of a job once it runs, and what became of it.
type plan struct {
	id     cell.JobID
	name   string
	tenant cell.TenantID
	class  cell.Class
	spec   engine.Spec
	run    time.Duration
	used   *cell.Resources // what its worker says that it used
	fails  int             // attempts that fail before one succeeds
	kills  bool            // it takes its worker down
	at     cell.Instant
	began  cell.Instant // when it ran first
	result engine.Result
	ended  int
}

// start is an attempt's beginning, and its end once it has one.
type start struct {
	at, end cell.Instant
	plan    *plan
	worker  *worker
}

func newRig(tb tester, cfg leader.Config, seed uint64) *rig {
	state, err := engine.New(cfg.Limits)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	r := &rig{
		clock: clock{now: epoch}, tb: tb, cfg: cfg, rng: rand.New(rand.NewPCG(seed, 7)), state: state,
		plans: map[cell.JobID]*plan{}, bounds: newBounds(),
	}
	r.elect()
	return r
}

// elect makes a leader anew from the state.
func (r *rig) elect() {
	lead, err := leader.New(r.cfg, r.state, r.now)
	if err != nil {
		r.tb.Fatalf("%v", err)
	}
	r.lead, r.flying = lead, false
	r.look(true)
}

// after has something done after a time.
func (r *rig) after(d time.Duration, rank int, do func()) { r.at(r.now.Add(d), rank, do) }

// run lets time pass, up to and including what happens at the end of it.
func (r *rig) run(d time.Duration) {
	until := r.now.Add(d)
	r.pump()
	for {
		next, ok := r.due()
		if r.wake != 0 && !r.flying && (!ok || r.wake < next) {
			next, ok = r.wake, true
		}
		if !ok || next > until {
			r.now = until
			return
		}
		r.now = max(r.now, next)
		r.step()
		r.pump()
	}
}

// call hands a call to the leader, with what to do when it is done.
func (r *rig) call(c *leader.Call, done func()) {
	c.Owner = done
	r.lead.Enqueue(c)
}

// pump seals entries until nothing needs one now.
func (r *rig) pump() {
	for range 100_000 {
		if r.flying {
			return
		}
		entry, done := r.lead.Seal(r.now, r.rng.Uint64())
		r.finish(done)
		if entry == nil {
			if r.wake = r.lead.Wake(); r.wake != 0 && r.wake <= r.now {
				continue
			}
			r.look(false)
			return
		}
		data := engine.AppendEntry(nil, entry)
		if r.commit == 0 {
			r.settle(data)
			continue
		}
		r.flying = true
		r.after(r.commit, rankDue, func() {
			r.flying = false
			r.settle(data)
		})
	}
	r.tb.Fatalf("at %v: the leader never comes to rest", r.since(r.now))
}

// settle commits an entry, or loses it.
func (r *rig) settle(data []byte) {
	how := r.lose
	r.lose = lostNot
	if how == lostNot {
		done, err := r.lead.Applied(r.now, r.apply(data))
		if err != nil {
			r.tb.Fatalf("at %v: %v", r.since(r.now), err)
		}
		r.look(false)
		r.finish(done)
		return
	}
	old := r.lead
	if how == lostApplied {
		r.apply(data)
	}
	done := old.Failed(errLost)
	r.elect()
	r.finish(done)
}

func (r *rig) apply(data []byte) engine.Applied {
	e, err := engine.DecodeEntry(data)
	if err != nil {
		r.tb.Fatalf("%v", err)
	}
	r.index++
	for _, f := range e.Facts {
		if g, ok := f.(*engine.GrantFact); ok {
			r.granted = append(r.granted, g.ID)
		}
	}
	a := r.state.Apply(r.index, e)
	for _, j := range a.Ended {
		if p := r.plans[j.ID]; p != nil {
			if p.ended++; p.ended > 1 {
				r.tb.Fatalf("%s ended twice", p.name)
			}
		}
	}
	return a
}

func (r *rig) finish(done []*leader.Call) {
	for _, c := range done {
		if do, ok := c.Owner.(func()); ok && do != nil {
			do()
		}
	}
}

// restart gives the leader up, and goes on from a snapshot of its state.
func (r *rig) restart() {
	walk, err := r.state.BeginSnapshot()
	if err != nil {
		r.tb.Fatalf("%v", err)
	}
	var snapshot bytes.Buffer
	for err == nil {
		var piece []byte
		piece, err = walk.Next(nil)
		snapshot.Write(piece)
	}
	if !errors.Is(err, io.EOF) {
		r.tb.Fatalf("%v", err)
	}
	before := r.state.Hash()
	if r.state, err = engine.Restore(r.state.Limits(), &snapshot); err != nil {
		r.tb.Fatalf("%v", err)
	}
	if r.state.Hash() != before {
		r.tb.Fatalf("the state that a snapshot restores is another")
	}
	old := r.lead
	r.elect()
	r.finish(old.Failed(errLost))
}

// look holds the cell to what must be true at any moment. A large world is looked at now and then: a look walks all of it.
func (r *rig) look(always bool) {
	r.looks++
	if r.flying || !always && len(r.order) > 200 && r.looks%(len(r.order)/8) != 0 {
		return
	}
	if err := errors.Join(r.lead.Check(), r.state.Check(), r.bounds.check(r)); err != nil {
		r.tb.Fatalf("at %v: %v", r.since(r.now), err)
	}
}

func (r *rig) since(at cell.Instant) time.Duration { return at.Sub(epoch) }

// submit hands jobs in as one call, which is repeated with the same ids until it has an answer.
func (r *rig) submit(plans ...*plan) {
	var items []engine.SubmitFact
	for _, p := range plans {
		binary.BigEndian.PutUint64(p.id[8:], uint64(len(r.order)+1))
		p.at = r.now
		r.order = append(r.order, p)
		r.plans[p.id] = p
		f := engine.SubmitFact{ID: p.id, Tenant: p.tenant, Class: p.class, Spec: p.spec}
		copy(f.BodyHash[:], fmt.Sprintf("%v %v", p.spec.Operation, p.run))
		items = append(items, f)
		r.bounds.submitted(p)
	}
	r.send(items, plans)
}

func (r *rig) send(items []engine.SubmitFact, plans []*plan) {
	c := &leader.Call{Submit: &leader.Submit{Items: slices.Clone(items)}}
	r.call(c, func() {
		if c.Err != nil {
			r.after(10*time.Millisecond, rankArrive, func() { r.send(items, plans) })
			return
		}
		for i, p := range plans {
			p.result = c.Submit.Results[i]
			if errors.Is(p.result.Err, engine.ErrJobIDTaken) && r.state.Job(p.id) != nil {
				p.result = engine.Result{JobID: p.id, Duplicate: true} // the lost entry had it
			}
		}
	})
}

// running returns how many attempts of jobs that match run in workers.
func (r *rig) running(match func(*plan) bool) int {
	n := 0
	for _, k := range r.workers {
		for _, a := range k.held {
			if a.running && match(a.plan) {
				n++
			}
		}
	}
	return n
}
