package engine

import (
	"fmt"
	"time"

	"github.com/fairlead/fairlead/cell"
)

func (s *State) applyImport(f *ImportFact, a *Applied) Result {
	l := s.Lane(f.Lane)
	if l == nil {
		return Result{Err: ErrTenantUnknown}
	}
	switch {
	case l.Mode != cell.ModeStaged && l.Mode != cell.ModeStandby:
		return Result{Err: l.cannot("import"), Cursor: l.Cursor}
	case l.Move != f.Move:
		return Result{Err: ErrMoveStale, Cursor: l.Cursor}
	case l.wiping:
		return Result{Err: ErrLaneFilled, Cursor: l.Cursor}
	case f.Begin != l.Cursor, f.End.Seeded < f.Begin.Seeded, f.End.Change < f.Begin.Change:
		return Result{Err: ErrCursor, Cursor: l.Cursor}
	}
	records, err := portables(f.Records)
	if err == nil {
		err = s.checkImport(l, records)
	}
	if err != nil {
		return Result{Err: err, Cursor: l.Cursor}
	}
	s.touchLane(l)
	for i := range records {
		s.importRecord(l, &records[i], a)
	}
	l.Cursor, l.Change = f.End, f.End.Change
	return Result{Index: s.index, Cursor: l.Cursor}
}

// checkImport returns why records cannot be applied: an error that wraps ErrFormat when they contradict themselves or the lane, ErrJobIDTaken, or a
// *cell.LimitError when the cell has no room for them. The lane's own bounds held where the jobs were accepted.
func (s *State) checkImport(l *Lane, records []portable) error {
	numbers := map[uint64]cell.JobID{}
	var jobs, bytes, keys, finished int64
	for i := range records {
		p := &records[i]
		if p.kind == portableKey && l.keys[p.key.hash] == nil {
			keys++
		}
		if p.kind != portableJob {
			continue
		}
		j := p.job
		if had := l.list.at(j.Seq); had != nil && had.ID != j.ID {
			return fmt.Errorf("job %v has the number of %v: %w", j.ID, had.ID, ErrFormat)
		}
		if id, ok := numbers[j.Seq]; ok && id != j.ID {
			return fmt.Errorf("job %v has the number of %v: %w", j.ID, id, ErrFormat)
		}
		numbers[j.Seq] = j.ID
		had := s.jobs[j.ID]
		if had != nil && had.Lane != l {
			return fmt.Errorf("job %v: %w", j.ID, ErrJobIDTaken)
		}
		if !j.State.Ended() && (had == nil || had.State.Ended()) {
			jobs++
			bytes += j.Bytes()
		}
		if j.State.Ended() && (had == nil || !had.State.Ended()) {
			finished += j.finishedBytes()
		}
		if p.holds != keyNone && (had == nil || s.keyOf(had) == nil) {
			keys++
		}
	}
	for _, c := range [...]struct {
		limit       string
		value, more int64
		bound       int64
	}{
		{"backlog_jobs_max", s.liveJobs, jobs, s.limits.LiveJobsMax},
		{"backlog_bytes_max", s.liveBytes, bytes, s.limits.LiveBytesMax},
		{"key_records_max", s.keyRecords, keys, s.limits.KeyRecordsMax},
		{"finished_cell_bytes_max", s.resting, finished, s.limits.finishedCellBytes()},
	} {
		if c.more > 0 && c.value+c.more > c.bound {
			return &cell.LimitError{
				Limit: c.limit, Scope: cell.ScopeCell, Value: c.value + c.more, Bound: c.bound, RetryAfter: time.Minute,
				Remedy: "move the tenant to a cell with more room, or raise the limit",
			}
		}
	}
	return nil
}

func (s *State) importRecord(l *Lane, p *portable, a *Applied) {
	switch p.kind {
	case portableJob:
		a.Imported = append(a.Imported, s.importJob(l, p))
	case portableKey:
		s.vacate(l, p.key.hash)
		s.importKey(l, p.key)
		s.markKey(p.key)
	case portableJobGone:
		if j := s.jobs[p.id]; j != nil && j.Lane == l {
			s.importGone(j)
			a.Removed = append(a.Removed, p.id)
		}
	case portableKeyGone:
		if r := l.keys[p.key.hash]; r != nil && r.job == p.key.job && s.holder(r) == nil {
			s.markKey(r)
			s.removeKey(r)
		}
	case portableAccount:
		l.Charged, l.Account = p.account.charged, p.account.lane
		l.inherited = &p.account.tenant
	}
}

