package mover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/migrate"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

var errStale = errors.New("decided on another generation")

// fakeControl is control's records, and the cells.
type fakeControl struct {
	cells map[cell.ID]*fakeCell

	mu      sync.Mutex
	records map[cell.MigrationID]migrate.Record
	order   []cell.MigrationID
	changed chan struct{}
	gates   []migrate.Gate
	broken  error // what Propose returns
	events  []migrate.Kind
}

func newFakeControl(cells ...*fakeCell) *fakeControl {
	c := &fakeControl{cells: map[cell.ID]*fakeCell{}, records: map[cell.MigrationID]migrate.Record{}, changed: make(chan struct{})}
	for _, f := range cells {
		c.cells[cell.ID(f.name)] = f
	}
	return c
}

func (c *fakeControl) declare(t *testing.T, id, tenant, source, target string, change func(*migrate.Options)) {
	t.Helper()
	o := migrate.DefaultOptions()
	o.CanaryJobs, o.CanaryTime = 0, time.Second
	if change != nil {
		change(&o)
	}
	r, err := migrate.New(migrate.Declaration{
		ID: cell.MigrationID(id), Tenant: cell.TenantID(tenant), Source: cell.ID(source), Target: cell.ID(target), Reason: "operator", Actor: "key_1",
		Options: o, Epochs: [2]cell.Epoch{1, 1}, Now: cell.InstantOf(time.Now()),
	})
	if err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.records[r.ID] = r
	c.order = append(c.order, r.ID)
	c.wakeLocked()
}

func (c *fakeControl) wakeLocked() {
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *fakeControl) Record(id cell.MigrationID) (migrate.Record, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok := c.records[id]
	return r, ok
}

func (c *fakeControl) Live() (out []migrate.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range c.order {
		if r := c.records[id]; !r.Done() {
			out = append(out, r)
		}
	}
	return out
}

func (c *fakeControl) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

func (c *fakeControl) Propose(_ context.Context, id cell.MigrationID, generation uint64, e migrate.Event) (migrate.Record, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		return migrate.Record{}, c.broken
	}
	return c.applyLocked(id, generation, e)
}

func (c *fakeControl) applyLocked(id cell.MigrationID, generation uint64, e migrate.Event) (migrate.Record, error) {
	r := c.records[id]
	if r.Generation != generation {
		return r, errStale
	}
	next, err := r.Apply(e)
	if err != nil {
		return r, err
	}
	if err := next.Check(); err != nil {
		panic(err)
	}
	c.records[id] = next
	c.events = append(c.events, e.Kind)
	c.wakeLocked()
	return next, nil
}

// ask is what an operator does.
func (c *fakeControl) ask(t *testing.T, id cell.MigrationID, e migrate.Event) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.records[id]
	e.Attempt, e.Time, e.Actor = r.Attempt, cell.InstantOf(time.Now()), "key_1"
	if _, err := c.applyLocked(id, r.Generation, e); err != nil {
		t.Fatal(err)
	}
}

func (c *fakeControl) Gates(context.Context, migrate.Record) []migrate.Gate {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.gates)
}

func (c *fakeControl) Promise(r migrate.Record) (*fairleadv1.TenantPromise, *fairleadv1.OrganizationPromise, error) {
	return &fairleadv1.TenantPromise{Tenant: string(r.Tenant), Epoch: 1}, nil, nil
}

func (c *fakeControl) Lanes(id cell.ID) fairleadv1connect.LaneServiceClient { return c.cells[id] }

// state returns where a migration stands.
func (c *fakeControl) state(id cell.MigrationID) string {
	r, _ := c.Record(id)
	if r.Held != "" {
		return r.State.String() + ", held: " + r.Held
	}
	return r.State.String()
}

func (c *fakeControl) mover(t *testing.T, change func(*Config)) *Mover {
	t.Helper()
	cfg := Config{Control: c, Cells: c, Log: slog.New(slog.DiscardHandler), CallMax: time.Second, Migrate: migrate.Config{WipeDelay: time.Second}}
	if change != nil {
		change(&cfg)
	}
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// start runs a mover, and returns what ends it.
func start(t *testing.T, m *Mover) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := m.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
	}()
	return func() { cancel(); <-done }
}

// client submits jobs and finishes them wherever control says that the lane is, as a gateway would: it tries until somebody takes it.
type client struct {
	control *fakeControl
	tenant  string
	id      cell.MigrationID
	jobs    map[fairleadv1.Class][]string
	n       int
	waited  time.Duration // the longest for one job
}

