package cellserver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// A lease tells the worker all that it needs, and each outcome ends as the API says.
func TestLeaseAndReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		id := w.submit(w.acme, &fairleadv1.JobSpec{
			Operation: "op", Class: fairleadv1.Class_CLASS_BATCH, Payload: document("[1]"), Labels: map[string]string{"a": "b"}, Traceparent: "00-1",
			ExecutionTimeout: durationpb.New(time.Minute),
		})
		time.Sleep(time.Second)
		l := w.leaseOne(w.worker, "s", "op", "other")
		if l.GetJobId() != id || l.GetTenant() != "acme" || l.GetOperation() != "op" || l.GetClass() != fairleadv1.Class_CLASS_BATCH ||
			l.GetPayload().GetJson() != "[1]" || l.GetAttempt() != 1 || l.GetLabels()["a"] != "b" || l.GetTraceparent() != "00-1" ||
			l.GetExecutionTimeout().AsDuration() != time.Minute || l.GetLeaseDuration().AsDuration() != 30*time.Second || l.GetToken() == "" ||
			!l.GetCreateTime().AsTime().Equal(time.Now().Add(-time.Second)) {
			t.Errorf("%v", l)
		}
		j := w.wantState(w.acme, id, engine.Leased)
		if j.GetWorker() != "s" || j.GetAttempt() != 1 || !j.GetLeaseTime().AsTime().Equal(time.Now()) {
			t.Errorf("%v", j)
		}
		time.Sleep(time.Second)
		o := succeeded(l, `{"done": true}`)
		o.RunTime = durationpb.New(time.Second)
		resp := w.report(w.worker, &fairleadv1.ReportRequest{Session: "s", Outcomes: []*fairleadv1.Outcome{o}})
		if len(resp.GetResults()) != 1 || resp.GetResults()[0].GetRejection() != nil || resp.GetResults()[0].GetState() != stateTo(engine.Succeeded) {
			t.Errorf("%v", resp)
		}
		j = w.wantState(w.acme, id, engine.Succeeded)
		if j.GetResult().GetJson() != `{"done": true}` || j.GetChargedCost() != 1_000_000 || !j.GetFinishTime().AsTime().Equal(time.Now()) {
			t.Errorf("%v", j)
		}
		// Said again it is the same answer; another outcome of the same lease comes too late.
		again := w.report(w.worker, &fairleadv1.ReportRequest{Session: "s", Outcomes: []*fairleadv1.Outcome{o, failed(l, &fairleadv1.Failure{Error: "no"})}})
		if r := again.GetResults(); r[0].GetRejection() != nil || r[0].GetState() != stateTo(engine.Succeeded) || r[1].GetRejection().GetCode() != "aborted" ||
			r[1].GetRejection().GetReason() != "LEASE_STALE" {
			t.Errorf("again: %v", again)
		}
	})
}

