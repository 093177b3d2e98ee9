package migration

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/control/state"
	"github.com/fairlead/fairlead/migrate"
	"github.com/fairlead/fairlead/placement"
)

const (
	tenant     = cell.TenantID("whale")
	operation  = cell.Operation("count")
	keysCount  = 40 // that the applications use, again and again
	creditMax  = cell.Cost(1000)
	jobsAtOnce = 60 // that may wait in a cell
)

// world is control, two cells, gateways, applications and workers, and two control agents that may drive.
type world struct {
	t   *testing.T
	r   *rand.Rand
	now cell.Instant

	control *state.State
	index   uint64 // of control's log
	cells   map[cell.ID]*node
	names   []cell.ID
	gates   [2]gateway
	drivers [2]driver
	late    []func() // messages that are under way

	acked  map[ackKey]cell.JobID // what applications were told was accepted
	body   map[ackKey]byte
	leases []lease
	won    map[cell.JobID]int // accepted outcomes that ended a job
	faults bool
	moves  int
	// compared counts how often both cells' digests of a lane were compared while both went on.
	compared int
}

type ackKey struct {
	class cell.Class
	key   string
}

// node is a cell: its log's state. down is until when it does not answer.
type node struct {
	id    cell.ID
	state *engine.State
	index uint64
	down  cell.Instant
}

// gateway knows homes, which may be old ones.
type gateway struct{ homes [2]state.Assignment }

