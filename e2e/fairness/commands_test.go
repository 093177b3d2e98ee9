package fairness

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	"github.com/fairlead/fairlead/cell/leader"
	"github.com/fairlead/fairlead/cell/sched"
)

func (s *script) do(a args) string {
	s.t.Helper()
	if s.r == nil && a.word(0) != "cell" {
		s.cell(parse(s.t, "cell"))
	}
	r := s.r
	switch a.word(0) {
	case "cell":
		s.cell(a)
	case "org":
		return s.organization(a)
	case "tenant":
		return s.tenant(a)
	case "worker":
		s.worker(a)
	case "submit":
		return s.submit(a)
	case "run":
		s.shown, s.since = s.last, r.now
		s.run(duration(s.t, a.word(1)), a.duration("restarts", "0s"))
		s.last = len(r.starts)
		return s.started(a.word(2))
	case "want":
		return s.want(a)
	case "kill", "drain", "deaf", "hear":
		s.disturb(a)
	case "lose":
		r.lose = lostWhole
		if a.has("applied") {
			r.lose = lostApplied
		}
	case "commit":
		r.commit = duration(s.t, a.word(1))
	case "restart":
		r.restart()
		r.run(0)
	case "cancel", "retry", "state", "why", "check":
		return s.job(a)
	case "use":
		return s.use()
	default:
		s.t.Fatalf("no command %q", a.word(0))
	}
	return ""
}

// run lets time pass, with a new leader now and then if it is said so.
func (s *script) run(d, restarts time.Duration) {
	for restarts > 0 && d > restarts {
		s.r.run(restarts)
		s.r.restart()
		d -= restarts
	}
	s.r.run(d)
}

func (s *script) cell(a args) {
	s.t.Helper()
	cfg := leader.DefaultConfig()
	if len(a.words) > 1 && a.has("fifo") {
		cfg.Sched.Policy = sched.PolicyFIFO
	}
	cfg.Sched.Quantum = a.int("quantum", cfg.Sched.Quantum)
	parts, lend, borrow := a.pair("parts", "3:2"), a.pair("lend", "100:100"), a.pair("borrow", "100:100")
	after, preempt, burst := a.pair("after", "0s:0s"), a.pair("preempt", "0s:0s"), a.pair("burst", "1s:10s")
	for i := range cfg.Sched.Bulkheads {
		cfg.Sched.Bulkheads[i] = sched.Bulkhead{
			NominalParts: integer(s.t, parts[i]), LendablePercent: integer(s.t, lend[i]), BorrowMaxPercent: integer(s.t, borrow[i]),
			LendAfter: duration(s.t, after[i]), PreemptAfter: duration(s.t, preempt[i]), Burst: duration(s.t, burst[i]),
		}
	}
	s.r = newRig(s.t, cfg, s.seed)
	s.last, s.named, s.jobs = 0, map[string]int{}, map[string]*plan{}
}

// slots reads a rate in slots.
func (s *script) slots(text string) cell.Rate {
	s.t.Helper()
	return cell.Rate(math.Round(float(s.t, text) * 1e6))
}

func (s *script) weight(a args) cell.Weight {
	s.t.Helper()
	w, err := cell.ParseWeight("weight", float(s.t, a.text("weight", "1")))
	if err != nil {
		s.t.Fatal(err)
	}
	return w
}

func (s *script) organization(a args) string {
	s.t.Helper()
	reserve := a.pair("reserve", "0:0")
	return s.promise(&leader.Policy{Organizations: []cell.OrganizationPolicy{{
		Organization: cell.OrganizationID(s.name(a.word(1))), Weight: s.weight(a), Limit: s.slots(a.text("limit", "0")),
		Reservation: [2]cell.Rate{s.slots(reserve[0]), s.slots(reserve[1])}, Epoch: 1,
	}}})
}

