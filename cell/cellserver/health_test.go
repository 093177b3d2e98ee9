package cellserver

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// busy has a cell run for so many seconds: in each of them four batch jobs are submitted, granted after half a second, and one of them fails; another is
// handed back.
func (w *world) busy(seconds int) {
	w.t.Helper()
	for range seconds {
		for range 5 {
			w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op", Class: batch})
		}
		time.Sleep(500 * time.Millisecond)
		leases := w.lease(w.worker, &fairleadv1.LeaseRequest{Session: "w", Operations: []string{"op"}, Slots: 5})
		if len(leases) != 5 {
			w.t.Fatalf("%d leases", len(leases))
		}
		r := &fairleadv1.ReportRequest{Session: "w"}
		for i, l := range leases {
			switch i {
			case 0:
				r.Outcomes = append(r.Outcomes, failed(l, &fairleadv1.Failure{Fatal: true}))
			case 1:
				r.Outcomes = append(r.Outcomes, released(l, &fairleadv1.Release{Delay: durationpb.New(time.Hour)}))
			default:
				r.Outcomes = append(r.Outcomes, succeeded(l, "1"))
			}
		}
		w.report(w.worker, r)
		time.Sleep(500 * time.Millisecond)
	}
}

// wantHealth checks that a lane has done in each of so many windows what busy does.
func (w *world) wantHealth(what string, windows int, readyLeast int64) {
	w.t.Helper()
	want := &fairleadv1.LaneHealth{Window: durationpb.New(healthWindow)}
	for range windows {
		want.Windows = append(want.Windows, &fairleadv1.LaneWindow{
			Ended: 20, EndedBadly: 5, Started: 25, Waits: 25, WaitP99: durationpb.New(500 * time.Millisecond), ReadyLeast: readyLeast,
		})
	}
	if got := w.laneView(batch).GetHealth(); !proto.Equal(got, want) {
		w.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// What a lane does is measured from when it takes part in a move. At the source it stays as it was at the fence; at the target it begins with its opening; a
// state that came from elsewhere knows nothing of it.
func TestLaneHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := openPair(t, nil)
		a, b := p.cells[0], p.cells[1]
		for i := range 7 {
			a.submit(a.acme, &fairleadv1.JobSpec{Operation: "rare", Class: batch, IdempotencyKey: fmt.Sprint(i)})
		}
		a.busy(3)
		if h := a.laneView(batch).GetHealth(); h != nil || len(a.health) > 0 {
			t.Errorf("of a lane that does not move: %v", h)
		}
		p.stage(batch)
		a.wantHealth("tracked just now", 0, 0)
		a.busy(6)
		a.wantHealth("one window", 1, 7)
		a.busy(7)
		a.wantHealth("two of them", 2, 7)
		if h := a.laneView(interactive).GetHealth(); h != nil {
			t.Errorf("of the lane that stays: %v", h)
		}
		if h := b.laneView(batch).GetHealth(); h != nil {
			t.Errorf("of a lane that is being filled: %v", h)
		}

		p.copy(batch, 0)
		p.switchOver(batch)
		b.wantHealth("opened just now", 0, 0)
		if got := len(b.lease(b.worker, &fairleadv1.LeaseRequest{Session: "x", Operations: []string{"rare"}, Slots: 2})); got != 2 {
			t.Errorf("%d leases", got)
		}
		m := b.health[cell.Lane{Tenant: "acme", Class: cell.ClassBatch}]
		if c := m.present(); c.started != 2 || c.known != 0 {
			t.Errorf("of jobs that waited elsewhere: %+v", *c)
		}
		b.busy(12)
		b.wantHealth("at its new home", 2, 5)
		a.wantHealth("at its old home", 2, 7)

		b.Follow()
		if err := b.Lead(b.log); err != nil {
			t.Fatal(err)
		}
		b.wantHealth("of a leader that has applied all of it", 2, 5)
		n, err := b.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		var saved bytes.Buffer
		if _, err := n.WriteTo(&saved); err != nil {
			t.Fatal(err)
		}
		n.Release()
		b.Follow()
		if err := b.Restore(&saved); err != nil {
			t.Fatal(err)
		}
		if err := b.Lead(b.log); err != nil {
			t.Fatal(err)
		}
		b.wantHealth("of a state that came from elsewhere", 0, 0)

		time.Sleep(time.Second)
		p.switchOver(batch)
		if h := a.laneView(batch).GetHealth(); h != nil {
			t.Errorf("of a lane that has come back for good: %v", h)
		}
	})
}

// happening is one thing that is measured.
type happening struct {
	at    cell.Instant
	kind  engine.OutcomeKind // 0 for a grant
	wait  time.Duration
	ready int64 // afterwards
}

