package fairness

import (
	"slices"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	"github.com/fairlead/fairlead/cell/leader"
)

// worker is a worker process: it polls while it has room, runs what it is given, reports what ended and asks for more, repeats what was not
// answered, and extends what it holds.
type worker struct {
	r        *rig
	id       leader.SessionID
	ops      []cell.Operation
	group    cell.WorkerGroup
	classes  [2]bool
	slots    int
	prefetch int
	lease    time.Duration
	stops    time.Duration // how long an attempt takes to stop when it is told to
	alive    bool
	draining bool
	deaf     bool // it extends nothing, though it runs on

	polls, reports, seen int64 // sequences: its polls', its reports', and its last answered report's
	poll, report         *leader.Call
	held                 []*attempt
}

// attempt is a lease as the worker has it.
type attempt struct {
	leased   leader.Leased
	plan     *plan
	running  bool
	slot     int  // where it runs or ran
	told     bool // to stop
	start    int  // in rig.starts
	outcome  *leader.Outcome
	reported bool
}

func (a *attempt) ref() leader.LeaseRef {
	return leader.LeaseRef{JobID: a.leased.JobID, Token: a.leased.Token}
}

func (k *worker) start() {
	k.r.workers = append(k.r.workers, k)
	k.alive = true
	k.ask()
	k.beat()
}

// beat extends what it holds in time to keep it.
func (k *worker) beat() {
	k.r.after(k.lease/3, rankArrive, func() {
		if !k.alive {
			return
		}
		if !k.deaf {
			k.send()
		}
		k.beat()
	})
}

// room is how many more it could hold once what has ended is off its hands.
func (k *worker) room() int {
	if k.draining {
		return 0
	}
	n := k.slots + k.prefetch
	for _, a := range k.held {
		if a.outcome == nil {
			n--
		}
	}
	return n
}

func (k *worker) ask() {
	if !k.alive || k.poll != nil || k.room() <= 0 {
		return
	}
	k.polls++
	k.sendPoll()
}

func (k *worker) sendPoll() {
	p := &leader.Poll{
		Session: k.id, Worker: k.id.Name, Operations: k.ops, Group: k.group, Classes: k.classes, Slots: int64(k.slots), Prefetch: int64(k.prefetch),
		Sequence: k.polls, ReportSequence: k.seen, Want: max(1, k.room()), Until: k.r.now.Add(20 * time.Second), LeaseDuration: k.lease,
	}
	for _, a := range k.held {
		p.Held = append(p.Held, a.ref())
	}
	c := &leader.Call{Poll: p}
	k.poll = c
	k.r.call(c, func() {
		if !k.alive || k.poll != c {
			return
		}
		k.poll = nil
		if c.Err != nil {
			k.r.after(20*time.Millisecond, rankArrive, func() {
				if k.alive && k.poll == nil {
					k.sendPoll()
				}
			})
			return
		}
		k.take(c.Poll.Leases)
		k.ask()
	})
}

func (k *worker) take(leases []leader.Leased) {
	for _, le := range leases {
		a := &attempt{leased: le, plan: k.r.plans[le.JobID]}
		if slices.ContainsFunc(k.held, func(o *attempt) bool { return o.ref() == a.ref() }) {
			continue
		}
		if !slices.Contains(k.ops, le.Spec.Operation) || !k.classes[le.Lane.Class.Index()] || k.id.Tenant != "" && k.id.Tenant != le.Lane.Tenant {
			k.r.tb.Fatalf("%s was given %s of %v", k.id.Name, le.Spec.Operation, le.Lane)
		}
		if hand := k.r.state.Tenant(le.Lane.Tenant).Policy.Groups; k.id.Tenant == "" && !k.group.In(hand) {
			k.r.tb.Fatalf("%s of group %d was given a job of %s, whose groups are %s", k.id.Name, k.group, le.Lane.Tenant, cell.FormatWorkerGroups(hand))
		}
		k.held = append(k.held, a)
	}
	k.fill()
}

// fill starts what it has slots for.
func (k *worker) fill() {
	for _, a := range k.held {
		if a.running || a.outcome != nil {
			continue
		}
		for a.slot = 0; slices.ContainsFunc(k.held, func(o *attempt) bool { return o.running && o.slot == a.slot }); {
			a.slot++
		}
		if a.slot >= k.slots || !k.alive {
			return
		}
		k.begin(a)
	}
}

