package controlserver

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/control/state"
	"github.com/fairlead/fairlead/migrate"
	"github.com/fairlead/fairlead/placement"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
	"github.com/fairlead/fairlead/proto/rejection"
)

// table is what a gateway makes of the messages.
type table struct {
	index   uint64
	keys    map[string]string
	lanes   map[string]string
	cells   map[string]string
	control string
	level   int32
	resets  int
	staged  *table
}

func newTable() *table {
	return &table{keys: map[string]string{}, lanes: map[string]string{}, cells: map[string]string{}}
}

func (t *table) take(m *fairleadv1.WatchRoutesResponse) error {
	if m.GetReset_() {
		t.staged = newTable()
	}
	to := t
	if t.staged != nil {
		to = t.staged
	} else if m.GetIndex() < t.index {
		return fmt.Errorf("from index %d back to %d", t.index, m.GetIndex())
	}
	to.index = m.GetIndex()
	for _, k := range m.GetKeys() {
		to.keys[k.GetId()] = fmt.Sprintf("%x %s %v", k.GetHash(), k.GetTenant(), k.GetPermissions())
	}
	for _, id := range m.GetKeysRemoved() {
		delete(to.keys, id)
	}
	for _, l := range m.GetLanes() {
		to.lanes[l.GetTenant()] = fmt.Sprintf("%s %d", l.GetCell(), l.GetEpoch())
		if l.GetBatchCell() != "" {
			to.lanes[l.GetTenant()] += fmt.Sprintf(", %s %d", l.GetBatchCell(), l.GetBatchEpoch())
		}
	}
	for _, id := range m.GetTenantsRemoved() {
		delete(to.lanes, id)
	}
	for _, c := range m.GetCells() {
		to.cells[c.GetName()] = fmt.Sprintf("%v", c)
	}
	for _, id := range m.GetCellsRemoved() {
		delete(to.cells, id)
	}
	if len(m.GetControl()) > 0 {
		to.control = fmt.Sprint(m.GetControl())
	}
	if m.GetFeatureLevel() != 0 {
		to.level = m.GetFeatureLevel()
	}
	if t.staged != nil && m.GetComplete() {
		resets := t.resets + 1
		*t = *t.staged
		t.resets = resets
	}
	return nil
}

func (t *table) same(o *table) bool {
	return t.index == o.index && maps.Equal(t.keys, o.keys) && maps.Equal(t.lanes, o.lanes) && maps.Equal(t.cells, o.cells) && t.control == o.control &&
		t.level == o.level
}

// all returns the table of everything in the machine.
func all(t *testing.T, m *Machine) *table {
	t.Helper()
	to := newTable()
	if err := everything(m.View(), cell.InstantOf(time.Unix(100, 0)), 5, to.take); err != nil {
		t.Fatal(err)
	}
	return to
}

// anything returns a random command about few things, so that they are met again.
func anything(r *rand.Rand) command.Command {
	id := fmt.Sprint("x", r.IntN(6))
	home := cell.ID(fmt.Sprint("cell", r.IntN(3)))
	at := cell.Instant(1 + r.IntN(1000))
	var hash [32]byte
	hash[0], hash[1] = byte(r.IntN(256)), byte(r.IntN(256))
	role, of := command.RoleCell, home
	if r.IntN(2) == 0 {
		role, of = command.RoleControl, ""
	}
	if r.IntN(4) == 0 {
		role, of = command.RoleGateway, ""
	}
	return []func() command.Command{
		func() command.Command { return command.CreateTenant{Tenant: cell.TenantID(id), Time: at} },
		func() command.Command {
			return command.CreateKey{
				Key: command.KeyID(fmt.Sprint("k", r.IntN(9))), Permissions: []cell.Permission{cell.PermissionOperate, cell.PermissionAdmin}, Hash: hash, Time: at,
			}
		},
		func() command.Command {
			return command.RevokeKey{Key: command.KeyID(fmt.Sprint("k", r.IntN(9))), Time: at}
		},
		func() command.Command {
			return command.CreateCell{Cell: home, Kind: placement.KindPooled, Replicas: 1, Time: at}
		},
		func() command.Command {
			return command.SetCellVoters{Cell: home, Voters: []command.Replica{{Name: "v"}}, Generation: 1, Time: at}
		},
		func() command.Command {
			return command.SetCellPhase{Cell: home, Phase: placement.Phase(2 + r.IntN(3)), Time: at}
		},
		func() command.Command { return command.DeleteCell{Cell: home, Time: at} },
		func() command.Command { return command.Assign{Tenant: cell.TenantID(id), Cell: home, Time: at} },
		func() command.Command {
			return command.RegisterAgent{Time: at, Agent: command.Agent{
				Name: command.AgentName(fmt.Sprint("a", r.IntN(5))), Role: role, Cell: of, APIAddress: fmt.Sprint("h:", r.IntN(3)), FeatureLevelMax: 1,
			}}
		},
		func() command.Command {
			return command.ForgetAgent{Name: command.AgentName(fmt.Sprint("a", r.IntN(5))), Time: at}
		},
		func() command.Command { return command.CreateCluster{ID: "c", Time: at} },
		func() command.Command {
			if r.IntN(20) > 0 {
				return command.UpdateTenant{Tenant: cell.TenantID(id), RunningMax: new(int64(3)), Time: at}
			}
			return command.Restored{Time: at}
		},
	}[r.IntN(12)]()
}

