package cellserver

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	"github.com/fairlead/fairlead/dataplane/gateway"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// wire is a cell behind real connections, with the codecs of the real gateway and a door that believes what a header says.
type wire struct {
	*world
	server *httptest.Server
	open   atomic.Int64 // requests that a handler is at
}

const callerHeader = "X-Test-Caller"

func serve(t *testing.T) *wire {
	t.Helper()
	w := &wire{world: open(t, nil)}
	mux := http.NewServeMux()
	mux.Handle(fairleadv1connect.NewJobServiceHandler(w.Jobs(), gateway.HandlerOptions()...))
	mux.Handle(fairleadv1connect.NewWorkerServiceHandler(w.Workers(), gateway.HandlerOptions()...))
	callers := map[string]cell.Caller{"acme": application("acme"), "globex": application("globex"), "worker": platformWorker()}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if c, ok := callers[r.Header.Get(callerHeader)]; ok {
			r = r.WithContext(as(r.Context(), c))
		}
		w.open.Add(1)
		defer w.open.Add(-1)
		mux.ServeHTTP(rw, r)
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(func() {
		w.Close() // long polls are answered first
		s.Close()
	})
	w.server = s
	return w
}

// protocols are the ways in which a client can speak.
func protocols() map[string][]connect.ClientOption {
	return map[string][]connect.ClientOption{
		"connect": nil, "json": {connect.WithProtoJSON()}, "grpc": {connect.WithGRPC()}, "grpc-web": {connect.WithGRPCWeb()}, "gzip": {connect.WithSendGzip()},
	}
}

// caller adds the header to every call.
func caller(name string) connect.ClientOption {
	return connect.WithInterceptors(connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
			r.Header().Set(callerHeader, name)
			return next(ctx, r)
		}
	}))
}

func (w *wire) jobs(name string, opts ...connect.ClientOption) fairleadv1connect.JobServiceClient {
	return fairleadv1connect.NewJobServiceClient(w.server.Client(), w.server.URL, append(opts, caller(name))...)
}

func (w *wire) workers(name string, opts ...connect.ClientOption) fairleadv1connect.WorkerServiceClient {
	return fairleadv1connect.NewWorkerServiceClient(w.server.Client(), w.server.URL, append(opts, caller(name))...)
}

// post sends a body as curl would, and decodes the answer.
func (w *wire) post(ctx context.Context, name, procedure, body string, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.server.URL+procedure, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(callerHeader, name)
	resp, err := w.server.Client().Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d: %s", resp.StatusCode, b)
	}
	return json.Unmarshal(b, into)
}

// journey takes a document through the whole life of a job as curl would, standing in the requests as it is, and returns what the worker
// got as its payload and what the application got as its result.
func (w *wire) journey(ctx context.Context, doc string) (payload, result string, err error) {
	var accepted struct{ JobID string }
	if err := w.post(ctx, "acme", fairleadv1connect.JobServiceSubmitProcedure, `{"job":{"operation":"op","payload":{"json":`+doc+`}}}`, &accepted); err != nil {
		return "", "", err
	}
	var leased struct {
		Leases []struct {
			JobID, Token string
			Payload      struct{ JSON string }
		}
	}
	if err := w.post(ctx, "worker", fairleadv1connect.WorkerServiceLeaseProcedure, `{"session":"s","operations":["op"],"slots":1}`, &leased); err != nil {
		return "", "", err
	}
	if len(leased.Leases) != 1 || leased.Leases[0].JobID != accepted.JobID {
		return "", "", fmt.Errorf("leased %v, submitted %s", leased, accepted.JobID)
	}
	l := leased.Leases[0]
	var reported struct {
		Results []struct{ Rejection *struct{ Message string } }
	}
	body := fmt.Sprintf(`{"session":"s","outcomes":[{"jobId":%q,"token":%q,"success":{"result":{"json":%s}}}]}`, l.JobID, l.Token, doc)
	if err := w.post(ctx, "worker", fairleadv1connect.WorkerServiceReportProcedure, body, &reported); err != nil {
		return "", "", err
	}
	if reported.Results[0].Rejection != nil {
		return "", "", fmt.Errorf("refused: %s", reported.Results[0].Rejection.Message)
	}
	var got struct {
		Job struct{ Result struct{ JSON string } }
	}
	err = w.post(ctx, "acme", fairleadv1connect.JobServiceGetJobProcedure, `{"jobId":"`+accepted.JobID+`"}`, &got)
	return l.Payload.JSON, got.Job.Result.JSON, err
}

