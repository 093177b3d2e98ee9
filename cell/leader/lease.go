package leader

import (
	"container/heap"
	"math"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	"github.com/fairlead/fairlead/cell/sched"
	"github.com/fairlead/fairlead/cell/tree"
)

// lease is a lease as the leader keeps its clock: by its own monotonic time, and not in the log.
type lease struct {
	job         cell.JobID
	book        *book // of its lane
	session     *session
	token       engine.Token
	channel     engine.Channel
	sequence    int64
	private     bool
	charged     cell.Cost
	granted     cell.Instant
	duration    time.Duration
	expires     cell.Instant
	undelivered bool // whoever was granted it went away before the answer, and was not given it again
	revoked     bool // it is over without the worker's doing: the worker has yet to stop
	void        bool // the state did not grant it
	parted      bool // it is revoked because its lane has left: it lives on there, and its worker goes on
	frozen      bool // its lane is fenced: its time stands still until it is decided whose it is

	index int // in the heap
	at    int // in the session's held
}

func (le *lease) elapsed(now cell.Instant) time.Duration { return max(0, now.Sub(le.granted)) }

// leaseTable has every lease by its job, and in the order in which they expire.
type leaseTable struct {
	byJob map[cell.JobID]*lease
	heap  leaseHeap
}

func newLeaseTable() leaseTable { return leaseTable{byJob: map[cell.JobID]*lease{}} }

func (t *leaseTable) len() int                 { return len(t.heap) }
func (t *leaseTable) get(id cell.JobID) *lease { return t.byJob[id] }
func (t *leaseTable) fix(le *lease)            { heap.Fix(&t.heap, le.index) }
func (t *leaseTable) first() *lease            { return t.heap[0] }

func (t *leaseTable) add(le *lease) {
	if t.byJob[le.job] != nil {
		panic("leader: a second lease of " + le.job.String())
	}
	t.byJob[le.job] = le
	heap.Push(&t.heap, le)
}

func (t *leaseTable) remove(le *lease) {
	delete(t.byJob, le.job)
	heap.Remove(&t.heap, le.index)
}

// due returns when the first lease expires, 0 for never.
func (t *leaseTable) due() cell.Instant {
	if len(t.heap) == 0 || t.heap[0].expires == never {
		return 0
	}
	return t.heap[0].expires
}

// never is when a lease expires that is frozen.
const never cell.Instant = math.MaxInt64

// graceAll gives every lease its full duration from now.
func (t *leaseTable) graceAll(now cell.Instant) {
	for _, le := range t.heap {
		if !le.undelivered && !le.frozen {
			le.expires = max(le.expires, now.Add(le.duration))
		}
	}
	heap.Init(&t.heap)
}

type leaseHeap []*lease

