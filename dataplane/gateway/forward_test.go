package gateway

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/dataplane/route"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

// What is a tenant's goes to its cell, what is a cell's to the one that is named, and all else to control.
func TestTarget(t *testing.T) {
	const lease, status = fairleadv1connect.WorkerServiceLeaseProcedure, fairleadv1connect.StatusServiceGetStatusProcedure
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, map[cell.ID]int{"a": 1, "b": 1}, nil)
		defer w.end()
		for name, c := range map[string]struct {
			key       Secret
			procedure string
			cell      string
			want      string // the agent, or the reason
		}{
			"job":                      {"t-a", submit, "", "a-1"},
			"job, named elsewhere":     {"t-a", submit, "b", "a-1"},
			"lease of a tenant":        {"t-b", lease, "", "b-1"},
			"lease of a tenant, named": {"t-b", lease, "b", "b-1"},
			"lease of a stranger":      {"t-b", lease, "a", "NOT_ALLOWED"},
			"lease of the platform":    {"platform", lease, "b", "b-1"},
			"lease nowhere":            {"platform", lease, "", "BAD_FIELD"},
			"lease of no cell":         {"platform", lease, "z", "NOT_FOUND"},
			"status":                   {"platform", status, "a", "a-1"},
			"tenants":                  {"platform", fairleadv1connect.TenantServiceListTenantsProcedure, "a", "c-1"},
			"cells":                    {"platform", fairleadv1connect.CellServiceListCellsProcedure, "", "c-1"},
			"join":                     {"", fairleadv1connect.RegistryServiceJoinProcedure, "", "c-1"},
		} {
			r := w.request(t.Context(), c.key, c.procedure)
			if c.cell != "" {
				r.Header.Set(HeaderCell, c.cell)
			}
			got := w.do(r)
			if got.status == http.StatusOK && !strings.Contains(got.body, c.want) || got.status != http.StatusOK && got.reason != c.want {
				t.Errorf("%s: %d %s %s", name, got.status, got.reason, got.body)
			}
			if got.reason == "BAD_FIELD" && (!strings.Contains(got.message, HeaderCell) || !strings.Contains(got.message, "a, b")) {
				t.Errorf("%s: %s", name, got.message)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, map[cell.ID]int{"a": 1}, nil)
		defer w.end()
		if got := w.do(w.request(t.Context(), "platform", lease)); !strings.Contains(got.body, "a-1") {
			t.Errorf("the only cell there is: %s", got.body)
		}
	})
}

// No header that agents trust comes from outside, nor goes there; the key stays at the door, and who it is goes on.
func TestHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, map[cell.ID]int{"a": 1}, nil)
		defer w.end()
		w.agents["a-1"].serve = func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Fairlead-Secret", "x")
			rw.Header().Set("Connection", "X-Hop")
			rw.Header().Set("X-Hop", "x")
			rw.Header().Set("X-Kept", "x")
			_, _ = rw.Write([]byte(`{}`)) // a recorder takes it
		}
		r := w.request(t.Context(), "t-a", submit)
		for name, value := range map[string]string{
			HeaderCaller: "spoofed", HeaderNotLeader: "1", HeaderLeader: "x", HeaderCell: "a", HeaderEpochs: "9,9", HeaderLaneForwarded: "1",
			"Fairlead-Anything": "x",
			"Connection":        "X-Hop, close", "X-Hop": "x", "Keep-Alive": "1", "Proxy-Authorization": "x", "Te": "trailers", "Upgrade": "x",
			"Cookie": "x", "X-Kept": "x", "Traceparent": "x",
		} {
			r.Header.Set(name, value)
		}
		r.Header["fairlead-lower"] = []string{"x"}
		got := w.do(r)
		if got.status != http.StatusOK || got.header.Get("X-Kept") != "x" || got.header.Get("X-Hop") != "" || got.header.Get("Fairlead-Secret") != "" {
			t.Errorf("%d %v", got.status, got.header)
		}
		in := w.agents["a-1"].seen[0].Header
		c, err := decodeCaller(in.Get(HeaderCaller))
		if err != nil || c.Key != "key-a" || c.Tenant != "t-a" || !slices.Equal(c.Permissions, w.dir["t-a"].Permissions) {
			t.Errorf("%v, %v", c, err)
		}
		for name := range in {
			if strings.HasPrefix(strings.ToLower(name), "fairlead-") && name != HeaderCaller && name != HeaderEpochs {
				t.Errorf("%s came in", name)
			}
		}
		if got := in.Get(HeaderEpochs); got != "1,1" {
			t.Errorf("the epochs that are known: %q", got)
		}
		for _, name := range []string{"Authorization", "Cookie", "Connection", "X-Hop", "Keep-Alive", "Proxy-Authorization", "Upgrade"} {
			if in.Get(name) != "" {
				t.Errorf("%s came in", name)
			}
		}
		if in.Get("X-Kept") != "x" || in.Get("Traceparent") != "x" || in.Get("Te") != "trailers" {
			t.Errorf("%v", in)
		}
		// Nor does a request of nobody's carry a caller of its own.
		r = w.request(t.Context(), "", fairleadv1connect.RegistryServiceJoinProcedure)
		r.Header.Set(HeaderCaller, "spoofed")
		w.do(r)
		if in := w.agents["c-1"].seen[0].Header; in.Get(HeaderCaller) != "" {
			t.Errorf("%v", in)
		}
	})
}

