package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/dataplane/route"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// world is a cluster in a bubble: agents that answer as they are told, and a door before them. Time is the bubble's.
type world struct {
	t       *testing.T
	fwd     *Forwarder
	door    http.Handler
	dir     fakeDirectory
	mu      sync.Mutex
	table   *route.Table
	changed chan struct{} // closed when the table is another
	agents  map[string]*fakeAgent
}

// fakeAgent is one agent as its transport shows it.
type fakeAgent struct {
	name string

	mu     sync.Mutex
	leads  bool
	leader string // whom it names
	term   uint64
	dead   bool            // cannot be reached
	hung   bool            // takes everything and answers nothing
	slow   bool            // answers probes and holds requests
	lose   bool            // takes requests and breaks the connection
	seen   []*http.Request // that it has answered
	probes int
	serve  http.HandlerFunc
}

func (a *fakeAgent) set(change func(a *fakeAgent)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(a)
}

func (a *fakeAgent) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.seen)
}

// RoundTrip is what a transport to the agent does.
func (a *fakeAgent) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	probe := r.URL.Path == PathLeader
	if probe {
		a.probes++
	}
	dead, hung, slow, lose, leads := a.dead, a.hung, a.slow, a.lose, a.leads
	status := LeaderStatus{Name: a.name, Open: true, Leader: a.leads, LeaderName: a.leader, Term: a.term}
	serve := a.serve
	a.mu.Unlock()
	w := httptest.NewRecorder()
	switch {
	case dead:
		return nil, errors.New("connection refused")
	case probe && !hung:
		w.WriteHeader(http.StatusOK)
		data, err := json.Marshal(status)
		if err != nil {
			return nil, err
		}
		w.Body = bytes.NewBuffer(data)
		return w.Result(), nil
	}
	if trace := httptrace.ContextClientTrace(r.Context()); trace != nil {
		trace.GotConn(httptrace.GotConnInfo{})
	}
	if !hung && !leads {
		w.Header().Set(HeaderNotLeader, "1")
		if status.LeaderName != "" {
			w.Header().Set(HeaderLeader, status.LeaderName)
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		return w.Result(), nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	switch {
	case lose:
		return nil, io.ErrUnexpectedEOF
	case hung, slow:
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	a.mu.Lock()
	a.seen = append(a.seen, r)
	a.mu.Unlock()
	r.Body = io.NopCloser(bytes.NewReader(body))
	serve(w, r)
	if err := context.Cause(r.Context()); errors.Is(err, errLeft) {
		return nil, err // as a transport would
	}
	return w.Result(), nil
}

// newWorld has the cells of the map with so many agents each, named such as a-1, of which the first leads in term 1; control is c-1 and c-2.
// Tenant "t-a" is at home in cell a, and its key is the secret "t-a"; "platform" is a key of the platform with everything.
func newWorld(t *testing.T, cells map[cell.ID]int, change func(*ForwardConfig)) *world {
	t.Helper()
	w := &world{t: t, agents: map[string]*fakeAgent{}, dir: fakeDirectory{"platform": platformKey(cell.Permissions()...)}}
	u := route.Update{Index: 1, Reset: true, Complete: true, Control: w.add("c", 2)}
	for id, n := range cells {
		u.Cells = append(u.Cells, route.Cell{Name: id, Phase: route.PhaseOpen, Replicas: w.add(string(id), n)})
		tenant := cell.TenantID("t-" + id)
		u.Lanes = append(u.Lanes, route.Lane{Tenant: tenant, Cell: id, Epoch: 1})
		w.dir[Secret(tenant)] = cell.Caller{Key: "key-" + string(id), Tenant: tenant, Permissions: []cell.Permission{
			cell.PermissionSubmit, cell.PermissionRead, cell.PermissionWork,
		}}
	}
	w.table, w.changed = route.NewTable().Apply(u), make(chan struct{})
	cfg := DefaultForwardConfig()
	cfg.Log = quiet()
	cfg.Routes = func() *route.Table {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.table
	}
	cfg.Changed = func() <-chan struct{} {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.changed
	}
	cfg.Transport = func(p Peer) http.RoundTripper {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.agents[p.Name]
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if w.fwd, err = NewForwarder(cfg); err != nil {
		t.Fatal(err)
	}
	mux, err := Mux(nil, w.fwd.Mounts()...)
	if err != nil {
		t.Fatal(err)
	}
	w.door = open(t, w.dir, func(c *Config) { c.RequestsPerKeyMax = 100_000 }).Handler(mux)
	return w
}

func (w *world) add(prefix string, n int) []route.Replica {
	var out []route.Replica
	for i := 1; i <= n; i++ {
		name := fmt.Sprintf("%s-%d", prefix, i)
		w.agents[name] = &fakeAgent{
			name: name, leads: i == 1, leader: prefix + "-1", term: 1,
			serve: func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write([]byte(`{"jobId":"` + name + `"}`)) }, // a recorder takes it
		}
		out = append(out, route.Replica{Name: name, Address: name + ":1"})
	}
	return out
}

// lead makes an agent lead in a later term; those of the others that are well know it.
func (w *world) lead(name string, term uint64) {
	for _, a := range w.agents {
		if prefix, _, _ := strings.Cut(a.name, "-"); strings.HasPrefix(name, prefix+"-") {
			a.set(func(a *fakeAgent) {
				if !a.hung && !a.slow || a.name == name {
					a.leads, a.leader, a.term = a.name == name, name, term
				}
			})
		}
	}
}

func (w *world) update(u route.Update) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.table = w.table.Apply(u)
	close(w.changed)
	w.changed = make(chan struct{})
}

// request is one of key, with {} for a body.
func (w *world) request(ctx context.Context, key Secret, procedure string) *http.Request {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, procedure, strings.NewReader(`{}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+string(key))
	return r
}

// answer is what a caller sees.
type answer struct {
	status  int
	code    string
	reason  string
	limit   string
	message string
	body    string
	header  http.Header
	took    time.Duration
}

func (w *world) do(r *http.Request) answer {
	began := time.Now()
	rec := httptest.NewRecorder()
	w.door.ServeHTTP(rec, r)
	a := answer{status: rec.Code, body: rec.Body.String(), header: rec.Header(), took: time.Since(began)}
	if rec.Code == http.StatusOK {
		return a
	}
	var e struct {
		Code, Message string
		Details       []struct {
			Type  string
			Debug struct{ Reason, Limit string }
		}
	}
	if err := json.Unmarshal(rec.Body.Bytes(), &e); err != nil {
		w.t.Errorf("%v in %q", err, a.body)
	}
	a.code, a.message = e.Code, e.Message
	for _, d := range e.Details {
		if d.Type == "fairlead.v1.Rejection" {
			a.reason, a.limit = d.Debug.Reason, d.Debug.Limit
		}
	}
	return a
}

const (
	submit = fairleadv1connect.JobServiceSubmitProcedure
	get    = fairleadv1connect.JobServiceGetJobProcedure
)

// end closes the forwarder and checks that nothing is left of any request.
func (w *world) end() {
	w.fwd.Close()
	synctest.Wait()
	if p := &w.fwd.waiting; p.count != 0 || p.bytes != 0 || len(p.tenants) != 0 {
		w.t.Errorf("%d requests with %d bytes of %v wait at the end", p.count, p.bytes, p.tenants)
	}
	for id, u := range w.fwd.upstreams {
		u.mu.Lock()
		if c := u.counts; c.inFlight != 0 || c.parked != 0 || c.bytes != 0 || len(c.tenants) != 0 {
			w.t.Errorf("%q counts %+v at the end", id, c)
		}
		for _, r := range u.replicas {
			if len(r.flights) != 0 {
				w.t.Errorf("%s has %d requests at the end", r.Name, len(r.flights))
			}
		}
		u.mu.Unlock()
	}
}