func (k *worker) begin(a *attempt) {
	r, p := k.r, a.plan
	a.running, a.start = true, len(r.starts)
	if p.began == 0 {
		p.began = r.now
	}
	r.starts = append(r.starts, start{at: r.now, plan: p, worker: k})
	r.after(p.run, rankEnd, func() {
		switch {
		case !k.alive || !a.running:
		case p.kills:
			k.kill()
		case p.fails > 0:
			p.fails--
			k.end(a, engine.OutcomeFailure)
		default:
			k.end(a, engine.OutcomeSuccess)
		}
	})
}

func (k *worker) end(a *attempt, kind engine.OutcomeKind) {
	s := &k.r.starts[a.start]
	a.running, s.end = false, k.r.now
	o := &leader.Outcome{JobID: a.leased.JobID, Token: a.leased.Token, Kind: kind, RunTime: max(1, k.r.now.Sub(s.at)), Used: a.plan.used}
	if kind == engine.OutcomeFailure {
		o.Error = "it failed"
	}
	a.outcome = o
	k.fill()
	k.r.at(k.r.now, rankReport, k.send) // with whatever else ends now
}

// send reports what ended and extends the rest, unless a report is unanswered: then it follows.
func (k *worker) send() {
	if !k.alive || k.report != nil || len(k.held) == 0 {
		return
	}
	k.reports++
	for _, a := range k.held {
		a.reported = a.outcome != nil
	}
	k.sendReport()
}

func (k *worker) sendReport() {
	rep := &leader.Report{Session: k.id, Sequence: k.reports, Want: max(0, k.room())}
	// What ended together is told in the order of the slots.
	held := slices.Clone(k.held)
	slices.SortStableFunc(held, func(a, b *attempt) int { return a.slot - b.slot })
	for _, a := range held {
		switch {
		case a.reported:
			rep.Outcomes = append(rep.Outcomes, *a.outcome)
		case a.outcome == nil:
			rep.Extensions = append(rep.Extensions, a.ref())
		}
	}
	c := &leader.Call{Report: rep}
	k.report = c
	k.r.call(c, func() {
		if !k.alive || k.report != c {
			return
		}
		if c.Err != nil {
			k.r.after(20*time.Millisecond, rankArrive, func() {
				if k.alive && k.report == c {
					k.sendReport()
				}
			})
			return
		}
		k.report, k.seen = nil, rep.Sequence
		k.reported(rep)
	})
}

func (k *worker) reported(rep *leader.Report) {
	k.held = slices.DeleteFunc(k.held, func(a *attempt) bool { return a.reported })
	for _, x := range rep.Cancels {
		for _, a := range k.held {
			if a.ref() == x && !a.told && a.outcome == nil {
				k.stop(a)
			}
		}
	}
	k.take(rep.Leases)
	if slices.ContainsFunc(k.held, func(a *attempt) bool { return a.outcome != nil }) {
		k.send()
	}
	k.ask()
}

// stop ends an attempt that the cell wants no more.
func (k *worker) stop(a *attempt) {
	a.told = true
	if !a.running {
		a.outcome = &leader.Outcome{JobID: a.leased.JobID, Token: a.leased.Token, Kind: engine.OutcomeRelease}
		return
	}
	k.r.after(k.stops, rankEnd, func() {
		if k.alive && a.running {
			k.end(a, engine.OutcomeRelease)
		}
	})
}

// kill ends the process without a word.
func (k *worker) kill() {
	k.alive = false
	for _, a := range k.held {
		if a.running {
			k.r.starts[a.start].end = k.r.now
		}
	}
	k.poll, k.report, k.held = nil, nil, nil
}

// drain takes nothing more, and hands back what has not started.
func (k *worker) drain() {
	k.draining = true
	if k.poll != nil {
		k.r.lead.Abandon(k.poll)
		k.poll = nil
	}
	for _, a := range k.held {
		if !a.running && a.outcome == nil {
			a.outcome = &leader.Outcome{JobID: a.leased.JobID, Token: a.leased.Token, Kind: engine.OutcomeRelease}
		}
	}
	k.send()
}