// Each kind of outcome, and where the job stands after it.
func TestOutcomes(t *testing.T) {
	for name, c := range map[string]struct {
		outcome func(*fairleadv1.JobLease) *fairleadv1.Outcome
		want    engine.JobState
		failed  int32
		text    string
		wake    time.Duration
	}{
		"success":              {func(l *fairleadv1.JobLease) *fairleadv1.Outcome { return succeeded(l, "null") }, engine.Succeeded, 0, "", 0},
		"success, no result":   {success, engine.Succeeded, 0, "", 0},
		"failure, put off":     {failure(&fairleadv1.Failure{Error: "why", RetryAfter: durationpb.New(time.Hour)}), engine.Delayed, 1, "why", time.Hour},
		"fatal":                {failure(&fairleadv1.Failure{Error: "why", Fatal: true}), engine.Failed, 1, "why", 0},
		"release":              {release(&fairleadv1.Release{}), engine.Ready, 0, "", 0},
		"release, put off":     {release(&fairleadv1.Release{Delay: durationpb.New(time.Minute)}), engine.Delayed, 0, "", time.Minute},
		"failure, put off 1 y": {failure(&fairleadv1.Failure{RetryAfter: durationpb.New(365 * 24 * time.Hour)}), engine.Delayed, 1, "", 365 * 24 * time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := open(t, nil)
			id := w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op"})
			l := w.leaseOne(w.worker, "s", "op")
			resp := w.report(w.worker, &fairleadv1.ReportRequest{Session: "s", Outcomes: []*fairleadv1.Outcome{c.outcome(l)}})
			if r := resp.GetResults()[0]; r.GetRejection() != nil || r.GetState() != stateTo(c.want) {
				t.Errorf("%s: %v, want %v", name, r, c.want)
			}
			j := w.wantState(w.acme, id, c.want)
			if j.GetFailedAttempts() != c.failed || j.GetError() != c.text || j.GetLostAttempts() != 0 {
				t.Errorf("%s: %v", name, j)
			}
			if c.wake > 0 && !j.GetNotBefore().AsTime().Equal(time.Now().Add(c.wake)) {
				t.Errorf("%s: waits until %v", name, j.GetNotBefore().AsTime())
			}
		})
	}
}

func success(l *fairleadv1.JobLease) *fairleadv1.Outcome {
	return &fairleadv1.Outcome{JobId: l.GetJobId(), Token: l.GetToken(), Result: &fairleadv1.Outcome_Success{Success: &fairleadv1.Success{}}}
}

func failure(f *fairleadv1.Failure) func(*fairleadv1.JobLease) *fairleadv1.Outcome {
	return func(l *fairleadv1.JobLease) *fairleadv1.Outcome { return failed(l, f) }
}

func release(r *fairleadv1.Release) func(*fairleadv1.JobLease) *fairleadv1.Outcome {
	return func(l *fairleadv1.JobLease) *fairleadv1.Outcome { return released(l, r) }
}

// An outcome that is at fault is refused alone, with its place in the report; the rest counts.
func TestReportAnswersPerOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		const n = 9
		var leases []*fairleadv1.JobLease
		for range n {
			w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op"})
		}
		leases = w.lease(w.worker, &fairleadv1.LeaseRequest{Session: "s", Operations: []string{"op"}, Slots: n})
		if len(leases) != n {
			t.Fatalf("%d leases", len(leases))
		}
		with := func(i int, change func(*fairleadv1.Outcome)) *fairleadv1.Outcome {
			o := success(leases[i])
			change(o)
			return o
		}
		big := strings.Repeat("x", 64<<10)
		got := w.report(w.worker, &fairleadv1.ReportRequest{Session: "s", Outcomes: []*fairleadv1.Outcome{
			success(leases[0]),
			with(1, func(o *fairleadv1.Outcome) { o.Token = "not a token" }),
			with(2, func(o *fairleadv1.Outcome) { o.Token = "1.1.1" }),
			with(3, func(o *fairleadv1.Outcome) { o.JobId = "*" }),
			with(4, func(o *fairleadv1.Outcome) { o.Result = nil }),
			with(5, func(o *fairleadv1.Outcome) { o.RunTime = durationpb.New(-1) }),
			succeeded(leases[6], `"`+big+`"`),
			succeeded(leases[7], `{`),
			failed(leases[8], &fairleadv1.Failure{RetryAfter: durationpb.New(366 * 24 * time.Hour)}),
			{JobId: "job_01890000-0000-7000-8000-000000000000", Token: leases[0].GetToken(), Result: success(leases[0]).GetResult()},
			success(leases[1]),
		}}).GetResults()
		want := []struct{ code, reason, field, word string }{
			{},
			{"invalid_argument", "BAD_FIELD", "outcomes[1].token", "repeat the token"},
			{"aborted", "LEASE_STALE", "", ""},
			{"invalid_argument", "BAD_FIELD", "outcomes[3].job_id", "job_"},
			{"invalid_argument", "BAD_FIELD", "outcomes[4].result", "success, failure or release"},
			{"invalid_argument", "BAD_FIELD", "outcomes[5].run_time", "negative"},
			{"invalid_argument", "BAD_FIELD", "outcomes[6].success.result", "65536"},
			{"invalid_argument", "BAD_FIELD", "outcomes[7].success.result.json", "JSON"},
			{"invalid_argument", "BAD_FIELD", "outcomes[8].failure.retry_after", "365 days"},
			{"not_found", "NOT_FOUND", "", ""},
			{},
		}
		if len(got) != len(want) {
			t.Fatalf("%d results", len(got))
		}
		for i, c := range want {
			r := got[i].GetRejection()
			if r.GetCode() != c.code || r.GetReason() != c.reason || r.GetField() != c.field || !strings.Contains(r.GetMessage(), c.word) {
				t.Errorf("outcome %d: %v, want %v", i, got[i], c)
			}
			if c.code == "" && got[i].GetState() != stateTo(engine.Succeeded) {
				t.Errorf("outcome %d: %v", i, got[i])
			}
		}
		for i, l := range leases {
			state := engine.Leased
			if i < 2 {
				state = engine.Succeeded
			}
			w.wantState(w.acme, l.GetJobId(), state)
		}
	})
}

