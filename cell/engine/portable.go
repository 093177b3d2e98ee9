package engine

import "github.com/fairlead/fairlead/cell"

// What Export writes and an ImportFact has: records like those of the log. The first field of a job or a key that stands is its canonical bytes, which
// are the same in any cell and what digests are of. As everywhere, fields are only ever appended; canonical bytes grow at their end only where there
// is something to say, so that two versions agree on what both know.
const (
	portableJob     = 1
	portableKey     = 2 // one that has outlived its job
	portableJobGone = 3
	portableKeyGone = 4
	portableAccount = 5
)

// What a job's idempotency key does, in canonical bytes.
const (
	keyNone   = 0
	keyLives  = 1 // it stands while the job lives
	keyWindow = 2 // it stands until its window is over
)

// canonicalJob writes what a job is wherever it is.
func (w *writer) canonicalJob(s *State, j *Job) {
	w.fixed(j.ID[:])
	w.uint(j.Seq)
	w.spec(&j.Spec)
	w.fixed(j.BodyHash[:])
	w.uint(uint64(j.State))
	w.instant(j.Created)
	w.instant(j.LeasedAt)
	w.instant(j.Finished)
	w.instant(j.WakeAt)
	w.int(int64(j.Attempt))
	w.int(int64(j.Failed))
	w.int(int64(j.Lost))
	w.int(int64(j.Crashes))
	w.lease(&j.Lease)
	w.uint(uint64(j.LastOutcome))
	w.payload(&j.Result)
	w.bool(j.Dropped)
	w.text(j.Error)
	w.int(int64(j.Charged))
	w.uint(uint64(j.Lease.Tier))
	w.duration(j.Ran)
	w.resources(j.Used)
	w.specMore(&j.Spec)
	switch r := s.keyOf(j); {
	case r == nil:
		w.uint(keyNone)
		w.instant(0)
	case r.seq == 0:
		w.uint(keyLives)
		w.instant(0)
	default:
		w.uint(keyWindow)
		w.instant(r.expires)
	}
}

// portable is one record that was read.
type portable struct {
	kind byte
	job  *Job // without its lane and its place in the cell
	// What a job's key does, and until when.
	holds   uint64
	expires cell.Instant
	bounds  []int64    // of its concurrency keys, as they are at the source; 0 for none
	key     *keyRecord // without lane and number
	id      cell.JobID // of a job that is gone
	account *accountRecord
}

// accountRecord is where a lane and its tenant stand.
type accountRecord struct {
	charged cell.Cost
	lane    cell.LaneAccount
	tenant  inherited
}

func (r *reader) canonicalJob(p *portable) {
	j := &Job{timer: -1}
	p.job = j
	r.fixed(j.ID[:])
	j.Seq = r.uint()
	j.Spec = r.spec()
	r.fixed(j.BodyHash[:])
	j.State = JobState(r.byte())
	j.Created, j.LeasedAt, j.Finished, j.WakeAt = r.instant(), r.instant(), r.instant(), r.instant()
	j.Attempt, j.Failed, j.Lost, j.Crashes = r.int32(), r.int32(), r.int32(), r.int32()
	j.Lease = r.lease()
	j.LastOutcome = OutcomeKind(r.byte())
	j.Result = r.payload()
	j.Dropped = r.bool()
	j.Error = r.text()
	j.Charged = cell.Cost(r.int())
	j.Lease.Tier = r.byte()
	j.Ran = r.duration()
	j.Used = r.resources()
	r.specMore(&j.Spec)
	p.holds, p.expires = r.uint(), r.instant()
	ended, keyed := j.State.Ended(), j.Spec.Key != ""
	switch {
	case !j.State.Valid() || j.Seq == 0 || j.Seq >= keyPlaces:
		r.fail("a job in no state, or of no number")
	case j.Dropped && !ended, j.State == Leased && j.Lease.Token.Attempt != j.Attempt:
		r.fail("a job that contradicts itself")
	case p.holds > keyWindow, (p.holds == keyLives) != (keyed && !ended), p.holds == keyWindow && (!keyed || p.expires <= 0):
		r.fail("a job whose key contradicts it")
	}
}

func (w *writer) canonicalKey(k *keyRecord) {
	w.fixed(k.hash[:])
	w.fixed(k.job[:])
	w.fixed(k.body[:])
	w.instant(k.expires)
}

