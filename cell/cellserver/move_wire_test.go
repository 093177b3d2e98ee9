package cellserver

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/rejection"
)

// told is what an answer's headers say of lanes, whatever the answer is.
type told struct {
	lane, tenants string
	err           error
}

// tell makes a call as a gateway that knows epochs, and returns what it is told.
func tell(ctx context.Context, epochs string, call func(context.Context) error) told {
	ctx, info := connect.NewClientContext(ctx)
	if epochs != "" {
		info.RequestHeader().Set(HeaderEpochs, epochs)
	}
	err := call(ctx)
	return told{lane: info.ResponseHeader().Get(HeaderLane), tenants: info.ResponseHeader().Get(HeaderLaneTenants), err: err}
}

// What a gateway knows of a lane's epoch decides what it is told, in each protocol in the headers of the answer, whether that is an error or not.
func TestMoveOnTheWire(t *testing.T) {
	for name, opts := range protocols() {
		t.Run(name, func(t *testing.T) {
			w := serve(t)
			p := &pair{t: t, cells: [2]*world{w.world, openEmpty(t, nil)}, epoch: [2]uint64{4, 4}, move: &fairleadv1.Move{Migration: "m1", Attempt: 1}}
			jobs, workers := w.jobs("acme", opts...), w.workers("worker", opts...)
			id := w.submit(w.acme, job(batch, "first"))
			lease := w.leaseOne(w.worker, "w1", "op")
			submit := func(c fairleadv1.Class, key string) func(context.Context) error {
				return func(ctx context.Context) error {
					_, err := jobs.Submit(ctx, &fairleadv1.SubmitRequest{Job: job(c, key)})
					return err
				}
			}
			both := func(ctx context.Context) error {
				resp, err := jobs.SubmitBatch(ctx, &fairleadv1.SubmitBatchRequest{Jobs: []*fairleadv1.JobSpec{job(interactive, "i"), job(batch, "b")}})
				if err == nil && resp.GetResults()[0].GetRejection() != nil {
					err = fmt.Errorf("the lane that is here: %v", resp)
				}
				return err
			}
			list := func(class fairleadv1.Class) func(context.Context) error {
				return func(ctx context.Context) error {
					_, err := jobs.ListJobs(ctx, &fairleadv1.ListJobsRequest{Class: class})
					return err
				}
			}
			get := func(id string) func(context.Context) error {
				return func(ctx context.Context) error {
					_, err := jobs.GetJob(ctx, &fairleadv1.GetJobRequest{JobId: id})
					return err
				}
			}
			report := func(ctx context.Context) error {
				resp, err := workers.Report(ctx, &fairleadv1.ReportRequest{
					Session: "w1", Extensions: []*fairleadv1.Extension{{JobId: lease.GetJobId(), Token: lease.GetToken()}},
				})
				if err == nil && len(resp.GetCancels()) > 0 {
					err = fmt.Errorf("the lease is taken back: %v", resp)
				}
				return err
			}
			outcome := func(ctx context.Context) error {
				resp, err := workers.Report(ctx, &fairleadv1.ReportRequest{Session: "w1", Outcomes: []*fairleadv1.Outcome{succeeded(lease, "1")}})
				if err == nil && resp.GetResults()[0].GetRejection() == nil {
					err = fmt.Errorf("it was taken: %v", resp)
				}
				return err
			}
			poll := func(ctx context.Context) error {
				_, err := workers.Lease(ctx, &fairleadv1.LeaseRequest{
					Session: "w1", Operations: []string{"op"}, Slots: 1, Sequence: 7, Wait: durationpb.New(0),
					Held: []*fairleadv1.LeaseRef{{JobId: lease.GetJobId(), Token: lease.GetToken()}},
				})
				return err
			}
			want := func(what, epochs string, call func(context.Context) error, reason, lane, tenants string) {
				t.Helper()
				got := tell(t.Context(), epochs, call)
				if r := rejection.From(got.err); r.GetReason() != reason || (got.err == nil) != (reason == "") || got.lane != lane || got.tenants != tenants {
					t.Errorf("%s: %v with %v, told %q of %q; want %s, told %q of %q", what, got.err, r, got.lane, got.tenants, reason, lane, tenants)
				}
			}
			want("an epoch of a lane that never moved", "9,9", submit(interactive, "never"), "", "", "")
			want("an epoch that is none", "9", submit(interactive, "none"), "BAD_FIELD", "", "")
			want("a job that is nowhere", "", get(nowhere), "NOT_FOUND", "", "")
			p.stage(batch)
			p.copy(batch, 0)

			p.fence(batch) // at epoch 5
			want("a submission to the fence", "4,4", submit(batch, "x"), "MOVING", "moving;batch;5", "")
			want("a batch", "4,4", both, "", "moving;batch;5", "")
			want("a list", "4,4", list(0), "MOVING", "moving;batch;5", "")
			want("a list of the other class", "4,4", list(interactive), "", "", "")
			want("a job", "4,4", get(id), "MOVING", "moving;batch;5", "")
			want("a job that is nowhere", "4,4", get(nowhere), "NOT_FOUND", "", "")
			want("an outcome", "", outcome, "", "moving;batch;5", "acme")

			p.copy(batch, 0)
			p.commit(batch) // at epoch 6
			want("a submission to the old home", "4,4", submit(batch, "x"), "MOVED", "moved;batch;6", "")
			want("one that the old home is behind of", "4,7", submit(batch, "x"), "BEHIND", "behind;batch;6", "")
			want("a batch", "4,6", both, "", "moved;batch;6", "")
			want("a list", "4,6", list(0), "", "moved;batch;6", "")
			want("a list of the class", "4,6", list(batch), "MOVED", "moved;batch;6", "")
			want("a job", "4,6", get(id), "MOVED", "moved;batch;6", "")
			want("a job that is nowhere", "4,6", get(nowhere), "NOT_FOUND", "moved;any;6", "")
			want("an outcome", "", outcome, "", "moved;batch;6", "acme")
			want("an extension", "", report, "", "moved;batch;6", "acme")
			want("a poll", "", poll, "", "moved;batch;6", "acme")

			p.copy(batch, 0)
			p.fence(batch)
			p.copy(batch, 0)
			p.commit(batch) // back, at epoch 8
			want("a gateway that is late", "4,6", submit(batch, "x"), "MOVED", "moved;batch;8", "")
			want("a gateway that is ahead", "4,9", submit(batch, "z"), "", "", "")
			want("reads are of the one lane that is open", "4,6", get(id), "", "", "")
			want("a gateway that knows", "4,8", submit(batch, "x"), "", "", "")
			want("one that does not say", "", submit(batch, "y"), "", "", "")
		})
	}
}

