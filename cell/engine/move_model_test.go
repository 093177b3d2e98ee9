package engine_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
)

// TestMoves lets the lanes of a tenant go back and forth between two cells by random steps of a driver that loses, repeats and gives up, while jobs
// are submitted, run and end. Each cell has a second replica, which is replaced by its restored snapshot now and then.
func TestMoves(t *testing.T) {
	commands := 1000
	if testing.Short() || underRace {
		commands = 400
	}
	seen := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		r := newMoveRun(t, seen)
		for _, word := range rapid.SliceOfN(rapid.Uint64(), commands, commands).Draw(t, "commands") {
			if word != 0 {
				r.command(mix(word))
			}
		}
	})
	if t.Failed() || testing.Short() || underRace {
		return
	}
	want := []string{
		"copied", "import repeated", "fenced", "unfenced", "committed", "reversed", "released", "aborted", "snapshot restored", "moved to 0", "moved to 1",
		"refused moving", "refused moved", "refused behind", "job gone", "key gone", "key alone", "dropped", "apart", "late outcome taken", "cursor lost",
		"snapshot while fenced", "snapshot while tracked", "snapshot while filled", "credit split",
		"fenced again", "open again",
	}
	var missing []string
	for _, w := range want {
		if seen[w] == 0 {
			missing = append(missing, w)
		}
	}
	if len(missing) > 0 {
		t.Errorf("the commands never led to: %s\nthey led to: %v", strings.Join(missing, ", "), seen)
	}
}

// hashEvery is after how many entries replicas are compared: hashing takes longer than anything else here.
const hashEvery = 5

// movedTenant is whose lanes move; each cell has a tenant of its own beside it.
const movedTenant = cell.TenantID("acme")

// creditMax is what its bucket holds. It does not fill, so that nothing of it may come from nowhere.
const creditMax = 1_000_000

func moveLimits() engine.Limits {
	return engine.Limits{
		LiveJobsMax: 1000, LiveBytesMax: 1 << 20, FinishedBytesMax: 6000, FinishedJobsMax: 8, FinishedCellBytesMax: 20_000, KeyRecordsMax: 2000,
		KeyWindow: 20 * time.Second, CrashesMax: 2, ErrorBytesMax: 20, TimersPerEntryMax: 10, EstimatesMax: 3,
	}
}

// replicas are one cell's.
type replicas struct {
	a, b     *engine.State
	index    uint64
	snapshot *engine.Snapshot // of b
	bytes    []byte
	hash     [32]byte
	since    [][]byte
	credit   cell.Cost // what the tenant may have left of it here, at most
}

// ledgerJob is what was heard of a job of the tenant that moves.
type ledgerJob struct {
	id    cell.JobID
	lane  int
	token engine.Token
	live  bool
}

// driver takes one lane to the other cell and back.
type driver struct {
	phase   int
	home    int // whose the lane is
	epoch   cell.Epoch
	attempt uint32
	number  int // of the migration
	chunks  []*engine.ImportFact
	share   int32
}

const (
	driveIdle = iota
	driveCopy
	driveFenced
	driveMoved       // home is the target already
	driveMovedFenced // and is to be given back
	driveWipe
)

type moveRun struct {
	t      *rapid.T
	seen   map[string]int
	cells  [2]*replicas
	lanes  [2]*driver // by class
	now    cell.Instant
	ids    uint64
	jobs   []*ledgerJob
	byID   map[cell.JobID]*ledgerJob
	orders [2][]cell.JobID // of acceptance, by class
}

func newMoveRun(t *rapid.T, seen map[string]int) *moveRun {
	r := &moveRun{t: t, seen: seen, now: start, byID: map[cell.JobID]*ledgerJob{}, lanes: [2]*driver{{epoch: 1}, {epoch: 1}}}
	for i := range r.cells {
		limits := moveLimits()
		limits.KeyWindow += time.Duration(i) * 15 * time.Second
		a, err := engine.New(limits)
		if err != nil {
			t.Fatal(err)
		}
		b, err := engine.New(limits)
		if err != nil {
			t.Fatal(err)
		}
		r.cells[i] = &replicas{a: a, b: b, index: 10}
		r.must(i, &engine.PolicyFact{Policy: r.policy(cell.TenantID(fmt.Sprintf("of-%d", i)), 1)})
	}
	r.must(0, &engine.PolicyFact{Policy: r.policy(movedTenant, 1)})
	r.cells[0].credit = creditMax
	return r
}

