package cellserver

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// promise tells the cell of one tenant's policy.
func (w *world) promise(p cell.TenantPolicy) {
	w.t.Helper()
	p.Weight, p.Epoch = cell.WeightDefault, 2
	if err := w.Configure(w.t.Context(), nil, []cell.TenantPolicy{p}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) explain(id string) *fairleadv1.ExplainJobResponse {
	w.t.Helper()
	x, err := w.Jobs().ExplainJob(w.acme, &fairleadv1.ExplainJobRequest{JobId: id})
	if err != nil {
		w.t.Fatal(err)
	}
	return x
}

// What a job says of its keys, its resources and being preemptible is read back, and what its worker says that it used is added up.
func TestKeysAndResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		id := w.submit(w.acme, &fairleadv1.JobSpec{
			Operation: "op", Preemptible: true, Resources: map[string]float64{"cpu_ms": 0.6, "tokens": 12},
			ConcurrencyKeys: []*fairleadv1.ConcurrencyKey{{Key: "bank", Max: 3}, {Key: "customer-7", Max: 1}},
		})
		for range 2 {
			l := w.leaseOne(w.worker, "s", "op")
			o := failed(l, &fairleadv1.Failure{Error: "no"})
			o.Resources = map[string]float64{"cpu_ms": 1.5, "network_bytes": 100}
			if r := w.report(w.worker, &fairleadv1.ReportRequest{Session: "s", Outcomes: []*fairleadv1.Outcome{o}}).GetResults()[0]; r.GetRejection() != nil {
				t.Fatal(r)
			}
			time.Sleep(time.Minute) // the back-off
		}
		j := w.job(w.acme, id)
		keys := j.GetConcurrencyKeys()
		if !j.GetPreemptible() || len(keys) != 2 || keys[0].GetKey() != "bank" || keys[0].GetMax() != 3 || keys[1].GetMax() != 1 ||
			!maps.Equal(j.GetResources(), map[string]float64{"cpu_ms": 0.6, "tokens": 12}) ||
			!maps.Equal(j.GetUsedResources(), map[string]float64{"cpu_ms": 3, "network_bytes": 200}) {
			t.Errorf("got %v", j)
		}
		bare := w.job(w.acme, w.submit(w.acme, &fairleadv1.JobSpec{Operation: "bare"}))
		if bare.GetConcurrencyKeys() != nil || bare.GetResources() != nil || bare.GetUsedResources() != nil || bare.GetPreemptible() {
			t.Errorf("a job that says nothing: %v", bare)
		}
	})
}

func TestKeysAndResourcesRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		for field, job := range map[string]*fairleadv1.JobSpec{
			"job.concurrency_keys[0].key": {ConcurrencyKeys: []*fairleadv1.ConcurrencyKey{{Key: "no spaces", Max: 1}}},
			"job.concurrency_keys[0].max": {ConcurrencyKeys: []*fairleadv1.ConcurrencyKey{{Key: "k"}}},
			"job.resources.tokens":        {Resources: map[string]float64{"tokens": -1}},
			"job.resources":               {Resources: map[string]float64{"patience": 1}},
		} {
			job.Operation = "op"
			_, err := w.Jobs().Submit(w.acme, &fairleadv1.SubmitRequest{Job: job})
			refused(t, field, err, connect.CodeInvalidArgument, "BAD_FIELD", field)
		}
		id := w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op"})
		l := w.leaseOne(w.worker, "s", "op")
		o := succeeded(l, "1")
		o.Resources = map[string]float64{"tokens": -1}
		r := w.report(w.worker, &fairleadv1.ReportRequest{Session: "s", Outcomes: []*fairleadv1.Outcome{o}}).GetResults()[0].GetRejection()
		if r.GetField() != "outcomes[0].resources.tokens" || r.GetReason() != "BAD_FIELD" {
			t.Errorf("got %v", r)
		}
		w.wantState(w.acme, id, engine.Leased)
	})
}

