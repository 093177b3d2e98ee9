package cellserver

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

func TestLaneModesAreInOrder(t *testing.T) {
	for n := range fairleadv1.LaneMode_name {
		m := fairleadv1.LaneMode(n)
		mode, err := modeOf(m)
		if m == fairleadv1.LaneMode_LANE_MODE_UNSPECIFIED {
			if err == nil {
				t.Error("no mode is a mode")
			}
			continue
		}
		want := map[fairleadv1.LaneMode]cell.Mode{
			fairleadv1.LaneMode_LANE_MODE_OPEN: cell.ModeOpen, fairleadv1.LaneMode_LANE_MODE_FENCED: cell.ModeFenced,
			fairleadv1.LaneMode_LANE_MODE_STAGED: cell.ModeStaged, fairleadv1.LaneMode_LANE_MODE_STANDBY: cell.ModeStandby,
			fairleadv1.LaneMode_LANE_MODE_TOMBSTONE: cell.ModeTombstone,
		}[m]
		if err != nil || mode != want || modeTo(mode) != m {
			t.Errorf("%v is %v, %v", m, mode, err)
		}
	}
	for _, m := range []fairleadv1.LaneMode{-1, 6, 257, 258} {
		if mode, err := modeOf(m); err == nil {
			t.Errorf("%d is %v", m, mode)
		}
	}
}

// Every call about a lane says which, and of which move; what is wrong in it is named.
func TestLaneCallsAreChecked(t *testing.T) {
	w := open(t, nil)
	h := w.Lanes()
	type laneRequest struct {
		move   *fairleadv1.Move
		tenant string
		class  fairleadv1.Class
	}
	calls := map[string]func(laneRequest) error{
		"track": func(r laneRequest) error {
			_, err := h.TrackLane(t.Context(), &fairleadv1.TrackLaneRequest{Move: r.move, Tenant: r.tenant, Class: r.class})
			return err
		},
		"export": func(r laneRequest) error {
			_, err := h.ExportLane(t.Context(), &fairleadv1.ExportLaneRequest{Move: r.move, Tenant: r.tenant, Class: r.class})
			return err
		},
		"import": func(r laneRequest) error {
			_, err := h.ImportLane(t.Context(), &fairleadv1.ImportLaneRequest{Move: r.move, Tenant: r.tenant, Class: r.class})
			return err
		},
		"mode": func(r laneRequest) error {
			_, err := h.SetLaneMode(t.Context(), &fairleadv1.SetLaneModeRequest{
				Move: r.move, Tenant: r.tenant, Class: r.class, Mode: fairleadv1.LaneMode_LANE_MODE_FENCED, Epoch: 2,
			})
			return err
		},
		"digest": func(r laneRequest) error {
			_, err := h.DigestLane(t.Context(), &fairleadv1.DigestLaneRequest{Move: r.move, Tenant: r.tenant, Class: r.class})
			return err
		},
		"wipe": func(r laneRequest) error {
			_, err := h.WipeLane(t.Context(), &fairleadv1.WipeLaneRequest{Move: r.move, Tenant: r.tenant, Class: r.class})
			return err
		},
	}
	good := &fairleadv1.Move{Migration: "m1", Attempt: 1}
	for name, call := range calls {
		for field, r := range map[string]laneRequest{
			"tenant":         {good, "no tenant", batch},
			"class":          {good, "acme", fairleadv1.Class_CLASS_UNSPECIFIED},
			"move.migration": {&fairleadv1.Move{Attempt: 1}, "acme", batch},
			"move.attempt":   {&fairleadv1.Move{Migration: "m1"}, "acme", batch},
		} {
			refused(t, name+" without "+field, call(r), connect.CodeInvalidArgument, "BAD_FIELD", field)
		}
		refused(t, name+" of no tenant here", call(laneRequest{good, "nobody", batch}), connect.CodeNotFound, "NOT_FOUND", "")
	}
	for field, err := range map[string]error{
		"bytes_max": second(h.ExportLane(t.Context(), &fairleadv1.ExportLaneRequest{Move: good, Tenant: "acme", Class: batch, BytesMax: 1<<20 + 1})),
		"records": second(h.ImportLane(t.Context(), &fairleadv1.ImportLaneRequest{
			Move: good, Tenant: "acme", Class: batch, Records: make([]byte, importBytesMax+1),
		})),
		"records_max": second(h.WipeLane(t.Context(), &fairleadv1.WipeLaneRequest{Move: good, Tenant: "acme", Class: batch, RecordsMax: 5001})),
		"bucket":      second(h.DigestLane(t.Context(), &fairleadv1.DigestLaneRequest{Move: good, Tenant: "acme", Class: batch, Bucket: 257})),
		"mode":        second(h.SetLaneMode(t.Context(), &fairleadv1.SetLaneModeRequest{Move: good, Tenant: "acme", Class: batch, Mode: 9})),
		"share": second(h.SetLaneMode(t.Context(), &fairleadv1.SetLaneModeRequest{
			Move: good, Tenant: "acme", Class: batch, Mode: fairleadv1.LaneMode_LANE_MODE_FENCED, Share: 1001,
		})),
		"tenant.tenant": second(h.StageLane(t.Context(), &fairleadv1.StageLaneRequest{Move: good, Class: batch})),
	} {
		refused(t, field, err, connect.CodeInvalidArgument, "BAD_FIELD", field)
	}
	for reason, err := range map[string]error{
		"NOT_TRACKED": second(h.ExportLane(t.Context(), &fairleadv1.ExportLaneRequest{Tenant: "acme", Class: batch, Move: good})),
		"WRONG_MODE":  second(h.WipeLane(t.Context(), &fairleadv1.WipeLaneRequest{Tenant: "acme", Class: batch, Move: good})),
		"MOVE_STALE":  second(h.DigestLane(t.Context(), &fairleadv1.DigestLaneRequest{Tenant: "acme", Class: batch, Move: good})),
	} {
		refused(t, reason, err, connect.CodeFailedPrecondition, reason, "")
	}
}

