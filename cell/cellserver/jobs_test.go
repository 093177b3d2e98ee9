package cellserver

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fairlead/fairlead/cell/engine"
	"github.com/fairlead/fairlead/cell/leader"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// The API's states, classes and reasons are the engine's and the leader's, by number: none is missing, none has another name.
func TestEnumsAreInOrder(t *testing.T) {
	for n := engine.JobState(1); n.Valid(); n++ {
		if got, want := stateTo(n).String(), "JOB_STATE_"+strings.ToUpper(n.String()); got != want {
			t.Errorf("state %d is %s, want %s", n, got, want)
		}
	}
	if n := len(fairleadv1.JobState_name); !engine.JobState(n-1).Valid() || engine.JobState(n).Valid() { // a handful
		t.Errorf("the API has %d states beside the unspecified", n-1)
	}
	reasons := map[leader.Reason]fairleadv1.WaitReason{
		leader.ReasonEnded: fairleadv1.WaitReason_WAIT_REASON_ENDED, leader.ReasonRunning: fairleadv1.WaitReason_WAIT_REASON_RUNNING,
		leader.ReasonNotBefore: fairleadv1.WaitReason_WAIT_REASON_NOT_BEFORE, leader.ReasonBackoff: fairleadv1.WaitReason_WAIT_REASON_BACKOFF,
		leader.ReasonNoWorker: fairleadv1.WaitReason_WAIT_REASON_NO_WORKER, leader.ReasonClassSlots: fairleadv1.WaitReason_WAIT_REASON_CLASS_SLOTS,
		leader.ReasonOwnQueue: fairleadv1.WaitReason_WAIT_REASON_OWN_QUEUE, leader.ReasonTurn: fairleadv1.WaitReason_WAIT_REASON_TURN,
		leader.ReasonRunningCap:        fairleadv1.WaitReason_WAIT_REASON_RUNNING_CAP,
		leader.ReasonConcurrencyKey:    fairleadv1.WaitReason_WAIT_REASON_CONCURRENCY_KEY,
		leader.ReasonStartRate:         fairleadv1.WaitReason_WAIT_REASON_START_RATE,
		leader.ReasonLimit:             fairleadv1.WaitReason_WAIT_REASON_LIMIT,
		leader.ReasonOrganizationLimit: fairleadv1.WaitReason_WAIT_REASON_ORGANIZATION_LIMIT,
		leader.ReasonHeldBack:          fairleadv1.WaitReason_WAIT_REASON_HELD_BACK,
		leader.ReasonReservation:       fairleadv1.WaitReason_WAIT_REASON_RESERVATION,
	}
	for ours, theirs := range reasons {
		if reasonTo(ours) != theirs {
			t.Errorf("reason %v is %v, want %v", ours, reasonTo(ours), theirs)
		}
	}
	if r := reasonTo(leader.ReasonStopping); r != fairleadv1.WaitReason_WAIT_REASON_RUNNING {
		t.Errorf("a job whose worker has yet to stop waits for %v", r)
	}
	if r := reasonTo(leader.ReasonMoving); r != fairleadv1.WaitReason_WAIT_REASON_UNSPECIFIED {
		t.Errorf("a job whose lane moves waits for %v", r)
	}
	if len(reasons) != len(fairleadv1.WaitReason_name)-1 || !strings.HasPrefix(leader.Reason(len(reasons)+3).String(), "reason(") {
		t.Errorf("%d reasons here, %d in the API", len(reasons), len(fairleadv1.WaitReason_name)-1)
	}
	for _, c := range []fairleadv1.Class{fairleadv1.Class_CLASS_INTERACTIVE, fairleadv1.Class_CLASS_BATCH} {
		if got, err := classOf("class", c); err != nil || classTo(got) != c || "CLASS_"+strings.ToUpper(got.String()) != c.String() {
			t.Errorf("%v is %v, %v", c, got, err)
		}
	}
}

