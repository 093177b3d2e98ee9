package leader

import (
	"errors"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
)

// shunt is a world whose lane of tenant a can be moved by hand.
type shunt struct {
	*world

	t     *testing.T
	lane  cell.Lane
	move  cell.Move
	epoch cell.Epoch
}

func newShunt(t *testing.T) *shunt {
	t.Helper()
	w := newWorld(t, testConfig(), engine.DefaultLimits(), 1)
	w.tenant(cell.TenantPolicy{Tenant: "a", Weight: 1000})
	w.tenant(cell.TenantPolicy{Tenant: "b", Weight: 1000})
	w.run(w.now)
	return &shunt{
		world: w, t: t, lane: cell.Lane{Tenant: "a", Class: cell.ClassBatch}, move: cell.Move{Migration: "m", Attempt: 1}, epoch: 1,
	}
}

// do makes a call and lets its answer come, at once.
func (m *shunt) do(c *Call) *Call {
	m.t.Helper()
	done := false
	m.call(c, func() { done = true })
	m.run(m.now)
	if !done || c.Err != nil {
		m.t.Fatalf("%+v is done %v: %v", c, done, c.Err)
	}
	return c
}

func (m *shunt) mode(mode cell.Mode) {
	m.t.Helper()
	m.epoch++
	c := m.do(&Call{Mode: &Mode{Fact: engine.ModeFact{Lane: m.lane, Mode: mode, Epoch: m.epoch, Move: m.move}}})
	if err := c.Mode.Result.Err; err != nil {
		m.t.Fatal(err)
	}
}

func (m *shunt) one(run time.Duration) *plan {
	m.t.Helper()
	p := m.submit(job{plan: plan{tenant: m.lane.Tenant, class: m.lane.Class, run: run}})[0]
	m.run(m.now)
	return p
}

// hold grants the lane's next job to a worker that says nothing more of it.
func (m *shunt) hold() Leased {
	m.t.Helper()
	c := m.do(&Call{Poll: &Poll{
		Session: SessionID{Name: "by hand"}, Worker: "by hand", Operations: []cell.Operation{"op"}, Classes: [2]bool{true, true}, Slots: 4, Sequence: 1,
		Want: 1, Until: m.now.Add(time.Second), LeaseDuration: 10 * time.Second,
	}})
	if len(c.Poll.Leases) != 1 {
		m.t.Fatalf("granted %+v", c.Poll.Leases)
	}
	return c.Poll.Leases[0]
}

func (m *shunt) report(le Leased, epochs Epochs, outcome bool) *Report {
	m.t.Helper()
	r := &Report{Session: SessionID{Name: "by hand"}, Epochs: epochs}
	if outcome {
		r.Outcomes = []Outcome{{JobID: le.JobID, Token: le.Token, Kind: engine.OutcomeSuccess}}
	} else {
		r.Extensions = []LeaseRef{{JobID: le.JobID, Token: le.Token}}
	}
	return m.do(&Call{Report: r}).Report
}

