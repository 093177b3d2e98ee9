package mover

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/migrate"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// copying is what a driver has seen of the copying of one lane.
type copying struct {
	from                  cell.ID
	complete              time.Time // when the source was asked for the last chunk after which nothing was left; zero for none yet
	known                 bool      // what is left was asked for
	seedLeft, changesLeft int64
	compared              migrate.Comparison
	broken                cell.ID // the cell that does not know any more what has changed; empty for none
	attempt               uint32  // of which this is
}

// laneIn is a lane of the tenant's in a cell.
type laneIn struct {
	cell  cell.ID
	class cell.Class
}

// counters is what a driver has copied.
type counters struct {
	bytes, records int64
	// The bytes of the present second, and of the one before.
	second            int64
	recent, lastWhole int64
}

func (c *counters) add(bytes, records int64, now time.Time) {
	c.bytes += bytes
	c.records += records
	c.rollTo(now.Unix())
	c.recent += bytes
}

func (c *counters) rollTo(second int64) {
	switch second {
	case c.second:
	case c.second + 1:
		c.lastWhole, c.recent = c.recent, 0
	default:
		c.lastWhole, c.recent = 0, 0
	}
	c.second = second
}

// perRecord returns about how large a record is.
func (c *counters) perRecord() int64 {
	if c.records == 0 {
		return recordBytesGuess
	}
	return max(1, c.bytes/c.records)
}

// recordBytesGuess is how large a record is taken to be while none was seen.
const recordBytesGuess = 1 << 10

// look asks a cell how the tenant's lanes stand. Of several looks at once what counts is what the one says that began last.
func (d *driver) look(ctx context.Context, r *migrate.Record, id cell.ID) error {
	call, cancel := d.call(ctx, r)
	defer cancel()
	d.mu.Lock()
	d.looks++
	began := d.looks
	d.mu.Unlock()
	m, err := d.client(id).GetLanes(call, &fairleadv1.GetLanesRequest{Tenant: string(r.Tenant)})
	now := cell.InstantOf(time.Now())
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.seen.Cell(r, id)
	if err != nil {
		if ctx.Err() == nil { // else nobody waited for it
			c.Reachable = false
			if c.Since == 0 {
				c.Since = now
			}
		}
		return err
	}
	if began < d.lastLook[id] {
		return nil
	}
	d.lastLook[id] = began
	for _, v := range m.GetLanes() {
		if class := cell.Class(v.GetClass()); class.Valid() {
			d.jobs[laneIn{id, class}] = v.GetJobsDelayed() + v.GetJobsReady() + v.GetJobsLeased() + v.GetJobsEnded()
		}
	}
	proved, baseline := c.Proved, c.Baseline
	*c = CellSeen(m)
	c.At, c.Proved, c.Baseline = now, proved, baseline
	if c.Baseline == 0 {
		c.Baseline = c.AnswerP99
	}
	return nil
}

// CellSeen returns what a cell's answer says of it. When it came, and what only whoever asked can know, is the caller's.
func CellSeen(m *fairleadv1.GetLanesResponse) migrate.CellSeen {
	c := migrate.CellSeen{
		Reachable: true, Index: m.GetIndex(), CommitP50: m.GetCommitP50().AsDuration(), CommitP99: m.GetCommitP99().AsDuration(),
		AnswerP99: m.GetAnswerP99().AsDuration(),
		Offered:   operations(m.GetOperationsOffered()), Needed: operations(m.GetOperationsNeeded()), Slots: m.GetSlots(), SlotsUsed: m.GetSlotsUsed(),
		PolicyEpoch: cell.Epoch(m.GetPolicyEpoch()),
	}
	for _, v := range m.GetLanes() {
		if class := cell.Class(v.GetClass()); class.Valid() {
			c.Lanes[class.Index()] = laneSeen(v)
		}
	}
	return c
}

func operations(names []string) []cell.Operation {
	out := make([]cell.Operation, len(names))
	for i, n := range names {
		out[i] = cell.Operation(n)
	}
	slices.Sort(out)
	return out
}