func (r *reader) canonicalKey() *keyRecord {
	k := &keyRecord{}
	r.fixed(k.hash[:])
	r.fixed(k.job[:])
	r.fixed(k.body[:])
	if k.expires = r.instant(); k.expires <= 0 {
		r.fail("a key without a window")
	}
	return k
}

// portableTrail writes the record of a trail as it is now.
func (w *writer) portableTrail(s *State, t *trail) {
	switch {
	case t.job != nil:
		w.portableJob(s, t.job)
	case t.key != nil:
		w.portableKey(t.key)
	case t.isKey:
		at := w.begin(portableKeyGone)
		w.fixed(t.hash[:])
		w.fixed(t.id[:])
		w.end(at)
	default:
		at := w.begin(portableJobGone)
		w.fixed(t.id[:])
		w.end(at)
	}
}

func (w *writer) portableJob(s *State, j *Job) {
	c := writer{b: w.part[:0]}
	c.canonicalJob(s, j)
	w.part = c.b
	at := w.begin(portableJob)
	w.bytes(c.b)
	w.uint(uint64(len(j.Spec.Keys)))
	for _, k := range j.Spec.Keys {
		bound := int64(0)
		if c := j.Lane.Tenant.concurrency[k.Key]; c != nil {
			bound = c.bound
		}
		w.int(bound)
	}
	w.end(at)
}

func (w *writer) portableKey(k *keyRecord) {
	c := writer{b: w.part[:0]}
	c.canonicalKey(k)
	w.part = c.b
	at := w.begin(portableKey)
	w.bytes(c.b)
	w.end(at)
}

func (w *writer) portableAccount(s *State, l *Lane) {
	at := w.begin(portableAccount)
	w.int(int64(l.Charged))
	w.int(l.Account.Rounds)
	w.int(l.Account.Deficit)
	w.duration(l.Account.Ahead)
	in := s.testament(l)
	w.inherited(&in)
	w.end(at)
}

func (w *writer) inherited(in *inherited) {
	w.tenantAccount(&in.account)
	w.uint(uint64(len(in.starts)))
	for _, at := range in.starts {
		w.instant(at)
	}
	w.uint(uint64(len(in.estimates)))
	for _, e := range in.estimates {
		w.text(string(e.operation))
		w.int(int64(e.estimate.Mean))
		w.int(e.estimate.Samples)
	}
}

func (r *reader) inherited() inherited {
	in := inherited{account: r.tenantAccount()}
	in.starts, in.estimates = r.starts(), r.estimates()
	return in
}

// portables reads records of a lane. It returns an error that wraps ErrFormat.
func portables(b []byte) ([]portable, error) {
	var all []portable
	r := reader{b: b}
	for {
		kind, body, ok := r.record()
		if !ok {
			return all, r.err
		}
		p := portable{kind: kind}
		rec := reader{b: body}
		rec.portable(&p)
		if rec.err != nil {
			return nil, rec.err
		}
		all = append(all, p)
	}
}

func (r *reader) portable(p *portable) {
	switch p.kind {
	case portableJob:
		c := reader{b: r.view()}
		c.canonicalJob(p)
		if c.err != nil {
			r.fail(c.err.Error())
		}
		if n := r.uint(); n > uint64(len(r.b)) || n != 0 && n != uint64(len(p.job.Spec.Keys)) {
			r.fail("other bounds than keys")
		} else if n > 0 {
			p.bounds = make([]int64, n)
		}
		for i := range p.bounds {
			p.bounds[i] = r.int()
		}
	case portableKey:
		c := reader{b: r.view()}
		p.key = c.canonicalKey()
		if c.err != nil {
			r.fail(c.err.Error())
		}
	case portableJobGone:
		p.id = r.id()
	case portableKeyGone:
		p.key = &keyRecord{}
		r.fixed(p.key.hash[:])
		p.key.job = r.id()
	case portableAccount:
		p.account = &accountRecord{charged: cell.Cost(r.int())}
		p.account.lane = cell.LaneAccount{Rounds: r.int(), Deficit: r.int(), Ahead: r.duration()}
		p.account.tenant = r.inherited()
	default:
		r.fail("a record of a kind that this version does not know")
	}
}
