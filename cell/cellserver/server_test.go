package cellserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// mutations are calls that change something, each on what prepare has left there, and what shows that it happened.
func mutations() map[string]func(w *world, l *fairleadv1.JobLease, id string) error {
	return map[string]func(w *world, l *fairleadv1.JobLease, id string) error{
		"submit": func(w *world, _ *fairleadv1.JobLease, _ string) error {
			_, err := w.Jobs().Submit(w.acme, &fairleadv1.SubmitRequest{Job: &fairleadv1.JobSpec{Operation: "new", IdempotencyKey: "k"}})
			return err
		},
		"batch": func(w *world, _ *fairleadv1.JobLease, _ string) error {
			_, err := w.Jobs().SubmitBatch(w.acme, &fairleadv1.SubmitBatchRequest{Jobs: []*fairleadv1.JobSpec{{Operation: "new"}, {Operation: ""}}})
			return err
		},
		"cancel": func(w *world, _ *fairleadv1.JobLease, id string) error {
			_, err := w.Jobs().CancelJob(w.acme, &fairleadv1.CancelJobRequest{JobId: id})
			return err
		},
		"retry": func(w *world, _ *fairleadv1.JobLease, id string) error {
			_, err := w.Jobs().RetryJob(w.acme, &fairleadv1.RetryJobRequest{JobId: id})
			return err
		},
		"lease": func(w *world, _ *fairleadv1.JobLease, _ string) error {
			_, err := w.Workers().Lease(w.worker, &fairleadv1.LeaseRequest{Session: "t", Operations: []string{"op"}, Slots: 1})
			return err
		},
		"report": func(w *world, l *fairleadv1.JobLease, _ string) error {
			_, err := w.Workers().Report(w.worker, &fairleadv1.ReportRequest{Session: "s", Outcomes: []*fairleadv1.Outcome{success(l)}})
			return err
		},
		"configure": func(w *world, _ *fairleadv1.JobLease, _ string) error {
			return w.asCall(w.Configure(w.t.Context(), nil, []cell.TenantPolicy{{Tenant: "new", Weight: 1, Epoch: 1}}))
		},
	}
}

// asCall returns err as a call's.
func (w *world) asCall(err error) error {
	if err == nil {
		return nil
	}
	return w.fail(w.t.Context(), err)
}

// prepare leaves a lease of the session s, a cancelled job, and a ready one, and returns the lease and the job that the mutation is about.
func (w *world) prepare(name string) (*fairleadv1.JobLease, string) {
	w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op"})
	l := w.leaseOne(w.worker, "s", "op")
	id := w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op"})
	if name == "retry" {
		if _, err := w.Jobs().CancelJob(w.acme, &fairleadv1.CancelJobRequest{JobId: id}); err != nil {
			w.t.Fatal(err)
		}
	}
	return l, id
}

// Nothing is answered before its entry is applied, and nobody else sees what is not.
func TestNothingLeavesBeforeTheLog(t *testing.T) {
	for name, call := range mutations() {
		synctest.Test(t, func(t *testing.T) {
			w := open(t, nil)
			l, id := w.prepare(name)
			before := w.hash()
			release := w.log.hold()
			defer release()
			done := later(func() error { return call(w, l, id) })
			synctest.Wait()
			time.Sleep(time.Second)
			synctest.Wait()
			idle(t, name, done)
			if w.hash() != before {
				t.Errorf("%s: the state changed before the log had it", name)
			}
			release()
			if err := <-done; err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if w.hash() == before {
				t.Errorf("%s: nothing changed", name)
			}
		})
	}
}

func (w *world) hash() [32]byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state.Hash()
}

