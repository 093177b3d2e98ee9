package gateway

import (
	"context"
	"crypto/sha256"
	"errors"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/dataplane/route"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// fakeControl is control agents by their addresses.
type fakeControl struct {
	mu     sync.Mutex
	agents map[string]*fakeStream
	asked  []string // addresses, in order
	index  uint64   // what the last asker had
}

// fakeStream is what one agent says: what is sent to it, and a heartbeat each second, unless it is silent.
type fakeStream struct {
	down, silent bool
	first        []*fairleadv1.WatchRoutesResponse
	send         chan *fairleadv1.WatchRoutesResponse
	index        uint64
}

func (f *fakeControl) Watch(ctx context.Context, agent route.Replica, index uint64) iter.Seq2[*fairleadv1.WatchRoutesResponse, error] {
	f.mu.Lock()
	f.asked = append(f.asked, agent.Address)
	f.index = index
	s, ok := f.agents[agent.Address]
	down := !ok || s.down
	f.mu.Unlock()
	return func(yield func(*fairleadv1.WatchRoutesResponse, error) bool) {
		if down {
			yield(nil, errors.New("connection refused"))
			return
		}
		for _, m := range s.first {
			if !yield(m, nil) {
				return
			}
		}
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			f.mu.Lock()
			m, silent, down := &fairleadv1.WatchRoutesResponse{Index: s.index}, s.silent, s.down
			f.mu.Unlock()
			select {
			case <-ctx.Done():
				yield(nil, ctx.Err())
				return
			case m = <-s.send:
			case <-tick.C:
				if silent {
					continue
				}
			}
			if down {
				yield(nil, errors.New("connection reset"))
				return
			}
			if !yield(m, nil) {
				return
			}
		}
	}
}

func (f *fakeControl) set(address string, change func(*fakeStream)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f.agents[address])
}

func keyRoute(secret Secret, id string) *fairleadv1.KeyRoute {
	h := secret.Hash()
	return &fairleadv1.KeyRoute{Id: id, Hash: h[:], Tenant: "acme", Permissions: []uint32{1, 2, 1000}, Operations: []string{"op"}}
}

// everything is all that there is at an index, in two parts.
func everything(index uint64) []*fairleadv1.WatchRoutesResponse {
	return []*fairleadv1.WatchRoutesResponse{
		{Index: index, Reset_: true, Keys: []*fairleadv1.KeyRoute{keyRoute("s1", "key_1"), {Id: "odd", Hash: []byte("short")}}},
		{
			Index: index, Complete: true, Keys: []*fairleadv1.KeyRoute{keyRoute("s2", "key_2")},
			Lanes: []*fairleadv1.LaneRoute{{Tenant: "acme", Cell: "a", Epoch: 3}},
			Cells: []*fairleadv1.CellRoute{{
				Name: "a", Phase: fairleadv1.CellPhase_CELL_PHASE_OPEN, Replicas: []*fairleadv1.Agent{{Name: "a-1", ApiAddress: "h:1"}},
			}},
			Control: []*fairleadv1.Agent{{Name: "c-1", ApiAddress: "one"}, {Name: "c-2", ApiAddress: "two"}}, FeatureLevel: 1,
		},
	}
}

func newControl() *fakeControl {
	f := &fakeControl{agents: map[string]*fakeStream{}}
	for _, address := range []string{"one", "two"} {
		f.agents[address] = &fakeStream{first: everything(10), index: 10, send: make(chan *fairleadv1.WatchRoutesResponse)}
	}
	return f
}

