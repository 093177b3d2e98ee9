package mover

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/migrate"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fairlead/v1/fairleadv1connect"
)

const (
	// chunkBytes is about how large a chunk is: an entry of the target's log. From a source that is to be spared it is read in pieces of pieceBytes: to read
	// one keeps nobody waiting for longer than a fraction of a millisecond.
	chunkBytes = 256 << 10
	pieceBytes = 32 << 10
	// turnedAwayMax is how often in a row a target may say that it is elsewhere than the chunk begins, before something else is wrong.
	turnedAwayMax = 3
)

// errElsewhere is returned when the target's cursor is again and again another than it said.
var errElsewhere = errors.New("the target's lane is elsewhere than it says: it is looked at again")

// round is one turn of copying a lane from one cell to another, from where the target is.
type round struct {
	move     *fairleadv1.Move
	tenant   string
	class    fairleadv1.Class
	from, to fairleadv1connect.LaneServiceClient
	cursor   *fairleadv1.LaneCursor // the target's
	throttle *throttle              // nil for as fast as it goes
	until    time.Time              // no chunk begins after it; zero for none
	// urgent rounds are neither throttled nor ended before nothing is left. The target takes their last chunk even when it says nothing new of the
	// lane: it has what the tenant's account is.
	urgent  bool
	callMax time.Duration
	chunked func(chunk, *fairleadv1.LaneCursor) // called with each chunk that the target has, and where it is then; nil for nobody
}

// chunk is what ExportLane returned, and when it was asked for.
type chunk struct {
	*fairleadv1.ExportLaneResponse
	asked   time.Time
	arrived []byte // the target's digest once it had it; empty where that is not computed
}

// comparison returns what the chunk has shown of both cells' lanes: of the zero value unless nothing was left after it, and both digests are computed.
func (c chunk) comparison() migrate.Comparison {
	out := migrate.Comparison{Change: c.GetNext().GetChange()}
	if !c.last() || len(c.GetDigest()) != len(out.From) || len(c.arrived) != len(out.To) {
		return migrate.Comparison{}
	}
	out.Known, out.From, out.To = true, [32]byte(c.GetDigest()), [32]byte(c.arrived)
	return out
}

// with returns what c has and the piece after it.
func (c chunk) with(piece chunk) chunk {
	if c.ExportLaneResponse != nil {
		piece.Records, piece.Count = append(c.GetRecords(), piece.GetRecords()...), piece.GetCount()+c.GetCount()
	}
	return piece
}

// last reports whether nothing was left after the chunk when it was read.
func (c chunk) last() bool {
	return c.GetNext().GetSeeded() == math.MaxUint64 && c.GetSeedLeft() == 0 && c.GetChangesLeft() == 0
}

// copy goes on until nothing is left, or its time is over. While the target takes a chunk the next is read already: the source then is never waited for
// twice. It returns how many records the target took.
func (r *round) copy(ctx context.Context) (int64, error) {
	ctx, stop := context.WithCancel(ctx) // what is read ahead in vain
	var reads sync.WaitGroup
	defer reads.Wait()
	defer stop()
	turnedAway, moved := 0, int64(0)
	var ahead <-chan reading
	for {
		c, err := r.next(ctx, ahead)
		if err != nil || c.ExportLaneResponse == nil {
			return moved, err
		}
		if c.last() && !r.urgent && proto.Equal(c.GetNext(), r.cursor) {
			r.tell(c)
			return moved, nil
		}
		if ahead = nil; !c.last() && !r.over() {
			ahead = r.readAhead(ctx, &reads, c.GetNext())
		}
		taken, err := r.put(ctx, &c)
		if err != nil {
			return moved, err
		}
		if !taken {
			if turnedAway++; turnedAway == turnedAwayMax {
				return moved, errElsewhere
			}
			ahead = nil // it begins where the target is not
			continue
		}
		turnedAway, moved = 0, moved+c.GetCount()
		r.tell(c)
		if c.last() || ahead == nil && r.over() {
			return moved, nil
		}
	}
}

func (r *round) over() bool { return !r.urgent && !r.until.IsZero() && !time.Now().Before(r.until) }