// What was submitted is what is read back, with the defaults filled in.
func TestSubmitAndGet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		later := time.Now().Add(time.Hour)
		spec := &fairleadv1.JobSpec{
			Operation: "a.b", Class: fairleadv1.Class_CLASS_BATCH, Payload: document(`{"n": 1.0}`), IdempotencyKey: "k", Priority: -7,
			NotBefore: timestamppb.New(later), Deadline: timestamppb.New(later.Add(time.Hour)), ExecutionTimeout: durationpb.New(time.Minute),
			Cost: 12, Retry: &fairleadv1.RetryPolicy{AttemptsMax: 3, DelayMin: durationpb.New(2 * time.Second), DelayMax: durationpb.New(time.Minute)},
			Labels: map[string]string{"b": "2", "a": "1"}, Retention: durationpb.New(time.Hour), Traceparent: "00-1-2-01",
		}
		resp, err := w.Jobs().Submit(w.acme, &fairleadv1.SubmitRequest{Job: spec})
		if err != nil || resp.GetState() != fairleadv1.JobState_JOB_STATE_DELAYED || resp.GetDuplicate() {
			t.Fatalf("%v, %v", resp, err)
		}
		j := w.wantState(w.acme, resp.GetJobId(), engine.Delayed)
		if j.GetOperation() != "a.b" || j.GetClass() != spec.GetClass() || j.GetPayload().GetJson() != `{"n": 1.0}` || j.GetIdempotencyKey() != "k" ||
			j.GetPriority() != -7 || !j.GetNotBefore().AsTime().Equal(later) || !j.GetDeadline().AsTime().Equal(later.Add(time.Hour)) ||
			j.GetExecutionTimeout().AsDuration() != time.Minute || j.GetCost() != 12 || j.GetRetry().GetAttemptsMax() != 3 ||
			j.GetLabels()["a"] != "1" || len(j.GetLabels()) != 2 || j.GetRetention().AsDuration() != time.Hour || j.GetTraceparent() != "00-1-2-01" ||
			j.GetPayload().GetContentType() != "application/json" || !j.GetCreateTime().AsTime().Equal(time.Now()) {
			t.Errorf("got %v", j)
		}
		bare := w.job(w.acme, w.submit(w.acme, &fairleadv1.JobSpec{Operation: "bare"}))
		if bare.GetPayload() != nil || bare.GetClass() != fairleadv1.Class_CLASS_INTERACTIVE || bare.GetRetry().GetAttemptsMax() != 25 ||
			bare.GetExecutionTimeout().AsDuration() != time.Hour || bare.GetRetention().AsDuration() != 24*time.Hour || bare.GetNotBefore() != nil {
			t.Errorf("defaults: %v", bare)
		}
		data := &fairleadv1.Payload{Body: &fairleadv1.Payload_Data{Data: []byte{0, 255}}, ContentType: "image/x"}
		if got := w.job(w.acme, w.submit(w.acme, &fairleadv1.JobSpec{Operation: "bytes", Payload: data})).GetPayload(); string(got.GetData()) != "\x00\xff" ||
			got.GetContentType() != "image/x" {
			t.Errorf("bytes: %v", got)
		}
		plain := &fairleadv1.Payload{Body: &fairleadv1.Payload_Data{Data: []byte("x")}}
		if got := w.job(w.acme, w.submit(w.acme, &fairleadv1.JobSpec{Operation: "bytes", Payload: plain})).GetPayload(); got.GetContentType() != "application/octet-stream" {
			t.Errorf("bytes without a type: %v", got)
		}
		// A delay counts from the submission, and the job is ready when it is over.
		id := w.submit(w.acme, &fairleadv1.JobSpec{Operation: "later", Delay: durationpb.New(10 * time.Minute)})
		if got := w.job(w.acme, id).GetNotBefore().AsTime(); !got.Equal(time.Now().Add(10 * time.Minute)) {
			t.Errorf("delayed until %v", got)
		}
		time.Sleep(10*time.Minute - 1)
		synctest.Wait()
		w.wantState(w.acme, id, engine.Delayed)
		time.Sleep(time.Second)
		synctest.Wait()
		w.wantState(w.acme, id, engine.Ready)
	})
}