func newWatcher(t *testing.T, f *fakeControl, path string, change func(*WatchConfig)) *Watcher {
	t.Helper()
	cfg := WatchConfig{Source: f, Control: []string{"one"}, Cluster: "c1", Path: path, Log: quiet()}
	if change != nil {
		change(&cfg)
	}
	w, err := NewWatcher(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// running runs w until the function that it returns is called.
func running(t *testing.T, w *Watcher) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

func knows(w *Watcher, secrets ...Secret) bool {
	return !slices.ContainsFunc(secrets, func(s Secret) bool {
		_, ok := w.Lookup(s.Hash())
		return !ok
	})
}

// Routes come from control as a whole, and then as they change: a revoked key dies with the update.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newControl()
		w := newWatcher(t, f, "", nil)
		if knows(w, "s1") || !w.Heard().IsZero() {
			t.Error("something is known before control was heard of")
		}
		changed := w.Changed()
		stop := running(t, w)
		<-changed
		synctest.Wait()
		c, ok := w.Lookup(Secret("s1").Hash())
		if !ok || c.Key != "key_1" || c.Tenant != "acme" || !slices.Equal(c.Permissions, []cell.Permission{1, 2}) || len(c.Operations) != 1 {
			t.Errorf("%v %v", c, ok)
		}
		tab := w.Table()
		if l, _ := tab.Lane("acme"); l.Cell != "a" || l.Epoch != 3 || tab.Cells()[0].Replicas[0].Address != "h:1" || tab.FeatureLevel() != 1 {
			t.Errorf("%v %v", l, tab.Cells())
		}
		k := keyRoute("s3", "key_3")
		k.ExpireTime = timestamppb.New(time.Now().Add(time.Hour))
		f.agents["one"].send <- &fairleadv1.WatchRoutesResponse{
			Index: 11, KeysRemoved: []string{"key_1"}, Keys: []*fairleadv1.KeyRoute{k}, TenantsRemoved: []string{"acme"}, CellsRemoved: []string{"a"},
		}
		synctest.Wait()
		if knows(w, "s1") || !knows(w, "s2", "s3") || w.Table().Tenants() != 0 || len(w.Table().Cells()) != 0 {
			t.Error("the update had no effect")
		}
		f.set("one", func(s *fakeStream) { s.index = 11 })
		time.Sleep(2 * time.Hour)
		if knows(w, "s3") || !knows(w, "s2") {
			t.Error("an expired key lives, or another does not")
		}
		stop()
	})
}

// When its agent dies, falls silent or ends, another is asked, for what is new.
func TestWatchFailsOver(t *testing.T) {
	for name, fail := range map[string]func(*fakeStream){
		"dead": func(s *fakeStream) { s.down = true }, "silent": func(s *fakeStream) { s.silent = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newControl()
				w := newWatcher(t, f, "", nil)
				stop := running(t, w)
				time.Sleep(3 * time.Second)
				f.set("one", fail)
				f.set("two", func(s *fakeStream) {
					s.index, s.first = 12, []*fairleadv1.WatchRoutesResponse{{Index: 12, KeysRemoved: []string{"key_2"}}}
				})
				time.Sleep(20 * time.Second)
				f.mu.Lock()
				if !slices.Contains(f.asked, "two") || f.index < 10 {
					t.Errorf("asked %v from %d", f.asked, f.index)
				}
				f.mu.Unlock()
				if knows(w, "s2") || !knows(w, "s1") || time.Since(w.Heard()) > 10*time.Second {
					t.Errorf("heard %v ago", time.Since(w.Heard()))
				}
				stop()
			})
		})
	}
}

// With control gone, keys are good for an hour and no longer, in this process and over a restart.
func TestStaleKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "routes")
	synctest.Test(t, func(t *testing.T) {
		f := newControl()
		w := newWatcher(t, f, path, nil)
		if w.Current() {
			t.Error("what control has not told yet passes for all there is")
		}
		stop := running(t, w)
		time.Sleep(10 * time.Minute)
		for _, address := range []string{"one", "two"} {
			f.set(address, func(s *fakeStream) { s.down = true })
		}
		time.Sleep(30 * time.Minute)
		if !knows(w, "s1", "s2") {
			t.Error("keys are gone after half an hour")
		}
		stop()

		w = newWatcher(t, f, path, nil)
		if l, ok := w.Table().Lane("acme"); !knows(w, "s1", "s2") || !ok || l.Cell != "a" || w.Table().Index() != 10 {
			t.Error("the next process does not know the routes")
		}
		stop = running(t, w)
		time.Sleep(25 * time.Minute)
		if !knows(w, "s1") {
			t.Error("keys are gone after 55 minutes")
		}
		f.mu.Lock()
		if f.index != 10 || !slices.Contains(f.asked, "two") {
			t.Errorf("asked %d from %d", len(f.asked), f.index)
		}
		f.mu.Unlock()
		time.Sleep(10 * time.Minute)
		if knows(w, "s1") || knows(w, "s2") {
			t.Error("keys live after more than an hour")
		}
		if w.Current() {
			t.Error("keys of more than an hour ago pass for all there are")
		}
		if _, ok := w.Table().Lane("acme"); !ok {
			t.Error("the routes are gone: only keys grow stale")
		}
		f.set("two", func(s *fakeStream) { s.down = false })
		time.Sleep(5 * time.Second)
		if !knows(w, "s1", "s2") {
			t.Error("keys are not good again within 5 s of control's return")
		}
		stop()
	})
}

