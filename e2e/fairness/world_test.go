package fairness

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/sched"
	"github.com/fairlead/fairlead/cell/tree"
)

// world drives a scheduler by itself on a virtual clock: jobs arrive, slots ask, jobs end. It keeps its own books, by looking at what
// happened, and holds the scheduler to them.
type world struct {
	clock

	tb    tester
	cfg   sched.Config
	s     *sched.Scheduler
	rng   *rand.Rand
	pools []*pool
	books map[cell.TenantID]*account
	orgs  map[cell.OrganizationID]*limit
	seq   uint64
	jobs  map[cell.JobID]*job
	waits map[cell.JobID]*job // of jobs: those that wait
	runs  map[cell.JobID]*run // what holds a slot
	past  []*run              // what did
	woken cell.Instant
	stop  time.Duration // how long a job that is taken back needs to stop
	// granted is called with each grant, and check whenever nothing more can be granted.
	granted func(*run)
	check   func()
	// revoking is called with what is to be taken back at once, and how many are stopping already.
	revoking func(named []*run, stopping int64)
	// teach says that what jobs cost is learned.
	teach bool
	loops int
}

// pool is workers with one offer, of one group or of none.
type pool struct {
	offer   sched.OfferID
	ops     []cell.Operation
	group   cell.WorkerGroup
	classes [2]bool
	slots   int
	busy    int
}

// account is what the world keeps of a tenant.
type account struct {
	policy cell.TenantPolicy
	held   int64
	keys   map[string]int64
	starts []cell.Instant
	limit  *limit // its own; its organization's is shared
	org    *limit
}

// limit is rule 14's account of what may be charged a second, kept in floating point: what is charged may not run before tag.
type limit struct {
	rate cell.Rate
	tag  float64 // nanoseconds
}

func newLimit(rate cell.Rate) *limit { return &limit{rate: rate, tag: math.Inf(-1)} }

func (l *limit) charge(now cell.Instant, burst time.Duration, cost cell.Cost) {
	if l == nil || l.rate == 0 {
		return
	}
	if cost > 0 {
		l.tag = max(l.tag, float64(now.Add(-burst)-epoch))
	}
	l.tag += float64(cost) * 1e9 / float64(l.rate)
}

// blocks reports whether the limit is in the way; within a microsecond it may be or not.
func (l *limit) blocks(now cell.Instant) (surely, perhaps bool) {
	if l == nil || l.rate == 0 {
		return false, false
	}
	ahead := l.tag - float64(now-epoch)
	return ahead > 1000, ahead > -1000
}

type job struct {
	sched.Item
	run  time.Duration // how long it takes, and so what it costs
	done func(*run)    // what follows its end
}

// run is an attempt.
type run struct {
	job     *job
	tier    tree.Tier
	pool    *pool
	charged cell.Cost
	at, end cell.Instant
	ready   cell.Instant // since when it had waited
	// stopping says that it is taken back.
	stopping, over bool
}

func newWorld(tb tester, cfg sched.Config, seed uint64) *world {
	tb.Helper()
	s, err := sched.New(cfg, epoch)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return &world{
		clock: clock{now: epoch}, tb: tb, cfg: cfg, s: s, rng: rand.New(rand.NewPCG(seed, 3)), books: map[cell.TenantID]*account{},
		orgs: map[cell.OrganizationID]*limit{}, jobs: map[cell.JobID]*job{}, waits: map[cell.JobID]*job{}, runs: map[cell.JobID]*run{},
	}
}

// quickConfig is a scheduler's configuration for worlds whose jobs take milliseconds: everything is lent at once.
func quickConfig() sched.Config {
	cfg := sched.DefaultConfig()
	cfg.Quantum, cfg.CostDefault = 1000, 1000
	for i := range cfg.Bulkheads {
		cfg.Bulkheads[i] = sched.Bulkhead{
			NominalParts: 1, LendablePercent: 100, BorrowMaxPercent: 100, Burst: 50 * time.Millisecond,
		}
	}
	return cfg
}

