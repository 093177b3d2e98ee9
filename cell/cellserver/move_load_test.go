package cellserver

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell/engine"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/rejection"
)

// load is what applications and workers do while lanes move. Like a gateway they look elsewhere when a lane has moved, and try again when it is moving.
type load struct {
	p    *pair
	mu   sync.Mutex
	ids  map[string]string           // of each key
	of   map[string]fairleadv1.Class // of each job
	done map[string]int              // how often the end of each job was accepted
	stop chan struct{}
	// How often something was refused because of its lane.
	refused map[string]int
}

// retryElsewhere calls a cell, and the other one as it says, until it is not refused because of a lane. It returns nil when that was the last word.
func (l *load) retryElsewhere(t *testing.T, what string, first int, call func(*world) *fairleadv1.Rejection) {
	for i, cell := 0, first; ; i++ {
		r := call(l.p.cells[cell])
		l.mu.Lock()
		l.refused[r.GetReason()]++
		l.mu.Unlock()
		switch r.GetReason() {
		case "":
			return
		case "MOVED":
			cell = 1 - cell
		case "MOVING", "NOT_APPLIED", "OUTCOME_UNKNOWN":
		default:
			t.Errorf("%s: %v", what, r)
			return
		}
		if i > 10_000 {
			t.Errorf("%s: it never ends: %v", what, r)
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func (l *load) submitKeyed(t *testing.T, c fairleadv1.Class, key string) {
	l.retryElsewhere(t, "submit", 0, func(w *world) *fairleadv1.Rejection {
		resp, err := w.Jobs().Submit(w.acme, &fairleadv1.SubmitRequest{Job: job(c, key)})
		if err != nil {
			return rejection.From(err)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if id, ok := l.ids[key]; ok && id != resp.GetJobId() {
			t.Errorf("the key %s stands for %s and %s", key, id, resp.GetJobId())
		}
		l.ids[key], l.of[resp.GetJobId()] = resp.GetJobId(), c
		return nil
	})
}

// workUntilStopped is a worker of one cell, until stop is closed and it is given no more.
func (l *load) workUntilStopped(t *testing.T, at int, session string) {
	w := l.p.cells[at]
	for sequence := int64(1); ; sequence++ {
		resp, err := w.Workers().Lease(w.worker, &fairleadv1.LeaseRequest{
			Session: session, Operations: []string{"op"}, Slots: 2, Sequence: sequence, Wait: durationpb.New(20 * time.Millisecond),
		})
		if err != nil {
			if connect.CodeOf(err) != connect.CodeUnavailable {
				t.Errorf("lease: %v", err)
			}
			time.Sleep(time.Millisecond)
			sequence-- // what it was granted it is given again
			continue
		}
		for _, lease := range resp.GetLeases() {
			l.runJob(t, at, session, lease)
		}
		select {
		case <-l.stop:
			if len(resp.GetLeases()) == 0 {
				return
			}
		default:
		}
	}
}

// runJob runs a job for a while, with an extension in between, and reports that it has succeeded.
func (l *load) runJob(t *testing.T, at int, session string, lease *fairleadv1.JobLease) {
	time.Sleep(3 * time.Millisecond)
	w := l.p.cells[at]
	resp, err := w.Workers().Report(w.worker, &fairleadv1.ReportRequest{
		Session: session, Extensions: []*fairleadv1.Extension{{JobId: lease.GetJobId(), Token: lease.GetToken()}},
	})
	if err != nil && connect.CodeOf(err) != connect.CodeUnavailable || len(resp.GetCancels()) > 0 {
		t.Errorf("the extension of %v: %v, %v", lease.GetJobId(), resp, err)
	}
	time.Sleep(3 * time.Millisecond)
	l.retryElsewhere(t, "report", at, func(w *world) *fairleadv1.Rejection {
		resp, err := w.Workers().Report(w.worker, &fairleadv1.ReportRequest{Session: session, Outcomes: []*fairleadv1.Outcome{succeeded(lease, "1")}})
		if err != nil {
			return rejection.From(err)
		}
		if r := resp.GetResults()[0].GetRejection(); r != nil {
			return r
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.done[lease.GetJobId()]++
		return nil
	})
}

// Lanes move, one after the other, there and back and there again, while applications submit to them and workers run their jobs, fences come to nothing
// and leaders are made anew: every job that was accepted is one job at the lane's owner, and its end was accepted once.
func TestMoveUnderLoad(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := openPair(t, nil)
				l := &load{
					p: p, ids: map[string]string{}, of: map[string]fairleadv1.Class{}, done: map[string]int{}, refused: map[string]int{},
					stop: make(chan struct{}),
				}
				l.runAll(t, rand.New(rand.NewPCG(seed, 1)), seed%2 == 1)
				l.check(t)
			})
		})
	}
}