func second[T any](_ T, err error) error { return err }

// What is asked twice is done once, and answered twice; what another attempt asks for is refused.
func TestLaneCallsAreRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := openPair(t, nil)
		a, b := p.cells[0], p.cells[1]
		for i := range 20 {
			a.submit(a.acme, job(batch, fmt.Sprint(i)))
		}
		stage := &fairleadv1.StageLaneRequest{
			Move: p.move, Class: batch, Epoch: 1, Tenant: &fairleadv1.TenantPromise{Tenant: "acme", Organization: "org", Weight: 1, Epoch: 1},
			Organization: &fairleadv1.OrganizationPromise{Organization: "org", Weight: 1, Epoch: 1},
		}
		first, err := b.Lanes().StageLane(t.Context(), stage)
		again, errAgain := b.Lanes().StageLane(t.Context(), stage)
		if err != nil || errAgain != nil || first.GetIndex() == 0 || first.GetIndex() != again.GetIndex() {
			t.Fatalf("staged %v, %v, and again %v, %v", first, err, again, errAgain)
		}
		p.track(batch)
		x, err := a.Lanes().ExportLane(t.Context(), &fairleadv1.ExportLaneRequest{Move: p.move, Tenant: "acme", Class: batch, BytesMax: 1000})
		if err != nil || x.GetSeedLeft() == 0 || len(x.GetRecords()) < 1000 {
			t.Fatalf("%v, %v", x, err)
		}
		request := &fairleadv1.ImportLaneRequest{Move: p.move, Tenant: "acme", Class: batch, Records: x.GetRecords(), Next: x.GetNext()}
		for i := range 2 {
			y, err := b.Lanes().ImportLane(t.Context(), request)
			if err != nil || y.GetApplied() != (i == 0) || !proto.Equal(y.GetCursor(), x.GetNext()) {
				t.Fatalf("import %d: %v, %v, after %v", i, y, err, x.GetNext())
			}
		}
		broken := proto.CloneOf(request)
		broken.Cursor, broken.Records = x.GetNext(), broken.GetRecords()[:len(broken.GetRecords())-1]
		refused(t, "a chunk that was cut off", second(b.Lanes().ImportLane(t.Context(), broken)), connect.CodeFailedPrecondition, "BAD_RECORDS", "")
		late := &fairleadv1.Move{Migration: "m2", Attempt: 1}
		for name, err := range map[string]error{
			"export": second(a.Lanes().ExportLane(t.Context(), &fairleadv1.ExportLaneRequest{Move: late, Tenant: "acme", Class: batch})),
			"import": second(b.Lanes().ImportLane(t.Context(), &fairleadv1.ImportLaneRequest{
				Move: late, Tenant: "acme", Class: batch, Cursor: x.GetNext(), Next: x.GetNext(),
			})),
			"digest": second(b.Lanes().DigestLane(t.Context(), &fairleadv1.DigestLaneRequest{Move: late, Tenant: "acme", Class: batch})),
			"wipe":   second(b.Lanes().WipeLane(t.Context(), &fairleadv1.WipeLaneRequest{Move: late, Tenant: "acme", Class: batch})),
		} {
			refused(t, name+" of another move", err, connect.CodeFailedPrecondition, "MOVE_STALE", "")
		}
		prove, err := a.Lanes().ProveLane(t.Context(), &fairleadv1.ProveLaneRequest{Move: p.move, Tenant: "acme", Token: 77})
		if err != nil || prove.GetToken() != 77 || prove.GetIndex() == 0 {
			t.Errorf("proof: %v, %v", prove, err)
		}
		p.copy(batch, 0)
		fenced := p.fence(batch)
		repeated := p.set(a, batch, fairleadv1.LaneMode_LANE_MODE_FENCED)
		if fenced.GetIndex() == 0 || fenced.GetIndex() != repeated.GetIndex() || fenced.GetLane().GetFenceIndex() != fenced.GetIndex() {
			t.Errorf("fenced %v, and again %v", fenced, repeated)
		}
	})
}

