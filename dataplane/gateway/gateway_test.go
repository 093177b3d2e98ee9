package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/fairlead/fairlead/cell"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
	"github.com/fairlead/fairlead/proto/rejection"
)

// fakeDirectory is a directory of the keys whose secrets index it.
type fakeDirectory map[Secret]cell.Caller

func (f fakeDirectory) Lookup(hash [32]byte) (cell.Caller, bool) {
	for s, c := range f {
		if s.Hash() == hash {
			return c, true
		}
	}
	return cell.Caller{}, false
}

// fakeJobs answers submissions by what submit says.
type fakeJobs struct {
	fairleadv1connect.UnimplementedJobServiceHandler
	submit func(context.Context, *fairleadv1.SubmitRequest) (*fairleadv1.SubmitResponse, error)
}

func (f fakeJobs) Submit(ctx context.Context, r *fairleadv1.SubmitRequest) (*fairleadv1.SubmitResponse, error) {
	return f.submit(ctx, r)
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func open(t *testing.T, dir Directory, change func(*Config)) *Gateway {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Log = quiet()
	if change != nil {
		change(&cfg)
	}
	g, err := New(cfg, dir)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func tenantKey(ps ...cell.Permission) cell.Caller {
	return cell.Caller{Key: "key_t", Tenant: "acme", Permissions: ps}
}

func platformKey(ps ...cell.Permission) cell.Caller {
	return cell.Caller{Key: "key_p", Permissions: ps}
}

// serveJobs starts a server like the real one, with submissions answered by submit.
func serveJobs(
	t *testing.T, g *Gateway, submit func(context.Context, *fairleadv1.SubmitRequest) (*fairleadv1.SubmitResponse, error),
) *httptest.Server {
	t.Helper()
	mux, err := Mux(nil, Mounted(fairleadv1connect.NewJobServiceHandler(fakeJobs{submit: submit}, HandlerOptions()...)))
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(nil)
	s.Config = Server(g.Handler(mux))
	s.Listener = g.Listener(s.Listener)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func withKey(s Secret) connect.ClientOption {
	return connect.WithInterceptors(connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
			r.Header().Set("Authorization", "Bearer "+string(s))
			return next(ctx, r)
		}
	}))
}

// The table has a row for each procedure of the API and for nothing that does not exist.
func TestPermissionsCoverTheAPI(t *testing.T) {
	want := map[string]bool{}
	protoregistry.GlobalFiles.RangeFilesByPackage("fairlead.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for j := range s.Methods().Len() {
				want["/"+string(s.FullName())+"/"+string(s.Methods().Get(j).Name())] = true
			}
		}
		return true
	})
	if len(want) < 60 {
		t.Fatalf("only %d procedures in the registry", len(want))
	}
	for procedure := range want {
		n, ok := permissions[procedure]
		if !ok {
			t.Errorf("%s has no row", procedure)
		}
		service := strings.Split(procedure, "/")[1]
		agents := betweenAgents(service)
		join := procedure == fairleadv1connect.RegistryServiceJoinProcedure
		switch {
		case n.open != join:
			t.Errorf("%s is open: %v", procedure, n.open)
		case n.open && (n.atMost == 0 || n.bytesMax == 0):
			t.Errorf("%s is open and has no bounds", procedure)
		case n.internal != (agents && !join):
			t.Errorf("%s is internal: %v", procedure, n.internal)
		case !n.open && !n.internal && n.permission == 0:
			t.Errorf("%s asks for no permission", procedure)
		}
	}
	for procedure := range permissions {
		if strings.HasPrefix(procedure, "/fairlead.") && !want[procedure] {
			t.Errorf("%s has a row and does not exist", procedure)
		}
	}
}

// identity is one kind of caller of the matrix.
type identity struct {
	header string
	caller *cell.Caller // nil for nobody known
}