// lease is what a worker holds.
type lease struct {
	job   cell.JobID
	class cell.Class
	token engine.Token
	tries int
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	w := &world{
		t: t, r: rand.New(rand.NewPCG(seed, 7)), now: cell.Instant(1_800_000_000 * time.Second.Nanoseconds()), control: state.New(),
		cells: map[cell.ID]*node{}, names: []cell.ID{"a", "b"}, acked: map[ackKey]cell.JobID{}, body: map[ackKey]byte{}, won: map[cell.JobID]int{}, faults: true,
	}
	for _, id := range w.names {
		st, err := engine.New(engine.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		w.cells[id] = &node{id: id, state: st}
		w.must(command.CreateCell{Cell: id, Kind: placement.KindPooled, Replicas: 1, Time: w.now})
		c, _ := w.control.View().Cell(id)
		w.must(command.SetCellVoters{Cell: id, Voters: []command.Replica{{Name: "v"}}, Generation: c.Generation, Time: w.now})
	}
	w.must(command.CreateTenant{Tenant: tenant, Weight: cell.WeightDefault, Time: w.now, Credit: cell.Credit{Max: creditMax, Refill: 1, Extra: 10}})
	w.must(command.Assign{Tenant: tenant, Cell: "a", Time: w.now})
	p, _ := w.control.View().Tenant(tenant)
	w.apply("a", &engine.PolicyFact{Policy: p.Policy})
	for i := range w.drivers {
		w.drivers[i].w = w
	}
	return w
}

func (w *world) propose(c command.Command) state.Result {
	w.index++
	return w.control.Apply(w.index, c)
}

func (w *world) must(c command.Command) {
	w.t.Helper()
	if r := w.propose(c); r.Refused != nil {
		w.t.Fatalf("%T: %v", c, r.Refused)
	}
}

// errDown is a call that nobody answered: it may have been carried out, or may not.
var errDown = errors.New("nobody answered")

// apply puts facts into a cell's log.
func (w *world) apply(id cell.ID, facts ...engine.Fact) []engine.Result {
	n := w.cells[id]
	n.index++
	results := n.state.Apply(n.index, &engine.Entry{Time: w.now, Facts: facts}).Results
	for i, r := range results {
		if f, ok := facts[i].(*engine.OutcomeFact); ok && r.Err == nil && !r.Duplicate && r.State.Ended() {
			if w.won[f.ID]++; w.won[f.ID] > 1 {
				w.t.Fatalf("job %v ended twice, the second time in %s", f.ID, id)
			}
		}
	}
	return results
}

// one in n.
func (w *world) one(n int) bool { return w.r.IntN(n) == 0 }

// call is a message to a cell: it may be lost, its answer may be lost, it may come late once more.
func (w *world) call(id cell.ID, f engine.Fact) (engine.Result, error) {
	n := w.cells[id]
	if n.down > w.now {
		return engine.Result{}, errDown
	}
	if w.faults && w.one(12) {
		return engine.Result{}, errDown
	}
	if w.faults && w.one(15) {
		w.late = append(w.late, func() { w.apply(id, f) })
	}
	r := w.apply(id, f)[0]
	if w.faults && w.one(12) {
		return engine.Result{}, errDown
	}
	return r, nil
}

// deliver lets one of the messages that are under way arrive.
func (w *world) deliver() {
	if len(w.late) == 0 {
		return
	}
	i := w.r.IntN(len(w.late))
	f := w.late[i]
	w.late = append(w.late[:i], w.late[i+1:]...)
	f()
}

// restart is a crash: what is not in the log is gone.
func (w *world) restart(id cell.ID) {
	n := w.cells[id]
	snap, err := n.state.BeginSnapshot()
	if err != nil {
		w.t.Fatal(err)
	}
	var b []byte
	for err == nil {
		b, err = snap.Next(b)
	}
	st, err := engine.Restore(engine.DefaultLimits(), bytes.NewReader(b))
	if err != nil {
		w.t.Fatalf("restore %s: %v", id, err)
	}
	if st.Hash() != n.state.Hash() {
		w.t.Fatalf("cell %s is another after a restart", id)
	}
	n.state = st
}

func (w *world) restartControl() {
	var b bytes.Buffer
	if _, err := w.control.View().WriteTo(&b); err != nil {
		w.t.Fatal(err)
	}
	st, err := state.Restore(&b)
	if err != nil {
		w.t.Fatalf("restore control: %v", err)
	}
	w.control = st
}

func class(r *rand.Rand) cell.Class { return cell.Classes()[r.IntN(2)] }

// submit is an application by way of a gateway: a key that may have been used before, at the home that the gateway knows.
func (w *world) submit() {
	c, g := class(w.r), &w.gates[w.r.IntN(2)]
	k := ackKey{c, fmt.Sprint(w.r.IntN(keysCount))}
	home := g.homes[c.Index()]
	n := w.cells[home.Cell]
	if n == nil {
		return
	}
	if jobs, _ := n.state.Live(); jobs >= jobsAtOnce {
		return
	}
	body, seen := w.body[k]
	if !seen {
		body = byte(w.r.IntN(256))
		w.body[k] = body
	}
	var id cell.JobID
	for i := range id {
		id[i] = byte(w.r.UintN(256))
	}
	f := &engine.SubmitFact{
		ID: id, Tenant: tenant, Class: c, BodyHash: [16]byte{body}, Epoch: home.Epoch,
		Spec: engine.Spec{Operation: operation, Key: k.key, Retention: time.Hour, Retry: engine.Retry{AttemptsMax: 5}},
	}
	if w.one(5) {
		f.Spec.NotBefore = w.now.Add(time.Duration(w.r.IntN(5000)) * time.Millisecond)
	}
	r, err := w.call(home.Cell, f)
	switch {
	case err != nil:
	case r.Err == nil:
		if old, ok := w.acked[k]; ok && old != r.JobID {
			w.t.Fatalf("key %v stands for job %v and for job %v", k, old, r.JobID)
		}
		w.acked[k] = r.JobID
	default:
		var le *engine.LaneError
		if !errors.As(r.Err, &le) && !errors.Is(r.Err, engine.ErrTenantUnknown) {
			w.t.Fatalf("submit %v at %s: %v", k, home.Cell, r.Err)
		}
		w.refresh(g)
	}
}

func (w *world) refresh(g *gateway) { g.homes = w.control.View().Homes(tenant) }

// grant leases ready jobs of open lanes, as a cell's leader does.
func (w *world) grant() {
	id := w.names[w.r.IntN(2)]
	n := w.cells[id]
	if n.down > w.now {
		return
	}
	var ready *engine.Job
	for j := range n.state.Jobs {
		if j.State == engine.Ready && j.Lane.Mode == cell.ModeOpen && (ready == nil || j.Seq < ready.Seq) {
			ready = j
		}
	}
	if ready == nil {
		return
	}
	job, c := ready.ID, ready.Lane.ID.Class
	r := w.apply(id, &engine.GrantFact{ID: job, Lease: engine.Lease{
		Token: engine.Token{Nonce: w.r.Uint64()}, Session: "s", Channel: engine.ChannelLease, Sequence: 1, Duration: time.Minute, Charged: 3,
	}})[0]
	if r.Err != nil {
		w.t.Fatalf("grant of a ready job in an open lane: %v", r.Err)
	}
	w.leases = append(w.leases, lease{job: job, class: c, token: n.state.Job(job).Lease.Token})
}

// report ends a lease, at the home that some gateway knows, perhaps more than once.
func (w *world) report() {
	if len(w.leases) == 0 {
		return
	}
	i := w.r.IntN(len(w.leases))
	l := w.leases[i]
	g := &w.gates[w.r.IntN(2)]
	home := g.homes[l.class.Index()]
	if w.cells[home.Cell] == nil {
		return
	}
	f := &engine.OutcomeFact{ID: l.job, Token: l.token, Kind: engine.OutcomeSuccess, Charged: 3, Epoch: home.Epoch}
	if w.one(6) {
		f.Kind = engine.OutcomeFailure
	}
	r, err := w.call(home.Cell, f)
	if err != nil || errors.Is(r.Err, engine.ErrLaneMoving) || errors.Is(r.Err, engine.ErrLaneMoved) || errors.Is(r.Err, engine.ErrLaneBehind) {
		w.refresh(g)
		return // it is repeated
	}
	if errors.Is(r.Err, engine.ErrTenantUnknown) || errors.Is(r.Err, engine.ErrJobUnknown) && w.leases[i].tries < 200 {
		w.leases[i].tries++
		w.refresh(g)
		return
	}
	w.leases = append(w.leases[:i], w.leases[i+1:]...)
}

// start declares a migration to the cell where the tenant is not.
func (w *world) start() {
	homes := w.control.View().Homes(tenant)
	if homes[0].Cell != homes[1].Cell {
		w.t.Fatalf("the classes are apart and nothing moves: %v", homes)
	}
	target := w.names[0]
	if homes[0].Cell == target {
		target = w.names[1]
	}
	w.moves++
	options := migrate.Options{CanaryJobs: 1, CanaryTime: time.Second, PauseMax: 2 * time.Second, RollbackWindow: 20 * time.Second, BytesPerSecond: 1 << 20}
	w.must(command.StartMigration{
		ID: cell.MigrationID(fmt.Sprintf("m%d", w.moves)), Tenant: tenant, Source: homes[0].Cell, Target: target, Reason: "operator", Actor: "test",
		Options: options.WithDefaults(), Order: [2]cell.Class{cell.ClassBatch, cell.ClassInteractive},
		Expect: [2]cell.Epoch{homes[0].Epoch, homes[1].Epoch}, Time: w.now,
	})
}

// operate is an operator who aborts, reverses, completes, pauses or resumes, whatever the state.
func (w *world) operate() {
	m, ok := w.control.View().MigrationOf(tenant)
	if !ok || m.Done() {
		return
	}
	kinds := []migrate.Kind{
		migrate.EventAbort, migrate.EventReverse, migrate.EventComplete, migrate.EventHold, migrate.EventResume, migrate.EventResume,
	}
	k := kinds[w.r.IntN(len(kinds))]
	r := w.propose(command.AdvanceMigration{ID: m.ID, Expect: m.Generation, Event: migrate.Event{
		Kind: k, Attempt: m.Attempt, Time: w.now, Actor: "operator", Why: "a test",
	}})
	var te *migrate.TransitionError
	if r.Refused != nil && !errors.As(r.Refused, &te) {
		w.t.Fatalf("%v: %v", k, r.Refused)
	}
}

// tellPolicy is control's link, which tells both cells of a migration what the tenant is promised.
func (w *world) tellPolicy() {
	v := w.control.View()
	t, _ := v.Tenant(tenant)
	m, ok := v.MigrationOf(tenant)
	if !ok || m.Done() {
		home := v.Homes(tenant)[0].Cell
		w.apply(home, &engine.PolicyFact{Policy: t.Policy})
		return
	}
	source, target, toSource, toTarget := m.Policies(t.Policy)
	if toSource && w.cells[m.Source].state.Tenant(tenant) != nil {
		w.apply(m.Source, &engine.PolicyFact{Policy: source})
	}
	if toTarget && w.cells[m.Target].state.Tenant(tenant) != nil {
		w.apply(m.Target, &engine.PolicyFact{Policy: target})
	}
}