// What nobody has done is tried elsewhere, by whom an agent names, and else by asking around.
func TestFindsTheLeader(t *testing.T) {
	for name, prepare := range map[string]func(w *world){
		"named":                   func(w *world) { w.lead("a-3", 2) },
		"not named":               func(w *world) { w.lead("a-3", 2); w.agents["a-1"].leader = ""; w.agents["a-2"].leader = "" },
		"named wrongly":           func(w *world) { w.lead("a-3", 2); w.agents["a-1"].leader = "a-2"; w.agents["a-2"].leader = "a-1" },
		"named one that is not":   func(w *world) { w.lead("a-3", 2); w.agents["a-1"].leader = "z-9" },
		"the leader died":         func(w *world) { w.agents["a-1"].dead = true; w.lead("a-2", 2) },
		"all but the leader died": func(w *world) { w.lead("a-2", 2); w.agents["a-1"].dead = true; w.agents["a-3"].dead = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, map[cell.ID]int{"a": 3}, nil)
				defer w.end()
				prepare(w)
				for range 3 {
					if got := w.do(w.request(t.Context(), "t-a", submit)); got.status != http.StatusOK || got.took > 2*time.Second {
						t.Errorf("%d after %v: %s", got.status, got.took, got.body)
					}
				}
			})
		})
	}
}

// A request waits for an election and no longer than it may; then the answer is that nothing was done, and when to come back.
func TestParks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, map[cell.ID]int{"a": 3}, nil)
		defer w.end()
		for _, name := range []string{"a-1", "a-2", "a-3"} {
			w.agents[name].set(func(a *fakeAgent) { a.leads, a.leader = false, "" })
		}
		time.AfterFunc(3*time.Second, func() { w.lead("a-2", 5) })
		if got := w.do(w.request(t.Context(), "t-a", submit)); got.status != http.StatusOK || got.took < 3*time.Second || got.took > 4*time.Second {
			t.Errorf("after an election: %d after %v: %s", got.status, got.took, got.body)
		}
		w.agents["a-2"].set(func(a *fakeAgent) { a.leads, a.leader = false, "" })
		got := w.do(w.request(t.Context(), "t-a", submit))
		if got.code != "unavailable" || got.reason != "NOT_APPLIED" || got.took < 5*time.Second || got.took > 6*time.Second ||
			got.header.Get("Retry-After") == "" || !strings.Contains(got.message, "cell a") {
			t.Errorf("without one: %+v", got)
		}
		// The caller's own deadline comes first.
		for header, value := range map[string]string{"Connect-Timeout-Ms": "1500", "Grpc-Timeout": "1500m"} {
			r := w.request(t.Context(), "t-a", submit)
			r.Header.Set(header, value)
			if got := w.do(r); got.code != "deadline_exceeded" || got.reason != "NOT_APPLIED" || got.took != 1500*time.Millisecond {
				t.Errorf("%s: %+v", header, got)
			}
		}
		// While many wait, agents are left alone: they are asked by probes, and not by each request.
		before := w.agents["a-3"].count()
		var wg sync.WaitGroup
		for range 500 {
			wg.Go(func() { w.do(w.request(t.Context(), "t-a", submit)) })
		}
		wg.Wait()
		if w.agents["a-3"].count() != before {
			t.Error("one that does not lead has answered")
		}
	})
}