func identities() (map[string]identity, fakeDirectory) {
	dir := fakeDirectory{}
	ids := map[string]identity{
		"none":         {},
		"garbage":      {header: "Bearer \x01\x02"},
		"empty bearer": {header: "Bearer "},
		"basic":        {header: "Basic Zm9vOmJhcg=="},
		"no scheme":    {header: "known-acme-submit"},
		"revoked":      {header: "Bearer revoked"}, // a directory does not know revoked and expired keys
		"huge":         {header: "Bearer " + strings.Repeat("x", 10_000)},
	}
	add := func(name string, c cell.Caller) {
		s := Secret("known-" + strings.ReplaceAll(name, " ", "-"))
		dir[s] = c
		ids[name] = identity{header: "Bearer " + string(s), caller: &c}
	}
	for _, tenant := range []cell.TenantID{"", "acme"} {
		name := "platform"
		if tenant != "" {
			name = string(tenant)
		}
		add(name+" nothing", cell.Caller{Key: "key", Tenant: tenant})
		add(name+" all", cell.Caller{Key: "key", Tenant: tenant, Permissions: cell.Permissions()})
		for _, p := range cell.Permissions() {
			add(name+" "+p.String(), cell.Caller{Key: "key", Tenant: tenant, Permissions: []cell.Permission{p}})
		}
	}
	return ids, dir
}

// betweenAgents says, apart from the code under test, which services no key may call.
func betweenAgents(service string) bool {
	return slices.Contains([]string{
		"fairlead.v1.RegistryService", "fairlead.v1.ReplicaService", "fairlead.v1.TenancyService", "fairlead.v1.LaneService",
	}, service)
}

// allowed says, apart from the code under test, what the answer for a caller must be: 0 for let through.
func allowed(procedure string, c *cell.Caller) connect.Code {
	service, method, _ := strings.Cut(strings.TrimPrefix(procedure, "/"), "/")
	switch {
	case service == "grpc.health.v1.Health", method == "Join":
		return 0
	case betweenAgents(service):
		return connect.CodePermissionDenied
	case c == nil:
		return connect.CodeUnauthenticated
	case strings.HasPrefix(service, "grpc.reflection."):
		return 0
	}
	var p cell.Permission
	tenants, platform := true, true
	switch service {
	case "fairlead.v1.JobService":
		platform = false
		p = cell.PermissionRead
		if slices.Contains([]string{"Submit", "SubmitBatch", "CancelJob", "RetryJob"}, method) {
			p = cell.PermissionSubmit
		}
	case "fairlead.v1.WorkerService":
		p = cell.PermissionWork
	case "fairlead.v1.StatusService":
		p, tenants = cell.PermissionOperate, false
	case "fairlead.v1.TenantService":
		p, tenants = cell.PermissionAdmin, false
		if method == "ExplainTenant" && slices.Contains(c.Permissions, cell.PermissionOperate) {
			p = cell.PermissionOperate
		}
	default:
		p, tenants = cell.PermissionAdmin, false
		// What reads, and what moves work without changing who is part of the cluster.
		operators := []string{
			"GetCluster", "ListMembers", "ListPeers", "GetCell", "ListCells", "CordonCell", "DrainCell", "EvacuateCell", "ShowPlacement",
			"PlanPlacement", "ApplyPlacement", "CheckPlacement", "ExplainPlacement", "ListAudit",
			"PlanMigration", "StartMigration", "GetMigration", "ListMigrations", "ControlMigration", "DiffMigration",
		}
		if slices.Contains(operators, method) && slices.Contains(c.Permissions, cell.PermissionOperate) {
			p = cell.PermissionOperate
		}
	}
	if !slices.Contains(c.Permissions, p) || c.Tenant == "" && !platform || c.Tenant != "" && !tenants {
		return connect.CodePermissionDenied
	}
	return 0
}

// untouched is a body that must not be read.
type untouched struct{ t *testing.T }

func (u untouched) Read([]byte) (int, error) {
	u.t.Error("the body was read before the caller was known")
	return 0, io.EOF
}

