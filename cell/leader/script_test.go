package leader

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	"github.com/fairlead/fairlead/cell/sched"
)

var rewrite = flag.Bool("rewrite", false, "write what the scripts answer into them")

// TestScripts runs the scripts of testdata. A script is prose, commands, and after ---- what they answer, up to an empty line:
//
//	cell [fifo] [parts=3:2] [lend=100:100] [borrow=100:100] [lend_after=0s] [preempt_after=0s] [capacity=I:B] [quantum=1000] [sessions=N] [unit=tokens]
//	organization NAME [weight=1] [reserve=I:B] [limit=R]                      rates are in slots, or units of cost a second
//	tenant NAME [org=NAME] [weight=1] [reserve=I:B] [limit=R] [credit=MAX:REFILL:EXTRA] [running=N] [starts=N/120s] [jobs=N] [hand=1,2]
//	worker NAME slots=N [prefetch=N] [ops=a,b] [classes=batch] [tenant=NAME] [lease=30s] [group=N] [deaf] [reports] [prompt]
//	submit TENANT [N] [class=batch] [op=a] [run=1s] [cost=N] [priority=N] [deadline=10s] [delay=1s] [key=K] [fails=N] [crashes] [attempts=N]
//	       [keys=k:1,l:2] [preemptible] [tokens=N]
//	run 10s [order|times|counts|seconds]   what started since the last run: in order, with times, or how much by tenant
//	kill|drain|deaf|hear|abandon WORKER    lose WORKER on|off    answers get lost
//	regroup WORKER group=N                 it belongs to another group from its next poll on
//	cancel|retry|state|explain|holders JOB late JOB success      an outcome with the token it had when it ran first
//	lost [applied]                         the next entry gets lost
//	restart                                a new leader from a snapshot
//	use                                    what the classes hold
//	jobs TENANT                            its jobs by state
//	charged TENANT                         what its lanes were charged
//	standing TENANT                        where it stands with its promises, and what it holds
//	estimate TENANT OP                     what its jobs of an operation are expected to cost
//	trim                                   forgets what started so far
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { runScript(t, file) })
	}
}