func (c *client) call(class fairleadv1.Class, f func(*fakeCell) error) error {
	began := time.Now()
	var err error
	for time.Since(began) < 5*time.Second {
		r, _ := c.control.Record(c.id)
		if err = f(c.control.cells[r.Owner(cell.Class(class))]); err == nil || err.Error() != "not here" {
			break
		}
		time.Sleep(time.Millisecond)
	}
	c.waited = max(c.waited, time.Since(began))
	return err
}

// one submits a job of each class, and finishes the one before it.
func (c *client) one(t *testing.T) {
	t.Helper()
	for _, class := range []fairleadv1.Class{fairleadv1.Class_CLASS_INTERACTIVE, batch} {
		c.n++
		id := fmt.Sprintf("%s-new-%d", c.tenant, c.n)
		if err := c.call(class, func(f *fakeCell) error { return f.submit(c.tenant, class, id) }); err != nil {
			t.Errorf("submit: %v", err)
			continue
		}
		c.jobs[class] = append(c.jobs[class], id)
		if n := len(c.jobs[class]); n > 1 {
			if err := c.call(class, func(f *fakeCell) error { return f.finish(c.tenant, class, c.jobs[class][n-2]) }); err != nil {
				t.Errorf("finish: %v", err)
			}
		}
	}
}

// check reports whether every job is where it belongs, in the state it is in, and nowhere else is open.
func (c *client) check(t *testing.T, initial int) {
	t.Helper()
	r, _ := c.control.Record(c.id)
	for class, ids := range c.jobs {
		open := 0
		for name, f := range c.control.cells {
			mode, held := f.held(c.tenant, class)
			if mode == fairleadv1.LaneMode_LANE_MODE_OPEN {
				open++
			}
			if name != r.Owner(cell.Class(class)) {
				continue
			}
			if len(held) != len(ids)+initial {
				t.Errorf("%s has %d jobs of %v, not %d", name, len(held), class, len(ids)+initial)
			}
			for i, id := range ids {
				want := "done"
				if i == len(ids)-1 {
					want = "waits"
				}
				if held[id] != want {
					t.Errorf("%s: %q, not %s", id, held[id], want)
				}
			}
		}
		if open != 1 {
			t.Errorf("%v is open in %d cells", class, open)
		}
	}
}

// until lets the client go on until the migration is in the state.
func (c *client) until(t *testing.T, limit time.Duration, states ...migrate.State) {
	t.Helper()
	c.untilIt(t, limit, func(r migrate.Record) bool { return slices.Contains(states, r.State) })
}

// untilIt lets the client go on until the migration is so.
func (c *client) untilIt(t *testing.T, limit time.Duration, is func(migrate.Record) bool) {
	t.Helper()
	for began := time.Now(); time.Since(began) < limit; time.Sleep(20 * time.Millisecond) {
		if r, _ := c.control.Record(c.id); is(r) {
			return
		}
		c.one(t)
	}
	t.Fatalf("it is %s after %v", c.control.state(c.id), limit)
}

func newWorld(t *testing.T, jobs int) (*fakeControl, *client) {
	t.Helper()
	east, west := newFakeCell("east"), newFakeCell("west")
	east.open("ash", 1, jobs)
	control := newFakeControl(east, west)
	return control, &client{control: control, tenant: "ash", id: "m", jobs: map[fairleadv1.Class][]string{}}
}

// A tenant moves while it is used: no job is lost or done twice, and none waits for long. Once completed the source is empty.
func TestMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		control, c := newWorld(t, 100)
		for _, f := range control.cells {
			f.slow = 2 * time.Millisecond
		}
		defer start(t, control.mover(t, nil))()
		control.declare(t, "m", "ash", "east", "west", nil)
		c.until(t, 10*time.Minute, migrate.CutOver)
		c.check(t, 100)
		r, _ := control.Record("m")
		for _, class := range cell.Classes() {
			if l := r.Lanes[class.Index()]; l.Owner != "west" || l.Pause > 100*time.Millisecond {
				t.Errorf("%v: %+v", class, l)
			}
		}
		if c.waited > 150*time.Millisecond {
			t.Errorf("a job waited for %v", c.waited)
		}
		if r.Progress.JobsCopied == 0 || r.Progress.BytesCopied == 0 {
			t.Errorf("%+v", r.Progress)
		}
		control.ask(t, "m", migrate.Event{Kind: migrate.EventComplete})
		c.until(t, 10*time.Minute, migrate.Released)
		c.check(t, 100)
		for _, class := range []fairleadv1.Class{fairleadv1.Class_CLASS_INTERACTIVE, batch} {
			if mode, held := control.cells["east"].held("ash", class); mode != fairleadv1.LaneMode_LANE_MODE_TOMBSTONE || len(held) != 0 {
				t.Errorf("the source has %v %v", mode, held)
			}
		}
	})
}