// A JSON payload comes out as the very bytes that went in: numbers that no float holds, white space, escapes, repeated names.
func TestPayloadExactness(t *testing.T) {
	w := serve(t)
	for _, doc := range []string{
		`9007199254740993`, `-0`, `1e400`, `1.10`, `1E+2`, `123456789012345678901234567890.000`, `null`, `true`, `[]`, `{}`,
		"{\"a\" :\t1 ,\n \"b\":[ 1,2 ]\r\n}", `{"a":"\u00e9\ud83d\ude00\/\\\"\b"}`, `{"a":1,"a":2,"":3}`, `{"json":{"json":"}"},"data":"AAE="}`,
		`["é😀 ", "` + "\u2028" + `<&>"]`, `{"lone":"\ud800"}`, `[` + strings.Repeat(`[`, 900) + strings.Repeat(`]`, 900) + `]`,
	} {
		payload, result, err := w.journey(t.Context(), doc)
		if err != nil || payload != doc || result != doc {
			t.Errorf("%.80s came as %.80s and %.80s, %v", doc, payload, result, err)
		}
	}
	// Every protocol reads the same text, and sends it.
	const doc = `{"n": 9007199254740993, "s":"\u00e9" }`
	for name, opts := range protocols() {
		sent, err := w.jobs("acme", opts...).Submit(t.Context(), &fairleadv1.SubmitRequest{Job: &fairleadv1.JobSpec{Operation: "op", Payload: document(doc)}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for reader, opts := range protocols() {
			got, err := w.jobs("acme", opts...).GetJob(t.Context(), &fairleadv1.GetJobRequest{JobId: sent.GetJobId()})
			if err != nil || got.GetJob().GetPayload().GetJson() != doc {
				t.Errorf("%s to %s: %v, %v", name, reader, got, err)
			}
		}
	}
	bytes := &fairleadv1.Payload{Body: &fairleadv1.Payload_Data{Data: []byte("\x00\xff\xfe")}, ContentType: "image/x"}
	for name, opts := range protocols() {
		sent, err := w.jobs("acme", opts...).Submit(t.Context(), &fairleadv1.SubmitRequest{Job: &fairleadv1.JobSpec{Operation: "op", Payload: bytes}})
		if err != nil {
			t.Fatal(err)
		}
		got, err := w.jobs("acme", opts...).GetJob(t.Context(), &fairleadv1.GetJobRequest{JobId: sent.GetJobId()})
		if err != nil || string(got.GetJob().GetPayload().GetData()) != "\x00\xff\xfe" {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// anyJSON draws the text of a document, with white space wherever it may stand.
func anyJSON(t *rapid.T, depth int) string {
	space := func() string { return rapid.SampledFrom([]string{"", "", " ", "\n\t", "\r "}).Draw(t, "space") }
	kind := rapid.IntRange(0, 6).Draw(t, "kind")
	if depth == 0 {
		kind %= 4
	}
	switch kind {
	case 0:
		return rapid.SampledFrom([]string{"null", "true", "false", "0", "-0", "1e999"}).Draw(t, "word")
	case 1:
		return rapid.StringMatching(`-?[1-9][0-9]{0,40}(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,4})?`).Draw(t, "number")
	case 2:
		return anyText(t)
	case 3:
		return fmt.Sprint(rapid.Uint64().Draw(t, "integer"))
	case 4, 5:
		var b strings.Builder
		for i := range rapid.IntRange(0, 4).Draw(t, "elements") {
			if i > 0 {
				b.WriteString(space() + ",")
			}
			b.WriteString(space() + anyJSON(t, depth-1))
		}
		return "[" + b.String() + space() + "]"
	default:
		var b strings.Builder
		for i := range rapid.IntRange(0, 4).Draw(t, "members") {
			if i > 0 {
				b.WriteString(space() + ",")
			}
			b.WriteString(space() + anyText(t) + space() + ":" + space() + anyJSON(t, depth-1))
		}
		return "{" + b.String() + space() + "}"
	}
}

// anyText draws a JSON string, written by hand: with escapes where none are needed.
func anyText(t *rapid.T) string {
	parts := rapid.SliceOfN(rapid.SampledFrom([]string{
		"a", "json", "é", "😀", `\u0061`, `\u00e9`, `\ud83d\ude00`, `\n`, `\"`, `\\`, `\/`, "{", "}", "[", "]", ",", ":", " ", "\u2029", "<",
	}), 0, 6).Draw(t, "text")
	return `"` + strings.Join(parts, "") + `"`
}

func TestPayloadExactnessProperty(t *testing.T) {
	w := serve(t)
	ctx := t.Context()
	rapid.Check(t, func(t *rapid.T) {
		doc := anyJSON(t, 3)
		want := doc
		if strings.HasPrefix(doc, `"`) { // a string stands for the text of the document
			doc = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(doc) + `"`
		}
		payload, result, err := w.journey(ctx, doc)
		if err != nil || payload != want || result != want {
			t.Fatalf("%s came as %s and %s, %v", want, payload, result, err)
		}
	})
}

// A poll whose connection is cut takes nothing with it: the job is the next worker's, and nobody pays for it.
func TestPollWhoseConnectionIsCut(t *testing.T) {
	w := serve(t)
	for name, opts := range protocols() {
		ctx, cut := context.WithCancel(t.Context())
		done := later(func() error {
			_, err := w.workers("worker", opts...).Lease(ctx, &fairleadv1.LeaseRequest{Session: "gone-" + name, Operations: []string{"op"}, Slots: 1})
			return err
		})
		w.until("the poll is open", func() bool { return w.knows("gone-" + name) })
		cut()
		if err := <-done; connect.CodeOf(err) != connect.CodeCanceled {
			t.Errorf("%s: %v", name, err)
		}
		w.until("its handler has returned", func() bool { return w.open.Load() == 0 })
		id := w.submit(w.acme, &fairleadv1.JobSpec{Operation: "op"})
		got, err := w.workers("worker", opts...).Lease(t.Context(), &fairleadv1.LeaseRequest{
			Session: "next", Operations: []string{"op"}, Slots: 1, Wait: durationpb.New(10 * time.Second),
		})
		if err != nil || len(got.GetLeases()) != 1 || got.GetLeases()[0].GetJobId() != id || got.GetLeases()[0].GetAttempt() != 1 {
			t.Errorf("%s: %v, %v", name, got, err)
			continue
		}
		w.report(w.worker, &fairleadv1.ReportRequest{Session: "next", Outcomes: []*fairleadv1.Outcome{success(got.GetLeases()[0])}})
		w.wantState(w.acme, id, engine.Succeeded)
	}
}

// knows reports whether the cell has heard of a worker session.
func (w *wire) knows(session string) bool {
	st, err := w.Status().GetStatus(w.t.Context(), &fairleadv1.GetStatusRequest{})
	if err != nil {
		w.t.Fatal(err)
	}
	return slices.ContainsFunc(st.GetWorkers(), func(s *fairleadv1.WorkerStatus) bool { return s.GetSession() == session })
}

// until looks at done until it is true, for a few seconds.
func (w *wire) until(what string, done func() bool) {
	w.t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			w.t.Fatalf("it takes too long until %s", what)
		}
	}
}