// What comes in while an entry is in flight shares the next one.
func TestGroupCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		release := w.log.hold()
		before := len(w.log.proposed())
		first := later(func() error {
			_, err := w.Jobs().Submit(w.acme, &fairleadv1.SubmitRequest{Job: &fairleadv1.JobSpec{Operation: "op"}})
			return err
		})
		synctest.Wait()
		const n = 64
		errs := make(chan error, n)
		for i := range n {
			go func() {
				ctx := w.acme
				if i%2 == 1 {
					ctx = w.globex
				}
				_, err := w.Jobs().Submit(ctx, &fairleadv1.SubmitRequest{Job: &fairleadv1.JobSpec{Operation: "op"}})
				errs <- err
			}()
		}
		synctest.Wait()
		if got := len(w.log.proposed()) - before; got != 1 {
			t.Fatalf("%d entries while one is in flight", got)
		}
		release()
		for range n {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if err := <-first; err != nil {
			t.Error(err)
		}
		entries := w.log.proposed()[before:]
		if len(entries) != 2 {
			t.Fatalf("%d entries for %d submissions", len(entries), n+1)
		}
		e, err := engine.DecodeEntry(entries[1])
		if err != nil || len(e.Facts) != n {
			t.Errorf("%d facts in the second entry, %v", len(e.Facts), err)
		}
	})
}

// A submission and its grant to a waiting worker share an entry.
func TestGrantSharesTheEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		done := later(func() error {
			_, err := w.Workers().Lease(w.worker, &fairleadv1.LeaseRequest{Session: "s", Operations: []string{"op"}, Slots: 1})
			return err
		})
		synctest.Wait()
		before := len(w.log.proposed())
		w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op"})
		if err := <-done; err != nil || len(w.log.proposed()) != before+1 {
			t.Errorf("%v, %d entries", err, len(w.log.proposed())-before)
		}
	})
}

// An entry that is lost ends its calls with what is known of it; the leader is made anew from the state, and everything goes on.
func TestLostEntry(t *testing.T) {
	for kind, c := range map[string]struct {
		is     fate
		reason string
	}{
		"not applied":         {fate{dropped: true, err: errDropped}, "NOT_APPLIED"},
		"unknown, not there":  {fate{dropped: true, err: errUnclear}, "OUTCOME_UNKNOWN"},
		"not applied, folded": {fate{dropped: true, err: fmt.Errorf("the log: %w", errDropped)}, "NOT_APPLIED"},
	} {
		for name, call := range mutations() {
			synctest.Test(t, func(t *testing.T) {
				w := open(t, nil)
				l, id := w.prepare(name)
				before := w.hash()
				w.log.next(c.is)
				r := refused(t, kind+" "+name, call(w, l, id), connect.CodeUnavailable, c.reason, "")
				if r.GetRetryAfter().AsDuration() <= 0 || strings.Contains(r.GetMessage(), "nobody knows") {
					t.Errorf("%s %s: %v", kind, name, r)
				}
				if w.hash() != before {
					t.Errorf("%s %s: it was applied", kind, name)
				}
				// Said again it is done, and work goes on: with the same leases, and the same jobs ready.
				if err := call(w, l, id); err != nil {
					t.Errorf("%s %s again: %v", kind, name, err)
				}
				if name != "report" {
					resp := w.report(w.worker, &fairleadv1.ReportRequest{Session: "s", Outcomes: []*fairleadv1.Outcome{success(l)}})
					if resp.GetResults()[0].GetRejection() != nil {
						t.Errorf("%s %s: the lease is lost: %v", kind, name, resp)
					}
				}
				w.sound()
			})
		}
	}
}

// sound checks the invariants of state and leader.
func (w *world) sound() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := errors.Join(w.state.Check(), w.lead.Check()); err != nil {
		w.t.Error(err)
	}
}

// An entry that was applied although its proposer is told nothing of it: who asked again with the key gets the same job.
func TestAppliedAndUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		w.log.next(fate{err: errUnclear})
		spec := &fairleadv1.JobSpec{Operation: "op", IdempotencyKey: "k"}
		first := w.submit(w.acme, spec) // it was applied: this is the truth
		again, err := w.Jobs().Submit(w.acme, &fairleadv1.SubmitRequest{Job: spec})
		if err != nil || again.GetJobId() != first || !again.GetDuplicate() {
			t.Errorf("%v, %v", again, err)
		}
		w.leaseOne(w.worker, "s", "op")
		w.sound()
	})
}

