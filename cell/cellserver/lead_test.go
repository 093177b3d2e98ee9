package cellserver

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// A replica leads, follows and leads again: what was parked is sent on its way, nothing is lost, and a live lease gets a full grace.
func TestLeadFollowLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		id := w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op"})
		lease := func() (*fairleadv1.LeaseResponse, error) {
			return w.Workers().Lease(w.worker, &fairleadv1.LeaseRequest{
				Session: "s", Operations: []string{"op"}, Slots: 1, Wait: durationpb.New(0), LeaseDuration: durationpb.New(10 * time.Second),
			})
		}
		held, err := lease()
		if err != nil || len(held.GetLeases()) != 1 {
			t.Fatalf("%v, %v", held, err)
		}
		wait := later(func() error {
			_, err := w.Jobs().WaitJob(w.acme, &fairleadv1.WaitJobRequest{JobId: id})
			return err
		})
		poll := later(func() error {
			_, err := w.Workers().Lease(w.worker, &fairleadv1.LeaseRequest{Operations: []string{"none"}, Slots: 1, Wait: durationpb.New(time.Minute)})
			return err
		})
		synctest.Wait()
		w.Follow()
		w.Follow() // it does already
		refused(t, "the wait", <-wait, connect.CodeUnavailable, "NOT_APPLIED", "")
		refused(t, "the poll", <-poll, connect.CodeUnavailable, "NOT_APPLIED", "")
		_, err = w.Jobs().Submit(w.acme, &fairleadv1.SubmitRequest{Job: &fairleadv1.JobSpec{Operation: "op"}})
		refused(t, "a submission to a follower", err, connect.CodeUnavailable, "NOT_APPLIED", "")
		var ce *connect.Error
		if !errors.As(err, &ce) || ce.Meta().Get(headerNotLeader) == "" {
			t.Errorf("a gateway is not told to ask another: %v", ce.Meta())
		}
		if w.Leading() {
			t.Error("it leads still")
		}
		time.Sleep(9 * time.Second) // most of the lease passes while nobody leads
		if err := w.Lead(w.log); err != nil {
			t.Fatal(err)
		}
		time.Sleep(9 * time.Second) // the lease would have expired, but for the grace
		report, err := w.Workers().Report(w.worker, &fairleadv1.ReportRequest{
			Session: "s", Outcomes: []*fairleadv1.Outcome{succeeded(held.GetLeases()[0], "1")},
		})
		if err != nil || report.GetResults()[0].GetRejection() != nil {
			t.Fatalf("the outcome of a lease from before: %v, %v", report, err)
		}
		w.wantState(w.acme, id, engine.Succeeded)
		w.Close()
		if err := w.Lead(w.log); !errors.Is(err, ErrStopping) {
			t.Errorf("leading after the end: %v", err)
		}
	})
}

// A leader that has been deposed without knowing it gives no answer that may be old, and no refusal either.
func TestDeposedLeaderSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		id := w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op", IdempotencyKey: "k"})
		const unknown = "job_00000000-0000-7000-8000-000000000000"
		w.log.depose(errors.New("another leads"))
		reads := map[string]func() error{
			"get":         func() error { _, err := w.Jobs().GetJob(w.acme, &fairleadv1.GetJobRequest{JobId: id}); return err },
			"get unknown": func() error { _, err := w.Jobs().GetJob(w.acme, &fairleadv1.GetJobRequest{JobId: unknown}); return err },
			"list":        func() error { _, err := w.Jobs().ListJobs(w.acme, &fairleadv1.ListJobsRequest{}); return err },
			"explain": func() error {
				_, err := w.Jobs().ExplainJob(w.acme, &fairleadv1.ExplainJobRequest{JobId: id})
				return err
			},
			"wait": func() error {
				_, err := w.Jobs().WaitJob(w.acme, &fairleadv1.WaitJobRequest{JobId: id, Timeout: durationpb.New(time.Second)})
				return err
			},
			"measure": func() error {
				_, err := w.Tenancy().MeasureDemand(t.Context(), &fairleadv1.MeasureDemandRequest{})
				return err
			},
		}
		for name, read := range reads {
			refused(t, name, read(), connect.CodeUnavailable, "NOT_APPLIED", "")
		}
		changes := map[string]func() error{
			"cancel unknown": func() error {
				_, err := w.Jobs().CancelJob(w.acme, &fairleadv1.CancelJobRequest{JobId: unknown})
				return err
			},
			"a key that is taken": func() error {
				_, err := w.Jobs().Submit(w.acme, &fairleadv1.SubmitRequest{Job: &fairleadv1.JobSpec{Operation: "other", IdempotencyKey: "k"}})
				return err
			},
			"a key that is repeated": func() error {
				_, err := w.Jobs().Submit(w.acme, &fairleadv1.SubmitRequest{Job: &fairleadv1.JobSpec{Operation: "op", IdempotencyKey: "k"}})
				return err
			},
		}
		for name, change := range changes {
			refused(t, name, change(), connect.CodeUnavailable, "OUTCOME_UNKNOWN", "")
		}
		w.log.depose(nil)
		w.wantState(w.acme, id, engine.Ready)
	})
}