// The records of all buckets are the lane's, with digests that are the same in both cells; and the operations that the tenant needs and the workers offer
// are told.
func TestLaneRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := openPair(t, nil)
		a := p.cells[0]
		want := map[string]bool{}
		for i := range 3 * surveySteps / 2 {
			want[a.submit(a.acme, &fairleadv1.JobSpec{Operation: []string{"x", "y"}[i%2], Class: batch})] = true
		}
		a.submit(a.acme, &fairleadv1.JobSpec{Operation: "z"})
		a.lease(a.worker, &fairleadv1.LeaseRequest{Session: "w", Operations: []string{"y", "q"}, Slots: 1})
		p.stage(batch)
		p.copy(batch, 0)
		p.wantEqual(batch)
		got := map[string]string{}
		for i, w := range p.cells {
			for bucket := int32(1); bucket <= engine.Buckets; bucket++ {
				resp, err := w.Lanes().DigestLane(t.Context(), &fairleadv1.DigestLaneRequest{Move: p.move, Tenant: "acme", Class: batch, Bucket: bucket})
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range resp.GetRecords() {
					before, seen := got[r.GetId()]
					if now := fmt.Sprintf("%s %x", r.GetKind(), r.GetDigest()); seen != (i == 1) || i == 1 && now != before || !want[r.GetId()] {
						t.Errorf("cell %d, bucket %d: %v, before %q", i, bucket, r, before)
					} else {
						got[r.GetId()] = now
					}
				}
			}
		}
		if len(got) != len(want) {
			t.Errorf("%d records, want %d", len(got), len(want))
		}
		resp, err := a.Lanes().GetLanes(t.Context(), &fairleadv1.GetLanesRequest{Tenant: "acme"})
		if err != nil {
			t.Fatal(err)
		}
		if got := resp.GetOperationsNeeded(); !slices.Equal(got, []string{"x", "y", "z"}) {
			t.Errorf("needed: %v", got)
		}
		if got := resp.GetOperationsOffered(); !slices.Equal(got, []string{"q", "y"}) {
			t.Errorf("offered: %v", got)
		}
		if resp.GetSlots() < 1 || resp.GetSlotsUsed() != 1 || resp.GetPolicyEpoch() != 1 || resp.GetIndex() == 0 || len(resp.GetLanes()) != 2 {
			t.Errorf("%v", resp)
		}
		a.submit(a.acme, &fairleadv1.JobSpec{Operation: "new"})
		time.Sleep(2 * needsAge)
		var needed []string
		for range 2 { // the first asks for it to be looked up again
			resp, err := a.Lanes().GetLanes(t.Context(), &fairleadv1.GetLanesRequest{Tenant: "acme"})
			if err != nil {
				t.Fatal(err)
			}
			needed = resp.GetOperationsNeeded()
			synctest.Wait()
		}
		if !slices.Equal(needed, []string{"new", "x", "y", "z"}) {
			t.Errorf("needed after a while: %v", needed)
		}
	})
}