// Every procedure with every kind of caller: the answer is as stated, and a refused request's body is not read.
func TestMatrix(t *testing.T) {
	ids, dir := identities()
	g := open(t, dir, nil)
	var reached *cell.Caller
	next := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		c, ok := CallerFrom(r.Context())
		if reached = &c; !ok {
			reached = &cell.Caller{Key: "nobody"}
		}
	})
	tried := 0
	for _, procedure := range slices.Sorted(maps.Keys(permissions)) {
		for name, id := range ids {
			want := allowed(procedure, id.caller)
			reached = nil
			var body io.Reader = strings.NewReader("{}")
			if want != 0 {
				body = untouched{t}
			}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, procedure, body)
			r.Header.Set("Content-Type", "application/json")
			if id.header != "" {
				r.Header["Authorization"] = []string{id.header}
			}
			w := httptest.NewRecorder()
			g.Handler(next).ServeHTTP(w, r)
			tried++
			if want == 0 {
				if reached == nil {
					t.Errorf("%s by %s: refused: %s", procedure, name, w.Body)
				} else if n := permissions[procedure]; !n.open && (reached.Key != "key" || reached.Tenant != id.caller.Tenant) {
					t.Errorf("%s by %s: the handler saw %v", procedure, name, *reached)
				}
				continue
			}
			if reached != nil {
				t.Errorf("%s by %s: let through", procedure, name)
			}
			if got := codeIn(t, w.Body.Bytes()); got != want.String() {
				t.Errorf("%s by %s: %s, want %v", procedure, name, got, want)
			}
			if want == connect.CodeUnauthenticated && w.Header().Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("%s by %s: WWW-Authenticate is missing", procedure, name)
			}
		}
	}
	if tried < 60*20 {
		t.Errorf("only %d tried", tried)
	}
}

func codeIn(t *testing.T, body []byte) string {
	t.Helper()
	var e struct{ Code, Message string }
	if err := json.Unmarshal(body, &e); err != nil {
		t.Fatalf("%v in %q", err, body)
	}
	return e.Code
}

// What has no row is refused, however powerful the key, and whatever its path looks like.
func TestDenyByDefault(t *testing.T) {
	g := open(t, fakeDirectory{"s": platformKey(cell.Permissions()...)}, nil)
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("let through") })
	for _, path := range []string{
		"/", "/fairlead.v1.JobService/Sumbit", "/fairlead.v1.JobService/Submit/", "//fairlead.v1.JobService/Submit",
		"/fairlead.v1.JobService/submit", "/fairlead.v1.Other/Submit", "/x/../fairlead.v1.JobService/Submit", "/" + strings.Repeat("x", 5000),
		"/fairlead.v1.JobService/Submit%00",
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, untouched{t})
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer s")
		w := httptest.NewRecorder()
		g.Handler(next).ServeHTTP(w, r)
		if got := codeIn(t, w.Body.Bytes()); got != "permission_denied" {
			t.Errorf("%.60s: %s", path, got)
		}
		if w.Body.Len() > 2000 {
			t.Errorf("%.60s: an answer of %d bytes", path, w.Body.Len())
		}
	}
}

// A refusal says in each protocol what is needed and what the key has.
func TestRefusalsSayWhatToDo(t *testing.T) {
	g := open(t, fakeDirectory{
		"reader": tenantKey(cell.PermissionRead, cell.PermissionWork), "platform": platformKey(cell.PermissionSubmit),
	}, nil)
	s := serveJobs(t, g, func(context.Context, *fairleadv1.SubmitRequest) (*fairleadv1.SubmitResponse, error) {
		t.Error("let through")
		return &fairleadv1.SubmitResponse{}, nil
	})
	cases := map[string]struct {
		key    Secret
		code   connect.Code
		reason string
		words  []string
	}{
		"unknown":     {"nobody", connect.CodeUnauthenticated, "UNAUTHENTICATED", []string{"unknown, revoked or expired"}},
		"wrong scope": {"reader", connect.CodePermissionDenied, "SCOPE_MISSING", []string{"JobService/Submit", "submit", "read, work", "key_t"}},
		"no tenant":   {"platform", connect.CodePermissionDenied, "TENANT_MISSING", []string{"tenant", "key_p", "platform"}},
	}
	protocols := map[string][]connect.ClientOption{
		"connect": nil, "json": {connect.WithProtoJSON()}, "grpc": {connect.WithGRPC()}, "grpc-web": {connect.WithGRPCWeb()},
	}
	for name, c := range cases {
		for protocol, opts := range protocols {
			client := fairleadv1connect.NewJobServiceClient(s.Client(), s.URL, append(opts, withKey(c.key))...)
			_, err := client.Submit(t.Context(), &fairleadv1.SubmitRequest{})
			if connect.CodeOf(err) != c.code {
				t.Errorf("%s by %s: %v", name, protocol, err)
			}
			r := rejection.From(err)
			if r.GetReason() != c.reason {
				t.Errorf("%s by %s: %v", name, protocol, r)
			}
			for _, word := range c.words {
				if !strings.Contains(r.GetMessage(), word) {
					t.Errorf("%s by %s: %q does not say %q", name, protocol, r.GetMessage(), word)
				}
			}
		}
	}
}

