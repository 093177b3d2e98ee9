package cli

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fairlead/fairlead/dataplane/client"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
	"github.com/fairlead/fairlead/proto/rejection"
)

// api is every service of the in-process server, for one key over one protocol.
type api struct {
	fairleadv1connect.JobServiceClient
	fairleadv1connect.WorkerServiceClient
	fairleadv1connect.TenantServiceClient
	fairleadv1connect.KeyServiceClient
	fairleadv1connect.StatusServiceClient
}

func protocols() map[string][]connect.ClientOption {
	return map[string][]connect.ClientOption{
		"connect": nil, "json": {connect.WithProtoJSON()}, "grpc": {connect.WithGRPC()}, "grpc json": {connect.WithGRPC(), connect.WithProtoJSON()},
	}
}

func dial(t *testing.T, key client.Token, opts ...connect.ClientOption) api {
	t.Helper()
	conn, err := client.Dial(client.Config{Addr: shared.start(t).Addr(), Token: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	opts = append(slices.Clone(conn.Options), opts...)
	return api{
		fairleadv1connect.NewJobServiceClient(conn.HTTP, conn.URL, opts...), fairleadv1connect.NewWorkerServiceClient(conn.HTTP, conn.URL, opts...),
		fairleadv1connect.NewTenantServiceClient(conn.HTTP, conn.URL, opts...), fairleadv1connect.NewKeyServiceClient(conn.HTTP, conn.URL, opts...),
		fairleadv1connect.NewStatusServiceClient(conn.HTTP, conn.URL, opts...),
	}
}

// as is dial with one of the server's own keys.
func as(t *testing.T, name string, opts ...connect.ClientOption) api {
	t.Helper()
	return dial(t, token(t, shared.start(t), name), opts...)
}

// accepted is what the server has taken so far: bad input must not change it.
type accepted struct {
	jobs, tenants, keys int
}

func books(t *testing.T) accepted {
	t.Helper()
	admin := as(t, "admin")
	status, err := admin.GetStatus(t.Context(), &fairleadv1.GetStatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	tenants, err := admin.ListTenants(t.Context(), &fairleadv1.ListTenantsRequest{PageSize: 500})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := admin.ListKeys(t.Context(), &fairleadv1.ListKeysRequest{PageSize: 500})
	if err != nil {
		t.Fatal(err)
	}
	live := 0
	for _, k := range keys.GetKeys() {
		if k.GetRevokeTime() == nil {
			live++
		}
	}
	return accepted{int(status.GetAcceptedTotal()), len(tenants.GetTenants()), live}
}

// fault is a call that has to be refused, by whose key it is made, and how.
type fault struct {
	as     string
	call   func(context.Context, api) error
	code   connect.Code
	reason string
	field  string
	words  []string // that the message says: the value and the bound
}

// submitting is a submission of a good job but for what change does to it.
func submitting(field string, change func(*fairleadv1.JobSpec), words ...string) fault {
	return fault{
		as: "acme", code: connect.CodeInvalidArgument, reason: "BAD_FIELD", field: "job." + field, words: words,
		call: func(ctx context.Context, c api) error {
			job := &fairleadv1.JobSpec{Operation: "op", IdempotencyKey: "bad-input", Payload: document("1")}
			change(job)
			_, err := c.Submit(ctx, &fairleadv1.SubmitRequest{Job: job})
			return err
		},
	}
}

func document(text string) *fairleadv1.Payload {
	return &fairleadv1.Payload{Body: &fairleadv1.Payload_Json{Json: text}}
}

func in(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(time.Now().Add(d)) }

const day = 24 * time.Hour

func badJobs() map[string]fault {
	labels := func(n int) map[string]string {
		m := map[string]string{}
		for i := range n {
			m[strings.Repeat("a", i+1)] = "v"
		}
		return m
	}
	type spec = fairleadv1.JobSpec
	return map[string]fault{
		"payload above its bound":   submitting("payload", func(s *spec) { s.Payload = document(`"` + strings.Repeat("x", 64<<10-1) + `"`) }, "65537", "65536"),
		"payload above a MiB":       submitting("payload", func(s *spec) { s.Payload = document(`"` + strings.Repeat("x", 1<<20) + `"`) }, "65536"),
		"payload that is no JSON":   submitting("payload.json", func(s *spec) { s.Payload = document(`{"a":`) }, "JSON"),
		"payload, empty text":       submitting("payload.json", func(s *spec) { s.Payload = document("") }, "JSON"),
		"JSON with a type":          submitting("payload.content_type", func(s *spec) { s.Payload.ContentType = "text/plain" }, "text/plain"),
		"operation, empty":          submitting("operation", func(s *spec) { s.Operation = "" }, "empty", "128"),
		"operation, star":           submitting("operation", func(s *spec) { s.Operation = "*" }, `"*"`),
		"operation, long":           submitting("operation", func(s *spec) { s.Operation = strings.Repeat("x", 129) }, "129", "128"),
		"key, star":                 submitting("idempotency_key", func(s *spec) { s.IdempotencyKey = "*" }, `"*"`),
		"key, long":                 submitting("idempotency_key", func(s *spec) { s.IdempotencyKey = strings.Repeat("x", 129) }, "129", "128"),
		"cost, negative":            submitting("cost", func(s *spec) { s.Cost = -1 }, "-1", "0 to 1000000000000"),
		"cost, huge":                submitting("cost", func(s *spec) { s.Cost = math.MaxInt64 }, "0 to 1000000000000"),
		"delay and not before":      submitting("delay", func(s *spec) { s.Delay, s.NotBefore = durationpb.New(time.Hour), in(time.Hour) }, "not_before"),
		"delay, a year and a day":   submitting("delay", func(s *spec) { s.Delay = durationpb.New(366 * day) }, "365 days"),
		"delay, negative":           submitting("delay", func(s *spec) { s.Delay = durationpb.New(-1) }, "negative"),
		"not before, too far":       submitting("not_before", func(s *spec) { s.NotBefore = in(366 * day) }, "365 days"),
		"not before, 1960":          submitting("not_before", func(s *spec) { s.NotBefore = &timestamppb.Timestamp{Seconds: -1e8} }, "1970"),
		"deadline, past":            submitting("deadline", func(s *spec) { s.Deadline = in(-time.Minute) }, "passed", "ago"),
		"deadline, 1960":            submitting("deadline", func(s *spec) { s.Deadline = &timestamppb.Timestamp{Seconds: -1e8} }, "1970"),
		"deadline, the year 3000":   submitting("deadline", func(s *spec) { s.Deadline = &timestamppb.Timestamp{Seconds: 32503680000} }, "2262"),
		"deadline before the start": submitting("deadline", func(s *spec) { s.Deadline, s.NotBefore = in(time.Hour), in(2*time.Hour) }, "not_before"),
		"priority, high":            submitting("priority", func(s *spec) { s.Priority = 86_401 }, "86401", "-86400 to 86400"),
		"priority, low":             submitting("priority", func(s *spec) { s.Priority = math.MinInt32 }, "-86400 to 86400"),
		"17 labels":                 submitting("labels", func(s *spec) { s.Labels = labels(17) }, "17", "16"),
		"label, long name":          submitting("labels", func(s *spec) { s.Labels = map[string]string{strings.Repeat("x", 65): ""} }, "65", "64"),
		"label, long value":         submitting("labels.a", func(s *spec) { s.Labels = map[string]string{"a": strings.Repeat("x", 257)} }, "257", "256"),
		"label, star":               submitting("labels", func(s *spec) { s.Labels = map[string]string{"*": ""} }, `"*"`),
		"label, escape sequence":    submitting("labels.a", func(s *spec) { s.Labels = map[string]string{"a": "\x1b[2J"} }, "control"),
		"retention, 31 days":        submitting("retention", func(s *spec) { s.Retention = durationpb.New(31 * day) }, "744h", "720h"),
		"retention, a moment":       submitting("retention", func(s *spec) { s.Retention = durationpb.New(1) }, "1ns", "1s"),
		"time-out, 25 h":            submitting("execution_timeout", func(s *spec) { s.ExecutionTimeout = durationpb.New(25 * time.Hour) }, "25h", "24h"),
		"attempts, 101":             submitting("retry.attempts_max", func(s *spec) { s.Retry = &fairleadv1.RetryPolicy{AttemptsMax: 101} }, "101", "1 to 100"),
		"attempts, negative":        submitting("retry.attempts_max", func(s *spec) { s.Retry = &fairleadv1.RetryPolicy{AttemptsMax: -1} }, "-1", "1 to 100"),
		"back-off, inverted": submitting("retry.delay_min", func(s *spec) {
			s.Retry = &fairleadv1.RetryPolicy{DelayMin: durationpb.New(time.Hour), DelayMax: durationpb.New(time.Minute)}
		}, "1h", "1m"),
		"class, unknown":    submitting("class", func(s *spec) { s.Class = 7 }, "7", "interactive"),
		"traceparent, long": submitting("traceparent", func(s *spec) { s.Traceparent = strings.Repeat("0", 129) }, "129", "128"),
		"content type, long": submitting("payload.content_type", func(s *spec) {
			s.Payload = &fairleadv1.Payload{Body: &fairleadv1.Payload_Data{}, ContentType: strings.Repeat("x", 129)}
		}, "129", "128"),
	}
}

// refusing is a fault of a field of another call than Submit.
func refusing(as, field string, call func(context.Context, api) error, words ...string) fault {
	return fault{as: as, call: call, code: connect.CodeInvalidArgument, reason: "BAD_FIELD", field: field, words: words}
}

func badCalls() map[string]fault {
	type (
		ctx = context.Context
		job = fairleadv1.JobSpec
	)
	batch := func(jobs []*job) func(ctx, api) error {
		return func(c ctx, a api) error {
			_, err := a.SubmitBatch(c, &fairleadv1.SubmitBatchRequest{Jobs: jobs})
			return err
		}
	}
	list := func(r *fairleadv1.ListJobsRequest) func(ctx, api) error {
		return func(c ctx, a api) error { _, err := a.ListJobs(c, r); return err }
	}
	lease := func(r *fairleadv1.LeaseRequest) func(ctx, api) error {
		return func(c ctx, a api) error { _, err := a.Lease(c, r); return err }
	}
	report := func(r *fairleadv1.ReportRequest) func(ctx, api) error {
		return func(c ctx, a api) error { _, err := a.Report(c, r); return err }
	}
	many := slices.Repeat([]*job{{Operation: "op"}}, 501)
	large := slices.Repeat([]*job{{Operation: "op", Payload: document(`"` + strings.Repeat("x", 60_000) + `"`)}}, 75)
	op := []string{"op"}
	return map[string]fault{
		"batch of 501": refusing("acme", "jobs", batch(many), "501", "1 to 500"),
		"batch of 0":   refusing("acme", "jobs", batch(nil), "1 to 500"),
		"batch above 4 MiB": {
			as: "acme", call: batch(large), code: connect.CodeResourceExhausted, reason: "REQUEST_BYTES_MAX", words: []string{"4194304"},
		},
		"page of 501":  refusing("acme", "page_size", list(&fairleadv1.ListJobsRequest{PageSize: 501}), "501", "1 to 500"),
		"page of -1":   refusing("acme", "page_size", list(&fairleadv1.ListJobsRequest{PageSize: -1}), "-1", "1 to 500"),
		"page token":   refusing("acme", "page_token", list(&fairleadv1.ListJobsRequest{PageToken: "*"}), "next_page_token"),
		"list, state":  refusing("acme", "states[0]", list(&fairleadv1.ListJobsRequest{States: []fairleadv1.JobState{99}}), "99"),
		"list, filter": refusing("acme", "operation", list(&fairleadv1.ListJobsRequest{Operation: "*"}), "128"),
		"wait of 61 s": refusing("acme", "timeout", func(c ctx, a api) error {
			_, err := a.WaitJob(c, &fairleadv1.WaitJobRequest{JobId: "job_01890000-0000-7000-8000-000000000000", Timeout: durationpb.New(61 * time.Second)})
			return err
		}, "1m1s", "1m0s"),
		"lease of nothing":  refusing("worker", "operations", lease(&fairleadv1.LeaseRequest{}), "1 to 64"),
		"lease of star":     refusing("worker", "operations[0]", lease(&fairleadv1.LeaseRequest{Operations: []string{"*"}}), "128"),
		"slots":             refusing("worker", "slots", lease(&fairleadv1.LeaseRequest{Operations: op, Slots: 1001}), "1001", "1 to 1000"),
		"lease of a second": refusing("worker", "lease_duration", lease(&fairleadv1.LeaseRequest{Operations: op, LeaseDuration: durationpb.New(time.Second)}), "5s"),
		"poll of 61 s":      refusing("worker", "wait", lease(&fairleadv1.LeaseRequest{Operations: op, Wait: durationpb.New(61 * time.Second)}), "1m0s"),
		"session":           refusing("worker", "session", lease(&fairleadv1.LeaseRequest{Operations: op, Session: "*"}), "128"),
		"held token": refusing("worker", "held[0].token", lease(&fairleadv1.LeaseRequest{
			Operations: op, Held: []*fairleadv1.LeaseRef{{JobId: "job_01890000-0000-7000-8000-000000000000", Token: "*"}},
		}), "token"),
		"501 outcomes": refusing("worker", "outcomes", report(&fairleadv1.ReportRequest{Outcomes: slices.Repeat([]*fairleadv1.Outcome{{}}, 501)}), "1 to 500"),
		"extension": refusing("worker", "extensions[0].job_id", report(&fairleadv1.ReportRequest{Extensions: []*fairleadv1.Extension{{JobId: "1"}}}),
			"job_"),
		"lanes": refusing("admin", "lanes_max", func(c ctx, a api) error {
			_, err := a.GetStatus(c, &fairleadv1.GetStatusRequest{LanesMax: 501})
			return err
		}, "0 to 500"),
	}
}

func badAdministration() map[string]fault {
	type ctx = context.Context
	create := func(r *fairleadv1.CreateTenantRequest) func(ctx, api) error {
		return func(c ctx, a api) error { _, err := a.CreateTenant(c, r); return err }
	}
	update := func(r *fairleadv1.UpdateTenantRequest) func(ctx, api) error {
		return func(c ctx, a api) error { _, err := a.UpdateTenant(c, r); return err }
	}
	key := func(r *fairleadv1.CreateKeyRequest) func(ctx, api) error {
		return func(c ctx, a api) error { _, err := a.CreateKey(c, r); return err }
	}
	revoke := func(id string) func(ctx, api) error {
		return func(c ctx, a api) error { _, err := a.RevokeKey(c, &fairleadv1.RevokeKeyRequest{Id: id}); return err }
	}
	submit := []fairleadv1.Scope{fairleadv1.Scope_SCOPE_SUBMIT}
	m := map[string]fault{
		"tenant, star":      refusing("admin", "id", create(&fairleadv1.CreateTenantRequest{Id: "*"}), "128"),
		"tenant, empty":     refusing("admin", "id", create(&fairleadv1.CreateTenantRequest{}), "empty"),
		"tenant, backlog":   refusing("admin", "backlog_jobs_max", create(&fairleadv1.CreateTenantRequest{Id: "t", BacklogJobsMax: -1}), "-1"),
		"tenant, escape":    refusing("admin", "display_name", create(&fairleadv1.CreateTenantRequest{Id: "t", DisplayName: "\x1b"})),
		"key of star":       refusing("admin", "tenant", key(&fairleadv1.CreateKeyRequest{Tenant: "*", Scopes: submit}), "128"),
		"key of no scope":   refusing("admin", "scopes", key(&fairleadv1.CreateKeyRequest{Tenant: "acme"})),
		"key, no such":      refusing("admin", "scopes[0]", key(&fairleadv1.CreateKeyRequest{Tenant: "acme", Scopes: []fairleadv1.Scope{77}}), "77"),
		"key of no time":    refusing("admin", "lifetime", key(&fairleadv1.CreateKeyRequest{Tenant: "acme", Scopes: submit, Lifetime: durationpb.New(0)})),
		"revoke star":       refusing("admin", "id", revoke("*"), "128"),
		"revoke nothing":    refusing("admin", "id", revoke(""), "empty"),
		"revoke a stranger": {as: "admin", call: revoke("key_nobody"), code: connect.CodeNotFound, reason: "NOT_FOUND", field: "key"},
		"tenant twice": {
			as: "admin", call: create(&fairleadv1.CreateTenantRequest{Id: "acme"}), code: connect.CodeAlreadyExists, reason: "ALREADY_EXISTS", field: "id",
		},
		"update a stranger": {
			as: "admin", call: update(&fairleadv1.UpdateTenantRequest{Id: "nobody", Weight: new(1.0)}), code: connect.CodeNotFound, reason: "NOT_FOUND", field: "tenant",
		},
		"key of a stranger": {
			as: "admin", call: key(&fairleadv1.CreateKeyRequest{Tenant: "nobody", Scopes: submit}), code: connect.CodeNotFound, reason: "NOT_FOUND", field: "tenant",
		},
	}
	for name, w := range map[string]float64{"NaN": math.NaN(), "infinity": math.Inf(1), "-infinity": math.Inf(-1), "-1": -1, "1e9": 1e9} {
		m["create, weight "+name] = refusing("admin", "weight", create(&fairleadv1.CreateTenantRequest{Id: "t", Weight: &w}), "0 to 1000000")
		m["update, weight "+name] = refusing("admin", "weight", update(&fairleadv1.UpdateTenantRequest{Id: "acme", Weight: &w}), "0 to 1000000")
	}
	return m
}

// Every kind of bad input is refused by every protocol with the same code, reason, field and bound, and leaves nothing behind.
func TestBadInputByRPC(t *testing.T) {
	before := books(t)
	for protocol, opts := range protocols() {
		callers := map[string]api{}
		for _, name := range []string{"acme", "worker", "admin"} {
			callers[name] = as(t, name, opts...)
		}
		for _, table := range []map[string]fault{badJobs(), badCalls(), badAdministration()} {
			for name, f := range table {
				err := f.call(t.Context(), callers[f.as])
				r := rejection.From(err)
				if connect.CodeOf(err) != f.code || r.GetCode() != f.code.String() || r.GetReason() != f.reason || r.GetField() != f.field {
					t.Errorf("%s by %s: %v, %v, want %v %s of %q", name, protocol, err, r, f.code, f.reason, f.field)
				}
				if !strings.Contains(r.GetMessage(), ": ") {
					t.Errorf("%s by %s: %q has no remedy", name, protocol, r.GetMessage())
				}
				for _, w := range f.words {
					if !strings.Contains(r.GetMessage(), w) {
						t.Errorf("%s by %s: %q does not say %q", name, protocol, r.GetMessage(), w)
					}
				}
			}
		}
	}
	if after := books(t); after != before {
		t.Errorf("%+v after bad input, %+v before", after, before)
	}
}

// In a batch only what is at fault is refused, and an operation that nobody has heard of is as good as any.
func TestBatchByRPC(t *testing.T) {
	for protocol, opts := range protocols() {
		resp, err := as(t, "acme", opts...).SubmitBatch(t.Context(), &fairleadv1.SubmitBatchRequest{Jobs: []*fairleadv1.JobSpec{
			{Operation: "nobody.has-heard:of_it." + strings.Repeat("x", 100)}, {Operation: "op", Cost: -5}, {Operation: "9"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		r := resp.GetResults()
		if r[0].GetRejection() != nil || r[2].GetRejection() != nil || r[1].GetRejection().GetField() != "jobs[1].cost" ||
			r[1].GetRejection().GetCode() != "invalid_argument" || r[1].GetRejection().GetReason() != "BAD_FIELD" {
			t.Errorf("%s: %v", protocol, resp)
		}
	}
}

// A key that stands for another body is refused by naming the first job; the same body is that job.
func TestKeyTakenByRPC(t *testing.T) {
	for protocol, opts := range protocols() {
		c := as(t, "acme", opts...)
		job := &fairleadv1.JobSpec{Operation: "op", IdempotencyKey: "taken-" + strings.ReplaceAll(protocol, " ", "-"), Payload: document(`{"n":1}`)}
		first, err := c.Submit(t.Context(), &fairleadv1.SubmitRequest{Job: job})
		if err != nil {
			t.Fatal(err)
		}
		again, err := c.Submit(t.Context(), &fairleadv1.SubmitRequest{Job: job})
		if err != nil || again.GetJobId() != first.GetJobId() || !again.GetDuplicate() {
			t.Errorf("%s: %v, %v", protocol, again, err)
		}
		job.Payload = document(`{"n": 1}`) // other text is another body
		_, err = c.Submit(t.Context(), &fairleadv1.SubmitRequest{Job: job})
		r := rejection.From(err)
		if connect.CodeOf(err) != connect.CodeAlreadyExists || r.GetReason() != "KEY_TAKEN" || r.GetField() != "idempotency_key" ||
			r.GetExistingJobId() != first.GetJobId() || !strings.Contains(r.GetMessage(), first.GetJobId()) {
			t.Errorf("%s: %v, %v", protocol, err, r)
		}
	}
}

// Another tenant's job is not found by any call, in the words for one that never was; what is no id is a fault.
func TestAnothersJobByRPC(t *testing.T) {
	theirs, err := as(t, "globex").Submit(t.Context(), &fairleadv1.SubmitRequest{Job: &fairleadv1.JobSpec{Operation: "op"}})
	if err != nil {
		t.Fatal(err)
	}
	for protocol, opts := range protocols() {
		c := as(t, "acme", opts...)
		for name, call := range map[string]func(id string) error{
			"get": func(id string) error {
				_, err := c.GetJob(t.Context(), &fairleadv1.GetJobRequest{JobId: id})
				return err
			},
			"cancel": func(id string) error {
				_, err := c.CancelJob(t.Context(), &fairleadv1.CancelJobRequest{JobId: id})
				return err
			},
			"retry": func(id string) error {
				_, err := c.RetryJob(t.Context(), &fairleadv1.RetryJobRequest{JobId: id})
				return err
			},
			"wait": func(id string) error {
				_, err := c.WaitJob(t.Context(), &fairleadv1.WaitJobRequest{JobId: id})
				return err
			},
			"explain": func(id string) error {
				_, err := c.ExplainJob(t.Context(), &fairleadv1.ExplainJobRequest{JobId: id})
				return err
			},
		} {
			a, b := call(theirs.GetJobId()), call("job_01890000-0000-7000-8000-000000000000")
			if connect.CodeOf(a) != connect.CodeNotFound || rejection.From(a).GetReason() != "NOT_FOUND" || a.Error() != b.Error() {
				t.Errorf("%s by %s: %v of another's, %v of nobody's", name, protocol, a, b)
			}
			for _, id := range []string{"", "*", "job_*", "../job", theirs.GetJobId() + "0", strings.Repeat("x", 5000)} {
				err := call(id)
				if r := rejection.From(err); connect.CodeOf(err) != connect.CodeInvalidArgument || r.GetField() != "job_id" || !strings.Contains(r.GetMessage(), "UUID") ||
					len(r.GetMessage()) > 500 {
					t.Errorf("%s of %.40q by %s: %v", name, id, protocol, err)
				}
			}
		}
		list, err := c.ListJobs(t.Context(), &fairleadv1.ListJobsRequest{PageSize: 500})
		if err != nil || slices.ContainsFunc(list.GetJobs(), func(j *fairleadv1.Job) bool { return j.GetId() == theirs.GetJobId() }) {
			t.Errorf("%s lists another's job, or %v", protocol, err)
		}
	}
}

// A key does what its scopes say, dies with the answer to its revocation, and says no more to a stranger than to a former friend.
func TestKeysByRPC(t *testing.T) {
	admin := as(t, "admin")
	for protocol, opts := range protocols() {
		made, err := admin.CreateKey(t.Context(), &fairleadv1.CreateKeyRequest{Tenant: "acme", Scopes: []fairleadv1.Scope{fairleadv1.Scope_SCOPE_READ}})
		if err != nil {
			t.Fatal(err)
		}
		c := dial(t, client.Token(made.GetSecret()), opts...)
		list := func(c api) error { _, err := c.ListJobs(t.Context(), &fairleadv1.ListJobsRequest{}); return err }
		if err := list(c); err != nil {
			t.Errorf("%s: %v", protocol, err)
		}
		_, err = c.Submit(t.Context(), &fairleadv1.SubmitRequest{Job: &fairleadv1.JobSpec{Operation: "op"}})
		denied(t, protocol, err, connect.CodePermissionDenied, "SCOPE_MISSING", "submit", "read", made.GetKey().GetId())
		_, err = c.Lease(t.Context(), &fairleadv1.LeaseRequest{Operations: []string{"op"}})
		denied(t, protocol, err, connect.CodePermissionDenied, "SCOPE_MISSING", "work")
		_, err = c.ListTenants(t.Context(), &fairleadv1.ListTenantsRequest{})
		denied(t, protocol, err, connect.CodePermissionDenied, "SCOPE_MISSING", "admin")
		_, err = as(t, "worker", opts...).Submit(t.Context(), &fairleadv1.SubmitRequest{Job: &fairleadv1.JobSpec{Operation: "op"}})
		denied(t, protocol, err, connect.CodePermissionDenied, "SCOPE_MISSING", "submit")

		if _, err := admin.RevokeKey(t.Context(), &fairleadv1.RevokeKeyRequest{Id: made.GetKey().GetId()}); err != nil {
			t.Fatal(err)
		}
		revoked := list(c) // at once: the answer to the revocation was the last moment
		denied(t, protocol, revoked, connect.CodeUnauthenticated, "UNAUTHENTICATED", "revoked")
		stranger := list(dial(t, "flk_nobody", opts...))
		denied(t, protocol, stranger, connect.CodeUnauthenticated, "UNAUTHENTICATED", "unknown")
		if revoked.Error() != stranger.Error() {
			t.Errorf("%s: %v and %v tell them apart", protocol, revoked, stranger)
		}
		denied(t, protocol, list(dial(t, "", opts...)), connect.CodeUnauthenticated, "UNAUTHENTICATED")
	}
}

func denied(t *testing.T, protocol string, err error, code connect.Code, reason string, words ...string) {
	t.Helper()
	r := rejection.From(err)
	if connect.CodeOf(err) != code || r.GetReason() != reason {
		t.Errorf("%s: %v, %v, want %v %s", protocol, err, r, code, reason)
	}
	for _, w := range words {
		if !strings.Contains(r.GetMessage(), w) {
			t.Errorf("%s: %q does not say %q", protocol, r.GetMessage(), w)
		}
	}
}

// A worker's faults by outcome, and a caller whose time is over.
func TestReportAndDeadlineByRPC(t *testing.T) {
	for protocol, opts := range protocols() {
		c := as(t, "worker", opts...)
		resp, err := c.Report(t.Context(), &fairleadv1.ReportRequest{Outcomes: []*fairleadv1.Outcome{
			{JobId: "job_01890000-0000-7000-8000-000000000000", Token: "no token", Result: &fairleadv1.Outcome_Success{Success: &fairleadv1.Success{}}},
			{JobId: "job_01890000-0000-7000-8000-000000000000", Token: "1.1.1"},
			{JobId: "job_01890000-0000-7000-8000-000000000000", Token: "1.1.1", Result: &fairleadv1.Outcome_Success{Success: &fairleadv1.Success{}}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []struct{ code, field string }{{"invalid_argument", "outcomes[0].token"}, {"invalid_argument", "outcomes[1].result"}, {"not_found", ""}} {
			if r := resp.GetResults()[i].GetRejection(); r.GetCode() != want.code || r.GetField() != want.field {
				t.Errorf("%s: outcome %d: %v", protocol, i, r)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err = c.Lease(ctx, &fairleadv1.LeaseRequest{Operations: []string{"nobody.submits-this"}, Wait: durationpb.New(30 * time.Second)})
		cancel()
		if connect.CodeOf(err) != connect.CodeDeadlineExceeded {
			t.Errorf("%s: a poll past its deadline: %v", protocol, err)
		}
	}
}