// A cell whose leader is made anew in the middle of a move goes on with it: with the fence, with the copy, with the digests.
func TestMoveThroughNewLeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := openPair(t, nil)
		a, b := p.cells[0], p.cells[1]
		anew := func() {
			t.Helper()
			for _, w := range p.cells {
				w.Follow()
				if _, err := w.Lanes().GetLanes(t.Context(), &fairleadv1.GetLanesRequest{Tenant: "acme"}); connect.CodeOf(err) != connect.CodeUnavailable {
					t.Errorf("a cell that does not lead says: %v", err)
				}
				if err := w.Lead(w.log); err != nil {
					t.Fatal(err)
				}
			}
			p.check()
		}
		var ids []string
		for i := range 50 {
			ids = append(ids, a.submit(a.acme, job(batch, fmt.Sprint(i))))
		}
		lease := a.leaseOne(a.worker, "w1", "op")
		p.stage(batch)
		anew()
		p.copy(batch, 1000)
		anew()
		p.fence(batch)
		anew()
		refused(t, "a submission", second(a.Jobs().Submit(a.acme, &fairleadv1.SubmitRequest{Job: job(batch, "x")})), connect.CodeUnavailable, "MOVING", "")
		time.Sleep(time.Hour) // no lease ends while it is fenced
		anew()
		p.copy(batch, 0)
		p.wantEqual(batch)
		p.commit(batch)
		anew()
		refused(t, "a submission", second(a.Jobs().Submit(a.acme, &fairleadv1.SubmitRequest{Job: job(batch, "x")})), connect.CodeFailedPrecondition, "MOVED", "")
		resp := b.report(b.worker, &fairleadv1.ReportRequest{Session: "w1", Outcomes: []*fairleadv1.Outcome{succeeded(lease, "1")}})
		if r := resp.GetResults()[0].GetRejection(); r != nil {
			t.Errorf("the lease that moved: %v", r)
		}
		p.copy(batch, 0)
		p.wantEqual(batch)
		p.switchOver(batch)
		for _, id := range ids {
			want := engine.Ready
			if id == lease.GetJobId() {
				want = engine.Succeeded
			}
			a.wantState(a.acme, id, want)
		}
	})
}

// A fence that nothing comes of leaves the lane as it was: whoever waited is served, and the running job's lease goes on.
func TestUnfence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := openPair(t, nil)
		a := p.cells[0]
		id := a.submit(a.acme, job(batch, "first"))
		lease := a.leaseOne(a.worker, "w1", "op")
		waits := a.submit(a.acme, job(batch, "second"))
		p.stage(batch)
		p.copy(batch, 0)
		p.fence(batch)
		polled := make(chan []*fairleadv1.JobLease, 1)
		go func() {
			resp, _ := a.Workers().Lease(a.worker, &fairleadv1.LeaseRequest{Session: "w2", Operations: []string{"op"}, Slots: 1})
			polled <- resp.GetLeases()
		}()
		time.Sleep(time.Second)
		select {
		case got := <-polled:
			t.Fatalf("a fenced lane gives %v", got)
		default:
		}
		p.epoch[at(batch)]++
		p.set(a, batch, fairleadv1.LaneMode_LANE_MODE_OPEN)
		if got := <-polled; len(got) != 1 || got[0].GetJobId() != waits {
			t.Errorf("leases after the fence: %v", got)
		}
		a.report(a.worker, &fairleadv1.ReportRequest{Session: "w1", Outcomes: []*fairleadv1.Outcome{succeeded(lease, "1")}})
		a.wantState(a.acme, id, engine.Succeeded)
		p.copy(batch, 0)
		p.wantEqual(batch)
		p.check()
	})
}