// A request that is let through arrives whole, with its caller, in every protocol.
func TestCallerReachesTheHandler(t *testing.T) {
	g := open(t, fakeDirectory{"s": tenantKey(cell.PermissionSubmit)}, nil)
	s := serveJobs(t, g, func(ctx context.Context, r *fairleadv1.SubmitRequest) (*fairleadv1.SubmitResponse, error) {
		c, ok := CallerFrom(ctx)
		if !ok {
			return nil, errors.New("no caller")
		}
		return &fairleadv1.SubmitResponse{JobId: string(c.Tenant) + " " + r.GetJob().GetOperation()}, nil
	})
	for name, opts := range map[string][]connect.ClientOption{
		"connect": nil, "json": {connect.WithProtoJSON()}, "grpc": {connect.WithGRPC()}, "grpc-web": {connect.WithGRPCWeb()},
		"gzip": {connect.WithSendGzip()},
	} {
		client := fairleadv1connect.NewJobServiceClient(s.Client(), s.URL, append(opts, withKey("s"))...)
		got, err := client.Submit(t.Context(), &fairleadv1.SubmitRequest{Job: &fairleadv1.JobSpec{Operation: "op"}})
		if err != nil || got.GetJobId() != "acme op" {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if _, ok := CallerFrom(t.Context()); ok {
		t.Error("a context of nobody's has a caller")
	}
}

// A key has so many requests in flight and no more; another key is not held up; what ends makes room.
func TestRequestsPerKey(t *testing.T) {
	const bound = 3
	g := open(t, fakeDirectory{"s": tenantKey(cell.PermissionSubmit), "other": {
		Key: "key_o", Tenant: "other", Permissions: []cell.Permission{cell.PermissionSubmit},
	}}, func(c *Config) { c.RequestsPerKeyMax = bound })
	entered, release := make(chan struct{}), make(chan struct{})
	s := serveJobs(t, g, func(ctx context.Context, _ *fairleadv1.SubmitRequest) (*fairleadv1.SubmitResponse, error) {
		if c, _ := CallerFrom(ctx); c.Tenant == "other" {
			return &fairleadv1.SubmitResponse{}, nil
		}
		entered <- struct{}{}
		<-release
		return &fairleadv1.SubmitResponse{}, nil
	})
	client := fairleadv1connect.NewJobServiceClient(s.Client(), s.URL, withKey("s"))
	var wg sync.WaitGroup
	for range bound {
		wg.Go(func() {
			if _, err := client.Submit(t.Context(), &fairleadv1.SubmitRequest{}); err != nil {
				t.Error(err)
			}
		})
		<-entered
	}
	_, err := client.Submit(t.Context(), &fairleadv1.SubmitRequest{})
	r := rejection.From(err)
	if connect.CodeOf(err) != connect.CodeResourceExhausted || r.GetLimit() != LimitRequestsPerKey || r.GetBound() != bound ||
		r.GetValue() != bound+1 || r.GetRetryAfter() == nil {
		t.Errorf("one too many: %v, %v", err, r)
	}
	other := fairleadv1connect.NewJobServiceClient(s.Client(), s.URL, withKey("other"))
	if _, err := other.Submit(t.Context(), &fairleadv1.SubmitRequest{}); err != nil {
		t.Errorf("another key: %v", err)
	}
	close(release)
	wg.Wait()
	wg.Go(func() { <-entered })
	if _, err := client.Submit(t.Context(), &fairleadv1.SubmitRequest{}); err != nil {
		t.Errorf("after they ended: %v", err)
	}
	wg.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.inFlight) != 0 {
		t.Errorf("%v in flight at the end", g.inFlight)
	}
}

// Join is open and bounded: so many at a time, each so large, whoever asks.
func TestJoinIsBounded(t *testing.T) {
	g := open(t, fakeDirectory{}, nil)
	entered, release := make(chan struct{}), make(chan struct{})
	h := g.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			t.Error(err)
		}
		entered <- struct{}{}
		<-release
	}))
	join := func(body string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, fairleadv1connect.RegistryServiceJoinProcedure, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	if w := join(strings.Repeat(" ", int(joinBytesMax)+1)); w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), "65536") {
		t.Errorf("too large: %d %s", w.Code, w.Body)
	}
	var wg sync.WaitGroup
	for range joinsMax {
		wg.Go(func() { join("{}") })
		<-entered
	}
	if w := join("{}"); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), LimitJoins) || w.Header().Get("Retry-After") == "" {
		t.Errorf("one too many: %d %s", w.Code, w.Body)
	}
	close(release)
	wg.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.open) != 0 {
		t.Errorf("%v in flight at the end", g.open)
	}
}