// Whatever a worker asks beyond a bound is refused with the field and the bound, and nothing is leased.
func TestWorkersBadInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		id := w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op"})
		bounded := as(t.Context(), platformWorker("op"))
		for name, c := range map[string]struct {
			ctx    context.Context //nolint:containedctx // who asks, for this row of the table
			change func(*fairleadv1.LeaseRequest)
			field  string
			word   string
		}{
			"no operations":       {w.worker, func(r *fairleadv1.LeaseRequest) { r.Operations = nil }, "operations", "1 to 64"},
			"65 operations":       {w.worker, func(r *fairleadv1.LeaseRequest) { r.Operations = make([]string, 65) }, "operations", "1 to 64"},
			"operation, empty":    {w.worker, func(r *fairleadv1.LeaseRequest) { r.Operations = []string{"op", ""} }, "operations[1]", "empty"},
			"operation, star":     {w.worker, func(r *fairleadv1.LeaseRequest) { r.Operations = []string{"*"} }, "operations[0]", "128"},
			"operation of no key": {bounded, func(r *fairleadv1.LeaseRequest) { r.Operations = []string{"op", "secret"} }, "operations[1]", "secret"},
			"slots":               {w.worker, func(r *fairleadv1.LeaseRequest) { r.Slots = 1001 }, "slots", "1 to 1000"},
			"slots, negative":     {w.worker, func(r *fairleadv1.LeaseRequest) { r.Slots = -1 }, "slots", "1 to 1000"},
			"prefetch":            {w.worker, func(r *fairleadv1.LeaseRequest) { r.Prefetch = 1001 }, "prefetch", "0 to 1000"},
			"prefetch, negative":  {w.worker, func(r *fairleadv1.LeaseRequest) { r.Prefetch = -1 }, "prefetch", "0 to 1000"},
			"max jobs":            {w.worker, func(r *fairleadv1.LeaseRequest) { r.MaxJobs = 1001 }, "max_jobs", "1 to 1000"},
			"max jobs, negative":  {w.worker, func(r *fairleadv1.LeaseRequest) { r.MaxJobs = -1 }, "max_jobs", "1 to 1000"},
			"session":             {w.worker, func(r *fairleadv1.LeaseRequest) { r.Session = "a b" }, "session", "128"},
			"worker":              {w.worker, func(r *fairleadv1.LeaseRequest) { r.Worker = strings.Repeat("x", 129) }, "worker", "128"},
			"class":               {w.worker, func(r *fairleadv1.LeaseRequest) { r.Classes = []fairleadv1.Class{1, 9} }, "classes[1]", "9"},
			"wait":                {w.worker, func(r *fairleadv1.LeaseRequest) { r.Wait = durationpb.New(61 * time.Second) }, "wait", "1m0s"},
			"wait, negative":      {w.worker, func(r *fairleadv1.LeaseRequest) { r.Wait = durationpb.New(-1) }, "wait", "negative"},
			"lease, short":        {w.worker, func(r *fairleadv1.LeaseRequest) { r.LeaseDuration = durationpb.New(time.Second) }, "lease_duration", "5s to 1h"},
			"lease, long":         {w.worker, func(r *fairleadv1.LeaseRequest) { r.LeaseDuration = durationpb.New(2 * time.Hour) }, "lease_duration", "5s to 1h"},
			"held, id":            {w.worker, func(r *fairleadv1.LeaseRequest) { r.Held = []*fairleadv1.LeaseRef{{JobId: "x"}} }, "held[0].job_id", "job_"},
			"held, token":         {w.worker, func(r *fairleadv1.LeaseRequest) { r.Held = []*fairleadv1.LeaseRef{{JobId: id, Token: "x.y.z"}} }, "held[0].token", "token"},
		} {
			req := &fairleadv1.LeaseRequest{Session: "s", Operations: []string{"op"}, Slots: 1, Wait: durationpb.New(0)}
			c.change(req)
			_, err := w.Workers().Lease(c.ctx, req)
			if r := refused(t, name, err, connect.CodeInvalidArgument, "BAD_FIELD", c.field); !strings.Contains(r.GetMessage(), c.word) {
				t.Errorf("%s: %v does not say %q", name, r, c.word)
			}
		}
		for name, c := range map[string]struct {
			req   *fairleadv1.ReportRequest
			field string
			word  string
		}{
			"501 outcomes": {&fairleadv1.ReportRequest{Outcomes: make([]*fairleadv1.Outcome, 501)}, "outcomes", "1 to 500"},
			"max jobs":     {&fairleadv1.ReportRequest{MaxJobs: 1001}, "max_jobs", "0 to 1000"},
			"session":      {&fairleadv1.ReportRequest{Session: "*"}, "session", "128"},
			"extension":    {&fairleadv1.ReportRequest{Extensions: []*fairleadv1.Extension{{JobId: id, Token: "1.1"}}}, "extensions[0].token", "token"},
			"extension id": {&fairleadv1.ReportRequest{Extensions: []*fairleadv1.Extension{{JobId: "x", Token: "1.1.1"}}}, "extensions[0].job_id", "job_"},
		} {
			_, err := w.Workers().Report(w.worker, c.req)
			if r := refused(t, name, err, connect.CodeInvalidArgument, "BAD_FIELD", c.field); !strings.Contains(r.GetMessage(), c.word) {
				t.Errorf("%s: %v does not say %q", name, r, c.word)
			}
		}
		w.wantState(w.acme, id, engine.Ready)
	})
}

