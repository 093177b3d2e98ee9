package sched

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
)

func (p *pair) add(t *rapid.T) {
	p.seq++
	it := Item{
		ID: id(p.seq), Lane: cell.Lane{
			Tenant: p.anyTenant(t), Class: rapid.SampledFrom(p.kinds).Draw(t, "class"),
		},
		Operation: rapid.SampledFrom(p.operations).Draw(t, "op"), Seq: p.seq, Created: p.now,
		Priority: rapid.SampledFrom([]int32{0, 0, 1, 5, -3}).Draw(t, "priority"),
		Cost:     cell.Cost(rapid.SampledFrom([]int64{0, 1, 1000, 50_000, 3_000_000}).Draw(t, "cost")),
	}
	it.Preemptible = rapid.Bool().Draw(t, "preemptible")
	if rapid.IntRange(0, 4).Draw(t, "deadline") == 0 {
		it.Deadline = p.now + cell.Instant(rapid.IntRange(0, 5).Draw(t, "in"))*second
	}
	for range rapid.SampledFrom(p.keys).Draw(t, "keys") {
		key := cell.ConcurrencyKey{
			Key: rapid.SampledFrom([]string{"k", "l", "m", "n"}).Draw(t, "key"), Max: rapid.SampledFrom(p.maxima).Draw(t, "max"),
		}
		if !slices.ContainsFunc(it.Keys, func(k cell.ConcurrencyKey) bool { return k.Key == key.Key }) {
			it.Keys = append(it.Keys, key)
		}
	}
	if added, err := p.s.Add(it); !added || err != nil {
		t.Fatal(added, err)
	}
	if added, _ := p.s.Add(it); added {
		t.Fatal("the same job waits twice")
	}
	p.waiting = append(p.waiting, it)
	p.bind(it)
}

// forget drops late jobs that the scheduler has thrown out.
func (p *pair) forget() {
	p.waiting = slices.DeleteFunc(p.waiting, func(it Item) bool { return p.late(it) && !p.s.Waits(it.ID) })
	p.unbind()
}

func (p *pair) next(t *rapid.T, offer OfferID, classes [2]bool) {
	p.look()
	want := -1
	for _, i := range p.classes() {
		runs := slices.ContainsFunc(p.waiting, func(it Item) bool {
			return it.Lane.Class.Index() == i && !p.late(it) && p.runs(it, offer, p.now)
		})
		if want < 0 && classes[i] && p.mayTake(i, offer, p.now) && runs {
			want = i
		}
	}
	g, ok := p.s.Next(Ask{Now: p.now, Offer: offer, Classes: classes})
	for !ok && !p.s.pending.empty() { // jobs that were late stood before it
		g, ok = p.s.Next(Ask{Now: p.now, Offer: offer, Classes: classes})
	}
	p.forget()
	if ok != (want >= 0) {
		t.Fatalf("granted %v, %+v; class %d could run; waiting %+v", ok, g, want, p.waiting)
	}
	if !ok {
		return
	}
	if g.Item.Lane.Class.Index() != want {
		t.Fatalf("class %v, not %v: %v used of %v", g.Item.Lane.Class, cell.Classes()[want], p.used(), p.nominals())
	}
	if !p.serves(offer, g.Item) {
		t.Fatalf("a worker of group %d is granted %+v, whose tenant holds %b", p.groups[offer], g.Item, p.policyOf(g.Item.Lane.Tenant).Groups)
	}
	if best, found := p.best(g.Item.Lane, p.offers[offer]); !found || best.ID != g.Item.ID {
		t.Fatalf("granted %+v, before which comes %+v", g.Item, best)
	}
	p.start(t, g, Held{Offer: offer, Offered: true, Tier: g.Tier, Charged: g.Cost})
	p.look()
}

func (p *pair) private(t *rapid.T) {
	p.look()
	tenant, ops := p.anyTenant(t), []cell.Operation{"x", "nobody's"}
	g, ok := p.s.NextPrivate(p.now, tenant, ops, [2]bool{true, true})
	p.forget()
	best, found := p.best(cell.Lane{Tenant: tenant, Class: cell.ClassInteractive}, ops)
	if !found {
		best, found = p.best(cell.Lane{Tenant: tenant, Class: cell.ClassBatch}, ops)
	}
	if found = found && p.cfg.Policy != PolicyFIFO; ok != found || ok && g.Item.ID != best.ID {
		t.Fatalf("private: %v %+v, not %v %+v", ok, g.Item, found, best)
	}
	if ok {
		p.start(t, g, Held{Private: true})
	}
	p.look()
}

