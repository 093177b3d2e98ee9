package engine_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
)

// modelCommandsDefault is how many commands the model test runs unless FAIRLEAD_MODEL_COMMANDS says otherwise.
const modelCommandsDefault = 1_000_000

// modelCases is how many cases rapid makes of them: its own default.
const modelCases = 100

// TestModel applies the same random commands to the model and to two replicas, one of which is replaced by its restored snapshot now and then,
// while commands went on. Results are compared after every entry, everything else now and then.
func TestModel(t *testing.T) {
	commands := modelCommandsDefault
	if testing.Short() || underRace {
		commands /= 4 // and when short rapid runs a fifth of the cases
	}
	if v := os.Getenv("FAIRLEAD_MODEL_COMMANDS"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			t.Fatalf("FAIRLEAD_MODEL_COMMANDS: %v", err)
		}
		commands = n
	}
	perCase := max(1, commands/modelCases)
	seen := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		r := newModelRun(t, seen)
		for _, word := range rapid.SliceOfN(rapid.Uint64(), perCase, perCase).Draw(t, "commands") {
			if word != 0 { // which is what a failing case shrinks to
				r.command(mix(word))
			}
		}
		r.seal()
		r.compare()
	})
	if t.Failed() || testing.Short() || commands < modelCommandsDefault {
		return
	}
	var missing []string
	for _, want := range modelCoverage() {
		if seen[want] == 0 {
			missing = append(missing, want)
		}
	}
	if len(missing) > 0 {
		t.Errorf("the commands never led to: %s\nthey led to: %v", strings.Join(missing, ", "), seen)
	}
}

// modelCoverage lists what the random commands must lead to, or the test proves less than it says.
func modelCoverage() []string {
	return []string{
		"trimmed for the cell", "woken", "expired", "forgotten", "dropped", "key expired", "key lost on retry", "key retaken on retry", "snapshot restored",
		"snapshot of several pieces", "succeeded", "failed", "cancelled", "quarantined", "duplicate submit",
		"duplicate outcome", "stale", "key taken", "tenant unknown", "policy stale", "job unknown", "id taken",
		"backlog_jobs_max lane", "backlog_bytes_max lane", "backlog_jobs_max cell", "backlog_bytes_max cell", "key_records_max cell", "concurrency key gone", "concurrency bound changed",
		"estimate forgotten", "start forgotten", "preempted", "organization unknown",
	}
}

// mix spreads a drawn word's bits (the finaliser of SplitMix64), since rapid prefers small ones.
func mix(x uint64) *dice {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return &dice{x ^ x>>31}
}

// dice takes small numbers off a word.
type dice struct{ word uint64 }

func (d *dice) n(n uint64) uint64 {
	v := d.word % n
	d.word = d.word/n*0x9e3779b97f4a7c15 + 0x632be59bd9b4e019 // the rest of the word, spread again: it must not run out
	d.word ^= d.word >> 29
	return v
}

func (d *dice) one(of uint64) bool { return d.n(of) == of-1 }

type modelRun struct {
	t     *rapid.T
	seen  map[string]int
	model *model
	a, b  *engine.State

	entry   engine.Entry
	now     cell.Instant
	index   uint64
	entries int
	ids     uint64
	recent  []cell.JobID // jobs that were submitted, present or not
	tokens  []engine.OutcomeFact

	snapshot *engine.Snapshot // of b
	bytes    []byte
	pieces   int
	hash     [32]byte
	since    [][]byte
}

func modelLimits() engine.Limits {
	return engine.Limits{
		LiveJobsMax: 11, LiveBytesMax: 16_000, FinishedBytesMax: 8_000, FinishedJobsMax: 9, FinishedCellBytesMax: 13_000, KeyRecordsMax: 8,
		KeyWindow: 20 * time.Second, CrashesMax: 3, ErrorBytesMax: 40, TimersPerEntryMax: 4,
	}
}