// A lost entry ends open polls and everything that waits for the next entry too, with a word that makes them come again.
func TestLostEntryEndsPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		poll := later(func() error {
			_, err := w.Workers().Lease(w.worker, &fairleadv1.LeaseRequest{Session: "s", Operations: []string{"none"}, Slots: 1, Wait: durationpb.New(time.Minute)})
			return err
		})
		synctest.Wait()
		release := w.log.hold()
		w.log.next(fate{dropped: true, err: errDropped})
		submit := func() error {
			_, err := w.Jobs().Submit(w.acme, &fairleadv1.SubmitRequest{Job: &fairleadv1.JobSpec{Operation: "op"}})
			return err
		}
		first := later(submit)
		synctest.Wait()
		second := later(submit) // in the inbox: it never was in the entry
		synctest.Wait()
		release()
		refused(t, "the entry's", <-first, connect.CodeUnavailable, "NOT_APPLIED", "")
		refused(t, "the poll", <-poll, connect.CodeUnavailable, "NOT_APPLIED", "")
		if err := <-second; err != nil {
			t.Errorf("a call that came after: %v", err)
		}
		w.leaseOne(w.worker, "s", "op")
	})
}

// When the state refuses what was sealed on it, the calls' outcome is unknown, in no other call's words, and a new leader goes on from the
// state.
func TestStateThatRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		id := w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op"})
		parsed, err := cell.ParseJobID("id", id)
		if err != nil {
			t.Fatal(err)
		}
		// Behind the leader's back the job ends: the grant that it seals next is one that the state refuses.
		w.log.index++
		w.mu.Lock()
		w.state.Apply(w.log.index, &engine.Entry{
			Time: cell.InstantOf(time.Now()), Facts: []engine.Fact{&engine.CancelFact{Tenant: "acme", ID: parsed}},
		})
		w.mu.Unlock()
		other := later(func() error {
			_, err := w.Workers().Lease(w.worker, &fairleadv1.LeaseRequest{Session: "t", Operations: []string{"none"}, Slots: 1, Wait: durationpb.New(time.Minute)})
			return err
		})
		synctest.Wait()
		if got := w.lease(w.worker, &fairleadv1.LeaseRequest{Session: "s", Operations: []string{"op"}, Slots: 1}); len(got) != 0 {
			t.Errorf("leased %v", got)
		}
		refused(t, "another worker's poll", <-other, connect.CodeUnavailable, "NOT_APPLIED", "")
		w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op"})
		w.leaseOne(w.worker, "s", "op")
		w.sound()
	})
}

// Close waits for the entry in flight, answers polls and waits, and refuses the rest; it may be called again.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		id := w.submit(w.acme, &fairleadv1.JobSpec{Operation: "waits"})
		poll := later(func() error {
			_, err := w.Workers().Lease(w.worker, &fairleadv1.LeaseRequest{Session: "s", Operations: []string{"none"}, Slots: 1, Wait: durationpb.New(time.Minute)})
			return err
		})
		wait := later(func() error {
			_, err := w.Jobs().WaitJob(w.acme, &fairleadv1.WaitJobRequest{JobId: id})
			return err
		})
		synctest.Wait()
		release := w.log.hold()
		submit := func() error {
			_, err := w.Jobs().Submit(w.acme, &fairleadv1.SubmitRequest{Job: &fairleadv1.JobSpec{Operation: "op"}})
			return err
		}
		inFlight := later(submit)
		synctest.Wait()
		inbox := later(submit)
		synctest.Wait()
		closed := later(func() error { w.Close(); return nil })
		synctest.Wait()
		idle(t, "Close, with an entry in flight", closed)
		idle(t, "what is in flight", inFlight)
		release()
		if err := errors.Join(<-closed, <-inFlight); err != nil {
			t.Error(err)
		}
		refused(t, "what was not in flight", <-inbox, connect.CodeUnavailable, "NOT_APPLIED", "")
		refused(t, "the poll", <-poll, connect.CodeUnavailable, "NOT_APPLIED", "")
		refused(t, "the wait", <-wait, connect.CodeUnavailable, "NOT_APPLIED", "")
		began := time.Now()
		refused(t, "a submission afterwards", submit(), connect.CodeUnavailable, "NOT_APPLIED", "")
		_, err := w.Jobs().WaitJob(w.acme, &fairleadv1.WaitJobRequest{JobId: id})
		refused(t, "a wait afterwards", err, connect.CodeUnavailable, "NOT_APPLIED", "")
		_, err = w.Jobs().GetJob(w.acme, &fairleadv1.GetJobRequest{JobId: id})
		refused(t, "a look afterwards", err, connect.CodeUnavailable, "NOT_APPLIED", "") // what is here may be old
		_, err = w.Jobs().ExplainJob(w.acme, &fairleadv1.ExplainJobRequest{JobId: id})
		refused(t, "explain afterwards", err, connect.CodeUnavailable, "NOT_APPLIED", "")
		_, err = w.Status().GetStatus(t.Context(), &fairleadv1.GetStatusRequest{})
		refused(t, "status afterwards", err, connect.CodeUnavailable, "NOT_APPLIED", "")
		if w.Leading() || time.Since(began) != 0 {
			t.Errorf("leading %v, after %v", w.Leading(), time.Since(began))
		}
		w.Close()
	})
}