// A replica whose clock is far behind what the log has seen does not lead.
func TestClockBehindTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op"})
		w.Follow()
		reach := func(index uint64, at cell.Instant) { w.Apply(index, engine.AppendEntry(nil, &engine.Entry{Time: at})) }
		reach(1000, w.now().Add(ClockSkewMax))
		if err := w.Lead(w.log); err != nil {
			t.Errorf("a clock that is as far behind as it may be: %v", err)
		}
		w.Follow()
		reach(1001, w.now().Add(ClockSkewMax+time.Millisecond))
		if err := w.Lead(w.log); !errors.Is(err, ErrClock) {
			t.Errorf("a clock that is further behind: %v", err)
		}
	})
}

// Control configures, drains and measures.
func TestTenancy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		h := w.Tenancy()
		if _, err := h.Configure(t.Context(), &fairleadv1.ConfigureRequest{
			Organizations: []*fairleadv1.OrganizationPromise{{Organization: "org", Weight: 1000, Epoch: 1}},
			Tenants: []*fairleadv1.TenantPromise{
				{Tenant: "zeta", Weight: 1000, Epoch: 1}, {Tenant: "beta", Organization: "org", Weight: 1000, RunningMax: 3, Epoch: 1},
			},
		}); err != nil {
			t.Fatal(err)
		}
		w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op"})
		var names []string
		for after, more := "", true; more; {
			page, err := h.MeasureDemand(t.Context(), &fairleadv1.MeasureDemandRequest{PageSize: 1, After: after})
			if err != nil || len(page.GetTenants()) != 1 {
				t.Fatalf("%v, %v", page, err)
			}
			use := page.GetTenants()[0]
			names = append(names, use.GetTenant())
			if use.GetTenant() == "acme" && (use.GetJobs() != 1 || use.GetBytes() == 0) {
				t.Errorf("acme holds %v", use)
			}
			after, more = use.GetTenant(), page.GetMore()
		}
		if len(names) < 3 || names[0] != "acme" || names[len(names)-1] != "zeta" {
			t.Errorf("measured %v", names)
		}
		x, err := h.ExplainTenancy(t.Context(), &fairleadv1.ExplainTenancyRequest{Tenant: "beta"})
		if err != nil || len(x.GetExplanation()) == 0 {
			t.Errorf("%v, %v", x, err)
		}

		submit := func() error {
			_, err := w.Jobs().Submit(w.acme, &fairleadv1.SubmitRequest{Job: &fairleadv1.JobSpec{Operation: "op"}})
			return err
		}
		drain := func(on bool) {
			t.Helper()
			if _, err := h.Configure(t.Context(), &fairleadv1.ConfigureRequest{Draining: &on}); err != nil {
				t.Fatal(err)
			}
		}
		drain(true)
		refused(t, "a submission to a draining cell", submit(), connect.CodeUnavailable, "CELL_DRAINING", "")
		drain(false)
		if err := submit(); err != nil {
			t.Error(err)
		}
		_, err = h.Configure(t.Context(), &fairleadv1.ConfigureRequest{Tenants: make([]*fairleadv1.TenantPromise, promisesMax+1)})
		refused(t, "too many at once", err, connect.CodeInvalidArgument, "BAD_FIELD", "tenants")
		_, err = h.MeasureDemand(t.Context(), &fairleadv1.MeasureDemandRequest{PageSize: measurePageMax + 1})
		refused(t, "a page that is too large", err, connect.CodeInvalidArgument, "BAD_FIELD", "page_size")
		_, err = h.Configure(t.Context(), &fairleadv1.ConfigureRequest{Tenants: []*fairleadv1.TenantPromise{{Tenant: "beta", Organization: "none", Weight: 1000, Epoch: 2}}})
		refused(t, "a tenant whose organization is not known", err, connect.CodeInvalidArgument, "BAD_FIELD", "organization")
	})
}
