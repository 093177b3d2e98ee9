package migrate

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/cell"
)

// mutation is a way in which the protocol could have been built wrongly. The explorer has to find what each of them breaks.
type mutation uint8

const (
	correct        mutation = iota
	unfenceByTimer          // a cell opens a fenced lane by itself after a while
	fenceInMemory           // a crash makes a cell forget a fence
	positionFirst           // the position is taken before the fence
	noEpochBump             // an un-fence, a restart and an abort leave the epoch as it is, and cells take an equal one
	activateFirst           // the target opens the lane before the commit
	noGeneration            // control applies an event whatever generation it was decided on
	noDigest                // digests are not compared, and a chunk that was late is applied
)

// limits bounds an exploration.
type limits struct {
	classes   int // how many of the two classes have jobs
	jobs      int // and how many each
	faults    int // lost answers, late calls, crashes, lost tracking
	operators int // an abort, a reverse, a hold, a completion
	late      int // calls that are late at a time
}

// The explorer's time has two values: nothing is due yet, or everything is.
const (
	soon = cell.Instant(time.Hour)
	late = cell.Instant(1000 * time.Hour)
)

// message is a call that has not arrived yet, and may arrive at any time.
type message struct {
	effect     Effect
	attempt    uint32
	generation uint64
	chunk      chunk
}

// world is control's record, two cells, one driver and what is on its way between them. It is a value: a step makes another.
type world struct {
	r     Record
	cells [2][2]modelLane // source and target, by Class.Index
	view  [2][2]modelLane // what the driver saw last
	seen  [2]bool         // whether it did
	prove [2]uint32
	truth [2]jobs // what was accepted, by anybody
	late  []message
	// What is left of the limits.
	faults, operators int
	blind             bool   // digests are not compared
	bad               string // what is wrong with it
}

func newWorld(l limits) world {
	options := DefaultOptions()
	options.CanaryJobs, options.CanaryTime = 0, 0
	r, err := New(Declaration{
		ID: "m", Tenant: "t", Source: modelSource, Target: modelTarget, Reason: "operator", Options: options,
		Epochs: [2]cell.Epoch{3, 3}, Now: soon,
	})
	if err != nil {
		panic(err)
	}
	w := world{faults: l.faults, operators: l.operators}
	for i := range w.cells[0] {
		w.cells[0][i] = modelLane{known: true, epoch: cell.Epoch(3 * i)} // one that was never moved, and one that was
	}
	w.take(r)
	return w
}

// take makes r the record, without what is only for people and without differences of time.
func (w *world) take(r Record) {
	r.Notes, r.Gates, r.GatesAt, r.Progress = nil, nil, 0, Progress{}
	for i := range r.Lanes {
		r.Lanes[i].Pause = 0
	}
	w.r = r
}

func side(id cell.ID) int {
	if id == modelTarget {
		return 1
	}
	return 0
}

func (w *world) at(id cell.ID, c cell.Class) *modelLane { return &w.cells[side(id)][c.Index()] }

func (w *world) observed() Observed {
	var o Observed
	for i, s := range []*CellSeen{&o.Source, &o.Target} {
		if !w.seen[i] {
			s.Reachable = true
			continue
		}
		s.Reachable, s.At, s.Proved = true, soon, w.prove[i]
		for c := range w.view[i] {
			s.Lanes[c] = w.view[i][c].see()
			s.Lanes[c].LagKnown = w.view[i][c].tracker == w.r.Attempt // else the export is refused
			if w.blind {
				s.Lanes[c].Digest = [32]byte{1}
			}
		}
	}
	return o
}

func (w *world) look(id cell.ID) {
	w.seen[side(id)] = true
	w.view[side(id)] = w.cells[side(id)]
}

