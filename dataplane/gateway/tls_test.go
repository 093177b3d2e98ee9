package gateway

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/dataplane/client"
	"github.com/fairlead/fairlead/dataplane/route"
	"github.com/fairlead/fairlead/dataplane/worker"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
	"github.com/fairlead/fairlead/proto/rejection"
)

// waitMax bounds what waits for something that will come.
const waitMax = time.Minute

// authority makes certificates whose common name is role and agent.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, pool: x509.NewCertPool()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pool.AddCert(a.cert)
	return a
}

func (a *authority) issue(name string) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func peerOf(r *http.Request) (Peer, bool) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return Peer{}, false
	}
	role, name, _ := strings.Cut(r.TLS.PeerCertificates[0].Subject.CommonName, "/")
	return Peer{Role: role, Name: name}, true
}

// server is an agent over TLS.
type server struct {
	fairleadv1connect.UnimplementedJobServiceHandler
	fairleadv1connect.UnimplementedWorkerServiceHandler
	fairleadv1connect.UnimplementedClusterServiceHandler
	*httptest.Server
	name string

	mu     sync.Mutex
	leads  bool
	leader string
	term   uint64
	submit func(context.Context, *fairleadv1.SubmitRequest) (*fairleadv1.SubmitResponse, error)
	lease  func(context.Context, *fairleadv1.LeaseRequest) (*fairleadv1.LeaseResponse, error)
	told   []*fairleadv1.Outcome
	pieces chan string // what SaveSnapshot sends next
}

func (s *server) lead(leads bool, leader string, term uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leads, s.leader, s.term = leads, leader, term
}

func (s *server) Submit(ctx context.Context, r *fairleadv1.SubmitRequest) (*fairleadv1.SubmitResponse, error) {
	s.mu.Lock()
	submit := s.submit
	s.mu.Unlock()
	if submit != nil {
		return submit(ctx, r)
	}
	c, _ := CallerFrom(ctx)
	return &fairleadv1.SubmitResponse{JobId: s.name + " " + string(c.Tenant) + " " + r.GetJob().GetOperation()}, nil
}

func (s *server) Lease(ctx context.Context, r *fairleadv1.LeaseRequest) (*fairleadv1.LeaseResponse, error) {
	return s.lease(ctx, r)
}

func (s *server) Report(_ context.Context, r *fairleadv1.ReportRequest) (*fairleadv1.ReportResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &fairleadv1.ReportResponse{}
	for _, o := range r.GetOutcomes() {
		s.told = append(s.told, o)
		out.Results = append(out.Results, &fairleadv1.OutcomeResult{State: fairleadv1.JobState_JOB_STATE_SUCCEEDED})
	}
	return out, nil
}

