package engine

import (
	"container/heap"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/cell"
)

// Applied is what came of an entry.
type Applied struct {
	// Results has one result for each fact, in their order.
	Results []Result
	// Woken jobs became ready, Expired ones ended, by time alone.
	Woken, Expired []*Job
	// Ended has every job that reached an end in this entry.
	Ended []*Job
	// Imported has every job that an import brought or changed, Removed those that an import deleted or a wipe removed, Lanes those whose mode
	// changed.
	Imported []*Job
	Removed  []cell.JobID
	Lanes    []cell.Lane
}

// Result is what came of one fact.
type Result struct {
	// JobID and State are those of the job the fact was about, after it; State is 0 when the job itself is forgotten.
	JobID cell.JobID
	State JobState
	// Duplicate says that the fact had been applied before, and nothing changed.
	Duplicate bool
	// Index is that of the entry that did what was asked of a lane, or had done it before.
	Index uint64
	// Cursor is the lane's, of an import.
	Cursor Cursor
	// Left is how many records are still there, of a wipe.
	Left int64
	// Err says why the fact was refused.
	Err error
}

// Apply brings the state up to an entry of the log. The index must rise from call to call. It never fails: a fact that does not fit is
// refused in its result.
func (s *State) Apply(index uint64, e *Entry) Applied {
	s.index = index
	s.time = max(s.time, e.Time)
	a := Applied{Results: make([]Result, len(e.Facts))}
	for i, f := range e.Facts {
		a.Results[i] = s.applyFact(f, &a)
	}
	s.applyAccounts(e)
	s.applyShares()
	s.fireTimers(&a)
	s.expireKeys()
	s.settle()
	return a
}

// applyAccounts takes in where who was charged stands now. An account of nobody's is passed by: it has no result to be refused in.
func (s *State) applyAccounts(e *Entry) {
	for i := range e.Accounts {
		// What a lane was charged in the entry that fences it is still its own.
		if l := s.Lane(e.Accounts[i].Lane); l != nil && (l.serves() || l.Mode == cell.ModeFenced && l.Fence == s.index) {
			s.touchLane(l)
			l.Account = e.Accounts[i].Account
		}
	}
	for i := range e.TenantAccounts {
		if t := s.tenants[e.TenantAccounts[i].Tenant]; t != nil {
			s.touchTenant(t)
			t.Account = e.TenantAccounts[i].Account
		}
	}
	for i := range e.OrganizationAccounts {
		if o := s.organizations[e.OrganizationAccounts[i].Organization]; o != nil {
			s.touchOrganization(o)
			o.Account = e.OrganizationAccounts[i].Account
		}
	}
}

func (s *State) applyFact(f Fact, a *Applied) Result {
	switch f := f.(type) {
	case *SubmitFact:
		return s.applySubmit(f)
	case *OutcomeFact:
		return s.applyOutcome(f, a)
	case *GrantFact:
		return s.applyGrant(f)
	case *CancelFact:
		return s.applyCancel(f, a)
	case *RetryFact:
		return s.applyRetry(f)
	case *ChargeFact:
		return s.applyCharge(f)
	case *PolicyFact:
		return s.applyPolicy(f, a)
	case *LimitsFact:
		return s.applyLimits(f)
	case *OrganizationFact:
		return s.applyOrganization(f)
	default:
		return s.applyLaneFact(f, a)
	}
}

// applyLaneFact is applyFact for what is done to a lane as a whole.
func (s *State) applyLaneFact(f Fact, a *Applied) Result {
	switch f := f.(type) {
	case *StageFact:
		return s.applyStage(f, a)
	case *TrackFact:
		return s.applyTrack(f)
	case *ModeFact:
		return s.applyMode(f, a)
	case *ImportFact:
		return s.applyImport(f, a)
	case *WipeFact:
		return s.applyWipe(f, a)
	case *ProveFact:
		return Result{Index: s.index}
	default:
		panic(fmt.Sprintf("engine: fact of type %T", f))
	}
}

