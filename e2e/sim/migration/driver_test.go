package migration

import (
	"errors"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	"github.com/fairlead/fairlead/control/command"
	"github.com/fairlead/fairlead/migrate"
)

// driver is a control agent that leads, or believes so. It remembers what it saw, and may be behind.
type driver struct {
	w        *world
	id       cell.MigrationID
	attempt  uint32
	observed migrate.Observed
	record   migrate.Record
	asleep   cell.Instant // it stands still until then, and goes on with what it knew
}

// config makes what is about waiting short.
func config() migrate.Config {
	return migrate.Config{
		ReadyTime: 100 * time.Millisecond, LookEvery: 200 * time.Millisecond, FenceDelay: 300 * time.Millisecond, WipeDelay: time.Second,
		ShadowMax: time.Second, WindowTime: time.Second, StallTime: time.Hour, UnreachableMax: 10 * time.Second,
	}.WithDefaults()
}

// step does what is next, or a part of it.
func (d *driver) step() {
	w := d.w
	if d.asleep > w.now {
		return
	}
	m, ok := w.control.View().MigrationOf(tenant)
	if !ok {
		return
	}
	if d.id != m.ID || d.attempt != m.Attempt {
		d.id, d.attempt, d.observed = m.ID, m.Attempt, migrate.Observed{}
	}
	if !w.faults || !w.one(6) { // else it decides on what it knew
		d.record = m.Record
	}
	if d.record.ID == "" || d.record.Done() {
		return
	}
	for _, e := range migrate.Next(d.record, d.observed, w.now, config()) {
		if w.faults && w.one(40) {
			d.asleep = w.now.Add(time.Duration(w.r.IntN(6000)) * time.Millisecond)
			return
		}
		if w.faults && w.one(60) {
			d.observed = migrate.Observed{} // another leads
			return
		}
		d.do(e)
	}
}

func (d *driver) do(e migrate.Effect) {
	w, r := d.w, &d.record
	move := r.Move()
	lane := func(c cell.Class) cell.Lane { return cell.Lane{Tenant: tenant, Class: c} }
	switch e := e.(type) {
	case migrate.Propose:
		res := w.propose(command.AdvanceMigration{ID: r.ID, Expect: r.Generation, Event: e.Event})
		if res.Refused == nil {
			d.record = res.Migration.Record
		}
	case migrate.Look:
		d.look(e.Cell)
	case migrate.Prove:
		if _, err := w.call(e.Cell, &engine.ProveFact{Tenant: tenant, Move: move, Token: 1}); err == nil {
			d.seen(e.Cell).Proved = r.Attempt
		}
	case migrate.Stage:
		t, _ := w.control.View().Tenant(tenant)
		_, policy, _, _ := r.Policies(t.Policy)
		_, _ = w.call(r.Target, &engine.StageFact{Lane: lane(e.Class), Policy: policy, Move: move, Epoch: e.Epoch})
		d.look(r.Target)
	case migrate.Track:
		_, _ = w.call(e.Cell, &engine.TrackFact{Lane: lane(e.Class), Move: move, Off: e.Off})
		d.look(e.Cell)
	case migrate.Copy:
		d.copy(e, lane(e.Class))
	case migrate.SetMode:
		_, _ = w.call(e.Cell, &engine.ModeFact{Lane: lane(e.Class), Mode: e.Mode, Epoch: e.Epoch, Move: move, Share: e.Share})
		d.look(e.Cell)
	case migrate.Digest:
		for !w.cells[e.Cell].state.AdvanceDigest(lane(e.Class), 1000) {
		}
		d.look(e.Cell)
	case migrate.Wipe:
		_, _ = w.call(e.Cell, &engine.WipeFact{Lane: lane(e.Class), Move: move, Max: 1 + w.r.IntN(20)})
		d.look(e.Cell)
	case migrate.Wait:
	default:
		w.t.Fatalf("an effect of type %T", e)
	}
}