func (s *server) SaveSnapshot(
	ctx context.Context, _ *fairleadv1.SaveSnapshotRequest, out *connect.ServerStream[fairleadv1.SaveSnapshotResponse],
) error {
	for {
		select {
		case piece, ok := <-s.pieces:
			if !ok {
				return nil
			}
			if err := out.Send(&fairleadv1.SaveSnapshotResponse{Data: []byte(piece)}); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *server) RestoreSnapshot(
	_ context.Context, in *connect.ClientStream[fairleadv1.RestoreSnapshotRequest],
) (*fairleadv1.RestoreSnapshotResponse, error) {
	n := 0
	for in.Receive() {
		n += len(in.Msg().GetData())
	}
	return &fairleadv1.RestoreSnapshotResponse{Index: uint64(n)}, in.Err()
}

// reality is a cluster over TLS: control is c-1 and c-2, the cell a is a-1 and a-2, and the first of each leads.
type reality struct {
	servers map[string]*server
	door    *httptest.Server
	fwd     *Forwarder
	ca      *authority
}

func newReality(t *testing.T, change ...func(*ForwardConfig)) *reality {
	t.Helper()
	w := &reality{servers: map[string]*server{}, ca: newAuthority(t)}
	u := route.Update{Index: 1, Reset: true, Complete: true, Lanes: []route.Lane{{Tenant: "acme", Cell: "a", Epoch: 1}}}
	home := route.Cell{Name: "a", Phase: route.PhaseOpen}
	for _, name := range []string{"a-1", "a-2", "c-1", "c-2"} {
		s := w.start(t, name)
		r := route.Replica{Name: name, Address: s.Listener.Addr().String()}
		if name[0] == 'a' {
			home.Replicas = append(home.Replicas, r)
		} else {
			u.Control = append(u.Control, r)
		}
	}
	u.Cells = []route.Cell{home}
	table := route.NewTable().Apply(u)
	cfg := DefaultForwardConfig()
	cfg.Log = quiet()
	// A busy machine must not look like one that hangs.
	cfg.ParkMax, cfg.ProbeSilence = waitMax, waitMax
	cfg.Routes = func() *route.Table { return table }
	cert := w.ca.issue("gateway/g-1")
	cfg.Transport = func(Peer) http.RoundTripper { return w.transport(t, &cert) }
	for _, f := range change {
		f(&cfg)
	}
	var err error
	if w.fwd, err = NewForwarder(cfg); err != nil {
		t.Fatal(err)
	}
	mux, err := Mux(nil, w.fwd.Mounts()...)
	if err != nil {
		t.Fatal(err)
	}
	dir := fakeDirectory{"s": tenantKey(cell.PermissionSubmit, cell.PermissionRead), "platform": platformKey(cell.Permissions()...)}
	w.door = httptest.NewUnstartedServer(nil)
	w.door.Config = Server(open(t, dir, nil).Handler(mux))
	w.door.EnableHTTP2 = true
	w.door.TLS = &tls.Config{Certificates: []tls.Certificate{w.ca.issue("gateway/g-1")}}
	w.door.StartTLS()
	t.Cleanup(func() {
		w.door.CloseClientConnections()
		w.door.Close()
		w.fwd.Close()
	})
	return w
}

// transport is a way over TLS, with a certificate or without.
func (w *reality) transport(t *testing.T, cert *tls.Certificate) *http.Transport {
	t.Helper()
	config := &tls.Config{RootCAs: w.ca.pool, MinVersion: tls.VersionTLS13}
	if cert != nil {
		config.Certificates = []tls.Certificate{*cert}
	}
	rt := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DisableCompression: true, ExpectContinueTimeout: waitMax}
	t.Cleanup(rt.CloseIdleConnections)
	return rt
}

func (w *reality) start(t *testing.T, name string) *server {
	t.Helper()
	prefix := name[:1]
	s := &server{name: name, leads: name == prefix+"-1", leader: prefix + "-1", term: 1, pieces: make(chan string, 10)}
	mux := http.NewServeMux()
	mux.Handle(fairleadv1connect.NewJobServiceHandler(s, HandlerOptions()...))
	mux.Handle(fairleadv1connect.NewWorkerServiceHandler(s, HandlerOptions()...))
	mux.Handle(fairleadv1connect.NewClusterServiceHandler(s, HandlerOptions()...))
	mux.Handle(PathLeader, LeaderHandler(func() LeaderStatus {
		s.mu.Lock()
		defer s.mu.Unlock()
		return LeaderStatus{Name: name, Open: true, Leader: s.leads, LeaderName: s.leader, Term: s.term}
	}))
	h, err := Inside(InsideConfig{Peer: peerOf, Leads: func() (bool, string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.leads, s.leader
	}}, mux)
	if err != nil {
		t.Fatal(err)
	}
	s.Server = httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{
		Certificates: []tls.Certificate{w.ca.issue("cell/" + name)}, ClientCAs: w.ca.pool, ClientAuth: tls.VerifyClientCertIfGiven, MinVersion: tls.VersionTLS13,
	}
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // connections are broken on purpose
	s.StartTLS()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	w.servers[name] = s
	return s
}

func (w *reality) jobs(t *testing.T, opts ...connect.ClientOption) fairleadv1connect.JobServiceClient {
	t.Helper()
	hc := &http.Client{Transport: w.transport(t, nil)}
	return fairleadv1connect.NewJobServiceClient(hc, w.door.URL, append(opts, withKey("s"))...)
}

func (w *reality) cluster(t *testing.T) fairleadv1connect.ClusterServiceClient {
	t.Helper()
	hc := &http.Client{Transport: w.transport(t, nil)}
	auth := connect.WithInterceptors(bearerStream{})
	return fairleadv1connect.NewClusterServiceClient(hc, w.door.URL, auth)
}

// bearerStream adds the platform's key to streams.
type bearerStream struct{}

func (bearerStream) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc { return next }

func (bearerStream) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, s connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, s)
		conn.RequestHeader().Set("Authorization", "Bearer platform")
		return conn
	}
}

