package cellserver

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

const (
	interactive = fairleadv1.Class_CLASS_INTERACTIVE
	batch       = fairleadv1.Class_CLASS_BATCH
)

// nowhere is the id of no job.
const nowhere = "job_00000000-0000-7000-8000-000000000000"

// pair is two cells, the lanes of acme in the first, and whoever moves them: it knows the epoch of each class's lane, as control would.
type pair struct {
	t     *testing.T
	cells [2]*world
	home  [2]int    // of each class's lane
	epoch [2]uint64 // of each class's lane
	move  *fairleadv1.Move
	pause time.Duration // how long a fence lasts at least
	// compared counts how often a copy came with both cells' digests.
	compared int
}

func openPair(t *testing.T, change func(*Config)) *pair {
	t.Helper()
	p := &pair{
		t: t, cells: [2]*world{open(t, change), openEmpty(t, func(c *Config) {
			c.Cell = "cell-2"
			if change != nil {
				change(c)
			}
		})}, epoch: [2]uint64{1, 1}, move: &fairleadv1.Move{Migration: "m1", Attempt: 1},
	}
	return p
}

func at(c fairleadv1.Class) int {
	if c == batch {
		return 1
	}
	return 0
}

func (p *pair) owner(c fairleadv1.Class) *world { return p.cells[p.home[at(c)]] }
func (p *pair) other(c fairleadv1.Class) *world { return p.cells[1-p.home[at(c)]] }