// A poll without jobs is answered when its time is over: at once, when it says, or by default; and as soon as there is one.
func TestPollWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		for wait, want := range map[*durationpb.Duration]time.Duration{nil: 20 * time.Second, durationpb.New(0): 0, durationpb.New(time.Minute): time.Minute} {
			began := time.Now()
			got := w.lease(w.worker, &fairleadv1.LeaseRequest{Session: "s", Operations: []string{"op"}, Slots: 1, Wait: wait})
			if took := time.Since(began); len(got) != 0 || took < want || took > want+time.Second {
				t.Errorf("%d leases after %v, want none after %v", len(got), took, want)
			}
		}
		var got []*fairleadv1.JobLease
		done := later(func() error {
			resp, err := w.Workers().Lease(w.worker, &fairleadv1.LeaseRequest{Session: "s", Operations: []string{"op"}, Slots: 1})
			got = resp.GetLeases()
			return err
		})
		synctest.Wait()
		idle(t, "a poll without jobs", done)
		began := time.Now()
		id := w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op"})
		if err := <-done; err != nil || len(got) != 1 || got[0].GetJobId() != id || time.Since(began) != 0 {
			t.Errorf("%v, %v after %v", got, err, time.Since(began))
		}
		// A session that the cell names may report under that name.
		w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op"})
		resp, err := w.Workers().Lease(w.worker, &fairleadv1.LeaseRequest{Operations: []string{"op"}, MaxJobs: 1})
		if err != nil || resp.GetSession() == "" || len(resp.GetLeases()) != 1 {
			t.Fatalf("%v, %v", resp, err)
		}
		r := w.report(w.worker, &fairleadv1.ReportRequest{Session: resp.GetSession(), Outcomes: []*fairleadv1.Outcome{success(resp.GetLeases()[0])}})
		if r.GetResults()[0].GetRejection() != nil {
			t.Errorf("%v", r)
		}
	})
}

