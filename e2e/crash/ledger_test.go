package crash

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/dataplane/client"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// entry is one job as its submitter knows it.
type entry struct {
	tenant, key string
	payload     payload
	id          string // empty until a submission was acknowledged
	cancelled   bool   // somebody asked for it to be cancelled: it may have been
	end         *ending
}

// ending is how a job ended, as it was first seen. It must never change.
type ending struct {
	state  fairleadv1.JobState
	finish int64 // unix nanoseconds
	result string
	full   bool // result is known
}

// applied is an outcome that the server acknowledged as taken.
type applied struct {
	Job    string `json:"job"`
	Token  string `json:"token"`
	Result string `json:"result"`
}

// ledger is what was acknowledged. Contradictions fail the test as they are seen.
type ledger struct {
	t *testing.T

	mu      sync.Mutex
	byKey   map[string]*entry // tenant and key
	byID    map[string]*entry
	acked   []*entry // in the order of the acknowledgements
	applied map[string]applied
	over    map[string]bool // ids of jobs known to have ended
	repeats int             // acknowledgements of a key that had been acknowledged before
}

func newLedger(t *testing.T) *ledger {
	return &ledger{t: t, byKey: map[string]*entry{}, byID: map[string]*entry{}, applied: map[string]applied{}, over: map[string]bool{}}
}

func nameOf(tenant, key string) string { return tenant + "/" + key }

// submitting notes that e is about to be submitted for the first time.
func (l *ledger) submitting(e *entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.byKey[nameOf(e.tenant, e.key)] = e
}

// acknowledged notes that a submission of e was acknowledged with an id: always the same one.
func (l *ledger) acknowledged(e *entry, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case e.id == "":
		if other := l.byID[id]; other != nil {
			l.t.Errorf("job %s stands for key %s and for key %s", id, nameOf(other.tenant, other.key), nameOf(e.tenant, e.key))
		}
		e.id = id
		l.byID[id] = e
		l.acked = append(l.acked, e)
	case e.id != id:
		l.t.Errorf("key %s stands for job %s and for job %s", nameOf(e.tenant, e.key), e.id, id)
	default:
		l.repeats++
	}
}

// took notes that an outcome was acknowledged as taken: no other one may ever be.
func (l *ledger) took(a applied) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, again := l.applied[a.Job]
	if again && before != a {
		l.t.Errorf("two outcomes of job %s were taken: %+v and %+v", a.Job, before, a)
	}
	l.applied[a.Job] = a
	l.over[a.Job] = true
}

// cancelling notes that e is about to be cancelled.
func (l *ledger) cancelling(e *entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.cancelled = true
}

// saw notes a job that has ended as the server shows it. full says that it came with its result.
func (l *ledger) saw(e *entry, job *fairleadv1.Job, full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	state := job.GetState()
	if !client.Ended(state) {
		l.t.Errorf("job %s had ended and is %v now", e.id, state)
		return
	}
	seen := ending{state: state, finish: job.GetFinishTime().AsTime().UnixNano(), result: job.GetResult().GetJson(), full: full}
	switch {
	case e.end == nil:
		e.end = &seen
		l.over[e.id] = true
	case e.end.state != seen.state || e.end.finish != seen.finish:
		l.t.Errorf("job %s had ended as %v at %d and has now as %v at %d", e.id, e.end.state, e.end.finish, seen.state, seen.finish)
	case e.end.full && full && e.end.result != seen.result:
		l.t.Errorf("job %s had the result %s and has %s now", e.id, e.end.result, seen.result)
	}
	if full {
		e.end.result, e.end.full = seen.result, true
		if err := l.checkLocked(e); err != nil {
			l.t.Error(err)
		}
	}
}

// checkLocked compares how e ended with what was acknowledged of it.
func (l *ledger) checkLocked(e *entry) error {
	a, taken := l.applied[e.id]
	switch e.end.state {
	case fairleadv1.JobState_JOB_STATE_SUCCEEDED:
		if err := e.payload.checkResult(e.end.result); err != nil {
			return fmt.Errorf("job %s: %w", e.id, err)
		}
		if taken && a.Result != e.end.result {
			return fmt.Errorf("job %s has the result %s; the one that was acknowledged is %s", e.id, e.end.result, a.Result)
		}
		return nil
	case fairleadv1.JobState_JOB_STATE_CANCELLED:
		if !e.cancelled {
			return fmt.Errorf("job %s is cancelled and nobody asked for that", e.id)
		}
		if taken {
			return fmt.Errorf("job %s is cancelled; its outcome had been acknowledged", e.id)
		}
		return nil
	case fairleadv1.JobState_JOB_STATE_UNSPECIFIED, fairleadv1.JobState_JOB_STATE_DELAYED, fairleadv1.JobState_JOB_STATE_READY,
		fairleadv1.JobState_JOB_STATE_LEASED, fairleadv1.JobState_JOB_STATE_FAILED, fairleadv1.JobState_JOB_STATE_EXPIRED,
		fairleadv1.JobState_JOB_STATE_QUARANTINED:
		return fmt.Errorf("job %s ended as %v", e.id, e.end.state)
	default:
		return fmt.Errorf("job %s ended as %v", e.id, e.end.state)
	}
}

// counts returns how many submissions and how many outcomes were acknowledged.
func (l *ledger) counts() (acked, taken int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked), len(l.applied)
}

// outstanding returns how many jobs are not known to have ended.
func (l *ledger) outstanding() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked) - len(l.over)
}

// snapshot returns the entries that are acknowledged now, and which of them are known to have ended.
func (l *ledger) snapshot() (entries []*entry, ended map[*entry]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ended = make(map[*entry]bool, len(l.acked))
	for _, e := range l.acked {
		if _, taken := l.applied[e.id]; taken || e.end != nil {
			ended[e] = true
		}
	}
	return slices.Clone(l.acked), ended
}

// find returns the entry of a job that the server has; nil when nobody ever submitted its key.
func (l *ledger) find(tenant string, job *fairleadv1.Job) *entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byKey[nameOf(tenant, job.GetIdempotencyKey())]
}

// pick returns an acknowledged entry of the tenant's, an old or a new one; nil when there is none.
func (l *ledger) pick(tenant string, n func(int) int) *entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range 10 {
		if len(l.acked) == 0 {
			return nil
		}
		i := n(len(l.acked))
		if n(2) == 0 { // a recent one: it may be under way
			i = len(l.acked) - 1 - n(min(len(l.acked), 32))
		}
		if e := l.acked[i]; e.tenant == tenant {
			return e
		}
	}
	return nil
}