// An agent that knows less than this gateway is not believed, so that it does not bring a revoked key back; when all of control does for long,
// it was restored.
func TestBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newControl()
		w := newWatcher(t, f, "", nil)
		stop := running(t, w)
		time.Sleep(2 * time.Second)
		f.agents["one"].send <- &fairleadv1.WatchRoutesResponse{Index: 20, KeysRemoved: []string{"key_1"}}
		synctest.Wait()
		f.set("one", func(s *fakeStream) { s.down = true })
		time.Sleep(20 * time.Second)
		if knows(w, "s1") || !knows(w, "s2") || w.Table().Index() != 20 {
			t.Errorf("an agent that lags was believed: %d", w.Table().Index())
		}
		time.Sleep(time.Minute)
		if !knows(w, "s1", "s2") || w.Table().Index() != 10 {
			t.Errorf("control was restored, and is not believed: %d", w.Table().Index())
		}
		stop()
	})
}

// Half of a beginning is nothing.
func TestHalfBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newControl()
		f.agents["one"].first = everything(10)[:1]
		w := newWatcher(t, f, "", nil)
		stop := running(t, w)
		time.Sleep(2 * time.Second)
		f.set("one", func(s *fakeStream) { s.down = true })
		time.Sleep(10 * time.Second)
		if knows(w, "s1") || w.Table().Known() || w.Table().Beginning() {
			t.Error("half a beginning was taken for all")
		}
		f.set("one", func(s *fakeStream) { s.down, s.first = false, everything(10) })
		time.Sleep(10 * time.Second)
		if !knows(w, "s1", "s2") {
			t.Error("the whole was not taken")
		}
		stop()
	})
}

// A file that is damaged, of another cluster or from the future is not trusted, and what is wrong with it is said.
func TestBadFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "routes")
	var good []byte
	synctest.Test(t, func(t *testing.T) {
		w := newWatcher(t, newControl(), path, nil)
		stop := running(t, w)
		time.Sleep(3 * time.Second)
		stop()
		var err error
		if good, err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v %v", info.Mode(), err)
		}
	})
	s, err := route.Decode(good)
	if err != nil {
		t.Fatal(err)
	}
	s.Heard = cell.InstantOf(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)) // when bubbles begin
	encode := func(change func(*route.Saved)) []byte {
		s := s
		change(&s)
		return route.Encode(s)
	}
	for name, c := range map[string]struct {
		data        []byte
		keys, aside bool
	}{
		"as it was":       {good, true, false},
		"a flipped bit":   {append(append(slices.Clone(good[:60]), good[60]^4), good[61:]...), false, true},
		"cut short":       {good[:len(good)/2], false, true},
		"empty":           {nil, false, true},
		"another cluster": {encode(func(s *route.Saved) { s.Cluster = "c2" }), false, true},
		"a little late":   {encode(func(s *route.Saved) { s.Heard = s.Heard.Add(3 * time.Second) }), true, false},
		"from the future": {encode(func(s *route.Saved) { s.Heard = s.Heard.Add(time.Hour) }), false, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			_ = os.Remove(path + asideSuffix) // of the case before
			if err := os.WriteFile(path, c.data, 0o600); err != nil {
				t.Fatal(err)
			}
			w := newWatcher(t, newControl(), path, nil)
			if knows(w, "s1", "s2") != c.keys {
				t.Errorf("%s: keys are good: %v", name, !c.keys)
			}
			if _, err := os.Stat(path + asideSuffix); (err == nil) != c.aside {
				t.Errorf("%s: moved aside: %v", name, err)
			}
			stop := running(t, w)
			time.Sleep(3 * time.Second)
			if !knows(w, "s1", "s2") {
				t.Errorf("%s: nothing is known with control there", name)
			}
			stop()
			if data, err := os.ReadFile(path); err != nil || !strings.HasPrefix(string(data), "fairlead-routes") {
				t.Errorf("%s: the file after it: %v", name, err)
			}
		})
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 2 {
		t.Errorf("%v, %v", left, err)
	}
}

func TestWatchConfig(t *testing.T) {
	for name, cfg := range map[string]WatchConfig{
		"Source": {}, "KeysStaleMax": {Source: newControl(), KeysStaleMax: -1}, "file": {Source: newControl(), Path: t.TempDir()},
	} {
		if _, err := NewWatcher(cfg); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A gateway that control has told nothing yet calls no key unknown: whoever has one is to try again.
func TestKeysThatAreNotKnownYet(t *testing.T) {
	g, err := New(DefaultConfig(), notCurrent{})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/fairlead.v1.JobService/GetJob", strings.NewReader("{}"))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer flk_"+strings.Repeat("A", 43))
	w := httptest.NewRecorder()
	g.Handler(http.NotFoundHandler()).ServeHTTP(w, r)
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "NOT_APPLIED") {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
}

// notCurrent is a directory that has heard of nothing yet.
type notCurrent struct{}

func (notCurrent) Lookup([sha256.Size]byte) (cell.Caller, bool) { return cell.Caller{}, false }
func (notCurrent) Current() bool                                { return false }