func (h leaseHeap) Len() int           { return len(h) }
func (h leaseHeap) Less(i, j int) bool { return h[i].expires < h[j].expires }
func (h leaseHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push is for container/heap only.
func (h *leaseHeap) Push(x any) {
	le, ok := x.(*lease)
	if !ok {
		panic("leader: not a lease")
	}
	le.index = len(*h)
	*h = append(*h, le)
}

// Pop is for container/heap only.
func (h *leaseHeap) Pop() any {
	old := *h
	le := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return le
}

// adopt takes over a lease that the state has, with a full grace. Until its session polls, which one whose jobs are long does not for as long,
// the session counts as having the slots that it holds: else those would be held in the slots of the others, which would stand idle.
func (l *Leader) adopt(j *engine.Job, now cell.Instant) {
	id := SessionID{Name: j.Lease.Session}
	if j.Lease.Private {
		id.Tenant = j.Lane.ID.Tenant
	}
	s := l.sessions[id]
	if s == nil {
		s = &session{id: id, worker: j.Lease.Worker, duration: j.Lease.Duration, seen: now}
		l.enter(s)
	}
	// What the session polled for last may have had its answer lost: it is given it again when it repeats the call.
	if j.Lease.Channel == engine.ChannelReport {
		s.reportSeq = max(s.reportSeq, j.Lease.Sequence)
	} else {
		s.pollSeq = max(s.pollSeq, j.Lease.Sequence)
	}
	le := &lease{
		job: j.ID, book: l.book(j.Lane.ID), session: s, token: j.Lease.Token, channel: j.Lease.Channel, sequence: j.Lease.Sequence,
		private: j.Lease.Private, charged: j.Lease.Charged, granted: min(now, j.LeasedAt), duration: j.Lease.Duration,
		expires: now.Add(j.Lease.Duration),
	}
	if le.frozen = j.Lane.Mode == cell.ModeFenced; le.frozen {
		le.expires = never
	}
	l.hold(le)
	if !s.polled {
		l.resize(s, max(s.slots, int64(len(s.held))), 0)
	}
	l.sched.Hold(sched.Held{
		Job: j.ID, Lane: j.Lane.ID, Operation: j.Spec.Operation, Keys: boundsNow(j.Lane.Tenant, j.Spec.Keys), Seq: j.Seq, Private: le.private,
		Tier: tree.Tier(j.Lease.Tier), Charged: le.charged, Granted: le.granted, Preemptible: j.Spec.Preemptible,
	})
}

func (l *Leader) hold(le *lease) {
	l.leases.add(le)
	s := le.session
	le.at = len(s.held)
	s.held = append(s.held, le)
}

// end lets go of a lease: its room is free.
func (l *Leader) end(le *lease) {
	l.leases.remove(le)
	s := le.session
	last := s.held[len(s.held)-1]
	s.held[le.at], last.at = last, le.at
	s.held[len(s.held)-1] = nil
	s.held = s.held[:len(s.held)-1]
	if le.revoked {
		s.revoked--
	}
	if !l.sched.Drop(le.job) {
		panic("leader: a lease of " + le.job.String() + " that the scheduler does not know")
	}
}

// extend gives a lease its full duration from now; that of one which is frozen does not pass.
func (l *Leader) extend(le *lease) {
	le.undelivered = false
	if le.frozen {
		return
	}
	le.expires = l.draft.now.Add(le.duration)
	l.leases.fix(le)
}

// revoke notes that the lease is over without the worker's doing: it holds its room until the worker is known to have stopped.
func (l *Leader) revoke(le *lease) {
	if !le.revoked {
		le.revoked = true
		le.session.revoked++
		l.sched.Stop(le.job)
	}
}

// settle makes what an attempt cost what it is charged, and returns that. used is what its worker said that it used, nil for nothing. One that did
// not run is free.
func (l *Leader) settle(le *lease, ran time.Duration, used *cell.Resources) cell.Cost {
	if le.private {
		return 0
	}
	if l.cfg.Costing.ByUnit && used == nil && ran > 0 {
		return le.charged // nobody knows better
	}
	if used == nil {
		used = &cell.Resources{}
	}
	return l.chargeInAll(le, l.cfg.Costing.Of(ran, *used))
}

// chargeInAll makes total what the lease has been charged.
func (l *Leader) chargeInAll(le *lease, total cell.Cost) cell.Cost {
	if le.private {
		return 0
	}
	if le.charged != total {
		le.charged = total
		l.sched.Settle(le.job, total)
		l.chargedLane(le.book)
	}
	return total
}

// chargeOverruns charges leases that run longer than they were charged for.
func (l *Leader) chargeOverruns() {
	d := &l.draft
	for _, o := range l.sched.Overruns(d.entry.Time, l.cfg.GrantsPerEntryMax) {
		le := l.leases.get(o.Job)
		le.charged = o.Total
		l.chargedLane(le.book)
		d.add(&engine.ChargeFact{ID: le.job, Token: le.token, Charged: o.Total}, factBytes, ref{})
	}
}

// preempt takes borrowed leases back for the class whose own room they hold. The jobs are ready at once, in their places; the room is free when
// the workers have stopped.
func (l *Leader) preempt() {
	d := &l.draft
	named := l.sched.Preempt(d.entry.Time, l.cfg.GrantsPerEntryMax)
	if len(l.recalled)+len(named) == 0 {
		return
	}
	named = append(l.recalled, named...)
	l.recalled = nil
	for _, id := range named {
		switch le := l.leases.get(id); {
		case le == nil || le.revoked:
			// It is over, or on its way out, already.
		case le.frozen:
			l.recalled = append(l.recalled, id) // it is looked at again when the lane is open
		case le.token.Attempt == 0: // granted by this very entry
			l.recalled, l.more = append(l.recalled, id), true
		default:
			l.takeBack(le)
		}
	}
}

// takeBack seals that a lease is taken back for another class.
func (l *Leader) takeBack(le *lease) {
	d := &l.draft
	if !d.claim(le.job) {
		l.recalled, l.more = append(l.recalled, le.job), true // a call is about it in this very entry
		return
	}
	ran := le.elapsed(d.now)
	if le.undelivered {
		ran = 0
	}
	d.add(&engine.OutcomeFact{
		ID: le.job, Token: le.token, Kind: engine.OutcomePreempt, Charged: l.settle(le, ran, nil), Ran: ran,
	}, factBytes, ref{})
	l.revoke(le)
	l.mustAdd(l.itemOf(l.state.Job(le.job)))
	if le.undelivered {
		l.end(le) // no worker has it
		l.more = true
	}
	l.preempted++
}

// expireLeases takes leases back whose time is over.
func (l *Leader) expireLeases() {
	d := &l.draft
	for range l.cfg.GrantsPerEntryMax {
		if at := l.leases.due(); at == 0 || at > d.now {
			return
		}
		le := l.leases.first()
		switch {
		case d.busy(le.job):
			le.expires = d.now + 1 // a call is about it in this very entry: look again after that
			l.leases.fix(le)
		case le.revoked:
			l.end(le)
		case le.undelivered:
			l.giveUp(le, engine.OutcomeRelease, 0)
		default:
			l.giveUp(le, l.lossOf(le), le.elapsed(d.now))
		}
	}
}

// massLossesMax is how often a job can be lost together with most others before its losses count as its own: a job that takes its worker down
// where there are few others must not do so for ever.
const massLossesMax = 10

// lossOf says whose fault it is that a lease expired: the job's, unless more than half of the cell's leases were lost together.
func (l *Leader) lossOf(le *lease) engine.OutcomeKind {
	if d := &l.draft; !d.judged {
		d.judged = true
		if l.lostTogether() {
			l.massLoss = d.now
		}
	}
	if le.session.seen <= l.massLoss && l.state.Job(le.job).Lost < massLossesMax {
		return engine.OutcomeLoss
	}
	return engine.OutcomeCrash
}

// lostTogether reports whether more than one lease, and more than half of all, are over or nearly so in sessions that are silent. A worker
// extends what it holds well before half of the time is left.
func (l *Leader) lostTogether() bool {
	now := l.draft.now
	lost, all := 0, 0
	for _, le := range l.leases.heap {
		if le.revoked || le.undelivered || le.frozen {
			continue
		}
		all++
		if half := le.duration / 2; le.expires.Sub(now) <= half && now.Sub(le.session.seen) >= half {
			lost++
		}
	}
	return lost > 1 && 2*lost > all
}

// giveUp seals an outcome that no worker reported.
func (l *Leader) giveUp(le *lease, kind engine.OutcomeKind, ran time.Duration) {
	d := &l.draft
	if !d.claim(le.job) {
		return
	}
	f := &engine.OutcomeFact{ID: le.job, Token: le.token, Kind: kind, Ran: ran}
	f.Charged = l.settle(le, ran, nil)
	l.end(le)
	d.add(f, factBytes, ref{})
	j := l.state.Job(le.job)
	if kind == engine.OutcomeCrash && j.Crashes+1 >= l.state.Limits().CrashesMax {
		return // it ends in quarantine
	}
	l.mustAdd(l.itemOf(j))
}