func (bearerStream) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// A request goes through whole in every protocol, and so does a refusal of the cell's.
func TestThroughTLS(t *testing.T) {
	w := newReality(t)
	for name, opts := range map[string][]connect.ClientOption{
		"connect": nil, "json": {connect.WithProtoJSON()}, "grpc": {connect.WithGRPC()}, "grpc-web": {connect.WithGRPCWeb()},
		"gzip": {connect.WithSendGzip()}, "grpc gzip": {connect.WithGRPC(), connect.WithSendGzip()},
	} {
		big := strings.Repeat("x", 1<<20)
		got, err := w.jobs(t, opts...).Submit(t.Context(), &fairleadv1.SubmitRequest{Job: &fairleadv1.JobSpec{Operation: big}})
		if err != nil || got.GetJobId() != "a-1 acme "+big {
			t.Errorf("%s: %d bytes, %v", name, len(got.GetJobId()), err)
		}
		_, err = w.jobs(t, opts...).GetJob(t.Context(), &fairleadv1.GetJobRequest{})
		if connect.CodeOf(err) != connect.CodeUnimplemented {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The same agent refuses whoever has no certificate, whatever the key and the headers.
	hc := &http.Client{Transport: w.transport(t, nil)}
	c := fairleadv1connect.NewJobServiceClient(hc, w.servers["a-1"].URL, withKey("s"))
	if _, err := c.Submit(t.Context(), &fairleadv1.SubmitRequest{}); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("without a certificate: %v", err)
	}
}

// Refusals of the forwarder's own are read in every protocol.
func TestRefusalsInEveryProtocol(t *testing.T) {
	w := newReality(t, func(c *ForwardConfig) { c.ParkMax = 10 * time.Millisecond })
	for _, name := range []string{"a-1", "a-2"} {
		w.servers[name].lead(false, "", 1)
	}
	for name, opts := range map[string][]connect.ClientOption{"connect": nil, "json": {connect.WithProtoJSON()}, "grpc": {connect.WithGRPC()}} {
		ctx, cancel := context.WithTimeout(t.Context(), waitMax)
		_, err := w.jobs(t, opts...).Submit(ctx, &fairleadv1.SubmitRequest{})
		cancel()
		if r := rejection.From(err); connect.CodeOf(err) != connect.CodeUnavailable || r.GetReason() != rejection.ReasonNotApplied || r.GetRetryAfter() == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An agent that is gone and one that does not lead have done nothing: the request goes on to the next.
func TestNotDoneOverTLS(t *testing.T) {
	w := newReality(t)
	submit := func(want string) {
		t.Helper()
		got, err := w.jobs(t).Submit(t.Context(), &fairleadv1.SubmitRequest{Job: &fairleadv1.JobSpec{Operation: "op"}})
		if err != nil || got.GetJobId() != want {
			t.Errorf("%v, %v", got, err)
		}
	}
	submit("a-1 acme op")
	w.servers["a-1"].lead(false, "a-2", 2)
	w.servers["a-2"].lead(true, "a-2", 2)
	submit("a-2 acme op")
	// One that is gone from the start: a connection that breaks under a request would be another thing.
	w = newReality(t)
	w.servers["a-1"].Close()
	w.servers["a-2"].lead(true, "a-2", 2)
	submit("a-2 acme op")
}

// A connection that breaks once the agent has the request leaves its outcome unknown, and nobody is asked again.
func TestLostOverTLS(t *testing.T) {
	w := newReality(t)
	other := 0
	w.servers["a-2"].submit = func(context.Context, *fairleadv1.SubmitRequest) (*fairleadv1.SubmitResponse, error) {
		other++
		return &fairleadv1.SubmitResponse{}, nil
	}
	in := make(chan struct{})
	w.servers["a-1"].submit = func(ctx context.Context, _ *fairleadv1.SubmitRequest) (*fairleadv1.SubmitResponse, error) {
		close(in)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	done := make(chan error, 1)
	jobs := w.jobs(t)
	go func() {
		_, err := jobs.Submit(t.Context(), &fairleadv1.SubmitRequest{Job: &fairleadv1.JobSpec{Operation: "op"}})
		done <- err
	}()
	<-in
	w.servers["a-2"].lead(true, "a-2", 2)
	w.servers["a-1"].CloseClientConnections()
	err := <-done
	if r := rejection.From(err); connect.CodeOf(err) != connect.CodeUnavailable || r.GetReason() != rejection.ReasonOutcomeUnknown {
		t.Errorf("%v", err)
	}
	if other != 0 {
		t.Errorf("it was sent again: %d", other)
	}
}

// A leader that answers neither requests nor probes while another leads is given up, over real connections too.
func TestDeposedAndHungOverTLS(t *testing.T) {
	w := newReality(t)
	in := make(chan struct{})
	w.servers["a-1"].submit = func(ctx context.Context, _ *fairleadv1.SubmitRequest) (*fairleadv1.SubmitResponse, error) {
		close(in)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	done := make(chan error, 1)
	jobs := w.jobs(t)
	go func() {
		_, err := jobs.Submit(t.Context(), &fairleadv1.SubmitRequest{Job: &fairleadv1.JobSpec{Operation: "op"}})
		done <- err
	}()
	<-in
	w.servers["a-2"].lead(true, "a-2", 2)
	select {
	case err := <-done:
		if r := rejection.From(err); r.GetReason() != rejection.ReasonOutcomeUnknown {
			t.Errorf("%v", err)
		}
	case <-time.After(waitMax):
		t.Fatal("it is held for ever")
	}
	got, err := jobs.Submit(t.Context(), &fairleadv1.SubmitRequest{Job: &fairleadv1.JobSpec{Operation: "op"}})
	if err != nil || got.GetJobId() != "a-2 acme op" {
		t.Errorf("%v, %v", got, err)
	}
}

// What a stream brings is passed on as it comes, and one that breaks off does not end as if it were whole.
func TestServerStream(t *testing.T) {
	w := newReality(t)
	w.servers["c-1"].pieces <- "one" // the answer begins with it
	stream, err := w.cluster(t).SaveSnapshot(t.Context(), &fairleadv1.SaveSnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, piece := range []string{"one", "two"} {
		if piece != "one" {
			w.servers["c-1"].pieces <- piece
		}
		if !stream.Receive() || string(stream.Msg().GetData()) != piece {
			t.Fatalf("%v, %v", stream.Msg(), stream.Err())
		}
	}
	close(w.servers["c-1"].pieces)
	if stream.Receive() || stream.Err() != nil {
		t.Errorf("at its end: %v", stream.Err())
	}
	w.servers["c-1"].lead(false, "c-2", 2)
	w.servers["c-2"].lead(true, "c-2", 2)
	w.servers["c-2"].pieces <- "half"
	if stream, err = w.cluster(t).SaveSnapshot(t.Context(), &fairleadv1.SaveSnapshotRequest{}); err != nil {
		t.Fatal(err)
	}
	if !stream.Receive() {
		t.Fatal(stream.Err())
	}
	w.servers["c-2"].CloseClientConnections()
	if stream.Receive() || stream.Err() == nil {
		t.Error("a stream that broke off ended well")
	}
}

// A stream of the caller's is not held: it goes to whoever leads for certain, whole.
func TestClientStream(t *testing.T) {
	w := newReality(t)
	w.servers["c-1"].lead(false, "c-2", 2)
	w.servers["c-2"].lead(true, "c-2", 2)
	stream, err := w.cluster(t).RestoreSnapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if err := stream.Send(&fairleadv1.RestoreSnapshotRequest{Data: make([]byte, 64<<10)}); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	}
	got, err := stream.CloseAndReceive()
	if err != nil || got.GetIndex() != 100*64<<10 {
		t.Errorf("%v, %v", got, err)
	}
}

// A worker behind the gateway goes on when the leader that holds its Lease is deposed, whether that says so or just breaks off.
func TestWorkerSurvivesFailover(t *testing.T) {
	for name, fall := range map[string]func(ctx context.Context, s *server) error{
		"it says so": func(context.Context, *server) error {
			return rejection.New(connect.CodeUnavailable, &fairleadv1.Rejection{Reason: rejection.ReasonNotApplied, Message: "deposed"})
		},
		"it breaks off": func(ctx context.Context, s *server) error {
			go s.CloseClientConnections()
			<-ctx.Done()
			return ctx.Err()
		},
		"it hangs": func(ctx context.Context, _ *server) error {
			<-ctx.Done()
			return ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newReality(t)
			first, second := w.servers["a-1"], w.servers["a-2"]
			group := make(chan int32, 100)
			first.lease = func(ctx context.Context, r *fairleadv1.LeaseRequest) (*fairleadv1.LeaseResponse, error) {
				group <- r.GetGroup()
				first.lead(false, "a-2", 2)
				second.lead(true, "a-2", 2)
				return nil, fall(ctx, first)
			}
			granted := make(chan struct{})
			second.lease = func(ctx context.Context, r *fairleadv1.LeaseRequest) (*fairleadv1.LeaseResponse, error) {
				select {
				case <-granted:
					<-ctx.Done()
					return nil, ctx.Err()
				default:
					close(granted)
				}
				return &fairleadv1.LeaseResponse{Session: r.GetSession(), Leases: []*fairleadv1.JobLease{{
					JobId: "j1", Token: "t1", Tenant: "acme", Operation: "op", Attempt: 1,
				}}}, nil
			}
			ran := make(chan struct{})
			reg := worker.NewRegistry()
			worker.Handle(reg, "op", func(context.Context, *worker.Job[struct{}]) error {
				close(ran)
				return nil
			})
			wk, err := worker.New(worker.Config{
				Client: client.Config{Addr: w.door.URL, Token: "platform", RootCAs: w.ca.pool}, Cell: "a", Group: 3, Slots: 1, Prefetch: -1, Logger: quiet(),
			}, reg)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- wk.Run(ctx) }()
			select {
			case <-ran:
			case err := <-done:
				t.Fatalf("the worker ended: %v", err)
			case <-time.After(waitMax):
				t.Fatal("the job never ran")
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			second.mu.Lock()
			defer second.mu.Unlock()
			if g := <-group; g != 3 {
				t.Errorf("group %d", g)
			}
			if !slices.ContainsFunc(second.told, func(o *fairleadv1.Outcome) bool { return o.GetJobId() == "j1" }) {
				t.Errorf("its outcome was not told: %v", second.told)
			}
		})
	}
}
