package worker

import (
	"context"
	"time"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// The bounds of one Report. The second keeps it well below the door's bound on requests: an outcome has at most 64 KiB.
const (
	reportOutcomesMax   = 500
	reportExtensionsMax = 500
	reportBytesMax      = 1 << 20
)

// leaseKey names a lease.
type leaseKey struct{ job, token string }

// phase is where a held lease stands.
type phase uint8

const (
	phaseQueued  phase = iota // waits for a slot
	phaseRunning              // a handler has it
	phaseEnded                // its outcome waits for a Report, or is in one
)

// attempt is one lease held.
type attempt struct {
	lease    *fairleadv1.JobLease
	key      leaseKey
	duration time.Duration // how long an extension lasts
	expires  time.Time     // when the lease ends unless it is extended
	phase    phase
	started  time.Time
	cancel   context.CancelCauseFunc // of the running handler
	revoked  bool                    // the cell took it back: no outcome is wanted
	lost     bool                    // it was not extended in time
	report   report                  // once it ended
}

// report is an outcome in its wire form.
type report struct {
	verdict Verdict
	outcome *fairleadv1.Outcome
	bytes   int // about its size
}

func reportOf(lease *fairleadv1.JobLease, o Outcome) report {
	const fixed = 128
	return report{verdict: o.Verdict, outcome: o.proto(lease), bytes: fixed + len(o.Error) + len(o.Result.Body())}
}

// ledger is the account of the leases a worker holds, and decides which call is to be made next. It does no I/O and has no lock: its
// session guards it.
type ledger struct {
	capacity int // slots + prefetch
	held     map[leaseKey]*attempt
	queue    []*attempt // granted, not started, in the order of the grants; revoked ones are skipped
	ended    []*attempt // to be reported, in the order in which they ended

	running   int
	draining  bool
	leasing   bool // a Lease is under way
	reporting bool // a Report is under way
	fetching  bool // and it asked for jobs
	starved   bool // the last Report that asked for jobs brought fewer
}

func newLedger(capacity int) ledger {
	return ledger{capacity: capacity, held: make(map[leaseKey]*attempt, capacity)}
}

// room is how many more leases may be held. What the handlers have ended counts as held until the cell knows.
func (l *ledger) room() int { return max(0, l.capacity-len(l.held)) }

// asks is how many jobs a Report of n outcomes is to ask for: what there is room for once they are settled.
func (l *ledger) asks(n int) int {
	if l.draining {
		return 0
	}
	return max(0, l.capacity-(len(l.held)-n))
}

// unreported is how many leases ended whose outcome the cell does not have.
func (l *ledger) unreported() int {
	n := 0
	for _, a := range l.held {
		if a.phase == phaseEnded {
			n++
		}
	}
	return n
}

// wantsLease reports whether a Lease is to be opened: there is room, and no Report under way or about to leave asks for jobs, or the last
// one that did found too few.
func (l *ledger) wantsLease() bool {
	if l.draining || l.leasing || l.room() == 0 {
		return false
	}
	fetched := l.reporting && l.fetching || len(l.ended) > 0
	return l.starved || !fetched
}

// grant takes in leases, and returns how many were new: a repeated answer brings the same again. While draining they end at once, released.
func (l *ledger) grant(leases []*fairleadv1.JobLease, now time.Time, defaultDuration time.Duration) int {
	n := 0
	for _, lease := range leases {
		key := leaseKey{lease.GetJobId(), lease.GetToken()}
		if l.held[key] != nil {
			continue
		}
		n++
		a := &attempt{lease: lease, key: key, duration: lease.GetLeaseDuration().AsDuration()}
		if a.duration <= 0 {
			a.duration = defaultDuration
		}
		a.expires = now.Add(a.duration)
		l.held[key] = a
		if l.draining {
			l.release(a)
		} else {
			l.queue = append(l.queue, a)
		}
	}
	return n
}

func (l *ledger) release(a *attempt) {
	a.phase, a.report = phaseEnded, reportOf(a.lease, Outcome{Verdict: VerdictRelease})
	l.ended = append(l.ended, a)
}

// next takes the oldest lease that waits, or returns nil.
func (l *ledger) next(now time.Time) *attempt {
	for len(l.queue) > 0 {
		a := l.queue[0]
		l.queue[0] = nil
		l.queue = l.queue[1:]
		if a.revoked {
			continue
		}
		a.phase, a.started = phaseRunning, now
		l.running++
		return a
	}
	l.queue = nil
	return nil
}

// end takes in that the handler of a has returned, and what to report of it. It reports whether that is wanted.
func (l *ledger) end(a *attempt, r report) bool {
	if a.phase != phaseRunning { // given up on before
		return false
	}
	l.running--
	a.phase, a.report, a.cancel = phaseEnded, r, nil
	if a.revoked {
		delete(l.held, a.key)
		return false
	}
	l.ended = append(l.ended, a)
	return true
}

// takeEnded takes what one Report can carry. They stay held until it is answered.
func (l *ledger) takeEnded() []*attempt {
	n, bytes := 0, 0
	for n < len(l.ended) && n < reportOutcomesMax && (n == 0 || bytes+l.ended[n].report.bytes <= reportBytesMax) {
		bytes += l.ended[n].report.bytes
		n++
	}
	batch := l.ended[:n:n]
	l.ended = l.ended[n:]
	if len(l.ended) == 0 {
		l.ended = nil
	}
	return batch
}

// settle forgets leases whose outcomes were reported, or never can be.
func (l *ledger) settle(batch []*attempt) {
	for _, a := range batch {
		delete(l.held, a.key)
	}
}

// revoke takes in that the cell wants no more of a lease, and returns how to stop its handler, if that runs. Outcomes on their way are
// answered by the cell on their own.
func (l *ledger) revoke(ref *fairleadv1.LeaseRef) context.CancelCauseFunc {
	a := l.held[leaseKey{ref.GetJobId(), ref.GetToken()}]
	if a == nil || a.revoked || a.phase == phaseEnded {
		return nil
	}
	a.revoked = true
	if a.phase == phaseQueued {
		delete(l.held, a.key)
	}
	return a.cancel
}

// expire takes in the time, and returns how to stop the handlers whose leases were not extended by now. What was not started is dropped: it
// is not the worker's any more.
func (l *ledger) expire(now time.Time) (stop []context.CancelCauseFunc, dropped int) {
	for _, a := range l.held {
		if a.revoked || a.lost || a.phase == phaseEnded || now.Before(a.expires) {
			continue
		}
		a.lost = true
		dropped++
		if a.phase == phaseQueued {
			a.revoked = true
			delete(l.held, a.key)
		} else if a.cancel != nil {
			stop = append(stop, a.cancel)
		}
	}
	return stop, dropped
}

// extendable returns the leases to extend. Those that ended are among them until the cell has their outcomes.
func (l *ledger) extendable() []*attempt {
	list := make([]*attempt, 0, len(l.held))
	for _, a := range l.held {
		if !a.revoked && !a.lost {
			list = append(list, a)
		}
	}
	return list
}

// refs names the leases held, for a Lease.
func (l *ledger) refs() []*fairleadv1.LeaseRef {
	refs := make([]*fairleadv1.LeaseRef, 0, len(l.held))
	for _, a := range l.held {
		if !a.revoked {
			refs = append(refs, &fairleadv1.LeaseRef{JobId: a.key.job, Token: a.key.token})
		}
	}
	return refs
}

// drain lets nothing start any more: what waits ends, released.
func (l *ledger) drain() {
	l.draining = true
	for _, a := range l.queue {
		if !a.revoked {
			l.release(a)
		}
	}
	l.queue = nil
}

// stoppers returns how to stop every running handler.
func (l *ledger) stoppers() []context.CancelCauseFunc {
	var stop []context.CancelCauseFunc
	for _, a := range l.held {
		if a.phase == phaseRunning && a.cancel != nil {
			stop = append(stop, a.cancel)
		}
	}
	return stop
}

// giveUp ends, released, what still runs, and returns how many that were.
func (l *ledger) giveUp() int {
	n := 0
	for _, a := range l.held {
		if a.phase != phaseRunning {
			continue
		}
		n++
		l.running--
		if a.revoked {
			a.phase = phaseEnded
			delete(l.held, a.key)
			continue
		}
		l.release(a)
	}
	return n
}

// drained reports whether nothing runs and nothing is left to report.
func (l *ledger) drained() bool {
	return l.running == 0 && len(l.ended) == 0 && !l.reporting && !l.leasing
}