func (r *round) tell(c chunk) {
	if r.chunked != nil {
		r.chunked(c, r.cursor)
	}
}

// reading is what a read ahead has come to.
type reading struct {
	chunk chunk
	err   error
}

func (r *round) readAhead(ctx context.Context, reads *sync.WaitGroup, from *fairleadv1.LaneCursor) <-chan reading {
	out := make(chan reading, 1)
	reads.Go(func() {
		c, err := r.get(ctx, from)
		out <- reading{c, err}
	})
	return out
}

// next returns the chunk that was read ahead, or else the one at the cursor.
func (r *round) next(ctx context.Context, ahead <-chan reading) (chunk, error) {
	if ahead == nil {
		return r.get(ctx, r.cursor)
	}
	got := <-ahead
	return got.chunk, got.err
}

// get reads a chunk: piece by piece, as fast as the throttle allows, from a source that is to be spared. It ends early when the round is over; nothing is in
// it then if nothing could be read before.
func (r *round) get(ctx context.Context, from *fairleadv1.LaneCursor) (chunk, error) {
	if r.throttle == nil || r.urgent {
		return r.export(ctx, from, &fairleadv1.ExportLaneRequest{BytesMax: chunkBytes})
	}
	var c chunk
	for {
		for wait := r.throttle.owes(time.Now()); wait > 0; wait = r.throttle.owes(time.Now()) { // the other lane may have been served first
			if err := r.rest(ctx, wait); err != nil || r.over() {
				return c, err
			}
		}
		seen, slowAfter := r.throttle.ask()
		piece, err := r.export(ctx, from, &fairleadv1.ExportLaneRequest{BytesMax: pieceBytes, AnswersSeen: seen, SlowAfter: durationpb.New(slowAfter)})
		if err != nil {
			return c, err
		}
		now := time.Now()
		r.throttle.observe(piece.GetAnswers(), piece.GetAnswersSlow(), now)
		r.throttle.took(len(piece.GetRecords()), now)
		stuck := proto.Equal(piece.GetNext(), from)
		from = piece.GetNext()
		c = c.with(piece)
		if stuck || c.last() || len(c.GetRecords()) >= chunkBytes || r.over() {
			return c, nil
		}
	}
}

// rest waits, but no longer than the round may last: what is owed stays owed.
func (r *round) rest(ctx context.Context, wait time.Duration) error {
	if left := time.Until(r.until); !r.until.IsZero() && wait > left {
		wait = left
	}
	return pause(ctx, wait)
}

// export asks the source for what lies behind a cursor.
func (r *round) export(ctx context.Context, from *fairleadv1.LaneCursor, req *fairleadv1.ExportLaneRequest) (chunk, error) {
	ctx, cancel := context.WithTimeout(ctx, r.callMax)
	defer cancel()
	asked := time.Now()
	req.Move, req.Tenant, req.Class, req.Cursor = r.move, r.tenant, r.class, from
	m, err := r.from.ExportLane(ctx, req)
	return chunk{ExportLaneResponse: m, asked: asked}, err
}

// put gives the target a chunk, notes where it is then, and reports whether it took it.
func (r *round) put(ctx context.Context, c *chunk) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, r.callMax)
	defer cancel()
	m, err := r.to.ImportLane(ctx, &fairleadv1.ImportLaneRequest{
		Move: r.move, Tenant: r.tenant, Class: r.class, Records: c.GetRecords(), Cursor: r.cursor, Next: c.GetNext(),
	})
	if err != nil {
		return false, err
	}
	if r.cursor = m.GetCursor(); r.cursor == nil {
		r.cursor = &fairleadv1.LaneCursor{}
	}
	c.arrived = m.GetDigest()
	return m.GetApplied(), nil
}

// cursorMessage returns a lane's place as cells say it.
func cursorMessage(seeded, change uint64) *fairleadv1.LaneCursor {
	return &fairleadv1.LaneCursor{Seeded: seeded, Change: change}
}

// moveMessage returns m as cells are told it.
func moveMessage(m cell.Move) *fairleadv1.Move {
	return &fairleadv1.Move{Migration: string(m.Migration), Attempt: m.Attempt}
}

// pause waits for d. It returns ctx's cause when ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
