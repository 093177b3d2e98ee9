package engine_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
)

// model is the state machine written down as plainly as possible: slices in the order of acceptance, every sum and every order
// recomputed by looking at everything.
type model struct {
	limits          engine.Limits
	time            cell.Instant
	accepted, ended uint64
	policies        map[cell.TenantID]cell.TenantPolicy
	charged         map[cell.Lane]cell.Cost
	accounts        map[cell.Lane]cell.LaneAccount
	tenantAccounts  map[cell.TenantID]cell.TenantAccount
	organizations   map[cell.OrganizationID]*engine.Organization
	starts          map[cell.TenantID][]cell.Instant
	estimates       map[cell.TenantID][]modelEstimate // the one observed longest ago first
	concurrency     map[modelConcurrency]int64        // bounds
	jobs            []*modelJob
	keys            []*modelKey
	// What the entry under way has done.
	woken, expired, finished []cell.JobID
	seen                     map[string]int // how often what happened
}

type modelEstimate struct {
	operation cell.Operation
	estimate  cell.Estimate
}

// modelConcurrency is a concurrency key of a tenant.
type modelConcurrency struct {
	tenant cell.TenantID
	key    string
}

// modelJob is a job's public record, and the number of its end.
type modelJob struct {
	ID       cell.JobID
	Seq      uint64
	Lane     cell.Lane
	Spec     engine.Spec
	BodyHash [16]byte

	State                               engine.JobState
	Created, LeasedAt, Finished, WakeAt cell.Instant
	Attempt, Failed, Lost, Crashes      int32
	Lease                               engine.Lease
	LastOutcome                         engine.OutcomeKind
	Result                              engine.Payload
	Dropped                             bool
	Error                               string
	Charged                             cell.Cost
	Used                                *cell.Resources
	Ran                                 time.Duration
	end                                 uint64
}

// modelKey is what stands under a key; end and expires are 0 while its job has not ended.
type modelKey struct {
	lane    cell.Lane
	key     string
	body    [16]byte
	job     cell.JobID
	end     uint64
	expires cell.Instant
}

func newModel(limits engine.Limits, seen map[string]int) *model {
	return &model{
		limits: limits, seen: seen, policies: map[cell.TenantID]cell.TenantPolicy{}, charged: map[cell.Lane]cell.Cost{},
		accounts: map[cell.Lane]cell.LaneAccount{}, tenantAccounts: map[cell.TenantID]cell.TenantAccount{},
		organizations: map[cell.OrganizationID]*engine.Organization{}, starts: map[cell.TenantID][]cell.Instant{},
		estimates: map[cell.TenantID][]modelEstimate{}, concurrency: map[modelConcurrency]int64{},
	}
}

// apply is State.Apply.
func (m *model) apply(e *engine.Entry) []engine.Result {
	m.woken, m.expired, m.finished = nil, nil, nil
	m.time = max(m.time, e.Time)
	var results []engine.Result
	for _, f := range e.Facts {
		results = append(results, m.fact(f))
	}
	for _, a := range e.Accounts {
		if _, ok := m.policies[a.Lane.Tenant]; ok {
			m.accounts[a.Lane] = a.Account
		}
	}
	for _, a := range e.TenantAccounts {
		if _, ok := m.policies[a.Tenant]; ok {
			m.tenantAccounts[a.Tenant] = a.Account
		}
	}
	for _, a := range e.OrganizationAccounts {
		if o := m.organizations[a.Organization]; o != nil {
			o.Account = a.Account
		}
	}
	m.fire()
	m.forgetConcurrency()
	m.expireKeys()
	return results
}

// forgetConcurrency drops the keys that no live job carries.
func (m *model) forgetConcurrency() {
	for k := range m.concurrency {
		if live, _ := m.carrying(k); live == 0 {
			m.seen["concurrency key gone"]++
			delete(m.concurrency, k)
		}
	}
}

// carrying returns how many live jobs carry the key, and how many of them are leased.
func (m *model) carrying(k modelConcurrency) (live, held int64) {
	for _, j := range m.jobs {
		for _, own := range j.Spec.Keys {
			if j.Lane.Tenant != k.tenant || own.Key != k.key || j.State.Ended() {
				continue
			}
			if live++; j.State == engine.Leased {
				held++
			}
		}
	}
	return live, held
}