// Whatever a driver was about to do or had just done when it ended, the next one goes on from there.
func TestMoveDrivenByMany(t *testing.T) {
	points := map[string]bool{}
	for _, only := range []string{"before", "after"} {
		synctest.Test(t, func(t *testing.T) {
			control, c := newWorld(t, 40)
			var mu sync.Mutex
			seen := map[string]bool{}
			killed := make(chan struct{}, 1)
			kill := func(_ context.Context, r migrate.Record, point string) error {
				mu.Lock()
				defer mu.Unlock()
				if seen[point] || point[:len(only)] != only {
					return nil
				}
				seen[point], points[point] = true, true
				select {
				case killed <- struct{}{}:
				default:
				}
				return errors.New("killed at " + r.State.String())
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { // another leader each time
				defer close(done)
				for ctx.Err() == nil {
					of, stop := context.WithCancel(ctx)
					go func() {
						select {
						case <-killed:
						case <-ctx.Done():
						}
						stop()
					}()
					_ = control.mover(t, func(cfg *Config) { cfg.Fail = kill }).Run(of) // it ends with its context
				}
			}()
			control.declare(t, "m", "ash", "east", "west", func(o *migrate.Options) { o.RollbackWindow = time.Second })
			c.until(t, 10*time.Minute, migrate.Released)
			c.check(t, 40)
			cancel()
			<-done
		})
	}
	for _, want := range []string{
		"before set fenced east batch", "after set fenced east batch", "before propose commit batch", "after propose commit interactive", "before set open west interactive",
		"after set open west interactive", "after propose activate batch", "before copy west batch", "after stage batch", "before set tombstone east batch",
		"after wipe east interactive", "before propose end",
	} {
		if !points[want] {
			t.Errorf("nobody was ended %s", want)
		}
	}
}

// Aborted, the tenant stays where it is and nothing of it is left at the target; reversed, it comes back with what it has done there.
func TestTurnBack(t *testing.T) {
	for name, turn := range map[string]struct {
		from []migrate.State
		kind migrate.Kind
		to   migrate.State
	}{
		"abort while seeding":     {[]migrate.State{migrate.Seeding, migrate.CatchingUp}, migrate.EventAbort, migrate.Aborted},
		"abort while ready":       {[]migrate.State{migrate.Ready}, migrate.EventAbort, migrate.Aborted},
		"reverse once cut over":   {[]migrate.State{migrate.CutOver}, migrate.EventReverse, migrate.RolledBack},
		"reverse after one class": {[]migrate.State{migrate.Ramping}, migrate.EventReverse, migrate.RolledBack},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				control, c := newWorld(t, 60)
				for _, f := range control.cells {
					f.slow = 10 * time.Millisecond
				}
				defer start(t, control.mover(t, nil))()
				control.declare(t, "m", "ash", "east", "west", func(o *migrate.Options) { o.Manual = turn.from[0] == migrate.Ready })
				c.until(t, time.Minute, turn.from...)
				if turn.from[0] == migrate.Ramping {
					c.untilIt(t, time.Minute, func(r migrate.Record) bool { return r.Lanes[cell.ClassBatch.Index()].Phase >= migrate.Observing })
				}
				began := time.Now()
				control.ask(t, "m", migrate.Event{Kind: turn.kind})
				c.untilIt(t, time.Minute, func(r migrate.Record) bool {
					return r.Owner(cell.ClassBatch) == "east" && r.Owner(cell.ClassInteractive) == "east"
				})
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("the source serves again after %v", took)
				}
				c.until(t, 10*time.Minute, turn.to)
				c.check(t, 60)
				for _, class := range []fairleadv1.Class{fairleadv1.Class_CLASS_INTERACTIVE, batch} {
					if mode, held := control.cells["west"].held("ash", class); mode == fairleadv1.LaneMode_LANE_MODE_OPEN || len(held) != 0 {
						t.Errorf("the target has %v %v", mode, held)
					}
				}
			})
		})
	}
}