// Each bound that a job waits for is named, with what it stands at.
func TestExplainBounds(t *testing.T) {
	for name, c := range map[string]struct {
		policy cell.TenantPolicy
		job    *fairleadv1.JobSpec
		want   *fairleadv1.ExplainJobResponse
		next   time.Duration
	}{
		"running cap": {
			policy: cell.TenantPolicy{RunningMax: 1},
			want:   &fairleadv1.ExplainJobResponse{Reason: fairleadv1.WaitReason_WAIT_REASON_RUNNING_CAP, Limit: "running_max", Value: 1, Bound: 1},
		},
		"concurrency key": {
			job: &fairleadv1.JobSpec{ConcurrencyKeys: []*fairleadv1.ConcurrencyKey{{Key: "k", Max: 1}}},
			want: &fairleadv1.ExplainJobResponse{
				Reason: fairleadv1.WaitReason_WAIT_REASON_CONCURRENCY_KEY, Limit: "concurrency_keys", Value: 1, Bound: 1, Key: "k",
			},
		},
		"start rate": {
			policy: cell.TenantPolicy{Starts: cell.StartRate{Jobs: 1, Per: time.Minute}},
			want: &fairleadv1.ExplainJobResponse{
				Reason: fairleadv1.WaitReason_WAIT_REASON_START_RATE, Limit: "starts", Value: 1, Bound: 1, Period: durationpb.New(time.Minute),
			},
			next: time.Minute,
		},
		"limit": {
			policy: cell.TenantPolicy{Limit: 2_500_000},
			job:    &fairleadv1.JobSpec{Cost: 25_000_000},
			want:   &fairleadv1.ExplainJobResponse{Reason: fairleadv1.WaitReason_WAIT_REASON_LIMIT, Limit: "limit", Value: 2.5, Bound: 2.5},
			next:   9 * time.Second, // ten seconds' worth, less the second that may be made up for
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := open(t, nil)
				c.policy.Tenant = "acme"
				w.promise(c.policy)
				job := c.job
				if job == nil {
					job = &fairleadv1.JobSpec{}
				}
				job.Operation = "op"
				first := w.submit(w.acme, job)
				w.lease(w.worker, &fairleadv1.LeaseRequest{Session: "s", Operations: []string{"op"}, Slots: 4})
				w.wantState(w.acme, first, engine.Leased)
				x := w.explain(w.submit(w.acme, job))
				if x.GetReason() != c.want.GetReason() || x.GetLimit() != c.want.GetLimit() || x.GetValue() != c.want.GetValue() ||
					x.GetBound() != c.want.GetBound() || x.GetKey() != c.want.GetKey() || x.GetPeriod().AsDuration() != c.want.GetPeriod().AsDuration() {
					t.Errorf("got %v, want %v", x, c.want)
				}
				if c.next > 0 && !x.GetNextTime().AsTime().Equal(time.Now().Add(c.next)) {
					t.Errorf("it can run in %v, want in %v", time.Until(x.GetNextTime().AsTime()), c.next)
				}
				if c.next == 0 && !slices.Equal(x.GetHolders(), []string{first}) {
					t.Errorf("held by %v", x.GetHolders())
				}
			})
		})
	}
}

// What control promises is taken where it fits; what does not is refused as a fault of a field, with the numbers, and the rest counts.
func TestConfigure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, func(c *Config) { c.Leader.Sched.Bulkheads[1].Capacity = 4_000_000 })
		ctx := t.Context()
		holding := cell.OrganizationPolicy{Organization: "holding", Weight: 1000, Reservation: [2]cell.Rate{0, 3_000_000}, Epoch: 1}
		acme := cell.TenantPolicy{Tenant: "acme", Organization: "holding", Weight: 1000, Reservation: [2]cell.Rate{0, 2_000_000}, Epoch: 2}
		if err := w.Configure(ctx, []cell.OrganizationPolicy{holding}, []cell.TenantPolicy{acme}); err != nil {
			t.Fatal(err)
		}
		much := cell.TenantPolicy{Tenant: "globex", Weight: 1000, Reservation: [2]cell.Rate{0, 2_000_000}, Epoch: 2}
		fits := cell.TenantPolicy{Tenant: "new", Weight: 1000, Epoch: 1}
		err := w.Configure(ctx, nil, []cell.TenantPolicy{much, fits})
		fault, ok := errors.AsType[*cell.FieldError](err)
		if !ok || fault.Field != "reservation_batch" || !strings.Contains(fault.Error(), "5") || !strings.Contains(fault.Error(), "4") {
			t.Errorf("got %v", err)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.state.Organization("holding").Policy != holding || w.state.Tenant("acme").Policy != acme || w.state.Tenant("new") == nil ||
			w.state.Tenant("globex").Policy.Reservation != [2]cell.Rate{} {
			t.Error("what was taken is not what fits")
		}
	})
}

func TestExplainTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, func(c *Config) { c.Leader.Sched.Bulkheads[1].Capacity = 4_000_000 })
		ctx := t.Context()
		err := w.Configure(ctx, []cell.OrganizationPolicy{{Organization: "holding", Weight: 1000, Reservation: [2]cell.Rate{0, 1_000_000}, Epoch: 1}},
			[]cell.TenantPolicy{{
				Tenant: "acme", Organization: "holding", Weight: 1000, Reservation: [2]cell.Rate{0, 1_000_000}, Limit: 3_000_000, RunningMax: 2,
				Credit: cell.Credit{Max: 7_000_000, Extra: 1_000_000}, Starts: cell.StartRate{Jobs: 2, Per: time.Hour}, Epoch: 2,
			}})
		if err != nil {
			t.Fatal(err)
		}
		for range 4 {
			w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op", Class: fairleadv1.Class_CLASS_BATCH, Cost: 5_000_000})
		}
		w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op", Delay: durationpb.New(time.Hour)})
		w.lease(w.worker, &fairleadv1.LeaseRequest{Session: "s", Operations: []string{"op"}, Slots: 9})
		time.Sleep(time.Second)
		x, err := w.ExplainTenant(ctx, "acme")
		if err != nil {
			t.Fatal(err)
		}
		if x.GetCell() != "cell-1" || x.GetCostUnit() != "slot_seconds" || x.GetRunning() != 2 || x.GetCreditLeft() != 7 ||
			!x.GetTime().AsTime().Equal(time.Now()) || !x.GetNextStartTime().AsTime().Equal(time.Now().Add(time.Hour-time.Second)) ||
			x.GetTenant() != nil || x.GetOrganization() != nil || len(x.GetLanes()) != 2 {
			t.Errorf("got %v", x)
		}
		quiet, batch := x.GetLanes()[0], x.GetLanes()[1]
		if quiet.GetClass() != fairleadv1.Class_CLASS_INTERACTIVE || quiet.GetReason() != 0 || quiet.GetDelayed() != 1 || quiet.GetReservationAhead() != nil ||
			quiet.GetOldestWait() != nil {
			t.Errorf("the quiet lane: %v", quiet)
		}
		if batch.GetReady() != 2 || batch.GetLeased() != 2 || batch.GetOldestWait().AsDuration() != time.Second || batch.GetChargedCost() != 10_000_000 ||
			batch.GetReason() != fairleadv1.WaitReason_WAIT_REASON_RUNNING_CAP || batch.GetMessage() == "" || batch.GetReservationAhead() == nil ||
			batch.GetOrganizationReservationAhead() == nil {
			t.Errorf("the busy lane: %v", batch)
		}
		_, err = w.ExplainTenant(ctx, "nobody")
		refused(t, "a tenant there is not", err, connect.CodeNotFound, "NOT_FOUND", "")
	})
}

// What is held back from a class, and lent to it, is told with the class that does it.
func TestStatusOfLending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, func(c *Config) {
			for i := range c.Leader.Sched.Bulkheads {
				c.Leader.Sched.Bulkheads[i].NominalParts, c.Leader.Sched.Bulkheads[i].LendAfter = 1, 5*time.Second
			}
			c.Leader.Costing = cell.Costing{ByUnit: true, Unit: cell.ResourceTokens}
		})
		for range 9 {
			w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op", Class: fairleadv1.Class_CLASS_BATCH})
		}
		poll := later(func() error {
			w.lease(w.worker, &fairleadv1.LeaseRequest{Session: "s", Operations: []string{"op"}, Slots: 4})
			return nil
		})
		synctest.Wait()
		if err := <-poll; err != nil {
			t.Fatal(err)
		}
		status := func() (interactive, batch *fairleadv1.ClassStatus) {
			st, err := w.Status().GetStatus(t.Context(), &fairleadv1.GetStatusRequest{})
			if err != nil || st.GetCostUnit() != "tokens" {
				t.Fatal(st, err)
			}
			return st.GetClasses()[0], st.GetClasses()[1]
		}
		i, b := status()
		if i.GetHeldBack() != 2 || !i.GetHeldBackUntil().AsTime().Equal(time.Now().Add(5*time.Second)) || i.GetLent() != 0 || b.GetUsed() != 2 ||
			b.GetLimit() != 2 || b.GetHeldBack() != 0 {
			t.Errorf("at first: %v and %v", i, b)
		}
		time.Sleep(5 * time.Second)
		w.lease(w.worker, &fairleadv1.LeaseRequest{Session: "t", Operations: []string{"op"}, Slots: 2})
		if i, b = status(); i.GetHeldBack() != 0 || i.GetHeldBackUntil() != nil || b.GetLimit() != 6 || b.GetUsed() != 4 || i.GetLent() != 1 {
			t.Errorf("later: %v and %v", i, b)
		}
	})
}

