package worker

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/fairlead/fairlead/dataplane/client"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// runReport reports outcomes, one call at a time, until ctx ends.
func (s *session) runReport(ctx context.Context) {
	for last := 0; ; {
		if last > 1 {
			// The answer has just woken slots whose jobs may be short: letting them go first puts their outcomes into one Report.
			runtime.Gosched()
		}
		batch, req := s.nextReport()
		last = len(batch)
		if req == nil {
			select {
			case <-s.reportWake:
				continue
			case <-ctx.Done():
				return
			}
		}
		answer, err := s.report(ctx, req)
		s.reported(batch, req, answer, err)
		if err != nil && ctx.Err() != nil {
			return
		}
	}
}

// nextReport returns the Report to make now, or nil.
func (s *session) nextReport() ([]*attempt, *fairleadv1.ReportRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	batch := s.ledger.takeEnded()
	if len(batch) == 0 {
		return nil, nil
	}
	s.reportSeq++
	s.stats.ReportCalls++
	req := &fairleadv1.ReportRequest{Session: s.id, Sequence: s.reportSeq, Outcomes: make([]*fairleadv1.Outcome, len(batch))}
	for i, a := range batch {
		req.Outcomes[i] = a.report.outcome
	}
	req.MaxJobs = int32(s.ledger.asks(len(batch)))
	s.ledger.reporting, s.ledger.fetching = true, req.MaxJobs > 0
	return batch, req
}

// report makes one Report, as it is, until it is answered. It returns an error when ctx ended or the cell's refusal is definite.
func (s *session) report(ctx context.Context, req *fairleadv1.ReportRequest) (*fairleadv1.ReportResponse, error) {
	for n := 1; ; n++ {
		attempt, cancel := context.WithTimeout(ctx, callTimeout)
		answer, err := s.service.Report(attempt, req)
		cancel()
		if err == nil {
			return answer, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		e := client.AsError(err)
		if definite(e) {
			s.fail(e)
			return nil, e
		}
		if !s.pause(ctx, "report", n, e) {
			return nil, context.Cause(ctx)
		}
	}
}

// reported takes in the answer of a Report.
func (s *session) reported(batch []*attempt, req *fairleadv1.ReportRequest, answer *fairleadv1.ReportResponse, err error) {
	s.mu.Lock()
	s.ledger.reporting, s.ledger.fetching = false, false
	s.ledger.settle(batch)
	if err != nil {
		s.stats.Unreported += int64(len(batch))
	} else {
		s.countLocked(batch, answer.GetResults())
		s.answeredSeq = req.GetSequence()
		s.grantedLocked(answer.GetLeases())
		if req.GetMaxJobs() > 0 {
			s.ledger.starved = len(answer.GetLeases()) < int(req.GetMaxJobs())
		}
	}
	lease := s.ledger.wantsLease()
	draining := s.ledger.draining
	s.mu.Unlock()
	s.revoke(answer.GetCancels())
	if lease {
		poke(s.leaseWake)
	}
	if draining {
		poke(s.changed)
	}
}

// countLocked counts what was reported. An outcome that the cell did not take is logged: somebody will ask what became of it.
func (s *session) countLocked(batch []*attempt, results []*fairleadv1.OutcomeResult) {
	for i, a := range batch {
		if i < len(results) && results[i].GetRejection() != nil {
			r := results[i].GetRejection()
			s.stats.Refused++
			s.log.Warn("outcome was not taken", "job", a.key.job, "attempt", a.lease.GetAttempt(), "verdict", a.report.verdict.String(),
				"code", r.GetCode(), "reason", r.GetReason(), "message", r.GetMessage())
			continue
		}
		switch a.report.verdict {
		case VerdictSuccess:
			s.stats.Succeeded++
		case VerdictFailure:
			s.stats.Failed++
		case VerdictRelease:
			s.stats.Released++
		default:
			panic(fmt.Sprintf("worker: reported job %s has %v", a.key.job, a.report.verdict))
		}
	}
}

// runExtend extends the leases held until ctx ends, and stops the handlers of those that ran out.
func (s *session) runExtend(ctx context.Context) {
	for {
		t := time.NewTimer(s.untilExtension())
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
		s.extend(ctx)
		s.expire()
	}
}

// untilExtension is a third of a lease, or less when one runs out before.
func (s *session) untilExtension() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, now := s.extendEvery, time.Now()
	for _, a := range s.ledger.extendable() {
		if a.phase != phaseEnded {
			d = min(d, a.expires.Sub(now))
		}
	}
	return max(d, time.Millisecond)
}

// extend makes one try to extend every lease. A try that failed is not repeated before the next tick: there are two more in each lease.
func (s *session) extend(ctx context.Context) {
	s.mu.Lock()
	list, timeout := s.ledger.extendable(), min(callTimeout, s.extendEvery/2)
	s.mu.Unlock()
	for len(list) > 0 {
		chunk := list[:min(len(list), reportExtensionsMax)]
		list = list[len(chunk):]
		req := &fairleadv1.ReportRequest{Session: s.id, Extensions: make([]*fairleadv1.Extension, len(chunk))}
		for i, a := range chunk {
			req.Extensions[i] = &fairleadv1.Extension{JobId: a.key.job, Token: a.key.token}
		}
		sent := time.Now()
		call, cancel := context.WithTimeout(ctx, timeout)
		answer, err := s.service.Report(call, req)
		cancel()
		if err != nil {
			s.log.Warn("leases were not extended", "leases", len(chunk), "error", client.AsError(err))
			return
		}
		s.mu.Lock()
		s.stats.ExtendCalls++
		for _, a := range chunk {
			a.expires = sent.Add(a.duration) // the cell's count began later than that
		}
		s.mu.Unlock()
		s.revoke(answer.GetCancels())
	}
}

func (s *session) expire() {
	s.mu.Lock()
	list, n := s.ledger.expire(time.Now())
	s.stats.Lost += int64(n)
	s.mu.Unlock()
	if n > 0 {
		s.log.Warn("leases ran out", "leases", n)
		stop(list, ErrLeaseLost)
		poke(s.leaseWake)
	}
}
