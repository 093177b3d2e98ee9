package cellserver

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/cell"
	"github.com/fairlead/fairlead/cell/engine"
	"github.com/fairlead/fairlead/cell/leader"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// ExportLane returns the next records of a tracked lane. They are what was committed, whoever leads by now: what is missing comes after the cursor.
func (h Lanes) ExportLane(ctx context.Context, req *fairleadv1.ExportLaneRequest) (*fairleadv1.ExportLaneResponse, error) {
	resp, err := h.server.export(ctx, req)
	if err != nil {
		return nil, h.server.fail(ctx, err)
	}
	resp.Answers, resp.AnswersSlow = h.server.answers.slow(req.GetAnswersSeen(), req.GetSlowAfter().AsDuration())
	return resp, nil
}

func (s *Server) export(ctx context.Context, req *fairleadv1.ExportLaneRequest) (*fairleadv1.ExportLaneResponse, error) {
	m, err := movedOf(req)
	if err != nil {
		return nil, err
	}
	most, err := within("bytes_max", req.GetBytesMax(), exportBytesDefault, exportBytesMax)
	if err != nil {
		return nil, err
	}
	resp := &fairleadv1.ExportLaneResponse{}
	for next, more := cursorOf(req.GetCursor()), true; more; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if more, err = s.exportPiece(m, &next, most, resp); err != nil {
			return nil, err
		}
	}
	return resp, nil
}

// exportPiece adds what lies behind next, as far as one look goes, and moves next on. It reports whether there is more that the answer has room for.
func (s *Server) exportPiece(m moved, next *engine.Cursor, most int, resp *fairleadv1.ExportLaneResponse) (more bool, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.lead == nil {
		return false, ErrNotLeading
	}
	l := s.state.Lane(m.lane)
	switch {
	case l == nil:
		return false, engine.ErrTenantUnknown
	case l.Tracked && l.Tracking() != m.move:
		return false, engine.ErrMoveStale
	}
	records, count, after, err := s.state.Export(m.lane, *next, most-len(resp.GetRecords()), laneSteps)
	if err != nil {
		return false, err
	}
	went := after != *next
	*next = after
	if len(resp.GetRecords()) > 0 {
		records = append(resp.GetRecords(), records...)
	}
	resp.Records, resp.Count, resp.Next = records, resp.GetCount()+int64(count), cursorTo(after)
	resp.Change, resp.Index = l.Change, s.state.Index()
	resp.SeedLeft, resp.ChangesLeft = s.state.ExportLeft(m.lane, after)
	// A cursor that stands still is at the end, or before a record that the answer has no room for.
	left := after.Seeded != engine.SeededAll || resp.GetChangesLeft() > 0
	if !left && after.Change == l.Change {
		resp.Digest = s.digestSum(m.lane)
	}
	return went && left && len(resp.GetRecords()) < most, nil
}

// digestSum returns a lane's digest; nil while it is not computed. The caller holds mu.
func (s *Server) digestSum(lane cell.Lane) []byte {
	if d, whole := s.state.Digest(lane); whole {
		return d.Sum[:]
	}
	return nil
}

// filledSum returns the digest of a lane that is filled as of a cursor; nil when it is not computed, or the lane is elsewhere by now.
func (s *Server) filledSum(m moved, at engine.Cursor) []byte {
	s.mu.RLock()
	defer s.mu.RUnlock()
	l := s.state.Lane(m.lane)
	if l == nil || l.Move != m.move || l.Mode != cell.ModeStaged && l.Mode != cell.ModeStandby || l.Cursor != at || at.Seeded != engine.SeededAll {
		return nil
	}
	return s.digestSum(m.lane)
}

// laneOf returns the lane that a move fills or follows. It returns engine.ErrTenantUnknown when there is none here, and engine.ErrMoveStale when it is
// another move's. The caller holds mu.
func (s *Server) laneOf(m moved) (*engine.Lane, error) {
	l := s.state.Lane(m.lane)
	if l == nil {
		return nil, engine.ErrTenantUnknown
	}
	if l.Move != m.move && l.Tracking() != m.move {
		return nil, engine.ErrMoveStale
	}
	return l, nil
}