func (s *State) applyPolicy(f *PolicyFact, a *Applied) Result {
	if o := f.Policy.Organization; o != "" && s.organizations[o] == nil {
		return Result{Err: ErrOrganizationUnknown}
	}
	t := s.tenants[f.Policy.Tenant]
	if t == nil {
		t = s.newTenant(f.Policy.Tenant, cell.ModeOpen)
	}
	if f.Policy.Epoch < t.Policy.Epoch {
		return Result{Err: ErrPolicyStale}
	}
	s.setPolicy(t, &f.Policy)
	if t.away() && f.Policy.Epoch > max(t.lanes[0].Epoch, t.lanes[1].Epoch) {
		for _, l := range t.lanes {
			s.setMode(l, cell.ModeOpen, l.Epoch, cell.Move{})
			s.emptied(l)
			l.Fence = 0
			a.Lanes = append(a.Lanes, l.ID)
		}
	}
	return Result{}
}

// away reports whether both of the tenant's lanes have left and nothing of them is left behind: then a policy says that the tenant is assigned to this
// cell again. While a lane of it is here, or comes, a policy says nothing of the other.
func (t *Tenant) away() bool {
	for _, l := range t.lanes {
		if l.Mode != cell.ModeTombstone || l.left() > 0 {
			return false
		}
	}
	return true
}

// setPolicy makes a policy that is not older the tenant's.
func (s *State) setPolicy(t *Tenant, p *cell.TenantPolicy) {
	for _, l := range t.lanes {
		s.touchLane(l)
	}
	if p.Starts.Jobs != t.Policy.Starts.Jobs {
		s.touchTenant(t)
	}
	t.Policy = *p
	if kept := startsKept(t); kept != len(t.starts.at) {
		t.starts.keep(kept)
	}
}

func (s *State) newTenant(id cell.TenantID, mode cell.Mode) *Tenant {
	t := &Tenant{written: s.generation}
	for _, c := range cell.Classes() {
		l := &Lane{
			ID: cell.Lane{Tenant: id, Class: c}, Tenant: t, Mode: mode, written: s.generation,
			keeper: -1, timed: -1, keying: -1,
		}
		t.lanes[c.Index()] = l
		s.lanes = append(s.lanes, l)
		if l.serves() {
			heap.Push(&s.keepers, l)
		}
	}
	s.tenants[id] = t
	return t
}

func (s *State) applyLimits(f *LimitsFact) Result {
	if err := f.Limits.Validate(); err != nil {
		return Result{Err: err}
	}
	s.limits = f.Limits
	return Result{}
}

func (s *State) applySubmit(f *SubmitFact) Result {
	r, hash, done := s.precheck(f, Extra{})
	if done {
		return r
	}
	l := s.Lane(cell.Lane{Tenant: f.Tenant, Class: f.Class})
	if r := l.keys[hash]; r != nil && f.Spec.Key != "" {
		s.expireKey(r) // it is past
	}
	if l.Epoch != 0 {
		s.touchLane(l)
		l.Submitted++
	}
	s.accepted++
	j := &Job{
		ID: f.ID, Seq: s.accepted, Lane: l, Spec: f.Spec, BodyHash: f.BodyHash, Created: s.time, WakeAt: f.Spec.NotBefore,
		State: Ready, timer: -1,
	}
	if j.WakeAt > s.time {
		j.State = Delayed
	}
	s.insert(j, true)
	s.mark(j)
	if f.Spec.Key != "" {
		s.takeKey(l, hash, j)
	}
	return Result{JobID: j.ID, State: j.State}
}

// insert puts a job that is new to this State into every index; accepted says that it is new to the cell, too.
func (s *State) insert(j *Job, accepted bool) {
	j.written = s.generation // a snapshot under way does not have it: it is not part of that state
	j.position = len(s.all)
	s.all = append(s.all, j)
	s.jobs[j.ID] = j
	j.Lane.list.put(j.Seq, j)
	if !j.State.Ended() {
		s.enterKeys(j, accepted)
	}
	s.count(j, 1)
	s.arm(j)
}