// A body that is too long gets the typed answer, whether its length is told first or it just goes on.
func TestRequestBytes(t *testing.T) {
	g := open(t, fakeDirectory{"s": tenantKey(cell.PermissionSubmit)}, nil)
	s := serveJobs(t, g, func(context.Context, *fairleadv1.SubmitRequest) (*fairleadv1.SubmitResponse, error) {
		return &fairleadv1.SubmitResponse{}, nil
	})
	send := func(body io.Reader) (status int, answer []byte) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+fairleadv1connect.JobServiceSubmitProcedure, body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer s")
		resp, err := s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }() // read to its end below
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, b
	}
	fill := func(n int) []byte { return fmt.Appendf(nil, `{"job":{"operation":"%s"}}`, strings.Repeat("x", n)) }
	for name, body := range map[string]io.Reader{
		"told":       bytes.NewReader(fill(RequestBytesMax)),
		"goes on":    io.MultiReader(bytes.NewReader(fill(RequestBytesMax))),
		"goes on 2x": io.MultiReader(bytes.NewReader(fill(2 * RequestBytesMax))),
	} {
		status, b := send(body)
		if status != http.StatusTooManyRequests || !bytes.Contains(b, []byte("of at most 4194304")) ||
			!bytes.Contains(b, []byte("fairlead.v1.Rejection")) {
			t.Errorf("%s: %d %s", name, status, b)
		}
	}
	if status, b := send(bytes.NewReader(fill(RequestBytesMax - 100))); status != http.StatusOK {
		t.Errorf("just below: %d %s", status, b)
	}
	// Small on the wire, large in memory.
	client := fairleadv1connect.NewJobServiceClient(s.Client(), s.URL, withKey("s"), connect.WithSendGzip())
	_, err := client.Submit(t.Context(), &fairleadv1.SubmitRequest{Job: &fairleadv1.JobSpec{Operation: strings.Repeat("x", 2*RequestBytesMax)}})
	if connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("compressed: %v", err)
	}
}