// start moves a job from what waits to what is held.
func (p *pair) start(t *rapid.T, g Grant, h Held) {
	i := slices.IndexFunc(p.waiting, func(it Item) bool { return it.ID == g.Item.ID })
	if i < 0 {
		t.Fatalf("%v does not wait", g.Item.ID)
	}
	it := p.waiting[i]
	h.Job, h.Lane, h.Operation, h.Keys, h.Seq, h.Granted, h.Preemptible = it.ID, it.Lane, it.Operation, it.Keys, it.Seq, p.now, it.Preemptible
	p.waiting = slices.Delete(p.waiting, i, i+1)
	p.held = append(p.held, h)
	if jobs := int(p.tenants[it.Lane.Tenant].Starts.Jobs); jobs > 0 && p.cfg.Policy != PolicyFIFO {
		at := append(p.starts[it.Lane.Tenant], p.now)
		p.starts[it.Lane.Tenant] = at[max(0, len(at)-jobs):]
	}
}

func (p *pair) drop(t *rapid.T) {
	if len(p.held) == 0 {
		return
	}
	i := rapid.IntRange(0, len(p.held)-1).Draw(t, "held")
	h := p.held[i]
	if !p.s.Drop(h.Job) || p.s.Drop(h.Job) {
		t.Fatal("it was not dropped once")
	}
	p.held = slices.Delete(p.held, i, i+1)
	delete(p.stopped, h.Job)
	p.ending = slices.DeleteFunc(p.ending, func(id cell.JobID) bool { return id == h.Job })
	for _, it := range p.waiting {
		if it.ID == h.Job {
			p.bind(it)
		}
	}
	p.unbind()
}

// again adds a job that is held, as after a revocation.
func (p *pair) again(t *rapid.T, h Held) {
	if slices.ContainsFunc(p.waiting, func(it Item) bool { return it.ID == h.Job }) {
		return
	}
	it := Item{ID: h.Job, Lane: h.Lane, Operation: h.Operation, Keys: h.Keys, Seq: h.Seq, Created: h.Granted, Preemptible: h.Preemptible}
	if added, err := p.s.Add(it); !added || err != nil {
		t.Fatal(added, err)
	}
	p.waiting = append(p.waiting, it)
}

func (p *pair) remove(t *rapid.T) {
	if len(p.waiting) == 0 {
		return
	}
	i := rapid.IntRange(0, len(p.waiting)-1).Draw(t, "item")
	if it := p.waiting[i]; !p.s.Remove(it.ID) || p.s.Remove(it.ID) {
		t.Fatal("it was not removed once")
	}
	p.waiting = slices.Delete(p.waiting, i, i+1)
	p.unbind()
}

// anyHeld draws one of the leases, nil when there is none.
func (p *pair) anyHeld(t *rapid.T) *Held {
	if len(p.held) == 0 {
		return nil
	}
	return &p.held[rapid.IntRange(0, len(p.held)-1).Draw(t, "held")]
}

func (p *pair) settleOne(t *rapid.T) {
	h := p.anyHeld(t)
	if h == nil {
		return
	}
	total := rapid.SampledFrom([]cell.Cost{0, 1, h.Charged / 2, 10 * h.Charged, cell.CostMax}).Draw(t, "total")
	p.s.Settle(h.Job, total)
	if !h.Private {
		h.Charged = min(total, cell.CostMax)
	}
}

func (p *pair) stop(t *rapid.T) {
	h := p.anyHeld(t)
	if h == nil {
		return
	}
	p.s.Stop(h.Job)
	p.stopped[h.Job] = true
	if !h.Private && !slices.Contains(p.ending, h.Job) {
		p.ending = append(p.ending, h.Job)
	}
}