// Extra is what an entry being sealed holds already, on top of the state.
type Extra struct {
	LaneJobs, LaneBytes, CellJobs, CellBytes, Keys int64
}

// Precheck returns what a submission would come to without being logged: a duplicate's job, or why it is refused. It returns false when
// the submission has to be logged, and would then be accepted.
func (s *State) Precheck(f *SubmitFact, x Extra) (Result, bool) {
	r, _, done := s.precheck(f, x)
	return r, done
}

// precheck is Precheck, and returns the key's hash too.
func (s *State) precheck(f *SubmitFact, x Extra) (Result, keyHash, bool) {
	var hash keyHash
	l := s.Lane(cell.Lane{Tenant: f.Tenant, Class: f.Class})
	if l == nil {
		return Result{Err: ErrTenantUnknown}, hash, true
	}
	if err := l.CheckLane(f.Epoch); err != nil {
		return Result{JobID: f.ID, Err: err}, hash, true
	}
	if f.Spec.Key != "" {
		hash = hashKey(f.Spec.Key)
		if r := l.keys[hash]; r != nil && !s.past(r) {
			return s.repeated(f, r), hash, true
		}
		if err := s.checkKeys(x); err != nil {
			return Result{Err: err}, hash, true
		}
	}
	if s.jobs[f.ID] != nil {
		return Result{Err: ErrJobIDTaken}, hash, true
	}
	if err := s.checkBacklog(l, f.Spec.Bytes(), x); err != nil {
		return Result{Err: err}, hash, true
	}
	return Result{}, hash, false
}

// checkKeys returns a *cell.LimitError when the cell has no room for another key.
func (s *State) checkKeys(x Extra) error {
	if s.keyRecords+x.Keys < s.limits.KeyRecordsMax {
		return nil
	}
	return &cell.LimitError{
		Limit: "key_records_max", Scope: cell.ScopeCell, Value: s.keyRecords + x.Keys + 1, Bound: s.limits.KeyRecordsMax,
		RetryAfter: time.Minute, Remedy: "submit without an idempotency key, or wait until older keys expire",
	}
}

func (s *State) repeated(f *SubmitFact, r *keyRecord) Result {
	if r.body != f.BodyHash {
		return Result{JobID: r.job, Err: &KeyTakenError{Key: f.Spec.Key, JobID: r.job}}
	}
	res := Result{JobID: r.job, Duplicate: true}
	if j := s.jobs[r.job]; j != nil {
		res.State = j.State
	}
	return res
}

// checkBacklog returns a *cell.LimitError when a job of so many bytes does not fit its lane or the cell.
func (s *State) checkBacklog(l *Lane, bytes int64, x Extra) error {
	jobsMax, bytesMax := l.Tenant.bounds(s.limits)
	checks := [...]struct {
		limit        string
		scope        cell.Scope
		value, bound int64
	}{
		{"backlog_jobs_max", cell.ScopeLane, l.liveJobs + x.LaneJobs + 1, jobsMax},
		{"backlog_bytes_max", cell.ScopeLane, l.liveBytes + x.LaneBytes + bytes, bytesMax},
		{"backlog_jobs_max", cell.ScopeCell, s.liveJobs + x.CellJobs + 1, s.limits.LiveJobsMax},
		{"backlog_bytes_max", cell.ScopeCell, s.liveBytes + x.CellBytes + bytes, s.limits.LiveBytesMax},
	}
	for _, c := range checks {
		if c.value > c.bound {
			return &cell.LimitError{
				Limit: c.limit, Scope: c.scope, Value: c.value, Bound: c.bound, RetryAfter: time.Second,
				Remedy: "wait until waiting jobs have run, or add workers",
			}
		}
	}
	return nil
}