func passed() []migrate.Gate { return []migrate.Gate{{Name: "all", Verdict: migrate.Pass}} }

// moving returns a random command that begins a migration, or takes one a step on.
func moving(r *rand.Rand, v state.View) command.Command {
	live := slices.Collect(v.LiveMigrations())
	if len(live) == 0 || r.IntN(10) == 0 {
		c := command.StartMigration{
			ID: cell.MigrationID(fmt.Sprint("m", v.Index())), Tenant: cell.TenantID(fmt.Sprint("x", r.IntN(6))), Source: "none",
			Target: cell.ID(fmt.Sprint("cell", r.IntN(3))), Reason: "operator", Options: migrate.DefaultOptions(), Order: migrate.DefaultOrder(), Time: 1,
		}
		for i, a := range v.Homes(c.Tenant) {
			c.Source, c.Expect[i] = cmp.Or(a.Cell, c.Source), a.Epoch
		}
		if c.Source == c.Target {
			c.Target = "cell9"
		}
		return c
	}
	m := live[r.IntN(len(live))]
	e := migrate.Event{Attempt: m.Attempt, Time: 1, Position: 1, Change: 1, Digest: [32]byte{1}, Gates: passed()}
	forward := []migrate.Kind{migrate.EventPass, migrate.EventFence, migrate.EventCommit, migrate.EventActivate, migrate.EventObserved}
	for range 50 {
		e.Kind, e.Class = migrate.Kind(1+r.IntN(20)), 0
		if r.IntN(10) > 0 {
			e.Kind = forward[r.IntN(len(forward))]
		}
		if e.Kind.HasClass() {
			e.Class = cell.Classes()[r.IntN(2)]
		}
		if _, err := m.Apply(e); err == nil {
			break
		}
	}
	return command.AdvanceMigration{ID: m.ID, Expect: m.Generation, Event: e}
}

// Whatever happens, and however far behind a watcher is, what it is sent makes the same table as everything there is, and never goes back.
func TestRoutesAddUp(t *testing.T) {
	apart := 0
	defer func() {
		if apart == 0 {
			t.Error("no lanes were ever apart")
		}
	}()
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 1))
		m := NewMachine()
		hub := &routes{machine: m, now: func() time.Time { return time.Unix(100, 0) }, bounds: defaultRouteBounds()}
		tables := make([]*table, 4)
		watches := make([]*watch, len(tables))
		for i := range tables {
			tables[i] = newTable()
			watches[i] = &watch{routes: hub, send: tables[i].take, fresh: true}
		}
		// One that is never forgotten: that there is none cannot be said, and is never so.
		m.Apply(1, command.Encode(command.RegisterAgent{Agent: command.Agent{Name: "always", Role: command.RoleControl, FeatureLevelMax: 1}, Time: 1}))
		for index := uint64(2); index <= 300; index++ {
			next := anything(r)
			if r.IntN(3) == 0 {
				next = moving(r, m.View())
			}
			m.Apply(index, command.Encode(next))
			for _, a := range tables[0].lanes {
				if strings.Contains(a, ",") {
					apart++
				}
			}
			for i, w := range watches {
				if r.IntN(1<<(2*i)) > 0 { // the first always looks, the last rarely
					continue
				}
				if err := w.catchUp(t.Context()); err != nil {
					t.Fatal(err)
				}
				if want := all(t, m); !tables[i].same(want) {
					t.Fatalf("seed %d, entry %d, watcher %d: %+v, not %+v", seed, index, i, tables[i], want)
				}
			}
			if r.IntN(50) == 0 { // somebody comes back with what they have
				i := r.IntN(len(watches))
				watches[i] = &watch{routes: hub, send: tables[i].take, index: watches[i].index, fresh: watches[i].index == 0}
			}
		}
		if len(hub.steps) == 0 || tables[0].resets > 20 {
			t.Fatalf("seed %d: %d steps, %d times everything", seed, len(hub.steps), tables[0].resets)
		}
	}
}

