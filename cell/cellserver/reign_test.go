package cellserver

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// foreign applies an entry that another leader proposed.
func (w *world) foreign(facts ...engine.Fact) {
	w.t.Helper()
	w.log.index++
	w.Apply(w.log.index, engine.AppendEntry(nil, &engine.Entry{Time: w.now(), Facts: facts}))
}

// Another leader's entry arrives before anybody said that there is one, while an entry is in flight and a worker and an application wait. What is in
// flight is not known to come to anything, and is told so; what only waited was not applied; and nothing is answered until this replica leads again.
func TestForeignEntryDeposes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		id := w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op"})
		poll := later(func() error {
			_, err := w.Workers().Lease(w.worker, &fairleadv1.LeaseRequest{Operations: []string{"none"}, Slots: 1, Wait: durationpb.New(time.Minute)})
			return err
		})
		wait := later(func() error {
			_, err := w.Jobs().WaitJob(w.acme, &fairleadv1.WaitJobRequest{JobId: id})
			return err
		})
		synctest.Wait()
		release := w.log.hold()
		w.log.next(fate{dropped: true, err: errUnclear})
		submit := func() error {
			_, err := w.Jobs().Submit(w.acme, &fairleadv1.SubmitRequest{Job: &fairleadv1.JobSpec{Operation: "op", IdempotencyKey: "k"}})
			return err
		}
		inFlight := later(submit)
		synctest.Wait()
		inbox := later(submit) // comes while the entry is in flight
		synctest.Wait()
		parsed, err := cell.ParseJobID("id", id)
		if err != nil {
			t.Fatal(err)
		}
		w.foreign(&engine.CancelFact{Tenant: "acme", ID: parsed})
		refused(t, "the entry's", <-inFlight, connect.CodeUnavailable, "OUTCOME_UNKNOWN", "")
		refused(t, "the poll", <-poll, connect.CodeUnavailable, "NOT_APPLIED", "")
		refused(t, "the wait", <-wait, connect.CodeUnavailable, "NOT_APPLIED", "")
		refused(t, "one that came after", submit(), connect.CodeUnavailable, "NOT_APPLIED", "")
		// What was in flight is applied after all, as the log has it.
		w.log.index++
		entries := w.log.proposed()
		w.Apply(w.log.index, bytes.Clone(entries[len(entries)-1]))
		release()
		refused(t, "one in the inbox", <-inbox, connect.CodeUnavailable, "NOT_APPLIED", "")
		if w.Leading() {
			t.Error("it leads still")
		}
		w.Follow()
		if err := w.Lead(w.log); err != nil {
			t.Fatal(err)
		}
		w.sound()
		again, err := w.Jobs().Submit(w.acme, &fairleadv1.SubmitRequest{Job: &fairleadv1.JobSpec{Operation: "op", IdempotencyKey: "k"}})
		if err != nil || !again.GetDuplicate() {
			t.Errorf("said again: %v, %v", again, err)
		}
		w.wantState(w.acme, id, engine.Cancelled)
	})
}

// A state that is restored under a leader replaces what it knows.
func TestRestoreUnderALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		before := w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op"})
		n, err := w.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		var saved bytes.Buffer
		if _, err := n.WriteTo(&saved); err != nil {
			t.Fatal(err)
		}
		n.Release()
		after := w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op"})
		if err := w.CheckSnapshot(bytes.NewReader(saved.Bytes()[:saved.Len()/2])); err == nil {
			t.Error("half a state passes")
		}
		if err := w.CheckSnapshot(bytes.NewReader(saved.Bytes())); err != nil {
			t.Error(err)
		}
		if err := w.Restore(bytes.NewReader(saved.Bytes())); err != nil {
			t.Fatal(err)
		}
		_, err = w.Jobs().GetJob(w.acme, &fairleadv1.GetJobRequest{JobId: before})
		refused(t, "a read before it leads again", err, connect.CodeUnavailable, "NOT_APPLIED", "")
		w.Follow()
		if err := w.Lead(w.log); err != nil {
			t.Fatal(err)
		}
		w.wantState(w.acme, before, engine.Ready)
		_, err = w.Jobs().GetJob(w.acme, &fairleadv1.GetJobRequest{JobId: after})
		refused(t, "what came after the copy", err, connect.CodeNotFound, "NOT_FOUND", "")
		w.sound()
	})
}

// A batch of which a first entry was applied when leadership went is not said to have come to nothing.
func TestPartOfABatchIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, func(cfg *Config) { cfg.Leader.EntryBytesMax, cfg.Leader.CallBytesPerEntry = 1, 1 }) // one job an entry
		release := w.log.hold()
		jobs := make([]*fairleadv1.JobSpec, 2)
		for i := range jobs {
			jobs[i] = &fairleadv1.JobSpec{Operation: "op"}
		}
		batch := later(func() error {
			_, err := w.Jobs().SubmitBatch(w.acme, &fairleadv1.SubmitBatchRequest{Jobs: jobs})
			return err
		})
		synctest.Wait()
		n := len(w.log.proposed())
		follow := later(func() error { w.Follow(); return nil })
		synctest.Wait()
		release()
		if err := <-follow; err != nil {
			t.Fatal(err)
		}
		if len(w.log.proposed()) != n {
			t.Fatalf("%d entries after Follow began", len(w.log.proposed())-n)
		}
		refused(t, "the batch", <-batch, connect.CodeUnavailable, "OUTCOME_UNKNOWN", "")
	})
}

// What a tenant was charged, and how often it met a limit of its own, is measured over a change of leaders.
func TestDemandOverAFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		if err := w.Configure(t.Context(), nil, []cell.TenantPolicy{{Tenant: "acme", Weight: cell.WeightDefault, BacklogJobsMax: 1, Epoch: 2}}); err != nil {
			t.Fatal(err)
		}
		w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op"})
		if _, err := w.Jobs().Submit(w.acme, &fairleadv1.SubmitRequest{Job: &fairleadv1.JobSpec{Operation: "op"}}); connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Errorf("a job beyond the limit: %v", err)
		}
		l := w.leaseOne(w.worker, "s", "op")
		time.Sleep(3 * time.Second)
		w.report(w.worker, &fairleadv1.ReportRequest{Session: "s", Outcomes: []*fairleadv1.Outcome{succeeded(l, "1")}})
		measure := func() *fairleadv1.TenantUse {
			resp, err := w.Tenancy().MeasureDemand(t.Context(), &fairleadv1.MeasureDemandRequest{})
			if err != nil {
				t.Fatal(err)
			}
			return resp.GetTenants()[0]
		}
		before := measure()
		if charged := before.GetChargedInteractive() + before.GetChargedBatch(); charged < 3e6 || before.GetLimited() != 1 || before.GetTenant() != "acme" {
			t.Errorf("acme has used %v", before)
		}
		w.Follow()
		if err := w.Lead(w.log); err != nil {
			t.Fatal(err)
		}
		if after := measure(); after.GetChargedInteractive() != before.GetChargedInteractive() ||
			after.GetChargedBatch() != before.GetChargedBatch() || after.GetLimited() != 1 {
			t.Errorf("after a failover %v, before it %v", after, before)
		}
	})
}

// A read that began in one reign and was confirmed in the next is not confirmed.
func TestReadAcrossReigns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		reign := w.reigns.Load()
		err := w.read(t.Context(), func() error {
			w.Follow()
			return w.Lead(w.log)
		})
		if err != ErrNotLeading || w.reigns.Load() != reign+2 { //nolint:errorlint // it is returned as it is
			t.Errorf("%v, reign %d after %d", err, w.reigns.Load(), reign)
		}
	})
}