// ImportLane applies what ExportLane returned. Records that do not follow what was applied change nothing: the answer says what they have to follow.
func (h Lanes) ImportLane(ctx context.Context, req *fairleadv1.ImportLaneRequest) (*fairleadv1.ImportLaneResponse, error) {
	s := h.server
	m, err := movedOf(req)
	if n := len(req.GetRecords()); err == nil && n > importBytesMax {
		err = &cell.FieldError{
			Field: "records", Problem: fmt.Sprintf("has %d bytes, of at most %d", n, importBytesMax), Remedy: "export fewer at a time",
		}
	}
	x := &leader.Import{Fact: engine.ImportFact{
		Lane: m.lane, Move: m.move, Begin: cursorOf(req.GetCursor()), End: cursorOf(req.GetNext()), Records: req.GetRecords(),
	}}
	if err == nil {
		err = s.roomOnDisk()
	}
	if err == nil {
		err = s.put(ctx, &leader.Call{Import: x}, &x.Result)
	}
	if errors.Is(err, engine.ErrJobIDTaken) {
		err = fmt.Errorf("%w: %w", err, engine.ErrFormat) // of an import it says that the records are not the lane's
	}
	switch {
	case errors.Is(err, engine.ErrCursor):
		return &fairleadv1.ImportLaneResponse{Cursor: cursorTo(x.Result.Cursor)}, nil
	case err != nil:
		return nil, s.fail(ctx, err)
	}
	s.survey.want(m.lane)
	return &fairleadv1.ImportLaneResponse{
		Cursor: cursorTo(x.Result.Cursor), Index: x.Result.Index, Applied: true, Digest: s.filledSum(m, x.Result.Cursor),
	}, nil
}

// importBytesMax is what one import may have: what one export has at most, which ends with a record of any size that there is.
const importBytesMax = 3 * exportBytesMax

// DigestLane returns a lane's digest and those of its buckets, or the records of one bucket.
func (h Lanes) DigestLane(ctx context.Context, req *fairleadv1.DigestLaneRequest) (*fairleadv1.DigestLaneResponse, error) {
	s := h.server
	var resp *fairleadv1.DigestLaneResponse
	m, err := movedOf(req)
	if b := req.GetBucket(); err == nil && (b < 0 || b > engine.Buckets) {
		err = &cell.FieldError{
			Field: "bucket", Problem: fmt.Sprintf("is %d, outside 1 to %d", b, engine.Buckets), Remedy: "give one inside, or none for all digests",
		}
	}
	if err == nil {
		err = s.read(ctx, func() (err error) {
			resp, err = s.digest(ctx, m, int(req.GetBucket()))
			return err
		})
	}
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	return resp, nil
}

func (s *Server) digest(ctx context.Context, m moved, bucket int) (*fairleadv1.DigestLaneResponse, error) {
	if bucket > 0 {
		return s.bucket(ctx, m, bucket-1)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	l, err := s.laneOf(m)
	if err != nil {
		return nil, err
	}
	d, whole := s.state.Digest(m.lane)
	resp := &fairleadv1.DigestLaneResponse{Index: s.state.Index(), Change: l.Change, Done: int32(d.Done)} //nolint:gosec // thousandths
	if !whole {
		s.survey.want(m.lane)
		return resp, nil
	}
	resp.Digest = d.Sum[:]
	for i := range d.Buckets {
		resp.Buckets = append(resp.Buckets, d.Buckets[i][:])
	}
	return resp, nil
}

// bucket returns the records of one bucket, which are looked for among all of the lane's, a few at a time. What changes meanwhile may be there as it was
// or as it is.
func (s *Server) bucket(ctx context.Context, m moved, bucket int) (*fairleadv1.DigestLaneResponse, error) {
	resp := &fairleadv1.DigestLaneResponse{}
	for from := uint64(0); from != engine.SeededAll; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		next, err := s.bucketPiece(m, bucket, from, resp)
		if err != nil {
			return nil, err
		}
		from = next
	}
	return resp, nil
}

func (s *Server) bucketPiece(m moved, bucket int, from uint64, resp *fairleadv1.DigestLaneResponse) (next uint64, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	l, err := s.laneOf(m)
	if err != nil {
		return 0, err
	}
	records, next := s.state.BucketRecords(m.lane, bucket, from, surveySteps)
	for _, r := range records {
		kind := "job"
		if r.Key {
			kind = "key"
		}
		resp.Records = append(resp.Records, &fairleadv1.LaneRecord{Kind: kind, Id: r.ID, Digest: r.Digest[:]})
	}
	resp.Index, resp.Change = s.state.Index(), l.Change
	return next, nil
}