// One delta is computed for everybody, and who is slower than what is kept is sent everything; nothing grows.
func TestSlowWatcherIsReset(t *testing.T) {
	m := NewMachine()
	hub := &routes{machine: m, now: time.Now, bounds: routeBounds{perMessage: 100, stepRows: 100, steps: 16, rows: 100}}
	fast, slow := newTable(), newTable()
	first := &watch{routes: hub, send: fast.take, fresh: true}
	last := &watch{routes: hub, send: slow.take, fresh: true}
	index := uint64(0)
	apply := func(c command.Command) {
		index++
		if r, ok := m.Apply(index, command.Encode(c)).(state.Result); !ok || r.Refused != nil {
			t.Fatal(r.Refused)
		}
	}
	apply(command.CreateCell{Cell: "c", Kind: placement.KindPooled, Replicas: 1, Time: 1})
	look := func(w *watch) {
		t.Helper()
		if err := w.catchUp(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	look(last)
	for i := range 2 * hub.bounds.steps {
		apply(command.UpdateCell{Cell: "c", Groups: new(1 + i%2), Hand: new(1), Time: 1})
		look(first)
	}
	if len(hub.steps) != hub.bounds.steps || fast.resets != 1 {
		t.Errorf("%d steps are kept; the fast one was sent everything %d times", len(hub.steps), fast.resets)
	}
	one, ok := hub.next(index - 1)
	two, _ := hub.next(index - 1)
	if !ok || one.message != two.message {
		t.Error("computed twice")
	}
	look(last)
	if slow.resets != 1 || !slow.same(fast) { // the journal still tells what changed: once
		t.Errorf("the slow one was sent everything %d times: %+v", slow.resets, slow)
	}
	apply(command.UpdateCell{Cell: "c", Groups: new(1), Hand: new(1), Time: 1})
	m.publish(&published{journal: journal{floor: index}}) // as if much had happened
	hub.steps = nil
	look(last)
	if slow.resets != 2 {
		t.Errorf("what nobody remembers was made up: %d", slow.resets)
	}
}

// Everything is sent in messages of a bounded size.
func TestEverythingInParts(t *testing.T) {
	m := NewMachine()
	index := uint64(0)
	apply := func(c command.Command) {
		index++
		m.Apply(index, command.Encode(c))
	}
	apply(command.CreateCell{Cell: "c", Kind: placement.KindPooled, Replicas: 1, Time: 1})
	apply(command.SetCellVoters{Cell: "c", Voters: []command.Replica{{Name: "v"}}, Generation: 1, Time: 1})
	const most, n = 100, 210
	for i := range n {
		apply(command.CreateTenant{Tenant: cell.TenantID(fmt.Sprintf("t%05d", i)), Time: 1})
		apply(command.Assign{Tenant: cell.TenantID(fmt.Sprintf("t%05d", i)), Cell: "c", Time: 1})
	}
	to, messages := newTable(), 0
	if err := everything(m.View(), 1, most, func(m *fairleadv1.WatchRoutesResponse) error {
		if messages++; rowsOf(m) > most || m.GetReset_() != (messages == 1) {
			t.Errorf("message %d has %d rows, reset %v", messages, rowsOf(m), m.GetReset_())
		}
		return to.take(m)
	}); err != nil || messages != 3 || len(to.lanes) != n || to.resets != 1 {
		t.Errorf("%d messages, %d lanes, %v", messages, len(to.lanes), err)
	}
	stop := errors.New("gone")
	if err := everything(m.View(), 1, most, func(*fairleadv1.WatchRoutesResponse) error { return stop }); !errors.Is(err, stop) {
		t.Error(err)
	}
	// A delta that is too large is no delta.
	hub := &routes{machine: m, now: time.Now, bounds: routeBounds{stepRows: n - 1, steps: 1, rows: 1000}}
	if s, ok := hub.next(1); ok {
		t.Errorf("a step of %d rows", s.rows)
	}
}

// A follower serves what it has applied, with heartbeats, for as long as it hears of a leader; then it says so and ends the stream.
func TestWatchAtFollower(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		group := newFakeGroup(c.machine)
		follower := c.replica(group) // over the same machine
		if follower.Leads() {
			t.Fatal("leads")
		}
		var mu sync.Mutex
		got, beats := newTable(), 0
		w := &watch{routes: follower.routes, current: follower.fresh.current, leads: follower.fresh.leads, send: func(m *fairleadv1.WatchRoutesResponse) error {
			mu.Lock()
			defer mu.Unlock()
			if rowsOf(m) == 0 && !m.GetReset_() {
				beats++
			}
			return got.take(m)
		}}
		ended := make(chan error, 1)
		go func() { ended <- w.run(t.Context()) }()
		c.cellWith("east", 100, nil)
		c.tenantIn("ash", nil)
		c.after(5 * time.Second)
		mu.Lock()
		if got.lanes["ash"] == "" || got.resets != 1 || beats < 5 {
			t.Errorf("%+v after %d heartbeats", got, beats)
		}
		mu.Unlock()
		k, err := c.CreateKey(c.ctx, &fairleadv1.CreateKeyRequest{Scopes: []fairleadv1.Scope{fairleadv1.Scope_SCOPE_OPERATE}})
		if err != nil {
			t.Fatal(err)
		}
		knows := func() bool {
			<-time.After(2 * stepDelay)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return got.keys[k.GetKey().GetId()] != ""
		}
		if !knows() {
			t.Error("a new key is not there")
		}
		if _, err := c.RevokeKey(c.ctx, &fairleadv1.RevokeKeyRequest{Id: k.GetKey().GetId()}); err != nil {
			t.Fatal(err)
		}
		if knows() {
			t.Error("a revoked key lives on")
		}
		group.hear("control-1", contactMax+1)
		if err := <-ended; rejection.From(err).GetReason() != "NO_LEADER_CONTACT" {
			t.Error(err)
		}
		group.hear("", 0)
		if err := follower.fresh.current(t.Context()); rejection.From(err).GetReason() != "NO_LEADER_CONTACT" {
			t.Error(err)
		}
		group.lead()
		group.breakWith(errors.New("partitioned"))
		if err := follower.fresh.current(t.Context()); rejection.From(err).GetReason() != "NO_LEADER_CONTACT" {
			t.Error(err)
		}
		group.breakWith(nil)
		if err := follower.fresh.current(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Who asks a follower that is behind is sent elsewhere, unless it catches up; who asks the leader has something of another log, and begins anew.
func TestWatchAhead(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		run := func(s *Server, index uint64) (*table, error) {
			got := newTable()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			w := &watch{routes: s.routes, current: s.fresh.current, leads: s.fresh.leads, index: index, send: got.take}
			return got, w.run(ctx)
		}
		ahead := c.machine.View().Index() + 1000
		follower := c.replica(newFakeGroup(c.machine))
		if _, err := run(follower, ahead); rejection.From(err).GetReason() != "NO_LEADER_CONTACT" {
			t.Error(err)
		}
		if got, err := run(c.Server, ahead); !errors.Is(err, context.DeadlineExceeded) || got.resets != 1 {
			t.Errorf("%v: %+v", err, got)
		}
		go func() {
			<-time.After(aheadMax / 2)
			if _, err := c.proposeQuietly(t.Context(), command.CreateTenant{Tenant: "soon", Time: c.instant()}); err != nil {
				t.Error(err)
			}
		}()
		next := c.machine.View().Index() + 1
		if got, err := run(follower, next); !errors.Is(err, context.DeadlineExceeded) || got.resets != 0 || got.index < next {
			t.Errorf("%v: %+v", err, got)
		}
	})
}

// Over HTTP: an agent's certificate is asked for, and no more watch than may.
func TestWatchRoutesOverHTTP(t *testing.T) {
	c := startCluster(t)
	c.group.lead()
	mux := http.NewServeMux()
	mux.Handle(fairleadv1connect.NewRegistryServiceHandler(c.Registry()))
	peer := true
	hs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if peer {
			r = r.WithContext(asPeer(r.Context(), command.RoleGateway, "g", ""))
		}
		mux.ServeHTTP(w, r)
	}))
	defer hs.Close()
	client := fairleadv1connect.NewRegistryServiceClient(hs.Client(), hs.URL)
	watch := func() (*fairleadv1.WatchRoutesResponse, error) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := client.WatchRoutes(ctx, &fairleadv1.WatchRoutesRequest{})
		if err != nil {
			return nil, err
		}
		defer func() { cancel(); _ = stream.Close() }()
		if !stream.Receive() {
			return nil, stream.Err()
		}
		return stream.Msg(), nil
	}
	m, err := watch()
	if err != nil || !m.GetReset_() || !m.GetComplete() {
		t.Errorf("%v, %v", m, err)
	}
	c.routes.mu.Lock()
	c.routes.watchers += WatchersMax
	c.routes.mu.Unlock()
	if _, err := watch(); connect.CodeOf(err) != connect.CodeUnavailable || rejection.From(err).GetReason() != "WATCHERS_MAX" {
		t.Error(err)
	}
	peer = false
	if _, err := watch(); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Error(err)
	}
}