// What the slices say is what counting everything again says.
func TestHealthWindows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lane := &engine.Lane{ID: cell.Lane{Tenant: "acme", Class: cell.ClassBatch}, Mode: cell.ModeOpen, Tracked: true}
		h := health{}
		began := cell.Instant(rapid.Int64Range(1e9, 1e12).Draw(t, "began"))
		h.follow(lane, began, 0)
		m := h[lane.ID]
		all := []happening{{at: began}}
		now := began
		for range rapid.IntRange(0, 300).Draw(t, "entries") {
			now = now.Add(time.Duration(rapid.SampledFrom([]int{0, 1, 100, 900, 3000, 15_000, 60_000}).Draw(t, "pause")) * time.Millisecond)
			x := happening{at: now, kind: engine.OutcomeKind(rapid.IntRange(0, int(engine.OutcomePreempt)).Draw(t, "kind"))}
			x.wait, x.ready = time.Duration(rapid.IntRange(0, 5000).Draw(t, "wait")), rapid.Int64Range(0, 9).Draw(t, "ready")
			all = append(all, x)
			if x.kind == 0 {
				m.grant(now, &engine.Job{Attempt: 1, Created: now.Add(-x.wait)})
			} else {
				m.end(now, x.kind)
			}
			m.see(now, x.ready)
		}
		if rapid.Bool().Draw(t, "fenced") {
			lane.Mode = cell.ModeFenced
			h.follow(lane, now, now)
			m.grant(now.Add(time.Hour), &engine.Job{Attempt: 1, Created: 1})
			m.see(now.Add(time.Hour), 0)
			checkWindows(t, m.view(now.Add(2*time.Hour)), all, began, now)
			return
		}
		now = now.Add(time.Duration(rapid.IntRange(0, 30_000).Draw(t, "later")) * time.Millisecond)
		checkWindows(t, m.view(now), all, began, now)
	})
}

func checkWindows(t *rapid.T, got *fairleadv1.LaneHealth, all []happening, began, now cell.Instant) {
	var want []*fairleadv1.LaneWindow
	for end := now - now%cell.Instant(healthSlice); len(want) < 2; end = end.Add(-healthWindow) {
		from := end.Add(-healthWindow)
		if from < began-began%cell.Instant(healthSlice)+cell.Instant(healthSlice) {
			break
		}
		w, least, waits := &fairleadv1.LaneWindow{}, []int64{}, []time.Duration{}
		for i, x := range all {
			if x.at < end && (x.at >= from || i+1 == len(all) || all[i+1].at >= from) {
				least = append(least, x.ready)
			}
			if x.at < from || x.at >= end || i == 0 {
				continue
			}
			switch x.kind {
			case engine.OutcomeNone:
				w.Started++
				waits = append(waits, x.wait)
			case engine.OutcomeSuccess:
				w.Ended++
			case engine.OutcomeRelease, engine.OutcomePreempt:
			case engine.OutcomeFailure, engine.OutcomeFatal, engine.OutcomeLoss, engine.OutcomeCrash:
				w.Ended++
				w.EndedBadly++
			}
		}
		w.Waits, w.ReadyLeast = w.Started, slices.Min(least)
		if slices.Sort(waits); len(waits) > 0 {
			w.WaitP99 = durationpb.New(waits[(99*len(waits)+99)/100-1])
		}
		want = append(want, w)
	}
	if w := (&fairleadv1.LaneHealth{Window: durationpb.New(healthWindow), Windows: want}); len(all) < waitsKept && !proto.Equal(got, w) || len(got.GetWindows()) != len(want) {
		t.Fatalf("got %v, want %v", got, w)
	}
	for i, w := range got.GetWindows() { // of more than are kept the waits are a sample, and nothing else
		want[i].WaitP99 = w.GetWaitP99()
		if !proto.Equal(w, want[i]) {
			t.Fatalf("window %d: got %v, want %v", i, w, want[i])
		}
	}
}

// However many lanes move, and however much they do, what is kept of it is bounded; of the lanes the latest are measured.
func TestHealthIsBounded(t *testing.T) {
	h := health{}
	for i := range 2 * healthLanesMax {
		lane := &engine.Lane{ID: cell.Lane{Tenant: cell.TenantID(fmt.Sprint(i)), Class: cell.ClassBatch}, Mode: cell.ModeOpen, Tracked: true}
		now := cell.Instant(time.Hour).Add(time.Duration(i) * time.Second)
		h.follow(lane, now, 0)
		if len(h) > healthLanesMax || h[lane.ID] == nil {
			t.Fatalf("%d lanes are measured after %d", len(h), i+1)
		}
		for range 3 * waitsKept {
			h[lane.ID].grant(now, &engine.Job{Attempt: 1, Created: now})
		}
		if c := h[lane.ID].present(); len(c.waits) != waitsKept || c.started != 3*waitsKept {
			t.Fatalf("%d waits are kept of %d starts", len(c.waits), c.started)
		}
	}
}