func TestContentType(t *testing.T) {
	g := open(t, fakeDirectory{"s": tenantKey(cell.PermissionSubmit)}, nil)
	s := serveJobs(t, g, func(context.Context, *fairleadv1.SubmitRequest) (*fairleadv1.SubmitResponse, error) {
		return &fairleadv1.SubmitResponse{JobId: "job_1"}, nil
	})
	for contentType, want := range map[string]int{
		"application/json":                  http.StatusOK,
		"application/json; charset=UTF-8":   http.StatusOK,
		"application/x-www-form-urlencoded": http.StatusBadRequest, // what curl -d sends unless told
		"text/plain":                        http.StatusBadRequest,
		"":                                  http.StatusBadRequest,
		"application/json; charset":         http.StatusBadRequest,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+fairleadv1connect.JobServiceSubmitProcedure,
			strings.NewReader(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header["Content-Type"] = []string{contentType}
		r.Header.Set("Authorization", "bearer  s")
		resp, err := s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != want || want != http.StatusOK && !bytes.Contains(b, []byte("application/json")) {
			t.Errorf("%q: %d %s", contentType, resp.StatusCode, b)
		}
	}
}

// Health answers a stranger, with what the process has set.
func TestHealth(t *testing.T) {
	g := open(t, fakeDirectory{}, nil)
	checker := grpchealth.NewStaticChecker("fairlead.v1.JobService")
	mux, err := Mux(checker, Mounted(fairleadv1connect.NewJobServiceHandler(fakeJobs{}, HandlerOptions()...)))
	if err != nil {
		t.Fatal(err)
	}
	for status, want := range map[grpchealth.Status]string{
		grpchealth.StatusServing: "STATUS_SERVING", grpchealth.StatusNotServing: "STATUS_NOT_SERVING",
	} {
		checker.SetStatus("fairlead.v1.JobService", status)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/grpc.health.v1.Health/Check",
			strings.NewReader(`{"service":"fairlead.v1.JobService"}`))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		g.Handler(mux).ServeHTTP(w, r)
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `_`+want+`"`) {
			t.Errorf("%d %s, want %s", w.Code, w.Body, want)
		}
	}
}

// Reflection answers any key, and lists what is served.
func TestReflection(t *testing.T) {
	g := open(t, fakeDirectory{"s": tenantKey()}, nil)
	s := serveJobs(t, g, nil)
	for header, ok := range map[string]bool{"Bearer s": true, "Bearer t": false, "": false} {
		client := grpcreflect.NewClient(s.Client(), s.URL, connect.WithGRPC())
		stream := client.NewStream(t.Context(), grpcreflect.WithRequestHeaders(http.Header{"Authorization": {header}}))
		names, err := stream.ListServices()
		if ok && (err != nil || !slices.Contains(names, "fairlead.v1.JobService")) {
			t.Errorf("%q: %v, %v", header, names, err)
		}
		if !ok && connect.CodeOf(err) != connect.CodeUnauthenticated {
			t.Errorf("%q: %v, %v", header, names, err)
		}
		if _, err := stream.Close(); ok && err != nil {
			t.Error(err)
		}
	}
}

// A panic is the caller's internal error, without what it said, and the process lives.
func TestPanic(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	var log bytes.Buffer
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	g := open(t, fakeDirectory{"s": tenantKey(cell.PermissionSubmit)}, nil)
	s := serveJobs(t, g, func(context.Context, *fairleadv1.SubmitRequest) (*fairleadv1.SubmitResponse, error) {
		panic("the inner detail")
	})
	client := fairleadv1connect.NewJobServiceClient(s.Client(), s.URL, withKey("s"))
	_, err := client.Submit(t.Context(), &fairleadv1.SubmitRequest{})
	if connect.CodeOf(err) != connect.CodeInternal || strings.Contains(err.Error(), "inner detail") {
		t.Errorf("%v", err)
	}
	s.Close()
	if !strings.Contains(log.String(), "the inner detail") {
		t.Errorf("not logged: %s", log.String())
	}
}

// No log line and no way of printing shows a secret.
func TestSecretIsMasked(t *testing.T) {
	const secret = Secret("flk_canary")
	var log bytes.Buffer
	logger := slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	logger.Info("x", "secret", secret, "in", struct{ S Secret }{secret})
	g := open(t, fakeDirectory{secret: tenantKey(cell.PermissionSubmit)}, func(c *Config) { c.Log = logger })
	s := serveJobs(t, g, func(context.Context, *fairleadv1.SubmitRequest) (*fairleadv1.SubmitResponse, error) {
		return &fairleadv1.SubmitResponse{}, nil
	})
	for _, key := range []Secret{secret, secret + "x"} {
		client := fairleadv1connect.NewJobServiceClient(s.Client(), s.URL, withKey(key))
		_, err := client.Submit(t.Context(), &fairleadv1.SubmitRequest{})
		if err != nil && strings.Contains(err.Error(), "canary") {
			t.Error(err)
		}
	}
	s.Close()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		log.WriteString(fmt.Sprintf(verb, secret) + fmt.Sprintf(verb, []Secret{secret}))
	}
	for _, leak := range []string{"canary", "63616e617279"} {
		if strings.Contains(log.String(), leak) {
			t.Errorf("%s in %s", leak, log.String())
		}
	}
	for _, want := range []string{`"tenant":"acme"`, `"key":"key_t"`, `"status":401`, `JobService/Submit`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %s in %s", want, log.String())
		}
	}
}