// bounds returns what each of the tenant's lanes may hold.
func (t *Tenant) bounds(limits Limits) (jobs, bytes int64) {
	jobs, bytes = limits.LiveJobsMax, limits.LiveBytesMax
	if t.Policy.BacklogJobsMax > 0 {
		jobs = min(jobs, t.Policy.BacklogJobsMax)
	}
	if t.Policy.BacklogBytesMax > 0 {
		bytes = min(bytes, t.Policy.BacklogBytesMax)
	}
	return jobs, bytes
}

func (s *State) applyGrant(f *GrantFact) Result {
	j := s.jobs[f.ID]
	if j == nil {
		return Result{JobID: f.ID, Err: ErrJobUnknown}
	}
	if err := j.Lane.CheckLane(0); err != nil {
		return Result{JobID: j.ID, State: j.State, Err: err}
	}
	if _, ok := next(j.State, eventGrant, false); !ok {
		return Result{JobID: j.ID, State: j.State, Err: &StateError{JobID: j.ID, State: j.State, Asked: eventGrant.String()}}
	}
	s.move(j, eventGrant, false)
	j.Attempt++
	j.LeasedAt = s.time
	j.LastOutcome = OutcomeNone
	charged := f.Lease.Charged
	j.Lease = f.Lease
	j.Lease.Charged = 0
	j.Lease.Token.Epoch = max(j.Lane.Tenant.Policy.Epoch, j.Lane.Epoch)
	j.Lease.Token.Attempt = j.Attempt
	s.charge(j, charged)
	s.started(j.Lane.Tenant)
	if l := j.Lane; l.Epoch != 0 {
		s.touchLane(l)
		l.Granted++
	}
	return Result{JobID: j.ID, State: j.State}
}

func (s *State) applyCharge(f *ChargeFact) Result {
	j := s.jobs[f.ID]
	if j == nil {
		return Result{JobID: f.ID, Err: ErrJobUnknown}
	}
	if err := j.Lane.CheckLane(0); err != nil {
		return Result{JobID: j.ID, State: j.State, Err: err}
	}
	if j.State != Leased || j.Lease.Token != f.Token {
		return Result{JobID: j.ID, State: j.State, Err: ErrLeaseStale}
	}
	s.touch(j)
	s.charge(j, f.Charged)
	return Result{JobID: j.ID, State: j.State}
}

// charge makes total what the present attempt has been charged. A negative total counts as none, and sums stop at the largest cost there is.
func (s *State) charge(j *Job, total cell.Cost) {
	if j.Lease.Private {
		return
	}
	total = max(total, 0)
	delta := total - j.Lease.Charged
	s.touchLane(j.Lane)
	j.Lease.Charged = total
	j.Charged = addCost(j.Charged, delta)
	j.Lane.Charged = addCost(j.Lane.Charged, delta)
}

// addCost returns sum and delta together, where sum is not negative.
func addCost(sum, delta cell.Cost) cell.Cost {
	if delta > math.MaxInt64-sum {
		return math.MaxInt64
	}
	return max(sum+delta, 0)
}

// addResources returns sum and more together; components stop at the largest there is, and one below 0 counts as none.
func addResources(sum, more *cell.Resources) *cell.Resources {
	if more == nil {
		return sum
	}
	var total cell.Resources
	if sum != nil {
		total = *sum
	}
	for i, v := range more {
		total[i] = int64(addCost(cell.Cost(total[i]), cell.Cost(max(v, 0))))
	}
	return &total
}

