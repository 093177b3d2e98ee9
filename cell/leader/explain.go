package leader

import (
	"fmt"
	"sort"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	"github.com/fairlead/fairlead/cell/sched"
)

// Reason is why a job is not running.
type Reason uint8

// The reasons. The numbers are the API's.
const (
	ReasonEnded             Reason = 1  // nothing to wait for
	ReasonRunning           Reason = 2  // a worker holds it
	ReasonNotBefore         Reason = 3  // its not-before time is to come
	ReasonBackoff           Reason = 4  // it backs off after a failed attempt
	ReasonNoWorker          Reason = 5  // no live worker that may run the tenant's jobs offers its operation
	ReasonClassSlots        Reason = 6  // every slot that its class may use is taken
	ReasonOwnQueue          Reason = 7  // jobs of its own lane stand before it
	ReasonTurn              Reason = 8  // other tenants' turns come first
	ReasonRunningCap        Reason = 9  // workers hold as many of the tenant's jobs as they may
	ReasonConcurrencyKey    Reason = 10 // workers hold as many jobs of one of its keys as they may
	ReasonStartRate         Reason = 11 // as many of the tenant's jobs have started of late as may
	ReasonLimit             Reason = 12 // the tenant was charged what its limit allows
	ReasonOrganizationLimit Reason = 13 // its organization was
	ReasonHeldBack          Reason = 14 // idle room is held back for the other class
	ReasonReservation       Reason = 15 // tenants below their reservation go first
	ReasonStopping          Reason = 16 // its last worker has been told to stop, and has yet to
	ReasonMoving            Reason = 17 // its lane is not open here; the API has none of this: who asks is sent to where the lane is
)