// capture returns all pages of a trace.
func (w *world) capture(req *fairleadv1.CaptureTraceRequest) (records []*fairleadv1.TraceRecord, pages int) {
	w.t.Helper()
	for {
		resp, err := w.Status().CaptureTrace(w.t.Context(), req)
		if err != nil {
			w.t.Fatal(err)
		}
		pages++
		records = append(records, resp.GetRecords()...)
		if req.PageToken = resp.GetNextPageToken(); req.GetPageToken() == "" {
			return records, pages
		}
	}
}

// A trace has every tenant's jobs in the order in which they were accepted, whatever the size of its pages; and what became of each.
func TestCaptureTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		begin := time.Now()
		var tenants []cell.TenantPolicy
		for i := range 600 { // more than are looked at in one go
			tenants = append(tenants, cell.TenantPolicy{Tenant: cell.TenantID(fmt.Sprintf("t%03d", i)), Weight: 1000, Epoch: 1})
		}
		if err := w.Configure(t.Context(), nil, tenants); err != nil {
			t.Fatal(err)
		}
		var ids []string
		for i := range 300 {
			ctx := as(t.Context(), application(cell.TenantID(fmt.Sprintf("t%03d", i*7%600))))
			ids = append(ids, w.submit(ctx, &fairleadv1.JobSpec{
				Operation: "op", Class: fairleadv1.Class_CLASS_BATCH, Priority: int32(i), Preemptible: i%2 == 0, Cost: 500,
				ConcurrencyKeys: []*fairleadv1.ConcurrencyKey{{Key: "k", Max: 9}}, Deadline: nil,
			}))
			time.Sleep(10 * time.Millisecond)
		}
		for _, l := range w.lease(w.worker, &fairleadv1.LeaseRequest{Session: "s", Operations: []string{"op"}, Slots: 5})[:3] {
			o := succeeded(l, "1")
			o.RunTime = durationpb.New(20 * time.Millisecond)
			time.Sleep(30 * time.Millisecond)
			w.report(w.worker, &fairleadv1.ReportRequest{Session: "s", Outcomes: []*fairleadv1.Outcome{o}})
		}
		for _, size := range []int32{0, 1, 7, 300, 500} {
			records, pages := w.capture(&fairleadv1.CaptureTraceRequest{PageSize: size})
			var got []string
			ended, leased := 0, 0
			for i, r := range records {
				got = append(got, r.GetJobId())
				if r.GetPriority() != int32(i) || r.GetOperation() != "op" || r.GetTenant() == "" || r.GetDeclaredCost() != 500 ||
					r.GetPreemptible() != (i%2 == 0) || len(r.GetConcurrencyKeys()) != 1 || !r.GetArrival().AsTime().Equal(begin.Add(time.Duration(i)*10*time.Millisecond)) {
					t.Fatalf("record %d is %v", i, r)
				}
				switch {
				case r.GetFinish() != nil:
					ended++
					if r.GetRun().AsDuration() != 20*time.Millisecond || r.GetCost() != 20_000 || r.GetState() != fairleadv1.JobState_JOB_STATE_SUCCEEDED {
						t.Errorf("record %d is %v", i, r)
					}
				case r.GetStart() != nil:
					leased++
				}
			}
			if !slices.Equal(got, ids) || ended != 3 || leased != 2 {
				t.Errorf("in pages of %d there are %d jobs, %d ended, %d leased", size, len(got), ended, leased)
			}
			if want := map[int32]int{0: 1, 1: 300, 7: 43, 300: 1, 500: 1}[size]; pages != want {
				t.Errorf("there are %d pages of %d, want %d", pages, size, want)
			}
		}
		some, _ := w.capture(&fairleadv1.CaptureTraceRequest{
			From: timeTo(cell.InstantOf(begin.Add(time.Second))), To: timeTo(cell.InstantOf(begin.Add(2 * time.Second))), PageSize: 30,
		})
		if len(some) != 100 || some[0].GetJobId() != ids[100] || some[99].GetJobId() != ids[199] {
			t.Errorf("of one second there are %d", len(some))
		}
	})
}