// pool adds workers that offer these operations.
func (w *world) pool(slots int, ops ...cell.Operation) *pool { return w.crew(0, slots, ops...) }

// crew is pool for workers of a group.
func (w *world) crew(group cell.WorkerGroup, slots int, ops ...cell.Operation) *pool {
	slices.Sort(ops)
	offer, err := w.s.Open(ops, group)
	if err != nil {
		w.tb.Fatalf("%v", err)
	}
	p := &pool{offer: offer, ops: ops, group: group, classes: [2]bool{true, true}, slots: slots}
	w.pools = append(w.pools, p)
	w.s.Resize(w.slots(), w.slots())
	return p
}

func (w *world) slots() int64 {
	n := 0
	for _, p := range w.pools {
		n += p.slots
	}
	return int64(n)
}

func (w *world) organization(p cell.OrganizationPolicy) {
	p.Epoch = max(p.Epoch, 1)
	if err := w.s.SetOrganization(p); err != nil {
		w.tb.Fatalf("%+v: %v", p, err)
	}
	w.known(p)
}

func (w *world) known(p cell.OrganizationPolicy) {
	if l := w.orgs[p.Organization]; l != nil {
		l.become(w.now, p.Limit)
		return
	}
	w.orgs[p.Organization] = newLimit(p.Limit)
}

// become changes the rate: what is left to pay is paid at the new one. Without a rate nothing is.
func (l *limit) become(now cell.Instant, rate cell.Rate) {
	if l.rate == rate {
		return
	}
	if l.rate == 0 || rate == 0 {
		l.tag = math.Inf(-1)
	}
	if ahead := l.tag - float64(now-epoch); ahead > 0 {
		l.tag = float64(now-epoch) + ahead*float64(l.rate)/float64(rate)
	}
	l.rate = rate
}

func (w *world) tenant(p cell.TenantPolicy) {
	p.Epoch = max(p.Epoch, 1)
	if err := w.s.SetTenant(p); err != nil {
		w.tb.Fatalf("%+v: %v", p, err)
	}
	w.promised(p)
}

// promised takes a promise into the books that the scheduler has taken.
func (w *world) promised(p cell.TenantPolicy) {
	if a := w.books[p.Tenant]; a != nil {
		// Of a start rate only so many starts are remembered as it allows.
		a.starts = a.starts[max(0, len(a.starts)-int(a.policy.Starts.Jobs)):]
		a.policy, a.org = p, w.orgs[p.Organization]
		a.limit.become(w.now, p.Limit)
		return
	}
	w.books[p.Tenant] = &account{policy: p, keys: map[string]int64{}, limit: newLimit(p.Limit), org: w.orgs[p.Organization]}
}

// add makes a job wait: its cost is what it declares, its run what it takes.
func (w *world) add(j *job) {
	w.seq++
	j.Seq, j.Created = w.seq, w.now
	binary.BigEndian.PutUint64(j.ID[8:], w.seq)
	if j.Operation == "" {
		j.Operation = "op"
	}
	w.jobs[j.ID] = j
	w.wait(j)
}

func (w *world) wait(j *job) {
	if added, err := w.s.Add(j.Item); !added || err != nil {
		w.tb.Fatalf("%v was not added: %v", j.ID, err)
	}
	w.waits[j.ID] = j
}

// runFor lets time pass.
func (w *world) runFor(d time.Duration) {
	until := w.now.Add(d)
	w.turn()
	for {
		next, ok := w.due()
		if w.woken != 0 && (!ok || w.woken < next) {
			next, ok = w.woken, true
		}
		if !ok || next > until {
			w.pass(until)
			return
		}
		w.pass(next)
		w.step()
		w.turn()
	}
}

// pass moves the clock, and tells the scheduler of slot time that nobody wanted.
func (w *world) pass(to cell.Instant) {
	if to <= w.now {
		return
	}
	if !w.s.Starved() {
		if free := w.slots() - int64(len(w.runs)); free > 0 {
			w.s.Idle(free * to.Sub(w.now).Microseconds())
		}
	}
	w.now = to
	w.s.Advance(to)
}