// deliver carries out a call. answered says that the driver gets the answer.
func (w *world) deliver(m message, x mutation, answered bool) {
	switch e := m.effect.(type) {
	case Propose:
		w.propose(m.generation, e.Event, x)
		return
	case Look:
		w.look(e.Cell)
		return
	case Prove:
		if answered {
			w.prove[side(e.Cell)] = m.attempt
		}
		return
	case Stage:
		w.at(modelTarget, e.Class).stage(e.Epoch, m.attempt)
		if answered {
			w.look(modelTarget)
		}
	case Track:
		w.at(e.Cell, e.Class).track(m.attempt, e.Off)
		if answered {
			w.look(e.Cell)
		}
	case Copy:
		w.at(e.To, e.Class).importChunk(m.chunk, m.attempt)
		if answered {
			w.look(e.To)
		}
	case SetMode:
		w.setMode(m, e, x, answered)
	case Digest:
		if answered {
			w.look(e.Cell)
		}
	case Wipe:
		w.at(e.Cell, e.Class).wipe(m.attempt)
		if answered {
			w.look(e.Cell)
		}
	case Wait:
	}
}

func (w *world) setMode(m message, e SetMode, x mutation, answered bool) {
	l := w.at(e.Cell, e.Class)
	before := w.view[side(e.Cell)][e.Class.Index()]
	l.setMode(e.Mode, e.Epoch, m.attempt, x == noEpochBump)
	if !answered {
		return
	}
	w.look(e.Cell)
	if x == positionFirst && e.Mode == cell.ModeFenced && l.mode == cell.ModeFenced && before.mode == cell.ModeOpen {
		v := &w.view[side(e.Cell)][e.Class.Index()]
		v.change, v.content = before.change, before.content
	}
}

func (w *world) propose(generation uint64, e Event, x mutation) {
	if generation != w.r.Generation && x != noGeneration {
		return
	}
	before := w.r
	e.Time = soon
	r, err := w.r.Apply(e)
	if err != nil {
		return
	}
	if x == noEpochBump {
		for i := range r.Lanes {
			if a, b := r.Lanes[i].Phase, before.Lanes[i].Phase; a == AtSource && b == Fencing || a == Fencing && b == AtSource && before.Lanes[i].FencedAt != 0 {
				r.Lanes[i].Epoch = before.Lanes[i].Epoch
			}
		}
	}
	w.take(r)
	w.checkRecord(&before, e, x)
}

// checkRecord looks for what a change of the record breaks.
func (w *world) checkRecord(before *Record, e Event, x mutation) {
	if err := w.r.Check(); err != nil {
		w.fail("%v", err)
	}
	for i := range w.r.Lanes {
		l, b := &w.r.Lanes[i], &before.Lanes[i]
		if l.Epoch < b.Epoch || l.Owner != b.Owner && l.Epoch == b.Epoch {
			w.fail("the epoch of %d fell, or stayed with another owner", i)
		}
		if l.Owner == b.Owner {
			continue
		}
		src, dst := w.at(b.Owner, e.Class), w.at(l.Owner, e.Class)
		switch {
		case src.mode != cell.ModeFenced:
			w.fail("committed while the lane is %s at %s", src.mode, b.Owner)
		case src.content != dst.content:
			w.fail("committed with %v at %s and %v at %s", src.content, b.Owner, dst.content, l.Owner)
		}
	}
}

func (w *world) fail(format string, args ...any) {
	if w.bad == "" {
		w.bad = fmt.Sprintf(format, args...)
	}
}

// check looks for what must never be so, whoever did what.
func (w *world) check() {
	for _, c := range cell.Classes() {
		i := c.Index()
		a, b := &w.cells[0][i], &w.cells[1][i]
		if a.known && b.known && a.mode == cell.ModeOpen && b.mode == cell.ModeOpen {
			w.fail("%s is open in both cells", c)
		}
		owner := w.at(w.r.Owner(c), c)
		if owner.content != w.truth[i] {
			w.fail("%s is %v at its owner %s, and %v was accepted", c, owner.content, w.r.Owner(c), w.truth[i])
		}
		if w.r.Done() && (owner.mode != cell.ModeOpen || !owner.known) {
			w.fail("it has ended, and %s is %s at its owner", c, owner.mode)
		}
		if other := w.at(w.r.other(w.r.Owner(c)), c); w.r.Done() && other.known && other.content != (jobs{}) {
			w.fail("it has ended, and %s is still at %s", c, w.r.other(w.r.Owner(c)))
		}
	}
}