func (*moveRun) policy(tenant cell.TenantID, epoch cell.Epoch) cell.TenantPolicy {
	return cell.TenantPolicy{
		Tenant: tenant, Weight: 1000, Epoch: epoch, Credit: cell.Credit{Max: creditMax}, Starts: cell.StartRate{Jobs: 4, Per: time.Minute},
	}
}

// apply applies an entry to both replicas of a cell, through its bytes.
func (r *moveRun) apply(c int, e *engine.Entry) engine.Applied {
	r.t.Helper()
	x := r.cells[c]
	e.Time = r.now
	b := engine.AppendEntry(nil, e)
	x.index++
	var got [2]engine.Applied
	for i, s := range []*engine.State{x.a, x.b} {
		decoded, err := engine.DecodeEntry(b)
		if err != nil {
			r.t.Fatal(err)
		}
		got[i] = s.Apply(x.index, decoded)
	}
	if x.snapshot != nil {
		x.since = append(x.since, b)
	}
	if x.index%hashEvery == 0 && x.a.Hash() != x.b.Hash() {
		r.t.Fatalf("the replicas of cell %d are different states after entry %d: %T", c, x.index, e.Facts)
	}
	for i := range got[0].Results {
		if errorText(got[0].Results[i].Err) != errorText(got[1].Results[i].Err) {
			r.t.Fatalf("%T: %v in one replica, %v in the other", e.Facts[i], got[0].Results[i].Err, got[1].Results[i].Err)
		}
	}
	for _, j := range got[0].Ended {
		if l := r.byID[j.ID]; l != nil && j.Lane.ID.Tenant == movedTenant {
			if !l.live {
				r.t.Fatalf("%v ended twice", j.ID)
			}
			l.live = false
		}
	}
	r.seen["key alone"] += aloneKeys(e)
	return got[0]
}

// aloneKeys is how many keys that have outlived their jobs an entry imports.
func aloneKeys(e *engine.Entry) (n int) {
	for _, f := range e.Facts {
		if f, ok := f.(*engine.ImportFact); ok {
			n += kindsOf(f.Records)[2]
		}
	}
	return n
}

// kindsOf counts an import's records by kind.
func kindsOf(b []byte) map[byte]int {
	kinds := map[byte]int{}
	for len(b) >= 5 {
		kinds[b[0]]++
		b = b[5+int(b[1])+int(b[2])<<8+int(b[3])<<16:]
	}
	return kinds
}

// do applies one fact.
func (r *moveRun) do(c int, f engine.Fact) engine.Result {
	r.t.Helper()
	return r.apply(c, &engine.Entry{Facts: []engine.Fact{f}}).Results[0]
}

func (r *moveRun) must(c int, f engine.Fact) engine.Result {
	r.t.Helper()
	res := r.do(c, f)
	if res.Err != nil || res.Duplicate {
		r.t.Fatalf("cell %d: %T: %+v", c, f, res)
	}
	return res
}

func laneOf(class int) cell.Lane { return cell.Lane{Tenant: movedTenant, Class: cell.Class(class + 1)} }

func (d *driver) move() cell.Move {
	return cell.Move{Migration: cell.MigrationID(fmt.Sprintf("m%d", d.number)), Attempt: d.attempt}
}

func (r *moveRun) command(d *dice) {
	switch k := d.n(32); {
	case k < 18:
		r.traffic(d)
	case k < 20:
		r.now += cell.Instant(d.n(4000)) * cell.Instant(time.Millisecond)
		r.apply(int(d.n(2)), &engine.Entry{})
	case k < 22:
		r.snap(d)
	case k == 22:
		r.digest(int(d.n(2)), int(d.n(2)), d)
	case k == 23:
		r.check()
	default:
		r.drive(int(d.n(2)), d)
	}
}

// traffic does something that callers and workers do, mostly where the lane is.
func (r *moveRun) traffic(d *dice) {
	class := int(d.n(2))
	v := r.lanes[class]
	c := v.home
	if d.one(6) {
		c = 1 - c
	}
	var epoch cell.Epoch
	switch d.n(4) {
	case 0:
		epoch = v.epoch
	case 1:
		epoch = cell.Epoch(1 + d.n(uint64(v.epoch)+2))
	}
	switch d.n(9) {
	case 0, 1, 2:
		r.submit(c, class, epoch, d)
	case 3, 4:
		r.grant(c, class, d)
	case 5, 6:
		r.outcome(c, class, epoch, d)
	case 7:
		r.other(c, class, epoch, d)
	default:
		r.account(c, class, d)
	}
}