// A session has one poll: a second ends the first, which says so.
func TestPollReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		poll := func() error {
			_, err := w.Workers().Lease(w.worker, &fairleadv1.LeaseRequest{Session: "s", Operations: []string{"op"}, Slots: 1, Wait: durationpb.New(time.Minute)})
			return err
		}
		first := later(poll)
		synctest.Wait()
		second := later(poll)
		synctest.Wait()
		refused(t, "the first poll", <-first, connect.CodeAborted, "POLL_REPLACED", "")
		idle(t, "the second poll", second)
		w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op"})
		if err := <-second; err != nil {
			t.Error(err)
		}
	})
}

// A poll whose caller goes away takes nothing: what it would have been given is ready for the next worker, with no attempt lost, whether it
// was open, or its grant was on its way into the log.
func TestPollAbandoned(t *testing.T) {
	for name, inFlight := range map[string]bool{"open": false, "granted": true} {
		synctest.Test(t, func(t *testing.T) {
			w := open(t, nil)
			ctx, leave := context.WithCancel(w.worker)
			done := later(func() error {
				_, err := w.Workers().Lease(ctx, &fairleadv1.LeaseRequest{Session: "gone", Operations: []string{"op"}, Slots: 3, Wait: durationpb.New(time.Minute)})
				return err
			})
			synctest.Wait()
			var id string
			if inFlight {
				release := w.log.hold()
				accepted := later(func() error {
					resp, err := w.Jobs().Submit(w.acme, &fairleadv1.SubmitRequest{Job: &fairleadv1.JobSpec{Operation: "op"}})
					id = resp.GetJobId()
					return err
				})
				synctest.Wait()
				leave()
				synctest.Wait()
				release()
				if err := <-accepted; err != nil {
					t.Fatal(err)
				}
			} else {
				leave()
				synctest.Wait()
				id = w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op"})
			}
			refused(t, name, <-done, connect.CodeCanceled, "CALLER_GONE", "")
			synctest.Wait()
			began := time.Now()
			l := w.leaseOne(w.worker, "next", "op")
			if l.GetJobId() != id || time.Since(began) > time.Second {
				t.Errorf("%s: %v after %v", name, l, time.Since(began))
			}
			if j := w.job(w.acme, id); j.GetFailedAttempts() != 0 || j.GetLostAttempts() != 0 {
				t.Errorf("%s: the job paid for it: %v", name, j)
			}
		})
	}
}

