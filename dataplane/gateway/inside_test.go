package gateway

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

type peerKey struct{}

// fakePeer reads the peer that a test has put into the context in place of a certificate.
func fakePeer(r *http.Request) (Peer, bool) {
	p, ok := r.Context().Value(peerKey{}).(Peer)
	return p, ok
}

// from is a request of an agent of the role, with the caller that it passes on.
func from(t *testing.T, role, procedure string, caller *cell.Caller, body io.Reader) *http.Request {
	t.Helper()
	ctx := t.Context()
	if role != "" {
		ctx = context.WithValue(ctx, peerKey{}, Peer{ClusterID: "c", Role: role, Name: role + "-1"})
	}
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, procedure, body)
	r.Header.Set("Content-Type", "application/json")
	if caller != nil {
		text, err := encodeCaller(*caller)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(HeaderCaller, text)
	}
	return r
}

// Every procedure with every role, with and without a caller: only doors pass callers on, and each service between agents has its roles.
func TestInsideMatrix(t *testing.T) {
	all := platformKey(cell.Permissions()...)
	tenant := tenantKey(cell.Permissions()...)
	roles := map[string][]string{ // apart from the code under test: which roles may call what on their own behalf
		"Join": {"control", "gateway"}, "Bootstrap": {"control"}, "Register": {"control", "cell", "gateway"}, "WatchRoutes": {"control", "gateway"},
		"OpenLog": {"control"}, "GetLog": {"control"}, "ChangePeer": {"control"}, "Lead": {"control"}, "Save": {"control"},
		"Configure": {"control"}, "MeasureDemand": {"control"}, "ExplainTenancy": {"control"}, "leader": {"control", "cell", "gateway"},
		"GetLanes": {"control"}, "StageLane": {"control"}, "TrackLane": {"control"}, "ExportLane": {"control"}, "ImportLane": {"control"},
		"SetLaneMode": {"control"}, "DigestLane": {"control"}, "WipeLane": {"control"}, "ProveLane": {"control"},
	}
	var reached *http.Request
	h, err := Inside(InsideConfig{Peer: fakePeer}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { reached = r }))
	if err != nil {
		t.Fatal(err)
	}
	procedures := slices.Sorted(maps.Keys(permissions))
	for _, procedure := range append(procedures, PathLeader, "/fairlead.v1.Other/Method", "/") {
		method := procedure[strings.LastIndexByte(procedure, '/')+1:]
		own, internal := roles[method]
		for _, role := range []string{"", "control", "cell", "gateway", "stranger"} {
			for name, caller := range map[string]*cell.Caller{"nobody": nil, "platform": &all, "tenant": &tenant} {
				door := role == "control" || role == "gateway"
				want := internal && slices.Contains(own, role)
				if _, ok := permissions[procedure]; ok && !internal && strings.HasPrefix(procedure, "/fairlead.") {
					want = door && caller != nil && allowed(procedure, caller) == 0
				}
				reached = nil
				var body io.Reader = strings.NewReader("{}")
				if !want {
					body = untouched{t}
				}
				w := httptest.NewRecorder()
				h.ServeHTTP(w, from(t, role, procedure, caller, body))
				if (reached != nil) != want {
					t.Errorf("%s by role %q for %s: reached %v, want %v: %s", procedure, role, name, reached != nil, want, w.Body)
					continue
				}
				if reached == nil {
					continue
				}
				c, ok := CallerFrom(reached.Context())
				if ok == internal || ok && (c.Key != caller.Key || c.Tenant != caller.Tenant || !slices.Equal(c.Permissions, caller.Permissions)) {
					t.Errorf("%s by role %q for %s: the handler saw %v, %v", procedure, role, name, c, ok)
				}
				if reached.Header.Get(HeaderCaller) != "" {
					t.Errorf("%s: the header is still there", procedure)
				}
			}
		}
	}
}