func (p *pair) preempt(t *rapid.T) {
	p.look()
	most := rapid.IntRange(0, 3).Draw(t, "most")
	var need int64
	var may []cell.JobID
	for owner := range 2 {
		if n, ids := p.claims(owner); n > 0 {
			need, may = n, ids // at most one class is short while the other borrows
		}
	}
	got := p.s.Preempt(p.now, most)
	if int64(len(got)) > min(need, int64(most)) {
		t.Fatalf("%d are named, of %d that are needed and %d asked for", len(got), need, most)
	}
	if len(got) == 0 && min(need, int64(most), int64(len(may))) > 0 {
		t.Fatalf("none is named of %v", may)
	}
	if !slices.Equal(got, may[:len(got)]) {
		t.Fatalf("%v are named, not %v", got, may)
	}
	p.ending = append(p.ending, got...)
	for _, id := range got {
		p.again(t, p.held[slices.IndexFunc(p.held, func(h Held) bool { return h.Job == id })])
	}
}

func (p *pair) overruns(t *rapid.T) {
	for _, o := range p.s.Overruns(p.now, 2) {
		i := slices.IndexFunc(p.held, func(h Held) bool { return h.Job == o.Job })
		h := &p.held[i]
		ran := cell.Cost(p.now.Sub(h.Granted).Microseconds())
		if h.Private || p.stopped[h.Job] || p.suspended[h.Lane] || ran < h.Charged || ran < cell.Cost(p.cfg.OverrunMin.Microseconds()) {
			t.Fatalf("%+v is charged %d though it has run for %d", h, o.Total, ran)
		}
		want := max(1, h.Charged)
		for want <= ran {
			want += want
		}
		if o.Total != want {
			t.Fatalf("%+v is charged %d, not %d", h, o.Total, want)
		}
		h.Charged = o.Total
	}
}

// suspend suspends a lane, or resumes it.
func (p *pair) suspend(t *rapid.T) {
	p.look()
	lane := cell.Lane{Tenant: p.anyTenant(t), Class: rapid.SampledFrom(p.kinds).Draw(t, "class")}
	if rapid.IntRange(0, 2).Draw(t, "resume") == 0 || p.suspended[lane] {
		delete(p.suspended, lane)
		p.s.Resume(lane)
	} else {
		p.suspended[lane] = true
		p.s.Suspend(lane)
	}
	if p.s.Suspended(lane) != p.suspended[lane] {
		t.Fatalf("%v is suspended: %v", lane, !p.suspended[lane])
	}
	p.look()
}

// rebound gives a key another bound, whatever job brought it.
func (p *pair) rebound(t *rapid.T) {
	p.unbind()
	tenant, key := p.anyTenant(t), rapid.SampledFrom([]string{"k", "l", "m", "n"}).Draw(t, "key")
	most := rapid.SampledFrom(p.maxima).Draw(t, "max")
	p.look()
	p.s.Rebound(tenant, key, most)
	if b, known := p.bounds[keyName(tenant, key)]; known {
		p.bounds[keyName(tenant, key)] = bound{most, b.seq}
	}
	if p.cfg.Policy == PolicyFairlead {
		for name, got := range func(yield func(string, int64) bool) { p.s.Bounds(tenant, yield) } {
			if want, known := p.bounds[keyName(tenant, name)]; !known || got != want.max {
				t.Fatalf("key %s of %s is bound by %d, not %+v", name, tenant, got, want)
			}
		}
	}
	p.look()
}

// time lets time pass. Nothing may become able to run before the time that Wake gave.
func (p *pair) time(t *rapid.T) {
	p.look()
	was, wake := p.grantable(p.now), p.s.Wake(p.now)
	if due := p.nextDue(); wake == 0 && due != 1<<63-1 || wake > due {
		t.Fatalf("to wake at %d, and a lease is due at %d", wake, due)
	}
	for owner := range 2 {
		if need, ids := p.claims(owner); need > 0 && len(ids) > 0 && (wake == 0 || wake > p.now) {
			t.Fatalf("to wake at %d, and %d leases are to be revoked now", wake, need)
		}
	}
	p.now += cell.Instant(rapid.SampledFrom([]int{0, 1, 10, 100, 500, 1000, 2500}).Draw(t, "ms")) * 1_000_000
	if !was && p.grantable(p.now) && (wake == 0 || wake > p.now) {
		t.Fatalf("to wake at %d, and something may run at %d", wake, p.now)
	}
	p.s.Advance(p.now)
	if !was && !p.grantable(p.now) && p.s.Takeable() != 0 {
		t.Fatal("something is takeable that is not")
	}
	p.look()
	p.s.Idle(int64(rapid.IntRange(0, 100_000).Draw(t, "idle")))
}