// What may have been done is not repeated; what has no effect is.
func TestLostAfterSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, map[cell.ID]int{"a": 2}, nil)
		defer w.end()
		w.do(w.request(t.Context(), "t-a", submit)) // it is known who leads
		w.agents["a-1"].set(func(a *fakeAgent) { a.lose = true })
		got := w.do(w.request(t.Context(), "t-a", submit))
		if got.code != "unavailable" || got.reason != "OUTCOME_UNKNOWN" || got.header.Get("Retry-After") == "" || !strings.Contains(got.message, "a-1") {
			t.Errorf("a submission: %+v", got)
		}
		if n := w.agents["a-2"].count(); n != 0 {
			t.Errorf("it was repeated: %d", n)
		}
		time.AfterFunc(time.Second, func() { w.lead("a-2", 2) })
		if got := w.do(w.request(t.Context(), "t-a", get)); got.status != http.StatusOK {
			t.Errorf("a look: %+v", got)
		}
	})
}

// A leader that takes everything and answers nothing keeps a request for as long as nothing else is known, and no longer.
func TestHungLeader(t *testing.T) {
	t.Run("another leads", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, map[cell.ID]int{"a": 3}, nil)
			defer w.end()
			w.do(w.request(t.Context(), "t-a", submit))
			w.agents["a-1"].set(func(a *fakeAgent) { a.slow = true }) // it answers probes, and thinks that it leads
			time.AfterFunc(20*time.Second, func() { w.lead("a-2", 2) })
			got := w.do(w.request(t.Context(), "t-a", submit))
			if got.reason != "OUTCOME_UNKNOWN" || got.took < 20*time.Second || got.took > 25*time.Second {
				t.Errorf("%+v", got)
			}
			if got := w.do(w.request(t.Context(), "t-a", submit)); got.status != http.StatusOK || !strings.Contains(got.body, "a-2") || got.took != 0 {
				t.Errorf("the next: %+v", got)
			}
		})
	})
	t.Run("probes fail", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, map[cell.ID]int{"a": 3}, nil)
			defer w.end()
			w.do(w.request(t.Context(), "t-a", submit))
			w.agents["a-1"].set(func(a *fakeAgent) { a.slow = true })
			time.AfterFunc(20*time.Second, func() { w.agents["a-1"].set(func(a *fakeAgent) { a.hung = true }) })
			got := w.do(w.request(t.Context(), "t-a", submit))
			if got.reason != "OUTCOME_UNKNOWN" || got.took < 22*time.Second || got.took > 24*time.Second {
				t.Errorf("%+v", got)
			}
			// Nobody leads, and the one that hangs is not given the next.
			if got := w.do(w.request(t.Context(), "t-a", submit)); got.reason != "NOT_APPLIED" || got.took > 6*time.Second {
				t.Errorf("the next: %+v", got)
			}
			w.lead("a-3", 2)
			if got := w.do(w.request(t.Context(), "t-a", submit)); got.status != http.StatusOK || got.took > time.Second {
				t.Errorf("with another: %+v", got)
			}
			w.agents["a-1"].set(func(a *fakeAgent) { a.hung, a.slow = false, false })
			w.lead("a-1", 3)
			time.Sleep(2 * time.Second)
			if got := w.do(w.request(t.Context(), "t-a", submit)); got.status != http.StatusOK || !strings.Contains(got.body, "a-1") {
				t.Errorf("back: %+v", got)
			}
		})
	})
	t.Run("nothing else is known", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, map[cell.ID]int{"a": 3}, nil)
			defer w.end()
			w.do(w.request(t.Context(), "t-a", submit))
			w.agents["a-1"].set(func(a *fakeAgent) { a.slow = true })
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			rec := httptest.NewRecorder()
			began := time.Now()
			w.door.ServeHTTP(rec, w.request(ctx, "t-a", submit))
			if time.Since(began) != 10*time.Minute {
				t.Errorf("given up after %v: %s", time.Since(began), rec.Body)
			}
		})
	})
	t.Run("a single failed probe", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, map[cell.ID]int{"a": 1}, nil)
			defer w.end()
			w.agents["a-1"].set(func(a *fakeAgent) {
				a.serve = func(rw http.ResponseWriter, _ *http.Request) {
					time.Sleep(time.Minute)
					_, _ = rw.Write([]byte(`{}`)) // a recorder takes it
				}
			})
			for i := range 5 {
				time.AfterFunc(time.Duration(10*i+3)*time.Second, func() { w.agents["a-1"].set(func(a *fakeAgent) { a.hung = true }) })
				time.AfterFunc(time.Duration(10*i+4)*time.Second+200*time.Millisecond, func() { w.agents["a-1"].set(func(a *fakeAgent) { a.hung = false }) })
			}
			if got := w.do(w.request(t.Context(), "t-a", submit)); got.status != http.StatusOK {
				t.Errorf("%+v", got)
			}
		})
	})
}