// heard notes a refusal, and reports whether the fact was refused for the lane. Nothing may be taken where the lane is not open.
func (r *moveRun) heard(c, class int, epoch cell.Epoch, res engine.Result) bool {
	r.t.Helper()
	l := r.cells[c].a.Lane(laneOf(class))
	switch {
	case errors.Is(res.Err, engine.ErrLaneMoving):
		r.seen["refused moving"]++
	case errors.Is(res.Err, engine.ErrLaneMoved):
		r.seen["refused moved"]++
	case errors.Is(res.Err, engine.ErrLaneBehind):
		r.seen["refused behind"]++
	default:
		if res.Err == nil && (l.Mode != cell.ModeOpen || l.Epoch != 0 && epoch != 0 && epoch < l.Epoch) {
			r.t.Fatalf("cell %d took something of a lane that is %v at epoch %d, at epoch %d", c, l.Mode, l.Epoch, epoch)
		}
		return false
	}
	if l.Mode == cell.ModeOpen && (l.Epoch == 0 || epoch == 0 || epoch >= l.Epoch) {
		r.t.Fatalf("cell %d refused something of an open lane: %v", c, res.Err)
	}
	return true
}

func (r *moveRun) submit(c, class int, epoch cell.Epoch, d *dice) {
	r.ids++
	f := &engine.SubmitFact{Tenant: movedTenant, Class: cell.Class(class + 1), Epoch: epoch}
	f.ID = cell.JobID{0: byte(r.ids * 37), 13: byte(r.ids >> 16), 14: byte(r.ids >> 8), 15: byte(r.ids)}
	f.Spec = engine.Spec{
		Operation: cell.Operation([]string{"a", "b", "c", "d"}[d.n(4)]), Retry: engine.Retry{AttemptsMax: 2}, Retention: time.Duration(1+d.n(40)) * time.Second,
		Payload: engine.Payload{Kind: engine.PayloadData, Data: bytes.Repeat([]byte{7}, int(d.n(900)))},
	}
	if d.one(2) {
		f.Spec.Key = fmt.Sprintf("key-%d", d.n(12))
		f.BodyHash[0] = byte(d.n(2))
	}
	if d.one(4) {
		f.Spec.NotBefore = r.now + cell.Instant(d.n(9))*second
	}
	if d.one(4) {
		f.Spec.Deadline = r.now + cell.Instant(1+d.n(20))*second
	}
	if d.one(3) {
		f.Spec.Keys = []cell.ConcurrencyKey{{Key: fmt.Sprintf("c%d", d.n(3)), Max: int64(1 + d.n(4))}}
	}
	if r.cells[c].a.Tenant(movedTenant) == nil {
		if res := r.do(c, f); !errors.Is(res.Err, engine.ErrTenantUnknown) {
			r.t.Fatalf("a cell without the tenant: %v", res.Err)
		}
		return
	}
	r.apply(c, &engine.Entry{}) // what is said is of the state's time
	pre, done := r.cells[c].a.Precheck(f, engine.Extra{})
	res := r.do(c, f)
	if done && !errors.Is(pre.Err, res.Err) && errorText(pre.Err) != errorText(res.Err) {
		r.t.Fatalf("said to come to %+v, came to %+v", pre, res)
	}
	if r.heard(c, class, epoch, res) || res.Err != nil || res.Duplicate {
		return
	}
	l := &ledgerJob{id: f.ID, lane: class, live: true}
	r.jobs, r.byID[f.ID] = append(r.jobs, l), l
	r.orders[class] = append(r.orders[class], f.ID)
}

// pick returns one of the lane's latest jobs in a state there, if there is one.
func (r *moveRun) pick(c, class int, d *dice, states ...engine.JobState) *engine.Job {
	l := r.cells[c].a.Lane(laneOf(class))
	if l == nil {
		return nil
	}
	var found []*engine.Job
	l.List(0, func(j *engine.Job) bool {
		if slices.Contains(states, j.State) {
			found = append(found, j)
		}
		return len(found) < 10
	})
	if len(found) == 0 {
		return nil
	}
	return found[d.n(uint64(len(found)))]
}