// turn does what is due by the scheduler's own clock, and grants what may run.
func (w *world) turn() {
	for _, o := range w.s.Overruns(w.now, 1000) {
		r := w.runs[o.Job]
		if r == nil || o.Total <= r.charged {
			w.tb.Fatalf("an overrun of %v to %d, of a job that is charged %v", o.Job, o.Total, r)
		}
		w.charge(r, o.Total)
	}
	w.revoke(w.s.Preempt(w.now, 1000))
	for w.grantOne() {
	}
	if w.check != nil {
		w.check()
	}
	before := w.woken
	if w.woken = w.s.Wake(w.now); w.woken != 0 && w.woken <= w.now {
		if w.loops++; w.loops > 1000 || w.woken != before && w.loops > 2000 {
			w.tb.Fatalf("at %v the scheduler wants to be woken at %v, and never comes to rest", w.now.Sub(epoch), w.woken.Sub(epoch))
		}
		w.woken = w.now + 1
		return
	}
	w.loops = 0
}

// grantOne gives some free slot the next job; false when there is none.
func (w *world) grantOne() bool {
	for _, i := range w.rng.Perm(len(w.pools)) {
		p := w.pools[i]
		if p.busy >= p.slots {
			continue
		}
		if g, ok := w.s.Next(sched.Ask{Now: w.now, Offer: p.offer, Classes: p.classes}); ok {
			w.begin(p, g)
			return true
		}
	}
	return false
}

func (w *world) begin(p *pool, g sched.Grant) {
	j := w.waits[g.Item.ID]
	if j == nil || !w.serves(p, j) || !p.classes[j.Lane.Class.Index()] {
		w.tb.Fatalf("granted %+v, which does not wait for %v of group %d", g.Item, p.ops, p.group)
	}
	delete(w.waits, j.ID)
	r := &run{job: j, tier: g.Tier, pool: p, at: w.now, ready: j.Created}
	w.charge(r, g.Cost)
	w.runs[j.ID] = r
	p.busy++
	w.count(r, 1)
	if w.granted != nil {
		w.granted(r)
	}
	w.at(w.now.Add(j.run), rankEnd, func() { w.end(r) })
}

// serves reports whether a pool's workers run a job: they offer its operation, and its tenant holds their group, or has no hand where they have
// no group.
func (w *world) serves(p *pool, j *job) bool {
	hand := w.books[j.Lane.Tenant].policy.Groups
	if p.group == 0 {
		return hand == 0 && slices.Contains(p.ops, j.Operation)
	}
	return hand&(1<<(p.group-1)) != 0 && slices.Contains(p.ops, j.Operation)
}

// charge brings what an attempt is charged in all to a total.
func (w *world) charge(r *run, total cell.Cost) {
	a, i := w.books[r.job.Lane.Tenant], r.job.Lane.Class.Index()
	for _, l := range []*limit{a.limit, a.org} {
		l.charge(w.now, w.cfg.Bulkheads[i].Burst, total-r.charged)
	}
	r.charged = total
}

// count keeps the tenant's numbers of what is held, and holds them to their bounds.
func (w *world) count(r *run, by int64) {
	a := w.books[r.job.Lane.Tenant]
	a.held += by
	if by > 0 {
		a.starts = append(a.starts, w.now)
		if most := a.policy.RunningMax; most > 0 && a.held > most {
			w.tb.Fatalf("%s holds %d, of at most %d", a.policy.Tenant, a.held, most)
		}
		if s := a.policy.Starts; s.Jobs > 0 && int64(len(a.starts)) > s.Jobs {
			if first := a.starts[int64(len(a.starts))-1-s.Jobs]; w.now.Sub(first) < s.Per {
				w.tb.Fatalf("%s starts %d jobs in %v, of at most %d in %v", a.policy.Tenant, s.Jobs+1, w.now.Sub(first), s.Jobs, s.Per)
			}
		}
	}
	for _, k := range r.job.Keys {
		a.keys[k.Key] += by
		if by > 0 && a.keys[k.Key] > k.Max {
			w.tb.Fatalf("%s holds %d with the key %s, of at most %d", a.policy.Tenant, a.keys[k.Key], k.Key, k.Max)
		}
	}
}