// A session that numbers its polls and reports gets what a lost answer carried again, and nothing twice.
func TestRedelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		for range 2 {
			w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op"})
		}
		poll := &fairleadv1.LeaseRequest{Session: "s", Operations: []string{"op"}, Slots: 1, Sequence: 1}
		first := w.lease(w.worker, poll)
		again := w.lease(w.worker, poll)
		if len(first) != 1 || len(again) != 1 || !proto.Equal(first[0], again[0]) {
			t.Fatalf("%v then %v", first, again)
		}
		report := &fairleadv1.ReportRequest{Session: "s", Sequence: 1, MaxJobs: 1, Outcomes: []*fairleadv1.Outcome{success(first[0])}}
		a, b := w.report(w.worker, report), w.report(w.worker, report)
		if len(a.GetLeases()) != 1 || !proto.Equal(a, b) {
			t.Fatalf("%v then %v", a, b)
		}
		// A poll after it that does not hold what the report carried gives it back.
		next := w.lease(w.worker, &fairleadv1.LeaseRequest{Session: "s", Operations: []string{"op"}, Slots: 1, Sequence: 2, ReportSequence: 1})
		if len(next) != 1 || next[0].GetJobId() != a.GetLeases()[0].GetJobId() || next[0].GetToken() == a.GetLeases()[0].GetToken() {
			t.Errorf("%v after %v", next, a.GetLeases())
		}
	})
}

// An extension keeps a lease alive; what expires goes to another worker, and its worker is told to stop.
func TestExtensionsAndExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		kept := w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op"})
		a := w.leaseOne(w.worker, "a", "op")
		extension := &fairleadv1.ReportRequest{Session: "a", Extensions: []*fairleadv1.Extension{{JobId: a.GetJobId(), Token: a.GetToken()}}}
		for range 4 {
			time.Sleep(25 * time.Second)
			if resp := w.report(w.worker, extension); len(resp.GetCancels()) != 0 {
				t.Fatalf("%v", resp)
			}
		}
		w.wantState(w.acme, kept, engine.Leased)
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if j := w.job(w.acme, kept); j.GetState() == stateTo(engine.Leased) || j.GetLostAttempts() != 1 || j.GetFailedAttempts() != 0 {
			t.Errorf("after its lease: %v", j)
		}
		resp := w.report(w.worker, extension)
		if c := resp.GetCancels(); len(c) != 1 || c[0].GetJobId() != kept || c[0].GetToken() != a.GetToken() {
			t.Errorf("%v", resp)
		}
		late := w.report(w.worker, &fairleadv1.ReportRequest{Session: "a", Outcomes: []*fairleadv1.Outcome{success(a)}})
		if late.GetResults()[0].GetRejection().GetReason() != "LEASE_STALE" {
			t.Errorf("a late outcome: %v", late)
		}
		b := w.leaseOne(w.worker, "b", "op")
		if b.GetJobId() != kept || b.GetAttempt() != 2 {
			t.Errorf("%v", b)
		}
		// Cancelled while it runs: the worker hears of it with its next report.
		if _, err := w.Jobs().CancelJob(w.acme, &fairleadv1.CancelJobRequest{JobId: kept}); err != nil {
			t.Fatal(err)
		}
		if c := w.report(w.worker, &fairleadv1.ReportRequest{Session: "b"}).GetCancels(); len(c) != 1 || c[0].GetToken() != b.GetToken() {
			t.Errorf("%v", c)
		}
	})
}

// A tenant's own worker leases that tenant's jobs only, and nobody else's outcome counts for them.
func TestTenantsOwnWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		own := as(t.Context(), tenantWorker("acme"))
		w.submit(w.globex, &fairleadv1.JobSpec{Operation: "op"})
		if got := w.lease(own, &fairleadv1.LeaseRequest{Session: "s", Operations: []string{"op"}, Slots: 9, Wait: durationpb.New(0)}); len(got) != 0 {
			t.Errorf("leased %v", got)
		}
		id := w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op"})
		l := w.leaseOne(own, "s", "op")
		if l.GetJobId() != id || l.GetTenant() != "acme" {
			t.Errorf("leased %v", l)
		}
		report := &fairleadv1.ReportRequest{Session: "s", Outcomes: []*fairleadv1.Outcome{success(l)}}
		if r := w.report(w.worker, report).GetResults()[0]; r.GetRejection().GetReason() != "LEASE_STALE" {
			t.Errorf("the platform's outcome: %v", r)
		}
		// To another tenant's worker it is no job at all: neither its state nor that there is one is told.
		theirs := w.report(as(t.Context(), tenantWorker("globex")), report).GetResults()[0]
		report.Outcomes[0].JobId = "job_01890000-0000-7000-8000-000000000000"
		nobodys := w.report(as(t.Context(), tenantWorker("globex")), report).GetResults()[0]
		if theirs.GetRejection().GetReason() != "NOT_FOUND" || theirs.GetState() != 0 || !proto.Equal(theirs, nobodys) {
			t.Errorf("another tenant's outcome: %v, of a job that never was: %v", theirs, nobodys)
		}
		w.wantState(w.acme, id, engine.Leased)
	})
}