// A cell that closes over an entry whose fate nobody knows does not claim that nothing was done.
func TestCloseOverALostEntry(t *testing.T) {
	for reason, is := range map[string]fate{
		"OUTCOME_UNKNOWN": {dropped: true, err: errUnclear}, "NOT_APPLIED": {dropped: true, err: errDropped},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := open(t, nil)
			release := w.log.hold()
			w.log.next(is)
			submit := func() error {
				_, err := w.Jobs().Submit(w.acme, &fairleadv1.SubmitRequest{Job: &fairleadv1.JobSpec{Operation: "op"}})
				return err
			}
			inFlight := later(submit)
			synctest.Wait()
			inbox := later(submit)
			synctest.Wait()
			closed := later(func() error { w.Close(); return nil })
			synctest.Wait()
			release()
			refused(t, "in flight", <-inFlight, connect.CodeUnavailable, reason, "")
			refused(t, "in the inbox", <-inbox, connect.CodeUnavailable, "NOT_APPLIED", "")
			if err := <-closed; err != nil {
				t.Error(err)
			}
		})
	}
}

// Before it leads a cell has a state to read and serves nothing that needs the log.
func TestBeforeLead(t *testing.T) {
	cfg := DefaultConfig("cell-1")
	cfg.Caller, cfg.Logger = callerFrom, slog.New(slog.DiscardHandler)
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Status().GetStatus(t.Context(), &fairleadv1.GetStatusRequest{})
	refused(t, "status", err, connect.CodeUnavailable, "NOT_APPLIED", "")
	if s.Leading() {
		t.Error("it leads")
	}
	s.Close()
	for name, c := range map[string]struct {
		change func(*Config)
		word   string
	}{
		"no caller":  {func(c *Config) { c.Caller = nil }, "caller"},
		"no name":    {func(c *Config) { c.Cell = "" }, "cell"},
		"bad limits": {func(c *Config) { c.Admit.PayloadBytesMax = 2 << 20 }, "payload_bytes_max"},
	} {
		bad := cfg
		c.change(&bad)
		if _, err := New(bad); err == nil || !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A snapshot is of the moment it was marked, whatever happens while it is written; what is restored from it is that state, and a cell that
// leads it serves on.
func TestSnapshotWhileServing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		const n = 600 // several pieces
		var ids []string
		for i := range n {
			ids = append(ids, w.submit(w.acme, &fairleadv1.JobSpec{
				Operation: "op", IdempotencyKey: fmt.Sprint("k", i), Payload: document(`"` + strings.Repeat("x", 900) + `"`),
			}))
		}
		l := w.leaseOne(w.worker, "s", "op")
		marked := w.hash()
		snapshot, err := w.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Snapshot(); err == nil {
			t.Error("two snapshots at once")
		}
		// Between its pieces the cell goes on, and changes what is not written yet.
		var out bytes.Buffer
		writes := 0
		written, err := snapshot.WriteTo(writerFunc(func(p []byte) (int, error) {
			writes++
			if _, err := w.Jobs().CancelJob(w.acme, &fairleadv1.CancelJobRequest{JobId: ids[n-writes]}); err != nil {
				t.Error(err)
			}
			w.submit(w.globex, &fairleadv1.JobSpec{Operation: "op"})
			return out.Write(p)
		}))
		if err != nil || written != int64(out.Len()) || writes < 2 {
			t.Fatalf("%d bytes of %d in %d pieces, %v", written, out.Len(), writes, err)
		}
		snapshot.Release()
		if w.hash() == marked {
			t.Error("nothing changed meanwhile")
		}

		again := w.restored(bytes.NewReader(out.Bytes()))
		if got := again.hash(); got != marked {
			t.Errorf("restored another state: %x, want %x", got, marked)
		}
		again.wantState(again.acme, ids[n-1], engine.Ready)
		resp := again.report(again.worker, &fairleadv1.ReportRequest{Session: "s", Outcomes: []*fairleadv1.Outcome{success(l)}})
		if resp.GetResults()[0].GetRejection() != nil {
			t.Errorf("the lease did not survive: %v", resp)
		}
		again.sound()

		// A snapshot that is cut off, or was given up, is none.
		if _, err := w.Snapshot(); err != nil {
			t.Errorf("after one was written: %v", err)
		}
	})
}