// runAll runs the load while lanes move, as random has it.
func (l *load) runAll(t *testing.T, random *rand.Rand, renew bool) {
	const submitters, jobs = 3, 60
	var applications, workers sync.WaitGroup
	for i := range submitters {
		applications.Go(func() {
			for k := range jobs {
				c := []fairleadv1.Class{interactive, batch}[k%2]
				l.submitKeyed(t, c, fmt.Sprintf("%d-%d", i, k))
				time.Sleep(5 * time.Millisecond)
				l.submitKeyed(t, c, fmt.Sprintf("%d-%d", i, k/3*2+k%2)) // another one of the class, mostly again
			}
		})
	}
	for i := range l.p.cells {
		for k := range 2 {
			workers.Go(func() { l.workUntilStopped(t, i, fmt.Sprintf("w%d-%d", i, k)) })
		}
	}
	m := mover{pair: l.p, random: random, renew: renew}
	for _, name := range []string{"m1", "m2"} {
		m.pair.move = &fairleadv1.Move{Migration: name, Attempt: 1}
		m.there(name != "m1")
		if name == "m1" {
			m.back()
		}
	}
	applications.Wait()
	close(l.stop)
	workers.Wait()
}

// mover moves the tenant's lanes, and meets what a mover meets.
type mover struct {
	pair   *pair
	random *rand.Rand
	renew  bool // leaders are made anew
}

func (m *mover) classes() []fairleadv1.Class {
	classes := []fairleadv1.Class{interactive, batch}
	m.random.Shuffle(len(classes), func(i, j int) { classes[i], classes[j] = classes[j], classes[i] })
	return classes
}

// meanwhile lets some time pass, in which something may happen, and copies what has changed.
func (m *mover) meanwhile(c fairleadv1.Class) {
	time.Sleep(time.Duration(m.random.IntN(20)) * time.Millisecond)
	if m.renew && m.random.IntN(2) == 0 {
		w := m.pair.cells[m.random.IntN(2)]
		w.Follow()
		if err := w.Lead(w.log); err != nil {
			m.pair.t.Fatal(err)
		}
	}
	m.pair.copy(c, int32(500+m.random.IntN(5000)))
}

func (m *mover) there(again bool) {
	p := m.pair
	for _, c := range m.classes() {
		if again {
			p.epoch[at(c)]++
		}
		p.stage(c)
		m.meanwhile(c)
	}
	for _, c := range m.classes() {
		for m.random.IntN(2) == 0 {
			m.meanwhile(c)
			p.fence(c)
			m.meanwhile(c)
			p.epoch[at(c)]++
			p.set(p.owner(c), c, fairleadv1.LaneMode_LANE_MODE_OPEN)
		}
		m.meanwhile(c)
		p.pause = time.Duration(m.random.IntN(5)) * time.Millisecond
		p.switchOver(c)
		m.meanwhile(c)
	}
}

func (m *mover) back() {
	for _, c := range m.classes() {
		m.meanwhile(c)
		m.pair.switchOver(c)
		m.pair.leave(c)
	}
}

// leave makes the lane that is not its owner's a tombstone, and empties it.
func (p *pair) leave(c fairleadv1.Class) {
	p.t.Helper()
	p.set(p.other(c), c, fairleadv1.LaneMode_LANE_MODE_TOMBSTONE)
	for {
		resp, err := p.other(c).Lanes().WipeLane(p.t.Context(), &fairleadv1.WipeLaneRequest{Move: p.move, Tenant: "acme", Class: c, RecordsMax: 7})
		if err != nil {
			p.t.Fatal(err)
		}
		if resp.GetLeft() == 0 {
			break
		}
	}
	if _, err := p.owner(c).Lanes().TrackLane(p.t.Context(), &fairleadv1.TrackLaneRequest{Move: p.move, Tenant: "acme", Class: c, Off: true}); err != nil {
		p.t.Fatal(err)
	}
}

func (l *load) check(t *testing.T) {
	t.Helper()
	l.p.check()
	if l.refused["MOVED"] == 0 {
		t.Errorf("the load did not meet what it is to: %v", l.refused)
	}
	if len(l.of) != len(l.ids) {
		t.Errorf("%d jobs of %d keys", len(l.of), len(l.ids))
	}
	for key, id := range l.ids {
		if l.done[id] != 1 {
			t.Errorf("the end of %s, key %s, was accepted %d times", id, key, l.done[id])
		}
		w := l.p.owner(l.of[id])
		w.wantState(w.acme, id, engine.Succeeded)
	}
	for _, c := range []fairleadv1.Class{interactive, batch} {
		l.p.copy(c, 0)
		l.p.wantEqual(c)
		view := l.p.owner(c).laneView(c)
		if got := view.GetJobsEnded(); int(got) != len(l.ids)/2 || view.GetJobsLeased()+view.GetJobsReady()+view.GetJobsDelayed() != 0 {
			t.Errorf("%v: %v of %d jobs", c, view, len(l.ids)/2)
		}
	}
}