// A wait ends with the job, with its time-out, with its caller, and with the cell; each says which.
func TestWaitJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		id := w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op"})
		wait := func(ctx context.Context, timeout *durationpb.Duration) (*fairleadv1.WaitJobResponse, error) {
			return w.Jobs().WaitJob(ctx, &fairleadv1.WaitJobRequest{JobId: id, Timeout: timeout})
		}
		for timeout, want := range map[*durationpb.Duration]time.Duration{nil: time.Minute, durationpb.New(time.Second): time.Second} {
			began := time.Now()
			resp, err := wait(w.acme, timeout)
			if err != nil || resp.GetDone() || resp.GetJob().GetState() != stateTo(engine.Ready) || time.Since(began) != want {
				t.Errorf("%v, %v after %v", resp, err, time.Since(began))
			}
		}
		for name, d := range map[string]*durationpb.Duration{"61 s": durationpb.New(61 * time.Second), "negative": durationpb.New(-1)} {
			_, err := wait(w.acme, d)
			refused(t, name, err, connect.CodeInvalidArgument, "BAD_FIELD", "timeout")
		}
		ctx, leave := context.WithCancel(w.acme)
		gone := later(func() error { _, err := wait(ctx, nil); return err })
		late, cancel := context.WithTimeout(w.acme, time.Second)
		defer cancel()
		over := later(func() error { _, err := wait(late, nil); return err })
		const n = 5
		answers := make(chan *fairleadv1.WaitJobResponse, n)
		for range n {
			go func() {
				resp, err := wait(w.acme, nil)
				if err != nil {
					t.Error(err)
				}
				answers <- resp
			}()
		}
		synctest.Wait()
		leave()
		refused(t, "the caller is gone", <-gone, connect.CodeCanceled, "CALLER_GONE", "")
		if err := <-over; connect.CodeOf(err) != connect.CodeDeadlineExceeded {
			t.Errorf("the caller's deadline: %v", err)
		}
		l := w.leaseOne(w.worker, "s", "op")
		synctest.Wait()
		if len(answers) > 0 {
			t.Error("a wait ended with the lease")
		}
		w.report(w.worker, &fairleadv1.ReportRequest{Session: "s", Outcomes: []*fairleadv1.Outcome{succeeded(l, "7")}})
		for range n {
			if resp := <-answers; !resp.GetDone() || resp.GetJob().GetResult().GetJson() != "7" {
				t.Errorf("%v", resp)
			}
		}
		if resp, err := wait(w.acme, nil); err != nil || !resp.GetDone() {
			t.Errorf("after its end: %v, %v", resp, err)
		}
		w.mu.RLock()
		defer w.mu.RUnlock()
		if len(w.waiters) != 0 {
			t.Errorf("%d waits are left", len(w.waiters))
		}
	})
}