// The same key and body is the same job; another body is refused naming the first; another lane has keys of its own.
func TestKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		spec := func(n string) *fairleadv1.JobSpec {
			return &fairleadv1.JobSpec{Operation: "op", IdempotencyKey: "k", Payload: document(n), Delay: durationpb.New(time.Minute)}
		}
		first := w.submit(w.acme, spec("1"))
		time.Sleep(time.Second) // a delay counts as it was sent
		again, err := w.Jobs().Submit(w.acme, &fairleadv1.SubmitRequest{Job: spec("1")})
		if err != nil || again.GetJobId() != first || !again.GetDuplicate() || again.GetState() != fairleadv1.JobState_JOB_STATE_DELAYED {
			t.Errorf("%v, %v", again, err)
		}
		_, err = w.Jobs().Submit(w.acme, &fairleadv1.SubmitRequest{Job: spec("2")})
		r := refused(t, "another body", err, connect.CodeAlreadyExists, "KEY_TAKEN", "idempotency_key")
		if r.GetExistingJobId() != first || !strings.Contains(r.GetMessage(), first) {
			t.Errorf("%v does not name %s", r, first)
		}
		if w.submit(w.globex, spec("2")) == first {
			t.Error("two tenants share a key")
		}
		batch := spec("2")
		batch.Class = fairleadv1.Class_CLASS_BATCH
		if w.submit(w.acme, batch) == first {
			t.Error("two lanes share a key")
		}
		// Submissions that come at once with one key are one job.
		release := w.log.hold()
		ids := make(chan string, 8)
		for range cap(ids) {
			go func() {
				resp, err := w.Jobs().Submit(w.acme, &fairleadv1.SubmitRequest{Job: &fairleadv1.JobSpec{Operation: "op", IdempotencyKey: "at-once"}})
				if err != nil {
					t.Error(err)
				}
				ids <- resp.GetJobId()
			}()
		}
		synctest.Wait()
		release()
		same := <-ids
		for range cap(ids) - 1 {
			if id := <-ids; id != same {
				t.Errorf("%s and %s under one key", same, id)
			}
		}
	})
}