func laneSeen(v *fairleadv1.LaneView) migrate.LaneSeen {
	mode, known := modeOf(v.GetMode())
	if !known {
		return migrate.LaneSeen{}
	}
	live := v.GetJobsDelayed() + v.GetJobsReady() + v.GetJobsLeased()
	l := migrate.LaneSeen{
		Known: true, Mode: mode, Epoch: cell.Epoch(v.GetEpoch()),
		Move:  cell.Move{Migration: cell.MigrationID(v.GetMove().GetMigration()), Attempt: v.GetMove().GetAttempt()},
		Fence: v.GetFenceIndex(), Tracked: v.GetTracked(), Change: v.GetChange(),
		Cursor:  migrate.Cursor{Seeded: v.GetCursor().GetSeeded(), Change: v.GetCursor().GetChange()},
		Records: live + v.GetJobsEnded() + v.GetKeys(), Charged: cell.Cost(v.GetCharged()), Jobs: live, Ready: v.GetJobsReady(), Bytes: v.GetBytes(), Submitted: v.GetSubmitted(),
		Granted: v.GetGranted(), OldestWait: v.GetOldestWait().AsDuration(), PredictedWait: v.GetPredictedWait().AsDuration(),
	}
	copy(l.Front[:], v.GetFront())
	l.Health = healthSeen(v.GetHealth())
	if len(v.GetDigest()) != len(l.Digest) || filled(&l) && l.Cursor.Seeded != migrate.SeededAll { // that of a part is as of no change
		return l
	}
	l.Digest, l.DigestDone, l.DigestChange = [len(l.Digest)]byte(v.GetDigest()), migrate.Whole, l.Change
	if filled(&l) {
		l.DigestChange = l.Cursor.Change
	}
	return l
}

// healthSeen returns what a cell says of what a lane did; nothing is known where windows have no length.
func healthSeen(m *fairleadv1.LaneHealth) migrate.Health {
	h := migrate.Health{Window: m.GetWindow().AsDuration()}
	if h.Window <= 0 {
		return migrate.Health{}
	}
	for _, w := range m.GetWindows()[:min(len(m.GetWindows()), len(h.Windows))] {
		h.Windows[h.Known] = migrate.HealthWindow{
			Ended: w.GetEnded(), EndedBadly: w.GetEndedBadly(), Started: w.GetStarted(), Waits: w.GetWaits(), WaitP99: w.GetWaitP99().AsDuration(),
			ReadyLeast: w.GetReadyLeast(),
		}
		h.Known++
	}
	return h
}

// filled reports whether the lane is filled from another cell.
func filled(l *migrate.LaneSeen) bool { return l.Mode == cell.ModeStaged || l.Mode == cell.ModeStandby }

// copied takes note of a chunk that the target has, and where the target is then.
func (d *driver) copied(r *migrate.Record, e migrate.Copy, c chunk, at *fairleadv1.LaneCursor) {
	d.mu.Lock()
	defer d.mu.Unlock()
	// The digest stays that of the change that it was computed at.
	d.seen.Cell(r, e.To).Lanes[e.Class.Index()].Cursor = migrate.Cursor{Seeded: at.GetSeeded(), Change: at.GetChange()}
	one := &d.lanes[e.Class.Index()]
	if one.from != e.From || one.attempt != r.Attempt {
		*one = copying{from: e.From, attempt: r.Attempt}
	}
	one.known, one.seedLeft, one.changesLeft = true, c.GetSeedLeft(), c.GetChangesLeft()
	if c.last() {
		one.complete = c.asked
	}
	if x := c.comparison(); x.Known {
		one.compared = x
	}
	d.total.add(int64(len(c.GetRecords())), c.GetCount(), time.Now())
}