// carry gives the job's keys the bounds that it brings: where there are none, or it is accepted.
func (m *model) carry(j *modelJob, accepted bool) {
	for _, own := range j.Spec.Keys {
		k := modelConcurrency{j.Lane.Tenant, own.Key}
		if bound, ok := m.concurrency[k]; !ok || accepted {
			if ok && bound != own.Max {
				m.seen["concurrency bound changed"]++
			}
			m.concurrency[k] = own.Max
		}
	}
}

// observe learns what a job of the operation cost.
func (m *model) observe(tenant cell.TenantID, op cell.Operation, cost cell.Cost) {
	list := m.estimates[tenant]
	e := modelEstimate{operation: op}
	if i := slices.IndexFunc(list, func(e modelEstimate) bool { return e.operation == op }); i >= 0 {
		e = list[i]
		list = slices.Delete(list, i, i+1)
	}
	e.estimate = e.estimate.Observe(cost)
	list = append(list, e)
	bound := m.limits.EstimatesMax
	if bound == 0 {
		bound = 64
	}
	for len(list) > bound {
		m.seen["estimate forgotten"]++
		list = list[1:]
	}
	m.estimates[tenant] = list
}

// startsKept is how many of the tenant's starts are remembered.
func (m *model) keepStarts(tenant cell.TenantID) {
	kept := int(min(max(m.policies[tenant].Starts.Jobs, 0), 1000))
	if n := len(m.starts[tenant]); n > kept {
		m.seen["start forgotten"]++
		m.starts[tenant] = m.starts[tenant][n-kept:]
	}
}

func (m *model) fact(f engine.Fact) engine.Result {
	m.forgetConcurrency()
	switch f := f.(type) {
	case *engine.OrganizationFact:
		o := m.organizations[f.Policy.Organization]
		if o == nil {
			o = &engine.Organization{}
			m.organizations[f.Policy.Organization] = o
		}
		if f.Policy.Epoch < o.Policy.Epoch {
			return engine.Result{Err: engine.ErrPolicyStale}
		}
		o.Policy = f.Policy
		return engine.Result{}
	case *engine.PolicyFact:
		if o := f.Policy.Organization; o != "" && m.organizations[o] == nil {
			return engine.Result{Err: engine.ErrOrganizationUnknown}
		}
		if f.Policy.Epoch < m.policies[f.Policy.Tenant].Epoch {
			return engine.Result{Err: engine.ErrPolicyStale}
		}
		m.policies[f.Policy.Tenant] = f.Policy
		m.keepStarts(f.Policy.Tenant)
		return engine.Result{}
	case *engine.LimitsFact:
		if err := f.Limits.Validate(); err != nil {
			return engine.Result{Err: err}
		}
		m.limits = f.Limits
		return engine.Result{}
	case *engine.SubmitFact:
		return m.submit(f)
	case *engine.GrantFact:
		return m.grant(f)
	case *engine.ChargeFact:
		j := m.job(f.ID)
		if j == nil {
			return engine.Result{JobID: f.ID, Err: engine.ErrJobUnknown}
		}
		if j.State != engine.Leased || j.Lease.Token != f.Token {
			return engine.Result{JobID: j.ID, State: j.State, Err: engine.ErrLeaseStale}
		}
		m.charge(j, f.Charged)
		return engine.Result{JobID: j.ID, State: j.State}
	case *engine.OutcomeFact:
		return m.outcome(f)
	case *engine.CancelFact:
		j := m.job(f.ID)
		if j == nil || j.Lane.Tenant != f.Tenant {
			return engine.Result{JobID: f.ID, Err: engine.ErrJobUnknown}
		}
		if j.State.Ended() {
			return engine.Result{JobID: j.ID, State: j.State, Duplicate: true}
		}
		if j.State == engine.Leased {
			m.charge(j, f.Charged)
		}
		m.end(j, engine.Cancelled)
		return engine.Result{JobID: j.ID, State: j.State}
	case *engine.RetryFact:
		return m.retry(f)
	default:
		panic(fmt.Sprintf("fact of type %T", f))
	}
}