func (r *moveRun) grant(c, class int, d *dice) {
	j := r.pick(c, class, d, engine.Ready)
	if j == nil {
		return
	}
	epoch := max(j.Lane.Epoch, j.Lane.Tenant.Policy.Epoch)
	res := r.do(c, &engine.GrantFact{ID: j.ID, Lease: engine.Lease{Token: engine.Token{Nonce: d.n(1 << 30)}, Session: "s", Charged: cell.Cost(d.n(100))}})
	if r.heard(c, class, 0, res) {
		return
	}
	if res.Err != nil {
		r.t.Fatal(res.Err)
	}
	if j.Lease.Token.Epoch != epoch {
		r.t.Fatalf("granted at epoch %d, not %d", j.Lease.Token.Epoch, epoch)
	}
	r.byID[j.ID].token = j.Lease.Token
}

// outcome reports by the token that was heard last, wherever that was.
func (r *moveRun) outcome(c, class int, epoch cell.Epoch, d *dice) {
	var known []*ledgerJob
	for i := len(r.jobs) - 1; i >= 0 && len(known) < 12; i-- {
		if l := r.jobs[i]; l.live && l.lane == class && l.token != (engine.Token{}) {
			known = append(known, l)
		}
	}
	if len(known) == 0 || r.cells[c].a.Tenant(movedTenant) == nil {
		return
	}
	l := known[d.n(uint64(len(known)))]
	f := &engine.OutcomeFact{
		ID: l.id, Token: l.token, Kind: engine.OutcomeKind(1 + d.n(7)), Charged: cell.Cost(d.n(200)), Epoch: epoch, WakeAt: r.now + cell.Instant(d.n(3))*second,
	}
	if f.Kind == engine.OutcomeSuccess {
		f.Result = engine.Payload{Kind: engine.PayloadData, Data: bytes.Repeat([]byte{9}, int(d.n(800)))}
	}
	j := r.cells[c].a.Job(l.id)
	leased := j != nil && j.State == engine.Leased && j.Lease.Token == l.token
	res := r.do(c, f)
	if j == nil || r.heard(c, class, epoch, res) {
		return
	}
	if leased != (res.Err == nil && !res.Duplicate) {
		r.t.Fatalf("the outcome of a lease that lives, %v: %+v", leased, res)
	}
	if leased && l.token.Epoch < j.Lane.Epoch {
		r.seen["late outcome taken"]++
	}
}

// other cancels, retries or charges.
func (r *moveRun) other(c, class int, epoch cell.Epoch, d *dice) {
	switch d.n(3) {
	case 0:
		if j := r.pick(c, class, d, engine.Delayed, engine.Ready, engine.Leased); j != nil {
			r.heard(c, class, epoch, r.do(c, &engine.CancelFact{ID: j.ID, Tenant: movedTenant, Charged: 3, Epoch: epoch}))
		}
	case 1:
		j := r.pick(c, class, d, engine.Failed, engine.Cancelled, engine.Expired, engine.Quarantined)
		if j == nil {
			return
		}
		f := &engine.RetryFact{ID: j.ID, Tenant: movedTenant, Epoch: epoch}
		pre := r.cells[c].a.PrecheckRetry(f, engine.Extra{})
		res := r.do(c, f)
		if errorText(pre.Err) != errorText(res.Err) {
			r.t.Fatalf("a retry that was said to come to %v came to %v", pre.Err, res.Err)
		}
		if !r.heard(c, class, epoch, res) && res.Err == nil {
			r.byID[j.ID].live = true
		}
	default:
		if j := r.pick(c, class, d, engine.Leased); j != nil {
			r.heard(c, class, 0, r.do(c, &engine.ChargeFact{ID: j.ID, Token: j.Lease.Token, Charged: cell.Cost(d.n(300))}))
		}
	}
}

// account lets the tenant spend of its credit.
func (r *moveRun) account(c, class int, d *dice) {
	x := r.cells[c]
	l := x.a.Lane(laneOf(class))
	if l == nil || l.Mode != cell.ModeOpen {
		return
	}
	left := r.creditOf(c)
	a := cell.TenantAccount{LimitTag: r.now, CreditTag: r.now, Credit: left - cell.Cost(d.n(uint64(max(left, 1))))/10, CreditAt: r.now}
	r.apply(c, &engine.Entry{
		Accounts:       []engine.AccountFact{{Lane: l.ID, Account: cell.LaneAccount{Rounds: int64(d.n(9)), Deficit: int64(d.n(99)), Ahead: time.Duration(d.n(9))}}},
		TenantAccounts: []engine.TenantAccountFact{{Tenant: movedTenant, Account: a}},
	})
	x.credit -= left - a.Credit
}