// What is forgotten between two pages is passed by, and what comes meanwhile is there.
func TestCaptureTraceWhileJobsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		var ids []string
		for i := range 6 {
			ids = append(ids, w.submit(w.acme, &fairleadv1.JobSpec{
				Operation: "op", Deadline: timeTo(w.now().Add(time.Minute)), Retention: durationpb.New(time.Duration(1+i) * time.Hour),
			}))
		}
		first, err := w.Status().CaptureTrace(t.Context(), &fairleadv1.CaptureTraceRequest{PageSize: 2})
		if err != nil || len(first.GetRecords()) != 2 {
			t.Fatal(first, err)
		}
		time.Sleep(4*time.Hour + 2*time.Minute) // the first four have expired, and are forgotten
		ids = append(ids, w.submit(w.globex, &fairleadv1.JobSpec{Operation: "op"}))
		rest, _ := w.capture(&fairleadv1.CaptureTraceRequest{PageSize: 2, PageToken: first.GetNextPageToken()})
		var got []string
		for _, r := range rest {
			got = append(got, r.GetJobId())
		}
		if !slices.Equal(got, ids[4:]) || rest[0].GetRun() != nil || rest[0].GetStart() != nil || rest[0].GetFinish() == nil {
			t.Errorf("got %v, want %v", rest, ids[4:])
		}
	})
}

func TestCaptureTraceRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		now := w.now()
		for field, req := range map[string]*fairleadv1.CaptureTraceRequest{
			"page_size":  {PageSize: 501},
			"page_token": {PageToken: "?"},
			"to":         {From: timeTo(now), To: timeTo(now)},
		} {
			_, err := w.Status().CaptureTrace(t.Context(), req)
			refused(t, field, err, connect.CodeInvalidArgument, "BAD_FIELD", field)
		}
		w.Close()
		_, err := w.Status().CaptureTrace(t.Context(), &fairleadv1.CaptureTraceRequest{})
		refused(t, "after the end", err, connect.CodeUnavailable, "NOT_APPLIED", "")
		_, err = w.ExplainTenant(t.Context(), "acme")
		refused(t, "after the end", err, connect.CodeUnavailable, "NOT_APPLIED", "")
	})
}

// Whoever explains, looks and captures does so beside those who submit and work.
func TestReadersBesideWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		w.promise(cell.TenantPolicy{Tenant: "acme", RunningMax: 2, Limit: 3_000_000})
		first := w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op", Delay: durationpb.New(time.Hour)})
		calls := []func() error{
			func() error {
				_, err := w.Jobs().Submit(w.acme, &fairleadv1.SubmitRequest{Job: &fairleadv1.JobSpec{
					Operation: "op", ConcurrencyKeys: []*fairleadv1.ConcurrencyKey{{Key: "k", Max: 1}},
				}})
				return err
			},
			func() error { // a session of its own
				resp, err := w.Workers().Lease(w.worker, &fairleadv1.LeaseRequest{Operations: []string{"op"}, Slots: 4, Wait: durationpb.New(0)})
				for _, l := range resp.GetLeases() {
					_, failed := w.Workers().Report(w.worker, &fairleadv1.ReportRequest{
						Session: resp.GetSession(), Outcomes: []*fairleadv1.Outcome{succeeded(l, "1")},
					})
					err = errors.Join(err, failed)
				}
				return err
			},
			func() error {
				_, err := w.Jobs().ExplainJob(w.acme, &fairleadv1.ExplainJobRequest{JobId: first})
				return err
			},
			func() error { _, err := w.ExplainTenant(t.Context(), "acme"); return err },
			func() error { _, err := w.Status().GetStatus(t.Context(), &fairleadv1.GetStatusRequest{}); return err },
			func() error {
				_, err := w.Status().CaptureTrace(t.Context(), &fairleadv1.CaptureTraceRequest{})
				return err
			},
		}
		var done []<-chan error
		for _, call := range calls {
			for range 2 {
				done = append(done, later(func() error {
					for range 40 {
						if err := call(); err != nil {
							return err
						}
					}
					return nil
				}))
			}
		}
		for _, d := range done {
			if err := <-d; err != nil {
				t.Error(err)
			}
		}
	})
}