func (m *model) job(id cell.JobID) *modelJob {
	for _, j := range m.jobs {
		if j.ID == id {
			return j
		}
	}
	return nil
}

func (m *model) key(lane cell.Lane, key string) *modelKey {
	for _, k := range m.keys {
		if k.lane == lane && k.key == key {
			return k
		}
	}
	return nil
}

func modelBytes(s *engine.Spec) int64 {
	n := 512 + len(s.Payload.Data) + len(s.Payload.ContentType) + len(s.Operation) + len(s.Key) + len(s.Traceparent)
	for _, l := range s.Labels {
		n += len(l.Name + l.Value)
	}
	for _, k := range s.Keys {
		n += 128 + len(k.Key)
	}
	return int64(n)
}

// live returns how many jobs of the lane, or of all where it is nil, have not ended, and their bytes.
func (m *model) live(lane *cell.Lane) (jobs, bytes int64) {
	for _, j := range m.jobs {
		if !j.State.Ended() && (lane == nil || j.Lane == *lane) {
			jobs++
			bytes += modelBytes(&j.Spec)
		}
	}
	return jobs, bytes
}

func (m *model) room(lane cell.Lane, bytes int64) error {
	p := m.policies[lane.Tenant]
	jobsMax, bytesMax := m.limits.LiveJobsMax, m.limits.LiveBytesMax
	if p.BacklogJobsMax > 0 {
		jobsMax = min(jobsMax, p.BacklogJobsMax)
	}
	if p.BacklogBytesMax > 0 {
		bytesMax = min(bytesMax, p.BacklogBytesMax)
	}
	laneJobs, laneBytes := m.live(&lane)
	cellJobs, cellBytes := m.live(nil)
	switch {
	case laneJobs+1 > jobsMax:
		return &cell.LimitError{Limit: "backlog_jobs_max", Scope: cell.ScopeLane, Value: laneJobs + 1, Bound: jobsMax}
	case laneBytes+bytes > bytesMax:
		return &cell.LimitError{Limit: "backlog_bytes_max", Scope: cell.ScopeLane, Value: laneBytes + bytes, Bound: bytesMax}
	case cellJobs+1 > m.limits.LiveJobsMax:
		return &cell.LimitError{Limit: "backlog_jobs_max", Scope: cell.ScopeCell, Value: cellJobs + 1, Bound: m.limits.LiveJobsMax}
	case cellBytes+bytes > m.limits.LiveBytesMax:
		return &cell.LimitError{Limit: "backlog_bytes_max", Scope: cell.ScopeCell, Value: cellBytes + bytes, Bound: m.limits.LiveBytesMax}
	}
	return nil
}

func (m *model) keyRoom() error {
	if n := int64(len(m.keys)) + 1; n > m.limits.KeyRecordsMax {
		return &cell.LimitError{Limit: "key_records_max", Scope: cell.ScopeCell, Value: n, Bound: m.limits.KeyRecordsMax}
	}
	return nil
}

func (m *model) submit(f *engine.SubmitFact) engine.Result {
	lane := cell.Lane{Tenant: f.Tenant, Class: f.Class}
	if _, ok := m.policies[f.Tenant]; !ok {
		return engine.Result{Err: engine.ErrTenantUnknown}
	}
	if f.Spec.Key != "" {
		if k := m.key(lane, f.Spec.Key); k != nil {
			if k.body != f.BodyHash {
				return engine.Result{JobID: k.job, Err: &engine.KeyTakenError{Key: k.key, JobID: k.job}}
			}
			r := engine.Result{JobID: k.job, Duplicate: true}
			if j := m.job(k.job); j != nil {
				r.State = j.State
			}
			m.seen["duplicate submit"]++
			return r
		}
		if err := m.keyRoom(); err != nil {
			return engine.Result{Err: err}
		}
	}
	if m.job(f.ID) != nil {
		return engine.Result{Err: engine.ErrJobIDTaken}
	}
	if err := m.room(lane, modelBytes(&f.Spec)); err != nil {
		return engine.Result{Err: err}
	}
	m.accepted++
	j := &modelJob{
		ID: f.ID, Seq: m.accepted, Lane: lane, Spec: f.Spec, BodyHash: f.BodyHash, State: engine.Ready, Created: m.time,
		WakeAt: f.Spec.NotBefore,
	}
	if f.Spec.NotBefore > m.time {
		j.State = engine.Delayed
	}
	m.jobs = append(m.jobs, j)
	m.carry(j, true)
	if f.Spec.Key != "" {
		m.keys = append(m.keys, &modelKey{lane: lane, key: f.Spec.Key, body: f.BodyHash, job: f.ID})
	}
	return engine.Result{JobID: j.ID, State: j.State}
}