// creditOf is what the tenant has of its credit in a cell.
func (r *moveRun) creditOf(c int) cell.Cost {
	t := r.cells[c].a.Tenant(movedTenant)
	if t == nil {
		return 0
	}
	if t.Account.CreditAt == 0 {
		return creditMax
	}
	return t.Account.Credit
}

// drive takes the next step with a lane.
func (r *moveRun) drive(class int, d *dice) {
	v := r.lanes[class]
	switch v.phase {
	case driveIdle:
		r.begin(class, d)
	case driveCopy:
		r.copying(class, d)
	case driveFenced:
		r.fenced(class, d)
	case driveMoved:
		r.moved(class, d)
	case driveMovedFenced:
		r.giveBack(class, d)
	case driveWipe:
		r.wipe(class, d)
	}
}

// begin stages the lane in the other cell.
func (r *moveRun) begin(class int, d *dice) {
	v := r.lanes[class]
	v.number, v.attempt = v.number+10+class, 1
	r.stage(class)
	r.mode(v.home, class, cell.ModeStaged, v.epoch) // what cannot be
	if d.one(2) {
		epoch := max(r.lanes[0].epoch, r.lanes[1].epoch)
		r.must(v.home, &engine.PolicyFact{Policy: r.policy(movedTenant, epoch)})
		r.must(1-v.home, &engine.PolicyFact{Policy: r.policy(movedTenant, epoch)})
	}
	if l := r.cells[1-v.home].a.Lane(laneOf(1 - class)); l.Mode == cell.ModeOpen && r.lanes[1-class].home == v.home {
		r.t.Fatal("a policy opened a lane that is elsewhere")
	}
}

func (r *moveRun) stage(class int) {
	v := r.lanes[class]
	v.epoch++
	f := &engine.StageFact{Lane: laneOf(class), Policy: r.policy(movedTenant, 1), Move: v.move(), Epoch: v.epoch}
	res := r.must(1-v.home, f)
	if again := r.do(1-v.home, f); !again.Duplicate || again.Index != res.Index {
		r.t.Fatalf("staged again: %+v, at first %+v", again, res)
	}
	r.do(v.home, &engine.TrackFact{Lane: laneOf(class), Move: v.move()})
	v.phase, v.chunks = driveCopy, nil
}

// copyChunk copies the next records from the lane's home to the other cell, and reports whether there was nothing left.
func (r *moveRun) copyChunk(class int, d *dice) bool {
	v := r.lanes[class]
	source, target := r.cells[v.home], r.cells[1-v.home]
	from := target.a.Lane(laneOf(class)).Cursor
	records, count, next, err := source.a.Export(laneOf(class), from, 1+int(d.n(3000)), 1+int(d.n(20)))
	if err != nil {
		r.t.Fatalf("export after %+v: %v", from, err)
	}
	if next == from {
		if count != 0 || len(records) != 0 {
			r.t.Fatalf("%d records and no way forward", count)
		}
		return true
	}
	kinds := kindsOf(records)
	r.seen["job gone"] += kinds[3]
	r.seen["key gone"] += kinds[4]
	f := &engine.ImportFact{Lane: laneOf(class), Move: v.move(), Begin: from, End: next, Records: records}
	if res := r.must(1-v.home, f); res.Cursor != next {
		r.t.Fatalf("imported up to %+v, the cursor is %+v", next, res.Cursor)
	}
	r.seen["copied"]++
	v.chunks = append(v.chunks, f)
	again := v.chunks[d.n(uint64(len(v.chunks)))]
	if res := r.do(1-v.home, again); !errors.Is(res.Err, engine.ErrCursor) || res.Cursor != next {
		r.t.Fatalf("imported again: %+v", res)
	}
	r.seen["import repeated"]++
	return false
}

// mode asks for a mode twice: the second time must be answered like the first.
func (r *moveRun) mode(c, class int, m cell.Mode, epoch cell.Epoch) engine.Result {
	v := r.lanes[class]
	f := &engine.ModeFact{Lane: laneOf(class), Mode: m, Epoch: epoch, Move: v.move(), Share: v.share}
	res := r.do(c, f)
	if res.Err != nil {
		return res
	}
	before := r.cells[c].a.Tenant(movedTenant).Account
	if again := r.do(c, f); !again.Duplicate || again.Index != res.Index || r.cells[c].a.Tenant(movedTenant).Account != before {
		r.t.Fatalf("%v again: %+v, at first %+v", m, again, res)
	}
	return res
}