// A job is ended for its waiters by whatever ends it.
func TestWaitEndsWithEveryEnd(t *testing.T) {
	for name, c := range map[string]struct {
		spec *fairleadv1.JobSpec
		end  func(w *world, id string)
		want engine.JobState
	}{
		"cancelled": {&fairleadv1.JobSpec{Operation: "op"}, func(w *world, id string) {
			if _, err := w.Jobs().CancelJob(w.acme, &fairleadv1.CancelJobRequest{JobId: id}); err != nil {
				w.t.Error(err)
			}
		}, engine.Cancelled},
		"failed": {&fairleadv1.JobSpec{Operation: "op"}, func(w *world, _ string) {
			l := w.leaseOne(w.worker, "s", "op")
			w.report(w.worker, &fairleadv1.ReportRequest{Session: "s", Outcomes: []*fairleadv1.Outcome{failed(l, &fairleadv1.Failure{Fatal: true})}})
		}, engine.Failed},
		"expired": {&fairleadv1.JobSpec{Operation: "op"}, nil, engine.Expired},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := open(t, nil)
			spec := proto.CloneOf(c.spec)
			if c.want == engine.Expired {
				spec.Deadline = timeTo(cell.InstantOf(time.Now().Add(10 * time.Second)))
			}
			id := w.submit(w.acme, spec)
			var got *fairleadv1.WaitJobResponse
			done := later(func() (err error) {
				got, err = w.Jobs().WaitJob(w.acme, &fairleadv1.WaitJobRequest{JobId: id})
				return err
			})
			synctest.Wait()
			idle(t, name, done)
			if c.end != nil {
				c.end(w, id)
			}
			if err := <-done; err != nil || !got.GetDone() || got.GetJob().GetState() != stateTo(c.want) {
				t.Errorf("%s: %v, %v", name, got, err)
			}
		})
	}
}

// Status shows the workers, the lanes that wait longest, and how far the log has come.
func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		for i := range 3 {
			w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op", Payload: document("1")})
			if i == 0 {
				w.leaseOne(w.worker, "s", "op")
			}
		}
		time.Sleep(2 * time.Second)
		w.submit(w.globex, &fairleadv1.JobSpec{Operation: "op"})
		_, err := w.Jobs().Submit(w.acme, &fairleadv1.SubmitRequest{Job: &fairleadv1.JobSpec{Operation: "op", IdempotencyKey: "k"}})
		_, taken := w.Jobs().Submit(w.acme, &fairleadv1.SubmitRequest{Job: &fairleadv1.JobSpec{Operation: "xx", IdempotencyKey: "k"}})
		if err := errors.Join(err); err != nil || taken == nil {
			t.Fatalf("%v, %v", err, taken)
		}
		st, err := w.Status().GetStatus(t.Context(), &fairleadv1.GetStatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		jobs := st.GetJobs()
		if st.GetCell() != "cell-1" || st.GetPolicy() != "fairlead" || jobs.GetReady() != 4 || jobs.GetLeased() != 1 || st.GetAcceptedTotal() != 5 ||
			st.GetFinishedTotal() != 0 || st.GetRejectedTotal() != 1 || st.GetLog().GetIndex() != 7 || st.GetLog().GetSnapshotIndex() != 5 ||
			st.GetLog().GetBytesSinceSnapshot() != 300 || st.GetBacklogBytes() == 0 {
			t.Errorf("%v", st)
		}
		if len(st.GetWorkers()) != 1 || st.GetWorkers()[0].GetHeld() != 1 || st.GetWorkers()[0].GetSlots() != 1 || len(st.GetClasses()) != 2 {
			t.Errorf("%v", st)
		}
		if l := st.GetLanes(); len(l) != 2 || l[0].GetTenant() != "acme" || l[0].GetOldestWait().AsDuration() != 2*time.Second || l[0].GetReady() != 3 || l[0].GetLeased() != 1 {
			t.Errorf("%v", l)
		}
		if st, err = w.Status().GetStatus(t.Context(), &fairleadv1.GetStatusRequest{LanesMax: 1}); err != nil || len(st.GetLanes()) != 1 {
			t.Errorf("%v, %v", st, err)
		}
		for _, n := range []int32{-1, 501} {
			_, err := w.Status().GetStatus(t.Context(), &fairleadv1.GetStatusRequest{LanesMax: n})
			refused(t, fmt.Sprint(n), err, connect.CodeInvalidArgument, "BAD_FIELD", "lanes_max")
		}
	})
}