func (m *model) grant(f *engine.GrantFact) engine.Result {
	j := m.job(f.ID)
	if j == nil {
		return engine.Result{JobID: f.ID, Err: engine.ErrJobUnknown}
	}
	if j.State != engine.Ready {
		return engine.Result{JobID: j.ID, State: j.State, Err: &engine.StateError{JobID: j.ID, State: j.State}}
	}
	j.State, j.LeasedAt, j.LastOutcome = engine.Leased, m.time, engine.OutcomeNone
	j.Attempt++
	j.Lease = f.Lease
	j.Lease.Token.Attempt, j.Lease.Token.Epoch = j.Attempt, m.policies[j.Lane.Tenant].Epoch
	j.Lease.Charged = 0
	m.charge(j, f.Lease.Charged)
	if tenant := j.Lane.Tenant; m.policies[tenant].Starts.Jobs > 0 {
		m.starts[tenant] = append(m.starts[tenant], m.time)
		m.keepStarts(tenant)
	}
	return engine.Result{JobID: j.ID, State: j.State}
}

func (m *model) charge(j *modelJob, total cell.Cost) {
	if j.Lease.Private {
		return
	}
	if total < 0 {
		total = 0
	}
	add := func(sum *cell.Cost) {
		v := float64(*sum) + float64(total) - float64(j.Lease.Charged)
		if v >= math.MaxInt64 {
			*sum = math.MaxInt64
			return
		}
		*sum += total - j.Lease.Charged
	}
	lane := m.charged[j.Lane]
	add(&lane)
	m.charged[j.Lane] = lane
	add(&j.Charged)
	j.Lease.Charged = total
}

func (m *model) outcome(f *engine.OutcomeFact) engine.Result {
	j := m.job(f.ID)
	switch {
	case j == nil:
		return engine.Result{JobID: f.ID, Err: engine.ErrJobUnknown}
	case j.Attempt == 0 || j.Lease.Token != f.Token:
		return engine.Result{JobID: j.ID, State: j.State, Err: engine.ErrLeaseStale}
	case j.State != engine.Leased && j.LastOutcome == f.Kind:
		m.seen["duplicate outcome"]++
		return engine.Result{JobID: j.ID, State: j.State, Duplicate: true}
	case j.State != engine.Leased:
		return engine.Result{JobID: j.ID, State: j.State, Err: engine.ErrLeaseStale}
	}
	m.charge(j, f.Charged)
	j.LastOutcome, j.Ran = f.Kind, max(0, f.Ran)
	if f.Used != nil {
		sum := cell.Resources{}
		if j.Used != nil {
			sum = *j.Used
		}
		for i, v := range f.Used {
			if v = max(v, 0); sum[i] > math.MaxInt64-v {
				sum[i] = math.MaxInt64
			} else {
				sum[i] += v
			}
		}
		j.Used = &sum
	}
	switch f.Kind {
	case engine.OutcomeSuccess, engine.OutcomeFailure, engine.OutcomeFatal:
		if !j.Lease.Private {
			m.observe(j.Lane.Tenant, j.Spec.Operation, f.Charged)
		}
	case engine.OutcomeNone, engine.OutcomeRelease, engine.OutcomeLoss, engine.OutcomeCrash, engine.OutcomePreempt:
	}
	if text := f.Error; text != "" {
		for len(text) > m.limits.ErrorBytesMax {
			_, n := utf8.DecodeLastRuneInString(text)
			text = text[:len(text)-n]
		}
		j.Error = text
	}
	final := engine.JobState(0)
	switch f.Kind {
	case engine.OutcomeSuccess:
		j.Result = f.Result
		final = engine.Succeeded
	case engine.OutcomeFatal:
		j.Failed++
		final = engine.Failed
	case engine.OutcomeFailure:
		if j.Failed++; j.Failed >= j.Spec.Retry.AttemptsMax {
			final = engine.Failed
		}
	case engine.OutcomeLoss:
		j.Lost++
	case engine.OutcomeCrash:
		j.Lost++
		if j.Crashes++; j.Crashes >= m.limits.CrashesMax {
			final = engine.Quarantined
		}
	case engine.OutcomePreempt:
		m.seen["preempted"]++
		f = &engine.OutcomeFact{}
	case engine.OutcomeRelease, engine.OutcomeNone:
	}
	if final != 0 {
		m.end(j, final)
		return engine.Result{JobID: j.ID, State: final}
	}
	j.WakeAt = f.WakeAt
	j.State = engine.Ready
	if f.WakeAt > m.time {
		j.State = engine.Delayed
	}
	return engine.Result{JobID: j.ID, State: j.State}
}

