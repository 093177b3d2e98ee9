package leader

import (
	"bytes"
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	"github.com/fairlead/fairlead/cell/sched"
)

var errLost = errors.New("the entry was lost")

// world drives a leader and its state in virtual time, with a log that writes and reads each entry. At one instant completions come first,
// then arrivals, then whatever the leader seals.
type world struct {
	tb    testing.TB
	cfg   Config
	rng   *rand.Rand
	state *engine.State
	lead  *Leader
	now   cell.Instant
	index uint64
	// commit is how long an entry takes to be durable; loseEntry how likely it is to get lost, applied or not.
	commit    func() time.Duration
	loseEntry float64

	events  eventQueue
	pushed  uint64
	wakeAt  cell.Instant
	plans   map[cell.JobID]*plan
	order   []*plan // by acceptance, refused ones included
	names   map[string]*plan
	named   map[cell.TenantID]int
	workers []*worker
	ids     uint64
	starts  []start
	steps   int
	reasons map[Reason]int // why jobs waited at rest
	watch   func(*engine.Entry)
	twin    *twin // of which it is a side; nil of a world alone
	side    int
	// When each tenant's jobs were granted since its rate of starts last changed, and that rate.
	grants map[cell.TenantID][]cell.Instant
	rated  map[cell.TenantID]cell.StartRate
}

// plan is what the world has in mind with a job.
type plan struct {
	id       cell.JobID
	name     string
	tenant   cell.TenantID
	class    cell.Class
	run      time.Duration
	failures int  // attempts that fail before one succeeds
	failed   int  // attempts that have failed
	crashes  bool // it takes its worker down
	uses     *cell.Resources
	at       cell.Instant
	result   engine.Result // of its submission
	answered bool
	started  cell.Instant // when it first ran
	done     int          // outcomes of success that were taken
	ended    int          // ends since the last retry
	running  int
}

type start struct {
	at     cell.Instant
	plan   *plan
	worker *worker
}

const (
	rankDone   = iota // completions
	rankArrive        // whatever else comes in
	rankCommit
)

type event struct {
	at   cell.Instant
	rank int
	seq  uint64
	do   func()
}

type eventQueue []event