func runScript(t *testing.T, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := &script{t: t}
	var out strings.Builder
	blocks := strings.Split(strings.TrimRight(string(data), "\n"), "\n\n")
	for i, block := range blocks {
		if i > 0 {
			out.WriteString("\n")
		}
		commands, want, ok := strings.Cut(block+"\n", "----\n")
		if !ok {
			out.WriteString(block + "\n")
			continue
		}
		got := s.run(commands)
		if got != want && !*rewrite {
			t.Errorf("%s:\n%s---- gives\n%swant\n%s", file, commands, got, want)
		}
		out.WriteString(commands + "----\n" + got)
	}
	if *rewrite && out.String() != string(data) {
		if err := os.WriteFile(file, []byte(out.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

type script struct {
	t     *testing.T
	w     *world
	shown int                     // how many starts were told
	epoch cell.Epoch              // of the policy told last
	first map[string]engine.Token // tokens of first attempts
}

// args are a command's words: those with a value, and the others.
type args struct {
	t     *testing.T
	words []string
	set   map[string]string
}

func (s *script) run(commands string) string {
	s.t.Helper()
	var out strings.Builder
	for line := range strings.Lines(commands) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		a := args{t: s.t, set: map[string]string{}}
		for word := range strings.FieldsSeq(line) {
			if name, value, ok := strings.Cut(word, "="); ok {
				a.set[name] = value
			} else {
				a.words = append(a.words, word)
			}
		}
		if text := s.do(a); text != "" {
			out.WriteString(strings.TrimRight(text, "\n") + "\n")
		}
	}
	return out.String()
}

func (a args) word(i int) string {
	if i < len(a.words) {
		return a.words[i]
	}
	return ""
}

func (a args) has(word string) bool { return slices.Contains(a.words[1:], word) }

func (a args) text(name, otherwise string) string {
	if v, ok := a.set[name]; ok {
		return v
	}
	return otherwise
}

func (a args) int(name string, otherwise int64) int64 {
	a.t.Helper()
	v, ok := a.set[name]
	if !ok {
		return otherwise
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		a.t.Fatal(name, err)
	}
	return n
}

func (a args) duration(text string) time.Duration {
	a.t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		a.t.Fatal(err)
	}
	return d
}

func (a args) pair(name string, otherwise [2]int64) [2]int64 {
	a.t.Helper()
	x, y, ok := strings.Cut(a.set[name], ":")
	if !ok {
		return otherwise
	}
	one, err1 := strconv.ParseInt(x, 10, 64)
	two, err2 := strconv.ParseInt(y, 10, 64)
	if err1 != nil || err2 != nil {
		a.t.Fatalf("%s=%s is not a pair", name, a.set[name])
	}
	return [2]int64{one, two}
}

func (s *script) do(a args) string {
	s.t.Helper()
	if a.word(0) != "cell" && s.w == nil {
		s.cell(args{t: s.t, words: []string{"cell"}})
	}
	w := s.w
	switch a.word(0) {
	case "cell":
		s.cell(a)
	case "tenant", "organization":
		return s.promise(a)
	case "worker":
		s.worker(a)
	case "submit":
		return s.submit(a)
	case "run":
		w.runFor(a.duration(a.word(1)))
		starts := w.starts[s.shown:]
		s.shown = len(w.starts)
		return s.started(a.word(2), starts)
	case "restart":
		w.restart()
		w.run(w.now)
	case "use":
		return s.use()
	case "kill", "drain", "deaf", "hear", "abandon", "lose", "regroup":
		return s.disturb(a)
	case "cancel", "retry", "state", "explain", "holders", "late":
		return s.job(a)
	case "jobs":
		return s.jobs(cell.TenantID(a.word(1)))
	case "charged", "standing", "estimate":
		return s.standing(a)
	case "trim":
		s.shown = len(w.starts)
	default:
		s.t.Fatalf("no command %q", a.word(0))
	}
	return ""
}

func (s *script) cell(a args) {
	s.t.Helper()
	cfg := testConfig()
	cfg.Sched.Quantum = a.int("quantum", cfg.Sched.Quantum)
	cfg.SessionsMax = int(a.int("sessions", int64(cfg.SessionsMax)))
	if len(a.words) > 1 && a.has("fifo") {
		cfg.Sched.Policy = sched.PolicyFIFO
	}
	parts, lend, borrow := a.pair("parts", [2]int64{3, 2}), a.pair("lend", [2]int64{100, 100}), a.pair("borrow", [2]int64{100, 100})
	for i := range cfg.Sched.Bulkheads {
		b := &cfg.Sched.Bulkheads[i]
		b.NominalParts, b.LendablePercent, b.BorrowMaxPercent = parts[i], lend[i], borrow[i]
		b.LendAfter, b.PreemptAfter = a.duration(a.text("lend_after", "0s")), a.duration(a.text("preempt_after", "0s"))
	}
	capacity := a.pair("capacity", [2]int64{})
	for i := range cfg.Sched.Bulkheads {
		cfg.Sched.Bulkheads[i].Capacity = cell.Rate(capacity[i] * cell.Unit)
	}
	if unit := a.text("unit", ""); unit != "" {
		r, err := cell.ParseResource("unit", unit)
		if err != nil {
			s.t.Fatal(err)
		}
		cfg.Costing.ByUnit, cfg.Costing.Unit, cfg.Sched.OverrunMin = true, r, 0
	}
	s.shown, s.epoch = 0, 0
	s.w = newWorld(s.t, cfg, engine.DefaultLimits(), 1)
}

// promise tells the cell of a tenant or an organization, and says why that was refused.
func (s *script) promise(a args) string {
	s.t.Helper()
	s.epoch++
	var p *Policy
	if a.word(0) == "organization" {
		p = s.w.organization(cell.OrganizationPolicy{
			Organization: cell.OrganizationID(a.word(1)), Weight: cell.Weight(1000 * a.float(a.text("weight", "1"))), Reservation: a.rates("reserve"),
			Limit: a.rate(a.text("limit", "0")), Epoch: s.epoch,
		})
	} else {
		t := cell.TenantPolicy{
			Tenant: cell.TenantID(a.word(1)), Organization: cell.OrganizationID(a.text("org", "")),
			Weight: cell.Weight(1000 * a.float(a.text("weight", "1"))), Reservation: a.rates("reserve"), Limit: a.rate(a.text("limit", "0")),
			RunningMax: a.int("running", 0), BacklogJobsMax: a.int("jobs", 0), Epoch: s.epoch,
		}
		for group := range strings.SplitSeq(a.text("hand", "0"), ",") {
			t.Groups |= cell.WorkerGroup(a.float(group)).Bit()
		}
		if c := strings.Split(a.text("credit", "0:0:0"), ":"); len(c) == 3 {
			t.Credit = cell.Credit{Max: cell.Cost(a.rate(c[0])), Refill: a.rate(c[1]), Extra: a.rate(c[2])}
		}
		if n, per, ok := strings.Cut(a.text("starts", ""), "/"); ok {
			t.Starts = cell.StartRate{Jobs: int64(a.float(n)), Per: a.duration(per)}
		}
		p = s.w.tenant(t)
	}
	s.w.run(s.w.now)
	if err := p.Results[0].Err; err != nil {
		return err.Error()
	}
	return ""
}

func (a args) float(text string) float64 {
	a.t.Helper()
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		a.t.Fatal(err)
	}
	return f
}

func (a args) rate(text string) cell.Rate {
	a.t.Helper()
	return cell.Rate(a.float(text) * cell.Unit)
}

// rates returns a rate of each class, by cell.Class.Index.
func (a args) rates(name string) (rates [2]cell.Rate) {
	a.t.Helper()
	i, b, ok := strings.Cut(a.text(name, "0:0"), ":")
	if !ok {
		a.t.Fatalf("%s=%s is not a pair", name, a.set[name])
	}
	return [2]cell.Rate{a.rate(i), a.rate(b)}
}

// standing says where a tenant stands.
func (s *script) standing(a args) string {
	s.t.Helper()
	w, id := s.w, cell.TenantID(a.word(1))
	t := w.state.Tenant(id)
	switch a.word(0) {
	case "estimate":
		op := cell.Operation(a.word(2))
		learned, scheduled := t.Estimate(op), w.lead.sched.Estimate(id, op)
		if learned != scheduled {
			s.t.Errorf("the state has learned %+v, and the scheduler %+v", learned, scheduled)
		}
		return fmt.Sprintf("%v from %d", time.Duration(learned.Mean)*time.Microsecond, learned.Samples)
	case "charged":
		var sums []string
		for _, c := range cell.Classes() {
			sums = append(sums, fmt.Sprintf("%v %s", c, cell.FormatUnits(int64(t.Lane(c).Charged))))
		}
		return strings.Join(sums, ", ")
	}
	x, ok := w.lead.ExplainTenant(w.now, id)
	if !ok {
		return "no such tenant"
	}
	var out strings.Builder
	fmt.Fprintf(&out, "holds %d of %d", x.Standing.Held, x.Standing.RunningMax)
	if at := t.Starts(); len(at) > 0 {
		fmt.Fprintf(&out, ", started at")
		for _, i := range at {
			fmt.Fprintf(&out, " %v", w.since(i))
		}
	}
	for i, c := range cell.Classes() {
		st := x.Standing.Lanes[i].Tree
		if st.Own.Rounds > 0 {
			fmt.Fprintf(&out, "\n%v owes %d rounds", c, st.Own.Rounds)
		}
		if st.Own.Reservation > 0 {
			fmt.Fprintf(&out, "\n%v is %v ahead of its %v", c, st.Own.Ahead, st.Own.Reservation)
		}
		if st.Organization.Rounds > 0 {
			fmt.Fprintf(&out, "\n%v of %s owes %d rounds", c, t.Policy.Organization, st.Organization.Rounds)
		}
	}
	st := x.Standing.Lanes[0].Tree
	if st.LimitedUntil > w.now {
		fmt.Fprintf(&out, "\nlimited until %v", w.since(st.LimitedUntil))
	}
	if st.OrganizationLimitedUntil > w.now {
		fmt.Fprintf(&out, "\n%s limited until %v", t.Policy.Organization, w.since(st.OrganizationLimitedUntil))
	}
	if t.Policy.Credit.Max > 0 {
		fmt.Fprintf(&out, "\ncredit %s, spendable %v", cell.FormatUnits(int64(st.Credit)), st.Spendable)
	}
	for _, k := range x.Standing.Keys {
		fmt.Fprintf(&out, "\nkey %s holds %d of %d, %d wait", k.Key, k.Held, k.Max, k.Waiting)
	}
	return out.String()
}

func (s *script) worker(a args) {
	s.t.Helper()
	k := s.w.worker(a.word(1), int(a.int("slots", 1)), int(a.int("prefetch", 0)))
	k.id.Tenant = cell.TenantID(a.text("tenant", ""))
	k.offer = nil
	for op := range strings.SplitSeq(a.text("ops", "op"), ",") {
		k.offer = append(k.offer, cell.Operation(op))
	}
	if c := a.text("classes", ""); c != "" {
		k.classes = [2]bool{c == "interactive", c == "batch"}
	}
	k.duration, k.group = a.duration(a.text("lease", "30s")), cell.WorkerGroup(a.int("group", 0))
	k.deaf, k.noPolls, k.prompt = a.has("deaf"), a.has("reports"), a.has("prompt")
	k.start()
	s.w.run(s.w.now)
}

func (s *script) submit(a args) string {
	s.t.Helper()
	n := 1
	if v := a.word(2); v != "" && v[0] >= '0' && v[0] <= '9' {
		n, _ = strconv.Atoi(v)
	}
	class, err := cell.ParseClass("class", a.text("class", "interactive"))
	if err != nil {
		s.t.Fatal(err)
	}
	w := s.w
	j := job{
		plan: plan{
			tenant: cell.TenantID(a.word(1)), class: class, run: a.duration(a.text("run", "1s")), failures: int(a.int("fails", 0)),
			crashes: a.has("crashes"),
		},
		spec: engine.Spec{
			Operation: cell.Operation(a.text("op", "op")), Cost: cell.Cost(a.int("cost", 0)), Priority: int32(a.int("priority", 0)),
			Key: a.text("key", ""), Retry: engine.Retry{
				AttemptsMax: int32(a.int("attempts", 3)), DelayMin: 0, DelayMax: 0,
			},
		},
	}
	j.spec.Preemptible = a.has("preemptible")
	for key := range strings.SplitSeq(a.text("keys", ""), ",") {
		if name, most, ok := strings.Cut(key, ":"); ok {
			j.spec.Keys = append(j.spec.Keys, cell.ConcurrencyKey{Key: name, Max: int64(a.float(most))})
		}
	}
	if n := a.int("tokens", 0); n > 0 {
		j.uses = &cell.Resources{cell.ResourceTokens: n * cell.Unit}
	}
	if v := a.text("deadline", ""); v != "" {
		j.spec.Deadline = w.now.Add(a.duration(v))
	}
	if v := a.text("delay", ""); v != "" {
		j.spec.NotBefore = w.now.Add(a.duration(v))
	}
	plans := w.submit(slices.Repeat([]job{j}, n)...)
	w.run(w.now)
	refused := map[string]int{}
	for _, p := range plans {
		switch r := p.result; {
		case r.Err != nil:
			refused[strings.ReplaceAll(r.Err.Error(), r.JobID.String(), s.nameOf(r.JobID))]++
		case r.Duplicate:
			refused["the same as "+s.nameOf(r.JobID)]++
		}
	}
	var out strings.Builder
	for _, text := range slices.Sorted(maps.Keys(refused)) {
		fmt.Fprintf(&out, "%d: %s\n", refused[text], text)
	}
	return out.String()
}

func (s *script) nameOf(id cell.JobID) string {
	if p := s.w.plans[id]; p != nil {
		return p.name
	}
	return "?"
}

// started says what started, and remembers the tokens of first attempts.
func (s *script) started(how string, starts []start) string {
	if s.first == nil {
		s.first = map[string]engine.Token{}
	}
	counts, seconds := map[string]int{}, map[string]float64{}
	var words []string
	for _, x := range starts {
		if j := s.w.state.Job(x.plan.id); j != nil && j.Attempt == 1 {
			s.first[x.plan.name] = j.Lease.Token
		}
		counts[string(x.plan.tenant)]++
		seconds[string(x.plan.tenant)] += x.plan.run.Seconds()
		switch how {
		case "times":
			words = append(words, fmt.Sprintf("%s %s %s\n", s.w.since(x.at), x.plan.name, x.worker.id.Name))
		case "order":
			words = append(words, x.plan.name+" ")
		}
	}
	switch how {
	case "counts":
		for _, tenant := range slices.Sorted(maps.Keys(counts)) {
			words = append(words, fmt.Sprintf("%s %d\n", tenant, counts[tenant]))
		}
	case "seconds":
		for _, tenant := range slices.Sorted(maps.Keys(counts)) {
			words = append(words, fmt.Sprintf("%s %.0f s\n", tenant, seconds[tenant]))
		}
	}
	text := strings.Join(words, "")
	if text == "" && how != "" {
		return "nothing"
	}
	return strings.TrimSpace(text)
}

func (s *script) use() string {
	var out strings.Builder
	for _, c := range cell.Classes() {
		u := s.w.lead.Use(c)
		fmt.Fprintf(&out, "%v holds %d of %d, its own %d\n", c, u.Used, u.Limit, u.Nominal)
	}
	return out.String()
}

func (s *script) disturb(a args) string {
	s.t.Helper()
	w := s.w
	i := slices.IndexFunc(w.workers, func(k *worker) bool { return k.id.Name == a.word(1) })
	if i < 0 {
		s.t.Fatalf("no worker %q", a.word(1))
	}
	k := w.workers[i]
	switch a.word(0) {
	case "kill":
		k.kill()
	case "drain":
		k.drain()
	case "deaf":
		k.deaf = true
	case "hear":
		k.deaf = false
	case "abandon":
		k.abandon()
	case "regroup":
		k.group = cell.WorkerGroup(a.int("group", 0))
		k.abandon()
	case "lose":
		k.loseCall = 0
		if a.word(2) == "on" {
			k.loseCall = 1
		}
	}
	w.run(w.now)
	return ""
}

func (s *script) job(a args) string {
	s.t.Helper()
	w := s.w
	p := w.names[a.word(1)]
	if p == nil {
		s.t.Fatalf("no job %q", a.word(1))
	}
	tenant := cell.TenantID(a.text("as", string(p.tenant)))
	var result *engine.Result
	switch a.word(0) {
	case "cancel":
		x := &Cancel{Tenant: tenant, JobID: p.id}
		w.call(&Call{Cancel: x}, nil)
		result = &x.Result
	case "retry":
		x := &Retry{Tenant: tenant, JobID: p.id}
		p.ended = 0
		w.call(&Call{Retry: x}, nil)
		result = &x.Result
	case "late":
		r := &Report{
			Session: SessionID{Name: "late"}, Outcomes: []Outcome{{JobID: p.id, Token: s.first[p.name], Kind: engine.OutcomeSuccess}},
		}
		w.call(&Call{Report: r}, nil)
		w.run(w.now)
		result = &r.Results[0]
	case "explain":
		x, ok := w.lead.Explain(w.now, tenant, p.id)
		if !ok {
			return "no such job"
		}
		return fmt.Sprintf("%v: %s", x.Reason, x.Message)
	case "holders":
		x, _ := w.lead.Explain(w.now, tenant, p.id)
		var names []string
		for _, id := range x.Holders {
			names = append(names, s.nameOf(id))
		}
		return strings.Join(names, " ")
	default:
		j := w.state.Job(p.id)
		if j == nil {
			return "forgotten"
		}
		return fmt.Sprintf("%v: %d attempts, %d failed, %d lost, %d crashes, charged %v", j.State, j.Attempt, j.Failed, j.Lost, j.Crashes,
			time.Duration(j.Charged)*time.Microsecond)
	}
	w.run(w.now)
	if result.Err != nil {
		return strings.ReplaceAll(result.Err.Error(), p.id.String(), p.name)
	}
	return fmt.Sprintf("%v", result.State)
}

func (s *script) jobs(tenant cell.TenantID) string {
	var out strings.Builder
	for st := engine.Delayed; st <= engine.Quarantined; st++ {
		n := int64(0)
		for _, c := range cell.Classes() {
			n += s.w.state.Lane(cell.Lane{Tenant: tenant, Class: c}).Count(st)
		}
		if n > 0 {
			fmt.Fprintf(&out, "%v %d\n", st, n)
		}
	}
	return out.String()
}