func (m *model) retry(f *engine.RetryFact) engine.Result {
	j := m.job(f.ID)
	if j == nil || j.Lane.Tenant != f.Tenant {
		return engine.Result{JobID: f.ID, Err: engine.ErrJobUnknown}
	}
	r := engine.Result{JobID: j.ID, State: j.State}
	if !j.State.Ended() || j.State == engine.Succeeded || j.Dropped {
		r.Err = &engine.StateError{JobID: j.ID, State: j.State}
		return r
	}
	k := m.key(j.Lane, j.Spec.Key)
	if j.Spec.Key != "" && k == nil {
		if r.Err = m.keyRoom(); r.Err != nil {
			return r
		}
	}
	if r.Err = m.room(j.Lane, modelBytes(&j.Spec)); r.Err != nil {
		return r
	}
	switch {
	case j.Spec.Key == "":
	case k == nil:
		m.seen["key retaken on retry"]++
		m.keys = append(m.keys, &modelKey{lane: j.Lane, key: j.Spec.Key, body: j.BodyHash, job: j.ID})
	case k.job == j.ID:
		k.end, k.expires = 0, 0
	default:
		m.seen["key lost on retry"]++
		j.Spec.Key = ""
	}
	if j.Spec.Deadline <= m.time {
		j.Spec.Deadline = 0
	}
	j.State, j.WakeAt, j.Finished, j.end = engine.Ready, m.time, 0, 0
	m.carry(j, false)
	j.Failed, j.Lost, j.Crashes = 0, 0, 0
	j.Error, j.Result = "", engine.Payload{}
	r.State = j.State
	return r
}

// later returns at + d, between 1 and the last instant.
func later(at cell.Instant, d int64) cell.Instant {
	if d < 0 {
		d = 0
	}
	if int64(at) > math.MaxInt64-d {
		return math.MaxInt64
	}
	return max(1, at+cell.Instant(d))
}

func (m *model) end(j *modelJob, to engine.JobState) {
	m.seen[to.String()]++
	m.ended++
	j.State, j.Finished, j.end = to, m.time, m.ended
	m.finished = append(m.finished, j.ID)
	for _, k := range m.keys {
		if k.job == j.ID && k.lane == j.Lane && k.key == j.Spec.Key {
			k.end, k.expires = j.end, later(j.Finished, int64(m.limits.KeyWindow))
		}
	}
	m.trim(j.Lane)
}

// kept returns a lane's ended jobs in the order of their ends, and their bytes.
func (m *model) kept(lane cell.Lane) (ended []*modelJob, bytes int64) {
	for _, j := range m.jobs {
		if j.Lane == lane && j.State.Ended() {
			ended = append(ended, j)
			bytes += modelBytes(&j.Spec) + int64(len(j.Result.Data)+len(j.Result.ContentType)+len(j.Error))
		}
	}
	slices.SortFunc(ended, func(a, b *modelJob) int { return int(a.end) - int(b.end) })
	return ended, bytes
}