// A service that has a procedure without a row is not mounted.
func TestMuxRefuses(t *testing.T) {
	h := http.NotFoundHandler()
	for name, path := range map[string]string{
		"no service": "/fairlead.v1.Nothing/", "a message": "/fairlead.v1.Job/", "no row": "/connectext.grpc.reflection.v1.ServerReflection/",
		"everything": "/",
	} {
		if _, err := Mux(nil, Mounted(path, h)); err == nil {
			t.Errorf("%s: mounted", name)
		}
	}
	mount := Mounted(fairleadv1connect.NewJobServiceHandler(fakeJobs{}))
	row := permissions[fairleadv1connect.JobServiceSubmitProcedure]
	delete(permissions, fairleadv1connect.JobServiceSubmitProcedure)
	defer func() { permissions[fairleadv1connect.JobServiceSubmitProcedure] = row }()
	if _, err := Mux(nil, mount); err == nil || !strings.Contains(err.Error(), fairleadv1connect.JobServiceSubmitProcedure) {
		t.Errorf("without a row: %v", err)
	}
}

func TestConfigNamesEveryFault(t *testing.T) {
	err := Config{}.Validate()
	for _, field := range []string{"RequestsPerKeyMax", "RequestsPerPlatformKeyMax", "ConnectionsMax", "ConnectionsPerIPMax"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%v does not name %s", err, field)
		}
	}
	if _, err := New(Config{}, fakeDirectory{}); err == nil {
		t.Error("New took a bad config")
	}
	if _, err := New(DefaultConfig(), nil); err == nil {
		t.Error("New took no directory")
	}
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
}

// A result that carries JSON survives the way out too.
func TestCodecOut(t *testing.T) {
	want := &fairleadv1.GetJobResponse{Job: &fairleadv1.Job{Payload: &fairleadv1.Payload{
		Body: &fairleadv1.Payload_Json{Json: ` {"n": 9007199254740993} `},
	}}}
	for _, name := range []string{"json", "json; charset=utf-8"} {
		c := jsonCodec{name: name}
		data, err := c.MarshalStable(want)
		if err != nil || c.Name() != name || c.IsBinary() {
			t.Fatal(err)
		}
		got := &fairleadv1.GetJobResponse{}
		if err := c.Unmarshal(data, got); err != nil || !proto.Equal(got, want) {
			t.Errorf("%s: %v, %v", data, got, err)
		}
	}
	if _, err := (jsonCodec{}).Marshal("text"); err == nil {
		t.Error("marshalled what is no message")
	}
	if err := (jsonCodec{}).Unmarshal([]byte("{}"), 1); err == nil {
		t.Error("unmarshalled into what is no message")
	}
}

// BenchmarkHandler is what the door adds to a request.
func BenchmarkHandler(b *testing.B) {
	cfg := DefaultConfig()
	cfg.Log = quiet()
	g, err := New(cfg, fakeDirectory{"flk_0123456789012345678901234567890123456789012": tenantKey(cell.PermissionSubmit)})
	if err != nil {
		b.Fatal(err)
	}
	h := g.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, fairleadv1connect.JobServiceSubmitProcedure, http.NoBody)
	r.Header.Set("Content-Type", "application/proto")
	r.Header.Set("Authorization", "Bearer flk_0123456789012345678901234567890123456789012")
	w := httptest.NewRecorder()
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(w, r)
	}
}