func (s *State) applyOutcome(f *OutcomeFact, a *Applied) Result {
	j, r := s.CheckOutcome(f)
	if r.Err != nil || r.Duplicate {
		return r
	}
	s.touch(j)
	s.charge(j, f.Charged)
	j.Used, j.Ran = addResources(j.Used, f.Used), max(f.Ran, 0)
	if f.Kind.Teaches() && !j.Lease.Private {
		s.learn(j.Lane.Tenant, j.Spec.Operation, f.Charged)
	}
	if len(f.Error) > 0 {
		j.Error = cutText(f.Error, s.limits.ErrorBytesMax)
	}
	waits := f.WakeAt > s.time
	switch f.Kind {
	case OutcomeSuccess:
		j.Result = f.Result
		s.end(j, eventSucceed, a)
	case OutcomeFatal:
		j.Failed++
		s.end(j, eventFailFinally, a)
	case OutcomeFailure:
		j.Failed++
		if j.Failed >= j.Spec.Retry.AttemptsMax {
			s.end(j, eventFailFinally, a)
			break
		}
		s.back(j, eventFail, waits, f.WakeAt)
	case OutcomeRelease:
		s.back(j, eventRelease, waits, f.WakeAt)
	case OutcomeLoss:
		j.Lost++
		s.back(j, eventLose, waits, f.WakeAt)
	case OutcomeCrash:
		j.Lost++
		j.Crashes++
		if j.Crashes >= s.limits.CrashesMax {
			s.end(j, eventQuarantine, a)
			break
		}
		s.back(j, eventLose, waits, f.WakeAt)
	case OutcomePreempt:
		s.back(j, eventPreempt, false, 0)
	case OutcomeNone:
		panic("engine: an outcome of no kind")
	}
	j.LastOutcome = f.Kind
	return Result{JobID: j.ID, State: j.State}
}

// cutText returns at most n bytes of text, cut between characters: half of one would make the whole text invalid.
func cutText(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return strings.Clone(text[:n])
}

// PrecheckOutcome returns what an outcome would come to: a refusal, a duplicate of what was applied before, or a result without either,
// which says that the outcome would be taken.
func (s *State) PrecheckOutcome(f *OutcomeFact) Result {
	_, r := s.CheckOutcome(f)
	return r
}

// CheckOutcome is PrecheckOutcome, and returns the job too, nil when there is none.
func (s *State) CheckOutcome(f *OutcomeFact) (*Job, Result) {
	j := s.jobs[f.ID]
	if j == nil {
		return nil, Result{JobID: f.ID, Err: ErrJobUnknown}
	}
	r := Result{JobID: j.ID, State: j.State}
	if r.Err = j.Lane.CheckLane(f.Epoch); r.Err != nil {
		return j, r
	}
	switch {
	case j.Lease.Token != f.Token || j.Attempt == 0:
		r.Err = ErrLeaseStale
	case j.State == Leased:
	case j.LastOutcome == f.Kind && f.Kind != OutcomeNone:
		r.Duplicate = true
	default:
		r.Err = ErrLeaseStale
	}
	return j, r
}

// back takes the lease from a job that will run again.
func (s *State) back(j *Job, e jobEvent, waits bool, wakeAt cell.Instant) {
	s.touch(j)
	s.disarm(j)
	j.WakeAt = wakeAt
	s.moveDisarmed(j, e, waits)
}

func (s *State) applyCancel(f *CancelFact, a *Applied) Result {
	j := s.JobOf(f.Tenant, f.ID)
	if j == nil {
		return Result{JobID: f.ID, Err: ErrJobUnknown}
	}
	if err := j.Lane.CheckLane(f.Epoch); err != nil {
		return Result{JobID: j.ID, State: j.State, Err: err}
	}
	if j.State.Ended() {
		return Result{JobID: j.ID, State: j.State, Duplicate: true}
	}
	s.touch(j)
	if j.State == Leased {
		s.charge(j, f.Charged)
	}
	s.end(j, eventCancel, a)
	return Result{JobID: j.ID, State: j.State}
}