// importGone removes a job with its key: one that outlives it comes in a record of its own.
func (s *State) importGone(j *Job) {
	if r := s.keyOf(j); r != nil {
		s.markKey(r)
		s.removeKey(r)
	}
	s.remove(j)
}

// importKey lets the key of a job that has ended stand.
func (s *State) importKey(l *Lane, r *keyRecord) {
	r.lane, r.seq = l, s.number()
	l.setKey(r)
	s.keyRecords++
	s.pushKey(r)
}

// vacate makes room for a key that stands for something else at the source. Whatever it stood for here has changed there, too, and comes.
func (s *State) vacate(l *Lane, h keyHash) {
	r := l.keys[h]
	if r == nil {
		return
	}
	j := s.holder(r)
	switch {
	case j == nil:
		s.markKey(r)
	case j.State.Ended():
		s.touch(j)
	default: // as endWindow does
		s.touch(j)
		s.count(j, -1)
		j.Spec.Key, j.key = "", nil
		s.count(j, 1)
	}
	s.removeKey(r)
}

// importJob makes a job what it is at the source, and returns it.
func (s *State) importJob(l *Lane, p *portable) *Job {
	j := s.jobs[p.job.ID]
	if j != nil && j.Seq != p.job.Seq { // the id was given anew
		s.importGone(j)
		j = nil
	}
	if j == nil {
		j = p.job
		j.Lane = l
		if j.State.Ended() {
			j.finishSeq = s.number()
			j.finishedList().push(j)
		}
		if j.Seq > s.accepted {
			s.passed += j.Seq - s.accepted
			s.accepted = j.Seq
		}
		s.insert(j, false)
		s.mark(j)
	} else {
		s.replaceJob(j, p.job)
	}
	s.importBounds(j, p.bounds)
	if p.holds == keyNone {
		return j
	}
	h := hashKey(j.Spec.Key)
	s.vacate(l, h)
	if p.holds == keyLives {
		s.takeKey(l, h, j)
	} else {
		s.importKey(l, &keyRecord{hash: h, job: j.ID, body: j.BodyHash, expires: p.expires})
	}
	return j
}

// replaceJob makes a job that is here what it is at the source. It keeps its place among those that ended where its end is the same.
func (s *State) replaceJob(j, as *Job) {
	s.touch(j)
	if r := s.keyOf(j); r != nil {
		s.removeKey(r)
	}
	s.disarm(j)
	s.count(j, -1)
	stays := j.State.Ended() && as.State.Ended() && j.Finished == as.Finished && j.Dropped == as.Dropped
	switch {
	case stays:
		as.finishSeq, as.older, as.newer = j.finishSeq, j.older, j.newer
	case j.State.Ended():
		j.finishedList().remove(j)
		as.finishSeq = j.finishSeq // of one that was dropped
	default:
		s.leaveKeys(j)
	}
	as.Lane, as.position, as.trail, as.written = j.Lane, j.position, j.trail, j.written
	ended, finished := j.State.Ended(), j.Finished
	*j = *as
	switch {
	case stays:
	case j.State.Ended():
		if !ended || finished != j.Finished {
			j.finishSeq = s.number()
		}
		s.pushFinished(j)
	default:
		j.finishSeq = 0
		s.enterKeys(j, false)
	}
	s.count(j, 1)
	s.arm(j)
}

// importBounds takes the bounds of a job's concurrency keys from the source, except where a lane of the tenant that is here has jobs of the key.
func (s *State) importBounds(j *Job, bounds []int64) {
	other := j.Lane.other()
	for i, bound := range bounds {
		c := j.Lane.Tenant.concurrency[j.Spec.Keys[i].Key]
		if bound == 0 || c == nil || c.bound == bound || other.holds() && c.live[other.ID.Class.Index()] > 0 {
			continue
		}
		s.touchConcurrency(c)
		c.bound = bound
	}
}