func (p *pair) check(t *rapid.T) {
	if err := p.s.Check(); err != nil {
		t.Fatal(err)
	}
	p.settle()
	if err := p.s.Check(); err != nil {
		t.Fatal(err)
	}
	if p.s.Len() != len(p.waiting) || len(p.s.leases.all) != len(p.held) {
		t.Fatalf("%d wait and %d are held, not %d and %d", p.s.Len(), len(p.s.leases.all), len(p.waiting), len(p.held))
	}
	for _, it := range p.waiting {
		w, ok := p.s.Explain(p.now, it.ID)
		if want := p.reason(it, p.now); !ok || want != 0 && w.Reason != want || want == 0 && w.Reason < ReasonOwnQueue {
			t.Fatalf("%+v waits for %v, not %v", it, w.Reason, want)
		}
		if fifo := p.cfg.Policy == PolicyFIFO; w.Reason == ReasonNoOffer && (w.Elsewhere != p.elsewhere(it.Operation) ||
			!fifo && w.Groups != p.policyOf(it.Lane.Tenant).Groups) {
			t.Fatalf("%+v: %+v", it, w)
		}
		if w.Reason == ReasonConcurrencyKey && (w.Value != p.keyHeld(it.Lane.Tenant, w.Key) || w.Value < w.Bound || int64(len(w.Holders)) != w.Value) {
			t.Fatalf("%+v", w)
		}
	}
	for _, tenant := range tenantNames() {
		for _, c := range cell.Classes() {
			lane := cell.Lane{Tenant: tenant, Class: c}
			if got, want := p.s.Front(lane, FrontMax), p.front(lane); !slices.Equal(got, want) {
				t.Fatalf("the front of %v is %v, not %v, of %+v", lane, got, want, p.waiting)
			}
		}
	}
	for _, h := range p.held {
		got, ok := p.s.Held(h.Job)
		if !ok || got.Charged != h.Charged || got.Private != h.Private || got.Granted != h.Granted || got.Lane != h.Lane {
			t.Fatalf("%+v, not %+v", got, h)
		}
	}
	for _, tenant := range tenantNames() {
		if p.s.HeldBy(tenant) != p.heldBy(tenant) {
			t.Fatalf("%s holds %d, not %d", tenant, p.s.HeldBy(tenant), p.heldBy(tenant))
		}
	}
	for _, c := range cell.Classes() {
		if u := p.s.Use(c); u.Used != p.used()[c.Index()] || u.Nominal != p.nominals()[c.Index()] {
			t.Fatalf("%v: %+v, not %d of %d", c, u, p.used()[c.Index()], p.nominals()[c.Index()])
		}
	}
	starved := false
	for offer := range p.offers {
		for class := range 2 {
			starved = starved || p.workers[offer] > 0 && p.anyReady(class, offer, p.now)
		}
	}
	if got := p.s.Starved(); got != starved {
		t.Fatalf("starved: %v, not %v", got, starved)
	}
	for offer := range p.offers {
		takeable := false
		for class := range 2 {
			takeable = takeable || p.workers[offer] > 0 && p.mayTake(class, offer, p.now) && p.anyReady(class, offer, p.now)
		}
		if got := p.s.Takeable()>>offer&1 == 1; got != takeable {
			t.Fatalf("something may be taken for offer %d: %v, not %v", offer, got, takeable)
		}
	}
	if n := len(p.s.offers.operations); n > 4 {
		t.Fatalf("%d operations are kept", n)
	}
	p.look()
}