func (s *script) tenant(a args) string {
	s.t.Helper()
	reserve := a.pair("reserve", "0:0")
	p := cell.TenantPolicy{
		Tenant: cell.TenantID(s.name(a.word(1))), Organization: cell.OrganizationID(s.name(a.text("org", ""))), Weight: s.weight(a),
		Reservation: [2]cell.Rate{s.slots(reserve[0]), s.slots(reserve[1])}, Limit: s.slots(a.text("limit", "0")),
		RunningMax: a.int("running", 0), BacklogJobsMax: a.int("jobs", 0), Epoch: 1,
	}
	for group := range strings.SplitSeq(a.text("hand", "0"), ",") {
		p.Groups |= cell.WorkerGroup(integer(s.t, group)).Bit()
	}
	if text, ok := a.set["credit"]; ok {
		v := strings.Split(text, ":")
		p.Credit = cell.Credit{Max: cell.Cost(s.slots(v[0])), Refill: s.slots(v[1]), Extra: s.slots(v[2])}
	}
	if jobs, per, ok := strings.Cut(a.text("starts", ""), "/"); ok {
		p.Starts = cell.StartRate{Jobs: integer(s.t, jobs), Per: duration(s.t, per)}
	}
	old := s.r.bounds.tenants[p.Tenant]
	s.r.bounds.tenants[p.Tenant] = p.RunningMax
	answer := s.promise(&leader.Policy{Policies: []cell.TenantPolicy{p}})
	if answer != "" {
		s.r.bounds.tenants[p.Tenant] = old
	}
	return answer
}

// promise hands policies in, and returns why they are refused.
func (s *script) promise(p *leader.Policy) string {
	c := &leader.Call{Policy: p}
	s.r.call(c, nil)
	s.r.run(0)
	if c.Err != nil {
		return c.Err.Error()
	}
	for _, res := range p.Results {
		if res.Err != nil {
			return res.Err.Error()
		}
	}
	return ""
}

func (s *script) worker(a args) {
	s.t.Helper()
	k := &worker{
		r: s.r, id: leader.SessionID{Name: a.word(1), Tenant: cell.TenantID(s.name(a.text("tenant", "")))}, classes: [2]bool{true, true},
		slots: int(a.int("slots", 1)), prefetch: int(a.int("prefetch", 0)), lease: a.duration("lease", "30s"), stops: a.duration("stops", "0s"),
		group: cell.WorkerGroup(a.int("group", 0)),
	}
	for op := range strings.SplitSeq(a.text("ops", "op"), ",") {
		k.ops = append(k.ops, cell.Operation(s.name(op)))
	}
	slices.Sort(k.ops)
	if c := a.text("classes", ""); c != "" {
		k.classes = [2]bool{c == "interactive", c == "batch"}
	}
	k.start()
	s.r.run(0)
}

func (s *script) submit(a args) string {
	s.t.Helper()
	n := int64(1)
	if v := a.word(2); v != "" && v[0] >= '0' && v[0] <= '9' {
		n = integer(s.t, v)
	}
	var plans []*plan
	for range n {
		plans = append(plans, s.plan(a))
	}
	s.r.submit(plans...)
	s.r.run(0)
	refused := map[string]int{}
	for _, p := range plans {
		switch {
		case p.result.Err != nil:
			refused[strings.ReplaceAll(p.result.Err.Error(), p.result.JobID.String(), s.nameOf(p.result.JobID))]++
		case p.result.Duplicate && p.result.JobID != p.id:
			refused["the same as "+s.nameOf(p.result.JobID)]++
		}
	}
	var out strings.Builder
	for _, text := range slices.Sorted(maps.Keys(refused)) {
		fmt.Fprintf(&out, "%d: %s\n", refused[text], text)
	}
	return out.String()
}