// What a worker holds of a lane that has left goes on after the lane was wiped here; and what was forwarded to a cell that never had it is not taken back
// by that cell.
func TestLeasesThatStray(t *testing.T) {
	w := serve(t)
	p := &pair{t: t, cells: [2]*world{w.world, openEmpty(t, nil)}, epoch: [2]uint64{1, 1}, move: &fairleadv1.Move{Migration: "m1", Attempt: 1}}
	w.submit(w.acme, job(batch, "first"))
	lease := w.leaseOne(w.worker, "w1", "op")
	report := func(forwarded string, lease *fairleadv1.JobLease) (*fairleadv1.ReportResponse, connect.CallInfo) {
		t.Helper()
		ctx, info := connect.NewClientContext(t.Context())
		if forwarded != "" {
			info.RequestHeader().Set(HeaderLaneForwarded, forwarded)
		}
		resp, err := w.workers("worker").Report(ctx, &fairleadv1.ReportRequest{
			Session: "w1", Outcomes: []*fairleadv1.Outcome{failed(lease, &fairleadv1.Failure{})},
			Extensions: []*fairleadv1.Extension{{JobId: lease.GetJobId(), Token: lease.GetToken()}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return resp, info
	}
	p.stage(batch)
	p.copy(batch, 0)
	p.fence(batch)
	p.copy(batch, 0)
	p.commit(batch)
	p.leave(batch)
	resp, info := report("", lease)
	if resp.GetResults()[0].GetRejection().GetReason() != "MOVED" || len(resp.GetCancels()) > 0 {
		t.Errorf("of a job that was wiped: %v", resp)
	}
	if lane, tenants := info.ResponseHeader().Get(HeaderLane), info.ResponseHeader().Get(HeaderLaneTenants); lane != "moved;batch;3" || tenants != "acme" {
		t.Errorf("told %q of %q", lane, tenants)
	}
	foreign := &fairleadv1.JobLease{JobId: nowhere, Token: lease.GetToken()}
	for _, forwarded := range []string{"", "1"} {
		resp, info := report(forwarded, foreign)
		if resp.GetResults()[0].GetRejection().GetReason() != "NOT_FOUND" || (len(resp.GetCancels()) > 0) != (forwarded == "") {
			t.Errorf("of a job that never was, forwarded %q: %v", forwarded, resp)
		}
		if got := info.ResponseHeader().Get(HeaderLaneForwarded); got != forwarded {
			t.Errorf("forwarded %q, answered %q", forwarded, got)
		}
	}
}

// No more strays are kept than there may be, and the latest are.
func TestStraysAreBounded(t *testing.T) {
	s := newStrays()
	lane := cell.Lane{Tenant: "acme", Class: cell.ClassBatch}
	id := func(i int) (id cell.JobID) {
		binary.BigEndian.PutUint64(id[:], uint64(i)) //nolint:gosec // above 0
		return id
	}
	const all = 2*straysMax + 7
	for i := range all {
		s.add(id(i), lane)
		s.add(id(i), lane)
	}
	if len(s.of) != straysMax || len(s.order) != straysMax {
		t.Errorf("%d and %d strays", len(s.of), len(s.order))
	}
	for i := range all {
		if _, known := s.of[id(i)]; known != (i >= all-straysMax) {
			t.Fatalf("stray %d: %v", i, known)
		}
	}
}

// A tenant's own worker is sent on when the last lane of its tenant leaves, and answered when one does, both at once.
func TestOwnWorkersFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := openPair(t, nil)
		w := p.cells[0]
		own := as(t.Context(), tenantWorker("acme"))
		poll := func() <-chan error {
			return later(func() error {
				resp, err := w.Workers().Lease(own, &fairleadv1.LeaseRequest{Session: "own", Operations: []string{"op"}, Slots: 1})
				if err == nil && len(resp.GetLeases()) > 0 {
					err = fmt.Errorf("leases: %v", resp)
				}
				return err
			})
		}
		for _, c := range []fairleadv1.Class{batch, interactive} {
			p.stage(c)
			p.copy(c, 0)
			polled := poll()
			synctest.Wait()
			began := time.Now()
			p.fence(c)
			idle(t, "a poll of a lane that is fenced", polled)
			p.copy(c, 0)
			p.commit(c)
			err := <-polled
			if c == batch && err != nil {
				t.Errorf("a poll while a lane leaves: %v", err)
			} else if c == interactive {
				refused(t, "a poll while the last lane leaves", err, connect.CodeFailedPrecondition, "MOVED", "")
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("%v: the poll was answered after %v", c, took)
			}
		}
		err := <-poll()
		refused(t, "a poll where no lane is", err, connect.CodeFailedPrecondition, "MOVED", "")
		if got := errorHeader(err); got != "moved;any;3" {
			t.Errorf("told %q", got)
		}
		if len(w.own) != 0 {
			t.Errorf("%d polls are left", len(w.own))
		}
	})
}