// A deposed leader that is well answers its requests itself: the gateway does not take that from it.
func TestDeposedAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, map[cell.ID]int{"a": 3}, nil)
		defer w.end()
		w.agents["a-1"].set(func(a *fakeAgent) {
			a.serve = func(rw http.ResponseWriter, _ *http.Request) {
				w.lead("a-2", 2)
				time.Sleep(250 * time.Millisecond)
				_, _ = rw.Write([]byte(`{"jobId":"mine"}`)) // a recorder takes it
			}
		})
		time.Sleep(time.Hour)
		if got := w.do(w.request(t.Context(), "t-a", submit)); !strings.Contains(got.body, "mine") {
			t.Errorf("%+v", got)
		}
	})
}

// A cell that hangs harms its own tenants alone: the others' requests go through at once, and the bounds hold.
func TestOtherCellsGoOn(t *testing.T) {
	const hanging = 2000
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, map[cell.ID]int{"a": 3, "b": 3}, func(c *ForwardConfig) {
			c.InFlightPerCellMax, c.InFlightPerTenantMax = hanging, hanging
		})
		defer w.end()
		for _, name := range []string{"a-1", "a-2", "a-3"} {
			w.agents[name].set(func(a *fakeAgent) { a.slow, a.leads = true, true })
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range hanging {
			wg.Go(func() { w.door.ServeHTTP(httptest.NewRecorder(), w.request(ctx, "t-a", submit)) })
		}
		synctest.Wait()
		for range 200 {
			if got := w.do(w.request(t.Context(), "t-b", submit)); got.status != http.StatusOK || got.took != 0 {
				t.Fatalf("%+v", got)
			}
			if got := w.do(w.request(t.Context(), "platform", fairleadv1connect.CellServiceListCellsProcedure)); got.status != http.StatusOK || got.took != 0 {
				t.Fatalf("control: %+v", got)
			}
		}
		got := w.do(w.request(t.Context(), "t-a", submit))
		if got.status != http.StatusServiceUnavailable || got.reason != "CELL_OVERLOADED" || got.limit != LimitInFlightPerCell || got.took != 0 ||
			got.header.Get("Retry-After") == "" {
			t.Errorf("one too many: %+v", got)
		}
		cancel()
		wg.Wait()
	})
}

// A tenant does not fill its cell's bound alone, and those that wait have one of their own.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, map[cell.ID]int{"a": 1}, func(c *ForwardConfig) {
			c.InFlightPerTenantMax, c.ParkedPerCellMax, c.BytesPerCellMax = 5, 3, RequestBytesMax
		})
		defer w.end()
		w.dir["t-x"] = cell.Caller{Key: "key-x", Tenant: "t-x", Permissions: []cell.Permission{cell.PermissionSubmit}}
		w.update(route.Update{Index: 2, Lanes: []route.Lane{{Tenant: "t-x", Cell: "a", Epoch: 1}}})
		w.do(w.request(t.Context(), "t-a", submit))
		w.agents["a-1"].set(func(a *fakeAgent) { a.slow = true })
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() { w.door.ServeHTTP(httptest.NewRecorder(), w.request(ctx, "t-a", submit)) })
		}
		synctest.Wait()
		got := w.do(w.request(t.Context(), "t-a", submit))
		if got.status != http.StatusTooManyRequests || got.limit != LimitInFlightPerTenant {
			t.Errorf("its sixth: %+v", got)
		}
		big := w.request(t.Context(), "t-x", submit)
		big.Body = io.NopCloser(bytes.NewReader(make([]byte, RequestBytesMax-100)))
		if got := w.do(big); got.reason != "CELL_OVERLOADED" || got.limit != LimitBytesPerCell {
			t.Errorf("too large beside the others: %+v", got)
		}
		cancel()
		wg.Wait()
		w.agents["a-1"].set(func(a *fakeAgent) { a.slow, a.dead = false, true })
		ctx, cancel = context.WithCancel(t.Context())
		for range 3 {
			wg.Go(func() { w.door.ServeHTTP(httptest.NewRecorder(), w.request(ctx, "t-a", submit)) })
		}
		synctest.Wait()
		if got := w.do(w.request(t.Context(), "t-x", submit)); got.reason != "CELL_OVERLOADED" || got.limit != LimitParkedPerCell || got.took > time.Second {
			t.Errorf("a fourth that would wait: %+v", got)
		}
		cancel()
		wg.Wait()
	})
}