func (r *moveRun) mustMode(c, class int, m cell.Mode, epoch cell.Epoch) {
	r.t.Helper()
	if res := r.mode(c, class, m, epoch); res.Err != nil || res.Duplicate {
		r.t.Fatalf("cell %d, class %d, %v at %d: %+v", c, class, m, epoch, res)
	}
}

func (r *moveRun) copying(class int, d *dice) {
	v := r.lanes[class]
	switch {
	case d.one(40):
		r.abort(class)
	case d.one(60):
		v.epoch += 2
		r.mustMode(v.home, class, cell.ModeOpen, v.epoch)
		r.seen["open again"]++
	case d.one(60): // another tracking: what the cursor follows is lost
		late := v.move()
		late.Attempt++
		r.must(v.home, &engine.TrackFact{Lane: laneOf(class), Move: late})
		from := r.cells[1-v.home].a.Lane(laneOf(class)).Cursor
		if from == (engine.Cursor{}) {
			r.must(v.home, &engine.TrackFact{Lane: laneOf(class), Move: late, Off: true})
			r.must(v.home, &engine.TrackFact{Lane: laneOf(class), Move: v.move()})
			return
		}
		if _, _, _, err := r.cells[v.home].a.Export(laneOf(class), from, 1000, 1000); !errors.Is(err, engine.ErrCursorLost) {
			r.t.Fatalf("export after a change of tracking: %v", err)
		}
		r.seen["cursor lost"]++
		r.mustMode(1-v.home, class, cell.ModeTombstone, v.epoch)
		v.attempt++
		v.phase = driveWipe
	case r.copyChunk(class, d) && d.one(3) && !r.fencing(1-class):
		v.epoch++
		r.mustMode(v.home, class, cell.ModeFenced, v.epoch)
		r.seen["fenced"]++
		v.phase = driveFenced
	}
}

// fencing reports whether a class is about to be switched: one is at a time.
func (r *moveRun) fencing(class int) bool {
	p := r.lanes[class].phase
	return p == driveFenced || p == driveMovedFenced
}

func (r *moveRun) abort(class int) {
	v := r.lanes[class]
	r.mustMode(1-v.home, class, cell.ModeTombstone, v.epoch)
	r.must(v.home, &engine.TrackFact{Lane: laneOf(class), Move: v.move(), Off: true})
	r.seen["aborted"]++
	v.phase = driveWipe
}

func (r *moveRun) fenced(class int, d *dice) {
	v := r.lanes[class]
	if d.one(4) {
		v.epoch++
		r.mustMode(v.home, class, cell.ModeOpen, v.epoch)
		r.seen["unfenced"]++
		v.phase = driveCopy
		return
	}
	if d.one(10) { // the cell did not hear of what was between
		v.epoch += 2
		r.mustMode(v.home, class, cell.ModeFenced, v.epoch)
		r.seen["fenced again"]++
	}
	if !r.copyChunk(class, d) {
		return
	}
	r.compare(class)
	v.epoch++
	v.share = int32(d.n(4)) * 333
	if r.lanes[1-class].home != v.home || d.one(2) {
		v.share = 1000
	}
	r.hand(class, v.home, 1-v.home, cell.ModeStandby)
	r.seen["committed"]++
	v.home, v.phase, v.chunks = 1-v.home, driveMoved, nil
	if r.lanes[1-class].home != v.home {
		r.seen["apart"]++
	}
	r.seen[fmt.Sprintf("moved to %d", v.home)]++
}

// hand gives the lane from one cell to the other, and watches the tenant's credit.
func (r *moveRun) hand(class, from, to int, leaves cell.Mode) {
	v := r.lanes[class]
	had, there := r.creditOf(from), r.creditOf(to)
	other := r.cells[to].a.Lane(laneOf(1 - class))
	if other.Mode != cell.ModeOpen && other.Mode != cell.ModeFenced {
		there = 0
	}
	r.mustMode(to, class, cell.ModeOpen, v.epoch)
	r.mustMode(from, class, leaves, v.epoch)
	if got := r.creditOf(from) + r.creditOf(to); got != had+there {
		r.t.Fatalf("%d of credit, and %d at the target, became %d when %d thousandths went", had, there, got, v.share)
	}
	if v.share > 0 && v.share < 1000 {
		r.seen["credit split"]++
	}
}