func (p *pair) open(t *rapid.T) {
	var ops []cell.Operation
	for _, op := range []cell.Operation{"x", "y", "z"} {
		if rapid.Bool().Draw(t, string(op)) {
			ops = append(ops, op)
		}
	}
	if len(ops) == 0 {
		return
	}
	group := cell.WorkerGroup(0)
	if len(p.crews) > 0 {
		group = rapid.SampledFrom(p.crews).Draw(t, "group")
	}
	offer, err := p.s.Open(ops, group)
	if err != nil {
		t.Fatal(err)
	}
	if had := p.offers[offer]; had != nil && (!slices.Equal(had, ops) || p.groups[offer] != group && p.cfg.Policy != PolicyFIFO) {
		t.Fatalf("%v of group %d are the offer of %v of group %d", ops, group, had, p.groups[offer])
	}
	p.offers[offer], p.groups[offer] = ops, group
	p.workers[offer]++
}

// hand draws what a tenant is dealt.
func (p *pair) hand(t *rapid.T) uint64 {
	if len(p.hands) == 0 {
		return 0
	}
	return rapid.SampledFrom(p.hands).Draw(t, "hand")
}

// anyOffer draws one of the offers.
func (p *pair) anyOffer(t *rapid.T) (OfferID, bool) {
	var ids []OfferID
	for offer := range p.offers {
		ids = append(ids, offer)
	}
	if len(ids) == 0 {
		return 0, false
	}
	slices.Sort(ids)
	return rapid.SampledFrom(ids).Draw(t, "offer"), true
}

func (p *pair) policy(t *rapid.T) {
	tenant := cell.TenantPolicy{
		Tenant: p.anyTenant(t), Weight: rapid.SampledFrom([]cell.Weight{0, 1, 1000, 5000, cell.WeightMax}).Draw(t, "weight"),
		RunningMax: rapid.SampledFrom([]int64{0, 0, 1, 2, 4}).Draw(t, "running"), Groups: p.hand(t),
	}
	if jobs := rapid.SampledFrom([]int64{0, 0, 1, 2, 3}).Draw(t, "starts"); jobs > 0 {
		tenant.Starts = cell.StartRate{Jobs: jobs, Per: 3 * time.Second}
	}
	p.set(t, tenant)
}

func (p *pair) set(t *rapid.T, tenant cell.TenantPolicy) {
	if err := p.s.SetTenant(tenant); err != nil {
		t.Fatal(err)
	}
	p.tenants[tenant.Tenant] = tenant
	// The scheduler remembers as many starts as the rate needs, and no more when it is raised.
	at := p.starts[tenant.Tenant]
	p.starts[tenant.Tenant] = at[max(0, len(at)-int(tenant.Starts.Jobs)):]
}

// restart fills a new scheduler from what the model knows.
func (p *pair) restart(t *rapid.T) {
	s, err := New(p.cfg, p.now)
	if err != nil {
		t.Fatal(err)
	}
	offers, groups, workers := p.offers, p.groups, p.workers
	p.groups = map[OfferID]cell.WorkerGroup{}
	p.s, p.began, p.ending, p.stopped = s, p.now, nil, map[cell.JobID]bool{}
	p.offers, p.workers, p.bounds = map[OfferID][]cell.Operation{}, map[OfferID]int{}, map[string]bound{}
	p.ready, p.short = map[readiness]cell.Instant{}, [2]cell.Instant{}
	for _, tenant := range tenantNames() {
		if err := s.SetTenant(p.tenants[tenant]); err != nil {
			t.Fatal(err)
		}
		s.RestoreStarts(tenant, p.starts[tenant])
	}
	for lane := range p.suspended {
		s.Suspend(lane)
	}
	for _, it := range p.waiting {
		if _, err := s.Add(it); err != nil {
			t.Fatal(err)
		}
		p.bind(it)
	}
	for i := range p.held {
		h := &p.held[i]
		s.Hold(*h)
		p.bind(Item{Lane: h.Lane, Keys: h.Keys, Seq: h.Seq})
	}
	for old := range OfferID(OffersMax) {
		for range workers[old] {
			offer, err := s.Open(offers[old], groups[old])
			if err != nil {
				t.Fatal(err)
			}
			p.offers[offer], p.groups[offer] = offers[old], groups[old]
			p.workers[offer]++
		}
	}
	s.Resize(p.slots, p.room)
}