// did is what a cell tells of a lane of whose attempts so many of a thousand ended badly, in each of so many windows.
func did(badly int64, windows int) *fairleadv1.LaneHealth {
	h := &fairleadv1.LaneHealth{Window: durationpb.New(10 * time.Second)}
	for range windows {
		h.Windows = append(h.Windows, &fairleadv1.LaneWindow{
			Ended: 1000, EndedBadly: badly, Started: 1000, Waits: 1000, WaitP99: durationpb.New(time.Second), ReadyLeast: 50,
		})
	}
	return h
}

// A tenant whose attempts fail at the target comes back, with what it has done there; one whose attempts fail wherever it is does not, nor one of which too little
// is known.
func TestTakenBackFromBadTarget(t *testing.T) {
	for name, c := range map[string]struct {
		source, target *fairleadv1.LaneHealth
		to             migrate.State
	}{
		"they fail there":      {did(1, 2), did(100, 2), migrate.RolledBack},
		"they do not":          {did(1, 2), did(2, 2), migrate.CutOver},
		"they fail everywhere": {did(100, 2), did(100, 2), migrate.CutOver},
		"a short time":         {did(1, 2), did(100, 1), migrate.CutOver},
		"another leader":       {did(1, 0), did(100, 2), migrate.CutOver},
		"an older version":     {nil, nil, migrate.CutOver},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				control, w := newWorld(t, 60)
				control.cells["east"].health, control.cells["west"].health = c.source, c.target
				defer start(t, control.mover(t, nil))()
				control.declare(t, "m", "ash", "east", "west", func(o *migrate.Options) { o.CanaryTime = 30 * time.Second })
				w.until(t, 10*time.Minute, migrate.CutOver, migrate.RolledBack)
				w.check(t, 60)
				r, _ := control.Record("m")
				back := slices.IndexFunc(r.Notes, func(n migrate.Note) bool { return strings.Contains(n.Why, "the gate "+migrate.GateErrors) })
				if r.State != c.to || (back >= 0) != (c.to == migrate.RolledBack) {
					t.Errorf("it is %s: %+v", control.state("m"), r.Notes)
				}
			})
		})
	}
}

// What is lost at the target once it serves a class, or at the source that follows, is noticed while both go on, and holds the migration at once.
func TestLossIsHeld(t *testing.T) {
	for name, c := range map[string]struct {
		cell  cell.ID
		state migrate.State
	}{
		"by a target that is observed": {"west", migrate.Ramping},
		"by a source that follows":     {"east", migrate.Ramping},
		"by the target once cut over":  {"west", migrate.CutOver},
		"by the source once cut over":  {"east", migrate.CutOver},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				control, w := newWorld(t, 60)
				defer start(t, control.mover(t, nil))()
				control.declare(t, "m", "ash", "east", "west", func(o *migrate.Options) { o.CanaryTime = 3 * time.Second })
				w.untilIt(t, 10*time.Minute, func(r migrate.Record) bool {
					return r.State == c.state && r.Lanes[cell.ClassBatch.Index()].Phase >= migrate.Observing
				})
				began := time.Now()
				control.cells[c.cell].set(func() {
					l := control.cells[c.cell].lanes[laneKey{"ash", batch}]
					l.drop("ash-CLASS_BATCH-0")
				})
				w.untilIt(t, 10*time.Minute, func(r migrate.Record) bool { return r.Held != "" })
				r, _ := control.Record("m")
				if took := time.Since(began); took > 3*time.Second || r.State != c.state || !strings.HasPrefix(r.Held, migrate.HeldDigest) {
					t.Errorf("after %v it is %s", took, control.state("m"))
				}
			})
		})
	}
}

// A target that hangs while a lane takes nothing costs its longest pause, not more: the lane is opened at the source again.
func TestPauseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		control, c := newWorld(t, 20)
		west := control.cells["west"]
		once := false
		defer start(t, control.mover(t, func(cfg *Config) {
			cfg.Fail = func(_ context.Context, _ migrate.Record, point string) error {
				if point == "after set fenced east batch" && !once {
					once = true
					west.set(func() { west.hangs = true })
				}
				return nil
			}
		}))()
		control.declare(t, "m", "ash", "east", "west", func(o *migrate.Options) { o.PauseMax = time.Second })
		c.until(t, time.Minute, migrate.Ramping)
		for r, _ := control.Record("m"); r.Lanes[cell.ClassBatch.Index()].Fences == 0; r, _ = control.Record("m") {
			c.one(t)
			time.Sleep(20 * time.Millisecond)
		}
		if c.waited > 1200*time.Millisecond {
			t.Errorf("a job waited for %v", c.waited)
		}
		west.set(func() { west.hangs = false })
		c.until(t, 10*time.Minute, migrate.CutOver)
		c.check(t, 20)
	})
}

