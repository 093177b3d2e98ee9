package identity

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/cell"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
	"github.com/fairlead/fairlead/proto/rejection"
)

// fakeRegistry signs whatever is asked for with a token that it knows.
type fakeRegistry struct {
	fairleadv1connect.UnimplementedRegistryServiceHandler

	ca     *CA
	token  Token
	change func(*fairleadv1.JoinResponse)
	busy   atomic.Int32 // refuses so often first, as one without a leader
	gossip [][]byte
}

func (f *fakeRegistry) Join(_ context.Context, req *fairleadv1.JoinRequest) (*fairleadv1.JoinResponse, error) {
	if f.busy.Add(-1) >= 0 {
		return nil, rejection.New(connect.CodeUnavailable, &fairleadv1.Rejection{Reason: rejection.ReasonNotApplied, Message: "no leader"})
	}
	if req.GetToken() != f.token.Reveal() {
		return nil, connect.NewError(connect.CodePermissionDenied, errors.New("no such token"))
	}
	cert, authority, err := f.ca.Certifier(time.Now, time.Hour).Sign(req.GetCsr(), "cell", req.GetName(), "cell-a", req.GetHosts())
	if err != nil {
		return nil, err
	}
	resp := &fairleadv1.JoinResponse{Certificate: cert, Authority: authority, ClusterId: f.ca.ClusterID(), GossipKeys: f.gossip}
	if f.change != nil {
		f.change(resp)
	}
	return resp, nil
}