// stage makes the class's lane ready to be filled in the other cell, and its owner follow what changes.
func (p *pair) stage(c fairleadv1.Class) {
	p.t.Helper()
	_, err := p.other(c).Lanes().StageLane(p.t.Context(), &fairleadv1.StageLaneRequest{
		Move: p.move, Class: c, Epoch: p.epoch[at(c)],
		Tenant: &fairleadv1.TenantPromise{Tenant: "acme", Weight: int64(cell.WeightDefault), Epoch: 1},
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.track(c)
}

func (p *pair) track(c fairleadv1.Class) {
	p.t.Helper()
	if _, err := p.owner(c).Lanes().TrackLane(p.t.Context(), &fairleadv1.TrackLaneRequest{Move: p.move, Tenant: "acme", Class: c}); err != nil {
		p.t.Fatal(err)
	}
}

func (w *world) laneView(c fairleadv1.Class) *fairleadv1.LaneView {
	w.t.Helper()
	resp, err := w.Lanes().GetLanes(w.t.Context(), &fairleadv1.GetLanesRequest{Tenant: "acme"})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, l := range resp.GetLanes() {
		if l.GetClass() == c {
			return l
		}
	}
	return &fairleadv1.LaneView{Class: c}
}

// copy copies what there is of the lane from its owner, in chunks of about so many bytes, and returns what the last export said.
func (p *pair) copy(c fairleadv1.Class, chunk int32) *fairleadv1.ExportLaneResponse {
	p.t.Helper()
	from, to := p.owner(c).Lanes(), p.other(c).Lanes()
	for cursor := p.other(c).laneView(c).GetCursor(); ; {
		x, err := from.ExportLane(p.t.Context(), &fairleadv1.ExportLaneRequest{Move: p.move, Tenant: "acme", Class: c, Cursor: cursor, BytesMax: chunk})
		if err != nil {
			p.t.Fatal(err)
		}
		y, err := to.ImportLane(p.t.Context(), &fairleadv1.ImportLaneRequest{
			Move: p.move, Tenant: "acme", Class: c, Records: x.GetRecords(), Cursor: cursor, Next: x.GetNext(),
		})
		if err != nil || !y.GetApplied() {
			p.t.Fatalf("import: %v, %v", y, err)
		}
		if cursor = y.GetCursor(); len(x.GetDigest()) > 0 && len(y.GetDigest()) > 0 {
			if p.compared++; !bytes.Equal(x.GetDigest(), y.GetDigest()) {
				p.t.Errorf("%v: the digests differ as of change %d", c, cursor.GetChange())
			}
		}
		if x.GetSeedLeft() == 0 && x.GetChangesLeft() == 0 && cursor.GetSeeded() == engine.SeededAll {
			return x
		}
	}
}

// set logs a mode at the class's present epoch.
func (p *pair) set(w *world, c fairleadv1.Class, mode fairleadv1.LaneMode) *fairleadv1.SetLaneModeResponse {
	p.t.Helper()
	resp, err := w.Lanes().SetLaneMode(p.t.Context(), &fairleadv1.SetLaneModeRequest{
		Move: p.move, Tenant: "acme", Class: c, Mode: mode, Epoch: p.epoch[at(c)], Share: 500,
	})
	if err != nil {
		p.t.Fatalf("%v to %v: %v", c, mode, err)
	}
	return resp
}

func (p *pair) fence(c fairleadv1.Class) *fairleadv1.SetLaneModeResponse {
	p.t.Helper()
	p.epoch[at(c)]++
	return p.set(p.owner(c), c, fairleadv1.LaneMode_LANE_MODE_FENCED)
}

// wholeDigest returns a lane's digest and the number of its last change, once it is computed.
func (p *pair) wholeDigest(w *world, c fairleadv1.Class) ([]byte, uint64) {
	p.t.Helper()
	for {
		resp, err := w.Lanes().DigestLane(p.t.Context(), &fairleadv1.DigestLaneRequest{Move: p.move, Tenant: "acme", Class: c})
		if err != nil {
			p.t.Fatal(err)
		}
		if len(resp.GetDigest()) > 0 {
			return resp.GetDigest(), resp.GetChange()
		}
		time.Sleep(time.Millisecond)
	}
}

// wantEqual checks that both cells have the same in the lane.
func (p *pair) wantEqual(c fairleadv1.Class) {
	p.t.Helper()
	a, changeA := p.wholeDigest(p.cells[0], c)
	b, changeB := p.wholeDigest(p.cells[1], c)
	if bytes.Equal(a, b) && changeA == changeB {
		return
	}
	for bucket := int32(1); bucket <= engine.Buckets; bucket++ {
		var records [2][]*fairleadv1.LaneRecord
		for i, w := range p.cells {
			resp, err := w.Lanes().DigestLane(p.t.Context(), &fairleadv1.DigestLaneRequest{Move: p.move, Tenant: "acme", Class: c, Bucket: bucket})
			if err != nil {
				p.t.Fatal(err)
			}
			records[i] = resp.GetRecords()
		}
		if fmt.Sprint(records[0]) != fmt.Sprint(records[1]) {
			p.t.Errorf("bucket %d:\n%v\n%v", bucket, records[0], records[1])
		}
	}
	p.t.Errorf("%v: the digests differ: %x of change %d, %x of change %d", c, a, changeA, b, changeB)
}

// commit makes the other cell the lane's home, whose lane is fenced.
func (p *pair) commit(c fairleadv1.Class) {
	p.t.Helper()
	from, to := p.owner(c), p.other(c)
	p.epoch[at(c)]++
	p.home[at(c)] = 1 - p.home[at(c)]
	p.set(to, c, fairleadv1.LaneMode_LANE_MODE_OPEN)
	p.set(from, c, fairleadv1.LaneMode_LANE_MODE_STANDBY)
}

// switchOver moves a lane whose copy is about as far as its owner.
func (p *pair) switchOver(c fairleadv1.Class) {
	p.t.Helper()
	fenced := p.fence(c)
	time.Sleep(p.pause)
	p.copy(c, 0)
	p.wantEqual(c)
	if view := p.other(c).laneView(c); view.GetCursor().GetChange() != fenced.GetLane().GetChange() || view.GetCursor().GetSeeded() != engine.SeededAll {
		p.t.Errorf("%v: applied to %v, fenced at change %d", c, view.GetCursor(), fenced.GetLane().GetChange())
	}
	p.commit(c)
}

func job(c fairleadv1.Class, key string) *fairleadv1.JobSpec {
	return &fairleadv1.JobSpec{Operation: "op", Class: c, IdempotencyKey: key, Payload: document(`"` + key + `"`)}
}

// A lane moves: while it is fenced and after it has left, its old cell says so for everything that is asked of it, and does nothing; the new one has
// everything, the lease of a running job included. The other lane stays what it is. Then it comes back.
func TestMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := openPair(t, nil)
		a, b := p.cells[0], p.cells[1]
		first := a.submit(a.acme, job(batch, "first"))
		quick := a.submit(a.acme, job(interactive, "quick"))
		lease := a.leaseOne(a.worker, "w1", "op")
		if lease.GetJobId() != quick {
			t.Fatalf("leased %v", lease)
		}
		a.report(a.worker, &fairleadv1.ReportRequest{Session: "w1", Outcomes: []*fairleadv1.Outcome{succeeded(lease, "1")}})
		lease = a.leaseOne(a.worker, "w1", "op")
		p.stage(batch)
		p.copy(batch, 0)
		second := a.submit(a.acme, job(batch, "second"))
		waiting := later(func() error {
			_, err := a.Jobs().WaitJob(a.acme, &fairleadv1.WaitJobRequest{JobId: first})
			return err
		})
		synctest.Wait()
		idle(t, "the wait", waiting)

		p.fence(batch)
		refused(t, "a wait over the fence", <-waiting, connect.CodeUnavailable, "MOVING", "")
		p.wantGone(a, first, lease, connect.CodeUnavailable, "MOVING", "moving;batch;2")
		a.wantState(a.acme, quick, engine.Succeeded)
		a.submit(a.acme, job(interactive, "meanwhile"))

		p.copy(batch, 0)
		p.wantEqual(batch)
		p.commit(batch)
		p.wantGone(a, first, lease, connect.CodeFailedPrecondition, "MOVED", "moved;batch;3")
		if _, err := a.Jobs().GetJob(a.acme, &fairleadv1.GetJobRequest{JobId: nowhere}); errorHeader(err) != "moved;any;3" {
			t.Errorf("a job that is nowhere: %v with %q", err, errorHeader(err))
		}
		b.wantState(b.acme, first, engine.Leased)
		b.wantState(b.acme, second, engine.Ready)
		if got := b.submit(b.acme, job(batch, "second")); got != second {
			t.Errorf("the key of a job that moved stands for %s, want %s", got, second)
		}
		if resp := b.report(b.worker, &fairleadv1.ReportRequest{Session: "w1", Outcomes: []*fairleadv1.Outcome{succeeded(lease, "1")}}); resp.GetResults()[0].GetRejection() != nil {
			t.Errorf("the lease that moved: %v", resp)
		}
		b.wantState(b.acme, first, engine.Succeeded)
		third := b.submit(b.acme, job(batch, "third"))

		p.compared = 0
		p.copy(batch, 0) // what changes in a lane that was filled is tracked from its opening on
		if p.compared != 1 {
			t.Errorf("the digests came %d times with a copy while the lane was served", p.compared)
		}
		p.switchOver(batch)
		a.wantState(a.acme, first, engine.Succeeded)
		a.wantState(a.acme, third, engine.Ready)
		p.wantGone(b, third, lease, connect.CodeFailedPrecondition, "MOVED", "moved;batch;5")
		p.check()
	})
}