// Nobody's cell that hangs, and nobody's migration that is held, holds up another.
func TestMovesApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		control, c := newWorld(t, 20)
		deaf, south := newFakeCell("deaf"), newFakeCell("south")
		control.cells["deaf"], control.cells["south"] = deaf, south
		south.open("elm", 1, 5)
		deaf.hangs = true
		defer start(t, control.mover(t, nil))()
		control.declare(t, "n", "elm", "south", "deaf", nil)
		control.declare(t, "m", "ash", "east", "west", nil)
		c.until(t, time.Minute, migrate.CutOver)
		c.check(t, 20)
		time.Sleep(time.Minute)
		r, _ := control.Record("n")
		if r.State != migrate.Declared || len(south.calls) == 0 {
			t.Errorf("%v", control.state("n"))
		}
	})
}

// A cell that does not answer holds its migration, and once it answers it goes on by itself.
func TestUnreachableHeals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		control, c := newWorld(t, 500)
		west := control.cells["west"]
		defer start(t, control.mover(t, nil))()
		west.set(func() { west.slow = 20 * time.Millisecond })
		control.declare(t, "m", "ash", "east", "west", nil)
		c.until(t, time.Minute, migrate.Seeding)
		west.set(func() { west.hangs = true })
		time.Sleep(time.Minute)
		if r, _ := control.Record("m"); r.Held == "" {
			t.Errorf("it is %s", control.state("m"))
		}
		west.set(func() { west.hangs = false })
		c.until(t, 10*time.Minute, migrate.CutOver)
		c.check(t, 500)
	})
}

// Of those that wait, a few are on their way at a time and one in each cell, by their priority; all come to their end.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		east, west, north := newFakeCell("east"), newFakeCell("west"), newFakeCell("north")
		control := newFakeControl(east, west, north)
		const tenants = 6
		for i := range tenants {
			east.open(fmt.Sprint("t", i), 1, 3)
			control.declare(t, fmt.Sprint("m", i), fmt.Sprint("t", i), "east", []string{"west", "north"}[i%2], func(o *migrate.Options) {
				o.Priority, o.RollbackWindow = int32(i), time.Hour
			})
		}
		var order []cell.MigrationID
		defer start(t, control.mover(t, nil))()
		for began := time.Now(); time.Since(began) < 10*time.Minute && len(order) < tenants; time.Sleep(10 * time.Millisecond) {
			under := 0
			for _, r := range control.Live() {
				if active(&r) {
					under++
				}
				if r.State == migrate.CutOver && !slices.Contains(order, r.ID) {
					order = append(order, r.ID)
				}
			}
			if under > 1 {
				t.Fatalf("%d are under way from one cell", under)
			}
		}
		// Whichever is ready first goes first; those that wait meanwhile go by their priority.
		if rest := order[1:]; !slices.IsSortedFunc(rest, func(a, b cell.MigrationID) int { return cmp.Compare(b, a) }) {
			t.Errorf("%v", order)
		}
	})
}

// Once control is lost nothing is asked of any cell any more.
func TestStopsWithControl(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		control, c := newWorld(t, 500)
		east, west := control.cells["east"], control.cells["west"]
		for _, f := range control.cells {
			f.slow = 5 * time.Millisecond
		}
		stop := start(t, control.mover(t, nil))
		control.declare(t, "m", "ash", "east", "west", nil)
		c.until(t, time.Minute, migrate.Seeding)
		began := time.Now()
		stop()
		if took := time.Since(began); took > 10*time.Millisecond {
			t.Errorf("it stopped after %v", took)
		}
		before := east.calls["GetLanes"] + east.calls["ExportLane"] + west.calls["ImportLane"]
		time.Sleep(time.Minute)
		if after := east.calls["GetLanes"] + east.calls["ExportLane"] + west.calls["ImportLane"]; after != before {
			t.Errorf("%d calls after it was stopped", after-before)
		}
		defer start(t, control.mover(t, nil))()
		c.until(t, time.Minute, migrate.CutOver)
		c.check(t, 500)
	})
}