// joining is a registry behind a control agent's door, and an agent that wants to join. Its certificates are of today: HTTP has the real clock.
func joining(t *testing.T) (*fakeRegistry, JoinConfig) {
	t.Helper()
	ca, err := CreateCA("fl-one", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeRegistry{ca: ca, token: newToken(t, ca.Fingerprint()), gossip: [][]byte{NewGossipKey(), NewGossipKey()}}
	return f, JoinConfig{
		Dir: t.TempDir(), Control: []string{serveJoins(t, f, ca, RoleControl)}, Token: f.token, Name: "cell-a-1", Role: RoleCell, Cell: "cell-a",
		Hosts: []string{"cell-a-1.example.com"}, Logger: quiet(),
	}
}

// serveJoins serves a registry with an agent's certificate of ca and returns its host and port.
func serveJoins(t *testing.T, f *fakeRegistry, ca *CA, role Role) string {
	t.Helper()
	dir, id := t.TempDir(), Identity{Role: role, Name: "control-1"}
	if role == RoleCell {
		id.Cell = "cell-b"
	}
	issued, err := ca.Issue(Request{Identity: id}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	putAgent(t, dir, ca, issued)
	s, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(fairleadv1connect.NewRegistryServiceHandler(f))
	server := httptest.NewUnstartedServer(mux)
	server.TLS = s.DoorTLS()
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "https://")
}

// TestJoin: an agent with a token and nothing else gets its certificate, once control can be reached and leads.
func TestJoin(t *testing.T) {
	f, cfg := joining(t)
	f.busy.Store(2)
	cfg.Control = append([]string{"127.0.0.1:1"}, cfg.Control...) // nobody is there
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := Join(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	want := Identity{ClusterID: "fl-one", Role: RoleCell, Name: "cell-a-1", Cell: "cell-a"}
	if s.Identity() != want || len(s.GossipKeys()) != 2 || s.CA() != nil {
		t.Errorf("joined as %v", s.Identity())
	}
	again, err := Load(cfg.Dir)
	if err != nil || again.Identity() != want {
		t.Errorf("it is not kept: %v", err)
	}
	if err := again.current.Load().leaf.VerifyHostname("cell-a-1.example.com"); err != nil {
		t.Error(err)
	}
	if there, err := Exists(cfg.Dir); !there || err != nil {
		t.Errorf("the directory has no agent: %v", err)
	}
}

// TestJoinRefused: no answer is taken that is not what the token pins and the agent is, and nothing is kept of it.
func TestJoinRefused(t *testing.T) {
	other, err := CreateCA("fl-one", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := other.Issue(Request{Identity: Identity{Role: RoleCell, Name: "cell-a-1", Cell: "cell-a"}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(t *testing.T, f *fakeRegistry, cfg *JoinConfig)
		want   string
	}{
		"another authority's server": {func(t *testing.T, f *fakeRegistry, cfg *JoinConfig) {
			cfg.Control = []string{serveJoins(t, f, other, RoleControl)}
		}, "the authority another fingerprint"},
		"a cell's agent as server": {func(t *testing.T, f *fakeRegistry, cfg *JoinConfig) {
			cfg.Control = []string{serveJoins(t, f, f.ca, RoleCell)}
		}, "the role cell, not control"},
		"an unknown token": {func(t *testing.T, f *fakeRegistry, cfg *JoinConfig) { cfg.Token = newToken(t, f.ca.Fingerprint()) }, "no such token"},
		"another name":     {func(_ *testing.T, _ *fakeRegistry, cfg *JoinConfig) { cfg.Role = RoleGateway }, "its certificate is of"},
		"another cell":     {func(_ *testing.T, _ *fakeRegistry, cfg *JoinConfig) { cfg.Cell = "cell-b" }, "its certificate is of"},
		"another cluster":  {answer(func(r *fairleadv1.JoinResponse) { r.ClusterId = "fl-two" }), "its certificate is of"},
		"a foreign answer": {answer(func(r *fairleadv1.JoinResponse) {
			r.Authority, r.Certificate = other.Certificate(), foreign.Certificate
		}), "not the one that the token pins"},
		"a foreign key":     {answer(func(r *fairleadv1.JoinResponse) { r.Certificate = foreign.Certificate }), "unknown authority"},
		"no certificate":    {answer(func(r *fairleadv1.JoinResponse) { r.Certificate = nil }), "no certificate in PEM"},
		"odd keys":          {answer(func(r *fairleadv1.JoinResponse) { r.GossipKeys = [][]byte{{1}} }), "keys of gossip"},
		"many keys":         {answer(func(r *fairleadv1.JoinResponse) { r.GossipKeys = make([][]byte, 100) }), "has 100 keys"},
		"a readable secret": {func(t *testing.T, _ *fakeRegistry, cfg *JoinConfig) { plant(t, cfg.Dir, "x", 0o644) }, "others may read"},
		"a broken secret":   {func(t *testing.T, _ *fakeRegistry, cfg *JoinConfig) { plant(t, cfg.Dir, "x", 0o600) }, "delete it, and join anew"},
	} {
		t.Run(name, func(t *testing.T) {
			f, cfg := joining(t)
			c.change(t, f, &cfg)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, err := Join(ctx, cfg)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
			if there, err := Exists(cfg.Dir); there || err != nil {
				t.Errorf("something is kept: %v", err)
			}
		})
	}
}

func answer(change func(*fairleadv1.JoinResponse)) func(*testing.T, *fakeRegistry, *JoinConfig) {
	return func(_ *testing.T, f *fakeRegistry, _ *JoinConfig) { f.change = change }
}

func plant(t *testing.T, dir, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, KeyFile), []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// TestJoinEnds: without anybody to join it goes on until the context ends.
func TestJoinEnds(t *testing.T) {
	_, cfg := joining(t)
	cfg.Control = []string{"127.0.0.1:1"}
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	cancel(cause)
	if _, err := Join(ctx, cfg); !errors.Is(err, cause) && connect.CodeOf(err) != connect.CodeCanceled {
		t.Errorf("%v", err)
	}
}

// TestSign: an authority signs no request that is not signed by the key it names, and takes nothing from it but the key.
func TestSign(t *testing.T) {
	ca := newCA(t, "fl-one")
	c := ca.Certifier(func() time.Time { return start }, 0)
	_, csr, err := joinKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cert, authority, err := c.Sign(csr, "cell", "cell-a-1", "cell-a", []string{"10.0.0.7"})
	if err != nil || string(authority) != string(ca.Certificate()) || c.Fingerprint() != ca.Fingerprint() {
		t.Fatal(err)
	}
	certs, err := parseCertificates(cert)
	if err != nil || certs[0].VerifyHostname("10.0.0.7") != nil {
		t.Errorf("%v", err)
	}
	broken := append([]byte(nil), csr...)
	broken[len(broken)-1] ^= 1
	for name, bad := range map[string][]byte{"nothing": nil, "nonsense": []byte("x"), "a broken signature": broken} {
		_, _, err := c.Sign(bad, "cell", "cell-a-1", "cell-a", nil)
		if fe, ok := errors.AsType[*cell.FieldError](err); !ok || fe.Field != "csr" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := c.Sign(csr, "admin", "a", "", nil); err == nil {
		t.Error("a role that there is not is signed")
	}
}

// TestPeerOf: a request says which agent sent it, and nothing of what it says itself counts.
func TestPeerOf(t *testing.T) {
	_, cfg := joining(t)
	s, err := Join(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan Identity, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, ok := PeerOf(r)
		if !ok {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		got <- id
	}))
	server.TLS = s.DoorTLS()
	server.StartTLS()
	defer server.Close()
	get := func(tr *http.Transport) int {
		defer tr.CloseIdleConnections()
		resp, err := (&http.Client{Transport: tr}).Get(server.URL) //nolint:noctx // loopback
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if code := get(&http.Transport{TLSClientConfig: s.ClientTLS(Expect{Role: RoleCell})}); code != http.StatusOK || (<-got).Name != "cell-a-1" {
		t.Errorf("an agent is answered %d", code)
	}
	if code := get(&http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}); code != http.StatusTeapot { //nolint:gosec // the test's own
		t.Error("nobody is taken for an agent")
	}
}