func (s *script) plan(a args) *plan {
	s.t.Helper()
	class, err := cell.ParseClass("class", a.text("class", "interactive"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.named[a.word(1)]++
	p := &plan{
		name: a.word(1) + strconv.Itoa(s.named[a.word(1)]), tenant: cell.TenantID(s.name(a.word(1))), class: class,
		run: a.duration("run", "1s"), fails: int(a.int("fails", 0)), kills: a.has("kills"),
		spec: engine.Spec{
			Operation: cell.Operation(s.name(a.text("op", "op"))), Priority: int32(a.int("priority", 0)), Key: a.text("idem", ""),
			Preemptible: a.has("preemptible"), Retention: 1000 * time.Hour, Retry: engine.Retry{AttemptsMax: int32(a.int("attempts", 3))},
		},
	}
	switch v := a.text("cost", ""); v {
	case "":
	case "run":
		p.spec.Cost = cell.Cost(p.run.Microseconds())
	default:
		p.spec.Cost = cell.Cost(integer(s.t, v))
	}
	if _, ok := a.set["deadline"]; ok {
		p.spec.Deadline = s.r.now.Add(a.duration("deadline", ""))
	}
	if _, ok := a.set["delay"]; ok {
		p.spec.NotBefore = s.r.now.Add(a.duration("delay", ""))
	}
	if text := a.text("key", ""); text != "" {
		for k := range strings.SplitSeq(text, ",") {
			name, most, _ := strings.Cut(k, ":")
			p.spec.Keys = append(p.spec.Keys, cell.ConcurrencyKey{Key: name, Max: integer(s.t, most)})
		}
	}
	s.jobs[p.name] = p
	return p
}

func (s *script) nameOf(id cell.JobID) string {
	if p := s.r.plans[id]; p != nil {
		return p.name
	}
	return "?"
}

// started says what started in the last run.
func (s *script) started(how string) string {
	s.t.Helper()
	starts := s.r.starts[s.shown:]
	if v, ok := strings.CutPrefix(how, "first"); ok {
		starts, how = starts[:min(len(starts), int(integer(s.t, v)))], "order"
	}
	counts, seconds := map[string]int{}, map[string]float64{}
	var out strings.Builder
	for _, x := range starts {
		tenant := s.asWritten(string(x.plan.tenant))
		counts[tenant]++
		seconds[tenant] += x.plan.run.Seconds()
		switch how {
		case "order":
			fmt.Fprintf(&out, "%s ", x.plan.name)
		case "times":
			fmt.Fprintf(&out, "%v %s %s\n", x.at.Sub(s.since), x.plan.name, x.worker.id.Name)
		}
	}
	for _, tenant := range slices.Sorted(maps.Keys(counts)) {
		switch how {
		case "counts":
			fmt.Fprintf(&out, "%s %d\n", tenant, counts[tenant])
		case "seconds":
			fmt.Fprintf(&out, "%s %.0f s\n", tenant, seconds[tenant])
		}
	}
	if out.Len() == 0 && how != "" {
		return "nothing"
	}
	return out.String()
}

func (s *script) disturb(a args) {
	s.t.Helper()
	i := slices.IndexFunc(s.r.workers, func(k *worker) bool { return k.id.Name == a.word(1) })
	if i < 0 {
		s.t.Fatalf("no worker %q", a.word(1))
	}
	switch k := s.r.workers[i]; a.word(0) {
	case "kill":
		k.kill()
	case "drain":
		k.drain()
	default:
		k.deaf = a.word(0) == "deaf"
	}
	s.r.run(0)
}

func (s *script) job(a args) string {
	s.t.Helper()
	r, p := s.r, s.jobs[a.word(1)]
	if p == nil {
		s.t.Fatalf("no job %q", a.word(1))
	}
	switch a.word(0) {
	case "cancel":
		x := &leader.Cancel{Tenant: p.tenant, JobID: p.id}
		return s.result(p, &leader.Call{Cancel: x}, &x.Result)
	case "retry":
		x := &leader.Retry{Tenant: p.tenant, JobID: p.id}
		p.ended = 0
		return s.result(p, &leader.Call{Retry: x}, &x.Result)
	case "why":
		x, ok := r.lead.Explain(r.now, p.tenant, p.id)
		if !ok {
			return "no such job"
		}
		text := x.Reason.String()
		for _, id := range x.Holders {
			text += " " + s.nameOf(id)
		}
		return text
	default:
		return s.state(a, p)
	}
}

// state says how a job stands, or checks it and says nothing when it is so.
func (s *script) state(a args, p *plan) string {
	j := s.r.state.Job(p.id)
	if j == nil {
		return "forgotten"
	}
	text := fmt.Sprintf("%v: %d attempts, %d failed, %d lost, %d crashes, charged %v", j.State, j.Attempt, j.Failed, j.Lost, j.Crashes,
		time.Duration(j.Charged)*time.Microsecond)
	if a.word(0) != "check" {
		return text
	}
	if j.State.String() != a.word(2) || int64(j.Attempt) != a.int("attempts", int64(j.Attempt)) ||
		int64(j.Failed) != a.int("failed", int64(j.Failed)) || int64(j.Lost) != a.int("lost", int64(j.Lost)) ||
		int64(j.Charged) != a.duration("charged", (time.Duration(j.Charged)*time.Microsecond).String()).Microseconds() {
		return p.name + " is " + text
	}
	return ""
}

// result hands a call in, and returns why it came to nothing.
func (s *script) result(p *plan, c *leader.Call, result *engine.Result) string {
	s.r.call(c, nil)
	s.r.run(0)
	switch {
	case c.Err != nil:
		return c.Err.Error()
	case result.Err != nil:
		return strings.ReplaceAll(result.Err.Error(), p.id.String(), p.name)
	default:
		return result.State.String()
	}
}

func (s *script) use() string {
	var out strings.Builder
	for _, c := range cell.Classes() {
		u := s.r.lead.Use(c)
		fmt.Fprintf(&out, "%v holds %d, its own %d\n", c, u.Used, u.Nominal)
	}
	return out.String()
}