// throttleLocked returns what spares the cell that is copied from.
func (d *driver) throttleLocked(r *migrate.Record, from cell.ID, now time.Time) *throttle {
	t := d.throttles[from]
	if t == nil {
		t = newThrottle(r.Options.BytesPerSecond, now)
		t.begin(d.seen.Cell(r, from).Baseline)
		d.throttles[from] = t
	}
	t.allow(r.Options.BytesPerSecond, r.State == migrate.Seeding)
	t.learn(d.seen.Cell(r, from).AnswerP99)
	return t
}

// observed returns what is known now.
func (d *driver) observed(r *migrate.Record, now time.Time) migrate.Observed {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.lanes {
		one := &d.lanes[i]
		if one.from == "" || one.attempt != r.Attempt {
			continue
		}
		to := r.Target
		if one.from == r.Target {
			to = r.Source
		}
		from, filled := &d.seen.Cell(r, one.from).Lanes[i], &d.seen.Cell(r, to).Lanes[i]
		from.Broken, filled.Compared = one.broken == one.from, one.compared
		from.LagKnown, from.SeedLeft = one.known, one.seedLeft
		from.ChangesLeft = one.changesLeft
		if from.Change >= filled.Cursor.Change {
			from.ChangesLeft = int64(min(from.Change-filled.Cursor.Change, math.MaxInt64))
		}
		from.LagRecords = from.SeedLeft + from.ChangesLeft
		from.LagBytes = from.LagRecords * d.total.perRecord()
		switch from.LagTime = 0; {
		case from.LagRecords == 0:
		case one.complete.IsZero(): // never complete: as long as it goes on
			from.LagTime = now.Sub(r.Entered.Time())
		default:
			from.LagTime = now.Sub(one.complete)
		}
	}
	d.seen.Progress = d.progressLocked(r, now)
	return d.seen
}

// progressLocked returns how far the copy is, and nil while nothing was copied.
func (d *driver) progressLocked(r *migrate.Record, now time.Time) *migrate.Progress {
	if d.total.records == 0 && d.total.bytes == 0 {
		return nil
	}
	d.total.rollTo(now.Unix())
	p := migrate.Progress{
		BytesCopied: d.bytesBefore + d.total.bytes, BytesPerSecond: max(d.total.lastWhole, d.total.recent), At: cell.InstantOf(now),
	}
	for _, class := range cell.Classes() {
		one := &d.lanes[class.Index()]
		if one.from == "" {
			continue
		}
		from, jobs := &d.seen.Cell(r, one.from).Lanes[class.Index()], d.jobs[laneIn{one.from, class}]
		p.JobsTotal += jobs
		p.JobsCopied += max(0, jobs-from.SeedLeft)
		p.LagRecords += from.LagRecords
		p.LagBytes += from.LagBytes
		p.LagTime = max(p.LagTime, from.LagTime)
		if t := d.throttles[one.from]; t != nil {
			p.Throttled = p.Throttled || t.slowed()
		}
	}
	return &p
}

// classMessage returns a class as the API says it: the numbers are the same.
func classMessage(c cell.Class) fairleadv1.Class { return fairleadv1.Class(c) }

// modeMessage returns a mode as cells say it; unspecified for one that is none.
func modeMessage(m cell.Mode) fairleadv1.LaneMode {
	switch m {
	case cell.ModeOpen:
		return fairleadv1.LaneMode_LANE_MODE_OPEN
	case cell.ModeFenced:
		return fairleadv1.LaneMode_LANE_MODE_FENCED
	case cell.ModeStaged:
		return fairleadv1.LaneMode_LANE_MODE_STAGED
	case cell.ModeStandby:
		return fairleadv1.LaneMode_LANE_MODE_STANDBY
	case cell.ModeTombstone:
		return fairleadv1.LaneMode_LANE_MODE_TOMBSTONE
	default:
		return fairleadv1.LaneMode_LANE_MODE_UNSPECIFIED
	}
}

// modeOf returns the mode that a cell says, and false where it has no such lane.
func modeOf(m fairleadv1.LaneMode) (cell.Mode, bool) {
	for mode := cell.ModeOpen; mode.Valid(); mode++ {
		if modeMessage(mode) == m {
			return mode, true
		}
	}
	return 0, false
}