// restored is another cell of the same configuration on a snapshot.
func (w *world) restored(snapshot *bytes.Reader) *world {
	w.t.Helper()
	s, err := New(w.cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := s.Restore(snapshot); err != nil {
		w.t.Fatal(err)
	}
	again := &world{Server: s, t: w.t, log: newFakeLog(s.Apply), acme: w.acme, globex: w.globex, worker: w.worker}
	again.log.index = 1_000_000 // past whatever the snapshot holds
	if err := s.Lead(again.log); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		s.Close()
		again.log.close()
	})
	return again
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// A snapshot whose writer fails says so, one that is given up makes room for the next, and damage is refused.
func TestSnapshotFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op"})
		full := errors.New("no room")
		for range 2 {
			snapshot, err := w.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := snapshot.WriteTo(writerFunc(func([]byte) (int, error) { return 0, full })); !errors.Is(err, full) {
				t.Errorf("%v", err)
			}
			snapshot.Release()
		}
		snapshot, err := w.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		defer snapshot.Release()
		var out bytes.Buffer
		if _, err := snapshot.WriteTo(&out); err != nil {
			t.Fatal(err)
		}
		before := w.hash()
		for cut := range out.Len() {
			s, err := New(w.cfg)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Restore(bytes.NewReader(out.Bytes()[:cut])); !errors.Is(err, engine.ErrSnapshot) {
				t.Fatalf("cut at %d: %v", cut, err)
			}
		}
		if w.hash() != before {
			t.Error("a snapshot changed the state")
		}
	})
}

// Bytes that this version does not understand stop the process: going on would be another history.
func TestApplyGarbage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		defer func() {
			if p := recover(); p == nil || !strings.Contains(fmt.Sprint(p), "entry 99") {
				t.Errorf("it went on: %v", p)
			}
		}()
		w.Apply(99, []byte("garbage"))
	})
}