// largest returns the lane that keeps most, the first of them by name, and what all keep together.
func (m *model) largest() (largest cell.Lane, total int64) {
	most := int64(-1)
	for _, tenant := range sortedKeys(m.policies) {
		for _, c := range cell.Classes() {
			lane := cell.Lane{Tenant: tenant, Class: c}
			_, bytes := m.kept(lane)
			if total += bytes; bytes > most {
				largest, most = lane, bytes
			}
		}
	}
	return largest, total
}

// trim keeps ended jobs within the bounds, of their number and bytes in the lane, and then of their bytes in the cell.
func (m *model) trim(lane cell.Lane) {
	for {
		ended, bytes := m.kept(lane)
		over := int64(len(ended)) > m.limits.FinishedJobsMax
		if !over && bytes <= m.limits.FinishedBytesMax {
			most, total := m.largest()
			if total <= m.limits.FinishedCellBytesMax {
				return
			}
			m.seen["trimmed for the cell"]++
			ended, _ = m.kept(most)
		}
		whole := slices.IndexFunc(ended, func(j *modelJob) bool { return !j.Dropped })
		if !over && whole >= 0 && len(ended[whole].Spec.Payload.Data)+len(ended[whole].Result.Data) >= 512 {
			m.seen["dropped"]++
			ended[whole].Dropped = true
			ended[whole].Spec.Payload.Data, ended[whole].Result.Data = nil, nil
			continue
		}
		m.forget(ended[0])
	}
}

func (m *model) forget(j *modelJob) {
	m.seen["forgotten"]++
	m.jobs = slices.DeleteFunc(m.jobs, func(k *modelJob) bool { return j == k })
}

// due returns when time alone next changes the job, 0 for never.
func (j *modelJob) due() cell.Instant {
	switch {
	case j.State == engine.Leased:
		return 0
	case j.State == engine.Ready:
		return j.Spec.Deadline
	case j.State == engine.Delayed && (j.Spec.Deadline == 0 || j.WakeAt <= j.Spec.Deadline):
		return j.WakeAt
	case j.State == engine.Delayed:
		return j.Spec.Deadline
	default:
		return later(j.Finished, int64(j.Spec.Retention))
	}
}

func (m *model) fire() {
	for range m.limits.TimersPerEntryMax {
		var first *modelJob
		for _, j := range m.jobs {
			if d := j.due(); d != 0 && d <= m.time && (first == nil || d < first.due()) {
				first = j
			}
		}
		switch {
		case first == nil:
			return
		case first.State.Ended():
			m.forget(first)
		case first.Spec.Deadline != 0 && first.Spec.Deadline <= m.time:
			m.expired = append(m.expired, first.ID)
			m.end(first, engine.Expired)
		default:
			m.woken = append(m.woken, first.ID)
			first.State = engine.Ready
			m.seen["woken"]++
		}
	}
}

func (m *model) expireKeys() {
	for range m.limits.TimersPerEntryMax {
		oldest := -1
		for i, k := range m.keys {
			if k.end != 0 && (oldest < 0 || k.end < m.keys[oldest].end) {
				oldest = i
			}
		}
		if oldest < 0 || m.keys[oldest].expires > m.time {
			return
		}
		m.seen["key expired"]++
		m.keys = slices.Delete(m.keys, oldest, oldest+1)
	}
}

// errorText is an error's meaning, without its prose.
func errorText(err error) string {
	var limit *cell.LimitError
	var taken *engine.KeyTakenError
	var state *engine.StateError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &limit):
		return fmt.Sprintf("%s of the %s: %d of %d", limit.Limit, limit.Scope, limit.Value, limit.Bound)
	case errors.As(err, &taken):
		return fmt.Sprintf("key %s taken by %v", taken.Key, taken.JobID)
	case errors.As(err, &state):
		return fmt.Sprintf("%v is %v", state.JobID, state.State)
	default:
		return err.Error()
	}
}
