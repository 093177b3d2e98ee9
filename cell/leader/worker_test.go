package leader

import (
	"slices"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
)

// worker is a simulated worker process: it polls while it has room, runs what it is given, reports with a wish for more, repeats what was
// not answered with the same sequence, and extends what it holds.
type worker struct {
	w        *world
	id       SessionID
	offer    []cell.Operation
	group    cell.WorkerGroup
	classes  [2]bool
	slots    int
	prefetch int
	duration time.Duration
	wait     time.Duration // of a poll
	loseCall float64       // how likely an answer is to get lost
	noPolls  bool          // it asks for jobs in reports only, after the first poll
	deaf     bool          // it does not extend leases, though it runs on
	prompt   bool          // it stops what it is told to stop, rather than running it to its end
	polite   bool          // when it drains it waits for its last poll, rather than giving it up

	alive, draining bool
	seq, reportSeq  int64
	reportSeen      int64
	held            []*attempt // in the order of their coming
	running         int
	poll            *Call
	report          *Report // unanswered
}

// attempt is a lease as the worker has it.
type attempt struct {
	leased   Leased
	plan     *plan
	started  bool
	stopped  bool // the cell said so
	aborted  bool // it was, before its end
	began    cell.Instant
	outcome  *Outcome
	reported bool // in the unanswered report
}

func (w *world) worker(name string, slots, prefetch int) *worker {
	if w.side > 0 {
		name += "-there" // sessions are one worker's in all cells
	}
	k := &worker{
		w: w, id: SessionID{Name: name}, offer: []cell.Operation{"op"}, classes: [2]bool{true, true}, slots: slots, prefetch: prefetch,
		duration: 30 * time.Second, wait: 20 * time.Second,
	}
	w.workers = append(w.workers, k)
	return k
}

func (k *worker) start() *worker {
	k.alive = true
	k.ask()
	k.beat()
	return k
}

// beat reports what it holds in time to keep it.
func (k *worker) beat() {
	k.w.after(k.duration/3, rankArrive, func() {
		if !k.alive {
			return
		}
		if len(k.held) > 0 && !k.deaf {
			k.send(0)
		}
		k.beat()
	})
}

func (k *worker) room() int {
	if k.draining {
		return 0
	}
	return k.slots + k.prefetch - len(k.held)
}

// ask polls, if there is room and no poll is out.
func (k *worker) ask() {
	if !k.alive || k.poll != nil || k.room() <= 0 || k.noPolls && k.seq > 0 {
		return
	}
	k.seq++
	k.sendPoll(k.room())
}

func (k *worker) sendPoll(want int) {
	p := &Poll{
		Session: k.id, Worker: k.id.Name, Operations: k.offer, Group: k.group, Classes: k.classes, Slots: int64(k.slots), Prefetch: int64(k.prefetch),
		Sequence: k.seq, ReportSequence: k.reportSeen, Want: want, Until: k.w.now.Add(k.wait), LeaseDuration: k.duration,
	}
	for _, a := range k.held {
		p.Held = append(p.Held, a.ref())
	}
	c := &Call{Poll: p}
	k.poll = c
	k.w.call(c, func() { k.polled(c) })
}

// polled takes a poll's answer, unless it gets lost on the way.
func (k *worker) polled(c *Call) {
	if !k.alive || k.poll != c {
		return
	}
	if c.Err != nil || k.w.rng.Float64() < k.loseCall {
		k.poll = nil
		k.w.after(20*time.Millisecond, rankArrive, func() {
			if k.alive && k.poll == nil {
				k.sendPoll(max(1, k.room()))
			}
		})
		return
	}
	k.poll = nil
	k.take(c.Poll.Leases)
	if k.draining {
		k.handBack()
	}
	k.ask()
}

// abandon gives the open poll up, as when a connection breaks, and repeats it.
func (k *worker) abandon() {
	c := k.poll
	if c == nil || !k.alive {
		return
	}
	k.w.lead.Abandon(c)
	k.poll = nil
	k.w.after(20*time.Millisecond, rankArrive, func() {
		if k.alive && k.poll == nil {
			k.sendPoll(max(1, k.room()))
		}
	})
}

func (a *attempt) ref() LeaseRef { return LeaseRef{JobID: a.leased.JobID, Token: a.leased.Token} }

func (k *worker) find(ref LeaseRef) *attempt {
	for _, a := range k.held {
		if a.ref() == ref {
			return a
		}
	}
	return nil
}

func (k *worker) take(leases []Leased) {
	for _, le := range leases {
		a := &attempt{leased: le, plan: k.w.plans[le.JobID]}
		if k.find(a.ref()) != nil {
			continue
		}
		if k.id.Tenant != "" && k.id.Tenant != le.Lane.Tenant {
			k.w.tb.Fatalf("%s's worker was given a job of %s", k.id.Tenant, le.Lane.Tenant)
		}
		if !slices.Contains(k.offer, le.Spec.Operation) || !k.classes[le.Lane.Class.Index()] {
			k.w.tb.Fatalf("%s was given %s in %v", k.id.Name, le.Spec.Operation, le.Lane.Class)
		}
		k.held = append(k.held, a)
	}
	live := 0
	for _, a := range k.held {
		if a.outcome == nil { // the cell may have taken an outcome whose answer is lost
			live++
		}
	}
	// A new leader does not know of the leases that have left with their lanes: until they end, its sessions' rooms are larger than their workers' own.
	if live > k.slots+k.prefetch && (k.w.twin == nil || k.w.twin.gentle) {
		k.w.tb.Fatalf("%s holds %d with room for %d", k.id.Name, live, k.slots+k.prefetch)
	}
	k.fill()
}

