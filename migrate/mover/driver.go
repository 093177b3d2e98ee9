package mover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/migrate"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

const (
	// retryMin and retryMax bound how long an effect that failed waits until it is tried again; twice as long each time, a part of it by chance. While a lane
	// takes nothing it is retryUrgent at most.
	retryMin    = 50 * time.Millisecond
	retryMax    = 10 * time.Second
	retryUrgent = 100 * time.Millisecond
	// callMin is what a call has at least, however soon its answer is needed.
	callMin = 50 * time.Millisecond
	// spinsMax is how often in a row something may be done at once; then there is a pause between, of spinPause. What is to be done changes the record
	// or the cells, and then something else is to be done: if it does not, no processor is to be spent on it.
	spinsMax  = 64
	spinPause = 50 * time.Millisecond
	// gatesEvery is how old what control has proved may be.
	gatesEvery = time.Second
)

// driver drives one migration. But for what is under mu it is its goroutine's own.
type driver struct {
	cfg   Config
	turns *turns
	id    cell.MigrationID
	log   *slog.Logger
	done  atomic.Bool

	failures map[effectKey]failure
	urgent   bool // a lane takes nothing
	gates    []migrate.Gate
	gatesAt  time.Time
	state    migrate.State // as was told to the log last

	mu       sync.Mutex // effects that are carried out at once
	seen     migrate.Observed
	looks    uint64             // that were begun
	lastLook map[cell.ID]uint64 // whose answer seen has
	jobs     map[laneIn]int64   // of every state
	lanes    [2]copying         // by Class.Index
	total    counters
	// bytesBefore is what a driver before this one had copied.
	bytesBefore int64
	throttles   map[cell.ID]*throttle
}

func newDriver(cfg Config, turns *turns, id cell.MigrationID) *driver {
	return &driver{
		cfg: cfg, turns: turns, id: id, log: cfg.Log.With("migration", string(id)),
		failures: make(map[effectKey]failure), throttles: make(map[cell.ID]*throttle),
		lastLook: make(map[cell.ID]uint64), jobs: make(map[laneIn]int64),
	}
}

func (d *driver) ended() bool { return d.done.Load() }

// errKilled is what a failpoint ends a driver with.
var errKilled = errors.New("mover: a failpoint ended the driver")

// run drives until the migration or ctx has ended.
func (d *driver) run(ctx context.Context) {
	defer d.done.Store(true)
	defer d.turns.leave(d.id)
	spins, generation := 0, uint64(0)
	for ctx.Err() == nil {
		changed := d.cfg.Control.Changed()
		r, ok := d.cfg.Control.Record(d.id)
		if !ok || r.Done() {
			return
		}
		if d.state == 0 {
			d.bytesBefore = r.Progress.BytesCopied
		}
		if r.State != d.state {
			d.log.InfoContext(ctx, "migration", "tenant", string(r.Tenant), "state", r.State.String(), "attempt", r.Attempt, "held", r.Held)
			d.state = r.State
		}
		if spins++; r.Generation != generation {
			spins, generation = 0, r.Generation
		}
		until, err := d.step(ctx, r)
		switch {
		case errors.Is(err, errKilled):
			d.log.WarnContext(ctx, "a failpoint ended the driver")
			return
		case !until.IsZero():
			spins = 0
			d.await(ctx, r.Generation, changed, until)
		case spins > spinsMax:
			_ = pause(ctx, spinPause) // the loop looks
		}
	}
}