// A batch has an answer for each item: what is at fault is refused alone, with its place in the request.
func TestBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		taken := w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op", IdempotencyKey: "taken"})
		resp, err := w.Jobs().SubmitBatch(w.acme, &fairleadv1.SubmitBatchRequest{Jobs: []*fairleadv1.JobSpec{
			{Operation: "op.0"},
			{Operation: "op.1", Cost: -1},
			{Operation: "op.2", Delay: durationpb.New(time.Hour)},
			{Operation: "op", IdempotencyKey: "taken"},
			{Operation: "other", IdempotencyKey: "taken"},
			{},
			{Operation: "op.6"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		got := resp.GetResults()
		if len(got) != 7 {
			t.Fatalf("%d results", len(got))
		}
		for i, want := range map[int]struct{ code, reason, field string }{
			1: {"invalid_argument", "BAD_FIELD", "jobs[1].cost"}, 4: {"already_exists", "KEY_TAKEN", "idempotency_key"},
			5: {"invalid_argument", "BAD_FIELD", "jobs[5].operation"},
		} {
			r := got[i].GetRejection()
			if r.GetCode() != want.code || r.GetReason() != want.reason || r.GetField() != want.field || got[i].GetJobId() != "" {
				t.Errorf("item %d: %v", i, got[i])
			}
		}
		if got[4].GetRejection().GetExistingJobId() != taken || got[3].GetJobId() != taken || !got[3].GetDuplicate() {
			t.Errorf("the key's job is %s: %v, %v", taken, got[3], got[4])
		}
		for i, op := range map[int]string{0: "op.0", 2: "op.2", 6: "op.6"} {
			if j := w.job(w.acme, got[i].GetJobId()); j.GetOperation() != op || j.GetState() != got[i].GetState() || got[i].GetRejection() != nil {
				t.Errorf("item %d: %v is %v", i, got[i], j)
			}
		}
		for n, field := range map[int]string{0: "jobs", 501: "jobs"} {
			_, err := w.Jobs().SubmitBatch(w.acme, &fairleadv1.SubmitBatchRequest{Jobs: make([]*fairleadv1.JobSpec, n)})
			if r := refused(t, fmt.Sprint(n), err, connect.CodeInvalidArgument, "BAD_FIELD", field); !strings.Contains(r.GetMessage(), "1 to 500") {
				t.Errorf("%d: %v", n, r)
			}
		}
	})
}

// Pages cover the list once, newest first, and filters narrow it.
func TestListPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		var want []string
		for i := range 25 {
			spec := &fairleadv1.JobSpec{Operation: fmt.Sprintf("op.%d", i%2), Payload: document("1")}
			if i%5 == 0 {
				spec.Class = fairleadv1.Class_CLASS_BATCH
			}
			want = append(want, w.submit(w.acme, spec))
			w.submit(w.globex, spec)
		}
		slices.Reverse(want)
		list := func(req *fairleadv1.ListJobsRequest) (ids []string, pages int) {
			for {
				resp, err := w.Jobs().ListJobs(w.acme, req)
				if err != nil {
					t.Fatal(err)
				}
				for _, j := range resp.GetJobs() {
					ids = append(ids, j.GetId())
					if j.GetPayload() != nil {
						t.Errorf("a list carries the payload of %v", j)
					}
				}
				pages++
				if req.PageToken = resp.GetNextPageToken(); req.GetPageToken() == "" {
					return ids, pages
				}
			}
		}
		for size, pages := range map[int32]int{0: 1, 500: 1, 10: 3, 25: 1, 24: 2, 1: 25} {
			if got, n := list(&fairleadv1.ListJobsRequest{PageSize: size}); !slices.Equal(got, want) || n != pages {
				t.Errorf("pages of %d: %d pages, %d jobs", size, n, len(got))
			}
		}
		if _, err := w.Jobs().CancelJob(w.acme, &fairleadv1.CancelJobRequest{JobId: want[3]}); err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			req  *fairleadv1.ListJobsRequest
			keep func(i int) bool // by the job's place in the order of submission
		}{
			"operation": {&fairleadv1.ListJobsRequest{Operation: "op.1", PageSize: 4}, func(i int) bool { return i%2 == 1 }},
			"class":     {&fairleadv1.ListJobsRequest{Class: fairleadv1.Class_CLASS_BATCH, PageSize: 2}, func(i int) bool { return i%5 == 0 }},
			"state":     {&fairleadv1.ListJobsRequest{States: []fairleadv1.JobState{6, 5}}, func(i int) bool { return i == 21 }},
			"all three": {
				&fairleadv1.ListJobsRequest{Operation: "op.1", Class: fairleadv1.Class_CLASS_BATCH, States: []fairleadv1.JobState{2}},
				func(i int) bool { return i%10 == 5 },
			},
			"none": {&fairleadv1.ListJobsRequest{Operation: "no.such"}, func(int) bool { return false }},
		} {
			var expect []string
			for k, id := range want {
				if c.keep(len(want) - 1 - k) {
					expect = append(expect, id)
				}
			}
			if got, _ := list(c.req); !slices.Equal(got, expect) {
				t.Errorf("%s: %d jobs, want %d", name, len(got), len(expect))
			}
		}
		for name, c := range map[string]struct {
			req   *fairleadv1.ListJobsRequest
			field string
			word  string
		}{
			"page of 501":      {&fairleadv1.ListJobsRequest{PageSize: 501}, "page_size", "1 to 500"},
			"page of -1":       {&fairleadv1.ListJobsRequest{PageSize: -1}, "page_size", "1 to 500"},
			"token, text":      {&fairleadv1.ListJobsRequest{PageToken: "next please"}, "page_token", "next_page_token"},
			"token, zero":      {&fairleadv1.ListJobsRequest{PageToken: "AA"}, "page_token", ""},
			"token, long":      {&fairleadv1.ListJobsRequest{PageToken: "AQE"}, "page_token", ""},
			"token, endless":   {&fairleadv1.ListJobsRequest{PageToken: "gICAgICAgICAgIA"}, "page_token", ""},
			"unknown state":    {&fairleadv1.ListJobsRequest{States: []fairleadv1.JobState{1, 9}}, "states[1]", "9"},
			"no state":         {&fairleadv1.ListJobsRequest{States: []fairleadv1.JobState{0}}, "states[0]", "0"},
			"a state mod 256":  {&fairleadv1.ListJobsRequest{States: []fairleadv1.JobState{258}}, "states[0]", "258"},
			"a negative state": {&fairleadv1.ListJobsRequest{States: []fairleadv1.JobState{-254}}, "states[0]", "-254"},
			"unknown class":    {&fairleadv1.ListJobsRequest{Class: 3}, "class", "3"},
			"operation":        {&fairleadv1.ListJobsRequest{Operation: "*"}, "operation", "128"},
		} {
			_, err := w.Jobs().ListJobs(w.acme, c.req)
			if r := refused(t, name, err, connect.CodeInvalidArgument, "BAD_FIELD", c.field); !strings.Contains(r.GetMessage(), c.word) {
				t.Errorf("%s: %v", name, r)
			}
		}
	})
}