// copy takes a chunk across, which may be taken again or come late.
func (d *driver) copy(e migrate.Copy, lane cell.Lane) {
	w := d.w
	from, to := w.cells[e.From], w.cells[e.To]
	if from.down > w.now {
		return
	}
	l := to.state.Lane(lane)
	if l == nil {
		return
	}
	var compared migrate.Comparison
	for range 1 + w.r.IntN(4) {
		begin := l.Cursor
		records, _, next, err := from.state.Export(lane, begin, 1+w.r.IntN(4000), 1+w.r.IntN(50))
		if err != nil {
			break
		}
		_, err = w.call(e.To, &engine.ImportFact{Lane: lane, Move: d.record.Move(), Begin: begin, End: next, Records: records})
		if err != nil || next == begin {
			break
		}
		if x := compare(from.state, to.state, lane, next); x.Known {
			if w.compared++; x.From != x.To {
				w.t.Fatalf("%v has %x at %s and %x at %s, as of change %d", lane, x.From, e.From, x.To, e.To, x.Change)
			}
			compared = x
		}
	}
	d.look(e.From)
	d.look(e.To)
	d.seen(e.To).Lanes[e.Class.Index()].Compared = compared
}

// compare compares what two cells have of a lane, where the one has all of the other's changes: no fault of what is simulated makes a difference.
func compare(from, to *engine.State, lane cell.Lane, at engine.Cursor) migrate.Comparison {
	src, dst := from.Lane(lane), to.Lane(lane)
	if at.Seeded != engine.SeededAll || src.Change != at.Change || dst.Cursor != at {
		return migrate.Comparison{}
	}
	x, here := from.Digest(lane)
	y, there := to.Digest(lane)
	return migrate.Comparison{Known: here && there, Change: at.Change, From: x.Sum, To: y.Sum}
}

func (d *driver) seen(id cell.ID) *migrate.CellSeen { return d.observed.Cell(&d.record, id) }

// look sees how a cell's lanes stand.
func (d *driver) look(id cell.ID) {
	w, n, s := d.w, d.w.cells[id], d.seen(id)
	if n.down > w.now || w.faults && w.one(20) {
		if s.Reachable || s.Since == 0 {
			s.Since = w.now
		}
		s.Reachable = false
		return
	}
	s.Reachable, s.At, s.Since, s.Index = true, w.now, 0, n.index
	s.CommitP50, s.CommitP99, s.Baseline = time.Millisecond, 2*time.Millisecond, 2*time.Millisecond
	s.Offered, s.Needed, s.Slots = []cell.Operation{operation}, []cell.Operation{operation}, 10
	s.PolicyEpoch = 0
	t := n.state.Tenant(tenant)
	if t != nil {
		s.PolicyEpoch = t.Policy.Epoch
	}
	other := w.names[0]
	if other == id {
		other = w.names[1]
	}
	for _, c := range cell.Classes() {
		id := cell.Lane{Tenant: tenant, Class: c}
		l := n.state.Lane(id)
		if l == nil {
			s.Lanes[c.Index()] = migrate.LaneSeen{}
			continue
		}
		s.Lanes[c.Index()] = seenOf(n.state, l, w.cells[other].state.Lane(id))
	}
}

func seenOf(st *engine.State, l, other *engine.Lane) migrate.LaneSeen {
	if l.Tracked || l.Mode != cell.ModeOpen {
		const piece = 30 // of what a cell computes beside its work
		st.AdvanceDigest(l.ID, piece)
	}
	live, bytes := l.Live()
	ended, _ := l.Finished()
	seen := migrate.LaneSeen{
		Known: true, Mode: l.Mode, Epoch: l.Epoch, Move: l.Move, Fence: l.Fence, Tracked: l.Tracked, Change: l.Change,
		Cursor: migrate.Cursor(l.Cursor), Records: live + ended + l.Keys(), Charged: l.Charged, Jobs: live, Ready: l.Count(engine.Ready), Bytes: bytes,
		Submitted: l.Submitted, Granted: l.Granted,
	}
	if digest, ok := st.Digest(l.ID); ok {
		seen.Digest, seen.DigestDone, seen.DigestChange = digest.Sum, int32(digest.Done), l.Change
	}
	if l.Tracked && other != nil {
		seen.LagKnown = true
		seen.SeedLeft, seen.ChangesLeft = st.ExportLeft(l.ID, other.Cursor)
		seen.LagRecords = seen.SeedLeft + seen.ChangesLeft
		if _, _, _, err := st.Export(l.ID, other.Cursor, 1, 1); errors.Is(err, engine.ErrCursorLost) {
			seen.Broken = true
		}
	}
	return seen
}