// A tenant without a cell is waited for, since it may have been made a moment ago; then the answer says what is missing.
func TestUnplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, map[cell.ID]int{"a": 1}, nil)
		defer w.end()
		w.dir["new"] = cell.Caller{Key: "key-n", Tenant: "new", Permissions: []cell.Permission{cell.PermissionSubmit}}
		got := w.do(w.request(t.Context(), "new", submit))
		if got.reason != "UNPLACED" || got.code != "unavailable" || got.took < 5*time.Second || got.took > 6*time.Second {
			t.Errorf("%+v", got)
		}
		time.AfterFunc(time.Second, func() {
			w.update(route.Update{Index: 2, Lanes: []route.Lane{{Tenant: "new", Cell: "a", Epoch: 1}}})
		})
		if got := w.do(w.request(t.Context(), "new", submit)); got.status != http.StatusOK || got.took > 2*time.Second {
			t.Errorf("%+v", got)
		}
	})
}

// A tenant that has moved is followed, and an agent at a new address too.
func TestFollowsRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, map[cell.ID]int{"a": 1, "b": 1}, nil)
		defer w.end()
		w.do(w.request(t.Context(), "t-a", submit))
		w.update(route.Update{Index: 2, Lanes: []route.Lane{{Tenant: "t-a", Cell: "b", Epoch: 2}}})
		if got := w.do(w.request(t.Context(), "t-a", submit)); !strings.Contains(got.body, "b-1") {
			t.Errorf("%+v", got)
		}
		w.mu.Lock()
		w.agents["b-2"] = &fakeAgent{name: "b-2", leads: true, term: 2, serve: w.agents["b-1"].serve}
		w.mu.Unlock()
		w.update(route.Update{Index: 3, Cells: []route.Cell{{Name: "b", Phase: route.PhaseOpen, Replicas: []route.Replica{{Name: "b-2", Address: "x:1"}}}}})
		if got := w.do(w.request(t.Context(), "t-a", submit)); got.status != http.StatusOK || w.agents["b-2"].count() != 1 {
			t.Errorf("%+v", got)
		}
		w.fwd.mu.Lock()
		u := w.fwd.upstreams["b"]
		w.fwd.mu.Unlock()
		u.mu.Lock()
		defer u.mu.Unlock()
		if len(u.replicas) != 1 {
			t.Errorf("%d agents of b", len(u.replicas))
		}
	})
}

// Nobody is probed who has no requests.
func TestIdleIsNotProbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, map[cell.ID]int{"a": 3}, nil)
		defer w.end()
		w.do(w.request(t.Context(), "t-a", submit))
		time.Sleep(time.Minute)
		a := w.agents["a-1"]
		a.mu.Lock()
		before := a.probes
		a.mu.Unlock()
		time.Sleep(time.Hour)
		a.mu.Lock()
		defer a.mu.Unlock()
		if before == 0 || a.probes != before {
			t.Errorf("%d probes, and %d in an idle hour", before, a.probes-before)
		}
	})
}

func TestForwardConfigNamesEveryFault(t *testing.T) {
	_, err := NewForwarder(ForwardConfig{ProbeSilence: -1})
	for _, field := range []string{
		"Routes", "Transport", "InFlightPerCellMax", "InFlightPerTenantMax", "ParkedPerCellMax", "ParkMax", "ProbeEvery", "BytesPerCellMax", "ProbeSilence",
		"WaitingMax", "WaitingPerTenantMax", "WaitingBytesPerTenantMax",
	} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%v does not name %s", err, field)
		}
	}
}

func TestTimeoutOf(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"Connect-Timeout-Ms: 1500": 1500 * time.Millisecond, "Grpc-Timeout: 2S": 2 * time.Second, "Grpc-Timeout: 3H": 3 * time.Hour,
		"Grpc-Timeout: 5u": 5 * time.Microsecond, "Grpc-Timeout: 7n": 7, "Grpc-Timeout: 1M": time.Minute,
		"Grpc-Timeout: 5": 0, "Grpc-Timeout: x": 0, "Connect-Timeout-Ms: -1": 0, "Connect-Timeout-Ms: 99999999999": 0,
		"Grpc-Timeout: 99999999H": 0, "Connect-Timeout-Ms: ": 0,
	} {
		name, value, _ := strings.Cut(text, ": ")
		got, ok := timeoutOf(http.Header{name: {value}})
		if got != want || ok != (want != 0) {
			t.Errorf("%s: %v %v", text, got, ok)
		}
	}
}