func (r Reason) String() string {
	names := [...]string{
		"", "ended", "running", "not-before", "back-off", "no worker", "class slots", "own queue", "turn", "running cap", "concurrency key", "start rate",
		"limit", "organization's limit", "held back", "reservation", "stopping",
		"moving",
	}
	if r >= 1 && int(r) < len(names) {
		return names[r]
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// Explanation says why a job waits, with the numbers.
type Explanation struct {
	Job     *engine.Job
	Reason  Reason
	Message string
	// Position in its lane, 1 for the next to run; 0 when it does not wait for its turn.
	Position int64
	Tenants  int64 // that wait for the same operation in the same class, its own included
	Workers  int   // live workers that offer its operation and run its tenant's jobs
	Class    sched.ClassUse
	NextTime cell.Instant   // when it can run at the earliest, where that is known
	Holders  []cell.JobID   // jobs that hold what it waits for, the oldest grants first
	Bound    ExplainedBound // what it waits for, where that is a bound
}

// ExplainedBound is a bound that a job waits for. The zero value is none.
type ExplainedBound struct {
	Name string // as a policy or a job names it: running_max, concurrency_keys, starts, limit, organization.limit
	// Value and Most are what it stands at and may: jobs, or what Rate says.
	Value, Most int64
	Rate        cell.Rate     // of a limit
	Key         string        // of a concurrency key
	Period      time.Duration // of a rate of starts
}

// Explain says why the tenant's job waits; false when the tenant has no such job. It changes nothing, but lets the scheduler know the time: the
// owner's lock must be held as for any other method.
func (l *Leader) Explain(now cell.Instant, tenant cell.TenantID, id cell.JobID) (Explanation, bool) {
	j := l.state.JobOf(tenant, id)
	if j == nil {
		return Explanation{}, false
	}
	lane := j.Lane
	x := Explanation{Job: j, Workers: l.workersFor(&lane.Tenant.Policy, j.Spec.Operation), Class: l.sched.Use(lane.ID.Class)}
	switch j.State {
	case engine.Delayed:
		x.Reason, x.NextTime = ReasonNotBefore, j.WakeAt
		if j.Failed > 0 {
			x.Reason = ReasonBackoff
		}
		x.Message = fmt.Sprintf("it may run again at %s, in %s", j.WakeAt.Time().Format(time.RFC3339), short(j.WakeAt.Sub(now)))
		if x.Reason == ReasonNotBefore {
			x.Message = fmt.Sprintf("it may not run before %s, in %s", j.WakeAt.Time().Format(time.RFC3339), short(j.WakeAt.Sub(now)))
		}
	case engine.Ready:
		l.explainReady(&x, now)
	case engine.Leased:
		x.Reason = ReasonRunning
		x.Message = fmt.Sprintf("worker %q holds it since %s, as attempt %d", j.Lease.Worker, short(now.Sub(j.LeasedAt)), j.Attempt)
	case engine.Succeeded, engine.Failed, engine.Cancelled, engine.Expired, engine.Quarantined:
		x.Reason = ReasonEnded
		x.Message = fmt.Sprintf("it %s at %s", endedAs(j.State), j.Finished.Time().Format(time.RFC3339))
	}
	return x, true
}

func endedAs(s engine.JobState) string {
	if s == engine.Quarantined || s == engine.Cancelled {
		return "was " + s.String()
	}
	return s.String()
}

func (l *Leader) explainReady(x *Explanation, now cell.Instant) {
	w, waits := l.sched.Explain(now, x.Job.ID)
	x.Position, x.Tenants = w.Place.Position, max(1, w.Place.Tenants) // its own waits, whether or not anybody offers the operation
	x.NextTime, x.Holders = w.Next, w.Holders
	if !waits { // it is past its deadline, or granted by the entry in flight
		x.Reason, x.Message = ReasonTurn, "it is on its way to a worker, or out: look again"
		return
	}
	if w.Reason == sched.ReasonNoOffer && x.Workers > 0 {
		l.explainPrivate(x, &w, now)
	}
	if l.explainBound(x, &w, now) {
		return
	}
	id, op := x.Job.Lane.ID, x.Job.Spec.Operation
	switch w.Reason { //nolint:exhaustive // bounds are dealt with, and the rest is its turn
	case sched.ReasonStopping:
		x.Reason = ReasonStopping
		x.Message = fmt.Sprintf("worker %q has been told to stop it, and has yet to: it starts again after that", x.Job.Lease.Worker)
	case sched.ReasonSuspended:
		x.Reason = ReasonMoving
		x.Message = fmt.Sprintf("its lane is %v in this cell: it runs where the lane is open", x.Job.Lane.Mode)
	case sched.ReasonNoOffer:
		x.Reason = ReasonNoWorker
		x.Message = noWorker(op, &w)
	case sched.ReasonOwnQueue:
		x.Reason = ReasonOwnQueue
		x.Message = fmt.Sprintf("%d jobs of the tenant's own stand before it in %s; %d of its jobs run", w.Place.Position-1, id.Class,
			x.Job.Lane.Count(engine.Leased))
	case sched.ReasonClassSlots:
		x.Reason = ReasonClassSlots
		x.Message = fmt.Sprintf("%s uses %d of the %d slots it may use now", id.Class, x.Class.Used, x.Class.Limit)
		if x.Class.Lent > 0 {
			x.Message += fmt.Sprintf("; %d of its own %d are lent, and come back as their jobs end", x.Class.Lent, x.Class.Nominal)
		}
	case sched.ReasonHeldBack:
		x.Reason = ReasonHeldBack
		x.Message = fmt.Sprintf("%s uses %d of the %d slots it may use now: %d more are idle, and held back for the other class until it has been quiet for a while",
			id.Class, x.Class.Used, x.Class.Limit, x.Class.HeldBack) + until(w.Next, now)
	case sched.ReasonReservation:
		x.Reason = ReasonReservation
		x.Message = fmt.Sprintf("it is the next of its lane; %d tenants wait for %s in %s, and those below their reservation go first", x.Tenants, op,
			id.Class) + l.ownReservation(id, now)
	default:
		x.Reason = ReasonTurn
		x.Message = fmt.Sprintf("it is the next of its lane; %d tenants wait for %s in %s, and each gets its turn as slots free", x.Tenants, op, id.Class)
		x.Holders = l.holders(&x.Job.Lane.Tenant.Policy, id.Class)
	}
}

// noWorker says who would have to offer an operation, and whether others do.
func noWorker(op cell.Operation, w *sched.Why) string {
	s := fmt.Sprintf("no live worker offers %s", op)
	if w.Groups != 0 {
		noun := "groups"
		if w.Groups&(w.Groups-1) == 0 {
			noun = "group"
		}
		s = fmt.Sprintf("no live worker of the tenant's hand, %s %s, offers %s", noun, cell.FormatWorkerGroups(w.Groups), op)
	}
	switch {
	case w.Elsewhere && w.Groups != 0:
		s += "; workers outside of it do, and run other tenants' jobs"
	case w.Elsewhere:
		s += " to tenants without a hand; workers of groups do, and run the jobs of tenants that hold theirs"
	}
	return s
}

// explainBound says which bound of the tenant's, of its organization's or of its own a job waits for; false when it waits for none.
func (l *Leader) explainBound(x *Explanation, w *sched.Why, now cell.Instant) bool {
	p := &x.Job.Lane.Tenant.Policy
	b := &x.Bound
	b.Value, b.Most, b.Key, b.Period, b.Rate = w.Value, w.Bound, w.Key, w.Per, w.Rate
	unit := l.cfg.Costing.UnitName()
	switch w.Reason { //nolint:exhaustive // the others are no bounds
	case sched.ReasonConcurrencyKey:
		x.Reason, b.Name = ReasonConcurrencyKey, "concurrency_keys"
		x.Message = fmt.Sprintf("workers hold %d jobs of concurrency key %q, of %d that may be held", w.Value, w.Key, w.Bound)
	case sched.ReasonRunningCap:
		x.Reason, b.Name = ReasonRunningCap, "running_max"
		x.Message = fmt.Sprintf("workers hold %d jobs of the tenant's, of %d that may be held", w.Value, w.Bound)
	case sched.ReasonStartRate:
		x.Reason, b.Name = ReasonStartRate, "starts"
		x.Message = fmt.Sprintf("%d jobs of the tenant's have started within %v, of %d that may", w.Value, w.Per, w.Bound) + until(w.Next, now)
	case sched.ReasonLimit:
		x.Reason, b.Name = ReasonLimit, "limit"
		x.Message = fmt.Sprintf("the tenant was charged what its limit of %v %s a second allows", w.Rate, unit) + until(w.Next, now)
	case sched.ReasonOrganizationLimit:
		x.Reason, b.Name = ReasonOrganizationLimit, "organization.limit"
		x.Message = fmt.Sprintf("organization %s was charged what its limit of %v %s a second allows", p.Organization, w.Rate, unit) + until(w.Next, now)
	default:
		*b = ExplainedBound{}
		return false
	}
	return true
}

// explainPrivate looks for what keeps a job from its tenant's own workers, which are nobody's else: only caps and keys do.
func (l *Leader) explainPrivate(x *Explanation, w *sched.Why, now cell.Instant) {
	p := &x.Job.Lane.Tenant.Policy
	w.Reason = sched.ReasonNext
	if w.Place.Position > 1 {
		w.Reason = sched.ReasonOwnQueue
	}
	if s, ok := l.sched.ExplainTenant(now, p.Tenant); ok && s.NextStart > now {
		w.Reason, w.Value, w.Bound, w.Per, w.Next = sched.ReasonStartRate, s.Starts, s.Rate.Jobs, s.Rate.Per, s.NextStart
	}
	if held := l.sched.HeldBy(p.Tenant); p.RunningMax > 0 && held >= p.RunningMax {
		w.Reason, w.Value, w.Bound = sched.ReasonRunningCap, held, p.RunningMax
	}
	for _, k := range x.Job.Spec.Keys {
		if held, bound := l.keyHeld(x.Job.Lane.Tenant, k.Key); held >= bound {
			w.Reason, w.Key, w.Value, w.Bound = sched.ReasonConcurrencyKey, k.Key, held, bound
		}
	}
}

// keyHeld returns how many leases carry one of the tenant's concurrency keys, and how many may.
func (l *Leader) keyHeld(t *engine.Tenant, key string) (held, bound int64) {
	bound, _, _ = t.Concurrency(key)
	return l.sched.KeyHeld(t.Policy.Tenant, key), bound
}

// ownReservation says where a lane stands with a reservation of its own.
func (l *Leader) ownReservation(id cell.Lane, now cell.Instant) string {
	s, ok := l.sched.ExplainTenant(now, id.Tenant)
	if !ok {
		return ""
	}
	own := s.Lanes[id.Class.Index()].Tree.Own
	if own.Reservation == 0 {
		return "; it has none in the class"
	}
	return fmt.Sprintf("; it has had its own %v %s a second for %s to come", own.Reservation, l.cfg.Costing.UnitName(), short(own.Ahead))
}

// until says when something ends, where that is known.
func until(at, now cell.Instant) string {
	if at == 0 {
		return ""
	}
	return fmt.Sprintf("; the next may run at %s, in %s", at.Time().Format(time.RFC3339), short(max(0, at.Sub(now))))
}

// workersFor counts the live workers that would lease a job of the operation for the tenant: the tenant's own, and those of the platform's that
// are in its hand.
func (l *Leader) workersFor(p *cell.TenantPolicy, op cell.Operation) int {
	n := 0
	fifo := l.cfg.Sched.Policy == sched.PolicyFIFO // which knows no hands
	for id, s := range l.sessions {                // order-free: a count
		if id.Tenant != "" && id.Tenant != p.Tenant || id.Tenant == "" && !fifo && !s.group.In(p.Groups) {
			continue
		}
		for _, o := range s.operations {
			if o == op && s.slots > 0 {
				n++
			}
		}
	}
	return n
}

// serves reports whether a session's worker runs the tenant's jobs: it is the tenant's own, or one of the cell's in the tenant's hand.
func (l *Leader) serves(s *session, p *cell.TenantPolicy) bool {
	if s.private() {
		return s.id.Tenant == p.Tenant
	}
	return l.cfg.Sched.Policy == sched.PolicyFIFO || s.group.In(p.Groups) // FIFO knows no hands
}

// holders returns the class's oldest leases on the cell's workers that run the tenant's jobs.
func (l *Leader) holders(p *cell.TenantPolicy, c cell.Class) []cell.JobID {
	var leases []*lease
	for _, le := range l.leases.heap {
		if le.book.lane.Class == c && !le.private && l.serves(le.session, p) {
			leases = append(leases, le)
		}
	}
	sort.Slice(leases, func(i, j int) bool { return leases[i].granted < leases[j].granted })
	var ids []cell.JobID
	for _, le := range leases[:min(len(leases), sched.HoldersMax)] {
		ids = append(ids, le.job)
	}
	return ids
}

// short rounds a duration to what people want to read.
func short(d time.Duration) time.Duration {
	switch {
	case d > time.Minute:
		return d.Round(time.Second)
	case d > time.Second:
		return d.Round(100 * time.Millisecond)
	default:
		return d.Round(time.Millisecond)
	}
}

// SessionInfo is a live worker session.
type SessionInfo struct {
	ID         SessionID
	Worker     string
	Operations []cell.Operation
	Group      cell.WorkerGroup // 0 for none
	Slots      int64
	Prefetch   int64
	Held       int64
	Seen       cell.Instant
}

// Sessions returns the live sessions, ordered by worker and name.
func (l *Leader) Sessions() []SessionInfo {
	infos := make([]SessionInfo, 0, len(l.sessions))
	for id, s := range l.sessions { // order-free: sorted below
		infos = append(infos, SessionInfo{
			ID: id, Worker: s.worker, Operations: s.operations, Group: s.group, Slots: s.slots, Prefetch: s.prefetch, Held: int64(len(s.held)),
			Seen: s.seen,
		})
	}
	sort.Slice(infos, func(i, j int) bool {
		a, b := infos[i], infos[j]
		if a.Worker != b.Worker {
			return a.Worker < b.Worker
		}
		if a.ID.Tenant != b.ID.Tenant {
			return a.ID.Tenant < b.ID.Tenant
		}
		return a.ID.Name < b.ID.Name
	})
	return infos
}

// Oldest returns when the first job that waits in a lane was accepted; false when that is not known.
func (l *Leader) Oldest(lane cell.Lane) (cell.Instant, bool) { return l.sched.Oldest(lane) }

// Use returns what a class may hold and holds. It is a write to the scheduler: not beside readers.
func (l *Leader) Use(c cell.Class) sched.ClassUse { return l.sched.Use(c) }