// An importing cell whose disk is nearly full takes nothing; one that is being drained sends on what is elsewhere, and refuses the rest for its own reason.
func TestMoveWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := openPair(t, nil)
		a, b := p.cells[0], p.cells[1]
		id := a.submit(a.acme, job(batch, "first"))
		p.stage(batch)
		b.diskFull.Store(true)
		refused(t, "an import", second(b.Lanes().ImportLane(t.Context(), &fairleadv1.ImportLaneRequest{Move: p.move, Tenant: "acme", Class: batch})),
			connect.CodeResourceExhausted, "DISK_FREE_BYTES_MIN", "")
		b.diskFull.Store(false)
		p.copy(batch, 0)
		a.drained.Store(true)
		submit := func(c fairleadv1.Class) error {
			return second(a.Jobs().Submit(a.acme, &fairleadv1.SubmitRequest{Job: job(c, "x")}))
		}
		refused(t, "a submission while it drains", submit(batch), connect.CodeUnavailable, "CELL_DRAINING", "")
		p.fence(batch)
		refused(t, "one to the fence", submit(batch), connect.CodeUnavailable, "MOVING", "")
		p.copy(batch, 0)
		p.commit(batch)
		refused(t, "one to a lane that has left", submit(batch), connect.CodeFailedPrecondition, "MOVED", "")
		refused(t, "one to the other", submit(interactive), connect.CodeUnavailable, "CELL_DRAINING", "")
		refused(t, "a retry", second(a.Jobs().RetryJob(a.acme, &fairleadv1.RetryJobRequest{JobId: id})), connect.CodeFailedPrecondition, "MOVED", "")
		resp, err := a.Jobs().SubmitBatch(a.acme, &fairleadv1.SubmitBatchRequest{Jobs: []*fairleadv1.JobSpec{job(batch, "x"), job(interactive, "x")}})
		if err != nil || resp.GetResults()[0].GetRejection().GetReason() != "MOVED" || resp.GetResults()[1].GetRejection().GetReason() != "CELL_DRAINING" {
			t.Errorf("a batch: %v, %v", resp, err)
		}
	})
}

// apart is a tenant whose lanes are in two cells and have jobs of the same numbers, and then in one again: all of them, the newest first.
func (p *pair) apart() []string {
	var ids []string
	for i := range 7 {
		ids = append(ids, p.cells[0].submit(p.cells[0].acme, job([]fairleadv1.Class{interactive, batch}[i%2], fmt.Sprint(i))))
	}
	for _, c := range []fairleadv1.Class{interactive, batch} {
		p.stage(c)
		p.copy(c, 0)
	}
	p.switchOver(interactive)
	for i := range 5 {
		for k, c := range []fairleadv1.Class{interactive, batch} {
			w := p.owner(c)
			ids = append(ids, w.submit(w.acme, job(c, fmt.Sprint(100+10*i+k))))
		}
	}
	p.switchOver(batch)
	return ids
}