func newModelRun(t *rapid.T, seen map[string]int) *modelRun {
	r := &modelRun{t: t, seen: seen, model: newModel(modelLimits(), seen), now: cell.Instant(1000 * time.Second)}
	for _, s := range []**engine.State{&r.a, &r.b} {
		var err error
		if *s, err = engine.New(modelLimits()); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 {
		r.entry.Facts = append(r.entry.Facts, &engine.PolicyFact{Policy: cell.TenantPolicy{
			Tenant: modelTenant(uint64(i)), Weight: 1000, BacklogJobsMax: 6, BacklogBytesMax: 11_000, Epoch: 3,
		}})
	}
	r.seal()
	return r
}

func modelTenant(i uint64) cell.TenantID {
	return cell.TenantID([]string{"acme", "globex", "nobody", "late"}[i])
}

func (r *modelRun) command(d *dice) {
	switch k := d.n(64); {
	case k < 16:
		r.entry.Facts = append(r.entry.Facts, r.submit(d))
	case k < 28:
		r.entry.Facts = append(r.entry.Facts, r.grant(d))
	case k < 40:
		r.entry.Facts = append(r.entry.Facts, r.outcome(d))
	case k < 43:
		f := &engine.CancelFact{ID: r.pick(d), Charged: cell.Cost(d.n(1000))}
		f.Tenant = r.owner(d, f.ID)
		r.entry.Facts = append(r.entry.Facts, f)
	case k < 46:
		f := &engine.RetryFact{ID: r.pick(d)}
		f.Tenant = r.owner(d, f.ID)
		r.entry.Facts = append(r.entry.Facts, f)
	case k < 48:
		f := &engine.ChargeFact{ID: r.pick(d), Charged: cell.Cost(d.n(100_000)) - 1000}
		f.Token = r.token(d, f.ID)
		r.entry.Facts = append(r.entry.Facts, f)
	case k == 48:
		r.rare(d)
	case k == 49:
		r.account(d)
	case k < 51:
		r.snap(d)
	case k == 51:
		r.now += cell.Instant(d.n(100)) * cell.Instant(time.Second)
	case k == 52:
		r.entry.Time = r.now - cell.Instant(d.n(9))*cell.Instant(time.Second) // a clock that went back
		r.seal()
	default:
		r.now += cell.Instant(d.n(3000)) * cell.Instant(time.Millisecond)
		r.seal()
	}
}

// account makes an account of each kind.
func (r *modelRun) account(d *dice) {
	at := cell.LaneAccount{Rounds: int64(d.n(9)), Deficit: int64(d.n(99)) - 50, Ahead: time.Duration(d.n(3))}
	e := &r.entry
	switch d.n(3) {
	case 0:
		e.Accounts = append(e.Accounts, engine.AccountFact{Lane: cell.Lane{Tenant: modelTenant(d.n(3)), Class: cell.Class(1 + d.n(2))}, Account: at})
	case 1:
		e.TenantAccounts = append(e.TenantAccounts, engine.TenantAccountFact{Tenant: modelTenant(d.n(3)), Account: cell.TenantAccount{
			LimitTag: cell.Instant(d.n(3)), CreditTag: cell.Instant(d.n(3)), Credit: cell.Cost(d.n(9)), CreditAt: cell.Instant(d.n(3)),
		}})
	default:
		e.OrganizationAccounts = append(e.OrganizationAccounts, engine.OrganizationAccountFact{
			Organization: modelOrganization(d.n(3)), Account: cell.OrganizationAccount{Lanes: [2]cell.LaneAccount{1: at}, LimitTag: cell.Instant(d.n(3))},
		})
	}
}

func modelOrganization(i uint64) cell.OrganizationID {
	return cell.OrganizationID([]string{"", "holding", "unheard"}[i])
}

// rare makes the facts that change bounds and policies.
func (r *modelRun) rare(d *dice) {
	if d.one(6) {
		r.entry.Facts = append(r.entry.Facts, &engine.OrganizationFact{Policy: cell.OrganizationPolicy{
			Organization: modelOrganization(1), Weight: cell.Weight(d.n(3000)), Epoch: cell.Epoch(d.n(5)),
		}})
		return
	}
	if d.one(3) {
		limits := modelLimits()
		limits.KeyWindow = time.Duration(d.n(30)) * time.Second // 0 is refused
		limits.FinishedBytesMax -= int64(d.n(4000))
		limits.FinishedJobsMax -= int64(d.n(8))
		limits.EstimatesMax = int(d.n(4))
		r.entry.Facts = append(r.entry.Facts, &engine.LimitsFact{Limits: limits})
		return
	}
	r.entry.Facts = append(r.entry.Facts, &engine.PolicyFact{Policy: cell.TenantPolicy{
		Tenant: modelTenant([]uint64{0, 1, 3}[d.n(3)]), Weight: cell.Weight(d.n(3000)), BacklogJobsMax: 5 + int64(d.n(4)),
		BacklogBytesMax: int64(d.n(2)) * 13_000, Epoch: cell.Epoch(2 + d.n(4)), Organization: modelOrganization(max(d.n(8), 5) - 5),
		Starts: cell.StartRate{Jobs: int64(d.n(6)) - 1, Per: time.Second}, RunningMax: int64(d.n(3)),
	}})
}

func (r *modelRun) submit(d *dice) *engine.SubmitFact {
	r.ids++
	f := &engine.SubmitFact{Tenant: modelTenant(d.n(2)), Class: cell.Class(1 + d.n(2))}
	if d.one(20) {
		f.Tenant = modelTenant(2 + d.n(2)) // one there is not, and one that comes late
	}
	f.ID[0], f.ID[14], f.ID[15] = byte(f.Class), byte(r.ids>>8), byte(r.ids)
	if d.one(50) {
		f.ID = r.pick(d)
	}
	f.Spec = engine.Spec{
		Operation: cell.Operation([]string{"op", "op", "mail", "pdf", "dun"}[d.n(5)]), Preemptible: d.one(5), Retry: engine.Retry{AttemptsMax: int32(d.n(4)) - 1}, Retention: time.Duration([]int64{0, 3e9, 30e9, 1 << 62}[d.n(4)]),
	}
	if k := d.n(10); k > 4 {
		f.Spec.Key = fmt.Sprintf("key-%d", k)
		f.BodyHash[0] = byte(d.n(8) / 7)
	}
	if size := []int{0, 40, 600, 2500}[d.n(4)]; size > 0 {
		f.Spec.Payload = engine.Payload{Kind: engine.PayloadData, ContentType: "text/plain", Data: bytes.Repeat([]byte{'p'}, size)}
	}
	if d.one(4) {
		f.Spec.NotBefore = r.now + cell.Instant(d.n(10))*cell.Instant(time.Second)
	}
	if d.one(4) {
		f.Spec.Deadline = r.now + cell.Instant(d.n(12))*cell.Instant(time.Second) - cell.Instant(2*time.Second)
	}
	if d.one(8) {
		f.Spec.Labels = []engine.Label{{Name: "a", Value: "b"}, {Name: "c", Value: "dd"}}
	}
	if d.one(3) {
		f.Spec.Keys = append(f.Spec.Keys, cell.ConcurrencyKey{Key: []string{"x", "y", "z"}[d.n(3)], Max: int64(1 + d.n(3))})
		if d.one(3) {
			f.Spec.Keys = append(f.Spec.Keys, cell.ConcurrencyKey{Key: []string{"x", "y", "z"}[d.n(3)], Max: int64(1 + d.n(3))})
		}
	}
	if d.one(8) {
		f.Spec.Resources = &cell.Resources{int64(d.n(9)) + 1}
	}
	r.recent = append(r.recent, f.ID)
	r.recent = r.recent[max(0, len(r.recent)-60):]
	return f
}

// pick returns a job to do something to: one of the present ones, mostly.
func (r *modelRun) pick(d *dice) cell.JobID {
	switch {
	case len(r.model.jobs) > 0 && !d.one(8):
		return r.model.jobs[d.n(uint64(len(r.model.jobs)))].ID
	case len(r.recent) > 0:
		return r.recent[d.n(uint64(len(r.recent)))]
	default:
		return cell.JobID{}
	}
}

// pickState is pick, and finds a job in the state if there is one, mostly.
func (r *modelRun) pickState(d *dice, state engine.JobState) cell.JobID {
	if !d.one(10) {
		n := uint64(len(r.model.jobs))
		for i, from := uint64(0), d.n(max(1, n)); i < n; i++ {
			if j := r.model.jobs[(from+i)%n]; j.State == state {
				return j.ID
			}
		}
	}
	return r.pick(d)
}

func (r *modelRun) owner(d *dice, id cell.JobID) cell.TenantID {
	if j := r.model.job(id); j != nil && !d.one(10) {
		return j.Lane.Tenant
	}
	return modelTenant(d.n(3))
}

func (r *modelRun) token(d *dice, id cell.JobID) engine.Token {
	var t engine.Token
	if j := r.model.job(id); j != nil {
		t = j.Lease.Token
	}
	switch d.n(20) {
	case 0:
		t.Attempt--
	case 1:
		t.Nonce++
	case 2:
		t.Epoch++
	}
	return t
}

func (r *modelRun) grant(d *dice) *engine.GrantFact {
	return &engine.GrantFact{ID: r.pickState(d, engine.Ready), Lease: engine.Lease{
		Token: engine.Token{Nonce: d.n(4)}, Session: "s", Worker: "w", Channel: engine.ChannelLease, Sequence: int64(d.n(9)),
		Duration: 30 * time.Second, Charged: cell.Cost(d.n(5000)), Private: d.one(6),
		Tier: uint8(d.n(5)),
	}}
}

func (r *modelRun) outcome(d *dice) *engine.OutcomeFact {
	if len(r.tokens) > 0 && d.one(6) { // a report that comes again, soon or late
		f := r.tokens[d.n(uint64(len(r.tokens)))]
		return &f
	}
	f := engine.OutcomeFact{
		ID: r.pickState(d, engine.Leased), Kind: engine.OutcomeKind(1 + d.n(7)), Charged: cell.Cost(d.n(9000)),
	}
	f.Token = r.token(d, f.ID)
	switch f.Kind {
	case engine.OutcomeSuccess:
		if size := d.n(3) * 700; size > 0 {
			f.Result = engine.Payload{Kind: engine.PayloadData, ContentType: "x/y", Data: bytes.Repeat([]byte{'r'}, int(size))}
		}
	case engine.OutcomeFailure, engine.OutcomeFatal:
		f.Error = strings.Repeat("é", int(d.n(40)))
		f.Error = f.Error[:len(f.Error)/4*4]
	case engine.OutcomeNone, engine.OutcomeRelease, engine.OutcomeLoss, engine.OutcomeCrash, engine.OutcomePreempt:
	}
	if d.one(3) {
		f.Ran = time.Duration(d.n(9)) - 2
	}
	if d.one(6) {
		f.Used = &cell.Resources{int64(d.n(9)), 6: int64(d.n(2)) * math.MaxInt64}
	}
	if d.one(3) {
		f.WakeAt = r.now + cell.Instant(d.n(9000))*cell.Instant(time.Millisecond) - cell.Instant(time.Second)
	}
	r.tokens = append(r.tokens, f)
	r.tokens = r.tokens[max(0, len(r.tokens)-12):]
	return &f
}

// seal applies the facts gathered so far as one entry.
func (r *modelRun) seal() {
	if r.entry.Time == 0 {
		r.entry.Time = r.now
	}
	r.index++
	r.entries++
	encoded := engine.AppendEntry(nil, &r.entry)
	r.entry = engine.Entry{}
	var decoded [2]*engine.Entry
	for i := range decoded {
		var err error
		if decoded[i], err = engine.DecodeEntry(encoded); err != nil {
			r.t.Fatal(err)
		}
	}
	r.precheck(decoded[0])
	want := r.model.apply(decoded[0])
	got := r.a.Apply(r.index, decoded[0])
	r.b.Apply(r.index, decoded[1])
	if r.snapshot != nil || r.bytes != nil {
		r.since = append(r.since, encoded)
	}
	r.same(decoded[0], got, want)
	for _, g := range got.Results {
		r.notice(g)
	}
	if r.entries%16 == 0 {
		r.compare()
	}
}

// precheck holds the answers that need no log against what Apply comes to, for an entry of one fact.
func (r *modelRun) precheck(e *engine.Entry) {
	if len(e.Facts) != 1 || e.Time > r.a.Time() {
		return
	}
	var early engine.Result
	switch f := e.Facts[0].(type) {
	case *engine.SubmitFact:
		var done bool
		if early, done = r.a.Precheck(f, engine.Extra{}); !done {
			early = engine.Result{JobID: f.ID}
		}
	case *engine.OutcomeFact:
		early = r.a.PrecheckOutcome(f)
	case *engine.RetryFact:
		early = r.a.PrecheckRetry(f, engine.Extra{})
	default:
		return
	}
	twin := *r.model // shallow: only the answer is of interest, so the jobs are copied
	twin.jobs = nil
	for _, j := range r.model.jobs {
		c := *j
		twin.jobs = append(twin.jobs, &c)
	}
	twin.keys = nil
	for _, k := range r.model.keys {
		c := *k
		twin.keys = append(twin.keys, &c)
	}
	twin.seen = map[string]int{}
	twin.charged = map[cell.Lane]cell.Cost{}
	twin.estimates = map[cell.TenantID][]modelEstimate{}
	twin.concurrency = map[modelConcurrency]int64{}
	want := twin.fact(e.Facts[0])
	if early.JobID != want.JobID || early.Duplicate != want.Duplicate || errorText(early.Err) != errorText(want.Err) {
		r.t.Fatalf("%T: the precheck says %+v, applying it %+v", e.Facts[0], early, want)
	}
}

// same compares the results of one entry.
func (r *modelRun) same(e *engine.Entry, got engine.Applied, want []engine.Result) {
	if len(got.Results) != len(want) {
		r.t.Fatalf("%d results of %d facts", len(got.Results), len(want))
	}
	for i, g := range got.Results {
		w := want[i]
		if g.JobID != w.JobID || g.State != w.State || g.Duplicate != w.Duplicate || (g.Err != nil) != (w.Err != nil) ||
			g.Err != nil && errorText(g.Err) != errorText(w.Err) {
			r.t.Fatalf("entry %d, fact %d, %T %+v\ngot  %+v\nwant %+v", r.index, i, e.Facts[i], e.Facts[i], g, w)
		}
	}
	for name, lists := range map[string][2][]cell.JobID{
		"woken": {ids(got.Woken), r.model.woken}, "expired": {ids(got.Expired), r.model.expired}, "ended": {ids(got.Ended), r.model.finished},
	} {
		if !slices.Equal(lists[0], lists[1]) {
			r.t.Fatalf("entry %d: %s got %v, want %v", r.index, name, lists[0], lists[1])
		}
	}
}

func ids(jobs []*engine.Job) []cell.JobID {
	var out []cell.JobID
	for _, j := range jobs {
		out = append(out, j.ID)
	}
	return out
}

// notice counts what a fact was refused for.
func (r *modelRun) notice(g engine.Result) {
	var limit *cell.LimitError
	var taken *engine.KeyTakenError
	switch {
	case errors.As(g.Err, &limit):
		r.seen[limit.Limit+" "+string(limit.Scope)]++
	case errors.As(g.Err, &taken):
		r.seen["key taken"]++
	case errors.Is(g.Err, engine.ErrLeaseStale):
		r.seen["stale"]++
	case errors.Is(g.Err, engine.ErrTenantUnknown):
		r.seen["tenant unknown"]++
	case errors.Is(g.Err, engine.ErrOrganizationUnknown):
		r.seen["organization unknown"]++
	case errors.Is(g.Err, engine.ErrPolicyStale):
		r.seen["policy stale"]++
	case errors.Is(g.Err, engine.ErrJobUnknown):
		r.seen["job unknown"]++
	case errors.Is(g.Err, engine.ErrJobIDTaken):
		r.seen["id taken"]++
	}
}

// compare holds everything that can be seen of both replicas against the model, and each other.
func (r *modelRun) compare() {
	if ha, hb := r.a.Hash(), r.b.Hash(); ha != hb {
		r.t.Fatalf("after entry %d the replicas differ", r.index)
	}
	for _, s := range []*engine.State{r.a, r.b} {
		if err := s.Check(); err != nil {
			r.t.Fatalf("after entry %d: %v", r.index, err)
		}
	}
	accepted, ended := r.a.Totals()
	if accepted != r.model.accepted || ended != r.model.ended || r.a.Time() != r.model.time || r.a.Index() != r.index {
		r.t.Fatalf("after entry %d: accepted %d, ended %d, time %d; want %d, %d, %d", r.index, accepted, ended, r.a.Time(),
			r.model.accepted, r.model.ended, r.model.time)
	}
	liveJobs, liveBytes := r.model.live(nil)
	if j, b := r.a.Live(); j != liveJobs || b != liveBytes {
		r.t.Fatalf("after entry %d: %d live jobs of %d bytes; want %d of %d", r.index, j, b, liveJobs, liveBytes)
	}
	states := map[engine.JobState]int64{}
	for _, j := range r.model.jobs {
		states[j.State]++
		got := r.a.Job(j.ID)
		if got == nil {
			r.t.Fatalf("after entry %d: %v, which is %v, is not there", r.index, j.ID, j.State)
		}
		if v := view(got); !reflect.DeepEqual(v, *j) {
			v.end = j.end
			if !reflect.DeepEqual(v, *j) {
				r.t.Fatalf("after entry %d\ngot  %+v\nwant %+v", r.index, v, *j)
			}
		}
	}
	total := int64(0)
	for st := engine.Delayed; st <= engine.Quarantined; st++ {
		total += r.a.Count(st)
		if r.a.Count(st) != states[st] {
			r.t.Fatalf("after entry %d: %d jobs are %v, want %d", r.index, r.a.Count(st), st, states[st])
		}
	}
	if total != int64(len(r.model.jobs)) {
		r.t.Fatalf("after entry %d: %d jobs, want %d", r.index, total, len(r.model.jobs))
	}
	r.compareLanes()
	r.compareTenants()
}

func (r *modelRun) compareLanes() {
	for _, l := range r.a.Lanes() {
		jobs, bytes := r.model.live(&l.ID)
		if j, b := l.Live(); j != jobs || b != bytes || l.Charged != r.model.charged[l.ID] || l.Tenant.Policy != r.model.policies[l.ID.Tenant] {
			r.t.Fatalf("after entry %d: lane %v has %d jobs of %d bytes, charged %d; want %d of %d, charged %d", r.index, l.ID, j, b, l.Charged,
				jobs, bytes, r.model.charged[l.ID])
		}
		if want := r.model.accounts[l.ID]; l.Account != want {
			r.t.Fatalf("after entry %d: lane %v stands at %+v, want %+v", r.index, l.ID, l.Account, want)
		}
		var listed, want []cell.JobID
		r.a.List(l.ID.Tenant, 0, func(j *engine.Job) bool {
			listed = append(listed, j.ID)
			return true
		})
		for _, j := range slices.Backward(r.model.jobs) {
			if j.Lane.Tenant == l.ID.Tenant {
				want = append(want, j.ID)
			}
		}
		if !slices.Equal(listed, want) {
			r.t.Fatalf("after entry %d: %q lists %v, want %v", r.index, l.ID.Tenant, listed, want)
		}
	}
}

// compareTenants compares what tenants and organizations have beside their lanes.
func (r *modelRun) compareTenants() {
	m := r.model
	for _, t := range r.a.Tenants() {
		id := t.Policy.Tenant
		var held int64
		for _, j := range m.jobs {
			if j.Lane.Tenant == id && j.State == engine.Leased {
				held++
			}
		}
		var estimates []modelEstimate
		for op, e := range t.Estimates {
			estimates = append(estimates, modelEstimate{op, e})
			if t.Estimate(op) != e {
				r.t.Fatalf("after entry %d: %q has two estimates of %q", r.index, id, op)
			}
		}
		if t.Account != m.tenantAccounts[id] || t.Held() != held || !slices.Equal(t.Starts(), m.starts[id]) ||
			!slices.Equal(estimates, m.estimates[id]) {
			r.t.Fatalf("after entry %d: %q stands at %+v, holds %d, started at %v, is estimated at %v; want %+v, %d, %v, %v", r.index, id, t.Account,
				t.Held(), t.Starts(), estimates, m.tenantAccounts[id], held, m.starts[id], m.estimates[id])
		}
		for _, key := range []string{"x", "y", "z"} {
			k := modelConcurrency{id, key}
			bound, held, ok := t.Concurrency(key)
			live, wantHeld := m.carrying(k)
			if ok != (live > 0) || ok && (bound != m.concurrency[k] || held != wantHeld) {
				r.t.Fatalf("after entry %d: key %q of %q has %d of %d held, %v; want %d of %d of %d live jobs", r.index, key, id, held, bound, ok,
					wantHeld, m.concurrency[k], live)
			}
		}
	}
	if got := r.a.Organizations(); len(got) != len(m.organizations) {
		r.t.Fatalf("after entry %d: %d organizations, want %d", r.index, len(got), len(m.organizations))
	}
	for id, o := range m.organizations {
		if got := r.a.Organization(id); got.Policy != o.Policy || got.Account != o.Account {
			r.t.Fatalf("after entry %d: organization %q is %+v, want %+v", r.index, id, got, o)
		}
	}
}

// view is what a caller sees of a job.
func view(j *engine.Job) modelJob {
	return modelJob{
		ID: j.ID, Seq: j.Seq, Lane: j.Lane.ID, Spec: j.Spec, BodyHash: j.BodyHash, State: j.State, Created: j.Created, LeasedAt: j.LeasedAt,
		Finished: j.Finished, WakeAt: j.WakeAt, Attempt: j.Attempt, Failed: j.Failed, Lost: j.Lost, Crashes: j.Crashes, Lease: j.Lease,
		LastOutcome: j.LastOutcome, Result: j.Result, Dropped: j.Dropped, Error: j.Error, Charged: j.Charged, Used: j.Used, Ran: j.Ran,
	}
}

// snap takes a snapshot of replica b piece by piece, and in the end puts what it restores to in b's place.
func (r *modelRun) snap(d *dice) {
	switch {
	case r.snapshot == nil:
		var err error
		if r.snapshot, err = r.b.BeginSnapshot(); err != nil {
			r.t.Fatal(err)
		}
		r.snapshot.SetChunk(1+int(d.n(800)), 1+int(d.n(8)))
		r.bytes, r.pieces, r.since, r.hash = nil, 0, nil, r.b.Hash()
	case d.one(20):
		r.snapshot.Close()
		r.snapshot = nil
	default:
		for range 1 + d.n(6) {
			var err error
			r.bytes, err = r.snapshot.Next(r.bytes)
			r.pieces++
			if errors.Is(err, io.EOF) {
				r.restore()
				return
			}
		}
	}
}

func (r *modelRun) restore() {
	restored, err := engine.Restore(modelLimits(), bytes.NewReader(r.bytes))
	if err != nil {
		r.t.Fatal(err)
	}
	if restored.Hash() != r.hash {
		r.t.Fatalf("the snapshot that ended after entry %d is not the state at its mark", r.index)
	}
	if err := restored.Check(); err != nil {
		r.t.Fatalf("restored: %v", err)
	}
	index := r.index - uint64(len(r.since))
	for _, b := range r.since {
		index++
		e, err := engine.DecodeEntry(b)
		if err != nil {
			r.t.Fatal(err)
		}
		restored.Apply(index, e)
	}
	if restored.Hash() != r.b.Hash() {
		r.t.Fatalf("restored and brought up to entry %d, the snapshot is another state", r.index)
	}
	r.seen["snapshot restored"]++
	if r.pieces > 3 && len(r.since) > 3 {
		r.seen["snapshot of several pieces"]++
	}
	r.b, r.snapshot, r.bytes, r.since = restored, nil, nil, nil
}