func (r *moveRun) moved(class int, d *dice) {
	v := r.lanes[class]
	switch {
	case d.one(12): // released
		r.mustMode(1-v.home, class, cell.ModeTombstone, v.epoch)
		r.must(v.home, &engine.TrackFact{Lane: laneOf(class), Move: v.move(), Off: true})
		r.seen["released"]++
		v.phase = driveWipe
	case r.copyChunk(class, d) && d.one(4) && !r.fencing(1-class):
		v.epoch++
		r.mustMode(v.home, class, cell.ModeFenced, v.epoch)
		v.phase = driveMovedFenced
	}
}

// giveBack ends a reverse: home is the target, which is fenced.
func (r *moveRun) giveBack(class int, d *dice) {
	v := r.lanes[class]
	if !r.copyChunk(class, d) {
		return
	}
	r.compare(class)
	v.epoch++
	v.share = 1000
	if r.lanes[1-class].home == v.home { // the other class stays for now
		v.share = int32(d.n(3)) * 500
	}
	r.hand(class, v.home, 1-v.home, cell.ModeTombstone)
	v.home = 1 - v.home
	r.seen["reversed"]++
	r.do(v.home, &engine.TrackFact{Lane: laneOf(class), Move: v.move(), Off: true})
	v.phase = driveWipe
}

// wipe empties what was left in the other cell.
func (r *moveRun) wipe(class int, d *dice) {
	v := r.lanes[class]
	res := r.do(1-v.home, &engine.WipeFact{Lane: laneOf(class), Move: v.move(), Max: 1 + int(d.n(6))})
	if res.Err != nil {
		r.t.Fatal(res.Err)
	}
	if res.Left > 0 {
		f := &engine.StageFact{Lane: laneOf(class), Policy: r.policy(movedTenant, 1), Move: v.move(), Epoch: v.epoch + 1}
		if res := r.do(1-v.home, f); !errors.Is(res.Err, engine.ErrLaneFilled) {
			r.t.Fatalf("staged over %d records: %v", res.Left, res.Err)
		}
		return
	}
	v.phase = driveIdle
}

// digest computes some more of a lane's digest in one replica of a cell: the other must come to the same state all the same.
func (r *moveRun) digest(c, class int, d *dice) {
	if l := r.cells[c].a.Lane(laneOf(class)); l != nil {
		r.cells[c].a.AdvanceDigest(l.ID, 1+int(d.n(20)))
		r.cells[c].b.AdvanceDigest(l.ID, int(d.n(3)))
	}
}

// content is everything of a lane but its place in a cell.
type laneContent struct {
	Jobs    []modelJob
	Seqs    []uint64
	Keys    []string
	Charged cell.Cost
	Account cell.LaneAccount
}

func (r *moveRun) content(c, class int) laneContent {
	s := r.cells[c].a
	l := s.Lane(laneOf(class))
	out := laneContent{Charged: l.Charged, Account: l.Account}
	l.List(0, func(j *engine.Job) bool {
		v := view(j)
		out.Jobs, out.Seqs = append(out.Jobs, v), append(out.Seqs, j.Seq)
		return true
	})
	out.Keys = s.KeysOf(l.ID)
	return out
}

// compare holds the two lanes against each other when all is copied: by their digests, by all that they have, and by the digests computed anew.
func (r *moveRun) compare(class int) {
	var digests [2]engine.LaneDigest
	for c := range r.cells {
		for !r.cells[c].a.AdvanceDigest(laneOf(class), 7) {
		}
		var whole bool
		if digests[c], whole = r.cells[c].a.Digest(laneOf(class)); !whole || digests[c].Done != 1000 {
			r.t.Fatal("not whole")
		}
		for i := range 8 { // of 256: which ones differs from time to time
			bucket := int(r.ids+uint64(i)*37) % engine.Buckets
			if r.bucket(c, class, bucket) != digests[c].Buckets[bucket] {
				r.t.Fatalf("cell %d kept another digest than its records have", c)
			}
		}
	}
	if a, b := r.content(0, class), r.content(1, class); !reflect.DeepEqual(a, b) {
		r.t.Fatalf("all is copied, and the lanes differ:\n%+v\n%+v", a, b)
	}
	if digests[0].Sum != digests[1].Sum {
		r.t.Fatal("the lanes are equal, and their digests are not")
	}
	source, target := r.cells[r.lanes[class].home].a.Lane(laneOf(class)), r.cells[1-r.lanes[class].home].a.Lane(laneOf(class))
	if target.Cursor != (engine.Cursor{Seeded: engine.SeededAll, Change: source.Change}) {
		r.t.Fatalf("all is copied up to %+v, of change %d", target.Cursor, source.Change)
	}
	if jobs, changes := r.cells[r.lanes[class].home].a.ExportLeft(laneOf(class), target.Cursor); jobs != 0 || changes != 0 {
		r.t.Fatalf("all is copied, and %d jobs and %d changes are left", jobs, changes)
	}
}