// A header that is no caller is refused, whoever sends it.
func TestInsideBadCaller(t *testing.T) {
	h, err := Inside(InsideConfig{Peer: fakePeer}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("let through") }))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "x", "e30", "bnVsbA", "!!", strings.Repeat("A", 1000)} {
		r := from(t, RoleGateway, submit, nil, untouched{t})
		r.Header.Set(HeaderCaller, text)
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != http.StatusUnauthorized {
			t.Errorf("%q: %d %s", text, w.Code, w.Body)
		}
	}
	if _, err := Inside(InsideConfig{}, h); err == nil {
		t.Error("Inside without a way to know peers")
	}
}

// Whoever does not lead says so before the body is read, names who does, and goes on answering what any replica answers.
func TestNotLeader(t *testing.T) {
	all := tenantKey(cell.Permissions()...)
	leads, leader := false, ""
	reached := false
	h, err := Inside(InsideConfig{Peer: fakePeer, Leads: func() (bool, string) { return leads, leader }},
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "a-2"} {
		leader = name
		for procedure, caller := range map[string]*cell.Caller{
			submit: &all, get: &all, fairleadv1connect.TenancyServiceConfigureProcedure: nil, fairleadv1connect.RegistryServiceRegisterProcedure: nil,
			fairleadv1connect.ReplicaServiceChangePeerProcedure: nil,
		} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, from(t, RoleControl, procedure, caller, untouched{t}))
			if w.Code != http.StatusServiceUnavailable || w.Header().Get(HeaderNotLeader) != "1" || w.Header().Get(HeaderLeader) != name ||
				codeIn(t, w.Body.Bytes()) != connect.CodeUnavailable.String() || !strings.Contains(w.Body.String(), "NOT_APPLIED") {
				t.Errorf("%s: %d %v %s", procedure, w.Code, w.Header(), w.Body)
			}
		}
	}
	for _, procedure := range []string{
		fairleadv1connect.RegistryServiceWatchRoutesProcedure, fairleadv1connect.ReplicaServiceGetLogProcedure,
		fairleadv1connect.ReplicaServiceOpenLogProcedure, fairleadv1connect.RegistryServiceBootstrapProcedure, PathLeader,
	} {
		reached = false
		if h.ServeHTTP(httptest.NewRecorder(), from(t, RoleControl, procedure, nil, strings.NewReader("{}"))); !reached {
			t.Errorf("%s: a follower does not answer", procedure)
		}
	}
	leads, reached = true, false
	if h.ServeHTTP(httptest.NewRecorder(), from(t, RoleGateway, submit, &all, strings.NewReader("{}"))); !reached {
		t.Error("a leader does not answer")
	}
}

// A body is bounded inside as well.
func TestInsideBody(t *testing.T) {
	all := tenantKey(cell.Permissions()...)
	h, err := Inside(InsideConfig{Peer: fakePeer}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err == nil {
			t.Error("a body without an end was read to its end")
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	h.ServeHTTP(httptest.NewRecorder(), from(t, RoleGateway, submit, &all, io.LimitReader(zeros{}, RequestBytesMax+1)))
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// Health is for anybody, and leadership for agents.
func TestOwnPaths(t *testing.T) {
	ready := true
	mux := http.NewServeMux()
	mux.Handle(PathHealth, HealthHandler(func() bool { return ready }))
	status := LeaderStatus{Name: "a-1", Open: true, Leader: true, LeaderName: "a-1", Term: 7, LoadPercent: 50}
	mux.Handle(PathLeader, LeaderHandler(func() LeaderStatus { return status }))
	h, err := Inside(InsideConfig{Peer: fakePeer}, mux)
	if err != nil {
		t.Fatal(err)
	}
	for want, is := range map[int]bool{http.StatusOK: true, http.StatusServiceUnavailable: false} {
		ready = is
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, from(t, "", PathHealth, nil, http.NoBody)); w.Code != want {
			t.Errorf("ready %v: %d", is, w.Code)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, from(t, RoleCell, PathLeader, nil, http.NoBody))
	var got LeaderStatus
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got != status {
		t.Errorf("%s", w.Body)
	}
	if w := httptest.NewRecorder(); true {
		if h.ServeHTTP(w, from(t, "", PathLeader, nil, http.NoBody)); w.Code != http.StatusUnauthorized {
			t.Errorf("a stranger: %d", w.Code)
		}
	}
}