// However long its pages, a list has every job once, those of one number as well; and so has a capture.
func TestPagesOfLanesThatMet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := openPair(t, nil)
		ids := p.apart()
		b := p.cells[1]
		numbers := map[uint64]int{}
		b.mu.RLock()
		b.state.List("acme", 0, func(j *engine.Job) bool {
			numbers[j.Seq]++
			return true
		})
		b.mu.RUnlock()
		if len(numbers) == len(ids) {
			t.Fatal("no two jobs have one number")
		}
		for size := int32(1); size <= 4; size++ {
			seen := map[string]bool{}
			for token := ""; ; {
				resp, err := b.Jobs().ListJobs(b.acme, &fairleadv1.ListJobsRequest{PageSize: size, PageToken: token})
				if err != nil || len(resp.GetJobs()) > int(size) {
					t.Fatalf("a page of %d: %v, %v", size, resp, err)
				}
				for _, j := range resp.GetJobs() {
					if seen[j.GetId()] {
						t.Errorf("pages of %d: %s twice", size, j.GetId())
					}
					seen[j.GetId()] = true
				}
				if token = resp.GetNextPageToken(); token == "" {
					break
				}
			}
			if len(seen) != len(ids) {
				t.Errorf("pages of %d: %d jobs of %d", size, len(seen), len(ids))
			}
			for i, w := range p.cells {
				if got, want := capturedIn(t, w, size), i*len(ids); len(got) != want {
					t.Errorf("captured by %d in cell %d: %d jobs, want %d", size, i, len(got), want)
				}
			}
		}
	})
}

// capturedIn returns the jobs that a cell's capture has, each of which it has once.
func capturedIn(t *testing.T, w *world, size int32) map[string]bool {
	t.Helper()
	seen := map[string]bool{}
	for token := ""; ; {
		resp, err := w.Status().CaptureTrace(t.Context(), &fairleadv1.CaptureTraceRequest{PageSize: size, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range resp.GetRecords() {
			if seen[r.GetJobId()] {
				t.Errorf("captured by %d: %s twice", size, r.GetJobId())
			}
			seen[r.GetJobId()] = true
		}
		if token = resp.GetNextPageToken(); token == "" {
			return seen
		}
	}
}

// What a cell keeps of a lane that is another's counts there, and nowhere else: in what it measures, in its status. What a lane was charged elsewhere is
// no demand that it has here.
func TestDemandOfLanesThatMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := openPair(t, nil)
		a, b := p.cells[0], p.cells[1]
		for i := range 3 {
			a.submit(a.acme, job(batch, fmt.Sprint(i)))
		}
		run := func(w *world) {
			lease := w.leaseOne(w.worker, "w1", "op")
			time.Sleep(time.Second)
			w.report(w.worker, &fairleadv1.ReportRequest{Session: "w1", Outcomes: []*fairleadv1.Outcome{succeeded(lease, "1")}})
		}
		use := func(w *world) *fairleadv1.TenantUse {
			resp, err := w.Tenancy().MeasureDemand(t.Context(), &fairleadv1.MeasureDemandRequest{})
			if err != nil {
				t.Fatal(err)
			}
			for _, u := range resp.GetTenants() {
				if u.GetTenant() == "acme" {
					return u
				}
			}
			return &fairleadv1.TenantUse{}
		}
		want := func(what string, w *world, jobs, charged int64) {
			t.Helper()
			u := use(w)
			if u.GetJobs() != jobs || u.GetChargedBatch() < charged || u.GetChargedBatch() > charged+charged/100+1 {
				t.Errorf("%s: %v, want %d jobs and %d charged", what, u, jobs, charged)
			}
			resp, err := w.Status().GetStatus(t.Context(), &fairleadv1.GetStatusRequest{})
			if err != nil || resp.GetJobs().GetReady() != jobs || (len(resp.GetLanes()) > 0) != (jobs > 0) || resp.GetClasses()[1].GetReady() != jobs {
				t.Errorf("%s: %v, %v", what, resp, err)
			}
		}
		const second = 1_000_000
		run(a)
		want("before", a, 2, second)
		p.stage(batch)
		p.copy(batch, 0)
		want("the source", a, 2, second)
		want("the copy", b, 0, 0)
		p.switchOver(batch)
		want("the old home", a, 0, 0)
		want("the new home", b, 2, 0)
		run(b)
		want("the new home", b, 1, second)
		p.copy(batch, 0)
		want("the old home", a, 0, 0)
		b.Follow()
		if err := b.Lead(b.log); err != nil {
			t.Fatal(err)
		}
		want("a new leader", b, 1, 0)
		p.switchOver(batch)
		want("the old home again", a, 1, 0)
		want("the one between", b, 0, 0)
	})
}