func (s *State) applyRetry(f *RetryFact) Result {
	if r := s.PrecheckRetry(f, Extra{}); r.Err != nil {
		return r
	}
	j := s.jobs[f.ID]
	s.touch(j)
	s.disarm(j)
	j.finishedList().remove(j)
	j.finishSeq, j.Finished = 0, 0
	s.endWindow(j)
	j.Failed, j.Lost, j.Crashes = 0, 0, 0
	j.WakeAt = s.time
	if j.Spec.Deadline != 0 && j.Spec.Deadline <= s.time {
		j.Spec.Deadline = 0 // it would expire at once, which is not what whoever asks for a retry wants
	}
	s.moveDisarmed(j, eventRetry, false)
	j.Error, j.Result = "", Payload{} // after the move, which takes their bytes off the finished ones
	return Result{JobID: j.ID, State: j.State}
}

// PrecheckRetry returns what a retry would come to: a refusal, or a result without an error, which says that it would be done.
func (s *State) PrecheckRetry(f *RetryFact, x Extra) Result {
	j := s.JobOf(f.Tenant, f.ID)
	if j == nil {
		return Result{JobID: f.ID, Err: ErrJobUnknown}
	}
	r := Result{JobID: j.ID, State: j.State}
	if r.Err = j.Lane.CheckLane(f.Epoch); r.Err != nil {
		return r
	}
	if _, ok := next(j.State, eventRetry, false); !ok {
		r.Err = &StateError{JobID: j.ID, State: j.State, Asked: eventRetry.String()}
		return r
	}
	if j.Dropped {
		r.Err = &StateError{JobID: j.ID, State: j.State, Asked: "retry: its payload was dropped for the bound on finished jobs"}
		return r
	}
	if j.Spec.Key != "" && j.Lane.keys[hashKey(j.Spec.Key)] == nil {
		if r.Err = s.checkKeys(x); r.Err != nil {
			return r
		}
	}
	r.Err = s.checkBacklog(j.Lane, j.Bytes(), x)
	return r
}

// move changes a job's state by an event that the caller knows to be possible.
func (s *State) move(j *Job, e jobEvent, waits bool) {
	s.touch(j)
	s.disarm(j)
	s.moveDisarmed(j, e, waits)
}

// moveDisarmed is move for a job that is out of the timers already.
func (s *State) moveDisarmed(j *Job, e jobEvent, waits bool) {
	to, ok := next(j.State, e, waits)
	if !ok {
		panic(fmt.Sprintf("engine: %v, which is %v, cannot %v", j.ID, j.State, e))
	}
	switch ended := j.State.Ended(); {
	case ended == to.Ended(): // what it counts for stays as it is
		s.countState(j, -1)
		j.State = to
		s.countState(j, 1)
	case ended:
		s.count(j, -1)
		j.State = to
		s.enterKeys(j, false)
		s.count(j, 1)
	default:
		s.count(j, -1)
		j.State = to
		s.leaveKeys(j)
		s.count(j, 1)
	}
	s.arm(j)
}

// end takes a job to one of its five ends.
func (s *State) end(j *Job, e jobEvent, a *Applied) {
	s.touch(j)
	s.disarm(j)
	s.ended++
	j.Finished = s.time
	s.moveDisarmed(j, e, false)
	a.Ended = append(a.Ended, j)
	j.finishSeq = s.ended
	j.Lane.whole.push(j)
	s.startWindow(j)
	s.trimFinished(j.Lane)
}

// countState adds n, 1 or -1, to the counters of the job's state.
func (s *State) countState(j *Job, n int64) {
	s.counts[j.State] += n
	j.Lane.counts[j.State] += n
	if j.State == Leased {
		s.countHeld(j, n)
	}
}

// count adds n, 1 or -1, to every counter that the job is counted in.
func (s *State) count(j *Job, n int64) {
	l := j.Lane
	s.countState(j, n)
	if j.State.Ended() {
		b := n * j.finishedBytes()
		l.finishedJobs += n
		l.finishedBytes += b
		if l.keeper < 0 {
			s.resting += b
			return
		}
		s.finishedBytes += b
		heap.Fix(&s.keepers, l.keeper)
		return
	}
	b := n * j.Bytes()
	s.liveJobs += n
	s.liveBytes += b
	l.liveJobs += n
	l.liveBytes += b
}