// step asks what is to be done and does it. It returns when to ask again: the zero time for at once.
func (d *driver) step(ctx context.Context, r migrate.Record) (time.Time, error) {
	if now := urgent(&r); now != d.urgent { // what was to wait does not, or need not have waited
		d.urgent = now
		clear(d.failures)
	}
	if !d.urgent {
		d.prove(ctx, &r)
	}
	now := time.Now()
	effects := migrate.Next(r, d.observed(&r, now), cell.InstantOf(now), d.cfg.Migrate)
	until := now.Add(d.cfg.Migrate.LookEvery)
	var calls []migrate.Effect
	for _, e := range effects {
		switch e := e.(type) {
		case migrate.Wait:
			if at := e.Until.Time(); e.Until != 0 && at.Before(until) {
				until = at
			}
			continue
		case migrate.Propose:
			if due := d.failures[keyOf(e)].due; due.After(now) {
				until = earlier(until, due)
				continue
			}
			if err := d.propose(ctx, r, e); err == nil || errors.Is(err, errKilled) {
				return time.Time{}, err // the record is another: whatever else is to be done is asked anew
			}
		default:
			if due := d.failures[keyOf(e)].due; due.After(now) {
				until = earlier(until, due)
				continue
			}
			calls = append(calls, e)
		}
	}
	if len(calls) > 0 {
		return time.Time{}, d.carryOut(ctx, r, calls)
	}
	return until, nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// await returns at until, or once the record is at another generation. changed is from before the record was read.
func (d *driver) await(ctx context.Context, generation uint64, changed <-chan struct{}, until time.Time) {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	for {
		if r, ok := d.cfg.Control.Record(d.id); !ok || r.Generation != generation {
			return
		}
		select {
		case <-changed:
			changed = d.cfg.Control.Changed()
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// prove reads anew what control proves, when that is old, for states that go by it.
func (d *driver) prove(ctx context.Context, r *migrate.Record) {
	if r.State > migrate.Ramping {
		d.gates = nil
		return
	}
	if now := time.Now(); now.Sub(d.gatesAt) >= gatesEvery || d.gatesAt.IsZero() {
		call, cancel := context.WithTimeout(ctx, d.callMax(r))
		d.gates, d.gatesAt = d.cfg.Control.Gates(call, *r), now
		cancel()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen.Gates = d.gates
	if r.State == migrate.Declared && r.Held == "" {
		ready := !slices.ContainsFunc(migrate.Gates(*r, d.seen, d.cfg.Migrate), func(g migrate.Gate) bool { return g.Verdict == migrate.Fail })
		turn := d.turns.gate(r, d.cfg.Control.Live(), ready)
		d.seen.Gates = append([]migrate.Gate{turn}, d.gates...)
	}
}

// propose hands control an event.
func (d *driver) propose(ctx context.Context, r migrate.Record, e migrate.Propose) error {
	point := keyOf(e).String()
	if err := d.fail(ctx, r, "before "+point); err != nil {
		return err
	}
	call, cancel := context.WithTimeout(ctx, d.cfg.CallMax)
	defer cancel()
	event := e.Event
	after, err := d.cfg.Control.Propose(call, r.ID, r.Generation, event)
	if err != nil {
		if now, ok := d.cfg.Control.Record(d.id); ok && now.Generation != r.Generation {
			return nil // it was decided on what is not so any more, or was added without an answer
		}
		d.failed(ctx, &r, e, err)
		return err
	}
	delete(d.failures, keyOf(e))
	if event.Kind != migrate.EventProgress && event.Kind != migrate.EventGates {
		d.log.InfoContext(ctx, "migration step", "step", strings.TrimPrefix(point, "propose "), "state", after.State.String(), "why", event.Why)
	}
	return d.fail(ctx, r, "after "+point)
}

// carryOut makes calls to cells, all at once, and returns when all have ended. They end early when the record changes.
func (d *driver) carryOut(ctx context.Context, r migrate.Record, calls []migrate.Effect) error {
	ctx, stop := context.WithCancel(ctx)
	var watcher, all sync.WaitGroup
	watcher.Go(func() {
		d.await(ctx, r.Generation, d.cfg.Control.Changed(), time.Now().Add(time.Hour))
		stop()
	})
	defer watcher.Wait()
	defer stop()
	type outcome struct {
		again time.Duration // until it may be repeated
		err   error
	}
	out := make([]outcome, len(calls))
	for i, e := range calls {
		all.Go(func() { out[i].again, out[i].err = d.effect(ctx, &r, e) })
	}
	all.Wait()
	canceled := ctx.Err() != nil
	for i, o := range out {
		key := keyOf(calls[i])
		switch {
		case errors.Is(o.err, errKilled):
			return o.err
		case o.err == nil && o.again > 0:
			d.failures[key] = failure{due: time.Now().Add(o.again)}
		case o.err == nil:
			delete(d.failures, key)
		case !canceled:
			d.failed(ctx, &r, calls[i], o.err)
		}
	}
	return nil
}

// effect carries out one effect, and returns how long it is not to be repeated, when it has come to nothing.
func (d *driver) effect(ctx context.Context, r *migrate.Record, e migrate.Effect) (time.Duration, error) {
	point := keyOf(e).String()
	if err := d.fail(ctx, *r, "before "+point); err != nil {
		return 0, err
	}
	again, err := d.do(ctx, r, e)
	if err != nil {
		return 0, err
	}
	return again, d.fail(ctx, *r, "after "+point)
}

// fail is a failpoint.
func (d *driver) fail(ctx context.Context, r migrate.Record, point string) error {
	if d.cfg.Fail == nil {
		return nil
	}
	if err := d.cfg.Fail(ctx, r, point); err != nil {
		return fmt.Errorf("%w: %w", errKilled, err)
	}
	return nil
}

// effectKey names effects whose failures belong together.
type effectKey struct {
	what  string
	cell  cell.ID
	class cell.Class
}

func (k effectKey) String() string {
	out := k.what
	if k.cell != "" {
		out += " " + string(k.cell)
	}
	if k.class.Valid() {
		out += " " + k.class.String()
	}
	return out
}

func keyOf(e migrate.Effect) effectKey {
	switch e := e.(type) {
	case migrate.Propose:
		return effectKey{what: "propose " + e.Event.Kind.String(), class: e.Event.Class}
	case migrate.Look:
		return effectKey{what: "look", cell: e.Cell}
	case migrate.Prove:
		return effectKey{what: "prove", cell: e.Cell}
	case migrate.Stage:
		return effectKey{what: "stage", class: e.Class}
	case migrate.Track:
		return effectKey{"track", e.Cell, e.Class}
	case migrate.Copy:
		return effectKey{"copy", e.To, e.Class}
	case migrate.SetMode:
		return effectKey{"set " + e.Mode.String(), e.Cell, e.Class}
	case migrate.Digest:
		return effectKey{"digest", e.Cell, e.Class}
	case migrate.Wipe:
		return effectKey{"wipe", e.Cell, e.Class}
	default:
		return effectKey{what: fmt.Sprintf("%T", e)}
	}
}

// failure is how often in a row an effect has failed, and when it is tried again.
type failure struct {
	times int
	due   time.Time
}

// failed remembers that an effect has failed.
func (d *driver) failed(ctx context.Context, r *migrate.Record, e migrate.Effect, err error) {
	key := keyOf(e)
	f := d.failures[key]
	f.times++
	delay := retryMax
	if shift := f.times - 1; shift < 8 {
		delay = min(retryMax, retryMin<<shift)
	}
	if urgent(r) {
		delay = min(delay, retryUrgent)
	}
	f.due = time.Now().Add(delay/2 + rand.N(delay/2+1))
	d.failures[key] = f
	if f.times&(f.times-1) == 0 { // the first, the second, the fourth and so on
		d.log.WarnContext(ctx, "a step of a migration failed and is tried again", "step", key.String(), "times", f.times, "error", err)
	}
}

// urgent reports whether a lane of r takes nothing: it is fenced, or committed and not yet open at its new home.
func urgent(r *migrate.Record) bool {
	for _, l := range r.Lanes {
		if fenced(l.Phase) || l.Phase == migrate.Committed || l.Phase == migrate.ReverseCommitted {
			return true
		}
	}
	return false
}

func fenced(p migrate.Phase) bool { return p == migrate.Fencing || p == migrate.ReverseFencing }

// callMax returns how long a call may take: less while a lane is fenced, so that it is opened again in time.
func (d *driver) callMax(r *migrate.Record) time.Duration {
	most := d.cfg.CallMax
	for _, l := range r.Lanes {
		if fenced(l.Phase) {
			most = min(most, max(callMin, time.Until(l.FencedAt.Time().Add(r.Options.PauseMax))))
		}
	}
	return most
}

// client returns the client of a cell.
func (d *driver) client(id cell.ID) fairleadv1connect.LaneServiceClient { return d.cfg.Cells.Lanes(id) }