// fill starts what it has slots for.
func (k *worker) fill() {
	for _, a := range k.held {
		if k.running >= k.slots || !k.alive {
			return
		}
		if a.started || a.stopped || a.outcome != nil {
			continue
		}
		k.begin(a)
	}
}

func (k *worker) begin(a *attempt) {
	p, w := a.plan, k.w
	a.started = true
	k.running++
	p.running++
	if p.started == 0 {
		p.started = w.now
	}
	w.starts = append(w.starts, start{at: w.now, plan: p, worker: k})
	if p.crashes {
		w.after(p.run, rankDone, func() {
			if k.alive {
				k.kill()
			}
		})
		return
	}
	began := w.now
	a.began = began
	w.after(p.run, rankDone, func() {
		if a.aborted {
			return
		}
		p.running--
		if !k.alive {
			return
		}
		k.running--
		o := Outcome{JobID: p.id, Token: a.leased.Token, Kind: engine.OutcomeSuccess, RunTime: max(1, w.now.Sub(began)), Used: p.uses}
		if p.failures > 0 {
			p.failures--
			p.failed++
			o.Kind, o.Error = engine.OutcomeFailure, "it failed"
		}
		a.outcome = &o
		k.fill()
		k.send(k.freed())
	})
}

// freed is how many more it could hold once what it has outcomes of is off its hands.
func (k *worker) freed() int {
	n := k.room()
	for _, a := range k.held {
		if a.outcome != nil {
			n++
		}
	}
	if k.draining {
		return 0
	}
	return n
}

// send reports all outcomes and extends the rest, unless a report is unanswered: then it follows.
func (k *worker) send(want int) {
	if !k.alive || k.report != nil {
		return
	}
	k.reportSeq++
	r := &Report{Session: k.id, Sequence: k.reportSeq, Want: want}
	for _, a := range k.held {
		if a.outcome != nil {
			a.reported = true
			r.Outcomes = append(r.Outcomes, *a.outcome)
		} else {
			r.Extensions = append(r.Extensions, a.ref())
		}
	}
	k.report = r
	k.sendReport()
}

func (k *worker) sendReport() {
	r := k.report
	c := &Call{Report: &Report{
		Session: r.Session, Sequence: r.Sequence, Want: r.Want, Outcomes: r.Outcomes, Extensions: r.Extensions,
	}}
	k.w.call(c, func() {
		if k.w.twin != nil {
			k.w.twin.reported(k, r, c)
			return
		}
		k.reported(r, c)
	})
}

func (k *worker) reported(r *Report, c *Call) {
	w := k.w
	if c.Err == nil {
		for i, o := range c.Report.Outcomes {
			if res := c.Report.Results[i]; res.Err == nil && !res.Duplicate && o.Kind == engine.OutcomeSuccess {
				w.plans[o.JobID].done++
			}
		}
	}
	if !k.alive || k.report != r {
		return
	}
	if c.Err != nil || w.rng.Float64() < k.loseCall {
		w.after(20*time.Millisecond, rankArrive, func() {
			if k.alive && k.report == r {
				k.sendReport()
			}
		})
		return
	}
	k.report = nil
	k.reportSeen = r.Sequence
	k.held = slices.DeleteFunc(k.held, func(a *attempt) bool { return a.reported })
	for _, x := range c.Report.Cancels {
		if a := k.find(x); a != nil {
			k.stop(a)
		}
	}
	k.take(c.Report.Leases)
	more := false
	for _, a := range k.held {
		more = more || a.outcome != nil
	}
	if more {
		k.send(k.freed())
	}
	k.ask()
}

// stop gives up what the cell says is over: what has not started is dropped, and what runs goes on to its end, or is stopped by a prompt worker.
func (k *worker) stop(a *attempt) {
	a.stopped = true
	if a.outcome != nil || a.started && !k.prompt {
		return
	}
	a.outcome = &Outcome{JobID: a.leased.JobID, Token: a.leased.Token, Kind: engine.OutcomeRelease}
	if a.started {
		a.aborted = true
		a.plan.running--
		k.running--
		a.outcome.RunTime = k.w.now.Sub(a.began)
	}
}

// kill ends the process without a word.
func (k *worker) kill() {
	k.alive = false
	for _, a := range k.held {
		if a.started && a.plan.crashes {
			a.plan.running--
		}
	}
	k.poll, k.report, k.held, k.running = nil, nil, nil, 0
}

// drain takes nothing more, and hands back what has not started.
func (k *worker) drain() {
	if !k.alive {
		return
	}
	k.draining = true
	if k.poll != nil && !k.polite {
		k.w.lead.Abandon(k.poll)
		k.poll = nil
	}
	k.handBack()
}

func (k *worker) handBack() {
	for _, a := range k.held {
		if !a.started && a.outcome == nil {
			a.outcome = &Outcome{JobID: a.leased.JobID, Token: a.leased.Token, Kind: engine.OutcomeRelease}
		}
	}
	k.send(0)
}