// What is remembered is bounded, whole entries at a time, and what was published before is not written over.
func TestJournalIsBounded(t *testing.T) {
	j := journal{entries: make([]touched, 2*journalMax)}
	for i := range j.entries {
		j.entries[i] = touched{uint64(i/2) + 1, touchCell, "c"}
	}
	last := uint64(journalMax)
	for range 3 {
		last++
		for range 2 {
			j = j.note(last, touchCell, "c")
		}
	}
	if len(j.entries) > journalMax+6 {
		t.Fatalf("%d entries", len(j.entries))
	}
	if names, ok := j.since(j.floor); !ok || len(names) != len(j.entries) || names[0].index != j.floor+1 || names[1].index != names[0].index {
		t.Errorf("%d of %d, %v", len(names), len(j.entries), ok)
	}
	if _, ok := j.since(j.floor - 1); ok {
		t.Error("what is forgotten is remembered")
	}
	held, _ := j.since(last - 1)
	j.note(last+1, touchKey, "other").note(last+2, touchKey, "another")
	if len(held) != 2 || held[1].id != "c" {
		t.Errorf("%v", held)
	}
}

// A restored state is another: nobody goes on from what they had.
func TestJournalAfterRestore(t *testing.T) {
	m := NewMachine()
	for i := range uint64(9) {
		m.Apply(i+1, command.Encode(command.CreateCell{Cell: cell.ID(fmt.Sprint("c", i)), Kind: placement.KindPooled, Replicas: 1, Time: 1}))
	}
	p := m.latest.Load()
	if names, ok := p.journal.since(4); !ok || len(names) != 5 || names[0] != (touched{5, touchCell, "c4"}) || p.decided != 9 || p.relevant != 9 {
		t.Errorf("%v, %v, %+v", names, ok, p)
	}
	if names, ok := p.journal.since(9); !ok || len(names) != 0 {
		t.Errorf("%v, %v", names, ok)
	}
	var b bytes.Buffer
	if _, err := m.View().WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	if err := m.CheckSnapshot(bytes.NewReader(b.Bytes())); err != nil {
		t.Error(err)
	}
	if err := m.CheckSnapshot(bytes.NewReader(b.Bytes()[:b.Len()-1])); !errors.Is(err, state.ErrSnapshot) {
		t.Error(err)
	}
	if err := m.Restore(&b); err != nil {
		t.Fatal(err)
	}
	if _, ok := m.latest.Load().journal.since(8); ok {
		t.Error("goes on over a restore")
	}
	if !reflect.DeepEqual(slices.Collect(p.view.Cells("")), slices.Collect(m.View().Cells(""))) {
		t.Error("restored another state")
	}
}