// check checks the cells' invariants.
func (p *pair) check() {
	p.t.Helper()
	for _, w := range p.cells {
		w.mu.Lock()
		if err := w.state.Check(); err != nil {
			p.t.Errorf("%s: %v", w.cfg.Cell, err)
		}
		if !w.lead.InFlight() {
			if err := w.lead.Check(); err != nil {
				p.t.Errorf("%s: %v", w.cfg.Cell, err)
			}
		}
		w.mu.Unlock()
	}
}

// errorHeader is what the answer of a refused call says of lanes.
func errorHeader(err error) string {
	if ce := new(connect.Error); err != nil && connectAs(err, &ce) {
		return ce.Meta().Get(HeaderLane)
	}
	return ""
}

func connectAs(err error, ce **connect.Error) bool {
	e, ok := err.(*connect.Error) //nolint:errorlint // handlers return it as it is
	*ce = e
	return ok
}

// wantGone checks that a cell refuses everything that is asked of the batch lane, a job of it and a lease of it, and that it changes nothing.
func (p *pair) wantGone(w *world, id string, lease *fairleadv1.JobLease, code connect.Code, reason, header string) {
	p.t.Helper()
	before := w.laneView(batch)
	j := w.Jobs()
	calls := map[string]func() error{
		"submit": func() error {
			_, err := j.Submit(w.acme, &fairleadv1.SubmitRequest{Job: job(batch, "late")})
			return err
		},
		"get":    func() error { _, err := j.GetJob(w.acme, &fairleadv1.GetJobRequest{JobId: id}); return err },
		"cancel": func() error { _, err := j.CancelJob(w.acme, &fairleadv1.CancelJobRequest{JobId: id}); return err },
		"retry":  func() error { _, err := j.RetryJob(w.acme, &fairleadv1.RetryJobRequest{JobId: id}); return err },
		"wait":   func() error { _, err := j.WaitJob(w.acme, &fairleadv1.WaitJobRequest{JobId: id}); return err },
		"explain": func() error {
			_, err := j.ExplainJob(w.acme, &fairleadv1.ExplainJobRequest{JobId: id})
			return err
		},
		"list": func() error { _, err := j.ListJobs(w.acme, &fairleadv1.ListJobsRequest{Class: batch}); return err },
	}
	for name, call := range calls {
		err := call()
		refused(p.t, name, err, code, reason, "")
		if got := errorHeader(err); got != header {
			p.t.Errorf("%s: the header says %q, want %q", name, got, header)
		}
	}
	resp, err := j.SubmitBatch(w.acme, &fairleadv1.SubmitBatchRequest{Jobs: []*fairleadv1.JobSpec{job(batch, "later"), job(interactive, "quick")}})
	if err != nil || resp.GetResults()[0].GetRejection().GetReason() != reason {
		p.t.Errorf("a batch: %v, %v", resp, err)
	}
	rep := w.report(w.worker, &fairleadv1.ReportRequest{
		Session: "w1", Outcomes: []*fairleadv1.Outcome{failed(lease, &fairleadv1.Failure{})},
		Extensions: []*fairleadv1.Extension{{JobId: lease.GetJobId(), Token: lease.GetToken()}},
	})
	if got := rep.GetResults()[0].GetRejection().GetReason(); got != reason || len(rep.GetCancels()) > 0 {
		p.t.Errorf("an outcome and an extension: %v", rep)
	}
	after := w.laneView(batch)
	before.OldestWait, after.OldestWait, before.PredictedWait, after.PredictedWait = nil, nil, nil, nil
	if before.String() != after.String() {
		p.t.Errorf("the lane changed from\n%v to\n%v", before, after)
	}
}