// next returns what the driver would do now, without what only people look at.
func (w *world) next(now cell.Instant, x mutation) []message {
	var out []message
	for _, e := range append(Next(w.r, w.observed(), now, explorerConfig()), w.wrong(x)...) {
		if p, ok := e.(Propose); ok && (p.Event.Kind == EventGates || p.Event.Kind == EventProgress) {
			continue
		}
		if _, ok := e.(Wait); ok {
			continue
		}
		m := message{effect: e, attempt: w.r.Attempt, generation: w.r.Generation}
		if c, ok := e.(Copy); ok {
			from := w.view[side(c.To)][c.Class.Index()].cursor
			var left bool
			if m.chunk, left = w.at(c.From, c.Class).export(from, w.r.Attempt); !left {
				w.view[side(c.To)] = w.cells[side(c.To)] // the driver looks where it stands
				w.view[side(c.From)] = w.cells[side(c.From)]
				continue
			}
		}
		out = append(out, m)
	}
	return out
}

// wrong is what a driver of a protocol without new epochs would do beside: open what was un-fenced.
func (w *world) wrong(x mutation) []Effect {
	c := w.r.Order[0]
	if l := &w.r.Lanes[c.Index()]; x == noEpochBump && l.Phase == AtSource && l.FencedAt != 0 && w.view[0][c.Index()].mode == cell.ModeFenced {
		return []Effect{SetMode{Cell: modelSource, Class: c, Mode: cell.ModeOpen, Epoch: l.Epoch}}
	}
	return nil
}

func explorerConfig() Config {
	c := DefaultConfig()
	c.FencesMax = 2
	return c
}

// write has whoever submits and completes jobs do so, wherever it is accepted.
func (w *world) write(id cell.ID, c cell.Class, job int, to uint8) bool {
	if !w.at(id, c).write(job, to) {
		return false
	}
	if w.truth[c.Index()][job] != to-1 {
		w.fail("job %d of %s became %d a second time", job, c, to)
	}
	if id != w.r.Owner(c) {
		w.fail("%s accepted job %d of %s, which is %s's", id, job, c, w.r.Owner(c))
	}
	w.truth[c.Index()][job] = to
	return true
}

// key returns what tells a world from others.
func (w *world) key() [16]byte {
	b := make([]byte, 0, 512)
	num := func(ns ...uint64) {
		for _, n := range ns {
			b = binary.AppendUvarint(b, n)
		}
	}
	bit := func(v bool) uint64 {
		if v {
			return 1
		}
		return 0
	}
	num(uint64(w.r.State), uint64(len(w.r.Held)), uint64(w.r.Attempt), uint64(w.r.Retries), uint64(w.faults), uint64(w.operators))
	b = append(b, w.r.Held...)
	for i := range w.r.Lanes {
		l := &w.r.Lanes[i]
		num(uint64(l.Phase), uint64(l.Epoch), uint64(l.Staged), uint64(l.Fences), bit(l.FencedAt != 0), bit(l.UnfencedAt != 0))
		b = append(b, w.truth[i][:]...)
	}
	for s := range w.cells {
		num(bit(w.seen[s]), uint64(w.prove[s]))
		for i := range w.cells[s] {
			for _, l := range []*modelLane{&w.cells[s][i], &w.view[s][i]} {
				num(bit(l.known), uint64(l.mode), uint64(l.epoch), uint64(l.attempt), l.fence, uint64(l.tracker), l.change, l.cursor.Seeded, l.cursor.Change, bit(l.wiping))
				b = append(b, l.content[:]...)
				num(l.changed[:]...)
			}
		}
	}
	texts := make([]string, len(w.late))
	for i, m := range w.late {
		texts[i] = m.text(w.r.Generation)
	}
	slices.Sort(texts)
	for _, t := range texts {
		b = append(b, t...)
	}
	sum := sha256.Sum256(b)
	return [16]byte(sum[:16])
}

func (m message) text(generation uint64) string {
	if p, ok := m.effect.(Propose); ok {
		e := p.Event
		return fmt.Sprintf("%d %d %d %d %x %t;", e.Kind, e.Class, e.Position, e.Change, e.Digest, m.generation == generation)
	}
	return fmt.Sprintf("%T%+v %d %v;", m.effect, m.effect, m.attempt, m.chunk)
}