// Cancel and retry tell what became of the job; a job of another tenant's is not found by any call, in the words of one that never was.
func TestCancelRetryExplain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		id := w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op"})
		for i, want := range []bool{true, false} { // the second finds it ended
			resp, err := w.Jobs().CancelJob(w.acme, &fairleadv1.CancelJobRequest{JobId: id})
			if err != nil || resp.GetCancelled() != want || resp.GetJob().GetState() != fairleadv1.JobState_JOB_STATE_CANCELLED ||
				resp.GetJob().GetFinishTime() == nil {
				t.Errorf("cancel %d: %v, %v", i, resp, err)
			}
		}
		retried, err := w.Jobs().RetryJob(w.acme, &fairleadv1.RetryJobRequest{JobId: id})
		if err != nil || retried.GetJob().GetState() != fairleadv1.JobState_JOB_STATE_READY || retried.GetJob().GetFinishTime() != nil {
			t.Errorf("retry: %v, %v", retried, err)
		}
		_, err = w.Jobs().RetryJob(w.acme, &fairleadv1.RetryJobRequest{JobId: id})
		if r := refused(t, "retry of a ready job", err, connect.CodeFailedPrecondition, "WRONG_STATE", ""); !strings.Contains(r.GetMessage(), "ready") {
			t.Errorf("%v", r)
		}
		x, err := w.Jobs().ExplainJob(w.acme, &fairleadv1.ExplainJobRequest{JobId: id})
		if err != nil || x.GetReason() != fairleadv1.WaitReason_WAIT_REASON_NO_WORKER || x.GetPosition() != 1 || x.GetLaneReady() != 1 || x.GetJobId() != id ||
			!strings.Contains(x.GetMessage(), "op") {
			t.Errorf("explain: %v, %v", x, err)
		}
		l := w.leaseOne(w.worker, "s", "op")
		if x, err = w.Jobs().ExplainJob(w.acme, &fairleadv1.ExplainJobRequest{JobId: id}); err != nil || x.GetReason() != fairleadv1.WaitReason_WAIT_REASON_RUNNING {
			t.Errorf("explain a running one: %v, %v", x, err)
		}
		w.report(w.worker, &fairleadv1.ReportRequest{Session: "s", Outcomes: []*fairleadv1.Outcome{succeeded(l, "1")}})
		if x, err = w.Jobs().ExplainJob(w.acme, &fairleadv1.ExplainJobRequest{JobId: id}); err != nil || x.GetReason() != fairleadv1.WaitReason_WAIT_REASON_ENDED {
			t.Errorf("explain an ended one: %v, %v", x, err)
		}
		_, err = w.Jobs().RetryJob(w.acme, &fairleadv1.RetryJobRequest{JobId: id})
		refused(t, "retry of a success", err, connect.CodeFailedPrecondition, "WRONG_STATE", "")
		delayed := w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op", Delay: durationpb.New(time.Hour)})
		x, err = w.Jobs().ExplainJob(w.acme, &fairleadv1.ExplainJobRequest{JobId: delayed})
		if err != nil || x.GetReason() != fairleadv1.WaitReason_WAIT_REASON_NOT_BEFORE || !x.GetNextTime().AsTime().Equal(time.Now().Add(time.Hour)) {
			t.Errorf("explain a delayed one: %v, %v", x, err)
		}
	})
}