// With the disk nearly full no new work is taken, what lets work end is, and room is noticed when it comes back.
func TestDiskNearlyFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var free atomic.Int64
		var fail atomic.Bool
		free.Store(1 << 40)
		w := open(t, func(c *Config) {
			c.DiskFree = func() (int64, error) {
				if fail.Load() {
					return 0, errors.New("no such file system")
				}
				return free.Load(), nil
			}
		})
		look := func() {
			time.Sleep(2 * diskInterval)
			synctest.Wait()
		}
		w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op"})
		l := w.leaseOne(w.worker, "s", "op")
		ready := w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op"})
		cancelled := w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op"})

		free.Store(diskFreeBytesMin - 1)
		look()
		fail.Store(true) // who cannot tell changes nothing
		look()
		_, single := w.Jobs().Submit(w.acme, &fairleadv1.SubmitRequest{Job: &fairleadv1.JobSpec{Operation: "op"}})
		_, batch := w.Jobs().SubmitBatch(w.acme, &fairleadv1.SubmitBatchRequest{Jobs: []*fairleadv1.JobSpec{{Operation: "op"}}})
		for name, err := range map[string]error{"submit": single, "batch": batch} {
			r := refused(t, name, err, connect.CodeResourceExhausted, "DISK_FREE_BYTES_MIN", "")
			if r.GetLimit() != "disk_free_bytes_min" || r.GetScope() != "cell" || r.GetBound() != diskFreeBytesMin || r.GetValue() != diskFreeBytesMin-1 ||
				r.GetRetryAfter().AsDuration() <= 0 {
				t.Errorf("%s: %v", name, r)
			}
		}
		if _, err := w.Jobs().CancelJob(w.acme, &fairleadv1.CancelJobRequest{JobId: cancelled}); err != nil {
			t.Errorf("cancel: %v", err)
		}
		_, err := w.Jobs().RetryJob(w.acme, &fairleadv1.RetryJobRequest{JobId: cancelled})
		refused(t, "retry", err, connect.CodeResourceExhausted, "DISK_FREE_BYTES_MIN", "")
		resp := w.report(w.worker, &fairleadv1.ReportRequest{Session: "s", MaxJobs: 1, Outcomes: []*fairleadv1.Outcome{success(l)}})
		if resp.GetResults()[0].GetRejection() != nil || len(resp.GetLeases()) != 1 || resp.GetLeases()[0].GetJobId() != ready {
			t.Errorf("report: %v", resp)
		}
		fail.Store(false)
		free.Store(diskFreeBytesMin)
		look()
		w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op"})
	})
}

// A backlog at its bound is the lane's or the cell's limit, by its name, with when to try again.
func TestBacklogLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		if err := w.Configure(t.Context(), nil, []cell.TenantPolicy{{Tenant: "acme", Weight: 1000, BacklogJobsMax: 2, Epoch: 1}}); err != nil {
			t.Fatal(err)
		}
		resp, err := w.Jobs().SubmitBatch(w.acme, &fairleadv1.SubmitBatchRequest{Jobs: []*fairleadv1.JobSpec{{Operation: "op"}, {Operation: "op"}, {Operation: "op"}}})
		if err != nil {
			t.Fatal(err)
		}
		r := resp.GetResults()[2].GetRejection()
		if r.GetCode() != "resource_exhausted" || r.GetLimit() != "backlog_jobs_max" || r.GetScope() != "lane" || r.GetValue() != 3 || r.GetBound() != 2 ||
			r.GetReason() != "BACKLOG_JOBS_MAX" || r.GetRetryAfter().AsDuration() <= 0 || resp.GetResults()[1].GetRejection() != nil {
			t.Errorf("%v", resp)
		}
		w.submit(w.globex, &fairleadv1.JobSpec{Operation: "op"})
	})
}

// What a caller gave up goes on: its outcome is unknown to the caller, and it happens once.
func TestCallerGoneOutcomeUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		release := w.log.hold()
		ctx, cancel := context.WithTimeout(w.acme, time.Second)
		defer cancel()
		spec := &fairleadv1.JobSpec{Operation: "op", IdempotencyKey: "k"}
		_, err := w.Jobs().Submit(ctx, &fairleadv1.SubmitRequest{Job: spec})
		refused(t, "the caller's deadline", err, connect.CodeDeadlineExceeded, "OUTCOME_UNKNOWN", "")
		release()
		again, err := w.Jobs().Submit(w.acme, &fairleadv1.SubmitRequest{Job: spec})
		if err != nil || !again.GetDuplicate() {
			t.Errorf("%v, %v", again, err)
		}
	})
}