// TestFencedLaneTakesNothing asks everything of a lane that is fenced: each is refused, item by item, and nothing else is.
func TestFencedLaneTakesNothing(t *testing.T) {
	m := newShunt(t)
	p := m.one(time.Second)
	le := m.hold()
	m.one(time.Second)
	rejected := m.lead.Rejected()
	m.mode(cell.ModeFenced)
	items := []engine.SubmitFact{
		{ID: m.newID(), Tenant: "a", Class: cell.ClassBatch, Spec: engine.Spec{Operation: "op"}},
		{ID: m.newID(), Tenant: "a", Class: cell.ClassInteractive, Spec: engine.Spec{Operation: "op"}},
		{ID: m.newID(), Tenant: "b", Class: cell.ClassBatch, Spec: engine.Spec{Operation: "op"}},
	}
	for i := range items {
		m.plans[items[i].ID] = &plan{id: items[i].ID, name: "by hand", tenant: items[i].Tenant, class: items[i].Class}
	}
	s := m.do(&Call{Submit: &Submit{Items: items}}).Submit
	for i, want := range []bool{true, false, false} {
		if err := s.Results[i].Err; errors.Is(err, engine.ErrLaneMoving) != want || !want && err != nil {
			t.Errorf("submission %d: %v", i, err)
		}
	}
	if m.lead.Rejected() != rejected {
		t.Error("who comes to a lane that moves counts as refused")
	}
	refusals := map[string]error{
		"outcome": m.report(le, Epochs{}, true).Results[0].Err,
		"cancel":  m.do(&Call{Cancel: &Cancel{Tenant: "a", JobID: p.id}}).Cancel.Result.Err,
		"retry":   m.do(&Call{Retry: &Retry{Tenant: "a", JobID: p.id}}).Retry.Result.Err,
	}
	for name, err := range refusals {
		if !errors.Is(err, engine.ErrLaneMoving) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if r := m.report(le, Epochs{}, false); len(r.Cancels)+len(r.Elsewhere) > 0 {
		t.Errorf("an extension is answered by %+v and %+v", r.Cancels, r.Elsewhere)
	}
	// Nobody is granted what waits there, whoever asks.
	m.worker("other", 4, 0).start()
	m.worker("own", 4, 0).id.Tenant = "a"
	m.workers[1].start()
	m.runFor(time.Minute)
	if n := m.state.Lane(m.lane).Count(engine.Ready); n != 1 {
		t.Errorf("%d jobs are ready in the lane", n)
	}
	if x, _ := m.lead.Explain(m.now, "a", m.lead.Shadow(m.lane, 5)[0]); x.Reason != ReasonMoving {
		t.Errorf("it waits because of %v: %s", x.Reason, x.Message)
	}
	m.mode(cell.ModeOpen)
	m.runFor(time.Minute)
	if n := m.state.Lane(m.lane).Count(engine.Ready); n != 0 {
		t.Errorf("%d jobs are ready in the lane after it was opened", n)
	}
}

// TestFenceStopsTheTime holds a lease through a fence that takes longer than it lasts, under the same leader and under a new one: it ends a full
// duration after the lane is open again, and not before.
func TestFenceStopsTheTime(t *testing.T) {
	for name, elect := range map[string]bool{"same leader": false, "new leader": true} {
		t.Run(name, func(t *testing.T) {
			m := newShunt(t)
			p := m.one(time.Second)
			m.hold()
			m.runFor(9 * time.Second)
			m.mode(cell.ModeFenced)
			if elect {
				m.restart()
			}
			m.runFor(time.Hour)
			m.mode(cell.ModeOpen)
			m.runFor(9 * time.Second)
			if j := m.state.Job(p.id); j.State != engine.Leased {
				t.Fatalf("it is %v", j.State)
			}
			m.runFor(2 * time.Second)
			if j := m.state.Job(p.id); j.State != engine.Ready || j.Lost != 1 {
				t.Fatalf("it is %v, and was lost %d times", j.State, j.Lost)
			}
		})
	}
}

// TestEpochs tells callers who know an open lane at an earlier epoch than its own that it has moved, and serves those who know it at its own or a later one.
func TestEpochs(t *testing.T) {
	for ahead, want := range map[int]error{-1: engine.ErrLaneMoved, 0: nil, 1: nil} {
		m := newShunt(t)
		p := m.one(time.Hour)
		le := m.hold()
		m.mode(cell.ModeFenced)
		m.mode(cell.ModeOpen)
		known := Epochs{0, cell.Epoch(int(m.epoch) + ahead)}
		f := engine.SubmitFact{ID: m.newID(), Tenant: "a", Class: cell.ClassBatch, Spec: engine.Spec{Operation: "op"}}
		for name, err := range map[string]error{
			"submit": m.do(&Call{Submit: &Submit{Items: []engine.SubmitFact{f}, Epochs: known}}).Submit.Results[0].Err,
			"cancel": m.do(&Call{Cancel: &Cancel{Tenant: "a", JobID: p.id, Epochs: known}}).Cancel.Result.Err,
			"retry":  m.do(&Call{Retry: &Retry{Tenant: "a", JobID: p.id, Epochs: known}}).Retry.Result.Err,
			"report": m.report(le, known, true).Results[0].Err,
		} {
			if lane := errors.As(err, new(*engine.LaneError)); lane != (want != nil) || want != nil && !errors.Is(err, want) {
				t.Errorf("%s at an epoch %d ahead: %v, not %v", name, ahead, err, want)
			}
		}
	}
}

// TestLeaseLeaves lets a lease go with its lane: its worker is told neither to stop nor that it goes on here, and its slot is not free until it
// has stopped.
func TestLeaseLeaves(t *testing.T) {
	m := newShunt(t)
	p := m.one(time.Hour)
	le := m.hold()
	m.mode(cell.ModeFenced)
	m.mode(cell.ModeStandby)
	used := func() int64 { return m.lead.Use(cell.ClassBatch).Used }
	for range 3 {
		m.runFor(8 * time.Second)
		if r := m.report(le, Epochs{}, false); len(r.Cancels) > 0 || len(r.Elsewhere) != 1 {
			t.Fatalf("an extension is answered by %+v and %+v", r.Cancels, r.Elsewhere)
		}
	}
	if used() != 1 {
		t.Errorf("%d slots are used", used())
	}
	if err := m.report(le, Epochs{}, true).Results[0].Err; !errors.Is(err, engine.ErrLaneMoved) {
		t.Errorf("its end: %v", err)
	}
	if used() != 0 || m.state.Job(p.id).State != engine.Leased {
		t.Errorf("%d slots are used, and the job is %v", used(), m.state.Job(p.id).State)
	}
	// It comes back: the lease is live again, with a full grace, and ends here.
	m.mode(cell.ModeOpen)
	m.runFor(9 * time.Second)
	if r := m.report(le, Epochs{}, true); r.Results[0].Err != nil || m.state.Job(p.id).State != engine.Succeeded {
		t.Errorf("its end: %v", r.Results[0].Err)
	}
}

// TestTurnsGoFirst seals what changes a lane alone, before what was asked earlier; what was asked of the lane meanwhile is refused.
func TestTurnsGoFirst(t *testing.T) {
	m := newShunt(t)
	var sizes []int
	m.watch = func(e *engine.Entry) { sizes = append(sizes, len(e.Facts)) }
	before := m.submit(job{plan: plan{tenant: "a", class: cell.ClassBatch}}, job{plan: plan{tenant: "b", class: cell.ClassBatch}})
	m.mode(cell.ModeFenced)
	if !errors.Is(before[0].result.Err, engine.ErrLaneMoving) || before[1].result.Err != nil {
		t.Errorf("asked before: %v and %v", before[0].result.Err, before[1].result.Err)
	}
	if len(sizes) != 2 || sizes[0] != 1 || sizes[1] != 1 {
		t.Errorf("entries of %v facts", sizes)
	}
}

// TestPredict tells about how long a job waits that comes behind what a lane has, whether or not the lane is open.
func TestPredict(t *testing.T) {
	m := newShunt(t)
	if d := m.lead.Predict(m.lane); d != 0 {
		t.Errorf("%v in a cell without workers", d)
	}
	m.mode(cell.ModeFenced)
	m.mode(cell.ModeOpen)
	m.worker("w", 4, 0).start()
	var jobs []job
	for range 44 {
		jobs = append(jobs, job{plan: plan{tenant: "a", class: cell.ClassBatch, run: time.Minute}, spec: engine.Spec{Operation: "op", Cost: cell.Unit}})
	}
	m.submit(jobs...)
	m.run(m.now)
	check := func() {
		if d := m.lead.Predict(m.lane); d != 10*time.Second {
			t.Errorf("%v for 40 seconds of work on four slots", d)
		}
	}
	check()
	m.mode(cell.ModeFenced)
	check()
}

// TestCopiesTakeTurns lets copies of which each fills an entry come with other calls: neither holds up the other.
func TestCopiesTakeTurns(t *testing.T) {
	m := newShunt(t)
	m.lead.cfg.EntryBytesMax, m.lead.cfg.CallBytesPerEntry = 1000, 500
	var kinds string
	m.watch = func(e *engine.Entry) {
		switch e.Facts[0].(type) {
		case *engine.SubmitFact:
			kinds += "s"
		case *engine.ImportFact:
			kinds += "i"
		}
	}
	for range 4 {
		f := engine.ImportFact{Lane: m.lane, Move: m.move, End: engine.Cursor{Seeded: 1}, Records: make([]byte, 950)}
		m.call(&Call{Import: &Import{Fact: f}}, nil)
	}
	for range 4 {
		m.submit(job{
			plan: plan{tenant: "a", class: cell.ClassInteractive},
			spec: engine.Spec{Operation: "op", Payload: engine.Payload{Kind: engine.PayloadData, Data: make([]byte, 900)}},
		})
	}
	m.run(m.now)
	if kinds != "sisisisi" {
		t.Errorf("entries begin with %s", kinds)
	}
}

// copyTo copies what the other does not have of the lane yet.
func (m *shunt) copyTo(n *shunt, from engine.Cursor) engine.Cursor {
	m.t.Helper()
	for {
		records, _, next, err := m.state.Export(m.lane, from, 1000, 1000)
		if err != nil {
			m.t.Fatal(err)
		}
		if next == from {
			return from
		}
		f := engine.ImportFact{Lane: m.lane, Move: m.move, Begin: from, End: next, Records: records}
		if err := n.do(&Call{Import: &Import{Fact: f}}).Import.Result.Err; err != nil {
			m.t.Fatal(err)
		}
		from = next
	}
}

// TestEndedElsewhere brings a lane back in which a job has ended meanwhile that a worker of this cell runs still: while the lane is away the worker is
// not told to stop by this cell, and then it is.
func TestEndedElsewhere(t *testing.T) {
	m, n := newShunt(t), &shunt{world: newWorld(t, testConfig(), engine.DefaultLimits(), 2), t: t}
	p := m.one(time.Hour)
	le := m.hold()
	n.lane, n.move, n.epoch = m.lane, m.move, 100
	stage := engine.StageFact{Lane: m.lane, Policy: m.state.Tenant("a").Policy, Move: m.move, Epoch: n.epoch}
	calls := []*Call{n.do(&Call{Stage: &Stage{Fact: stage}}), m.do(&Call{Track: &Track{Fact: engine.TrackFact{Lane: m.lane, Move: m.move}}})}
	for _, c := range calls {
		if _, r := c.fact(); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	m.mode(cell.ModeFenced)
	at := m.copyTo(n, engine.Cursor{})
	n.mode(cell.ModeOpen)
	m.mode(cell.ModeStandby)
	if err := n.do(&Call{Cancel: &Cancel{Tenant: "a", JobID: p.id}}).Cancel.Result.Err; err != nil {
		t.Fatal(err)
	}
	n.mode(cell.ModeFenced)
	n.copyTo(m, at)
	if r := m.report(le, Epochs{}, false); len(r.Cancels) != 0 || len(r.Elsewhere) != 1 {
		t.Errorf("an extension is answered by %+v and %+v", r.Cancels, r.Elsewhere)
	}
	m.epoch = 200
	m.mode(cell.ModeOpen)
	if r := m.report(le, Epochs{}, false); len(r.Cancels) != 1 || len(r.Elsewhere) != 0 {
		t.Errorf("an extension is answered by %+v and %+v after it came back", r.Cancels, r.Elsewhere)
	}
}