// bucket adds up a bucket's records.
func (r *moveRun) bucket(c, class, bucket int) (sum [16]byte) {
	for from := uint64(0); from != engine.SeededAll; {
		var records []engine.RecordDigest
		records, from = r.cells[c].a.BucketRecords(laneOf(class), bucket, from, 64)
		for _, rec := range records {
			carry := 0
			for i := 15; i >= 0; i-- {
				carry += int(sum[i]) + int(rec.Digest[i])
				sum[i] = byte(carry)
				carry >>= 8
			}
		}
	}
	return sum
}

// check holds the owners' lanes against the ledger: each job that lives is there once, in its place.
func (r *moveRun) check() {
	for c, x := range r.cells {
		if err := errors.Join(x.a.Check(), x.b.Check()); err != nil {
			r.t.Fatalf("cell %d: %v", c, err)
		}
	}
	for class, v := range r.lanes {
		l := r.cells[v.home].a.Lane(laneOf(class))
		var here []cell.JobID
		live := 0
		l.List(0, func(j *engine.Job) bool {
			here = append(here, j.ID)
			if j.Dropped {
				r.seen["dropped"]++
			}
			if j.State.Ended() == r.byID[j.ID].live {
				r.t.Fatalf("%v is %v, the ledger says live: %v", j.ID, j.State, r.byID[j.ID].live)
			}
			if !j.State.Ended() {
				live++
			}
			return true
		})
		slices.Reverse(here)
		at := 0
		for _, id := range r.orders[class] {
			if at < len(here) && here[at] == id {
				at++
			} else if r.byID[id].live {
				r.t.Fatalf("%v lives by the ledger, and is not in its place at its owner", id)
			}
		}
		if at != len(here) {
			r.t.Fatalf("%d of %d jobs are in the order of their acceptance", at, len(here))
		}
	}
	total := r.creditOf(0) + r.creditOf(1)
	if r.cells[0].a.Tenant(movedTenant) != nil && r.cells[1].a.Tenant(movedTenant) == nil && total > creditMax {
		r.t.Fatalf("%d of credit", total)
	}
}

// snap takes a snapshot of a second replica piece by piece, and lets what it restores to take its place.
func (r *moveRun) snap(d *dice) {
	x := r.cells[d.n(2)]
	if x.snapshot == nil {
		var err error
		if x.snapshot, err = x.b.BeginSnapshot(); err != nil {
			r.t.Fatal(err)
		}
		x.snapshot.SetChunk(1+int(d.n(3000)), 1+int(d.n(40)))
		x.bytes, x.since, x.hash = nil, nil, x.b.Hash()
		for _, l := range x.b.Lanes() {
			switch {
			case l.Mode == cell.ModeFenced:
				r.seen["snapshot while fenced"]++
			case l.Tracked:
				r.seen["snapshot while tracked"]++
			case l.Mode == cell.ModeStaged:
				r.seen["snapshot while filled"]++
			}
		}
		return
	}
	for range 1 + d.n(6) {
		var err error
		if x.bytes, err = x.snapshot.Next(x.bytes); !errors.Is(err, io.EOF) {
			continue
		}
		restored, err := engine.Restore(moveLimits(), bytes.NewReader(x.bytes))
		if err != nil {
			r.t.Fatal(err)
		}
		if restored.Hash() != x.hash {
			r.t.Fatal("a snapshot is not the state at its mark")
		}
		if err := restored.Check(); err != nil {
			r.t.Fatalf("restored: %v", err)
		}
		index := x.index - uint64(len(x.since))
		for _, b := range x.since {
			index++
			e, err := engine.DecodeEntry(b)
			if err != nil {
				r.t.Fatal(err)
			}
			restored.Apply(index, e)
		}
		if restored.Hash() != x.b.Hash() {
			r.t.Fatal("restored and brought up to now, a snapshot is another state")
		}
		r.seen["snapshot restored"]++
		x.b, x.snapshot = restored, nil
		return
	}
}