// What holds a job's place is named when it is the tenant's own, and counted only when it is another's.
func TestExplainNamesOwnHoldersOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		other := w.submit(w.globex, &fairleadv1.JobSpec{Operation: "op"})
		own := w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op"})
		got := w.lease(w.worker, &fairleadv1.LeaseRequest{Session: "s", Operations: []string{"op"}, Slots: 2})
		if len(got) != 2 {
			t.Fatalf("%d leases", len(got))
		}
		id := w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op"})
		x, err := w.Jobs().ExplainJob(w.acme, &fairleadv1.ExplainJobRequest{JobId: id})
		if err != nil || !slices.Equal(x.GetHolders(), []string{own}) || strings.Contains(x.String(), other) || strings.Contains(x.String(), "globex") {
			t.Errorf("%v, %v", x, err)
		}
	})
}

// Another tenant's job is not found, in the very words for one that never was; a malformed id is a fault of the request.
func TestAnothersJobIsNotFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		theirs := w.submit(w.globex, &fairleadv1.JobSpec{Operation: "op"})
		const nobodys = "job_01890000-0000-7000-8000-000000000000"
		jobs := w.Jobs()
		for name, call := range map[string]func(id string) error{
			"get": func(id string) error { _, err := jobs.GetJob(w.acme, &fairleadv1.GetJobRequest{JobId: id}); return err },
			"cancel": func(id string) error {
				_, err := jobs.CancelJob(w.acme, &fairleadv1.CancelJobRequest{JobId: id})
				return err
			},
			"retry": func(id string) error {
				_, err := jobs.RetryJob(w.acme, &fairleadv1.RetryJobRequest{JobId: id})
				return err
			},
			"wait": func(id string) error {
				_, err := jobs.WaitJob(w.acme, &fairleadv1.WaitJobRequest{JobId: id})
				return err
			},
			"explain": func(id string) error {
				_, err := jobs.ExplainJob(w.acme, &fairleadv1.ExplainJobRequest{JobId: id})
				return err
			},
		} {
			a := refused(t, name+" another's", call(theirs), connect.CodeNotFound, "NOT_FOUND", "")
			b := refused(t, name+" nobody's", call(nobodys), connect.CodeNotFound, "NOT_FOUND", "")
			if a.GetMessage() != b.GetMessage() {
				t.Errorf("%s: %q and %q tell them apart", name, a.GetMessage(), b.GetMessage())
			}
			for _, id := range []string{"", "*", "job_", theirs[4:], theirs + "0", "job_" + strings.Repeat("z", 36)} {
				refused(t, name+" "+id, call(id), connect.CodeInvalidArgument, "BAD_FIELD", "job_id")
			}
		}
		w.wantState(w.globex, theirs, engine.Ready)
	})
}

// A handler without an authenticated caller in front of it refuses, and so does one for a tenant when the caller is the platform.
func TestNoCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, nil)
		_, err := w.Jobs().Submit(t.Context(), &fairleadv1.SubmitRequest{Job: &fairleadv1.JobSpec{Operation: "op"}})
		refused(t, "submit", err, connect.CodeUnauthenticated, "UNAUTHENTICATED", "")
		_, err = w.Jobs().ListJobs(w.worker, &fairleadv1.ListJobsRequest{})
		refused(t, "list by the platform", err, connect.CodeUnauthenticated, "UNAUTHENTICATED", "")
		_, err = w.Workers().Lease(t.Context(), &fairleadv1.LeaseRequest{Operations: []string{"op"}})
		refused(t, "lease", err, connect.CodeUnauthenticated, "UNAUTHENTICATED", "")
		_, err = w.Workers().Report(t.Context(), &fairleadv1.ReportRequest{})
		refused(t, "report", err, connect.CodeUnauthenticated, "UNAUTHENTICATED", "")
		// A tenant that control has not told the cell of has no lane.
		_, err = w.Jobs().Submit(as(t.Context(), application("stranger")), &fairleadv1.SubmitRequest{Job: &fairleadv1.JobSpec{Operation: "op"}})
		refused(t, "a stranger", err, connect.CodeNotFound, "NOT_FOUND", "")
	})
}