func (q eventQueue) Len() int { return len(q) }
func (q eventQueue) Less(i, j int) bool {
	a, b := q[i], q[j]
	if a.at != b.at {
		return a.at < b.at
	}
	if a.rank != b.rank {
		return a.rank < b.rank
	}
	return a.seq < b.seq
}
func (q eventQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

// Push is for container/heap only.
func (q *eventQueue) Push(x any) { *q = append(*q, x.(event)) } //nolint:errcheck // only events are pushed

// Pop is for container/heap only.
func (q *eventQueue) Pop() any {
	old := *q
	e := old[len(old)-1]
	*q = old[:len(old)-1]
	return e
}

// epoch is when worlds begin.
const epoch cell.Instant = 1_800_000_000e9

// testConfig is the default, but that idle room is lent at once: the tests of lending say otherwise.
func testConfig() Config {
	cfg := DefaultConfig()
	for i := range cfg.Sched.Bulkheads {
		cfg.Sched.Bulkheads[i].LendAfter = 0
	}
	return cfg
}

func newWorld(tb testing.TB, cfg Config, limits engine.Limits, seed uint64) *world {
	tb.Helper()
	cfg.Limits = limits
	state, err := engine.New(limits)
	if err != nil {
		tb.Fatal(err)
	}
	w := &world{
		tb: tb, cfg: cfg, rng: rand.New(rand.NewPCG(seed, 1)), state: state, now: epoch,
		commit: func() time.Duration { return 0 },
		plans:  map[cell.JobID]*plan{}, names: map[string]*plan{}, named: map[cell.TenantID]int{},
		reasons: map[Reason]int{}, grants: map[cell.TenantID][]cell.Instant{}, rated: map[cell.TenantID]cell.StartRate{},
	}
	w.elect()
	return w
}

// elect makes a leader anew from the state.
func (w *world) elect() {
	w.tb.Helper()
	lead, err := New(w.cfg, w.state, w.now)
	if err != nil {
		w.tb.Fatal(err)
	}
	w.lead = lead
	w.check()
}

func (w *world) at(at cell.Instant, rank int, do func()) {
	w.pushed++
	heap.Push(&w.events, event{at: max(at, w.now), rank: rank, seq: w.pushed, do: do})
}

func (w *world) after(d time.Duration, rank int, do func()) { w.at(w.now.Add(d), rank, do) }

// run lets time pass until there is nothing to do before the time.
func (w *world) run(until cell.Instant) {
	w.tb.Helper()
	w.pump()
	for {
		next := until + 1
		if len(w.events) > 0 {
			next = w.events[0].at
		}
		if w.wakeAt != 0 && w.wakeAt < next && !w.lead.InFlight() {
			next = w.wakeAt
		}
		if next > until {
			w.now = until
			return
		}
		w.now = max(w.now, next)
		for len(w.events) > 0 && w.events[0].at <= w.now {
			w.nextEvent()
		}
		w.pump()
	}
}

func (w *world) nextEvent() {
	e := heap.Pop(&w.events).(event) //nolint:errcheck // only events are pushed
	e.do()
}

func (w *world) runFor(d time.Duration) { w.run(w.now.Add(d)) }

// call hands a call to the leader; its owner is what to do when it is done.
func (w *world) call(c *Call, done func()) {
	c.Owner = done
	w.lead.Enqueue(c)
}

// pump seals entries until there is nothing to seal now.
func (w *world) pump() {
	w.tb.Helper()
	for range 100_000 {
		if w.lead.InFlight() {
			return
		}
		entry, done := w.lead.Seal(w.now, w.rng.Uint64())
		w.finish(done)
		if entry == nil {
			w.wakeAt = w.lead.Wake()
			if w.wakeAt != 0 && w.wakeAt <= w.now || len(w.lead.calls) > 0 {
				if w.wakeAt > w.now || w.wakeAt == 0 {
					w.tb.Fatalf("%d calls wait, and the leader wants to be woken at %d", len(w.lead.calls), w.wakeAt)
				}
				continue
			}
			w.check()
			w.checkRest()
			return
		}
		bytes := engine.AppendEntry(nil, entry)
		delay := w.commit()
		if delay == 0 {
			w.settle(bytes)
			continue
		}
		w.after(delay, rankCommit, func() { w.settle(bytes) })
		return
	}
	w.tb.Fatal("the leader never comes to rest")
}

// settle commits an entry, or loses it.
func (w *world) settle(entry []byte) {
	w.tb.Helper()
	if w.loseEntry > 0 && w.rng.Float64() < w.loseEntry {
		applied := w.rng.IntN(2) == 0
		old := w.lead
		if applied {
			w.apply(entry)
		}
		done := old.Failed(errLost)
		w.elect()
		w.finish(done)
		return
	}
	done, err := w.lead.Applied(w.now, w.apply(entry))
	if err != nil {
		w.tb.Fatalf("at %v: %v", w.since(w.now), err)
	}
	w.check()
	w.finish(done)
}

func (w *world) apply(entry []byte) engine.Applied {
	w.tb.Helper()
	e, err := engine.DecodeEntry(entry)
	if err != nil {
		w.tb.Fatal(err)
	}
	w.index++
	a := w.state.Apply(w.index, e)
	w.checkBounds(e, a)
	w.checkOrder(e)
	if w.watch != nil {
		w.watch(e)
	}
	for _, j := range a.Ended {
		if p := w.plans[j.ID]; p != nil {
			if p.ended++; p.ended > 1 {
				w.tb.Fatalf("%s ended twice", p.name)
			}
		}
	}
	return a
}

// checkBounds holds every grant of an entry to the bounds of its tenant and its keys: nothing starts beyond them, whatever was lowered before.
func (w *world) checkBounds(e *engine.Entry, a engine.Applied) {
	w.tb.Helper()
	if w.cfg.Sched.Policy == sched.PolicyFIFO {
		return
	}
	for i, f := range e.Facts {
		if p, ok := f.(*engine.PolicyFact); ok && w.rated[p.Policy.Tenant] != p.Policy.Starts {
			w.rated[p.Policy.Tenant], w.grants[p.Policy.Tenant] = p.Policy.Starts, nil
		}
		if _, ok := f.(*engine.GrantFact); !ok || a.Results[i].Err != nil {
			continue
		}
		j := w.state.Job(a.Results[i].JobID)
		if j == nil || j.State != engine.Leased {
			continue
		}
		t := j.Lane.Tenant
		if s := w.lead.sessions[SessionID{Name: j.Lease.Session}]; !j.Lease.Private && (s == nil || !s.group.In(t.Policy.Groups)) {
			w.tb.Fatalf("at %v: %s goes to %+v, and its tenant holds %b", w.since(w.now), j.ID, s, t.Policy.Groups)
		}
		if most := t.Policy.RunningMax; most > 0 && t.Held() > most {
			w.tb.Fatalf("at %v: tenant %s holds %d of %d", w.since(w.now), t.Policy.Tenant, t.Held(), most)
		}
		for _, k := range j.Spec.Keys {
			if bound, held, _ := t.Concurrency(k.Key); held > bound {
				w.tb.Fatalf("at %v: key %s of tenant %s holds %d of %d", w.since(w.now), k.Key, t.Policy.Tenant, held, bound)
			}
		}
		w.grants[t.Policy.Tenant] = append(w.grants[t.Policy.Tenant], w.state.Time())
		at := w.grants[t.Policy.Tenant]
		if r := t.Policy.Starts; r.Jobs > 0 && int64(len(at)) > r.Jobs && w.rated[t.Policy.Tenant] == r {
			if before := at[int64(len(at))-1-r.Jobs]; w.state.Time().Sub(before) < r.Per {
				w.tb.Fatalf("at %v: tenant %s starts %d jobs within %v", w.since(w.now), t.Policy.Tenant, r.Jobs+1, w.state.Time().Sub(before))
			}
		}
	}
}

// checkOrder holds an entry to where it has what moves lanes: a turn alone, and copies at the end.
func (w *world) checkOrder(e *engine.Entry) {
	w.tb.Helper()
	copies := false
	for _, f := range e.Facts {
		switch f.(type) {
		case *engine.StageFact, *engine.ModeFact:
			if len(e.Facts) > 1 {
				w.tb.Fatalf("%T is one of %d facts", f, len(e.Facts))
			}
		case *engine.ImportFact, *engine.WipeFact, *engine.TrackFact, *engine.ProveFact:
			copies = true
		default:
			if copies {
				w.tb.Fatalf("%T follows copies", f)
			}
		}
	}
}

func (w *world) check() {
	w.tb.Helper()
	w.steps++
	if w.lead.InFlight() || len(w.order) > 300 && w.steps%(len(w.order)/10) != 0 {
		return // a large world is looked at now and then: a look walks all of it
	}
	check := w.lead.check
	if w.steps%16 == 0 {
		check = w.lead.Check
	}
	if err := errors.Join(check(), w.state.Check()); err != nil {
		w.tb.Fatalf("at %v: %v", w.since(w.now), err)
	}
}

// checkRest holds a leader that wants nothing to its word: no open poll could be given a job that waits, and every job that has not ended has a
// reason.
func (w *world) checkRest() {
	w.tb.Helper()
	if len(w.order) > 300 || w.steps%4 != 0 {
		return
	}
	var open []*Call
	for _, polls := range []*pollList{&w.lead.polls, &w.lead.privatePolls} {
		for c := polls.first; c != nil; c = c.next {
			if c.left > 0 && c.session.room(true) > 0 {
				open = append(open, c)
			}
		}
	}
	w.state.Jobs(func(j *engine.Job) bool {
		if j.State.Ended() {
			return true
		}
		lane := j.Lane.ID
		x, ok := w.lead.Explain(w.now, lane.Tenant, j.ID)
		if !ok || x.Reason == 0 || x.Reason == ReasonEnded || x.Message == "" || (x.Reason == ReasonRunning) != (j.State == engine.Leased) {
			w.tb.Fatalf("%v is %v because of %v: %s", j.ID, j.State, x.Reason, x.Message)
		}
		w.reasons[x.Reason]++
		for _, c := range open {
			s := c.session
			if !s.classes[lane.Class.Index()] || !slices.Contains(s.operations, j.Spec.Operation) || s.private() && s.id.Tenant != lane.Tenant {
				continue
			}
			if !s.private() && w.cfg.Sched.Policy != sched.PolicyFIFO && !s.group.In(j.Lane.Tenant.Policy.Groups) {
				continue
			}
			if w.free(j, x, s.private()) {
				w.tb.Fatalf("at %v: %v waits though %q has room for it: %s", w.since(w.now), j.ID, s.id.Name, x.Message)
			}
		}
		return true
	})
}

// free reports whether nothing but a worker keeps the job from running: no bound of its tenant's, and for the cell's own workers no bulkhead.
func (w *world) free(j *engine.Job, x Explanation, private bool) bool {
	if j.State != engine.Ready || x.Reason == ReasonStopping || j.Lane.Mode != cell.ModeOpen || j.Spec.Deadline != 0 && j.Spec.Deadline <= w.now {
		return false
	}
	if !private && x.Class.HeldBack > 0 {
		return false // from some sets of operations, and this one may be one of them
	}
	if w.cfg.Sched.Policy == sched.PolicyFIFO {
		place, waits := w.lead.sched.Place(j.ID)
		return !private && waits && place.MayTake
	}
	t := j.Lane.Tenant
	standing, _ := w.lead.sched.ExplainTenant(w.now, t.Policy.Tenant)
	if p := t.Policy; p.RunningMax > 0 && standing.Held >= p.RunningMax || standing.NextStart > w.now {
		return false
	}
	for _, k := range j.Spec.Keys {
		if held, bound := w.lead.keyHeld(t, k.Key); held >= bound {
			return false
		}
	}
	if private {
		return true
	}
	st := standing.Lanes[j.Lane.ID.Class.Index()].Tree
	place, _ := w.lead.sched.Place(j.ID)
	return place.MayTake && st.LimitedUntil <= w.now && st.OrganizationLimitedUntil <= w.now
}

func (w *world) finish(done []*Call) {
	for _, c := range done {
		if do, ok := c.Owner.(func()); ok && do != nil {
			do()
		}
	}
}

// restart gives the leader up, whatever is in flight, and goes on from a snapshot.
func (w *world) restart() {
	w.tb.Helper()
	walk, err := w.state.BeginSnapshot()
	if err != nil {
		w.tb.Fatal(err)
	}
	var snapshot bytes.Buffer
	for err == nil {
		var piece []byte
		piece, err = walk.Next(nil)
		snapshot.Write(piece)
	}
	if !errors.Is(err, io.EOF) {
		w.tb.Fatal(err)
	}
	state, err := engine.Restore(w.state.Limits(), &snapshot)
	if err != nil {
		w.tb.Fatal(err)
	}
	w.events = eventsWithout(w.events, rankCommit)
	old := w.lead
	w.state = state
	w.elect()
	w.finish(old.Failed(errLost))
}

func eventsWithout(q eventQueue, rank int) eventQueue {
	var kept eventQueue
	for _, e := range q {
		if e.rank != rank {
			kept = append(kept, e)
		}
	}
	heap.Init(&kept)
	return kept
}

func (w *world) since(at cell.Instant) time.Duration { return at.Sub(epoch) }

func (w *world) tenant(p cell.TenantPolicy) *Policy {
	p.Epoch = max(p.Epoch, 1)
	return w.promise(&Policy{Policies: []cell.TenantPolicy{p}})
}

func (w *world) organization(p cell.OrganizationPolicy) *Policy {
	p.Epoch = max(p.Epoch, 1)
	return w.promise(&Policy{Organizations: []cell.OrganizationPolicy{p}})
}

// promise hands in policies, and again until there is an answer, which is there with the call's results.
func (w *world) promise(p *Policy) *Policy {
	c := &Call{Policy: p}
	w.call(c, func() {
		if c.Err != nil {
			p.Results, p.next = nil, 0
			w.promise(p)
		}
	})
	return p
}

// job is a submission in the making.
type job struct {
	plan
	spec engine.Spec
}

func (w *world) newID() cell.JobID {
	w.ids++
	var id cell.JobID
	binary.BigEndian.PutUint64(id[8:], w.ids)
	return id
}

// submit hands jobs in as one call, which is repeated until it has an answer.
func (w *world) submit(jobs ...job) []*plan {
	s := &Submit{}
	var plans []*plan
	for _, j := range jobs {
		p := &plan{}
		*p = j.plan
		p.id, p.at = w.newID(), w.now
		w.named[p.tenant]++
		p.name = fmt.Sprintf("%s%d", p.tenant, w.named[p.tenant])
		w.plans[p.id], w.names[p.name] = p, p
		w.order = append(w.order, p)
		plans = append(plans, p)
		spec := j.spec
		if spec.Operation == "" {
			spec.Operation = "op"
		}
		if spec.Retry.AttemptsMax == 0 {
			spec.Retry = engine.Retry{AttemptsMax: 3, DelayMin: time.Second, DelayMax: time.Minute}
		}
		if spec.Retention == 0 {
			spec.Retention = 1000 * time.Hour
		}
		f := engine.SubmitFact{ID: p.id, Tenant: p.tenant, Class: p.class, Spec: spec}
		copy(f.BodyHash[:], fmt.Sprintf("%v %v", spec.Operation, p.run))
		s.Items = append(s.Items, f)
	}
	if w.twin != nil {
		w.twin.send(s, plans)
		return plans
	}
	w.send(s, plans)
	return plans
}

func (w *world) send(s *Submit, plans []*plan) {
	c := &Call{Submit: &Submit{Items: s.Items}}
	w.call(c, func() {
		if c.Err != nil { // unknown: safe to repeat with the same ids and keys
			w.after(10*time.Millisecond, rankArrive, func() { w.send(s, plans) })
			return
		}
		for i, p := range plans {
			r := c.Submit.Results[i]
			if errors.Is(r.Err, engine.ErrJobIDTaken) && w.state.Job(p.id) != nil {
				r = engine.Result{JobID: p.id, Duplicate: true} // a repetition of one without a key that had been taken
			}
			p.result, p.answered = r, true
		}
	})
}