// end settles what an attempt cost, and frees its slot.
func (w *world) end(r *run) {
	if r.over {
		return
	}
	w.finish(r)
	delete(w.jobs, r.job.ID)
	if r.job.done != nil {
		r.job.done(r)
	}
}

func (w *world) finish(r *run) {
	r.over, r.end = true, w.now
	w.charge(r, cell.Cost(r.end.Sub(r.at).Microseconds()))
	w.s.Settle(r.job.ID, r.charged)
	if w.teach {
		w.s.Observe(r.job.Lane.Tenant, r.job.Operation, r.charged)
	}
	if !w.s.Drop(r.job.ID) || w.s.Drop(r.job.ID) {
		w.tb.Fatalf("what %v held was not dropped once", r.job.ID)
	}
	delete(w.runs, r.job.ID)
	w.past = append(w.past, r)
	r.pool.busy--
	w.count(r, -1)
}

// revoke takes leases back: their jobs stop, and wait again in their places.
func (w *world) revoke(ids []cell.JobID) {
	stopping := int64(0)
	for _, r := range w.runs { // order-free: a count
		if r.stopping {
			stopping++
		}
	}
	var named []*run
	for _, id := range ids {
		r := w.runs[id]
		if r == nil || !r.job.Preemptible || r.stopping {
			w.tb.Fatalf("%v was to be taken back, which may not be, or is already", id)
		}
		r.stopping = true
		named = append(named, r)
		w.at(w.now.Add(w.stop), rankEnd, func() {
			if !r.over {
				w.finish(r)
				w.wait(r.job)
			}
		})
	}
	if w.revoking != nil {
		w.revoking(named, stopping)
	}
}

// held checks that the scheduler counts what the world sees running (I1).
func (w *world) held() error {
	var used [2]int64
	for _, r := range w.runs { // order-free: a sum
		used[r.job.Lane.Class.Index()]++
	}
	for i, c := range cell.Classes() {
		if u := w.s.Use(c); u.Used != used[i] || u.Nominal != w.nominal(i) {
			return fmt.Errorf("%v holds %d of its own %d, and %d run of %d", c, u.Used, u.Nominal, used[i], w.nominal(i))
		}
	}
	for id, a := range w.books { // order-free: each for itself
		if n := w.s.HeldBy(id); n != a.held {
			return fmt.Errorf("%s holds %d, and %d run", id, n, a.held)
		}
		for key, held := range a.keys { // order-free: each for itself
			if n := w.s.KeyHeld(id, key); n != held {
				return fmt.Errorf("%s holds %d with the key %s, and %d run", id, n, key, held)
			}
		}
	}
	if w.s.Len() != len(w.waits) {
		return fmt.Errorf("%d wait, of %d", w.s.Len(), len(w.waits))
	}
	return nil
}

// nominal is a class's own part of the slots: by largest remainder, at least one, and the first class's at a tie.
func (w *world) nominal(i int) int64 {
	n, b := w.slots(), w.cfg.Bulkheads
	if n < 2 {
		return n // one slot is both's
	}
	parts := b[0].NominalParts + b[1].NominalParts
	first := (2*n*b[0].NominalParts + parts) / (2 * parts) // rounded, halves up
	first = min(max(first, 1), n-1)
	if i == 0 {
		return first
	}
	return n - first
}

// served returns the slot time that jobs that match had between two times.
func (w *world) served(from, to cell.Instant, match func(*run) bool) time.Duration {
	var sum time.Duration
	add := func(r *run) {
		if match(r) {
			end := r.end
			if !r.over {
				end = w.now
			}
			sum += max(0, min(end, to).Sub(max(r.at, from)))
		}
	}
	for _, r := range w.past {
		add(r)
	}
	for _, r := range w.runs { // order-free: a sum
		add(r)
	}
	return sum
}

func of(tenants ...cell.TenantID) func(*run) bool {
	return func(r *run) bool { return slices.Contains(tenants, r.job.Lane.Tenant) }
}
